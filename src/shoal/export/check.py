"""Hold what was written to the policy itself, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ShoalError
from ..types import Box, View
from .formats import Run
from .program import NEXT, Program, own_sizes

TOLERANCE = 1e-5  # of logits and real actions: absolute, and relative to values above 1
STEPS = 8  # of the random views
GAMES = 5  # played side by side


class Checked(NamedTuple):
    """How far a written policy was compared with the one it came from."""

    decisions: int  # actions compared
    played: bool  # whether some of the observations were of the game itself
    difference: float  # largest of any logit or real action


def check(program: Program, run: Run, recorded: Sequence[View]) -> Checked:
    """Compare actions and logits on recorded views and on random ones; refuse any that differ."""
    found = [_compare(program, run, views) for views in (random_views(program), recorded) if views]
    return Checked(
        sum(decisions for decisions, _ in found),
        bool(recorded),
        max(difference for _, difference in found),
    )


def random_views(program: Program) -> list[View]:
    """Views with random observations, masks, deaths and openings."""
    rng = np.random.default_rng(0)
    spec = program.policy.spec
    games = GAMES
    within = own_sizes(spec.obs_sizes or (spec.obs,), spec.obs)
    possible = own_sizes(spec.action_sizes or (spec.action.size,), spec.action.size)
    views: list[View] = []
    for step in range(STEPS):
        shape = (games, spec.n, spec.obs)
        obs = rng.normal(size=shape).astype(np.float32) * within
        pixels = rng.integers(0, 256, shape, np.uint8)
        legal = rng.random((games, spec.n, spec.action.size)) < 0.7 * possible
        legal[..., 0] = True  # every agent has an action 0
        views.append(
            View(
                obs=jnp.asarray(pixels if spec.pixels else obs),
                state=jnp.zeros((games, spec.state)),
                legal=jnp.asarray(legal),
                alive=jnp.asarray(rng.random((games, spec.n)) < 0.8),
                first=jnp.asarray(rng.random(games) < (0.2 if step else 1.1)),
                reward=jnp.zeros((games, spec.n)),
                discount=jnp.ones((games, spec.n)),
            )
        )
    return views


def _compare(program: Program, run: Run, views: Sequence[View]) -> tuple[int, float]:
    """The number of actions compared, and the largest difference; both keep their own carry."""
    policy = program.policy
    carry = policy.algorithm.carry(policy.learner, len(views[0].first))
    batch = _Written(program, run)
    single = _Written(program, run)  # the first game alone: the number of games is free
    compared = 0
    largest = 0.0
    for step, view in enumerate(views):
        view = _as_played(program, view)
        decision, logits = program.decide(view, carry, jax.random.key(step))
        carry = decision.carry
        wanted = {"action": decision.action} | ({} if logits is None else {"logits": logits})
        wanted = {name: np.asarray(value)[:, policy.rows] for name, value in wanted.items()}
        for written, games in ((batch, slice(None)), (single, slice(1))):
            outputs = written(view, games, step)
            compared += view.alive[games, policy.rows].size
            for name, value in wanted.items():
                apart = _distance(program, name, np.asarray(outputs[name]), value[games])
                largest = max(largest, apart)
    return compared, largest


class _Written:
    """A written policy that plays some games, and keeps its carry."""

    def __init__(self, program: Program, run: Run):
        self.program = program
        self.run = run
        self.carry: dict[str, np.ndarray] = {}

    def __call__(self, view: View, games: slice, step: int) -> Mapping[str, Any]:
        rows = self.program.policy.rows
        whole = {"obs": view.obs, "legal": view.legal, "alive": view.alive}
        given = {name: np.array(value)[games, rows] for name, value in whole.items()}
        given |= {"first": np.array(view.first)[games], "seed": np.array(step, np.int32)}
        count = len(given["first"])
        given |= self.carry or {
            name: np.zeros((count, *value.shape[1:]), value.dtype)
            for name, value in self.program.inputs.items()
            if name not in given
        }
        outputs = self.run({name: given[name] for name in self.program.inputs})
        self.carry = {
            name.removeprefix(NEXT): np.array(value)
            for name, value in outputs.items()
            if name.startswith(NEXT)
        }
        return outputs


def _as_played(program: Program, view: View) -> View:
    """A view as a `Player` has it: without rewards, and with other agents of the team absent."""
    policy = program.policy
    here = np.isin(np.arange(policy.spec.n), policy.rows)
    alive = view.alive & here
    return view._replace(
        obs=jnp.where(here[:, None], view.obs, 0).astype(program.inputs["obs"].dtype),
        legal=view.legal & here[:, None],
        alive=alive,
        reward=jnp.zeros(alive.shape),
        discount=alive.astype(jnp.float32),
    )


def _distance(program: Program, name: str, got: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference of two outputs; refuses one that is too large."""
    discrete = name == "action" and not isinstance(program.policy.spec.action, Box)
    if got.shape != wanted.shape:
        raise _differs(program, name, f"its shape is {got.shape}, not {wanted.shape}")
    if discrete:
        if (got != wanted).any():
            raise _differs(
                program, name, f"{(got != wanted).sum()} of {got.size} actions are others"
            )
        return 0.0
    apart = np.abs(got - wanted) / np.maximum(np.abs(wanted), 1.0)
    if not (apart <= TOLERANCE).all():
        raise _differs(program, name, f"it is {apart.max():.2g} away, more than {TOLERANCE}")
    return float(apart.max(initial=0.0))


def _differs(program: Program, name: str, how: str) -> ShoalError:
    return ShoalError(
        f"the exported policy of team {program.policy.team!r} does not do what the policy does, and"
        f" is not kept: in {name!r} {how}; choose another format"
    )
