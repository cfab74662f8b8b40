"""The array kernels against jax.lax on random configurations, corner cases and short dtypes."""

from __future__ import annotations

import zlib

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from tests.primitives.rules import asked, compiled
from toile.primitives.arrays import (
    argmax,
    argmin,
    contract,
    conv_general,
    conv_output_shape,
    cumulative,
    dynamic_slice,
    dynamic_update_slice,
    gather,
    pad,
    reduce_window,
    reduce_window_with,
    scatter,
    select_and_gather_add,
    select_and_scatter_add,
    sort,
    top_k,
    window_output_shape,
)

BF16 = np.dtype(ml_dtypes.bfloat16)
ALL = [
    "bool", "int8", "uint8", "int32", "uint32", "int64", "float16", BF16, "float32", "float64",
    "complex64",
]  # fmt: skip
NUMBERS = ALL[1:]
REAL = ALL[:-1]
LOOSE = {"float16": 4e-3, "bfloat16": 4e-2, "float32": 2e-5, "float64": 1e-11, "complex64": 2e-5}


@pytest.fixture(autouse=True)
def wide():
    with jax.enable_x64(True), np.errstate(all="ignore"):
        yield


def seeded(*parts) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(parts).encode()))


def draw(rng, shape, dtype, small=False):
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        top = 4 if small else min(100, np.iinfo(dtype).max)
        return rng.integers(0 if dtype.kind == "u" else -top, top, shape).astype(dtype)
    if dtype.kind == "c":
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    return rng.normal(size=shape).astype(dtype)


def with_specials(rng, x):
    """Ties, NaNs, infinities and signed zeros among the numbers."""
    if x.dtype.kind not in "fV":
        return x
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0], x.dtype)
    return np.where(rng.random(x.shape) < 0.5, rng.choice(values, x.shape), x)


def same(got, want, exact=False, scale=1.0):
    want = np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    tol = 0 if exact else scale * LOOSE.get(want.dtype.name, 0)
    wide = want.dtype if want.dtype.kind in "biuc" else np.float64
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=tol, atol=tol)


@pytest.mark.parametrize("dtype", ALL)
def test_pad(dtype):
    rng = seeded("pad", dtype)
    for _ in range(8):
        rank = rng.integers(0, 4)
        x = draw(rng, rng.integers(0, 5, rank), dtype)
        value = draw(rng, (), dtype)
        config = []
        for n in x.shape:
            while True:
                low, high, interior = (int(v) for v in rng.integers((-3, -3, 0), (4, 4, 3)))
                if low + high + n + max(n - 1, 0) * interior >= 0:
                    break
            config.append((low, high, interior))
        same(pad(np, x, value, config), asked(lax.pad, x, value, config), exact=True)
    x = draw(rng, (3,), dtype)
    want = asked(lax.pad, x, np.zeros((), dtype), [(1, 2, 1)])
    same(pad(np, x, 0, [(1, 2, 1)]), want, exact=True)


PLANS = [
    "ik,kj->ij", "ik,jk->ij", "ki,kj->ij", "ki,jk->ij", "ik,kj->ji", "ki,jk->ji", "k,k->",
    "ik,k->i",
    "ki,k->i", "k,kj->j", "k,jk->j", "i,j->ij", "i,j->ji", "i,i->i", "bi,bj->bij", "bik,bkj->bij",
    "bik,bjk->bij", "bki,bjk->bji", "bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", "bti,io->bto",
    "bte,ehd->bthd", "bqhd,hde->bqe", "bti,bto->io", "ab,ba->", "abc,cad->bd", ",->", "i,->i",
    ",ij->ji", "abxk,kyab->xyab", "abxk,kyab->aybx", "ik,lkj->lij", "klx,lky->xy", "kbx,bky->ybx",
]  # fmt: skip


def einsum(plan, x, y):
    if x.dtype.kind in "fV":
        return np.asarray(np.einsum(plan, x.astype("f8"), y.astype("f8"))).astype(x.dtype)
    return np.asarray(np.einsum(plan, x, y))


