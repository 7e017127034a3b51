"""Games of jaxmarl, gymnax and jumanji on the compiled engine, held against the packages' own
single games."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import OFF, TINY, build, run

from shoal.engine.loop import Loop
from shoal.envs.adapters import football
from shoal.envs.jax import FOREIGN
from shoal.errors import ShoalError
from shoal.types import Discrete

GAMES, STEPS = 6, 40
CARTPOLE = ("gymnax:CartPole-v1", ("max_steps_in_episode", 12))
PENDULUM = ("gymnax:Pendulum-v1", ("max_steps_in_episode", 9))
RIDDLE = ("jaxmarl:switch_riddle",)
SPREAD = ("jaxmarl:MPE_simple_spread_v3", ("max_steps", 7))
SMAX = (
    "jaxmarl:HeuristicEnemySMAX",
    ("scenario", "3m"),
    ("max_steps", 7),
    ("world_steps_per_env_step", 6),
    ("map_width", 8),
    ("map_height", 8),
)
SNAKE = ("jumanji:Snake-v1", ("num_rows", 3), ("num_cols", 3), ("time_limit", 5))
FORAGING = ("jumanji:LevelBasedForaging-v0", ("time_limit", 6))
ALL = (CARTPOLE, PENDULUM, RIDDLE, SPREAD, SMAX, SNAKE, FORAGING)


def make(env: tuple) -> Any:
    package, name = env[0].split(":")
    pytest.importorskip(package)
    return FOREIGN[package](name, dict(env[1:]))


class Log(NamedTuple):
    """What was played, one team's."""

    env: Any
    worlds: Any  # every leaf [T+1,B,…]
    views: Any  # View, every field [T+1,B,…]
    actions: np.ndarray  # [T,B,N] or [T,B,N,A]
    keys: Any  # [T] of the steps

    @property
    def ends(self) -> np.ndarray:
        """[T,B] whether the step ended an episode: the next one opens another."""
        return np.concatenate([self.views.first[2:], np.zeros((1, GAMES), bool)])


@cache
def played(env: tuple) -> Log:
    """Some steps of random legal actions, and in Snake also of those that end it."""
    game = make(env)
    (team, spec), *others = game.teams.items()
    assert not others

    def act(key, view):
        if isinstance(spec.action, Discrete):
            return jax.random.categorical(key, jnp.where(view.legal | (env is SNAKE), 0.0, -1e9))
        return 3.0 * jax.random.normal(key, view.legal.shape)  # beyond the bounds, too

    def step(now, key):
        state, views = now
        action = act(jax.random.fold_in(key, 7), views[team])
        after = game.step(key, state, {team: action})
        return after, (after[0].world, after[1][team], action)

    @jax.jit
    def whole(key, keys):
        state, views = game.reset(key, GAMES)
        _, (worlds, seen, actions) = jax.lax.scan(step, (state, views), keys)
        first = (state.world, views[team])
        worlds, seen = jax.tree.map(
            lambda a, b: jnp.concatenate([a[None], b]), first, (worlds, seen)
        )
        return worlds, seen, actions

    keys = jax.random.split(jax.random.key(1), STEPS)
    worlds, views, actions = jax.device_get(whole(jax.random.key(0), keys))
    return Log(game, worlds, views, actions, keys)


def rows(obs: Any) -> np.ndarray:
    return np.asarray([np.ravel(row) for row in obs], np.float32)


class Theirs:
    """The package's own game, unbatched: `begin` a world and `move` it, with what its agents
    see."""

    def __init__(self, env: Any) -> None:
        self.env, self.own = env, env.env
        package = env.name.split(":")[0]
        self.begin = jax.jit(getattr(self, f"begin_{package}"))
        self.move = jax.jit(getattr(self, f"move_{package}"))

    def begin_gymnax(self, key):
        obs, world = self.own.reset_env(key, self.env.params)
        return world, [obs]

    def move_gymnax(self, key, world, action):
        obs, world, reward, ended, _ = self.own.step_env(
            key, world, jnp.asarray(action[0]), self.env.params
        )
        return world, [obs], [reward], ended | self.own.is_truncated(world, self.env.params)

    def begin_jaxmarl(self, key):
        obs, world = self.own.reset(key)
        return world, [obs[agent] for agent in self.own.agents]

    def move_jaxmarl(self, key, world, action):
        agents = self.own.agents
        obs, world, reward, done, _ = self.own.step_env(
            key, world, dict(zip(agents, action, strict=True))
        )
        return (
            world,
            [obs[agent] for agent in agents],
            [reward[agent] for agent in agents],
            done["__all__"],
        )

    def begin_jumanji(self, key):
        world, told = self.own.reset(key)
        return world, self.look(told.observation)

    def move_jumanji(self, key, world, action):
        world, told = self.own.step(world, action if len(action) > 1 else action[0])
        seen = self.look(told.observation)
        return world, seen, jnp.broadcast_to(told.reward, len(seen)), told.last()

    def look(self, seen):
        views = seen.agents_view if hasattr(seen, "agents_view") else [seen.grid.ravel()]
        return [jnp.append(view, seen.step_count) for view in views]


