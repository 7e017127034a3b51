"""`shoal watch`: a video of whole episodes, of a run's policy or of one that needs no training."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from .. import algorithms, envs
from ..config.arguments import env_options, evaluation
from ..config.config import Config
from ..devices import setup
from ..errors import ShoalError
from ..monitor.console import listed
from ..monitor.watch import Watching, named, of_run, watch
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
        place = of_run(run, options.best)
    player = player.against(others)
    path = Path(options.out) if options.out else named(place, options, others)
    takes = watch(player, path, options)
    for number, take in enumerate(takes, 1):
        print(
            f"episode {number}: {take.steps} steps, return of one agent: {listed(take.returns[-1])}"
        )
    print(f"wrote {path}")
    return 0


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
