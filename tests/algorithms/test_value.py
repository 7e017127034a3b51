"""The value family: utilities, mixers, targets, exploration, on a game whose agents die and may not
do everything."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    OFF,
    OWN,
    TEAM,
    TINY,
    VALUE,
    Studied,
    altered,
    assert_close,
    bits,
    build,
    call,
    clock,
    decided,
    mortal,
    on_devices,
    opened,
    replayed,
    run,
    studied,
    traced,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import Array
from jax.sharding import PartitionSpec

import shoal
from shoal import algorithms
from shoal.algorithms.off_policy import gradients
from shoal.config.config import Config
from shoal.engine.evaluate import Evaluator
from shoal.engine.loop import Loop
from shoal.envs import make
from shoal.envs.native.matrix import MatrixGame
from shoal.errors import ShoalError
from shoal.learning.exploration import SCHEDULES, epsilon_greedy
from shoal.learning.memory import Drawn
from shoal.learning.reduce import AXIS
from shoal.nets.inputs import gather
from shoal.nets.mixers import Duplex, Monotone, UnrestrictedMixer
from shoal.store import folder

MIXING = [kind.name for kind in algorithms.VALUE if kind.mixes]
RUN = [(name, "gru", "own") for name in VALUE]  # feed-forward and shared, they run in test_learning
ONLY_TRACED = [(name, *rest) for name in VALUE for rest in (("mlp", "own"), ("gru", "shared"))]


# -- every member ----------------------------------------------------------------------------------


@pytest.mark.parametrize("member", RUN, ids="-".join)
def test_training_stays_finite_and_moves_every_part(member):
    algorithm, before, state, metrics = replayed(*member)
    learner = state.learners[TEAM]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((learner, metrics)))
    assert learner.updates == 6 and metrics.learning[TEAM]["updates"].tolist() == [2, 2, 2]
    for nets, fresh in ((learner.params, before.params), (learner.target, before.target)):
        for part, net in nets.items():
            moved = [
                ours != theirs for ours, theirs in zip(bits(net), bits(fresh[part]), strict=True)
            ]
            assert all(moved), part
    assert set(learner.target) == set(learner.params) and algorithm.name in member


@pytest.mark.parametrize("member", ONLY_TRACED, ids="-".join)
def test_the_other_torsos_and_sharings_fit_together(member):
    assert {"loss", "q", "updates"} <= set(traced(*member, mortal()))


@pytest.mark.parametrize("member", RUN, ids="-".join)
def test_actions_are_legal(member):
    """Of all that was kept, but for the dummy steps over a reset."""
    ring = replayed(*member)[2].memories[TEAM].ring
    ring = jax.tree.map(lambda x: x[0, :30], ring)  # the slots in use, on the one device
    allowed = np.take_along_axis(ring.view.legal[:-1], ring.action[1:, ..., None], -1)[..., 0]
    assert allowed[~ring.view.first[1:]].all() and ring.view.first.any()
    assert 0 < ring.view.legal.mean() < 1


# -- targets ---------------------------------------------------------------------------------------


def regressed(seen: Studied, learner: Any = None, **settings: Any) -> tuple[np.ndarray, np.ndarray]:
    """The values and the targets a member's loss compares."""
    algorithm = build(seen.algorithm.name, mortal(), **(TINY | OFF | settings))
    algorithm.regression = lambda q, target, *_: (q, target)
    return call(
        lambda one, batch: algorithm.losses(one.params, one, batch),
        learner or seen.learner,
        seen.batch,
    )


