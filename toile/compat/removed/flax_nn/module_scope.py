"""The part of a Scope that the functions of `toile.core.nn` use, for modules of `flax.nn`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toile.compat.removed.flax_nn.module_class import Module
from toile.compat.removed.flax_nn.stochastic import make_rng
from toile.core.nn.decoding import CacheMaker

__all__ = ["ModuleScope", "scope_of"]


class ModuleScope:
    """A module seen as a Scope; `cache` is the collection in which variables are."""

    def __init__(self, module: Module, cache: Any = None):
        self.module, self.cache = module, cache

    def param(self, name: str, init: Callable[..., Any], *args: Any) -> Any:
        """A parameter; the arguments of the initializer are its shape."""
        return self.module.param(name, args[0], init)

    def make_rng(self, name: str) -> Any:
        """A key of `stochastic`."""
        return make_rng()

    def child(self, fn: Callable[..., Any], name: str | None = None) -> Callable[..., Any]:
        """A function of a Scope as a module in this one; without a name, it has no parameters."""
        if name is None:
            return lambda *args, **kwargs: fn(self, *args, **kwargs)

        def apply(module: Module, *args: Any, **kwargs: Any) -> Any:
            return fn(ModuleScope(module), *args, **kwargs)

        inner: Any = type(name, (Module,), {"apply": apply})
        return lambda *args, **kwargs: inner(*args, name=name, **kwargs)

    def has_variable(self, kind: str, name: str) -> bool:
        """Whether there is a value in the collection of keys and values."""
        return not self.module.is_initializing()

    def get_variable(self, kind: str, name: str) -> Any:
        """The keys and values of decoded positions."""
        return self.cache.retrieve()

    def put_variable(self, kind: str, name: str, value: Any) -> None:
        """Store them; before the number of positions is known, an array describes their shape."""
        if isinstance(value, CacheMaker):
            value = np.array((value.ndim, *value.tail), np.int32)
        self.cache.store(value)


def scope_of(module: Module, cache: Any = None) -> Any:
    """A module as a Scope."""
    return ModuleScope(module, cache)
