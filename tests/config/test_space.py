"""What a search varies, as typed."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.config import space
from shoal.config.space import Dimension
from shoal.errors import ShoalError


def test_ranges_and_values_are_read() -> None:
    words = [
        "lr=1e-4..1e-2:log",
        "--hidden=32..128:3",
        "gamma=0.9,0.99",
        "env.continuous=true,false",
    ]
    assert space.parse(words) == [
        Dimension("lr", 1e-4, 1e-2, log=True),
        Dimension("hidden", 32, 128, whole=True, count=3),
        Dimension("gamma", values=(0.9, 0.99)),
        Dimension("env.continuous", values=(True, False)),
    ]


@pytest.mark.parametrize(
    "word", ["lr", "lr=", "=3", "lr=3..1", "lr=0..1:log", "lr=a..b", "lr=1..2:3:4", "a=1,1"]
)
def test_what_is_no_range_is_said(word: str) -> None:
    with pytest.raises(ShoalError):
        space.parse([word])


def test_an_option_is_varied_once_and_something_is() -> None:
    with pytest.raises(ShoalError, match="by one --over"):
        space.parse(["a=1,2", "a=3,4"])
    with pytest.raises(ShoalError, match="say what to vary"):
        space.parse([])


def test_a_grid_has_every_combination() -> None:
    made = space.grid(space.parse(["lr=1e-4..1e-2:log:3", "hidden=8,16"]))
    assert len(made) == 6 and made[0] == {"lr": pytest.approx(1e-4), "hidden": 8}
    assert made[2]["lr"] == pytest.approx(1e-3)
    with pytest.raises(ShoalError, match="how many values lr has"):
        space.grid(space.parse(["lr=1e-4..1e-2"]))


def test_values_become_flags() -> None:
    values = {"lr": 0.5, "env.continuous_actions": False, "anneal": True, "agent.lr": 1}
    assert space.flags(values) == [
        *("--lr", "0.5"),
        *("--env.no-continuous-actions", "--anneal"),
        *("--agent.lr", "1"),
    ]


def test_draws_stay_inside() -> None:
    rng = np.random.default_rng(0)
    one, other = space.parse(["lr=1e-4..1e-2:log", "n=2..4"])
    draws = [one.draw(rng) for _ in range(200)]
    assert min(draws) >= 1e-4 and max(draws) <= 1e-2 and np.median(draws) < 2e-3
    assert {other.draw(rng) for _ in range(100)} == {2, 3, 4}
    assert one.clamped(1.0) == 1e-2 and other.clamped(0.0) == 2
