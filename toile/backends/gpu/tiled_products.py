"""Contractions and convolutions in tiles, of any dtype: for what no library takes.

A block computes a tile of the result, 64 by 64, from slices of both operands in shared memory; each
thread holds 4 by 4 sums. Rows, columns and summed positions may each be several axes: a convolution
is a product whose left operand is read through its windows. Floats of 16 bits are summed in
float32, integers wrap around, booleans are joined by `or`.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from toile.backends.gpu import numbers
from toile.backends.gpu.launches import Launch, Planner
from toile.backends.gpu.pieces import (
    MOST,
    THREADS,
    Words,
    blocks_of,
    decode,
    divisor,
    divisors,
    index_type,
)
from toile.compiler.geometry import byte_strides, collapse
from toile.compiler.operands import Operand

_TILE = 64
_DEEP = 16  # of the summed positions in shared memory at a time
_EACH = 4  # rows and columns of a thread
_THIN = 64  # elements of the result for each of a batch, up to which tiles do not pay
# Products that take a warp for each number: numbers, columns or rows at most, terms of each.
_FEW, _NARROW, _SHORT, _LONG = 4096, 16, 64, 1024


class _Group(NamedTuple):
    """Merged axes, with steps in bytes in two arrays."""

    shape: list[int]
    first: list[int]
    second: list[int]

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def words(self) -> list[int]:
        return [*divisors(self.shape), *self.first, *self.second]


def _group(shape: list[int], first: list[int], second: list[int]) -> _Group:
    sizes, (a, b) = collapse(shape, first, second)
    return _Group(sizes, a, b)


def _supported(*given: Any) -> bool:
    return all(numbers.supported(numbers.real_part(d)) for d in given)


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


# What a slice of both operands adds to the sums of a thread.
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
    """A tile; hooks: `left` sets `value` for (row, k), `right` for (k, column), `place` sets `to`.

    `setup` defines rows, columns, depth and base pointers for `batch`."""
    threads = _TILE // _EACH
    per = _TILE * _DEEP // THREADS
    return f"""\
