"""A policy in somebody's hands: by name, in batches, of one team or agent alone, from any folder it
is kept in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import bits

import shoal
from shoal import envs
from shoal.cli.main import main
from shoal.config.config import Config
from shoal.errors import ShoalError
from shoal.store import checkpoint, policy_store
from shoal.store.player import Player
from shoal.types import Discrete, Spec

SMALL = {"hidden": 4, "layers": 1}


def untrained(
    algorithm: str, env: str, seed: int = 0, specs: dict[str, Spec] | None = None, **options: Any
) -> Player:
    teams = specs or envs.make(env).teams
    config = Config.build(
        env, dict.fromkeys(teams, (algorithm, SMALL | options)), {}, {}, specs=specs
    )
    rng = np.random.default_rng(1)
    return Player(config, {team: a.init(rng) for team, a in config.algorithms.items()}, 0, seed)


def seen(player: Player, games: int, steps: int = 1) -> list[dict[str, np.ndarray]]:
    """`[games,obs]` by agent, at so many steps."""
    rng = np.random.default_rng(2)
    sizes = {
        agent: size
        for spec in player.teams.values()
        for agent, size in zip(spec.agents, spec.obs_sizes or (spec.obs,) * spec.n, strict=True)
    }
    return [
        {a: rng.normal(size=(games, n)).astype(np.float32) * 3 for a, n in sizes.items()}
        for _ in range(steps)
    ]


def row(observations: dict[str, np.ndarray], game: int) -> dict[str, np.ndarray]:
    return {agent: rows[game] for agent, rows in observations.items()}


def test_a_batch_is_played_as_each_of_its_games_alone_and_rows_begin_anew():
    """Recurrent, and it sees its last action: game 1 begins a new episode at the third step, the
    others go on."""
    player = untrained("ppo", "mpe/simple_spread", torso="gru", last_action=True)
    moments = seen(player, games=3, steps=4)
    alone = [untrained("ppo", "mpe/simple_spread", torso="gru", last_action=True) for _ in range(3)]
    hidden = []
    for step, observations in enumerate(moments):
        if step == 2:
            player.reset(rows=[1])
            alone[1].reset()
        together = player.act(observations)
        for game, one in enumerate(alone):
            assert one.act(row(observations, game)) == {
                agent: rows[game] for agent, rows in together.items()
            }
        hidden.append(np.asarray(player.carries["agent"].hidden))
        own = np.concatenate([np.asarray(one.carries["agent"].hidden) for one in alone])
        np.testing.assert_allclose(hidden[-1], own, atol=1e-6)
    player.reset()
    player.act({agent: rows[:2] for agent, rows in moments[2].items()})  # another number of games
    np.testing.assert_allclose(player.carries["agent"].hidden[1], hidden[2][1], atol=1e-6)


def test_a_batch_that_does_not_fit_is_refused_in_a_sentence():
    player = untrained("ppo", "mpe/simple_spread", last_action=True)
    (observations,) = seen(player, games=3)
    with pytest.raises(ShoalError, match="the same number of games for every agent"):
        player.act(observations | {"agent_0": observations["agent_0"][:2]})
    player.act(observations)
    with pytest.raises(ShoalError, match=r"of 1 games, the last were of 3: reset\(\) first"):
        player.act(row(observations, 0))
    with pytest.raises(ShoalError, match="observes 18 numbers, not 17"):
        player.act({"agent_0": np.zeros((3, 17))})
    with pytest.raises(ShoalError, match="agent_0 has 5 actions"):
        player.act(observations, legal={"agent_0": [True, False]})


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_who_remembers_nothing_takes_any_number_of_games_at_any_call(algorithm: str):
    player = untrained(algorithm, "mpe/simple_spread")
    (observations,) = seen(player, games=7)
    whole = player.act(observations)
    for games in (1, 7, 3):
        some = player.act({agent: rows[:games] for agent, rows in observations.items()})
        assert {a: rows.tolist() for a, rows in some.items()} == {
            a: rows[:games].tolist() for a, rows in whole.items()
        }
    assert player.act(row(observations, 6)) == {agent: rows[6] for agent, rows in whole.items()}


def test_what_is_not_by_agent_is_refused_in_a_sentence():
    player = untrained("ppo", "mpe/simple_spread")
    (observations,) = seen(player, games=2)
    with pytest.raises(
        ShoalError,
        match=r"^observations must be a dictionary by agent, such as \{'agent_1':"
        r" \.\.\.\}$",
    ):
        player.agent("agent_1").act(observations["agent_1"])  # type: ignore
    for name in ("legal", "alive"):
        with pytest.raises(ShoalError, match=f"^{name} must be a dictionary by agent"):
            player.act(observations, **{name: np.ones(5, bool)})  # type: ignore
    with pytest.raises(ShoalError, match="there is no agent 0: this policy plays agent_0, agent_1"):
        player.act({0: observations["agent_0"]})  # type: ignore
    with pytest.raises(
        ShoalError, match="agent_0's observation must be an array of numbers; its mask"
    ):
        player.act({"agent_0": {"observation": observations["agent_0"], "action_mask": np.ones(5)}})
    with pytest.raises(ShoalError, match="alive must say of agent_0 in each of the 2 games"):
        player.act(observations, alive={"agent_0": [True] * 3})
    with pytest.raises(ShoalError, match="observations of no game"):
        player.act({"agent_0": observations["agent_0"][:0]})


def test_rows_that_there_are_not_are_refused_in_a_sentence():
    player = untrained("ppo", "mpe/simple_spread", last_action=True)
    (observations,) = seen(player, games=4)
    player.act(observations)
    for rows in ([9], 4, np.ones(3, bool), [0.5], "all", [[0], [1, 2]]):
        with pytest.raises(
            ShoalError,
            match=r"^rows must be numbers of games below 4, or a"
            r" mask of all 4 games$",
        ):
            player.reset(rows)
    for rows, begun in (([], []), ([0, 3], [0, 3]), (np.array([False, True, False, False]), [1])):
        player.act(observations)
        player.reset(rows)
        assert np.flatnonzero(player.first["agent"]).tolist() == begun


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_an_observation_that_is_not_finite_is_refused_in_a_sentence(wrong: float):
    player = untrained("ppo", "mpe/simple_spread")
    (observations,) = seen(player, games=2)
    observations["agent_1"][1, 3] = wrong
    for given in (observations, row(observations, 1)):
        with pytest.raises(
            ShoalError, match=f"^agent_1 observes {wrong:g}: observations must be finite numbers$"
        ):
            player.act(given)


def test_the_living_need_a_legal_action():
    player = untrained("ppo", "mpe/simple_spread")
    (observations,) = seen(player, games=2)
    legal = {"agent_1": np.array([[1, 1, 1, 1, 1], [0, 0, 0, 0, 0]])}
    with pytest.raises(
        ShoalError,
        match=r"^agent_1 is alive and has no legal action: its mask"
        r" must allow one$",
    ):
        player.act(observations, legal)
    player.act(observations, legal, alive={"agent_1": [True, False]})
    with pytest.raises(ShoalError, match=r"^agent_1 is alive"):
        player.act(row(observations, 0), {"agent_1": np.zeros(5)})
    player.act({"agent_0": observations["agent_0"]}, legal)  # who observes nothing is not there


def test_a_call_that_is_refused_is_not_remembered():
    """Not by the team before the one at fault either."""
    player, other = (untrained("ppo", "mpe/simple_tag", torso="gru") for _ in range(2))
    (observations,) = seen(player, games=2)
    player.act(observations)
    with pytest.raises(ShoalError, match=r"^agent_0 is alive"):
        player.act(observations, {"agent_0": np.zeros(5)})
    for one in (player, other):
        one.act(observations)
    other.act(observations)
    assert bits(player.carries) == bits(other.carries)


def test_masks_hold_row_by_row():
    player = untrained("dqn", "mpe/simple_spread")
    (observations,) = seen(player, games=2)
    legal = {"agent_1": np.array([[0, 0, 1, 0, 0], [0, 0, 0, 0, 1]], bool)}
    for greedy in (True, False):
        assert player.act(observations, legal, greedy)["agent_1"].tolist() == [2, 4]


def test_sampled_actions_are_decided_by_the_seed():
    (observations,) = seen(untrained("ppo", "mpe/simple_spread"), games=64)
    one, same, other = (untrained("ppo", "mpe/simple_spread", seed) for seed in (5, 5, 6))
    drawn = [
        [p.act(observations, greedy=False)["agent_0"].tolist() for _ in range(2)]
        for p in (one, same, other)
    ]
    assert drawn[0] == drawn[1] != drawn[2] and drawn[0][0] != drawn[0][1]


@pytest.mark.parametrize("sharing", ["shared", "own"])
def test_one_team_or_agent_alone_acts_as_it_does_among_all(sharing: str):
    """With its own number and parameters: agents that observe the same do not act the same."""
    player = untrained("sac", "mpe/simple_tag", sharing=sharing)
    (observations,) = seen(player, games=5)
    whole = player.act(observations)
    hunters = player.team("adversary")
    assert hunters.agents == player.teams["adversary"].agents
    with pytest.raises(ShoalError, match="there is no agent 'agent_0'"):
        hunters.act(observations)
    for agent, rows in hunters.act(
        {agent: observations[agent] for agent in hunters.agents}
    ).items():
        np.testing.assert_array_equal(rows, whole[agent])
    for agent in ("adversary_2", "agent_0"):
        (own,) = player.agent(agent).act({agent: observations[agent]}).values()
        np.testing.assert_array_equal(own, whole[agent])
    same = dict.fromkeys(hunters.agents, observations["adversary_0"])
    tried = player.team("adversary").act(same, greedy=True)
    assert any(tried["adversary_0"].tolist() != tried[agent].tolist() for agent in hunters.agents)
    with pytest.raises(ShoalError, match="did you mean 'adversary'"):
        player.team("adversaries")


def test_an_agent_that_sees_what_its_team_did_is_not_taken_from_it():
    player = untrained("mfq", "mpe/simple_spread")
    with pytest.raises(
        ShoalError,
        match=r"mfq's agents need what their teammates observe, say or just did: take"
        r" team\('agent'\)",
    ):
        player.agent("agent_0")
    assert player.team("agent").agents == player.agents


def test_images_come_as_they_are_or_in_batches():
    """A policy of an environment that is not installed."""
    pictures = {"agent": Spec(("a", "b"), 48, 0, Discrete(3), pixels=(4, 4, 3))}
    player = untrained("ppo", "gym:Nowhere-v0", specs=pictures, channels="4")
    image = np.random.default_rng(0).integers(0, 256, (6, 2, 4, 4, 3), np.uint8)
    whole = player.act({"a": image[:, 0], "b": image[:, 1]})
    assert whole["a"].shape == (6,)
    for game in range(6):
        player.reset()
        one = player.act({"a": image[game, 0], "b": image[game, 1].reshape(-1)})
        assert one == {"a": whole["a"][game], "b": whole["b"][game]}


def test_it_says_what_it_is():
    player = untrained("ppo", "mpe/simple_tag")
    player.steps = 1_500_000
    assert (
        repr(player)
        == "<Player of mpe/simple_tag: adversary=ppo, agent=ppo, trained for 1,500,000 steps>"
    )
    mixed = player.against({"agent": "random"})
    assert (
        repr(mixed)
        == "<Player of mpe/simple_tag: adversary=ppo, agent=random, trained for 1,500,000 steps>"
    )
    assert (
        repr(mixed.agent("agent_0"))
        == "<Player of mpe/simple_tag: agent=random, trained for 1,500,000 steps>"
    )


# -- from the disk ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = {
        "steps": 400,
        "games": 4,
        "window": 5,
        "eval_episodes": 2,
        "evaluations": 2,
        "save_every": 100,
    }
    out = str(tmp_path_factory.mktemp("runs"))
    return shoal.train(
        "ppo", "test/mortal", minibatches=1, out=out, quiet=True, **sizes, **SMALL
    ).path  # type: ignore


@pytest.mark.slow
def test_the_best_policy_is_evaluated_when_asked_for(run: Path, capsys: pytest.CaptureFixture[str]):
    assert shoal.load(run).steps != shoal.load(run, best=True).steps
    for flags, best in (([], False), (["--best"], True)):
        assert main(["evaluate", str(run), "--episodes", "3", *flags]) == 0
        assert (
            f"after {shoal.load(run, best=best).steps:,} steps, 3 greedy episodes"
            in capsys.readouterr().out
        )


def test_a_policy_loads_from_every_folder_it_is_in(run: Path, tmp_path: Path):
    final, best = shoal.load(run), shoal.load(run, best=True)
    assert bits(shoal.load(run / "policy").learners) == bits(final.learners)
    assert bits(shoal.load(str(run / "best")).learners) == bits(best.learners)
    newest, before = checkpoint.places(run)
    assert (
        bits(shoal.load(newest).learners)
        == bits(final.learners)
        != bits(shoal.load(before).learners)
    )
    assert shoal.load(newest).steps == final.steps == int(newest.name)
    with pytest.raises(ShoalError, match="is not a run folder, a policy or a checkpoint"):
        shoal.load(tmp_path)
    with pytest.raises(ShoalError, match=r"is a folder of runs: take one of them, such as .*"):
        shoal.load(run.parent)
    (tmp_path / "config.json").write_text((run / "config.json").read_text())
    with pytest.raises(
        ShoalError, match="has no best policy yet: resume it, or load one of its checkpoints"
    ):
        shoal.load(tmp_path, best=True)


def test_only_of_a_run_is_there_a_best(run: Path):
    for place in (run / "policy", run / "best", *checkpoint.places(run)):
        with pytest.raises(ShoalError, match="only a run has a best policy: load the run's folder"):
            shoal.load(place, best=True)


def test_damaged_weights_are_never_played(run: Path, tmp_path: Path):
    whole = (run / "policy" / "weights.safetensors").read_bytes()
    (tmp_path / "policy.json").write_text((run / "policy" / "policy.json").read_text())
    rng = np.random.default_rng(0)
    for k in range(50):
        blob = bytearray(whole)
        blob[int(rng.integers(len(blob)))] ^= 1 << int(rng.integers(8))
        (tmp_path / "weights.safetensors").write_bytes(
            blob if k % 2 else blob[: int(rng.integers(len(blob)))]
        )
        with pytest.raises(ShoalError, match=r"damaged|cannot be read"):
            shoal.load(tmp_path)
    (tmp_path / "weights.safetensors").write_bytes(whole)
    assert bits(shoal.load(tmp_path).learners) == bits(shoal.load(run).learners)


def test_the_best_policy_scores_what_is_said_of_it(run: Path):
    best = policy_store.best_of(run)
    assert best and shoal.load(run, best=True).steps == best.steps
    assert shoal.load(run, best=True).evaluate(2, seed=0).score()[best.team] == best.score