@pytest.mark.slow
@pytest.mark.parametrize("env", ALL, ids=lambda env: env[0])
def test_episodes_are_the_package_s_own_to_their_last_view_and_reward(env):
    log = played(env)
    raw_game = Theirs(log.env)
    opening = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(0), GAMES)))
    assert log.ends.any()
    for game in range(2):
        world, obs = raw_game.begin(opening[game])
        np.testing.assert_allclose(log.views.obs[0, game], rows(obs), atol=1e-5)
        ours, raw, done = [0.0], [0.0], False
        for t, key in enumerate(log.keys):
            assert log.views.first[t + 1, game] == done
            if done:
                again = jax.random.split(jax.random.fold_in(key, 1), GAMES)
                world, obs = raw_game.begin(jax.random.key_data(again)[game])
                done, rewards = False, np.zeros(len(obs))
                assert abs(ours[-1] - raw[-1]) < 1e-3
                ours, raw = [*ours, 0.0], [*raw, 0.0]
            else:
                one = jax.random.key_data(jax.random.split(key, GAMES))[game]
                action = log.actions[t, game]
                if env is PENDULUM:
                    action = action.clip(-2.0, 2.0)
                world, obs, rewards, done = raw_game.move(one, world, action)
            np.testing.assert_allclose(log.views.obs[t + 1, game], rows(obs), atol=1e-4)
            np.testing.assert_allclose(log.views.reward[t + 1, game], rewards, atol=1e-4)
            ours[-1] += float(log.views.reward[t + 1, game].sum())
            raw[-1] += float(np.sum(rewards))
        assert len(raw) > 1


@pytest.mark.parametrize("env", ALL, ids=lambda env: env[0])
@pytest.mark.slow
def test_an_episode_opens_with_everyone_alive_no_reward_and_a_future(env):
    views = played(env).views
    for field, value in (("reward", 0), ("discount", 1), ("alive", 1)):
        assert (getattr(views, field)[views.first] == value).all()
    assert (views.legal.any(-1) | ~views.alive).all()


@pytest.mark.slow
@pytest.mark.parametrize("env", ALL, ids=lambda env: env[0])
def test_a_checkpoint_can_keep_the_worlds(env):
    assert all(leaf.dtype.kind in "biuf" for leaf in jax.tree.leaves(played(env).worlds))


@pytest.mark.slow
@pytest.mark.parametrize("env", [PENDULUM, SPREAD, FORAGING], ids=lambda env: env[0])
def test_the_clock_of_a_task_without_an_end_truncates(env):
    log = played(env)
    assert (log.views.discount[1:][log.ends] == 1).all() and log.views.alive.all()


def test_falling_ends_cartpole_and_its_clock_does_not():
    log = played(CARTPOLE)
    x, _, angle, _ = np.moveaxis(log.views.obs[1:, :, 0], -1, 0)
    fallen = (abs(angle) > 12 * 2 * np.pi / 360) | (abs(x) > 2.4)
    np.testing.assert_array_equal(log.views.discount[1:, :, 0] == 0, fallen)
    assert (fallen & log.ends).any() and (~fallen & log.ends).any()


def test_speaking_ends_the_riddle_and_its_clock_does_not_even_on_the_same_step():
    log = played(RIDDLE)
    in_room = log.views.obs[:-1, ..., 0] > 0
    spoke = ((log.actions == 2) & in_room).any(-1) & ~log.views.first[1:]
    np.testing.assert_array_equal(log.views.discount[1:].max(-1) == 0, spoke)
    late = log.worlds.step[1:] >= log.env.env.max_steps
    assert (
        (log.ends & late & spoke).any()
        and (log.ends & late & ~spoke).any()
        and (log.ends & ~late).any()
    )


def test_a_crash_ends_snake_and_its_clock_does_not():
    log = played(SNAKE)
    late, ended = log.worlds.step_count[1:] >= 5, log.views.discount[1:, :, 0] == 0
    assert ended[log.ends & ~late].all() and (log.ends & ~late).any()
    assert not ended[log.ends & late].all() and not ended[:-1][~log.ends[:-1]].any()


