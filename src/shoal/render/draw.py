"""Draws the scenes of an episode with Pillow, oversampled for smooth edges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont

from .scene import XY, Disc, Line, Patch, Scene, Shape, Text

FINER = 3  # oversampling: how many times larger the canvas is than the picture
WIDTH = 600  # points across a picture, the unit of text sizes and line widths
TRAIL = 14  # length of a trail, in instants
TEAMS = ("#2f6fde", "#e4572e", "#2a9d6f", "#9b5de5", "#e0a100", "#00a6c7", "#d6408b", "#7a6a53")
COLOURS = {
    "ground": "#fbfaf6",
    "field": "#ffffff",
    "ink": "#22262b",
    "soft": "#7b828a",
    "faint": "#d9d7cf",
    "landmark": "#b4b0a6",
    "obstacle": "#5b5f66",
    "food": "#e0a100",
    "forest": "#5aa469",
    "goal": "#2a9d6f",
    "bad": "#c8372d",
}


def team_colours(teams: Iterable[str]) -> dict[str, str]:
    """Assign a colour to each team; the last is blue, since adversaries come first."""
    names = list(teams)[::-1]
    return {team: TEAMS[i % len(TEAMS)] for i, team in enumerate(names)}


def draw(scenes: Sequence[Scene], teams: Iterable[str], width: int = WIDTH) -> Iterator[np.ndarray]:
    """Draw each instant of an episode as `[H,W,3]`, all showing the same part of the world."""
    low, high = frame(scenes)
    colours = COLOURS | team_colours(teams)
    for now, scene in enumerate(scenes):
        canvas = Canvas(low, high, width, colours)
        canvas.scene(scene, scenes[max(now - TRAIL, 0) : now])
        yield canvas.picture()


@cache
def font(size: int, bold: bool = False) -> Any:
    """A font from matplotlib's data."""
    from matplotlib import get_data_path

    name = f"DejaVuSans{'-Bold' if bold else ''}.ttf"
    return ImageFont.truetype(str(Path(get_data_path()) / "fonts" / "ttf" / name), size)


