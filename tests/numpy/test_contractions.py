"""Products of arrays against jax.numpy: values, dtypes, weak types, errors, gradients."""

import jax
import numpy as np
import pytest

import toile
import toile.numpy as tnp
from tests.numpy.compare import RECORD, check

CASES = """
jnp.matmul(m, x)|jnp.matmul(x, y)|jnp.matmul(m, m.T)|jnp.matmul(t, jnp.ones((4, 2)))
jnp.matmul(x, t)|jnp.matmul(t, jnp.ones((2, 4, 2)))
jnp.matmul(jnp.ones((5, 1, 3, 4)), jnp.ones((2, 4, 2)))|jnp.matmul(m, t)
jnp.matmul(jnp.ones((2, 1, 3, 4)), jnp.ones((1, 6, 4, 2)))
jnp.matmul(jnp.ones((3, 4)), jnp.ones((7, 4, 2)))|jnp.matmul(m, m)|jnp.matmul(2.0, x)
jnp.matmul(i, j)|jnp.matmul(i8, i8)|jnp.matmul(b, b)|jnp.matmul(m, i)
jnp.matmul(bf, bf, preferred_element_type=jnp.float32)|jnp.matmul(h, h)|jnp.matmul(c, c)
jnp.matmul(i8, i8, preferred_element_type='int32')
jnp.matmul(jnp.ones((2, 3, 4)), jnp.ones((3, 4, 2)))|jnp.dot(m, x)|jnp.dot(2, x)
jnp.dot(t, jnp.ones((5, 4, 2)))|jnp.dot(2.0, 3)|jnp.dot(x, m)|jnp.dot(x, y, precision='highest')
jnp.vdot(m, m)|jnp.vdot(c, c)|jnp.vdot(x, i)|jnp.inner(m, m)|jnp.inner(2, x)
jnp.inner(t, jnp.ones((5, 4)))|jnp.outer(x, y)|jnp.outer(m, i)|jnp.outer(2, x)|jnp.kron(x, y)
jnp.kron(m, jnp.eye(2))|jnp.kron(t, x)|jnp.tensordot(t, t, 3)|jnp.tensordot(m, t, ((1,), (1,)))
jnp.tensordot(m, t, 1)|jnp.tensordot(t, t, ([0, 1], [0, 1]))|jnp.tensordot(x, y, 0)
jnp.tensordot(m, m, 3)|jnp.tensordot(m, t, ((0, 1), (0, 1)))|jnp.cross(x, y)|jnp.cross(m, x)
jnp.cross(x[:2], y[:2])|jnp.cross(x[:2], y)|jnp.cross(m.T, m.T, axis=0)|jnp.cross(t, t)
jnp.vecdot(m, x)|jnp.vecdot(c, c)|jnp.vecdot(t, t, axis=1)|jnp.matvec(t, jnp.ones(4))
jnp.vecmat(jnp.ones(3), t)|jnp.vecmat(c, jnp.ones((3, 2)))|jnp.vecdot(x, m[0, :2])
jnp.matmul(o, jnp.ones((3, 2)))|jnp.matmul(w * jnp.ones(2), 2)|jnp.einsum('ij,j', m, x)
jnp.einsum('ij,jk->ik', m, m.T)|jnp.einsum('ii', jnp.eye(3))|jnp.einsum('ii->i', jnp.eye(3))
jnp.einsum('i,j', x, y)|jnp.einsum('...i,...i->...', t, jnp.ones(4))
jnp.einsum('bij,bjk->bik', t, jnp.ones((2, 4, 2)))|jnp.einsum('ijk->kji', t)|jnp.einsum('ijk->', t)
jnp.einsum('ij,jk,kl->il', m, m.T, m)|jnp.einsum('i,i,i->i', x, x, y)|jnp.einsum('i,i,i', x, x, y)
jnp.einsum('ij,kj->ki', m, m)|jnp.einsum(m, [0, 1], x, [1], [0])|jnp.einsum(m, [0, 1])
jnp.einsum('ij->ji', m)|jnp.einsum('i', x)|jnp.einsum('ij,ij->j', m, m)
jnp.einsum('...ij,...jk', t, jnp.ones((4, 2)))|jnp.einsum('i...,i->...', t, jnp.ones(2))
jnp.einsum('iij->j', jnp.ones((2, 2, 3)))|jnp.einsum('ij,ji->', m, m.T)
jnp.einsum('ij,k->ijk', m, x)
jnp.einsum('aij,bjk,ckl->abcil', t, jnp.ones((1, 4, 2)), jnp.ones((3, 2, 2)))
jnp.einsum('ij,j->i', i[None], j)
jnp.einsum('ij,j', bf[None], bf, preferred_element_type=jnp.float32)|jnp.einsum('ij,jk', m, x)
jnp.einsum('ij->k', m)|jnp.einsum('ij,j', m)|jnp.einsum('i,j->ij', 2.0, x)
jnp.einsum('ij , jk -> ik', m, m.T)|jnp.einsum('ij,jk', m, m)
jnp.einsum('bqhd,bkhd->bhqk', jnp.ones((2, 3, 2, 4)), jnp.ones((2, 5, 2, 4)))
jnp.einsum('ab,ab,ab->', m, m, m)|jnp.einsum('ij,j', m, x, optimize='greedy')
jnp.einsum('ij,j', m, x, precision='highest')|jnp.einsum(',', 2.0, 3.0)
jnp.einsum('ij,jk->ik', jnp.ones((2, 1)), jnp.ones((3, 2)))|jnp.linalg.multi_dot([m, m.T, m])
jnp.linalg.multi_dot([x, m.T])|jnp.linalg.multi_dot([x])|jnp.linalg.matmul(m, x)
jnp.linalg.outer(x, y)|lib.jit(lambda a: jnp.einsum('ij,kj->ik', a, a))(m)
lib.vmap(lambda a: a @ m.T)(m)|lib.vmap(jnp.matmul, in_axes=(0, None))(t, jnp.ones((4, 2)))
"""


@pytest.mark.parametrize("case", [c for line in CASES.strip().split("\n") for c in line.split("|")])
def test_as_jax(case):
    if case.startswith("jnp.cross(x[:2]") and jax.__version_info__ >= (0, 12):
        pytest.skip("vectors of two elements are refused since 0.12; toile takes them")
    check(case)


def test_einsum_path_names_every_contraction():
    a = tnp.ones((2, 3))
    path, text = tnp.einsum_path("ij,jk,kl->il", a, a.T, a)
    assert sorted(len(p) for p in path) == [2, 2] and "FLOP" in text


@pytest.mark.parametrize("text", [
    "jnp.sum(jnp.matmul(a, b) ** 2)", "jnp.sum(jnp.einsum('bij,bkj->bik', a, a) ** 2)",
    "jnp.sum(jnp.tensordot(a, b, ((2,), (1,))) ** 2)", "jnp.einsum('bii->', a[:, :, :3])",
    "jnp.sum(jnp.kron(a[0], b[0]) ** 2)",
    "jnp.sum(jnp.cross(a[..., :3], b[:, :3, 0][:, None]) ** 2)",
])
def test_gradients_agree(text):
    a = np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 7
    b = np.arange(16, dtype=np.float32).reshape(2, 4, 2) / 5
    of = lambda jnp: lambda a, b: eval(text, {"jnp": jnp, "a": a, "b": b})
    theirs = RECORD.in_test(lambda: jax.grad(of(jax.numpy), (0, 1))(a, b))
    for wanted, got in zip(theirs, toile.grad(of(tnp), (0, 1))(a, b), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
