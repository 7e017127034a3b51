"""Mean field actor-critic (MFAC; Yang et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp
from jax import Array

from ..learning.memory import Rollout
from ..nets.actor_critic import Critic
from ..nets.heads import dueling
from ..nets.inputs import ID, MEAN_ACTION, OBS, Context
from ..nets.layers import Dense, Rng
from ..types import Clock, Spec
from .coma import COMA, COMAConfig, expectation
from .networked import Hidden
from .on_policy import Learner


@dataclass(frozen=True)
class MFACConfig(COMAConfig):
    """MFAC's own settings beside COMA's."""

    neighbours = True

    lam: float = 0.0
    """λ of the critic's TD(λ) targets; 0 is the paper's: the next value alone."""
    reward: Literal["own", "mean", "sum"] = "own"
    """What each agent learns from: its own reward, or the team's pooled by mean or sum."""
    epsilon: float = 0.0
    """Probability spread evenly over the legal actions, at the start."""
    epsilon_end: float = 0.0
    """That probability, at the end of its schedule."""


class MFAC(COMA):
    """COMA whose critic sees, of the others, only what they just did on average, and no state.

    An agent's neighbours are all other members of its team who live, as in the authors' battle
    game; with `near`, only those who are close.
    """

    name = "mfac"
    Config = MFACConfig
    critic_sees = (OBS, MEAN_ACTION, ID)

    def __init__(self, config: MFACConfig, spec: Spec):
        super().__init__(config, spec)
        self.inputs["critic"] = tuple(
            self.mean_action if part is MEAN_ACTION else part for part in self.inputs["critic"]
        )

    def init_critic(self, rng: Rng) -> Any:
        """A dueling critic on one torso; recurrent like the actor, as it sees no state."""
        outs = self.spec.action.size + 1
        return Critic(
            self.torso(rng, "critic"), Dense(rng, self.owner, self.config.hidden, outs, gain=0.01)
        )

    def critic(
        self, critic: Any, context: Context, carry: Hidden, features: Array | None = None
    ) -> tuple[Array, Hidden]:
        out, carry = super().critic(critic, context, carry, features)
        return dueling(out, context.view.legal), carry

    def regress(
        self,
        learner: Learner,
        context: Context,
        end: Context,
        memory: Rollout,
        key: Array,
        clock: Clock,
    ) -> tuple[Array, Hidden]:
        """The mean field value: expected target Q under the policy, at every instant."""
        actor = learner.params["actor"]
        dist, _, hidden = self.policy(actor, context, memory.window.carry.hidden, clock)
        last_dist, _, _ = self.policy(actor, end, hidden, clock)
        before, carry = self.critic(learner.target, context, memory.carry)
        last, _ = self.critic(learner.target, end, carry)
        values = jnp.concatenate([expectation(dist, before), expectation(last_dist, last)])
        return (learner.scale.up(values) if self.config.normalise_value else values), carry
