"""Python integers that the default dtype cannot hold, where another dtype is known."""

import functools

import jax
import numpy as np
import pytest

import toile
import toile.numpy as jnp

LARGE = {"uint32": (2**32 - 1, 2**31), "uint64": (2**64 - 1, 2**63)}
UPDATES = {
    "set": lambda a, b: b, "add": np.add, "subtract": np.subtract, "multiply": np.multiply,
    "min": np.minimum, "max": np.maximum, "power": np.power,
}
INDICES = {"one": 0, "slice": slice(0, 2), "array": np.array([2, 0]), "mask": np.arange(3) > 0}


@pytest.mark.parametrize("dtype", LARGE)
@pytest.mark.parametrize("op", UPDATES)
@pytest.mark.parametrize("index", INDICES)
def test_updates_hold_all_numbers_of_the_dtype(dtype, op, index):
    with toile.enable_x64(dtype == "uint64"):
        x, index = np.array([1, 2, 3], dtype), INDICES[index]
        for number in LARGE[dtype]:
            update = lambda x: getattr(x.at[index], op)(number)  # noqa: B023
            want = x.copy()
            want[index] = UPDATES[op](x[index], np.array(number, dtype))
            for got in (update(jnp.asarray(x)), toile.jit(update)(x)):
                assert got.dtype == dtype
                np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [*LARGE, "float32", "float16", "bfloat16", "complex64"])
@pytest.mark.parametrize("fill", [
    lambda number, dtype: jnp.full(2, number, dtype),
    lambda number, dtype: jnp.full_like(jnp.zeros(2, dtype), number),
    lambda number, dtype: jnp.full_like(jnp.zeros(2), number, dtype=dtype),
], ids=("full", "full_like", "full_like-dtype"))
def test_filled_arrays_hold_all_numbers_of_the_dtype(dtype, fill):
    with toile.enable_x64(dtype == "uint64"):
        for number in LARGE.get(dtype, (2**40, -(2**40))):
            run = functools.partial(fill, number, dtype)
            with np.errstate(over="ignore"):
                want = np.full(2, number, "float64" if dtype == "bfloat16" else dtype)
            for got in (run(), toile.jit(run)()):
                assert got.dtype == dtype
                np.testing.assert_array_equal(np.asarray(got, want.dtype), want)


@pytest.mark.parametrize("nested", [
    [2**70, 2.0], [[1.5], [2**64]], [2**70, 1j], [2**64, True, 0.5], [-(2**80), 2.0, 3j],
    (2**65, 1.0),
], ids=str)
def test_lists_of_integers_and_floats(nested):
    got, want = jnp.array(nested), jax.numpy.array(nested)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("nested", [[2**70, 2], [2**40, 1], [True, 2**64]], ids=str)
def test_lists_of_integers_must_fit(nested):
    with pytest.raises(OverflowError):
        jnp.array(nested)


@pytest.mark.parametrize(("index", "kind"), [
    ([0], "array"), ([0, 1], "array"), ([], "array"), ([np.int32(0), 1], "array"),
    ([[0, 1]], "tuple"), ([0, None], "tuple"), ([0, slice(None)], "tuple"), ([..., 0], "tuple"),
    ([0, np.arange(2)], "tuple"),
], ids=str)
def test_a_list_as_index_names_the_type_that_works(index, kind):
    x, right = jnp.arange(6).reshape(3, 2), f"arr[{kind}(seq)]"
    for use in (lambda i: x[i], lambda i: x.at[i].set(0)):
        with pytest.raises(TypeError) as caught:
            use(index)
        assert right in str(caught.value)
        use(tuple(index) if kind == "tuple" else np.array(index, int))
