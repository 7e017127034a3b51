"""Options of runs that were saved before an option existed."""

from __future__ import annotations

import dataclasses
from typing import Any

from .. import algorithms
from ..options import entry

# options with another default today, and what a learner had that was saved without them
WITHOUT: dict[str, Any] = {"adam_epsilon": 1e-5}


def as_saved(side: Any) -> tuple[str, dict[str, Any]]:
    """A team's algorithm and options as a file has them, with those it was saved without.

    A run writes all of its options; a file that was written by hand and names a few has today's
    defaults."""
    name = entry(side, "algorithm", str)
    options = entry(side, "options", dict)
    if not {"lr", "gamma", "hidden", "max_grad_norm"} <= options.keys():
        return name, options
    known = {field.name for field in dataclasses.fields(algorithms.find(name).Config)}
    return name, {k: value for k, value in WITHOUT.items() if k in known} | options