def utilities(seen: Studied, nets: dict) -> np.ndarray:
    context = seen.batch.context
    start = nets["agents"].torso.carry(context.view.first.shape[1], 2)
    return np.asarray(
        call(lambda net: seen.algorithm.utilities(net, context, start)[0], nets["agents"])
    )


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("name", ["dqn", "vdn"])
def test_trap_16_targets_by_hand(name, double):
    """r + γ Q'(s', the best legal action of the online net, or of the target's), nothing after a
    true end."""
    seen = studied(name)
    learner = seen.learner._replace(
        target=jax.tree.map(lambda x: x * 0.7 + 0.1, seen.learner.target)
    )
    window = seen.batch.window
    online, follower = utilities(seen, learner.params), utilities(seen, learner.target)
    legal, alive = np.asarray(window.view.legal), np.asarray(window.view.alive)
    expected_q, ahead = np.zeros(alive.shape)[:-1], np.zeros(alive.shape)
    for place in np.ndindex(*alive.shape):
        allowed = np.flatnonzero(legal[place])
        chooser = online if double else follower
        ahead[place] = follower[place][max(allowed, key=lambda a: chooser[place][a])]
        if place[0] < len(expected_q):
            expected_q[place] = online[place][window.action[place]]
    reward, discount = np.asarray(seen.batch.reward), np.asarray(seen.batch.discount)
    if name == "vdn":
        expected_q, ahead = (
            (x * alive[: len(x)]).sum(-1, keepdims=True) for x in (expected_q, ahead)
        )
        reward, discount = reward[..., :1], discount[..., :1]
    valid = np.asarray(window.valid)
    expected = np.where(valid, reward + 0.99 * discount * ahead[1:], ahead[:-1])
    q, target = regressed(seen, learner, double=double)
    np.testing.assert_allclose(q, expected_q, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(target, expected, rtol=1e-4, atol=1e-5)
    assert (discount == 0).any() and not valid.all()


@pytest.mark.parametrize(
    ("name", "double"), [*((name, True) for name in VALUE), ("qmix", False), ("qtran", False)]
)
def test_trap_16_no_value_of_an_illegal_action_reaches_the_loss(name, double):
    seen = studied(name)
    algorithm = build(name, mortal(), **(TINY | OFF | {"double": double}))
    learner = altered(seen.learner, "agents", "target", 0.1)

    def loss(tempting: float) -> Any:
        def tempted(net, context, carry):
            q, carry = type(algorithm).utilities(algorithm, net, context, carry)
            return q + tempting * ~context.view.legal, carry

        algorithm.utilities = tempted
        return algorithm.losses(learner.params, learner, seen.batch)

    plain, tempted = call(lambda: (loss(0.0), loss(1e4)))
    assert_close(tempted, plain, 1e-5)
    assert np.isfinite(plain[0]) and plain[0] > 0


def without_nets(name: str, **settings: Any) -> tuple[dict, np.ndarray]:
    """Metrics and targets of a learner whose nets all answer 0."""
    seen = studied(name)
    algorithm = build(name, mortal(), **(TINY | OFF | settings))
    nothing = jax.tree.map(jnp.zeros_like, seen.learner)

    def whole(drawn):
        batch = algorithm.batch(drawn)
        rows = 1 if algorithm.mixes else 2
        target = algorithm.targets(batch, jnp.zeros((7, 8, rows)))
        return algorithm.losses(nothing.params, nothing, batch)[1][0], target

    return call(whole, seen.drawn)


@pytest.mark.parametrize("name", VALUE)
def test_trap_17_the_teams_reward_is_the_mean_or_the_sum_as_named(name):
    """Two agents: targets differ by the factor 2, squared errors by 4."""
    (mean, target_mean), (total, target_sum) = (
        without_nets(name, reward=how) for how in ("mean", "sum")
    )
    np.testing.assert_allclose(target_sum, 2 * target_mean, rtol=1e-6)
    assert np.abs(target_mean).max() > 0.4
    assert total["error"] == pytest.approx(2 * mean["error"], rel=1e-5)
    assert total["loss"] == pytest.approx(4 * mean["loss"], rel=1e-5)


def test_trap_17_a_mixer_has_no_reward_of_ones_own():
    for name in MIXING:
        with pytest.raises(ShoalError, match="reward must be one of mean, sum, not 'own'"):
            Config.build("test/mortal", {TEAM: (name, {"reward": "own"})}, {}, {})


def configured(
    name: str, games: int = 8, window: int = 5, devices: int = 1, **options: Any
) -> Config:
    chosen = {
        "hidden": 4,
        "warmup": 100,
        "batch": 32,
        "length": 10,
        "updates": 2,
        "capacity": 2000,
        **options,
    }
    settings = {"steps": 1000, "games": games, "window": window, "devices": devices}
    return Config.build("test/mortal", {TEAM: (name, chosen)}, {}, settings)


@pytest.mark.parametrize("name", ["dqn", "qmix", "ddpg", "masac"])
def test_trap_17_26_the_protocol_says_how_rewards_pool_and_how_often_a_step_is_learnt_from(name):
    """2 x 32 x 10 transitions learnt from for every 8 x 5 played."""

    def protocol(**options: Any) -> dict:
        return folder.protocol(configured(name, **options))["teams"][TEAM]

    assert protocol(reward="mean") == {"reward": "mean", "updates_per_step": 16.0}
    assert protocol(reward="sum")["reward"] == "sum"
    assert protocol(games=16)["updates_per_step"] == 8.0
    assert protocol(window=10)["updates_per_step"] == 8.0
    assert protocol(updates=1)["updates_per_step"] == 8.0
    # the batch is that of all devices together
    assert protocol(devices=2)["updates_per_step"] == 16.0


# -- what agents see -------------------------------------------------------------------------------


def watch(algorithm: Any, learner: Any, view: Any, carry: Any) -> Any:
    return algorithm.utilities(
        learner.params["agents"], algorithm.context(learner, view, carry), carry.hidden
    )[0][0]


@pytest.mark.parametrize("last_action", [False, True])
@pytest.mark.parametrize("torso", ["mlp", "gru"])
def test_trap_13_18_a_drawn_window_gives_the_utilities_that_acted(torso, last_action):
    """From an episode's opening on, across the next one's; feed-forward, everywhere."""
    settings = {"length": 16, "batch": 32, "sharing": "own", "last_action": last_action}
    seen = studied("dqn", watch=watch, torso=torso, windows=8, **settings)
    number = seen.drawn.slot + 1 + np.arange(17)[:, None]
    known = number < len(seen.played.action)  # of the very last instant nothing was asked
    acting = np.asarray(seen.played.record)[np.minimum(number, 79), seen.drawn.game]
    warm = np.cumsum(np.asarray(seen.drawn.window.view.first), 0)
    assert (warm.max(0) >= 2).any()
    sure = known & ((warm > 0) if torso == "gru" else True)
    np.testing.assert_allclose(utilities(seen, seen.learner.params)[sure], acting[sure], atol=1e-6)
    assert (
        torso == "mlp"
        or np.abs(utilities(seen, seen.learner.params) - acting)[known & ~sure].max() > 1e-4
    )


def test_trap_18_the_last_action_is_shown_but_at_the_first_instant():
    seen = studied("dqn", last_action=True, batch=64)
    last, first = np.asarray(seen.batch.context.last), np.asarray(seen.drawn.window.view.first)
    number, game = seen.drawn.slot + 1 + np.arange(7)[:, None], seen.drawn.game
    expected = np.eye(3)[seen.played.action[number - 1, game]] * ~first[..., None, None]
    np.testing.assert_array_equal(last, expected)
    assert (
        first[0].any()
        and first[1:].any()
        and not last[first].any()
        and (last[~first].sum(-1) == 1).all()
    )
    assert studied("dqn").batch.context.last.shape[-1] == 0


# -- exploration -----------------------------------------------------------------------------------


def test_trap_19_epsilon_falls_with_environment_steps():
    for steps, expected in {0: 0.9, 100: 0.75, 300: 0.45, 500: 0.15, 501: 0.15, 1e7: 0.15}.items():
        assert SCHEDULES["linear"](0.9, 0.15, 500, jnp.float32(steps)) == pytest.approx(expected)
    for steps in (0, 100, 500, 5000):
        expected = 0.15 + 0.75 * np.exp(-steps / 100)
        assert SCHEDULES["exponential"](0.9, 0.15, 500, jnp.float32(steps)) == pytest.approx(
            expected, rel=1e-5
        )


@pytest.mark.parametrize("decay", SCHEDULES)
def test_trap_19_epsilon_is_a_function_of_the_steps_alone(decay):
    """Whatever share of the run they are, whatever the learner has been through: so a resumed run
    goes on with it."""
    settings = {"epsilon": 0.8, "epsilon_end": 0.1, "epsilon_steps": 90, "epsilon_decay": decay}
    env = make("test/identity", n=1, length=5)
    algorithm = build("dqn", env, **(TINY | OFF | settings | {"length": 4}))
    loop = Loop(env, {TEAM: algorithm}, games=4, window=6, steps=1000)
    step, state = loop.program(2), loop.init(0)
    state, first = step(state)
    saved = jax.device_put(jax.tree.map(np.array, state), loop.shardings)
    _, second = step(saved)
    told = np.concatenate([first.learning[TEAM]["epsilon"], second.learning[TEAM]["epsilon"]])
    steps = np.array([0, *first.steps, second.steps[0]], np.float32)
    expected = [SCHEDULES[decay](0.8, 0.1, 90, s) for s in steps]
    np.testing.assert_allclose(told, expected, rtol=1e-5)
    assert len(set(told.tolist())) == 4
    assert algorithm.epsilon(clock(30, 0.1)) == algorithm.epsilon(clock(30, 0.9))


def test_trap_19_any_legal_action_with_probability_epsilon():
    legal = jnp.broadcast_to(jnp.array([[1, 1, 0, 1], [0, 0, 1, 0]], bool), (20_000, 2, 4))
    greedy = jnp.broadcast_to(jnp.array([1, 2]), (20_000, 2))
    action = np.asarray(epsilon_greedy(jax.random.key(0), greedy, legal, jnp.float32(0.3)))
    rate = (action[..., None] == np.arange(4)).mean(0)
    np.testing.assert_allclose(rate, [[0.1, 0.8, 0, 0.1], [0, 0, 1, 0]], atol=0.015)
    assert rate[0, 2] == 0 and rate[1, 2] == 1
    both = (
        epsilon_greedy(jax.random.key(1), greedy, jnp.ones_like(legal), jnp.float32(0.5)) != greedy
    )
    # each agent for itself
    assert np.corrcoef(np.asarray(both).T)[0, 1] == pytest.approx(0.0, abs=0.03)


def test_trap_19_greedy_evaluation_knows_no_epsilon():
    """Though training at the same clock is all chance."""
    env = make("test/identity", n=2, length=20)
    algorithm = build("dqn", env, **TINY)
    learner = algorithm.init(np.random.default_rng(0))
    view = opened(env, 16)[1][TEAM]
    carry = algorithm.carry(learner, 16)
    q = presently(algorithm, learner, view, carry)[0]

    def choose(key, steps):
        return [
            decided(algorithm, learner, key, view, carry, clock(steps), greedy).action
            for greedy in (True, False)
        ]

    (greedy, drawn), (again, other) = choose(jax.random.key(1), 0.0), choose(jax.random.key(2), 1e6)
    assert np.array_equal(greedy, np.argmax(q, -1)) and np.array_equal(greedy, again)
    assert not np.array_equal(drawn, greedy) and (np.asarray(other) == greedy).mean() > 0.9
    scores = [
        Evaluator(env, {TEAM: algorithm}, 8, True)({TEAM: learner}, 0, clock(steps))
        for steps in (0, 1e6)
    ]
    assert bits(scores[0]) == bits(scores[1])


# -- mixers ----------------------------------------------------------------------------------------

AGENTS, STATE, ACTIONS = 3, 4, 3


@cache
def mixers() -> dict[str, Any]:
    """`seed -> …` of a mixer with random weights, biases too, at a random state."""
    shapes = {
        "monotone": Monotone(np.random.default_rng(0), AGENTS, STATE, 5, 7),
        "duplex": Duplex(np.random.default_rng(0), AGENTS, STATE, ACTIONS, 2, 7),
    }

    def random(key, net):
        leaves, tree = jax.tree.flatten(net)
        keys = jax.random.split(key, len(leaves))
        return jax.tree.unflatten(
            tree, [jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)]
        )

    def slopes(seed, size):
        key = jax.random.key(seed)
        state = size * jax.random.normal(jax.random.fold_in(key, 2), (1, 50, STATE))
        q = size * jax.random.normal(jax.random.fold_in(key, 3), (1, 50, AGENTS))
        net = random(jax.random.fold_in(key, 1), shapes["monotone"])
        return jax.grad(lambda q: net(q, state).sum())(q)

    def joint(seed, size):
        """Every joint action's value [A,A,A], and the agents' own utilities."""
        key = jax.random.key(seed)
        state = size * jax.random.normal(key, (STATE,))
        q = size * jax.random.normal(jax.random.fold_in(key, 1), (AGENTS, ACTIONS))
        net = random(jax.random.fold_in(key, 2), shapes["duplex"])
        choices = jnp.stack(
            jnp.meshgrid(*[jnp.arange(ACTIONS)] * AGENTS, indexing="ij"), -1
        ).reshape(1, -1, AGENTS)
        taken = jnp.take_along_axis(q[None, None], choices[..., None], -1)[..., 0]
        top = jnp.broadcast_to(q.max(-1), taken.shape)
        states = jnp.broadcast_to(state, (*taken.shape[:2], STATE))
        actions = jax.nn.one_hot(choices, ACTIONS).reshape(*taken.shape[:2], -1)
        return net(taken, top, states, actions).reshape((ACTIONS,) * AGENTS), q

    return {"slopes": jax.jit(slopes), "joint": jax.jit(joint)}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31 - 1), st.sampled_from([0.1, 1.0, 30.0]))
