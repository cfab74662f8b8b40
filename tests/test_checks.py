"""`toile.checks`: which checks are on after a call, in a block, in a function, and in a thread."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

import toile
import toile.numpy as jnp
from toile.engine.check_switch import enabled
from toile.engine.config import config
from toile.engine.flag_table import CHECKS


@pytest.fixture(autouse=True)
def as_before():
    before = config.read("checks")
    yield
    config.update("checks", before)


def on() -> list[str]:
    return [name for name in CHECKS if enabled(name)]


def test_a_call_lasts():
    toile.checks("nan", "index")
    assert on() == ["index", "nan"]
    seen = []
    thread = threading.Thread(target=lambda: seen.extend(on()))
    thread.start()
    thread.join()
    assert seen == ["index", "nan"]
    toile.checks(None)
    assert on() == []


@pytest.mark.parametrize("given", [(), ("all",)])
def test_all(given):
    with toile.checks(*given):
        assert on() == list(CHECKS)
    assert on() == []


def test_a_block_inside_a_block():
    with toile.checks("nan"):
        with toile.checks("keys"):
            assert on() == ["keys"]
        assert on() == ["nan"]
        with toile.checks(None):
            assert on() == []
    assert on() == []


def test_a_decorator_checks_only_the_function():
    @toile.checks("keys")
    def f():
        return on()

    assert on() == []
    assert f() == ["keys"]
    assert on() == []


def test_a_jitted_function_is_traced_again():
    f = toile.jit(lambda x: jnp.log(x))
    assert jnp.isnan(f(-1.0))
    with toile.checks("nan"), pytest.raises(FloatingPointError, match="log"):
        f(-1.0)
    assert jnp.isnan(f(-1.0))


def test_an_unknown_name():
    with pytest.raises(ValueError, match="index, nan, keys, shapes and all, got 'nans'"):
        toile.checks("nans")
    assert on() == []


@pytest.mark.parametrize("text, expected", [("all", list(CHECKS)), ("nan,index", ["index", "nan"])])
def test_the_environment(text, expected):
    program = "from tests.test_checks import on; print(on())"
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | {"TOILE_CHECKS": text},
                          capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(expected)
