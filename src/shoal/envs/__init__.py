"""Environments by id, and `make`: Shoal's games and other packages', compiled or on the host.

Imports `render` and the records, but no learner.

A native game (`mpe/simple_spread`) and a JAX game of another package (`jaxmarl:SMAX`) run inside
the compiled program. All others (`pz:…`, `gym:…`, `my_package.my_module:make_env`) run on the host.
"""

from __future__ import annotations

import contextlib
import json
import re
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from .. import plugins
from ..errors import ShoalError, did_you_mean
from ..options import fill

if TYPE_CHECKING:
    from .game import Env as Env
    from .game import Game as Game
    from .game import GameState as GameState
    from .host.match import Hosted as Hosted
    from .registry import GAMES as GAMES
    from .registry import find as find
    from .registry import ours as ours

# package of each prefix, where the names differ
PACKAGES = {"pz": "pettingzoo", "gym": "gymnasium", "football": "gfootball"}
_HOMES = {
    **{"GAMES": ".registry", "find": ".registry", "ours": ".registry"},
    **{"Env": ".game", "Game": ".game", "GameState": ".game", "Hosted": ".host.match"},
}


def __getattr__(name: str) -> Any:
    """Import parts lazily, so that worker processes need no JAX."""
    if name not in _HOMES:
        raise AttributeError(f"module 'shoal.envs' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)


def make(env_id: str, **options: Any) -> Any:
    """Create the environment `env_id`: a compiled `Env`, or a `Hosted` one."""
    from .host.match import Hosted
    from .registry import GAMES, find

    if found := find(env_id):
        game, meant = found
        return fill(game, meant | options, env_id)
    prefix, colon, rest = env_id.partition(":")
    if not colon:
        hint = did_you_mean(env_id, [*GAMES, *plugins.entries("game")])
        raise ShoalError(f"there is no game {env_id!r}{hint}: `shoal list` shows them all")
    from .jax import FOREIGN

    if prefix in FOREIGN:
        return FOREIGN[prefix](rest, options)
    return Hosted(env_id, _plain(env_id, options), watched=True)


def versions(env_id: str) -> dict[str, str]:
    """Versions of the installed packages that an environment comes from."""
    prefix, colon, rest = env_id.partition(":")
    inner = re.split(r"[.:]", rest)[0] if prefix in ("pz", "gym") else ""
    names = (PACKAGES.get(prefix, prefix.partition(".")[0]), inner) if colon else ()
    found = plugins.versions([prefix])
    for name in filter(None, names):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _plain(env_id: str, options: dict[str, Any]) -> dict[str, Any]:
    """Check that options are plain JSON, as the run's config and worker processes need."""
    try:
        return json.loads(json.dumps(options))
    except (TypeError, ValueError):
        kinds = "numbers, text, true or false, or lists of them"
        raise ShoalError(
            f"the options of {env_id} are saved with the run and must be {kinds}: {options}"
        ) from None
