"""Long sums of products with few rows: which ones are divided, and that their values stay."""

import ml_dtypes
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import lax
from toile.compiler.pipeline import optimize
from toile.engine.program import evaluate
from toile.kernels.contraction.gpu_long_sums import divide_long_sums

BFLOAT16 = ml_dtypes.bfloat16


def normal(*shape):
    return np.random.default_rng(len(shape)).normal(size=shape).astype(BFLOAT16)


def program_of(f, *xs):
    return optimize(toile.make_jaxpr(f)(*xs).jaxpr)


def products(program):
    return [e for e in program.equations if e.op.kernel_family == "contraction"]


ROW, SQUARE = normal(1, 2048), normal(2048, 64)
DIVIDED = {
    "a row": (lambda x, w, c: x @ w + c, ROW, SQUARE, normal(1, 64)),
    "the matrix is first": (
        lambda x, w, c: lax.dot_general(w, x, (((0,), (1,)), ((), ()))) + c,
        normal(4, 2048), SQUARE, normal(64, 4)),
    "two summed axes": (
        lambda x, w, c: jnp.einsum("bthd,hdn->btn", x, w) + c,
        normal(2, 2, 32, 64), normal(32, 64, 40), normal(2, 2, 40)),
    "a reshaped result": (
        lambda x, w, c: (x @ w).reshape(2, 32) * c, ROW, SQUARE, normal(2, 32)),
    "a vector": (lambda x, w, c: x @ w + c, normal(2048), SQUARE, normal(64)),
}
WHOLE = {
    "a result": (lambda x, w, c: x @ w, ROW, SQUARE, normal(1)),
    "two readers": (lambda x, w, c: (lambda y: jnp.sin(y) + y[:, ::-1])(x @ w), ROW, SQUARE,
                    normal(1)),
    "a row is read": (lambda x, w, c: jnp.sort(x @ w), ROW, SQUARE, normal(1)),
    "many rows": (lambda x, w, c: x @ w + c, normal(5, 2048), SQUARE, normal(5, 64)),
    "a short sum": (lambda x, w, c: x @ w + c, ROW[:, :1024], SQUARE[:1024], normal(1, 64)),
    "an odd sum": (lambda x, w, c: x @ w + c, normal(1, 2049), normal(2049, 64), normal(1, 64)),
    "many columns": (lambda x, w, c: x @ w + c, ROW, normal(2048, 2112), normal(1, 2112)),
    "another order": (lambda x, w, c: x @ w.T + c, ROW, normal(64, 2048), normal(1, 64)),
    "a batch": (lambda x, w, c: x @ w + c, normal(2, 1, 2048), normal(2, 2048, 64),
                normal(2, 1, 64)),
    "wider results": (
        lambda x, w, c: jnp.matmul(x, w, preferred_element_type=jnp.float32) + c, ROW, SQUARE,
        normal(1, 64)),
}


@pytest.mark.parametrize("name", DIVIDED)
def test_long_sums_are_divided(name):
    f, *xs = DIVIDED[name]
    program = program_of(f, *xs)
    divided = divide_long_sums(program)
    assert len(products(program)) == 1 and len(products(divided)) == 2
    assert all(e.outs[0].aval.dtype == np.float32 for e in products(divided))
    found = np.asarray(evaluate(divided, xs)[0], "f8")
    wanted = f(*(jnp.asarray(x, jnp.float32) for x in xs))
    np.testing.assert_allclose(found, np.asarray(wanted), rtol=2**-7, atol=0.1)


@pytest.mark.parametrize("name", WHOLE)
def test_other_sums_are_not(name):
    f, *xs = WHOLE[name]
    program = program_of(f, *xs)
    assert divide_long_sums(program) is program or len(products(divide_long_sums(program))) == 1


@pytest.mark.gpu
@pytest.mark.parametrize("name", DIVIDED)
def test_divided_sums_on_a_gpu(name):
    f, *xs = DIVIDED[name]
    found = toile.jit(f)(*(toile.device_put(x, toile.devices("gpu")[0]) for x in xs))
    wanted = f(*(jnp.asarray(x, jnp.float32) for x in xs))
    np.testing.assert_allclose(np.asarray(found, "f8"), np.asarray(wanted), rtol=2**-6, atol=0.1)
