"""Games written in JAX by others, on the compiled engine: jaxmarl, gymnax and jumanji.

Such a package writes one game as two pure functions. `Borrowed` plays many games of it side by side and keeps the
promises of the stream (`types.py`). It uses the packages' steps *without* their automatic resets, so that the view an
episode ends with is its own; and where a package says only `done`, it finds out whether the task or the clock ended the
episode, by asking what the same step would have said with the clock set back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..types import Box, Discrete, ShoalError, Space, Spec, View, line_up, nearest
from .adapters.teams import side_of
from .base import Env

CLOCKS = ("step", "step_count")  # what packages call the steps taken in an episode
VIEWS = ("agents_view", "searcher_views")  # parts of jumanji's observations that are each agent's own
PRODUCT = 10_000  # most actions that several choices at once may make
ALONE = "agent"  # the team, where a package names none


class Seen(NamedTuple):
    """What a package tells of one game at one instant, each part but the last by team."""

    obs: dict[str, Array]  # [N,F]
    legal: dict[str, Array]  # [N,A] bool
    alive: dict[str, Array]  # [N] bool
    reward: dict[str, Array]  # [N]
    discount: dict[str, Array]  # [N]
    state: Array  # [S]
    over: Array  # [] bool: the episode has ended with this instant


class Played(NamedTuple):
    """Games under way."""

    world: Any  # the package's own state, every leaf [B,…]
    over: Array  # [B] bool: the episode ended with the last step


class Borrowed:
    """Base of the three: subclasses set `name`, `teams` and perhaps `limit`, and write the first two methods."""

    name: str
    teams: dict[str, Spec]
    limit: int | None = None  # steps after which the package ends an episode without saying that it was the clock

    def open(self, key: Array) -> tuple[Any, Seen]:
        """One game as it opens."""
        raise NotImplementedError

    def move(self, key: Array, world: Any, actions: dict[str, Array]) -> tuple[Any, Seen]:
        """One game after the teams' actions, `[N]` int (Discrete) or `[N,A]` float (Box)."""
        raise NotImplementedError

    def reset(self, key: Array, games: int) -> tuple[Played, dict[str, View]]:
        world, seen = self._open_all(key, games)
        return Played(world, seen.over), self._views(seen, jnp.ones(games, bool))

    def step(self, key: Array, state: Played, actions: dict[str, Array]) -> tuple[Played, dict[str, View]]:
        first = state.over
        keys = _keys(key, first.shape[0])
        world, seen = _firm(jax.vmap(self.move)(keys, state.world, actions))
        if self.limit is not None:
            late = seen.over & ~first & (getattr(_clocked(world)[-1], _clock(world)) >= self.limit)
            seen = jax.lax.cond(late.any(), self._timeless, _as_told, late, keys, state.world, actions, seen)
        world, seen = jax.lax.cond(first.any(), self._reopen, _as_played, key, first, (world, seen))
        return Played(world, seen.over), self._views(seen, first)

    def drawable(self) -> None:
        """Refuse to be drawn if nobody can."""
        from ..render.borrowed import painter

        if painter(self, jax.eval_shape(self.open, jax.random.PRNGKey(0))[0]) is None:
            raise ShoalError(f"{self.name} cannot be drawn: neither Shoal nor its package has a picture of its states")

    def pictures(self, states: Sequence[Played], actions: Sequence[Any], game: int) -> Iterator[np.ndarray]:
        """`[H,W,3]` of each instant of an episode of one of the games."""
        from ..render.borrowed import painter

        worlds = [jax.tree.map(lambda leaf: leaf[game], state.world) for state in states]
        paint = painter(self, worlds[0])
        assert paint, "it is drawable"
        return paint(self, worlds)

    def _open_all(self, key: Array, games: int) -> tuple[Any, Seen]:
        return _firm(jax.vmap(self.open)(_keys(key, games)))

    def _reopen(self, key: Array, first: Array, played: tuple[Any, Seen]) -> tuple[Any, Seen]:
        return _where(first, self._open_all(jax.random.fold_in(key, 1), first.shape[0]), played)

    def _timeless(self, late: Array, keys: Array, before: Any, actions: dict[str, Array], seen: Seen) -> Seen:
        """Who lives and what is ahead, told as if the clock of late games had not run out."""
        _, free = _firm(jax.vmap(self.move)(keys, _rewound(before), actions))
        alive, discount = _where(late, (free.alive, free.discount), (seen.alive, seen.discount))
        return seen._replace(alive=alive, discount=discount)

    def _views(self, seen: Seen, first: Array) -> dict[str, View]:
        parts = seen._asdict()
        state = parts.pop("state")
        del parts["over"]
        return {
            team: View(state=state, first=first, **{part: by_team[team] for part, by_team in parts.items()})
            for team in self.teams
        }

    def _opening(self, obs: dict[str, Array], legal: dict[str, Array], state: Array) -> Seen:
        """What is seen of a game that has just opened."""
        alive = {team: jnp.ones(spec.n, bool) for team, spec in self.teams.items()}
        ones = {team: jnp.ones(spec.n, jnp.float32) for team, spec in self.teams.items()}
        return Seen(obs, legal, alive, jax.tree.map(jnp.zeros_like, ones), ones, state, jnp.array(False))


