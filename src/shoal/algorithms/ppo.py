"""Proximal policy optimisation (PPO; Schulman et al. 2017). With several agents: IPPO (de Witt et
al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import Array

from ..learning.minibatches import Batch
from .base import Metrics
from .on_policy import Learner, OnPolicy
from .on_policy_config import OnPolicyConfig


@dataclass(frozen=True)
class PPOConfig(OnPolicyConfig):
    """PPO's own settings beside the family's."""

    epochs: int = 4
    """Passes over each window."""
    minibatches: int = 4
    """Gradient steps per pass; games are split when recurrent, (game, step) rows otherwise."""
    clip: float = 0.2
    """How far the probability ratio may move before its gradient stops."""
    clip_value: float = 0.0
    """How far a value may move in one window, in the critic's unit; 0 lets it move freely."""


class PPO(OnPolicy[PPOConfig]):
    """A clipped ratio of new to acting probabilities in place of log π (eq. 7)."""

    name = "ppo"
    Config = PPOConfig

    def actor_loss(self, dist: Any, batch: Batch) -> tuple[Array, Metrics]:
        clip = self.config.clip
        log_ratio = self.log_ratio(dist, batch)
        ratio = jnp.exp(log_ratio)
        gain = jnp.minimum(
            ratio * batch.advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * batch.advantage
        )
        metrics = {
            "approx_kl": ((ratio - 1 - log_ratio) * batch.weight).sum(),
            "clip_fraction": ((jnp.abs(ratio - 1) > clip) * batch.weight).sum(),
        }
        return -(gain * batch.weight).sum(), metrics

    def critic_loss(self, value: Array, learner: Learner, batch: Batch) -> Array:
        clip = self.config.clip_value
        if not clip:
            return super().critic_loss(value, learner, batch)
        target = self.unit(learner, batch.target)
        near = batch.value + jnp.clip(value - batch.value, -clip, clip)
        losses = self.value_loss(value - target), self.value_loss(near - target)
        return (jnp.maximum(*losses) * batch.critic_weight).sum()
