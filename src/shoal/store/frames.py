"""A run's logs as pandas frames."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .. import plugins
from . import folder
from .metrics_file import read_lines

if TYPE_CHECKING:
    from pandas import DataFrame

SEED = "seed"  # column of a group's frames


def metrics(path: Path) -> DataFrame:
    """Log points, one row each and one column per metric; of a group with the seed."""
    return _of_all(path, _metrics)


def episodes(path: Path) -> DataFrame:
    """Evaluation episodes, one row per episode and agent; of a group with the seed."""
    return _of_all(path, _episodes)


def _metrics(run: Path) -> DataFrame:
    import pandas

    return pandas.DataFrame(read_lines(run).values)


def _episodes(run: Path) -> DataFrame:
    import pandas

    return pandas.read_csv(run / folder.EPISODES)


def _of_all(path: Path, read: Callable[[Path], DataFrame]) -> DataFrame:
    """A run's frame, or those of a group's runs below each other."""
    try:
        import pandas
    except ImportError as error:
        raise plugins.missing("pandas", error) from None
    if not (path / folder.GROUP).is_file():
        return read(path)
    runs = [run for run in path.glob(f"{SEED}-*") if (run / folder.METRICS).is_file()]
    seeds = {int(run.name.removeprefix(f"{SEED}-")): run for run in runs}
    frames = [read(seeds[seed]).assign(**{SEED: seed}) for seed in sorted(seeds)]
    return pandas.concat(frames, ignore_index=True)