@pytest.mark.parametrize("plan", PLANS)
def test_contract(plan):
    rng = seeded("contract", plan)
    lhs, rhs, out = plan.replace("->", ",").split(",")
    for dtype in ALL:
        for zero in (False, True):
            size = {c: int(rng.integers(1, 5)) for c in lhs + rhs}
            if zero and size:
                size[rng.choice(sorted(size))] = 0
            x = draw(rng, [size[c] for c in lhs], dtype)
            y = draw(rng, [size[c] for c in rhs], dtype)
            want = einsum(plan, x, y)
            got = contract(np, x, y, lhs, rhs, out, x.dtype)
            assert isinstance(got, np.ndarray)
            same(got, want, scale=4)
    x = draw(rng, [size[c] for c in lhs], BF16)
    y = draw(rng, [size[c] for c in rhs], BF16)
    want = einsum(plan, x.astype("f"), y.astype("f"))
    same(contract(np, x, y, lhs, rhs, out, np.dtype("float32")), want)


def test_contract_integers_wrap_and_stay_exact():
    rng = seeded("integers")
    bits = (("int32", 31), ("int32", 20), ("int8", 7), ("uint8", 8), ("int64", 62))
    for dtype, bound in bits:
        top = 2**bound - 1
        for acc in {dtype, "int32"}:
            x = rng.integers(0, top, (40, 50)).astype(dtype)
            y = rng.integers(0, top, (50, 30)).astype(dtype)
            want = x.astype(acc)[:, :, None] * y.astype(acc)[None]
            same(contract(np, x, y, "ik", "kj", "ij", np.dtype(acc)), want.sum(1, dtype=acc))


def test_contract_refuses_odd_labels():
    with pytest.raises(ValueError, match="contract: needed each label"):
        contract(np, np.ones((2, 2)), np.ones(2), "ij", "j", "", np.dtype("f8"))


def random_conv(rng, rank):
    groups = int(rng.choice([1, 1, 2, 3]))
    kind = rng.choice(["feature", "batch"])
    features, batches = (groups, 1) if kind == "feature" else (1, groups)
    n, c, o = (int(v) for v in rng.integers(1, 4, 3))
    x_shape = [n * batches, c * features] + [int(v) for v in rng.integers(1, 8, rank)]
    w_shape = [o * groups, c] + [int(v) for v in rng.integers(1, 5, rank)]
    strides = tuple(int(v) for v in rng.integers(1, 4, rank))
    base = tuple(int(v) for v in rng.choice([1, 1, 2, 3], rank))
    dilation = tuple(int(v) for v in rng.choice([1, 1, 2, 3], rank))
    padding = tuple((int(a), int(b)) for a, b in rng.integers(-2, 4, (rank, 2)))
    return x_shape, w_shape, strides, padding, base, dilation, features, batches


def reference_conv(x, w, strides, padding, base, dilation, features, batches, dtype=None):
    return lax.conv_general_dilated(
        x, w, strides, padding, base, dilation, feature_group_count=features,
        batch_group_count=batches, precision="highest", preferred_element_type=dtype,
    )  # fmt: skip


def test_conv_random():
    rng = seeded("conv")
    operands, chosen = [], []
    while len(chosen) < 40:
        x_shape, w_shape, *options = random_conv(rng, int(rng.choice([0, 1, 1, 2, 2, 2, 3])))
        lengths = [
            lo + hi + (s - 1) * b + 1
            for s, (lo, hi), b in zip(x_shape[2:], options[1], options[2], strict=True)
        ]
        if any(v < 0 for v in lengths):
            continue
        x, w = draw(rng, x_shape, "f8"), draw(rng, w_shape, "f8")
        if rng.random() < 0.5:  # channels last in memory
            x = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
            w = np.ascontiguousarray(np.moveaxis(w, (0, 1), (-1, -2)))
            w = np.moveaxis(w, (-1, -2), (0, 1))
        operands.append((x, w))
        chosen.append(options)
    answers = compiled(lambda pairs: [reference_conv(*xw, *o) for xw, o in zip(pairs, chosen)],
                       operands)
    for (x, w), options, want in zip(operands, chosen, answers, strict=True):
        assert conv_output_shape(x.shape, w.shape, *options[:4], options[5]) == want.shape
        same(conv_general(np, x, w, *options, np.dtype("f8")), want)


