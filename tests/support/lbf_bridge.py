"""Plays the real `lbforaging`, so that our game can be laid beside it."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
from lbforaging.foraging import ForagingEnv

from shoal.envs.native.lbf.foraging import LOAD, Foraging, ForagingWorld

MOVES = np.array([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)])
STYLES = ("random", "forager", "crowd", "loner")


class Real(ForagingEnv):
    """The package's game, with a space of observations that fits: its own mistakes rows for columns
    where they differ, and for grid observations it cannot be made with today's Gymnasium."""

    def _get_observation_space(self) -> gym.spaces.Box:
        width = 2 * self.sight + 1
        size = 3 * self.max_num_food + (3 if self._observe_agent_levels else 2) * len(self.players)
        return gym.spaces.Box(
            -1, 100, (3, width, width) if self._grid_observation else (size,), np.float32
        )


class Episodes(NamedTuple):
    """Many episodes, time first, games last. Rows after an episode's end repeat its last one."""

    opening: ForagingWorld
    actions: np.ndarray  # [T,B,N]
    obs: np.ndarray  # [T+1,N,F,B]
    reward: np.ndarray  # [T+1,N,B]
    place: np.ndarray  # [T+1,N,2,B]
    left: np.ndarray  # [T+1,B] levels of the food that is still there
    live: np.ndarray  # [T+1,B] this instant belongs to the episode
    events: dict[str, int]


def real(game: Foraging) -> Any:
    """The package's game with the same options."""
    return Real(
        players=game.players,
        min_player_level=game.min_player_level,
        max_player_level=game.max_player_level,
        min_food_level=game.min_food_level,
        max_food_level=game.max_food_level,
        field_size=(game.rows, game.columns),
        max_num_food=game.max_num_food,
        sight=game._sight,
        max_episode_steps=game.max_cycles,
        force_coop=game.force_coop,
        normalize_reward=game.normalize_reward,
        grid_observation=game.grid_observation,
        observe_agent_levels=game.observe_agent_levels,
        penalty=game.penalty,
    )


def read(env: Any, foods: int) -> dict[str, np.ndarray]:
    """The package's opening as the fields of ours, without the games axis."""
    food = np.full((foods, 2), -9)
    amount = np.zeros(foods, int)
    for i, at in enumerate(np.argwhere(env.field)):
        food[i], amount[i] = at, env.field[tuple(at)]
    return {
        "place": np.array([player.position for player in env.players]),
        "level": np.array([player.level for player in env.players]),
        "food": food,
        "amount": amount,
        "spawned": np.array(amount.sum()),
        "earned": np.zeros(len(env.players)),
    }


def choose(env: Any, style: str, rng: np.random.Generator) -> np.ndarray:
    """One action for each player: any, towards food and load it, towards each other, or each to its
    own food."""
    n = len(env.players)
    actions = rng.integers(0, 6, n)
    food = np.argwhere(env.field)
    for i, player in enumerate(env.players):
        if style == "random" or not len(food) or rng.random() < 0.15:
            continue
        at = np.array(player.position)
        if style == "crowd":
            aim = np.array(env.players[(i + 1) % n].position)
        else:
            aim = food[i % len(food)] if style == "loner" else food[0]
        away = aim - at
        if np.abs(away).sum() == 1 and style != "crowd":
            actions[i] = LOAD
        else:
            axis = int(rng.random() < 0.5) if away.all() else int(away[0] == 0)
            actions[i] = (1, 3)[axis] + (away[axis] > 0)
    return actions


def play(game: Foraging, episodes: int, seed: int = 0) -> Episodes:
    """Episodes of the package in all styles, in turn."""
    env, rng = real(game), np.random.default_rng(seed)
    events = dict.fromkeys(
        ("blocked", "clash", "swap", "shared", "loaded", "together", "failed"), 0
    )
    openings, rows, taken = [], [], []
    for episode in range(episodes):
        obs, _ = env.reset(seed=seed + episode)
        openings.append(read(env, game.max_num_food))
        instants, acts, over = [_instant(env, obs, [0.0] * game.players, True)], [], False
        while not over:
            acts.append(choose(env, STYLES[episode % len(STYLES)], rng))
            before = np.array([player.position for player in env.players])
            field = env.field.copy()
            obs, reward, over, _, _ = env.step(acts[-1])
            instants.append(_instant(env, obs, reward, True))
            _count(events, env, before, field, acts[-1], reward)
        missing = game.max_cycles - len(acts)
        rows.append(instants + [{**instants[-1], "live": False}] * missing)
        taken.append(acts + [np.zeros(game.players, int)] * missing)
    fields = {
        name: np.stack(
            [np.stack([row[t][name] for row in rows], -1) for t in range(game.max_cycles + 1)]
        )
        for name in rows[0][0]
    }
    joined = {name: np.stack([one[name] for one in openings], -1) for name in openings[0]}
    kinds = {"earned": jnp.float32}
    opening = ForagingWorld(
        **{name: jnp.asarray(x, kinds.get(name, jnp.int32)) for name, x in joined.items()}
    )
    return Episodes(opening, np.moveaxis(np.array(taken, np.int32), 1, 0), events=events, **fields)


def _instant(env: Any, obs: Any, reward: list[float], live: bool) -> dict[str, Any]:
    return {
        "obs": np.stack(obs).reshape(len(obs), -1),
        "reward": np.array(reward, np.float32),
        "place": np.array([player.position for player in env.players]),
        "left": env.field.sum(),
        "live": live,
    }


def _count(
    events: dict[str, int], env: Any, before: np.ndarray, field: np.ndarray, acts: Any, reward: Any
) -> None:
    """What happened in a step, told from the package's own boards."""
    after = np.array([player.position for player in env.players])
    ahead = before + MOVES[acts]
    inside = ((ahead >= 0) & (ahead < field.shape)).all(1)
    free = np.array([ok and not field[tuple(at)] for ok, at in zip(inside, ahead, strict=True)])
    events["blocked"] += int((~free).sum())
    target = np.where(free[:, None], ahead, before)
    pairs = [(i, j) for i in range(len(after)) for j in range(i)]
    events["clash"] += sum(
        (target[i] == target[j]).all() and (before[i] != before[j]).any() for i, j in pairs
    )
    events["swap"] += sum(
        (after[i] == before[j]).all()
        and (after[j] == before[i]).all()
        and (after[i] != after[j]).any()
        for i, j in pairs
    )
    events["shared"] += sum((after[i] == after[j]).all() for i, j in pairs)
    gone = (field > 0).sum() - (env.field > 0).sum()
    events["loaded"] += int(gone)
    events["together"] += int((np.array(reward) > 0).sum() > gone > 0)
    events["failed"] += int((np.array(reward) < 0).sum())
