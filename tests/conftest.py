"""Two CPU devices, programs that compile fast, and one compilation cache for all tests and all runs
of them."""

import ctypes
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

CACHE = Path(__file__).parent.parent / ".cache"

# A shell lets what it starts in the background ignore Ctrl-C, which tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Before JAX starts: tests run a program once or twice, so it need not be a fast one. A quarter of
# the time to compile.
COMPILED_QUICKLY = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)


def _known(flags: tuple[str, ...]) -> str:
    """Those that this version of XLA has, as it ends a process over any other; asked once for each
    version."""
    note = CACHE / f"xla-flags-{version('jaxlib')}"
    if note.is_file():
        return note.read_text()
    told = " ".join(flags if _bears(flags) else filter(_bears, flags))
    try:
        CACHE.mkdir(exist_ok=True)
        note.write_text(told)
    except OSError:  # then the next one asks again
        pass
    return told


def _bears(flags: str | tuple[str, ...]) -> bool:
    words = flags if isinstance(flags, str) else " ".join(flags)
    asked = [sys.executable, "-c", "import jax; jax.devices('cpu')"]
    return not subprocess.run(
        asked, env=os.environ | {"XLA_FLAGS": words}, capture_output=True, check=False
    ).returncode


# Each once, also in a process started by one that has them: they are part of the cache's keys.
FLAGS = dict.fromkeys(f"{os.environ.get('XLA_FLAGS', '')} {_known(COMPILED_QUICKLY)}".split())
os.environ["XLA_FLAGS"] = " ".join(FLAGS)
SETTINGS = {
    "jax_compilation_cache_dir": str(CACHE / "xla"),
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
    "jax_traceback_in_locations_limit": 0,  # a program need not say where its lines came from
}

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_num_cpu_devices", 2)
for name, value in SETTINGS.items():
    jax.config.update(name, value)
    os.environ[name.upper()] = str(value)  # for processes that tests start

import shared_programs  # noqa: E402
from shared_programs import shared  # noqa: E402

from shoal import algorithms, envs  # noqa: E402

shared_programs.install()

# What every algorithm and game is tested for, `make test` tests of these; `make check` of all.
QUICK = {"mappo", "qmix", "masac"}
QUICK_GAMES = {"mpe/simple_tag", "mpe/simple_spread", "matrix/penalty", "lbf", "rware"}
NAMES = {*algorithms.ALGORITHMS, *envs.GAMES} - {*algorithms.UNTRAINED, *QUICK, *QUICK_GAMES}
OTHERS = {name for name in NAMES if not name.startswith("test/")}


# Bytes of a process that lets go of its programs: at the end of a file of tests, and in its midst
FULL = 0.8e9
TOO_FULL = 1.3e9


def pytest_collection_finish() -> None:
    """Let the garbage collector look less often, and not at what was imported: tracing makes many
    objects, a tenth of the time went into looking through them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Let go of programs: they add up to gigabytes, and are of little use to the next file."""
    goes_on = nextitem is not None and nextitem.path == item.path
    if _resident() > (TOO_FULL if goes_on else FULL):
        shared.made.clear()
        jax.clear_caches()
        gc.collect()
        if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):  # glibc keeps what is freed
            libc.malloc_trim(0)


@pytest.fixture
def monkeypatch(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """As pytest's; a test that replaces anything shares no programs, as they may differ."""
    replace = monkeypatch.setattr

    def setattr(*args: Any, **kwargs: Any) -> None:
        shared.on = False
        replace(*args, **kwargs)

    monkeypatch.setattr = setattr
    yield monkeypatch
    shared.on = True


def _resident() -> int:
    """Bytes of memory that this process holds; 0 where Linux is not there to say it."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of other algorithms and games slow."""
    for item in items:
        values = getattr(item, "callspec", None) and item.callspec.params.values()  # type: ignore[attr-defined]
        words = {word for value in values or () for word in _words(value)}
        if words & OTHERS and not words & {*QUICK, *QUICK_GAMES}:
            item.add_marker(pytest.mark.slow)


def _words(value: object) -> tuple[str, ...]:
    """The words of a parameter, which may be one or several."""
    parts = value if isinstance(value, tuple) else (value,)
    return tuple(part for part in parts if isinstance(part, str))
