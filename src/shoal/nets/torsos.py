"""Torsos, one signature: input parts `[T,B,N or 1,F]`, a carry, `first [T,B]` -> features
`[T,B,N,H]`, a carry."""

from __future__ import annotations

from .gru import Gru
from .mlp import Mlp

TORSOS = {"mlp": Mlp, "gru": Gru}
