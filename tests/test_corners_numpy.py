"""Corners of toile.numpy: each row gives in toile what it gives in jax.

A row is a function of the package; it returns something to compare or raises. Errors agree in
their type, and in the words that are given with the row.
"""

import enum
import io
import re
import warnings

import jax
import numpy as np
import pytest

import toile
from tests.against_jax import compare
from tests.golden.recorded import CORNERS

pytestmark = pytest.mark.cpu

V = np.float32([1, 2, 3])
M = np.arange(6, dtype=np.float32).reshape(2, 3)
Z = np.complex64([1 + 2j, 1 + 3j, 2])
F = np.float32([1.5, 12.25])


def _loaded(lib):
    with io.BytesIO() as file:
        lib.numpy.save(file, np.array([{"a": 1}, None], object))
        file.seek(0)
        return list(lib.numpy.load(file, allow_pickle=True)) == [{"a": 1}, None]


def _ramp(x, width, end):
    return lambda lib: lib.numpy.pad(x, width, "linear_ramp", end_values=end)


def _split(lib):
    return lib.jvp(lambda i: lib.numpy.split(lib.numpy.zeros((4, 2)), i), (2.0,), (1.0,))


def _vectorized(lib, **options):
    return lib.numpy.vectorize(lambda x, y: x if y is None else x + y, **options)


def _steps(shape, dx, axis):
    y, d = np.arange(np.prod(shape)).reshape(shape), np.arange(np.prod(dx)).reshape(dx) + 1
    return lambda lib: lib.numpy.trapezoid(np.float32(y), dx=np.float32(d), axis=axis)


class _Number(enum.IntEnum):
    TWO = 2


class _Typed:
    """Something with a dtype that cannot be hashed."""

    __hash__ = None  # type: ignore[assignment]
    dtype = np.dtype("float32")


def _is_weak(make):
    return lambda lib: bool(make(lib.numpy).weak_type)


