"""Options of runs that were saved before an option existed."""

from __future__ import annotations

import dataclasses
from typing import Any

from .. import algorithms

# options with another default today, and what a learner had that was saved without them
WITHOUT: dict[str, Any] = {"adam_epsilon": 1e-5}


def as_saved(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """An algorithm's options as a file has them, with those it was saved without.

    A run writes all of its options; one that was written by hand and names a few has today's
    defaults."""
    if not {"lr", "gamma", "hidden", "max_grad_norm"} <= options.keys():
        return options
    known = {field.name for field in dataclasses.fields(algorithms.find(name).Config)}
    return {option: value for option, value in WITHOUT.items() if option in known} | options
