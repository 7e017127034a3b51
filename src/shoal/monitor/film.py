"""Videos of whole episodes, played as in an evaluation and drawn.

A camera plays exactly the episodes that an evaluation with the same seed and number of episodes
plays. Compiled games are drawn afterwards, from their states; games on the host draw themselves
while they are played.
"""

from __future__ import annotations

import base64
import contextlib
import os
import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import jax
import numpy as np
from PIL import Image

from ..algorithms.base import Algorithm
from ..config.config import Config
from ..engine.episodes import DEFAULT
from ..engine.evaluate import Evaluator
from ..engine.host_evaluate import HostEvaluator
from ..envs.host.arena import Arena, Picture
from ..envs.host.match import Hosted
from ..render import video
from ..render.draw import team_colours
from ..store.metrics_file import FILM
from ..types import Clock
from .callbacks import Callback, Evaluated, LiveRun

FOLDER = "videos"  # subfolder of a run
# frames per second; more if an episode would last longer than the seconds below
FPS = 10
LONGEST = 30
# TensorBoard's copy: largest width, and most frames
THUMB = 320
THUMBS = 100


@dataclass(frozen=True)
class Take:
    """One filmed episode."""

    pictures: Callable[[], Iterator[np.ndarray]]  # frames [H,W,3], one per instant
    # at each instant: mean return per agent so far, by team
    returns: Sequence[dict[str, float]]

    @property
    def steps(self) -> int:
        return len(self.returns) - 1


class Camera:
    """Films the first `shown` episodes of an evaluation."""

    def __init__(
        self, env: Any, algorithms: dict[str, Algorithm], episodes: int, greedy: bool, shown: int
    ):
        self.env = env
        self.shown = shown
        self.evaluator = Evaluator(env, algorithms, episodes, greedy)

    def shoot(self, learners: dict, seed: int, clock: Clock) -> list[Take]:
        """Play the episodes; frames are drawn when they are asked for."""
        instants = list(self.evaluator.instants(learners, seed, clock))
        states = [jax.device_get(tally.play.game) for tally, _ in instants]
        actions = [jax.device_get(did) for _, did in instants]
        over = np.array([tally.over for tally, _ in instants])  # [T,B]
        earned = [jax.device_get(tally.returns) for tally, _ in instants]
        takes = []
        for game in range(self.shown):
            end = int((~over[:, game]).sum())
            draw = _Drawing(self.env, states[:end], actions[:end], game)
            so_far = [
                {team: float(rows[game].mean()) for team, rows in at.items()} for at in earned[:end]
            ]
            takes.append(Take(draw, so_far))
        return takes

    def close(self) -> None:
        """Do nothing: a compiled game has no processes."""


@dataclass(frozen=True)
class _Drawing:
    env: Any
    states: list
    actions: list
    game: int

    def __call__(self) -> Iterator[np.ndarray]:
        return self.env.pictures(self.states, self.actions, self.game)


class HostCamera(HostEvaluator):
    """`Camera` for a game on the host, which draws a frame at every instant."""

    def __init__(self, env: Hosted, algorithms: dict[str, Algorithm], greedy: bool, shown: int):
        settings = replace(DEFAULT, patience=env.patience)
        super().__init__(
            replace(env, draws=True), algorithms, shown, greedy, int(env.watched), settings
        )
        self.reels: dict[tuple[int, int], list[Picture]] = {}
        self.earned: dict[tuple[int, int], list[dict[str, float]]] = {}

    def shoot(self, learners: dict, seed: int, clock: Clock) -> list[Take]:
        """Play and draw the episodes."""
        self.reels = {}
        self.earned = {}
        with _undisturbed():
            self(learners, seed, clock)
        # order of an evaluation: every game's first episode, then every second one
        places = sorted(self.reels)
        return [Take(_Unpacking(self.reels[at]), self.earned[at]) for at in places]

    def _look(
        self, arena: Arena, row: np.ndarray, going: np.ndarray, rows: dict[str, np.ndarray]
    ) -> None:
        pictures = arena.render(going)
        for game in np.flatnonzero(going).tolist():
            at = (int(row[game]), game)
            if arena.arrays["first"][game] or at not in self.reels:  # a broken episode begins anew
                self.reels[at] = []
                self.earned[at] = []
            self.reels[at].append(pictures[game])
            self.earned[at].append({team: float(own[at].mean()) for team, own in rows.items()})


