"""`--from`: a run begins with another's weights, as far as they fit, and says what did."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import shoal
from shoal.cli.main import main
from shoal.config.arguments import compose_arguments
from shoal.errors import ShoalError
from shoal.store import checkpoint, folder, start

SIZES: dict[str, Any] = {
    "steps": 100,
    "games": 2,
    "window": 5,
    "hidden": 4,
    "layers": 1,
    "evaluations": 0,
    "eval_episodes": 2,
}
OFF: dict[str, Any] = {"warmup": 20, "capacity": 200, "batch": 4, "length": 4, "updates": 1}
SMALL = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in SIZES.items())


def train(algorithm: str, game: str, out: Path, **options: Any) -> Any:
    own = OFF if algorithm in ("dqn", "vdn", "qmix") else {}
    return shoal.train(
        algorithm, game, preset=False, out=str(out), **(SIZES | own | {"quiet": True} | options)
    )


@pytest.fixture(scope="module")
def mappo(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return train("mappo", "test/identity", tmp_path_factory.mktemp("made"), name="mappo")


@pytest.fixture(scope="module")
def vdn(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return train("vdn", "test/identity", tmp_path_factory.mktemp("made"), name="vdn")


def begun(words: str, run: Path) -> tuple[dict[str, Any], dict[str, Any], start.Start]:
    """Arrays of the first team's learner: fresh, and as it begins."""
    config, _ = compose_arguments(
        [*words.split(), *SMALL.split(), "--no-preset", "--from", str(run)]
    )
    rng = np.random.default_rng(0)
    fresh = {team: algorithm.init(rng) for team, algorithm in config.algorithms.items()}
    found = start.begin(config, fresh)
    team = next(iter(fresh))
    return folder.leaves_by_name(fresh[team]), folder.leaves_by_name(found.learners[team]), found


def saved(run: Path, team: str = "agent") -> dict[str, np.ndarray]:
    """Arrays of a team's learner in the newest checkpoint."""
    _, leaves = checkpoint.opened(next(checkpoint.places(run)))
    own = f"learners/{team}/"
    return {name.removeprefix(own): x for name, x in leaves.items() if name.startswith(own)}


@pytest.mark.slow
def test_it_plays_as_the_other_run_ended_and_learns_on(mappo: Any, tmp_path: Path) -> None:
    result = train("mappo", "test/identity", tmp_path, name="on", from_run=str(mappo.path))
    assert result.before == mappo.scores and result.before != mappo.before
    assert (result.path / "policy/weights.safetensors").read_bytes() != (
        mappo.path / "policy/weights.safetensors"
    ).read_bytes()


def test_nets_and_statistics_are_taken_and_optimisers_are_new(mappo: Any) -> None:
    fresh, first, found = begun("mappo test/identity", mappo.path)
    theirs = saved(mappo.path)
    assert set(theirs) == set(first)
    for name, leaf in first.items():
        kept = theirs if name.startswith(("params/", "scale/")) else fresh
        np.testing.assert_array_equal(leaf, kept[name])
    taken = sum(name.startswith(("params/", "scale/")) for name in first)
    assert found.sentences == [
        f"team agent starts from {mappo.path} (mappo after {mappo.steps} steps):"
        f" {taken} of {taken} arrays fit"
    ]


def test_another_member_of_the_family_takes_what_fits(mappo: Any) -> None:
    """The actor of MAPPO, and of its critic, which sees another input, all but what reads it."""
    fresh, first, found = begun("ppo test/identity", mappo.path)
    theirs = saved(mappo.path)
    new = "params/critic/torso/layers/0/weight"
    assert found.about["teams"]["agent"]["new"] == [new]
    np.testing.assert_array_equal(first[new], fresh[new])
    for name in first:
        if name.startswith("params/actor/"):
            np.testing.assert_array_equal(first[name], theirs[name])
    there = "x".join(map(str, theirs[new].shape))
    here = "x".join(map(str, np.shape(fresh[new])))
    assert found.sentences[0].endswith(f"; new are {new} ({there} there, {here} here)")


def test_other_options_of_the_game_may_change_shapes(mappo: Any) -> None:
    _, first, found = begun("mappo test/identity --env.n 3", mappo.path)
    new = found.about["teams"]["agent"]["new"]
    assert new == [f"params/{part}/torso/layers/0/weight" for part in ("actor", "critic")]
    _, _, same = begun("mappo test/identity --env.length 7", mappo.path)
    assert not same.about["teams"]["agent"]["new"]
    assert len(first) > len(new)


