"""`shoal check-env`: plays an environment at random and checks it against the contract.

Four traces are played with the same seed and actions: in two matches side by side, in the first
match again, and in a match that checks every observation against its space. Every rule is a
function of the traces whose docstring is its name. It yields findings: what is broken, for whom, at
which step.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ShoalError
from ..types import Box, Spec
from .game import measure
from .host.match import Broken, Hosted, Match, MatchStep, TeamStep, measured
from .metrics import declared, refuse_nonsense


class Finding(NamedTuple):
    """One violation of a rule."""

    who: str  # an agent or a team; empty if neither
    step: int  # of the trace; its first opening is step 0
    what: str

    def __str__(self) -> str:
        return (
            f"{self.who}, step {self.step}: {self.what}"
            if self.who
            else f"step {self.step}: {self.what}"
        )


class Trace(NamedTuple):
    """Instants of one or more episodes, from a reset on."""

    instants: list[MatchStep]
    first: list[bool]  # whether each instant opens an episode
    broke: str = ""  # the exception that ended the trace
    compiled: bool = False  # whether the game is compiled, which marks openings, not ends


class Report(NamedTuple):
    teams: dict[str, Spec]
    steps: int
    episodes: int
    findings: dict[str, list[Finding]]  # by rule; an empty list where it is kept


def check(env: Any, steps: int = 1000, seed: int = 0) -> Report:
    """Play an environment for `steps` steps and report."""
    one = _open(env)
    other = _open(env)
    strict = _open(env, strict=True)
    try:
        turns = ((one, other), (one,), (strict,))
        traces = [trace for matches in turns for trace in _play(matches, env.teams, steps, seed)]
    finally:
        for match in (one, other, strict):
            match.close()
    found = {rule_name(rule): list(rule(env.teams, *traces)) for rule in RULES}
    return Report(env.teams, max(len(traces[0].instants) - 1, 0), sum(traces[0].first), found)


def rule_name(rule: Callable[..., Iterator[Finding]]) -> str:
    """A rule's name, from its docstring."""
    return inspect.cleandoc(rule.__doc__ or "")


def _open(env: Any, **options: Any) -> Match:
    return (
        replace(env, options=env.options | options).open()
        if isinstance(env, Hosted)
        else Compiled(env)
    )


class Compiled:
    """A compiled game as a match, so that the same rules check it."""

    def __init__(self, game: Any):
        self.game = game
        self.teams = game.teams
        declared(game)
        self._measure = jax.jit(partial(measure, game, games=1))
        self._reset = jax.jit(game.reset, static_argnums=1)
        self._step = jax.jit(game.step)

    def reset(self, seed: int) -> MatchStep:
        self.key, key = jax.random.split(jax.random.key(seed))
        self.state, views = self._reset(key, 1)
        return self._match_step(views)

    def step(self, actions: dict[str, np.ndarray]) -> MatchStep:
        self.key, key = jax.random.split(self.key)
        before = self.state
        self.state, views = self._step(
            key, self.state, {team: jnp.asarray(a)[None] for team, a in actions.items()}
        )
        instant = self._match_step(views)
        if self.opens:
            refuse_nonsense(jax.device_get(self._measure(before)), self.game.name)
        return instant

    def render(self) -> np.ndarray:
        raise NotImplementedError

    def close(self) -> None:
        pass

    def _match_step(self, views: dict[str, Any]) -> MatchStep:
        """A `MatchStep` of views.

        Never over: a compiled game marks the opening after an episode, not its end.
        """
        views = jax.device_get(views)
        seen = {
            team: TeamStep(*(getattr(view, name)[0] for name in TeamStep._fields))
            for team, view in views.items()
        }
        one = next(iter(views.values()))
        self.opens = bool(one.first[0])
        return MatchStep(seen, one.state[0], False)


def _play(matches: tuple[Match, ...], teams: dict[str, Spec], steps: int, seed: int) -> list[Trace]:
    """Step the matches in turn, which reveals state that they share by mistake."""
    compiled = isinstance(matches[0], Compiled)
    traces = [Trace([], [], compiled=compiled) for _ in matches]
    games = [
        _moves(match, teams, steps, seed, trace)
        for match, trace in zip(matches, traces, strict=True)
    ]
    broke = [""] * len(matches)
    for told in zip_longest(*games, fillvalue=""):
        broke = [before or now for before, now in zip(broke, told, strict=True)]
    return [trace._replace(broke=error) for trace, error in zip(traces, broke, strict=True)]


