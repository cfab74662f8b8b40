"""Variables that change after a function was traced: what `jit` reports, and when."""

from __future__ import annotations

import functools
import gc
import inspect
import warnings
import weakref

import pytest

import toile
import toile.numpy as jnp
from toile.errors import StaleValueWarning
from toile.staging import captured_values

RATE, NAME, SIZES, MANY = 0.1, "relu", (1, 2), 3
COUNT = 0
UNRELATED = 1


@pytest.fixture(autouse=True)
def as_before():
    before = {k: globals()[k] for k in ("RATE", "NAME", "SIZES", "MANY", "COUNT", "UNRELATED")}
    yield
    globals().update(before)


def reports(run) -> list[str]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        run()
    assert all(w.category is StaleValueWarning and w.filename == __file__ for w in seen)
    return [str(w.message) for w in seen]


def loss(w):
    return RATE * w**2


def named(w):
    return w if NAME == "relu" else -w


def reads_rate(w):
    return w - RATE


def reads_size(w):
    return w * SIZES[0]


def counts(w):
    global COUNT
    COUNT += 1
    return w * UNUSED_NAME.mean() if False else w


UNUSED_NAME = jnp.ones(1)
GLOBALS = {
    "read directly": (lambda: toile.jit(lambda w: w - RATE), "RATE", 0.2, "0.1", "0.2"),
    "read by a function": (lambda: toile.jit(lambda w: loss(w) + 1), "RATE", 0.2, "0.1", "0.2"),
    "gradient": (lambda: toile.jit(toile.grad(loss)), "RATE", 0.2, "0.1", "0.2"),
    "gradient inside": (
        lambda: toile.jit(lambda w: w - toile.grad(loss)(w)), "RATE", 3, "0.1", "3"),
    "jit inside": (lambda: toile.jit(lambda w: INNER(w)), "RATE", 0.2, "0.1", "0.2"),
    "string": (lambda: toile.jit(named), "NAME", "gelu", "'relu'", "'gelu'"),
    "tuple": (lambda: toile.jit(reads_size), "SIZES", (3, 4), "(1, 2)", "(3, 4)"),
    "partial": (lambda: toile.jit(functools.partial(reads_rate)), "RATE", None, "0.1", "None"),
    "type": (lambda: toile.jit(lambda w: w - RATE), "RATE", 1, "0.1", "1"),
    "nested function": (lambda: toile.jit(lambda w: (lambda: w * RATE)()), "RATE", 2.0, "0.1", "2"),
}
INNER = toile.jit(reads_rate)


@pytest.mark.parametrize("before", [1, 2, 20])
@pytest.mark.parametrize("name", GLOBALS)
def test_globals(name, before):
    make, variable, value, old, new = GLOBALS[name]
    f = make()
    f.clear_cache()  # shared by all `jit` of one function
    INNER.clear_cache()
    assert reports(lambda: [f(2.0) for _ in range(before)]) == []
    globals()[variable] = value
    texts = reports(lambda: [f(2.0) for _ in range(10)])
    assert len(texts) == 1
    assert f"`{variable}`" in texts[0] and f"was {old};" in texts[0] and f"is {new}" in texts[0]
    assert "argument" in texts[0] and "clear_cache" in texts[0] and __file__ in texts[0]
    assert len(texts[0].splitlines()) <= 15


@pytest.mark.parametrize("before", [2, 20])
def test_closed_over(before):
    scale = 2

    def f(x):
        return x * scale

    f = toile.jit(f)
    x = jnp.ones(3)
    assert reports(lambda: [f(x) for _ in range(before)]) == []
    scale = 5
    (text,) = reports(lambda: [f(x) for _ in range(5)])
    assert "the variable `scale`, which it reads, was 2; it is 5 now" in text


@pytest.mark.parametrize("before", [2, 20])
def test_default_argument(before):
    def f(x, scale=2):
        return x * scale

    jitted = toile.jit(f)
    for _ in range(before):
        jitted(1.0)
    f.__defaults__ = (3,)
    (text,) = reports(lambda: jitted(1.0))
    assert "the default of the argument `scale`" in text and "was 2; it is 3" in text


