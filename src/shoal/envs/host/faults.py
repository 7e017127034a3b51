"""Faults of games on the host, and the error when there are too many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...errors import ShoalError


class Fault(NamedTuple):
    """A match that broke: where and how."""

    env: str
    game: int
    episode: int
    seed: int
    step: int  # of its episode
    report: str  # the traceback, or how the process was lost

    @property
    def where(self) -> str:
        return (
            f"{self.env}, game {self.game}, episode {self.episode}, seed {self.seed}, step"
            f" {self.step}"
        )

    def __str__(self) -> str:
        return f"{self.where}: {self.report}"


class TooManyFaults(ShoalError):
    """Raised when an environment broke more often than tolerated."""

    exit_code = 1
    reason = "too many faults"

    def __init__(self, sentence: str, last: Fault):
        super().__init__(f"{sentence} in {last.where}")
        self.detail = last.report


def refuse_too_many(faults: Sequence[Fault], tolerance: int, during: str) -> None:
    """Raise an error for more faults than tolerated, `during` a run or an evaluation."""
    if len(faults) > tolerance:
        raise TooManyFaults(
            f"the environment broke {len(faults)} times in {during}, more than its tolerance of"
            f" {tolerance}; the last time",
            faults[-1],
        )
