"""Rows whose elements are not adjacent: threads process one row each, and neighbors read neighbors.

A softmax over an axis that is not the last one is one kernel, not one for each sum."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.closeness import nearly_equal
from tests.compiler.test_golden_kernels import shape
from tests.gpu import fibers
from tests.gpu.emulator import Nests
from tests.gpu.test_nests import backward, drawn, hopper  # noqa: F401 - the fixture
from toile import nn
from toile.compiler.ir.groups import Limits
from toile.compiler.pipeline import optimize
from toile.compiler.plan.lower import planned
from toile.platforms.gpu.target import TARGET

LIMITS = Limits(total_row=1 << 13, strided_rows=((1 << 10, 8),))


def norm(x, axis=1):
    return (x - x.mean(axis, keepdims=True)) / jnp.sqrt(x.var(axis, keepdims=True) + 1e-5)


def norm_of_channels(x, scale):
    return norm(x) * scale[:, None]


def losses(x, y):
    """Several sums, one of which is read after the kernel."""
    p = nn.log_softmax(x, axis=1)
    return p, -(p * y).sum(1), x.max(1)


def two_axes(x):
    return x / x.sum((1, 2), keepdims=True)


# What it is: function, arguments, and kernels.
PROGRAMS = {
    "softmax": (lambda x: nn.softmax(x, axis=1), [shape(5, 16, 40)], 1),
    "softmax of three": (lambda x: nn.softmax(x, axis=0), [shape(3, 1000)], 1),
    "softmax of long rows": (lambda x: nn.softmax(x, axis=1), [shape(2, 200, 48)], 1),
    "softmax backward": (backward(lambda x: nn.softmax(x, axis=1)), [shape(5, 16, 40)] * 2, 1),
    "softmax of a transpose": (lambda x: nn.softmax(x.T, axis=0), [shape(300, 40)], 1),
    "softmax of bfloat16": (lambda x: nn.softmax(x, axis=1), [shape(5, 7, 64, dtype="bfloat16")],
                            1),
    "softmax beside a transpose": (lambda x, y: nn.softmax(x + y.T, axis=0),
                                   [shape(40, 64), shape(64, 40)], 1),
    "logsumexp": (lambda x: nn.logsumexp(x, axis=1), [shape(4, 33, 34)], 1),
    "log of a mean of exponentials": (lambda x: nn.logsumexp(x, axis=0) - jnp.log(9.0),
                                      [shape(9, 65)], 1),
    "norm": (norm, [shape(4, 24, 50)], 1),
    "norm of channels": (norm_of_channels, [shape(4, 24, 50), shape(24)], 1),
    "norm of channels backward": (
        toile.grad(lambda x, s: (norm_of_channels(x, s) ** 3).sum(), (0, 1)),
        [shape(4, 24, 50), shape(24)], None),
    "several sums": (losses, [shape(6, 10, 33)] * 2, 1),
    "two axes": (two_axes, [shape(3, 4, 5, 32)], 1),
    "two axes apart": (lambda x: x / x.sum((0, 2), keepdims=True), [shape(3, 4, 5, 32)], 1),
    "complex": (lambda x: x / (x * jnp.conj(x)).sum(1, keepdims=True),
                [shape(3, 9, 40, dtype="complex64")], 1),
    "integers": (lambda x: x - x.max(1, keepdims=True), [shape(3, 9, 40, dtype="int32")], 1),
}


@pytest.mark.skipif(not fibers.available(), reason="needs g++")
@pytest.mark.parametrize("name", PROGRAMS)
def test_meaning(name):
    fun, shapes, kernels = PROGRAMS[name]
    rng = np.random.default_rng(3)
    args = [drawn(s, rng) for s in shapes]
    program = Nests(fun, *shapes, limits=LIMITS)
    assert kernels in (None, len(program.launches))
    want = toile.tree.leaves(fun(*map(jnp.asarray, args)))
    for i, (g, w) in enumerate(zip(program(*args), want, strict=True)):
        nearly_equal(g, np.asarray(w), f"result {i} of {program.kinds}", 64)


def launches(fun, *shapes):
    plan = planned(optimize(toile.make_jaxpr(fun)(*shapes).jaxpr), TARGET)
    return [x for step in plan.steps for x in step.launches]


def test_neighboring_threads_read_neighboring_elements():
    """A thread has a row: 16 elements stay in registers, 200 are read in each pass."""
    for row, held in ((16, True), (200, False)):
        (x,) = launches(lambda x: nn.softmax(x, axis=1), shape(300, row, 256))
        assert "threadIdx.x % 1;" in x.text
        assert x.blocks == 300 * 256 // x.threads
        assert ("const int start" in x.text) == held


def test_other_rows_are_as_they_were():
    """Too few rows, too long rows, and rows whose elements are adjacent."""
    for fun, given in [
        (lambda x: nn.softmax(x, axis=0), shape(16, 512)),
        (lambda x: nn.softmax(x, axis=0), shape(512, 1 << 16)),
        (lambda x: nn.softmax(x, axis=0), shape(4096, 256)),
        (lambda x: nn.softmax(x, axis=1), shape(4096, 16, 4)),
    ]:
        assert len(launches(fun, given)) > 1
    (x,) = launches(lambda x: nn.softmax(x, axis=2), shape(4096, 16, 64))
    assert "threadIdx.x % 1;" not in x.text
