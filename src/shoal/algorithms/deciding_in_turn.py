"""PPO of agents that decide one after another, each knowing what those before it chose.

Acting takes one net that reads what all agents observe: execution is central. Learning evaluates
the actions taken all at once (teacher forcing). A member says how agents read from each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from jax import Array

from ..errors import ShoalError
from ..nets.actor_critic import Actor
from ..nets.heads import policy_head
from ..nets.in_turn import InTurn, SequenceLayer, TurnCarry, before, present
from ..nets.inputs import Context, as_input, gather
from ..nets.layers import Rng
from ..types import Clock
from .base import at_most, not_negative, positive
from .ppo import PPO, PPOConfig


@dataclass(frozen=True)
class TurnConfig(PPOConfig):
    """Settings of agents that decide one after another, beside PPO's."""

    reward: Literal["own", "mean", "sum"] = "mean"
    """What each agent learns from: its own reward, or the team's pooled by mean or sum."""
    layers: int = 1
    """Hidden layers that embed an observation, before the blocks."""
    sharing: str = "shared"
    """Parameters: always shared, by agents that read from each other."""
    share_torso: bool = True
    """Let the critic read the encoder; otherwise it has a torso of its own, which sees one agent's
    observation."""
    blocks: int = 1
    """Blocks of the encoder, and as many of the decoder; 0 leaves PPO with one torso."""
    heads: int = 2
    """Heads of each layer through which agents read from each other."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "heads")
        not_negative(self, "blocks")
        at_most(self, 100, "blocks")
        if self.hidden % self.heads:
            raise ShoalError(
                f"heads must divide hidden, {self.hidden}, without rest: {self.heads!r} do not"
            )


class TurnPPO(PPO):
    """PPO whose policy is a sequence over the agents; its critic reads the encoder."""

    config: TurnConfig
    central_execution = True
    sharing: ClassVar[tuple[str, ...]] = ("shared",)

    def layer(self, rng: Rng, causal: bool) -> SequenceLayer:
        """How agents read from each other; `causal`: only from those before them."""
        raise NotImplementedError

    def init_actor(self, rng: Rng) -> Actor:
        c = self.config
        layer = partial(self.layer, rng)
        size = self.spec.action.size
        torso = self.torso(rng, "actor")
        net = InTurn(rng, torso, layer, c.hidden, c.blocks, size, c.activation)
        return Actor(net, policy_head(rng, self.owner, c.hidden, self.spec, c.squash))

    def policy(
        self, actor: Actor, context: Context, carry: TurnCarry, clock: Clock
    ) -> tuple[Any, Array, TurnCarry]:
        """The policy given the actions taken, at every instant; features are the encoder's."""
        view = context.view
        net: InTurn = actor.torso
        parts = gather(self.inputs["actor"], context, self.spec)
        encoded, carry = net.encode(parts, carry, view.first, view.alive)
        nothing = jnp.zeros((*view.alive.shape, self.spec.action.size))
        action = nothing if context.action is None else context.action
        decoded, carry = net.decode(encoded, action, carry, view.first, view.alive)
        return actor.head(decoded, view.legal), encoded, carry

    def decide(
        self,
        actor: Actor,
        context: Context,
        carry: TurnCarry,
        clock: Clock,
        key: Array,
        greedy: bool,
    ) -> tuple[Any, Array, TurnCarry]:
        """The policy of one instant, agent by agent."""
        view = context.view
        net: InTurn = actor.torso
        parts = gather(self.inputs["actor"], context, self.spec)
        encoded, carry = net.encode(parts, carry, view.first, view.alive)
        noise = actor.head.noise(key, view.legal)
        known = before(view.alive, True)
        encoded = present(encoded, view.alive)
        rows = by_agent((encoded, view.legal, noise, known, context.acts))
        agents = jnp.arange(self.spec.n)
        nothing = jnp.zeros((view.first.shape[1], 1, self.spec.action.size))
        start = (nothing, net.open(carry, view.first[0], self.spec.n))
        (_, states), drawn = jax.lax.scan(partial(self._turn, actor, greedy), start, (agents, rows))
        decoded, raw = by_agent(drawn)
        return actor.head(decoded, view.legal), raw, net.close(carry, states)

    def _turn(self, actor: Actor, greedy: bool, state: Any, row: Any) -> tuple[Any, Any]:
        """One agent decides; the next one knows its action."""
        action, states = state
        agent, (encoded, legal, noise, known, acts) = row
        decoded, states = actor.torso.turn(encoded, action, states, agent, known)
        dist = actor.head(decoded, legal, agent)
        raw = dist.mode() if greedy else dist.at(noise)
        action = as_input(dist.action(raw), self.spec, agent) * acts[..., None]
        return (action, states), (decoded, raw)


def by_agent(rows: Any) -> Any:
    """`[1,B,N,…]` -> `[N,B,1,…]` in every leaf, and back."""
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 2), rows)