# -- jaxmarl ----------------------------------------------------------------------------------------------------------


class Jaxmarl(Borrowed):
    """A game of JaxMARL: teams by the agents' names, `ally_0` and `ally_1` are of team `ally`."""

    coloured = True  # teams are drawn in our colours

    def __init__(self, name: str, env: Any, one_team: bool = False) -> None:
        self.name, self.env = f"jaxmarl:{name}", env
        obs, world = jax.eval_shape(env.reset, jax.random.PRNGKey(0))
        if not isinstance(obs, dict) or any(getattr(obs.get(agent), "shape", None) is None for agent in env.agents):
            raise ShoalError(f"{self.name} does not tell observations agent by agent and cannot be played.")
        self.lists_legal = self._lister()
        self.lineup: dict[str, list[str]] = {}
        for agent in env.agents:
            self.lineup.setdefault(ALONE if one_team else side_of(str(agent)), []).append(agent)
        self.sizes = {agent: math.prod(obs[agent].shape) for agent in env.agents}
        self.spaces = {agent: _space(env.action_space(agent), self.name) for agent in env.agents}
        self.own_state = "world_state" in obs or hasattr(env, "get_world_state")
        width = jax.eval_shape(self._state, obs, world).shape[0]
        self.teams = line_up(
            {team: self._spec(agents, width) for team, agents in self.lineup.items()}, not self.own_state
        )
        if hasattr(env, "max_steps") and _clock(world):
            self.limit = int(env.max_steps)

    def _spec(self, agents: list[str], state: int) -> Spec:
        sizes, spaces = [self.sizes[agent] for agent in agents], [self.spaces[agent] for agent in agents]
        names = tuple(str(agent) for agent in agents)
        acts = [space.size for space in spaces]
        action = _widest(spaces, self.name)
        return Spec(names, max(sizes), state, action, obs_sizes=_unlike(sizes), action_sizes=_unlike(acts))

    def _lister(self) -> Callable[[Any], dict[str, Array]] | None:
        """What lists legal actions, if anything does: the base class has the method, too, but not written."""
        base = _package("jaxmarl").environments.MultiAgentEnv.get_avail_actions
        if type(self.env).get_avail_actions is not base:
            return self.env.get_avail_actions
        return getattr(self.env, "get_legal_moves", None)

    def open(self, key: Array) -> tuple[Any, Seen]:
        obs, world = self.env.reset(key)
        return world, self._opening(self._obs(obs), self._legal(world), self._state(obs, world))

    def move(self, key: Array, world: Any, actions: dict[str, Array]) -> tuple[Any, Seen]:
        told = {agent: self._act(agent, actions[team][i]) for team, i, agent in self._everyone()}
        obs, world, reward, done, _ = self.env.step_env(key, world, told)
        over = jnp.asarray(done["__all__"], bool)
        alive = self._by_team({agent: ~jnp.asarray(done[agent], bool) for agent in self.env.agents})
        discount = {team: (living & ~over).astype(jnp.float32) for team, living in alive.items()}
        rewards = self._by_team({agent: jnp.asarray(reward[agent], jnp.float32) for agent in self.env.agents})
        state = self._state(obs, world)
        return world, Seen(self._obs(obs), self._legal(world), alive, rewards, discount, state, over)

    def _everyone(self) -> Iterable[tuple[str, int, str]]:
        return ((team, i, agent) for team, agents in self.lineup.items() for i, agent in enumerate(agents))

    def _by_team(self, values: dict[str, Array]) -> dict[str, Array]:
        return {team: jnp.stack([values[agent] for agent in agents]) for team, agents in self.lineup.items()}

    def _act(self, agent: str, action: Array) -> Array:
        space = self.spaces[agent]
        if isinstance(space, Discrete):
            return action
        return action[: space.size].clip(jnp.asarray(space.low), jnp.asarray(space.high))

    def _obs(self, obs: dict[str, Array]) -> dict[str, Array]:
        widths = {agent: self.teams[team].obs for team, _, agent in self._everyone()}
        return self._by_team({agent: _pad(_row(obs[agent]), width) for agent, width in widths.items()})

    def _legal(self, world: Any) -> dict[str, Array]:
        """Padding is illegal, and so is what the package's own list leaves out."""
        listed = self.lists_legal(world) if self.lists_legal else {}
        rows = {}
        for team, _, agent in self._everyone():
            space = self.spaces[agent]
            row = jnp.ones(space.size, bool)
            if isinstance(space, Discrete) and agent in listed:
                row = jnp.asarray(listed[agent], bool)
            rows[agent] = _pad(row, self.teams[team].action.size)
        return self._by_team(rows)

    def _state(self, obs: dict[str, Array], world: Any) -> Array:
        if "world_state" in obs:
            return _row(obs["world_state"])
        if self.own_state:
            return jnp.concatenate([_row(part) for part in jax.tree.leaves(self.env.get_world_state(world))])
        return jnp.concatenate([_row(obs[agent]) for _, _, agent in self._everyone()])


