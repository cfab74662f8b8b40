"""Initializers for parameters, with the same results as `jax.nn.initializers`.

An initializer is a function `init(key, shape, dtype, out_sharding=None)` that returns an array.
`zeros` and `ones` are initializers; the other functions build initializers. The LeCun and He
initializers draw numbers whose variance is inversely proportional to the number of inputs of a
layer. The Glorot initializers use the mean of the numbers of inputs and outputs instead. All of
them compute these numbers from the shape of the parameter.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import numpy as np

from toile import numpy as jnp
from toile import random
from toile.engine.annotations import Array, ArrayLike, DTypeLike, ShapeLike
from toile.engine.errors import shape_value_error
from toile.engine.source import here
from toile.nn._promote import default_float, is_complex, to_complex
from toile.parallel.specs import ShardingLike

__all__ = [
    "Initializer", "constant", "delta_orthogonal", "glorot_normal", "glorot_uniform", "he_normal",
    "he_uniform", "kaiming_normal", "kaiming_uniform", "lecun_normal", "lecun_uniform", "normal",
    "ones", "orthogonal", "truncated_normal", "uniform", "variance_scaling", "xavier_normal",
    "xavier_uniform", "zeros",
]

# Standard deviation of a standard normal truncated to [-2, 2], and of the complex one truncated in
# modulus: dividing by it restores unit variance.
_TRUNCATED_STD = 0.87962566103423978
_COMPLEX_TRUNCATED_STD = 0.95311164380491208


@typing.runtime_checkable
class Initializer(Protocol):
    """The type of initializers, for use in annotations.

    Args:
        args, kwargs: not used; a protocol cannot be instantiated.

    >>> from toile.nn.initializers import Initializer
    >>> def halves(key, shape, dtype=None, out_sharding=None): return jnp.full(shape, 0.5, dtype)
    >>> isinstance(halves, Initializer)
    True
    """

    def __call__(
        self, key: Array, shape: ShapeLike, dtype: DTypeLike | None = None,
        out_sharding: ShardingLike | None = None
    ) -> Array:
        """Create the initial value of a parameter.

        Args:
            key: random key.
            shape: shape of the result.
            dtype: dtype of the result; None for the default dtype of the initializer.
            out_sharding: sharding of the result; if None, the default device is used.

        Returns:
            The initial value.
        """
        raise NotImplementedError


def _gives_shape(init: Any) -> Any:
    """Declare that the results of `init` have the given shape, so checks need not trace it."""
    init.gives_shape = True
    return init


def _dtype(dtype):
    return default_float() if dtype is None else dtype


def _placed(x, out_sharding):
    return x if out_sharding is None else jnp.asarray(x, device=out_sharding)


@_gives_shape
def zeros(
    key: Array | None, shape: ShapeLike, dtype: DTypeLike | None = None,
    out_sharding: ShardingLike | None = None
) -> Array:
    """Initialize a parameter with zeros, as is common for biases.

    Args:
        key: not used; may be None.
        shape: shape of the result.
        dtype: dtype of the result; None for float32 (float64 if 64-bit types are enabled).
        out_sharding: sharding of the result; if None, the default device is used.

    Returns:
        An array of zeros.

    >>> toile.nn.initializers.zeros(key(0), (3,))
    Array([0., 0., 0.], dtype=float32)
    """
    return _placed(jnp.zeros(shape, _dtype(dtype)), out_sharding)


@_gives_shape
def ones(
    key: Array | None, shape: ShapeLike, dtype: DTypeLike | None = None,
    out_sharding: ShardingLike | None = None
) -> Array:
    """Initialize a parameter with ones, as is common for scales.

    Args:
        key: not used; may be None.
        shape: shape of the result.
        dtype: dtype of the result; None for float32 (float64 if 64-bit types are enabled).
        out_sharding: sharding of the result; if None, the default device is used.

    Returns:
        An array of ones.

    >>> toile.nn.initializers.ones(key(0), (3,))
    Array([1., 1., 1.], dtype=float32)
    """
    return _placed(jnp.ones(shape, _dtype(dtype)), out_sharding)


def _initializer(draw: Callable[..., Array], dtype: DTypeLike | None) -> Initializer:
    """An initializer that calls `draw(key, shape, dtype)`; its default dtype is `dtype`."""

    @_gives_shape
    def init(
        key: Array, shape: ShapeLike, dtype: DTypeLike | None = dtype,
        out_sharding: ShardingLike | None = None
    ) -> Array:
        """Create the initial value of a parameter, with the given shape and dtype."""
        return _placed(draw(key, shape, _dtype(dtype)), out_sharding)

    return init


def constant(value: ArrayLike, dtype: DTypeLike | None = None) -> Initializer:
    """Build an initializer that fills arrays with a constant value.

    Args:
        value: a number, or an array that broadcasts to the shape of the parameter.
        dtype: default dtype of the arrays; None for float32 (float64 if 64-bit types are enabled).

    Returns:
        An initializer: a function `init(key, shape, dtype=dtype, out_sharding=None)`.

    >>> init = toile.nn.initializers.constant(0.5)
    >>> init(key(0), (2,))
    Array([0.5, 0.5], dtype=float32)
    """
    return _initializer(lambda key, shape, dtype: jnp.full(shape, value, dtype=dtype), dtype)


def uniform(scale: ArrayLike = 1e-2, dtype: DTypeLike | None = None) -> Initializer:
    """Build an initializer that draws from the uniform distribution on [0, scale).

    Args:
        scale: upper end of the interval.
        dtype: default dtype of the arrays; None for float32 (float64 if 64-bit types are enabled).

    Returns:
        An initializer: a function `init(key, shape, dtype=dtype, out_sharding=None)`.

    >>> w = toile.nn.initializers.uniform(0.1)(key(0), (50, 20))
    >>> w.shape, bool((w >= 0).all() and (w < 0.1).all())
    ((50, 20), True)
    """

    def draw(key, shape, dtype):
        return random.uniform(key, shape, dtype) * jnp.array(scale, dtype)

    return _initializer(draw, dtype)


def normal(stddev: ArrayLike = 1e-2, dtype: DTypeLike | None = None) -> Initializer:
    """Build an initializer that draws from the normal distribution with mean 0.

    Args:
        stddev: standard deviation.
        dtype: default dtype of the arrays, floating-point or complex; None for float32 (float64 if
            64-bit types are enabled).

    Returns:
        An initializer: a function `init(key, shape, dtype=dtype, out_sharding=None)`.

    >>> w = toile.nn.initializers.normal(0.1)(key(0), (50, 20))
    >>> w.shape, round(float(w.std()), 2)
    ((50, 20), 0.1)
    """

    def draw(key, shape, dtype):
        return random.normal(key, shape, dtype) * jnp.array(stddev, dtype)

    return _initializer(draw, dtype)


def truncated_normal(
    stddev: ArrayLike = 1e-2, dtype: DTypeLike | None = None, lower: ArrayLike = -2.0,
    upper: ArrayLike = 2.0
) -> Initializer:
    """Build an initializer that draws from a normal distribution restricted to an interval.

    Standard normal numbers between `lower` and `upper` are multiplied by `stddev`. The restriction
    makes the standard deviation of the results smaller than `stddev`: by default, it is 0.88 times
    `stddev`.

    Args:
        stddev: standard deviation before the restriction.
        dtype: default dtype of the arrays; None for float32 (float64 if 64-bit types are enabled).
        lower: lower end of the interval, in units of `stddev`.
        upper: upper end of the interval, in units of `stddev`.

    Returns:
        An initializer: a function `init(key, shape, dtype=dtype, out_sharding=None)`.

    >>> w = toile.nn.initializers.truncated_normal(0.1)(key(0), (50, 20))
    >>> w.shape, bool((abs(w) < 0.2).all())
    ((50, 20), True)
    """

    def draw(key, shape, dtype):
        return random.truncated_normal(key, lower, upper, shape, dtype) * jnp.array(stddev, dtype)

    return _initializer(draw, dtype)


def _size(shape, axes):
    return shape[axes] if isinstance(axes, int) else math.prod(shape[i] for i in axes)


def _checked(shape):
    """The sizes as integers."""
    try:
        return tuple(int(n) for n in shape)
    except TypeError as error:
        if "int() argument" not in str(error):
            raise
        raise shape_value_error("weights", tuple(shape)) from None


def _compute_fans(shape, in_axis=-2, out_axis=-1, batch_axis=()):
    """(fan in, fan out): sizes of the input and output axes times the receptive field."""
    if isinstance(in_axis, int) and in_axis == -2 and len(shape) <= 1:
        raise ValueError(f"Can't compute input and output sizes of a {len(shape)}-dimensional "
                         "weights tensor with default in_axis. Must be at least 2D or specify "
                         f"in_axis explicitly: got the shape {tuple(shape)} (biases and scales "
                         f"take initializers.zeros, ones or normal()){here()}")
    n_in, n_out = _size(shape, in_axis), _size(shape, out_axis)
    receptive = math.prod(shape) / n_in / n_out / _size(shape, batch_axis)
    return n_in * receptive, n_out * receptive


_DENOMINATORS = {
    "fan_in": lambda fan_in, fan_out: fan_in,
    "fan_out": lambda fan_in, fan_out: fan_out,
    "fan_avg": lambda fan_in, fan_out: (fan_in + fan_out) / 2,
    "fan_geo_avg": lambda fan_in, fan_out: (fan_in * fan_out) ** 0.5,
}


def variance_scaling(
    scale: ArrayLike, mode: Literal["fan_in", "fan_out", "fan_avg", "fan_geo_avg"],
    distribution: Literal["truncated_normal", "normal", "uniform"],
    in_axis: int | Sequence[int] = -2, out_axis: int | Sequence[int] = -1,
    batch_axis: int | Sequence[int] = (), dtype: DTypeLike | None = None
) -> Initializer:
    """Build an initializer that draws numbers with a variance inversely proportional to layer size.

    The variance is `scale / n`. Depending on `mode`, `n` is the number of inputs ("fan_in"), the
    number of outputs ("fan_out"), the mean of these numbers ("fan_avg") or their geometric mean
    ("fan_geo_avg"). The number of inputs and the number of outputs are each multiplied by the sizes
    of all other axes, such as the window axes of a convolution, but not by the size of
    `batch_axis`.

    Args:
        scale: positive numerator of the variance.
        mode: the meaning of `n` (see above).
        distribution: "normal" for a normal distribution, "truncated_normal" for a normal
            distribution that is truncated at two standard deviations and has the variance
            `scale / n` after truncation, or "uniform" for a uniform distribution that is symmetric
            around 0.
        in_axis: axis or axes of the parameter that correspond to the inputs.
        out_axis: axis or axes that correspond to the outputs.
        batch_axis: axis or axes of independent copies, which count as neither inputs nor outputs.
        dtype: default dtype of the arrays, floating-point or complex; None for float32 (float64 if
            64-bit types are enabled).

    Returns:
        An initializer: a function `init(key, shape, dtype=dtype, out_sharding=None)`.

    Raises:
        ValueError: raised when the initializer is called, if the mode or distribution is unknown,
            or if the shape has fewer than two axes and `in_axis` has its default value.

    >>> init = toile.nn.initializers.variance_scaling(2.0, "fan_in", "normal")
    >>> w = init(key(0), (50, 200))
    >>> w.shape, round(float(w.var()), 3)
    ((50, 200), 0.041)
    """

    def draw(key, shape, dtype):
        shape = _checked(shape)
        if mode not in _DENOMINATORS:
            raise ValueError(f"invalid mode for variance scaling initializer: {mode}{here()}")
        try:
            fans = _compute_fans(shape, in_axis, out_axis, batch_axis)
            variance = jnp.array(scale / _DENOMINATORS[mode](*fans), dtype=dtype)
        except ZeroDivisionError:
            raise ZeroDivisionError(
                f"variance scaling: needed weights with elements, got the shape {shape} (an input "
                "of size 0 is often the result of a window or slice that is larger than its input)"
                + here()
            ) from None
        if distribution not in _DRAWS:
            raise ValueError("invalid distribution for variance scaling initializer: "
                             f"{distribution}{here()}")
        real, of_complex = _DRAWS[distribution]
        drawn = of_complex if is_complex(np.dtype(dtype)) else real
        return drawn(key, shape, dtype, variance)

    return _initializer(draw, dtype)


def _draw_truncated(key, shape, dtype, variance):
    stddev = jnp.sqrt(variance) / jnp.array(_TRUNCATED_STD, dtype)
    return random.truncated_normal(key, -2, 2, shape, dtype) * stddev


def _draw_normal(key, shape, dtype, variance):
    return random.normal(key, shape, dtype) * jnp.sqrt(variance)


def _draw_uniform(key, shape, dtype, variance):
    # uniform on [-a, a) has variance a²/3
    return random.uniform(key, shape, dtype, -1) * jnp.sqrt(3 * variance)


def _polar(key, shape, dtype, modulus):
    """Complex random numbers of uniform phase, whose modulus is computed from uniform numbers."""
    key_r, key_theta = random.split(key)
    real = np.array(0, dtype).real.dtype
    dtype = to_complex(real)
    theta = 2 * np.pi * random.uniform(key_theta, shape, real).astype(dtype)
    return modulus(random.uniform(key_r, shape, real), dtype) * jnp.exp(1j * theta)


def _draw_complex_truncated(key, shape, dtype, variance, upper=2):
    stddev = jnp.sqrt(variance) / jnp.array(_COMPLEX_TRUNCATED_STD, dtype)

    def modulus(u, dtype):  # inverse of the Rayleigh distribution function cut at `upper`
        t = (1 - jnp.exp(jnp.array(-(upper**2), dtype))) * u.astype(dtype)
        return jnp.sqrt(-jnp.log(1 - t))

    return _polar(key, shape, dtype, modulus) * stddev


def _draw_complex_uniform(key, shape, dtype, variance):
    draws = _polar(key, shape, dtype, lambda u, dtype: jnp.sqrt(2 * u).astype(dtype))
    return draws * jnp.sqrt(variance)


_DRAWS = {
    "truncated_normal": (_draw_truncated, _draw_complex_truncated),
    "normal": (_draw_normal, _draw_normal),
    "uniform": (_draw_uniform, _draw_complex_uniform),
}


def glorot_uniform(
    in_axis: int | Sequence[int] = -2, out_axis: int | Sequence[int] = -1,
    batch_axis: int | Sequence[int] = (), dtype: DTypeLike | None = None
) -> Initializer:
    """Build an initializer that draws uniform numbers with variance `2 / (inputs + outputs)`.

    The initializer keeps the variance of activations and gradients similar across layers. It is
    also called Xavier uniform initialization, and equals
    `variance_scaling(1.0, "fan_avg", "uniform")`.

    Args:
        in_axis: axis or axes of the parameter that correspond to the inputs.
        out_axis: axis or axes that correspond to the outputs.
        batch_axis: axis or axes of independent copies, which count as neither inputs nor outputs.
        dtype: default dtype of the arrays, floating-point or complex; None for float32 (float64 if
            64-bit types are enabled).

    Returns:
        An initializer: a function `init(key, shape, dtype=dtype, out_sharding=None)`.

    >>> w = toile.nn.initializers.glorot_uniform()(key(0), (50, 200))
    >>> w.shape, round(float(w.var()), 3)
    ((50, 200), 0.008)
    """
    return variance_scaling(1.0, "fan_avg", "uniform", in_axis, out_axis, batch_axis, dtype)


def glorot_normal(
    in_axis: int | Sequence[int] = -2, out_axis: int | Sequence[int] = -1,
    batch_axis: int | Sequence[int] = (), dtype: DTypeLike | None = None
) -> Initializer:
    """Build an initializer that draws normally distributed numbers.

    Their variance is `2 / (inputs + outputs)`, and their distribution is truncated. The initializer
    keeps the variance of activations and gradients similar across layers. It is also called Xavier
    normal initialization, and equals `variance_scaling(1.0, "fan_avg", "truncated_normal")`.

    Args:
        in_axis: axis or axes of the parameter that correspond to the inputs.
        out_axis: axis or axes that correspond to the outputs.
        batch_axis: axis or axes of independent copies, which count as neither inputs nor outputs.
        dtype: default dtype of the arrays, floating-point or complex; None for float32 (float64 if
            64-bit types are enabled).

    Returns:
        An initializer: a function `init(key, shape, dtype=dtype, out_sharding=None)`.

    >>> w = toile.nn.initializers.glorot_normal()(key(0), (50, 200))
    >>> w.shape, round(float(w.var()), 3)
    ((50, 200), 0.008)
    """
    return variance_scaling(1.0, "fan_avg", "truncated_normal", in_axis, out_axis, batch_axis,
                            dtype)


def lecun_uniform(
    in_axis: int | Sequence[int] = -2, out_axis: int | Sequence[int] = -1,
    batch_axis: int | Sequence[int] = (), dtype: DTypeLike | None = None
) -> Initializer:
    """Build an initializer that draws uniform numbers with variance `1 / inputs`.

    The initializer keeps the variance of activations similar across layers. It equals
    `variance_scaling(1.0, "fan_in", "uniform")`.

    Args:
        in_axis: axis or axes of the parameter that correspond to the inputs.
        out_axis: axis or axes that correspond to the outputs.
        batch_axis: axis or axes of independent copies, which count as neither inputs nor outputs.
        dtype: default dtype of the arrays, floating-point or complex; None for float32 (float64 if
            64-bit types are enabled).

    Returns:
        An initializer: a function `init(key, shape, dtype=dtype, out_sharding=None)`.

    >>> w = toile.nn.initializers.lecun_uniform()(key(0), (50, 200))
    >>> w.shape, round(float(w.var()), 3)
    ((50, 200), 0.02)
    """
    return variance_scaling(1.0, "fan_in", "uniform", in_axis, out_axis, batch_axis, dtype)


def lecun_normal(
    in_axis: int | Sequence[int] = -2, out_axis: int | Sequence[int] = -1,
    batch_axis: int | Sequence[int] = (), dtype: DTypeLike | None = None
) -> Initializer:
    """Build an initializer that draws from a normal distribution with variance `1 / inputs`.

    The normal distribution is truncated. The initializer keeps the variance of activations similar
    across layers. It equals `variance_scaling(1.0, "fan_in", "truncated_normal")`.

    Args:
        in_axis: axis or axes of the parameter that correspond to the inputs.
        out_axis: axis or axes that correspond to the outputs.
        batch_axis: axis or axes of independent copies, which count as neither inputs nor outputs.
        dtype: default dtype of the arrays, floating-point or complex; None for float32 (float64 if
            64-bit types are enabled).

    Returns:
        An initializer: a function `init(key, shape, dtype=dtype, out_sharding=None)`.

    >>> w = toile.nn.initializers.lecun_normal()(key(0), (50, 200))
    >>> w.shape, round(float(w.var()), 3)
    ((50, 200), 0.02)
    """
    return variance_scaling(1.0, "fan_in", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


def he_uniform(
    in_axis: int | Sequence[int] = -2, out_axis: int | Sequence[int] = -1,
    batch_axis: int | Sequence[int] = (), dtype: DTypeLike | None = None
) -> Initializer:
    """Build an initializer that draws uniform numbers with variance `2 / inputs`.

    The initializer suits layers that are followed by `relu`. It is also called Kaiming uniform
    initialization, and equals `variance_scaling(2.0, "fan_in", "uniform")`.

    Args:
        in_axis: axis or axes of the parameter that correspond to the inputs.
        out_axis: axis or axes that correspond to the outputs.
        batch_axis: axis or axes of independent copies, which count as neither inputs nor outputs.
        dtype: default dtype of the arrays, floating-point or complex; None for float32 (float64 if
            64-bit types are enabled).

    Returns:
        An initializer: a function `init(key, shape, dtype=dtype, out_sharding=None)`.

    >>> w = toile.nn.initializers.he_uniform()(key(0), (50, 200))
    >>> w.shape, round(float(w.var()), 3)
    ((50, 200), 0.041)
    """
    return variance_scaling(2.0, "fan_in", "uniform", in_axis, out_axis, batch_axis, dtype)


def he_normal(
    in_axis: int | Sequence[int] = -2, out_axis: int | Sequence[int] = -1,
    batch_axis: int | Sequence[int] = (), dtype: DTypeLike | None = None
) -> Initializer:
    """Build an initializer that draws from a normal distribution with variance `2 / inputs`.

    The normal distribution is truncated. The initializer suits layers that are followed by `relu`.
    It is also called Kaiming normal initialization, and equals
    `variance_scaling(2.0, "fan_in", "truncated_normal")`.

    Args:
        in_axis: axis or axes of the parameter that correspond to the inputs.
        out_axis: axis or axes that correspond to the outputs.
        batch_axis: axis or axes of independent copies, which count as neither inputs nor outputs.
        dtype: default dtype of the arrays, floating-point or complex; None for float32 (float64 if
            64-bit types are enabled).

    Returns:
        An initializer: a function `init(key, shape, dtype=dtype, out_sharding=None)`.

    >>> w = toile.nn.initializers.he_normal()(key(0), (50, 200))
    >>> w.shape, round(float(w.var()), 3)
    ((50, 200), 0.041)
    """
    return variance_scaling(2.0, "fan_in", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


xavier_uniform = glorot_uniform
xavier_normal = glorot_normal
kaiming_uniform = he_uniform
kaiming_normal = he_normal


def orthogonal(
    scale: ArrayLike = 1.0, column_axis: int = -1, dtype: DTypeLike | None = None
) -> Initializer:
    """Build an initializer that draws uniformly distributed orthogonal matrices.

    In an array with more than two axes, `column_axis` indexes the columns of a matrix, and all
    other axes together index its rows. A matrix with fewer rows than columns has orthonormal rows;
    any other matrix has orthonormal columns.

    Args:
        scale: factor by which the matrix is multiplied.
        column_axis: the axis that indexes the columns.
        dtype: default dtype of the arrays, floating-point or complex; None for float32 (float64 if
            64-bit types are enabled).

    Returns:
        An initializer: a function `init(key, shape, dtype=dtype, out_sharding=None)`.

    Raises:
        ValueError: the initializer is called with a shape of fewer than two axes.

    >>> w = toile.nn.initializers.orthogonal()(key(0), (4, 3))
    >>> jnp.allclose(w.T @ w, jnp.eye(3), atol=1e-5)
    Array(True, dtype=bool)
    """

    def draw(key, shape, dtype):
        if len(shape) < 2:
            raise ValueError("orthogonal initializer requires at least a 2D shape" + here())
        if any(n == 0 for n in shape):
            return jnp.zeros(shape, dtype=dtype)
        columns = shape[column_axis]
        rows = math.prod(shape) // columns
        q = random.orthogonal(key, rows, (), dtype, columns)
        rest = list(shape)
        del rest[column_axis]
        q = jnp.moveaxis(jnp.reshape(q, (*rest, columns)), -1, column_axis)
        return jnp.array(scale, dtype) * q

    return _initializer(draw, dtype)


def delta_orthogonal(
    scale: ArrayLike = 1.0, column_axis: int = -1, dtype: DTypeLike | None = None
) -> Initializer:
    """Build an initializer for convolution kernels that are 0 except at the center of the window.

    At the center, the matrix that maps input features to output features is orthogonal.

    Args:
        scale: factor by which the matrix is multiplied.
        column_axis: the axis that indexes the columns of the matrix. It must be one of the last
            two axes.
        dtype: default dtype of the arrays, floating-point or complex; None for float32 (float64 if
            64-bit types are enabled).

    Returns:
        An initializer: a function `init(key, shape, dtype=dtype, out_sharding=None)`. The shape
        must have one to three window axes, followed by the input and output axes.

    Raises:
        ValueError: the initializer is called with a shape that does not have three to five axes,
            or that has more inputs than outputs.

    >>> w = toile.nn.initializers.delta_orthogonal()(key(0), (3, 3, 2, 4))
    >>> jnp.allclose(w[1, 1] @ w[1, 1].T, jnp.eye(2), atol=1e-5)
    Array(True, dtype=bool)
    >>> w[0].any()
    Array(False, dtype=bool)
    """

    def draw(key, shape, dtype):
        if len(shape) not in (3, 4, 5):
            raise ValueError("Delta orthogonal initializer requires a 3D, 4D or 5D shape." + here())
        if shape[-1] < shape[-2]:
            raise ValueError("`fan_in` must be less or equal than `fan_out`. " + here())
        matrix = orthogonal(scale, column_axis, dtype)(key, tuple(shape[-2:]))
        center = tuple((n - 1) // 2 for n in shape[:-2])
        return jnp.zeros(shape, dtype=dtype).at[center].set(matrix)

    return _initializer(draw, dtype)
