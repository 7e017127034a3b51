"""Observations of the game that a policy was trained on, to check what is exported."""

from __future__ import annotations

import contextlib
from itertools import islice
from typing import Any

import jax
import numpy as np

from ..algorithms.base import Algorithm
from ..config.config import Config
from ..engine.evaluate import Evaluator
from ..engine.host_evaluate import HostEvaluator
from ..envs.host.arena import Alone, Arena
from ..envs.host.match import Hosted
from ..envs.host.watched import Halted
from ..types import Clock, View
from .check import GAMES

INSTANTS = 30  # at most so many
Stream = list[dict[str, View]]


def recorded(
    config: Config, algorithms: dict[str, Algorithm], learners: dict[str, Any], clock: Clock
) -> dict[str, list[View]]:
    """The first instants of some games, by team, played by these policies."""
    game = config.game
    if isinstance(game, Hosted):
        stream = _hosted(config, game, algorithms, learners, clock)
    else:
        player = Evaluator(game, algorithms, GAMES, greedy=True)
        instants = islice(player.instants(learners, 0, clock), INSTANTS)
        stream = [tally.play.views for tally, _ in instants]
    return {team: [views[team] for views in stream] for team in algorithms}


def _hosted(
    config: Config, game: Hosted, algorithms: dict[str, Algorithm], learners: Any, clock: Clock
) -> Stream:
    alone = Alone() if config.settings.alone else None
    player = _Recorder(game, algorithms, GAMES, True, config.workers, config.settings, alone)
    with contextlib.closing(player), contextlib.suppress(Halted):
        player(learners, 0, clock, lambda: len(player.stream) >= INSTANTS)
    return player.stream


class _Recorder(HostEvaluator):
    """Keeps what the teams of a game on the host see."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.stream: Stream = []

    def _look(
        self, arena: Arena, row: np.ndarray, going: np.ndarray, rows: dict[str, np.ndarray]
    ) -> None:
        self.stream.append(jax.tree.map(np.array, arena.views()))
