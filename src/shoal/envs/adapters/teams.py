"""Agents in their teams: the part that all adapters share.

An adapter collects what its environment returns, by agent, in an `EnvStep`; its `Roster` splits it
into one `TeamStep` per team. Agents are found by name in a fixed order, never by their place
among those that live.
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
from .spaces import Choice, Reader, Writer, action_space

NOTHING: Mapping[Any, Any] = {}


class EnvStep(NamedTuple):
    """What an environment says at one instant, by agent; who is missing is not there."""

    obs: Mapping[Any, Any]  # as the environment gives them
    alive: Collection[Any]  # who is present and may act
    masks: Mapping[Any, Any] = NOTHING  # actions allowed, where that is told
    rewards: Mapping[Any, Any] = NOTHING  # earned by the step that led here
    discounts: Mapping[Any, float] = NOTHING  # 0 where not told
    over: bool = False


def group(names: list[str], teams: str) -> dict[str, list[str]]:
    """The agents of each team: by their names, `all` together, `each` alone, or as
    `red:red_0,red_1;blue:blue_*`."""
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
    """red_0 plays for red; a bare number for agent."""
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
    """Where an agent sits, and how it is read and written."""

    agent: Any  # as the environment calls it
    team: str
    place: int
    reader: Reader
    writer: Writer


class Roster:
    """The agents of an environment in their teams; `state` is the size of the environment's own, if
    it has one."""

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
        self.masked = any(seat.reader.masked for seat in self.seats.values())
        size = sum(seat.reader.size for seat in self.seats.values()) if state is None else state
        specs = {
            team: _spec(team, line, size, len(self.seats) > 1) for team, line in self.lines.items()
        }
        self.teams = line_up(specs, state is None)
        self.legal = {team: _padding(self.teams[team], line) for team, line in self.lines.items()}

    def native(self, actions: dict[str, np.ndarray], agents: Iterable[Any]) -> dict[Any, Any]:
        """The actions of these agents as the environment wants them."""
        seats = [self.seats[agent] for agent in agents]
        rows = {
            team: action.tolist() if action.ndim == 1 else action
            for team, action in actions.items()
        }
        return {seat.agent: seat.writer.write(rows[seat.team][seat.place]) for seat in seats}

    def match_step(self, env_step: EnvStep, state: np.ndarray | None = None) -> MatchStep:
        """The `MatchStep` of an `EnvStep`."""
        teams = {team: self._team_step(team, line, env_step) for team, line in self.lines.items()}
        return MatchStep(teams, self._joined(teams) if state is None else state, env_step.over)

    def _team_step(self, team: str, line: list[Seat], env_step: EnvStep) -> TeamStep:
        spec = self.teams[team]
        legal = self.legal[team].copy()
        obs = np.zeros((spec.n, spec.obs), np.uint8 if spec.pixels else np.float32)
        alive = [seat.agent in env_step.alive for seat in line]
        for seat, present in zip(line, alive, strict=True):
            agent = seat.agent
            # alone: what it sees is its last
            cut = not present and env_step.discounts.get(agent, 0.0) > 0
            if agent in env_step.obs and (
                present or cut or (env_step.over and agent in env_step.discounts)
            ):
                obs[seat.place, : seat.reader.size] = seat.reader.read(env_step.obs[agent])
            if (present or cut) and agent in env_step.masks and isinstance(seat.writer, Choice):
                legal[seat.place, : seat.writer.size] = _allowed(
                    seat, env_step.masks[agent], cut or env_step.over
                )
        # The reward of the step it left with is an agent's last; only who checks environments wants
        # to see others.
        paid = [seat.agent in env_step.discounts or seat.reader.strict for seat in line]
        rewards = [
            env_step.rewards.get(seat.agent, 0.0) if due else 0.0
            for seat, due in zip(line, paid, strict=True)
        ]
        reward = np.array(
            [_number(seat.agent, one) for seat, one in zip(line, rewards, strict=True)], np.float32
        )
        return TeamStep(
            obs=obs,
            legal=legal,
            alive=np.array(alive),
            reward=reward,
            discount=np.array(
                [env_step.discounts.get(seat.agent, 0.0) for seat in line], np.float32
            ),
        )

    def _joined(self, teams: dict[str, TeamStep]) -> np.ndarray:
        """[S] all observations side by side, without padding, images between 0 and 1."""
        rows = []
        for team, line in self.lines.items():
            obs = teams[team].obs / np.float32(255) if self.teams[team].pixels else teams[team].obs
            rows += [obs[seat.place, : seat.reader.size] for seat in line]
        return np.concatenate(rows)


def fates(
    before: Collection[Any], live: Collection[Any], terminated: Mapping, truncated: Mapping
) -> tuple[set[Any], dict[Any, float]]:
    """Who is alive after a step, and the discounts: an agent that ends by itself dies; at a cut end
    nobody does."""
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
    """One team, padded to its widest agent."""
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
    """[N,A] True on each agent's own actions."""
    return np.arange(spec.action.size) < np.array([seat.writer.size for seat in line])[:, None]


def _allowed(seat: Seat, mask: Any, over: bool) -> np.ndarray:
    mask = rules.allowed(mask, seat.agent, seat.writer.size)
    if mask.any():
        return mask
    if not over:
        raise Broken(f"{seat.agent} is alive and its action mask allows nothing")
    return ~mask  # nothing is allowed after the end, and nobody shall act there


def _number(agent: Any, reward: Any) -> float:
    if not isinstance(reward, str | bytes):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            return float(reward)
    raise Broken(f"the reward of {agent} is {reward!r:.80}, not a number that float32 holds")
