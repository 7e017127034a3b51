"""Value-decomposition multi-agent actor-critics (VDAC; Su et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jax import Array

from ..errors import ShoalError
from ..nets.inputs import STATE, Context
from ..nets.layers import Rng
from ..nets.mixers import Mixed, Monotone
from ..types import Spec
from .base import positive
from .networked import Hidden
from .on_policy import OnPolicy
from .on_policy_config import OnPolicyConfig


@dataclass(frozen=True)
class VDACConfig(OnPolicyConfig):
    """VDAC's own settings beside A2C's; the reward is the team's."""

    reward: Literal["mean", "sum"] = "mean"
    """The team's reward: the mean or the sum of its agents'."""
    mix: Literal["sum", "mix"] = "mix"
    """How the agents' values make the team's: their sum (VDAC-sum), or a monotone net the state
    feeds (VDAC-mix)."""
    embedding: int = 32
    """Units of the mixing net."""
    hyper: int = 64
    """Hidden units of the nets that make its weights from the state."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "embedding", "hyper")
        if self.popart and self.mix == "sum":
            raise ShoalError(
                "a sum of the living agents' values has no last layer that popart could rescale:"
                " set popart to False or mix to mix"
            )


class VDAC(OnPolicy[VDACConfig]):
    """A2C whose advantage is the team's: r + γV′ − V of a mix of what each agent's own critic
    expects."""

    name = "vdac"
    Config = VDACConfig

    def __init__(self, config: VDACConfig, spec: Spec):
        super().__init__(config, spec)
        if config.mix == "mix":
            self.inputs["mixer"] = (STATE,)

    @property
    def states(self) -> tuple[str, ...]:
        return ("game", "joined") if self.config.mix == "mix" else ("game",)

    def init_critic(self, rng: Rng) -> Mixed:
        c = self.config
        spec = self.spec
        local = super().init_critic(rng)
        return Mixed(
            local,
            Monotone(rng, spec.n, spec.state, c.embedding, c.hyper) if c.mix == "mix" else None,
        )

    def critic(
        self, critic: Mixed, context: Context, carry: Hidden, features: Array | None = None
    ) -> tuple[Array, Hidden]:
        """The team's value `[T,B,1,1]`; absent agents contribute 0."""
        values, carry = super().critic(critic.local, context, carry, features)
        return critic.team(values[..., 0] * context.view.alive, context.view.state)[
            ..., None
        ], carry
