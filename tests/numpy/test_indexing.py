"""Reading x[index] and writing x.at[index] against NumPy and JAX, eagerly and under jit."""

import random

import jax
import numpy as np
import pytest

import toile
import toile.numpy as tnp
from tests.numpy.compare import RECORD, check
from toile.numpy import index_read as indexing
from toile.numpy import index_update

CASES = """
x[jnp.array(100)]|x[jnp.array([100, -1, -100])]|x[[1, 2]]|x[1.0]|x[jnp.array(1.0)]|x['a']|x[0, 0]
x[..., ...]|x.at[jnp.array([100, -1, -11])].get()|x.at[jnp.array([100, -1, -11])].get(mode='clip')
x[object()]|x.at[jnp.array([100, -1, -11])].get(mode='fill')|x.at[jnp.array([100, -1, -11])].set(5)
i[jnp.array([20])]|i.at[jnp.array([20])].get(mode='fill')
i.at[jnp.array([20])].get(mode='fill', fill_value=-7)|x[True]|x[b]|x[np.array([True] * 2)]|x[0:5:0]
x[jnp.array(1):3]|x[1.5:3]|x[(1, 2),]|x[np.array([])]|m[[0, 1], 1]
m[jnp.array([1, 0]), jnp.array([0, 1, 2])]|jnp.asarray(3)[...]|jnp.asarray(3)[None]
jnp.asarray(3)[0]|x[jnp.array([1, 2], 'uint8')]|m[mask]|m[b[:2]]|m[:, b]|t[0, :, jnp.array([1, 2])]
t[:, 0, jnp.array([1, 2])]|t[jnp.array([0, 1]), None, :, jnp.array([1, 2])]|t[..., ::-1]
t[::-1, 1:2, ::2]|t[..., None, 1]|x[-1]|x[-2:]|jnp.zeros((0, 3))[jnp.array([], int)]
jnp.zeros((0, 3)).at[jnp.array([0])].set(1)|w[None]|k[()]|m.at[0].set(jnp.arange(3))
m.at[:, 0].set(x)|m.at[0].set([1, 2, 3])|m.at[0].set(None)|m.at[0].set(m)|m.at[0].min(0)
m.at[0].max(x)|m.at[1:, ::2].multiply(3)|m.at[::-1].set(m)|m.at[:, ::-2].add(x[:2])
m.at[jnp.array([0, 0]), None].add(1)|b.at[0].add(True)|b.at[0].max(True)|b.at[0].set(True)
x.at[()].set(2)|x.at[jnp.array([1, 1])].add(1)|x.at[jnp.array([1, 1])].multiply(3)
x.at[jnp.array([1, 1])].divide(2.0)|x.at[jnp.array([1, 1])].power(2.0)|x.at[1].subtract(2)
x.at[jnp.array([2, 9])].apply(jnp.square)|x.at[0].apply(jnp.sin)|m.at[0].apply(jnp.exp)
x.at[5:].set(1)|x.at[0].set(1, mode='foo')|x.at[b].set(0)|x.at[b].set(y[:2])|m.at[mask].multiply(2)
x.at[...].set(1)|jnp.full(2, 3).at[0].set(2)|w.at[()].add(1)|x.at[jnp.array([-4])].set(1)
x.at[jnp.array(-1)].add(2)|x.at[jnp.array([-1])].set(5, wrap_negative_indices=False)
x.at[jnp.array([9])].set(5, mode='clip')|lib.jit(lambda a, q: a[q])(x, 1)
lib.jit(lambda a, q: a[q])(x, -1)|lib.jit(lambda a, q: a[q])(x, 7)
lib.jit(lambda a, q: a[q, 1:])(m, 1)|lib.jit(lambda a, q: a[:, q])(m, i)
lib.jit(lambda a: a[a > 1])(x)|lib.jit(lambda a, q: a[q:q + 1])(x, 1)
lib.jit(lambda a, q: a.at[q].set(9))(x, 1)|lib.jit(lambda a, q: a.at[q].set(9))(x, 7)
lib.jit(lambda a, q: a.at[q, 0].add(9))(m, 1)|lib.jit(lambda a: a.at[a > 1].set(0))(x)
lib.jit(lambda a: a.at[1:].mul(2))(x)|lib.vmap(lambda a, q: a[q])(m, jnp.array([0, 2]))
lib.vmap(lambda a, q: a.at[q].set(0))(m, jnp.array([0, 2]))|lib.vmap(lambda a: a.at[1:].set(0))(m)
lib.vmap(lambda q: x.at[q].add(1))(i)|lib.vmap(lambda q: x[q])(i)
lib.grad(lambda a: (a[jnp.array([0, 0, 2])] ** 2).sum())(x)
lib.grad(lambda a: a[jnp.array([9, 1])].sum())(x)
lib.grad(lambda a: (a.at[1].set(a[0] * 3) ** 2).sum())(x)
lib.grad(lambda a: (a.at[i].add(a) ** 2).sum())(x)
lib.grad(lambda a: (m.at[:, 1].multiply(a[:2]) ** 2).sum())(x)|lib.grad(lambda a: a[::-2].prod())(x)
lib.grad(lambda a: (a.at[jnp.array([0, 1])].set(y[:2]) ** 2).sum())(x)
lib.grad(lambda a: a[b].sum())(x)
"""


