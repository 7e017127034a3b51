"""Small trained policies that come with Shoal, or with a package that announces some.

`zoo:<name>` stands for a policy's folder wherever a run's can be named. Nothing here needs JAX.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .. import plugins
from ..errors import ShoalError, did_you_mean
from ..files import read_json

PREFIX = "zoo:"
FOLDER = Path(__file__).parent / "policies"
ABOUT = "zoo.json"  # beside a policy: what it is, how it was trained, its scores and licence


class Animal(NamedTuple):
    """A policy of the zoo."""

    name: str
    path: Path
    about: dict[str, Any]
    package: str  # that it comes with


def place(run: str | Path) -> Path:
    """The folder that a word stands for: of the zoo after `zoo:`, any other as it is."""
    name = str(run).removeprefix(PREFIX)
    if name == str(run):
        return Path(run)
    if name in names():
        return _folder(name)
    raise ShoalError(
        f"the zoo has no policy {name!r}{did_you_mean(name, names())}: `shoal zoo` lists them"
    )


def names() -> list[str]:
    """All policies, ours first."""
    ours = sorted(path.parent.name for path in FOLDER.glob(f"*/{ABOUT}"))
    return [*ours, *(name for name in sorted(plugins.entries("zoo")) if name not in ours)]


def animals() -> Iterator[Animal]:
    """All policies with what is known of them."""
    for name in names():
        path = _folder(name)
        about = read_json(path / ABOUT, "a policy of the zoo") if (path / ABOUT).exists() else {}
        package = "shoal" if path.parent == FOLDER else plugins.entries("zoo")[name].module
        yield Animal(name, path, about, package.partition(".")[0])


def _folder(name: str) -> Path:
    """A policy's folder; a package says its own as a path."""
    if (FOLDER / name / ABOUT).is_file():
        return FOLDER / name
    path = plugins.path_of("zoo", name)
    folder = plugins.load(path)
    if not isinstance(folder, str | Path):
        raise ShoalError(f"{path} is not the path of a policy's folder: make it a pathlib.Path")
    return Path(folder)
