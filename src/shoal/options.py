"""The one checker of options: names that exist, values of the right type, numbers in range."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from numbers import Real
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from .errors import ShoalError, did_you_mean

# larger values make no sense as settings, and no array could hold them
WHOLE = 2**32 - 1
LARGEST = 1e30


def fill(cls: type, values: dict[str, Any], owner: str) -> Any:
    """Make a dataclass from values, each checked against its field; `owner` is named in errors."""
    hints = get_type_hints(cls)
    check_names(values, [option.name for option in dataclasses.fields(cls)], owner)
    return cls(**{name: convert(hints[name], value, name) for name, value in values.items()})


def check_names(names: Iterable[str], known: Iterable[str], owner: str) -> None:
    """Refuse options that `owner` does not have."""
    known = list(known)
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or f": it has {', '.join(known) or 'none'}"
            raise ShoalError(f"{owner} has no option {name!r}{hint}")


def convert(kind: Any, value: Any, name: str) -> Any:
    """Convert `value` to the type of its field: 2e6 is a whole number, 1 is a number, "yes" is
    neither."""
    arms = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    for arm in arms:
        if get_origin(arm) is Literal and value in get_args(arm):
            return value
        if arm in (type(None), bool, str) and isinstance(value, arm):
            return value
        if get_origin(arm) is list and isinstance(value, list | tuple):
            return [convert(get_args(arm)[0], one, name) for one in value]
        if get_origin(arm) is dict and isinstance(value, dict):
            inner = get_args(arm)[1]
            return {key: convert(inner, one, f"{name}.{key}") for key, one in value.items()}
        is_number = isinstance(value, Real) and not isinstance(value, bool)  # numpy's too
        if is_number and (arm is float or (arm is int and value == value // 1)):
            number = arm(value)  # type: ignore[arg-type]
            _check_range(name, number)
            return number
    raise ShoalError(f"{name} must be {' or '.join(map(_kind, arms))}, not {value!r}")


def check_numbers(config: Any) -> None:
    """Refuse NaN, infinite and absurdly large numbers in a dataclass."""
    for name, value in vars(config).items():
        if isinstance(value, int | float):
            _check_range(name, value)


def _check_range(name: str, value: float) -> None:
    if isinstance(value, float) and not abs(value) <= LARGEST:  # also rejects NaN
        raise ShoalError(f"{name} must be a finite number, at most {LARGEST:g}, not {value!r}")
    if isinstance(value, int) and abs(value) > WHOLE:
        raise ShoalError(f"{name} must be smaller than 2**32, not {value!r}")


def entry(plain: Any, name: str, kind: type) -> Any:
    """The value of a key in a saved file; it must exist and have that type. Whole numbers are
    counts."""
    value = plain.get(name) if isinstance(plain, dict) else None
    if not isinstance(value, kind) or (
        kind is int and not (type(value) is int and 0 <= value <= WHOLE)
    ):
        raise ShoalError(f"{name!r} is missing there, or is not {_kind(kind)}")
    return value


def _kind(arm: Any) -> str:
    """A type's name in errors."""
    if get_origin(arm) is Literal:
        return "one of " + ", ".join(map(str, get_args(arm)))
    arm = get_origin(arm) or arm
    words = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "text",
        type(None): "none",
        dict: "a table of names and values",
        list: "a list",
    }
    return words.get(arm, str(arm))
