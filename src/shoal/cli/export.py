"""`shoal export`: a run's policy for use without Shoal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..config.flags import parse
from ..export import formats
from ..export.check import Checked
from ..store import folder
from ..store.player import load
from .words import Trusting, first

FOLDER = "exports"  # subfolder of a run
USE = "shoal export <run> --to onnx"
TITLE = (
    "Write a run's policy for ONNX, StableHLO (jax.export), numpy, PyTorch or TensorFlow, compared"
    " with the policy itself before it is kept: shoal export runs/my-run --to onnx"
)


@dataclass(frozen=True)
class Export:
    """What to export, and in which format."""

    to: str = "onnx"
    """Format: onnx, stablehlo, numpy, torch, tensorflow, or one of an installed package."""
    team: str = ""
    """One team alone; empty for all, each in a folder of its own."""
    sampled: bool = False
    """Sample actions, with a seed as input, instead of taking the most likely ones."""
    best: bool = False
    """The policy that was evaluated best instead of the last one."""
    out: str = ""
    """Folder to write; empty for one in the run's folder."""


def export(args: list[str], trust: Trusting) -> int:
    """Export a policy and say how it was checked."""
    run, args = first(args, f"say which run to export: {USE}")
    options = parse(Export, Export(), args, "shoal export <run>", TITLE)
    formats.find(options.to)  # before anything is read
    player = load(run, best=options.best, trust=trust.files.everything)
    if options.team:
        player = player.team(options.team)
    done = player.export(
        options.out or _place(Path(run), options), options.to, greedy=not options.sampled
    )
    for team, checked in done.checked.items():
        print(f"team {team}: {_sentence(checked)}")
    if done.unplayed:
        print(f"no observations of the game itself were compared: {done.unplayed}")
    print(f"wrote {done.path}")
    return 0


def _sentence(checked: Checked) -> str:
    seen = "of the game and random" if checked.played else "random"
    return (
        f"{checked.decisions:,} decisions equal on observations, {seen}; largest difference"
        f" {checked.difference:.1g}"
    )


def _place(run: Path, options: Export) -> Path:
    """A folder named after the policy, in the run's folder; beside the policy if there is none."""
    words = [options.to.partition(":")[2] or options.to]
    words += [word for word, said in (("best", options.best), ("sampled", options.sampled)) if said]
    words += [options.team] if options.team else []
    home = run / FOLDER if (run / folder.CONFIG).is_file() else Path(f"{run.name}-{FOLDER}")
    return home / "-".join(words)
