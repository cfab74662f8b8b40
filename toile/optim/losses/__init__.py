"""Loss functions, with the names, arguments and values of Optax.

Each takes arrays of predictions and targets and gives the loss of every example (or element); the
mean over a batch is the caller's. All are differentiable and run under jit and vmap.
"""
# ruff: noqa: F403

import typing as _typing

from toile.engine.lazy import attach as _attach
from toile.engine.lazy import names_of as _names_of
from toile.optim import _names_in

_FROM = _names_in("losses")
_MODULES = " ".join(["checks", *_FROM])
__getattr__, __dir__ = _attach(__name__, _FROM, _MODULES)

if _typing.TYPE_CHECKING:
    from toile.optim.losses.classification import *
    from toile.optim.losses.ctc import *
    from toile.optim.losses.divergences import *
    from toile.optim.losses.fenchel_young import *
    from toile.optim.losses.margins import *
    from toile.optim.losses.ranking import *
    from toile.optim.losses.regression import *
    from toile.optim.losses.segmentation import *
    from toile.optim.losses.self_supervised import *
    from toile.optim.losses.smoothing import *
else:
    __all__ = [*sorted(_names_of(_FROM))]  # noqa: PLE0604
