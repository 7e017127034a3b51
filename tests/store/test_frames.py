"""Logs as frames of pandas."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from shoal.errors import ShoalError
from shoal.store import folder, frames


def a_run(path: Path, steps: int) -> Path:
    path.mkdir(parents=True)
    (path / folder.METRICS).write_text(f'{{"env_step": {steps}, "a/return": 1.5}}\n')
    (path / folder.EPISODES).write_text(
        f"env_step,episode,team,agent,return,length\n{steps},0,a,a_0,1.5,25\n"
    )
    return path


def test_a_run_and_a_group(tmp_path: Path):
    run = a_run(tmp_path / "run", 3)
    assert frames.metrics(run).to_dict("records") == [{"env_step": 3, "a/return": 1.5}]
    assert frames.episodes(run)["length"].tolist() == [25]
    group = tmp_path / "group"
    for seed in (10, 2):
        a_run(group / f"seed-{seed}", seed)
    (group / folder.GROUP).write_text("{}")
    assert frames.metrics(group)[["seed", "env_step"]].to_numpy().tolist() == [[2, 2], [10, 10]]
    assert frames.episodes(group)["seed"].tolist() == [2, 10]


def test_without_pandas_a_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ShoalError, match=r"pip install 'shoal\[notebook\]'"):
        frames.metrics(tmp_path)
