"""A policy as StableHLO, which `jax.export` opens again without Shoal."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
from jax import export as jax_export

from .formats import Run
from .program import Program

PLATFORMS = ("cpu", "cuda", "tpu")


class StableHlo:
    """`policy.stablehlo`, a function of arrays in the order of `export.json`."""

    packages = ("flatbuffers",)
    files = "`policy.stablehlo`, which `jax.export` opens; it needs jax and flatbuffers"
    opened = (
        "from jax import export",
        'policy = export.deserialize(bytearray(open("policy.stablehlo", "rb").read()))',
    )
    called = "dict(zip(about['outputs'], policy.call(*inputs.values()), strict=True))"

    def write(self, program: Program, folder: Path) -> None:
        made = jax_export.export(jax.jit(program.act), platforms=PLATFORMS)(*program.structs)
        (folder / "policy.stablehlo").write_bytes(made.serialize())
        (folder / "policy.mlir").write_text(made.mlir_module(), "utf-8")
        self._names = list(program.inputs), list(program.outputs)

    def load(self, folder: Path) -> Run:
        policy = jax_export.deserialize(bytearray((folder / "policy.stablehlo").read_bytes()))
        inputs, outputs = self._names
        return lambda given: dict(
            zip(
                outputs,
                map(np.asarray, policy.call(*(given[name] for name in inputs))),
                strict=True,
            )
        )
