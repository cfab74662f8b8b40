"""What kernels over windows read: their arguments by name, and the taps that lie inside of x."""

from __future__ import annotations

from collections.abc import Sequence

from toile.backends.cpu.convolution.problem import SPATIAL
from toile.backends.cpu.ir import Function


class Arguments:
    """The arguments of a kernel: buffers, numbers by name, and numbers of the axes by name.

    Where no axis is `dilated` the text says so, which spares divisions."""

    def __init__(
        self, f: Function, buffers: int, names: Sequence[str], axis: Sequence[str],
        dilated: bool = True,
    ):
        self.buffers = [f.buffer(2 * i) for i in range(buffers)]
        first = 2 * buffers
        self.n = {name: f.argument(first + i) for i, name in enumerate(names)}
        first += len(names)
        self.axes = [
            {name: f.argument(first + len(axis) * d + i) for i, name in enumerate(axis)}
            for d in range(SPATIAL)
        ]
        if not dilated:
            for numbers in self.axes:
                numbers["dilation"] = "1"


def tap_bounds(f: Function, axis: dict[str, str], start: str) -> tuple[str, str]:
    """The taps for which 0 <= start + tap*dilation < size."""
    ahead = "0" if axis["dilation"] == "1" else f.sub(axis["dilation"], 1)
    first = f.udiv(f.smax(f.sub(ahead, start), 0), axis["dilation"])
    last = f.udiv(f.smax(f.add(f.sub(axis["size"], start), ahead), 0), axis["dilation"])
    return first, f.smin(last, axis["taps"])