class Canvas:
    """A picture while it is drawn."""

    def __init__(self, low: np.ndarray, high: np.ndarray, width: int, colours: dict[str, str]):
        self.low = low
        self.high = high
        self.colours = colours
        self.point = width * FINER / WIDTH
        self.scale = width * FINER / (high[0] - low[0])
        height = max(round(width * float((high[1] - low[1]) / (high[0] - low[0]))), 1)
        self.image = Image.new("RGB", (width * FINER, height * FINER), colours["ground"])
        self.pen = ImageDraw.Draw(self.image, "RGBA")  # RGBA mode blends transparent colours

    def picture(self) -> np.ndarray:
        return np.asarray(self.image.reduce(FINER))

    def scene(self, scene: Scene, before: Sequence[Scene]) -> None:
        """Draw a scene in layers: things, trails, agents, outlines of things, speech bubbles."""
        people = _people(scene)
        for shape in scene.shapes:
            if not getattr(shape, "name", ""):
                self.shape(shape)
        for name, one in people.items():
            self.trail(one, [past[name] for past in map(_people, before) if name in past])
        for one in people.values():
            self.shape(one)
        for shape in scene.shapes:
            if isinstance(shape, Disc) and not shape.name and not shape.hollow:
                self.edge(shape)
        for one in people.values():
            self.bubble(one)

    def shape(self, shape: Shape) -> None:
        BRUSHES[type(shape)](self, shape)

    def place(self, at: XY) -> tuple[float, float]:
        """Canvas coordinates of a point of the world."""
        return (at[0] - self.low[0]) * self.scale, (self.high[1] - at[1]) * self.scale

    def colour(self, name: str, alpha: float = 1.0) -> tuple[int, ...]:
        rgb = ImageColor.getrgb(self.colours.get(name, name))[:3]
        return (*rgb, round(255 * min(max(alpha, 0.0), 1.0)))

    def disc(self, disc: Disc) -> None:
        (x, y) = self.place(disc.at)
        r = disc.radius * self.scale
        fill = self.colour(disc.colour, disc.alpha)
        if disc.hollow:
            self.pen.ellipse(_square(x, y, r), outline=fill, width=round(2.5 * self.point))
        elif disc.name:
            self.pen.ellipse(
                _square(x + self.point, y + 2.5 * self.point, r),
                fill=(0, 0, 0, round(45 * disc.alpha)),
            )
            self.pen.ellipse(_square(x, y, r), fill=self.colour("field", disc.alpha))
            self.pen.ellipse(_square(x, y, max(r - 1.5 * self.point, 1)), fill=fill)
        else:
            self.pen.ellipse(_square(x, y, r), fill=fill)
        if disc.label:
            self.tag(disc, x, y, r)

    def edge(self, disc: Disc) -> None:
        """Outline a disc, so that it stays visible under an agent."""
        (x, y) = self.place(disc.at)
        fill = self.colour("ink", 0.3 * disc.alpha)
        self.pen.ellipse(
            _square(x, y, disc.radius * self.scale), outline=fill, width=round(1.5 * self.point)
        )

    def tag(self, disc: Disc, x: float, y: float, r: float) -> None:
        """Write the label of a disc, inside if it fits, else below."""
        size = round(min(max(r * 0.95, 10 * self.point), 18 * self.point))
        letters = font(size, bold=True)
        if letters.getlength(disc.label) < 1.7 * r and not disc.hollow:
            self.pen.text((x, y), disc.label, font=letters, fill=self.colour("field"), anchor="mm")
        else:
            below = y + r + 9 * self.point
            self.pen.text(
                (x, below),
                disc.label,
                font=font(round(11 * self.point)),
                fill=self.colour("soft"),
                anchor="mm",
            )

    def trail(self, one: Disc, before: Sequence[Disc]) -> None:
        """Draw where an agent has been, fading with age."""
        places = np.array([self.place(past.at) for past in (*before, one)])
        thick = max(one.radius * self.scale * 0.3, 1.0)
        corner = np.floor(places.min(0) - thick - 1).astype(int)
        size = np.ceil(places.max(0) + thick + 1).astype(int) - corner
        veil = Image.new("L", tuple(size.tolist()))
        pen = ImageDraw.Draw(veil)
        places = places - corner
        for i, (a, b) in enumerate(pairwise(places)):
            share = 1 - (len(places) - 2 - i) / TRAIL  # the newest, drawn last, is most opaque
            depth = round(105 * share * one.alpha)
            r = thick * (0.35 + 0.65 * share)
            pen.line([tuple(a), tuple(b)], fill=depth, width=max(round(2 * r), 1))
            pen.ellipse(_square(b[0], b[1], r), fill=depth)
        self.image.paste(self.colour(one.colour)[:3], tuple(corner.tolist()), veil)

    def bubble(self, disc: Disc) -> None:
        """Draw an agent's speech bubble beside it, inside the picture."""
        if not disc.says:
            return
        letters = font(round(14 * self.point), bold=True)
        (x, y) = self.place(disc.at)
        r = disc.radius * self.scale
        p = self.point
        w = letters.getlength(disc.says) + 14 * p
        h = 24 * p
        left = min(max(x + 0.6 * r + 4 * p, 2 * p), self.image.width - w - 2 * p)
        top = min(max(y - r - h - 4 * p, 2 * p), self.image.height - h - 2 * p)
        edge = self.colour(disc.colour)
        paper = self.colour("field")
        foot = [
            (left + 5 * p, top + h - 6 * p),
            (left + 17 * p, top + h - 1.5 * p),
            (x + 0.55 * r, y - 0.75 * r),
        ]
        self.pen.polygon(foot, fill=edge)
        self.pen.rounded_rectangle(
            (left, top, left + w, top + h), 8 * p, fill=paper, outline=edge, width=round(1.8 * p)
        )
        self.pen.text(
            (left + w / 2, top + h / 2),
            disc.says,
            font=letters,
            fill=self.colour("ink"),
            anchor="mm",
        )

    def line(self, line: Line) -> None:
        places = [self.place(point) for point in line.points]
        fill = self.colour(line.colour, line.alpha)
        width = max(round(line.width * self.point), 1)
        for a, b in pairwise(places):
            for start, end in _dashes(a, b, 6 * self.point) if line.dashed else [(a, b)]:
                self.pen.line([start, end], fill=fill, width=width)

    def patch(self, patch: Patch) -> None:
        (left, bottom) = self.place(patch.low)
        (right, top) = self.place(patch.high)
        fill = self.colour(patch.colour, patch.alpha)
        round_by = 6 * self.point
        style: dict[str, Any] = (
            {"outline": fill, "width": round(2 * self.point)} if patch.hollow else {"fill": fill}
        )
        self.pen.rounded_rectangle((left, top, right, bottom), round_by, **style)

    def text(self, text: Text) -> None:
        letters = font(round(text.size * self.point), text.bold)
        self.pen.text(
            self.place(text.at), text.text, font=letters, fill=self.colour(text.colour), anchor="mm"
        )


BRUSHES: dict[type, Any] = {
    Disc: Canvas.disc,
    Line: Canvas.line,
    Patch: Canvas.patch,
    Text: Canvas.text,
}


def frame(scenes: Sequence[Scene]) -> tuple[np.ndarray, np.ndarray]:
    """Corners of the first scene, extended so that every agent is inside at every instant."""
    low = np.array(scenes[0].low, float)
    high = np.array(scenes[0].high, float)
    centre = (low + high) / 2
    half = (high - low) / 2
    people = [one for scene in scenes for one in _people(scene).values()]
    reach = [(np.abs(np.array(one.at) - centre) + 1.5 * one.radius) / half for one in people]
    grown = half * max(1.0, float(np.max(reach, initial=1.0)))
    return centre - grown, centre + grown


def _square(x: float, y: float, r: float) -> tuple[float, float, float, float]:
    return x - r, y - r, x + r, y + r


def _people(scene: Scene) -> dict[str, Disc]:
    """The agents of a scene, by name."""
    return {shape.name: shape for shape in scene.shapes if isinstance(shape, Disc) and shape.name}


def _dashes(
    a: XY, b: XY, length: float
) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """Split the line between two points into dashes of this length."""
    start = np.array(a)
    step = np.array(b) - np.array(a)
    pieces = max(int(np.hypot(*step) / length), 1)
    for i in range(0, pieces, 2):
        yield tuple(start + step * i / pieces), tuple(start + step * (i + 1) / pieces)
