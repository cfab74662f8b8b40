"""Gather, scatter and dynamic slices: values and every rule against jax.lax."""

import jax
import numpy as np
import pytest
from jax import lax

from tests.primitives.rules import asked, check
from toile.engine.arrays import KeyArray
from toile.engine.conversion import as_array
from toile.engine.dtypes import key_dtype
from toile.primitives import gathers as indexing
from toile.primitives.dynamic_slices import DynamicSlice, dynamic_update_slice
from toile.primitives.gathers import (
    Gather,
    GatherDimensionNumbers,
    GatherScatterMode,
    Scatter,
    ScatterDimensionNumbers,
    fill_text,
)
from toile.transforms.jvp import jvp_flat
from toile.transforms.vmap import vmap_flat

# operand shape, indices, dimension numbers, slice sizes
GEOMETRIES = {
    "rows": ((5, 3), [[0], [4], [2]], ((1,), (0,), (0,)), (1, 3)),
    "duplicates": ((5, 3), [[1], [4], [1]], ((1,), (0,), (0,)), (1, 3)),
    "columns": ((3, 5), [[0], [4], [1]], ((0,), (1,), (1,)), (3, 1)),
    "points": ((4, 5), [[0, 1], [3, 3], [2, 4]], ((), (0, 1), (0, 1)), (1, 1)),
    "windows": ((4, 5), [[0, 1], [2, 3], [1, 0]], ((1, 2), (), (0, 1)), (2, 2)),
    "outside": ((5, 3), [[-1], [4], [9]], ((1,), (0,), (0,)), (1, 3)),
    "single": ((5, 3), [2], ((0,), (0,), (0,)), (1, 3)),
    "batching": ((3, 4), [[0], [3], [1]], ((), (1,), (1,), (0,), (0,)), (1, 1)),
}
MODES = {"fill": GatherScatterMode.FILL_OR_DROP, "clip": GatherScatterMode.CLIP}


