"""A JAX program rewritten into a few plain operations, which each format then writes in its words.

Calls and loops of known length are unrolled, what depends on weights alone is computed, random
numbers and rarer functions become arithmetic. What is left is named in `source.py` and
`to_onnx.py`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Literal

from . import threefry
from .steps import Plain, Shape, collect

DEEPEST = 20  # rewrites of rewrites
LONGEST = 64  # iterations of a loop that is unrolled


def plain(
    traced: ClosedJaxpr, shapes: Sequence[Any], inputs: Sequence[str], outputs: Sequence[str]
) -> Plain:
    """Rewrite a traced function of arguments of these shapes; inputs and outputs get names."""
    for _ in range(DEEPEST):
        traced = jax.make_jaxpr(partial(_run, traced))(*shapes)
        if not any(_rewritable(eqn) for eqn in traced.jaxpr.eqns):
            break
    return collect(traced, inputs, outputs)


def _rewritable(eqn: Any) -> bool:
    if eqn.primitive.name == "dot_general":
        return not _of_matrices(eqn)
    return eqn.primitive.name in RULES or _has_keys(eqn)


def _of_matrices(eqn: Any) -> bool:
    """Whether a product sums over one axis, and each side has one that the other has not."""
    summed, batch = eqn.params["dimension_numbers"]
    free = [len(var.aval.shape) - len(batch[0]) - len(summed[0]) for var in eqn.invars]
    return free == [1, 1] and len(summed[0]) == 1


def _has_keys(eqn: Any) -> bool:
    return any(
        jnp.issubdtype(getattr(var.aval, "dtype", float), jax.dtypes.prng_key)
        for var in (*eqn.invars, *eqn.outvars)
    )


def _run(traced: ClosedJaxpr, *args: Any) -> list[Any]:
    """Run a program with every equation rewritten once; keys are their raw data."""
    known: dict[Any, Any] = dict(zip(traced.jaxpr.constvars, traced.consts, strict=True))
    known |= zip(traced.jaxpr.invars, args, strict=True)

    def read(var: Any) -> Any:
        return var.val if isinstance(var, Literal) else known[var]

    for eqn in traced.jaxpr.eqns:
        ins = [read(var) for var in eqn.invars]
        lengths = (length for var in eqn.outvars for length in var.aval.shape)
        sized = all(isinstance(length, int) for length in lengths)
        with _computed(*ins) if sized else contextlib.nullcontext():
            known |= zip(eqn.outvars, _rewritten(eqn, ins), strict=True)
    return [read(var) for var in traced.jaxpr.outvars]


def _computed(*ins: Any) -> contextlib.AbstractContextManager[None]:
    """Within it, what depends on weights alone is computed, not traced."""
    constant = not any(isinstance(one, Tracer) for one in ins)
    return jax.ensure_compile_time_eval() if constant else contextlib.nullcontext()


def _rewritten(eqn: Any, ins: list[Any]) -> Sequence[Any]:
    name = eqn.primitive.name
    if name in RULES and _rewritable(eqn):
        outs = RULES[name](eqn.params, *ins)
        return outs if isinstance(outs, list | tuple) else [outs]
    if _has_keys(eqn):  # one that moves keys around: it moves their data likewise
        bind = partial(eqn.primitive.bind, **eqn.params)
        return [jax.vmap(bind, in_axes=-1, out_axes=-1)(*ins)]
    outs = eqn.primitive.bind(*ins, **eqn.params)
    return outs if eqn.primitive.multiple_results else [outs]


def _called(name: str) -> Callable[..., list[Any]]:
    """The rule that replaces a call by what it calls."""

    def rule(params: dict[str, Any], *ins: Any) -> list[Any]:
        inner = params[name]
        return _run(inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ()), *ins)

    return rule


def _scan(params: dict[str, Any], *ins: Any) -> list[Any]:
    """Unroll a loop."""
    consts, carries = _sizes(params)
    length = params["length"]
    if not isinstance(length, int) or length > LONGEST:
        raise NotImplementedError(f"a loop of {length} iterations")
    fixed = ins[:consts]
    carry = list(ins[consts : consts + carries])
    rows: list[list[Any]] = []
    order = range(length)
    for i in reversed(order) if params["reverse"] else order:
        now = [_row(x, i) for x in ins[consts + carries :]]
        outs = _run(params["jaxpr"], *fixed, *carry, *now)
        carry = outs[:carries]
        rows.append(outs[carries:])
    rows = rows[::-1] if params["reverse"] else rows
    return [*carry, *(jnp.stack(row) for row in zip(*rows, strict=True))]


def _sizes(params: dict[str, Any]) -> tuple[int, int]:
    """How many inputs of a scan stay the same, and how many it carries."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    same, carried, _ = params["ft_in"].unpack()  # since JAX 0.11
    return len(same), len(carried)


