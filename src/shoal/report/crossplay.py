"""Cross-play: policies of several runs play with each other, or against each other.

In a game of several teams, a row's policy plays one team and a column's all others. In a game of
one team, a row's policy plays its first agents and a column's the rest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..algorithms.base import Algorithm
from ..algorithms.opponents.cast import Cast, CastPolicy
from ..algorithms.opponents.frozen import why_incompatible
from ..engine.episodes import Episodes
from ..engine.evaluate import evaluator
from ..envs.host.arena import Alone
from ..errors import ShoalError, did_you_mean
from ..files import write_json
from ..store.player import Player
from . import figures
from .figures import INK

PICTURE = "crossplay.png"
NUMBERS = "crossplay.json"


class Entrant(NamedTuple):
    """A run's policies under a short name."""

    name: str
    player: Player


class Rules(NamedTuple):
    """How each pair plays."""

    episodes: int = 100
    greedy: bool = True
    seed: int = 0
    team: str = ""  # the one that rows play; empty takes the first
    seats: int = 1  # in a game of one team: its agents that rows play


class Table(NamedTuple):
    """Scores of every pair of policies."""

    env: str
    names: tuple[str, ...]
    rows: str  # what a row's policy plays, in words
    columns: str
    returns: dict[str, np.ndarray]  # [rows,columns] by team: mean return of one agent
    errors: dict[str, np.ndarray]  # the same: standard errors over the episodes
    metrics: dict[str, np.ndarray]  # [rows,columns] by name: means of the environment's own

    def to_json(self) -> dict[str, Any]:
        """Convert to plain JSON values."""
        arrays = {
            field: {name: values.tolist() for name, values in getattr(self, field).items()}
            for field in ("returns", "errors", "metrics")
        }
        return {**self._asdict(), **arrays, "names": list(self.names)}


def crossplay(
    entrants: Sequence[Entrant],
    rules: Rules = Rules(),  # noqa: B008 immutable
    follow: Callable[[int, int], None] = lambda done, pairs: None,
) -> Table:
    """Play every pair on the same games; `follow` hears how many of all pairs are done."""
    if len(entrants) < 2:
        raise ShoalError("cross-play needs at least two policies: name another run")
    entrants[0].player.complete()
    for entrant in entrants[1:]:
        _refuse_another_game(entrants[0], entrant)
    first = entrants[0].player
    sides = first.teams
    team = rules.team or next(iter(sides))
    if team not in sides:
        hint = did_you_mean(team, sides)
        raise ShoalError(f"there is no team {team!r}{hint}: its teams are {', '.join(sides)}")
    agents = sides[team].agents
    if len(sides) == 1 and not 0 < rules.seats < len(agents):
        raise ShoalError(
            f"seats must be between 1 and {len(agents) - 1}, so that two policies share the"
            f" {len(agents)} agents, not {rules.seats!r}"
        )
    pairs = [(row, column) for row in entrants for column in entrants]
    played: list[Episodes] = []
    with contextlib.ExitStack() as closing:
        programs = _Programs(first, rules, closing)
        for row, column in pairs:
            played.append(programs.play(_lineup(row.player, column.player, team, rules.seats)))
            follow(len(played), len(pairs))
    names = tuple(entrant.name for entrant in entrants)
    return _table(first.config.env, names, _words(sides, team, rules.seats), played)


def _refuse_another_game(first: Entrant, other: Entrant) -> None:
    """Refuse a policy of another game than the first one's."""
    here = first.player.config
    there = other.player.config
    other.player.complete()
    if (here.env, here.options) != (there.env, there.options):
        raise ShoalError(
            f"{other.name} was trained on {_game(other)}, {first.name} on {_game(first)}: leave"
            f" one of them out"
        )
    for team, spec in first.player.teams.items():
        wrong = why_incompatible(spec, other.player.teams[team])
        if wrong:
            raise ShoalError(f"{other.name} cannot play with {first.name}: team {team!r} {wrong}")


def _game(entrant: Entrant) -> str:
    config = entrant.player.config
    return f"{config.env} {config.options}" if config.options else config.env


Lineup = dict[str, tuple[Cast, tuple[CastPolicy, ...]]]  # by team: who plays it


def _lineup(row: Player, column: Player, team: str, seats: int) -> Lineup:
    """Who plays when two policies meet."""
    if len(row.teams) == 1:
        spec = row.teams[team]
        return {team: _cast(team, (row, column), [0] * seats + [1] * (spec.n - seats))}
    return {
        name: _cast(name, (row if name == team else column,), [0] * spec.n)
        for name, spec in row.teams.items()
    }


