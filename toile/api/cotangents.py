"""Choose for each cotangent of `vjp` whether it is returned, added to a Ref, or dropped.

`f_vjp.with_refs(*wishes)` expects one request for each leaf of the arguments: `GradValue()`, a Ref
to which the cotangent is added, or `DontWant()`. This module may import the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from toile.engine.records import dataclass
from toile.engine.source import here
from toile.engine.trees import flatten, register, unflatten


@dataclass(frozen=True)
class GradValue:
    """A request to return a cotangent."""


@dataclass(frozen=True)
class DontWant:
    """A request to drop a cotangent."""


@dataclass(frozen=True)
class GradRef:
    """A placeholder that is returned for a cotangent that was added to a Ref."""


@dataclass(frozen=True)
class DidntWant:
    """A placeholder that is returned for a cotangent that was not requested."""


@dataclass(frozen=True)
class NotNeeded:
    """A placeholder for an argument that the function returned by `vjp` does not need."""


register(NotNeeded, lambda _: ((), None), lambda _, __: NotNeeded())
register(GradRef, lambda _: ((), None), lambda _, __: GradRef())
register(DidntWant, lambda _: ((), None), lambda _, __: DidntWant())

ad = SimpleNamespace(DontWant=DontWant, DidntWant=DidntWant, GradRef=GradRef, GradValue=GradValue)


class Directed:
    """The function that `with_refs` returns: `pullback`, with a destination for each cotangent."""

    __slots__ = ("pullback", "wishes")

    def __init__(self, pullback: Callable[..., Any], wishes: Sequence[Any]):
        self.pullback, self.wishes = pullback, wishes

    def __call__(self, *cotangents: Any) -> Any:
        found, tree = flatten(self.pullback(*cotangents))
        return unflatten(tree, [_granted(w, ct) for w, ct in zip(self.wishes, found, strict=True)])


register(Directed, lambda f: ((f.pullback,), tuple(f.wishes)),
         lambda wishes, children: Directed(children[0], wishes))


def _granted(wish: Any, ct: Any) -> Any:
    if isinstance(wish, DontWant):
        return DidntWant()
    if not hasattr(wish, "addupdate"):
        return ct
    wish.addupdate(ct)
    return GradRef()


def directed(pullback: Any, wishes: Any, in_tree: Any) -> Directed:
    """Send the cotangents of `pullback` to their destinations in the tree `wishes`."""
    leaves, tree = flatten(wishes)
    if tree != in_tree:
        raise ValueError(
            f"with_refs: needed a Ref, GradValue() or DontWant() for each leaf of the arguments "
            f"{in_tree}, got {tree}{here()}"
        )
    return Directed(pullback, leaves)
