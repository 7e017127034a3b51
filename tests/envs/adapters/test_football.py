"""Google Research Football through its adapter, where the package is built."""

import importlib.util
import shutil
import subprocess
import sys

import numpy as np
import pytest

from shoal.envs.adapters import open_match
from shoal.envs.adapters.football import PLAYERS
from shoal.envs.check import check
from shoal.envs.host.match import Hosted, Match, MatchStep

if importlib.util.find_spec("gfootball") is None:
    pytest.skip(
        "gfootball takes 13 minutes to compile (docs/other-environments.md)",
        allow_module_level=True,
    )

IDLE, RIGHT, PASS, SHOT, SLIDE = 0, 5, 11, 12, 16
TOWARDS = (5, 4, 3, 2, 1, 8, 7, 6)  # right, then anticlockwise
CLOSE = "academy_empty_goal_close"


def game(scenario: str, **options) -> Match:
    return open_match(f"football:{scenario}", options)


def everybody(match: Match, action: int) -> dict[str, np.ndarray]:
    return {team: np.full(spec.n, action, np.int32) for team, spec in match.teams.items()}


def goal(match: Match, seed: int = 0) -> list[MatchStep]:
    """The episode of a player who runs at the empty goal and shoots; rivals stand still."""
    moments = [match.reset(seed)]
    while not moments[-1].over:
        actions = everybody(match, IDLE)
        actions["left"][:] = SHOT if len(moments) > 15 else RIGHT
        moments.append(match.step(actions))
    return moments


def noise(match: Match, seed: int, steps: int) -> list[MatchStep]:
    """Random play until the end, or for so long."""
    rng, moments = np.random.default_rng(seed), [match.reset(seed)]
    while not moments[-1].over and len(moments) <= steps:
        moments.append(
            match.step({team: rng.integers(0, 19, spec.n) for team, spec in match.teams.items()})
        )
    return moments


def chase(obs: np.ndarray, rng: np.random.Generator, slide: float = 0.0) -> np.ndarray:
    """Actions of a team that runs to the ball, and slides when it is as near as that."""
    own = obs[:, 97:108].argmax(-1)
    way = (
        obs[:, 88:90]
        - np.take_along_axis(obs[:, :22].reshape(-1, 11, 2), own[:, None, None], 1)[:, 0]
    )
    turn = np.round(np.arctan2(-way[:, 1], way[:, 0]) / (np.pi / 4)).astype(int) % 8
    run = np.where(
        rng.random(len(obs)) < 0.9, np.take(TOWARDS, turn), rng.integers(0, 19, len(obs))
    )
    return np.where(np.abs(way).max(-1) < slide, SLIDE, run)


def earned(moments: list[MatchStep], team: str = "left") -> np.ndarray:
    return np.sum([moment.teams[team].reward for moment in moments], axis=0)


def same(one: list[MatchStep], other: list[MatchStep]) -> bool:
    pairs = zip(one, other, strict=False)
    return len(one) == len(other) and all(np.array_equal(a.state, b.state) for a, b in pairs)


def test_every_scenario_of_the_package_is_known_and_opens_with_its_players():
    from gfootball.env.scenario_builder import all_scenarios

    assert set(PLAYERS) == set(all_scenarios()) - {"tests", "test_example_multiagent"}
    for scenario, players in PLAYERS.items():
        match = game(scenario)
        seen = match.reset(1).teams["left"]
        assert seen.obs.shape == (players, 115) and seen.alive.all(), scenario
        assert (seen.obs[:, 97:108].sum(0) <= 1).all(), f"{scenario}: two control one player"
        match.close()


def test_it_keeps_the_contract():
    report = check(Hosted("football:academy_3_vs_1_with_keeper"), steps=120)
    assert report.episodes > 1
    assert not {rule: found for rule, found in report.findings.items() if found}


