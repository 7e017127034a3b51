"""Curiosity: a bonus for what is new, which is learnt from and never scored."""

from __future__ import annotations

from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    OFF,
    OWN,
    SAME,
    TEAM,
    TINY,
    assert_close,
    bits,
    build,
    call,
    clock,
    mortal,
    on_devices,
    quick,
    run,
)

from shoal import plugins
from shoal.algorithms import find
from shoal.algorithms.curiosity import Drive
from shoal.engine.loop import Loop
from shoal.envs import make
from shoal.errors import ShoalError
from shoal.learning.trees import at
from shoal.nets import curiosity
from shoal.nets.layers import Dense
from shoal.types import Box, Discrete, Spec, View, Window

KINDS = tuple(curiosity.CURIOSITIES)
STEPS, GAMES, AGENTS, OBS = 8, 4, 2, 3
SPEC = Spec(("a", "b"), obs=OBS, state=1, action=Discrete(3))


def window(obs: np.ndarray, spec: Spec = SPEC, seed: int = 0) -> Window:
    """Nobody dies, no episode ends; the last game's step 2 is the dummy after an end."""
    rng = np.random.default_rng(seed)
    instants = (STEPS + 1, GAMES, AGENTS)
    first = np.zeros(instants[:2], bool)
    first[3, -1] = True
    alive = np.ones(instants, bool)
    alive[5:, 0, 1] = False
    view = View(
        obs=jnp.asarray(obs),
        state=jnp.zeros((*instants[:2], 1)),
        legal=jnp.ones((*instants, spec.action.size), bool),
        alive=jnp.asarray(alive),
        first=jnp.asarray(first),
        reward=jnp.ones(instants),
        discount=jnp.ones(instants),
    )
    action: Any = rng.integers(3, size=(STEPS, GAMES, AGENTS))
    if isinstance(spec.action, Box):
        action = rng.uniform(-1, 1, size=(STEPS, GAMES, AGENTS, spec.action.size))
    return Window(view, jnp.asarray(action), (), (), ())


def seen(seed: int, centre: float = 0.0) -> np.ndarray:
    shape = (STEPS + 1, GAMES, AGENTS, OBS)
    return np.random.default_rng(seed).normal(centre, 1, size=shape).astype(np.float32)


@cache
def algorithm(kind: str, spec: Spec = SPEC, **more: Any) -> Any:
    ppo = find("ppo")
    return ppo(ppo.Config(hidden=8, layers=1, lr=1e-2, curiosity=kind, **more), spec)


def drive(kind: str, spec: Spec = SPEC) -> Drive:
    found = algorithm(kind, spec).drive
    assert found is not None
    return found


@cache
def after(kind: str, windows: int, spec: Spec = SPEC) -> tuple[Any, Any]:
    """The motive before and after some windows of one kind of observations."""
    one = drive(kind, spec)
    start = algorithm(kind, spec).init_curiosity(np.random.default_rng(0))

    def whole(motive: Any, played: Window) -> Any:
        def step(motive: Any, key: Any) -> Any:
            return one.learn(motive, played, key)

        return jax.lax.scan(step, motive, jax.random.split(jax.random.key(0), windows))

    return start, call(whole, start, window(seen(0), spec))


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_seen_is_no_longer_new(kind: str):
    one = drive(kind)
    start, (motive, metrics) = after(kind, 40)
    assert metrics["curiosity_loss"][-1] < 0.8 * metrics["curiosity_loss"][0]
    known, new = (
        call(one.bonus, motive, window(obs)).sum() for obs in (seen(0), seen(1, centre=4.0))
    )
    assert new > 2 * known > 0
    assert not call(one.bonus, start, window(seen(0))).any(), "nothing is known of what is new yet"


@pytest.mark.parametrize("kind", KINDS)
def test_actions_of_any_space_are_read(kind: str):
    spec = Spec(("a", "b"), obs=OBS, state=1, action=Box((-1.0,) * 2, (1.0,) * 2))
    _, (_, metrics) = after(kind, 2, spec)
    assert np.isfinite(metrics["curiosity_loss"]).all()


def test_the_random_target_stays_and_the_forward_model_does_not_shape_features():
    start, (motive, _) = after("rnd", 40)
    assert bits(start.model.target) == bits(motive.model.target)
    assert bits(start.model.predictor) != bits(motive.model.predictor)
    model = after("icm", 40)[1][0].model
    played = drive("icm")._transitions(after("icm", 40)[1][0], window(seen(0)))
    grads = jax.grad(lambda one: one.bonus(played).sum())(model)
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(grads.encoder))
    assert any(np.asarray(leaf).any() for leaf in jax.tree.leaves(grads.forward))


