"""Whole training beside the scripts of peers, in turn, on one pinned core, with equal work.

    python benchmarks/peers.py --jaxmarl JaxMARL --purejaxrl purejaxrl --python peers/bin/python
    python benchmarks/peers.py --jaxmarl JaxMARL --only qmix-gru vdn-gru --rounds 5
    python benchmarks/peers.py --epymarl epymarl --xuance --torch-python torch/bin/python

`--jaxmarl`, `--purejaxrl` and `--epymarl` are checkouts; `--python` has what the scripts of the
first two import (JaxMARL's extra `algs`; brax, for purejaxrl) and the same JAX, `--torch-python`
what the others do (PyTorch, PettingZoo 1.24 with its MPE, and XuanCe itself). Their files are
imported as they are, and train with the script's own config file, evaluation and logging switched
off. A round is a process of theirs, then one of ours, each pinned to the same core; in it a call of
equal work is timed several times. The table has medians over rounds, and the least and largest
round.

Equal work is counted, not assumed: environment steps, gradient steps, transitions in each gradient
step and parameters of both stand in the table and in `results/peers.json`.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from workloads import WORKLOADS, Workload

RESULTS = Path(__file__).parent / "results" / "peers.json"
QUIET: dict[str, Any] = {  # neither evaluation nor logging
    "WANDB_MODE": "disabled",
    "TEST_DURING_TRAINING": False,
    "LEARNING_STARTS": 0,
    "DEBUG": False,
    "SEED": 0,
}


# -- one process of either side ----------------------------------------------------------------


def time_calls(
    call: Callable[[], int], seconds: float, opening: Callable[[], int] = lambda: 0
) -> dict[str, Any]:
    """Time calls that return how many environment steps they took, without what `opening` takes."""
    rates: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while len(rates) < 3 or time.perf_counter() < end:
        first = spent(opening)
        whole = spent(call)
        rates.append((whole[0] / (whole[1] - first[1]), whole[0] / (whole[2] - first[2])))
    cpu, wall = (statistics.median(clock) for clock in zip(*rates, strict=True))
    return {"cpu": cpu, "wall": wall, "calls": len(rates)}


def spent(call: Callable[[], int]) -> tuple[int, float, float]:
    """What a call returns, and the seconds it took, of the processor and by the clock."""
    cpu = time.process_time()
    wall = time.perf_counter()
    steps = call()
    return steps, time.process_time() - cpu, time.perf_counter() - wall


def ours(work: Workload, seconds: float) -> dict[str, Any]:
    """A measurement of Shoal."""
    import jax

    from shoal.algorithms import find
    from shoal.engine.loop import Loop
    from shoal.envs import make

    env = make(work.env)
    kind = find(work.algorithm)
    (team, spec), *_ = env.teams.items()
    algorithm = kind(kind.Config(**work.options), spec)
    loop = Loop(env, {team: algorithm}, work.games, work.window, 10_000_000, 1)
    began = time.perf_counter()
    state = jax.block_until_ready(loop.init(0))
    program = loop.program(work.iterations).lower(state).compile()
    compiled = time.perf_counter() - began
    held = [jax.block_until_ready(program(state)[0])]  # the first call fills the replay

    def call() -> int:
        before = int(held[0].steps)
        held[0] = jax.block_until_ready(program(held[0])[0])
        return int(held[0].steps) - before

    updates = _counted(held[0].learners[team].opt)
    timed = time_calls(call, seconds)
    options: dict[str, Any] = vars(algorithm.config)
    rows = (
        options["batch"] * options["length"]
        if "batch" in options
        else work.games * work.window // options["minibatches"]
    )
    return timed | {
        "compile_s": compiled,
        "steps": call() / work.iterations,
        "updates": updates / work.iterations,
        "rows": rows,
        "parameters": _sizes(held[0].learners[team].params),
        "jax": jax.__version__,
    }


def theirs_in_torch(work: Workload, seconds: float, checkout: Path) -> dict[str, Any]:
    """A measurement of EPyMARL or XuanCe."""
    loop = importlib.import_module(LOOPS[work.peer])
    peer = loop.Peer(checkout, str(work.config))

    def opening() -> int:
        return peer.train(work.lead)

    def call() -> int:
        return peer.train(work.lead + work.iterations) - work.lead * loop.STEPS

    opening()
    before = peer.updates
    call()
    updates = peer.updates - 2 * before
    return time_calls(call, seconds, opening) | {
        "compile_s": 0.0,
        "steps": loop.STEPS,
        "updates": updates / work.iterations,
        "rows": peer.rows,
        "parameters": peer.parameters,
        "torch": importlib.metadata.version("torch"),
    }


def theirs_in_jax(work: Workload, seconds: float, checkout: Path) -> dict[str, Any]:
    """A measurement of the peer's script."""
    import jax
    import wandb
    from flax.training.train_state import TrainState

    wandb.init(mode="disabled")  # their callbacks log to it
    config = read(work, checkout)
    each = config["NUM_ENVS"] * config["NUM_STEPS"]
    script = imported(checkout / work.script)
    began = time.perf_counter()
    program = compiled(script, config, each * (work.lead + work.iterations))
    seconds_compiling = time.perf_counter() - began
    lead = compiled(script, config, each * work.lead) if work.lead else None
    out = jax.block_until_ready(program(jax.random.PRNGKey(0)))

    def call() -> int:
        jax.block_until_ready(program(jax.random.PRNGKey(1)))
        return each * work.iterations

    def opening() -> int:
        jax.block_until_ready(lead and lead(jax.random.PRNGKey(1)))
        return 0

    states = [
        leaf
        for leaf in jax.tree.leaves(out, is_leaf=lambda x: isinstance(x, TrainState))
        if isinstance(leaf, TrainState)
    ]
    before = 1 if work.lead else 0  # gradient steps in the lead
    return time_calls(call, seconds, opening) | {
        "compile_s": seconds_compiling,
        "steps": each,
        "updates": (int(states[0].step) - before) / work.iterations,
        "rows": work.rows(config),
        "parameters": sum(_sizes(state.params) for state in states),
        "jax": jax.__version__,
    }


