"""`shoal crossplay`: policies of several runs play with each other, or against each other."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table as Grid

from ..config.flags import parse
from ..config.trust import FLAG
from ..errors import ShoalError
from ..report.crossplay import NUMBERS, PICTURE, Entrant, Rules, Table, crossplay, write
from ..store.player import load
from .evaluate import Evaluation, members
from .words import Trusting, leading

TITLE = (
    "Let the policies of several runs of one game play in pairs: shoal crossplay runs/a runs/b"
    " runs/c --episodes 500. In a game of several teams, a row's policy plays one team and a"
    " column's the others; in a game of one team, a row's plays the first agents and a column's"
    " the rest, so that the diagonal is how each plays with itself. Of a folder of several seeds,"
    " or of a campaign, every run takes part. Writes the numbers and a heat map."
    f" An environment of somebody's own, which a run names, is only played with {FLAG}"
)


@dataclass(frozen=True)
class Crossplay(Evaluation):
    """How each pair plays, and where the table goes."""

    episodes: int = 100
    """Episodes of each pair, all pairs on the same games."""
    team: str = ""
    """Team that rows play, in a game of several; empty takes the first."""
    seats: int = 1
    """Agents that rows play, in a game of one team."""
    out: str = "crossplay"
    """Folder that the table and the heat map are written to."""

    @property
    def rules(self) -> Rules:
        return Rules(self.episodes, not self.sampled, self.seed, self.team, self.seats)


def command(args: list[str], trust: Trusting) -> int:
    """Play every pair and print the table."""
    folders, words = leading(args)
    options = parse(Crossplay, Crossplay(), words, "shoal crossplay <run> <run> …", TITLE)
    runs = [run for folder in folders for run in _runs(Path(folder))]
    names = [run.name for run in runs]
    entrants = [
        Entrant(
            run.name if names.count(run.name) == 1 else str(run),
            load(run, best=options.best, trust=trust.files.everything),
        )
        for run in runs
    ]
    shown = Console(stderr=True)
    with Progress(transient=True, console=shown, disable=not shown.is_terminal) as progress:
        bar = progress.add_task("pairs")
        table = crossplay(
            entrants,
            options.rules,
            lambda done, pairs: progress.update(bar, completed=done, total=pairs),
        )
    folder = Path(options.out)
    try:
        write(table, folder)
    except OSError as error:
        raise ShoalError(
            f"the table cannot be written to {folder} ({error.strerror or error}): choose another"
            " --out"
        ) from None
    if options.json:
        print(json.dumps(table.to_json()))
    else:
        _print(table, options)
        print(f"heat map: {folder / PICTURE}   numbers: {folder / NUMBERS}")
    return 0


def _runs(folder: Path) -> list[Path]:
    """The run itself, or the runs of a group or a campaign."""
    inside = members(folder)
    return [folder] if inside is None else [member.path for member in inside]


def _print(table: Table, options: Crossplay) -> None:
    console = Console(markup=False)
    print(f"{table.env}: rows play {table.rows}, columns {table.columns}")
    for team, returns in table.returns.items():
        played = f"{options.episodes} {options.actions} episodes"
        print(f"mean return of one agent of team {team}, {played}:")
        columns = [str(place + 1) for place in range(len(table.names))]
        grid = Grid("", *columns, "mean", "worst", box=None, pad_edge=False)
        for column in grid.columns[1:]:
            column.justify = "right"
        for place, (name, row) in enumerate(zip(table.names, returns, strict=True)):
            cells = [f"{value:.2f}" for value in (*row, row.mean(), row.min())]
            grid.add_row(f"{place + 1} {name}", *cells)
        console.print(grid, highlight=False)
