"""The mean field: what an agent sees of the others, and what MFQ and MFAC make of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    OFF,
    TEAM,
    TINY,
    Studied,
    altered,
    build,
    call,
    clock,
    decided,
    mortal,
    on_devices,
    opened,
    probe,
    run,
    studied,
)
from jax import Array

from shoal.algorithms.mfac import MFAC
from shoal.engine.evaluate import Evaluator
from shoal.engine.loop import Loop
from shoal.engine.play import Play, collect
from shoal.envs import make
from shoal.envs.native.probes import Quiz, Tiny
from shoal.errors import ShoalError
from shoal.learning.exploration import boltzmann
from shoal.learning.reduce import mean_weights
from shoal.nets.inputs import MEAN_ACTION, Context, gather
from shoal.nets.inputs import mean_action as near_mean
from shoal.types import Discrete, Spec, View

CROWD = make("test/mortal", n=4, length=6)  # they die one after the other


def mean_action(last: np.ndarray, alive: np.ndarray) -> np.ndarray:
    """The definition, agent by agent: `[…,N,A]` from the actions before and who lives now."""
    seen = np.zeros(last.shape)
    for *where, agent in np.ndindex(*alive.shape):
        others = [
            other for other in range(alive.shape[-1]) if other != agent and alive[*where, other]
        ]
        if others:
            seen[*where, agent] = np.mean([last[*where, other] for other in others], axis=0)
    return seen


def led(action: np.ndarray, first: np.ndarray, actions: int) -> np.ndarray:
    """What was done before instants 1…T, given all actions from the first on."""
    return np.eye(actions)[action] * ~first[1:, :, None, None]


def watch(algorithm: Any, learner: Any, view: View, carry: Any) -> Array:
    return gather((MEAN_ACTION,), algorithm.context(learner, view, carry), algorithm.spec)[0][0]


# -- what is seen ----------------------------------------------------------------------------------


def scene_of(last: Any, alive: Any) -> Context:
    return Context(View(*[None] * len(View._fields))._replace(alive=alive), last)  # type: ignore


def test_the_mean_is_that_of_the_others_who_live():
    """Whoever lives, dies or comes back; nobody sees nothing."""
    rng = np.random.default_rng(1)
    alive = rng.random((9, 8, 4)) < 0.5
    last = np.eye(3, dtype=np.float32)[rng.integers(0, 3, alive.shape)]
    spec = Spec(("a", "b", "c", "d"), 1, 4, Discrete(3))
    np.testing.assert_allclose(
        MEAN_ACTION.read(scene_of(last, alive), spec), mean_action(last, alive), atol=1e-6
    )
    assert set(range(5)) == set(alive.sum(-1).ravel())


def test_its_cost_grows_with_the_agents_not_with_their_pairs():
    many = 81
    spec = Spec(tuple(map(str, range(many))), 1, 1, Discrete(21))
    jaxpr = jax.make_jaxpr(lambda last, alive: MEAN_ACTION.read(scene_of(last, alive), spec))(
        jnp.zeros((1, 1, many, 21)), jnp.zeros((1, 1, many), bool)
    )
    assert max(var.aval.size for eqn in jaxpr.jaxpr.eqns for var in eqn.outvars) <= many * 21  # type: ignore


def test_neighbours_are_those_who_are_near():
    """By hand; with room for everybody it is the mean of all who live."""
    rng = np.random.default_rng(2)
    alive = rng.random((5, 6, 4)) < 0.7
    last = np.eye(3, dtype=np.float32)[rng.integers(0, 3, alive.shape)]
    obs = rng.uniform(-1, 1, (*alive.shape, 3)).astype(np.float32)
    spec = Spec(("a", "b", "c", "d"), 3, 4, Discrete(3))
    scene = scene_of(last, alive)
    scene = scene._replace(view=scene.view._replace(obs=obs))
    place = obs[..., [2, 0]]
    away = np.linalg.norm(place[..., :, None, :] - place[..., None, :, :], axis=-1)
    expected = np.zeros(last.shape)
    for *where, agent in np.ndindex(*alive.shape):
        near = alive[*where] & (away[*where, agent] <= 0.8) & (np.arange(4) != agent)
        if near.any():
            expected[*where, agent] = last[*where][near].mean(0)
    found = near_mean(0.8, (2, 0)).read(scene, spec)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    everybody = near_mean(9.0, (2, 0)).read(scene, spec)
    np.testing.assert_allclose(everybody, mean_action(last, alive), atol=1e-6)
    assert np.abs(found - everybody).max() > 0.1


@pytest.mark.parametrize(("name", "part"), [("mfq", "actor"), ("mfac", "critic")])
def test_near_makes_the_mean_field_local(name, part):
    near = build(name, CROWD, near=0.5, position="0", **TINY)
    plain = build(name, CROWD, **TINY)
    assert MEAN_ACTION in plain.inputs[part] and MEAN_ACTION not in near.inputs[part]
    assert near.keeps_last and near.sees_mates == plain.sees_mates
    assert len(near.inputs[part]) == len(plain.inputs[part])
    with pytest.raises(ShoalError, match="near needs to know where agents are"):
        build(name, CROWD, near=0.5)
    with pytest.raises(ShoalError, match="near is for torsos that communicate"):
        build("dqn", CROWD, near=0.5, position="0")


def test_trap_18_the_mean_of_a_drawn_window_is_the_one_seen_when_acting():
    """From its first instant on, over deaths and ends of episodes; both are the definition's."""
    seen = studied("mfq", env=CROWD, watch=watch, windows=4, batch=64)
    played = seen.played
    view = jax.tree.map(np.asarray, played.view)
    before = np.concatenate(
        [np.zeros((1, *played.action.shape[1:], 3)), led(played.action, view.first, 3)]
    )
    expected = mean_action(before, view.alive)
    np.testing.assert_allclose(played.record, expected[:-1], atol=1e-6)
    number = seen.drawn.slot + 1 + np.arange(7)[:, None]
    drawn = gather((MEAN_ACTION,), seen.batch.context, seen.algorithm.spec)[0]
    np.testing.assert_allclose(drawn, expected[number, seen.drawn.game], atol=1e-6)
    first = np.asarray(seen.drawn.window.view.first)
    assert first[0].any() and first[1:].any() and not np.asarray(drawn)[first].any()
    assert (~seen.drawn.window.view.alive[~first]).any() and drawn[0][~first[0]].any()