def read(work: Workload, checkout: Path) -> dict[str, Any]:
    """The script's own settings, without evaluation and logging."""
    config = work.config
    if isinstance(config, str):
        # it reads 2e-3 as a number, as their scripts do
        reader = importlib.import_module("omegaconf").OmegaConf
        config = cast(dict[str, Any], reader.to_container(reader.load(checkout / config)))
    return dict(config) | QUIET


def imported(path: Path) -> Any:
    """The script as a module; it may import what lies beside it."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location("peer_script", path)
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    sys.modules["peer_script"] = script
    spec.loader.exec_module(script)
    return script


def compiled(script: Any, config: dict[str, Any], steps: int) -> Any:
    """The script's training of so many steps."""
    import jax

    config = config | {"TOTAL_TIMESTEPS": steps}
    make_env = getattr(script, "env_from_config", None)
    given = (config, make_env(config)[0]) if make_env else (config,)
    return jax.jit(script.make_train(*given)).lower(jax.random.PRNGKey(0)).compile()


def _sizes(tree: Any) -> int:
    import jax

    return sum(leaf.size for leaf in jax.tree.leaves(tree) if hasattr(leaf, "size"))


def _counted(opt: Any) -> int:
    """Gradient steps, as the optimisers count them."""
    import jax

    leaves = jax.tree_util.tree_leaves_with_path(opt)
    return max(int(leaf) for path, leaf in leaves if str(path[-1]).endswith("count"))


PEERS: dict[str, tuple[Callable[[Workload, float, Path], dict[str, Any]], str]] = {
    # what measures it, and the option that names its Python
    "jaxmarl": (theirs_in_jax, "python"),
    "purejaxrl": (theirs_in_jax, "python"),
    "epymarl": (theirs_in_torch, "torch_python"),
    "xuance": (theirs_in_torch, "torch_python"),
}
LOOPS = {"epymarl": "epymarl", "xuance": "xuance_loop"}  # modules beside this one


def child(side: str, name: str, core: int, seconds: float, checkout: str) -> None:
    """One measurement, printed as JSON."""
    os.sched_setaffinity(0, {core})
    work = WORKLOADS[name]
    if side == "ours":
        result = ours(work, seconds)
    else:
        result = PEERS[work.peer][0](work, seconds, Path(checkout))
    print(json.dumps(result))


# -- rounds ------------------------------------------------------------------------------------


class Failed(Exception):
    """A process of either side that did not measure."""


def measure(
    python: str, side: str, name: str, core: int, seconds: float, checkout: str, cache: str
) -> dict[str, Any]:
    """One process; it finds what an earlier round compiled."""
    env = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": cache,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "JAX_PLATFORMS": "cpu",
    }
    command = [python, __file__, "--child", side, name, str(core), str(seconds), checkout]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if ran.returncode:
        last = ran.stderr.strip().splitlines()[-1:] or ["no message"]
        raise Failed(f"{name}, {side}: {last[0]}\n(run {' '.join(command)} to see all)")
    return json.loads(ran.stdout.splitlines()[-1])


