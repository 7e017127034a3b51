"""The tests that other packages hold their algorithms and games to, on all of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest
from helpers import LEARNERS, TEAM

from shoal import algorithms, envs
from shoal.algorithms.ppo import PPO
from shoal.envs.native.probes import Identity
from shoal.testing import (
    ALGORITHM_CHECKS,
    GAME_CHECKS,
    it_resets_on_the_next_step,
    it_shares_and_remembers_as_it_declares,
)


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("check", ALGORITHM_CHECKS)
def test_an_algorithm_does_what_it_declares(name: str, check: Callable) -> None:
    check(algorithms.find(name))


@pytest.mark.parametrize("name", envs.GAMES)
@pytest.mark.parametrize("check", GAME_CHECKS)
def test_a_game_keeps_the_contract(name: str, check: Callable) -> None:
    check(envs.make(name))


@pytest.mark.slow
def test_sharing_and_recurrence_that_are_not_declared_must_be_refused() -> None:
    declared = {"name": "own", "sharing": ("own",), "recurrence": False}
    own = type("Own", (PPO,), declared)
    it_shares_and_remembers_as_it_declares(own, sharing="own")
    lax = type("Lax", (own,), {"name": "lax", "_check_declared": lambda self, config: None})
    with pytest.raises(AssertionError, match="takes shared parameters and does not declare"):
        it_shares_and_remembers_as_it_declares(lax, sharing="own")
    lax.sharing = ("shared", "own", "partition")
    with pytest.raises(AssertionError, match="takes a recurrent torso and does not declare"):
        it_shares_and_remembers_as_it_declares(lax, sharing="own")


class Absent(Identity):
    """A game whose agents are dead from the beginning."""

    def alive(self, world: Any) -> Any:
        return {TEAM: jnp.zeros_like(world.cue, bool)}


def test_an_episode_must_open_with_all_agents_alive() -> None:
    with pytest.raises(AssertionError, match="dead at an opening"):
        it_resets_on_the_next_step(Absent())
