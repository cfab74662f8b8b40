"""The generated call path of jit: it takes every structure, sees every difference, hides nothing.

`settled` calls a function until its generated path exists; `takes_path` says whether a call goes
through it.
"""

import functools
import gc
import multiprocessing
import threading
import warnings
import weakref
from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import errors, random, struct
from toile.core.frozen_dict import FrozenDict, freeze
from toile.engine.arrays import ConcreteArray
from toile.staging import jit as staging
from toile.staging.callpath import MISS
from toile.targets.llvm.thread_count import threads

Pair = namedtuple("Pair", "left right")


@struct.dataclass
class State:
    step: object
    params: object
    name: str = struct.field(pytree_node=False, default="s")


def settled(f, *args, **kwargs):
    """What the calls give after a path was written."""
    for _ in range(4):
        out = f(*args, **kwargs)
    assert takes_path(f, *args, **kwargs)
    return out


def takes_path(f, *args, **kwargs):
    return any(path(args, kwargs) is not MISS for path in f.cache.paths)


def increment(tree):
    return toile.tree.map(lambda x: x + 1, tree)


def jitted_increment():
    return toile.jit(lambda tree: increment(tree))


@pytest.fixture
def many_traces():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.RetraceWarning)
        yield


def a(n, dtype=jnp.float32):
    return jnp.arange(n).astype(dtype)


