"""The programs of `benchmarks.programs` give the results of JAX, step by step, at small sizes."""

import ast
import functools
import inspect
import sys

import numpy as np
import pytest

from benchmarks import cpu_jaxlike, zoo
from benchmarks.operation_cells import library
from tests.golden.recorded import Record

PROGRAMS = zoo.programs()
RECORD = Record("zoo")


def results(name, program):
    """The results of three steps."""
    lib = library(name)
    step, state, batch = program.make(lib, **program.sizes["tiny"])
    step = lib.jax.jit(step, donate_argnums=0)
    found = []
    for _ in range(3):
        state, result = step(state, *batch)
        found.append(np.asarray(result).astype("f8"))
    return found


@functools.cache
def code(module):
    """The code of a module, without comments and docstrings."""
    tree = ast.parse(inspect.getsource(module))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(
                node) is not None:
            node.body[:1] = [ast.Pass()]
    return ast.unparse(tree)


@pytest.mark.cpu
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    """Rounding errors grow from step to step, and faster where choices depend on them."""
    program = PROGRAMS[name]
    source = code(sys.modules[program.make.__module__])
    theirs = RECORD.answer(f"{name} {program.sizes['tiny']} {source}",
                           lambda: results("jax", program))
    ours = results("toile", program)
    for got, want, tolerance in zip(ours, theirs, (1e-4, 1e-3, 1e-2), strict=True):
        assert np.isfinite(got).all()
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * np.abs(want).max())


def test_sizes():
    assert len(PROGRAMS) >= 24
    for name, program in PROGRAMS.items():
        assert {"tiny", "cpu", "gpu"} <= {*program.sizes}, name
        assert program.make.__doc__, name


def test_totals():
    """The check of a program's results adds up sizes, so that signs do not cancel."""
    assert cpu_jaxlike._total(np.array([1.0, -2.0])) == 3.0
