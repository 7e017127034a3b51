"""Tests that every algorithm and every compiled game must pass, also those of other packages.

    from shoal.testing import check_algorithm, check_game

    def test_mine():
        check_algorithm(Mine)
        check_game(Chase(size=8))

or one test each, with `@pytest.mark.parametrize("check", ALGORITHM_CHECKS)` and `check(Mine)`.
A check raises an AssertionError that says what was broken.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import numpy as np

from .algorithms import Algorithm, find
from .engine.loop import Loop
from .envs import Env, make
from .envs.check import check
from .errors import ShoalError
from .types import Box, Clock, Discrete, View

GAMES = 4  # games played in parallel
WINDOW = 8
STEPS = 1000  # length of the run; only its beginning is played
SMALL = {  # small values for options, used where an algorithm has them
    "hidden": 8,
    "layers": 1,
    "warmup": 0,
    "capacity": 320,
    "batch": 8,
    "length": 6,
    "updates": 2,
    "minibatches": 1,
}
PROBES: dict[type, tuple[str, dict[str, Any]]] = {  # a small game for each action space
    Discrete: ("test/mortal", {"n": 2, "length": 6}),
    Box: ("test/continuous_identity", {"n": 2, "length": 6}),
}
FAST = {"xla_backend_optimization_level": 0}  # compile fast rather than well


def check_algorithm(kind: type[Algorithm] | str, **options: Any) -> None:
    """Run all checks of an algorithm; `options` are options of its config."""
    for one in ALGORITHM_CHECKS:
        one(kind, **options)


def check_game(game: Env | type[Env]) -> None:
    """Run all checks of a compiled game."""
    for one in GAME_CHECKS:
        one(game)


# -- algorithms ------------------------------------------------------------------------------------


def a_run_repeats_to_the_bit(kind: type[Algorithm] | str, **options: Any) -> None:
    """Equal seeds give equal bits, another seed differs, and the state determines the future."""
    small = _small(kind, **options)
    twice = small.after(small.loop.init(0), 2)
    _equal(twice, small.after(small.loop.init(0), 2), "two runs of one seed differ")
    _equal(twice, small.after(small.after(small.loop.init(0), 1), 1), "going on is not going on")
    other = small.after(small.loop.init(1), 2)
    assert _bits(twice.views) != _bits(other.views), "two seeds play the same games"


def its_state_can_be_saved(kind: type[Algorithm] | str, **options: Any) -> None:
    """The state holds only arrays, whose shapes and types never change."""
    small = _small(kind, **options)
    start = small.loop.init(0)
    for leaf in jax.tree.leaves(start):
        assert isinstance(leaf, jax.Array), f"the learner holds a {type(leaf).__name__}"
    shapes = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(start)]
    later = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(small.after(start, 1))]
    assert shapes == later, "learning changes the shape or type of what is learnt"


def it_plays_the_spaces_that_it_declares(kind: type[Algorithm] | str, **options: Any) -> None:
    """The algorithm learns in each action space it declares and refuses any other."""
    algorithm = _kind(kind)
    for space in PROBES:
        if space in algorithm.spaces:
            state = _small(kind, space=space, **options)
            _finite(state.after(state.loop.init(0), 1).learners)
            continue
        try:
            _small(kind, space=space, **options)
        except ShoalError:
            continue
        raise AssertionError(f"it plays {space.__name__} actions and does not declare them")


def it_shares_and_remembers_as_it_declares(kind: type[Algorithm] | str, **options: Any) -> None:
    """The algorithm learns with every parameter sharing it declares, and with a recurrent torso.

    It refuses what it does not declare.
    """
    algorithm = _kind(kind)
    known = {field.name for field in dataclasses.fields(algorithm.Config)}
    needed = {"sharing"} if algorithm.sharing else set()
    needed |= {"torso"} if algorithm.recurrence else set()
    assert needed <= known, f"it declares what its Config has no option for: {needed - known}"
    more = {"sharing": "own"} if "own" in algorithm.sharing else {}
    more |= {"torso": "gru"} if algorithm.recurrence else {}
    if more:
        small = _small(kind, None, **options | more)
        _finite(small.after(small.loop.init(0), 1).learners)
    if "partition" in algorithm.sharing:
        loop = _loop(algorithm, algorithm.spaces[0], options | {"sharing": "0,0,1"}, agents=3)
        jax.eval_shape(loop.program(1), loop.template(0))  # traced, not compiled
    for sharing, value in (("shared", "shared"), ("own", "own"), ("partition", "0,0,1")):
        if "sharing" in known and sharing not in algorithm.sharing:
            _refused(algorithm, options | {"sharing": value}, f"{sharing} parameters")
    if "torso" in known and not algorithm.recurrence:
        _refused(algorithm, options | {"torso": "gru"}, "a recurrent torso")


def it_does_what_is_legal(kind: type[Algorithm] | str, **options: Any) -> None:
    """Actions obey masks and bounds, greedy or not, also after agents have died."""
    for space in set(_kind(kind).spaces) & set(PROBES):
        small = _small(kind, space=space, **options)
        ((team, algorithm),) = small.loop.algorithms.items()
        learner = jax.device_get(small.loop.init(0)).learners[team]
        views = _views(*PROBES[space])
        clock = Clock(np.float32(0), np.float32(0))  # type: ignore[arg-type]
        carry = algorithm.carry(learner, GAMES)
        act = jax.jit(algorithm.act, static_argnums=5, compiler_options=FAST)
        for greedy in (True, False):
            for number, view in enumerate(views):
                key = jax.random.key(number)
                _legal(algorithm, view, act(learner, key, view, carry, clock, greedy).action)


class Small:
    """A loop with one team, and its compiled program of one iteration."""

    def __init__(self, loop: Loop):
        self.loop = loop
        self.step = loop.program(1)

    def after(self, state: Any, iterations: int) -> Any:
        """Return the state after some iterations; the given state is kept."""
        for _ in range(iterations):
            copy = jax.tree.map(np.array, state)
            state, _ = self.step(jax.device_put(copy, self.loop.shardings))
        return jax.tree.map(np.array, state)


def _kind(kind: type[Algorithm] | str) -> type[Algorithm]:
    return find(kind) if isinstance(kind, str) else kind


def _refused(kind: type[Algorithm], options: dict[str, Any], what: str) -> None:
    try:
        _loop(kind, kind.spaces[0], options, agents=3)
    except ShoalError:
        return
    raise AssertionError(f"it takes {what} and does not declare that it can")


def _small(kind: type[Algorithm] | str, space: type | None = None, **options: Any) -> Small:
    algorithm = _kind(kind)
    return _compiled(algorithm, space or algorithm.spaces[0], tuple(sorted(options.items())))


@cache
def _compiled(kind: type[Algorithm], space: type, options: tuple[tuple[str, Any], ...]) -> Small:
    return Small(_loop(kind, space, dict(options)))


def _loop(kind: type[Algorithm], space: type, options: dict[str, Any], agents: int = 2) -> Loop:
    """A loop for an algorithm on the probe of an action space, with the smallest nets."""
    name, about = PROBES[space]
    game = make(name, **about | {"n": agents})
    ((team, spec),) = game.teams.items()
    known = {field.name for field in dataclasses.fields(kind.Config)}
    small = {option: value for option, value in SMALL.items() if option in known}
    algorithm = kind(kind.Config(**small | options), spec)
    return Loop(game, {team: algorithm}, GAMES, WINDOW, STEPS)


def _legal(algorithm: Algorithm, view: View, action: Any) -> None:
    action = np.asarray(action)
    space = algorithm.spec.action
    if not isinstance(space, Box):
        parts = action.reshape(*view.alive.shape, -1)
        for i, legal in enumerate(space.split(np.asarray(view.legal))):
            taken = np.take_along_axis(legal, parts[..., i : i + 1], -1)[..., 0]
            assert taken[np.asarray(view.alive)].all(), "an action was taken that is not legal"
    else:
        assert np.isfinite(action).all(), "an action is not a finite number"
        low = np.asarray(space.low)
        high = np.asarray(space.high)
        assert ((low <= action) & (action <= high)).all(), "an action lies outside its bounds"


def _finite(tree: Any) -> None:
    for leaf in jax.tree.leaves(tree):
        if np.issubdtype(leaf.dtype, np.floating):
            assert np.isfinite(leaf).all(), "learning ends in numbers that are not finite"


# -- games -----------------------------------------------------------------------------------------


def it_keeps_the_contract(game: Env | type[Env]) -> None:
    """The game passes `shoal check-env` for a little more than one episode."""
    game = _game(game)
    steps = max(60, getattr(game, "limit", 0) + 10)
    broken = {rule: found for rule, found in check(game, steps).findings.items() if found}
    assert not broken, "\n".join(
        f"{rule} {found}" for rule, finds in broken.items() for found in finds
    )


def its_spec_is_honest(game: Env | type[Env]) -> None:
    """Views have the shapes and types of the spec; padding is zero, and illegal as an action."""
    game = _game(game)
    for (team, spec), view in zip(game.teams.items(), _stacked(game).values(), strict=True):
        n = spec.n
        assert len(set(spec.agents)) == n > 0, f"the agents of team {team!r} are not told apart"
        shapes = View((n, spec.obs), (spec.state,), (n, spec.action.size), (n,), (), (n,), (n,))  # type: ignore[arg-type]
        for name, x, shape in zip(View._fields, view, shapes, strict=True):
            assert x.shape[2:] == shape, f"{name} of team {team!r} is {x.shape[2:]}, not {shape}"
        for x in (view.obs, view.state, view.reward):
            assert np.isfinite(x).all(), f"team {team!r} sees numbers that are not finite"
        assert view.legal.any(-1).all(), f"an agent of team {team!r} may do nothing at all"
        for agent, size in enumerate(spec.action_sizes):
            assert not view.legal[:, :, agent, size:].any(), "an action beyond its own is legal"
        for agent, size in enumerate(spec.obs_sizes):
            assert not view.obs[:, :, agent, size:].any(), "the padding of an observation is not 0"


def it_resets_on_the_next_step(game: Env | type[Env]) -> None:
    """An opening view has reward 0 and all agents alive; discounts are 0 or 1."""
    for team, view in _stacked(_game(game)).items():
        assert view.first[0].all(), "the first instant does not open an episode"
        opening = view.first
        assert not view.reward[opening].any(), f"an opening pays team {team!r}"
        assert view.alive[opening].all(), f"an agent of team {team!r} is dead at an opening"
        assert (view.discount[opening] == 1).all(), f"an opening discounts for team {team!r}"
        assert set(np.unique(view.discount)) <= {0.0, 1.0}, "a discount is neither 0 nor 1"


def it_is_determined_by_its_key(game: Env | type[Env]) -> None:
    """Equal keys and actions give equal views."""
    game = _game(game)
    _equal(_stacked(game), _stacked(game), "equal keys and actions show different views")


def _game(game: Env | type[Env]) -> Env:
    return game() if isinstance(game, type) else game


def _views(name: str, options: dict[str, Any]) -> list[View]:
    """Views of a probe's only team at a few instants."""
    game = make(name, **options)
    (team,) = game.teams
    stream = _stacked(game)[team]
    return [View(*(field[t] for field in stream)) for t in range(5)]


