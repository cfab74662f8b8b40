"""Contractions, convolutions and attention by NVIDIA's libraries, on a GPU."""

import ml_dtypes
import numpy as np
import pytest

import toile
from tests.gpu.fake_libraries import FakePlan
from tests.gpu.test_contractions import PATTERNS, VIEWS
from tests.gpu.test_convolution import CASES, arrays, operations, reversed_as_a_view
from toile.compiler.ir.operands import Operand, Ref
from toile.kernels.attention import gpu_calls as attention
from toile.kernels.contraction import gpu as contractions
from toile.kernels.convolution import gpu as convolution
from toile.kernels.copy import gpu as copies
from toile.primitives.contractions import DotGeneral
from toile.targets.cuda import cublas, cublaslt, cudnn
from toile.targets.cuda import modules as kernels
from toile.targets.cuda.driver import driver, words_of

pytestmark = pytest.mark.gpu
bfloat16 = np.dtype(ml_dtypes.bfloat16)


class Held:
    """A buffer on the device, and the array that went there."""

    def __init__(self, array):
        import cupy

        low, high = np.lib.array_utils.byte_bounds(array)
        memory = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * (high - low)).from_address(
            low))
        self.data = cupy.asarray(memory)
        self.start = array.__array_interface__["data"][0] - low
        self.low = low


class DevicePlan(FakePlan):
    """Steps on the current device; `run` issues them as a graph, twice."""

    def __init__(self):
        super().__init__()
        self.device = toile.devices("gpu")[0]
        self.room = {}

    def copy(self, out, x):
        copies.copy(out, x, self)

    def operand(self, array):
        held = Held(array)
        strides = tuple(s // array.itemsize for s in array.strides)
        return Operand(Ref(held, held.start), array.shape, strides, array.dtype)

    def pointer(self, ref):
        if isinstance(ref.buffer, Held):
            return ref.buffer.data.data.ptr + ref.offset
        return self.room[ref.buffer].data.ptr + ref.offset

    def run(self):
        import cupy

        for step in self.steps:
            if hasattr(step, "prepare"):
                step.prepare()
            named = {a.buffer for a in getattr(step, "args", ()) if isinstance(a, Ref)}
            for use in ("reads", "writes"):  # None: all that is named
                named |= {*(getattr(step, use, None) or ())}
            for buffer in named:
                if not isinstance(buffer, Held) and buffer not in self.room:
                    self.room[buffer] = cupy.full(buffer.nbytes, 0x7F, np.uint8)
        kinds = [kernels.Kernel(s.text) for s in self.steps if hasattr(s, "text")]
        functions = kernels.functions(kinds, self.device)
        stream = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.runtime.deviceSynchronize()  # for what was filled, on another stream
        self._issue(functions, stream.ptr)
        driver().begin_capture(stream.ptr)
        try:
            self._issue(functions, stream.ptr)
        except BaseException:
            driver().abandon_capture(stream.ptr)
            raise
        graph = driver().instantiate(driver().end_capture(stream.ptr))
        driver().launch_graph(graph, stream.ptr)
        stream.synchronize()
        driver().destroy(graph)

    def _issue(self, functions, stream):
        for step in self.steps:
            if not hasattr(step, "text"):
                step.run(self.pointer, stream)
                continue
            kernel = kernels.Kernel(step.text)
            if step.shared:
                driver().allow_shared(functions[kernel], step.shared)
            words = [self.pointer(a) if isinstance(a, Ref) else a for a in step.args]
            driver().launch(functions[kernel], step.blocks, step.threads, step.shared, stream,
                            words_of(words, kernel.room))

    def result(self, operand):
        held = operand.ref.buffer
        raw = held.data.get()
        return np.ndarray(operand.shape, operand.dtype, raw.data, held.start,
                          [s * operand.dtype.itemsize for s in operand.strides]).copy()


def on_device(lower, op, ins, out):
    """The result of a lowering, None where it declines, and the plan."""
    plan = DevicePlan()
    result = plan.operand(out)
    if not lower(op, [plan.operand(x) for x in ins], [result], plan):
        return None, plan
    plan.run()
    return plan.result(result), plan


def sample(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    return np.asarray(rng.integers(-3, 4, shape)).astype("f4").astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64", "float64"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_contractions(pattern, dtype):
    operands, out = pattern.split("->")
    lhs, rhs = operands.split(",")
    kind = bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    for sizes in ([3, 8, 16, 5, 4], [16, 32, 8, 24, 40]):
        size = {c: sizes[ord(c) % 5] for c in lhs + rhs}
        x, y = (sample([size[c] for c in s], kind) for s in (lhs, rhs))
        wide = "c16" if kind.kind == "c" else "f8"
        expected = np.einsum(pattern, x.astype(wide), y.astype(wide)).astype(kind)
        found, _ = on_device(contractions.by_library, DotGeneral(lhs, rhs, out), [x, y],
                             np.full(expected.shape, 7).astype(kind))
        np.testing.assert_array_equal(found, expected)  # sums of small integers are exact


@pytest.mark.parametrize("left", VIEWS)
def test_views(left):
    x, y = VIEWS[left](sample((16, 16), "f4")), sample((8, 12), "f4", 1)
    found, _ = on_device(contractions.by_library, DotGeneral("ik", "kj", "ij"), [x, y],
                         np.zeros((8, 12), "f4"))
    np.testing.assert_array_equal(found, x @ y)


def test_int8_and_float8():
    x, y = sample((32, 64), "i1"), sample((64, 48), "i1", 1)
    expected = x.astype("i4") @ y.astype("i4")
    op = DotGeneral("ik", "kj", "ij", np.dtype("i4"))
    found, _ = on_device(contractions.by_library, op, [x, y],
                         np.zeros((32, 48), "i4"))
    np.testing.assert_array_equal(found, expected)
    kind = np.dtype(ml_dtypes.float8_e4m3fn)
    found, _ = on_device(contractions.by_library, DotGeneral("ik", "kj", "ij", np.dtype("f4")),
                         [x.astype(kind), y.astype(kind)], np.zeros((32, 48), "f4"))
    np.testing.assert_array_equal(found, expected)


def test_precision():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 256, 256)).astype("f4")
    exact = x.astype("f8") @ y.astype("f8")
    errors = []
    for precision in (None, toile.lax.Precision.HIGHEST):
        op = DotGeneral("ik", "kj", "ij", None, precision and (precision,) * 2)
        found, _ = on_device(contractions.by_library, op, [x, y], np.zeros((256, 256), "f4"))
        errors.append(abs(found - exact).max())
    assert errors[1] < 1e-4 < errors[0] < 0.1


