"""Optimizers as objects, with the names, rules and state dicts of flax.optim.

An `OptimizerDef` (`Adam(learning_rate=0.1)`) says how one parameter changes; `create(params)` makes
an `Optimizer`, a tree of parameters and state, and `apply_gradient(grads)` gives the next one.
Newer programs use the gradient transformations of `toile.optim` in their place.
"""

import typing as _typing

from toile.engine.lazy import attach as _attach

if _typing.TYPE_CHECKING:
    from toile.optim.classic.adafactor import Adafactor
    from toile.optim.classic.adam import LAMB, AdaBelief, Adam
    from toile.optim.classic.adaptive import Adadelta, Adagrad, RMSProp
    from toile.optim.classic.base import (
        ModelParamTraversal,
        MultiOptimizer,
        Optimizer,
        OptimizerDef,
        OptimizerState,
        ReplicatedOptimizer,
    )
    from toile.optim.classic.dynamic_scale import DynamicScale, DynamicScaleResult
    from toile.optim.classic.momentum import LARS, GradientDescent, Momentum
    from toile.optim.classic.weight_norm import WeightNorm

_FROM = {
        "adafactor": "Adafactor",
    "adam": "AdaBelief Adam LAMB",
    "adaptive": "Adadelta Adagrad RMSProp",
    "base": (
        "ModelParamTraversal MultiOptimizer Optimizer OptimizerDef OptimizerState "
        "ReplicatedOptimizer"
    ),
    "dynamic_scale": "DynamicScale DynamicScaleResult",
    "momentum": "GradientDescent LARS Momentum",
    "weight_norm": "WeightNorm",
}
_MODULES = "adafactor adam adaptive base dynamic_scale momentum rules weight_norm"
__getattr__, __dir__ = _attach(__name__, _FROM, _MODULES)

__all__ = [
    "LAMB",
    "LARS",
    "AdaBelief",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "DynamicScale",
    "DynamicScaleResult",
    "GradientDescent",
    "ModelParamTraversal",
    "Momentum",
    "MultiOptimizer",
    "Optimizer",
    "OptimizerDef",
    "OptimizerState",
    "RMSProp",
    "ReplicatedOptimizer",
    "WeightNorm",
]
