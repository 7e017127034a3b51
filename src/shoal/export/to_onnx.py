"""A policy as ONNX, from the operations of opset 18.

Numbers of 32 bits without sign are computed in 64, and cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..plugins import package
from .formats import Run
from .program import Program
from .source import type_name
from .steps import Plain, Step, Value, product, times

OPSET = 18
IR = 9  # version of the file that came with this opset
CUT = 0xFFFFFFFF
DIRECT = {  # operation -> the same in ONNX
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "div": "Div",
    "pow": "Pow",
    "neg": "Neg",
    "max": "Max",
    "min": "Min",
    "exp": "Exp",
    "log": "Log",
    "tanh": "Tanh",
    "sqrt": "Sqrt",
    "sin": "Sin",
    "cos": "Cos",
    "abs": "Abs",
    "sign": "Sign",
    "floor": "Floor",
    "ceil": "Ceil",
    "logistic": "Sigmoid",
    "eq": "Equal",
    "lt": "Less",
    "le": "LessOrEqual",
    "gt": "Greater",
    "ge": "GreaterOrEqual",
}
CUT_OFF = {"add", "sub", "mul"}  # may leave 32 bits


class Graph:
    """Nodes of a graph as they are added."""

    def __init__(self, program: Plain):
        self.onnx = package("onnx")
        self.program = program
        self.nodes: list[Any] = []
        self.constants = {
            name: np.array(array, type_name(array.dtype))
            for name, array in program.constants.items()
        }
        self._games = ""

    def node(self, op: str, ins: Sequence[str], out: str = "", **attributes: Any) -> str:
        out = out or f"n{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(op, list(ins), [out], **attributes))
        return out

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        array = np.asarray(value, dtype)
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def cast(self, name: str, dtype: Any, out: str = "") -> str:
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(type_name(np.dtype(dtype))))
        return self.node("Cast", [name], out, to=kind)

    def cut(self, name: str, out: str = "") -> str:
        return self.node("BitwiseAnd", [name, self.constant(CUT)], out)

    def games(self) -> str:
        """The number of games, `[1]`."""
        if not self._games:
            self._games = self.node("Shape", ["obs"], start=0, end=1)
        return self._games

    def shape(self, lengths: Sequence[Any]) -> str:
        """A shape as a tensor."""
        factors = [times(length) for length in lengths]
        if all(factor is None for factor in factors):
            return self.constant(np.array(lengths, np.int64))
        parts = [
            self.constant([length]) if factor is None else self._multiple(factor)
            for length, factor in zip(lengths, factors, strict=True)
        ]
        return self.node("Concat", parts, axis=0) if len(parts) > 1 else parts[0]

    def _multiple(self, factor: int) -> str:
        return (
            self.games()
            if factor == 1
            else self.node("Mul", [self.games(), self.constant([factor])])
        )

    def reshaped(self, name: str, lengths: Sequence[Any], out: str = "") -> str:
        """Reshape; the one length that depends on the number of games follows from the others."""
        open_ended = [length if times(length) is None else -1 for length in lengths]
        if open_ended.count(-1) > 1 or 0 in open_ended:
            return self.node("Reshape", [name, self.shape(lengths)], out)
        return self.node("Reshape", [name, self.constant(np.array(open_ended, np.int64))], out)

    def add(self, step: Step) -> None:
        names = [value.name for value in step.ins]
        out = step.out.name
        if step.op in OPERATIONS:
            OPERATIONS[step.op](self, step, names, out)
        elif step.op in DIRECT and step.out.dtype == np.uint32 and step.op in CUT_OFF:
            self.cut(self.node(DIRECT[step.op], names), out)
        elif step.op in DIRECT:
            self.node(DIRECT[step.op], names, out)
        else:
            raise NotImplementedError(f"the operation {step.op!r}")

    def model(self, title: str) -> Any:
        """The finished model, checked."""
        helper = self.onnx.helper
        for step in self.program.steps:
            self.add(step)
        outputs = [
            output.value._replace(name=self.node("Identity", [output.value.name], output.name))
            for output in self.program.outputs
        ]
        used = {name for node in self.nodes for name in node.input}
        constants = [
            self.onnx.numpy_helper.from_array(array, name)
            for name, array in self.constants.items()
            if name in used
        ]
        graph = helper.make_graph(
            self.nodes,
            "policy",
            [self._described(value) for value in self.program.inputs],
            [self._described(value) for value in outputs],
            constants,
            title,
        )
        opset = helper.make_opsetid("", OPSET)
        model = helper.make_model(
            graph, opset_imports=[opset], ir_version=IR, producer_name="shoal"
        )
        self.onnx.checker.check_model(model, full_check=True)
        return model

    def _described(self, value: Value) -> Any:
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(type_name(value.dtype)))
        shape = [length if isinstance(length, int) else str(length) for length in value.shape]
        return self.onnx.helper.make_tensor_value_info(value.name, kind, shape)


# -- operations that need more than one node -------------------------------------------------------


def _truth(op: str, word: str, graph: Graph, step: Step, names: list[str], out: str) -> None:
    """A logical operation of truths, and a bitwise one of numbers."""
    graph.node(op if step.out.dtype == bool else f"Bitwise{word}", names, out)


def _not(graph: Graph, step: Step, names: list[str], out: str) -> None:
    if step.out.dtype == bool:
        graph.node("Not", names, out)
    else:
        graph.node("BitwiseXor", [names[0], graph.constant(CUT)], out)


def _ne(graph: Graph, step: Step, names: list[str], out: str) -> None:
    graph.node("Not", [graph.node("Equal", names)], out)


def _shift(op: str, graph: Graph, step: Step, names: list[str], out: str) -> None:
    """Shift by a constant number of bits, as a product or a quotient."""
    by = graph.program.constants.get(names[1])
    if by is None or step.out.dtype != np.uint32:
        raise NotImplementedError("shifting bits by a computed number")
    shifted = graph.node(op, [names[0], graph.constant(2 ** by.astype(np.int64))])
    graph.cut(shifted, out)


def _select(graph: Graph, step: Step, names: list[str], out: str) -> None:
    which, no, yes = names
    if step.out.dtype != bool:
        graph.node("Where", [which, yes, no], out)
        return
    either = [graph.node("And", [which, yes]), graph.node("And", [graph.node("Not", [which]), no])]
    graph.node("Or", either, out)


def _cast(graph: Graph, step: Step, names: list[str], out: str) -> None:
    if step.out.dtype == np.uint32 and step.ins[0].dtype.kind in "if":
        graph.cut(graph.cast(names[0], step.out.dtype), out)
    else:
        graph.cast(names[0], step.out.dtype, out)


def _reshape(graph: Graph, step: Step, names: list[str], out: str) -> None:
    graph.reshaped(names[0], step.out.shape, out)


def _broadcast(graph: Graph, step: Step, names: list[str], out: str) -> None:
    thin = [1] * len(step.out.shape)
    for place, length in zip(step.params["broadcast_dimensions"], step.ins[0].shape, strict=True):
        thin[place] = length
    aligned = graph.reshaped(names[0], thin)
    # Expand broadcasts both ways: a length that is there already need not be said
    wide = [1 if have == want else want for have, want in zip(thin, step.out.shape, strict=True)]
    graph.node("Expand", [aligned, graph.shape(wide)], out)


def _slice(graph: Graph, step: Step, names: list[str], out: str) -> None:
    strides = step.params["strides"] or [1] * len(step.out.shape)
    parts = zip(step.params["start_indices"], step.params["limit_indices"], strides, strict=True)
    cuts = [
        (start, end, axis, stride)
        for axis, (start, end, stride) in enumerate(parts)
        if (start, end, stride) != (0, step.ins[0].shape[axis], 1)
    ]
    if not all(isinstance(number, int) for cut in cuts for number in cut):
        raise NotImplementedError("a slice of the games")
    columns = [graph.constant(list(column)) for column in zip(*cuts, strict=True)]
    graph.node("Slice", [names[0], *columns], out)


def _iota(graph: Graph, step: Step, names: list[str], out: str) -> None:
    at = step.params["dimension"]
    length = step.out.shape[at]
    thin = [1] * len(step.out.shape)
    thin[at] = length
    end = graph.node("Squeeze", [graph.shape([length])])
    row = graph.node("Range", [graph.constant(0), end, graph.constant(1)])
    row = graph.reshaped(graph.cast(row, step.out.dtype), thin)
    graph.node("Expand", [row, graph.shape(step.out.shape)], out)


def _concatenate(graph: Graph, step: Step, names: list[str], out: str) -> None:
    graph.node("Concat", names, out, axis=step.params["dimension"])


def _transpose(graph: Graph, step: Step, names: list[str], out: str) -> None:
    graph.node("Transpose", names, out, perm=list(step.params["permutation"]))


def _dot(graph: Graph, step: Step, names: list[str], out: str) -> None:
    sides = [
        name if list(axes) == sorted(axes) else graph.node("Transpose", [name], perm=list(axes))
        for name, axes in zip(names, product(step), strict=True)
    ]
    graph.node("MatMul", sides, out)


def _reduce(op: str, graph: Graph, step: Step, names: list[str], out: str) -> None:
    axes = graph.constant(list(step.params["axes"]))
    if step.ins[0].dtype != bool:
        graph.node(op, [names[0], axes], out, keepdims=0)
        return
    whole = graph.node(op, [graph.cast(names[0], np.int32), axes], keepdims=0)
    graph.cast(whole, bool, out)


def _place(op: str, graph: Graph, step: Step, names: list[str], out: str) -> None:
    (axis,) = step.params["axes"]
    source = names[0]
    if step.ins[0].dtype == bool:
        source = graph.cast(source, np.int32)
    graph.cast(graph.node(op, [source], axis=axis, keepdims=0), step.out.dtype, out)


def _pad(graph: Graph, step: Step, names: list[str], out: str) -> None:
    config = step.params["padding_config"]
    if any(min(low, high) < 0 or gap for low, high, gap in config):
        raise NotImplementedError("padding between elements")
    widths = [low for low, _, _ in config] + [high for _, high, _ in config]
    graph.node("Pad", [names[0], graph.constant(widths), names[1]], out)


def _cumsum(graph: Graph, step: Step, names: list[str], out: str) -> None:
    axis = graph.constant(step.params["axis"])
    graph.node("CumSum", [names[0], axis], out, reverse=int(step.params["reverse"]))


OPERATIONS: dict[str, Callable[[Graph, Step, list[str], str], None]] = {
    "and": partial(_truth, "And", "And"),
    "or": partial(_truth, "Or", "Or"),
    "xor": partial(_truth, "Xor", "Xor"),
    "not": _not,
    "ne": _ne,
    "shift_left": partial(_shift, "Mul"),
    "shift_right_logical": partial(_shift, "Div"),
    "select_n": _select,
    "convert_element_type": _cast,
    "reshape": _reshape,
    "broadcast_in_dim": _broadcast,
    "slice": _slice,
    "iota": _iota,
    "concatenate": _concatenate,
    "transpose": _transpose,
    "dot_general": _dot,
    "reduce_sum": partial(_reduce, "ReduceSum"),
    "reduce_max": partial(_reduce, "ReduceMax"),
    "reduce_min": partial(_reduce, "ReduceMin"),
    "reduce_or": partial(_reduce, "ReduceMax"),
    "reduce_and": partial(_reduce, "ReduceMin"),
    "argmax": partial(_place, "ArgMax"),
    "argmin": partial(_place, "ArgMin"),
    "pad": _pad,
    "cumsum": _cumsum,
}


class Onnx:
    """`policy.onnx`."""

    packages = ("onnx", "onnxruntime")
    files = "`policy.onnx`, for any runtime of ONNX, such as onnxruntime"
    opened = (
        "import onnxruntime",
        'session = onnxruntime.InferenceSession("policy.onnx")',
    )
    called = "dict(zip(about['outputs'], session.run(list(about['outputs']), inputs), strict=True))"

    def write(self, program: Program, folder: Path) -> None:
        model = Graph(program.plain).model(program.title)
        (folder / "policy.onnx").write_bytes(model.SerializeToString())

    def load(self, folder: Path) -> Run:
        runtime = package("onnxruntime")
        session = runtime.InferenceSession(str(folder / "policy.onnx"))
        names = [output.name for output in session.get_outputs()]
        return lambda inputs: dict(zip(names, session.run(names, dict(inputs)), strict=True))
