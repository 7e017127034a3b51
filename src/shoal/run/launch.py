"""Start the processes of one run: on this machine, or as a job of SLURM.

Each is the same command, told by environment variables which of them it is (`peers.py`).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ..devices import shares
from ..errors import ShoalError
from ..options import convert
from ..peers import ADDRESS, COUNT, METHOD, RANK
from .signals import install, restore

LOOK_EVERY = 0.1  # seconds
LATE = 20.0  # seconds for the others to end, once one has
LOGS = "launches"  # folder for what the processes of a job print
FIRST_PORT = 20_000  # a job's own, by its number


def local(hosts: int, words: list[str]) -> int:
    """Run a command as several processes on this machine, each with its share of the cores; return
    the exit code of the first."""
    address = f"127.0.0.1:{_free_port()}"
    with contextlib.ExitStack() as stack:
        children: list[subprocess.Popen] = []
        stack.callback(_end, children)
        for rank, cores in enumerate(shares(hosts)):
            children.append(_start(words, cores, variables(address, hosts, rank)))
        before = install(lambda number, _: children[0].send_signal(number))
        stack.callback(restore, before)
        return _watched(children)


def variables(address: str, count: int, rank: int) -> dict[str, str]:
    """Environment variables that tell a process which one of the run's it is."""
    return {METHOD: "jax", ADDRESS: address, COUNT: str(count), RANK: str(rank)}


def _start(words: list[str], cores: list[int], told: dict[str, str]) -> subprocess.Popen:
    about = json.dumps({"parent": os.getpid(), "cores": cores})
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "shoal.cli.child", about, *words],
        env=os.environ | told,
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C reaches us alone, and we hand it on once
    )


def _watched(children: list[subprocess.Popen]) -> int:
    """Wait for all; once one has ended, the others have a while to end by themselves."""
    until = float("inf")
    ended: list[int] = []  # ranks, in the order in which they ended
    while len(ended) < len(children) and time.monotonic() < until:
        gone = [rank for rank, child in enumerate(children) if child.poll() is not None]
        ended += [rank for rank in gone if rank not in ended]
        if ended:
            until = min(until, time.monotonic() + LATE)
        time.sleep(LOOK_EVERY)
    code = children[0].poll()
    if code is not None and code >= 0:
        return code
    raise ShoalError(
        f"process {ended[0]} of {len(children)} ended{_how(children[ended[0]])}, and the run with"
        f" it: go on from its newest checkpoint with shoal launch --hosts {len(children)} resume"
        f" <run>"
    )


def _how(child: subprocess.Popen) -> str:
    """The signal that ended a process, in words; empty if none did."""
    code = child.poll() or 0
    return f" by {signal.Signals(-code).name}" if code < 0 else ""


def _end(children: list[subprocess.Popen]) -> None:
    for child in children:
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def submitted(by: str, hosts: int, words: list[str], options: str) -> int:
    """Submit a job with a process per host through submitit; wait only if it runs on this
    machine."""
    here = by == "submitit"
    asked = {"nodes": hosts, "tasks_per_node": 1} | _asked(options)
    submitit = _submitit()
    asked |= {"nodes": 1, "tasks_per_node": hosts} if here else {}
    try:
        executor = submitit.AutoExecutor(folder=Path(LOGS) / "%j", cluster="local" if here else by)
        executor.update_parameters(**asked)
        command = [sys.executable, "-m", "shoal", "launch", "--by", by, "--hosts", str(hosts)]
        job = executor.submit(submitit.helpers.CommandFunction([*command, *words]))
    except (FileNotFoundError, RuntimeError, NameError, ValueError, TypeError) as error:
        raise ShoalError(f"the job cannot be submitted ({error}): see --job and --by") from None
    print(f"job {job.job_id}: what its processes print is in {job.paths.folder}", flush=True)
    if not here:
        return 0
    try:
        job.results()
    except submitit.core.utils.FailedJobError as error:
        raise ShoalError(f"a process of job {job.job_id} failed: {_last_line(error)}") from None
    return 0


def inside_job() -> bool:
    """Whether this process is a task of a job that `submitted` started, or of `srun`."""
    return "SUBMITIT_EXECUTOR" in os.environ or "SLURM_STEP_ID" in os.environ


def own_place(by: str) -> dict[str, str]:
    """Environment variables of this process, which something else has started."""
    if by == "mpi":
        return {METHOD: "mpi4py"}
    if "SUBMITIT_EXECUTOR" not in os.environ:
        return {METHOD: "slurm"}
    place = _submitit().JobEnvironment()
    port = FIRST_PORT + int("".join(filter(str.isdigit, place.job_id)) or 0) % FIRST_PORT
    local = place.hostnames[0] in (socket.gethostname(), "localhost")
    host = "127.0.0.1" if local and place.num_nodes == 1 else place.hostnames[0]
    return variables(f"{host}:{port}", place.num_tasks, place.global_rank)


def _asked(options: str) -> dict[str, Any]:
    """The job's options, from `name=value,…`; a number is one."""
    pairs = [part.partition("=") for part in options.split(",") if part]
    for name, sign, value in pairs:
        if not (name and sign and value):
            raise ShoalError(f"job must be like partition=gpu,timeout_min=60, not {options!r}")
    return {
        name: convert(int, value, name) if value.isdigit() else value for name, _, value in pairs
    }


def _submitit() -> Any:
    try:
        import submitit
    except ImportError:
        raise ShoalError("jobs of SLURM need submitit: pip install 'shoal[cluster]'") from None
    return submitit


def _last_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("shoal: ")]
    return (told or lines)[-1].removeprefix("shoal: ")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
