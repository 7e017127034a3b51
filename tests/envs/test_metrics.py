"""What an environment says about an episode: names that nothing can be taken for, numbers that are
some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from games import Scored
from jax import Array

from shoal.config.config import Config
from shoal.envs import make
from shoal.envs.check import check
from shoal.envs.game import Game, measure
from shoal.envs.metrics import checked, declared, meant, split
from shoal.envs.native.probes import Endless
from shoal.errors import ShoalError
from shoal.store.metrics_file import COLUMNS, episode_name, metrics_in, tag

TEAMS = ("ally", "enemy", "a/b")


@pytest.mark.parametrize(
    "names", [("won",), ("ally/won", "enemy/won"), ("a/b/won",), ("return", "length"), ["x.y-z_1"]]
)
def test_a_metric_is_of_the_game_or_of_a_team(names: Any) -> None:
    assert checked(names, TEAMS, "x") == tuple(names)
    keys = [episode_name(name) for name in names]
    # no column, no team's metric and no word of ours can be meant
    assert len(set(keys)) == len(keys) and not set(keys) & set(COLUMNS)
    assert all(key.startswith("episode/") for key in keys) and tag("episode") == "%episode"
    line = {f"evaluation/{key}": 0.5 for key in keys} | {"evaluation/%episode/return": 1.0}
    assert metrics_in(line, TEAMS, evaluation=True) == dict.fromkeys(names, 0.5)


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ("won", "must be a tuple of names"),
        ({"won": 1}, "must be a tuple of names"),
        ((1,), "must be a tuple of names"),
        (("",), "cannot have a metric ''"),
        (("/won",), "cannot have a metric '/won'"),
        (("ally/",), "cannot have a metric 'ally/'"),
        (("a won",), "cannot have a metric 'a won'"),
        (("won,lost",), "cannot have a metric"),
        (("won\n",), "cannot have a metric"),
        (("-won",), "cannot have a metric"),
        (("%65",), "cannot have a metric"),
        (("w" * 61,), "cannot have a metric"),
        (("nobody/won",), "is of no team: its teams are ally, enemy, a/b"),
        (("ally",), "has a team 'ally'"),
        (("won", "won"), "declares the metric 'won' twice"),
        (tuple(f"m{i}" for i in range(101)), "declare at most 100"),
    ],
)
def test_names_that_could_be_taken_for_others_are_refused(names: Any, says: str) -> None:
    with pytest.raises(ShoalError, match=says):
        checked(names, TEAMS, "x")


def test_a_word_means_the_games_metric_or_every_teams() -> None:
    assert meant("won", ("won", "ally/won")) == ["won"]
    assert meant("won", ("ally/won", "enemy/won", "food")) == ["ally/won", "enemy/won"]
    assert meant("ally/won", ("ally/won", "enemy/won")) == ["ally/won"]
    assert meant("lost", ("won",)) == [] and split("a/b/won") == ("a/b", "won")


def test_which_native_games_say_something() -> None:
    assert declared(make("lbf/5x5-2p-1f")) == ("food", "won")
    assert declared(make("rware/tiny-2ag")) == ("deliveries",)
    assert declared(make("mpe/simple_spread")) == declared(make("test/identity")) == ()


def said_by(said: dict[str, Any], names: tuple[str, ...] = ("won",)) -> Game:
    """A game that says these numbers of each game."""

    @dataclass(frozen=True)
    class Saying(Endless):
        metrics = names

        def episode_metrics(self, world: Array) -> dict[str, Any]:
            return said

    return Saying(length=3)


@pytest.mark.parametrize(
    ("said", "names", "says"),
    [
        (
            {"won": np.ones(4), "lost": np.ones(4)},
            ("won",),
            "says the metric 'lost' and declares won",
        ),
        ({"won": np.ones(4)}, ("won", "food"), "declares the metric 'food'"),
        ({"won": np.ones(3)}, ("won",), r"has shape \(3,\): let it be one number for each game"),
        ({"won": 1.0}, ("won",), r"has shape \(\)"),
    ],
)
def test_a_game_says_what_it_declares(said: dict, names: tuple[str, ...], says: str) -> None:
    game = said_by(said, names)
    state, _ = game.reset(jax.random.key(0), 4)
    with pytest.raises(ShoalError, match=says):
        measure(game, state, 4)


def test_a_game_that_declares_nothing_computes_nothing() -> None:
    game = make("test/identity")
    state, _ = game.reset(jax.random.key(0), 2)
    assert measure(game, state, 2) == {} == measure(object(), None, 2)  # type: ignore[arg-type]
    assert not jax.make_jaxpr(lambda state: measure(game, state, 2))(state).eqns


def test_metrics_that_are_not_declared_are_refused_when_a_game_is_written() -> None:
    with pytest.raises(ShoalError, match="Silent says metrics that it does not declare"):

        class Silent(Endless):
            def episode_metrics(self, world: Array) -> dict[str, Array]:
                return {"won": jnp.ones(1)}


def test_check_env_finds_a_metric_that_is_no_number() -> None:
    assert not any(check(Scored(length=3), 20).findings.values())
    findings = check(said_by({"won": np.full(1, np.nan)}), 20).findings
    (broken,) = [found for found in findings.values() if found]
    assert "the metric 'won' of test/endless was nan" in str(broken[0])


def test_best_is_a_team_or_a_metric() -> None:
    teams = {"agent": ("random", {})}
    Config.build("lbf/5x5-2p-1f", teams, {}, {"best": "won"})
    with pytest.raises(
        ShoalError, match=r"best must be a team or a metric of lbf.*it has agent, food, won"
    ):
        Config.build("lbf/5x5-2p-1f", teams, {}, {"best": "lost"})
