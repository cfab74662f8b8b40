"""The shardings of results while an option checks each operation."""

import pytest

import toile
import toile.numpy as jnp
from toile.sharding import NamedSharding, PartitionSpec


@pytest.mark.parametrize("spec", [("i",), (None, "i"), ()])
@pytest.mark.parametrize("option", ["numpy_rank_promotion", "debug_nans"])
def test_checks_keep_the_shardings_of_results(spec, option):
    sharding = NamedSharding(toile.make_mesh((2,), ("i",)), PartitionSpec(*spec))

    def computed():
        x = toile.device_put(jnp.arange(8.0).reshape(2, 4), sharding)
        return toile.jit(lambda y: jnp.sin(y) + 1)(x)

    plain = computed()
    with getattr(toile, option)("raise" if option == "numpy_rank_promotion" else True):
        checked = computed()
    assert checked.sharding == plain.sharding
    assert bool(jnp.all(checked == plain))
