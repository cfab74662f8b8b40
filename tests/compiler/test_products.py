"""Products of many vectors as multiplications and sums, for GPUs."""

import ml_dtypes
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.gpu import fibers, host_driver
from tests.gpu.test_programs import program_of
from toile import lax
from toile.compiler.passes.products import multiply_small_matrices, multiply_vectors
from toile.compiler.pipeline import optimize

RANDOM = np.random.default_rng(0)
SIZES = {"b": 3, "h": 2, "i": 4, "j": 5, "k": 7, "d": 16, "o": 1}
VECTORS = ("bijd,bjd->bid", "bid,bjd->bijd", "bhd,bkhd->bhk", "bhk,bkhd->bhd", "i,j->ij",
           "bd,bd->b", "bohd,bkhd->bhok", "bi,bik->bk", "bid,bjd->jdbi", "kbd,bd->bk",
           "bd,bd->bd", "bdj,bd->jb")  # fmt: skip
OTHERS = ("ik,kj->ij", "bik,bkj->bij", "ik,k->i", "k,k->", "bihd,bjhd->bhij")


def operands(spec, dtype="float32"):
    """Numbers for the operands of an einsum."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    return [(RANDOM.standard_normal([SIZES[c] for c in part]) * 3).astype(kind)
            for part in spec.split("->")[0].split(",")]


def einsum(spec, out=None):
    """A function of two operands."""
    return lambda x, y: jnp.einsum(spec, x, y, preferred_element_type=out)


def products(program):
    return [e for e in program.equations if e.op.name == "dot_general"]


@pytest.mark.parametrize("spec", VECTORS)
def test_vectors(spec):
    program, _ = program_of(einsum(spec), operands(spec))
    assert not products(multiply_vectors(program))


@pytest.mark.parametrize("spec", OTHERS)
def test_matrices_stay(spec):
    """And so do products of one matrix, which a library computes well."""
    program, _ = program_of(einsum(spec), operands(spec))
    assert multiply_vectors(program) is program and products(program)


@pytest.mark.skipif(not fibers.available(), reason="needs g++")
@pytest.mark.parametrize("dtype, out", [
    ("float32", None), ("float64", None), ("bfloat16", None), ("bfloat16", "float32"),
    ("float16", None), ("int8", "int32"), ("int32", None),
])  # fmt: skip
@pytest.mark.parametrize("spec", VECTORS)
def test_values(spec, dtype, out, monkeypatch):
    with toile.enable_x64(dtype == "float64"):
        x, y = operands(spec, dtype)
        fun = einsum(spec, out)
        program, leaves = program_of(fun, [x, y])
        wanted = np.asarray(fun(jnp.asarray(x), jnp.asarray(y)))
        with host_driver.host_gpu(monkeypatch) as (_, device):
            executable = host_driver.compiled(program, device)
            (found,) = host_driver.run(executable, [a._data for a in leaves], device)
    assert found.dtype == wanted.dtype
    exact = np.einsum(spec, x.astype("f8"), y.astype("f8"))
    loose = {"bfloat16": 2e-2, "float16": 2e-3}.get(found.dtype.name, 1e-5)
    np.testing.assert_allclose(found.astype("f8"), exact, rtol=loose, atol=loose)


def test_sums_have_the_precision_of_float32():
    """Products of bfloat16 are rounded once, at the end."""
    x = np.full((2, 4096, 8), 1.0, ml_dtypes.bfloat16)
    program, _ = program_of(lambda x: jnp.einsum("bkd,bkd->bd", x, x), [x])
    after = multiply_vectors(program)
    sums = [e for e in after.equations if e.op.name == "reduce_sum"]
    assert sums and all(e.ins[0].aval.dtype == np.float32 for e in sums)


def test_complex_numbers_stay():
    x = np.ones((3, 4), np.complex64)
    program, _ = program_of(lambda x: lax.dot_general(x, x, (((1,), (1,)), ((0,), (0,)))), [x])
    assert multiply_vectors(program) is program


# Products, the extents of their axes, and the dtypes in which a loop nest computes them on a CPU.
FLOATS, WIDE, REAL, ALL = (frozenset(some.split()) for some in (
    "float32 float64", "float32 float64 int32", "float32 float64 int32 bfloat16 float16",
    "float32 float64 int32 bfloat16 float16 complex64"))
NONE = frozenset()
SMALL = [
    ("bi,bj->bij", "b70 i40 j7", FLOATS),
    ("i,j->ij", "i40 j7", FLOATS),
    *((f"{x},{y}->{out}", f"b50 i{i} j{j} k{k}", REAL if k > 4 else ALL)
      for x in ("bik", "bki", "ikb") for y in ("bkj", "bjk") for out in ("bij", "bji")
      for i, k, j in ((2, 2, 2), (3, 3, 3), (4, 4, 4), (4, 8, 3))),
    ("ikb,kjb->ijb", "b50 i3 j4 k2", ALL),
    ("abik,abkj->abij", "a5 b4 i3 j3 k3", ALL),
    ("bikl,bklj->bij", "b50 i3 j3 k2 l2", ALL),
    ("bik,bkj->bij", "b50 i5 j5 k3", NONE),
    ("bik,bkj->bij", "b50 i3 j3 k9", NONE),
    ("bik,bkj->bij", "b4 i2 j2 k2", NONE),  # loops with so few may run in registers
    ("bik,bkj->bij", "b20 i3 j40 k3", WIDE | {"complex64"}),
    ("bik,bkj->bij", "b20 i4 j40 k4", NONE),
    ("bik,bkj->bij", "b20 i40 j3 k3", NONE),
    ("bik,bjk->bij", "b20 i3 j40 k3", NONE),
    ("ik,kj->ij", "i3 j200 k3", {"float32", "int32", "complex64"}),
    ("ik,kj->ij", "i200 j3 k3", REAL),
    ("ik,jk->ij", "i200 j3 k3", NONE),
    ("ki,kj->ij", "i200 j3 k3", NONE),
    ("bik,kj->bij", "b50 i3 j3 k3", REAL),
    ("qbk,bkj->qbj", "b20 j2 k2 q30", WIDE),
    ("qbk,bkj->qbj", "b20 j4 k4 q30", NONE),
    ("bij,bj->bi", "b70 i40 j7", ALL),
    ("bj,bij->bi", "b70 i40 j7", ALL),
    ("bi,bi->b", "b70 i8", ALL),
    ("bi,bi->b", "b70 i9", NONE),
    ("kb,kb->b", "b70 k8", ALL),
    ("abij,abj->abi", "a3 b70 i40 j7", ALL),
    ("qbk,bk->qb", "b20 k3 q30", ALL),
    ("qbk,bk->qb", "b20 k8 q30", FLOATS),
    ("bi,bij->bj", "b70 i4 j40", ALL),
    ("bi,bij->bj", "b70 i40 j7", NONE),  # long sums
    ("bi,bij->bj", "b70 i8 j40", NONE),  # sums over columns
    ("ij,j->i", "i70 j8", NONE),
]


def whole_numbers(spec, sizes, dtype):
    """Small whole numbers for the operands of an einsum, and the result."""
    rng = np.random.default_rng(0)
    size = {part[0]: int(part[1:]) for part in sizes.split()}
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    made = [rng.integers(-3, 4, [size[c] for c in part]) for part in spec.split("->")[0].split(",")]
    if kind.kind == "c":
        made = [x + 1j * x[::-1] for x in made]
    return [x.astype(kind) for x in made], np.einsum(spec, *made)


def in_a_nest(run, operands):
    program = multiply_small_matrices(optimize(toile.make_jaxpr(run)(*operands).jaxpr))
    return not products(program)


@pytest.mark.cpu
@pytest.mark.parametrize("dtype", sorted(ALL))
@pytest.mark.parametrize("spec, sizes, nests", SMALL)
def test_small_products_on_a_cpu(spec, sizes, nests, dtype):
    operands, want = whole_numbers(spec, sizes, dtype)
    with toile.experimental.enable_x64():
        run = lambda *xs: jnp.einsum(spec, *xs)
        assert in_a_nest(run, operands) == (dtype in nests)
        got = np.asarray(toile.jit(lambda *xs: run(*xs) + 1)(*operands))
    assert got.dtype == operands[0].dtype
    np.testing.assert_array_equal(got, (want + 1).astype(got.dtype))


@pytest.mark.cpu
@pytest.mark.parametrize("i, k, j", [(2, 2, 2), (3, 3, 3), (4, 4, 4), (3, 3, 1), (1, 3, 3)])
def test_derivatives_of_small_products(i, k, j):
    """Tangents and cotangents of such products are such products."""
    rng = np.random.default_rng(0)
    x, dx, y, dy, ct = (rng.integers(-3, 4, shape).astype("f4") for shape in (
        (90, i, k), (90, i, k), (90, k, j), (90, k, j), (90, i, j)))
    product = toile.vmap(jnp.matmul)
    forward = lambda x, y, dx, dy: toile.jvp(product, (x, y), (dx, dy))[1]
    backward = lambda x, y, ct: toile.vjp(product, x, y)[1](ct)
    assert in_a_nest(forward, (x, y, dx, dy)) and in_a_nest(backward, (x, y, ct))
    np.testing.assert_array_equal(toile.jit(forward)(x, y, dx, dy), dx @ y + x @ dy)
    for got, want in zip(toile.jit(backward)(x, y, ct), (ct @ y.swapaxes(1, 2),
                                                         x.swapaxes(1, 2) @ ct), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.cpu
def test_a_chain_of_small_products():
    """Covariances R S S R^T of many Gaussians, and a product that is also a result."""
    rng = np.random.default_rng(0)
    r, s = (rng.integers(-3, 4, (150, 3, 3)).astype("f4") for _ in range(2))

    def run(r, s):
        m = r @ s
        return m, m @ m.swapaxes(1, 2), m.transpose(2, 0, 1)

    assert in_a_nest(run, (r, s))
    m = r @ s
    for got, want in zip(toile.jit(run)(r, s), (m, m @ m.swapaxes(1, 2), m.transpose(2, 0, 1)),
                         strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.cpu
@pytest.mark.parametrize("columns", [3, 4])
def test_costly_functions_of_short_rows_stay_apart(columns):
    """They would not be vectorized in the nest of the product."""
    x, y = np.ones((100, 3, 3), "f4"), np.ones((100, 3, columns), "f4")
    assert in_a_nest(lambda x, y: jnp.maximum(x @ y, 0), (x, y))
    run = lambda x, y: jnp.tanh(x @ y * 0.5)
    assert in_a_nest(run, (x, y)) == (columns == 4)
    np.testing.assert_allclose(toile.jit(run)(x, y), np.tanh(x @ y * 0.5), rtol=1e-6)


@pytest.mark.cpu
def test_mixed_types_of_small_products():
    """Sums of products of bfloat16 have the precision of the result."""
    x = np.full((100, 3, 3), 1 + 2**-7, ml_dtypes.bfloat16)
    run = einsum("bik,bkj->bij", "float32")
    assert in_a_nest(run, (x, x))
    np.testing.assert_array_equal(toile.jit(run)(x, x), np.full((100, 3, 3), 3 * (1 + 2**-7) ** 2))


@pytest.mark.cpu
@pytest.mark.parametrize("spec", ["bi,bij->bj", "bij,bi->bj", "i,ij->j", "bik,bikj->bj"])
@pytest.mark.parametrize("columns", [5, 16, 21, 64, 149, 600])
def test_a_number_times_a_row(spec, columns):
    """Sums of adjacent columns, of which vectors of several lengths are held in registers."""
    rng = np.random.default_rng(0)
    size = {"b": 6, "i": 9, "k": 3, "j": columns}
    for dtype in ("float32", "float64", "bfloat16", "int32"):
        x, y = ((rng.normal(size=[size[c] for c in part]) * 3).astype(dtype)
                for part in spec.split("->")[0].split(","))
        with toile.experimental.enable_x64():
            got = toile.jit(lambda x, y: jnp.einsum(spec, x, y))(x, y)
            parts = toile.jit(lambda x, y: jnp.einsum(spec, x[1:], y[1:]))(x, y) if (
                spec[0] == "b") else got
        want = np.einsum(spec, x.astype("f8"), y.astype("f8"))
        tolerance = 2e-2 if dtype == "bfloat16" else 1e-5
        for found, wanted in ((got, want), (parts, want[1:] if spec[0] == "b" else want)):
            np.testing.assert_allclose(np.asarray(found, "f8"), wanted, rtol=tolerance,
                                       atol=tolerance * 30)
