"""Other people's packages: an algorithm, a torso, a game and a callback from outside, as the page
tells."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import equinox as eqx
import pytest
from helpers import PAGES, with_pages

import shoal
from shoal import algorithms, envs, plugins, source
from shoal.cli.main import main
from shoal.config import presets
from shoal.config.trust import NOTHING
from shoal.envs.adapters import open_match
from shoal.envs.registry import BASES
from shoal.errors import ShoalError
from shoal.nets import torsos
from shoal.testing import ALGORITHM_CHECKS, check_algorithm, check_game

pytestmark = with_pages
WORDS = (
    "--games 4 --window 10 --steps 400 --hidden 8 --layers 1 --minibatches 1 --epochs 1"
    " --evaluations 1 --eval-episodes 2"
)
TINY = WORDS.split()
MINE = "my_pkg.algos:Mine"
CHASE = "my_pkg.games:Chase"
ATTENTION = "my_pkg.nets:Attention"
MARK = "imported"  # a file that importing the package leaves behind


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The package of the page, in a folder from which modules are imported."""
    folder = tmp_path_factory.mktemp("outside")
    text = (PAGES / "your-own-package.md").read_text()
    for title, block in re.findall(r'```python title="(.*?)"\n(.*?)```', text, re.DOTALL):
        (folder / title).parent.mkdir(exist_ok=True)
        (folder / title).write_text(block)
    game = re.search(r"```python\n(.*?)```", (PAGES / "adding-a-game.md").read_text(), re.DOTALL)
    assert game
    (folder / "my_pkg" / "games.py").write_text(game[1])
    preset = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    assert preset
    (folder / "my_pkg" / "algos.toml").write_text(preset[1])
    (folder / "my_pkg" / "__init__.py").write_text(
        f"from pathlib import Path\n(Path(__file__).parent / {MARK!r}).touch()\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_pkg"]:
        del sys.modules[name]
    for path in [path for path in plugins._loaded if path.startswith("my_pkg")]:
        del plugins._loaded[path]
    source.derives.cache_clear()


@pytest.fixture(scope="module")
def run(package: Path) -> Path:
    """A run of all that the package has."""
    words = [MINE, CHASE, "--torso", ATTENTION, "--callbacks", "my_pkg.hooks:Watcher"]
    place = ["--out", str(package), "--name", "run", "--env.breath", "8"]
    assert main(["train", *words, *TINY, *place]) == 0
    return package / "run"


