"""The algorithms by name: this folder has one file per paper."""

from __future__ import annotations

import dataclasses
from typing import Any

from .. import plugins, zoo
from ..errors import ShoalError, did_you_mean
from ..types import Spec
from .a2c import A2C
from .base import Algorithm
from .coma import COMA
from .ddpg import DDPG
from .dqn import DQN
from .facmac import FACMAC
from .haa2c import HAA2C
from .happo import HAPPO
from .hasac import HASAC
from .hatd3 import HATD3
from .hatrpo import HATRPO
from .maa2c import MAA2C
from .maddpg import MADDPG
from .mappo import MAPPO
from .masac import MASAC
from .mat import MAT
from .matd3 import MATD3
from .mfac import MFAC
from .mfq import MFQ
from .opponents.frozen import Frozen, why_incompatible
from .opponents.random import Random
from .opponents.self_play import SelfPlay
from .ppo import PPO
from .pqn import PQN
from .pqn_qmix import PQNQMIX
from .pqn_vdn import PQNVDN
from .qmix import QMIX
from .qplex import QPLEX
from .qtran import QTRAN
from .sable import Sable
from .sac import SAC
from .td3 import TD3
from .vdac import VDAC
from .vdn import VDN
from .wqmix import CWQMIX, OWQMIX

POLICY = (A2C, MAA2C, PPO, MAPPO, HAPPO, HAA2C, HATRPO, MAT, Sable, COMA, MFAC, VDAC)
VALUE = (DQN, VDN, QMIX, CWQMIX, OWQMIX, QPLEX, QTRAN, MFQ)
PARALLEL = (PQN, PQNVDN, PQNQMIX)
PATHWISE = (DDPG, MADDPG, TD3, MATD3, SAC, MASAC, HATD3, HASAC, FACMAC)
FIXED = (Random, Frozen)
ALGORITHMS: dict[str, type[Algorithm]] = {
    kind.name: kind for kind in (*POLICY, *VALUE, *PARALLEL, *PATHWISE, *FIXED, SelfPlay)
}
UNTRAINED = tuple(name for name, kind in ALGORITHMS.items() if not kind.needs_training)
# other names: of an algorithm with several agents, and of `past` in the literature
ALIASES = {"ia2c": "a2c", "ippo": "ppo", "iql": "dqn", "self_play": "past"}


def find(name: str) -> type[Algorithm]:
    """Find an algorithm by name, entry point or import path."""
    kind = ALGORITHMS.get(ALIASES.get(name, name))
    if kind is None:
        path = plugins.path_of("algorithm", name)
        if not path:
            hint = did_you_mean(name, [*ALGORITHMS, *ALIASES, *plugins.entries("algorithm")])
            raise ShoalError(
                f"there is no algorithm {name!r}{hint}: `shoal list` shows them all, also those of"
                f" installed packages"
            )
        kind = _checked(path, plugins.load(path))
    return kind


def defaults(name: str) -> dict[str, Any]:
    """Default options of an algorithm that a file names: none of one that only an import would
    tell, as that runs code."""
    path = plugins.path_of("algorithm", name)
    return {} if path and not plugins.known(path) else dataclasses.asdict(find(name).Config())


def id_of(kind: type[Algorithm]) -> str:
    """The id by which `find` finds an algorithm: its name, or for a plugin its import path."""
    return kind.name if ALGORITHMS.get(kind.name) is kind else plugins.register(_checked("", kind))


def parse_algorithm(word: str) -> tuple[str, dict[str, Any]]:
    """Parse `name` or `name:argument` into the algorithm's id and its options.

    The argument is the value of the algorithm's first option. `zoo:name` is short for
    `frozen:zoo:name`.
    """
    if word.startswith(zoo.PREFIX):
        return Frozen.name, {"run": word}
    name, colon, argument = word.partition(":")
    ours = name in ALGORITHMS or name in ALIASES or name in plugins.entries("algorithm")
    if colon and not ours:
        attribute, colon, argument = argument.partition(":")
        name = f"{name}:{attribute}"
    kind = find(name)
    name = ALIASES.get(name, name)
    if not colon:
        return name, {}
    first = next(iter(dataclasses.fields(kind.Config)), None)
    if first is None or not isinstance(first.default, str):
        raise ShoalError(f"{name} takes nothing after a colon: write {name} instead of {word!r}")
    return name, {first.name: argument}


def _checked(path: str, kind: Any) -> type[Algorithm]:
    """Return a plugin's algorithm if it is usable; else raise an error."""
    path = path or getattr(kind, "__qualname__", repr(kind))
    if not isinstance(kind, type) or not issubclass(kind, Algorithm):
        raise ShoalError(f"{path} is not an algorithm: it must be a class derived from Algorithm")
    if "name" not in vars(kind):
        raise ShoalError(f"{path} has no name of its own: add the class attribute name = '…'")
    if not dataclasses.is_dataclass(getattr(kind, "Config", None)):
        raise ShoalError(f"{path} has no Config: add a frozen dataclass of its options")
    return kind


def random_policy(spec: Spec) -> Algorithm:
    """The random policy, a baseline for scores."""
    return Random(Random.Config(), spec)


__all__ = [
    "ALGORITHMS",
    "ALIASES",
    "UNTRAINED",
    "Algorithm",
    "find",
    "id_of",
    "parse_algorithm",
    "random_policy",
    "why_incompatible",
]
