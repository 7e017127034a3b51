"""A plain program: steps in their order, collected from a trace that is already rewritten.

`plain.py` rewrites the trace; `source.py` and `to_onnx.py` write the steps in their words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

Shape = tuple[Any, ...]  # numbers, or a multiple of the symbol B
# operations that do nothing if they keep shape and type
IDLE = {"reshape", "convert_element_type", "broadcast_in_dim", "slice", "pad"}


class Value(NamedTuple):
    """An input or a result of a step."""

    name: str
    shape: Shape
    dtype: np.dtype


class Step(NamedTuple):
    """One operation: a primitive of JAX with its parameters."""

    op: str
    ins: tuple[Value, ...]
    out: Value
    params: dict[str, Any]


class Output(NamedTuple):
    """A result under the name that users know it by."""

    name: str
    value: Value


class Plain(NamedTuple):
    """Steps in their order, and the constants that they read."""

    inputs: tuple[Value, ...]
    constants: dict[str, np.ndarray]
    steps: tuple[Step, ...]
    outputs: tuple[Output, ...]

    @property
    def read(self) -> set[str]:
        """Names of the inputs that something depends on."""
        used = {value.name for step in self.steps for value in step.ins}
        used |= {output.value.name for output in self.outputs}
        return used & {value.name for value in self.inputs}

    def only(self, outputs: Sequence[str], inputs: Sequence[str]) -> Plain:
        """What some outputs need, of the inputs that are named or needed."""
        wanted = tuple(output for output in self.outputs if output.name in outputs)
        used = {output.value.name for output in wanted}
        kept: list[Step] = []
        for step in reversed(self.steps):
            if step.out.name in used:
                kept.append(step)
                used |= {value.name for value in step.ins}
        given = tuple(value for value in self.inputs if value.name in used or value.name in inputs)
        constants = {name: array for name, array in self.constants.items() if name in used}
        return Plain(given, constants, tuple(reversed(kept)), wanted)


class Product(NamedTuple):
    """A product of matrices: both operands transposed, then multiplied."""

    left: tuple[int, ...]
    right: tuple[int, ...]


def product(step: Step) -> Product:
    """How to compute a `dot_general` of one free and one summed axis of each operand."""
    (summed, batch) = step.params["dimension_numbers"]
    free = [
        [i for i in range(len(value.shape)) if i not in (*pair[0], *pair[1])]
        for value, *pair in zip(step.ins, summed, batch, strict=True)
    ]
    if any(len(axes) != 1 for axes in (*summed, *free)):
        raise NotImplementedError("a product over several axes")
    left = (*batch[0], *free[0], *summed[0])
    right = (*batch[1], *summed[1], *free[1])
    return Product(left, right)


def times(length: Any) -> int | None:
    """How many times the number of games a length is; None for one that does not depend on it."""
    if isinstance(length, int):
        return None
    factor, _, symbol = f"1*{length}".rpartition("*")
    numbers = factor.split("*")
    if symbol != "B" or not all(number.isdecimal() for number in numbers):
        raise NotImplementedError(f"an axis of length {length}")
    return math.prod(map(int, numbers))


class Collector:
    """Collects steps; equal ones and those that change nothing are left out."""

    def __init__(self) -> None:
        self.values: dict[Any, Value] = {}  # by variable
        self.constants: dict[str, np.ndarray] = {}
        self.steps: list[Step] = []
        self.same: dict[Any, Value] = {}  # what is computed, from what -> its result

    def read(self, var: Any) -> Value:
        if not isinstance(var, Literal):
            return self.values[var]
        aval: Any = var.aval
        return self.constant(np.asarray(var.val, aval.dtype))

    def constant(self, given: Any) -> Value:
        array = np.asarray(given)
        mark = (str(array.dtype), array.shape, array.tobytes())
        if mark not in self.same:
            value = Value(f"w{len(self.constants)}", array.shape, array.dtype)
            self.constants[value.name] = array
            self.same[mark] = value
        return self.same[mark]

    def add(self, eqn: Any) -> None:
        name = eqn.primitive.name
        if len(eqn.outvars) != 1:
            raise NotImplementedError(f"the operation {name!r}")
        (var,) = eqn.outvars
        ins = tuple(self.read(one) for one in eqn.invars)
        out = Value(f"x{len(self.steps)}", var.aval.shape, np.dtype(var.aval.dtype))
        if name in IDLE and (ins[0].shape, ins[0].dtype) == (out.shape, out.dtype):
            self.values[var] = ins[0]
            return
        params = eqn.params
        if name == "broadcast_in_dim" and math.prod(ins[0].shape) == math.prod(out.shape):
            name = "reshape"
            params = {"new_sizes": out.shape}
        mark = (name, tuple(one.name for one in ins), str(params))
        if mark not in self.same:
            self.same[mark] = out
            self.steps.append(Step(name, ins, out, params))
        self.values[var] = self.same[mark]


def collect(traced: ClosedJaxpr, inputs: Sequence[str], outputs: Sequence[str]) -> Plain:
    """The steps of a traced function, whose inputs and outputs get names."""
    jaxpr = traced.jaxpr
    made = Collector()
    for var, value in zip(jaxpr.constvars, traced.consts, strict=True):
        made.values[var] = made.constant(value)
    for name, var in zip(inputs, jaxpr.invars, strict=True):
        aval: Any = var.aval
        made.values[var] = Value(name, aval.shape, np.dtype(aval.dtype))
    for eqn in jaxpr.eqns:
        made.add(eqn)
    given = tuple(made.values[var] for var in jaxpr.invars)
    results = [made.read(var) for var in jaxpr.outvars]
    named = tuple(Output(name, value) for name, value in zip(outputs, results, strict=True))
    return Plain(given, made.constants, tuple(made.steps), named)
