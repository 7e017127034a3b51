"""Opponents that are made of policies: frozen runs, pools of past selves, and evaluation against
others."""

from __future__ import annotations

import itertools
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import LEARNERS, OFF, bits, build, clock, mortal, opened, run
from safetensors.numpy import load_file

import shoal
from shoal import envs
from shoal.algorithms.opponents.self_play import (
    AT_ONCE,
    PER_GAME,
    RULES,
    Pool,
    SelfPlay,
    _with_row,
    elo,
)
from shoal.cli import main
from shoal.config.config import Config
from shoal.engine.episodes import Episodes, outcomes
from shoal.engine.loop import Loop
from shoal.envs.native.matrix import MatrixGame
from shoal.errors import ShoalError
from shoal.learning.reduce import AXIS
from shoal.store import checkpoint
from shoal.types import View

PENNIES = "matrix/matching_pennies"
NET = {"hidden": 4, "layers": 1}
SIZES = {"games": 4, "window": 5, "eval_episodes": 8, "evaluations": 0}


@dataclass(frozen=True)
class Duel(MatrixGame):
    """The higher of four numbers wins a round: two sides alike, zero-sum, with one best action and
    many draws."""

    repetitions: int = 3

    name = "test/duel"
    sides = {"left": 1, "right": 1}

    def payoff(self) -> np.ndarray:
        wins = np.sign(np.subtract.outer(np.arange(4), np.arange(4)))
        return np.stack([wins, -wins])


def seated(env: Any, teams: dict[str, tuple[str, dict]], games: int) -> dict[str, Any]:
    """Everybody's algorithm, as a config seats them."""
    made = {team: build(name, env, team, **options) for team, (name, options) in teams.items()}
    for team, algorithm in made.items():
        algorithm.join(team, made, games, None)
    return made


# -- the pool, against a plain model of it ---------------------------------------------------------

POOL = {"pool": 3, "every": 2, "period": 3, "groups": 2}
GAMES, ITERATIONS = 8, 60


class Watched(SelfPlay):
    """Tells what it was told, of all devices."""

    def meet(self, learner: Pool, learners: dict, results: Any) -> tuple[Pool, dict]:
        learner, metrics = super().meet(learner, learners, results)
        gathered = jax.tree.map(lambda x: jax.lax.all_gather(x, AXIS, axis=1, tiled=True), results)
        return learner, metrics | {"results": gathered}


@pytest.fixture(scope="module")
def duel() -> SimpleNamespace:
    """Iterations of PPO against its past selves on two devices, with all that was seen."""
    env: Any = Duel()
    made = {
        "left": build("ppo", env, "left", lr=3e-2, **NET),
        "right": Watched(SelfPlay.Config(**POOL), env.teams["right"]),
    }  # type: ignore[arg-type]
    for team, algorithm in made.items():
        algorithm.join(team, made, GAMES, None)
    loop = Loop(env, made, games=GAMES, window=5, steps=GAMES * 5 * ITERATIONS, devices=2)
    state = loop.init(0)
    program = loop.program(1)
    before, history = jax.device_get(state.learners["right"]), []
    for _ in range(ITERATIONS):
        state, metrics = program(state)
        copies = [leaf.addressable_shards for leaf in jax.tree.leaves(state.learners["right"])]
        alike = all(len(c) == 2 and bits(c[0].data) == bits(c[1].data) for c in copies)
        seen = jax.device_get((state.learners, metrics.learning["right"]))
        history.append(
            SimpleNamespace(
                learners=seen[0], metrics=jax.tree.map(lambda x: x[0], seen[1]), alike=alike
            )
        )
    return SimpleNamespace(made=made, before=before, history=history)


def at(tree: Any, place: int) -> Any:
    return jax.tree.map(lambda x: x[place], tree)


def test_the_pool_fills_and_rings_and_holds_selves_to_the_bit(duel: SimpleNamespace):
    places = [bits(at(duel.before.selves, 0))] * POOL["pool"]
    for i, now in enumerate(duel.history, 1):
        if i % POOL["every"] == 0:
            places[i // POOL["every"] % POOL["pool"]] = bits(
                duel.made["left"].acting(now.learners["left"])
            )
        pool = now.learners["right"]
        assert [bits(at(pool.selves, k)) for k in range(POOL["pool"])] == places
        assert pool.taken == 1 + i // POOL["every"]
        assert now.metrics["pool"] == min(pool.taken, POOL["pool"])
    assert len({tuple(place) for place in places}) == POOL["pool"], (
        "the learner learns: its selves differ"
    )