@pytest.mark.parametrize("case", [c for line in CASES.strip().split("\n") for c in line.split("|")])
def test_as_jax(case):
    check(case)


def _random_index(rng, shape):
    """An index with integers, slices, None, Ellipsis, masks and index arrays in any order."""
    out, axis, dots = [], 0, False
    while axis < len(shape):
        kind = rng.choice("none dots end int slice slice mask array array".split())
        n = shape[axis]
        if kind == "none":
            out.append(None)
        elif kind == "dots" and not dots:
            dots = True
            out.append(...)
            axis += rng.randint(0, len(shape) - axis)
        elif kind == "end":
            break
        elif kind == "int":
            out.append(rng.randint(-n, n - 1))
            axis += 1
        elif kind == "slice":
            bound = lambda n=n: rng.choice([None, rng.randint(-n - 1, n + 1)])
            out.append(slice(bound(), bound(), rng.choice([None, 1, 2, -1, -2])))
            axis += 1
        elif kind == "mask":
            k = rng.randint(1, min(2, len(shape) - axis))
            size = int(np.prod(shape[axis:axis + k]))
            flat = [rng.random() < 0.5 for _ in range(size)]
            out.append(np.array(flat).reshape(shape[axis:axis + k]))
            axis += k
        elif kind == "array":
            dims = rng.choice([(), (2,), (3, 2), (1, 2)])
            values = [rng.randint(-n, n - 1) for _ in range(int(np.prod(dims)))]
            out.append(np.array(values, np.int32).reshape(dims))
            axis += 1
    return tuple(out)


def _operand(index, traced):
    convert = lambda i: tnp.asarray(i) if isinstance(i, np.ndarray) and traced else i
    return tuple(convert(i) for i in index)


@pytest.mark.parametrize("seed", range(4))
def test_random_indices_read_and_write_as_numpy(seed):
    rng = random.Random(seed)
    for _ in range(60):
        shape = tuple(rng.choice([2, 3, 4]) for _ in range(rng.randint(1, 4)))
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        index = _random_index(rng, shape)
        try:
            wanted = x[index]
        except IndexError:
            continue
        array, key = tnp.asarray(x), _operand(index, rng.random() < 0.5)
        for got in (array[key], indexing.get(array, key)):
            assert got.shape == wanted.shape, (shape, index)
            np.testing.assert_array_equal(got, wanted, err_msg=f"{shape} {index}")
        values = np.asarray(rng.random(), np.float32) + np.zeros(wanted.shape, np.float32)
        for name, function in (("add", np.add), ("mul", np.multiply), ("min", np.minimum)):
            expected = x.copy()
            function.at(expected, index, values)
            method = {"mul": "multiply"}.get(name, name)
            for got in (getattr(array.at[key], method)(values),
                        index_update.update(array, key, values, name)):
                np.testing.assert_allclose(got, expected, 1e-5, err_msg=f"{name} {shape} {index}")


def test_integer_out_of_bounds_raises():
    x = tnp.arange(5)
    for use in (lambda a: a[7], lambda a: a[-6], lambda a: a[np.int64(9)]):
        with pytest.raises(IndexError, match="out of bounds for axis 0 with size 5"):
            use(x)
        with pytest.raises(IndexError, match="out of bounds"):
            toile.jit(use)(x)


def test_lossy_update_warns():
    with pytest.warns(FutureWarning, match="cannot safely cast"):
        assert tnp.arange(3).at[0].set(1.5).tolist() == [1, 1, 2]
    with pytest.warns(FutureWarning):
        assert tnp.arange(3).at[0].add(1.5).dtype == np.int32


def test_static_indices_become_slices():
    def primitives(f):
        return str(toile.make_jaxpr(f)(tnp.zeros((4, 5))))

    for f in (lambda x: x[1], lambda x: x[1:3, ::-1], lambda x: x[..., None, 2]):
        assert "gather" not in primitives(f)
    for f in (lambda x: x.at[1].set(0.0), lambda x: x.at[1:3, 2].add(1.0)):
        assert "scatter" not in primitives(f)


def test_agrees_with_jax_on_mixed_layouts():
    rng = random.Random(7)
    for _ in range(10):
        x = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
        index = _random_index(rng, x.shape)
        wanted = RECORD.in_test(lambda x=x, i=index: jax.numpy.asarray(x)[_jax_index(i)])
        np.testing.assert_array_equal(tnp.asarray(x)[index], wanted)


def _jax_index(index):
    return tuple(jax.numpy.asarray(i) if isinstance(i, np.ndarray) and i.dtype != bool else i
                 for i in index)
