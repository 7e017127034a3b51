"""The tests that other packages hold their algorithms and games to, on all of ours."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers import LEARNERS

from shoal import algorithms, envs
from shoal.testing import ALGORITHM_CHECKS, GAME_CHECKS

QUICK = ("mappo", "qmix", "maddpg")  # one of each family


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in LEARNERS]
)
@pytest.mark.parametrize("check", ALGORITHM_CHECKS)
def test_an_algorithm_does_what_it_declares(name: str, check: Callable) -> None:
    check(algorithms.find(name))


@pytest.mark.parametrize("name", envs.GAMES)
@pytest.mark.parametrize("check", GAME_CHECKS)
def test_a_game_keeps_the_contract(name: str, check: Callable) -> None:
    check(envs.make(name))
