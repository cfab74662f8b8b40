"""Linear recurrences: values against a loop, and every rule against a scan of JAX."""

import numpy as np
import pytest
from jax import lax

import toile
from tests.primitives.rules import check
from tests.recurrence_cases import DTYPES, LENGTHS, WAYS, looped, operands, wide
from toile.engine.avals import Aval
from toile.engine.conversion import as_array
from toile.primitives.recurrences import LinearRecurrence


@pytest.mark.parametrize(("reverse", "shifted"), WAYS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_values(dtype, reverse, shifted):
    for n in LENGTHS:
        for shape, axis in [((n,), 0), ((2, n), 1), ((n, 3), 0), ((2, n, 3), 1)]:
            a, b = operands(shape, dtype, axis, reverse, shifted)
            with np.errstate(all="ignore"):
                got = LinearRecurrence(axis, reverse, shifted).eager(np, a, b)
            want = looped(a, b, axis, reverse, shifted)
            assert got.dtype == want.dtype
            rtol = 0 if a.dtype.kind in "iu" else 1e-5 if a.dtype.itemsize >= 4 else 2e-2
            got, want = (x.astype(wide(a.dtype)) for x in (got, want))
            np.testing.assert_allclose(got, want, rtol, rtol)


def test_many_columns_and_no_elements():
    a, b = operands((300, 5000), np.float32)
    np.testing.assert_allclose(LinearRecurrence(0).eager(np, a, b),
                               looped(a, b, 0, False, False), 1e-4, 1e-5)
    assert LinearRecurrence(1)(np.zeros((3, 0)), np.zeros((3, 0))).shape == (3, 0)


def scanned(axis, reverse, shifted):
    """The same by JAX's scan."""
    def run(a, b):
        a, b = (x.swapaxes(0, axis) for x in (a, b))
        if shifted:
            a = lax.concatenate([a[1:], a[:1]] if reverse else [a[:1], a[:-1]], 0)

        def step(h, row):
            h = row[0] * h + row[1]
            return h, h

        at = -1 if reverse else 0
        inner = slice(None, -1) if reverse else slice(1, None)
        _, h = lax.scan(step, b[at], (a[inner], b[inner]), reverse=reverse)
        parts = [h, b[at][None]] if reverse else [b[at][None], h]
        return lax.concatenate(parts, 0).swapaxes(0, axis)

    return run


@pytest.mark.parametrize(("reverse", "shifted"), WAYS)
@pytest.mark.parametrize(("shape", "axis"), [((7,), 0), ((3, 6), 1), ((2, 4, 2), 1), ((1, 3), 0)])
def test_rules(shape, axis, reverse, shifted):
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
    check(LinearRecurrence(axis, reverse, shifted), scanned(axis, reverse, shifted), a, b,
          second=len(shape) == 1)


def test_complex():
    rng = np.random.default_rng(0)
    a, b = ((rng.normal(size=5) + 1j * rng.normal(size=5)).astype(np.complex64) for _ in range(2))
    check(LinearRecurrence(0), scanned(0, False, False), a, b, rtol=1e-4)


@pytest.mark.parametrize(("reverse", "shifted"), WAYS)
def test_transpose_is_the_adjoint(reverse, shifted):
    op, rng = LinearRecurrence(1, reverse, shifted), np.random.default_rng(0)
    a, b, u = rng.uniform(-1, 1, (3, 2, 150, 4))
    _, back = op.transpose(as_array(u), as_array(a), Aval(b.shape, b.dtype))
    np.testing.assert_allclose((u * op.eager(np, a, b)).sum(), (np.asarray(back) * b).sum(), 1e-5)


def test_gradients_ignore_the_unused_coefficient():
    a, b = operands((9,), np.float32)
    da, db = toile.grad(lambda a, b: LinearRecurrence(0)(a, b).sum(), (0, 1))(a, b)
    assert da[0] == 0 and np.isfinite(da).all() and np.isfinite(db).all()


def test_errors():
    x = Aval((3, 4), np.dtype(np.float32))
    with pytest.raises(ValueError, match="axis 2 is out of bounds"):
        LinearRecurrence(2).infer(x, x)
    for other in (Aval((3, 1), x.dtype), Aval(x.shape, np.dtype(np.float64))):
        with pytest.raises(TypeError, match="linear_recurrence: needed two"):
            LinearRecurrence(0).infer(x, other)
    with pytest.raises(NotImplementedError, match="not linear in the coefficients"):
        LinearRecurrence(0).transpose(x, x, x)
