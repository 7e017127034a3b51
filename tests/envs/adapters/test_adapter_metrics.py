"""What somebody's environment says about an episode, through every adapter."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from skirmish import Skirmish
from tallies import LENGTH, Counter, Tally

from shoal.config.trust import NOTHING
from shoal.envs.adapters import adapt, football, open_match
from shoal.envs.adapters.options import AdapterOptions
from shoal.envs.host.match import Broken, Match, MatchStep, measured
from shoal.errors import ShoalError


def opened(env: Any, **options: Any) -> Match:
    how = AdapterOptions(**options)
    return how.arrange(adapt(env, how))


def played(match: Any, seed: int = 0) -> tuple[list[MatchStep], dict[str, float]]:
    """An episode of legal actions drawn at random, and what is said of it."""
    rng = np.random.default_rng(seed)
    moments = [match.reset(seed)]
    while not moments[-1].over:
        seen = moments[-1].teams
        lots = {team: (rng.random(one.legal.shape) * one.legal) for team, one in seen.items()}
        moments.append(match.step({team: lot.argmax(-1) for team, lot in lots.items()}))
    return moments, dict(zip(match.metrics, measured(match, match.metrics), strict=True))


def earned(moments: list[MatchStep], team: str) -> np.ndarray:
    return np.sum([moment.teams[team].reward for moment in moments], axis=0)


@pytest.mark.parametrize("says", ["info", "late", "method"])
@pytest.mark.parametrize("seed", range(3))
def test_a_metric_is_the_mean_over_the_agents_that_say_it(says: str, seed: int) -> None:
    moments, said = played(opened(Tally(says)), seed)
    red, blue = (earned(moments, team) for team in ("red", "blue"))
    everyone = np.concatenate([red, blue])
    assert list(said) == ["right", "red/right", "won"]
    assert said["right"] == pytest.approx(everyone.mean())
    assert said["red/right"] == pytest.approx(red.mean())
    won = (everyone == LENGTH).all() if says == "method" else (everyone == LENGTH).mean()
    assert said["won"] == pytest.approx(float(won))


def test_the_user_may_ask_for_others_or_for_none() -> None:
    match = opened(Tally(), metrics="hits=right, blue/hits=right")
    moments, said = played(match)
    blue = earned(moments, "blue").mean()
    assert said["blue/hits"] == blue and list(said) == ["hits", "blue/hits"]
    assert opened(Tally(), metrics=["right"]).metrics == ("right",)  # type: ignore[attr-defined]
    assert opened(Tally(), metrics="").metrics == ()  # type: ignore[attr-defined]
    NOTHING.check("pz:mpe2.simple_tag_v3", {"metrics": "red/won=is.won"})  # it can load nothing


def test_what_else_an_environment_calls_metrics_is_its_own_affair() -> None:
    for other in ({"won": 1}, 3, object(), None, ("won", 3)):
        assert opened(Tally(metrics=other)).metrics == ()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("says", "options", "wrong"),
    [
        ("nan", {}, "the metric 'right' is not finite, or too large: nan"),
        ("huge", {}, "the metric 'right' is not finite, or too large: 1e.300"),
        ("text", {}, "the metric 'right' must be one number, not 'many'"),
        ("two", {}, r"the metric 'right' must be one number, not \[1, 2\]"),
        ("nothing", {}, "no info says 'right' at the end of an episode, but nothing"),
        ("late", {"limit": 2}, "no info says 'right'"),
        ("info", {"metrics": "hits"}, "no info says 'hits' at .*, but note, right, won"),
    ],
)
def test_what_is_no_number_or_not_said_breaks_the_match(
    says: str, options: dict[str, Any], wrong: str
) -> None:
    with pytest.raises(Broken, match=wrong):
        played(opened(Tally(says), **options))


def test_a_method_says_what_is_declared() -> None:
    with pytest.raises(Broken, match="says 'red/right', which is not declared: add it to metrics"):
        played(opened(Tally("method", ("right", "won"))))
    assert played(opened(Tally("method"), metrics="won"))[1].keys() == {"won"}


def test_a_limit_cuts_and_says_what_there_is() -> None:
    moments, said = played(opened(Tally(), limit=2))
    assert len(moments) == 3 and said["red/right"] == earned(moments, "red").mean()


def test_options_that_cannot_be_read_are_refused() -> None:
    for wrong in (3, [1], True):
        with pytest.raises(ShoalError, match="metrics must be text"):
            AdapterOptions.split({"metrics": wrong})


def test_gymnasium_says_it_in_its_info() -> None:
    moments, said = played(opened(Counter(), metrics="right,won=is_success"))
    right = earned(moments, "agent")[0]
    assert said == {"right": right, "won": right > 2}
    assert opened(Counter()).metrics == ()  # type: ignore[attr-defined]

    class Declared(Counter):
        metrics = ("right",)

    wrapped = gymnasium.wrappers.TimeLimit(Declared(), 3)
    moments, said = played(opened(wrapped))
    assert said == {"right": earned(moments, "agent")[0]} and len(moments) == 4


def test_a_gymnasium_environment_that_judges_success_says_who_won() -> None:
    class Robot(Counter):  # as those of Gymnasium-Robotics
        def _is_success(self, achieved: Any, desired: Any) -> bool:
            return bool(achieved == desired)

    told = [played(opened(gymnasium.wrappers.TimeLimit(Robot(), 99)), seed) for seed in range(20)]
    won = [said["won"] for _, said in told]
    assert won == [earned(moments, "agent")[0] > 2 for moments, _ in told] and 0 < sum(won) < 20
    assert opened(Robot(), metrics="right").metrics == ("right",)  # type: ignore[attr-defined]
    assert opened(Robot(), metrics="").metrics == ()  # type: ignore[attr-defined]


MOVES = [(i, j) for i in range(-2, 3) for j in range(-2, 3) if abs(i) + abs(j) <= 2]
HITS = ((-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1))


def hunt(obs: np.ndarray, rng: np.random.Generator) -> int:
    """An action of MAgent's that hits the nearest foe, or moves towards it."""
    foes = np.argwhere(obs.reshape(13, 13, -1)[..., 3] > 0) - 6
    if not len(foes):
        return int(rng.integers(len(MOVES)))
    foe = foes[np.abs(foes).sum(1).argmin()]
    if np.abs(foe).max() <= 1:
        return len(MOVES) + HITS.index(tuple(foe.tolist()))
    far = np.abs(foe - np.array(MOVES)).sum(1) + 2 * rng.random(len(MOVES))
    return int(far.argmin())


