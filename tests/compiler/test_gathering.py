"""Gather, scatter, copies and slices at traced places: native code against the eager rules."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.compiler.fake_plan import FakePlan, lowered, run_equations
from toile.compiler.pipeline import optimize
from toile.kernels.copy import cpu as copies
from toile.kernels.gather.cpu import lower as lower_gather
from toile.kernels.scatter.cpu import lower as lower_scatter
from toile.primitives import shapes
from toile.primitives.addresses import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
)
from toile.primitives.dynamic_slices import DynamicSlice, DynamicUpdateSlice
from toile.primitives.gathers import Gather, Scatter

LOWERS = {
    Gather: lower_gather,
    Scatter: lower_scatter,
    DynamicSlice: copies.lower_dynamic_slice,
    DynamicUpdateSlice: copies.lower_dynamic_update_slice,
    shapes.Pad: copies.lower_pad,
    shapes.Concatenate: copies.lower_concatenate,
    shapes.Rev: copies.lower_rev,
}
DTYPES = [
    np.bool_, np.uint8, np.int16, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn,
    np.float32, np.int32, np.int64, np.float64, np.complex64, np.complex128,
]  # fmt: skip


ROWS = ScatterDimensionNumbers((1,), (0,), (0,))


def bits(shape, dtype, seed=0):
    """Any bits, as an array."""
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    n = int(np.prod(shape, dtype=int))
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(dtype)
    return rng.integers(0, 256, n * dtype.itemsize, np.uint8).view(dtype).reshape(shape)


def values(shape, dtype, seed=0):
    """Small numbers, as an array."""
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    x = np.round(rng.normal(size=shape) * 4, 2)
    if dtype.kind == "c":
        x = x + 1j * np.round(rng.normal(size=shape), 2)
    return np.asarray(np.abs(x) if dtype.kind in "bu" else x).astype(dtype)


def same_bytes(op, a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    assert a.tobytes() == np.ascontiguousarray(b).tobytes(), op


def close(op, a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    if a.dtype.kind in "biu":
        assert np.array_equal(a, b), op
        return
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    rtol = 2e-5 if a.dtype.itemsize >= 4 else 1e-2
    np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol, 1e-5, err_msg=str(op))


def agree(f, *args, check=same_bytes, threads=(1, 3)):
    """All operations of f that have lowerings agree with their eager rules."""
    closed = toile.make_jaxpr(f)(*args)
    for count in threads:
        given = [*closed.consts, *args]
        assert run_equations(closed.jaxpr, given, LOWERS, check, count), closed


# ------------------------------------------------------------------------------------------ copies

SHAPES = [(), (1,), (7,), (5, 9), (37, 41), (3, 40, 50), (2, 3, 4, 5), (130, 17), (2, 33, 3)]


def copied(to, source):
    plan = FakePlan()
    copies.copy(plan.operand(to), plan.operand(source), plan)
    plan.run()
    assert np.ascontiguousarray(to).tobytes() == np.ascontiguousarray(source).tobytes()


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.float64, np.complex128])
def test_copy(dtype):
    for shape in SHAPES:
        x = bits(shape, dtype)
        for perm in list(itertools.permutations(range(len(shape))))[:8]:
            y = x.transpose(perm)
            copied(np.zeros(y.shape, dtype), y)
            if shape:
                copied(np.zeros(y.shape, dtype), y[::-1])
                copied(np.zeros(y.shape, dtype), y[..., ::-1])
                copied(np.zeros(y.shape, dtype)[::-1], y[..., ::-1])
                copied(np.zeros(y[..., ::2].shape, dtype), y[..., ::2])
        copied(np.zeros(shape, dtype), np.broadcast_to(bits((), dtype), shape))
        room = np.zeros([2 * n for n in shape], dtype)
        if shape:
            copied(room[tuple(slice(None, None, 2) for _ in shape)], x)
            copied(room[tuple(slice(n) for n in shape)], x[::-1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_fill(dtype):
    for shape in [(), (1,), (1000,), (3, 5)]:
        out, value = bits(shape, dtype), values((), dtype, 3)
        plan = FakePlan()
        copies.fill(plan.operand(out), value, plan)
        plan.run()
        assert out.tobytes() == np.full(shape, value, dtype).tobytes()


@pytest.mark.parametrize("dtype", [np.bool_, np.float32, ml_dtypes.bfloat16, np.complex128])
def test_pad_concatenate_rev(dtype):
    x, value = bits((4, 5, 3), dtype), values((), dtype, 1)
    configs = [
        ((1, 2, 0), (0, 0, 0), (3, 0, 0)), ((-1, 2, 0), (0, -2, 0), (1, 1, 0)),
        ((0, 1, 2), (2, 0, 1), (0, 0, 0)), ((-1, 0, 1), (-3, 1, 2), (1, -2, 1)),
        ((3, -7, 0), (1, 1, 0), (0, 0, 0)), ((9, -4, 0), (0, 0, 0), (0, 0, 0)),
    ]  # fmt: skip
    for config in configs:
        op = shapes.Pad(config)
        for y in (x, x[::-1]):
            expected = op.eager(np, y, value)
            got = lowered(copies.lower_pad, op, [y, value], [(expected.shape, x.dtype)])
            same_bytes(op, got[0], expected)
    for axis in range(3):
        parts = [x, x[::-1], x[tuple(slice(1) if i == axis else slice(None) for i in range(3))]]
        op = shapes.Concatenate(axis)
        expected = op.eager(np, *parts)
        got = lowered(copies.lower_concatenate, op, parts, [(expected.shape, x.dtype)])
        same_bytes(op, got[0], expected)
    for axes in [(), (0,), (2,), (0, 1, 2)]:
        op = shapes.Rev(axes)
        same_bytes(op, lowered(copies.lower_rev, op, [x], [(x.shape, x.dtype)])[0],
                   op.eager(np, x))  # fmt: skip


@pytest.mark.parametrize("index", ["int8", "uint8", "int32", "int64", "uint64"])
def test_dynamic_slices(index):
    x, update = bits((6, 5, 4), np.float32), bits((2, 5, 1), np.float32, 1)
    info = np.iinfo(index)
    for starts in [(0, 0, 0), (3, 1, 2), (info.max, 2, 5), (info.min, 0, info.max)]:
        given = [np.array(s, index) for s in starts]
        for y in (x, x[::-1], bits((4, 5, 6), np.float32).T):
            op = DynamicSlice((2, 5, 3))
            got = lowered(copies.lower_dynamic_slice, op, [y, *given], [((2, 5, 3), x.dtype)])
            same_bytes(op, got[0], op.eager(np, y, *given))
            op = DynamicUpdateSlice()
            lower = copies.lower_dynamic_update_slice
            got = lowered(lower, op, [y, update, *given], [(x.shape, x.dtype)])
            same_bytes(op, got[0], op.eager(np, y, update, *given))
            got = lowered(lower, op, [y, x, *given], [(x.shape, x.dtype)])
            same_bytes(op, got[0], x)


# ------------------------------------------------------------------------------------------ gather

INDEXINGS = {
    "rows": (lambda x, i: x.at[i], lambda u: u),
    "columns": (lambda x, i: x.at[:, i], lambda u: jnp.stack([u[:, :, 0]] * 7)),
    "last": (lambda x, i: x.at[:, :, i], lambda u: jnp.stack([jnp.stack([u[..., 0, 0]] * 5)] * 7)),
    "window": (lambda x, i: x.at[i, 1:3], lambda u: u[:, :, :2]),
    "pairs": (lambda x, i: x.at[i[:, 0], i[:, 1]], lambda u: u[:, 0, 0]),
    "apart": (lambda x, i: x.at[i[:, 0], :, i[:, 1]], lambda u: u[:, 0, :, 0]),
    "elements": (lambda x, i: x.at[i, i, i], lambda u: u[:, :, 0, 0]),
    "one": (lambda x, i: x.at[i[:1, 0]], lambda u: u[:1, 0]),
}


@pytest.mark.parametrize("mode", ["fill", "clip", "promise_in_bounds"])
@pytest.mark.parametrize("name", INDEXINGS)
def test_gather(name, mode):
    at, _ = INDEXINGS[name]
    indices = np.random.default_rng(1).integers(-9, 9, (4, 6)).astype(np.int32)
    for dtype in (np.float32, np.bool_, np.complex64, np.int16):
        x = jnp.asarray(values((7, 5, 3), dtype))
        agree(lambda x, i: at(x, i).get(mode=mode), x, indices, threads=(2,))


@pytest.mark.parametrize("dtype", DTYPES)
def test_gather_dtypes_and_fill_values(dtype):
    rows = GatherDimensionNumbers((1,), (0,), (0,))
    index = np.array([[0], [6], [7], [-1], [3], [100], [-128]])
    for width in (1, 2, 3, 4, 16, 40):
        x = values((7, width), dtype)
        for mode in GatherScatterMode:
            for fill in (None, "1"):
                op = Gather(rows, (1, width), mode=mode, fill_value=fill)
                for y in (x, x[::-1], np.broadcast_to(x[:1], x.shape)):
                    got = lowered(lower_gather, op, [y, index], [((7, width), x.dtype)])
                    same_bytes(op, got[0], op.eager(np, y, index))


@pytest.mark.parametrize("index", ["int8", "uint8", "uint16", "int32", "uint32", "int64", "uint64"])
def test_index_dtypes(index):
    info, x = np.iinfo(index), values((9, 4), np.float32)
    given = np.array([0, 8, 9, info.max, info.min, 5], index)[:, None]
    for mode in ("fill", "clip"):
        gather = Gather(GatherDimensionNumbers((1,), (0,), (0,)), (1, 4),
                        mode=GatherScatterMode.from_any(mode))  # fmt: skip
        got = lowered(lower_gather, gather, [x, given], [((6, 4), x.dtype)])
        same_bytes(gather, got[0], gather.eager(np, x, given))
        scatter = Scatter("add", ROWS, mode=gather.mode)
        updates = values((6, 4), np.float32, 2)
        got = lowered(lower_scatter, scatter, [x, given, updates], [(x.shape, x.dtype)])
        close(scatter, got[0], scatter.eager(np, x, given, updates))


def test_along_an_axis_and_back():
    x = jnp.asarray(values((6, 5, 4), np.float32))
    for axis in range(3):
        shape = [6, 5, 4]
        shape[axis] = 3
        i = jnp.asarray(np.random.default_rng(0).integers(-5, 5, shape))
        along = lambda x, i: jnp.take_along_axis(x, i, axis)  # noqa: B023
        agree(along, x, i)
        agree(toile.grad(lambda x, i: jnp.sum(along(x, i) ** 2)), x, i, check=close)  # noqa: B023
    i = jnp.asarray(np.random.default_rng(1).integers(-5, 5, (6, 3)))
    agree(toile.vmap(lambda x, i: x[i]), x, i)
    agree(toile.vmap(lambda x, i: x.at[i].add(1)), x, i, check=close)


# ----------------------------------------------------------------------------------------- scatter


@pytest.mark.parametrize("how", ["set", "add", "subtract", "multiply", "min", "max"])
@pytest.mark.parametrize("name", INDEXINGS)
def test_scatter(name, how):
    at, fit = INDEXINGS[name]
    indices = np.random.default_rng(1).integers(-9, 9, (4, 6)).astype(np.int32)
    for dtype in (np.float32, np.uint8, ml_dtypes.bfloat16, np.complex64):
        x, u = jnp.asarray(values((7, 5, 3), dtype)), jnp.asarray(values((4, 6, 5, 3), dtype, 1))
        if dtype == np.complex64 and how in ("multiply", "min", "max"):
            continue
        for mode in ("drop", "clip"):
            put = lambda x, i, u: getattr(at(x, i), how)(fit(u), mode=mode)  # noqa: B023
            agree(put, x, indices, u, check=close)


@pytest.mark.parametrize("width", [1, 2, 40, 300])
def test_many_updates_in_parallel(width):
    rng = np.random.default_rng(0)
    i = rng.integers(-5, 60, 20000).astype(np.int32)
    u = values((20000, width), np.float32)
    x = values((50, width), np.float32, 1)
    agree(lambda x, i, u: x.at[i].set(u, mode="drop"), x, i, u)
    agree(lambda x, i, u: x.at[i].max(u, mode="clip"), x, i, u)
    whole = u.astype(np.int32)
    agree(lambda x, i, u: x.at[i].add(u, mode="clip"), x.astype(np.int32), i, whole)
    few = {}

    def results(op, a, b):
        few.setdefault("first", a)
        assert np.array_equal(few["first"], a)  # however many chunks there are

    agree(lambda x, i, u: x.at[i].add(u, mode="drop"), x, i, u, check=results, threads=(1, 2, 7))


def test_nan_and_negative_zero():
    x = np.array([0.0, -0.0, np.nan, 1.0], np.float32)
    u = np.array([np.nan, 2.0, 3.0, -1.0, np.inf], np.float32)
    i = np.array([0, 1, 2, 3, 3], np.int32)
    for how in ("set", "min", "max"):
        put = lambda x, i, u: getattr(x.at[i], how)(u)  # noqa: B023
        agree(put, jnp.asarray(x), i, u, check=close)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("how", ["min", "max"])
def test_extrema_of_rows_with_nan(how, dtype):
    """Updates and elements with NaN and infinities, for single elements and for dense rows."""
    special = np.array([np.nan, np.inf, -np.inf, -1.5, 0.0, 2.0])
    rng = np.random.default_rng(0)
    x, u = (rng.choice(special, (n, 37)).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
            for n in (5, 60))
    i = rng.integers(0, 5, 60).astype(np.int32)
    put = lambda x, i, u: getattr(x.at[i], how)(u)
    with toile.enable_x64(dtype == "float64"):
        agree(put, jnp.asarray(x), i, u, check=close)
        agree(put, jnp.asarray(x[:, 0]), i, u[:, 0], check=close)


def test_what_is_declined():
    op = Scatter("mul", ScatterDimensionNumbers((), (0,), (0,)))
    given = [values((3,), np.complex64), np.array([[1]]), values((1,), np.complex64)]
    assert lowered(lower_scatter, op, given, [((3,), np.complex64)]) is None
    given = [values((3,), ml_dtypes.float8_e5m2), given[1], values((1,), ml_dtypes.float8_e5m2)]
    assert lowered(lower_scatter, op, given, [((3,), given[0].dtype)]) is None


def several(x, i, j, k, mode):
    return x.at[i, j, k].get(mode=mode, wrap_negative_indices=False)


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "complex64"])
@pytest.mark.parametrize("mode", ["fill", "clip", "promise_in_bounds"])
@pytest.mark.parametrize("outside", [False, True])
def test_indices_of_several_axes_are_one_index(mode, dtype, outside):
    """They are not stored side by side; places outside are clamped or filled, axis by axis."""
    x = values((3, 4, 5), dtype)
    far = 2**31 - 1 if outside and mode != "promise_in_bounds" else 1
    rng = np.random.default_rng(1)
    low, high = (-9, 9) if far > 1 else (0, 3)
    i, j, k = (rng.integers(low, high, (6, 7), np.int32) for _ in range(3))
    i[0, :2], j[1, :2], k[2, :2] = (far, -far) if far > 1 else 0, far, far
    f = lambda *args: several(*args, mode)
    np.testing.assert_array_equal(toile.jit(f)(x, i, j, k), f(*map(jnp.asarray, (x, i, j, k))))
    ops = [e.op.name for e in optimize(toile.make_jaxpr(f)(x, i, j, k).jaxpr).equations]
    assert "concatenate" not in ops and "gather" in ops


def test_joined_indices_stay_where_they_are_needed():
    """The gradient adds at the same index vectors; and a transposed array would be copied."""
    x, i = values((3, 4), "float32"), np.array([0, 2, 1], np.int32)
    for f in (toile.grad(lambda x, i: (x[i, i] ** 2).sum()), lambda x, i: x.T[i, i] + 1):
        np.testing.assert_allclose(toile.jit(f)(x, i), f(jnp.asarray(x), jnp.asarray(i)), 1e-6)
        ops = [e.op.name for e in optimize(toile.make_jaxpr(f)(x, i).jaxpr).equations]
        assert ops.count("concatenate") == 1
