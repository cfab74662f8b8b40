"""`flax.core.scope`: the names of `toile.core.scope`, and the types of variables."""

from toile.core import scope as _scope
from toile.core.frozen_dict import FrozenDict, freeze, unfreeze
from toile.core.rng import is_valid_rng as _is_valid_rng
from toile.core.rng import is_valid_rngs as _is_valid_rngs
from toile.typing import (
    Array,
    Collection,
    FrozenVariableDict,
    MutableCollection,
    MutableVariableDict,
    PRNGKey,
    RNGSequences,
    VariableDict,
)

STANDS_FOR = "toile.core.scope"

globals().update({name: getattr(_scope, name) for name in _scope.__all__})

__all__ = [  # noqa: PLE0604
    *_scope.__all__, "Array", "Collection", "FrozenDict", "FrozenVariableDict", "MutableCollection",
    "MutableVariableDict", "PRNGKey", "RNGSequences", "VariableDict", "_is_valid_rng",
    "_is_valid_rngs", "freeze", "unfreeze",
]
