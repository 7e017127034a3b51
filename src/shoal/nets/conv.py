"""Convolutions before a torso, for image observations."""

from __future__ import annotations

from math import prod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .layers import ACTIVATIONS, Dense, Rng
from .mlp import Parts


class Conv(eqx.Module):
    """A convolution of images `[R,H,W,N,C]`, each agent's with its owner's weights.

    The image is cut into blocks as wide as the stride, of which 2 x 2 are read at once. Large
    images: 8 x 8 pixels at stride 4, then 4 x 4 at stride 2 (Mnih et al. 2015). At stride 1, 3 x 3
    pixels are read. On a CPU a `Dense` over neighbouring blocks is faster than XLA's convolution,
    and many times so where agents have their own weights.
    """

    dense: Dense
    stride: tuple[int, ...] = eqx.field(static=True)
    span: tuple[int, ...] = eqx.field(static=True)  # blocks read at once
    out: tuple[int, ...] = eqx.field(static=True)  # (H,W,C)

    def __init__(self, rng: Rng, owner: tuple[int, ...], shape: tuple[int, ...], channels: int):
        *sides, depth = shape
        self.stride = tuple(4 if side >= 32 else 2 if side >= 10 else 1 for side in sides)
        blocks = [-(-side // stride) for side, stride in zip(sides, self.stride, strict=True)]
        self.span = tuple(
            min(3 if stride == 1 else 2, count)
            for stride, count in zip(self.stride, blocks, strict=True)
        )
        self.out = (
            *(count - span + 1 for count, span in zip(blocks, self.span, strict=True)),
            channels,
        )
        self.dense = Dense(rng, owner, prod(self.stride) * prod(self.span) * depth, channels)

    def __call__(self, x: Array) -> Array:
        x = scaled(_blocks(x, *self.stride))  # scale late: moving bytes is faster
        rows, columns, _ = self.out
        strips = (x[:, i : i + rows] for i in range(self.span[0]))
        joined = (
            jnp.concatenate([strip[:, :, j : j + columns] for j in range(self.span[1])], -1)
            for strip in strips
        )
        return self.dense(*joined)


class ConvEncoder(eqx.Module):
    """Convolutions: uint8 images `[T,B,N,H·W·C]` -> features `[T,B,N,F]`.

    Without any convolution, the features are the pixels.
    """

    convs: tuple[Conv, ...]
    pixels: tuple[int, ...] = eqx.field(static=True)  # (H,W,C)
    activation: str = eqx.field(static=True)

    def __init__(
        self,
        rng: Rng,
        owner: tuple[int, ...],
        pixels: tuple[int, ...],
        channels: tuple[int, ...],
        activation: str,
    ):
        convs = []
        shape = pixels
        for depth in channels:
            convs.append(Conv(rng, owner, shape, depth))
            shape = convs[-1].out
        self.convs = tuple(convs)
        self.pixels = pixels
        self.activation = activation

    @property
    def size(self) -> int:
        return prod(self.convs[-1].out if self.convs else self.pixels)

    def __call__(self, image: Array) -> Array:
        alike = not self.convs or len(self.convs[0].dense.weight) == 1
        # with shared weights, every agent's image is a row
        agents = 1 if alike else image.shape[-2]
        image = image.astype(jnp.uint8)  # `Player` may pass bytes as floats
        x = jnp.moveaxis(image.reshape(-1, agents, *self.pixels), 1, 3)
        for conv in self.convs:
            x = ACTIVATIONS[self.activation](conv(x))
        return jnp.moveaxis(scaled(x), 3, 1).reshape(*image.shape[:-1], -1)


class Cnn(eqx.Module):
    """Convolutions over the image part of the input, then an inner torso.

    The inner torso reads the image's features and all other parts.
    """

    eye: ConvEncoder  # not renamed: saved policies contain this name
    inner: Any  # Mlp or Gru
    at: int = eqx.field(static=True)  # index of the image part

    def carry(self, games: int, rows: int) -> Array:
        return self.inner.carry(games, rows)

    def __call__(self, parts: Parts, carry: Array, first: Array) -> tuple[Array, Array]:
        before = parts[: self.at]
        image = parts[self.at]
        after = parts[self.at + 1 :]
        return self.inner((*before, self.eye(image), *after), carry, first)


def scaled(x: Array) -> Array:
    """Scale bytes to [0,1]; leave other types unchanged."""
    return x.astype(jnp.float32) / 255 if x.dtype == jnp.uint8 else x


def _blocks(x: Array, high: int, wide: int) -> Array:
    """Cut images `[R,H,W,N,C]` into blocks `[R,H/high,W/wide,N,high·wide·C]`, padded with zeros."""
    x = jnp.pad(x, ((0, 0), (0, -x.shape[1] % high), (0, -x.shape[2] % wide), (0, 0), (0, 0)))
    rows, height, width, agents, depth = x.shape
    x = x.reshape(rows, height // high, high, width // wide, wide, agents, depth)
    return x.transpose(0, 1, 3, 5, 2, 4, 6).reshape(
        *x.shape[:2], width // wide, agents, high * wide * depth
    )