def make_jaxmarl(name: str, options: dict[str, Any]) -> Env:
    """`jaxmarl:<name>`; the options are those of the game's class, maps and layouts by name, and `one_team`."""
    package = _package("jaxmarl")
    _known_id("jaxmarl", name, package.registered_envs)
    options = dict(options)
    one_team = options.pop("one_team", False)
    if not isinstance(one_team, bool):
        raise ShoalError(f"one_team must be True or False, not {one_team!r}.")
    with _politely(f"jaxmarl:{name}", options):
        known = {"one_team", *_parameters(package.make(name))} if options else set()
        _known_options(f"jaxmarl:{name}", options, known)
        return Jaxmarl(name, package.make(name, **_by_name(options)), one_team)


def _by_name(options: dict[str, Any]) -> dict[str, Any]:
    """Options with the maps of SMAX and the layouts of Overcooked, which its classes want as objects, looked up."""
    named = dict(options)
    if isinstance(options.get("scenario"), str):
        maps = importlib.import_module("jaxmarl.environments.smax.smax_env").MAP_NAME_TO_SCENARIO
        named["scenario"] = _look_up("scenario", options["scenario"], maps)
    layouts = importlib.import_module("jaxmarl.environments.overcooked").overcooked_layouts
    if isinstance(options.get("layout"), str) and options["layout"] in layouts:  # Overcooked 2 looks up its own
        named["layout"] = layouts[options["layout"]]
    return named


def _parameters(env: Any) -> set[str]:
    """Names that the constructor of a game, of its bases and of the game inside it take."""
    kinds = [kind for kind in type(env).__mro__ if "__init__" in vars(kind) and kind is not object]
    names = {name for kind in kinds for name in inspect.signature(kind.__init__).parameters}
    inner = vars(env).get("_env")
    return (names | (_parameters(inner) if inner is not None else set())) - {"self", "kwargs", "env_kwargs"}


