"""Plays the real `rware`, so that our game can be laid beside it."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any, NamedTuple

import numpy as np
from rware.warehouse import Action, Direction, ObservationType, RewardType
from rware.warehouse import Warehouse as Real

from shoal.envs.native.rware.warehouse import (
    FORWARD,
    LEFT,
    RIGHT,
    TOGGLE,
    WAYS,
    Warehouse,
    WarehouseWorld,
)

STYLES = ("picker", "random", "ring", "drive")
CLOCKWISE = (Direction.UP, Direction.RIGHT, Direction.DOWN, Direction.LEFT)


class Lots:
    """The package's chance, which tells what it drew."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.drawn = rng, []

    def choice(self, things: Any, size: int | None = None, **options: Any) -> Any:
        if size is not None:
            return self.rng.choice(things, size=size, **options)
        self.drawn.append(int(self.rng.integers(len(things))))
        return things[self.drawn[-1]]


class Episodes(NamedTuple):
    """Many episodes, time first, games last."""

    worlds: WarehouseWorld  # [T+1,…,B]
    actions: np.ndarray  # [T,B,N]
    lots: np.ndarray  # [T,G,B] which of the shelves that nobody had requested was requested
    tied: np.ndarray  # [T,B] bool: equal chains wanted the same cell
    obs: np.ndarray  # [T+1,N,F,B]
    reward: np.ndarray  # [T+1,N,B]
    events: Counter


def real(game: Warehouse) -> Any:
    """The package's game with the same options."""
    return Real(
        shelf_columns=game.shelf_columns,
        column_height=game.column_height,
        shelf_rows=game.shelf_rows,
        n_agents=game.n_agents,
        msg_bits=game.msg_bits,
        sensor_range=game.sensor_range,
        request_queue_size=game._requests,
        max_inactivity_steps=None,
        max_steps=game.max_cycles,
        reward_type=RewardType[game.reward_type.upper()],
        observation_type=ObservationType.FLATTENED,
        normalised_coordinates=game.normalised_coordinates,
    )


def read(game: Warehouse, env: Any, delivered: int = 0) -> dict[str, np.ndarray]:
    """The package's world as the fields of ours, without the games axis."""
    stands = np.zeros(len(game._opening), np.int16)
    carried = [agent.carrying_shelf for agent in env.agents]
    for shelf in env.shelfs:
        if shelf not in carried:
            stands[game._number(np.array([[shelf.y], [shelf.x]]))[0]] = shelf.id
    return {
        "place": np.array([(agent.y, agent.x) for agent in env.agents], np.int32),
        "way": np.array([agent.dir.value for agent in env.agents], np.int32),
        "load": np.array([shelf.id if shelf else 0 for shelf in carried], np.int32),
        "brought": np.array([agent.has_delivered for agent in env.agents]),
        "said": np.array([agent.message for agent in env.agents], np.int32).reshape(
            len(env.agents), -1
        ),
        "stands": stands,
        "queue": np.array([shelf.id for shelf in env.request_queue], np.int32),
        "earned": np.zeros(len(env.agents), np.float32),
        "delivered": np.array(delivered, np.int32),
        "seen": np.zeros((len(env.agents), (2 * game.sensor_range + 1) ** 2), np.int32),
    }


def arrange(env: Any, style: str, rng: np.random.Generator) -> None:
    """By style, robots in squares that face round, or all in one corner."""
    rows, columns = env.grid_size
    if style == "ring":
        row, column = rng.integers(0, rows - 1), rng.integers(0, columns - 1)
        cells = [(row, column), (row, column + 1), (row + 1, column + 1), (row + 1, column)]
        ways = (Direction.RIGHT, Direction.DOWN, Direction.LEFT, Direction.UP)
        free = [(y, x) for y in range(rows) for x in range(columns) if (y, x) not in cells]
        free.sort(key=lambda cell: abs(cell[0] - row) + abs(cell[1] - column) + rng.random())
        for agent, cell in zip(env.agents, cells + free, strict=False):
            agent.y, agent.x = cell
        for agent, way in zip(env.agents, ways, strict=False):
            agent.dir = way
    if style == "drive":
        cells = sorted(
            ((y, x) for y in range(rows) for x in range(columns)),
            key=lambda c: c[0] + c[1] + rng.random(),
        )
        for agent, cell in zip(env.agents, cells, strict=False):
            agent.y, agent.x = cell
    env._recalc_grid()


def choose(
    game: Warehouse, env: Any, style: str, time: int, rng: np.random.Generator
) -> np.ndarray:
    """One move for each robot: pickers fetch and return shelves, a ring goes round, drivers mostly
    go forward."""
    n = game.n_agents
    if style == "random":
        return rng.integers(0, 5, n)
    if style == "ring" or style == "drive":
        moves = np.where(rng.random(n) < 0.7, FORWARD, rng.integers(0, 5, n))
        moves[: 4 if style == "ring" else 0] = RIGHT if time % 2 else FORWARD
        return moves
    return np.array([rng.integers(0, 5) if rng.random() < 0.1 else _pick(env, i) for i in range(n)])


