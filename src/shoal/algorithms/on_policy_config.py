"""Settings of the policy family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..errors import ShoalError
from .base import fraction, not_negative, positive
from .windowed import WindowedConfig


@dataclass(frozen=True)
class OnPolicyConfig(WindowedConfig):
    """Settings every member of the family has."""

    critic_lr: float = 0.0
    """Learning rate of the critic; 0 takes the actor's."""
    entropy: float = 0.01
    """Weight of the entropy bonus, at the start."""
    entropy_decay: float = 0.0
    """Share of that weight that is lost by the end of the run, linearly."""
    normalise_advantage: bool = True
    """Give the window's advantages zero mean and unit variance (dividing by their deviation +
    1e-8)."""
    normalise_value: bool = True
    """Let the critic predict returns in units of their running mean and deviation, which is taken
    for 0.01 at least."""
    popart: bool = False
    """With normalise_value: whenever those statistics change, rescale the critic's last layer so
    that it predicts the same returns as before (PopArt)."""
    value_loss: Literal["squared", "huber"] = "squared"
    """The critic's loss: half its squared error, or Huber's, which is linear beyond huber_delta."""
    huber_delta: float = 10.0
    """Size of an error, in the critic's unit, beyond which Huber's loss is linear."""
    value_weight: float = 1.0
    """Weight of the critic's loss. A critic with a torso of its own has its own Adam, which hardly
    notices; with share_torso it matters."""
    share_torso: bool = False
    """Let the critic read the actor's last hidden layer instead of a torso of its own."""
    squash: bool = False
    """Continuous actions: squash the Gaussian by tanh into the bounds instead of clipping it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative(self, "critic_lr", "value_weight")
        positive(self, "huber_delta")
        fraction(self, "entropy_decay")
        if self.popart and not self.normalise_value:
            raise ShoalError(
                "popart preserves values whose normalisation changes, and normalise_value is off:"
                " set popart to False or normalise_value to True"
            )
