"""Devices and the compilation cache: settings that JAX must get before it starts."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import jax

from . import peers
from .errors import ShoalError

# programs that took at least so many seconds to compile are cached: all of them
CACHED_FROM = 0.0
SHARE = "SHOAL_CORES"  # environment variable: how many cores are this process's share


def setup(cores: int = 0) -> None:
    """Cache compiled programs on disk, and make every core, or `cores` of them, a JAX device.

    Processes that train together have `cores` in all. A JAX that has started keeps its devices. XLA
    gets as many threads as there are devices: the number of threads decides how it splits large
    sums, and so their last bits.
    """
    if peers.several():
        peers.tell_devices(cores)
    place = cache()
    if jax.config.jax_compilation_cache_dir is None and place:  # type: ignore[attr-defined]
        jax.config.update("jax_compilation_cache_dir", str(place / "xla"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", CACHED_FROM)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    asked_elsewhere = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if jax.config.jax_num_cpu_devices < 1 and not asked_elsewhere:  # type: ignore[attr-defined]
        there = len(usable())
        here = -(-cores // peers.count())  # of all that the processes have together
        here = min(here or there, there)
        with contextlib.suppress(RuntimeError):  # JAX has started: use the devices it has
            jax.config.update("jax_num_cpu_devices", here)
            os.environ.setdefault("NPROC", str(here * peers.count()))


def compute_in_the_calling_thread() -> None:
    """Let JAX compute on cores in the thread that calls a program, before JAX starts.

    By default it hands most programs to a thread of its own, so that the caller goes on; one who
    waits for each small result only waits longer. Results are the same."""
    jax.config.update("jax_cpu_enable_async_dispatch", False)


def usable() -> list[int]:
    """The cores that this process may use, or as many of them as are its share; macOS tells only
    how many there are."""
    if hasattr(os, "sched_getaffinity"):
        cores = sorted(os.sched_getaffinity(0))
    else:
        cores = list(range(os.cpu_count() or 1))
    return cores[: int(os.environ.get(SHARE, len(cores)))]


def shares(count: int) -> list[list[int]]:
    """The cores of each of `count` processes that share those that this one may use."""
    cores = usable()
    return [cores[slot::count] or [cores[slot % len(cores)]] for slot in range(count)]


def cache() -> Path | None:
    """The folder for files kept between commands; None for a user without a home."""
    home = os.environ.get("XDG_CACHE_HOME")
    try:
        place = (Path(home) if home else Path.home() / ".cache") / "shoal"
        place.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return place if os.access(place, os.W_OK | os.X_OK) else None


def choices(games: int, asked: int) -> list[int]:
    """Possible numbers of devices, largest first: the one asked for, or all that divide the
    games."""
    setup(asked)
    there = jax.device_count()
    if not asked:
        return [n for n in range(there, 0, -1) if games % n == 0]
    if asked > there:
        raise ShoalError(
            f"{asked} devices were asked for, but JAX has {there}: set devices to"
            f" 0 to use what there is"
        )
    if games % asked:
        raise ShoalError(
            f"{games} games cannot be shared evenly by {asked} devices: change games or devices"
        )
    return [asked]


def room(devices: int) -> float:
    """Bytes of memory of that many devices, as far as they report it."""
    first = jax.devices()[0]
    if first.platform == "cpu":  # all cores share one memory
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return devices * float((first.memory_stats() or {}).get("bytes_limit", float("inf")))
