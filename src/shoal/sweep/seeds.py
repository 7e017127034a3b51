"""`--seeds`: one config with several seeds, in one folder (a group) that is resumed as a whole.

`group.json` says what the runs have in common and, at the end, their results. Each is a normal run,
equal bit for bit to one trained alone.
"""

from __future__ import annotations

import itertools
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from .. import files
from ..config.campaign import Job, cores
from ..config.config import Config
from ..config.settings import LOCAL, MOST_SEEDS, numbers
from ..config.trust import NOTHING, Trust, needed
from ..devices import usable
from ..errors import ShoalError
from ..monitor.console import listed, tell
from ..report import figures
from ..report.results import of_folders
from ..report.statistics import iqm
from ..run import resuming
from ..store import checkpoint, folder, start
from ..store.places import word_of
from ..store.records import Summary
from ..store.remote import share
from ..store.summary import Result
from . import progress, scheduler, vectorised


class Unfinished(ShoalError):
    """Some of the runs failed."""

    exit_code = 1


def train(config: Config, quiet: bool = False) -> Result:
    """Train all seeds of a config; return mean scores over them."""
    s = config.settings
    config = replace(config, settings=replace(s, devices=s.devices or 1, workers=_workers(config)))
    start.check(config)
    content = {"seeds": s.each, "config": config.to_json()}
    with folder.claimed(config) as path:
        try:
            path.mkdir(parents=True)
            files.write_json(path / folder.GROUP, content)
        except OSError as error:
            raise ShoalError(
                f"the group folder {path} cannot be made ({error.strerror}): choose another out"
            ) from None
    return _go(path, content, quiet, config.trust)


def resume(
    path: Path,
    quiet: bool = False,
    trust: Trust = NOTHING,
    steps: int = 0,
    seeds: str = "",
    cluster: str = "",
) -> Result:
    """Train what is left of a group.

    With `steps`, extend every seed to that many in all; with `seeds`, add seeds, up to a number or
    those listed. `cluster` is where to go on, if not where it was."""
    content = read(path)
    if cluster:
        content["config"] = _moved(content["config"], cluster)
        trust = replace(trust, named=trust.named | {cluster})
    before = _config(path, content, trust).settings
    further = bool(steps) and steps != before.steps
    if further:
        for run in members(path, content):
            resuming.refuse_fewer(run, steps)
        content["config"]["settings"]["steps"] = steps
    if seeds:
        content["seeds"] = _with_more(path, content["seeds"], seeds, before.seed)
    total = _config(path, content, trust).settings.steps
    runs = members(path, content)
    if all(folder.finished(run, total) for run in runs):
        raise ShoalError(
            f"{path} is finished: there is nothing to resume, but --steps trains its seeds"
            f" further, and --seeds adds others"
        )
    if further and not quiet:
        tell(resuming.rescaled(max(map(checkpoint.done, runs)), before.steps, total))
    return _go(path, content, quiet, trust)


def read(path: Path) -> dict[str, Any]:
    """Read `group.json`: the seeds, and what the runs have in common."""
    content = files.read_json(path / folder.GROUP, "a group of runs")
    if (
        not isinstance(content, dict)
        or not {"seeds", "config"} <= set(content)
        or not _counts(content["seeds"])
    ):
        raise ShoalError(f"{path} is not a group of runs: its {folder.GROUP} does not say which")
    return {name: content[name] for name in ("seeds", "config")}


def _config(path: Path, content: dict[str, Any], trust: Trust) -> Config:
    with files.errors_name(path / folder.GROUP):
        return Config.from_json(content["config"], trust)


def _moved(plain: Any, cluster: str) -> Any:
    """A saved config with another cluster; one without settings is left for `_config` to refuse."""
    settings = plain.get("settings") if isinstance(plain, dict) else None
    if not isinstance(settings, dict):
        return plain
    return plain | {"settings": settings | {"cluster": cluster}}


def _with_more(path: Path, there: list[int], seeds: str, first: int) -> list[int]:
    """The seeds of a group and those asked for; a number is the total to have."""
    if "," in seeds:
        return [*there, *(seed for seed in numbers(seeds) if seed not in there)]
    count = len(numbers(seeds))
    if count < len(there):
        raise ShoalError(f"{path} has {len(there)} seeds already: ask for more, not {seeds}")
    others = (seed for seed in itertools.count(first) if seed not in there)
    return [*there, *itertools.islice(others, count - len(there))]


def is_group(path: Path) -> bool:
    """Whether a folder is a group."""
    return (path / folder.GROUP).is_file()


