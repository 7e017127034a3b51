"""Twin delayed DDPG (TD3; Fujimoto et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from .ddpg import DDPG, DDPGConfig


@dataclass(frozen=True)
class TD3Config(DDPGConfig):
    """DDPG's settings with the three tricks on."""

    twin: bool = True
    """Two critics, of which the lower makes the target (TD3)."""
    delay: int = 2
    """Steps of the critic for each of the actor's (TD3)."""
    smoothing: float = 0.2
    """Continuous actions: deviation of the noise on the target's actions, clipped at 2.5 times that
    (TD3)."""
    target_every: int = 2
    """Gradient steps between two moves of the target networks."""


class TD3(DDPG):
    """DDPG with twin critics, a delayed actor and smoothed target actions."""

    name = "td3"
    Config = TD3Config
