"""Checks of ids and options against a JAX package, and its action spaces converted."""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...errors import ShoalError, did_you_mean
from ...types import Box, Discrete, Space, side_by_side

CROWD = 1000  # largest number of anything that a package counts


def installed(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ShoalError(
            f"{name} is not installed: pip install 'shoal[{name}]' ({error})"
        ) from error


def known_id(package: str, name: str, known: Iterable[str]) -> None:
    known = sorted(known)
    if name not in known:
        hint = did_you_mean(name, known)
        raise ShoalError(f"{package} has no game {name!r}{hint}: it has {', '.join(known)}")


def look_up(option: str, value: str, known: dict[str, Any]) -> Any:
    if value not in known:
        hint = did_you_mean(value, known)
        raise ShoalError(f"there is no {option} {value!r}{hint}: there are {', '.join(known)}")
    return known[value]


@contextlib.contextmanager
def errors_in_a_sentence(env: str, options: dict[str, Any]) -> Any:
    """Turn a package's error about options into one sentence."""
    try:
        yield
    except ShoalError:
        raise
    except Exception as error:
        told = ", ".join(f"{option}={value!r}" for option, value in options.items()) or "no options"
        raise ShoalError(
            f"{env} cannot be made with {told}: {type(error).__name__}: {error}"
        ) from error


def refuse_crowds(options: dict[str, Any]) -> None:
    """Raise an error for numbers of things that a package would take hours to create."""
    for option, value in options.items():
        if option.startswith("num_") and isinstance(value, int) and value > CROWD:
            raise ShoalError(f"{option} must be at most {CROWD:,}, not {value!r}")


def parameters(env: Any) -> set[str]:
    """Names of all constructor arguments: of a game, its bases and the game inside it."""
    kinds = [kind for kind in type(env).__mro__ if "__init__" in vars(kind) and kind is not object]
    names = {name for kind in kinds for name in inspect.signature(kind.__init__).parameters}
    inner = vars(env).get("_env")
    return (names | (parameters(inner) if inner is not None else set())) - {
        "self",
        "kwargs",
        "env_kwargs",
    }


def space_of(space: Any, env: str) -> Space:
    """Convert a package's action space."""
    if hasattr(space, "n"):
        return Discrete(int(space.n))
    if not hasattr(space, "low"):
        raise ShoalError(f"{env} has a kind of actions that Shoal does not know: {space}")
    return Box(*(numbers(np.broadcast_to(bound, space.shape)) for bound in (space.low, space.high)))


def widest(spaces: list[Space], env: str) -> Space:
    """The action space that holds each of a team's; for vectors, with each agent's own bounds."""
    counts = [space.n for space in spaces if isinstance(space, Discrete)]
    boxes = [space for space in spaces if isinstance(space, Box)]
    if counts and boxes:
        raise ShoalError(f"{env} has a team with both kinds of actions, discrete and continuous")
    if counts:
        return Discrete(max(counts))
    return side_by_side(boxes)


def differing_sizes(sizes: list[int]) -> tuple[int, ...]:
    """Size of each agent, or empty if all are equal."""
    return tuple(sizes) if len(set(sizes)) > 1 else ()


def numbers(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in np.ravel(values))
