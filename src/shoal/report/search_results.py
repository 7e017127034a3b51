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


def draw(rows: Sequence[Trial], space: Sequence[Dimension], folder: Path) -> list[Path]:
    """Draw the pictures that so many trials allow: coordinates of two, importances of four."""
    optuna = load_optuna()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from optuna.visualization import matplotlib as pictures

    study = _study(optuna, rows, space)
    count = len(study.trials)
    # importances by trees' variance need scikit-learn; these do not
    importance = optuna.importance.PedAnovaImportanceEvaluator()
    drawn: list[Path] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these pictures are said to be experimental
        if count >= 2:
            pictures.plot_parallel_coordinate(study, target_name="score")
            drawn.append(_saved(pyplot, folder / PARALLEL, "Settings of all finished trials"))
        if count >= 4 and len(space) > 1 and len({row.score for row in rows}) > 1:
            pictures.plot_param_importances(study, evaluator=importance)
            drawn.append(_saved(pyplot, folder / IMPORTANCE, "How much each setting matters"))
    return drawn


def _saved(pyplot: Any, path: Path, title: str) -> Path:
    """Save the picture that was drawn last."""
    figure = pyplot.gcf()
    figure.axes[0].set_title(title)
    figure.set_size_inches(9, 5)
    with atomic(path) as temporary:
        figure.savefig(temporary, dpi=110, bbox_inches="tight")
    pyplot.close(figure)
    return path


def _study(optuna: Any, rows: Sequence[Trial], space: Sequence[Dimension]) -> Any:
    """The finished trials as a study in memory."""
    study = optuna.create_study(direction="maximize")
    kinds = distributions(space)
    for row in rows:
        if row.state == "finished" and row.score is not None:
            study.add_trial(
                optuna.trial.create_trial(params=row.values, distributions=kinds, value=row.score)
            )
    return study


def write_preset(row: Trial, command: str, folder: Path) -> Path:
    """Write the settings of a run, as far as they differ from the defaults, as a preset."""
    config = files.read_json(row.path / runs.CONFIG, "a run folder")
    sides = list(config["teams"].values())
    kind = algorithms.find(sides[0]["algorithm"]).Config
    tables = {
        "settings": _differing(config["settings"], dataclasses.asdict(Settings()), OWN),
        "algorithm": _differing(sides[0]["options"], dataclasses.asdict(kind())),
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
