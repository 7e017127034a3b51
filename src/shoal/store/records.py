"""What the JSON files of a run say, key by key.

Nothing here reads a file: what was read is checked where it is used.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from ..types import TeamProtocol


class EvaluationProtocol(TypedDict):
    """How scores were evaluated."""

    actions: str  # greedy or sampled
    episodes: int
    exploration: str


class RunProtocol(TypedDict):
    """What a reader of the scores must know beside the config; in `config.json`."""

    versions: dict[str, str]  # by package
    device: str
    devices: int
    teams: dict[str, TeamProtocol]
    evaluation: EvaluationProtocol
    score: str  # what is called a score


class BestAbout(TypedDict):
    """The evaluation that a team did best in."""

    team: str
    steps: int
    score: float


class CheckpointAbout(TypedDict):
    """`checkpoint.json`: what a run needs beside its state to go on."""

    steps: int
    seconds: float  # of training so far
    logs: dict[str, int]  # bytes of each log that are of this checkpoint or before
    best: BestAbout | None
    config: dict[str, Any]
    protocol: RunProtocol
    format: NotRequired[int]
    sha256: NotRequired[str]  # of all this and of the arrays


class PolicyAbout(TypedDict):
    """`policy.json`: whose weights lie beside it."""

    steps: int  # they were trained for
    config: dict[str, Any]
    format: NotRequired[int]  # since 0.2.0
    sha256: str  # of the weights
    team: NotRequired[str]  # of the best policy, with its score
    score: NotRequired[float]
    agents: NotRequired[list[str]]  # where it is of some agents alone


class Ending(TypedDict):
    """How a run ended, whatever ended it."""

    format: NotRequired[int]  # since 0.2.0, as `reason`
    path: str
    reason: str
    stopped: int  # the number of the signal that ended it early, or 0
    steps: int
    seconds: float  # of training


class Summary(Ending):
    """`summary.json` of a run that ended as it should; scores are mean returns of one agent, by
    team."""

    scores: dict[str, float]
    before: dict[str, float]
    random: dict[str, float]
    best: BestAbout | None
    steps_per_second: float
    metrics: NotRequired[dict[str, float]]  # the environment's own, at the end
    random_metrics: NotRequired[dict[str, float]]  # the same of random play
    from_run: NotRequired[str]  # whose weights it started from


class Failure(Ending):
    """`summary.json` of a run that did not."""

    message: str  # what went wrong
