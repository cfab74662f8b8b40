"""Every transformation, wrapper and optimizer, as rows that build it from either library.

A row is a name and a function of a namespace `o` (optax or toile.optim); `lib` is what else it
needs (`lib.jnp`, `lib.jax`). Rows of `FUNCTIONS` are calls on trees instead. One text serves
both sides.
"""

from dataclasses import dataclass, field
from typing import Any

SHAPES = {"encoder": {"kernel": (3, 2), "bias": (2,)}, "head": [(2,)]}


@dataclass
class Row:
    """A transformation and how to run it."""

    name: str
    build: Any  # (o, lib) -> transformation
    grads: str = "plain"  # plain, nan (some steps), batched (a leading axis of examples)
    loss: bool = False  # gradients of a loss, which update gets with its value
    value: bool = False  # update gets a value alone
    lookahead: bool = False  # parameters are LookaheadParams
    dtypes: tuple = ("float32", "bfloat16")
    rtol: dict = field(default_factory=dict)
    atol: dict = field(default_factory=dict)


ROWS: list[Row] = []
FUNCTIONS: dict[str, Any] = {}


def row(name, build, **options):
    """Add a transformation."""
    assert all(r.name != name for r in ROWS), name
    ROWS.append(Row(name, build, **options))


def function(name):
    """Add a function of (o, lib, params, grads)."""

    def add(call):
        assert name not in FUNCTIONS, name
        FUNCTIONS[name] = call
        return call

    return add


def _schedule(count):
    return 0.1 / (1.0 + 0.5 * count)


def _simple(*names, **options):
    for name in names:
        row(name, lambda o, lib, name=name: getattr(o, name)(0.1), **options)


# Optimizers.
_simple("adabelief", "adadelta", "adagrad", "adam", "adamax", "adamaxw", "adamw", "adan", "amsgrad")
_simple("fromage", "lamb", "lars", "lion", "nadam", "nadamw", "novograd", "optimistic_adam_v2")
# The length of radam's average is a small difference of large numbers: one ulp of 0.999ᵗ shows.
_RADAM = {"rtol": {"float32": 5e-3}, "atol": {"float32": 5e-4}}
_simple("radam", **_RADAM)
_simple("optimistic_gradient_descent", "rmsprop", "rprop", "sgd", "sign_sgd", "signum")
_simple("sm3", "yogi")
row("adam-options", lambda o, lib: o.adam(_schedule, 0.8, 0.99, 1e-4, 1e-6, nesterov=True))
row("adam-mu_dtype", lambda o, lib: o.adam(0.1, mu_dtype=lib.jnp.float32))
row("adamw-mask", lambda o, lib: o.adamw(0.1, weight_decay=_schedule, mask=_matrices))
row("adan-decay", lambda o, lib: o.adan(_schedule, weight_decay=0.1))
row("adabelief-nesterov", lambda o, lib: o.adabelief(0.1, nesterov=True))
row(
    "adadelta-decay", lambda o, lib: o.adadelta(None, weight_decay=0.1, weight_decay_mask=_matrices)
)
row("adafactor", lambda o, lib: o.adafactor(0.1))
row(
    "adafactor-factored",
    lambda o, lib: o.adafactor(
        _schedule, 2, momentum=0.9, weight_decay_rate=1e-2, clipping_threshold=0.5
    ),
)
row("adafactor-none", lambda o, lib: o.adafactor(factored=False, clipping_threshold=None))
row("amsgrad-uncorrected", lambda o, lib: o.amsgrad(0.1, 0.9, 0.99, 1e-8, 0.0, None, False, False))
row("fromage-schedule", lambda o, lib: o.fromage(_schedule))
row("lamb-decay", lambda o, lib: o.lamb(0.1, weight_decay=0.1, mask=_matrices))
row("lars-masks", lambda o, lib: o.lars(0.1, 0.1, _matrices, 0.01, 1e-3, _matrices, 0.9, True))
row("lion-decay", lambda o, lib: o.lion(_schedule, weight_decay=0.1, mask=_matrices))
row("noisy_sgd", lambda o, lib: o.noisy_sgd(0.1, key=3))
row("novograd-decay", lambda o, lib: o.novograd(0.1, weight_decay=0.1))
row("optimistic_adam", lambda o, lib: o.optimistic_adam(0.1))
row("polyak_sgd", lambda o, lib: o.polyak_sgd(1.0, _schedule, variant="sps+"), value=True)
row("radam-options", lambda o, lib: o.radam(0.1, b2=0.9, threshold=3.0, nesterov=True))
row("rmsprop-centred", lambda o, lib: o.rmsprop(0.1, centered=True, momentum=0.9, nesterov=True))
row("rmsprop-corrected", lambda o, lib: o.rmsprop(0.1, eps_in_sqrt=False, bias_correction=True))
row("sgd-momentum", lambda o, lib: o.sgd(_schedule, 0.9))
row("sgd-nesterov", lambda o, lib: o.sgd(0.1, 0.9, True, accumulator_dtype=lib.jnp.float32))
row("signum-dtype", lambda o, lib: o.signum(0.1, 0.8, lib.jnp.float32))
row("dpsgd", lambda o, lib: _privacy(o).dpsgd(0.1, 0.5, 1.1, 3, momentum=0.9), grads="batched")
row("lbfgs", lambda o, lib: o.lbfgs(), loss=True, dtypes=("float32",), rtol={"float32": 2e-3})
_FLOAT32 = {"loss": True, "dtypes": ("float32",), "rtol": {"float32": 2e-4}}
row("lbfgs-plain", lambda o, lib: o.lbfgs(0.05, 3, False, None), **_FLOAT32)

