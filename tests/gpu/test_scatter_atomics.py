"""Floats that atomics scatter: exact results with the same bits in any order of the updates."""

import math
from collections import defaultdict

import ml_dtypes
import numpy as np
import pytest

from tests.gpu import nvrtc
from tests.gpu.fake_plan import FakePlan, lowered, runs
from tests.gpu.test_kernels import ALONG, BFLOAT16, BOXES, CLIP, COLUMNS, FILL, POINTS, ROWS
from toile.kernels.scatter import gpu as scattering
from toile.kernels.scatter import gpu_elements as atomics
from toile.primitives.addresses import GatherDimensionNumbers, ScatterDimensionNumbers
from toile.primitives.gathers import Gather, Scatter
from toile.targets.cuda.modules import Kernel

pytestmark = pytest.mark.skipif(not runs(), reason="needs g++ or a GPU")

ELEMENTS = GatherDimensionNumbers((), (0,), (0,))
# Dimension numbers; sizes of a window; shapes of operand, indices and updates; greatest index.
FORMS = {
    "elements": (ELEMENTS, (1,), (150,), (1500, 1), (1500,), 152),
    "rows of 3": (ROWS, (1, 3), (40, 3), (300, 1), (300, 3), 42),
    "rows of 16": (ROWS, (1, 16), (12, 16), (90, 1), (90, 16), 13),
    "points": (POINTS, (1, 1), (9, 12), (400, 2), (400,), 12),
    "boxes": (BOXES, (2, 5), (9, 12), (60, 2), (60, 2, 5), 9),
    "batch": (ALONG, (1, 1), (9, 12), (9, 80, 1), (9, 80), 13),
    "columns": (COLUMNS, (9, 1), (9, 12), (150, 1), (9, 150), 13),
}
POOL = np.array([0.0, -0.0, 1e-40, -3e-45, 1e30, -1e30, 1e-30, -1e-30, 3e38, 1.5, -2.25, 1e5])
NOT_FINITE = np.array([np.nan, np.copysign(np.nan, -1), np.inf, -np.inf])


def numbers(shape, dtype, seed):
    """Numbers of all magnitudes; NaN and infinities are few, so that most places have none."""
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype.kind == "c":
        parts = numbers((*shape, 2), f"f{dtype.itemsize // 2}", seed)
        return parts.view(dtype)[..., 0]
    x = rng.normal(size=shape) * 10.0 ** rng.integers(-6, 6, shape)
    x = np.where(rng.random(shape) < 0.4, rng.choice(POOL, shape), x)
    x = np.where(rng.random(shape) < 0.02, rng.choice(NOT_FINITE, shape), x)
    with np.errstate(all="ignore"):
        return x.astype(dtype)


def problem(form, combine, mode, dtype):
    """An operation, its operands, and the position that each element of the updates goes to."""
    dimensions, sizes, shape, index_shape, update_shape, most = FORMS[form]
    op = Scatter(combine, ScatterDimensionNumbers(*dimensions), mode=mode)
    indices = np.random.default_rng(1).integers(-2, most, index_shape).astype(np.int32)
    x, updates = numbers(shape, dtype, 2), numbers(update_shape, dtype, 3)
    places = np.arange(1, x.size + 1).reshape(shape)
    at = Gather(dimensions, sizes, mode=mode, fill_value="0").eager(np, places, indices) - 1
    return op, [x, indices, updates], at


def parts(x):
    return x.view(f"f{x.dtype.itemsize // 2}") if x.dtype.kind == "c" else x


def updates_by_place(x, updates, at):
    """The numbers of the operand, each with the updates that it gets."""
    if x.dtype.kind == "c":
        at = np.stack([2 * at, 2 * at + 1], -1)
    found = defaultdict(list)
    for to, u in zip(at.ravel(), parts(np.ascontiguousarray(updates)).ravel(), strict=True):
        found[int(to)].append(float(u))
    return [(float(old), found[i]) for i, old in enumerate(parts(x).ravel())]


@pytest.fixture
def run(monkeypatch):
    """Runs a scatter as if its updates were many; sorting is not allowed."""
    monkeypatch.setattr(scattering, "FEW", 1)
    monkeypatch.setattr(atomics, "FEWEST", 1)
    monkeypatch.delattr(scattering, "_sorted")

    def scatter(op, given, in_place=None):
        shape, dtype = given[0].shape, given[0].dtype
        return lowered(scattering.lower, op, given, [(shape, dtype)], in_place)[0]

    return scatter


def reordered(form, given, seed):
    """The same updates in another order."""
    x, indices, updates = given
    axis = 1 if form in ("columns", "batch") else 0  # of updates; of indices the last but one
    order = np.random.default_rng(seed).permutation(updates.shape[axis])
    return [x, np.take(indices, order, axis=indices.ndim - 2), np.take(updates, order, axis=axis)]


def check_orders(run, form, op, given, got):
    for seed in range(3):
        again = run(op, reordered(form, given, seed), in_place=0)
        assert again.tobytes() == got.tobytes()


