"""Options that make the oracle compile several times faster.

Compiling is what takes jax's time in the tests. `OPTIONS` are for `jax.jit(compiler_options=...)`;
tests of random bits compile as users do.
"""

import importlib.metadata

_VERSION = tuple(int(n) for n in importlib.metadata.version("jax").split(".")[:2])

OPTIONS = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_parallel_codegen_split_count": 1,
}
if _VERSION < (0, 11):  # newer ones have no such option
    OPTIONS["xla_cpu_use_fusion_emitters"] = False
