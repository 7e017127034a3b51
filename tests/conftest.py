"""Two CPU devices, programs that compile fast, and one compilation cache for all tests and all runs of them."""

import os
from pathlib import Path

# Before JAX starts: tests run a program once or twice, so it need not be a fast one. A quarter of the time to compile.
QUICK = (
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICK}".strip()

import jax  # noqa: E402

jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parent.parent / ".cache" / "xla"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