@pytest.mark.parametrize(("hunter", "limit"), [("red", 0), ("blue", 0), ("nobody", 9)])
def test_the_side_with_more_agents_left_has_won_a_battle(hunter: str, limit: int) -> None:
    options: dict[str, Any] = {"map_size": 12, "max_cycles": 1000, "limit": limit}
    match: Any = open_match("pz:magent2.environments.battle_v4", options)
    assert match.metrics == ("red/won", "blue/won")
    rng = np.random.default_rng(0)
    instant = match.reset(0)
    while not instant.over:
        actions = {
            team: np.array([hunt(obs, rng) if team == hunter else 6 for obs in seen.obs])
            for team, seen in instant.teams.items()
        }
        instant = match.step(actions)
    assert match.episode_metrics() == {"red/won": hunter == "red", "blue/won": hunter == "blue"}
    match.close()


def test_an_info_may_list_what_is_each_agents_own() -> None:
    class Pair(Counter):
        observation_space = gymnasium.spaces.Tuple([Counter.observation_space] * 2)
        action_space = gymnasium.spaces.Tuple([Counter.action_space] * 2)
        metrics = ("own", "all")

        def reset(self, **how: Any) -> tuple:
            obs, info = super().reset(**how)
            return (obs, obs), info

        def step(self, action: Any) -> tuple:
            obs, reward, over, cut, _ = super().step(action[0])
            return (obs, obs), [reward] * 2, over, cut, {"own": [1, 4], "all": 7}

    assert played(opened(Pair()))[1] == {"own": 2.5, "all": 7.0}