def test_opponents_change_when_it_is_time_and_only_then(duel: SimpleNamespace):
    last, drawn = duel.before, set()
    for i, now in enumerate(duel.history, 1):
        pool = now.learners["right"]
        if i % POOL["period"] == 0:
            for g, place in enumerate(pool.slot):
                assert bits(at(pool.playing, g)) == bits(at(pool.selves, place))
            drawn |= set(pool.slot.tolist()) if i > 6 else set()
        else:
            assert bits(pool.playing) == bits(last.playing)
            overwritten = i // POOL["every"] % POOL["pool"] if i % POOL["every"] == 0 else None
            assert pool.slot.tolist() == [
                POOL["pool"] if s == overwritten else s for s in last.slot
            ]
        last = pool
    assert drawn == {0, 1, 2}


@pytest.mark.slow
@pytest.mark.parametrize("period", [3, 4])
def test_an_opponent_drawn_in_mid_episode_remembers_nothing_of_its_predecessors(period: int):
    """After three iterations: those of every third are new and know nothing yet, those of every
    fourth play on."""
    env: Any = Duel()
    made = {
        "left": build("ppo", env, "left", torso="gru", **(NET | {"minibatches": 1})),
        "right": SelfPlay(SelfPlay.Config(**(POOL | {"period": period})), env.teams["right"]),
    }
    for team, algorithm in made.items():
        algorithm.join(team, made, GAMES, None)
    state, _ = run(Loop(env, made, games=GAMES, window=5, steps=1000), 3)
    assert state.carries["left"].hidden.any()
    assert state.carries["right"].hidden.any() == (period == 4)


