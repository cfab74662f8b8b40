"""Separable resampling with the kernels of `ResizeMethod`.

Along each axis, output pixel i samples the input at `(i + ½)/scale - translation/scale - ½`. If the
image shrinks and `antialias` is set, the kernels are widened by a factor of `1/scale`, which makes
them low-pass filters. The weights of each output pixel are normalized to a sum of 1, so constant
images stay constant at the edges.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.lax._operands import sizes
from toile.nn._promote import canonical_axis, inexact

# Sums of weights below this count as "no input pixel contributes".
_TINY = 1000.0 * float(np.finfo(np.float32).eps)


class ResizeMethod(enum.Enum):
    """The way in which `resize` and `scale_and_translate` interpolate between pixels.

    `NEAREST` copies the nearest pixel. `LINEAR` interpolates linearly, and `CUBIC` interpolates
    with cubic polynomials. `CUBIC_PYTORCH` uses PyTorch's coefficients and edge handling; with
    antialiasing, it is the same as `CUBIC`. `LANCZOS3` and `LANCZOS5` use a windowed sinc function
    of radius 3 or 5. `AREA` averages the input pixels that an output pixel covers.
    """

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5
    AREA = 6

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """Return the method with a given name.

        Args:
            s: "nearest", "linear" (also "bilinear", "trilinear", "triangle"), "cubic" (also
                "bicubic", "tricubic"), "lanczos3", "lanczos5", "cubic-pytorch" (also
                "bicubic-pytorch") or "area".

        Returns:
            The member of `ResizeMethod`.

        Raises:
            ValueError: no method has this name.

        >>> toile.image.ResizeMethod.from_string("bilinear")
        <ResizeMethod.LINEAR: 1>
        """
        if s not in _NAMES:
            raise ValueError(f'Unknown resize method "{s}"{here()}')
        return _NAMES[s]


_NAMES = {
    "nearest": ResizeMethod.NEAREST,
    **dict.fromkeys(("linear", "bilinear", "trilinear", "triangle"), ResizeMethod.LINEAR),
    "lanczos3": ResizeMethod.LANCZOS3,
    "lanczos5": ResizeMethod.LANCZOS5,
    **dict.fromkeys(("cubic", "bicubic", "tricubic"), ResizeMethod.CUBIC),
    **dict.fromkeys(("cubic-pytorch", "bicubic-pytorch"), ResizeMethod.CUBIC_PYTORCH),
    "area": ResizeMethod.AREA,
}


def _triangle(x):
    return jnp.maximum(0, 1 - jnp.abs(x))


def _lanczos(radius):
    """Return the Lanczos kernel: `sinc(x)·sinc(x/radius)` within the radius and 0 outside."""

    def kernel(x):
        y = radius * jnp.sin(np.pi * x) * jnp.sin(np.pi * x / radius)
        # Near 0 the quotient is 0/0; 1e-3 is where the limit 1 is already exact in float32.
        square = jnp.where(x != 0, np.pi**2 * x**2, 1)
        out = jnp.where(x > 1e-3, jnp.divide(y, square), 1)
        return jnp.where(x > radius, 0.0, out)

    return kernel


def _cubic(a):
    """Return Keys' convolution kernel: a C¹ piecewise cubic function with slope `a` at 1."""

    def kernel(x):
        near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
        far = ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
        return jnp.where(x >= 2.0, 0.0, jnp.where(x >= 1.0, far, near))

    return kernel


# Method -> (kernel of the distance, its radius).
_KERNELS = {
    ResizeMethod.LINEAR: (_triangle, 1),
    ResizeMethod.LANCZOS3: (_lanczos(3.0), 3),
    ResizeMethod.LANCZOS5: (_lanczos(5.0), 5),
    ResizeMethod.CUBIC: (_cubic(-0.5), 2),
    ResizeMethod.CUBIC_PYTORCH: (_cubic(-0.75), 2),
    ResizeMethod.AREA: (None, 1),
}


