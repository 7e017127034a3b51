"""Rules of other packages' interfaces that adapters rely on; errors say what to change."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from ...errors import ShoalError
from ..host.match import Broken

PARALLEL = "PettingZoo's ParallelEnv"
TURNS = "PettingZoo's AECEnv"
GYM = "Gymnasium's Env"
MAPPINGS = (dict, Mapping)  # the first is found much faster
RESET = "def reset(self, seed=None, options=None)"


def agents_of(env: Any, interface: str) -> list[Any]:
    """All agents that may ever play: `possible_agents`."""
    named = getattr(env, "possible_agents", None)
    if not isinstance(named, list | tuple) or not named:
        found = named if isinstance(named, list) else _kind(named)
        raise Broken(
            f"{interface} has possible_agents, a list of all who may ever play, and"
            f" here it is {found}"
        )
    agents = list(named)
    for agent in agents:
        if str(agent) != str(agent).encode(errors="ignore").decode():
            raise Broken(
                f"possible_agents names {str(agent)!r}, which is no text that a file can hold:"
                " give every agent a name of whole characters"
            )
        if [str(other) for other in agents].count(str(agent)) > 1:
            raise Broken(
                f"possible_agents names {str(agent)!r} twice: give every agent a name of its own"
            )
    return agents


def space_for(env: Any, method: str, agent: Any, interface: str) -> spaces.Space:
    """An agent's space, from the method `observation_space` or `action_space`."""
    ask = getattr(env, method, None)
    if not callable(ask):
        raise Broken(
            f"{interface} has a method {method}, not {_kind(ask)}: write def {method}(self, agent)"
        )
    try:
        space = ask(agent)
    except Exception as error:
        raise Broken(
            f"{method}({agent!r}) fails, every one of possible_agents needs a space: {error!r}"
        ) from error
    return a_space(space, f"{method}({agent!r}) of {interface}")


def a_space(space: Any, what: str) -> Any:
    """Check that a value is a Gymnasium space."""
    if not isinstance(space, spaces.Space):
        raise Broken(
            f"{what} must be a space of gymnasium.spaces, such as Box or Discrete, not"
            f" {_kind(space)}"
        )
    return space


def takes_a_seed(env: Any, interface: str) -> None:
    """Check that `reset` takes a seed: every episode has its own."""
    try:
        parameters = inspect.signature(env.reset).parameters.values()
    except (TypeError, ValueError):  # it has no readable signature
        return
    if not any(one.name == "seed" or one.kind is one.VAR_KEYWORD for one in parameters):
        raise Broken(f"reset of {interface} takes a seed: write {RESET}")


def opened(told: Any, interface: str, seen: str) -> tuple[Any, Any]:
    """Check what `reset` returned."""
    if not isinstance(told, tuple | list) or len(told) != 2:
        raise Broken(f"reset of {interface} gives {seen}, not {_kind(told)}: return both")
    return told[0], told[1]


def stepped(told: Any, interface: str, seen: str) -> Any:
    """Check what `step` returned."""
    if not isinstance(told, tuple | list) or len(told) != 5:
        number = f"{len(told)} things" if isinstance(told, tuple | list) else _kind(told)
        raise Broken(f"step gives {number}, not {seen}, which {interface} does")
    return told


def by_agent(given: Any, agents: set[Any], what: str) -> Mapping[Any, Any]:
    """Check for a dictionary with an entry for each of these agents."""
    if not isinstance(given, MAPPINGS):
        raise Broken(f"the {what}s must be a dictionary by agent, not {_kind(given)}")
    if not agents <= given.keys():
        raise Broken(f"the environment gives no {what} for {min(map(str, agents - given.keys()))}")
    return given


def flag(value: Any, what: str) -> bool:
    """Check for a bool, also a numpy one."""
    if value is True or value is False:
        return value
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf" or array.item() not in (0, 1):
        raise Broken(f"{what} must be True or False, not {value!r}")
    return bool(array.item())


def flags(given: Mapping[Any, Any], what: str) -> dict[Any, bool]:
    """Check for a bool of every agent."""
    return {
        agent: value if value is True or value is False else flag(value, f"the {what} of {agent}")
        for agent, value in given.items()
    }


def allowed(mask: Any, agent: Any, size: int) -> np.ndarray:
    """`[size]` bool from an action mask of zeros and ones."""
    mask = np.asarray(mask)
    if mask.shape != (size,):
        raise Broken(f"the action mask of {agent} has shape {mask.shape}, it has {size} actions")
    if mask.dtype != bool and (
        mask.dtype.kind not in "iuf" or not ((mask == 0) | (mask == 1)).all()
    ):
        raise Broken(
            f"the action mask of {agent} must be 1 for what is allowed and 0 for the rest, not"
            f" {mask.tolist()}"
        )
    return mask.astype(bool)


def close(env: Any) -> None:
    """Close the environment."""
    if not callable(getattr(env, "close", None)):
        raise ShoalError(
            f"{type(env).__name__} has no close(), which PettingZoo and Gymnasium have: write"
            f" def close(self): pass"
        )
    env.close()


def _kind(value: Any) -> str:
    """Describe a value in a few words, for an error."""
    if value is None or isinstance(value, type):
        return repr(value)
    return "a function" if callable(value) else f"a {type(value).__name__}"
