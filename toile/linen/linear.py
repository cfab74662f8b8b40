"""Linear layers: Dense, DenseGeneral and Einsum. Convolutions and Embed are also exported here.

A layer declares its parameters, promotes them and the inputs to one dtype, and calls one function
of `toile.lax` or `toile.numpy`, which the user can replace. Module turns the annotated attributes
of a layer into the fields of a dataclass.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from toile import lax
from toile import numpy as jnp
from toile.core.nn.linear import Contraction, add_bias, as_tuple, default_kernel_init, flattened
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
        canonicalize_padding,
    )
    from toile.linen.embedding import Embed, default_embed_init

_ELSEWHERE = {
    "toile.linen.convolution": "Conv ConvLocal ConvTranspose canonicalize_padding",
    "toile.linen.embedding": "Embed default_embed_init",
}
__getattr__, __dir__ = attach_table(__name__, names_of(_ELSEWHERE))

__all__ = [
    "Array", "Conv", "ConvGeneralDilatedT", "ConvLocal", "ConvTranspose", "Dense", "DenseGeneral",
    "DotGeneralT", "Dtype", "Einsum", "Embed", "Initializer", "LaxPadding", "PRNGKey",
    "PaddingLike", "PrecisionLike", "PromoteDtypeFn", "Shape", "canonicalize_padding",
    "default_embed_init", "default_kernel_init",
]  # fmt: skip


def _normalize_axes(axes: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """The axes as sorted, nonnegative numbers."""
    return tuple(sorted(ax if ax >= 0 else ndim + ax for ax in axes))


class DenseGeneral(Module):
    """Linear map that sums over some axes of the input and appends new axes at the end.

    The axes in `axis` are summed over. The axes of the result are the batch axes, the remaining
    axes of the input in their original order, and the new axes, whose sizes are `features`. The
    shape of the parameter `kernel` consists of the sizes of the batch axes, the sizes of the axes
    in `axis`, and `features`. The shape of `bias` consists of the sizes of the batch axes and
    `features`.

    Args:
        features: size of the new axis, or the sizes of several new axes.
        axis: axis or axes of the input to sum over; negative numbers count from the end.
        batch_dims: leading axes (0, 1, ...) with a separate kernel and bias for each index.
        use_bias: whether to add a bias.
        dtype: dtype to compute in; None for the dtype that the input and the parameters promote to.
        param_dtype: dtype of the parameters when they are created.
        kernel_init: initializer of the kernel. It is called with the shape of a matrix, whose rows
            correspond to the batch and summed axes and whose columns correspond to the features.
            The initial value is then reshaped to the kernel's shape.
        bias_init: initializer of the bias. It is called with the shape of a vector. The initial
            value is then reshaped to the bias's shape.
        precision: precision of the matrix product (see `toile.lax.Precision`); if None, the default
            precision is used.
        promote_dtype: function that converts the arrays to a common dtype. It is called as
            `promote_dtype(inputs, kernel, bias, dtype=dtype)`.
        dot_general: function to use in place of `toile.lax.dot_general`.
        dot_general_cls: class or function that, when called without arguments, returns the function
            to use in place of `toile.lax.dot_general`. It takes precedence over `dot_general`.

    Raises:
        ValueError: `batch_dims` are not the leading axes.

    >>> import toile.linen as nn
    >>> layer = nn.DenseGeneral(features=(4, 5), axis=(1, -1))
    >>> variables = layer.init(key(0), jnp.ones((1, 3, 6, 7)))
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'bias': (4, 5), 'kernel': (3, 7, 4, 5)}}
    >>> layer.apply(variables, jnp.ones((1, 3, 6, 7))).shape
    (1, 6, 4, 5)
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
    dot_general_cls: Callable[..., DotGeneralT] | None = None

    @compact
    def __call__(self, inputs: Array) -> Array:
        """Sum over the axes `axis` of `inputs`, weighted by the kernel, and add the bias.

        Args:
            inputs: array that has the axes in `axis` and `batch_dims`.

        Returns:
            An array with the batch axes, the remaining axes of the input and the new axes.
        """
        features = as_tuple(self.features)
        axis = _normalize_axes(as_tuple(self.axis), inputs.ndim)
        batch_dims = as_tuple(self.batch_dims)
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
    """Linear map over the last axis of the input: `inputs @ kernel + bias`.

    For an input of shape (..., n), the result has shape (..., features). The parameters are
    `kernel` of shape (n, features) and `bias` of shape (features,).

    Args:
        features: number of output features.
        use_bias: whether to add a bias.
        dtype: dtype to compute in; None for the dtype that the input and the parameters promote to.
        param_dtype: dtype of the parameters when they are created.
        precision: precision of the matrix product (see `toile.lax.Precision`); if None, the default
            precision is used.
        kernel_init: initializer of the kernel; by default, LeCun normal.
        bias_init: initializer of the bias.
        promote_dtype: function that converts the arrays to a common dtype. It is called as
            `promote_dtype(inputs, kernel, bias, dtype=dtype)`.
        dot_general: function to use in place of `toile.lax.dot_general`.
        dot_general_cls: class or function that, when called without arguments, returns the function
            to use in place of `toile.lax.dot_general`. It takes precedence over `dot_general`.

    Raises:
        IndexError: the input is a scalar.

    >>> import toile.linen as nn
    >>> layer = nn.Dense(features=4)
    >>> variables = layer.init(key(0), jnp.ones((1, 3)))
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'bias': (4,), 'kernel': (3, 4)}}
    >>> layer.apply(variables, jnp.ones((2, 5, 3))).shape
    (2, 5, 4)
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
    dot_general_cls: Callable[..., DotGeneralT] | None = None

    @compact
    def __call__(self, inputs: Array) -> Array:
        """Multiply `inputs` by the kernel along the last axis, and add the bias.

        Args:
            inputs: array of shape (..., n).

        Returns:
            An array of shape (..., features).
        """
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
    """Einstein summation of the input and a kernel, plus a bias.

    The parameters are `kernel` of shape `shape`, and `bias`. The axes of the bias are those axes of
    the kernel that also occur in the result, in the order of the result.

    Args:
        shape: shape of the kernel.
        einsum_str: equation such as `"abc,cde->abde"`, with `->` and two operands, the input and
            the kernel. If `einsum_str` is None, the equation must be passed to the call instead.
        use_bias: whether to add a bias.
        dtype: dtype to compute in; None for the dtype that the input and the parameters promote to.
        param_dtype: dtype of the parameters when they are created.
        precision: precision of the summation (see `toile.lax.Precision`); if None, the default
            precision is used.
        kernel_init: initializer of the kernel; by default, LeCun normal.
        bias_init: initializer of the bias.
        promote_dtype: function that converts the arrays to a common dtype. It is called as
            `promote_dtype(inputs, kernel, bias, dtype=dtype)`.
        preferred_element_type: dtype of the sums and of the result; if None, the dtype of the
            computation is used.

    Raises:
        ValueError: the equation has no `->`, does not have two operands, is passed both here and to
            the call, or is not passed at all.
        AssertionError: `use_bias` is True, and the equation does not have a distinct label for each
            axis of the kernel.

    >>> import toile.linen as nn
    >>> layer = nn.Einsum((5, 6, 7), "abc,cde->abde")
    >>> variables = layer.init(key(0), jnp.ones((3, 4, 5)))
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'bias': (6, 7), 'kernel': (5, 6, 7)}}
    >>> layer.apply(variables, jnp.ones((3, 4, 5))).shape
    (3, 4, 6, 7)
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
        """Compute the Einstein summation of `inputs` and the kernel, and add the bias.

        Args:
            inputs: array with the axes of the first operand of the equation.
            einsum_str: the equation; if None, the layer's field is used.

        Returns:
            An array with the axes to the right of `->` in the equation.
        """
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
        """The shape of the bias, and the shape in which it broadcasts against the result."""
        return _bias_shapes(einsum_str, (jnp.ndim(lhs), jnp.ndim(rhs)), tuple(self.shape))


@functools.lru_cache(maxsize=1024)
def _bias_shapes(
    equation: str, ranks: tuple[int, int], shape: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of the bias, and the shape in which it broadcasts against the result."""
    named = equation.partition("->")[0].split(",")[1]
    letters = named.replace("...", "")
    if len(set(letters)) != len(letters) or (letters == named and len(named) != len(shape)):
        raise AssertionError(
            f"Einsum: needed a distinct label for each axis of the kernel {shape}, got {named!r} "
            f"in {equation!r} (with use_bias=False a label may occur twice){here()}"
        )
    terms, out = einsum_labels(equation, ranks)
    size = dict(zip(terms[1], shape, strict=True))
    return tuple(size[c] for c in out if c in size), tuple(size.get(c, 1) for c in out)
