"""How fast: games alone and whole training, on one pinned core and on all cores.

    python benchmarks/bench.py            # every workload, about 15 minutes
    python benchmarks/bench.py ippo-mlp   # some of them

Every measurement runs in a process of its own, so that compile times and peak memory are its own.
Training rates count valid environment steps (the dummy step that reopens a game is not one) after
compilation, the median of several calls. Writes `benchmarks/results/bench.json` and a table.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

SECONDS = 8.0  # that a workload runs for once compiled
RESULTS = Path(__file__).parent / "results" / "bench.json"

# 32 windows of 26 steps after every 208 steps, and 32 episodes after each episode
GRU = {
    "torso": "gru",
    "batch": 32,
    "length": 26,
    "updates": 1,
    "warmup": 0,
    "capacity": 130_000,
}
EPISODES = {"batch": 32, "length": 25, "updates": 1, "warmup": 0, "capacity": 125_000}
RECURRENT = {"torso": "gru", "hidden": 128}
# name: algorithm, options, games, window; `peers.py` has others' scripts beside such work
TRAINING: dict[str, tuple[str, dict[str, Any], int, int]] = {
    "ippo-mlp": ("ppo", {"lr": 2.5e-4, "normalise_value": False}, 16, 128),
    "ippo-gru": ("ppo", RECURRENT | {"share_torso": True}, 16, 128),
    "mappo-gru": ("mappo", RECURRENT, 16, 128),
    "coma-gru": ("coma", {"torso": "gru", "hidden": 64, "critic_epochs": 0}, 10, 25),
    "qmix-gru": ("qmix", GRU | {"embedding": 32, "hyper": 128}, 8, 27),
    "vdn-gru": ("vdn", GRU, 8, 27),
    "iql-gru": ("dqn", GRU, 8, 27),
    "qmix-mlp": ("qmix", EPISODES, 1, 25),
    "maddpg-gru": ("maddpg", EPISODES | RECURRENT, 1, 25),
    "vdn-1m": ("vdn", {"capacity": 1_000_000, "warmup": 0}, 32, 25),
    "mappo-preset": ("mappo", {"lr": 2e-3, "epochs": 10, "minibatches": 1}, 128, 25),
}
GAMES = {"games-16": 16, "games-1024": 1024}
SEEDS = {  # runs of --seeds 4: algorithm, steps
    "seeds": ("qmix", 300_000),
    "seeds-mappo": ("mappo", 1_000_000),
}
SEEDS_ROUNDS = 1  # of both ways in turn; three agreed within 1 %
# id, options, games, window: an environment that is cheap, and one slower than 1 ms a step
HOST: dict[str, tuple[str, dict[str, Any], int, int]] = {
    "host-spread": ("pz:mpe2.simple_spread_v3", {"max_cycles": 25}, 128, 25),
    "host-pursuit": ("pz:pettingzoo.sisl.pursuit_v5", {}, 16, 25),
}
HOST_ROUNDS = 5  # of training, with the package alone before and after each


def time_training(name: str, devices: int, seconds: float) -> dict:
    import jax

    from shoal.algorithms import find
    from shoal.engine.loop import Loop
    from shoal.envs import make

    algorithm, options, games, window = TRAINING[name]
    env = make("mpe/simple_spread")
    kind = find(algorithm)
    team = {"agent": kind(kind.Config(**options), env.teams["agent"])}
    began = time.perf_counter()
    loop = Loop(env, team, games, window, 10_000_000, devices)
    state = jax.block_until_ready(loop.init(0))
    calls = max(1, round(20_000 / (games * window)))
    program = loop.program(calls).lower(state).compile()
    compiled = time.perf_counter() - began
    if seconds:
        # a replay has nothing to learn from in its first iteration
        state, _ = jax.block_until_ready(program(state))
    rates = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        before = int(state.steps)
        began = time.perf_counter()
        state, _ = jax.block_until_ready(program(state))
        rates.append((int(state.steps) - before) / (time.perf_counter() - began))
    memory = {"memory_mib": sum(loop.sizes().values()) / 2**20}
    memory["temporary_mib"] = program.memory_analysis().temp_size_in_bytes / 2**20
    return summary(rates, compiled) | memory


def time_host(name: str, cores: int, seconds: float) -> dict:
    """Training with games on the host, and how fast they are played at random by nothing but their
    package: by turns, so that both have the same machine."""
    import jax

    from shoal.algorithms import find
    from shoal.engine.host_loop import HostLoop
    from shoal.envs import make

    env_id, options, games, window = HOST[name]
    alone = partial(raw_rate, env_id.removeprefix("pz:"), options, cores, seconds / 2)
    env = make(env_id, **options)
    kind = find("ppo")
    began = time.perf_counter()
    teams = {team: kind(kind.Config(), spec) for team, spec in env.teams.items()}
    loop = HostLoop(env, teams, games, window, 10_000_000, cores, cores)
    with contextlib.closing(loop):
        state = loop.init(0)
        program = loop.compile(state, 1)
        compiled = time.perf_counter() - began
        if not seconds:
            return summary([], compiled)
        state, _ = jax.block_until_ready(program(state))  # it also finds out whether halves pay
        rates = []
        raws = [alone()]
        for _ in range(HOST_ROUNDS):
            before = int(state.steps)  # dummy steps are not counted
            began = time.perf_counter()
            while time.perf_counter() < began + seconds / 2:
                state, _ = jax.block_until_ready(program(state))
            rates.append((int(state.steps) - before) / (time.perf_counter() - began))
            raws.append(alone())
    shares = [2 * rate / sum(both) for rate, both in zip(rates, pairwise(raws), strict=True)]
    return summary(rates, compiled) | {
        "halves": loop.halves,
        "raw_steps_per_s": statistics.median(raws),
        "share_of_raw": statistics.median(shares),
        "shares_of_raw": shares,
        # above the number of cores, shares say who gets the cores: one of 1.64 was seen
        "load": os.getloadavg()[0],
    }


def raw_rate(module: str, options: dict, cores: int, seconds: float) -> float:
    """Steps per second of so many processes at once, each playing at random."""
    command = [sys.executable, __file__, "--raw", module, json.dumps(options), str(seconds)]
    players = [
        subprocess.Popen([*command, str(core)], stdout=subprocess.PIPE, text=True)
        for core in range(cores)
    ]
    return sum(float(player.communicate()[0].splitlines()[-1]) for player in players)


def play_raw(module: str, options: dict, seconds: float, core: int) -> None:
    """Random play of a PettingZoo environment, by its own means alone."""
    import importlib

    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[core]})
    env = importlib.import_module(module).parallel_env(**options)
    spaces = {agent: env.action_space(agent) for agent in env.possible_agents}
    env.reset(seed=core)
    steps = 0
    began = time.perf_counter()
    while time.perf_counter() < began + seconds:
        env.step({agent: spaces[agent].sample() for agent in env.agents})
        steps += 1
        if not env.agents:
            env.reset()
    print(steps / (time.perf_counter() - began))


def summary(rates: list[float], compiled: float) -> dict:
    if not rates:
        return {"compile_s": compiled}
    return {
        "steps_per_s": statistics.median(rates),
        "least_steps_per_s": min(rates),
        "most_steps_per_s": max(rates),
        "compile_s": compiled,
    }


def time_games(name: str, devices: int, seconds: float) -> dict:
    import jax

    from shoal.envs import make

    games = GAMES[name]
    steps = 2_000
    env = make("mpe/simple_spread")
    opening = jax.jit(env.reset, static_argnums=1)(jax.random.key(0), games)
    actions = jax.random.randint(jax.random.key(1), (steps, games, 3), 0, 5)
    keys = jax.random.split(jax.random.key(2), steps)

    def step(carry: Any, now: Any) -> Any:
        key, action = now
        # the views are carried, so each step makes them
        return env.step(key, carry[0], {"agent": action}), None

    began = time.perf_counter()
    program = (
        jax.jit(lambda opening: jax.lax.scan(step, opening, (keys, actions))[0])
        .lower(opening)
        .compile()
    )
    compiled = time.perf_counter() - began
    rates = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        jax.block_until_ready(program(opening))
        rates.append(games * steps / (time.perf_counter() - began))
    return summary(rates, compiled)


def time_seeds(name: str) -> dict:
    """Four seeds side by side against the same four one after another: whole commands, each way
    with a cold cache."""
    rounds = []
    for _ in range(SEEDS_ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            ways = {
                "apart": [["--seed", str(k), "--devices", "1"] for k in range(4)],
                "together": [["--seeds", "4"]],
            }
            rounds.append(
                {
                    way: time_commands(name, commands, Path(folder) / way)
                    for way, commands in ways.items()
                }
            )
    ratios = sorted(one["apart"]["wall_s"] / one["together"]["wall_s"] for one in rounds)
    places = min(len(os.sched_getaffinity(0)), 4)
    training = sorted(
        one["apart"]["training_s"] / one["together"]["training_s"] * places for one in rounds
    )
    middle = len(rounds) // 2
    return {"speedup": ratios[middle], "training_speedup": training[middle], "rounds": rounds}


def time_commands(name: str, commands: list[list[str]], folder: Path) -> dict:
    """The time they take, and the seconds of training that all their runs report, added up."""
    algorithm, steps = SEEDS[name]
    began = time.perf_counter()
    for words in commands:
        command = [
            sys.executable,
            "-m",
            "shoal.cli.main",
            "train",
            algorithm,
            "mpe/simple_spread",
            "--steps",
            str(steps),
        ]
        out = ["--evaluations", "1", "--out", str(folder / "runs")]
        env = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
        subprocess.run([*command, *words, *out], env=env, check=True, stdout=subprocess.DEVNULL)
    wall = time.perf_counter() - began
    summaries = [json.loads(path.read_text()) for path in (folder / "runs").rglob("summary.json")]
    assert len(summaries) == 4
    return {"wall_s": wall, "training_s": sum(one["seconds"] for one in summaries)}


def child(name: str, cores: int, seconds: float) -> None:
    """One measurement, printed as JSON."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    import jax

    jax.config.update("jax_num_cpu_devices", cores)
    kind = next(
        time
        for time, names in {time_games: GAMES, time_host: HOST, time_training: TRAINING}.items()
        if name in names
    )
    result = kind(name, cores, seconds)
    result["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(result))


def measure(name: str, cores: int, cache: str, seconds: float) -> dict:
    """In a fresh process; the cache folder decides whether it compiles cold or warm. Runs for so
    many seconds."""
    env = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": cache,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    command = [sys.executable, __file__, "--child", name, str(cores), str(seconds)]
    out = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(out.splitlines()[-1])


def main(names: list[str]) -> None:
    there = [*GAMES, *TRAINING, *HOST, *SEEDS]
    unknown = set(names) - set(there)
    if unknown:
        sys.exit(f"unknown workload {', '.join(sorted(unknown))}; there are {', '.join(there)}")
    every = len(os.sched_getaffinity(0))
    rows = []
    print(
        f"{'workload':14}{'cores':>6}{'steps/s':>12}{'compile s':>11}{'warm s':>8}{'MB':>7} "
        f" calls, and against"
    )
    for name in [name for name in names or there if name not in SEEDS]:
        both = name in HOST or (name in TRAINING and TRAINING[name][2] % every == 0)
        for cores in (1, every) if both else (1,):
            with tempfile.TemporaryDirectory() as cache:
                row = {"workload": name, "cores": cores} | measure(name, cores, cache, SECONDS)
                row["warm_compile_s"] = measure(name, cores, cache, 0.0)["compile_s"]
            rows.append(row)
            print(_line(row, rows), flush=True)
    for name in [name for name in names or there if name in SEEDS]:
        rows.append({"workload": name, "cores": every} | time_seeds(name))
        print(_seeds_line(rows[-1]), flush=True)
    RESULTS.parent.mkdir(exist_ok=True)
    kept = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() and names else []
    kept = [row for row in kept if row["workload"] not in {row["workload"] for row in rows}]
    RESULTS.write_text(
        json.dumps(
            {"machine": platform.processor() or platform.machine(), "rows": kept + rows}, indent=1
        )
    )


def _line(row: dict, rows: list[dict]) -> str:
    notes = []
    notes.append(f"{row['least_steps_per_s']:,.0f} to {row['most_steps_per_s']:,.0f}")
    single = next((r for r in rows if r["workload"] == row["workload"] and r["cores"] == 1), None)
    if single and row["cores"] > 1:
        row["speedup"] = row["steps_per_s"] / single["steps_per_s"]
        notes.append(f"{row['speedup']:.2f} x one core")
    if "share_of_raw" in row:
        notes.append(
            f"{row['share_of_raw']:.2f} x random play of the package alone"
            f" ({row['raw_steps_per_s']:,.0f}; {min(row['shares_of_raw']):.2f} to"
            f" {max(row['shares_of_raw']):.2f}; load {row['load']:.1f})"
        )
    return (
        f"{row['workload']:14}{row['cores']:>6}{row['steps_per_s']:>12,.0f}{row['compile_s']:>11.1f}"
        f"{row['warm_compile_s']:>8.1f}{row['peak_mb']:>7.0f}  {'; '.join(notes)}"
    )


def _seeds_line(row: dict) -> str:
    return (
        f"{row['workload']:14}{row['cores']:>6}  {row['speedup']:.2f} x the four seeds one"
        f" after another"
        f" ({row['training_speedup']:.2f} x in training alone)"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    elif sys.argv[1:2] == ["--raw"]:
        play_raw(sys.argv[2], json.loads(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
    else:
        main(sys.argv[1:])
