"""Places of the elements of rows in the order of their keys, and what is read in that order.

Long rows are sorted by digits in global memory. If they have several keys, these are sorted one
after the other, the last first.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from toile.compiler.ir.operands import Operand, Ref
from toile.kernels.sort import gpu_keys
from toile.kernels.sort.gpu_radix import sort_rows
from toile.kernels.sort.shared import Rows, rows_of
from toile.targets.cuda.launches import THREADS, Launch, Planner
from toile.targets.cuda.text import Words, decode, divisors, kernel_text
from toile.targets.cuda.units import UNITS


def words_of(rows: Rows) -> list[int]:
    """The numbers of rows, as texts read them."""
    return [*divisors(rows.extents), *sum(rows.steps, []), *rows.inner]


def two_buffers(plan: Planner, nbytes: int) -> tuple[Ref, Ref]:
    """Two alternating buffers."""
    return plan.scratch(nbytes), plan.scratch(nbytes)


class Frame:
    """The arguments of texts over rows, after a few arguments of their own."""

    def __init__(self, own: int, arrays: int, rank: int):
        r = Words()
        self.own = r.many(own)
        self.bases = [r.pointer() for _ in range(arrays)]
        self.extents = r.many(rank)
        self.steps = [r.many(rank) for _ in range(arrays)]
        self.inner = r.many(arrays)

    def move(
        self, size: int, source: int, target: int, to: str = "i", there: str = "true"
    ) -> str:
        """Copies element `at` of a row of one array to index `to` of another, if `there` holds.

        Loads are unconditional and read-only, so that many can be under way at once."""
        unit = UNITS[size]
        return (f"{{ const {unit} x = __ldg((const {unit}*)(p{source} + (Word)at * "
                f"{self.inner[source]})); if ({there}) *({unit}*)(p{target} + (Word){to} * "
                f"{self.inner[target]}) = x; }}")

    def pointers(self, row: str = "row") -> str:
        """Statements that set p0, p1 ... to the beginning of a row."""
        names = [f"p{i}" for i in range(len(self.bases))]
        start = " ".join(f"char* {p} = {b};" for p, b in zip(names, self.bases, strict=True))
        moves = decode("rest", self.extents, list(zip(names, self.steps, strict=True)))
        return f"{start} {{ Index rest = {row}; {moves} }}"


def sorted_places(axis: int, keys: list[Operand], use: str, n: int, plan: Planner) -> Ref:
    """Rows of indices, in the order of the keys."""
    total = keys[0].size
    held = two_buffers(plan, max(gpu_keys.key_bytes(k.dtype) for k in keys) * total)
    places = two_buffers(plan, 4 * total)
    for number, k in enumerate(reversed(keys)):
        rows = rows_of(axis, k)
        args = (n, *divisors([n]), total, held[0], places[0], k.ref, *words_of(rows))
        text = load_text(k.dtype, use, len(rows.extents), "read" if number else "write")
        plan.stage(Launch.over(total, text, args, "sort"))
        held, found = sort_rows(plan, held, places, gpu_keys.key_type(k.dtype), rows.number, n,
                                gpu_keys.key_bits(k.dtype))  # fmt: skip
        assert found is not None
        places = found
    return places[0]


EACH = """\
  Index i = (Index)block * {threads} + threadIdx.x, e = i;
  if (i >= (Index){total}) return;
  const Index row = cut(i, {divisor});
"""


@lru_cache(maxsize=128)
def load_text(dtype: Any, use: str, rank: int, places: str) -> str:
    """Keys of all elements; their indices are written, or read and followed."""
    frame = Frame(5, 1, rank)
    _, by, total, keys, at = frame.own
    follow = {
        "none": "", "write": f"((u32*){at})[e] = i;", "read": f"i = ((const u32*){at})[e];"
    }[places]  # fmt: skip
    return kernel_text(f"""\
{EACH.format(threads=THREADS, total=total, divisor=by)}\
  {follow}
  {frame.pointers()}
  (({gpu_keys.key_type(dtype)}*){keys})[e] = \
key_of(*(const {gpu_keys.bits_type(dtype)}*)(p0 + (Word)i * {frame.inner[0]}));
""", gpu_keys.key_function(dtype, use))


@lru_cache(maxsize=128)
def take_text(sizes: tuple[int, ...], rank: int, numbers: bool) -> str:
    """Operands in the order of indices, whose rows may be longer; `numbers`: write these, too."""
    frame = Frame(4, 2 * len(sizes) + numbers, rank)
    n, by, total, places = frame.own
    moves = [frame.move(size, j, len(sizes) + j) for j, size in enumerate(sizes)]
    if numbers:
        last = 2 * len(sizes)
        moves.append(f"*(u32*)(p{last} + (Word)i * {frame.inner[last]}) = at;")
    return kernel_text(f"""\
{EACH.format(threads=THREADS, total=total, divisor=by)}\
  const u32 at = ((const u32*){places})[(Word)row * {n} + i];
  {frame.pointers()}
  {" ".join(moves)}
""")
