"""Every class of `toile.errors` shows a broken program, which raises it, and a repaired one.

The programs are read out of the docstrings, so that what users read is what is tested; the texts of
the errors are tested in wrong_programs.
"""

import re
import textwrap
import warnings
from functools import partial

import numpy as np
import pytest

import toile
import toile.linen as nn
import toile.numpy as jnp
from toile import errors, lax, random

# Errors of modules that cannot happen here, or only with several processes, say so instead.
CLASSES = [
    cls
    for cls in (getattr(errors, name) for name in errors.__all__)
    if not issubclass(cls, errors.FlaxError) or "Broken::" in (cls.__doc__ or "")
]


def program(cls, kind):
    """The indented block after `Broken::` or `Repaired::` in a docstring."""
    text = textwrap.dedent("    " + (cls.__doc__ or ""))
    found = re.search(rf"{kind}::\n\n((?:(?:    .*)?\n)+)", text + "\n")
    assert found, f"{cls.__name__} has no {kind.lower()} program"
    return textwrap.dedent(found[1])


def run(text):
    names = {"toile": toile, "jnp": jnp, "np": np, "lax": lax, "random": random, "nn": nn}
    names |= {"partial": partial, "errors": errors}
    exec(compile(text, "<docstring>", "exec"), names)
    return names


def test_list_is_complete():
    defined = {n for n, c in vars(errors).items() if isinstance(c, type)}
    assert defined == set(errors.__all__)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_repaired_program_runs(cls):
    run(program(cls, "Repaired"))


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_broken_program_raises(cls):
    with pytest.raises(cls) as caught, warnings.catch_warnings():
        warnings.simplefilter("error")
        run(program(cls, "Broken"))
    assert len(str(caught.value).splitlines()) <= 15


def test_names_and_bases_of_jax():
    jax_errors = pytest.importorskip("jax").errors
    for name in ("ConcretizationTypeError", "TracerArrayConversionError", "UnexpectedTracerError",
                 "TracerBoolConversionError", "TracerIntegerConversionError",
                 "NonConcreteBooleanIndexError", "JaxRuntimeError", "KeyReuseError"):
        theirs = {c.__name__ for c in getattr(jax_errors, name).__mro__}
        ours = {c.__name__ for c in getattr(errors, name).__mro__}
        builtins = {n for n in theirs if n in ("TypeError", "IndexError", "RuntimeError")}
        assert builtins <= ours, name


def test_location_skips_library_frames():
    try:
        np.add(np.ones(3), lax.add(jnp.ones(3), jnp.ones(4)))
    except errors.ShapeError as error:
        assert f"at {__file__}:" in str(error)


def test_message_of_large_operands_is_short():
    with pytest.raises(TypeError) as caught:
        jnp.concatenate([jnp.ones((n, 2 + n % 2)) for n in range(1, 60)])
    assert len(str(caught.value).splitlines()) <= 15
    with pytest.raises(TypeError) as caught:
        jnp.add(jnp.ones((100, 100)), list(range(1000)))
    assert len(str(caught.value)) < 1500


def test_operands_without_advice_are_left_to_python():
    x = jnp.ones(3)

    class Other:
        def __radd__(self, other):
            return "other"

    assert x + Other() == "other"
    assert (x == None) is False and (x != "a") is True  # noqa: E711
    assert "-" * jnp.int32(3) == "---"
    for other in (None, "a", {"a": 1}, print):
        with pytest.raises(TypeError, match="unsupported operand"):
            x - other
        with pytest.raises(TypeError, match="not supported between instances"):
            x < other  # noqa: B015


def test_only_numbers_read_from_a_loss_are_refused():
    def loss(x, read):
        y = x * 2
        return float(y) if read else 4.0

    assert toile.grad(loss)(2.0, False) == 0
    assert toile.grad(lambda x: 0.0 if (x * 2).item() == 0.0 else x)(0.0) == 0
    assert toile.grad(lambda x: float(x) * x)(2.0) == 2
    with pytest.raises(errors.ConcretizationTypeError, match="it was read at .*test_errors"):
        toile.grad(loss)(2.0, True)


def test_formatted_tracers_are_reported():
    with pytest.warns(UserWarning, match="formatted while the function was traced"):
        toile.jit(lambda x: toile.debug.print(f"x: {x}"))(1.0)


def test_names_of_other_packages():
    for module, name, place in [(jnp, "inv", "toile.numpy.linalg.inv"), (toile, "zeros", "numpy"),
                                (toile.nn, "ReLU", "relu"), (random, "randn", "normal")]:
        with pytest.raises(AttributeError, match=f"'{name}' .*{place}"):
            getattr(module, name)


def test_deleted_operand_is_described_once():
    x = jnp.ones(3)
    x.delete()
    with pytest.raises(RuntimeError, match="Array has been deleted"):
        jnp.add(x, 1)