@pytest.mark.parametrize("epilogue", ["", "relu", "bias", "relu_bias", "gelu_bias"])
def test_epilogues(epilogue):
    plan = DevicePlan()
    x, y, bias, more = (sample(s, bfloat16, i) for i, s in enumerate(
        ((64, 32), (32, 48), (48,), (64, 48))))
    a, b, c, add = (plan.operand(v) for v in (x, y, bias, more))
    out = plan.operand(np.zeros((64, 48), bfloat16))
    gemm = cublas.Gemm(
        48, 64, 32, cublas.Matrix(b.ref, "bfloat16", 48), cublas.Matrix(a.ref, "bfloat16", 32),
        cublas.Matrix(out.ref, "bfloat16", 48), "float32")  # fmt: skip
    plan.call(cublaslt.fused(
        gemm, epilogue=epilogue,
        bias=c.ref if "bias" in epilogue else None,
        c=cublas.Matrix(add.ref, "bfloat16", 48), beta=1.0))  # fmt: skip
    plan.run()
    expected = x.astype("f4") @ y.astype("f4") + more.astype("f4")
    expected += bias.astype("f4") * ("bias" in epilogue)
    if "relu" in epilogue:
        expected = np.maximum(expected, 0)
    if "gelu" in epilogue:
        inner = np.sqrt(2 / np.pi) * (expected + 0.044715 * expected**3)
        expected = 0.5 * expected * (1 + np.tanh(inner))
    np.testing.assert_allclose(plan.result(out).astype("f4"), expected, rtol=2e-2, atol=2e-2)


