"""Messages and checks before a run begins: who plays, and what the run needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from .. import __version__
from ..config.config import Config
from ..devices import room
from ..engine import sizing
from ..engine.loop import Loop
from ..store import folder

SMALL = 1e6  # bytes; smaller sizes are not mentioned


def introduce(config: Config, loop: Loop, path: Path, say: Callable[[str], None]) -> None:
    """Tell what a run plays and how large it is; refuse one for which there is no room."""
    s = config.settings
    device = f"{config.devices} {jax.devices()[0].platform} device{'s' * (config.devices > 1)}"
    say(
        f"shoal {__version__}: {config.label} on {config.env}, seed {s.seed}, {device}, into {path}"
    )
    sizes = loop.sizes()
    for team, facts in folder.protocol(config)["teams"].items():
        agents = config.sides[team].n
        who = f"{agents} agents play" if agents > 1 else "1 agent plays"
        updates = facts["updates_per_step"]
        memory = f", memory {sizing.readable(sizes[team])}" if sizes[team] > SMALL else ""
        say(
            f"team {team}: {who} {config.algorithms[team].name}, reward {facts['reward']},"
            f" each step enters {updates:g} gradient update{'s' * (updates != 1)}{memory}"
        )
    sizing.check_memory(sum(sizes.values()), room(config.devices))
    nets = sum(np.size(leaf) * 4 for leaf in jax.tree.leaves(loop.learners(0)))
    size = sum(sizes.values()) + 2 * nets  # the current nets and the best ones
    if size > SMALL:
        say(f"checkpoints of about {sizing.readable(size)}, {s.keep} kept")
    sizing.check_disk(path, size, s.keep)
