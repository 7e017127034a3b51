"""Whose code may run.

A file (a run folder, checkpoint, group, campaign or saved config) may name code. That code is
imported only if it is ours, from a package that Shoal has an adapter for (with plain options), or
from an installed plugin. Anything else runs only if the user typed it in this command, passed it
as an argument, or said `--trust`. The same goes for the address of a cluster: what its nodes send
is unpickled here, and so may be code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from .. import plugins, zoo
from ..clusters import AUTO, LOCAL
from ..errors import ShoalError

FLAG = "--trust"
ASK = f"say {FLAG} (in Python trust=True) if you trust whoever wrote that file"
COMPILED = ("jaxmarl", "gymnax", "jumanji")  # only ids in their registries
# options that the adapter keeps from the environment, so any text is safe
ADAPTERS_OWN = ("teams", "metrics")
# An option with such a name, or a text with such a sign, may lead to a file or a module.
TELLING = re.compile(r"path|dir|file|module|class|entry|import|script|command|url", re.IGNORECASE)
LEADING = re.compile(r"[/\\:.~$]")
ZOO = re.compile(rf"[^-].*={zoo.PREFIX}[\w-]+")  # a team's policy of the zoo: no import path


@dataclass(frozen=True)
class Trust:
    """What a user trusts: everything, or environments by id and other code by import path."""

    everything: bool = False
    named: frozenset[str] = frozenset()

    def check(self, env: str, options: dict[str, Any]) -> None:
        """Refuse an environment that would run code the user did not ask for."""
        if self.everything or env in self.named:
            return
        if not _known(env):
            raise ShoalError(
                f"a file names the environment {env!r}, and playing it would run"
                f" code from there: {ASK}"
            )
        self.check_options(env, options)

    def check_options(self, env: str, options: dict[str, Any]) -> None:
        """Refuse options of an environment that may lead to other code."""
        if self.everything or env in self.named:
            return
        for option, value in options.items():
            if option not in ADAPTERS_OWN and not _plain(option, value):
                raise ShoalError(
                    f"a file gives {env} the option {option}={value!r}, which may"
                    f" load other files: {ASK}"
                )

    def check_parts(self, plain: Any) -> None:
        """Refuse a saved config that names code, beside its environment, of no installed plugin."""
        self._check_paths(parts(plain))

    def check_place(self, plain: Any) -> None:
        """Refuse a saved config that names a cluster by its address."""
        self._check_paths(places(plain))

    def check_words(self, words: Iterable[str]) -> None:
        """Refuse command words from a file that name code of no installed plugin."""
        pieces = (
            piece for word in words if not ZOO.fullmatch(word) for piece in re.split("[=,]", word)
        )
        self._check_paths(piece for piece in pieces if plugins.is_path(piece))

    def _check_paths(self, paths: Iterable[str]) -> None:
        for path in paths:
            if not (self.everything or path in self.named or plugins.known(path)):
                raise ShoalError(
                    f"a file names {path!r}, and using it would run code from there: {ASK}"
                )

    def only(self, plain: dict[str, Any]) -> Trust:
        """The part of this trust that a saved config needs: for a process that runs only that
        config."""
        names = {plain["env"], *parts(plain), *places(plain)}
        return Trust(named=frozenset(names if self.everything else names & self.named))


EVERYTHING = Trust(everything=True)
NOTHING = Trust()
OF_FILES = ContextVar("OF_FILES", default=NOTHING)  # trust in folders that options name


@contextmanager
def of_files(trust: Trust) -> Iterator[None]:
    """Set, for the length of a command, the trust in folders that its options name."""
    before = OF_FILES.set(trust)
    try:
        yield
    finally:
        OF_FILES.reset(before)


def parts(plain: Any) -> list[str]:
    """The import paths that a saved config names beside its environment."""
    return [word for word in words(plain) if plugins.is_path(word)]


def places(plain: Any) -> list[str]:
    """The address of a cluster that a saved config names, if any."""
    settings = plain.get("settings") if isinstance(plain, dict) else None
    cluster = settings.get("cluster", LOCAL) if isinstance(settings, dict) else LOCAL
    return [] if cluster in (LOCAL, AUTO) else [str(cluster)]


def words(plain: Any) -> list[str]:
    """The words of a saved config that may name code beside its environment."""
    teams = plain.get("teams") if isinstance(plain, dict) else None
    sides = (
        [one for one in teams.values() if isinstance(one, dict)] if isinstance(teams, dict) else []
    )
    found = [one.get("algorithm") for one in sides]
    for one in sides:
        options = one.get("options")
        found += _values(options) if isinstance(options, dict) else ()
        origin = one.get("origin")
        found += words(origin.get("config")) if isinstance(origin, dict) else ()
    settings = plain.get("settings") if isinstance(plain, dict) else None
    for several in ("callbacks", "track"):
        named = settings.get(several) if isinstance(settings, dict) else None
        found += map(str.strip, named.split(",")) if isinstance(named, str) else ()
    return [word for word in found if isinstance(word, str)]


def _values(options: dict[str, Any]) -> list[Any]:
    """Values that may name code: not the run whose policy is taken, which may be `zoo:<name>`."""
    return [value for name, value in options.items() if name != "run"]


def needed(plain: dict[str, Any]) -> str:
    """The flag that a command needs to run this config from a file; empty if it needs none."""
    if places(plain) or not all(map(plugins.installed, parts(plain))):
        return f" {FLAG}"
    try:
        NOTHING.check(plain["env"], plain["options"])
    except ShoalError:
        return f" {FLAG}"
    return ""


def trusted(yes: bool) -> Trust:
    """Trust everything or nothing, as the user said."""
    return EVERYTHING if yes else NOTHING


def _known(env: str) -> bool:
    """Whether an id can lead only to code of known packages."""
    from ..envs import GAMES  # imports JAX, which help need not wait for

    prefix, _, rest = env.partition(":")
    if env in GAMES or ":" not in env:  # ours, an installed plugin's, or unknown
        return True
    if prefix in (*COMPILED, "football") or plugins.known(env):
        return True
    if prefix in plugins.entries("adapter"):
        return _plain("", rest)
    if prefix not in plugins.PACKAGES:
        return False
    module = rest if prefix == "pz" else rest.rpartition(":")[0] or "gymnasium"
    return (
        re.fullmatch(r"\w+(\.\w+)*", module) is not None
        and module.partition(".")[0] in plugins.PACKAGES[prefix]
    )


def _plain(name: str, value: Any) -> bool:
    """Whether a value is a number, a boolean, a word that names no path or module, or a list or
    table of such values."""
    if isinstance(value, dict):
        return not TELLING.search(name) and all(
            _plain(str(key), inner) for key, inner in value.items()
        )
    if isinstance(value, list):
        return all(_plain(name, inner) for inner in value)
    return not isinstance(value, str) or not (TELLING.search(name) or LEADING.search(value))