@pytest.mark.usefixtures("by_libraries")
@pytest.mark.parametrize("dtype", ["float32", "float32 highest", "bfloat16", "float16"])
@pytest.mark.parametrize("case", CASES)
def test_convolutions(case, dtype):
    if cudnn.engine() is None:
        pytest.skip(cudnn.frontend()[1])
    dtype, _, precision = dtype.partition(" ")
    kind = bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    x, w, function = arrays(case, "float32")
    declined = []
    with toile.default_matmul_precision(precision or None):
        found = operations(function, x, w)
    for i, (op, a, b) in enumerate(found):
        a, b = (np.clip(v, -3, 3).astype(kind) for v in (a, b))
        b = reversed_as_a_view(op, a, b) if i == 2 else b
        expected = op.eager(np, a.astype("f8"), b.astype("f8")).astype(kind).astype("f4")
        runs = [on_device(convolution.by_library, op, [a, b], np.zeros(expected.shape, kind))[0]
                for _ in range(2)]
        if runs[0] is None:
            declined.append(op)
            continue
        np.testing.assert_allclose(runs[0].astype("f4"), expected, rtol=1e-2, atol=1e-2)
        np.testing.assert_array_equal(runs[0], runs[1])
    if declined:
        pytest.skip(f"cuDNN has no engine for {declined}")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("extra", ["", "bias", "lengths"])
def test_attention(causal, extra):
    if cudnn.engine() is None:
        pytest.skip(cudnn.frontend()[1])
    rng = np.random.default_rng(0)
    b, t, h, d = 2, 128, 4, 64
    q, k, v, g = (rng.standard_normal((b, t, h, d)).astype(bfloat16) for _ in range(4))
    given = {}
    bias = np.zeros((1, h, t, t), "f4")
    keep = np.ones((b, 1, t, t), bool)
    if extra == "bias":
        given["bias"] = rng.standard_normal((1, h, t, t)).astype(bfloat16)
        bias = given["bias"].astype("f4")
    if extra == "lengths":
        lengths = np.array([t, 96], "i4")
        given |= {"query_lengths": np.full(b, t, "i4"), "key_lengths": lengths}
        keep = keep & (np.arange(t) < lengths[:, None])[:, None, None]
    if causal:
        keep = keep & np.tril(np.ones((t, t), bool))

    def reference(q, k, v):
        logits = toile.numpy.einsum("bthd,bshd->bhts", q, k) / 8 + bias
        weights = toile.nn.softmax(toile.numpy.where(keep, logits, -1e30), axis=-1)
        return toile.numpy.einsum("bhts,bshd->bthd", weights, v)

    with toile.default_device(toile.devices("cpu")[0]):
        expected, back = toile.vjp(reference, *(a.astype("f4") for a in (q, k, v)))
        gradients = [np.asarray(x) for x in back(g.astype("f4"))]
        expected = np.asarray(expected)
    plan = DevicePlan()
    ins = [plan.operand(a) for a in (q, k, v)]
    out = plan.operand(np.zeros_like(q))
    stats = plan.operand(np.zeros((b, h, t), "f4"))
    options = attention.Options(0.125, causal)
    extras = attention.Extras(**{name: plan.operand(a) for name, a in given.items()})
    assert attention.forward(*ins, out, stats, options, plan, extras)
    outs = [plan.operand(np.zeros_like(q)) for _ in range(3)]
    assert attention.backward([*ins, out, stats, plan.operand(g)], outs, options, plan, extras)
    plan.run()
    np.testing.assert_allclose(plan.result(out).astype("f4"), expected, rtol=5e-2, atol=2e-2)
    first = [plan.result(o) for o in outs]
    for found, wanted in zip(first, gradients, strict=True):
        np.testing.assert_allclose(found.astype("f4"), wanted, rtol=5e-2, atol=4e-2)
    plan.run()
    for before, o in zip(first, outs, strict=True):
        np.testing.assert_array_equal(before, plan.result(o))