def test_the_bonus_is_paid_to_the_living_for_steps_that_are_some():
    one = algorithm("rnd", curiosity_weight=0.5, curiosity_decay=0.5)
    motive = after("rnd", 2)[1][0]
    learner = one.init(np.random.default_rng(0))._replace(curiosity=motive)
    played = window(seen(2))
    paid = [
        np.asarray(call(one.read, learner, played, clock(progress=p)).reward) - 1
        for p in (0.0, 1.0)
    ]
    assert_close(paid[0], 0.5 * call(one.drive.bonus, motive, played), 1e-5)
    assert_close(paid[1], 0.5 * paid[0], 1e-5)  # half of the weight is lost by the end
    counts = np.ones((STEPS, GAMES, AGENTS), bool)
    counts[2, -1] = False
    counts[4:, 0, 1] = False
    assert ((paid[0] > 0) == counts).all()


def test_two_devices_learn_what_one_does():
    """Statistics of halves of a window add up to those of the whole."""
    one = drive("rnd")
    start = after("rnd", 1)[0]
    played, key = window(seen(0)), jax.random.key(0)
    whole = call(one.learn, start, played, key)[0]

    def half(motive: Any, number: Any, key: Any) -> Any:
        games = number[0] * 2 + jnp.arange(2)
        view = at(played.view, np.s_[:, games])
        part = played._replace(view=view, action=played.action[:, games])
        return at(one.learn(motive, part, key)[0], None)

    both = jax.jit(on_devices(half, 2, (SAME, OWN, SAME), OWN))
    halves = jax.device_get(both(start, jnp.arange(2), key))
    assert_close(at((halves.seen, halves.scale), 0), (whole.seen, whole.scale), 1e-5)
    assert bits(at(halves, 0)) == bits(at(halves, 1))


def test_no_weight_is_no_curiosity_to_the_bit():
    env = make("test/endless", length=5)
    states = [
        run(Loop(env, {TEAM: build("ppo", env, **TINY, **more)}, games=2, window=6, steps=100), 2)[
            0
        ]
        for more in ({}, {"curiosity": "rnd", "curiosity_weight": 0.0})
    ]
    assert bits(states[0]) == bits(states[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pqn_vdn", "qmix"])
def test_scores_are_the_games_and_learning_is_not(name: str):
    """`test/endless` pays 1 for each of 5 steps: so it is scored, whatever the bonus adds."""
    env = make("test/endless", length=5)
    settings = TINY | (OFF if name == "qmix" else {}) | {"curiosity_weight": 10.0}
    learner = build(name, env, curiosity="rnd", **settings)
    state, metrics = run(Loop(env, {TEAM: learner}, games=4, window=12, steps=1000), 4)
    assert metrics.episodes.sum() and (metrics.returns[TEAM] == 5 * metrics.episodes).all()
    learning = metrics.learning[TEAM]
    assert learning["curiosity_bonus"].min() >= 0 and (learning["curiosity_weight"] == 10).all()
    assert float(state.learners[TEAM].curiosity.scale.windows) == 4


@pytest.mark.parametrize("name", quick(["mappo", "maddpg", "pqn", "qtran", "coma", "masac"], 2))
def test_every_family_can_be_curious(name: str):
    """Traced, not compiled; its state keeps its shape."""
    env = mortal()
    settings = (
        {"batch": 8, "length": 6, "warmup": 0} if name in ("qtran", "maddpg", "masac") else {}
    )
    learner = build(name, env, curiosity="icm", hidden=8, **settings)
    loop = Loop(env, {TEAM: learner}, games=4, window=8, steps=1000)
    before = loop.template(0)
    later, metrics = jax.eval_shape(loop.program(1), before)
    assert jax.tree.structure(before.learners) == jax.tree.structure(later.learners)
    assert "curiosity_bonus" in metrics.learning[TEAM]


class Mine(eqx.Module):
    """A curiosity of one's own: whatever a linear layer is bad at."""

    layer: Dense

    def __init__(self, rng: Any, owner: Any, spec: Spec, hidden: int, encoder: Any):
        self.layer = Dense(rng, owner, spec.obs, spec.obs)

    def bonus(self, played: Any) -> Any:
        return jnp.square(self.layer(played.obs) - played.next_obs).mean(-1)

    def loss(self, played: Any) -> Any:
        return self.bonus(played)


def test_ones_own_curiosity_comes_by_the_same_door():
    start, (motive, metrics) = after(plugins.register(Mine), 3)
    assert bits(start.model) != bits(motive.model) and "curiosity_bonus" in metrics


@pytest.mark.parametrize(
    ("word", "wrong"),
    [
        ("rdn", "there is no curiosity 'rdn' .did you mean 'rnd'"),
        ("shoal.nets.mlp:Mlp", "is not a curiosity: it must be a class that has bonus"),
    ],
)
def test_what_is_no_curiosity_is_refused(word: str, wrong: str):
    with pytest.raises(ShoalError, match=wrong):
        algorithm(word)
