"""Convolutions by the tile registers of x86 processors (AMX), emulated as in test_amx_products."""

from random import Random

import ml_dtypes
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.compiler.fake_plan import FakePlan, lowered
from tests.compiler.test_amx_products import here, processor, used  # noqa: F401  the fixture
from tests.compiler.test_convolutions import LAYOUTS, NHWC, WINDOWS, operands
from toile import lax
from toile.kernels.convolution import cpu as convolution
from toile.kernels.convolution.cpu import amx
from toile.primitives.conv import ConvDimensionNumbers, ConvGeneralDilated

bfloat16 = np.dtype(ml_dtypes.bfloat16)
# feature groups, channels and features of a group, batch groups
GROUPS = [(1, 3, 20, 1), (1, 40, 33, 1), (1, 9, 70, 1)]


@pytest.fixture
def everything(monkeypatch):
    """Small and wasteful convolutions are computed with tile registers, too."""
    monkeypatch.setattr(amx, "LEAST", 0)
    monkeypatch.setattr(amx, "WASTE", 1 << 20)


def check(op, x, w, threads=2):
    """The result is the exact one, but for the rounding of sums and of the result."""
    wide = [a.astype("f8") for a in (x, w)]
    exact, magnitude = (np.asarray(op.eager(np, *arrays)) for arrays in (
        wide, [abs(a) for a in wide]))
    out = np.dtype(op.preferred_element_type or x.dtype)
    (found,) = lowered(convolution.lower, op, [x, w], [(exact.shape, out)], threads)
    if out.kind in "iu":
        np.testing.assert_array_equal(found, exact)
        return
    eps = float(ml_dtypes.finfo(out).eps)
    terms = w.size // max(1, w.shape[op.dimension_numbers.rhs_spec[0]])
    assert (abs(found.astype("f8") - exact) <= eps * abs(exact) + 1.2e-7 * (terms + 8) * magnitude
            ).all()


@pytest.mark.parametrize("groups", GROUPS, ids=str)
@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name in ("NHWC", "gradient")])
@pytest.mark.parametrize("out", [None, "float32"])
def test_layouts_and_windows(layout, groups, out, processor, everything):  # noqa: F811
    taken = 0
    for i, (kernel, strides, base, dilation) in enumerate(WINDOWS):
        op = ConvGeneralDilated(strides, ((1, 1), (0, 2)), base, dilation, LAYOUTS[layout],
                                preferred_element_type=out and np.dtype(out))
        x, w = operands(op, 2, groups, (9, 8), kernel, bfloat16)
        if i % 2:  # the gradient in the operand reverses kernels: by a view
            w = np.flip(w, op.dimension_numbers.rhs_spec[2:])
        before = len(processor)
        check(op, x, w)
        taken += bool(used(processor[before:]))
    assert taken >= 4


def random_case(random, seed):
    """Any convolution whose result has contiguous features, and its operands."""
    rank = random.choice([1, 2, 2, 3])
    spec = lambda n: tuple(random.sample(range(n), n))
    each = lambda *values: tuple(random.choice(values) for _ in range(rank))
    first, *rest = spec(rank + 1)
    numbers = ConvDimensionNumbers(spec(rank + 2), spec(rank + 2), (first, rank + 1, *rest))
    op = ConvGeneralDilated(
        each(1, 1, 2, 3), tuple(zip(each(-1, 0, 1, 3), each(-1, 0, 2), strict=True)),
        each(1, 1, 2), each(1, 1, 2), numbers)  # fmt: skip
    groups = 1, random.choice([1, 3, 8, 9, 33]), random.choice([2, 17, 40]), 1
    return op, *operands(op, random.choice([1, 2, 5]), groups, each(*range(1, 8)),
                         each(1, 2, 3, 5), bfloat16, seed)


def test_random_convolutions(processor, everything):  # noqa: F811
    random = Random(5)
    taken = 0
    for seed in range(60):
        op, x, w = random_case(random, seed)
        if 0 not in op.out_shape(x.shape, w.shape):
            before = len(processor)
            check(op, x, w, random.choice([1, 2, 5]))
            taken += bool(used(processor[before:]))
    assert taken > 20


@pytest.mark.parametrize("dtypes", [("i1", "i1"), ("u1", "i1")])
def test_convolutions_of_bytes_are_exact(dtypes, processor, everything):  # noqa: F811
    random = np.random.default_rng(2)
    op = ConvGeneralDilated((2, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), NHWC,
                            preferred_element_type=np.dtype("i4"))
    x, w = (random.integers(0, 100, shape).astype(d) for shape, d in zip(
        ((3, 11, 12, 20), (3, 3, 20, 40)), dtypes, strict=True))
    check(op, x, w)
    assert used(processor) == {"tdpbssd" if dtypes[0] == "i1" else "tdpbusd"}


def notes(x, w, stride=1, padding=1, out=bfloat16, numbers=NHWC):
    """The notes of the launches of a convolution."""
    op = ConvGeneralDilated((stride,) * 2, ((padding,) * 2,) * 2, (1, 1), (1, 1), numbers)
    x, w = np.zeros(x, out), np.zeros(w, out)
    plan, y = FakePlan(), np.zeros(op.out_shape(x.shape, w.shape), out)
    assert convolution.lower(op, [plan.operand(x), plan.operand(w)], [plan.operand(y)], plan)
    texts = [launch.text for stage in plan.stages for launch in stage]
    return [launch.note for stage in plan.stages for launch in stage], bool(used(texts))


@pytest.mark.parametrize("x,w,stride,padding,expected", [
    ((2, 14, 14, 64), (3, 3, 64, 64), 1, 1, True),
    ((2, 14, 14, 64), (3, 3, 64, 64), 2, 1, True),
    ((2, 14, 14, 64), (1, 1, 64, 64), 1, 0, True),
    ((2, 28, 28, 3), (7, 7, 3, 64), 2, 3, True),
    ((2, 5, 5, 8), (3, 3, 8, 8), 1, 1, False),  # too small
    ((1, 4, 4, 10), (3, 3, 10, 1000), 3, 3, False),  # most products would be wasted
])  # fmt: skip
def test_which_convolutions_use_it(x, w, stride, padding, expected, processor):  # noqa: F811
    found, uses = notes(x, w, stride, padding)
    assert uses == expected
    assert "convert" not in found or not expected
    assert not notes(x, w, stride, padding, np.dtype("f4"))[1]


@here
@pytest.mark.parametrize("stride", [1, 2])
def test_gradients_in_programs(stride):
    random = np.random.default_rng(3)
    x, w = (jnp.asarray(random.standard_normal(s).astype("f4"), bfloat16)
            for s in ((4, 14, 14, 64), (3, 3, 64, 64)))
    conv = lambda x, w: lax.conv_general_dilated(
        x, w, (stride,) * 2, "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    loss = lambda x, w: (conv(x, w).astype("float32") ** 2).sum()
    found = [np.asarray(a, "f8") for a in toile.jit(toile.grad(loss, (0, 1)))(x, w)]
    wide = toile.grad(loss, (0, 1))(x.astype("float32"), w.astype("float32"))
    for a, b in zip(found, wide, strict=True):
        assert abs(a - np.asarray(b, "f8")).max() < 0.02 * abs(np.asarray(b)).max()
    results = []
    for threads in (1, 2, 5):
        with toile.threads(threads):
            results.append([np.asarray(a) for a in toile.jit(toile.grad(loss, (0, 1)))(x, w)])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a.view("i2"), b.view("i2"))
