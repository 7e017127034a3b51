"""Agents in teams: the part that all adapters share.

An adapter collects what its environment returns, by agent, in an `EnvStep`; its `Roster` splits it
into one `TeamStep` per team. Agents are found by name in a fixed order, never by their place among
the living.
"""

from __future__ import annotations

import contextlib
import fnmatch
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ...errors import ShoalError
from ...types import Spec, line_up
from ..host.match import Broken, MatchStep, TeamStep
from . import rules
from .spaces import Reader, Several, Vector, Writer, action_space

NOTHING: Mapping[Any, Any] = {}


class EnvStep(NamedTuple):
    """What an environment returns at one instant, by agent; absent agents are missing."""

    obs: Mapping[Any, Any]  # as the environment gives them
    alive: Collection[Any]  # agents that are present and may act
    masks: Mapping[Any, Any] = NOTHING  # legal actions, if given
    rewards: Mapping[Any, Any] = NOTHING  # for the step that led here
    discounts: Mapping[Any, float] = NOTHING  # 0 where missing
    over: bool = False


def group(names: list[str], teams: str) -> dict[str, list[str]]:
    """Group agents into teams: by name, `all` in one, `each` alone, or as a text says.

    Such a text is `red:red_0,red_1;blue:blue_*`.
    """
    if ":" in teams:
        return _as_told(names, teams)
    kinds = {"": side_of, "all": lambda name: "agent", "each": lambda name: name}
    if teams not in kinds:
        raise ShoalError(
            f"teams must be empty, all, each or like red:red_0,red_1;blue:blue_*, not {teams!r}"
        )
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(kinds[teams](name), []).append(name)
    return groups


def side_of(name: str) -> str:
    """The team in an agent's name: `red` for `red_0`, `agent` for a bare number."""
    kind = re.fullmatch(r"(.*?)_?\d+", name)
    return (kind[1] if kind else name) or "agent"


def _as_told(names: list[str], teams: str) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for part in filter(None, (part.strip() for part in teams.split(";"))):
        team, _, members = part.partition(":")
        for pattern in (member.strip() for member in members.split(",")):
            found = fnmatch.filter(names, pattern)
            if not found:
                raise ShoalError(
                    f"teams puts {pattern!r} into {team}, the agents are {', '.join(names[:20])}"
                )
            groups.setdefault(team.strip(), []).extend(found)
    placed = [name for members in groups.values() for name in members]
    for name in names:
        if placed.count(name) != 1:
            raise ShoalError(
                f"teams must name every agent once, and it names {name} {placed.count(name)} times"
            )
    return groups


class Seat(NamedTuple):
    """An agent's place in its team, and how to read observations and write actions."""

    agent: Any  # the environment's name for it
    team: str
    place: int
    reader: Reader
    writer: Writer


class Steady:
    """Makes arrays of numbers that seldom change: the same read-only one while they do not.

    A `Table` writes such an array once."""

    def __init__(self, kind: type):
        self.kind = kind
        self.numbers: list[Any] | None = None

    def __call__(self, numbers: list[Any]) -> np.ndarray:
        if numbers != self.numbers:
            self.numbers = numbers
            self.array = np.array(numbers, self.kind)
            self.array.flags.writeable = False
        return self.array


