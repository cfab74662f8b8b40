"""Operations outside of jit on a GPU: the ways that are learned give what the first call gave."""

import threading

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile.platforms.gpu import eager as gpu_eager
from toile.platforms.gpu.arrays import GpuArray, operators

pytestmark = pytest.mark.gpu
X = np.random.default_rng(0).normal(size=(40, 50)).astype("f4")
FUNCTIONS = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "divide": lambda x, y: x / y,
    "compare": lambda x, y: x < y,
    "number": lambda x, y: 2.5 - x * 3,
    "zero": lambda x, y: 1 / (x * 0.0),
    "minus zero": lambda x, y: 1 / (x * -0.0),
    "other dtype": lambda x, y: x + y.astype("int32"),
    "other shape": lambda x, y: x * y[0],
    "exp": lambda x, y: jnp.exp(x),
    "sum": lambda x, y: jnp.sum(x, axis=1),
    "product": lambda x, y: jnp.matmul(x, y.T, precision="highest"),
    "sort": lambda x, y: jnp.sort(x, axis=0),
    "two results": lambda x, y: toile.lax.top_k(x, 3)[0],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_at_every_call(name):
    fun = FUNCTIONS[name]
    x, y = jnp.asarray(X), jnp.asarray(X[::-1].copy())
    with toile.default_device(toile.devices("cpu")[0]):
        wanted = np.asarray(fun(jnp.asarray(X), jnp.asarray(X[::-1].copy())))
    first = fun(x, y)
    for _ in range(4):
        out = fun(x, y)
        assert out.dtype == first.dtype and out.shape == first.shape
        assert out.weak_type == first.weak_type
        np.testing.assert_array_equal(np.asarray(out), np.asarray(first))
    np.testing.assert_allclose(np.asarray(first), wanted, rtol=1e-5, atol=1e-5)


def test_ways_are_learned():
    x, y = jnp.asarray(X), jnp.asarray(X)
    for _ in range(4):
        x + y
    way = operators.table()["__add__", x._signature, y._signature]
    assert way in gpu_eager._ways.values()
    out = x + y
    assert type(out) is GpuArray
    assert out.shape == (40, 50) and out.devices() == x.devices()


def test_deleted_arrays_are_refused():
    x, y = jnp.asarray(X), jnp.asarray(X)
    for _ in range(4):
        x + y
    y.delete()
    with pytest.raises(RuntimeError, match="has been deleted"):
        x + y
    with pytest.raises(RuntimeError, match="has been deleted"):
        jnp.add(x, y)


def test_the_configuration_counts():
    x, y = jnp.asarray(X), jnp.asarray(X[0])
    for _ in range(4):
        x + y
    with toile.numpy_rank_promotion("raise"), pytest.raises(ValueError, match="rank"):
        x + y
    with toile.debug_nans(True), pytest.raises(FloatingPointError):
        for _ in range(4):
            (x * jnp.inf) - (x * jnp.inf)


def test_memory_of_results_is_not_kept():
    x = jnp.zeros((1 << 22,))
    device = x.device
    for _ in range(4):
        x + x
    before = device.memory_stats()["bytes_in_use"]
    held = [x + x for _ in range(3)]
    assert device.memory_stats()["bytes_in_use"] >= before + 3 * x.nbytes
    del held
    assert device.memory_stats()["bytes_in_use"] <= before + x.nbytes


def test_many_threads():
    x = jnp.asarray(X)
    wrong = []

    def work(k):
        y = jnp.full((40, 50), k, "float32")
        for _ in range(50):
            if not np.array_equal(np.asarray((x + y) * 2.0), (X + np.float32(k)) * 2):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