def test_ratings_are_those_of_a_plain_model(duel: SimpleNamespace):
    """Which episodes count, and for whom: each game by hand, from the results alone."""
    record, rating, current = np.zeros((3, 3)), np.zeros(3), 0.0
    whole, slot, skipped = [True] * GAMES, duel.before.slot.tolist(), 0
    for i, now in enumerate(duel.history, 1):
        results, fresh = now.metrics["results"], np.zeros((3, 3))
        for t, game in np.argwhere(results.ended).tolist():
            margin = results.returns["left"][t, game] - results.returns["right"][t, game]
            who = slot[game % 4 // 2]  # two devices of four games, two groups on each
            if whole[game] and who < 3:
                fresh[who, [1, 0, 2][int(np.sign(margin))]] += 1
            skipped += not whole[game]
            whole[game] = True
        assert now.metrics["rated_games"] == fresh.sum()
        games, score = fresh.sum(1), fresh @ [1, 0.5, 0]
        stake = min(PER_GAME, AT_ONCE / max(games.sum(), 1))
        change = stake * (score - games / (1 + 10 ** ((rating - current) / 400)))
        record, rating, current = record + fresh, rating - change, current + change.sum()
        if i % POOL["every"] == 0:
            place = i // POOL["every"] % 3
            record[place], rating[place] = 0, current
        pool = now.learners["right"]
        if i % POOL["period"] == 0:
            whole = results.ended[-1].tolist()
        slot = pool.slot.tolist()
        np.testing.assert_array_equal(pool.record, record)
        np.testing.assert_allclose([*pool.rating, pool.current], [*rating, current], atol=0.05)
        assert pool.whole.tolist() == whole
    assert skipped > 20, "some episodes met two opponents"


def test_two_devices_hold_the_same_pool(duel: SimpleNamespace):
    assert all(now.alike for now in duel.history)


def test_a_player_that_learns_rises(duel: SimpleNamespace):
    last = duel.history[-1]
    assert last.metrics["elo"] > 60 and np.isfinite(last.metrics["pool_elo_best"])
    assert np.mean([now.metrics["win_rate"] for now in duel.history[:12]]) > 0.6, (
        "until it plays the best there is"
    )


# -- Elo -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("games", [1, 64, 100_000])
def test_elo_settles_where_the_odds_say_however_many_games_come_at_once(games: int):
    """9 of 10 games won are 400 log10 9 points, reached without overshooting; points only change
    hands."""
    current, rating = jnp.float32(0), jnp.zeros(3)
    count = jnp.array([games, games, 0], jnp.float32)
    step, gaps = jax.jit(elo), []
    for _ in range(400):
        current, rating = step(current, rating, count, 0.9 * count)
        gaps.append(float(current - rating[0]))
    assert gaps[-1] == pytest.approx(400 * np.log10(9), abs=1)
    assert all(b >= a - 1e-2 for a, b in itertools.pairwise(gaps))
    assert float(current + rating.sum()) == pytest.approx(0, abs=0.1) and rating[2] == 0


def test_elo_stays_finite_when_everything_is_won():
    current, rating = jnp.float32(0), jnp.zeros(2)
    count = jnp.array([1e6, 3e4])
    step = jax.jit(elo)
    for _ in range(1000):
        current, rating = step(current, rating, count, count)
    assert np.isfinite([float(current), *rating.tolist()]).all() and current > rating.max()


def test_rules_weigh_as_they_say():
    """Beaten, beats, draws; the fourth place is still empty."""
    nothing = dict.fromkeys(Pool._fields)
    record = jnp.array([[98.0, 0, 0], [0, 0, 98], [0, 98, 0], [0, 0, 98]])
    pool = Pool(**(nothing | {"taken": jnp.int32(3), "record": record, "rating": jnp.zeros(4)}))  # type: ignore[arg-type]
    assert RULES["latest"](pool).tolist() == [0, 0, 1, 0]
    assert RULES["uniform"](pool).tolist() == [1, 1, 1, 0]
    np.testing.assert_allclose(RULES["prioritised"](pool), [0.01, 0.99, 0.5, 0])
    assert RULES["latest"](pool._replace(taken=jnp.int32(6))).tolist() == [0, 1, 0, 0], (
        "the ring's newest"
    )


def test_nash_draws_by_the_equilibrium_of_what_was_played():
    """Rock, paper, scissors; the fourth place is still empty."""
    nothing = dict.fromkeys(Pool._fields)
    payoff = jnp.array([[0.0, -1, 1, 9], [1, 0, -1, 9], [-1, 1, 0, 9], [-9, -9, -9, 0]])
    facts = {"taken": jnp.int32(3), "rating": jnp.zeros(4), "payoff": payoff}
    pool = Pool(**(nothing | facts))  # type: ignore[arg-type]
    np.testing.assert_allclose(RULES["nash"](pool), [1 / 3, 1 / 3, 1 / 3, 0], atol=5e-3)
    # the next snapshot won 3 of 4 games against the first, and met nobody else
    record = jnp.zeros((4, 3)).at[0].set(jnp.array([3.0, 0, 1]))
    new = _with_row(pool._replace(record=record), jnp.int32(3))
    np.testing.assert_allclose(new[3], [(3 - 1) / 5, 0, 0, 0])
    np.testing.assert_allclose(new[:, 3], -new[3])
    np.testing.assert_allclose(new[:3, :3], payoff[:3, :3])


# -- acting ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "game"), [("ppo", "test/mortal"), ("ddpg", "test/continuous_identity")]
)
def test_each_group_plays_its_own_snapshot(name: str, game: str):
    """Also where games do not split evenly, with memories, masks, the dead, and either kind of
    action."""
    env = mortal() if game == "test/mortal" else envs.make(game)
    options = NET | {"torso": "gru", "last_action": True}
    side = SimpleNamespace(teams={"one": env.teams["agent"], "two": env.teams["agent"]})
    made = seated(side, {"one": (name, options), "two": ("past", {"groups": 2})}, 5)
    past, player, rng = made["two"], made["one"], np.random.default_rng(0)
    selves = [player.acting(player.init(rng)) for _ in range(2)]
    pool = past.init(rng)._replace(playing=jax.tree.map(lambda *x: jnp.stack(x), *selves))
    view: View = opened(env, 5)[1]["agent"]
    view = view._replace(obs=jnp.asarray(rng.normal(size=view.obs.shape)), first=jnp.zeros(5, bool))
    carry = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), past.carry(pool, 5))
    key, act, solo = (
        jax.random.key(1),
        jax.jit(past.act, static_argnums=5),
        jax.jit(player.act, static_argnums=5),
    )
    ours = act(pool, key, view, carry, clock(1e6), True)
    assert jax.tree.map(jnp.shape, ours.carry) == jax.tree.map(jnp.shape, carry)
    for g, rows in enumerate((slice(0, 3), slice(3, 5))):
        theirs = solo(selves[g], key, at(view, rows), at(carry, rows), clock(1e6), True)  # type: ignore[arg-type]
        np.testing.assert_allclose(ours.action[rows], theirs.action, atol=1e-6)
        np.testing.assert_allclose(ours.carry.hidden[rows], theirs.carry.hidden, atol=1e-6)
    swapped = act(
        pool._replace(playing=jax.tree.map(lambda x: x[::-1], pool.playing)),
        key,
        view,
        carry,
        clock(),
        True,
    )
    assert np.abs(swapped.carry.hidden - ours.carry.hidden).max() > 1e-3


