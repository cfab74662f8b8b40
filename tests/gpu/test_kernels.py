"""Kernels of operations that have their own, against the eager rules.

They run on the GPU where there is one, else on the host; NVRTC compiles them where it is installed.
"""

import itertools

import ml_dtypes
import numpy as np
import pytest

from tests import recurrence_cases as recurrences
from tests.gpu.fake_plan import FakePlan, lowered, runs
from toile.compiler.passes.messages import EdgesByTarget, GatherScatter
from toile.kernels.contraction import gpu_tiles as tiled_products
from toile.kernels.copy import gpu as copies
from toile.kernels.cumulative import gpu as cumulative
from toile.kernels.gather import gpu as gathering
from toile.kernels.messages import gpu as messages
from toile.kernels.scatter import gpu as scattering
from toile.kernels.scatter import gpu_segments as segments
from toile.kernels.sort import gpu as sorting
from toile.kernels.sort import gpu_radix, gpu_top
from toile.kernels.window import gpu as pooling
from toile.primitives import shapes, windows
from toile.primitives.addresses import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
)
from toile.primitives.contractions import dot_operation
from toile.primitives.conv import ConvDimensionNumbers, ConvGeneralDilated
from toile.primitives.cumulative import Cumlogsumexp, Cummax, Cummin, Cumprod, Cumsum
from toile.primitives.dynamic_slices import DynamicSlice, DynamicUpdateSlice
from toile.primitives.gathers import Gather, Scatter
from toile.primitives.recurrences import LinearRecurrence
from toile.primitives.sorts import Argmax, Argmin, Sort, TopK
from toile.targets.cuda.text import divisor

pytestmark = pytest.mark.skipif(not runs(), reason="needs g++ or a GPU")

BFLOAT16 = ml_dtypes.bfloat16
CLIP, FILL = GatherScatterMode.CLIP, GatherScatterMode.FILL_OR_DROP
SPECIAL = np.array([np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, 1.0])


def bits(shape, dtype, seed=0):
    """Any bits, as an array."""
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    n = int(np.prod(shape, dtype=int))
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(dtype)
    return rng.integers(0, 256, n * dtype.itemsize, np.uint8).view(dtype).reshape(shape)


def values(shape, dtype, seed=0, scale=4.0):
    """Small numbers, as an array."""
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    x = np.round(rng.normal(size=shape) * scale, 2)
    if dtype.kind == "c":
        x = x + 1j * np.round(rng.normal(size=shape), 2)
    return np.asarray(np.abs(x) if dtype.kind in "bu" else x).astype(dtype)


def special(shape, dtype, seed=0):
    """Numbers with ties, extremes and what is special about floats."""
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype.kind == "c":
        out = np.empty(shape, dtype)
        part = f"f{dtype.itemsize // 2}"
        out.real, out.imag = special(shape, part, seed), special(shape, part, seed + 1)
        return out
    if dtype.kind in "biu":
        if dtype.kind == "b":
            return rng.integers(0, 2, shape).astype(dtype)
        info = np.iinfo(dtype)
        wide = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
        return np.where(rng.random(shape) < 0.5, wide, wide % 5).astype(dtype)
    x = np.round(rng.normal(size=shape) * 30) / 4
    with np.errstate(all="ignore"):
        return np.where(rng.random(shape) < 0.2, rng.choice(SPECIAL, shape), x).astype(dtype)


def equal(a, b):
    """Equal bits, but for the bits of NaN."""
    assert a.dtype == b.dtype and a.shape == b.shape
    b = np.ascontiguousarray(b)
    if a.tobytes() == b.tobytes():
        return
    if a.dtype.kind == "c":
        a, b = (x.view(f"f{x.dtype.itemsize // 2}") for x in (a, b))
    a, b = a.astype(np.float64), b.astype(np.float64)
    known = ~np.isnan(a)
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(np.signbit(a[known]), np.signbit(b[known]))


def close(a, b):
    """Equal integers, floats within a few units in the last place."""
    assert a.dtype == b.dtype and a.shape == b.shape
    if a.dtype.kind in "biu":
        np.testing.assert_array_equal(a, b)
        return
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    tolerance = 2e-5 if a.dtype.itemsize >= 4 else 2e-2
    np.testing.assert_allclose(a.astype(wide), b.astype(wide), tolerance, tolerance)


