"""A run is trained further than it was begun for: `shoal resume <run> --steps`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.cli.main import main
from shoal.errors import ShoalError
from shoal.run.trainer import Trainer
from shoal.store import folder
from shoal.store.summary import Result

SIZES: dict[str, Any] = {
    "games": 2,
    "window": 5,
    "hidden": 4,
    "layers": 1,
    "evaluations": 1,
    "eval_episodes": 2,
    "keep": 2,
}
OFF: dict[str, Any] = {"warmup": 20, "capacity": 200, "batch": 4, "length": 4, "updates": 1}
HALF = 100
WHOLE = 200


def train(out: Path, name: str, algorithm: str = "a2c", **options: Any) -> Result:
    own = OFF if algorithm == "dqn" else {}
    return shoal.train(
        algorithm,
        "test/mortal",
        out=str(out),
        name=name,
        quiet=True,
        preset=False,
        **(SIZES | own | options),
    )


def weights(run: Path) -> bytes:
    return (run / folder.POLICY / "weights.safetensors").read_bytes()


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / folder.METRICS).read_text().splitlines()]


def learnt(run: Path) -> list[dict[str, Any]]:
    """What was logged of training, but for the time it took."""
    timed = ("seconds", "steps_per_second")
    return [
        {name: value for name, value in line.items() if name not in timed}
        for line in lines(run)
        if "evaluation/length" not in line
    ]


def looks(run: Path) -> dict[int, float]:
    """Scores of all evaluations by step."""
    return {
        line["env_step"]: line["evaluation/agent/return"]
        for line in lines(run)
        if "evaluation/length" in line
    }


class Enough(shoal.Callback):
    """Stops a run after so many steps."""

    def __init__(self, steps: int):
        self.steps = steps

    def on_iteration(self, run: Any, values: dict[str, float]) -> None:
        if run.steps >= self.steps:
            run.stop()


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, annealed."""
    return train(tmp_path_factory.mktemp("half"), "run", steps=HALF).path


@pytest.fixture
def run(half: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(half, tmp_path / "run"))


@pytest.mark.parametrize("algorithm", ["a2c", "dqn"])
def test_half_and_further_is_the_whole_to_the_bit_where_nothing_is_annealed(
    algorithm: str, tmp_path: Path
) -> None:
    """The learning rate is the one thing that knows how long a run is."""
    whole = train(tmp_path, "whole", algorithm, steps=WHOLE, anneal=False)
    first = train(tmp_path, "first", algorithm, steps=HALF, anneal=False)
    then = shoal.resume(first.path, quiet=True, steps=WHOLE)
    assert then.steps == whole.steps and then.scores == whole.scores
    assert weights(first.path) == weights(whole.path)
    assert learnt(first.path) == learnt(whole.path)


@pytest.mark.slow
def test_an_annealed_rate_goes_back_up(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = weights(run)
    done = json.loads((run / folder.SUMMARY).read_text())["steps"]
    assert main(["resume", str(run), "--steps", "2e2"]) == 0
    told = capsys.readouterr().out
    assert f"resuming {run} at {done} of {WHOLE} steps" in told
    assert f"trained for {WHOLE} steps in all instead of {HALF}" in told
    assert f"now stands at {done / WHOLE:.0%} of it, not at 100%" in told
    assert weights(run) != before


def test_the_folder_goes_on(run: Path) -> None:
    """Config, evaluations, best, curve and summary are of all steps; what it ended with at first
    stays in them."""
    first = json.loads((run / folder.SUMMARY).read_text())
    seen = looks(run)
    (run / folder.CURVE).unlink()
    result = shoal.resume(run, quiet=True, steps=float(WHOLE))
    config = json.loads((run / folder.CONFIG).read_text())
    assert config["settings"]["steps"] == WHOLE
    assert config["extended"] == [{"steps": HALF, "done": first["steps"]}]
    assert looks(run).items() >= seen.items() and max(looks(run)) == result.steps >= WHOLE
    assert first["steps"] in seen
    assert result.before == first["before"] and result.reason == folder.FINISHED
    assert result.best and result.best.score == max(looks(run).values())
    assert json.loads((run / folder.SUMMARY).read_text())["steps"] == result.steps
    assert (run / folder.CURVE).exists() and shoal.load(run).steps == result.steps
    with pytest.raises(ShoalError, match="is finished: there is nothing to resume"):
        shoal.resume(run, quiet=True)


def test_interrupted_on_the_way_it_is_resumed_as_any(run: Path, tmp_path: Path) -> None:
    """Stopped after a checkpoint of the new steps, or broken before there was one."""
    copies = [Path(shutil.copytree(run, tmp_path / name)) for name in ("stopped", "broken")]
    shoal.resume(run, quiet=True, steps=WHOLE)
    stopped = shoal.resume(copies[0], quiet=True, steps=WHOLE, callbacks=[Enough(HALF + 40)])
    assert stopped.stopped and stopped.steps < WHOLE
    with pytest.MonkeyPatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(Trainer, "_train", _broken)
        shoal.resume(copies[1], quiet=True, steps=WHOLE)
    for copy in copies:
        assert shoal.resume(copy, quiet=True).steps >= WHOLE
        assert weights(copy) == weights(run) and learnt(copy) == learnt(run)
        assert looks(copy).items() >= looks(run).items()


def _broken(*_: Any) -> None:
    raise RuntimeError("power cut")


def test_it_can_be_trained_further_more_than_once(run: Path) -> None:
    shoal.resume(run, quiet=True, steps=150)
    assert shoal.resume(run, quiet=True, steps=WHOLE).steps >= WHOLE
    extended = json.loads((run / folder.CONFIG).read_text())["extended"]
    assert [one["steps"] for one in extended] == [HALF, 150]


@pytest.mark.slow
def test_an_interrupted_run_may_end_sooner(tmp_path: Path) -> None:
    cut = train(tmp_path, "cut", steps=1000, callbacks=[Enough(40)]).path
    result = shoal.resume(cut, quiet=True, steps=HALF)
    assert HALF <= result.steps < WHOLE and folder.finished(cut)


@pytest.mark.parametrize("steps", [1, HALF])
def test_steps_that_it_has_are_refused(run: Path, steps: int) -> None:
    done = json.loads((run / folder.SUMMARY).read_text())["steps"]
    told = "is finished" if steps == HALF else f"has been trained for {done} steps already"
    with pytest.raises(ShoalError, match=told):
        shoal.resume(run, quiet=True, steps=steps)
    assert folder.finished(run) and folder.totals(run) == [HALF]


def test_a_run_has_no_seeds_to_add(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resume", str(run), "--seeds", "3"]) == 2
    assert "is one run, and only a group has seeds" in capsys.readouterr().err
    with pytest.raises(ShoalError, match="only a group has seeds"):
        shoal.resume(run, seeds=[3, 4])
