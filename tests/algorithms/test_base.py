"""What the type checker takes `self.config` for is what an algorithm is made with."""

from __future__ import annotations

import typing
from typing import Any

import pytest

from shoal.algorithms import ALGORITHMS
from shoal.algorithms.base import Algorithm


def declared(kind: type[Algorithm]) -> type[Any]:
    """The type of `config` as the class or the nearest of its bases declares it."""
    for cls in kind.__mro__:
        if "config" in vars(cls).get("__annotations__", {}):
            return typing.get_type_hints(cls)["config"]
        for base in vars(cls).get("__orig_bases__", ()):
            origin = typing.get_origin(base)
            if isinstance(origin, type) and issubclass(origin, Algorithm):
                config = typing.get_args(base)[0]
                return getattr(config, "__default__", config)
    raise AssertionError(f"{kind.__name__} says nothing of its config")


@pytest.mark.parametrize("kind", ALGORITHMS.values(), ids=ALGORITHMS)
def test_the_config_that_is_checked_is_the_one_it_is_made_with(kind: type[Algorithm]):
    assert declared(kind) is not Any
    assert issubclass(kind.Config, declared(kind))