class Roster:
    """The agents of an environment in their teams.

    `state` is the size of the environment's own state, if it has one.
    """

    def __init__(
        self,
        readers: Mapping[Any, Reader],
        writers: Mapping[Any, Writer],
        teams: str,
        state: int | None,
    ):
        agents = {str(agent): agent for agent in readers}
        self.lines = {
            team: [
                Seat(agents[name], team, place, readers[agents[name]], writers[agents[name]])
                for place, name in enumerate(members)
            ]
            for team, members in group(list(agents), teams).items()
        }
        self.seats = {seat.agent: seat for line in self.lines.values() for seat in line}
        self.names = frozenset(self.seats)  # the environment's
        self.masked = any(seat.reader.masked for seat in self.seats.values())
        size = sum(seat.reader.size for seat in self.seats.values()) if state is None else state
        specs = {
            team: _spec(team, line, size, len(self.seats) > 1) for team, line in self.lines.items()
        }
        self.teams = line_up(specs, state is None)
        self.legal = {team: _padding(self.teams[team], line) for team, line in self.lines.items()}
        for legal in self.legal.values():
            legal.flags.writeable = False
        self.alive = {team: Steady(bool) for team in self.lines}
        self.discounts = {team: Steady(np.float32) for team in self.lines}
        self.kinds = {
            team: np.dtype(np.uint8 if spec.pixels else np.float32)
            for team, spec in self.teams.items()
        }

    def native(self, actions: dict[str, np.ndarray], agents: Iterable[Any]) -> dict[Any, Any]:
        """The actions of some agents as the environment expects them."""
        seats = [self.seats[agent] for agent in agents]
        rows = {
            team: action.tolist() if action.ndim == 1 else action
            for team, action in actions.items()
        }
        return {seat.agent: seat.writer.write(rows[seat.team][seat.place]) for seat in seats}

    def match_step(self, env_step: EnvStep, state: np.ndarray | None = None) -> MatchStep:
        """Split an `EnvStep` by team."""
        teams = {team: self._team_step(team, line, env_step) for team, line in self.lines.items()}
        return MatchStep(teams, self._joined(teams) if state is None else state, env_step.over)

    def _team_step(self, team: str, line: list[Seat], env_step: EnvStep) -> TeamStep:
        spec = self.teams[team]
        legal = self.legal[team]
        obs = np.zeros((spec.n, spec.obs), self.kinds[team])
        alive = []
        rewards = []
        discounts = []
        given, living, masks, paid, weights, over = env_step
        for seat in line:
            agent, _, place, reader, writer = seat
            present = agent in living
            left = weights.get(agent)  # None if it was gone before
            # truncated alone: its observation is its last
            cut = not present and bool(left)
            if agent in given and (present or cut or (over and left is not None)):
                obs[place, : reader.size] = reader.read(given[agent])
            if (present or cut) and agent in masks and not isinstance(writer, Vector):
                if legal is self.legal[team]:
                    legal = legal.copy()
                legal[place, : writer.size] = _allowed(seat, masks[agent], cut or over)
            # An agent's last reward is that of the step in which it left; only checks of
            # environments read later ones.
            due = left is not None or reader.strict
            alive.append(present)
            rewards.append(_number(agent, paid.get(agent, 0.0)) if due else 0.0)
            discounts.append(left or 0.0)
        return TeamStep(
            obs=obs,
            legal=legal,
            alive=self.alive[team](alive),
            reward=np.array(rewards, np.float32),
            discount=self.discounts[team](discounts),
        )

    def _joined(self, teams: dict[str, TeamStep]) -> np.ndarray:
        """`[S]` all observations joined, without padding; images scaled to [0,1]."""
        rows = []
        for team, line in self.lines.items():
            obs = teams[team].obs / np.float32(255) if self.teams[team].pixels else teams[team].obs
            rows += [obs[seat.place, : seat.reader.size] for seat in line]
        return np.concatenate(rows)


def fates(
    before: Collection[Any], live: Collection[Any], terminated: Mapping, truncated: Mapping
) -> tuple[set[Any], dict[Any, float]]:
    """Who is alive after a step, and the discounts.

    A terminated agent dies. If all agents are gone, the truncated ones count as alive.
    """
    alive = set(live)
    discounts = dict.fromkeys(live, 1.0)
    for agent in before:
        if agent in alive:
            continue
        if not terminated.get(agent) and not truncated.get(agent):
            raise Broken(f"{agent} left without having been terminated or truncated")
        discounts[agent] = 0.0 if terminated.get(agent) else 1.0
    if not live:
        alive = {agent for agent, discount in discounts.items() if discount}
    return alive, discounts


def _spec(team: str, line: list[Seat], state: int, leaves: bool) -> Spec:
    """The spec of a team, padded to its widest agent."""
    shapes = {seat.reader.pixels for seat in line}
    if len(shapes) > 1:
        raise ShoalError(
            f"the agents of team {team} see images of different shapes, or not all see images: "
            "split the team with --env.teams, or wrap the environment"
        )
    sizes = [seat.reader.size for seat in line]
    widths = [seat.writer.size for seat in line]
    return Spec(
        agents=tuple(str(seat.agent) for seat in line),
        obs=max(sizes),
        state=state,
        action=action_space(team, [seat.writer for seat in line]),
        obs_sizes=tuple(sizes) if len(set(sizes)) > 1 else (),
        action_sizes=tuple(widths) if len(set(widths)) > 1 else (),
        pixels=shapes.pop(),
        leaves=leaves,
    )


def _padding(spec: Spec, line: list[Seat]) -> np.ndarray:
    """`[N,A]` True on each agent's own actions."""
    return np.arange(spec.action.size) < np.array([seat.writer.size for seat in line])[:, None]


def _allowed(seat: Seat, mask: Any, over: bool) -> np.ndarray:
    ends = [0]
    if isinstance(seat.writer, Several):
        ends = np.cumsum((0, *seat.writer.parts[:-1]))
        if isinstance(mask, tuple | list):  # one of each part, as Gymnasium's spaces take them
            mask = np.concatenate([np.ravel(part) for part in mask])
    mask = rules.allowed(mask, seat.agent, seat.writer.size)
    if np.logical_or.reduceat(mask, ends).all():  # something of every part
        return mask
    if not over:
        raise Broken(f"{seat.agent} is alive and its action mask allows nothing")
    return np.ones_like(mask)  # masks may be empty after the end, where no agent acts


def _number(agent: Any, reward: Any) -> float:
    if isinstance(reward, float):  # the common case
        return reward
    if isinstance(reward, np.ndarray) and reward.size == 1:
        reward = reward.item()
    if not isinstance(reward, str | bytes):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            return float(reward)
    raise Broken(f"the reward of {agent} is {reward!r:.80}, not a number that float32 holds")
