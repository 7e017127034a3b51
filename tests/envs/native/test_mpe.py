"""Our MPE games against the real ones of `mpe2`, step by step and over whole episodes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mpe_bridge as bridge
import numpy as np
import pytest

from shoal.envs import GAMES, make
from shoal.envs.game import GameState
from shoal.envs.native.mpe import physics
from shoal.nets.entities import parse
from shoal.types import Discrete

pytest.importorskip("mpe2")

EPISODES = 16
TOLERANCE = 1e-4
FAST = {"xla_backend_optimization_level": 0}  # to compile, not to run
SCENARIOS = sorted(env_id for env_id in GAMES if env_id.startswith("mpe/"))
SETTINGS = [
    (env_id, {"continuous_actions": kind}) for env_id in SCENARIOS for kind in (False, True)
] + [
    ("mpe/simple", {"max_cycles": 7}),
    ("mpe/simple_adversary", {"N": 4, "num_agent_neighbors": 2, "num_landmark_neighbors": 3}),
    ("mpe/simple_reference", {"local_ratio": 0.2}),
    ("mpe/simple_spread", {"N": 2, "terminate_on_success": True, "local_ratio": 1.0}),
    (
        "mpe/simple_spread",
        {"N": 5, "num_agent_neighbors": 6, "num_landmark_neighbors": 2, "continuous_actions": True},
    ),
    ("mpe/simple_spread", {"curriculum": True}),
    ("mpe/simple_spread", {"curriculum": True, "curriculum_stage": 1, "local_ratio": 0.9}),
    (
        "mpe/simple_tag",
        {"num_good": 2, "num_adversaries": 2, "num_obstacles": 0, "terminate_on_success": True},
    ),
    ("mpe/simple_tag", {"num_good": 3, "num_agent_neighbors": 3, "num_landmark_neighbors": 1}),
    ("mpe/simple_tag", {"curriculum": True, "curriculum_stage": 1, "num_good": 2}),
    (
        "mpe/simple_world_comm",
        {"num_good": 3, "num_adversaries": 1, "num_food": 1, "num_forests": 3},
    ),
    ("mpe/simple_world_comm", {"num_obstacles": 0, "num_forests": 0, "continuous_actions": True}),
]
NAMES = [
    "-".join([env_id[4:], *(f"{k}={v}" for k, v in options.items())])
    for env_id, options in SETTINGS
]


@pytest.fixture(scope="module", params=SETTINGS, ids=NAMES)
def duel(request):
    """A game of ours, its compiled step, and what the real one did."""
    env_id, options = request.param
    game = make(env_id, **options)
    return game, jax.jit(game.step, compiler_options=FAST), bridge.play(game, EPISODES)


def compare(game, instants, truth):
    """Our states and views at instants 1…T against the real ones, in the episodes that have not
    ended before."""
    states, views = jax.tree.map(lambda *x: np.moveaxis(np.stack(x), 1, -1), *instants)  # [T,…,B]
    live = truth.live[1:]
    ended = live & truth.ended[1:]

    def assert_close(ours, theirs):
        error = np.abs(ours - theirs)
        assert (
            error.max(initial=0.0, where=np.expand_dims(live, tuple(range(1, error.ndim - 1))))
            < TOLERANCE
        )

    agent = 0
    for team, spec in game.teams.items():
        view, theirs = views[team], truth.obs[1:, agent : agent + spec.n]
        assert_close(view.obs, theirs[:, :, : spec.obs])
        assert not theirs[:, :, spec.obs :].any()
        assert_close(view.reward, truth.reward[1:, agent : agent + spec.n])
        assert_close(view.state, truth.state[1:])
        assert np.array_equal(
            (view.discount == 0) & live[:, None],
            np.broadcast_to(ended[:, None], view.discount.shape),
        )
        assert view.alive.all()
        agent += spec.n
    assert np.array_equal(states.over & live, live & (truth.ended | truth.timeout)[1:])


def opening(world, clock):
    return GameState(world, jnp.full(EPISODES, clock, jnp.int32), jnp.zeros(EPISODES, bool))


def test_every_step_from_the_real_world(duel):
    """Put back into the real world before every step, so that errors cannot add up."""
    game, step, truth = duel
    key = jax.random.key(0)
    compare(
        game,
        [step(key, opening(truth.worlds[t], t), a) for t, a in enumerate(truth.actions)],
        truth,
    )


def test_whole_episodes(duel):
    """Put into the real opening once, then left alone."""
    game, step, truth = duel
    state, instants = opening(truth.worlds[0], 0), []
    for actions in truth.actions:
        instants.append(step(jax.random.key(0), state, actions))
        state = instants[-1][0]
    compare(game, instants, truth)


@pytest.mark.parametrize(
    ("env_id", "options"), [("mpe/simple_spread", {"N": 2}), ("mpe/simple_tag", {})]
)
def test_success_with_the_last_step_is_a_timeout(env_id, options):
    """As mpe2 has it: a step that both succeeds and exhausts the time only truncates."""
    game = make(env_id, terminate_on_success=True, max_cycles=1, **options)
    truth = bridge.play(game, EPISODES)
    step = jax.jit(game.step, compiler_options=FAST)
    compare(game, [step(jax.random.key(0), opening(truth.worlds[0], 0), truth.actions[0])], truth)
    succeeded = game.terminal(truth.worlds[1], jnp.zeros(EPISODES, jnp.int32))
    assert succeeded.any() and not truth.ended.any() and truth.timeout[1].all()


def test_the_episodes_are_eventful(duel):
    """Contact, the arena's edge, top speed and success really happen in what is compared."""
    game, _, truth = duel
    pos, vel, fixed, _, word = (
        np.concatenate(parts, axis=-1) for parts in zip(*truth.worlds, strict=True)
    )
    sizes = np.array([agent.size for agent in game.agents])
    top = np.array([agent.max_speed for agent in game.agents])[:, None]
    if any(agent.collides for agent in game.agents):
        apart = np.hypot(*np.moveaxis(pos[:, None] - pos, 2, 0)) + np.eye(len(pos))[..., None]
        assert (apart < (sizes[:, None] + sizes)[..., None]).any((0, 1)).sum() > EPISODES / 3
    if any(agent.accel for agent in game.agents):
        assert (np.abs(pos) > 1.5).any() and ((np.abs(pos) > 0.9) & (np.abs(pos) < 1.0)).any()
    if np.isfinite(top).all():
        assert (np.hypot(vel[:, 0], vel[:, 1]) > 0.999 * top).any()
    if getattr(game, "terminate_on_success", False):
        assert truth.ended.any() and truth.timeout.any()
    if getattr(game, "num_forests", 0):
        inside = np.hypot(*np.moveaxis(pos[:, None] - fixed[-game.num_forests :], 2, 0)) < 0.3
        assert inside.any((0, 1)).sum() > EPISODES and not inside.all()
    assert (word != 0).any(-1).all()


