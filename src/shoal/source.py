"""Find the base classes of a user's class from its source, without running any of it.

An environment on the host is never imported by the training process; a compiled game must be. So
the two are told apart before anything is imported.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path


@cache
def derives(path: str, bases: tuple[str, ...]) -> bool:
    """Whether an import path names a class with a base whose full name begins with one of
    `bases`."""
    module, _, name = path.partition(":")
    return _derives(module, name, bases, frozenset())


def _derives(
    module: str, name: str, bases: tuple[str, ...], seen: frozenset[tuple[str, str]]
) -> bool:
    if f"{module}.{name}".startswith(bases):
        return True
    if (module, name) in seen:  # circular names
        return False
    tree = _tree(module)
    bound = _bound(tree, module) if tree else {}
    seen |= {(module, name)}
    return any(
        _derives(*_resolved(base, module, bound), bases, seen) for base in _bases(tree, name, bound)
    )


def _bases(tree: ast.Module | None, name: str, bound: dict[str, str]) -> list[ast.expr]:
    """Expressions that a name stands for: the bases of a class, or what was imported or
    assigned."""
    for statement in reversed(tree.body if tree else []):
        if isinstance(statement, ast.ClassDef) and statement.name == name:
            return statement.bases
        if isinstance(statement, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == name for target in statement.targets
        ):
            return [statement.value]
    return [ast.Name(name)] if name in bound else []


def _resolved(base: ast.expr, module: str, bound: dict[str, str]) -> tuple[str, str]:
    """Module and name that an expression such as `envs.Game` refers to."""
    if isinstance(base, ast.Subscript):  # Game[World]
        base = base.value
    first, *rest = ast.unparse(base).split(".")
    whole = ".".join([bound.get(first, f"{module}.{first}"), *rest])
    place, _, name = whole.rpartition(".")
    return place, name


def _bound(tree: ast.Module, module: str) -> dict[str, str]:
    """Names that imports bind: name -> full name of the object."""
    bound = {}
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                short = alias.name.partition(".")[0]
                bound[alias.asname or short] = alias.name if alias.asname else short
        elif isinstance(statement, ast.ImportFrom):
            source = _absolute(statement, module)
            bound |= {one.asname or one.name: f"{source}.{one.name}" for one in statement.names}
    return bound


def _absolute(statement: ast.ImportFrom, module: str) -> str:
    """The absolute name of the module in an import, which may be relative to `module`."""
    if not statement.level:
        return statement.module or ""
    file = _file(module)
    drop = statement.level - (file is not None and file.name == "__init__.py")
    parents = module.split(".")
    return ".".join([*parents[: len(parents) - drop], *filter(None, [statement.module])])


def _tree(module: str) -> ast.Module | None:
    file = _file(module)
    try:
        return ast.parse(file.read_text("utf-8")) if file and file.suffix == ".py" else None
    except (OSError, ValueError, SyntaxError):  # reported later, when it is imported
        return None


def _file(module: str) -> Path | None:
    """Path of a module's source file; imports no package on the way."""
    top, *rest = module.split(".")
    try:
        spec = find_spec(top) or PathFinder.find_spec(top, [str(Path.cwd())])
    except (ImportError, ValueError):  # such as the module of a script
        spec = None
    if spec is None and top in sys.modules:
        origin = getattr(sys.modules[top], "__file__", None)
        return Path(origin) if origin and not rest else None
    for number, _ in enumerate(rest, 2):
        if spec is None or spec.submodule_search_locations is None:
            return None
        whole = ".".join(module.split(".")[:number])
        spec = PathFinder.find_spec(whole, spec.submodule_search_locations)
    return Path(spec.origin) if spec and spec.origin else None
