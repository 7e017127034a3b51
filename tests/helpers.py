"""What the algorithm tests share: one device to run on, a loop that tells what it saw."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from shoal.algorithms import ALGORITHMS, find
from shoal.algorithms.policy import Policy
from shoal.envs import Env, make
from shoal.loop import Loop
from shoal.memory import Rollout
from shoal.parallel import AXIS, shares
from shoal.types import Clock, TrainState, Window

LEARNERS = tuple(name for name in ALGORITHMS if name != "random")
TINY = {"hidden": 8, "layers": 1, "lr": 1e-2}
TEAM = "agent"
OWN, SAME = PartitionSpec(AXIS), PartitionSpec()  # each device its part along the first axis, or all the same


def on_devices(f: Callable, devices: int = 1, ins: Any = SAME, outs: Any = SAME) -> Callable:
    """`f` where `parallel.total` is defined: on a mesh of so many devices, arguments and results the same on all."""
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
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), ours, theirs)


def run(loop: Loop, iterations: int, seed: int = 0) -> tuple[TrainState, dict]:
    """`Loop.init` and `Loop.program` as one program, which compiles faster than the two."""

    def whole(key: Array) -> tuple[TrainState, dict]:
        rng = np.random.default_rng(seed)
        learners = {team: algorithm.init(rng) for team, algorithm in loop.algorithms.items()}
        return loop.program(iterations)(loop._open_all(learners, key))

    return jax.device_get(jax.jit(whole)(jax.random.key(seed)))


def mortal() -> Env:
    """The game whose agents die in turn and may not do everything: agent 0 lives for half of an episode."""
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
    metrics: dict
    seen: Seen


def _spy(algorithm: Policy, learner: Any, memory: Rollout, key: Array, clock: Clock) -> tuple[Any, Any, dict]:
    """`learn`, with all it saw among its metrics."""
    assert memory.window is not None
    scene, _ = algorithm._scenes(memory.window)
    dist, *_ = algorithm.policy(learner.params["actor"], scene, memory.window.carry.hidden, clock)
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
    seen = jax.tree.map(lambda x: x[-1], metrics[TEAM]["seen"])
    return Probe(algorithm, state, metrics, seen)


@cache
def learnt(name: str, **settings: Any) -> Any:
    """`window, clock -> learner before, learner after` for a fresh learner of that kind."""
    algorithm = build(name, mortal(), last_action=True, **TINY, **settings)

    def whole(window: Window, clock: Clock) -> tuple[Any, Any]:
        learner = algorithm.init(np.random.default_rng(0))
        memory = algorithm.remember(algorithm.memory(learner, window.view.first.shape[1]), window)
        return learner, algorithm.learn(learner, memory, jax.random.key(0), clock)[0]

    return jax.jit(on_devices(whole))


@cache
def first_step(name: str, **settings: Any) -> Any:
    """`learner, memory, clock -> gradients, metrics` of all rows at once, before any update."""
    algorithm = build(name, mortal(), last_action=True, **TINY, **settings)

    def whole(learner: Any, memory: Rollout, clock: Clock) -> tuple[dict, dict]:
        learner, batch, _ = algorithm.prepare(learner, memory, jax.random.key(0), clock)
        batch = batch._replace(weight=shares(batch.weight))
        return jax.grad(algorithm.losses, has_aux=True)(learner.params, learner, batch, clock)

    return jax.jit(on_devices(whole))


def clock(steps: float = 0.0, progress: float = 0.0) -> Clock:
    return Clock(jnp.float32(steps), jnp.float32(progress))