@pytest.mark.parametrize("dtype", ["int8", "int32", "float16", BF16, "float32", "complex64"])
def test_conv_dtypes(dtype):
    rng = seeded("conv", dtype)
    cases = [
        ((2, 3, 8, 9), (4, 3, 3, 3), 1, 1), ((2, 3, 8, 9), (4, 3, 1, 1), 1, 1),
        ((2, 6, 8, 9), (6, 1, 3, 3), 6, 1), ((6, 2, 5, 5), (6, 2, 4, 4), 1, 6),
        ((40, 16, 16, 16), (8, 16, 3, 3), 1, 1), ((2, 32, 9, 9), (32, 16, 3, 3), 2, 1),
        ((0, 3, 8, 9), (4, 3, 3, 3), 1, 1), ((2, 0, 8, 9), (4, 0, 3, 3), 1, 1),
        ((2, 3, 2, 2), (4, 3, 3, 3), 1, 1),
    ]  # fmt: skip
    for x_shape, w_shape, features, batches in cases:
        x, w = draw(rng, x_shape, dtype, small=True), draw(rng, w_shape, dtype, small=True)
        options = ((1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1), features, batches)
        got = conv_general(np, x, w, *options, x.dtype)
        if np.dtype(dtype).kind in "iu":
            want = reference_conv(x.astype("f8"), w.astype("f8"), *options)
            want = want.astype("i8").astype(dtype)
        elif np.dtype(dtype).itemsize == 2:
            want = reference_conv(x.astype("f4"), w.astype("f4"), *options).astype(dtype)
        else:
            want = reference_conv(x, w, *options)
        same(got, want, scale=5)


def random_window(rng, rank, dilated=True):
    choices = [1, 1, 2, 3] if dilated else [1]
    return (
        tuple(int(v) for v in rng.integers(1, 5, rank)),
        tuple(int(v) for v in rng.integers(1, 4, rank)),
        tuple((int(a), int(b)) for a, b in rng.integers(0, 3, (rank, 2))),
        tuple(int(v) for v in rng.choice(choices, rank)),
        tuple(int(v) for v in rng.choice(choices, rank)),
    )


MONOIDS = {
    "add": (lax.add, 0), "mul": (lax.mul, 1), "max": (lax.max, None), "min": (lax.min, None),
    "and": (lax.bitwise_and, None), "or": (lax.bitwise_or, 0),
}  # fmt: skip


def start_value(kind, dtype):
    dtype = np.dtype(dtype)
    value = MONOIDS[kind][1]
    if value is None:
        if kind == "and":
            value = True if dtype.kind == "b" else -1 if dtype.kind == "i" else np.iinfo(dtype).max
        elif dtype.kind == "b":
            value = kind == "min"
        elif dtype.kind in "iu":
            value = np.iinfo(dtype).min if kind == "max" else np.iinfo(dtype).max
        else:
            value = -np.inf if kind == "max" else np.inf
    return np.array(value, dtype)


