"""The families of operations, and the few operations that their rules need.

`Elementwise` takes operands that have the same dtype and either equal shapes or rank 0; `Linear` is
its own derivative with respect to its differentiable operands; `Bilinear` is linear in each of two
operands. `Add`, `Sub`, `Neg`, `Mul`, `BroadcastInDim`, `ReduceSum`, `Reshape` and `Transpose` live
here because the families' rules use them. This module may import only the engine and
primitives.axis_rules, division, rules and simplification.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from toile.engine import dtypes, key_uses, operation
from toile.engine.avals import Aval, Zero
from toile.engine.errors import shape_error
from toile.engine.operation import Axis, Dim, Operation
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.engine.strides import strides_in
from toile.primitives import axis_rules, division, rules, simplification
from toile.primitives.rules import frame_rule, itself, kernel_function, mapped_in_place

ANY = "biufc"
NUMERIC = "iufc"
REAL = "iuf"
INTEGER = "iu"
INTEGRAL = "biu"
FLOATING = "fc"
FLOAT = "f"
COMPLEX = "c"
_KIND_NAMES = {"b": "bool", "i": "int", "u": "unsigned int", "f": "float", "c": "complex"}


def accepts_text(kinds: str) -> str:
    return " or ".join(_KIND_NAMES[k] for k in kinds)


# ----------------------------------------------------------------------------------- elementwise


class Elementwise(Operation):
    """Applies a scalar function; operands agree in dtype and have equal shapes or rank 0."""

    handles_zeros = True
    keeps_layout = True
    by_element = True
    accepts: ClassVar[str] = ANY
    # Dtype of the result: None for the operands' dtype.
    result: ClassVar[Any] = None
    lower: ClassVar[Any] = None  # None: it runs through `eager` only
    divide, taylor, sparse = division.by_element, rules.moves_with_operands, frame_rule("unary")

    def infer(self, *avals: Aval) -> Aval:
        first = avals[0]
        shape, dtype, weak = first.shape, first.dtype, first.weak_type
        for a in avals[1:]:
            if a.shape != shape:
                if not shape:
                    shape = a.shape
                elif a.shape:
                    raise shape_error(
                        self.name, "operands of equal shapes (or scalars)", avals,
                        "broadcast them first, or use the function of toile.numpy",
                        f"{self.name} got incompatible shapes for broadcasting: "
                        f"{', '.join(str(v.shape) for v in avals)}",
                    )
            if a.dtype != dtype:
                raise shape_error(
                    self.name, "operands of equal dtypes", avals,
                    "convert one with .astype, or use the function of toile.numpy",
                    f"lax.{self.name} requires arguments to have the same dtypes",
                )
            weak = weak and a.weak_type
        if dtypes.kind(dtype) not in self.accepts:
            raise shape_error(
                self.name, f"{accepts_text(self.accepts)} operands", avals,
                "convert them with .astype",
                f"{self.name} does not accept dtype {dtypes.name_of(dtype)}",
            )
        return self.result_aval(shape, dtype, weak)

    def result_aval(self, shape: tuple[int, ...], dtype: Any, weak: bool) -> Aval:
        if self.result is not None:
            return Aval(shape, self.result, weak)
        return Aval(shape, dtype, weak)

    def partials(self, y: Any, *xs: Any) -> Sequence[Any]:
        """dy/dx for each operand x, given y: a value, a thunk, 1, -1, or None for zero."""
        raise NotImplementedError(f"{self.name}: has no derivative{here()}")

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        y = self(*primals)
        if self.result is not None:
            return y, Zero(y)
        total = None
        for t, p in zip(tangents, self.partials(y, *primals), strict=True):
            if t.__class__ is Zero or p is None:
                continue
            if p.__class__ is int:
                term = t if p == 1 else neg(t)
            else:
                term = mul(t, p() if callable(p) else p)
            total = term if total is None else add(total, term)
        if total is None:
            return y, Zero(y)
        return y, fill_shape(total, y.shape)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        args, dim = align_mapped(axis[1], xs, dims)
        return self(*args), dim

    def flops(self, *avals: Aval) -> int:
        return math.prod(self.infer(*avals).shape)


def align_mapped(
    size: int, xs: Sequence[Any], dims: Sequence[Dim]
) -> tuple[list[Any], int]:
    """Operands of an elementwise operation with the mapped axis at one common position."""
    first = next(d for d in dims if d is not None)
    rank = max(x.ndim - (d is not None) for x, d in zip(xs, dims, strict=True))
    common = all(
        (d == first and x.ndim == rank + 1) or (d is None and x.ndim == 0)
        for x, d in zip(xs, dims, strict=True)
    )
    if common:
        return list(xs), first
    logical: tuple[int, ...] = ()
    for x, d in zip(xs, dims, strict=True):
        shape = without(x.shape, (d,)) if d is not None else x.shape
        logical = logical or shape
    args = []
    for x, d in zip(xs, dims, strict=True):
        if d is None:
            args.append(broadcast_in_dim(x, (size, *logical), tuple(range(1, rank + 1)))
                        if x.ndim else x)
        elif x.ndim == rank + 1:
            args.append(move_axis(x, d, 0))
        else:
            args.append(broadcast_in_dim(x, (size, *logical), (0,)))
    return args, 0


def fill_shape(x: Any, shape: tuple[int, ...]) -> Any:
    """Broadcast a rank-0 value to `shape`; other values already have it."""
    return x if x.shape == shape else broadcast_in_dim(x, shape, ())


def unbroadcast(ct: Any, aval: Any) -> Any:
    """Sum a cotangent down to the shape of an operand that was used as a scalar."""
    if len(aval.shape) == len(ct.shape):
        return ct
    return reduce_sum(ct, tuple(range(len(ct.shape))))


class Add(Elementwise):
    """The sum of two numbers, or the disjunction of two booleans."""

    is_sum = is_smooth = passes_errors = True
    divide, signs = division.sum_by_element, (1, 1)
    taylor, sparse = frame_rule("signed"), frame_rule("sum")
    can_make_nan, at_zeros = True, simplification.other_operand
    simplified = simplification.without_neutral(-0.0, commutes=True)

    def eager(self, xp: Any, x: Any, y: Any) -> Any:
        return xp.add(x, y)

    lower = kernel_function("add")

    def partials(self, out: Any, x: Any, y: Any) -> Sequence[Any]:
        return 1, 1

    def transpose(self, ct: Any, x: Any, y: Any) -> Any:
        return (
            unbroadcast(ct, x) if type(x) is Aval else None,
            unbroadcast(ct, y) if type(y) is Aval else None,
        )


class Sub(Elementwise):
    """The difference of two numbers."""

    is_smooth = passes_errors = True
    accepts, signs = NUMERIC, (1, -1)
    divide = division.sum_by_element
    taylor, sparse = frame_rule("signed"), frame_rule("difference")
    can_make_nan = True
    simplified, at_zeros = simplification.without_neutral(0.0), simplification.first_operand

    def eager(self, xp: Any, x: Any, y: Any) -> Any:
        return xp.subtract(x, y)

    lower = kernel_function("sub")

    def partials(self, out: Any, x: Any, y: Any) -> Sequence[Any]:
        return 1, -1

    def transpose(self, ct: Any, x: Any, y: Any) -> Any:
        return (
            unbroadcast(ct, x) if type(x) is Aval else None,
            unbroadcast(neg(ct), y) if type(y) is Aval else None,
        )


class Neg(Elementwise):
    """The negative of the operand."""

    accepts, signs = NUMERIC, (-1,)
    divide = division.linear_by_element
    taylor = frame_rule("signed")
    is_smooth = commutes_with_sums = passes_errors = keeps_relative_errors = True
    simplified, at_zeros = simplification.undone, simplification.zero_operand

    def eager(self, xp: Any, x: Any) -> Any:
        return xp.negative(x)

    lower = kernel_function("neg")

    def partials(self, out: Any, x: Any) -> Sequence[Any]:
        return (-1,)

    def transpose(self, ct: Any, x: Any) -> Any:
        return neg(ct)


class Mul(Elementwise):
    """The product of two numbers, or the conjunction of two booleans."""

    is_product = is_smooth = passes_errors = keeps_relative_errors = True
    divide = division.scaled_by_element
    taylor = sparse = frame_rule("product")
    can_make_nan, at_zeros = True, simplification.zero_operand
    simplified = simplification.without_neutral(1.0, commutes=True)

    def eager(self, xp: Any, x: Any, y: Any) -> Any:
        return xp.multiply(x, y)

    lower = kernel_function("mul")

    def partials(self, out: Any, x: Any, y: Any) -> Sequence[Any]:
        return y, x

    def transpose(self, ct: Any, x: Any, y: Any) -> Any:
        if type(x) is Aval:
            return unbroadcast(mul(ct, y), x), None
        return None, unbroadcast(mul(ct, x), y)


add, sub, neg, mul = Add(), Sub(), Neg(), Mul()


# ---------------------------------------------------------------------------- linear and bilinear


class Linear(Operation):
    """Linear in its inexact operands, jointly; integer and boolean operands are parameters."""

    handles_zeros = True

    def linear_operands(self, primals: Sequence[Any]) -> Sequence[bool]:
        return [dtypes.is_inexact(x.dtype) for x in primals]

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        y = self(*primals)
        if all(t.__class__ is Zero for t in tangents):
            return y, ([Zero(o) for o in y] if self.multiple else Zero(y))
        moving = self.linear_operands(primals)
        args = [
            instantiate(t) if m else x for x, t, m in zip(primals, tangents, moving, strict=True)
        ]
        return y, self(*args)

    def taylor(self, f: Any, primals: Sequence[Any], series: Sequence[Any]) -> tuple[Any, Any]:
        own = self.multiple or type(self).jvp is not Linear.jvp
        return f.integrated(self, primals, series) if own else f.linear(self, primals, series)


class Identity(Linear):
    """The operand itself; each subclass gives it a meaning."""

    is_identity = True
    divide = division.linear_by_element
    key_use, sparse = key_uses.keeps, frame_rule("linear")

    def infer(self, x: Aval) -> Aval:
        return x

    def eager(self, xp: Any, x: Any) -> Any:
        return x

    def lower(self, k: Any, x: Any) -> Any:
        return x

    def transpose(self, ct: Any, x: Any) -> Any:
        return ct

    vmap = mapped_in_place

    physical = itself


class Bilinear(Operation):
    """Linear in each of its two operands."""

    handles_zeros = True
    multiplies = True

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (x, y), (dx, dy) = primals, tangents
        out = self(x, y)
        terms = []
        if dx.__class__ is not Zero:
            terms.append(self(dx, y))
        if dy.__class__ is not Zero:
            terms.append(self(x, dy))
        if not terms:
            return out, Zero(out)
        return out, terms[0] if len(terms) == 1 else add(*terms)

    def taylor(self, f: Any, primals: Sequence[Any], series: Sequence[Any]) -> tuple[Any, Any]:
        own = type(self).jvp is not Bilinear.jvp
        return f.integrated(self, primals, series) if own else f.product(self, primals, series)


def without(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """`shape` with the entries at `axes` taken out."""
    return tuple(s for i, s in enumerate(shape) if i not in axes)


@dataclass(frozen=True)
class BroadcastInDim(Linear):
    """The operand, repeated along new axes and axes of size 1; axis i becomes axis dims[i]."""

    shape: tuple[int, ...]
    dims: tuple[int, ...]
    moves_elements = moves_axes = True

    key_use, sparse = key_uses.moves, frame_rule("broadcast_in_dim")
    is_free = makes_axes = True
    simplified = simplification.broadcast_once
    domain_axes, moved_axis = axis_rules.broadcast_domain, axis_rules.broadcast_axis
    repeated = axis_rules.repeated

    def infer(self, x: Aval) -> Aval:
        ok = len(self.dims) == x.ndim and list(self.dims) == sorted(set(self.dims))
        ok = ok and all(
            0 <= d < len(self.shape) and n in (1, self.shape[d])
            for n, d in zip(x.shape, self.dims, strict=False)
        )
        if not ok:
            raise shape_error(
                self.name,
                f"an operand whose axes fit axes {self.dims} of shape {self.shape}",
                [x],
                "operand sizes must be 1 or equal to the sizes they are broadcast to",
                axis_rules.broadcast_problem(self, x),
            )
        return x.with_shape(self.shape)

    def view(self, x: Any) -> Any:
        strides = [0] * len(self.shape)
        for d, n, stride in zip(self.dims, x.shape, x.strides, strict=True):
            strides[d] = stride if n == self.shape[d] else 0
        return x._replace(shape=self.shape, strides=tuple(strides))

    def eager(self, xp: Any, x: Any) -> Any:
        shape = self.shape
        if x.ndim:
            spread = [1] * len(shape)
            for n, d in zip(x.shape, self.dims, strict=True):
                spread[d] = n
            x = x.reshape(spread)
        if math.prod(shape) > 4096:
            return xp.broadcast_to(x, shape)
        out = xp.empty(shape, x.dtype)  # broadcast_to costs more than filling a small array
        out[...] = x
        return out

    def transpose(self, ct: Any, x: Any) -> Any:
        axes = [i for i in range(len(self.shape)) if i not in self.dims]
        axes += [d for n, d in zip(x.shape, self.dims, strict=True) if n != self.shape[d]]
        ct = reduce_sum(ct, tuple(sorted(axes)))
        return ct if ct.shape == x.shape else reshape(ct, x.shape)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        x = move_axis(xs[0], dims[0], 0)
        shape = (x.shape[0], *self.shape)
        return BroadcastInDim(shape, (0, *(d + 1 for d in self.dims)))(x), 0

    def physical(self, x: Aval) -> Operation:
        words = dtypes.key_words(x.dtype)
        return BroadcastInDim((*self.shape, words), (*self.dims, len(self.shape)))

    def divide(self, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        (x,), (out,) = ins, outs
        stretched = [i for i, d in enumerate(self.dims) if x.aval.shape[i] != self.shape[d]]
        own = dict(zip(self.dims, division.undivided(x.layout, stretched), strict=True))

        def make(wanted: Any) -> Any:
            layout = [() if i in stretched else wanted[d] for i, d in enumerate(self.dims)]
            return broadcast_in_dim(f.to(x, tuple(layout)), f.local(self.shape, wanted), self.dims)

        uniform = not x.aval.shape
        return [f.spread(out, tuple(own.get(d, ()) for d in range(out.ndim)), make,
                         uniform and f.is_zero(x), uniform)]


def broadcast_in_dim(x: Any, shape: tuple[int, ...], dims: tuple[int, ...]) -> Any:
    if x.shape == shape and dims == tuple(range(len(shape))):
        return x
    return BroadcastInDim(shape, dims)(x)


@dataclass(frozen=True)
class Reshape(Linear):
    """The same elements, in row-major order, with another shape."""

    shape: tuple[int, ...]
    moves_elements = moves_axes = rearranges = True

    kernel_family, key_use = "copy.reshape", key_uses.moves
    sparse = frame_rule("reshape")
    is_free = commutes_with_sums = True
    simplified, undoes = simplification.reshaped_once, axis_rules.undoes_reshape
    domain_axes, moved_axis = axis_rules.reshape_domain, axis_rules.reshape_axis
    grown_axis = axis_rules.reshaped

    def infer(self, x: Aval) -> Aval:
        if math.prod(self.shape) != x.size or min(self.shape, default=0) < 0:
            raise shape_error(
                self.name, f"an operand with {math.prod(self.shape)} elements for shape "
                f"{self.shape}", [x], f"it has {x.size} elements: the sizes must multiply to that",
            )
        return x.with_shape(self.shape)

    def view(self, x: Any) -> Any:
        strides = strides_in(self.shape, x.shape, x.strides)
        return None if strides is None else x._replace(shape=self.shape, strides=strides)

    def eager(self, xp: Any, x: Any) -> Any:
        return x.reshape(self.shape)

    def transpose(self, ct: Any, x: Any) -> Any:
        return reshape(ct, x.shape)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        x = move_axis(xs[0], dims[0], 0)
        return Reshape((x.shape[0], *self.shape))(x), 0

    def physical(self, x: Aval) -> Operation:
        return Reshape((*self.shape, dtypes.key_words(x.dtype)))

    def divide(self, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        (x,), (out,) = ins, outs
        before, after = f.through_reshape(x.aval.shape, out.shape, x.layout)
        keeps = division.is_unsummed(f, ins, 0) and x.layout == before
        value = x.value if keeps else f.to(x, before)
        partial = x.partial if keeps else ()
        return [f.placed(out, after, reshape(value, f.local(out.shape, after)), partial)]


def reshape(x: Any, shape: tuple[int, ...]) -> Any:
    return x if x.shape == shape else Reshape(shape)(x)


@dataclass(frozen=True)
class Transpose(Linear):
    """The operand with permuted axes: axis i of the result is axis perm[i] of the operand."""

    perm: tuple[int, ...]
    moves_elements = moves_axes = rearranges = is_always_view = True

    key_use, sparse = key_uses.moves, frame_rule("transpose")
    is_free = commutes_with_sums = True
    simplified, undoes = simplification.transposed_once, axis_rules.undoes_transpose
    domain_axes, moved_axis = axis_rules.transpose_domain, axis_rules.transpose_axis

    def infer(self, x: Aval) -> Aval:
        if sorted(self.perm) != list(range(x.ndim)):
            raise shape_error(
                self.name, f"an operand with {len(self.perm)} axes for the order {self.perm}", [x],
                "name each axis of the operand once",
                "transpose permutation isn't a permutation of operand dimensions, got permutation "
                f"{self.perm} for operand shape {x.shape}",
            )
        return x.with_shape(tuple(x.shape[p] for p in self.perm))

    def view(self, x: Any) -> Any:
        return x._replace(shape=tuple(x.shape[p] for p in self.perm),
                          strides=tuple(x.strides[p] for p in self.perm))

    def eager(self, xp: Any, x: Any) -> Any:
        return x.transpose(self.perm)

    def transpose(self, ct: Any, x: Any) -> Any:
        return Transpose(inverse(self.perm))(ct)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        d = dims[0]
        assert d is not None
        perm = tuple(p + (p >= d) for p in self.perm)
        return Transpose((d, *perm))(xs[0]), 0

    def physical(self, x: Aval) -> Operation:
        return Transpose((*self.perm, len(self.perm)))

    def divide(self, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        (x,) = ins
        keeps = division.is_unsummed(f, ins, 0)
        value = x.value if keeps else f.natural(x)
        layout = tuple(x.layout[p] for p in self.perm)
        return [f.placed(outs[0], layout, self(value), x.partial if keeps else ())]


def inverse(perm: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes `perm`."""
    out = [0] * len(perm)
    for i, p in enumerate(perm):
        out[p] = i
    return tuple(out)