@pytest.mark.parametrize("name", LEARNERS)
def test_a_snapshot_holds_all_that_acting_needs(name: str):
    env = mortal()
    algorithm = build(name, env, "agent", **NET)

    def play(learner: Any) -> Any:
        _, views = env.reset(jax.random.key(0), 2)
        carry = algorithm.carry(learner, 2)
        return algorithm.act(
            learner, jax.random.key(0), views["agent"], carry, clock(), False
        ).action

    learner = algorithm.init(np.random.default_rng(0))
    assert jax.eval_shape(play, algorithm.acting(learner)) == jax.eval_shape(play, learner)
    assert algorithm.acting(learner).opt is None


# -- whole runs ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """DQN against its past selves, and A2C against what that DQN became."""
    out = tmp_path_factory.mktemp("runs")
    common = {"quiet": True, "out": str(out), **SIZES}
    off = OFF | NET | {"epsilon_steps": 200}
    past = ("past:latest", {"groups": 1, "pool": 2, "every": 3, "period": 2})
    first = shoal.train(
        PENNIES, teams={"even": ("dqn", off), "odd": past}, name="first", steps=400, **common
    )
    held = {
        "even": ("a2c", NET),
        "odd": (f"frozen:{first.path}", {"team": "even", "greedy": False}),
    }
    second = shoal.train(PENNIES, teams=held, name="second", steps=400, **common)
    return SimpleNamespace(out=out, first=first.path, second=second.path, score=second.scores)


def weights(run: Path, team: str) -> dict[str, bytes]:
    leaves = load_file(run / "policy" / "weights.safetensors")
    return {
        name.removeprefix(f"{team}/"): x.tobytes()
        for name, x in leaves.items()
        if name.startswith(f"{team}/")
    }


@pytest.mark.slow
def test_a_frozen_policy_never_changes_to_the_bit(runs: SimpleNamespace):
    ours, theirs = weights(runs.second, "odd"), weights(runs.first, "even")
    assert ours and ours == theirs


@pytest.mark.slow
def test_a_frozen_policy_plays_as_its_run_would_at_its_end(runs: SimpleNamespace):
    """Also its exploration is that of the end, however early in its new run it plays."""
    first, second = shoal.load(runs.first), shoal.load(runs.second)
    _, views = opened(first.config.game, 256)
    key, frozen, dqn = jax.random.key(7), second.algorithms["odd"], first.algorithms["even"]
    carry = frozen.carry(second.learners["odd"], 256)
    play, replay = (jax.jit(algorithm.act, static_argnums=5) for algorithm in (frozen, dqn))
    ours = play(second.learners["odd"], key, views["odd"], carry, clock(), True).action
    theirs = [
        replay(first.learners["even"], key, views["even"], carry, now, False).action
        for now in (first.clock, clock())
    ]
    np.testing.assert_array_equal(ours, theirs[0])
    assert (ours != theirs[1]).any()
    greedy = first.against({"odd": (f"frozen:{runs.first}", {"team": "even"})})
    same = first.act({"even_0": [1.0]})["even_0"]
    assert greedy.act({"odd_0": [1.0]}, greedy=False)["odd_0"] == same


