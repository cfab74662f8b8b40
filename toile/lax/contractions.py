"""Contractions: dot, dot_general, batched and ragged products, and their precision.

`dot_general` labels the axes with letters: first the batch axes, then the free axes of both
operands. On the CPU, every precision means full float32; the operation stores the requested
precision for other backends. This module may import the engine, primitives and other modules of
`lax`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from toile.engine import dtypes
from toile.engine.annotations import Array, ArrayLike, DTypeLike
from toile.engine.avals import Aval
from toile.engine.config import flags
from toile.engine.errors import shape_error
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.lax import comparisons, elementwise, shapes
from toile.lax._operands import ints, one_or_more, operand, user_dtype
from toile.primitives.contractions import LETTERS, dot_operation
from toile.primitives.cumulative import Cumsum
from toile.primitives.elementwise import convert

if TYPE_CHECKING:
    from toile.lax._operands import ShardingLike

__all__ = [
    "DotAlgorithm", "DotAlgorithmPreset", "DotDimensionNumbers", "Precision", "PrecisionLike",
    "RaggedDotDimensionNumbers", "batch_matmul", "dot", "dot_general", "ragged_dot",
    "ragged_dot_general", "scaled_dot",
]  # fmt: skip


class Precision(enum.Enum):
    """The precision of multiplication on hardware that can trade precision for speed.

    On the CPU, float32 arrays are always multiplied in full precision. The argument `precision` of
    functions such as `dot_general` is a `Precision`, its name as a string, or a pair with one of
    these for each operand.

    - `DEFAULT` ("default", "fastest"): the lowest precision and the highest speed.
    - `HIGH` ("high"): more precise than `DEFAULT`, and slower.
    - `HIGHEST` ("highest", "float32"): full precision.
    """

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    @classmethod
    def _missing_(cls, value: object) -> Precision | None:
        return _NAMES.get(value)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}.{self.name}"

    def __str__(self) -> str:
        return self.name


_NAMES: dict[Any, Precision] = {
    **dict.fromkeys(("highest", "float32"), Precision.HIGHEST),
    **dict.fromkeys(("high", "bfloat16_3x", "tensorfloat32"), Precision.HIGH),
    **dict.fromkeys(("default", "bfloat16", "fastest", None), Precision.DEFAULT),
}


class DotAlgorithm(NamedTuple):
    """An algorithm for contracting arrays, described by the dtypes in which it multiplies and adds.

    It can be passed as `precision` to `dot_general` and similar functions. The common algorithms
    have names in `DotAlgorithmPreset`.

    Args:
        lhs_precision_type, rhs_precision_type: dtypes to which the operands are rounded.
        accumulation_type: dtype in which products are summed.
        lhs_component_count, rhs_component_count: number of parts into which each element is split;
            each part has the dtype to which the operand is rounded.
        num_primitive_operations: number of products of parts that are computed and added.
        allow_imprecise_accumulation: whether the hardware may add with less precision than
            `accumulation_type` provides.

    >>> algorithm = lax.DotAlgorithm(jnp.bfloat16, jnp.bfloat16, jnp.float32)
    >>> lax.dot(jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0]), precision=algorithm)
    Array(11., dtype=float32)
    """

    lhs_precision_type: Any
    rhs_precision_type: Any
    accumulation_type: Any
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


_BF16, _F16, _F32, _F64 = dtypes.bfloat16, np.float16, np.float32, np.float64
_F8_OUTPUTS = (
    *(_F32, _F16, _BF16, dtypes.float8_e4m3fn, dtypes.float8_e5m2, dtypes.float8_e5m2fnuz),
    *(dtypes.float8_e4m3fnuz, dtypes.float8_e4m3b11fnuz),
)


class DotAlgorithmPreset(enum.Enum):
    """Names of common contraction algorithms, which can be passed as `precision`.

    Each name except `DEFAULT` begins with the types of the two operands and the type in which
    products are summed.
    """

    DEFAULT = 1
    ANY_F8_ANY_F8_F32 = 2
    ANY_F8_ANY_F8_F32_FAST_ACCUM = 3
    ANY_F8_ANY_F8_ANY = 4
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = 5
    F16_F16_F16 = 6
    F16_F16_F32 = 7
    BF16_BF16_BF16 = 8
    BF16_BF16_F32 = 9
    BF16_BF16_F32_X3 = 10
    BF16_BF16_F32_X6 = 11
    BF16_BF16_F32_X9 = 12
    TF32_TF32_F32 = 13
    TF32_TF32_F32_X3 = 14
    F32_F32_F32 = 15
    F64_F64_F64 = 16

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}.{self.name}"

    def __str__(self) -> str:
        return self.name

    @property
    def supported_lhs_types(self) -> tuple[Any, ...] | None:
        """The types that the operands may have; None if any type is accepted."""
        if self.value <= 5:
            return None
        if self.value in (6, 7):
            return (_F16,)
        if self.value in (8, 9):
            return (_BF16, _F32)
        return (_F64,) if self.value == 16 else (_F32,)

    supported_rhs_types = supported_lhs_types

    @property
    def accumulation_type(self) -> Any:
        """The type in which products are summed; None if it is the type of the result."""
        special = {1: None, 4: None, 5: None, 6: _F16, 8: _BF16, 16: _F64}
        return special.get(self.value, _F32)

    def supported_output_types(self, lhs_dtype: Any, rhs_dtype: Any) -> tuple[Any, ...] | None:
        """The types that the result may have for given operands; None if any type is possible."""
        if self.value in (2, 3):
            return _F8_OUTPUTS
        narrow = {7: _F16, 9: _BF16}.get(self.value)
        if narrow is not None:
            same = dtypes.promote_types(lhs_dtype, rhs_dtype) == narrow
            return (_F32, narrow) if same else (_F32,)
        kind = self.accumulation_type
        return None if kind is None else (kind,)


PrecisionLike = (
    None | str | Precision | tuple[str, str] | tuple[Precision, Precision] | DotAlgorithm
    | DotAlgorithmPreset
)
DotDimensionNumbers = tuple[
    tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]
]


def canonicalize_precision(precision: Any) -> Any:
    """A pair of `Precision` values, an algorithm, or None; None becomes the configured default."""
    if precision is None:
        precision = flags.default_matmul_precision
        if precision is None:
            return None
    return _canonical_precision(precision)


@lru_cache(maxsize=256)
def _canonical_precision(precision: Any) -> Any:
    if isinstance(precision, str):
        if precision in DotAlgorithmPreset.__members__:
            return DotAlgorithmPreset[precision]
        if precision in _NAMES:
            return (_NAMES[precision],) * 2
    elif isinstance(precision, Precision):
        return precision, precision
    elif isinstance(precision, (DotAlgorithm, DotAlgorithmPreset)):
        return precision
    elif isinstance(precision, tuple) and len(precision) == 2:
        if all(isinstance(p, Precision) or (isinstance(p, str) and p in _NAMES) for p in precision):
            return tuple(_NAMES[p] if isinstance(p, str) else p for p in precision)
    raise ValueError(f"precision: needed None, a Precision, one of {[n for n in _NAMES if n]}, a "
                     "pair of these, a DotAlgorithm or a DotAlgorithmPreset, got "
                     f"{precision!r}{here()}")


# ------------------------------------------------------------------------------------ dot_general


@lru_cache(maxsize=8192)
def _dot_plan(name: str, types: tuple[Any, ...], dims: tuple[tuple[int, ...], ...], preferred: Any,
              precision: Any) -> tuple[Any, Any]:
    """The operation, and the dtype to convert operands of unequal dtypes to."""
    x, y = Aval(*types[:3]), Aval(*types[3:])
    _check_axes(name, x, y, dims)
    common = max((x.dtype, y.dtype), key=_fineness)
    if x.dtype != y.dtype and _fineness(x.dtype) == _fineness(y.dtype):
        raise shape_error(name, "operands of equal dtypes", [x, y])
    wanted = _result_dtype(name, x, y, common, preferred)
    exact = "iufc" if dtypes.kind(common) in "biu" else "fc"
    if x.dtype != y.dtype and wanted is not None and dtypes.kind(wanted) in exact:
        # float8_e5m2 does not have the digits of float8_e4m3fn, nor int8 the range of uint8
        common = wanted
    op = dot_operation(*_labels(x.ndim, y.ndim, dims), wanted, precision)
    op.infer(Aval(x.shape, common), Aval(y.shape, common))
    return op, common


def _check_axes(name: str, x: Aval, y: Aval, dims: tuple[tuple[int, ...], ...]) -> None:
    """Raise unless the contracting and batch axes exist, are distinct, and come in pairs."""
    lc, rc, lb, rb = dims
    problem = ""
    for (a, b), rank, side in (((lc, lb), x.ndim, "first"), ((rc, rb), y.ndim, "second")):
        if any(not 0 <= d < rank for d in (*a, *b)) or len({*a, *b}) != len(a) + len(b):
            problem = (
                f"distinct contracting and batch axes of the {side} operand in [0, {rank}), here "
                f"{a} and {b}"
            )
    if len(lc) != len(rc) or len(lb) != len(rb):
        problem = f"as many axes of one operand as of the other, here {dims}"
    if problem:
        raise shape_error(name, problem, [x, y])


def _labels(x_rank: int, y_rank: int, dims: tuple[tuple[int, ...], ...]) -> tuple[str, str, str]:
    """Labels of the axes of both operands and of the result."""
    lc, rc, lb, rb = dims
    free = iter(LETTERS)
    lhs, rhs = [""] * x_rank, [""] * y_rank
    batch = [next(free) for _ in lb]
    for i, j, c in zip((*lb, *lc), (*rb, *rc), (*batch, *(next(free) for _ in lc)), strict=True):
        lhs[i] = rhs[j] = c
    kept = [next(free) for c in lhs if not c], [next(free) for c in rhs if not c]
    for labels, new in zip((lhs, rhs), map(iter, kept), strict=True):
        labels[:] = [c or next(new) for c in labels]
    return "".join(lhs), "".join(rhs), "".join((*batch, *kept[0], *kept[1]))


def _fineness(dtype: Any) -> tuple[Any, ...]:
    """Sort key for the dtype of a mixed product: complex, then range, digits, width, sign."""
    part = dtypes.dtype_to_real(dtype)
    info = dtypes.finfo(part) if dtypes.kind(part) == "f" else None
    bits = 1 if part == np.bool_ else dtypes.itemsize_bits(part)
    digits = (info.maxexp, info.nmant) if info else (-1, -1)
    return dtypes.kind(dtype) == "c", *digits, bits, dtypes.kind(part) != "u"


def _result_dtype(name: str, x: Aval, y: Aval, common: Any, preferred: Any) -> Any:
    """None if the result has the operands' dtype, else the requested dtype."""
    if preferred is None or preferred == common:
        weak = preferred is not None and x.weak_type and y.weak_type
        return preferred if weak else None
    old, new = dtypes.kind(common), dtypes.kind(preferred)
    narrower = old == new and new in "iu" and preferred.itemsize < common.itemsize
    if (old == "c") != (new == "c") and old == "c" or narrower:
        raise shape_error(
            name, "a preferred_element_type that holds the products, here "
            f"{dtypes.name_of(preferred)}", [x, y],
        )  # fmt: skip
    return preferred


