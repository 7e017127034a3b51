"""Factored multi-agent centralised policy gradients (FACMAC; Peng et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jax import Array

from ..nets.inputs import STATE, Context
from ..nets.layers import Rng
from ..nets.mixers import Mixed, Monotone, UnrestrictedMixer
from ..types import Spec
from .base import positive
from .ddpg import DDPG, DDPGConfig


@dataclass(frozen=True)
class FACMACConfig(DDPGConfig):
    """DDPG's settings and the mixer's; the reward is the team's."""

    reward: Literal["mean", "sum"] = "mean"
    """The team's reward: the mean or the sum of its agents'."""
    mix: Literal["monotone", "free", "sum"] = "monotone"
    """How the agents' values make the team's: by a net the state feeds, that rises with each
    (monotone) or is unrestricted (free), or as their sum."""
    embedding: int = 32
    """Units of the monotone net."""
    hyper: int = 64
    """Hidden units of the nets that make its weights from the state, or of the free one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "embedding", "hyper")


class FACMAC(DDPG):
    """DDPG whose agents' critics are mixed into one value of the team.

    All actors climb it at once, through all agents' present actions (eq. 5-6).
    """

    name = "facmac"
    Config = FACMACConfig
    config: FACMACConfig

    def __init__(self, config: FACMACConfig, spec: Spec):
        super().__init__(config, spec)
        self.team_critic = True
        if config.mix != "sum":
            self.inputs["mixer"] = (STATE,)

    @property
    def states(self) -> tuple[str, ...]:
        return ("game",) if self.config.mix == "sum" else ("game", "joined")

    def critic(self, rng: Rng) -> Mixed:
        c = self.config
        local = super().critic(rng)
        mixer = None
        if c.mix == "monotone":
            mixer = Monotone(rng, self.spec.n, self.spec.state, c.embedding, c.hyper)
        elif c.mix == "free":
            mixer = UnrestrictedMixer(rng, self.spec.n, self.spec.state, c.hyper)
        return Mixed(local, mixer)

    def q(self, critics: tuple[Mixed, ...], context: Context) -> list[Array]:
        """The team's value `[T,B,1,1]`; absent agents contribute 0."""
        values = super().q(tuple(critic.local for critic in critics), context)
        view = context.view
        return [
            critic.team(value[..., 0] * view.alive, view.state)[..., None]
            for critic, value in zip(critics, values, strict=True)
        ]
