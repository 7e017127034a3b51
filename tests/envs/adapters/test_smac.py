"""The adapter of SMAC's interface, on a small battle of ours that has it."""

from __future__ import annotations

import numpy as np
import pytest
from skirmish import Skirmish

from shoal.envs.adapters.options import AdapterOptions
from shoal.envs.adapters.smac import SmacMatch
from shoal.envs.host.match import Broken, Hosted, MatchStep
from shoal.envs.host.shared import layout
from shoal.envs.host.table import Table
from shoal.errors import ShoalError
from shoal.types import Discrete

TEAM = "agent"


class Solo(Hosted):
    """The one environment of a table."""

    def open(self) -> SmacMatch:
        return match()

    @property
    def teams(self) -> dict:
        return self.open().teams


class Seedless(Skirmish):
    """As SMAC itself: its `seed()` takes nothing and tells the seed it was made with."""

    def seed(self) -> int:  # type: ignore[override]
        return 7


class SeededReset(Skirmish):
    """As newer wrappers: the seed comes with `reset`."""

    seed = None  # type: ignore[assignment]

    def reset(self, seed: int) -> None:  # type: ignore[override]
        self.rng = np.random.default_rng(seed)
        super().reset()


class Collapsing(Skirmish):
    """As SMAC when StarCraft II dies."""

    def step(self, actions: list[int]) -> tuple[float, bool, dict]:
        return (0, True, {}) if self.time == 2 else super().step(actions)


def match(kind: type[Skirmish] = Skirmish, limit: int = 0, **options) -> SmacMatch:
    return SmacMatch(kind(**options), AdapterOptions(limit=limit))


def any_legal(moment: MatchStep, rng: np.random.Generator) -> dict[str, np.ndarray]:
    legal = moment.teams[TEAM].legal
    return {TEAM: np.array([rng.choice(np.flatnonzero(row)) for row in legal], np.int32)}


def play(game: SmacMatch, seed: int, policy=any_legal) -> tuple[list[MatchStep], list[dict]]:
    """An episode: its moments and what was done."""
    rng = np.random.default_rng(seed)
    moments, acts = [game.reset(seed)], []
    while not moments[-1].over:
        acts.append(policy(moments[-1], rng))
        moments.append(game.step(acts[-1]))
    return moments, acts


def charge(moment: MatchStep, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Hit whoever can be hit, else walk on."""
    legal = moment.teams[TEAM].legal
    best = [
        int(np.flatnonzero(row)[-1]) if row[6:].any() else 4 if row[4] else 1 if row[1] else 0
        for row in legal
    ]
    return {TEAM: np.array(best, np.int32)}


def test_the_team_is_as_the_battle_says():
    spec = match(allies=3, enemies=4).teams[TEAM]
    assert (spec.agents, spec.obs, spec.state) == (("agent_0", "agent_1", "agent_2"), 21, 22)
    assert spec.action == Discrete(10) and not spec.joined and spec.rivals == 0


def test_rewards_are_the_raw_game_s_and_everyone_s_also_the_last_one():
    moments, acts = play(match(), 3, charge)
    raw = Skirmish()
    raw.seed(3)
    raw.reset()
    for moment, act in zip(moments[1:], acts, strict=True):
        reward, over, _ = raw.step([int(a) for a in act[TEAM]])
        np.testing.assert_array_equal(moment.teams[TEAM].reward, np.full(3, reward, np.float32))
        np.testing.assert_array_equal(moment.teams[TEAM].obs, np.asarray(raw.get_obs(), np.float32))
        np.testing.assert_array_equal(moment.state, np.asarray(raw.get_state(), np.float32))
        assert moment.over == over
    assert moments[-1].teams[TEAM].reward[0] != 0


def test_dead_agents_are_not_alive_and_send_the_no_op_whatever_the_policy_says():
    def stubborn(moment: MatchStep, rng: np.random.Generator) -> dict[str, np.ndarray]:
        acts, dead = any_legal(moment, rng), ~moment.teams[TEAM].alive
        return {TEAM: np.where(dead, 5, acts[TEAM])}  # the battle refuses this of the dead

    deaths = 0
    for seed in range(5):
        for moment in play(match(), seed, stubborn)[0]:
            glance = moment.teams[TEAM]
            np.testing.assert_array_equal(~glance.alive, glance.legal.sum(-1) == 1)
            np.testing.assert_array_equal(glance.legal[:, 0], ~glance.alive)
            assert not glance.discount[~glance.alive].any()
            deaths += int((~glance.alive).sum())
    assert deaths > 0


def test_the_end_of_a_battle_is_the_end_of_the_task():
    last = play(match(enemies=1), 3, charge)[0][-1].teams[TEAM]
    assert last.alive.any() and not last.discount.any()  # a victory


@pytest.mark.parametrize(
    ("options", "length"),
    [({"episode_limit": 4}, 4), ({"limit": 3}, 3)],
    ids=["of the battle", "ours"],
)
def test_a_limit_is_truncation_not_termination(options, length):
    moments, _ = play(match(**options), 0)
    assert len(moments) == length + 1
    np.testing.assert_array_equal(moments[-1].teams[TEAM].discount, np.ones(3))


def test_a_limit_the_battle_does_not_tell_is_an_end():
    moments, _ = play(match(episode_limit=4, tells_limit=False), 0)
    assert not moments[-1].teams[TEAM].discount.any()


def test_our_limit_counts_anew_in_every_episode():
    game = match(limit=3)
    assert [len(play(game, seed)[0]) for seed in range(3)] == [4, 4, 4]


@pytest.mark.parametrize("kind", [Skirmish, SeededReset])
def test_equal_seeds_open_equal_episodes(kind):
    game = match(kind)
    one, two, other = (play(game, seed)[0] for seed in (1, 1, 2))
    assert [m.state.tolist() for m in one] == [m.state.tolist() for m in two]
    assert one[0].state.tolist() != other[0].state.tolist()


def test_a_battle_that_only_tells_its_seed_is_played_all_the_same():
    assert play(match(Seedless), 1)[0][-1].over


def test_a_collapse_is_a_fault_not_an_end():
    with pytest.raises(Broken, match="without any info"):
        play(match(Collapsing), 0)


def test_what_lacks_the_interface_is_refused():
    with pytest.raises(ShoalError, match="lacks get_env_info"):
        SmacMatch(object(), AdapterOptions(limit=0))


def test_a_table_plays_it_from_episode_to_episode():
    env = Solo("skirmish")
    arrays = {name: np.zeros(shape, kind) for name, (shape, kind) in layout(env.teams, 2).items()}
    table, rng = Table(env, arrays, range(2), seed=0), np.random.default_rng(0)  # type: ignore[arg-type]
    for _ in range(80):
        assert table.step() == []
        arrays["agent/action"][:] = (rng.random((2, 3, 9)) * arrays["agent/legal"]).argmax(-1)
        assert (arrays["agent/reward"][arrays["first"]] == 0).all()
    assert (arrays["episode"] > 2).all()
    table.close()
