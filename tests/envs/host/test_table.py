"""Rows of the shared arrays: what is written to them, and what need not be written again."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.envs.adapters.teams import Steady
from shoal.envs.host.match import Broken
from shoal.envs.host.table import Row


def fixed(*numbers: float) -> np.ndarray:
    array = np.array(numbers, np.float32)
    array.flags.writeable = False
    return array


def test_what_cannot_change_is_written_once() -> None:
    row = Row(np.zeros(2, np.float32), "the state")
    one = fixed(1, 2)
    row.write(one)
    row.place[:] = 0
    row.write(one)
    assert row.place.tolist() == [0, 0]
    row.write(fixed(3, 4))
    row.write(one)
    assert row.place.tolist() == [1, 2]


def test_what_may_change_is_written_again() -> None:
    """Also what only looks fixed: a read-only view of an array that changes."""
    row = Row(np.zeros(2, np.float32), "the state")
    array = np.ones(2, np.float32)
    view = array[:]
    view.flags.writeable = False
    for value in (array, view):
        row.write(value)
        array += 1
        row.write(value)
        assert row.place.tolist() == array.tolist()


def test_what_is_refused_is_refused_again() -> None:
    row = Row(np.zeros((2, 1), np.float32), "the reward of", ("anna", "bert"))
    bad = fixed(0, np.nan).reshape(2, 1).copy()
    bad.flags.writeable = False
    for _ in range(2):
        with pytest.raises(Broken, match=r"the reward of bert is not finite: \[nan\]"):
            row.write(bad)
    with pytest.raises(Broken, match=r"the 2 agents has shape \(2,\), where \(2, 1\)"):
        row.write(fixed(0, 1))


def test_numbers_that_stay_are_one_array() -> None:
    steady = Steady(bool)
    first = steady([True, True])
    assert steady([True, True]) is first
    assert steady([True, False]).tolist() == [True, False]
    assert steady([True, True]) is not first and first.tolist() == [True, True]
