"""How a run ends before its end, and goes on: signals, callbacks, kills, names, and configs that
were changed."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.cli.main import main
from shoal.config.config import Config
from shoal.errors import ShoalError
from shoal.run import trainer
from shoal.run.evaluations import Evaluations
from shoal.store import folder

SIZES: dict[str, Any] = {
    "steps": 160,
    "games": 4,
    "window": 5,
    "eval_episodes": 3,
    "evaluations": 0,
}
SMALL: dict[str, Any] = {"hidden": 4, "layers": 1, "minibatches": 1}


def run(out: Path, name: str = "run", env: str = "test/identity", **options: Any) -> trainer.Result:
    return shoal.train(
        "ppo", env, preset=False, quiet=True, out=str(out), name=name, **(SIZES | SMALL | options)
    )


class Sent(shoal.Callback):
    """Sends this process a signal after the first steps."""

    def __init__(self, number: int):
        self.number = number

    def on_iteration(self, run: Any, values: Any) -> None:
        os.kill(os.getpid(), self.number)


class Enough(shoal.Callback):
    def on_iteration(self, run: Any, values: Any) -> None:
        run.stop()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("whole")).path


def weights(path: Path) -> bytes:
    return (path / "policy" / "weights.safetensors").read_bytes()


def test_ctrl_c_saves_and_ends_a_loop_over_seeds(whole: Path, tmp_path: Path) -> None:
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        for seed in range(3):
            run(tmp_path, f"seed-{seed}", seed=seed, callbacks=[Sent(signal.SIGINT)])
    assert [path.name for path in tmp_path.iterdir()] == ["seed-0"]
    assert signal.getsignal(signal.SIGINT) is handler
    cut = tmp_path / "seed-0"
    assert (
        json.loads((cut / "summary.json").read_text())["stopped"] == 2 and (cut / "policy").is_dir()
    )
    assert 0 < shoal.load(cut).steps < 160
    assert shoal.resume(cut, quiet=True).steps >= 160 and weights(cut) == weights(whole)


@pytest.mark.slow
def test_stopped_is_always_a_number(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a run that a callback stops, too, which is a result as any other; old summaries say the
    same."""
    monkeypatch.setattr(trainer, "GRACE", 600.0)  # also where compiling takes long
    told = json.loads((whole / "summary.json").read_text())["stopped"]
    by_callback, by_signal = (
        run(tmp_path, "a", callbacks=[Enough()]),
        run(tmp_path, "b", callbacks=[Sent(15)]),
    )
    assert (told, by_callback.stopped, by_signal.stopped) == (0, 15, 15)
    assert type(told) is type(by_callback.stopped) is type(by_signal.stopped) is int
    assert by_callback.scores == by_signal.scores and by_callback.random == by_signal.random != {}
    assert folder.finished(whole) and not folder.finished(by_callback.path)


