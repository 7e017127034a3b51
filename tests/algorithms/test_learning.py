"""Games every fitting algorithm must solve within seconds: each asks for one ability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    LEARNERS,
    PARALLEL,
    PATHWISE,
    POLICY,
    REPLAYED,
    TEAM,
    VALUE,
    build,
    clock,
    opened,
    run,
)
from jax import Array

from shoal.algorithms import find
from shoal.engine.evaluate import Evaluator
from shoal.engine.loop import Loop
from shoal.envs import Env, make
from shoal.envs.native.probes import Life, Mortal
from shoal.nets.inputs import Context
from shoal.types import Box

CONTINUOUS = [name for name in LEARNERS if Box in find(name).spaces]
SMALL = {"hidden": 16, "layers": 1, "lr": 0.02, "minibatches": 1}
OFF = {
    "hidden": 16,
    "layers": 1,
    "lr": 1e-2,
    "anneal": False,
    "warmup": 256,
    "capacity": 5_000,
    "batch": 32,
    "length": 4,
    "updates": 4,
    "tau": 0.05,
}
FALLING = {"epsilon_steps": 2_000, "epsilon_end": 0.02}  # exploration falls within the run
FAMILY = (
    {name: SMALL for name in LEARNERS}
    | {name: OFF | FALLING for name in VALUE}
    | {name: SMALL | FALLING | {"minibatches": 4} for name in PARALLEL}
    | {name: OFF for name in PATHWISE}
)
OWN = {
    "hatrpo": {"max_kl": 0.1},
    "coma": {"epsilon_steps": 5_000, "epsilon_end": 0.005},
    "owqmix": {"lr": 5e-3, "tau": 0.02},
    "pqn_qmix": {"epochs": 8},
    "sable": {"lr": 3e-3},
}
REPLAY = {"updates": 8, "tau": 0.2}  # learn faster from it
LAST = 10  # iterations whose episodes are scored


def trained(
    name: str, env: Env, iterations: int, games: int = 16, window: int = 16, **settings: Any
):
    """An algorithm, its learner after so many iterations, and an agent's mean return: of an
    on-policy algorithm in the last of them, of another, which explores in its own way, when it
    plays greedily."""
    algorithm = build(name, env, **(FAMILY[name] | OWN.get(name, {}) | settings))
    loop = Loop(env, {TEAM: algorithm}, games, window, steps=iterations * games * window)
    state, metrics = run(loop, iterations)
    if name not in POLICY:
        score = Evaluator(env, {TEAM: algorithm}, 64, greedy=True)(
            state.learners, 0, clock(1e6)
        ).score()[TEAM]
        return algorithm, state.learners[TEAM], score
    return (
        algorithm,
        state.learners[TEAM],
        float(metrics.returns[TEAM][-LAST:].sum() / metrics.episodes[-LAST:].sum()),
    )


def values(learner: Any, seen: np.ndarray, rows: int) -> np.ndarray:
    """What its critic says, in its own unit, of one view `[1,1,N or 1,F]`."""

    def call(critic: Any, seen: Array) -> Array:
        return critic((seen,), critic.torso.carry(1, rows), jnp.zeros((1, 1), bool))[0]

    return np.asarray(jax.jit(call)(learner.params["critic"], seen)).ravel()


@pytest.mark.parametrize("name", LEARNERS)
def test_discrete_identity(name):
    """10 steps, of which chance answers 2.5. Who learns through Gumbel-softmax must be kept from
    deciding too early."""
    gumbel = {
        "gamma": 0.5,
        "epsilon": 0.3,
        "lr": 3e-3,
        "critic_lr": 1e-2,
        "updates": 8,
        "penalty": 0.05,
    }
    settings = gumbel if name in PATHWISE and "sac" not in name else {}
    assert trained(name, make("test/identity"), iterations=80, **settings)[-1] > 9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, {"squash": False, "entropy": 0.0}) for name in CONTINUOUS if name in POLICY),
        ("ppo", {"squash": True, "entropy": 0.0}),
        *((name, {}) for name in PATHWISE),
    ],
)
def test_continuous_identity(name, settings):
    """10 steps: standing in the middle costs 3.3, drawing at random 6.7."""
    assert trained(name, make("test/continuous_identity"), iterations=100, **settings)[-1] > -1.0


@pytest.mark.parametrize("torso", ["gru", "mlp"])
@pytest.mark.parametrize(
    ("name", "settings"),
    [("ppo", {}), ("pqn", {}), ("dqn", {"length": 10, "burn_in": 4}), ("sac", {"length": 10})],
)
def test_the_memory_game_is_solved_with_memory_and_only_with_it(name, settings, torso):
    """Chance earns 0.5."""
    earned = trained(name, make("test/memory"), iterations=60, window=20, torso=torso, **settings)[
        -1
    ]
    assert earned > 0.9 if torso == "gru" else 0.35 < earned < 0.65


@pytest.mark.parametrize("name", ["a2c", "dqn", "qmix", "pqn", "ddpg"])
def test_trap_06_a_reward_given_only_on_the_terminal_step_is_learnt(name):
    """Episodes of one step: every second transition is a dummy, every valid one terminal. Chance
    earns 0.25."""
    assert trained(name, make("test/memory", length=1, actions=4), iterations=60)[-1] > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("normalise", [False, True])
def test_trap_01_the_value_of_an_endless_game_cut_by_time_is_one_over_one_minus_gamma(normalise):
    """Taken for an end, the limit of 10 steps would leave 4.6, the mean over the episode of what is
    still to come."""
    env = make("test/endless", n=1)
    settings = {"gamma": 0.9, "critic_lr": 0.03, "normalise_value": normalise}
    _, learner, _ = trained("a2c", env, iterations=150, window=12, **settings)
    value = values(learner, np.ones((1, 1, 1, 1)), rows=1)
    assert (learner.scale.up(value) if normalise else value) == pytest.approx(10.0, abs=0.5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("dqn", REPLAY),
        ("vdn", REPLAY | {"n_step": 3}),
        ("qmix", REPLAY | {"lam": 0.8}),
        ("pqn", {"lam": 0.0, "epochs": 8}),
        ("pqn_vdn", {"lam": 0.8}),
        ("pqn_qmix", {"lam": 0.8}),
    ],
)
def test_trap_01_the_utility_of_an_endless_game_cut_by_time_is_one_over_one_minus_gamma(
    name, settings
):
    """Of one agent, so that a mix is worth what it is; targets of one reward, of three and of λ."""
    env = make("test/endless", n=1)
    algorithm, learner, _ = trained(name, env, iterations=100, window=12, gamma=0.8, **settings)
    view = jax.tree.map(lambda x: x[None], opened(env, 1)[1][TEAM])

    def value() -> Array:
        context = Context(view, jnp.zeros((1, 1, 1, 0)))
        q, _ = algorithm.utilities(learner.params["agents"], context, jnp.zeros((1, 1, 0)))
        return algorithm.joint(learner.params, q, jnp.zeros((1, 1, 1), int), view)

    assert float(jax.jit(value)().squeeze()) == pytest.approx(5.0, abs=0.25)


@dataclass(frozen=True)
class Legacy(Mortal):
    """Agent 0's first answer is all that counts, and is paid to the team after its death."""

    def advance(self, key: Array, world: Life, actions: dict[str, Array]) -> Life:
        world = super().advance(key, world, actions)
        return world._replace(earned=jnp.where(world.time == self.length, world.legacy, 0.0))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mappo", "vdn", "qmix", "qplex", "pqn_vdn", "pqn_qmix"])
