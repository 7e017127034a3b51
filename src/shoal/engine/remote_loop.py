"""The training loop for games on other machines: whole windows are played where the games are.

A host has a share of the games. Once per iteration it gets the acting part of the learners, and
returns what its games gave, so that a slow network costs little. Every host decides with the very
program of `HostLoop`, on arrays of the same shapes, of which it fills its own rows: so decisions do
not depend on where games are played, nor on how many hosts there are.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jax import Array

from ..config.config import Config
from ..config.trust import EVERYTHING
from ..envs.host.arena import split
from ..envs.host.faults import Fault
from ..errors import ShoalError
from ..types import Clock, View
from .host_loop import HostLoop
from .played import PlayedSteps, by_game

Leaves = list[np.ndarray]


class HostLost(Exception):
    """A host is gone, and with it the episodes of its games."""


class Host(Protocol):
    """A place where some of the games are played."""

    def ask(self, what: str, *args: Any) -> None:
        """Start a method of `WindowPlayer` there."""
        ...

    def answer(self) -> Any:
        """Wait for what it returns; raises `HostLost`."""
        ...

    def restart(self) -> None:
        """Replace it after it was lost."""
        ...

    def close(self) -> None:
        """End its games."""
        ...


Row = tuple[Any, ...]  # fields of a `Fault`


class Opened(NamedTuple):
    """Opening views and episode numbers of a host's games."""

    views: dict[str, dict[str, np.ndarray]]  # [rows,…] by team and field
    episodes: np.ndarray  # [rows]
    faults: list[Row]


class Returned(NamedTuple):
    """What a host's games gave in a window: leaves of `PlayedSteps`."""

    # [T or T+1,rows,…] streams, actions, records, episode metrics and broken, in this order
    by_step: Leaves
    carries: Leaves  # [rows,…]
    episodes: np.ndarray  # [rows]
    faults: list[Row]


class WindowPlayer:
    """Plays windows of some games of a run, on the host where they are. Only arrays and JSON
    cross its border."""

    loop: HostLoop

    def __init__(self, config: str, rows: tuple[int, int], devices: int):
        self.config = config
        self.rows = slice(*rows)
        self.devices = devices

    def open(self) -> Opened:
        """Open the games; what this host lacks for them is said here."""
        made = Config.from_json(json.loads(self.config), EVERYTHING)  # the leader trusts it
        s = made.settings
        loop = HostLoop(
            *(made.game, made.algorithms, s.games, s.window, s.steps, self.devices),
            workers=1,
            patience=s.patience,
            tolerance=2**31,  # the leader counts
            rows=range(self.rows.start, self.rows.stop),
        )
        self.loop = loop
        learners = loop.learners(s.seed)
        self.tree = jax.tree.structure(
            {team: a.acting(learners[team]) for team, a in loop.algorithms.items()}
        )
        loop.opened = loop.stage(s.seed)
        views, faults = loop.opened.open(jax.random.key(0))  # it seeds its games itself
        self.views = loop._shared(views)
        carries = {
            team: a.carry(learners[team], loop.share.games) for team, a in loop.algorithms.items()
        }
        self.carries = jax.tree.map(lambda x: np.stack([x] * loop.devices), carries)
        opened = {
            team: {name: leaf[self.rows] for name, leaf in view._asdict().items()}
            for team, view in views.items()
        }
        return Opened(opened, self._episodes(), [tuple(fault) for fault in faults])

    def play(
        self,
        acting: Leaves,
        clock: tuple[Any, ...],
        views: Leaves,
        carries: Leaves,
        keys: np.ndarray,
    ) -> Returned:
        """Play a window from these views and carries on."""
        seen = _filled(self.views, views, self.rows)
        carried = _filled(self.carries, carries, self.rows)
        given: Any = (self.tree, acting)
        steps = self.loop.play(given, Clock(*clock), seen, carried, keys)
        kept = (steps.streams, steps.actions, steps.records, steps.episode_metrics, steps.broken)
        return Returned(
            self._own(jax.tree.leaves(kept), 1),
            self._own(jax.tree.leaves(steps.carries), 0),
            self._episodes(),
            self._faults(),
        )

    def renew(self, episodes: np.ndarray) -> None:
        """Break off all episodes; the next step opens those after `episodes [B]`."""
        assert self.loop.opened, "the games are not open"
        self.loop.opened.renew(episodes)

    def close(self) -> None:
        """End the games."""
        self.loop.close()

    def _own(self, leaves: Leaves, axis: int) -> Leaves:
        """The rows of the games that are played here; `axis` is that of devices."""
        own = (*(slice(None),) * axis, self.rows)
        return [np.ascontiguousarray(by_game(leaf, axis)[own]) for leaf in leaves]

    def _episodes(self) -> np.ndarray:
        assert self.loop.opened, "the games are not open"
        return self.loop.opened.episodes()[self.rows]

    def _faults(self) -> list[Row]:
        faults = [tuple(fault) for fault in self.loop.faults]
        self.loop.faults.clear()
        return faults


def played_by_hosts(config: Config) -> str:
    """A config as hosts get it: one device is enough to decide."""
    settings = dataclasses.replace(config.settings, devices=1)
    return json.dumps(dataclasses.replace(config, settings=settings).to_json())


def _as_they_are(leaves: Leaves) -> Leaves:
    return leaves


