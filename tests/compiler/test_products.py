"""Products of many vectors as multiplications and sums, for GPUs."""

import ml_dtypes
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.gpu import fibers, host_driver
from tests.gpu.test_programs import program_of
from toile import lax
from toile.compiler.passes.products import multiply_small_vectors, multiply_vectors
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


SMALL = {  # products that a loop nest computes on a CPU, too, and whether it does
    "bi,bj->bij": True,
    "i,j->ij": True,
    "bij,bj->bi": True,
    "bj,bij->bi": True,
    "bi,bi->b": True,
    "abij,abj->abi": True,
    "bi,bij->bj": False,  # sums over columns
    "bij,bjk->bik": False,
    "ij,j->i": False,
}


@pytest.mark.cpu
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("spec", SMALL)
def test_small_products_on_a_cpu(spec, dtype):
    rng = np.random.default_rng(0)
    size = {"a": 3, "b": 70, "i": 40, "j": 7, "k": 5}
    if spec in ("bi,bi->b", "ij,j->i"):
        size["i"] = 8
    operands = [(rng.normal(size=[size[c] for c in part]) * 9).astype(dtype)
                for part in spec.split("->")[0].split(",")]
    with toile.experimental.enable_x64():
        run = lambda *xs: jnp.einsum(spec, *xs)
        program = multiply_small_vectors(optimize(toile.make_jaxpr(run)(*operands).jaxpr))
        stays = any(e.op.name == "dot_general" for e in program.equations)
        assert stays != (SMALL[spec] and dtype != "int32")
        got = np.asarray(toile.jit(lambda *xs: run(*xs) + 1)(*operands))
    want = np.einsum(spec, *(x.astype("f8") for x in operands)) + 1
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6 * np.abs(want).max())


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
