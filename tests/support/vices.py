"""A Gymnasium-like environment with one vice, in one of its calls: what a watched process must
survive."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

LENGTH = 5


class Vicious(gymnasium.Env):
    """Episodes of five steps, each of which earns 1. `where` is the call in which it does
    `what`."""

    def __init__(
        self,
        what: str = "",
        where: str = "",
        size: int = 2,
        endless: bool = False,
        lock: str = "",
        note: str = "",
    ):
        self.observation_space = spaces.Box(-1.0, 1.0, (size,))
        self.action_space = spaces.Discrete(2)
        self.what, self.where, self.endless, self.note = what, where, endless, note
        if lock:
            self.lock = Path(lock).open("w")  # noqa: SIM115 as long as it is there
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._do("init")

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[np.ndarray, dict]:
        self.taken = 0
        self._do("reset")
        return np.zeros(self.observation_space.shape, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.taken += 1
        if self.taken == 2:
            self._do("step")
        over = self.taken == LENGTH and not self.endless
        return np.zeros(self.observation_space.shape, np.float32), 1.0, over, False, {}

    def close(self) -> None:
        self._do("close")
        if hasattr(self, "lock"):
            self.lock.close()

    def _do(self, call: str) -> None:
        if self.where == call:
            getattr(self, f"_{self.what}")()

    def _raises(self) -> None:
        raise RuntimeError("the environment fell over")

    def _exits(self) -> None:
        sys.exit(3)

    def _ends(self) -> None:
        os._exit(7)

    def _crashes(self) -> None:
        ctypes.string_at(0)

    def _hangs(self) -> None:
        if self.note:
            Path(self.note).touch()
        time.sleep(1000)

    def _lingers(self) -> None:
        """Once there is a note."""
        while Path(self.note).exists():
            time.sleep(0.1)

    def _sleeps(self) -> None:
        time.sleep(1.5)

    def _thread(self) -> None:
        threading.Thread(target=time.sleep, args=(1000,), name="endless").start()

    def _child(self) -> None:
        self._note(subprocess.Popen(["sleep", "1000"]).pid)

    def _orphan(self) -> None:
        """A child that goes into a session of its own, and whose parent has gone."""
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execvp("sleep", ["sleep", "1000"])
            os._exit(0)
        os.wait()

    def _helper(self) -> None:
        """A child that the process waits for at its end."""
        multiprocessing.get_context("fork").Process(
            target=time.sleep, args=(1000,), name="helper"
        ).start()

    def _lasts(self) -> None:
        atexit.register(time.sleep, 1000)

    def _scribbles(self) -> None:
        """Into everything that is open."""
        for file in range(3, 64):
            with contextlib.suppress(OSError):
                os.write(file, b"{}\n")

    def _strays(self) -> None:
        """A child that goes on where its parent does."""
        os.fork()

    def _note(self, pid: int) -> None:
        if self.note:
            with Path(self.note).open("a") as file:
                file.write(f"{pid}\n")


class Shuffled:
    """Two agents whose order is another in every process, as that of a set of names may be."""

    def __init__(self, kept: str, **vice: Any):
        names = ["a_0", "a_1"]
        with Path(kept).open("a+") as file:  # every other process has another order
            file.write("x")
            file.flush()
            turned = file.tell() % 2 == 0
        self.possible_agents = names[::-1] if turned else names

    def observation_space(self, agent: str) -> spaces.Space:
        return spaces.Box(-1.0, 1.0, (2,))

    def action_space(self, agent: str) -> spaces.Space:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        self.agents, self.taken = list(self.possible_agents), 0
        return {agent: np.zeros(2, np.float32) for agent in self.agents}, {}

    def step(self, actions: dict[str, int]) -> tuple[dict, dict, dict, dict, dict]:
        self.taken += 1
        acted, over = self.agents, self.taken == LENGTH
        self.agents = [] if over else acted
        seen = {agent: np.zeros(2, np.float32) for agent in acted}
        return (
            seen,
            dict.fromkeys(acted, 1.0),
            dict.fromkeys(acted, over),
            dict.fromkeys(acted, False),
            {},
        )

    def close(self) -> None:
        pass


def make(**vice: Any) -> Vicious:
    return Vicious(**vice)


class Stateless(Shuffled):
    """Says that it has a state, and shows none."""

    def state(self) -> np.ndarray:
        return np.zeros(0)


class Closeless:
    """Has no close()."""

    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Discrete(2)
    reset, step, _do = Vicious.reset, Vicious.step, Vicious._do
    what = where = note = ""
    endless = False


def dying() -> None:
    os._exit(7)


def shuffled(**how: Any) -> Shuffled:
    return Shuffled(**how)


class Unannounced:
    """Meant for PettingZoo, without possible_agents."""

    observation_space, action_space, step, close = (
        getattr(Shuffled, name) for name in ("observation_space", "action_space", "step", "close")
    )

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        return {}, {}


class Seedless(Vicious):
    """Has a reset() that takes no seed."""

    def reset(self) -> tuple[np.ndarray, dict]:  # type: ignore[override]
        return super().reset()


def unannounced() -> Unannounced:
    return Unannounced()


def seedless() -> Seedless:
    return Seedless()