# -- gymnax -----------------------------------------------------------------------------------------------------------


class Gymnax(Borrowed):
    """A game of gymnax: a team of one."""

    def __init__(self, name: str, env: Any, params: Any) -> None:
        self.name, self.env, self.params = f"gymnax:{name}", env, params
        obs, _ = jax.eval_shape(env.reset_env, jax.random.PRNGKey(0), params)
        space, size = env.action_space(params), math.prod(obs.shape)
        self.shape = space.shape
        action = _space(space, self.name)
        self.teams = {ALONE: Spec((f"{ALONE}_0",), size, size, action, joined=True)}

    def open(self, key: Array) -> tuple[Any, Seen]:
        obs, world = self.env.reset_env(key, self.params)
        return world, self._opening({ALONE: _row(obs)[None]}, self._legal(), _row(obs))

    def move(self, key: Array, world: Any, actions: dict[str, Array]) -> tuple[Any, Seen]:
        action, space = actions[ALONE][0], self.teams[ALONE].action
        if isinstance(space, Box):
            action = action.clip(jnp.asarray(space.low), jnp.asarray(space.high)).reshape(self.shape)
        obs, world, reward, ended, _ = self.env.step_env(key, world, action, self.params)
        seen = self._opening({ALONE: _row(obs)[None]}, self._legal(), _row(obs))
        return world, seen._replace(
            reward={ALONE: jnp.asarray(reward, jnp.float32)[None]},
            discount={ALONE: 1.0 - jnp.asarray(ended, jnp.float32)[None]},
            over=ended | self.env.is_truncated(world, self.params),
        )

    def _legal(self) -> dict[str, Array]:
        return {ALONE: jnp.ones((1, self.teams[ALONE].action.size), bool)}


def make_gymnax(name: str, options: dict[str, Any]) -> Env:
    """`gymnax:<id>`; the options are the game's parameters, such as `max_steps_in_episode`."""
    package = _package("gymnax")
    _known_id("gymnax", name, package.registered_envs)
    with _politely(f"gymnax:{name}", options):
        env, params = package.make(name)
        tunable = {field.name for field in dataclasses.fields(params)}
        _known_options(f"gymnax:{name}", options, tunable | _parameters(env))
        made = {option: value for option, value in options.items() if option not in tunable}
        env, params = package.make(name, **made) if made else (env, params)
        tuned = {option: value for option, value in options.items() if option in tunable}
        return Gymnax(name, env, dataclasses.replace(params, **tuned))


# -- jumanji ----------------------------------------------------------------------------------------------------------