def check(lower, op, arrays, same=equal, in_place=None):
    """A lowering gives what the eager rule gives."""
    with np.errstate(all="ignore"):
        results = op.eager(np, *arrays)
    results = [np.asarray(r) for r in (results if op.multiple else [results])]
    got = lowered(lower, op, arrays, [(r.shape, r.dtype) for r in results], in_place)
    assert got is not None, op
    for a, b in zip(got, results, strict=True):
        same(a, b)


# ------------------------------------------------------------------------------------------- copies


def test_quotients_by_factors():
    for n in [1, 2, 3, 5, 7, 64, 100, 641, 65535, 65536, 10**6 + 3, 2**30, 2**31 - 1]:
        word = divisor(n) & 2**64 - 1
        factor, shift = word >> 32, (n - 1).bit_length()
        assert word & 2**32 - 1 == n
        for i in [0, 1, n - 1, n, n + 1, 3 * n - 1, 12345678, 2**31 - 2, 2**31 - 1]:
            if 0 <= i < 2**31:
                assert (factor * i >> 32) + i >> shift == i // n, (i, n)


def copied(to, source):
    plan = FakePlan()
    copies.copy(plan.operand(to), plan.operand(source), plan)
    plan.run()
    assert np.ascontiguousarray(to).tobytes() == np.ascontiguousarray(source).tobytes()
    return plan.stages


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.complex128])
def test_copies(dtype):
    for shape in [(), (7,), (37, 41), (3, 40, 50)]:
        x = bits(shape, dtype)
        for perm in itertools.permutations(range(len(shape))):
            y = x.transpose(perm)
            copied(np.zeros(y.shape, dtype), y)
        copied(np.zeros(shape, dtype), np.broadcast_to(bits((), dtype), shape))
        if shape:
            copied(np.zeros(shape, dtype), x[::-1])
            room = np.zeros([2 * n for n in shape], dtype)
            copied(room[tuple(slice(None, None, 2) for _ in shape)], x)
            copied(room[tuple(slice(n) for n in shape)], x[::-1])


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64])
def test_rotations(dtype):
    """Transposes of reversed arrays go through tiles, too."""
    for shape in [(70, 45), (3, 40, 66)]:
        x = bits(shape, dtype)
        for k in (1, 3):
            turned = np.rot90(x, k, (-2, -1))
            assert "__shared__" in copied(np.zeros(turned.shape, dtype), turned)[0][0].text
            copied(np.zeros(shape[:-2] + shape[:-3:-1], dtype)[..., ::-1, :], turned)
            copied(np.zeros(shape, dtype), np.rot90(turned, 1, (-2, -1))[..., ::-1, :])


def test_copies_of_memory_that_is_not_aligned():
    room, x = np.zeros(203, np.int16), bits((200,), np.int16)
    copied(room[3:], x)
    copied(np.zeros(195, np.int16), x[5:])


def test_positions_of_64_bits(monkeypatch):
    """What arrays of more than 2**31 elements take."""
    for module in (copies, gathering):
        monkeypatch.setattr(module, "MOST", 1)
    x = bits((5, 6, 10), np.float32)
    copied(np.zeros((5, 6, 5), np.float32), x[:, :, ::2])
    copied(np.zeros((5, 6, 8), np.float32), x[:, :, :8])
    op = Gather(ROWS, (1, 7))
    check(gathering.lower, op, [x[0], np.array([[3], [-1], [5]])])


