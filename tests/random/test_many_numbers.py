"""Many numbers are drawn by a compiled function, few by NumPy; the bits are the same."""

import numpy as np
import pytest

import toile
from toile import random
from toile.random import _arguments

pytestmark = pytest.mark.cpu
DRAWS = {
    "uniform": lambda key, dtype: random.uniform(key, (40, 30), dtype),
    "uniform between": lambda key, dtype: random.uniform(key, (40, 30), dtype, -1, 2.5),
    "uniform from -0.0": lambda key, dtype: random.uniform(key, (40, 30), dtype, -0.0, 2.0),
    "uniform between arrays": lambda key, dtype: random.uniform(
        key, (40, 30), dtype, np.zeros(30, dtype), np.full(30, 3, dtype)),
    "normal": lambda key, dtype: random.normal(key, (40, 30), dtype),
    "truncated_normal": lambda key, dtype: random.truncated_normal(key, -1, 2.0, (40, 30), dtype),
    "gumbel": lambda key, dtype: random.gumbel(key, (40, 30), dtype),
    "bernoulli": lambda key, dtype: random.bernoulli(key, np.array(0.3, dtype)[()], (40, 30)),
    "randint": lambda key, dtype: random.randint(key, (40, 30), -5, 1000),
    "randint of a byte": lambda key, dtype: random.randint(key, (40, 30), 0, 100, "uint8"),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", DRAWS)
def test_many_are_as_few(name, dtype, monkeypatch):
    with toile.enable_x64(dtype == "float64"):
        found = []
        for many in (1 << 60, 0):
            monkeypatch.setattr(_arguments, "MANY", many)
            found.append(DRAWS[name](random.key(7), toile.numpy.dtype(dtype)))
        few, more = found
        assert few.dtype == more.dtype and few.weak_type == more.weak_type
        assert np.asarray(few).tobytes() == np.asarray(more).tobytes()


def test_every_draw_differs(monkeypatch):
    """The shape, the dtype and the bounds are part of what is compiled; the key is not."""
    monkeypatch.setattr(_arguments, "MANY", 0)
    keys = random.split(random.key(0), 3)
    drawn = [random.uniform(k, (n,), minval=low) for k in keys for n in (5, 6) for low in (0, 0.25)]
    assert len({x.tobytes() for x in map(np.asarray, drawn)}) == len(drawn)
    assert [x.size for x in drawn] == [5, 5, 6, 6] * 3


def test_inside_transformations(monkeypatch):
    want = toile.vmap(lambda k: random.normal(k, (50,)))(random.split(random.key(1), 4))
    monkeypatch.setattr(_arguments, "MANY", 0)
    keys = random.split(random.key(1), 4)
    got = toile.vmap(lambda k: random.normal(k, (50,)))(keys)
    one_by_one = [random.normal(k, (50,)) for k in keys]
    assert np.asarray(got).tobytes() == np.asarray(want).tobytes()
    assert np.asarray(toile.numpy.stack(one_by_one)).tobytes() == np.asarray(want).tobytes()
    with toile.disable_jit():
        assert np.asarray(random.normal(keys[0], (50,))).tobytes() == (
            np.asarray(one_by_one[0]).tobytes())
    toile.grad(lambda x: (random.normal(keys[0], (50,)) * x).sum())(2.0)


def test_other_generators_and_layouts(monkeypatch):
    monkeypatch.setattr(_arguments, "MANY", 0)
    assert random.normal(random.key(3, impl="rbg"), (50,)).shape == (50,)
    with toile.threefry_partitionable(False):
        assert random.normal(random.key(3), (50,)).shape == (50,)
    with toile.debug_key_reuse(True):
        key = random.key(4)
        random.normal(key, (50,))
        with pytest.raises(toile.errors.KeyReuseError):
            random.normal(key, (50,))
