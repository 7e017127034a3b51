"""Badly behaved environments: each is told in one sentence which rule it breaks, in training and by
check-env."""

from __future__ import annotations

import re
from collections.abc import Callable
from tempfile import TemporaryFile
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from shoal.envs.adapters import AdapterOptions, adapt
from shoal.envs.adapters.pettingzoo import frame
from shoal.envs.check import check
from shoal.envs.host.faults import TooManyFaults
from shoal.envs.host.match import Broken, Hosted, Match
from shoal.envs.host.shared import shared
from shoal.envs.host.table import Table
from shoal.errors import ShoalError

LENGTH = 5
IMAGE = spaces.Box(0, 255, (8, 8, 3), np.uint8)


class Well:
    """Two agents at once, as PettingZoo has it, without inheriting from anything."""

    possible_agents: Any = ["a_0", "a_1"]
    space: Any = spaces.Box(-1, 1, (2,), np.float32)
    shown: Any = np.zeros(2, np.float32)
    later: Any = None  # shown at the third step

    def observation_space(self, agent):
        return self.space

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.taken = list(self.possible_agents), 0
        return self.seen(), {agent: {} for agent in self.agents}

    def seen(self):
        now = self.later if self.later is not None and self.taken == 3 else self.shown
        return dict.fromkeys(self.agents, now)

    def step(self, actions):
        self.taken += 1
        told, over = self.agents, self.taken >= LENGTH
        obs = self.seen()
        self.agents = [] if over else told
        return (
            obs,
            *(dict.fromkeys(told, value) for value in (1.0, over, False)),
            {agent: {} for agent in told},
        )

    def close(self):
        pass


class Alone(gymnasium.Env):
    """One agent, as Gymnasium has it."""

    observation_space: Any = spaces.Box(-1, 1, (2,), np.float32)
    action_space: Any = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.taken = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.taken += 1
        return np.zeros(2, np.float32), 1.0, self.taken >= LENGTH, False, {}


def changed(**parts: Any) -> Callable[[], Any]:
    """One whose attributes are these."""
    return lambda: type("Changed", (Well,), parts)()


def told(change: Callable[[Any, list], Any]) -> Callable[[], Any]:
    """One whose steps answer differently."""

    def step(self, actions):
        answer = list(Well.step(self, actions))
        change(self, answer)
        return tuple(answer)

    return changed(step=step)


def masked(*mask: float) -> Callable[[], Any]:
    return told(
        lambda env, answer: answer.__setitem__(
            4, {agent: {"action_mask": mask} for agent in answer[0]}
        )
    )


def alone(**parts: Any) -> Callable[[], Any]:
    return lambda: type("Changed", (Alone,), parts)()


def gone(env: Any) -> None:
    """Nobody is listed."""
    env.agents = None


def reset_then(change: Callable[[Any], None]) -> Callable[[], Any]:
    def reset(self, seed=None, options=None):
        answer = Well.reset(self)
        change(self)
        return answer

    return changed(reset=reset)


class Closeless:
    """A Gymnasium environment, but for its end."""

    observation_space, action_space = Alone.observation_space, Alone.action_space
    reset, step = Alone.reset, Alone.step


class Unannounced:
    """Nobody says who may play, or who plays before `reset`."""

    observation_space, action_space, step, seen, close = (
        getattr(Well, name)
        for name in ("observation_space", "action_space", "step", "seen", "close")
    )

    def reset(self, seed=None, options=None):
        return {}, {}


