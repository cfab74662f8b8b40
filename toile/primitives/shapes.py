"""Operations that rearrange elements: slice, pad, concatenate, reverse, iota, bit casts.

Reshape, transpose and broadcast are in `primitives.families`. All work on arrays of keys through
their physical form. This module may import the engine and other modules of `primitives`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from toile.engine import dtypes, key_uses
from toile.engine.avals import Aval, Zero
from toile.engine.errors import shape_error
from toile.engine.operation import Axis, Dim, Operation
from toile.engine.records import dataclass
from toile.primitives import division, rules, simplification
from toile.primitives.addresses import is_picked
from toile.primitives.arrays.pad_arrays import pad as pad_raw
from toile.primitives.choices import convert, select
from toile.primitives.families import (
    Identity,
    Linear,
    add,
    bdim_at,
    broadcast_in_dim,
    full_like,
    mapped_first,
    mul,
    reduce_sum,
    reshape,
    scalar,
    sub,
)
from toile.primitives.rules import frame_rule, itself, mapped_in_place


@dataclass(frozen=True)
class Slice(Linear):
    """The elements at start, start + stride, ... below limit along every axis."""

    starts: tuple[int, ...]
    limits: tuple[int, ...]
    strides: tuple[int, ...]
    moves_elements = True
    is_free = commutes_with_sums = views_part = True
    simplified = simplification.sliced_inside
    sparse = frame_rule("slice")

    def infer(self, x: Aval) -> Aval:
        parts = list(zip(self.starts, self.limits, self.strides, x.shape, strict=False))
        if len(self.starts) != x.ndim or any(
            not 0 <= a <= b <= n or s < 1 for a, b, s, n in parts
        ):
            raise shape_error(
                self.name,
                f"0 <= start <= limit <= size and positive strides for each axis, here starts "
                f"{self.starts}, limits {self.limits}, strides {self.strides}", [x],
                "x[start:limit] clips to the axis",
                f"slice slice_sizes must be within the operand shape {x.shape}",
            )
        return x.with_shape(tuple(-(-(b - a) // s) for a, b, s, _ in parts))

    def view(self, x: Any) -> Any:
        steps = self.strides or (1,) * len(x.shape)
        parts = zip(self.starts, self.limits, steps, strict=True)
        return x._replace(
            offset=x.offset + sum(b * s for b, s in zip(self.starts, x.strides, strict=True)),
            shape=tuple([-(-(end - start) // step) for start, end, step in parts]),
            strides=tuple([s * t for s, t in zip(x.strides, steps, strict=True)]))

    def eager(self, xp: Any, x: Any) -> Any:
        return x[tuple(map(slice, self.starts, self.limits, self.strides))]

    def transpose(self, ct: Any, x: Any) -> Any:
        config = []
        for a, s, n, m in zip(self.starts, self.strides, x.shape, ct.shape, strict=True):
            covered = a + (m - 1) * s + 1 if m else a
            config.append((a, n - covered, s - 1) if m else (a, n - a, 0))
        return pad(ct, full_like(ct, 0), tuple(config))

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        (x,), (d,) = xs, dims
        assert d is not None
        insert = lambda t, v: (*t[:d], v, *t[d:])
        op = Slice(insert(self.starts, 0), insert(self.limits, x.shape[d]),
                   insert(self.strides, 1))
        return op(x), d

    def physical(self, x: Aval) -> Operation:
        words = dtypes.key_words(x.dtype)
        return Slice((*self.starts, 0), (*self.limits, words), (*self.strides, 1))

    def key_use(self, avals: Sequence[Aval]) -> key_uses.KeyUse:
        if not key_uses.is_key(avals[0]):
            return key_uses.KeyUse()
        taken = np.zeros(avals[0].shape, bool)
        taken[tuple(map(slice, self.starts, self.limits, self.strides))] = True
        return key_uses.KeyUse({0: key_uses.compact(taken)} if taken.any() else {}, frozenset({0}))

    def divide(self, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        (x,) = ins
        cut = [i for i, n in enumerate(x.aval.shape)
               if (self.starts[i], self.limits[i], self.strides[i]) != (0, n, 1)]
        layout = division.undivided(x.layout, cut)
        part = f.to(x, layout)
        limits = tuple(n if i in cut else part.shape[i] for i, n in enumerate(self.limits))
        return [f.placed(outs[0], layout, Slice(self.starts, limits, self.strides)(part))]


def slice_(
    x: Any, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int] | None = None
) -> Any:
    steps = tuple(strides) if strides is not None else (1,) * len(starts)
    return Slice(tuple(starts), tuple(limits), steps)(x)


def slice_axis(x: Any, start: int, limit: int, axis: int, stride: int = 1) -> Any:
    """Slice along one axis."""
    starts, limits, strides = [0] * x.ndim, list(x.shape), [1] * x.ndim
    starts[axis], limits[axis], strides[axis] = start, limit, stride
    return Slice(tuple(starts), tuple(limits), tuple(strides))(x)


@dataclass(frozen=True)
class Pad(Linear):
    """The operand, padded by (low, high, interior) along each axis.

    Negative low and high values remove elements.
    """

    config: tuple[tuple[int, int, int], ...]
    moves_elements = True

    kernel_family = "copy.pad"
    can_make_nan = True

    def picks(self, ins: Sequence[Aval], out: Aval, innermost: bool = False,
              short: bool = False) -> bool:
        """Whether loop nests read it in place: not along the innermost axis, whose elements are
        read together, unless the device reads them one by one."""
        return is_picked(ins[0], out, innermost) and (innermost or not any(self.config[-1]))

    def picked_maps(self, out: Any) -> list[Any]:
        return [tuple(() if any(c) else t for c, t in zip(self.config, out, strict=True)), ()]

    def nest_node(self, b: Any, member: Any) -> int:
        return b.padded(member)

    def simplified(self, new: Any, e: Any) -> Any:
        """Padding that only removes elements is a slice."""
        if any(low > 0 or high > 0 or inner for low, high, inner in self.config):
            return None
        x = e.ins[0]
        part = Slice(tuple(-low for low, _, _ in self.config),
                     tuple(n + high for n, (_, high, _) in zip(x.aval.shape, self.config,
                                                               strict=True)),
                     (1,) * len(self.config))
        return [new.add(part, [x], e, e.outs[0].aval)]

    @property
    def margins(self) -> tuple[tuple[int, int, int], ...]:
        return self.config

    def infer(self, x: Aval, value: Aval) -> Aval:
        if len(self.config) != x.ndim or value.shape or value.dtype != x.dtype:
            said = "padding_value must be a scalar" if value.shape else ""
            raise shape_error(
                self.name, f"an operand with {len(self.config)} axes and a rank-0 padding value "
                "of its dtype", [x, value], "one (low, high, interior) per axis", said,
            )
        shape = tuple(
            low + high + n + max(0, n - 1) * inner
            for n, (low, high, inner) in zip(x.shape, self.config, strict=True)
        )
        if any(inner < 0 for *_, inner in self.config) or any(n < 0 for n in shape):
            raise shape_error(self.name, f"padding {self.config} that leaves sizes >= 0",
                              [x, value], "negative padding cuts at most the whole axis")
        return Aval(shape, x.dtype, x.weak_type and value.weak_type)

    def eager(self, xp: Any, x: Any, value: Any) -> Any:
        return pad_raw(xp, x, value, self.config)

    def transpose(self, ct: Any, x: Any, value: Any) -> Any:
        # Undo the padding: trim the added elements, then drop the interior.
        back = ct_x = None
        if type(x) is Aval or type(value) is Aval:
            back = self._unpad(ct)
        if type(x) is Aval:
            ct_x = back
        ct_value = None
        if type(value) is Aval:
            everything = tuple(range(ct.ndim))
            ct_value = sub(reduce_sum(ct, everything), reduce_sum(back, everything))
        return ct_x, ct_value

    def _unpad(self, ct: Any) -> Any:
        trimmed = Pad(tuple((-low, -high, 0) for low, high, _ in self.config))(
            ct, full_like(ct, 0)
        )
        if all(inner == 0 for *_, inner in self.config):
            return trimmed
        return slice_(trimmed, [0] * ct.ndim, trimmed.shape, [i + 1 for *_, i in self.config])

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        (x, value), (d, dv) = xs, dims
        if dv is None:
            assert d is not None
            config = (*self.config[:d], (0, 0, 0), *self.config[d:])
            return Pad(config)(x, value), d
        return self._vmap_value(axis[1], x, value, d, dv)

    def _vmap_value(self, size: int, x: Any, value: Any, d: Dim, dv: Dim) -> tuple[Any, Any]:
        """A padding value for each example: pad with zeros and select by a padded mask."""
        x = bdim_at(x, d, size)
        config = ((0, 0, 0), *self.config)
        padded = Pad(config)(x, full_like(x, 0))
        ones = broadcast_in_dim(scalar(True, np.bool_), x.shape, ())
        inside = Pad(config)(ones, scalar(False, np.bool_))
        return select(inside, padded, broadcast_in_dim(value, padded.shape, (0,))), 0

    def physical(self, *avals: Aval) -> Operation:
        return _PadKeys(self.config)

    def on_words(self, words: Any, value: Any) -> Any:
        return joined_words(*(self(word(words, i), word(value, i)) for i in range(words.shape[-1])))

    def used_operands(self, x: Aval, value: Aval) -> Sequence[int]:
        kept = [n + min(low, 0) + min(high, 0)
                for n, (low, high, _) in zip(x.shape, self.config, strict=True)]
        return (0, 1) if min(kept, default=1) > 0 else (1,)

    def divide(self, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        x, fill = ins
        padded = [i for i, c in enumerate(self.config) if c != (0, 0, 0)]
        layout = division.undivided(x.layout, padded)
        return [f.placed(outs[0], layout, self(f.to(x, layout), f.to(fill, ())))]


@dataclass(frozen=True)
class _PadKeys(Operation):
    """Pad on the buffers of key arrays: each padding element is a whole key."""

    config: tuple[tuple[int, int, int], ...]

    def eager(self, xp: Any, x: Any, value: Any) -> Any:
        words = [pad_raw(xp, x[..., i], value[i], self.config) for i in range(x.shape[-1])]
        return xp.stack(words, axis=-1)


def pad(x: Any, value: Any, config: tuple[tuple[int, int, int], ...]) -> Any:
    if all(c == (0, 0, 0) for c in config):
        return x
    return Pad(config)(x, value)


def _mismatch(axis: int, xs: Sequence[Aval]) -> str:
    """Why operands cannot be concatenated, in JAX's words."""
    shapes = ", ".join(str(x.shape) for x in xs)
    if len({x.ndim for x in xs}) > 1:
        return f"Cannot concatenate arrays with different numbers of dimensions: got {shapes}"
    if not 0 <= axis < xs[0].ndim:
        return f"concatenate dimension out of bounds: dimension {axis} for shapes {shapes}"
    if len({(*x.shape[:axis], *x.shape[axis + 1 :]) for x in xs}) > 1:
        return (
            "Cannot concatenate arrays with shapes that differ in dimensions other than the one "
            f"being concatenated: concatenating along dimension {axis} for shapes {shapes}"
        )
    return "lax.concatenate requires arguments to have the same dtypes"