def dot_general(lhs: ArrayLike, rhs: ArrayLike, dimension_numbers: DotDimensionNumbers,
                precision: PrecisionLike = None,
                preferred_element_type: DTypeLike | None = None, *,
                out_sharding: ShardingLike | None = None) -> Array:
    """Multiply two arrays and sum over pairs of their axes.

    There are three kinds of axes. Contracting axes come in pairs, one from each operand, and the
    products are summed over them. Batch axes also come in pairs, and a separate contraction is
    computed for each position along them. All other axes are kept. Matrix products and batches of
    matrix products are special cases. `jnp.einsum` describes the same contractions with letters.

    Args:
        lhs: the first array.
        rhs: the second array. If the dtypes differ, the operand with the narrower dtype is
            converted to the wider dtype.
        dimension_numbers: `((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))`, four
            sequences of nonnegative axes. Paired axes must have equal sizes.
        precision: precision of the multiplication on hardware that can trade precision for speed: a
            `Precision` or its name, a pair with one of these for each operand, a `DotAlgorithm`, or
            a `DotAlgorithmPreset`. If `precision` is None, the configured default is used.
        preferred_element_type: dtype of the result; None for the dtype of the operands.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        An array whose axes are the batch axes, then the remaining axes of `lhs`, then the remaining
        axes of `rhs`.

    A matrix product contracts axis 1 of the first operand with axis 0 of the second:

    >>> x, y = jnp.array([[1, 2], [3, 4]]), jnp.array([[1, 0], [1, 1]])
    >>> lax.dot_general(x, y, (((1,), (0,)), ((), ())))
    Array([[3, 2],
           [7, 4]], dtype=int32)

    If axis 0 of both operands is a batch axis, each pair of rows has its own inner product:

    >>> lax.dot_general(x, y, (((1,), (1,)), ((0,), (0,))))
    Array([1, 7], dtype=int32)
    """
    return _dot_general("dot_general", lhs, rhs, dimension_numbers, precision,
                        preferred_element_type)