def swapped() -> spaces.Box:
    """A space whose bounds were changed after it was made."""
    box = spaces.Box(-1.0, 1.0, (2,))
    box.low, box.high = box.high, box.low
    return box


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    # before anything is played
    "no possible_agents": (Unannounced, "an environment of PettingZoo has possible_agents"),
    "a method": (
        changed(possible_agents=lambda self: ["a_0"]),
        "a list of all who may ever play, .*a function",
    ),
    "nobody ever": (
        changed(possible_agents=[]),
        r"PettingZoo's ParallelEnv has"
        r" possible_agents.*\[\]",
    ),
    "twice": (changed(possible_agents=["a_0", "a_0"]), "possible_agents names 'a_0' twice"),
    "half a character": (
        changed(possible_agents=["\udc80", "b"]),
        "possible_agents names .* no text that a file can hold",
    ),
    "alike": (changed(possible_agents=["1", 1]), "possible_agents names '1' twice"),
    "a property": (
        changed(observation_space=property(lambda self: Well.space)),
        r"has a method observation_space, not a Box: write def observation_space\(self, agent\)",
    ),
    "spaces by agent": (
        changed(action_space={"a_0": None}),
        r"a dict: write def"
        r" action_space\(self, agent\)",
    ),
    "one space": (
        changed(observation_space=lambda self, agent: {"a_0": Well.space}[agent]),
        r"observation_space\('a_1'\) fails, every one of possible_agents needs a space",
    ),
    "no space": (
        changed(action_space=lambda self, agent: None),
        r"action_space\('a_0'\)"
        r" of.*gymnasium.spaces.*None",
    ),
    "a class": (
        changed(action_space=lambda self, agent: spaces.Discrete),
        "must be a space of gymnasium.spaces",
    ),
    "a function": (
        alone(observation_space=lambda self: 0),
        "observation_space of Gymnasium's Env.*not a function",
    ),
    "seedless": (
        changed(reset=lambda self: Well.reset(self)),
        r"takes a seed: write def"
        r" reset\(self, seed=None",
    ),
    "seedless alone": (
        alone(reset=lambda self: Alone.reset(self)),
        "reset of Gymnasium's Env takes a seed",
    ),
    "seedless inside": (
        lambda: gymnasium.wrappers.TimeLimit(alone(reset=lambda self: Alone.reset(self))(), 9),
        "reset of Gymnasium.s Env takes a seed",
    ),
    "bounds swapped": (
        changed(action_space=lambda self, agent: swapped()),
        "have low above high in dimension 0: swap the bounds",
    ),
    "text": (changed(space=spaces.Text(5)), "no fixed size"),
    "text inside": (
        changed(space=spaces.Dict(word=spaces.Text(5), number=Well.space)),
        "no fixed size",
    ),
    "closeless": (Closeless, r"has no close\(\), which .*write def close\(self\): pass"),
    # what reset gives
    "old reset": (
        changed(reset=lambda self, seed=None: Well.reset(self)[0]),
        "gives observations and infos, not a di",
    ),
    "old reset alone": (
        alone(reset=lambda self, seed=None: Alone.reset(self)[0]),
        "gives an observation and an info",
    ),
    "nothing": (
        changed(reset=lambda self, seed=None: None),
        "gives observations and infos, not None",
    ),
    "nobody listed": (reset_then(gone), "has agents, a list of who plays now, and here it is None"),
    "nobody comes": (reset_then(lambda env: env.agents.clear()), "nobody plays after reset"),
    # what step gives
    "four": (
        changed(step=lambda self, actions: Well.step(self, actions)[:4]),
        "step gives 4 things, not observations",
    ),
    "none": (changed(step=lambda self, actions: None), "step gives None, not observations"),
    "four alone": (
        alone(step=lambda self, action: Alone.step(self, action)[:4]),
        "Gymnasium's Env",
    ),
    "list": (
        told(lambda env, answer: answer.__setitem__(1, [1, 1])),
        "the rewards must be a dictionary by agent",
    ),
    "unpaid": (told(lambda env, answer: answer[1].pop("a_1")), "no reward for a_1"),
    "array": (
        told(lambda env, answer: answer[1].update(a_0=np.ones(2))),
        "the reward of a_0 is array",
    ),
    "paid in words": (
        told(lambda env, answer: answer[1].update(a_0="1")),
        "the reward of a_0 is '1', not a number",
    ),
    "paid too much": (
        told(lambda env, answer: answer[1].update(a_0=10**400)),
        "the reward of a_0 is 1000000.*not a number",
    ),
    "stranger": (
        told(lambda env, answer: answer[0].update(b_9=0)),
        "b_9 is observed and is not among",
    ),
    "blind": (
        told(lambda env, answer: answer[0].update(a_0=None)),
        "the observation of a_0 is None",
    ),
    "words": (
        told(lambda env, answer: answer[2].update(a_0="False")),
        "the termination of a_0 must be True or False",
    ),
    "words alone": (
        alone(step=lambda self, action: (*Alone.step(self, action)[:3], "False", {})),
        "the truncation of agent_0 must be True or False, not 'False'",
    ),
    "half": (
        told(lambda env, answer: answer[3].update(a_1=0.5)),
        "the truncation of a_1 must be True or False",
    ),
    "logits": (masked(-1.5, 2.0), r"the action mask of a_0 must be 1 .* not \[-1.5, 2.0\]"),
    "long mask": (masked(1, 1, 1), r"the action mask of a_0 has shape \(3,\), it has 2 actions"),
    "not a number": (masked(np.nan, 1), "the action mask of a_0 must be 1"),
    # what does not survive the cast
    "float image": (
        changed(space=IMAGE, shown=np.full((8, 8, 3), 0.5)),
        "outside its space.*float64 from 0.5 to 0.5",
    ),
    "wide image": (
        changed(space=IMAGE, shown=np.full((8, 8, 3), 300)),
        "lies outside its space.*from 300 to 300",
    ),
    "low image": (
        changed(space=IMAGE, shown=np.full((8, 8, 3), -1)),
        "lies outside its space.*from -1 to -1",
    ),
    "wide byte": (
        changed(space=spaces.Box(0, 255, (1,), np.uint8), shown=np.array([256])),
        "lies outside its space",
    ),
    "below": (
        changed(space=spaces.Discrete(3), shown=0, later=-1),
        r"lies outside its space"
        r" Discrete\(3\): -1",
    ),
    "above": (
        changed(space=spaces.Discrete(3), shown=0, later=3),
        r"lies outside its space"
        r" Discrete\(3\): 3",
    ),
    "between": (changed(space=spaces.Discrete(3), shown=0, later=1.5), "lies outside its space"),
    "low part": (
        changed(space=spaces.MultiDiscrete([3, 2]), shown=np.array([-1, 0])),
        "lies outside its space",
    ),
    "a bit of 2": (
        changed(space=spaces.MultiBinary(2), shown=np.array([0, 2])),
        "lies outside its space",
    ),
    "inside": (
        changed(
            space=spaces.Dict(x=spaces.Box(0, 255, (1,), np.uint8)), shown={"x": np.array([0.5])}
        ),
        "lies outside its space",
    ),
}
GOOD: dict[str, Callable[[], Any]] = {
    "well": Well,
    "alone": Alone,
    "doubles": changed(shown=np.zeros(2)),
    "whole numbers": changed(shown=np.ones(2, int)),
    "lists": changed(shown=[0.0, 0.5]),
    "wide whole images": changed(space=IMAGE, shown=np.full((8, 8, 3), 200)),
    "zero-dimensional": changed(space=spaces.Discrete(3), shown=np.array(1)),
    "numpy's flags": told(lambda env, answer: answer[2].update(a_0=np.bool_(answer[2]["a_0"]))),
    "float masks": masked(1.0, 0.0),
    "no infos": told(lambda env, answer: answer.__setitem__(4, None)),
    "a state of None": changed(state=lambda self: None),
    "a reward in an array": told(lambda env, answer: answer[1].update(a_0=np.ones(1))),
    "a flag in an array": alone(
        step=lambda self, action: (*Alone.step(self, action)[:3], np.array([False]), {})
    ),
}