def test_trap_18_on_policy_a_window_goes_on_where_the_last_one_ended():
    algorithm = build("mfac", CROWD, **TINY)

    def play(key: Array) -> tuple:
        learner = algorithm.init(np.random.default_rng(0))
        game, views = CROWD.reset(key, 3)
        now, windows = Play(game, views, {TEAM: algorithm.carry(learner, 3)}), []
        for k in range(2):
            now, seen, _ = collect(
                CROWD,
                {TEAM: algorithm},
                {TEAM: learner},
                now,
                jax.random.fold_in(key, k),
                clock(),
                9,
            )
            windows.append(seen[TEAM])
        return windows, [
            gather((MEAN_ACTION,), context, algorithm.spec)[0]
            for context in algorithm._contexts(windows[1])
        ]

    (one, two), (context, end) = call(play, jax.random.key(0))
    first, action = (
        np.concatenate([one.view.first[-2:-1], two.view.first]),
        np.concatenate([one.action[-1:], two.action]),
    )
    expected = mean_action(led(action, first, 3), two.view.alive)
    np.testing.assert_allclose(np.concatenate([context, end]), expected, atol=1e-6)
    assert not first[1].any() and first[2:].any() and expected[0].any()


def test_an_agent_without_others_sees_zeros():
    seen = studied("mfq", env=make("test/mortal", n=1), watch=watch)
    assert seen.played.record.shape == (40, 4, 1, 3) and not seen.played.record.any()
    assert seen.batch.context.last.any()


# -- Boltzmann -------------------------------------------------------------------------------------

VALUES = jnp.array([[1.0, 2.0, 0.5, 9.0], [-5e3, -6e3, 9.0, 9.0], [3.0, 2.0, 1.0, 0.0]])
LEGAL = jnp.array([[1, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 1]], bool)


def test_legal_actions_are_drawn_in_proportion_to_their_exponential():
    for temperature in (0.3, 1.0, 50.0):
        probs = np.exp(boltzmann(VALUES, LEGAL, temperature).log_probs)
        weight = np.exp(np.asarray(VALUES[0], np.float64) / temperature) * np.asarray(LEGAL[0])
        np.testing.assert_allclose(probs[0], weight / weight.sum(), rtol=1e-4)
        np.testing.assert_allclose(probs[2], [0, 0, 0, 1])
        assert not probs[~np.asarray(LEGAL)].any()


@pytest.mark.parametrize("temperature", [0.0, 1e-6])
def test_a_temperature_near_zero_takes_the_best_legal_action(temperature):
    """Also one far below what stands for illegal."""
    probs = np.exp(boltzmann(VALUES, LEGAL, jnp.float32(temperature)).log_probs)
    np.testing.assert_array_equal(probs, np.eye(4)[[1, 0, 3]])


