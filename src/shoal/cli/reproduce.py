"""`shoal reproduce`: train what is missing of a published table, and compare."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from ..config import campaign as planning
from ..config import published
from ..config.campaign import Plan
from ..config.flags import parse
from ..config.published import Table
from ..config.settings import LOCAL, check_cluster
from ..config.trust import Trust, needed
from ..devices import setup
from ..errors import ShoalError
from ..report import reproduction, reproduction_page
from ..report.html import count
from ..store import folder as runs
from ..store.places import local
from ..store.remote import share
from ..sweep import progress, scheduler
from .words import Trusting, asks_for_help

REPRODUCE = "shoal reproduce <table>"
TITLE = (
    "Train what is missing of a published table, and print and write our numbers beside the"
    " published ones: shoal reproduce papoudakis2021 --tasks 'Climbing,Penalty k=0' --algorithms"
    " IPPO,QMIX --seeds 5 --budget 0.1. --list shows the tables; a .toml file is a table of your"
    " own. Runs go side by side; the same command goes on with what was interrupted, and more"
    " tasks, algorithms, seeds or another budget are added to the same --out"
)
MOST_BUDGET = 100.0


@dataclass(frozen=True)
class Reproduce:
    """What of the table to reproduce. Patterns are separated by commas, with * for anything."""

    tasks: str = ""
    """Patterns of the tasks, by the table's name or by environment, as in 'LBF*'; empty takes
    all."""
    algorithms: str = ""
    """Patterns of the algorithms, by the table's name or Shoal's; empty takes all."""
    seeds: str = "5"
    """How many seeds, counted from 0, or which, as in 0,7,12."""
    budget: float = 1.0
    """Share of the published steps that each run has."""
    jobs: int = 0
    """Runs side by side; 0 is one on each core."""
    cluster: str = LOCAL
    """Where the runs are trained: local is this machine, auto the Ray cluster that it is part of;
    or a cluster's address, as in ray://host:10001."""
    again: bool = False
    """Train anew what the folder has with other settings, such as an older preset's."""
    out: str = ""
    """Folder of the runs and the tables; empty takes campaigns/<table>."""
    list: bool = False
    """Show the tables there are, or the tasks and algorithms of one."""

    def __post_init__(self) -> None:
        if not 0 < self.budget <= MOST_BUDGET:  # also rejects NaN
            raise ShoalError(
                f"budget must be a share of the published steps, greater than 0 and at most"
                f" {MOST_BUDGET:g}, not {self.budget!r}"
            )
        if self.jobs < 0:
            raise ShoalError(f"jobs must not be negative, not {self.jobs!r}")
        check_cluster(self.cluster)


def reproduce(args: list[str], trust: Trusting) -> int:
    """Train what is missing, then compare."""
    words = list(args)
    word = words.pop(0) if words and not words[0].startswith("-") else ""
    options = parse(Reproduce, Reproduce(), words, REPRODUCE, TITLE)
    if not word and not options.list and not asks_for_help(args):
        raise ShoalError(
            f"say which table: {REPRODUCE}, of {', '.join(published.names())}, or a .toml file"
        )
    if options.list:
        _list([word] if word else published.names(), bool(word))
        return 0
    setup()
    table = published.load(word)
    folder = local(options.out or f"campaigns/{table.name}")
    asked = _asked(options, table, trust.files)
    records = reproduction.load(folder, table)
    before = _before(folder, asked, trust.files)
    changed = before.differing(asked) if options.again else Plan([])
    plan = planning.checked(
        asked.merged(before.without(changed), folder, "train it anew with --again")
    )
    if changed.pairs:
        records = reproduction.without(records, table, changed)
        _remove(changed, records, table, folder)
    planning.save(plan, folder)
    left = reproduction.missing(records, table, asked)
    _introduce(table, folder, asked, left)
    with runs.locked(folder):
        outcomes = scheduler.work(left.jobs(folder), options.jobs, cluster=options.cluster)
        new, failed = reproduction.collect(folder, table, left)
        records += new
        reproduction.save(records, table, folder)
    if any(outcome.state == progress.STOPPED for outcome in outcomes.values()):
        flag = max(needed(pair.config) for pair in plan.pairs)
        print(f"stopped: the same command goes on{flag and f', with{flag}'}", flush=True)
        return 130
    code = _publish(table, records, failed, folder)
    share(folder)
    return code


def _asked(options: Reproduce, table: Table, trust: Trust) -> Plan:
    """The runs asked for."""
    seeds = planning.numbers(options.seeds)
    plan = table.plan(options.tasks, options.algorithms, seeds, options.budget, trust)
    return planning.checked(plan)


def _before(folder: Path, asked: Plan, trust: Trust) -> Plan:
    """The runs that the folder has."""
    if (folder / planning.FILE).exists():
        return planning.load(folder, trust, {pair.key for pair in asked.pairs})
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ShoalError(f"{folder} exists already and is no campaign: choose another --out")
    return Plan([])


def _remove(plan: Plan, kept: list[reproduction.Record], table: Table, folder: Path) -> None:
    """Remove the runs of a plan, and all records but those kept."""
    with runs.locked(folder):
        reproduction.save(kept, table, folder)
        for job in plan.jobs(folder):
            shutil.rmtree(job.path, ignore_errors=True)


def _introduce(table: Table, folder: Path, asked: Plan, left: Plan) -> None:
    total = sum(len(pair.seeds) for pair in asked.pairs)
    jobs = left.jobs(folder)
    done = total - sum(not runs.finished(job.path) for job in jobs)
    steps = sum(pair.config["settings"]["steps"] * len(pair.seeds) for pair in asked.pairs)
    print(
        f"{table.name}: {count(total, 'run')} of {steps:,} steps in all in {folder}, {done} of them"
        f" finished already",
        flush=True,
    )


def _publish(
    table: Table,
    records: list[reproduction.Record],
    failed: list[reproduction.Failed],
    folder: Path,
) -> int:
    """Write and print the comparison; return 1 if a run failed."""
    found = reproduction.rows(table, records)
    if not found:
        raise ShoalError(f"no run has finished: {failed[0].name}: {failed[0].why}")
    try:
        reproduction.write(table, found, failed, folder)
        reproduction_page.write(table, found, failed, folder)
    except OSError as error:
        why = error.strerror or error
        raise ShoalError(
            f"the comparison cannot be written to {folder} ({why}): choose another --out"
        ) from None
    print(reproduction.markdown(table, found, failed), end="")
    print(
        f"report: {folder / reproduction_page.PAGE}   tables: {folder / reproduction.TABLE},"
        f" {folder / reproduction.TEXT}   runs: {folder / reproduction.RECORDS}"
    )
    return 1 if failed else 0


def _list(words: list[str], whole: bool) -> None:
    """Print the tables, or all of one."""
    for word in words:
        table = published.load(word)
        print(f"{table.name}: {table.about.title}")
        if whole:
            for task in table.tasks:
                told = task.train or f"not reproduced: {task.missing}"
                print(f"  {task.name:<20} {told}")
            print(f"  algorithms: {', '.join(table.algorithms)}")
