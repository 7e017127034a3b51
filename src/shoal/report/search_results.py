"""What a search found: a table, pictures, and the best settings as a preset."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .. import algorithms, files
from ..config.settings import Settings
from ..config.space import Dimension, distributions, load_optuna
from ..files import atomic
from ..store import folder as runs
from .figures import COLOURS

TABLE = "trials.csv"
PARALLEL = "parallel.png"
IMPORTANCE = "importance.png"
PRESET = "best.toml"
SHOWN = 10  # trials of the printed table
# settings that belong to a run, not to a preset
OWN = (*runs.UNDECIDED, "seed", "from_run", "best", "final_episodes", "alone")


class Trial(NamedTuple):
    """A trial that has ended."""

    path: Path  # of its run
    values: dict[str, Any]
    state: str
    score: float | None
    message: str = ""


def best_first(rows: Sequence[Trial]) -> list[Trial]:
    """Finished trials by score, then the others."""
    return sorted(
        rows,
        key=lambda row: (
            row.state == "finished" and row.score is not None,
            float("-inf") if row.score is None else row.score,
        ),
        reverse=True,
    )


def markdown(rows: Sequence[Trial]) -> str:
    """The best trials as a table."""
    names = list(rows[0].values) if rows else []
    lines = [
        " | ".join(["trial", "score", *names, "ended"]),
        " | ".join(["---", "---:", *["---:"] * len(names), "---"]),
    ]
    for row in best_first(rows)[:SHOWN]:
        score = "" if row.score is None else f"{row.score:.3f}"
        values = [_short(row.values.get(name)) for name in names]
        lines.append(" | ".join([row.path.name, score, *values, row.message or row.state]))
    return "".join(f"| {line} |\n" for line in lines)


def write_table(rows: Sequence[Trial], folder: Path) -> None:
    """Write all trials as CSV."""
    text = io.StringIO()
    writer = csv.writer(text)
    names = list(rows[0].values) if rows else []
    writer.writerow(["trial", "score", *names, "state", "message"])
    for row in rows:
        values = [row.values.get(name, "") for name in names]
        score = "" if row.score is None else row.score
        writer.writerow([row.path.name, score, *values, row.state, row.message])
    files.write_text(folder / TABLE, text.getvalue())


def draw(trials: Sequence[Trial], space: Sequence[Dimension], folder: Path) -> list[Path]:
    """Draw the pictures that so many trials allow: coordinates of two, importances of four."""
    study = _study(load_optuna(), trials, space)
    count = len(study.trials)
    drawn: list[Path] = []
    if count >= 2:
        drawn.append(_coordinates(study, folder / PARALLEL))
    if count >= 4 and len(space) > 1 and len({one.value for one in study.trials}) > 1:
        drawn.append(_importances(study, folder / IMPORTANCE))
    return drawn


def _coordinates(study: Any, path: Path) -> Path:
    """Draw a line for each finished trial, through its settings to its score."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():  # Optuna sets a style for all
        matplotlib.use("Agg")
        warnings.simplefilter("ignore")  # its pictures are said to be experimental
        from matplotlib import pyplot
        from optuna.visualization.matplotlib import plot_parallel_coordinate

        axes: Any = plot_parallel_coordinate(study, target_name="score")
        axes.set_title("Settings and scores of the finished trials")
        for lines in axes.collections:
            lines.set_cmap("viridis_r")  # the lowest score is to be seen, too
        axes.figure.set_size_inches(9, 5)
        with atomic(path) as temporary:
            axes.figure.savefig(temporary, dpi=110, bbox_inches="tight")
        pyplot.close(axes.figure)
    return path


def _importances(study: Any, path: Path) -> Path:
    """Draw how much of the scores' variance each setting explains (PED-ANOVA)."""
    from matplotlib.figure import Figure

    optuna = load_optuna()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        shares = optuna.importance.get_param_importances(study, evaluator=evaluator)
    figure = Figure((7, 1 + 0.5 * len(shares)), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh(list(shares)[::-1], list(shares.values())[::-1], color=COLOURS[0])
    axes.bar_label(bars, fmt="{:.2f}", padding=3)
    axes.set_xlim(0, 1.1)
    axes.set_title("How much each setting matters")
    axes.spines[["top", "right"]].set_visible(False)
    with atomic(path) as temporary:
        figure.savefig(temporary, dpi=110)
    return path


def _study(optuna: Any, trials: Sequence[Trial], space: Sequence[Dimension]) -> Any:
    """The finished trials as a study in memory."""
    study = optuna.create_study(direction="maximize")
    kinds = distributions(space)
    for row in trials:
        if row.state == "finished" and row.score is not None:
            study.add_trial(
                optuna.trial.create_trial(params=row.values, distributions=kinds, value=row.score)
            )
    return study


def write_preset(row: Trial, command: str, folder: Path) -> Path:
    """Write the settings of a run, as far as they differ from the defaults, as a preset."""
    config = files.read_json(row.path / runs.CONFIG, "a run folder")
    sides = list(config["teams"].values())
    usual = algorithms.defaults(sides[0]["algorithm"])
    tables = {
        "settings": _differing(config["settings"], dataclasses.asdict(Settings()), OWN),
        "algorithm": _differing(sides[0]["options"], usual),
        "env": config["options"],
    }
    lines = [f"# {command}", f"# {row.path.name}: score {row.score:.4g}"]
    for name, values in tables.items():
        if values:
            lines += ["", f"[{name}]", *(f"{key} = {json.dumps(v)}" for key, v in values.items())]
    files.write_text(folder / PRESET, "\n".join(lines) + "\n")
    return folder / PRESET


def _differing(
    values: dict[str, Any], usual: dict[str, Any], left_out: Sequence[str] = ()
) -> dict[str, Any]:
    return {
        name: value
        for name, value in values.items()
        if name not in left_out and value is not None and value != usual.get(name)
    }


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
