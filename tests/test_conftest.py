"""What all tests share: one compilation cache, whoever starts a process, and programs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax
import pytest
from helpers import TEAM, build, mortal
from shared_programs import of_loop, shared

from shoal.algorithms import find
from shoal.engine import loop as engine
from shoal.engine.loop import Loop

CACHED = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")


def test_a_flag_of_xla_stands_once_as_flags_are_part_of_the_caches_keys() -> None:
    flags = os.environ["XLA_FLAGS"].split()
    assert flags and len(flags) == len(set(flags))


def test_processes_that_tests_start_have_the_same_cache() -> None:
    for name in CACHED:
        assert os.environ[name.upper()] == str(getattr(jax.config, name))
    assert Path(jax.config.jax_compilation_cache_dir).name == "xla"  # type: ignore[attr-defined]


def loop(steps: int = 1000, **settings: Any) -> Loop:
    env = mortal()
    return Loop(env, {TEAM: build("mappo", env, hidden=4, layers=1, **settings)}, 2, 4, steps)


def test_loops_share_a_program_if_all_that_they_are_made_of_is_equal() -> None:
    assert of_loop(loop()) == of_loop(loop())
    assert loop()._opening_program is loop()._opening_program
    assert of_loop(loop()) != of_loop(loop(lr=1e-4))  # held by an optimiser's closure alone
    assert of_loop(loop()) != of_loop(loop(steps=2000))


def test_a_class_of_the_same_name_is_another() -> None:
    class Mappo(find("mappo")):
        name = "mappo"

    own = loop()
    own.algorithms[TEAM].__class__ = Mappo
    assert of_loop(own) != of_loop(loop())


def test_who_replaces_a_part_of_us_shares_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = loop()._opening_program
    monkeypatch.setattr(engine, "EACH", 1)
    assert not shared.on and loop()._opening_program is not kept