@pytest.mark.slow
def test_smax_tells_who_is_dead_what_is_legal_and_its_own_state():
    log, battle = played(SMAX), played(SMAX).worlds.state
    dead = ~battle.unit_alive[..., :3]
    np.testing.assert_array_equal(~log.views.alive, dead)
    ended = (dead.all(-1) | ~battle.unit_alive[..., 3:].any(-1))[..., None]
    np.testing.assert_array_equal(log.views.discount > 0, log.views.alive & ~ended)
    out_of_time = log.ends & ~ended[1:, :, 0]
    assert (dead[1:].any(-1) & out_of_time).any() and (log.ends & ~out_of_time).any()
    t, game = np.argwhere(dead.any(-1) & ~dead.all(-1))[0]
    world = jax.tree.map(lambda x: jnp.asarray(x[t, game]), log.worlds)
    legal = log.env.env.get_avail_actions(world)
    np.testing.assert_array_equal(
        log.views.legal[t, game], np.array([legal[f"ally_{i}"] for i in range(3)]) > 0
    )
    np.testing.assert_allclose(
        log.views.state[t, game], log.env.env.get_world_state(world), atol=1e-5
    )


def test_jaxmarl_teams_are_by_name_and_padded_when_put_together():
    name = "jaxmarl:MPE_simple_speaker_listener_v4"
    apart, together = make((name,)), make((name, ("one_team", True)))
    assert {
        team: (spec.obs, spec.action.size, spec.rivals) for team, spec in apart.teams.items()
    } == {
        "speaker": (3, 3, 5),
        "listener": (11, 5, 3),
    }
    spec = together.teams["agent"]
    assert (spec.obs_sizes, spec.action_sizes, spec.state, spec.joined) == (
        (3, 11),
        (3, 5),
        14,
        False,
    )
    _, seen = together.open(jax.random.PRNGKey(0))
    np.testing.assert_array_equal(seen.legal["agent"], np.arange(5) < np.array([[3], [5]]))
    assert not seen.obs["agent"][0, 3:].any() and seen.state.shape == (14,)


@pytest.mark.parametrize(
    ("env", "name"),
    [(CARTPOLE, "ppo"), (PENDULUM, "ddpg"), (RIDDLE, "qmix"), (SNAKE, "dqn")],
    ids=lambda x: x[0] if isinstance(x, tuple) else x,
)
def test_training_stays_finite(env, name):
    game = played(env).env
    (team,) = game.teams
    off = {} if name == "ppo" else OFF
    algorithm = build(name, game, team, **TINY, **off)
    state, metrics = run(Loop(game, {team: algorithm}, games=4, window=10, steps=1000), 2)
    assert all(
        np.isfinite(x).all()
        for x in jax.tree.leaves((state.learners, metrics))
        if x.dtype.kind == "f"
    )
    assert 40 < state.steps <= 80


@pytest.mark.parametrize(
    ("name", "options", "wide"),
    [
        ("overcooked", {"layout": "coord_ring"}, 650),
        ("overcooked_v2", {"layout": "cramped_room"}, 600),  # not version 1's of that name
        ("overcooked_v2", {"layout": "two_rooms"}, 1575),
    ],
)
def test_each_overcooked_has_layouts_of_its_own(name, options, wide):
    assert FOREIGN["jaxmarl"](name, options).teams["agent"].obs == wide


@pytest.mark.parametrize("name", ["overcooked", "overcooked_v2"])
def test_an_unknown_layout_names_those_there_are(name):
    with pytest.raises(ShoalError, match=r"no layout 'crampd_room' \(did you mean 'cramped_room'"):
        FOREIGN["jaxmarl"](name, {"layout": "crampd_room"})


@pytest.mark.parametrize(
    ("env", "says"),
    [
        (("gymnax:CartPole-v2",), "did you mean 'CartPole-v1'"),
        (("gymnax:CartPole-v1", ("gravit", 1.0)), "no option 'gravit' .did you mean 'gravity'"),
        (("jaxmarl:SMACS",), "did you mean 'SMAX'"),
        (("jaxmarl:MPE_simple_spread_v3", ("max_step", 3)), "did you mean 'max_steps'"),
        (("jaxmarl:SMAX", ("scenario", "3mm")), "no scenario '3mm' .did you mean '3m'"),
        (("jaxmarl:switch_riddle", ("num_agents", 2)), "num_agents=2"),
        (("jaxmarl:storm",), "no observations by agent"),
        (("jumanji:Snake-v9",), "did you mean 'Snake-v1'"),
        (("jumanji:JobShop-v0",), "actions, more than"),
    ],
    ids=lambda x: x[0] if isinstance(x, tuple) else "",
)
def test_mistakes_are_told_in_a_sentence(env, says):
    with pytest.raises(ShoalError, match=says):
        make(env)


