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
from functools import partial
from itertools import repeat, zip_longest
from typing import Any, NamedTuple

import jax
import numpy as np
from PIL import Image

from ..algorithms.base import Algorithm
from ..config.config import Config
from ..engine.episodes import DEFAULT
from ..engine.evaluate import Evaluator
from ..engine.host_evaluate import HostEvaluator
from ..engine.thoughts import Thoughts, think
from ..envs.host.arena import Arena, Picture
from ..envs.host.match import Hosted
from ..render import Scene, thoughts, video
from ..render.draw import team_colours
from ..store.metrics_file import FILM
from ..types import Clock, Spec, View
from .callbacks import Callback, Evaluated, LiveRun

FOLDER = "videos"  # subfolder of a run
# frames per second; more if an episode would last longer than the seconds below
FPS = 10
LONGEST = 30
# TensorBoard's copy: largest width, and most frames
THUMB = 320
THUMBS = 100


class Mind(NamedTuple):
    """What a team sees, thinks and does at one instant."""

    observations: np.ndarray  # [N,F]
    alive: np.ndarray  # [N]
    preferences: np.ndarray | None  # [N,A], as in `Thoughts`
    values: np.ndarray | None  # [N]
    actions: np.ndarray | None  # [N] or [N,A]; None at the last instant


@dataclass(frozen=True)
class Take:
    """One filmed episode."""

    pictures: Callable[[], Iterator[np.ndarray]]  # frames [H,W,3], one per instant
    # at each instant: mean return per agent so far, by team
    returns: Sequence[dict[str, float]]
    # at each instant, by team; empty unless the camera was asked for thoughts
    minds: Sequence[dict[str, Mind]] = ()
    # the scenes, where Shoal draws the game itself
    scenes: Callable[[], list[Scene]] = list

    @property
    def steps(self) -> int:
        return len(self.returns) - 1


class Camera:
    """Films the first `shown` episodes of an evaluation."""

    def __init__(
        self,
        env: Any,
        algorithms: dict[str, Algorithm],
        episodes: int,
        greedy: bool,
        shown: int,
        thoughts: bool = False,
    ):
        self.env = env
        self.shown = shown
        self.thoughts = thoughts
        self.evaluator = Evaluator(env, algorithms, episodes, greedy)
        self._think: Any = jax.jit(partial(think, algorithms))

    def prepare(self, learners: dict, seed: int, clock: Clock) -> None:
        """Compile all that `shoot` calls, for arguments like these; nothing is played."""
        play = self.evaluator.compile_instants(learners, seed, clock).play
        if self.thoughts:
            self._think = self._think.lower(learners, clock, play.views, play.carries).compile()

    def shoot(self, learners: dict, seed: int, clock: Clock) -> list[Take]:
        """Play the episodes; frames are drawn when they are asked for."""
        states: list[Any] = []
        actions: list[Any] = []
        over: list[Any] = []
        earned: list[Any] = []
        minds: list[Any] = []
        for tally, did in self.evaluator.instants(learners, seed, clock):
            states.append(jax.device_get(tally.play.game))
            actions.append(jax.device_get(did))
            over.append(np.asarray(tally.over))
            earned.append(jax.device_get(tally.returns))
            if self.thoughts:
                play = tally.play
                found = self._think(learners, clock, play.views, play.carries)
                minds.append(jax.device_get((play.views, found)))
        takes = []
        for game in range(self.shown):
            end = int((~np.array(over)[:, game]).sum())
            drawn = (states[:end], actions[:end], game)
            so_far = [
                {team: float(rows[game].mean()) for team, rows in at.items()} for at in earned[:end]
            ]
            heads = [
                _minds(views, found, did, game)
                for (views, found), did in zip(minds[:end], [*actions[1:end], {}], strict=False)
            ]
            takes.append(
                Take(
                    partial(self.env.pictures, *drawn),
                    so_far,
                    heads,
                    partial(getattr(self.env, "scenes", _no_scenes), *drawn),
                )
            )
        return takes

    def close(self) -> None:
        """Do nothing: a compiled game has no processes."""


def _no_scenes(*_: Any) -> list[Scene]:
    return []


def _minds(
    views: dict[str, View], found: dict[str, Thoughts], did: dict[str, Any], game: int
) -> dict[str, Mind]:
    """Every team's mind in one game; `did` are the actions that follow, if any."""
    return {
        team: Mind(
            np.asarray(view.obs)[game],
            np.asarray(view.alive)[game],
            None if found[team].preferences is None else np.asarray(found[team].preferences)[game],
            None if found[team].values is None else np.asarray(found[team].values)[game],
            np.asarray(did[team])[game] if team in did else None,
        )
        for team, view in views.items()
    }