def _area_weights(n_in, n_out, inv_scale, translation, dtype):
    """Return the overlaps of input and output pixels, a matrix of shape `(n_in, n_out)`."""
    left = jnp.arange(n_out, dtype=dtype) * inv_scale - translation * inv_scale
    low = jnp.arange(n_in, dtype=dtype)
    overlap = jnp.minimum((left + inv_scale)[None, :], (low + 1.0)[:, None])
    return jnp.maximum(0.0, overlap - jnp.maximum(left[None, :], low[:, None]))


def _normalized(weights):
    total = jnp.sum(weights, axis=0, keepdims=True)
    safe = jnp.where(total != 0, total, 1)
    return jnp.where(jnp.abs(total) > _TINY, jnp.divide(weights, safe), 0)


def _weights(n_in, n_out, scale, translation, method, antialias):
    """Return the matrix of shape `(n_in, n_out)` that resamples one axis."""
    dtype = jnp.result_type(scale, translation)
    inv_scale = 1.0 / scale
    sample = (jnp.arange(n_out, dtype=dtype) + 0.5) * inv_scale - translation * inv_scale - 0.5
    kernel, radius = _KERNELS[method]
    if method is ResizeMethod.CUBIC_PYTORCH:
        return _edge_padded(n_in, sample, kernel, radius, dtype)
    if kernel is None:
        weights = _area_weights(n_in, n_out, inv_scale, translation, dtype)
    else:
        width = jnp.maximum(inv_scale, 1.0) if antialias else 1.0
        distance = jnp.abs(sample[None, :] - jnp.arange(n_in, dtype=dtype)[:, None])
        weights = kernel(distance / width)
    inside = jnp.logical_and(sample >= -0.5, sample <= n_in - 0.5)
    return jnp.where(inside[None, :], _normalized(weights), 0)


def _edge_padded(n_in, sample, kernel, radius, dtype):
    """Return the weights, with those outside the image added to the nearest edge pixel."""
    tap = np.arange(-radius, n_in + radius)
    weights = kernel(jnp.abs(sample[None, :] - jnp.asarray(tap, dtype=dtype)[:, None]))
    folded = jnp.zeros((n_in, sample.shape[0]), dtype=dtype)
    return _normalized(folded.at[np.clip(tap, 0, n_in - 1)].add(weights))


def _resample(x, shape, axes, scale, translation, method, antialias, precision):
    if len(axes) != len(scale) or len(axes) != len(translation):
        raise AssertionError("scale_and_translate: needed one scale and translation per spatial "
                             f"dimension, got {len(axes)} dimensions, {len(scale)} scales, "
                             f"{len(translation)} translations")
    if not axes:
        return x
    if method is ResizeMethod.CUBIC_PYTORCH and antialias:
        method = ResizeMethod.CUBIC
    letters = [chr(ord("a") + i) for i in range(x.ndim)]
    out, operands, terms = list(letters), [x], ["".join(letters)]
    for i, axis in enumerate(axes):
        axis = canonical_axis(axis, x.ndim)
        out[axis] = letters[axis].upper()
        terms.append(letters[axis] + out[axis])
        matrix = _weights(x.shape[axis], shape[axis], scale[i], translation[i], method, antialias)
        operands.append(matrix.astype(x.dtype))
    return jnp.einsum(f"{','.join(terms)}->{''.join(out)}", *operands, precision=precision)


def _check_shape(image, shape):
    if len(shape) != image.ndim:
        raise ValueError(f"shape must have length equal to the number of dimensions of x;  {shape} "
                         f"vs {image.shape}{here()}")


