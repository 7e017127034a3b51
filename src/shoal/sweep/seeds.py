"""`--seeds`: the same run several times, side by side, in one folder that is resumed as one.

`group.json` says what the runs have in common and, at the end, how they did. Each is a run of its
own, and the same to the bit as if it had been trained alone.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .. import files
from ..config.config import Config
from ..config.trust import NOTHING, Trust, needed
from ..devices import usable
from ..errors import ShoalError
from ..monitor.console import named, tell
from ..report import figures
from ..report.results import of_folders
from ..report.statistics import iqm
from ..store import folder
from ..store.summary import Result
from . import processes, progress, vectorised


class Unfinished(ShoalError):
    """Some of the runs failed."""

    exit_code = 1


def train(config: Config, quiet: bool = False) -> Result:
    """All seeds of a config; scores are means over them."""
    s = config.settings
    config = replace(config, settings=replace(s, devices=s.devices or 1, workers=_workers(config)))
    content = {"seeds": list(range(s.seed, s.seed + s.seeds)), "config": config.to_json()}
    with folder.claimed(config) as path:
        try:
            path.mkdir()
            files.write_json(path / folder.GROUP, content)
        except OSError as error:
            raise ShoalError(
                f"the group folder {path} cannot be made ({error.strerror}): choose another out"
            ) from None
    return _go(path, content, quiet, config.trust)


def resume(path: Path, quiet: bool = False, trust: Trust = NOTHING) -> Result:
    """Whatever is left of the group."""
    content = files.read_json(path / folder.GROUP, "a group of runs")
    if (
        not isinstance(content, dict)
        or not {"seeds", "config"} <= set(content)
        or not _counts(content["seeds"])
    ):
        raise ShoalError(f"{path} is not a group of runs: its {folder.GROUP} does not say which")
    if all(processes.finished(path / name) for name in names(content)):
        raise ShoalError(f"{path} is finished: there is nothing to resume")
    return _go(path, content, quiet, trust)


def is_group(path: Path) -> bool:
    """Whether a folder holds several seeds."""
    return (path / folder.GROUP).is_file()


def _counts(seeds: Any) -> bool:
    """Whether these can be seeds: they name folders."""
    return isinstance(seeds, list) and all(
        type(seed) is int and 0 <= seed < 2**32 for seed in seeds
    )


def names(content: dict[str, Any]) -> list[str]:
    """The run folders inside the group's."""
    return [f"seed-{seed}" for seed in content["seeds"]]


def _workers(config: Config) -> int:
    """As asked, or one for each run where the cores are all taken by the runs."""
    s = config.settings
    cores = len(usable())
    return 1 if config.hosted and s.workers == -1 and cores < 2 * s.seeds else s.workers