@pytest.mark.parametrize("kind", list(MONOIDS))
def test_reduce_window(kind):
    rng = seeded("window", kind)
    dtypes = ["bool", "int8", "uint8", "int32"]
    if kind not in ("and", "or"):
        dtypes = [*REAL[1:], "complex64"] if kind in ("add", "mul") else REAL
    for dtype in dtypes:
        for _ in range(3):
            rank = int(rng.integers(0, 4))
            options = random_window(rng, rank)
            x = draw(rng, rng.integers(0 if rank < 2 else 1, 8, rank), dtype, small=True)
            if kind in ("max", "min"):
                x = with_specials(rng, x)
            init = start_value(kind, dtype)
            if dtype == BF16 or dtype == "float16":
                wide = x.astype("f"), init.astype("f")
                want = asked(lax.reduce_window, *wide, MONOIDS[kind][0], *options)
                want = np.asarray(want).astype(dtype)
            else:
                want = asked(lax.reduce_window, x, init, MONOIDS[kind][0], *options)
            assert window_output_shape(x.shape, *options) == want.shape
            same(reduce_window(np, x, init, kind, *options), want)
            if kind in ("add", "mul"):
                same(reduce_window(np, x, None, kind, *options), want)


LONG = [(40, 1, 1), (37, 2, 1), (20, 20, 1), (100, 1, 1), (17, 3, 4)]


@pytest.mark.parametrize("window, stride, dilation", LONG)
def test_reduce_window_long(window, stride, dilation):
    x = draw(seeded(window), (100, 3), "f8")
    options = ((window, 1), (stride, 1), ((0, 2), (0, 0)), (1, 1), (dilation, 1))
    for kind in ("add", "max"):
        want = asked(lax.reduce_window, x, start_value(kind, "f8"), MONOIDS[kind][0], *options)
        same(reduce_window(np, x, start_value(kind, "f8"), kind, *options), want)


def test_reduce_window_takes_init_once_and_ignores_padding():
    options = ((3,), (1,), ((1, 1),), (1,), (1,))
    x = np.ones(4, np.float32)
    same(reduce_window(np, x, np.float32(1), "add", *options), np.array([3, 4, 4, 3], np.float32))


def test_reduce_window_with_function():
    rng = seeded("generic")
    for _ in range(20):
        rank = int(rng.integers(1, 4))
        options = random_window(rng, rank)
        shape = rng.integers(1, 7, rank)
        x, y = draw(rng, shape, "f8"), draw(rng, shape, "int32")
        inits = (np.float64(-np.inf), np.int32(-1))

        def larger(where):
            def step(a, b):
                keep = a[0] >= b[0]
                return where(keep, a[0], b[0]), where(keep, a[1], b[1])

            return step

        want = asked(lax.reduce_window, (x, y), inits, larger(jnp.where), *options)
        got = reduce_window_with(np, (x, y), inits, larger(np.where), *options)
        for g, w in zip(got, want, strict=True):
            same(g, w, exact=True)


@pytest.mark.parametrize("select", ["ge", "le"])
@pytest.mark.parametrize("dtype", ["float32", "float64", BF16])
def test_select_and_scatter_and_gather(select, dtype):
    rng = seeded("select", select, dtype)
    prim = {"ge": lax.ge_p, "le": lax.le_p}[select]
    from jax._src.lax.windowed_reductions import _select_and_gather_add, _select_and_scatter_add

    for trial in range(8):
        rank = int(rng.integers(1, 4))
        window, strides, padding, base, dilation = random_window(rng, rank)
        ones = (1,) * rank
        x = np.round(draw(rng, rng.integers(4, 9, rank), dtype).astype("f")).astype(dtype)  # ties
        if trial % 2 and dtype != BF16:
            x = with_specials(rng, x)
        shape = window_output_shape(x.shape, window, strides, padding, ones, ones)
        source = draw(rng, shape, dtype)
        want = asked(_select_and_scatter_add, source, x, prim, window, strides, padding)
        same(select_and_scatter_add(np, source, x, select, window, strides, padding), want)
        if dtype == "float32":
            tangents = draw(rng, x.shape, dtype)
            options = (window, strides, padding, base, dilation)
            want = asked(_select_and_gather_add, tangents, x, prim, *options)
            same(select_and_gather_add(np, tangents, x, select, *options), want, exact=True)


