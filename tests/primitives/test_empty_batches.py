"""A batch without examples: the results have the shapes of an example's results."""

import numpy as np
import pytest

from tests.primitives.test_conv import CASES, make
from toile.engine.conversion import as_array
from toile.transforms.vmap import vmap_flat


@pytest.mark.parametrize("dims", [(0, None), (None, 0), (0, 0), (1, 2)])
@pytest.mark.parametrize("name", CASES)
def test_convolutions(name, dims):
    op, _, *arrays = make(name)
    given = [x if d is None else np.expand_dims(x, d).take([], d) for x, d in zip(arrays, dims)]
    (out,), (dim,) = vmap_flat(lambda *xs: [op(*xs)], (None, 0), [*map(as_array, given)], [*dims])
    (want,) = [op.infer(*(as_array(x).aval for x in arrays))]
    assert np.moveaxis(out, dim, 0).shape == (0, *want.shape)
