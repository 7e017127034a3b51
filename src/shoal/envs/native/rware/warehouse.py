"""The robot warehouse: robots bring requested shelves to the goals and put them back somewhere.

The rules are those of the package `rware` 2.0 (Christianos et al. 2020, Papoudakis et al. 2021),
and parity with it is tested over whole episodes. Robots pass under standing shelves, unless they
carry one.
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
from ..grid import GridGame, below, distinct, either, skip
from .floor import AISLE, WAYS, Floor, floor
from .picture import picture
from .traffic import movers

FORWARD, LEFT, RIGHT, TOGGLE = range(1, 5)  # 0 is no-op
MOVES = 5
TEAM = "agent"
# rows, columns
SIZES = {"tiny": (1, 3), "small": (2, 3), "medium": (2, 5), "large": (3, 5), "xlarge": (4, 5)}
REWARDS = {"indiv": "individual", "global": "global", "twostage": "two_stage"}
OWN = 8  # size of a robot's observation of itself
MOST_ROBOTS = 50
LARGEST = 19  # most blocks, or rows of a block: shelves are numbered in 16 bits
FARTHEST = 10  # longest range of a sensor
LOUDEST = 8  # most bits of a message


class WarehouseWorld(NamedTuple):
    """State of a warehouse. Cells of the padded board are numbered row by row."""

    place: Array  # [N,2,B] int32 rows and columns of the robots
    way: Array  # [N,B] int32 direction that each faces
    load: Array  # [N,B] int32 shelf that it carries, 0 if none
    brought: Array  # [N,B] bool: it has delivered the shelf that it carries
    said: Array  # [N,M,B] int32 bits of its message
    # [cells,B] int16 shelf that stands on each cell of the padded board, 0 if none
    stands: Array
    queue: Array  # [Q,B] int32 requested shelves
    earned: Array  # [N,B] reward of the step that led here
    delivered: Array  # [B] int32 deliveries so far
    # [N,K,B] int32 the cells around each robot, as packed bits: computed once per step, not once
    # per bit of the observation
    seen: Array


@dataclass(frozen=True)
class Warehouse(GridGame):
    """A robot earns 1 for each requested shelf it brings to a goal; another is then requested
    instead."""

    max_cycles: int = 500
    """steps until time runs out"""
    shelf_rows: int = 1
    """blocks of shelves below each other"""
    shelf_columns: int = 3
    """blocks of shelves beside each other, an odd number"""
    column_height: int = 8
    """shelves below each other in a block, which is two wide"""
    n_agents: int = 2
    """robots"""
    request_queue_size: int | None = None
    """shelves that are requested at a time; None: as many as there are robots"""
    sensor_range: int = 1
    """cells that a robot sees in each direction"""
    msg_bits: int = 0
    """bits that a robot tells those who see it, as a part of its action"""
    reward_type: Literal["individual", "global", "two_stage"] = "individual"
    """who earns: the robot that delivers; every robot; it, half for the delivery and half for
    putting the shelf back"""
    normalised_coordinates: bool = False
    """see one's row and column as numbers up to 1"""

    name = "rware"
    metrics = ("deliveries",)
    example = "tiny-2ag"
    form = (
        "tiny-2ag (small, medium, large, xlarge, 2x3), then -easy, -hard or -4req; -8h before"
        " -2ag, 2s- before all"
    )
    reads = re.compile(
        rf"(?:(?P<sight>\d+)s-)?(?:(?P<size>{'|'.join(SIZES)})|(?P<rows>\d+)x(?P<columns>\d+))(?:-(?P<height>\d+)h)?"
        rf"-(?P<agents>\d+)ag(?:-(?P<queue>easy|hard)|-(?P<requests>\d+)req)?(?:-(?P<reward>{'|'.join(REWARDS)}))?"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = {
            "shelf_rows": self.shelf_rows,
            "shelf_columns": self.shelf_columns,
            "column_height": self.column_height,
        }
        at_least(1, **sizes, n_agents=self.n_agents, sensor_range=self.sensor_range)
        at_least(0, msg_bits=self.msg_bits)
        within(1, LARGEST, **sizes)
        within(1, MOST_ROBOTS, n_agents=self.n_agents)
        within(1, FARTHEST, sensor_range=self.sensor_range)
        within(0, LOUDEST, msg_bits=self.msg_bits)
        if self.shelf_columns % 2 == 0:
            raise ShoalError(f"shelf_columns must be odd, not {self.shelf_columns!r}")
        if self.reward_type not in REWARDS.values():
            raise ShoalError(
                f"reward_type must be one of {', '.join(REWARDS.values())}, not"
                f" {self.reward_type!r}"
            )
        at_least(1, request_queue_size=self._requests)
        shelves = len(self.floor.shelves)
        if self._requests >= shelves:
            raise ShoalError(
                f"request_queue_size must be less than the {shelves} shelves there are, not"
                f" {self._requests}"
            )

    @classmethod
    def meant(cls, **words: str) -> dict[str, Any]:
        counts = {
            "rows": "shelf_rows",
            "columns": "shelf_columns",
            "height": "column_height",
            "agents": "n_agents",
        }
        counts |= {"sight": "sensor_range", "requests": "request_queue_size"}
        options: dict[str, Any] = {
            counts[word]: int(told) for word, told in words.items() if word in counts
        }
        if "size" in words:
            options["shelf_rows"], options["shelf_columns"] = SIZES[words["size"]]
        if "queue" in words:
            share = {"easy": 2.0, "hard": 0.5}[words["queue"]]
            options["request_queue_size"] = int(options["n_agents"] * share)
        if "reward" in words:
            options["reward_type"] = REWARDS[words["reward"]]
        return options

    @property
    def _requests(self) -> int:
        return self.n_agents if self.request_queue_size is None else self.request_queue_size

    @property
    def floor(self) -> Floor:
        return floor(self.shelf_rows, self.shelf_columns, self.column_height)

    @cached_property
    def teams(self) -> dict[str, Spec]:
        names = tuple(f"{TEAM}_{i}" for i in range(self.n_agents))
        size = OWN + (7 + self.msg_bits) * (2 * self.sensor_range + 1) ** 2
        return self.line_up(
            {TEAM: Spec(names, size, size * self.n_agents, Discrete(MOVES * 2**self.msg_bits))}
        )

    # -- cells -------------------------------------------------------------------------------------

    @property
    def _stride(self) -> int:
        return self.floor.highway.shape[1] + 2 * self.sensor_range

    def _number(self, place: Any) -> Any:
        """Number of each cell `[…,2,B]` on the board padded by the sensors' range."""
        row = place[..., 0, :]
        column = place[..., 1, :]
        return (row + self.sensor_range) * self._stride + column + self.sensor_range

    @cached_property
    def _opening(self) -> np.ndarray:
        """`[cells,1]` every shelf at its initial place."""
        rows = self.floor.highway.shape[0] + 2 * self.sensor_range
        stands = np.zeros((rows * self._stride, 1), np.int16)
        stands[self._number(self.floor.shelves[..., None])[:, 0], 0] = 1 + np.arange(
            len(self.floor.shelves)
        )
        return stands

    def _on_highway(self, place: Array) -> Array:
        """`[N,B]` whether each is on a highway; computed, as a lookup is slower."""
        rows, columns = self.floor.highway.shape
        row = place[:, 0]
        column = place[:, 1]
        middle = (column == columns // 2 - 1) | (column == columns // 2)
        queue = middle & (row > rows - (self.column_height + 3))
        return (
            (column % AISLE == 0)
            | (row % (self.column_height + 1) == 0)
            | (row == rows - 1)
            | queue
        )

    # -- chance ------------------------------------------------------------------------------------

    def start(self, key: Array, games: int) -> WarehouseWorld:
        key_place, key_way, key_queue = jax.random.split(key, 3)
        n = self.n_agents
        (rows, columns) = self.floor.highway.shape
        cell = distinct(key_place, n, rows * columns, games)
        none = jnp.zeros((n, games), jnp.int32)
        world = WarehouseWorld(
            place=jnp.stack([cell // columns, cell % columns], axis=1),
            way=below(key_way, np.full(n, len(WAYS)), games),
            load=none,
            brought=none.astype(bool),
            said=jnp.zeros((n, self.msg_bits, games), jnp.int32),
            stands=jnp.broadcast_to(self._opening, (len(self._opening), games)),
            queue=1 + distinct(key_queue, self._requests, len(self.floor.shelves), games),
            earned=none.astype(jnp.float32),
            delivered=none[0],
            seen=none,
        )
        return self.look(world)

    def advance(
        self, key: Array, world: WarehouseWorld, actions: dict[str, Array]
    ) -> WarehouseWorld:
        world = self.act(world, actions[TEAM])
        # deliveries do not move standing shelves: do not copy them through the cond
        rest = world._replace(stands=jnp.zeros(0))
        arrived = jnp.any(
            jnp.stack([self._arrived(world, goal)[0] > 0 for goal in self.floor.goals])
        )
        rest = jax.lax.cond(arrived, self._draw, lambda key, rest: rest, key, rest)
        return self.look(rest._replace(stands=world.stands))

    def _draw(self, key: Array, world: WarehouseWorld) -> WarehouseWorld:
        free = len(self.floor.shelves) - self._requests
        return self.deliver(
            world, below(key, np.full(len(self.floor.goals), free), world.delivered.shape[0])
        )

    # -- a step ------------------------------------------------------------------------------------

    def act(self, world: WarehouseWorld, action: Array) -> WarehouseWorld:
        """The world after all actions `[N,B]`, before deliveries."""
        move = action >> self.msg_bits
        goal = self._goal(world, move)
        here = self._number(world.place)
        cells = jnp.concatenate([here, self._number(goal)])
        under, ahead = jnp.split(_look_up(world.stands, cells), 2)
        free = (world.load == 0) | (ahead == 0)  # a robot with a shelf cannot pass under another
        goes = movers(here, jnp.where(free, self._number(goal), here))
        toggles = (move == TOGGLE) & ((world.load == 0) | ~self._on_highway(world.place))
        lowers = toggles & (world.load > 0)
        said = action[:, None] >> np.arange(self.msg_bits)[::-1, None] & 1
        returned = (
            lowers & world.brought if self.reward_type == "two_stage" else jnp.zeros_like(lowers)
        )
        return world._replace(
            place=jnp.where(goes[:, None], goal, world.place),
            way=_turned(world.way, move),
            load=jnp.where(toggles, jnp.where(lowers, 0, under), world.load),
            brought=world.brought & ~lowers,
            said=said,
            stands=_put(world.stands, jnp.where(toggles, here, len(world.stands)), world.load),
            earned=0.5 * returned,
        )

    def deliver(self, world: WarehouseWorld, nth: Array) -> WarehouseWorld:
        """Deliver the requested shelves at the goals.

        In place of each, the `nth [G,B]` of the shelves not requested is requested.
        """
        for goal, draw in zip(self.floor.goals, nth, strict=True):
            shelf, carrier = self._arrived(world, goal)
            done = shelf > 0
            fresh = 1 + skip(world.queue - 1, draw)
            paid = done if self.reward_type == "global" else done & carrier
            world = world._replace(
                queue=jnp.where(done & (world.queue == shelf), fresh, world.queue),
                brought=world.brought | (done & carrier),
                earned=world.earned + (0.5 if self.reward_type == "two_stage" else 1.0) * paid,
                delivered=world.delivered + done,
            )
        return world

    def _arrived(self, world: WarehouseWorld, goal: np.ndarray) -> tuple[Array, Array]:
        """`[B]` the requested shelf at a goal, 0 if none, and `[N,B]` which robot is there."""
        there = (world.place[:, 0] == goal[0]) & (world.place[:, 1] == goal[1])
        shelf = reduce(
            jnp.add, (jnp.where(there[i], world.load[i], 0) for i in range(self.n_agents))
        )
        return jnp.where(either(shelf == wanted for wanted in world.queue), shelf, 0), there

    def _goal(self, world: WarehouseWorld, move: Array) -> Array:
        """`[N,2,B]` the cell that each robot wants to enter."""
        on = move == FORWARD
        up, down, left, right = ((on & (world.way == way)).astype(jnp.int32) for way in range(4))
        ahead = world.place + jnp.stack([down - up, right - left], axis=1)
        return jnp.clip(ahead, 0, np.array(self.floor.highway.shape)[:, None] - 1)

    def reward(self, world: WarehouseWorld) -> dict[str, Array]:
        return {TEAM: world.earned}

    def episode_metrics(self, world: WarehouseWorld) -> dict[str, Array]:
        """`deliveries`: requested shelves brought to a goal."""
        return {"deliveries": world.delivered.astype(jnp.float32)}

    # -- what is seen ------------------------------------------------------------------------------

    def observe(self, world: WarehouseWorld) -> dict[str, Array]:
        return {TEAM: jnp.moveaxis(self._outward(world, world.place.shape[-1])[TEAM], 0, -1)}

    def _outward(self, world: WarehouseWorld, games: int) -> dict[str, Array]:
        """Observations `[B,N,F]`.

        The flags of a cell are moved as bits of one number: moving them one by one is slow.
        """
        place = world.place[:, ::-1].astype(jnp.float32)  # as (column, row)
        if self.normalised_coordinates:
            place /= np.array(self.floor.highway.shape, np.float32)[::-1, None] - 1
        own = _packed([world.load > 0, *_facing(world.way), self._on_highway(world.place)])
        place, own, cells = (jnp.moveaxis(part, -1, 0) for part in (place, own, world.seen))
        cells = _bits(cells, 7 + self.msg_bits).reshape(games, self.n_agents, -1)
        return {TEAM: jnp.concatenate([place, _bits(own, OWN - 2), cells], axis=-1)}

    def look(self, world: WarehouseWorld) -> WarehouseWorld:
        """Add to the world what its robots see: robots and shelves on the `K` cells around each."""
        reach = np.arange(-self.sensor_range, self.sensor_range + 1)
        window = (reach[:, None] * self._stride + reach).reshape(-1, 1)
        here = self._number(world.place)
        cells = here[:, None] + window
        said = reduce(jnp.add, (world.said[:, bit] << bit for bit in range(self.msg_bits)), 0)
        # a robot as one number: direction, message and load, plus 1
        code = 1 + world.way + 4 * said + (world.load << (2 + self.msg_bits))
        found = reduce(
            jnp.add, (jnp.where(cells == here[i], code[i], 0) for i in range(self.n_agents))
        )
        robot = found > 0
        code = jnp.maximum(found - 1, 0)
        words = [code >> (2 + bit) & 1 for bit in range(self.msg_bits)]
        standing = _look_up(world.stands, cells.reshape(-1, cells.shape[-1])).reshape(cells.shape)
        shelf = standing + (code >> (2 + self.msg_bits))
        wanted = either(shelf == one for one in world.queue)
        return world._replace(seen=_packed([robot, *_facing(code & 3), *words, shelf > 0, wanted]))

    def scene(self, world: WarehouseWorld, actions: dict[str, np.ndarray]) -> Scene:
        cells = self._number(self.floor.shelves[..., None])[:, 0]
        return picture(self.floor, world, world.stands[cells], TEAM)


def _look_up(stands: Array, cells: Array) -> Array:
    """`[n,B]` shelves on the cells `[n,B]`."""
    return jnp.take_along_axis(stands, cells, axis=0, mode="promise_in_bounds").astype(jnp.int32)


def _put(stands: Array, cells: Array, shelves: Array) -> Array:
    """Put shelves `[N,B]` onto different cells `[N,B]`; a cell beyond the last is ignored."""
    games = np.arange(stands.shape[1])
    return stands.at[cells, games].set(shelves.astype(stands.dtype), mode="drop")


def _turned(way: Array, move: Array) -> Array:
    """`[N,B]` direction after a move; up, down, left and right are 0 to 3."""
    upright = way < 2
    left = jnp.where(upright, way + 2, 3 - way)
    right = jnp.where(upright, 3 - way, way - 2)
    return jnp.where(move == LEFT, left, jnp.where(move == RIGHT, right, way))


def _facing(way: Array) -> list[Array]:
    """For each of the four directions, which robots face it."""
    return [way == one for one in range(4)]


def _packed(flags: list[Array]) -> Array:
    """Pack flags into one number, the first in its lowest bit."""
    return reduce(jnp.bitwise_or, (flag.astype(jnp.int32) << bit for bit, flag in enumerate(flags)))


def _bits(packed: Array, count: int) -> Array:
    """`[…,count]` unpack the flags, as nets read them."""
    return (packed[..., None] >> np.arange(count) & 1).astype(jnp.float32)
