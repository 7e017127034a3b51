"""`shoal zoo`: small trained policies that come with Shoal or with other packages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from .. import zoo
from ..config.flags import parse
from .words import Trusting, leading

FACTS = ("env", "team", "steps", "command", "licence")
TITLE = (
    "List small trained policies, or say all about some of them: shoal zoo spread. Each can be"
    " named like a run: shoal watch zoo:spread, shoal train --team agent=zoo:tag-prey --team"
    " adversary=mappo mpe/simple_tag"
)


@dataclass(frozen=True)
class Listing:
    """How to list them."""

    json: bool = False
    """Print one JSON object instead of text."""


def list_zoo(args: list[str], trust: Trusting) -> int:
    """List the zoo, or tell all about some of its policies."""
    names, args = leading(args)
    options = parse(Listing, Listing(), args, "shoal zoo", TITLE)
    for name in names:
        zoo.place(f"{zoo.PREFIX}{name.removeprefix(zoo.PREFIX)}")  # refuses what is not there
    wanted = [name.removeprefix(zoo.PREFIX) for name in names]
    found = [one for one in zoo.animals() if not wanted or one.name in wanted]
    if options.json:
        print(json.dumps({one.name: one.about | {"package": one.package} for one in found}))
    elif names:
        print("\n\n".join(map(_whole, found)))
    else:
        _table(found)
    return 0


def _table(found: list[zoo.Animal]) -> None:
    from rich.console import Console
    from rich.table import Table

    score = "return of one agent (game's own metrics)"
    table = Table("name", "environment", "what it is", score, box=None)
    table.columns[0].no_wrap = True
    for one in found:
        licence = f" ({one.about['licence']})" if "licence" in one.about else ""
        what = one.about.get("about", "") + licence
        scores = _scores(one.about).items()
        told = "\n".join(f"{label}: {score}" for label, score in scores)
        table.add_row(f"{zoo.PREFIX}{one.name}", one.about.get("env", ""), what, told)
    Console().print(table, highlight=False, markup=False)


def _whole(one: zoo.Animal) -> str:
    about = one.about
    lines = [f"{zoo.PREFIX}{one.name}: {about.get('about', '')}"]
    facts = {"from": one.package} | {name: about[name] for name in FACTS if name in about}
    lines += [f"  {name}: {value}" for name, value in facts.items()]
    lines += [f"  scored by {about['episodes']:,} greedy episodes"] if "episodes" in about else []
    lines += [f"  {label}: {score}" for label, score in _scores(about).items()]
    return "\n".join(lines)


def _scores(about: dict[str, Any]) -> dict[str, str]:
    """Each match in words: `agent 0.42, won 0.84`, `red 0.85 (won 0.93), blue -0.85 (won 0.07)`."""
    metrics = about.get("metrics", {})
    return {
        label: _match(teams, metrics.get(label, {}))
        for label, teams in about.get("scores", {}).items()
    }


def _match(teams: dict[str, dict[str, float]], metrics: dict[str, float]) -> str:
    """Returns of all teams, each with what is known of it alone, then what is known of all."""
    told = [f"{team} {one['return']:.2f}{_own(team, one, metrics)}" for team, one in teams.items()]
    told += [
        f"{name} {value:.2f}"
        for name, value in metrics.items()
        if name.partition("/")[0] not in teams
    ]
    return ", ".join(told)


def _own(team: str, numbers: dict[str, float], metrics: dict[str, float]) -> str:
    known = [f"wins {numbers['win']:.1%}"] if "win" in numbers else []
    known += [
        f"{name.removeprefix(f'{team}/')} {value:.2f}"
        for name, value in metrics.items()
        if name.startswith(f"{team}/")
    ]
    return f" ({', '.join(known)})" if known else ""
