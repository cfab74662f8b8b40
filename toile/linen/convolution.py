"""Convolutions over the spatial axes of channels-last inputs: Conv, ConvLocal, ConvTranspose.

An input has shape (*batch, *space, input features), with any number of batch axes. A kernel has
shape (*space, input features, features). `toile.lax` does not support the paddings CIRCULAR,
REFLECT and CAUSAL. Conv and ConvLocal apply them to the input, and ConvTranspose applies CIRCULAR
to the result.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from toile import lax
from toile import numpy as jnp
from toile.api.programs import eval_shape
from toile.core.nn.linear import add_bias, channels_last, default_kernel_init, grouped_kernel_shape
from toile.engine.errors import ShapeError
from toile.engine.source import here
from toile.engine.structs import ShapeDtypeStruct
from toile.linen.dtypes import DtypePromotion, promote_dtype
from toile.linen.module import Module, compact, nowrap
from toile.linen.weights import chosen, kernel_and_bias
from toile.nn import initializers
from toile.typing import (
    Array,
    ConvGeneralDilatedT,
    Dtype,
    Initializer,
    LaxPadding,
    PaddingLike,
    PrecisionLike,
)


def _conv_dimension_numbers(input_shape: Sequence[int]) -> Any:
    """Dimension numbers for channels-last inputs and results, and kernels (*space, in, out)."""
    return channels_last(len(input_shape))


def canonicalize_padding(padding: PaddingLike, rank: int) -> LaxPadding:
    """Convert a padding argument to a standard form: a name, or a pair (low, high) for each axis.

    Args:
        padding: a name such as `"SAME"`, which is returned unchanged; an int for both sides of all
            axes; or a sequence that contains, for each axis, an int for both sides or a pair
            (low, high).
        rank: number of axes.

    Returns:
        The name, or a list of `rank` pairs.

    Raises:
        ValueError: `padding` has none of these forms.

    >>> from toile.linen.linear import canonicalize_padding
    >>> canonicalize_padding((1, (2, 0)), 2)
    [(1, 1), (2, 0)]
    """
    if isinstance(padding, str):
        return padding
    if isinstance(padding, int):
        return [(padding, padding)] * rank
    if isinstance(padding, Sequence) and len(padding) == rank:
        pairs: list[Any] = [(p, p) if isinstance(p, int) else p for p in padding]
        if all(isinstance(p, tuple) and len(p) == 2 for p in pairs):
            return pairs
    raise ValueError(
        f"Invalid padding format: {padding}, should be str, int, or a sequence of len {rank} where "
        f"each element is an int or pair of ints.{here()}"
    )


def _sizes(x: int | Sequence[int]) -> tuple[int, ...]:
    return (x,) if isinstance(x, int) else tuple(x)


def _for_each(layer: "_Conv | ConvTranspose", name: str, rank: int) -> tuple[int, ...]:
    """The value of a field as a tuple with one number for each spatial axis; if None, 1."""
    x = getattr(layer, name)
    if x is None or isinstance(x, int):
        return (1 if x is None else x,) * rank
    if len(x) != rank:
        raise ShapeError(
            f"{type(layer).__name__}: needed {name} to be an int or {rank} of them, one for each "
            f"size of kernel_size={layer.kernel_size}, got {x}{here()}"
        )
    return tuple(x)


def _with_one_batch_axis(layer: Module, inputs: Any, rank: int) -> tuple[Any, Any]:
    """The input with its batch axes merged into one, and their sizes (None if there was one)."""
    n_batch = inputs.ndim - rank - 1
    if n_batch == 1:
        return inputs, None
    if n_batch < 0:
        raise ValueError(
            f"{type(layer).__name__}: needed inputs of rank >= {rank + 1} (spatial axes, then "
            f"features) for a kernel_size of {rank} sizes, got shape {inputs.shape} (for a 1D "
            f"convolution give one kernel size){here()}"
        )
    batch = inputs.shape[:n_batch]
    return jnp.reshape(inputs, (math.prod(batch), *inputs.shape[n_batch:])), batch


def _masked_parameters(layer: Any, kernel_shape: Any, bias_shape: Any) -> tuple[Any, Any]:
    """The kernel, multiplied by the mask if there is one, and the bias or None."""
    mask = layer.mask
    if mask is not None and mask.shape != kernel_shape:
        raise ValueError(
            "Mask needs to have the same shape as weights. Shapes are: "
            f"{mask.shape}, {kernel_shape} (in {type(layer).__name__}){here()}"
        )
    kernel, bias = kernel_and_bias(layer, kernel_shape, bias_shape)
    return kernel if mask is None else kernel * mask, bias


_PAD_MODES = {"CIRCULAR": "wrap", "REFLECT": "reflect"}
_LAX_MODES = ("SAME", "VALID", "SAME_LOWER")


def _padded(
    inputs: Any, padding: PaddingLike, kernel_size: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[Any, LaxPadding]:
    """Apply padding that `lax` does not support; return the input and the remaining padding."""
    left = canonicalize_padding(padding, len(kernel_size))
    if not isinstance(left, str):
        return inputs, left
    if left in _PAD_MODES:
        reach = [(k - 1) * d for k, d in zip(kernel_size, dilation, strict=True)]
        pads = [(0, 0), *[(r // 2, (r + 1) // 2) for r in reach], (0, 0)]
        return jnp.pad(inputs, pads, mode=_PAD_MODES[left]), "VALID"
    if left == "CAUSAL":
        if len(kernel_size) != 1:
            raise ValueError(
                "Causal padding is only implemented for 1D convolutions: needed one kernel size, "
                f"got {kernel_size}{here()}"
            )
        pads = [(0, 0), (dilation[0] * (kernel_size[0] - 1), 0), (0, 0)]
        return jnp.pad(inputs, pads), "VALID"
    return inputs, left


def _check_mode(layer: Module, padding: LaxPadding) -> None:
    """Check that `lax` supports a padding mode that is passed to it."""
    if isinstance(padding, str) and padding.upper() not in _LAX_MODES:
        raise RuntimeError(
            f"Unrecognized padding type. {type(layer).__name__}: needed one of {_LAX_MODES}, "
            f"{(*_PAD_MODES, 'CAUSAL')}, an int, or an int or a (low, high) for each axis, got "
            f"{padding!r}{here()}"
        )


class _Conv(Module):
    """Base class of Conv and ConvLocal; see Conv for the fields."""

    features: int
    kernel_size: int | Sequence[int]
    strides: None | int | Sequence[int] = 1
    padding: PaddingLike = "SAME"
    input_dilation: None | int | Sequence[int] = 1
    kernel_dilation: None | int | Sequence[int] = 1
    feature_group_count: int = 1
    use_bias: bool = True
    mask: Array | None = None
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    precision: PrecisionLike = None
    kernel_init: Initializer = default_kernel_init
    bias_init: Initializer = initializers.zeros
    promote_dtype: DtypePromotion = promote_dtype
    conv_general_dilated: ConvGeneralDilatedT | None = None
    conv_general_dilated_cls: Callable[..., ConvGeneralDilatedT] | None = None

    @property
    def shared_weights(self) -> bool:
        """Whether all positions of the output use the same kernel."""
        raise NotImplementedError

    @compact
    def __call__(self, inputs: Array) -> Array:
        """Convolve `inputs` with the kernel and add the bias.

        Args:
            inputs: array of shape (*batch, *space, n); the number of batch axes is arbitrary.

        Returns:
            An array of shape (*batch, *new space, features).
        """
        kernel_size = _sizes(self.kernel_size)
        rank = len(kernel_size)
        inputs, batch = _with_one_batch_axis(self, inputs, rank)
        dilation = _for_each(self, "kernel_dilation", rank)
        inputs, padding = _padded(inputs, self.padding, kernel_size, dilation)
        convolve = chosen(
            self.conv_general_dilated_cls, self.conv_general_dilated, lax.conv_general_dilated
        )
        if convolve is lax.conv_general_dilated:
            _check_mode(self, padding)
        options = {
            "window_strides": _for_each(self, "strides", rank),
            "padding": padding,
            "lhs_dilation": _for_each(self, "input_dilation", rank),
            "rhs_dilation": dilation,
            "dimension_numbers": _conv_dimension_numbers(inputs.shape),
        }
        shared = self.shared_weights
        shapes = self._shared_shapes if shared else self._local_shapes
        kernel_shape, bias_shape = shapes(inputs, kernel_size, convolve, options)
        kernel, bias = _masked_parameters(self, kernel_shape, bias_shape)
        inputs, kernel, bias = self.promote_dtype(inputs, kernel, bias, dtype=self.dtype)
        options["precision"] = self.precision
        if shared:
            # Users' replacements of conv_general_dilated get these two arguments by position.
            strides, padding = options.pop("window_strides"), options.pop("padding")
            options["feature_group_count"] = self.feature_group_count
            y = convolve(inputs, kernel, strides, padding, **options)
        else:
            options["filter_shape"] = kernel_size
            y = lax.conv_general_dilated_local(lhs=inputs, rhs=kernel, **options)
        if bias is not None:
            y = add_bias(y, bias)
        return y if batch is None else jnp.reshape(y, batch + y.shape[1:])

    @nowrap
    def _shared_shapes(self, inputs: Any, kernel_size: Any, convolve: Any, options: Any) -> Any:
        """The shapes of the kernel and the bias that all positions use."""
        shape = grouped_kernel_shape(
            type(self).__name__, inputs.shape, kernel_size, self.feature_group_count, self.features
        )
        return shape, (self.features,)

    @nowrap
    def _local_shapes(self, inputs: Any, kernel_size: Any, convolve: Any, options: Any) -> Any:
        """The shapes of the kernels and biases, with one of each for every output position."""
        if self.feature_group_count != 1:
            raise NotImplementedError(
                "`lax.conv_general_dilated_local` does not support `feature_group_count != 1`, got "
                f"`{self.feature_group_count}`.{here()}"
            )
        kernel = ShapeDtypeStruct((*kernel_size, inputs.shape[-1], self.features), inputs.dtype)
        out = eval_shape(lambda lhs, rhs: convolve(lhs=lhs, rhs=rhs, **options), inputs, kernel)
        patch = math.prod(kernel_size) * inputs.shape[-1]
        return (*out.shape[1:-1], patch, self.features), out.shape[1:]


class Conv(_Conv):
    """Convolution over the spatial axes, with the same kernel at all positions.

    An input has shape (*batch, *space, n), with one spatial axis for each entry of `kernel_size`
    and any number of batch axes. The result has shape (*batch, *new space, features). The
    parameters are `kernel` of shape (*kernel_size, n // feature_group_count, features) and `bias`
    of shape (features,).

    Args:
        features: number of output features.
        kernel_size: size of the kernel along each spatial axis; an int for one spatial axis.
        strides: step between windows along each spatial axis, or an int for all axes; 1 by default.
        padding: padding of the input. With `"SAME"`, the output size along each axis is the input
            size divided by the stride, rounded up. `"VALID"` adds no padding. `"CIRCULAR"`
            continues the input periodically, and `"REFLECT"` mirrors it. `"CAUSAL"`, which requires
            exactly one spatial axis, adds zeros before the start so that no output depends on later
            inputs. If `padding` is an int, it is the number of zeros to add on every side. If it is
            a sequence, it contains an int or a pair (low, high) for each spatial axis.
        input_dilation: distance between elements of the input along each spatial axis, or an int
            for all axes. Zeros are inserted between the elements. The default is 1.
        kernel_dilation: distance between elements of the kernel along each spatial axis, or an int
            for all axes; 1 by default.
        feature_group_count: number of groups into which the input and output features are divided.
            Each group of output features depends on only one group of input features.
        use_bias: whether to add a bias.
        mask: array with the kernel's shape, by which the kernel is multiplied; None for no mask.
        dtype: dtype to compute in; None for the dtype that the input and the parameters promote to.
        param_dtype: dtype of the parameters when they are created.
        precision: precision of the convolution (see `toile.lax.Precision`); if None, the default
            precision is used.
        kernel_init: initializer of the kernel; by default, LeCun normal.
        bias_init: initializer of the bias.
        promote_dtype: function that converts the arrays to a common dtype. It is called as
            `promote_dtype(inputs, kernel, bias, dtype=dtype)`.
        conv_general_dilated: function to use in place of `toile.lax.conv_general_dilated`.
        conv_general_dilated_cls: class or function that, when called without arguments, returns the
            function to use in place of `toile.lax.conv_general_dilated`. It takes precedence over
            `conv_general_dilated`.

    Raises:
        ValueError: the input has too few axes, the shape of `mask` differs from the kernel's shape,
            or the padding is `"CAUSAL"` and there are several spatial axes.

    >>> import toile.linen as nn
    >>> layer = nn.Conv(features=4, kernel_size=(3,), padding="VALID")
    >>> variables = layer.init(key(0), jnp.ones((1, 8, 3)))
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'bias': (4,), 'kernel': (3, 3, 4)}}
    >>> layer.apply(variables, jnp.ones((1, 8, 3))).shape
    (1, 6, 4)

    The next example convolves an image that has no batch axis and is extended periodically:

    >>> around = nn.Conv(features=4, kernel_size=(3, 3), strides=2, padding="CIRCULAR")
    >>> y, variables = around.init_with_output(key(0), jnp.ones((6, 8, 3)))
    >>> y.shape, toile.tree.map(jnp.shape, variables)
    ((3, 4, 4), {'params': {'bias': (4,), 'kernel': (3, 3, 3, 4)}})
    """

    @property
    def shared_weights(self) -> bool:
        """True: all positions of the output use the same kernel."""
        return True


class ConvLocal(_Conv):
    """Convolution with a separate kernel and bias for each position of the output.

    An input has shape (*batch, *space, n), with one spatial axis for each entry of `kernel_size`
    and any number of batch axes. The result has shape (*batch, *new space, features). The
    parameters are `kernel` of shape (*new space, prod(kernel_size) * n, features) and `bias` of
    shape (*new space, features), so all inputs of a layer must have the same spatial size.

    Args:
        features: number of output features.
        kernel_size: size of the kernel along each spatial axis; an int for one spatial axis.
        strides: step between windows along each spatial axis, or an int for all axes; 1 by default.
        padding: padding of the input, as in `Conv`.
        input_dilation: distance between elements of the input along each spatial axis, or an int
            for all axes. Zeros are inserted between the elements. The default is 1.
        kernel_dilation: distance between elements of the kernel along each spatial axis, or an int
            for all axes; 1 by default.
        feature_group_count: must be 1.
        use_bias: whether to add a bias.
        mask: array with the kernel's shape, by which the kernel is multiplied; None for no mask.
        dtype: dtype to compute in; None for the dtype that the input and the parameters promote to.
        param_dtype: dtype of the parameters when they are created.
        precision: precision of the convolution (see `toile.lax.Precision`); if None, the default
            precision is used.
        kernel_init: initializer of the kernel; by default, LeCun normal.
        bias_init: initializer of the bias.
        promote_dtype: function that converts the arrays to a common dtype. It is called as
            `promote_dtype(inputs, kernel, bias, dtype=dtype)`.
        conv_general_dilated: function that determines the shape of the output. The output itself is
            always computed by `toile.lax.conv_general_dilated_local`.
        conv_general_dilated_cls: class or function that, when called without arguments, returns the
            function to use as `conv_general_dilated`.

    Raises:
        NotImplementedError: `feature_group_count` is not 1.

    >>> import toile.linen as nn
    >>> layer = nn.ConvLocal(features=4, kernel_size=(3,), padding="VALID")
    >>> variables = layer.init(key(0), jnp.ones((1, 8, 3)))
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'bias': (6, 4), 'kernel': (6, 9, 4)}}
    >>> layer.apply(variables, jnp.ones((2, 8, 3))).shape
    (2, 6, 4)
    """

    @property
    def shared_weights(self) -> bool:
        """False: each position of the output has a separate kernel."""
        return False


class ConvTranspose(Module):
    """Transposed convolution, which upsamples each spatial axis by its stride.

    An input has shape (*batch, *space, n), with one spatial axis for each entry of `kernel_size`
    and any number of batch axes. The result has shape (*batch, *new space, features). With the
    paddings `"SAME"` and `"CIRCULAR"`, the size of each spatial axis is multiplied by its stride.
    The parameters are `kernel` of shape (*kernel_size, n, features), or (*kernel_size, features, n)
    if `transpose_kernel` is True, and `bias` of shape (features,).

    Args:
        features: number of output features.
        kernel_size: size of the kernel along each spatial axis; an int for one spatial axis.
        strides: factors by which the spatial axes are upsampled, or an int for all axes; 1 by
            default. Zeros are inserted between the elements of the input.
        padding: `"SAME"`, `"VALID"`, `"CIRCULAR"` (periodic), an int for every side, or a sequence
            with an int or a pair (low, high) for each spatial axis.
        kernel_dilation: distance between elements of the kernel along each spatial axis, or an int
            for all axes; 1 by default.
        use_bias: whether to add a bias.
        mask: array with the kernel's shape, by which the kernel is multiplied; None for no mask.
        dtype: dtype to compute in; None for the dtype that the input and the parameters promote to.
        param_dtype: dtype of the parameters when they are created.
        precision: precision of the convolution (see `toile.lax.Precision`); if None, the default
            precision is used.
        kernel_init: initializer of the kernel; by default, LeCun normal.
        bias_init: initializer of the bias.
        transpose_kernel: whether `kernel` is stored as in the corresponding ordinary convolution.
            If True, the spatial axes of `kernel` are flipped and its feature axes are swapped
            before it is used.
        promote_dtype: function that converts the arrays to a common dtype. It is called as
            `promote_dtype(inputs, kernel, bias, dtype=dtype)`.
        preferred_element_type: dtype of the sums and of the result; if None, the dtype of the
            computation is used.

    Raises:
        ValueError: the input has too few axes, or the shape of `mask` differs from the kernel's
            shape.

    >>> import toile.linen as nn
    >>> layer = nn.ConvTranspose(features=4, kernel_size=(3,), padding="VALID")
    >>> variables = layer.init(key(0), jnp.ones((1, 8, 3)))
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'bias': (4,), 'kernel': (3, 3, 4)}}
    >>> layer.apply(variables, jnp.ones((1, 8, 3))).shape
    (1, 10, 4)
    >>> around = nn.ConvTranspose(4, (6, 6), strides=(2, 2), padding="CIRCULAR")
    >>> around.init_with_output(key(0), jnp.ones((1, 15, 15, 3)))[0].shape
    (1, 30, 30, 4)
    """

    features: int
    kernel_size: int | Sequence[int]
    strides: None | int | Sequence[int] = None
    padding: PaddingLike = "SAME"
    kernel_dilation: None | int | Sequence[int] = None
    use_bias: bool = True
    mask: Array | None = None
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    precision: PrecisionLike = None
    kernel_init: Initializer = default_kernel_init
    bias_init: Initializer = initializers.zeros
    transpose_kernel: bool = False
    promote_dtype: DtypePromotion = promote_dtype
    preferred_element_type: Dtype | None = None

    @compact
    def __call__(self, inputs: Array) -> Array:
        """Convolve `inputs` with the kernel and add the bias.

        Args:
            inputs: array of shape (*batch, *space, n); the number of batch axes is arbitrary.

        Returns:
            An array of shape (*batch, *new space, features).
        """
        kernel_size = _sizes(self.kernel_size)
        rank = len(kernel_size)
        inputs, batch = _with_one_batch_axis(self, inputs, rank)
        strides = _for_each(self, "strides", rank)
        in_out = (inputs.shape[-1], self.features)
        kernel_shape = (*kernel_size, *(in_out[::-1] if self.transpose_kernel else in_out))
        kernel, bias = _masked_parameters(self, kernel_shape, (self.features,))
        padding = canonicalize_padding(self.padding, rank)
        circular = isinstance(padding, str) and padding == "CIRCULAR"
        inputs, kernel, bias = self.promote_dtype(inputs, kernel, bias, dtype=self.dtype)
        y = lax.conv_transpose(
            inputs, kernel, strides, "VALID" if circular else padding,
            rhs_dilation=_for_each(self, "kernel_dilation", rank),
            transpose_kernel=self.transpose_kernel, precision=self.precision,
            preferred_element_type=self.preferred_element_type,
        )  # fmt: skip
        if circular:
            periods = [n * s for n, s in zip(inputs.shape[1:-1], strides, strict=True)]
            y = _wrapped_around(y, periods, self.transpose_kernel)
        if bias is not None:
            y = add_bias(y, bias)
        return y if batch is None else jnp.reshape(y, batch + y.shape[1:])


def _wrapped_around(y: Any, periods: Sequence[int], extra_right: bool) -> Any:
    """Sum the elements that are a whole number of periods apart, along each spatial axis.

    The full result is first padded to an odd multiple of the period, so that position 0 of the sum
    is position 0 of the input. If the number of zeros to add is odd, `extra_right` selects the side
    that gets one more.
    """
    pads = [(0, 0)]
    for n, period in zip(y.shape[1:-1], periods, strict=True):
        missing = (period - n) % (2 * period)
        less, more = missing // 2, (missing + 1) // 2
        pads.append((less, more) if extra_right else (more, less))
    y = jnp.pad(y, [*pads, (0, 0)])
    for axis, period in enumerate(periods, 1):
        y = jnp.reshape(y, (*y.shape[:axis], y.shape[axis] // period, period, *y.shape[axis + 1 :]))
        y = jnp.sum(y, axis=axis)
    return y