MODES = {
    "clip": lax.GatherScatterMode.CLIP,
    "fill": lax.GatherScatterMode.FILL_OR_DROP,
    "promise": lax.GatherScatterMode.PROMISE_IN_BOUNDS,
}


def random_dimension_numbers(rng, full_bias):
    """Operand and index shapes with legal dimension numbers for gather, reused for scatter."""
    rank = int(rng.integers(1, 5))
    operand = [int(v) for v in rng.integers(1, 6, rank)]
    axes = [int(v) for v in rng.permutation(rank)]
    batching = sorted(axes[: int(rng.integers(0, 2))])
    rest = [d for d in range(rank) if d not in batching]
    mapped = [int(v) for v in rng.permutation(rest)[: int(rng.integers(0, len(rest) + 1))]]
    collapsed = sorted(d for d in rest if rng.random() < (0.7 if d in mapped else 0.1))
    sizes = []
    for d in range(rank):
        if d in batching or d in collapsed:
            sizes.append(1)
        elif rng.random() < full_bias:
            sizes.append(operand[d])
        else:
            sizes.append(int(rng.integers(0 if rng.random() < 0.1 else 1, operand[d] + 1)))
    batch_rank = int(rng.integers(len(batching), 3))
    batch_shape = [int(v) for v in rng.integers(0 if rng.random() < 0.1 else 1, 6, batch_rank)]
    places = [int(v) for v in rng.permutation(batch_rank)[: len(batching)]]
    for d, axis in zip(batching, places, strict=True):
        batch_shape[axis] = operand[d]
    kept = rank - len(batching) - len(collapsed)
    offset = sorted(int(v) for v in rng.permutation(batch_rank + kept)[:kept])
    return operand, sizes, mapped, collapsed, batching, places, batch_shape, offset


def draw_indices(rng, mode, operand, sizes, mapped, batch_shape):
    dtype = rng.choice(["int32", "int64", "uint8", "int8"])
    columns = []
    for d in mapped:
        limit = operand[d] - sizes[d]
        low, high = (0, limit + 1) if mode == "promise" else (-3, limit + 4)
        columns.append(rng.integers(low, high, batch_shape))
    if not columns:
        return np.zeros([*batch_shape, 0], dtype)
    return np.stack(columns, -1).astype(dtype)


@pytest.mark.parametrize("mode", list(MODES))
def test_gather(mode):
    rng = seeded("gather", mode)
    for trial in range(33):
        config = random_dimension_numbers(rng, 0.5)
        shape, sizes, mapped, collapsed, batching, places, batch_shape, offset = config
        x = draw(rng, shape, ALL[trial % len(ALL)])
        if rng.random() < 0.3:
            x = np.asfortranarray(x)
        indices = draw_indices(rng, mode, shape, sizes, mapped, batch_shape)
        numbers = lax.GatherDimensionNumbers(
            tuple(offset), tuple(collapsed), tuple(mapped), tuple(batching), tuple(places)
        )
        want = asked(lax.gather, x, indices, numbers, tuple(sizes), mode=MODES[mode])
        got = gather(
            np, x, indices, offset, collapsed, mapped, batching, places, sizes, mode, None
        )
        same(got, want, exact=True)
        if mode == "fill" and x.dtype == np.float64:
            want = asked(lax.gather, x, indices, numbers, tuple(sizes), mode=MODES[mode],
                         fill_value=7)
            got = gather(
                np, x, indices, offset, collapsed, mapped, batching, places, sizes, mode, 7
            )
            same(got, want, exact=True)


SCATTERS = {
    "set": lax.scatter, "add": lax.scatter_add, "sub": lax.scatter_sub, "mul": lax.scatter_mul,
    "min": lax.scatter_min, "max": lax.scatter_max,
}  # fmt: skip