def elsewhere(package: Path, *words: str) -> subprocess.CompletedProcess:
    """A command in a process that has not imported the package."""
    (package / "my_pkg" / MARK).unlink(missing_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "shoal", *words],
        cwd=package,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_run_is_trained_by_import_paths_and_names_what_it_needs(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    assert config["env"] == CHASE and config["options"]["breath"] == 8
    assert {one["algorithm"] for one in config["teams"].values()} == {MINE}
    assert {one["options"]["torso"] for one in config["teams"].values()} == {ATTENTION}
    assert config["teams"]["dog"]["options"]["entropy"] == 0.02
    assert config["settings"]["callbacks"] == "my_pkg.hooks:Watcher"


@pytest.mark.slow
def test_a_folder_of_a_stranger_imports_nothing_unless_it_is_trusted(
    run: Path, package: Path
) -> None:
    refused = elsewhere(package, "evaluate", str(run), "--episodes", "2")
    assert refused.returncode == 2 and "--trust" in refused.stderr and MINE in refused.stderr
    assert refused.stderr.count("\n") == 1 and not (package / "my_pkg" / MARK).exists()
    trusted = elsewhere(package, "evaluate", str(run), "--episodes", "2", "--trust")
    assert trusted.returncode == 0, trusted.stderr


@pytest.mark.slow
def test_a_policy_is_loaded_and_its_rivals_are_frozen(run: Path) -> None:
    player = shoal.load(run)
    assert player.evaluate(2).length.shape == (2,)
    config = json.loads((run / "config.json").read_text())
    words = ["train", str(run / "config.json"), "--seed", "3", "--out", str(run.parent)]
    assert main([*words, "--name", "again"]) == 0
    again = json.loads((run.parent / "again" / "config.json").read_text())
    assert again["teams"] == config["teams"]


@pytest.mark.slow
def test_a_tracker_of_ones_own_follows_a_run_and_its_resumption(package: Path) -> None:
    track = ["--track", "my_pkg.tracking:Notebook", "--name", "tracked", "--out", str(package)]
    assert main(["train", "ppo", "test/identity", *TINY, *track]) == 0
    run = package / "tracked"
    told = [json.loads(line) for line in run.with_suffix(".log").read_text().splitlines()]
    assert {"agent/return", "evaluation/agent/return"} <= {name for line in told for name in line}
    assert told[-1] == {"policy": str(run / "policy")}
    assert json.loads((run / "tracking.json").read_text())["notebook"] == "tracked"
    refused = elsewhere(package, "resume", str(run), "--steps", "800")
    assert refused.returncode == 2 and "my_pkg.tracking:Notebook" in refused.stderr
    assert not (package / "my_pkg" / MARK).exists()
    assert main(["resume", str(run), "--steps", "800", "--trust"]) == 0
    assert len(run.with_suffix(".log").read_text().splitlines()) > len(told)


@pytest.mark.slow
def test_several_seeds_have_processes_that_import_it(package: Path) -> None:
    words = [MINE, CHASE, *TINY, "--seeds", "2", "--out", str(package), "--name", "group"]
    assert main(["train", *words]) == 0
    assert len(list((package / "group").glob("*/summary.json"))) == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("train my_pkg.alogs:Mine mpe/simple_spread", "there is no module 'my_pkg.alogs'"),
        ("train nowhere:Mine mpe/simple_spread", "there is no module 'nowhere'"),
        ("train my_pkg.algos:Main mpe/simple_spread", "my_pkg.algos has no 'Main'"),
        ("train my_pkg.algos:MineConfig mpe/simple_spread", "is not an algorithm"),
        ("train ppo mpe/simple_spread --torso my_pkg.nets:Attend", "has no 'Attend'"),
        ("train ppo mpe/simple_spread --torso lstm", "there is no torso 'lstm'"),
        ("train ppo my_pkg.games:Chase --env.breth 3", "--env.breath"),
        ("train ppo my_pkg.games:Chaser", "my_pkg.games has no function 'Chaser'"),
        ("train ppo test/identity --callbacks my_pkg.algos:Mine", "is not a callback"),
        ("train ppo test/identity --callbacks nobody", "there is no callback 'nobody'"),
        ("train ppo test/identity --track nobody", "track must be of wandb, mlflow, or <module>"),
        ("train ppo test/identity --track my_pkg.hooks:Watcher", "is not a tracker: derive it"),
    ],
)
def test_mistakes_are_one_sentence(
    package: Path, capsys: pytest.CaptureFixture[str], words: str, told: str
) -> None:
    assert main([*words.split(), "--out", str(package), "--name", "wrong"]) == 2
    said = capsys.readouterr().err
    assert told in said and said.count("\n") == 1, said
    assert not (package / "wrong").exists()


def test_help_and_info_explain_what_is_ones_own(
    package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["train", MINE, CHASE, "--help"])
    said = capsys.readouterr().out
    assert "--entropy" in said and "--env.breath" in said and "Steps a dog can run" in said
    assert main(["info", MINE]) == 0
    assert "PPO whose critic sees the state" in capsys.readouterr().out
    assert main(["info", CHASE]) == 0
    assert "Team dog" in capsys.readouterr().out
    assert main(["check-env", CHASE, "--steps", "40"]) == 0


