"""`shoal check-env` of an environment on the host: in a watched process, and what is done to that
process counts.

The process says before every call which one it is, and then what the check found (`check.py`).
"""

from __future__ import annotations

import multiprocessing
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import ShoalError
from .check import RULES, Finding, Report, check, named
from .host.match import Broken, Hosted, Match, MatchStep, from_json, to_json, unlike
from .host.watched import PARTING, Lost, Watched, making, probe, verdict

ERRORS = named(RULES[0])
TIME = "Every call returns in time."
PROCESS = "It leaves the process alone."
CHILDREN = "It leaves no child processes behind."
THREADS = "It leaves no threads behind."
SAME = "It is the same in every process."
MAKING = "its constructor"
PROCESS_RULES = (TIME, PROCESS, CHILDREN, THREADS, SAME)


@dataclass
class Course:
    """How a check goes, as its process tells."""

    call: str = MAKING  # that it makes just now
    step: int = 0
    threads: tuple[str, ...] = ()  # that it has when all is closed
    ended: bool = False  # nothing more is to come
    report: Report | None = None
    broken: dict[str, list[Finding]] = field(default_factory=dict)  # rules about the process

    def hear(self, said: dict[str, Any]) -> None:
        """Take in what it says."""
        if "call" in said:
            self.call = said["call"]
            self.step = said["step"]
        if "raised" in said:
            self.blame(ERRORS, said["raised"])
        if "findings" in said:
            rules = {
                rule: [Finding(*one) for one in found] for rule, found in said["findings"].items()
            }
            self.report = Report(from_json(said["teams"]), said["steps"], said["episodes"], rules)
        if "left" in said:
            self.blame(CHILDREN, f"it leaves child processes: {', '.join(said['left'])}")
        if "threads" in said:
            self.threads = tuple(said["threads"])
            self.ended = True

    def mourn(self, lost: Lost) -> None:
        """It says nothing more."""
        if not self.ended:
            self.blame(TIME if lost.seconds else PROCESS, verdict(lost, self.call))
        elif lost.seconds and self.threads:
            self.blame(THREADS, f"it leaves a thread that does not end: {', '.join(self.threads)}")
        elif lost.seconds and CHILDREN not in self.broken:
            self.blame(PROCESS, "it does not let its process end")

    def blame(self, rule: str, what: str) -> None:
        self.broken.setdefault(rule, []).append(Finding("", self.step, what))


def check_env(env: Any, steps: int = 1000, seed: int = 0, patience: float = 60.0) -> Report:
    """`check.check`, in a process of its own where the environment is somebody's Python."""
    if not isinstance(env, Hosted):
        return check(env, steps, seed)
    course = Course()
    about = {"task": "check", "env": env.name, "options": env.options, "steps": steps, "seed": seed}
    with Watched(about) as process:
        try:
            process.ready()
            while True:
                course.hear(process.answer(lambda: _patience(course, patience)))
        except Lost as lost:
            course.mourn(lost)
    if course.report and not course.broken:
        told = unlike(course.report.teams, probe(env.name, env.options, patience).teams)
        if told:
            course.blame(SAME, told)
    return _reported(course)


def _patience(course: Course, patience: float) -> float:
    """Seconds it may be silent: in a call, while an environment is made, or while it ends."""
    if course.ended:
        return PARTING
    return making(patience) if course.call == MAKING else patience


def _reported(course: Course) -> Report:
    """The report with the rules about the process; where there is none, those alone are known."""
    unseen = Report({}, 0, 0, {named(rule): [] for rule in RULES})
    report = course.report or unseen
    rules = report.findings | {rule: [] for rule in PROCESS_RULES}
    for rule, findings in course.broken.items():
        rules[rule] = rules[rule] + findings
    return report._replace(findings=rules)


# -- in that process -------------------------------------------------------------------------------


def narrate(about: dict[str, Any], say: Callable[[Any], None]) -> None:
    """Check an environment, and say how it goes."""
    env = Narrated(about["env"], about["options"], say=say)
    try:
        report = check(env, about["steps"], about["seed"])
    except ShoalError as error:
        if not error.detail and not isinstance(error.__cause__, Broken):
            raise  # there is no such environment: nothing of it was checked
        say({"raised": "\n".join(filter(None, [str(error), error.detail]))})
    except Exception:
        say({"raised": traceback.format_exc(limit=-6)})
    else:
        about = {"teams": to_json(report.teams), "steps": report.steps, "episodes": report.episodes}
        say(about | {"findings": report.findings})
    children = [f"{child.name} ({child.pid})" for child in multiprocessing.active_children()]
    if children:
        say({"left": children})
    own = (
        thread
        for thread in threading.enumerate()
        if thread is not threading.main_thread() and not thread.daemon
    )
    say({"threads": [thread.name for thread in own]})


@dataclass(frozen=True)
class Narrated(Hosted):
    """Says before every call which one it is."""

    say: Callable[[Any], None] = field(default=print, compare=False)

    def open(self) -> Match:
        self.say({"call": MAKING, "step": 0})
        return Narration(super().open(), self.say)


class Narration:
    """A match that does so."""

    def __init__(self, match: Match, say: Callable[[Any], None]):
        self.match = match
        self.say = say
        self.taken = 0
        self.teams = match.teams
        self.metrics = getattr(match, "metrics", ())

    def reset(self, seed: int) -> MatchStep:
        self._tell("reset")
        return self.match.reset(seed)

    def step(self, actions: dict[str, np.ndarray]) -> MatchStep:
        self._tell("step")
        return self.match.step(actions)

    def episode_metrics(self) -> Any:
        self._tell("episode_metrics")
        return self.match.episode_metrics()  # type: ignore[attr-defined]

    def render(self) -> np.ndarray:
        self._tell("render")
        return self.match.render()

    def close(self) -> None:
        self._tell("close")
        self.match.close()

    def _tell(self, call: str) -> None:
        self.say({"call": call, "step": self.taken})
        self.taken += 1