def _row(x: Any, i: int) -> Any:
    """Row of one iteration; known if all rows are, so that elements can be picked by it."""
    with _computed(x):
        return lax.index_in_dim(x, i, keepdims=False)


def _by_key(draw: Callable[[Array, Shape], Array], data: Array, shape: Shape) -> Array:
    """Draw with one key, or with each of several."""
    for _ in range(data.ndim - 1):
        draw = jax.vmap(draw, in_axes=(0, None))
    return draw(data, shape)


def _random_bits(params: dict[str, Any], data: Array) -> Array:
    if params["bit_width"] != 32:
        raise NotImplementedError(f"random numbers of {params['bit_width']} bits")
    return _by_key(threefry.bits, data, params["shape"])


def _from_bits(params: dict[str, Any], x: Array) -> Array:
    """Numbers whose bits are given, if they are neither 0, subnormal nor infinite."""
    if (x.dtype, params["new_dtype"]) != (jnp.uint32, jnp.float32):
        raise NotImplementedError(f"bits of {x.dtype} as {params['new_dtype']}")
    part = (x & jnp.uint32(0x7FFFFF)).astype(jnp.float32) * 2.0**-23
    power = ((x >> jnp.uint32(23)) & jnp.uint32(0xFF)).astype(jnp.float32) - 127.0
    sign = 1.0 - 2.0 * (x >> jnp.uint32(31)).astype(jnp.float32)
    return sign * (1.0 + part) * lax.pow(jnp.full_like(power, 2.0), power)


def _log1p(params: dict[str, Any], x: Array) -> Array:
    """`log(1 + x)` without loss near 0."""
    one = 1.0 + x
    near = one == 1.0
    return jnp.where(near, x, jnp.log(one) * (x / jnp.where(near, 1.0, one - 1.0)))


# M. Giles, "Approximating the erfinv function" (2010), in single precision
CENTRAL = (
    *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087),
    *(-0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
)
TAILS = (
    *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773),
    *(-0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
)


def _erf_inv(params: dict[str, Any], x: Array) -> Array:
    w = -jnp.log1p(-x * x)
    central = w < 5.0
    shifted = jnp.where(central, w - 2.5, jnp.sqrt(jnp.maximum(w, 5.0)) - 3.0)
    total: Any = 0.0
    for near, far in zip(CENTRAL, TAILS, strict=True):
        total = total * shifted + jnp.where(central, near, far)
    return total * x


def _gather(params: dict[str, Any], x: Array, index: Any) -> Array:
    """Rows at constant places, of one axis."""
    numbers = params["dimension_numbers"]
    sizes = params["slice_sizes"]
    if isinstance(index, Tracer) or len(numbers.start_index_map) != 1:
        raise NotImplementedError("picking elements by a computed number")
    (axis,) = numbers.start_index_map
    index = np.asarray(index)
    whole = all(sizes[i] == x.shape[i] for i in range(x.ndim) if i != axis)
    if not whole or index.ndim > 2 or numbers.operand_batching_dims:
        raise NotImplementedError("picking elements in several axes")
    last = x.shape[axis] - sizes[axis]
    starts = np.clip(index[..., 0].reshape(-1), 0, last)
    taken = [lax.slice_in_dim(x, int(at), int(at) + sizes[axis], axis=axis) for at in starts]
    if index.ndim == 1:
        return taken[0].squeeze(axis) if axis in numbers.collapsed_slice_dims else taken[0]
    (batch,) = {*range(x.ndim)} - {*numbers.offset_dims} if taken else (axis,)
    if axis not in numbers.collapsed_slice_dims:
        raise NotImplementedError("picking several blocks")
    return jnp.stack([row.squeeze(axis) for row in taken], batch)


def _scatter(params: dict[str, Any], x: Array, index: Any, row: Array) -> Array:
    """Replace the row at a constant place of one axis."""
    numbers = params["dimension_numbers"]
    axes = numbers.scatter_dims_to_operand_dims
    one = len(axes) == 1 and numbers.inserted_window_dims == axes
    if isinstance(index, Tracer) or not one or np.ndim(index) != 1:
        raise NotImplementedError("replacing elements at computed places")
    (axis,) = axes
    at = int(np.asarray(index)[0])
    before = lax.slice_in_dim(x, 0, at, axis=axis)
    after = lax.slice_in_dim(x, at + 1, None, axis=axis)
    parts = [before, lax.expand_dims(row, axes), after]
    return lax.concatenate([part for part in parts if part.shape[axis]], axis)


