"""Which seeds a group has: so many or just these, more of them later, and all trained further."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

import shoal
from shoal.cli.main import main
from shoal.config.arguments import compose_arguments
from shoal.config.campaign import Job
from shoal.config.settings import Settings, numbers
from shoal.errors import ShoalError
from shoal.run import trainer
from shoal.store import folder
from shoal.sweep import scheduler, seeds, vectorised

TINY = (
    "a2c test/identity --games 4 --window 5 --hidden 4 --layers 1 --evaluations 0"
    " --eval-episodes 2 --steps 100 --no-anneal"
)


def weights(run: Path) -> bytes:
    return (run / folder.POLICY / "weights.safetensors").read_bytes()


@pytest.mark.slow
def test_listed_seeds_are_a_group_that_gets_more_of_them_and_is_trained_further(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A seed that came later, and was trained at once, is as one that was trained further."""
    words = [*TINY.split(), "--seeds", "3,7", "--out", str(tmp_path), "--name", "group"]
    assert main(["train", *words]) == 0
    group = tmp_path / "group"
    content = json.loads((group / folder.GROUP).read_text())
    assert content["seeds"] == [3, 7] and content["finished"] == 2
    assert content["config"]["settings"]["seeds"] == "3,7"
    saved = json.loads((group / "seed-7" / folder.CONFIG).read_text())["settings"]
    assert (saved["seed"], saved["seeds"]) == (7, 1)
    stamp = (group / "seed-3" / folder.SUMMARY).stat().st_mtime_ns

    assert main(["train", *words]) == 2
    assert "(--seeds adds seeds)" in capsys.readouterr().err
    assert main(["resume", str(group), "--seeds", "3"]) == 0
    content = json.loads((group / folder.GROUP).read_text())
    assert content["seeds"] == [3, 7, 0] and list(content["scores"]) == [
        "seed-3",
        "seed-7",
        "seed-0",
    ]
    assert (group / "seed-3" / folder.SUMMARY).stat().st_mtime_ns == stamp
    assert main(["resume", str(group), "--seeds", "7,3"]) == 2
    assert "is finished: there is nothing to resume" in capsys.readouterr().err

    result = shoal.resume(group, steps=200, seeds=[4])
    assert "trained for 200 steps in all instead of 100" in capsys.readouterr().out
    assert result.steps >= 4 * 200
    content = json.loads((group / folder.GROUP).read_text())
    assert content["seeds"] == [3, 7, 0, 4] and content["finished"] == 4
    assert content["config"]["settings"]["steps"] == 200
    alone = [*TINY.split(), "--steps", "200", "--seed", "7", "--devices", "1"]
    config, _ = compose_arguments([*alone, "--out", str(tmp_path), "--name", "alone"])
    job = Job(tmp_path / "alone", alone)
    assert scheduler.work([job], quiet=True)[job.path].state == "finished"
    assert weights(job.path) == weights(group / "seed-7") and config.settings.seed == 7


COUNTS: dict[Any, list[int]] = {
    1: [10],
    3: [10, 11, 12],
    "2": [10, 11],
    "3,7": [3, 7],
    "7,": [7],
}


@pytest.mark.parametrize("seeds", COUNTS)
def test_seeds_are_a_count_or_a_list(seeds: Any) -> None:
    assert numbers(seeds, 10) == COUNTS[seeds]


@pytest.mark.parametrize("seeds", ["0", "-1", "x", "", ",", "3,3", "3,-7", "3,4294967296", "1001"])
def test_what_cannot_be_seeds_is_refused(seeds: str) -> None:
    with pytest.raises(ShoalError, match="seeds must be"):
        Settings(seeds=seeds)
    with pytest.raises(ShoalError, match="seeds must be"):
        compose_arguments([*TINY.split(), f"--seeds={seeds}"])


def test_one_seed_beside_a_list_is_refused() -> None:
    with pytest.raises(ShoalError, match="says which there are: leave out seed"):
        compose_arguments([*TINY.split(), "--seeds", "3,7", "--seed", "1"])
    assert compose_arguments([*TINY.split(), "--seeds", "3"])[0].settings.each == [0, 1, 2]
    assert not compose_arguments([*TINY.split(), "--seed", "3"])[0].settings.grouped
    assert compose_arguments([*TINY.split(), "--seeds", "3,7"])[0].settings.grouped


GROWN = {  # what there is, what is asked for, what there is then
    "so many": ([0, 1], "4", [0, 1, 2, 3]),
    "so many beside others": ([3, 7], "5", [3, 7, 0, 1, 2]),
    "these": ([0, 1], "1,9", [0, 1, 9]),
    "none that is new": ([0, 1], "2", [0, 1]),
}


@pytest.mark.parametrize("case", GROWN)
def test_a_group_grows(case: str) -> None:
    there, asked, then = GROWN[case]
    assert seeds._with_more(Path("group"), there, asked, 0) == then


def test_a_group_does_not_shrink(tmp_path: Path) -> None:
    with pytest.raises(ShoalError, match="has 3 seeds already: ask for more, not 2"):
        seeds._with_more(tmp_path, [0, 1, 2], "2", 0)


@pytest.mark.slow
def test_runs_with_other_numbers_in_one_program_end_as_alone(tmp_path: Path) -> None:
    """Each learns with its own; the program takes them as arrays."""
    words = [*TINY.split(), "--devices", "1", "--out", str(tmp_path)]
    each = [(1e-3, 0.01, 0.9), (1e-2, 0.05, 0.99)]
    configs = [
        compose_arguments(
            [*words, "--lr", str(lr), "--entropy", str(e), "--gamma", str(g), "--name", f"run-{k}"]
        )[0]
        for k, (lr, e, g) in enumerate(each)
    ]
    assert {name: len(values) for name, values in vectorised.numbers(configs)["agent"].items()} == {
        "entropy": 2,
        "gamma": 2,
        "lr": 2,
    }
    vectorised.work(configs, quiet=True)
    learnt = []
    for config in configs:
        settings = replace(config.settings, out=str(tmp_path / "alone"))
        alone = trainer.train(replace(config, settings=settings), quiet=True).path
        both = [load(weights(run)) for run in (alone, tmp_path / alone.name)]
        for name, own in both[0].items():
            np.testing.assert_allclose(both[1][name], own, rtol=1e-4, atol=1e-6)
        learnt.append(both[1])
    assert any((learnt[0][name] != learnt[1][name]).any() for name in learnt[0])


@pytest.mark.slow
def test_seeds_in_one_program_are_trained_further(tmp_path: Path) -> None:
    """As on an accelerator; one of them begins only then."""
    base, _ = compose_arguments([*TINY.split(), "--devices", "1", "--out", str(tmp_path)])

    def work(steps: int, count: int) -> None:
        alike = [
            replace(base.settings, steps=steps, seed=seed, name=f"seed-{seed}")
            for seed in range(count)
        ]
        outcomes = vectorised.work([replace(base, settings=own) for own in alike], quiet=True)
        assert [outcome.state for outcome in outcomes.values()] == ["finished"] * count

    work(100, 1)
    work(200, 2)
    assert folder.totals(tmp_path / "seed-0") == [200, 100]
    assert folder.totals(tmp_path / "seed-1") == [200]
    assert all(folder.finished(tmp_path / f"seed-{seed}", 200) for seed in range(2))
