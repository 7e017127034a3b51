"""Our robot warehouse against the real `rware`, over whole episodes from the same opening and with
the same requests.

What a delivery draws is taken from the package. Where chains of equal length want the same cell,
the package goes by the order of a set: such a step is not compared but for how many robots move,
and we go on from the package's world. Of all other steps every observation and every reward must be
equal, to the bit.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("rware")

import rware_bridge as bridge
from helpers import opened, quick

from shoal.envs import make
from shoal.envs.native.rware.warehouse import SIZES, WarehouseWorld
from shoal.errors import ShoalError

EPISODES = 20
FAST = {"xla_backend_optimization_level": 0}  # to compile, not to run
SETTINGS = [
    ("rware/tiny-2ag", {"max_cycles": 120}),
    ("rware/tiny-4ag", {"max_cycles": 120}),
    ("rware/small-4ag-hard", {"max_cycles": 80}),
    ("rware/tiny-3ag-easy", {"max_cycles": 100, "reward_type": "global"}),
    ("rware/1x3-3h-6ag", {"max_cycles": 80, "reward_type": "two_stage"}),
    ("rware/2s-1x3-2h-9ag-3req", {"max_cycles": 50, "normalised_coordinates": True}),
    ("rware/tiny-4ag", {"max_cycles": 60, "msg_bits": 3}),
    ("rware/1x3-1h-12ag-1req", {"max_cycles": 40}),
    ("rware/3s-medium-8ag-twostage", {"max_cycles": 30}),
    ("rware/xlarge-5ag", {"max_cycles": 30}),
]
NAMES = ["-".join([env_id, *map(str, options.values())]) for env_id, options in SETTINGS]
ALL = (
    "stands still",
    "swap",
    "circle",
    "circle with others behind",
    "chain",
    "contest",
    "shelf in the way",
)
ALL = (*ALL, "lift", "lower", "delivery", "tie")


def duel(env_id: str, options: dict, episodes: int, seed: int = 0):
    """Play the package's episodes again in our game and hold every step to theirs."""
    game = make(env_id, **options)
    truth = bridge.play(game, episodes, seed)

    @jax.jit
    def step(world, action, lots):
        world = game.look(game.deliver(game.act(world, action.T), lots))
        return world, game.observe(world)["agent"], game.reward(world)["agent"]

    def theirs(t: int) -> WarehouseWorld:
        return WarehouseWorld(*(leaf[t] for leaf in truth.worlds))

    # the package knows of it only there
    told = ("brought",) if game.reward_type == "two_stage" else ()
    world = jax.tree.map(jnp.asarray, theirs(0))
    assert np.array_equal(game.observe(game.look(world))["agent"], truth.obs[0].astype(np.float32))
    for t in range(game.limit):
        before = np.asarray(world.place)
        world, obs, reward = step(world, truth.actions[t], truth.lots[t])
        real, tied, plain = theirs(t + 1), truth.tied[t], ~truth.tied[t]
        assert np.array_equal(
            np.asarray(obs)[..., plain], truth.obs[t + 1][..., plain].astype(np.float32)
        )
        assert np.array_equal(np.asarray(reward)[:, plain], truth.reward[t + 1][:, plain])
        for name in ("place", "way", "load", "said", "stands", "queue", "delivered", *told):
            ours = np.asarray(getattr(world, name))
            assert np.array_equal(ours[..., plain], getattr(real, name)[..., plain]), name
        moved = (
            (np.asarray(world.place) != before).any(1).sum(0),
            (real.place != before).any(1).sum(0),
        )
        assert np.array_equal(*moved)
        world = jax.tree.map(lambda ours, real, tied=tied: jnp.where(tied, real, ours), world, real)
    return truth


@pytest.fixture(scope="module")
def happened():
    """What happened in all that was compared."""
    return bridge.Counter()


@pytest.mark.parametrize(("env_id", "options"), quick(SETTINGS, 1), ids=NAMES)
def test_whole_episodes(env_id, options, happened):
    truth = duel(env_id, options, EPISODES)
    happened += truth.events
    assert truth.events["lift"] and truth.events["stands still"], truth.events
    assert truth.tied.mean() < 0.2


@pytest.mark.slow
def test_the_episodes_are_eventful(happened):
    assert all(happened[event] >= 20 for event in ALL), happened


@pytest.mark.parametrize("size", SIZES)
def test_the_floor_is_the_packages(size):
    game = make(f"rware/{size}-2ag")
    env = bridge.real(game)
    env.reset(seed=0)
    assert np.array_equal(game.floor.highway, env.highways)
    assert [(x, y) for y, x in game.floor.goals.tolist()] == [tuple(goal) for goal in env.goals]
    assert [(y, x) for y, x in game.floor.shelves.tolist()] == [
        (shelf.y, shelf.x) for shelf in env.shelfs
    ]
    rows, columns = game.floor.highway.shape
    every = np.indices((rows, columns)).reshape(2, -1)[None]
    assert np.array_equal(game._on_highway(every)[0], game.floor.highway.reshape(-1))
    assert env.observation_space[0].shape == (game.teams["agent"].obs,)
    assert game.teams["agent"].action.size == env.action_space[0].n


