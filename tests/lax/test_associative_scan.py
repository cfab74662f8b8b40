"""associative_scan: linear recurrences are recognized, other functions are not."""

import jax
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import lax

RNG = np.random.default_rng(0)
A = RNG.uniform(-1, 1, (3, 37, 4)).astype(np.float32)
B, W = RNG.normal(size=(2, 3, 37, 4)).astype(np.float32)


def composed(p, q):
    return p[0] * q[0], q[0] * p[1] + q[1]


def in_other_order(p, q):
    return {"z": q["z"] * p["z"], "b": q["b"] + p["b"] * q["z"]}


def by_names(p, q):
    return jnp.multiply(q[0], p[0]), jnp.add(jnp.multiply(p[1], q[0]), q[1])


def by_length(p, q):
    return composed(p, q) if p[0].shape[1] > 1 else (p[0] * q[0], p[1] + q[1])


def by_value(p, q):
    return composed(p, q) if float(p[0].sum()) < 1e9 else p


RECOGNIZED = {
    "pairs": (composed, (A, B)),
    "a dictionary": (in_other_order, {"z": A, "b": B}),
    "functions": (by_names, (A, B)),
    "lists": (lambda p, q: list(composed(p, q)), [A, B]),
    "vmap": (toile.vmap(composed), (A, B)),
    "integers": (composed, (np.arange(12).reshape(1, 12), np.ones((1, 12), int))),
    "complex": (composed, (np.exp(1j * A).astype(np.complex64), B.astype(np.complex64))),
}
OTHERS = {
    "suffixes": (lambda p, q: (p[0] * q[0], p[0] * q[1] + p[1]), (A, B)),
    "sums": (lambda p, q: (p[0] + q[0], q[0] * p[1] + q[1]), (A, B)),
    "other terms": (lambda p, q: (p[0] * q[0], q[0] * p[1] + p[1]), (A, B)),
    "another factor": (lambda p, q: (p[0] * q[0], 2 * q[0] * p[1] + q[1]), (A, B)),
    "three leaves": (lambda p, q: (*composed(p, q), p[2] + q[2]), (A, B, B)),
    "one leaf": (lambda p, q: p * q, A),
    "lengths": (by_length, (A, B)),
    "booleans": (composed, (A > 0, B > 0)),
    "other shapes": (composed, (A[..., :1], B)),
    "other dtypes": (lambda p, q: (p[0] * q[0], (q[0] * p[1]).astype(np.float16) + q[1]),
                     (A, B.astype(np.float16))),
    "dots": (lambda p, q: (p[0] * q[0], jnp.einsum("btd,btd->bt", q[0], p[1])[..., None] + q[1]),
             (A, B)),
}  # fmt: skip


def operations(f, elems):
    program = toile.make_jaxpr(lambda e: lax.associative_scan(f, e, axis=1))(elems).jaxpr
    return [e.op.name for e in program.equations]


def same(f, elems, **options):
    got = lax.associative_scan(f, elems, **options)
    want = jax.lax.associative_scan(f, elems, **options)
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, 1e-5, 1e-5)


@pytest.mark.parametrize("name", RECOGNIZED)
def test_recognized(name):
    f, elems = RECOGNIZED[name]
    assert operations(f, elems) == ["cumprod", "linear_recurrence"]
    if name not in ("functions", "vmap"):  # which are toile's
        for reverse in (False, True):
            same(f, elems, reverse=reverse, axis=1)


@pytest.mark.parametrize("name", OTHERS)
def test_not_recognized(name):
    assert "linear_recurrence" not in operations(*OTHERS[name])


def test_functions_of_values():
    """They cannot be traced; outside of jit they are applied as they are."""
    same(by_value, (A, B), axis=-1)
    with toile.disable_jit():
        same(composed, (A, B), axis=1)


def test_the_product_is_removed_if_it_is_not_used():
    e = toile.explain(lambda a, b: lax.associative_scan(composed, (a, b), axis=1)[1])(A, B)
    assert [k.operations for k in e.kernels] == [["linear_recurrence"]] and not e.python_steps


@pytest.mark.parametrize("reverse", [False, True])
def test_gradients(reverse):
    def loss(lib, a, b):
        out = lib.lax.associative_scan(composed, (a, b), reverse=reverse, axis=1)
        return (out[1] * W + out[0]).sum()

    want = jax.grad(lambda a, b: loss(jax, a, b), (0, 1))(A, B)
    gradient = toile.grad(lambda a, b: loss(toile, a, b), (0, 1))
    for got in (gradient(A, B), toile.jit(gradient)(A, B)):
        for x, y in zip(got, want, strict=True):
            np.testing.assert_allclose(x, y, 1e-4, 1e-5)
