"""Plan a campaign: every algorithm on every environment with every seed, checked before the first
run begins."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from .. import algorithms, files
from ..envs.metrics import meant
from ..errors import ShoalError, did_you_mean
from .arguments import compose_arguments
from .settings import Settings
from .settings import numbers as numbers
from .trust import EVERYTHING, NOTHING, Trust

FILE = "campaign.json"
RUNS = "runs"  # subfolder that holds the runs
# settings that must be equal in runs that are compared
GRID = ("steps", "evaluations", "eval_episodes", "greedy")
OWN = {
    "--seed": "--seeds says which there are",
    "--name": "--out names its folder",
    "--out": "it has one for all runs",
    "--cluster": "it has one for all runs",
}
# the default: results must not depend on how many runs share the machine
ALONE = ["--devices", "1"]
SAVED = ("algorithm", "env", "args", "config", "seeds")  # saved fields of a pair


class Job(NamedTuple):
    """A run to train: its folder, its `shoal train` arguments without --out and --name, and the
    code it may run."""

    path: Path
    args: Sequence[str]
    trust: Trust = NOTHING
    steps: int = 0  # total steps, if they may differ from those in its folder
    cores: int = 1  # that it asks for, on a cluster


@dataclass(frozen=True)
class Pair:
    """An algorithm on an environment, by label, with the `shoal train` arguments for both."""

    algorithm: str
    env: str
    args: list[str]
    config: dict[str, Any]  # without seed, name and folder
    seeds: list[int]
    # which code its runs may use; never read from a file
    trust: Trust = field(default=NOTHING, compare=False)
    # names of the environment's own metrics; saved with its runs
    metrics: tuple[str, ...] = field(default=(), compare=False)

    @property
    def key(self) -> tuple[str, str]:
        return self.algorithm, self.env

    @property
    def grid(self) -> dict[str, Any]:
        return {name: self.config["settings"][name] for name in GRID}

    def path(self, folder: Path, seed: int) -> Path:
        """The run folder of a seed."""
        return folder / RUNS / "-".join([_slug(self.algorithm), _slug(self.env), str(seed)])


@dataclass(frozen=True)
class Plan:
    """All pairs, and the user's scales for normalised scores: `env` or `env team` -> scores of 0
    and 1."""

    pairs: list[Pair]
    scales: dict[str, list[float]] = field(default_factory=dict)

    def jobs(self, folder: Path) -> list[Job]:
        """Jobs in order of seeds, so that a stopped campaign has some runs of every pair."""
        everyone = sorted({seed for pair in self.pairs for seed in pair.seeds})
        return [
            Job(
                pair.path(folder, seed),
                [*pair.args, "--seed", str(seed)],
                pair.trust,
                cores=cores(pair.config),
            )
            for seed in everyone
            for pair in self.pairs
            if seed in pair.seeds
        ]

    def to_json(self) -> dict[str, Any]:
        pairs = [
            {name: value for name, value in vars(pair).items() if name in SAVED}
            for pair in self.pairs
        ]
        return {"pairs": pairs, "scales": self.scales}

    def differing(self, other: Plan) -> Plan:
        """The pairs that are other runs in the other plan."""
        theirs = {pair.key: pair for pair in other.pairs}
        return Plan([p for p in self.pairs if p.key in theirs and differ(p, theirs[p.key])])

    def without(self, other: Plan) -> Plan:
        """This plan without the other's pairs."""
        keys = {pair.key for pair in other.pairs}
        return Plan([pair for pair in self.pairs if pair.key not in keys], self.scales)

    def merged(
        self, before: Plan, folder: Path, otherwise: str = "take the options it was begun with"
    ) -> Plan:
        """Merge with the plan saved in the folder; refuse pairs that differ between the two.

        `otherwise` is what a user may do instead of choosing another folder."""
        pairs = {pair.key: pair for pair in before.pairs}
        for pair in self.pairs:
            old = pairs.get(pair.key)
            if old is not None and differ(old, pair):
                raise ShoalError(
                    f"{folder} has {pair.algorithm} on {pair.env} with"
                    f" {contrast(completed(old.config, pair.config), pair.config)}:"
                    f" choose another --out, or {otherwise}"
                )
            seeds = sorted({*(old.seeds if old else []), *pair.seeds})
            pairs[pair.key] = dataclasses.replace(pair, seeds=seeds)
        return Plan(list(pairs.values()), before.scales | self.scales)


def cores(config: dict[str, Any]) -> int:
    """Cores that a run asks for: one for each device or process of its games."""
    settings = config["settings"]
    return max(settings["devices"], settings.get("workers", 1), 1)


def made(
    algorithms: dict[str, list[str]],
    envs: dict[str, list[str]],
    seeds: list[int],
    options: list[str],
    words: Trust = EVERYTHING,
    files: Trust = NOTHING,
) -> Plan:
    """Plan every algorithm on every environment, by label; compose each pair as `shoal train` does.

    `words` and `files` as in `compose_arguments`."""
    pairs = []
    for env, env_words in envs.items():
        for algorithm, own_words in algorithms.items():
            args = [*ALONE, *own_words, *env_words, *options]
            _refuse_own(args)
            try:
                config, _ = compose_arguments([*args, "--seed", str(seeds[0])], words, files)
            except ShoalError as error:
                means = "" if shlex.join(own_words) == algorithm else f" ({shlex.join(own_words)})"
                raise ShoalError(f"{algorithm}{means} on {env}: {error}") from None
            saved = config.to_json()
            own = words.only(saved)
            pairs.append(Pair(algorithm, env, args, plain(saved), seeds, own, config.metrics))
    return Plan(pairs)