# Scaling.
row("identity", lambda o, lib: o.identity())
row("set_to_zero", lambda o, lib: o.set_to_zero())
row("stateless", lambda o, lib: o.stateless(lambda u, p: lib.jax.tree.map(lambda x: x * 2, u)))
row(
    "stateless_with_tree_map",
    lambda o, lib: o.stateless_with_tree_map(lambda u, p: u + 0.1 * p),
)
row("with_extra_args_support", lambda o, lib: o.with_extra_args_support(o.scale(0.1)))
row("scale", lambda o, lib: o.scale(0.1))
row("scale_by_learning_rate", lambda o, lib: o.scale_by_learning_rate(0.1, flip_sign=False))
row("scale_by_schedule", lambda o, lib: o.scale_by_schedule(_schedule))
row("scale_by_sign", lambda o, lib: o.scale_by_sign())
row(
    "scale_by_param_block_norm",
    lambda o, lib: o.chain(o.scale_by_param_block_norm(), o.scale(-0.05)),
)
row("scale_by_param_block_rms", lambda o, lib: o.scale_by_param_block_rms(0.5))
row(
    "scale_by_trust_ratio",
    lambda o, lib: o.chain(o.scale_by_trust_ratio(0.1, 0.5, 1e-3), o.scale(-0.1)),
)
row("normalize_by_update_norm", lambda o, lib: o.normalize_by_update_norm(2.0))
row("centralize", lambda o, lib: o.centralize())
row("scale_by_adadelta", lambda o, lib: o.scale_by_adadelta())
row("scale_by_adam", lambda o, lib: o.scale_by_adam(nesterov=True))
row("scale_by_adamax", lambda o, lib: o.scale_by_adamax())
row("scale_by_adan", lambda o, lib: o.scale_by_adan(eps_root=1e-6))
row("scale_by_amsgrad", lambda o, lib: o.scale_by_amsgrad(bias_correction_mu=False))
row("scale_by_belief", lambda o, lib: o.scale_by_belief())
row("scale_by_distance_over_gradients", lambda o, lib: o.scale_by_distance_over_gradients())
row("scale_by_factored_rms", lambda o, lib: o.scale_by_factored_rms(min_dim_size_to_factor=2))
row("scale_by_lbfgs", lambda o, lib: o.chain(o.scale_by_lbfgs(4), o.scale(-0.02)), loss=True)
row("scale_by_lion", lambda o, lib: o.scale_by_lion(mode="smooth", smooth_beta=2.0))
row("scale_by_lion-refined", lambda o, lib: o.scale_by_lion(mode="refined"))
row("scale_by_novograd", lambda o, lib: o.scale_by_novograd(weight_decay=0.1))
row("scale_by_optimistic_gradient", lambda o, lib: o.scale_by_optimistic_gradient(0.5, 0.3))
row("scale_by_polyak", lambda o, lib: o.scale_by_polyak(0.1, eps=1e-3), value=True)
row("scale_by_radam", lambda o, lib: o.scale_by_radam(), **_RADAM)
row("scale_by_rms", lambda o, lib: o.scale_by_rms(bias_correction=True))
row("scale_by_rprop", lambda o, lib: o.scale_by_rprop(0.1))
row("scale_by_rss", lambda o, lib: o.scale_by_rss(0.0))
row("scale_by_sm3", lambda o, lib: o.scale_by_sm3(b2=0.9))
row("scale_by_stddev", lambda o, lib: o.scale_by_stddev(eps=1e-4, eps_in_sqrt=False))
row("scale_by_stddev-corrected", lambda o, lib: o.scale_by_stddev(eps=1e-3, bias_correction=True))
# 0.999**3 is rounded otherwise in compiled code: a unit in its last place is 2e-5 of 1 - 0.999**3.
row("scale_by_yogi", lambda o, lib: o.scale_by_yogi(eps_root=1e-6), atol={"float32": 2e-5})

