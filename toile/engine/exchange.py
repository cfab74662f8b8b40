"""The interface through which a device that runs a Program communicates with other devices.

An `Exchange` belongs to one device. Operations over named axes call its methods with NumPy arrays
when they run, or with spans of a device's memory; `toile.parallel` provides an `Exchange` whose
devices are threads, and others for GPUs and for several processes. Every device of a group makes
the same calls in the same order. This module may import only the standard library.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

Groups = tuple[tuple[int, ...], ...] | None


class Span(NamedTuple):
    """Contiguous elements in the memory of a device."""

    address: int
    shape: tuple[int, ...]
    dtype: Any


class Exchange(ABC):
    """Communication of one device with the other devices that run the same Program.

    `axes` are names of mapped axes, and `groups` divides the devices along one axis into
    independent sets. Given arrays are not read after the call has returned, and the results belong
    to the caller."""

    @abstractmethod
    def index(self, axis: Any) -> int:
        """The position of this device along an axis."""

    @abstractmethod
    def all_reduce(
        self, kind: str, xs: Sequence[Any], axes: tuple[Any, ...], groups: Groups
    ) -> list[Any]:
        """Sums ("sum"), maxima ("max") or minima ("min"), bit-for-bit identical on all devices."""

    @abstractmethod
    def all_gather(self, x: Any, axis: Any, groups: Groups) -> Any:
        """The arrays of all devices of a group, stacked along a new first axis."""

    @abstractmethod
    def reduce_scatter(self, x: Any, axis: Any, groups: Groups) -> Any:
        """The sum over a group of `x[i]`, where i is this device's index in the group."""

    @abstractmethod
    def all_to_all(self, x: Any, axis: Any, groups: Groups) -> Any:
        """`x[i]` of each device, stacked, where i is this device's index in the group."""

    @abstractmethod
    def permute(self, x: Any, axis: Any, perm: Sequence[tuple[int, int]]) -> Any:
        """The array that another device sends to this device; None if no device does."""


    def issue(
        self, kind: str, sources: Sequence[Span], targets: Sequence[Span], axes: tuple[Any, ...],
        groups: Groups, perm: Sequence[tuple[int, int]], stream: int,
    ) -> None:
        """Enqueue a collective on a device's stream, from spans to spans of the device's memory.

        `kind`: sum, max or min (of all sources, one by one), gather, scatter, exchange or permute,
        with the meaning of the methods above; permute sets targets that receive nothing to 0."""
        raise NotImplementedError(f"{type(self).__name__}: devices without streams")


    def beside(self, axes: tuple[Any, ...], groups: Groups) -> int | None:
        """A second stream of the device, for a group's collectives that overlap its other work."""
        return None


class _Slot(threading.local):
    """The exchange of the device that this thread runs, if it runs one."""

    exchange: Exchange | None = None


slot = _Slot()
