"""Strangers' files: what they name is not run, whatever they say, and what is damaged is told in
one sentence."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from shoal import plugins
from shoal.cli.main import main
from shoal.config.campaign import Job
from shoal.config.config import Config
from shoal.config.trust import EVERYTHING, NOTHING, Trust
from shoal.errors import ShoalError
from shoal.report.search_results import Trial, write_preset
from shoal.store import checkpoint
from shoal.store.player import Player
from shoal.types import Discrete, Spec

SIZES: dict[str, Any] = {
    "steps": 40,
    "games": 2,
    "window": 10,
    "minibatches": 1,
    "eval_episodes": 1,
    "evaluations": 0,
}
SMALL: dict[str, Any] = {"hidden": 4, "layers": 1}
TINY = "--steps 40 --games 2 --window 10 --minibatches 1 --eval-episodes 1"
OWN = "sly:make"
SLY = """
import os, pathlib
pathlib.Path(os.environ["SLY_MARK"]).touch()
import gymnasium
def make(**options):
    return gymnasium.make("CartPole-v1", max_episode_steps=5)
parallel_env = make
"""
STRANGE = {  # ids that lead to code of somebody's own
    "a module of one's own": OWN,
    "a module inside a package": "slypack.inner:make",
    "the standard library": "os:system",
    "code": "builtins:exec",
    "a PettingZoo module": "pz:sly",
    "a PettingZoo module of the library": "pz:os",
    "a module that registers ids": "gym:sly:CartPole-v1",
    "a module before a module": "gym:gymnasium:sly:CartPole-v1",
    "an absolute path": "/tmp/sly:make",
    "a path upwards": "../sly:make",
    "a relative module": "pz:..sly",
    "a module that looks known": "pz:pettingzoo_sly",
    "a path after a known name": "pz:pettingzoo/../sly",
}


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Appears when somebody's code has run; modules that do so are in the folder one is in, and on
    the path."""
    home = tmp_path / "home"
    (home / "slypack").mkdir(parents=True)
    for name in ("sly.py", "pettingzoo_sly.py", "slypack/inner.py"):
        (home / name).write_text(SLY)
    (home / "slypack" / "__init__.py").write_text("")
    monkeypatch.chdir(home)
    monkeypatch.syspath_prepend(str(home))
    monkeypatch.setenv("SLY_MARK", str(tmp_path / "mark"))
    monkeypatch.setattr(plugins, "_loaded", dict(plugins._loaded))
    for name in ("sly", "pettingzoo_sly", "slypack", "slypack.inner"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path / "mark"


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was interrupted after its first checkpoint."""
    out = tmp_path_factory.mktemp("runs")
    path = shoal.train(
        "ppo",
        "gym:CartPole-v1",
        preset=False,
        out=str(out),
        name="run",
        quiet=True,
        **SIZES,
        **SMALL,
    )
    (path.path / "summary.json").rename(out / "summary.json")
    return path.path


def rewritten(run: Path, there: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """A copy of a run whose every config was changed, with checksums that fit."""
    shutil.copytree(run, there)
    for file in [
        there / "config.json",
        *there.glob("*/policy.json"),
        *there.glob("checkpoints/*/checkpoint.json"),
    ]:
        content = json.loads(file.read_text())
        change(content if file.name == "config.json" else content["config"])
        if file.name == checkpoint.ABOUT:
            del content["sha256"]
            content["sha256"] = checkpoint._checksum(
                (file.parent / checkpoint.STATE).read_bytes(), content
            )
        file.write_text(json.dumps(content))
    return there


def named(env: str, spec: bool = True, **options: Any) -> Callable[[dict[str, Any]], None]:
    def change(config: dict[str, Any]) -> None:
        config |= {"env": env, "options": options}
        for one in config["teams"].values():
            one.pop("spec") if not spec else None

    return change


def refused(words: list[str], capsys: pytest.CaptureFixture[str], *parts: str) -> None:
    """By one sentence, which says all these things."""
    assert main(words) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "Traceback" not in told
    for part in parts:
        assert part in told, told


@pytest.mark.parametrize("env", STRANGE.values(), ids=STRANGE)
def test_a_strangers_run_runs_nothing(
    env: str, cartpole: Path, mark: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever command reads it, with or without who plays; loading its policy is harmless, and
    acting too."""
    run = rewritten(cartpole, tmp_path / "run", named(env, command=f"touch {mark}"))
    bare = rewritten(cartpole, tmp_path / "bare", named(env, spec=False, command=f"touch {mark}"))
    newest = str(next(checkpoint.places(run)))
    for words in (
        ["evaluate", str(run)],
        ["evaluate", newest],
        ["watch", str(run)],
        ["resume", str(run)],
    ):
        refused(words, capsys, "--trust", repr(env))
    for folder in (run, bare):
        refused(["train", str(folder / "config.json")], capsys, "--trust", repr(env))
        refused(
            ["train", str(folder / "config.json"), "--seeds", "2"], capsys, "--trust", repr(env)
        )
    for words in (["evaluate", str(bare)], ["watch", str(bare)]):
        refused(words, capsys, "'spec' is missing")
    player = shoal.load(run)
    assert player.act({"agent_0": np.zeros(4)})["agent_0"] in (0, 1)
    for call in (player.evaluate, lambda: shoal.resume(run, quiet=True), lambda: shoal.load(bare)):
        with pytest.raises(ShoalError):
            call()
    frozen = player.against({"agent": f"frozen:{run}"})
    assert frozen.act({"agent_0": np.zeros(4)})
    with pytest.raises(ShoalError, match="'spec' is missing"):
        player.against({"agent": f"frozen:{bare}"})
    assert main(["report", str(tmp_path)]) in (0, 2)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("env", "options"),
    [
        ("gym:CartPole-v1", {"entry_point": "sly:make"}),
        ("gym:CartPole-v1", {"anything": "sly.inner"}),
        ("gym:GymV26Environment-v0", {"env_id": "sly:CartPole-v0"}),
        ("gym:Ant-v5", {"xml_file": "ant"}),
        ("gym:CartPole-v1", {"config": {"vehicles": ["a", {"type": "sly.make"}]}}),
        ("pz:pettingzoo.atari.pong_v3", {"auto_rom_install_path": "here"}),
        ("jaxmarl:jaxnav", {"map_params": {"dir_path": "sly"}}),
        ("football:academy_corner", {"rewards": "../../x"}),
    ],
)
def test_options_of_known_packages_open_no_door(env: str, options: dict[str, Any]) -> None:
    with pytest.raises(ShoalError, match="--trust"):
        NOTHING.check(env, options)
    EVERYTHING.check(env, options)
    Trust(named=frozenset({env})).check(env, options)


