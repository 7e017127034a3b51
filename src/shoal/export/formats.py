"""Formats by name, and what each of them must have.

Formats of other packages are found by an entry point of `shoal.exports`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from .. import plugins
from ..errors import ShoalError, did_you_mean
from .program import Program

Run = Callable[[Mapping[str, Any]], Mapping[str, Any]]  # inputs by name -> outputs by name


class Format(Protocol):
    """A format: it writes a program into a folder, and runs what it has written."""

    packages: tuple[str, ...]  # that it needs
    files: str  # what it writes, in words
    opened: tuple[str, ...]  # lines of Python that open the policy, for the example
    called: str  # expression that makes the outputs, a dictionary, of the dictionary `inputs`

    def write(self, program: Program, folder: Path) -> None: ...

    def load(self, folder: Path) -> Run: ...


PARTS = ("packages", "files", "opened", "called", "write", "load")  # of a format
FORMATS = {  # name -> module and class, imported when needed
    "onnx": "to_onnx:Onnx",
    "stablehlo": "to_stablehlo:StableHlo",
    "numpy": "to_numpy:Numpy",
    "torch": "to_torch:Torch",
    "tensorflow": "to_tensorflow:TensorFlow",
}


def find(name: str) -> Format:
    """Find a format by name or entry point; refuses one whose packages are not installed."""
    path = FORMATS.get(name) or plugins.path_of("export", name)
    if not path:
        names = [*FORMATS, *plugins.entries("export")]
        raise ShoalError(
            f"there is no format {name!r}{did_you_mean(name, names)}: formats are"
            f" {', '.join(names)}, or <module>:<class>"
        )
    if name in FORMATS:
        module, _, kind = path.partition(":")
        made = getattr(importlib.import_module(f".{module}", __package__), kind)()
    else:
        kind = plugins.load(path)
        for part in PARTS:
            if not isinstance(kind, type) or not hasattr(kind, part):
                raise ShoalError(f"{path} is not a format: it must be a class that has {part}")
        made = kind()
    for needed in made.packages:
        plugins.package(needed)
    return made


def loaded_module(path: Path) -> ModuleType:
    """Run a module that was just written."""
    spec = importlib.util.spec_from_file_location("exported_policy", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    written = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # the folder is not ours alone
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = written
    return module
