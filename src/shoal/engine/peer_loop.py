"""The training loop on several processes: one leads, the others do the same with their devices.

Every collective act (open, restore, call, fetch) is announced to the followers, so that all
processes enter it together. Between them, the leader is as free as a run on one process.
"""

from __future__ import annotations

import dataclasses
import json
import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from .. import peers
from ..config.config import Config
from ..config.trust import EVERYTHING
from ..errors import ShoalError
from ..types import TrainState
from .loop import LOCAL, Loop, Metrics

Program = Callable[[TrainState], tuple[TrainState, Metrics | None]]


class LeadingLoop(Loop):
    """The loop of the process that leads."""

    def init(self, seed: int) -> TrainState:
        peers.tell(f"init {seed}")
        return _together(super().init, seed)

    def restored(self, state: TrainState) -> TrainState:
        peers.tell("restore")
        return _together(partial(_restored, self), state)

    def compile(self, state: TrainState, iterations: int) -> Program:
        peers.tell(f"compile {iterations}")
        return partial(self._call, super().compile(state, iterations))

    def _call(self, program: Program, state: TrainState) -> tuple[TrainState, Metrics | None]:
        peers.tell("call")
        return _together(program, state)

    def fetch(self, state: TrainState, fields: Sequence[str] = TrainState._fields) -> TrainState:
        peers.tell(f"fetch {' '.join(fields)}")
        return _together(_fetched, state, fields)

    def with_learners(self, state: TrainState, learners: dict[str, Any]) -> TrainState:
        return self.restored(self.fetch(state)._replace(learners=learners))


def leading(config: Config) -> LeadingLoop:
    """Make the loop of a run on all processes; raise what one of them lacks."""
    refuse_unfit(config)
    if config.devices != jax.device_count():
        raise ShoalError(
            f"{config.devices} devices cannot be shared by {peers.count()} processes with"
            f" {jax.device_count()} in all: set devices to 0, or ask for another number of hosts"
        )
    settings = dataclasses.replace(config.settings, devices=config.devices)
    plain = dataclasses.replace(config, settings=settings).to_json()
    peers.tell(f"make {json.dumps(plain)}")
    peers.gather_answers()
    return loop_of(config, LeadingLoop)


def refuse_unfit(config: Config) -> None:
    """Raise if several processes cannot train a config together."""
    if config.hosted:
        raise ShoalError(
            f"games of {config.env!r} run outside the compiled program, and their learner on one"
            f" process: train without shoal launch, with more --workers"
        )
    if config.settings.grouped:
        raise ShoalError(
            "several processes train one run together, not several seeds: leave out --seeds, or"
            " train them without shoal launch, by --cluster on several machines"
        )


def follow() -> int:
    """Do as the leader says until it ends; return the exit code.

    Ctrl-C and SIGTERM are the leader's to answer."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    loop: Any = None
    state: Any = None
    program: Any = None
    while (word := peers.hear()) != peers.END:
        verb, _, rest = word.partition(" ")
        if verb == "make":
            loop = _made(rest)
        elif verb == "init":
            state = _together(loop.init, int(rest))
        elif verb == "restore":
            state = _together(_restored, loop, loop.template(0))
        elif verb == "compile":
            program = loop.compile(state, int(rest))
        elif verb == "call":
            state, _ = _together(program, state)
        elif verb == "fetch":
            _together(_fetched, state, rest.split())
    return 0


def _made(plain: str) -> Loop | None:
    """The leader's loop, from its config, which it trusts; the leader hears what is wrong."""
    try:
        loop = loop_of(Config.from_json(json.loads(plain), EVERYTHING), Loop)
    except (ShoalError, ImportError) as error:
        peers.answer(f"{peers.name()} cannot take part: {error}")
        return None
    peers.answer()
    return loop


def loop_of(config: Config, kind: type[Loop]) -> Any:
    """The compiled loop of a config."""
    s = config.settings
    return kind(config.game, config.algorithms, s.games, s.window, s.steps, config.devices)


def _together(act: Callable[..., Any], *args: Any) -> Any:
    """Do what needs all processes; raise `Lost` if one is gone."""
    try:
        return jax.block_until_ready(act(*args))
    except jax.errors.JaxRuntimeError as error:
        raise peers.lost(str(error)) from None


def _restored(loop: Loop, state: TrainState) -> TrainState:
    """The leader's state, placed on the devices of all processes."""
    like = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), state)
    whole = peers.sent(like if peers.rank() else state)
    fields = {
        field: jax.tree.map(partial(_placed, sharding), getattr(whole, field))
        for field, sharding in loop.shardings._asdict().items()
    }
    return TrainState(**fields)


def _placed(sharding: Any, leaf: np.ndarray) -> jax.Array:
    """An array on the devices of this process, as its part of the whole."""
    return jax.make_array_from_callback(leaf.shape, sharding, lambda index: leaf[index])


def _fetched(state: TrainState, fields: Sequence[str]) -> TrainState:
    """The state with these fields on the host, whole."""
    whole = {
        field: (peers.gathered if field in LOCAL else jax.device_get)(getattr(state, field))
        for field in fields
    }
    return state._replace(**whole)
