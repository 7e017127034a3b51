"""Our level-based foraging against the real `lbforaging`, over whole episodes from the same
opening.

Nothing but the opening is random in either game, and no rule of a step depends on an order: every
observation of every step must be equal to the bit, every reward to the last digit of float32.
Openings are compared by their statistics.
"""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("lbforaging")

import lbf_bridge as bridge
from helpers import quick

from shoal.cli.main import main
from shoal.config.arguments import compose_arguments
from shoal.config.config import Config
from shoal.envs import make
from shoal.envs.game import GameState
from shoal.errors import ShoalError
from shoal.nets.entities import parse

EPISODES = 40
FAST = {"xla_backend_optimization_level": 0}  # to compile, not to run
SETTINGS = [
    ("lbf/5x5-2p-1f-coop", {}),
    ("lbf/8x8-2p-2f-coop", {}),
    ("lbf/10x10-3p-3f", {}),
    ("lbf/15x15-4p-5f", {}),
    ("lbf/2s-8x8-2p-2f-coop-pen", {}),
    ("lbf/1s-5x7-3p-2f", {"penalty": 0.25, "normalize_reward": False}),
    ("lbf/3s-6x5-5p-2f", {"max_player_level": 4, "observe_agent_levels": False}),
    ("lbf/4x4-6p-4f-ind", {"max_cycles": 20}),
    ("lbf/grid-8x8-2p-2f-coop", {}),
    ("lbf/grid-2s-6x6-4p-3f", {"max_food_level": 3, "min_food_level": 2}),
    ("lbf/grid-1s-5x5-3p-1f", {"observe_agent_levels": False}),
    ("lbf/6x6-1p-2f", {"min_player_level": 2}),
]


def duel(env_id: str, options: dict, episodes: int, seed: int = 0) -> bridge.Episodes:
    """Play the package's episodes again in our game and hold every instant to theirs."""
    game = make(env_id, **options)
    truth = bridge.play(game, episodes, seed)
    state = GameState(truth.opening, jnp.zeros(episodes, jnp.int32), jnp.zeros(episodes, bool))
    step = jax.jit(game.step, compiler_options=FAST)
    for t in range(game.limit):
        state, views = step(jax.random.key(t), state, {"agent": truth.actions[t]})
        live, view = truth.live[t + 1], views["agent"]
        assert np.array_equal(np.moveaxis(view.obs, 0, -1)[..., live], truth.obs[t + 1][..., live])
        np.testing.assert_allclose(view.reward.T[:, live], truth.reward[t + 1][:, live], rtol=3e-7)
        assert np.array_equal(
            np.asarray(state.world.place)[..., live], truth.place[t + 1][..., live]
        )
        assert np.array_equal(view.state[live], np.asarray(view.obs).reshape(episodes, -1)[live])
        ended = truth.left[t + 1] == 0
        assert np.array_equal(
            (view.discount == 0)[live], np.repeat(ended[live, None], game.players, 1)
        )
        assert np.array_equal(state.over[live], (ended | (t + 1 == game.limit))[live])
        # What follows an end is of no concern: go on from wherever we are, but never open anew.
        state = state._replace(over=jnp.zeros(episodes, bool))
    return truth


@pytest.mark.parametrize(
    ("env_id", "options"), quick(SETTINGS, 3), ids=[env_id for env_id, _ in SETTINGS]
)
def test_whole_episodes(env_id, options):
    truth = duel(env_id, options, EPISODES)
    assert truth.events["blocked"] and truth.events["loaded"], truth.events
    game = make(env_id, **options)
    if game.players > 1:
        assert truth.events["clash"] and truth.events["swap"], truth.events
    if game.players > 2:
        assert truth.events["shared"], truth.events
    if game.players > 1 and "coop" in env_id:
        assert truth.events["together"], truth.events
    if game.penalty:
        assert truth.events["failed"], truth.events


