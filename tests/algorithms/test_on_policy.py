"""The policy family: what every member must do on a game whose agents die and may not do
everything."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from games import Drifting, Opposed
from helpers import (
    OWN,
    POLICY,
    TEAM,
    TINY,
    Probe,
    assert_close,
    bits,
    build,
    clock,
    first_step,
    learnt,
    mortal,
    on_devices,
    probe,
    run,
    traced,
)

from shoal import plugins
from shoal.algorithms import find
from shoal.algorithms.coma import COMA
from shoal.algorithms.deciding_in_turn import TurnPPO
from shoal.engine.loop import Loop
from shoal.engine.play import _rivals
from shoal.envs import make
from shoal.errors import ShoalError
from shoal.learning.exploration import floored
from shoal.learning.memory import Rollout
from shoal.learning.minibatches import Batch, Record, shuffled_rows
from shoal.learning.normalise import ReturnNormaliser
from shoal.learning.optim import adam, annealed, descend
from shoal.learning.reduce import mean_weights, moments
from shoal.nets.distributions import masked
from shoal.nets.inputs import ID, as_input
from shoal.nets.mlp import Mlp
from shoal.types import Discrete, Share, Spec, View, Window

OWNING = [name for name in POLICY if "own" in find(name).sharing]
MEMBERS = [
    *((name, "mlp", "shared") for name in POLICY),
    *((name, "gru", "own" if name in OWNING else "shared") for name in POLICY),
]
ONLY_TRACED = [(name, *rest) for name in OWNING for rest in (("mlp", "own"), ("gru", "shared"))]


@pytest.fixture(params=MEMBERS, ids="-".join)
def member(request) -> Probe:
    return probe(*request.param)


# -- every member ----------------------------------------------------------------------------------


def test_training_stays_finite_and_reaches_every_parameter(member):
    """Adam's first moment is zero only where no gradient ever came. COMA hides an agent's own
    action from its critic: weights of its own (`sharing=own`) that read it never get one. A mixer's
    ReLUs may rest: `test_vdac` looks at it. Actors without Adam (HATRPO) must have moved."""
    learner = member.state.learners[TEAM]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((learner, member.metrics)))
    hidden = 0
    if member.algorithm.name == "coma" and member.algorithm.config.sharing == "own":
        nets = 2  # value and advantage
        hidden = (
            nets
            * member.algorithm.spec.n
            * member.algorithm.spec.action.size
            * member.algorithm.config.hidden
        )
    fresh = member.algorithm.init(np.random.default_rng(0)).params["actor"]
    moment = {"actor": jax.tree.map(np.subtract, learner.params["actor"], fresh)}
    moment |= {part: opt[1].mu for part, opt in learner.opt.items()}
    assert sum(int((leaf == 0).sum()) for leaf in jax.tree.leaves(moment["actor"])) == 0
    critic = getattr(moment["critic"], "local", moment["critic"])
    assert sum(int((leaf == 0).sum()) for leaf in jax.tree.leaves(critic)) == hidden


@pytest.mark.parametrize("other", ONLY_TRACED, ids="-".join)
def test_the_other_torsos_and_sharings_fit_together(other):
    assert {"actor_loss", "critic_loss", "entropy"} <= set(traced(*other, mortal()))


def test_actions_are_legal(member):
    window = member.seen.window
    assert np.take_along_axis(window.view.legal[:-1], window.action[..., None], -1).all()
    assert 0 < window.view.legal.mean() < 1


def test_trap_12_13_18_the_window_reevaluates_to_the_acting_log_probs(member):
    """So the ratio is 1 before the first update: with masks, memory and last actions, across an
    episode's end."""
    window = member.seen.window
    assert window.view.first[1:-1].any() and not window.view.first[0].all()
    rounding = 1e-5 if isinstance(member.algorithm, TurnPPO) else 1e-6  # step by step, or at once
    np.testing.assert_allclose(member.seen.log_prob, window.record.log_prob, atol=rounding)
    assert window.record.log_prob.min() < -0.1


