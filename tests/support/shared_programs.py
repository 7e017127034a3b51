"""Programs that tests share: most tests train a run like another's, and to trace and lower its
programs takes most of their time.

Two loops or evaluators are alike if all they hold is: games, algorithms, configs, arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from functools import cached_property, partial
from types import FunctionType, MethodType
from typing import Any

import jax
import numpy as np

from shoal.engine.evaluate import Evaluator
from shoal.engine.loop import Loop

PLAIN = (type(None), bool, int, float, complex, str, bytes)
LOOP = ("env", "algorithms", "games", "window", "steps", "devices")
EVALUATOR = ("env", "algorithms", "episodes", "greedy", "longest")


class Shared:
    """The programs made so far, by what they were made of."""

    def __init__(self) -> None:
        self.made: dict[Any, Any] = {}
        self.on = True

    def __call__(self, key: Any, make: Callable[[], Any]) -> Any:
        """The program of that key; made if there is none."""
        if not self.on:
            return make()
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]


shared = Shared()


def of_loop(loop: Loop) -> Any:
    """What the programs of a loop depend on."""
    return _of(loop, LOOP)


def install() -> None:
    """Let loops and evaluators of this process share their programs."""
    _share_method(Loop, "compile", LOOP)
    _share_method(Loop, "program", LOOP)
    _share_property(Loop, "_opening_program", LOOP)
    for name in ("_run", "_opened", "_stepped"):
        _share_property(Evaluator, name, EVALUATOR)


def _share_method(kind: type, name: str, fields: tuple[str, ...]) -> None:
    original = getattr(kind, name)

    def method(self: Any, *args: Any) -> Any:
        if type(self) is not kind:
            return original(self, *args)
        shapes = jax.tree.map(_shape, args)
        key = (name, _of(self, fields), signature(shapes))
        return shared(key, lambda: original(self, *args))

    setattr(kind, name, method)


def _share_property(kind: type, name: str, fields: tuple[str, ...]) -> None:
    original = vars(kind)[name].func

    def program(self: Any) -> Any:
        if type(self) is not kind:
            return original(self)
        return shared((name, _of(self, fields)), lambda: original(self))

    made = cached_property(program)
    made.__set_name__(kind, name)
    setattr(kind, name, made)


def _of(owner: Any, fields: tuple[str, ...]) -> Any:
    return signature([getattr(owner, field) for field in fields])


def _shape(leaf: Any) -> Any:
    """What a program depends on of an argument."""
    return (leaf.shape, str(leaf.dtype), str(leaf.sharding)) if hasattr(leaf, "sharding") else leaf


def signature(value: Any) -> Any:
    """Equal for values that give equal programs; differs wherever that is not sure."""
    return _signature(value, {})


def _signature(value: Any, seen: dict[int, tuple[int, Any]]) -> Any:
    if isinstance(value, PLAIN):
        return type(value), value
    if isinstance(value, np.ndarray | jax.Array):
        value = np.asarray(value)
        return np.ndarray, value.shape, str(value.dtype), value.tobytes()
    if id(value) in seen:  # what refers to itself
        return "as", seen[id(value)][0]
    seen[id(value)] = len(seen), value  # kept, so that no other takes its place in memory
    kind = type(value)
    if isinstance(value, dict):
        return kind, tuple((_signature(k, seen), _signature(v, seen)) for k, v in value.items())
    if isinstance(value, tuple | list):
        return kind, tuple(_signature(part, seen) for part in value)
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        parts = [value.__module__, cells, value.__defaults__, value.__kwdefaults__]
        return kind, value.__code__, _signature(parts, seen)
    if isinstance(value, MethodType):
        return kind, _signature([value.__func__, value.__self__], seen)
    if isinstance(value, partial):
        return kind, _signature([value.func, value.args, value.keywords], seen)
    whole = is_dataclass(value) or (hasattr(value, "__dict__") and not callable(value))
    if whole and not isinstance(value, type):
        return kind, _signature(_held(value), seen)
    return Identity(value)


def _held(value: Any) -> dict[str, Any]:
    """The attributes of an object, without those that follow from others."""
    kind = type(value)
    return {
        name: part
        for name, part in vars(value).items()
        if not isinstance(getattr(kind, name, None), cached_property)
    }


class Identity:
    """Equal to itself alone; keeps its value, so that no other takes its place in memory."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)
