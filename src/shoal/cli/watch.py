"""`shoal watch`: a video of whole episodes, of a run's policy or of one that needs no training."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .. import algorithms, envs
from ..config.arguments import env_options, evaluation
from ..config.config import Config
from ..devices import setup
from ..errors import ShoalError
from ..monitor import film
from ..monitor.console import listed
from ..render import video
from ..store import folder as runs
from ..store.player import Player, load
from .words import Trusting

USE = "shoal watch <run> [options], or shoal watch random <env>"
TITLE = (
    "Play whole episodes and write a video of them: shoal watch runs/my-run --episodes 2 --out"
    " chase.gif, or, before"
    " any training, shoal watch random mpe/simple_tag. As in shoal evaluate, --team"
    " <team>=random or"
    " --team <team>=frozen:runs/other takes a team's place, and --trust plays an environment of"
    " somebody's own"
)


@dataclass(frozen=True)
class Watching:
    """What to film and where to."""

    episodes: int = 1
    """Episodes, one after the other."""
    seed: int = 0
    """Decides the games: shoal evaluate plays the same with the same seed and number of
    episodes."""
    sampled: bool = False
    """Sample actions instead of taking the most likely ones."""
    best: bool = False
    """The policy that was evaluated best instead of the last one."""
    out: str = ""
    """File to write, .mp4 or .gif; empty for one in the run's folder."""
    thoughts: bool = False
    """Show what agents think beneath the picture: the probability, or the utility, of each action,
    and the return they expect."""
    fps: int = 0
    """Pictures per second; 0 for 10, or more where an episode would take longer than 30 seconds."""

    def __post_init__(self) -> None:
        if not 1 <= self.episodes <= 100 or not 0 <= self.seed < 2**32 or not 0 <= self.fps <= 100:
            raise ShoalError(
                "episodes must be 1 to 100, fps 0 to 100, and seed between 0 and 2**32"
            )


def watch(player: Player, path: str | Path, options: Watching) -> list[film.Take]:
    """Film a player's episodes and return them."""
    path = Path(path)
    video.format_for(str(path))  # refuses a bad suffix before anything is played
    c = player.config
    player.complete()
    with contextlib.closing(
        film.camera(
            c.game,
            player.algorithms,
            options.episodes,
            not options.sampled,
            thoughts=options.thoughts,
        )
    ) as camera:
        takes = camera.shoot(player.learners, options.seed, player.clock)
        names = "+".join(dict.fromkeys(algorithm.name for algorithm in player.algorithms.values()))
        trained = f" after {player.steps:,} steps" if player.steps else ""
        fps = options.fps or film.pace(takes)
        title = f"{names} on {c.env}{trained}"
        kinds = {team: algorithm.prefers for team, algorithm in player.algorithms.items()}
        video.save(path, film.reel(takes, title, c.game, fps, kinds), fps)
    return takes


def command(args: list[str], trust: Trusting) -> int:
    """`shoal watch`."""
    words = []
    while args and not args[0].startswith("-") and len(words) < 2:
        words.append(args[0])
        args = args[1:]
    if not words and not {"-h", "--help"} & set(args):
        raise ShoalError(f"say what to watch: {USE}")
    if len(words) == 1 and words[0] in algorithms.ALGORITHMS and not Path(words[0]).exists():
        raise ShoalError(f"say which game {words[0]} shall play: {USE}")
    of_game, args = env_options(args) if len(words) == 2 else ({}, args)
    options, others = evaluation(Watching(), args, "shoal watch <run>", TITLE)
    if len(words) == 2:
        player = _untrained(words[0], words[1], of_game)
        place = Path(re.sub(r"\W+", "-", words[1]))
    else:
        run = Path(words[0])
        player = load(run, best=options.best, trust=trust.files.everything)
        if options.thoughts:
            player = player.with_critics(run)
        place = _place(run, options)
    player = player.against(others)
    path = (
        Path(options.out)
        if options.out
        else place.with_name(_named(place.name, options, others) + video.best_format())
    )
    takes = watch(player, path, options)
    for number, take in enumerate(takes, 1):
        print(
            f"episode {number}: {take.steps} steps, return of one agent: {listed(take.returns[-1])}"
        )
    print(f"wrote {path}")
    return 0


def _place(run: Path, options: Watching) -> Path:
    """Path of a video, without suffix, among the videos of its run: named after the policy."""
    homes = (
        folder for folder in (run, run.parent, run.parent.parent) if (folder / runs.CONFIG).exists()
    )
    home = next(homes, Path(run.name))
    which = (
        runs.BEST
        if options.best
        else "last"
        if home == run or run.name == runs.POLICY
        else run.name
    )
    return home / film.FOLDER / which


def _named(which: str, options: Watching, others: dict[str, tuple[str, dict]]) -> str:
    """A file name that tells this video from others of the same policy."""
    instead = [re.sub(r"\W+", "-", f"{team}-{name}") for team, (name, _) in others.items()]
    several = [f"{options.episodes}-episodes"] if options.episodes > 1 else []
    words = [word for word in ("sampled", "thoughts") if getattr(options, word)]
    return "-".join([which, *instead, *words, *several, f"seed-{options.seed}"])


def _untrained(name: str, env: str, options: dict) -> Player:
    """A player of an algorithm that needs no training, on any environment."""
    setup()
    name, own = algorithms.parse_algorithm(name)
    if algorithms.find(name).needs_training:
        raise ShoalError(
            f"{name} must be trained before it can be watched: shoal train {name} {env}, then {USE}"
        )
    sides = envs.make(env, **options).teams
    config = Config.build(env, {team: (name, own) for team in sides}, options, {}, specs=sides)
    rng = np.random.default_rng(0)
    return Player(
        config, {team: algorithm.init(rng) for team, algorithm in config.algorithms.items()}, 0
    )
