"""A team's policy as a function of arrays by name, with a free number of games."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax import export as jax_export

from ..algorithms.base import Algorithm
from ..errors import ShoalError
from ..types import Clock, Decision, Spec, View
from .plain import plain
from .steps import Plain, Value

GAMES = "B"  # name of the free axis
NEXT = "next_"  # prefix of outputs that are inputs of the next step
Arrays = dict[str, Any]  # by name


class Policy(NamedTuple):
    """One team's policy, and which of its agents play."""

    team: str
    algorithm: Algorithm
    learner: Any
    clock: Clock
    agents: tuple[str, ...]
    greedy: bool

    @property
    def spec(self) -> Spec:
        return self.algorithm.spec

    @property
    def rows(self) -> list[int]:
        """Places of the playing agents in their team."""
        return [i for i, agent in enumerate(self.spec.agents) if agent in self.agents]


class Unsupported(ShoalError):
    """A policy that a format cannot express."""

    def __init__(self, policy: Policy, why: str):
        super().__init__(
            f"the policy of team {policy.team!r} ({policy.algorithm.name}) cannot be exported:"
            f" {why}"
        )


class Program:
    """A policy's `act`, of named arrays.

    Inputs are `obs`, `legal`, `alive`, `first`, `seed` and the leaves of the carry, as far as they
    are read; outputs are `action`, `logits` where there are some, and the next carry."""

    def __init__(self, policy: Policy):
        self.policy = policy
        self._learner = jax.tree.map(jnp.asarray, policy.algorithm.acting(policy.learner))
        leaves = jax.tree.leaves_with_path(policy.algorithm.carry(self._learner, 1))
        self._tree = jax.tree.structure(policy.algorithm.carry(self._learner, 1))
        self._initial = {
            re.sub(r"\W+", "_", f"carry{jax.tree_util.keystr(path)}").rstrip("_"): np.asarray(leaf)
            for path, leaf in leaves
        }
        self._trace()

    def act(self, *arrays: Array) -> tuple[Array, ...]:
        """The outputs from the inputs, in their order."""
        everything = self._outputs(dict(zip(self.inputs, arrays, strict=True)))
        return tuple(everything[name] for name in self.outputs)

    @property
    def title(self) -> str:
        """What it is, in a line."""
        policy = self.policy
        how = "greedy" if policy.greedy else "sampled"
        return f"Policy of team {policy.team!r}, trained by {policy.algorithm.name}, {how}"

    @property
    def plain(self) -> Plain:
        """The program in plain operations."""
        if isinstance(self._plain, Plain):
            return self._plain
        raise Unsupported(
            self.policy, f"it needs {self._plain}, for which only stablehlo has words"
        )

    @property
    def structs(self) -> list[jax.ShapeDtypeStruct]:
        """The inputs as JAX describes arrays."""
        return [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in self.inputs.values()]

    def decide(self, view: View, carry: Any, key: Array) -> tuple[Decision, Array | None]:
        """The policy's own decision and logits, in JAX."""
        return self._decide(self._learner, view, carry, key)

    @cached_property
    def _decide(self) -> Callable[..., tuple[Decision, Array | None]]:
        policy = self.policy

        def decided(learner: Any, view: View, carry: Any, key: Array) -> Any:
            clock = policy.clock
            decision = policy.algorithm.act(learner, key, view, carry, clock, policy.greedy)
            return decision, policy.algorithm.logits(learner, view, carry, clock)

        return jax.jit(decided)

    # -- the function ------------------------------------------------------------------------------

    def _outputs(self, inputs: Arrays) -> Arrays:
        """All outputs; inputs that are left out are zeros."""
        games = inputs["obs"].shape[0]
        nothing = {
            name: jnp.zeros((games, *value.shape[1:]) if value.shape else (), value.dtype)
            for name, value in self._shapes(games).items()
            if name not in inputs
        }
        inputs = inputs | nothing
        view = self._view(inputs)
        leaves = [self._carried(name, inputs) for name in self._initial]
        carry = jax.tree.unflatten(self._tree, leaves)
        policy = self.policy
        algorithm = policy.algorithm
        key = jax.random.key(inputs["seed"])
        decision = algorithm.act(self._learner, key, view, carry, policy.clock, policy.greedy)
        logits = algorithm.logits(self._learner, view, carry, policy.clock)
        outputs = {"action": self._own(decision.action)}
        if logits is not None:
            outputs["logits"] = self._own(logits)
        after = jax.tree.leaves(decision.carry)
        return outputs | dict(zip([NEXT + name for name in self._initial], after, strict=True))

    def _view(self, inputs: Arrays) -> View:
        """The view of the whole team; agents that do not play are absent."""
        spec = self.policy.spec
        obs = self._everyone(inputs["obs"])
        legal = self._everyone(inputs["legal"])
        alive = self._everyone(inputs["alive"])
        if min(spec.obs_sizes, default=spec.obs) < spec.obs:
            obs = jnp.where(own_sizes(spec.obs_sizes, spec.obs), obs, jnp.zeros_like(obs))
        if min(spec.action_sizes, default=spec.action.size) < spec.action.size:
            legal = legal & own_sizes(spec.action_sizes, spec.action.size)
        reward = jnp.zeros(alive.shape, jnp.float32)
        state = jnp.zeros((alive.shape[0], spec.state), jnp.float32)  # actors never read it
        return View(obs, state, legal, alive, inputs["first"], reward, alive.astype(jnp.float32))

    def _everyone(self, own: Array) -> Array:
        """`[B,N,…]` rows of all agents, zeros for those that do not play."""
        rows = self.policy.rows
        everyone = range(self.policy.spec.n)
        if len(rows) == len(everyone):
            return own
        nothing = jnp.zeros_like(own[:, 0])
        return jnp.stack([own[:, rows.index(i)] if i in rows else nothing for i in everyone], 1)

    def _own(self, everyone: Array) -> Array:
        """Rows of the agents that play."""
        rows = self.policy.rows
        if len(rows) == self.policy.spec.n:
            return everyone
        return jnp.stack([everyone[:, i] for i in rows], 1)

    def _carried(self, name: str, inputs: Arrays) -> Array:
        """A leaf of the carry, which callers fill with zeros where an episode opens."""
        given = inputs[name]
        initial = self._initial[name]
        if not np.any(initial):
            return given
        first = inputs["first"].reshape(-1, *(1,) * (given.ndim - 1))
        return jnp.where(first, initial, given)

    # -- shapes ------------------------------------------------------------------------------------

    def _shapes(self, games: Any) -> dict[str, Value]:
        """All inputs that a policy may read."""
        spec = self.policy.spec
        agents = len(self.policy.rows)
        kind = np.dtype(np.uint8 if spec.pixels else np.float32)
        truth = np.dtype(bool)
        values = (
            Value("obs", (games, agents, spec.obs), kind),
            Value("legal", (games, agents, spec.action.size), truth),
            Value("alive", (games, agents), truth),
            Value("first", (games,), truth),
            Value("seed", (), np.dtype(np.int32)),
            *(
                Value(name, (games, *leaf.shape[1:]), np.dtype(leaf.dtype))
                for name, leaf in self._initial.items()
            ),
        )
        return {value.name: value for value in values}

    def _trace(self) -> None:
        """Find out what is read, and the shapes of outputs."""
        (games,) = jax_export.symbolic_shape(GAMES, constraints=[f"{GAMES} >= 1"])
        shapes = self._shapes(games)
        structs = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in shapes.values()]
        try:
            traced, made = jax.make_jaxpr(
                lambda *arrays: self._outputs(dict(zip(shapes, arrays, strict=True))),
                return_shape=True,
            )(*structs)
        except Exception as error:  # an algorithm may do anything with a symbol
            raise Unsupported(
                self.policy,
                f"it cannot be traced for a free number of games ({type(error).__name__});"
                " choose another team",
            ) from error
        outputs = {name: Value(name, made[name].shape, made[name].dtype) for name in made}
        try:
            # a dictionary's leaves are in the order of its sorted keys
            self._plain: Plain | str = plain(traced, structs, list(shapes), sorted(made))
            read, wanted = _read(self._plain)
            self._plain = self._plain.only([*wanted], ["obs", *read])
        except NotImplementedError as error:
            self._plain = str(error)
            read = {name for name, value in shapes.items() if 0 not in value.shape}
            wanted = [name for name in outputs if name.removeprefix(NEXT) in {*read, *made}]
        self.inputs = {name: shapes[name] for name in shapes if name in {"obs", *read}}
        self.outputs = {name: outputs[name] for name in outputs if name in wanted}


def _read(program: Plain) -> tuple[set[str], set[str]]:
    """Inputs that decide actions, now or later, and the outputs that are wanted: actions, logits,
    and what later actions depend on."""
    made = {value.name for value in program.outputs}
    wanted = made & {"action", "logits"}
    while True:
        read = program.only([*wanted], []).read
        more = wanted | (made & {NEXT + name for name in read})
        if more == wanted:
            return read, wanted
        wanted = more


def own_sizes(sizes: tuple[int, ...], widest: int) -> np.ndarray:
    """`[N,widest]` bool: what of a row is the agent's own."""
    return np.arange(widest) < np.array(sizes)[:, None]
