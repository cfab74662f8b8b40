"""Convolutions as kernels: all layouts, strides, dilations, groups, dtypes, as NumPy does them."""

from dataclasses import replace
from random import Random

import ml_dtypes
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.compiler.fake_plan import FakePlan, lowered
from toile import lax
from toile.kernels.convolution import cpu as convolution
from toile.kernels.convolution.cpu import indirect, outer, sliding
from toile.primitives.conv import ConvDimensionNumbers, ConvGeneralDilated
from toile.targets.llvm import native

NHWC = ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
LAYOUTS = {
    "NHWC": NHWC,
    "NCHW": ConvDimensionNumbers((0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3)),
    "CHNW": ConvDimensionNumbers((2, 0, 3, 1), (1, 3, 0, 2), (3, 2, 0, 1)),
    "gradient": ConvDimensionNumbers((3, 0, 1, 2), (3, 0, 1, 2), (2, 3, 0, 1)),
    "gradient NCHW": ConvDimensionNumbers((1, 0, 2, 3), (1, 0, 2, 3), (1, 0, 2, 3)),
}
# feature groups, channels and features of a group, batch groups
GROUPS = [(1, 3, 5, 1), (1, 16, 20, 1), (2, 4, 3, 1), (8, 1, 1, 1), (7, 1, 2, 1), (9, 2, 1, 1),
          (1, 4, 5, 2), (1, 1, 1, 6), (1, 3, 1, 8)]  # fmt: skip
# kernel, strides, dilation of the operand, of the kernel
WINDOWS = [
    ((3, 3), (1, 1), (1, 1), (1, 1)), ((3, 2), (2, 1), (1, 1), (1, 2)),
    ((3, 3), (1, 1), (2, 2), (1, 1)), ((1, 1), (2, 2), (1, 1), (1, 1)),
    ((2, 3), (2, 3), (3, 2), (2, 1)), ((6, 7), (1, 1), (1, 1), (1, 1)),
    ((2, 3), (1, 1), (3, 1), (1, 2)),
]  # fmt: skip
TOLERANCE = {"float32": 2e-5, "float64": 1e-12, "float16": 4e-3, "bfloat16": 2e-2}


def placed(spec, *dims):
    shape = [0] * len(spec)
    for axis, n in zip(spec, dims, strict=True):
        shape[axis] = n
    return tuple(shape)


def operands(op, batch, groups, spatial, kernel, dtype=np.float32, seed=0):
    """Random operands for groups as in GROUPS."""
    random = np.random.RandomState(seed)
    g, c, o, b = groups
    spec = op.dimension_numbers
    x = random.randn(*placed(spec.lhs_spec, batch * b, g * c, *spatial)).astype(dtype)
    w = random.randn(*placed(spec.rhs_spec, o * g * b, c, *kernel)).astype(dtype)
    return x, w


def check(op, x, w, threads=2):
    """The kernels' result is NumPy's."""
    expected = np.asarray(op.eager(np, x, w))
    found = lowered(convolution.lower, op, [x, w], [(expected.shape, expected.dtype)], threads)
    assert found is not None
    a, b = found[0].astype(np.float64), expected.astype(np.float64)
    tolerance = TOLERANCE[expected.dtype.name]
    np.testing.assert_allclose(a, b, tolerance, tolerance * np.nanmax(np.abs(b)))


