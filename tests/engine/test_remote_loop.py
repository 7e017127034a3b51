"""Windows played by hosts: the same learning wherever games are played, and what a lost host
costs."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from helpers import bits
from places import SUPPORT

from shoal.config.config import Config
from shoal.engine.host_loop import HostLoop
from shoal.engine.remote_loop import HostLost, RemoteLoop, WindowPlayer, played_by_hosts

GAMES = 4
SETTINGS = {"games": GAMES, "window": 5, "steps": 200, "devices": 2, "workers": 2, "seed": 3}
PPO = {"hidden": 4, "layers": 1, "minibatches": 1, "torso": "gru"}
DQN = {"hidden": 4, "layers": 1, "warmup": 20, "capacity": 80, "batch": 2, "length": 4}


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The game that breaks can be found by its id."""
    monkeypatch.syspath_prepend(str(SUPPORT))


class Near:
    """A host in this process; it is lost when it is asked to play for the `dies`-th time."""

    def __init__(self, config: str, devices: int, dies: int, rows: range):
        self.make = partial(WindowPlayer, config, (rows.start, rows.stop), devices)
        self.dies = dies if rows.start == 0 else 0
        self.player = self.make()

    def ask(self, what: str, *args: Any) -> None:
        self.dies -= what == "play"
        # what crosses a network is bytes
        self.asked = (what, jax.tree.map(lambda x: np.array(x) if np.ndim(x) else x, args))

    def answer(self) -> Any:
        what, args = self.asked
        if what == "play" and self.dies == 0:
            raise HostLost("it was killed")
        return getattr(self.player, what)(*args)

    def restart(self) -> None:
        self.player.close()
        self.player = self.make()

    def close(self) -> None:
        self.player.close()


def config(algorithm: str, own: dict[str, Any], **more: Any) -> Config:
    env = "pz:mpe2.simple_spread_v3"
    return Config.build(env, {"agent": (algorithm, own)}, {"max_cycles": 7}, SETTINGS | more)


def trained(c: Config, hosts: int, iterations: int = 4, dies: int = 0) -> tuple[Any, HostLoop]:
    s = c.settings
    parts = (c.game, c.algorithms, s.games, s.window, s.steps, c.devices)
    loop: HostLoop
    if hosts:
        host = partial(Near, played_by_hosts(c), c.devices, dies)
        loop = RemoteLoop(*parts, workers=hosts, host=host, staleness=s.staleness)
    else:
        loop = HostLoop(*parts, workers=1, staleness=s.staleness)
    try:
        state = loop.init(s.seed)
        program = loop.compile(state, iterations)
        state, _ = program(state)
        if loop.failure:
            raise loop.failure
        return jax.device_get(state), loop
    finally:
        loop.close()


@pytest.mark.parametrize(
    ("algorithm", "own", "staleness"),
    [("ppo", PPO, 0), ("ppo", PPO, 1), pytest.param("dqn", DQN, 0, marks=pytest.mark.slow)],
)
def test_learning_is_the_same_wherever_games_are_played(
    algorithm: str, own: dict[str, Any], staleness: int
) -> None:
    c = config(algorithm, own, staleness=staleness, devices=1 if staleness else 2)
    here = bits(trained(c, 0)[0])
    assert bits(trained(c, 1)[0]) == here
    assert bits(trained(c, 3)[0]) == here


@pytest.mark.slow
def test_a_lost_host_costs_its_episodes_and_is_replaced() -> None:
    state, loop = trained(config("ppo", PPO), 2, iterations=5, dies=2)
    assert [fault.game for fault in loop.faults] == [0]
    assert "was lost: it was killed" in loop.faults[0].report
    # its two games opened new episodes; the other host's went on
    assert sorted(loop.dropped) == [0, 1]
    lost = 2 * SETTINGS["window"]  # the window that never came back
    # of 5 windows of 4 games; the opening steps of episodes are none
    whole, _ = trained(config("ppo", PPO), 2, iterations=5)
    assert int(whole.steps) - int(state.steps) >= lost - 2
    assert np.isfinite(np.concatenate([leaf.ravel() for leaf in _floats(state.learners)])).all()


def test_a_host_gets_arrays_and_json_alone() -> None:
    plain = json.loads(played_by_hosts(config("ppo", PPO)))
    assert plain["settings"]["devices"] == 1
    assert plain["env"] == "pz:mpe2.simple_spread_v3"


def _floats(tree: Any) -> list[np.ndarray]:
    return [leaf for leaf in map(np.asarray, jax.tree.leaves(tree)) if leaf.dtype == np.float32]