#define THREADS {THREADS}
{index_type(False)}{head}\
__device__ void body(const Word* w, unsigned block) {{
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
}}
"""


def _decoded(index: str, shape: list[str], pointer: str, steps: list[str]) -> str:
    return f"{{ Index i = {index}; {decode('i', shape, [(pointer, steps)])} }}"


# ------------------------------------------------------------------------------------ contractions


def lower_small_dot(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """DotGeneral of any dtypes that kernels calculate with."""
    (x, y), (out,) = ins, outs
    if not _supported(x.dtype, y.dtype, out.dtype) or out.size > MOST:
        return False
    if out.dtype.kind != "c" and "c" in (x.dtype.kind, y.dtype.kind):
        return False
    at_x = dict(zip(op.lhs, zip(x.shape, byte_strides(x), strict=True), strict=True))
    at_y = dict(zip(op.rhs, zip(y.shape, byte_strides(y), strict=True), strict=True))
    at_out = dict(zip(op.out, zip(out.shape, byte_strides(out), strict=True), strict=True))

    def group(labels: list[str], first: Any, second: Any) -> _Group:
        sizes = [first[c][0] for c in labels]
        return _group(sizes, [first[c][1] for c in labels], [second[c][1] for c in labels])

    batch = [c for c in op.out if c in at_x and c in at_y]
    rows = group([c for c in op.out if c in at_x and c not in at_y], at_x, at_out)
    columns = group([c for c in op.out if c in at_y and c not in at_x], at_y, at_out)
    depth = group([c for c in op.lhs if c in at_y and c not in at_out], at_x, at_y)
    shape, steps = collapse(
        [at_x[c][0] for c in batch], *([t[c][1] for c in batch] for t in (at_x, at_y, at_out))
    )
    if max(rows.size, columns.size, depth.size, prod(shape)) > MOST:
        return False
    if rows.size * columns.size <= _THIN:
        plan.stage(_thin(x, y, out, [at_x, at_y], depth, op.out))
        return True
    tiles = blocks_of(rows.size, _TILE), blocks_of(columns.size, _TILE)
    key = (x.dtype, y.dtype, out.dtype, len(shape), *(len(g.shape) for g in (rows, columns, depth)))
    args = (
        out.ref, x.ref, y.ref, rows.size, columns.size, depth.size, *divisors(tiles),
        *divisors(shape), *sum(steps, []), *rows.words, *columns.words, *depth.words,
    )  # fmt: skip
    blocks = tiles[0] * tiles[1] * prod(shape)
    plan.stage(Launch(_dot_text(*key), args, blocks, THREADS, 0, "product in tiles"))
    return True


def _sums(
    x: Operand, y: Operand, out: Operand, at: list[Any], depth: _Group, labels: str
) -> tuple[int, tuple[Any, ...]]:
    """How many axes the result has, and the arguments of a kernel that goes through its elements
    one by one (see `_SumsWords`)."""
    steps = [[t[c][1] if c in t else 0 for c in labels] for t in at]
    shape, (a, b, to) = collapse(out.shape, *steps, byte_strides(out))
    return len(shape), (out.ref, x.ref, y.ref, out.size, depth.size, *divisors(shape),
                        *a, *b, *to, *depth.words)  # fmt: skip


class _SumsWords:
    """Where such a kernel finds its arguments."""

    def __init__(self, rank: int, depth: int):
        r = Words()
        self.to, self.x, self.y = r.pointer(), r.pointer("const char"), r.pointer("const char")
        self.total, self.deep, self.shape = r.one(), r.one(), r.many(rank)
        self.steps = [(name, r.many(rank)) for name in ("left", "right", "to")]
        self.inner = r.many(depth), r.many(depth), r.many(depth)

    @property
    def begin(self) -> str:
        return f"char* to = {self.to};\n  const char *left = {self.x}, *right = {self.y};"

    @property
    def terms(self) -> str:
        """Points p and q at the factors of term k."""
        n, p, q = self.inner
        return (f"const char *p = left, *q = right;\n"
                f"    {{ Index j = k; {decode('j', n, [('p', p), ('q', q)])} }}")


def _thin(
    x: Operand, y: Operand, out: Operand, at: list[Any], depth: _Group, labels: str
) -> Launch:
    """A thread for each element of the result, where rows and columns hardly fill a tile."""
    rank, args = _sums(x, y, out, at, depth, labels)
    text = _thin_text(x.dtype, y.dtype, out.dtype, rank, len(depth.shape))
    return Launch(text, args, blocks_of(out.size, THREADS), THREADS, 0, "sums of products")


def lower_few(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """A product of float32 matrices, one of few columns or rows: a warp for each number.

    Where those are no vectors of memory, cuBLAS takes twice as long; sums are in float32."""
    (x, y), (out,) = ins, outs
    at_x = dict(zip(op.lhs, zip(x.shape, byte_strides(x), strict=True), strict=True))
    at_y = dict(zip(op.rhs, zip(y.shape, byte_strides(y), strict=True), strict=True))
    summed = [c for c in op.lhs if c in at_y and c not in op.out]
    depth = _group([at_x[c][0] for c in summed], [at_x[c][1] for c in summed],
                   [at_y[c][1] for c in summed])
    thin = min(out.size // max(prod(at[c][0] for c in op.out if c in at), 1) for at in (at_x, at_y))
    kinds = {x.dtype.name, y.dtype.name, out.dtype.name}
    if kinds != {"float32"} or out.size > _FEW or not 1 < thin <= _NARROW or not thin % 4:
        return False
    if any(c in at_x and c in at_y for c in op.out) or not _SHORT <= depth.size <= _LONG:
        return False
    rank, args = _sums(x, y, out, [at_x, at_y], depth, op.out)
    text = _few_text(rank, len(depth.shape))
    blocks = blocks_of(out.size, THREADS // 32)
    plan.stage(Launch(text, args, blocks, THREADS, 0, "sums of products"))
    return True


@lru_cache(maxsize=32)
def _few_text(rank: int, depth: int) -> str:
    r = _SumsWords(rank, depth)
    return f"""\
