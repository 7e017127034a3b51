"""Exported policies do what the policies do, in every format, without Shoal or JAX."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from shoal import algorithms, envs
from shoal.algorithms.ppo import PPO
from shoal.cli.main import main
from shoal.config.config import Config
from shoal.errors import ShoalError
from shoal.export import formats, threefry
from shoal.export.check import check
from shoal.export.formats import loaded_module
from shoal.export.plain import plain
from shoal.export.program import NEXT, Policy, Program
from shoal.export.source import arrays, module
from shoal.export.to_numpy import NUMPY
from shoal.export.write import ABOUT, export
from shoal.nets.inputs import Context
from shoal.store.player import Player
from shoal.types import Box, Clock, Discrete, Spec, View

SMALL = {"hidden": 4, "layers": 2}
SPREAD = "mpe/simple_spread"
QUICK = [
    ("mappo", "gru", Discrete, False),
    ("mappo", "mlp", Box, False),
    ("qmix", "mlp", Discrete, True),
    ("maddpg", "gru", Box, True),
]
OTHERS = [
    pytest.param(name, torso, kind, greedy, marks=pytest.mark.slow)
    for name in algorithms.ALGORITHMS
    if algorithms.find(name).needs_training
    for torso in ("mlp", "gru")
    for kind in (Discrete, Box)
    if kind in algorithms.find(name).spaces
    for greedy in (True, False)
    if (name, torso, kind, greedy) not in QUICK
]
EVERY = ("name", "torso", "kind", "greedy")
FRAMEWORKS = ("torch", "tensorflow")  # each is several hundred megabytes, and may be missing
SLOW = [pytest.param(to, marks=pytest.mark.slow) for to in (*FRAMEWORKS, "stablehlo")]
# runs the example without the packages that are named
ALONE = """
import sys
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1:]:
            raise ImportError(name)
sys.meta_path.insert(0, Refused())
sys.path.insert(0, ".")
exec(open("example.py").read())
"""


def untrained(
    algorithm: str | dict[str, str],
    env: str,
    options: dict[str, Any] | None = None,
    specs: dict[str, Spec] | None = None,
    **own: Any,
) -> Player:
    teams = specs or envs.make(env, **options or {}).teams
    names = dict.fromkeys(teams, algorithm) if isinstance(algorithm, str) else algorithm
    sides = {
        team: (name, SMALL | own if algorithms.find(name).needs_training else {})
        for team, name in names.items()
    }
    config = Config.build(env, sides, options or {}, {}, specs=specs)
    rng = np.random.default_rng(1)
    return Player(config, {team: a.init(rng) for team, a in config.algorithms.items()}, 0)


def program(player: Player, team: str, greedy: bool = True) -> Program:
    algorithm = player.algorithms[team]
    learner = player.learners[team]
    return Program(Policy(team, algorithm, learner, player.clock, player.agents, greedy))


def written(player: Player, team: str, to: str, folder: Path, greedy: bool = True) -> Program:
    """Write a team's policy, and compare it with the policy."""
    made = program(player, team, greedy)
    one = formats.find(to)
    one.write(made, folder)
    assert check(made, one.load(folder), ()).decisions > 0
    return made


def test_random_numbers_are_those_of_jax():
    key = jax.random.key(7)
    data = jax.random.key_data(key)
    np.testing.assert_array_equal(threefry.key_of(np.int32(7)), data)
    np.testing.assert_array_equal(threefry.bits(data, (3, 5)), jax.random.bits(key, (3, 5)))
    keys = jax.random.key_data(jax.random.split(key, 3))
    np.testing.assert_array_equal(threefry.split(data, (3,)), keys)
    folded = jax.random.key_data(jax.random.fold_in(key, 9))
    np.testing.assert_array_equal(threefry.fold_in(data, np.uint32(9)), folded)


