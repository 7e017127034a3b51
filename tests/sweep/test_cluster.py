"""Runs on a Ray cluster: the same as on this machine, also if nodes and workers are lost."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nodes import nodes

from shoal import clusters
from shoal.cli.main import main
from shoal.config.campaign import Job
from shoal.errors import ShoalError
from shoal.store import checkpoint, folder
from shoal.sweep import progress, scheduler

ray = pytest.importorskip("ray")
TINY = (
    "a2c test/identity --games 4 --window 5 --hidden 8 --layers 1 --evaluations 0"
    " --eval-episodes 2 --steps 200 --devices 1"
)
# long enough to be killed while it runs
LONG = (
    "a2c test/identity --games 4 --window 5 --hidden 8 --layers 1 --evaluations 2"
    " --eval-episodes 2 --steps 60000 --save-every 2000 --devices 1"
)
PATIENCE = 300.0  # seconds


@pytest.fixture(scope="module")
def small() -> Iterator[Any]:
    """A cluster of one node with one core."""
    with nodes(1) as made:
        yield made


def weights(run: Path) -> bytes:
    return (run / folder.POLICY / "weights.safetensors").read_bytes()


@pytest.mark.slow
def test_runs_on_a_cluster_are_those_of_this_machine(
    small: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What fails there is named, with its node; a run that no node can hold is refused."""
    there, here, bad = (tmp_path / name for name in ("there", "here", "bad"))
    jobs = [Job(there, TINY.split()), Job(bad, ["a2c", "no_such_package:make"])]
    outcomes = scheduler.work(jobs, cluster=small.address)
    assert outcomes[there] == (progress.FINISHED, "", 0)
    assert outcomes[bad].state == progress.FAILED
    assert re.match(r"on 127\.0\.0\.\d+: ", outcomes[bad].message)
    assert "no_such_package" in outcomes[bad].message
    assert scheduler.work([Job(here, TINY.split())], quiet=True)[here].state == progress.FINISHED
    assert weights(there) == weights(here)
    assert not (tmp_path / clusters.SIGN).exists()
    with pytest.raises(ShoalError, match=r"asks for 4 cores, and the largest node of the .* has 1"):
        scheduler.work([Job(tmp_path / "large", TINY.split(), cores=4)], cluster=small.address)
    assert not (tmp_path / "large").exists()


def test_what_is_no_cluster_is_said_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["train", *TINY.split(), "--out", str(tmp_path)]
    assert main([*words, "--seeds", "2", "--cluster", "somewhere"]) == 2
    assert "cluster must be local, auto or an address" in capsys.readouterr().err
    assert main([*words, "--cluster", "auto"]) == 2
    assert "a cluster trains several seeds" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
        with pytest.raises(ShoalError, match="no cluster answers at"):
            clusters.connect(address)
    monkeypatch.setattr(clusters, "JOIN", 0.5)
    assert "did not answer as a cluster" in clusters._joined(Mute(), "127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ShoalError, match=r"pip install 'shoal\[cluster\]'"):
        clusters.connect("auto")


def test_errors_of_ray_are_sentences() -> None:
    full = ray.exceptions.ObjectStoreFullError("x")
    assert "object store is full" in clusters.sentence(full)
    assert "install the same packages" in clusters.sentence(
        ray.exceptions.RayError("ModuleNotFoundError: No module named 'shoal'")
    )


def test_a_node_that_differs_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = clusters.versions()
    assert clusters.why_incompatible(ours) == ""
    assert "has jax" in clusters.why_incompatible(ours | {"jax": "0.0.1"})
    monkeypatch.setattr(time, "sleep", lambda _: None)
    (tmp_path / clusters.SIGN).write_text("a")
    assert clusters.unseen(str(tmp_path / clusters.SIGN), "a") == ""
    assert "does not see the folder" in clusters.unseen(str(tmp_path / clusters.SIGN), "b")


class Mute:
    """A Ray that never gets to an end."""

    def init(self, *_: Any, **__: Any) -> None:
        time.sleep(5)


class Vanishing:
    """An engine whose runs are always lost."""

    def __init__(self, steps: list[int]):
        self.steps = steps

    def free(self, job: Job) -> bool:
        return True

    def start(self, job: Job) -> Any:
        return self

    def ended(self, run: Any) -> None: ...
    def close(self) -> None: ...
    def signal(self, number: int) -> None: ...

    def status(self) -> Any:
        steps = self.steps.pop(0) if self.steps else 0
        return scheduler.Status("n", progress.Progress(steps), lost=True)


def test_a_run_that_is_lost_again_and_again_where_it_stands_fails(tmp_path: Path) -> None:
    forward = list(range(1, 30))
    with scheduler.Scheduler(Vanishing(forward), quiet=True) as one:
        one.waiting.append(Job(tmp_path / "run", []))
        rounds = 0
        while one.busy:
            one.look()
            rounds += 1
    outcome = one.outcomes[tmp_path / "run"]
    assert outcome.state == progress.FAILED and "lost 10 times at 29 steps" in outcome.message
    assert rounds >= 29 + scheduler.MOST_LOSSES  # as long as it gets on, it is begun again


@pytest.mark.slow
def test_lost_nodes_and_workers_cost_nothing(tmp_path: Path) -> None:
    """Four nodes; one is killed, and the process of a run on another: the runs end as undisturbed
    ones."""
    jobs = [Job(tmp_path / f"run-{k}", [*LONG.split(), "--seed", str(k)]) for k in range(4)]
    outcomes: dict[Path, Any] = {}
    with nodes(4) as made:
        work = threading.Thread(
            target=lambda: outcomes.update(scheduler.work(jobs, cluster=made.address))
        )
        work.start()
        wait_until(lambda: any(checkpoint.done(job.path) for job in jobs))
        made.remove_node(next(iter(made.worker_nodes)), allow_graceful=False)
        victims = []
        wait_until(lambda: bool(victims) or not work.is_alive() or victims.extend(children(jobs)))
        if victims:
            os.kill(victims[0], signal.SIGKILL)
        work.join(PATIENCE)
    assert {outcome.state for outcome in outcomes.values()} == {progress.FINISHED}
    said = "".join(folder.console(job.path).read_text() for job in jobs)
    assert "resuming" in said
    for k, job in enumerate(jobs[:2]):
        whole = Job(tmp_path / f"whole-{k}", job.args)
        scheduler.work([whole], quiet=True)
        assert weights(job.path) == weights(whole.path)


@pytest.mark.slow
def test_a_group_and_a_campaign_on_a_cluster(tmp_path: Path) -> None:
    with nodes(2) as made:
        place = ["--cluster", made.address]
        words = [*TINY.split(), "--seeds", "2", "--out", str(tmp_path), "--name", "group", *place]
        assert main(["train", *words]) == 0
        content = json.loads((tmp_path / "group" / folder.GROUP).read_text())
        assert content["finished"] == 2
        saved = json.loads((tmp_path / "group" / "seed-1" / folder.CONFIG).read_text())
        assert saved["settings"]["cluster"] == "local"
        sizes = TINY.split()[2:-2]
        words = ["a2c", "test/identity", *sizes, "--seeds", "2", "--out", str(tmp_path / "c")]
        assert main(["campaign", *words, *place]) == 0
    runs = sorted((tmp_path / "c" / "runs").glob("*/summary.json"))
    assert len(runs) == 2


def children(jobs: list[Job]) -> list[int]:
    """Processes that train one of these runs."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if "shoal.cli.child" in words and any(job.path.name in words for job in jobs):
            found.append(int(place.name))
    return found


def wait_until(happened: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.05)
