"""`flax.core`: the containers and scopes of Flax, and nothing of JAX's `core`."""

from toile import core as _core

__all__ = [  # noqa: F822 -- the names are set below
    "Array", "AxisMetadata", "DenyList", "FrozenDict", "Scope", "apply", "bind", "broadcast",
    "copy", "custom_vjp", "freeze", "frozen_dict", "init", "jit", "jvp", "lazy_init", "lift",
    "map_axis_meta", "meta", "nn", "pop", "pretty_repr", "remat", "remat_scan", "scan", "scope",
    "tracers", "unbox", "unfreeze", "vjp", "vmap", "while_loop",
]
globals().update({name: getattr(_core, name) for name in __all__})
