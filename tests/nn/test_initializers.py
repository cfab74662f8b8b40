"""`toile.nn.initializers` draw the numbers of `jax.nn.initializers`."""

import jax
import numpy as np
import pytest

import toile
from tests.against_jax import RECORD, compare
from toile.nn import initializers

FAMILIES = [
    f"{a}_{b}"
    for a in ("glorot", "xavier", "he", "kaiming", "lecun")
    for b in ("normal", "uniform")
]

CASES = [
    *((f, (), (5, 7), dtype) for f in FAMILIES for dtype in (None, np.float16, np.complex64)),
    *((f, (), (3, 3, 4, 6), None) for f in FAMILIES),
    *(
        ("variance_scaling", (0.5, mode, "normal"), (4, 6), None)
        for mode in ("fan_in", "fan_out", "fan_avg", "fan_geo_avg")
    ),
    ("variance_scaling", (1.0, "fan_in", "truncated_normal", (0, 1), 2, (), None), (2, 3, 4), None),
    ("uniform", (), (4,), None),
    ("uniform", (2.0,), (4,), np.float32),
    ("normal", (), (3, 2), None),
    ("normal", (0.3,), (3, 2), np.complex64),
    ("truncated_normal", (), (9,), None),
    ("truncated_normal", (1.0, None, -1.0, 0.5), (9,), None),
    ("constant", (3.5,), (2, 2), None),
    ("constant", (2,), (2, 2), np.int32),
    ("orthogonal", (), (6, 4), None),
    ("orthogonal", (2.0, 0), (3, 5, 2), None),
    ("orthogonal", (), (0, 4), None),
    ("delta_orthogonal", (), (3, 3, 4), None),
    ("delta_orthogonal", (), (3, 3, 2, 4), None),
    ("delta_orthogonal", (), (3, 3, 3, 2, 4), None),
]


@pytest.mark.parametrize("maker, options, shape, dtype", CASES)
def test_initializer(maker, options, shape, dtype):
    ours = getattr(initializers, maker)(*options)
    theirs = getattr(jax.nn.initializers, maker)(*options)
    arguments = (shape,) if dtype is None else (shape, dtype)
    got = ours(toile.random.key(7), *arguments)
    want = RECORD.in_test(lambda: theirs(jax.random.key(7), *arguments))
    half = got.dtype == np.float16
    # `orthogonal` goes through a QR factorisation, whose rounding depends on the LAPACK build.
    tolerance = 2e-3 if half else (2e-5 if "orthogonal" in maker else 1e-6)
    compare(got, want, tolerance, tolerance / 10, maker)


@pytest.mark.parametrize("name, value", [("zeros", 0.0), ("ones", 1.0)])
def test_constants(name, value):
    out = getattr(initializers, name)(toile.random.key(0), (2, 3))
    assert out.shape == (2, 3) and out.dtype == np.float32
    assert (np.asarray(out) == value).all()


def test_initializer_protocol():
    assert isinstance(initializers.zeros, initializers.Initializer)
    assert isinstance(initializers.he_normal(), initializers.Initializer)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda k: initializers.he_normal()(k, (3,)), "at least 2D"),
        (lambda k: initializers.variance_scaling(1.0, "fan", "normal")(k, (3, 3)), "invalid mode"),
        (lambda k: initializers.variance_scaling(1.0, "fan_in", "x")(k, (3, 3)), "distribution"),
        (lambda k: initializers.orthogonal()(k, (3,)), "2D"),
        (lambda k: initializers.delta_orthogonal()(k, (3, 3)), "3D, 4D or 5D"),
        (lambda k: initializers.delta_orthogonal()(k, (3, 4, 3)), "fan_in"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call(toile.random.key(0))