def test_a_battle_is_won_as_smac_tells_it() -> None:
    told = []
    for seed in range(8):
        battle = Skirmish(allies=2, enemies=1)
        match = opened(battle)
        _, said = played(match, seed)
        assert match.metrics == ("won",)  # type: ignore[attr-defined]
        assert said == {"won": bool((battle.health[2:] <= 0).all())}
        told.append(said["won"])
    assert len(set(told)) == 2

    class Quiet(Skirmish):
        def step(self, actions: list[int]) -> tuple[float, bool, dict]:
            return (*super().step(actions)[:2], {"hits": 3})

    assert played(opened(Quiet()))[1] == {"won": 0.0}
    assert played(opened(Quiet(), metrics="hits"))[1] == {"hits": 3.0}


class Pitch:
    """A football environment as far as the adapter asks: the left scores, then the right, twice."""

    unwrapped: Any

    def __init__(self, players: int, goals: list[int]):
        self.players, self.goals, self.unwrapped = players, goals, self
        self._config = type("Config", (dict,), {"ScenarioConfig": lambda self: self})()
        self._config.end_episode_on_score = False

    def observation(self) -> list[dict]:
        return [{"steps_left": 5}]

    def reset(self) -> np.ndarray:
        self.taken = 0
        return np.ones((self.players, 115), np.float32)

    def step(self, actions: list[int]) -> tuple:
        goal = self.goals[self.taken]
        self.taken += 1
        obs = np.ones((self.players, 115), np.float32)
        over = self.taken == len(self.goals)
        return obs, np.zeros(self.players), over, {"score_reward": goal}


def test_football_is_won_by_more_goals() -> None:
    match = football.FootballMatch(Pitch(2, [1, 0, -1, -1]), 2, 0)
    for _ in range(2):  # goals are of an episode
        assert played(match)[1] == {"won": 0.0, "goals": 1.0, "conceded": 2.0}
    both = football.FootballMatch(Pitch(3, [1, 0]), 2, 1)
    assert played(both)[1] == {
        "left/won": 1.0,
        "right/won": 0.0,
        "left/goals": 1.0,
        "right/goals": 0.0,
    }
    how = AdapterOptions(metrics="goals")
    assert how.arrange(match).metrics == ("goals",)  # type: ignore[attr-defined]
    with pytest.raises(ShoalError, match="has no metric 'shots': it has goals"):
        AdapterOptions(metrics="shots").arrange(match)


@pytest.mark.parametrize("swap", [False, True])
def test_board_games_of_pettingzoo_know_who_won(swap: bool) -> None:
    tictactoe = pytest.importorskip("pettingzoo.classic.tictactoe_v3")
    match = opened(tictactoe.env(), teams="each", swap=swap)
    assert match.metrics == ("player_1/won", "player_2/won")  # type: ignore[attr-defined]
    ends = set()
    for seed in range(20):
        moments, said = played(match, seed)
        for player in (1, 2):
            return_ = earned(moments, f"player_{player}")[0]
            assert said[f"player_{player}/won"] == (return_ > 0)
        ends.add(tuple(said.values()))
    assert {(1.0, 0.0), (0.0, 1.0)} <= ends
    assert opened(tictactoe.env()).metrics == ()  # type: ignore[attr-defined] one team, itself


def test_seats_are_exchanged_with_what_is_said_of_them() -> None:
    class Alike(Tally):
        possible_agents = ["red_0", "blue_0"]

    names = ("red/right", "blue/right", "right")
    match: Any = opened(Alike(metrics=names), swap=True)
    for seed in range(4):
        moments, said = played(match, seed)
        assert [said[name] for name in names[:2]] == [
            earned(moments, team)[0] for team in ("red", "blue")
        ]
    with pytest.raises(ShoalError, match="swap needs metrics of both teams"):
        opened(Alike(metrics=("red/right",)), swap=True)


def test_a_match_that_declares_metrics_says_them() -> None:
    class Half:
        metrics = ("won",)

    with pytest.raises(Broken, match="has no episode_metrics"):
        measured(Half(), ("won",))  # type: ignore[arg-type]
    Half.episode_metrics = lambda self: {}  # type: ignore[attr-defined]
    with pytest.raises(Broken, match="'won' was declared and is missing"):
        measured(Half(), ("won",))  # type: ignore[arg-type]
    Half.episode_metrics = lambda self: [1]  # type: ignore[attr-defined]
    with pytest.raises(Broken, match="must give a dictionary by name"):
        measured(Half(), ("won",))  # type: ignore[arg-type]