def _moves(
    match: Match, teams: dict[str, Spec], steps: int, seed: int, trace: Trace
) -> Iterator[str]:
    """Play random legal actions, equal for equal seeds, and record the trace.

    Yields after each step: the exception that ends it, or "".
    """
    rng = np.random.default_rng(seed)
    instants = trace.instants
    episode = 0
    try:
        for _ in range(steps + 1):
            fresh = not instants or instants[-1].over
            if fresh:
                instant = match.reset(seed + episode)
                episode = episode + 1
            else:
                instant = match.step(
                    {
                        team: _any(rng, spec, instants[-1].teams[team])
                        for team, spec in teams.items()
                    }
                )
            if instant.over:
                measured(match, getattr(match, "metrics", ()))
            instants.append(jax.tree.map(np.array, instant)._replace(over=bool(instant.over)))
            trace.first.append(getattr(match, "opens", fresh))
            yield ""
    except (Broken, ShoalError) as error:
        yield str(error)
    except Exception:
        yield traceback.format_exc(limit=-6)


def _any(rng: np.random.Generator, spec: Spec, seen: TeamStep) -> np.ndarray:
    if isinstance(spec.action, Box):
        return rng.uniform(spec.action.low, spec.action.high, (spec.n, spec.action.size)).astype(
            np.float32
        )
    draws = rng.random(seen.legal.shape) * seen.legal + 1e-9 * seen.legal
    parts = [part.argmax(-1) for part in spec.action.split(draws)]
    return np.stack(parts, -1).astype(np.int32).reshape(spec.n, *spec.action.shape)


# -- rules -----------------------------------------------------------------------------------------


def _runs(teams: dict[str, Spec], one: Trace, *_: Trace) -> Iterator[Finding]:
    """It plays without an error."""
    if one.broke:
        yield Finding("", len(one.instants), one.broke)


def _spaces(
    teams: dict[str, Spec], one: Trace, other: Trace, again: Trace, strict: Trace
) -> Iterator[Finding]:
    """Observations lie in the spaces they were promised in."""
    if strict.broke and not one.broke:
        yield Finding("", len(strict.instants), strict.broke)


def _shapes(teams: dict[str, Spec], one: Trace, *_: Trace) -> Iterator[Finding]:
    """What is seen has the promised shapes."""
    for step, instant in enumerate(one.instants):
        for team, spec in teams.items():
            for what in _misshapen(spec, instant.teams.get(team)):
                yield Finding(f"team {team}", step, what)
            if instant.state.shape != (spec.state,):
                yield Finding(
                    f"team {team}",
                    step,
                    f"the state has shape {instant.state.shape}, not ({spec.state},)",
                )


def _finite(teams: dict[str, Spec], one: Trace, *_: Trace) -> Iterator[Finding]:
    """Observations and rewards are finite."""
    for row in _rows(teams, one):
        for name, what in {"obs": "its observation holds", "reward": "its reward is"}.items():
            numbers = np.atleast_1d(getattr(row.seen, name)[row.i])
            wrong = numbers[~np.isfinite(numbers)]
            if wrong.size:
                yield Finding(row.agent, row.step, f"{what} {wrong[0]:g}")


def _state(teams: dict[str, Spec], one: Trace, *_: Trace) -> Iterator[Finding]:
    """The state is finite."""
    for step, instant in enumerate(one.instants):
        wrong = instant.state[~np.isfinite(instant.state)]
        # where an observation is not finite either, `_finite` reports it
        if wrong.size and all(np.isfinite(seen.obs).all() for seen in instant.teams.values()):
            yield Finding("", step, f"it holds {wrong[0]:g}")


def _masks(teams: dict[str, Spec], one: Trace, *_: Trace) -> Iterator[Finding]:
    """Whoever is alive has a legal action."""
    for row in _rows(teams, one):
        # no agent acts at the end of an episode
        last = one.compiled and one.first[row.step + 1 : row.step + 2] != [False]
        space = teams[row.team].action
        legal = row.seen.legal[row.i]
        parts = [legal] if isinstance(space, Box) else space.split(legal)
        if row.seen.alive[row.i] and not all(part.any() for part in parts) and not last:
            yield Finding(row.agent, row.step, "it has none")


def _openings(teams: dict[str, Spec], one: Trace, *_: Trace) -> Iterator[Finding]:
    """An episode opens with somebody alive and nothing earned."""
    for row in _rows(teams, one):
        if one.first[row.step] and row.seen.reward[row.i]:
            yield Finding(row.agent, row.step, f"it has earned {row.seen.reward[row.i]:g}")
    for step, instant in enumerate(one.instants):
        if one.first[step] and not any(seen.alive.any() for seen in instant.teams.values()):
            yield Finding("", step, "nobody is alive")


