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

# words must pass before there are devices, and CPUs exchange arrays at an address of our choice:
# only these can
from jax._src import distributed, xla_bridge
from jax._src.clusters import ClusterEnv
from jax._src.lib import _jax  # type: ignore[reportPrivateImportUsage]

from .errors import ShoalError

# how the processes find each other: `jax` (the three variables below), or a method that JAX knows
METHOD = "SHOAL_PEERS"
ADDRESS = "JAX_COORDINATOR_ADDRESS"
LISTENS = "JAX_COORDINATOR_BIND_ADDRESS"  # where the first process listens, if not there
COUNT = "JAX_NUM_PROCESSES"
RANK = "JAX_PROCESS_ID"
COMMAND = "SHOAL_LAUNCH"  # what was typed before the words of the run, if not the usual
FINDING = 300  # seconds for the processes to find each other
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
    """Connect this process with the others that the environment variables name.

    It listens at the address that is named, where JAX alone would listen at all addresses."""
    try:
        place = _place()
        address = place["coordinator_address"]
        jax.distributed.initialize(
            **place,
            coordinator_bind_address=os.environ.get(LISTENS, address),
            cluster_detection_method="deactivate",
            initialization_timeout=FINDING,
            heartbeat_timeout_seconds=HEARTBEAT,
        )
        _exchange_at(_address_towards(address))
    except (RuntimeError, ValueError, OSError) as error:
        why = " ".join(str(error).split())[:200]
        raise Lost(
            f"the processes of this run do not find each other ({why}): see that {ADDRESS},"
            f" {COUNT} and {RANK} are right in each, or start them by shoal launch"
        ) from None
    _here.joined = count() > 1


def _place() -> dict[str, Any]:
    """Where the first process is, how many there are, and which is this one."""
    method = os.environ.get(METHOD, "jax")
    names = ("coordinator_address", "num_processes", "process_id", "local_device_ids")
    try:
        if method == "jax":
            values = (os.environ[ADDRESS], int(os.environ[COUNT]), int(os.environ[RANK]), None)
        else:
            given = os.environ.get(ADDRESS)
            values = ClusterEnv.auto_detect_unset_distributed_params(
                given, None, None, None, method, FINDING
            )
    except (KeyError, ValueError):
        raise ShoalError(
            f"{ADDRESS}, {COUNT} and {RANK} must be an address and two numbers: set all three, or"
            f" none"
        ) from None
    return dict(zip(names, values, strict=True))


def _address_towards(address: str) -> str:
    """The address of this process on the network of another: loopback if that is there."""
    host, _, port = address.rpartition(":")
    family, kind, _, _, place = socket.getaddrinfo(
        host.strip("[]"), int(port), type=socket.SOCK_DGRAM
    )[0]
    with socket.socket(family, kind) as unused:
        unused.connect(place)  # sends nothing
        return unused.getsockname()[0]


def _exchange_at(address: str) -> None:
    """Let CPUs exchange arrays at an address of this process, not at that of its machine's name."""

    def client() -> Any:
        there = _jax.make_gloo_tcp_collectives(distributed.global_state.client, hostname=address)
        return xla_bridge.make_cpu_client(there)

    if jax.config.jax_cpu_collectives_implementation == "gloo":  # type: ignore[attr-defined]
        xla_bridge.register_backend_factory("cpu", client, priority=0, fail_quietly=False)


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


def tell_devices(number: int | None) -> None:
    """Tell the followers how many devices all have together; 0 is one per core, None is the end.

    Only the first time counts: JAX has then started."""
    if not rank() and not _here.told:
        _here.told = True
        _client().key_value_set("shoal/devices", END if number is None else str(number))


def devices() -> int | None:
    """The number of devices that the leader told; None if it ended before."""
    told = _wait("shoal/devices")
    return None if told == END else int(told)


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
    command = os.environ.get(COMMAND, f"shoal launch --hosts {count()}")
    return Lost(
        f"a process of the run was lost ({' '.join(what.split())[:200]}): go on from its newest"
        f" checkpoint with {command} resume <run>"
    )


def broken() -> bool:
    """Whether a process is gone, so that JAX must not wait for it."""
    return _here.broken


def leave() -> None:
    """Dismiss the followers, also those who do not know their devices yet."""
    if several() and not rank() and not broken():
        tell_devices(None)
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
