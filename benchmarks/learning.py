"""How well, and how soon: every preset, several seeds, each run on one core of its own.

    python benchmarks/learning.py                          # everything
    python benchmarks/learning.py mappo mpe/simple_spread  # one pair
    python benchmarks/learning.py --seeds 5 coma           # one algorithm on all its tasks

A run is `shoal train <algorithm> <env> --seed <seed> --devices 1`, with its preset; `a vs b` is
`--team adversary=a --team agent=b`, scored by the adversaries. A score is the mean over 1,000
greedy episodes on games of their own; for speaker-listener the sum of both agents, for matrix games
one agent's sum of payoffs, elsewhere one agent's return p. Games of Gymnasium are stepped on the
host, in the same process (`--workers 0`), and scored by 100 episodes. Seconds are of training
alone, after compilation; `processor` is the processor time of the whole run, compilation and
evaluations included, which a busy machine stretches less. Runs already in
`benchmarks/results/learning.json` are not repeated unless `--again` is given.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from records import locked, read_rows, whole, write_rows

RESULTS = Path(__file__).parent / "results" / "learning.json"
EPISODES = 1_000
HOST = "gym:"  # games stepped on the host: slower, so judged by fewer episodes
HOST_EPISODES = 100
LEVELS = (-11.0, -8.0)  # of p on simple_spread: the time to get there is what a user feels

SPREAD = "mpe/simple_spread"
LISTENER = "mpe/simple_speaker_listener"
TAG = "mpe/simple_tag"
CLIMBING = "matrix/climbing"
PENALTY = "matrix/penalty"
NONMONOTONIC = "matrix/nonmonotonic"
CARTPOLE = "gym:CartPole-v1"
LANDER = "gym:LunarLander-v3"
PENDULUM = "gym:Pendulum-v1"
POLICY = ("a2c", "ppo", "maa2c", "mappo", "coma")
VALUE = ("dqn", "vdn", "qmix", "cwqmix", "owqmix", "qplex", "qtran")
CAMPAIGN = [
    *[(algorithm, SPREAD, {}) for algorithm in ("mappo", "ppo", "maa2c", "coma", "a2c")],
    *[(algorithm, SPREAD, {}) for algorithm in ("qmix", "vdn", "dqn", "maddpg")],
    *[(algorithm, SPREAD, {}) for algorithm in ("pqn", "pqn_vdn", "pqn_qmix")],
    *[
        (algorithm, SPREAD, {"continuous_actions": True})
        for algorithm in ("mappo", "maddpg", "matd3", "masac")
    ],
    ("facmac", SPREAD, {"continuous_actions": True, "N": 5}),
    *[(algorithm, LISTENER, {}) for algorithm in ("mappo", "qmix", "maddpg")],
    *[(f"{algorithm} vs random", TAG, {}) for algorithm in ("qmix", "maddpg")],
    *[(f"{algorithm} vs {algorithm}", TAG, {}) for algorithm in ("dqn", "maddpg")],
    *[(algorithm, PENALTY, {"k": 0}) for algorithm in (*POLICY, "dqn", "vdn", "qmix", "maddpg")],
    *[(algorithm, CLIMBING, {}) for algorithm in (*POLICY, "dqn", "vdn", "qmix", "maddpg")],
    *[(algorithm, NONMONOTONIC, {}) for algorithm in VALUE],
    *[("ppo", CARTPOLE, {}), ("dqn", CARTPOLE, {}), ("ppo", LANDER, {}), ("sac", PENDULUM, {})],
]
AGENTS_SUMMED = {LISTENER: 2}


def child(algorithm: str, env: str, options: dict, seed: int, core: int) -> dict:
    """One run, on one core."""
    os.sched_setaffinity(0, {core})
    import shoal

    hunter, _, prey = algorithm.partition(" vs ")
    team = "adversary" if prey else "agent"
    who = (
        {"ids": (env,), "teams": {"adversary": hunter, "agent": prey}}
        if prey
        else {"ids": (algorithm, env)}
    )
    with tempfile.TemporaryDirectory() as out:
        result = shoal.train(
            *who.pop("ids"), **who, env=options, **settings(env), seed=seed, out=out, quiet=True
        )
        processor = time.process_time()
        lines = [
            json.loads(line) for line in (result.path / "metrics.jsonl").read_text().splitlines()
        ]
        player = shoal.load(whole(result).path)
        episodes = HOST_EPISODES if env.startswith(HOST) else EPISODES
        scores = {
            how: player.evaluate(episodes, how == "greedy", 12345).score()[team]
            for how in ("greedy", "sampled")
        }
    factor = AGENTS_SUMMED.get(env, 1)
    curve = [
        (line["env_step"], line["seconds"], factor * line[f"evaluation/{team}/return"])
        for line in lines
        if f"evaluation/{team}/return" in line
    ]
    reached = {
        str(level): next((point[:2] for point in curve if point[2] >= level), None)
        for level in LEVELS
    }
    return {how: factor * score for how, score in scores.items()} | {
        "steps": result.steps,
        "seconds": result.seconds,
        "processor": round(processor, 1),
        "random": factor * result.random[team],
        "reached": reached,
        "curve": [[step, round(seconds, 1), round(score, 3)] for step, seconds, score in curve],
    }


def settings(env: str) -> dict:
    """Where a run plays, and how closely it is watched: a game on the host plays its evaluations
    slowly."""
    if env.startswith(HOST):
        return {"workers": 0, "evaluations": 4, "eval_episodes": 16}
    return {"devices": 1, "evaluations": 40, "eval_episodes": 200}


def run(task: tuple, cores: SimpleQueue) -> dict:
    """One run in a fresh process, on whichever core is free."""
    algorithm, env, options, seed = task
    core = cores.get()
    try:
        words = [algorithm, env, json.dumps(options), str(seed), str(core)]
        command = [sys.executable, __file__, "--child", *words]
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    finally:
        cores.put(core)
    row = {"algorithm": algorithm, "env": env, "options": options, "seed": seed} | json.loads(
        out.splitlines()[-1]
    )
    where = ", ".join(
        f"{level} after {at[1]:.0f} s"
        for level, at in row["reached"].items()
        if at and env == SPREAD
    )
    print(
        f"{algorithm} {env} seed {seed}: greedy {row['greedy']:.2f}, sampled"
        f" {row['sampled']:.2f} after"
        f" {row['steps'] / 1e6:.2f}M steps, {row['seconds']:.0f} s; {where}",
        flush=True,
    )
    return row


def key(row: dict) -> tuple:
    return row["algorithm"], row["env"], json.dumps(row["options"]), row["seed"]


def table(rows: list[dict]) -> str:
    """Markdown, a line per algorithm and task."""
    lines = [
        "| algorithm | task | seeds | greedy, mean ± deviation (each) | sampled | steps |"
        " seconds | to −11 | to −8 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for algorithm, env, options in CAMPAIGN:
        mine = [
            r for r in rows if (r["algorithm"], r["env"], r["options"]) == (algorithm, env, options)
        ]
        if not mine:
            continue
        scores = [r["greedy"] for r in mine]
        spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
        task = env + "".join(f" {name}={value}" for name, value in options.items())
        soon = [_soon(mine, str(level)) if env == SPREAD else "" for level in LEVELS]
        cells = [
            algorithm,
            task,
            str(len(mine)),
            f"**{statistics.mean(scores):.2f}** ± {spread:.2f}"
            f" ({', '.join(f'{s:.2f}' for s in scores)})",
            f"{statistics.mean(r['sampled'] for r in mine):.2f}",
            f"{mine[0]['steps'] / 1e6:.{1 if mine[0]['steps'] > 99_999 else 2}f}M",
            f"{statistics.mean(r['seconds'] for r in mine):.0f}",
            *soon,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _soon(rows: list[dict], level: str) -> str:
    times = [r["reached"][level][1] for r in rows if r["reached"][level]]
    if not times:
        return "–"
    missed = f" ({len(times)} of {len(rows)})" if len(times) < len(rows) else ""
    return f"{statistics.mean(times):.0f} s{missed}"


def main(words: list[str]) -> None:
    again = "--again" in words
    words = [word for word in words if word != "--again"]
    seeds = int(words.pop(words.index("--seeds") + 1)) if "--seeds" in words else 3
    words = [word for word in words if word != "--seeds"]
    tasks = [t for t in CAMPAIGN if all(word in t[:2] for word in words)]
    wanted = [(*task, seed) for task in tasks for seed in range(seeds)]
    RESULTS.parent.mkdir(exist_ok=True)
    if again:
        with locked(RESULTS):
            kept = [row for row in read_rows(RESULTS) if key(row)[:2] not in {t[:2] for t in tasks}]
            write_rows(RESULTS, kept)
    known = {key(row) for row in read_rows(RESULTS)}
    wanted = [t for t in wanted if (t[0], t[1], json.dumps(t[2]), t[3]) not in known]
    cores: SimpleQueue = SimpleQueue()
    for core in sorted(os.sched_getaffinity(0)):
        cores.put(core)
    with ThreadPoolExecutor(cores.qsize()) as pool:
        for row in pool.map(lambda task: run(task, cores), wanted):
            with locked(RESULTS):  # others may have written meanwhile
                kept = [one for one in read_rows(RESULTS) if key(one) != key(row)]
                write_rows(RESULTS, sorted([*kept, row], key=key))
    print("\n" + table(read_rows(RESULTS)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        name, env, options, seed, core = sys.argv[2:]
        print(json.dumps(child(name, env, json.loads(options), int(seed), int(core))))
    else:
        main(sys.argv[1:])
