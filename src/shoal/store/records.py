"""Keys of a run's JSON files, typed.

Nothing here reads a file; values are checked where they are used.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from ..types import TeamProtocol


class EvaluationProtocol(TypedDict):
    """How scores were evaluated."""

    actions: str  # `greedy` or `sampled`
    episodes: int
    exploration: str


class RunProtocol(TypedDict):
    """Facts beside the config that a reader of the scores needs; part of `config.json`."""

    versions: dict[str, str]  # by package
    device: str
    devices: int
    teams: dict[str, TeamProtocol]
    evaluation: EvaluationProtocol
    score: str  # definition of a score


class BestAbout(TypedDict):
    """The evaluation in which the policy was best."""

    team: str
    steps: int
    score: float


class CheckpointAbout(TypedDict):
    """`checkpoint.json`: what a run needs, beside its state, to go on."""

    steps: int
    seconds: float  # of training so far
    logs: dict[str, int]  # size of each log, in bytes, at this checkpoint
    best: BestAbout | None
    config: dict[str, Any]
    protocol: RunProtocol
    format: NotRequired[int]
    sha256: NotRequired[str]  # of this JSON and of the arrays


class PolicyAbout(TypedDict):
    """`policy.json`: what the weights beside it are."""

    steps: int  # steps of training
    config: dict[str, Any]
    format: NotRequired[int]  # since 0.2.0
    sha256: str  # of the weights
    team: NotRequired[str]  # with `score`: why it is the best policy
    score: NotRequired[float]
    agents: NotRequired[list[str]]  # agents saved, if not all


class Ending(TypedDict):
    """How a run ended, for any reason."""

    format: NotRequired[int]  # since 0.2.0, like `reason`
    path: str
    reason: str
    stopped: int  # number of the signal that ended it early, or 0
    steps: int
    seconds: float  # of training


class Summary(Ending):
    """`summary.json` of a run that ended normally; scores are mean returns per agent, by team."""

    scores: dict[str, float]
    before: dict[str, float]
    random: dict[str, float]
    best: BestAbout | None
    steps_per_second: float
    metrics: NotRequired[dict[str, float]]  # the environment's own, at the end
    random_metrics: NotRequired[dict[str, float]]  # likewise, of random play
    final: NotRequired[dict[str, float]]  # scores of the `final_episodes`, and the metrics
    final_metrics: NotRequired[dict[str, float]]
    from_run: NotRequired[str]  # run whose weights it started from


class Failure(Ending):
    """`summary.json` of a run that failed."""

    message: str  # what went wrong
