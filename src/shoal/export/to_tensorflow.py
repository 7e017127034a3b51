"""A policy as a TensorFlow module, and as the SavedModel made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..plugins import package
from .formats import Run, loaded_module
from .program import Program
from .source import SAME, Words, arrays, module

MODULE = '''\
"""{title}. Written by Shoal; needs tensorflow alone."""

from pathlib import Path

import numpy as np
import tensorflow as tf


class Policy(tf.Module):
    def __init__(self, weights=Path(__file__).with_name("policy.npz")):
        super().__init__()
        self.weights = {{name: tf.constant(array) for name, array in np.load(weights).items()}}

    @tf.function
    def __call__(self, {inputs}):
        w = self.weights
{lines}
        return {{{outputs}}}
'''
PLAIN = ("exp", "log", "tanh", "sqrt", "sin", "cos", "abs", "sign", "floor", "ceil")
TENSORFLOW = Words(
    module="tf",
    template=MODULE,
    array="tf.cast({0}, {1})",
    truth="tf.bool",
    constant='w["{}"]',
    cast="tf.cast({0}, {1})",
    transpose="tf.transpose({0}, {1})",
    concatenate="tf.concat",
    arange="tf.range({})",
    operations=SAME
    | {name: f"tf.math.{name}({{0}})" for name in PLAIN}
    | {
        "logistic": "tf.sigmoid({0})",
        "shift_left": "tf.bitwise.left_shift({0}, {1})",
        "shift_right_logical": "tf.bitwise.right_shift({0}, {1})",
        "reduce_or": "tf.reduce_any({0}, {axes})",
        "reduce_and": "tf.reduce_all({0}, {axes})",
        "reduce_max": "tf.reduce_max({0}, {axes})",
        "reduce_min": "tf.reduce_min({0}, {axes})",
    },
    pad=lambda name, widths, value: f"tf.pad({name}, {tuple(widths)}, constant_values={value})",
    games="tf.shape(obs)[0]",
    reshape="tf.reshape({0}, {1})",
    reductions={
        "reduce_sum": "tf.reduce_sum({0}, {axes})",
        "argmax": "tf.argmax({0}, {axis})",
        "argmin": "tf.argmin({0}, {axis})",
        "cumsum": "tf.cumsum({0}, {axis})",
    },
)


class TensorFlow:
    """`policy.py`, whose `Policy` is a `tf.Module`, `policy.npz`, and `saved_model`."""

    packages = ("tensorflow",)
    files = "the SavedModel `saved_model`, made of `policy.py`, a `tf.Module`, and `policy.npz`"
    opened = ("import tensorflow as tf", 'policy = tf.saved_model.load("saved_model")')
    called = "policy(**inputs)"

    def write(self, program: Program, folder: Path) -> None:
        tf = package("tensorflow")
        plain = program.plain
        (folder / "policy.py").write_text(module(plain, TENSORFLOW, program.title))
        weights: dict[str, Any] = arrays(plain)
        np.savez(folder / "policy.npz", **weights)
        policy = loaded_module(folder / "policy.py").Policy()
        specs = {
            value.name: tf.TensorSpec(
                [size if isinstance(size, int) else None for size in value.shape],
                str(value.dtype),
                value.name,
            )
            for value in plain.inputs
        }
        signature = policy.__call__.get_concrete_function(**specs)
        tf.saved_model.save(policy, str(folder / "saved_model"), signatures=signature)

    def load(self, folder: Path) -> Run:
        policy = package("tensorflow").saved_model.load(str(folder / "saved_model"))
        return lambda inputs: {name: value.numpy() for name, value in policy(**inputs).items()}
