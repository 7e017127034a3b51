"""Runs on this machine: each in a child process on its own cores."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field

from ..config.campaign import Job
from ..devices import shares, usable
from .runner import Runner


def core_slots(at_once: int, jobs: int) -> list[list[int]]:
    """Cores of each slot in which a job can run; together they are all that this process may
    use."""
    return shares(max(min(at_once or len(usable()), jobs), 1))


@dataclass
class Processes:
    """Engine that runs jobs in child processes, one per slot of cores."""

    slots: list[list[int]]  # cores of each
    taken: dict[int, Runner] = field(default_factory=dict)

    def free(self, job: Job) -> bool:
        """Whether a slot is free."""
        return len(self.taken) < len(self.slots)

    def start(self, job: Job) -> Runner:
        """Start a job in a free slot."""
        slot = next(slot for slot in range(len(self.slots)) if slot not in self.taken)
        runner = Runner(job, self.slots[slot], _variables())
        runner.start()
        self.taken[slot] = runner
        return runner

    def ended(self, run: Runner) -> None:
        """Free the slot of a run."""
        self.taken = {slot: runner for slot, runner in self.taken.items() if runner is not run}

    def close(self) -> None:
        """Kill what still runs: only after an error in this process."""
        for runner in self.taken.values():
            runner.close()


def _variables() -> dict[str, str]:
    """Environment variables of a child; without NPROC, as each run sets its own number of XLA
    threads."""
    inherited = {name: value for name, value in os.environ.items() if name != "NPROC"}
    return (
        {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        | inherited
        | {"PYTHONPATH": os.pathsep.join(sys.path)}
    )
