"""Losses of Optax: a row for each with its options, odd shapes, masks, and extreme values."""

import numpy as np

from tests.optim.recorded import case, normal


def softmax(x):
    """In float64: rounded to float32 it has the same bits, and rows are on record, everywhere."""
    powers = np.exp(x.astype(np.float64))
    return powers / powers.sum(-1, keepdims=True)


X, Y = normal(4, 5), normal(4, 5, seed=1)
P = softmax(Y).astype(np.float32)
LOGP = np.log(softmax(X)).astype(np.float32)
BITS = np.random.RandomState(2).randint(0, 2, (4, 5))
CLASSES = np.array([0, 4, 2, 2])
SIGNS = np.where(BITS, 1.0, -1.0).astype(np.float32)
MASK = np.array([[1, 0, 1, 1, 0], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0], [1, 1, 0, 0, 1]], bool)
EMPTY_ROW = MASK & np.array([[True], [True], [False], [True]])
CUBE = normal(3, 4, 5)
LARGE = np.array([-200.0, -30.0, -1e-3, 0.0, 1e-3, 30.0, 200.0], np.float32)

# Regression.
case("squared_error", lambda L, x, y: L.losses.squared_error(x, y), X, Y, bf16=True)
case("squared_error_alone", lambda L, x: L.losses.squared_error(x), X)
case("squared_error_empty", lambda L, x, y: L.losses.squared_error(x, y), X[:0], Y[:0])
case("l2_loss", lambda L, x, y: L.losses.l2_loss(x, y), X, Y, bf16=True)
case("l2_loss_number", lambda L: L.losses.l2_loss(3.0), grad=False)
case("huber_loss", lambda L, x, y: L.losses.huber_loss(x, y), X, Y, bf16=True)
case("huber_loss_delta", lambda L, x, y: L.losses.huber_loss(x, y, delta=0.3), X, Y[0])
case("huber_loss_kink", lambda L, x: L.losses.huber_loss(x), np.float32([-1, 0, 1, 2]))
case("log_cosh", lambda L, x, y: L.losses.log_cosh(x, y), X, Y, bf16=True)
case("log_cosh_large", lambda L, x: L.losses.log_cosh(x), LARGE)
case("cosine", lambda L, x, y: L.losses.cosine_similarity(x, y), X, Y, bf16=True)
case("cosine_axes", lambda L, x, y: L.losses.cosine_distance(x, y, axis=(0, 2)), CUBE, CUBE[::-1])
case("cosine_where",
     lambda L, x, y, m: L.losses.cosine_distance(x, y, epsilon=1e-3, where=m), X, Y, MASK,
     bf16=True)  # fmt: skip
case("cosine_none", lambda L, x, y: L.losses.cosine_similarity(x, y, axis=None), X, Y)
case("cosine_zero", lambda L, x, y: L.losses.cosine_similarity(x, y, epsilon=1e-6), 0 * X, Y)

# Two classes.
case("sigmoid", lambda L, x, y: L.losses.sigmoid_binary_cross_entropy(x, y), X, P, bf16=True)
case("sigmoid_bits", lambda L, x, y: L.losses.sigmoid_binary_cross_entropy(x, y), X, BITS)
case("sigmoid_large", lambda L, x: L.losses.sigmoid_binary_cross_entropy(x, 1 * (x > 0)), LARGE)
case("focal", lambda L, x, y: L.losses.sigmoid_focal_loss(x, y), X, P, bf16=True)
case("focal_alpha",
     lambda L, x, y: L.losses.sigmoid_focal_loss(x, y, alpha=0.25, gamma=1.5), X, P,
     bf16=True)  # fmt: skip
case("focal_large", lambda L, x: L.losses.sigmoid_focal_loss(x, x > 0, gamma=0.5), LARGE)
case("hinge", lambda L, x, y: L.losses.hinge_loss(x, y), X, SIGNS, bf16=True)
case("hinge_numpy", lambda L: L.losses.hinge_loss(X.astype(np.float64), SIGNS), grad=False)
case("perceptron", lambda L, x, y: L.losses.perceptron_loss(x, y), X, SIGNS, bf16=True)
case("sparsemax", lambda L, x, y: L.losses.sparsemax_loss(x, y), 2 * X, BITS, bf16=True)
case("sparsemax_bools", lambda L, x: L.losses.sparsemax_loss(x, BITS == 1), 2 * X)

