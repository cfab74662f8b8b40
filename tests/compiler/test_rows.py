"""Compiled code computes what the operations do: every row of the table, and every shape.

Each row runs at all its dtypes, with 1 and 2 threads, on operands in many layouts, outside of the
compiled function and inside it; families of operations run at sizes 0 and 1, at odd ones, on
broadcast operands, and at sizes that are cut into chunks. Two runs give the same bits. Each day has
one of three layouts and one of three ways to broadcast; TOILE_TEST_ALL=1 runs all.
"""

import dataclasses
import itertools
from functools import partial

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests import seeds
from tests.cases import COMPLEX, FLOATS, NUMBERS, REALS, I, Operand, X, dtype_of
from tests.cases_control import ROWS
from tests.cases_elementwise import ROWS as ELEMENTWISE
from tests.closeness import ULPS, nearly_equal
from toile import lax
from toile.primitives import contractions, cumulative, reductions
from toile.primitives import sorts as sorting
from toile.primitives.families import ReduceSum
from toile.targets.llvm.thread_count import threads

pytest.importorskip("llvmlite")

COUNTS = (1, 2)
# Functions whose compiled form is exact to more units in the last place than others, and why.
ULPS_OF = {
    "Lgamma": 64,  # near its zeros at 1 and 2, where the bound is on the absolute error
    # SciPy's continued fractions, and the eager derivatives, accumulate rounding errors
    "Igamma": 256, "Igammac": 1024, "IgammaGradA": 1024, "RandomGammaGrad": 1024,
    "RegularizedIncompleteBeta": 128,
}


def wide(dtype, label=""):
    """The x64 mode where a dtype needs it."""
    return toile.enable_x64(dtype in ("float64", "int64", "uint64", "complex128") or "64" in label)


def listed(out):
    return toile.tree_util.tree_leaves(out)


