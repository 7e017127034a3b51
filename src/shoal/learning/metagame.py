"""Games of whole policies: equilibria of tables of payoffs, and what best responses gain."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

ROUNDS = 2000  # leave an error of about a hundredth


def symmetric_nash(payoff: Array, present: Array) -> Array:
    """An equilibrium `[K]` of a symmetric zero-sum game `payoff [K,K]`, antisymmetric, among the
    strategies that are `present`.

    Regret matching plus, with linear averages (Tammelin 2014): the average strategy.
    """
    payoff = jnp.where(present[:, None] & present, payoff, 0.0)
    uniform = present / jnp.maximum(present.sum(), 1)

    def play(state: tuple[Array, Array], t: Array) -> tuple[tuple[Array, Array], None]:
        regret, average = state
        share = regret.sum()
        strategy = jnp.where(share > 0, regret / jnp.maximum(share, 1e-12), uniform)
        gain = payoff @ strategy
        regret = jnp.maximum(regret + (gain - strategy @ gain) * present, 0.0)
        return (regret, average + (t + 1) * strategy), None

    zeros = jnp.zeros(len(present))
    (_, average), _ = jax.lax.scan(play, (zeros, zeros), jnp.arange(ROUNDS, dtype=jnp.float32))
    return average / average.sum()


def best_response_gains(payoffs: np.ndarray, strategies: list[np.ndarray]) -> np.ndarray:
    """What each of N agents would gain by its best response alone: `[N]`, all 0 in an equilibrium.

    `payoffs [N,A,A,…]` has an axis of actions for each agent, `strategies` their mixed ones. The
    sum over agents is known as NashConv; in zero-sum games of two, half of it is the
    exploitability.
    """
    gains = []
    for agent in range(len(strategies)):
        table = np.moveaxis(payoffs[agent], agent, -1)
        for other in (one for place, one in enumerate(strategies) if place != agent):
            table = np.tensordot(other, table, axes=(0, 0))
        gains.append(table.max() - table @ strategies[agent])
    return np.array(gains)
