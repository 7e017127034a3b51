"""The training loop: collect, remember, learn, for any mix of teams.

`Loop` is the program; `run/trainer.py` watches, logs and saves. Every device plays
its own share of the games: arrays that belong to one device have a leading device axis; learners
and counters are the same on all devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..algorithms.base import Algorithm
from ..envs.game import Env
from ..envs.host.faults import Fault
from ..errors import ShoalError
from ..learning.reduce import AXIS, total
from ..types import Clock, Results, Share, TrainState, Window
from .play import Play, collect

EACH = 16  # largest team for which every agent's return is kept
# fields of TrainState that differ between devices
LOCAL = ("game", "views", "carries", "memories", "earned", "key")


class Metrics(NamedTuple):
    """Metrics of an iteration. Team names are only keys of inner dictionaries: any name is
    allowed."""

    steps: Array  # [] environment steps so far
    episodes: Array  # [] episodes that ended
    # [] by team: mean return over agents, summed over those episodes
    returns: dict[str, Array]
    each: dict[str, Array]  # [N] by team: each agent's return, summed; [1] for a large team
    learning: dict[str, dict[str, Array]]  # by team: metrics of its algorithm
    own: dict[str, Array] = {}  # [] by name: the environment's own metrics, summed


@dataclass(eq=False)
class Loop:
    env: Env
    algorithms: dict[str, Algorithm]
    games: int  # in parallel, over all devices
    window: int  # steps of each game per iteration
    steps: int  # environment steps of the whole run, for schedules
    devices: int = 1

    def __post_init__(self) -> None:
        self.failure: ShoalError | None = None  # why the loop cannot go on
        self.faults: list[Fault] = []  # of games on the host
        self.dropped: list[int] = []  # games of which a broken episode was struck out

        if self.games % self.devices:
            raise ShoalError(
                f"{self.games} games cannot be shared evenly by {self.devices} devices: change"
                f" games or devices"
            )

    @cached_property
    def mesh(self) -> Mesh:
        return Mesh(np.array(jax.devices()[: self.devices]), (AXIS,))

    @cached_property
    def specs(self) -> TrainState:
        own = PartitionSpec(AXIS)
        same = PartitionSpec()
        specs: dict[str, Any] = {
            field: own if field in LOCAL else same for field in TrainState._fields
        }
        return TrainState(**specs)

    @cached_property
    def shardings(self) -> TrainState:
        return jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), self.specs)

    @property
    def share(self) -> Share:
        """The part of the run that falls to each device."""
        return Share(self.games // self.devices, self.window, self.devices, self.steps)

    def init(self, seed: int) -> TrainState:
        """The state before the first step."""
        return self._opening_program(self.learners(seed), jax.random.key(seed))

    def template(self, seed: int) -> TrainState:
        """A state with the right structure, shapes and dtypes."""
        return jax.eval_shape(self._opening_program, self.learners(seed), jax.random.key(seed))

    def restored(self, state: TrainState) -> TrainState:
        """Prepare a saved state to go on from."""
        return jax.jit(_as_it_is, out_shardings=self.shardings)(state)

    def fetch(self, state: TrainState, fields: Sequence[str] = TrainState._fields) -> TrainState:
        """The state with these fields on the host."""
        return state._replace(**{field: jax.device_get(getattr(state, field)) for field in fields})

    def with_learners(self, state: TrainState, learners: dict[str, Any]) -> TrainState:
        """The state with other learners."""
        places = jax.tree.map(lambda leaf: leaf.sharding, state.learners)
        return state._replace(learners=jax.device_put(learners, places))

    def learners(self, seed: int) -> dict[str, Any]:
        """Every team's learner, untrained."""
        rng = np.random.default_rng(seed)
        return {team: algorithm.init(rng) for team, algorithm in self._sides}

    def sizes(self) -> dict[str, int]:
        """Bytes of each team's memory, computed without allocating it."""
        shapes = jax.eval_shape(self._beginnings, self.learners(0))[1]
        shapes = {team: [leaf] * self.devices for team, leaf in shapes.items()}
        return {
            team: sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(own))
            for team, own in shapes.items()
        }

    @cached_property
    def _opening_program(self) -> Any:
        return jax.jit(self._open_all, out_shardings=self.shardings)

    def _open_all(self, learners: dict[str, Any], key: Array) -> TrainState:
        parts = jax.vmap(partial(self._open, learners))(jax.random.split(key, self.devices))
        game, views, carries, memories, earned, keys = parts
        return TrainState(
            game,
            views,
            carries,
            learners,
            memories,
            earned,
            jax.random.key_data(keys),
            jnp.uint32(0),
        )

    def _open(self, learners: dict[str, Any], key: Array) -> tuple[Any, ...]:
        key, key_reset = jax.random.split(key)
        game, views = self.env.reset(key_reset, self.share.games)
        return game, views, *self._beginnings(learners), key

    def _beginnings(
        self, learners: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Array]]:
        """Carries, memories and returns so far, before the first step."""
        carries = {
            team: algorithm.carry(learners[team], self.share.games)
            for team, algorithm in self._sides
        }
        memories = {
            team: algorithm.memory(learners[team], self.share) for team, algorithm in self._sides
        }
        earned = {
            team: jnp.zeros((self.share.games, _rows(algorithm.spec.n)))
            for team, algorithm in self._sides
        }
        return carries, memories, earned

    @property
    def _sides(self) -> Iterable[tuple[str, Algorithm]]:
        return self.algorithms.items()

    def compile(
        self, state: TrainState, iterations: int
    ) -> Callable[[TrainState], tuple[TrainState, Metrics | None]]:
        """Compile `state -> state, metrics [iterations]`.

        For compiled games, `state` may be a `template`. The program returns no metrics if not even
        one iteration could be completed."""
        return self.program(iterations).lower(state).compile()

    def close(self) -> None:
        """Close games that run outside the program."""

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
            body,
            donate_argnums=0,
            in_shardings=(self.shardings,),
            out_shardings=(self.shardings, everywhere),
        )

    def _run(self, iterations: int, state: TrainState) -> tuple[TrainState, Metrics]:
        state, metrics = jax.lax.scan(self.iteration, without_device_axis(state), None, iterations)
        return with_device_axis(state), metrics

    def clock(self, steps: Array) -> Clock:
        """The clock after `steps` environment steps."""
        done = steps.astype(jnp.float32)
        # as a float: it may be more than an int32 holds
        return Clock(done, done / jnp.asarray(self.steps, jnp.float32))

    def iteration(self, state: TrainState, _: None) -> tuple[TrainState, Metrics]:
        """Collect, remember and learn, on one device's games."""
        key, key_play, *keys = jax.random.split(
            jax.random.wrap_key_data(state.key), 2 + len(self.algorithms)
        )
        clock = self.clock(state.steps)
        play = Play(state.game, state.views, state.carries)
        play, windows, episode_metrics = collect(
            self.env, self.algorithms, state.learners, play, key_play, clock, self.window
        )
        # an opening view means that an episode ended just before
        ended = next(iter(windows.values())).view.first[1:]
        state = state._replace(
            game=play.game, views=play.views, carries=play.carries, key=jax.random.key_data(key)
        )
        return self.learn_from_windows(state, windows, ended, episode_metrics, keys, clock)

    def learn_from_windows(
        self,
        state: TrainState,
        windows: dict[str, Window],
        ended: Array,
        episode_metrics: dict[str, Array],
        keys: Any,
        clock: Clock,
    ) -> tuple[TrainState, Metrics]:
        """Put the windows into memory and learn.

        `ended [T,B]` marks steps before which an episode ended, `episode_metrics [T,B]` holds the
        environment's own metrics of that episode, by name."""
        learners: dict[str, Any] = {}
        memories: dict[str, Any] = {}
        learning: dict[str, dict[str, Array]] = {}
        for k, (team, algorithm) in zip(keys, self.algorithms.items(), strict=True):
            memory = algorithm.remember(state.memories[team], windows[team])
            learners[team], memories[team], learning[team] = algorithm.learn(
                state.learners[team], memory, k, clock
            )
            learners[team], more = algorithm.observe(
                learners[team], windows[team], jax.random.fold_in(k, 1), clock
            )
            learning[team] = learning[team] | more
        fresh = next(iter(windows.values())).valid
        steps = state.steps + total(fresh.sum(dtype=jnp.uint32))
        earned, results, own = tally(state.earned, windows, ended)
        results = results._replace(metrics=episode_metrics)
        for team, algorithm in self.algorithms.items():
            learners[team], met = algorithm.meet(learners[team], learners, results)
            learning[team] = learning[team] | met
        returns = {team: (value * ended).sum() for team, value in results.returns.items()}
        # metrics are meaningful only where an episode ended
        episode_metrics = {
            name: jnp.where(ended, value, 0.0).sum() for name, value in episode_metrics.items()
        }
        episodes, returns, episode_metrics = total(
            (ended.sum(dtype=jnp.float32), returns, episode_metrics)
        )
        each = total({team: (value * ended[..., None]).sum((0, 1)) for team, value in own.items()})
        carries = {
            team: algorithm.keep(learners[team], state.carries[team])
            for team, algorithm in self._sides
        }
        state = state._replace(
            learners=learners, memories=memories, carries=carries, earned=earned, steps=steps
        )
        return state, Metrics(steps, episodes, returns, each, learning, episode_metrics)


