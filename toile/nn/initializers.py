"""Parameter initializers, the same functions of a key as `jax.nn.initializers`.

An initializer is any `init(key, shape, dtype, out_sharding=None) -> Array`. The variance-scaling
family (LeCun, Glorot, He) draws with variance `scale / fan`, the fan counted from the shape.
"""

import math
import typing
from typing import Any, Protocol

import numpy as np

from toile import numpy as jnp
from toile import random
from toile.engine.source import here
from toile.nn._promote import default_float, is_complex, to_complex

# Standard deviation of a standard normal truncated to [-2, 2], and of the complex one truncated in
# modulus: dividing by it restores unit variance.
_TRUNCATED_STD = 0.87962566103423978
_COMPLEX_TRUNCATED_STD = 0.95311164380491208


@typing.runtime_checkable
class Initializer(Protocol):
    """The signature of an initializer."""

    def __call__(self, key, shape, dtype: Any = None, out_sharding=None) -> Any:
        """An array of `shape` and `dtype`, a function of `key` only."""
        raise NotImplementedError


def _gives_shape(init):
    """Promise that init(key, shape, …) has that shape: parameters are then checked untraced."""
    init.gives_shape = True
    return init


def _dtype(dtype):
    return default_float() if dtype is None else dtype


def _placed(x, out_sharding):
    return x if out_sharding is None else jnp.asarray(x, device=out_sharding)


@_gives_shape
def zeros(key, shape, dtype=None, out_sharding=None):
    """All zeros; the key is not used."""
    return _placed(jnp.zeros(shape, _dtype(dtype)), out_sharding)


@_gives_shape
def ones(key, shape, dtype=None, out_sharding=None):
    """All ones; the key is not used."""
    return _placed(jnp.ones(shape, _dtype(dtype)), out_sharding)


def _initializer(draw, dtype):
    """`draw(key, shape, dtype)` as an initializer, whose default is `dtype`."""

    @_gives_shape
    def init(key, shape, dtype=dtype, out_sharding=None):
        return _placed(draw(key, shape, _dtype(dtype)), out_sharding)

    return init


def constant(value, dtype=None):
    """Initializer of arrays filled with `value`."""
    return _initializer(lambda key, shape, dtype: jnp.full(shape, value, dtype=dtype), dtype)


def uniform(scale=1e-2, dtype=None):
    """Initializer uniform on [0, scale)."""

    def draw(key, shape, dtype):
        return random.uniform(key, shape, dtype) * jnp.array(scale, dtype)

    return _initializer(draw, dtype)


def normal(stddev=1e-2, dtype=None):
    """Initializer normal with standard deviation `stddev`."""

    def draw(key, shape, dtype):
        return random.normal(key, shape, dtype) * jnp.array(stddev, dtype)

    return _initializer(draw, dtype)


def truncated_normal(stddev=1e-2, dtype=None, lower=-2.0, upper=2.0):
    """Initializer normal within [lower, upper], times `stddev` (not rescaled)."""

    def draw(key, shape, dtype):
        return random.truncated_normal(key, lower, upper, shape, dtype) * jnp.array(stddev, dtype)

    return _initializer(draw, dtype)


def _size(shape, axes):
    return shape[axes] if isinstance(axes, int) else math.prod(shape[i] for i in axes)


def _compute_fans(shape, in_axis=-2, out_axis=-1, batch_axis=()):
    """(fan in, fan out): sizes of the input and output axes times the receptive field."""
    if isinstance(in_axis, int) and in_axis == -2 and len(shape) <= 1:
        raise ValueError(f"Can't compute input and output sizes of a {len(shape)}-dimensional "
                         "weights tensor with default in_axis. Must be at least 2D or specify "
                         "in_axis explicitly." + here())
    n_in, n_out = _size(shape, in_axis), _size(shape, out_axis)
    receptive = math.prod(shape) / n_in / n_out / _size(shape, batch_axis)
    return n_in * receptive, n_out * receptive


_DENOMINATORS = {
    "fan_in": lambda fan_in, fan_out: fan_in,
    "fan_out": lambda fan_in, fan_out: fan_out,
    "fan_avg": lambda fan_in, fan_out: (fan_in + fan_out) / 2,
    "fan_geo_avg": lambda fan_in, fan_out: (fan_in * fan_out) ** 0.5,
}


def variance_scaling(scale, mode, distribution, in_axis=-2, out_axis=-1, batch_axis=(), dtype=None):
    """Initializer with variance `scale / fan`; `mode` names the fan."""

    def draw(key, shape, dtype):
        shape = tuple(int(n) for n in shape)
        fans = _compute_fans(shape, in_axis, out_axis, batch_axis)
        if mode not in _DENOMINATORS:
            raise ValueError(f"invalid mode for variance scaling initializer: {mode}{here()}")
        variance = jnp.array(scale / _DENOMINATORS[mode](*fans), dtype=dtype)
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
    """Complex draws of uniform phase, whose modulus is a function of a uniform variable."""
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


def glorot_uniform(in_axis=-2, out_axis=-1, batch_axis=(), dtype=None):
    """Uniform with variance 2 / (fan in + fan out); also called Xavier uniform."""
    return variance_scaling(1.0, "fan_avg", "uniform", in_axis, out_axis, batch_axis, dtype)


def glorot_normal(in_axis=-2, out_axis=-1, batch_axis=(), dtype=None):
    """Truncated normal with variance 2 / (fan in + fan out); also called Xavier normal."""
    return variance_scaling(1.0, "fan_avg", "truncated_normal", in_axis, out_axis, batch_axis,
                            dtype)


def lecun_uniform(in_axis=-2, out_axis=-1, batch_axis=(), dtype=None):
    """Uniform with variance 1 / fan in."""
    return variance_scaling(1.0, "fan_in", "uniform", in_axis, out_axis, batch_axis, dtype)


def lecun_normal(in_axis=-2, out_axis=-1, batch_axis=(), dtype=None):
    """Truncated normal with variance 1 / fan in."""
    return variance_scaling(1.0, "fan_in", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


def he_uniform(in_axis=-2, out_axis=-1, batch_axis=(), dtype=None):
    """Uniform with variance 2 / fan in; also called Kaiming uniform."""
    return variance_scaling(2.0, "fan_in", "uniform", in_axis, out_axis, batch_axis, dtype)


def he_normal(in_axis=-2, out_axis=-1, batch_axis=(), dtype=None):
    """Truncated normal with variance 2 / fan in; also called Kaiming normal."""
    return variance_scaling(2.0, "fan_in", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


xavier_uniform = glorot_uniform
xavier_normal = glorot_normal
kaiming_uniform = he_uniform
kaiming_normal = he_normal


def orthogonal(scale=1.0, column_axis=-1, dtype=None):
    """Initializer with orthonormal columns (or rows, if there are fewer), times `scale`."""

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


def delta_orthogonal(scale=1.0, column_axis=-1, dtype=None):
    """Initializer of convolution kernels: orthogonal at the centre tap, zeros elsewhere."""

    def draw(key, shape, dtype):
        if len(shape) not in (3, 4, 5):
            raise ValueError("Delta orthogonal initializer requires a 3D, 4D or 5D shape." + here())
        if shape[-1] < shape[-2]:
            raise ValueError("`fan_in` must be less or equal than `fan_out`. " + here())
        matrix = orthogonal(scale, column_axis, dtype)(key, tuple(shape[-2:]))
        centre = tuple((n - 1) // 2 for n in shape[:-2])
        return jnp.zeros(shape, dtype=dtype).at[centre].set(matrix)

    return _initializer(draw, dtype)