def compare(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """All rounds of a workload."""
    work = WORKLOADS[name]
    checkout = str(Path(getattr(given, work.peer)).resolve())
    python = getattr(given, PEERS[work.peer][1])
    rounds: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(given.rounds):
            one = {
                side: measure(
                    python, side, name, given.core, given.seconds, checkout, f"{cache}/{side}"
                )
                for side, python in {"theirs": python, "ours": sys.executable}.items()
            }
            rounds.append(one)
    row: dict[str, Any] = {"workload": name, "peer": work.peer, "script": work.script}
    for side in ("theirs", "ours"):
        row[side] = {k: v for k, v in rounds[0][side].items() if k not in ("cpu", "wall", "calls")}
        for clock in ("cpu", "wall"):
            rates = sorted(one[side][clock] for one in rounds)
            row[side][clock] = {
                "median": statistics.median(rates),
                "least": rates[0],
                "most": rates[-1],
            }
    ratios = sorted(one["ours"]["cpu"] / one["theirs"]["cpu"] for one in rounds)
    row["ratio"] = {"median": statistics.median(ratios), "least": ratios[0], "most": ratios[-1]}
    return row


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    a, b = row["theirs"], row["ours"]

    def work(side: dict[str, Any]) -> str:
        return (
            f"{side['steps']:,.0f} / {side['updates']:g} / {side['rows']:,} /"
            f" {side['parameters']:,}"
        )

    def rate(side: dict[str, Any], clock: str) -> str:
        return (
            f"{side[clock]['median']:,.0f} ({side[clock]['least']:,.0f}–{side[clock]['most']:,.0f})"
        )

    ratio = row["ratio"]
    return (
        f"| {row['workload']} | {rate(a, 'cpu')} | {rate(b, 'cpu')} |"
        f" **{ratio['median']:.2f}** ({ratio['least']:.2f}–{ratio['most']:.2f}) |"
        f" {a['wall']['median']:,.0f} | {b['wall']['median']:,.0f} | {work(a)} | {work(b)} |"
    )


def revision(checkout: str) -> str:
    command = ["git", "-C", checkout, "rev-parse", "--short", "HEAD"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return ran.stdout.strip() or "unknown"


def processor() -> str:
    """The processor's name, as Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), "unknown")


def main() -> None:
    parser = argparse.ArgumentParser(description="Time training beside peers.")
    parser.add_argument("--jaxmarl", metavar="FOLDER", help="a checkout of JaxMARL")
    parser.add_argument("--purejaxrl", metavar="FOLDER", help="a checkout of purejaxrl")
    parser.add_argument("--epymarl", metavar="FOLDER", help="a checkout of EPyMARL")
    parser.add_argument(
        "--xuance", action="store_const", const="", help="XuanCe, as --torch-python has it"
    )
    parser.add_argument(
        "--torch-python", default=sys.executable, help="an interpreter that has what it imports"
    )
    parser.add_argument(
        "--python", default=sys.executable, help="an interpreter that has what their scripts import"
    )
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, metavar="WORKLOAD")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    given = parser.parse_args()
    names = [
        name for name in given.only or WORKLOADS if getattr(given, WORKLOADS[name].peer) is not None
    ]
    if not names:
        parser.error("name a peer: --jaxmarl, --purejaxrl or --epymarl FOLDER, or --xuance")
    print(
        "| workload | theirs, steps per CPU second | ours | ratio | theirs, per second | ours |"
        " theirs: steps / updates / rows / parameters | ours |\n" + "|---" * 8 + "|",
        flush=True,
    )
    failed: list[str] = []
    for name in names:
        try:
            row = compare(name, given)
        except Failed as error:
            failed.append(str(error))
            continue
        row["revision"] = revision(getattr(given, row["peer"]))
        row["machine"] = processor()
        row["rounds"] = given.rounds
        print(line(row), flush=True)
        keep(row)
    if failed:
        sys.exit("\n".join(failed))


def keep(row: dict[str, Any]) -> None:
    """Write a row into the results, instead of an older one of its workload."""
    kept = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    rows = [one for one in kept if one["workload"] != row["workload"]] + [row]
    RESULTS.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        side, name, core, seconds, checkout = sys.argv[2:]
        child(side, name, int(core), float(seconds), checkout)
    else:
        main()
