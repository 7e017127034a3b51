"""Pictures of JAX games of other packages.

Shoal draws the games whose state holds positions it can read; else the package's own viewer draws.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import ShoalError
from .draw import draw
from .scene import Disc, Line, Patch, Scene, Shape

Pictures = Callable[[Any, Sequence[Any]], Iterator[np.ndarray]]  # (game, worlds) -> pictures
Scenes = Callable[[Any, Sequence[Any]], list[Scene]]  # (game, worlds) -> scenes


def particles(game: Any, worlds: Sequence[Any]) -> list[Scene]:
    """Scenes of JaxMARL's MPE; its states list agents before landmarks."""
    env = game.env
    sides = {agent: team for team, agents in game.lineup.items() for agent in agents}

    def scene(world: Any) -> Scene:
        bodies = list(zip(world.p_pos, np.broadcast_to(env.rad, len(world.p_pos)), strict=True))
        arena = [Patch((-1, -1), (1, 1), "field"), Patch((-1, -1), (1, 1), hollow=True)]
        things: list[Shape] = [Disc(at, float(size)) for at, size in bodies[len(env.agents) :]]
        people = [
            Disc(at, float(size), sides[agent], agent.rpartition("_")[2], agent)
            for agent, (at, size) in zip(env.agents, bodies, strict=False)
        ]
        return Scene([*arena, *things, *people])

    return [scene(world) for world in worlds]


def battle(game: Any, worlds: Sequence[Any]) -> list[Scene]:
    """Scenes of JaxMARL's SMAX: living units, allies before enemies, each below a health bar."""
    env = getattr(game.env, "_env", game.env)
    allies = env.num_allies
    full = np.asarray(env.unit_type_health)
    width = float(env.map_width)
    height = float(env.map_height)
    ours = next(iter(game.teams))
    theirs = next((team for team in game.teams if team != ours), "bad")

    def scene(world: Any) -> Scene:
        units = getattr(world, "state", world)
        shapes: list[Shape] = [
            Patch((0, 0), (width, height), "field"),
            Patch((0, 0), (width, height), hollow=True),
        ]
        for i in np.flatnonzero(units.unit_alive).tolist():
            (x, y) = units.unit_positions[i]
            kind = int(units.unit_types[i])
            left = float(units.unit_health[i] / full[kind])
            up = y + 0.9
            side, number = (ours, i) if i < allies else (theirs, i - allies)
            shapes.append(Disc((x, y), 0.55, side, str(number), f"unit {i}"))
            shapes += [
                Line([(x - 0.6, up), (x + 0.6, up)], "faint", 3),
                Line([(x - 0.6, up), (x - 0.6 + 1.2 * left, up)], "goal", 3),
            ]
        return Scene(shapes, (-1, -1), (width + 1, height + 1))

    return [scene(world) for world in worlds]


def gymnax(game: Any, worlds: Sequence[Any]) -> Iterator[np.ndarray]:
    """Draw with gymnax's own visualizer, which uses matplotlib."""
    with _headless():
        from gymnax.visualize import Visualizer

        film = Visualizer(game.env, game.params, list(worlds))
        film.init()
    if not hasattr(film, "im"):
        raise ShoalError(f"{game.name} cannot be drawn: gymnax has no picture of it")
    for frame in range(len(worlds)):
        film.update(frame)
        yield _taken(film.fig)


def jumanji(game: Any, worlds: Sequence[Any]) -> Iterator[np.ndarray]:
    """Draw with the environment's own viewer, which is made to return its picture, not show it."""
    with _headless():
        viewer = game.env._viewer
        viewer._display = viewer._display_rgb_array
        for world in worlds:
            yield np.array(viewer.render(world))[..., :3]


def painter(game: Any, world: Any) -> Pictures | None:
    """The function that draws such worlds, or None."""
    if hasattr(game, "lineup"):
        return _drawn if teller(game, world) else None
    if hasattr(game, "params"):
        return gymnax
    return jumanji if hasattr(getattr(game.env, "_viewer", None), "_display_rgb_array") else None


def teller(game: Any, world: Any) -> Scenes | None:
    """The function that makes scenes of such worlds, or None."""
    if not hasattr(game, "lineup"):
        return None
    kinds = {"p_pos": particles, "unit_positions": battle}
    parts = getattr(world, "state", world)
    return next((kind for part, kind in kinds.items() if hasattr(parts, part)), None)


def _drawn(game: Any, worlds: Sequence[Any]) -> Iterator[np.ndarray]:
    tell = teller(game, worlds[0])
    assert tell, "its painter is this one"
    return draw(tell(game, worlds), game.teams)


@contextlib.contextmanager
def _headless() -> Iterator[None]:
    """Use matplotlib without a screen, and silence what packages print."""
    import matplotlib

    matplotlib.use("Agg")
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def _taken(figure: Any) -> np.ndarray:
    figure.canvas.draw()
    return np.array(figure.canvas.buffer_rgba())[..., :3]