@pytest.mark.parametrize("rewards", ["scoring", "scoring,checkpoints"])
def test_views_and_rewards_are_the_raw_environments(rewards):
    from gfootball.env import create_environment

    match = game("academy_3_vs_1_with_keeper", rewards=rewards)
    raw = create_environment(
        env_name="academy_3_vs_1_with_keeper",
        representation="simple115v2",
        rewards=rewards,
        number_of_left_players_agent_controls=3,
        other_config_options={"game_engine_random_seed": 7, "reverse_team_processing": True},
    )
    moment, obs = match.reset(7), raw.reset()
    rng, over, ours, theirs = np.random.default_rng(0), False, np.zeros(3), np.zeros(3)
    while not over:
        actions = rng.choice([RIGHT, PASS, SHOT], 3)
        np.testing.assert_array_equal(moment.teams["left"].obs, obs)
        moment, (obs, reward, over, _) = match.step({"left": actions}), raw.step(actions.tolist())
        assert moment.over == over
        np.testing.assert_array_equal(moment.teams["left"].reward, reward)
        ours, theirs = ours + moment.teams["left"].reward, theirs + reward
    np.testing.assert_array_equal(ours, theirs)
    assert rewards == "scoring" or theirs.any()
    match.close()
    raw.close()


def test_a_goal_ends_the_task_and_pays_both_sides():
    match = game(CLOSE, right=1)
    moments = goal(match)
    assert [earned(moments, team).tolist() for team in ("left", "right")] == [[1.0], [-1.0]]
    assert all(not seen.discount.any() for seen in moments[-1].teams.values())
    assert all(seen.discount.all() for moment in moments[:-1] for seen in moment.teams.values())
    match.close()


def test_checkpoints_are_paid_once_in_every_episode():
    match = game(CLOSE, rewards="scoring,checkpoints")
    for seed in (0, 1):
        assert earned(goal(match, seed)) == pytest.approx(2.0)
    match.close()


def test_time_that_runs_out_truncates():
    match = game("1_vs_1_easy", right=1)
    moments = [match.reset(0)]
    while not moments[-1].over:
        moments.append(match.step(everybody(match, IDLE)))
    assert len(moments) == 502  # the package plays one step more than its 500
    assert all(seen.discount.all() for seen in moments[-1].teams.values())
    match.close()


def test_one_who_is_sent_off_is_dead_and_nothing_follows_for_it():
    match, rng = game("5_vs_5", right=4), np.random.default_rng(0)
    moment = match.reset(3)
    for _ in range(1500):
        left, right = (moment.teams[team].obs for team in ("left", "right"))
        moment = match.step({"left": chase(left, rng, slide=0.05), "right": chase(right, rng)})
        if not moment.teams["left"].alive.all():
            break
    seen = moment.teams["left"]
    assert seen.alive.sum() == 3 and not moment.over
    np.testing.assert_array_equal(seen.discount, seen.alive)
    assert moment.teams["right"].discount.all()
    match.close()


def test_equal_seeds_open_equal_episodes_whatever_was_played_before():
    match, other = game("5_vs_5"), game("5_vs_5")
    first = noise(match, 5, 40)
    noise(match, 6, 10)
    assert same(first, noise(match, 5, 40)) and same(first, noise(other, 5, 40))
    assert not same(first[1:], noise(match, 7, 40)[1:])
    match.close()
    other.close()


def test_either_side_kicks_off():
    match = game("5_vs_5")
    fronts = {
        round(float(match.reset(seed).teams["left"].obs[0, 2:22:2].max()), 2) for seed in range(4)
    }
    assert len(fronts) == 2  # at the ball, or a little behind it
    match.close()


def test_the_right_sees_the_field_from_its_own_side():
    match = game("5_vs_5", right=4)
    moment = noise(match, 3, 30)[-1]
    left, right = moment.teams["left"].obs[0], moment.teams["right"].obs[0]
    # x and y of five, of five, of the ball
    own, theirs, ball = slice(0, 10), slice(44, 54), slice(88, 90)
    np.testing.assert_allclose(right[own], -left[theirs])
    np.testing.assert_allclose(right[theirs], -left[own])
    np.testing.assert_allclose(right[ball], -left[ball])
    match.close()


@pytest.mark.skipif(
    shutil.which("xvfb-run") is None, reason="pictures need a screen, such as xvfb's"
)
def test_it_can_be_drawn():
    script = f"""
from shoal.envs.adapters import open_match
import numpy as np
match = open_match("football:{CLOSE}", {{}}, render=True)
match.reset(0)
for _ in range(3):
    match.step({{"left": np.array([{RIGHT}])}})
picture = match.render()
assert picture.shape == (180, 320, 3) and picture.dtype == np.uint8, picture.shape
assert picture.std() > 5, "nothing to be seen"
assert (picture[..., 1] > picture[..., 2]).mean() > 0.5, "the field is not green"
"""
    ran = subprocess.run(
        ["xvfb-run", "-a", sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