@dataclass(frozen=True)
class Concatenate(Linear):
    """The operands, joined along an axis."""

    axis: int
    moves_elements = True

    kernel_family = "copy.concatenate"
    sparse = frame_rule("concatenate")

    @property
    def joined_axis(self) -> int:
        return self.axis

    def infer(self, *xs: Aval) -> Aval:
        first, a = xs[0], self.axis
        rest = [(*x.shape[:a], *x.shape[a + 1 :]) for x in xs]
        if not 0 <= a < first.ndim or any(
            x.ndim != first.ndim or r != rest[0] or x.dtype != first.dtype
            for x, r in zip(xs, rest, strict=True)
        ):
            raise shape_error(
                self.name, f"operands that differ in axis {a} only, of equal dtypes", xs,
                "reshape, pad or convert them, or join along another axis", _mismatch(a, xs),
            )
        size = sum(x.shape[a] for x in xs)
        shape = (*first.shape[:a], size, *first.shape[a + 1 :])
        return Aval(shape, first.dtype, all(x.weak_type for x in xs))

    def simplified(self, new: Any, e: Any) -> Any:
        """concatenate(number, x, number) = pad(x, number), which a loop nest can read in place.

        Only for arrays in memory: a kernel stores its result in place in a concatenation."""
        found = simplification.between_numbers(new, e)
        if found is None:
            return None
        at, fill = found
        low, high = (sum(a.aval.shape[self.axis] for a in part)
                     for part in (e.ins[:at], e.ins[at + 1 :]))
        margins = [(0, 0, 0)] * e.ins[at].aval.ndim
        margins[self.axis] = low, high, 0
        return [new.add(Pad(tuple(margins)), [e.ins[at], fill], e, e.outs[0].aval)]

    def eager(self, xp: Any, *xs: Any) -> Any:
        return xp.concatenate(xs, axis=self.axis)

    def transpose(self, ct: Any, *xs: Any) -> Any:
        found: list[Any] = []
        start = 0
        for x in xs:
            size = x.shape[self.axis]
            linear = type(x) is Aval
            found.append(slice_axis(ct, start, start + size, self.axis) if linear else None)
            start += size
        return tuple(found)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        moved = [bdim_at(x, d, axis[1]) for x, d in zip(xs, dims, strict=True)]
        return Concatenate(self.axis + 1)(*moved), 0

    physical = itself

    def key_use(self, avals: Sequence[Aval]) -> key_uses.KeyUse:
        return (key_uses.keeps if len(avals) == 1 else key_uses.splits)(self, avals)

    divide = division.whole_along_axis


