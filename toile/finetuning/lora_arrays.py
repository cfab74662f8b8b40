"""The class `LoRAArray`: a constant array, plus a product of two small arrays that are trained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from toile import lax, struct
from toile import numpy as jnp
from toile.core import parameter_classes
from toile.engine.annotations import Array, DTypeLike
from toile.engine.avals import Aval
from toile.engine.operation import Operation
from toile.primitives.contractions import LETTERS, DotGeneral
from toile.primitives.conv import ConvGeneralDilated
from toile.primitives.families import transpose
from toile.primitives.low_rank import LowRankSum
from toile.quantization.operators import give_operators
from toile.transforms.represented import RepresentedTrace, RepresentedTracer

__all__ = ["LoRAArray"]


@struct.dataclass
class LoRAArray:
    """An array of weights with a low-rank adapter: `base + scale * (a @ b)`.

    The array can be used instead of an ordinary array. Inside a module's `apply`, matrix products,
    convolutions and row lookups use `base`, `a` and `b` separately, so `a @ b` is never computed.
    Derivatives treat `base` as a constant: the gradient of `base` is zero, and the backward pass
    does not compute it.

    The array is a tree with the leaves `base`, `a` and `b`; `base` may be a `QuantizedArray`. In
    globs, a leaf has a path such as `"dense/kernel/a"`. Create these arrays with `lora`.

    Args:
        base: the constant array, whose axes are batch axes (if any), input axes and output axes, in
            this order.
        a: array with the batch axes and the input axes of `base`, and one axis for the rank.
        b: array with the batch axes of `base`, one axis for the rank, and the output axes.
        scale: factor by which the product `a @ b` is multiplied.
        inputs: number of input axes.
        outputs: number of output axes.

    >>> from toile.finetuning import LoRAArray
    >>> w = LoRAArray(jnp.eye(2), jnp.ones((2, 1)), jnp.array([[0.0, 1.0]]), scale=0.5)
    >>> w
    LoRAArray(float32[2,2], rank=1, scale=0.5)
    >>> jnp.ones((1, 2)) @ w
    Array([[1., 2.]], dtype=float32)
    """

    base: Any
    a: Array
    b: Array
    scale: float = struct.field(pytree_node=False, default=1.0)
    inputs: int = struct.field(pytree_node=False, default=1)
    outputs: int = struct.field(pytree_node=False, default=1)

    __array_priority__ = 200
    __array_ufunc__ = None  # operators of NumPy arrays call the methods of this class

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the represented array."""
        return tuple(self.base.shape)

    @property
    def dtype(self) -> Any:
        """The dtype of the represented numbers."""
        return self.base.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def rank(self) -> int:
        """The largest possible rank of the product `a @ b`."""
        return self.a.shape[-1]

    @property
    def nbytes(self) -> int:
        """The number of bytes of `base`, `a` and `b`."""
        return self.base.nbytes + sum(x.size * x.dtype.itemsize for x in (self.a, self.b))

    @property
    def T(self) -> Array:
        """The represented numbers with the axes in reverse order."""
        return self.merge().T

    def merge(self) -> Array:
        """Compute the numbers that the array represents.

        Returns:
            An array with the dtype of `base`.
        """
        base = jnp.asarray(self.base)
        op = LowRankSum(self.inputs, self.outputs)
        a, b = jnp.asarray(self.a), jnp.asarray(self.b) * self.scale
        return op(lax.stop_gradient(base), a.astype(base.dtype), b.astype(base.dtype))

    __jax_array__ = merge

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.merge(), dtype=dtype)

    def astype(self, dtype: DTypeLike) -> Array:
        """Compute the represented numbers, and convert them to a dtype.

        Args:
            dtype: dtype of the result.

        Returns:
            An array of that dtype.
        """
        return self.merge().astype(dtype)

    def reshape(self, *shape: Any) -> Array:
        """Compute the represented numbers, and change their shape.

        Args:
            *shape: the sizes of the axes, or one tuple of them.

        Returns:
            An array with that shape.
        """
        return self.merge().reshape(*shape)

    def __getitem__(self, index: Any) -> Array:
        return self.merge()[index]

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        if not all(hasattr(x, "shape") for x in (self.base, self.a, self.b)):
            return f"LoRAArray({self.base!r}, {self.a!r}, {self.b!r})"
        bits = getattr(self.base, "bits", None)
        more = "" if bits is None else f", bits={bits}"
        sizes = ",".join(map(str, self.shape))
        return (f"LoRAArray({np.dtype(self.dtype)}[{sizes}], rank={self.rank}, "
                f"scale={self.scale:g}{more})")


give_operators(LoRAArray)


class _Factors(NamedTuple):
    """The operands of a `LowRankSum`; axis i of the array is axis `perm[i]` of their sum."""

    op: LowRankSum
    operands: tuple[Any, Any, Any]
    perm: tuple[int, ...]
    dtype: Any

    def dense(self) -> Any:
        """The numbers."""
        return transpose(self.op.decoded(*self.operands).astype(self.dtype), self.perm)

    @property
    def aval(self) -> Aval:
        """The shape and dtype of the numbers."""
        shape = self.operands[0].shape
        return Aval(tuple(shape[i] for i in self.perm), np.dtype(self.dtype))

    def converted(self) -> list[Any]:
        """The operands, in the dtype of the numbers."""
        return [x.astype(self.dtype) for x in self.operands]

    @property
    def is_straight(self) -> bool:
        """Whether the axes are in their original order."""
        return self.perm == tuple(range(len(self.perm)))


