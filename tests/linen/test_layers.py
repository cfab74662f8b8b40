"""Every layer against flax: variables, results, changed collections, gradients; then transforms.

flax answers by its record, or live for a sample and for all with TOILE_TEST_ALL=1."""

import numpy as np
import pytest

import toile
from tests import seeds
from tests.linen import oracle
from toile.engine.scoped_options import allow_excess_precision

ROWS = oracle.tables()
ids = lambda row: row.name


@pytest.fixture(scope="module")
def recorded():
    """The answers of flax that are on file."""
    return oracle.load()


def compare(row, want):
    """Hold toile's observations against flax's."""
    with toile.enable_x64(row.x64):
        got = oracle.observe(oracle.toile_library(), row)
    assert list(got) == list(want), f"{sorted(set(got) ^ set(want))}"
    for label, expected in want.items():
        found = got[label]
        assert found.dtype == expected.dtype, f"{label}: {found.dtype}, needed {expected.dtype}"
        assert found.shape == expected.shape, f"{label}: {found.shape}, needed {expected.shape}"
        if expected.dtype.kind in "biu":
            np.testing.assert_array_equal(found, expected, err_msg=label)
            continue
        narrow = expected.dtype.itemsize == 2
        size = np.abs(expected.astype(np.complex128))
        scale = np.max(size, initial=1.0, where=expected == expected)
        np.testing.assert_allclose(
            found.astype(np.complex128), expected.astype(np.complex128),
            rtol=max(row.rtol, 1.6e-2 * narrow), atol=max(row.atol, 1e-2 * narrow) * scale,
            err_msg=label,
        )  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", ROWS, ids=ids)
def test_layer(row, recorded):
    """The layer does on toile what flax was recorded to do."""
    known = recorded.get(oracle.digest(row))
    compare(row, known or oracle.answer(row))


def asked_live():
    """All rows; those outside the sample of the day are marked slow."""
    for row in ROWS:
        sampled = seeds.is_chosen(row.name, 16)
        yield pytest.param(row, id=row.name, marks=() if sampled else pytest.mark.slow)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", list(asked_live()))
def test_layer_live(row):
    """The same against the flax that is installed."""
    compare(row, oracle.answer(row))


def close(a, b, row):
    """Two trees of toile arrays agree."""
    for x, y in zip(toile.tree.leaves(a), toile.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        x, y = np.asarray(x).astype(np.complex128), np.asarray(y).astype(np.complex128)
        scale = np.max(np.abs(y), initial=1.0, where=y == y)
        tolerance = 2e-2 if np.asarray(toile.tree.leaves(a)[0]).dtype.itemsize == 2 else 1e-5
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", ROWS, ids=ids)
def test_transforms(row):
    """jit(apply) is apply, and vmap(apply) over examples is a loop over them."""
    lib = oracle.toile_library()
    # Eager operations round bfloat16 one by one; so do compiled ones when they are told to.
    with toile.enable_x64(row.x64), allow_excess_precision(False):
        module, args = row.build(lib), oracle.to_library(lib, row.args)
        variables = module.init(
            {"params": lib.random.key(3), **oracle.keys(lib, row)}, *args, **row.kwargs,
            method=row.method,
        )  # fmt: skip
        where = [i for i, a in enumerate(row.args) if isinstance(a, np.ndarray)]

        def call(variables, arrays):
            given = list(args)
            for i, x in zip(where, arrays, strict=True):
                given[i] = x
            return oracle.run(lib, module, row, variables, given)

        arrays = [args[i] for i in where]
        eager = call(variables, arrays)
        close(toile.jit(call)(variables, arrays), eager, row)
        if row.vmap and arrays:
            twice = [lib.jnp.stack([x, x[::-1] if x.ndim else x]) for x in arrays]
            mapped = toile.vmap(call, (None, 0))(variables, twice)
            for i in range(2):
                one = call(variables, [x[i] for x in twice])
                close(toile.tree.map(lambda x, i=i: x[i], mapped), one, row)