def corrupted(window: Window) -> Window:
    """Noise wherever nobody alive acted: seen, earned, thought of, allowed."""
    idle = window.weight == 0
    assert 0 < idle.mean() < 1
    rng = np.random.default_rng(0)
    noise = {
        "obs": rng.normal(size=window.view.obs.shape),
        "reward": 9 * rng.normal(size=window.view.reward.shape),
    }
    obs, reward, legal = (
        np.array(window.view.obs),
        np.array(window.view.reward),
        np.array(window.view.legal),
    )
    obs[:-1][idle], reward[1:][idle], legal[:-1][idle] = (
        noise["obs"][:-1][idle],
        noise["reward"][1:][idle],
        False,
    )
    record = window.record._replace(log_prob=np.where(idle, -5.0, window.record.log_prob))
    return window._replace(
        view=window.view._replace(obs=obs, reward=reward, legal=legal), record=record
    )


def window_for(name: str) -> Window:
    """A window that the algorithm learns from: any of the family's, unless its memory differs."""
    in_turn = issubclass(find(name), TurnPPO)
    return probe(name if in_turn else "ppo").seen.window


@pytest.mark.parametrize("name", POLICY)
def test_trap_11_the_dead_and_dummy_steps_influence_nothing(name):
    """Losses, entropy, advantage and value statistics: the learner is the same to the bit."""
    learn, window = learnt(name, reward="own"), window_for(name)
    before, after = learn(window, clock())
    assert bits(before.params) != bits(after.params)
    assert bits(after) == bits(learn(corrupted(window), clock())[1])


@pytest.mark.parametrize("name", POLICY)
def test_trap_14_the_learning_rate_reaches_zero_with_the_last_environment_step(name):
    before, after = learnt(name, reward="own")(window_for(name), clock(progress=1.0))
    assert bits(before.params) == bits(after.params)


def test_trap_14_annealing_is_linear_in_the_run_and_never_below_zero():
    for progress, rate in {0.0: 2.0, 0.25: 1.5, 1.0: 0.0, 1.1: 0.0}.items():
        assert annealed(2.0, True, jnp.float32(progress)) == rate
        assert annealed(2.0, False, jnp.float32(progress)) == 2.0


def test_trap_14_progress_counts_valid_environment_steps():
    """Not agents' steps, updates or iterations: the run of `probe` is 1000 steps long."""
    metrics = probe("ppo").metrics
    clocks = metrics.learning[TEAM]["seen"].clock
    assert clocks.steps.tolist() == [0, *metrics.steps[:-1]]
    np.testing.assert_allclose(clocks.progress, clocks.steps / 1000, rtol=1e-6)


def part_of(memory: Rollout, start: int, end: int) -> Rollout:
    """What the memory holds of transitions `start … end-1`, without the carries at their ends."""
    window = memory.window
    action, record = jax.tree.map(lambda x: x[start:end], (window.action, window.record))
    view = jax.tree.map(lambda x: x[start : end + 1], window.view)
    return memory._replace(window=window._replace(view=view, action=action, record=record))


def test_trap_13_the_critic_remembers_alike_in_targets_losses_and_from_window_to_window():
    seen = probe("ppo", "gru").seen
    algorithm = build("ppo", mortal(), torso="gru", last_action=True, normalise_value=False, **TINY)
    assert seen.memory.carry.any()

    def whole(learner, memory, clock):
        _, batch, end = algorithm.prepare(learner, memory, jax.random.key(0), clock)
        error = (0.5 * (batch.value - batch.target) ** 2 * batch.weight).sum()
        _, before, middle = algorithm.prepare(
            learner, part_of(memory, 0, 5), jax.random.key(0), clock
        )
        later = part_of(memory, 5, 10)._replace(carry=middle)
        _, after, last = algorithm.prepare(learner, later, jax.random.key(0), clock)
        values = jnp.concatenate([before.value, after.value])
        loss = algorithm.losses(learner.params, learner, batch, clock)[1]["critic_loss"]
        return (batch.value, end, error), (values, last, loss)

    ours, theirs = jax.jit(on_devices(whole))(seen.learner, seen.memory, seen.clock)
    assert_close(ours, theirs, 1e-5)


# -- value normalisation ---------------------------------------------------------------------------

UNIT = ReturnNormaliser(jnp.float32(5.0), jnp.float32(4.0), jnp.float32(1.0))  # mean 5, deviation 2