def transpose(x: Any, perm: tuple[int, ...]) -> Any:
    return x if perm == tuple(range(len(perm))) else Transpose(perm)(x)


def move_axis(x: Any, source: int | None, to: int) -> Any:
    """Move one axis; `source` None means that the array does not have it (an internal error)."""
    assert source is not None
    if source == to:
        return x
    order = [i for i in range(x.ndim) if i != source]
    order.insert(to, source)
    return Transpose(tuple(order))(x)


class OverAxes(Operation):
    """Combines elements along `axes` (sorted, nonnegative), which the result does not have."""

    is_reduction = True
    axes: tuple[int, ...]
    combines, grown_axis = "axes", axis_rules.kept

    def nest_node(self, b: Any, member: Any) -> int:
        return b.reduced(member)

    def infer(self, x: Aval) -> Aval:
        axis_rules.check_axes(self, x, self.axes)
        return Aval(without(x.shape, self.axes), x.dtype, x.weak_type)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        (x,), (d,) = xs, dims
        assert d is not None
        axes = tuple(a + (a >= d) for a in self.axes)  # skip the mapped axis
        return type(self)(axes)(x), d - sum(a < d for a in axes)  # type: ignore[call-arg]

    def flops(self, *avals: Aval) -> int:
        return max(0, avals[0].size - math.prod(self.infer(*avals).shape))  # n numbers, n-1 steps


