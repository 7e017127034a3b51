"""A strip beneath a picture: what agents think of their actions, and the return they expect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from .draw import COLOURS, FINER, WIDTH, font

MOST = 12  # agents that are shown
ACROSS = 4  # agents side by side
HEIGHT = 64  # points of one agent's cell
FULL = "probabilities"  # preferences whose bars fill the cell at 1


class AgentThoughts(NamedTuple):
    """One agent's thoughts at one instant."""

    name: str
    team: str
    kind: str  # of the preferences: probabilities or utilities
    preferences: np.ndarray | None  # [A]; -inf where an action is illegal
    value: float | None
    action: np.ndarray | None  # number of the chosen action, or its parts


def beneath(
    picture: np.ndarray, agents: Sequence[AgentThoughts], colours: dict[str, str]
) -> np.ndarray:
    """Put the strip beneath a picture; an empty one if nobody thinks."""
    shown = agents[:MOST]
    width = picture.shape[1]
    point = FINER * min(max(width / WIDTH, 0.75), 1.5)
    across = min(max(len(shown), 1), ACROSS)
    rows = -(-len(shown) // across)
    height = round(HEIGHT * point / FINER) * FINER
    strip = Image.new("RGB", (width * FINER, max(height * rows, FINER)), COLOURS["field"])
    pen = ImageDraw.Draw(strip)
    for number, agent in enumerate(shown):
        left = number % across * strip.width / across
        top = number // across * height
        _cell(pen, agent, (left, top, left + strip.width / across, top + height), point, colours)
    pen.line([(0, 0), (strip.width, 0)], fill=COLOURS["faint"], width=FINER)
    return np.concatenate([picture, np.asarray(strip.reduce(FINER))])


def _cell(
    pen: ImageDraw.ImageDraw,
    agent: AgentThoughts,
    box: tuple[float, float, float, float],
    point: float,
    colours: dict[str, str],
) -> None:
    """Draw one agent: its name, its value, and a bar for each action."""
    left, top, right, bottom = box
    margin = 10 * point
    colour = colours.get(agent.team, COLOURS["ink"])
    bold = font(round(11 * point), True)
    plain = font(round(11 * point))
    line = top + 13 * point
    pen.text((left + margin, line), agent.name[:18], font=bold, fill=colour, anchor="lm")
    if agent.value is not None:
        told = f"V {agent.value:.2f}".replace("-", "−")
        pen.text((right - margin, line), told, font=plain, fill=COLOURS["soft"], anchor="rm")
    if agent.preferences is not None:
        area = (left + margin, line + 10 * point, right - margin, bottom - 5 * point)
        _bars(pen, agent, area, colour)
    elif agent.action is not None:
        told = " ".join(f"{part:.2f}" for part in np.ravel(agent.action)[:6]).replace("-", "−")
        pen.text(
            (left + margin, line + 22 * point), told, font=plain, fill=COLOURS["ink"], anchor="lm"
        )


def _bars(
    pen: ImageDraw.ImageDraw,
    agent: AgentThoughts,
    area: tuple[float, float, float, float],
    colour: str,
) -> None:
    """A bar for each action, the chosen one in the team's colour; none where it is illegal."""
    left, top, right, bottom = area
    heights = shares(agent)
    step = (right - left) / len(heights)
    chosen = -1 if agent.action is None else int(np.ravel(agent.action)[0])
    for number, height in enumerate(heights):
        x = left + number * step
        edge = x + max(step * 0.82, 1)
        fill = colour if number == chosen else COLOURS["landmark"]
        pen.line([(x, bottom), (edge, bottom)], fill=COLOURS["faint"], width=FINER)
        if height > 0:
            pen.rectangle((x, bottom - height * (bottom - top), edge, bottom), fill=fill)


def shares(agent: AgentThoughts) -> np.ndarray:
    """Heights of bars from 0 to 1: probabilities as they are, utilities from their least on."""
    preferences = np.asarray(agent.preferences, float)
    legal = np.isfinite(preferences)
    if agent.kind == FULL or not legal.any():
        return np.where(legal, preferences, 0.0)
    low = preferences[legal].min()
    span = preferences[legal].max() - low
    return np.where(legal, 0.05 + 0.95 * (preferences - low) / (span or 1.0), 0.0)