@pytest.mark.parametrize("groups", GROUPS, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_groups_and_windows(layout, groups):
    for i, (kernel, strides, base, dilation) in enumerate(WINDOWS):
        op = ConvGeneralDilated(
            strides, ((1, 1), (0, 2)), base, dilation, LAYOUTS[layout], groups[0], groups[3]
        )
        x, w = operands(op, 2, groups, (9, 8), kernel)
        if i % 2:  # the gradient in the operand reverses kernels: by a view
            w = np.flip(w, op.dimension_numbers.rhs_spec[2:])
        check(op, x, w)


def random_case(random, inner=((1, 2, 3, 7, 8, 9), (1, 2, 5, 8, 17))):
    """Any convolution: an operation, its batch, groups, spatial extents and kernel."""
    rank = random.choice([1, 2, 2, 3])
    spec = lambda: tuple(random.sample(range(rank + 2), rank + 2))
    each = lambda *values: tuple(random.choice(values) for _ in range(rank))
    groups, batches = random.choice([(1, 1), (1, 1), (2, 1), (17, 1), (1, 3), (1, 8)])
    op = ConvGeneralDilated(
        each(1, 1, 2, 3), tuple(zip(each(-1, 0, 1, 3), each(-1, 0, 2), strict=True)),
        each(1, 1, 2, 3), each(1, 1, 2), ConvDimensionNumbers(spec(), spec(), spec()),
        groups, batches,
    )  # fmt: skip
    inner = map(random.choice, inner)
    batch = random.choice([1, 2, 5])
    return op, batch, (groups, *inner, batches), each(*range(1, 8)), each(1, 2, 3, 5)


def test_random_convolutions():
    random = Random(5)
    count = 0
    for seed in range(400):
        op, batch, groups, spatial, kernel = random_case(random)
        x, w = operands(op, batch, groups, spatial, kernel, seed=seed)
        if 0 not in op.out_shape(x.shape, w.shape):
            check(op, x, w, random.choice([1, 2, 5]))
            count += 1
    assert count > 200


def test_random_convolutions_of_single_channels(monkeypatch):
    """Short rows and blocks, to cover all cases of the method for long rows."""
    monkeypatch.setattr(sliding, "_LONG", 1)
    monkeypatch.setattr(sliding, "_BLOCK", 6)
    random, methods = Random(6), []
    for seed in range(400):
        op, batch, groups, spatial, kernel = random_case(random, ((1, 1, 3), (1,)))
        if seed % 2:
            spatial, kernel = kernel, spatial
        op = replace(op, lhs_dilation=(1,) * len(spatial))
        x, w = operands(op, batch, groups, spatial, kernel, seed=seed)
        shape = op.out_shape(x.shape, w.shape)
        if 0 not in shape:
            check(op, x, w, random.choice([1, 2, 5]))
            notes = launched(op, x, w, np.zeros(shape, x.dtype))
            methods.append(next((n for n in notes if n in ("product", "dot")), None))
    assert min(map(methods.count, ("product", "dot"))) >= 15


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_long_rows_of_single_channels(dtype):
    """Convolutions of signals and of images with one channel, and gradients of their kernels."""
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    rows = ConvDimensionNumbers((0, 1, 2), (0, 1, 2), (0, 1, 2))
    slope = ConvDimensionNumbers((1, 0, 2), (1, 0, 2), (1, 0, 2))
    for spec, groups, spatial, kernel, note in (
        (rows, (1, 1, 1, 1), (5000,), (65,), "product"),
        (slope, (1, 1, 1, 1), (9500,), (9500,), "dot"),
        (rows, (1, 1, 1, 3), (300,), (65,), "product"), (rows, (3, 1, 1, 1), (300,), (290,), "dot"),
        (LAYOUTS["NCHW"], (1, 2, 1, 1), (70, 80), (3, 3), "product"),
        (LAYOUTS["gradient NCHW"], (1, 1, 1, 1), (70, 80), (70, 80), "dot"),
    ):  # fmt: skip
        ones = (1,) * len(spatial)
        op = ConvGeneralDilated(ones, ((2, 2),) * len(spatial), ones, ones, spec, groups[0],
                                groups[3])
        x, w = operands(op, 1, groups, spatial, kernel, dtype)
        check(op, x, w)
        assert note in launched(op, x, w, np.zeros(op.out_shape(x.shape, w.shape), dtype))


def launched(op, x, w, out):
    """The names of the launches of a convolution."""
    plan = FakePlan()
    assert convolution.lower(op, [plan.operand(x), plan.operand(w)], [plan.operand(out)], plan)
    return [launch.note for stage in plan.stages for launch in stage]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_ranks_and_dtypes(dtype):
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    pointwise = ConvDimensionNumbers((0, 1), (1, 0), (0, 1))
    last1 = ConvDimensionNumbers((0, 2, 1), (2, 1, 0), (0, 2, 1))
    first1 = ConvDimensionNumbers((0, 1, 2), (0, 1, 2), (0, 1, 2))
    last3 = ConvDimensionNumbers((0, 4, 1, 2, 3), (4, 3, 0, 1, 2), (0, 4, 1, 2, 3))
    cases = [
        (ConvGeneralDilated((), (), (), (), pointwise), (1, 6, 9, 1), (), ()),
        (ConvGeneralDilated((2,), ((2, 2),), (1,), (1,), last1), (1, 6, 9, 1), (20,), (5,)),
        (ConvGeneralDilated((2,), ((2, 2),), (2,), (1,), first1), (1, 6, 9, 1), (20,), (5,)),
        (ConvGeneralDilated((2, 1, 1), ((1, 1), (0, 0), (-1, 2)), (1, 1, 1), (1, 1, 2), last3),
         (1, 3, 9, 1), (5, 6, 7), (3, 2, 3)),
        (ConvGeneralDilated((1, 1, 1), ((1, 1), (0, 0), (1, 2)), (2, 1, 2), (1, 1, 1), last3, 2),
         (2, 4, 9, 1), (5, 6, 7), (3, 2, 3)),
        (ConvGeneralDilated((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), NHWC, 16), (16, 1, 1, 1),
         (9, 8), (3, 3)),
    ]  # fmt: skip
    for op, groups, spatial, kernel in cases:
        check(op, *operands(op, 3, groups, spatial, kernel, dtype))


def test_preferred_element_type():
    op = ConvGeneralDilated(
        (1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), NHWC, preferred_element_type=np.dtype("float32")
    )
    check(op, *operands(op, 2, (1, 5, 6, 1), (6, 5), (3, 3), ml_dtypes.bfloat16))


@pytest.mark.parametrize("width", [16, 32, 64])
def test_vector_widths(width, monkeypatch):
    """Tiles of wider vectors are right as well (the code is generated for this machine's)."""
    monkeypatch.setattr(native, "vector_bytes", lambda: width)
    for layout in ("NHWC", "gradient"):
        for groups in ((1, 3, 5, 1), (1, 37, 45, 1), (40, 1, 1, 1), (1, 16, 64, 1)):
            kernel = (7, 8) if layout == "gradient" else (3, 3)
            op = ConvGeneralDilated(
                (1, 1), ((1, 1), (2, 1)), (1, 1), (1, 1), LAYOUTS[layout],
                *((1, groups[0]) if layout == "gradient" else (groups[0], 1)),
            )  # fmt: skip
            if layout == "gradient":
                groups = (1, groups[1], groups[2], groups[0])
            check(op, *operands(op, 2, groups, (7, 8), kernel))
            check(op, *operands(op, 2, groups, (7, 8), kernel, np.float64))


def test_nan_and_infinity_stay_where_they_are():
    """Neighbours of merged taps and channels beyond the last are not multiplied."""
    for channels in (1, 3, 7, 13):
        op = ConvGeneralDilated((1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1), NHWC)
        x, w = operands(op, 1, (1, channels, 5, 1), (7, 9), (3, 3))
        x[0, 2, 4, 0], x[0, 5, 8, channels - 1] = np.nan, np.inf
        with np.errstate(invalid="ignore"):
            expected = np.asarray(op.eager(np, x, w))
        (found,) = lowered(convolution.lower, op, [x, w], [(expected.shape, expected.dtype)])
        assert (np.isnan(found) == np.isnan(expected)).all()
        assert (np.isinf(found) == np.isinf(expected)).all()
    op = ConvGeneralDilated((1,), ((0, -9),), (1,), (1,), ConvDimensionNumbers(*[(0, 1, 2)] * 3))
    x, w = operands(op, 1, (1, 1, 1, 1), (9020,), (9007,))
    x[0, 0, 9009] = np.nan  # in the sums of some of the last of 5 positions
    (found,) = lowered(convolution.lower, op, [x, w], [((1, 1, 5), x.dtype)])
    np.testing.assert_array_equal(np.isnan(found), np.isnan(op.eager(np, x, w)))


def test_long_sums_are_split_and_deterministic():
    op = ConvGeneralDilated((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), LAYOUTS["gradient"])
    x, w = operands(op, 24, (1, 8, 16, 1), (30, 30), (30, 30))
    for threads in (1, 2, 7):
        check(op, x, w, threads)
    shape = np.asarray(op.eager(np, x, w)).shape
    one, two = (lowered(convolution.lower, op, [x, w], [(shape, x.dtype)]) for _ in range(2))
    assert one[0].tobytes() == two[0].tobytes()


def test_strided_operands_are_not_copied():
    """Slices and reversed kernels are read where they lie."""
    op = ConvGeneralDilated((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), NHWC)
    x, w = operands(op, 2, (1, 12, 16, 1), (14, 14), (3, 3))
    x, w = x[:, ::2, 1::3], w[::-1, ::-1]
    check(op, x, w)
    notes = launched(op, x, w, np.zeros((2, 7, 5, 16), np.float32))
    assert notes == ["zeros for padding", "pack kernels", "convolution"]


def test_sizes_share_texts():
    """Extents, strides and taps are arguments: one text for all layers of a network."""
    texts = set()
    for channels, features, kernel, stride in ((16, 32, 3, 1), (64, 24, 1, 2), (20, 40, 5, 2)):
        plan = FakePlan()
        op = ConvGeneralDilated((stride,) * 2, ((1, 1), (1, 1)), (1, 1), (1, 1), NHWC)
        x, w = operands(op, 2, (1, channels, features, 1), (9, 9), (kernel, kernel))
        out = np.asarray(op.eager(np, x, w))
        convolution.lower(op, [plan.operand(x), plan.operand(w)], [plan.operand(out)], plan)
        texts |= {launch.text for launch in plan.stages[-1]}
    assert len(texts) == 1


def test_what_has_no_method_is_declined():
    op = ConvGeneralDilated((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), NHWC)
    for dtype in (np.int32, np.complex64):
        x, w = operands(op, 2, (1, 3, 4, 1), (5, 5), (3, 3))
        out = [((2, 5, 5, 4), dtype)]
        assert lowered(convolution.lower, op, [x.astype(dtype), w.astype(dtype)], out) is None


def replay(f, *args):
    """Run the convolutions of a function's Program as kernels, all else by NumPy."""
    p = toile.make_jaxpr(f)(*args).jaxpr
    values = dict(zip(p.inputs, map(np.asarray, args), strict=True))
    read = lambda a: values[a] if a in values else np.asarray(a.val)
    count = 0
    for e in p.equations:
        ins = [read(a) for a in e.ins]
        if isinstance(e.op, ConvGeneralDilated):
            out = e.outs[0].aval
            (values[e.outs[0]],) = lowered(
                convolution.lower, e.op, ins, [(out.shape, out.dtype)]
            )
            count += 1
        else:
            values[e.outs[0]] = e.op.eager(np, *ins)
    return [read(a) for a in p.outputs], count


@pytest.mark.parametrize(
    "channels, features, kernel, options",
    [
        (16, 24, 3, {}), (3, 16, 7, {"window_strides": (2, 2)}), (1, 32, 3, {}),
        (16, 32, 1, {"window_strides": (2, 2)}), (8, 16, 3, {"feature_group_count": 8}),
        (8, 8, 3, {"feature_group_count": 2, "window_strides": (2, 2)}),
        (8, 12, 3, {"rhs_dilation": (2, 2)}), (6, 12, 4, {"lhs_dilation": (2, 2)}),
        (6, 12, 3, {"lhs_dilation": (2, 2), "rhs_dilation": (2, 2), "padding": ((2, 3), (2, 2))}),
    ],
    ids=str,
)  # fmt: skip
def test_gradients(channels, features, kernel, options):
    random = np.random.RandomState(1)
    groups = options.get("feature_group_count", 1)
    options = {"window_strides": (1, 1), "padding": ((1, 2), (1, 1))} | options
    x = random.randn(3, 13, 12, channels).astype(np.float32)
    w = random.randn(kernel, kernel, channels // groups, features).astype(np.float32)

    def loss(x, w):
        y = lax.conv_general_dilated(x, w, dimension_numbers=("NHWC", "HWIO", "NHWC"), **options)
        return jnp.sum(y * jnp.sin(y))

    found, count = replay(toile.grad(loss, (0, 1)), x, w)
    assert count == 3
    for a, b in zip(found, toile.grad(loss, (0, 1))(x, w), strict=True):
        b = np.asarray(b)
        np.testing.assert_allclose(a, b, 1e-3, 1e-4 * np.abs(b).max())


def test_methods_by_shape():
    """Forward and input gradients gather rows; gradients of kernels are sums of outer products."""
    for layout, module in (("NHWC", indirect), ("gradient", outer)):
        op = ConvGeneralDilated((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), LAYOUTS[layout])
        kernel = (3, 3) if layout == "NHWC" else (8, 8)
        x, w = operands(op, 2, (1, 12, 16, 1), (8, 8), kernel)
        out = np.asarray(op.eager(np, x, w))
        plan = FakePlan()
        arrays = [plan.operand(a) for a in (x, w, out)]
        assert module.supports(convolution.problem_of(op, *arrays, "float"))
