"""Windows as kernels: reductions, selections and their gradients give what NumPy gives."""

import ml_dtypes
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.compiler.fake_plan import FakePlan, lowered
from toile import lax
from toile.kernels.window import cpu as pooling
from toile.primitives import windows
from toile.targets.llvm import native

# shape, window, strides, padding, dilation of the operand, of the window
GEOMETRIES = {
    "NHWC": ((2, 9, 8, 19), (1, 3, 2, 1), (1, 2, 1, 1), ((0, 0), (1, 1), (0, 1), (0, 0)),
             (1, 1, 1, 1), (1, 1, 1, 1)),
    "dilated": ((2, 9, 8, 5), (1, 3, 2, 1), (1, 2, 1, 1), ((0, 0), (1, 1), (0, 1), (0, 0)),
                (1, 2, 3, 1), (1, 2, 1, 1)),
    "NCHW": ((2, 3, 9, 8), (1, 1, 3, 3), (1, 1, 2, 2), ((0, 0), (0, 0), (1, 1), (1, 1)),
             (1, 1, 1, 1), (1, 1, 1, 1)),
    "large": ((2, 12, 11, 6), (1, 5, 4, 1), (1, 1, 3, 1), ((0, 0), (2, 1), (-1, 2), (0, 0)),
              (1, 1, 1, 1), (1, 1, 1, 1)),
    "1-d": ((30,), (5,), (2,), ((2, 2),), (1,), (1,)),
    "sliding": ((3, 50, 75), (1, 4, 3), (1, 2, 1), ((0, 0), (1, 2), (1, 3)), (1, 2, 1), (1, 1, 2)),
    "sliding, cut": ((3, 107), (1, 5), (1, 1), ((0, 0), (-2, 4)), (1, 1), (1, 1)),
    "sliding in padding": ((2, 10), (1, 3), (1, 1), ((0, 0), (-20, 40)), (1, 1), (1, 1)),
    "3-d": ((6, 7, 5), (2, 3, 2), (1, 2, 2), ((1, 0), (1, 1), (0, 1)), (1, 1, 1), (1, 1, 1)),
    "3-d batch": ((2, 6, 7, 5, 4), (1, 2, 3, 2, 1), (1, 1, 2, 2, 1),
                  ((0, 0), (1, 0), (1, 1), (0, 1), (0, 0)), (1,) * 5, (1,) * 5),
}  # fmt: skip
DTYPES = ["float32", "float64", "float16", "bfloat16", "int32", "uint8"]


def check(op, *arrays, threads=2):
    """The kernels' result is NumPy's."""
    with np.errstate(all="ignore"):
        expected = np.asarray(op.eager(np, *arrays))
    found = lowered(pooling.lower, op, arrays, [(expected.shape, expected.dtype)], threads)
    assert found is not None
    tolerance = {"float16": 1e-2, "bfloat16": 5e-2}.get(expected.dtype.name, 1e-6)
    a, b = found[0].astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(a, b, tolerance, tolerance)


def sample(shape, dtype, seed=0, nan=True):
    random = np.random.RandomState(seed)
    x = np.round(random.randn(*shape) * 5)  # rounded: windows have equal elements
    if np.dtype(dtype).kind in "iu":
        return np.abs(x).astype(dtype)
    if nan:
        x[..., :1] = np.where(random.rand(*x[..., :1].shape) < 0.1, np.nan, x[..., :1])
    return x.astype(dtype)


