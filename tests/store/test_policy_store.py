"""What is kept of a policy: only what acts, whoever wrote it, in folders, pickles and files of one
agent."""

from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from helpers import LEARNERS, PATHWISE, bits

import shoal
from shoal import envs
from shoal.config.config import Config
from shoal.errors import ShoalError
from shoal.store import folder as runs
from shoal.store import policy_store
from shoal.store.player import Player

SMALL: dict[str, Any] = {"hidden": 4, "layers": 1}
TAG = "mpe/simple_tag"


def untrained(name: str, env: str = "mpe/simple_spread", **options: Any) -> Player:
    """With the whole learners, as while training."""
    config = Config.build(
        env, {team: (name, SMALL | options) for team in envs.make(env).teams}, {}, {}
    )
    rng = np.random.default_rng(0)
    return Player(config, {team: one.init(rng) for team, one in config.algorithms.items()}, 70)


def seen(player: Player, rows: int = 3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    sizes = {agent: spec.obs for spec in player.teams.values() for agent in spec.agents}
    return {agent: rng.normal(size=(rows, sizes[agent])) for agent in player.agents}


def same(one: Player, other: Player) -> bool:
    """Whether two do the same for some steps, one after the other."""
    return all(bits(one.act(seen(one))) == bits(other.act(seen(other))) for _ in range(3))


@pytest.mark.parametrize("name", LEARNERS)
def test_a_folder_holds_what_acts(name: str, tmp_path: Path) -> None:
    """And one of before, which held the whole learner, is read as ever."""
    from safetensors.numpy import load, save

    player = untrained(name, torso="mlp" if name in PATHWISE else "gru")
    player.save(tmp_path / "policy")
    blob = (tmp_path / "policy" / "weights.safetensors").read_bytes()
    acts = player.algorithms["agent"].acts  # type: ignore[attr-defined]
    assert all(leaf.startswith(f"agent/params/{acts}/") for leaf in load(blob))
    assert same(
        shoal.load(tmp_path / "policy"), untrained(name, torso="mlp" if name in PATHWISE else "gru")
    )
    whole = save(
        {
            leaf: np.array(value, order="C")
            for leaf, value in runs.leaves_by_name(player.learners).items()
        }
    )
    assert len(whole) > 2 * len(blob)
    about = json.loads((tmp_path / "policy" / "policy.json").read_text())
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "weights.safetensors").write_bytes(whole)
    (tmp_path / "old" / "policy.json").write_text(
        json.dumps(about | {"sha256": hashlib.sha256(whole).hexdigest()})
    )
    assert bits(shoal.load(tmp_path / "old").learners) == bits(
        shoal.load(tmp_path / "policy").learners
    )


@pytest.mark.slow
def test_the_policies_of_a_run_are_those_it_evaluated(tmp_path: Path) -> None:
    """Its last, its best, its past selves and what others freeze of it."""
    sizes: dict[str, Any] = {
        "steps": 160,
        "games": 4,
        "window": 10,
        "eval_episodes": 2,
        "evaluations": 1,
    }
    teams = {
        "row": ("ppo", SMALL | {"minibatches": 1}),
        "column": ("past", {"every": 1, "period": 1, "groups": 2}),
    }
    sides = list(envs.make("matrix/matching_pennies").teams)
    chosen = dict(zip(sides, teams.values(), strict=True))
    run = shoal.train(
        "matrix/matching_pennies", teams=chosen, out=str(tmp_path), name="a", quiet=True, **sizes
    )
    assert shoal.load(run.path).evaluate(2).score() == run.scores
    for place in ("policy", "best"):
        names = _names(run.path / place)
        assert all(
            "/opt/" not in name and "/critic/" not in name and "/selves/" not in name
            for name in names
        )
    frozen = {sides[0]: ("frozen", {"run": str(run.path), "team": sides[0]}), sides[1]: "random"}
    again = shoal.train(
        "matrix/matching_pennies", teams=frozen, out=str(tmp_path), name="b", quiet=True, **sizes
    )
    assert shoal.load(again.path).evaluate(2).score() == again.scores


def _names(folder: Path) -> list[str]:
    from safetensors.numpy import load

    return list(load((folder / "weights.safetensors").read_bytes()))


def test_one_agent_or_team_is_saved_alone(tmp_path: Path) -> None:
    player = untrained("ppo", TAG)
    alone = player.agent("agent_0")
    alone.save(tmp_path / "runner")
    assert all(name.startswith("agent/") for name in _names(tmp_path / "runner"))
    runner = shoal.load(tmp_path / "runner")
    assert runner.agents == ("agent_0",) and same(runner, player.agent("agent_0"))
    with pytest.raises(ShoalError, match="nobody plays for adversary"):
        runner.evaluate(1)
    assert player.against({"agent": f"frozen:{tmp_path / 'runner'}"}).evaluate(1).length.size == 1
    with pytest.raises(ShoalError, match="has no policy of team 'adversary'"):
        player.against({"adversary": f"frozen:{tmp_path / 'runner'}"})
    about = json.loads((tmp_path / "runner" / "policy.json").read_text())
    for wrong in (["nobody"], "agent_0", [["agent_0"]]):
        (tmp_path / "runner" / "policy.json").write_text(json.dumps(about | {"agents": wrong}))
        with pytest.raises(ShoalError, match="'agents' there must be"):
            shoal.load(tmp_path / "runner")


def test_only_policies_are_replaced(tmp_path: Path) -> None:
    player = untrained("ppo")
    player.save(tmp_path / "a" / "policy")
    player.save(tmp_path / "a" / "policy")
    (tmp_path / "precious").mkdir()
    with pytest.raises(ShoalError, match="exists already and is no policy"):
        player.save(tmp_path / "precious")
    with pytest.raises(ShoalError, match="save the player as it was loaded"):
        player.against({"agent": "random"}).save(tmp_path / "b")


def test_a_player_is_pickled_with_its_memory(tmp_path: Path) -> None:
    """In the middle of an episode, alone, and with others in a team's place."""
    player = untrained("ppo", TAG, torso="gru")
    player.act(seen(player), greedy=False)
    copy = pickle.loads(pickle.dumps(player))
    assert bits(player.act(seen(player), greedy=False)) == bits(copy.act(seen(copy), greedy=False))
    assert same(pickle.loads(pickle.dumps(player.agent("agent_0"))), player.agent("agent_0"))
    player.save(tmp_path / "policy")
    for other in ("random", f"frozen:{tmp_path / 'policy'}"):
        mixed = player.against({"agent": other})
        copy = pickle.loads(pickle.dumps(mixed))
        assert repr(copy) == repr(mixed) and same(copy, mixed)


def test_a_warm_player_plays_as_a_cold_one() -> None:
    cold, warm = (untrained("ppo", TAG, torso="gru") for _ in range(2))
    cold.act(seen(cold)), warm.act(seen(warm))
    assert warm.warm(3) is warm and warm.warm(greedy=False).warm(5) is warm
    before = warm._acts["agent"]._cache_size()
    assert bits(cold.act(seen(cold), greedy=False)) == bits(warm.act(seen(warm), greedy=False))
    warm.reset()
    warm.act(seen(warm, 5))
    assert before == 3 and warm._acts["agent"]._cache_size() == 4  # with the draws of three games


def test_loading_makes_no_nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their shapes are known without."""
    untrained("ppo").save(tmp_path / "policy")
    monkeypatch.setattr(np.linalg, "qr", lambda matrix: pytest.fail("a net was drawn"))
    assert jax.tree.leaves(policy_store.load(tmp_path / "policy").learners)