def _dot_general(name: str, lhs: Any, rhs: Any, numbers: Any, precision: Any,
                 preferred: Any) -> Any:
    x, y = operand(name, lhs), operand(name, rhs, 1)
    if preferred is not None:
        preferred = user_dtype(preferred, name)
    types = (x.shape, x.dtype, x.weak_type, y.shape, y.dtype, y.weak_type)
    (lc, rc), (lb, rb) = numbers
    dims = tuple([ints(one_or_more(axes)) for axes in (lc, rc, lb, rb)])
    op, common = _dot_plan(name, types, dims, preferred, canonicalize_precision(precision))
    if x.dtype != y.dtype:
        x, y = convert(x, common), convert(y, common)
    if op.dtype is not None and dtypes.kind(op.dtype) in "iu" and dtypes.kind(x.dtype) == "f":
        return convert(_dot_general(name, x, y, numbers, precision, None), op.dtype)
    return op(x, y)


def dot(lhs: ArrayLike, rhs: ArrayLike, *, dimension_numbers: DotDimensionNumbers | None = None,
        precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None,
        out_sharding: ShardingLike | None = None) -> Array:
    """Multiply vectors and matrices.

    The last axis of `lhs` is contracted with the first axis of `rhs`.

    Args:
        lhs: vector or matrix; if `dimension_numbers` is given, an array of any rank.
        rhs: vector or matrix; its first axis must have the size of the last axis of `lhs`.
        dimension_numbers: the axes to contract, as in `dot_general`; None for the axes described
            above.
        precision: precision of the multiplication, as in `dot_general`.
        preferred_element_type: dtype of the result; None for the dtype of the operands.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        A scalar, vector or matrix, depending on the ranks of the operands.

    >>> lax.dot(jnp.array([[1, 2], [3, 4]]), jnp.array([10, 1]))
    Array([12, 34], dtype=int32)
    """
    x, y = operand("dot", lhs), operand("dot", rhs, 1)
    if dimension_numbers is None:
        simple = 1 <= x.ndim <= 2 and 1 <= y.ndim <= 2 and x.shape[-1] == y.shape[0]
        if not simple:
            raise ValueError("dot: needed vectors or matrices whose inner sizes agree (or "
                             f"dimension_numbers), got {x.aval.str_short()} and "
                             f"{y.aval.str_short()}{here()}")
        dimension_numbers = (((x.ndim - 1,), (0,)), ((), ()))
    return _dot_general("dot", x, y, dimension_numbers, precision, preferred_element_type)