#define THREADS {THREADS}
{index_type(False)}\
__device__ void body(const Word* w, unsigned block) {{
  {r.begin}
  const u32 lane = threadIdx.x % 32u;
  Index i = block * {THREADS // 32}u + threadIdx.x / 32u;
  if (i >= (Index){r.total}) return;
  {decode("i", r.shape, r.steps)}
  float sum = 0;
#pragma unroll 4
  for (Index k = lane; k < (Index){r.deep}; k += 32) {{
    {r.terms}
    sum = fmaf(*(const float*)p, *(const float*)q, sum);
  }}
  for (int d = 16; d; d >>= 1) sum += __shfl_xor_sync(~0u, sum, d);
  if (!lane) *(float*)to = sum;
}}
"""


@lru_cache(maxsize=128)
def _thin_text(left: Any, right: Any, out: Any, rank: int, depth: int) -> str:
    r = _SumsWords(rank, depth)
    return f"""\
#define THREADS {THREADS}
{index_type(False)}{_arithmetic(left, right, out)}\
__device__ void body(const Word* w, unsigned block) {{
  {r.begin}
  Index i = block * {THREADS}u + threadIdx.x;
  if (i >= (Index){r.total}) return;
  {decode("i", r.shape, r.steps)}
  Number sum = zero();
#pragma unroll 4
  for (Index k = 0; k < (Index){r.deep}; ++k) {{
    {r.terms}
    add_product(sum, read_left(p), read_right(q));
  }}
  write(to, sum);
}}
"""


@lru_cache(maxsize=128)
def _dot_text(
    left: Any, right: Any, out: Any, batch: int, rows: int, columns: int, depth: int
) -> str:
    r = Words()
    to, x, y = r.pointer(), r.pointer("const char"), r.pointer("const char")
    sizes, tiles = r.many(3), r.many(2)
    batches = r.many(batch)
    batch_steps = [("left", r.many(batch)), ("right", r.many(batch)), ("out", r.many(batch))]
    row, column, deep = ([r.many(n) for _ in range(3)] for n in (rows, columns, depth))
    setup = f"""\
char* out = {to};
  const char *left = {x}, *right = {y};
  const u32 rows = (u32){sizes[0]}, columns = (u32){sizes[1]}, depth = (u32){sizes[2]};
  Index tile_column = block, tile_row = cut(tile_column, {tiles[1]});
  {{ Index i = cut(tile_row, {tiles[0]}); {decode("i", batches, batch_steps)} }}"""
    from_left = (f"const char* p = left; {_decoded('row', row[0], 'p', row[1])} "
                 f"{_decoded('k', deep[0], 'p', deep[1])} value = read_left(p);")
    from_right = (f"const char* p = right; {_decoded('column', column[0], 'p', column[1])} "
                  f"{_decoded('k', deep[0], 'p', deep[2])} value = read_right(p);")
    place = (f"char* to = out; {_decoded('row', row[0], 'to', row[2])} "
             f"{_decoded('column', column[0], 'to', column[2])}")
    return _product_text(_arithmetic(left, right, out), setup, from_left, from_right, place)


# -------------------------------------------------------------------------------------- convolution


def lower_direct_conv(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """ConvGeneralDilated of any dtypes that kernels calculate with."""
    (x, kernel), (out,) = ins, outs
    if not _supported(x.dtype, kernel.dtype, out.dtype) or max(x.size, out.size) > MOST:
        return False
    if out.dtype.kind != "c" and "c" in (x.dtype.kind, kernel.dtype.kind):
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
        xs[lhs[0]], xs[lhs[1]], ks[rhs[0]], ks[rhs[1]], os[res[0]], os[res[1]], divisor(ins_),
    ]  # fmt: skip
    for i in range(len(taps)):
        low = op.padding[i][0]
        args += [
            divisor(space[i]), divisor(taps[i]), x.shape[lhs[2 + i]], op.window_strides[i], low,
            op.lhs_dilation[i], op.rhs_dilation[i], xs[lhs[2 + i]], ks[rhs[2 + i]], os[res[2 + i]],
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
    to, x, kernel = r.pointer(), r.pointer("const char"), r.pointer("const char")
    sizes, tiles, group = r.many(3), r.many(2), r.many(3)
    batch_x, feature_x, out_kernel, in_kernel, batch_out, feature_out, by_ins = r.many(7)
    axes = [dict(zip(_SPACE, r.many(len(_SPACE)), strict=True)) for _ in range(rank)]
    setup = f"""\
char* out = {to};
  const char *left = {x}, *right = {kernel};
  const u32 rows = (u32){sizes[0]}, columns = (u32){sizes[1]}, depth = (u32){sizes[2]};
  Index tile_column = block, tile_row = cut(tile_column, {tiles[1]});
  {{ const Word g = cut(tile_row, {tiles[0]});
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
    """Statements that make name0, name1 ... of a position; what is left is `rest`."""
    left = rest or "left_over"
    lines = [f"Index {left} = {index};"]
    for d in reversed(range(len(extents))):
        lines.append(f"Index {name}{d} = {left}; {left} = cut({name}{d}, {extents[d]});")
    return " ".join(lines)