@pytest.mark.parametrize("combine", list(SCATTERS))
@pytest.mark.parametrize("mode", list(MODES))
def test_scatter(combine, mode):
    rng = seeded("scatter", combine, mode)
    dtypes = ALL if combine == "set" else REAL[1:] if combine in ("min", "max") else NUMBERS
    for trial in range(16):
        config = random_dimension_numbers(rng, 0.5)
        shape, sizes, mapped, collapsed, batching, places, batch_shape, offset = config
        x = draw(rng, shape, dtypes[trial % len(dtypes)], small=True)
        if rng.random() < 0.3:
            x = np.asfortranarray(x)
        if not mapped and np.prod(batch_shape) > 1:  # several windows, no index: XLA drops them
            continue
        indices = draw_indices(rng, mode, shape, sizes, mapped, batch_shape)
        numbers = lax.ScatterDimensionNumbers(
            tuple(offset), tuple(collapsed), tuple(mapped), tuple(batching), tuple(places)
        )
        window = [n for d, n in enumerate(sizes) if d not in collapsed and d not in batching]
        batch, window = iter(batch_shape), iter(window)
        update_shape = [
            next(window) if d in offset else next(batch)
            for d in range(len(batch_shape) + len(offset))
        ]
        updates = draw(rng, update_shape, x.dtype, small=True)
        if combine in ("min", "max"):
            updates = with_specials(rng, updates)
        before = x.copy()
        want = asked(SCATTERS[combine], x, indices, updates, numbers, mode=MODES[mode])
        got = scatter(
            np, x, indices, updates, offset, collapsed, mapped, batching, places, mode, combine
        )
        same(got, want, exact=combine in ("set", "min", "max"), scale=8)
        assert x.tobytes() == before.tobytes()


@pytest.mark.parametrize("dtype", ["float32", BF16, "int32", "int8", "complex64"])
@pytest.mark.parametrize("height", [50, 100000])
def test_scatter_add_rows(dtype, height):
    rng = seeded("rows", dtype)
    index = rng.integers(-2, height + 2, (2000, 1))
    updates = draw(rng, (2000, 16), dtype, small=True)
    x = draw(rng, (height, 16), dtype, small=True)
    got = scatter(np, x, index, updates, (1,), (0,), (0,), (), (), "fill", "add")
    want = x.astype("complex128" if dtype == "complex64" else "f8")
    keep = (index[:, 0] >= 0) & (index[:, 0] < height)
    np.add.at(want, index[keep, 0], updates[keep].astype(want.dtype))
    same(got, (want if x.dtype.kind != "i" else want.astype("i8")).astype(x.dtype), scale=10)


def test_dynamic_slices():
    rng = seeded("slices")
    for _ in range(40):
        shape = rng.integers(1, 6, int(rng.integers(0, 4)))
        x = draw(rng, shape, "f4")
        sizes = [int(rng.integers(0, n + 1)) for n in shape]
        starts = [int(v) for v in rng.integers(-4, 8, len(shape))]
        # lax.dynamic_slice wraps negative starts before it clamps; the kernel only clamps.
        clamped = [max(s, 0) for s in starts]
        arrays = [np.array(s) for s in starts]
        want = asked(lax.dynamic_slice, x, clamped, sizes)
        same(dynamic_slice(np, x, arrays, sizes), want, exact=True)
        update = draw(rng, sizes, "f4")
        want = asked(lax.dynamic_update_slice, x, update, clamped) if len(shape) else update
        same(dynamic_update_slice(np, x, update, starts), want, exact=True)