def batch_matmul(lhs: ArrayLike, rhs: ArrayLike, precision: PrecisionLike = None) -> Array:
    """Multiply matrices that are stacked along leading axes.

    Args:
        lhs: array with matrices in its last two axes.
        rhs: array with matrices in its last two axes and the same leading axes as `lhs`.
        precision: precision of the multiplication, as in `dot_general`.

    Returns:
        An array with the matrix products in its last two axes.

    >>> x, y = jnp.array([[[1, 2]], [[3, 4]]]), jnp.array([[[1], [1]], [[10], [1]]])
    >>> lax.batch_matmul(x, y)[:, 0, 0]
    Array([ 3, 34], dtype=int32)
    """
    x, y = operand("batch_matmul", lhs), operand("batch_matmul", rhs, 1)
    if min(x.ndim, y.ndim) < 2:
        raise ValueError(f"Arguments to batch_matmul must be at least 2D, got {x.ndim}, "
                         f"{y.ndim}{here()}")
    if x.ndim != y.ndim:
        raise ValueError(f"Arguments to batch_matmul must have same ndim, got {x.ndim}, "
                         f"{y.ndim}{here()}")
    batch = tuple(range(x.ndim - 2))
    numbers = (((x.ndim - 1,), (x.ndim - 2,)), (batch, batch))
    return _dot_general("batch_matmul", x, y, numbers, precision, None)


