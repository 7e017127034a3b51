"""Environments of other packages by id, as matches (`envs/host/match.py`).

Imports `host.match` and the records, but no JAX: worker processes use adapters.

`pz:<module>` is a PettingZoo environment, `gym:<id>` is from Gymnasium's registry,
`football:<scenario>` is Google's football, and `<module>:<function>` is the user's own: the
function takes the options and returns an environment of any kind below. Its kind is recognised by
its methods; it need not inherit from anything. A package adds a prefix of its own by an entry point
of `shoal.adapters`: a function that takes what follows the prefix, and the options.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import ShoalError, did_you_mean
from ...plugins import entries, import_module, load, missing, neighbours, one_line, path_of
from ...types import Spec
from ..host.match import Broken, Match
from .options import AdapterOptions

if TYPE_CHECKING:
    from .to_pettingzoo import ToPettingZoo

__all__ = ["PREFIXES", "AdapterOptions", "as_parallel_env", "open_match"]


def open_match(name: str, options: dict[str, Any], render: bool = False) -> Match:
    """Open a match of the environment `name`; with `render`, one that can draw."""
    kind, _, rest = name.partition(":")
    if not kind or not rest:
        raise ShoalError(f"there is no environment {name!r}: {KNOWN}")
    adapter, options = AdapterOptions.split(options)
    try:
        if kind in PREFIXES:
            match = PREFIXES[kind](rest, options, render, adapter)
        elif kind in entries("adapter"):
            factory = partial(load(path_of("adapter", kind)), rest)
            match = adapt(_made(name, factory, options, render), adapter)
        else:
            match = _own(name, options, render, adapter)
        return adapter.arrange(match)
    except Broken as error:
        raise ShoalError(f"{name} does not keep the contract of environments: {error}") from error
    except ShoalError:
        raise
    except (Exception, SystemExit) as error:
        fallen = ShoalError(f"{name} cannot be opened: {type(error).__name__}: {one_line(error)}")
        fallen.detail = "".join(traceback.format_exception(error, limit=-8))
        raise fallen from error


def as_parallel_env(match: Match) -> ToPettingZoo:
    """The match as a PettingZoo `ParallelEnv`."""
    import_module("pettingzoo")
    from .to_pettingzoo import ToPettingZoo

    return ToPettingZoo(match)


def adapt(env: Any, adapter: AdapterOptions) -> Match:
    """Wrap an environment as a match, by the methods it has."""
    if not hasattr(env, "possible_agents") and _of_pettingzoo(env):
        raise Broken(
            "an environment of PettingZoo has possible_agents, a list of all who may"
            " ever play: write one"
        )
    if not any(_has(env, methods) for methods in KINDS):
        kinds = "a PettingZoo, Gymnasium or SMAC environment nor a Match"
        raise ShoalError(f"{type(env).__name__} is neither {kinds}: it has none of their methods")
    kind = next(kind for methods, kind in KINDS.items() if _has(env, methods))
    return kind(env, adapter)


def _of_pettingzoo(env: Any) -> bool:
    """Whether an environment is meant to follow PettingZoo's interface."""
    inherits = any(kind.__module__.startswith("pettingzoo.") for kind in type(env).__mro__)
    return inherits or all(
        _asks_who(getattr(env, method, None)) for method in ("observation_space", "action_space")
    )


def _asks_who(method: Any) -> bool:
    """Whether a method needs an argument, as PettingZoo's `observation_space(agent)` does."""
    if not callable(method):
        return False
    try:
        inspect.signature(method).bind()
    except TypeError:
        return True
    except ValueError:  # it has no readable signature
        return False
    return False


def _has(env: Any, methods: tuple[str, ...]) -> bool:
    return all(hasattr(env, method) for method in methods)


def _match(env: Any, adapter: AdapterOptions) -> Match:
    """Check a match, which needs no adapter and has teams of its own."""
    if any(kind.__module__ == "shoal.envs.game" for kind in type(env).__mro__):
        raise ShoalError(
            f"{type(env).__name__} is a compiled game: name its class, as"
            f" {type(env).__module__}:{type(env).__name__}, not a function that makes it"
        )
    if adapter.teams:
        raise ShoalError(
            "teams cannot be chosen here: the environment says itself who plays together"
        )
    if not isinstance(env.teams, dict) or not all(
        isinstance(spec, Spec) for spec in env.teams.values()
    ):
        raise ShoalError("the teams of a Match must be a dictionary of Specs by the teams' names")
    return env


