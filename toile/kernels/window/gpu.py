"""Reductions over windows, and the operations that select one element of each window.

Each thread computes one element of the result, or a few adjacent ones along an innermost axis
without a window (channels), which move as one unit of up to 16 bytes. The gradient of a selection
first records which element of each window was selected; then each element of the operand adds the
values of the windows that selected it, so that no two threads write to the same address. Maxima
propagate NaN as in NumPy; 16-bit floats are summed in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from toile.compiler.ir.geometry import byte_strides
from toile.compiler.ir.operands import Args, Operand
from toile.kernels.window.shared import EXTREMA, KINDS, Window, kind_of, windows_of
from toile.targets.cuda import elements as numbers
from toile.targets.cuda.launches import THREADS, Launch, Planner
from toile.targets.cuda.text import MOST, Words, divisors, kernel_text
from toile.targets.cuda.units import UNITS, aligned, unit_type, widest

_MOST_TAPS, _MOST_UNROLLED = 1 << 16, 64
_UNROLL = "\n#pragma unroll\n  "
_RELATIONS = {"ge": ">=", "le": "<="}
_AXIS = ("size", "taps", "stride", "low", "base", "dilation")  # the numbers of an axis in kernels


def _declines(op: Any, operands: list[Operand]) -> bool:
    dtype, kind = operands[0].dtype, kind_of(op, operands[:-1])
    return (
        not all(numbers.supported(x.dtype) and 0 < x.size <= MOST for x in operands)
        or dtype.kind == "b" and kind in EXTREMA or prod(op.window_dimensions) > _MOST_TAPS
        or kind not in KINDS
    )  # fmt: skip


class _Key(NamedTuple):
    """What determines the texts."""

    role: str
    kind: str
    dtype: Any
    axes: str  # for each axis: "." no window, "w" windows, "b" windows of a dilated operand
    lanes: int  # elements of a unit
    known: tuple[tuple[int, ...], ...]  # for small windows, numbers of each axis except its size


def _letters(axes: list[Window]) -> str:
    return "".join("b" if a.base > 1 else "w" if a.moves else "." for a in axes)


def _numbers(a: Window) -> tuple[int, ...]:
    return a.taps, a.stride, a.padding[0], a.base, a.dilation


def _all_numbers(axes: list[Window], shape: Sequence[int]) -> list[int]:
    return [v for n, a in zip(shape, axes, strict=True) for v in (n, *_numbers(a))]


def _known(axes: list[Window]) -> tuple[tuple[int, ...], ...]:
    """The numbers of small windows, which are constants in texts: compilers unroll such loops."""
    if prod(a.taps for a in axes) > _MOST_UNROLLED:
        return ()
    return tuple(map(_numbers, axes))


def _read_axes(key: _Key, r: Words) -> list[dict[str, str]]:
    """The numbers of each axis as texts name them."""
    axes = [dict(zip(_AXIS, r.many(6), strict=True)) for _ in key.axes]
    for a, known in zip(axes, key.known, strict=False):
        a.update(zip(_AXIS[1:], (f"({n})" for n in known), strict=True))
    return axes


def _lanes(axes: list[Window], most: int, *operands: Operand) -> int:
    """How many elements of the innermost axis a thread processes."""
    first = operands[0]
    size = first.dtype.itemsize
    if axes[-1].moves or any(x.strides[-1] != 1 for x in operands):
        return 1
    rest = [s for x in operands for s in byte_strides(x)[:-1]]
    return min(most, widest(size, first.shape[-1] * size, *rest) // size)


def _in_units(x: Operand, lanes: int) -> tuple[list[int], list[int]]:
    """Extents and steps in bytes, the innermost in units."""
    shape, steps = list(x.shape), list(byte_strides(x))
    shape[-1], steps[-1] = shape[-1] // lanes, steps[-1] * lanes
    return shape, steps


def lower(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Lower window reductions, and selections of one element of each window."""
    if _declines(op, [*ins, *outs]):
        return False
    if op.scatters:
        return _scatter(op, ins, outs, plan)
    (out,) = outs
    axes, x, second = windows_of(op), ins[-1], ins[0]
    lanes = _lanes(axes, 16, x, second)
    role = "tangent" if len(ins) > 1 else "reduce"
    key = _Key(role, kind_of(op, ins), out.dtype, _letters(axes), lanes, _known(axes))
    total, shape = out.size // lanes, _in_units(out, lanes)[0]
    args: Args = (
        out.ref, x.ref, second.ref, total, *divisors(shape), *_all_numbers(axes, x.shape),
        *_in_units(x, lanes)[1], *_in_units(second, lanes)[1],
    )  # fmt: skip
    plan.stage(Launch.over(total, _window_text(key), args, "windows"))
    return True


