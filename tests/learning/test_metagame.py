"""Equilibria of games whose solution is known, and gains of best responses."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from shoal.learning.metagame import best_response_gains, symmetric_nash

EVERYBODY = jnp.ones(3, bool)


@pytest.mark.parametrize("stakes", [(1.0, 1.0, 1.0), (1.0, 2.0, 3.0)])
def test_rock_paper_scissors_has_its_closed_form(stakes: tuple[float, float, float]) -> None:
    """Each plays as often as the other two stake on their pair."""
    a, b, c = stakes  # rock-paper, rock-scissors, paper-scissors
    payoff = jnp.array([[0, -a, b], [a, 0, -c], [-b, c, 0]])
    expected = np.array([c, b, a]) / sum(stakes)
    np.testing.assert_allclose(symmetric_nash(payoff, EVERYBODY), expected, atol=0.02)


def test_a_dominated_or_absent_strategy_is_not_played() -> None:
    payoff = jnp.array([[0.0, 1, 1], [-1, 0, 1], [-1, -1, 0]])
    np.testing.assert_allclose(symmetric_nash(payoff, EVERYBODY), [1, 0, 0], atol=0.02)
    without = jnp.array([False, True, True])
    np.testing.assert_allclose(symmetric_nash(payoff, without), [0, 1, 0], atol=0.02)


def test_gains_of_best_responses() -> None:
    pennies = np.array([[[1, -1], [-1, 1]], [[-1, 1], [1, -1]]])
    fair = np.array([0.5, 0.5])
    always = np.array([1.0, 0.0])
    np.testing.assert_allclose(best_response_gains(pennies, [fair, fair]), [0, 0])
    np.testing.assert_allclose(best_response_gains(pennies, [always, fair]), [0, 1])
    np.testing.assert_allclose(best_response_gains(pennies, [always, always]), [0, 2])


def test_gains_among_three_agents() -> None:
    """Only the third agent decides, and each has its own size of table."""
    payoffs = np.broadcast_to(np.array([0.0, 3.0, 5.0]), (3, 2, 4, 3))
    strategies = [np.full(2, 0.5), np.full(4, 0.25), np.array([0.0, 1.0, 0.0])]
    np.testing.assert_allclose(best_response_gains(payoffs, strategies), [0, 0, 2])
