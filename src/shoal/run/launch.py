"""Start the processes of one run: on this machine, or as a job of SLURM; `launch_ray.py` starts
them on a Ray cluster.

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
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from ..devices import SHARE, shares
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
    the exit code of the first.

    A share is a number. Which cores they are, the system decides from moment to moment: processes
    that wait for each other are slower if each is held to its own."""
    address = f"127.0.0.1:{free_port()}"
    with contextlib.ExitStack() as stack:
        children: list[LocalProcess] = []
        stack.callback(_end, children)
        for rank, cores in enumerate(shares(hosts)):
            told = variables(address, hosts, rank) | {SHARE: str(len(cores))}
            children.append(LocalProcess(words, told, not rank))
        return watched(children, f"shoal launch --hosts {hosts}")


def variables(address: str, count: int, rank: int) -> dict[str, str]:
    """Environment variables that tell a process which one of the run's it is."""
    return {METHOD: "jax", ADDRESS: address, COUNT: str(count), RANK: str(rank)}


class LocalProcess:
    """One of several processes of this machine; only the first shows what it prints."""

    def __init__(self, words: list[str], told: dict[str, str], shown: bool):
        self.output = -1 if shown else unnamed_file()
        self.popen = child(words, [], os.environ | told, None if shown else self.output)
        self.poll = self.popen.poll
        self.send_signal = self.popen.send_signal

    def said(self) -> str:
        return read_from(self.output, 0).decode(errors="replace") if self.output >= 0 else ""


def child(
    words: list[str],
    cores: list[int],
    variables: dict[str, str],
    output: int | None,
    folder: str | None = None,
) -> subprocess.Popen:
    """Start a process of a run, which ends with this one."""
    about = json.dumps({"parent": os.getpid(), "cores": cores})
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "shoal.cli.child", about, *words],
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,  # Ctrl-C reaches us alone, and we hand it on once
        cwd=folder,
    )


def unnamed_file() -> int:
    """A file that is gone with this process."""
    handle, name = tempfile.mkstemp()
    os.unlink(name)
    return handle


def read_from(handle: int, start: int) -> bytes:
    """What a file has from some byte on."""
    return os.pread(handle, 1 << 20, start)


class Process(Protocol):
    """One process of a run."""

    def poll(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None while it runs."""
        ...

    def send_signal(self, sig: int) -> None: ...

    def said(self) -> str:
        """What it printed that was not shown."""
        ...


def watched(processes: Sequence[Process], command: str) -> int:
    """Wait for all; return the exit code of the first, which gets Ctrl-C and SIGTERM. Once one has
    ended, the others have a while to end by themselves."""
    before = install(lambda number, _: processes[0].send_signal(number))
    until = float("inf")
    ended: list[int] = []  # ranks, in the order in which they ended
    try:
        while len(ended) < len(processes) and time.monotonic() < until:
            gone = [rank for rank, one in enumerate(processes) if one.poll() is not None]
            ended += [rank for rank in gone if rank not in ended]
            if ended:
                until = min(until, time.monotonic() + LATE)
            time.sleep(LOOK_EVERY)
    finally:
        restore(before)
    code = processes[0].poll()
    if code is not None and code >= 0:
        return code
    how = processes[ended[0]].poll() or 0
    if how > 0:  # it has said why
        print(processes[ended[0]].said(), end="", file=sys.stderr)
    raise ShoalError(
        f"process {ended[0]} of {len(processes)} ended{_how(how)}, and the run with it: go on from"
        f" its newest checkpoint with {command} resume <run>"
    )


def _how(code: int) -> str:
    """The signal that ended a process, in words; empty if none did."""
    return f" by {signal.Signals(-code).name}" if code < 0 else ""


def _end(children: list[LocalProcess]) -> None:
    for one in children:
        with contextlib.suppress(OSError):
            os.killpg(one.popen.pid, signal.SIGKILL)
        one.popen.wait()


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
        return {METHOD: "mpi4py"} | _on_this_machine()
    if "SUBMITIT_EXECUTOR" not in os.environ:
        return {METHOD: "slurm"}
    place = _submitit().JobEnvironment()
    port = FIRST_PORT + int("".join(filter(str.isdigit, place.job_id)) or 0) % FIRST_PORT
    local = place.hostnames[0] in (socket.gethostname(), "localhost")
    host = "127.0.0.1" if local and place.num_nodes == 1 else place.hostnames[0]
    return variables(f"{host}:{port}", place.num_tasks, place.global_rank)


def _on_this_machine() -> dict[str, str]:
    """Where the first process of `mpirun` listens, if all are on this machine; else JAX says."""
    try:
        from mpi4py import MPI  # type: ignore[import-not-found]
    except ImportError:
        raise ShoalError("mpirun needs mpi4py: pip install mpi4py") from None
    world = MPI.COMM_WORLD
    near = world.Split_type(MPI.COMM_TYPE_SHARED).Get_size()
    if near < world.Get_size():
        return {}
    port = world.bcast(free_port() if not world.Get_rank() else 0)
    return {ADDRESS: f"127.0.0.1:{port}"}


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


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nothing listens at."""
    with socket.socket() as one:
        one.bind((host, 0))
        return one.getsockname()[1]
