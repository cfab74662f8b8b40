"""Reductions over a few elements, and operands that are not dense: as outside jit."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.cases import noted
from tests.compiler.test_fusion import planned
from toile.kernels.nest import cpu_launches, cpu_short_rows

pytestmark = pytest.mark.cpu
ROWS = 40
FUNCTIONS = {
    "norm": lambda x: jnp.sqrt((x * x).sum(-1)),
    "normalized": lambda x: x / jnp.sqrt(1 + (x * x).sum(-1, keepdims=True)),
    "softmax": lambda x: toile.nn.softmax(x),
    "loss": lambda x: toile.nn.logsumexp(x, axis=-1) - x[..., 0],
    "largest": lambda x: (x.max(-1), x.min(-1)),
    "product": lambda x: x.prod(-1) + 1,
    "centered": lambda x: ((x - x.mean(-1, keepdims=True)) ** 2).mean(-1),
    "pairs": lambda x: ((x[..., :, None, :] - x[..., None, :, :]) ** 2).sum(-1),
    "of a broadcast": lambda x: (x[..., :1] * jnp.arange(float(x.shape[-1]))).sum(-1),
    "with places": lambda x: (x * jnp.arange(x.shape[-2], dtype=x.dtype)[:, None]).sum(-1),
    "numbered": lambda x: jnp.where(jnp.arange(x.shape[-1]) == 1, x, 0.0).sum(-1),
    "places": lambda x: (x + jnp.arange(x.size).reshape(x.shape)).sum(-1),
    "random": lambda x: (x * toile.random.normal(toile.random.key(0), x.shape)).sum(-1),
    "transposed": lambda x: jnp.exp(x.mT).sum(-1) + jnp.exp(x.mT).sum(-2).sum(-1, keepdims=True),
    "gradient": lambda x: toile.grad(lambda x: jnp.sqrt(1 + (x**2).sum(-1)).sum())(x),
}


def close(f, *args):
    got, want = toile.jit(lambda *args: f(*args))(*args), f(*args)
    for g, w in zip(toile.tree.leaves(got), toile.tree.leaves(want), strict=True):
        assert g.dtype == w.dtype
        bound = 1e-12 if w.dtype == np.float64 else 1e-5
        np.testing.assert_allclose(np.asarray(g, "f8"), np.asarray(w, "f8"), bound, bound)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_rows(name):
    for length in (2, 3, 5, 8, 9):
        for shape in ((ROWS, length), (3, ROWS, length), (2, 5, length)):
            with noted(f"{shape}"):
                x = np.random.default_rng(length).standard_normal(shape).astype("f")
                close(FUNCTIONS[name], jnp.asarray(x))


@pytest.mark.parametrize("dtype", ["float64", "int32", "bool", "bfloat16", "uint8"])
def test_dtypes(dtype):
    with toile.enable_x64(dtype == "float64"):
        x = jnp.asarray(np.random.default_rng(0).integers(0, 3, (ROWS, 4))).astype(dtype)
        close(lambda x: (x.sum(-1), x.prod(-1), x.max(-1), x.min(-1), x.any(-1), x.all(-1)), x)


def test_special_values():
    rows = np.array([[np.nan, 1, 2], [np.inf, -np.inf, 0], [-0.0, 0.0, -0.0]], "f")
    x = jnp.asarray(np.tile(rows, (8, 1)))
    close(lambda x: (x.sum(-1), x.max(-1), x.min(-1), (x * x).sum(-1)), x)


def test_views():
    """Rows that are parts of longer ones, reversed, or the same for all."""
    x = jnp.asarray(np.random.default_rng(1).standard_normal((64, 12)).astype("f"))
    close(lambda x: (x[:, 2:11:3] ** 2).sum(-1), x)
    close(lambda x: jnp.exp(x[::-2, 6:2:-1]).sum(-1), x)
    close(lambda x: (jnp.broadcast_to(x[0, :3], (50, 3)) * 2).sum(-1), x)


def unrolls(f, *args):
    """Whether a loop nest of the compiled function was unrolled."""
    found = []

    def noting(x, plan):
        made = cpu_short_rows.unrolled(x, plan)
        found.append(made is not x)
        return made

    original, cpu_launches.unrolled = cpu_launches.unrolled, noting
    try:
        toile.explain(f)(*args)
    finally:
        cpu_launches.unrolled = original
    return any(found)


def test_which_rows_are_unrolled():
    norm = FUNCTIONS["norm"]
    assert unrolls(lambda x: norm(x), jnp.ones((ROWS, 3)))
    assert not unrolls(lambda x: norm(x), jnp.ones((ROWS, 30)))
    assert not unrolls(lambda x: norm(x), jnp.ones((3, 3)))
    assert unrolls(lambda key: norm(toile.random.normal(key, (ROWS, 3))), toile.random.key(0))


def test_costly_functions_of_operands_that_are_not_dense():
    x = jnp.asarray(np.random.default_rng(2).standard_normal((70, 50)).astype("f"))
    close(lambda x: jnp.log1p(jnp.exp(x.T)) + jnp.sin(x.T), x)
    close(lambda x: jnp.exp(x[:, ::2]) * x[0, ::2], x)
    close(lambda x: jnp.exp(x.T).sum(0), x)
    report = toile.explain(lambda x: jnp.exp(x.T))(x)
    assert "copy" in str(report)


# Parts of short rows that repeat: copies of them make longer rows. Shapes, and whether there are.
REPEATED = {
    "groups of channels": (((16, 64, 4, 4), (16, 1, 4, 1)), True),
    "and what has all channels": (((16, 64, 4, 4), (16, 1, 4, 1), (1, 1, 4, 4)), True),
    "several": (((16, 64, 3, 5), (16, 1, 3, 1), (3, 1), (1, 1, 1, 5)), True),
    "within a row": (((500, 2, 6), (1, 2, 1)), True),
    "longer than a vector": (((50, 4, 32), (1, 4, 1)), False),
    "large": (((50, 64, 4, 4), (50, 64, 4, 1)), False),
    "a number for each row": (((40, 4, 4), (40, 4, 1)), False),
}


@pytest.mark.parametrize("name", REPEATED)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "complex64"])
@pytest.mark.parametrize("summed", [False, True])
def test_repeated_parts_of_rows(name, dtype, summed):
    shapes, copied = REPEATED[name]
    rng = np.random.default_rng(0)
    xs = [jnp.asarray((rng.standard_normal(s) * 3).astype(dtype)) for s in shapes]

    def f(x, *rest):
        for y in rest:
            x = (x - y) * 2 + y * y
        return x.sum(tuple(range(x.ndim - 2)), dtype=x.dtype) if summed else x

    plan = planned(f, *xs)[1]
    found = [x.note for s in plan.steps for x in s.launches]
    if not summed:
        assert bool(found.count("copy")) == copied and found[-1] == "map"
    got, want = (np.asarray(g(*xs), "c16") for g in (toile.jit(f), f))
    loose = 0.1 * np.abs(want).max() if dtype == "bfloat16" else 1e-3
    np.testing.assert_allclose(got, want, 1e-4, loose)
