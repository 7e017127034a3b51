"""Where the time of a compiled training program goes, by part and by operation.

    python benchmarks/profile.py qmix-gru               # of benchmarks/workloads.py
    python benchmarks/profile.py qmix-gru --top 30      # and its 30 dearest operations
    python benchmarks/profile.py all                    # how near each workload is to its limit

One call is traced by JAX's profiler on one pinned core. An operation belongs to the part whose
name (`jax.named_scope`) it was traced under: `act`, `game`, `remember`, `draw`, `target`,
`optimise`; what is left of learning is `forward` or `backward`. A trace makes each operation dearer
by about a microsecond, so shares of many small ones are too large; the time of a call is taken
without it.

The last line compares all matrix products with plain ones: what the program did in each second,
and what it would have done if it had been nothing but a loop around products of the same shapes.
`all` makes a table of that, and writes `results/limits.json`.
"""

from __future__ import annotations

import sys

if __name__ == "profile":  # imported instead of the standard library's, by a script beside us
    sys.path.remove(next(p for p in sys.path if p.rstrip("/").endswith("benchmarks")))
    del sys.modules["profile"]
    sys.modules["profile"] = __import__("profile")

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).parent / "results" / "limits.json"
REPEATS = 5  # calls of which the median is told
PARTS = ("act", "game", "remember", "draw", "target", "optimise")
SHAPE = re.compile(r"\[([\d,]*)\]")
DOT = re.compile(
    r"= \w+(\[[\d,]*\])\S* dot\(%?([\w.-]+), %?([\w.-]+)\).*lhs_contracting_dims=\{(\d+)"
)


class Product(NamedTuple):
    """A matrix product `[rows,inner] @ [inner,columns]`, so many times."""

    rows: int
    inner: int
    columns: int
    times: int

    @property
    def flops(self) -> int:
        return 2 * self.times * self.rows * self.inner * self.columns


def compiled(name: str, calls: int) -> tuple[Any, Any, int]:
    """The program of a workload, its state after a first call, and environment steps of a call."""
    import jax
    from workloads import WORKLOADS

    from shoal.algorithms import find
    from shoal.engine.loop import Loop
    from shoal.envs import make

    work = WORKLOADS[name]
    env = make(work.env)
    (team, spec), *_ = env.teams.items()
    kind = find(work.algorithm)
    sides = {team: kind(kind.Config(**work.options), spec)}
    loop = Loop(env, sides, work.games, work.window, 10_000_000, 1)
    state = loop.init(0)
    program = loop.program(calls).lower(state).compile()
    for _ in range(2):
        state, _ = jax.block_until_ready(program(state))
    return program, state, work.games * work.window * calls


def traced(program: Any, state: Any) -> tuple[Any, list[tuple[str, int, int]]]:
    """A call's operations: name, start and duration in nanoseconds."""
    import jax

    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            state, _ = jax.block_until_ready(program(state))
        (file,) = Path(folder).rglob("*.xplane.pb")
        planes = jax.profiler.ProfileData.from_file(str(file)).planes
        events = [
            (event.name, int(event.start_ns), int(event.duration_ns))
            for plane in planes
            for line in plane.lines
            if "XLAEigen" in line.name
            for event in line.events
        ]
    return state, events


def own_times(events: list[tuple[str, int, int]]) -> tuple[Counter[str], Counter[str]]:
    """Nanoseconds of each operation without those inside it, and how often it ran."""
    spent: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    under: list[tuple[str, int]] = []
    for name, start, duration in sorted(events, key=lambda e: (e[1], -e[2])):
        while under and under[-1][1] <= start:
            under.pop()
        if under:
            spent[under[-1][0]] -= duration
        spent[name] += duration
        counts[name] += 1
        under.append((name, start + duration))
    return spent, counts


def part_of(scope: str) -> str:
    """The part that an operation's scope names."""
    for part in PARTS:
        if re.search(rf"\b{part}\b", scope):
            return part
    if "transpose(" in scope:
        return "backward"
    return "forward" if "jvp(" in scope else "other"


def scopes(text: str) -> dict[str, str]:
    """The scope of every instruction of a program."""
    found = re.finditer(r'^\s*(?:ROOT )?%?([\w.-]+) = .*?op_name="([^"]*)"', text, re.MULTILINE)
    return {match[1]: match[2] for match in found}


