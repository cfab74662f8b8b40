"""Corners of lax: each row gives in toile what it gives in jax.

A row of ERRORS names a phrase that the messages of both have; errors agree in their type.
"""

import builtins
import re

import jax
import numpy as np
import pytest

import toile
from tests.against_jax import compare
from tests.golden.recorded import CORNERS

pytestmark = pytest.mark.cpu

F32 = np.float32
OPERAND, INDICES = (10, 9, 8, 7, 6), (5, 4, 3, 2)
PLACES, UPDATES = (10, 9, 8, 7), (10, 9, 8, 7, 3, 2, 4)
WIDE = (50, 49, 48, 47, 46)


def _gather(numbers, indices, sizes=OPERAND, operand=OPERAND):
    def row(lib):
        dims = lib.lax.GatherDimensionNumbers(*numbers)
        take = lambda x, i: lib.lax.gather(x, i, dims, sizes)
        return lib.eval_shape(take, np.ones(operand, F32), np.ones(indices, np.int32))

    return row


def _scatter(numbers, indices, updates=UPDATES, operand=WIDE):
    def row(lib):
        dims = lib.lax.ScatterDimensionNumbers(*numbers)

        def put(x, u):
            x, u = lib.lax.broadcast(x, operand), lib.lax.broadcast(u, updates)
            return lib.lax.scatter(x, np.zeros(indices, np.int32), u, dims)

        return lib.eval_shape(put, F32(0), F32(0))

    return row


ALL, OFFSET, WINDOW = (0, 1, 2, 3, 4), (4, 5, 6, 7, 8), (4, 5, 6)
GATHERS = {
    "sorted": ("offset_dims in gather op must be sorted",
               _gather(((4, 5, 6, 8, 7), (), ALL), (*INDICES, 1))),
    "repeated": ("offset_dims in gather op must not repeat",
                 _gather(((4, 5, 6, 7, 7), (), ALL), (*INDICES, 1))),
    "bounds": ("Offset dimension 4 in gather op is out of bounds",
               _gather(((4, 5, 6, 7, 9), (), ALL), (*INDICES, 1))),
    "components": ("explicitly collapsed/batching", _gather((OFFSET, (4,), ALL), (*INDICES, 5))),
    "collapsed": ("Invalid collapsed_slice_dims set in gather op; valid range is",
                  _gather((OFFSET, (0, 1, 2, 3, 19), ALL), (*INDICES, 5))),
    "vectors": ("index_vector_dim=4 of indices is 5. These two numbers must be equal.",
                _gather((OFFSET, (), ALL[:4]), (*INDICES, 5))),
    "map": ("Invalid start_index_map", _gather((OFFSET, (), (0, 1, 2, 3, 7)), (*INDICES, 5))),
    "size": ("Slice size at index 3 in gather op is out of range",
             _gather((OFFSET[:4], (2,), ALL), (*INDICES, 5), (10, 9, 8, 100, 6))),
    "sizes": ("Gather op must have one slice size for every input dimension",
              _gather((OFFSET[:4], (), ALL), (*INDICES, 5), OPERAND[:4])),
    "bound": ("but bound is 9 for index 1 at position 0.",
              _gather((OFFSET[:4], (1,), ALL), (*INDICES, 5))),
    "disjoint": ("start_index_map and operand_batching_dims in gather op must be disjoint",
                 _gather((WINDOW, (0, 1), (0, 1, 2, 4), (2, 3)), (*INDICES, 4))),
    "vector_batch": ("cannot have the index vector dimension as a batching dimension",
                     _gather((WINDOW, (0, 1), ALL, (), (0, 4)), (*INDICES, 5))),
    "batch_count": ("equal numbers of operand_batching_dims and start_indices_batching_dims",
                    _gather((WINDOW, (1, 2), ALL[1:], (0,), (0, 1)), (*INDICES, 4))),
    "batch_sizes": ("indices batching dimensions to have the same shape",
                    _gather((OFFSET, (2, 3, 4), (2, 3, 4), (0, 1), (1, 0)), (10, 9, 3, 2, 3))),
}
SCATTERS = {
    "window": ("Bounds of the window dimensions",
               _scatter(((0,), (1,), (1,)), (32, 1), (65, 32), (64, 48))),
    "places": ("Bounds of the scatter dimensions",
               _scatter(((1,), (0,), (1,)), (32, 1), (31, 48), (64, 48))),
    "rank": ("Updates tensor must be of rank 7; got 8.",
             _scatter((WINDOW, (1, 2), ALL), (*PLACES, 5), (*UPDATES, 1))),
    "sorted": ("inserted_window_dims in scatter op must be sorted",
               _scatter((WINDOW, (2, 1), ALL), (*PLACES, 5))),
    "mapping": ("Invalid scatter_dims_to_operand_dims mapping",
                _scatter((WINDOW, (1, 2), (0, 1, 2, 3, 10)), (*PLACES, 5))),
    "size": ("Scatter op has window of size 4; doesn't match operand of rank 5.",
             _scatter((WINDOW, (1,), ALL[:4]), (*PLACES, 4))),
    "batching": ("Invalid operand_batching_dims set in scatter op; valid range is",
                 _scatter((WINDOW, (), ALL, (0, 10)), (*PLACES, 5))),
}


