"""Search for action sequences on a compiled game.

The native games used here draw random numbers for their openings alone. From a given opening, a
sequence of actions therefore has one return, and searching sequences is exact: what is planned is
what is played. Both searches keep the best that they have seen, so more of them is never worse.

Arrays keep the games axis `B` last, as in the games.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from shoal.envs.game import Game, GameState

Actions = dict[str, Array]  # by team, [N,B] or [N,A,B]
Act = Callable[[GameState, Any], Actions]  # what all teams do, given the step's part of a plan
Play = Callable[[Any], Array]  # [B] returns of a plan
Propose = Callable[[Array, Any], Any]  # another plan, near a given one
Improve = Callable[[Array, Any], tuple[Any, Array]]  # a better plan and its returns


def rollout(
    game: Game, opening: GameState, act: Act, plan: Any, team: str
) -> tuple[Array, Actions]:
    """Play one episode: returns `[B]`, the mean of the team's agents, and the actions `[T,…]`.

    `plan` has a leaf or leaves of `limit` rows, one for each step.
    """

    def step(carry: tuple[GameState, Array], row: Any) -> tuple[tuple[GameState, Array], Any]:
        state, total = carry
        actions = act(state, row)
        outward = {name: jnp.moveaxis(action, -1, 0) for name, action in actions.items()}
        after, views = game.step(jax.random.key(0), state, outward)
        # an ended game reopens: what follows is another episode
        over = state.over | after.over
        earned = jnp.where(state.over, 0.0, views[team].reward.mean(1))
        return (after._replace(over=over), total + earned), actions

    start = (opening, jnp.zeros(opening.over.shape))
    (_, total), actions = jax.lax.scan(step, start, plan, game.limit)
    return total, actions


def repeat(tree: Any, times: int) -> Any:
    """Every game `times` times: `[…,B]` becomes `[…,B·times]`, copies side by side."""
    return jax.tree.map(lambda leaf: jnp.repeat(leaf, times, axis=-1), tree)


def search(
    improve: Improve, plan: Any, chains: int, sweeps: int
) -> tuple[Any, list[np.ndarray], list[float]]:
    """Improve `chains` plans for each game, `sweeps` times: `[…,B·chains]`, side by side.

    After each sweep the better half of a game's plans replaces the worse. Returns the best plans,
    and after each sweep their returns `[B]` and the seconds of processor time so far.
    """
    records: list[np.ndarray] = []
    seconds: list[float] = []
    begun = time.process_time()
    for sweep in range(sweeps):
        plan, returns = jax.block_until_ready(improve(jax.random.key(sweep), plan))
        seconds.append(time.process_time() - begun)
        got = np.asarray(returns).reshape(-1, chains)
        records.append(got.max(1))
        order = np.argsort(-got, axis=1, kind="stable")[:, np.arange(chains) // 2]
        kept = (order + chains * np.arange(len(got))[:, None]).reshape(-1)
        plan = jax.tree.map(lambda leaf, kept=kept: np.asarray(leaf)[..., kept], plan)
    return jax.tree.map(lambda leaf: leaf[..., ::chains], plan), records, seconds


@partial(jax.jit, static_argnums=(0, 1, 4, 5, 6))
def anneal(
    play: Play, propose: Propose, key: Array, plan: Any, rounds: int, hot: float, cold: float
) -> tuple[Any, Array]:
    """Simulated annealing (Kirkpatrick et al. 1983): the best plan seen of each game, its return.

    A worse plan is accepted with probability exp(loss / temperature); the temperature falls
    geometrically from `hot` to `cold`.
    """

    def turn(carry: tuple, turn: Array) -> tuple[tuple, None]:
        plan, value, best, record = carry
        key_plan, key_luck = jax.random.split(jax.random.fold_in(key, turn))
        other = propose(key_plan, plan)
        worth = play(other)
        heat = hot * (cold / hot) ** (turn / rounds)
        luck = jnp.log(jax.random.uniform(key_luck, worth.shape, minval=1e-12))
        accept = worth - value > heat * luck
        plan = choose(accept, other, plan)
        value = jnp.where(accept, worth, value)
        best, record = choose(worth > record, (other, worth), (best, record))
        return (plan, value, best, record), None

    value = play(plan)
    start = (plan, value, plan, value)
    (_, _, best, record), _ = jax.lax.scan(turn, start, jnp.arange(rounds))
    return best, record


@partial(jax.jit, static_argnums=(0, 1, 3, 4))
def ascend(play: Play, eased: Play, plan: Array, rounds: int, rate: float) -> tuple[Array, Array]:
    """Gradient ascent (Adam) on `eased` within ±1: the best plan seen of each game, its return.

    Returns are those of `play`; `eased` need only have useful gradients.
    """
    adam = optax.adam(optax.cosine_decay_schedule(rate, rounds))
    slope = jax.grad(lambda plan: eased(plan).sum())

    def turn(carry: tuple, _: None) -> tuple[tuple, None]:
        plan, memory, best, record = carry
        change, memory = adam.update(-slope(plan), memory)
        plan = jnp.clip(plan + change, -1.0, 1.0)
        worth = play(plan)
        best, record = choose(worth > record, (plan, worth), (best, record))
        return (plan, memory, best, record), None

    start = (plan, adam.init(plan), plan, play(plan))
    (_, _, best, record), _ = jax.lax.scan(turn, start, None, rounds)
    return best, record


def choose(where: Array, new: Any, old: Any) -> Any:
    """Leaves of `new` in the games `where [B]`, of `old` in the others."""
    return jax.tree.map(lambda a, b: jnp.where(where, a, b), new, old)


def change_block(actions: int, key: Array, plan: Array) -> Array:
    """Another discrete plan `[T,N,B]`: one agent's actions of a few steps change.

    They are replaced by one action, or move by one step, earlier or later.
    """
    steps, agents, games = plan.shape
    draw = jax.random.uniform(key, (5, games))
    who = jnp.arange(agents)[:, None] == (draw[0] * agents).astype(jnp.int32)
    start = (draw[1] * steps).astype(jnp.int32)
    length = 1 + (6 * draw[2] ** 2).astype(jnp.int32)
    time = jnp.arange(steps)[:, None]
    block = ((time >= start) & (time < start + length))[:, None] & who
    action = (draw[3] * actions).astype(plan.dtype)
    later = jnp.roll(plan, 1, axis=0)
    earlier = jnp.roll(plan, -1, axis=0)
    kind = draw[4]
    moved = jnp.where(kind < 0.75, later, earlier)
    return jnp.where(block, jnp.where(kind < 0.5, action, moved), plan)


def nudge_block(size: float, key: Array, plan: Array) -> Array:
    """Another real plan `[T,N,A,B]`: one agent's actions of a few steps shift by one amount."""
    steps, agents, width, games = plan.shape
    key_block, key_amount = jax.random.split(key)
    draw = jax.random.uniform(key_block, (3, games))
    who = jnp.arange(agents)[:, None] == (draw[0] * agents).astype(jnp.int32)
    start = (draw[1] * steps).astype(jnp.int32)
    length = 1 + (6 * draw[2] ** 2).astype(jnp.int32)
    time = jnp.arange(steps)[:, None]
    block = ((time >= start) & (time < start + length))[:, None] & who
    amount = size * jax.random.normal(key_amount, (width, games))
    return jnp.where(block[:, :, None], jnp.clip(plan + amount, -1.0, 1.0), plan)
