"""`shoal launch`: train one run on several processes or hosts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from ..config.flags import parse
from ..config.trust import EVERYTHING, FLAG
from ..errors import ShoalError
from ..run import launch as engines
from .main import take_part
from .words import Trusting, asks_for_help

WHICH = "shoal launch --hosts 2 train <algorithm> <env> [options]"
HELP = f"""\
{WHICH}: one run whose games and
gradients are shared by several processes. The same number of devices gives the same bits in one
process or several. The first process has the run folder; `shoal launch --hosts 4 resume <run>` goes
on with it, on another number of hosts where the devices allow.

  --hosts 2        processes, one per host; on this machine each gets its share of the cores
  --by local       on this machine
  --by slurm       a job of SLURM with a task per host, by submitit: --job partition=gpu,time=60
                   are its options; inside such a job or `srun`, this process is one of them
  --by mpi         inside `mpirun -n 2 shoal launch --by mpi train …`: this process is one of them
  --by submitit    as slurm, but by submitit's local processes: to try it without SLURM
"""
INNER = ("train", "resume")


@dataclass(frozen=True)
class Launch:
    """Options of `shoal launch`."""

    hosts: int = 2
    """Processes, one per host."""
    by: Literal["local", "slurm", "mpi", "submitit"] = "local"
    """What starts them."""
    job: str = ""
    """Options of the job for SLURM, as submitit calls them: partition=gpu,timeout_min=60."""

    def __post_init__(self) -> None:
        if self.hosts < 1:
            raise ShoalError(f"hosts must be at least 1, not {self.hosts}")


def launch(args: list[str], trust: Trusting) -> int:
    """Start the processes of one run, or take part as one of them."""
    place = next((i for i, word in enumerate(args) if word in INNER), len(args))
    ours = args[:place]
    words = args[place:]
    if asks_for_help(ours) or not args:
        print(HELP, end="")
        return 0
    if not words:
        raise ShoalError(f"say what to launch, train or resume: {WHICH}")
    options = parse(Launch, Launch(), ours, "shoal launch", HELP)
    words += [FLAG] * (trust.files == EVERYTHING)  # `main` took it out
    if options.by == "mpi" or (options.by != "local" and engines.inside_job()):
        os.environ.update(engines.own_place(options.by))
        return take_part(words, trust)
    if options.by == "local":
        return engines.local(options.hosts, words)
    return engines.submitted(options.by, options.hosts, words, options.job)