@pytest.mark.parametrize("dtype", [np.bool_, np.float16, np.float32, np.complex128])
def test_fill(dtype):
    for shape in [(), (1000,), (3, 5)]:
        out, value = bits(shape, dtype), values((), dtype, 3)
        plan = FakePlan()
        copies.fill(plan.operand(out), value, plan)
        plan.run()
        assert out.tobytes() == np.full(shape, value, dtype).tobytes()


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_moves(dtype):
    x, value = bits((6, 11), dtype), bits((), dtype, 1)
    check(copies.lower_rev, shapes.Rev((0,)), [x])
    check(copies.lower_rev, shapes.Rev((0, 1)), [x.T])
    check(copies.lower, shapes.Copy(), [x[:, ::-2]])
    check(copies.lower_concatenate, shapes.Concatenate(1), [x, x[:, :3], x[:, ::-1]])
    for config in [((1, 2, 0), (3, 0, 0)), ((-1, 2, 0), (0, -4, 0)), ((0, 0, 1), (1, 1, 2)),
                   ((-6, 4, 0), (0, 0, 0))]:  # fmt: skip
        check(copies.lower_pad, shapes.Pad(config), [x, value])


@pytest.mark.parametrize("starts", [(1, 2), (-5, 100), (2, 0)])
@pytest.mark.parametrize("dtype", [np.int32, np.uint64, np.int8])
def test_slices_at_traced_places(starts, dtype):
    x = bits((6, 16), np.float32)
    places = [np.asarray(np.asarray(s, np.int64).astype(dtype)) for s in starts]
    check(copies.lower_dynamic_slice, DynamicSlice((3, 4)), [x, *places])
    update = bits((2, 8), np.float32, 1)
    for given in (None, 0):
        check(copies.lower_dynamic_update_slice, DynamicUpdateSlice(), [x, update, *places],
              in_place=given)  # fmt: skip


# ------------------------------------------------------------------------------- gather and scatter

ROWS = GatherDimensionNumbers((1,), (0,), (0,))
POINTS = GatherDimensionNumbers((), (0, 1), (0, 1))
BOXES = GatherDimensionNumbers((1, 2), (), (0, 1))
ALONG = GatherDimensionNumbers((), (1,), (1,), (0,), (0,))
COLUMNS = GatherDimensionNumbers((0,), (1,), (1,))

GATHERS = {
    "rows": (ROWS, (1, 12), (10, 1)),
    "points": (POINTS, (1, 1), (3, 5, 2)),
    "boxes": (BOXES, (2, 5), (4, 2)),
    "along": (ALONG, (1, 1), (9, 4, 1)),
    "columns": (COLUMNS, (9, 1), (7, 1)),
    "few of a row": (ROWS, (1, 7), (10, 1)),
}


@pytest.mark.parametrize("mode", [CLIP, FILL])
@pytest.mark.parametrize("name", GATHERS)
def test_gather(name, mode):
    numbers, sizes, shape = GATHERS[name]
    op = Gather(numbers, sizes, mode=mode)
    indices = np.random.default_rng(0).integers(-3, 14, shape)
    for dtype, index in [(np.float32, np.int32), (np.complex128, np.uint8)]:
        x = bits((9, 12), dtype)
        check(gathering.lower, op, [x, indices.astype(index)])
    check(gathering.lower, op, [bits((12, 9), np.int16).T, indices.astype(np.int16)])


SCATTERS = {
    "rows": (ROWS, (40, 1), (40, 12)),
    "points": (POINTS, (30, 2), (30,)),
    "boxes": (BOXES, (14, 2), (14, 2, 5)),
    "along": (ALONG, (9, 4, 1), (9, 4)),
    "columns": (COLUMNS, (20, 1), (9, 20)),
}


COMBINATIONS = [
    ("rows", "set", CLIP, np.float32), ("rows", "add", FILL, BFLOAT16),
    ("rows", "mul", FILL, np.float32), ("rows", "max", CLIP, np.int16),
    ("rows", "sub", FILL, np.float64), ("rows", "min", FILL, np.float32),
    ("points", "set", FILL, np.uint8), ("points", "add", CLIP, np.float32),
    ("boxes", "set", CLIP, np.complex128), ("boxes", "add", FILL, np.float32),
    ("along", "set", FILL, np.int64), ("along", "add", CLIP, np.float16),
    ("columns", "set", FILL, np.float32), ("columns", "add", FILL, np.bool_),
    ("rows", "min", FILL, np.float16),
]  # fmt: skip


