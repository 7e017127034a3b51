"""What every native game promises: honest specs, the reset on the next step, determinism, errors
that teach."""

from __future__ import annotations

import dataclasses
import re
import sys
from functools import cached_property, lru_cache
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import OFF, TINY, build, run, with_pages
from places import ROOT

from shoal import envs
from shoal.engine.loop import Loop
from shoal.envs.check import check
from shoal.envs.game import BLOCK
from shoal.errors import ShoalError
from shoal.types import Box, Discrete, Spec, View, Window

B = 3
IDS = sorted(envs.GAMES)
MATRICES = {env_id for env_id in IDS if env_id.startswith("matrix/")}
CHANCE_FREE = MATRICES | {"test/endless", "test/corridor"}
TRULY_ENDING = MATRICES | {"test/memory", "test/mortal"}
LENGTHS = ("max_cycles", "repetitions", "length")
FAST = {"xla_backend_optimization_level": 0}  # to compile, not to run


def short(env_id: str, steps: int) -> envs.Game:
    """The game with episodes of so many steps."""
    fields = {field.name for field in dataclasses.fields(envs.GAMES[env_id])}
    return envs.make(env_id, **{name: steps for name in LENGTHS if name in fields})


def random_actions(
    game: envs.Game, views: dict[str, View], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Legal ones."""
    actions = {}
    for team, spec in game.teams.items():
        shape = views[team].legal.shape
        if isinstance(spec.action, Box):
            lots = rng.uniform(spec.action.low, spec.action.high, shape)
        else:
            luck = rng.random(shape) * np.asarray(views[team].legal)
            lots = np.stack([part.argmax(-1) for part in spec.action.split(luck)], -1)
        lots = lots.reshape(*shape[:2], *spec.action.shape)
        actions[team] = lots.astype(spec.action.dtype)
    return actions


@lru_cache
def programs(game: envs.Game):
    return jax.jit(game.reset, static_argnums=1, compiler_options=FAST), jax.jit(
        game.step, compiler_options=FAST
    )


def stream(
    game: envs.Game, steps: int, seed: int = 0, games: int = B
) -> tuple[dict[str, View], list[dict]]:
    """Views at instants 0…steps, stacked, and the actions between them."""
    reset, step = programs(game)
    rng = np.random.default_rng(0)
    state, views = reset(jax.random.key(seed), games)
    seen, taken = [views], []
    for t in range(steps):
        taken.append(random_actions(game, views, rng))
        state, views = step(jax.random.fold_in(jax.random.key(seed), t), state, taken[-1])
        seen.append(views)
    return jax.tree.map(lambda *x: np.stack(x), *seen), taken


@pytest.mark.parametrize("env_id", IDS)
def test_spec_is_honest(env_id):
    game = short(env_id, 3)
    assert game.name == env_id and game.limit == 3
    assert (
        game == short(env_id, 3)
        and hash(game) == hash(short(env_id, 3))
        and game != short(env_id, 4)
    )
    views, _ = stream(game, 8)
    for team, spec in game.teams.items():
        view, n = views[team], spec.n
        assert len(set(spec.agents)) == n > 0
        shapes = View((n, spec.obs), (spec.state,), (n, spec.action.size), (n,), (), (n,), (n,))
        kinds = View(np.float32, np.float32, bool, bool, bool, np.float32, np.float32)
        for name, x, shape, kind in zip(View._fields, view, shapes, kinds, strict=True):
            assert x.shape == (9, B, *shape), name
            assert x.dtype == kind, name
        assert all(np.isfinite(x).all() for x in (view.obs, view.state, view.reward))
        assert view.legal.any(-1).all()
        for i, size in enumerate(spec.action_sizes):
            assert not view.legal[:, :, i, size:].any()
        for i, size in enumerate(spec.obs_sizes):
            assert not view.obs[:, :, i, size:].any()
        assert set(np.unique(view.discount)) <= {0.0, 1.0}


@pytest.mark.parametrize("env_id", IDS)
def test_teams_know_of_each_other(env_id):
    """How wide the others' actions are, and whether the state is just the team's own observations
    side by side."""
    game = short(env_id, 3)
    views, _ = stream(game, 4)
    for team, spec in game.teams.items():
        others = [other.n * other.action.size for name, other in game.teams.items() if name != team]
        assert spec.rivals == sum(others)
        side_by_side = views[team].obs.reshape(*views[team].first.shape, -1)
        same = side_by_side.shape == views[team].state.shape and np.array_equal(
            side_by_side, views[team].state
        )
        assert not spec.joined or same
        assert spec.joined or len(game.teams) > 1 or not same


@pytest.mark.parametrize("env_id", IDS)
def test_reset_on_the_next_step(env_id):
    """Final view, then the opening view of a new episode, of which the action had no part."""
    game = short(env_id, 3)
    views, _ = stream(game, 8)
    opening, final = np.array([0, 4, 8]), np.array([3, 7])
    for view in views.values():
        assert np.array_equal(view.first, np.isin(np.arange(9), opening)[:, None].repeat(B, 1))
        assert not view.reward[opening].any()
        assert (view.discount[opening] == 1).all() and view.alive[opening].all()
        if env_id in TRULY_ENDING:
            assert not view.discount[final].any()
        else:
            assert (view.discount[final] == 1).all()
        living = view.discount == view.alive
        assert living[~np.isin(np.arange(9), final)].all()


@pytest.mark.parametrize("env_id", IDS)
def test_trap_4_a_three_step_episode_has_three_transitions(env_id):
    game = short(env_id, 3)
    views, _ = stream(game, 7)
    for view in views.values():
        window = Window(**{**dict.fromkeys(Window._fields), "view": view})
        assert window.valid[:, :, 0].T.tolist() == [[True, True, True, False, True, True, True]] * B
        assert (window.weight <= window.valid).all()


@pytest.mark.parametrize("env_id", IDS)
def test_determined_by_the_key(env_id):
    game = short(env_id, 3)
    once, again, other = (stream(game, 5, seed)[0] for seed in (0, 0, 1))
    assert all(
        np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(once), jax.tree.leaves(again), strict=True)
    )
    same = all(np.array_equal(once[team].obs, other[team].obs) for team in game.teams)
    assert same == (env_id in CHANCE_FREE)
    if env_id not in CHANCE_FREE:  # nor are two games, or two episodes, alike
        joint = np.concatenate([once[team].obs.reshape(6, B, -1) for team in game.teams], axis=-1)
        openings = joint[[0, 4]].reshape(2 * B, -1)
        assert len(np.unique(openings, axis=0)) > 1


@pytest.mark.parametrize("env_id", ["mpe/simple_tag", "test/mortal"])
def test_blocks_of_games_see_the_same(env_id):
    """Observations laid out block by block equal those laid out at once."""
    game = envs.make(env_id)
    world = jax.jit(game.start, static_argnums=1, compiler_options=FAST)(
        jax.random.key(0), 2 * BLOCK
    )
    blocks = jax.jit(game._outward, static_argnums=1, compiler_options=FAST)(world, 2 * BLOCK)
    plain = jax.jit(game.observe, compiler_options=FAST)(world)
    for team in game.teams:
        assert np.array_equal(blocks[team], np.moveaxis(np.asarray(plain[team]), -1, 0))


def test_games_of_a_batch_end_on_their_own():
    """One game's end leaves its neighbours alone."""
    game = envs.make("test/identity", length=3)
    _, step = programs(game)
    state, _ = programs(game)[0](jax.random.key(0), B)
    state = state._replace(clock=jnp.array([2, 1, 0], jnp.int32))
    firsts = []
    for t in range(4):
        state, views = step(jax.random.key(t), state, {"agent": np.zeros((B, 2), np.int32)})
        firsts.append(views["agent"].first.tolist())
    assert firsts == [[False] * 3, [True, False, False], [False, True, False], [False, False, True]]


def rewards_of(env_id: str, answer, steps: int, **options) -> np.ndarray:
    """[T,B,N] what a policy `answer(view) -> action` earns the first team."""
    game = envs.make(env_id, **options)
    reset, step = programs(game)
    state, views = reset(jax.random.key(0), B)
    earned = []
    for t in range(steps):
        actions = {team: answer(jax.tree.map(np.asarray, view)) for team, view in views.items()}
        state, views = step(jax.random.key(t), state, actions)
        earned.append(next(iter(views.values())).reward)
    return np.stack(earned)


def cue(view: View) -> np.ndarray:
    return view.obs[..., : view.legal.shape[-1]].argmax(-1).astype(np.int32)


def test_factored_identity_pays_the_share_that_is_right():
    def answers(view: View) -> np.ndarray:
        return view.obs.reshape(*view.alive.shape, 6, 5).argmax(-1).astype(np.int32)

    assert (rewards_of("test/factored_identity", answers, 10) == 1).all()
    wrong = np.array([0, 1, 0, 0, 2, 0])
    half = rewards_of("test/factored_identity", lambda view: (answers(view) + wrong) % 5, 10)
    np.testing.assert_allclose(half, 4 / 6, rtol=1e-6)


def test_identity_pays_the_cue():
    assert (rewards_of("test/identity", cue, 10) == 1).all()
    assert (rewards_of("test/identity", lambda view: (cue(view) + 1) % 4, 10) == 0).all()


def test_continuous_identity_pays_the_distance():
    assert np.allclose(rewards_of("test/continuous_identity", lambda view: view.obs, 10), 0)
    beyond = rewards_of("test/continuous_identity", lambda view: np.full_like(view.obs, 5), 10)
    assert (beyond >= -4).all() and beyond.min() < -1  # clipped to the bounds
    half = rewards_of("test/continuous_identity", lambda view: 0.5 * view.obs, 10)
    assert (half <= 0).all() and half.min() < -0.1


def test_memory_pays_only_at_the_end():
    game = envs.make("test/memory")
    views, taken = stream(game, 4)
    view, answers = views["agent"], taken[-1]["agent"]
    asked = view.obs[0, :, :, :2].argmax(-1)
    assert (view.obs[0, :, :, :2].sum(-1) == 1).all() and not view.obs[1:, :, :, :2].any()
    assert not view.reward[:4].any() and np.array_equal(view.reward[4], answers == asked)
    assert view.obs[:, 0, 0, 2].tolist() == [0, 0, 0, 1, 0]


def test_endless_pays_one():
    views, _ = stream(envs.make("test/endless"), 12)
    view = views["agent"]
    assert (view.reward[1:11] == 1).all() and (view.discount == 1).all() and (view.obs == 1).all()


def test_mortal_agents_die_and_the_team_plays_on():
    views, _ = stream(envs.make("test/mortal"), 6)
    view = views["agent"]
    assert view.alive[:, 0].sum(0).tolist() == [2, 4, 6]
    assert np.array_equal(view.discount[1:], view.alive[1:])
    assert (view.reward == view.reward[:, :, :1]).all()
    choices = view.legal.sum(-1)
    assert (
        (choices[::2][view.alive[::2]] == 2).all()
        and (choices[1::2] == 1).all()
        and (choices[~view.alive] == 1).all()
    )
    best = rewards_of("test/mortal", cue, 6)[:, :, 0]
    assert np.allclose(best.T, np.array([3, 3, 2, 2, 1, 1 + 3]) / 3)
    late = rewards_of(
        "test/mortal",
        lambda view: np.where(view.obs[..., -1:].max() == 0, (cue(view) + 2) % 3, cue(view)),
        6,
    )
    assert np.allclose(late[:, 0, 0], np.array([0, 3, 2, 2, 1, 1]) / 3)


@pytest.mark.parametrize(
    ("env_id", "options", "joint", "pays"),
    [
        ("matrix/climbing", {}, (0, 0), (11, 11)),
        ("matrix/climbing", {}, (0, 1), (-30, -30)),
        ("matrix/climbing", {}, (1, 2), (6, 6)),
        ("matrix/climbing", {}, (2, 1), (0, 0)),
        ("matrix/penalty", {}, (2, 2), (-100, -100)),
        ("matrix/penalty", {"k": -7}, (0, 0), (-7, -7)),
        ("matrix/penalty", {"repetitions": 1}, (2, 0), (10, 10)),
        ("matrix/nonmonotonic", {}, (0, 0), (8, 8)),
        ("matrix/nonmonotonic", {}, (2, 0), (-12, -12)),
        ("matrix/nonmonotonic", {}, (1, 2), (0, 0)),
        ("matrix/matching_pennies", {}, (1, 1), (1, -1)),
        ("matrix/matching_pennies", {}, (1, 0), (-1, 1)),
    ],
)
def test_payoffs(env_id, options, joint, pays):
    game = envs.make(env_id, **options)
    reset, step = programs(game)
    joint = iter(joint)
    actions = {
        t: np.array([[next(joint) for _ in spec.agents]] * B, np.int32)
        for t, spec in game.teams.items()
    }
    _, views = step(jax.random.key(0), reset(jax.random.key(0), B)[0], actions)
    assert np.concatenate([view.reward[0] for view in views.values()]).tolist() == list(pays)


@pytest.mark.parametrize(
    ("env_id", "options", "told"),
    [
        ("mpe/simple_spred", {}, ["'mpe/simple_spread'", "shoal list"]),
        ("", {}, ["shoal list"]),
        ("mpe/simple_spread", {"local_ration": 0.5}, ["'local_ratio'", "mpe/simple_spread"]),
        ("mpe/simple_spread", {"N": 0}, ["N must", "at least 1", "0"]),
        ("mpe/simple_spread", {"N": 2.5}, ["N must", "whole number"]),
        ("mpe/simple_spread", {"N": 2**40}, ["N must be smaller than 2**32"]),
        ("mpe/simple_spread", {"local_ratio": "half"}, ["local_ratio must be a number"]),
        ("mpe/simple_spread", {"local_ratio": 1.5}, ["local_ratio", "between 0 and 1"]),
        ("mpe/simple_spread", {"local_ratio": float("nan")}, ["local_ratio"]),
        (
            "mpe/simple_spread",
            {"continuous_actions": "false"},
            ["continuous_actions", "true or false"],
        ),
        ("mpe/simple_spread", {"num_agent_neighbors": 0}, ["num_agent_neighbors"]),
        ("mpe/simple_spread", {"curriculum_stage": 1}, ["curriculum=True"]),
        (
            "mpe/simple_spread",
            {"curriculum": True, "curriculum_stage": 2},
            ["curriculum_stage", "between 0 and 1"],
        ),
        ("mpe/simple_reference", {"local_ratio": -0.1}, ["local_ratio"]),
        ("mpe/simple_tag", {"num_good": 0}, ["num_good"]),
        ("mpe/simple_tag", {"num_obstacles": -1}, ["num_obstacles", "at least 0"]),
        ("mpe/simple_world_comm", {"num_food": 0}, ["num_food"]),
        ("mpe/simple", {"max_cycles": 0}, ["max_cycles", "at least 1"]),
        ("matrix/climbing", {"repetitions": 0}, ["repetitions"]),
        ("matrix/penalty", {"k": 3}, ["k must"]),
        ("test/identity", {"n": -1}, ["n must"]),
        ("test/memory", {"actions": 0}, ["actions must"]),
    ],
)
def test_errors_teach(env_id, options, told):
    with pytest.raises(ShoalError) as error:
        envs.make(env_id, **options)
    assert all(part in str(error.value) for part in told) and "\n" not in str(error.value)


# The page that shows how to write one

PAGE = ROOT / "docs" / "adding-a-game.md"


@pytest.fixture
def printed(monkeypatch):
    """The game of the page, as it is printed there, with its picture."""
    example, picture = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    page = ModuleType("printed")
    monkeypatch.setitem(sys.modules, "printed", page)
    imports, _, scene = picture.partition("\n\n")
    exec(f"{imports}\n{example}\n{scene}", vars(page))  # one file; the class is its last thing
    monkeypatch.setitem(envs.GAMES, "my/chase", page.Chase)
    return page.Chase


@with_pages
def test_the_game_of_the_page_keeps_the_contract_and_can_be_drawn(printed):
    game = envs.make("my/chase", breath=3)
    report = check(game, steps=45)
    assert not any(report.findings.values()) and report.episodes == 3
    views, _ = stream(game, 30)
    dead = ~views["dog"].alive
    assert dead.any() and not views["dog"].obs[dead].any() and not views["dog"].discount[dead].any()
    assert PAGE.read_text().count("src/shoal/envs/registry.py") == 1
    game.drawable()
    state, _ = game.reset(jax.random.key(0), 1)
    assert next(iter(game.pictures([state], [{}], 0))).ndim == 3


@pytest.mark.slow
@with_pages
@pytest.mark.parametrize("team", ["dog", "hare"])
def test_two_teams_of_a_game_know_their_rivals_without_being_lined_up(printed, team):
    """--rivals: a critic as wide as all that others do."""
    game = envs.make("my/chase")
    assert {team: spec.rivals for team, spec in game.teams.items()} == {"dog": 3, "hare": 6}
    algorithms = {
        name: build("maddpg", game, name, **TINY, **OFF, rivals=True)
        if name == team
        else build("random", game, name)
        for name in game.teams
    }
    state, _ = run(Loop(game, algorithms, games=2, window=8, steps=1000), 2)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.learners[team]))


def test_teams_are_lined_up_however_a_game_names_them():
    """A cached property, a property or a plain dictionary; also of a game that inherits them."""
    teams = {
        name: Spec((f"{name}_0",), obs=2, state=4, action=Discrete(size))
        for name, size in (("a", 3), ("b", 5))
    }
    kinds = (cached_property(lambda game: teams), property(lambda game: teams), teams)
    games = [type("Named", (envs.Game,), {"name": "my/named", "teams": kind}) for kind in kinds]
    for game in [*games, type("Heir", (games[0],), {})]:
        assert {team: spec.rivals for team, spec in game().teams.items()} == {"a": 5, "b": 3}
