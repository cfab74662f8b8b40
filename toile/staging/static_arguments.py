"""Static arguments in the cache keys of jitted functions. This module may import the engine."""

from __future__ import annotations

from typing import Any

from toile.engine import errors
from toile.engine.source import describe, here


class Static:
    """A static argument in a cache key: two are equal only if their types and values are equal."""

    __slots__ = ("value", "hash")

    def __init__(self, value: Any, where: str, fun: str):
        self.value = value
        try:
            self.hash = hash(value)
        except TypeError as e:
            raise errors.NonHashableStaticArgumentError(
                "Non-hashable static arguments are not supported. An error occurred while trying "
                f"to hash an object of type {type(value)}, {describe(value)}. The error was:\n"
                f"TypeError: {e}\njit: needed a hashable static argument, got {where} of {fun} "
                "(pass a tuple instead of a list, or give the class __hash__ and __eq__; or do "
                f"not mark it static){here()}"
            ) from e

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Static) or type(self.value) is not type(other.value):
            return False
        try:
            return bool(self.value == other.value)
        except Exception as e:
            raise ValueError(
                f"static arguments should be comparable using __eq__. Comparing two objects of "
                f"type {type(self.value)} raised {type(e).__name__}: {e}{here()}"
            ) from e