# Many classes.
case("softmax", lambda L, x, y: L.losses.softmax_cross_entropy(x, y), X, P, bf16=True)
case("softmax_axis", lambda L, x, y: L.losses.softmax_cross_entropy(x, y, axis=0), X, P)
case("softmax_axes",
     lambda L, x, y: L.losses.softmax_cross_entropy(x, y, axis=(0, 2)), CUBE, CUBE)  # fmt: skip
case("softmax_all", lambda L, x, y: L.losses.softmax_cross_entropy(x, y, axis=None), X, P)
case("softmax_where",
     lambda L, x, y, m: L.losses.softmax_cross_entropy(x, y, where=m), X, P, MASK,
     bf16=True)  # fmt: skip
case("softmax_where_rows",
     lambda L, x, y, m: L.losses.softmax_cross_entropy(x, y, where=m), X, P,
     MASK[:, 0])  # fmt: skip
case("softmax_large",
     lambda L, x: L.losses.softmax_cross_entropy(x, L.nn.one_hot(6, 7)), LARGE)  # fmt: skip
case("integer",
     lambda L, x, y: L.losses.softmax_cross_entropy_with_integer_labels(x, y), X, CLASSES,
     bf16=True)  # fmt: skip
case("integer_axis",
     lambda L, x, y: L.losses.softmax_cross_entropy_with_integer_labels(x, y, axis=1), CUBE,
     np.arange(15).reshape(3, 5) % 4)  # fmt: skip
case("integer_axes",
     lambda L, x, y: L.losses.softmax_cross_entropy_with_integer_labels(x, y, axis=(0, -1)), CUBE,
     np.array([0, 7, 14, 3]))  # fmt: skip
case("integer_where",
     lambda L, x, y, m: L.losses.softmax_cross_entropy_with_integer_labels(x, y, where=m), X,
     CLASSES, MASK, bf16=True)  # fmt: skip
case("integer_where_empty",
     lambda L, x, y, m: L.losses.softmax_cross_entropy_with_integer_labels(x, y, where=m), X,
     CLASSES, EMPTY_ROW)  # fmt: skip
case("integer_axes_where",
     lambda L, x, y, m: L.losses.softmax_cross_entropy_with_integer_labels(
         x, y, axis=(1, 2), where=m), CUBE, np.array([0, 7, 14]), CUBE > -0.5)  # fmt: skip
case("integer_bytes",
     lambda L, x, y: L.losses.softmax_cross_entropy_with_integer_labels(x, y), X,
     CLASSES.astype(np.uint8))  # fmt: skip
case("safe", lambda L, x, y: L.losses.safe_softmax_cross_entropy(x, y), X, P, bf16=True)
case("safe_infinite",
     lambda L, x, y: L.losses.safe_softmax_cross_entropy(x, y),
     np.where(MASK, X, -np.inf).astype(np.float32), np.eye(5, dtype="f4")[[0, 1, 2, 4]],
     grad=False)  # fmt: skip
case("safe_infinite_grad",
     lambda L, x: L.jax.grad(lambda x: L.losses.safe_softmax_cross_entropy(
         x, L.nn.one_hot(np.array([0, 1, 2, 4]), 5)).sum())(x),
     np.where(MASK, X, -np.inf).astype(np.float32), grad=False)  # fmt: skip
case("poly", lambda L, x, y: L.losses.poly_loss_cross_entropy(x, y), X, P, bf16=True)
case("poly_where",
     lambda L, x, y, m: L.losses.poly_loss_cross_entropy(x, y, epsilon=-1.0, axis=0, where=m), X, P,
     MASK)  # fmt: skip
case("multiclass_hinge",
     lambda L, x, y: L.losses.multiclass_hinge_loss(x, y), X, CLASSES, bf16=True)  # fmt: skip
