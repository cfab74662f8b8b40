"""Names that exist only for compatibility with code that imports them from JAX, Flax or Optax.

No other module of toile imports this package, so the rest can be read without it. The
`__init__.pyi` files of `toile.core` and `toile.lax` import public names from here. Everything else
is found through `toile.engine.lazy`: the modules in `MODULES` when they are imported, and the names
in `NAMES` when a module does not have a requested name.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# The name that a module is imported by -> the module. The modules in a package move with it.
MODULES = {
    "toile.core._jax_names": "toile.compat.jax_core",
    "toile.interop.faces": "toile.compat.faces",
    "toile.lax._names": "toile.compat.jax_primitives",
    "toile.optim._src": "toile.compat.optax_src",
}
# Names of modules of Flax, most of them private -> what they are here; all without `toile.`.
NAMES = {
    "core.scope._is_valid_rng": "core.rng.is_valid_rng",
    "core.scope._is_valid_rngs": "core.rng.is_valid_rngs",
    "linen.linear._Conv": "linen.convolution._Conv",
    "linen.linear._canonicalize_tuple": "core.nn.linear.as_tuple",
    "linen.linear._conv_dimension_numbers": "linen.convolution._conv_dimension_numbers",
    "linen.module._context": "linen.context.context",
    "linen.module._freeze_attr": "linen.adoption.freeze_attr",
    "linen.module._get_local_method_names": "linen.methods.local_methods",
    "linen.module._get_suffix_value_pairs": "linen.adoption.suffixes_and_values",
    "linen.normalization.PRNGKey": "typing.PRNGKey",
    "linen.normalization.Shape": "typing.Shape",
    "linen.normalization._canonicalize_axes": "core.nn.normalization.canonical_axes",
    "linen.normalization._compute_stats": "compat.flax_normalization._compute_stats",
    "linen.normalization._l2_normalize": "linen.weight_normalization._l2_normalize",
    "linen.normalization._normalize": "compat.flax_normalization._normalize",
    "linen.partitioning._with_sharding_constraint": "linen.spmd._with_sharding_constraint",
    "linen.summary._ArrayRepresentation": "linen.summary.ArrayRepresentation",
    "linen.summary._ObjectRepresentation": "linen.summary.ObjectRepresentation",
    "linen.summary._get_module_table": "linen.summary.module_table",
    "linen.transforms._HashableProxy": "linen.transforms.keys.ModuleKey",
    "scipy.special.lpmn_values": "compat.legendre.lpmn_values",
    "serialization._STATE_DICT_REGISTRY": "serialization.states.registered",
    "serialization._msgpack_ext_pack": "serialization.array_codes.pack",
    "serialization._msgpack_ext_unpack": "serialization.array_codes.unpack",
}


def find(module: str, name: str) -> Any:
    """The value of a name that a module does not have itself; None if there is none."""
    if f"{module}.{name}" in MODULES:
        return importlib.import_module(f"{module}.{name}")
    home, _, inner = NAMES.get(f"{module}.{name}".removeprefix("toile."), "").rpartition(".")
    return getattr(importlib.import_module(f"toile.{home}"), inner) if home else None


class Finder:
    """Imports the modules of `MODULES` and those below them: each exists once, under two names."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        for alias, home in MODULES.items():
            if name == alias or name.startswith(f"{alias}."):
                return ModuleSpec(name, _SecondName(home + name.removeprefix(alias)))
        return None


class _SecondName(Loader):
    """Puts a module into `sys.modules` in place of the empty one that Python made."""

    def __init__(self, home: str):
        self.home = home

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(self.home)


# First, because modules below an alias have files, which Python would load a second time.
sys.meta_path.insert(0, Finder)