def _pick(env: Any, i: int) -> int:
    """What robot `i` does to deliver the shelf that falls to it, or to get rid of one that nobody
    wants."""
    agent, shelf = env.agents[i], env.agents[i].carrying_shelf
    standing = env.grid[1] > 0
    for other in env.agents:
        if other.carrying_shelf:
            standing[other.y, other.x] = False
    if shelf is None:
        wanted = env.request_queue[i % len(env.request_queue)]
        aims, walls = [(wanted.y, wanted.x)], np.zeros_like(standing)
    elif shelf in env.request_queue:
        x, y = env.goals[i % len(env.goals)]
        aims, walls = [(y, x)], standing
    else:
        aims, walls = list(map(tuple, np.argwhere(~standing & (env.highways == 0)))), standing
    if (agent.y, agent.x) in aims:
        return TOGGLE
    steps = _distances(aims, walls)
    ahead = [
        (steps[agent.y + dy, agent.x + dx], way)
        for way, (dy, dx) in enumerate(WAYS)
        if 0 <= agent.y + dy < steps.shape[0] and 0 <= agent.x + dx < steps.shape[1]
    ]
    way = Direction(min(ahead)[1])
    if agent.dir == way:
        return FORWARD
    return RIGHT if CLOCKWISE[(CLOCKWISE.index(agent.dir) + 1) % 4] == way else LEFT


def _distances(aims: list, walls: np.ndarray) -> np.ndarray:
    """Steps from every cell to the nearest aim."""
    steps = np.full(walls.shape, 9999)
    edge = deque(aims)
    for aim in aims:
        steps[aim] = 0
    while edge:
        y, x = edge.popleft()
        for dy, dx in WAYS:
            cell = (y + dy, x + dx)
            inside = 0 <= cell[0] < walls.shape[0] and 0 <= cell[1] < walls.shape[1]
            if inside and not walls[cell] and steps[cell] == 9999:
                steps[cell] = steps[y, x] + 1
                edge.append(cell)
    return steps


def foresee(env: Any, moves: np.ndarray, events: Counter) -> bool:
    """Whether equal chains want the same cell, told from the package's world; counts what is under
    way."""
    ahead = {}
    for agent, move in zip(env.agents, moves, strict=True):
        agent.req_action = Action(int(move))
        start, goal = (agent.x, agent.y), agent.req_location(env.grid_size)
        there = env.grid[0, goal[1], goal[0]]
        loaded = there and env.agents[there - 1].carrying_shelf
        if agent.carrying_shelf and start != goal and env.grid[1, goal[1], goal[0]] and not loaded:
            events["shelf in the way"] += 1
            goal = start
        ahead[start] = goal
    chains, circles = {}, {}
    for start in ahead:
        path = [start]
        while path[-1] in ahead and ahead[path[-1]] not in path:
            path.append(ahead[path[-1]])
        if path[-1] not in ahead:  # an empty cell
            chains.setdefault(path[-1], []).append(len(path) - 1)
        else:
            round_from = path.index(ahead[path[-1]])
            circle = frozenset(path[round_from:])
            circles[circle] = circles.get(circle, False) or round_from > 0
    for circle, others in circles.items():
        kind = {1: "stands still", 2: "swap"}.get(len(circle), "circle")
        events[kind] += 1
        events["circle with others behind"] += kind == "circle" and others
    longest = [max(lengths) for lengths in chains.values()]
    tied = any(
        lengths.count(most) > 1 for lengths, most in zip(chains.values(), longest, strict=True)
    )
    events["chain"] += sum(most > 1 for most in longest)
    events["contest"] += len({goal for start, goal in ahead.items() if start != goal}) < sum(
        start != goal for start, goal in ahead.items()
    )
    events["tie"] += tied
    return tied


def play(game: Warehouse, episodes: int, seed: int = 0) -> Episodes:
    """Episodes of the package in all styles, in turn."""
    env, rng = real(game), np.random.default_rng(seed)
    env.np_random = lots = Lots(rng)
    events: Counter = Counter()
    rows = []
    for episode in range(episodes):
        style, delivered = STYLES[episode % len(STYLES)], 0
        env.reset()
        arrange(env, style, rng)
        obs = [env._make_obs(agent) for agent in env.agents]
        row = [{**read(game, env), "obs": np.stack(obs), "reward": np.zeros(game.n_agents)}]
        for time in range(game.max_cycles):
            moves = choose(game, env, style, time, rng)
            words = rng.integers(0, 2, (game.n_agents, game.msg_bits))
            tied, lots.drawn = foresee(env, moves, events), []
            before = [agent.carrying_shelf for agent in env.agents]
            obs, reward, *_ = env.step(
                [[m, *w] for m, w in zip(moves, words, strict=True)] if words.size else moves
            )
            after = [agent.carrying_shelf for agent in env.agents]
            events["lift"] += sum(
                a is None and b is not None for a, b in zip(before, after, strict=True)
            )
            events["lower"] += sum(
                a is not None and b is None for a, b in zip(before, after, strict=True)
            )
            events["delivery"] += len(lots.drawn)
            delivered += len(lots.drawn)
            number = (moves << game.msg_bits) + words @ (1 << np.arange(game.msg_bits)[::-1])
            goals = len(env.goals)
            drawn = (
                (lots.drawn * goals)[:goals]
                if len(lots.drawn) == 1
                else [*lots.drawn, *[0] * goals][:goals]
            )
            row[-1] |= {
                "actions": number.astype(np.int32),
                "lots": np.array(drawn, np.int32),
                "tied": tied,
            }
            row.append(
                {**read(game, env, delivered), "obs": np.stack(obs), "reward": np.array(reward)}
            )
        rows.append(row)

    def joined(name: str, count: int) -> np.ndarray:
        return np.stack([np.stack([row[t][name] for row in rows], -1) for t in range(count)])

    times = game.max_cycles
    return Episodes(
        worlds=WarehouseWorld(*(joined(name, times + 1) for name in WarehouseWorld._fields)),
        actions=np.moveaxis(joined("actions", times), 1, 2),
        lots=joined("lots", times),
        tied=joined("tied", times),
        obs=joined("obs", times + 1),
        reward=joined("reward", times + 1),
        events=events,
    )
