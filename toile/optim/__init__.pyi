"""The public names of this package: loaded when they are first used, and known to type checkers."""

from toile.optim import (
    accumulation as accumulation,
    adaptive as adaptive,
    adding as adding,
    applying as applying,
    assignment as assignment,
    backtracking as backtracking,
    base as base,
    classic as classic,
    clipping as clipping,
    combining as combining,
    conditions as conditions,
    constraining as constraining,
    descent as descent,
    extras as extras,
    factored as factored,
    flattening as flattening,
    hyperparams as hyperparams,
    linear_algebra as linear_algebra,
    looking_ahead as looking_ahead,
    losses as losses,
    masking as masking,
    microbatching as microbatching,
    moments as moments,
    monitoring as monitoring,
    numerics as numerics,
    optimizers as optimizers,
    path_factors as path_factors,
    paths as paths,
    perturbations as perturbations,
    privacy as privacy,
    projections as projections,
    quasi_newton as quasi_newton,
    scaling as scaling,
    schedules as schedules,
    second_order as second_order,
    transforms as transforms,
    tree as tree,
    tree_utils as tree_utils,
    zoom as zoom,
)
from toile.optim.accumulation import (
    ApplyEvery as ApplyEvery,
    EmaState as EmaState,
    MultiSteps as MultiSteps,
    MultiStepsState as MultiStepsState,
    ShouldSkipUpdateFunction as ShouldSkipUpdateFunction,
    TraceState as TraceState,
    apply_every as apply_every,
    ema as ema,
    skip_large_updates as skip_large_updates,
    skip_not_finite as skip_not_finite,
    trace as trace,
)
from toile.optim.adaptive import (
    ScaleByAdaDeltaState as ScaleByAdaDeltaState,
    ScaleByNovogradState as ScaleByNovogradState,
    ScaleByRStdDevState as ScaleByRStdDevState,
    ScaleByRStdDevWithCountState as ScaleByRStdDevWithCountState,
    ScaleByRmsState as ScaleByRmsState,
    ScaleByRmsWithCountState as ScaleByRmsWithCountState,
    ScaleByRpropState as ScaleByRpropState,
    ScaleByRssState as ScaleByRssState,
    ScaleBySM3State as ScaleBySM3State,
    scale_by_adadelta as scale_by_adadelta,
    scale_by_novograd as scale_by_novograd,
    scale_by_rms as scale_by_rms,
    scale_by_rprop as scale_by_rprop,
    scale_by_rss as scale_by_rss,
    scale_by_sm3 as scale_by_sm3,
    scale_by_stddev as scale_by_stddev,
)
from toile.optim.adding import (
    AddDecayedWeightsState as AddDecayedWeightsState,
    AddNoiseState as AddNoiseState,
    WeightDecaySchedule as WeightDecaySchedule,
    add_decayed_weights as add_decayed_weights,
    add_noise as add_noise,
)
from toile.optim.applying import (
    apply_updates as apply_updates,
    incremental_update as incremental_update,
    periodic_update as periodic_update,
)
from toile.optim.backtracking import (
    BacktrackingLinesearchInfo as BacktrackingLinesearchInfo,
    ScaleByBacktrackingLinesearchState as ScaleByBacktrackingLinesearchState,
    scale_by_backtracking_linesearch as scale_by_backtracking_linesearch,
    value_and_grad_from_state as value_and_grad_from_state,
)
from toile.optim.base import (
    ArrayTree as ArrayTree,
    EmptyState as EmptyState,
    GradientTransformation as GradientTransformation,
    GradientTransformationExtraArgs as GradientTransformationExtraArgs,
    NO_PARAMS_MSG as NO_PARAMS_MSG,
    OptState as OptState,
    PRNGKey as PRNGKey,
    Params as Params,
    PyTree as PyTree,
    ScalarOrSchedule as ScalarOrSchedule,
    Schedule as Schedule,
    ScheduleState as ScheduleState,
    Shape as Shape,
    StatefulSchedule as StatefulSchedule,
    TransformInitFn as TransformInitFn,
    TransformUpdateExtraArgsFn as TransformUpdateExtraArgsFn,
    TransformUpdateFn as TransformUpdateFn,
    Updates as Updates,
    identity as identity,
    init_empty_state as init_empty_state,
    set_to_zero as set_to_zero,
    stateless as stateless,
    stateless_with_tree_map as stateless_with_tree_map,
    with_extra_args_support as with_extra_args_support,
)
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
from toile.optim.clipping import (
    AdaptiveGradClipState as AdaptiveGradClipState,
    ClipByGlobalNormState as ClipByGlobalNormState,
    ClipState as ClipState,
    adaptive_grad_clip as adaptive_grad_clip,
    clip as clip,
    clip_by_block_rms as clip_by_block_rms,
    clip_by_global_norm as clip_by_global_norm,
    per_example_global_norm_clip as per_example_global_norm_clip,
    per_example_layer_norm_clip as per_example_layer_norm_clip,
    unitwise_clip as unitwise_clip,
    unitwise_norm as unitwise_norm,
)
from toile.optim.combining import (
    MultiTransformState as MultiTransformState,
    PartitionState as PartitionState,
    chain as chain,
    freeze as freeze,
    multi_transform as multi_transform,
    named_chain as named_chain,
    partition as partition,
    selective_transform as selective_transform,
    stop_gradients as stop_gradients,
)
from toile.optim.conditions import (
    ApplyIfFiniteState as ApplyIfFiniteState,
    ConditionFn as ConditionFn,
    ConditionallyMaskState as ConditionallyMaskState,
    ConditionallyTransformState as ConditionallyTransformState,
    apply_if_finite as apply_if_finite,
    conditionally_mask as conditionally_mask,
    conditionally_transform as conditionally_transform,
)
from toile.optim.constraining import (
    NonNegativeParamsState as NonNegativeParamsState,
    ZeroNansState as ZeroNansState,
    keep_params_nonnegative as keep_params_nonnegative,
    zero_nans as zero_nans,
)
from toile.optim.descent import (
    lbfgs as lbfgs,
    noisy_sgd as noisy_sgd,
    optimistic_gradient_descent as optimistic_gradient_descent,
    polyak_sgd as polyak_sgd,
    rprop as rprop,
    sgd as sgd,
    sign_sgd as sign_sgd,
    signum as signum,
)
from toile.optim.extras import (
    MultiNormalDiagFromLogScale as MultiNormalDiagFromLogScale,
    multi_normal as multi_normal,
    scale_gradient as scale_gradient,
)
from toile.optim.factored import (
    FactoredState as FactoredState,
    scale_by_factored_rms as scale_by_factored_rms,
)
from toile.optim.flattening import flatten as flatten
from toile.optim.hyperparams import (
    InjectHyperparamsState as InjectHyperparamsState,
    InjectStatefulHyperparamsState as InjectStatefulHyperparamsState,
    WrappedSchedule as WrappedSchedule,
    WrappedScheduleState as WrappedScheduleState,
    get_hyperparams as get_hyperparams,
    inject_hyperparams as inject_hyperparams,
    inject_stateful_hyperparams as inject_stateful_hyperparams,
    set_hyperparams as set_hyperparams,
)
from toile.optim.linear_algebra import (
    global_norm as global_norm,
    matrix_inverse_pth_root as matrix_inverse_pth_root,
    nnls as nnls,
    power_iteration as power_iteration,
)
from toile.optim.looking_ahead import (
    LookaheadParams as LookaheadParams,
    LookaheadState as LookaheadState,
    lookahead as lookahead,
)
from toile.optim.losses.classification import (
    poly_loss_cross_entropy as poly_loss_cross_entropy,
    safe_softmax_cross_entropy as safe_softmax_cross_entropy,
    sigmoid_binary_cross_entropy as sigmoid_binary_cross_entropy,
    sigmoid_focal_loss as sigmoid_focal_loss,
    softmax_cross_entropy as softmax_cross_entropy,
    softmax_cross_entropy_with_integer_labels as softmax_cross_entropy_with_integer_labels,
)
from toile.optim.losses.ctc import (
    ctc_loss as ctc_loss,
    ctc_loss_with_forward_probs as ctc_loss_with_forward_probs,
)
from toile.optim.losses.divergences import (
    convex_kl_divergence as convex_kl_divergence,
    generalized_kl_divergence as generalized_kl_divergence,
    kl_divergence as kl_divergence,
    kl_divergence_with_log_targets as kl_divergence_with_log_targets,
)
from toile.optim.losses.fenchel_young import make_fenchel_young_loss as make_fenchel_young_loss
from toile.optim.losses.margins import (
    hinge_loss as hinge_loss,
    multiclass_hinge_loss as multiclass_hinge_loss,
    multiclass_perceptron_loss as multiclass_perceptron_loss,
    multiclass_sparsemax_loss as multiclass_sparsemax_loss,
    perceptron_loss as perceptron_loss,
    sparsemax_loss as sparsemax_loss,
)
from toile.optim.losses.ranking import ranking_softmax_loss as ranking_softmax_loss
from toile.optim.losses.regression import (
    cosine_distance as cosine_distance,
    cosine_similarity as cosine_similarity,
    huber_loss as huber_loss,
    l2_loss as l2_loss,
    log_cosh as log_cosh,
    squared_error as squared_error,
)
from toile.optim.losses.segmentation import (
    binary_dice_loss as binary_dice_loss,
    dice_loss as dice_loss,
    multiclass_generalized_dice_loss as multiclass_generalized_dice_loss,
)
from toile.optim.losses.self_supervised import (
    ntxent as ntxent,
    triplet_margin_loss as triplet_margin_loss,
)
from toile.optim.losses.smoothing import smooth_labels as smooth_labels
from toile.optim.masking import (
    MaskOrFn as MaskOrFn,
    MaskedNode as MaskedNode,
    MaskedState as MaskedState,
    masked as masked,
)
from toile.optim.microbatching import microbatch as microbatch
from toile.optim.moments import (
    ScaleByAdamState as ScaleByAdamState,
    ScaleByAdanState as ScaleByAdanState,
    ScaleByAmsgradState as ScaleByAmsgradState,
    ScaleByBeliefState as ScaleByBeliefState,
    ScaleByLionState as ScaleByLionState,
    scale_by_adam as scale_by_adam,
    scale_by_adamax as scale_by_adamax,
    scale_by_adan as scale_by_adan,
    scale_by_amsgrad as scale_by_amsgrad,
    scale_by_belief as scale_by_belief,
    scale_by_lion as scale_by_lion,
    scale_by_radam as scale_by_radam,
    scale_by_yogi as scale_by_yogi,
)
from toile.optim.monitoring import (
    MonitorState as MonitorState,
    SnapshotState as SnapshotState,
    measure_with_ema as measure_with_ema,
    monitor as monitor,
    snapshot as snapshot,
)
from toile.optim.numerics import (
    abs_sq as abs_sq,
    safe_increment as safe_increment,
    safe_int32_increment as safe_int32_increment,
    safe_norm as safe_norm,
    safe_root_mean_squares as safe_root_mean_squares,
)
from toile.optim.optimizers import (
    adabelief as adabelief,
    adadelta as adadelta,
    adafactor as adafactor,
    adagrad as adagrad,
    adam as adam,
    adamax as adamax,
    adamaxw as adamaxw,
    adamw as adamw,
    adan as adan,
    amsgrad as amsgrad,
    fromage as fromage,
    lamb as lamb,
    lars as lars,
    lion as lion,
    nadam as nadam,
    nadamw as nadamw,
    novograd as novograd,
    optimistic_adam as optimistic_adam,
    optimistic_adam_v2 as optimistic_adam_v2,
    radam as radam,
    rmsprop as rmsprop,
    sm3 as sm3,
    yogi as yogi,
)
from toile.optim.path_factors import scale_by_path as scale_by_path
from toile.optim.privacy import (
    DifferentiallyPrivateAggregateState as DifferentiallyPrivateAggregateState,
    differentially_private_aggregate as differentially_private_aggregate,
    dpsgd as dpsgd,
)
from toile.optim.quasi_newton import (
    ScaleByLBFGSState as ScaleByLBFGSState,
    scale_by_lbfgs as scale_by_lbfgs,
)
from toile.optim.scaling import (
    ScaleByDistanceOverGradientsState as ScaleByDistanceOverGradientsState,
    ScaleByOptimisticGradientState as ScaleByOptimisticGradientState,
    ScaleByScheduleState as ScaleByScheduleState,
    ScaleByTrustRatioState as ScaleByTrustRatioState,
    ScaleState as ScaleState,
    centralize as centralize,
    normalize_by_update_norm as normalize_by_update_norm,
    scale as scale,
    scale_by_distance_over_gradients as scale_by_distance_over_gradients,
    scale_by_learning_rate as scale_by_learning_rate,
    scale_by_optimistic_gradient as scale_by_optimistic_gradient,
    scale_by_param_block_norm as scale_by_param_block_norm,
    scale_by_param_block_rms as scale_by_param_block_rms,
    scale_by_polyak as scale_by_polyak,
    scale_by_schedule as scale_by_schedule,
    scale_by_sign as scale_by_sign,
    scale_by_trust_ratio as scale_by_trust_ratio,
)
from toile.optim.schedules.decay import (
    constant_schedule as constant_schedule,
    cosine_decay_schedule as cosine_decay_schedule,
    exponential_decay as exponential_decay,
    linear_schedule as linear_schedule,
    polynomial_schedule as polynomial_schedule,
)
from toile.optim.schedules.joining import (
    join_schedules as join_schedules,
    sgdr_schedule as sgdr_schedule,
    warmup_constant_schedule as warmup_constant_schedule,
    warmup_cosine_decay_schedule as warmup_cosine_decay_schedule,
    warmup_exponential_decay_schedule as warmup_exponential_decay_schedule,
)
from toile.optim.schedules.piecewise import (
    cosine_onecycle_schedule as cosine_onecycle_schedule,
    linear_onecycle_schedule as linear_onecycle_schedule,
    piecewise_constant_schedule as piecewise_constant_schedule,
    piecewise_interpolate_schedule as piecewise_interpolate_schedule,
)
from toile.optim.tree import (
    bias_correction as bias_correction,
    update_infinity_moment as update_infinity_moment,
    update_moment as update_moment,
    update_moment_per_elem_norm as update_moment_per_elem_norm,
)
from toile.optim.zoom import (
    ScaleByZoomLinesearchState as ScaleByZoomLinesearchState,
    ZoomLinesearchInfo as ZoomLinesearchInfo,
    scale_by_zoom_linesearch as scale_by_zoom_linesearch,
)
from toile.optim.tree_utils import tree_map_params as tree_map_params