@cache
def prepared() -> tuple[dict, Batch, Batch]:
    """A2C's new statistics and batch in that unit, the batch of a critic with the same weights and
    no unit; λ = 0."""
    seen = probe("a2c").seen
    learner = seen.learner._replace(scale=UNIT)
    settings = {"last_action": True, "lam": 0.0, "normalise_advantage": False, **TINY}
    scaled, plain = (build("a2c", mortal(), normalise_value=on, **settings) for on in (True, False))

    def whole(learner, memory, clock):
        after, batch, _ = scaled.prepare(learner, memory, jax.random.key(0), clock)
        return after.scale, batch, plain.prepare(learner, memory, jax.random.key(0), clock)[1]

    return jax.device_get(jax.jit(on_devices(whole))(learner, seen.memory, seen.clock))


def test_trap_10_advantages_use_denormalised_values():
    _, batch, plain = prepared()
    window = probe("a2c").seen.window
    # the net's output, in its own unit
    np.testing.assert_allclose(batch.value, plain.value, rtol=1e-4, atol=1e-5)
    value = plain.value * 2 + 5
    ahead = window.reward[:-1] + 0.99 * window.discount[:-1] * value[1:]
    expected = (ahead - value[:-1]) * window.valid[:-1]
    np.testing.assert_allclose(batch.advantage[:-1], expected, atol=1e-5)


def test_trap_10_24_value_statistics_see_valid_living_steps_only():
    scale, batch, _ = prepared()
    acted = batch.target[probe("a2c").seen.window.weight > 0]
    assert scale.windows == pytest.approx(1.99)
    np.testing.assert_allclose(scale.mean, 5 + (acted.mean() - 5) / 1.99, rtol=1e-5)
    square = 29 + ((acted**2).mean() - 29) / 1.99
    np.testing.assert_allclose(scale.variance, square - scale.mean**2, rtol=1e-4)


def test_trap_10_24_value_statistics_are_part_of_the_learner():
    learner = probe("ppo").state.learners[TEAM]
    assert learner.scale.windows == pytest.approx(1 + 0.99 + 0.99**2)
    scale = learner.scale._replace(variance=jnp.float32(4.0))
    assert scale.down(scale.mean + 2.0) == pytest.approx(1.0)
    assert scale.up(scale.down(3.0)) == pytest.approx(3.0)


def test_trap_10_value_clipping_compares_like_with_like():
    """Before any update no value has moved, whatever became of the unit: clipping changes no
    gradient."""
    seen = probe("ppo").seen
    learner = seen.learner._replace(scale=UNIT)
    free, _ = first_step("ppo")(learner, seen.memory, seen.clock)
    clipped, _ = first_step("ppo", clip_value=0.2)(learner, seen.memory, seen.clock)
    assert_close(clipped["critic"], free["critic"], 1e-5)


def test_trap_10_a_value_may_move_no_further_than_its_clip():
    """From 1 towards 2 by at most 0.2: the loss stops falling there, and its gradient with it."""
    algorithm = build("ppo", mortal(), clip_value=0.2, normalise_value=False, **TINY)
    one = jnp.ones((1, 1, 1))
    batch = Batch(*[None] * len(Batch._fields))._replace(
        critic_weight=one, value=one, target=2 * one
    )
    loss = jax.value_and_grad(lambda value: algorithm.critic_loss(value, None, batch))
    for value, expected, slope in (
        (1.1, 0.5 * 0.9**2, -0.9),
        (1.5, 0.5 * 0.8**2, 0.0),
        (0.5, 0.5 * 1.5**2, -1.5),
    ):
        np.testing.assert_allclose(
            [float(x.squeeze()) for x in loss(value * one)], [expected, slope], rtol=1e-5, atol=1e-6
        )


def test_trap_09_24_a_window_without_any_living_step_leaves_the_value_statistics():
    update = jax.jit(on_devices(ReturnNormaliser.update))
    after = update(UNIT, np.full((2, 3, 1), 7.0), np.zeros((2, 3, 1)))
    assert_close((after.mean, after.variance), (UNIT.mean, UNIT.variance), 1e-6)


# windows of returns
FAR = np.random.default_rng(0).normal(-1e4, 3.0, (2, 64, 16, 2)).astype(np.float32)


