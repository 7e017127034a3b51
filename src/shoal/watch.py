"""`shoal watch`: whole episodes of a run's policy, or of one that needs no training, as a video."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import algorithms, envs, film, runs
from .assemble import env_options, evaluation
from .config import Config
from .devices import setup
from .display import named
from .player import Player, load
from .render import video
from .types import ShoalError

USE = "shoal watch <run> [options], or shoal watch random <env>"
TITLE = (
    "Play whole episodes and write a video of them: shoal watch runs/my-run --episodes 2 --out chase.gif, or, before"
    " any training, shoal watch random mpe/simple_tag. As in shoal evaluate, --team <team>=random or"
    " --team <team>=frozen:runs/other takes a team's place"
)


@dataclass(frozen=True)
class Watching:
    """What to film and where to."""

    episodes: int = 1
    """Episodes, one after the other."""
    seed: int = 0
    """Decides the games: shoal evaluate plays the same with the same seed and number of episodes."""
    sampled: bool = False
    """Sample actions instead of taking the most likely ones."""
    best: bool = False
    """The policy that was evaluated best instead of the last one."""
    out: str = ""
    """File to write, .mp4 or .gif; empty for one in the run's folder."""
    fps: int = 0
    """Pictures per second; 0 for 10, or more where an episode would take longer than 30 seconds."""

    def __post_init__(self) -> None:
        if not 1 <= self.episodes <= 100 or not 0 <= self.seed < 2**32 or not 0 <= self.fps <= 100:
            raise ShoalError("episodes must be 1 to 100, fps 0 to 100, and seed between 0 and 2**32")


def watch(player: Player, path: Path, how: Watching) -> list[film.Take]:
    """Film that player; what was played."""
    video.format_for(str(path))  # before anything is played
    c = player.config
    with contextlib.closing(film.camera(c.game, player.algorithms, how.episodes, not how.sampled)) as camera:
        takes = camera.shoot(player.learners, how.seed, player.clock)
        names = "+".join(dict.fromkeys(algorithm.name for algorithm in player.algorithms.values()))
        trained = f" after {player.steps:,} steps" if player.steps else ""
        fps = how.fps or film.pace(takes)
        video.save(path, film.reel(takes, f"{names} on {c.env}{trained}", c.game, fps), fps)
    return takes


def command(args: list[str]) -> int:
    """`shoal watch …`"""
    words = []
    while args and not args[0].startswith("-") and len(words) < 2:
        words.append(args[0])
        args = args[1:]
    if not words and not {"-h", "--help"} & set(args):
        raise ShoalError(f"say what to watch: {USE}")
    options, args = env_options(args) if len(words) == 2 else ({}, args)
    how, others = evaluation(Watching(), args, "shoal watch <run>", TITLE)
    if len(words) == 2:
        player, path = _untrained(words[0], words[1], options), Path(re.sub(r"\W+", "-", words[1]))
    else:
        run = Path(words[0])
        player = load(run, best=how.best)
        home = (
            run if (run / runs.CONFIG).exists() else Path(run.name)
        )  # a policy's or checkpoint's folder stays as it is
        path = home / film.FOLDER / f"{'best' if how.best else 'last'}-seed-{how.seed}"
    player = player.against(others)
    path = Path(how.out) if how.out else path.with_name(path.name + video.best_format())
    takes = watch(player, path, how)
    for number, take in enumerate(takes, 1):
        print(f"episode {number}: {take.steps} steps, return of one agent: {named(take.returns[-1])}")
    print(f"wrote {path}")
    return 0


def _untrained(name: str, env: str, options: dict) -> Player:
    """One who needs no training, on any environment."""
    setup()
    kind, own = algorithms.chosen(name)
    if kind not in algorithms.FIXED:
        raise ShoalError(f"{kind.name} must be trained before it can be watched: shoal train {name} {env}, then {USE}")
    config = Config.build(env, {team: (kind.name, own) for team in envs.make(env, **options).teams}, options, {})
    rng = np.random.default_rng(0)
    return Player(config, {team: algorithm.init(rng) for team, algorithm in config.algorithms.items()}, 0)
