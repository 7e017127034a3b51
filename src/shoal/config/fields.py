"""Values checked against the fields of a dataclass."""

from __future__ import annotations

import dataclasses
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..errors import ShoalError, nearest

# beyond these no setting makes sense, and no array could hold it
WHOLE = 2**32 - 1
REAL = 1e30


def fill(cls: type, values: dict[str, Any], owner: str) -> Any:
    """The dataclass `cls` with these values, each checked against its field; `owner` is whose
    options they are."""
    hints = get_type_hints(cls)
    known = [option.name for option in dataclasses.fields(cls)]
    for name in values:
        if name not in known:
            raise ShoalError(f"{owner} has no option {name!r}{nearest(name, known)}")
    return cls(**{name: fit(hints[name], value, name) for name, value in values.items()})


def entry(plain: Any, name: str, kind: type) -> Any:
    """What a file says under a name, if it is there and what it should be; a whole number is a
    count."""
    value = plain.get(name) if isinstance(plain, dict) else None
    if not isinstance(value, kind) or (
        kind is int and not (type(value) is int and 0 <= value <= WHOLE)
    ):
        raise ShoalError(f"{name!r} is missing there, or is not {_kind(kind)}")
    return value


def bounded(config: Any) -> None:
    """Refuse numbers of a dataclass that are none, or that nothing could be made of."""
    for name, value in vars(config).items():
        if isinstance(value, float) and not abs(value) <= REAL:
            raise ShoalError(f"{name} must be a finite number, at most {REAL:g}, not {value}")
        if isinstance(value, int) and abs(value) > WHOLE:
            raise ShoalError(f"{name} must be smaller than 2**32, not {value}")


def fit(kind: Any, value: Any, name: str) -> Any:
    """`value` as the type of its field: 2e6 is a whole number, 1 is a number, "yes" is neither."""
    arms = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    for arm in arms:
        if get_origin(arm) is Literal and value in get_args(arm):
            return value
        if arm in (type(None), bool, str) and isinstance(value, arm):
            return value
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and (arm is float or (arm is int and value == value // 1)):
            return arm(value)
    raise ShoalError(f"{name} must be {' or '.join(map(_kind, arms))}, not {value!r}")


def _kind(arm: Any) -> str:
    if get_origin(arm) is Literal:
        return "one of " + ", ".join(map(str, get_args(arm)))
    words = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "text",
        type(None): "none",
    }
    words |= {dict: "a table of names and values", list: "a list"}
    return words.get(arm, str(arm))
