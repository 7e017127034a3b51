"""`shoal sweep`: search for settings of an algorithm on an environment."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jax

from .. import files
from ..config import space as spaces
from ..config.arguments import compose_arguments
from ..config.campaign import ALONE, cores
from ..config.config import Config
from ..config.flags import flags, parse
from ..config.settings import LOCAL, check_cluster
from ..devices import setup
from ..errors import ShoalError
from ..options import convert, fill
from ..report import search_results as report
from ..report.search_results import Trial
from ..store import folder as runs
from ..store.best import judge
from ..store.places import local, word_of
from ..store.remote import share
from ..sweep import population, search, vectorised
from ..sweep.search import Plan
from .words import Trusting, asks_for_help, leading

SWEEP = "shoal sweep <algorithm> <env> --over <option>=<values> --out <folder>"
TITLE = (
    "Search for settings: shoal sweep mappo mpe/simple_spread --over lr=1e-4..1e-2:log --over"
    " gamma=0.9,0.95,0.99 --trials 50 --steps 1e6 --out sweeps/first. --over is said once for each"
    " option: a range, with :log on a logarithmic scale, or values. All other options are those of"
    " shoal train, and go to every trial. The same command, or shoal sweep <folder>, goes on with a"
    " search that was interrupted. The best settings become best.toml, which shoal train --preset"
    " takes"
)
FILE = "sweep.json"
OVER = "--over"
POPULATION = "population"
SAVED = ("args", "over", "method", "pruner", "trials", "seed")
REFUSED = ("--seeds", "--name")


@dataclass(frozen=True)
class Sweep:
    """The search itself."""

    trials: int = 20
    """Trials to run; a grid has as many as it has points."""
    method: Literal["tpe", "random", "qmc", "grid", "population"] = "tpe"
    """How settings are chosen: by what earlier trials reached (tpe), at random, spread evenly
    (qmc), all of a grid, or by population-based training."""
    pruner: Literal["median", "hyperband", "halving", "none"] = "median"
    """Which trials are stopped at an evaluation: those below the median of others at the same
    point, by Hyperband or successive halving, or none."""
    members: int = 8
    """Members of a population."""
    rounds: int = 5
    """Rounds of a population, over which the steps are spread."""
    together: bool = False
    """Train the members of a population in one compiled program, which takes what is varied as
    arrays: only numbers, such as lr. An accelerator does so where it can."""
    search_seed: int = 0
    """Decides what is random in the search; the runs have --seed."""
    at_once: int = 0
    """Trials side by side; 0 is one on each core."""
    cluster: str = LOCAL
    """Where the trials are trained: local is this machine, auto the Ray cluster that it is part of;
    or a cluster's address, as in ray://host:10001."""
    out: str = ""
    """The search's folder."""

    def __post_init__(self) -> None:
        check_cluster(self.cluster)
        if self.at_once < 0 or self.search_seed < 0:
            raise ShoalError("at_once and search_seed must not be negative")
        for name in ("trials", "rounds"):
            if not 1 <= getattr(self, name) <= 10_000:
                raise ShoalError(f"{name} must be 1 to 10,000, not {getattr(self, name)}")
        if not 2 <= self.members <= 1000:
            raise ShoalError(f"members must be 2 to 1,000, not {self.members}")
        if self.together and (self.method != POPULATION or self.cluster != LOCAL):
            raise ShoalError(
                "together trains a population in one program of this machine: say --method"
                " population, without --cluster, or leave it out"
            )


def sweep(args: list[str], trust: Trusting) -> int:
    """Search, then tell what was found."""
    setup()
    names, rest = leading(args)
    own, over, rest = _own(rest)
    how = parse(Sweep, Sweep(), own, SWEEP, TITLE)
    if len(names) == 1 and (Path(names[0]) / FILE).exists():
        folder = Path(names[0])
        how, args, over = _saved(folder, how, [*over, *rest])
        words = trust.files
    else:
        if len(names) != 2 and not asks_for_help(args):
            raise ShoalError(f"say what to search settings of: {SWEEP}")
        folder = local(how.out)
        args = [*ALONE, *names, *rest]
        words = trust.words
    plan, ends = _planned(how, args, over, Trusting(words, trust.files))
    if how.together:
        vectorised.check(ends)
    _begin(how, plan, folder)
    share(folder)
    with runs.locked(folder):
        trials, stopped = _train(how, plan, ends, folder)
    if stopped:
        print(f"stopped: shoal sweep {word_of(folder)} goes on", flush=True)
        share(folder)
        return 130
    code = _publish(plan, trials, folder)
    share(folder)
    return code


def _train(how: Sweep, plan: Plan, ends: list[Config], folder: Path) -> tuple[list[Trial], bool]:
    if how.method != POPULATION:
        return search.search(plan, folder, how.at_once, how.cluster)
    steps = ends[0].settings.steps
    sizes = (how.members, how.rounds, steps, how.at_once)
    together = how.together or _fit_one_program(how, ends)
    return population.train(plan, folder, *sizes, how.cluster, together=together)


def _fit_one_program(how: Sweep, ends: list[Config]) -> bool:
    """Whether members go to an accelerator of this machine, and differ in numbers alone."""
    if how.cluster != LOCAL or jax.default_backend() == "cpu":
        return False
    try:
        vectorised.check(ends)
    except ShoalError:
        return False
    return True


