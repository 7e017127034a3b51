"""What others write: algorithms, games, torsos and callbacks from a user's own package.

A word names one by its import path, `my_package.my_module:MyClass`, or by an entry point of a group
below. This is the one place that imports what a word names. Nothing here needs JAX.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import re
import sys
import traceback
from collections.abc import Iterable
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path
from types import ModuleType
from typing import Any

from .errors import ShoalError, did_you_mean

GROUPS = {  # kind -> group of entry points
    "algorithm": "shoal.algorithms",
    "game": "shoal.games",
    "torso": "shoal.torsos",
    "callback": "shoal.callbacks",
}
PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
EXTRAS = {  # package -> the extra of ours that brings it
    "pettingzoo": "pettingzoo",
    "chess": "pettingzoo",
    "rlcard": "pettingzoo",
    "shimmy": "pettingzoo",
    "pygame": "pettingzoo",
    "pymunk": "pettingzoo",
    "mpe2": "mpe2",
    "magent2": "magent2",
    "gymnasium": "gymnasium",
    "Box2D": "box2d",
    "mujoco": "mujoco",
    "gymnasium_robotics": "mujoco",
    "lbforaging": "lbforaging",
    "rware": "rware",
}
PACKAGES = {  # prefix of an environment's id -> the packages that Shoal has an adapter for
    "pz": ("pettingzoo", "mpe2", "magent2", "gymnasium_robotics"),
    "gym": ("gymnasium", "gymnasium_robotics", "lbforaging", "rware", "ale_py", "minigrid"),
}
_loaded: dict[str, Any] = {}  # import path -> what it names, if this process has it


def versions(paths: Iterable[str]) -> dict[str, str]:
    """Those of the packages that import paths lead to, as far as they are installed as such."""
    found = {}
    for package in {path.partition(":")[0].partition(".")[0] for path in paths}:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def is_path(word: str) -> bool:
    """Whether a word is an import path, `module:name`."""
    return PATH.fullmatch(word) is not None


@cache
def entries(kind: str) -> dict[str, EntryPoint]:
    """The entry points of installed packages for that kind, by name."""
    return {entry.name: entry for entry in entry_points(group=GROUPS[kind])}


def path_of(kind: str, word: str) -> str:
    """The import path that a word stands for; empty if it names nothing outside Shoal."""
    if word in entries(kind):
        return entries(kind)[word].value.replace(" ", "")
    return word if is_path(word) else ""


def installed(path: str) -> bool:
    """Whether a path leads to a module that an installed package announces."""
    modules = {entry.module for kind in GROUPS for entry in entries(kind).values()}
    return path.partition(":")[0] in modules


def known(path: str) -> bool:
    """Whether a path leads to an installed plugin, or to what this process uses already."""
    return path in _loaded or installed(path)


def loaded(path: str) -> Any:
    """What a path names, if this process has imported it already; else None."""
    return _loaded.get(path)


def load(path: str) -> Any:
    """What an import path names; its module may lie in the folder one is in."""
    if path not in _loaded:
        module, _, name = path.partition(":")
        found = import_module(module)
        if not hasattr(found, name):
            hint = did_you_mean(name, [word for word in vars(found) if not word.startswith("_")])
            raise ShoalError(f"{module} has no {name!r}{hint}")
        _loaded[path] = getattr(found, name)
    return _loaded[path]


def register(thing: Any) -> str:
    """The import path of a class or function that was passed as an object.

    This process finds it without an import; another one imports its module, so a script that
    passes its own classes keeps what it does behind `if __name__ == "__main__"`."""
    path = f"{_home(thing.__module__)}:{thing.__qualname__}"
    if not is_path(path):
        raise ShoalError(
            f"{thing.__qualname__!r} cannot be imported from {thing.__module__}: define it at the"
            " top of a module"
        )
    _loaded[path] = thing
    return path


def _home(module: str) -> str:
    """The name under which others import a module, also that of a script."""
    if module != "__main__":
        return module
    main = sys.modules[module]
    if main.__spec__:
        return main.__spec__.name
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else module


def import_module(path: str, otherwise: str = "") -> ModuleType:
    """The module of that name; if it cannot be imported, a sentence that says what to install.

    It may lie in the folder one is in, unless it has the name of a package that Shoal knows: files
    name those without asking for trust. `otherwise` is what else a user may have meant."""
    here = str(Path.cwd())
    known = path.partition(".")[0] in {name for names in PACKAGES.values() for name in names}
    if not known and here not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(path)
    except ImportError as error:
        parent, _, name = path.rpartition(".")
        alias = vars(sys.modules[parent]).get(name) if parent in sys.modules else None
        # of a shorter name than its own, as gymnasium_robotics.mamujoco_v1 is
        if isinstance(alias, ModuleType):
            return alias
        raise missing(path, error, otherwise) from error
    except (ValueError, TypeError) as error:  # the path is no name of a module
        raise ShoalError(f"{path!r} cannot be imported: {one_line(error)}") from error
    except (Exception, SystemExit) as error:
        fallen = ShoalError(
            f"{path!r} cannot be imported: {type(error).__name__}: {one_line(error)}"
        )
        fallen.detail = "".join(traceback.format_exception(error, limit=-8))
        raise fallen from error


def missing(path: str, error: ImportError, otherwise: str = "") -> ShoalError:
    """What to do about an import that failed."""
    lacking = error.name or path
    package = lacking.partition(".")[0]
    if not isinstance(error, ModuleNotFoundError):
        return ShoalError(f"{path!r} cannot be imported: {one_line(error)}")
    if lacking == package and package in EXTRAS:
        return ShoalError(
            f"the package {package} is not installed: pip install 'shoal[{EXTRAS[package]}]'"
        )
    if path != lacking and not path.startswith(f"{lacking}."):
        return ShoalError(f"{path} needs the package {package}, which is not installed")
    where = "it is neither installed nor in this folder or on PYTHONPATH"
    more = f"; {otherwise}" if otherwise else ""
    return ShoalError(f"there is no module {path!r}{neighbours(path)}: {where}{more}")


def neighbours(path: str) -> str:
    """`, did you mean …?` among the modules beside that one."""
    parent, _, name = path.rpartition(".")
    folder = getattr(sys.modules.get(parent), "__path__", ())
    near = did_you_mean(name, [module.name for module in pkgutil.iter_modules(folder)])
    return near.replace("'", f"'{parent}.", 1) if near else ""


def one_line(error: BaseException) -> str:
    """What an exception says, on one line."""
    return " ".join(str(error).split())