def _stacked(game: Env, steps: int = 12) -> dict[str, View]:
    """Views of a few games at instants 0…steps, under random legal actions."""
    reset, step = _programs(game)
    rng = np.random.default_rng(0)
    state, views = reset(jax.random.key(0), GAMES)
    seen = [jax.device_get(views)]
    for t in range(steps):
        actions = {team: _drawn(spec, seen[-1][team], rng) for team, spec in game.teams.items()}
        state, views = step(jax.random.key(t), state, actions)
        seen.append(jax.device_get(views))
    return jax.tree.map(lambda *leaves: np.stack(leaves), *seen)


@cache
def _programs(game: Env) -> tuple[Callable, Callable]:
    """`reset` and `step` of a game, compiled once for all checks."""
    reset = jax.jit(game.reset, static_argnums=1, compiler_options=FAST)
    return reset, jax.jit(game.step, compiler_options=FAST)


def _drawn(spec: Any, view: View, rng: np.random.Generator) -> np.ndarray:
    if not isinstance(spec.action, Box):
        draws = rng.random(view.legal.shape) * view.legal
        parts = [part.argmax(-1) for part in spec.action.split(draws)]
        return np.stack(parts, -1).astype(np.int32).reshape(*view.alive.shape, *spec.action.shape)
    return rng.uniform(spec.action.low, spec.action.high, view.legal.shape).astype(np.float32)


def _bits(tree: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def _equal(one: Any, other: Any, sentence: str) -> None:
    assert _bits(one) == _bits(other), sentence


ALGORITHM_CHECKS = (
    a_run_repeats_to_the_bit,
    its_state_can_be_saved,
    it_plays_the_spaces_that_it_declares,
    it_shares_and_remembers_as_it_declares,
    it_does_what_is_legal,
)
GAME_CHECKS = (
    it_keeps_the_contract,
    its_spec_is_honest,
    it_resets_on_the_next_step,
    it_is_determined_by_its_key,
)
