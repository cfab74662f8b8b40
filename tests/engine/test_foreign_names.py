"""What toile suggests for names of other libraries exists."""

import functools
import re

import pytest

import toile
import toile.linen as nn
import toile.numpy as jnp
from toile import optim
from toile.engine import foreign_names

TABLES = {
    "layers": foreign_names._LAYERS,
    "functions": foreign_names._FUNCTIONS,
    "methods": foreign_names._METHODS,
    "optimizers": foreign_names._OPTIMIZERS,
}
ROOTS = {"toile": toile, "nn": nn, "optim": optim, "x": jnp.ones(3)}


@pytest.mark.parametrize("table", TABLES)
def test_suggestions_exist(table):
    for name, text in TABLES[table].items():
        found = re.findall(r"(?<![\w.])(toile|nn|optim|x)((?:\.[a-zA-Z_]\w*)+)", text)
        for root, path in found:
            functools.reduce(getattr, path[1:].split("."), ROOTS[root])
        assert found or text, name


@pytest.mark.parametrize("lookup", [
    lambda: jnp.ones(3).unsqueeze, lambda: jnp.relu, lambda: nn.Linear, lambda: toile.tensor,
    lambda: optim.lr_scheduler,
])  # fmt: skip
def test_errors_say_what_to_use(lookup):
    with pytest.raises(AttributeError, match=r"\(use .+\)"):
        lookup()


def test_names_that_exist_are_not_foreign():
    assert foreign_names.instead("toile.numpy", "sum") == ""
    assert not [name for name in foreign_names._METHODS if hasattr(jnp.ones(3), name)]
    assert not [name for name in foreign_names._LAYERS if hasattr(nn, name)]