VALUES = {
    "fftn_no_axes": lambda lib: lib.numpy.fft.fftn(M, axes=[]),
    "rfftn_no_axes": lambda lib: lib.numpy.fft.rfftn(np.int32(M), axes=[]),
    "irfftn_no_axes": lambda lib: lib.numpy.fft.irfftn(M, axes=[]),
    "qr_raw": lambda lib: tuple(lib.numpy.linalg.qr(M.T, mode="raw")),
    "qr_raw_complex": lambda lib: tuple(
        lib.numpy.linalg.qr(np.stack([Z * V, Z])[None], mode="raw")),
    "qr_raw_empty": lambda lib: tuple(lib.numpy.linalg.qr(M[:0], mode="raw")),
    "qr_full": lambda lib: lib.numpy.linalg.qr(M.T, mode="full")[1],
    "matrix_power_bool": lambda lib: lib.numpy.linalg.matrix_power(M[:, :2], True),
    "power_of_weak": _is_weak(lambda jnp: 2**jnp.array(3)),
    "power_dtype_of_base": lambda lib: lib.numpy.uint8(3)**lib.numpy.int8(3),
    "power_numpy_scalar": lambda lib: lib.numpy.arange(3, dtype="uint8")**np.array(2),
    "power_in_vmap": lambda lib: lib.vmap(lambda x: x**lib.numpy.array(3, "int8"))(np.uint8([2])),
    "array_of_enum": _is_weak(lambda jnp: jnp.array(_Number.TWO)),
    "asarray_of_enum": _is_weak(lambda jnp: jnp.asarray(_Number.TWO)),
    "zeros_unhashable_dtype": lambda lib: lib.numpy.zeros(3, dtype=_Typed()),
    "astype_unhashable_dtype": lambda lib: lib.numpy.arange(3).astype(_Typed()),
    "from_dlpack_narrowed": lambda lib: lib.numpy.from_dlpack(np.ones(2)),
    "load_objects": _loaded,
    "polyfit_rcond": lambda lib: lib.numpy.polyfit(V, V, 1, full=True)[4],
    "round_many_decimals": lambda lib: lib.numpy.round(F, 100),
    "round_more_decimals": lambda lib: lib.numpy.round(np.float16(F), 1000),
    "pad_ramp_integers": _ramp(np.arange(6).reshape(2, 3), ((1, 2), (3, 0)), 0),
    "pad_ramp_fractions": _ramp(np.array([5, -7, 3]), 4, -3.7),
    "trim_zeros_scalar": lambda lib: lib.numpy.trim_zeros(3.0),
    "insert_keeps_dtype": lambda lib: lib.jit(lib.numpy.insert)(
        np.arange(3), np.array([2, 2]), F),
    "repeat_fills_with_last": lambda lib: lib.numpy.repeat(
        V, np.array([1, 3, 0]), total_repeat_length=5),
    "split_at_float_tracer": _split,
    "eye_far_diagonal": lambda lib: lib.numpy.eye(4, 3, k=-2**100),
    "histogram_integer_weights": lambda lib: lib.numpy.histogram(
        np.array([1, 2, 2]), np.arange(4), weights=np.array([1, 2, 3])),
    "searchsorted_complex": lambda lib: lib.numpy.searchsorted(Z, Z[::-1]),
    "searchsorted_complex_all": lambda lib: lib.numpy.searchsorted(
        Z, Z, side="right", method="compare_all"),
    "digitize_decreasing": lambda lib: lib.numpy.digitize(V, V[::-1]),
    "digitize_decreasing_right": lambda lib: lib.numpy.digitize(V, V[::-1], right=True),
    "ravel_multi_index_ignore": lambda lib: lib.numpy.ravel_multi_index(
        (np.int8([0, 1]), np.int8([0, 1])), (2, 3), mode="ignore"),
    "put_negative": lambda lib: lib.numpy.put(M, np.array([-2, 9]), 9.0, inplace=False),
    "trapezoid_steps_0": _steps((3, 4, 5), (4, 5), 0),
    "trapezoid_steps_1": _steps((3, 4, 5), (3, 5), 1),
    "trapezoid_steps_2": _steps((3, 4, 5), (3, 3, 5), 1),
    "mgrid_empty": lambda lib: lib.numpy.mgrid[()],
    "mgrid_no_end": lambda lib: lib.numpy.mgrid[:],
    "r_no_end": lambda lib: lib.numpy.r_[:],
    "r_row": lambda lib: lib.numpy.r_["r", [1, 2], [3, 4]],
    "r_column": lambda lib: lib.numpy.r_["c", [1, 2], [3, 4]],
    "c_row": lambda lib: lib.numpy.c_["r", [1, 2], [3, 4]],
    "c_axis_and_rank": lambda lib: lib.numpy.c_["0,2", [1, 2], [3, 4]],
    "iscomplexobj_list": lambda lib: lib.numpy.iscomplexobj([1 + 1j]),
    "iscomplexobj_tuple": lambda lib: lib.numpy.iscomplexobj((V,)),
    "get_no_wrap": lambda lib: lib.numpy.asarray(V).at[-1].get(
        mode="fill", wrap_negative_indices=False),
    "set_no_wrap": lambda lib: lib.numpy.asarray(V).at[-1].set(9, wrap_negative_indices=False),
    "logical_accumulate": lambda lib: lib.numpy.logical_or.accumulate(np.array([0, 2, 0])),
    "logical_xor_reduce": lambda lib: lib.numpy.logical_xor.reduce(M, axis=1),
    "logical_at": lambda lib: lib.numpy.logical_and.at(V, np.array([0, 0]), 0, inplace=False),
    "vectorize_none": lambda lib: _vectorized(lib)(V, None),
}

SPLIT = "Abstract tracer value encountered where concrete value is expected"
BINARY = "reduce only supported for binary ufuncs"
SINGLE = "only supported for functions returning a single value"


def _in_jit(get):
    return lambda lib: lib.jit(lambda i: get(lib, i))(0)


def _strict(lib):
    with lib.numpy_rank_promotion("raise"):
        return lib.numpy.vectorize(lib.numpy.add)(lib.numpy.ones(3), lib.numpy.ones((1, 3)))


def _pair(lib):
    return lib.numpy.frompyfunc(lambda x, y: (x, y), 2, 2)


SEVERAL = r"does not support multiple axes\. Please use jax\.numpy\.fft\.h?fftn\. Got axis = \[1, 1"
LENGTHS = r"Shape and axes have different lengths\."
NEGATIVE = "Integers cannot be raised to negative powers"