@pytest.mark.parametrize("devices", [1, 2])
def test_trap_38_a_variance_beside_a_large_mean(devices):
    """Mean -1e4, deviation 3, in float32: whoever squares before subtracting is left with
    nothing."""

    def whole(x):
        return moments(x, mean_weights(jnp.ones(x.shape)))

    mean, variance = jax.jit(on_devices(whole, devices, OWN))(FAR[0])
    np.testing.assert_allclose(mean, FAR[0].mean(dtype=np.float64), rtol=2e-7)
    np.testing.assert_allclose(variance, FAR[0].var(dtype=np.float64), rtol=1e-4)


def test_trap_38_value_statistics_keep_the_deviation_of_far_returns():
    """Over many windows whose means move as well, against the same sums in float64; constant
    returns have the floor."""
    update = jax.jit(on_devices(ReturnNormaliser.update))
    scale, (mean, square, windows) = (
        ReturnNormaliser(jnp.float32(0), jnp.float32(1), jnp.float32(0)),
        (0.0, 1.0, 0.0),
    )
    share = np.full(FAR[0].shape, 1 / FAR[0].size, np.float32)
    for k in range(30):
        x = FAR[k % 2] + np.float32(10 * k)
        scale = update(scale, x, share)
        windows = 0.99 * windows + 1
        exact = x.astype(np.float64)
        mean, square = (
            mean + (exact.mean() - mean) / windows,
            square + ((exact**2).mean() - square) / windows,
        )
    assert scale.deviation == pytest.approx((square - mean**2) ** 0.5, rel=1e-3)
    x = FAR[0]
    np.testing.assert_allclose(scale.up(scale.down(x)), x, atol=5e-3)
    assert update(
        UNIT._replace(windows=jnp.float32(0)), np.full(x.shape, -7.0), share
    ).deviation == pytest.approx(0.01)


def test_trap_38_far_advantages_are_normalised():
    """Rewards of -1e4 with no critic to expect them: the advantages still tell good from bad."""
    algorithm = build(
        "a2c", mortal(), lam=0.0, gamma=0.0, normalise_value=False, last_action=True, **TINY
    )
    seen = probe("a2c").seen
    view = seen.window.view
    reward = np.asarray(view.reward) + np.random.default_rng(0).normal(-1e4, 3.0, view.reward.shape)
    window = seen.window._replace(view=view._replace(reward=reward.astype(np.float32)))
    memory = seen.memory._replace(window=window)
    batch = jax.jit(
        on_devices(lambda m: algorithm.prepare(seen.learner, m, jax.random.key(0), seen.clock)[1])
    )(memory)
    kept = np.asarray(batch.advantage)[np.asarray(window.weight) > 0]
    assert kept.mean() == pytest.approx(0.0, abs=1e-3) and kept.std() == pytest.approx(
        1.0, abs=1e-3
    )


# -- equivalences ----------------------------------------------------------------------------------


def test_the_first_gradient_of_ppo_is_a2cs():
    seen = probe("a2c").seen
    ours, metrics = first_step("ppo")(seen.learner, seen.memory, seen.clock)
    theirs, _ = first_step("a2c")(seen.learner, seen.memory, seen.clock)
    assert_close(ours, theirs, 1e-6)
    assert metrics["clip_fraction"] == 0 and abs(metrics["approx_kl"]) < 1e-6


def test_trap_30_mappo_of_one_agent_whose_state_is_its_observation_is_ppo():
    env = make("test/identity", n=1, length=5)
    learners = {}
    for name in ("ppo", "mappo"):
        loop = Loop(env, {TEAM: build(name, env, **TINY)}, games=4, window=8, steps=1000)
        learners[name] = run(loop, 3)[0].learners[TEAM]
    assert_close(learners["mappo"], learners["ppo"], 1e-6)


# -- COMA ------------------------------------------------------------------------------------------


class Telling(COMA):
    """COMA that tells its advantages and its policy."""

    def actor_loss(self, dist, batch):
        return super().actor_loss(dist, batch)[0], {
            "advantage": batch.advantage,
            "probs": jnp.exp(dist.log_probs),
        }


