"""The window of an on-policy learner as rows, and the minibatches that its passes are made of."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ..nets.inputs import Context


class Record(NamedTuple):
    """What is kept of a decision."""

    raw: Array  # [B,N] or [B,N,A] the sample that the action was made of
    log_prob: Array  # [B,N]


class Batch(NamedTuple):
    """Rows to learn from, `[T,B,…]`; when nothing is recurrent time is folded into B."""

    context: Context
    record: Record
    # [T,B,N] the actor's; adds up to 1 over all devices once it comes to a gradient step
    weight: Array
    # [T,B,N] likewise the critic's: with a pooled reward, a team earns on when an agent is dead
    critic_weight: Array
    target: Array  # [T,B,N] for the critic
    value: Array  # [T,B,N] the critic's output before any update, in its own unit then
    advantage: Array  # [T,B,N]
    # [1,B,…] every leaf of what their torsos carry into the first row
    actor_carry: Any
    critic_carry: Any


def fold_time(batch: Batch) -> Batch:
    """`[T,B,…]` -> `[1,T·B,…]`: where nothing is recurrent every step is a row of its own, and
    carries are empty."""
    count = batch.weight.shape[0] * batch.weight.shape[1]
    carries = {"actor_carry": batch.actor_carry, "critic_carry": batch.critic_carry}
    folded = jax.tree.map(
        lambda x: x.reshape(1, count, *x.shape[2:]), batch._replace(**dict.fromkeys(carries))
    )
    empty = jax.tree.map(lambda x: jnp.zeros((1, count, *x.shape[2:]), x.dtype), carries)
    return folded._replace(**empty)


def shuffled_rows(key: Array, rows: int, epochs: int, count: int) -> Array:
    """Row numbers `[epochs·count, rows/count]`: each epoch is a shuffle of all rows.

    One sort of plain integers per epoch, each a row number below random bits;
    `jax.random.permutation` sorts pairs, several times. Rows that draw the same bits keep their
    order, which matters only at a minibatch's edge.
    """
    low = jnp.uint32((1 << max(rows - 1, 1).bit_length()) - 1)
    tickets = jax.random.bits(key, (epochs, rows)) & ~low | jnp.arange(rows, dtype=jnp.uint32)
    order = jnp.sort(tickets, axis=-1) & low
    return order.astype(jnp.int32).reshape(epochs * count, rows // count)
