"""The class Variable, a handle through which modules read and assign one value of a collection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from toile.core import meta
from toile.engine import trees
from toile.ids import uuid

if TYPE_CHECKING:
    from toile.core.scope_class import Scope

T = TypeVar("T")


class Variable(Generic[T]):
    """A handle to one variable in a collection; `Module.variable` returns such handles.

    Read the variable through the attribute `value`. If the collection is mutable, assign to `value`
    to change the variable.

    Args:
        scope: scope that contains the variable.
        collection: name of the collection.
        name: name of the variable.
        unbox: whether to remove boxes such as `nn.Partitioned` from the value.

    >>> import toile.linen as nn
    >>> class Count(nn.Module):
    ...     @nn.compact
    ...     def __call__(self):
    ...         calls = self.variable("state", "calls", jnp.zeros, (), int)
    ...         calls.value += 1
    ...         return calls.is_mutable()
    >>> Count().apply({}, mutable=["state"])
    (True, {'state': {'calls': Array(1, dtype=int32)}})
    """

    def __init__(self, scope: Scope, collection: str, name: str, unbox: bool):
        self._id = uuid()
        self.scope = scope
        self.collection = collection
        self.name = name
        self.unbox = unbox

    @property
    def value(self) -> T:
        """The value of the variable, without boxes if `unbox` is True."""
        v = self.scope.get_variable(self.collection, self.name)
        return meta.unbox(v) if self.unbox else v

    @value.setter
    def value(self, value: T) -> None:
        if self.unbox:
            value = _boxed_like(self.scope.get_variable(self.collection, self.name), value)
        self.scope.put_variable(self.collection, self.name, value)

    def is_mutable(self) -> bool:
        """Return whether `value` can be assigned."""
        return self.scope.is_mutable_collection(self.collection)

    def __repr__(self) -> str:
        where = "/".join(self.scope.path)
        return f"Variable({self.collection}: {where}/{self.name} = {self.value})"


def _boxed_like(old: Any, new: Any) -> Any:
    """`new` inside the boxes of `old`, if `old` has boxes and both have the same structure."""
    leaves, tree = trees.flatten(old, is_leaf=meta.is_axis_metadata)
    if not any(map(meta.is_axis_metadata, leaves)):
        return new
    same = tree == trees.structure(new, is_leaf=meta.is_axis_metadata)
    return meta.replace_boxed(old, new) if same else new
