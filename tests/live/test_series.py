"""Metrics are read as they grow, in bounded memory."""

import json

import numpy as np
import pytest
from run_folders import lines

from shoal.live import series
from shoal.live.series import Library, Series, Tail, as_json
from shoal.store.folder import METRICS


def append(run, values):
    with (run / METRICS).open("a") as file:
        file.writelines(json.dumps(value) + "\n" for value in values)


def test_a_short_series_is_as_it_was_logged():
    one = Series()
    for i in range(50):
        one.add(i, i / 2, i**2)
    steps, seconds, values = one.points()
    assert values == [i**2 for i in range(50)] and steps[-1] == 49 and seconds[-1] == 24.5


def test_a_long_series_is_averaged_and_keeps_its_ends_and_its_mean():
    one = Series()
    count = 86_400
    for i in range(count):
        one.add(i, i, i % 10)
    steps, _, values = one.points()
    assert 300 <= len(steps) <= series.POINTS
    assert steps[0] < 300 and steps[-1] > count - 300 and list(steps) == sorted(steps)
    assert np.mean(values) == pytest.approx(4.5, abs=0.05)


def test_only_what_was_appended_is_read(tmp_path, monkeypatch):
    tail = Tail(tmp_path)
    append(tmp_path, lines(20))
    tail.update()
    read = []
    feed = tail._feed
    monkeypatch.setattr(tail, "_feed", lambda chunk: (read.append(len(chunk)), feed(chunk)))
    tail.update()
    assert read == []
    append(tmp_path, lines(21)[-1:])
    tail.update()
    assert 0 < sum(read) < 400
    assert len(tail.series["agent/return"].points()[0]) == 21


def test_half_a_line_waits_for_its_other_half(tmp_path):
    tail = Tail(tmp_path)
    text = json.dumps({"env_step": 5, "seconds": 1.0, "agent/return": 2.0}) + "\n"
    (tmp_path / METRICS).write_text(text[:20])
    tail.update()
    assert tail.series == {}
    (tmp_path / METRICS).write_text(text)
    tail.update()
    assert tail.series["agent/return"].points() == ([5.0], [1.0], [2.0])


def test_a_file_that_was_cut_back_is_read_anew(tmp_path):
    tail = Tail(tmp_path)
    append(tmp_path, lines(30))
    tail.update()
    (tmp_path / METRICS).write_text(json.dumps({"env_step": 1, "agent/return": 9.0}) + "\n")
    tail.update()
    assert list(tail.series) == ["agent/return"] and tail.series["agent/return"].points()[2] == [9]


@pytest.mark.parametrize(
    "line",
    ["nonsense", "[1]", "{}", '{"env_step": "x"}', '{"env_step": 1, "a": "<b>"}', "[" * 5000],
)
def test_lines_that_are_none_are_left_out(tmp_path, line):
    (tmp_path / METRICS).write_text(f"{line}\n")
    append(tmp_path, lines(3))
    tail = Tail(tmp_path)
    tail.update()
    assert len(tail.series["agent/return"].points()[0]) == 3 and "a" not in tail.series


def test_what_is_no_number_is_remarked_on(tmp_path):
    (tmp_path / METRICS).write_text("nonsense\n")
    append(tmp_path, [{"env_step": i, "agent/loss": None if i else 1.0} for i in range(3)])
    tail = Tail(tmp_path)
    tail.update()
    assert tail.remarks() == [
        "agent/loss was not a finite number at 2 log points",
        "lines of metrics.jsonl that are no log points and were left out: 1",
    ]
    assert as_json(tail)["remarks"] == tail.remarks()


def test_there_may_be_no_file_or_a_folder_in_its_place(tmp_path):
    Tail(tmp_path).update()
    (tmp_path / METRICS).mkdir()
    Tail(tmp_path).update()


def test_memory_is_bounded_by_the_number_of_series(tmp_path):
    library = Library(most=20)
    runs = [tmp_path / str(i) for i in range(30)]
    for run in runs:
        run.mkdir()
        append(run, lines(5))
        library.of(run)
    assert library.size <= 20 and runs[-1] in library.tails and runs[0] not in library.tails
    many = tmp_path / "many"
    many.mkdir()
    append(many, [{"env_step": 0, **{f"m{i}": 1.0 for i in range(2_000)}}])
    assert len(library.of(many).series) == series.NAMES


def test_json_holds_the_names_of_all_and_the_series_asked_for(tmp_path):
    append(tmp_path, lines(3))
    tail = Tail(tmp_path)
    tail.update()
    told = as_json(tail, ["agent/return", "no/such"])
    assert list(told["series"]) == ["agent/return"] and "agent/actor_loss" in told["metrics"]
    json.dumps(told, allow_nan=False)
