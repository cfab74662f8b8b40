"""Optax's private modules by their names: optimizers that people have written import from them.

`from toile.optim._src import base, numerics, transform` gives modules with what Optax's have, each
name being `toile.optim`'s own; nothing loads before it is used. New code imports `toile.optim`.
"""

import sys as _sys
import types as _types

from toile.engine.lazy import attach as _attach

_NAMES = {
    "alias": (
        "MaskOrFn adabelief adadelta adafactor adagrad adam adamax adamaxw adamw adan amsgrad "
        "fromage lamb lars lbfgs lion nadam nadamw noisy_sgd novograd optimistic_adam "
        "optimistic_adam_v2 optimistic_gradient_descent polyak_sgd radam rmsprop rprop sgd "
        "sign_sgd signum sm3 yogi"
    ),
    "base": (
        "ArrayTree EmptyState GradientTransformation GradientTransformationExtraArgs NO_PARAMS_MSG "
        "OptState PRNGKey Params PyTree ScalarOrSchedule Schedule ScheduleState Shape "
        "StatefulSchedule TransformInitFn TransformUpdateExtraArgsFn TransformUpdateFn Updates "
        "identity init_empty_state set_to_zero stateless stateless_with_tree_map "
        "with_extra_args_support"
    ),
    "combine": "MultiTransformState chain multi_transform named_chain partition",
    "constrain": "NonNegativeParamsState ZeroNansState keep_params_nonnegative zero_nans",
    "factorized": "FactoredState scale_by_factored_rms",
    "linear_algebra": "global_norm matrix_inverse_pth_root nnls power_iteration",
    "linesearch": (
        "BacktrackingLinesearchInfo ScaleByBacktrackingLinesearchState ScaleByZoomLinesearchState "
        "ZoomLinesearchInfo scale_by_backtracking_linesearch scale_by_zoom_linesearch "
        "value_and_grad_from_state"
    ),
    "lookahead": "LookaheadParams LookaheadState lookahead",
    "numerics": "abs_sq safe_increment safe_int32_increment safe_norm safe_root_mean_squares",
    "schedule": (
        "InjectHyperparamsState constant_schedule cosine_decay_schedule cosine_onecycle_schedule "
        "exponential_decay inject_hyperparams join_schedules linear_onecycle_schedule "
        "linear_schedule piecewise_constant_schedule piecewise_interpolate_schedule "
        "polynomial_schedule sgdr_schedule warmup_constant_schedule warmup_cosine_decay_schedule "
        "warmup_exponential_decay_schedule"
    ),
    "transform": (
        "AddDecayedWeightsState AddNoiseState ApplyEvery EmaState ScaleByAdaDeltaState "
        "ScaleByAdamState ScaleByAdanState ScaleByAmsgradState ScaleByBeliefState "
        "ScaleByDistanceOverGradientsState ScaleByLBFGSState ScaleByLionState "
        "ScaleByNovogradState ScaleByOptimisticGradientState ScaleByRStdDevState "
        "ScaleByRStdDevWithCountState ScaleByRmsState ScaleByRmsWithCountState ScaleByRpropState "
        "ScaleByRssState ScaleBySM3State ScaleByScheduleState ScaleByTrustRatioState ScaleState "
        "TraceState abs_sq add_decayed_weights add_noise apply_every centralize ema "
        "normalize_by_update_norm scale scale_by_adadelta scale_by_adam scale_by_adamax "
        "scale_by_adan scale_by_amsgrad scale_by_belief scale_by_distance_over_gradients "
        "scale_by_lbfgs scale_by_learning_rate scale_by_lion scale_by_novograd "
        "scale_by_optimistic_gradient scale_by_param_block_norm scale_by_param_block_rms "
        "scale_by_polyak scale_by_radam scale_by_rms scale_by_rprop scale_by_rss "
        "scale_by_schedule scale_by_sign scale_by_sm3 scale_by_stddev scale_by_trust_ratio "
        "scale_by_yogi trace"
    ),
    "update": "apply_updates incremental_update periodic_update",
    "wrappers": (
        "ApplyIfFiniteState ConditionFn ConditionallyMaskState ConditionallyTransformState "
        "MaskedNode MaskedState MultiSteps MultiStepsState ShouldSkipUpdateFunction "
        "apply_if_finite conditionally_mask conditionally_transform flatten masked "
        "skip_large_updates skip_not_finite"
    ),
}


def _module(name: str, names: str) -> _types.ModuleType:
    """A module that has names of `toile.optim`."""
    made = _types.ModuleType(f"{__name__}.{name}", f"What `optax._src.{name}` has.")
    _sys.modules[made.__name__] = made
    attributes = _attach(made.__name__, {"toile.optim": names})
    made.__getattr__, made.__dir__ = attributes  # type: ignore[method-assign, assignment]
    return made


for _name, _names in _NAMES.items():
    globals()[_name] = _module(_name, _names)

__getattr__, __dir__ = _attach(__name__, {}, "utils")
__all__ = [*sorted(_NAMES), "utils"]  # noqa: PLE0604 -- names of modules that are made above