@dataclass(eq=False)
class RemoteLoop(HostLoop):
    """`HostLoop` whose games are played by hosts, a window at a time."""

    host: Callable[[range], Host] | None = None  # makes the host of some games
    # prepares arrays to be sent to several hosts
    share_out: Callable[[Leaves], Any] = _as_they_are

    def stage(self, seed: int) -> RemoteStage:
        assert self.host, "somebody must play"
        shares = split(range(self.games), self.workers)
        return RemoteStage(self, [(rows, self.host(rows)) for rows in shares])

    def play(
        self,
        acting: tuple[Any, list[Array]],
        clock: Clock,
        views: dict[str, View],
        carries: dict[str, Any],
        keys: np.ndarray,
    ) -> PlayedSteps:
        """Let every host play a window of its games, and put the windows together."""
        stage = self.opened
        assert isinstance(stage, RemoteStage)
        leaves = self.share_out([np.asarray(leaf) for leaf in acting[1]])
        seen = jax.tree.leaves(views)
        carried = jax.tree.leaves(carries)
        for rows, host in stage.hosts:
            at = slice(rows.start, rows.stop)
            own = [[by_game(leaf, 0)[at] for leaf in part] for part in (seen, carried)]
            host.ask("play", leaves, tuple(clock), *own, keys)
        steps = self._blank(acting, clock, views, carries, keys)
        kept = (steps.streams, steps.actions, steps.records, steps.episode_metrics, steps.broken)
        for rows, host in stage.hosts:
            at = slice(rows.start, rows.stop)
            try:
                got: Returned = host.answer()
            except HostLost as error:
                steps.lost.reshape(-1)[at] = True
                stage.replace(rows, host, str(error))
                continue
            for whole, part in zip(jax.tree.leaves(kept), got.by_step, strict=True):
                by_game(whole, 1)[:, at] = part
            for whole, part in zip(jax.tree.leaves(steps.carries), got.carries, strict=True):
                by_game(whole, 0)[at] = part
            stage.numbers[at] = got.episodes
            self._tolerate([Fault(*fault) for fault in got.faults])
        return steps

    def _blank(
        self,
        acting: tuple[Any, list[Array]],
        clock: Clock,
        views: dict[str, View],
        carries: dict[str, Any],
        keys: np.ndarray,
    ) -> PlayedSteps:
        """A window in which nothing happens: every step is none, as after an end."""
        decided = jax.eval_shape(lambda: self._decide(*acting, clock, views, carries, keys, 0))
        actions, _, records = jax.tree.map(
            lambda x: np.zeros((self.window, *x.shape), x.dtype), decided
        )
        streams = jax.tree.map(lambda x: np.repeat(x[None], self.window + 1, axis=0), views)
        for view in streams.values():
            view.first[1:] = True
            view.reward[1:] = 0.0
        shape = (self.window, self.devices, self.share.games)
        episode_metrics = {name: np.zeros(shape, np.float32) for name in self._metrics}
        after = jax.tree.map(np.array, carries)
        lost = np.zeros(shape[1:], bool)
        return PlayedSteps(
            streams, actions, records, after, episode_metrics, np.zeros(shape, bool), lost
        )


class RemoteStage:
    """The games of all hosts."""

    def __init__(self, loop: RemoteLoop, hosts: Sequence[tuple[range, Host]]):
        self.loop = loop
        self.hosts = hosts
        self.numbers = np.zeros(loop.games, np.uint32)  # of each game's episode

    def open(self, keys: Array) -> tuple[dict[str, View], list[Fault]]:
        for _, host in self.hosts:
            host.ask("open")
        parts: list[Opened] = [self._answer(rows, host) for rows, host in self.hosts]
        self.numbers[:] = np.concatenate([part.episodes for part in parts])
        views: dict[str, View] = {}
        for team, own in parts[0].views.items():
            fields: dict[str, Any] = {
                field: np.concatenate([part.views[team][field] for part in parts]) for field in own
            }
            views[team] = View(**fields)
        return views, [Fault(*fault) for part in parts for fault in part.faults]

    def replace(self, rows: range, host: Host, why: str) -> None:
        """Start a lost host anew; its games open their next episodes."""
        game = rows.start
        episode = int(self.numbers[game])
        report = f"the host of games {rows.start} to {rows.stop - 1} was lost: {why}"
        self.loop._tolerate([Fault(self.loop.env.name, game, episode, 0, 0, report)])
        host.restart()
        host.ask("open")
        self._answer(rows, host)
        host.ask("renew", self.numbers)
        self._answer(rows, host)

    def _answer(self, rows: range, host: Host) -> Any:
        try:
            return host.answer()
        except HostLost as error:
            raise ShoalError(
                f"no host can play games {rows.start} to {rows.stop - 1} ({error}): see that the"
                f" cluster has room, then shoal resume"
            ) from None

    @property
    def rows(self) -> dict[int, Any]:
        raise NotImplementedError("hosts play whole windows")

    def go(self, part: int, keys: np.ndarray, t: int, actions: dict[str, np.ndarray]) -> None:
        raise NotImplementedError("hosts play whole windows")

    def wait(self, part: int) -> Any:
        raise NotImplementedError("hosts play whole windows")

    def metrics(self) -> dict[str, np.ndarray]:
        raise NotImplementedError("hosts play whole windows")

    def renew(self, episodes: np.ndarray) -> None:
        self.numbers[:] = episodes
        for rows, host in self.hosts:
            host.ask("renew", episodes)
            self._answer(rows, host)

    def episodes(self) -> np.ndarray:
        return self.numbers.copy()

    def close(self) -> None:
        for _, host in self.hosts:
            host.close()


def _filled(like: Any, leaves: Leaves, rows: slice) -> Any:
    """A tree of arrays as in `like`, with these rows."""
    whole = [np.zeros(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(like)]
    for place, part in zip(whole, leaves, strict=True):
        by_game(place, 0)[rows] = part
    return jax.tree.unflatten(jax.tree.structure(like), whole)