STRUCTURES = {
    "leaf": lambda: a(3),
    "dict": lambda: {"b": a(3), "a": a(4)},
    "one key": lambda: {"b": a(3)},
    "int keys": lambda: {2: a(3), 1: a(4)},
    "list": lambda: [a(3), a(4), a(300)],
    "tuple": lambda: (a(3),),
    "empty": lambda: {"x": (), "y": [], "z": {}, "w": None, "v": a(2)},
    "nested": lambda: {"l": [{"w": a(3), "b": (a(2), None)}], "m": {"n": {"o": a(1)}}},
    "named tuple": lambda: Pair(a(3), [a(4)]),
    "ordered": lambda: OrderedDict(z=a(3), a=a(4)),
    "frozen": lambda: freeze({"w": {"k": a(3)}, "a": a(1)}),
    "dataclass": lambda: State(jnp.int32(1), {"w": a(3)}),
    "zero size": lambda: [jnp.zeros((0, 3)), a(2), jnp.zeros((2, 0), jnp.int8)],
    "scalars": lambda: [jnp.float32(1), jnp.asarray(2), jnp.asarray(True)],
    "dtypes": lambda: [a(5, t) for t in (jnp.bfloat16, jnp.float16, jnp.int8, jnp.uint16)],
    "many": lambda: {f"k{i}": a(i % 7) for i in range(700)},
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures(name):
    tree = STRUCTURES[name]()
    f = jitted_increment()
    for _ in range(20):
        f(tree)
    out = settled(f, tree)
    expected = increment(tree)
    assert toile.tree.structure(out) == toile.tree.structure(expected)
    for x, y in zip(toile.tree.leaves(out), toile.tree.leaves(expected), strict=True):
        assert (x.shape, x.dtype, x.weak_type) == (y.shape, y.dtype, y.weak_type)
        np.testing.assert_array_equal(np.asarray(x, np.float64), np.asarray(y, np.float64))
    assert len(f.why()) == 1


def test_results_feed_the_next_call_without_a_numpy_array():
    f = jitted_increment()
    x = settled(f, {"a": a(3)})
    for _ in range(5):
        x = f(x)
    with pytest.raises(AttributeError):
        ConcreteArray.__dict__["_data"].__get__(x["a"])
    assert x["a"].tolist() == [6.0, 7.0, 8.0]


DIFFERENCES = {
    "shape": lambda: (a(4), {"k": a(2)}, None),
    "dtype": lambda: (a(3, jnp.int32), {"k": a(2)}, None),
    "weak": lambda: (jnp.asarray(1.5), {"k": a(2)}, None),
    "key": lambda: (a(3), {"j": a(2)}, None),
    "more keys": lambda: (a(3), {"k": a(2), "l": a(1)}, None),
    "dict class": lambda: (a(3), FrozenDict({"k": a(2)}), None),
    "not None": lambda: (a(3), {"k": a(2)}, a(1)),
    "container for leaf": lambda: ([a(3)], {"k": a(2)}, None),
    "numpy": lambda: (np.arange(3, dtype=np.float32), {"k": np.float64(2)}, None),
    "python": lambda: (2, {"k": 1.5}, None),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_differences_are_seen(name):
    f = toile.jit(lambda x, d, n: toile.tree.map(lambda v: v * 2, (x, d, n)))
    settled(f, a(3), {"k": a(2)}, None)
    args = DIFFERENCES[name]()
    for _ in range(6):
        out = f(*args)
        expected = toile.tree.map(lambda v: v * 2, args)
        assert toile.tree.structure(out) == toile.tree.structure(expected)
        for x, y in zip(toile.tree.leaves(out), toile.tree.leaves(expected), strict=True):
            y = jnp.asarray(y)
            assert (x.shape, x.dtype, x.weak_type) == (y.shape, y.dtype, y.weak_type)
            assert x.tolist() == y.tolist()
    assert takes_path(f, *args)
    assert takes_path(f, a(3), {"k": a(2)}, None)


def test_number_and_names_of_arguments(many_traces):
    f = toile.jit(lambda *args, **kwargs: (sum(args), kwargs))
    settled(f, a(3), a(3))
    assert f(a(3))[0].tolist() == [0, 1, 2]
    out = settled(f, a(3), b=a(2), c=a(1))
    assert sorted(out[1]) == ["b", "c"]
    assert sorted(f(a(3), c=a(1), d=a(2))[1]) == ["c", "d"]
    assert settled(f) == (0, {}) or f()[0] == 0


def test_static_arguments(many_traces):
    f = toile.jit(lambda x, n, *, mode="a": x * n + (mode == "b"), static_argnums=1,
                  static_argnames="mode")
    assert settled(f, a(3), 2).tolist() == [0, 2, 4]
    assert settled(f, a(3), 3).tolist() == [0, 3, 6]
    assert settled(f, a(3), 3, mode="b").tolist() == [1, 4, 7]
    assert f(a(3), 3, mode="a").tolist() == [0, 3, 6]
    assert f(a(3), 2.0).dtype == jnp.float32 and f(a(3, jnp.int32), 2.0).dtype == jnp.float32
    assert settled(f, a(3, jnp.int32), True).dtype == jnp.int32
    assert settled(f, a(3, jnp.int32), 1).tolist() == [0, 1, 2]
    assert settled(f, a(3, jnp.int32), 1.0).dtype == jnp.float32
    with pytest.raises(errors.NonHashableStaticArgumentError):
        f(a(3), [2])


def test_auxiliary_data_is_compared():
    f = toile.jit(lambda s: s.params["w"] * (2 if s.name == "two" else 3))
    s = State(jnp.int32(0), {"w": a(2)}, "two")
    assert settled(f, s).tolist() == [0, 2]
    assert f(s.replace(name="three")).tolist() == [0, 3]


def test_configuration_is_compared():
    f = toile.jit(lambda x: jnp.zeros(3) + x)
    x = np.ones(3)
    assert settled(f, x).dtype == jnp.float32
    with toile.enable_x64(True):
        assert f(x).dtype == jnp.float64
        assert settled(f, x).dtype == jnp.float64
    assert f(x).dtype == jnp.float32
    with toile.disable_jit():
        seen = []
        g = toile.jit(lambda x: seen.append(x))
        g(1.0)
        assert not isinstance(seen[0], toile.core.Tracer if hasattr(toile.core, "Tracer") else ())
    h = toile.jit(jnp.log)
    settled(h, a(3))
    with toile.debug_nans(True), pytest.raises(FloatingPointError):
        h(-a(3))
    assert takes_path(h, a(3))


def test_transformations_of_a_settled_function():
    f = toile.jit(lambda x: (x**2).sum())
    settled(f, a(3))
    assert toile.grad(f)(a(3)).tolist() == [0, 2, 4]
    assert toile.vmap(f)(jnp.ones((2, 3))).tolist() == [3, 3]
    assert toile.jit(lambda x: f(x) + 1)(a(3)) == 6
    assert toile.make_jaxpr(f)(a(3)).eqns


def test_closed_over_values():
    c = jnp.arange(6.0).reshape(2, 3).T  # not contiguous
    f = toile.jit(lambda x: x + c)
    assert settled(f, jnp.ones((3, 2))).tolist() == (c + 1).tolist()


def test_arguments_that_are_views(many_traces):
    f = toile.jit(lambda x: x * 2)
    x = jnp.arange(6.0).reshape(2, 3)
    for y in (x.T, x[:, ::2], x[::-1], jnp.broadcast_to(a(3), (2, 3)), x[1]):
        expected = (np.asarray(y) * 2).tolist()
        assert settled(f, y).tolist() == expected
    n = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert settled(f, n.T).tolist() == (n.T * 2).tolist()
    n[:] = 1  # a NumPy array is read at each call
    assert f(n.T).tolist() == np.full((4, 3), 2.0).tolist()


def test_results_do_not_share_memory_with_arguments():
    f = toile.jit(lambda x: (x, x.reshape(2, 3)))
    n = np.arange(6, dtype=np.float32)
    y, z = settled(f, n)
    n[:] = 0
    assert y.tolist() == [0, 1, 2, 3, 4, 5] and z.shape == (2, 3)


def test_deleted_arguments():
    f = toile.jit(lambda x, y: x + y)
    x = settled(f, a(3), a(3))
    x.delete()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="deleted"):
            f(x, a(3))
    y = a(3)
    y.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        f(a(3), y)
    assert f(a(3), a(3)).tolist() == [0, 2, 4]
    with pytest.raises(RuntimeError, match="deleted"):
        x.block_until_ready()


@pytest.mark.parametrize("n", [3, 5000])
def test_donation(n):
    f = toile.jit(lambda s, x: ({"w": s["w"] + x, "c": s["c"] + 1}, x), donate_argnums=0)
    state = {"w": jnp.zeros(n), "c": jnp.int32(0)}
    kept = []
    for i in range(12):
        old = state
        state, x = f(state, jnp.ones(n))
        assert old["w"].is_deleted() and old["c"].is_deleted() and not x.is_deleted()
        kept.append((i + 1, np.asarray(state["w"]), state["c"] + 0))
        with pytest.raises(RuntimeError, match="deleted"):
            f(old, jnp.ones(n))
    assert takes_path(f, state, x)
    for i, w, c in kept:  # views of donated memory keep their values
        assert (w == i).all() and int(c) == i


def test_donated_memory_serves_later_calls():
    f = toile.jit(lambda x: x + 1, donate_argnums=0)
    x = jnp.zeros(5000)
    pointers = []
    for _ in range(20):
        x = f(x)
        pointers.append(x._pointer)
    assert len(set(pointers[-8:])) == 2 and pointers[-1] != pointers[-2]
    assert (np.asarray(x) == 20).all()
    y = f(x)  # a NumPy view of x is alive no longer; one of y is
    view = np.asarray(y)
    for _ in range(4):
        y = f(y)
    assert (view == 21).all()


def test_donation_by_name_and_with_statics():
    f = toile.jit(lambda n, x, *, y: x * n + y, static_argnums=0, donate_argnames=("y",))
    for _ in range(5):
        x, y = a(3), a(3)
        out = f(2, x, y=y)
        assert y.is_deleted() and not x.is_deleted()
    assert out.tolist() == [0, 3, 6]
    x, y = a(3), np.arange(3, dtype=np.float32)
    for _ in range(4):
        assert f(2, x, y=y).tolist() == [0, 3, 6]  # nobody's to give up


def test_small_results_are_kept_apart():
    f = toile.jit(lambda x: [x + i for i in range(5)])
    settled(f, a(3))
    kept = [f(a(3) * k) for k in range(10)]
    for k, outs in enumerate(kept):
        for i, y in enumerate(outs):
            assert y.tolist() == [i, k + i, 2 * k + i]
    some = [f(a(3) * k)[1] for k in range(10)]
    assert [y.tolist() for y in some] == [[1, k + 1, 2 * k + 1] for k in range(10)]


def test_a_kept_scalar_keeps_no_large_memory():
    f = toile.jit(lambda x: (x + 1, x.sum()))
    settled(f, jnp.ones(100_000))
    total = f(jnp.ones(100_000))[1]
    assert total._memory[0].nbytes <= 128


def test_memory_goes_when_results_go():
    f = toile.jit(lambda x: x + 1)
    y = settled(f, jnp.ones(100_000))
    y = f(y)
    memory = weakref.ref(y._memory[0])
    del y
    gc.collect()
    assert memory() is None


def test_random_keys():
    f = toile.jit(lambda k: (random.split(k), random.normal(k, (3,))))
    k = random.key(0)
    keys, x = f(k)
    for _ in range(4):
        keys_again, y = f(k)
        assert (random.key_data(keys_again) == random.key_data(keys)).all()
        assert y.tolist() == x.tolist() and keys_again.dtype == k.dtype
        assert keys_again.shape == (2,)
    g = toile.jit(lambda k: random.split(k)[0])
    for _ in range(6):
        k = g(k)
    assert k.dtype == random.key(0).dtype and repr(k)
    old = settled(toile.jit(random.uniform), random.PRNGKey(1))
    assert old == random.uniform(random.PRNGKey(1))


def test_errors_of_python_steps_arrive_and_the_path_recovers():
    def look(x):
        if x[0] > 5:
            raise ValueError("too large")
        return x

    def f(x):
        return toile.pure_callback(look, toile.ShapeDtypeStruct((3,), jnp.float32), x) + 1

    f = toile.jit(f)
    settled(f, a(3))
    for _ in range(3):
        with pytest.raises(ValueError, match="too large"):
            f(a(3) + 9)
        assert f(a(3)).tolist() == [1, 2, 3]


def test_callbacks_may_keep_what_they_are_given():
    kept = []
    f = toile.jit(lambda x: (toile.debug.callback(kept.append, x * 2), x + 1)[1])
    for i in range(6):
        f(jnp.full(2, float(i)))
    assert [x.tolist() for x in kept] == [[2 * i, 2 * i] for i in range(6)]


def test_reentrance():
    inner = toile.jit(lambda x: x * 2)

    @toile.jit
    def outer(x):
        def call(v):
            depth = float(v[0])
            found = outer(v - 1) if depth > 0 else v
            return np.asarray(inner(found))

        return toile.pure_callback(call, toile.ShapeDtypeStruct((3,), jnp.float32), x) + 1

    first = outer(jnp.full(3, 3.0)).tolist()
    for _ in range(5):
        assert outer(jnp.full(3, 3.0)).tolist() == first
    assert takes_path(outer, jnp.full(3, 3.0))


def test_two_threads():
    f = toile.jit(lambda t: {k: (v @ v.T).sum(0) + i for i, (k, v) in enumerate(t.items())})
    trees = [{"a": jnp.full((17, 17), float(i)), "b": jnp.ones((5, 5)) * i} for i in range(4)]
    expected = [toile.tree.map(np.asarray, settled(f, t)) for t in trees]
    wrong = []

    def work(mine):
        try:
            for _ in range(300):
                for t, e in mine:
                    out = f(t)
                    if any((np.asarray(out[k]) != e[k]).any() for k in e):
                        wrong.append(out)
        except BaseException as error:
            wrong.append(error)

    pairs = list(zip(trees, expected, strict=True))
    workers = [threading.Thread(target=work, args=(pairs[i::2],)) for i in range(2)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


def test_threads_with_other_configurations():
    f = toile.jit(lambda x: jnp.zeros(3) + x)
    x = np.ones(3)
    settled(f, x)
    found = []

    def work():
        with toile.enable_x64(True):
            for _ in range(100):
                found.append(f(x).dtype)

    worker = threading.Thread(target=work)
    worker.start()
    mine = [f(x).dtype for _ in range(200)]
    worker.join()
    assert set(mine) == {np.dtype("float32")} and set(found) == {np.dtype("float64")}


def _child(queue, f, x):
    queue.put(f(x).tolist())


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # of jax, where a test loaded it
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fork():
    f = toile.jit(lambda x: (x @ x).sum(0))
    x = jnp.ones((40, 40))
    settled(f, x)
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_child, args=(queue, f, x))
    child.start()
    assert queue.get() == f(x).tolist()
    child.join(20)
    assert child.exitcode == 0


def test_thread_count_of_a_block():
    f = toile.jit(lambda x: x * 2)
    settled(f, jnp.ones(100_000))
    with threads(1):
        assert (f(jnp.ones(100_000)) == 2).all()


def test_wrapped_functions_share_a_path():
    def f(x):
        return x + 1

    settled(toile.jit(f), a(3))
    assert takes_path(toile.jit(f), a(3))
    g = functools.partial(toile.jit(f))
    assert g(a(3)).tolist() == [1, 2, 3]


def test_retraces_warn_once_with_the_cause():
    f = toile.jit(lambda x: x + 1)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for n in range(1, 8):
            f(jnp.ones(n))
    assert [w.category for w in seen] == [errors.RetraceWarning]
    assert "shape (1,) -> (4,)" in str(seen[0].message)
    assert seen[0].filename == __file__
    assert len(f.why()) == 7 and f.why()[0] == "first call"
    g = toile.jit(lambda x: x, max_traces=2)
    g(jnp.ones(1)), g(jnp.ones(2))
    with pytest.raises(RuntimeError, match="at most 2 traces"):
        g(jnp.ones(3))


def test_retraces_that_are_no_habit():
    f = toile.jit(lambda t: toile.tree.map(lambda x: x + 1, t))
    for tree in (a(3), [a(3)], {"k": a(3)}, (a(3),), [a(3), a(3)]):  # warnings are errors here
        f(tree)
    f(a(4)), f(a(3, jnp.int32)), f(jnp.asarray(1.0))
    outer = toile.jit(lambda x: f(x))  # nothing is compiled for an inner function
    inner_shapes = [toile.make_jaxpr(f)(jnp.ones(n)) for n in range(5, 9)]
    assert outer(a(3)).tolist() == [1, 2, 3] and len(inner_shapes) == 4


def test_traces_are_bounded(monkeypatch):
    monkeypatch.setattr(staging, "MAX_TRACES", 6)
    monkeypatch.setattr(staging, "MIN_TRACES", 2)
    f = toile.jit(lambda x: x + 1)
    hot = a(100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in range(1, 30):
            for _ in range(3):
                f(jnp.ones(n))
                f(hot)
    assert f._cache_size() == 6
    assert f.why().count("first call") == 1 and len(f.why()) == 30  # the hot one stayed
    assert f(hot).tolist() == (hot + 1).tolist()
    f.clear_cache()
    assert f._cache_size() == 0 and not f.cache.paths
