"""Gathered rows and sums along edges are stored where they are joined, and read from there."""

import ml_dtypes
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.compiler.test_picks import check, notes, run  # noqa: F401 (a fixture)

ROWS, MANY = 24, 40


def arrays(dtype="float32"):
    random = np.random.default_rng(0)
    x, y = (random.standard_normal(shape).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
            for shape in ((ROWS, 16), (MANY, 16)))
    ids, others = (random.integers(-3, ROWS + 3, MANY).astype(np.int32) for _ in range(2))
    return x, y, ids, others


def segments(x, ids):
    return toile.ops.segment_sum(x, ids, MANY)


def joined(x, y, ids, others, axis=1):
    return jnp.concatenate([x.at[ids].get(mode="fill"), y, x.at[others].get(mode="clip")], axis)


PROGRAMS = {
    "columns": lambda x, y, i, j: joined(x, y, i, j) @ y[:1].repeat(48, 0),
    "rows": lambda x, y, i, j: joined(x, y, i, j, 0) @ y[:16],
    "a result": joined,
    "also read elsewhere": lambda x, y, i, j: (
        joined(x, y, i, j) @ y[:1].repeat(48, 0), x.at[i].get(mode="fill") * 2, jnp.sort(x[j], 1)),
    "padded": lambda x, y, i, j: jnp.pad(x.at[i].get(mode="clip"), ((1, 2), (3, 0))) @ y[:19],
    "a block": lambda x, y, i, j: jnp.zeros((50, 20), x.dtype).at[3:43, 2:18].set(
        x.at[i].get(mode="clip")) @ y[:20],
    "turned": lambda x, y, i, j: jnp.concatenate([x.at[i].get(mode="clip").T, y.T]) @ y,
    "sums": lambda x, y, i, j: jnp.concatenate([segments(y, i), y, segments(y, j)], 1)
    @ y[:1].repeat(48, 0),
    "sums of a part": lambda x, y, i, j: (lambda z: (
        jnp.concatenate([z, y], 1) @ y[:1].repeat(32, 0), segments(z, i), segments(z, j)))(
            jnp.tanh(y) * 2),
    "sums of gathered rows": lambda x, y, i, j: jnp.concatenate(
        [y, segments(x.at[i].get(mode="clip"), j)], 1) @ y[:1].repeat(32, 0),
    "sums of rows of several axes": lambda x, y, i, j: toile.ops.segment_sum(
        (jnp.tanh(y) * 2).reshape(-1, 16), i, 30) + toile.grad(
            lambda x: (x.at[j.reshape(5, 8)].get(mode="clip") * y.reshape(5, 8, 16)).sum())(x)[:1],
    "sums of a part with several axes": lambda x, y, i, j: (lambda z: (
        jnp.concatenate([z, z + 1], 2).sum((0, 1)) + 0,
        jnp.concatenate([z, y.reshape(5, 8, 16)], 2).reshape(40, 32) @ y[:32],
        jnp.zeros((MANY, 16), x.dtype).at[j.reshape(5, 8)].add(z, mode="drop")))(
            jnp.tanh(y).reshape(5, 8, 16) * 2),
    "sums that start": lambda x, y, i, j: jnp.concatenate(
        [y, jnp.sin(y).at[j].add(y[i], mode="drop")], 1) @ y[:1].repeat(32, 0),
    "many segments": lambda x, y, i, j: jnp.concatenate(
        [toile.ops.segment_sum(y[:4], i[:4], 300), jnp.ones((300, 16), x.dtype)], 1)
    @ y[:1].repeat(32, 0),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name, dtype, run):  # noqa: F811
    check(run, PROGRAMS[name], arrays(dtype))


LARGE = [np.ones((1 << 15, 16), np.float32)] * 2 + [np.zeros(1 << 15, np.int32)] * 2


def large(x, i):
    return toile.ops.segment_sum(x, i, 1 << 15)


@pytest.mark.parametrize("f", [
    lambda x, y, i, j: joined(jnp.tanh(x), jnp.sin(y), i, j) @ y[:48],
    lambda x, y, i, j: jnp.concatenate([large(y, i), jnp.sin(y)], 1) @ y[:32],
    lambda x, y, i, j: (lambda z: (
        jnp.concatenate([z, jnp.sin(y)], 1) @ y[:32], large(z, i)))(jnp.tanh(y)),
], ids=["gathers", "sums", "sums of a part"])
def test_nothing_is_copied(f):
    assert not {"copy", "concatenate", "pad"} & {*notes(f, LARGE)}