# --------------------------------------------------------------------------------- ragged products


@dataclass(frozen=True, init=False)
class RaggedDotDimensionNumbers:
    """The axes that `ragged_dot_general` contracts, and the axis that it divides into groups.

    Args:
        dot_dimension_numbers: contracting and batch axes, in the format that `dot_general` uses.
            The group axis of the second operand is not one of these axes, but it is counted when
            the axes are numbered.
        lhs_ragged_dimensions: the axis of the first operand that is divided into groups (the ragged
            axis), as a sequence of length 1.
        rhs_group_dimensions: a sequence of length 1 with the axis of the second operand that has
            one slice for each group, or an empty sequence if the ragged axis is a contracting or
            batch axis.

    These are the dimension numbers of `ragged_dot`:

    >>> numbers = lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))
    >>> numbers.rhs_group_dimensions
    (0,)
    """

    dot_dimension_numbers: Any
    lhs_ragged_dimensions: tuple[int, ...]
    rhs_group_dimensions: tuple[int, ...]

    def __init__(self, dot_dimension_numbers: Any, lhs_ragged_dimensions: Sequence[int],
                 rhs_group_dimensions: Sequence[int]):
        numbers = tuple(tuple(map(ints, pair)) for pair in dot_dimension_numbers)
        object.__setattr__(self, "dot_dimension_numbers", numbers)
        object.__setattr__(self, "lhs_ragged_dimensions", ints(lhs_ragged_dimensions))
        object.__setattr__(self, "rhs_group_dimensions", ints(rhs_group_dimensions))


_BASIC_RAGGED = RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))


def ragged_dot(lhs: ArrayLike, rhs: ArrayLike, group_sizes: ArrayLike,
               precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None,
               group_offset: ArrayLike | None = None,
               out_sharding: ShardingLike | None = None) -> Array:
    """Multiply each group of rows by its own matrix, as in a mixture of experts.

    The rows of `lhs` are divided into consecutive groups, and group `i` is multiplied by `rhs[i]`.

    Args:
        lhs: matrix of shape (m, k).
        rhs: array of `g` matrices, of shape (g, k, n).
        group_sizes: vector of `g` integers: the number of rows in each group. Rows after the last
            group are 0 in the result.
        precision: precision of the multiplication, as in `dot_general`.
        preferred_element_type: dtype of the result; None for the dtype of the operands.
        group_offset: not supported; must be None.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        A matrix of shape (m, n).

    Raises:
        NotImplementedError: `group_offset` is given.

    >>> rows = jnp.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    >>> experts = jnp.array([[[1.0], [0.0]], [[10.0], [10.0]]])
    >>> lax.ragged_dot(rows, experts, jnp.array([1, 2]))
    Array([[ 1.],
           [40.],
           [60.]], dtype=float32)
    """
    return ragged_dot_general(lhs, rhs, group_sizes, _BASIC_RAGGED, precision,
                              preferred_element_type, group_offset)


