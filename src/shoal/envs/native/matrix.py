"""Repeated matrix games: every agent picks an action, a table says what each one earns.

Settings of Papoudakis et al., "Benchmarking Multi-Agent Deep RL Algorithms in Cooperative Tasks"
(2021): 25 repetitions, after which the game is truly over, and an observation that never changes.
Rows of a table are agent 0's actions; theirs of Climbing has the two agents' seats exchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jax import Array

from ...render import Patch, Scene, Text
from ...types import Discrete, Spec
from ..game import Game, at_least, within


@dataclass(frozen=True)
class MatrixGame(Game):
    """Base of the matrix games: a subclass sets `sides` and `payoff`."""

    repetitions: int = 25
    """rounds per episode; 1 makes it a one-step game"""

    sides = {"agent": 2}  # number of agents of each team

    def __post_init__(self) -> None:
        at_least(1, repetitions=self.repetitions)

    def payoff(self) -> np.ndarray:
        """Payoff table of the joint action.

        `[A,A,…]` if all earn the same, or `[N,A,A,…]` for each agent, teams in order.
        """
        raise NotImplementedError

    @property
    def limit(self) -> int:
        return self.repetitions

    @cached_property
    def teams(self) -> dict[str, Spec]:
        count = sum(self.sides.values())
        sizes = iter(self.payoff().shape[-count:])
        teams = {}
        for team, n in self.sides.items():
            own = tuple(next(sizes) for _ in range(n))
            names = tuple(f"{team}_{i}" for i in range(n))
            teams[team] = Spec(
                names, obs=1, state=count, action=Discrete(max(own)), action_sizes=own
            )
        return teams

    def start(self, key: Array, games: int) -> Array:
        return jnp.zeros((sum(self.sides.values()), games))

    def advance(self, key: Array, world: Array, actions: dict[str, Array]) -> Array:
        joint = tuple(action for team in self.sides for action in actions[team])
        earned = jnp.asarray(self.payoff(), jnp.float32)[(..., *joint)]
        return jnp.broadcast_to(earned, world.shape)

    def observe(self, world: Array) -> dict[str, Array]:
        return {team: jnp.ones((n, 1, world.shape[-1])) for team, n in self.sides.items()}

    def reward(self, world: Array) -> dict[str, Array]:
        ends = np.cumsum(list(self.sides.values()))[:-1]
        return dict(zip(self.sides, jnp.split(world, ends), strict=True))

    def terminal(self, world: Array, clock: Array) -> Array:
        return clock >= self.repetitions

    def scene(self, world: np.ndarray, actions: dict[str, np.ndarray]) -> Scene:
        """Draw the payoff table of the first two agents and the cell they chose.

        The other agents' actions select the table.
        """
        joint = [int(action) for team in self.sides for action in actions.get(team, ())]
        tables = np.broadcast_to(self.payoff(), (len(world), *self.payoff().shape[-len(world) :]))
        shown = (
            tables[(..., *joint[2:])] if joint else tables.reshape(*tables.shape[:3], -1)[..., 0]
        )
        # one number where all earn the same
        own = shown if np.ptp(shown, axis=0).any() else shown[:1]
        rows, columns = shown.shape[1:]
        agents = [agent for spec in self.teams.values() for agent in spec.agents]
        shapes: list = [
            Text(
                (columns / 2, 0.72), f"{agents[1]} chooses a column, {agents[0]} a row", 13, "soft"
            )
        ]
        for row, column in np.ndindex(rows, columns):
            low = (column + 0.04, -row - 0.96)
            high = (column + 0.96, -row - 0.04)
            chosen = joint[:2] == [row, column]
            earned = own[:, row, column]
            tone = ("soft", "goal", "bad")[int(np.sign(earned[0]))]
            shapes.append(Patch(low, high, tone, 0.14 + 0.46 * chosen))
            shapes += [Patch(low, high, "ink", hollow=True)] if chosen else []
            value = " / ".join(f"{number:g}" for number in earned).replace("-", "−")
            shapes.append(Text((column + 0.5, -row - 0.5), value, 22, "ink", chosen))
        heads = [
            Text((column + 0.5, 0.22), str(column), 15, "soft", True) for column in range(columns)
        ]
        heads += [Text((-0.25, -row - 0.5), str(row), 15, "soft", True) for row in range(rows)]
        return Scene([*shapes, *heads], (-0.6, -rows - 0.25), (columns + 0.25, 1.0))


@dataclass(frozen=True)
class Climbing(MatrixGame):
    """Claus and Boutilier (1998): the best joint action stands next to the worst."""

    name = "matrix/climbing"

    def payoff(self) -> np.ndarray:
        return np.array([[11, -30, 0], [-30, 7, 6], [0, 0, 5]])


@dataclass(frozen=True)
class Penalty(MatrixGame):
    """Claus and Boutilier (1998): two best joint actions, and a penalty for mixing them up."""

    k: float = -100.0
    """earned when the agents aim at different optima"""

    name = "matrix/penalty"

    def __post_init__(self) -> None:
        super().__post_init__()
        within(-np.inf, 0, k=self.k)

    def payoff(self) -> np.ndarray:
        return np.array([[self.k, 0, 10], [0, 2, 0], [10, 0, self.k]])


@dataclass(frozen=True)
class Nonmonotonic(MatrixGame):
    """Son et al. (2019): no sum or monotone mix of utilities has its best joint action as each
    agent's own best."""

    repetitions: int = 1
    """rounds per episode; 1 makes it a one-step game"""

    name = "matrix/nonmonotonic"

    def payoff(self) -> np.ndarray:
        return np.array([[8, -12, -12], [-12, 0, 0], [-12, 0, 0]])


@dataclass(frozen=True)
class MatchingPennies(MatrixGame):
    """Zero-sum: `even` wins when the pennies match, `odd` when they differ."""

    name = "matrix/matching_pennies"
    sides = {"even": 1, "odd": 1}

    def payoff(self) -> np.ndarray:
        return np.array([[[1, -1], [-1, 1]], [[-1, 1], [1, -1]]])