def _smac(env: Any, adapter: AdapterOptions) -> Match:
    from .smac import SmacMatch

    return _match(SmacMatch(env, adapter), adapter)


def _turns(env: Any, adapter: AdapterOptions) -> Match:
    from .pettingzoo_aec import TurnsMatch

    return TurnsMatch(env, adapter)


def _parallel(env: Any, adapter: AdapterOptions) -> Match:
    from .pettingzoo import ParallelMatch

    return ParallelMatch(env, adapter)


def _gym(env: Any, adapter: AdapterOptions) -> Match:
    from .gymnasium import GymMatch

    return GymMatch(env, adapter)


KINDS: dict[
    tuple[str, ...], Callable[[Any, AdapterOptions], Match]
] = {  # methods an environment is known by, most telling first
    ("get_env_info", "get_avail_actions", "get_state"): _smac,
    ("agent_iter", "possible_agents"): _turns,
    ("possible_agents", "step"): _parallel,
    ("observation_space", "action_space", "step"): _gym,
    ("teams", "reset", "step"): _match,
}


def _pettingzoo(rest: str, options: dict[str, Any], render: bool, adapter: AdapterOptions) -> Match:
    """`pz:<module>`: its parallel environment, or its AEC environment if agents move in turn."""
    import_module("pettingzoo")
    module = import_module(rest)
    factory = getattr(module, "parallel_env", None) or getattr(module, "env", None)
    if factory is None:
        raise ShoalError(
            f"{rest} has neither parallel_env nor env, as PettingZoo's environments"
            f" do{neighbours(rest + '.')}"
        )
    return adapt(_made(f"pz:{rest}", factory, options, render), adapter)


def _gymnasium(rest: str, options: dict[str, Any], render: bool, adapter: AdapterOptions) -> Match:
    """`gym:<id>` or `gym:<module>:<id>`, where importing the module registers the id."""
    gymnasium = import_module("gymnasium")
    module, _, name = rest.rpartition(":")
    if module:
        import_module(module)
    factory = partial(gymnasium.make, name, disable_env_checker=True)
    try:
        return adapt(_made(f"gym:{rest}", factory, options, render), adapter)
    except gymnasium.error.Error as error:
        raise ShoalError(f"gymnasium cannot make {name!r}: {one_line(error)}") from error


def _football(rest: str, options: dict[str, Any], render: bool, adapter: AdapterOptions) -> Match:
    from .football import make

    return _match(make(rest, options, render), adapter)


def _own(name: str, options: dict[str, Any], render: bool, adapter: AdapterOptions) -> Match:
    """`<module>:<function>`, also of a module in the working directory."""
    path, _, function = name.partition(":")
    module = import_module(path, KNOWN)
    if not callable(getattr(module, function, None)):
        callables = [word for word, value in vars(module).items() if callable(value)]
        raise ShoalError(f"{path} has no function {function!r}{did_you_mean(function, callables)}")
    return adapt(_made(name, getattr(module, function), options, render), adapter)


PREFIXES: dict[str, Callable[[str, dict[str, Any], bool, AdapterOptions], Match]] = {
    "pz": _pettingzoo,
    "gym": _gymnasium,
    "football": _football,
}
KNOWN = (
    "from outside there are pz:<module>, gym:<id>, football:<scenario> and one's own"
    " <module>:<function>"
)


def _made(name: str, factory: Callable[..., Any], options: dict[str, Any], render: bool) -> Any:
    """Call the factory with the options; turn its complaints about them into user errors."""
    try:
        return factory(**(options | {"render_mode": "rgb_array"} if render else options))
    except ImportError as error:
        raise missing(name, error) from error
    except (TypeError, ValueError, AssertionError) as error:
        if render and "render_mode" in str(error):
            needs = (
                "an argument render_mode, and a render() that returns a picture [H,W,3] for"
                " rgb_array"
            )
            raise ShoalError(f"{name} cannot be drawn: give it {needs}") from error
        if not options:
            raise
        told = ", ".join(f"{option}={value!r}" for option, value in options.items())
        raise ShoalError(f"{name} does not take the options {told}: {one_line(error)}") from error
