"""The native games by their ids, and `make`."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from ..types import ShoalError, nearest
from . import identity, matrix, mpe
from .base import Env, Game, GameState

GAMES: dict[str, type[Game]] = {
    game.name: game
    for game in (
        mpe.Simple,
        mpe.SimpleAdversary,
        mpe.SimpleCrypto,
        mpe.SimplePush,
        mpe.SimpleReference,
        mpe.SimpleSpeakerListener,
        mpe.SimpleSpread,
        mpe.SimpleTag,
        mpe.SimpleWorldComm,
        matrix.Climbing,
        matrix.Penalty,
        matrix.Nonmonotonic,
        matrix.MatchingPennies,
        identity.Identity,
        identity.ContinuousIdentity,
        identity.Memory,
        identity.Endless,
        identity.Mortal,
    )
}

__all__ = ["GAMES", "Env", "Game", "GameState", "make"]


def make(env_id: str, **options: Any) -> Game:
    """The native game called `env_id`, with these options."""
    if env_id not in GAMES:
        raise ShoalError(f"There is no game '{env_id}'{nearest(env_id, GAMES)}; `shoal list` shows them all.")
    game = GAMES[env_id]
    fields = {field.name: field for field in dataclasses.fields(cast(Any, game))}
    for option, value in options.items():
        if option not in fields:
            hint = nearest(option, fields)
            raise ShoalError(f"{env_id} has no option '{option}'{hint}; it knows {', '.join(fields)}.")
        if isinstance(fields[option].default, bool) and not isinstance(value, bool):
            raise ShoalError(f"{option} must be True or False, not {value!r}.")
    return game(**options)
