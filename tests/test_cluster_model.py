"""The model of a cluster in `benchmarks/cluster_model.py`, against sums by hand."""

from __future__ import annotations

import sys

import pytest
from places import ROOT

BENCHMARKS = ROOT / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="needs the benchmarks beside it")
sys.path.insert(0, str(BENCHMARKS))


def test_parts_add_up_and_staleness_takes_the_slower() -> None:
    from cluster_model import WINDOW, Line, Parts, predict, saturation

    parts = Parts(0.01, Line(0.001, 0.0001), Line(0.5, 0.001), 1000, 10.0)
    row = predict(parts, nodes=2, games=3, bandwidth=1e5, latency=0.1)
    assert row["broadcast"] == pytest.approx(0.1 + 0.02)
    assert row["play"] == pytest.approx(WINDOW * (0.03 + 0.0016))
    assert row["transfer"] == pytest.approx(0.1 + 6 * WINDOW * 1e-4)
    assert row["learn"] == pytest.approx(0.5 + 6 * WINDOW * 0.001)
    others = row["broadcast"] + row["play"] + row["transfer"]
    assert row["rate"] == pytest.approx(6 * WINDOW / (others + row["learn"]))
    assert row["stale_rate"] == pytest.approx(6 * WINDOW / max(others, row["learn"]))
    # without a network or a fixed part, the learner's speed is the limit
    slow = parts._replace(learn=Line(0.0, 0.001), decide=Line(0.0, 0.0))
    rows = [predict(slow, n, 3, 1e15, 0.0) for n in (1, 2, 5, 10, 1000)]
    assert rows[-1]["stale_rate"] == pytest.approx(1000.0)
    # a window is played in 0.75 s and learnt in 0.075 s per node: half is lost beyond twice that
    assert saturation(rows, "stale_rate") == next(
        n for n in (1, 2, 5, 10, 1000) if max(0.75, 0.075 * n) > 2 * 0.75
    )


def test_a_line_goes_through_its_two_points() -> None:
    from cluster_model import line

    found = line({"games": 10, "x": 2.0}, {"games": 30, "x": 4.0}, "x")
    assert found.at(10) == pytest.approx(2.0) and found.at(30) == pytest.approx(4.0)