# Accumulating, adding, clipping, constraining.
row("trace", lambda o, lib: o.trace(0.9, nesterov=True))
row("ema", lambda o, lib: o.ema(0.9))
row("ema-dtype", lambda o, lib: o.ema(0.9, False, lib.jnp.float32))
row("apply_every", lambda o, lib: o.apply_every(3))
row(
    "add_decayed_weights",
    lambda o, lib: o.add_decayed_weights(0.1, {"encoder": True, "head": False}),
)
row("add_noise", lambda o, lib: o.add_noise(0.01, 0.55, key=5))
row(
    "differentially_private_aggregate",
    lambda o, lib: _privacy(o).differentially_private_aggregate(0.5, 1.1, key=2),
    grads="batched",
)
row("clip", lambda o, lib: o.clip(0.5))
row("clip_by_block_rms", lambda o, lib: o.clip_by_block_rms(0.5))
row("clip_by_global_norm", lambda o, lib: o.clip_by_global_norm(1.0))
row("adaptive_grad_clip", lambda o, lib: o.adaptive_grad_clip(0.1))
row("keep_params_nonnegative", lambda o, lib: o.chain(o.sgd(0.5), o.keep_params_nonnegative()))
row("zero_nans", lambda o, lib: o.zero_nans(), grads="nan")

