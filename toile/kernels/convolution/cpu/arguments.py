"""The arguments of kernels over windows, by name, and the taps that are inside x."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toile.kernels.convolution.cpu.problem import SPATIAL
from toile.targets.llvm.text import Function


class Arguments:
    """The arguments of a kernel: buffers, numbers by name, and numbers of the axes by name.

    If no axis is `dilated`, dilations are the constant 1, which saves divisions by them."""

    def __init__(
        self, f: Function, buffers: int, names: Sequence[str], axis: Sequence[str],
        dilated: bool = True,
    ):
        self.buffers = [f.buffer(2 * i) for i in range(buffers)]
        first = 2 * buffers
        self.n = f.arguments(first, names)
        first += len(names)
        self.axes = [f.arguments(first + len(axis) * d, axis) for d in range(SPATIAL)]
        if not dilated:
            for numbers in self.axes:
                numbers["dilation"] = "1"


def tap_bounds(f: Function, axis: dict[str, str], start: str) -> tuple[str, str]:
    """The taps for which 0 <= start + tap*dilation < size."""
    ahead = "0" if axis["dilation"] == "1" else f.sub(axis["dilation"], 1)
    first = f.udiv(f.smax(f.sub(ahead, start), 0), axis["dilation"])
    last = f.udiv(f.smax(f.add(f.sub(axis["size"], start), ahead), 0), axis["dilation"])
    return first, f.smin(last, axis["taps"])


def start_bounds(
    f: Function, axes: Sequence[dict[str, str]], indices: Sequence[str], y: str
) -> tuple[list[tuple[str, str, str]], str]:
    """For windows at `indices` of some axes: start and bounds of the taps, and the address in y."""
    bounds = []
    for axis, index in zip(axes, indices, strict=True):
        start = f.sub(f.mul(index, axis["stride"]), axis["low"])
        bounds.append((start, *tap_bounds(f, axis, start)))
        y = f.step(y, index, axis["y"])
    return bounds, y


def lane_blocks(
    f: Function, low: str, high: str, widths: Sequence[int]
) -> Iterator[tuple[int, str]]:
    """Loops over [low, high) by blocks of decreasing width, down to 1."""
    for width in widths:
        stop = f.add(low, f.mul(f.udiv(f.sub(high, low), width), width)) if width > 1 else high
        with f.loop(low, stop, width, vectorize=False) as lane:
            yield width, lane
        low = f.smax(low, stop)


class Coordinates:
    """Coordinates of consecutive positions, in stack slots: incremented rather than divided."""

    def __init__(self, f: Function, first: str, extents: Sequence[str]):
        self.f, self.extents = f, extents
        self.slots: list[str] = []
        for extent in reversed(extents):
            first, index = f.divided(first, extent)
            self.slots.insert(0, f.variable("i64", index))
        self.outer = f.variable("i64", first)  # the rest: images

    def advance(self, carry: str) -> str:
        """Advance by `carry` (0 or 1); returns the carry for the outer count."""
        f = self.f
        for slot, extent in zip(reversed(self.slots), reversed(self.extents), strict=True):
            following = f.add(f.load("i64", slot), carry)
            wraps = f.compare("eq", following, extent)
            f.store("i64", f.select(wraps, 0, following), slot)
            carry = f.value(f"zext i1 {wraps} to i64")
        return carry
