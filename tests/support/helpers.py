"""What the algorithm tests share: one device to run on, a loop that tells what it saw."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.sharding import Mesh, PartitionSpec
from places import ROOT
from shared_programs import of_loop, shared

from shoal import algorithms
from shoal.algorithms import find, random_policy
from shoal.algorithms.off_policy import Batch, Learner
from shoal.algorithms.on_policy import OnPolicy
from shoal.engine.loop import Loop, Metrics
from shoal.engine.play import Play, collect
from shoal.envs import Env, make
from shoal.learning.memory import Drawn, Replay, Rollout
from shoal.learning.reduce import AXIS, mean_weights
from shoal.types import Clock, Decision, Share, TrainState, View, Window

POLICY, VALUE, PARALLEL, PATHWISE = (
    tuple(kind.name for kind in family)
    for family in (
        algorithms.POLICY,
        algorithms.VALUE,
        algorithms.PARALLEL,
        algorithms.PATHWISE,
    )
)
REPLAYED = (*VALUE, *PATHWISE)
LEARNERS = (*POLICY, *PARALLEL, *REPLAYED)
TINY = {"hidden": 8, "layers": 1, "lr": 1e-2}
# off-policy: learn at once, from little
OFF = {"warmup": 0, "capacity": 320, "batch": 8, "length": 6, "updates": 2}
TEAM = "agent"
PAGES = ROOT / "docs"
with_pages = pytest.mark.skipif(
    not PAGES.is_dir(), reason="tests of the pages need them beside the tests"
)
# each device its part along the first axis, or all the same
OWN, SAME = PartitionSpec(AXIS), PartitionSpec()


def quick(values: Iterable[Any], count: int) -> list[Any]:
    """Parameters of which `make test` takes the first few; the others are slow."""
    values = list(values)
    slow = [pytest.param(*_row(value), marks=pytest.mark.slow) for value in values[count:]]
    return [*values[:count], *slow]


def _row(value: Any) -> tuple[Any, ...]:
    """One test's parameters, which may be several."""
    return value if isinstance(value, tuple) else (value,)


def on_devices(f: Callable, devices: int = 1, ins: Any = SAME, outs: Any = SAME) -> Callable:
    """`f` where `parallel.total` is defined: on a mesh of so many devices, arguments and results
    the same on all."""
    mesh = Mesh(np.array(jax.devices()[:devices]), (AXIS,))
    return jax.shard_map(f, mesh=mesh, in_specs=ins, out_specs=outs, check_vma=False)


def build(name: str, env: Env, team: str = TEAM, **settings: Any) -> Any:
    """The algorithm of that name for a team of `env`."""
    kind = find(name)
    return kind(kind.Config(**settings), env.teams[team])


def bits(tree: Any) -> list[bytes]:
    """The leaves to the bit."""
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def assert_close(ours: Any, theirs: Any, tolerance: float) -> None:
    """Two trees, leaf by leaf."""
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), ours, theirs
    )


def run(loop: Loop, iterations: int, seed: int = 0) -> tuple[TrainState, Metrics]:
    """`Loop.init` and `Loop.program` as one program, which compiles faster than the two."""

    def whole(key: Array) -> tuple[TrainState, Metrics]:
        rng = np.random.default_rng(seed)
        learners = {team: algorithm.init(rng) for team, algorithm in loop.algorithms.items()}
        return loop.program(iterations)(loop._open_all(learners, key))

    program = shared(("run", of_loop(loop), iterations, seed), lambda: jax.jit(whole))
    return jax.device_get(program(jax.random.key(seed)))


def opened(env: Env, games: int, seed: int = 0) -> tuple[Any, dict[str, View]]:
    """`Env.reset` as one program: op by op it is dozens."""
    return jax.jit(env.reset, static_argnums=1)(jax.random.key(seed), games)


def decided(
    algorithm: Any, learner: Any, key: Array, view: View, carry: Any, now: Clock, greedy: bool
) -> Decision:
    """`Algorithm.act` as one program: op by op it is a hundred."""
    return jax.jit(algorithm.act, static_argnums=5)(learner, key, view, carry, now, greedy)