case("multiclass_hinge_one", lambda L, x: L.losses.multiclass_hinge_loss(x, 3), X[0])
case("multiclass_hinge_batches",
     lambda L, x, y: L.losses.multiclass_hinge_loss(x, y), CUBE,
     np.arange(12).reshape(3, 4) % 5)  # fmt: skip
case("multiclass_perceptron",
     lambda L, x, y: L.losses.multiclass_perceptron_loss(x, y), X, CLASSES, bf16=True)  # fmt: skip
case("multiclass_sparsemax",
     lambda L, x, y: L.losses.multiclass_sparsemax_loss(x, y), X, CLASSES)  # fmt: skip
case("multiclass_sparsemax_values",
     lambda L, x, y: L.losses.multiclass_sparsemax_loss(x, y), X, CLASSES, bf16=True,
     grad=False)  # fmt: skip
case("multiclass_sparsemax_large",
     lambda L, x, y: L.losses.multiclass_sparsemax_loss(x, y), 50 * X, CLASSES)  # fmt: skip
case("fenchel_young",
     lambda L, x, y: L.losses.make_fenchel_young_loss(L.nn.logsumexp)(x, y), X, P,
     bf16=True)  # fmt: skip
case("fenchel_young_batches",
     lambda L, x, y: L.losses.make_fenchel_young_loss(L.jnp.max)(x, y), CUBE,
     CUBE[::-1])  # fmt: skip

# Distributions.
case("kl", lambda L, x, y: L.losses.kl_divergence(x, y), LOGP, P, bf16=True)
case("kl_zero_targets", lambda L, x: L.losses.kl_divergence(x, L.jnp.eye(4, 5)), LOGP)
case("kl_where",
     lambda L, x, y, m: L.losses.kl_divergence(x, y, axis=0, where=m), LOGP, P, MASK)  # fmt: skip
case("kl_log",
     lambda L, x, y: L.losses.kl_divergence_with_log_targets(x, y), LOGP, LOGP[::-1],
     bf16=True)  # fmt: skip
case("kl_log_all",
     lambda L, x, y, m: L.losses.kl_divergence_with_log_targets(x, y, axis=None, where=m), LOGP,
     LOGP[::-1], MASK)  # fmt: skip
case("kl_generalized",
     lambda L, x, y: L.losses.generalized_kl_divergence(x, y), LOGP, P, bf16=True)  # fmt: skip
case("kl_convex",
     lambda L, x, y, m: L.losses.convex_kl_divergence(x, y, where=m), LOGP, P, MASK)  # fmt: skip
case("smooth_labels", lambda L, x: L.losses.smooth_labels(x, 0.1), P, bf16=True)
case("smooth_labels_axes", lambda L, x: L.losses.smooth_labels(x, 0.1, axis=(0, 1)), CUBE)
case("smooth_labels_where", lambda L, x, m: L.losses.smooth_labels(x, 0.1, where=m), P, MASK)

# Ranking.
case("ranking", lambda L, x, y: L.losses.ranking_softmax_loss(x, y), X, P, bf16=True)
case("ranking_where",
     lambda L, x, y, m, w: L.losses.ranking_softmax_loss(x, y, where=m, weights=w), X[:2], BITS[:2],
     MASK[:2], P[:2], grad=False)  # fmt: skip
case("ranking_masked_list",
     lambda L, x, m: L.losses.ranking_softmax_loss(x, L.jnp.ones((4, 5)), where=m), X, EMPTY_ROW,
     grad=False)  # fmt: skip
case("ranking_nothing",
     lambda L, x: L.losses.ranking_softmax_loss(x, x, where=L.jnp.zeros((4, 5), bool)), X,
     grad=False)  # fmt: skip
case("ranking_sum",
     lambda L, x, y: L.losses.ranking_softmax_loss(x, y, reduce_fn=L.jnp.sum), X, P)  # fmt: skip
case("ranking_none",
     lambda L, x, y, m: L.losses.ranking_softmax_loss(x, y, where=m, reduce_fn=None), X, P,
     EMPTY_ROW, grad=False)  # fmt: skip