@cache
def told():
    """`action -> advantage, probs` of the actions in place of those taken, all else equal."""
    algorithm = Telling(
        COMA.Config(last_action=True, normalise_advantage=False, **TINY), mortal().teams[TEAM]
    )
    seen = probe("coma").seen

    def whole(action):
        _, batch, _ = algorithm.prepare(seen.learner, seen.memory, jax.random.key(0), seen.clock)
        batch = batch._replace(
            context=batch.context._replace(action=as_input(action, algorithm.spec)),
            record=batch.record._replace(raw=action),
            weight=mean_weights(batch.weight),
        )
        metrics = algorithm.losses(seen.learner.params, seen.learner, batch, seen.clock)[1]
        return metrics["advantage"], metrics["probs"]

    return seen, jax.jit(on_devices(whole))


def test_trap_15_the_policy_expects_no_counterfactual_advantage():
    """Σ π(a) A(a) = 0 for each agent, the others' actions standing; π acts: with its floor and
    masks."""
    seen, tell = told()
    for agent in range(2):
        expected = 0.0
        for choice in range(3):
            action = np.array(seen.window.action)
            action[..., agent] = choice
            advantage, probs = tell(action)
            expected = expected + probs[..., agent, choice] * advantage[..., agent]
        np.testing.assert_allclose(expected, 0.0, atol=1e-5)
        free = seen.window.view.legal[:-1, :, agent].sum(-1) > 1
        assert np.abs(advantage[..., agent])[free].max() > 1e-3


def test_coma_may_hold_the_return_instead_of_the_critics_word_against_the_baseline():
    """The two advantages differ by λ-return minus Q of the action taken."""
    seen = probe("coma").seen
    kinds = [
        Telling(
            COMA.Config(last_action=True, normalise_advantage=False, action_value=value, **TINY),
            mortal().teams[TEAM],
        )
        for value in ("critic", "return")
    ]

    def whole(memory):
        learner, batch, _ = kinds[0].prepare(seen.learner, memory, jax.random.key(0), seen.clock)
        batch = batch._replace(weight=mean_weights(batch.weight))
        told = [kind.losses(learner.params, learner, batch, seen.clock)[1] for kind in kinds]
        q, _ = kinds[0].critic(learner.params["critic"], batch.context, batch.critic_carry[0])
        taken = jnp.take_along_axis(q, batch.record.raw[..., None], -1)[..., 0]
        return [one["advantage"] for one in told], batch.target - learner.scale.up(taken)

    (critic, lambda_return), difference = jax.jit(on_devices(whole))(seen.memory)
    assert np.abs(difference).max() > 0.01
    np.testing.assert_allclose(lambda_return - critic, difference, atol=1e-5)


def test_trap_15_the_policy_that_acts_is_the_one_with_the_floor():
    seen, tell = told()
    probs = np.asarray(tell(seen.window.action)[1])
    legal = seen.window.view.legal[:-1]
    taken = np.take_along_axis(probs, seen.window.action[..., None], -1)[..., 0]
    np.testing.assert_allclose(np.log(taken), seen.window.record.log_prob, atol=1e-6)
    epsilon = 0.1 + (0.01 - 0.1) * seen.clock.steps / 500_000
    assert (probs >= epsilon / legal.sum(-1, keepdims=True) * (1 - 1e-5))[legal].all()
    assert not probs[~legal].any()


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_trap_15_the_floor_spreads_epsilon_over_the_legal_actions(epsilon):
    logits = jnp.array([[50.0, 0.0, 0.0, -50.0], [50.0, 0.0, 1.0, -50.0]])
    legal = jnp.array([[1, 1, 1, 1], [0, 1, 0, 1]], bool)
    probs = np.exp(floored(masked(logits, legal), legal, jnp.float32(epsilon)).log_probs)
    np.testing.assert_allclose(probs.sum(-1), 1.0, rtol=1e-5)
    assert not probs[~legal].any()
    np.testing.assert_allclose(
        probs[0], epsilon / 4 + (1 - epsilon) * np.array([1, 0, 0, 0]), atol=1e-6
    )
    np.testing.assert_allclose(
        probs[1], epsilon / 2 * legal[1] + (1 - epsilon) * np.array([0, 1, 0, 0]), atol=1e-6
    )


# -- gradient steps --------------------------------------------------------------------------------


