"""Identifiers that are never used twice, unlike `id`, and that copies of an object do not share."""

from __future__ import annotations

import itertools
from typing import Any

__all__ = ["FlaxId", "UUIDManager", "uuid"]


class UUIDManager:
    """Each call gives the next identifier; safe to call from several threads."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)

    def __call__(self) -> FlaxId:
        return FlaxId(next(self._ids))


class FlaxId:
    """A hashable identifier; copying one makes a new one."""

    def __init__(self, rawid: int):
        self.id = rawid

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FlaxId) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"FlaxId({self.id})"

    def __copy__(self) -> FlaxId:
        return uuid()

    def __deepcopy__(self, memo: Any) -> FlaxId:
        return uuid()


uuid = UUIDManager()

_numbers = itertools.count()


class Identity(int):
    """What modules and variables are known by: a number, since it is looked up all the time.

    Copies that `deepcopy` and pickles make are others, like those of a FlaxId."""

    __slots__ = ()

    def __deepcopy__(self, memo: Any) -> Identity:
        return identity()

    def __reduce__(self) -> Any:
        return identity, ()


def identity() -> Identity:
    """One that nothing else has in this process."""
    return Identity(next(_numbers))