@pytest.mark.parametrize(EVERY, [*QUICK, *OTHERS])
def test_every_policy_is_equal_in_numpy_and_onnx(
    name: str, torso: str, kind: type, greedy: bool, tmp_path: Path
):
    player = untrained(name, SPREAD, {"continuous_actions": kind is Box}, torso=torso)
    made = written(player, "agent", "numpy", tmp_path, greedy)
    assert ("seed" in made.inputs) != greedy
    assert ("logits" in made.outputs) == (kind is Discrete)
    hidden = made.policy.algorithm.carry(made.policy.learner, 1).hidden
    remembers = torso == "gru" or any(leaf.size for leaf in jax.tree.leaves(hidden))
    carried = [name for name in made.inputs if name.startswith("carry_hidden")]
    assert bool(carried) == remembers and not any(name.endswith("_") for name in carried)
    written(player, "agent", "onnx", tmp_path, greedy)


@pytest.mark.slow
@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize(
    ("name", "env", "own"),
    [
        ("ppo", "test/factored_identity", {}),
        ("maddpg", SPREAD, {"policies": 2, "torso": "gru"}),
        ("qmix", SPREAD, {"ensemble": 2, "torso": "gru"}),
        ("dqn", SPREAD, {"ensemble": 2, "sharing": "own"}),
        ("ppo", SPREAD, {"entities": "4:2x3,10:2x2@2,3"}),
        ("mappo", SPREAD, {"one_hot": 2, "torso": "gru"}),
    ],
    ids=["parts", "policies", "ensemble", "own ensemble", "entities", "one-hot"],
)
def test_parts_and_ensembles_are_equal_in_numpy_and_onnx(
    name: str, env: str, own: dict[str, Any], greedy: bool, tmp_path: Path
):
    player = untrained(name, env, **own)
    for to in ("numpy", "onnx"):
        written(player, "agent", to, tmp_path, greedy)


@pytest.mark.slow
@pytest.mark.parametrize("to", FRAMEWORKS)
@pytest.mark.parametrize(EVERY, [*QUICK, *OTHERS])
def test_every_policy_is_equal_in_a_framework(
    name: str, torso: str, kind: type, greedy: bool, to: str, tmp_path: Path
):
    pytest.importorskip(to)
    player = untrained(name, SPREAD, {"continuous_actions": kind is Box}, torso=torso)
    written(player, "agent", to, tmp_path, greedy)


@pytest.mark.parametrize(
    ("name", "torso"), [("mappo", "gru"), pytest.param("masac", "mlp", marks=pytest.mark.slow)]
)
def test_stablehlo_is_equal(name: str, torso: str, tmp_path: Path):
    player = untrained(name, SPREAD, torso=torso)
    made = program(player, "agent", greedy=False)
    one = formats.find("stablehlo")
    one.write(made, tmp_path)
    assert check(made, one.load(tmp_path), ()).difference < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("to", [pytest.param("numpy", marks=pytest.mark.slow), "onnx", *SLOW])
def test_owners_sizes_last_actions_and_images(to: str, tmp_path: Path):
    if to in FRAMEWORKS:
        pytest.importorskip(to)
    many = {"last_action": True, "layer_norm": True, "activation": "relu"}
    written(untrained("mappo", SPREAD, sharing="0,0,1", **many), "agent", to, tmp_path)
    written(untrained("qmix", SPREAD, sharing="own", torso="gru"), "agent", to, tmp_path)
    comm = untrained("ppo", "mpe/simple_world_comm")  # agents of different sizes
    written(comm, "adversary", to, tmp_path, greedy=False)
    image = Spec(("a", "b"), 11 * 10 * 3, 4, Discrete(3), pixels=(11, 10, 3))
    for sharing in ("shared", "own"):
        seer = untrained("ppo", "gym:X-v0", specs={"t": image}, channels="2,3", sharing=sharing)
        assert written(seer, "t", to, tmp_path).inputs["obs"].dtype == np.uint8


class InTurn(PPO):
    """Its second agent's choice depends on the first one's."""

    name = "in-turn"

    def decide(
        self, actor: Any, context: Context, carry: Any, clock: Clock, key: Array, greedy: bool
    ) -> tuple[Any, Array, Any]:
        dist, raw, hidden = super().decide(actor, context, carry, clock, key, greedy)
        chosen = dist.log_probs[..., 1, :] + jax.nn.one_hot(raw[..., 0], self.spec.action.size)
        return dist, raw.at[..., 1].set(jnp.argmax(chosen, -1)), hidden


