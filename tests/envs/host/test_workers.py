"""Any `Worker` plays an arena's games alike: here, in processes, or where no memory is shared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from shoal.envs import make
from shoal.envs.host.arena import Arena
from shoal.envs.host.parts import HALVES
from shoal.envs.host.shared import reserve, room, shared
from shoal.envs.host.workers import Assignment, LocalWorker, ProcessWorker, Worker

RESULTS = ("state", "first", "over", "broken", "episode", "taken", "obs", "alive", "reward")


class FarWorker:
    """Plays with arrays of its own, as on another machine: actions go there, results come back."""

    def __init__(self, assignment: Assignment):
        a = assignment
        self.near = a
        self.memory = reserve(room(a.env.teams, a.total, a.env.metrics))
        arrays = shared(self.memory, a.env.teams, a.total, a.env.metrics)
        self.far = replace(a, arrays=arrays, memory=self.memory)
        self.worker: Worker = LocalWorker(self.far)
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def go(self, part: int) -> None:
        self._send(self.near, self.far, part, lambda name: name.endswith("/action"))
        self.worker.go(part)

    def wait(self, part: int) -> list:
        faults = self.worker.wait(part)
        self._send(self.far, self.near, part, lambda name: name.rpartition("/")[2] in RESULTS)
        return faults

    def render(self) -> list:
        return self.worker.render()

    def dismiss(self) -> None:
        self.calls.append("dismiss")

    def close(self) -> None:
        self.calls.append("close")
        self.worker.close()

    def _send(
        self, here: Assignment, there: Assignment, part: int, sent: Callable[[str], bool]
    ) -> None:
        for name in filter(sent, here.arrays):
            rows = here.arrays[name][here.rows(part)]
            received = np.frombuffer(rows.tobytes(), rows.dtype).reshape(rows.shape)
            there.arrays[name][there.rows(part)] = received


def played(arena: Arena) -> list[dict[str, np.ndarray]]:
    """All results of 60 steps, several episodes of each game."""
    rng = np.random.default_rng(0)
    told = []
    with arena:
        for _ in range(60):
            assert arena.step({"agent": rng.integers(0, 2, (3, 1))}) == []
            told.append(
                {
                    name: array.copy()
                    for name, array in arena.arrays.items()
                    if name.rpartition("/")[2] in RESULTS
                }
            )
    assert told[-1]["episode"].sum() > 3
    return told


def test_a_worker_of_another_kind_needs_no_change_of_the_arena() -> None:
    env = make("gym:CartPole-v1")
    made: list[FarWorker] = []

    def far(assignment: Assignment) -> Worker:
        made.append(FarWorker(assignment))
        return made[-1]

    here = played(Arena(env, 3, seed=5))
    there = played(Arena(env, 3, seed=5, workers=2, worker=far))
    processes = played(Arena(env, 3, seed=5, workers=2))
    assert [worker.near.games for worker in made] == [range(0, 1), range(1, 3)]
    assert [worker.calls for worker in made] == [["start", "dismiss", "close"]] * 2
    for one, other, third in zip(here, there, processes, strict=True):
        for name, array in one.items():
            np.testing.assert_array_equal(array, other[name], name)
            np.testing.assert_array_equal(array, third[name], name)


def test_a_lost_process_breaks_the_episodes_of_both_halves() -> None:
    """Also of the half that had answered, in its next step; after that both go on."""
    one, other = HALVES
    with Arena(make("gym:CartPole-v1"), 2, seed=5, workers=1) as arena:
        actions = {"agent": np.zeros((2, 1), int)}
        assert arena.step() == arena.step(actions) == []
        arena.go(one, actions)
        assert arena.wait(one) == []
        worker = arena.workers[0]
        assert isinstance(worker, ProcessWorker) and worker.process and worker.process.process
        worker.process.process.terminate()
        worker.process.process.wait()
        arena.go(other, actions)
        arena.go(one, actions)
        assert [fault.game for fault in arena.wait(other)] == [0]
        assert arena.arrays["broken"].tolist() == [False, True]
        assert arena.wait(one) == []
        assert arena.arrays["broken"].all() and arena.arrays["first"].all()
        assert arena.arrays["episode"].tolist() == [2, 2]
        assert arena.step(actions) == [] and not arena.arrays["broken"].any()
        assert arena.arrays["taken"].tolist() == [1, 1]


def test_a_step_that_nobody_waited_for_is_not_taken_for_the_next() -> None:
    with Arena(make("gym:CartPole-v1"), 2, seed=5, workers=1) as arena:
        actions = {"agent": np.zeros((2, 1), int)}
        assert arena.step() == []
        for half in HALVES:
            arena.go(half, actions)
        for _ in range(3):
            assert arena.step(actions) == []
        assert arena.arrays["taken"].tolist() == [4, 4]


def test_a_worker_that_does_not_start_leaves_none_behind() -> None:
    made: list[FarWorker] = []

    def far(assignment: Assignment) -> Worker:
        if made:
            raise RuntimeError("no machine is free")
        made.append(FarWorker(assignment))
        return made[-1]

    with pytest.raises(RuntimeError, match="no machine is free"):
        Arena(make("gym:CartPole-v1"), 3, seed=5, workers=2, worker=far)
    assert made[0].calls == ["start", "dismiss", "close"]
