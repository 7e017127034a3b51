"""`shoal train` and `shoal resume`."""

from __future__ import annotations

from pathlib import Path

from ..config.campaign import FILE
from ..config.compose import assemble
from ..config.trust import FLAG
from ..errors import ShoalError
from ..run import trainer
from ..store.summary import Result
from ..sweep import seeds
from . import campaign
from .words import Trusting, asks_for_help

RESUME = f"""\
shoal resume <run>: go on with a run that was interrupted, from its newest checkpoint, or with
what is left of a group (--seeds) or a campaign. Nothing is to be repeated: the folder says all.
An environment of somebody's own, which it names, is only run with {FLAG}.
"""


def train(args: list[str], trust: Trusting) -> int:
    """Train what the words say."""
    config, note = assemble(args, trust.words, trust.files)
    if note:
        print(note, flush=True)
    return _code((seeds if config.settings.seeds > 1 else trainer).train(config))


def resume(args: list[str], trust: Trusting) -> int:
    """Go on with a run, a group or a campaign."""
    if len(args) != 1 or args[0].startswith("-"):
        if asks_for_help(args):
            print(RESUME, end="")
            return 0
        raise ShoalError("say one run and nothing else: shoal resume <run>")
    run = Path(args[0])
    if (run / FILE).exists():
        return campaign.campaign(args, trust)
    return _code((seeds if seeds.is_group(run) else trainer).resume(run, trust=trust.files))


def _code(result: Result) -> int:
    """128 and the signal that ended a run early, as shells have it."""
    return 128 + result.stopped if result.stopped else 0
