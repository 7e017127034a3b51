"""The evaluations of a run: its policies before, during and after training, and random play."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from .. import algorithms
from ..clusters import LOCAL
from ..config.config import Config
from ..devices import usable
from ..engine.episodes import Episodes
from ..engine.evaluate import evaluator
from ..envs.host.arena import Alone
from ..envs.host.faults import Fault
from ..envs.host.watched import never


class Evaluations:
    """Plays whole episodes on games of their own; those of one run all have the same seed."""

    def __init__(self, config: Config, alone: Alone | None, say: Callable[[str], None]):
        self.config = config
        self.alone = alone
        self.say = say
        self.evaluator = self._evaluator(config.algorithms, config.settings.greedy)

    @property
    def faults(self) -> list[Fault]:
        """All faults of games on the host so far."""
        return self.evaluator.faults

    def policies(
        self, learners: dict[str, Any], steps: int, halted: Callable[[], bool] = never
    ) -> Episodes:
        """Play the policies that the run has after `steps` steps."""
        c = self.config
        return self.evaluator(learners, c.settings.seed, c.clock(steps), halted)

    def final(
        self, learners: dict[str, Any], steps: int, halted: Callable[[], bool] = never
    ) -> Episodes:
        """Play the `final_episodes`, greedily, on the games of `shoal evaluate <run>`."""
        c = self.config
        with contextlib.closing(
            self._evaluator(c.algorithms, True, c.settings.final_episodes)
        ) as evaluate:
            return evaluate(learners, 0, c.clock(steps), halted)

    def random(self, halted: Callable[[], bool] = never) -> Episodes:
        """Let every team play at random."""
        c = self.config
        players = {team: algorithms.random_policy(spec) for team, spec in c.sides.items()}
        with contextlib.closing(self._evaluator(players, False)) as evaluate:
            return evaluate(dict.fromkeys(players, ()), c.settings.seed, c.clock(0), halted)

    def close(self) -> None:
        """End the games."""
        self.evaluator.close()

    def _evaluator(self, players: dict[str, Any], greedy: bool, episodes: int = 0) -> Any:
        """The evaluator of `episodes`, or of as many as an evaluation has."""
        c = self.config
        s = c.settings
        episodes = episodes or s.eval_episodes
        workers = c.workers if s.cluster == LOCAL else min(c.workers, len(usable()))
        return evaluator(c.game, players, episodes, greedy, workers, s, self.alone, self.say)