@dataclass(frozen=True)
class ReduceSum(OverAxes, Linear):
    """The sum over `axes`, which are sorted and nonnegative and are removed; the dtype is kept."""

    axes: tuple[int, ...]
    can_make_nan, sums_axes, of_two, sparse = True, True, Add(), frame_rule("reduce_sum")

    def eager(self, xp: Any, x: Any) -> Any:
        dtype = x.dtype
        if dtype.kind == "V" or dtype.char == "e":  # narrow floats accumulate in float32
            return xp.add.reduce(x.astype(np.float32), axis=self.axes).astype(dtype)
        if dtype.kind == "b":
            return xp.any(x, axis=self.axes)
        return xp.add.reduce(x, axis=self.axes, dtype=dtype)

    def transpose(self, ct: Any, x: Any) -> Any:
        kept = tuple(i for i in range(len(x.shape)) if i not in self.axes)
        return broadcast_in_dim(ct, x.shape, kept)

    def summed_over_steps(self) -> Operation:
        return ReduceSum((0, *(a + 1 for a in self.axes)))

    def divide(self, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        (x,), (out,) = ins, outs
        keeps = division.is_unsummed(f, ins, 0)
        value = self(x.value if keeps else f.natural(x))
        layout = division.without_axes(x.layout, self.axes)
        left = [n for i in self.axes for n in x.layout[i]] + list(x.partial if keeps else ())
        names = f.ordered(left)
        if out.dtype == np.bool_ and names:
            return [f.placed(out, layout, f.reduced("max", names, value))]
        return [f.placed(out, layout, value, names)]


def reduce_sum(x: Any, axes: tuple[int, ...]) -> Any:
    return ReduceSum(axes)(x) if axes else x


def zeros(aval: Aval) -> Any:
    """An array of zeros, staged as a broadcast scalar."""
    if aval.dtype == dtypes.float0:
        return np.zeros(aval.shape, dtypes.float0)
    return broadcast_in_dim(scalar(0, aval.dtype), aval.shape, ())


def scalar(value: Any, dtype: Any) -> Any:
    """A rank-0 constant."""
    return operation.DeviceArray(np.asarray(value, dtype))


def full_like(x: Any, value: Any) -> Any:
    """A rank-0 constant of the dtype of `x` (which elementwise operations accept)."""
    return scalar(value, x.dtype)


def bdim_at(x: Any, dim: Dim, size: int, to: int = 0) -> Any:
    """`x` with its mapped axis at `to`, made by broadcasting if it has none."""
    if dim is None:
        shape = list(x.shape)
        shape.insert(to, size)
        dims = tuple(i + (i >= to) for i in range(x.ndim))
        return broadcast_in_dim(x, tuple(shape), dims)
    return move_axis(x, dim, to)


def mapped_first(self: Any, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
    """A `vmap` rule: the only operand may have more leading axes, and so does the result."""
    return self(move_axis(xs[0], dims[0], 0)), 0


def instantiate(x: Any) -> Any:
    """An array of zeros for a symbolic zero; anything else unchanged."""
    return zeros(x.aval) if x.__class__ is Zero else x