class Sorting(PPO):
    """It sorts its observations, for which only StableHLO has words."""

    name = "sorting"

    def context(self, learner: Any, view: View, carry: Any) -> Context:
        return super().context(learner, view._replace(obs=jnp.sort(view.obs, axis=-1)), carry)


class Looping(PPO):
    """It has a loop of unknown length."""

    name = "looping"

    def context(self, learner: Any, view: View, carry: Any) -> Context:
        def halved(now: tuple[Array, Array]) -> tuple[Array, Array]:
            return now[0] / 2, now[1] + 1

        obs, _ = jax.lax.while_loop(lambda now: now[1] < 3, halved, (view.obs, 0))
        return super().context(learner, view._replace(obs=obs), carry)


def of_a_kind(kind: type[PPO]) -> Program:
    spec = Spec(("a", "b", "c"), 3, 4, Discrete(3))
    algorithm = kind(kind.Config(hidden=4), spec)
    learner = algorithm.init(np.random.default_rng(0))
    clock = Clock(jnp.float32(0), jnp.float32(0))
    return Program(Policy("t", algorithm, learner, clock, spec.agents, True))


def test_a_loop_picks_elements_by_its_own_number():
    rows = jnp.arange(6.0).reshape(3, 2)

    def looped(x: Array) -> Array:
        def step(total: Array, i: Array) -> tuple[Array, None]:
            return total * jax.lax.dynamic_slice_in_dim(rows, i, 1), None

        return jax.lax.scan(step, x, jnp.arange(3))[0]

    shape = jax.ShapeDtypeStruct((4, 2), jnp.float32)
    made = plain(jax.make_jaxpr(looped)(shape), [shape], ["x"], ["y"])
    assert {step.op for step in made.steps} <= {"mul"}


@pytest.mark.parametrize("axes", ["bni,bni->bn", "bni,bi->bn", "bni,bni->b", "bni,cni->bc"])
def test_products_over_any_axes_have_words(axes: str, tmp_path: Path):
    sizes = {"b": 4, "c": 2, "n": 3, "i": 5}
    rng = np.random.default_rng(0)
    x, y = (
        rng.normal(size=[sizes[axis] for axis in side]).astype(np.float32)
        for side in axes.partition("->")[0].split(",")
    )
    traced = jax.make_jaxpr(lambda x, y: jnp.einsum(axes, x, y))(x, y)
    made = plain(traced, [x, y], ["obs", "y"], ["z"])
    (tmp_path / "policy.py").write_text(module(made, NUMPY, "a product"))
    np.savez(tmp_path / "policy.npz", **arrays(made))
    got = loaded_module(tmp_path / "policy.py").Policy()(obs=x, y=y)["z"]
    np.testing.assert_allclose(got, np.einsum(axes, x, y), rtol=1e-4, atol=1e-5)


def test_an_algorithm_of_ones_own(tmp_path: Path):
    made = of_a_kind(InTurn)
    for to in ("numpy", "onnx"):
        one = formats.find(to)
        one.write(made, tmp_path)
        check(made, one.load(tmp_path), ())


@pytest.mark.parametrize(("kind", "word"), [(Sorting, "sort"), (Looping, "while")])
def test_an_operation_without_words_is_named(kind: type[PPO], word: str, tmp_path: Path):
    made = of_a_kind(kind)
    with pytest.raises(ShoalError, match=f"'t' .{kind.name}. .*the operation '{word}'.*stablehlo"):
        export([made.policy], {}, tmp_path / "made", "numpy", {"env": "x", "steps": 0})
    assert not (tmp_path / "made").exists()
    one = formats.find("stablehlo")
    one.write(made, tmp_path)
    assert check(made, one.load(tmp_path), ()).decisions