def ragged_dot_general(lhs: ArrayLike, rhs: ArrayLike, group_sizes: ArrayLike,
                       ragged_dot_dimension_numbers: RaggedDotDimensionNumbers,
                       precision: PrecisionLike = None,
                       preferred_element_type: DTypeLike | None = None,
                       group_offset: ArrayLike | None = None,
                       out_sharding: ShardingLike | None = None) -> Array:
    """Multiply two arrays and sum over pairs of axes, with one axis divided into groups.

    The divided axis, an axis of `lhs`, is called the ragged axis. If it is kept in the result, each
    group is multiplied by its own slice of `rhs`, as in `ragged_dot`. If it is contracted, each
    group is summed separately, and the sums are stacked along a new leading axis. If it is a batch
    axis, the groups have no effect.

    Args:
        lhs: the first array, which contains the ragged axis.
        rhs: the second array.
        group_sizes: integer array of shape (g,) with the sizes of the consecutive groups. The sizes
            can also vary along other axes of `lhs`: the shape is then (..., g). The leading axes of
            this shape are the batch axes of `lhs`, followed by the axes that come before the ragged
            axis and are of the same kind (contracting or kept).
        ragged_dot_dimension_numbers: the contracting, batch, ragged and group axes.
        precision: precision of the multiplication, as in `dot_general`.
        preferred_element_type: dtype of the result; None for the dtype of the operands.
        group_offset: not supported; must be None.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        An array with the same axes as the result of `dot_general`. If the ragged axis is
        contracted, a new axis for the groups comes first.

    Raises:
        NotImplementedError: `group_offset` is given.

    Compute two inner products, one over the first position and one over the other two positions:

    >>> numbers = lax.RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), (0,), ())
    >>> x, y = jnp.array([1.0, 2.0, 3.0]), jnp.array([10.0, 1.0, 1.0])
    >>> lax.ragged_dot_general(x, y, jnp.array([1, 2]), numbers)
    Array([10.,  5.], dtype=float32)
    """
    name, numbers = "ragged_dot_general", ragged_dot_dimension_numbers
    x, y = operand(name, lhs), operand(name, rhs, 1)
    groups = operand(name, group_sizes, 2)
    if group_offset is not None:
        raise NotImplementedError(f"{name}: needed group_offset=None, got an offset{here()}")
    problem = next(_ragged_problems(numbers, x, y, groups), "")
    if problem:
        raise shape_error(name, f"axes and group sizes that fit, here {numbers}",
                          [x.aval, y.aval, groups.aval], said=problem)
    ragged = numbers.lhs_ragged_dimensions[0]
    (lc, rc), (lb, rb) = numbers.dot_dimension_numbers
    up = lambda dims: tuple(d + 1 for d in dims)
    if ragged in lb:
        dims: Any = numbers.dot_dimension_numbers
    elif ragged in lc:
        at = lc.index(ragged)
        y = _by_group(y, rc[at], groups, (*rb, *rc[:at]))
        x = _by_group(x, ragged, groups, _before_ragged(numbers, x.ndim))
        dims = ((up(lc), up(rc)), ((0, *up(lb)), (0, *up(rb))))
    else:
        x = _by_group(x, ragged, groups, _before_ragged(numbers, x.ndim))
        dims = (((*up(lc), 0), (*rc, numbers.rhs_group_dimensions[0])), (up(lb), rb))
    return _dot_general(name, x, y, dims, precision, preferred_element_type)


def _before_ragged(numbers: Any, rank: int) -> tuple[int, ...]:
    """The axes of lhs whose positions may each have their own group sizes."""
    ragged, ((lc, _), (lb, _)) = numbers.lhs_ragged_dimensions[0], numbers.dot_dimension_numbers
    if ragged in lb:
        return lb[: lb.index(ragged)]
    among = lc if ragged in lc else [d for d in range(rank) if d not in (*lb, *lc)]
    return *lb, *among[: among.index(ragged)]


def _ragged_problems(numbers: Any, x: Any, y: Any, groups: Any) -> Iterator[str]:
    """Yield the problems of a ragged product, with the messages of JAX."""
    name = "ragged_dot_general"
    if len(numbers.lhs_ragged_dimensions) != 1:
        yield f"{name} expects exactly one lhs ragged dimension"
    ragged, axes = numbers.lhs_ragged_dimensions[0], numbers.rhs_group_dimensions
    (lc, rc), (lb, rb) = numbers.dot_dimension_numbers
    if not 0 <= ragged < x.ndim:
        yield (f"{name} requires lhs ragged dimension numbers to be nonnegative and less than the "
               f"number of axes of the lhs, got {ragged} for {x.ndim}")
    if not 0 < groups.ndim:
        yield f"{name} expected group_sizes to have a rank of at least 1, got 0"
    count = groups.shape[-1]
    whole = (*(x.shape[d] for d in _before_ragged(numbers, x.ndim)), count)
    if groups.shape not in ((count,), whole):
        yield f"{name} expected group_sizes to have shape {whole}, got {groups.shape}"
    if any(d in rc or d in rb for d in axes):
        yield (f"{name} requires rhs group dimension numbers to be distinct from contracting and "
               f"batch dimensions, got {axes}")
    if ragged in lc or ragged in lb:
        if axes:
            yield (f"{name} requires zero group dimensions in the rhs when lhs ragged dimension "
                   f"is contracting or batch, got {axes}")
    elif len(axes) != 1 or not 0 <= axes[0] < y.ndim:
        yield (f"{name} requires exactly one rhs group dimension when lhs ragged dimension is "
               f"noncontracting, got {axes}")
    elif y.shape[axes[0]] != count:
        yield f"{name} expected rhs group dimension size to be {count}, got {y.shape[axes[0]]}"