@pytest.mark.parametrize("name,combine,mode,dtype", COMBINATIONS)
def test_scatter(name, combine, mode, dtype, monkeypatch):
    numbers, shape, updates = SCATTERS[name]
    indices = np.random.default_rng(0).integers(-2, 11, shape).astype(np.int32)
    op = Scatter(combine, ScatterDimensionNumbers(*numbers), mode=mode)
    given = [values((9, 12), dtype), indices, values(updates, dtype, 1)]
    check(scattering.lower, op, given, close)
    monkeypatch.setattr(scattering, "FEW", 1)  # as if there were many
    check(scattering.lower, op, given, close, in_place=0)


@pytest.mark.parametrize("combine,dtype", [
    ("add", np.int32), ("sub", np.uint64), ("min", np.int64), ("max", np.uint32),
])
def test_integers_are_scattered_at_once(combine, dtype):
    op = Scatter(combine, ScatterDimensionNumbers(*ROWS))
    indices = np.random.default_rng(0).integers(0, 3, (20, 1)).astype(np.int64)
    check(scattering.lower, op, [special((3, 4), dtype), indices, special((20, 4), dtype)])


def test_scatter_of_complex_numbers_and_to_unique_places():
    indices = np.random.default_rng(0).permutation(9)[:6, None]
    for combine, dtype, unique in [("add", np.complex64, False), ("mul", np.float16, True),
                                   ("set", np.complex128, True)]:  # fmt: skip
        op = Scatter(combine, ScatterDimensionNumbers(*ROWS), unique_indices=unique)
        given = [values((9, 5), dtype), indices, values((6, 5), dtype, 1)]
        check(scattering.lower, op, given, close)
    op = Scatter("mul", ScatterDimensionNumbers(*ROWS))
    x = values((9, 5), np.complex64)
    assert lowered(scattering.lower, op, [x, indices, x[:6]], [(x.shape, x.dtype)]) is None


@pytest.mark.parametrize("combine", ["add", "max", "set"])
def test_many_updates_of_few_places(combine):
    """Segments of thousands of edges are divided, and put together in order."""
    for width, places in [((), 3), ((6,), 40)]:
        n = 3000
        rng = np.random.default_rng(0)
        indices = np.where(rng.random(n) < 0.5, 1, rng.integers(-1, places + 1, n))[:, None]
        op = Scatter(combine, ScatterDimensionNumbers((1,) if width else (), (0,), (0,)))
        dtype = BFLOAT16 if combine == "max" else np.float32  # maxima of float32 are not sorted
        x, u = values((places, *width), dtype), values((n, *width), dtype, 1)
        check(scattering.lower, op, [x, indices.astype(np.int32), u], close)


# ---------------------------------------------------------------------------------------- messages


def edges(n, nodes, heavy, seed=0):
    rng = np.random.default_rng(seed)
    targets = np.where(rng.random(n) < heavy, 2, rng.integers(-1, nodes + 1, n))
    return rng.integers(-1, nodes + 1, (n, 1)).astype(np.int32), targets[:, None].astype(np.int64)


@pytest.mark.parametrize("clips", [True, False])
@pytest.mark.parametrize("numbered", [True, False])
def test_edges_by_target(clips, numbered):
    sources, targets = edges(2500, 300, 0.2)
    op = EdgesByTarget(300, 300, clips, not clips, numbered)
    check(messages.lower_edges, op, [sources, targets])
    check(messages.lower_edges, EdgesByTarget(0, 300, True, clips, True), [targets])
    check(messages.lower_edges, EdgesByTarget(0, 7, True, clips, True), [targets[:9]])


@pytest.mark.parametrize("dtype,width,more", [
    (np.float32, 12, ""), (np.float32, 33, "start"), (BFLOAT16, 16, ""), (np.int32, 12, "weights"),
    (np.float64, 5, "weights start"), (np.float32, 24, "weights 3"), (np.float64, 20, "weights 2"),
])
def test_sums_of_messages(dtype, width, more):
    for heavy in (0.0, 0.6):
        sources, targets = edges(1200, 50, heavy)
        ends, order = EdgesByTarget(50, 50, True, False).eager(np, sources, targets)
        given = [values((50, width), dtype), ends, order]
        if "weights" in more:
            numbered = EdgesByTarget(50, 50, True, False, True).eager(np, sources, targets)[1]
            heads = int(more[-1]) if more[-1].isdigit() else 1
            given += [numbered, values((1200, heads), dtype, 3)]
        if "start" in more:
            given.append(values((50, width), dtype, 2))
        op = GatherScatter("weights" in more, heads) if "weights" in more else GatherScatter()
        check(messages.lower, op, given, close)


