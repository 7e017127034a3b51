"""What a notebook shows of a run: plain HTML, with nothing of a name run as script."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from shoal.monitor.console import Console
from shoal.monitor.notebook import Film, Notebook, curve, in_notebook, shown


class Silent(Notebook):
    """Shows nothing, but keeps the page."""

    def update(self) -> None:
        self.shown = self.page()


def test_outside_of_a_notebook_the_console_is_used():
    assert not in_notebook()
    assert type(shown(False)) is Console and shown(True).quiet


def test_the_page_has_the_last_sentences_and_no_script_of_anybody():
    page = Silent()
    page.line = "<script>alert(1)</script>"
    page.evaluations = {"<img src=x>": [(0, 1.0), (10, float("nan")), (20, 3.0)]}
    for number in range(9):
        page.say(f"sentence {number} <b>")
    assert "sentence 8 &lt;b&gt;" in page.shown and "sentence 4" not in page.shown
    assert "<script" not in page.shown and "<img" not in page.shown
    ElementTree.fromstring(page.shown)  # well-formed


def test_the_curve_has_a_line_per_team_and_bounded_points():
    training = {"a": [(float(i), float(i)) for i in range(10_000)]}
    drawn = ElementTree.fromstring(curve({"a": [(0, 0.0), (9_999, 5.0)]}, training))
    lines = [line.attrib["points"].split() for line in drawn.iter("polyline")]
    assert [len(line) for line in lines] == [304, 2]
    assert curve({"a": [(0, 2.0)]}, {})  # one point, no span


def test_a_film_is_shown_by_its_kind(tmp_path: Path):
    for suffix, word in ((".gif", "<img src='data:image/gif"), (".mp4", "<video controls")):
        path = tmp_path / f"film{suffix}"
        path.write_bytes(b"x")
        assert Film(path)._repr_html_().startswith(word)