class _AdapterTrace(RepresentedTrace):
    """Products with arrays that have adapters are products with their operands, one by one."""

    __slots__ = ()
    title = "low-rank sums"

    @classmethod
    def starts(cls, op: Operation) -> bool:
        return isinstance(op, LowRankSum)

    def parts_of(self, op: Any, args: Sequence[Any]) -> _Factors:
        w, a, b = args
        return _Factors(op, (w, a, b), tuple(range(w.ndim)), w.dtype)

    def replaced(self, op: Any, args: Sequence[Any], mine: Sequence[bool]) -> Any:
        if len(args) == 1:
            found = args[0].parts
            if op.moves_axes and op.is_always_view:
                perm = tuple(found.perm[i] for i in op.perm)
                return RepresentedTracer(self, found._replace(perm=perm))
            if op.only_rounds and jnp.issubdtype(getattr(op, "dtype", int), jnp.floating):
                return RepresentedTracer(self, found._replace(dtype=op.dtype))
        elif sum(mine) == 1 and len(args) == 2:
            side = mine.index(True)
            other, found = args[1 - side], args[side].parts
            if isinstance(op, DotGeneral):
                return _product(op, other, found, side)
            if isinstance(op, ConvGeneralDilated) and side == 1:
                return _convolution(op, other, found)
            if op.by_index and not op.updates and side == 0:
                return _lookup(op, found, other)
        return None


def _product(op: DotGeneral, x: Any, found: _Factors, side: int) -> Any:
    """x w + (x a) b, or (x b) a if the product sums over the output axes of w."""
    x_labels, w_labels = (op.rhs, op.lhs) if side == 0 else (op.lhs, op.rhs)
    back = dict(zip(found.perm, w_labels, strict=True))
    plain, of_a, of_b = found.op.labels(len(back))
    names = {c: back[i] for i, c in enumerate(plain)}
    names[next(c for c in of_a if c not in plain)] = next(
        c for c in LETTERS if c not in op.lhs + op.rhs)
    of_a, of_b = ("".join(names[c] for c in labels) for labels in (of_a, of_b))
    w, a, b = found.converted()
    factors = [(of_a, a), (of_b, b)]
    if _summed(op, x_labels, of_b, b.shape) > _summed(op, x_labels, of_a, a.shape):
        factors.reverse()
    (first, y), (second, z) = factors
    kept = "".join(c for c in dict.fromkeys(x_labels + first) if c in op.out + second)
    small = DotGeneral(x_labels, first, kept, op.dtype, op.precision)(x, y).astype(z.dtype)
    whole = op(*((transpose(w, found.perm), x) if side == 0 else (x, transpose(w, found.perm))))
    return whole + DotGeneral(kept, second, op.out, op.dtype, op.precision)(small, z)


def _summed(op: DotGeneral, x_labels: str, labels: str, shape: Sequence[int]) -> int:
    """The number of terms in the sums over axes that x shares with a factor."""
    sizes = zip(labels, shape, strict=True)
    return math.prod(n for c, n in sizes if c in x_labels and c not in op.out)


def _convolution(op: ConvGeneralDilated, x: Any, found: _Factors) -> Any:
    """The convolution with w, and one with a, whose results b combines; or None."""
    numbers, rank = op.dimension_numbers, len(found.perm)
    grouped = op.feature_group_count * op.batch_group_count != 1
    separate = (found.op.inputs, found.op.outputs) == (rank - 1, 1)
    if grouped or not (separate and found.is_straight and numbers.rhs_spec[0] == rank - 1):
        return None
    w, a, b = found.converted()
    before = LETTERS[:rank]
    feature = before[numbers.out_spec[1]]
    after = before.replace(feature, LETTERS[rank])
    product = DotGeneral(before, feature + LETTERS[rank], after, op.preferred_element_type)
    return op(x, w) + product(op(x, a).astype(b.dtype), b)


def _lookup(op: Any, found: _Factors, indices: Any) -> Any:
    """Rows of w, and rows of a that are multiplied by b; or None."""
    w, a, b = found.converted()
    plain = found.is_straight and (found.op.inputs, found.op.outputs) == (1, 1) and w.ndim == 2
    rows = jnp.ndim(indices) - 1
    if not plain or not op.by_rows(w.aval, indices.aval) or (
            op.fills and op.fill_value is not None):
        return None
    if op.dimension_numbers.offset_dims != (rows,):
        return None
    small = op.__class__(**{**op.fields(), "slice_sizes": (1, a.shape[1])})(a, indices)
    labels, r, d = LETTERS[:rows], LETTERS[rows], LETTERS[rows + 1]
    return op(w, indices) + DotGeneral(labels + r, r + d, labels + d)(small, b)


parameter_classes.register(LoRAArray, _AdapterTrace.run)
