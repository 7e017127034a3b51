"""Run folders elsewhere: mirrored, fetched and resumed; what is half-written is never read."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from shoal.cli.main import main
from shoal.errors import ShoalError
from shoal.store import checkpoint, folder, places, remote
from shoal.store.remote import Elsewhere, Mirror

fsspec = pytest.importorskip("fsspec")
SMALL = (
    "a2c test/identity --games 4 --window 5 --hidden 4 --layers 1 --evaluations 1"
    " --eval-episodes 2 --steps 200 --save-every 40 --devices 1"
)


@pytest.fixture(autouse=True)
def staging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(places.STAGING, str(tmp_path / "staging"))
    return tmp_path / "staging"


@pytest.fixture
def bucket() -> str:
    memory = fsspec.filesystem("memory")
    if memory.exists("/bucket"):
        memory.rm("/bucket", recursive=True)
    return "memory://bucket/runs"


def made(url: str, **texts: str) -> Path:
    """A folder that stands for a URL, with some files."""
    path = places.local(url)
    for name, text in texts.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return path


def test_a_url_has_a_folder_that_says_it(staging: Path) -> None:
    for url in ("s3://bucket/x/run", "gs://b/x", "file:///mnt/runs/a", "memory://b/c"):
        assert places.is_url(url) and places.url_of(places.local(url)) == url
    assert not places.is_url("runs/x") and not places.is_url("ray://host:10001")
    assert places.local("runs/x") == Path("runs/x") and places.url_of(Path("runs/x")) == ""
    with pytest.raises(ShoalError, match="is no place for a run"):
        places.local("s3://bucket/../x")
    with pytest.raises(ShoalError, match="cannot be used"):
        places.opened("nothing-known://x/y")


def test_what_is_mirrored_comes_back_and_only_whole(bucket: str) -> None:
    """A file that is missing or changed there, a manifest cut short: refused, nothing changes."""
    path = made(bucket, **{"config.json": "{}", "a.txt": "one", "in/b.txt": "two"})
    (path / ".lock").touch()
    mirror = Mirror(path)
    mirror.push()
    (path / "a.txt").write_text("three")
    mirror.push()
    fs, place = places.opened(bucket)
    there = sorted(name.removeprefix(place) for name in fs.find(place))
    # one version of each, as soon as the manifest names the new one
    assert [name.partition("@")[0] for name in there] == [
        "/a.txt",
        "/config.json",
        "/in/b.txt",
        "/manifest.json",
    ]
    shutil.rmtree(path)
    assert remote.fetch(bucket) == path
    assert (path / "a.txt").read_text() == "three" and (path / "in/b.txt").read_text() == "two"

    shutil.rmtree(path)
    whole = {name: fs.cat_file(name) for name in fs.find(place)}
    for name, blob in whole.items():
        fs.pipe_file(name, blob[:-1])
        with pytest.raises(ShoalError, match="is damaged"):
            remote.fetch(bucket)
        assert not path.exists()
        fs.pipe_file(name, blob)
    fs.rm_file(next(name for name in whole if "b.txt" in name))
    with pytest.raises(ShoalError, match=r"as in/b\.txt is not what was written"):
        remote.fetch(bucket)


def test_an_upload_cut_short_leaves_the_one_before_it(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(bucket, **{"config.json": "{}", "a.txt": "one"})
    Mirror(path).push()
    (path / "a.txt").write_text("two")

    def broken(*_: Any) -> None:
        raise OSError("the line is cut")

    with monkeypatch.context() as patch:
        patch.setattr(remote, "_write", broken)
        with pytest.raises(ShoalError, match="the line is cut"):
            Mirror(path).push()
    shutil.rmtree(path)
    remote.fetch(bucket)
    assert (path / "a.txt").read_text() == "one"


def test_who_was_replaced_writes_no_more(bucket: str) -> None:
    path = made(bucket, **{"config.json": "{}"})
    old, new = Mirror(path), Mirror(path)
    old.push()
    new.push()
    with pytest.raises(Elsewhere, match="goes on in another process"):
        old.push()
    new.push()


@pytest.mark.slow
def test_a_run_elsewhere_is_resumed_where_nothing_of_it_was(
    tmp_path: Path, staging: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The machine that trained it is lost after some checkpoints; another ends it, to the bit."""
    url = f"file://{tmp_path}/bucket"
    words = ["train", *SMALL.split(), "--keep", "9"]
    assert main([*words, "--out", str(tmp_path), "--name", "alone"]) == 0
    assert main([*words, "--out", url, "--name", "run"]) == 0
    assert main([*words, "--out", url, "--name", "run"]) == 2
    assert "exists already" in capsys.readouterr().err
    # back to its second checkpoint, as if it had been killed then
    run = places.local(f"{url}/run")
    for place in list(checkpoint.places(run))[:-2]:
        shutil.rmtree(place)
    folder.remove_results(run)
    remote.share(run)
    shutil.rmtree(staging)

    assert main(["resume", f"{url}/run"]) == 0
    weights = "policy/weights.safetensors"
    assert (run / weights).read_bytes() == (tmp_path / "alone" / weights).read_bytes()
    shutil.rmtree(staging)
    assert main(["evaluate", f"{url}/run", "--episodes", "2"]) == 0
    names = [name.partition("@")[0] for name in os.listdir(tmp_path / "bucket" / "run")]
    assert {"config.json", "summary.json", "metrics.jsonl"} <= set(names)
    assert main(["resume", f"{url}/none"]) == 2
    assert "there is no run at" in capsys.readouterr().err


@pytest.mark.slow
def test_seeds_go_to_s3_and_come_back(
    tmp_path: Path, staging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the real protocol, to a server on loopback."""
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    try:
        _, port = server.get_host_and_port()
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        fsspec.filesystem("s3").mkdir("bucket")
        url = "s3://bucket/runs"
        words = ["--seeds", "2", "--out", url, "--name", "group"]
        assert main(["train", *SMALL.split(), *words]) == 0
        shutil.rmtree(staging)
        assert main(["resume", f"{url}/group", "--seeds", "3"]) == 0
        content = json.loads((places.local(url) / "group" / folder.GROUP).read_text())
        assert content["finished"] == 3
    finally:
        server.stop()
