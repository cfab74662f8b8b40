"""Collections of `flax.nn`: values that modules store under their paths, such as running means."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from toile import serialization, tree
from toile.compat.removed.flax_nn.running import Frame, pushed, stacks, top
from toile.engine.source import here
from toile.tree_util import register_pytree_node_class

__all__ = [
    "Collection", "ModuleState", "capture_module_outputs", "get_state", "is_stateful", "stateful",
]


@register_pytree_node_class
class Collection:
    """Values that modules store, by the path of the module; a pytree.

    `mutate` gives a copy that modules can change."""

    def __init__(self, state: dict[str, Any] | None = None):
        self.state = {} if state is None else state
        self._anchor = stacks.modules[-1] if stacks.modules else None
        self._mutable = False
        self._root: Frame | None = None

    def as_dict(self) -> dict[str, Any]:
        """The stored values by path."""
        return self.state.copy()

    def __getitem__(self, key: str) -> Any:
        return self.state[key]

    @contextlib.contextmanager
    def mutate(self) -> Iterator[Any]:
        """A copy that modules can change while the block runs."""
        copy = tree.map(lambda x: x, self)
        copy._mutable = True
        try:
            yield copy
        finally:
            copy._mutable = False

    def retrieve(self, default: Any = None) -> Any:
        """The value that the running module has stored."""
        return self.state.get(self._path(top("retrieve")), default)

    def store(self, value: Any) -> Any:
        """Store a value for the running module; returns the previous one."""
        frame = top("store")
        if not self._mutable:
            raise ValueError(
                f"{frame.path}: Collection is not mutable, so nothing can be stored in it (use "
                f"`with collection.mutate() as new:`, or stateful(state, mutable=True)){here()}"
            )
        self._check_place(frame)
        path = self._path(frame)
        before = self.state.get(path)
        self.state[path] = value
        return before

    def _check_place(self, frame: Frame) -> None:
        if not frame.is_below(self._anchor):
            raise ValueError(
                f"{frame.path}: needed a module below {self._anchor and self._anchor.path}, where "
                "this Collection was created: Trying to capture state outside the scope of this "
                f"Collection (create it in a module around this one){here()}"
            )
        root = frame
        while root.parent is not self._anchor and root.parent is not None:
            root = root.parent
        if self._root is not None and self._root is not root and not (root.name and
                                                                      self._root.name):
            raise ValueError(
                "When multiple top-level module calls use a Collection each top-level module "
                f"should have a name, got {self._root.name!r} and {root.name!r} (pass name=)"
                f"{here()}"
            )
        self._root = root

    def _path(self, frame: Frame) -> str:
        above = "/" if self._anchor is None else self._anchor.path
        return frame.path if above == "/" else frame.path[len(above):]

    def tree_flatten(self) -> tuple[Any, Any]:
        """The values, as children of the tree; modules must not be changing the collection."""
        if self._mutable:
            raise ValueError(
                "A mutable collection should not be transformed by Jax: needed one that `mutate` "
                f"has closed, got a mutable one (use it after the block){here()}"
            )
        return (self.state,), self._anchor

    @classmethod
    def tree_unflatten(cls, anchor: Frame | None, children: Any) -> Any:
        """The collection with other values."""
        made = cls(children[0])
        made._anchor = anchor
        return made


class ModuleState:
    """A variable of a module; `value` reads and stores it."""

    def __init__(self, collection: Collection, name: str):
        self._collection, self.name = collection, name

    @property
    def value(self) -> Any:
        """The stored value."""
        stored = self._collection.retrieve(default={})
        if self.name not in stored:
            raise ValueError(
                f"No state variable named `{self.name}` exists in {top('state').path}; needed one "
                f"of {sorted(stored)} (run init within stateful first){here()}"
            )
        return stored[self.name]

    @value.setter
    def value(self, new: Any) -> None:
        self._collection.store({**self._collection.retrieve(default={}), self.name: new})


@contextlib.contextmanager
def stateful(state: Collection | None = None, mutable: bool = True) -> Iterator[Collection]:
    """Keep the variables of modules in a collection, which is a new one by default."""
    state = Collection() if state is None else state
    if not mutable:
        with pushed(stacks.states, state):
            yield state
        return
    with state.mutate() as new, pushed(stacks.states, new):
        yield new


def is_stateful() -> bool:
    """Whether `stateful` is in effect."""
    return bool(stacks.states)


def get_state() -> Collection:
    """The collection of the innermost `stateful`."""
    if not stacks.states:
        raise ValueError(
            "state: needed a collection, got none: Use the flax.nn.stateful context manager to "
            f"enable stateful computations (with nn.stateful() as state: ...){here()}"
        )
    return stacks.states[-1]


@contextlib.contextmanager
def capture_module_outputs() -> Iterator[Collection]:
    """A collection of the results of all modules that run in the block, in lists."""
    with Collection().mutate() as outputs, pushed(stacks.outputs, outputs):
        yield outputs


serialization.register_serialization_state(
    Collection, lambda c: serialization.to_state_dict(c.as_dict()),
    lambda c, state: type(c)(serialization.from_state_dict(c.as_dict(), state)))
