"""What a search found, from trials made up here."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from shoal.config.space import parse
from shoal.report import search_results as search
from shoal.report.search_results import Trial

pytest.importorskip("optuna")
SPACE = parse(["lr=1e-4..1e-2:log", "gamma=0.9,0.95,0.99"])


def trials() -> list[Trial]:
    rates = [1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 2e-3]
    made = [
        Trial(Path(f"trial-{k}"), {"lr": rate, "gamma": (0.9, 0.95, 0.99)[k % 3]}, "finished", s)
        for k, (rate, s) in enumerate(zip(rates, (1.0, 2.0, 4.0, 3.0, 0.5, 3.5), strict=True))
    ]
    return [
        *made,
        Trial(Path("trial-6"), {"lr": 2e-4, "gamma": 0.9}, "pruned", 9.0),
        Trial(Path("trial-7"), {"lr": 2e-4, "gamma": 0.9}, "failed", None, "it broke"),
    ]


def test_the_best_is_first_and_what_was_stopped_is_never_best() -> None:
    ranked = search.best_first(trials())
    assert [one.path.name for one in ranked[:2]] == ["trial-2", "trial-5"]
    assert [one.path.name for one in ranked[-2:]] == ["trial-6", "trial-7"]
    table = search.markdown(trials())
    assert table.splitlines()[2] == "| trial-2 | 4.000 | 0.001 | 0.99 | finished |"
    assert "it broke" in table


def test_table_and_pictures_are_written(tmp_path: Path) -> None:
    search.write_table(trials(), tmp_path)
    rows = list(csv.DictReader((tmp_path / search.TABLE).open()))
    assert len(rows) == 8 and rows[7]["message"] == "it broke" and rows[2]["score"] == "4.0"
    drawn = search.draw(trials(), SPACE, tmp_path)
    assert [path.name for path in drawn] == [search.PARALLEL, search.IMPORTANCE]
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in drawn)
    assert search.draw(trials()[:1], SPACE, tmp_path / "none") == []
