"""Padding and gathers inside loop nests: values on both devices, and what is stored."""

import ml_dtypes
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.gpu import fibers, host_driver
from tests.gpu.test_programs import program_of
from toile import lax
from toile.compiler.compilation import compile_program
from toile.compiler.ir.steps import Region
from toile.compiler.pipeline import optimize
from toile.compiler.plan.fuse import fuse
from toile.compiler.plan.lower import planned
from toile.kernels.nest.cpu import can_fuse
from toile.platforms.cpu.target import Target as CpuTarget
from toile.platforms.gpu.target import TARGET
from toile.scipy.ndimage import map_coordinates

RANDOM = np.random.default_rng(0)
ROWS, MANY = 23, 60
LARGE = np.ones((1 << 15, 16), np.float32)


def table(dtype, rows=ROWS, columns=16):
    """Numbers of a dtype."""
    x = RANDOM.standard_normal((rows, columns)) * 4
    if dtype.startswith("complex"):
        x = x + 1j * RANDOM.standard_normal((rows, columns))
    return x.astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))


IDS = {
    "inside": RANDOM.integers(0, ROWS, MANY).astype(np.int32),
    "also outside": RANDOM.integers(-ROWS - 9, 2 * ROWS, MANY).astype(np.int32),
    "small": RANDOM.integers(-20, 40, MANY).astype(np.int8),
    "unsigned": RANDOM.integers(0, 2 * ROWS, MANY).astype(np.uint32),
    "two axes": RANDOM.integers(-5, 30, (6, 10)).astype(np.int16),
}
MODES = ("fill", "clip", "promise_in_bounds")


def taken(x, ids, mode):
    return x.at[ids].get(mode=mode, wrap_negative_indices=False)


def gathers(mode):
    """Programs of rows of x at ids, and y."""
    return {
        "a map": lambda x, ids, y: taken(x, ids, mode) * 2 + 1,
        "with another": lambda x, ids, y: jnp.maximum(taken(x, ids, mode), y.reshape(
            *ids.shape, 16)) - 1,
        "sums of rows": lambda x, ids, y: (taken(x, ids, mode) * 2).sum(-1),
        "sums over rows": lambda x, ids, y: (taken(x, ids, mode) * 2).sum(0),
        "all": lambda x, ids, y: (taken(x, ids, mode) * 2).sum(),
        "normalized": lambda x, ids, y: (lambda t: t - t.max(-1, keepdims=True))(
            taken(x, ids, mode)),
        "twice": lambda x, ids, y: taken(x, ids, mode) * taken(y, ids, mode) + 1,
        "transposed": lambda x, ids, y: (taken(x, ids, mode) + 1).T + 2,
        "of a view": lambda x, ids, y: taken(x[::2], ids, mode) * 3,
        "of a computed array": lambda x, ids, y: taken(x * 2, ids, mode) + taken(x * 2, ids, mode),
        "computed ids": lambda x, ids, y: taken(x, ids // 2 + 1, mode) * 2,
        "of columns": lambda x, ids, y: taken(x.T, jnp.minimum(ids, 9), mode) * 2,
    }


@pytest.fixture(params=["cpu", pytest.param("gpu", marks=pytest.mark.skipif(
    not fibers.available(), reason="needs g++"))])
def run(request, monkeypatch):
    """A compiled function's results as NumPy arrays, by native code or by CUDA code on the host."""
    if request.param == "cpu":
        return lambda fun, args: [np.asarray(x) for x in toile.tree.leaves(toile.jit(fun)(*args))]

    def on_gpu(fun, args):
        program, leaves = program_of(fun, args)
        with host_driver.host_gpu(monkeypatch) as (_, device):
            executable = host_driver.compiled(program, device)
            host_driver.run(executable, [a._data for a in leaves], device)
            return host_driver.run(executable, [a._data for a in leaves], device)

    return on_gpu


def check(run, fun, args):
    """Compare with the operations one by one."""
    wanted = [np.asarray(x) for x in toile.tree.leaves(fun(*map(jnp.asarray, args)))]
    for a, b in zip(run(fun, args), wanted, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        narrow = b.dtype.itemsize < 4 and b.dtype.kind not in "iub"
        wide = "c16" if b.dtype.kind == "c" else "f8"
        np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=2e-2 if narrow else 1e-5,
                                   atol=1e-1 if narrow else 1e-4)


@pytest.mark.parametrize("ids", IDS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", gathers("clip"))
def test_gathers(name, mode, ids, run):
    if mode == "promise_in_bounds" and ids != "inside":
        pytest.skip("the promise would be broken")
    check(run, gathers(mode)[name], (table("float32"), IDS[ids], table("float32", MANY)))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "int8", "int32", "uint16",
                                   "complex64", "complex128"])
