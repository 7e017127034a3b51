"""The pages say what the code says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import with_pages

from shoal.algorithms import ALGORITHMS, ALIASES
from shoal.envs import GAMES

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "benchmarks" / "README.md",
]
pytestmark = with_pages


def test_every_algorithm_has_a_page_with_its_options(capsys):
    sys.path.insert(0, str(ROOT / "docs"))
    import tables

    assert tables.main(check=True) == 0, capsys.readouterr().out
    assert {page.stem for page in (ROOT / "docs" / "algorithms").glob("*.md")} == set(ALGORITHMS)


def test_the_readme_names_every_algorithm_and_game():
    text = (ROOT / "README.md").read_text()
    names = [*ALGORITHMS, *ALIASES, *(game for game in GAMES if not game.startswith("test/"))]
    assert [name for name in names if f"`{name}`" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_files_that_the_page_on_structure_names_are_there():
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", page))
    there = [str(path) for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.py")]
    assert len(named) > 50
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in there)] == []


def test_every_trap_has_a_test_that_names_it():
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = {
        int(n)
        for words in re.findall(r"trap((?:[ _]\d+)+)", tests.lower())
        for n in re.findall(r"\d+", words)
    }
    listed = re.findall(r"^(\d+)\. ", (ROOT / "docs" / "traps.md").read_text(), re.MULTILINE)
    assert listed and [trap for trap in listed if int(trap) not in named] == []


# Sizes that the commands of a page get when a test runs them
SMALL = "--steps 400 --games 4 --window 10 --eval-episodes 2 --out runs"
OFF = "--capacity 400 --warmup 100 --batch 8"


def run_as_printed(page, module, commands, folder):
    """Run a page's commands, with small sizes, in a folder with nothing but the page's code."""
    (folder / f"{module}.py").write_text(page)
    for command in commands:
        sizes = SMALL if command.startswith("train") else ""
        sizes = "--steps 60" if command.startswith("check-env") else sizes
        words = f"{command} {sizes} {OFF if 'maddpg' in command else ''}".split()
        done = subprocess.run(
            [sys.executable, "-m", "shoal", *words],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"shoal {command}\n{done.stderr}"
    assert len(list((folder / "runs").glob("*/summary.json"))) == 2


@pytest.mark.slow
def test_the_commands_that_add_a_game_work_as_printed_out_of_tree(tmp_path):
    page = (ROOT / "docs" / "adding-a-game.md").read_text()
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    commands = re.findall(r"^    shoal (.*chase:Chase.*)$", page, re.MULTILINE)
    assert len(commands) == 3 and any("--rivals" in command for command in commands)
    assert any(command.count("--team ") == 2 for command in commands)
    assert code
    run_as_printed(code[1], "chase", commands, tmp_path)


@pytest.mark.slow
def test_the_algorithm_of_the_page_works_as_printed_out_of_tree(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "adding-an-algorithm.md").read_text()
    code = re.search(r'```python title="weighted.py"\n(.*?)```', page, re.DOTALL)
    commands = re.findall(r"^    shoal (.*weighted:Weighted.*)$", page, re.MULTILINE)
    assert code and len(commands) == 3
    run_as_printed(code[1], "weighted", commands, tmp_path)
    (line,) = [
        path.read_text().splitlines()[-2] for path in tmp_path.glob("runs/*spread*/metrics.jsonl")
    ]
    assert "agent/imitation" in line


def test_what_the_page_calls_the_whole_of_an_algorithm_is_its_source():
    """But for what is left out of it: docstrings of configs, and names of types."""
    page = (ROOT / "docs" / "adding-an-algorithm.md").read_text()
    shown = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)]
    folder = ROOT / "src" / "shoal" / "algorithms"
    source = {line for path in folder.glob("*.py") for line in path.read_text().splitlines()}
    assert len(shown) == 3
    assert [line for block in shown for line in block.splitlines() if line not in source] == []