def _own(args: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Split into the search's own options, what is varied, and the runs' options."""
    known = dict(flags(Sweep, Sweep()))
    own: list[str] = []
    over: list[str] = []
    rest: list[str] = []
    words = list(args)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name == OVER:
            over.append(value if equals else words.pop(0) if words else "")
            continue
        mine = name.replace("_", "-").lower() in known or word in ("-h", "--help")
        (own if mine else rest).append(word)
        if mine and not equals and words and not words[0].startswith("--"):
            own.append(words.pop(0))
    return own, over, rest


def _planned(
    how: Sweep, args: list[str], over: list[str], trust: Trusting
) -> tuple[Plan, list[Config]]:
    """The plan, and the configs of two trials at the ends of what is varied; refuses what could not
    be trained."""
    for word in args:
        if word.partition("=")[0] in REFUSED:
            raise ShoalError(f"a trial is one run, which the search names: leave out {word}")
    space = spaces.parse(over)

    def composed() -> list[Config]:
        ends = [spaces.flags({one.name: one.ends[end] for one in space}) for end in (0, 1)]
        return [compose_arguments([*args, *end], trust.words, trust.files)[0] for end in ends]

    configs = composed()
    if how.method == POPULATION:
        args = _unannealed(args, configs[1])
        configs = composed()
    config = configs[0]
    points = len(spaces.grid(space)) if how.method == search.GRID else how.trials
    plain = config.to_json()
    plan = Plan(
        args,
        over,
        how.method,
        "none" if how.method == search.GRID and how.pruner == Sweep.pruner else how.pruner,
        points,
        how.search_seed,
        judge(config),
        config.settings.evaluations,
        cores(plain),
        trust.words.only(plain),
    )
    return plan, configs


def _unannealed(args: list[str], config: Config) -> list[str]:
    """Arguments without annealing, which would end with every round."""
    annealed = any(getattr(own, "anneal", False) for _, own in config.teams.values())
    if not annealed or "--anneal" in args or len({name for name, _ in config.teams.values()}) > 1:
        return args
    return args if "--no-anneal" in args else [*args, "--no-anneal"]


def _begin(how: Sweep, plan: Plan, folder: Path) -> None:
    """Make the folder, or make sure that it holds this search."""
    if not str(how.out) and folder == Path():
        raise ShoalError("say where the search goes: --out sweeps/first")
    saved = {name: value for name, value in vars(plan).items() if name in SAVED}
    saved |= {"members": how.members, "rounds": how.rounds, "together": how.together}
    if (folder / FILE).exists():
        before = files.read_json(folder / FILE, "a search's folder")
        for name, value in saved.items():
            if name != "trials" and before.get(name, value) != value:
                raise ShoalError(
                    f"{folder} has a search with {name} {before.get(name)!r}, not {value!r}:"
                    " choose another --out"
                )
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ShoalError(f"{folder} exists already and is no search: choose another --out")
    try:
        (folder / search.TRIALS).mkdir(parents=True, exist_ok=True)
        files.write_json(folder / FILE, saved)
    except OSError as error:
        raise ShoalError(
            f"{folder} cannot be written to ({error.strerror}): choose another --out"
        ) from None
    print(f"search of {' and '.join(plan.over)} in {folder}", flush=True)


def _saved(folder: Path, how: Sweep, others: list[str]) -> tuple[Sweep, list[str], list[str]]:
    """The search that a folder holds."""
    usual = dataclasses.replace(
        Sweep(), at_once=how.at_once, cluster=how.cluster, trials=how.trials
    )
    if others or how != usual:
        raise ShoalError(
            f"{folder} says all itself: shoal sweep {folder}, and nothing else but --at-once,"
            " --cluster and --trials"
        )
    content = files.read_json(folder / FILE, "a search's folder")
    try:
        own = {name: content[name] for name in ("trials", "method", "pruner", "members", "rounds")}
        own |= {"search_seed": content["seed"], "together": content.get("together", False)}
        said = content["args"], content["over"]
    except (KeyError, TypeError):
        raise ShoalError(
            f"{folder / FILE} was not written by this version of shoal: choose another --out"
        ) from None
    if how.trials != Sweep.trials:
        own["trials"] = how.trials
    own |= {"at_once": how.at_once, "cluster": how.cluster, "out": str(folder)}
    with files.errors_name(folder / FILE):
        args, over = (
            convert(list[str], words, name)
            for words, name in zip(said, ("args", "over"), strict=True)
        )
        return fill(Sweep, own, "a search"), args, over


def _publish(plan: Plan, trials: list[Trial], folder: Path) -> int:
    """Write the table, the pictures and the best settings."""
    ranked = report.best_first(trials)
    if not ranked or ranked[0].state != "finished":
        why = next((one.message for one in ranked if one.message), "none was trained to its end")
        raise ShoalError(f"no trial has finished: {why}")
    report.write_table(trials, folder)
    pictures = report.draw(trials, plan.space, folder)
    words = shlex.join(["shoal", "sweep", *plan.args, *(f"{OVER}={one}" for one in plan.over)])
    preset = report.write_preset(ranked[0], words, folder)
    print(report.markdown(trials), end="")
    print(
        f"best: {ranked[0].path}   table: {folder / report.TABLE}   pictures:"
        f" {', '.join(map(str, pictures)) or 'none'}"
    )
    ids = " ".join(word for word in plan.args[2:4])
    print(f"train with the best: shoal train {ids} --preset {preset}")
    return 0
