"""Reads and steers the worlds of the real `mpe2` games, so that ours can be laid beside them."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from shoal.envs.native.mpe.physics import Particles, ParticleWorld
from shoal.types import Discrete

VERSIONS = {"simple_speaker_listener": "v4"}  # all others are v3


class Episodes(NamedTuple):
    """Many episodes of an mpe2 game, time first, games last. Rows after an episode's end repeat its
    last one."""

    worlds: list[ParticleWorld]  # T+1 of them
    actions: list[dict[str, np.ndarray]]  # T of team -> [B,N] or [B,N,A]
    obs: np.ndarray  # [T+1,agents,widest,B], zeros beyond an agent's own size
    state: np.ndarray  # [T+1,S,B]
    reward: np.ndarray  # [T+1,agents,B]
    ended: np.ndarray  # [T+1,B] bool: the task ended with the step that led here
    timeout: np.ndarray  # [T+1,B] bool: time ran out with it
    live: np.ndarray  # [T+1,B] bool: this instant belongs to the episode


def real(game: Particles) -> Any:
    """The mpe2 game with the same options."""
    name = game.name.removeprefix("mpe/")
    module = importlib.import_module(f"mpe2.{name}_{VERSIONS.get(name, 'v3')}")
    options = dataclasses.asdict(game)
    stage = options.pop("curriculum_stage", 0)
    env = module.parallel_env(**options)
    if stage:
        # mpe2 1.1.1 cannot leave stage 0: its BaseScenario's property swallows every assignment.
        # Step over it.
        scenario = env.unwrapped.scenario
        scenario.__class__ = type("Scenario", (type(scenario),), {"curriculum_stage": stage})
    return env


def read(env: Any) -> dict[str, np.ndarray]:
    """One mpe2 world as the fields of ours, without the games axis."""
    world = env.unwrapped.world
    return {
        "pos": np.array([agent.state.p_pos for agent in world.agents]),
        "vel": np.array([agent.state.p_vel for agent in world.agents]),
        "fixed": np.array([thing.state.p_pos for thing in world.landmarks]).reshape(-1, 2),
        "goal": np.array(_goals(world), np.int32),
        "word": np.concatenate(
            [np.zeros(0)] + [agent.state.c for agent in world.agents if not agent.silent]
        ),
    }


def _goals(world: Any) -> list[int]:
    marks = world.landmarks
    first = world.agents[0]
    if getattr(world.agents[-1], "_key", None) is not None:  # crypto: the message and the key
        return [
            marks.index(first.goal_a),
            next(i for i, m in enumerate(marks) if m.color is world.agents[-1].key),
        ]
    if hasattr(first, "_goal_b"):  # reference and speaker
        return [marks.index(agent.goal_b) for agent in world.agents if agent._goal_b is not None]
    return [marks.index(first.goal_a)] if hasattr(first, "_goal_a") else []


def stack(worlds: list[dict[str, np.ndarray]]) -> ParticleWorld:
    """Worlds of several games as one of ours, in float32."""
    joined = {name: np.stack([world[name] for world in worlds], axis=-1) for name in worlds[0]}
    return ParticleWorld(
        **{k: jnp.asarray(v, jnp.int32 if k == "goal" else jnp.float32) for k, v in joined.items()}
    )


def arrange(env: Any, style: int, rng: np.random.Generator) -> None:
    """Round the opening to float32 and, by style, huddle the agents, put them on the landmarks, or
    near the edge."""
    world = env.unwrapped.world
    for i, agent in enumerate(world.agents):
        pos = agent.state.p_pos
        if style == 1:
            pos = agent.size * pos
        elif style == 2 and world.landmarks:
            pos = world.landmarks[i % len(world.landmarks)].state.p_pos + rng.uniform(
                -0.06, 0.06, 2
            )
        elif style == 3:
            pos = np.sign(pos) * (0.8 + 0.2 * np.abs(pos))
        agent.state.p_pos = pos.astype(np.float32).astype(np.float64)
    for thing in world.landmarks:
        thing.state.p_pos = thing.state.p_pos.astype(np.float32).astype(np.float64)


def choose(
    game: Particles, style: int, games: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Random actions; style 3 holds on to one direction per agent, style 2 mostly stands still."""
    actions = {}
    for team, spec in game.teams.items():
        sizes = np.array(spec.action_sizes)
        if isinstance(spec.action, Discrete):
            actions[team] = rng.integers(0, sizes, (games, spec.n)).astype(np.int32)
            if style == 2:
                actions[team] *= rng.random((games, spec.n)) < 0.2
        else:  # beyond the bounds, too: mpe2 clips
            actions[team] = rng.uniform(-0.1, 1.1, (games, spec.n, spec.action.size)).astype(
                np.float32
            )
            if style == 2:
                actions[team] *= rng.random((games, spec.n, 1)) < 0.2
    return actions


def play(game: Particles, episodes: int, seed: int = 0) -> Episodes:
    """Play mpe2's game of the same options, in turn, with openings and actions of all four
    styles."""
    env, rng = real(game), np.random.default_rng(seed)
    names = env.possible_agents
    rows, actions = [], []
    for episode in range(episodes):
        style = episode % 4
        env.reset(seed=seed + episode)
        arrange(env, style, rng)
        held = choose(game, style, 1, rng)
        nothing = dict.fromkeys(names, 0)
        instants, taken = (
            [_instant(env, {name: env.unwrapped.observe(name) for name in names}, *[nothing] * 3)],
            [],
        )
        for _ in range(game.limit):
            taken.append(held if style == 3 else choose(game, style, 1, rng))
            if not env.agents:
                instants.append({**instants[-1], "live": False})
                continue
            instants.append(_instant(env, *env.step(_by_name(game, taken[-1]))[:4]))
        rows.append(instants)
        actions.append(taken)
    env.close()
    times = range(game.limit + 1)
    fields = {
        name: np.stack([np.stack([row[t][name] for row in rows], axis=-1) for t in times])
        for name in ("obs", "state", "reward", "ended", "timeout", "live")
    }
    return Episodes(
        worlds=[stack([row[t]["world"] for row in rows]) for t in times],
        actions=[
            {k: np.concatenate([a[t][k] for a in actions]) for k in game.teams} for t in times[:-1]
        ],
        **fields,
    )


def _by_name(game: Particles, actions: dict[str, np.ndarray]) -> dict[str, Any]:
    named = {}
    for team, spec in game.teams.items():
        for i, (agent, size) in enumerate(zip(spec.agents, spec.action_sizes, strict=True)):
            action = actions[team][0, i]
            named[agent] = int(action) if isinstance(spec.action, Discrete) else action[:size]
    return named


def _instant(env: Any, obs: dict, reward: dict, ended: dict, timeout: dict) -> dict[str, Any]:
    widest = max(map(len, obs.values()))
    return {
        "world": read(env),
        "obs": np.stack([np.pad(seen, (0, widest - len(seen))) for seen in obs.values()]),
        "state": env.unwrapped.state(),
        "reward": np.array(list(reward.values())),
        "ended": all(ended.values()),
        "timeout": all(timeout.values()),
        "live": True,
    }