class HostCamera(HostEvaluator):
    """`Camera` for a game on the host, which draws a frame at every instant."""

    def __init__(
        self,
        env: Hosted,
        algorithms: dict[str, Algorithm],
        greedy: bool,
        shown: int,
        thoughts: bool = False,
    ):
        settings = replace(DEFAULT, patience=env.patience)
        super().__init__(
            replace(env, draws=True), algorithms, shown, greedy, int(env.watched), settings
        )
        self.reels: dict[tuple[int, int], list[Picture]] = {}
        self.earned: dict[tuple[int, int], list[dict[str, float]]] = {}
        self.minds: dict[tuple[int, int], list[dict[str, Mind]]] = {}
        self.shown_now: list[tuple[int, int]] = []  # episodes of which a frame was just drawn
        self.learners: dict[str, Any] = {}
        if thoughts:
            self._think = jax.jit(partial(think, algorithms))
            self._decided = self._decide
            self._decide = self._think_and_decide

    def shoot(self, learners: dict, seed: int, clock: Clock) -> list[Take]:
        """Play and draw the episodes."""
        self.reels = {}
        self.earned = {}
        self.minds = {}
        self.learners = learners
        with _undisturbed():
            self(learners, seed, clock)
        # order of an evaluation: every game's first episode, then every second one
        places = sorted(self.reels)
        return [
            Take(_Unpacking(self.reels[at]), self.earned[at], self.minds.get(at, ()))
            for at in places
        ]

    def _think_and_decide(
        self, tree: Any, leaves: Any, clock: Clock, views: Any, carries: Any, seed: Any, step: Any
    ) -> Any:
        """Decide, and keep what every team thought."""
        found = jax.device_get(self._think(self.learners, clock, views, carries))
        actions, carries = self._decided(tree, leaves, clock, views, carries, seed, step)
        did = jax.device_get(actions)
        for at in self.shown_now:
            self.minds[at].append(_minds(views, found, did, at[1]))
        return actions, carries

    def _look(
        self, arena: Arena, row: np.ndarray, going: np.ndarray, rows: dict[str, np.ndarray]
    ) -> None:
        pictures = arena.render(going)
        self.shown_now = []
        for game in np.flatnonzero(going).tolist():
            at = (int(row[game]), game)
            if arena.arrays["first"][game] or at not in self.reels:  # a broken episode begins anew
                self.reels[at] = []
                self.earned[at] = []
                self.minds[at] = []
            self.shown_now.append(at)
            self.reels[at].append(pictures[game])
            self.earned[at].append({team: float(own[at].mean()) for team, own in rows.items()})


@dataclass(frozen=True)
class _Unpacking:
    reel: list[Picture]

    def __call__(self) -> Iterator[np.ndarray]:
        for shape, packed in self.reel:
            yield np.frombuffer(zlib.decompress(base64.b64decode(packed)), np.uint8).reshape(shape)


def camera(
    env: Any,
    algorithms: dict[str, Algorithm],
    episodes: int,
    greedy: bool,
    shown: int = 0,
    thoughts: bool = False,
) -> Camera | HostCamera:
    """A camera that films `shown` of the episodes, or all; refuses a game that cannot be drawn."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame needs no screen
    if isinstance(env, Hosted):
        made = HostCamera(env, algorithms, greedy, shown or episodes, thoughts)
        with _undisturbed():
            made.env.try_out()
        return made
    env.drawable()
    return Camera(env, algorithms, episodes, greedy, shown or episodes, thoughts)


def pace(takes: Sequence[Take]) -> int:
    """Frames per second: more for long episodes."""
    return max(FPS, -(-max(take.steps for take in takes) // LONGEST))


def thoughts_of(
    teams: dict[str, Spec], kinds: dict[str, str], minds: dict[str, Mind]
) -> list[thoughts.AgentThoughts]:
    """The thoughts of every living agent; `kinds` is the meaning of each team's preferences."""
    heads = []
    for team, mind in minds.items():
        for i, agent in enumerate(teams[team].agents):
            if not mind.alive[i]:
                continue
            preferences = None if mind.preferences is None else mind.preferences[i]
            value = None if mind.values is None else float(mind.values[i])
            action = None if mind.actions is None else np.asarray(mind.actions[i])
            heads.append(
                thoughts.AgentThoughts(agent, team, kinds.get(team, ""), preferences, value, action)
            )
    return heads


def reel(
    takes: Sequence[Take], title: str, env: Any, fps: int, kinds: dict[str, str] | None = None
) -> Iterator[np.ndarray]:
    """All frames of a video: every instant with its caption, and the end of each episode for a
    second.

    Where a camera was asked for thoughts, they stand beneath; `kinds` is as in `thoughts_of`."""
    kinds = kinds or {}
    colours = team_colours(env.teams) if getattr(env, "coloured", False) else {}
    for number, take in enumerate(takes, 1):
        which = f"episode {number}, " if len(takes) > 1 else ""
        frame = None
        shown = zip_longest(take.pictures(), take.returns, take.minds)
        for step, (picture, returns, minds) in enumerate(shown):
            frame = video.captioned(
                video.fitted(picture), title, f"{which}step {step}", returns, colours
            )
            if take.minds:
                heads = thoughts_of(env.teams, kinds, minds or take.minds[-1])
                frame = thoughts.beneath(frame, heads, colours)
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