def test_trap_20_a_monotone_mix_never_falls_with_any_utility(seed, size):
    slopes = np.asarray(mixers()["slopes"](seed, size))
    assert (slopes >= 0).all() and slopes.max() > 0


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**31 - 1), st.sampled_from([0.1, 1.0, 5.0]))
def test_trap_20_the_best_joint_action_of_a_duplex_mix_is_each_agents_own_best(seed, size):
    """The principle QPLEX is built on (IGM), though joint values are no sum: they need not be alike
    in order else."""
    values, q = (np.asarray(x) for x in mixers()["joint"](seed, size))
    own = tuple(q.argmax(-1))
    assert values[own] >= values.max() - 1e-5 * np.abs(values).max()


def test_a_free_mix_may_fall_with_a_utility():
    net = UnrestrictedMixer(np.random.default_rng(0), AGENTS, STATE, 16)
    q, state = np.random.default_rng(1).normal(size=(2, 1, 200, 4)).astype(np.float32)
    slopes = jax.jit(jax.grad(lambda q: net(q, state).sum()))(q[..., :AGENTS])
    assert (slopes < 0).any() and (slopes > 0).any()


def test_weights_of_weighted_qmix():
    """Optimistic: less where the mix is too high. Central: less unless the action is the best or
    beats the best."""
    q, target = (jnp.array(x)[None, :, None] for x in ([1.0, 1.0, 1.0, 1.0], [2.0, 0.5, 2.0, 0.5]))
    action, top = (
        jnp.array([[[0, 1], [0, 1], [0, 1], [0, 1]]]),
        jnp.array([[[0, 1], [0, 1], [0, 2], [0, 2]]]),
    )
    star = jnp.ones((1, 4, 1))
    ow, cw = (
        studied(name).algorithm.lighter(q, target, action, top, star)
        for name in ("owqmix", "cwqmix")
    )
    assert ow.ravel().tolist() == [False, True, False, True]
    assert cw.ravel().tolist() == [False, False, False, True]


