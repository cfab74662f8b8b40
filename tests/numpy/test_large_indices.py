"""Indices that no int32 holds: the upper half of the unsigned integers, and large Python ints.

They lie beyond the end of every axis here, so that each function must do what it does for the
largest int32: read or write the last element (clip), or none (fill, drop). JAX agrees where it
keeps indices unsigned; where it reads their bits as int32 (`x[i]`, `x.at[i]`, take_along_axis),
the reference is JAX at the largest int32.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toile
import toile.numpy as tnp
from tests.numpy.compare import RECORD
from tests.quick_jax import OPTIONS

X = np.arange(1, 6, dtype=np.float32)
LARGE = {"uint32": [0, 3, 2**31, 2**32 - 1, 2**31 + 2],
         "uint64": [0, 3, 2**31, 2**63 + 2, 2**64 - 1],
         "int64": [0, 3, 2**31, 2**32 + 1, 2**63 - 1]}  # fmt: skip
READS = ("clip", "fill", None)
WRITES = ("clip", "drop", None)


def _columns(np_, x):
    return x.reshape(5, 1) * np_.arange(1.0, 4.0, dtype="float32")


def _gather(lib, x, i, mode):
    numbers = lib.lax.GatherDimensionNumbers((), (0,), (0,))
    return lib.lax.gather(x, i[:, None], numbers, (1,), mode=mode)


def _scatter(lib, x, i, name, mode):
    numbers = lib.lax.ScatterDimensionNumbers((), (0,), (0,))
    seven = lib.numpy.full(5, 7, "float32")
    return getattr(lib.lax, name)(x, i[:, None], seven, numbers, mode=mode)


def _each(lib, f, i):
    return lib.numpy.stack([f(i[k]) for k in range(5)])


def cases():
    """Functions of a library, an array and indices, and whether JAX keeps these unsigned."""
    found = {}

    def add(name, unsigned, f):
        found[name] = (unsigned, f)

    for m in READS:
        add(f"take {m}", True, lambda j, x, i, m=m: j.numpy.take(x, i, mode=m))
        add(f"take rows {m}", True,
            lambda j, x, i, m=m: j.numpy.take(_columns(j.numpy, x), i, axis=0, mode=m))
        add(f"at.get {m}", False, lambda j, x, i, m=m: x.at[i].get(mode=m))
        add(f"at.get pairs {m}", False,
            lambda j, x, i, m=m: _columns(j.numpy, x).at[i, i].get(mode=m))
        add(f"take_along_axis {m}", False,
            lambda j, x, i, m=m: j.numpy.take_along_axis(x, i, axis=0, mode=m))
        add(f"gather {m}", True, lambda j, x, i, m=m: _gather(j, x, i, m))
        add(f"put_along_axis {m}", False, lambda j, x, i, m=m: j.numpy.put_along_axis(
            x, i, j.numpy.full(5, 7, "float32"), 0, inplace=False, mode=m))
    for m in WRITES:
        for op in ("set", "add", "multiply", "min", "max"):
            add(f"at.{op} {m}", False,
                lambda j, x, i, m=m, op=op: getattr(x.at[i], op)(7.0, mode=m))
        for op in ("scatter", "scatter_add", "scatter_mul", "scatter_min", "scatter_max"):
            add(f"{op} {m}", True, lambda j, x, i, m=m, op=op: _scatter(j, x, i, op, m))
        add(f"segment_sum {m}", False, lambda j, x, i, m=m: j.ops.segment_sum(x, i, 5, mode=m))
    add("x[i]", False, lambda j, x, i: x[i])
    add("x[i] rows", False, lambda j, x, i: _columns(j.numpy, x)[i])
    add("x[i[k]]", True, lambda j, x, i: _each(j, lambda s: x[s], i))
    add("dynamic_slice", True,
        lambda j, x, i: _each(j, lambda s: j.lax.dynamic_slice(x, (s,), (2,)), i))
    add("dynamic_index_in_dim", True,
        lambda j, x, i: _each(j, lambda s: j.lax.dynamic_index_in_dim(x, s), i))
    add("dynamic_update_slice", True, lambda j, x, i: _each(
        j, lambda s: j.lax.dynamic_update_slice(x, x[:2] * 9, (s,)), i))
    add("one_hot", True, lambda j, x, i: j.nn.one_hot(i, 5))
    add("bincount", True, lambda j, x, i: j.numpy.bincount(i, length=5))
    add("bincount with weights", True, lambda j, x, i: j.numpy.bincount(i, x, length=5))
    add("put clip", True, lambda j, x, i: j.numpy.put(x, i, 7.0, mode="clip", inplace=False))
    add("choose clip", True, lambda j, x, i: j.numpy.choose(i, [x, 2 * x, 3 * x], mode="clip"))
    add("ravel_multi_index clip", True,
        lambda j, x, i: j.numpy.ravel_multi_index((i, i), (5, 4), mode="clip"))
    return found


CASES = cases()
# Where an index wraps around, JAX's result for the same dtype is the reference.
WRAPPED = {
    "take wrap": lambda j, x, i: j.numpy.take(x, i, mode="wrap"),
    "put wrap": lambda j, x, i: j.numpy.put(x, i, 7.0, mode="wrap", inplace=False),
    "choose wrap": lambda j, x, i: j.numpy.choose(i, [x, 2 * x, 3 * x], mode="wrap"),
    "ravel_multi_index wrap": lambda j, x, i: j.numpy.ravel_multi_index((i, i), (5, 4),
                                                                        mode="wrap"),
}  # fmt: skip


def _agree(f, i, want, name):
    ways = {
        "eager": lambda: f(toile, tnp.asarray(X), tnp.asarray(i)),
        "jit": lambda: toile.jit(lambda x, i: f(toile, x, i))(X, i),
    }
    if name != "x[i[k]]":  # an index that is known out of bounds raises
        ways["constant"] = lambda: toile.jit(lambda x: f(toile, x, i))(X)
    for way, run in ways.items():
        np.testing.assert_array_equal(np.asarray(run()), want, f"{name}, {way}, {i.dtype}")


def _reference(f):
    """The function of jax, compiled."""
    run = jax.jit(lambda *args: f(jax, *args), compiler_options=OPTIONS)
    return lambda *args: np.asarray(RECORD.in_test(lambda: run(*args)))


@pytest.mark.parametrize("name", CASES)
def test_indices_beyond_int32(name):
    unsigned, f = CASES[name]
    reference = _reference(f)
    last = np.array([0, 3] + [2**31 - 1] * 3, np.int32)
    want = reference(X, last)
    i = np.array(LARGE["uint32"], np.uint32)
    if unsigned:
        np.testing.assert_array_equal(reference(X, i), want)
    _agree(f, i, want, name)


@pytest.mark.parametrize("dtype", ["uint64", "int64"])
@pytest.mark.parametrize("name", [
    "take clip", "take None", "x[i]", "at.get pairs clip", "at.add clip", "at.add None",
    "at.set None", "take_along_axis clip", "gather clip", "scatter_add clip", "x[i[k]]",
    "dynamic_slice", "bincount",
])  # fmt: skip
def test_indices_of_64_bits(name, dtype):
    f = CASES[name][1]
    last = np.array([0, 3] + [2**31 - 1] * 3, np.int32)
    with jax.enable_x64(True), toile.enable_x64(True):
        want = _reference(f)(X, last)
        _agree(f, np.array(LARGE[dtype], dtype), want, name)


@pytest.mark.parametrize("name", WRAPPED)
def test_unsigned_indices_that_wrap_around(name):
    f, i = WRAPPED[name], np.array(LARGE["uint32"], np.uint32)
    want = _reference(f)(X, i)
    _agree(f, i, want, name)


@pytest.mark.parametrize("index", [2**31, 2**32 + 1, 2**70, -(2**31) - 1, -(2**70)])
def test_python_ints_beyond_int32(index):
    """With a mode, an int that is out of bounds is clipped, filled or dropped at any size."""
    x, near = tnp.asarray(X), 2**31 - 1 if index > 0 else -(2**31)
    for mode in ("clip", "fill"):
        want = np.asarray(jnp.asarray(X).at[near].get(mode=mode))
        np.testing.assert_array_equal(np.asarray(x.at[index].get(mode=mode)), want)
        want = np.asarray(jnp.asarray(X).at[near].set(7.0, mode=mode))
        np.testing.assert_array_equal(np.asarray(x.at[index].set(7.0, mode=mode)), want)


def _summed(lib, x, sources, targets, reads, writes):
    """Rows at `sources` added at `targets`: one kernel for both."""
    rows = lib.lax.GatherDimensionNumbers((1,), (0,), (0,))
    read = lib.lax.gather(x, sources[:, None], rows, (1, 64), mode=reads, fill_value=0)
    numbers = lib.lax.ScatterDimensionNumbers((1,), (0,), (0,))
    return lib.lax.scatter_add(x * 0, targets[:, None], read, numbers, mode=writes)


def _picked(lib, x, i, reads, writes):
    """One element of each row read, and put into a row of zeros: counted, without addresses."""
    pairs = (1,), (1,), (0,), (0,)
    read = lib.lax.gather(x * 2 + 1, i[:, None, None], lib.lax.GatherDimensionNumbers((), *pairs),
                          (1, 1), mode=reads)
    put = lib.lax.scatter_add(lib.numpy.zeros(x.shape, "float32"), i[:, None, None], x[:, :1],
                              lib.lax.ScatterDimensionNumbers((), *pairs), mode=writes)
    return lib.numpy.concatenate([read, put * 2 + 1], axis=1)


@pytest.mark.parametrize("reads, writes", [("clip", "drop"), ("fill", "clip")])
def test_kernels_for_rows(reads, writes):
    rng = np.random.default_rng(3)
    x = rng.integers(1, 5, (50, 64)).astype(np.float32)
    sources, targets = rng.integers(0, 50, (2, 300)).astype(np.uint32)
    sources[::7], targets[::5] = 2**31, 2**32 - 1
    for f, args in (_summed, (x, sources, targets)), (_picked, (x, sources[:50])):
        of = lambda lib, f=f: lambda *xs: f(lib, *xs, reads, writes)
        want = _reference(lambda lib, *xs, f=f: f(lib, *xs, reads, writes))(*args)
        np.testing.assert_array_equal(np.asarray(toile.jit(of(toile))(*args)), want)
