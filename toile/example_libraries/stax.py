"""Layers as pairs of functions, as in `jax.example_libraries.stax`.

A layer is a pair `(init_fun, apply_fun)`: `init_fun(rng, input_shape)` returns the output shape and
the parameters, and `apply_fun(params, inputs, rng=None)` returns the outputs. The same key yields
the same parameters as in JAX. Names of layers begin with a capital letter. A function such as
`Dense` returns a layer. The following names are themselves layers, which have no parameters:

- `Tanh`, `Relu`, `Exp`, `Softplus`, `Sigmoid`, `Elu`, `LeakyRelu`, `Selu` and `Gelu` apply the
  function of that name to each element, and `Identity` returns its inputs.
- `Softmax` and `LogSoftmax` apply the function of that name along the last axis.
- `Flatten` merges all axes except the first into one axis.
- `FanInSum` adds up the arrays in a list.

In new code, use `toile.linen`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from toile import lax, random
from toile import numpy as jnp
from toile.engine.annotations import Array
from toile.engine.source import here
from toile.nn import (
    elu,
    gelu,
    leaky_relu,
    log_softmax,
    relu,
    selu,
    sigmoid,
    softmax,
    softplus,
    standardize,
)
from toile.nn.initializers import Initializer, glorot_normal, normal, ones, zeros

__all__ = [
    "AvgPool", "BatchNorm", "Conv", "Conv1DTranspose", "ConvTranspose", "Dense", "Dropout", "Elu",
    "Exp", "FanInConcat", "FanInSum", "FanOut", "Flatten", "Gelu", "GeneralConv",
    "GeneralConvTranspose", "Identity", "LeakyRelu", "LogSoftmax", "MaxPool", "Relu", "Selu",
    "Sigmoid", "Softmax", "Softplus", "SumPool", "Tanh", "elementwise", "elu", "gelu", "glorot",
    "glorot_normal", "leaky_relu", "log_softmax", "logsoftmax", "normal", "ones", "parallel",
    "randn", "relu", "selu", "serial", "shape_dependent", "sigmoid", "softmax", "softplus",
    "standardize", "zeros",
]  # fmt: skip

Layer = tuple[Callable[..., Any], Callable[..., Any]]
Padding = str | Sequence[tuple[int, int]]

# Former names of the initializers and of log_softmax.
glorot = glorot_normal
randn = normal
logsoftmax = log_softmax

# Defaults that are arguments, made once.
_GLOROT, _NORMAL, _SMALL = glorot_normal(), normal(), normal(1e-6)


def Dense(
    out_dim: int, W_init: Initializer = _GLOROT, b_init: Initializer = _NORMAL
) -> Layer:
    """A layer that computes `x @ W + b`.

    `W` has shape (features, out_dim), where `features` is the size of the last axis of the inputs.
    `b` has shape (out_dim,).

    Args:
        out_dim: size of the last axis of the outputs.
        W_init: initializer for W.
        b_init: initializer for b.

    Returns:
        The layer.

    >>> init, apply = serial(Dense(8), Relu, Dense(2))
    >>> shape, params = init(key(0), (-1, 4))
    >>> shape, apply(params, jnp.ones((3, 4))).shape
    ((-1, 2), (3, 2))
    """

    def init_fun(rng, input_shape):
        for_w, for_b = random.split(rng)
        W = W_init(for_w, (input_shape[-1], out_dim))
        return input_shape[:-1] + (out_dim,), (W, b_init(for_b, (out_dim,)))

    def apply_fun(params, inputs, **kwargs):
        W, b = params
        return jnp.dot(inputs, W) + b

    return init_fun, apply_fun


def _convolution(shape_of, convolve, dimension_numbers, out_chan, filter_shape, W_init, b_init):
    """A layer of one kernel and one bias per channel; `shape_of` and `convolve` define it.

    The second string in `dimension_numbers` gives the axes of W; b has the axes of the outputs.
    """
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    W_init = W_init or glorot_normal(rhs_spec.index("I"), rhs_spec.index("O"))

    def init_fun(rng, input_shape):
        window = iter(filter_shape)
        channels = {"O": lambda: out_chan, "I": lambda: input_shape[lhs_spec.index("C")]}
        kernel_shape = [channels[c]() if c in channels else next(window) for c in rhs_spec]
        bias_shape = [out_chan if c == "C" else 1 for c in out_spec]
        output_shape = shape_of(input_shape, kernel_shape)
        for_w, for_b = random.split(rng)
        return output_shape, (W_init(for_w, kernel_shape), b_init(for_b, bias_shape))

    def apply_fun(params, inputs, **kwargs):
        W, b = params
        return convolve(inputs, W) + b

    return init_fun, apply_fun


def GeneralConv(
    dimension_numbers: tuple[str, str, str], out_chan: int, filter_shape: Sequence[int],
    strides: Sequence[int] | None = None, padding: Padding = "VALID",
    W_init: Initializer | None = None, b_init: Initializer = _SMALL,
) -> Layer:
    """A layer that convolves its inputs with a kernel and adds a bias.

    Args:
        dimension_numbers: names of the axes of the inputs, the kernel and the outputs, such as
            ("NHWC", "HWIO", "NHWC"). N is the batch axis and C the channel axis; I and O are the
            kernel's axes for input and output channels.
        out_chan: number of output channels.
        filter_shape: sizes of the kernel along the spatial axes.
        strides: step of the kernel along each spatial axis; 1 by default.
        padding: "VALID", "SAME", or a pair (before, after) of padding sizes for each spatial axis.
        W_init: initializer for the kernel; if None, `glorot_normal` is used.
        b_init: initializer for the bias, which has one element for each output channel.

    Returns:
        The layer.

    >>> init, apply = GeneralConv(("NHWC", "HWIO", "NHWC"), 8, (3, 3))
    >>> shape, (W, b) = init(key(0), (1, 10, 10, 4))
    >>> shape, W.shape, b.shape
    ((1, 8, 8, 8), (3, 3, 4, 8), (1, 1, 1, 8))
    """
    one = (1,) * len(filter_shape)
    strides = strides or one

    def shape_of(inputs, kernel):
        return lax.conv_general_shape_tuple(inputs, kernel, strides, padding, dimension_numbers)

    def convolve(x, W):
        return lax.conv_general_dilated(
            x, W, strides, padding, one, one, dimension_numbers=dimension_numbers
        )

    return _convolution(
        shape_of, convolve, dimension_numbers, out_chan, filter_shape, W_init, b_init
    )


def GeneralConvTranspose(
    dimension_numbers: tuple[str, str, str], out_chan: int, filter_shape: Sequence[int],
    strides: Sequence[int] | None = None, padding: Padding = "VALID",
    W_init: Initializer | None = None, b_init: Initializer = _SMALL,
) -> Layer:
    """A layer that applies a transposed convolution and adds a bias; strides enlarge the outputs.

    Args:
        dimension_numbers: names of the axes of the inputs, the kernel and the outputs, such as
            ("NHWC", "HWIO", "NHWC"). N is the batch axis and C the channel axis; I and O are the
            kernel's axes for input and output channels.
        out_chan: number of output channels.
        filter_shape: sizes of the kernel along the spatial axes.
        strides: factor by which the output is larger than the input along each spatial axis; 1 by
            default.
        padding: "VALID", "SAME", or a pair (before, after) of padding sizes for each spatial axis.
        W_init: initializer for the kernel; if None, `glorot_normal` is used.
        b_init: initializer for the bias, which has one element for each output channel.

    Returns:
        The layer.
    """
    strides = strides or (1,) * len(filter_shape)

    def shape_of(inputs, kernel):
        return lax.conv_transpose_shape_tuple(inputs, kernel, strides, padding, dimension_numbers)

    def convolve(x, W):
        return lax.conv_transpose(x, W, strides, padding, dimension_numbers=dimension_numbers)

    return _convolution(
        shape_of, convolve, dimension_numbers, out_chan, filter_shape, W_init, b_init
    )


Conv = functools.partial(GeneralConv, ("NHWC", "HWIO", "NHWC"))
Conv1DTranspose = functools.partial(GeneralConvTranspose, ("NHC", "HIO", "NHC"))
ConvTranspose = functools.partial(GeneralConvTranspose, ("NHWC", "HWIO", "NHWC"))
_OF_IMAGES = "`{}` for images whose axes are examples, height, width and channels."
Conv.__doc__ = _OF_IMAGES.format("GeneralConv")
ConvTranspose.__doc__ = _OF_IMAGES.format("GeneralConvTranspose")
Conv1DTranspose.__doc__ = (
    "`GeneralConvTranspose` for inputs whose axes are examples, positions and channels."
)


def BatchNorm(
    axis: int | Sequence[int] = (0, 1, 2), epsilon: float = 1e-5, center: bool = True,
    scale: bool = True, beta_init: Initializer = zeros, gamma_init: Initializer = ones,
) -> Layer:
    """A layer that normalizes its inputs to mean 0 and variance 1, then scales and shifts them.

    The mean and the variance are always computed from the current batch, even during evaluation.
    The scale `gamma` and the shift `beta` have only the axes that are not in `axis`.

    Args:
        axis: axes over which the mean and the variance are computed.
        epsilon: number that is added to the variance.
        center: whether to add beta; if False, the parameters contain () instead of beta.
        scale: whether to multiply by gamma; if False, the parameters contain () instead of gamma.
        beta_init: initializer for beta.
        gamma_init: initializer for gamma.

    Returns:
        The layer.
    """
    axes: Any = (axis,) if jnp.isscalar(axis) else axis

    def init_fun(rng, input_shape):
        shape = tuple(n for i, n in enumerate(input_shape) if i not in axes)
        for_beta, for_gamma = random.split(rng)
        beta = beta_init(for_beta, shape) if center else ()
        gamma = gamma_init(for_gamma, shape) if scale else ()
        return input_shape, (beta, gamma)

    def apply_fun(params, x, **kwargs):
        beta, gamma = params
        along = tuple(None if i in axes else slice(None) for i in range(jnp.ndim(x)))
        y = standardize(x, axes, epsilon=epsilon)
        if scale:
            y = gamma[along] * y
        return y + beta[along] if center else y

    return init_fun, apply_fun


def _without_params(shape_of, fun) -> Layer:
    """A layer without parameters, from the shape of its outputs and a function."""

    def init_fun(rng, input_shape):
        return shape_of(input_shape), ()

    def apply_fun(params, inputs, **kwargs):
        return fun(inputs)

    return init_fun, apply_fun


def elementwise(fun: Callable[..., Array], **fun_kwargs: object) -> Layer:
    """A layer without parameters that applies a function and keeps the shape.

    Args:
        fun: function that is applied to the inputs.
        **fun_kwargs: keyword arguments for `fun`.

    Returns:
        The layer.
    """
    return _without_params(lambda shape: shape, lambda inputs: fun(inputs, **fun_kwargs))


Tanh = elementwise(jnp.tanh)
Relu = elementwise(relu)
Exp = elementwise(jnp.exp)
LogSoftmax = elementwise(log_softmax, axis=-1)
Softmax = elementwise(softmax, axis=-1)
Softplus = elementwise(softplus)
Sigmoid = elementwise(sigmoid)
Elu = elementwise(elu)
LeakyRelu = elementwise(leaky_relu)
Selu = elementwise(selu)
Gelu = elementwise(gelu)
Identity = elementwise(lambda x: x)


def _kept_axes(spec, ndim):
    """The axes of examples and channels, in order."""
    return (0, ndim - 1) if spec is None else sorted((spec.index("N"), spec.index("C")))


def _pooling(reducer, init_val, window_shape, strides, padding, spec, mean=False) -> Layer:
    """A layer that combines the elements of each window by `reducer`, or averages them if `mean`.

    Padding does not contribute to the results."""
    space = window_shape, strides or (1,) * len(window_shape)
    window, steps = space
    for i in _kept_axes(spec, len(window_shape) + 2):
        window, steps = (v[:i] + (1,) + v[i:] for v in (window, steps))

    def shape_of(input_shape):
        pads = lax.padtype_to_pads(input_shape, window, steps, padding)
        one = (1,) * len(window)
        return lax.reduce_window_shape_tuple(input_shape, window, steps, pads, one, one)

    def pool(inputs):
        out = lax.reduce_window(inputs, init_val, reducer, window, steps, padding)
        if not mean:
            return out
        kept = _kept_axes(spec, inputs.ndim)
        shape = [n for i, n in enumerate(inputs.shape) if i not in kept]
        filled = jnp.ones(shape, dtype=inputs.dtype)
        sizes = lax.reduce_window(filled, 0.0, lax.add, *space, padding)
        return out / jnp.expand_dims(sizes, tuple(kept))

    return _without_params(shape_of, pool)


def MaxPool(
    window_shape: tuple[int, ...], strides: tuple[int, ...] | None = None,
    padding: str = "VALID", spec: str | None = None,
) -> Layer:
    """A layer that computes the maximum of the elements in each window.

    Args:
        window_shape: sizes of the window along the spatial axes.
        strides: step between windows along each spatial axis; 1 by default.
        padding: "VALID" uses only windows that lie inside the inputs. "SAME" pads the inputs so
            that there is a window at every position, or at every `strides`-th position.
        spec: names of the axes in order, such as "NCHW", where N is the batch axis and C the
            channel axis. If `spec` is None, N is first and C is last.

    Returns:
        The layer.

    >>> init, apply = MaxPool((2, 2), strides=(2, 2))
    >>> print(apply((), jnp.arange(16.0).reshape(1, 4, 4, 1))[0, :, :, 0])
    [[ 5.  7.]
     [13. 15.]]
    """
    return _pooling(lax.max, -jnp.inf, window_shape, strides, padding, spec)


def SumPool(
    window_shape: tuple[int, ...], strides: tuple[int, ...] | None = None,
    padding: str = "VALID", spec: str | None = None,
) -> Layer:
    """A layer that computes the sum of the elements in each window.

    Args:
        window_shape: sizes of the window along the spatial axes.
        strides: step between windows along each spatial axis; 1 by default.
        padding: "VALID" uses only windows that lie inside the inputs. "SAME" pads the inputs so
            that there is a window at every position, or at every `strides`-th position.
        spec: names of the axes in order, such as "NCHW", where N is the batch axis and C the
            channel axis. If `spec` is None, N is first and C is last.

    Returns:
        The layer.
    """
    return _pooling(lax.add, 0.0, window_shape, strides, padding, spec)


def AvgPool(
    window_shape: tuple[int, ...], strides: tuple[int, ...] | None = None,
    padding: str = "VALID", spec: str | None = None,
) -> Layer:
    """A layer that computes the mean of the elements in each window; padding is not counted.

    Args:
        window_shape: sizes of the window along the spatial axes.
        strides: step between windows along each spatial axis; 1 by default.
        padding: "VALID" uses only windows that lie inside the inputs. "SAME" pads the inputs so
            that there is a window at every position, or at every `strides`-th position.
        spec: names of the axes in order, such as "NCHW", where N is the batch axis and C the
            channel axis. If `spec` is None, N is first and C is last.

    Returns:
        The layer.
    """
    return _pooling(lax.add, 0.0, window_shape, strides, padding, spec, mean=True)


# All axes but the first as one, and the sum of the inputs.
Flatten = _without_params(
    lambda shape: (shape[0], math.prod(shape[1:])),
    lambda inputs: jnp.reshape(inputs, (inputs.shape[0], -1)),
)
FanInSum = _without_params(lambda shapes: shapes[0], sum)


def FanOut(num: int) -> Layer:
    """A layer that returns a list of copies of its input, for use with `parallel`.

    Args:
        num: number of copies.

    Returns:
        The layer.
    """
    return _without_params(lambda shape: [shape] * num, lambda inputs: [inputs] * num)


def FanInConcat(axis: int = -1) -> Layer:
    """A layer that concatenates the arrays in a list.

    Args:
        axis: axis along which the arrays are concatenated.

    Returns:
        The layer.
    """

    def shape_of(shapes):
        first = shapes[0]
        at = axis % len(first)
        total = sum(shape[at] for shape in shapes)
        return first[:at] + (total,) + first[at + 1 :]

    return _without_params(shape_of, lambda inputs: jnp.concatenate(inputs, axis))


def Dropout(rate: float, mode: str = "train") -> Layer:
    """A layer that sets random elements to zero during training.

    `apply_fun` needs a random key as `rng` in every mode.

    Args:
        rate: probability that an element is kept. Elements that are kept are divided by `rate`.
        mode: "train" applies dropout; with any other value, the inputs are returned unchanged.

    Returns:
        The layer.

    >>> init, apply = Dropout(0.5)
    >>> print(apply((), jnp.ones(5), rng=key(0)))
    [0. 0. 2. 2. 0.]
    """

    def init_fun(rng, input_shape):
        return input_shape, ()

    def apply_fun(params, inputs, **kwargs):
        rng = kwargs.get("rng")
        if rng is None:
            raise ValueError(
                "Dropout: needed a key, got none (call apply_fun(params, inputs, rng=key) with a "
                f"key as from toile.random.key){here()}"
            )
        if mode != "train":
            return inputs
        keep = random.bernoulli(rng, rate, inputs.shape)
        return jnp.where(keep, inputs / rate, 0)

    return init_fun, apply_fun


def _keys(kwargs, n):
    """A key for each of n layers, from the keyword `rng`, which is removed; None if there is
    none."""
    rng = kwargs.pop("rng", None)
    return (None,) * n if rng is None else random.split(rng, n)


def serial(*layers: Layer) -> Layer:
    """A layer that applies several layers one after another.

    Args:
        *layers: the layers; each receives the outputs of the layer before it.

    Returns:
        The layer. Its parameters are a list that contains each layer's parameters.

    >>> init, apply = serial(Dense(8), Relu, Dense(2))
    >>> shape, params = init(key(0), (-1, 4))
    >>> shape, apply(params, jnp.ones((3, 4))).shape
    ((-1, 2), (3, 2))
    """
    init_funs, apply_funs = zip(*layers)

    def init_fun(rng, input_shape):
        params = []
        for init in init_funs:
            rng, layer_rng = random.split(rng)
            input_shape, param = init(layer_rng, input_shape)
            params.append(param)
        return input_shape, params

    def apply_fun(params, inputs, **kwargs):
        rngs = _keys(kwargs, len(layers))
        for apply, param, rng in zip(apply_funs, params, rngs):
            inputs = apply(param, inputs, rng=rng, **kwargs)
        return inputs

    return init_fun, apply_fun


def parallel(*layers: Layer) -> Layer:
    """A layer that applies several layers, each to its own element of a list of inputs.

    Args:
        *layers: layers, one for each array in the list of inputs.

    Returns:
        The layer. Its outputs are a list, and its parameters are a tuple that contains each layer's
        parameters.

    >>> init, apply = serial(FanOut(2), parallel(Dense(3), Identity), FanInConcat())
    >>> shape, params = init(key(0), (-1, 4))
    >>> shape, apply(params, jnp.ones((5, 4))).shape
    ((-1, 7), (5, 7))
    """
    init_funs, apply_funs = zip(*layers)

    def init_fun(rng, input_shape):
        rngs = random.split(rng, len(layers))
        return tuple(zip(*[f(r, s) for f, r, s in zip(init_funs, rngs, input_shape)]))

    def apply_fun(params, inputs, **kwargs):
        rngs = _keys(kwargs, len(layers))
        each = zip(apply_funs, params, inputs, rngs)
        return [apply(p, x, rng=r, **kwargs) for apply, p, x, r in each]

    return init_fun, apply_fun


def shape_dependent(make_layer: Callable[[tuple[int, ...]], Layer]) -> Layer:
    """A layer that is created only when the shape of its inputs is known.

    Args:
        make_layer: function that is called with the input shape and returns a layer.

    Returns:
        The layer.
    """

    def init_fun(rng, input_shape):
        return make_layer(input_shape)[0](rng, input_shape)

    def apply_fun(params, inputs, **kwargs):
        return make_layer(inputs.shape)[1](params, inputs, **kwargs)

    return init_fun, apply_fun
