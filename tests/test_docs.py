"""The pages say what the code says."""

import re
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
