"""Errors show the frames of the user only, and nothing of the mechanism stays behind."""

import os
import subprocess
import sys
import threading
import traceback

import pytest

import toile
import toile.linen as nn
import toile.numpy as jnp
from toile import lax, optim

PACKAGE = os.path.dirname(toile.__file__)
X = jnp.ones(3)
tracing = pytest.mark.skipif(sys.gettrace() is not None, reason="a debugger or coverage traces")


def fail(*args):
    raise ZeroDivisionError("mine")


class Failing(nn.Module):
    @nn.compact
    def __call__(self, x):
        return fail(x)


class Outer(nn.Module):
    @nn.compact
    def __call__(self, x):
        return Failing()(x)


def failing_step(carry, x):
    return fail(carry, x)


@toile.custom_vjp
def with_rule(x):
    return x * 2


with_rule.defvjp(lambda x: (x, None), lambda saved, ct: fail(saved, ct))


@toile.jit
def recursive(x):
    return recursive(x + 1)


SHAPE = toile.ShapeDtypeStruct((3,), jnp.float32)

# How an error arises: an error of toile itself, or one of a function that toile calls.
WAYS = {
    "operator": lambda: X @ jnp.ones(4),
    "method": lambda: X.reshape(7),
    "function": lambda: jnp.dot(X, jnp.ones(4)),
    "lax": lambda: lax.add(X, jnp.ones(4)),
    "nested": lambda: jnp.concatenate([X, jnp.ones((2, 2))]),
    "index": lambda: X["a"],
    "random": lambda: toile.random.normal(3),
    "jit": lambda: toile.jit(fail)(X),
    "grad": lambda: toile.grad(fail)(X),
    "jit of grad": lambda: toile.jit(toile.value_and_grad(fail))(X),
    "vmap": lambda: toile.vmap(fail)(X),
    "jvp": lambda: toile.jvp(fail, (X,), (X,)),
    "vjp": lambda: toile.vjp(fail, X),
    "jacrev": lambda: toile.jacrev(fail)(X),
    "linearize": lambda: toile.linearize(fail, X),
    "hessian": lambda: toile.hessian(fail)(X),
    "checkpoint": lambda: toile.grad(toile.checkpoint(fail))(X),
    "eval_shape": lambda: toile.eval_shape(fail, X),
    "make_jaxpr": lambda: toile.make_jaxpr(fail)(X),
    "scan": lambda: lax.scan(failing_step, 0.0, X),
    "map": lambda: lax.map(fail, X),
    "while": lambda: lax.while_loop(lambda x: True, fail, 0.0),
    "fori": lambda: lax.fori_loop(0, 3, fail, 0.0),
    "cond": lambda: lax.cond(True, fail, fail, X),
    "callback": lambda: toile.jit(lambda x: toile.pure_callback(fail, SHAPE, x))(X),
    "eager callback": lambda: toile.pure_callback(fail, SHAPE, X),
    "custom rule": lambda: toile.grad(lambda x: with_rule(x).sum())(X),
    "tree": lambda: toile.tree.map(fail, {"a": X}),
    "module": lambda: Failing().init(toile.random.key(0), X),
    "inner module": lambda: toile.jit(Outer().apply)({}, X),
    "optimizer": lambda: optim.adam(0.1).update({"a": X}, optim.adam(0.1).init({"b": X})),
    "schedule": lambda: optim.sgd(fail).update(X, optim.sgd(fail).init(X)),
    "recursion": lambda: recursive(X),
    "numpy": lambda: jnp.linalg.cholesky(jnp.ones((2, 3))),
}


def files(error):
    return [f.filename for f in traceback.extract_tb(error.__traceback__)]


@tracing
@pytest.mark.parametrize("way", WAYS)
def test_no_frame_of_toile(way):
    with pytest.raises(Exception) as info:
        WAYS[way]()
    assert not [f for f in files(info.value) if f.startswith(PACKAGE)]
    assert files(info.value)[-1] == __file__
    assert "removed" not in "".join(getattr(info.value, "__notes__", ()))
    assert sys.gettrace() is None


@tracing
def test_recursion_is_cut():
    with pytest.raises(RecursionError) as info:
        recursive(X)
    assert 3 <= len(files(info.value)) <= 8


@tracing
def test_module_methods_give_way_to_the_innermost():
    with pytest.raises(ZeroDivisionError) as info:
        Outer().init(toile.random.key(0), X)
    names = [f.name for f in traceback.extract_tb(info.value.__traceback__)]
    assert names[-2:] == ["__call__", "fail"] and names.count("__call__") == 1
    assert info.value.__notes__ == ["  in module /Failing_0 (Failing), called with float32[3]"]


@tracing
def test_caught_errors_leave_no_tracing():
    for _ in range(3):
        try:
            X @ jnp.ones(4)
        except TypeError:
            assert sys.gettrace() is None
    frame = sys._getframe()
    assert frame.f_trace is None
    assert not hasattr(X, "no_such_name") and sys.gettrace() is None


def text_only():
    from toile.engine.source import here

    return here()  # as a warning does: no error follows


@tracing
def test_a_location_without_an_error_leaves_no_tracing():
    text_only()
    assert sys.gettrace() is None


def test_a_debugger_keeps_its_trace_function():
    def mine(frame, event, arg):
        return None

    before = sys.gettrace()
    sys.settrace(mine)
    try:
        with pytest.raises(TypeError):
            X @ jnp.ones(4)
        assert sys.gettrace() is mine
    finally:
        sys.settrace(before)


@tracing
def test_in_threads():
    found = []

    def work():
        try:
            toile.jit(fail)(X)
        except ZeroDivisionError as error:
            found.extend(files(error))
            found.append(sys.gettrace())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found[-1] is None and not [f for f in found[:-1] if f.startswith(PACKAGE)]


@tracing
def test_causes_inside_toile_are_left_out():
    with pytest.raises(TypeError) as info:
        toile.jit(lambda x: x)("text")
    assert "Traceback" not in "".join(traceback.format_exception(info.value)).split("\n", 1)[1]


PROGRAM = """
import toile, toile.numpy as jnp
@toile.jit
def f(x):
    return x @ jnp.ones(4)
f(jnp.ones(3))
"""


@pytest.mark.parametrize("mode, frames", [("auto", 2), ("off", 8)])
def test_programs_as_python_prints_them(mode, frames):
    environment = {**os.environ, "JAX_TRACEBACK_FILTERING": mode}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True,
                          text=True, check=False)
    count = done.stderr.count('  File "')
    assert (count == frames) if mode == "auto" else count >= frames
