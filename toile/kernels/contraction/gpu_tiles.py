"""Contractions and convolutions in tiles, of any dtype, for those that no library computes.

A block computes a tile of the result, 64 by 64, from slices of both operands in shared memory; each
thread holds 4 by 4 sums. Rows, columns and summed positions may each be several axes: a convolution
is a product whose left operand is read through its windows. 16-bit floats are summed in float32,
integers wrap around, booleans are combined by `or`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from math import prod
from typing import Any, NamedTuple

from toile.compiler.ir.geometry import byte_strides, collapse
from toile.compiler.ir.operands import Args, Operand
from toile.targets.cuda import elements as numbers
from toile.targets.cuda.launches import THREADS, Launch, Planner, blocks_of
from toile.targets.cuda.text import MOST, Words, decode, divisors, kernel_text

_TILE = 64
_DEEP = 16  # summed positions in shared memory at a time
_EACH = 4  # rows and columns of a thread
_THIN = 64  # elements of each product of a batch up to which tiles do not pay
# Products that use a warp per number: the most numbers, the most columns or rows, and the fewest
# and the most terms of each.
_FEW, _NARROW, _SHORT, _LONG = 4096, 16, 64, 1024


class _Group(NamedTuple):
    """Merged axes, with steps in bytes in some arrays."""

    shape: list[int]
    steps: list[list[int]]

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def words(self) -> list[int]:
        return [*divisors(self.shape), *sum(self.steps, [])]


def _is_supported(left: Operand, right: Operand, out: Operand) -> bool:
    """Whether kernels support these dtypes; complex operands need a complex result."""
    dtypes = left.dtype, right.dtype, out.dtype
    return all(numbers.supported(numbers.real_part(d)) for d in dtypes) and (
        out.dtype.kind == "c" or all(d.kind != "c" for d in dtypes))


# ------------------------------------------------------------------------------------------ numbers


def _arithmetic(left: Any, right: Any, out: Any) -> str:
    """`Number`, `read_left`, `read_right`, `written` and `add_product`, for real and complex."""
    complex_ = out.kind == "c"
    part = numbers.real_part(out)
    work = numbers.work_type(part)
    lines = [numbers.conversions(*map(numbers.real_part, (left, right, out)))]
    if complex_:
        lines.append(f"struct Number {{ {work} re, im; }};\n")
        fma = "fmaf" if work == "float" else "fma"
        lines.append(
            "__device__ inline Number zero() { return Number{0, 0}; }\n"
            "__device__ inline void add_product(Number& s, Number a, Number b) {\n"
            f"  s.re = {fma}(a.re, b.re, {fma}(-a.im, b.im, s.re));\n"
            f"  s.im = {fma}(a.re, b.im, {fma}(a.im, b.re, s.im));\n}}\n"
        )  # fmt: skip
    else:
        lines.append(f"typedef {work} Number;\n")
        term = {"float": "fmaf(a, b, s)", "double": "fma(a, b, s)"}.get(work)
        if out.kind == "b":
            term = "s | (a & b)"
        elif term is None:
            wide = "u64" if part.itemsize == 8 else "u32"
            term = f"(Number)(({wide})s + ({wide})a * ({wide})b)"
        lines.append(
            "__device__ inline Number zero() { return 0; }\n"
            "__device__ inline void add_product(Number& s, Number a, Number b) { "
            f"s = {term}; }}\n"
        )  # fmt: skip
    for name, dtype in (("left", left), ("right", right)):
        real = numbers.real_part(dtype)
        memory = numbers.memory_type(real)
        at = f"((const {memory}*)p)"
        if complex_:
            imag = numbers.load(real, f"{at}[1]") if dtype.kind == "c" else "0"
            value = f"Number{{({work}){numbers.load(real, f'{at}[0]')}, ({work}){imag}}}"
        elif out.kind == "b":
            value = f"{at}[0] != 0"
        else:
            value = f"(Number){numbers.load(real, f'{at}[0]')}"
        lines.append(f"__device__ inline Number read_{name}(const char* p) {{ return {value}; }}\n")
    memory = numbers.memory_type(part)
    if complex_:
        save = f"(({memory}*)p)[0] = x.re; (({memory}*)p)[1] = x.im;"
    else:
        save = f"*({memory}*)p = {numbers.store(part, 'x')};"
    lines.append(f"__device__ inline void write(char* p, Number x) {{ {save} }}\n")
    return "".join(lines)


# --------------------------------------------------------------------------------------- the kernel


# Adds the contribution of a slice of both operands to the sums of a thread.
_SLICE = f"""\
#pragma unroll
    for (u32 k = 0; k < {_DEEP}; ++k) {{
      Number p[{_EACH}], q[{_EACH}];
#pragma unroll
      for (u32 i = 0; i < {_EACH}; ++i) p[i] = a[k][y + i * {_TILE // _EACH}];
#pragma unroll
      for (u32 j = 0; j < {_EACH}; ++j) q[j] = b[k][x + j * {_TILE // _EACH}];
#pragma unroll
      for (u32 i = 0; i < {_EACH}; ++i)
#pragma unroll
        for (u32 j = 0; j < {_EACH}; ++j) add_product(sums[i][j], p[i], q[j]);
    }}
"""


def _product_text(head: str, setup: str, left: str, right: str, place: str) -> str:
    """The kernel of a tile: `left` sets `value` for (row, k), `right` does so for (k, column), and
    `place` sets `to`.

    `setup` defines rows, columns, depth and base pointers for `batch`."""
    threads = _TILE // _EACH
    per = _TILE * _DEEP // THREADS
    return kernel_text(f"""\
  __shared__ Number a[{_DEEP}][{_TILE + 1}], b[{_DEEP}][{_TILE + 1}];
  {setup}
  const u32 row0 = tile_row * {_TILE}u, column0 = tile_column * {_TILE}u;
  const u32 y = threadIdx.x / {threads}, x = threadIdx.x % {threads};
  Number sums[{_EACH}][{_EACH}];
#pragma unroll
  for (int i = 0; i < {_EACH}; ++i)
#pragma unroll
    for (int j = 0; j < {_EACH}; ++j) sums[i][j] = zero();
  for (u32 k0 = 0; k0 < depth; k0 += {_DEEP}) {{
#pragma unroll
    for (u32 s = 0; s < {per}; ++s) {{
      const u32 e = s * {THREADS} + threadIdx.x;
      {{
        const u32 k = k0 + e % {_DEEP}, row = row0 + e / {_DEEP};
        Number value = zero();
        if (k < depth && row < rows) {{ {left} }}
        a[e % {_DEEP}][e / {_DEEP}] = value;
      }}
      {{
        const u32 k = k0 + e / {_TILE}, column = column0 + e % {_TILE};
        Number value = zero();
        if (k < depth && column < columns) {{ {right} }}
        b[e / {_TILE}][e % {_TILE}] = value;
      }}
    }}
    __syncthreads();
{_SLICE}    __syncthreads();
  }}
#pragma unroll
  for (u32 i = 0; i < {_EACH}; ++i)
#pragma unroll
    for (u32 j = 0; j < {_EACH}; ++j) {{
      const u32 row = row0 + y + i * {threads}, column = column0 + x + j * {threads};
      if (row >= rows || column >= columns) continue;
      {place}
      write(to, sums[i][j]);
    }}
""", head)


def _decoded(index: str, shape: list[str], pointer: str, steps: list[str]) -> str:
    return f"{{ Index i = {index}; {decode('i', shape, [(pointer, steps)])} }}"


# ------------------------------------------------------------------------------------ contractions


class _Dot:
    """A contraction: extents and steps in bytes of each operand, by label."""

    def __init__(self, op: Any, x: Operand, y: Operand, out: Operand):
        self.op, self.operands = op, (x, y, out)
        self.at_x, self.at_y, self.at_out = self.at = [
            dict(zip(labels, zip(a.shape, byte_strides(a), strict=True), strict=True))
            for labels, a in ((op.lhs, x), (op.rhs, y), (op.out, out))]
        self.depth = self._group(
            [c for c in op.lhs if c in self.at_y and c not in op.out], self.at_x, self.at_y)

    def _group(self, labels: list[str], *at: dict[str, Any]) -> _Group:
        sizes = [at[0][c][0] for c in labels]
        return _Group(*collapse(sizes, *([t[c][1] for c in labels] for t in at)))

    @property
    def batch(self) -> _Group:
        shared = [c for c in self.op.out if c in self.at_x and c in self.at_y]
        return self._group(shared, *self.at)

    def side(self, mine: dict[str, Any], other: dict[str, Any]) -> _Group:
        """The rows of the result (of x, not of y), or its columns."""
        return self._group([c for c in self.op.out if c in mine and c not in other], mine,
                           self.at_out)

    def sums(self, text: Callable[[int, int], str], per_block: int) -> Launch:
        """A launch of a kernel that computes the elements of the result one by one.

        `text(rank, depth)` is the kernel for these numbers of result axes and summed axes."""
        (x, y, out), depth = self.operands, self.depth
        steps = [[t[c][1] if c in t else 0 for c in self.op.out] for t in (self.at_x, self.at_y)]
        axes = _Group(*collapse(out.shape, *steps, byte_strides(out)))
        args: Args = (out.ref, x.ref, y.ref, out.size, depth.size, *axes.words, *depth.words)
        return Launch.over(out.size, text(len(axes.shape), len(depth.shape)), args,
                           "sums of products", per_block)


def lower_small_dot(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Lower a DotGeneral of any dtypes that kernels support."""
    (x, y), (out,) = ins, outs
    if not _is_supported(x, y, out) or out.size > MOST:
        return False
    dot = _Dot(op, x, y, out)
    rows, columns = dot.side(dot.at_x, dot.at_y), dot.side(dot.at_y, dot.at_x)
    batch, depth, dtypes = dot.batch, dot.depth, (x.dtype, y.dtype, out.dtype)
    if max(rows.size, columns.size, depth.size, batch.size) > MOST:
        return False
    if rows.size * columns.size <= _THIN:
        plan.stage(dot.sums(partial(_thin_text, *dtypes), THREADS))
        return True
    tiles = blocks_of(rows.size, _TILE), blocks_of(columns.size, _TILE)
    groups = batch, rows, columns, depth
    args: Args = (out.ref, x.ref, y.ref, rows.size, columns.size, depth.size, *divisors(tiles),
            *(word for g in groups for word in g.words))
    text = _dot_text(*dtypes, *(len(g.shape) for g in groups))
    plan.stage(Launch(text, args, prod(tiles) * batch.size, THREADS, 0, "product in tiles"))
    return True


def lower_few(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """A product of float32 matrices with few columns or rows: a warp computes each number.

    cuBLAS takes twice as long if so few numbers are not aligned vectors; sums are in float32."""
    (x, y), (out,) = ins, outs
    if {x.dtype.name, y.dtype.name, out.dtype.name} != {"float32"} or out.size > _FEW:
        return False
    dot = _Dot(op, x, y, out)
    thin = min(out.size // max(prod(at[c][0] for c in op.out if c in at), 1)
               for at in (dot.at_x, dot.at_y))
    if not 1 < thin <= _NARROW or not thin % 4 or not _SHORT <= dot.depth.size <= _LONG:
        return False
    if any(c in dot.at_x and c in dot.at_y for c in op.out):
        return False
    plan.stage(dot.sums(_few_text, THREADS // 32))
    return True


def _sums_text(
    rank: int, depth: int, number: str, loop: tuple[str, str, str, str, str], head: str = ""
) -> str:
    """A kernel for `_Dot.sums`; `number`: statements that set i to the number of an element.

    loop: what precedes it, the first k, the step to the next, what adds the product of p and q
    to a sum, and what stores the sum."""
    r = Words()
    to, x, y = r.pointer(), r.pointer("const char"), r.pointer("const char")
    total, deep, shape = r.one(), r.one(), r.many(rank)
    steps = [(name, r.many(rank)) for name in ("left", "right", "to")]
    extents, p, q = (r.many(depth) for _ in range(3))
    before, first, step, term, end = loop
    return kernel_text(f"""\
  char* to = {to};
  const char *left = {x}, *right = {y};
  {number}
  if (i >= (Index){total}) return;
  {decode("i", shape, steps)}
  {before}
#pragma unroll 4
  for (Index k = {first}; k < (Index){deep}; {step}) {{
    const char *p = left, *q = right;
    {{ Index j = k; {decode("j", extents, [("p", p), ("q", q)])} }}
    {term}
  }}
  {end}
""", head)


@lru_cache(maxsize=32)
def _few_text(rank: int, depth: int) -> str:
    """A warp for each element of the result."""
    number = (f"const u32 lane = threadIdx.x % 32u;\n"
              f"  Index i = block * {THREADS // 32}u + threadIdx.x / 32u;")
    end = ("for (int d = 16; d; d >>= 1) sum += __shfl_xor_sync(~0u, sum, d);\n"
           "  if (!lane) *(float*)to = sum;")
    term = "sum = fmaf(*(const float*)p, *(const float*)q, sum);"
    return _sums_text(rank, depth, number, ("float sum = 0;", "lane", "k += 32", term, end))


@lru_cache(maxsize=128)
def _thin_text(left: Any, right: Any, out: Any, rank: int, depth: int) -> str:
    """A thread for each element of the result, if rows and columns hardly fill a tile."""
    loop = ("Number sum = zero();", "0", "++k", "add_product(sum, read_left(p), read_right(q));",
            "write(to, sum);")
    return _sums_text(rank, depth, f"Index i = block * {THREADS}u + threadIdx.x;", loop,
                      _arithmetic(left, right, out))


def _tile_setup(r: Words) -> tuple[str, str]:
    """The operands, the sizes and the tile of a block; and the rest of the block's number."""
    to, x, y = r.pointer(), r.pointer("const char"), r.pointer("const char")
    sizes, tiles = r.many(3), r.many(2)
    return f"""\
char* out = {to};
  const char *left = {x}, *right = {y};
  const u32 rows = (u32){sizes[0]}, columns = (u32){sizes[1]}, depth = (u32){sizes[2]};
  Index tile_column = block, tile_row = cut(tile_column, {tiles[1]});
""", f"cut(tile_row, {tiles[0]})"


@lru_cache(maxsize=128)
def _dot_text(
    left: Any, right: Any, out: Any, batch: int, rows: int, columns: int, depth: int
) -> str:
    r = Words()
    setup, rest = _tile_setup(r)
    batches = r.many(batch)
    batch_steps = [("left", r.many(batch)), ("right", r.many(batch)), ("out", r.many(batch))]
    row, column, deep = ([r.many(n) for _ in range(3)] for n in (rows, columns, depth))
    setup += f"  {{ Index i = {rest}; {decode('i', batches, batch_steps)} }}"
    from_left = (f"const char* p = left; {_decoded('row', row[0], 'p', row[1])} "
                 f"{_decoded('k', deep[0], 'p', deep[1])} value = read_left(p);")
    from_right = (f"const char* p = right; {_decoded('column', column[0], 'p', column[1])} "
                  f"{_decoded('k', deep[0], 'p', deep[2])} value = read_right(p);")
    place = (f"char* to = out; {_decoded('row', row[0], 'to', row[2])} "
             f"{_decoded('column', column[0], 'to', column[2])}")
    return _product_text(_arithmetic(left, right, out), setup, from_left, from_right, place)


# -------------------------------------------------------------------------------------- convolution


def lower_direct_conv(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Lower a ConvGeneralDilated of any dtypes that kernels support."""
    (x, kernel), (out,) = ins, outs
    if not _is_supported(x, kernel, out) or max(x.size, out.size) > MOST:
        return False
    xs, ks, os = byte_strides(x), byte_strides(kernel), byte_strides(out)
    lhs, rhs, res = op.dimension_numbers
    groups, batches = op.feature_group_count, op.batch_group_count
    batch, features = x.shape[lhs[0]] // batches, kernel.shape[rhs[0]] // (groups * batches)
    ins_, taps = kernel.shape[rhs[1]], [kernel.shape[d] for d in rhs[2:]]
    space = [out.shape[d] for d in res[2:]]
    depth = ins_ * prod(taps)
    rows = batch * prod(space)
    if depth > MOST or rows > MOST:
        return False
    tiles = blocks_of(rows, _TILE), blocks_of(features, _TILE)
    every = groups * batches
    group_x = ins_ * xs[lhs[1]] if groups > 1 else batch * xs[lhs[0]]
    args: list[Any] = [
        out.ref, x.ref, kernel.ref, rows, features, depth, *divisors(tiles),
        group_x if every > 1 else 0, features * ks[rhs[0]], features * os[res[1]],
        xs[lhs[0]], xs[lhs[1]], ks[rhs[0]], ks[rhs[1]], os[res[0]], os[res[1]], *divisors([ins_]),
    ]  # fmt: skip
    for i in range(len(taps)):
        args += [
            *divisors((space[i], taps[i])), x.shape[lhs[2 + i]], op.window_strides[i],
            op.padding[i][0], op.lhs_dilation[i], op.rhs_dilation[i],
            xs[lhs[2 + i]], ks[rhs[2 + i]], os[res[2 + i]],
        ]  # fmt: skip
    dilated = any(d > 1 for d in op.lhs_dilation)
    text = _conv_text(x.dtype, kernel.dtype, out.dtype, len(taps), dilated)
    blocks = tiles[0] * tiles[1] * every
    plan.stage(Launch(text, tuple(args), blocks, THREADS, 0, "convolution in tiles"))
    return True


_SPACE = ("outs", "taps", "size", "stride", "low", "spread", "dilation", "x", "kernel", "out")


@lru_cache(maxsize=64)
def _conv_text(left: Any, right: Any, out: Any, rank: int, dilated: bool) -> str:
    """Rows are positions of the result, columns its features, k = (taps ..., input feature)."""
    r = Words()
    setup, rest = _tile_setup(r)
    group = r.many(3)
    batch_x, feature_x, out_kernel, in_kernel, batch_out, feature_out, by_ins = r.many(7)
    axes = [dict(zip(_SPACE, r.many(len(_SPACE)), strict=True)) for _ in range(rank)]
    setup += f"""\
  {{ const Word g = {rest};
    left += g * {group[0]}; right += g * {group[1]}; out += g * {group[2]}; }}"""
    positions = _split("row", [a["outs"] for a in axes], "o", "n")
    taps = f"Index f = k, u = cut(f, {by_ins}); " + _split("u", [a["taps"] for a in axes], "t", "")
    read = [positions, taps, f"const char* p = left + (Word)n * {batch_x} + (Word)f * {feature_x};",
            "bool inside = true;"]  # fmt: skip
    for d, a in enumerate(axes):
        read.append(f"Word i{d} = (Word)o{d} * {a['stride']} - {a['low']} + (Word)t{d} * "
                    f"{a['dilation']};")  # fmt: skip
        if dilated:
            read.append(f"inside = inside && i{d} >= 0 && i{d} % {a['spread']} == 0; "
                        f"i{d} /= {a['spread']};")
        read.append(f"inside = inside && (u64)i{d} < (u64){a['size']}; p += i{d} * {a['x']};")
    read.append("if (inside) value = read_left(p);")
    weights = [taps, f"const char* p = right + (Word)column * {out_kernel} + (Word)f * "
               f"{in_kernel};"]  # fmt: skip
    weights += [f"p += (Word)t{d} * {a['kernel']};" for d, a in enumerate(axes)]
    weights.append("value = read_right(p);")
    place = [positions, f"char* to = out + (Word)n * {batch_out} + (Word)column * {feature_out};"]
    place += [f"to += (Word)o{d} * {a['out']};" for d, a in enumerate(axes)]
    return _product_text(_arithmetic(left, right, out), setup, " ".join(read), " ".join(weights),
                         " ".join(place))  # fmt: skip


def _split(index: str, extents: list[str], name: str, rest: str) -> str:
    """Statements that split an index into name0, name1 ...; `rest` is what remains."""
    left = rest or "left_over"
    lines = [f"Index {left} = {index};"]
    for d in reversed(range(len(extents))):
        lines.append(f"Index {name}{d} = {left}; {left} = cut({name}{d}, {extents[d]});")
    return " ".join(lines)
