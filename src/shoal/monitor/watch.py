"""Films of a player's whole episodes, as the command line and notebooks make them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ShoalError
from ..render import video
from ..store import folder as runs
from ..store.player import Player
from . import film


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


def of_run(run: Path, best: bool) -> Path:
    """Path of a video, without suffix, among the videos of its run: named after the policy."""
    homes = (
        folder for folder in (run, run.parent, run.parent.parent) if (folder / runs.CONFIG).exists()
    )
    home = next(homes, Path(run.name))
    which = runs.BEST if best else "last" if home == run or run.name == runs.POLICY else run.name
    return home / film.FOLDER / which


def named(place: Path, options: Watching, others: Mapping[str, tuple[str, Any]]) -> Path:
    """File name of a video, which tells it from others of the same policy."""
    instead = [re.sub(r"\W+", "-", f"{team}-{name}") for team, (name, _) in others.items()]
    several = [f"{options.episodes}-episodes"] if options.episodes > 1 else []
    words = [word for word in ("sampled", "thoughts") if getattr(options, word)]
    name = "-".join([place.name, *instead, *words, *several, f"seed-{options.seed}"])
    return place.with_name(name + video.best_format())