class Local(Hosted):
    """Played in this process."""

    def open(self) -> Match:
        make = BAD[self.name][0] if self.name in BAD else GOOD[self.name]
        how, _ = AdapterOptions.split(self.options)
        try:
            return adapt(make(), how)
        except Broken as error:
            raise ShoalError(str(error)) from error


def played(name: str) -> str:
    """What a table that plays it complains about."""
    try:
        env = Local(name)
        with TemporaryFile() as memory:
            table = Table(env, shared(memory, env.teams, 1), range(1), 0)
            faults = [fault.report for _ in range(2 * LENGTH + 2) for fault in table.step()]
        return faults[0] if faults else ""
    except TooManyFaults as error:
        return error.detail
    except ShoalError as error:
        return str(error)


def checked(name: str) -> list[str]:
    """What check-env finds."""
    try:
        report = check(Local(name), steps=2 * LENGTH + 2)
    except ShoalError as error:
        return [str(error)]
    return [finding.what for findings in report.findings.values() for finding in findings]


@pytest.mark.parametrize("name", BAD)
def test_the_rule_that_is_broken_is_told_in_training_and_by_check_env(name: str) -> None:
    """Training can do without `close`, so that only check-env tells of it."""
    trained = [] if name == "closeless" else [played(name)]
    for sentence in (*trained, *checked(name)[:1]):
        assert re.search(BAD[name][1], sentence), sentence
        assert "Traceback" not in sentence and "\n" not in sentence.strip()
    assert checked(name)


@pytest.mark.parametrize("name", GOOD)
def test_what_is_merely_unusual_is_played(name: str) -> None:
    assert not played(name) and not checked(name)


@pytest.mark.parametrize(
    ("picture", "why"),
    [
        (None, "gives no array of height"),
        (np.zeros((8, 8), np.uint8), "gives no array of height"),
        (np.zeros((8, 8, 1), np.uint8), r"shape \(8, 8, 1\), not of height, width and 3 colours"),
        (np.zeros((0, 8, 3), np.uint8), r"shape \(0, 8, 3\)"),
        (np.full((8, 8, 3), 0.5), "colours of float64 that are no bytes"),
        (np.full((8, 8, 3), np.nan), "colours of float64 that are no bytes"),
        (np.full((8, 8, 3), 256), "colours of int64 that are no bytes"),
    ],
)
def test_what_is_no_picture_is_refused(picture: Any, why: str) -> None:
    """Colours from 0 to 1 would all be black."""
    with pytest.raises(Broken, match=why):
        frame(changed(render=lambda self: picture)())


def test_pictures_of_whole_bytes_are_shown() -> None:
    for kind in (np.uint8, np.int64, np.float32):
        drawn = frame(changed(render=lambda self, kind=kind: np.full((8, 9, 4), 200, kind))())
        assert drawn.dtype == np.uint8 and drawn.shape == (8, 9, 3) and (drawn == 200).all()
