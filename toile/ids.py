"""Identifiers that copies of an object do not share and that, unlike `id`, are never reused."""

from __future__ import annotations

import itertools
from typing import Any

__all__ = ["FlaxId", "UUIDManager", "uuid"]


class UUIDManager:
    """Returns a new identifier in each call; calls are thread-safe."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)

    def __call__(self) -> FlaxId:
        return FlaxId(next(self._ids))


class FlaxId(int):
    """A hashable identifier that equals no plain number; copying it creates a new identifier.

    The class is a subclass of int because looking up modules and variables by identifier has to be
    fast."""

    __slots__ = ()
    __hash__ = int.__hash__

    @property
    def id(self) -> int:
        return int(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FlaxId) and other.id == self.id

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __repr__(self) -> str:
        return f"FlaxId({self.id})"

    def __copy__(self) -> FlaxId:
        return uuid()

    def __deepcopy__(self, memo: Any) -> FlaxId:
        return uuid()

    def __reduce__(self) -> Any:
        return _another, ()  # the number may be in use in the process that loads it


uuid = UUIDManager()


def _another() -> FlaxId:
    return uuid()
