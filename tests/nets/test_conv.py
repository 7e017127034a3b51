"""Observations that are images of bytes: kept as bytes, read by convolutions, learnt from by every
family."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from games import DEPTH, SIDE, Quadrants
from helpers import OFF, REPLAYED, TEAM, TINY, build, clock, opened, run, studied
from jax import Array

from shoal.algorithms.net_config import NetConfig
from shoal.engine.evaluate import Evaluator
from shoal.engine.loop import Loop
from shoal.errors import ShoalError
from shoal.nets.conv import Cnn, Conv, ConvEncoder
from shoal.nets.gru import Gru
from shoal.nets.mlp import Mlp, Style
from shoal.store.observations import _team_view
from shoal.types import View

GAME: Any = Quadrants()


def loop(name: str, **settings: Any) -> Loop:
    """Of an algorithm with tiny nets on that game."""
    settings = TINY | (OFF if name in REPLAYED else {}) | {"channels": "4,4"} | settings
    return Loop(GAME, {TEAM: build(name, GAME, **settings)}, games=4, window=10, steps=1000)


def torso(
    kind: type, owner: tuple[int, ...] = (0, 0), pixels=(SIDE, SIDE, DEPTH), others: int = 3
) -> Cnn:
    """Convolutions before a torso, its image between two other parts."""
    rng = np.random.default_rng(0)
    eye = ConvEncoder(rng, owner, pixels, (4, 5), "tanh")
    return Cnn(eye, kind(rng, owner, eye.size + others, 8, 2, Style("tanh", False)), at=1)


def parts(
    steps: int, games: int = 3, agents: int = 2, pixels=(SIDE, SIDE, DEPTH)
) -> tuple[Array, Array, Array]:
    """One number, an image, two numbers."""
    rng = np.random.default_rng(1)
    image = rng.integers(0, 256, (steps, games, agents, int(np.prod(pixels))), dtype=np.uint8)
    before, after = (
        rng.normal(size=(steps, games, agents, size)).astype(np.float32) for size in (1, 2)
    )
    return jnp.asarray(before), jnp.asarray(image), jnp.asarray(after)


def read(
    net: Cnn, seen: tuple[Array, ...], first: Array, carry: Array | None = None
) -> tuple[Array, Array]:
    """Features and carry, as one program."""
    return eqx.filter_jit(net)(seen, net.carry(3, 2) if carry is None else carry, first)


# -- the net ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "out"),
    [
        ((5, 5, 3), (3, 3, 4)),
        ((13, 13, 5), (6, 6, 4)),
        ((84, 84, 3), (20, 20, 4)),
        ((9, 33, 1), (7, 8, 4)),
    ],
)
def test_a_convolution_is_xlas_own_and_reads_every_pixel(shape, out):
    """Also the last row and column of sides no stride divides: zeros are put behind them."""
    conv = Conv(np.random.default_rng(0), (0,), shape, 4)
    assert conv.out == out
    image = np.random.default_rng(1).integers(0, 256, (2, *shape), dtype=np.uint8)
    (high, wide), (rows, columns) = conv.stride, conv.span
    kernel = conv.dense.weight[0].reshape(rows, columns, high, wide, shape[-1], 4).swapaxes(1, 2)
    kernel = kernel.reshape(rows * high, columns * wide, shape[-1], 4)
    margin = [(0, -shape[0] % high), (0, -shape[1] % wide)]
    theirs = jax.lax.conv_general_dilated(
        jnp.asarray(image) / 255,
        kernel,
        conv.stride,
        margin,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    np.testing.assert_allclose(
        eqx.filter_jit(conv)(jnp.asarray(image)[:, :, :, None])[:, :, :, 0], theirs, atol=1e-5
    )
    slope = jax.jit(jax.grad(lambda x: (conv(x) ** 2).sum()))(
        image[:1, :, :, None].astype(np.float32)
    )
    assert (slope != 0).all()


@pytest.mark.parametrize("pixels", [(1, 1, 1), (2, 7, 3), (13, 13, 5)])
def test_any_size_of_image_is_read(pixels):
    net = torso(Mlp, pixels=pixels)
    features, _ = read(net, parts(2, pixels=pixels), jnp.zeros((2, 3), bool))
    assert features.shape == (2, 3, 2, 8) and jnp.isfinite(features).all()


def test_bytes_are_scaled_once_and_may_come_as_floats():
    """A white pixel is 1, whether the eye has convolutions or none; who plays from outside may send
    floats."""
    white = jnp.full((1, 1, 1, 12), 255, jnp.uint8)
    flat = ConvEncoder(np.random.default_rng(0), (0,), (2, 2, 3), (), "tanh")
    assert flat.size == 12 and (flat(white) == 1.0).all()
    eye = ConvEncoder(np.random.default_rng(0), (0,), (2, 2, 3), (4,), "tanh")
    np.testing.assert_allclose(
        eye(white)[0, 0, 0], np.tanh(eye.convs[0].dense.weight[0].sum(0)), rtol=1e-5
    )
    assert (eye(white.astype(jnp.float32)) == eye(white)).all()


@pytest.mark.parametrize("kind", [Mlp, Gru])
def test_own_weights_that_are_alike_see_what_shared_ones_see(kind):
    """And a partition reads each agent's image by its owner's weights."""
    shared, image, first = torso(kind), parts(4), jnp.zeros((4, 3), bool)
    ours, carry = read(shared, image, first)
    own = torso(kind, owner=(0, 1))
    copies = [jnp.concatenate([leaf, leaf]) for leaf in jax.tree.leaves(shared)]
    same = jax.tree.unflatten(jax.tree.structure(own), copies)
    theirs, carried = read(same, image, first)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    np.testing.assert_allclose(carry, carried, atol=1e-5)
    swapped = jax.tree.map(lambda x: x[::-1], own)
    turned = tuple(part[:, :, ::-1] for part in image)
    mixed, mirrored = read(own, image, first)[0], read(swapped, turned, first)[0]
    np.testing.assert_allclose(mixed, mirrored[:, :, ::-1], atol=1e-5)
    assert np.abs(mixed - ours).max() > 0.01


def test_a_recurrent_torso_remembers_images_from_window_to_window():
    net, image, first = torso(Gru), parts(6), jnp.zeros((6, 3), bool).at[4, 1].set(True)
    early, late = (tuple(part[cut] for part in image) for cut in (slice(0, 3), slice(3, 6)))
    whole, end = read(net, image, first)
    start, middle = read(net, early, first[:3])
    rest, last = read(net, late, first[3:], middle)
    np.testing.assert_allclose(whole, np.concatenate([start, rest]), atol=1e-6)
    np.testing.assert_allclose(end, last, atol=1e-6)
    assert np.abs(rest - read(net, late, first[3:])[0]).max() > 0.01


@pytest.mark.parametrize("channels", ["16,x", "0", "16,", "-4"])
def test_channels_that_are_none_are_refused_in_one_sentence(channels):
    with pytest.raises(ShoalError, match="whole numbers such as 16,32"):
        NetConfig(channels=channels)


# -- memory ----------------------------------------------------------------------------------------


def test_the_replay_keeps_bytes_and_draws_what_was_seen():
    """A byte for every pixel, and the size that is announced is the size there is."""
    seen = studied("dqn", GAME)
    ring = seen.memory.ring.view
    assert ring.obs.dtype == np.uint8 and ring.state.dtype == np.float32
    assert ring.obs.nbytes == ring.obs.size == ring.alive.size * SIDE * SIDE * DEPTH
    assert seen.batch.context.view.obs.dtype == np.uint8 and set(
        np.unique(seen.drawn.window.view.obs)
    ) == {0, 50, 255}
    assert loop("dqn").sizes()[TEAM] == sum(leaf.nbytes for leaf in jax.tree.leaves(seen.memory))


@pytest.mark.parametrize("name", ["maa2c", "mfq", "owqmix", "masac"])
def test_no_byte_becomes_a_float_on_its_way_through_the_loop(name):
    """Traced only: shapes and types of the whole state are after an iteration what they were
    before."""
    whole = loop(name, torso="gru", sharing="own", last_action=True)
    learners = {TEAM: whole.algorithms[TEAM].init(np.random.default_rng(0))}
    before = jax.eval_shape(whole._open_all, learners, jax.random.key(0))
    after, _ = jax.eval_shape(whole.program(1), before)
    assert before.views[TEAM].obs.dtype == np.uint8
    assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(
        lambda x: (x.shape, x.dtype), before
    )


def test_a_player_is_shown_images_as_they_are():
    """`[H,W,C]` by agent: it acts as in the game."""
    algorithm = build("ppo", GAME, **TINY)
    _, views = opened(GAME, 1)
    spec = GAME.teams[TEAM]
    pictures = {f"agent_{i}": np.asarray(views[TEAM].obs[:, i], np.float32) for i in range(2)}
    shown = _team_view(spec, pictures, {}, {}, 1)

    def whole(*views: View) -> list[Array]:
        learner = algorithm.init(np.random.default_rng(0))
        given = algorithm.carry(learner, 1), clock(), True
        return [
            algorithm.act(learner, jax.random.key(0), view, *given).record.log_prob
            for view in views
        ]

    ours, theirs = jax.jit(whole)(views[TEAM], shown)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


# -- learning --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind", "sharing"),
    [("coma", "mlp", "shared"), ("qmix", "gru", "own"), ("sac", "mlp", "shared")],
)
def test_training_stays_finite_and_reaches_every_convolution(name, kind, sharing):
    """Adam's first moment is zero only where no gradient ever came."""
    state, metrics = run(loop(name, torso=kind, sharing=sharing), 2)
    learner = state.learners[TEAM]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((learner, metrics)))
    moments = [opt[1].mu for opt in learner.opt.values()]
    eyes = [
        net
        for net in jax.tree.leaves(moments, is_leaf=lambda x: isinstance(x, ConvEncoder))
        if isinstance(net, ConvEncoder)
    ]
    assert eyes and all((np.asarray(leaf) != 0).any() for leaf in jax.tree.leaves(eyes))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ppo", {"lr": 0.03}),
        (
            "dqn",
            OFF
            | {
                "capacity": 5_000,
                "batch": 32,
                "length": 4,
                "updates": 8,
                "gamma": 0.0,
                "epsilon_steps": 3_000,
            },
        ),
    ],
)
def test_pictures_are_learnt_from(name, settings):
    """10 steps, of which chance answers 2.5; each pixel is seen about 400 times."""
    algorithm = build(name, GAME, **(TINY | {"hidden": 16, "channels": "8"} | settings))
    state, _ = run(Loop(GAME, {TEAM: algorithm}, games=16, window=16, steps=30 * 256), 30)
    assert (
        Evaluator(GAME, {TEAM: algorithm}, 64, greedy=True)(state.learners, 0, clock(1e6)).score()[
            TEAM
        ]
        > 9
    )
