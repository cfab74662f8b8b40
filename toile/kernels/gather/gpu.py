"""Gather: for each unit of the result, the index vector gives the address of a unit to copy.

Each axis of the result steps through the result, the operand (window and batching axes) and the
indices (batch axes); axes are merged where all three allow. Dense trailing window axes move in
units of up to 16 bytes: a row of an embedding is read by adjacent threads. Elements are bytes: the
kernel does not know their dtype.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from toile.compiler.ir.geometry import bits_of, collapse
from toile.compiler.ir.operands import Args, Operand
from toile.kernels.copy.gpu import EACH, PUT, moves_text
from toile.kernels.gather.shared import gathering_of
from toile.targets.cuda.launches import THREADS, Launch, Planner
from toile.targets.cuda.text import MOST, Words, clamped, decode, divisors, integer, kernel_text
from toile.targets.cuda.units import aligned, unit_type, widest


def lower(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Lower Gather, in all modes."""
    (x, indices), (out,) = ins, outs
    found = gathering_of(op, x, indices, out)
    if found is None:
        return False
    shape, to, source, index, components, bits = found
    size = unit = x.dtype.itemsize
    if shape and index[-1] == 0 and to[-1] == source[-1] == size:
        run = shape[-1] * size
        unit = widest(size, run, *to[:-1], *source[:-1], *(step for _, step, _ in components))
        shape[-1] = run // unit
        to[-1] = source[-1] = unit
        shape, (to, source, index) = collapse(shape, to, source, index)
    total = prod(shape)
    wide = total > MOST
    key = _Key(unit, size, len(shape), indices.dtype, op.fills, len(components), wide)
    args: Args = (
        out.ref, x.ref, indices.ref, total, *bits_of(bits * (16 // max(len(bits), 1))),
        *(v for c in components for v in c), *divisors(shape, wide), *to, *source, *index,
    )  # fmt: skip
    nbytes = 2 * total * unit + indices.size * indices.dtype.itemsize
    plan.stage(Launch.over(total, _text(key), args, "gather", THREADS * EACH, nbytes))
    return True


class _Key(NamedTuple):
    """What determines the text of a kernel."""

    unit: int  # bytes that move at once
    piece: int  # bytes of an element
    rank: int
    indices: Any  # dtype
    fills: bool
    components: int
    wide: bool


def offset_of(
    dtype: Any, components: list[tuple[str, str, str]], vector: str, checks: bool
) -> tuple[str, str]:
    """Statements that add an index vector's offset to `b`, and the in-bounds condition."""
    lines, legal = [], []
    for k, (at, step, limit) in enumerate(components):
        lines.append(f"Word s{k} = {integer(dtype, f'{vector} + {at}')};")
        if checks:
            legal.append(f"(u64)s{k} <= (u64){limit}")  # unsigned: negative ones are huge
            lines.append(f"b += s{k} * {step};")
        else:
            lines.append(f"b += {clamped(dtype, f's{k}', limit)} * {step};")
    return " ".join(lines), " && ".join(legal)


@lru_cache(maxsize=512)
def _text(key: _Key) -> str:
    r = Words()
    to, source, indices = r.pointer(), r.pointer("const char"), r.pointer("const char")
    total, low, high = r.many(3)
    components = [(r.one(), r.one(), r.one()) for _ in range(key.components)]
    extents = r.many(key.rank)
    steps = [(name, r.many(key.rank)) for name in ("a", "b", "v")]
    find, legal = offset_of(key.indices, components, "indices + v", key.fills)
    take, other = "take(source + b, fits)", ""
    if legal:
        take = f"{legal} ? {take} : other.u"
        other = (f"  union Fill {{ Unit u; u64 h[2]; }} other;\n  other.h[0] = (u64){low};\n"
                 f"  other.h[1] = (u64){high};\n")
    start = (f"  char* to = {to};\n  const char* source = {source};\n"
             f"  const char* indices = {indices};\n{other}")
    find = f"Word a = 0, b = 0, v = 0;\n    {decode('i', extents, steps)}\n    {find}"
    body = moves_text(start, aligned(key.unit, "to", "source"), total, find, take)
    return kernel_text(f"{body}\n    {PUT}\n", unit_type(key.unit, key.piece), key.wide)
