"""Environments from outside: what the adapters promise, held against the real packages."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from helpers import PAGES, with_pages
from magent2.environments import combined_arms_v6
from mpe2 import simple_tag_v3
from pettingzoo import ParallelEnv
from pettingzoo.butterfly import knights_archers_zombies_v11
from pettingzoo.classic import connect_four_v3, texas_holdem_v4
from pettingzoo.test import parallel_api_test, parallel_seed_test

from shoal.envs.adapters import AdapterOptions, adapt, as_parallel_env, open_match
from shoal.envs.host.match import Broken, Hosted, Match, MatchStep
from shoal.envs.host.shared import shared
from shoal.envs.host.table import Table
from shoal.errors import ShoalError
from shoal.types import Box, Discrete, MultiDiscrete, Spec

DOCS: Path = PAGES / "bringing-an-environment.md"


def chosen(match: Match, moment: MatchStep, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """A legal action of every agent."""
    actions = {}
    for team, spec in match.teams.items():
        legal = moment.teams[team].legal
        if isinstance(spec.action, Box):
            actions[team] = rng.uniform(spec.action.low, spec.action.high, legal.shape).astype(
                np.float32
            )
        else:
            actions[team] = (rng.random(legal.shape) * legal).argmax(-1).astype(np.int32)
    return actions


def episode(
    match: Match, seed: int, most: int = 1000
) -> tuple[list[dict[str, np.ndarray]], list[MatchStep]]:
    """The actions and the moments of an episode of random play."""
    rng, moments, actions = np.random.default_rng(seed), [match.reset(seed)], []
    while not moments[-1].over and len(actions) < most:
        actions.append(chosen(match, moments[-1], rng))
        moments.append(match.step(actions[-1]))
    return actions, moments


def earned(match: Match, moments: list[MatchStep]) -> dict[str, float]:
    """What each agent got in all."""
    return {
        agent: float(sum(np.float64(moment.teams[team].reward[i]) for moment in moments))
        for team, spec in match.teams.items()
        for i, agent in enumerate(spec.agents)
    }


def by_agent(match: Match, actions: dict[str, np.ndarray]) -> dict[str, Any]:
    return {
        agent: actions[team][i]
        for team, spec in match.teams.items()
        for i, agent in enumerate(spec.agents)
    }


def assert_same(ours: list[MatchStep], theirs: list[MatchStep]) -> None:
    """Two episodes, to the bit."""
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one.state, other.state)
        assert one.over == other.over and one.teams.keys() == other.teams.keys()
        for team, glance in one.teams.items():
            for field, value in glance._asdict().items():
                np.testing.assert_array_equal(
                    value, getattr(other.teams[team], field), err_msg=f"{team}/{field}"
                )


# The sums of rewards (traps 7 and 8)


@pytest.mark.parametrize(
    ("name", "raw", "options"),
    [
        ("pz:mpe2.simple_tag_v3", simple_tag_v3, {}),
        (
            "pz:pettingzoo.butterfly.knights_archers_zombies_v11",
            knights_archers_zombies_v11,
            {"spawn_delay": 3},
        ),
        ("pz:magent2.environments.combined_arms_v6", combined_arms_v6, {"map_size": 16}),
    ],
)
def test_no_reward_is_lost_nor_goes_to_another_when_agents_die(name, raw, options):
    match, env = open_match(name, options), raw.parallel_env(**options)
    seed = 3
    actions, moments = episode(match, seed)
    env.reset(seed=seed)
    sums, deaths = dict.fromkeys(env.possible_agents, 0.0), {}
    for t, answer in enumerate(actions):
        answers = by_agent(match, answer)
        _, rewards, ended, _, _ = env.step({agent: int(answers[agent]) for agent in env.agents})
        for agent, reward in rewards.items():
            sums[agent] += reward
        deaths |= {agent: t for agent, died in ended.items() if died}
    assert not env.agents and moments[-1].over
    assert earned(match, moments) == pytest.approx(sums, abs=1e-4) and any(sums.values())
    # not all at once: indices could shift
    assert len(set(deaths.values())) > 1 or name == "pz:mpe2.simple_tag_v3"
    for team, spec in match.teams.items():
        for i, agent in enumerate(spec.agents):
            lived = [bool(moment.teams[team].alive[i]) for moment in moments]
            assert lived == [t <= deaths.get(agent, len(actions)) for t in range(len(moments))]
            assert all(
                not moment.teams[team].obs[i].any()
                for moment in moments[:-1]
                if not moment.teams[team].alive[i]
            )


@pytest.mark.parametrize("raw", [connect_four_v3, texas_holdem_v4], ids=lambda raw: raw.__name__)
def test_in_turns_every_reward_arrives_once_also_the_last(raw):
    match, env = open_match(f"pz:{raw.__name__}", {}), raw.env()
    for seed in range(5):
        actions, moments = episode(match, seed)
        env.reset(seed=seed)
        sums, moves = dict.fromkeys(env.possible_agents, 0.0), iter(actions)
        for agent in env.agent_iter():
            _, reward, terminated, truncated, _ = env.last()
            sums[agent] += reward
            env.step(None if terminated or truncated else by_agent(match, next(moves))[agent])
        assert next(moves, None) is None
        assert earned(match, moments) == pytest.approx(sums) and any(sums.values())
        assert moments[-1].over and not moments[-1].teams["player"].discount.any()


# Turns and masks


def test_only_the_movers_action_counts_and_the_others_have_one():
    match, env = (
        open_match("pz:pettingzoo.classic.connect_four_v3", {"teams": "each"}),
        connect_four_v3.env(),
    )
    env.reset(seed=0)
    moment, seen = match.reset(0), []
    for move in [3, 3, 3, 3, 3, 3, 0]:  # fill a column
        mover, other = env.agent_selection, next(a for a in env.agents if a != env.agent_selection)
        mask = env.observe(mover)["action_mask"].astype(bool)
        np.testing.assert_array_equal(moment.teams[mover].legal[0], mask)
        np.testing.assert_array_equal(moment.teams[other].legal[0], np.arange(7) == 0)
        assert moment.teams[mover].alive[0] and moment.teams[other].alive[0]
        moment = match.step(
            {mover: np.array([move], np.int32), other: np.array([len(seen) % 7], np.int32)}
        )
        env.step(move)
        for agent in env.agents:
            np.testing.assert_array_equal(
                moment.teams[agent].obs[0], env.observe(agent)["observation"].reshape(-1)
            )
        seen.append(mask[3])
    assert seen == [True] * 6 + [False]
    assert match.teams["player_0"].obs == 84  # the mask is no part of what is seen


class Turns:
    """Three agents in turn, by AEC's rules but without PettingZoo: one dies at its second turn, the
    rest run out."""

    possible_agents = ["a_0", "a_1", "a_2"]

    def observation_space(self, agent):
        return spaces.Discrete(4)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def agent_iter(self): ...

    def reset(self, seed=None):
        self.agents, self.moves = self.possible_agents[:], 0
        self.agent_selection = "a_0"
        self.infos = {a: {} for a in self.agents}
        self.rewards = dict.fromkeys(self.agents, 0)
        self.terminations, self.truncations = (
            dict.fromkeys(self.agents, False),
            dict.fromkeys(self.agents, False),
        )

    def observe(self, agent):
        return int(agent[-1]) + 1

    def step(self, action):
        mover = self.agent_selection
        at = self.possible_agents.index(mover)
        if self.terminations[mover] or self.truncations[mover]:
            assert action is None
            self.agents.remove(mover)
            for record in (self.rewards, self.terminations, self.truncations, self.infos):
                del record[mover]
        else:
            self.moves += 1
            self.rewards = {
                a: 10.0 * self.possible_agents.index(a) + self.moves for a in self.agents
            }
            if self.moves == 4:
                self.terminations["a_1"] = True  # a_0's doing; a_1 would be next
            if self.moves == 7:
                self.truncations = dict.fromkeys(self.agents, True)
        later = [self.possible_agents[(at + k) % 3] for k in (1, 2, 3)]
        self.agent_selection = next((a for a in later if a in self.agents), mover)


def test_in_turns_the_dead_are_stepped_away_and_a_cut_end_is_none():
    match = adapt(Turns(), AdapterOptions())
    _, moments = episode(match, 0)
    glances = [moment.teams["a"] for moment in moments]
    assert [glance.alive.tolist() for glance in glances] == [[True] * 3] * 4 + [
        [True, False, True]
    ] * 4
    assert glances[4].discount.tolist() == [1, 0, 1] and glances[4].reward.tolist() == [4, 14, 24]
    assert glances[7].discount.tolist() == [1, 0, 1] and glances[7].reward.tolist() == [7, 0, 27]
    assert moments[7].over and len(moments) == 8
    # the dead: all, the mover: all
    assert glances[4].legal.tolist() == [[True, False], [True, True], [True, True]]
    assert glances[4].obs.argmax(-1).tolist() == [1, 0, 3] and not glances[4].obs[1].any()


# Who dies, comes late, comes back (a game in which everything happens)


class Lives(ParallelEnv):
    """b_0 comes late and comes back; a_0 dies, a_1 is cut short, then b_0 dies and a_2's time runs
    out."""

    metadata = {"name": "lives"}
    possible_agents = ["a_0", "a_1", "a_2", "b_0"]
    there = [[0, 1, 2], [0, 1, 2, 3], [1, 2, 3], [2], [2, 3], []]  # after each step
    ends = {
        2: {0: "terminated"},
        3: {1: "truncated", 3: "terminated"},
        5: {2: "truncated", 3: "terminated"},
    }

    def __init__(self, fault: str = ""):
        self.fault = fault

    def observation_space(self, agent):
        return spaces.Box(-1, 100, (2,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(3, start=-1)

    def reset(self, seed=None, options=None):
        self.t = 0
        self.agents = [self.possible_agents[i] for i in self.there[0]]
        return self._obs(self.agents), {a: {} for a in self.agents}

    def step(self, actions):
        assert set(actions) == set(self.agents) and all(
            action in (-1, 0, 1) for action in actions.values()
        )
        self.t += 1
        acted, self.agents = self.agents, [self.possible_agents[i] for i in self.there[self.t]]
        told = list(dict.fromkeys([*acted, *self.agents]))
        ends = {self.possible_agents[i]: how for i, how in self.ends.get(self.t, {}).items()}
        terminated, truncated = (
            {a: ends.get(a) == how for a in told} for how in ("terminated", "truncated")
        )
        rewards = {a: 10.0 * self.possible_agents.index(a) + self.t for a in told}
        obs = self._obs(told)
        if self.fault and self.t == 2:
            FAULTS[self.fault][0](self, obs, rewards, terminated)
        return obs, rewards, terminated, truncated, {a: {} for a in told}

    def _obs(self, agents):
        return {
            a: np.array([self.possible_agents.index(a) + 1, self.t], np.float32) for a in agents
        }


FAULTS: dict[str, Any] = {
    "nan": (
        lambda env, obs, rewards, ended: rewards.update(a_1=float("nan")),
        "the reward of a_1 is not finite",
    ),
    "inf": (
        lambda env, obs, rewards, ended: obs["a_2"].fill(np.inf),
        "the observation of a_2 is not finite",
    ),
    "shape": (
        lambda env, obs, rewards, ended: obs.update(a_2=np.zeros(3)),
        "observation of a_2 has shape (3,)",
    ),
    "unseen": (lambda env, obs, rewards, ended: obs.pop("b_0"), "no observation for b_0"),
    "unpaid": (lambda env, obs, rewards, ended: rewards.pop("a_1"), "no reward for a_1"),
    "word": (
        lambda env, obs, rewards, ended: rewards.update(a_1="much"),
        "the reward of a_1 is 'much'",
    ),
    "stranger": (
        lambda env, obs, rewards, ended: env.agents.append("c_0"),
        "c_0 plays and is not among",
    ),
    "paid stranger": (lambda env, obs, rewards, ended: rewards.update(c_0=1), "c_0 is rewarded"),
    "vanished": (lambda env, obs, rewards, ended: ended.update(a_0=False), "a_0 left without"),
}


def test_lives_come_and_go_with_their_last_rewards():
    match = adapt(Lives(), AdapterOptions())
    _, moments = episode(match, 0)
    a, b = ([moment.teams[team] for moment in moments] for team in "ab")
    assert [glance.alive.tolist() for glance in a] == [
        [True, True, True],
        [True, True, True],
        [False, True, True],
        [False, False, True],
        [False, False, True],
        [False, False, True],  # time ran out: it could have gone on
    ]
    assert [glance.alive.tolist() for glance in b] == [
        [False],
        [True],
        [True],
        [False],
        [True],
        [False],
    ]
    assert [glance.discount.tolist() for glance in a] == [
        [1, 1, 1],
        [1, 1, 1],
        [0, 1, 1],
        [0, 1, 1],
        [0, 0, 1],
        [0, 0, 1],
    ]
    assert [float(glance.discount[0]) for glance in b] == [0, 1, 1, 0, 1, 0]
    assert [glance.reward.tolist() for glance in a] == [
        [0, 0, 0],
        [1, 11, 21],
        [2, 12, 22],  # a_0's last
        [0, 13, 23],  # a_1's last
        [0, 0, 24],
        [0, 0, 25],
    ]
    assert [float(glance.reward[0]) for glance in b] == [0, 31, 32, 33, 34, 35]
    assert [moment.over for moment in moments] == [False] * 5 + [True]
    np.testing.assert_array_equal(a[3].obs, [[0, 0], [2, 3], [3, 3]])  # the last that a_1 sees
    np.testing.assert_array_equal(a[5].obs, [[0, 0], [0, 0], [3, 5]])  # the true final view
    np.testing.assert_array_equal(moments[3].state, [0, 0, 2, 3, 3, 3, 0, 0])
    assert a[3].legal.all()  # also of who is gone


class Lingering(Lives):
    """Agents are told that they have ended, and stay among `agents`."""

    def step(self, actions):
        self.t += 1
        obs, told = self._obs(self.agents), self.agents
        ended = {a: a == "a_0" for a in told}
        return obs, dict.fromkeys(told, 1.0), ended, dict.fromkeys(told, self.t == 2), {}


def test_who_has_ended_is_gone_even_if_still_listed():
    _, moments = episode(adapt(Lingering(), AdapterOptions()), 0)
    assert [moment.teams["a"].alive.tolist() for moment in moments[:2]] == [
        [True] * 3,
        [False, True, True],
    ]
    assert [moment.over for moment in moments] == [False, False, True]
    assert moments[2].teams["a"].discount.tolist() == [0, 1, 1]


class Local(Hosted):
    """Played in this process."""

    def open(self, render=False):
        return adapt(Lives(**self.options), AdapterOptions())


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_promise_names_the_agent(fault):
    """By the adapter or by the table that plays it."""
    env = Local("lives", {"fault": fault})
    with TemporaryFile() as memory:
        table = Table(env, shared(memory, env.teams, 1), range(1), 0)
        faults = [fault for _ in range(8) for fault in table.step()]
    assert FAULTS[fault][1] in faults[0].report


# Truncation is not termination (trap 1)


def test_cartpole_falls_or_runs_out_of_time():
    match = open_match("gym:CartPole-v1", {"max_episode_steps": 5})
    spec = match.teams["agent"]
    assert spec == Spec(("agent_0",), 4, 4, Discrete(2), joined=True)
    _, moments = episode(match, 0)
    assert len(moments) == 6 and moments[-1].over and moments[-1].teams["agent"].discount == 1
    assert moments[-1].teams["agent"].alive == 1
    match, moment = open_match("gym:CartPole-v1", {}), None
    match.reset(0)
    while moment is None or not moment.over:
        moment = match.step({"agent": np.zeros(1, np.int32)})
    assert moment.teams["agent"].discount == 0 and moment.teams["agent"].reward == 1
    assert abs(moment.teams["agent"].obs[0, 2]) > 0.2  # the fallen pole, not the next episode's


def test_a_limit_cuts_without_ending():
    match = open_match("gym:CartPole-v1", {"limit": 3})
    for seed in (0, 1):
        _, moments = episode(match, seed)
        assert len(moments) == 4 and moments[-1].teams["agent"].discount == 1


# Spaces


def test_a_team_of_unequal_agents_is_padded():
    match = open_match("pz:mpe2.simple_speaker_listener_v4", {"teams": "all"})
    spec, moment = match.teams["agent"], match.reset(0)
    assert spec == Spec(
        ("speaker_0", "listener_0"), 11, 14, Discrete(5), obs_sizes=(3, 11), action_sizes=(3, 5)
    )
    assert moment.teams["agent"].legal.tolist() == [[True] * 3 + [False] * 2, [True] * 5]
    assert not moment.teams["agent"].obs[0, 3:].any() and moment.teams["agent"].obs[0, :3].any()
    with pytest.raises(Broken, match="speaker_0 was given action 4, it has 3"):
        match.step({"agent": np.array([4, 4], np.int32)})


def test_teams_by_name_all_each_and_as_told():
    name = "pz:mpe2.simple_adversary_v3"
    teams = open_match(name, {}).teams
    assert {team: spec.agents for team, spec in teams.items()} == {
        "adversary": ("adversary_0",),
        "agent": ("agent_0", "agent_1"),
    }
    assert [(spec.rivals, spec.state, spec.joined) for spec in teams.values()] == [
        (10, 28, False),
        (5, 28, False),
    ]
    assert list(open_match(name, {"teams": "each"}).teams) == ["adversary_0", "agent_0", "agent_1"]
    told = open_match(name, {"teams": "x:agent_1,adversary_*;y:agent_0"})
    assert {team: spec.agents for team, spec in told.teams.items()} == {
        "x": ("agent_1", "adversary_0"),
        "y": ("agent_0",),
    }
    whole = open_match(name, {"teams": "all", "state": False}).teams["agent"]
    # padded: not just side by side
    assert (whole.obs_sizes, whole.state, whole.joined) == ((8, 10, 10), 28, False)
    assert open_match("pz:mpe2.simple_spread_v3", {"state": False}).teams["agent"].joined
    assert not open_match("pz:mpe2.simple_spread_v3", {}).teams["agent"].joined


@pytest.mark.parametrize(
    "name", ["pz:mpe2.simple_spread_v3", "pz:pettingzoo.classic.connect_four_v3", "gym:CartPole-v1"]
)
def test_nothing_is_told_of_a_state_that_nobody_looks_at(name: str) -> None:
    """Making it may take longer than the step itself."""
    env = Hosted(name).stateless
    match = env.open()
    moment = match.reset(0)
    assert moment.state.shape == (0,) and {spec.state for spec in env.teams.values()} == {0}
    told = open_match(name, {}).reset(0)
    for team, glance in moment.teams.items():
        np.testing.assert_array_equal(glance.obs, told.teams[team].obs)
    assert told.state.size


class Odd(gymnasium.Env):
    """Spaces of every kind; remembers what it was asked to do."""

    def __init__(self, observation_space, action_space, obs=None, info=None, reward=0.0):
        self.observation_space, self.action_space = observation_space, action_space
        self.obs = observation_space.sample() if obs is None else obs
        self.info, self.reward, self.asked = info or {}, reward, []

    def reset(self, *, seed=None, options=None):
        return self.obs, self.info

    def step(self, action):
        self.asked.append(action)
        return self.obs, self.reward, False, False, self.info


SIGHT = spaces.Box(0, 1, (1,), np.float32)


@pytest.mark.parametrize(
    "space",
    [
        spaces.MultiDiscrete([3, 2], start=[1, 0]),
        spaces.MultiDiscrete(np.array([[2, 2], [3, 1]])),
        spaces.MultiBinary(3),
        spaces.Discrete(4, start=2),
    ],
    ids=str,
)
def test_every_action_of_several_parts_is_reached_once(space):
    env = Odd(SIGHT, space)
    match = adapt(env, AdapterOptions())
    match.reset(0)
    size = match.teams["agent"].action.size
    for action in range(size):
        match.step({"agent": np.array([action], np.int32)})
    assert all(space.contains(action) for action in env.asked)
    assert len({np.asarray(action).tobytes() for action in env.asked}) == size


@pytest.mark.parametrize(
    ("space", "factored", "parts"),
    [
        (spaces.MultiDiscrete([3, 2], start=[1, 0]), True, (3, 2)),
        (spaces.MultiDiscrete(np.array([[20, 20], [30, 10]])), False, (20, 20, 30, 10)),
        (spaces.MultiBinary(13), False, (2,) * 13),
    ],
    ids=str,
)
def test_parts_too_many_to_list_stay_parts(space, factored, parts):
    env = Odd(SIGHT, space)
    match = adapt(env, AdapterOptions(factored=factored))
    assert match.teams["agent"].action == MultiDiscrete(parts)
    assert match.reset(0).teams["agent"].legal.tolist() == [[True] * sum(parts)]
    for action in ([0] * len(parts), [count - 1 for count in parts]):
        match.step({"agent": np.array([action], np.int32)})
        assert space.contains(env.asked[-1])
    start = getattr(space, "start", np.zeros(space.shape))
    np.testing.assert_array_equal(env.asked[0], start)
    np.testing.assert_array_equal(env.asked[1].ravel(), np.ravel(start) + parts - 1)
    with pytest.raises(Broken, match="agent_0 was given action"):
        match.step({"agent": np.array([parts], np.int32)})


@pytest.mark.parametrize("apart", [False, True])
def test_masks_of_parts_come_joined_or_part_by_part(apart):
    """And something of every part must be allowed."""
    parts = ([1, 0, 1], [0, 1])
    mask = tuple(np.array(part, np.int8) for part in parts) if apart else np.array([1, 0, 1, 0, 1])
    env = Odd(SIGHT, spaces.MultiDiscrete([3, 2]), info={"action_mask": mask})
    match = adapt(env, AdapterOptions(factored=True))
    assert match.reset(0).teams["agent"].legal.tolist() == [[True, False, True, False, True]]
    env.info = {"action_mask": np.array([1, 1, 1, 0, 0])}
    with pytest.raises(Broken, match="its action mask allows nothing"):
        match.step({"agent": np.zeros((1, 2), np.int32)})


def test_a_team_of_different_parts_is_refused():
    done = spaces.Tuple([spaces.MultiBinary(13), spaces.MultiBinary(14)])
    env = Odd(spaces.Tuple([SIGHT, SIGHT]), done)
    with pytest.raises(ShoalError, match=r"different parts: split it with --env\.teams"):
        adapt(env, AdapterOptions())


def test_real_actions_keep_their_shape_and_their_bounds():
    low, high = np.array([[-1, 0, -2]] * 2, np.float32), np.array([[1, 5, 2]] * 2, np.float32)
    env = Odd(SIGHT, spaces.Box(low, high))
    match = adapt(env, AdapterOptions())
    assert match.teams["agent"].action == Box((-1, 0, -2) * 2, (1, 5, 2) * 2)
    match.reset(0)
    match.step({"agent": np.array([[0.5, 1, 2.001, -3, 4, 0]], np.float32)})
    np.testing.assert_allclose(env.asked[0], [[0.5, 1, 2], [-1, 4, 0]])
    assert env.action_space.contains(env.asked[0])


def test_observations_of_every_kind_become_rows():
    inner = {
        "b": spaces.Discrete(3, start=1),
        "a": spaces.MultiBinary(2),
        "c": spaces.Tuple([SIGHT, spaces.Discrete(2)]),
    }
    value = {"b": 2, "a": np.array([1, 0], np.int8), "c": (np.array([0.5], np.float32), 1)}
    mask = np.array([0, 1, 1], np.int8)
    env = Odd(
        spaces.Dict({**inner, "action_mask": spaces.MultiBinary(3)}),
        spaces.Discrete(3),
        {**value, "action_mask": mask},
    )
    moment = adapt(env, AdapterOptions()).reset(0)
    flat = spaces.flatten(spaces.Dict(inner), value)
    np.testing.assert_array_equal(moment.teams["agent"].obs, [flat])
    assert (
        moment.teams["agent"].legal.tolist() == [[False, True, True]]
        and moment.teams["agent"].obs.dtype == np.float32
    )
    told = adapt(
        Odd(SIGHT, spaces.Discrete(3), info={"action_mask": mask}), AdapterOptions()
    ).reset(0)
    assert told.teams["agent"].legal.tolist() == [[False, True, True]]


def test_an_observation_may_be_one_of_several():
    either = spaces.OneOf([spaces.Discrete(2), spaces.Box(0, 1, (2,), np.float32)])
    for value in ((0, 1), (1, np.array([0.5, 0.25], np.float32))):
        obs = adapt(Odd(either, spaces.Discrete(3), value), AdapterOptions()).reset(0).teams
        np.testing.assert_array_equal(obs["agent"].obs, [spaces.flatten(either, value)])
    with pytest.raises(Broken, match="does not fit its space OneOf"):
        adapt(Odd(either, spaces.Discrete(3), (7, 1)), AdapterOptions()).reset(0)


def test_images_stay_bytes():
    match = open_match("pz:pettingzoo.butterfly.pistonball_v6", {"n_pistons": 4, "limit": 2})
    spec, moment = match.teams["piston"], episode(match, 0)[1][-1]
    assert spec.pixels == (457, 120, 3) and spec.obs == 457 * 120 * 3 and not spec.joined
    assert moment.teams["piston"].obs.dtype == np.uint8 and moment.teams["piston"].obs.max() > 1
    assert moment.state.dtype == np.float32 and 0 < moment.state.max() <= 1
    joined = open_match("pz:pettingzoo.butterfly.pistonball_v6", {"n_pistons": 2, "state": False})
    assert not joined.teams["piston"].joined  # the state is the images between 0 and 1
    state = joined.reset(0).state
    assert state.size == 2 * spec.obs and 0 < state.max() <= 1


def test_several_agents_in_one_gymnasium_environment():
    match, env = (
        open_match("gym:lbforaging:Foraging-5x5-2p-1f-v3", {}),
        gymnasium.make("lbforaging:Foraging-5x5-2p-1f-v3"),
    )
    assert match.teams["agent"].agents == ("agent_0", "agent_1") and match.teams["agent"].joined
    total = 0.0
    for seed in range(12):
        actions, moments = episode(match, seed)
        env.reset(seed=seed)
        told = [env.step(tuple(answer["agent"].tolist())) for answer in actions]
        sums, (obs, _, done, _, _) = np.array([list(step)[1] for step in told]).sum(0), told[-1]
        assert done and moments[-1].over
        np.testing.assert_array_equal(moments[-1].teams["agent"].obs, obs)
        np.testing.assert_allclose(list(earned(match, moments).values()), sums, rtol=1e-6)
        total += sums.sum()
    assert total > 0
    rware = open_match("gym:rware:rware-tiny-2ag-v2", {"limit": 4})
    assert len(episode(rware, 0)[1]) == 5 and rware.teams["agent"].n == 2
    shared = adapt(
        Odd(spaces.Tuple([SIGHT] * 2), spaces.Tuple([spaces.Discrete(2)] * 2), reward=3.0),
        AdapterOptions(),
    )
    shared.reset(0)
    assert shared.step({"agent": np.zeros(2, np.int32)}).teams["agent"].reward.tolist() == [3, 3]


# Seats, seeds, both directions


def test_teams_exchange_seats_by_the_seed():
    options = {"teams": "each"}
    plain = open_match("pz:pettingzoo.classic.connect_four_v3", options)
    match = open_match("pz:pettingzoo.classic.connect_four_v3", {**options, "swap": True})
    assert match.teams["player_0"] == replace(plain.teams["player_0"], state=169)
    for seed, first in ((2, "player_0"), (3, "player_1")):
        second = next(team for team in match.teams if team != first)
        moment = match.reset(seed)
        assert moment.teams[first].legal.all() and moment.teams[second].legal.sum() == 1
        assert moment.state[-1] == seed % 2
        while not moment.over:  # each stacks its own column
            moment = match.step({first: np.array([0], np.int32), second: np.array([1], np.int32)})
        assert moment.teams[first].obs.reshape(6, 7, 2)[:, 0, 0].sum() == 4
        assert moment.over and moment.teams[first].reward == 1 and moment.teams[second].reward == -1


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("pz:mpe2.simple_tag_v3", {}),
        ("pz:mpe2.simple_spread_v3", {"continuous_actions": True, "N": 2}),
        ("pz:magent2.environments.battle_v4", {"map_size": 12}),
        ("pz:pettingzoo.classic.connect_four_v3", {}),
        ("gym:Acrobot-v1", {"max_episode_steps": 20}),
    ],
)
def test_equal_seeds_give_equal_episodes_whatever_was_played_before(name, options):
    match, fresh = open_match(name, options), open_match(name, options)
    episode(match, 5, most=7)
    assert_same(episode(match, 9, most=30)[1], episode(fresh, 9, most=30)[1])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("pz:mpe2.simple_tag_v3", {}),
        ("pz:mpe2.simple_speaker_listener_v4", {"teams": "all", "continuous_actions": True}),
        ("pz:pettingzoo.butterfly.knights_archers_zombies_v11", {"spawn_delay": 3, "limit": 300}),
        ("pz:pettingzoo.classic.connect_four_v3", {}),
        ("gym:lbforaging:Foraging-8x8-2p-3f-v3", {}),
    ],
)
@pytest.mark.filterwarnings("error:Live agent", "error:Agent was given")
def test_there_and_back_again(name, options):
    parallel_api_test(as_parallel_env(open_match(name, options)), num_cycles=60)
    if "connect_four" not in name:  # it samples without asking what is legal
        parallel_seed_test(lambda: as_parallel_env(open_match(name, options)), num_cycles=40)
    plain, teams = open_match(name, options), options.get("teams", "")
    back = adapt(as_parallel_env(open_match(name, options)), AdapterOptions(teams=teams))
    assert plain.teams == {
        team: replace(spec, joined=plain.teams[team].joined) for team, spec in back.teams.items()
    }
    assert_same(episode(plain, 4)[1], episode(back, 4)[1])


def test_pictures_are_drawn_when_asked():
    for name in (
        "pz:mpe2.simple_spread_v3",
        "pz:pettingzoo.classic.connect_four_v3",
        "gym:CartPole-v1",
    ):
        match = open_match(name, {}, render=True)
        match.reset(0)
        picture = match.render()
        assert picture.dtype == np.uint8 and picture.shape[2] == 3 and len(np.unique(picture)) > 1
        match.close()


def test_the_workers_need_no_jax():
    modules = ("pettingzoo_aec", "gymnasium", "to_pettingzoo", "pettingzoo", "options")
    code = (
        f"import sys; import {', '.join(f'shoal.envs.adapters.{one}' for one in modules)};"
        f" print('jax' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
        == "False"
    )


# What a user reads who made a mistake


def fails(*args: Any, **kwargs: Any) -> None:
    raise TypeError("it has a bug of its own")


def odd(seen: Any = SIGHT, done: Any = SIGHT) -> Odd:
    return Odd(seen, done)


IMAGE = spaces.Box(0, 255, (4, 4, 3), np.uint8)
TWO = spaces.Tuple([SIGHT, SIGHT])


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        (
            "nonsense",
            {},
            "there is no environment 'nonsense': from outside there are pz:<module>, gym:<id>",
        ),
        ("pz:", {}, "there is no environment 'pz:'"),
        ("pz:mpe2.simple_spred_v3", {}, "did you mean 'mpe2.simple_spread_v3'?"),
        ("pz:mpe2", {}, "mpe2 has neither parallel_env nor env"),
        (
            "pz:mpe2.simple_spread_v3",
            {"M": 5},
            "pz:mpe2.simple_spread_v3 does not take the options M=5:",
        ),
        ("gym:CartPol-v1", {}, "gymnasium cannot make 'CartPol-v1':"),
        ("gym:nowhere:CartPole-v1", {}, "there is no module 'nowhere'"),
        ("gym:CartPole-v1", {"poles": 2}, "gym:CartPole-v1 does not take the options poles=2:"),
        ("..:x", {}, "'..' cannot be imported"),
        ("no_such_module:make", {}, "there is no module 'no_such_module'"),
        ("test_adapters:od", {}, "test_adapters has no function 'od' (did you mean 'odd'?)"),
        (
            "test_adapters:Path",
            {},
            "is neither a PettingZoo, Gymnasium or SMAC environment nor a Match",
        ),
        ("gym:CartPole-v1", {"limit": -1}, "limit must be a whole number of at least 0, not -1"),
        ("gym:CartPole-v1", {"swap": 1}, "swap must be true or false, not 1"),
        ("gym:CartPole-v1", {"teams": 2}, "teams must be text, not 2"),
        ("gym:CartPole-v1", {"teams": "both"}, "teams must be empty, all, each or like"),
        (
            "gym:CartPole-v1",
            {"swap": True},
            "swap needs two teams of equal agents, and here play agent",
        ),
        ("pz:mpe2.simple_tag_v3", {"swap": True}, "swap needs two teams of equal agents"),
        ("pz:mpe2.simple_tag_v3", {"teams": "x:agent_0"}, "it names adversary_0 0 times"),
        ("pz:mpe2.simple_tag_v3", {"teams": "x:*;y:agent_0"}, "it names agent_0 2 times"),
        (
            "pz:mpe2.simple_tag_v3",
            {"teams": "x:red_0"},
            "teams puts 'red_0' into x, the agents are adversary_0",
        ),
        (
            "test_adapters:odd",
            {"done": spaces.Box(-np.inf, 1, (2,))},
            "have no finite bounds: wrap the environment",
        ),
        (
            "test_adapters:odd",
            {"done": spaces.Box(0, 3, (2,), np.int32)},
            "make it a MultiDiscrete",
        ),
        (
            "test_adapters:odd",
            {"done": spaces.MultiDiscrete([60_000, 60_000])},
            "have 120000 values, more than 100000: wrap the environment",
        ),
        (
            "test_adapters:odd",
            {"done": spaces.Discrete(10**9)},
            "have 1000000000 values, more than 100000: wrap the environment",
        ),
        (
            "test_adapters:odd",
            {"seen": spaces.Discrete(10**9)},
            "are 1000000000 numbers, more than 10000000: wrap the environment",
        ),
        (
            "test_adapters:odd",
            {"done": spaces.Dict({"a": SIGHT})},
            "are none of Discrete, MultiDiscrete",
        ),
        (
            "test_adapters:odd",
            {"seen": spaces.Sequence(SIGHT)},
            "have no fixed size: wrap the environment",
        ),
        (
            "test_adapters:odd",
            {"seen": TWO, "done": spaces.Tuple([SIGHT, spaces.Discrete(2)])},
            "team agent has agents with discrete and agents with real actions: split it with"
            " --env.teams",
        ),
        (
            "test_adapters:odd",
            {"seen": spaces.Tuple([IMAGE, SIGHT]), "done": TWO},
            "the agents of team agent see images of different shapes",
        ),
    ],
)
def test_mistakes_are_told_in_a_sentence(name, options, says):
    with pytest.raises(ShoalError, match=re.escape(says)) as caught:
        open_match(name, options)
    assert "\n" not in str(caught.value) and not str(caught.value).endswith(".")


def test_a_missing_package_names_the_extra(monkeypatch):
    for name, package, extra in (
        ("pz:magent2.environments.battle_v4", "magent2", "magent2"),
        ("gym:lbforaging:Foraging-8x8-2p-3f-v3", "lbforaging", "lbforaging"),
        ("gym:CartPole-v1", "gymnasium", "gymnasium"),
        ("pz:mpe2.simple_v3", "pettingzoo", "pettingzoo"),
    ):
        with monkeypatch.context() as patch:
            for module in [module for module in sys.modules if module.partition(".")[0] == package]:
                patch.delitem(sys.modules, module)
            patch.setattr(sys, "meta_path", [Without(package), *sys.meta_path])
            with pytest.raises(ShoalError, match=re.escape(f"pip install 'shoal[{extra}]'")):
                open_match(name, {})


class Without:
    """An import system that lacks a package."""

    def __init__(self, package: str):
        self.package = package

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == self.package:
            raise ModuleNotFoundError(f"No module named {self.package!r}", name=self.package)


def test_a_bug_in_ones_own_environment_shows_with_its_traceback():
    with pytest.raises(
        ShoalError, match="test_adapters:fails cannot be opened: TypeError: it has a bug of its own"
    ) as caught:
        open_match("test_adapters:fails", {})
    assert "raise TypeError" in caught.value.detail
    with pytest.raises(
        ShoalError,
        match=r"test_adapters:odd cannot be drawn: give it an"
        r" argument render_mode",
    ):
        open_match("test_adapters:odd", {}, render=True)


def test_a_match_is_taken_as_it_is():
    match = open_match("pz:mpe2.simple_tag_v3", {})
    assert adapt(match, AdapterOptions()) is match
    with pytest.raises(ShoalError, match="teams cannot be chosen here"):
        adapt(match, AdapterOptions(teams="all"))


@with_pages
def test_the_example_of_the_docs_runs(tmp_path, monkeypatch):
    example = next(
        code
        for code in re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.S)
        if "def make" in code
    )
    assert len(example.splitlines()) <= 45
    (tmp_path / "catch.py").write_text(example)
    monkeypatch.chdir(tmp_path)
    match = open_match("catch:make", {"size": 4, "limit": 30})
    assert {team: spec.n for team, spec in match.teams.items()} == {"cat": 2, "mouse": 1}
    lengths = [len(episode(match, seed)[1]) for seed in range(20)]
    assert max(lengths) <= 31 and min(lengths) < 31  # some are caught, none goes on for ever
    parallel_api_test(as_parallel_env(match), num_cycles=50)
    assert_same(
        episode(match, 1)[1], episode(open_match("catch:make", {"size": 4, "limit": 30}), 1)[1]
    )
