"""A plain program as Python source, in the words of numpy, PyTorch or TensorFlow.

Numbers of 32 bits without sign are computed in 64, and cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .steps import Plain, Step, Value, product, times

CUT = "0xFFFFFFFF"
METHODS = {  # whose result is cast to the type that JAX gives it
    "reduce_sum": "{0}.sum({axes})",
    "argmax": "{0}.argmax({axis})",
    "argmin": "{0}.argmin({axis})",
    "cumsum": "{0}.cumsum({axis})",
}


class Words(NamedTuple):
    """What differs between packages: templates of expressions by operation."""

    module: str
    template: str  # of the whole file
    array: str  # the input {0} in the type {1}
    truth: str  # the type of truths
    constant: str  # of a constant's name
    cast: str  # {0} to the type {1}
    transpose: str  # {0} by the axes {1}
    concatenate: str
    arange: str
    operations: dict[str, str]
    pad: Callable[[str, Sequence[tuple[int, int]], Any], str]
    games: str = "obs.shape[0]"  # how many there are
    reshape: str = "{0}.reshape({1})"
    reductions: dict[str, str] = METHODS


SAME = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "pow": "{0} ** {1}",
    "neg": "-{0}",
    "not": "~{0}",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "xor": "{0} ^ {1}",
    "shift_left": "{0} << {1}",
    "shift_right_logical": "{0} >> {1}",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "max": "{m}.maximum({0}, {1})",
    "min": "{m}.minimum({0}, {1})",
    "select_n": "{m}.where({0}, {2}, {1})",
    **{name: f"{{m}}.{name}({{0}})" for name in ("exp", "log", "tanh", "sqrt", "sin", "cos")},
    **{name: f"{{m}}.{name}({{0}})" for name in ("abs", "sign", "floor", "ceil")},
    "reduce_or": "{0}.any({axes})",
    "reduce_and": "{0}.all({axes})",
}
CUT_OFF = {"add", "sub", "mul", "neg", "not", "shift_left"}  # may leave 32 bits


def module(program: Plain, words: Words, title: str) -> str:
    """The source of a module: a line for every step."""
    lines = [
        f"{value.name} = {words.array.format(value.name, _type(value.dtype, words))}"
        for value in program.inputs
    ]
    lines.append(f"B = {words.games}")
    lines += [f"{step.out.name} = {_expression(step, program, words)}" for step in program.steps]
    outputs = [f'"{name}": {_reference(value, program, words)}' for name, value in program.outputs]
    return words.template.format(
        title=title.replace("\\", r"\\").replace('"', r"\""),  # names must not end the docstring
        inputs=", ".join(value.name for value in program.inputs),
        lines="\n".join(f"        {line}" for line in lines),
        outputs=", ".join(outputs),
    )


def arrays(program: Plain) -> dict[str, np.ndarray]:
    """The constants, in the types that the source computes in."""
    return {
        name: np.array(array, type_name(array.dtype)) for name, array in program.constants.items()
    }


def _expression(step: Step, program: Plain, words: Words) -> str:
    names = [_reference(value, program, words) for value in step.ins]
    if step.op in words.operations:
        told = words.operations[step.op].format(*names, m=words.module, **_axes(step))
    elif step.op in OPERATIONS:
        told = OPERATIONS[step.op](step, names, program, words)
    else:
        raise NotImplementedError(f"the operation {step.op!r}")
    if step.out.dtype == np.uint32 and step.op in CUT_OFF:
        return f"({told}) & {CUT}"
    return told


def _reference(value: Value, program: Plain, words: Words) -> str:
    """How the program reads a value."""
    return words.constant.format(value.name) if value.name in program.constants else value.name


def type_name(dtype: np.dtype) -> str:
    """The type that values of a type are computed in."""
    return "int64" if dtype == np.uint32 else str(dtype)


def _type(dtype: np.dtype, words: Words) -> str:
    return words.truth if dtype.kind == "b" else f"{words.module}.{type_name(dtype)}"


def _axes(step: Step) -> dict[str, Any]:
    axes = step.params.get("axes", step.params.get("axis", ()))
    return {"axes": axes, "axis": axes[0] if isinstance(axes, tuple) and axes else axes}


def _length(length: Any) -> str:
    factor = times(length)
    return str(length) if factor is None else "B" if factor == 1 else f"{factor} * B"


def _shape(shape: Sequence[Any]) -> str:
    inner = ", ".join(map(_length, shape))
    return f"({inner},)" if len(shape) == 1 else f"({inner})"


def _cast(step: Step, names: list[str], program: Plain, words: Words) -> str:
    told = words.cast.format(names[0], _type(step.out.dtype, words))
    signed = step.ins[0].dtype.kind in "if"
    return f"{told} & {CUT}" if step.out.dtype == np.uint32 and signed else told


def _reshape(step: Step, names: list[str], program: Plain, words: Words) -> str:
    return words.reshape.format(names[0], _shape(step.out.shape))


def _broadcast(step: Step, names: list[str], program: Plain, words: Words) -> str:
    places = step.params["broadcast_dimensions"]
    thin = [1] * len(step.out.shape)
    for place, length in zip(places, step.ins[0].shape, strict=True):
        thin[place] = length
    aligned = words.reshape.format(names[0], _shape(thin)) if thin else names[0]
    return f"{words.module}.broadcast_to({aligned}, {_shape(step.out.shape)})"


def _slice(step: Step, names: list[str], program: Plain, words: Words) -> str:
    strides = step.params["strides"] or [1] * len(step.out.shape)
    parts = zip(step.params["start_indices"], step.params["limit_indices"], strides, strict=True)
    cuts = [
        ":" if (start, end, stride) == (0, length, 1) else _cut(start, end, stride)
        for (start, end, stride), length in zip(parts, step.ins[0].shape, strict=True)
    ]
    return f"{names[0]}[{', '.join(cuts)}]"


def _cut(start: Any, end: Any, stride: int) -> str:
    return f"{start}:{_length(end)}" + (f":{stride}" if stride > 1 else "")


def _iota(step: Step, names: list[str], program: Plain, words: Words) -> str:
    at = step.params["dimension"]
    thin = [1] * len(step.out.shape)
    thin[at] = step.out.shape[at]
    row = words.arange.format(_length(step.out.shape[at]))
    row = words.cast.format(row, _type(step.out.dtype, words))
    row = words.reshape.format(row, _shape(thin))
    return f"{words.module}.broadcast_to({row}, {_shape(step.out.shape)})"


def _concatenate(step: Step, names: list[str], program: Plain, words: Words) -> str:
    return f"{words.concatenate}([{', '.join(names)}], {step.params['dimension']})"


def _transpose(step: Step, names: list[str], program: Plain, words: Words) -> str:
    return words.transpose.format(names[0], tuple(step.params["permutation"]))


def _dot(step: Step, names: list[str], program: Plain, words: Words) -> str:
    sides = zip(names, product(step), strict=True)
    left, right = (
        name if list(axes) == sorted(axes) else words.transpose.format(name, axes)
        for name, axes in sides
    )
    return f"{left} @ {right}"


def _reduced(step: Step, names: list[str], program: Plain, words: Words) -> str:
    """A sum or an index, in the type that JAX gives it."""
    told = words.reductions[step.op].format(names[0], **_axes(step))
    return words.cast.format(told, _type(step.out.dtype, words))


def _place(step: Step, names: list[str], program: Plain, words: Words) -> str:
    """The first place of an extreme; not every package has one of truths."""
    if step.ins[0].dtype == bool:
        names = [words.cast.format(names[0], f"{words.module}.int32")]
    return _reduced(step, names, program, words)


def _pad(step: Step, names: list[str], program: Plain, words: Words) -> str:
    config = step.params["padding_config"]
    value = step.ins[1].name
    if value not in program.constants or any(
        min(low, high) < 0 or gap for low, high, gap in config
    ):
        raise NotImplementedError("padding between elements")
    number = program.constants[value].item()
    return words.pad(names[0], [(int(low), int(high)) for low, high, _ in config], number)


OPERATIONS: dict[str, Callable[[Step, list[str], Plain, Words], str]] = {
    "convert_element_type": _cast,
    "reshape": _reshape,
    "broadcast_in_dim": _broadcast,
    "slice": _slice,
    "iota": _iota,
    "concatenate": _concatenate,
    "transpose": _transpose,
    "dot_general": _dot,
    "pad": _pad,
    "reduce_sum": _reduced,
    "argmax": _place,
    "argmin": _place,
    "cumsum": _reduced,
}
