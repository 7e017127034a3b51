"""Returns on the view stream against closed forms."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import POLICY, TINY, build, clock, on_devices
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.envs import make
from shoal.learning.reduce import mean_weights, moments
from shoal.learning.returns import advantages, n_step, pool
from shoal.types import Share, View, Window

LENGTH = 12  # transitions of the streams below
adv = jax.jit(advantages)
by_steps = jax.jit(n_step, static_argnums=5)


class Stream(NamedTuple):
    """One game's stream: `valid` is 0 on the dummy transition that follows an episode's last."""

    reward: np.ndarray  # [T]
    discount: np.ndarray  # [T]
    values: np.ndarray  # [T+1]
    valid: np.ndarray  # [T]

    def targets(self, gamma: float, lam: float) -> np.ndarray:
        return np.asarray(adv(*self, gamma, lam) + self.values[:-1])

    def n_step(self, gamma: float, n: int) -> np.ndarray:
        return np.asarray(
            by_steps(self.reward, self.discount, self.values, self.valid > 0, gamma, n)
        )


class Trajectory(NamedTuple):
    """One episode, or as much of it as the window holds."""

    reward: np.ndarray  # [L]
    values: np.ndarray  # [L+1]
    ended: bool  # the task ended it; otherwise time, or the window, ran out


@st.composite
def trajectories(draw) -> list[Trajectory]:
    """Enough random episodes for one window."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lengths = draw(st.lists(st.integers(1, 5), min_size=7, max_size=7))
    ends = draw(st.lists(st.booleans(), min_size=7, max_size=7))
    return [
        Trajectory(rng.normal(size=n), rng.normal(size=n + 1), end)
        for n, end in zip(lengths, ends, strict=True)
    ]


def concatenated(episodes: list[Trajectory], junk: float) -> tuple[Stream, list[Trajectory]]:
    """The episodes as one stream with `junk` on the dummy transitions, and what the window shows of
    each."""
    reward, discount, values, valid, shown = [], [], [], [], []
    for episode in episodes:
        room = max(LENGTH - len(reward), 0)
        seen = min(room, len(episode.reward))
        if seen:
            ended = episode.ended and seen == len(episode.reward)
            shown.append(Trajectory(episode.reward[:seen], episode.values[: seen + 1], ended))
        reward += [*episode.reward, junk]
        discount += [*np.ones(len(episode.reward) - 1), 1.0 - episode.ended, 1.0]
        values += [*episode.values]
        valid += [*np.ones(len(episode.reward)), 0.0]
    cut = [np.array(x[:LENGTH], np.float32) for x in (reward, discount, valid)]
    return Stream(cut[0], cut[1], np.array(values[: LENGTH + 1], np.float32), cut[2]), shown


def alone(episode: Trajectory, gamma: float, lam: float) -> np.ndarray:
    """λ-targets of one trajectory by their definition: (1-λ) Σ λⁿ⁻¹ of its n-step returns, the last
    takes the rest."""
    length, targets = len(episode.reward), []
    for t in range(length):
        gains = np.cumsum(gamma ** np.arange(length - t) * episode.reward[t:])
        ahead = episode.values[t + 1 :].copy()
        ahead[-1] *= 1.0 - episode.ended
        steps = np.arange(1, length - t + 1)
        weight = (1 - lam) * lam ** (steps - 1.0)
        weight[-1] = lam ** (steps[-1] - 1.0)
        targets.append((weight * (gains + gamma**steps * ahead)).sum())
    return np.array(targets)


def alone_by_steps(episode: Trajectory, gamma: float, n: int) -> np.ndarray:
    """n-step targets of one trajectory by their definition: up to n rewards, then the value there
    unless it ended."""
    length, targets = len(episode.reward), []
    for t in range(length):
        end = min(t + n, length)
        gain = sum(gamma ** (k - t) * episode.reward[k] for k in range(t, end))
        over = episode.ended and end == length
        targets.append(gain + (0.0 if over else gamma ** (end - t) * episode.values[end]))
    return np.array(targets)


def one_episode(
    length: int, ended: bool, reward: np.ndarray, value: float, junk: float = 0.0
) -> Stream:
    """An episode at the window's start, junk in the rows after it."""
    episodes = [Trajectory(reward, np.full(length + 1, value), ended)]
    rest = LENGTH - length - 1
    episodes.append(Trajectory(np.full(rest, junk), np.full(rest + 1, junk), False))
    return concatenated(episodes, junk)[0]