def test_dueling_centres_advantages_over_the_legal_actions():
    """Wang et al. 2016, eq. 9: the mean legal utility is the value, whatever the net says of
    illegal actions."""
    seen = studied("dqn", dueling=True)
    net = seen.learner.params["agents"]
    assert net.out.weight.shape[-1] == 4
    q, legal = utilities(seen, seen.learner.params), np.asarray(seen.batch.window.view.legal)

    def heads(net, context):
        features, _ = net.torso(
            gather(seen.algorithm.inputs["actor"], context, seen.algorithm.spec), None, None
        )
        return net.out(features)

    out = np.asarray(call(heads, net, seen.batch.context))
    mean = (q * legal).sum(-1) / legal.sum(-1)
    np.testing.assert_allclose(mean, out[..., 3], atol=1e-5)
    np.testing.assert_allclose(q - q[..., :1], out[..., :3] - out[..., :1], atol=1e-5)


# -- equivalences ----------------------------------------------------------------------------------


def after_a_while(name: str, env: Any, **settings: Any) -> Any:
    algorithm = build(name, env, **(TINY | OFF | settings))
    return run(Loop(env, {TEAM: algorithm}, games=4, window=8, steps=1000), 4)[0].learners[TEAM]


@pytest.mark.slow
@pytest.mark.parametrize(
    "env", [make("test/identity", n=1, length=5), make("test/mortal", n=1, length=5)]
)
def test_trap_30_vdn_of_one_agent_is_dqn(env):
    """To float precision: a sum of one number compiles to other instructions than the number."""
    assert_close(after_a_while("vdn", env), after_a_while("dqn", env), 1e-5)