def _counts(seeds: Any) -> bool:
    """Whether these are valid seeds: they name folders."""
    return (
        isinstance(seeds, list)
        and len(seeds) <= MOST_SEEDS
        and all(type(seed) is int and 0 <= seed < 2**32 for seed in seeds)
    )


def members(path: Path, content: dict[str, Any]) -> list[Path]:
    """Run folders of a group."""
    return [path / f"seed-{seed}" for seed in content["seeds"]]


def _workers(config: Config) -> int:
    """Worker processes per run: as asked, but one if the runs already take up all cores."""
    s = config.settings
    cores = len(usable())
    return 1 if config.hosted and s.workers == -1 and cores < 2 * len(s.each) else s.workers


def _work(
    path: Path, content: dict[str, Any], quiet: bool, trust: Trust
) -> dict[Path, progress.Outcome]:
    """Train all members: in processes on a CPU, in one program on an accelerator."""
    config = _config(path, content, trust)
    each = list(zip(members(path, content), content["seeds"], strict=True))
    cluster = config.settings.cluster
    if jax.default_backend() != "cpu" and not config.hosted and cluster == LOCAL:
        alike = [
            replace(config.settings, seed=seed, seeds=1, out=str(path), name=run.name)
            for run, seed in each
        ]
        return vectorised.work([replace(config, settings=settings) for settings in alike], quiet)
    common = f"{word_of(path.absolute())}/{folder.GROUP}"
    own = trust.only(content["config"])
    steps = config.settings.steps
    jobs = [
        Job(run, [common, *_one(seed, cluster)], own, steps, cores(content["config"]))
        for run, seed in each
    ]
    at_once = max(len(usable()) // config.settings.devices, 1) if cluster == LOCAL else 0
    return scheduler.work(jobs, at_once, quiet, cluster)


def _one(seed: int, cluster: str) -> list[str]:
    """Arguments that make a run of one seed of a group's config."""
    here = [] if cluster == LOCAL else ["--cluster", LOCAL]
    return ["--seed", str(seed), "--seeds", "1", *here]


def _go(path: Path, content: dict[str, Any], quiet: bool, trust: Trust) -> Result:
    if not quiet:
        tell(f"{len(content['seeds'])} seeds into {path}")
    with folder.locked(path):
        files.write_json(path / folder.GROUP, content)
        share(path)
        outcomes = _work(path, content, quiet, trust)
        steps = _config(path, content, trust).settings.steps
        summaries = {run.name: _summary(run) for run in outcomes if folder.finished(run, steps)}
        content |= _statistics(summaries)
        files.write_json(path / folder.GROUP, content)
        if summaries:
            _draw(path)
        share(path)
    if not quiet:
        _tell(path, content)
    if not quiet and any(outcome.state == progress.STOPPED for outcome in outcomes.values()):
        tell(f"stopped: shoal resume {word_of(path)}{_flag(content)} goes on")
    failed = [run.name for run, outcome in outcomes.items() if outcome.state == progress.FAILED]
    stopped = max(
        (outcome.code - 128 for outcome in outcomes.values() if outcome.state == progress.STOPPED),
        default=0,
    )
    if stopped == signal.SIGINT:
        raise KeyboardInterrupt  # as a single run does
    if failed and not stopped:
        why = "; ".join(f"{name} failed: {outcomes[path / name].message}" for name in failed)
        raise Unfinished(
            f"{why} (shoal resume {word_of(path)}{_flag(content)} tries again what is not finished)"
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
    return needed(content["config"])


def _summary(run: Path) -> Summary:
    return files.read_json(run / folder.SUMMARY, "a finished run")


def _means(
    summaries: dict[str, Summary],
    kind: Literal["scores", "before", "random", "metrics", "random_metrics"],
) -> dict[str, float]:
    each = [one.get(kind, {}) for one in summaries.values()]
    return {name: float(np.mean([one[name] for one in each])) for name in (each[0] if each else ())}


def _statistics(summaries: dict[str, Summary]) -> dict[str, Any]:
    """Final scores of the finished runs: each, and their statistics, by team."""

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
    """Draw the learning curves of finished runs, and their interquartile mean with its interval."""
    figures.save(figures.curves(of_folders([path])), path / folder.CURVE)


def _tell(path: Path, content: dict[str, Any]) -> None:
    """Print a table of the scores."""
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
    console = Console(markup=False)
    with console.capture() as told:
        console.print(table)
    tell(told.get().rstrip())
    if content.get("metrics"):
        tell(f"mean over seeds: {listed(content['metrics'])}")
    done = f"{content['finished']} of {len(content['seeds'])} seeds finished"
    tell(f"{done}: {path / folder.GROUP}   curve: {path / folder.CURVE}")
