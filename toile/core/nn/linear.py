"""Linear maps, convolutions and embeddings as functions of a Scope.

Parameters are created in float32, the initializers' default dtype, and converted to `dtype` for the
computation. The layers of `toile.linen.linear` and `toile.linen.convolution` also use the parts of
this file that are not functions of a Scope.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from toile import lax, struct
from toile import numpy as jnp
from toile.core import meta
from toile.core.nn import initializers
from toile.core.scope import Scope
from toile.engine.annotations import Array, ArrayLike, DTypeLike
from toile.engine.config import flags
from toile.engine.source import here

if TYPE_CHECKING:
    from toile.lax.contractions import PrecisionLike

__all__ = [
    "Embedding", "conv", "conv_transpose", "default_embed_init", "default_kernel_init", "dense",
    "dense_general", "embedding",
]  # fmt: skip

default_kernel_init = initializers.lecun_normal()
default_embed_init = initializers.variance_scaling(1.0, "fan_in", "normal", out_axis=0)


def as_tuple(x: Any) -> tuple[int, ...]:
    """One number or several numbers as a tuple."""
    return tuple(x) if isinstance(x, Iterable) else (x,)


def add_bias(y: Any, bias: Any) -> Any:
    """The sum `y + bias`, where the axes of `bias` are the last axes of `y`."""
    if bias.ndim != y.ndim and flags.numpy_rank_promotion != "allow":
        bias = jnp.reshape(bias, (1,) * (y.ndim - bias.ndim) + bias.shape)
    return y + bias


def _with_bias(scope: Scope, y: Any, features: int, init: Any, dtype: Any) -> Any:
    """The sum of `y` and a parameter 'bias', which has the length of the last axis of `y`."""
    return add_bias(y, jnp.asarray(scope.param("bias", init, (features,)), dtype))


def flattened(init: Any, split: Callable[[Any], tuple[int, ...]], batch: int = 0) -> Any:
    """An initializer that makes an array of shape `split(shape)` and reshapes it.

    The fan-in and fan-out of that shape are those of the layer. Each index of the first `batch`
    axes, which `split` leaves out, gets the same values."""

    def wrapped(rng: Any, shape: Any, dtype: Any = jnp.float32) -> Any:
        copies = math.prod(shape[:batch])
        made = init(rng, split(shape), dtype)
        if isinstance(made, meta.AxisMetadata):
            return meta.replace_boxed(made, jnp.reshape(made.unbox(), shape))
        return jnp.reshape(made if copies == 1 else jnp.concatenate([made] * copies), shape)

    marked: Any = wrapped
    marked.gives_shape = getattr(init, "gives_shape", False)
    return marked


class Contraction:
    """How a kernel contracts the axes `axis` of an input, for each index of the axes `batch`."""

    def __init__(
        self,
        shape: tuple[int, ...],
        axis: tuple[int, ...],
        batch: tuple[int, ...],
        features: tuple[int, ...],
    ):
        if batch and set(batch) != set(range(max(batch) + 1)):
            raise ValueError(
                f"batch_dims {batch} must be consecutive leading dimensions starting from 0: "
                f"needed (0, 1, …), got {batch} (transpose the input first){here()}"
            )
        n_batch, first_out = len(batch), len(batch) + len(axis)
        batch_shape = tuple([shape[a] for a in batch])
        between = (1,) * (len(shape) - first_out)  # axes that are neither batch nor summed over
        self.kernel_shape = (*batch_shape, *[shape[a] for a in axis], *features)
        self.bias_shape = batch_shape + features
        self.bias_shape_in_result = batch_shape + between + features
        self.numbers = ((axis, tuple(range(n_batch, first_out))), (batch, tuple(range(n_batch))))

    def add_bias(self, y: Any, bias: Any) -> Any:
        """The result of the contraction plus a bias of shape `bias_shape`."""
        batch_axes = self.numbers[1][0]
        return add_bias(y, jnp.reshape(bias, self.bias_shape_in_result) if batch_axes else bias)


def dense_general(
    scope: Scope,
    inputs: ArrayLike,
    features: int | Sequence[int],
    axis: int | Sequence[int] = -1,
    batch_dims: int | Sequence[int] = (),
    bias: bool = True,
    dtype: DTypeLike = jnp.float32,
    kernel_init: Callable[..., Any] = default_kernel_init,
    bias_init: Callable[..., Any] = initializers.zeros,
    precision: PrecisionLike = None,
) -> Any:
    """Apply a linear map that sums over some axes of the input and appends new axes at the end.

    Args:
        scope: scope that contains the parameters `kernel` and `bias`.
        inputs: array that has the axes `axis` and `batch_dims`.
        features: size of the new axis, or the sizes of several new axes.
        axis: axis or axes of the input to sum over.
        batch_dims: leading axes with a separate kernel and bias for each index. All of these
            kernels start with the same values.
        bias: whether to add a bias.
        dtype: dtype to compute in.
        kernel_init: initializer of the kernel.
        bias_init: initializer of the bias.
        precision: precision of the matrix product (see `toile.lax.Precision`); if None, the default
            precision is used.

    Returns:
        An array with the batch axes, the remaining axes of the input and the new axes.

    >>> from toile.core import init, nn
    >>> x = jnp.ones((2, 3, 4))
    >>> y, variables = init(nn.dense_general)(key(0), x, (5, 6), axis=(1, 2))
    >>> y.shape, toile.tree.map(jnp.shape, variables)
    ((2, 5, 6), {'params': {'bias': (5, 6), 'kernel': (3, 4, 5, 6)}})
    """
    x = jnp.asarray(inputs, dtype)
    over = tuple(a + x.ndim if a < 0 else a for a in as_tuple(axis))
    batch = as_tuple(batch_dims)
    n_batch, first_out = len(batch), len(batch) + len(over)
    contraction = Contraction(x.shape, over, batch, as_tuple(features))
    to_matrix = lambda s: (math.prod(s[n_batch:first_out]), math.prod(s[first_out:]))
    init = flattened(kernel_init, to_matrix, n_batch)
    kernel = jnp.asarray(scope.param("kernel", init, contraction.kernel_shape), dtype)
    y = lax.dot_general(x, kernel, contraction.numbers, precision=precision)
    if not bias:
        return y
    init = flattened(bias_init, lambda s: (math.prod(s[n_batch:]),), n_batch)
    b = jnp.asarray(scope.param("bias", init, contraction.bias_shape), dtype)
    return contraction.add_bias(y, b)


def dense(
    scope: Scope,
    inputs: ArrayLike,
    features: int,
    bias: bool = True,
    dtype: DTypeLike = jnp.float32,
    precision: PrecisionLike = None,
    kernel_init: Callable[..., Any] = default_kernel_init,
    bias_init: Callable[..., Any] = initializers.zeros,
) -> Any:
    """Apply a linear map over the last axis of the input: `inputs @ kernel + bias`.

    Args:
        scope: scope that contains the parameters `kernel`, of shape (n, features), and `bias`, of
            shape (features,).
        inputs: array of shape (..., n).
        features: number of output features.
        bias: whether to add a bias.
        dtype: dtype to compute in.
        precision: precision of the matrix product (see `toile.lax.Precision`); if None, the default
            precision is used.
        kernel_init: initializer of the kernel.
        bias_init: initializer of the bias.

    Returns:
        An array of shape (..., features).

    >>> from toile.core import init, nn
    >>> y, variables = init(nn.dense)(key(0), jnp.ones((2, 3)), features=4)
    >>> y.shape, toile.tree.map(jnp.shape, variables)
    ((2, 4), {'params': {'bias': (4,), 'kernel': (3, 4)}})
    """
    x = jnp.asarray(inputs, dtype)
    kernel = jnp.asarray(scope.param("kernel", kernel_init, (x.shape[-1], features)), dtype)
    y = lax.dot_general(x, kernel, (((x.ndim - 1,), (0,)), ((), ())), precision=precision)
    return _with_bias(scope, y, features, bias_init, dtype) if bias else y


def channels_last(ndim: int) -> lax.ConvDimensionNumbers:
    """Dimension numbers for inputs (batch, *space, features) and kernels (*space, in, out)."""
    inputs = (0, ndim - 1, *range(1, ndim - 1))
    kernel = (ndim - 1, ndim - 2, *range(ndim - 2))
    return lax.ConvDimensionNumbers(inputs, kernel, inputs)


def grouped_kernel_shape(
    layer: str, shape: tuple[int, ...], kernel_size: Sequence[int], groups: int, features: int
) -> tuple[int, ...]:
    """The shape of the kernel that convolves an input of shape `shape`."""
    if shape[-1] % groups != 0:
        raise AssertionError(
            f"{layer}: needed a number of input features that feature_group_count={groups} "
            f"divides, got {shape[-1]} (input of shape {shape}){here()}"
        )
    return (*kernel_size, shape[-1] // groups, features)


def conv(
    scope: Scope,
    inputs: ArrayLike,
    features: int,
    kernel_size: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "SAME",
    input_dilation: Sequence[int] | None = None,
    kernel_dilation: Sequence[int] | None = None,
    feature_group_count: int = 1,
    bias: bool = True,
    dtype: DTypeLike = jnp.float32,
    precision: PrecisionLike = None,
    kernel_init: Callable[..., Any] = default_kernel_init,
    bias_init: Callable[..., Any] = initializers.zeros,
) -> Any:
    """Convolve an input with a kernel over the spatial axes.

    Args:
        scope: scope that contains the parameters `kernel`, of shape (*kernel_size, n /
            feature_group_count, features), and `bias`, of shape (features,).
        inputs: array of shape (batch, *space, n).
        features: number of output features.
        kernel_size: size of the kernel along each spatial axis.
        strides: step between windows along each spatial axis; 1 by default.
        padding: `"SAME"`, `"VALID"`, or a pair (low, high) for each spatial axis.
        input_dilation: distance between elements of the input along each spatial axis; 1 by
            default.
        kernel_dilation: distance between elements of the kernel along each spatial axis; 1 by
            default.
        feature_group_count: number of groups into which the input and output features are divided.
        bias: whether to add a bias.
        dtype: dtype to compute in.
        precision: precision of the convolution (see `toile.lax.Precision`); if None, the default
            precision is used.
        kernel_init: initializer of the kernel.
        bias_init: initializer of the bias.

    Returns:
        An array of shape (batch, *new space, features).

    >>> from toile.core import init, nn
    >>> x = jnp.ones((1, 8, 8, 3))
    >>> y, variables = init(nn.conv)(key(0), x, 5, (3, 3), strides=(2, 2))
    >>> y.shape, toile.tree.map(jnp.shape, variables)
    ((1, 4, 4, 5), {'params': {'bias': (5,), 'kernel': (3, 3, 3, 5)}})
    """
    x = jnp.asarray(inputs, dtype)
    shape = grouped_kernel_shape("conv", x.shape, kernel_size, feature_group_count, features)
    y = lax.conv_general_dilated(
        x, jnp.asarray(scope.param("kernel", kernel_init, shape), dtype),
        (1,) * (x.ndim - 2) if strides is None else strides, padding,
        lhs_dilation=input_dilation, rhs_dilation=kernel_dilation,
        dimension_numbers=channels_last(x.ndim), feature_group_count=feature_group_count,
        precision=precision,
    )  # fmt: skip
    return _with_bias(scope, y, features, bias_init, dtype) if bias else y


def conv_transpose(
    scope: Scope,
    inputs: ArrayLike,
    features: int,
    kernel_size: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "SAME",
    kernel_dilation: Sequence[int] | None = None,
    bias: bool = True,
    dtype: DTypeLike = jnp.float32,
    precision: PrecisionLike = None,
    kernel_init: Callable[..., Any] = default_kernel_init,
    bias_init: Callable[..., Any] = initializers.zeros,
) -> Any:
    """Apply a transposed convolution, which upsamples each spatial axis by its stride.

    Args:
        scope: scope that contains the parameters `kernel`, of shape (*kernel_size, n, features),
            and `bias`, of shape (features,).
        inputs: array of shape (batch, *space, n).
        features: number of output features.
        kernel_size: size of the kernel along each spatial axis.
        strides: factor by which each spatial axis is upsampled; 1 by default. Zeros are inserted
            between the elements of the input.
        padding: `"SAME"`, `"VALID"`, or a pair (low, high) for each spatial axis.
        kernel_dilation: distance between elements of the kernel along each spatial axis; 1 by
            default.
        bias: whether to add a bias.
        dtype: dtype to compute in.
        precision: precision of the convolution (see `toile.lax.Precision`); if None, the default
            precision is used.
        kernel_init: initializer of the kernel.
        bias_init: initializer of the bias.

    Returns:
        An array of shape (batch, *new space, features).

    >>> from toile.core import init, nn
    >>> x = jnp.ones((1, 4, 3))
    >>> y, variables = init(nn.conv_transpose)(key(0), x, 5, (3,), strides=(2,))
    >>> y.shape, toile.tree.map(jnp.shape, variables)
    ((1, 8, 5), {'params': {'bias': (5,), 'kernel': (3, 3, 5)}})
    """
    x = jnp.asarray(inputs, dtype)
    kernel = scope.param("kernel", kernel_init, (*kernel_size, x.shape[-1], features))
    y = lax.conv_transpose(
        x, jnp.asarray(kernel, dtype), strides or (1,) * (x.ndim - 2), padding,
        rhs_dilation=kernel_dilation, precision=precision,
    )  # fmt: skip
    return _with_bias(scope, y, features, bias_init, dtype) if bias else y


@struct.dataclass
class Embedding:
    """A table of vectors, as returned by the function `embedding`.

    Args:
        table: array of shape (num_embeddings, features).
    """

    table: Array

    def lookup(self, indices: Array) -> Array:
        """Return an array that contains one vector for each integer in `indices`."""
        if indices.dtype not in (jnp.int32, jnp.int64, jnp.uint32, jnp.uint64):
            raise ValueError(
                "Embedding.lookup: Input type must be an integer or unsigned integer of 32 or 64 "
                f"bits, got {indices.dtype}{here()}"
            )
        return self.table[indices]

    def attend(self, query: ArrayLike) -> Array:
        """Return the inner products of the queries with all vectors, over the last axis."""
        return jnp.dot(query, self.table.T)


def embedding(
    scope: Scope, num_embeddings: int, features: int,
    init_fn: Callable[..., Any] = default_embed_init,
) -> Embedding:
    """Create a table of trainable vectors.

    Args:
        scope: scope that contains the parameter `table`, of shape (num_embeddings, features).
        num_embeddings: number of vectors.
        features: length of a vector.
        init_fn: initializer of the table.

    Returns:
        An `Embedding`.

    >>> from toile.core import init, nn
    >>> made, variables = init(nn.embedding)(key(0), 10, 4)
    >>> toile.tree.map(jnp.shape, variables), made.lookup(jnp.array([1, 2, 3])).shape
    ({'params': {'table': (10, 4)}}, (3, 4))
    """
    return Embedding(scope.param("table", init_fn, (num_embeddings, features)))
