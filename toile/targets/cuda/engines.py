"""The engine of an optional library on each device, and the engines that tests put in its place."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from toile.targets.cuda import cublas, libraries


class Engines:
    """Engines that `make` creates on the current device; it returns None without the library."""

    def __init__(self, make: Callable[[], Any]):
        self.make = make
        self.used: list[Any] = []  # those that tests substitute

    def current(self) -> Any:
        """The engine of the current device; None without the library or a device."""
        if self.used:
            return self.used[-1]
        return cublas.handle(self.make) if cublas.present() else None

    def use(self, other: Any) -> AbstractContextManager[Any]:
        """Use another engine instead of the library within a `with` block."""
        return libraries.replaced(self.used, other)


@functools.cache
def warn_once(problem: str, instead: str) -> None:
    """Warn that a library cannot be used, what to install, and what happens instead."""
    warnings.warn(f"{problem}; until then, {instead}", RuntimeWarning, stacklevel=2)
