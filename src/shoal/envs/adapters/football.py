"""Adapter for Google Research Football (`gfootball` 2.10.2).

Team `left` has the controlled players on the left; team `right` exists if players are controlled
there, too. Each player sees the 115 numbers of `simple115v2` from its own side of the field. The
package has the old gym API: a step returns four values, with an axis for players unless there is
only one.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ShoalError, did_you_mean
from ...options import fill
from ...types import Discrete, Spec
from ..host.match import Match, MatchStep, TeamStep
from ..metrics import WON

ACTIONS = 19
SIZE = 115
ACTIVE = slice(97, 108)  # part of an observation that marks the controlled player
FRAME = (320, 180)
# default number of players on the left: those whom the scenario is about, most often not the keeper
PLAYERS = {
    "academy_empty_goal_close": 1,
    "academy_empty_goal": 1,
    "academy_run_to_score": 1,
    "academy_run_to_score_with_keeper": 1,
    "academy_pass_and_shoot_with_keeper": 2,
    "academy_run_pass_and_shoot_with_keeper": 2,
    "academy_3_vs_1_with_keeper": 3,
    "academy_corner": 4,
    "academy_counterattack_easy": 4,
    "academy_counterattack_hard": 4,
    "academy_single_goal_versus_lazy": 10,
    "1_vs_1_easy": 1,
    "5_vs_5": 4,
    "11_vs_11_easy_stochastic": 10,
    "11_vs_11_stochastic": 10,
    "11_vs_11_hard_stochastic": 10,
    "11_vs_11_competition": 10,
    "11_vs_11_kaggle": 10,
}
RECIPE = """\
gfootball is not installed, and pip has to compile it: in an activated virtual environment, \
with the libraries that docs/other-environments.md lists, \
`pip install psutil wheel "setuptools<66"`, then \
`pip install --no-build-isolation gfootball==2.10.2`, then `pip install six gym==0.25.2`."""


@dataclass(frozen=True)
class Options:
    players: int = 0
    """controlled on the left; 0 is what the scenario is about"""
    right: int = 0
    """controlled on the right, as a team of their own; 0 leaves them to the game"""
    rewards: str = "scoring"
    """`scoring`, or `scoring,checkpoints`, which also pays for coming nearer to the goal with the
    ball"""
    representation: str = "simple115v2"
    """what players see; there is no other"""


def make(scenario: str, options: dict[str, Any], render: bool) -> Match:
    """A match of a scenario; `render` makes one that can draw, which needs a screen."""
    if scenario not in PLAYERS:
        hint = did_you_mean(scenario, PLAYERS)
        raise ShoalError(
            f"football has no scenario {scenario!r}{hint}: it has {', '.join(PLAYERS)}"
        )
    parsed = _checked(options)
    try:
        football = importlib.import_module("gfootball.env")
    except ImportError as error:
        raise ShoalError(f"{RECIPE} ({error})") from error
    left = parsed.players or PLAYERS[scenario]
    try:
        env = football.create_environment(
            env_name=scenario,
            representation=parsed.representation,
            rewards=parsed.rewards,
            render=render,
            number_of_left_players_agent_controls=left,
            number_of_right_players_agent_controls=parsed.right,
            other_config_options={"render_resolution_x": FRAME[0], "render_resolution_y": FRAME[1]},
        )
    except AssertionError as error:
        raise ShoalError(
            f"{scenario} cannot be played by {left} and {parsed.right}: {error}"
        ) from error
    return FootballMatch(env, left, parsed.right)


def _checked(options: dict[str, Any]) -> Options:
    parsed = fill(Options, options, "football")
    for option, value in (("players", parsed.players), ("right", parsed.right)):
        if not 0 <= value <= 11:
            raise ShoalError(f"{option} must be a whole number from 0 to 11, not {value!r}")
    if parsed.rewards not in ("scoring", "scoring,checkpoints"):
        raise ShoalError(
            f"rewards must be 'scoring' or 'scoring,checkpoints', not {parsed.rewards!r}"
        )
    if parsed.representation != "simple115v2":
        raise ShoalError(f"representation must be 'simple115v2', not {parsed.representation!r}")
    return parsed


class FootballMatch:
    """One match of `left` and `right` controlled players."""

    def __init__(self, env: Any, left: int, right: int) -> None:
        self.env = env
        self.counts = {"left": left} | ({"right": right} if right else {})
        self.goals = {"left": 0, "right": 0}  # in this episode
        self.metrics = tuple(self.episode_metrics())
        # All players see the whole field, so the state is one player's observation with every
        # controlled player marked.
        state = SIZE + (ACTIVE.stop - ACTIVE.start if right else 0)
        self.teams = {
            team: Spec(
                tuple(f"{team}_{i}" for i in range(count)),
                SIZE,
                state,
                Discrete(ACTIONS),
                rivals=ACTIONS * (left + right - count),
            )
            for team, count in self.counts.items()
        }

    def reset(self, seed: int) -> MatchStep:
        """Open a match; the seed determines all randomness of the package.

        That includes what the package derives from the match's number.
        """
        config = self.env.unwrapped._config
        config["game_engine_random_seed"] = seed
        config["reverse_team_processing"] = bool(seed % 2)
        # its parity decides who starts on which side
        config["episode_number"] = (seed // 2) % 2
        obs = self.env.reset()
        self.goals = dict.fromkeys(self.goals, 0)
        return self._match_step(obs, np.zeros(sum(self.counts.values())), ended=False, over=False)

    def step(self, actions: dict[str, np.ndarray]) -> MatchStep:
        told = [int(action) for team in self.counts for action in actions[team]]
        obs, reward, over, info = self.env.step(told)
        scored = info.get("score_reward", 0)  # from the left's perspective
        self.goals["left"] += scored > 0
        self.goals["right"] += scored < 0
        return self._match_step(
            obs, reward, ended=bool(over) and not self._late(info), over=bool(over)
        )

    def episode_metrics(self) -> dict[str, float]:
        """Goals, and who scored more; from the left's perspective if it plays alone."""
        left, right = self.goals.values()
        if len(self.counts) == 1:
            return {WON: left > right, "goals": left, "conceded": right}
        return {
            f"left/{WON}": left > right,
            f"right/{WON}": right > left,
            "left/goals": left,
            "right/goals": right,
        }

    def render(self) -> np.ndarray:
        return np.asarray(self.env.unwrapped.render(mode="rgb_array"), np.uint8)

    def close(self) -> None:
        self.env.close()

    def _late(self, info: dict[str, Any]) -> bool:
        """Whether time ran out, rather than a goal ending the match in its last step."""
        raw = self.env.unwrapped
        goal = (
            raw._config.ScenarioConfig().end_episode_on_score and info.get("score_reward", 0) != 0
        )
        return raw.observation()[0]["steps_left"] <= 0 and not goal

    def _match_step(self, obs: Any, reward: Any, ended: bool, over: bool) -> MatchStep:
        obs = np.reshape(np.asarray(obs, np.float32), (-1, SIZE))
        rewards = np.reshape(np.asarray(reward, np.float32), -1)
        seen = {}
        start = 0
        for team, count in self.counts.items():
            own = slice(start, start + count)
            alive = obs[own, ACTIVE].any(-1)  # a player sent off is dead
            seen[team] = TeamStep(
                obs=obs[own],
                legal=np.ones((count, ACTIONS), bool),
                alive=alive,
                reward=rewards[own],
                # 0 for the dead
                discount=np.where(ended, 0.0, alive).astype(np.float32),
            )
            start += count
        return MatchStep(seen, self._state(seen), over)

    def _state(self, seen: dict[str, TeamStep]) -> np.ndarray:
        state = seen["left"].obs[0].copy()
        state[ACTIVE] = seen["left"].obs[:, ACTIVE].max(0)
        return np.concatenate(
            [state, *(g.obs[:, ACTIVE].max(0) for team, g in seen.items() if team != "left")]
        )
