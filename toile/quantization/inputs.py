"""The transformation `quantize_inputs`: products of quantized arrays with quantized inputs.

While the function runs, quantized arrays are represented by tracers that contain the stored
numbers. A product of an array and such a tracer becomes a product of stored numbers. All other
operations use the numbers that the quantized arrays represent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from toile import numpy as jnp
from toile.api import custom_jvp
from toile.engine.avals import Aval
from toile.engine.operation import Operation
from toile.engine.program import Program, derive, evaluate
from toile.engine.trace import Trace, Tracer, opened, state
from toile.engine.trees import flatten, unflatten
from toile.primitives.contractions import LETTERS, DotGeneral
from toile.primitives.families import transpose
from toile.quantization.rounding import most_stored

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
    def has_stored_products(self) -> bool:
        """Whether products with this array have 8-bit inputs."""
        return self.op.bits == 8 and not self.op.weighted and (
            len(self.parts) == 2 + self.op.calibrated)


class _StoredTracer(Tracer):
    """A quantized array in a function that `quantize_inputs` transforms."""

    __slots__ = ("stored",)

    def __init__(self, trace: Trace, stored: _Stored):
        self._trace, self.stored = trace, stored

    @property
    def aval(self) -> Aval:
        """The shape and dtype of the represented numbers."""
        stored = self.stored
        shape = list(stored.parts[0].shape)
        shape[stored.op.axis] = stored.op.length
        return Aval(tuple(shape[i] for i in stored.perm), np.dtype(stored.dtype))


class _InputTrace(Trace):
    """Runs operations in the parent trace; products with quantized arrays are replaced."""

    __slots__ = ()

    def value(self, x: Any) -> Any:
        """Return the value that the parent trace uses."""
        return x.stored.dense() if self.owns(x) else x

    def owns(self, x: Any) -> bool:
        """Whether a value is a quantized array in this trace."""
        return x.__class__ is _StoredTracer and x._trace is self

    def process(self, op: Operation, args: Sequence[Any]) -> Any:
        mine = [self.owns(x) for x in args]
        state.trace = self.parent
        try:
            if op.decoded is not None and not any(mine):
                perm = tuple(range(args[0].ndim))
                made: Any = op
                return _StoredTracer(self, _Stored(made, tuple(args), perm, made.dtype))
            if any(mine):
                found = self._with_stored(op, args, mine)
                if found is not None:
                    return found
            if op.carries_programs:
                op = _with_programs(op)
            return op(*map(self.value, args))
        finally:
            state.trace = self

    def _with_stored(self, op: Any, args: Sequence[Any], mine: Sequence[bool]) -> Any:
        """Apply an operation to stored numbers; None if it needs the represented numbers."""
        if len(args) == 1:
            stored = args[0].stored
            if op.moves_axes and op.is_always_view:
                perm = tuple(stored.perm[i] for i in op.perm)
                return _StoredTracer(self, stored._replace(perm=perm))
            if op.only_rounds and jnp.issubdtype(getattr(op, "dtype", int), jnp.floating):
                return _StoredTracer(self, stored._replace(dtype=op.dtype))
        elif op.kernel_family == "contraction" and sum(mine) == 1:
            side = mine.index(True)
            stored = args[side].stored
            if stored.has_stored_products and args[1 - side].dtype != np.float64:
                return _product(op, args[1 - side], stored, side)
        return None

    def process_custom_jvp(self, call: Any, args: Sequence[Any]) -> list[Any]:
        state.trace = self.parent
        try:
            return call(*map(self.value, args))
        finally:
            state.trace = self

    process_custom_vjp = process_custom_jvp


def _with_programs(op: Any) -> Any:
    """Run a loop, a branch or a call, and transform its Programs too."""
    if not any(map(_dequantizes, op.programs())):
        return op
    changed: dict[str, Any] = {}
    for field in fields(op):
        value = getattr(op, field.name)
        if isinstance(value, Program):
            changed[field.name] = _transformed(value)
        elif isinstance(value, tuple) and value and all(isinstance(p, Program) for p in value):
            changed[field.name] = tuple(map(_transformed, value))
    return replace(op, **changed)


def _dequantizes(program: Program) -> bool:
    """Whether a Program, or a Program inside it, contains quantized arrays."""
    return any(e.op.decoded is not None or any(map(_dequantizes, e.op.programs()))
               for e in program.equations)


def _transformed(program: Program) -> Program:
    def make() -> Program:
        def fun(*xs: Any) -> Sequence[Any]:
            return _run(lambda *ys: evaluate(program, ys), xs)

        return derive(fun, [v.aval for v in program.inputs], program.name)

    return program.memoized("quantized inputs", make)


def _run(fun: Callable[..., Sequence[Any]], xs: Sequence[Any]) -> list[Any]:
    trace = _InputTrace(state.trace)
    with opened(trace):
        outs = list(fun(*xs))
        state.trace = trace.parent
        return [trace.value(x) for x in outs]


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
        structure: list[Any] = []

        def flat() -> list[Any]:
            outs, tree = flatten(fun(*args, **kwargs))
            structure.append(tree)
            return outs

        outs = _run(flat, ())
        return unflatten(structure[0], outs)

    return cast(F, transformed)
