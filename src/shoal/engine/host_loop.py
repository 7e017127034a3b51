"""The training loop for games on the host: decisions are jitted, games step outside, learning is
that of the compiled loop."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec

from ..algorithms.base import Algorithm
from ..envs.host.arena import Alone, Arena
from ..envs.host.faults import Fault, refuse_too_many
from ..envs.host.match import Hosted
from ..envs.host.parts import ALL, HALVES
from ..envs.host.watched import Halted, never
from ..errors import ShoalError
from ..learning.reduce import AXIS
from ..learning.trees import at
from ..types import Clock, TrainState, View
from .host_window import HostWindow
from .loop import Loop, Metrics, with_device_axis, without_device_axis
from .play import decide, windows
from .played import Beginning, PlayedSteps, PlayedWindow, strike, valid_steps
from .stage import HostStage, Stage


@dataclass(eq=False)
class HostLoop(Loop):
    """`Loop` for games that are not compiled.

    A stage has all games along one axis, `[B,…]`; here every array has an axis of devices in front,
    `[D,B/D,…]`. The first device decides for the games of all devices, with each device's own keys;
    each device learns from its own games.
    """

    env: Hosted
    workers: int = 0  # processes that step the games; 0 steps them in this process
    patience: float = 60.0  # seconds that a step may take in a worker process
    tolerance: int = 100  # faults of the environment, beyond which the run ends
    # whether the run is to end: asked before every iteration and while waiting for a game
    halted: Callable[[], bool] = never
    alone: Alone | None = None  # lets only one arena at a time keep its games open
    rows: range | None = None  # the games that are played here; None plays all
    # 1 plays a window while learning from the one before, so with learners one update old
    staleness: int = 0
    # whether policies act for one half of the games while the other half steps, with the same
    # result; None finds out in the first window whether that pays
    halves: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        assert self.devices == 1 or not self.staleness, "one device learns while games go on"
        self.opened: Stage | None = None
        self.ahead: Future[tuple[Beginning, PlayedSteps]] | None = None  # what was played ahead
        self.thread = ThreadPoolExecutor(1)  # learns; games belong to the thread that made them

    def init(self, seed: int) -> TrainState:
        """Open the games and return the state before the first step."""
        learners = self.learners(seed)
        self.opened = stage = self.stage(seed)
        keys = jax.vmap(jax.random.split)(jax.random.split(jax.random.key(seed), self.devices))
        views, faults = stage.open(keys[:, 1])
        self._tolerate(faults)
        own = jax.tree.map(lambda x: jnp.stack([x] * self.devices), self._beginnings(learners))
        views = self._shared(views)
        game = self._shared({"episode": stage.episodes()})
        carries, memories, earned = own
        key = jax.random.key_data(keys[:, 0])
        state = TrainState(game, views, carries, learners, memories, earned, key, jnp.uint32(0))
        return super().restored(state)  # placed on devices as `_learning_program` returns it

    def template(self, seed: int) -> TrainState:
        """A state of the right shapes; opens the games, as only they know the shapes of views."""
        return self.init(seed)

    def restored(self, state: TrainState) -> TrainState:
        """Go on from a saved state with every game's next episode: an environment's own state
        cannot be saved.

        The first step opens that episode, as after an end, so that its opening view is in the
        stream. What was played ahead is forgotten.
        """
        assert self.opened, "the games are not open"
        self.ahead = None
        self.opened.renew(np.asarray(state.game["episode"]).reshape(-1))
        return super().restored(state)

    @property
    def _metrics(self) -> tuple[str, ...]:
        """Names of the environment's own metrics."""
        return getattr(self.env, "metrics", ())

    def _shared(self, tree: Any) -> Any:
        """Copy arrays `[B,…]` into `[D,B/D,…]`."""
        return jax.tree.map(
            lambda x: np.array(x).reshape(self.devices, self.share.games, *x.shape[1:]), tree
        )

    def stage(self, seed: int) -> Stage:
        """Make the stage that plays the games."""
        seen = any(algorithm.sees_state for algorithm in self.algorithms.values())
        env = self.env if seen else self.env.stateless
        return HostStage(
            Arena(
                env,
                self.games,
                seed,
                self.workers,
                self.patience,
                self.halted,
                self.alone,
                rows=self.rows,
            )
        )

    def close(self) -> None:
        self.thread.shutdown(wait=False)
        if self.opened:
            self.opened.close()

    def compile(
        self, state: TrainState, iterations: int
    ) -> Callable[[TrainState], tuple[TrainState, Metrics | None]]:
        _, keys_play, keys = jax.device_get(self._split_keys(state.key))
        clock = jax.device_get(self._clock(state.steps))
        views, carries = jax.device_get((state.views, state.carries))
        actions, after, records = self._decide(
            *self._acting(state), clock, views, carries, keys_play, 0
        )
        streams = jax.tree.map(partial(_shape, self.window + 1), views)
        first = views[next(iter(views))].first
        done = jax.tree.map(partial(_shape, self.window), (actions, records, first))
        kept = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (carries, after))
        flat: Any = jax.ShapeDtypeStruct(done[2].shape, np.float32)
        episode_metrics: Any = dict.fromkeys(self._metrics, flat)
        played = PlayedWindow(streams, done[0], done[1], kept[0], kept[1], done[2], episode_metrics)
        self.learn = self._learning_program.lower(state, played, keys, clock).compile()
        return partial(self._run_here, iterations)

    def _run_here(self, iterations: int, state: TrainState) -> tuple[TrainState, Metrics | None]:
        """Run that many iterations, or fewer if the run is to end."""
        done: list[Metrics] = []
        while len(done) < iterations and not (done and self.halted()):
            try:
                state, metrics = self._iterate(state)
            except Halted:  # the state is still that before the iteration
                break
            except ShoalError as error:  # here too
                self.failure = error
                break
            done.append(jax.device_get(metrics))
        return state, jax.tree.map(lambda *rows: np.stack(rows), *done) if done else None

    def _iterate(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """Learn from a window: the one that was played ahead, else one that is played now."""
        if self.ahead:
            begun, steps = self.ahead.result()
            self.ahead = None
        else:
            views, carries = jax.device_get((state.views, state.carries))
            begun = self._beginning(state.key, state.steps, views, carries)
            steps = self._play_from(self._acting(state), begun)
        state, played = self._taken(state, begun, steps)
        learn = partial(self.learn, state, played, begun.keys_learn, begun.clock)
        if not self.staleness:
            return learn()
        done = int(state.steps) + valid_steps(steps)
        if done >= self.steps:
            return learn()
        # `learn` takes over the arrays of the state: what plays meanwhile has copies
        tree, leaves = self._acting(state)
        acting = (tree, [leaf.copy() for leaf in leaves])
        views, carries = jax.tree.map(np.array, (state.views, state.carries))
        following = self._beginning(begun.key, np.uint32(done), views, carries)
        learning = self.thread.submit(lambda: jax.block_until_ready(learn()))
        self.ahead = self._play_ahead(acting, following)
        return learning.result()

    def _beginning(self, key: Any, steps: Any, views: Any, carries: Any) -> Beginning:
        """The beginning of a window after `steps` steps."""
        following, keys_play, keys_learn = jax.device_get(self._split_keys(key))
        clock = jax.device_get(self._clock(steps))
        return Beginning(clock, views, carries, following, keys_play, keys_learn)

    def _play_from(self, acting: tuple[Any, list[Array]], begun: Beginning) -> PlayedSteps:
        return self.play(acting, begun.clock, begun.views, begun.carries, begun.keys_play)

    def _play_ahead(
        self, acting: tuple[Any, list[Array]], begun: Beginning
    ) -> Future[tuple[Beginning, PlayedSteps]]:
        """Play a window that is learnt from later. What ends the run is raised then, so that what
        is being learnt meanwhile is kept."""
        ahead: Future[tuple[Beginning, PlayedSteps]] = Future()
        try:
            ahead.set_result((begun, self._play_from(acting, begun)))
        except (Halted, ShoalError) as error:
            ahead.set_exception(error)
        return ahead

    def _taken(
        self, state: TrainState, begun: Beginning, steps: PlayedSteps
    ) -> tuple[TrainState, PlayedWindow]:
        """The state after a window, and the window without broken episodes."""
        assert self.opened, "the games are not open"
        streams = steps.streams
        last = jax.tree.map(lambda x: x[-1].copy(), streams)
        ended = np.array(next(iter(streams.values())).first[1:]) & ~steps.lost
        earned = jax.tree.map(np.array, jax.device_get(state.earned))
        strike(streams, ended, earned, steps.broken)
        self.dropped.extend(np.nonzero(steps.broken.reshape(self.window, -1))[1].tolist())
        game = self._shared({"episode": self.opened.episodes()})
        after = steps.carries
        state = state._replace(game=game, views=last, carries=after, earned=earned, key=begun.key)
        parts = (streams, steps.actions, steps.records, ended, steps.episode_metrics)
        streams, actions, records, ended, episode_metrics = jax.tree.map(
            lambda x: x.swapaxes(0, 1), parts
        )
        played = PlayedWindow(
            streams, actions, records, begun.carries, after, ended, episode_metrics
        )
        return state, played

    def play(
        self,
        acting: tuple[Any, list[Array]],
        clock: Clock,
        views: dict[str, View],
        carries: dict[str, Any],
        keys: np.ndarray,
    ) -> PlayedSteps:
        """Play a window step by step, from these views and carries on."""
        stage = self.opened
        assert stage, "the games are not open"
        parts = HALVES if self.halves and HALVES[0] in stage.rows else (ALL,)
        decide = partial(self._decide, *acting, clock)
        window = HostWindow(stage, decide, parts, self.window, views, carries, keys, self._metrics)
        for t in range(self.window):
            for part in parts:
                if t:
                    self._tolerate(window.see(part, t))
                window.act(part, t)
        for part in parts:
            self._tolerate(window.see(part, self.window))
        if self.halves is None:
            self.halves = window.halves_pay
        return window.played()

    def _tolerate(self, faults: list[Fault]) -> None:
        """Record faults; raise if there are too many."""
        self.faults.extend(faults)
        refuse_too_many(self.faults, self.tolerance, "this run")

    @cached_property
    def _split_keys(self) -> Any:
        """Split the keys of an iteration on each device, as the compiled loop does."""
        return jax.jit(jax.vmap(partial(_split_keys, len(self.algorithms), self.window)))

    @cached_property
    def _clock(self) -> Any:
        return jax.jit(self.clock)

    @cached_property
    def _decide(self) -> Any:
        return jax.jit(partial(_decide, self.algorithms), static_argnums=0)

    def _acting(self, state: TrainState) -> tuple[Any, list[Array]]:
        """The part of the learners that acts, flattened once: flattening takes as long as a
        small net needs to act."""
        leaves, tree = jax.tree.flatten(
            {team: a.acting(state.learners[team]) for team, a in self.algorithms.items()}
        )
        return tree, [leaf.addressable_data(0) for leaf in leaves]

    @cached_property
    def _learning_program(self) -> Any:
        """`state, played, keys, clock -> state, metrics`, jitted and donated."""
        own = PartitionSpec(AXIS)
        same = PartitionSpec()
        ins = (self.specs, own, own, same)
        outs = (self.specs, same)
        body = jax.shard_map(
            self._learn_from_played, mesh=self.mesh, in_specs=ins, out_specs=outs, check_vma=False
        )
        placed = jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), (ins, outs))
        return jax.jit(body, donate_argnums=0, in_shardings=placed[0], out_shardings=placed[1])

    def _learn_from_played(
        self, state: TrainState, played: PlayedWindow, keys: Array, clock: Clock
    ) -> tuple[TrainState, Metrics]:
        """Learn from one device's part of a window."""
        own = at(played, 0)
        seen = windows(
            self.env.teams, own.streams, own.actions, own.records, own.carries, own.carries_end
        )
        state, metrics = self.learn_from_windows(
            without_device_axis(state),
            seen,
            own.ended,
            own.episode_metrics,
            jax.random.wrap_key_data(keys[0]),
            clock,
        )
        return with_device_axis(state), metrics


