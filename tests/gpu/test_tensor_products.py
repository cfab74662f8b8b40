"""Products and convolutions on tensor cores: their kernels run on the host, and on a GPU.

Numbers are small integers, which TF32 holds and whose sums are exact."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.gpu import fibers
from tests.gpu.fake_cudnn import FakeEngine
from tests.gpu.fake_libraries import FakePlan
from tests.gpu.test_convolution import CASES, arrays, operations, reversed_as_a_view
from tests.gpu.test_libraries_gpu import on_device
from toile.compiler.pipeline import optimize
from toile.kernels.contraction import gpu as contractions
from toile.kernels.contraction import gpu_tensor_cores as tensor_products
from toile.kernels.convolution import gpu as convolution
from toile.kernels.convolution import gpu_tensor_cores as tensor_convolutions
from toile.primitives.contractions import DotGeneral
from toile.primitives.conv import ConvGeneralDilated
from toile.targets.cuda import cublas, cudnn
from toile.targets.cuda import modules as kernels

on_host = pytest.mark.skipif(not fibers.available(), reason="needs g++")
Precision = toile.lax.Precision

# name: labels, shapes of both operands, which of their axes are reversed, how many kernels
DOTS = {
    "along the sum": ("ab,cb->ac", (70, 200), (80, 200), 1),
    "across it": ("ba,bc->ac", (100, 72), (100, 40), 1),
    "both": ("ab,bc->ac", (128, 96), (96, 80), 1),
    "a result that lies otherwise": ("ba,bc->ca", (100, 72), (100, 41), 1),
    "axes that do not merge": ("abc,cbd->ad", (5, 6, 7), (7, 6, 9), 1),
    "several of each": ("abcd,dbe->cae", (3, 4, 20, 12), (12, 4, 8), 1),
    "few rows": ("ab,bc->ac", (9, 36), (36, 32), 1),
    "thirty rows": ("ab,bc->ac", (30, 36), (36, 12), 1),
    "many rows, few columns": ("ab,bc->ac", (130, 12), (12, 10), 1),
    "a long sum": ("ab,bc->ac", (20, 1100), (1100, 24), 2),
    "a long sum into columns": ("ab,bc->ca", (20, 1030), (1030, 24), 2),
    "vectors": ("a,b->ab", (33,), (40,), 1),
    "one number": ("a,a->", (300,), (300,), 1),
}


def numbers(shape, seed=0):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype("f4")


def dot(name):
    labels, left, right, _ = DOTS[name]
    operands, out = labels.split("->")
    x, y = numbers(left), numbers(right, 1)
    expected = np.einsum(labels, x.astype("f8"), y.astype("f8")).astype("f4")
    return DotGeneral(*operands.split(","), out, np.dtype("f4")), x, y, expected


def on_fibers(op, x, y, out):
    """The result of a lowering by kernels alone, and the plan."""
    plan = FakePlan()
    given = [plan.operand(a) for a in (x, y)]
    lower = tensor_products.lower_dot if isinstance(op, DotGeneral) else None
    if lower is None:
        with cudnn.use(None):
            assert convolution.by_library(op, given, [plan.operand(out)], plan)
    else:
        assert lower(op, *given, plan.operand(out), plan)
    plan.run(None)
    return plan


@on_host
@pytest.mark.parametrize("name", DOTS)
def test_products(name):
    op, x, y, expected = dot(name)
    out = np.full(expected.shape, 77, "f4")
    plan = on_fibers(op, x, y, out)
    np.testing.assert_array_equal(out, expected)
    assert len(plan.steps) == DOTS[name][3] and not plan.copies
    assert all(s.threads == kernels.threads_of(s.text) for s in plan.steps)


@on_host
def test_views():
    whole = numbers((40, 60))
    for x, y in ((whole[3:35, 5:38], whole[:33, 7:30]), (whole[::-1, ::2], whole[29::-1, ::-2]),
                 (np.broadcast_to(whole[0], (9, 60)), whole.T[:, 1:])):
        out = np.full((x.shape[0] + 2, y.shape[1] + 3), 77, "f4")
        inner = out[1:-1, 2:-1]
        on_fibers(DotGeneral("ab", "bc", "ac", np.dtype("f4")), x, y, inner)
        np.testing.assert_array_equal(inner, x @ y)
        out[1:-1, 2:-1] = 77
        assert (out == 77).all()  # nothing else was written


HOST_CASES = ["3x3 stride 2", "1 channel", "dilated", "odd margins", "cropped", "NCHW",
              "1-d causal", "3-d", "many positions, dilated"]


@on_host
@pytest.mark.parametrize("case", HOST_CASES)
def test_convolutions(case):
    x, w, function = arrays(case, "float32")
    for i, (op, a, b) in enumerate(operations(function, x, w)):
        a = np.clip(a, -3, 3)
        b = reversed_as_a_view(op, a, b) if i == 2 else b
        expected = op.eager(np, a.astype("f8"), b.astype("f8"))
        out = np.full(expected.shape, 77, "f4")
        if i == 2 and any(n > 1 for n in op.lhs_dilation):
            continue  # a derivative of strides: cuDNN's
        plan = on_fibers(op, a, b, out)
        np.testing.assert_array_equal(out, expected)
        assert not plan.copies and all(s.note.endswith(("(tf32)", "sum of parts"))
                                       for s in plan.steps)


def taken(op, x, y):
    """Whether our kernels do a convolution, where there is cuDNN as well."""
    plan = FakePlan()
    out = np.zeros(op.out_shape(x.shape, y.shape), "f4")
    ins = [plan.operand(a) for a in (x, y)]
    with cudnn.use(FakeEngine()):
        convolution.by_library(op, ins, [plan.operand(out)], plan)
    return not any(isinstance(s, (cudnn.GraphCall, cublas.Gemm)) for s in plan.steps)


@pytest.mark.parametrize("precision", [None, (Precision.HIGH,) * 2, (Precision.HIGHEST,) * 2])
def test_only_where_tf32_is_allowed(precision, monkeypatch):
    monkeypatch.setattr(tensor_convolutions, "FEWEST_TILES", 1)
    x, w, function = arrays("3x3", "float32")
    [(op, a, b), *_] = operations(function, x, w)
    op = ConvGeneralDilated(**{**op.__dict__, "precision": precision})
    highest = precision is not None and precision[0] is Precision.HIGHEST
    assert taken(op, a, b) != highest
    for alone in (True, False):
        plan = FakePlan()
        plan.without_libraries = alone
        m = [plan.operand(numbers((32, 32))) for _ in range(3)]
        op = DotGeneral("ab", "bc", "ac", np.dtype("f4"), precision)
        contractions.by_library(op, m[:2], m[2:], plan)
        assert bool(plan.calls) == (highest or not alone)


def test_what_the_libraries_do(monkeypatch):
    plan = FakePlan()
    dot = lambda labels, x, y, out: tensor_products.lower_dot(
        DotGeneral(*labels, np.dtype("f4")), *map(plan.operand, (x, y, out)), plan)
    batch = numbers((2, 8, 8))
    assert not dot(("abc", "acd", "abd"), batch, batch, batch)
    assert not dot(("ab", "c", "ac"), batch[0], batch[0, 0], batch[0])  # a sum of one operand
    assert not dot(("ab", "bc", "ac"), batch[0, :, :0], batch[0, :0], batch[0])
    monkeypatch.setattr(tensor_products, "MOST_TERMS", 511)
    assert not dot(("ab", "bc", "ac"), *batch, batch[0]) and not plan.steps
    x, w, function = arrays("3x3", "float32")
    found = operations(function, x, w)
    assert [taken(*o) for o in found] == [False, True, False]  # tiles are too few
    monkeypatch.setattr(tensor_convolutions, "FEWEST_TILES", 1)
    assert [taken(*o) for o in found] == [True, True, True]
    monkeypatch.setattr(tensor_convolutions, "MOST_TERMS", 1000)
    assert [taken(*o) for o in found] == [False, True, False]
    monkeypatch.setattr(tensor_convolutions, "MOST_IN_KERNELS", 1000)
    assert [taken(*o) for o in found] == [False, False, False]
    x, w, function = arrays("groups", "float32")
    assert not taken(*operations(function, x, w)[0])


CONV = lambda x, w: toile.lax.conv_general_dilated(
    x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
HALF = lambda a: a.astype("bfloat16")
IMAGES, KERNELS = (8, 6, 6, 4), (3, 3, 4, 8)
ALONE = {
    "a convolution": (lambda x, w, a: CONV(x, w), True),
    "with products": (lambda x, w, a: (CONV(x, w), a @ a.T), True),
    "its derivatives": (toile.grad(lambda x, w, a: jnp.sum(CONV(x, w) ** 2), (0, 1)), True),
    "products only": (lambda x, w, a: a @ a, False),
    "nothing of it": (lambda x, w, a: a + 1, False),
    "a precise product": (
        lambda x, w, a: (CONV(x, w), jnp.matmul(a, a, precision="highest")), False),
    "half precision": (lambda x, w, a: (CONV(x, w), HALF(a) @ HALF(a)), False),
    "a large product": (lambda x, w, a: (CONV(x, w), jnp.outer(a, a) @ jnp.outer(a, a)), False),
    "groups": (lambda x, w, a: toile.lax.conv_general_dilated(
        x, w[:, :, :2], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=2), False),
    "strides backwards": (toile.grad(lambda x, w, a: jnp.sum(toile.lax.conv_general_dilated(
        x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) ** 2)), False),
}


@pytest.mark.parametrize("name", ALONE)
def test_programs_that_need_no_library(name):
    function, alone = ALONE[name]
    given = [toile.ShapeDtypeStruct(s, "float32") for s in (IMAGES, KERNELS, (40, 40))]
    program = optimize(toile.make_jaxpr(function)(*given).jaxpr)
    assert tensor_convolutions.without_libraries(program) == alone


def ours(case, op, i):
    """Whether a convolution in TF32 needs no cuDNN: one without strides backwards, unless it is a
    derivative in kernels (the second operation), and without narrow groups."""
    groups = max(op.feature_group_count, op.batch_group_count)
    separate = groups == 1 or case.startswith(("wide groups", "signals"))
    return separate and (i == 1 or all(n == 1 for n in op.lhs_dilation))


@pytest.mark.parametrize("case", CASES)
def test_what_is_declined_without_cudnn(case):
    x, w, function = arrays(case, "float32")
    for i, (op, a, b) in enumerate(operations(function, x, w)):
        b = reversed_as_a_view(op, a, b) if i == 2 else b
        plan, out = FakePlan(), np.zeros(op.out_shape(a.shape, b.shape), "f4")
        with cudnn.use(None):
            ins = [plan.operand(v) for v in (a, b)]
            ok = convolution.by_library(op, ins, [plan.operand(out)], plan)
        assert ok == ours(case, op, i) == bool(plan.steps)


def test_processors_without_tf32_have_the_libraries(monkeypatch):
    x, w, function = arrays("3x3", "float32")
    found = operations(function, x, w)
    monkeypatch.setattr(tensor_convolutions, "FEWEST_TILES", 1)
    monkeypatch.setattr(cublas, "current_device", lambda: 0)
    for capability, ours in ((75, False), (80, True)):
        monkeypatch.setattr(tensor_products, "_capability", lambda number, c=capability: c)
        assert [taken(*o) for o in found] == [ours] * 3
        program = toile.make_jaxpr(CONV)(*(toile.ShapeDtypeStruct(s, "float32")
                                           for s in (IMAGES, KERNELS))).jaxpr
        assert tensor_convolutions.without_libraries(optimize(program)) == ours


def test_steps_are_numbers_of_32_bits():
    rows = np.lib.stride_tricks.as_strided(np.zeros(1, "f4"), (8, 8), (1 << 28, 4))
    plan = FakePlan()
    given = [plan.operand(a) for a in (rows, numbers((8, 8)), numbers((8, 8)))]
    op = DotGeneral("ab", "bc", "ac", np.dtype("f4"))
    assert tensor_products.lower_dot(op, *given, plan)
    given[0] = given[0]._replace(strides=(1 << 27, 1))
    assert not tensor_products.lower_dot(op, *given, plan)


def test_parts_fill_a_gpu():
    cut = tensor_products._parts
    assert [cut(*c) for c in ((1, 1023), (1, 1024), (1, 10**6), (8, 3136), (66, 10**6), (67, 10**6))
            ] == [1, 4, 264, 12, 4, 1]


# ---- on a GPU
@pytest.mark.gpu
@pytest.mark.parametrize("name", DOTS)
def test_products_on_a_gpu(name):
    op, x, y, expected = dot(name)
    lower = lambda op, ins, outs, plan: tensor_products.lower_dot(op, *ins, *outs, plan)
    for _ in range(2):
        found, _ = on_device(lower, op, [x, y], np.full(expected.shape, 7, "f4"))
        np.testing.assert_array_equal(found, expected)


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_convolutions_on_a_gpu(case):
    x, w, function = arrays(case, "float32")
    for i, (op, a, b) in enumerate(operations(function, x, w)):
        a = np.clip(a, -3, 3)
        b = reversed_as_a_view(op, a, b) if i == 2 else b
        expected = op.eager(np, a.astype("f8"), b.astype("f8")).astype("f4")
        with cudnn.use(None):
            given = np.full(expected.shape, 7, "f4")
            found, plan = on_device(convolution.by_library, op, [a, b], given)
        assert (found is not None) == ours(case, op, i)
        if found is not None:
            np.testing.assert_array_equal(found, expected)


@pytest.mark.gpu
def test_numbers_that_are_not_finite():
    x, y = numbers((64, 40)), numbers((40, 48), 1)
    x[3, 5], x[7, 1], x[9, 2] = np.nan, np.inf, -np.inf
    x.view(np.uint32)[11, 4] = 0x7FFFFFFF
    y[1], y[2] = 2, 1
    lower = lambda op, ins, outs, plan: tensor_products.lower_dot(op, *ins, *outs, plan)
    found, _ = on_device(lower, DotGeneral("ab", "bc", "ac", np.dtype("f4")), [x, y],
                         np.zeros((64, 48), "f4"))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, x @ y)


@pytest.mark.gpu
def test_rounding():
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=s).astype("f4") for s in ((200, 700), (700, 90)))
    lower = lambda op, ins, outs, plan: tensor_products.lower_dot(op, *ins, *outs, plan)
    found, _ = on_device(lower, DotGeneral("ab", "bc", "ac", np.dtype("f4")), [x, y],
                         np.zeros((200, 90), "f4"))
    error = found - x.astype("f8") @ y.astype("f8")
    assert abs(error).max() < 0.1 and abs(error.mean()) < 1e-3  # rounded, not cut off
