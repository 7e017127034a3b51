"""The examples run as they stand, with fewer steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
STEPS = "3200"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_runs(script: Path, tmp_path: Path) -> None:
    words = [sys.executable, str(script), "--steps", STEPS, "--out", str(tmp_path)]
    ran = subprocess.run(words, capture_output=True, text=True, env=os.environ, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code cells, one after another; what only shows a picture is left out."""
    cells = json.loads((EXAMPLES / "first_steps.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    code = [
        cell.replace("2e5", STEPS).replace('"runs"', repr(str(tmp_path)))
        for cell in code
        if "IPython" not in cell
    ]
    names: dict = {}
    for cell in code:
        exec(cell, names)
    assert names["played"].score()["agent"] < 0
