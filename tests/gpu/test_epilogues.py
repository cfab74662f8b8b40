"""Products that do what follows them: what the pass takes, what it leaves, and the values."""

import ml_dtypes
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.gpu import host_driver
from tests.gpu.fake_cublaslt import FakeCublasLt, fake_lt
from tests.gpu.fake_libraries import FakePlan, fake_blas
from tests.gpu.test_programs import normal, program_of
from toile import lax
from toile import linen as nn
from toile.compiler.pipeline import optimize
from toile.compiler.plan.lower import planned
from toile.kernels.contraction import (
    gpu as contractions,
)
from toile.kernels.contraction import (
    gpu_activations as activations,
)
from toile.kernels.contraction import (
    gpu_epilogues as epilogues,
)
from toile.kernels.fused_product import gpu as fused_products
from toile.kernels.fused_product.gpu import FusedProduct
from toile.platforms.gpu.steps import CallStep
from toile.platforms.gpu.target import TARGET
from toile.primitives.contractions import DotGeneral
from toile.targets.cuda import cublas, cublaslt

bfloat16 = np.dtype(ml_dtypes.bfloat16)
e4m3, e5m2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(epilogues, "LEAST_BYTES", 0)
    monkeypatch.setattr(epilogues, "LEAST_SUM_BYTES", 0)
    monkeypatch.setattr(epilogues, "MOVE", 0)


def bf16(*shape, seed=0):
    return normal(*shape, seed=seed).astype(bfloat16)


def steps(fun, *args, refuse=lambda description: False):
    """The steps of a plan: notes of library calls, and "kernel" for the rest."""
    program, _ = program_of(fun, args)
    with cublaslt.use(fake_lt(refuse=refuse)):
        plan = planned(optimize(program, choose=TARGET.choose), TARGET)
    return [s.call.note if isinstance(s, CallStep) else "kernel" for s in plan.steps]


# ---- what is taken
def dense(x, w, b):
    return x @ w + b


def block(x, w, b, v, c):
    """A transformer's dense layers around a gelu, on a sum that is normalized."""
    h = x - x.mean(-1, keepdims=True)
    return x + (nn.gelu(h @ w + b) @ v + c)


def two_blocks(x, *weights):
    return block(block(x, *weights), *weights)


def loss(fun):
    return toile.grad(lambda *xs: (fun(*xs).astype(jnp.float32) ** 2).mean(),
                      tuple(range(5)))


X, W, B, V, C = (bf16(16, 32), bf16(32, 64, seed=1), bf16(64, seed=2), bf16(64, 32, seed=3),
                 bf16(32, seed=4))
WEIGHTS = (W, B, V, C)
GELU, SUM = "cuBLASLt bfloat16 + gelu + bias", "cuBLASLt bfloat16 + added + bias"
KEPT, SLOPE = "cuBLASLt bfloat16 + gelu + aux + bias", "cuBLASLt bfloat16 + dgelu"
PLAIN = "cuBLAS bfloat16"

TAKEN = {
    "bias": (dense, (X, W, B), ["cuBLASLt bfloat16 + bias"]),
    "bias of several axes": (
        lambda x, w, b: jnp.einsum("ab,bcd->acd", x, w) + b,
        (X, bf16(32, 4, 16), bf16(4, 16)), ["cuBLASLt bfloat16 + bias"]),
    "relu": (lambda x, w, b: nn.relu(x @ w + b), (X, W, B), ["cuBLASLt bfloat16 + relu + bias"]),
    "sum": (lambda x, w, y: y + x @ w, (X, W, bf16(16, 64)), ["cuBLASLt bfloat16 + added"]),
    "sum, then bias": (lambda x, w, y, b: (y + x @ w) + b, (X, W, bf16(16, 64), B), [SUM]),
    "block": (block, (X, *WEIGHTS), ["kernel", GELU, SUM]),
    "two blocks": (two_blocks, (X, *WEIGHTS), ["kernel", GELU, SUM] * 2),
    "gelu and what goes in": (
        lambda x, w: (lambda h: (nn.gelu(h), h))(x @ w), (X, W),
        ["cuBLASLt bfloat16 + gelu + aux"]),
    "gelu of float32 in between": (
        lambda x, w, b: nn.gelu((x @ w + b).astype(jnp.float32)).astype(jnp.bfloat16),
        (X, W, B), [GELU]),
}  # fmt: skip


