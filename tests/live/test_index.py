"""Runs are found with their status, whatever their folders hold."""

import json
import os
import time

import pytest
from run_folders import finished, held_elsewhere, write_run

from shoal.live import index as indexing
from shoal.live.index import Index
from shoal.store import folder


def looked(root):
    index = Index(root)
    index.refresh()
    return {run.id: run for run in index.runs.values()}


def test_status_says_how_a_run_ended_or_that_it_goes_on(tmp_path):
    write_run(tmp_path / "done", ended={})
    write_run(tmp_path / "stopped", ended={"reason": "stopped by SIGINT", "stopped": 2})
    write_run(tmp_path / "failed", ended={"reason": "diverged", "message": "q is no number"})
    write_run(tmp_path / "dead")
    write_run(tmp_path / "going")
    with folder.locked(tmp_path / "going"):
        found = looked(tmp_path)
    told = {name: run.status for name, run in found.items()}
    assert told == {
        "done": "finished",
        "stopped": "stopped",
        "failed": "failed",
        "dead": "dead",
        "going": "training",
    }
    assert found["failed"].why == "diverged: q is no number"
    going = found["going"]
    assert going.progress == pytest.approx(0.975) and going.left == pytest.approx(0.5)
    assert f"process {os.getpid()}" in going.where and going.scores["agent"] == 30.0


def test_a_run_on_another_machine_lives_while_it_writes(tmp_path):
    run = write_run(tmp_path / "far")
    held_elsewhere(run)
    assert looked(tmp_path)["far"].status == "training"
    for name in (folder.METRICS, folder.CONFIG):
        os.utime(run / name, (time.time() - 9_999,) * 2)
    assert looked(tmp_path)["far"].status == "dead"


def test_only_what_changed_is_read_again(tmp_path, monkeypatch):
    runs = [write_run(tmp_path / f"r{i}", seed=i, ended={}) for i in range(3)]
    index = Index(tmp_path)
    assert len(index.refresh()) == 3
    version = index.version
    read = []
    real = Index._read
    monkeypatch.setattr(Index, "_read", lambda *args: (read.append(args[1]), real(*args))[1])
    assert index.refresh() == set() and read == [] and index.version == version
    (runs[1] / folder.SUMMARY).write_text(json.dumps(finished(runs[1]) | {"seconds": 99.0}))
    assert len(index.refresh()) == 1 and read == [runs[1]] and index.version == version + 1


def test_seeds_are_kin_and_other_options_are_not(tmp_path):
    for seed in (0, 1):
        write_run(tmp_path / "group" / f"seed-{seed}", seed=seed, ended={})
    write_run(tmp_path / "other", lr=0.01, ended={})
    found = looked(tmp_path)
    a, b, other = (found[name] for name in ("group/seed-0", "group/seed-1", "other"))
    assert a.kin == b.kin != other.kin and a.group == "group"
    index = Index(tmp_path)
    index.refresh()
    assert sorted("lr=0.01" in name for name in index.names.values()) == [False, True]


def test_a_broken_folder_is_shown_with_what_is_wrong(tmp_path):
    cases = {"empty": "", "text": "no json", "list": "[]", "newer": '{"format": 99}', "deep": "["}
    for name, content in cases.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / folder.CONFIG).write_text(content * (9_999 if name == "deep" else 1))
    run = write_run(tmp_path / "summary", ended={})
    (run / folder.SUMMARY).write_text("{")
    (write_run(tmp_path / "metrics") / folder.METRICS).write_bytes(b"\xff\x00{}\n" * 9)
    found = looked(tmp_path)
    assert {found[name].status for name in (*cases, "summary")} == {"broken"}
    assert all(found[name].why for name in (*cases, "summary"))
    assert found["metrics"].status == "dead" and found["metrics"].steps == 0


def test_nothing_outside_the_folder_is_read(tmp_path):
    outside = write_run(tmp_path / "outside" / "secret", ended={})
    root = tmp_path / "runs"
    write_run(root / "inside", ended={})
    (root / "link").symlink_to(outside)
    (root / "up").symlink_to(tmp_path)
    half = write_run(root / "half")
    (half / folder.METRICS).unlink()
    (half / folder.METRICS).symlink_to(outside / folder.METRICS)
    found = looked(root)
    assert set(found) == {"inside", "half"}
    assert found["half"].status == "broken" and "leads out" in found["half"].why


def test_a_loop_of_links_ends(tmp_path):
    write_run(tmp_path / "a", ended={})
    (tmp_path / "loop").symlink_to(tmp_path)
    assert "a" in looked(tmp_path)
    assert indexing.inside(tmp_path.resolve(), tmp_path / "nowhere") is False
