"""`shoal launch`: train one run on several processes or hosts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..config.arguments import compose_arguments
from ..config.flags import parse
from ..config.settings import LOCAL, check_cluster
from ..config.trust import EVERYTHING, FLAG
from ..engine.peer_loop import refuse_unfit
from ..errors import ShoalError
from ..run import launch as engines
from ..run.launch_ray import on_cluster
from ..store import folder
from ..store.places import local, url_of, word_of
from .main import take_part
from .words import Trusting, asks_for_help, first

WHICH = "shoal launch --hosts 2 train <algorithm> <env> [options]"
HELP = f"""\
{WHICH}: one run whose games and
gradients are shared by several processes. The same number of devices gives the same bits in one
process or several. The first process has the run folder; `shoal launch --hosts 4 resume <run>` goes
on with it, on another number of hosts where the devices allow.

  --hosts 2        processes, one per host; on this machine each gets its share of the cores
  --by local       on this machine
  --cluster auto   on the nodes of a Ray cluster, one each, by a placement group; or its address, as
                   in ray://host:10001
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
    cluster: str = LOCAL
    """Where they run: local is this machine, auto the Ray cluster that it is part of; or a
    cluster's address, as in ray://host:10001."""
    job: str = ""
    """Options of the job for SLURM, as submitit calls them: partition=gpu,timeout_min=60."""

    def __post_init__(self) -> None:
        if self.hosts < 1:
            raise ShoalError(f"hosts must be at least 1, not {self.hosts}")
        check_cluster(self.cluster)
        if self.cluster != LOCAL and self.by != "local":
            raise ShoalError(f"a cluster starts the processes itself: leave out --by {self.by}")


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
    if options.cluster != LOCAL:
        return _on_cluster(options, words, trust)
    if options.by == "mpi" or (options.by != "local" and engines.inside_job()):
        os.environ.update(engines.own_place(options.by))
        return take_part(words, trust)
    if options.by == "local":
        return engines.local(options.hosts, words)
    return engines.submitted(options.by, options.hosts, words, options.job)


def _on_cluster(options: Launch, words: list[str], trust: Trusting) -> int:
    """Start the processes on a cluster; the config says how many devices they need, and where the
    folder is."""
    verb, *args = words
    if verb == "resume":
        run, _ = first(args, f"say which run to go on with: {WHICH}")
        config = folder.config_of(Path(run), trust.files)
        out = Path(run).absolute().parent
        words = [verb, word_of(Path(run)) if url_of(Path(run)) else run, *args[1:]]
    else:
        config, _ = compose_arguments(
            [word for word in args if word != FLAG], trust.words, trust.files
        )
        out = local(config.settings.out)
    refuse_unfit(config)
    seen = None if url_of(out) else out
    return on_cluster(options.cluster, options.hosts, config.settings.devices, words, seen)