@pytest.mark.parametrize("form,combine,mode,dtype", [
    ("elements", "max", FILL, np.float32), ("elements", "min", CLIP, np.float32),
    ("elements", "min", FILL, np.float64), ("elements", "max", CLIP, np.float64),
    ("rows of 3", "min", FILL, np.float32), ("rows of 16", "max", CLIP, np.float64),
    ("points", "max", FILL, np.float64), ("boxes", "min", FILL, np.float32),
    ("batch", "max", CLIP, np.float32), ("columns", "min", FILL, np.float64),
])  # fmt: skip
def test_extrema(run, form, combine, mode, dtype):
    op, given, at = problem(form, combine, mode, dtype)
    got, best = run(op, given), {"min": min, "max": max}[combine]
    check_orders(run, form, op, given, got)
    places = updates_by_place(given[0], given[2], at)
    assert any(more and math.isnan(old) for old, more in places)
    for (old, more), x in zip(places, got.ravel(), strict=True):
        all_of = [old, *more]
        if any(map(math.isnan, all_of)):
            assert np.isnan(x)
        else:  # -0 < +0
            assert repr(float(x)) == repr(best(all_of, key=lambda y: (y, math.copysign(1, y))))


def expected_sum(old, more):
    """The correctly rounded sum in float64, and the sign of a zero."""
    if all(x == 0 and math.copysign(1, x) < 0 for x in [old, *more]):
        return -0.0
    if all(map(math.isfinite, [old, *more])):
        return math.fsum([old, *more]) + 0.0
    with np.errstate(invalid="ignore"):
        return float(np.sum([x for x in [old, *more] if not math.isfinite(x)]))


SUMS = [
    ("elements", "add", FILL, np.float32), ("elements", "sub", CLIP, np.float32),
    ("elements", "add", CLIP, BFLOAT16), ("elements", "sub", FILL, np.float16),
    ("elements", "add", FILL, np.complex64), ("rows of 3", "sub", FILL, np.complex64),
    ("rows of 3", "add", CLIP, BFLOAT16), ("rows of 16", "add", FILL, np.float32),
    ("rows of 16", "sub", CLIP, np.float16), ("points", "add", FILL, np.float32),
    ("boxes", "add", CLIP, np.float32), ("batch", "sub", FILL, np.float32),
    ("columns", "add", FILL, np.float32), ("columns", "add", CLIP, np.float16),
]  # fmt: skip


def rounded_sum(old, more, combine, dtype):
    """The sum in float64, and in the dtype."""
    want = expected_sum(old, [-u for u in more] if combine == "sub" else more)
    with np.errstate(over="ignore"):
        return want, float(np.asarray(want).astype(np.float32).astype(dtype))


@pytest.mark.parametrize("many", [None, 0], ids=["exponents", "digits"])
@pytest.mark.parametrize("form,combine,mode,dtype", SUMS)
def test_sums(run, monkeypatch, form, combine, mode, dtype, many):
    """Within half a unit in the last place, and what integers of 62 bits in all round."""
    if many is not None:  # numbers of all magnitudes are too far apart for digits
        monkeypatch.setattr(atomics, "MANY", many)
        monkeypatch.setattr(atomics, "NEAR", 0)
    op, given, at = problem(form, combine, mode, dtype)
    got = run(op, given)
    check_orders(run, form, op, given, got)
    info, power = ml_dtypes.finfo(parts(got).dtype), 62 - given[2].size.bit_length()
    unit, least = float(info.eps), float(info.smallest_subnormal)
    for (old, more), x in zip(updates_by_place(given[0], given[2], at), parts(got).ravel(),
                              strict=True):
        want, rounded = rounded_sum(old, more, combine, info.dtype)
        if not math.isfinite(rounded) or not more or want == 0:
            np.testing.assert_equal(float(x), rounded)
            assert math.isnan(rounded) or math.copysign(1, x) == math.copysign(1, rounded)
            continue
        largest = max(map(abs, more))
        assert abs(float(x) - want) <= unit * abs(want) / 2 + least + largest * len(more) / 2**power


@pytest.mark.parametrize("near", [0, 1 << 20], ids=["in order of places", "as given"])
@pytest.mark.parametrize("form,combine,mode,dtype", SUMS)
def test_sums_of_digits(run, monkeypatch, form, combine, mode, dtype, near):
    """Updates whose exponents are close are added without any rounding; -0 plus 0 may be -0."""
    monkeypatch.setattr(atomics, "MANY", 0)
    monkeypatch.setattr(atomics, "NEAR", near)
    monkeypatch.setattr(atomics, "MOST_BLOCKS", 2)
    op, (x, indices, updates), at = problem(form, combine, mode, dtype)
    rng, flat = np.random.default_rng(5), parts(updates)
    close = rng.normal(size=flat.shape) * 2.0 ** rng.integers(-12, 9, flat.shape)
    close = np.where(rng.random(flat.shape) < 0.1, rng.choice([0.0, -0.0], flat.shape), close)
    flat[...] = close * (1e-39 if form == "boxes" else 1)  # also subnormal ones
    got = run(op, [x, indices, updates])
    check_orders(run, form, op, [x, indices, updates], got)
    info = ml_dtypes.finfo(parts(got).dtype)
    for (old, more), y in zip(updates_by_place(x, updates, at), parts(got).ravel(), strict=True):
        want, rounded = rounded_sum(old, more, combine, info.dtype)
        if info.dtype.itemsize < 4 and math.isfinite(want):  # rounded to float32 first
            assert abs(float(y) - want) <= float(info.eps) * abs(want) * 0.51 + float(
                info.smallest_subnormal)
        else:
            np.testing.assert_equal(float(y), rounded)