def test_deleted():
    f = toile.jit(lambda x: x * RATE)
    for _ in range(10):
        f(1.0)
    del globals()["RATE"]
    (text,) = reports(lambda: [f(1.0) for _ in range(3)])
    assert "`RATE`" in text and "was 0.1; it is deleted now" in text


def test_values_stay_those_of_tracing():
    global RATE
    f = toile.jit(lambda x: x - RATE)
    expected = [float(f(1.0)) for _ in range(10)]
    RATE = 0.2
    with pytest.warns(StaleValueWarning):
        assert float(f(1.0)) == expected[0]
    f.clear_cache()
    assert float(f(1.0)) == pytest.approx(0.8)
    assert reports(lambda: [f(1.0) for _ in range(10)]) == []
    RATE = 0.3
    assert len(reports(lambda: [f(1.0) for _ in range(10)])) == 1


def test_a_new_trace_reads_the_new_value():
    global RATE
    f = toile.jit(reads_rate)
    f(1.0)
    RATE = 0.2
    assert reports(lambda: [f(jnp.ones(3)) for _ in range(10)]) == []
    RATE = 0.3
    assert len(reports(lambda: f(jnp.ones(3)))) == 1


def test_equal_values():
    """A new object that is equal is no change, however often it is assigned."""
    global RATE

    def run():
        global RATE
        for _ in range(20):
            RATE = float("0.1")
            f(1.0)

    f = toile.jit(reads_rate)
    assert reports(run) == []
    RATE = float("nan")
    g = toile.jit(lambda x: x + RATE)
    g(1.0)
    RATE = float("nan")
    assert reports(lambda: g(1.0)) == []


def test_what_a_function_assigns_itself():
    f = toile.jit(counts)
    f(1.0)
    for _ in range(3):
        globals()["COUNT"] += 10
        assert reports(lambda: f(1.0)) == []
    traces = 0

    def g(x):
        nonlocal traces
        traces += 1
        return x

    g = toile.jit(g)
    g(1.0)
    traces = 0
    assert reports(lambda: [g(1.0) for _ in range(10)]) == []


def test_what_a_function_does_not_read():
    global UNRELATED
    f = toile.jit(lambda x: x.UNRELATED if False else x)  # an attribute of the same name
    f(1.0)
    UNRELATED = 2
    assert reports(lambda: f(1.0)) == []


def test_arrays_and_lists_are_not_compared():
    scale, sizes = jnp.ones(3), [1]
    f = toile.jit(lambda x: x * scale * sizes[0])
    f(1.0)
    scale, sizes = jnp.zeros(3), [2]
    assert reports(lambda: f(1.0)) == []


def test_loops_that_make_functions():
    functions = []
    for i in range(3):
        f = toile.jit(lambda x: x * i)  # noqa: B023 (the mistake in question)
        f(1.0)
        functions.append(f)
    texts = reports(lambda: [f(1.0) for f in functions])
    assert len(texts) == 2 and "was 0; it is 2 now" in texts[0]


def test_functions_are_freed():
    def f(x, scale=3):
        return x * scale + RATE

    jitted = toile.jit(f)
    for _ in range(20):
        jitted(1.0)
    alive = weakref.ref(f)
    del f, jitted
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("count", [1, 200, 300])
def test_names_behind_many_others(count):
    """Numbers of names above 255 need more than one byte."""
    names = [f"name_{i}" for i in range(count)]
    source = f"def f(x):\n    return x + {' + '.join(names)}\n"
    scope = dict.fromkeys(names, 1.0)
    exec(source, scope)
    found = [v.name for v in captured_values._variables(scope["f"])]
    assert found == names


def test_cells_of_all_kinds():
    def outer(argument):
        local = 1

        def f(x):
            return x + argument + local

        def g():
            nonlocal local
            local = 2

        return f, g

    f, g = outer(5)
    assert {v.name for v in captured_values._variables(f)} == {"argument", "local"}
    assert [v.name for v in captured_values._variables(g)] == []


def test_only_some_are_compared_in_every_call():
    captured = captured_values.Captured(inspect.unwrap(toile.jit(
        lambda x: x + RATE + MANY + SIZES[0])), "f")
    assert len(captured.variables) == 3
    assert len(captured.conditions()) == captured_values.MOST_COMPARED
