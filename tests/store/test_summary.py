"""Every run that began says in its folder how it ended."""

from __future__ import annotations

import errno
import json
import signal
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.errors import ShoalError
from shoal.monitor.metrics import Diverged
from shoal.run.trainer import Trainer
from shoal.store import folder

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