def _by_group(x: Any, ragged: int, groups: Any, prefix: Sequence[int]) -> Any:
    """Copies of x on a new leading axis, each zero outside one group of the ragged axis.

    `groups` has the shape (g,), or (..., g) where the leading axes are the axes `prefix` of x."""
    count = groups.shape[-1]
    shape = (count, *x.shape)
    ends = Cumsum(groups.ndim - 1)(groups)
    starts = elementwise.sub(ends, groups)
    axes = (0,) if groups.ndim == 1 else (*(p + 1 for p in prefix), 0)
    ends = shapes.broadcast_in_dim(ends, shape, axes)
    starts = shapes.broadcast_in_dim(starts, shape, axes)
    place = shapes.broadcasted_iota(groups.dtype, shape, ragged + 1)
    inside = comparisons.bitwise_and(comparisons.le(starts, place), comparisons.lt(place, ends))
    spread = shapes.broadcast(x, (count,))
    return elementwise.select(inside, spread, shapes.full_like(spread, 0))


# --------------------------------------------------------------------------------- scaled products


def scaled_dot(lhs: ArrayLike, rhs: ArrayLike, *, lhs_scale: ArrayLike | None = None,
               rhs_scale: ArrayLike | None = None,
               dimension_numbers: DotDimensionNumbers | None = None,
               preferred_element_type: DTypeLike | None = None) -> Array:
    """Multiply low-precision arrays in which blocks of elements share a scale.

    Each operand is converted to bfloat16 and multiplied by its scales before the contraction.

    Args:
        lhs: the first array.
        rhs: the second array.
        lhs_scale, rhs_scale: scales of the operands; None for no scales. Scales have the shape of
            the operand, except that a contracted axis may be shorter by an integer factor `n`. Each
            scale then applies to `n` consecutive elements.
        dimension_numbers: the axes to contract, as in `dot_general`; if None, the last two axes of
            each operand contain matrices, and the leading axes are batch axes.
        preferred_element_type: dtype of the result; None for bfloat16.

    Returns:
        An array with the same axes as the result of `dot_general`.

    >>> x, scale = jnp.array([[1.0, 2.0, 3.0, 4.0]]), jnp.array([[10.0, 1.0]])
    >>> lax.scaled_dot(x, jnp.ones((4, 1)), lhs_scale=scale)
    Array([[37]], dtype=bfloat16)
    """
    x, y = operand("scaled_dot", lhs), operand("scaled_dot", rhs, 1)
    if dimension_numbers is None:
        if x.ndim < 2:
            raise TypeError("scaled_dot: needed operands of rank >= 2, got "
                            f"{x.aval.str_short()} and {y.aval.str_short()}{here()}")
        batch = tuple(range(x.ndim - 2))
        dimension_numbers = (((x.ndim - 1,), (x.ndim - 2,)), (batch, batch))
    (lc, rc), _ = dimension_numbers
    bf16 = np.dtype(dtypes.bfloat16)
    x = _scaled("lhs_scale", convert(x, bf16), lhs_scale, lc)
    y = _scaled("rhs_scale", convert(y, bf16), rhs_scale, rc)
    return _dot_general("scaled_dot", x, y, dimension_numbers, None, preferred_element_type or bf16)


def _scaled(name: str, x: Any, scale: Any, contracted: Sequence[int]) -> Any:
    if scale is None:
        return x
    s = convert(operand(name, scale), x.dtype)
    for d in contracted:
        times, left = divmod(x.shape[d], s.shape[d])
        if left:
            raise shape_error(name,
                              f"sizes that divide those of the operand at axes {tuple(contracted)}",
                              [x.aval, s.aval])
        if times > 1:
            s = shapes.expand_dims(s, (d + 1,))
            s = shapes.tile(s, tuple(times if i == d + 1 else 1 for i in range(s.ndim)))
            s = shapes.collapse(s, d, d + 2)
    return elementwise.mul(x, s)
