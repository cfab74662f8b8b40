"""`jax._src.tree_util`: the names of `jax.tree_util`, and the table of node types."""

from __future__ import annotations

from typing import Any

from toile import tree_util as _public
from toile.engine.treedefs import node_type

globals().update({name: getattr(_public, name) for name in _public.__all__})

__all__ = [*_public.__all__, "_registry"]  # noqa: PLE0604


class _Registry:
    """Answers which types are nodes."""

    def __contains__(self, kind: Any) -> bool:
        return node_type(kind) is not None


_registry = _Registry()
