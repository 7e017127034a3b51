"""Level-based foraging: players gather food that may need several of them at once.

The rules are those of the package `lbforaging` 2.0 (Christianos et al. 2020, Papoudakis et al.
2021), and parity with it is tested over whole episodes. Places are rows and columns from the top
left; nothing but the opening is random.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ....errors import ShoalError
from ....render import Scene
from ....types import Discrete, Spec
from ...game import at_least, within
from ..grid import GridGame, below, distinct, either
from ..mpe.physics import others
from .picture import picture

NORTH, SOUTH, WEST, EAST, LOAD = range(1, 6)  # 0 is no-op
TEAM = "agent"
# row, column and level of an unseen thing
ABSENT = np.array([-1.0, -1.0, 0.0], np.float32)[:, None]
APART = 2  # food must be more than this many steps from other food
LARGEST = 100  # most rows or columns
CROWD = 100  # most players or foods


class ForagingWorld(NamedTuple):
    """State of a foraging game."""

    place: Array  # [N,2,B] int32 cells of the players
    level: Array  # [N,B] int32
    food: Array  # [M,2,B] int32 cells of the food, row by row
    amount: Array  # [M,B] int32 level of the food; 0 once it is gone
    spawned: Array  # [B] int32 sum of food levels at the opening
    earned: Array  # [N,B] reward of the step that led here


@dataclass(frozen=True)
class Foraging(GridGame):
    """Food is loaded when the levels of all who load it at once reach its own; they share what it
    is worth."""

    rows: int = 8
    """of cells"""
    columns: int = 8
    """of cells"""
    players: int = 2
    """agents"""
    max_num_food: int = 2
    """foods; fewer where they do not fit apart from each other"""
    force_coop: bool = False
    """all food has the highest level, so that it takes several players"""
    sight: int | None = None
    """cells that a player sees in each direction; None: the whole board"""
    version: Literal["v1", "v2", "v3"] = "v3"
    """rules of the opening: before v3 food has at most one level less, in v1 nobody begins in the
    last row or column"""
    penalty: float = 0.0
    """cost of loading in vain"""
    min_player_level: int = 1
    """the lowest level of a player"""
    max_player_level: int = 2
    """the highest level of a player"""
    min_food_level: int = 1
    """the lowest level of food, unless force_coop"""
    max_food_level: int | None = None
    """the highest level of food; None: the sum of the three lowest players' levels"""
    normalize_reward: bool = True
    """all food together is worth 1; otherwise a player earns its level times the food's"""
    grid_observation: bool = False
    """see three layers of the cells around (players, food, free cells) instead of a list of what is
    there"""
    observe_agent_levels: bool = True
    """see the levels of players"""

    name = "lbf"
    metrics = ("food", "won")
    example = "8x8-2p-2f"
    form = "8x8-2p-2f, after it -coop, -pen and -v1, -v2 or -v3, before it 2s- (sight) and grid-"
    reads = re.compile(
        r"(?P<grid>grid-)?(?:(?P<sight>\d+)s-)?(?P<rows>\d+)x(?P<columns>\d+)-(?P<players>\d+)p-(?P<food>\d+)f"
        r"(?P<coop>-coop)?(?P<ind>-ind)?(?P<pen>-pen)?(?:-(?P<version>v[123]))?"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, players=self.players, max_num_food=self.max_num_food)
        at_least(3, rows=self.rows, columns=self.columns)
        within(3, LARGEST, rows=self.rows, columns=self.columns)
        within(1, CROWD, players=self.players, max_num_food=self.max_num_food)
        within(0, np.inf, penalty=self.penalty)
        at_least(1, min_player_level=self.min_player_level, min_food_level=self.min_food_level)
        at_least(self.min_player_level, max_player_level=self.max_player_level)
        if self.max_food_level is not None:
            at_least(self.min_food_level, max_food_level=self.max_food_level)
        if self.sight is not None:
            at_least(1, sight=self.sight)
            within(1, LARGEST, sight=self.sight)
        if self.version not in ("v1", "v2", "v3"):
            raise ShoalError(f"version must be v1, v2 or v3, not {self.version!r}")
        if self.players > np.prod(self._region):
            raise ShoalError(
                f"{self.players} players do not fit on {self.rows} rows and {self.columns} columns"
            )

    @classmethod
    def meant(cls, **words: str) -> dict[str, Any]:
        counts = {
            "sight": "sight",
            "rows": "rows",
            "columns": "columns",
            "players": "players",
            "food": "max_num_food",
        }
        options: dict[str, Any] = {
            counts[word]: int(told) for word, told in words.items() if word in counts
        }
        marks = {
            "grid": ("grid_observation", True),
            "coop": ("force_coop", True),
            "ind": ("max_food_level", 1),
        }
        marks |= {"pen": ("penalty", 0.1), "version": ("version", words.get("version"))}
        return options | dict(marks[word] for word in words if word in marks)

    @cached_property
    def teams(self) -> dict[str, Spec]:
        names = tuple(f"{TEAM}_{i}" for i in range(self.players))
        per_player = 3 if self.observe_agent_levels else 2
        size = 3 * self.max_num_food + per_player * self.players
        if self.grid_observation:
            size = 3 * (2 * self._sight + 1) ** 2
        spec = Spec(
            names,
            size,
            size * self.players,
            Discrete(LOAD + 1),
            entities=self._entities(per_player),
        )
        return self.line_up({TEAM: spec})

    def _entities(self, per_player: int) -> str:
        """Food and other players, and the player's own place between them."""
        if self.grid_observation:
            return ""
        own = 3 * self.max_num_food
        others = f",{own + per_player}:{per_player}x{self.players - 1}" if self.players > 1 else ""
        return f"0:3x{self.max_num_food}{others}@{own},{own + 1}"

    @property
    def _sight(self) -> int:
        return max(self.rows, self.columns) if self.sight is None else self.sight

    @property
    def _sees_all(self) -> bool:
        return self._sight >= max(self.rows, self.columns) - 1

    @property
    def _region(self) -> tuple[int, int]:
        """Rows and columns in which players start."""
        last = self.version == "v1"
        return self.rows - last, self.columns - last

    # -- the opening -------------------------------------------------------------------------------

    def start(self, key: Array, games: int) -> ForagingWorld:
        key_place, key_level, key_food, key_amount = jax.random.split(key, 4)
        rows, columns = self._region
        cell = distinct(key_place, self.players, rows * columns, games)
        place = jnp.stack([cell // columns, cell % columns], axis=1)
        span = self.max_player_level - self.min_player_level + 1
        level = self.min_player_level + below(key_level, np.full(self.players, span), games)
        food, there = self._spread_food(key_food, place)
        amount = jnp.where(there, self._food_levels(key_amount, level), 0)
        return ForagingWorld(
            place, level, food, amount, amount.sum(0), jnp.zeros((self.players, games))
        )

    def _spread_food(self, key: Array, place: Array) -> tuple[Array, Array]:
        """Place food: `[M,2,B]` cells, row by row, and `[M,B]` whether there was room.

        Food never lies at the edge, nor within two steps of other food. Walking through a random
        order of the cells is equivalent to drawing cells until one is free.
        """
        inner = np.indices((self.rows - 2, self.columns - 2)).reshape(2, -1, 1) + 1
        total = inner.shape[1]
        order = jax.random.uniform(key, (total, place.shape[-1]))
        taken = either((inner[0] == at[0]) & (inner[1] == at[1]) for at in place)
        order = jnp.where(taken, -1.0, order)
        chosen = []
        for _ in range(self.max_num_food):
            best = order.max(0)
            index = jnp.where(order == best, np.arange(total)[:, None], total).min(0)
            chosen.append(jnp.where(best < 0, total, index))
            row, column = (1 + part for part in jnp.divmod(index, self.columns - 2))
            near = jnp.abs(inner[0] - row) + jnp.abs(inner[1] - column) <= APART
            order = jnp.where(near, -1.0, order)
        cell = jnp.sort(jnp.stack(chosen), axis=0)
        return 1 + jnp.stack(jnp.divmod(cell, self.columns - 2), axis=1), cell < total

    def _food_levels(self, key: Array, level: Array) -> Array:
        """`[M,B]` levels of food, given the players' levels."""
        top = (
            jnp.sort(level, axis=0)[:3].sum(0)
            if self.max_food_level is None
            else self.max_food_level
        )
        top = jnp.broadcast_to(top, (self.max_num_food, level.shape[-1]))
        if self.force_coop:
            return top
        highest = jnp.maximum(top - (self.version != "v3"), self.min_food_level)
        share = jax.random.uniform(key, top.shape)
        return self.min_food_level + jnp.floor(share * (highest - self.min_food_level + 1)).astype(
            jnp.int32
        )

    # -- a step ------------------------------------------------------------------------------------

    def advance(self, key: Array, world: ForagingWorld, actions: dict[str, Array]) -> ForagingWorld:
        action = actions[TEAM]
        earned, taken = self._loaded(world, action == LOAD)
        target = self._target(world, action)
        goal = self._number(target)
        ways = range(self.players)
        clash = jnp.stack(
            [either([goal[i] == goal[j] for j in ways if j != i] or [goal[i] < 0]) for i in ways]
        )
        place = jnp.where(clash[:, None], world.place, target)
        return world._replace(place=place, amount=jnp.where(taken, 0, world.amount), earned=earned)

    def _number(self, place: Array) -> Array:
        """`[n,B]` a unique number for each cell `[n,2,B]`, also for cells just beyond the edge."""
        return place[:, 0] * self._stride + place[:, 1]

    @property
    def _stride(self) -> int:
        return self.columns + 2

    def _target(self, world: ForagingWorld, action: Array) -> Array:
        """`[N,2,B]` the cell that each player wants to enter; food and the edge block it."""
        step = [
            (action == SOUTH).astype(jnp.int32) - (action == NORTH),
            (action == EAST).astype(jnp.int32) - (action == WEST),
        ]
        ahead = world.place + jnp.stack(step, axis=1)
        size = np.array([self.rows, self.columns])[:, None]
        inside = ((ahead >= 0) & (ahead < size)).all(1)
        cell = self._number(ahead)
        food = self._number(world.food)
        blocked = either(
            (cell == food[j]) & (world.amount[j] > 0) for j in range(self.max_num_food)
        )
        return jnp.where((inside & ~blocked)[:, None], ahead, world.place)

    def _loaded(self, world: ForagingWorld, loading: Array) -> tuple[Array, Array]:
        """Rewards `[N,B]` of the players who load `[N,B]`, and `[M,B]` which food is taken.

        No cell is next to two foods.
        """
        away = jnp.abs(self._number(world.place)[:, None] - self._number(world.food))
        loads = loading[:, None] & (world.amount > 0) & ((away == 1) | (away == self._stride))
        strength = reduce(
            jnp.add, (jnp.where(loads[i], world.level[i], 0) for i in range(self.players))
        )
        taken = (strength > 0) & (strength >= world.amount)
        worth = (world.level[:, None] * world.amount).astype(jnp.float32)
        if self.normalize_reward:
            worth = worth / jnp.maximum(strength * world.spawned, 1)
        gain = jnp.where(loads, jnp.where(taken, worth, -self.penalty), 0.0)
        return reduce(jnp.add, (gain[:, j] for j in range(self.max_num_food))), taken

    def reward(self, world: ForagingWorld) -> dict[str, Array]:
        return {TEAM: world.earned}

    def terminal(self, world: ForagingWorld, clock: Array) -> Array:
        return (world.amount == 0).all(0)

    def episode_metrics(self, world: ForagingWorld) -> dict[str, Array]:
        """`food`: the share of food levels that was taken; `won`: whether that is all."""
        left = world.amount.sum(0)
        return {
            "food": 1.0 - left / jnp.maximum(world.spawned, 1),
            "won": (left == 0).astype(jnp.float32),
        }

    # -- what is seen ------------------------------------------------------------------------------

    def observe(self, world: ForagingWorld) -> dict[str, Array]:
        return {TEAM: self._layers(world) if self.grid_observation else self._lists(world)}

    def _lists(self, world: ForagingWorld) -> Array:
        """`[N,F,B]` row, column and level of visible food, of the agent and of visible others."""
        corner = jnp.maximum(world.place - self._sight, 0)  # of the area that a player sees
        near = corner[:1] if self._sees_all else corner
        offset = world.food - near[:, None]
        seen = (world.amount > 0) & self._within(
            offset - (world.place - corner)[: len(near), None], self._sight
        )
        food = _front(_rows(offset, world.amount), seen)
        food = jnp.broadcast_to(food, (self.players, *food.shape[1:]))
        own = _rows((world.place - corner)[:, None], world.level[:, None])
        offset = others(world.place) - corner[:, None]
        rest = _rows(offset, others(world.level))
        # as in the package: near the edge, players are visible farther away than food
        if not self._sees_all:
            rest = _front(rest, self._within(offset - self._sight, self._sight))
        people = jnp.concatenate([own, rest], axis=1)[:, :, : 3 if self.observe_agent_levels else 2]
        games = world.place.shape[-1]
        return jnp.concatenate(
            [part.reshape(self.players, -1, games) for part in (food, people)], axis=1
        )

    def _within(self, offset: Array, reach: int) -> Array:
        """`[…,B]` whether `offset […,2,B]` is at most `reach` cells in both directions."""
        if self._sees_all:
            return jnp.ones((), bool)
        away = jnp.abs(offset)
        return jnp.maximum(away[..., 0, :], away[..., 1, :]) <= reach

    def _layers(self, world: ForagingWorld) -> Array:
        """`[N,3·K,B]` the `K` cells around each player: levels of players and food, free cells."""
        reach = np.arange(-self._sight, self._sight + 1)
        window = np.stack(np.meshgrid(reach, reach, indexing="ij")).reshape(2, -1).T[..., None]
        cells = world.place[:, None] + window  # [N,K,2,B]
        size = np.array([self.rows, self.columns])[:, None]
        free = ((cells >= 0) & (cells < size)).all(2)
        players = food = jnp.zeros(free.shape)
        for i in range(self.players):  # where two share a cell, the later one is visible
            here = (cells == world.place[i]).all(2)
            players = jnp.where(here, world.level[i] if self.observe_agent_levels else 1, players)
            free &= ~here
        for j in range(self.max_num_food):
            here = (cells == world.food[j]).all(2) & (world.amount[j] > 0)
            food = jnp.where(here, world.amount[j], food)
            free &= ~here
        layers = jnp.stack([players, food, free.astype(jnp.float32)], axis=1)
        return layers.reshape(self.players, -1, layers.shape[-1]).astype(jnp.float32)

    # -- a picture ---------------------------------------------------------------------------------

    def scene(self, world: ForagingWorld, actions: dict[str, np.ndarray]) -> Scene:
        loading = actions[TEAM] == LOAD if TEAM in actions else np.zeros(self.players, bool)
        return picture(self.rows, self.columns, world, loading, TEAM)


def _rows(offset: Array, level: Array) -> Array:
    """`[n,K,3,B]` from offsets `[n,K,2,B]` and levels `[…,K,B]`."""
    level = jnp.broadcast_to(level, (*offset.shape[:2], offset.shape[-1]))
    return jnp.concatenate([offset, level[:, :, None]], axis=2).astype(jnp.float32)


def _front(rows: Array, seen: Array) -> Array:
    """`[n,K,3,B]` visible rows first, in their order; the others are set to absent."""
    seen = jnp.broadcast_to(seen, (*rows.shape[:2], rows.shape[-1]))
    slots = range(rows.shape[1])
    before = [jnp.zeros(seen[:, 0].shape, jnp.int32)] if slots else []
    for j in slots[1:]:
        before.append(before[-1] + seen[:, j - 1])
    kept = []
    for slot in slots:
        moved = (
            jnp.where((seen[:, j] & (before[j] == slot))[:, None], rows[:, j] - ABSENT, 0.0)
            for j in slots[slot:]
        )
        kept.append(reduce(jnp.add, moved) + ABSENT)
    return jnp.stack(kept, axis=1) if kept else rows
