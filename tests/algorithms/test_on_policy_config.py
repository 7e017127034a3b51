"""Options of critics: their loss, PopArt, chunks of a window, what they see of the state."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    OFF,
    REPLAYED,
    TEAM,
    TINY,
    assert_close,
    bits,
    build,
    call,
    clock,
    decided,
    learnt,
    mortal,
    probe,
    quick,
    run,
)

from shoal.algorithms import find
from shoal.engine.loop import Loop
from shoal.envs import make
from shoal.errors import ShoalError
from shoal.learning.normalise import ReturnNormaliser
from shoal.learning.reduce import mean_weights
from shoal.learning.trees import at
from shoal.nets.entities import parse
from shoal.nets.inputs import ID, OBS, OTHERS_OBS, STATE, Context, gather
from shoal.types import Box, Discrete, Share, Spec, View

# -- the loss --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_huber_with_a_large_delta_is_the_square_to_the_bit():
    window = probe("ppo").seen.window
    plain = learnt("ppo")(window, clock())[1]
    assert bits(plain) == bits(
        learnt("ppo", value_loss="huber", huber_delta=1e9)(window, clock())[1]
    )


@cache
def critic_loss(**more: Any) -> tuple[Any, Any, Any]:
    """Gradients of the critic, its loss as told, and the errors it was made of."""
    algorithm = build("ppo", mortal(), last_action=True, **TINY, **more)
    seen = probe("ppo").seen

    def whole() -> Any:
        learner, batch, _ = algorithm.prepare(seen.learner, seen.memory, jax.random.key(0), clock())
        batch = batch._replace(critic_weight=mean_weights(batch.critic_weight))

        def loss(critic: Any) -> Any:
            return algorithm.critic_losses(critic, learner, batch)

        grads, metrics = jax.grad(loss, has_aux=True)(learner.params["critic"])
        start = at(batch.critic_carry, 0)
        values, _ = algorithm.critic(learner.params["critic"], batch.context, start)
        error = values[..., 0] - algorithm.unit(learner, batch.target)
        return grads, metrics["critic_loss"], (error, batch.critic_weight)

    return call(whole)


def test_the_weight_scales_the_gradient_and_not_what_is_told():
    grads, told, _ = critic_loss()
    more, same, _ = critic_loss(value_weight=4.0)
    assert_close(more, jax.tree.map(lambda g: 4 * g, grads), 1e-6)
    assert told == same


@pytest.mark.parametrize("clip", [0.0, 0.2])
def test_trap_14_the_critics_loss_is_hubers_on_both_sides(clip: float):
    delta = 0.3
    _, told, (error, weight) = critic_loss(value_loss="huber", huber_delta=delta, clip_value=clip)
    assert (error[weight > 0] > delta).any() and (error[weight > 0] < -delta).any()
    size = np.abs(error)
    by_hand = np.where(size <= delta, error**2 / 2, delta * (size - delta / 2))
    assert told == pytest.approx((by_hand * weight).sum(), rel=1e-4)


# -- PopArt ----------------------------------------------------------------------------------------

POPART = ["mappo", "coma", "mfac", "vdac"]


@pytest.mark.parametrize("name", quick(POPART, 2))
@pytest.mark.parametrize("on", [True, False])
def test_popart_preserves_what_the_critic_predicts(name: str, on: bool):
    """Returns that the critic predicts for the window, before and after its statistics move."""
    algorithm = build(name, mortal(), last_action=True, popart=on, **TINY)
    seen = probe(name).seen
    unit = ReturnNormaliser(jnp.float32(-40.0), jnp.float32(9.0), jnp.float32(1.0))

    def whole() -> Any:
        before = seen.learner._replace(scale=unit)
        after, batch, _ = algorithm.prepare(before, seen.memory, jax.random.key(0), clock())
        outs = []
        for learner in (before, after):
            for critic in (learner.params["critic"], learner.target):
                if critic is not None:
                    out, _ = algorithm.critic(critic, batch.context, at(batch.critic_carry, 0))
                    outs.append(learner.scale.up(out))
        return outs, after.scale, batch.value

    outs, scale, value = call(whole)
    half = len(outs) // 2
    away = [np.abs(b - a).max() for a, b in zip(outs[:half], outs[half:], strict=True)]
    assert np.abs(scale.mean - unit.mean) > 1
    if on:
        assert max(away) < 1e-4 * np.abs(outs[0]).max()
        if name == "mappo":
            assert np.abs(value - scale.down(outs[0][..., 0])).max() < 1e-3
    else:
        assert min(away) > 0.1


def test_popart_is_refused_where_it_means_nothing():
    with pytest.raises(ShoalError, match="normalise_value is off"):
        build("ppo", mortal(), popart=True, normalise_value=False)
    with pytest.raises(ShoalError, match="has no last layer"):
        build("vdac", mortal(), popart=True, mix="sum")


# -- chunks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", quick(["mappo", "pqn", "happo"], 1))
def test_a_chunk_as_long_as_the_window_is_the_window_to_the_bit(name: str):
    window = probe("ppo", "gru").seen.window
    plain, chunked = (
        learnt(name, torso="gru", sharing="own", chunk=chunk)(window, clock())[1]
        for chunk in (0, 10)
    )
    assert bits(plain) == bits(chunked)


@pytest.mark.parametrize(("name", "torso"), quick([("mappo", "gru"), ("sable", "mlp")], 1))
def test_trap_13_chunks_reevaluate_to_the_acting_log_probs(name: str, torso: str):
    """Each chunk begins with the carry of that moment, and none is lost."""
    algorithm = build(name, mortal(), torso=torso, last_action=True, chunk=5, **TINY)
    seen = probe(name, torso).seen

    def whole() -> Any:
        learner, batch, _ = algorithm.prepare(seen.learner, seen.memory, jax.random.key(0), clock())
        rows = algorithm.chunked(learner, batch, seen.clock)
        start = at(rows.actor_carry, 0)
        actor = learner.params["actor"]
        dist, features, _ = algorithm.policy(actor, rows.context, start, seen.clock)
        critic = learner.params["critic"], rows.context, at(rows.critic_carry, 0), features
        values, _ = algorithm.critic(*critic)
        again = dist.log_prob(rows.record.raw), values[..., 0]
        return again, (rows.record.log_prob, rows.value), rows.actor_carry, rows.weight.sum()

    again, before, carry, weight = call(whole)
    assert again[0].shape[:2] == (5, 16) and weight == seen.window.weight.sum()
    np.testing.assert_allclose(again[0], before[0], atol=1e-5)
    assert np.abs(again[1] - before[1]).max() < 1e-5  # one for all agents, or one for each
    assert any(np.abs(leaf[0, 8:]).max() > 0.01 for leaf in jax.tree.leaves(carry) if leaf.size)


def test_chunks_that_do_not_fit_are_refused_and_rows_are_counted():
    gru = build("ppo", mortal(), torso="gru", chunk=5)
    with pytest.raises(ShoalError, match="cannot be cut into chunks of 5"):
        gru.check(Share(games=4, window=12))
    with pytest.raises(ShoalError, match="chunk is for recurrent nets"):
        build("ppo", mortal(), chunk=5).check(Share(games=4, window=10))
    gru.check(Share(games=4, window=10))
    with pytest.raises(ShoalError, match="6 chunks"):
        gru.check(Share(games=3, window=10))


# -- what central critics see of the state ---------------------------------------------------------

JOINED = Spec(("a", "b", "c"), obs=2, state=6, action=Discrete(2), joined=True)
APART = Spec(("a", "b", "c"), obs=2, state=5, action=Discrete(2))
REAL = Spec(("a", "b", "c"), obs=2, state=5, action=Box((-1.0,), (1.0,)))


def critic_of(name: str, spec: Spec, state: str, **more: Any) -> Any:
    kind = find(name)
    return kind(kind.Config(state=state, **TINY, **more), spec)


def instant(spec: Spec) -> Context:
    """One instant of two games."""
    rng = np.random.default_rng(0)
    agents = (1, 2, spec.n)
    obs = jnp.asarray(rng.normal(size=(*agents, spec.obs)), jnp.float32)
    state = jnp.asarray(rng.normal(size=(1, 2, spec.state)), jnp.float32)
    ones = jnp.ones(agents)
    legal = jnp.ones((*agents, 2), bool)
    view = View(obs, state, legal, ones > 0, jnp.zeros((1, 2), bool), ones, ones)
    return Context(view, jnp.zeros((*agents, 0)))


@pytest.mark.parametrize("name", ["mappo", "maa2c", "maddpg", "matd3", "happo"])
def test_an_agents_own_state_is_the_state_and_its_observation(name: str):
    spec = REAL if name in ("maddpg", "matd3") else APART
    usual = critic_of(name, spec, "game", reward="mean").inputs["critic"]
    own = critic_of(name, spec, "agent", reward="mean")
    assert usual == (STATE,)
    assert own.inputs["critic"][:2] == (STATE, OBS)
    assert (ID in own.inputs["critic"]) == (name != "happo")  # whose critic no agent is told
    parts = gather(own.inputs["critic"], instant(spec), spec)
    assert parts[0].shape == (1, 2, 1, 5) and parts[1].shape == (1, 2, 3, 2)


def test_one_value_for_each_agent_or_one_for_all():
    for state, rows in (("game", 1), ("agent", 3)):
        algorithm = critic_of("mappo", APART, state)
        critic = algorithm.init(np.random.default_rng(0)).params["critic"]
        out, _ = algorithm.critic(critic, instant(APART), critic.torso.carry(2, rows))
        assert out.shape == (1, 2, rows, 1) and algorithm.critic_rows == rows
        assert len(np.unique(np.asarray(out))) == 2 * rows


def test_pruned_is_what_each_saw_first_and_nothing_twice():
    algorithm = critic_of("mappo", JOINED, "pruned")
    assert algorithm.inputs["critic"] == (OBS, OTHERS_OBS, ID)
    context = instant(JOINED)
    own, others, _ = gather(algorithm.inputs["critic"], context, JOINED)
    obs = np.asarray(context.view.obs)[0, 0]
    joined = np.concatenate([own, others], -1)[0, 0]
    np.testing.assert_array_equal(joined[0], obs[[0, 1, 2]].ravel())
    np.testing.assert_array_equal(joined[1], obs[[1, 2, 0]].ravel())
    np.testing.assert_array_equal(joined[2], obs[[2, 0, 1]].ravel())


@pytest.mark.slow
def test_pruned_with_one_agent_is_ppo():
    env = make("test/identity", n=1, length=5)
    ends = [
        run(Loop(env, {TEAM: build(name, env, **TINY, **own)}, games=4, window=8, steps=1000), 3)[0]
        for name, own in (("ppo", {}), ("mappo", {"state": "pruned"}))
    ]
    assert_close(ends[0].learners, ends[1].learners, 1e-6)


@pytest.mark.parametrize("name", ["mappo", "qmix", "vdac", "facmac", "qtran"])
def test_joined_is_all_observations_in_every_family(name: str):
    spec = REAL if name == "facmac" else APART
    algorithm = critic_of(name, spec, "joined")
    assert algorithm.spec.state == 6 and algorithm.joins
    seen = algorithm.seen(instant(spec).view)
    np.testing.assert_array_equal(seen.state, seen.obs.reshape(1, 2, 6))


def test_joined_where_it_is_so_already_is_as_before_to_the_bit():
    window = probe("mappo").seen.window
    plain, joined = (
        learnt("mappo", state=state)(window, clock())[1] for state in ("game", "joined")
    )
    assert bits(plain) == bits(joined)


@pytest.mark.parametrize(
    ("name", "spec", "state", "wrong"),
    [
        ("ppo", APART, "agent", "ppo cannot see the state as 'agent': set state to game"),
        ("qmix", APART, "agent", "set state to game or joined"),
        ("dqn", APART, "joined", "set state to game"),
        ("mappo", APART, "pruned", "not just all observations joined: set state to agent"),
    ],
)
def test_a_state_that_means_nothing_is_refused(name: str, spec: Spec, state: str, wrong: str):
    with pytest.raises(ShoalError, match=wrong):
        critic_of(name, spec, state)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("maddpg", "agent"),
        ("masac", "pruned"),
        ("coma", "pruned"),
        ("mappo", "agent"),
        ("qmix", "joined"),
        ("hatd3", "agent"),
        ("happo", "pruned"),
        ("facmac", "joined"),
    ],
)
def test_a_state_of_any_form_is_learnt_from(name: str, state: str):
    """Traced, not compiled; with running statistics, and rewards of the team."""
    env = mortal()
    settings = TINY | (OFF if name in REPLAYED else {}) | {"normalise_obs": True, "reward": "mean"}
    loop = Loop(env, {TEAM: build(name, env, state=state, **settings)}, 4, 10, 1000)
    before = loop.template(0)
    after, metrics = jax.eval_shape(loop.program(1), before)
    assert jax.tree.structure(before.learners) == jax.tree.structure(after.learners)
    assert {"critic_loss", "loss"} & set(metrics.learning[TEAM])


# -- things alike in an observation ----------------------------------------------------------------

LISTING = Spec(("a", "b"), obs=6, state=12, action=Discrete(2), joined=True)


@pytest.mark.parametrize("name", ["ppo", "mappo", "qmix", "maddpg"])
def test_the_order_in_which_a_game_lists_things_alike_is_not_seen(name: str):
    kind = find(name)
    algorithm = kind(kind.Config(entities="1:2x2", **TINY), LISTING)
    view = instant(LISTING).view
    swapped = view._replace(obs=view.obs[..., jnp.array([0, 3, 4, 1, 2, 5])])
    seen, same = (algorithm.seen(one) for one in (view, swapped))
    np.testing.assert_array_equal(seen.obs, same.obs)
    assert (np.asarray(view.obs) != np.asarray(swapped.obs)).any()
    if algorithm.sees_state:  # which is made of what the agents see
        np.testing.assert_array_equal(seen.state, seen.obs.reshape(1, 2, 12))


@pytest.mark.parametrize("entities", ["1:2x3", "0:2x2@4,6"])
def test_entities_beyond_the_observation_are_refused(entities: str):
    with pytest.raises(ShoalError, match="observations of 6 numbers"):
        find("ppo")(find("ppo").Config(entities=entities), LISTING)


def test_entities_that_the_game_says():
    for game in (make("mpe/simple_spread", N=2), make("lbf/8x8-2p-3f")):
        spec = game.teams[TEAM]
        told = find("ppo")(find("ppo").Config(entities="game"), spec)
        assert told.entities == parse(spec.entities) and told.entities.kinds
    with pytest.raises(ShoalError, match="does not say which things alike"):
        find("ppo")(find("ppo").Config(entities="game"), LISTING)
    with pytest.raises(ShoalError, match="each first:numbersxcount"):
        find("ppo").Config(entities="games")


def test_statistics_leave_places_in_the_games_unit():
    """Else distances would be of other units."""
    options = {"entities": "0:2x2@4,5", "normalise_obs": True}
    algorithm = find("ppo")(find("ppo").Config(**options), LISTING)
    assert not algorithm.standardiser.numbers.any()
    plain = find("ppo")(find("ppo").Config(normalise_obs=True), LISTING)
    assert plain.standardiser.numbers.all()


# -- whole numbers ---------------------------------------------------------------------------------


def test_numbers_beyond_the_ends_are_read_as_the_ends():
    algorithm = find("ppo")(find("ppo").Config(one_hot=2, **TINY), LISTING)
    learner = algorithm.init(np.random.default_rng(0))
    opening = at(instant(LISTING).view, 0)

    def likelihood(number: float) -> Any:
        view = opening._replace(obs=jnp.full_like(opening.obs, number))
        carry = algorithm.carry(learner, 2)
        decision = decided(algorithm, learner, jax.random.key(0), view, carry, clock(), False)
        return decision.record.log_prob

    assert bits(likelihood(2.0)) == bits(likelihood(7.0)) == bits(likelihood(2.3))
    assert bits(likelihood(2.0)) != bits(likelihood(1.0)) != bits(likelihood(-1.0))


def test_a_state_is_read_one_hot_where_it_joins_observations():
    kind = find("mappo")
    wide = {}
    for joined in (True, False):
        spec = replace(LISTING, joined=joined)
        algorithm = kind(kind.Config(one_hot=2, agent_id=False, **TINY), spec)
        params = algorithm.init(np.random.default_rng(0)).params
        torso = params["critic"].torso
        layers = torso.inner.layers if joined else torso.layers
        wide[joined] = layers[0].weight.shape[1]
        assert params["actor"].torso.inner.layers[0].weight.shape[1] == 6 * 5
    assert wide == {True: 12 * 5, False: 12}


def test_what_is_not_read_one_hot_is_refused():
    images = replace(LISTING, obs=12, pixels=(2, 2, 3))
    with pytest.raises(ShoalError, match="images, which are not read one-hot"):
        find("ppo")(find("ppo").Config(one_hot=1), images)
    with pytest.raises(ShoalError, match="set one_hot to 0 or normalise_obs to False"):
        find("ppo").Config(one_hot=1, normalise_obs=True)
    with pytest.raises(ShoalError, match="one_hot must be at most 100"):
        find("ppo").Config(one_hot=101)


# -- entropy ---------------------------------------------------------------------------------------


def test_the_weight_of_the_entropy_falls_to_its_share():
    algorithm = build("ppo", mortal(), entropy=0.2, entropy_decay=0.75, **TINY)
    assert_close(algorithm.entropy_weight(clock(progress=0.0)), 0.2, 1e-6)
    assert_close(algorithm.entropy_weight(clock(progress=0.5)), 0.125, 1e-6)
    assert_close(algorithm.entropy_weight(clock(progress=1.0)), 0.05, 1e-6)


@pytest.mark.parametrize("name", ["ppo", "coma"])
def test_at_the_end_a_weight_that_is_lost_is_none(name: str):
    """Bits of the last update are those of a run without bonus."""
    window = probe(name).seen.window
    ends = [
        learnt(name, **options)(window, clock(progress=1.0))[1]
        for options in ({"entropy": 0.5, "entropy_decay": 1.0}, {"entropy": 0.0}, {"entropy": 0.5})
    ]
    assert_close(ends[0], ends[1], 1e-6)
    assert bits(ends[0]) != bits(ends[2])