@settings(max_examples=100, deadline=None)
@given(trajectories(), st.sampled_from([0.0, 0.5, 0.95, 1.0]), st.sampled_from([0.9, 1.0]))
def test_trap_02_targets_of_a_stream_are_those_of_each_trajectory_alone(episodes, lam, gamma):
    stream, shown = concatenated(episodes, junk=123.0)
    expected = np.concatenate([alone(episode, gamma, lam) for episode in shown])
    ours = stream.targets(gamma, lam)
    np.testing.assert_allclose(ours[stream.valid > 0], expected, rtol=1e-4, atol=1e-4)
    # nothing to learn on a dummy transition
    assert (ours == stream.values[:-1])[stream.valid == 0].all()


@settings(max_examples=100, deadline=None)
@given(trajectories(), st.sampled_from([1, 2, 3, 5, 12, 20]), st.sampled_from([0.9, 1.0]))
def test_trap_02_n_step_targets_of_a_stream_are_those_of_each_trajectory_alone(episodes, n, gamma):
    stream, shown = concatenated(episodes, junk=123.0)
    expected = np.concatenate([alone_by_steps(episode, gamma, n) for episode in shown])
    ours = stream.n_step(gamma, n)
    np.testing.assert_allclose(ours[stream.valid > 0], expected, rtol=1e-4, atol=1e-4)
    assert (ours == stream.values[:-1])[stream.valid == 0].all()