def test_a_run_is_played_without_the_run_it_froze_but_not_trained(
    runs: SimpleNamespace, tmp_path: Path
):
    chain = Config.build(
        PENNIES, {"even": ("random", {}), "odd": ("frozen", {"run": str(runs.second)})}, {}, SIZES
    )
    gone = shutil.move(runs.first, tmp_path / "gone")
    try:
        assert shoal.load(runs.second).evaluate(8).score() == runs.score
        again = Config.from_json(json.loads((runs.second / "config.json").read_text()))
        with pytest.raises(ShoalError, match="has gone or changed"):
            Loop(again.game, again.algorithms, 4, 5, 400).sizes()
        link = Config.from_json(json.loads(json.dumps(chain.to_json())))
        for config in (chain, link):
            frozen = config.algorithms["odd"].init(np.random.default_rng(0))
            assert bits(frozen) == bits(shoal.load(runs.second).learners["odd"])
    finally:
        shutil.move(gone, runs.first)


def test_self_play_ends_with_its_pool(runs: SimpleNamespace):
    """The pool is in the checkpoints; a policy folder holds who plays now."""
    _, leaves = checkpoint.opened(next(checkpoint.places(runs.first)))
    assert leaves["learners/odd/taken"] > 3
    assert any(name.startswith("learners/odd/selves/params/agents/torso") for name in leaves)
    told = [json.loads(line) for line in (runs.first / "metrics.jsonl").read_text().splitlines()]
    assert {"odd/elo", "odd/win_rate", "odd/pool", "odd/pool_elo"} <= set().union(*told)