def _split_keys(teams: int, steps: int, key: Array) -> tuple[Array, Array, Array]:
    """Split into the next key, keys for playing `[T,1+teams]`, and keys for learning `[teams]`."""
    key, key_play, *keys = jax.random.split(jax.random.wrap_key_data(key), 2 + teams)
    return jax.tree.map(
        jax.random.key_data, (key, jax.random.split(key_play, (steps, 1 + teams)), jnp.stack(keys))
    )


def _decide(
    algorithms: dict[str, Algorithm],
    tree: Any,
    leaves: list[Array],
    clock: Clock,
    views: dict[str, View],
    carries: dict[str, Any],
    keys: Array,
    step: Array,
) -> tuple[dict[str, Array], dict[str, Any], dict[str, Any]]:
    """Every team's actions, carries and records; each device uses its own keys."""
    learners = jax.tree.unflatten(tree, leaves)
    own = jax.random.wrap_key_data(keys[:, step, 1:])
    each = partial(decide, algorithms, learners, clock, False)
    return jax.vmap(each)(views, carries, [own[:, team] for team in range(len(algorithms))])


def _shape(steps: int, x: Any) -> jax.ShapeDtypeStruct:
    """The shape of `steps` instants of `x [D,…]`: `[D,steps,…]`."""
    return jax.ShapeDtypeStruct((x.shape[0], steps, *x.shape[1:]), x.dtype)