def products(text: str, counts: Counter[str]) -> list[Product]:
    """All matrix products of a call, from the instructions and how often each ran."""
    bodies = dict(re.findall(r"^%?([\w.-]+) \([^\n]*\{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL))
    found: Counter[tuple[int, int, int]] = Counter()
    for line in text.splitlines():
        name = re.match(r"\s*(?:ROOT )?%?([\w.-]+) = ", line)
        times = counts[name[1]] if name else 0
        if not times:
            continue
        fused = re.search(r"calls=%?([\w.-]+)", line)
        whole = bodies.get(fused[1], "") if fused else text
        for inside in whole.splitlines() if fused else [line]:
            shape = _product(inside, whole)
            if shape:
                found[shape] += times
    return [Product(*shape, count) for shape, count in found.items()]


def _product(line: str, whole: str) -> tuple[int, int, int] | None:
    """Rows, inner size and columns of the product on a line of a program."""
    match = DOT.search(line)
    if not match:
        return None
    out = _sizes(match[1])
    left = re.search(rf"%?{re.escape(match[2])}(?: =|:) \w+(\[[\d,]*\])", whole)
    inner = _sizes(left[1])[int(match[4])] if left else 1
    columns = out[-1] if len(out) > 1 else 1
    return math.prod(out) // max(columns, 1), inner, columns


def _sizes(shape: str) -> list[int]:
    return [int(size) for size in SHAPE.match(shape)[1].split(",") if size]  # type: ignore[index]


def plain_rate(product: Product) -> float:
    """FLOP per second of a loop around such a product."""
    import jax
    import jax.numpy as jnp

    rows, inner, columns = product[:3]
    repeats = max(10, min(2_000, int(1e8 / (2 * rows * inner * columns))))

    def again(x: Any, _: None) -> Any:
        return (x @ there) @ back * 1e-3, None

    there = jnp.ones((inner, columns))
    back = jnp.ones((columns, inner))
    run = jax.jit(lambda x: jax.lax.scan(again, x, None, repeats)[0])
    x = jnp.ones((rows, inner))
    run(x).block_until_ready()
    began = time.process_time()
    run(x).block_until_ready()
    return 4 * rows * inner * columns * repeats / (time.process_time() - began)


def timed(program: Any, state: Any) -> tuple[Any, float]:
    """Processor seconds of a call, the median of several."""
    import jax

    spent: list[float] = []
    for _ in range(REPEATS):
        began = time.process_time()
        state, _ = jax.block_until_ready(program(state))
        spent.append(time.process_time() - began)
    return state, statistics.median(spent)


def show_parts(
    by_part: dict[str, int],
    spent: Counter[str],
    counts: Counter[str],
    where: dict[str, str],
    ms: float,
    top: int,
) -> None:
    """Print the share of each part in an iteration of `ms`, and the dearest operations."""
    whole = sum(by_part.values())
    print(f"{'part':12}{'share':>8}{'ms':>9}   (ms of the iteration, by its share of the trace)")
    for part, nanoseconds in sorted(by_part.items(), key=lambda item: -item[1]):
        share = nanoseconds / whole
        print(f"{part:12}{share:>8.1%}{share * ms:>9.3f}")
    if top:
        print(f"\n{'operation':46}{'runs':>8}{'µs each':>10}  scope")
        shown = [item for item in spent.most_common() if not item[0].startswith("ThunkExecutor")]
        for name, nanoseconds in shown[:top]:
            each = nanoseconds / counts[name] / 1e3
            print(f"{name[:45]:46}{counts[name]:>8}{each:>10.1f}  {where.get(name, '')[-60:]}")


def profiled(workload: str, calls: int, top: int) -> dict[str, float]:
    """Print where a workload's time goes; its rates."""
    program, state, steps = compiled(workload, calls)
    state, seconds = timed(program, state)
    _, events = traced(program, state)
    spent, counts = own_times(events)
    text = program.as_text()
    where = scopes(text)
    by_part: defaultdict[str, int] = defaultdict(int)
    for name, nanoseconds in spent.items():
        if not name.startswith("ThunkExecutor"):
            by_part[part_of(where.get(name, ""))] += nanoseconds
    ms = seconds / calls * 1e3
    print(f"{workload}: {ms:.2f} ms of the processor an iteration,")
    print(f"{steps / seconds:,.0f} steps of the stream per second of it\n")
    show_parts(by_part, spent, counts, where, ms, top)
    found = [product for product in products(text, counts) if product.flops]
    flops = sum(product.flops for product in found)
    alone = sum(product.flops / plain_rate(product) for product in found)
    print(
        f"\nmatrix products: {flops / seconds / 1e9:.1f} GFLOP/s of the whole call; alone, in a"
        f" loop, {flops / alone / 1e9:.1f}: {alone / seconds:.0%} of the time is theirs at best"
    )
    return {
        "ms": ms,
        "steps_per_second": steps / seconds,
        "gflops": flops / seconds / 1e9,
        "plain_gflops": flops / alone / 1e9,
    }


def limits(core: int) -> None:
    """Profile every workload in a process of its own; print and write a table."""
    from workloads import WORKLOADS

    rows: dict[str, dict[str, float]] = {}
    print("| workload | ms of an iteration | GFLOP/s | of products alone | share |")
    print("|---|---|---|---|---|")
    for name in WORKLOADS:
        command = [sys.executable, __file__, name, "--core", str(core), "--json"]
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        row = rows[name] = json.loads(out.splitlines()[-1])
        share = row["gflops"] / row["plain_gflops"]
        print(
            f"| {name} | {row['ms']:.2f} | {row['gflops']:.1f} | {row['plain_gflops']:.1f} |"
            f" **{share:.2f}** |",
            flush=True,
        )
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Show where a training program's time goes.")
    parser.add_argument("workload", help="of benchmarks/workloads.py; or all")
    parser.add_argument("--calls", type=int, default=10, help="iterations in the traced call")
    parser.add_argument("--top", type=int, default=0, help="show the dearest operations too")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--json", action="store_true", help="print the rates as JSON at the end")
    given = parser.parse_args()
    if given.workload == "all":
        return limits(given.core)
    os.sched_setaffinity(0, {given.core})
    rates = profiled(given.workload, given.calls, given.top)
    if given.json:
        print(json.dumps(rates))


if __name__ == "__main__":
    main()