def _ragged(lhs, rhs, groups, dims, ragged, group):
    def row(lib):
        numbers = lib.lax.RaggedDotDimensionNumbers(dims, ragged, group)
        sizes = np.ones(groups, np.int32)
        return lib.lax.ragged_dot_general(np.ones(lhs, F32), np.ones(rhs, F32), sizes, numbers)

    return row


ROWS_TIMES = (((1,), (1,)), ((), ()))
RAGGED = {
    "one": ("expects exactly one lhs ragged dimension",
            _ragged((11, 5), (3, 5, 7), (3,), ROWS_TIMES, (0, 1), (0,))),
    "within": ("nonnegative and less than the number of axes of the lhs",
               _ragged((11, 5), (3, 5, 7), (3,), ROWS_TIMES, (2,), (0,))),
    "sizes": ("expected group_sizes to have shape (3,), got (2, 3)",
              _ragged((11, 5), (3, 5, 7), (2, 3), ROWS_TIMES, (0,), (0,))),
    "distinct": ("be distinct from contracting and batch dimensions",
                 _ragged((11, 3), (3, 3, 7), (3,), ROWS_TIMES, (0,), (1,))),
    "count": ("expected rhs group dimension size to be 2, got 3",
              _ragged((11, 5), (3, 5, 7), (2,), ROWS_TIMES, (0,), (0,))),
    "contracted": ("requires zero group dimensions in the rhs",
                   _ragged((11, 5), (3, 5, 7), (3,), ROWS_TIMES, (1,), (0,))),
    "free": ("requires exactly one rhs group dimension",
             _ragged((11, 5), (5, 7), (3,), (((1,), (0,)), ((), ())), (0,), ())),
}


def _window(lib, init=0.0, computation=lambda a, b: [a + b]):
    return lib.lax.reduce_window(np.ones(4, F32), init, computation, (1,), (1,), "VALID")


def _fft(shape, kind, lengths, dtype=F32):
    return lambda lib: lib.lax.fft(np.ones(shape, dtype), kind, lengths)


def _patches(lib):
    x = np.ones((1, 10, 10, 5), F32)
    return lib.lax.conv_general_dilated_patches(x, (5, 5), (1, 1), padding=(3, 3))


def _long(lib):
    x = lib.ShapeDtypeStruct((2**31 + 1,), np.dtype("float32"))
    return lib.eval_shape(lambda v: lib.lax.top_k(v, 100), x)


MIXED = (np.int32(1), np.int16(2))
SHAPES = {
    "squeeze": ("dimensions are not unique", lambda lib: lib.lax.squeeze(np.ones((1, 2)), (0, 0))),
    "broadcast": ("target broadcast shape must have equal or higher rank",
                  lambda lib: lib.lax.broadcast_in_dim(np.ones((2, 2)), (2,), (0, 1))),
    "reshape_array": ("Shapes must be 1D sequences of concrete values of integer type",
                      lambda lib: lib.lax.reshape(np.ones(3), (np.array([3, 1]),))),
    "reshape_floats": ("Shapes must be 1D sequences of concrete values of integer type",
                       lambda lib: lib.lax.reshape(np.ones(3), (1.5, 2.0))),
    "slice": ("index arguments to dynamic_slice must be integers of the same type",
              lambda lib: lib.lax.dynamic_slice(np.ones((3, 4)), MIXED, (2, 2))),
    "slice_float": ("index arguments to dynamic_slice must be integers of the same type",
                    lambda lib: lib.lax.dynamic_slice(np.ones(3), (1.0,), (2,))),
    "slice_bool": ("index arguments to dynamic_slice must be integers of the same type",
                   lambda lib: lib.lax.dynamic_slice(np.ones(3), (True,), (2,))),
    "update": ("index arguments to dynamic_update_slice must be integers of the same type",
               lambda lib: lib.lax.dynamic_update_slice(np.ones((3, 4)), np.ones((2, 2)), MIXED)),
    "top_k": ("top_k returns int32 indices, which will overflow", _long),
    "patches": ("got (3, 3)", _patches),
    "patches_name": ("padding argument", _patches),
    "window_tree": ("output must have the same tree structure as the operands", _window),
    "window_init": ("expected init_values to be scalars but init_values have shapes [(1,)].",
                    lambda lib: _window(lib, np.zeros(1, F32), lib.lax.add)),
    "fft_rank": ("FFT input shape (14, 15) must have at least as many input dimensions as "
                 "fft_lengths (4, 5, 6)", _fft((14, 15), "fft", (4, 5, 6))),
    "fft_size": ("FFT input shape (14, 15) minor dimensions must be equal to fft_lengths (17,)",
                 _fft((14, 15), "fft", (17,))),
    "rfft_size": ("RFFT input shape (2, 14, 15) minor dimensions must be equal to fft_lengths "
                  "(14, 12)", _fft((2, 14, 15), "rfft", (14, 12))),
    "irfft_size": ("minor dimensions must be equal to all except the last fft_length, got "
                   "fft_lengths=(13, 15)", _fft((2, 14, 15), "irfft", (13, 15))),
    "rfft_dtype": ("RFFT input must be float32 or float64, got bfloat16",
                   _fft((4,), "rfft", (4,), jax.numpy.bfloat16)),
    "axes": ("reduction axes (2,) contains out-of-bounds indices",
             lambda lib: lib.lax.reduce_sum(np.ones(3), (2,))),
    "axes_twice": ("duplicate value in 'axes'",
                   lambda lib: lib.lax.reduce_max(np.ones((3, 4)), (0, 0))),
    "select_cases": ("select cases must have the same shapes",
                     lambda lib: lib.lax.select(np.ones(3, bool), np.ones(3), np.ones(2))),
    "select_which": ("select `which` must be scalar or have the same shape as cases",
                     lambda lib: lib.lax.select(np.ones(2, bool), np.ones(3), np.ones(3))),
    "select_float": ("select `which` must be boolean or integer type",
                     lambda lib: lib.lax.select(np.ones(3, F32), np.ones(3), np.ones(3))),
    "select_many": ("select with boolean `which` cannot have > 2 cases",
                    lambda lib: lib.lax.select_n(np.ones(3, bool), *[np.ones(3)] * 3)),
    "abs_int4": ("abs does not accept dtype int4",
                 lambda lib: lib.lax.abs(lib.lax.iota("int4", 3))),
}


