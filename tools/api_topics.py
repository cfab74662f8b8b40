"""The topics by which the reference pages of large namespaces are grouped.

The topic of a name is determined by the module from which the package's list (`__init__.pyi`)
imports it. The tables below define titles and an order, and combine related modules. A module that
is in no table is a separate topic, with the first line of its docstring as the title.
"""

from __future__ import annotations

import importlib
import re
import types
from pathlib import Path

from toile.engine.lazy import public_names

Table = dict[str, tuple[str, ...]]

TOILE: Table = {
    "Derivatives": ("toile.api.cotangents", "toile.api.pairs", "toile.api.checkpoint"),
    "Transformations and compilation": ("toile.api", "toile.staging.jit", "toile.api.callbacks"),
    "Inspecting compiled functions": ("toile.inspection", "toile.api.scopes",
                                      "toile.api.environment"),
    "Arrays": ("toile.engine.trace", "toile.engine.structs", "toile.engine.arrays",
               "toile.engine.dtypes"),
    "Mutable arrays": ("toile.ref",),
    "Devices and placement": ("toile.engine.devices", "toile.api.devices", "toile.engine.shardings",
                              "toile.targets.llvm.thread_count"),
    "Several devices": ("toile.parallel", "toile.sharding"),
    "Settings": ("toile.engine.config", "toile.engine.scoped_options", "toile.engine.contexts",
                 "toile.engine.check_switch"),
}  # fmt: skip
NUMPY: Table = {
    "Creating arrays": ("toile.numpy.creation", "toile.numpy.grids", "toile.numpy.files"),
    "Shapes and axes": ("toile.numpy.manipulation", "toile.numpy.pads"),
    "Joining and splitting": ("toile.numpy.joins",),
    "Indexing and selecting": ("toile.numpy.selection", "toile.numpy.index_update"),
    "Diagonals and triangles": ("toile.numpy.diagonals",),
    "Elementwise mathematics": ("toile.numpy.ufuncs", "toile.numpy.ufuncs_numeric",
                                "toile.numpy.ufuncs_bits"),
    "Comparisons and tests": ("toile.numpy.comparisons",),
    "Reductions": ("toile.numpy.reductions", "toile.numpy.reductions_nan", "toile.numpy.quantiles"),
    "Cumulative sums and products": ("toile.numpy.cumulative",),
    "Matrix products and contractions": ("toile.numpy.contractions", "toile.numpy.summation"),
    "Sorting and searching": ("toile.numpy.sorted_order",),
    "Sets": ("toile.numpy.sets",),
    "Statistics": ("toile.numpy.data_statistics",),
    "Differences, integrals and bit packing": ("toile.numpy.calculus",),
    "Polynomials": ("toile.numpy.polynomial",),
    "Window functions": ("toile.numpy.windows",),
    "Applying and vectorizing functions": ("toile.numpy.functional", "toile.numpy.ufunc_api"),
    "Dtypes, constants and printing": ("toile.numpy.dtype_names",),
}  # fmt: skip
LAX: Table = {
    "Control flow": ("toile.lax.loops", "toile.lax.conditionals", "toile.lax.implicit"),
    "Arithmetic": ("toile.lax.elementwise",),
    "Comparisons and bits": ("toile.lax.comparisons",),
    "Exponentials, trigonometry and special functions": ("toile.lax.transcendental",),
    "Shapes": ("toile.lax.shapes",),
    "Reductions": ("toile.lax.reductions", "toile.lax.windows"),
    "Gather, scatter and dynamic slices": ("toile.lax.gathers",),
    "Matrix products and contractions": ("toile.lax.contractions",),
    "Convolutions": ("toile.lax.convolution",),
    "Sorting": ("toile.lax.sorts",),
    "Fourier transforms": ("toile.lax.fft",),
    "Dtypes": ("toile.lax.conversion", "toile.lax.bitcasts"),
    "Collectives over named axes": ("toile.lax.collectives",),
    "Random bits": ("toile.lax.raw_bits",),
    "Gradients, barriers and placement": ("toile.lax.miscellany",),
    "Primitives under JAX's names": ("toile.compat.jax_primitives",),
}
LINEN: Table = {
    "Modules": ("toile.linen.module", "toile.core", "toile.core.scope", "toile.linen.summary"),
    "Linear layers and embeddings": ("toile.linen.linear", "toile.linen.embedding"),
    "Convolution and pooling": ("toile.linen.convolution", "toile.linen.pooling"),
    "Normalization": ("toile.linen.normalization", "toile.linen.weight_normalization"),
    "Attention": ("toile.linen.attention",),
    "Recurrent layers": ("toile.linen.recurrent",),
    "Dropout and combinators": ("toile.linen.stochastic", "toile.linen.combinators",
                                           "toile.linen.batch_apply"),
    "Activations": ("toile.core.nn.activation", "toile.linen.activation"),
    "Initializers": ("toile.linen.initializers",),
    "Lifted transformations": ("toile.linen.transforms",),
    "Partitioned variables": ("toile.core.meta", "toile.linen.spmd", "toile.core.spmd"),
    "Eight-bit floats": ("toile.linen.fp8_ops",),
}  # fmt: skip
OPTIM: Table = {
    "Optimizers": ("toile.optim.optimizers", "toile.optim.descent", "toile.optim.privacy"),
    "Applying updates": ("toile.optim.applying",),
    "Learning rate schedules": ("toile.optim.schedules.decay",
                                       "toile.optim.schedules.piecewise",
                                       "toile.optim.schedules.joining"),
    "Losses for classification": ("toile.optim.losses.classification", "toile.optim.losses.margins",
                                  "toile.optim.losses.smoothing"),
    "Losses for regression": ("toile.optim.losses.regression",),
    "Other losses": ("toile.optim.losses.divergences", "toile.optim.losses.segmentation",
                     "toile.optim.losses.ctc", "toile.optim.losses.self_supervised",
                     "toile.optim.losses.ranking", "toile.optim.losses.fenchel_young"),
    "Combining transformations": ("toile.optim.combining", "toile.optim.masking",
                                  "toile.optim.conditions", "toile.optim.flattening"),
    "Clipping": ("toile.optim.clipping", "toile.optim.constraining"),
    "Weight decay and noise": ("toile.optim.adding",),
    "Momentum, averages and gradient accumulation": ("toile.optim.accumulation",
                                                     "toile.optim.microbatching",
                                                     "toile.optim.looking_ahead"),
    "Hyperparameters in the state": ("toile.optim.hyperparams", "toile.optim.monitoring"),
    "Building blocks of Adam and related optimizers": ("toile.optim.moments",),
    "Building blocks of other adaptive optimizers": ("toile.optim.adaptive",
                                                     "toile.optim.factored"),
    "Scaling": ("toile.optim.scaling", "toile.optim.path_factors"),
    "Line searches and L-BFGS": ("toile.optim.backtracking", "toile.optim.zoom",
                                 "toile.optim.quasi_newton"),
    "Numerical utilities": ("toile.optim.numerics", "toile.optim.linear_algebra",
                             "toile.optim.tree", "toile.optim.tree_utils", "toile.optim.extras"),
    "Types": ("toile.optim.base",),
    "Optimizers of the older Flax interface": tuple(
        f"toile.optim.classic.{m}"
        for m in ("base", "adam", "adaptive", "adafactor", "momentum", "dynamic_scale",
                  "weight_norm")),
}  # fmt: skip
RANDOM: Table = {
    "Keys": ("toile.random.keys",),
    "Uniform numbers and random choices": ("toile.random.bits",),
    "Normal and related distributions": ("toile.random.samplers_normal",),
    "Gamma and related distributions": ("toile.random.samplers_gamma",),
    "Exponential, categorical and other distributions": ("toile.random.samplers_inverse",),
    "Binomial, multinomial and Poisson distributions": ("toile.random.samplers_counts",),
}
NN: Table = {
    "Activations": ("toile.nn._activations",),
    "Softmax and related functions": ("toile.nn._softmax",),
    "Attention": ("toile.nn._attention",),
    "Block-scaled matrix products": ("toile.nn._scaled",),
}
TABLES = {"toile": TOILE, "toile.numpy": NUMPY, "toile.lax": LAX, "toile.linen": LINEN,
          "toile.optim": OPTIM, "toile.random": RANDOM, "toile.nn": NN}  # fmt: skip
