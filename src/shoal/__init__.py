"""Shoal trains teams of agents: `shoal.train("mappo", "mpe/simple_spread")`, then
`shoal.load(run)`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import load as load
    from .api import resume as resume
    from .api import train as train
    from .errors import ShoalError as ShoalError
    from .monitor.callbacks import Callback as Callback
    from .monitor.trackers import Tracker as Tracker

__version__ = "0.2.0"
_HOMES = {
    "load": ".api",
    "resume": ".api",
    "train": ".api",
    "Callback": ".monitor.callbacks",
    "Tracker": ".monitor.trackers",
    "ShoalError": ".errors",
}


def __getattr__(name: str) -> Any:
    """Parts are imported when first asked for, so that `import shoal` does not wait for JAX."""
    if name not in _HOMES:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)
