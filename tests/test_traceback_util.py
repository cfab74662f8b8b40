"""Frames of the library leave tracebacks at a boundary."""

import os
import traceback

import pytest

import toile
import toile.linen as nn
import toile.numpy as jnp
from toile import traceback_util


def fail(x):
    raise ZeroDivisionError("mine")


class Bad(nn.Module):
    @nn.compact
    def __call__(self, x):
        return fail(x)


@traceback_util.api_boundary
def inner(x):
    return toile.jit(Bad().apply)({}, x)


@traceback_util.api_boundary
def outer(x):
    return inner(x)


def frames():
    """(folder, function) of each frame of the error; and the error."""
    with pytest.raises(ZeroDivisionError) as info:
        outer(jnp.ones(1))
    found = traceback.extract_tb(info.value.__traceback__)
    where = lambda f: os.path.basename(os.path.dirname(f.filename))
    return [(where(f), f.name) for f in found], info.value


def names(found):
    return [name for folder, name in found if name != "filtering"]


class _filtering:
    def __init__(self, mode):
        self.mode = mode

    def __enter__(self):
        self.before = toile.config.jax_traceback_filtering
        toile.config.update("jax_traceback_filtering", self.mode)

    def __exit__(self, *error):
        toile.config.update("jax_traceback_filtering", self.before)


def test_frames_of_toile_are_gone():
    found, error = frames()
    assert names(found) == ["frames", "outer", "inner", "__call__", "fail"]
    assert error.__notes__ == ["  in module / (Bad), called with float32[1]"]  # no word of frames


def test_modules_can_be_shown():
    traceback_util.show_flax_in_tracebacks()
    try:
        found, _ = frames()
    finally:
        traceback_util.hide_flax_in_tracebacks()
    assert "linen" in {folder for folder, _ in found}
    assert "staging" not in {folder for folder, _ in found}
    assert "linen" not in {folder for folder, _ in frames()[0]}


def test_filtering_can_be_off():
    with _filtering("off"):
        found, error = frames()
    assert {"linen", "staging"} <= {folder for folder, _ in found}


def test_hidden_from_pytest_and_ipython():
    with _filtering("tracebackhide"):
        with pytest.raises(ZeroDivisionError) as info:
            outer(jnp.ones(1))
    hidden = {
        f.f_code.co_name for f, _ in traceback.walk_tb(info.value.__traceback__)
        if f.f_locals.get("__tracebackhide__")
    }  # fmt: skip
    assert "filtering" in hidden


@pytest.mark.parametrize("method", ["init", "apply", "init_with_output", "lazy_init"])
def test_modules_are_boundaries(method):
    """Only the caller and the module are left, and errors still name the call they came from."""
    first = {} if method == "apply" else toile.random.key(0)
    with pytest.raises(ZeroDivisionError) as info:
        getattr(nn.jit(Bad)(), method)(first, jnp.ones(1))
    found = [f.name for f in traceback.extract_tb(info.value.__traceback__)]
    assert found == ["test_modules_are_boundaries", "__call__", "fail"]
    with pytest.raises(TypeError) as info:
        nn.Dense(2).init(toile.random.key(0), jnp.ones((2, 3)), jnp.ones(1))
    assert "api_boundary" not in str(info.value)


def test_all_frames_in_the_cause():
    with _filtering("remove_frames"), pytest.raises(ZeroDivisionError) as info:
        Bad().apply({}, jnp.ones(1))
    whole = info.value.__cause__
    assert isinstance(whole, traceback_util.UnfilteredStackTrace)
    assert "linen" in {os.path.basename(os.path.dirname(f.filename))
                       for f in traceback.extract_tb(whole.__traceback__)}


def test_registered_files_are_hidden():
    from toile.engine import source

    code = compile("def theirs(f, x):\n    return f(x)\n", "/some/library/code.py", "exec")
    space = {}
    exec(code, space)
    traceback_util.register_exclusion("/some/library")
    assert source.is_internal(space["theirs"].__code__)
    run = traceback_util.api_boundary(lambda: space["theirs"](fail, 1))
    with pytest.raises(ZeroDivisionError) as info:
        run()
    assert "theirs" not in [f.name for f in traceback.extract_tb(info.value.__traceback__)]


def test_results_and_causes_pass():
    assert traceback_util.api_boundary(lambda x: x + 1)(1) == 2

    @traceback_util.api_boundary
    def caused():
        try:
            fail(1)
        except ZeroDivisionError as e:
            raise KeyError("k") from e

    with pytest.raises(KeyError) as info:
        caused()
    assert isinstance(info.value.__cause__, ZeroDivisionError)
