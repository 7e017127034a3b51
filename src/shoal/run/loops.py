"""Which loop trains a run: compiled, with games on this host, on a cluster, or on several
processes."""

from __future__ import annotations

from collections.abc import Callable

from .. import peers
from ..clusters import LOCAL
from ..config.config import Config
from ..engine.host_loop import HostLoop
from ..engine.loop import Loop
from ..engine.peer_loop import leading
from ..engine.ray_host import cluster_loop
from ..envs.host.arena import Alone


def loop_of(config: Config, halted: Callable[[], bool], alone: Alone | None) -> Loop:
    """The loop of a config; `halted` tells games on the host that the run is to end."""
    s = config.settings
    if peers.several():
        return leading(config)
    parts = (config.game, config.algorithms, s.games, s.window, s.steps, config.devices)
    if not config.hosted:
        return Loop(*parts)
    if s.cluster != LOCAL:
        return cluster_loop(s.cluster, config, halted)
    bounds = (config.workers, s.patience, s.tolerance)
    return HostLoop(*parts, *bounds, halted, alone, staleness=s.staleness)
