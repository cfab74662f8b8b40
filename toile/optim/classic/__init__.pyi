"""The public names of this package: loaded when they are first used, and known to type checkers."""

from toile.optim.classic.adafactor import Adafactor as Adafactor
from toile.optim.classic.adam import AdaBelief as AdaBelief, Adam as Adam, LAMB as LAMB
from toile.optim.classic.adaptive import (
    Adadelta as Adadelta,
    Adagrad as Adagrad,
    RMSProp as RMSProp,
)
from toile.optim.classic.base import (
    ModelParamTraversal as ModelParamTraversal,
    MultiOptimizer as MultiOptimizer,
    Optimizer as Optimizer,
    OptimizerDef as OptimizerDef,
    OptimizerState as OptimizerState,
    ReplicatedOptimizer as ReplicatedOptimizer,
)
from toile.optim.classic.dynamic_scale import (
    DynamicScale as DynamicScale,
    DynamicScaleResult as DynamicScaleResult,
)
from toile.optim.classic.momentum import (
    GradientDescent as GradientDescent,
    LARS as LARS,
    Momentum as Momentum,
)
from toile.optim.classic.weight_norm import WeightNorm as WeightNorm
