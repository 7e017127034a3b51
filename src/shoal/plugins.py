"""Plugins: algorithms, games, torsos, curiosities and callbacks from a user's own package.

A plugin is named by its import path, `my_package.my_module:MyClass`, or by an entry point of a
group below. Only this module imports what a user's word names. Nothing here needs JAX.
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
    "curiosity": "shoal.curiosities",
    "callback": "shoal.callbacks",
    "tracker": "shoal.trackers",
    "adapter": "shoal.adapters",
    "export": "shoal.exports",
    "zoo": "shoal.zoo",
}
PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
EXTRAS = {  # package -> our extra that installs it
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
    "onnx": "export",
    "onnxruntime": "export",
    "flatbuffers": "export",
    "torch": "torch",
    "tensorflow": "tensorflow",
    "starlette": "serve",
    "uvicorn": "serve",
    "websockets": "serve",
    "prometheus_client": "serve",
    "pandas": "notebook",
    "IPython": "notebook",
    "wandb": "wandb",
    "mlflow": "mlflow",
}
PACKAGES = {  # prefix of environment ids -> packages that Shoal has adapters for
    "pz": ("pettingzoo", "mpe2", "magent2", "gymnasium_robotics"),
    "gym": ("gymnasium", "gymnasium_robotics", "lbforaging", "rware", "ale_py", "minigrid"),
}
_loaded: dict[str, Any] = {}  # import path -> object that this process has already


def versions(words: Iterable[str]) -> dict[str, str]:
    """Versions of the packages that import paths and names of entry points lead to, where
    installed."""
    paths = {path_of(kind, word) for word in words for kind in GROUPS}
    found = {}
    for package in sorted({re.split("[.:]", path)[0] for path in paths if path}):
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
    """Whether a path is that of an installed package's entry point.

    Not of its module alone: a module has names that it imports, such as `subprocess.run`."""
    return path in {
        f"{entry.module}:{entry.attr}" for kind in GROUPS for entry in entries(kind).values()
    }


def known(path: str) -> bool:
    """Whether a path leads to an installed plugin, or to an object that this process uses
    already."""
    return path in _loaded or installed(path)


def loaded(path: str) -> Any:
    """The object at an import path, if this process has it already; else None."""
    return _loaded.get(path)


def load(path: str) -> Any:
    """Import the object at a path; its module may be in the current folder."""
    if path not in _loaded:
        module, _, name = path.partition(":")
        found = import_module(module)
        if not hasattr(found, name):
            hint = did_you_mean(name, [word for word in vars(found) if not word.startswith("_")])
            raise ShoalError(f"{module} has no {name!r}{hint}")
        _loaded[path] = getattr(found, name)
    return _loaded[path]


def made(kind: str, word: str, base: type) -> Any:
    """An object of the class that a word names, which must be derived from `base`."""
    path = path_of(kind, word)
    if not path:
        hint = did_you_mean(word, entries(kind))
        raise ShoalError(f"there is no {kind} {word!r}{hint}: name one as <module>:<class>")
    found = load(path)
    if not isinstance(found, type) or not issubclass(found, base):
        raise ShoalError(f"{path} is not a {kind}: derive it from shoal.{base.__name__}")
    try:
        return found()
    except TypeError as error:
        raise ShoalError(f"{path} cannot be made without arguments: {error}") from None


def register(thing: Any) -> str:
    """Remember a class or function that was passed as an object, and return its import path.

    This process finds it without an import. Another process imports its module, so a script that
    passes its own classes must guard its main part with `if __name__ == "__main__"`."""
    path = f"{_home(thing.__module__)}:{thing.__qualname__}"
    if not is_path(path):
        raise ShoalError(
            f"{thing.__qualname__!r} cannot be imported from {thing.__module__}: define it at the"
            " top of a module"
        )
    _loaded[path] = thing
    return path


def _home(module: str) -> str:
    """The name under which others can import a module, also if it runs as a script."""
    if module != "__main__":
        return module
    main = sys.modules[module]
    if main.__spec__:
        return main.__spec__.name
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else module


def import_module(path: str, otherwise: str = "") -> ModuleType:
    """Import a module; if that fails, raise an error that says what to install.

    The module may be in the current folder, unless it has the name of a package that Shoal knows:
    files may name those without trust. `otherwise` is what else a user may have meant."""
    here = str(Path.cwd())
    known = path.partition(".")[0] in {name for names in PACKAGES.values() for name in names}
    if not known and here not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(path)
    except ImportError as error:
        parent, _, name = path.rpartition(".")
        alias = vars(sys.modules[parent]).get(name) if parent in sys.modules else None
        # an alias with a shorter name, such as gymnasium_robotics.mamujoco_v1
        if isinstance(alias, ModuleType):
            return alias
        raise missing(path, error, otherwise) from error
    except (ValueError, TypeError) as error:  # the path is not a module name
        raise ShoalError(f"{path!r} cannot be imported: {one_line(error)}") from error
    except (Exception, SystemExit) as error:
        fallen = ShoalError(
            f"{path!r} cannot be imported: {type(error).__name__}: {one_line(error)}"
        )
        fallen.detail = "".join(traceback.format_exception(error, limit=-8))
        raise fallen from error


def package(name: str) -> Any:
    """Import an optional package; if that fails, raise an error that says what to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise missing(name, error) from None


def missing(path: str, error: ImportError, otherwise: str = "") -> ShoalError:
    """The error for a failed import, with what to do about it."""
    lacking = error.name or path
    package = lacking.partition(".")[0]
    if not isinstance(error, ModuleNotFoundError):
        return ShoalError(f"{path!r} cannot be imported: {one_line(error)}")
    if lacking == package and package in EXTRAS:
        return ShoalError(
            f"the package {package} is not installed: pip install 'shoal[{EXTRAS[package]}]'"
        )
    if path != lacking and not path.startswith(f"{lacking}."):
        return ShoalError(f"{path} needs the package {package}: install it")
    where = "it is neither installed nor in this folder or on PYTHONPATH"
    more = f"; {otherwise}" if otherwise else ""
    return ShoalError(f"there is no module {path!r}{neighbours(path)}: {where}{more}")


def neighbours(path: str) -> str:
    """` (did you mean …?)` with the similar modules of the same package."""
    parent, _, name = path.rpartition(".")
    folder = getattr(sys.modules.get(parent), "__path__", ())
    near = did_you_mean(name, [module.name for module in pkgutil.iter_modules(folder)])
    return near.replace("'", f"'{parent}.", 1) if near else ""


def one_line(error: BaseException) -> str:
    """An exception's message on one line."""
    return " ".join(str(error).split())
