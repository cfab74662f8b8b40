"""Optimizers as objects, with the names, rules and state dicts of flax.optim.

An `OptimizerDef` (`Adam(learning_rate=0.1)`) says how one parameter changes; `create(params)` makes
an `Optimizer`, a tree of parameters and state, and `apply_gradient(grads)` gives the next one.
Newer programs use the gradient transformations of `toile.optim` in their place.
"""
# ruff: noqa: F403

import typing as _typing

from toile.engine.lazy import attach as _attach
from toile.engine.lazy import names_of as _names_of
from toile.optim import _names_in

_FROM = _names_in("classic")
_MODULES = " ".join(["rules", *_FROM])
__getattr__, __dir__ = _attach(__name__, _FROM, _MODULES)

if _typing.TYPE_CHECKING:
    from toile.optim.classic.adafactor import *
    from toile.optim.classic.adam import *
    from toile.optim.classic.adaptive import *
    from toile.optim.classic.base import *
    from toile.optim.classic.dynamic_scale import *
    from toile.optim.classic.momentum import *
    from toile.optim.classic.weight_norm import *
else:
    __all__ = [*sorted(_names_of(_FROM))]  # noqa: PLE0604
