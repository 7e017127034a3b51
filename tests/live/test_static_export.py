"""The page as files."""

import json

import pytest
from run_folders import write_run

from shoal.cli.main import main
from shoal.errors import ShoalError
from shoal.live.export import MARK, export
from shoal.live.index import Index

SCRIPT = "<script>alert(2)<!--"


@pytest.fixture
def index(tmp_path):
    for seed in (0, 1):
        write_run(tmp_path / "runs" / "group" / f"seed-{seed}", seed=seed, ended={})
    run = write_run(tmp_path / "runs" / SCRIPT, "ippo", ended={})
    (run / "replays").mkdir()
    said = {"frames": [], "teams": {"</script>": []}}
    (run / "replays" / "step-000000000-0.json").write_text(json.dumps(said))
    (run / "videos").mkdir()
    (run / "videos" / "last.gif").write_bytes(b"GIF89a")
    found = Index(tmp_path / "runs")
    found.refresh()
    return found


def test_all_that_the_page_needs_lies_beside_it(index, tmp_path, capsys):
    assert main(["live", str(tmp_path / "runs"), "--export", str(tmp_path / "site")]) == 0
    site = tmp_path / "site"
    assert str(site / "index.html") in capsys.readouterr().out
    text = (site / "index.html").read_text()
    assert SCRIPT not in text and "final IQM" in text and "http://" not in text
    for run in index.runs.values():
        assert f'href="run/{run.slug}.html"' in text
        assert (site / "run" / f"{run.slug}.html").is_file()
        data = (site / "data" / f"{run.slug}.js").read_text()
        assert data.startswith(f'shoal.receive("{run.slug}", {{') and "agent/return" in data
    (film,) = site.rglob("last.gif")
    (replay,) = site.rglob("step-000000000-0.json.js")
    assert film.parent.parent.name == replay.parent.name
    assert {path.name for path in (site / "static").iterdir()} >= {"page.js", "uPlot.LICENSE"}


def test_only_an_exported_page_is_replaced(index, tmp_path):
    out = tmp_path / "site"
    export(index, out)
    (out / "stale").touch()
    export(index, out)
    assert not (out / "stale").exists()
    (out / MARK).unlink()
    with pytest.raises(ShoalError, match="no exported page"):
        export(index, out)
    with pytest.raises(ShoalError, match="exists already"):
        export(index, tmp_path / "runs")
