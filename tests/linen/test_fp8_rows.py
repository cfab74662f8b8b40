"""The rows of products in float8: their gradients, which are their new state, in transformations.

Configurations are in the table `fp8`. Here is also the count of rows for every layer."""

import inspect
from collections import Counter

import numpy as np
import pytest

import toile
import toile.linen as nn
from tests.linen import fp8, oracle
from toile.engine.scoped_options import allow_excess_precision

ROWS = [row for row in oracle.tables() if row.renewed == fp8.STATE]
ids = lambda row: row.name


ABSTRACT = (nn.Module, nn.RNNCellBase)


@pytest.mark.filterwarnings("ignore")
def test_every_layer_has_three_rows(monkeypatch):
    """A row is one of a layer if it makes an instance of exactly that class."""
    made, count = set(), Counter()
    begin = nn.Module.__post_init__

    def watched(self):
        made.add(type(self))
        begin(self)

    monkeypatch.setattr(nn.Module, "__post_init__", watched)
    lib = oracle.toile_library()
    for row in oracle.tables():
        made.clear()
        with toile.enable_x64(row.x64):
            module, args = row.build(lib), oracle.to_library(lib, row.args)
            rngs = {"params": lib.random.key(3), **oracle.keys(lib, row)}
            toile.eval_shape(
                lambda: module.init(rngs, *args, **row.kwargs, method=row.method)  # noqa: B023
            )
        count.update(made)
    public = [getattr(nn, name) for name in nn.__all__]
    layers = [x for x in public if inspect.isclass(x) and issubclass(x, nn.Module)]
    assert not {x.__name__: count[x] for x in layers if x not in ABSTRACT and count[x] < 3}


@pytest.fixture(scope="module")
def recorded():
    """The answers of flax that are on file."""
    return oracle.load()


@pytest.mark.parametrize("row", ROWS, ids=ids)
def test_rows_move_their_state(row, recorded):
    """What flax recorded has a history of every operand and, a step later, scales that follow."""
    found = recorded[oracle.digest(row)]
    after = lambda step, what: [x for k, x in found.items() if f"renewed{step}" in k and what in k]
    for kind in ("input", "kernel", "output_grad"):
        histories, scales = after(0, f"{kind}_amax_history"), after(0, f"{kind}_scale")
        assert histories and len(histories) == len(scales)
        assert all(x[0] > 0 for x in histories) and all(x == 1 for x in scales)
        assert all(x != 1 for x in after(1, f"{kind}_scale"))


def same(a, b):
    """Two trees, to what the order of a sum may change in their dtypes."""
    for x, y in zip(toile.tree.leaves(a), toile.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        tolerance = 2e-2 if x.dtype.itemsize == 2 else 1e-5
        x, y = np.asarray(x).astype(np.float64), np.asarray(y).astype(np.float64)
        scale = np.max(np.abs(y), initial=1.0)
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", ROWS, ids=ids)
def test_gradients_in_transformations(row):
    """jit(gradients) is gradients, and vmap over examples is a loop over them: state included."""
    with allow_excess_precision(False):  # more bits would change which float8 is nearest
        check_transformations(row)


def check_transformations(row):
    lib = oracle.toile_library()
    module, args = row.build(lib), oracle.to_library(lib, row.args)
    variables = module.init(lib.random.key(3), *args, **row.kwargs)
    where = oracle.split(row.args)

    def call(variables, arrays):
        given = list(args)
        for i, x in zip(where, arrays, strict=True):
            given[i] = x
        return oracle.gradients(lib, module, row, variables, given)

    arrays = [args[i] for i in where]
    for _ in range(2):  # with the scales of the first step, and with those that they become
        eager = call(variables, arrays)
        same(toile.jit(call)(variables, arrays), eager)
        twice = [lib.jnp.stack([x, 3 * x[::-1]]) for x in arrays]
        mapped = toile.vmap(call, (None, 0))(variables, twice)
        for i in range(2):
            one = call(variables, [x[i] for x in twice])
            same(toile.tree.map(lambda x, i=i: x[i], mapped), one)
        variables = {**variables, fp8.STATE: eager[2]}