def _dynamic_slice(params: dict[str, Any], x: Array, *starts: Any) -> Array:
    if any(isinstance(start, Tracer) for start in starts):
        raise NotImplementedError("picking elements by a computed number")
    sizes = params["slice_sizes"]
    places = [
        0 if size == length else int(np.clip(start, 0, length - size))
        for start, size, length in zip(starts, sizes, x.shape, strict=True)
    ]
    return lax.slice(x, places, [at + size for at, size in zip(places, sizes, strict=True)])


def _dot_general(params: dict[str, Any], x: Array, y: Array) -> Array:
    """Any product as a sum over elementwise ones: `[batch, free of x, free of y, summed]`."""
    summed, batch = params["dimension_numbers"]
    free = [
        [i for i in range(side.ndim) if i not in (*axes, *common)]
        for side, axes, common in zip((x, y), summed, batch, strict=True)
    ]
    x = lax.transpose(x, (*batch[0], *free[0], *summed[0]))
    y = lax.transpose(y, (*batch[1], *free[1], *summed[1]))
    shared, own = len(batch[0]), len(free[0])
    x = lax.expand_dims(x, range(shared + own, shared + own + len(free[1])))
    y = lax.expand_dims(y, range(shared, shared + own))
    products = x * y
    return products.sum(tuple(range(products.ndim - len(summed[0]), products.ndim)))


def _split(params: dict[str, Any], x: Array) -> list[Array]:
    ends = np.cumsum([0, *params["sizes"]]).tolist()
    return [lax.slice_in_dim(x, start, end, axis=params["axis"]) for start, end in pairwise(ends)]


def _integer_pow(params: dict[str, Any], x: Array) -> Array:
    whole = math.prod([x] * abs(params["y"]), start=jnp.ones_like(x))
    return whole if params["y"] >= 0 else 1.0 / whole


def _clamp(params: dict[str, Any], low: Array, x: Array, high: Array) -> Array:
    return jnp.minimum(jnp.maximum(x, low), high)


def _same(params: dict[str, Any], *ins: Any) -> Any:
    return list(ins)


RULES: dict[str, Callable[..., Any]] = {
    "jit": _called("jaxpr"),
    "pjit": _called("jaxpr"),
    "closed_call": _called("call_jaxpr"),
    "core_call": _called("call_jaxpr"),
    "checkpoint": _called("jaxpr"),
    "custom_jvp_call": _called("call_jaxpr"),
    "custom_vjp_call": _called("call_jaxpr"),
    "scan": _scan,
    "random_seed": lambda params, seed: threefry.key_of(seed),
    "random_wrap": _same,
    "random_unwrap": _same,
    "random_bits": _random_bits,
    "random_split": lambda params, data: _by_key(threefry.split, data, params["shape"]),
    "random_fold_in": lambda params, data, number: threefry.fold_in(data, number),
    "bitcast_convert_type": _from_bits,
    "log1p": _log1p,
    "expm1": lambda params, x: jnp.where(jnp.abs(x) < 1e-3, x + x * x / 2, jnp.exp(x) - 1.0),
    "erf_inv": _erf_inv,
    "rsqrt": lambda params, x: 1.0 / jnp.sqrt(x),
    "square": lambda params, x: x * x,
    "integer_pow": _integer_pow,
    "clamp": _clamp,
    "gather": _gather,
    "scatter": _scatter,
    "dynamic_slice": _dynamic_slice,
    "dot_general": _dot_general,
    "split": _split,
    "stack": lambda params, *ins: lax.concatenate(
        [lax.expand_dims(x, [params["axis"]]) for x in ins], params["axis"]
    ),
    "unstack": lambda params, x: [
        lax.index_in_dim(x, i, params["axis"], keepdims=False)
        for i in range(x.shape[params["axis"]])
    ],
    "squeeze": lambda params, x: lax.reshape(x, _without(x.shape, params["dimensions"])),
    "expand_dims": lambda params, x: lax.expand_dims(x, params["dimensions"]),
    "stop_gradient": _same,
    "optimization_barrier": _same,
    "copy": _same,
    "copy_p": _same,
}


def _without(shape: Shape, axes: Sequence[int]) -> Shape:
    return tuple(length for i, length in enumerate(shape) if i not in axes)
