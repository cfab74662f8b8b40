"""Kernels whose innermost axis has few elements: values, and hints for the vectorizer."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.compiler.test_fusion import planned
from toile.kernels.nest.cpu_bodies import FEW, SHORT
from toile.targets.llvm.processors import MASKED, UNMASKED, for_vectors

pytestmark = pytest.mark.cpu
EXTENTS = [1, 2, FEW, FEW + 1, 12, 16, 17, 31, 33, SHORT, SHORT + 1, 100]
FUNCTIONS = {
    "map": lambda x, y, z: jnp.exp(x[:, None] + y[:, :, None] - z),
    "cheap map": lambda x, y, z: x[:, None] + y[:, :, None] * z,
    "row": lambda x, y, z: toile.nn.logsumexp(x[:, None] + y[:, :, None] + z, axis=-1),
    "softmax": lambda x, y, z: toile.nn.softmax(x[:, None] * z, axis=-1) * y[:, :, None],
    "column": lambda x, y, z: jnp.exp(x[:, None] + y[:, :, None]).sum(1) + x,
    "total": lambda x, y, z: jnp.tanh(x[:, None] + z).sum(0),
    "rows and their sum": lambda x, y, z: (lambda t: (t, t.sum(0)))(toile.nn.softplus(x)),
    "cheap rows and their sum": lambda x, y, z: (lambda t: (t, t.sum(0)))(x * 2 + 1),
    "several rows": lambda x, y, z: (lambda t: (t, t * x, t.sum(0)))(jnp.sin(x)),
    "transposed rows": lambda x, y, z: (lambda t: (t.T, t.sum(0)))(jnp.tanh(x) * 2),
    "transposed map": lambda x, y, z: jnp.exp(x).T,
    "gradient": lambda x, y, z: toile.grad(
        lambda x: (toile.nn.gelu(x + z[0]) ** 2).sum() + toile.nn.softplus(x).sum(0).max())(x),
    "mapped": lambda x, y, z: toile.vmap(toile.value_and_grad(
        lambda q, p: toile.nn.softplus(jnp.where(p > 0, -q, q)).sum()), (1, None))(x, x[:, 0]),
}  # fmt: skip


def arguments(n, rows=37):
    rng = np.random.default_rng(n)
    return [rng.standard_normal(s).astype(np.float32) for s in ((rows, n), (rows, 8), (8, n))]


def texts(f, *args):
    """The texts of a function's kernels."""
    _, plan, _ = planned(f, *args)
    return [x.text for step in plan.steps for x in getattr(step, "launches", ())]


@pytest.mark.parametrize("n", EXTENTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name, n, capfd):
    f, args = FUNCTIONS[name], arguments(n)
    got = toile.tree.leaves(toile.jit(lambda *xs: f(*xs))(*args))
    for a, b in zip(got, toile.tree.leaves(f(*map(jnp.asarray, args))), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    assert "not vectorized" not in capfd.readouterr().err


@pytest.mark.parametrize("n", EXTENTS[1:])
def test_hints(n):
    """Loops over a few elements are not interleaved; costly ones use masks instead."""
    costly = texts(FUNCTIONS["column"], *arguments(n))
    assert any(MASKED in text for text in costly) == (FEW < n <= SHORT)
    assert not any(MASKED in text for text in texts(FUNCTIONS["cheap map"], *arguments(n)))
    more = 'interleave.count", i32 4'
    assert any(more in text for text in texts(lambda x: x + x[0], arguments(n)[0])) == (n > SHORT)


def test_processors_without_masks():
    source = f"define void @f() nounwind {{ }}\n!0 = !{{!{MASKED}}}\n"
    assert for_vectors(source, 32) == for_vectors(source, 16) == source.replace(MASKED, UNMASKED)
    assert MASKED in for_vectors(source, 64) and "prefer-vector-width" in for_vectors(source, 64)


def test_rows_that_are_stored_beside_their_sum_are_independent():
    """A kernel adds several rows at once and stores each of them through one pointer."""
    x = arguments(16)[0]
    both = texts(lambda x: (lambda t: (t, t.sum(0)))(jnp.tanh(x)), x)
    assert any("llvm.loop.parallel_accesses" in text for text in both)
    assert not any("parallel" in text for text in texts(lambda x: jnp.tanh(x).sum(0), x))


@pytest.mark.parametrize(("rows", "copied"), [(37, False), (200, True)])
def test_results_that_are_stored_in_another_order_are_copied(rows, copied):
    """Small ones are not."""
    x = arguments(8, rows)[0]
    _, plan, _ = planned(lambda x: FUNCTIONS["mapped"](x, x, x), x)
    notes = [launch.note for step in plan.steps for launch in getattr(step, "launches", ())]
    assert ("column" in notes, "copy" in notes) == (True, copied)
