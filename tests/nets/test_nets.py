"""Layers, torsos and heads against the plain forms they stand for."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, bits
from scipy import stats

from shoal.errors import ShoalError
from shoal.nets.distributions import Categorical, Factored, Gaussian, masked, uniform
from shoal.nets.gru import Gru, _forward, unroll
from shoal.nets.heads import GaussianHead
from shoal.nets.layers import Dense, owners
from shoal.nets.mlp import Mlp, Style
from shoal.types import Box, Discrete, MultiDiscrete, Spec

SPEC = Spec(("a", "b", "c"), obs=4, state=4, action=Discrete(3))
OWNERS = {"shared": (0, 0, 0), "own": (0, 1, 2), "0,1,0": (0, 1, 0)}
TANH = Style("tanh", layer_norm=False)
TIME, GAMES, AGENTS, HIDDEN = 6, 2, 3, 4


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def dense(owner: tuple[int, ...], ins: int = 7, outs: int = 5) -> Dense:
    layer = Dense(np.random.default_rng(0), owner, ins, outs)
    bias = jnp.asarray(normal(*layer.bias.shape, seed=1))
    return jax.tree.unflatten(jax.tree.structure(layer), [layer.weight, bias])


# -- layers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sharing", OWNERS)
def test_each_agent_is_multiplied_by_its_owners_weights(sharing):
    layer, x = dense(owners(sharing, SPEC)), normal(TIME, GAMES, AGENTS, 7)
    ours = layer(x)
    for agent, owner in enumerate(OWNERS[sharing]):
        assert_close(
            ours[:, :, agent], x[:, :, agent] @ layer.weight[owner] + layer.bias[owner], 1e-5
        )


@pytest.mark.parametrize("sharing", OWNERS)
def test_parts_are_read_as_if_joined(sharing):
    """A part common to all agents counts for each."""
    own, common = normal(TIME, GAMES, AGENTS, 4), normal(TIME, GAMES, 1, 3, seed=2)
    layer = dense(owners(sharing, SPEC))
    joined = np.concatenate([own, np.broadcast_to(common, (TIME, GAMES, AGENTS, 3))], -1)
    assert_close(layer(own, common), layer(joined), 1e-5)


def test_trap_30_a_partition_with_one_owner_is_shared_to_the_bit():
    x = normal(TIME, GAMES, AGENTS, 7)
    ours, theirs = (dense(owners(sharing, SPEC)) for sharing in ("0,0,0", "shared"))
    assert bits((ours, ours(x))) == bits((theirs, theirs(x)))


@pytest.mark.parametrize("sharing", ["0,1", "0,2,2", "1,1,2", "a,b,c"])
def test_an_impossible_partition_is_refused(sharing):
    with pytest.raises(ShoalError, match="partition"):
        owners(sharing, SPEC)


@pytest.mark.parametrize(("ins", "outs"), [(7, 5), (5, 7)])
def test_weights_start_orthogonal(ins, outs):
    weight = np.asarray(Dense(np.random.default_rng(0), (0, 1), ins, outs, gain=3.0).weight)
    for one in weight:
        square = one.T @ one if ins >= outs else one @ one.T
        np.testing.assert_allclose(square, 9 * np.eye(min(ins, outs)), atol=1e-4)
    assert np.abs(weight[0] - weight[1]).max() > 0.1


# -- the GRU ---------------------------------------------------------------------------------------


@cache
def gru_case(sharing: str) -> tuple:
    """A recurrent layer, its inputs over two episodes, and something to differentiate."""
    hidden = dense(owners(sharing, SPEC), HIDDEN, 3 * HIDDEN)
    gates, carry = normal(TIME, GAMES, AGENTS, 3 * HIDDEN), normal(GAMES, AGENTS, HIDDEN, seed=3)
    keep = np.ones((TIME, GAMES, 1, 1), np.float32)
    keep[3, 0] = keep[0, 1] = 0.0
    return hidden, gates, carry, keep


@pytest.mark.parametrize("sharing", OWNERS)
def test_the_grus_written_derivative_is_that_of_autodiff(sharing):
    weight = normal(TIME, GAMES, AGENTS, HIDDEN, seed=4)
    hidden, gates, carry, keep = gru_case(sharing)
    ours = jax.jit(jax.grad(lambda *x: (unroll(*x, keep) * weight).sum(), (0, 1, 2)))
    theirs = jax.jit(jax.grad(lambda *x: (_forward(*x, keep)[0] * weight).sum(), (0, 1, 2)))
    assert_close(ours(hidden, gates, carry), theirs(hidden, gates, carry), 1e-5)


def test_the_gru_is_the_papers():
    """Cho et al. 2014 with the reset gate after the matmul, by hand in float64."""
    hidden, gates, carry, keep = gru_case("own")
    states, h = np.asarray(jax.jit(unroll)(hidden, gates, carry, keep)), carry.astype(np.float64)
    for t in range(TIME):
        h = h * keep[t]
        recurrent = np.einsum("bnf,nfh->bnh", h, hidden.weight) + hidden.bias
        (r, z, n), (rh, zh, nh) = np.split(gates[t], 3, -1), np.split(recurrent, 3, -1)
        r, z = 1 / (1 + np.exp(-r - rh)), 1 / (1 + np.exp(-z - zh))
        h = (1 - z) * np.tanh(n + r * nh) + z * h
        np.testing.assert_allclose(states[t], h, atol=1e-5)


@pytest.fixture(scope="module")
def unrolled():
    """A GRU torso's features of a stream with an episode end, in one unroll, and the torso, its
    inputs and resets."""
    torso = Gru(np.random.default_rng(0), (0, 0, 0), 5, HIDDEN, 2, TANH)
    x, first = normal(TIME, GAMES, AGENTS, 5), np.zeros((TIME, GAMES), bool)
    first[0] = first[3, 1] = True
    call = jax.jit(lambda x, carry, first: torso((x,), carry, first))
    return call, x, first, call(x, normal(GAMES, AGENTS, HIDDEN), first)


def test_trap_13_one_unroll_is_step_by_step_across_an_episode_end(unrolled):
    call, x, first, (features, end) = unrolled
    carry = np.zeros((GAMES, AGENTS, HIDDEN), np.float32)
    for t in range(TIME):
        now, carry = call(x[t : t + 1], carry, first[t : t + 1])
        assert_close(now[0], features[t], 1e-6)
    assert_close(carry, end, 1e-6)


def test_trap_13_nothing_is_remembered_across_an_episode_end_but_within(unrolled):
    call, x, first, (features, _) = unrolled
    other = x.copy()
    other[:3] += 1.0
    later = np.abs(call(other, np.zeros((GAMES, AGENTS, HIDDEN), np.float32), first)[0] - features)[
        3:
    ]
    assert later[:, 1].max() == 0.0 and later[:, 0].min() > 0.0


def test_layer_norm_standardises_each_row():
    torso = Mlp(np.random.default_rng(0), (0, 0, 0), 5, 8, 1, Style("relu", layer_norm=True))
    features = np.asarray(jax.jit(lambda x: torso((x,), x, x)[0])(normal(TIME, GAMES, AGENTS, 5)))
    np.testing.assert_allclose(features.mean(-1), 0.0, atol=1e-5)
    np.testing.assert_allclose(features.std(-1), 1.0, atol=1e-2)


# -- categorical -----------------------------------------------------------------------------------

LOGITS = np.array([[0.5, -1.0, 2.0, 0.0], [3.0, 0.0, 0.0, 1.0], [9.0, 1.0, -2.0, 0.3]], np.float32)
LEGAL = np.array([[1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 1, 0]], bool)


def legal_probs() -> np.ndarray:
    weight = np.exp(LOGITS.astype(np.float64)) * LEGAL
    return weight / weight.sum(-1, keepdims=True)


def test_categorical_is_drawn_by_its_probabilities_and_never_illegally():
    draws = 40_000
    dist = masked(LOGITS, LEGAL)
    many = Categorical(np.broadcast_to(dist.log_probs, (draws, *LOGITS.shape)))
    drawn = np.asarray(jax.jit(Categorical.sample)(many, jax.random.key(0)))
    counts = (drawn[..., None] == np.arange(4)).sum(0)
    assert not counts[~LEGAL].any()
    np.testing.assert_allclose(counts / draws, legal_probs(), atol=4 * 0.5 / draws**0.5)
    assert dist.mode().tolist() == [2, 3, 2]


def test_categorical_never_draws_an_illegal_action_at_the_ends_of_the_unit_interval(monkeypatch):
    dist = masked(LOGITS, LEGAL)
    for edge in (0.0, np.nextafter(np.float32(1), np.float32(0))):
        monkeypatch.setattr(
            jax.random, "uniform", lambda key, shape, edge=edge: jnp.full(shape, edge)
        )
        assert LEGAL[np.arange(3), np.asarray(dist.sample(jax.random.key(0)))].all()


def test_categorical_log_prob_and_entropy():
    dist, probs = masked(LOGITS, LEGAL), legal_probs()
    for action in range(4):
        ours, may = dist.log_prob(jnp.full(3, action)), LEGAL[:, action]
        np.testing.assert_allclose(np.asarray(ours)[may], np.log(probs[may, action]), rtol=1e-5)
        assert (np.asarray(ours)[~may] < -1e8).all()
    np.testing.assert_allclose(dist.entropy(), [stats.entropy(row) for row in probs], atol=1e-5)


def test_trap_12_a_row_with_no_legal_action_stays_finite():
    nothing = np.zeros((3, 4), bool)

    def total(logits):
        dist = masked(logits, nothing)
        return (dist.log_prob(dist.sample(jax.random.key(0))) + dist.entropy()).sum()

    value, grad = jax.jit(jax.value_and_grad(total))(LOGITS)
    assert jnp.isfinite(value) and jnp.isfinite(grad).all()
    np.testing.assert_allclose(jnp.exp(uniform(nothing).log_probs), 0.25, rtol=1e-6)


# -- gaussian --------------------------------------------------------------------------------------

LOW, HIGH = np.array([-1.0, 0.0], np.float32), np.array([1.0, 4.0], np.float32)


def gaussian(squash: bool, mean=(0.3, -0.2), log_std=(-0.5, 0.4), used=(True, True)) -> Gaussian:
    return Gaussian(
        *(jnp.array([x]) for x in (mean, log_std, used)), jnp.array(LOW), jnp.array(HIGH), squash
    )


@pytest.mark.parametrize("squash", [False, True])
def test_gaussian_actions_stay_within_bounds(squash):
    dist = gaussian(squash, log_std=(2.0, 2.0))
    raw = normal(1000, 1, 2) * 7
    action = np.asarray(dist.action(raw))
    assert (action >= LOW).all() and (action <= HIGH).all()
    assert np.ptp(action[..., 1]) > 3.5
    inside = np.abs(raw) < 0.9
    expected = (HIGH + LOW) / 2 + (HIGH - LOW) / 2 * (np.tanh(raw) if squash else raw)
    np.testing.assert_allclose(action[inside], expected[inside], rtol=1e-5, atol=1e-6)


def parts_of(seed: int) -> Factored:
    """Three parts of 2, 3 and 4 values, some of which are illegal."""
    rng = np.random.default_rng(seed)
    space = MultiDiscrete((2, 3, 4))
    legal = jnp.asarray([[True, True, True, False, True, False, True, True, True]])
    rows = zip(space.split(jnp.asarray(rng.normal(size=(1, 9)))), space.split(legal), strict=True)
    return Factored(tuple(masked(logits, allowed) for logits, allowed in rows))


def test_parts_are_a_categorical_over_all_combinations():
    """Log-probabilities, entropy and divergence are those of the product."""
    one, other = parts_of(0), parts_of(1)
    raw = jnp.asarray(list(np.ndindex(2, 3, 4)))
    joint, apart = (np.exp(np.asarray(dist.log_prob(raw[:, None]))[:, 0]) for dist in (one, other))
    assert joint.sum() == pytest.approx(1.0) and (joint > 0).sum() == 2 * 2 * 3
    seen = joint[joint > 0], apart[joint > 0]
    assert one.entropy()[0] == pytest.approx(-(seen[0] * np.log(seen[0])).sum(), rel=1e-5)
    kl = (seen[0] * np.log(seen[0] / seen[1])).sum()
    assert one.kl(other)[0] == pytest.approx(kl, rel=1e-4)
    assert one.mode()[0].tolist() == raw[joint.argmax()].tolist()
    many = Factored(tuple(Categorical(jnp.repeat(p.log_probs, 20_000, 0)) for p in one.parts))
    drawn = np.asarray(many.sample(jax.random.key(0)))
    rate = np.bincount(np.ravel_multi_index(tuple(drawn.T), (2, 3, 4)), minlength=24) / 20_000
    np.testing.assert_allclose(rate, joint, atol=0.012)
    assert not rate[joint == 0].any()


def test_gaussian_log_prob_and_entropy():
    """Of the action before clipping: a normal around the bounds' middle, in the bounds' half
    width."""
    dist, raw = gaussian(False), jnp.array([[0.1, 0.9]])
    half = (HIGH - LOW) / 2
    place, spread = (
        (HIGH + LOW) / 2 + half * np.asarray(dist.mean),
        half * np.exp(np.asarray(dist.log_std)),
    )
    truth = stats.norm(place, spread)
    np.testing.assert_allclose(
        dist.log_prob(raw), truth.logpdf((HIGH + LOW) / 2 + half * raw).sum(-1), rtol=1e-5
    )
    np.testing.assert_allclose(dist.entropy(), truth.entropy().sum(-1), rtol=1e-5)


def test_the_squashed_density_integrates_to_one():
    """Over the actions of its second dimension, the first standing still."""
    dist = gaussian(True, used=(False, True))
    action = np.linspace(LOW[1] + 1e-6, HIGH[1] - 1e-6, 20_001)
    raw = np.arctanh((action - 2.0) / 2.0)
    density = np.exp(np.asarray(dist.log_prob(jnp.asarray(np.stack([0 * raw, raw], -1)[:, None]))))[
        :, 0
    ]
    assert np.trapezoid(density, action) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("squash", [False, True])
def test_unused_dimensions_do_not_count(squash):
    both, one = gaussian(squash, used=(True, True)), gaussian(squash, used=(True, False))
    near, far = jnp.array([[0.1, 0.9]]), jnp.array([[0.1, -3.0]])
    assert one.log_prob(near) == one.log_prob(far) != both.log_prob(near)
    assert (
        one.entropy()
        == one._replace(log_std=one.log_std.at[0, 1].set(9.0)).entropy()
        != both.entropy()
    )


def test_each_owner_has_its_own_deviation():
    head = GaussianHead(np.random.default_rng(0), (0, 1, 0), 4, Box((-1.0,), (1.0,)), False)
    leaves, tree = jax.tree.flatten(head)
    head = jax.tree.unflatten(tree, [*leaves[:-1], jnp.array([[1.0], [2.0]])])
    dist = head(jnp.zeros((1, 1, 3, 4)), jnp.ones((1, 1, 3, 1), bool))
    assert dist.log_std[:, 0].tolist() == [1.0, 2.0, 1.0]


@pytest.mark.parametrize("std", [0.05, 0.5, 1.0, 3.0, 30.0])
@pytest.mark.parametrize("mean", [0.0, 1.5, -4.0])
def test_trap_35_the_entropy_of_a_squashed_gaussian_is_that_of_its_draws(mean, std):
    one = jnp.ones(1)
    dist = Gaussian(mean * one, jnp.log(std) * one, one > 0, -2 * one, 2 * one, True)
    draws = jax.vmap(dist.sample)(jax.random.split(jax.random.key(0), 20_000))
    density = -np.asarray(jax.vmap(dist.log_prob)(draws))
    assert dist.entropy() == pytest.approx(
        density.mean(), abs=float(0.03 * density.std() + 0.02 * std)
    )


def test_trap_35_the_entropy_of_a_squashed_gaussian_has_a_largest_value():
    """Just below that of any action alike; from there on wider is worse, so that nothing drives it
    further."""
    one = jnp.ones(1)

    def entropy(log_std):
        return Gaussian(0 * one, log_std * one, one > 0, -one, one, True).entropy()

    wide = jnp.log(jnp.array([0.5, 0.87, 1.5, 5.0, 100.0, 2868.0]))
    values, slopes = jax.vmap(jax.value_and_grad(entropy))(wide)
    assert np.log(2) - 0.03 < values.max() < np.log(2) and values.argmax() == 1
    assert (slopes[2:] < 0).all() and slopes[0] > 0 and np.isfinite(slopes).all()
