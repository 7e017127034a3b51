"""One run on several processes: the same bits as in one, and what happens if one is lost."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from nodes import nodes

from shoal import clusters, peers
from shoal.cli.main import main
from shoal.run.launch import free_port, variables

TINY = (
    "--hidden 8 --layers 1 --games 4 --window 5 --steps 400 --eval-episodes 2 --evaluations 0"
    " --devices 2 --seed 3 --no-preset --name run"
)
RUNS = {
    "mappo": "mappo mpe/simple_spread --minibatches 1",
    "qmix": "qmix mpe/simple_spread --warmup 40 --capacity 200 --batch 4 --length 4",
    "maddpg": "maddpg mpe/simple_spread --warmup 40 --capacity 200 --batch 4 --length 4",
}
# long enough to be stopped while it runs
LONG = f"train {RUNS['mappo']} {TINY}".replace("400", "40000 --save-every 2000")
LOOPBACK = ("0100007F", "00000000000000000000000001000000")  # 127.0.0.1, also in IPv6, and ::1
LISTENING = """
import os
from pathlib import Path
import jax
from shoal import peers
peers.join()
jax.devices()
own = {os.readlink(one) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()}
for table in ("tcp", "tcp6"):
    for line in Path("/proc/self/net", table).read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and f"socket:[{words[9]}]" in own:
            print(words[1].partition(":")[0])