def checked(plan: Plan, metric: str = "") -> Plan:
    """Check a plan: refuse runs that cannot be compared (by `metric`, if given), or that would
    share a folder."""
    for pair in plan.pairs:
        if metric and not meant(metric, pair.metrics):
            raise ShoalError(
                f"{pair.env} has no metric {metric!r}{did_you_mean(metric, pair.metrics)}: it has"
                f" {', '.join(pair.metrics) or 'none'}"
            )
    for env in dict.fromkeys(pair.env for pair in plan.pairs):
        _same_grid(env, [(pair.algorithm, pair.grid) for pair in plan.pairs if pair.env == env])
    tasks = list(dict.fromkeys(name for pair in plan.pairs for name in _scaled(pair)))
    for name in plan.scales:
        if name not in tasks:
            raise ShoalError(
                f"[scales] has {name!r}{did_you_mean(name, tasks)}: there are {', '.join(tasks)}"
            )
    paths = [str(job.path) for job in plan.jobs(Path())]
    if len(set(paths)) < len(paths):
        raise ShoalError(
            "two algorithms or environments of the campaign have names that are too alike:"
            " rename one"
        )
    return plan


def _scaled(pair: Pair) -> list[str]:
    """Names for a pair's environment and its teams that `scales` may use."""
    return [pair.env, *(f"{pair.env} {team}" for team in pair.config["teams"])]


def _same_grid(env: str, grids: list[tuple[str, dict[str, Any]]]) -> None:
    """Refuse runs on one environment that differ in evaluation steps, episodes or greediness."""
    first, asked = grids[0]
    for other, grid in grids[1:]:
        for name, value in grid.items():
            if value != asked[name]:
                flag = f"--{name.replace('_', '-')}"
                raise ShoalError(
                    f"runs on {env} cannot be compared, as {name} is {formatted(asked[name])} for"
                    f" {first} and {formatted(value)} for {other}: give all of them the same {flag}"
                )


def plain(config: dict[str, Any]) -> dict[str, Any]:
    """A saved config without the values that differ between the runs of a pair."""
    settings = {
        name: value
        for name, value in config["settings"].items()
        if name not in ("seed", "out", "name")
    }
    return {name: config[name] for name in ("env", "options", "teams")} | {"settings": settings}


def differ(old: Pair, new: Pair) -> bool:
    """Whether two pairs of one name are different runs."""
    return completed(old.config, new.config) != new.config


def completed(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """A saved config with the options that a newer Shoal has, at their defaults."""
    settings = {
        name: value
        for name, value in dataclasses.asdict(Settings()).items()
        if name in new["settings"]
    }
    teams = {}
    for team, one in old["teams"].items():
        algorithm = one["algorithm"]
        same = algorithm == new["teams"].get(team, {}).get("algorithm")
        # one that differs may be somebody's code, which is not imported here
        usual = dataclasses.asdict(algorithms.find(algorithm).Config()) if same else {}
        teams[team] = one | {"options": usual | one["options"]}
    return old | {"settings": settings | old["settings"], "teams": teams}


def contrast(one: Any, other: Any, name: str = "") -> str:
    """Describe the first difference between two configs."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            if one.get(key) != other.get(key):
                return contrast(one.get(key), other.get(key), key)
    return f"{name} {formatted(one)}, not {formatted(other)}"


def load(folder: Path, trust: Trust = NOTHING, again: Collection[tuple[str, str]] = ()) -> Plan:
    """Read the plan in a campaign's folder; refuse runs that are not trusted.

    Pairs in `again` need no trust, as the user named them in this command."""
    plan = read(folder)
    pairs = []
    for pair in plan.pairs:
        if pair.key not in again:
            _refuse_own(pair.args)
            with files.errors_name(folder / FILE):
                config, _ = compose_arguments(pair.args, trust, trust)
            own = trust.only(config.to_json())
            pair = dataclasses.replace(pair, trust=own, metrics=config.metrics)
        pairs.append(pair)
    return dataclasses.replace(plan, pairs=pairs)


def read(folder: Path) -> Plan:
    """Read a plan without importing anything it names."""
    content = files.read_json(folder / FILE, "a campaign's folder")
    try:
        plan = Plan(
            [Pair(**{name: pair[name] for name in SAVED}) for pair in content["pairs"]],
            content["scales"],
        )
        if all(_sound(pair) for pair in plan.pairs):
            return plan
    except (TypeError, KeyError):
        pass
    raise ShoalError(
        f"{folder / FILE} was not written by this version of shoal: choose another --out"
    ) from None


def _sound(pair: Pair) -> bool:
    """Whether the values of a pair read from a file have the right types; seeds name folders."""
    names = [pair.algorithm, pair.env, *pair.args]
    return (
        all(isinstance(name, str) for name in names)
        and all(type(seed) is int and 0 <= seed < 2**32 for seed in pair.seeds)
        and isinstance(pair.config["teams"], dict)
        and all(name in pair.config["settings"] for name in (*GRID, "devices"))
    )


def save(plan: Plan, folder: Path) -> None:
    try:
        (folder / RUNS).mkdir(parents=True, exist_ok=True)
        files.write_json(folder / FILE, plan.to_json())
    except OSError as error:
        raise ShoalError(
            f"{folder} cannot be written to ({error.strerror}): choose another --out"
        ) from None


def _refuse_own(args: list[str]) -> None:
    for word in args:
        flag = word.partition("=")[0]
        if flag in OWN:
            raise ShoalError(f"a run of a campaign takes no {flag}: {OWN[flag]}")


def _slug(label: str) -> str:
    return re.sub(r"[^\w.+=-]+", "_", label.replace("/", "__").replace(":", "__")).strip("_.")


def formatted(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
