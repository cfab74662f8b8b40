"""Convolutions and their gradients as calls of cuDNN, without a GPU."""

import ml_dtypes
import numpy as np
import pytest

import toile
from tests.gpu import fibers
from tests.gpu.fake_cudnn import FakeEngine
from tests.gpu.fake_libraries import FakePlan, fake_blas, launched
from toile import lax
from toile.compiler.ir.operands import Ref
from toile.kernels.convolution import gpu as convolution
from toile.kernels.copy import gpu_relayout as relayout
from toile.primitives.conv import ConvGeneralDilated
from toile.targets.cuda import cublas, cudnn

pytestmark = pytest.mark.usefixtures("by_libraries")

bfloat16 = np.dtype(ml_dtypes.bfloat16)
NHWC, NCHW = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")
NWC, NDHWC = ("NWC", "WIO", "NWC"), ("NDHWC", "DHWIO", "NDHWC")
MIXED = ("HWCN", "IOHW", "CNHW")

# name: layout, image shape (n, c, spatial), features, taps, and what conv_general_dilated takes
CASES = {
    "3x3": (NHWC, (2, 8, 6, 7), 16, (3, 3), {"padding": "SAME"}),
    "3x3 valid": (NHWC, (2, 8, 6, 7), 16, (3, 3), {"padding": "VALID"}),
    "3x3 stride 2": (NHWC, (2, 8, 7, 7), 16, (3, 3), {"window_strides": (2, 2)}),
    "3x3 stride 2, even": (NHWC, (2, 8, 8, 8), 8, (3, 3), {"window_strides": (2, 2)}),
    "3x3 stride 2, margins of 1": (NHWC, (2, 8, 8, 8), 8, (3, 3), {
        "window_strides": (2, 2), "padding": ((1, 1), (1, 1))}),
    "3x3 stride 2, 6 features": (NHWC, (6, 4, 4, 4), 6, (3, 3), {"window_strides": (2, 2)}),
    "7x7 stride 2 of 3 channels": (NHWC, (2, 3, 16, 16), 8, (7, 7), {
        "window_strides": (2, 2), "padding": ((3, 3), (3, 3))}),
    "5x3 stride 3, 1": (NHWC, (1, 8, 11, 9), 8, (5, 3), {"window_strides": (3, 1)}),
    "1 channel": (NHWC, (3, 1, 8, 8), 8, (3, 3), {}),
    "1x1": (NHWC, (2, 8, 5, 5), 16, (1, 1), {}),
    "1x1 stride 2": (NHWC, (2, 8, 6, 6), 16, (1, 1), {"window_strides": (2, 2)}),
    "dilated": (NHWC, (2, 8, 9, 9), 8, (3, 3), {"rhs_dilation": (2, 3)}),
    "dilated, strided": (NHWC, (2, 8, 11, 9), 8, (3, 3), {
        "rhs_dilation": (2, 1), "window_strides": (2, 3)}),
    "odd margins": (NHWC, (2, 8, 6, 6), 8, (3, 3), {"padding": ((0, 2), (1, 0))}),
    "wide margins": (NHWC, (2, 8, 4, 4), 8, (2, 2), {"padding": ((3, 3), (4, 1))}),
    "cropped": (NHWC, (2, 8, 9, 9), 8, (3, 3), {"padding": ((-1, 0), (0, -2))}),
    "groups": (NHWC, (2, 8, 6, 6), 12, (3, 3), {"feature_group_count": 4}),
    "wide groups": (NHWC, (2, 24, 6, 7), 48, (3, 3), {"feature_group_count": 3}),
    "wide groups, stride 2": (NHWC, (2, 16, 6, 7), 16, (3, 3), {
        "feature_group_count": 2, "window_strides": (2, 2)}),
    "wide groups, transposed": (NCHW, (2, 16, 5, 5), 16, (3, 3), {
        "feature_group_count": 2, "lhs_dilation": (2, 2), "padding": ((1, 2), (2, 1))}),
    "signals": (("NCW", "OIW", "NCW"), (1, 3, 4100), 3, (5,), {"feature_group_count": 3}),
    "one signal": (("NCW", "OIW", "NCW"), (1, 1, 100), 1, (7,), {"padding": ((3, 3),)}),
    "depthwise": (NHWC, (2, 8, 6, 6), 8, (3, 3), {"feature_group_count": 8}),
    "depthwise, 2 each, stride 2": (NHWC, (2, 4, 6, 6), 8, (3, 3), {
        "feature_group_count": 4, "window_strides": (2, 2)}),
    "batch groups": (NHWC, (4, 8, 6, 6), 8, (3, 3), {"batch_group_count": 2}),
    "transposed": (NHWC, (2, 8, 5, 5), 8, (3, 3), {
        "lhs_dilation": (2, 2), "padding": ((1, 2), (2, 1))}),
    "transposed, margins": (NHWC, (2, 8, 5, 5), 8, (4, 4), {
        "lhs_dilation": (2, 2), "padding": ((2, 2), (2, 2))}),
    "transposed, larger": (NHWC, (2, 8, 7, 6), 12, (3, 3), {
        "lhs_dilation": (2, 2), "padding": ((1, 2), (1, 2))}),
    "transposed by 3, 1": (NHWC, (2, 8, 5, 6), 4, (5, 2), {
        "lhs_dilation": (3, 1), "padding": ((4, 2), (0, 1))}),
    "transposed, cropped": (NHWC, (2, 8, 6, 6), 8, (3, 3), {
        "lhs_dilation": (2, 2), "padding": ((-1, 2), (0, -1))}),
    "transposed, 1-d": (NWC, (3, 8, 9), 4, (4,), {"lhs_dilation": (2,), "padding": ((2, 2),)}),
    "transposed, NCHW": (NCHW, (2, 4, 6, 7), 8, (3, 3), {
        "lhs_dilation": (2, 2), "padding": ((1, 2), (1, 2))}),
    "NCHW": (NCHW, (2, 8, 6, 7), 4, (3, 3), {"window_strides": (2, 1)}),
    "NCHW groups": (NCHW, (2, 8, 6, 7), 4, (3, 3), {"feature_group_count": 2}),
    "mixed layouts": (MIXED, (2, 8, 6, 7), 4, (3, 2), {}),
    "1-d": (NWC, (2, 8, 9), 4, (3,), {"window_strides": (2,)}),
    "1-d causal": (NWC, (2, 8, 9), 4, (3,), {"padding": ((4, 0),), "rhs_dilation": (2,)}),
    "3-d": (NDHWC, (2, 8, 4, 5, 4), 4, (3, 2, 3), {}),
    "3-d stride 2": (NDHWC, (1, 4, 5, 5, 4), 8, (3, 3, 3), {"window_strides": (2, 2, 2)}),
    "no space": (("NC", "OI", "NC"), (3, 8), 4, (), {}),
    "small map": (NHWC, (8, 8, 2, 2), 8, (3, 3), {"padding": "SAME"}),
    "many positions": (NHWC, (5, 3, 30, 31), 8, (3, 3), {"padding": "SAME"}),
    "many positions, 8 channels": (NHWC, (5, 8, 30, 31), 8, (3, 3), {"padding": "SAME"}),
    "many positions, strided": (NCHW, (17, 4, 34, 33), 8, (3, 2), {
        "window_strides": (2, 2), "padding": ((1, 0), (0, 2))}),
    "many positions, dilated": (NHWC, (5, 1, 36, 35), 4, (3, 3), {
        "rhs_dilation": (2, 3), "padding": "VALID"}),
}  # fmt: skip