def test_trap_29_adam_moves_stacked_weights_whose_gradient_is_zero():
    """An agent that never had a gradient stands still; one that had keeps moving on its momentum.
    So a zero gradient does not freeze an agent's weights: whoever needs that (HAPPO) must keep an
    optimiser for each."""
    tx, rates = adam(10.0), {"actor": jnp.float32(0.1)}
    weights = {"actor": jnp.ones((3, 2))}  # agents 0, 1, 2
    opt = {"actor": tx.init(weights["actor"])}
    first = {"actor": jnp.array([[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]])}
    second = {"actor": jnp.array([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])}
    once, opt, _ = descend(tx, weights, opt, first, rates)
    twice, _, _ = descend(tx, once, opt, second, rates)
    moved = [
        np.abs(b["actor"] - a["actor"]).min(-1) > 1e-3 for a, b in ((weights, once), (once, twice))
    ]
    assert [x.tolist() for x in moved] == [[True, True, False], [True, True, False]]


@pytest.mark.parametrize(("rows", "minibatches"), [(8, 1), (12, 4), (1, 1), (64, 8)])
def test_each_epoch_is_a_permutation_of_all_rows(rows, minibatches):
    order = shuffled_rows(jax.random.key(0), rows, 3, minibatches)
    assert order.shape == (3 * minibatches, rows // minibatches)
    epochs = np.asarray(order).reshape(3, rows)
    assert (np.sort(epochs, -1) == np.arange(rows)).all()
    assert rows == 1 or len({tuple(epoch) for epoch in epochs}) == 3


class Forward(Mlp):
    """A feed-forward torso of a user's."""


def test_a_users_feed_forward_torso_splits_steps_as_mlp_does():
    share = Share(games=4, window=10)
    for torso in ("mlp", plugins.register(Forward)):
        algorithm = build("ppo", mortal(), torso=torso, minibatches=8, **TINY)
        algorithm.check(share)
        assert not algorithm.suited(algorithm.config, share)
    with pytest.raises(ShoalError, match="4 games on each device cannot be split into 8"):
        build("ppo", mortal(), torso="gru", minibatches=8, **TINY).check(share)


@pytest.mark.parametrize("torso", ["mlp", "gru"])
def test_recurrent_minibatches_split_games_not_time(torso, monkeypatch):
    """Feed-forward, every (game, step) is a row of its own."""
    seen, shapes = probe("ppo", torso).seen, []
    algorithm = build(
        "ppo", mortal(), torso=torso, last_action=True, minibatches=4, epochs=2, **TINY
    )

    def losses(params, learner, batch, clock):
        shapes.append(batch.weight.shape)
        return type(algorithm).losses(algorithm, params, learner, batch, clock)

    monkeypatch.setattr(algorithm, "losses", losses)
    jax.eval_shape(
        on_devices(lambda *x: algorithm.learn(*x[:2], jax.random.key(0), x[2])),
        seen.learner,
        seen.memory,
        seen.clock,
    )
    time, games, agents = seen.window.weight.shape
    assert set(shapes) == {
        (1, time * games // 4, agents) if torso == "mlp" else (time, games // 4, agents)
    }


def test_trap_36_what_the_dead_do_changes_nothing_for_comas_critic():
    """Neither now nor at the window's last instant, where actions are drawn: targets, loss and
    gradients stay."""
    seen = probe("coma").seen
    alive, legal = np.array(seen.window.view.alive), np.asarray(seen.window.view.legal)
    discount = np.array(seen.window.view.discount)
    alive[-1, :, 0], discount[-1, :, 0] = False, 0.0
    plain = seen.window._replace(view=seen.window.view._replace(alive=alive, discount=discount))
    action = np.where(alive[:-1], np.asarray(plain.action), (np.asarray(plain.action) + 1) % 3)
    view = plain.view._replace(legal=np.where(alive[..., None], legal, np.roll(legal, 1, -1)))
    haunted = plain._replace(view=view, action=action, record=plain.record._replace(raw=action))
    step = first_step("coma", reward="own")
    ours, theirs = (
        step(seen.learner, seen.memory._replace(window=one), seen.clock) for one in (plain, haunted)
    )
    assert not alive[:-1].all()
    assert_close(theirs, ours, 1e-5)


def test_trap_36_what_dead_rivals_do_is_nothing():
    """As critics with --rivals read it."""
    spec = Spec(("a", "b"), 1, 1, Discrete(3))
    view = View(*[None] * len(View._fields))._replace(
        alive=jnp.array([[[True, False]], [[False, False]]])
    )
    streams = {"us": view, "them": view}
    told = _rivals(
        {"us": spec, "them": spec}, "us", streams, {team: jnp.array([[[2, 1]]]) for team in streams}
    )
    np.testing.assert_array_equal(told, [[[0, 0, 1, 0, 0, 0]]])


@pytest.mark.parametrize("name", POLICY)
def test_trap_39_rewards_of_another_unit_scale_the_actors_gradient(name):
    """Without normalised advantages: a hundredfold, though the critic predicts in its own unit."""
    seen = probe(name).seen
    step, view, slopes = (
        first_step(name, normalise_advantage=False, entropy=0.0),
        seen.window.view,
        [],
    )
    for times in (1.0, 100.0):
        learner = seen.learner._replace(
            scale=UNIT._replace(mean=UNIT.mean * times, variance=UNIT.variance * times**2)
        )
        window = seen.window._replace(
            view=view._replace(reward=np.asarray(view.reward) * np.float32(times))
        )
        slopes.append(step(learner, seen.memory._replace(window=window), seen.clock)[0]["actor"])
    if probe(name).algorithm.config.share_torso:  # the critic's gradient reaches the torso, too
        slopes = [slope.head for slope in slopes]
    assert_close(slopes[1], jax.tree.map(lambda x: 100 * x, slopes[0]), 1e-3)


def test_ppos_ratio_of_the_dead_is_nothing_however_large():
    """Not NaN, which is what an infinite ratio times a weight of 0 would be, and neither is its
    gradient."""
    algorithm = build("ppo", mortal(), **TINY)
    raw, one = jnp.zeros((1, 2, 1), int), jnp.ones((1, 2, 1))
    batch = Batch(*[None] * len(Batch._fields))._replace(
        record=Record(raw, jnp.array([[[-0.5], [-1e4]]])),
        weight=one.at[0, 1].set(0.0),
        advantage=one,
    )

    def loss(logits):
        return algorithm.actor_loss(masked(logits, jnp.ones((1, 2, 1, 3), bool)), batch)

    (value, metrics), slope = jax.value_and_grad(loss, has_aux=True)(jnp.zeros((1, 2, 1, 3)))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((value, metrics, slope)))
    assert slope[0, 0].any() and not slope[0, 1].any()


# -- whose value -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["maa2c", "mappo", "coma"])
def test_trap_33_a_central_critic_tells_agents_with_rewards_of_their_own_apart(name):
    """One earns 1 with every step, which the other pays: 2 and -2 at γ = 0.5, whatever the actor is
    shown."""
    env = Opposed(n=2, length=10)
    settings = {
        "reward": "own",
        "agent_id": False,
        "gamma": 0.5,
        "critic_lr": 3e-2,
        "anneal": False,
        "entropy": 0.0,
    }
    algorithm = build(name, env, **(TINY | settings))
    _, metrics = run(Loop(env, {TEAM: algorithm}, games=4, window=10, steps=10_000), 120)
    assert metrics.learning[TEAM]["critic_loss"][-20:].mean() < 0.02
    assert ID in algorithm.inputs["critic"] and ID not in algorithm.inputs["actor"]


@pytest.mark.parametrize("name", ["maa2c", "mappo", "coma"])
@pytest.mark.parametrize("how", [{"reward": "mean"}, {"reward": "own", "sharing": "own"}], ids=str)
def test_trap_33_a_critic_is_told_no_number_where_none_is_needed(name, how):
    """One value for the team, or parameters of one's own."""
    assert ID not in build(name, mortal(), agent_id=False, **TINY, **how).inputs["critic"]


# -- entropy ---------------------------------------------------------------------------------------


def test_trap_35_without_a_choice_the_entropy_bonus_widens_a_squashed_policy_only_so_far():
    """To a deviation of 0.87, whose draws are most like any action alike."""
    env = Drifting(n=1, length=5)
    settings = {
        "squash": True,
        "entropy": 1.0,
        "normalise_advantage": False,
        "anneal": False,
        "lr": 0.05,
    }
    algorithm = build("a2c", env, **(TINY | settings))
    state, metrics = run(Loop(env, {TEAM: algorithm}, games=4, window=5, steps=10_000), 150)
    assert np.exp(state.learners[TEAM].params["actor"].head.log_std) == pytest.approx(0.87, abs=0.2)
    assert metrics.learning[TEAM]["entropy"][-1] < np.log(2)