def mortal() -> Env:
    """The game whose agents die in turn and may not do everything: agent 0 lives for half of an
    episode."""
    return make("test/mortal", n=2, length=6)


class Seen(NamedTuple):
    """What one call of `learn` was given, and what the learner then thought of it."""

    learner: Any
    memory: Rollout
    clock: Clock
    log_prob: Array  # [T,B,N] of the actions taken, evaluated again

    @property
    def window(self) -> Window:
        assert self.memory.window is not None
        return self.memory.window


class Probe(NamedTuple):
    """A few iterations of the loop, and what `learn` saw in the last of them."""

    algorithm: Any
    state: TrainState
    metrics: Metrics
    seen: Seen


def _spy(
    algorithm: OnPolicy, learner: Any, memory: Rollout, key: Array, clock: Clock
) -> tuple[Any, Any, dict]:
    """`learn`, with all it saw among its metrics."""
    assert memory.window is not None
    context, _ = algorithm._contexts(memory.window)
    dist, *_ = algorithm.policy(learner.params["actor"], context, memory.window.carry.hidden, clock)
    seen = Seen(learner, memory, clock, dist.log_prob(memory.window.record.raw))
    after, kept, metrics = type(algorithm).learn(algorithm, learner, memory, key, clock)
    return after, kept, {"learn": metrics, "seen": seen}


@cache
def probe(name: str, torso: str = "mlp", sharing: str = "shared") -> Probe:
    """Three iterations of a member of the family on the mortal game."""
    env = mortal()
    algorithm = build(name, env, torso=torso, sharing=sharing, last_action=True, **TINY)
    algorithm.learn = partial(_spy, algorithm)
    state, metrics = run(Loop(env, {TEAM: algorithm}, games=8, window=10, steps=1000), 3)
    del algorithm.learn
    seen = jax.tree.map(lambda x: x[-1], metrics.learning[TEAM]["seen"])
    return Probe(algorithm, state, metrics, seen)


@cache
def learnt(name: str, **settings: Any) -> Any:
    """`window, clock -> learner before, learner after` for a fresh learner of that kind."""
    algorithm = build(name, mortal(), last_action=True, **TINY, **settings)

    def whole(window: Window, clock: Clock) -> tuple[Any, Any]:
        learner = algorithm.init(np.random.default_rng(0))
        share = Share(games=window.view.first.shape[1], window=len(window.action))
        memory = algorithm.remember(algorithm.memory(learner, share), window)
        return learner, algorithm.learn(learner, memory, jax.random.key(0), clock)[0]

    return jax.jit(on_devices(whole))


@cache
def first_step(name: str, **settings: Any) -> Any:
    """`learner, memory, clock -> gradients, metrics` of all rows at once, before any update."""
    algorithm = build(name, mortal(), last_action=True, **TINY, **settings)

    def whole(learner: Any, memory: Rollout, clock: Clock) -> tuple[dict, dict]:
        learner, batch, _ = algorithm.prepare(learner, memory, jax.random.key(0), clock)
        batch = batch._replace(weight=mean_weights(batch.weight))
        return jax.grad(algorithm.losses, has_aux=True)(learner.params, learner, batch, clock)

    return jax.jit(on_devices(whole))


def clock(steps: float = 0.0, progress: float = 0.0) -> Clock:
    return Clock(jnp.float32(steps), jnp.float32(progress))


# -- off-policy ------------------------------------------------------------------------------------


class Studied(NamedTuple):
    """A learner that has not learnt yet, what it played, and a batch of that."""

    algorithm: Any
    learner: Learner
    memory: Replay
    drawn: Drawn
    batch: Batch
    played: Any  # Window of all steps from the first on; its record is what `watch` made of each


