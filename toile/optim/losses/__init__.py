"""Loss functions, with the names, arguments and values of Optax.

Each takes arrays of predictions and targets and gives the loss of every example (or element); the
mean over a batch is the caller's. All are differentiable and run under jit and vmap.
"""

import typing as _typing

from toile.engine.lazy import attach as _attach

if _typing.TYPE_CHECKING:
    from toile.optim.losses.classification import (
        poly_loss_cross_entropy,
        safe_softmax_cross_entropy,
        sigmoid_binary_cross_entropy,
        sigmoid_focal_loss,
        softmax_cross_entropy,
        softmax_cross_entropy_with_integer_labels,
    )
    from toile.optim.losses.ctc import ctc_loss, ctc_loss_with_forward_probs
    from toile.optim.losses.divergences import (
        convex_kl_divergence,
        generalized_kl_divergence,
        kl_divergence,
        kl_divergence_with_log_targets,
    )
    from toile.optim.losses.fenchel_young import make_fenchel_young_loss
    from toile.optim.losses.margins import (
        hinge_loss,
        multiclass_hinge_loss,
        multiclass_perceptron_loss,
        multiclass_sparsemax_loss,
        perceptron_loss,
        sparsemax_loss,
    )
    from toile.optim.losses.ranking import ranking_softmax_loss
    from toile.optim.losses.regression import (
        cosine_distance,
        cosine_similarity,
        huber_loss,
        l2_loss,
        log_cosh,
        squared_error,
    )
    from toile.optim.losses.segmentation import (
        binary_dice_loss,
        dice_loss,
        multiclass_generalized_dice_loss,
    )
    from toile.optim.losses.self_supervised import ntxent, triplet_margin_loss
    from toile.optim.losses.smoothing import smooth_labels

_FROM = {
    "classification": (
        "poly_loss_cross_entropy safe_softmax_cross_entropy sigmoid_binary_cross_entropy "
        "sigmoid_focal_loss softmax_cross_entropy softmax_cross_entropy_with_integer_labels"
    ),
    "ctc": "ctc_loss ctc_loss_with_forward_probs",
    "divergences": (
        "convex_kl_divergence generalized_kl_divergence kl_divergence "
        "kl_divergence_with_log_targets"
    ),
    "fenchel_young": "make_fenchel_young_loss",
    "margins": (
        "hinge_loss multiclass_hinge_loss multiclass_perceptron_loss multiclass_sparsemax_loss "
        "perceptron_loss sparsemax_loss"
    ),
    "ranking": "ranking_softmax_loss",
    "regression": "cosine_distance cosine_similarity huber_loss l2_loss log_cosh squared_error",
    "segmentation": "binary_dice_loss dice_loss multiclass_generalized_dice_loss",
    "self_supervised": "ntxent triplet_margin_loss",
    "smoothing": "smooth_labels",
}
_MODULES = (
    "checks classification ctc divergences fenchel_young margins ranking regression segmentation "
    "self_supervised smoothing"
)
__getattr__, __dir__ = _attach(__name__, _FROM, _MODULES)

__all__ = [
    "binary_dice_loss",
    "convex_kl_divergence",
    "cosine_distance",
    "cosine_similarity",
    "ctc_loss",
    "ctc_loss_with_forward_probs",
    "dice_loss",
    "generalized_kl_divergence",
    "hinge_loss",
    "huber_loss",
    "kl_divergence",
    "kl_divergence_with_log_targets",
    "l2_loss",
    "log_cosh",
    "make_fenchel_young_loss",
    "multiclass_generalized_dice_loss",
    "multiclass_hinge_loss",
    "multiclass_perceptron_loss",
    "multiclass_sparsemax_loss",
    "ntxent",
    "perceptron_loss",
    "poly_loss_cross_entropy",
    "ranking_softmax_loss",
    "safe_softmax_cross_entropy",
    "sigmoid_binary_cross_entropy",
    "sigmoid_focal_loss",
    "smooth_labels",
    "softmax_cross_entropy",
    "softmax_cross_entropy_with_integer_labels",
    "sparsemax_loss",
    "squared_error",
    "triplet_margin_loss",
]