# -- football, where it is built -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "options", "says"),
    [
        ("academy_empty_gaol", {}, "did you mean 'academy_empty_goal'"),
        ("5_vs_5", {"player": 3}, "did you mean 'players'"),
        ("5_vs_5", {"players": 12}, "from 0 to 11"),
        ("5_vs_5", {"rewards": "goals"}, "'scoring' or"),
    ],
)
def test_mistakes_about_football_are_told_in_a_sentence(scenario, options, says):
    with pytest.raises(ShoalError, match=says):
        football.make(scenario, options, False)


@pytest.mark.skipif(
    importlib.util.find_spec("gfootball") is not None, reason="gfootball is installed"
)
def test_missing_football_says_how_to_build_it():
    with pytest.raises(ShoalError, match="pip install --no-build-isolation gfootball"):
        football.make("5_vs_5", {}, False)


@pytest.mark.skipif(
    importlib.util.find_spec("gfootball") is None, reason="gfootball takes 13 minutes to compile"
)
def test_football_is_the_same_from_equal_seeds_and_ends_as_told():
    match = football.make("academy_3_vs_1_with_keeper", {"right": 1}, False)
    assert {team: spec.n for team, spec in match.teams.items()} == {"left": 3, "right": 1}
    episodes = []
    for seed in (5, 5, 6):
        rng, moments = np.random.default_rng(0), [match.reset(seed)]
        while not moments[-1].over:
            moments.append(
                match.step(
                    {team: rng.integers(0, 19, spec.n) for team, spec in match.teams.items()}
                )
            )
        episodes.append(moments)
        last = moments[-1].teams["left"]
        assert last.discount.max() == (1.0 if len(moments) > 400 else 0.0)
        assert last.obs.shape == (3, 115) and moments[-1].state.shape == (126,)
    states = [[m.state.tolist() for m in moments] for moments in episodes]
    assert states[0] == states[1] != states[2]
    match.close()


@pytest.mark.slow
@pytest.mark.parametrize("shoots", [True, False])
def test_smax_is_won_as_the_packages_own_log_tells_it(shoots):
    """The same keys and actions through its wrapper for logs; enemies that do not shoot lose."""
    game = make((*SMAX[:2], ("max_steps", 40), ("enemy_shoots", shoots)))
    from jaxmarl.wrappers.baselines import SMAXLogWrapper

    assert game.metrics == ("won",)
    wrapped = SMAXLogWrapper(game.env)
    won = []
    move, said = jax.jit(game.move), jax.jit(game.episode_metrics)
    for seed in range(3):
        key = jax.random.PRNGKey(seed)
        (world, seen), (_, log) = game.open(key), wrapped.reset(key)
        over = False
        while not over:
            key, step = jax.random.split(key)
            legal = np.asarray(seen.legal["ally"])
            # shoot whoever can be shot, else stay where they come to
            actions = np.where(
                legal[:, 5:].any(-1), legal.shape[1] - 1 - legal[:, ::-1].argmax(-1), 4
            )
            told = {f"ally_{i}": jnp.asarray(action) for i, action in enumerate(actions)}
            world, seen = move(jax.random.split(step)[0], world, {"ally": jnp.asarray(actions)})
            _, log, _, done, info = wrapped.step(step, log, told)
            over = bool(done["__all__"])
            assert over == bool(seen.over)
        assert float(info["returned_won_episode"][0]) == float(said(world)["won"])
        won.append(bool(said(world)["won"]))
    assert any(won) if not shoots else True


def test_both_sides_of_smax_may_win():
    game = make(("jaxmarl:SMAX", ("scenario", "3m")))
    assert game.metrics == ("ally/won", "enemy/won")
    world, _ = jax.eval_shape(game.open, jax.random.PRNGKey(0))
    world = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), world)
    for alive, wins in (((1, 0), (1, 0)), ((0, 2), (0, 1)), ((0, 0), (0, 0)), ((1, 1), (0, 0))):
        units = [i < alive[0] for i in range(3)] + [i < alive[1] for i in range(3)]
        said = game.episode_metrics(world.replace(unit_alive=jnp.array(units)))
        assert (int(said["ally/won"]), int(said["enemy/won"])) == wins
    together = make(("jaxmarl:SMAX", ("scenario", "3m"), ("one_team", True)))
    assert together.metrics == () and make(RIDDLE).metrics == ()


def test_a_crowd_is_refused_before_it_is_made():
    with pytest.raises(ShoalError, match="num_agents must be at most 1,000, not 1000000"):
        make(("jaxmarl:MPE_simple_spread_v3", ("num_agents", 10**6)))