"""
several_cores = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores")
pytestmark = several_cores


def shoal(words: str, place: Path, start: str = "") -> subprocess.Popen:
    """`shoal` in a process of its own, in the folder `place`."""
    command = [*start.split(), sys.executable, "-m", "shoal", *words.split()]
    with (place / "log").open("a") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=place)


def ended(process: subprocess.Popen, seconds: float = 300) -> int:
    """Its exit code; one that hangs is ended, with those it started."""
    try:
        return process.wait(seconds)
    finally:
        process.terminate()


def told(place: Path) -> str:
    """All that was printed there."""
    return (place / "log").read_text()


def checkpoint(run: Path) -> bytes:
    """The arrays of the newest checkpoint: all that decides the future."""
    return max((run / "checkpoints").iterdir()).joinpath("state.safetensors").read_bytes()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The last checkpoint of each run in one process, made when first asked for."""

    class Made(dict):
        def __missing__(self, name: str) -> bytes:
            place = tmp_path_factory.mktemp(name)
            process = shoal(f"train {RUNS[name]} {TINY} --out {place}", place)
            assert ended(process) == 0, (place / "log").read_text()
            self[name] = checkpoint(place / "run")
            return self[name]

    return Made()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The last checkpoint of a run that was left alone, in one process."""
    place = tmp_path_factory.mktemp("whole")
    assert ended(shoal(f"{LONG} --out {place}", place)) == 0, told(place)
    return checkpoint(place / "run")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mappo", "qmix", "maddpg"])
def test_two_processes_end_as_two_devices_of_one(
    name: str, alone: dict[str, bytes], tmp_path: Path
) -> None:
    process = shoal(f"launch --hosts 2 train {RUNS[name]} {TINY} --out {tmp_path}", tmp_path)
    assert ended(process) == 0, told(tmp_path)
    assert checkpoint(tmp_path / "run") == alone[name]
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["reason"] == "finished"


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_lost_process_ends_all_with_a_sentence_and_the_run_goes_on(
    rank: int, whole: bytes, tmp_path: Path
) -> None:
    process = shoal(f"launch --hosts 2 {LONG} --out {tmp_path}", tmp_path)
    run = tmp_path / "run"
    _wait_for(lambda: len(list(run.glob("checkpoints/*"))) > 1, process)
    os.kill(_children(process.pid)[rank], signal.SIGKILL)
    assert ended(process, 60) != 0
    said = told(tmp_path)
    assert "a process of the run was lost" in said or "ended by SIGKILL" in said
    assert "resume" in said and "Traceback" not in said
    assert not _children(process.pid)
    assert ended(shoal(f"launch --hosts 2 resume {run}", tmp_path)) == 0
    assert checkpoint(run) == whole


@pytest.mark.slow
def test_ctrl_c_saves_and_one_process_goes_on(whole: bytes, tmp_path: Path) -> None:
    process = shoal(f"launch --hosts 2 {LONG} --out {tmp_path}", tmp_path)
    run = tmp_path / "run"
    _wait_for(lambda: len(list(run.glob("checkpoints/*"))) > 1, process)
    process.send_signal(signal.SIGINT)
    assert ended(process, 60) == 130
    assert json.loads((run / "summary.json").read_text())["stopped"] == signal.SIGINT
    assert ended(shoal(f"resume {run}", tmp_path)) == 0
    assert checkpoint(run) == whole


@pytest.mark.slow
def test_mpirun_starts_the_processes(alone: dict[str, bytes], tmp_path: Path) -> None:
    mpirun = shutil.which("mpirun", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if not mpirun or not importlib.util.find_spec("mpi4py"):
        pytest.skip("needs mpirun and mpi4py")
    start = f"{mpirun} --allow-run-as-root --oversubscribe -n 2"
    process = shoal(
        f"launch --by mpi train {RUNS['mappo']} {TINY} --out {tmp_path}", tmp_path, start
    )
    assert ended(process) == 0, told(tmp_path)
    assert checkpoint(tmp_path / "run") == alone["mappo"]


@pytest.mark.slow
def test_submitit_starts_the_processes(alone: dict[str, bytes], tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    words = f"launch --hosts 2 --by submitit train {RUNS['mappo']} {TINY} --out {tmp_path}"
    assert ended(shoal(words, tmp_path)) == 0, told(tmp_path)
    assert checkpoint(tmp_path / "run") == alone["mappo"]


@pytest.mark.slow
def test_a_placement_group_gives_each_process_a_node(
    alone: dict[str, bytes], tmp_path: Path
) -> None:
    """On a simulated cluster; a lost node ends all, and one machine goes on from the checkpoint."""
    pytest.importorskip("ray")
    train = f"train {RUNS['mappo']} {TINY} --out {tmp_path}"
    with nodes(2) as cluster:
        place = f"--cluster {cluster.address}"
        assert ended(shoal(f"launch --hosts 2 {place} {train}", tmp_path)) == 0, told(tmp_path)
        assert checkpoint(tmp_path / "run") == alone["mappo"]
        assert not (tmp_path / clusters.SIGN).exists()
        assert ended(shoal(f"launch --hosts 3 {place} {train}", tmp_path)) == 2
        assert "3 hosts need a node with 1 core each, and the cluster has 2" in told(tmp_path)

        train = train.replace("--steps 400", "--steps 400000 --save-every 2000")
        run = tmp_path / "long"
        words = f"launch --hosts 2 {place} {train.replace('--name run', '--name long')}"
        process = shoal(words, tmp_path)
        _wait_for(lambda: len(list(run.glob("checkpoints/*"))) > 1, process)
        cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
        assert ended(process, 120) != 0
        assert f"--cluster {cluster.address} resume <run>" in told(tmp_path)
        assert "Traceback" not in told(tmp_path)
    done = int(max((run / "checkpoints").iterdir()).name)
    resumed = shoal(f"resume {run} --steps {done + 2000}", tmp_path)
    assert ended(resumed) == 0, told(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (f"train {RUNS['mappo']} {TINY} --seeds 2", "train one run together, not several seeds"),
        ("train ppo gym:CartPole-v1", "outside the compiled program"),
        (f"train {RUNS['mappo']} --games 4 --devices 1", "cannot be shared by 2 processes"),
        ("train mapo mpe/simple_spread", "mappo"),
    ],
)
def test_what_several_processes_cannot_do_is_said_in_one_sentence(
    words: str, sentence: str, tmp_path: Path
) -> None:
    process = shoal(f"launch --hosts 2 {words}", tmp_path)
    assert ended(process, 120) == 2
    assert sentence in told(tmp_path) and "Traceback" not in told(tmp_path)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--hosts 2", "say what to launch"),
        ("--hosts 0 train mappo mpe/simple_spread", "hosts must be at least 1"),
        ("--by slurm --job gpu train mappo mpe/simple_spread", "job must be like"),
        ("--by mpi --cluster auto train mappo mpe/simple_spread", "leave out --by mpi"),
        ("--cluster auto train ppo gym:CartPole-v1", "outside the compiled program"),
        ("--cluster auto train mappo mpe/simple_spread --seeds 2", "not several seeds"),
        ("--cluster 127.0.0.1:1 train mappo mpe/simple_spread", "no cluster answers at"),
    ],
)
def test_wrong_options_of_launch(
    words: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["launch", *words.split()]) == 2
    assert sentence in capsys.readouterr().err


def test_a_process_listens_where_it_is_found() -> None:
    assert peers._address_towards("127.0.0.1:20000") == "127.0.0.1"
    assert peers._address_towards("localhost:20000") in ("127.0.0.1", "::1")


@pytest.mark.skipif(not Path("/proc/net/tcp6").exists(), reason="needs Linux's list of sockets")
def test_nothing_but_loopback_hears_the_processes_of_this_machine() -> None:
    """JAX alone would listen at all addresses."""
    address = f"127.0.0.1:{free_port()}"
    made = [
        subprocess.Popen(
            [sys.executable, "-c", LISTENING],
            env=os.environ | variables(address, 2, rank),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    found = [process.communicate(timeout=300)[0].split() for process in made]
    assert len(found[0]) >= 2 and found[1]  # the coordinator, and where arrays are exchanged
    assert all(place.endswith(LOOPBACK) for place in found[0] + found[1]), found


def _wait_for(happened: object, process: subprocess.Popen) -> None:
    until = time.monotonic() + 300
    while not happened():  # type: ignore[operator]
        assert process.poll() is None, "it ended too soon"
        assert time.monotonic() < until
        time.sleep(0.05)


def _children(parent: int) -> list[int]:
    """Process ids of its children, in the order of their start."""
    done = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, text=True, check=False)
    return sorted(int(line) for line in done.stdout.split())