def test_presets_lie_beside_the_module(package: Path) -> None:
    algorithms.find(MINE)
    tables = presets.load(MINE, "mpe/simple_spread")
    assert tables["settings"] == {"steps": 2e6} and tables["algorithm"] == {"lr": 1e-3}
    assert presets.sides({"": MINE}, "mpe/simple_spread").used == (MINE,)
    beside = package / "my_pkg" / "games.toml"
    beside.write_text("[Chase.ppo.algorithm]\nlr = 2e-3\n")
    try:
        assert presets.load("ppo", CHASE)["algorithm"] == {"lr": 2e-3}
        beside.write_text("Chase = 3\n")
        with pytest.raises(ShoalError, match="must have a table 'Chase'"):
            presets.load("ppo", CHASE)
        beside.write_text("[")
        with pytest.raises(ShoalError, match="cannot be read as a preset"):
            presets.load("ppo", CHASE)
    finally:
        beside.unlink()


def test_entry_points_are_names_and_are_listed(
    package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (PAGES / "your-own-package.md").read_text()
    announced = re.search(r'```toml title="pyproject.toml"\n(.*?)```', text, re.DOTALL)
    assert announced
    info = tmp_path / "my_pkg-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my_pkg\nVersion: 1.5\n")
    lines = re.sub(r'\[project.entry-points."(.*?)"\]', r"[\1]", announced[1]).replace('"', "")
    lines += "broken = my_pkg.nowhere:Broken\n"
    lines = lines.replace("[shoal.games]\n", "[shoal.games]\nmy/forage = my_pkg.grids:Forage\n")
    (info / "entry_points.txt").write_text(lines)
    (package / "my_pkg" / "grids.py").write_text(
        "from shoal.envs.native.lbf import Foraging\n\n\n"
        "class Forage(Foraging):\n    name = 'my/forage'\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        plugins.entries.cache_clear()
        try:
            assert algorithms.find("mine") is plugins.load(MINE)
            assert envs.find("my/chase") == (plugins.load(CHASE), {})
            assert torsos.find("attention") is plugins.load(ATTENTION)
            assert envs.find("my/chase/8x8") is None
            forage = plugins.load("my_pkg.grids:Forage")
            assert envs.find("my/forage/8x8-2p-2f") == (forage, forage.said("8x8-2p-2f"))
            assert plugins.installed(MINE) and plugins.versions([MINE]) == {"my_pkg": "1.5"}
            module = MINE.partition(":")[0]
            assert not plugins.installed(f"{module}:dataclass"), (
                "what a module imports is no plugin"
            )
            assert plugins.versions(["attention"]) == {"my_pkg": "1.5"}
            walk = envs.make("walk:12", start=3)
            assert walk.teams["agent"].obs == 1 and envs.versions("walk:12") == {"my_pkg": "1.5"}
            assert open_match("walk:12", {"start": 3}).reset(0).state == 0.25
            NOTHING.check("walk:12", {"start": 3})
            for strange in ("walk:../12", "walk:os.path"):
                with pytest.raises(ShoalError, match="--trust"):
                    NOTHING.check(strange, {})
            assert main(["list"]) == 0
            said = capsys.readouterr().out
            assert re.search(r"mine +algorithm +PPO whose critic", said)
            assert re.search(r"broken +callback +cannot be used: there is no module", said)
        finally:
            plugins.entries.cache_clear()


@pytest.mark.slow
def test_objects_from_python(package: Path) -> None:
    mine = plugins.load(MINE)
    chase = plugins.load(CHASE)
    small = {"steps": 100, "games": 2, "window": 10, "hidden": 8, "minibatches": 1, "epochs": 1}
    run = shoal.train(
        mine,
        chase(breath=7),
        torso=plugins.load(ATTENTION),
        callbacks=[plugins.load("my_pkg.hooks:Watcher")],
        evaluations=0,
        eval_episodes=1,
        out=str(package),
        name="objects",
        quiet=True,
        **small,
    )
    config = json.loads((run.path / "config.json").read_text())
    assert config["env"] == CHASE and config["options"]["breath"] == 7
    assert config["teams"]["hare"]["algorithm"] == MINE
    assert config["settings"]["callbacks"] == "my_pkg.hooks:Watcher"
    with pytest.raises(ShoalError, match="give the class or the function that makes it"):
        shoal.train("ppo", object())


def test_our_own_games_may_be_objects_too() -> None:
    from shoal.api import _environment

    game = envs.GAMES["test/identity"](n=3)  # type: ignore[call-arg]
    name, options = _environment(game, {})
    assert name == "test/identity" and options["n"] == 3


GAMES_BY_SOURCE = {
    "from shoal.envs import Game\nclass A(Game): pass": True,
    "import shoal.envs\nclass A(shoal.envs.Game): pass": True,
    "import shoal.envs.game as g\nclass A(g.Game): pass": True,
    "from shoal import envs\nclass B(envs.Env): pass\nclass A(B): pass": True,
    "from shoal.envs.native.mpe import SimpleSpread\nA = SimpleSpread": True,
    "from .other import A": True,
    "from ..side.other import A": True,
    "from shoal.envs.host.match import Match\nclass A(Match): pass": False,
    "def A(): return None": False,
    "class A: pass": False,
    "class A(A): pass": False,
    "from nowhere import A": False,
    "this is no Python": False,
    "raise RuntimeError('it ran')\nclass A: pass": False,
}


@pytest.mark.parametrize(("text", "compiled"), GAMES_BY_SOURCE.items())
def test_a_compiled_game_is_known_by_its_source_alone(
    text: str, compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("side", "deep"):
        (tmp_path / "kinds" / place).mkdir(parents=True)
        (tmp_path / "kinds" / place / "__init__.py").write_text("raise RuntimeError('it ran')")
        other = "from shoal.envs import Game\nclass A(Game): pass"
        (tmp_path / "kinds" / place / "other.py").write_text(other)
    (tmp_path / "kinds" / "deep" / "mine.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    source.derives.cache_clear()
    assert source.derives("kinds.deep.mine:A", BASES) is compiled


@pytest.mark.parametrize("check", ALGORITHM_CHECKS)
def test_the_algorithm_passes_the_tests_that_ours_pass(package: Path, check) -> None:
    check(algorithms.find(MINE), epochs=1)


def test_the_game_passes_the_tests_that_ours_pass(package: Path) -> None:
    check_game(plugins.load(CHASE)(breath=4))


@pytest.mark.slow
def test_a_broken_algorithm_and_a_broken_game_are_caught(package: Path) -> None:
    mine = plugins.load(MINE)
    chase = plugins.load(CHASE)

    class Boastful(mine):
        """Declares what it does not do."""

        name = "boastful"

        def __init__(self, config, spec):
            super().__init__(config, spec)
            if config.torso == "gru":
                raise ShoalError("it cannot")

    with pytest.raises(ShoalError, match="it cannot"):
        check_algorithm(Boastful, epochs=1)

    class Modest(mine):
        """Plays more than it declares."""

        name = "modest"
        spaces = (shoal.types.Discrete,)

        def __init__(self, config, spec):
            self.spaces = mine.spaces
            super().__init__(config, spec)

    with pytest.raises(AssertionError, match="does not declare them"):
        check_algorithm(Modest, epochs=1)

    class Wrong(chase):
        """Sees more than it says."""

        def observe(self, world):
            return {team: 1e9 / (seen * 0) for team, seen in super().observe(world).items()}

    with pytest.raises(AssertionError, match="finite"):
        check_game(Wrong())


def test_a_torso_must_be_one(package: Path) -> None:
    with pytest.raises(ShoalError, match="is not a torso: it must be a class that has recurrent"):
        torsos.find(CHASE)
    assert issubclass(torsos.find(ATTENTION), eqx.Module)
