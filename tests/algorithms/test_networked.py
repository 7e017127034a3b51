"""What agents carry from step to step may be any pytree: here two arrays of different shapes."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import OFF, TEAM, TINY, bits, build, clock, decided, mortal, opened, probe, replayed
from jax import Array

import shoal
from shoal.learning.trees import at
from shoal.monitor.callbacks import Callback, LiveRun
from shoal.nets.layers import Dense, Rng
from shoal.nets.mlp import Mlp, Parts, Style
from shoal.nets.torsos import TORSOS

Pair = dict[str, Array]
HIDDEN = 4
SIZES: dict[str, Any] = {
    "hidden": HIDDEN,
    "layers": 1,
    "games": 4,
    "window": 5,
    "eval_episodes": 3,
    "evaluations": 1,
    "devices": 1,
    "quiet": True,
}


class Projected(eqx.Module):
    """An LSTM whose output is narrower than its cell (Sak et al. 2014): it carries both."""

    recurrent: ClassVar[bool] = True
    inner: Mlp
    gates: Dense
    out: Dense

    def __init__(
        self, rng: Rng, owner: tuple[int, ...], ins: int, hidden: int, layers: int, style: Style
    ):
        self.inner = Mlp(rng, owner, ins, hidden, layers, style)
        self.gates = Dense(rng, owner, 2 * hidden, 4 * 2 * hidden, gain=1.0)
        self.out = Dense(rng, owner, 2 * hidden, hidden, gain=1.0)

    def carry(self, games: int, rows: int) -> Pair:
        wide = self.out.weight.shape[1]
        return {"cell": jnp.zeros((games, rows, wide)), "out": jnp.zeros((games, rows, wide // 2))}

    def __call__(self, parts: Parts, carry: Pair, first: Array) -> tuple[Array, Pair]:
        features, _ = self.inner(parts, jnp.zeros(()), first)
        carry, states = jax.lax.scan(lambda *now: self._step(*now), carry, (features, first))
        return states, carry

    def _step(self, carry: Pair, now: tuple[Array, Array]) -> tuple[Pair, Array]:
        features, first = now
        before = jax.tree.map(lambda x: x * ~first[:, None, None], carry)
        let_in, keep, show, new = jnp.split(self.gates(features, before["out"]), 4, -1)
        cell = jax.nn.sigmoid(keep) * before["cell"] + jax.nn.sigmoid(let_in) * jnp.tanh(new)
        out = self.out(jax.nn.sigmoid(show) * jnp.tanh(cell))
        return {"cell": cell, "out": out}, out


@pytest.fixture(autouse=True)
def torso(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a name of its own, and in the place of one that settings know."""
    monkeypatch.setitem(TORSOS, "projected", Projected)
    monkeypatch.setitem(TORSOS, "gru", Projected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mappo", "coma"])
def test_an_on_policy_window_is_evaluated_with_what_was_carried_into_it(name: str):
    """The ratio is 1 before the first update, over the end of episodes and of windows."""
    seen = probe.__wrapped__(name, "projected").seen
    carried = seen.window.carry.hidden
    assert {part: x.shape for part, x in carried.items()} == {"cell": (8, 2, 16), "out": (8, 2, 8)}
    assert not seen.window.view.first[0].all() and all(x.any() for x in carried.values())
    np.testing.assert_allclose(seen.log_prob, seen.window.record.log_prob, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qmix", "masac", "ddpg"])
def test_an_off_policy_learner_reaches_every_parameter(name: str):
    _, first, state, metrics = replayed.__wrapped__(name, "projected")
    acts = "agents" if name == "qmix" else "actor"
    after = state.learners[TEAM].params[acts]
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((after, metrics)))
    before = jax.tree.leaves(first.params[acts].torso)
    changed = jax.tree.map(lambda a, b: bool((a != b).any()), before, jax.tree.leaves(after.torso))
    assert all(changed)
    assert set(state.carries[TEAM].hidden) == {"cell", "out"}


def test_past_selves_carry_it_by_groups_of_games():
    env = mortal()
    team = env.teams[TEAM]
    player = build("ppo", env, torso="projected", **TINY)
    past = build("past", SimpleNamespace(teams={TEAM: team}), groups=2)  # type: ignore[arg-type]
    past.join("two", {"one": player, "two": past}, 5, None)
    rng = np.random.default_rng(0)
    selves = [player.acting(player.init(rng)) for _ in range(2)]
    pool = past.init(rng)._replace(playing=jax.tree.map(lambda *x: jnp.stack(x), *selves))
    view = opened(env, 5)[1][TEAM]._replace(first=jnp.zeros(5, bool))
    carry = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), past.carry(pool, 5))
    key = jax.random.key(1)
    ours = decided(past, pool, key, view, carry, clock(), True)
    for one, rows in zip(selves, (np.s_[:3], np.s_[3:]), strict=True):
        theirs = decided(player, one, key, at(view, rows), at(carry, rows), clock(), True)
        for mine, own in zip(
            jax.tree.leaves(at(ours.carry, rows)), jax.tree.leaves(theirs.carry), strict=True
        ):
            np.testing.assert_allclose(mine, own, atol=1e-6)
    fresh = past.keep(pool, carry)  # opponents were just drawn
    assert not any(x.any() for x in jax.tree.leaves(fresh))


class StopAt(Callback):
    """Ends a run once it has made so many steps."""

    def __init__(self, steps: int):
        self.steps = steps

    def on_iteration(self, run: LiveRun, values: dict[str, float]) -> None:
        if run.steps >= self.steps:
            run.stop()


RUNS: dict[str, dict[str, Any]] = {
    "mappo": {"minibatches": 2},
    "qmix": OFF | {"length": 4, "warmup": 20},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_resumed_evaluated_and_played_with_it(name: str, tmp_path: Path):
    own = SIZES | RUNS[name] | {"torso": "gru", "steps": 200, "out": str(tmp_path)}
    whole = shoal.train(name, "test/mortal", name="whole", **own)
    cut = shoal.train(name, "test/mortal", name="cut", callbacks=[StopAt(80)], **own)
    assert cut.steps < whole.steps
    went_on = shoal.resume(cut.path, quiet=True)
    assert went_on.scores == whole.scores
    players = [shoal.load(run) for run in (cut.path, whole.path)]
    assert bits(players[0].learners) == bits(players[1].learners)
    assert players[0].evaluate(3, seed=0).score() == whole.scores
    forgets_by_game(players[0])


def forgets_by_game(player: Any) -> None:
    """Of three games side by side the second begins anew at the third step: it goes on as one game
    alone would that begins there."""
    agents = player.teams[TEAM].agents
    size = player.teams[TEAM].obs
    seen = np.random.default_rng(2).normal(size=(4, 3, len(agents), size))
    alone = pickle.loads(pickle.dumps(player))
    for step, observed in enumerate(seen):
        if step == 2:
            player.reset(rows=[1])
        player.act({agent: observed[:, i] for i, agent in enumerate(agents)})
    for observed in seen[2:]:
        alone.act({agent: observed[1, i] for i, agent in enumerate(agents)})
    ours = at(player.carries[TEAM].hidden, np.s_[1:2])
    theirs = alone.carries[TEAM].hidden
    for part in ("cell", "out"):
        np.testing.assert_allclose(ours[part], theirs[part], atol=1e-6)
        assert np.abs(np.asarray(player.carries[TEAM].hidden[part])[0] - ours[part]).max() > 1e-3
