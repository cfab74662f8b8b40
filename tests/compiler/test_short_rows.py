"""Reductions over a few elements, and operands that are not dense: as outside jit."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.cases import noted
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


def test_costly_functions_of_operands_that_are_not_dense():
    x = jnp.asarray(np.random.default_rng(2).standard_normal((70, 50)).astype("f"))
    close(lambda x: jnp.log1p(jnp.exp(x.T)) + jnp.sin(x.T), x)
    close(lambda x: jnp.exp(x[:, ::2]) * x[0, ::2], x)
    close(lambda x: jnp.exp(x.T).sum(0), x)
    report = toile.explain(lambda x: jnp.exp(x.T))(x)
    assert "copy" in str(report)
