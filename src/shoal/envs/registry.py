"""The native games by id; some ids contain options."""

from __future__ import annotations

import dataclasses
from typing import Any

from .. import plugins, source
from ..errors import ShoalError
from .game import Env, Game
from .native import lbf, matrix, mpe, probes, rware
from .native.grid import GridGame

BASES = (
    "shoal.envs.Game",
    "shoal.envs.Env",
    "shoal.envs.game.",
    "shoal.envs.native.",
    "shoal.envs.jax.",
)

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
        probes.FactoredIdentity,
        probes.ContinuousIdentity,
        probes.Memory,
        probes.Endless,
        probes.Mortal,
        probes.Corridor,
    )
}


def ours(env_id: str) -> tuple[type[Game], dict[str, Any]] | None:
    """The native game of an id, with the options in the id, such as `lbf/8x8-2p-2f`."""
    if env_id in GAMES:
        return GAMES[env_id], {}
    name, _, rest = env_id.partition("/")
    game = GAMES.get(name)
    return (game, game.said(rest)) if game and issubclass(game, GridGame) else None


def find(env_id: str) -> tuple[type[Game], dict[str, Any]] | None:
    """The compiled game of an id, entry point or import path, with the options in the id."""
    if found := ours(env_id):
        return found
    name, _, rest = env_id.rpartition("/")
    sized = name in plugins.entries("game") and env_id not in plugins.entries("game")
    path = plugins.path_of("game", name if sized else env_id)
    if not path or (path == env_id and not _names_a_game(path)):
        return None
    game = _checked(path, plugins.load(path))
    if not sized:
        return game, {}
    return (game, game.said(rest)) if issubclass(game, GridGame) else None


def _checked(path: str, game: Any) -> type[Game]:
    """Return a plugin's game if it is usable; else raise an error."""
    if not _compiled(game):
        raise ShoalError(f"{path} is not a compiled game: derive it from shoal.envs.Game")
    if not dataclasses.is_dataclass(game):
        raise ShoalError(f"{path} is not a dataclass: make it one, its fields are its options")
    found: Any = game
    return found


def _names_a_game(path: str) -> bool:
    """Whether an import path names a compiled game, not a function that makes a hosted one."""
    return _compiled(plugins.loaded(path)) or source.derives(path, BASES)


def _compiled(thing: Any) -> bool:
    return isinstance(thing, type) and (Game in thing.__mro__ or Env in thing.__mro__)