def scale_and_translate(image: ArrayLike, shape: Sequence[int], spatial_dims: Sequence[int],
                        scale: ArrayLike, translation: ArrayLike, method: str | ResizeMethod,
                        antialias: bool = True,
                        precision: lax.PrecisionLike = lax.Precision.HIGHEST) -> Array:
    """Scale an image, keeping the corner at coordinate 0 in place, and then shift it.

    A point of the image at coordinate `u` moves to `u * scale + translation`, where the center of
    pixel `i` is at `i + 0.5`. Pixels of the result that lie outside the moved image are 0. If
    `method` is `CUBIC_PYTORCH` and `antialias` is False, however, pixels just outside the moved
    image repeat its edge pixels. The result can be differentiated with respect to `image`, `scale`
    and `translation`.

    Args:
        image: array with any number of axes.
        shape: shape of the result. It must have as many axes as the image, and the length of an
            axis that is not in `spatial_dims` must not change.
        spatial_dims: axes to scale and shift along.
        scale: array with one factor for each axis in `spatial_dims`.
        translation: array with one shift for each axis in `spatial_dims`, in pixels of the result.
        method: interpolation method, a `ResizeMethod` or its name. `NEAREST` is not supported.
        antialias: whether to average over more pixels when the image shrinks, which prevents
            aliasing.
        precision: precision of the multiplication by the interpolation weights; see
            `lax.Precision`.

    Returns:
        A floating-point array.

    Raises:
        ValueError: the method is unknown or "nearest", or `shape` does not have as many axes as the
            image.

    >>> image, scale = jnp.array([1.0, 2.0, 3.0]), jnp.array([1.0])
    >>> toile.image.scale_and_translate(image, (3,), (0,), scale, jnp.array([1.0]), "linear")
    Array([0., 1., 2.], dtype=float32)
    """
    shape = tuple(int(n) for n in shape)
    _check_shape(image, shape)
    if isinstance(method, str):
        method = ResizeMethod.from_string(method)
    if method is ResizeMethod.NEAREST:
        raise ValueError("Nearest neighbor resampling is not currently supported for "
                         "scale_and_translate." + here())
    (image,) = inexact("scale_and_translate", image)
    scale, translation = inexact("scale_and_translate", scale, translation)
    return _resample(image, shape, tuple(spatial_dims), scale, translation, method, antialias,
                     precision)


def _resize_nearest(image, shape):
    for axis, (m, n) in enumerate(zip(image.shape, shape)):
        if m != n:
            centre = (np.arange(n, dtype=np.float32) + np.float32(0.5)) * np.float32(m)
            index = np.floor(centre / np.float32(n)).astype(np.int32)
            image = _taken(image, index, axis)
    return image


def _taken(image, index, axis):
    """Pixels along an axis. Repeated ones, and those at regular steps, are not gathered, since
    derivatives of gathers are slow."""
    m, n = image.shape[axis], len(index)
    if m and not n % m and np.array_equal(index, np.arange(n) // (n // m)):
        return jnp.repeat(image, n // m, axis=axis)
    if m and n and not m % n and np.array_equal(index, index[0] + m // n * np.arange(n)):
        return lax.slice_in_dim(image, int(index[0]), None, m // n, axis)
    return jnp.take(image, index, axis=axis)


def resize(image: ArrayLike, shape: Sequence[int], method: str | ResizeMethod,
           antialias: bool = True,
           precision: lax.PrecisionLike = lax.Precision.HIGHEST) -> Array:
    """Resample an image to another size.

    Args:
        image: array with any number of axes.
        shape: shape of the result, with as many axes as the image. Axes whose length does not
            change, such as batch and channel axes, are not resampled.
        method: interpolation method, a `ResizeMethod` or its name.
        antialias: whether to average over more pixels when the image shrinks, which prevents
            aliasing. With `NEAREST`, this option has no effect.
        precision: precision of the multiplication by the interpolation weights; see
            `lax.Precision`.

    Returns:
        A floating-point array or, with `NEAREST`, an array with the dtype of the image.

    Raises:
        ValueError: the method is unknown, or `shape` does not have as many axes as the image.

    >>> toile.image.resize(jnp.array([0.0, 1.0]), (4,), "linear")
    Array([0.  , 0.25, 0.75, 1.  ], dtype=float32)
    """
    x: Array = jnp.asarray(image)
    shape = sizes("resize", shape)
    _check_shape(x, shape)
    if isinstance(method, str):
        method = ResizeMethod.from_string(method)
    if method is ResizeMethod.NEAREST:
        return _resize_nearest(x, shape)
    (x,) = inexact("resize", x)
    axes = tuple(i for i in range(x.ndim) if x.shape[i] != shape[i])
    scale = [1.0 if shape[i] == 0 else shape[i] / x.shape[i] for i in axes]
    return _resample(x, shape, axes, scale, [0.0] * len(axes), method, antialias, precision)
