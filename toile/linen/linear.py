"""Linear layers: Dense, DenseGeneral, Einsum; and, from their own files, convolutions and Embed.

A layer declares its parameters, promotes them and the inputs to one dtype, and calls one function
of `toile.lax` or `toile.numpy`, which the user may replace. In files of layers, annotations are
real types, because Module makes fields of them.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.api.programs import eval_shape
from toile.core import meta
from toile.core.nn.linear import Contraction, add_bias, default_kernel_init, flattened
from toile.core.nn.linear import as_tuple as _canonicalize_tuple
from toile.engine.avals import Aval as ShapedArray
from toile.engine.lazy import attach_table, names_of
from toile.engine.source import here
from toile.linen import module
from toile.linen.dtypes import DtypePromotion, promote_dtype
from toile.linen.module import Module, compact, nowrap
from toile.linen.weights import chosen, kernel_and_bias, last_size
from toile.nn import initializers
from toile.numpy.summation import _normal_form as einsum_labels
from toile.typing import (
    Array,
    ConvGeneralDilatedT,
    DotGeneralT,
    Dtype,
    Initializer,
    LaxPadding,
    PaddingLike,
    PrecisionLike,
    PRNGKey,
    PromoteDtypeFn,
    Shape,
)

if TYPE_CHECKING:
    from toile.linen.convolution import (
        Conv,
        ConvLocal,
        ConvTranspose,
        _Conv,
        _conv_dimension_numbers,
        canonicalize_padding,
    )
    from toile.linen.embedding import Embed, default_embed_init

_ELSEWHERE = {
    "toile.linen.convolution": (
        "Conv ConvLocal ConvTranspose _Conv _conv_dimension_numbers canonicalize_padding"
    ),
    "toile.linen.embedding": "Embed default_embed_init",
}
__getattr__, __dir__ = attach_table(__name__, names_of(_ELSEWHERE))

__all__ = [
    "Array", "Conv", "ConvGeneralDilatedT", "ConvLocal", "ConvTranspose", "Dense", "DenseGeneral",
    "DotGeneralT", "Dtype", "Einsum", "Embed", "Initializer", "Iterable", "LaxPadding", "Module",
    "PRNGKey", "PaddingLike", "PrecisionLike", "PromoteDtypeFn", "Protocol", "Sequence", "Shape",
    "ShapedArray", "_Conv", "_canonicalize_tuple", "_conv_dimension_numbers", "_normalize_axes",
    "canonicalize_padding", "compact", "default_embed_init", "default_kernel_init", "eval_shape",
    "initializers", "jnp", "lax", "meta", "module", "np", "promote_dtype",
]  # fmt: skip


def _normalize_axes(axes: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """Axes counted from the front, in order."""
    return tuple(sorted(ax if ax >= 0 else ndim + ax for ax in axes))


class DenseGeneral(Module):
    """A linear map over any axes of the input, to any number of new axes at its end.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> layer = nn.DenseGeneral(features=(4, 5), axis=(1, -1))
    >>> variables = layer.init(toile.random.key(0), jnp.ones((1, 3, 6, 7)))
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'bias': (4, 5), 'kernel': (3, 7, 4, 5)}}
    >>> layer.apply(variables, jnp.ones((1, 3, 6, 7))).shape
    (1, 6, 4, 5)

    Attributes:
      features: size of the new axis, or sizes of several.
      axis: the axis or axes of the input that are summed over.
      batch_dims: leading axes, from 0 on, that have a kernel and a bias for each index.
      use_bias: whether a bias is added.
      dtype: of the computation; None promotes inputs and parameters.
      param_dtype: of the parameters when they are made.
      kernel_init, bias_init: initializers; they see the axes flattened to one of each kind.
      precision: of the product, see `toile.lax.Precision`.
      promote_dtype: called with (inputs, kernel, bias) and dtype.
      dot_general, dot_general_cls: in place of `toile.lax.dot_general`; a class is instantiated.
    """

    features: int | Sequence[int]
    axis: int | Sequence[int] = -1
    batch_dims: Sequence[int] = ()
    use_bias: bool = True
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    kernel_init: Initializer = default_kernel_init
    bias_init: Initializer = initializers.zeros
    precision: PrecisionLike = None
    promote_dtype: DtypePromotion = promote_dtype
    dot_general: DotGeneralT | None = None
    dot_general_cls: Any = None

    @compact
    def __call__(self, inputs: Array) -> Array:
        """Contract the axes of `inputs` with the kernel and add the bias."""
        features = _canonicalize_tuple(self.features)
        axis = _normalize_axes(_canonicalize_tuple(self.axis), inputs.ndim)
        batch_dims = _canonicalize_tuple(self.batch_dims)
        contraction = Contraction(inputs.shape, axis, tuple(sorted(batch_dims)), features)
        n_batch, n_axis, n_features = len(batch_dims), len(axis), len(features)

        def two_axes(shape: Any) -> tuple[int, int]:
            return math.prod(shape[: n_batch + n_axis]), math.prod(shape[-n_features:])

        def one_axis(shape: Any) -> tuple[int]:
            return (math.prod(shape[:n_batch]) * math.prod(shape[-n_features:]),)

        kernel = self.param(
            "kernel", flattened(self.kernel_init, two_axes), contraction.kernel_shape,
            self.param_dtype,
        )  # fmt: skip
        bias = None
        if self.use_bias:
            bias = self.param(
                "bias", flattened(self.bias_init, one_axis), contraction.bias_shape,
                self.param_dtype,
            )  # fmt: skip
        inputs, kernel, bias = self.promote_dtype(inputs, kernel, bias, dtype=self.dtype)
        dot_general = chosen(self.dot_general_cls, self.dot_general, lax.dot_general)
        out = dot_general(inputs, kernel, contraction.numbers, precision=self.precision)
        return out if bias is None else contraction.add_bias(out, bias)


class Dense(Module):
    """A linear map over the last axis of the input.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> layer = nn.Dense(features=4)
    >>> variables = layer.init(toile.random.key(0), jnp.ones((1, 3)))
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'bias': (4,), 'kernel': (3, 4)}}
    >>> layer.apply(variables, jnp.ones((2, 5, 3))).shape
    (2, 5, 4)

    Attributes:
      features: number of output features.
      use_bias: whether a bias is added.
      dtype: of the computation; None promotes inputs and parameters.
      param_dtype: of the parameters when they are made.
      precision: of the product, see `toile.lax.Precision`.
      kernel_init, bias_init: initializers.
      promote_dtype: called with (inputs, kernel, bias) and dtype.
      dot_general, dot_general_cls: in place of `toile.lax.dot_general`; a class is instantiated.
    """

    features: int
    use_bias: bool = True
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    precision: PrecisionLike = None
    kernel_init: Initializer = default_kernel_init
    bias_init: Initializer = initializers.zeros
    promote_dtype: DtypePromotion = promote_dtype
    dot_general: DotGeneralT | None = None
    dot_general_cls: Any = None

    @compact
    def __call__(self, inputs: Array) -> Array:
        """inputs @ kernel + bias."""
        features = self.features
        kernel, bias = kernel_and_bias(self, (last_size(self, inputs), features), (features,))
        inputs, kernel, bias = self.promote_dtype(inputs, kernel, bias, dtype=self.dtype)
        dot_general = chosen(self.dot_general_cls, self.dot_general)
        if dot_general is None and kernel.ndim == 2:  # the same product by a faster path
            y = jnp.matmul(inputs, kernel, precision=self.precision)
        else:
            numbers = (((inputs.ndim - 1,), (0,)), ((), ()))
            dot_general = lax.dot_general if dot_general is None else dot_general
            y = dot_general(inputs, kernel, numbers, precision=self.precision)
        if bias is None:
            return y
        return add_bias(y, bias if bias.ndim == 1 else jnp.reshape(bias, -1))


class Einsum(Module):
    """An einsum of the input with a kernel, and a bias over the kernel's axes that remain.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> layer = nn.Einsum((5, 6, 7), "abc,cde->abde")
    >>> variables = layer.init(toile.random.key(0), jnp.ones((3, 4, 5)))
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'bias': (6, 7), 'kernel': (5, 6, 7)}}

    Attributes:
      shape: of the kernel.
      einsum_str: an explicit equation of two operands, the input and the kernel; it is given here
        or to the call.
      use_bias: whether a bias is added.
      dtype: of the computation; None promotes inputs and parameters.
      param_dtype: of the parameters when they are made.
      precision: of the products, see `toile.lax.Precision`.
      kernel_init, bias_init: initializers.
      promote_dtype: called with (inputs, kernel, bias) and dtype.
      preferred_element_type: dtype that products are summed in and returned as.
    """

    shape: Shape
    einsum_str: str | None = None
    use_bias: bool = True
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    precision: PrecisionLike = None
    kernel_init: Initializer = default_kernel_init
    bias_init: Initializer = initializers.zeros
    promote_dtype: DtypePromotion = promote_dtype
    preferred_element_type: Dtype | None = None

    @compact
    def __call__(self, inputs: Array, einsum_str: str | None = None) -> Array:
        """The einsum of `inputs` with the kernel, plus the bias."""
        equation = module.merge_param("einsum_str", self.einsum_str, einsum_str).replace(" ", "")
        if "->" not in equation:
            raise ValueError(
                f'`einsum_str` equation must be explicit and include "->": got {equation!r}{here()}'
            )
        if equation.count(",") != 1:
            raise ValueError(
                "`einsum_str` equation must have exactly two operands and therefore, exactly one "
                f"comma character, instead of {equation.count(',')}: got {equation!r}{here()}"
            )
        kernel = self.param("kernel", self.kernel_init, tuple(self.shape), self.param_dtype)
        bias = None
        if self.use_bias:
            bias_shape, broadcast_shape = self._get_bias_shape(equation, inputs, kernel)
            bias = self.param("bias", self.bias_init, bias_shape, self.param_dtype)
        inputs, kernel, bias = self.promote_dtype(inputs, kernel, bias, dtype=self.dtype)
        y = jnp.einsum(
            equation, inputs, kernel, precision=self.precision,
            preferred_element_type=self.preferred_element_type,
        )  # fmt: skip
        return y if bias is None else y + jnp.reshape(bias, broadcast_shape)

    @nowrap
    def _get_bias_shape(
        self, einsum_str: str, lhs: Array, rhs: Array
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Sizes of the kernel's axes that the result keeps, and the same with 1 for the others."""
        return _bias_shapes(einsum_str, (jnp.ndim(lhs), jnp.ndim(rhs)), tuple(self.shape))


@functools.lru_cache(maxsize=1024)
def _bias_shapes(
    equation: str, ranks: tuple[int, int], shape: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of the bias, and its shape among the axes of the result."""
    named = equation.partition("->")[0].split(",")[1]
    letters = named.replace("...", "")
    if len(set(letters)) != len(letters) or (letters == named and len(named) != len(shape)):
        raise AssertionError(
            f"Einsum: needed a label of its own for each axis of the kernel {shape}, got {named!r} "
            f"in {equation!r} (with use_bias=False a label may occur twice){here()}"
        )
    terms, out = einsum_labels(equation, ranks)
    size = dict(zip(terms[1], shape, strict=True))
    return tuple(size[c] for c in out if c in size), tuple(size.get(c, 1) for c in out)
