"""A policy as a PyTorch module."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..plugins import package
from .formats import Run, loaded_module
from .program import Program
from .source import SAME, Words, arrays, module

MODULE = '''\
"""{title}. Written by Shoal; needs torch alone."""

from pathlib import Path

import torch


class Policy(torch.nn.Module):
    def __init__(self, weights=Path(__file__).with_name("policy.pt")):
        super().__init__()
        for name, tensor in torch.load(weights, weights_only=True).items():
            self.register_buffer(name, tensor)

    def forward(self, {inputs}):
{lines}
        return {{{outputs}}}
'''


def _padded(name: str, widths: Sequence[tuple[int, int]], value: Any) -> str:
    pairs = [length for pair in reversed(widths) for length in pair]
    return f"torch.nn.functional.pad({name}, {pairs}, value={value})"


TORCH = Words(
    module="torch",
    template=MODULE,
    array="{0}.to({1})",
    truth="torch.bool",
    constant="self.{}",
    cast="{0}.to({1})",
    transpose="{0}.permute({1})",
    concatenate="torch.cat",
    arange="torch.arange({}, device=obs.device)",
    operations=SAME
    | {
        "logistic": "torch.sigmoid({0})",
        "reduce_max": "{0}.amax({axes})",
        "reduce_min": "{0}.amin({axes})",
    },
    pad=_padded,
)


class Torch:
    """`policy.py`, whose `Policy` is a `torch.nn.Module`, and `policy.pt`."""

    packages = ("torch",)
    files = "`policy.py`, a `torch.nn.Module`, and its weights `policy.pt`"
    opened = (
        "import torch",
        "from policy import Policy",
        "policy = Policy()",
    )
    called = "policy(**{name: torch.as_tensor(value) for name, value in inputs.items()})"

    def write(self, program: Program, folder: Path) -> None:
        torch = package("torch")
        plain = program.plain
        (folder / "policy.py").write_text(module(plain, TORCH, program.title), "utf-8")
        weights = {name: torch.from_numpy(array) for name, array in arrays(plain).items()}
        torch.save(weights, folder / "policy.pt")

    def load(self, folder: Path) -> Run:
        torch = package("torch")
        policy = loaded_module(folder / "policy.py").Policy()
        return lambda inputs: {
            name: tensor.detach().numpy()
            for name, tensor in policy(
                **{name: torch.as_tensor(value) for name, value in inputs.items()}
            ).items()
        }
