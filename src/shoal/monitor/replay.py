"""Replays: evaluation episodes as scenes and thoughts, small JSON files that `shoal live` draws."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ..config.config import Config
from ..errors import ShoalError
from ..files import atomic
from ..render import Scene
from ..render.draw import COLOURS, frame, team_colours
from ..render.scene import Disc, Line, Patch, Shape, Text
from ..store.player import Player
from ..store.summary import Result
from ..types import Spec
from .callbacks import Callback, Evaluated, LiveRun
from .film import Camera, Mind, Take

FOLDER = "replays"  # subfolder of a run
FORMAT = 1
LONG_RUN = 100_000  # steps from which on a run records by itself
KEPT = 10  # replays between the first and the last
LONGEST = 1_000  # instants of a replay
WIDEST = 64  # numbers of an observation that are kept
KINDS: dict[type, str] = {Disc: "disc", Line: "line", Patch: "patch", Text: "text"}


def wanted(config: Config) -> int:
    """Episodes to record at each evaluation: none of a game that has no scenes."""
    s = config.settings
    count = s.replays if s.replays >= 0 else int(s.steps >= LONG_RUN)
    if not count or config.hosted or not hasattr(config.game, "scenes"):
        return 0
    try:
        config.game.drawable()
    except ShoalError:
        return 0
    return min(count, s.eval_episodes)


class Replays(Callback):
    """Records episodes at the first, the last, and some evaluations between.

    Its programs take seconds to compile, so that a run does not wait for them: the first evaluation
    is recorded between two calls of the training program, or at the next evaluation.
    """

    def __init__(self, config: Config, count: int):
        s = config.settings
        self.every = s.steps / min(KEPT, s.evaluations + 1)
        self.due = 0.0
        parts = (config.game, config.algorithms, s.eval_episodes, s.greedy)
        self.camera = Camera(*parts, shown=count, thoughts=True)
        self.pool = ThreadPoolExecutor(1)
        self.compiled: Future[None] | None = None
        self.unrecorded: list[Player] = []

    def on_evaluation(self, run: LiveRun, played: Evaluated) -> None:
        s = run.config.settings
        if run.steps < self.due and run.steps < s.steps:
            return
        self.due = (run.steps // self.every + 1) * self.every
        player = run.player()
        self.unrecorded.append(player)
        if self.compiled is None:
            about = (player.learners, s.seed, player.clock)
            self.compiled = self.pool.submit(self.camera.prepare, *about)
        if run.steps:
            self._record(run)

    def on_iteration(self, run: LiveRun, values: dict[str, float]) -> None:
        if self.compiled and self.compiled.done():
            self._record(run)

    def on_end(self, run: LiveRun, result: Result) -> None:
        self._record(run)

    def close(self) -> None:
        self.pool.shutdown(wait=False)  # do not wait for the compiler

    def _record(self, run: LiveRun) -> None:
        """Play and write what is still unrecorded."""
        while self.unrecorded:
            player = self.unrecorded.pop(0)
            assert self.compiled is not None
            self.compiled.result()
            takes = self.camera.shoot(player.learners, run.config.settings.seed, player.clock)
            kinds = {team: one.prefers for team, one in player.algorithms.items()}
            for number, take in enumerate(takes):
                said = replay(take, player.teams, kinds)
                if said:
                    about = {"env": run.config.env, "steps": player.steps, "episode": number}
                    _write(run.path / FOLDER, about | said)


def _write(place: Path, said: dict[str, Any]) -> None:
    place.mkdir(exist_ok=True)
    with atomic(place / f"step-{said['steps']:09d}-{said['episode']}.json") as temporary:
        temporary.write_text(json.dumps(said, separators=(",", ":")))


def replay(take: Take, teams: dict[str, Spec], kinds: dict[str, str]) -> dict[str, Any]:
    """A recorded episode as JSON; empty for a game without scenes.

    Shapes that are equal are kept once: `frames` holds their numbers, by instant."""
    scenes = take.scenes()[:LONGEST]
    if not scenes:
        return {}
    low, high = frame(scenes)
    shapes: dict[str, int] = {}
    frames = [_numbers(scene, shapes) for scene in scenes]
    colours = COLOURS | team_colours(teams)
    return {
        "format": FORMAT,
        "low": _plain(low),
        "high": _plain(high),
        "colours": colours,
        "teams": {team: list(spec.agents) for team, spec in teams.items()},
        "kinds": kinds,
        "shapes": [json.loads(text) for text in shapes],
        "frames": frames,
        "returns": [
            {team: _rounded(x) for team, x in now.items()} for now in take.returns[: len(scenes)]
        ],
        "minds": [
            {team: _mind(mind) for team, mind in now.items()} for now in take.minds[: len(scenes)]
        ],
    }


def _numbers(scene: Scene, shapes: dict[str, int]) -> list[int]:
    """Numbers of a scene's shapes; new ones are added to `shapes`."""
    texts = [json.dumps(_shape(shape), separators=(",", ":")) for shape in scene.shapes]
    return [shapes.setdefault(text, len(shapes)) for text in texts]


def _shape(shape: Shape) -> dict[str, Any]:
    """A shape as JSON, without the fields that have their default."""
    defaults = shape._field_defaults
    fields = {
        name: _plain(value)
        for name, value in shape._asdict().items()
        if name not in defaults or value != defaults[name]
    }
    return {"kind": KINDS[type(shape)], **fields}


def _mind(mind: Mind) -> dict[str, Any]:
    """A team's mind as JSON; null stands for what is illegal or not there."""
    parts = {
        "observations": mind.observations[:, :WIDEST],
        "preferences": mind.preferences,
        "values": mind.values,
        "actions": mind.actions,
    }
    plain = {name: _plain(part) for name, part in parts.items() if part is not None}
    return plain | {"alive": mind.alive.astype(int).tolist()}


def _plain(value: Any) -> Any:
    """A value as JSON, numbers to four digits."""
    if isinstance(value, str | bool):
        return value
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Sequence):
        return [_plain(part) for part in value]
    return _rounded(value)


def _rounded(value: Any) -> float | int | None:
    number = float(f"{float(value):.4g}")
    if not np.isfinite(number):
        return None
    return int(number) if number == int(number) else number
