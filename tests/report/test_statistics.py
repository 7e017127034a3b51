"""The estimates of reports, held to what rliable and scipy compute."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import mannwhitneyu, trim_mean

from shoal.report import statistics
from shoal.report.statistics import estimate, improvement, iqm, profile

# Two algorithms, three tasks, five seeds; what rliable 1.2.0 says of them is below.
ONE = [
    [0.63, 0.62, 0.86, 0.35, 0.13],
    [0.57, 0.49, 0.79, 0.48, 0.56],
    [0.73, 0.67, 0.46, 0.61, 0.35],
]
OTHER = [
    [0.35, 0.58, 0.77, 0.68, 0.32],
    [0.39, 0.71, 0.37, 0.52, 0.41],
    [0.44, 0.47, 0.57, 0.35, 0.54],
]


def strata(rows: list[list[float]]) -> list[np.ndarray]:
    return [np.array(row) for row in rows]


# -- statistics ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [1, 2, 3, 4, 5, 10, 31])
def test_the_interquartile_mean_is_the_mean_of_the_middle_half(seeds: int):
    scores = np.random.default_rng(seeds).normal(size=seeds)
    cut = seeds // 4
    assert iqm(scores) == pytest.approx(np.sort(scores)[cut : seeds - cut].mean())
    assert iqm(scores) == pytest.approx(trim_mean(scores, 0.25))


def test_estimates_agree_with_rliable():
    guess = estimate(strata(ONE))
    assert float(guess.value) == pytest.approx(0.56555556)
    assert [guess.low, guess.high] == pytest.approx([0.4689, 0.6522], abs=0.01)
    chance = improvement(strata(ONE), strata(OTHER))
    assert float(chance.value) == pytest.approx(0.65333333)
    assert [chance.low, chance.high] == pytest.approx([0.44, 0.8467], abs=0.02)
    shares = profile(strata(ONE), np.array([0.25, 0.5, 0.75]))
    assert shares.value == pytest.approx([0.93333333, 0.6, 0.13333333])
    assert shares.low == pytest.approx([0.8, 0.33333333, 0.0], abs=0.07)


def test_the_chance_to_beat_somebody_is_the_mann_whitney_statistic():
    one, other = strata(ONE)[0], strata(OTHER)[1]
    expected = mannwhitneyu(one, other).statistic / (len(one) * len(other))
    assert float(improvement([one], [other]).value) == pytest.approx(float(expected))
    assert float(improvement([one], [one]).value) == 0.5  # a draw counts half


def test_intervals_hold_the_truth_as_often_as_they_say(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(statistics, "RESAMPLES", 400)
    rng, held = np.random.default_rng(0), 0
    for _ in range(200):
        guess = estimate([rng.normal(task, 1, 20) for task in range(3)], statistics.mean)
        assert guess.low is not None and guess.high is not None
        held += bool(guess.low <= 1.0 <= guess.high)
    assert 0.89 <= held / 200 <= 0.99


def test_a_profile_falls_from_one_to_nothing():
    levels = np.linspace(-0.1, 1.0, 50)
    shares = profile([*strata(ONE), np.array([0.2, 0.9])], levels)  # a task may have fewer seeds
    for each in shares:
        assert each is not None and (np.diff(each) <= 0).all() and each[0] == 1 and each[-1] == 0


def test_one_seed_has_no_interval():
    assert estimate([np.array([1.0, 2.0]), np.array([3.0])]).low is None
    assert estimate([np.array([1.0, 2.0]), np.array([3.0, 3.0])]).low is not None


# -- a real campaign -------------------------------------------------------------------------------
