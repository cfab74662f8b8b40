"""Short-time Fourier transforms and spectral density estimates, as in SciPy's older interface.

The signal is cut into overlapping segments along one axis. Each segment is multiplied by a window
function and transformed. The results are `(frequencies, times, transform)` or
`(frequencies, density)`.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.nn._promote import array, canonical_axis, inexact, to_complex
from toile.numpy._helpers import at_rank


def detrend(data: ArrayLike, axis: int = -1, type: Literal["linear", "constant"] = "linear",
            bp: int | Sequence[int] = 0, overwrite_data: None = None) -> Array:
    """Remove a linear trend, or the mean, from a signal.

    Args:
        data: array of samples.
        axis: axis of the samples.
        type: `"linear"` to subtract the least-squares line, `"constant"` to subtract the mean.
        bp: indices at which the signal is divided into pieces. A separate line is subtracted from
            each piece. `bp` is used only for `"linear"`.
        overwrite_data: must be None; other values are not supported.

    Returns:
        A floating-point array with the shape of `data`.

    Raises:
        NotImplementedError: `overwrite_data` is given.
        ValueError: `type` is invalid, or an index in `bp` is out of range.

    >>> from toile.scipy import signal
    >>> signal.detrend(jnp.array([1.0, 2.0, 6.0]), type="constant")
    Array([-2., -1.,  3.], dtype=float32)
    """
    if overwrite_data is not None:
        raise NotImplementedError("overwrite_data argument not implemented." + here())
    if type not in ("constant", "linear"):
        raise ValueError("Trend type must be 'linear' or 'constant'." + here())
    (x,) = inexact("detrend", jnp.asarray(data))
    if type == "constant":
        return x - jnp.mean(x, axis, keepdims=True)
    n = x.shape[axis]
    ends = np.unique(np.r_[0, bp, n])
    if ends[0] < 0 or ends[-1] > n:
        raise ValueError("Breakpoints must be non-negative and less than length of data along "
                         "given axis." + here())
    x = jnp.moveaxis(x, axis, 0)
    shape = x.shape
    x = x.reshape((n, -1))
    pieces = []
    for low, high in zip(ends[:-1], ends[1:]):
        size = int(high - low)
        ramp = np.arange(1, size + 1) / size
        basis = jnp.asarray(np.stack([np.ones(size), ramp], axis=1), x.dtype)
        piece = x[int(low) : int(high)]
        coefs = jnp.linalg.lstsq(basis, piece)[0]
        pieces.append(piece - jnp.matmul(basis, coefs, precision=lax.Precision.HIGHEST))
    return jnp.moveaxis(jnp.concatenate(pieces).reshape(shape), 0, axis)


# -- windows -------------------------------------------------------------------------------------


def _named_window(window, size):
    if isinstance(window, str) and window == "hann":
        # sin² at n points of the period: the periodic Hann window
        return np.sin(np.arange(size) * np.pi / size) ** 2 if size > 1 else np.ones(1)
    from scipy.signal import get_window

    return get_window(window, size)


def _window(window, nperseg, length, dtype):
    """Return the window and the length of a segment for a signal of `length` samples."""
    nperseg = None if nperseg is None else int(nperseg)
    if nperseg is not None and nperseg < 1:
        raise ValueError("nperseg must be a positive integer" + here())
    if isinstance(window, (str, tuple)):
        size = length if nperseg is None else nperseg
        if size > length:
            warnings.warn(
                f"nperseg={size} is greater than input_length={length!r}, using nperseg={length}",
                stacklevel=4,
            )
            size = length
        return jnp.array(_named_window(window, size), dtype=dtype), size
    values = jnp.asarray(window, dtype=dtype)
    if values.ndim != 1:
        raise ValueError("window must be 1-D" + here())
    if length < values.size:
        raise ValueError("window is longer than input signal" + here())
    if nperseg is not None and nperseg != values.size:
        raise ValueError("value specified for nperseg is different from length of window" + here())
    return values, values.size


# -- extension at the boundaries -----------------------------------------------------------------


def _pad_last(x, n, mode, **options):
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(n, n)], mode, **options)


def _odd_extension(x, n):
    """Extend a signal by `n` samples at both ends, reflected about its end points."""
    if n < 1:
        return x
    if n > x.shape[-1] - 1:
        raise ValueError(f"The extension length n ({n}) is too big. It must not exceed "
                         f"x.shape[axis]-1, which is {x.shape[-1] - 1}.{here()}")
    left = 2 * x[..., :1] - jnp.flip(x[..., 1 : n + 1], -1)
    right = 2 * x[..., -1:] - jnp.flip(x[..., -n - 1 : -1], -1)
    return jnp.concatenate([left, x, right], axis=-1)


_BOUNDARIES = {
    "even": lambda x, n: _pad_last(x, n, "reflect"),
    "odd": _odd_extension,
    "constant": lambda x, n: _pad_last(x, n, "edge"),
    "zeros": lambda x, n: _pad_last(x, n, "constant", constant_values=0.0),
    None: lambda x, n: x,
}


# -- the windowed transform ----------------------------------------------------------------------


def _segments(x, win, detrend_func, nperseg, noverlap, nfft, onesided):
    """Transform all segments of the last axis; the result has axes (..., segment, frequency)."""
    starts = np.arange(0, x.shape[-1] - nperseg + 1, nperseg - noverlap)
    parts = detrend_func(x[..., starts[:, None] + np.arange(nperseg)[None, :]])
    if jnp.iscomplexobj(win):
        parts = parts.astype(to_complex(parts.dtype))
    parts = at_rank(win, parts.ndim) * parts
    return jnp.fft.rfft(parts.real, n=nfft) if onesided else jnp.fft.fft(parts, n=nfft)


def _detrender(kind: Any, axis: int, ndim: int) -> Callable[[Array], Array]:
    if isinstance(kind, str):
        options: dict[str, Any] = {"type": kind, "axis": -1}
        return functools.partial(detrend, **options)
    if callable(kind):
        if axis == ndim - 1:
            return kind
        return lambda d: jnp.moveaxis(kind(jnp.moveaxis(d, axis, -1)), -1, axis)
    if not kind:
        return lambda d: d
    raise ValueError(f"Unsupported detrend type: {kind}{here()}")


def _lengths(nperseg, noverlap, nfft):
    noverlap = nperseg // 2 if noverlap is None else int(noverlap)
    nfft = nperseg if nfft is None else int(nfft)
    if nfft < nperseg:
        raise ValueError("nfft must be greater than or equal to nperseg." + here())
    if noverlap >= nperseg:
        raise ValueError("noverlap must be less than nperseg." + here())
    return noverlap, nfft


def _is_onesided(signals, wanted):
    """Whether to leave out negative frequencies, which is impossible for complex signals."""
    if wanted and any(jnp.iscomplexobj(v) for v in signals):
        warnings.warn("Input data is complex, switching to return_onesided=False", stacklevel=4)
        return False
    return wanted


def _signals(x, y, axis):
    """Return one or two signals, with `axis` moved to the end.

    Two signals are converted to the same dtype, and the shorter signal is padded with zeros."""
    if y is None:
        (x,) = inexact("spectral_helper", x)
        return (jnp.moveaxis(x, axis, -1),)
    return _two_signals(x, jnp.asarray(y), axis)


def _two_signals(x, y, axis):
    x, y = inexact("spectral_helper", x, y)
    if x.ndim != y.ndim:
        raise ValueError(f"two-arguments must have the same rank ({x.ndim} vs {y.ndim}).{here()}")
    outer = [s[:axis] + s[axis + 1 :] for s in (x.shape, y.shape)]
    try:
        jnp.broadcast_shapes(*outer)
    except ValueError as error:
        raise ValueError("x and y cannot be broadcast together." + here()) from error
    x, y = jnp.moveaxis(x, axis, -1), jnp.moveaxis(y, axis, -1)
    n = max(x.shape[-1], y.shape[-1])
    return tuple(jnp.pad(v, [(0, 0)] * (v.ndim - 1) + [(0, n - v.shape[-1])]) for v in (x, y))


def _spectral(x, y, fs, window, nperseg, noverlap, nfft, detrend_type, return_onesided, scaling,
              axis, mode="psd", boundary=None, padded=False):
    if boundary not in _BOUNDARIES:
        raise ValueError(f"Unknown boundary option '{boundary}', must be one of: "
                         f"{list(_BOUNDARIES)}{here()}")
    x = array("spectral_helper", x)
    axis = canonical_axis(axis, x.ndim)
    length = x.shape[axis]
    signals = _signals(x, y, axis)
    dtype = to_complex(signals[0].dtype)
    real = np.dtype(np.zeros((), dtype).real.dtype)
    win, nperseg = _window(window, nperseg, length, signals[0].dtype)
    if any(v.size == 0 for v in signals):
        shape = jnp.moveaxis(signals[0], -1, axis).shape
        return jnp.zeros(shape, real), jnp.zeros(shape, real), jnp.zeros(shape, dtype)
    noverlap, nfft = _lengths(nperseg, noverlap, nfft)
    step = nperseg - noverlap
    signals = [_BOUNDARIES[boundary](v, nperseg // 2) for v in signals]
    if padded:
        extra = -(signals[0].shape[-1] - nperseg) % step % nperseg
        signals = [jnp.pad(v, [(0, 0)] * (v.ndim - 1) + [(0, extra)]) for v in signals]
    onesided = _is_onesided(signals, return_onesided)
    frequencies = (jnp.fft.rfftfreq if onesided else jnp.fft.fftfreq)(nfft, 1 / fs, dtype=real)
    trend = _detrender(detrend_type, axis, x.ndim)
    parts = [_segments(v, win, trend, nperseg, noverlap, nfft, onesided) for v in signals]
    out = parts[0] if mode == "stft" else jnp.conjugate(parts[0]) * parts[-1]
    out = out * _scale(win, fs, scaling, mode).astype(dtype)
    if onesided and mode == "psd":  # negative frequencies are counted with the positive ones
        out = out.at[..., 1 : (None if nfft % 2 else -1)].mul(2)
    time = _middles(signals[0].shape[-1], nperseg, step, fs, boundary, real)
    out = out.astype(dtype)
    if y is None and mode != "stft":
        out = out.real
    return frequencies, time, jnp.moveaxis(out, -1, axis)


def _middles(length, nperseg, step, fs, boundary, dtype):
    """Return the times of the middles of the segments; the extended part is before time 0."""
    time = jnp.arange(nperseg / 2, length - nperseg / 2 + 1, step, dtype=dtype) / fs
    return time if boundary is None else time - (nperseg / 2) / fs


def _scale(win, fs, scaling, mode):
    if scaling == "density":
        scale = 1.0 / (fs * jnp.sum(win * win))
    elif scaling == "spectrum":
        scale = 1.0 / jnp.sum(win) ** 2
    else:
        raise ValueError(f"Unknown scaling: {scaling}{here()}")
    return jnp.sqrt(scale) if mode == "stft" else scale


def stft(x: ArrayLike, fs: ArrayLike = 1.0,
         window: str | tuple[Any, ...] | ArrayLike = "hann", nperseg: int = 256,
         noverlap: int | None = None, nfft: int | None = None,
         detrend: str | Callable[[Array], Array] | Literal[False] = False,
         return_onesided: bool = True,
         boundary: Literal["even", "odd", "constant", "zeros"] | None = "zeros",
         padded: bool = True, axis: int = -1) -> tuple[Array, Array, Array]:
    """Compute the short-time Fourier transform: the transforms of overlapping segments.

    Args:
        x: array of samples.
        fs: number of samples per unit of time.
        window: an array of window values, or the name of a window. All names that SciPy's function
            `get_window` accepts are supported; all of them except `"hann"` require SciPy to be
            installed.
        nperseg: number of samples in a segment. If `window` is an array, it must have this length.
        noverlap: number of samples that neighboring segments share; None for half a segment.
        nfft: length of the Fourier transforms. Segments are padded with zeros to this length. The
            default is the length of a segment.
        detrend: trend to subtract from each segment: none (False), the mean (`"constant"`) or a
            line (`"linear"`). If `detrend` is a function, it is called with the segments and must
            return the detrended segments.
        return_onesided: whether to leave out negative frequencies, which are redundant for real
            signals. For complex signals, negative frequencies are always returned.
        boundary: how to extend the signal by half a segment at both ends: with zeros (`"zeros"`),
            with the end values (`"constant"`), by a mirror image (`"even"`), or by a point
            reflection about the end values (`"odd"`). If `boundary` is None, the signal is not
            extended.
        padded: whether to add zeros at the end until the last segment is complete.
        axis: axis of the samples.

    Returns:
        A tuple `(frequencies, times, transform)`. In the transform, `axis` is the axis of
        frequencies, and the segments are along a new last axis. `times` contains the midpoints of
        the segments.

    Raises:
        ValueError: a length or an option is not valid.

    >>> from toile.scipy import signal
    >>> frequencies, times, z = signal.stft(jnp.ones(64), nperseg=16)
    >>> frequencies.shape, times.shape, z.shape
    ((9,), (9,), (9, 9))
    """
    return _spectral(x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided,
                     "spectrum", axis, mode="stft", boundary=boundary, padded=padded)


def _median_bias(n):
    """Return the ratio of the median to the mean of `n` independent spectral estimates."""
    even = np.arange(2.0, n, 2)
    return 1 + np.sum(1.0 / (even + 1) - 1.0 / even)


def csd(x: ArrayLike, y: ArrayLike | None, fs: ArrayLike = 1.0,
        window: str | tuple[Any, ...] | ArrayLike = "hann", nperseg: int | None = None,
        noverlap: int | None = None, nfft: int | None = None,
        detrend: str | Callable[[Array], Array] | Literal[False] = "constant",
        return_onesided: bool = True, scaling: Literal["density", "spectrum"] = "density",
        axis: int = -1, average: Literal["mean", "median"] = "mean") -> tuple[Array, Array]:
    """Estimate the cross-power spectral density of two signals by Welch's method.

    The signals are cut into overlapping segments. The Fourier transform of each segment of `y` is
    multiplied by the complex conjugate of the transform of the corresponding segment of `x`, and
    the products are averaged.

    Args:
        x, y: arrays of samples. The shorter signal is padded with zeros. If `y` is None, the result
            equals the result of `welch`.
        fs: number of samples per unit of time.
        window: an array of window values, or the name of a window. All names that SciPy's function
            `get_window` accepts are supported; all of them except `"hann"` require SciPy to be
            installed.
        nperseg: number of samples in a segment. The default is the length of the window if `window`
            is an array, and otherwise the length of the signal.
        noverlap: number of samples that neighboring segments share; None for half a segment.
        nfft: length of the Fourier transforms. Segments are padded with zeros to this length. The
            default is the length of a segment.
        detrend: trend to subtract from each segment: the mean (`"constant"`), a line (`"linear"`)
            or none (False). If `detrend` is a function, it is called with the segments and must
            return the detrended segments.
        return_onesided: whether to leave out negative frequencies, which are redundant for real
            signals. For complex signals, negative frequencies are always returned.
        scaling: `"density"` for the power per unit of frequency, `"spectrum"` for the power.
        axis: axis of the samples.
        average: how to average over the segments: `"mean"`, or `"median"`, which is corrected for
            its bias.

    Returns:
        A tuple `(frequencies, density)`. The density is complex, or real if `y` is None. The
        frequencies are along `axis`.

    Raises:
        ValueError: a length or an option is not valid.

    Differences:
        In SciPy, `nperseg` is 256 by default.
    """
    frequencies, _, p = _spectral(x, y, fs, window, nperseg, noverlap, nfft, detrend,
                                  return_onesided, scaling, axis)
    if y is not None:
        p = p + 0j
    if p.ndim < 2 or p.size == 0:
        return frequencies, p
    if p.shape[-1] == 1:
        return frequencies, jnp.reshape(p, p.shape[:-1])
    if average == "mean":
        return frequencies, jnp.mean(p, axis=-1)
    if average != "median":
        raise ValueError(f'average must be "median" or "mean", got {average}{here()}')
    bias = jnp.asarray(_median_bias(p.shape[-1]), p.dtype)
    if jnp.iscomplexobj(p):
        p = lax.complex(jnp.median(p.real, axis=-1), jnp.median(p.imag, axis=-1))
    else:
        p = jnp.median(p, axis=-1)
    return frequencies, p / bias


def welch(x: ArrayLike, fs: ArrayLike = 1.0,
          window: str | tuple[Any, ...] | ArrayLike = "hann", nperseg: int | None = None,
          noverlap: int | None = None, nfft: int | None = None,
          detrend: str | Callable[[Array], Array] | Literal[False] = "constant",
          return_onesided: bool = True, scaling: Literal["density", "spectrum"] = "density",
          axis: int = -1, average: Literal["mean", "median"] = "mean") -> tuple[Array, Array]:
    """Estimate the power spectral density of a signal by Welch's method.

    The signal is cut into overlapping segments, and the squared magnitudes of the segments' Fourier
    transforms are averaged.

    Args:
        x: array of samples.
        fs: number of samples per unit of time.
        window: an array of window values, or the name of a window. All names that SciPy's function
            `get_window` accepts are supported; all of them except `"hann"` require SciPy to be
            installed.
        nperseg: number of samples in a segment. The default is the length of the window if `window`
            is an array, and otherwise the length of the signal.
        noverlap: number of samples that neighboring segments share; None for half a segment.
        nfft: length of the Fourier transforms. Segments are padded with zeros to this length. The
            default is the length of a segment.
        detrend: trend to subtract from each segment: the mean (`"constant"`), a line (`"linear"`)
            or none (False). If `detrend` is a function, it is called with the segments and must
            return the detrended segments.
        return_onesided: whether to leave out negative frequencies, which are redundant for real
            signals. For complex signals, negative frequencies are always returned.
        scaling: `"density"` for the power per unit of frequency, `"spectrum"` for the power.
        axis: axis of the samples.
        average: how to average over the segments: `"mean"`, or `"median"`, which is corrected for
            its bias.

    Returns:
        A tuple `(frequencies, density)`. The density is real, and the frequencies are along `axis`.

    Raises:
        ValueError: a length or an option is not valid.

    Differences:
        In SciPy, `nperseg` is 256 by default.

    >>> from toile.scipy import signal
    >>> wave = jnp.sin(2 * jnp.pi * 8 * jnp.arange(256) / 64)
    >>> frequencies, density = signal.welch(wave, fs=64, nperseg=64)
    >>> frequencies[jnp.argmax(density)]
    Array(8., dtype=float32)
    """
    frequencies, p = csd(x, None, fs=fs, window=window, nperseg=nperseg, noverlap=noverlap,
                         nfft=nfft, detrend=detrend, return_onesided=return_onesided,
                         scaling=scaling, axis=axis, average=average)
    return frequencies, p.real


def _overlap_add(x, step):
    """Add frames of shape `(..., frame, sample)` at offsets of `step` samples."""
    *batch, frames, size = x.shape
    blocks = -(-size // step)  # each frame as whole blocks of `step` samples
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, blocks * step - size)])
    x = x.reshape((math.prod(batch), frames, blocks, step))
    out = jnp.zeros((x.shape[0], frames + blocks - 1, step), x.dtype)
    for i in range(blocks):
        out = out.at[:, i : i + frames].add(x[:, :, i])
    return out.reshape((*batch, -1))[..., : step * (frames - 1) + size]


def _istft_lengths(freqs, nperseg, noverlap, nfft, onesided):
    default = 2 * (freqs - 1) if onesided else freqs
    nperseg = int(nperseg or default)
    if nperseg < 1:
        raise ValueError("nperseg must be a positive integer" + here())
    if nfft is None:
        size = default + (1 if onesided and nperseg == default + 1 else 0)
    else:
        size = int(nfft)
    if size < nperseg:
        raise ValueError(f"FFT length ({size}) must be longer than nperseg ({nperseg}).{here()}")
    noverlap = int(noverlap or nperseg // 2)
    if noverlap >= nperseg:
        raise ValueError("noverlap must be less than nperseg." + here())
    return nperseg, noverlap


def istft(Zxx: ArrayLike, fs: ArrayLike = 1.0,
          window: str | tuple[Any, ...] | ArrayLike = "hann", nperseg: int | None = None,
          noverlap: int | None = None, nfft: int | None = None, input_onesided: bool = True,
          boundary: bool = True, time_axis: int = -1,
          freq_axis: int = -2) -> tuple[Array, Array]:
    """Reconstruct a signal from its short-time Fourier transform (the inverse of `stft`).

    The segments are transformed back, multiplied by the window and added, and the result is divided
    by the sum of the squared windows. The arguments must match those that were passed to `stft`.

    Args:
        Zxx: the transform, an array with an axis of frequencies and an axis of segments.
        fs: number of samples per unit of time.
        window: an array of window values, or the name of a window. All names that SciPy's function
            `get_window` accepts are supported; all of them except `"hann"` require SciPy to be
            installed.
        nperseg: number of samples in a segment; None to infer it from the number of frequencies.
        noverlap: number of samples that neighboring segments share; None or 0 for half a segment.
        nfft: length of the Fourier transforms; None to infer it from the number of frequencies.
        input_onesided: whether negative frequencies were left out of the transform.
        boundary: whether the signal was extended at its ends. If True, half a segment is removed
            from each end of the result.
        time_axis: axis of the segments.
        freq_axis: axis of the frequencies.

    Returns:
        A tuple `(times, signal)`. `times` has the length of the first axis of the signal, even if
        the samples are along another axis.

    Raises:
        ValueError: a length does not match the transform, or the two axes are the same.

    Differences:
        In SciPy, `noverlap=0` means that segments do not overlap.

    >>> from toile.scipy import signal
    >>> _, _, z = signal.stft(jnp.arange(32.0), nperseg=16)
    >>> signal.istft(z)[1][1:5].round(3)
    Array([1., 2., 3., 4.], dtype=float32)
    """
    z = array("istft", Zxx)
    if z.ndim < 2:
        raise ValueError("Input stft must be at least 2d!" + here())
    freq_axis, time_axis = canonical_axis(freq_axis, z.ndim), canonical_axis(time_axis, z.ndim)
    if freq_axis == time_axis:
        raise ValueError("Must specify differing time and frequency axes!" + here())
    z = z.astype(to_complex(z.dtype))
    nperseg, noverlap = _istft_lengths(z.shape[freq_axis], nperseg, noverlap, nfft, input_onesided)
    step = nperseg - noverlap
    z = jnp.moveaxis(z, (freq_axis, time_axis), (-1, -2))  # (..., frame, frequency)
    inverse = jnp.fft.irfft if input_onesided else jnp.fft.ifft
    frames = inverse(z, axis=-1, n=nfft)[..., :nperseg]
    if isinstance(window, (str, tuple)):
        win = jnp.array(_named_window(window, nperseg), dtype=frames.dtype)
    else:
        win = jnp.asarray(window)
        if win.ndim != 1:
            raise ValueError("window must be 1-D" + here())
        if win.shape[0] != nperseg:
            raise ValueError(f"window must have length of {nperseg}{here()}")
    frames = frames * jnp.sum(win)
    x = _overlap_add(frames * at_rank(win, frames.ndim), step)
    squared = jnp.broadcast_to(win * win, (frames.shape[-2], nperseg))
    norm = _overlap_add(squared, step)
    if boundary:
        edge = nperseg // 2
        x, norm = x[..., edge:-edge], norm[..., edge:-edge]
    x = x / at_rank(jnp.where(norm > 1e-10, norm, 1.0), x.ndim)
    if x.ndim > 1 and time_axis != z.ndim - 1:
        x = jnp.moveaxis(x, -1, time_axis - (1 if freq_axis < time_axis else 0))
    real = np.dtype(np.zeros((), x.dtype).real.dtype)
    return jnp.arange(x.shape[0], dtype=real) / fs, x