@dataclass(frozen=True)
class _Unpacking:
    reel: list[Picture]

    def __call__(self) -> Iterator[np.ndarray]:
        for shape, packed in self.reel:
            yield np.frombuffer(zlib.decompress(base64.b64decode(packed)), np.uint8).reshape(shape)


def camera(
    env: Any, algorithms: dict[str, Algorithm], episodes: int, greedy: bool, shown: int = 0
) -> Camera | HostCamera:
    """A camera that films `shown` of the episodes, or all; refuses a game that cannot be drawn."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame needs no screen
    if isinstance(env, Hosted):
        made = HostCamera(env, algorithms, greedy, shown or episodes)
        with _undisturbed():
            made.env.try_out()
        return made
    env.drawable()
    return Camera(env, algorithms, episodes, greedy, shown or episodes)


def pace(takes: Sequence[Take]) -> int:
    """Frames per second: more for long episodes."""
    return max(FPS, -(-max(take.steps for take in takes) // LONGEST))


def reel(takes: Sequence[Take], title: str, env: Any, fps: int) -> Iterator[np.ndarray]:
    """All frames of a video: every instant with its caption, and the end of each episode for a
    second."""
    colours = team_colours(env.teams) if getattr(env, "coloured", False) else {}
    for number, take in enumerate(takes, 1):
        which = f"episode {number}, " if len(takes) > 1 else ""
        frame = None
        for step, (picture, returns) in enumerate(zip(take.pictures(), take.returns, strict=True)):
            frame = video.captioned(
                video.fitted(picture), title, f"{which}step {step}", returns, colours
            )
            yield frame
        if frame is not None:
            yield from repeat(frame, fps)


class Filming(Callback):
    """Films episodes at every evaluation, into the run's folder and, smaller, into TensorBoard."""

    def __init__(self, config: Config):
        s = config.settings
        shown = min(s.film, s.eval_episodes)
        self.camera = camera(config.game, config.algorithms, s.eval_episodes, s.greedy, shown)

    def on_evaluation(self, run: LiveRun, played: Evaluated) -> None:
        c = run.config
        s = run.config.settings
        player = run.player()
        takes = self.camera.shoot(player.learners, s.seed, player.clock)
        fps = pace(takes)
        title = f"{c.label} on {c.env}, {run.steps:,} steps"
        total = sum(take.steps + 1 + fps for take in takes)
        thumbs = Thumbs(reel(takes, title, c.game, fps), -(-total // THUMBS))
        video.save(run.path / FOLDER / f"step-{run.steps:09d}{video.best_format()}", thumbs, fps)
        run.log.video(FILM, np.stack(thumbs.kept), max(fps // thumbs.every, 1), run.steps)

    def close(self) -> None:
        self.camera.close()


class Thumbs:
    """Passes frames through, and keeps a smaller copy of every n-th one."""

    def __init__(self, frames: Iterator[np.ndarray], every: int):
        self.frames = frames
        self.every = every
        self.kept: list[np.ndarray] = []

    def __iter__(self) -> Iterator[np.ndarray]:
        size = None
        for i, frame in enumerate(self.frames):
            if i % self.every == 0:
                times = min(1.0, THUMB / frame.shape[1])
                size = size or (round(frame.shape[1] * times), round(frame.shape[0] * times))
                self.kept.append(
                    np.asarray(Image.fromarray(frame).resize(size, Image.Resampling.BOX))
                )
            yield frame


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Restore the global random state, which environments in this process may use."""
    ours = random.getstate()
    numpys = np.random.get_state()
    try:
        yield
    finally:
        random.setstate(ours)
        np.random.set_state(numpys)
