"""The examples run as they stand, with fewer steps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import quick

EXAMPLES = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
STEPS = "3200"

pytestmark = pytest.mark.skipif(not SCRIPTS, reason="tests of the examples need them beside")


@pytest.mark.slow
@pytest.mark.parametrize("script", quick(SCRIPTS, 2), ids=lambda script: script.stem)
def test_a_script_runs(script: Path, tmp_path: Path) -> None:
    words = [sys.executable, str(script), "--steps", STEPS, "--out", str(tmp_path)]
    ran = subprocess.run(words, capture_output=True, text=True, env=os.environ, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a real kernel: the curve is shown in place, the film inline, logs as frames."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    paths = filter(None, [*sys.path, os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    book = nbformat.read(EXAMPLES / "first_steps.ipynb", 4)
    for cell in book.cells:
        cell.source = cell.source.replace("2e5", STEPS)
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(book, timeout=300, resources=place).execute()
    shown = {cell.id: cell.outputs for cell in book.cells if cell.cell_type == "code"}
    (page,) = [
        output["data"]["text/html"]
        for output in shown["cell-3"]
        if output.output_type == "display_data"
    ]
    assert "<polyline" in page and f"{int(STEPS):,}" in page and "width:100.0%" in page
    printed = "".join(output.get("text", "") for output in shown["cell-3"])
    assert "evaluation at" not in printed
    assert "agent/return" in shown["cell-5"][0]["data"]["text/html"]
    assert "data:video/mp4;base64" in shown["cell-8"][0]["data"]["text/html"]
    assert shown["cell-12"][0]["data"]["text/plain"].startswith("({'agent': -")
