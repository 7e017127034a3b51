"""The algorithms by name: `ls` of this folder is the list of papers."""

from __future__ import annotations

from ..types import ShoalError, Spec, nearest
from .a2c import A2C
from .base import Algorithm
from .coma import COMA
from .maa2c import MAA2C
from .mappo import MAPPO
from .ppo import PPO
from .scripted import Random

ALGORITHMS: dict[str, type[Algorithm]] = {kind.name: kind for kind in (A2C, MAA2C, PPO, MAPPO, COMA, Random)}
ALIASES = {"ia2c": "a2c", "ippo": "ppo"}  # the same object with several agents


def find(name: str) -> type[Algorithm]:
    """The algorithm of that name."""
    kind = ALGORITHMS.get(ALIASES.get(name, name))
    if kind is None:
        hint = nearest(name, [*ALGORITHMS, *ALIASES])
        raise ShoalError(f"there is no algorithm {name!r}{hint}: `shoal list` shows them all")
    return kind


def chance(spec: Spec) -> Algorithm:
    """Who plays at random: the level to compare with."""
    return Random(Random.Config(), spec)


__all__ = ["ALGORITHMS", "ALIASES", "Algorithm", "chance", "find"]
