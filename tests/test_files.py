"""Every file that is read back says its version: one from the future is refused in a sentence, one
that says none is read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal import files, zoo
from shoal.cli import sweep
from shoal.cli.main import main
from shoal.config import campaign
from shoal.errors import ShoalError
from shoal.export.write import ABOUT
from shoal.monitor import trackers
from shoal.report import crossplay, reproduction
from shoal.store import checkpoint, folder, policy_store
from shoal.store.folder import finished
from shoal.sweep import population

SIZES: dict[str, Any] = {
    "steps": 100,
    "games": 2,
    "window": 5,
    "hidden": 4,
    "layers": 1,
    "evaluations": 1,
    "eval_episodes": 2,
}
# kind of file -> the commands that read it
COMMANDS = {
    folder.CONFIG: ["resume run", "train run/config.json", "report ."],
    folder.SUMMARY: ["resume run"],
    checkpoint.ABOUT: ["resume cut", "train a2c test/identity --from run"],
    policy_store.ABOUT: ["evaluate run", "evaluate run --best"],
    folder.GROUP: ["resume group", "train group/group.json", "evaluate group"],
    campaign.FILE: ["campaign camp", "report camp", "evaluate camp"],
    reproduction.RECORDS: ["reproduce mpe --algorithms MAPPO --out camp"],
    sweep.FILE: ["sweep search", "sweep ppo test/identity --over lr=0.1,0.2 --out search"],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, the same before it was finished, a group and a campaign."""
    out = tmp_path_factory.mktemp("made")
    run = shoal.train(
        "a2c", "test/identity", out=str(out), name="run", quiet=True, preset=False, **SIZES
    ).path
    shutil.copytree(run, out / "cut")
    folder.remove_results(out / "cut")
    for name in ("group", "camp", "search"):
        (out / name).mkdir()
    config = json.loads((run / folder.CONFIG).read_text())
    files.write_json(out / "group" / folder.GROUP, {"seeds": [0], "config": config})
    files.write_json(out / "camp" / campaign.FILE, {"pairs": [], "scales": {}})
    files.write_json(out / "camp" / reproduction.RECORDS, {"table": "mpe", "runs": []})
    for name in (sweep.FILE, population.FILE):
        files.write_json(out / "search" / name, {"rounds": []})
    for name in (crossplay.NUMBERS, ABOUT, trackers.IDS, zoo.ABOUT):
        files.write_json(out / "run" / name, {})
    return out


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, in the current folder."""
    there = shutil.copytree(made, tmp_path / "here")
    monkeypatch.chdir(there)
    return there


def saved(there: Path, name: str = "*.json") -> Iterator[Path]:
    yield from (path for path in there.rglob(name) if path.name in files.VERSIONS)


def test_every_file_says_its_version(made: Path) -> None:
    found = {path.name: json.loads(path.read_text())[files.FORMAT] for path in saved(made)}
    assert found == files.VERSIONS


@pytest.mark.parametrize(
    ("name", "command"), [(name, command) for name in COMMANDS for command in COMMANDS[name]]
)
def test_a_file_from_the_future_is_refused(
    name: str, command: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    version = files.VERSIONS[name] + 1
    for path in saved(here, name):
        path.write_text(json.dumps(json.loads(path.read_text()) | {files.FORMAT: version}))
    assert main(command.split()) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and told.endswith("install a newer shoal\n"), told
    assert f"{name} has format {version}, and this shoal reads formats up to {version - 1}" in told


def test_a_population_from_the_future_is_refused(here: Path) -> None:
    path = here / "search" / population.FILE
    path.write_text(json.dumps({"rounds": [], files.FORMAT: files.VERSIONS[path.name] + 1}))
    with pytest.raises(files.Newer, match=r"population\.json has format"):
        population._read(here / "search")


def test_trackers_refuse_ids_from_the_future(here: Path) -> None:
    path = here / "run" / trackers.IDS
    files.write_json(path, {"wandb": "a"})
    assert trackers.Tracker._tracked_as(path)["wandb"] == "a"
    path.write_text('{"wandb": "a", "format": 2}')
    with pytest.raises(files.Newer, match="has format 2"):
        trackers.Tracker._tracked_as(path)
    path.write_text('{"wandb": 3}')
    with pytest.raises(ShoalError, match="does not say how the run was tracked"):
        trackers.Tracker._tracked_as(path)


def test_files_without_a_version_are_read(here: Path) -> None:
    """As 0.1.0 wrote them, which checkpoints said theirs of already."""
    for path in saved(here):
        if path.name != checkpoint.ABOUT:
            content = json.loads(path.read_text())
            del content[files.FORMAT]
            path.write_text(json.dumps(content))
    assert finished(here / "run")
    assert main(["evaluate", "run", "--episodes", "1"]) == 0
    assert main(["resume", "cut"]) == 0


def test_a_folder_is_replaced_whole_and_what_lies_beside_it_is_left_alone(tmp_path: Path) -> None:
    """A policy is saved and exported to any place, beside folders of the user's own."""
    for name in ("net.old", "net.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").touch()
    for number in ("1", "2"):
        with files.atomic_folder(tmp_path / "net") as temporary:
            (temporary / number).touch()
    with pytest.raises(ZeroDivisionError), files.atomic_folder(tmp_path / "net") as temporary:
        (temporary / "3").touch()
        raise ZeroDivisionError
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert found == ["net", "net.old", "net.old/mine", "net.tmp", "net.tmp/mine", "net/2"]


def test_the_folder_of_before_is_read_where_its_replacement_was_interrupted(tmp_path: Path) -> None:
    place = tmp_path / "policy"
    assert files.settled(place) == place
    for name in ("policy.old", ".policy.old", "policy"):  # 0.1.0's, ours, the new one
        (tmp_path / name).mkdir()
        assert files.settled(place).name == name


@pytest.mark.parametrize("version", ["1", None, True, 1.5, []])
def test_a_version_that_is_none_is_refused(version: Any, tmp_path: Path) -> None:
    path = tmp_path / folder.CONFIG
    path.write_text(json.dumps({files.FORMAT: version}))
    with pytest.raises(files.Newer, match="has format"):
        files.read_json(path, "a run folder")


def test_a_newer_checkpoint_is_not_passed_over_for_an_older_one(here: Path) -> None:
    newest, *older = checkpoint.places(here / "cut")
    assert older
    content = json.loads((newest / checkpoint.ABOUT).read_text())
    (newest / checkpoint.ABOUT).write_text(json.dumps(content | {files.FORMAT: 99}))
    with pytest.raises(files.Newer):
        shoal.resume(here / "cut", quiet=True)
    assert newest.is_dir()


def test_half_a_character_in_a_file_is_refused(tmp_path: Path) -> None:
    """It could be read, and then neither written to a table nor shown."""
    (tmp_path / "config.json").write_text('{"env": "\\udc80"}')
    with pytest.raises(ShoalError, match=r"it has no readable config\.json"):
        files.read_json(tmp_path / "config.json", "a run")
