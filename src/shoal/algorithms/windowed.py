"""Base of all that learns from the window just played: passes over it in shuffled minibatches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import TypeVar

from ..errors import ShoalError
from ..learning.memory import Rollout
from ..learning.minibatches import averaging, chunk_rows, cut, shuffled_rows, weight_sums
from ..learning.reduce import total
from ..learning.trees import at
from ..nets.inputs import Context
from ..types import Clock, Fit, Share, TeamProtocol, Window
from .base import LearnerT, Metrics, divisor, fraction, not_negative, positive
from .net_config import NetConfig
from .networked import Networked


@dataclass(frozen=True)
class WindowedConfig(NetConfig):
    """Settings of everything that learns from the window just played."""

    lam: float = 0.95
    """λ: 0 trusts the critic's next value alone, 1 the rewards of the whole window."""
    epochs: int = 1
    """Passes over each window."""
    minibatches: int = 1
    """Gradient steps per pass; games are split when recurrent, (game, step) rows otherwise."""
    chunk: int = 0
    """Recurrent nets: steps of the chunks of a window that minibatches are made of, each begun with
    its own carry; 0 takes whole windows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "epochs", "minibatches")
        not_negative(self, "chunk")
        fraction(self, "lam")


WindowedConfigT = TypeVar("WindowedConfigT", bound=WindowedConfig, default=WindowedConfig)


class Windowed(Networked[WindowedConfigT, LearnerT, Rollout]):
    """Keeps one window, and takes gradient steps on minibatches of its rows."""

    epochs: ClassVar[tuple[str, ...]] = ("epochs",)  # options that count passes over a window
    minibatches: ClassVar[tuple[str, ...]] = ("minibatches",)  # options that split a pass

    @classmethod
    def _rows(cls, config: WindowedConfig, share: Share) -> tuple[int, str]:
        """The number of rows that minibatches split, and the name of a row."""
        if cls.remembers(config) and config.chunk:
            return share.games * (share.window // config.chunk), "chunks (games x window / chunk)"
        if cls.remembers(config):
            return share.games, "games"
        return share.games * share.window, "rows (games x window)"

    @classmethod
    def suited(cls, config: WindowedConfigT, share: Share) -> list[Fit]:
        rows, what = cls._rows(config, share)
        counts = {option: getattr(config, option) for option in cls.minibatches}
        to = f"{rows:,} {what} on each device"
        return [
            Fit(name, divisor(rows, count), to)
            for name, count in counts.items()
            if count > 0 and rows % count
        ]

    def check(self, share: Share) -> None:
        self._check_chunk(share)
        rows, what = self._rows(self.config, share)
        for option in self.minibatches:
            count = getattr(self.config, option)
            if count < 1 or rows % count:
                raise ShoalError(
                    f"{rows} {what} on each device cannot be split into {count} equal minibatches:"
                    f" change {option}, games or window"
                )

    def _check_chunk(self, share: Share) -> None:
        """Refuse chunks that a window is not made of."""
        chunk = self.config.chunk
        if chunk and not self.recurrent:
            raise ShoalError(
                f"chunk is for recurrent nets, whose gradients pass through time, and those of"
                f" {self.name} here are not: set chunk to 0 or torso to gru"
            )
        if chunk and share.window % chunk:
            raise ShoalError(
                f"a window of {share.window} steps cannot be cut into chunks of {chunk}: change"
                f" chunk or window"
            )

    def protocol(self, share: Share) -> TeamProtocol:
        return {
            "reward": self.config.reward,
            "updates_per_step": sum(getattr(self.config, name) for name in self.epochs),
        }

    def remember(self, memory: Rollout, window: Window) -> Rollout:
        return memory._replace(window=window)

    def instants(self, window: Window) -> Context:
        """The context of all instants 0…T, without their actions."""
        last = self.previous_actions(window.view, window.action, window.carry.last[None])
        return Context(self.seen(window.view), last)

    def chunk_carries(self, unroll: Callable, context: Context, carry: Any) -> Any:
        """Carries at the first step of each chunk, as rows `[1,C·B,…]`.

        `unroll(context, carry)` returns the carry after a chunk. Before any update these are the
        carries that the window was played with.
        """
        chunks = jax.tree.map(lambda x: cut(x, self.config.chunk), context)
        last, starts = jax.lax.scan(
            lambda carry, chunk: (unroll(chunk, carry), carry), carry, at(chunks, np.s_[:-1])
        )
        return chunk_rows(
            jax.tree.map(lambda x, end: jnp.concatenate([x, end[None]]), starts, last)
        )

    def passes(
        self,
        losses: Callable,
        parts: tuple[str, ...],
        learner: LearnerT,
        batch: Any,
        key: Array,
        clock: Clock,
        epochs: int,
        minibatches: int,
    ) -> tuple[LearnerT, Metrics]:
        """Gradient steps of some parts over shuffled minibatches; metrics are their means."""
        rows = shuffled_rows(key, batch.weight.shape[1], epochs, minibatches)
        learner, metrics = jax.lax.scan(
            partial(self._update, losses, parts, batch, clock),
            learner,
            (rows, weight_sums(batch, rows)),
        )
        return learner, jax.tree.map(jnp.mean, metrics)

    def _update(
        self,
        losses: Callable,
        parts: tuple[str, ...],
        batch: Any,
        clock: Clock,
        learner: Any,
        minibatch: tuple[Array, dict[str, Array]],
    ) -> tuple[Any, Metrics]:
        """One gradient step on one minibatch: its rows, and the sums of their weights."""
        rows, sums = minibatch
        if len(rows) < batch.weight.shape[1]:
            with jax.named_scope("draw"):
                batch = jax.tree.map(lambda x: x.at[:, rows].get(mode="promise_in_bounds"), batch)
        grads, metrics = total(
            jax.grad(losses, has_aux=True)(learner.params, learner, averaging(batch, sums), clock)
        )
        learner, norms = self.descended(learner, parts, grads, clock)
        return self.updated(learner), metrics | norms

    def updated(self, learner: Any) -> Any:
        """Hook after each gradient step."""
        return learner
