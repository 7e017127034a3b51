"""What all tests share: one compilation cache, whoever starts a process."""

from __future__ import annotations

import os
from pathlib import Path

import jax

CACHED = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")


def test_a_flag_of_xla_stands_once_as_flags_are_part_of_the_caches_keys() -> None:
    flags = os.environ["XLA_FLAGS"].split()
    assert flags and len(flags) == len(set(flags))


def test_processes_that_tests_start_have_the_same_cache() -> None:
    for name in CACHED:
        assert os.environ[name.upper()] == str(getattr(jax.config, name))
    assert Path(jax.config.jax_compilation_cache_dir).name == "xla"  # type: ignore[attr-defined]