def test_mfq_draws_from_its_policy_and_evaluates_greedily():
    env = make("test/identity", n=2)
    algorithm = build(
        "mfq", env, temperature=2.0, temperature_end=0.5, temperature_steps=100, **TINY
    )
    learner = algorithm.init(np.random.default_rng(0))
    assert [float(algorithm.temperature(clock(steps))) for steps in (0, 50, 100, 1e6)] == [
        2.0,
        1.25,
        0.5,
        0.5,
    ]
    q, legal = (
        jnp.broadcast_to(VALUES[:1], (20_000, 1, 4)),
        jnp.broadcast_to(LEGAL[:1], (20_000, 1, 4)),
    )
    drawn = np.asarray(algorithm.explore(jax.random.key(0), q, legal, clock(50)))
    rate = (drawn[..., None] == np.arange(4)).mean((0, 1))
    np.testing.assert_allclose(
        rate, np.exp(boltzmann(VALUES[0], LEGAL[0], 1.25).log_probs), atol=0.015
    )
    view = opened(env, 16)[1][TEAM]
    carry = algorithm.carry(learner, 16)
    best = algorithm.utilities(
        learner.params["agents"], algorithm.context(learner, view, carry), carry.hidden
    )[0][0].argmax(-1)
    greedy, drawn = (
        decided(algorithm, learner, jax.random.key(1), view, carry, clock(), g).action
        for g in (True, False)
    )
    assert np.array_equal(greedy, best) and not np.array_equal(drawn, best)


def test_a_temperature_is_not_negative():
    with pytest.raises(ShoalError, match="temperature_end must not be negative"):
        build("mfq", mortal(), temperature_end=-0.1)


# -- MFQ's targets ---------------------------------------------------------------------------------


def compared(seen: Studied, learner: Any, temperature: float, **settings: Any) -> tuple:
    """What MFQ's loss compares, values and targets, and the utilities of the online and the target
    nets."""
    algorithm = build("mfq", mortal(), **TINY, **OFF, **settings)  # type: ignore
    algorithm.regression = lambda q, target, *_: (q, target)

    def whole(learner: Any, batch: Any) -> tuple:
        q, target = algorithm.losses(learner.params, learner, batch, temperature)
        return q, target, *algorithm.unrolled(learner.params, learner, batch)[:2]

    return call(whole, learner, seen.batch)


@pytest.mark.parametrize("double", [False, True])
def test_trap_16_mfq_targets_are_what_the_boltzmann_policy_expects(double):
    """r + γ Σ π(a) Q'(a) over the legal actions, nothing after a true end."""
    seen = studied("mfq")
    learner = altered(seen.learner, "agents", "target", 0.3)
    q, target, online, follower = compared(seen, learner, 0.2, double=double)
    window = seen.batch.window
    weight = np.exp((online if double else follower).astype(np.float64) / 0.2) * window.view.legal
    ahead = (weight * follower).sum(-1) / weight.sum(-1)
    reached = np.broadcast_to(window.valid, window.action.shape)
    expected = window.reward + 0.99 * window.discount * ahead[1:]
    np.testing.assert_allclose(target[reached], expected[reached], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        q,
        np.take_along_axis(online[:-1], np.asarray(window.action)[..., None], -1)[..., 0],
        atol=1e-6,
    )
    assert (
        (window.discount[reached] == 0).any() and not reached.all() and not window.view.legal.all()
    )


def test_targets_are_of_the_temperature_that_acts_now():
    seen = studied("mfq")

    def whole(learner: Any, batch: Any) -> list:
        cold, warm = (
            seen.algorithm.losses(learner.params, learner, batch, t)[0] for t in (0.1, 0.55)
        )
        now = clock(100_000, 0.5)  # half of its schedule, from 1 to 0.1
        metrics = seen.algorithm.improve(learner, batch, jax.random.key(0), now)[1]
        return [cold, warm, metrics["loss"], metrics["temperature"]]

    cold, warm, loss, temperature = call(
        whole, altered(seen.learner, "agents", "target", 0.3), seen.batch
    )
    assert temperature == pytest.approx(0.55) and loss == pytest.approx(warm, rel=1e-5)
    assert loss != pytest.approx(cold, rel=1e-3)


# -- MFAC ------------------------------------------------------------------------------------------


class Telling(MFAC):
    """MFAC that tells its advantages and its policy."""

    def actor_loss(self, dist, batch):
        return super().actor_loss(dist, batch)[0], {
            "advantage": batch.advantage,
            "probs": jnp.exp(dist.log_probs),
        }