def test_trap_30_a_partition_with_one_owner_is_shared_to_the_bit():
    env = make("test/identity", n=2, length=5)
    assert bits(after_a_while("vdn", env, sharing="0,0")) == bits(
        after_a_while("vdn", env, sharing="shared")
    )


@pytest.mark.parametrize("name", ["dqn", "cwqmix", "qtran"])
def test_two_devices_learn_from_their_shares_what_one_learns_from_all(name):
    """Gradients are those of the whole batch, not means of two halves' means."""
    seen = studied(name)
    view = seen.drawn.window.view
    first = np.array(view.first)
    first[:, :2] = True  # two windows of the first half hold no step: unequal shares
    drawn = seen.drawn._replace(window=seen.drawn.window._replace(view=view._replace(first=first)))

    def descent(drawn: Drawn) -> tuple:
        batch = seen.algorithm.batch(drawn)
        return gradients(seen.algorithm.losses, seen.learner.params, seen.learner, batch)[:2]

    alone, both = (jax.jit(on_devices(descent, n, (by_game(drawn),)))(drawn) for n in (1, 2))
    assert_close(both, alone, 1e-5)


def by_game(drawn: Drawn) -> Drawn:
    """How a draw is dealt out to devices: windows along their games axis."""
    along = PartitionSpec(None, AXIS)
    window = jax.tree.map(lambda _: along, drawn.window)
    return Drawn(window, along, OWN, OWN, OWN, OWN, PartitionSpec())