def arrays(case, dtype, seed=0):
    """The operands of a case, and the function of them."""
    layout, shape, features, taps, given = CASES[case]
    given = {"window_strides": (1,) * len(taps), "padding": "SAME", **given}
    rng = np.random.default_rng(seed)
    groups = given.get("feature_group_count", 1)

    def laid(sizes, spec, names):
        order = [names.index(c) if c in names else 2 + "DHW"[3 - len(taps) :].index(c)
                 for c in spec]  # fmt: skip
        return rng.integers(-3, 4, [sizes[d] for d in order]).astype(dtype)

    x = laid(shape, layout[0], "NC")
    w = laid((features, shape[1] // groups, *taps), layout[1], "OI")
    return x, w, lambda x, w: lax.conv_general_dilated(
        x, w, dimension_numbers=layout, **given)


def run(op, x, w, engine=None, out_dtype=None):
    """The result of a convolution by its lowering; (None, plan) where declined."""
    engine = engine or FakeEngine()
    expected = op.eager(np, x.astype("f8"), w.astype("f8"))
    out = np.full(expected.shape, 77).astype(out_dtype or x.dtype)
    plan = FakePlan()
    with cudnn.use(engine):
        ins = [plan.operand(x), plan.operand(w)]
        ok = convolution.by_library(op, ins, [plan.operand(out)], plan)
    if not ok:
        return None, plan, expected
    for step in plan.steps:
        if isinstance(step, cudnn.GraphCall):
            assert step.workspace is not None and len(step.writes) == 2
    blas = fake_blas()

    class Both:
        """Whichever a call is for."""

        def __getattr__(self, name):
            return getattr(engine if name == "plan" else blas, name)

    plan.run(Both())
    return out, plan, expected


def operations(function, x, w):
    """The convolution of a function and those of its derivatives in both operands."""
    found = []
    real = ConvGeneralDilated.eager

    def spy(self, xp, lhs, rhs):
        found.append((self, np.asarray(lhs), np.asarray(rhs)))
        return real(self, xp, lhs, rhs)

    ConvGeneralDilated.eager = spy
    try:
        with toile.disable_jit(), toile.default_device(toile.devices("cpu")[0]):
            y, back = toile.vjp(function, x, w)
            back(y)
    finally:
        ConvGeneralDilated.eager = real
    assert len(found) == 3
    return found


def reversed_as_a_view(op, x, w):
    """In compiled Programs reversals are views: here too, where that is what an operand is."""
    axes = op.dimension_numbers.rhs_spec[2:]
    return np.flip(np.ascontiguousarray(np.flip(w, axes)), axes)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", CASES)
def test_forward_and_gradients(case, dtype):
    kind = bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    x, w, function = arrays(case, "float32")
    found = operations(function, x, w)
    assert len(found) == 3
    for i, (op, a, b) in enumerate(found):
        a, b = (np.clip(v, -3, 3).astype(kind) for v in (a, b))
        variants = [b] if i == 0 or b.ndim == 2 else [b, reversed_as_a_view(op, a, b)]
        for rhs in variants:
            out, _, expected = run(op, a, rhs)
            assert out is not None, (case, op)
            np.testing.assert_array_equal(out.astype("f8"), expected.astype(kind).astype("f8"))


@pytest.mark.parametrize("case", ["odd margins", "3x3 stride 2, even", "1-d causal", "cropped"])
def test_cudnn_is_given_equal_margins(case):
    x, w, function = arrays(case, "float32")
    for op, a, b in operations(function, x, w):
        engine = FakeEngine()
        out, _, expected = run(op, np.clip(a, -3, 3), b, engine)
        np.testing.assert_array_equal(out, expected)
        assert all(d.low == d.high for d in engine.asked)


@pytest.mark.parametrize("case", ["3x3", "NCHW", "3x3 stride 2", "7x7 stride 2 of 3 channels"])
def test_channels_first_where_there_is_no_other(case):
    x, w, function = arrays(case, "float32")
    refuse = lambda d: any(t.stride[1] == 1 and t.dim[1] > 1 for t in (d.x, d.w, d.y))
    for op, a, b in operations(function, x, w):
        engine = FakeEngine(refuse)
        out, _, expected = run(op, np.clip(a, -3, 3), b, engine)
        np.testing.assert_array_equal(out, run(op, np.clip(a, -3, 3), b)[2])


def described(case, dtype="float32", view=True):
    """What cuDNN is asked for, forward, in the kernels and in the images, and the plans."""
    x, w, function = arrays(case, "float32")
    asked, plans = [], []
    for i, (op, a, b) in enumerate(operations(function, x, w)):
        rhs = reversed_as_a_view(op, a, b) if view and i == 2 else b
        _, plan, _ = run(op, a.astype(dtype), rhs)
        asked.append(next((s for s in plan.steps if isinstance(s, cudnn.GraphCall)), None))
        plans.append(plan)
    return asked, plans


def test_gradients_are_recognised():
    calls, plans = described("3x3 stride 2, margins of 1")
    kinds = [c.description.kind for c in calls]
    assert kinds == ["fprop", "wgrad", "dgrad"]
    for call in calls:
        d = call.description
        assert d.stride == (2, 2) and d.dilation == (1, 1) and d.low == d.high == (1, 1)
        assert d.x.dim == (2, 8, 8, 8) and d.w.dim == (8, 8, 3, 3) and d.y.dim == (2, 8, 4, 4)
        assert d.x.stride == (512, 1, 64, 8)
        assert d.w.stride == (72, 1, 24, 8)
    assert [p.copies for p in plans] == [1, 1, 1]  # the kernels only


@pytest.mark.parametrize("case", [c for c in CASES if c.startswith("transposed")])
def test_gradients_of_transposed_convolutions_are_recognised(case):
    """The derivative in the kernels is one in the kernels of the convolution that is transposed: a
    derivative in images with a window as large as those would take hundreds of times as long."""
    calls, _ = described(case)
    assert [c.description.kind for c in calls] == ["dgrad", "wgrad", "fprop"]
    forward, kernels, images = (c.description for c in calls)
    assert forward.stride == kernels.stride == images.stride
    assert kernels.x.dim == forward.x.dim and kernels.y.dim == forward.y.dim


@pytest.mark.parametrize("case", [c for c in CASES if c.startswith("many positions")])
def test_small_kernels_are_products_of_patches(case):
    calls, plans = described(case)
    few = case in ("many positions", "many positions, dilated")  # channels: forward too
    assert [c and c.description.kind for c in calls] == [None if few else "fprop", None, "dgrad"]
    (product,) = [s for s in plans[1].steps if isinstance(s, cublas.Gemm)]
    assert product.k >= convolution.MANY_TERMS and product.count == len(product.loop) == 1
    notes = [n for s in plans[1].steps if (n := getattr(s, "note", "")) in ("pad", "patches")]
    assert notes == ["patches"]


@pytest.mark.parametrize("name, limit", [
    ("FEW_NUMBERS", 100), ("NARROW", 20), ("MOST_PATCHES", 1000), ("MANY_TERMS", 10**6)])
def test_other_kernels_are_cudnns(name, limit, monkeypatch):
    monkeypatch.setattr(convolution, name, limit)
    calls, _ = described("many positions")
    kinds = [c and c.description.kind for c in calls]
    expected = {"FEW_NUMBERS": [None, "wgrad"], "NARROW": ["fprop", None]}
    assert kinds == [*expected.get(name, ["fprop", "wgrad"]), "dgrad"]


def test_three_channels_are_padded():
    calls, _ = described("7x7 stride 2 of 3 channels")
    assert [c.description.x.dim[1] for c in calls] == [4, 4, 4]
    x, w, function = arrays("7x7 stride 2 of 3 channels", "float32")
    [(op, a, b), *_] = operations(function, x, w)
    engine = FakeEngine()
    run(op, a.astype(bfloat16), b.astype(bfloat16), engine)
    assert engine.asked[-1].x.dim[1] == 8


def test_one_by_one_is_a_product_of_matrices():
    calls, plans = described("1x1", view=False)
    assert calls == [None] * 3 and all(p.calls[0].note.startswith("cuBLAS") for p in plans)
    assert [p.copies for p in plans] == [0, 0, 0]
    assert [(c.m, c.n, c.k) for p in plans for c in p.calls] == [
        (16, 50, 8), (16, 8, 50), (8, 50, 16)]  # fmt: skip


@pytest.mark.parametrize("precision, tf32", [
    (None, True), ((lax.Precision.HIGH,) * 2, True), ((lax.Precision.HIGHEST,) * 2, False),
])  # fmt: skip
def test_precision(precision, tf32):
    x, w, function = arrays("3x3", "float32")
    [(op, a, b), *_] = operations(function, x, w)
    engine = FakeEngine()
    op = ConvGeneralDilated(**{**op.__dict__, "precision": precision})
    run(op, a, b, engine)
    d = engine.asked[-1]
    assert d.tf32 == tf32 and ("TENSOR_CORE" in d.left_out()) == (not tf32)
    assert "NONDETERMINISTIC" in d.left_out()
    run(op, a.astype(bfloat16), b.astype(bfloat16), engine)
    assert not engine.asked[-1].tf32 and "TENSOR_CORE" not in engine.asked[-1].left_out()


def test_a_wider_result():
    x, w, function = arrays("3x3", "float32")
    [(op, a, b), *_] = operations(function, x, w)
    op = ConvGeneralDilated(**{**op.__dict__, "preferred_element_type": np.dtype("f4")})
    out, _, expected = run(op, a.astype(bfloat16), b.astype(bfloat16), out_dtype=np.float32)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int8"])
def test_dtypes_that_are_declined(dtype):
    x, w, function = arrays("3x3", "float32")
    [(op, a, b), *_] = operations(function, x, w)
    out, plan, _ = run(op, a.astype(dtype), b.astype(dtype))
    assert out is None and not plan.steps


def test_without_cudnn():
    """Products are cuBLAS's, convolutions in TF32 those of our kernels for tensor cores."""
    for case, dtype, taken in (("3x3", "float32", True), ("3x3", "float16", False),
                               ("groups", "float32", False), ("1x1", "float16", True)):
        x, w, function = arrays(case, "float32")
        [(op, a, b), *_] = operations(function, x, w)
        plan = FakePlan()
        out = np.zeros(op.out_shape(a.shape, b.shape), dtype)
        with cudnn.use(None):
            operands = [plan.operand(v.astype(dtype)) for v in (a, b)]
            assert convolution.by_library(op, operands, [plan.operand(out)], plan) == taken
        assert bool(plan.steps) == taken


def test_an_engine_that_refuses_leaves_no_steps():
    x, w, function = arrays("3x3", "float32")
    [(op, a, b), *_] = operations(function, x, w)
    out, plan, _ = run(op, a, b, FakeEngine(lambda d: True))
    assert out is None and not plan.steps


# ---- the frontend
def test_graphs_of_the_frontend():
    """What is described is what the frontend is told."""
    frontend = pytest.importorskip("cudnn")
    calls, _ = described("3x3 stride 2, margins of 1")
    for call in calls:
        d = call.description
        graph = frontend.pygraph(compute_data_type=frontend.data_type.FLOAT)
        d.add(frontend, graph)
        [node] = graph.nodes
        assert node.node_type.name == f"CONV_{d.kind.upper()}"
        tensors = {t.uid: t for t in (*node.inputs.values(), *node.outputs.values())}
        for uid, tensor in ((1, d.x), (2, d.w), (3, d.y)):
            assert tuple(tensors[uid].dim) == tensor.dim
            assert tuple(tensors[uid].stride) == tensor.stride
            assert tensors[uid].data_type == frontend.data_type.FLOAT
        assert node.params["pre_padding"] == [1, 1] and node.params["stride"] == [2, 2]
        [out] = node.outputs.values()
        assert not out.is_virtual


class FakeFrontend:
    """Enough of the frontend to build, keep and load plans."""

    __version__ = "9.9"

    class data_type:
        FLOAT, BFLOAT16 = "FLOAT", "BFLOAT16"

    class heur_mode:
        A, FALLBACK = "A", "FALLBACK"

    class numerical_note:
        NONDETERMINISTIC, TENSOR_CORE = "NONDETERMINISTIC", "TENSOR_CORE"

    class cudnnGraphNotSupportedError(Exception):
        pass

    def __init__(self, fails=False):
        self.log, self.fails = [], fails

    def create_handle(self):
        return "handle"

    def backend_version(self):
        return 91900

    def set_stream(self, handle, stream):
        self.log.append(("set_stream", stream))

    def pygraph(self, **kwargs):
        return FakeGraph(self)


class FakeGraph:
    def __init__(self, owner):
        self.owner = owner

    def __getattr__(self, name):
        def call(*args, **kwargs):
            self.owner.log.append((name, args, kwargs))
            if name == "check_support" and self.owner.fails:
                raise FakeFrontend.cudnnGraphNotSupportedError()
            return {"get_workspace_size": 64, "serialize": list(b"plan")}.get(name, self)

        return call


class Kept(dict):
    """A cache on disk that is not."""

    def put(self, key, data):
        self[key] = data

    def remove(self, key):
        del self[key]


def test_plans_are_kept():
    description = described("3x3")[0][0].description
    disk = Kept()
    first = FakeFrontend()
    made = cudnn.Frontend(first, "H200", disk)
    plan = made.plan(description)
    assert made.plan(description) is plan and plan.workspace == 64
    names = [entry[0] for entry in first.log]
    assert names.count("build_plans") == 1 and list(disk.values()) == [b"plan"]
    notes = next(e[1][0] for e in first.log if e[0] == "deselect_numeric_notes")
    assert notes == ["NONDETERMINISTIC"]
    second = FakeFrontend()
    loaded = cudnn.Frontend(second, "H200", disk).plan(description)
    assert [e[0] for e in second.log] == ["deserialize", "get_workspace_size"]
    loaded.execute({1: 16, 2: 32, 3: 48}, 64, 5)
    assert second.log[-2:] == [
        ("set_stream", 5), ("execute", ({1: 16, 2: 32, 3: 48}, 64), {"handle": "handle"})]
    other = FakeFrontend()
    cudnn.Frontend(other, "another chip", disk).plan(description)
    assert "build_plans" in [e[0] for e in other.log]


def test_plans_are_not_made_on_the_stream_of_the_last_call():
    """cuDNN asks about it then, and it may be gone."""
    one, another = (described(case)[0][0].description for case in ("3x3", "1x1 stride 2"))
    disk = Kept()
    cudnn.Frontend(FakeFrontend(), "H200", disk).plan(another)
    for kept in (None, disk):
        found = FakeFrontend()
        frontend = cudnn.Frontend(found, "H200", kept)
        plan = frontend.plan(one)
        plan.execute({1: 16}, 64, 5)
        frontend.plan(another)
        plan.execute({1: 16}, 64, 5)
        names = [e[:2] if e[0] == "set_stream" else e[0] for e in found.log]
        after = names[names.index(("set_stream", 5)) + 2 :]
        assert after[0] == ("set_stream", 0) and after[-2:] == [("set_stream", 5), "execute"]


def test_a_kept_plan_that_does_not_run_is_built_anew():
    description = described("3x3")[0][0].description
    disk = Kept()
    cudnn.Frontend(FakeFrontend(), "H200", disk).plan(description)
    other = FakeFrontend()
    plan = cudnn.Frontend(other, "H200", disk).plan(description)

    def fails(*args, **kwargs):
        raise RuntimeError("another driver")

    plan.graph.execute = fails
    plan.execute({1: 16}, 64, 5)
    names = [e[0] for e in other.log]
    assert names[-1] == "execute" and "build_plans" in names and list(disk.values()) == [b"plan"]
    plan.graph.execute = fails
    with pytest.raises(RuntimeError, match="another driver"):
        plan.execute({1: 16}, 64, 5)


def test_what_no_engine_serves_is_unsupported():
    description = described("3x3")[0][0].description
    made = cudnn.Frontend(FakeFrontend(fails=True), "H200", None)
    for _ in range(2):
        with pytest.raises(cudnn.Unsupported):
            made.plan(description)
    assert [e[0] for e in made.cudnn.log].count("check_support") == 1


# ---- copies
@pytest.mark.skipif(not fibers.available(), reason="needs g++")
@pytest.mark.parametrize("dtype", ["float32", "int16", "uint8", "complex128"])
def test_window(dtype):
    rng = np.random.default_rng(0)
    for i in range(7):
        x = rng.integers(0, 99, (3, 5, 4, 7)).astype(dtype).transpose(rng.permutation(4))
        low, shape = tuple(rng.integers(-2, 3, 4)), tuple(rng.integers(1, 9, 4))
        if i >= 4:  # channels in packs: as many, more of them, some from the middle
            x = rng.integers(0, 99, (2, 5, 4, (16, 3, 48)[i - 4])).astype(dtype)
            low, shape = (0, 0, 1, -16 * (i == 6)), (2, 6, 7, 16)
        expected = np.zeros(shape, dtype)
        for at in np.ndindex(*shape):
            source = tuple(i - l for i, l in zip(at, low))
            if all(0 <= s < n for s, n in zip(source, x.shape)):
                expected[at] = x[source]
        plan = FakePlan()
        by_kernel, by_hand = np.full(shape, 7, dtype), np.full(shape, 7, dtype)
        address = lambda a: a.buffer.array.ctypes.data + a.offset if isinstance(a, Ref) else a
        launch = relayout.window(plan.operand(by_kernel), plan.operand(x), low)
        fibers.execute(launch.text, [address(a) for a in launch.args], launch.blocks)
        np.testing.assert_array_equal(by_kernel, expected)
        launched(relayout.window(plan.operand(by_hand), plan.operand(x), low), address)
        np.testing.assert_array_equal(by_hand, expected)


@pytest.mark.skipif(not fibers.available(), reason="needs g++")
def test_addresses():
    found = np.zeros((3, 24), np.int64)
    plan = FakePlan()
    axes = [(2, 8, 16, 24), (3, 100, 200, 0), (4, 1, 2, 3)]
    launch = relayout.addresses(plan.operand(found).ref, [1000, 2000, 3000], axes)
    words = [a.buffer.array.ctypes.data if isinstance(a, Ref) else a for a in launch.args]
    fibers.execute(launch.text, words, launch.blocks)
    at = np.array(list(np.ndindex(2, 3, 4)))
    np.testing.assert_array_equal(
        found, np.array([[1000], [2000], [3000]]) + np.array(axes)[:, 1:].T @ at.T)
