"""Trap 32: an agent that is cut short alone, while others play on, is worth what would have
followed.

Every step pays 1 to whoever is there and nothing ever ends but by time, so at γ = 0.8 everybody's
value is 5.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from helpers import OFF, PARALLEL, POLICY, VALUE, build
from jax import Array
from pettingzoo import AECEnv, ParallelEnv

from shoal.engine.host_loop import HostLoop
from shoal.envs.adapters import AdapterOptions, adapt
from shoal.envs.host.match import Hosted, Match
from shoal.nets.heads import best_action
from shoal.nets.inputs import Context
from shoal.types import View

STEPS = {"a_0": 2, "a_1": 5}  # until its time has run out
GAMMA = 0.8


class Leaving(ParallelEnv):
    """a_0 leaves while a_1 plays on; all that is ever seen is who one is."""

    metadata = {"name": "leaving"}
    possible_agents = list(STEPS)
    mask: Any = None  # of the one who leaves

    def __init__(self, continuous: bool = False):
        self.continuous = continuous

    def observation_space(self, agent):
        return spaces.Box(0, 1, (2,), np.float32)

    def action_space(self, agent):
        return spaces.Box(-1, 1, (1,), np.float32) if self.continuous else spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.taken = list(self.possible_agents), 0
        return self._obs(self.agents), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.taken += 1
        acted = self.agents
        cut = {agent: self.taken == STEPS[agent] for agent in acted}
        self.agents = [agent for agent in acted if not cut[agent]]
        infos = {
            agent: {"action_mask": self.mask} if self.mask and cut[agent] else {} for agent in acted
        }
        return self._obs(acted), dict.fromkeys(acted, 1.0), dict.fromkeys(acted, False), cut, infos

    def _obs(self, agents):
        return {
            agent: np.eye(2, dtype=np.float32)[self.possible_agents.index(agent)]
            for agent in agents
        }


class LeavingInTurns(AECEnv):
    """The same in turns: every move pays 1 to all who are there, and a_0 leaves after a few
    moves."""

    metadata = {"name": "leaving_in_turns"}
    moves = {"a_0": 3, "a_1": 8}

    def __init__(self):
        self.possible_agents = list(STEPS)

    def observation_space(self, agent):
        return spaces.Box(0, 1, (2,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def observe(self, agent):
        if agent not in self.agents:
            raise KeyError(agent)  # who has left sees nothing
        return np.eye(2, dtype=np.float32)[self.possible_agents.index(agent)]

    def reset(self, seed=None, options=None):
        self.agents, self.taken = list(self.possible_agents), 0
        self.rewards, self._cumulative_rewards = (
            dict.fromkeys(self.agents, 0.0),
            dict.fromkeys(self.agents, 0.0),
        )
        self.terminations, self.truncations = (
            dict.fromkeys(self.agents, False),
            dict.fromkeys(self.agents, False),
        )
        self.infos, self.agent_selection = {agent: {} for agent in self.agents}, "a_0"

    def step(self, action):
        if self.truncations[self.agent_selection]:
            self._was_dead_step(action)
            return
        self.taken += 1
        self.rewards = dict.fromkeys(self.agents, 1.0)
        self.truncations = {agent: self.taken >= self.moves[agent] for agent in self.agents}
        turn = self.agents.index(self.agent_selection) + 1
        self.agent_selection = self.agents[turn % len(self.agents)]
        self._deads_step_first()


class LeavingTogether(gymnasium.Env):
    """The same where the spaces are Tuples: both are seen to the end."""

    observation_space = spaces.Tuple([spaces.Box(0, 1, (2,), np.float32)] * 2)
    action_space = spaces.Tuple([spaces.Discrete(2)] * 2)

    def reset(self, *, seed=None, options=None):
        self.taken = 0
        return tuple(np.eye(2, dtype=np.float32)), {}

    def step(self, action):
        self.taken += 1
        there = np.array([self.taken <= steps for steps in STEPS.values()])
        cut = [self.taken >= steps for steps in STEPS.values()]
        return tuple(np.eye(2, dtype=np.float32)), there.astype(float), [False, False], cut, {}


KINDS = {"at once": Leaving, "in turns": LeavingInTurns, "together": LeavingTogether}


class Local(Hosted):
    """Played in this process."""

    def open(self) -> Match:
        how, options = AdapterOptions.split(self.options)
        return adapt(KINDS[self.name](**options), how)


def moments(match: Match) -> list:
    """An episode, whatever is done."""
    told, actions = (
        [match.reset(0)],
        {team: np.zeros(spec.n, np.int32) for team, spec in match.teams.items()},
    )
    while not told[-1].over:
        told.append(match.step(actions))
    return told


@pytest.mark.parametrize("kind", KINDS)
def test_trap_32_the_last_observation_of_one_who_leaves_alone_reaches_the_stream(kind: str) -> None:
    """Not alive, and seen once more with discount 1; after that it is nowhere."""
    match = adapt(KINDS[kind](), AdapterOptions())
    (team,) = match.teams
    told = moments(match)
    left = STEPS["a_0"] if kind != "in turns" else LeavingInTurns.moves["a_0"]
    seen = [moment.teams[team] for moment in told]
    assert [glance.alive.tolist() for glance in seen] == [
        [t < left, True] for t in range(len(seen))
    ]
    assert [glance.discount[0] for glance in seen] == [float(t <= left) for t in range(len(seen))]
    np.testing.assert_array_equal(
        [glance.obs[0] for glance in seen], [[t <= left, 0] for t in range(len(seen))]
    )
    np.testing.assert_array_equal(told[left].state, [1, 0, 0, 1])
    assert seen[left].reward.tolist() == [1, 1] and seen[left + 1].reward.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("mask", "legal"), [([0, 1], [False, True]), ([0, 0], [True, True]), (None, [True, True])]
)
def test_trap_32_who_leaves_has_the_legal_actions_it_was_told(mask: Any, legal: list[bool]) -> None:
    """Its value is that of a legal action; where nothing is legal any more, of any."""
    env = Leaving()
    env.mask = mask
    told = moments(adapt(env, AdapterOptions()))
    assert told[STEPS["a_0"]].teams["a"].legal[0].tolist() == legal


def test_trap_32_who_leaves_without_a_last_observation_breaks_the_match() -> None:
    class Silent(Leaving):
        def step(self, actions):
            obs, *rest = super().step(actions)
            return {agent: obs[agent] for agent in self.agents}, *rest

    match = adapt(Silent(), AdapterOptions())
    with pytest.raises(Exception, match="no observation for a_0"):
        moments(match)


def worth(algorithm: Any, learner: Any, view: View) -> Array:
    """`[B,N or 1]` what a learner expects of the agents at one instant."""
    context = Context(jax.tree.map(lambda x: x[None], view), jnp.zeros((1, *view.alive.shape, 0)))
    if algorithm.name in POLICY:
        critic = learner.params["critic"]
        context = context._replace(action=jnp.zeros((*context.view.alive.shape, 2)))
        values, _ = algorithm.critic(
            critic, context, critic.torso.carry(len(view.first), algorithm.critic_rows)
        )
        return (
            learner.scale.up(values[0].mean(-1))
            if algorithm.config.normalise_value
            else values[0].mean(-1)
        )
    if algorithm.name in (*VALUE, *PARALLEL):
        net = learner.params["agents"]
        q, _ = algorithm.utilities(net, context, net.torso.carry(len(view.first), algorithm.spec.n))
        return algorithm.joint(learner.params, q, best_action(q, context.view.legal), context.view)[
            0
        ]
    return algorithm.next_values(learner, context, None, jax.random.key(0))[0]


def learnt(
    kind: str, name: str, iterations: int, options: dict | None = None, **settings: Any
) -> dict[str, Array]:
    """By team: what its learner expects of the opening view."""
    env = Local(kind, options or {})
    algorithms = {
        team: build(name, env, team, hidden=8, layers=1, gamma=GAMMA, anneal=False, **settings)
        for team in env.teams
    }
    loop = HostLoop(env, algorithms, games=4, window=8, steps=10**6)
    try:
        state = loop.init(0)
        opening = jax.tree.map(lambda x: x[0], state.views)
        state, _ = loop.compile(state, iterations)(state)
        learners = jax.device_get(state.learners)
        return {
            team: worth(algorithm, learners[team], opening[team])
            for team, algorithm in algorithms.items()
        }
    finally:
        loop.close()


ON = {"lr": 0.03}
REPLAY = OFF | {"lr": 0.02, "tau": 0.2, "updates": 4}
QUIET = {"alpha": 1e-3, "alpha_lr": 0.0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name", "settings"),
    [
        ("at once", "ppo", ON | {"lam": 0.95}),
        ("at once", "ppo", ON | {"lam": 1.0, "torso": "gru"}),
        ("at once", "mappo", ON | {"reward": "own"}),
        ("at once", "coma", ON | {"reward": "own"}),
        ("at once", "dqn", REPLAY),
        ("at once", "dqn", REPLAY | {"n_step": 3}),
        ("at once", "dqn", REPLAY | {"lam": 0.8}),
        ("at once", "pqn", ON | {"lam": 0.5}),
        ("at once", "ddpg", REPLAY),
        ("at once", "maddpg", REPLAY | {"reward": "own"}),
        ("at once", "masac", REPLAY | QUIET | {"reward": "own"}),
        ("in turns", "ppo", ON),
        ("in turns", "dqn", REPLAY),
        ("together", "dqn", REPLAY),
    ],
)
def test_trap_32_everybody_is_worth_one_over_one_minus_gamma(
    kind: str, name: str, settings: dict
) -> None:
    """From a view of zeros, 3.9 was learnt; a cut taken for an end leaves less."""
    (values,) = learnt(kind, name, 80, **settings).values()
    np.testing.assert_allclose(np.median(values, 0), 5.0, atol=0.3)


@pytest.mark.slow
def test_trap_32_real_actions_too() -> None:
    (values,) = learnt("at once", "td3", 80, {"continuous": True}, **REPLAY).values()
    np.testing.assert_allclose(np.median(values, 0), 5.0, atol=0.3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("vdn", REPLAY),
        ("qmix", REPLAY),
        ("pqn_vdn", ON),
        ("vdac", {"lr": 0.01}),
        ("ppo", ON | {"reward": "mean"}),
    ],
)
def test_trap_32_a_team_that_leaves_as_a_whole_is_cut_short_too(name: str, settings: dict) -> None:
    """Each agent is a team: with a pooled reward it goes on until its last member leaves."""
    for values in learnt("at once", name, 80, {"teams": "each"}, **settings).values():
        np.testing.assert_allclose(np.median(values, 0), 5.0, atol=0.3)