@cache
def studied(
    name: str,
    env: Env | None = None,
    team: str = TEAM,
    windows: int = 4,
    watch: Any = None,
    **settings: Any,
) -> Studied:
    """4 games of so many windows of 10 steps, all kept; `watch(algorithm, learner, view, carry)`
    sees every act."""
    env = env or mortal()
    algorithm = build(name, env, team, **(TINY | OFF | settings))
    players = {
        other: algorithm if other == team else random_policy(spec)
        for other, spec in env.teams.items()
    }
    if watch:
        algorithm.act = partial(_watched, watch, algorithm)

    def whole() -> tuple:
        learner = algorithm.init(np.random.default_rng(0))
        learners = {other: learner if other == team else () for other in players}
        memory = algorithm.memory(learner, Share(games=4, window=10))
        game, views = env.reset(jax.random.key(0), 4)
        play = Play(
            game, views, {other: one.carry(learners[other], 4) for other, one in players.items()}
        )

        def step(state: tuple, key: Array) -> tuple:
            play, memory = state
            play, seen, _ = collect(env, players, learners, play, key, clock(), 10)
            return (play, algorithm.remember(memory, seen[team])), seen[team]

        (_, memory), seen = jax.lax.scan(
            step, (play, memory), jax.random.split(jax.random.key(1), windows)
        )
        c = algorithm.config
        drawn = memory.draw(jax.random.key(2), c.batch, c.length, algorithm.sees_rivals)
        return learner, memory, drawn, algorithm.batch(drawn), seen

    learner, memory, drawn, batch, seen = jax.device_get(jax.jit(on_devices(whole))())
    vars(algorithm).pop("act", None)
    return Studied(algorithm, learner, memory, drawn, batch, _joined(seen))


def _watched(
    watch: Any,
    algorithm: Any,
    learner: Any,
    key: Array,
    view: Any,
    carry: Any,
    now: Clock,
    greedy: bool,
):
    decision = type(algorithm).act(algorithm, learner, key, view, carry, now, greedy)
    return decision._replace(record=watch(algorithm, learner, view, carry))


def _joined(seen: Window) -> Window:
    """Windows one after the other as one: instant 0 of each but the first is the last of the one
    before."""
    whole = jax.tree.map(lambda x: np.concatenate([x[0, :1], *x[:, 1:]]), seen.view)
    action, record, rivals = jax.tree.map(np.concatenate, (seen.action, seen.record, seen.rivals))
    return Window(whole, action, record, (), (), rivals)


def call(f: Callable, *args: Any) -> Any:
    """What `f` gives on one device, on the host."""
    return jax.device_get(jax.jit(on_devices(f))(*args))


def altered(learner: Learner, part: str, field: str = "params", by: float = 0.5) -> Learner:
    """The learner with one of its nets moved."""
    nets = dict(getattr(learner, field))
    nets[part] = jax.tree.map(lambda x: x + by, nets[part])
    return learner._replace(**{field: nets})


@cache
def replayed(
    name: str, torso: str = "mlp", sharing: str = "shared", env: Env | None = None
) -> tuple:
    """Three iterations of an off-policy algorithm on the mortal game: it, its first learner, state
    and metrics."""
    env = env or mortal()
    algorithm = build(name, env, torso=torso, sharing=sharing, last_action=True, **TINY, **OFF)
    state, metrics = run(Loop(env, {TEAM: algorithm}, games=4, window=10, steps=1000), 3)
    return algorithm, algorithm.init(np.random.default_rng(0)), state, metrics


def traced(name: str, torso: str, sharing: str, env: Env, **settings: Any) -> dict:
    """Shapes of an iteration's metrics, nothing compiled."""
    own = settings | (OFF if name in REPLAYED else {})
    algorithm = build(name, env, torso=torso, sharing=sharing, last_action=True, **TINY, **own)
    loop = Loop(env, {TEAM: algorithm}, games=4, window=10, steps=1000)
    learners = {TEAM: algorithm.init(np.random.default_rng(0))}
    state = jax.eval_shape(loop._open_all, learners, jax.random.key(0))
    after, metrics = jax.eval_shape(loop.program(1), state)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(
        lambda x: (x.shape, x.dtype), state
    )
    return metrics.learning[TEAM]