@pytest.mark.parametrize("dtype", ALL)
def test_sort(dtype):
    rng = seeded("sort", dtype)
    for trial in range(6):
        shape = rng.integers(0 if trial % 5 == 0 else 1, 9, int(rng.integers(1, 4)))
        axis = int(rng.integers(0, len(shape)))
        keys = int(rng.integers(1, 4))
        x = [with_specials(rng, draw(rng, shape, dtype, small=True)) for _ in range(keys)]
        if np.dtype(dtype).kind == "c":
            holes = [np.where(rng.random(shape) < 0.2, np.nan, 0).astype(dtype) for _ in x]
            x = [np.round(v) + hole for v, hole in zip(x, holes, strict=True)]
        payload = rng.permutation(int(np.prod(shape))).reshape(shape).astype(np.int32)
        want = asked(lax.sort, (*x, payload), dimension=axis, num_keys=keys)
        got = sort(np, (*x, payload), axis, keys, True)
        for g, w in zip(got, want, strict=True):
            same(g, w, exact=True)
        (got,) = sort(np, (x[0],), axis, 1, True)
        want = asked(lax.sort, x[0], dimension=axis)
        same(got, want, exact=True)
        if np.dtype(dtype).kind == "f":
            numbers = ~np.isnan(got)
            assert (np.signbit(got) == np.signbit(want))[numbers].all()


@pytest.mark.parametrize("dtype", REAL[1:])
def test_top_k(dtype):
    rng = seeded("top", dtype)
    for n in (1, 5, 40, 300):
        for k in sorted({0, 1, n // 2, n, min(n, 7)}):
            x = with_specials(rng, draw(rng, (2, 3, n), dtype, small=True))
            values, index = top_k(np, x, k)
            want_values, want_index = asked(lax.top_k, x, k)
            same(values, want_values, exact=True)
            same(index, want_index, exact=True)
    values, index = top_k(np, x, 4, axis=0) if x.shape[0] >= 4 else top_k(np, x, 2, axis=0)
    want = asked(lax.top_k, np.moveaxis(x, 0, -1), 2)[1]
    same(index, np.moveaxis(np.asarray(want), -1, 0), exact=True)


@pytest.mark.parametrize("dtype", REAL)
def test_arg_extrema(dtype):
    rng = seeded("arg", dtype)
    for trial in range(8):
        x = draw(rng, (3, 5, 4), dtype, small=True)
        x = with_specials(rng, x) if trial % 2 else x
        for axis in range(3):
            for kernel, f, index in (argmax, lax.argmax, "int32"), (argmin, lax.argmin, "uint8"):
                want = asked(f, x, axis, np.dtype(index))
                same(kernel(np, x, axis, np.dtype(index)), want, exact=True)


CUMULATIVE = {
    "sum": lax.cumsum, "prod": lax.cumprod, "max": lax.cummax, "min": lax.cummin,
    "logsumexp": lax.cumlogsumexp,
}  # fmt: skip


@pytest.mark.parametrize("kind", list(CUMULATIVE))
def test_cumulative(kind):
    rng = seeded("cumulative", kind)
    dtypes = NUMBERS if kind != "logsumexp" else NUMBERS[5:]
    shapes = [((7,), 0), ((3, 1, 4), 2), ((2, 300), 1), ((0, 2), 0), ((40, 2), 0)]
    cases = []
    for number, dtype in enumerate(dtypes):
        for shape, axis in shapes:
            x = draw(rng, shape, dtype, small=True)
            if kind in ("max", "min"):
                x = with_specials(rng, x)
            if kind == "prod" and x.dtype.kind not in "iu":
                x = (x / abs(x).astype(x.dtype)).astype(dtype)
            cases.append((x, axis, bool(number % 2)))

    def reference(x, axis, reverse):
        if x.dtype.itemsize == 2:
            return CUMULATIVE[kind](x.astype("f"), axis, reverse).astype(x.dtype)
        return CUMULATIVE[kind](x, axis, reverse)

    answers = compiled(lambda xs: [reference(x, *case[1:]) for x, case in zip(xs, cases)],
                       [x for x, _, _ in cases])
    for (x, axis, reverse), want in zip(cases, answers, strict=True):
        same(cumulative(np, x, axis, kind, reverse), want, scale=20)


def test_cumulative_logsumexp_of_infinities():
    for dtype in ("float32", "float64"):
        x = np.array([-np.inf, -np.inf, 0, 1, np.inf], dtype)
        same(cumulative(np, x, 0, "logsumexp", False), asked(lax.cumlogsumexp, x, 0))