def test_the_loop_runs_on_two_devices_and_learners_stay_the_same_on_both():
    env = mortal()
    loop = Loop(env, {TEAM: build("qmix", env, **TINY, **OFF)}, 4, 10, 1000, devices=2)
    state, metrics = loop.program(2)(loop.init(0))
    for leaf in jax.tree.leaves((state.learners, state.steps)):
        one, other = (np.asarray(shard.data) for shard in leaf.addressable_shards)
        assert one.tobytes() == other.tobytes() and one.shape == leaf.shape
    ring = state.memories[TEAM].ring
    assert ring.action.shape[:3] == (2, 80, 2) and bits(ring.view.obs[0]) != bits(ring.view.obs[1])
    assert np.isfinite(metrics.learning[TEAM]["loss"]).all() and state.learners[TEAM].updates == 4


# -- when it learns --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["vdn", "matd3", "sac"])
def test_nothing_is_learnt_before_warmup(name):
    """34 valid steps of 40 come with each window: 100 are there when the fourth begins."""
    env = mortal()
    algorithm = build(name, env, **(TINY | OFF | {"warmup": 100}))
    loop = Loop(env, {TEAM: algorithm}, games=4, window=10, steps=1000)
    step, state = loop.program(3), loop.init(0)
    fresh = bits(state.learners)
    state, metrics = step(state)
    assert bits(state.learners) == fresh and not metrics.learning[TEAM]["updates"].any()
    assert state.memories[TEAM].size == 30 and metrics.steps.tolist()[1] < 100 <= metrics.steps[2]
    state, metrics = step(state)
    assert bits(state.learners) != fresh and metrics.learning[TEAM]["updates"].tolist() == [2, 2, 2]


def test_nothing_is_learnt_before_there_is_a_window_to_draw():
    env = mortal()
    algorithm = build("dqn", env, **(TINY | OFF | {"length": 20}))
    state, metrics = run(Loop(env, {TEAM: algorithm}, games=4, window=10, steps=1000), 4)
    assert (
        metrics.learning[TEAM]["updates"].tolist() == [0, 0, 2, 2]
        and state.learners[TEAM].updates == 4
    )


@pytest.mark.parametrize(("tau", "every"), [(1.0, 3), (0.25, 1), (0.25, 2)])
def test_target_networks_follow(tau, every):
    """A copy every few steps, or a share of the way."""
    seen = studied("vdn")
    algorithm = build("vdn", mortal(), **(TINY | OFF | {"tau": tau, "target_every": every}))

    def steps(learner, batch):
        trail = [learner]
        for k in range(4):
            trail.append(algorithm.improve(trail[-1], batch, jax.random.key(k), clock())[0])
        return trail

    trail = call(steps, seen.learner, seen.batch)
    target = trail[0].target
    for k, learner in enumerate(trail[1:], 1):
        if k % every == 0:
            target = jax.tree.map(lambda t, p: t + tau * (p - t), target, learner.params)
        assert_close(learner.target, target, 1e-6)
        assert learner.updates == k
        assert (bits(learner.target) == bits(learner.params)) == (tau == 1.0 and k % every == 0)


