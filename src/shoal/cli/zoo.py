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

    table = Table("name", "environment", "what it is", "return of one agent", box=None)
    table.columns[0].no_wrap = True
    for one in found:
        what = one.about.get("about", "")
        scores = _scores(one.about).items()
        told = "\n".join(f"{label}: {score}" for label, score in scores)
        table.add_row(f"{zoo.PREFIX}{one.name}", one.about.get("env", ""), what, told)
    Console().print(table, highlight=False, markup=False)


def _whole(one: zoo.Animal) -> str:
    about = one.about
    lines = [f"{zoo.PREFIX}{one.name}: {about.get('about', '')}"]
    facts = {"from": one.package} | {
        name: about[name]
        for name in ("env", "team", "steps", "command", "licence")
        if name in about
    }
    lines += [f"  {name}: {value}" for name, value in facts.items()]
    lines += [f"  scored by {about['episodes']:,} greedy episodes"] if "episodes" in about else []
    lines += [f"  {label}: {score}" for label, score in _scores(about).items()]
    return "\n".join(lines)


def _scores(about: dict[str, Any]) -> dict[str, str]:
    """Each match in words: `agent -8.13`."""
    return {
        label: ", ".join(f"{team} {_score(numbers)}" for team, numbers in teams.items())
        for label, teams in about.get("scores", {}).items()
    }


def _score(numbers: dict[str, float]) -> str:
    won = f" (wins {numbers['win']:.1%})" if "win" in numbers else ""
    return f"{numbers['return']:.2f}{won}"