# Combining and wrapping.
row("chain", lambda o, lib: o.chain(o.clip(0.5), o.adam(0.1), o.scale_by_schedule(_schedule)))
row("named_chain", lambda o, lib: o.named_chain(("b", o.clip(0.5)), ("a", o.adam(0.1))))
row(
    "masked",
    lambda o, lib: o.masked(
        o.adam(0.1), {"encoder": {"kernel": True, "bias": False}, "head": [True]}
    ),
)
row("masked-function", lambda o, lib: o.masked(o.sgd(0.1, 0.9), _matrices))
row("partition", lambda o, lib: o.partition(_groups(o), {"encoder": "slow", "head": "fast"}))
row("multi_transform", lambda o, lib: o.multi_transform(_groups(o), _labels))
row("freeze", lambda o, lib: o.chain(o.adam(0.1), o.freeze({"encoder": True, "head": False})))
row(
    "selective_transform",
    lambda o, lib: o.selective_transform(o.adam(0.1), freeze_mask={"encoder": False, "head": True}),
)
row("flatten", lambda o, lib: o.flatten(o.adam(0.1)))
row("inject_hyperparams", lambda o, lib: o.inject_hyperparams(o.adamw)(_schedule, 0.8))
row(
    "inject_stateful_hyperparams",
    lambda o, lib: o.inject_stateful_hyperparams(o.sgd, "momentum")(0.1, momentum=0.9),
)
row("apply_if_finite", lambda o, lib: o.apply_if_finite(o.adam(0.1), 2), grads="nan")
row(
    "conditionally_mask",
    lambda o, lib: o.conditionally_mask(o.adam(0.1), lambda step: step % 3 != 1),
)
row(
    "conditionally_transform",
    lambda o, lib: o.conditionally_transform(
        o.trace(0.5), lambda step, value: value < 3.0, forward_extra_args=True
    ),
    value=True,
)
row("MultiSteps", lambda o, lib: o.MultiSteps(o.adam(0.1), 3))
row(
    "MultiSteps-skip",
    lambda o, lib: o.MultiSteps(
        o.sgd(0.1, 0.9), lambda step: step % 2 + 1, False, o.skip_not_finite
    ).gradient_transformation(),
    grads="nan",
)
row("lookahead", lambda o, lib: o.lookahead(o.adam(0.1), 4, 0.5), lookahead=True)
row("lookahead-reset", lambda o, lib: o.lookahead(o.sgd(0.1, 0.9), 3, 0.3, True), lookahead=True)
row("snapshot", lambda o, lib: o.chain(o.snapshot("norm", o.tree.norm), o.sgd(0.1)))
row(
    "monitor",
    lambda o, lib: o.chain(
        o.monitor({"norm": o.tree.norm, "mean": o.measure_with_ema(o.tree.norm, 0.9)}), o.sgd(0.1)
    ),
)

# Line searches.
_LOSS = {"loss": True, "dtypes": ("float32",), "rtol": {"float32": 2e-3}}
row(
    "scale_by_backtracking_linesearch",
    lambda o, lib: o.chain(
        o.sgd(1.0), o.scale_by_backtracking_linesearch(15, max_learning_rate=0.5, store_grad=True)
    ),
    **_LOSS,
)
row(
    "scale_by_backtracking_linesearch-values",
    lambda o, lib: o.chain(o.adam(1.0), o.scale_by_backtracking_linesearch(8, decrease_factor=0.5)),
    **_LOSS,
)
row(
    "scale_by_zoom_linesearch",
    lambda o, lib: o.chain(o.sgd(1.0), o.scale_by_zoom_linesearch(10)),
    **_LOSS,
)
row(
    "scale_by_zoom_linesearch-limits",
    lambda o, lib: o.chain(
        o.sgd(1.0),
        o.scale_by_zoom_linesearch(
            4, 0.3, 1e-3, curv_rtol=0.1, approx_dec_rtol=None, initial_guess_strategy="one"
        ),
    ),
    **_LOSS,
)


def _matrices(params):
    """A mask: leaves of two axes."""
    return _mapped(lambda x: len(x.shape) == 2, params)


def _mapped(f, node):
    if isinstance(node, dict):
        return {k: _mapped(f, v) for k, v in node.items()}
    if isinstance(node, (list, tuple)):
        return [_mapped(f, v) for v in node]
    return f(node)


def _labels(params):
    return _mapped(lambda x: "slow" if len(x.shape) == 2 else "fast", params)


def _groups(o):
    return {"slow": o.sgd(0.01, 0.9), "fast": o.adam(0.1)}


def _privacy(o):
    """Where the library keeps differential privacy without a warning."""
    return o.contrib if hasattr(o, "contrib") else o
