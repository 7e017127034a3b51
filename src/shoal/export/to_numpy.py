"""A policy as a module that needs numpy alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .formats import Run, loaded_module
from .program import Program
from .source import SAME, Words, arrays, module

MODULE = '''\
"""{title}. Written by Shoal; needs numpy alone."""

from pathlib import Path

import numpy as np


class Policy:
    def __init__(self, weights=Path(__file__).with_name("policy.npz")):
        self.weights = dict(np.load(weights))

    def __call__(self, {inputs}):
        w = self.weights
{lines}
        return {{{outputs}}}
'''
NUMPY = Words(
    module="np",
    template=MODULE,
    array="np.asarray({0}, {1})",
    truth="bool",
    constant='w["{}"]',
    cast="{0}.astype({1})",
    transpose="{0}.transpose({1})",
    concatenate="np.concatenate",
    arange="np.arange({})",
    operations=SAME
    | {
        "logistic": "0.5 + 0.5 * np.tanh(0.5 * {0})",
        "reduce_max": "{0}.max({axes})",
        "reduce_min": "{0}.min({axes})",
    },
    pad=lambda name, widths, value: f"np.pad({name}, {tuple(widths)}, constant_values={value})",
)


class Numpy:
    """`policy.py`, whose `Policy` is a function of arrays, and `policy.npz`."""

    packages = ()
    files = "`policy.py`, which needs numpy alone, and its weights `policy.npz`"
    opened = ("from policy import Policy", "policy = Policy()")
    called = "policy(**inputs)"

    def write(self, program: Program, folder: Path) -> None:
        plain = program.plain
        (folder / "policy.py").write_text(module(plain, NUMPY, program.title), "utf-8")
        weights: dict[str, Any] = arrays(plain)
        np.savez(folder / "policy.npz", **weights)

    def load(self, folder: Path) -> Run:
        policy = loaded_module(folder / "policy.py").Policy()
        return lambda inputs: policy(**inputs)
