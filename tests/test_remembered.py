"""Eager gradients of operations met before: the very bits of the general way.

Every row of the operations' table is differentiated the general way and from what is remembered;
programs mix what can be remembered with what cannot.
"""

import threading

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.cases_control import ROWS
from toile.engine.config import trace_context
from toile.engine.platform_registry import registry
from toile.transforms import remembered as remembering

pytestmark = pytest.mark.cpu  # nothing is remembered where operations may run on a GPU
DTYPES = ("float32", "bfloat16", "complex64")


@pytest.fixture
def remembered(monkeypatch):
    """Says how often an operation is met before it is remembered; counts what was then used."""
    tables, used = {}, []
    monkeypatch.setattr(registry, "active", ())
    monkeypatch.setattr(remembering, "_tables", tables)
    send = remembering.Remembered.send
    monkeypatch.setattr(remembering.Remembered, "send",
                        lambda self, env: (used.append(self), send(self, env))[1])

    def after(times):
        tables.clear()
        used.clear()
        monkeypatch.setattr(remembering, "OFTEN", times)
        return used

    return after


def total(outs):
    """A number that depends on every element of the results that have derivatives."""
    found = 0.0
    for i, o in enumerate(toile.tree_util.tree_leaves(outs)):
        if o.dtype.kind in "fcV" or o.dtype.name == "bfloat16":
            weights = jnp.asarray(np.linspace(0.5, 1.5, o.size).reshape(o.shape) + i)
            found = found + (jnp.real(o).astype("float32") * weights).sum()
            if o.dtype.kind == "c":
                found = found + (jnp.imag(o) * weights).sum()
    return found


def rows():
    return [pytest.param(row, d, id=f"{row}-{d}") for row in ROWS for d in DTYPES
            if d in row.dtypes and row.differentiable(d)]


@pytest.mark.parametrize(("row", "dtype"), rows())
def test_same_bits(row, dtype, remembered, monkeypatch):
    sharded = row.op.__name__ == "Spmd"  # results that are no plain arrays
    if sharded:
        # Its devices are the first there are.
        monkeypatch.setattr(registry, "active", (registry.names["gpu"],))
    raw = row.arguments(dtype)
    moving = row.differentiable(dtype)

    def loss(*xs):
        full = [jnp.asarray(x) for x in raw]
        for i, x in zip(moving, xs, strict=True):
            full[i] = x
        return total(row.run(*full))

    xs = [jnp.asarray(raw[i]) for i in moving]
    gradient = toile.grad(loss, argnums=tuple(range(len(xs))))
    assert not remembered(10**9)
    want = gradient(*xs)
    used = remembered(1)
    for _ in range(2):
        got = gradient(*xs)
        for g, w in zip(got, want, strict=True):
            assert (g.shape, g.dtype, g.weak_type) == (w.shape, w.dtype, w.weak_type)
            assert np.asarray(g).tobytes() == np.asarray(w).tobytes()
    assert used or sharded or not any(np.asarray(w).any() for w in want)


def network(params, x):
    w, b, v = params
    hidden = jnp.tanh(x @ w + b)
    gate = toile.nn.relu(hidden - 0.1) * 2.0 + toile.jit(jnp.sin)(hidden)
    return (toile.lax.fori_loop(0, 3, lambda i, h: h * 0.5 + gate, hidden) @ v).mean()


PARAMS = (np.linspace(-1, 1, 12).reshape(3, 4).astype("f4"), np.ones(4, "f4"),
          np.linspace(0, 1, 8).reshape(4, 2).astype("f4"))
X = np.linspace(-1, 2, 15).reshape(5, 3).astype("f4")

PROGRAMS = {
    "loops, jit and custom rules among": lambda p: network(p, X),
    "used twice": lambda p: (p[0] * p[0] + p[0]).sum(),
    "a constant operand": lambda p: (jnp.asarray(X) @ p[0]).sum() * p[1][0],
    "aux arrays of numpy": lambda p: (np.float32(2) * p[2]).sum(),
    "weak": lambda p: (p[1] ** 2 / 3).sum(),
    "no dependence": lambda p: jnp.floor(p[1]).sum() + p[0][0, 0],
    "second order": lambda p: toile.grad(lambda y: (y ** 3).sum())(p[1]).sum(),
    "mapped inside": lambda p: toile.vmap(lambda row: jnp.sin(row) @ p[1])(p[0]).sum(),
    "a changed flag inside": lambda p: precise(p),
}


def precise(p):
    with toile.default_matmul_precision("highest"):
        a = X @ p[0]
    return (a @ p[2]).sum()


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, remembered):
    fun = PROGRAMS[name]
    params = tuple(map(jnp.asarray, PARAMS))
    remembered(10**9)
    want = toile.value_and_grad(fun)(params)
    used = remembered(2)
    for _ in range(4):
        got = toile.value_and_grad(fun)(params)
        for g, w in zip(toile.tree.leaves(got), toile.tree.leaves(want), strict=True):
            assert np.asarray(g).tobytes() == np.asarray(w).tobytes()
            assert g.weak_type == w.weak_type
    assert used


def test_aux_and_value_are_plain_arrays(remembered):
    remembered(1)
    fun = lambda x: ((x * x).sum(), x * 2)
    for _ in range(3):
        (value, aux), g = toile.value_and_grad(fun, has_aux=True)(jnp.arange(3.0))
    assert float(value) == 5 and aux.tolist() == [0, 2, 4] and g.tolist() == [0, 2, 4]


def test_errors_are_those_of_the_general_way(remembered):
    remembered(1)
    for _ in range(3):
        with pytest.raises(TypeError, match="incompatible shapes"):
            toile.grad(lambda x: (x + jnp.ones(4)).sum())(jnp.ones(3))


def test_bad_numbers_are_found(remembered):
    remembered(1)
    fun = toile.grad(lambda x: jnp.log(x).sum())
    fun(jnp.ones(3))
    with toile.debug_nans(True), pytest.raises(FloatingPointError, match="log"):
        fun(-jnp.ones(3))
    assert fun(jnp.ones(3)).tolist() == [1, 1, 1]


def test_no_warning_of_numpy(remembered, recwarn):
    remembered(1)
    for _ in range(3):
        toile.grad(lambda x: (jnp.exp(x) / x).sum())(jnp.asarray([0.0, 1000.0]))
    assert not [w for w in recwarn if issubclass(w.category, RuntimeWarning)]


def test_what_is_kept_is_bounded(remembered, monkeypatch):
    remembered(1)
    monkeypatch.setattr(remembering, "MOST", 10)
    for n in range(1, 40):
        toile.grad(lambda x: (x * x).sum())(jnp.ones(n))
    assert len(remembering._tables[trace_context()]) <= 10


def test_threads(remembered):
    remembered(2)
    fun, x = toile.grad(lambda x: jnp.tanh(x @ x).sum()), jnp.asarray(np.eye(20, dtype="f4"))
    want, bad = np.asarray(fun(x)), []

    def work():
        bad.extend(1 for _ in range(50) if np.asarray(fun(x)).tobytes() != want.tobytes())

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not bad


def test_operators_of_threads(remembered):
    """Arithmetic of arrays shares one context; who finds it taken has another."""
    x = jnp.full((300, 300), 3e38, "float32")
    bad = []

    def work():
        bad.extend(1 for _ in range(100) if not np.isinf(np.asarray(x + x)).all())

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not bad