def test_openings_are_drawn_alike():
    """Robots on different cells, anywhere, facing anywhere; different shelves requested, any of
    them."""
    game, games = make("rware/tiny-3ag"), 6000
    world = jax.tree.map(
        np.asarray, jax.jit(game.start, static_argnums=1)(jax.random.key(0), games)
    )
    cells = world.place[:, 0] * 10 + world.place[:, 1]
    for numbers, total in ((cells, 110), (world.way, 4), (world.queue - 1, 32)):
        for row in numbers:
            share = np.bincount(row, minlength=total) / games
            assert (
                len(share) == total and np.abs(share * total - 1).max() < 5 * (total / games) ** 0.5
            )
    for numbers in (cells, world.queue):
        assert all((numbers[i] != numbers[j]).all() for i in range(3) for j in range(i))
        assert np.abs(np.corrcoef(numbers) - np.eye(3)).max() < 0.06
    assert not world.load.any() and not world.delivered.any()


@pytest.mark.slow
def test_deliveries_request_any_other_shelf():
    """A robot with a requested shelf on a goal: its slot is filled anew, from those that were not
    requested."""
    game, games = make("rware/tiny-2ag"), 3000
    world = jax.jit(game.start, static_argnums=1)(jax.random.key(0), games)
    goal = jnp.asarray(game.floor.goals[1])
    world = world._replace(
        place=jnp.broadcast_to(jnp.stack([goal, jnp.array([0, 0])])[..., None], (2, 2, games)),
        queue=jnp.broadcast_to(jnp.array([[7], [30]]), (2, games)),
        load=jnp.broadcast_to(jnp.array([[30], [0]]), (2, games)),
        stands=jnp.where(world.stands == 30, 0, world.stands),
    )
    after = jax.jit(game.advance)(
        jax.random.key(1), world, {"agent": jnp.zeros((2, games), jnp.int32)}
    )
    assert (after.queue[0] == 7).all() and (after.earned == jnp.array([[1.0], [0.0]])).all()
    assert (game.episode_metrics(after)["deliveries"] == 1).all()
    share = np.bincount(after.queue[1], minlength=33)
    assert (
        not share[[0, 7, 30]].any()
        and (share[share > 0] > games / 30 / 2).all()
        and (share > 0).sum() == 30
    )
    assert (
        game.advance(jax.random.key(2), after, {"agent": jnp.zeros((2, games), jnp.int32)}).earned
        == 0
    ).mean() > 0.9


def test_time_running_out_is_no_end():
    game = make("rware/tiny-2ag", max_cycles=3)
    state, _ = opened(game, 4)
    for t in range(3):
        state, views = jax.jit(game.step)(
            jax.random.key(t), state, {"agent": np.zeros((4, 2), np.int32)}
        )
    assert state.over.all() and (views["agent"].discount == 1).all()


@pytest.mark.parametrize(
    ("env_id", "options", "told"),
    [
        ("rware/huge-2ag", {}, ["rware/huge-2ag", "tiny-2ag", "xlarge"]),
        ("rware/", {}, ["tiny-2ag"]),
        ("rware/tiny-0ag", {}, ["n_agents", "at least 1"]),
        ("rware/1x2-2ag", {}, ["shelf_columns", "odd"]),
        ("rware/tiny-1ag-hard", {}, ["request_queue_size", "at least 1"]),
        ("rware/tiny-20ag-easy", {}, ["request_queue_size", "32 shelves"]),
        ("rware/tiny-2ag", {"reward_type": "both"}, ["reward_type", "two_stage", "'both'"]),
        ("rware/tiny-2ag", {"sensor_range": 0}, ["sensor_range"]),
        ("rware/tiny-2ag", {"msg_bits": 99}, ["msg_bits"]),
        ("rware/tiny-2ag", {"msgbits": 1}, ["'msg_bits'"]),
    ],
)
def test_errors_teach(env_id, options, told):
    with pytest.raises(ShoalError) as error:
        make(env_id, **options)
    assert all(part in str(error.value) for part in told) and "\n" not in str(error.value)


def test_ids_say_options():
    assert (
        make("rware") == make("rware/tiny-2ag") == make("rware/1x3-8h-2ag", request_queue_size=None)
    )
    assert make("rware/small-4ag-easy").request_queue_size == 8
    assert make("rware/2s-large-3h-4ag-2req-global") == make(
        "rware/large-4ag",
        sensor_range=2,
        column_height=3,
        request_queue_size=2,
        reward_type="global",
    )
