"""Products of a few vectors with a matrix: kernels that read the matrix once, run on the host.

Numbers are small integers, which all dtypes hold and whose sums are exact."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.gpu import fibers
from tests.gpu.test_libraries_gpu import on_device
from tests.gpu.test_narrow_products import DTYPES, dot, lowered, numbers
from toile import lax
from toile.compiler.compilation import compile_program
from toile.compiler.ir.operands import Ref
from toile.compiler.ir.steps import Region
from toile.compiler.pipeline import optimize
from toile.compiler.plan import lower
from toile.compiler.plan.lower import planned
from toile.compiler.verify.contents import PlanError
from toile.kernels.contraction import gpu as contractions
from toile.kernels.contraction import gpu_narrow, gpu_tiles, gpu_vectors
from toile.platforms.gpu.target import TARGET
from toile.primitives.contractions import DotGeneral
from toile.targets.cuda import modules
from toile.targets.cuda.cublas import Gemm, Matrix

on_host = pytest.mark.skipif(not fibers.available(), reason="needs g++")

# labels, shapes of both operands
DOTS = {
    "one vector": ("ab,bc->ac", (1, 512), (512, 320)),
    "without an axis of rows": ("b,bc->c", (300,), (300, 264)),
    "two vectors": ("ab,bc->ac", (2, 513), (513, 264)),
    "four vectors": ("ab,bc->ac", (4, 700), (700, 2056)),
    "a result by columns": ("ab,bc->ca", (3, 259), (259, 280)),
    "the second operand is the vector": ("bc,b->c", (1024, 136), (1024,)),
    "vectors along columns": ("ba,bc->ac", (260, 3), (260, 304)),
    "merged axes": ("abc,bcde->ade", (1, 20, 16), (20, 16, 40, 8)),
    "a long sum": ("ab,bc->ac", (1, 4100), (4100, 72)),
    "a wide strip": ("ab,bc->ac", (1, 130), (130, 8200)),
}

@on_host
@pytest.mark.parametrize(("dtype", "result"), DTYPES, ids=str)
@pytest.mark.parametrize("name", DOTS)
def test_products(name, dtype, result, monkeypatch):
    monkeypatch.setattr(gpu_vectors, "FEWEST_BYTES", 0)
    monkeypatch.setattr(gpu_tiles, "lower_few", lambda *_: False)
    monkeypatch.setattr(gpu_narrow, "launch", lambda *_: None)
    op, x, y, expected = dot(name, dtype, result, DOTS)
    out = np.full(expected.shape, 77, result)
    plan = lowered(op, x, y, out)
    (step,) = plan.steps
    assert step.note.startswith("vector product") and not plan.copies
    assert step.threads == modules.threads_of(step.text)
    plan.run(None)
    np.testing.assert_array_equal(out, expected)


@on_host
def test_views_are_read_in_place(monkeypatch):
    """Slices with aligned rows; nothing beside the result is written."""
    monkeypatch.setattr(gpu_vectors, "FEWEST_BYTES", 0)
    monkeypatch.setattr(gpu_tiles, "lower_few", lambda *_: False)
    monkeypatch.setattr(gpu_narrow, "launch", lambda *_: None)
    whole = numbers((300, 400), "f4")
    x, y = whole[:6:3, :200], whole[100:300, 8:208]
    out = np.full((4, 208), 77, "f4")
    plan = lowered(DotGeneral("ab", "bc", "ac", np.dtype("f4")), x, y, out[1:3, 4:-4])
    assert [s.note for s in plan.steps] == ["vector product float32"]
    plan.run(None)
    np.testing.assert_array_equal(out[1:3, 4:-4], x @ y)
    out[1:3, 4:-4] = 77
    assert (out == 77).all()


def gemm(m=2048, n=1, k=512, type="float32", result="float32", compute="tf32", a=False, b=False,
         **more):
    """C (m, n) = A (m, k) B (k, n), stored by columns; `a` and `b`: which are transposed."""
    place = Ref(object())
    return Gemm(m, n, k, Matrix(place, type, k if a else m, a),
                Matrix(place, type, n if b else k, b), Matrix(place, result, m), compute, **more)


@pytest.mark.parametrize(("call", "taken"), [
    (gemm(), True),
    (gemm(n=4), True),
    (gemm(n=5), False),  # cuBLAS has tiles for more vectors
    (gemm(m=1, n=2048, b=True), True),
    (gemm(m=1, n=2048), False),  # the matrix is contiguous along the sum
    (gemm(a=True), False),
    (gemm(type="bfloat16", result="float32", compute="float32"), True),
    (gemm(compute="float32"), False),  # all bits of float32 were asked for
    (gemm(type="float64", result="float64", compute="float64"), False),
    (gemm(k=100), False),  # short sums
    (gemm(m=40), False),  # a small matrix
    (gemm(m=2050), False),  # rows that are not aligned
    (gemm(m=64, k=1 << 12), True),
    (gemm(m=64, k=1 << 19), False),  # a few blocks would read it all
    (gemm(count=3), False),
    (gemm(beta=1.0), False),
    (gemm(m=1 << 16, k=1 << 16), False),  # offsets beyond 32 bits
])
def test_which_products(call, taken):
    assert (gpu_vectors.launch(call, bool) is not None) == taken


# ---- reads before other kernels have finished
def early_reads(fun, *args):
    """For each vector product of a function, whether its kernel reads the matrix early."""
    made = planned(optimize(toile.make_jaxpr(fun)(*args).jaxpr), TARGET)
    found = [x for s in made.all_steps() if isinstance(s, Region) for x in s.launches
             if x.note.startswith("vector product")]
    for x in found:
        before = x.text.index("  ready();\n") > x.text.index("  fetch(a, ")
        assert before == (x.early is not None)
    return [x.early is not None for x in found]


W, V = (toile.ShapeDtypeStruct(shape, np.dtype("f4")) for shape in ((512, 512), (1, 512)))


def in_scan(w, v):
    return lax.scan(lambda x, _: (jnp.tanh(x @ w), None), v, None, length=3)[0]


def in_while(w, v):
    return lax.while_loop(lambda x: x.sum() < 9, lambda x: jnp.tanh(x @ w), v)


def carried(w, v):
    """The weights change in each iteration."""
    def turn(state, _):
        w, x = state
        return (w + 1, jnp.tanh(x @ w)), None

    return lax.scan(turn, (w, v), None, length=3)[0]


def derived_in_loop(w, v):
    """The weights are computed before the loop, which does not change them."""
    w = jnp.sort(w)
    return lax.scan(lambda x, _: (jnp.tanh(x @ w), None), v, None, length=3)[0]


@pytest.mark.parametrize(("fun", "early"), [
    (lambda w, v: v @ w, True),
    (lambda w, v: jnp.tanh(v @ w) @ w, True),
    (lambda w, v: v @ jnp.sort(w), False),
    (lambda w, v: (v @ w, w + 1), True),  # a donated argument is overwritten after the product
    (lambda w, v: v @ jnp.asarray(np.ones((512, 512), np.float32)), True),
    (in_scan, True), (in_while, True), (carried, False), (derived_in_loop, False),
])
def test_only_arguments_and_constants_are_read_early(fun, early):
    found = early_reads(fun, W, V)
    assert found and set(found) == {early}


def test_the_verifier_refuses_early_reads_of_computed_arrays(monkeypatch):
    monkeypatch.setattr(lower.Plan, "never_written", lambda plan, x: True)
    program = toile.make_jaxpr(lambda w, v: v @ jnp.sort(w))(W, V).jaxpr
    monkeypatch.setenv("TOILE_DEBUG", "verify")
    with pytest.raises(PlanError, match="before it is known to be"):
        compile_program(program, TARGET)


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "result"), DTYPES, ids=str)
@pytest.mark.parametrize("name", DOTS)
def test_products_on_a_gpu(name, dtype, result, monkeypatch):
    monkeypatch.setattr(gpu_vectors, "FEWEST_BYTES", 0)
    monkeypatch.setattr(gpu_tiles, "lower_few", lambda *_: False)
    monkeypatch.setattr(gpu_narrow, "launch", lambda *_: None)
    op, x, y, expected = dot(name, dtype, result, DOTS)
    found, plan = on_device(contractions.by_library, op, [x, y], np.zeros_like(expected))
    np.testing.assert_array_equal(found, expected)
    assert [s.note.split()[0] for s in plan.steps] == ["vector"]


@pytest.mark.gpu
@pytest.mark.parametrize("fun", [in_scan, in_while, carried, derived_in_loop])
def test_early_reads_on_a_gpu(fun):
    """Graphs give the same bits as kernels one by one, in many calls."""
    random = np.random.default_rng(0)
    w, v = (toile.device_put((random.normal(size=x.shape) / 16).astype("f4")) for x in (W, V))
    step = toile.jit(fun)
    first = step(w, v)
    for _ in range(20):
        again = step(w, v)
        for x, y in zip(toile.tree.leaves(first), toile.tree.leaves(again), strict=True):
            np.testing.assert_array_equal(np.asarray(x), np.asarray(y))