# Names whose topic differs from that of their module.
MOVED = {
    "toile": dict.fromkeys((
        "custom_gradient", "custom_jvp", "custom_vjp", "grad", "hessian", "jacfwd", "jacobian",
        "jacrev", "jvp", "linear_transpose", "linearize", "value_and_grad", "vjp"), "Derivatives"),
    "toile.random": {"random_gamma_p": "Gamma and related distributions"},
}  # fmt: skip


def homes(module: types.ModuleType) -> dict[str, tuple[str, str]]:
    """For each name of a package, the module it is imported from and its name in that module."""
    file = module.__file__
    if file is None or not Path(file).with_suffix(".pyi").exists():
        return {}
    return public_names(file)


def title(home: str) -> str:
    """The title of a module that is in no table: the first line of its docstring, up to a colon."""
    doc = (importlib.import_module(home).__doc__ or home).strip().splitlines()[0]
    return re.split(r"[:.](?:\s|$)", doc)[0].replace("`", "")


def topics(module: types.ModuleType, names: list[str]) -> dict[str, list[str]]:
    """Group names by topic; a small namespace has a single topic without a title."""
    table = TABLES.get(module.__name__)
    if table is None:
        return {"": names}
    titles = {home: text for text, group in table.items() for home in group}
    moved = MOVED.get(module.__name__, {})
    where = homes(module)
    found: dict[str, list[str]] = {text: [] for text in table}
    for name in names:
        home = where[name][0] if name in where else module.__name__
        topic = moved.get(name) or titles.get(home) or title(home)
        found.setdefault(topic, []).append(name)
    return {text: group for text, group in found.items() if group}
