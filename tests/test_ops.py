"""`toile.ops` against `jax.ops`, and the derivative checks of `toile.test_util`."""

import jax
import numpy as np
import pytest

import toile
from tests.against_jax import RECORD, case, check, name, runs
from toile import test_util

F = np.float32
RNG = np.random.RandomState(5)
DATA = RNG.randn(8, 3).astype(F)
IDS = np.array([0, 2, 2, 1, -1, 5, 0, 9], np.int32)
OPS = ("segment_sum", "segment_prod", "segment_max", "segment_min")

CASES = [
    *(
        case("ops." + f, DATA, IDS, num_segments=6, grad=() if f == "segment_prod" else (0,))
        for f in OPS
    ),
    *(
        case("ops." + f, DATA[:, 0], np.sort(IDS), num_segments=4, indices_are_sorted=True)
        for f in OPS
    ),
    *(case("ops." + f, np.arange(8), IDS, num_segments=4) for f in OPS),
    *(case("ops." + f, DATA, IDS, num_segments=4, bucket_size=3) for f in OPS),
    case("ops.segment_max", DATA[:, 0] > 0, IDS, num_segments=4),
    case("ops.segment_sum", DATA, np.abs(IDS) % 3, jit=False),
    case("ops.segment_sum", DATA, IDS, num_segments=0),
]


@pytest.mark.parametrize("this, x64", runs(CASES), ids=name)
def test_ops(this, x64):
    check(this, x64)


def test_negative_num_segments():
    with pytest.raises(ValueError, match="non-negative"):
        toile.ops.segment_sum(DATA, IDS, num_segments=-1)


def test_segment_sum_under_vmap():
    got = toile.vmap(lambda d: toile.ops.segment_sum(d, IDS, 4))(np.stack([DATA, 2 * DATA]))
    want = RECORD.in_test(
        lambda: jax.vmap(lambda d: jax.ops.segment_sum(d, IDS, 4))(np.stack([DATA, 2 * DATA])))
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-6)


def test_check_grads_accepts_correct_derivatives():
    f = lambda x, y: toile.numpy.sin(x) * y["b"]
    args = (DATA[0], {"b": DATA[1]})
    test_util.check_grads(
        f, args, order=2, modes=("fwd", "rev", "lin"), atol=2e-2, rtol=2e-2, eps=1e-2
    )


def test_check_grads_rejects_wrong_derivatives():
    @toile.custom_jvp
    def f(x):
        return x * x

    f.defjvps(lambda dx, y, x: 3 * x * dx)
    for mode in ("fwd", "rev"):
        with pytest.raises(AssertionError):
            test_util.check_grads(f, (DATA[0],), order=1, modes=(mode,), eps=1e-2)


def test_check_vjp_of_complex_functions():
    z = (DATA[0] + 1j * DATA[1]).astype(np.complex64)
    test_util.check_grads(lambda z: toile.numpy.exp(z), (z,), 1, atol=1e-2, rtol=1e-2, eps=1e-2)
