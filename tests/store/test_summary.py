"""Every run that began says in its folder how it ended."""

from __future__ import annotations

import errno
import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.errors import ShoalError
from shoal.monitor.metrics import Diverged
from shoal.monitor.sinks import Log
from shoal.run.trainer import Trainer
from shoal.store import checkpoint, folder

SIZES: dict[str, Any] = {
    "steps": 200,
    "games": 2,
    "window": 5,
    "hidden": 4,
    "layers": 1,
    "eval_episodes": 2,
}
ENDS = {
    "diverged": Diverged("training diverged"),
    "out of disk": OSError(errno.ENOSPC, "No space left on device"),
    "crashed": RuntimeError("something broke"),
    "interrupted": KeyboardInterrupt(),
}


def train(out: Path, **options: Any) -> Any:
    return shoal.train(
        "a2c",
        "test/identity",
        out=str(out),
        name="run",
        quiet=True,
        preset=False,
        **SIZES,
        **options,
    )


def summary(out: Path) -> dict[str, Any]:
    return json.loads((out / "run" / folder.SUMMARY).read_text())


class Ends(shoal.Callback):
    """Stops a run, or breaks it, at its first log point."""

    def __init__(self, raises: bool):
        self.raises = raises

    def on_iteration(self, run: Any, values: dict[str, float]) -> None:
        if self.raises:
            raise ValueError("a mistake in here")
        run.stop()


def test_it_was_finished(tmp_path: Path) -> None:
    assert train(tmp_path).reason == summary(tmp_path)["reason"] == folder.FINISHED


@pytest.mark.parametrize("reason", ENDS)
def test_what_broke_it_is_named_and_it_is_not_finished(
    reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ENDS[reason]

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_train", broken)
        with pytest.raises(type(ENDS[reason])):
            train(tmp_path)
    told = summary(tmp_path)
    assert told["reason"] == reason and told["format"] == 1
    assert str(ENDS[reason]) in told["message"] or reason == "interrupted"
    assert not folder.finished(tmp_path / "run")
    assert shoal.resume(tmp_path / "run", quiet=True).reason == folder.FINISHED
    assert folder.finished(tmp_path / "run")


def test_a_callback_stopped_it_or_failed(tmp_path: Path) -> None:
    assert (
        train(tmp_path / "stops", callbacks=[Ends(raises=False)]).reason == "stopped by a callback"
    )
    with pytest.raises(ShoalError):
        train(tmp_path / "fails", callbacks=[Ends(raises=True)])
    assert summary(tmp_path / "fails")["reason"] == "a callback failed"


def test_a_signal_stopped_it(tmp_path: Path) -> None:
    class Kill(shoal.Callback):
        def on_iteration(self, run: Any, values: dict[str, float]) -> None:
            signal.raise_signal(signal.SIGTERM)

    assert (
        train(tmp_path, callbacks=[Kill()]).reason
        == summary(tmp_path)["reason"]
        == "stopped by SIGTERM"
    )


def test_a_log_that_cannot_be_opened_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the beginning, and when the run goes on: the old summary is of another end."""

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Log, "__init__", full)
        with pytest.raises(OSError, match="No space left"):
            train(tmp_path)
    assert (summary(tmp_path)["reason"], summary(tmp_path)["steps"]) == ("out of disk", 0)
    stopped = shoal.resume(tmp_path / "run", quiet=True, callbacks=[Ends(raises=False)])
    assert summary(tmp_path)["reason"] == "stopped by a callback"
    with monkeypatch.context() as patch:
        patch.setattr(Log, "__init__", full)
        with pytest.raises(OSError, match="No space left"):
            shoal.resume(tmp_path / "run", quiet=True)
    told = summary(tmp_path)
    assert (told["reason"], told["steps"]) == ("out of disk", stopped.steps)
    assert shoal.resume(tmp_path / "run", quiet=True).reason == folder.FINISHED


def test_what_raises_before_training_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("something broke")

    for name in ("_attend", "_record_evaluation"):
        with monkeypatch.context() as patch:
            patch.setattr(Trainer, name, broken)
            with pytest.raises(RuntimeError):
                train(tmp_path / name)
        assert summary(tmp_path / name)["reason"] == "crashed"


@pytest.mark.slow
def test_a_run_that_cannot_be_gone_on_with_is_left_as_it_was(tmp_path: Path) -> None:
    """Its checkpoint says something odd of the best policy, or its log is gone."""
    run = train(tmp_path).path
    place = next(checkpoint.places(run))
    about, leaves = checkpoint.opened(place)
    about = {name: value for name, value in about.items() if name != "format"}
    arrays = {name: np.asarray(leaf) for name, leaf in leaves.items()}
    before = contents(run)
    checkpoint.write(run, arrays, about | {"best": {"team": "agent"}}, keep=9)  # type: ignore[arg-type]
    with pytest.raises(ShoalError, match="'steps' is missing there"):
        shoal.resume(run, quiet=True, steps=400)
    assert contents(run) == before
    checkpoint.write(run, arrays, about, keep=9)  # type: ignore[arg-type]
    (run / folder.EPISODES).rename(tmp_path / "aside")
    with pytest.raises(ShoalError, match=r"the log of .* cannot be read"):
        shoal.resume(run, quiet=True, steps=400)
    (tmp_path / "aside").rename(run / folder.EPISODES)
    assert contents(run) == before
    assert shoal.resume(run, quiet=True, steps=400).reason == folder.FINISHED


def contents(run: Path) -> dict[str, bytes]:
    """Every file of a run but its checkpoints."""
    return {
        str(path.relative_to(run)): path.read_bytes()
        for path in run.rglob("*")
        if path.is_file() and checkpoint.FOLDER not in path.parts
    }