# -- the dead --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MIXING)
def test_trap_08_11_what_the_dead_see_enters_no_mix(name):
    """Agent 0 lives for half of an episode. The state is another matter: it is the game's to say
    who is in it."""
    seen = studied(name)
    view = seen.batch.window.view
    dead = ~np.asarray(view.alive)
    assert 0 < dead.mean() < 1
    obs = np.where(dead[..., None], 7.0, np.asarray(view.obs)).astype(np.float32)
    other = view._replace(obs=obs)
    batch = seen.batch._replace(
        window=seen.batch.window._replace(view=other),
        context=seen.batch.context._replace(view=other),
    )
    losses = partial(seen.algorithm.losses, seen.learner.params, seen.learner)
    plain, haunted = call(lambda a, b: (losses(a), losses(b)), seen.batch, batch)
    assert_close(haunted, plain, 1e-6)


@pytest.mark.parametrize(("name", "reward"), [("vdn", "mean"), ("dqn", "mean"), ("dqn", "own")])
def test_trap_08_a_pooled_reward_counts_after_a_death_an_own_one_does_not(name, reward):
    seen = studied(name, reward=reward)
    window = seen.batch.window
    weight, valid = np.asarray(seen.batch.weight) > 0, np.asarray(window.valid)
    widow = (
        valid
        & ~np.asarray(window.view.alive)[:-1, :, :1]
        & np.asarray(window.view.alive)[:-1, :, 1:]
    )
    assert widow.any()
    assert weight[widow[..., 0]].tolist() == [[reward == "mean", True]] * int(widow.sum())
    assert not weight[~valid[..., 0]].any()


# -- what a mixer can and cannot say ---------------------------------------------------------------

LONG = {
    "warmup": 500,
    "capacity": 20_000,
    "epsilon": 1.0,
    "epsilon_end": 1.0,
    "batch": 16,
    "length": 4,
    "updates": 1,
    "lr": 1e-2,
    "anneal": False,
    "hidden": 16,
    "layers": 1,
    "tau": 0.05,
}


@pytest.mark.parametrize(
    ("name", "solves", "iterations", "own"),
    [
        ("vdn", False, 400, {}),
        ("qmix", False, 400, {}),
        ("cwqmix", True, 400, {}),
        ("owqmix", True, 400, {}),
        ("qtran", True, 400, {}),
        ("qplex", True, 2500, {"updates": 4, "batch": 32, "lr": 5e-3}),
    ],
)
def test_a_game_no_monotone_mix_can_tell(name, solves, iterations, own):
    """Exploring for ever, so that every joint action weighs alike: the best pays 8, what looks safe
    0."""
    env = make("matrix/nonmonotonic")
    algorithm = build(name, env, **(LONG | own))
    state, _ = run(Loop(env, {TEAM: algorithm}, games=16, window=8, steps=80_000), iterations)
    score = Evaluator(env, {TEAM: algorithm}, 2, greedy=True)(state.learners, 0, clock()).score()[
        TEAM
    ]
    assert score == (8.0 if solves else 0.0)


# -- hysteresis ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VALUE)
def test_hysteresis_scales_the_errors_that_would_lower_a_value_and_no_others(name):
    """To the bit. Metrics and priorities tell of errors as they are."""
    batch = studied(name).batch
    rows = 1 if name in MIXING else 2
    target = np.random.default_rng(0).normal(size=(*batch.weight.shape[:2], rows))
    target = target.astype(np.float32)

    def slopes(hysteresis: float) -> tuple:
        algorithm = build(name, mortal(), **(TINY | OFF | {"hysteresis": hysteresis}))
        loss = partial(algorithm.regression, target=target, batch=batch)
        slope, (metrics, wrong) = call(jax.grad(loss, has_aux=True), np.zeros_like(target))
        return slope, metrics["error"], wrong

    plain, hopeful = slopes(1.0), slopes(0.25)
    lower = target < 0
    assert (plain[0][lower] > 0).any() and (plain[0][~lower] < 0).any()
    assert bits(hopeful[0]) == bits(np.where(lower, np.float32(0.25) * plain[0], plain[0]))
    assert bits(hopeful[1:]) == bits(plain[1:])


