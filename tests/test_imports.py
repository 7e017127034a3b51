"""The arrows between the rooms: a room imports only from rooms before it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import shoal

SOURCE = Path(shoal.__file__).parent
ROOMS = (  # in order
    (
        *("errors", "options", "types", "peers", "devices", "clusters", "files", "plugins"),
        *("source", "access"),
    ),
    ("zoo",),
    ("render",),
    ("nets",),
    ("learning",),
    ("algorithms",),
    ("envs",),
    ("config",),
    ("engine",),
    ("testing",),
    ("export",),
    ("store",),
    ("serve",),
    ("monitor",),
    ("run",),
    ("report",),
    ("sweep",),
    ("live",),
    ("api",),
    ("cli",),
    ("__init__", "__main__"),
)
RANK = {name: rank for rank, room in enumerate(ROOMS) for name in room}
LAZY = {"__init__", "cli", "envs"}  # rooms that import parts of ours only when they are asked for
LATE = {  # single ones that do
    # the one arrow upward: a frozen run is read from disk
    "algorithms/opponents/frozen.py imports store.policy_store",
    "config/trust.py imports envs",  # brings JAX
}
MODULES = sorted(SOURCE.rglob("*.py"))


def imported(path: Path) -> Iterator[tuple[str, bool]]:
    """Modules of ours that a file imports, as `room.module`, and whether inside a function."""
    package = path.relative_to(SOURCE).parent.parts
    tree = ast.parse(path.read_text())
    inner = {
        id(node)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef)
        for node in ast.walk(outer)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            for name in node.names:
                target = (*base, *(node.module or name.name).split("."))
                yield ".".join(target), id(node) in inner


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def test_every_module_is_in_a_room() -> None:
    assert {room_of(path) for path in MODULES} == set(RANK)


@pytest.mark.parametrize("room", RANK)
def test_a_room_imports_only_from_rooms_before_it(room: str) -> None:
    files = [path for path in MODULES if room_of(path) == room]
    upward = {
        f"{path.relative_to(SOURCE)} imports {name}"
        for path in files
        for name, _ in imported(path)
        if RANK.get(name.partition(".")[0], -1) > RANK[room]
    }
    assert upward - LATE == set()


@pytest.mark.parametrize("room", sorted({"envs", *RANK} - LAZY))
def test_what_is_ours_is_imported_at_the_top(room: str) -> None:
    files = [path for path in MODULES if room_of(path) == room]
    late = {
        f"{path.relative_to(SOURCE)} imports {name}"
        for path in files
        for name, inner in imported(path)
        if inner
    }
    assert late - LATE == set()


def test_every_room_says_what_lives_there() -> None:
    rooms = {
        path.parent: ast.parse(path.read_text()) for path in MODULES if path.name == "__init__.py"
    }
    assert [room for room, tree in rooms.items() if not ast.get_docstring(tree)] == []


def test_tests_are_found_by_the_names_of_what_they_test() -> None:
    """By a module's name or a room's, or listed in `tests/README.md`, which lists no others."""
    tests = Path(__file__).parent
    listed = set(re.findall(r"^\| `(.*?\.py)` \|", (tests / "README.md").read_text(), re.M))
    files = {str(path.relative_to(tests)): path for path in tests.rglob("test_*.py")}
    elsewhere = {name for name, path in files.items() if not _tested(path.relative_to(tests))}
    assert elsewhere == listed


def _tested(test: Path) -> bool:
    """Whether there is a module or a room that a test file is called by."""
    name = test.stem.removeprefix("test_")
    place = SOURCE / test.parent
    return (place / f"{name}.py").is_file() or (place / name).is_dir() or place.name == name


def test_worker_processes_need_no_jax() -> None:
    code = (
        "import sys, shoal.envs.host.worker_main, shoal.envs.host.table, shoal.envs.adapters;"
        " sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