@pytest.mark.slow
@pytest.mark.parametrize(("env_id", "options"), SETTINGS, ids=[env_id for env_id, _ in SETTINGS])
def test_the_opening_is_seen_alike(env_id, options):
    game = make(env_id, **options)
    truth = bridge.play(game, 8, seed=500)
    seen = jax.jit(game.observe, compiler_options=FAST)(truth.opening)["agent"]
    assert np.array_equal(seen, truth.obs[0])
    assert game.teams["agent"].obs == truth.obs.shape[2]


def drawn(env_id: str, games: int = 4000):
    game = make(env_id)
    return game, jax.tree.map(
        np.asarray, jax.jit(game.start, static_argnums=1)(jax.random.key(1), games)
    )


@pytest.mark.slow
@pytest.mark.parametrize("env_id", ["lbf/8x8-2p-2f", "lbf/5x6-3p-2f-coop", "lbf/5x5-4p-4f"])
def test_openings_are_drawn_alike(env_id):
    """Where players and food are, how much food there is, and its levels, follow the package's
    distributions."""
    game, ours = drawn(env_id)
    # on a crowded board the package tries 1,000 cells
    games = 1500 if game.max_num_food < 4 else 150
    env = bridge.real(game)
    theirs = []
    for seed in range(games):
        env.reset(seed=seed)
        theirs.append(bridge.read(env, game.max_num_food))
    theirs = {name: np.stack([one[name] for one in theirs], -1) for name in theirs[0]}

    def shares(place, there):
        cells = (place[:, 0] * game.columns + place[:, 1])[there]
        return np.bincount(cells, minlength=game.rows * game.columns) / there.shape[-1]

    bound = 2 / games**0.5
    everywhere = np.ones_like(ours.level, bool), np.ones_like(theirs["level"], bool)
    assert (
        np.abs(shares(ours.place, everywhere[0]) - shares(theirs["place"], everywhere[1])).max()
        < bound
    )
    food = shares(ours.food, ours.amount > 0), shares(theirs["food"], theirs["amount"] > 0)
    assert np.abs(food[0] - food[1]).max() < bound and np.array_equal(food[0] > 0, food[1] > 0)
    for field in ("level", "amount", "spawned"):
        a, b = getattr(ours, field), theirs[field]
        kinds = range(max(a.max(), b.max()) + 1)
        assert all(abs((a == k).mean() - (b == k).mean()) < bound for k in kinds), field


@pytest.mark.parametrize(
    "env_id", ["lbf/8x8-3p-3f", "lbf/8x8-3p-3f-v2", "lbf/8x8-3p-3f-v1", "lbf/8x8-3p-3f-coop-v1"]
)
def test_versions_open_by_their_own_rules(env_id):
    """v3: food up to the sum of the three lowest levels; v1, v2: one less, but not if force_coop;
    v1 spares an edge."""
    game, world = drawn(env_id)
    three = np.sort(world.level, axis=0)[:3].sum(0)
    highest = three if game.version == "v3" or game.force_coop else three - 1
    assert (
        (world.amount <= highest).all()
        and (world.amount == highest).any(1).all()
        and (world.amount >= 1).all()
    )
    assert (world.amount == three).all() == game.force_coop
    edge = (world.place[:, 0] == 7) | (world.place[:, 1] == 7)
    assert edge.any() == (game.version != "v1")
    assert (world.place == 0).any() and world.food.min() == 1 and world.food.max() == 6
    cells = np.concatenate([world.place, world.food])
    apart = np.abs(cells[:, None] - cells).sum(2) + 99 * np.eye(len(cells), dtype=int)[..., None]
    assert apart.min() >= 1 and apart[3:, 3:].min() >= 3
    order = world.food[:, 0] * 8 + world.food[:, 1]
    assert (np.diff(order, axis=0) > 0).all()


