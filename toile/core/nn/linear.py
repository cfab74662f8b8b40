"""Linear maps, convolutions and embeddings as functions of a Scope.

Parameters are made in float32 (the initializers' default) and computed with in `dtype`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from toile import lax, struct
from toile import numpy as jnp
from toile.core.nn import initializers
from toile.core.scope import Scope
from toile.engine.source import here

__all__ = [
    "Embedding",
    "conv",
    "conv_transpose",
    "default_embed_init",
    "default_kernel_init",
    "dense",
    "dense_general",
    "embedding",
]

default_kernel_init = initializers.lecun_normal()
default_embed_init = initializers.variance_scaling(1.0, "fan_in", "normal", out_axis=0)


def _as_tuple(x: Any) -> tuple[int, ...]:
    """One number or several."""
    return tuple(x) if isinstance(x, Iterable) else (x,)


def _with_bias(scope: Scope, y: Any, features: int, init: Any, dtype: Any) -> Any:
    """y plus a parameter 'bias' of the length of its last axis."""
    bias = jnp.asarray(scope.param("bias", init, (features,)), dtype)
    return y + jnp.reshape(bias, (1,) * (y.ndim - 1) + (-1,))


def _flattened(init: Any, batch: int, split: Callable[[Any], tuple[int, ...]]) -> Any:
    """Initialize each index of the first `batch` axes alike, in the shape `split(shape)`.

    That shape has one axis of inputs and one of outputs, whose product are the fans."""

    def wrapped(rng: Any, shape: Any, dtype: Any = jnp.float32) -> Any:
        copies = math.prod(shape[:batch])
        made = init(rng, split(shape), dtype)
        return jnp.reshape(made if copies == 1 else jnp.concatenate([made] * copies), shape)

    wrapped.gives_shape = getattr(init, "gives_shape", False)  # type: ignore[attr-defined]
    return wrapped


def dense_general(
    scope: Scope,
    inputs: Any,
    features: int | Sequence[int],
    axis: int | Sequence[int] = -1,
    batch_dims: int | Sequence[int] = (),
    bias: bool = True,
    dtype: Any = jnp.float32,
    kernel_init: Any = default_kernel_init,
    bias_init: Any = initializers.zeros,
    precision: Any = None,
) -> Any:
    """A linear map over the axes `axis`, to the new axes `features` at the end.

    The leading axes `batch_dims` have a kernel and a bias for each of their indices, all of which
    start equal.

    >>> import toile, toile.numpy as jnp
    >>> from toile.core import init, nn
    >>> x = jnp.ones((2, 3, 4))
    >>> y, variables = init(nn.dense_general)(toile.random.key(0), x, (5, 6), axis=(1, 2))
    >>> y.shape, toile.tree.map(jnp.shape, variables)
    ((2, 5, 6), {'params': {'bias': (5, 6), 'kernel': (3, 4, 5, 6)}})
    """
    x = jnp.asarray(inputs, dtype)
    new, over, batch = _as_tuple(features), _as_tuple(axis), _as_tuple(batch_dims)
    if batch and set(batch) != set(range(max(batch) + 1)):
        raise ValueError(
            f"dense_general: batch_dims {batch} must be consecutive leading dimensions starting "
            f"from 0.{here()}"
        )
    over = tuple(a + x.ndim if a < 0 else a for a in over)
    n_batch, first_out = len(batch), len(batch) + len(over)
    batch_shape = tuple(x.shape[a] for a in batch)
    shape = (*batch_shape, *(x.shape[a] for a in over), *new)
    to_matrix = lambda s: (math.prod(s[n_batch:first_out]), math.prod(s[first_out:]))
    kernel = scope.param("kernel", _flattened(kernel_init, n_batch, to_matrix), shape)
    dims = ((over, tuple(range(n_batch, first_out))), (batch, tuple(range(n_batch))))
    y = lax.dot_general(x, jnp.asarray(kernel, dtype), dims, precision=precision)
    if not bias:
        return y
    to_vector = lambda s: (math.prod(s[n_batch:]),)
    b = scope.param("bias", _flattened(bias_init, n_batch, to_vector), (*batch_shape, *new))
    between = (1,) * (x.ndim - n_batch - len(over))  # axes that are neither batch nor summed over
    return y + jnp.asarray(jnp.reshape(b, (*batch_shape, *between, *new)), dtype)


def dense(
    scope: Scope,
    inputs: Any,
    features: int,
    bias: bool = True,
    dtype: Any = jnp.float32,
    precision: Any = None,
    kernel_init: Any = default_kernel_init,
    bias_init: Any = initializers.zeros,
) -> Any:
    """A linear map of the last axis: inputs · kernel + bias.

    >>> import toile, toile.numpy as jnp
    >>> from toile.core import init, nn
    >>> y, variables = init(nn.dense)(toile.random.key(0), jnp.ones((2, 3)), features=4)
    >>> y.shape, toile.tree.map(jnp.shape, variables)
    ((2, 4), {'params': {'bias': (4,), 'kernel': (3, 4)}})
    """
    x = jnp.asarray(inputs, dtype)
    kernel = jnp.asarray(scope.param("kernel", kernel_init, (x.shape[-1], features)), dtype)
    y = lax.dot_general(x, kernel, (((x.ndim - 1,), (0,)), ((), ())), precision=precision)
    return _with_bias(scope, y, features, bias_init, dtype) if bias else y


def _channels_last(ndim: int) -> lax.ConvDimensionNumbers:
    """Inputs (batch, spatial..., features), kernels (spatial..., in, out)."""
    inputs = (0, ndim - 1, *range(1, ndim - 1))
    kernel = (ndim - 1, ndim - 2, *range(ndim - 2))
    return lax.ConvDimensionNumbers(inputs, kernel, inputs)


def conv(
    scope: Scope,
    inputs: Any,
    features: int,
    kernel_size: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "SAME",
    input_dilation: Sequence[int] | None = None,
    kernel_dilation: Sequence[int] | None = None,
    feature_group_count: int = 1,
    bias: bool = True,
    dtype: Any = jnp.float32,
    precision: Any = None,
    kernel_init: Any = default_kernel_init,
    bias_init: Any = initializers.zeros,
) -> Any:
    """A convolution of inputs (batch, spatial..., features), with 'SAME', 'VALID' or pairs.

    >>> import toile, toile.numpy as jnp
    >>> from toile.core import init, nn
    >>> x = jnp.ones((1, 8, 8, 3))
    >>> y, variables = init(nn.conv)(toile.random.key(0), x, 5, (3, 3), strides=(2, 2))
    >>> y.shape, toile.tree.map(jnp.shape, variables)
    ((1, 4, 4, 5), {'params': {'bias': (5,), 'kernel': (3, 3, 3, 5)}})
    """
    x = jnp.asarray(inputs, dtype)
    if x.shape[-1] % feature_group_count:
        raise AssertionError(
            f"conv: needed a number of input features that feature_group_count divides, got "
            f"{x.shape[-1]} and {feature_group_count}{here()}"
        )
    shape = (*kernel_size, x.shape[-1] // feature_group_count, features)
    y = lax.conv_general_dilated(
        x,
        jnp.asarray(scope.param("kernel", kernel_init, shape), dtype),
        (1,) * (x.ndim - 2) if strides is None else strides,
        padding,
        lhs_dilation=input_dilation,
        rhs_dilation=kernel_dilation,
        dimension_numbers=_channels_last(x.ndim),
        feature_group_count=feature_group_count,
        precision=precision,
    )
    return _with_bias(scope, y, features, bias_init, dtype) if bias else y


def conv_transpose(
    scope: Scope,
    inputs: Any,
    features: int,
    kernel_size: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "SAME",
    kernel_dilation: Sequence[int] | None = None,
    bias: bool = True,
    dtype: Any = jnp.float32,
    precision: Any = None,
    kernel_init: Any = default_kernel_init,
    bias_init: Any = initializers.zeros,
) -> Any:
    """A transposed convolution, as `toile.lax.conv_transpose` does it.

    >>> import toile, toile.numpy as jnp
    >>> from toile.core import init, nn
    >>> x = jnp.ones((1, 4, 3))
    >>> y, variables = init(nn.conv_transpose)(toile.random.key(0), x, 5, (3,), strides=(2,))
    >>> y.shape, toile.tree.map(jnp.shape, variables)
    ((1, 8, 5), {'params': {'bias': (5,), 'kernel': (3, 3, 5)}})
    """
    x = jnp.asarray(inputs, dtype)
    kernel = scope.param("kernel", kernel_init, (*kernel_size, x.shape[-1], features))
    y = lax.conv_transpose(
        x,
        jnp.asarray(kernel, dtype),
        strides or (1,) * (x.ndim - 2),
        padding,
        rhs_dilation=kernel_dilation,
        precision=precision,
    )
    return _with_bias(scope, y, features, bias_init, dtype) if bias else y


@struct.dataclass
class Embedding:
    """A table of vectors: `lookup` finds those of indices, `attend` compares with all of them."""

    table: Any

    def lookup(self, indices: Any) -> Any:
        """The rows of the table at integer `indices`, on a new last axis."""
        if indices.dtype not in (jnp.int32, jnp.int64, jnp.uint32, jnp.uint64):
            raise ValueError(
                "Embedding.lookup: Input type must be an integer or unsigned integer of 32 or 64 "
                f"bits, got {indices.dtype}{here()}"
            )
        return self.table[indices]

    def attend(self, query: Any) -> Any:
        """The inner products of each query, along the last axis, with every row."""
        return jnp.dot(query, self.table.T)


def embedding(
    scope: Scope, num_embeddings: int, features: int, init_fn: Any = default_embed_init
) -> Embedding:
    """An Embedding whose table is the parameter 'table'.

    >>> import toile, toile.numpy as jnp
    >>> from toile.core import init, nn
    >>> made, variables = init(nn.embedding)(toile.random.key(0), 10, 4)
    >>> toile.tree.map(jnp.shape, variables), made.lookup(jnp.array([1, 2, 3])).shape
    ({'params': {'table': (10, 4)}}, (3, 4))
    """
    return Embedding(scope.param("table", init_fn, (num_embeddings, features)))
