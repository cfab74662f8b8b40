"""What operations say of themselves is so: kernels and passes ask for nothing else."""

import numpy as np
import pytest

from toile.engine.operation import Operation
from toile.engine.out_of_bounds import Bounds
from toile.primitives import barriers, bounds, choices, dynamic_slices, families, gathers, shapes

NUMBERS = gathers.GatherDimensionNumbers((1,), (0,), (0,))
UPDATES = gathers.ScatterDimensionNumbers((1,), (0,), (0,))
X = np.arange(1, 13).reshape(3, 4)
ZERO = np.asarray(0)
ROWS = [
    (barriers.StopGradient(), [X]),
    (barriers.Name("x"), [X]),
    (bounds.CheckIndex(Bounds(0, 12, "x", str)), [X]),
    (shapes.OptimizationBarrier(), [X, X + 20]),
    (shapes.Copy(), [X]),
    (families.BroadcastInDim((2, 3, 4), (1, 2)), [X]),
    (families.Reshape((2, 6)), [X]),
    (families.Transpose((1, 0)), [X]),
    (shapes.Slice((0, 1), (3, 4), (2, 1)), [X]),
    (shapes.Pad(((1, 0, 0), (0, 2, 1))), [X, np.asarray(50)]),
    (shapes.Concatenate(1), [X, X + 20]),
    (shapes.Rev((0,)), [X]),
    (choices.ConvertElementType(np.dtype(np.int8)), [X]),
    (shapes.ReducePrecision(8, 7), [X.astype(np.float32)]),
    (dynamic_slices.DynamicSlice((2, 2)), [X, ZERO, ZERO]),
    (dynamic_slices.DynamicUpdateSlice(), [X, X[:2, :2] + 20, ZERO, ZERO]),
    (gathers.Gather(NUMBERS, (1, 4)), [X, np.array([[2], [0]])]),
    (gathers.Scatter("set", UPDATES), [X, np.array([[2], [0]]), X[:2] + 20]),
]
ANSWERS = ("is_identity", "moves_elements", "moves_axes", "only_rounds", "by_blocks", "updates")


@pytest.mark.parametrize(("op", "xs"), ROWS, ids=[str(op) for op, _ in ROWS])
def test_answers_are_true(op, xs):
    out = op.eager(np, *xs)
    results = list(out) if op.multiple else [out]
    given = np.concatenate([np.ravel(x) for x in xs])
    if op.is_identity or op.only_rounds:
        for x, y in zip(xs, results, strict=True):
            np.testing.assert_array_equal(x, y)
    if op.moves_elements or op.by_blocks:
        assert np.isin(results[0], given).all()
    if op.moves_axes:
        assert set(np.ravel(results[0])) == set(given)
        assert op.view(_Place(xs[0].shape, xs[0].strides)) is not None
    if op.updates:
        assert results[0].shape == xs[0].shape and op.by_blocks
        assert op.overwrites == slice(1)
        kept = results[0] == xs[0]
        assert kept.any() and not kept.all()


class _Place:
    """What views change."""

    def __init__(self, shape, strides):
        self.shape, self.strides = shape, strides

    def _replace(self, shape, strides):
        return _Place(shape, strides)


def test_every_such_operation_is_in_the_table():
    def final(one):
        return [c for s in one.__subclasses__() for c in final(s)] or [one]

    found = {c for c in final(Operation) if c.__module__.startswith("toile.primitives.")
             and any(getattr(c, name) for name in ANSWERS)}
    assert found == {type(op) for op, _ in ROWS}
