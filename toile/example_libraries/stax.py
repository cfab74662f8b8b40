"""Layers as pairs of functions, as in `jax.example_libraries.stax`.

A layer is `(init_fun, apply_fun)`: `init_fun(rng, input_shape)` gives the output shape and the
parameters, `apply_fun(params, inputs, rng=None)` the outputs. The same key makes the same
parameters as there. Names of layers begin with a capital; those that take no options are the pair
itself, the others return one. Built on `toile.nn`, `toile.lax` and `toile.random` only. New code
is better off with `toile.linen`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from toile import lax, random
from toile import numpy as jnp
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
from toile.nn.initializers import glorot_normal, normal, ones, zeros

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

# Former names of the initializers and of log_softmax.
glorot = glorot_normal
randn = normal
logsoftmax = log_softmax

# Defaults that are arguments, made once.
_GLOROT, _NORMAL, _SMALL = glorot_normal(), normal(), normal(1e-6)


def Dense(out_dim, W_init=_GLOROT, b_init=_NORMAL) -> Layer:
    """Every feature from all features: x @ W + b, with W (features, out_dim) and b (out_dim,).

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
    """A layer of one kernel and one bias per channel; `shape_of` and `convolve` say what it does.

    W has the order of axes of the second of the dimension numbers, b has the outputs' axes."""
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
    dimension_numbers, out_chan, filter_shape, strides=None, padding="VALID", W_init=None,
    b_init=_SMALL,
) -> Layer:
    """Convolution; `dimension_numbers` are the axes of inputs, kernel and outputs as strings."""
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
    dimension_numbers, out_chan, filter_shape, strides=None, padding="VALID", W_init=None,
    b_init=_SMALL,
) -> Layer:
    """Transposed convolution, with the arguments of `GeneralConv`: strides make outputs larger."""
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


def BatchNorm(
    axis=(0, 1, 2), epsilon=1e-5, center=True, scale=True, beta_init=zeros, gamma_init=ones
) -> Layer:
    """Mean 0 and variance 1 over `axis` of the batch at hand, then times gamma, plus beta.

    Both have the axes that remain; one that `scale` or `center` leaves out is ()."""
    axis = (axis,) if jnp.isscalar(axis) else axis

    def init_fun(rng, input_shape):
        shape = tuple(n for i, n in enumerate(input_shape) if i not in axis)
        for_beta, for_gamma = random.split(rng)
        beta = beta_init(for_beta, shape) if center else ()
        gamma = gamma_init(for_gamma, shape) if scale else ()
        return input_shape, (beta, gamma)

    def apply_fun(params, x, **kwargs):
        beta, gamma = params
        along = tuple(None if i in axis else slice(None) for i in range(jnp.ndim(x)))
        y = standardize(x, axis, epsilon=epsilon)
        if scale:
            y = gamma[along] * y
        return y + beta[along] if center else y

    return init_fun, apply_fun


def _without_params(shape_of, fun) -> Layer:
    """A layer that has no parameters, of the shape of its outputs and a function."""

    def init_fun(rng, input_shape):
        return shape_of(input_shape), ()

    def apply_fun(params, inputs, **kwargs):
        return fun(inputs)

    return init_fun, apply_fun


def elementwise(fun, **fun_kwargs) -> Layer:
    """The layer of a function that keeps the shape; it has no parameters."""
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


def _pooling(reducer, init_val, mean=False):
    """The constructor of layers that fold windows by `reducer`, over their sizes if `mean`."""

    def PoolingLayer(window_shape, strides=None, padding="VALID", spec=None) -> Layer:
        """Pooling over windows in space; `spec` names the axes ("NHWC" if not given).

        Padded places belong to no window, so a mean is that of the others."""
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

    return PoolingLayer


MaxPool = _pooling(lax.max, -jnp.inf)
SumPool = _pooling(lax.add, 0.0)
AvgPool = _pooling(lax.add, 0.0, mean=True)


# All axes but the first as one, and the sum of the inputs.
Flatten = _without_params(
    lambda shape: (shape[0], math.prod(shape[1:])),
    lambda inputs: jnp.reshape(inputs, (inputs.shape[0], -1)),
)
FanInSum = _without_params(lambda shapes: shapes[0], sum)


def FanOut(num) -> Layer:
    """A list of the input, `num` times: what `parallel` takes."""
    return _without_params(lambda shape: [shape] * num, lambda inputs: [inputs] * num)


def FanInConcat(axis=-1) -> Layer:
    """The inputs, one after the other along `axis`."""

    def shape_of(shapes):
        first = shapes[0]
        at = axis % len(first)
        total = sum(shape[at] for shape in shapes)
        return first[:at] + (total,) + first[at + 1 :]

    return _without_params(shape_of, lambda inputs: jnp.concatenate(inputs, axis))


def Dropout(rate, mode="train") -> Layer:
    """Keeps elements with probability `rate`, over `rate`, and makes the others zero.

    Only in mode "train"; `rate` is the share that is kept, and `apply_fun` needs a key as `rng`."""

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
    """A key for each of n layers from the keyword `rng`, which leaves; None for each without."""
    rng = kwargs.pop("rng", None)
    return (None,) * n if rng is None else random.split(rng, n)


def serial(*layers) -> Layer:
    """One layer after the other; the parameters are a list of theirs."""
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


def parallel(*layers) -> Layer:
    """Each layer on an input of its own: takes a list and makes one, as after `FanOut`.

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


def shape_dependent(make_layer) -> Layer:
    """The layer that `make_layer` makes of the shape of the inputs, once that is known."""

    def init_fun(rng, input_shape):
        return make_layer(input_shape)[0](rng, input_shape)

    def apply_fun(params, inputs, **kwargs):
        return make_layer(inputs.shape)[1](params, inputs, **kwargs)

    return init_fun, apply_fun
