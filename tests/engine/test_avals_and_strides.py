"""Avals are equal in all of their fields or not at all; strides of a reshaped view are NumPy's."""

import itertools

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile.engine.avals import Aval
from toile.engine.strides import row_major, strides_in

AVALS = [Aval(shape, np.dtype(dtype), weak) for shape in ((), (2,), (2, 3), (3, 2))
         for dtype in ("float32", "int32") for weak in (False, True)]


def test_avals_are_equal_in_all_fields():
    for (i, a), (j, other) in itertools.product(enumerate(AVALS), repeat=2):
        b = other.update()
        assert (a == b) == (i == j) and (a != b) == (i != j), (a, b)
        assert i != j or hash(a) == hash(b)


def test_weak_types_are_part_of_what_programs_take():
    f = toile.make_jaxpr(lambda x: x * 2)
    strong, weak = (f(x).in_avals[0] for x in (jnp.float32(1), 1.0))
    assert strong != weak and strong == weak.strip_weak_type()


BASE = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
VIEWS = {
    "whole": BASE, "rows": BASE[:, :2], "columns": BASE[..., :4], "every second": BASE[:, :, ::2],
    "transposed": BASE.transpose(0, 2, 1, 3), "moved": BASE.transpose(3, 0, 1, 2),
    "reversed": BASE[:, ::-1], "broadcast": np.broadcast_to(BASE[:, :1], (2, 3, 4, 5)),
    "one row": BASE[1:], "flat": BASE.reshape(-1)[3:99:4], "gap in the middle": BASE[:, 1:3, ::2],
}


def shapes_of(size):
    """All shapes of up to four axes with so many elements, some with an axis of size 1."""
    factors = [n for n in range(1, size + 1) if size % n == 0]
    return {s for k in range(1, 5) for s in itertools.product(factors, repeat=k)
            if np.prod(s) == size and s.count(1) <= 1}


@pytest.mark.parametrize("name", VIEWS)
def test_strides_of_reshaped_views(name):
    """There are strides exactly where NumPy needs no copy, and they reach the same elements."""
    view = VIEWS[name]
    strides = [s // view.itemsize for s in view.strides]
    views = 0
    for new in shapes_of(view.size):
        found = strides_in(new, view.shape, strides)
        wanted = view.reshape(new)
        if found is None:
            assert not np.shares_memory(wanted, BASE), new
            continue
        views += 1
        bytes_ = [s * view.itemsize for s in found]
        got = np.lib.stride_tricks.as_strided(view, new, bytes_)
        np.testing.assert_array_equal(got, wanted, err_msg=str(new))
    assert views


def test_row_major():
    for shape in ((), (3,), (2, 3), (2, 1, 4), (5, 0, 2)):
        wanted = [s // 8 for s in np.empty(shape).strides]
        assert 0 in shape or list(row_major(shape)) == wanted
