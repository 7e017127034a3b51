"""Base of the off-policy families: replay, batches of windows, gradient steps, target nets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from typing_extensions import TypeVar

from ..errors import ShoalError
from ..learning.memory import Drawn, Replay, empty
from ..learning.optim import follow
from ..learning.reduce import AXIS, largest, mean_weights, total
from ..learning.returns import advantages, learning_weight, n_step, pool
from ..nets.inputs import RIVALS_ACTION, Context, as_input
from ..nets.layers import Rng
from ..types import Clock, Fit, Share, TeamProtocol, Window
from .base import Metrics, fraction, not_negative, positive
from .net_config import NetConfig
from .networked import Networked


@dataclass(frozen=True)
class OffPolicyConfig(NetConfig):
    """Settings every algorithm with a replay has."""

    lr: float = 1e-3
    """Learning rate."""
    adam_epsilon: float = 1e-8
    """Adam's ε: gradients much smaller than it hardly move a weight, as those of small, rare
    rewards."""
    activation: Literal["tanh", "relu"] = "relu"
    """Activation of the hidden layers."""
    n_step: int = 1
    """Rewards summed before the target's value."""
    lam: float = 0.0
    """λ of TD(λ) targets over the windows drawn, in place of n_step; 0 is off."""
    capacity: int = 500_000
    """Environment steps the replay holds, over all devices."""
    warmup: int = 10_000
    """Environment steps to play before learning begins."""
    batch: int = 32
    """Windows per gradient step, over all devices."""
    length: int = 8
    """Transitions of each such window."""
    whole_episodes: bool = False
    """Draw whole episodes: windows that begin where one opens; what follows its end counts nothing,
    and what length cuts off is not learnt from."""
    burn_in: int = 0
    """Recurrent nets: transitions at a window's start that only warm the memory up, unless an
    episode opens there."""
    updates: int = 32
    """Gradient steps each time a window of every game has been played."""
    tau: float = 0.005
    """How far target networks move towards the online ones; 1 copies them."""
    target_every: int = 1
    """Gradient steps between two moves of the target networks."""
    priority: float = 0.0
    """Exponent of prioritised replay; 0 draws uniformly."""
    importance: float = 0.4
    """Exponent of its importance weights at the start; it rises to 1 over the run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "n_step", "capacity", "batch", "length", "updates", "target_every")
        fraction(self, "lam", "tau", "priority", "importance")
        not_negative(self, "warmup", "burn_in")
        if self.n_step > self.length - self.burn_in:
            raise ShoalError(
                f"{self.n_step} steps after a burn-in of {self.burn_in} do not fit a window of"
                f" {self.length}:"
                " raise length, or lower n_step or burn_in"
            )
        if self.n_step > 1 and self.lam:
            raise ShoalError(
                "targets are of n_step rewards or of lam, not both: set n_step to 1 or lam to 0"
            )


class Learner(NamedTuple):
    params: dict[str, Any]
    target: dict[str, Any]  # target networks, by part
    opt: dict[str, Any]
    updates: Array  # [] int32 gradient steps so far
    curiosity: Any = ()  # a `Motive`, where there is one
    statistics: Any = ()  # `Statistics`, where there are some


class Batch(NamedTuple):
    """A batch of windows with everything that losses need."""

    window: Window  # [T+1 or T,B,…]
    context: Context  # instants 0…T, without their actions
    reward: Array  # [T,B,N] pooled as the config says
    discount: Array  # [T,B,N]
    # [T,B,N] weight of each transition in value losses; adds up to 1 over all devices
    weight: Array
    actor_weight: Array  # [T,B,N] weight in actor losses: also 0 where an agent is dead
    importance: Array  # [B] importance weights, at most 1 over all devices
    rivals_after: Array  # [B,M] the other teams' actions at instant T


OffPolicyConfigT = TypeVar("OffPolicyConfigT", bound=OffPolicyConfig, default=OffPolicyConfig)


class OffPolicy(Networked[OffPolicyConfigT, Learner, Replay]):
    """Base of the families; a family defines `improve`, an update from one batch."""

    stores_joined = False

    @classmethod
    def suited(cls, config: OffPolicyConfigT, share: Share) -> list[Fit]:
        c = config
        fits = []
        if c.batch % share.devices:
            batch = -(-c.batch // share.devices) * share.devices
            fits.append(Fit("batch", batch, f"{share.devices} devices"))
        if c.warmup >= share.steps:
            fits.append(Fit("warmup", share.steps // 10, f"{share.steps:,} steps"))
        games = share.games * share.devices
        least = c.length + 2
        if cls._slots(c, share) < least:
            fits.append(
                Fit("capacity", games * least, f"windows of {c.length} steps of {games:,} games")
            )
        return fits

    def check(self, share: Share) -> None:
        c = self.config
        if c.batch % share.devices:
            raise ShoalError(
                f"{c.batch} windows cannot be shared evenly by {share.devices} devices: change"
                f" batch or devices"
            )
        if c.warmup >= share.steps:
            raise ShoalError(
                f"{share.steps} steps end before learning begins: lower warmup, now {c.warmup}"
            )
        slots = self._slots(c, share)
        if slots <= c.length + 1:
            raise ShoalError(
                f"a capacity of {c.capacity} steps holds {slots} steps of each game, fewer than"
                f" a window"
                f" of {c.length} needs: raise capacity, or lower length or games"
            )

    def protocol(self, share: Share) -> TeamProtocol:
        c = self.config
        fresh = share.games * share.window * share.devices
        return {"reward": c.reward, "updates_per_step": c.updates * c.batch * c.length / fresh}

    @staticmethod
    def _slots(config: OffPolicyConfig, share: Share) -> int:
        """Instants per game: a multiple of the window, so that writing one never wraps around."""
        return share.window * -(-config.capacity // (share.games * share.devices * share.window))

    # -- learner -----------------------------------------------------------------------------------

    def nets(self, rng: Rng) -> dict[str, Any]:
        """Create the parts of the learner."""
        raise NotImplementedError

    def follows(self, params: dict[str, Any]) -> dict[str, Any]:
        """The parts that have target networks."""
        return params

    def init(self, rng: Rng) -> Learner:
        params = self.nets(rng)
        opt = {part: self.tx.init(net) for part, net in params.items()}
        target = jax.tree.map(jnp.copy, self.follows(params))
        return Learner(
            params, target, opt, jnp.int32(0), self.init_curiosity(rng), self.init_statistics()
        )

    # -- memory ------------------------------------------------------------------------------------

    @property
    def sees_rivals(self) -> bool:
        return any(RIVALS_ACTION in parts for parts in self.inputs.values())

    def memory(self, learner: Learner, share: Share) -> Replay:
        state = self.sees_state and not self.spec.joined
        slots = self._slots(self.config, share)
        ranked = self.config.priority > 0
        return empty(self.spec, share.games, slots, state, self.sees_rivals, ranked)

    def remember(self, memory: Replay, window: Window) -> Replay:
        return memory.put(window)

    # -- learning ----------------------------------------------------------------------------------

    def learn(
        self, learner: Learner, memory: Replay, key: Array, clock: Clock
    ) -> tuple[Learner, Replay, Metrics]:
        c = self.config
        ready = (clock.steps >= c.warmup) & memory.ready(
            c.length + 1 + self.sees_rivals, c.whole_episodes
        )
        learner, priority, metrics = step_if(
            ready, self._gradient_steps, (learner, memory.priority), memory, key, clock
        )
        return (
            learner,
            memory._replace(priority=priority),
            metrics | {"updates": ready * jnp.float32(c.updates)},
        )

    def _gradient_steps(
        self, learner: Learner, priority: Array, memory: Replay, key: Array, clock: Clock
    ) -> tuple[Learner, Array, Metrics]:
        """All gradient steps of one iteration."""
        keys = jax.random.split(key, self.config.updates)
        step = partial(self._step, memory, clock)
        (learner, priority), metrics = jax.lax.scan(step, (learner, priority), keys)
        return learner, priority, jax.tree.map(jnp.mean, metrics)

    def _step(
        self, memory: Replay, clock: Clock, state: tuple[Learner, Array], key: Array
    ) -> tuple[tuple[Learner, Array], Metrics]:
        """One gradient step: draw windows, improve the learner, update the windows' priorities."""
        learner, priority = state
        c = self.config
        key_draw, key = jax.random.split(key)
        memory = memory._replace(priority=priority)
        beta = c.importance + (1 - c.importance) * jnp.minimum(clock.progress, 1.0)
        count = c.batch // jax.lax.axis_size(AXIS)
        drawn = memory.draw(key_draw, count, c.length, self.sees_rivals, beta, c.whole_episodes)
        drawn = drawn._replace(window=self.read(learner, drawn.window, clock))
        if c.priority:  # otherwise all are 1 on every device
            ours = drawn.largest / largest(drawn.largest)
            drawn = drawn._replace(importance=drawn.importance * ours)
        learner, metrics, surprise = self.improve(learner, self.batch(drawn), key, clock)
        return (learner, memory.rank(drawn, surprise**c.priority).priority), metrics

    def batch(self, drawn: Drawn) -> Batch:
        """Make a batch of drawn windows: rewards, weights and inputs of nets."""
        c = self.config
        window = drawn.window._replace(view=self.with_state(drawn.window.view))
        reward, discount = pool(window.reward, window.discount, c.reward)
        opened = jnp.cumsum(window.view.first[:-1], axis=0) > 0
        warm = opened | (jnp.arange(c.length) >= (c.burn_in if self.recurrent else 0))[:, None]
        if c.whole_episodes:
            warm &= jnp.cumsum(window.view.first[:-1], axis=0) == 1
        last = self.previous_actions(window.view, window.action, as_input(drawn.before, self.spec))
        return Batch(
            window,
            Context(self.seen(window.view), last),
            reward,
            discount,
            mean_weights(learning_weight(window, c.reward) * warm[..., None]),
            mean_weights(window.weight * warm[..., None]),
            drawn.importance,
            drawn.rivals_after,
        )

    def targets(self, batch: Batch, values: Array) -> Array:
        """`[T,B,…]` regression targets from values `[T+1,B,N or 1]`."""
        c = self.config
        reward, discount = self.settled(batch.window.view, batch.reward, batch.discount, values)
        parts = reward, discount, values, batch.window.valid, c.gamma
        if c.lam:
            return advantages(*parts, c.lam) + values[:-1]
        return n_step(*parts, c.n_step)

    def improve(
        self, learner: Learner, batch: Batch, key: Array, clock: Clock
    ) -> tuple[Learner, Metrics, Array]:
        """Take a gradient step; also return metrics and the error `[B]` about each window."""
        raise NotImplementedError

    def followed(self, learner: Learner) -> Learner:
        """Count the gradient step, and move the target networks if due."""
        c = self.config
        updates = learner.updates + 1
        tau = jnp.where(updates % c.target_every == 0, c.tau, 0.0)
        target = follow(learner.target, self.follows(learner.params), tau)
        return learner._replace(target=target, updates=updates)


