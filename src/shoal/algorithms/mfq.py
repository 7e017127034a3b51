"""Mean field Q-learning (MFQ; Yang et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from jax import Array

from ..learning.exploration import boltzmann, floored, linear
from ..nets.distributions import pick
from ..types import Clock, Spec
from .base import Metrics, not_negative, positive
from .coma import expectation
from .off_policy import Batch, Learner
from .value import Value, ValueConfig


@dataclass(frozen=True)
class MFQConfig(ValueConfig):
    """MFQ's own settings beside the family's."""

    neighbours = True

    double: bool = False
    """Let the online net's policy, not the target's own, weigh the target's utilities."""
    epsilon: float = 0.0
    """Probability of any legal action in place of the Boltzmann policy's, at the start."""
    epsilon_end: float = 0.0
    """That probability, at the end of its schedule."""
    temperature: float = 1.0
    """Temperature of the Boltzmann policy, in units of utilities, at the start."""
    temperature_end: float = 0.1
    """That temperature, at the end of its schedule; 0 takes the best action."""
    temperature_steps: float = 200_000
    """Environment steps over which it falls."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "temperature_steps")
        not_negative(self, "temperature", "temperature_end")


class MFQ(Value[MFQConfig]):
    """DQN whose utilities also see what the team just did on average, and whose policy is
    Boltzmann's.

    An agent's neighbours are all other members of its team who live, as in the authors' battle
    game; with `near`, only those who are close.
    """

    name = "mfq"
    Config = MFQConfig

    def __init__(self, config: MFQConfig, spec: Spec):
        super().__init__(config, spec)
        self.inputs["actor"] += (self.mean_action,)

    def temperature(self, clock: Clock) -> Array:
        c = self.config
        return linear(c.temperature, c.temperature_end, c.temperature_steps, clock.steps)

    def explore(self, key: Array, q: Array, legal: Array, clock: Clock) -> Array:
        policy = boltzmann(q, legal, self.temperature(clock))
        return floored(policy, legal, self.epsilon(clock)).sample(key)

    def improve(
        self, learner: Learner, batch: Batch, key: Array, clock: Clock
    ) -> tuple[Learner, Metrics, Array]:
        temperature = self.temperature(clock)
        losses = partial(self.losses, temperature=temperature)
        learner, metrics, wrong = self.descent(losses, learner, batch, key, clock)
        return learner, metrics | {"temperature": temperature}, wrong

    def losses(
        self, params: dict, learner: Learner, batch: Batch, temperature: Array | float | None = None
    ) -> tuple[Array, tuple[Metrics, Array]]:
        """Squared TD errors with target r + γ Σ π(a) Q(a), Q of the target network.

        π is Boltzmann's at `temperature`, by default at the final one.
        """
        c = self.config
        legal = batch.window.view.legal
        online, follower, chooser = self.unrolled(params, learner, batch)
        policy = boltzmann(
            chooser, legal, c.temperature_end if temperature is None else temperature
        )
        target = self.targets(batch, expectation(policy, follower))
        return self.regression(pick(online[:-1], batch.window.action), target, batch)