F32 = "cuBLASLt float32 (tf32) + added"


def step_of(p, x, y):
    return p - 0.5 * (x.T @ y)


def steps_of_tasks(p, x, y):
    """Two steps of gradient descent for each of several tasks."""
    for _ in range(2):
        p = p - 0.5 * toile.vmap(lambda p, x, y: x.T @ (x @ p - y))(p, x, y)
    return p


P32, Q32 = normal(32, 64, seed=6), normal(4, 32, 64, seed=6)
FX, FY = normal(16, 32, seed=7), normal(16, 64, seed=8)
TX, TY = normal(4, 16, 32, seed=7), normal(4, 16, 64, seed=8)
PLAIN32 = "cuBLAS float32 (tf32)"
MULTIPLES = {
    "step": (step_of, (P32, FX, FY), [F32]),
    "step of each task": (steps_of_tasks, (Q32, TX, TY), [F32] * 4),
    "less an array": (lambda p, x, y: -(x.T @ y) * 3 - p, (P32, FX, FY), [F32]),
    "sum of products": (lambda x, y: (x.T @ y, x.T @ (y * y) + x.T @ y), (FX, FY),
                        [PLAIN32, "kernel", F32]),
    "sum for loops": (lambda x, y: jnp.tanh(x.T @ y + x.T @ (y * y) + (x * x).T @ y).sum(-1),
                      (FX, FY), ["kernel", PLAIN32, F32, F32, "kernel"]),
    "by a number that is computed": (lambda p, x, y: p - p[0, 0] * (x.T @ y), (P32, FX, FY),
                                     [PLAIN32, "kernel"]),
    "read by loops alone": (lambda p, x, y: (p - 0.5 * (x.T @ y)).sum(-1), (P32, FX, FY),
                            [PLAIN32, "kernel"]),
    "of a row": (lambda p, x, y: p[0] - 0.5 * (x.T @ y), (P32, FX, FY), [PLAIN32, "kernel"]),
}


@pytest.mark.parametrize("name", MULTIPLES)
def test_multiples(name):
    fun, args, expected = MULTIPLES[name]
    assert steps(fun, *args) == expected


def computed(fun, args, monkeypatch):
    """The results of a function on the host, and the descriptions of the products that ran."""
    program, leaves = program_of(fun, args)
    with host_driver.host_gpu(monkeypatch) as (driver, device):
        handle = fake_lt(driver)
        with cublaslt.use(handle):
            executable = host_driver.compiled(program, device)
            for _ in range(3):  # step by step, captured, and as a graph
                got = host_driver.run(executable, [x._data for x in leaves], device)
    return got, handle.functions.ran


@pytest.mark.parametrize("name", ["step", "step of each task", "less an array", "sum of products",
                                  "sum for loops"])
def test_values_of_multiples(name, monkeypatch):
    fun, args, _ = MULTIPLES[name]
    got, ran = computed(fun, args, monkeypatch)
    assert any(d["beta"] for d in ran)
    for a, wanted in zip(got, toile.tree.leaves(fun(*map(jnp.asarray, args))), strict=True):
        np.testing.assert_allclose(a, wanted, rtol=1e-4, atol=1e-4)


def test_a_step_overwrites_what_it_changes():
    """The new parameters can have the memory of the old ones, but not of the operands."""
    program, _ = program_of(step_of, (P32, FX, FY))
    with cublaslt.use(fake_lt()):
        plan = planned(optimize(program, choose=TARGET.choose), TARGET)
    may = plan.may_overwrite()
    written = plan.outputs[0].buffer
    assert [may(v, written) for v in program.inputs] == [True, False, False]


