"""Export policies: a folder for each team, with what it needs to be used elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .. import files
from ..errors import ShoalError
from ..types import View
from . import formats
from .check import TOLERANCE, Checked, check
from .formats import Format
from .program import NEXT, Policy, Program, Unsupported
from .steps import Value

ABOUT = "export.json"
MEANINGS = {  # of inputs and outputs
    "obs": "what each agent observes; zeros, or anything, beyond an agent's own size",
    "legal": "which actions are legal; all where there are no masks",
    "alive": "which agents are present",
    "first": "whether the game opens an episode",
    "seed": "decides what is drawn: another number at every step",
    "action": "what each agent does",
    "logits": "what a greedy agent maximises over its legal actions",
}
EXAMPLE = '''\
"""Play three steps of two games, in which everything observed is 0."""

import json

import numpy as np
{opened}

about = json.load(open("export.json"))
inputs = {{}}
for name, one in about["inputs"].items():  # everything is legal and alive, and an episode opens
    shape = [2 if size == "B" else size for size in one["shape"]]
    inputs[name] = np.full(shape, one["dtype"] == "bool", one["dtype"])
for step in range(3):
    outputs = {called}
    print(step, np.asarray(outputs["action"]).tolist())
{following}'''
CARRIED = """\
    inputs |= {name[5:]: value for name, value in outputs.items() if name.startswith("next_")}
"""
README = """\
# {title}

Exported by Shoal to {to}: {files}. Shoal is not needed.
`python example.py`, in this folder, plays a few steps.

- environment: `{env}`, trained for {steps:,} steps
- agents, in the order of the second axis: {agents}
- actions: {action}

`B` is the number of games side by side, and free.

| input | shape | type | meaning |
|---|---|---|---|
{inputs}

| output | shape | type | meaning |
|---|---|---|---|
{outputs}

{carry}Before it was written, it was compared with the policy in Shoal: {decisions:,} decisions on
{seen}. {equal} `export.json` says all this for programs.
"""


class Exported(NamedTuple):
    """What was written where."""

    path: Path
    checked: dict[str, Checked]  # by team
    unplayed: str = ""  # why no observations of the game itself were among those checked


def export(
    policies: Sequence[Policy],
    recorded: Mapping[str, Sequence[View]],
    path: Path,
    to: str,
    about: dict[str, Any],
) -> Exported:
    """Write a folder for each team into `path`, or `path` itself for a single one.

    `recorded` are views to check them on, `about` are further entries of `export.json`."""
    if path.exists() and not _ours(path):
        raise ShoalError(f"{path} exists already and is no export: choose another place")
    made = formats.find(to)
    checked: dict[str, Checked] = {}
    try:
        with files.atomic_folder(path) as temporary:
            places = _places(temporary, policies)
            for policy, place in zip(policies, places, strict=True):
                place.mkdir(exist_ok=True)
                program = Program(policy)
                views = recorded.get(policy.team, ())
                checked[policy.team] = _write(made, program, place, views, about | {"to": to})
    except OSError as error:
        why = error.strerror or error
        raise ShoalError(
            f"the policy cannot be written to {path} ({why}): mend that, or choose another place"
        ) from None
    return Exported(path, checked)


def _ours(path: Path) -> bool:
    """Whether a folder is an export, of one team or of several."""
    return (path / ABOUT).is_file() or any(path.glob(f"*/{ABOUT}"))


def _places(path: Path, policies: Sequence[Policy]) -> list[Path]:
    """A folder for each team; `path` itself for a single one."""
    if len(policies) == 1:
        return [path]
    names = [re.sub(r"[^\w-]+", "-", policy.team) for policy in policies]
    return [
        path / (name if names.count(name) == 1 else f"{name}-{i}") for i, name in enumerate(names)
    ]


def _write(
    made: Format, program: Program, place: Path, views: Sequence[View], about: dict[str, Any]
) -> Checked:
    try:
        made.write(program, place)
    except NotImplementedError as error:
        raise Unsupported(
            program.policy, f"{about['to']} has no words for {error}; take stablehlo"
        ) from None
    checked = check(program, made.load(place), views)
    about = about | _facts(program) | {"checked": checked._asdict()}
    files.write_json(place / ABOUT, about)
    (place / "example.py").write_text(_example(made, program), "utf-8")
    (place / "README.md").write_text(_readme(made, program, about), "utf-8")
    return checked


def _facts(program: Program) -> dict[str, Any]:
    policy = program.policy
    spec = policy.spec
    obs = spec.obs_sizes or (spec.obs,) * spec.n
    actions = spec.action_sizes or (spec.action.size,) * spec.n
    return {
        "team": policy.team,
        "algorithm": policy.algorithm.name,
        "greedy": policy.greedy,
        "agents": [
            {"name": spec.agents[i], "obs": obs[i], "actions": actions[i]} for i in policy.rows
        ],
        "action": spec.to_json()["action"],
        "inputs": _described(program.inputs),
        "outputs": _described(program.outputs),
    }


def _described(values: Mapping[str, Value]) -> dict[str, Any]:
    return {
        name: {
            "shape": [size if isinstance(size, int) else str(size) for size in value.shape],
            "dtype": str(value.dtype),
        }
        for name, value in values.items()
    }


def _example(made: Format, program: Program) -> str:
    following = CARRIED if any(name.startswith(NEXT) for name in program.outputs) else ""
    if "first" in program.inputs:
        following += '    inputs["first"] = np.zeros(2, bool)\n'
    if "seed" in program.inputs:
        following += '    inputs["seed"] = np.array(step + 1, "int32")\n'
    opened = "\n".join(made.opened)
    return EXAMPLE.format(opened=opened, called=made.called, following=following)


def _readme(made: Format, program: Program, about: dict[str, Any]) -> str:
    checked = Checked(**about["checked"])
    agents = [f"`{agent['name']}` ({agent['obs']} numbers)" for agent in about["agents"]]
    ((kind, space),) = about["action"].items()
    discrete = f"numbers below {space.get('n')}"
    parts = f"numbers, a part each, below {space.get('parts')}"
    real = f"vectors between {space.get('low')} and {space.get('high')}"
    carried = [f"`{name}`" for name in program.inputs if NEXT + name in program.outputs]
    begun = f"{' and '.join(carried)}: zeros at the first step, then the last `{NEXT}…`.\n\n"
    games = "observations of its game and random ones"
    return README.format(
        title=program.title,
        to=about["to"],
        files=made.files,
        env=about["env"],
        steps=about["steps"],
        agents=", ".join(agents),
        action={"Discrete": discrete, "MultiDiscrete": parts}.get(kind, real),
        inputs=_table(about["inputs"]),
        outputs=_table(about["outputs"]),
        carry=begun if carried else "",
        decisions=checked.decisions,
        seen=games if checked.played else "random observations",
        equal=f"All actions were equal{f' to {TOLERANCE}' if kind == 'Box' else ''}.",
    )


def _table(values: dict[str, Any]) -> str:
    return "\n".join(
        f"| `{name}` | [{', '.join(map(str, one['shape']))}] | {one['dtype']} | {_meaning(name)} |"
        for name, one in values.items()
    )


def _meaning(name: str) -> str:
    if name in MEANINGS:
        return MEANINGS[name]
    return "what the policy remembers" + (", for the next step" if name.startswith(NEXT) else "")