def _cast(
    team: str, players: Sequence[Player], seats: Sequence[int]
) -> tuple[Cast, tuple[CastPolicy, ...]]:
    policies = [player.algorithms[team] for player in players]
    parts = tuple(CastPolicy(player.learners[team], player.clock) for player in players)
    return Cast(players[0].teams[team], policies, seats), parts


class _Programs:
    """Evaluators; pairs whose algorithms and settings are equal share one."""

    def __init__(self, first: Player, rules: Rules, closing: contextlib.ExitStack):
        self.first = first
        self.rules = rules
        self.closing = closing
        self.made: list[tuple[list[Any], Any]] = []  # what a program depends on, and it

    def play(self, lineup: Lineup) -> Episodes:
        run = self._program({team: cast for team, (cast, _) in lineup.items()})
        learners = {team: parts for team, (_, parts) in lineup.items()}
        return run(learners, self.rules.seed, self.first.clock)

    def _program(self, casts: dict[str, Cast]) -> Any:
        needs = [_identity(policy) for cast in casts.values() for policy in cast.policies]
        for known, program in self.made:
            if known == needs:
                return program
        c = self.first.config
        rules = self.rules
        alone = Alone() if c.settings.alone else None
        players: dict[str, Algorithm] = {**casts}
        program = evaluator(
            c.game, players, rules.episodes, rules.greedy, c.workers, c.settings, alone
        )
        self.closing.enter_context(contextlib.closing(program))
        self.made.append((needs, program))
        return program


def _identity(policy: Algorithm) -> Any:
    """What tells the programs of two policies apart."""
    if type(policy).join is not Algorithm.join:  # it keeps more than its config says
        return policy
    return type(policy), policy.config, policy.spec


def _words(sides: dict[str, Any], team: str, seats: int) -> tuple[str, str]:
    """What rows and columns play."""
    if len(sides) == 1:
        agents = sides[team].agents
        return ", ".join(agents[:seats]), ", ".join(agents[seats:])
    return f"team {team}", ", ".join(f"team {other}" for other in sides if other != team)


def _table(
    env: str, names: tuple[str, ...], words: tuple[str, str], played: Sequence[Episodes]
) -> Table:
    size = (len(names), len(names))
    one = played[0]
    means = {
        team: np.array([each.returns[team].mean() for each in played]).reshape(size)
        for team in one.returns
    }
    errors = {
        team: np.array([_standard_error(each.returns[team].mean(1)) for each in played])
        for team in one.returns
    }
    metrics = {
        name: np.array([each.means()[name] for each in played]).reshape(size)
        for name in one.metrics
    }
    errors = {team: values.reshape(size) for team, values in errors.items()}
    return Table(env, names, *words, means, errors, metrics)


def _standard_error(scores: np.ndarray) -> float:
    return float(scores.std(ddof=1) / np.sqrt(len(scores))) if len(scores) > 1 else float("nan")


# -- files -----------------------------------------------------------------------------------------


def write(table: Table, folder: Path) -> None:
    """Write the numbers as JSON and the heat map as PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / NUMBERS, table.to_json())
    figures.save(_heat_map(table), folder / PICTURE)


def _heat_map(table: Table) -> Any:
    """A panel per team: rows and columns are policies, colours their returns."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    side = max(3.2, 0.62 * len(table.names) + 1.6)
    figure = Figure(figsize=(side * len(table.returns) + 1.5, side + 0.6), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(
        f"cross-play on {table.env}", x=0.01, ha="left", color=INK, fontsize=11, fontweight="bold"
    )
    panels = figure.subplots(1, len(table.returns), squeeze=False)[0]
    for axes, (team, returns) in zip(panels, table.returns.items(), strict=True):
        _panel(figure, axes, table, team, returns)
    return figure


def _panel(figure: Any, axes: Any, table: Table, team: str, returns: np.ndarray) -> None:
    picture = axes.imshow(returns, cmap="viridis")
    figure.colorbar(picture, ax=axes, shrink=0.8)
    places = range(len(table.names))
    axes.set_xticks(places, table.names, rotation=35, ha="right", fontsize=8, color=INK)
    axes.set_yticks(places, table.names, fontsize=8, color=INK)
    axes.set_xlabel(f"plays {table.columns}", color=INK, fontsize=9)
    axes.set_ylabel(f"plays {table.rows}", color=INK, fontsize=9)
    axes.set_title(f"return of one agent of team {team}", color=INK, fontsize=9)
    middle = (returns.min() + returns.max()) / 2
    for row, column in np.ndindex(returns.shape):
        value = returns[row, column]
        colour = "white" if value < middle else "black"
        axes.text(column, row, f"{value:.3g}", ha="center", va="center", fontsize=8, color=colour)