@pytest.mark.parametrize("name", TAKEN)
def test_taken(name):
    fun, args, expected = TAKEN[name]
    assert steps(fun, *args) == expected


def test_derivatives():
    notes = [note for note in steps(loss(two_blocks), X, *WEIGHTS) if note != "kernel"]
    ahead = [KEPT, SUM, KEPT, PLAIN]  # the last sum is only read by the loss
    assert notes == ahead + [PLAIN, SLOPE, PLAIN, PLAIN, PLAIN, SLOPE, PLAIN, PLAIN]


def parts_of_gelu(x, w):
    h = x @ w
    t = jnp.tanh(0.79788 * (h + 0.044715 * h**3))
    return 0.5 * h * (1 + t), t


LEFT = {
    "float32": (dense, (X.astype("f4"), W.astype("f4"), B.astype("f4"))),
    "float16": (dense, (X.astype("f2"), W.astype("f2"), B.astype("f2"))),
    "read by loops alone": (lambda x, w, b: (x @ w + b).sum(-1), (X, W, B)),
    "the product is a result": (lambda x, w, b: (x @ w, x @ w + b), (X, W, B)),
    "sizes that are no multiples of 8": (dense, (X[:12], W, B)),
    "a bias over rows": (lambda x, w, b: x @ w + b[:, None], (X, W, B[:16])),
    "a batch of products": (lambda x, w, b: jnp.einsum("bik,bkj->bij", x, w) + b,
                            (bf16(2, 16, 32), bf16(2, 32, 64), B)),
    "a sum of products": (lambda x, w: (x @ w + x @ (w * 2)).sum(-1), (X, W)),
    "parts of a sum, as in an LSTM": (
        lambda x, w, y: jnp.tanh((h := y + x @ w)[:, :32]) * h[:, 32:], (X, W, bf16(16, 64))),
    "gelu by erf": (lambda x, w: nn.gelu(x @ w, approximate=False), (X, W)),
    "another activation": (lambda x, w: nn.silu(x @ w), (X, W)),
    "parts of gelu": (parts_of_gelu, (X, W)),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_left(name):
    fun, args = LEFT[name]
    assert not any("Lt" in note for note in steps(fun, *args))


def test_without_excess_precision_each_step_rounds():
    toile.config.update("jax_allow_excess_precision", False)
    try:
        assert steps(dense, X, W, B) == [PLAIN, "kernel"]
    finally:
        toile.config.update("jax_allow_excess_precision", True)


def test_what_the_library_lacks_is_left():
    lacks = lambda what: "gelu" in what["epilogue"]
    assert steps(block, X, *WEIGHTS, refuse=lacks) == ["kernel", PLAIN, "kernel", SUM]
    only_slopes = lambda what: what["epilogue"] == "dgelu"
    assert KEPT not in steps(loss(block), X, *WEIGHTS, refuse=only_slopes)
    assert steps(block, X, *WEIGHTS, refuse=lambda what: True)[1] == PLAIN


# ---- values
def pulled_back(x, w, b, v, c, ct):
    y, back = toile.vjp(lambda x: x + (nn.gelu(x @ w + b) @ v + c), x)
    return y, back(ct)[0]


def test_values(monkeypatch):
    x, w, b, v, c, ct = args = (X, *WEIGHTS, bf16(16, 32, seed=5))
    got, ran = computed(pulled_back, args, monkeypatch)
    assert {d["epilogue"] for d in ran} == {"gelu_aux_bias", "bias", "dgelu", ""}
    x, w, b, v, c, ct = (a.astype("f4") for a in args)
    h = x @ w + b
    y = x + (fused_products.gelu(h) @ v + c)
    dx = ct + (ct @ v.T * fused_products.gelu_slope(h)) @ w.T
    for a, wanted in zip(got, (y, dx), strict=True):
        np.testing.assert_allclose(a.astype("f4"), wanted, rtol=2e-2,
                                   atol=1e-2 * abs(wanted).max())


VIEWS = {
    "as it lies": lambda x: x,
    "transposed": lambda x: np.ascontiguousarray(x.T).T,
    "every other row": lambda x: np.repeat(x, 2, 0)[::2],
    "columns that begin anywhere": lambda x: np.concatenate([x[:, :1], x], 1)[:, 1:],
    "every other column": lambda x: np.repeat(x, 2, 1)[:, ::2],
}


@pytest.mark.parametrize("left", VIEWS)
@pytest.mark.parametrize("right", ["as it lies", "transposed", "columns that begin anywhere"])
def test_operands_of_any_layout(left, right):
    plan = FakePlan()
    x, y = VIEWS[left](X), VIEWS[right](W)
    added, bias = VIEWS[left](bf16(16, 64, seed=5)), B
    op = FusedProduct(DotGeneral("ab", "bc", "ac"), "gelu", ("bias", "added"), True)
    outs = [np.zeros((16, 64), bfloat16) for _ in range(2)]
    ins = [plan.operand(a) for a in (x, y, bias, added)]
    handle = fake_lt()
    with cublaslt.use(handle):
        assert fused_products.lower(op, ins, [plan.operand(o) for o in outs], plan)
        plan.run(handle)
    for got, wanted in zip(outs, op.eager(np, x, y, bias, added), strict=True):
        np.testing.assert_allclose(got.astype("f4"), wanted.astype("f4"), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("labels, bias", [("ab,cb->ca", 16), ("ba,bc->ac", 64), ("ab,cb->ac", 64)])
def test_the_bias_is_along_the_last_axes(labels, bias):
    operands, out = labels.split("->")
    lhs, rhs = operands.split(",")
    size = {"a": 16, "b": 32, "c": 64}
    x, y = (bf16(*(size[c] for c in s), seed=i) for i, s in enumerate((lhs, rhs)))
    op = FusedProduct(DotGeneral(lhs, rhs, out), "relu", ("bias",))
    b = bf16(bias, seed=3)
    found = np.zeros([size[c] for c in out], bfloat16)
    plan, handle = FakePlan(), fake_lt()
    with cublaslt.use(handle):
        ins = [plan.operand(a) for a in (x, y, b)]
        assert fused_products.lower(op, ins, [plan.operand(found)], plan)
        plan.run(handle)
    assert plan.copies == 0
    total = np.einsum(labels, x.astype("f4"), y.astype("f4")) + b.astype("f4")
    np.testing.assert_allclose(found.astype("f4"), np.maximum(total, 0), rtol=1e-2, atol=1e-2)


# ---- which function it is
def test_gelu_is_known_by_its_values():
    x = activations.POINTS
    rounded = lambda x: 0.5 * x * (1 + np.tanh(0.796875 * (x + 0.044677734375 * x**3)))
    assert activations.is_gelu(rounded(x)) and activations.is_gelu(fused_products.gelu(x))
    for other in (x, np.maximum(x, 0), x / (1 + np.exp(-1.702 * x)), x / (1 + np.exp(-x)),
                  2 * rounded(x), rounded(x) + 1e-2, np.minimum(rounded(x), 200)):  # fmt: skip
        assert not activations.is_gelu(other)


# ---- float8
def scaled(x, y, s, t, dtype=jnp.bfloat16):
    """As linen's float8 layers do it: converted, scaled, multiplied."""
    x, y = (a.astype(dtype) * b.astype(dtype) for a, b in ((x, s), (y, t)))
    return x @ y


def direct(x, y, s):
    """The product of float8 operands, scaled after."""
    dims = (((1,), (0,)), ((), ()))
    return lax.dot_general(x, y, dims, preferred_element_type=jnp.bfloat16) * s.astype(jnp.bfloat16)


def mixed(x, y):
    return lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=jnp.bfloat16)


P, Q = X.astype(e4m3), W.astype(e4m3)
S, T = np.float32(0.25), np.float32(3)
F8 = "cuBLASLt float8_e4m3fn -> bfloat16"


@pytest.mark.parametrize("fun, args, expected", [
    (scaled, (P, Q, S, T), f"{F8} + scaled"), (direct, (P, Q, S), f"{F8} + scaled"),
    (lambda *xs: direct(*xs[:3]) + xs[3], (P, Q, S, B), f"{F8} + scaled + bias"),
    (mixed, (P, Q), F8), (mixed, (X.astype(e5m2), Q), "cuBLASLt float8_e5m2 -> bfloat16"),
])  # fmt: skip
def test_float8(fun, args, expected, monkeypatch):
    program, leaves = program_of(fun, args)
    handle = fake_lt()
    with cublaslt.use(handle):
        plan = planned(optimize(program, choose=TARGET.choose), TARGET)
    calls = [s.call for s in plan.steps if isinstance(s, CallStep)]
    assert [c.note for c in calls] == [expected]
    assert all(contractions.tn(c) for c in calls)


@pytest.mark.parametrize("x, y", [
    (X.astype(e5m2), W.astype(e5m2)), (P[:8], Q), (P[:, :24], Q[:24]),
])  # fmt: skip
def test_float8_that_hopper_lacks(x, y):
    assert not any("float8" in note for note in steps(mixed, x, y))
    assert not any("float8" in note for note in steps(mixed, P, Q, refuse=lambda what: True))


@pytest.mark.parametrize("labels, pays", [
    ("ab,bc->ac", True), ("ab,cb->ac", True),  # a dense layer, and the gradient of its input
    ("ba,bc->ac", False),  # of its weights
])  # fmt: skip
def test_float8_pays_where_little_is_transposed(labels, pays, monkeypatch):
    monkeypatch.undo()
    operands, out = labels.split("->")
    lhs, rhs = operands.split(",")
    size = {"a": 16384, "b": 1024, "c": 4096} if pays else {"a": 1024, "b": 16384, "c": 4096}
    shapes = [tuple(size[c] for c in s) for s in (lhs, rhs)]
    assert epilogues._float8_pays(DotGeneral(lhs, rhs, out), *shapes) == pays


def test_float8_values():
    op = FusedProduct(DotGeneral("ab", "bc", "ac", bfloat16), "", ("scale", "scale", "bias"))
    args = P, Q, np.asarray(S), np.asarray(T), B
    found = np.zeros((16, 64), bfloat16)
    plan, handle = FakePlan(), fake_lt()
    with cublaslt.use(handle):
        ins = [plan.operand(a) for a in args]
        assert fused_products.lower(op, ins, [plan.operand(found)], plan)
        plan.run(handle)
    assert plan.copies == 1  # of the weights, which do not lie along the sum
    wanted = P.astype("f4") @ Q.astype("f4") * (S * T) + B.astype("f4")
    np.testing.assert_allclose(found.astype("f4"), wanted, rtol=1e-2, atol=1e-2)
    [again] = op.eager(np, *args)
    np.testing.assert_allclose(again.astype("f4"), wanted, rtol=1e-2, atol=1e-2)


def test_the_handle_shares_the_workspace_of_cublas(monkeypatch):
    monkeypatch.setattr(cublas, "_handles", {})
    monkeypatch.setattr(cublas, "functions", lambda: fake_blas().functions)
    monkeypatch.setattr(cublas, "allocate", lambda nbytes: (object(), 1 << 20))
    monkeypatch.setattr(cublas, "current_device", lambda: 0)
    monkeypatch.setattr(cublas, "present", lambda: True)
    monkeypatch.setattr(cublaslt.libraries, "load", lambda name: None)
    monkeypatch.setattr(cublaslt.libraries, "Functions", lambda *given: FakeCublasLt())
    found = cublaslt.engine()
    assert found is cublaslt.lt() and found.room(False) == (1 << 20, 32 << 20)
    assert found.room(True) == (1 << 20, 8 << 20)
