"""The only training loop: collect, remember, learn, for any mix of teams.

`Loop` is the program; who watches, logs and saves is `trainer.py`'s business. Every device plays its own share of the
games: what is a device's own carries a leading device axis, learners and counters are the same on all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .algorithms.base import Algorithm
from .collect import Play, collect
from .envs.base import Env
from .parallel import AXIS, total
from .types import Clock, Share, ShoalError, TrainState, Window

LOCAL = ("game", "views", "carries", "memories", "earned", "key")  # fields of TrainState that are each device's own


@dataclass(frozen=True, eq=False)
class Loop:
    env: Env
    algorithms: dict[str, Algorithm]
    games: int  # in parallel, over all devices
    window: int  # steps of each game per iteration
    steps: int  # environment steps of the whole run, for schedules
    devices: int = 1

    def __post_init__(self) -> None:
        if self.games % self.devices:
            raise ShoalError(f"{self.games} games cannot be shared evenly by {self.devices} devices")

    @cached_property
    def mesh(self) -> Mesh:
        return Mesh(np.array(jax.devices()[: self.devices]), (AXIS,))

    @cached_property
    def specs(self) -> TrainState:
        own, same = PartitionSpec(AXIS), PartitionSpec()
        return TrainState(**{field: own if field in LOCAL else same for field in TrainState._fields})  # type: ignore

    @cached_property
    def shardings(self) -> TrainState:
        return jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), self.specs)

    def init(self, seed: int) -> TrainState:
        """The state before the first step."""
        rng = np.random.default_rng(seed)
        learners = {team: algorithm.init(rng) for team, algorithm in self.algorithms.items()}
        return jax.jit(self._open_all, out_shardings=self.shardings)(learners, jax.random.key(seed))

    def sizes(self) -> dict[str, int]:
        """Bytes of each team's memory, without making any."""
        rng = np.random.default_rng(0)
        learners = {team: algorithm.init(rng) for team, algorithm in self.algorithms.items()}
        shapes = jax.eval_shape(self._open_all, learners, jax.random.key(0)).memories
        return {team: sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(own)) for team, own in shapes.items()}

    def _open_all(self, learners: dict, key: Array) -> TrainState:
        shares = jax.vmap(partial(self._open, learners))(jax.random.split(key, self.devices))
        game, views, carries, memories, earned, keys = shares
        return TrainState(game, views, carries, learners, memories, earned, jax.random.key_data(keys), jnp.uint32(0))

    def _open(self, learners: dict, key: Array) -> tuple:
        key, key_reset = jax.random.split(key)
        share = Share(self.games // self.devices, self.window, self.devices, self.steps)
        game, views = self.env.reset(key_reset, share.games)
        carries = {team: algorithm.carry(learners[team], share.games) for team, algorithm in self.algorithms.items()}
        memories = {team: algorithm.memory(learners[team], share) for team, algorithm in self.algorithms.items()}
        earned = {team: jnp.zeros(share.games) for team in self.algorithms}
        return game, views, carries, memories, earned, key

    def program(self, iterations: int) -> Any:
        """`state -> state, metrics [iterations]`, jitted and donated."""
        body = jax.shard_map(
            partial(self._run, iterations),
            mesh=self.mesh,
            in_specs=(self.specs,),
            out_specs=(self.specs, PartitionSpec()),
            check_vma=False,
        )
        everywhere = NamedSharding(self.mesh, PartitionSpec())
        return jax.jit(
            body, donate_argnums=0, in_shardings=(self.shardings,), out_shardings=(self.shardings, everywhere)
        )

    def _run(self, iterations: int, state: TrainState) -> tuple[TrainState, dict]:
        own = {field: jax.tree.map(lambda x: x[0], getattr(state, field)) for field in LOCAL}
        state, metrics = jax.lax.scan(self.iteration, state._replace(**own), None, iterations)
        own = {field: jax.tree.map(lambda x: x[None], getattr(state, field)) for field in LOCAL}
        return state._replace(**own), metrics

    def iteration(self, state: TrainState, _: None) -> tuple[TrainState, dict]:
        """Collect, remember, learn: on one device's share."""
        key, key_play, *keys = jax.random.split(jax.random.wrap_key_data(state.key), 2 + len(self.algorithms))
        done = state.steps.astype(jnp.float32)
        clock = Clock(done, done / self.steps)
        play = Play(state.game, state.views, state.carries)
        play, windows = collect(self.env, self.algorithms, state.learners, play, key_play, clock, self.window)
        learners, memories, metrics = {}, {}, {}
        for k, (team, algorithm) in zip(keys, self.algorithms.items(), strict=True):
            memory = algorithm.remember(state.memories[team], windows[team])
            learners[team], memories[team], metrics[team] = algorithm.learn(state.learners[team], memory, k, clock)
        fresh = next(iter(windows.values())).valid
        steps = state.steps + total(fresh.sum(dtype=jnp.uint32))
        earned, returns = _tally(state.earned, windows)
        key = jax.random.key_data(key)
        state = TrainState(play.game, play.views, play.carries, learners, memories, earned, key, steps)
        return state, metrics | {"steps": steps, "returns": returns}


def _tally(earned: dict[str, Array], windows: dict[str, Window]) -> tuple[dict[str, Array], dict[str, Array]]:
    """What is earned in episodes under way; the returns, summed, of those that ended in the window, and their count."""
    first = next(iter(windows.values())).view.first[1:]  # [T,B]: where an episode ended just before
    last = len(first) - 1 - jnp.argmax(first[::-1], axis=0)
    sums = {"episodes": first.sum(dtype=jnp.float32)}
    now = {}
    for team, window in windows.items():
        so_far = earned[team] + jnp.cumsum(window.reward.mean(-1), axis=0)
        # Earned until the last of a game's episode ends: the sum of its episodes' returns, as their differences cancel.
        closed = jnp.where(first.any(0), jnp.take_along_axis(so_far, last[None], axis=0)[0], 0.0)
        now[team], sums[team] = so_far[-1] - closed, closed.sum()
    return now, total(sums)