@cache
def told() -> tuple:
    """What the last window of a run gave: its target, and for each action in place of those taken
    `A`, and `π`."""
    settings: dict[str, Any] = {
        "normalise_advantage": False,
        "normalise_value": False,
        "last_action": True,
        **TINY,
    }
    algorithm = Telling(MFAC.Config(torso="gru", **settings), mortal().teams[TEAM])
    seen = probe("mfac", "gru").seen

    def whole() -> tuple:
        learner = seen.learner
        _, batch, _ = algorithm.prepare(learner, seen.memory, jax.random.key(0), seen.clock)
        batch, told = batch._replace(weight=mean_weights(batch.weight)), []
        for choice in range(3):
            other = batch._replace(
                record=batch.record._replace(raw=jnp.full_like(batch.record.raw, choice))
            )
            told.append(algorithm.losses(learner.params, learner, other, seen.clock)[1])
        q, _ = algorithm.critic(learner.target, batch.context, batch.critic_carry[0])
        return batch.target, jnp.stack([one["advantage"] for one in told], -1), told[0]["probs"], q

    return seen.window, *jax.device_get(jax.jit(on_devices(whole))())


@pytest.mark.slow
def test_trap_15_the_policy_expects_no_advantage():
    """Σ π(a) (Q(a) − Σ π Q) = 0 over the legal actions, which differ in their advantages."""
    window, _, advantage, probs, _ = told()
    legal = window.view.legal[:-1]
    np.testing.assert_allclose((probs * advantage).sum(-1), 0.0, atol=1e-5)
    assert not probs[~legal].any() and np.abs(advantage[legal]).max() > 1e-3


def test_mfac_regresses_to_the_reward_and_what_the_policy_expects_next():
    """r + γ Σ π(a) Q'(a), nothing after a true end."""
    window, target, _, probs, q = told()
    expected = window.reward[:-1] + 0.99 * window.discount[:-1] * (probs * q).sum(-1)[1:]
    reached = np.broadcast_to(window.valid, window.action.shape)[:-1]
    np.testing.assert_allclose(target[:-1][reached], expected[reached], rtol=1e-4, atol=1e-5)
    assert (window.discount[:-1][reached] == 0).any()


def test_mfac_shows_the_mean_to_its_critic_alone():
    algorithm = build("mfac", mortal(), **TINY)
    assert (
        MEAN_ACTION in algorithm.inputs["critic"] and MEAN_ACTION not in algorithm.inputs["actor"]
    )
    with pytest.raises(ShoalError, match="set share_torso to False"):
        build("mfac", mortal(), share_torso=True)


# -- what it is for --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Relay(Tiny):
    """Nobody observes anything; an agent earns 1 for doing what is one further than what the other
    did before."""

    n: int = 2
    length: int = 8

    name = "test/relay"

    @cached_property
    def teams(self) -> dict[str, Spec]:
        return self._team(1, Discrete(3))

    def start(self, key: Array, games: int) -> Quiz:
        return Quiz(jnp.full((2, games), -1), jnp.zeros((2, games)))

    def advance(self, key: Array, world: Quiz, actions: dict[str, Array]) -> Quiz:
        action = actions[TEAM]
        right = (world.cue >= 0) & (action == (world.cue[::-1] + 1) % 3)
        return Quiz(action, right.astype(jnp.float32))

    def observe(self, world: Quiz) -> dict[str, Array]:
        return {TEAM: jnp.ones((2, 1, world.cue.shape[1]))}

    def reward(self, world: Quiz) -> dict[str, Array]:
        return {TEAM: world.earned}


@pytest.mark.parametrize(("name", "solves"), [("mfq", True), ("dqn", False)])
def test_what_needs_the_others_last_actions_is_learnt_by_who_sees_them(name, solves):
    """7 of 8 steps can earn. Without memory only one agent of the two can always be right."""
    env: Any = Relay()
    settings: dict[str, Any] = {
        "hidden": 16,
        "layers": 1,
        "lr": 1e-2,
        "anneal": False,
        "warmup": 256,
        "capacity": 5_000,
        "tau": 0.05,
    }
    own: dict[str, Any] = {"temperature_steps": 4_000} if solves else {"epsilon_steps": 4_000}
    algorithm = build(name, env, batch=32, length=4, updates=4, gamma=0.5, **settings, **own)
    state, _ = run(Loop(env, {TEAM: algorithm}, 16, 16, steps=8_000), 40)
    score = Evaluator(env, {TEAM: algorithm}, 4, greedy=True)(
        state.learners, 0, clock(1e6)
    ).score()[TEAM]
    assert score == 7.0 if solves else score <= 4.0
