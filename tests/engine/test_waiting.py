"""Whoever stops a run does not wait for compilers and compiled programs."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from helpers import TEAM, build

from shoal.engine.evaluate import Evaluator
from shoal.engine.waiting import in_thread
from shoal.envs import make
from shoal.envs.host.watched import Halted
from shoal.types import Clock


def always() -> bool:
    return True


def test_a_run_that_stops_does_not_wait():
    done = threading.Event()
    with pytest.raises(Halted):
        in_thread(done.wait, 60, halted=always)
    done.set()


def test_results_and_errors_are_those_of_the_call():
    assert in_thread(divmod, 7, 2, halted=lambda: False) == in_thread(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        in_thread(divmod, 7, 0, halted=lambda: False)


def test_an_evaluation_of_a_compiled_game_is_left_when_the_run_stops(
    monkeypatch: pytest.MonkeyPatch,
):
    env = make("test/identity")
    evaluate = Evaluator(env, {TEAM: build("random", env)}, episodes=2, greedy=False)
    done = threading.Event()
    monkeypatch.setattr(evaluate, "_run", lambda *_: done.wait(60))
    with pytest.raises(Halted):
        evaluate({TEAM: ()}, 0, Clock(np.float32(0), np.float32(0)), always)
    done.set()