ERRORS = {
    "fft_axes": (lambda lib: lib.numpy.fft.fft(M, axis=[1, 1]), "jax.numpy.fft.fft " + SEVERAL),
    "hfft_axes": (lambda lib: lib.numpy.fft.hfft(M, axis=[1, 1]), "jax.numpy.fft.hfft " + SEVERAL),
    "fft_size": (lambda lib: lib.numpy.fft.fft(M, n=0), "Shape should be positive"),
    "fft_norm": (lambda lib: lib.numpy.fft.fft(M, norm="x"), 'should be "backward","ortho" or'),
    "fft2_axes": (lambda lib: lib.numpy.fft.fft2(M, axes=[0]),
                  r"jax.numpy.fft.fft2 only supports 2 axes. Got axes = \[0\]."),
    "fft2_sizes": (lambda lib: lib.numpy.fft.fft2(M, s=[1]), LENGTHS),
    "fftn_axes": (lambda lib: lib.numpy.fft.fftn(M, axes=[1, 1]),
                  r"jax.numpy.fft.fftn does not support repeated axes. Got axes \[1, 1\]."),
    "fftn_sizes": (lambda lib: lib.numpy.fft.fftn(M, s=[1, 2], axes=[0]), LENGTHS),
    "fftn_more_sizes": (lambda lib: lib.numpy.fft.fftn(M, s=[2, 2, 2]), "FFT input shape"),
    "fftfreq_list": (lambda lib: lib.numpy.fft.fftfreq([0, 1]),
                     r"n argument of jax.numpy.fft.fftfreq only takes an int. Got n = \[0, 1\]."),
    "rfftfreq_list": (lambda lib: lib.numpy.fft.rfftfreq(2, d=[1, 2]),
                      r"jax.numpy.fft.rfftfreq only takes a single value. Got d = \[1, 2\]."),
    "norm_inf": (lambda lib: lib.numpy.linalg.norm(V, ord="inf"),
                 "Invalid order 'inf' for vector norm."),
    "matrix_norm_inf": (lambda lib: lib.numpy.linalg.norm(M, ord="inf"),
                        "Invalid order 'inf' for matrix norm."),
    "norm_three_axes": (lambda lib: lib.numpy.linalg.norm(M[None], ord=2), r"axis=\(0, 1, 2\)"),
    "pinv_two_limits": (lambda lib: lib.numpy.linalg.pinv(M, rtol=0.1, rcond=0.1),
                        "only one of rtol and rcond may be specified"),
    "matrix_rank_two_limits": (lambda lib: lib.numpy.linalg.matrix_rank(M, rtol=0.1, tol=0.1),
                               "only one of tol or rtol may be specified"),
    "matrix_power_float": (lambda lib: lib.numpy.linalg.matrix_power(M[:, :2], 1.5),
                           "exponent must be an integer, got 1.5"),
    "matrix_power_vector": (lambda lib: lib.numpy.linalg.matrix_power(V, 2),
                            "1-dimensional array given. Array must be at least two-dimensional"),
    "matrix_power_oblong": (lambda lib: lib.numpy.linalg.matrix_power(M, 2),
                            "Last 2 dimensions of the array must be square"),
    "multi_dot_rank": (lambda lib: lib.numpy.linalg.multi_dot([M[None], M.T]),
                       "multi_dot: input arrays must all be two-dimensional, except for the first"),
    "multi_dot_sizes": (lambda lib: lib.numpy.linalg.multi_dot([M, M]),
                        "last dimension of each array must match first dimension of following"),
    "tensorinv_sizes": (lambda lib: lib.numpy.linalg.tensorinv(M, ind=1),
                        "tensorinv is only possible when the product of the first `ind` dim"),
    "cond_vector": (lambda lib: lib.numpy.linalg.cond(V),
                    "jnp.linalg.cond: input array must be at least 2D"),
    "cond_empty": (lambda lib: lib.numpy.linalg.cond(M[:0]),
                   "jnp.linalg.cond: input array must not be empty"),
    "cond_oblong": (lambda lib: lib.numpy.linalg.cond(M, p=1),
                    "jnp.linalg.cond: for p=1, array must be square"),
    "eig_vector": (lambda lib: lib.numpy.linalg.eig(V), "must have rank at least 2, but got"),
    "eig_oblong": (lambda lib: lib.numpy.linalg.eig(M), "input to eig must be a square matrix"),
    "svd_vector": (lambda lib: lib.numpy.linalg.svd(V), "must have rank at least 2, but got"),
    "qr_vector": (lambda lib: lib.numpy.linalg.qr(V), "must have rank at least 2, but got"),
    "inv_vector": (lambda lib: lib.numpy.linalg.inv(V), r"must have shape \[..., n, n\], got"),
    "power_negative": (lambda lib: lib.numpy.arange(3)**-1, NEGATIVE),
    "power_negative_array": (lambda lib: 2**lib.numpy.array(-1), NEGATIVE),
    "nanargmin_empty": (lambda lib: lib.numpy.nanargmin(V[:0]), "attempt to get argmin of an"),
    "tensordot_words": (lambda lib: lib.numpy.tensordot(M, V, axes=("a", "b")),
                        "tensordot requires both axes lists to be either ints, tuples or lists"),
    "trim_zeros_list": (lambda lib: lib.numpy.trim_zeros([0, 1]), "trim_zeros requires ndarray"),
    "size_repeated_axis": (lambda lib: lib.numpy.size(M, (0, -2)), "repeated axis"),
    "repeat_negative": (lambda lib: lib.numpy.repeat(V, -1), "repeat|negative"),
    "repeat_float": (lambda lib: lib.numpy.repeat(V, 1.5), "integer"),
    "split_traced_member": (_in_jit(lambda lib, i: lib.numpy.split(V, [1, i])), SPLIT),
    "eye_float": (lambda lib: lib.numpy.eye(3.0), "Shapes must be 1D sequences of concrete"),
    "tri_traced": (lambda lib: lib.jit(lib.numpy.tri)(3), "Shapes must be 1D sequences of"),
    "interp_left": (lambda lib: lib.numpy.interp(0.0, V, V, left="nearest"),
                    "the only valid string value of `left` is 'extrapolate', but got: 'nearest'"),
    "corrcoef_dtype": (lambda lib: lib.numpy.corrcoef(V, dtype=int),
                       "corrcoef: dtype must be a subclass of float or complex"),
    "cov_dtype": (lambda lib: lib.numpy.cov(V, dtype=int), "cov: dtype must be a subclass of"),
    "sort_order": (lambda lib: lib.numpy.sort(V, order="a"), "'order' argument to sort"),
    "put_raise": (lambda lib: lib.numpy.put(V, 0, 1, mode="raise", inplace=False),
                  "The 'raise' mode to jnp.put is not supported"),
    "mgrid_traced": (_in_jit(lambda lib, i: lib.numpy.mgrid[i:2]), "slice start of jnp.mgrid"),
    "r_traced": (_in_jit(lambda lib, i: lib.numpy.r_[0:i]), "slice stop of jnp.r_"),
    "array_of_large": (lambda lib: lib.numpy.array([0, -2**63 - 1]), "too large|too big"),
    "ones_of_two_numbers": (lambda lib: lib.numpy.ones(2, 3),
                            r"Did you accidentally write `jax\.numpy\.ones\(2, 3\)` when you"),
    "empty_of_two_numbers": (lambda lib: lib.numpy.empty(2, 3), r"meant `jax\.numpy\.empty\(\(2"),
    "masked": (lambda lib: lib.numpy.add(np.ma.array([1, 2], mask=[True, False]), 1),
               "numpy masked arrays are not supported"),
    "string_index": (lambda lib: lib.numpy.asarray(V)["abc"],
                     "JAX does not support string indexing; got idx='abc'"),
    "empty_axis_traced": (_in_jit(lambda lib, i: lib.numpy.ones((2, 0))[0, i]),
                          "index is out of bounds for axis .* with size 0"),
    "empty_axis_fill": (lambda lib: lib.numpy.zeros((2, 0)).at[0, 0].get(mode="fill"),
                        "is out of bounds for axis .* with size 0"),
    "reduce_of_one_argument": (lambda lib: lib.numpy.frompyfunc(lambda x: x, 1, 1).reduce(V),
                               BINARY),
    "reduce_to_pairs": (lambda lib: _pair(lib).reduce(V), SINGLE),
    "accumulate_to_pairs": (lambda lib: _pair(lib).accumulate(V), SINGLE),
    "outer_to_pairs": (lambda lib: _pair(lib).outer(V, V), SINGLE),
    "vectorize_none_signature": (lambda lib: _vectorized(lib, signature="(n),(n)->(n)")(V, None),
                                 "Cannot pass None at locations"),
    "vectorize_rank": (_strict, "operands with shapes .* require rank promotion"),
}


