"""The model of every example as a stored Program: it gives toile's values, at any batch size."""

import functools

import numpy as np
import pytest

import toile
from tests.exporting import subjects
from toile import export


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", subjects.EXAMPLES)
def test_example(name):
    subject = subjects.example(name)
    args = [np.asarray(a) for a in subject.args]
    check(subject, args, args, subject.results(args))
    larger, want = subject.scaled()
    if larger is not None:
        (batch,) = export.symbolic_shape("batch")
        count = args[0].shape[0]
        free = [toile.ShapeDtypeStruct((batch, *a.shape[1:]) if a.ndim and a.shape[0] == count
                                       else a.shape, a.dtype) for a in args]
        check(subject, free, larger, want)


@functools.cache
def register(kind):
    """Give the named tuples that a model returns a name in files."""
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        name = f"{kind.__module__}.{kind.__qualname__}"
        export.register_namedtuple_serialization(kind, serialized_name=name)


def check(subject, described, args, want):
    """Export for the described arguments, load what was stored, and call it."""
    register(type(subject.function(subject.params, *args)))
    made = export.export(toile.jit(subject.function))(subject.params, *described)
    loaded = export.deserialize(made.serialize())
    got = toile.tree_util.tree_leaves(loaded.call(subject.params, *args))
    subjects.compare([np.asarray(g) for g in got], want, subject.rtol)