def same_bits(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


# ---------------------------------------------------------------------------------------- layouts


def doubled(x):
    """An array of which every second element along each axis, from the second on, is x's."""
    wider = np.zeros([2 * n + 1 for n in x.shape], x.dtype)
    wider[tuple(slice(1, None, 2) for _ in x.shape)] = x
    return wider


def halved(x):
    return x[tuple(slice(1, None, 2) for _ in x.shape)]


def packed(x):
    """The same in one piece; of rank 0, too."""
    return np.array(x, order="C", copy=True)


# Name: how the memory is made of an array, and how it is seen; on NumPy and in compiled code.
LAYOUTS = {
    "transposed": (lambda x: packed(x.T), lambda b: b.T),
    "reversed": (lambda x: packed(np.flip(x)),
                 lambda b: b[tuple(slice(None, None, -1) for _ in b.shape)]),
    "strided": (doubled, halved),
}  # fmt: skip
BROADCASTS = ("row", "column", "scalar")


def broadcast_base(form, x):
    """What to broadcast to x's shape: one of its rows or columns, or an element."""
    if x.ndim == 0 or x.size == 0:
        return x
    if form == "scalar":
        return packed(x[(slice(0, 1),) * x.ndim])
    if form == "row":
        return packed(x[(slice(0, 1),) * (x.ndim - 1)])
    return packed(x[..., :1])


# --------------------------------------------------------------------------------------- checking


def compare(run, args, want=None, counts=COUNTS, ulps=ULPS, what=""):
    """jit is eager, at each number of threads, and a second run has the same bits."""
    if want is None:
        want = listed(run(*[jnp.asarray(x) for x in args]))
    for n in counts:
        with threads(n):
            f = toile.jit(lambda *xs: run(*xs))
            first, second = listed(f(*args)), listed(f(*args))
        for k, (a, b, w) in enumerate(zip(first, second, want, strict=True)):
            where = f"{what}, result {k} with {n} threads"
            nearly_equal(a, w, where, ulps)
            assert same_bits(a, b), f"{where}: two runs differ"


def compare_views(run, args, counts=(2,), ulps=ULPS, moved=None):
    """The same with operands that are views made by the compiled function."""
    moved = [x.ndim > 0 for x in args] if moved is None else moved
    for name, (base, view) in seeds.of_today(tuple(LAYOUTS.items())):
        bases = [base(x) if m else x for x, m in zip(args, moved)]
        viewed = lambda *xs, view=view: run(*[view(x) if m else x for x, m in zip(xs, moved)])
        compare(viewed, bases, counts=counts, ulps=ulps, what=name)


def compare_broadcasts(run, args, counts=(2,), ulps=ULPS):
    """The same with operands that are broadcast by the compiled function, each in its way."""
    shapes = [x.shape for x in args]
    for turn in seeds.of_today(range(len(BROADCASTS))):
        forms = [BROADCASTS[(i + turn) % 3] for i in range(len(args))]
        bases = [broadcast_base(f, x) for f, x in zip(forms, args)]
        spread = lambda *xs: run(*[jnp.broadcast_to(x, s) for x, s in zip(xs, shapes)])
        compare(spread, bases, counts=counts, ulps=ulps, what=f"broadcast {forms}")


# ------------------------------------------------------------------------------------ the table


def by_dtype():
    return [pytest.param(row, d, id=f"{row}-{d}") for row in ROWS for d in row.dtypes]


@pytest.mark.parametrize(("row", "dtype"), by_dtype())
def test_row(row, dtype):
    """Each row: in one piece, as views of NumPy's, and as views made inside."""
    with wide(dtype, row.label):
        raw, ulps = row.arguments(dtype), ULPS_OF.get(row.op.__name__, ULPS)
        want = listed(row.run(*[jnp.asarray(x) for x in raw]))
        compare(row.run, raw, want, ulps=ulps, what="one piece")
        f = toile.jit(lambda *xs: row.run(*xs))
        for name, (base, view) in seeds.of_today(tuple(LAYOUTS.items())):
            given = [view(base(x)) for x in raw]
            for args in (given, [jnp.asarray(x) for x in given]):
                for g, w in zip(listed(f(*args)), want, strict=True):
                    nearly_equal(g, w, f"{name} operands", ulps)
        assert len(f.why()) == 1
        compare_views(row.run, raw, ulps=ulps)


# ------------------------------------------------------------------------------------ elementwise

SHAPES = ((0,), (3, 0, 2), (1,), (1, 1, 1), (7,), (33,), (1025,), (5, 33), (257, 263))
# Operations that take long on one element: not at the largest shape.
SLOW = {"Polygamma", "Zeta", "Igamma", "Igammac", "IgammaGradA", "RandomGammaGrad",
        "RegularizedIncompleteBeta"}  # fmt: skip


def element_rows():
    return [pytest.param(row, d, id=f"{row}-{d}") for row in ELEMENTWISE for d in row.dtypes]


@pytest.mark.parametrize(("row", "dtype"), element_rows())
def test_elementwise_shapes(row, dtype):
    rng, ulps = row.rng("shapes"), ULPS_OF.get(row.op.__name__, ULPS)
    with wide(dtype, row.label):
        for shape in SHAPES:
            if row.op.__name__ in SLOW and np.prod(shape) > 2000:
                continue
            operands = [dataclasses.replace(o, shape=shape) if o.shape else o for o in row.operands]
            args = [o.draw(rng, dtype) for o in operands]
            large = np.prod(shape) > 2000
            compare(row.run, args, ulps=ulps, what=f"{shape}", counts=COUNTS if large else (2,))
            if shape in ((5, 33), (257, 263)):
                compare_broadcasts(row.run, args, ulps=ulps)
                compare_views(row.run, args, ulps=ulps)


# ----------------------------------------------------------------- reductions, cumulative, orders

RANKS = ((0,), (0, 3), (3, 0), (1,), (1, 1), (7,), (33,), (1025,), (70001,), (3, 5, 7),
         (33, 7, 1, 5), (300, 257), (2, 70, 601))  # fmt: skip
POSITIVE, NEAR_ONE = (0.1, 2.0), (0.9, 1.1)
INTEGERS = ("int32", "uint8", "int64")
REDUCTIONS = {
    ReduceSum: (POSITIVE, (*FLOATS, *COMPLEX, *INTEGERS)),
    reductions.ReduceProd: (NEAR_ONE, (*REALS, "int32")),
    reductions.ReduceMax: ((-9, 9), (*FLOATS, *INTEGERS)),
    reductions.ReduceMin: ((-9, 9), (*FLOATS, *INTEGERS)),
    reductions.ReduceAnd: ((-99, 99), ("bool", *INTEGERS)),
    reductions.ReduceOr: ((-99, 99), ("bool", *INTEGERS)),
    reductions.ReduceXor: ((-99, 99), ("bool", *INTEGERS)),
}
CUMULATIVE = {
    cumulative.Cumsum: (POSITIVE, (*REALS, "int32", "complex64")),
    cumulative.Cumprod: (NEAR_ONE, (*REALS, "int32")),
    cumulative.Cummax: ((-9, 9), (*REALS, "int32")),
    cumulative.Cummin: ((-9, 9), (*REALS, "int32")),
    cumulative.Cumlogsumexp: ((-3, 3), REALS),
}
ORDERS = {
    "sort": (lambda axis: lambda x: sorting.Sort(axis)(x)[0], (*FLOATS, *INTEGERS, "bool")),
    "sort_pair": (lambda axis: lambda x: sorting.Sort(axis, 1)(
        x, lax.broadcasted_iota(np.int32, x.shape, axis)), REALS),
    "argmax": (lambda axis: sorting.Argmax(axis, np.dtype("int32")), (*FLOATS, "int32", "bool")),
    "argmin": (lambda axis: sorting.Argmin(axis, np.dtype("int32")), (*FLOATS, "int32", "bool")),
    "top_k": (lambda axis: lambda x: sorting.TopK(min(3, x.shape[axis]), axis)(x),
              (*REALS, "int32")),
}  # fmt: skip


def drawn(shape, low, high, dtype, salt=0):
    return Operand(shape, low, high).draw(np.random.default_rng(salt), dtype)


def subsets(rank):
    """Every choice of axes."""
    return [a for n in range(1, rank + 1) for a in itertools.combinations(range(rank), n)]


def ulps_of(terms):
    """What a different order of so many additions may cost."""
    return ULPS + terms**0.5


def table(entries):
    return [pytest.param(key, d, id=f"{getattr(key, '__name__', key)}-{d}")
            for key, (*_, dtypes) in entries.items() for d in dtypes]


@pytest.mark.parametrize(("op", "dtype"), table(REDUCTIONS))
def test_reduction_shapes(op, dtype):
    (low, high), _ = REDUCTIONS[op]
    with wide(dtype):
        for shape in RANKS:
            if op in (reductions.ReduceMax, reductions.ReduceMin) and 0 in shape:
                continue  # the largest of nothing is an error
            x = drawn(shape, low, high, dtype)
            for a in subsets(x.ndim):
                over = int(np.prod([shape[i] for i in a]))
                run, ulps = op(a), ulps_of(over)
                if op is reductions.ReduceProd:  # of equal factors: errors add up, all of one sign
                    ulps = ULPS + over
                compare(run, [x], ulps=ulps, what=f"{shape} over {a}",
                        counts=COUNTS if x.size > 2000 else (2,))
                if shape in ((3, 5, 7), (300, 257)):
                    compare_views(run, [x], ulps=ulps)
                    compare_broadcasts(run, [x], ulps=ulps)


@pytest.mark.parametrize(("op", "dtype"), table(CUMULATIVE))
def test_cumulative_shapes(op, dtype):
    (low, high), _ = CUMULATIVE[op]
    with wide(dtype):
        for shape in RANKS:
            x = drawn(shape, low, high, dtype)
            for axis, back in itertools.product(range(x.ndim), (False, True)):
                run, ulps = op(axis, back), ulps_of(shape[axis])
                compare(run, [x], ulps=ulps, what=f"{shape} along {axis}",
                        counts=COUNTS if x.size > 2000 else (2,))
                if shape == (3, 5, 7):
                    compare_views(run, [x], ulps=ulps)
                    compare_broadcasts(run, [x], ulps=ulps)


@pytest.mark.parametrize(("name", "dtype"), table(ORDERS))
def test_order_shapes(name, dtype):
    make, _ = ORDERS[name]
    with wide(dtype):
        for shape in RANKS:
            x = drawn(shape, -9, 9, dtype)
            for axis in range(x.ndim):
                if name in ("argmax", "argmin") and not shape[axis]:
                    continue  # the place of the largest of nothing is an error
                run = make(axis)
                compare(run, [x], what=f"{shape} along {axis}",
                        counts=COUNTS if x.size > 2000 else (2,))
                if shape == (3, 5, 7):
                    compare_views(run, [x])
                    compare_broadcasts(run, [x])


# ------------------------------------------------------------------ contractions and convolutions

LABELS = (("bik", "bkj", "bij"), ("ik", "kj", "ij"), ("ki", "jk", "ij"), ("ik", "kj", "ji"),
          ("k", "k", ""), ("i", "j", "ij"), ("kbi", "bk", "bi"), ("ik", "k", "i"),
          ("i", "i", "i"))  # fmt: skip
SIZES = tuple(dict(zip("bijk", s)) for s in (
    (1, 1, 1, 1), (2, 3, 4, 0), (2, 0, 4, 3), (0, 3, 4, 5), (3, 7, 33, 5), (2, 130, 65, 257),
    (1, 300, 257, 64), (5, 1, 1025, 7), (3, 70, 1, 33)))  # fmt: skip
DOT_DTYPES = (*FLOATS, *COMPLEX, "int32", "uint8")


@pytest.mark.parametrize("dtype", DOT_DTYPES)
@pytest.mark.parametrize("labels", LABELS, ids=lambda x: ",".join(x))
def test_dot_shapes(labels, dtype):
    a, b, out = labels
    run = contractions.dot_operation(a, b, out)
    with wide(dtype):
        for n, size in enumerate(SIZES):
            x, y = (drawn([size[c] for c in s], *POSITIVE, dtype, n + i)
                    for i, s in enumerate((a, b)))
            ulps = ulps_of(size["k"])
            compare(run, [x, y], ulps=ulps, what=f"{size}")
            if n == 4:
                compare_views(run, [x, y], ulps=ulps)
                compare_broadcasts(run, [x, y], ulps=ulps)


# Operand, filter, strides, padding, dilations of both, and groups; channels come last.
CONVOLUTIONS = {
    "1d": ((2, 33, 3), (5, 3, 7), (2,), "SAME"),
    "1d-dilated": ((1, 17, 2), (3, 2, 5), (1,), ((2, 0),), (2,), (3,)),
    "2d": ((3, 9, 7, 5), (3, 3, 5, 8), (1, 1), "SAME"),
    "2d-one": ((1, 1, 1, 1), (1, 1, 1, 1), (1, 1), "VALID"),
    "2d-1x1": ((2, 7, 5, 16), (1, 1, 16, 33), (1, 1), "VALID"),
    "2d-strided": ((2, 15, 13, 3), (5, 4, 3, 8), (2, 3), "SAME"),
    "2d-none": ((0, 9, 7, 5), (3, 3, 5, 8), (1, 1), "SAME"),
    "2d-no-channels": ((2, 9, 7, 0), (3, 3, 0, 8), (1, 1), "SAME"),
    "2d-groups": ((2, 9, 8, 6), (3, 3, 2, 9), (1, 1), "SAME", None, None, 3),
    "2d-depthwise": ((2, 9, 8, 16), (3, 3, 1, 16), (2, 2), "SAME", None, None, 16),
    "2d-transposed": ((2, 5, 4, 7), (3, 3, 7, 5), (1, 1), ((2, 2), (2, 2)), (2, 2)),
    "2d-large": ((2, 61, 63, 16), (3, 3, 16, 24), (1, 1), "SAME"),
    "3d": ((1, 5, 6, 7, 3), (2, 3, 3, 3, 4), (1, 2, 1), "SAME"),
}
LAYOUT = {1: ("NWC", "WIO", "NWC"), 2: ("NHWC", "HWIO", "NHWC"), 3: ("NDHWC", "DHWIO", "NDHWC")}


@pytest.mark.parametrize("dtype", [*REALS, "bfloat16", "complex64"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution_shapes(name, dtype):
    """The value and both gradients."""
    shape, kernel, *options = CONVOLUTIONS[name]
    strides, padding, *dilations = options[:4]
    groups = options[4] if len(options) > 4 else 1

    def convolve(x, k):
        return lax.conv_general_dilated(
            x, k, strides, padding, *dilations, feature_group_count=groups,
            dimension_numbers=LAYOUT[len(shape) - 2])

    def run(x, k):
        y, pull = toile.vjp(convolve, x, k)
        return y, pull(jnp.ones_like(y) * 0.5)

    with wide(dtype):
        args = [drawn(s, -1, 1, dtype, i) for i, s in enumerate((shape, kernel))]
        ulps = ulps_of(np.prod(kernel[:-1]) + np.prod(shape[:-1]))
        compare(run, args, ulps=ulps, what=name)
        if name in ("2d", "1d"):
            compare_views(convolve, args, ulps=ulps)
            compare_broadcasts(convolve, args, ulps=ulps)


# ------------------------------------------------------------------ shapes, indices and windows

MATRICES = ((0, 3), (1, 1), (7, 5), (33, 8), (300, 257))


def windowed(op, start, size, stride):
    return lambda x: lax.reduce_window(x, np.asarray(start, x.dtype), op, size, stride, "SAME")


def scattered(kind):
    return lambda x, i, y: getattr(x.at[i % 9], kind)(y)


# What runs on a matrix of the row's dtype, on whole numbers (as many as rows, from -3 to 11) and
# on another such matrix; the smallest number of rows it needs.
MOVES = {
    "reshape": (lambda x, i, y: x.reshape(-1), 0),
    "reshape_of_transposed": (lambda x, i, y: x.T.reshape(x.shape), 0),
    "transpose": (lambda x, i, y: jnp.stack([x, y]).transpose(2, 0, 1), 0),
    "slice": (lambda x, i, y: x[1::3, ::-2], 0),
    "slice_none": (lambda x, i, y: x[:, 2:2], 0),
    "pad": (lambda x, i, y: lax.pad(x, jnp.zeros((), x.dtype), ((1, 0, 2), (2, 3, 1))), 0),
    "pad_less": (lambda x, i, y: lax.pad(x, jnp.ones((), x.dtype), ((-1, 2, 0), (2, -1, 1))), 1),
    "concatenate": (lambda x, i, y: jnp.concatenate([x, y[:1], x, y], 0), 0),
    "concatenate_columns": (lambda x, i, y: jnp.concatenate([x, y[:, :1], x.T[:0].T, y], 1), 0),
    "rev": (lambda x, i, y: lax.rev(x, (0,)), 0),
    "select": (lambda x, i, y: jnp.where((i > 2)[:, None], x, y), 0),
    "select_scalar": (lambda x, i, y: jnp.where(i[0] > 2, x, y), 1),
    "triangle": (lambda x, i, y: jnp.tril(x, 1), 0),
    "roll": (lambda x, i, y: jnp.roll(x, 2, 1), 0),
    "tile": (lambda x, i, y: jnp.tile(x, (2, 3)), 0),
    "repeat": (lambda x, i, y: jnp.repeat(x, 3, 0), 0),
    "copy": (lambda x, i, y: jnp.array(x, copy=True), 0),
    "rows": (lambda x, i, y: x[i], 1),
    "rows_clipped": (lambda x, i, y: jnp.take(x, i, 0, mode="clip"), 1),
    "elements": (lambda x, i, y: x[i, i % 2], 1),
    "along": (lambda x, i, y: jnp.take_along_axis(x, i[:, None] % 4, 1), 0),
    "dynamic_slice": (lambda x, i, y: lax.dynamic_slice(
        x, (i[0], i[-1]), (1, min(2, x.shape[1]))), 1),
    "dynamic_update": (lambda x, i, y: lax.dynamic_update_slice(x, y[:1, :1], (i[0], i[-1])), 1),
    "scatter_set": (lambda x, i, y: x.at[jnp.arange(len(i))[::-1]].set(y), 0),
    "scatter_add": (scattered("add"), 0),
    "scatter_min": (scattered("min"), 0),
    "scatter_elements": (lambda x, i, y: x.at[i, 0].add(y[:, 0]), 1),
    "window_sum": (lambda x, i, y: windowed(lax.add, 0, (2, 3), (1, 2))(x), 1),
    "window_max": (lambda x, i, y: windowed(lax.max, -np.inf, (3, 2), (2, 1))(x), 1),
    "window_slope": (lambda x, i, y: toile.grad(
        lambda x: jnp.sum(windowed(lax.max, -np.inf, (3, 2), (2, 1))(x) ** 2))(x), 1),
}  # fmt: skip
FLOATING_ONLY = {"window_max": REALS, "window_slope": REALS}
UNORDERED = {"scatter_min": ("float32", "float64", "bfloat16", "int32", "uint8")}


def moves():
    return [pytest.param(name, d, id=f"{name}-{d}") for name in MOVES
            for d in FLOATING_ONLY.get(name, UNORDERED.get(name, NUMBERS))]


@pytest.mark.parametrize(("name", "dtype"), moves())
def test_moving_shapes(name, dtype):
    run, least = MOVES[name]
    with wide(dtype):
        for n, shape in enumerate(MATRICES):
            if shape[0] < least:
                continue
            x, y = (drawn(shape, -2, 2, dtype, n + k) for k in (0, 1))
            i = drawn((shape[0],), -3, 11, "int32", n)
            compare(run, [x, i, y], what=f"{shape}", counts=COUNTS if x.size > 2000 else (2,))
            if shape in ((7, 5), (300, 257)):
                compare_views(run, [x, i, y])
                compare_broadcasts(run, [x, i, y])


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("axis", [0, 1, None])
def test_extremes_of_nan_and_zeros(axis, dtype):
    """A NaN of either sign, at any place, is the result; zeros and infinities are NumPy's."""
    rng = np.random.default_rng(0)
    places = range(0, 37 * 70, 61)
    x = np.round(rng.standard_normal((len(places), 37, 70)) * 2).astype(np.float32)
    x[:, :, ::9], x[:, ::5, 1:40] = -np.inf, -0.0
    for i, place in enumerate(places):
        x[i].reshape(-1)[place] = -np.nan if i % 2 else np.nan
    with wide(dtype):
        given = jnp.asarray(x).astype(dtype)
        for ours, numpys in ((jnp.max, np.max), (jnp.min, np.min)):
            got = toile.jit(toile.vmap(partial(ours, axis=axis)))(given)
            want = numpys(x, axis=(1, 2) if axis is None else axis + 1)
            np.testing.assert_array_equal(np.asarray(got, np.float32), want)


def test_names_are_known():
    """What is left out at large sizes is there."""
    names = {row.op.__name__ for row in ELEMENTWISE}
    assert names >= SLOW and names >= set(ULPS_OF)
    assert all(dtype_of(d) for d in DOT_DTYPES) and X(2).shape == I(2).shape