def _nothing_of_nothing(lib):
    dims = lib.lax.GatherDimensionNumbers((), (0,), (0,))
    return lib.lax.gather(np.zeros(0, F32), np.zeros((0, 1), np.int32), dims, (1,))


SMALL = np.complex64([1e-5, 1e-5 + 1e-5j, -1e-6 + 1e-7j, 1e-20 + 1e-20j, -0.5 + 0.5j, 3 + 4j])
NIBBLES = np.array([1, 2, 3]), np.array([3, 2, 1])


def _narrow(name, count):
    def row(lib):
        xs = [x.astype(jax.numpy.int4) for x in NIBBLES[:count]]
        return getattr(lib.lax, name)(*xs)

    return row


def _shifted(name, n):
    def row(lib):
        x = lib.numpy.asarray([-8, -3, 5, 7], "int4")
        return getattr(lib.lax, name)(x, lib.numpy.full((4,), n, "int4"))

    return row


def _eighths(run):
    """`run`, compiled, on floats of 8 bits whose character in NumPy is that of uint64."""
    return lambda lib: lib.jit(
        lambda x: run(x.astype("float8_e4m3b11fnuz")).astype(F32))(F32([0.5, 1, 2]))


VALUES = {
    "gather_empty": _nothing_of_nothing,
    "log1p_complex": lambda lib: lib.lax.log1p(SMALL) * F32(1e5),
    "log1p_complex_jit": lambda lib: lib.jit(lib.lax.log1p)(SMALL) * F32(1e5),
}
VALUES |= {f"int4_{name}": _narrow(name, 1) for name in ("neg", "sign", "bitwise_not")}
VALUES |= {f"int4_{name}": _narrow(name, 2) for name in
           ("max", "min", "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left")}

VALUES |= {f"int4_{name}_{n}": _shifted(name, n) for n in (1, 3, 4, 7) for name in
           ("shift_left", "shift_right_arithmetic", "shift_right_logical")}
VALUES["int4_clz"] = lambda lib: lib.lax.clz(lib.numpy.asarray([1, 7, -3, 0], "int4"))
VALUES |= {f"b11_{name}": _eighths(run) for name, run in {
    "sum": lambda x: x.sum(), "twice": lambda x: x + x, "scattered": lambda x: x.at[:1].add(x[1:2]),
}.items()}

TABLES = {"gather": GATHERS, "scatter": SCATTERS, "ragged": RAGGED, "shape": SHAPES}
ERRORS = {f"{table}-{name}": row for table, rows in TABLES.items() for name, row in rows.items()}


@pytest.mark.parametrize("name", ERRORS)
def test_same_error_as_jax(name):
    phrase, row = ERRORS[name]
    kinds = []
    for lib in (jax, toile):
        with pytest.raises((TypeError, ValueError, NotImplementedError)) as caught:
            row(lib)
        text = re.sub(r"np\.int64\((\d+)\)", r"\1", str(caught.value))  # as NumPy 2 prints them
        assert phrase in text, lib.__name__
        kinds.append(next(c for c in caught.type.__mro__ if c in vars(builtins).values()))
    assert kinds[0] is kinds[1]


@pytest.mark.parametrize("name", VALUES)
def test_same_value_as_jax(name):
    got, want = VALUES[name](toile), CORNERS.in_test(lambda: VALUES[name](jax))
    assert got.dtype == want.dtype
    if want.dtype == jax.numpy.int4:
        assert np.array_equal(np.asarray(got).astype(int), np.asarray(want).astype(int))
    else:
        compare(got, want, 1e-5, 1e-6, name)
