"""Hooks of the documentation site: the README is its front page, algorithm pages are listed by
themselves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent


def on_config(config: Any) -> Any:
    """List every page of an algorithm."""
    pages = sorted(page.relative_to(DOCS).as_posix() for page in (DOCS / "algorithms").glob("*.md"))
    config["nav"].insert(2, {"Algorithms": pages})
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The README in place of the index; links that leave the docs stay readable as text."""
    if page.file.src_uri == "index.md":
        markdown = (
            (ROOT / "README.md").read_text().replace("](docs/", "](").replace('src="docs/', 'src="')
        )
        return re.sub(r"\[([^\]]+)\]\((benchmarks|examples)/[^)]*\)", r"\1", markdown)
    return re.sub(r"\[([^\]]+)\]\((\.\./)+(benchmarks|examples|src|tests)/[^)]*\)", r"\1", markdown)