@pytest.mark.parametrize(
    ("env", "options"),
    [
        ("mpe/simple_spread", {"N": 3}),
        ("gym:CartPole-v1", {"max_episode_steps": 30, "teams": "red:a_*;blue:b_0"}),
        ("gym:lbforaging:Foraging-8x8-2p-3f-v3", {"sight": 2}),
        ("gym:rware:rware-tiny-2ag-v2", {}),
        ("pz:mpe2.simple_tag_v3", {"num_good": 2, "continuous_actions": True}),
        ("pz:pettingzoo.classic.connect_four_v3", {}),
        ("pz:magent2.environments.battle_v4", {"map_size": 16}),
        ("pz:gymnasium_robotics.mamujoco_v1", {"scenario": "Ant", "agent_conf": "2x4"}),
        ("jaxmarl:overcooked", {"layout": "cramped_room"}),
        ("football:academy_corner", {"rewards": "scoring,checkpoints"}),
    ],
)
def test_what_shoal_has_adapters_for_needs_no_trust(env: str, options: dict[str, Any]) -> None:
    NOTHING.check(env, options)


def test_a_run_of_known_packages_is_played_as_ever(cartpole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(cartpole, run)
    assert shoal.load(run).evaluate(1).length[0] > 0
    assert main(["evaluate", str(run), "--episodes", "1"]) == 0


@pytest.mark.slow
def test_ones_own_environment_is_played_when_typed_or_trusted(
    mark: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also by the processes of several seeds and of a campaign, and when these are resumed."""
    words = [
        "ppo",
        OWN,
        *TINY.split(),
        "--evaluations",
        "0",
        "--workers",
        "0",
        "--hidden",
        "4",
        "--layers",
        "1",
    ]
    assert main(["train", *words, "--out", str(tmp_path), "--name", "run"]) == 0
    assert f"shoal evaluate {tmp_path / 'run'} --trust" in capsys.readouterr().out
    refused(["evaluate", str(tmp_path / "run")], capsys, "--trust", OWN)
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "1", "--trust"]) == 0
    assert shoal.load(tmp_path / "run", trust=True).evaluate(1).length[0] == 5
    assert main(["train", *words, "--seeds", "2", "--out", str(tmp_path), "--name", "group"]) == 0
    shutil.rmtree(tmp_path / "group" / "seed-1")
    refused(["resume", str(tmp_path / "group")], capsys, "--trust", OWN)
    assert main(["resume", str(tmp_path / "group"), "--trust"]) == 0
    camp = [words[0], *words[1:], "--seeds", "1", "--out", str(tmp_path / "camp")]
    assert main(["campaign", *camp]) == 0
    shutil.rmtree(next((tmp_path / "camp" / "runs").glob("ppo*0")))
    refused(["campaign", str(tmp_path / "camp")], capsys, "--trust", OWN)
    assert main(["campaign", *camp]) == 0  # typed again
    shutil.rmtree(next((tmp_path / "camp" / "runs").glob("ppo*0")))
    assert main(["resume", str(tmp_path / "camp"), "--trust"]) == 0


def test_a_known_package_that_is_not_installed_is_not_had_from_this_folder(
    cartpole: Path, mark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run may name it without asking for trust, so a module beside the run must not stand in."""
    Path("minigrid.py").write_text(SLY)
    here = str(Path.cwd())
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", here)])
    run = rewritten(cartpole, tmp_path / "run", named("gym:minigrid:CartPole-v1"))
    with pytest.raises(ShoalError, match="there is no module 'minigrid'"):
        shoal.load(run).evaluate(1)
    assert not mark.exists()


def test_what_a_file_says_cannot_steer_the_terminal(
    cartpole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = rewritten(cartpole, tmp_path / "run", named("sly:\x1b[2J" + "x" * 10**5))
    assert main(["train", str(run / "config.json")]) == 2
    told = capsys.readouterr().err
    assert "\x1b" not in told and "\\x1b[2J" in told and len(told) < 2100


@pytest.mark.slow
def test_campaigns_of_strangers_run_nothing(
    mark: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What they would run is what counts, not what they say beside it."""
    toml = tmp_path / "camp.toml"
    toml.write_text(f'algorithms = ["ppo"]\nenvs = ["{OWN}"]\n')
    refused(["campaign", str(toml)], capsys, "--trust", OWN)
    toml.write_text(f'algorithms = ["ppo"]\nenvs = ["{OWN}"]\n[options]\ntrust = true\n')
    refused(["campaign", str(toml)], capsys, "--trust")
    for content, told in (
        (f"algorithms = {'[' * 5000}{']' * 5000}", "too deep"),
        ('algorithms = ["--help"]\nenvs = ["test/identity"]', "leave out --help"),
    ):
        toml.write_text(content)
        refused(["campaign", str(toml)], capsys, told)
    os.mkfifo(pipe := tmp_path / "pipe.toml")
    refused(["campaign", str(pipe)], capsys, "not a plain file")
    words = ["ppo", "test/identity", "--seeds", "1", *TINY.split()]
    assert main(["campaign", *words, "--out", str(tmp_path / "camp")]) == 0
    capsys.readouterr()
    file = tmp_path / "camp" / "campaign.json"
    good = json.loads(file.read_text())
    (tmp_path / "stranger.json").write_text(
        json.dumps(good["pairs"][0]["config"] | {"env": OWN, "options": {}})
    )
    for args in (["ppo", OWN], [str(tmp_path / "stranger.json")], ["ppo", "gym:sly:CartPole-v1"]):
        bad = json.loads(json.dumps(good))
        bad["pairs"][0] |= {"args": args, "seeds": [0, 1]}
        file.write_text(json.dumps(bad))
        refused(["campaign", str(file.parent)], capsys, "--trust", ".json cannot be used")
        refused(["resume", str(file.parent)], capsys, "--trust")
    for seeds in (["../../x"], [-1], [True], "01", None):
        bad["pairs"][0] |= {"args": good["pairs"][0]["args"], "seeds": seeds}
        file.write_text(json.dumps(bad))
        refused(["campaign", str(file.parent)], capsys, "was not written by this version")
    assert not mark.exists()


def test_a_search_of_strangers_says_what_its_file_may_not_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = {
        "args": ["ppo", "test/identity"],
        "over": ["lr=1e-4..1e-2:log"],
        "method": "tpe",
        "pruner": "median",
        "trials": 1,
        "seed": 0,
        "members": 8,
        "rounds": 5,
    }
    for bad, told in (
        ({"args": [1, None]}, "sweep.json cannot be used: args must be text, not 1"),
        ({"args": "ppo"}, "args must be a list"),
        ({"over": [["lr"]]}, "over must be text"),
        ({"method": "other"}, "method must be one of tpe"),
        ({"pruner": "other"}, "pruner must be one of median"),
        ({"trials": "1"}, "trials must be a whole number"),
        ({"args": ["ppo", OWN]}, "--trust"),
    ):
        (tmp_path / "sweep.json").write_text(json.dumps(good | bad))
        refused(["sweep", str(tmp_path)], capsys, told)


def test_a_report_and_a_preset_of_strangers_run_nothing(
    cartpole: Path, mark: Path, tmp_path: Path
) -> None:
    def own(config: dict[str, Any]) -> None:
        for one in config["teams"].values():
            one["algorithm"] = OWN

    run = rewritten(cartpole, tmp_path / "runs" / "run", own)
    shutil.copy(cartpole.parent / "summary.json", run)
    assert main(["report", str(run.parent), "--out", str(tmp_path)]) == 0
    assert OWN in (tmp_path / "table.md").read_text()
    write_preset(Trial(run, {}, "finished", 1.0), "shoal sweep", tmp_path)
    assert "hidden = 4" in (tmp_path / "best.toml").read_text() and not mark.exists()


def test_a_group_of_strangers_runs_nothing_and_stays_in_its_folder(
    cartpole: Path, mark: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((cartpole / "config.json").read_text()) | {"env": OWN}
    (tmp_path / "group").mkdir()
    for seeds, told in (
        ([0, 1], "--trust"),
        (["../../x"], "does not say which"),
        ([10**30], "does not say which"),
        (list(range(100_000)), "does not say which"),
    ):
        (tmp_path / "group" / "group.json").write_text(
            json.dumps({"seeds": seeds, "config": config})
        )
        refused(["resume", str(tmp_path / "group")], capsys, told)
    assert not mark.exists() and not (tmp_path / "x").exists()


def test_a_strangers_cluster_is_not_joined(
    cartpole: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What its nodes send is unpickled here. One's own is typed, or trusted; a policy needs
    none."""
    joined: list[str] = []

    def connect(address: str) -> None:
        joined.append(address)
        raise ShoalError("no cluster there")

    for module in ("shoal.sweep.cluster", "shoal.engine.ray_host"):
        monkeypatch.setattr(f"{module}.connect", connect)
    place = "ray://127.0.0.1:9"
    run = rewritten(
        cartpole, tmp_path / "run", lambda config: config["settings"].update(cluster=place)
    )
    config = json.loads((run / "config.json").read_text())
    group = tmp_path / "group"
    group.mkdir()
    (group / "group.json").write_text(json.dumps({"seeds": [0, 1], "config": config}))
    out = ["--out", str(tmp_path / "out")]
    for words in (
        ["resume", str(run)],
        ["train", f"{run}/config.json", *out],
        ["resume", str(group)],
        ["train", f"{group}/group.json", "--seeds", "2", *out],
    ):
        refused(words, capsys, place, "--trust")
    assert joined == []
    for words in (
        ["resume", str(run), "--trust"],
        ["resume", str(group), "--trust"],
        ["resume", str(group), "--cluster", place],
    ):
        refused(words, capsys, "no cluster there")
    assert joined == [place] * 3
    assert isinstance(shoal.load(run), Player)


@pytest.mark.parametrize(
    "tables",
    [
        "[algorithm]\ntorso = 'sly:make'",
        "[settings]\ncallbacks = ' sly:make ,'",
        "[settings]\ntrack = 'sly:make'",
        "[settings]\ncluster = 'ray://127.0.0.1:9'\nseeds = 2",
        "[env]\nentry_point = 'sly:make'",
    ],
)
def test_a_strangers_preset_runs_nothing(
    tables: str, mark: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "preset.toml"
    file.write_text(tables)
    words = ["train", "ppo", "gym:CartPole-v1", "--preset", str(file), "--out", str(tmp_path)]
    refused(words, capsys, "--trust")
    assert not mark.exists()
    with pytest.raises(ShoalError, match="--trust"):
        shoal.train("ppo", "gym:CartPole-v1", preset=str(file), out=str(tmp_path))


def test_a_preset_of_ones_own_is_used_when_trusted(
    mark: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "preset.toml"
    file.write_text("[algorithm]\ntorso = 'sly:make'")
    words = ["train", "ppo", "gym:CartPole-v1", "--preset", str(file), "--out", str(tmp_path)]
    refused([*words, "--trust"], capsys, "sly:make is not a torso")
    assert mark.exists()


def test_processes_trust_only_what_they_are_handed(
    mark: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Words that another process gives are not typed by the user, whatever they say."""
    for handed in (NOTHING, Trust(named=frozenset({"other:make"}))):
        assert main(["train", "ppo", OWN, "--trust"], handed) == 2
        assert "--trust" in capsys.readouterr().err
    assert not mark.exists()
    job = Job(mark.parent / "job", ["ppo", OWN], EVERYTHING.only({"env": OWN}))
    assert job.trust == Trust(named=frozenset({OWN})) and NOTHING.only({"env": OWN}) == NOTHING


# -- folders that are no runs ----------------------------------------------------------------------


def deep(config: dict[str, Any]) -> None:
    inner: Any = 0
    for _ in range(300):
        inner = [inner]
    config["options"] = {"x": inner}


def resized(**sizes: Any) -> Callable[[dict[str, Any]], None]:
    def change(config: dict[str, Any]) -> None:
        config["teams"]["agent"]["spec"] |= sizes

    return change


DAMAGED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "tables without end": deep,
    "a negative size": resized(obs=-4),
    "a negative state": resized(state=-1),
    "no actions": resized(action={"Discrete": {"n": 0}}),
    "fewer actions than none": resized(action={"Discrete": {"n": -2}}),
    "bounds that are no pair": resized(action={"Box": {"low": [0.0], "high": [1.0, 2.0]}}),
    "nobody": resized(agents=[]),
    "the same agent twice": resized(agents=["a", "a"]),
    "sizes of somebody else": resized(obs_sizes=[4, 4, 4]),
    "a wider agent than the team": resized(obs_sizes=[400]),
    "images of another size": resized(pixels=[1000, 1000, 3]),
    "an enormous observation": resized(obs=2**31, state=2**31),
    "an observation as large as a layer may be": resized(obs=2**26, state=2**26),
    "an enormous net": lambda config: config["teams"]["agent"]["options"].update(
        hidden=16_000, layers=100
    ),
    "channels without end": lambda config: config["teams"]["agent"]["options"].update(
        channels="9" * 5000
    ),
    "no teams": lambda config: config.update(teams={}),
    "teams in a list": lambda config: config.update(teams=[1]),
    "an opponent of itself": lambda config: config["teams"]["agent"].update(
        algorithm="frozen", options={"run": "run", "team": "", "greedy": True}
    ),
}


@pytest.mark.parametrize("change", DAMAGED.values(), ids=DAMAGED)
def test_damaged_policies_are_refused_at_once(
    change: Callable, cartpole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = rewritten(cartpole, tmp_path / "run", change)
    for place in (run, run / "policy", next(checkpoint.places(run))):
        with pytest.raises(ShoalError) as caught:
            shoal.load(place)
        assert len(str(caught.value)) < 600


def safetensors(header: dict[str, Any], body: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


HEADERS = {
    "an enormous shape": safetensors(
        {"a": {"dtype": "F32", "shape": [2**40, 2**20], "data_offsets": [0, 4]}}, b"0000"
    ),
    "a shape that overflows": safetensors(
        {"a": {"dtype": "F32", "shape": [2**63, 4], "data_offsets": [0, 0]}}
    ),
    "a negative shape": safetensors(
        {"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, b"0000"
    ),
    "numbers that numpy has not": safetensors(
        {"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}, b"0000"
    ),
    "numbers nobody has": safetensors(
        {"a": {"dtype": "OBJECT", "shape": [1], "data_offsets": [0, 4]}}, b"0000"
    ),
    "a header without end": struct.pack("<Q", 2**62) + b"{}",
    "overlapping arrays": safetensors(
        {name: {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]} for name in "ab"}, b"0000"
    ),
    "nothing": b"",
}


@pytest.mark.parametrize("blob", HEADERS.values(), ids=HEADERS)
def test_hostile_arrays_are_refused(blob: bytes, cartpole: Path, tmp_path: Path) -> None:
    """With a checksum that fits."""
    shutil.copytree(cartpole / "policy", tmp_path / "policy")
    (tmp_path / "policy" / "weights.safetensors").write_bytes(blob)
    about = json.loads((tmp_path / "policy" / "policy.json").read_text())
    about["sha256"] = hashlib.sha256(blob).hexdigest()
    (tmp_path / "policy" / "policy.json").write_text(json.dumps(about))
    with pytest.raises(ShoalError):
        shoal.load(tmp_path / "policy")


def test_links_lead_nowhere(
    cartpole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run folder whose logs are links to one's own files is not gone on with; pipes and devices
    are not read."""
    precious = tmp_path / "precious"
    precious.write_text("mine")
    for name in ("metrics.jsonl", ".lock", "config.json.tmp", "tensorboard/events"):
        run = tmp_path / name.replace("/", "-")
        shutil.copytree(cartpole, run)
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(precious)
        refused(["resume", str(run)], capsys, "is a link that leads out of")
        assert precious.read_text() == "mine"
    for name in ("policy/policy.json", "policy/weights.safetensors"):
        run = tmp_path / f"device-{Path(name).name}"
        shutil.copytree(cartpole, run)
        (run / name).unlink()
        os.mkfifo(run / name)
        refused(["evaluate", str(run)], capsys, str(run))
        (run / name).unlink()
        (run / name).symlink_to("/dev/zero")
        refused(["evaluate", str(run)], capsys, str(run))


def test_policies_of_compiled_games_load_without_their_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who plays is saved with them; one of before, without that, needs the package."""
    spec = Spec(("agent_0", "agent_1"), 6, 12, Discrete(5))
    env = "jaxmarl:MPE_simple_spread_v3"
    config = Config.build(env, {"agent": ("ppo", dict(SMALL))}, {}, {}, specs={"agent": spec})
    rng = np.random.default_rng(0)
    Player(config, {team: one.init(rng) for team, one in config.algorithms.items()}, 0).save(
        tmp_path / "policy"
    )
    monkeypatch.setitem(sys.modules, "jaxmarl", None)
    player = shoal.load(tmp_path / "policy")
    assert player.act({"agent_0": np.zeros(6), "agent_1": np.ones(6)}).keys() == {
        "agent_0",
        "agent_1",
    }
    with pytest.raises(ShoalError, match="jaxmarl is not installed"):
        player.evaluate(1)


def test_a_config_from_a_file_keeps_what_it_may_run(cartpole: Path) -> None:
    plain = json.loads((cartpole / "config.json").read_text()) | {"env": OWN}
    with pytest.raises(ShoalError, match="--trust"):
        Config.from_json(plain)
    with pytest.raises(ShoalError, match="--trust"):
        _ = Config.of_policy(plain).game
    assert Config.of_policy(plain, EVERYTHING).game.name == OWN
    assert Config.from_json(plain, Trust(named=frozenset({OWN}))).game.name == OWN
