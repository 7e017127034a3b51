"""An on-policy window as rows, and minibatches of those rows."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from ..nets.inputs import Context
from .reduce import share_out, total


class Record(NamedTuple):
    """What an on-policy policy records with each decision."""

    raw: Array  # [B,N] or [B,N,A] the raw sample that became the action
    log_prob: Array  # [B,N]


class Batch(NamedTuple):
    """Rows of actors and critics, `[T,B,…]`; without recurrence, time is folded into `B`."""

    context: Context
    record: Record
    # [T,B,N] weight in the actor's loss; adds up to 1 over all devices in each gradient step
    weight: Array
    # [T,B,N] weight in the critic's loss: with a pooled reward, the dead count too
    critic_weight: Array
    target: Array  # [T,B,N] the critic's regression target
    value: Array  # [T,B,N] the critic's output before any update, in the critic's unit at that time
    advantage: Array  # [T,B,N]
    # [1,B,…] every leaf: the torsos' carries at the first step
    actor_carry: Any
    critic_carry: Any

    def weights(self) -> dict[str, Array]:
        """The fields that are weights."""
        return {"weight": self.weight, "critic_weight": self.critic_weight}


class UtilityBatch(NamedTuple):
    """The same for learners of utilities."""

    context: Context
    action: Array  # [T,B,N]
    weight: Array  # [T,B,N] weight of each transition; adds up to 1 in each gradient step
    target: Array  # [T,B,N or 1] of the utilities, or of their mix
    carry: Any  # [1,B,…] every leaf: the torso's carry at the first step

    def weights(self) -> dict[str, Array]:
        """The fields that are weights."""
        return {"weight": self.weight}


Rows = TypeVar("Rows", Batch, UtilityBatch)


def fold_time(batch: Rows, *names: str) -> Rows:
    """Fold time into games, `[T,B,…]` -> `[1,T·B,…]`: every step becomes a row of its own.

    Only for nets without recurrence: the carries, the fields called `names`, are empty.
    """
    count = batch.weight.shape[0] * batch.weight.shape[1]
    carries = {name: getattr(batch, name) for name in names}
    folded = jax.tree.map(
        lambda x: x.reshape(1, count, *x.shape[2:]), batch._replace(**dict.fromkeys(carries))
    )
    empty = jax.tree.map(lambda x: jnp.zeros((1, count, *x.shape[2:]), x.dtype), carries)
    return folded._replace(**empty)


def in_chunks(batch: Rows, length: int) -> Rows:
    """Cut time into chunks, `[T,B,…]` -> `[L,T/L·B,…]`: every chunk becomes a row of its own.

    The batch must have no carries yet: those of chunks are others.
    """
    return jax.tree.map(lambda x: _rows(jnp.swapaxes(cut(x, length), 0, 1)), batch)


def cut(x: Array, length: int) -> Array:
    """`[T,…]` -> `[T/L,L,…]`."""
    return x.reshape(x.shape[0] // length, length, *x.shape[1:])


def _rows(x: Array) -> Array:
    """`[L,C,B,…]` -> `[L,C·B,…]`."""
    return x.reshape(x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:])


def chunk_rows(carries: Any) -> Any:
    """Carries of chunks as rows, `[C,B,…]` -> `[1,C·B,…]` in every leaf."""
    return jax.tree.map(lambda x: _rows(x[None]), carries)


def weight_sums(batch: Batch | UtilityBatch, rows: Array) -> dict[str, Array]:
    """Sums `[M]` of each weight in minibatches of rows `[M,R]`, over all devices.

    In one exchange for all of them: between processes each one costs."""
    return total({name: w[:, rows].sum((0, 2, 3)) for name, w in batch.weights().items()})


def averaging(batch: Rows, sums: dict[str, Array]) -> Rows:
    """The batch with weights that add up to 1 over all devices."""
    return batch._replace(**{name: share_out(w, sums[name]) for name, w in batch.weights().items()})


def shuffled_rows(key: Array, rows: int, epochs: int, count: int) -> Array:
    """Row numbers `[epochs·count, rows/count]`: each epoch is a shuffle of all rows.

    Each epoch sorts plain integers once: random high bits over a row number.
    `jax.random.permutation` would sort pairs several times. Rows that draw the same bits keep their
    order, which matters only at a minibatch's edge.
    """
    low = jnp.uint32((1 << max(rows - 1, 1).bit_length()) - 1)
    tickets = jax.random.bits(key, (epochs, rows)) & ~low | jnp.arange(rows, dtype=jnp.uint32)
    order = jnp.sort(tickets, axis=-1) & low
    return order.astype(jnp.int32).reshape(epochs * count, rows // count)