@pytest.mark.slow
def test_it_acts_as_player_act_does(tmp_path: Path):
    """By agent name, over an episode that opens anew in one game."""
    player = untrained("mappo", SPREAD, torso="gru", last_action=True)
    done = player.export(tmp_path / "made", to="numpy")
    assert done.checked["agent"].played and not done.unplayed
    act = formats.find("numpy").load(done.path)
    about = json.loads((done.path / ABOUT).read_text())
    names = [agent["name"] for agent in about["agents"]]
    inputs: dict[str, Any] = {
        name: np.zeros([3 if size == "B" else size for size in one["shape"]], one["dtype"])
        for name, one in about["inputs"].items()
    }
    rng = np.random.default_rng(3)
    player.reset()
    for step in range(6):
        inputs["obs"] = rng.normal(size=inputs["obs"].shape).astype(np.float32) * 3
        inputs["legal"] = rng.random(inputs["legal"].shape) < 0.5
        inputs["legal"][..., 2] = True
        inputs["first"] = np.array([step == 0, step in (0, 3), step == 0])
        if step == 3:
            player.reset(rows=[1])
        wanted = player.act(
            {name: inputs["obs"][:, i] for i, name in enumerate(names)},
            legal={name: inputs["legal"][:, i] for i, name in enumerate(names)},
        )
        outputs = act(inputs)
        for i, name in enumerate(names):
            np.testing.assert_array_equal(outputs["action"][:, i], wanted[name])
        inputs |= _carried(outputs)


def _carried(outputs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name.removeprefix(NEXT): value for name, value in outputs.items() if name.startswith(NEXT)
    }


@pytest.mark.slow
def test_one_agent_alone_has_inputs_of_its_own(tmp_path: Path):
    player = untrained("mappo", SPREAD).agent("agent_1")
    done = player.export(tmp_path / "one", to="numpy")
    about = json.loads((done.path / ABOUT).read_text())
    assert about["inputs"]["obs"]["shape"] == ["B", 1, 18]
    assert [agent["name"] for agent in about["agents"]] == ["agent_1"]
    obs = np.random.default_rng(0).normal(size=(4, 18)).astype(np.float32)
    outputs = formats.find("numpy").load(done.path)(
        {"obs": obs[:, None], "legal": np.ones((4, 1, 5), bool)}
    )
    np.testing.assert_array_equal(outputs["action"][:, 0], player.act({"agent_1": obs})["agent_1"])


def test_a_policy_that_differs_is_refused():
    made = program(untrained("mappo", SPREAD), "agent")
    jitted = jax.jit(made.act)

    def run(inputs: Mapping[str, Any]) -> dict[str, Any]:
        return dict(zip(made.outputs, jitted(*inputs.values()), strict=True))

    def other_action(inputs: Mapping[str, Any]) -> dict[str, Any]:
        return run(inputs) | {"action": (run(inputs)["action"] + 1) % 5}

    def other_logits(inputs: Mapping[str, Any]) -> dict[str, Any]:
        return run(inputs) | {"logits": run(inputs)["logits"] + 1e-3}

    assert check(made, run, ()).difference < 1e-6
    with pytest.raises(ShoalError, match=r"'action' .* actions are others; choose another format"):
        check(made, other_action, ())
    with pytest.raises(ShoalError, match=r"'logits' it is .* away"):
        check(made, other_logits, ())


@pytest.mark.slow
@pytest.mark.parametrize("to", ["numpy", "onnx", *SLOW])
def test_the_example_runs_without_shoal_and_jax(to: str, tmp_path: Path):
    if to in FRAMEWORKS:
        pytest.importorskip(to)
    player = untrained("mappo", SPREAD, torso="gru")
    place = player.export(tmp_path / to, to=to, greedy=False).path
    refused = ["shoal", "equinox", *(["jax", "jaxlib"] if to != "stablehlo" else [])]
    command = [sys.executable, "-c", ALONE, *refused]
    ran = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout.splitlines()) == 3