@dataclass(frozen=True)
class Rev(Linear):
    """The operand, reversed along some axes."""

    axes: tuple[int, ...]
    moves_elements = rearranges = is_always_view = True

    kernel_family = "copy.rev"
    sparse = frame_rule("rev")

    def infer(self, x: Aval) -> Aval:
        if len(set(self.axes)) != len(self.axes) or any(not 0 <= a < x.ndim for a in self.axes):
            raise shape_error(self.name, f"distinct axes of the operand, here {self.axes}", [x],
                              "count axes from 0, each at most once")
        return x

    def undoes(self, first: Operation, x: Aval) -> bool:
        return isinstance(first, Rev) and set(first.axes) == set(self.axes)

    def view(self, x: Any) -> Any:
        offset = x.offset + sum((x.shape[a] - 1) * x.strides[a] for a in self.axes)
        strides = tuple([-s if i in self.axes else s for i, s in enumerate(x.strides)])
        return x._replace(offset=offset, strides=strides)

    def eager(self, xp: Any, x: Any) -> Any:
        index = [slice(None)] * x.ndim
        for a in self.axes:
            index[a] = slice(None, None, -1)
        return x[tuple(index)]

    def transpose(self, ct: Any, x: Any) -> Any:
        return self(ct)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        (x,), (d,) = xs, dims
        assert d is not None
        return Rev(tuple(a + (a >= d) for a in self.axes))(x), d

    physical = itself

    def divide(self, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        return division.whole_along(self.axes, self, f, ins, outs)


@dataclass(frozen=True)
class Iota(Operation):
    """An array of the given shape that contains 0, 1, 2, ... along one axis."""

    dtype: Any
    shape: tuple[int, ...]
    axis: int
    is_free = makes_axes = True

    @property
    def counted_axis(self) -> int:
        return self.axis

    def nest_node(self, b: Any, member: Any) -> int:
        return b.counted(member, self.axis)

    def infer(self) -> Aval:
        if not 0 <= self.axis < len(self.shape) or dtypes.kind(self.dtype) not in "iufc":
            raise shape_error(
                self.name, f"an axis of shape {self.shape}, here {self.axis}, and a numeric "
                f"dtype, here {dtypes.name_of(self.dtype)}", [],
            )
        return Aval(self.shape, self.dtype)

    def eager(self, xp: Any) -> Any:
        count = xp.arange(self.shape[self.axis]).astype(self.dtype)
        if len(self.shape) == 1:
            return count
        spread = [1] * len(self.shape)
        spread[self.axis] = -1
        return xp.broadcast_to(count.reshape(spread), self.shape)

    def divide(self, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        (out,) = outs

        def make(wanted: Any) -> Any:
            shape, names = f.local(self.shape, wanted), wanted[self.axis]
            found = iota(self.dtype, shape, self.axis)
            if f.parts(names) == 1:
                return found
            start = mul(f.index(names), scalar(shape[self.axis], np.int32))
            return add(found, convert(start, self.dtype))

        return [f.spread(out, ((),) * out.ndim, make)]


def iota(dtype: Any, shape: Sequence[int], axis: int = 0) -> Any:
    return Iota(np.dtype(dtype), tuple(shape), axis)()


@dataclass(frozen=True)
class BitcastConvertType(Operation):
    """The same bits, interpreted as another dtype.

    If the widths differ, a last axis is added or removed.
    """

    dtype: Any
    handles_zeros = True
    by_element = True  # where widths are equal

    def infer(self, x: Aval) -> Aval:
        old, new = x.dtype.itemsize, self.dtype.itemsize
        kinds = dtypes.kind(x.dtype) + dtypes.kind(self.dtype)
        if ("c" in kinds or "b" in kinds) and kinds[0] != kinds[1]:
            raise shape_error(self.name, "no conversion to or from bool or complex", [x],
                              "use .astype to convert values instead of bits")
        if old == new:
            return Aval(x.shape, self.dtype)
        if old > new:
            return Aval((*x.shape, old // new), self.dtype)
        if not x.shape or x.shape[-1] * old != new:
            raise shape_error(
                self.name, f"a last axis of size {new // old} to become "
                f"{dtypes.name_of(self.dtype)}", [x], "reshape the last axis to that size",
            )
        return Aval(x.shape[:-1], self.dtype)

    def eager(self, xp: Any, x: Any) -> Any:
        old, new = x.dtype.itemsize, self.dtype.itemsize
        x = xp.ascontiguousarray(x).reshape(x.shape)  # rank 0 would become rank 1
        if old == new:
            return x.view(self.dtype)
        if old > new:
            return x.reshape(*x.shape, 1).view(self.dtype)
        return x.view(self.dtype).reshape(x.shape[:-1])

    def lower(self, k: Any, x: Any) -> Any:
        return k.bitcast(x, self.dtype)

    jvp = rules.no_derivative

    vmap = mapped_first

    def divide(self, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        if ins[0].aval.shape != outs[0].shape:
            return super().divide(f, ins, outs)
        return division.by_element(self, f, ins, outs)


@dataclass(frozen=True)
class ReducePrecision(Operation):
    """The operand, rounded to a format with fewer exponent and mantissa bits; its dtype is kept."""

    exponent_bits: int
    mantissa_bits: int
    handles_zeros = True
    by_element = True
    only_rounds = True
    divide = division.by_element

    def infer(self, x: Aval) -> Aval:
        if dtypes.kind(x.dtype) != "f" or self.exponent_bits < 1 or self.mantissa_bits < 0:
            raise shape_error(self.name, "a float operand, exponent_bits >= 1 and "
                              "mantissa_bits >= 0", [x])
        return x

    def eager(self, xp: Any, x: Any) -> Any:
        return round_to_format(xp, x, self.exponent_bits, self.mantissa_bits)

    def lower(self, k: Any, x: Any) -> Any:
        return k.reduce_precision(x, self.exponent_bits, self.mantissa_bits)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (x,), (dx,) = primals, tangents
        out = self(x)
        return out, Zero(out) if dx.__class__ is Zero else self(dx)

    def transpose(self, ct: Any, x: Any) -> Any:
        return self(ct)

    vmap = mapped_in_place


def round_to_format(xp: Any, x: Any, exponent_bits: int, mantissa_bits: int) -> Any:
    """Round half to even to `mantissa_bits`. With fewer exponent bits than the dtype has, overflow
    to infinity, underflow to zero."""
    info = ml_dtypes.finfo(x.dtype)
    y = x
    if mantissa_bits < info.nmant:
        drop, integer = info.nmant - mantissa_bits, np.dtype(f"i{x.dtype.itemsize}")
        bits = x.view(integer)
        rounded = bits + ((1 << (drop - 1)) - 1) + (bits >> drop & 1) & -(1 << drop)
        y = rounded.astype(integer).view(x.dtype)
    if exponent_bits < info.nexp:
        bias = 2 ** (exponent_bits - 1) - 1
        wide = y.astype(np.float64)
        largest = (2.0 - 2.0**-mantissa_bits) * 2.0**bias
        wide = xp.where(xp.abs(wide) > largest, xp.copysign(np.inf, wide), wide)
        wide = xp.where(xp.abs(wide) < 2.0 ** (1 - bias), xp.copysign(0.0, wide), wide)
        y = wide.astype(x.dtype)
    return xp.where(xp.isfinite(x), y, x)


class OptimizationBarrier(Operation):
    """The operands, unchanged; the compiler does not move equations across this operation."""

    multiple = True
    is_identity = True
    handles_zeros = True
    key_use = key_uses.keeps
    is_barrier = is_distinct = True

    def infer(self, *xs: Aval) -> list[Aval]:
        return list(xs)

    def eager(self, xp: Any, *xs: Any) -> Any:
        return list(xs)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        outs = self(*primals)
        moving = [t for t in tangents if t.__class__ is not Zero]
        passed = iter(self(*moving) if moving else [])
        return outs, [t if t.__class__ is Zero else next(passed) for t in tangents]

    def transpose(self, ct: Any, *xs: Any) -> Any:
        return tuple(ct)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        return self(*xs), list(dims)

    physical = itself

    def divide(self, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        found = self(*[f.natural(v) for v in ins])
        return f.placed_all(self, outs, [v.layout for v in ins], found)


class Copy(Identity):
    """A copy of the operand in a new buffer."""

    kernel_family = "copy"

    def view(self, x: Any) -> Any:
        return x

    def eager(self, xp: Any, x: Any) -> Any:
        return x.copy()


optimization_barrier, copy = OptimizationBarrier(), Copy()


def word(words: Any, i: int) -> Any:
    """One word of each key; words are along the last axis."""
    return reshape(slice_axis(words, i, i + 1, words.ndim - 1), words.shape[:-1])


def joined_words(*words: Any) -> Any:
    """Words as a new last axis."""
    return concatenate_all([reshape(w, (*w.shape, 1)) for w in words], len(words[0].shape))


def concatenate_all(xs: Sequence[Any], axis: int) -> Any:
    """One array from several; a single one is returned unchanged."""
    return xs[0] if len(xs) == 1 else Concatenate(axis)(*xs)