class Jumanji(Borrowed):
    """A game of jumanji: a team of its agents, or of one who makes all choices at once."""

    def __init__(self, name: str, env: Any) -> None:
        self.name, self.env = f"jumanji:{name}", env
        world, step = jax.eval_shape(env.reset, jax.random.PRNGKey(0))
        self.shape = tuple(env.action_spec.shape)
        agents = getattr(env, "num_agents", None)
        self.together = agents is not None and self.shape[:1] == (agents,)
        self.agents = int(agents or 1) if self.together else 1
        self.choices: tuple[int, ...] = ()
        action = self._action(env.action_spec)
        state, obs = (x.shape[-1] for x in jax.eval_shape(self._read, step.observation))
        names = tuple(f"{ALONE}_{i}" for i in range(self.agents))
        self.teams = {ALONE: Spec(names, obs, state, action, joined=self.agents == 1)}
        if isinstance(getattr(env, "time_limit", None), int) and _clock(world):
            self.limit = env.time_limit

    def _action(self, spec: Any) -> Space:
        if not hasattr(spec, "num_values"):
            if self.together and len(self.shape) == 2 and jnp.issubdtype(spec.dtype, jnp.floating):
                low, high = (np.broadcast_to(bound, self.shape)[0] for bound in (spec.minimum, spec.maximum))
                return Box(_numbers(low), _numbers(high))
            raise ShoalError(f"{self.name} has a kind of actions that Shoal does not know: {spec}.")
        counts = [int(count) for count in np.ravel(spec.num_values)]
        if self.together:
            if len(set(counts)) > 1:
                raise ShoalError(f"{self.name} has agents with different numbers of actions, {counts}.")
            return Discrete(counts[0])
        if math.prod(counts) > PRODUCT:
            raise ShoalError(f"{self.name} has {math.prod(counts)} actions, more than the {PRODUCT} Shoal will list.")
        self.choices = tuple(counts)
        return Discrete(math.prod(counts))

    def open(self, key: Array) -> tuple[Any, Seen]:
        world, step = self.env.reset(key)
        state, obs = self._read(step.observation)
        return world, self._opening({ALONE: obs}, self._legal(step.observation), state)

    def move(self, key: Array, world: Any, actions: dict[str, Array]) -> tuple[Any, Seen]:
        world, step = self.env.step(world, self._told(actions[ALONE]))
        state, obs = self._read(step.observation)
        seen = self._opening({ALONE: obs}, self._legal(step.observation), state)
        return world, seen._replace(
            reward={ALONE: jnp.broadcast_to(step.reward, (self.agents,)).astype(jnp.float32)},
            discount={ALONE: jnp.broadcast_to(step.discount, (self.agents,)).astype(jnp.float32)},
            over=step.last(),
        )

    def _told(self, action: Array) -> Array:
        """Actions as the package wants them."""
        space = self.teams[ALONE].action
        if isinstance(space, Box):
            return action.clip(jnp.asarray(space.low), jnp.asarray(space.high))
        if self.together:
            return action
        return jnp.stack(jnp.unravel_index(action[0], self.choices)).reshape(self.shape)

    def _read(self, observation: Any) -> tuple[Array, Array]:
        """The state, which is all that is observed, and of that what each agent sees: its own view, what all see."""
        parts = {part: value for part, value in observation._asdict().items() if part != "action_mask"}
        own = [parts.pop(part).reshape(self.agents, -1) for part in VIEWS if self.together and part in parts]
        common = jnp.concatenate([jnp.zeros(0), *(_row(leaf) for leaf in jax.tree.leaves(parts))])
        seen = jnp.concatenate([*own, jnp.broadcast_to(common, (self.agents, common.shape[0]))], -1)
        return jnp.concatenate([*(view.ravel() for view in own), common]), seen.astype(jnp.float32)

    def _legal(self, observation: Any) -> dict[str, Array]:
        size = (self.agents, self.teams[ALONE].action.size)
        mask = getattr(observation, "action_mask", None)
        return {ALONE: jnp.ones(size, bool) if mask is None else mask.reshape(size)}


def make_jumanji(name: str, options: dict[str, Any]) -> Env:
    """`jumanji:<id>`; the options are the plain ones of the game's class, such as `time_limit`."""
    package = _package("jumanji")
    _known_id("jumanji", name, package.registered_environments())
    with _politely(f"jumanji:{name}", options):
        env = package.make(name)
        _known_options(f"jumanji:{name}", options, _parameters(env))
        return Jumanji(name, package.make(name, **options) if options else env)


FOREIGN: dict[str, Callable[[str, dict[str, Any]], Env]] = {
    "jaxmarl": make_jaxmarl,
    "gymnax": make_gymnax,
    "jumanji": make_jumanji,
}


# -- what they share --------------------------------------------------------------------------------------------------


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ShoalError(f"{name} is not installed: pip install 'shoal[{name}]' ({error}).") from error


def _known_id(package: str, name: str, known: Iterable[str]) -> None:
    known = sorted(known)
    if name not in known:
        hint = nearest(name, known)
        raise ShoalError(f"{package} has no game '{name}'{hint}; it has {', '.join(known)}.")


def _known_options(env: str, options: dict[str, Any], known: set[str]) -> None:
    for option in options:
        if option not in known:
            hint = nearest(option, known)
            raise ShoalError(f"{env} has no option '{option}'{hint}; it knows {', '.join(sorted(known))}.")


