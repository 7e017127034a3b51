"""What is measured beside peers: each one's script and settings, and the same work for Shoal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bench import EPISODES, GRU, RECURRENT

SPREAD = "mpe/simple_spread"


@dataclass(frozen=True)
class Workload:
    """A peer's script and its config file, and the same work for Shoal."""

    peer: str
    script: str
    config: str | dict[str, Any]
    algorithm: str
    options: dict[str, Any]
    games: int
    window: int  # of ours; with one step more for each episode, which reopens the game
    iterations: int  # in each timed call
    lead: int = 0  # iterations of theirs before the replay may be drawn from; not counted
    env: str = SPREAD
    rows: Callable[[dict[str, Any]], int] = field(default=lambda config: _passes(config))


def _passes(config: dict[str, Any]) -> int:
    """Transitions in a gradient step of a learner that passes over its window."""
    return int(config["NUM_ENVS"] * config["NUM_STEPS"] // config["NUM_MINIBATCHES"])


def _drawn(config: dict[str, Any]) -> int:
    """Transitions in a gradient step of a learner with a replay."""
    return int(config["BUFFER_BATCH_SIZE"] * config["NUM_STEPS"])


_QL = "baselines/QLearning"
_replay = partial(Workload, "jaxmarl", rows=_drawn, games=8, window=27, iterations=100, lead=32)
_episodes = partial(Workload, "epymarl", "src/run.py", games=1, window=26, lead=32)
_transitions = partial(
    Workload, "xuance", "xuance/torch/agents", games=16, window=26, iterations=20, lead=4
)
DRAWN: dict[str, Any] = {
    "hidden": 64,
    "layers": 2,
    "batch": 256,
    "length": 1,
    "updates": 1,
    "warmup": 0,
}
WORKLOADS: dict[str, Workload] = {
    "ippo-mlp": Workload(
        "jaxmarl",
        "baselines/IPPO/ippo_ff_mpe.py",
        "baselines/IPPO/config/ippo_ff_mpe.yaml",
        "ppo",
        {"lr": 2.5e-4, "normalise_value": False},
        games=16,
        window=128,
        iterations=40,
    ),
    # their heads have a hidden layer each behind the GRU; ours is as deep before it
    "ippo-gru": Workload(
        "jaxmarl",
        "baselines/IPPO/ippo_rnn_mpe.py",
        "baselines/IPPO/config/ippo_rnn_mpe.yaml",
        "ppo",
        {"torso": "gru", "hidden": 128, "layers": 4, "share_torso": True, "minibatches": 2},
        games=16,
        window=128,
        iterations=8,
    ),
    "mappo-gru": Workload(
        "jaxmarl",
        "baselines/MAPPO/mappo_rnn_mpe.py",
        "baselines/MAPPO/config/mappo_homogenous_rnn_mpe.yaml",
        "mappo",
        {"torso": "gru", "hidden": 128, "layers": 3},
        games=16,
        window=128,
        iterations=6,
    ),
    "qmix-gru": _replay(
        f"{_QL}/qmix_rnn.py",
        f"{_QL}/config/alg/ql_rnn_mpe.yaml",
        "qmix",
        GRU | {"embedding": 32, "hyper": 128},
    ),
    "vdn-gru": _replay(f"{_QL}/vdn_rnn.py", f"{_QL}/config/alg/ql_rnn_mpe.yaml", "vdn", GRU),
    "iql-gru": _replay(f"{_QL}/iql_rnn.py", f"{_QL}/config/alg/ql_rnn_mpe.yaml", "dqn", GRU),
    "pqn-vdn": Workload(
        "jaxmarl",
        f"{_QL}/pqn_vdn_ff.py",
        f"{_QL}/config/alg/pqn_vdn_ff_mpe.yaml",
        "pqn_vdn",
        {"hidden": 256, "layers": 2, "epochs": 4, "minibatches": 16, "dueling": True},
        games=256,
        window=16,
        iterations=4,
    ),
    # one game, and a batch of 32 episodes after each of its episodes
    "qmix-epymarl": _episodes("qmix", "qmix", EPISODES, iterations=200),
    "vdn-epymarl": _episodes("vdn", "vdn", EPISODES, iterations=200),
    "maddpg-epymarl": _episodes("maddpg", "maddpg", EPISODES | RECURRENT, iterations=60),
    # 16 games, and a batch of 256 transitions after 25 steps of each; QMIX's agents share nothing
    "qmix-xuance": _transitions(
        "qmix",
        "qmix",
        DRAWN | {"sharing": "own", "agent_id": False, "embedding": 128, "hyper": 128},
    ),
    "vdn-xuance": _transitions("vdn", "vdn", DRAWN),
    "maddpg-xuance": _transitions("maddpg", "maddpg", DRAWN),
    "ppo-cartpole": Workload(
        "purejaxrl",
        "purejaxrl/ppo.py",
        {
            "LR": 2.5e-4,
            "NUM_ENVS": 4,
            "NUM_STEPS": 128,
            "TOTAL_TIMESTEPS": 5e5,
            "UPDATE_EPOCHS": 4,
            "NUM_MINIBATCHES": 4,
            "GAMMA": 0.99,
            "GAE_LAMBDA": 0.95,
            "CLIP_EPS": 0.2,
            "ENT_COEF": 0.01,
            "VF_COEF": 0.5,
            "MAX_GRAD_NORM": 0.5,
            "ACTIVATION": "tanh",
            "ENV_NAME": "CartPole-v1",
            "ANNEAL_LR": True,
        },
        "ppo",
        {"lr": 2.5e-4, "normalise_value": False},
        games=4,
        window=128,
        iterations=200,
        env="gymnax:CartPole-v1",
    ),
}