@pytest.mark.parametrize("heavy", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("dtype,width", [(np.float32, 12), (BFLOAT16, 16), (np.int32, 5)])
def test_sums_into_few_of_many_rows(dtype, width, heavy):
    """Rows without edges are cleared: the memory before has other contents."""
    _, targets = edges(1200, 6000, heavy)
    ends, order = EdgesByTarget(0, 6000, True, False, True).eager(np, targets)
    check(messages.lower, GatherScatter(), [values((1200, width), dtype), ends, order], close)


def test_long_rows_are_those_beyond_the_limit(monkeypatch):
    for limit, few in ((segments.FEW_LIMIT, segments.FEW_EDGES), (segments.LIMIT, 0)):
        monkeypatch.setattr(segments, "FEW_EDGES", few)
        _check_degrees(limit - 1, limit, limit + 1, 2 * limit, 2 * limit + 1)


def _check_degrees(*degrees):
    for degree in degrees:
        ends = np.array([3, 3 + degree, 3 + degree + 5], np.int32)
        order = np.arange(ends[-1], dtype=np.int32) % 7
        h = values((7, 4), np.float64)
        check(messages.lower, GatherScatter(), [h, ends, order], close)


# -------------------------------------------------------------------------------------- cumulative


@pytest.mark.parametrize("kind,dtype", [
    (Cumsum, np.float32), (Cumsum, np.int8), (Cumprod, np.float64), (Cummax, np.float16),
    (Cummin, np.int64),
])
@pytest.mark.parametrize("reverse", [False, True])
def test_cumulative(kind, dtype, reverse):
    for shape, axis in [((40, 33), 1), ((700,), 0), ((2, 4500), 1), ((2, 150, 3), 1)]:
        x = values(shape, dtype, scale=0.1)
        x = x + np.asarray(1, x.dtype)
        check(cumulative.lower, kind(axis, reverse), [x], close)


def test_cumulative_of_many_tiles(monkeypatch):
    """Totals of tiles have tiles of their own."""
    monkeypatch.setattr(cumulative, "_SHORT", 3)
    check(cumulative.lower, Cumsum(1), [values((2, 9000), np.int32)])
    check(cumulative.lower, Cummax(1, True), [values((1, 9000), np.float32)])


def test_cumulative_of_special_numbers():
    x = np.array([1.0, np.inf, -np.inf, 2.0, np.nan, 3.0], np.float32)
    for kind in (Cumsum, Cumprod, Cummax, Cummin, Cumlogsumexp):
        for y in (x, x[:4], np.stack([x, x[::-1]], 1)):
            check(cumulative.lower, kind(0), [y], close)
    z = values((300, 2), np.complex64)
    check(cumulative.lower, Cumsum(0, True), [z], close)
    check(cumulative.lower, Cumlogsumexp(1), [values((3, 600), np.float32, scale=40)], close)
    assert lowered(cumulative.lower, Cumlogsumexp(0), [z], [(z.shape, z.dtype)]) is None


@pytest.mark.parametrize(("reverse", "shifted"), recurrences.WAYS)
@pytest.mark.parametrize("dtype", recurrences.DTYPES)
def test_recurrences(dtype, reverse, shifted, monkeypatch):
    def compare(shape, axis):
        a, b = recurrences.operands(shape, dtype, axis, reverse, shifted)
        op = LinearRecurrence(axis, reverse, shifted)
        check(cumulative.lower_recurrence, op, [a, b], close)

    for n in recurrences.LENGTHS:
        for shape, axis in [((3, n), 1), ((2, n, 3), 1)]:
            compare(shape, axis)
    monkeypatch.setattr(cumulative, "_STEPS", 1)  # whole columns
    compare((2, 150, 3), 1)
    monkeypatch.setattr(cumulative, "_SHORT", 3)  # tiles of totals of tiles
    compare((1, 9000), 1)


def test_recurrences_with_infinite_coefficients():
    a, b = np.full(700, 0.5, np.float32), np.arange(700, dtype=np.float32)
    a[[0, 50, 600]] = np.inf
    for x, y in ((a, b), (a[:64], b[:64]), (np.stack([a, a[::-1]], 1), np.stack([b, b], 1))):
        for reverse in (False, True):
            check(cumulative.lower_recurrence, LinearRecurrence(0, reverse), [x, y], close)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_cumulative_products_of_complex_numbers(dtype, monkeypatch):
    for shape, axis in [((40, 33), 1), ((2, 4500), 1), ((2, 150, 3), 1)]:
        x = np.exp(1j * values(shape, np.float64)).astype(dtype)
        check(cumulative.lower, Cumprod(axis), [x], close)
        check(cumulative.lower, Cumprod(axis, True), [x[::-1]], close)
    monkeypatch.setattr(cumulative, "_SHORT", 3)
    x = np.exp(1j * values((1, 9000), np.float64)).astype(dtype)
    check(cumulative.lower, Cumprod(1), [x], close)
    x = np.array([[complex(np.inf, 1)], [complex(2, -np.inf)]], dtype)
    check(cumulative.lower, Cumprod(1), [x], close)  # no product with 1, which would make NaN


# ------------------------------------------------------------------------------------------ sorting

REAL = [np.bool_, np.int8, np.uint64, BFLOAT16, np.float32, np.float64]


@pytest.mark.parametrize("dtype", [*REAL, np.complex64])
def test_sort(dtype):
    for shape, axis in [((3, 40, 3), 1), ((2300,), 0)]:
        x = special(shape, dtype)
        check(sorting.lower, Sort(axis), [x])
        check(sorting.lower, Sort(axis), [x[::-1], np.indices(shape, np.int32)[axis]])


# Rows that share a block, have a block to themselves, or are too long for one.
@pytest.mark.parametrize("n,dtype", [
    (1, np.float32), (255, np.int8), (1024, np.float64), (1025, np.float32), (2049, np.float16),
    (4095, np.float32), (4096, BFLOAT16), (4097, np.float32),
])  # fmt: skip
def test_sort_lengths(n, dtype):
    x = special((2, n), dtype)
    check(sorting.lower, Sort(1), [x])
    check(sorting.lower, Sort(0), [x.T[:, ::-1], np.indices((n, 2), np.int32)[0]])


# enough: how many tiles make them larger.
@pytest.mark.parametrize("shape,dtype,enough", [
    ((2, 4500), np.float32, 1), ((8200, 2), np.uint16, 1), ((70000,), np.int8, 100),
    ((2100,), np.float64, 1),
])  # fmt: skip
def test_sort_by_tiles(shape, dtype, enough, monkeypatch):
    monkeypatch.setattr(gpu_radix, "_ENOUGH", enough)
    x, axis = special(shape, dtype), int(np.argmax(shape))
    check(sorting.lower, Sort(axis), [x])
    check(sorting.lower, Sort(axis), [x, np.indices(shape, np.int32)[axis]])


@pytest.mark.parametrize("shape", [(4, 33), (2300, 2)])
def test_sort_by_several_keys(shape):
    few, wide = special(shape, np.int8, 1) // 50, special(shape, np.int64, 2) % 4
    x, z = special(shape, np.float32, 3), special(shape, np.complex128, 4)
    check(sorting.lower, Sort(0, 3), [few, wide, x, z])
    check(sorting.lower, Sort(0, 2), [few, z, x])


@pytest.mark.parametrize("dtype", REAL)
def test_top_k(dtype):
    for shape, axis in [((3, 40, 3), 1), ((5000,), 0), ((4099, 2), 0)]:
        x, n = special(shape, dtype), shape[axis]
        for k in (1, 5, n // 2):
            check(sorting.lower_top_k, TopK(k, axis), [x])


# busy: how many blocks are enough; with twice as many rows, warps read rows.
@pytest.mark.parametrize("shape,axis,dtype,busy,ks", [
    ((3, 1, 2), 1, np.float32, 528, [1]), ((5, 2, 200), 2, BFLOAT16, 528, [1, 8, 16, 17, 200]),
    ((300, 9), 0, np.float32, 1, [8, 16]), ((300, 2), 0, np.float32, 528, [1, 16, 64]),
    ((2, 1100), 1, np.int32, 1, [16, 17, 1100]), ((2, 4096), 1, np.float16, 1, [8, 17]),
    ((3000,), 0, np.float32, 528, [5]), ((4097,), 0, np.int8, 528, [16, 64]),
    ((4097,), 0, np.int8, 1, [16]),
])  # fmt: skip
def test_top_k_of_few_and_many(shape, axis, dtype, busy, ks, monkeypatch):
    monkeypatch.setattr(gpu_top, "_BUSY", busy)
    x = special(shape, dtype)
    for k in ks:
        check(sorting.lower_top_k, TopK(k, axis), [x])


@pytest.mark.parametrize("dtype", REAL)
def test_arg_extrema(dtype):
    for shape, axis in [((9, 33), 1), ((10000,), 0), ((200, 2), 0)]:
        x = special(shape, dtype)
        check(sorting.lower_extremum, Argmax(axis, np.dtype(np.int32)), [x])
        check(sorting.lower_extremum, Argmin(axis, np.dtype(np.uint8)), [x[::-1]])


def test_what_is_declined():
    x = values((4,), np.float32).astype(ml_dtypes.float8_e4m3fn)
    assert lowered(sorting.lower, Sort(0), [x], [((4,), x.dtype)]) is None


# ------------------------------------------------------------------------------------------ windows

# shape, window, strides, padding, dilation of the operand, of the window
GEOMETRIES = {
    "NHWC": ((2, 9, 8, 19), (1, 3, 2, 1), (1, 2, 1, 1), ((0, 0), (1, 1), (0, 1), (0, 0)),
             (1, 1, 1, 1), (1, 1, 1, 1)),
    "dilated": ((2, 9, 8, 5), (1, 3, 2, 1), (1, 2, 1, 1), ((0, 0), (1, 1), (0, 1), (0, 0)),
                (1, 2, 3, 1), (1, 2, 1, 1)),
    "trimmed": ((2, 12, 11, 6), (1, 5, 4, 1), (1, 1, 3, 1), ((0, 0), (2, 1), (-1, 2), (0, 0)),
                (1, 1, 1, 1), (1, 1, 1, 1)),
    "units": ((2, 7, 7, 16), (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (0, 0), (0, 0)),
              (1, 1, 1, 1), (1, 1, 1, 1)),
    "1-d": ((30,), (5,), (2,), ((2, 2),), (1,), (1,)),
    "apart": ((20,), (3,), (5,), ((1, 1),), (1,), (1,)),
}  # fmt: skip


def sample(shape, dtype, seed=0, nan=True):
    """Numbers that are often equal."""
    x = np.round(np.random.default_rng(seed).normal(size=shape) * 5)
    if np.dtype(dtype).kind in "iu":
        return np.abs(x).astype(dtype)
    if nan:
        x[np.random.default_rng(seed + 1).random(shape) < 0.05] = np.nan
    return x.astype(dtype)


@pytest.mark.parametrize("name,dtype", [*zip(GEOMETRIES, itertools.cycle([np.float32, BFLOAT16])),
                                        ("NHWC", np.int32)])  # fmt: skip
def test_windows(name, dtype):
    shape, *geometry = GEOMETRIES[name]
    x = sample(shape, dtype)
    for op in (windows.ReduceWindowSum, windows.ReduceWindowMax, windows.ReduceWindowMin):
        check(pooling.lower, op(*geometry), [x], close)
    with np.errstate(all="ignore"):
        check(pooling.lower, windows.ReduceWindowProd(*geometry), [(x % 3).astype(x.dtype)], close)


@pytest.mark.parametrize("name,dtype", [
    *zip(GEOMETRIES, itertools.cycle([np.bool_, np.int16, np.uint64]))])
def test_windows_of_bits(name, dtype):
    shape, *geometry = GEOMETRIES[name]
    x = np.random.default_rng(0).integers(0, 2 if dtype is np.bool_ else 200, shape).astype(dtype)
    for op in (windows.ReduceWindowAnd, windows.ReduceWindowOr, windows.ReduceWindowMax,
               windows.ReduceWindowMin):
        check(pooling.lower, op(*geometry), [x], close)


@pytest.mark.parametrize("select", ["ge", "le"])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_selections(name, select):
    shape, window, strides, padding, base, dilation = GEOMETRIES[name]
    ones = (1,) * len(shape)
    dtype = np.float32 if select == "ge" else np.float16
    x, tangent = sample(shape, dtype), sample(shape, dtype, 1, nan=False)
    op = windows.SelectAndGatherAdd(select, window, strides, padding, base, dilation)
    check(pooling.lower, op, [tangent, x], close)
    out = windows.ReduceWindowMax(window, strides, padding, ones, ones).eager(np, x).shape
    op = windows.SelectAndScatterAdd(select, window, strides, padding)
    check(pooling.lower, op, [sample(out, dtype, 2, nan=False), x], close)


def test_large_windows_count_their_elements_in_words():
    op = windows.SelectAndScatterAdd("ge", (300,), (100,), ((0, 0),))
    check(pooling.lower, op, [sample((8,), np.float32), sample((1000,), np.float32)], close)


# ----------------------------------------------------------------------------------------- products

DOTS = [
    ("ab", "bc", "ac", {"a": 70, "b": 33, "c": 65}),
    ("ab", "ab", "", {"a": 7, "b": 9}),
    ("abcd", "dbef", "bface", {"a": 3, "b": 2, "c": 4, "d": 18, "e": 3, "f": 5}),
    ("a", "b", "ab", {"a": 5, "b": 70}),
    ("ab", "ab", "ab", {"a": 5, "b": 70}),
    ("abc", "cb", "ab", {"a": 5, "b": 70, "c": 9}),
]
PAIRS = [(np.int32, None), (np.bool_, None), (np.int8, np.int32), (BFLOAT16, np.float32),
         (np.complex64, None)]  # fmt: skip


@pytest.mark.parametrize("dtype,out", PAIRS)
def test_products(dtype, out):
    for left, right, result, size in DOTS:
        op = dot_operation(left, right, result, None if out is None else np.dtype(out))
        x, y = (values([size[c] for c in s], dtype, i) for i, s in enumerate((left, right)))
        check(tiled_products.lower_small_dot, op, [x, y], close)
    check(tiled_products.lower_small_dot, op, [x[::-1], y], close)
    empty = values((70, 0), np.float32), values((0, 3), np.float32)
    check(tiled_products.lower_small_dot, dot_operation("ab", "bc", "ac"), empty, close)


NHWC = ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
NCHW = ConvDimensionNumbers((0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3))
NLC = ConvDimensionNumbers((0, 2, 1), (2, 1, 0), (0, 2, 1))
NONE = ConvDimensionNumbers((0, 1), (1, 0), (0, 1))
# operands, numbers, strides, padding, dilations, groups of features and of the batch
CONVOLUTIONS = {
    "plain": ((2, 9, 8, 5), (3, 3, 5, 7), NHWC, (1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 1, 1),
    "groups": ((2, 9, 8, 6), (3, 2, 3, 8), NHWC, (2, 1), ((1, 0), (0, 2)), (1, 1), (1, 2), 2, 1),
    "gradient": ((2, 4, 9, 8), (6, 4, 3, 3), NCHW, (1, 2), ((2, 2), (1, 1)), (2, 1), (1, 1), 1, 1),
    "batches": ((4, 7, 3), (3, 3, 6), NLC, (1,), ((1, 1),), (1,), (1,), 1, 2),
    "no space": ((5, 3), (3, 4), NONE, (), (), (), (), 1, 1),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name):
    x, kernel, numbers, strides, padding, lhs, rhs, groups, batches = CONVOLUTIONS[name]
    op = ConvGeneralDilated(strides, padding, lhs, rhs, numbers, groups, batches)
    for dtype in (np.float32, np.int32):
        given = [values(x, dtype, scale=1), values(kernel, dtype, 1, scale=1)]
        check(tiled_products.lower_direct_conv, op, given, close)
