"""Layers whose parameters have an owner axis.

All agents share one set, each agent has its own, or a partition says who shares with whom.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..errors import ShoalError
from ..types import Spec

Rng = np.random.Generator
MOST = 2**28  # weights of one layer: 1 GB, and three times that with gradient and Adam


class Blank(Rng):
    """Stand-in for a random generator that gives only zeros."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))


def outline(init: Callable[[Rng], Any]) -> Any:
    """Shapes of what `init` returns, without computing it."""
    return jax.eval_shape(lambda: init(Blank()))


def owners(sharing: str, spec: Spec) -> tuple[int, ...]:
    """The owner of each agent's parameters: `shared`, `own`, or a partition such as `0,0,1`."""
    if sharing == "shared":
        return (0,) * spec.n
    if sharing == "own":
        return tuple(range(spec.n))
    try:
        owner = tuple(int(part) for part in sharing.split(","))
    except ValueError:
        raise ShoalError(
            f"sharing must be shared, own or a partition such as 0,0,1, not {sharing!r}"
        ) from None
    if len(owner) != spec.n or sorted(set(owner)) != list(range(len(set(owner)))):
        raise ShoalError(
            f"the partition {sharing!r} must give each of the {spec.n} agents an owner,"
            f" numbered from 0 without gaps"
        )
    return owner


class Dense(eqx.Module):
    """`x W + b` for every agent. Inputs are parts `[…,N or 1,F]`, read as if concatenated.

    So a part that all agents share (the state) is multiplied once, not once per agent.
    """

    weight: Array  # [G,F,H]
    bias: Array  # [G,H], or [G,0] without one
    owner: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        rng: Rng,
        owner: tuple[int, ...],
        ins: int,
        outs: int,
        gain: float = 2**0.5,
        bias: bool = True,
    ):
        groups = max(owner) + 1
        if groups * ins * outs > MOST:
            own = f" for each of {groups} owners" if groups > 1 else ""
            raise ShoalError(
                f"a layer of {ins} inputs and {outs} outputs{own} is too large:"
                " lower the sizes of the nets, such as hidden, or of the game"
            )
        if isinstance(rng, Blank):
            self.weight = jnp.zeros((groups, ins, outs))
        else:
            self.weight = jnp.asarray(
                np.stack([gain * _orthogonal(rng, ins, outs) for _ in range(groups)])
            )
        self.bias = jnp.zeros((groups, outs if bias else 0))
        self.owner = owner

    def __call__(self, *parts: Array) -> Array:
        weight, bias = self._by_agent()
        out: Any = bias if bias.size else 0.0
        row = 0
        for part in parts:
            out = out + _matmul(part, weight[..., row : row + part.shape[-1], :])
            row += part.shape[-1]
        return out

    def rescaled(self, ratio: Array, shift: Array | float) -> Dense:
        """Outputs times `ratio`, plus `shift`."""
        moved = self.weight * ratio, self.bias * ratio + shift
        return eqx.tree_at(lambda dense: (dense.weight, dense.bias), self, moved)

    def transposed(self) -> Dense:
        """The layer that maps gradients of the outputs to gradients of the inputs.

        Its weight is stored transposed, not read so: faster where it is used again and again."""
        weight = jax.lax.optimization_barrier(self.weight.swapaxes(1, 2))
        parts = (weight, jnp.zeros((len(weight), 0)))
        return eqx.tree_at(lambda layer: (layer.weight, layer.bias), self, parts)

    def _by_agent(self) -> tuple[Array, Array]:
        groups = len(self.weight)
        if groups == 1:
            return self.weight[0], self.bias[0]
        if groups == len(self.owner):
            return self.weight, self.bias
        owner = jnp.asarray(self.owner)
        return self.weight[owner], self.bias[owner]


def _orthogonal(rng: Rng, ins: int, outs: int) -> np.ndarray:
    """A random matrix with orthonormal rows or columns (Saxe et al. 2014).

    Made with numpy, where QR needs no compilation.
    """
    q, r = np.linalg.qr(rng.normal(size=(max(ins, outs), min(ins, outs))))
    q = q * np.sign(np.diag(r))
    return (q if ins >= outs else q.T).astype(np.float32)


def _matmul(x: Array, weight: Array) -> Array:
    """Multiply `[…,N or 1,F]` by `[F,H]` for all agents, or by `[N,F,H]` for each.

    Leading axes are folded first: with several of them, XLA's gradient of a matmul copies its
    operand transposed.
    """
    if weight.ndim == 2:
        return _rows_times(x.reshape(-1, x.shape[-1]), weight).reshape(*x.shape[:-1], -1)
    x = jnp.broadcast_to(x, (*x.shape[:-2], weight.shape[0], x.shape[-1]))
    out = jnp.einsum("rnf,nfh->rnh", x.reshape(-1, *x.shape[-2:]), weight)
    return out.reshape(*x.shape[:-1], -1)


@jax.custom_vjp
def _rows_times(rows: Array, weight: Array) -> Array:
    """`[R,F] @ [F,H]`, with a gradient that is fast on a CPU.

    The gradient of the weight sums over many rows. Where it is not wider than the inputs, XLA is
    up to six times faster at that with the outer gradient transposed before.
    """
    return rows @ weight


def _rows_times_fwd(rows: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    return rows @ weight, (rows, weight)


def _rows_times_bwd(saved: tuple[Array, Array], grad: Array) -> tuple[Array, Array]:
    rows, weight = saved
    fixed = jax.lax.optimization_barrier  # else XLA folds the transpositions into the product again
    if grad.shape[1] <= rows.shape[1]:
        weight_grad = fixed(fixed(grad.T) @ rows).T
    else:
        weight_grad = rows.T @ grad
    return grad @ weight.T, weight_grad


_rows_times.defvjp(_rows_times_fwd, _rows_times_bwd)


def inner(x: Array, y: Array) -> Array:
    """Sum of the products along the last axis.

    As an einsum: where an axis has size 1, XLA on a CPU is ten times slower at a product that is
    then summed."""
    return jnp.einsum("...i,...i->...", x, y)


@jax.custom_vjp
def standardised(x: Array) -> Array:
    """Layer norm without scale and shift (Ba et al. 2016); the next Dense can learn both."""
    return _standardised_fwd(x)[0]


def _standardised_fwd(x: Array) -> tuple[Array, tuple[Array, Array]]:
    x = x - x.mean(-1, keepdims=True)
    scale = jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5)
    return x * scale, (x * scale, scale)


def _standardised_bwd(saved: tuple[Array, Array], grad: Array) -> tuple[Array]:
    out, scale = saved
    along = inner(grad, out)[..., None] / out.shape[-1]
    return (scale * (grad - grad.mean(-1, keepdims=True) - out * along),)


standardised.defvjp(_standardised_fwd, _standardised_bwd)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"tanh": jnp.tanh, "relu": jax.nn.relu}
