"""The algorithms by name: `ls` of this folder is the list of papers."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..errors import ShoalError, nearest
from ..types import Spec
from .a2c import A2C
from .base import Algorithm
from .coma import COMA
from .ddpg import DDPG
from .dqn import DQN
from .maa2c import MAA2C
from .maddpg import MADDPG
from .mappo import MAPPO
from .masac import MASAC
from .matd3 import MATD3
from .mfac import MFAC
from .mfq import MFQ
from .opponents.frozen import Frozen, why_incompatible
from .opponents.random import Random
from .opponents.self_play import SelfPlay
from .ppo import PPO
from .qmix import QMIX
from .qplex import QPLEX
from .qtran import QTRAN
from .sac import SAC
from .td3 import TD3
from .vdac import VDAC
from .vdn import VDN
from .wqmix import CWQMIX, OWQMIX

POLICY = (A2C, MAA2C, PPO, MAPPO, COMA, MFAC, VDAC)
VALUE = (DQN, VDN, QMIX, CWQMIX, OWQMIX, QPLEX, QTRAN, MFQ)
PATHWISE = (DDPG, MADDPG, TD3, MATD3, SAC, MASAC)
FIXED = (Random, Frozen)  # play as they are
ALGORITHMS: dict[str, type[Algorithm]] = {
    kind.name: kind for kind in (*POLICY, *VALUE, *PATHWISE, *FIXED, SelfPlay)
}
ALIASES = {"ia2c": "a2c", "ippo": "ppo", "iql": "dqn"}  # the same object with several agents


def find(name: str) -> type[Algorithm]:
    """The algorithm of that name."""
    kind = ALGORITHMS.get(ALIASES.get(name, name))
    if kind is None:
        hint = nearest(name, [*ALGORITHMS, *ALIASES])
        raise ShoalError(f"there is no algorithm {name!r}{hint}: `shoal list` shows them all")
    return kind


def parse_algorithm(word: str) -> tuple[type[Algorithm], dict[str, Any]]:
    """`name` or `name:argument`: the algorithm, and its first option if that is the argument."""
    name, colon, argument = word.partition(":")
    kind = find(name)
    if not colon:
        return kind, {}
    first = next(iter(dataclasses.fields(kind.Config)), None)
    if first is None or not isinstance(first.default, str):
        raise ShoalError(f"{name} takes nothing after a colon: write {name} instead of {word!r}")
    return kind, {first.name: argument}


def random_policy(spec: Spec) -> Algorithm:
    """Who plays at random: the level to compare with."""
    return Random(Random.Config(), spec)


__all__ = [
    "ALGORITHMS",
    "ALIASES",
    "FIXED",
    "Algorithm",
    "find",
    "parse_algorithm",
    "random_policy",
    "why_incompatible",
]