def named(dtype):
    return np.dtype(getattr(ml_dtypes, dtype, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", GEOMETRIES)
def test_reductions(name, dtype):
    shape, *geometry = GEOMETRIES[name]
    x = sample(shape, named(dtype))
    for op in (windows.ReduceWindowSum, windows.ReduceWindowMax, windows.ReduceWindowMin):
        check(op(*geometry), x)
    with np.errstate(all="ignore"):
        small = (x % 3).astype(x.dtype)
    check(windows.ReduceWindowProd(*geometry), small)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64"])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_reductions_of_bits(name, dtype):
    shape, *geometry = GEOMETRIES[name]
    x = np.random.RandomState(0).randint(0, 2 if dtype == "bool" else 100, shape).astype(dtype)
    for op in (windows.ReduceWindowAnd, windows.ReduceWindowOr, windows.ReduceWindowMax,
               windows.ReduceWindowMin):
        check(op(*geometry), x)


@pytest.mark.parametrize("combine, start", [(lax.bitwise_and, True), (lax.bitwise_or, False)])
def test_windows_of_truth_values_run_in_compiled_code(combine, start):
    f = lambda x: lax.reduce_window(x, start, combine, (1, 3), (1, 1), "SAME")
    x = np.random.RandomState(0).rand(5, 40) < 0.6
    assert "0 steps in Python" in str(toile.explain(f)(x)).splitlines()[0]
    np.testing.assert_array_equal(toile.jit(f)(x), f(x))


@pytest.mark.parametrize("select", ["ge", "le"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", GEOMETRIES)
def test_selections(name, dtype, select):
    shape, window, strides, padding, base, dilation = GEOMETRIES[name]
    x, tangent = sample(shape, named(dtype)), sample(shape, named(dtype), 1, nan=False)
    check(windows.SelectAndGatherAdd(select, window, strides, padding, base, dilation), tangent, x)
    op = windows.SelectAndScatterAdd(select, window, strides, padding)
    ones = (1,) * len(shape)
    out = windows.ReduceWindowMax(window, strides, padding, ones, ones).eager(np, x).shape
    check(op, sample(out, named(dtype), 2, nan=False), x)


@pytest.mark.parametrize("width", [16, 32, 64])
def test_vector_widths(width, monkeypatch):
    monkeypatch.setattr(native, "vector_bytes", lambda: width)
    shape, *geometry = GEOMETRIES["NHWC"]
    for lanes in (1, 19, 70):
        x = sample((*shape[:3], lanes), np.float32)
        check(windows.ReduceWindowMax(*geometry), x)
        out = windows.ReduceWindowMax(*geometry).eager(np, x).shape
        op = windows.SelectAndScatterAdd("ge", *geometry[:3])
        check(op, sample(out, np.float32, 2, nan=False), x)


def test_empty_windows_are_neutral():
    """Windows that lie in the padding give the neutral element."""
    geometry = (1, 2, 2, 1), (1, 2, 2, 1), ((0, 0), (4, 4), (4, 4), (0, 0)), (1,) * 4, (1,) * 4
    x = sample((1, 3, 3, 6), np.float32)
    for op in (windows.ReduceWindowSum, windows.ReduceWindowMax, windows.ReduceWindowMin):
        check(op(*geometry), x)


def test_strided_operands():
    shape, *geometry = GEOMETRIES["NHWC"]
    x = sample((2, 18, 8, 19), np.float32)[:, ::-2]
    check(windows.ReduceWindowSum(*geometry), x)


def test_what_numpy_does_better_is_declined():
    """Windows that overlap by hundreds are doubled by NumPy."""
    op = windows.ReduceWindowSum((2000,), (1,), ((1999, 0),), (1,), (1,))
    assert lowered(pooling.lower, op, [np.ones(2000, np.float32)], [((2000,), np.float32)]) is None


@pytest.mark.parametrize("kind", ["max", "min", "add"])
def test_gradients(kind):
    x = np.random.RandomState(3).randn(2, 9, 8, 5).astype(np.float32)
    init, combine = {"max": (-jnp.inf, lax.max), "min": (jnp.inf, lax.min),
                     "add": (0.0, lax.add)}[kind]  # fmt: skip

    def loss(x):
        y = lax.reduce_window(x, init, combine, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        return jnp.sum(y * jnp.cos(y))

    p = toile.make_jaxpr(toile.grad(loss))(x).jaxpr
    values, count = {p.inputs[0]: x}, 0
    read = lambda a: values[a] if a in values else np.asarray(a.val)
    for e in p.equations:
        ins, out = [read(a) for a in e.ins], e.outs[0]
        if type(e.op).__module__ == windows.__name__:
            (values[out],) = lowered(pooling.lower, e.op, ins, [(out.aval.shape, out.aval.dtype)])
            count += 1
        else:
            values[out] = e.op.eager(np, *ins)
    assert count == 2
    np.testing.assert_allclose(read(p.outputs[0]), toile.grad(loss)(x), 1e-5, 1e-5)


def test_one_text_for_all_sizes():
    texts = set()
    for shape in ((2, 9, 8, 19), (3, 16, 16, 64)):
        plan = FakePlan()
        op = windows.ReduceWindowMax(*GEOMETRIES["NHWC"][1:])
        x = np.zeros(shape, np.float32)
        out = op.eager(np, x)
        assert pooling.lower(op, [plan.operand(x)], [plan.operand(out)], plan)
        texts |= {launch.text for stage in plan.stages for launch in stage}
    assert len(texts) == 1
