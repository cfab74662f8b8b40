"""Gathers, as described to both devices; also the components of index vectors of scatters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from toile.compiler.ir.geometry import (
    axes_of,
    byte_strides,
    collapse,
    fill_bits,
    integral,
    is_plain,
)
from toile.compiler.ir.operands import Operand

Component = tuple[int, int, int]  # position in the index vector, step in the operand, largest start


def components_of(
    op: Any, x: Operand, indices: Operand, sizes: Sequence[int]
) -> list[Component]:
    """The components of index vectors that address the operand, in bytes; windows have `sizes`."""
    steps, step = byte_strides(x), byte_strides(indices)[-1]
    return [(c * step, steps[d], x.shape[d] - sizes[d])
            for c, d in enumerate(op.dimension_numbers[2])]


class Gathering(NamedTuple):
    """The merged axes of a result, with steps in bytes in the result, operand and indices."""

    shape: list[int]
    to: list[int]
    source: list[int]
    vectors: list[int]
    components: list[Component]
    fill: bytes  # the value of out-of-bounds elements; empty: indices are clamped


def gathering_of(op: Any, x: Operand, indices: Operand, out: Operand) -> Gathering | None:
    """What a gather does; None if there is no kernel for it.

    Components that can only be 0 are left out, unless out-of-bounds elements are filled."""
    if not integral(indices.dtype) or not is_plain(x.dtype):
        return None
    bits = fill_bits(op, x.dtype) if op.fills else b""
    if bits is None:
        return None
    offset, collapsed, _, batching, index_batching = op.dimension_numbers
    axes = axes_of(offset, collapsed, batching, index_batching, out, x, indices)
    shape, (to, source, vectors) = collapse(axes.shape, *axes[1:4])
    components = [c for c in components_of(op, x, indices, op.slice_sizes) if c[2] or op.fills]
    return Gathering(shape, to, source, vectors, components, bits)
