"""Optimizers: gradient transformations and their chains, schedules, losses.

Names, arguments, states and results are those of Optax. What it lacks: a glob of parameter paths
("encoder/**") wherever a mask or labels are taken, and `get_hyperparams`, `set_hyperparams`.
"""
# ruff: noqa: F401, F403

from toile.optim import (
    accumulation,
    adaptive,
    adding,
    applying,
    assignment,
    backtracking,
    base,
    classic,
    clipping,
    combining,
    conditions,
    constraining,
    descent,
    extras,
    factored,
    flattening,
    hyperparams,
    linear_algebra,
    looking_ahead,
    losses,
    masking,
    microbatching,
    moments,
    monitoring,
    numerics,
    optimizers,
    paths,
    perturbations,
    privacy,
    projections,
    quasi_newton,
    scaling,
    schedules,
    second_order,
    transforms,
    tree,
    tree_utils,
    zoom,
)
from toile.optim.accumulation import *
from toile.optim.adaptive import *
from toile.optim.adding import *
from toile.optim.applying import *
from toile.optim.backtracking import *
from toile.optim.base import *
from toile.optim.classic import *
from toile.optim.clipping import *
from toile.optim.combining import *
from toile.optim.conditions import *
from toile.optim.constraining import *
from toile.optim.descent import *
from toile.optim.extras import *
from toile.optim.factored import *
from toile.optim.flattening import *
from toile.optim.hyperparams import *
from toile.optim.linear_algebra import *
from toile.optim.looking_ahead import *
from toile.optim.losses import *
from toile.optim.masking import *
from toile.optim.microbatching import microbatch
from toile.optim.moments import *
from toile.optim.monitoring import *
from toile.optim.numerics import *
from toile.optim.optimizers import *
from toile.optim.privacy import *
from toile.optim.quasi_newton import *
from toile.optim.scaling import *
from toile.optim.schedules import *
from toile.optim.tree import (
    bias_correction,
    update_infinity_moment,
    update_moment,
    update_moment_per_elem_norm,
)
from toile.optim.tree import map_params as tree_map_params
from toile.optim.zoom import *

_FLAT = (
    *(accumulation, adaptive, adding, applying, backtracking, base, classic, clipping),
    combining,
    *(conditions, constraining, descent, extras, factored, flattening, hyperparams, linear_algebra),
    *(looking_ahead, losses, masking, moments, monitoring, numerics, optimizers, privacy),
    *(quasi_newton, scaling, schedules, zoom),
)

__all__ = [  # noqa: PLE0604
    *(name for module in _FLAT for name in module.__all__),
    *("assignment", "losses", "microbatching", "paths", "perturbations", "projections"),
    *("schedules", "second_order", "transforms", "tree", "tree_utils", "microbatch"),
    *("bias_correction", "update_infinity_moment", "update_moment", "tree_map_params"),
    "update_moment_per_elem_norm",
]