def _absent(
    teams: dict[str, Spec], one: Trace, other: Trace, again: Trace, strict: Trace
) -> Iterator[Finding]:
    """The dead earn nothing of their own after the step at which they died."""
    for row in _rows(teams, strict):  # only the strict trace has these rewards
        # a reward shared by the team is allowed
        shared = (row.seen.reward == row.seen.reward[row.i]).all() and len(row.seen.reward) > 1
        if strict.first[row.step] or row.seen.alive[row.i] or not row.seen.reward[row.i] or shared:
            continue
        if not strict.instants[row.step - 1].teams[row.team].alive[row.i]:
            yield Finding(
                row.agent, row.step, f"it was dead already and earned {row.seen.reward[row.i]:g}"
            )


def _discounts(teams: dict[str, Spec], one: Trace, *_: Trace) -> Iterator[Finding]:
    """A discount is 0 or 1."""
    for row in _rows(teams, one):
        if row.seen.discount[row.i] not in (0.0, 1.0):
            yield Finding(row.agent, row.step, f"it is {row.seen.discount[row.i]:g}")


def _seeds(
    teams: dict[str, Spec], one: Trace, other: Trace, again: Trace, strict: Trace
) -> Iterator[Finding]:
    """Equal seeds give equal episodes."""
    apart = _difference(teams, one, other)
    if apart and not _difference(teams, again, strict):
        row, name = apart
        cure = "make one for each game, as in self.rng = np.random.default_rng(seed)"
        what = (
            f"a match beside it shows another {name}: games share a generator, such as"
            f" np.random.seed sets; {cure}"
        )
        yield Finding(row.agent, row.step, what)
        return
    for where, trace in {"another match": other, "the same match, once more,": again}.items():
        found = _difference(teams, one, trace)
        if found:
            row, name = found
            yield Finding(
                row.agent, row.step, f"{where} shows another {name} after the same seed and actions"
            )


def _difference(teams: dict[str, Spec], one: Trace, other: Trace) -> tuple[Row, str] | None:
    """The first agent whose view differs between two traces, and what differs."""
    for mine, row in zip(_rows(teams, one), _rows(teams, other), strict=False):
        for name, a, b in zip(TeamStep._fields, mine.seen, row.seen, strict=True):
            if not np.array_equal(a[row.i], b[row.i], equal_nan=True):
                return row, name
    return None


def _ends(teams: dict[str, Spec], one: Trace, *_: Trace) -> Iterator[Finding]:
    """Episodes end."""
    if sum(one.first) < 2 and not one.broke and not one.instants[-1].over:
        cure = "" if one.compiled else ", or give it a limit (--env.limit)"
        yield Finding(
            "", len(one.instants) - 1, f"none has ended yet: check for longer (--steps){cure}"
        )


RULES: tuple[Callable[..., Iterator[Finding]], ...] = (
    _runs,
    _spaces,
    _shapes,
    _finite,
    _state,
    _masks,
    _openings,
    _absent,
    _discounts,
    _seeds,
    _ends,
)


class Row(NamedTuple):
    """One agent at one step."""

    step: int
    team: str
    agent: str
    seen: TeamStep  # the team's `TeamStep`
    i: int  # the agent's row there


def _misshapen(spec: Spec, seen: TeamStep | None) -> Iterator[str]:
    """Say which fields of a team's step have another shape than promised."""
    if seen is None:
        yield "it is told nothing"
        return
    rows = (spec.n,)
    size = spec.action.size
    wanted = {
        "obs": (*rows, spec.obs),
        "legal": (*rows, size),
        "alive": rows,
        "reward": rows,
        "discount": rows,
    }
    for name, value in seen._asdict().items():
        if value.shape != wanted[name]:
            yield f"{name} has shape {value.shape}, not {wanted[name]}"


def _rows(teams: dict[str, Spec], trace: Trace) -> Iterator[Row]:
    """Agents at each step, up to the first step with a wrong shape."""
    for step, instant in enumerate(trace.instants):
        if any(
            what
            for team, spec in teams.items()
            for what in _misshapen(spec, instant.teams.get(team))
        ):
            return
        for team, spec in teams.items():
            for i, agent in enumerate(spec.agents):
                yield Row(step, team, agent, instant.teams[team], i)