def operand(shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def geometry(name):
    shape, index, numbers, sizes = GEOMETRIES[name]
    return operand(shape), np.array(index, np.int32), numbers, sizes


def theirs(mode):
    return {"fill": lax.GatherScatterMode.FILL_OR_DROP, "clip": lax.GatherScatterMode.CLIP}[mode]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", GEOMETRIES)
def test_gather(name, mode):
    x, index, numbers, sizes = geometry(name)

    def reference(x, i):
        return lax.gather(x, i, lax.GatherDimensionNumbers(*numbers), sizes, mode=theirs(mode))

    op = Gather(GatherDimensionNumbers(*numbers), sizes, mode=MODES[mode])
    check(op, reference, x, index)


@pytest.mark.parametrize("value", [7.0, -0.0, None])
def test_gather_fill_value(value):
    x, index, numbers, sizes = geometry("outside")
    op = Gather(GatherDimensionNumbers(*numbers), sizes, fill_value=fill_text(value))
    want = asked(lax.gather, x, index, lax.GatherDimensionNumbers(*numbers), sizes, mode="fill",
                 fill_value=value)
    got = np.asarray(op(as_array(x), as_array(index)))
    np.testing.assert_array_equal(got, want)
    if value is not None:
        assert (np.signbit(got[0]) == np.signbit(value)).all()
    whole = (x * 10).astype(np.int32)
    op = Gather(GatherDimensionNumbers(*numbers), sizes, fill_value=fill_text(3))
    want = asked(lax.gather, whole, index, lax.GatherDimensionNumbers(*numbers), sizes,
                 mode="fill", fill_value=3)
    np.testing.assert_array_equal(np.asarray(op(as_array(whole), as_array(index))), want)


def update_shape(index, numbers, sizes):
    dropped = {*numbers[1], *(numbers[3] if len(numbers) > 3 else ())}
    window = iter([n for d, n in enumerate(sizes) if d not in dropped])
    batch = iter(index.shape[:-1])
    rank = len(numbers[0]) + index.ndim - 1
    return tuple(next(window if d in numbers[0] else batch) for d in range(rank))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("combine", indexing.COMBINES)
@pytest.mark.parametrize("name", GEOMETRIES)
def test_scatter(name, combine, mode):
    x, index, numbers, sizes = geometry(name)
    unique = combine == "mul" and name not in ("duplicates", "outside", "windows")
    if combine == "mul" and not unique:
        return
    updates = np.random.default_rng(1).normal(size=update_shape(index, numbers, sizes))
    call = lax.scatter if combine == "set" else getattr(lax, f"scatter_{combine}")

    def reference(x, i, u):
        return call(x, i, u, lax.ScatterDimensionNumbers(*numbers), mode=theirs(mode),
                    unique_indices=unique)

    op = Scatter(combine, ScatterDimensionNumbers(*numbers), False, unique, MODES[mode])
    # JAX reads with the default mode in the derivative of min and max, whatever the mode is
    grad = not (name == "outside" and combine in ("min", "max"))
    mapped = [True, not unique, True]
    check(op, reference, x, index, updates.astype(np.float32), grad=grad, mappable=mapped,
          atol=2e-5)


@pytest.mark.parametrize("combine", ["min", "max"])
def test_scatter_ties(combine):
    x = np.array([1.0, 2.0, 3.0], np.float32)
    index = np.array([[0], [1], [1], [2], [2]], np.int32)
    updates = np.array([1.0, 5.0, 5.0, 3.0, 0.0], np.float32)
    numbers = ((), (0,), (0,))
    call = getattr(lax, f"scatter_{combine}")
    op = Scatter(combine, ScatterDimensionNumbers(*numbers))
    check(op, lambda x, i, u: call(x, i, u, lax.ScatterDimensionNumbers(*numbers)), x, index,
          updates, vmap=False)


def test_scatter_mul_needs_unique_indices():
    x, index, numbers, sizes = geometry("rows")
    op = Scatter("mul", ScatterDimensionNumbers(*numbers))
    xs = [as_array(x), as_array(index), as_array(np.ones((3, 3), np.float32))]
    with pytest.raises(NotImplementedError, match="unique_indices=True"):
        jvp_flat(lambda u: [op(xs[0], xs[1], u)], xs[2:], xs[2:])


@pytest.mark.parametrize("starts", [(1, 2), (3, -4), (9, 9)])
def test_dynamic_slice(starts):
    x, sizes = operand((4, 5)), (2, 3)
    index = [np.int32(s) for s in starts]

    def read(x, *s):  # the operation itself clamps; only the function of lax counts from the end
        return lax.dynamic_slice(x, s, sizes, allow_negative_indices=False)

    def write(x, u, *s):
        return lax.dynamic_update_slice(x, u, s, allow_negative_indices=False)

    check(DynamicSlice(sizes), read, x, *index)
    check(dynamic_update_slice, write, x, operand((2, 3)), *index)


def test_rank_zero():
    x = np.float32(2)
    check(DynamicSlice(()), lambda x: lax.dynamic_slice(x, (), ()), x)
    check(dynamic_update_slice, lambda x, u: lax.dynamic_update_slice(x, u, ()), x, x)


def test_mixed_batches_of_dynamic_slice():
    x = operand((3, 4, 5))
    starts = np.arange(3, dtype=np.int32)

    def call(x, s):
        return [DynamicSlice((2, 3))(x, s, as_array(np.int32(1)))]

    (got,), (dim,) = vmap_flat(call, (None, 3), [as_array(x), as_array(starts)], [0, 0])
    want = asked(jax.vmap(lambda x, s: lax.dynamic_slice(x, (s, 1), (2, 3))), x, starts)
    assert dim == 0
    np.testing.assert_array_equal(np.asarray(got), want)


def test_errors_name_the_operands():
    op = Gather(GatherDimensionNumbers((1,), (0,), (0,)), (1, 4))
    with pytest.raises(TypeError, match=r"in gather op is out of range.* float32\[5,3\]"):
        op.infer(as_array(operand((5, 3))).aval, as_array(np.zeros((2, 1), np.int32)).aval)
    with pytest.raises(TypeError, match="dynamic_slice: needed one integer start"):
        DynamicSlice((1, 1)).infer(as_array(operand((5, 3))).aval)
    with pytest.raises(ValueError, match="Unknown gather mode"):
        GatherScatterMode.from_any("wrap")


def test_keys():
    data = np.arange(12, dtype=np.uint32).reshape(3, 2, 2)
    keys = KeyArray(data, key_dtype("threefry2x32"))
    index = as_array(np.array([[2], [0]], np.int32))
    numbers = GatherDimensionNumbers((1,), (0,), (0,))
    got = Gather(numbers, (1, 2))(keys, index)
    assert got.dtype == keys.dtype
    np.testing.assert_array_equal(got._data, data[[2, 0]])
    one, zero = as_array(np.int32(1)), as_array(np.int32(0))
    np.testing.assert_array_equal(DynamicSlice((1, 2))(keys, one, zero)._data, data[1:2])
    update = KeyArray(data[:1] + 50, keys.dtype)
    changed = data.copy()
    changed[1] = data[0] + 50
    got = dynamic_update_slice(keys, update, one, zero)
    np.testing.assert_array_equal(got._data, changed)
    put = Scatter("set", ScatterDimensionNumbers((0,), (0,), (0,)))
    got = put(keys, as_array(np.array([1], np.int32)), KeyArray(data[0] + 50, keys.dtype))
    np.testing.assert_array_equal(got._data, changed)
    with pytest.raises(TypeError, match="scatter: needed numbers"):
        Scatter("add", put.dimension_numbers)(keys, as_array(np.array([1], np.int32)),
                                              KeyArray(data[0], keys.dtype))