def without_device_axis(state: TrainState) -> TrainState:
    """One device's part of a state, without the axis of devices."""
    return state._replace(
        **{field: jax.tree.map(lambda x: x[0], getattr(state, field)) for field in LOCAL}
    )


def with_device_axis(state: TrainState) -> TrainState:
    """Undo `without_device_axis`."""
    return state._replace(
        **{field: jax.tree.map(lambda x: x[None], getattr(state, field)) for field in LOCAL}
    )


def _as_it_is(state: TrainState) -> TrainState:
    return state


def tally(
    earned: dict[str, Array], windows: dict[str, Window], ended: Array
) -> tuple[dict[str, Array], Results, dict[str, Array]]:
    """Add up the rewards of a window.

    Returns what is earned in episodes under way, the results of those that ended, and their returns
    by agent."""
    rewards = {team: _own(window.reward) for team, window in windows.items()}
    now, returns = jax.lax.scan(_earn, earned, (rewards, ended))
    return now, Results(ended, {team: value.mean(-1) for team, value in returns.items()}), returns


def _rows(agents: int) -> int:
    """Number of returns kept for a team: one per agent, or only the mean of a large team."""
    return agents if agents <= EACH else 1


def _own(reward: Array) -> Array:
    """Rewards `[T,B,rows]` from `[T,B,N]`."""
    return reward if _rows(reward.shape[-1]) > 1 else reward.mean(-1, keepdims=True)


def _earn(
    so_far: dict[str, Array], step: tuple[dict[str, Array], Array]
) -> tuple[dict[str, Array], dict[str, Array]]:
    rewards, ended = step
    return {
        team: jnp.where(ended[:, None], 0.0, so_far[team] + reward)
        for team, reward in rewards.items()
    }, so_far