def _scatter(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """SelectAndScatterAdd: the element that each window selects, then the sum at each element."""
    (source, x), (out,) = ins, outs
    axes = windows_of(op)
    size = 1 if prod(a.taps for a in axes) <= 256 else 4
    chosen = plan.scratch(source.size * size)
    role = "choose8" if size == 1 else "choose32"
    lanes = _lanes(axes, 16 // size, x, source)
    key = _Key(role, op.select, out.dtype, _letters(axes), lanes, _known(axes))
    (shape, steps), (outs_, source_steps) = _in_units(x, lanes), _in_units(source, lanes)
    total = source.size // lanes
    known = _all_numbers(axes, x.shape)
    args: Args = (chosen, x.ref, x.ref, total, *divisors(outs_), *known, *steps, *steps)
    plan.stage(Launch.over(total, _window_text(key), args, "choices of windows"))
    total = out.size // lanes
    args = (out.ref, source.ref, chosen, total, *divisors(shape), *outs_, *known, *source_steps)
    text = _give_text(key._replace(role="give8" if size == 1 else "give32"))
    plan.stage(Launch.over(total, text, args, "gradient of pooling"))
    return True


def _coordinates(extents: list[str]) -> str:
    """Statements that split an index `rest` into c0, c1 ..."""
    lines = []
    for d in reversed(range(len(extents))):
        if d:
            lines.append(f"Index c{d} = rest; rest = cut(c{d}, {extents[d]});")
        else:
            lines.append("const Index c0 = rest;")
    return " ".join(lines)


def _head(key: _Key) -> str:
    dtype, size = key.dtype, key.dtype.itemsize
    unit = unit_type(size * key.lanes, size, numbers.memory_type(dtype))
    mark = 1 if key.role.endswith("8") else 4
    return (
        f"{numbers.conversions(dtype)}{unit}typedef {numbers.work_type(dtype)} Number;\n"
        + (f"union Marks {{ {UNITS[mark * key.lanes]} u; {UNITS[mark]} p[{key.lanes}]; }};\n"
           if key.role[-1].isdigit() else "")
    )  # fmt: skip


def _each(key: _Key, *statements: str) -> str:
    """Statements for every lane k."""
    body = " ".join(statements)
    return f"\n#pragma unroll\n  for (int k = 0; k < {key.lanes}; ++k) {{ {body} }}\n"


def _steps(key: _Key, out: str, at: str, kept: str, inside: str) -> tuple[str, str, str]:
    """The code that begins a window, processes one element of it, and ends it.

    at, kept: addresses of the element and its tangent; inside: whether the operand has it."""
    dtype = key.dtype
    reduce = key.role == "reduce"
    kind = key.kind if reduce else EXTREMA[key.kind]
    neutral = numbers.neutral(kind, dtype)
    relation = _RELATIONS.get(key.kind, "")
    start = f"Number best[{key.lanes}];" + _each(key, f"best[k] = {neutral};")
    read = f"const Held h = {{take(x + {at}, fits)}};"
    y = f"const Number y = {numbers.load(dtype, 'h.p[k]')};"
    save = lambda name: "Held h;" + _each(
        key, f"h.p[k] = {numbers.store(dtype, f'{name}[k]')};"
    ) + f"  put((char*){out} + (Word)unit * {key.lanes * dtype.itemsize}, h.u, fits);"
    if reduce:
        step = read + _each(key, y, "best[k] = combine(best[k], y);")
        end = save("best")
    elif key.role == "tangent":
        start += f"  Number found[{key.lanes}];" + _each(key, "found[k] = 0;")
        step = (f"{read} const Held g = {{take(second + {kept}, fits)}};" + _each(
            key, y, f"if (!(best[k] {relation} y)) {{ best[k] = y; "
            f"found[k] = {numbers.load(dtype, 'g.p[k]')}; }}"))  # fmt: skip
        end = save("found")
    else:  # outside elements take part as the worst; the first one is always selected
        start += f"  u32 place[{key.lanes}], number = 0;" + _each(key, "place[k] = 0;")
        y = f"const Number y = inside ? {numbers.load(dtype, 'h.p[k]')} : {neutral};"
        step = (f"const bool inside = {inside}; Held h; if (inside) h.u = take(x + {at}, fits);"
                + _each(key, y, f"if (number == 0 || !(best[k] {relation} y)) "
                        "{ best[k] = y; place[k] = number; }") + "++number;")  # fmt: skip
        end = ("Marks m;" + _each(key, "m.p[k] = place[k];")
               + f"  ((Marks*){out})[unit].u = m.u;")  # fmt: skip
    return start, step, end


def _start(key: _Key, steps: list[str]) -> str:
    """The start of a window along the axes without windows."""
    still = [f"c{d} * {step}" for d, step in enumerate(steps) if key.axes[d] == "."]
    return " + ".join(still) or "0"


def _window_loops(
    key: _Key, axes: list[dict[str, str]], moving: list[int]
) -> tuple[list[str], list[str]]:
    """Loops over the elements of a window, and tests whether the operand has them.

    Elements outside are skipped, except where choices are recorded: there they take part."""
    lines, tests = [], []
    for d in moving:
        a, dilated = axes[d], key.axes[d] == "b"
        type = "Word" if dilated else "int"
        lines.append(f"{_UNROLL if key.known else ''}for (int t{d} = 0; t{d} < (int){a['taps']}; "
                     f"++t{d}) {{")
        lines.append(f"{type} i{d} = ({type})c{d} * ({type}){a['stride']} - ({type}){a['low']} + "
                     f"t{d} * ({type}){a['dilation']};")
        if dilated:
            lines.append(f"if (i{d} < 0 || i{d} % {a['base']}) continue; i{d} /= {a['base']};")
        test = f"(u64)(Word)i{d} < (u64){a['size']}"
        if key.role.startswith("choose"):
            tests.append(test)
        else:
            lines.append(f"if (!({test})) continue;")
    return lines, tests


@lru_cache(maxsize=256)
def _window_text(key: _Key) -> str:
    """A thread for each window."""
    r, rank = Words(), len(key.axes)
    out, x, second, total = r.one(), r.pointer("const char"), r.pointer("const char"), r.one()
    extents = r.many(rank)
    axes = _read_axes(key, r)
    steps, others = r.many(rank), r.many(rank)
    moving = [d for d in range(rank) if key.axes[d] != "."]
    chooses = key.role.startswith("choose")
    loops, tests = _window_loops(key, axes, moving)
    lines = [f"Word p = {_start(key, steps)};"]
    if key.role == "tangent":
        lines.append(f"Word q = {_start(key, others)};")
    lines += loops
    at, kept = (name + "".join(f" + i{d} * {by[d]}" for d in moving)
                for name, by in (("p", steps), ("q", others)))
    start, step, end = _steps(key, out, at, kept, " && ".join(["true", *tests]))
    combine = numbers.combine_function(key.kind, key.dtype) if key.role == "reduce" else ""
    pointers = ("x",) if chooses else (f"(char*){out}", "x", "second")
    ends = ["}"] * len(moving)
    nest = "\n  ".join([*lines, step, " ".join(ends)])
    return kernel_text(f"""\
  const Index unit = block * {THREADS}u + threadIdx.x;
  if (unit >= (Index){total}) return;
  const char *x = {x}, *second = {second};
  const bool fits = {aligned(key.lanes * key.dtype.itemsize, *pointers)};
  Index rest = unit;
  {_coordinates(extents)}
  {start}
  {nest}
  {end}
""", _head(key) + combine)


@lru_cache(maxsize=128)
def _give_text(key: _Key) -> str:
    """A thread for each element of the operand: the windows that contain it, in order."""
    r, rank = Words(), len(key.axes)
    out, source, chosen, total = r.one(), r.pointer("const char"), r.one(), r.one()
    extents, outs = r.many(rank), r.many(rank)
    axes = _read_axes(key, r)
    steps = r.many(rank)
    lines, ends = [], []
    place, number, tap = "0", "0", "0"
    for d in range(rank):
        a = axes[d]
        if key.axes[d] == ".":
            window = f"c{d}"
        else:
            window = f"o{d}"
            taps, stride = f"(int){a['taps']}", f"(int){a['stride']}"
            lines.append(
                f"const int e{d} = (int)c{d} + (int){a['low']};"
                f"{_UNROLL if key.known else ' '}"
                f"for (int n{d} = ({taps} - 1) / {stride}; n{d} >= 0; --n{d}) {{\n"
                f"  const int o{d} = e{d} / {stride} - n{d};\n"
                f"  if (e{d} < 0 || o{d} < 0 || o{d} >= (int){outs[d]} || "
                f"e{d} - o{d} * {stride} >= {taps}) continue;"
            )  # fmt: skip
            ends.append("}")
            tap = f"({tap} * (u32){a['taps']} + (u32)(e{d} - o{d} * {a['stride']}))"
        place = f"({place} * {outs[d]} + {window})"
        number = f"{number} + {window} * {steps[d]}"
    dtype = key.dtype
    nest = "\n  ".join([
        *lines, f"const Marks m = {{((const Marks*){chosen})[{place}].u}}; const u32 tap = {tap};",
        f"const Held h = {{take(source + {number}, fits)}};",
        _each(key, f"if (m.p[k] == tap) sum[k] += {numbers.load(dtype, 'h.p[k]')};"),
        " ".join(ends),
    ])  # fmt: skip
    width = key.lanes * dtype.itemsize
    return kernel_text(f"""\
  const Index unit = block * {THREADS}u + threadIdx.x;
  if (unit >= (Index){total}) return;
  const char* source = {source};
  char* out = (char*){out} + (Word)unit * {width};
  const bool fits = {aligned(width, "out", "source")};
  Index rest = unit;
  {_coordinates(extents)}
  Number sum[{key.lanes}];
  {_each(key, "sum[k] = 0;")}
  {nest}
  Held h;
  {_each(key, f"h.p[k] = {numbers.store(dtype, 'sum[k]')};")}
  put(out, h.u, fits);
""", _head(key))
