"""Parts of JAX and Flax that toile does not provide, and what to use instead.

When one of these parts is imported, a finder at the end of `sys.meta_path` raises an error with
this advice instead of only "No module named". The finder also finds the modules that `toile.compat`
provides under another name. It handles only names under `toile.`.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from typing import Any

from toile.engine.lazy import MissingName, compat_spec

# What to use instead of each part; a name also covers everything below it.
_INSTEAD = {
    "api_util": "it is internal to JAX; toile.core has Programs and avals",
    "cloud_tpu_init": "toile runs on CPUs and NVIDIA GPUs; nothing needs to be set up",
    "collect_profile": "use toile.profiler.trace, which writes a Chrome trace",
    "experimental.array_serialization": "use toile.training.checkpoints, or toile.numpy.save",
    "experimental.buffer_callback": "use toile.pure_callback or toile.experimental.io_callback",
    "experimental.colocated_python": "use toile.pure_callback or toile.experimental.io_callback",
    "experimental.compute_on": "use toile.device_put to place values",
    "experimental.custom_partitioning": "use toile.shard_map, which runs a function on each device",
    "experimental.hijax": "use toile.custom_jvp, toile.custom_vjp and toile.tree_util classes",
    "experimental.jax2tf": "toile.jit(f).lower(*args) shows the Program",
    "experimental.mosaic": "toile fuses kernels in toile.jit; write the function with toile.lax",
    "experimental.pallas": "toile fuses kernels in toile.jit; write the function with toile.lax",
    "experimental.rnn": "use toile.linen.OptimizedLSTMCell with toile.linen.RNN",
    "experimental.roofline": "toile.jit(f).lower(*args).cost_analysis() counts flops and bytes",
    "experimental.serialize_executable": "toile keeps compiled kernels on disk automatically",
    "experimental.source_mapper": "toile.make_jaxpr(f)(*args) shows the Program",
    "experimental.topologies": "use toile.sharding.AbstractMesh to trace for absent devices",
    "experimental.transfer": "use toile.device_put and toile.device_get",
    "extend": "it is internal to JAX; toile.core has Programs and avals",
    "interpreters": "it is internal to JAX; toile.core has Programs and avals",
    "lib": "it is internal to JAX; toile has neither jaxlib nor XLA",
    "linear_util": "it is internal to JAX; toile.core has Programs and avals",
    "tools": "toile.make_jaxpr(f)(*args) shows the Program",
    "nnx": "write modules with toile.linen",
    "testing": "time a step with toile.profiler, or in your test runner",
    "optim.contrib": 'with Optax installed, toile.interop.load("optax.contrib") runs on toile',
    "optim.experimental": 'with Optax installed, toile.interop.load("optax.experimental") works',
    "training.orbax_utils": "use toile.training.checkpoints, which saves trees itself",
}
_OF_FLAX = {"nnx", "testing", "training.orbax_utils"}


def explanation(name: str) -> str | None:
    """Explain why the module `name` cannot be imported; return None if the reason is unknown."""
    parts = name.split(".")
    if parts[0] != "toile":
        return None
    for cut in range(2, len(parts) + 1):
        part = ".".join(parts[1:cut])
        if part in _INSTEAD:
            origin = "flax." if part in _OF_FLAX else "jax."
            theirs = part.replace("optim.", "optax.") if part[:6] == "optim." else origin + part
            return f"toile has no counterpart of {theirs}: {_INSTEAD[part]}"
    return None


class _Finder:
    """Finds modules of `toile.compat`, or raises an ImportError that names an alternative."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        why = explanation(name)
        if why is not None:
            # Without a name: `from package import part` hides errors that name the part.
            raise ModuleNotFoundError(why)
        return compat_spec(name) if name.startswith("toile.") else None


def missing_attribute(module: str, name: str) -> AttributeError:
    """The error for an attribute that a module does not have."""
    return MissingName(module, name, explanation(f"{module}.{name}") or "")


def install() -> None:
    """Put the finder at the end of `sys.meta_path`, once."""
    if _Finder not in sys.meta_path:
        sys.meta_path.append(_Finder)
