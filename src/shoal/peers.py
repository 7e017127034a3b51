"""Processes that train one run together, connected by JAX's own runtime.

The first one leads: it has the trainer, the run folder and the evaluations. The others follow: they
wait for its words, and hold their share of the games.
"""

from __future__ import annotations

import itertools
import os
import socket
from typing import Any

import jax
import numpy as np
from jax._src import distributed  # words must pass before there are devices, and only this can

from .errors import ShoalError

# how the processes find each other: `jax` (the three variables below), or a method that JAX knows
METHOD = "SHOAL_PEERS"
ADDRESS = "JAX_COORDINATOR_ADDRESS"
COUNT = "JAX_NUM_PROCESSES"
RANK = "JAX_PROCESS_ID"
HEARTBEAT = 30  # seconds after which a silent process counts as lost
WAIT = 60_000  # milliseconds that a follower waits for a word before it asks again
READY = 300_000  # milliseconds that the leader waits for its followers
END = "end"


class Lost(ShoalError):
    """A process of the run is gone."""

    exit_code = 1
    reason = "lost a process"


class _Connection:
    """What this process knows of its peers."""

    joined = False
    broken = False  # a process is gone, so that nothing can be agreed any more
    told = False  # whether the followers know their number of devices
    words = itertools.count()


_here = _Connection()


def join() -> None:
    """Connect this process with the others that the environment variables name."""
    method = os.environ.get(METHOD, "jax")
    usual: dict[str, Any] = _place() if method == "jax" else {}
    try:
        jax.distributed.initialize(
            **usual,
            cluster_detection_method=None if method == "jax" else method,
            heartbeat_timeout_seconds=HEARTBEAT,
        )
    except (RuntimeError, ValueError) as error:
        why = " ".join(str(error).split())[:200]
        raise Lost(
            f"the processes of this run do not find each other ({why}): see that {ADDRESS},"
            f" {COUNT} and {RANK} are right in each, or start them by shoal launch"
        ) from None
    _here.joined = count() > 1


def _place() -> dict[str, Any]:
    """Where the first process is, how many there are, and which is this one."""
    try:
        return {
            "coordinator_address": os.environ[ADDRESS],
            "num_processes": int(os.environ[COUNT]),
            "process_id": int(os.environ[RANK]),
        }
    except (KeyError, ValueError):
        raise ShoalError(
            f"{ADDRESS}, {COUNT} and {RANK} must be an address and two numbers: set all three, or"
            f" none"
        ) from None


def several() -> bool:
    """Whether this process trains together with others."""
    return _here.joined


def count() -> int:
    """Number of processes."""
    return distributed.global_state.num_processes or 1


def rank() -> int:
    """The number of this process; 0 leads."""
    return distributed.global_state.process_id or 0


def name() -> str:
    """This process, as a person would find it."""
    return f"process {rank()} on {socket.gethostname()}"


def tell_devices(number: int) -> None:
    """Tell the followers how many devices all have together; 0 is one per core.

    Only the first time counts: JAX has then started."""
    if not rank() and not _here.told:
        _here.told = True
        _client().key_value_set("shoal/devices", str(number))


def devices() -> int:
    """The number of devices that the leader told."""
    return int(_wait("shoal/devices"))


def tell(word: str) -> None:
    """Tell the followers what to do next."""
    _client().key_value_set(f"shoal/word/{next(_here.words)}", word)


def hear() -> str:
    """Wait for the leader's next word."""
    return _wait(f"shoal/word/{next(_here.words)}")


def answer(wrong: str = "") -> None:
    """Tell the leader that this follower is ready, or what is wrong."""
    _client().key_value_set(f"shoal/ready/{rank()}", wrong)


def gather_answers() -> None:
    """Wait until all followers are ready; raise what is wrong with one."""
    for other in range(1, count()):
        try:
            wrong = _client().blocking_key_value_get(f"shoal/ready/{other}", READY)
        except jax.errors.JaxRuntimeError:
            raise lost(f"process {other} does not answer") from None
        _client().key_value_delete(f"shoal/ready/{other}")
        if wrong:
            raise ShoalError(wrong)


def lost(what: str) -> Lost:
    """The error to raise if a process is gone."""
    _here.broken = True
    return Lost(
        f"a process of the run was lost ({' '.join(what.split())[:200]}): go on from its newest"
        f" checkpoint with shoal launch --hosts {count()} resume <run>"
    )


def broken() -> bool:
    """Whether a process is gone, so that JAX must not wait for it."""
    return _here.broken


def leave() -> None:
    """Dismiss the followers."""
    if several() and not rank() and not broken():
        tell_devices(0)
        tell(END)


def sent(tree: Any) -> Any:
    """The leader's arrays, on every process; the others give arrays of the same shapes."""
    leaves, shape = jax.tree.flatten(tree)
    return jax.tree.unflatten(shape, [_sent(np.asarray(leaf)) for leaf in leaves])


def _sent(leaf: np.ndarray) -> np.ndarray:
    from jax.experimental import multihost_utils

    # as bytes: the exchange adds up, and 0.0 + -0.0 is 0.0
    flat = np.frombuffer(np.ascontiguousarray(leaf).tobytes(), np.uint8)
    got = multihost_utils.broadcast_one_to_all(flat, is_source=not rank())
    return np.frombuffer(np.asarray(got).tobytes(), leaf.dtype).reshape(leaf.shape)


def gathered(tree: Any) -> Any:
    """Arrays that are spread over the processes, whole, on each."""
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(tree, tiled=True)


def _wait(key: str) -> str:
    while True:
        try:
            return _client().blocking_key_value_get(key, WAIT)
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise lost(str(error)) from None


def _client() -> Any:
    return distributed.global_state.client
