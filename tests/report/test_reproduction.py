"""Our numbers beside published ones: which evaluation counts, marks, tables and the page."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shoal.config.published import About, Entry, Table, Task
from shoal.errors import ShoalError
from shoal.report import reproduction, reproduction_page, tables
from shoal.report.reproduction import Failed, Record, Row
from shoal.report.statistics import Estimate

ABOUT = About("A title", "A source & more", "as they did", 3, 10, "best", 50)
EASY = Task("Easy", {"all": 100}, {"A": 10.0, "B": 20.0}, "test/identity", scale=[2.0, 1.0])
GONE = Task("Gone", {"all": 100}, {"A": 3.0}, missing="nobody <has> it")
TABLE = Table("mine", ABOUT, {"A": Entry("a2c", "all"), "B": Entry("ppo", "all")}, [EASY, GONE])


def record(seed: int, curve: list[float], final: float, steps: int = 100, who: str = "A") -> Record:
    return Record("Easy", who, seed, steps, curve, final, 3600.0)


RECORDS = [record(0, [0, 9, 5], 4.0), record(1, [8, 3, 5], 6.0), record(2, [0, 9, 5], 5.0)]


def row(low: float | None, high: float | None, incomparable: str = "") -> Row:
    at = [None if bound is None else np.array(bound) for bound in (low, high)]
    guess = Estimate(np.array(0.0), *at)
    return Row(EASY, "A", EASY.published["A"], 2, 100, 1.0, guess, guess, 0.0, 1.0, incomparable)


def test_the_best_evaluation_is_that_of_the_mean_over_seeds() -> None:
    (mine,) = reproduction.rows(TABLE, RECORDS)
    assert float(mine.theirs.value) == 2 * 7 + 1  # not of each seed's own best
    assert float(mine.ours.value) == mine.final_mean == 2 * 5 + 1
    assert (mine.seeds, mine.share, mine.published) == (3, 1.0, 10.0)


def test_the_last_evaluation_counts_where_the_table_says_so() -> None:
    last = replace(TABLE, about=replace(ABOUT, score="last"))
    assert float(reproduction.rows(last, RECORDS)[0].theirs.value) == 11
    assert "at the end, mean" in reproduction.head(last)


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (10.1, 11, "ahead"),
        (9, 9.9, "behind"),
        (9, 11, "level"),
        (10.004, 10.004, "level"),  # published as 10.00
        (10.006, 11, "ahead"),
        (None, None, ""),
    ],
)
def test_marks(low: float | None, high: float | None, word: str) -> None:
    assert row(low, high).marks == (word, word)
    assert row(low, high, "other physics").marks == ("", "")


def test_a_task_or_an_algorithm_says_why_it_is_not_marked() -> None:
    other = replace(EASY, incomparable="other physics")
    averaged = Entry("a2c", "all", incomparable="a mean over games")
    for table, why in (
        (replace(TABLE, tasks=[other]), "Easy is not marked: other physics."),
        (replace(TABLE, algorithms={"A": averaged}), "A is not marked: a mean over games."),
    ):
        found = reproduction.rows(table, RECORDS)
        assert [one.marks for one in found] == [("", "")]
        assert why in reproduction.remarks(table, found, [])
    assert not any("not marked" in line for line in reproduction.remarks(TABLE, found, []))


def test_every_budget_has_a_row() -> None:
    more = [*RECORDS, record(0, [1, 1, 1], 1.0, 10), record(0, [1, 1, 1], 1.0, who="B")]
    found = reproduction.rows(TABLE, more)
    assert [(one.algorithm, one.steps, one.share) for one in found] == [
        ("A", 10, 0.1),
        ("A", 100, 1.0),
        ("B", 100, 1.0),
    ]
    names = [mark.algorithm for mark in reproduction_page._panels(found)["Easy"]]
    assert names == ["A 0.1×", "A 1×", "B"]


def test_what_is_written(tmp_path: Path) -> None:
    found = reproduction.rows(TABLE, [*RECORDS, record(0, [1, 1, 1], 1.0, 10, "B")])
    failed = [Failed("A on Easy, seed 3", "it <never> began")]
    reproduction.write(TABLE, found, failed, tmp_path)
    reproduction_page.write(TABLE, found, failed, tmp_path)
    with (tmp_path / reproduction.TABLE).open(newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["protocol_mean"], first["final_iqm"], first["published"]) == ("15", "11", "10")
    assert float(first["protocol_low"]) <= 15 <= float(first["protocol_high"])
    assert first["protocol_is"] == "level" and first["final_is"] == "level"
    assert (second["budget"], second["protocol_low"], second["protocol_is"]) == ("0.1", "", "")
    text = (tmp_path / reproduction.TEXT).read_text()
    assert "best of 3, mean" in text and "| Gone " in text and "not reproduced" in text
    page = (tmp_path / reproduction_page.PAGE).read_text()
    for told in (text, page):
        assert "2 of 3 published numbers have runs of ours." in told
        assert "one seed has none, and no mark." in told
        assert "Rows with a share below 1× had less training" in told
        assert "of all runs 4.0 hours" in told
    assert "http" not in page and "src=" not in page and "@import" not in page
    assert "A source &amp; more" in page and "nobody &lt;has&gt; it" in page
    assert "it &lt;never&gt; began" in page and "2 s + 1" in page
    assert (tmp_path / reproduction_page.PICTURE).stat().st_size > 1000


def test_marks_are_counted() -> None:
    found = [row(11, 12), row(11, 12), row(8, 9), row(None, None)]
    assert reproduction.tallies(found)[0] == (
        "By their protocol: 2 ahead, 0 level, 1 behind, 1 not marked."
    )


def test_records_are_read_back(tmp_path: Path) -> None:
    assert reproduction.load(tmp_path, TABLE) == []
    reproduction.save(RECORDS, TABLE, tmp_path)
    assert reproduction.load(tmp_path, TABLE) == RECORDS
    with pytest.raises(ShoalError, match="has runs of 'mine', not of 'other'"):
        reproduction.load(tmp_path, replace(TABLE, name="other"))


@pytest.mark.parametrize(
    "broken",
    [
        {"runs": []},
        {"table": "mine", "runs": [{"task": "Easy"}]},
        {"table": "mine", "runs": [RECORDS[0]._asdict() | {"final": "x"}]},
        {"table": "mine", "runs": [RECORDS[0]._asdict() | {"final": None}]},
        {"table": "mine", "runs": 5},
        [],
    ],
)
def test_a_broken_file_is_refused(broken: object, tmp_path: Path) -> None:
    (tmp_path / reproduction.RECORDS).write_text(json.dumps(broken))
    with pytest.raises(ShoalError, match="was not written by this version of shoal"):
        reproduction.load(tmp_path, TABLE)


def test_a_row_has_as_many_cells_as_the_head() -> None:
    (mine,) = reproduction.rows(TABLE, RECORDS)
    assert len(reproduction.cells(mine)) == len(reproduction.head(TABLE))
    assert tables.aligned(reproduction.head(TABLE), [reproduction.cells(mine)], 2)