@pytest.mark.slow
def test_self_play_runs_on_a_host_game_in_turns(tmp_path: Path, capsys: pytest.CaptureFixture):
    """Tic-tac-toe, seats exchanged: games are rated, the pool fills, and random play is beaten."""
    seats = ["--env.teams", "each", "--env.swap", "--env.state", "False"]
    game = ["pz:pettingzoo.classic.tictactoe_v3", "--self-play=latest", *seats]
    rival = ["--player_2.groups", "2", "--player_2.every", "2", "--player_2.period", "2"]
    small = {
        "games": 16,
        "window": 20,
        "steps": 6000,
        "evaluations": 0,
        "eval-episodes": 8,
        "workers": 0,
    }
    sizes = ["--devices=1", *(f"--{name}={value}" for name, value in small.items())]
    where = ["--out", str(tmp_path), "--name", "run", "--player_1.lr", "1e-2"]
    assert main.main(["train", "ppo", *game, *rival, *sizes, *where]) == 0
    told = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    rated = [line["player_2/rated_games"] for line in told if "player_2/rated_games" in line]
    _, leaves = checkpoint.opened(next(checkpoint.places(tmp_path / "run")))
    assert sum(rated) > 20 and leaves["learners/player_2/taken"] > 5
    capsys.readouterr()
    assert (
        main.main(
            [
                "evaluate",
                str(tmp_path / "run"),
                "--team",
                "player_2=random",
                "--episodes",
                "64",
                "--json",
            ]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)["metrics"]["player_1/won"] > 0.6


def test_evaluation_with_a_team_replaced(runs: SimpleNamespace, capsys: pytest.CaptureFixture):
    run = str(runs.first)
    assert main.main(["evaluate", run, "--team", "odd=random", "--episodes", "40", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    even, odd = facts["teams"]["even"], facts["teams"]["odd"]
    assert facts["instead"] == {"odd": "random"}
    assert (
        even["win"] + even["draw"] + even["loss"] == pytest.approx(1)
        and even["win"] == odd["loss"] > 0.1
    )
    mirror = ["evaluate", run, f"--team=odd=frozen:{run}", "--odd.team", "even", "--episodes", "40"]
    assert main.main(mirror) == 0
    told = capsys.readouterr().out
    assert (
        f"team odd (frozen:{run}): return of one agent -25.00" in told
        and "won 0.0%, drew 0.0%, lost 100.0%" in told
    )
    assert main.main(["evaluate", run, "--team", "even=random", "--episodes", "4"]) == 0, (
        "whose past selves play on"
    )


def test_outcomes_are_of_exactly_two_teams():
    returns = {
        "a": np.array([[1.0, 3], [0, 0], [1, 1], [5, 5]]),
        "b": np.array([[1.0], [0], [2], [4]]),
    }
    shares = outcomes(Episodes(returns, np.ones(4)))
    assert shares == {
        "a": {"win": 0.5, "draw": 0.25, "loss": 0.25},
        "b": {"win": 0.25, "draw": 0.25, "loss": 0.5},
    }
    assert outcomes(Episodes({"a": returns["a"]}, np.ones(4))) == {}
    assert outcomes(Episodes(returns, np.ones(4), {"a/won": np.ones(4)})) == {}  # it is said


# -- words and mistakes ----------------------------------------------------------------------------


def test_an_argument_is_the_first_option():
    from shoal.config.arguments import compose_arguments
    from shoal.config.compose import Request, compose

    config, _ = compose_arguments(
        ["--team", "even=ppo", "--team", "odd=past:latest", PENNIES, "--odd.pool", "7"]
    )
    assert (config.teams["odd"][1].rule, config.teams["odd"][1].pool) == ("latest", 7)
    words = ["--team", "even=ppo", "--team", "odd=self_play:latest", PENNIES, "--odd.pool", "7"]
    assert compose_arguments(words)[0] == config
    sugar, _ = compose_arguments(["ppo", PENNIES, "--self-play=latest", "--odd.pool", "7"])
    assert sugar == config
    teams = {"even": ("ppo", {}), "odd": ("past:prioritised", {"every": 3})}
    config, _ = compose(Request(PENNIES, teams=teams))
    assert (config.teams["odd"][1].rule, config.teams["odd"][1].every) == ("prioritised", 3)


TAG = "mpe/simple_tag"
VERSUS = ["train", PENNIES, "--team", "even=ppo", "--team"]
MISTAKES = {
    "no run": ([*VERSUS, "odd=frozen"], "write frozen:runs/my-run"),
    "not a run": ([*VERSUS, "odd=frozen:nowhere"], "there is no folder nowhere"),
    "no such team there": (
        [*VERSUS, "odd=frozen:{first}", "--odd.team", "evn"],
        "did you mean 'even'",
    ),
    "which team there": (
        ["train", "ppo", TAG, "--team", "agent=frozen:{first}"],
        "set team to one of even, odd",
    ),
    "another game": (
        ["train", "ppo", TAG, "--team", "agent=frozen:{first}", "--agent.team", "even"],
        "trained on matrix/matching_pennies, observes 1 numbers, not 14",
    ),
    "another number of agents": (
        ["train", "ppo", TAG, "--team", "adversary=frozen:{first}", "--adversary.team", "even"],
        "has 1 agents, not 3",
    ),
    "nothing to argue about": ([*VERSUS, "odd=random:3"], "random takes nothing after a colon"),
    "a number is no argument": ([*VERSUS, "odd=ppo:1e-3"], "ppo takes nothing after a colon"),
    "no such rule": ([*VERSUS, "odd=past:best"], "latest, uniform, prioritised"),
    "past of one who does not learn": (
        ["train", PENNIES, "--team", "even=random", "--team", "odd=past"],
        "'even' plays random",
    ),
    "past of past": (["train", "past", PENNIES], "'odd' plays past"),
    "past of nobody": (["train", "past", "mpe/simple_spread"], "0 other teams play: set of"),
    "past of a stranger": ([*VERSUS, "odd=past", "--odd.of", "evn"], "did you mean 'even'"),
    "past of others": (
        ["train", "ppo", TAG, "--team", "agent=past"],
        "'adversary' has 3 agents, not 1",
    ),
    "uneven groups": (
        [*VERSUS, "odd=past", "--games", "6", "--even.minibatches", "1", "--odd.groups", "4"],
        "change groups or games",
    ),
    "empty pool": ([*VERSUS, "odd=past", "--odd.pool", "0"], "pool must be greater than 0"),
    "self-play of one team": (
        ["train", "ppo", "mpe/simple_spread", "--self-play"],
        "--env.teams each",
    ),
    "self-play of unlike teams": (["train", "ppo", TAG, "--self-play"], "two teams that are alike"),
    "self-play of whom": (
        ["train", "--team", "even=ppo", PENNIES, "--self-play"],
        "needs an algorithm that learns",
    ),
    "untrained": (["evaluate", "{first}", "--team", "odd=ppo"], "must be trained before"),
    "no such team": (["evaluate", "{first}", "--team", "od=random"], "did you mean 'odd'"),
    "a word too many": (
        ["evaluate", "{first}", "--team", "odd=random", "again"],
        "one word too many",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(
    mistake: str, runs: SimpleNamespace, capsys: pytest.CaptureFixture
):
    args, expected = MISTAKES[mistake]
    assert main.main([word.format(first=runs.first) for word in args]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("shoal: ") and err.count("\n") == 1 and expected in err, err