@settings(max_examples=30, deadline=None)
@given(trajectories())
def test_one_step_targets_are_those_of_lambda_zero_and_many_those_of_one(episodes):
    stream, _ = concatenated(episodes, junk=123.0)
    for n, lam in ((1, 0.0), (LENGTH, 1.0)):
        np.testing.assert_allclose(
            stream.n_step(0.9, n), stream.targets(0.9, lam), rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("n", [1, 3, 5])
def test_trap_01_n_step_targets_bootstrap_where_time_ran_out(n):
    """V ≡ 10 = 1 / (1 - 0.9) is its own target, whatever follows."""
    stream = one_episode(3, ended=False, reward=np.ones(3), value=10.0, junk=-7.0)
    np.testing.assert_allclose(stream.n_step(0.9, n)[:3], 10.0, rtol=1e-5)


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_trap_01_a_time_limit_leaves_the_endless_value(lam):
    """Reward 1 for ever, cut by the clock every 5 steps: the one value that is its own target is 1
    / (1 - γ)."""
    episodes = [Trajectory(np.ones(5), np.full(6, 10.0), False)] * 3
    stream, _ = concatenated(episodes, junk=0.0)
    np.testing.assert_allclose(stream.targets(0.9, lam), 10.0, rtol=1e-5)
    value = 0.0
    for _ in range(200):  # and regression to the targets finds it from anywhere
        target = stream._replace(values=np.full(LENGTH + 1, value, np.float32)).targets(0.9, lam)
        value = np.average(target, weights=stream.valid)
    assert value == pytest.approx(10.0, rel=1e-4)


def test_trap_03_lambda_returns_on_an_early_truncation():
    stream = one_episode(3, ended=False, reward=np.ones(3), value=10.0)
    np.testing.assert_allclose(stream.targets(0.9, 0.8)[:3], [10.0, 10.0, 10.0], rtol=1e-6)


@pytest.mark.parametrize("junk", [0.0, -7.0, 1e4])
def test_trap_05_whatever_follows_a_true_terminal_stays_out_of_the_sum(junk):
    stream = one_episode(3, ended=True, reward=np.ones(3), value=junk, junk=junk)
    np.testing.assert_allclose(
        stream.targets(0.9, 1.0)[:3], [2.71, 1.90, 1.00], rtol=1e-3 if junk == 1e4 else 1e-5
    )
    np.testing.assert_allclose(stream.n_step(0.9, 5)[:3], [2.71, 1.90, 1.00], rtol=1e-5)


def test_trap_06_a_reward_given_only_on_the_terminal_step_reaches_every_action():
    stream = one_episode(3, ended=True, reward=np.array([0.0, 0.0, 1.0]), value=0.0)
    assert stream.valid[2] == 1 and stream.valid[3] == 0
    np.testing.assert_allclose(stream.targets(0.9, 1.0)[:4], [0.81, 0.9, 1.0, 0.0], rtol=1e-6)


def window_of(first: list[int], alive: np.ndarray) -> Window:
    """A window of which only succession and life matter."""
    games, agents = 1, alive.shape[-1]
    zeros = jnp.zeros((len(first), games, agents))
    flags = jnp.asarray(first, bool)[:, None]
    view = View(
        zeros[..., None],
        zeros,
        zeros[..., None] == 0,
        jnp.asarray(alive, bool)[:, None],
        flags,
        zeros,
        zeros,
    )
    return Window(view, zeros[1:], (), (), ())


def test_trap_04_a_three_step_episode_has_three_valid_transitions():
    alive = np.array([[1, 1], [1, 1], [1, 0], [1, 0], [1, 1], [1, 1], [1, 1], [1, 1], [1, 1]])
    window = window_of([1, 0, 0, 0, 1, 0, 0, 0, 1], alive)
    assert window.valid[:, 0, 0].tolist() == [True, True, True, False, True, True, True, False]
    assert window.weight[:, 0, 0].tolist() == [1, 1, 1, 0, 1, 1, 1, 0]
    assert window.weight[:, 0, 1].tolist() == [1, 1, 0, 0, 1, 1, 1, 0]


def dying_team(how: str) -> np.ndarray:
    """λ=1 targets `[4,N]` where agent 0 dies with the first step and both are paid 1 with the
    fourth, the last."""
    reward = np.zeros((4, 1, 2), np.float32)
    reward[3] = 1.0
    discount = np.ones((4, 1, 2), np.float32)
    discount[:, :, 0], discount[3] = 0.0, 0.0
    reward, discount = pool(jnp.asarray(reward), jnp.asarray(discount), how)
    return np.asarray(
        adv(reward, discount, jnp.zeros((5, 1, 2)), jnp.ones((4, 1, 1), bool), 0.9, 1.0)
    )[:, 0]


def test_trap_08_a_dead_agents_team_reward_reaches_its_earlier_actions():
    np.testing.assert_allclose(dying_team("mean")[0], [0.729, 0.729], rtol=1e-5)
    np.testing.assert_allclose(dying_team("sum")[0], [1.458, 1.458], rtol=1e-5)


def test_trap_08_its_own_reward_ends_with_its_life():
    np.testing.assert_allclose(dying_team("own")[0], [0.0, 0.729], rtol=1e-5)


def test_trap_17_pooling_is_by_mean_or_sum_as_named():
    reward, discount = jnp.array([[1.0, 2.0, 6.0]]), jnp.array([[0.0, 1.0, 0.0]])
    for how, expected in {"own": [1.0, 2.0, 6.0], "mean": [3.0] * 3, "sum": [9.0] * 3}.items():
        assert pool(reward, discount, how)[0].tolist() == [expected]
    assert pool(reward, discount, "own")[1].tolist() == [[0, 1, 0]]
    assert pool(reward, discount, "mean")[1].tolist() == [[1, 1, 1]]  # the team plays on
    assert pool(reward, 0 * discount, "sum")[1].tolist() == [[0, 0, 0]]  # until nobody does


statistics = jax.jit(
    on_devices(lambda x, weight: (mean_weights(weight), moments(x, mean_weights(weight))))
)


def test_trap_09_masked_means_divide_by_the_mask():
    x, weight = (
        np.arange(6.0, dtype=np.float32).reshape(3, 2),
        np.array([[1, 1], [0, 1], [0, 0]], np.float32),
    )
    share, (mean, variance) = statistics(x, weight)
    assert share.shape == weight.shape
    np.testing.assert_allclose(share, weight / 3, rtol=1e-6)
    np.testing.assert_allclose([mean, variance], [4 / 3, np.var([0, 1, 3])], rtol=1e-5)


def test_trap_09_an_empty_mask_gives_zero():
    share, (mean, variance) = statistics(
        np.full((3, 2), 5, np.float32), np.zeros((3, 2), np.float32)
    )
    assert not np.any(share) and mean == 0 and variance == 0


@pytest.mark.parametrize("torso", ["mlp", "gru"])
@pytest.mark.parametrize("name", POLICY)
def test_trap_09_no_product_broadcasts_to_another_shape(name, torso):
    """Time, games and agents are 5, 4 and 3: everything a member learns from is exactly
    `[5,4,3]`."""
    env = make("test/mortal", n=3)
    algorithm = build(name, env, torso=torso, **TINY)

    def prepare():
        learner = algorithm.init(np.random.default_rng(0))
        _, views = env.reset(jax.random.key(0), 4)
        view = views["agent"]
        carry = algorithm.carry(learner, 4)
        decision = algorithm.act(learner, jax.random.key(0), view, carry, clock(), False)
        views = jax.tree.map(lambda x: jnp.stack([x] * 6), view)
        action, record = jax.tree.map(
            lambda x: jnp.stack([x] * 5), (decision.action, decision.record)
        )
        memory = algorithm.remember(
            algorithm.memory(learner, Share(4, 5)),
            Window(views, action, record, carry, decision.carry),
        )
        return algorithm.prepare(learner, memory, jax.random.key(0), clock())[1]

    batch = jax.eval_shape(on_devices(prepare))
    for part in (batch.weight, batch.target, batch.value, batch.advantage, batch.record.log_prob):
        assert part.shape == (5, 4, 3)