@pytest.mark.parametrize("hysteresis", [-0.1, 1.1])
def test_hysteresis_is_a_fraction(hysteresis):
    with pytest.raises(ShoalError, match="hysteresis must lie between 0 and 1"):
        algorithms.find("dqn").Config(hysteresis=hysteresis)


def expectile(payoffs: np.ndarray, hysteresis: float) -> np.ndarray:
    """The values at which the errors of each row balance: above count 1, below `hysteresis`."""
    value = payoffs.max(-1, keepdims=True).astype(float)
    for _ in range(100):
        weight = np.where(payoffs >= value, 1.0, hysteresis)
        value = (weight * payoffs).sum(-1, keepdims=True) / weight.sum(-1, keepdims=True)
    return value[..., 0]


def explored(env: Any, hysteresis: float) -> np.ndarray:
    """`[N,A]` utilities that DQN learns in a one-step game when all explore for ever."""
    settings = LONG | {"anneal": True, "batch": 64, "updates": 2, "hysteresis": hysteresis}
    algorithm = build("dqn", env, **settings)
    state, _ = run(Loop(env, {TEAM: algorithm}, games=16, window=8, steps=25_600), 400)
    learner = state.learners[TEAM]
    view = opened(env, 1)[1][TEAM]
    return presently(algorithm, learner, view, algorithm.carry(learner, 1))[0, 0]


def presently(algorithm: Any, learner: Any, view: Any, carry: Any) -> np.ndarray:
    """Utilities `[1,B,N,A]` of what the agents see now."""

    def q(learner: Any) -> Any:
        context = algorithm.context(learner, view, carry)
        return algorithm.utilities(learner.params["agents"], context, carry.hidden)[0]

    return np.asarray(jax.jit(q)(learner))


@pytest.mark.slow
@pytest.mark.parametrize(("hysteresis", "best"), [(0.0, 11), (0.05, 11), (1.0, 5)])
def test_agents_that_explore_learn_expectiles_of_the_payoffs(hysteresis, best):
    """Their own best actions are the best joint action of Climbing only if they are hopeful.

    At 0 the values themselves are not compared: a net that has gone too high stays there.
    """
    env = make("matrix/climbing", repetitions=1)
    payoff = env.payoff()
    q = explored(env, hysteresis)
    assert payoff[tuple(q.argmax(-1))] == best
    if hysteresis:
        expected = [expectile(payoff, hysteresis), expectile(payoff.T, hysteresis)]
        np.testing.assert_allclose(q, expected, atol=0.6)


@dataclass(frozen=True)
class Lottery(MatrixGame):
    """One agent: 6 for sure, or 10 or nothing by the toss of a coin."""

    repetitions: int = 1
    name = "test/lottery"
    sides = {"agent": 1}

    def payoff(self) -> np.ndarray:
        return np.array([6.0, 10.0])

    def advance(self, key: Array, world: Array, actions: dict[str, Array]) -> Array:
        lucky = jax.random.bernoulli(key, 0.5, world.shape)
        return super().advance(key, world, actions) * (lucky | (actions["agent"] == 0))


@pytest.mark.parametrize(("hysteresis", "chosen"), [(1.0, 0), (0.05, 1)])
def test_hope_mistakes_luck_for_merit(hysteresis, chosen):
    """Chance looks like a mate that could still learn: the lottery seems worth 10 / 1.05, not 5."""
    q = explored(Lottery(), hysteresis)[0]
    assert q.argmax() == chosen
    np.testing.assert_allclose(q, [6.0, 10 / (1 + hysteresis)], atol=0.6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("game", "env", "best"), [("matrix/climbing", {}, 11), ("matrix/penalty", {"k": -100}, 10)]
)
def test_a_preset_finds_the_best_joint_action(game, env, best, tmp_path):
    sizes: dict[str, Any] = {"devices": 1, "evaluations": 0, "eval_episodes": 2, "quiet": True}
    result = shoal.train("dqn", game, env=env, seed=3, out=str(tmp_path), **sizes)
    assert result.scores == {TEAM: 25 * best}
