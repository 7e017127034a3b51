"""Settings that JAX gets before it starts."""

import subprocess
import sys

import pytest

from shoal import devices

WAITS = """
import resource
import jax, numpy as np
from shoal import devices
if {asked}: devices.compute_in_the_calling_thread()
devices.setup(1)
run = jax.jit(lambda x: jax.numpy.tanh(x @ x).sum(0))
x = np.ones((64, 64), np.float32)
np.asarray(run(x))
before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
for _ in range(300): np.asarray(run(x))
print(resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before)
"""


def test_small_programs_are_computed_without_waiting_for_another_thread():
    words = [sys.executable, "-c", WAITS.format(asked=True)]
    said = subprocess.run(words, capture_output=True, text=True, check=True)
    assert int(said.stdout) < 30, said.stderr  # handed over, each of the 300 calls waits


def test_a_share_is_a_number_of_cores(monkeypatch: pytest.MonkeyPatch):
    cores = devices.usable()
    monkeypatch.setenv(devices.SHARE, "1")
    assert devices.usable() == cores[:1]
    monkeypatch.setenv(devices.SHARE, str(len(cores) + 1))
    assert devices.usable() == cores