@pytest.mark.slow
def test_each_team_has_a_folder_and_an_export_is_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    saved = untrained({"adversary": "qmix", "agent": "random"}, "mpe/simple_tag").save(
        tmp_path / "saved"
    )
    out = tmp_path / "out"
    for _ in range(2):
        assert main(["export", str(saved), "--to", "numpy", "--out", str(out)]) == 0
    specs = capsys.readouterr().out
    assert "team adversary:" in specs and f"wrote {out}" in specs
    names = {path.name for path in (out / "adversary").iterdir()}
    assert names == {"README.md", "example.py", ABOUT, "policy.py", "policy.npz"}
    assert (out / "agent" / "policy.py").is_file()
    words = ["--to", "numpy", "--team", "agent", "--out", str(tmp_path / "one")]
    assert main(["export", str(saved), *words]) == 0
    assert (tmp_path / "one" / "policy.py").is_file()  # one team needs no folder of its own


def test_what_cannot_be_exported_is_said_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    player = untrained("mappo", SPREAD)
    saved = player.save(tmp_path / "saved")

    def specs(*words: str) -> str:
        assert main(["export", *words]) == 2
        return capsys.readouterr().err

    assert "no format 'onx' (did you mean 'onnx'?)" in specs(str(saved), "--to", "onx")
    assert "say which run to export" in specs()
    assert "has no team 'agnt' (did you mean 'agent'?)" in specs(str(saved), "--team", "agnt")
    (tmp_path / "mine").mkdir()
    assert "is no export: choose" in specs(str(saved), "--out", str(tmp_path / "mine"))
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert "onnx is not installed: pip install 'shoal[export]'" in specs(str(saved))
    (saved / "weights.safetensors").write_bytes(b"x" * os.path.getsize(saved / "policy.json"))
    assert "the weights in" in specs(str(saved), "--to", "numpy")


@pytest.mark.slow
def test_past_selves_are_refused_and_the_team_beside_them_is_not(tmp_path: Path):
    teams = list(envs.make("matrix/matching_pennies").teams)
    player = untrained(dict(zip(teams, ("ppo", "past"), strict=True)), "matrix/matching_pennies")
    with pytest.raises(ShoalError, match=f"team '{teams[1]}' .past. cannot be exported: it cannot"):
        player.export(tmp_path / "both", to="numpy")
    assert not (tmp_path / "both").exists()
    assert player.team(teams[0]).export(tmp_path / "one", to="numpy").path.is_dir()


def test_without_its_environment_a_policy_is_checked_on_random_observations(tmp_path: Path):
    spec = Spec(("a",), 3, 2, Discrete(2))
    player = untrained("ppo", "gym:NotThere-v0", specs={"agent": spec})
    done = player.export(tmp_path / "made", to="numpy")
    assert not done.checked["agent"].played and "NotThere" in done.unplayed


@pytest.mark.parametrize("to", ["numpy", *SLOW])
@pytest.mark.parametrize("quotes", ['"""', '\\"""'])
def test_a_name_in_a_strangers_run_becomes_no_code(
    to: str, quotes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What is written is also run, to compare it; names of teams and agents are the stranger's."""
    if to in FRAMEWORKS:
        pytest.importorskip(to)
    monkeypatch.chdir(tmp_path)
    sly = f"{quotes};open('mark', 'w');{quotes}".replace("'", quotes[-1])
    spec = Spec((sly,), 3, 2, Discrete(2))
    player = untrained("ppo", "gym:NotThere-v0", specs={sly: spec})
    path = player.export(tmp_path / "made", to=to).path
    assert not (tmp_path / "mark").exists()
    assert json.loads((path / ABOUT).read_text())["team"] == sly


def test_a_format_of_another_package_is_found_by_its_path(tmp_path: Path):
    with pytest.raises(ShoalError, match="json:dumps is not a format: it must be a class that has"):
        formats.find("json:dumps")
    one = formats.find("shoal.export.to_numpy:Numpy")
    made = program(untrained("mappo", SPREAD), "agent")
    one.write(made, tmp_path)
    assert check(made, one.load(tmp_path), ()).decisions
