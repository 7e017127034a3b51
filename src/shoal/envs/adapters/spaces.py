"""Gymnasium's spaces in Shoal: observations become rows of numbers, actions integers or vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import flatdim, flatten

from ...errors import ShoalError
from ...types import Box, Discrete, MultiDiscrete, Space, side_by_side
from ..host.match import Broken

# PettingZoo's key of the action mask, in a Dict observation or in the info
MASK = "action_mask"
# most combinations of an action's parts that become an action each; above, parts stay parts
COMBINATIONS = 4096
ACTIONS = 100_000  # most actions of an agent: each has its place in every mask
NUMBERS = 10_000_000  # most numbers in an observation


class Outside(Exception):
    """Raised for a value outside its space."""


def survives(numbers: np.ndarray, kind: Any) -> bool:
    """Whether a cast to an integer type keeps the numbers: 300, -1 and 0.5 are not bytes."""
    if kind is None or numbers.dtype == kind or kind.kind not in "iub":
        return True
    with np.errstate(invalid="ignore"):
        return bool((numbers.astype(kind) == numbers).all())


def _kept(space: spaces.Space, value: Any) -> Any:
    """Cast a value to its space's types; raise `Outside` if that changes it."""
    if isinstance(space, spaces.Dict):
        return {key: _kept(part, value[key]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_kept(part, one) for part, one in zip(space.spaces, value, strict=True))
    if isinstance(space, spaces.OneOf):
        which, one = value
        return which, _kept(space.spaces[which], one)
    numbers = np.asarray(value)
    if numbers.dtype.kind not in "fiub":
        return value
    if not survives(numbers, space.dtype):
        raise Outside
    if not isinstance(space, spaces.Box) and not space.contains(numbers.astype(space.dtype)):
        raise Outside
    return numbers.astype(space.dtype)


@dataclass(frozen=True)
class Reader:
    """How one agent's observations become rows of numbers."""

    agent: str
    space: spaces.Space  # without the mask
    size: int
    pixels: tuple[int, ...]  # (H,W,C) if it is a uint8 image
    masked: bool  # the observation is a Dict that also holds the mask
    key: str  # the only key beside the mask; "" if there are several, or no mask
    strict: bool = False  # check every value against the space

    def read(self, value: Any) -> np.ndarray:
        """Convert an observation to one row `[size]`."""
        if isinstance(value, np.ndarray) and value.dtype is self.kind and value.shape == self.shape:
            return value.reshape(-1)  # the common case
        if value is None:
            raise Broken(f"the observation of {self.agent} is None, its space says {self.space}")
        try:
            if self.masked and self.key:
                value = value[self.key]
            elif self.masked:
                value = {key: value[key] for key in self.space.spaces}  # type: ignore[attr-defined]
            row = np.asarray(
                value if self.shape is not None else flatten(self.space, _kept(self.space, value))
            )
        except Outside:
            raise Broken(self._outside(value)) from None
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise Broken(
                f"the observation of {self.agent} does not fit its space {self.space}: {error!r}"
            ) from error
        if self.shape is not None and row.shape != self.shape:
            raise Broken(
                f"the observation of {self.agent} has shape {row.shape}, its space"
                f" says {self.shape}"
            )
        if row.dtype.kind not in "fiub":
            raise Broken(
                f"the observation of {self.agent} is not made of numbers but of {row.dtype}"
            )
        if not survives(row, self.space.dtype) or (
            self.strict and not self.space.contains(_kept(self.space, value))
        ):
            raise Broken(self._outside(value))
        return row.reshape(-1)

    @cached_property
    def kind(self) -> np.dtype | None:
        """Type of numbers that are taken as they are: those of a Box alone; None for others."""
        plain = self.shape is not None and not self.strict and not self.masked
        kind = self.space.dtype
        return kind if plain and kind is not None and kind.kind in "fiub" else None

    def _outside(self, value: Any) -> str:
        if isinstance(value, np.ndarray) and value.size > 8:
            value = f"{value.dtype} from {value.min():g} to {value.max():g}"
        return f"the observation of {self.agent} lies outside its space {self.space}: {value}"[:500]

    @cached_property
    def shape(self) -> tuple[int, ...] | None:
        """Shape of a Box; None for any other space."""
        return self.space.shape if isinstance(self.space, spaces.Box) else None

    def mask(self, value: Any, info: Any) -> Any:
        """The action mask, from the observation or the info; None if there is none."""
        if self.masked and value is not None:
            return value[MASK]
        return info.get(MASK) if isinstance(info, dict) else None


def reader(agent: str, space: spaces.Space, strict: bool = False) -> Reader:
    """The reader for an agent's observation space."""
    masked = isinstance(space, spaces.Dict) and MASK in space.spaces
    key = ""
    if isinstance(space, spaces.Dict) and masked:
        rest = {name: part for name, part in space.spaces.items() if name != MASK}
        key = next(iter(rest)) if len(rest) == 1 else ""
        space = rest[key] if key else spaces.Dict(rest)
    if not space.is_np_flattenable or _textual(space):
        raise ShoalError(
            f"the observations of {agent}, {space}, have no fixed size: wrap the environment"
        )
    size = flatdim(space)
    if size > NUMBERS:
        raise ShoalError(
            f"the observations of {agent}, {space}, are {size} numbers, more than {NUMBERS}: wrap"
            " the environment so that it shows fewer"
        )
    image = (
        isinstance(space, spaces.Box)
        and len(space.shape) == 3
        and space.dtype == np.uint8
        and space.high.max() > 1
    )
    return Reader(agent, space, size, space.shape if image else (), masked, key, strict)  # type: ignore[arg-type]


def _textual(space: spaces.Space) -> bool:
    """Whether a space contains text, from which nothing can be learnt."""
    parts = getattr(space, "spaces", ())
    return isinstance(space, spaces.Text) or any(
        map(_textual, parts.values() if isinstance(parts, dict) else parts)
    )


@dataclass(frozen=True)
class Choice:
    """An agent with `n` discrete actions; an action of several parts becomes all combinations."""

    agent: str
    space: spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary
    parts: tuple[int, ...]  # number of values of each part

    @cached_property
    def size(self) -> int:
        return math.prod(self.parts)

    @property
    def idle(self) -> np.ndarray:
        """The mask that allows action 0 alone."""
        return np.arange(self.size) == 0

    def write(self, action: Any) -> Any:
        """Convert an action to what the environment expects."""
        if not 0 <= action < self.size:
            raise Broken(f"{self.agent} was given action {action}, it has {self.size}")
        if isinstance(self.space, spaces.Discrete):
            return int(action) + int(self.space.start)
        values = np.array(np.unravel_index(int(action), self.parts), self.space.dtype).reshape(
            self.space.shape
        )
        return values + self.space.start if isinstance(self.space, spaces.MultiDiscrete) else values


@dataclass(frozen=True)
class Several:
    """An agent whose action has several parts, each a number below that of its values."""

    agent: str
    space: spaces.MultiDiscrete | spaces.MultiBinary
    parts: tuple[int, ...]

    @cached_property
    def size(self) -> int:
        return sum(self.parts)

    @property
    def idle(self) -> np.ndarray:
        """The mask that allows 0 alone in every part."""
        return np.concatenate([np.arange(count) == 0 for count in self.parts])

    def write(self, action: Any) -> Any:
        """Convert an action to what the environment expects."""
        values = np.asarray(action)
        if values.shape != (len(self.parts),) or not ((values >= 0) & (values < self.parts)).all():
            raise Broken(f"{self.agent} was given action {values.tolist()}, of {self.parts} values")
        values = values.astype(self.space.dtype).reshape(self.space.shape)
        return values + self.space.start if isinstance(self.space, spaces.MultiDiscrete) else values


@dataclass(frozen=True)
class Vector:
    """An agent whose action is a real vector."""

    agent: str
    space: spaces.Box

    @cached_property
    def size(self) -> int:
        return math.prod(self.space.shape)

    def write(self, action: Any) -> Any:
        """Convert an action to what the environment expects, clipped to the agent's bounds."""
        value = np.asarray(action)[: self.size].reshape(self.space.shape).astype(self.space.dtype)
        return np.clip(value, self.space.low, self.space.high)


Writer = Choice | Several | Vector


def writer(agent: str, space: spaces.Space, factored: bool = False) -> Writer:
    """The writer for an agent's action space.

    With `factored`, an action of several parts keeps them however few combinations they have.
    """
    if isinstance(space, spaces.Box):
        if space.dtype is None or space.dtype.kind != "f":
            raise ShoalError(
                f"the actions of {agent}, {space}, are a Box of whole numbers:"
                f" make it a MultiDiscrete"
            )
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise ShoalError(
                f"the actions of {agent}, {space}, have no finite bounds: wrap the environment"
                f" so that they have"
            )
        for place in np.flatnonzero(space.low > space.high)[:1]:
            raise ShoalError(
                f"the actions of {agent}, {space}, have low above high in dimension {place}:"
                " swap the bounds"
            )
        return Vector(agent, space)
    parts: list[int] | None = None
    if isinstance(space, spaces.Discrete):
        parts = [int(space.n)]
    elif isinstance(space, spaces.MultiDiscrete):
        parts = space.nvec.reshape(-1).tolist()
    elif isinstance(space, spaces.MultiBinary):
        parts = [2] * math.prod(space.shape)
    if parts is None:
        kinds = "Discrete, MultiDiscrete, MultiBinary or Box"
        raise ShoalError(
            f"the actions of {agent}, {space}, are none of {kinds}: wrap the environment"
        )
    if sum(parts) > ACTIONS:
        raise ShoalError(
            f"the actions of {agent}, {space}, have {sum(parts)} values, more than {ACTIONS}: "
            "wrap the environment so that it has fewer, or a Box"
        )
    if isinstance(space, spaces.Discrete):
        return Choice(agent, space, tuple(parts))
    kind = Several if factored or math.prod(parts) > COMBINATIONS else Choice
    return kind(agent, space, tuple(parts))  # type: ignore[arg-type]


def action_space(team: str, writers: list[Writer]) -> Space:
    """The action space of a team: the widest of its agents', with each agent's own bounds."""
    if any(isinstance(one, Several) for one in writers):
        kinds = {one.parts if isinstance(one, Several) else () for one in writers}
        if len(kinds) > 1:
            raise ShoalError(
                f"team {team} has agents whose actions have different parts: split it with"
                f" --env.teams"
            )
        return MultiDiscrete(*kinds)
    if all(isinstance(one, Choice) for one in writers):
        return Discrete(max(one.size for one in writers))
    vectors = [one for one in writers if isinstance(one, Vector)]
    if len(vectors) < len(writers):
        raise ShoalError(
            f"team {team} has agents with discrete and agents with real actions: split it with"
            f" --env.teams"
        )
    spans = ((one.space.low, one.space.high) for one in vectors)
    return side_by_side(
        [Box(*(tuple(bound.reshape(-1).tolist()) for bound in span)) for span in spans]
    )