def _agree(got, want, name):
    if isinstance(want, (bool, tuple)):
        assert type(got) is type(want)
    compare(got, want, 1e-5, 1e-6, name)


@pytest.mark.parametrize("name", VALUES)
def test_values(name):
    row = VALUES[name]
    _agree(row(toile), CORNERS.in_test(lambda: row(jax)), name)


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    row, words = ERRORS[name]
    with pytest.raises(Exception, match=words) as theirs:
        row(jax)
    with pytest.raises(Exception) as ours:
        row(toile)
    # toile's messages quote the line of the caller, which may hold the same words
    said = [line for line in str(ours.value).splitlines() if not line.startswith("    ")]
    assert re.search(words, "\n".join(said))
    assert theirs.type.__name__ in {base.__name__ for base in ours.type.__mro__}


WARNED = {
    "shape": lambda lib: lib.numpy.shape([1, 2, 3]),
    "ndim": lambda lib: lib.numpy.ndim([1, 2, 3]),
    "size": lambda lib: lib.numpy.size([1, 2, 3]),
    "astype_complex": lambda lib: lib.numpy.asarray(Z).astype("float32"),
}


@pytest.mark.parametrize("name", WARNED)
def test_deprecated(name):
    results = []
    for lib in (jax, toile):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                results.append(WARNED[name](lib))
            except (TypeError, ValueError):
                if lib is toile:
                    raise
                pytest.skip("jax no longer accepts it")
        assert any(issubclass(w.category, DeprecationWarning) for w in caught)
    _agree(*reversed(results), name)
