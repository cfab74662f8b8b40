"""The transformation `quantize_inputs`: products of quantized arrays with quantized inputs.

While the function runs, quantized arrays are represented by tracers that contain the stored
numbers. A product of an array and such a tracer becomes a product of stored numbers. All other
operations use the numbers that the quantized arrays represent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from toile import numpy as jnp
from toile.api import custom_jvp
from toile.engine.avals import Aval
from toile.engine.operation import Operation
from toile.primitives.contractions import LETTERS, DotGeneral
from toile.primitives.families import transpose
from toile.quantization.rounding import most_stored
from toile.transforms.represented import RepresentedTrace, RepresentedTracer

__all__ = ["quantize_inputs"]

F = TypeVar("F", bound=Callable[..., Any])


class _Stored(NamedTuple):
    """A quantized array: the operation that computes its numbers, its operands, and its axes.

    Axis i of the array is axis `perm[i]` of the stored numbers."""

    op: Any
    parts: tuple[Any, ...]
    perm: tuple[int, ...]
    dtype: Any

    def dense(self) -> Any:
        """The numbers."""
        return transpose(self.op(*self.parts).astype(self.dtype), self.perm)

    @property
    def aval(self) -> Aval:
        """The shape and dtype of the numbers."""
        shape = list(self.parts[0].shape)
        shape[self.op.axis] = self.op.length
        return Aval(tuple(shape[i] for i in self.perm), np.dtype(self.dtype))

    @property
    def has_stored_products(self) -> bool:
        """Whether products with this array have 8-bit inputs."""
        return self.op.bits == 8 and not self.op.weighted and (
            len(self.parts) == 2 + self.op.calibrated)


class _InputTrace(RepresentedTrace):
    """Runs operations in the parent trace; products with quantized arrays are replaced."""

    __slots__ = ()
    title = "quantized inputs"

    @classmethod
    def starts(cls, op: Operation) -> bool:
        return op.dequantizes

    def parts_of(self, op: Any, args: Sequence[Any]) -> _Stored:
        return _Stored(op, tuple(args), tuple(range(args[0].ndim)), op.dtype)

    def replaced(self, op: Any, args: Sequence[Any], mine: Sequence[bool]) -> Any:
        if len(args) == 1:
            stored = args[0].parts
            if op.moves_axes and op.is_always_view:
                perm = tuple(stored.perm[i] for i in op.perm)
                return RepresentedTracer(self, stored._replace(perm=perm))
            if op.only_rounds and jnp.issubdtype(getattr(op, "dtype", int), jnp.floating):
                return RepresentedTracer(self, stored._replace(dtype=op.dtype))
        elif op.kernel_family == "contraction" and sum(mine) == 1:
            side = mine.index(True)
            stored = args[side].parts
            if stored.has_stored_products and args[1 - side].dtype != np.float64:
                return _product(op, args[1 - side], stored, side)
        return None


# ---- products


class _Labels(NamedTuple):
    """The labels of a product as it is computed; groups have a separate axis."""

    x: str
    w: str
    out: str  # labels of the product of stored numbers; first those along which scales differ
    kept: str  # labels that are summed over at the end


def _product(op: DotGeneral, x: Any, stored: _Stored, side: int) -> Any:
    """Compute the product of an array and a quantized array from stored numbers.

    Its derivative is that of the product with the represented numbers."""
    x_labels, w_labels = (op.rhs, op.lhs) if side == 0 else (op.lhs, op.rhs)
    back = dict(zip(stored.perm, w_labels, strict=True))
    w_labels = "".join(back[i] for i in range(len(w_labels)))
    out_dtype = np.dtype(op.dtype or x.dtype)

    @custom_jvp
    def product(x: Any, *parts: Any) -> Any:
        return _stored_product(x, x_labels, w_labels, op.out, stored.op, parts).astype(out_dtype)

    @product.defjvp
    def derivative(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        x, *parts = primals
        numbers = transpose(stored.op(*parts).astype(x.dtype), stored.perm)
        pair = (numbers, tangents[0]) if side == 0 else (tangents[0], numbers)
        return product(*primals), op(*pair).astype(out_dtype)

    return product(x, *stored.parts)


def _stored_product(
    x: Any, x_labels: str, w_labels: str, out: str, op: Any, parts: Sequence[Any]
) -> Any:
    values, scales, *rest = parts
    x = x.astype(jnp.float32)
    summed = [c for c in w_labels if c in x_labels and c not in out]
    if op.groups > 1 and w_labels[len(w_labels) + op.axis] in summed:
        x, values, scales, x_labels, w_labels = _split(x, values, scales, x_labels, w_labels, op)
    axes = tuple(i for i, c in enumerate(x_labels) if c in w_labels and c not in out)
    dtype = values.dtype
    most = most_stored(dtype)
    if rest:  # a static scale, found by calibration
        steps = rest[0].reshape((1,) * x.ndim).astype(jnp.float32)
    else:
        steps = jnp.maximum(jnp.abs(x).max(axes, keepdims=True) / most, 1e-30)
    rounded = jnp.clip(x / steps, -most, most)
    rounded = (jnp.round(rounded) if dtype == jnp.int8 else rounded).astype(dtype)
    kept = "".join(c for c, n in zip(w_labels, scales.shape, strict=True)
                   if c in x_labels and c not in out and n > 1)
    integral = dtype == jnp.int8
    work = np.dtype(np.int32 if integral else np.float32)
    total = DotGeneral(x_labels, w_labels, kept + out, work)(rounded, values)
    total = total.astype(jnp.float32)
    total = total * _along(scales, w_labels, kept + out)
    total = total.sum(tuple(range(len(kept))))
    return total * _along(steps, x_labels, out)


def _split(x: Any, values: Any, scales: Any, x_labels: str, w_labels: str, op: Any) -> Any:
    """Split the axis of the groups of both operands into groups and elements of groups."""
    axis = values.ndim + op.axis
    label = w_labels[axis]
    new = next(c for c in LETTERS if c not in x_labels + w_labels)
    extra = op.groups * op.group - op.length

    def split(a: Any, at: int) -> Any:
        if extra:
            a = jnp.pad(a, [(0, extra if i == at else 0) for i in range(a.ndim)])
        return a.reshape(*a.shape[:at], op.groups, op.group, *a.shape[at + 1 :])

    x = split(x, x_labels.index(label))
    scales = jnp.expand_dims(scales, axis + 1)
    x_labels, w_labels = (text.replace(label, new + label) for text in (x_labels, w_labels))
    return x, split(values, axis), scales, x_labels, w_labels


def _along(a: Any, labels: str, out: str) -> Any:
    """Return an array with the axes of a result; missing and summed axes get size 1."""
    gone = tuple(i for i, c in enumerate(labels) if c not in out)
    a = a.reshape([n for i, n in enumerate(a.shape) if i not in gone]) if all(
        a.shape[i] == 1 for i in gone) else a
    left = [c for c in labels if c in out]
    a = jnp.transpose(a, [left.index(c) for c in out if c in left])
    return jnp.expand_dims(a, tuple(i for i, c in enumerate(out) if c not in left))


def quantize_inputs(fun: F) -> F:
    """Transform a function so that products with 8-bit quantized arrays have 8-bit inputs.

    In a product of an array `x` and a `QuantizedArray` of int8 or float8 numbers, `x` is rounded to
    the same type. Integers are multiplied and added exactly, with the processor's instructions for
    8-bit products; the result is scaled afterward. If the quantized array has an `input_scale`, `x`
    is rounded with this scale, and larger elements are clipped. Otherwise, each row of `x` (each
    token) has its own scale, computed from its largest absolute value.

    Products with other quantized arrays (4 bits, or with zero points) are not affected. Derivatives
    are computed as if the inputs had not been rounded.

    Args:
        fun: the function, such as `model.apply`.

    Returns:
        A function with the same arguments and results.

    >>> import toile.linen as nn
    >>> from toile.quantization import quantize, quantize_inputs
    >>> layer = nn.Dense(4)
    >>> x = jnp.linspace(-1, 1, 16).reshape(2, 8)
    >>> variables = quantize(layer.init(key(0), x), bits=8)
    >>> found = quantize_inputs(layer.apply)(variables, x)
    >>> bool((jnp.abs(found - layer.apply(variables, x)) < 0.02).all())
    True
    """

    @functools.wraps(fun)
    def transformed(*args: Any, **kwargs: Any) -> Any:
        return _InputTrace.run(lambda: fun(*args, **kwargs))

    return cast(F, transformed)