def test_ends_are_told_apart():
    """No food left ends the task; running out of time does not."""
    game = make("lbf/5x5-2p-1f", max_cycles=30)
    truth = bridge.play(game, 40)
    left = truth.left[-1]
    assert (left == 0).any() and (left > 0).any()
    metrics = game.episode_metrics(
        truth.opening._replace(amount=jnp.asarray(left, jnp.int32)[None])
    )
    assert np.array_equal(metrics["won"], left == 0)
    assert np.allclose(metrics["food"], 1 - left / np.asarray(truth.opening.spawned))


@pytest.mark.parametrize(
    ("env_id", "options", "told"),
    [
        ("lbf/8x8-2p", {}, ["lbf/8x8-2p", "8x8-2p-2f"]),
        ("lbf/", {}, ["8x8-2p-2f"]),
        ("lbf/2x2-2p-1f", {}, ["rows", "at least 3"]),
        ("lbf/8x8-2p-0f", {}, ["max_num_food", "at least 1"]),
        ("lbf/3x3-9p-1f-v1", {}, ["9 players", "3 rows"]),
        ("lbf/999x8-2p-1f", {}, ["rows", "100"]),
        ("lbf/8x8-2p-2f", {"version": "v4"}, ["version", "v3", "'v4'"]),
        ("lbf/8x8-2p-2f", {"sight": 0}, ["sight"]),
        ("lbf/8x8-2p-2f", {"sigth": 2}, ["'sight'"]),
        ("lbf/8x8-2p-2f", {"max_player_level": 0}, ["max_player_level"]),
        ("lbf/8x8-2p-2f", {"penalty": -1.0}, ["penalty"]),
    ],
)
def test_errors_teach(env_id, options, told):
    with pytest.raises(ShoalError) as error:
        make(env_id, **options)
    assert all(part in str(error.value) for part in told) and "\n" not in str(error.value)


def test_options_change_what_the_id_says():
    assert make("lbf/8x8-2p-2f", sight=2, players=3) == make("lbf/2s-8x8-3p-2f")
    assert make("lbf/8x10-2p-2f-coop").force_coop and make("lbf/8x10-2p-2f").columns == 10
    assert make("lbf") == make("lbf/8x8-2p-2f-v3")


def test_ids_are_known_to_commands_and_saved_configs(capsys):
    """`shoal list` and `shoal info` tell of them, flags change what they say, and a config comes
    back as it was."""
    config, _ = compose_arguments(
        ["ppo", "lbf/2s-9x9-3p-2f-coop-v1", "--env.penalty", "0.5", "--env.players", "4"]
    )
    assert config.game == make("lbf/2s-9x9-4p-2f-coop-v1", penalty=0.5)
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert main(["info", "lbf/2s-9x9-3p-2f-coop-v1"]) == 0
    told = capsys.readouterr().out
    assert "sees 15 numbers" in told and "--env.sight                 2 " in told
    assert main(["list"]) == 0 and "lbf/8x8-2p-2f" in capsys.readouterr().out


def test_it_says_where_food_others_and_oneself_are_in_an_observation():
    game = make("lbf/8x8-3p-2f")
    spec = game.teams["agent"]
    assert spec.entities == "0:3x2,9:3x2@6,7"
    state, views = jax.jit(lambda key: game.reset(key, 4))(jax.random.key(0))
    told = parse(spec.entities)
    obs = np.asarray(views["agent"].obs)
    place = np.moveaxis(np.asarray(state.world.place), -1, 0)
    np.testing.assert_array_equal(obs[..., list(told.own_place)], place)
    seen = np.asarray(told.nearest_first(obs))
    others = seen[..., 9:15].reshape(4, 3, 2, 3)[..., :2] + place[:, :, None]
    for game_, agent in np.ndindex(4, 3):
        expected = np.delete(place[game_], agent, 0).tolist()
        assert sorted(others[game_, agent].tolist()) == sorted(expected)
    assert make("lbf/grid-8x8-3p-2f").teams["agent"].entities == ""
    alone = make("lbf/8x8-1p-2f", observe_agent_levels=False).teams["agent"]
    assert alone.entities == "0:3x2@6,7" and alone.obs == 8