@pytest.mark.slow
def test_targets_are_taken_or_begin_as_what_they_follow(vdn: Any) -> None:
    """A checkpoint has them; a policy does not."""
    _, first, _ = begun("vdn test/identity --warmup 20 --capacity 200", vdn.path)
    theirs = saved(vdn.path)
    targets = [name for name in first if name.startswith("target/")]
    assert targets and int(first["updates"]) == 0
    for name in targets:
        np.testing.assert_array_equal(first[name], theirs[name])
    _, first, _ = begun("vdn test/identity --warmup 20 --capacity 200", vdn.path / "policy")
    for name in targets:
        np.testing.assert_array_equal(first[name], theirs[name.replace("target", "params", 1)])


def test_another_family_is_refused(vdn: Any, mappo: Any) -> None:
    with pytest.raises(ShoalError, match="trained team 'agent' by vdn, whose nets mean something"):
        begun("mappo test/identity", vdn.path)
    with pytest.raises(ShoalError, match="start from a run of dqn or of an algorithm of its"):
        begun("dqn test/identity --warmup 20", mappo.path)


def test_nothing_that_fits_is_refused_before_anything_is_made(
    mappo: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["mappo", "test/identity", *SMALL.split(), "--hidden", "7", "--env.actions", "5"]
    where = ["--from", str(mappo.path), "--out", str(tmp_path / "runs")]
    for seeds in ([], ["--seeds", "2"]):
        assert main(["train", *words, *where, *seeds]) == 2
        assert f"nothing of {mappo.path} can be started from" in capsys.readouterr().err
    assert main(["train", *words, "--from", "nowhere", "--out", str(tmp_path / "runs")]) == 2
    assert "there is no folder nowhere" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_teams_are_told_apart_by_name(tmp_path: Path) -> None:
    """One of them learns in both runs, one begins to, one never does."""
    env = "matrix/matching_pennies"
    both = {"even": ("ppo", {"hidden": 4, "layers": 1}), "odd": "random"}
    sizes = {name: value for name, value in SIZES.items() if name not in ("hidden", "layers")}
    made = shoal.train(env, teams=both, out=str(tmp_path), name="made", quiet=True, **sizes)
    _, first, found = begun(f"ppo {env}", made.path)
    theirs = saved(made.path, "even")
    assert all(np.array_equal(first[name], theirs[name]) for name in first if "params" in name)
    assert found.sentences[1] == f"team odd begins anew: it played random in {made.path}"
    with pytest.raises(ShoalError, match=r"team agent begins anew.*no team of that name"):
        begun("ppo test/identity", made.path)


@pytest.mark.slow
def test_it_is_recorded_and_resumed_without_the_other_folder(mappo: Any, tmp_path: Path) -> None:
    class Enough(shoal.Callback):
        def on_iteration(self, run: Any, values: dict[str, float]) -> None:
            run.stop()

    other = shutil.copytree(mappo.path, tmp_path / "other")
    options: dict[str, Any] = {"from_run": str(other), "env": {"n": 3}}
    whole = train("mappo", "test/identity", tmp_path, name="whole", **options)
    cut = train("mappo", "test/identity", tmp_path, name="cut", callbacks=[Enough()], **options)
    shutil.rmtree(other)
    done = shoal.resume(cut.path, quiet=True)
    assert done.scores == whole.scores and done.from_run == str(other)
    config = json.loads((cut.path / folder.CONFIG).read_text())
    assert config["settings"]["from_run"] == config["start"]["run"] == str(other)
    assert config["start"]["steps"] == mappo.steps
    assert json.loads((cut.path / folder.SUMMARY).read_text())["from_run"] == str(other)


def test_nothing_that_a_strangers_folder_names_is_imported(mappo: Any, tmp_path: Path) -> None:
    about, leaves = checkpoint.opened(next(checkpoint.places(mappo.path)))
    (tmp_path / folder.CONFIG).write_text("{}")
    about["config"]["env"] = "no_such_module:make"
    checkpoint.write(tmp_path, leaves, about, keep=1)
    assert begun("mappo test/identity", tmp_path)[2].learners
    about["config"]["teams"]["agent"]["algorithm"] = "no_such_module:Mine"
    checkpoint.write(tmp_path, leaves, about, keep=1)
    with pytest.raises(ShoalError, match="by no_such_module:Mine, whose nets mean something else"):
        begun("mappo test/identity", tmp_path)


def test_every_learning_algorithm_says_what_may_be_taken() -> None:
    """Every field of a learner is either taken over or one of those that begin anew."""
    for words in ("ppo test/identity", "dqn test/identity", "sac test/continuous_identity"):
        config, _ = compose_arguments([*words.split(), *SMALL.split(), "--no-preset"])
        (algorithm,) = config.algorithms.values()
        learner = jax.eval_shape(lambda one=algorithm: one.init(np.random.default_rng(0)))
        left = set(learner._fields) - set(algorithm.inherits)
        assert left <= {"opt", "updates", "curiosity"} and algorithm.family
