"""Torsos by name, and the signature that all torsos share.

A torso maps input parts `[T,B,N or 1,F]`, a carry and `first [T,B]` to features `[T,B,N,H]` and a
new carry. A carry is any pytree whose leaves begin with `[B,N]`. Torsos of other packages are found
by an entry point of `shoal.torsos` or by import path.

A torso with an attribute `alone` communicates (`communication.py`): its last part says whom each
agent hears, its constructor takes `rounds`, and nets without one row per agent have the torso
called `alone` instead.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from jax import Array

from .. import plugins
from ..errors import ShoalError, did_you_mean
from .communication import CommNet, IC3Net, TarMAC, Transformer
from .gru import Gru
from .layers import Rng
from .mlp import Mlp, Parts, Style


class Torso(Protocol):
    """The part of a net between its inputs and its heads."""

    recurrent: ClassVar[bool]  # whether it has a carry

    def __init__(
        self, rng: Rng, owner: tuple[int, ...], ins: int, hidden: int, layers: int, style: Style
    ): ...

    def carry(self, games: int, rows: int) -> Any:
        """The initial carry for `games` games with `rows` agents."""
        ...

    def __call__(self, parts: Parts, carry: Any, first: Array) -> tuple[Array, Any]:
        """Features of every instant, and the carry after the last; `first` resets the carry."""
        ...


TORSOS: dict[str, Any] = {  # each a type[Torso]
    "mlp": Mlp,
    "gru": Gru,
    "commnet": CommNet,
    "ic3net": IC3Net,
    "tarmac": TarMAC,
    "transformer": Transformer,
}


def find(name: str) -> type[Torso]:
    """Find a torso by name, entry point or import path."""
    if name in TORSOS:
        return TORSOS[name]
    path = plugins.path_of("torso", name)
    if not path:
        names = [*TORSOS, *plugins.entries("torso")]
        raise ShoalError(
            f"there is no torso {name!r}{did_you_mean(name, names)}: torso is {', '.join(names)} or"
            " <module>:<class>"
        )
    torso = plugins.load(path)
    for part in ("recurrent", "carry", "__call__"):
        if not isinstance(torso, type) or not hasattr(torso, part):
            raise ShoalError(f"{path} is not a torso: it must be a class that has {part}")
    return torso


def alone(name: str) -> str:
    """The torso that takes the place of a communicating one where there is nobody to hear; empty if
    the torso does not communicate."""
    return getattr(find(name), "alone", "")