def _work(
    path: Path, content: dict[str, Any], quiet: bool, trust: Trust
) -> dict[Path, progress.Outcome]:
    """In processes on the cores of a CPU, in one program on an accelerator."""
    with files.errors_name(path / folder.GROUP):
        config = Config.from_json(content["config"], trust)
    each = list(zip(names(content), content["seeds"], strict=True))
    if jax.default_backend() != "cpu" and not config.hosted:
        alike = [
            replace(config.settings, seed=seed, seeds=1, out=str(path), name=name)
            for name, seed in each
        ]
        return vectorised.work([replace(config, settings=settings) for settings in alike], quiet)
    common = str(path / folder.GROUP)
    own = trust.only(config.env)
    jobs = [
        processes.Job(path / name, [common, "--seed", str(seed), "--seeds", "1"], own)
        for name, seed in each
    ]
    return processes.work(jobs, max(len(usable()) // config.settings.devices, 1), quiet)


def _go(path: Path, content: dict[str, Any], quiet: bool, trust: Trust) -> Result:
    if not quiet:
        tell(f"{len(content['seeds'])} seeds into {path}")
    with folder.locked(path):
        outcomes = _work(path, content, quiet, trust)
        summaries = {run.name: _summary(run) for run in outcomes if processes.finished(run)}
        content |= _statistics(summaries)
        files.write_json(path / folder.GROUP, content)
        if summaries:
            _draw(path)
    if not quiet:
        _tell(path, content)
    if not quiet and any(outcome.state == progress.STOPPED for outcome in outcomes.values()):
        tell(f"stopped: shoal resume {path}{_flag(content)} goes on")
    failed = [run.name for run, outcome in outcomes.items() if outcome.state == progress.FAILED]
    stopped = max(
        (outcome.code - 128 for outcome in outcomes.values() if outcome.state == progress.STOPPED),
        default=0,
    )
    if stopped == signal.SIGINT:
        raise KeyboardInterrupt  # as of one run
    if failed and not stopped:
        why = "; ".join(f"{name} failed: {outcomes[path / name].told}" for name in failed)
        raise Unfinished(
            f"{why} (shoal resume {path}{_flag(content)} tries again what is not finished)"
        )
    return Result(
        path,
        scores=_means(summaries, "scores"),
        before=_means(summaries, "before"),
        random=_means(summaries, "random"),
        steps=sum(one["steps"] for one in summaries.values()),
        seconds=sum(one["seconds"] for one in summaries.values()),
        stopped=stopped,
        metrics=_means(summaries, "metrics"),
        random_metrics=_means(summaries, "random_metrics"),
    )


def _flag(content: dict[str, Any]) -> str:
    return needed(content["config"]["env"], content["config"]["options"])


def _summary(run: Path) -> dict[str, Any]:
    return files.read_json(run / folder.SUMMARY, "a finished run")


def _means(summaries: dict[str, dict], kind: str) -> dict[str, float]:
    names = next(iter(summaries.values())).get(kind, {}) if summaries else {}
    return {name: float(np.mean([one[kind][name] for one in summaries.values()])) for name in names}


def _statistics(summaries: dict[str, dict]) -> dict[str, Any]:
    """The final scores of the runs that are finished: each, and what they come to, by team."""

    teams = next(iter(summaries.values()))["scores"] if summaries else {}
    each = {team: np.array([one["scores"][team] for one in summaries.values()]) for team in teams}
    metrics = _means(summaries, "metrics")
    return {
        "finished": len(summaries),
        "scores": {name: one["scores"] for name, one in summaries.items()},
        "mean": {team: float(scores.mean()) for team, scores in each.items()},
        "deviation": {
            team: float(scores.std(ddof=1)) if len(scores) > 1 else None
            for team, scores in each.items()
        },
        "iqm": {team: float(iqm(scores)) for team, scores in each.items()},
        **({"metrics": metrics} if metrics else {}),
    }


def _draw(path: Path) -> None:
    """The learning curve of all that are finished: each, and their interquartile mean with its
    interval."""
    figures.save(figures.curves(of_folders([path])), path / folder.CURVE)


def _tell(path: Path, content: dict[str, Any]) -> None:
    """A table of the scores."""
    from rich.console import Console
    from rich.table import Table

    if not content["finished"]:
        return
    table = Table("mean return of one agent", *content["mean"], box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, scores in content["scores"].items():
        table.add_row(name, *(f"{score:.2f}" for score in scores.values()))
    spread = ["" if value is None else f" ± {value:.2f}" for value in content["deviation"].values()]
    means = [
        f"{mean:.2f}{also}" for mean, also in zip(content["mean"].values(), spread, strict=True)
    ]
    table.add_row("mean ± deviation between seeds", *means, style="bold")
    table.add_row("interquartile mean", *(f"{value:.2f}" for value in content["iqm"].values()))
    console = Console()
    with console.capture() as told:
        console.print(table)
    tell(told.get().rstrip())
    if content.get("metrics"):
        tell(f"mean over seeds: {named(content['metrics'])}")
    done = f"{content['finished']} of {len(content['seeds'])} seeds finished"
    tell(f"{done}: {path / folder.GROUP}   curve: {path / folder.CURVE}")