# Segmentation.
IMAGES, REGIONS = normal(2, 6, 6, 3), np.eye(3, dtype="f4")[np.arange(72).reshape(2, 6, 6) % 3]
SPOTS = (normal(2, 6, 6, seed=5) > 0).astype(np.float32)
SHARES = softmax(IMAGES).astype(np.float32)
WEIGHTS = np.float32([1, 2, 0.5])

case("dice", lambda L, x, y: L.losses.dice_loss(x, y), IMAGES, REGIONS, bf16=True)
case("dice_tversky",
     lambda L, x, y, w: L.losses.dice_loss(
         x, y, class_weights=w, smooth=0.1, alpha=0.3, beta=0.7, reduction="sum",
         ignore_background=True), IMAGES, REGIONS, WEIGHTS)  # fmt: skip
case("dice_none", lambda L, x, y: L.losses.dice_loss(x, y, reduction="none"), IMAGES, REGIONS)
case("dice_axis", lambda L, x, y: L.losses.dice_loss(x, y, axis=(0, 1, 2)), IMAGES, REGIONS)
case("dice_probabilities",
     lambda L, x, y: L.losses.dice_loss(x, y, apply_softmax=False), SHARES, REGIONS,
     grad=False, staged=False)  # fmt: skip
case("dice_one_class", lambda L, x, y: L.losses.dice_loss(x, y[..., None]), IMAGES[..., 0], SPOTS)
case("dice_generalized",
     lambda L, x, y: L.losses.multiclass_generalized_dice_loss(x, y), IMAGES, REGIONS,
     bf16=True)  # fmt: skip
case("dice_generalized_foreground",
     lambda L, x, y: L.losses.multiclass_generalized_dice_loss(
         x, y, smooth=0.5, ignore_background=True), IMAGES, REGIONS)  # fmt: skip
case("dice_binary", lambda L, x, y: L.losses.binary_dice_loss(x, y), IMAGES[..., 0], SPOTS)
case("dice_binary_channel",
     lambda L, x, y: L.losses.binary_dice_loss(x, y, smooth=0.0), IMAGES[..., :1],
     SPOTS[..., None])  # fmt: skip

# Embeddings.
PAIRS = np.array([0, 0, 1, 1, 2, 0])
case("ntxent", lambda L, x: L.losses.ntxent(x, PAIRS), normal(6, 4), rtol=1e-4, atol=1e-5)
case("ntxent_warm", lambda L, x: L.losses.ntxent(x, PAIRS, 0.5), normal(6, 4), bf16=True)
case("ntxent_no_pairs", lambda L, x: L.losses.ntxent(x, L.jnp.arange(3)), X[:3], grad=False)
case("triplet", lambda L, x, y, z: L.losses.triplet_margin_loss(x, y, z), X, Y, X[::-1], bf16=True)
case("triplet_options",
     lambda L, x, y, z: L.losses.triplet_margin_loss(
         x, y, z, axis=0, norm_degree=4, margin=2.0, eps=1e-3), X, Y, X[::-1])  # fmt: skip

# Sequences.
FRAMES, WORDS = normal(3, 9, 6, seed=3), np.array([[1, 2, 2, 3], [4, 4, 4, 0], [5, 0, 0, 0]])
LATE = np.float32([[0] * 9, [0] * 7 + [1] * 2, [0] * 5 + [1] * 4])
SHORT = np.float32([[0, 0, 0, 0], [0, 0, 0, 1], [0, 1, 1, 1]])
case("ctc", lambda L, x: L.losses.ctc_loss(x, LATE, WORDS, SHORT), FRAMES, bf16=True, atol=1e-5)
case("ctc_blank",
     lambda L, x: L.losses.ctc_loss(x, L.jnp.asarray(LATE), WORDS, SHORT, blank_id=5,
                                    log_epsilon=-1e4), FRAMES, atol=1e-5)  # fmt: skip
case("ctc_forward",
     lambda L, x: L.losses.ctc_loss_with_forward_probs(x, LATE, WORDS, SHORT), FRAMES,
     grad=False)  # fmt: skip
case("ctc_impossible",
     lambda L, x: L.losses.ctc_loss(x, LATE[:, :2], WORDS, SHORT), FRAMES[:, :2],
     grad=False)  # fmt: skip
