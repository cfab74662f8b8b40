"""Optimizers: gradient transformations and their chains, schedules, losses.

Names, arguments, states and results are those of Optax. What it lacks: a glob of parameter paths
("encoder/**") wherever a mask or labels are taken, and `get_hyperparams`, `set_hyperparams`.
"""
# ruff: noqa: F401, F403

import typing as _typing

from toile._absent import missing_attribute as _missing
from toile.engine.lazy import attach as _attach
from toile.engine.lazy import names_of as _names_of

if _typing.TYPE_CHECKING:
    from toile.optim import (
        assignment,
        paths,
        perturbations,
        projections,
        second_order,
        transforms,
        tree,
        tree_utils,
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

_FROM = {
    "accumulation": (
        "ApplyEvery EmaState MultiSteps MultiStepsState ShouldSkipUpdateFunction TraceState "
        "apply_every ema skip_large_updates skip_not_finite trace"
    ),
    "adaptive": (
        "ScaleByAdaDeltaState ScaleByNovogradState ScaleByRStdDevState "
        "ScaleByRStdDevWithCountState ScaleByRmsState ScaleByRmsWithCountState ScaleByRpropState "
        "ScaleByRssState ScaleBySM3State scale_by_adadelta scale_by_novograd scale_by_rms "
        "scale_by_rprop scale_by_rss scale_by_sm3 scale_by_stddev"
    ),
    "adding": (
        "AddDecayedWeightsState AddNoiseState WeightDecaySchedule add_decayed_weights add_noise"
    ),
    "applying": "apply_updates incremental_update periodic_update",
    "backtracking": (
        "BacktrackingLinesearchInfo ScaleByBacktrackingLinesearchState "
        "scale_by_backtracking_linesearch value_and_grad_from_state"
    ),
    "base": (
        "ArrayTree EmptyState GradientTransformation GradientTransformationExtraArgs "
        "NO_PARAMS_MSG OptState PRNGKey Params PyTree ScalarOrSchedule Schedule ScheduleState "
        "Shape StatefulSchedule TransformInitFn TransformUpdateExtraArgsFn TransformUpdateFn "
        "Updates identity init_empty_state set_to_zero stateless stateless_with_tree_map "
        "with_extra_args_support"
    ),
    "classic.adafactor": "Adafactor",
    "classic.adam": "AdaBelief Adam LAMB",
    "classic.adaptive": "Adadelta Adagrad RMSProp",
    "classic.base": (
        "ModelParamTraversal MultiOptimizer Optimizer OptimizerDef OptimizerState "
        "ReplicatedOptimizer"
    ),
    "classic.dynamic_scale": "DynamicScale DynamicScaleResult",
    "classic.momentum": "GradientDescent LARS Momentum",
    "classic.weight_norm": "WeightNorm",
    "clipping": (
        "AdaptiveGradClipState ClipByGlobalNormState ClipState adaptive_grad_clip clip "
        "clip_by_block_rms clip_by_global_norm per_example_global_norm_clip "
        "per_example_layer_norm_clip unitwise_clip unitwise_norm"
    ),
    "combining": (
        "MultiTransformState PartitionState chain freeze multi_transform named_chain partition "
        "selective_transform"
    ),
    "conditions": (
        "ApplyIfFiniteState ConditionFn ConditionallyMaskState ConditionallyTransformState "
        "apply_if_finite conditionally_mask conditionally_transform"
    ),
    "constraining": "NonNegativeParamsState ZeroNansState keep_params_nonnegative zero_nans",
    "descent": "lbfgs noisy_sgd optimistic_gradient_descent polyak_sgd rprop sgd sign_sgd signum",
    "extras": "MultiNormalDiagFromLogScale multi_normal scale_gradient",
    "factored": "FactoredState scale_by_factored_rms",
    "flattening": "flatten",
    "hyperparams": (
        "InjectHyperparamsState InjectStatefulHyperparamsState WrappedSchedule "
        "WrappedScheduleState get_hyperparams inject_hyperparams inject_stateful_hyperparams "
        "set_hyperparams"
    ),
    "linear_algebra": "global_norm matrix_inverse_pth_root nnls power_iteration",
    "looking_ahead": "LookaheadParams LookaheadState lookahead",
    "losses.classification": (
        "poly_loss_cross_entropy safe_softmax_cross_entropy sigmoid_binary_cross_entropy "
        "sigmoid_focal_loss softmax_cross_entropy softmax_cross_entropy_with_integer_labels"
    ),
    "losses.ctc": "ctc_loss ctc_loss_with_forward_probs",
    "losses.divergences": (
        "convex_kl_divergence generalized_kl_divergence kl_divergence "
        "kl_divergence_with_log_targets"
    ),
    "losses.fenchel_young": "make_fenchel_young_loss",
    "losses.margins": (
        "hinge_loss multiclass_hinge_loss multiclass_perceptron_loss multiclass_sparsemax_loss "
        "perceptron_loss sparsemax_loss"
    ),
    "losses.ranking": "ranking_softmax_loss",
    "losses.regression": (
        "cosine_distance cosine_similarity huber_loss l2_loss log_cosh squared_error"
    ),
    "losses.segmentation": "binary_dice_loss dice_loss multiclass_generalized_dice_loss",
    "losses.self_supervised": "ntxent triplet_margin_loss",
    "losses.smoothing": "smooth_labels",
    "masking": "MaskOrFn MaskedNode MaskedState masked",
    "microbatching": "microbatch",
    "moments": (
        "ScaleByAdamState ScaleByAdanState ScaleByAmsgradState ScaleByBeliefState "
        "ScaleByLionState scale_by_adam scale_by_adamax scale_by_adan scale_by_amsgrad "
        "scale_by_belief scale_by_lion scale_by_radam scale_by_yogi"
    ),
    "monitoring": "MonitorState SnapshotState measure_with_ema monitor snapshot",
    "numerics": "abs_sq safe_increment safe_int32_increment safe_norm safe_root_mean_squares",
    "optimizers": (
        "adabelief adadelta adafactor adagrad adam adamax adamaxw adamw adan amsgrad fromage lamb "
        "lars lion nadam nadamw novograd optimistic_adam optimistic_adam_v2 radam rmsprop sm3 "
        "yogi"
    ),
    "privacy": "DifferentiallyPrivateAggregateState differentially_private_aggregate dpsgd",
    "quasi_newton": "ScaleByLBFGSState scale_by_lbfgs",
    "scaling": (
        "ScaleByDistanceOverGradientsState ScaleByOptimisticGradientState ScaleByScheduleState "
        "ScaleByTrustRatioState ScaleState centralize normalize_by_update_norm scale "
        "scale_by_distance_over_gradients scale_by_learning_rate scale_by_optimistic_gradient "
        "scale_by_param_block_norm scale_by_param_block_rms scale_by_polyak scale_by_schedule "
        "scale_by_sign scale_by_trust_ratio"
    ),
    "schedules.decay": (
        "constant_schedule cosine_decay_schedule exponential_decay linear_schedule "
        "polynomial_schedule"
    ),
    "schedules.joining": (
        "join_schedules sgdr_schedule warmup_constant_schedule warmup_cosine_decay_schedule "
        "warmup_exponential_decay_schedule"
    ),
    "schedules.piecewise": (
        "cosine_onecycle_schedule linear_onecycle_schedule piecewise_constant_schedule "
        "piecewise_interpolate_schedule"
    ),
    "tree": (
        "bias_correction map_params=tree_map_params update_infinity_moment update_moment "
        "update_moment_per_elem_norm"
    ),
    "zoom": "ScaleByZoomLinesearchState ZoomLinesearchInfo scale_by_zoom_linesearch",
}
_OWN = "assignment paths perturbations projections second_order transforms tree_utils"
_MODULES = " ".join([*dict.fromkeys(home.partition(".")[0] for home in _FROM), _OWN])


def _names_in(package: str) -> dict[str, str]:
    """The part of the table that is about a package inside of this one."""
    start = f"{package}."
    return {home.removeprefix(start): _FROM[home] for home in _FROM if home.startswith(start)}


__getattr__, __dir__ = _attach(__name__, _FROM, _MODULES, _missing)

__all__ = [  # noqa: PLE0604
    *_names_of(_FROM),
    *("losses", "microbatching", "schedules", "tree"),
    *_OWN.split(),
]
