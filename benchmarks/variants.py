"""An option beside its absence: curiosity on a corridor, messages where sight is short, learning
rates that fall, ensembles, shared parameters.

    python benchmarks/variants.py            # everything that has not been recorded
    python benchmarks/variants.py corridor   # one study
    python benchmarks/variants.py --table    # what has been recorded

A run is `shoal train <algorithm> <env> --seed <seed> --devices 1` with the options of its study and
variant, and without preset. Its score is the last greedy evaluation, the mean return of an agent
over 200 episodes. Runs are in `benchmarks/results/variants.json`.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from records import locked, whole

RESULTS = Path(__file__).parent / "results" / "variants.json"
SEEDS = (1, 2, 3)
WATCHED: dict[str, Any] = {"devices": 1, "evaluations": 5, "eval_episodes": 200, "preset": False}


class Study(NamedTuple):
    """One algorithm on one environment, with several variants of its options."""

    algorithm: str
    env: str
    options: dict[str, Any]
    variants: dict[str, dict[str, Any]]


WINDOWS = {"steps": 150_000, "games": 16, "window": 80}
CURIOUS: dict[str, dict[str, Any]] = {
    "without": {},
    "rnd": {"curiosity": "rnd"},
    "icm": {"curiosity": "icm"},
}
MESSAGES: dict[str, dict[str, Any]] = {
    "mlp": {"torso": "mlp"},
    "mlp, a layer more": {"torso": "mlp", "layers": 3},  # as deep as those with messages
    "commnet": {"torso": "commnet"},
    "ic3net": {"torso": "ic3net"},
    "tarmac": {"torso": "tarmac"},
    "transformer": {"torso": "transformer"},
}
TALK = {
    "steps": 300_000,
    "games": 32,
    "lr": 1e-3,
    "gamma": 0.95,
    "epochs": 5,
    "minibatches": 2,
    "entropy": 0.02,
}
RATES: dict[str, dict[str, Any]] = {
    "falling": {"anneal": True},
    "kept": {"anneal": False},
}
HALF_A_MILLION = {"steps": 500_000}
SHORT = {"steps": 30_000, "games": 16, "hidden": 32, "warmup": 1000, "epsilon_steps": 15_000}
REPLAYED = {"steps": 150_000, "games": 16, "warmup": 2_000, "epsilon_steps": 75_000}
GATHERED = {
    "steps": 300_000,
    "games": 16,
    "lr": 1e-3,
    "gamma": 0.95,
    "epsilon_steps": 100_000,
    "agent_id": False,
    "last_action": True,
    "entities": "game",
    "one_hot": 5,
}
SHARING: dict[str, dict[str, Any]] = {
    "shared": {"agent_id": False},
    "shared, with agents' numbers": {"agent_id": True},
    "own": {"sharing": "own", "agent_id": False},
}
NEAREST = {"games": 32, "hidden": 128, "entities": "game", "entropy_decay": 1.0}
NAVIGATED = NEAREST | {"steps": 1_000_000, "lr": 1e-3, "gamma": 0.95, "entropy": 0.01}
FORAGED = NEAREST | {
    "steps": 500_000,
    "window": 25,
    "lr": 2e-3,
    "gamma": 0.95,
    "reward": "mean",
    "entropy": 0.004,
    "normalise_value": False,
    "activation": "relu",
    "share_torso": True,
    "last_action": True,
    "one_hot": 5,
}
ENSEMBLES: dict[str, dict[str, Any]] = {
    "one net": {},
    "emax": {"ensemble": 5, "uncertainty": 1.0},
}
FINE: dict[str, Any] = {"adam_epsilon": 1e-8}  # beside 1e-5
SCALED: dict[str, Any] = {"normalise_reward": True, "adam_epsilon": 1e-5}
HOPEFUL: dict[str, dict[str, Any]] = {
    "one net": {"adam_epsilon": 1e-5},
    "one net, ε 1e-8": FINE,
    "one net, rewards normalised": SCALED,
    "emax": {"ensemble": 5, "adam_epsilon": 1e-5},
    "emax, rewards normalised": SCALED | {"ensemble": 5},
}
STUDIES = {
    "corridor": Study("ppo", "test/corridor", WINDOWS, CURIOUS),
    "corridor-dqn": Study("dqn", "test/corridor", REPLAYED, CURIOUS),
    "listener": Study("mappo", "mpe/simple_speaker_listener", TALK, MESSAGES),
    "reference": Study("mappo", "mpe/simple_reference", TALK | {"steps": 600_000}, MESSAGES),
    "foraging": Study("mappo", "lbf/2s-6x6-2p-2f-coop", TALK, MESSAGES),
    "rate-ppo": Study("ppo", "mpe/simple_spread", HALF_A_MILLION, RATES),
    "rate-mappo": Study("mappo", "mpe/simple_spread", HALF_A_MILLION, RATES),
    "rate-listener": Study("mappo", "mpe/simple_speaker_listener", HALF_A_MILLION, RATES),
    "rate-foraging": Study("ppo", "lbf/2s-6x6-2p-2f-coop", HALF_A_MILLION, RATES),
    "rate-qmix": Study("qmix", "mpe/simple_spread", HALF_A_MILLION, RATES),
    "rate-maddpg": Study("maddpg", "mpe/simple_spread", HALF_A_MILLION, RATES),
    "epsilon-qmix": Study("qmix", "mpe/simple_spread", HALF_A_MILLION, {"1e-8": FINE}),
    "epsilon-maddpg": Study("maddpg", "mpe/simple_spread", HALF_A_MILLION, {"1e-8": FINE}),
    "sharing-spread": Study("mappo", "mpe/simple_spread", NAVIGATED, SHARING),
    "sharing-foraging": Study("ppo", "lbf/8x8-2p-2f-coop-v1", FORAGED, SHARING),
    "climbing": Study("dqn", "matrix/climbing", SHORT, ENSEMBLES),
    "penalty": Study("dqn", "matrix/penalty", SHORT, ENSEMBLES),
    "gathering": Study("vdn", "lbf/8x8-2p-2f-coop", GATHERED, HOPEFUL),
}


def trained(study: Study, variant: str, seed: int) -> dict[str, Any]:
    """Train once; return the curve of greedy evaluations and the seconds of training."""
    import shoal

    options = WATCHED | study.options | study.variants[variant]
    with tempfile.TemporaryDirectory() as out:
        run = shoal.train(study.algorithm, study.env, seed=seed, out=out, quiet=True, **options)
        lines = (whole(run).path / "metrics.jsonl").read_text().splitlines()
    name = "evaluation/agent/return"
    curve = [
        [line["env_step"], round(line[name], 3)] for line in map(json.loads, lines) if name in line
    ]
    return {"curve": curve, "seconds": round(run.seconds, 1)}


def recorded() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}


def table() -> str:
    """Scores of every study and variant as Markdown: mean ± deviation over the seeds."""
    found = recorded()
    rows = [
        "| study | algorithm, environment | variant | score | each seed |",
        "|---|---|---|---|---|",
    ]
    for name, study in STUDIES.items():
        for variant in study.variants:
            keys = [f"{name}/{variant}/{seed}" for seed in SEEDS]
            scores = [found[key]["curve"][-1][1] for key in keys if key in found]
            if scores:
                spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
                each = ", ".join(f"{score:.2f}" for score in scores)
                what = f"`{study.algorithm}` `{study.env}`"
                rows.append(
                    f"| {name} | {what} | {variant} | {statistics.mean(scores):.2f} ±"
                    f" {spread:.2f} | {each} |"
                )
    return "\n".join(rows)


def main(words: list[str]) -> None:
    if "--table" not in words:
        for name in words or STUDIES:
            study = STUDIES[name]
            for seed in SEEDS:
                for variant in study.variants:
                    key = f"{name}/{variant}/{seed}"
                    if key in recorded():
                        continue
                    run = trained(study, variant, seed)
                    print(key, run, flush=True)
                    with locked(RESULTS):
                        RESULTS.write_text(json.dumps(recorded() | {key: run}, indent=1) + "\n")
    print(table())


if __name__ == "__main__":
    main(sys.argv[1:])
