"""Modules as static arguments: how `nn.jit` determines whether two calls can share a trace."""

from __future__ import annotations

import weakref
from typing import Any

from toile.linen.fingerprints import changes, fingerprint


class ModuleKey:
    """A static argument that stands for a module; equal modules have equal keys.

    Two modules are equal if their fields and states are equal.

    A key holds only a weak reference to the module or call, because the key stays in the cache of
    traces.
    """

    __slots__ = ("items", "hash", "held")

    def __init__(self, module: Any, held: Any, cls: type | None = None):
        self.items = fingerprint(module)
        self.hash = hash((self.items, cls))
        self.held = weakref.ref(held)

    @classmethod
    def from_module(cls, module: Any) -> ModuleKey:
        """The key of a module."""
        return cls(module, module)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ModuleKey)
            and self.items == other.items
            and all(
                type(a) is type(b) for (_, a), (_, b) in zip(self.items, other.items, strict=True)
            )
        )

    def __repr__(self) -> str:
        return f"<fingerprint of {self.items[0][1].__name__}>"

    def __changes_since__(self, other: ModuleKey) -> list[str]:
        return changes(other.items, self.items)
