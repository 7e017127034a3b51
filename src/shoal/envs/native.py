"""The native games by their ids."""

from __future__ import annotations

from . import identity, matrix, mpe
from .base import Game

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