def test_trap_08_a_team_reward_paid_after_an_agents_death_is_learnt(name):
    """Chance earns 0.5. Nobody sees what was answered: only sums of rewards reach back to it."""
    settings = {"n_step": 4, "length": 8} if name in REPLAYED else {}
    assert trained(name, Legacy(n=2, length=4), iterations=60, window=15, **settings)[-1] > 0.9


@dataclass(frozen=True)
class Wages(Mortal):
    """The team earns 1 with every step, whatever it does and whoever lives."""

    def advance(self, key: Array, world: Life, actions: dict[str, Array]) -> Life:
        return super().advance(key, world, actions)._replace(earned=jnp.ones_like(world.earned))


@pytest.mark.slow
def test_trap_08_a_mortal_agents_value_counts_what_the_team_earns_without_it():
    """6 steps at γ = 0.9 are worth 4.69 to both agents, though one dies halfway."""
    settings = {"sharing": "own", "gamma": 0.9, "lam": 0.0}
    _, learner, _ = trained("mappo", Wages(n=2, length=6), iterations=100, window=14, **settings)
    opening = np.zeros((1, 1, 1, 8), np.float32)
    opening[..., [0, 4]] = 1.0  # both cues are 0
    np.testing.assert_allclose(learner.scale.up(values(learner, opening, rows=2)), 4.686, atol=0.3)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*POLICY, "dqn", "vdn", "qmix", "pqn_vdn", "maddpg"])
def test_the_penalty_game_without_penalty_reaches_its_optimum(name):
    """Two joint actions earn 10 in each of 25 rounds, and the task is to agree on one: a mixture
    earns 125."""
    if name not in POLICY:
        settings = (
            {"gamma": 0.9, "epsilon": 0.1}
            if name in PATHWISE
            else {"gamma": 0.9, "epsilon_steps": 4_000}
        )
        assert trained(name, make("matrix/penalty", k=0), iterations=60, **settings)[-1] > 230
        return
    settings = {
        "games": 8,
        "window": 32,
        "lr": 0.03,
        "critic_lr": 0.01,
        "entropy": 0.0,
        "anneal": False,
    }
    if name == "hatrpo":  # its steps are as long as its trust region, whatever the rate
        settings["max_kl"] = 0.03
    assert trained(name, make("matrix/penalty", k=0), iterations=250, **settings)[-1] > 230
