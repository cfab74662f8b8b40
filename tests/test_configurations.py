"""Flax's flags in toile.config, and toile.configurations beside flax.configurations."""

import os
import subprocess
import sys

import flax.configurations as flax_configurations
import pytest

import toile
from toile import configurations
from toile.configurations import config, temp_flip_flag
from toile.engine.config import trace_context

NAMES = [
    *("flax_filter_frames", "flax_profile", "flax_use_orbax_checkpointing"),
    *("flax_preserve_adopted_names", "flax_return_frozendict", "flax_fix_rng_separator"),
]


@pytest.mark.parametrize("name", NAMES)
def test_default_update_and_restore(name):
    before = getattr(config, name)
    assert before is getattr(flax_configurations.config, name)
    toile.config.update(name, not before)
    try:
        assert getattr(toile.config, name) is config.read(name) is (not before)
        assert config.values[name] is (not before)
    finally:
        config.update(name, before)


def test_one_object_for_both_libraries():
    assert toile.config is config
    assert toile.config.jax_enable_x64 is False and toile.config.flax_profile is True


def test_temp_flip_flag():
    for flip in (config.temp_flip_flag, temp_flip_flag):
        with pytest.raises(ZeroDivisionError), flip("return_frozendict", True):
            assert config.flax_return_frozendict is True
            raise ZeroDivisionError
        assert config.flax_return_frozendict is False


def test_holders():
    holder = configurations.flax_return_frozendict
    assert holder.name == "flax_return_frozendict" and holder.value is False
    config.update(holder, True)
    assert holder.value is True
    config.update(holder, False)
    with pytest.raises(TypeError, match=r"\.value"):
        bool(holder)


def test_unknown_flag():
    for error in (LookupError, AttributeError):
        with pytest.raises(error, match="flax_return_frozendic.*'flax_return_frozendict'"):
            config.update("flax_return_frozendic", True)


def test_new_flags(monkeypatch):
    monkeypatch.setattr(config, "_values", {})  # they are gone after the test
    monkeypatch.setenv("FLAX_TEST_OF_A_FLAG", "off")
    monkeypatch.setenv("FLAX_TEST_OF_A_NUMBER", "12")
    flag = configurations.bool_flag("FLAX_Test_of_a_flag", default=True, help="A test.")
    number = configurations.int_flag("flax_test_of_a_number", default=None, help="A test.")
    assert flag.value is config.flax_test_of_a_flag is False
    assert number.value == 12 and "A test." in number.__doc__
    config.update(number, 7)
    assert config.flax_test_of_a_number == config.values["flax_test_of_a_number"] == 7
    with config.temp_flip_flag("test_of_a_flag", True):
        assert flag.value is True
    assert flag.value is False and "flax_test" not in repr(config)
    with pytest.raises(RuntimeError, match="already defined"):
        configurations.bool_flag("flax_test_of_a_flag", default=True, help="")


@pytest.mark.parametrize("text", ["y", "Yes", "T", "true", "ON", "1", "n", "no", "f", "0", "?", ""])
def test_environment_values(monkeypatch, text):
    monkeypatch.setenv("SOME_FLAG", text)

    def outcome(module):
        try:
            return module.static_bool_env("SOME_FLAG", True)
        except ValueError as error:
            return str(error)

    assert outcome(configurations) == outcome(flax_configurations)
    monkeypatch.setenv("SOME_FLAG", "x1")
    for module in (configurations, flax_configurations):
        with pytest.raises(ValueError, match="invalid integer value 'x1'"):
            module.static_int_env("SOME_FLAG", 1)
        assert module.static_int_env("SOME_OTHER_FLAG", None) is None


def test_environment_variables():
    program = "import toile; c = toile.config; print(c.flax_return_frozendict, c.flax_profile)"
    env = {**os.environ, "FLAX_RETURN_FROZENDICT": "1", "TOILE_PROFILE": "no"}
    out = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    assert out.stdout.split() == ["True", "False"], out.stderr


def test_flags_that_change_programs_retrace():
    before = trace_context()
    with temp_flip_flag("fix_rng_separator", True):
        assert trace_context() != before
    assert trace_context() == before