@pytest.mark.slow
def test_who_asks_to_stop_does_not_wait_for_evaluations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is saved first; of slow games the last scores are those there are."""
    monkeypatch.setattr(trainer, "GRACE", 0.0)
    cut = run(tmp_path, env="gym:CartPole-v1", workers=0, callbacks=[Sent(signal.SIGTERM)])
    assert cut.stopped == 15 and cut.scores == cut.before and cut.random == {}
    assert (cut.path / "policy").is_dir() and (cut.path / "curve.png").is_file()
    evaluated = [
        line
        for line in (cut.path / "metrics.jsonl").read_text().splitlines()
        if "evaluation/length" in line
    ]
    assert len(evaluated) == 1
    done = shoal.resume(cut.path, quiet=True)
    assert done.steps >= 160 and done.random and done.scores
    patient = run(tmp_path, "patient", env="gym:CartPole-v1", workers=0, callbacks=[Enough()])
    assert patient.random and len(patient.scores) == 1


def test_who_asks_to_stop_during_the_last_evaluation_does_not_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = Evaluations.random

    def told(self: Evaluations, halted: Callable[[], bool]) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return play(self, halted)

    monkeypatch.setattr(trainer, "GRACE", 0.0)
    monkeypatch.setattr(Evaluations, "random", told)
    cut = run(tmp_path, env="gym:CartPole-v1", workers=0)
    assert cut.stopped == 15 and cut.scores and cut.random == {}


def test_a_name_is_claimed_before_anything_is_compiled(tmp_path: Path) -> None:
    """Of two that begin in the same second each has its own; nothing stays of one that comes to
    nothing."""
    out = tmp_path / "new" / "runs"
    teams = {"agent": ("ppo", {"hidden": 4, "minibatches": 1})}
    unnamed = Config.build("test/identity", teams, {}, {"out": str(out)})
    named = Config.build("test/identity", teams, {}, {"out": str(out), "name": "mine"})
    with (
        folder.claimed(unnamed) as one,
        folder.claimed(unnamed) as two,
        folder.claimed(unnamed) as three,
    ):
        assert len({one, two, three}) == 3
        one.mkdir()
    with (
        folder.claimed(named),
        pytest.raises(
            ShoalError,
            match=r"mine is being made by another"
            r" process",
        ),
    ):
        folder.claimed(named).__enter__()
    assert [path.name for path in out.iterdir()] == [one.name]
    one.rmdir()
    out.rmdir(), out.parent.rmdir()
    with folder.claimed(named):
        pass
    assert not list(tmp_path.iterdir())
    (tmp_path / ".mine.claim").touch()  # of somebody who was killed
    with folder.claimed(
        Config.build("test/identity", teams, {}, {"out": str(tmp_path), "name": "mine"})
    ) as again:
        assert again.name == "mine"


def test_a_run_that_fails_before_it_trains_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Any) -> None:
        raise ShoalError("no")

    monkeypatch.setattr(trainer.Trainer, "_prepare", broken)
    with pytest.raises(ShoalError, match="no"):
        run(tmp_path / "runs")
    assert not list(tmp_path.iterdir())


def test_killed_before_its_first_checkpoint_a_run_begins_anew(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = tmp_path / "cut"
    shutil.copytree(whole, cut)
    for name in ("policy", "checkpoints"):
        shutil.rmtree(cut / name)
    (cut / "summary.json").unlink()
    assert main(["resume", str(cut)]) == 2  # it was trained: nothing of it is thrown away
    assert "has no checkpoint to resume from" in capsys.readouterr().err
    first = (cut / "metrics.jsonl").read_text().splitlines()[0]
    (cut / "metrics.jsonl").write_text(first + "\n" + first[:20])
    (cut / "checkpoints" / "000000000000.tmp").mkdir(parents=True)
    assert main(["resume", str(cut)]) == 0
    assert "begins anew" in capsys.readouterr().out and weights(cut) == weights(whole)
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(whole / "config.json", bare)
    assert shoal.resume(bare, quiet=True).steps >= 160 and weights(bare) == weights(whole)


def test_a_config_that_was_changed_is_not_gone_on_with(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def changed(name: str, change: Any) -> Path:
        cut = tmp_path / name
        shutil.copytree(whole, cut)
        (cut / "summary.json").unlink()
        content = json.loads((cut / "config.json").read_text())
        change(content)
        (cut / "config.json").write_text(json.dumps(content))
        return cut

    def faster(config: dict) -> None:
        config["teams"]["agent"]["options"]["lr"] = 0.5

    for name, change, told in (
        ("lr", faster, "lr is 0.5, not 0.0005"),
        ("seed", lambda config: config["settings"].update(seed=7), "seed is 7, not 0"),
        ("steps", lambda config: config["settings"].update(steps=320), "steps is 320, not 160"),
    ):
        assert main(["resume", str(changed(name, change))]) == 2
        error = capsys.readouterr().err
        assert told in error and error.count("\n") == 1
    assert (
        main(["resume", str(changed("keep", lambda config: config["settings"].update(keep=1)))])
        == 0
    )
