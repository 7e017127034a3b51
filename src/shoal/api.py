"""Train, resume and load from Python: the same runs as from the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import algorithms, envs, plugins
from .config.compose import Request, compose
from .config.trust import of_files, trusted
from .devices import setup
from .errors import ShoalError
from .monitor import notebook
from .monitor.callbacks import Callback
from .monitor.console import tell
from .monitor.watch import Watching, named, of_run, watch
from .options import convert
from .run.trainer import resume as resume_run
from .run.trainer import train as train_run
from .store import frames
from .store.player import load
from .store.summary import Result
from .sweep.seeds import is_group
from .sweep.seeds import resume as resume_group
from .sweep.seeds import train as train_group

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Run", "load", "resume", "train"]


class Run(Result):
    """The result of a run, with its logs as tables and its policy on film."""

    @classmethod
    def of(cls, result: Result) -> Run:
        return cls(**vars(result))

    def frame(self) -> DataFrame:
        """Metrics as a pandas frame: a row per log point; of several seeds with a column `seed`."""
        return frames.metrics(self.path)

    def episodes(self) -> DataFrame:
        """Evaluation episodes as a pandas frame: a row per episode and agent."""
        return frames.episodes(self.path)

    def watch(
        self, episodes: int = 1, seed: int = 0, greedy: bool = True, best: bool = False
    ) -> notebook.Film:
        """Film the policy; a notebook shows the film inline."""
        if is_group(self.path):
            raise ShoalError(f"{self.path} has several runs: film one, shoal watch <run>")
        player = load(self.path, best=best, trust=True)  # this process has trained it
        options = Watching(episodes, seed, sampled=not greedy, best=best)
        path = named(of_run(self.path, best), options, {})
        watch(player, path, options)
        return notebook.Film(path)


def train(
    *ids: Any,
    teams: dict[str, Any] | None = None,
    env: dict[str, Any] | None = None,
    preset: bool | str = True,
    quiet: bool = False,
    callbacks: Sequence[Callback | type[Callback]] = (),
    trust: bool = False,
    **options: Any,
) -> Run:
    """Train an algorithm on an environment, as `shoal train` does, and return the result:
    `train("mappo", "mpe/simple_spread", steps=2e6, env={"N": 5}, lr=1e-3)`, or by team
    `train("mpe/simple_tag", teams={"adversary": "coma", "agent": ("ppo", {"lr": 1e-3})})`.

    Options are the run's and the algorithm's. `seeds=5` or `seeds=[3, 7]` trains several runs,
    `from_run="runs/x"` starts from the weights of another. Pass an algorithm or torso of your own
    as its class, a game as an object or its class: `train(Mine, Chase(size=8), torso=Attention)`.
    With `trust`, folders that options name may run code of their own."""
    setup()
    if len(ids) not in ((1, 2) if teams else (2,)):
        raise ShoalError(
            "give an algorithm and an environment, or an environment and teams={team: algorithm}"
        )
    classes = [plugins.register(one) for one in _listed(callbacks) if isinstance(one, type)]
    options |= {"callbacks": ",".join(classes)} if classes else {}
    objects = [one for one in _listed(callbacks) if not isinstance(one, type)]
    env_id, env = _environment(ids[-1], env or {})
    algorithm = _algorithm(ids[0]) if len(ids) == 2 else ""
    sides = {team: _player(one) for team, one in (teams or {}).items()}
    with of_files(trusted(trust)):
        request = Request(env_id, algorithm, sides, _plain(options), env, preset)
        config, messages = compose(request)
    for sentence in () if quiet else messages:
        tell(sentence)
    if config.settings.grouped:
        if objects:
            raise ShoalError(
                "several seeds run in processes of their own, which cannot share callback objects:"
                " pass classes of callbacks, or train one seed at a time"
            )
        return Run.of(train_group(config, quiet))
    return Run.of(train_run(config, quiet, objects))


def resume(
    run: str | Path,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
    trust: bool = False,
    steps: float = 0,
    seeds: int | str | Sequence[int] = "",
) -> Run:
    """Resume an interrupted run, or a group of seeds, from its newest checkpoint.

    With `steps`, train it, finished or not, for that many steps in all; with `seeds`, add seeds to
    a group, up to a number or those listed. An environment or algorithm of your own needs
    `trust`."""
    setup()
    path = Path(run)
    total = convert(int, steps, "steps")
    with of_files(trusted(trust)):
        if is_group(path):
            return Run.of(resume_group(path, quiet, trusted(trust), total, _seeds(seeds)))
        if seeds:
            raise ShoalError(f"{run} is one run, and only a group has seeds: leave out seeds")
        return Run.of(resume_run(path, quiet, callbacks, trusted(trust), total))


def _seeds(seeds: int | str | Sequence[int]) -> str:
    """Seeds as the command line writes them: how many, or which."""
    return str(seeds) if isinstance(seeds, int | str) else ",".join(map(str, [*seeds, ""]))


def _listed(callbacks: Any) -> Sequence[Any]:
    """Callbacks as a list; `Hooks` refuses anything else."""
    return callbacks if isinstance(callbacks, list | tuple) else [callbacks]


def _algorithm(given: Any) -> str:
    """The name or import path of an algorithm, given as such or as a class."""
    return given if isinstance(given, str) else algorithms.id_of(given)


def _environment(given: Any, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The id and options of an environment, given as id, object, class or function that makes
    one."""
    if isinstance(given, str):
        return given, options
    if callable(given) and hasattr(given, "__qualname__"):
        return plugins.register(given), options
    if not dataclasses.is_dataclass(given) or isinstance(given, type):
        raise ShoalError(
            f"a {type(given).__name__} cannot be made again for several games: give the class or"
            " the function that makes it"
        )
    if envs.GAMES.get(getattr(given, "name", "")) is type(given):
        return given.name, dataclasses.asdict(given) | options  # type: ignore[attr-defined]
    return plugins.register(type(given)), dataclasses.asdict(given) | options


def _player(given: Any) -> tuple[str, dict[str, Any]]:
    """A team's algorithm and options, from `algorithm` or `(algorithm, options)`."""
    algorithm, options = given if isinstance(given, tuple | list) else (given, {})
    return _algorithm(algorithm), _plain(options)


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """The options with classes as import paths and a list of seeds as text."""
    plain = {
        name: plugins.register(value) if isinstance(value, type) else value
        for name, value in options.items()
    }
    if isinstance(plain.get("seeds"), list | tuple):
        plain["seeds"] = _seeds(plain["seeds"])
    return plain
