"""Whose code may run.

What a file names (a run folder, a checkpoint, a group, a campaign, a saved config) is imported only
if it is a game of ours or of a package that Shoal has an adapter for, with plain options. Anything
else runs only where the user typed it in this very command, passed it as an argument, or said
`--trust`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ..errors import ShoalError

FLAG = "--trust"
COMPILED = ("jaxmarl", "gymnax", "jumanji")  # ids of their registries alone
PACKAGES = {  # prefix -> packages whose modules it may import
    "pz": ("pettingzoo", "mpe2", "magent2", "gymnasium_robotics"),
    "gym": ("gymnasium", "gymnasium_robotics", "lbforaging", "rware", "ale_py", "minigrid"),
}
# options that never reach an environment, and may hold any text
ADAPTERS_OWN = ("teams", "metrics")
# An option of such a name, or a text with such a sign, may lead to a file or to a module.
TELLING = re.compile(r"path|dir|file|module|class|entry|import|script|command|url", re.IGNORECASE)
LEADING = re.compile(r"[/\\:.~$]")


@dataclass(frozen=True)
class Trust:
    """What a user trusts: everything, or environments by their ids."""

    everything: bool = False
    named: frozenset[str] = frozenset()

    def check(self, env: str, options: dict[str, Any]) -> None:
        """Refuse an environment that would run code nobody asked for."""
        if self.everything or env in self.named:
            return
        how = f"say {FLAG} (in Python trust=True) if you trust whoever wrote that file"
        if not _known(env):
            raise ShoalError(
                f"a file names the environment {env!r}, and playing it would run"
                f" code from there: {how}"
            )
        for option, value in options.items():
            if option not in ADAPTERS_OWN and not _plain(option, value):
                raise ShoalError(
                    f"a file gives {env} the option {option}={value!r}, which may"
                    f" load other files: {how}"
                )

    def only(self, env: str) -> Trust:
        """What of it concerns that environment: for a process that plays nothing else."""
        return Trust(named=frozenset({env})) if self.everything or env in self.named else NOTHING


EVERYTHING = Trust(everything=True)
NOTHING = Trust()


def needed(env: str, options: dict[str, Any]) -> str:
    """What a command must say to play from a file what was played now: nothing, or the flag."""
    try:
        NOTHING.check(env, options)
    except ShoalError:
        return f" {FLAG}"
    return ""


def trusted(yes: bool) -> Trust:
    """As the user said it."""
    return EVERYTHING if yes else NOTHING


def _known(env: str) -> bool:
    """Whether an id can lead to code of known packages alone."""
    from ..envs import GAMES  # brings JAX, for which nobody waits who only asks for help

    prefix, _, rest = env.partition(":")
    if env in GAMES or ":" not in env:  # ours, or one that there is not
        return True
    if prefix in (*COMPILED, "football"):
        return True
    if prefix not in PACKAGES:
        return False
    module = rest if prefix == "pz" else rest.rpartition(":")[0] or "gymnasium"
    return (
        re.fullmatch(r"\w+(\.\w+)*", module) is not None
        and module.partition(".")[0] in PACKAGES[prefix]
    )


def _plain(name: str, value: Any) -> bool:
    """Numbers, yes and no, and words that name neither a path nor a module; lists and tables of
    them."""
    if isinstance(value, dict):
        return not TELLING.search(name) and all(
            _plain(str(key), inner) for key, inner in value.items()
        )
    if isinstance(value, list):
        return all(_plain(name, inner) for inner in value)
    return not isinstance(value, str) or not (TELLING.search(name) or LEADING.search(value))