def _look_up(option: str, value: str, known: dict[str, Any]) -> Any:
    if value not in known:
        raise ShoalError(f"There is no {option} '{value}'{nearest(value, known)}; there are {', '.join(known)}.")
    return known[value]


@contextlib.contextmanager
def _politely(env: str, options: dict[str, Any]) -> Any:
    """Whatever a package says of options it cannot make a game with, as one sentence."""
    try:
        yield
    except ShoalError:
        raise
    except Exception as error:
        told = ", ".join(f"{option}={value!r}" for option, value in options.items()) or "no options"
        raise ShoalError(f"{env} cannot be made with {told}: {type(error).__name__}: {error}") from error


def _space(space: Any, env: str) -> Space:
    """A package's action space as ours."""
    if hasattr(space, "n"):
        return Discrete(int(space.n))
    if not hasattr(space, "low"):
        raise ShoalError(f"{env} has a kind of actions that Shoal does not know: {space}.")
    return Box(*(_numbers(np.broadcast_to(bound, space.shape)) for bound in (space.low, space.high)))


def _widest(spaces: list[Space], env: str) -> Space:
    """The action space that has room for each of a team's."""
    counts = [space.n for space in spaces if isinstance(space, Discrete)]
    boxes = [space for space in spaces if isinstance(space, Box)]
    if counts and boxes:
        raise ShoalError(f"{env} has a team with both kinds of actions, discrete and continuous.")
    if counts:
        return Discrete(max(counts))
    size = max(box.size for box in boxes)
    low = np.min([_padded(box.low, size, np.inf) for box in boxes], 0)
    high = np.max([_padded(box.high, size, -np.inf) for box in boxes], 0)
    return Box(_numbers(low), _numbers(high))


def _unlike(sizes: list[int]) -> tuple[int, ...]:
    """Each agent's own size, where they differ."""
    return tuple(sizes) if len(set(sizes)) > 1 else ()


def _numbers(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in np.ravel(values))


def _padded(values: tuple[float, ...], size: int, fill: float) -> np.ndarray:
    return np.pad(np.asarray(values), (0, size - len(values)), constant_values=fill)


def _row(value: Any) -> Array:
    return jnp.ravel(value).astype(jnp.float32)


def _pad(row: Array, width: int) -> Array:
    return jnp.pad(row, (0, width - row.shape[0]))


def _keys(key: Array, games: int) -> Array:
    """A key for every game, as plain numbers: packages keep keys in their states, and checkpoints keep numbers."""
    return jax.random.key_data(jax.random.split(key, games))


def _firm(tree: Any) -> Any:
    """Leaves without weak types, which differ between a package's reset and its step."""
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.asarray(x).dtype), tree)


def _where(chosen: Array, new: Any, old: Any) -> Any:
    """Leaves `[B,…]` of `new` for the chosen games `[B]`, of `old` for the others."""
    return jax.tree.map(lambda a, b: jnp.where(chosen.reshape(-1, *[1] * (a.ndim - 1)), a, b), new, old)


def _clocked(world: Any) -> list[Any]:
    """The state that has a clock, behind those it is wrapped in; nothing, if there is none."""
    if any(hasattr(world, clock) for clock in CLOCKS):
        return [world]
    inner = _clocked(world.state) if hasattr(world, "state") else []
    return [world, *inner] if inner else []


def _clock(world: Any) -> str:
    """What that state calls its clock; "" if there is none."""
    holders = _clocked(world)
    return next((clock for clock in CLOCKS if hasattr(holders[-1], clock)), "") if holders else ""


def _rewound(world: Any) -> Any:
    """The world with its clock set to 0."""
    *wraps, inner = _clocked(world)
    clock = _clock(world)
    inner = dataclasses.replace(inner, **{clock: jnp.zeros_like(getattr(inner, clock))})
    for wrap in reversed(wraps):
        inner = dataclasses.replace(wrap, state=inner)
    return inner


def _as_told(late: Array, keys: Array, before: Any, actions: dict[str, Array], seen: Seen) -> Seen:
    return seen


def _as_played(key: Array, first: Array, played: tuple[Any, Seen]) -> tuple[Any, Seen]:
    return played
