"""The native games by their ids; some read options from what follows their name."""

from __future__ import annotations

from typing import Any

from .game import Game
from .native import lbf, matrix, mpe, probes, rware
from .native.grid import GridGame

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
        lbf.Foraging,
        rware.Warehouse,
        probes.Identity,
        probes.ContinuousIdentity,
        probes.Memory,
        probes.Endless,
        probes.Mortal,
    )
}


def find(env_id: str) -> tuple[type[Game], dict[str, Any]] | None:
    """The native game that an id names, with the options that the id says: `lbf/8x8-2p-2f` is `lbf`
    with a few."""
    if env_id in GAMES:
        return GAMES[env_id], {}
    name, _, rest = env_id.partition("/")
    game = GAMES.get(name)
    return (game, game.said(rest)) if game and issubclass(game, GridGame) else None
