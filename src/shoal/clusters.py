"""Ray clusters: how one is reached, what goes to its nodes, and what its errors mean."""

from __future__ import annotations

import logging
import os
import platform
import secrets
import socket
import sys
import threading
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .errors import ShoalError

LOCAL = "local"  # stands for this machine
AUTO = "auto"  # the cluster that this machine is part of
INSTALL = "a cluster needs Ray: pip install 'shoal[cluster]'"
REACH = 10.0  # seconds for an address to answer
JOIN = 60.0  # seconds to join a cluster
LOOPBACK = ("127.0.0.1", "localhost", "::1")
SIGN = ".cluster"  # file by which a node shows that it sees a folder
OURS = ("JAX_", "XLA_")  # variables that may decide bits, and so go along


def connect(address: str) -> tuple[Any, bool]:
    """Ray, connected to a cluster, and whether this call connected it."""
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"  # a cluster that is lost is not made anew
    try:
        import ray
    except ImportError:
        raise ShoalError(INSTALL) from None
    if ray.is_initialized():
        return ray, False
    logging.getLogger("ray").setLevel(logging.ERROR)
    place = _found(address)
    host = _reach(place)
    if host in LOOPBACK:
        # otherwise Ray takes 127.0.0.1 for this machine's outer address, where nothing listens
        from ray._private import ray_constants

        ray_constants.ENABLE_RAY_CLUSTER = False
    wrong = _joined(ray, place)
    if wrong:
        raise ShoalError(
            f"the cluster at {place} cannot be used ({wrong}): it must run the same versions of"
            " Ray and Python, and this machine must be one of its"
            " nodes, or reach it by ray://<host>:10001"
        )
    return ray, True


def _joined(ray: Any, place: str) -> str:
    """Join a cluster, within a time that Ray itself does not keep; return what went wrong."""
    wrong = [f"it did not answer as a cluster within {JOIN:g} s"]

    def join() -> None:
        try:
            ray.init(
                place, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False
            )
            wrong[0] = ""
        except Exception as error:
            wrong[0] = (str(error).strip().splitlines() or [type(error).__name__])[0]

    if place.startswith("ray://"):  # a client belongs to its thread, and keeps a time
        join()
        return wrong[0]
    thread = threading.Thread(target=join, daemon=True)
    thread.start()
    thread.join(JOIN)
    return wrong[0]


def _found(address: str) -> str:
    """The address of a cluster; `auto` is the one that this machine is part of."""
    if address != AUTO:
        return address
    from ray._private.utils import read_ray_address

    place = os.environ.get("RAY_ADDRESS") or read_ray_address()
    if not place:
        raise ShoalError(
            "this machine is part of no Ray cluster: start one (ray start --head), or say its"
            " address (--cluster ray://<host>:10001)"
        )
    return place


def _reach(place: str) -> str:
    """The host of an address at which something answers."""
    parts = urlsplit(place if "://" in place else f"//{place}")
    try:
        host, port = parts.hostname or "", parts.port or 10001
        socket.create_connection((host, port), REACH).close()
    except (OSError, ValueError) as error:
        raise ShoalError(
            f"no cluster answers at {place} ({error}): check --cluster, and that the cluster runs"
        ) from None
    return host


def sentence(error: Exception) -> str:
    """What an error of Ray means to a user."""
    import ray.exceptions as errors

    last = str(error).strip().splitlines()[-1:] or [type(error).__name__]
    if isinstance(error, errors.ObjectStoreFullError | errors.OutOfDiskError):
        return "the node's object store is full: end what fills it, or give Ray more of it"
    if "No module named" in str(error):
        return f"a node cannot run Shoal ({last[0]}): install the same packages on every node"
    return f"Ray failed ({last[0]})"


def versions() -> dict[str, str]:
    """Versions that must be equal for runs to be equal."""
    return {
        "shoal": version("shoal"),
        "jax": version("jax"),
        "python": ".".join(platform.python_version_tuple()[:2]),
    }


def why_incompatible(theirs: dict[str, str]) -> str:
    """What is wrong with the versions of this node."""
    for name, here in versions().items():
        if here != theirs[name]:
            return (
                f"this node has {name} {here}, and the machine that sent the run"
                f" {theirs[name]}: install the same versions on every node"
            )
    return ""


def sent_variables() -> dict[str, str]:
    """Variables that go to a node: what decides bits, and folders of the user's own modules."""
    installed = {Path(place).resolve() for place in (sys.prefix, sys.base_prefix)}
    own = [
        str(Path(place).resolve())
        for place in sys.path
        if place and not installed & {*Path(place).resolve().parents}
    ]
    ours = {name: value for name, value in os.environ.items() if name.startswith(OURS)}
    return ours | {"PYTHONPATH": os.pathsep.join(own)}


def child_variables(sent: dict[str, str]) -> dict[str, str]:
    """Environment variables of a child on this node."""
    # how many threads there are, each run decides; Ray sets the second
    unset = ("NPROC", "OMP_NUM_THREADS")
    own = {name: value for name, value in os.environ.items() if name not in unset}
    paths = [sent["PYTHONPATH"], *([own["PYTHONPATH"]] if own.get("PYTHONPATH") else [])]
    return (
        {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        | own
        | sent
        | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    )


def sign(folder: Path) -> tuple[str, str]:
    """Leave a file in a folder by which a node shows that it sees it: its path and content."""
    content = secrets.token_hex(8)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SIGN).write_text(content)
    return str(folder / SIGN), content


def unsign(folder: Path) -> None:
    """Remove what `sign` left."""
    (folder / SIGN).unlink(missing_ok=True)


def unseen(sign: str, content: str) -> str:
    """What is wrong if this node does not see the folder of the runs."""
    for _ in range(10):  # a network's file system may show it late
        try:
            if Path(sign).read_text() == content:
                return ""
        except OSError:
            pass
        time.sleep(0.5)
    return (
        f"this node does not see the folder {Path(sign).parent} of the machine that sent the run:"
        " choose an --out that all nodes share, or one such as s3://bucket/runs"
    )
