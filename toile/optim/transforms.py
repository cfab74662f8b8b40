"""Transformations that wrap or combine other transformations, in one namespace as in Optax."""
# ruff: noqa: F403, F405

from toile.optim.accumulation import *
from toile.optim.adding import *
from toile.optim.clipping import *
from toile.optim.combining import *
from toile.optim.conditions import *
from toile.optim.constraining import *
from toile.optim.flattening import *
from toile.optim.masking import *
from toile.optim.monitoring import *

__all__ = [
    "AddNoiseState", "ApplyIfFiniteState", "ConditionFn", "ConditionallyMaskState",
    "ConditionallyTransformState", "EmaState", "MaskedNode", "MaskedState", "MonitorState",
    "MultiSteps", "MultiStepsState", "NonNegativeParamsState", "PartitionState",
    "ShouldSkipUpdateFunction", "SnapshotState", "TraceState", "ZeroNansState",
    "adaptive_grad_clip", "add_decayed_weights", "add_noise", "apply_if_finite", "chain", "clip",
    "clip_by_block_rms", "clip_by_global_norm", "conditionally_mask", "conditionally_transform",
    "ema", "flatten", "freeze", "keep_params_nonnegative", "masked", "measure_with_ema", "monitor",
    "named_chain", "partition", "per_example_global_norm_clip", "per_example_layer_norm_clip",
    "selective_transform", "skip_large_updates", "skip_not_finite", "snapshot", "trace",
    "unitwise_clip", "unitwise_norm", "zero_nans",
]  # fmt: skip
