"""Checks an environment in a watched process, whose crashes, hangs and leftovers are findings too.

The process reports every call before it makes it, and finally what the check found (`check.py`).
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from ..errors import ShoalError
from .check import RULES, Finding, Report, check, rule_name
from .host.match import Broken, Hosted, Match, MatchStep, from_json, to_json, why_unequal
from .host.watched import PARTING, Lost, Watched, creation_patience, how_lost, probe

ERRORS = rule_name(RULES[0])
TIME = "Every call returns in time."
PROCESS = "It leaves the process alone."
CHILDREN = "It leaves no child processes behind."
THREADS = "It leaves no threads behind."
SAME = "It is the same in every process."
CONSTRUCTOR = "its constructor"
PROCESS_RULES = (TIME, PROCESS, CHILDREN, THREADS, SAME)


@dataclass
class Progress:
    """Progress of a check, from the reports of its process."""

    call: str = CONSTRUCTOR  # the call under way
    step: int = 0
    threads: tuple[str, ...] = ()  # threads still running after everything is closed
    ended: bool = False  # whether the last report has arrived
    report: Report | None = None
    broken: dict[str, list[Finding]] = field(default_factory=dict)  # broken rules about the process

    def hear(self, said: dict[str, Any]) -> None:
        """Record what the process reports."""
        if "call" in said:
            self.call = said["call"]
            self.step = said["step"]
        if "raised" in said:
            self.add(ERRORS, said["raised"])
        if "findings" in said:
            rules = {
                rule: [Finding(*one) for one in found] for rule, found in said["findings"].items()
            }
            self.report = Report(from_json(said["teams"]), said["steps"], said["episodes"], rules)
        if "left" in said:
            self.add(CHILDREN, f"it leaves child processes: {', '.join(said['left'])}")
        if "threads" in said:
            self.threads = tuple(said["threads"])
            self.ended = True

    def lose(self, lost: Lost) -> None:
        """Record that the process was lost, and in which call."""
        if not self.ended:
            self.add(TIME if lost.seconds else PROCESS, how_lost(lost, self.call))
        elif lost.seconds and self.threads:
            self.add(THREADS, f"it leaves a thread that does not end: {', '.join(self.threads)}")
        elif lost.seconds and CHILDREN not in self.broken:
            self.add(PROCESS, "it does not let its process end")

    def add(self, rule: str, what: str) -> None:
        self.broken.setdefault(rule, []).append(Finding("", self.step, what))


def check_env(env: Any, steps: int = 1000, seed: int = 0, patience: float = 60.0) -> Report:
    """Run `check.check`, in a watched process if the environment runs on the host."""
    if not isinstance(env, Hosted):
        return check(env, steps, seed)
    progress = Progress()
    about = {"task": "check", "env": env.name, "options": env.options, "steps": steps, "seed": seed}
    with Watched(about) as process:
        try:
            process.ready()
            while True:
                progress.hear(process.answer(lambda: _patience(progress, patience)))
        except Lost as lost:
            progress.lose(lost)
    if progress.report and not progress.broken:
        difference = why_unequal(
            progress.report.teams, probe(env.name, env.options, patience).teams
        )
        if difference:
            progress.add(SAME, difference)
    return _reported(progress)


def _patience(progress: Progress, patience: float) -> float:
    """Seconds to wait for the next report: of a call, of a constructor, or of the end."""
    if progress.ended:
        return PARTING
    return creation_patience(patience) if progress.call == CONSTRUCTOR else patience


def _reported(progress: Progress) -> Report:
    """The report, with the rules about the process added."""
    unseen = Report({}, 0, 0, {rule_name(rule): [] for rule in RULES})
    report = progress.report or unseen
    rules = report.findings | {rule: [] for rule in PROCESS_RULES}
    for rule, findings in progress.broken.items():
        rules[rule] = rules[rule] + findings
    return report._replace(findings=rules)


# -- in that process -------------------------------------------------------------------------------


def narrate(about: dict[str, Any], say: Callable[[Any], None]) -> None:
    """Check an environment, and report every call before it is made."""
    env = Narrated(about["env"], about["options"], say=say)
    try:
        report = check(env, about["steps"], about["seed"])
    except ShoalError as error:
        if isinstance(error.__cause__, SystemExit):
            _leave(error.__cause__)
        if not error.detail and not isinstance(error.__cause__, Broken):
            raise  # the environment does not exist, so nothing was checked
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
    """Reports every call before it is made."""

    say: Callable[[Any], None] = field(default=print, compare=False)

    def open(self) -> Match:
        self.say({"call": CONSTRUCTOR, "step": 0})
        return Narration(super().open(), self.say)


class Narration:
    """A match that reports every call before it is made."""

    def __init__(self, match: Match, say: Callable[[Any], None]):
        self.match = match
        self.say = say
        self.taken = 0
        self.teams = match.teams
        self.metrics = getattr(match, "metrics", ())

    def reset(self, seed: int) -> MatchStep:
        return self._call("reset", seed)

    def step(self, actions: dict[str, np.ndarray]) -> MatchStep:
        return self._call("step", actions)

    def episode_metrics(self) -> Any:
        return self._call("episode_metrics")

    def render(self) -> np.ndarray:
        return self._call("render")

    def close(self) -> None:
        self._call("close")

    def _call(self, method: str, *args: Any) -> Any:
        self.say({"call": method, "step": self.taken})
        self.taken += 1
        try:
            return getattr(self.match, method)(*args)
        except SystemExit as error:  # end here: other calls would be reported on the way out
            _leave(error)


def _leave(error: SystemExit) -> NoReturn:
    """End the process as the environment asked."""
    os._exit(error.code if isinstance(error.code, int) else bool(error.code))