def test_same_agents_and_spaces(duel):
    game, _, _ = duel
    env = bridge.real(game)
    specs = game.teams.values()
    assert [agent for spec in specs for agent in spec.agents] == env.possible_agents
    for spec in specs:
        for agent, obs, actions in zip(spec.agents, spec.obs_sizes, spec.action_sizes, strict=True):
            space = env.action_space(agent)
            assert env.observation_space(agent).shape == (obs,)
            assert actions == (space.n if isinstance(spec.action, Discrete) else space.shape[0])
            if not isinstance(spec.action, Discrete):
                assert (spec.action.low[0], spec.action.high[0]) == (space.low[0], space.high[0])
    assert env.unwrapped.state_space.shape == (next(iter(specs)).state,)
    env.close()


@pytest.mark.parametrize("env_id", SCENARIOS)
def test_openings_are_drawn_alike(env_id):
    """Positions, velocities, goals and words of the opening follow mpe2's distributions."""
    game, env = make(env_id), bridge.real(make(env_id))
    theirs, rng = [], np.random.default_rng(0)
    for _ in range(400):
        env.unwrapped.scenario.reset_world(env.unwrapped.world, rng)
        theirs.append(bridge.read(env))
    env.close()
    theirs = jax.tree.map(np.asarray, bridge.stack(theirs))
    start = jax.jit(game.start, static_argnums=1, compiler_options=FAST)
    ours = jax.tree.map(np.asarray, start(jax.random.key(0), 4000))
    for a, b in ((ours.pos, theirs.pos), (ours.fixed, theirs.fixed)):
        assert a.shape[:2] == b.shape[:2]
        reach = np.abs(b).max()
        # every coordinate fills the same range
        assert np.abs(np.abs(a).max(-1) - reach).max() < 0.01
        for moment in (1, 2):
            assert np.abs((a**moment).mean(-1) - (b**moment).mean(-1)).max() < 0.13
    assert not np.any(ours.vel) and not np.any(theirs.vel)
    assert not np.any(ours.word) and not np.any(theirs.word)
    assert ours.word.shape[0] == theirs.word.shape[0] and ours.goal.shape[0] == theirs.goal.shape[0]
    for i in range(game.goals):
        a, b = (
            np.bincount(w.goal[i], minlength=len(game.landmarks)) / w.goal.shape[1]
            for w in (ours, theirs)
        )
        assert np.abs(a - b).max() < 0.1 and np.abs(a - 1 / len(game.landmarks)).max() < 0.03
    if game.goals == 2:
        assert abs(np.corrcoef(ours.goal)[0, 1]) < 0.05
    places = np.concatenate([ours.pos, ours.fixed]).reshape(-1, 4000)
    assert np.abs(np.corrcoef(places) - np.eye(len(places))).max() < 0.08


def test_nearest_puts_the_nearest_first():
    offset = jnp.array([[3.0, 0], [1.0, 0], [0, 1.0], [0, 2.0]])[None, :, :, None]
    rows = jnp.arange(4.0)[None, :, None, None]
    assert physics.nearest_rows(offset, rows, 6)[0, :, 0, 0].tolist() == [1, 2, 3, 0, 0, 0]


@pytest.mark.parametrize("options", [{}, {"N": 5, "num_landmark_neighbors": 2}, {"N": 1}])
def test_spread_says_where_landmarks_and_others_are_in_an_observation(options: dict):
    game = make("mpe/simple_spread", **options)
    told = parse(game.teams["agent"].entities)
    state, views = jax.jit(lambda key: game.reset(key, 3))(jax.random.key(0))
    world = jax.tree.map(np.asarray, state.world)
    obs = np.asarray(views["agent"].obs)[:, 0]  # the first agent's
    for kind, things in zip(told.kinds, (world.fixed, world.pos[1:]), strict=False):
        rows = obs[:, kind.first : kind.end].reshape(3, kind.things, 2)
        away = np.moveaxis(things - world.pos[0], -1, 0)
        gap = np.abs(rows[:, :, None] - away[:, None]).max(-1).min(-1)
        assert gap.max() < 1e-6  # each is one of them
    assert len(told.kinds) == 1 + (game.N > 1)
