"""The class `QuantizedArray`, which arithmetic treats as the array of numbers it represents."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from toile import numpy as jnp
from toile import struct
from toile.engine.annotations import Array, DTypeLike
from toile.primitives.quantized import Dequantize
from toile.quantization.operators import give_operators

__all__ = ["QuantizedArray"]


@struct.dataclass
class QuantizedArray:
    """An array of small integers or float8 numbers, with scales for groups of elements.

    The array represents the numbers `(values - zeros) * scales * factors`. It can be used like an
    ordinary array of these numbers in modules, in toile's functions and with operators. Compiled
    products with few rows read the stored values directly. Derivatives treat the array as a
    constant.

    The array is a tree whose leaves are `values`, `scales` and, if they are not None, `zeros`,
    `input_scale` and `factors`. Transformations, checkpoints and `device_put` therefore work with
    it. Transformations may add or remove leading axes.

    Args:
        values: the stored numbers. If `bits` is 4, each uint8 element contains two numbers that
            are neighbors along `axis`; the first one is in the low bits.
        scales: array with the same axes as `values`. Along `axis`, it has one element for each
            group.
        zeros: array with the shape of `scales`, or None. If it is None, 4-bit numbers are stored
            with 8 added to them.
        input_scale: scale for the inputs of products with this array, or None. It has one element
            and as many axes as `values`. See `quantize_inputs`.
        factors: array of numbers by which the result is multiplied, or None. Its shape can be
            broadcast to the shape of the array. For example, there may be one factor for each input
            of a product.
        bits: number of bits of an element, 8 or 4.
        group: number of adjacent elements along `axis` that share a scale. The last group may
            be shorter.
        length: length of the array along `axis`.
        axis: the axis of the groups, counted from the end: a negative number.
        dtype: dtype of the numbers that the array represents.

    >>> from toile.quantization import quantize_array
    >>> q = quantize_array(jnp.array([[1.0, -2.0], [0.5, 4.0]]), bits=8)
    >>> q
    QuantizedArray(float32[2,2], bits=8, group=2, axis=-2)
    >>> q.values
    Array([[127, -64],
           [ 64, 127]], dtype=int8)
    >>> jnp.round(jnp.ones(2) @ q, 1)
    Array([1.5, 2. ], dtype=float32)
    """

    values: Array
    scales: Array
    zeros: Array | None = None
    input_scale: Array | None = None
    factors: Array | None = None
    bits: int = struct.field(pytree_node=False, default=8)
    group: int = struct.field(pytree_node=False, default=1)
    length: int = struct.field(pytree_node=False, default=1)
    axis: int = struct.field(pytree_node=False, default=-2)
    dtype: Any = struct.field(pytree_node=False, default=np.dtype(np.float32))

    __array_priority__ = 200
    __array_ufunc__ = None  # operators of NumPy arrays call the methods of this class

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the represented array."""
        sizes = list(self.values.shape)
        sizes[self.axis] = self.length
        return tuple(sizes)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.values.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes of the stored values, scales, zeros, input scale and factors."""
        parts = (self.values, self.scales, self.zeros, self.input_scale, self.factors)
        return sum(x.size * x.dtype.itemsize for x in parts if x is not None)

    @property
    def T(self) -> Array:
        """The represented numbers with the axes in reverse order."""
        return self.dequantize().T

    def dequantize(self) -> Array:
        """Compute the numbers that the array represents.

        Returns:
            An array of dtype `dtype`.
        """
        op = Dequantize(self.bits, self.group, self.length, self.axis, np.dtype(self.dtype),
                        self.input_scale is not None, self.factors is not None)
        parts = (self.values, self.scales, self.zeros, self.factors, self.input_scale)
        return op(*(jnp.asarray(x) for x in parts if x is not None))

    __jax_array__ = dequantize

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.dequantize(), dtype=dtype)

    def astype(self, dtype: DTypeLike) -> Array:
        """Compute the represented numbers, and convert them to a dtype.

        Args:
            dtype: dtype of the result.

        Returns:
            An array of that dtype.
        """
        return self.dequantize().astype(dtype)

    def reshape(self, *shape: Any) -> Array:
        """Compute the represented numbers, and change their shape.

        Args:
            *shape: the sizes of the axes, or one tuple of them.

        Returns:
            An array with that shape.
        """
        return self.dequantize().reshape(*shape)

    def __getitem__(self, index: Any) -> Array:
        return self.dequantize()[index]

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        if not hasattr(self.values, "shape"):  # a tree of something other than arrays
            return f"QuantizedArray({self.values!r}, {self.scales!r}, {self.zeros!r})"
        sizes = ",".join(map(str, self.shape))
        return (f"QuantizedArray({np.dtype(self.dtype)}[{sizes}], bits={self.bits}, "
                f"group={self.group}, axis={self.axis})")



give_operators(QuantizedArray)