def step_if(turn: Array, step: Callable[..., tuple], kept: tuple, *rest: Any) -> tuple:
    """`step(*kept, *rest)` if it is its turn, which returns `(*kept, metrics)`; else `kept` as it
    is, and zeros as metrics."""
    step = jax.jit(step, inline=True)  # traced once for both branches

    def skip(*args: Any) -> tuple:
        *_, metrics = jax.eval_shape(step, *args)
        return *args[: len(kept)], jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), metrics)

    return jax.lax.cond(turn, step, skip, *kept, *rest)


def gradients(
    losses: Any, params: dict[str, Any], *rest: Any
) -> tuple[dict[str, Any], Metrics, Array]:
    """Gradients and metrics, summed over devices.

    `losses(params, *rest)` returns this device's share of `(loss, (metrics, surprise))`.
    """
    grads, (metrics, surprise) = jax.grad(losses, has_aux=True)(params, *rest)
    grads, metrics = total((grads, metrics))
    return grads, metrics, surprise


def surprise(error: Array, weight: Array) -> Array:
    """`[B]` mean absolute error of each window, from errors `[T,B,N or 1]`."""
    return (jnp.abs(error) * (weight > 0)).sum((0, 2)) / jnp.maximum((weight > 0).sum((0, 2)), 1)
