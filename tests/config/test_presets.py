"""Presets of environments that options change."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal import envs
from shoal.config import presets
from shoal.config.arguments import compose_arguments
from shoal.config.compose import Request, compose
from shoal.config.config import Config

SPREAD = "mpe/simple_spread"
FILE = """
[settings]
games = 32
[algorithm]
lr = 1e-3
hidden = 128

[[where]]
options = { continuous_actions = true }
settings.games = 64
algorithm.lr = 2e-3

[[where]]
options = { continuous_actions = true, N = 5 }
algorithm.lr = 3e-3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ppo").mkdir()
    (tmp_path / "ppo" / "mpe__simple_spread.toml").write_text(FILE)
    monkeypatch.setattr(presets, "FOLDER", tmp_path)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("flags", "options", "lr", "games"),
    [
        ([], {}, 1e-3, 32),
        (["--env.no-continuous-actions"], {"continuous_actions": False}, 1e-3, 32),
        (["--env.N", "5"], {"N": 5}, 1e-3, 32),
        (["--env.continuous-actions"], {"continuous_actions": True}, 2e-3, 64),
        (
            ["--env.continuous-actions", "--env.N=5"],
            {"continuous_actions": True, "N": 5},
            3e-3,
            64,
        ),
    ],
)
def test_a_preset_follows_the_options(flags: list[str], options: dict, lr: float, games: int):
    """By flags and by keywords alike; what no `where` names stays."""
    typed, _ = compose_arguments(["ppo", SPREAD, *flags])
    called, _ = compose(Request(SPREAD, "ppo", env_options=options))
    assert typed == called
    assert typed.teams["agent"][1].lr == lr and typed.teams["agent"][1].hidden == 128
    assert typed.settings.games == games


@pytest.mark.usefixtures("folder")
def test_a_flag_wins_over_a_where():
    config, _ = compose_arguments(["ppo", SPREAD, "--env.continuous-actions", "--lr", "5e-3"])
    assert config.teams["agent"][1].lr == 5e-3 and config.settings.games == 64


@pytest.mark.usefixtures("folder")
def test_a_preset_without_sizes_is_of_every_size_that_has_none_of_its_own(tmp_path: Path):
    (tmp_path / "ppo" / "lbf.toml").write_text("[algorithm]\nlr = 1e-4\n")
    (tmp_path / "ppo" / "lbf__8x8-2p-2f.toml").write_text("[algorithm]\nlr = 2e-4\n")
    for env, lr in {"lbf/8x8-2p-2f": 2e-4, "lbf/8x8-2p-3f": 1e-4, "lbf": 1e-4}.items():
        config, notes = compose_arguments(["ppo", env])
        assert config.teams["agent"][1].lr == lr
        assert f"using the preset of ppo on {env}" in " ".join(notes)
    assert not presets.load("ppo", "mpe/simple_tag")["algorithm"]  # no size, so nothing of it


@pytest.mark.usefixtures("folder")
def test_options_in_an_id_count_as_options(tmp_path: Path):
    file = "[[where]]\noptions = { grid_observation = true }\nalgorithm.lr = 2e-4\n"
    (tmp_path / "ppo" / "lbf.toml").write_text(file)
    flags = ["--env.grid-observation"]
    for words, lr in ((["lbf/grid-8x8-2p-2f"], 2e-4), (["lbf", *flags], 2e-4), (["lbf"], 5e-4)):
        config, _ = compose_arguments(["ppo", *words])
        assert config.teams["agent"][1].lr == lr


@pytest.mark.parametrize(("algorithm", "env"), presets.shipped())
def test_every_where_fits_its_dataclasses(algorithm: str, env: str):
    for where in presets.wheres(algorithm, env):
        options = where["options"]
        tables = presets.load(algorithm, env, options)
        assert tables != presets.load(algorithm, env)
        options = tables["env"] | options
        teams = {team: (algorithm, tables["algorithm"]) for team in envs.make(env, **options).teams}
        Config.build(env, teams, options, tables["settings"])