def scattered(run, combine, x, updates):
    """A scatter of pairs: a place, and a row or an element."""
    x = np.array(x, np.float32)
    indices = np.array([[i] for i, _ in updates], np.int32)
    op = Scatter(combine, ScatterDimensionNumbers(*(ELEMENTS if x.ndim == 1 else ROWS)))
    return run(op, [x, indices, np.array([u for _, u in updates], np.float32)])


def same_bits(got, want):
    assert got.tobytes() == np.array(want, np.float32).tobytes()


def test_signs_of_zeros(run):
    """Elements of a unit that get no update, or -0, keep their bits."""
    for combine, want in [("max", [0.0, 0.0, -0.0]), ("min", [-0.0, -0.0, -0.0])]:
        got = scattered(run, combine, [-0.0, 0.0, -0.0], [(0, 0.0), (1, -0.0), (2, -0.0)])
        same_bits(got, want)
    rows = [(0, [-0.0, 1.0, 0.0, -0.0]), (0, [-0.0, -1.0, -0.0, 2.0])]
    same_bits(scattered(run, "add", [[-0.0] * 4], rows), [[-0.0, 0.0, 0.0, 2.0]])
    same_bits(scattered(run, "sub", [[-0.0] * 4], rows), [[0.0, 0.0, 0.0, -2.0]])


@pytest.mark.parametrize("cached", [0, 1 << 23])
def test_magnitudes(run, cached, monkeypatch):
    """Sums of small numbers are exact next to places of large ones, and none overflows."""
    monkeypatch.setattr(atomics, "CACHED", cached)
    tiny, huge = np.float32(1e-45), np.float32(3e38)
    updates = [(0, tiny), (0, tiny), (1, 1e-30), (1, -1e30), (2, huge), (2, huge), (0, tiny)]
    got = scattered(run, "add", [0.0, 1e30, -huge], updates)
    same_bits(got, [3 * tiny, 0.0, huge])
    for x in (np.float32(1 - 2**-24), -tiny, np.float32(-2.0**100)):
        same_bits(scattered(run, "add", [0.0], [(0, x)] * 1023), [np.float64(x) * 1023])


@pytest.mark.parametrize("combine,dtype,shape,count,sums", [
    ("add", np.float32, (1 << 14,), 5000, True), ("sub", BFLOAT16, (1 << 13, 2), 5000, True),
    ("add", np.complex64, (1 << 13,), 3000, True), ("max", np.float32, (3,), 5000, None),
    ("add", np.float32, (16383,), 5000, True), ("add", np.float32, (16383,), 1 << 17, False),
    ("add", np.float64, (1 << 14,), 5000, False),
    ("add", np.float32, (1 << 15,), 5000, False), ("mul", np.float32, (1 << 14,), 5000, False),
    ("add", np.float32, (1 << 14, 17), 5000, False), ("max", np.float32, (9, 17), 5000, False),
    ("min", np.float16, (9,), 5000, False),
])  # fmt: skip
def test_choice(combine, dtype, shape, count, sums):
    """sums: whether integers are added, not rows sorted; None: one kernel for extrema."""
    plan, width = FakePlan(), shape[1:]
    op = Scatter(combine, ScatterDimensionNumbers((1,) if width else (), (0,), (0,)))
    x = plan.operand(np.zeros(shape, dtype))
    ins = [x, plan.operand(np.zeros((count, 1), np.int32)),
           plan.operand(np.zeros((count, *width), dtype))]
    assert scattering.lower(op, ins, [x], plan)
    made = [launch for launches in plan.stages for launch in launches]
    if sums is not False and nvrtc.library() is not None:
        assert [nvrtc.problem(Kernel(launch.text).source) for launch in made] == [""] * len(made)
    notes = [launch.note for launch in made]
    if sums is None:
        assert notes == [f"scatter_{combine}"]
    else:
        assert (f"scatter_{combine}: sums" in notes) == sums
        assert ("places of a scatter" in notes) != sums


def test_sums_of_many_places():
    """Without changed limits: more places than updates."""
    rng, n = np.random.default_rng(0), 1 << 14
    x, u = rng.normal(size=(2, n)).astype(np.float32)
    u, i = u[:5000], rng.integers(0, n, 5000)
    op = Scatter("add", ScatterDimensionNumbers(*ELEMENTS))
    got = lowered(scattering.lower, op, [x, i[:, None], u], [(x.shape, x.dtype)])[0]
    want = x.astype(np.float64)
    np.add.at(want, i, u)
    np.testing.assert_allclose(got, want, 6e-8)
