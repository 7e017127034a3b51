"""`shoal train` and `shoal resume`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .. import peers
from ..config.arguments import compose_arguments
from ..config.campaign import FILE
from ..config.flags import parse
from ..config.settings import LOCAL, check_cluster
from ..config.trust import FLAG
from ..engine.peer_loop import refuse_unfit
from ..errors import ShoalError
from ..run import trainer
from ..store.folder import CONFIG
from ..store.summary import Result
from ..sweep import seeds
from . import campaign
from .words import Trusting, asks_for_help, first

WHICH = "shoal resume <run> [--steps <steps>] [--seeds <seeds>] [--cluster <place>]"
RESUME = f"""\
{WHICH}: go on with a run that was interrupted, from its newest
checkpoint, or with what is left of a group (--seeds) or a campaign. Nothing is to be repeated: the
folder says all.

  --steps 4e6      train a run, or every run of a group, for so many steps in all, also if it is
                   finished. What changes over the whole run, such as an annealed learning rate, is
                   then spread over all of them, and so goes back up; what counts steps, such as
                   exploration, goes on.
  --seeds 5        let a group have five seeds; --seeds 3,7 lets it have these as well.
  --cluster auto   go on with a group or a campaign on a Ray cluster, or, with local, on this
                   machine.

An environment of somebody's own, which the folder names, is only run with {FLAG}.
"""


@dataclass(frozen=True)
class Resume:
    """Options of `shoal resume`."""

    steps: int = 0
    """Environment steps to train for in all; 0 is as the folder says."""
    seeds: str = ""
    """Of a group: how many seeds to have in all, or which to add, as in 3,7."""
    cluster: str = ""
    """Of a group or a campaign: where to go on; empty is where it was, for a campaign this
    machine."""

    def __post_init__(self) -> None:
        if self.cluster:
            check_cluster(self.cluster)
        if self.steps < 0:
            raise ShoalError(f"steps must not be negative, not {self.steps!r}")


def train(args: list[str], trust: Trusting) -> int:
    """Train an algorithm on an environment."""
    config, messages = compose_arguments(args, trust.words, trust.files)
    for message in messages:
        print(message, flush=True)
    if peers.several():
        refuse_unfit(config)
    return code_of((seeds if config.settings.grouped else trainer).train(config))


def resume(args: list[str], trust: Trusting) -> int:
    """Resume a run, a group or a campaign."""
    if asks_for_help(args):
        print(RESUME, end="")
        return 0
    word, args = first(args, f"say which run to go on with: {WHICH}")
    options = parse(Resume, Resume(), args, "shoal resume <run>", RESUME)
    run = Path(word)
    if (run / FILE).exists():
        if options != Resume(cluster=options.cluster):
            raise ShoalError(
                f"{run} is a campaign, whose runs are compared after equal steps: add seeds with"
                f" shoal campaign, or train another for more steps"
            )
        place = ["--cluster", options.cluster] if options.cluster else []
        return campaign.campaign([word, *place], trust)
    if seeds.is_group(run):
        return code_of(
            seeds.resume(run, False, trust.files, options.steps, options.seeds, options.cluster)
        )
    if options.cluster not in ("", LOCAL):
        raise ShoalError(f"{run} is one run, which goes on on this machine: leave out --cluster")
    if options.seeds:
        raise ShoalError(
            f"{run} is one run, and only a group has seeds: shoal train {run / CONFIG}"
            f" --seeds {options.seeds} makes one"
        )
    return code_of(trainer.resume(run, trust=trust.files, steps=options.steps))


def code_of(result: Result) -> int:
    """Exit code: 128 plus the signal that ended a run early, as in shells."""
    return 128 + result.stopped if result.stopped else 0