@pytest.mark.parametrize("mode", ["fill", "clip"])
@pytest.mark.parametrize("name", ["a map", "with another", "twice"])
def test_dtypes(name, mode, dtype, run):
    with toile.enable_x64(dtype in ("float64", "complex128")):
        check(run, gathers(mode)[name], (table(dtype), IDS["also outside"], table(dtype, MANY)))


def of_elements(mode):
    """Programs of elements of x, which has one axis, at ids."""
    return {
        "a map": lambda x, ids: taken(x, ids, mode) * 2 + 1,
        "at computed places": lambda x, ids: taken(x, ids // 2 + 1, mode) - taken(x, ids, mode),
        "of elements": lambda x, ids: taken(x, taken(ids.ravel(), ids, "clip"), mode) * 3,
        "sums": lambda x, ids: (taken(x, ids, mode) * 2).sum(-1),
        "normalized": lambda x, ids: (lambda t: t - t.max(-1, keepdims=True))(taken(x, ids, mode)),
        "of a computed array": lambda x, ids: taken(x * 2, ids, mode) + 1,
    }


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool"])
@pytest.mark.parametrize("ids", IDS)
@pytest.mark.parametrize("mode", ["fill", "clip"])
def test_elements(mode, ids, dtype, run):
    for name, fun in of_elements(mode).items():
        if dtype != "bool" or name == "a map":
            check(run, fun, (table(dtype)[:, 0].copy(), IDS[ids]))


def test_interpolation_is_one_kernel():
    """Elements between which a kernel interpolates are not stored."""
    x, y = table("float32", 20), table("float32", 300)
    for fun in (lambda x, y: map_coordinates(x, [y + 8, y * 2 + 7], 1),
                lambda x, y: map_coordinates(x, [y + 8, y * 2 + 7], 1, "mirror").sum(-1)):
        (kernel,) = toile.explain(fun)(x, y).kernels
        assert kernel.operations.count("gather") == 4 and kernel.kind in ("map", "row")


CONFIGS = {
    "both ends": [(2, 3, 0), (0, 0, 0)], "below": [(4, 0, 0), (0, 0, 0)],
    "between": [(0, 0, 1), (0, 0, 0)], "by threes": [(1, 2, 2), (0, 0, 0)],
    "by fives": [(0, 3, 4), (0, 0, 0)], "cut and padded": [(-3, 4, 0), (0, 0, 0)],
    "cut between": [(-2, -1, 1), (0, 0, 0)], "cut at the start of a gap": [(-1, 5, 3), (0, 0, 0)],
    "by sevens, cut": [(-9, 8, 6), (0, 0, 0)],
}
PADS = {
    "a map": lambda p, x: p * 2 + 1,
    "added": lambda p, x: p + lax.pad(x, x.dtype.type(0), [(1, 0, 0), (0, 0, 0)])[:1] + p,
    "sums of rows": lambda p, x: (p + 1).sum(1),
    "sums over rows": lambda p, x: (p + 1).sum(0),
    "read twice": lambda p, x: (jnp.sin(p), (p * 3).sum(0), p @ x[:16]),
    "transposed": lambda p, x: (p + 1).T * 2,
    "reshaped": lambda p, x: (p * 2).reshape(-1),
    "of a view": lambda p, x: p - 1,
}


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("name", PADS)
def test_pads(name, config, run):
    check(run, padded(name, config), (table("float32", 24),))


@pytest.mark.parametrize("config", ["both ends", "by threes", "cut between"])
@pytest.mark.parametrize("name", PADS)
def test_complex_pads(name, config, run):
    check(run, padded(name, config), (table("complex64", 24),))


def padded(name, config):
    """A function of an array that it pads."""
    def fun(x):
        value, y = x.dtype.type(0.5), x[::2] if name == "of a view" else x
        return PADS[name](lax.pad(y, value, CONFIGS[config]), x)

    return fun


@pytest.mark.parametrize("axis", [0, 1])
def test_two_axes(axis, run):
    x = RANDOM.standard_normal((5, 6, 16)).astype(np.float32)
    check(run, lambda x: lax.pad(x, jnp.float32(2), [(1, 2, 1), (2, 0, 2), (0, 0, 0)]) * 2, (x,))
    check(run, lambda x: jnp.tanh(jnp.concatenate([x, x], axis)) + jnp.flip(x, axis).sum(), (x,))


@pytest.mark.parametrize("length", [2, 7, 32, 37])
def test_associative_scans(length, run):
    a = RANDOM.uniform(0.5, 1, (3, length, 16)).astype(np.float32)
    b = RANDOM.standard_normal((3, length, 16)).astype(np.float32)

    def scanned(a, b):
        return lax.associative_scan(
            lambda x, y: (x[0] * y[0], y[0] * x[1] + y[1]), (a, b), axis=1)[1]

    check(run, scanned, (a, b))
    check(run, lambda a, b: toile.grad(lambda a, b: (scanned(a, b) ** 2).sum(), (0, 1))(a, b),
          (a, b))


def notes(fun, args):
    """What the kernels of a GPU plan do."""
    program, _ = program_of(fun, args)
    steps = compile_program(program, TARGET).all_steps()
    return [x.note for s in steps if isinstance(s, Region) for x in s.launches]


def test_what_is_stored():
    """A gather or a pad that only one nest reads is not; one that a product reads is."""
    x, ids, y = table("float32"), IDS["inside"], table("float32", MANY)
    assert notes(lambda x, ids, y: jnp.tanh(jnp.take(x, ids, 0, mode="clip") * y),
                 (x, ids, y)) == ["map"]
    assert notes(lambda x: jnp.tanh(jnp.pad(x, ((1, 2), (0, 0)))), (x,)) == ["map"]
    assert "gather" in notes(lambda x, ids: x[ids], (x, ids))
    assert "gather" in notes(lambda x, ids: x[ids] @ x.T, (x, ids))
    padded = lambda x: jnp.pad(x, ((1, 2), (0, 0)))
    assert notes(padded, (x,)) == ["map"]  # a small array needs only one kernel
    assert set(notes(padded, (LARGE,))) == {"pad"}


def test_what_is_padded_is_computed_in_its_place(run):
    """Only the margins have kernels of their own; with gaps inside, the array is copied."""
    x, w = table("float32", 24), table("float32", 20, 8)
    beside, gaps = [(0, 0, 0), (1, 3, 0)], [(0, 0, 1), (1, 3, 0)]
    for config, kernels in (beside, 2), (gaps, 1):
        def fun(x, w, config=config):
            made = jnp.tanh(x) * 2
            return lax.pad(made, jnp.float32(0.5), config) @ w, made.sum()

        check(run, fun, (x, w))
        assert notes(fun, (LARGE, w)).count("pad") == kernels


def test_gathers_are_read_again_instead_of_kept():
    """Two nests that read a gathered array: each gathers."""
    x, ids = table("float32", 4, 1024), RANDOM.integers(0, 4, 400).astype(np.int32)

    def fun(x, ids, w):
        rows = jnp.take(x, ids, axis=0, mode="clip")
        first = jnp.sort(rows * 2, axis=0)
        return first, rows + first.sum()

    found = notes(fun, (x, ids, table("float32", 4)))
    assert "gather" not in found


@pytest.mark.skipif(not fibers.available(), reason="needs g++")
@pytest.mark.parametrize("columns, read", [(2, False), (4, True), (6, True)])
def test_short_rows_are_read_by_gpu_kernels(columns, read):
    """Rows of at least 16 bytes: the weights of the heads of an attention to neighbors."""
    def fun(x, ids):
        return jnp.exp(jnp.take(x, ids, axis=0, mode="clip") - x.max(0)) * 2

    args = table("float32", columns=columns), IDS["inside"]
    assert ("gather" not in notes(fun, args)) == read
    (got,) = host_driver.results_of(fun, args)
    np.testing.assert_allclose(got, fun(*map(jnp.asarray, args)), 1e-5)


def test_an_operand_computed_in_the_same_nest_is_stored_first():
    """A nest reads other elements of it than the current one."""
    program, _ = program_of(lambda x, ids: jnp.tanh(x)[ids] * 2 + jnp.tanh(x)[:1].sum(),
                            (table("float32"), IDS["inside"]))
    fused = fuse(program, can_fuse)
    for e in program.equations:
        if e.op.picks and e.op.picks([a.aval for a in e.ins], e.outs[0].aval):
            base = fused.bases.get(e.ins[0], e.ins[0])
            assert fused.group_of.get(base) is not fused.group_of[e.outs[0]]
            assert base in fused.stored


@pytest.mark.skipif(not fibers.available(), reason="needs g++")
@pytest.mark.parametrize("name, fun", [
    ("gather", lambda x, ids: jnp.take(x, ids, axis=0, mode="clip") * 2),
    ("pad", lambda x, ids: lax.pad(x, jnp.float32(0), [(2, -2, 0), (0, 0, 0)]) * 2),
    ("one row", lambda x, ids: jnp.take(x, ids[:1], axis=0, mode="clip") * 2 + x[:1]),
])  # fmt: skip
def test_results_do_not_overwrite_what_they_pick(name, fun, monkeypatch):
    """Elements are read after others were written."""
    x = table("float32", 1 if name == "one row" else MANY)
    program, _ = program_of(fun, (x, IDS["inside"]))
    with host_driver.host_gpu(monkeypatch) as (_, device):
        assert host_driver.compiled(program, device).overwritten([0]) == {}


def along(axis, mode):
    return lambda x, i: jnp.take_along_axis(x, i, axis, mode=mode)


ELEMENTS = {
    **{f"rows, {mode}": along(1, mode) for mode in ("clip", "fill")},
    "columns": along(0, "clip"),
    "a mapped row": toile.vmap(lambda x, i: x[i]),
    "a mapped row, fill": toile.vmap(lambda x, i: x.at[i].get(mode="fill", fill_value=7)),
    "a mapped row, promised": toile.vmap(lambda x, i: x.at[i % 10].get(mode="promise_in_bounds")),
    "a mapped element": toile.vmap(lambda x, i: lax.dynamic_index_in_dim(x, i[0], 0, False)),
    "a window of one element": lambda x, i: toile.vmap(
        lambda i: lax.dynamic_slice(x, (i[0], i[1]), (1, 1)))(i),
    "three axes": lambda x, i: toile.vmap(toile.vmap(lambda x, i: x[i]))(
        x.reshape(4, 3, 10), i.reshape(4, 3, 10)[:, :, :3]),
}
PLACES = np.random.default_rng(5).integers(-14, 14, (12, 10)).astype("int32")


@pytest.mark.parametrize("name", ELEMENTS)
def test_one_kernel_computes_places_and_reads_elements(name):
    """Elements of rows that are mapped are read at computed places, too."""
    fun = ELEMENTS[name]
    x = np.random.default_rng(6).normal(size=(12, 10)).astype("f4")
    gradient = toile.grad(lambda x, i: (jnp.sin(jnp.nan_to_num(fun(x, i))) ** 2).sum())
    for f in (fun, lambda x, i: fun(x, i) * 2, gradient):
        got = toile.jit(f)(x, PLACES)
        np.testing.assert_allclose(got, f(jnp.asarray(x), jnp.asarray(PLACES)), 2e-6, 1e-7)
    program = optimize(toile.make_jaxpr(fun)(x, PLACES).jaxpr)
    for target in (CpuTarget(1), TARGET):
        assert sum(len(step.launches) for step in planned(program, target).steps) == 1


def test_searches_in_many_rows_are_few_kernels():
    rows, values = (np.sort(np.random.default_rng(i).normal(size=(8, 300)), 1).astype("f4")
                    for i in (0, 1))
    want = np.stack([np.searchsorted(a, v) for a, v in zip(rows, values, strict=True)])
    search = toile.vmap(jnp.searchsorted)
    np.testing.assert_array_equal(toile.jit(search)(rows, values), want)
    plan = planned(optimize(toile.make_jaxpr(search)(rows, values).jaxpr), TARGET)
    assert sum(len(step.launches) for step in plan.steps) <= 2
