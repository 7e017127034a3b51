"""Layers through which agents read from each other: what is computed turn by turn is what is
computed at once."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.nets.attention import Attention
from shoal.nets.in_turn import InTurn, before, present
from shoal.nets.mlp import Mlp, Style
from shoal.nets.retention import Retention, read, states, turn, written

T, B, N, HEADS, D = 7, 3, 4, 2, 4
HIDDEN = HEADS * D
RNG = np.random.default_rng(0)
FIRST: Any = np.zeros((T, B), bool)
FIRST[[0, 3, 5, 6], [0, 0, 1, 1]] = True  # two openings in games 0 and 1, none in game 2
ALIVE: Any = RNG.random((T, B, N)) < 0.7


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def by_definition(q: Any, k: Any, v: Any, carry: Any, decay: Any, causal: bool) -> np.ndarray:
    """Σ over what came before, in float64: the sum that both forms of retention are."""
    out = np.zeros(q.shape)
    for t, b, i in np.ndindex(T, B, N):
        state = np.zeros((HEADS, D, D)) if FIRST[: t + 1, b].any() else carry[b] * 1.0
        state *= decay[:, None, None] ** (t + 1)
        for s in range(t + 1):
            if FIRST[s + 1 : t + 1, b].any():
                continue
            for j in range(i + 1 if causal and s == t else N):
                pair = k[s, b, j, :, :, None] * v[s, b, j, :, None, :]
                state = state + decay[:, None, None] ** (t - s) * pair * ALIVE[s, b, j]
        out[t, b, i] = np.einsum("hd,hde->he", q[t, b, i], state)
    return out


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("decay", [(0.9, 0.5), (1.0, 1.0), (0.7, 0.0)])
def test_retention_is_its_definition_at_once_and_in_turn(causal: bool, decay: tuple) -> None:
    """Across openings of episodes, with a memory from before, with and without decay."""
    q, k, v = normal(3, T, B, N, HEADS, D)
    carry = normal(B, HEADS, D, D)
    rates: Any = np.array(decay, np.float32)
    there = jnp.where(ALIVE[..., None, None], k, 0.0)
    new = written(there, v)
    left, last = states(new, carry, rates, FIRST)
    at_once = read(q, there, v, left, new, causal)
    expected = by_definition(q, k, v, carry, rates.astype(np.float64), causal)
    np.testing.assert_allclose(at_once, expected, atol=2e-6 * np.abs(expected).max())
    if not causal:
        return
    state, outs = jnp.asarray(carry), []
    for t in range(T):
        state = state * jnp.where(FIRST[t][:, None], 0.0, rates)[..., None, None]
        for i in range(N):
            row = np.s_[t, :, i : i + 1]
            out, state = turn(q[row], there[row], v[row], state)
            outs.append(out[:, 0])
    in_turn = np.stack(outs).reshape(T, N, B, HEADS, D).swapaxes(1, 2)
    np.testing.assert_allclose(in_turn, at_once, atol=2e-6 * np.abs(expected).max())
    np.testing.assert_allclose(state, last, atol=1e-5)


def retention(decay: float) -> Any:
    return lambda causal: Retention(np.random.default_rng(1), HIDDEN, (decay, decay / 2), causal)


def attention(causal: bool) -> Attention:
    return Attention(np.random.default_rng(1), HIDDEN, HEADS, causal)


LAYERS = {"attention": attention, "retention": retention(0.9), "no memory": retention(0.0)}


def net(layer: str, blocks: int = 2) -> InTurn:
    rng = np.random.default_rng(2)
    torso = Mlp(rng, (0,), 5, HIDDEN, 1, Style("tanh", False))
    return InTurn(rng, torso, LAYERS[layer], HIDDEN, blocks, 3, "tanh")


def in_turn(net: InTurn, obs: Any, action: Any) -> tuple[Any, Any]:
    """The decoder's features, instant by instant and agent by agent, and the last carry."""

    def instant(carry: Any, rows: tuple) -> tuple[Any, Any]:
        obs, previous, first, alive, known = rows
        encoded, carry = net.encode((obs[None],), carry, first[None], alive[None])
        encoded = present(encoded, alive)

        def one(state: Any, i: Any) -> tuple[Any, Any]:
            own = [jax.lax.dynamic_slice_in_dim(x, i, 1, 1) for x in (encoded[0], previous, known)]
            features, state = net.turn(own[0], own[1], state, i, own[2])
            return state, features[:, 0]

        opened, features = jax.lax.scan(one, net.open(carry, first, N), jnp.arange(N))
        return net.close(carry, opened), features.swapaxes(0, 1)

    known = before(jnp.asarray(ALIVE), True)
    rows = (obs, before(action, 0.0), FIRST, ALIVE, known)
    carry, features = jax.lax.scan(instant, net.carry(B, N), rows)
    return features, carry


@pytest.mark.parametrize("layer", LAYERS)
def test_a_decoder_decides_in_turn_what_it_evaluates_at_once(layer: str) -> None:
    """Features and the carry after the last instant; the dead are read by nobody."""
    one = net(layer)
    obs, action = normal(T, B, N, 5), normal(T, B, N, 3) * ALIVE[..., None]

    @jax.jit
    def both(obs: Any, action: Any) -> Any:
        encoded, carry = one.encode((obs,), one.carry(B, N), FIRST, ALIVE)
        at_once = one.decode(encoded, action, carry, FIRST, ALIVE)
        return at_once, in_turn(one, obs, action), encoded

    (features, carry), (again, carried), encoded = both(obs, action)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=3e-5), carry, carried)
    np.testing.assert_allclose(features, again, atol=3e-5)
    noise = np.where(ALIVE[..., None], obs, normal(*obs.shape))
    (other, _), _, read = both(noise, action)
    np.testing.assert_array_equal(np.asarray(read)[ALIVE], np.asarray(encoded)[ALIVE])
    np.testing.assert_array_equal(np.asarray(other)[ALIVE], np.asarray(features)[ALIVE])


@pytest.mark.parametrize("layer", LAYERS)
def test_who_reads_what(layer: str) -> None:
    """An agent's features depend on actions of those before it, in the same instant, and on nobody
    else's; with memory also on the past of the same episode, and on none of another."""
    one = net(layer)
    everybody = jnp.ones((T, B, N), bool)
    obs, action = normal(T, B, N, 5), normal(T, B, N, 3)

    @jax.jit
    def features(action: Any) -> Any:
        encoded, carry = one.encode((obs,), one.carry(B, N), FIRST, everybody)
        return one.decode(encoded, action, carry, FIRST, everybody)[0]

    time, agent = 4, 1
    other = action.copy()
    other[time, :, agent] += 1.0
    moved = np.abs(np.asarray(features(other) - features(action))).max(-1) > 1e-6  # [T,B,N]
    expected = np.zeros((T, B, N), bool)
    expected[time, :, agent + 1 :] = True
    if layer == "retention":
        expected[5:, [0, 2]] = True  # game 1 opens an episode at instant 5
    np.testing.assert_array_equal(moved, expected)


def test_without_blocks_features_are_the_torsos() -> None:
    one = net("attention", blocks=0)
    obs = normal(T, B, N, 5)
    encoded, carry = one.encode((obs,), one.carry(B, N), FIRST, ALIVE)
    features, _ = one.decode(encoded, normal(T, B, N, 3), carry, FIRST, ALIVE)
    plain, _ = one.torso((obs,), None, FIRST)
    np.testing.assert_array_equal(features[ALIVE], plain[ALIVE])
