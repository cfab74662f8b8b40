"""Comparison of toile.random with jax.random, sample by sample.

Parameters are written as NumPy arrays or numbers; keys are made from the same seed on both sides.
JAX's samples are recorded as differences from toile's (tests/golden/recorded.py).
"""

import contextlib

import jax
import numpy as np

import toile
from tests.golden.recorded import Record, text_of
from toile import random
from toile.random._arguments import float16_is_native

RECORD = Record("random")

# Before 0.11 jax's float64 log1p and erf_inv were off by up to 128 and 21 units in the last place,
# its float16 logarithm by 8, and digamma was nan at zero; toile follows the newer ones.
OLD = jax.__version_info__ < (0, 11)


@contextlib.contextmanager
def x64(on):
    """Both libraries with x64 on or off."""
    with jax.enable_x64(on):
        before = toile.config.jax_enable_x64
        toile.config.update("jax_enable_x64", on)
        try:
            yield
        finally:
            toile.config.update("jax_enable_x64", before)


def plain(x):
    """An array of either library as NumPy, keys as their words."""
    if "key<" in str(x.dtype):
        x = (random if isinstance(x, toile.Array) else jax.random).key_data(x)
    return np.asarray(x)


def both(name, *args, seed=0, raw=False, **kwargs):
    """The results of toile's and of JAX's sampler `name`."""
    make = "PRNGKey" if raw else "key"

    def draw(library):
        key = getattr(library, make)(seed)
        return plain(getattr(library, name)(key, *args, **kwargs))

    ours = draw(random)
    modes = jax.config.jax_enable_x64, jax.config.jax_threefry_partitionable
    if ours.dtype == np.float16:  # whose roundings depend on the processor
        modes += (float16_is_native(),)
    key = text_of(name, args, sorted(kwargs.items()), seed, raw, modes)
    theirs = RECORD.answer(key, lambda: draw(jax.random), near=ours)
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    return ours, theirs


def check_equal(name, *args, **kwargs):
    """Both samplers give the same bits."""
    ours, theirs = both(name, *args, **kwargs)
    np.testing.assert_array_equal(ours, theirs)


def ulps(a, b):
    """Distance in units in the last place; equal values and two nans are 0 apart."""
    if a.dtype.kind == "c":
        return np.maximum(ulps(a.real.copy(), b.real.copy()), ulps(a.imag.copy(), b.imag.copy()))
    integer = np.dtype(f"i{a.dtype.itemsize}")
    lines = []
    for x in (a, b):
        n = np.atleast_1d(x).view(integer).astype(np.int64)
        lines.append(np.where(n < 0, np.iinfo(integer).min - n, n))  # monotone over all floats
    apart = np.abs(lines[0] - lines[1])
    same = (a == b) | (a != a) & (b != b)
    return np.where(np.atleast_1d(same), 0, apart)


def check_close(name, *args, most=4, share=1.0, terms=None, **kwargs):
    """At least `share` of the numbers agree within `most` units in the last place.

    Where a number is a sum, `terms` is the size of its terms: near zero, where they cancel, the
    units are those of the terms, since no rounding of them is smaller. On a GPU, whose logarithms
    are not the CPU's, the same is true of logarithms of numbers near 1."""
    ours, theirs = both(name, *args, **kwargs)
    if terms is None and name in ("gumbel", "logistic") and toile.default_backend() == "gpu":
        terms = 1.0
    if ours.dtype.kind in "iub":
        near = ours == theirs
    elif terms is not None:
        unit = np.spacing(np.maximum(abs(theirs), theirs.dtype.type(terms)))
        near = abs(ours - theirs) <= most * unit
    else:
        near = ulps(ours, theirs) <= most
    found = np.mean(near) if near.size else 1.0
    assert found >= share, f"{found:.6f} within {most} ulp, got {ours}, needed {theirs}"
