"""Transformations that clip gradients: each element, each leaf, or all leaves together."""

from __future__ import annotations

from toile import lax
from toile import numpy as jnp
from toile import tree as trees
from toile.api import vmap
from toile.engine.source import here
from toile.engine.trace import Array
from toile.optim import base, tree
from toile.optim.base import ArrayLike
from toile.optim.numerics import abs_sq

__all__ = [
    "AdaptiveGradClipState", "ClipByGlobalNormState", "ClipState", "adaptive_grad_clip", "clip",
    "clip_by_block_rms", "clip_by_global_norm", "per_example_global_norm_clip",
    "per_example_layer_norm_clip", "unitwise_clip", "unitwise_norm",
]  # fmt: skip

AdaptiveGradClipState = base.EmptyState
ClipByGlobalNormState = base.EmptyState
ClipState = base.EmptyState


def clip(max_delta: ArrayLike) -> base.GradientTransformation:
    """Limit each element of the updates to an interval around zero.

    Args:
        max_delta: maximum absolute value.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.clip(1.0)
    >>> updates, state = tx.update(jnp.array([0.5, -3.0]), tx.init(jnp.zeros(2)))
    >>> updates
    Array([ 0.5, -1. ], dtype=float32)
    """
    return base.leafwise(lambda g: jnp.clip(g, -max_delta, max_delta))


def clip_by_block_rms(threshold: ArrayLike) -> base.GradientTransformation:
    """Scale down each leaf so that its root mean square does not exceed a threshold.

    Args:
        threshold: maximum root mean square of a leaf.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.clip_by_block_rms(1.0)
    >>> grads = {"a": jnp.array([4.0, -4.0]), "b": jnp.array([0.5])}
    >>> updates, state = tx.update(grads, tx.init(grads))
    >>> updates
    {'a': Array([ 1., -1.], dtype=float32), 'b': Array([0.5], dtype=float32)}
    """

    def on_leaf(u):
        return u / jnp.maximum(1.0, jnp.sqrt(jnp.mean(abs_sq(u))) / threshold)

    return base.leafwise(on_leaf)


def clip_by_global_norm(max_norm: ArrayLike) -> base.GradientTransformation:
    """Scale down all leaves by the same factor so that their joint norm does not exceed a limit.

    The direction of the updates is preserved. Updates whose norm is below the limit stay unchanged
    (Pascanu et al., 2012).

    Args:
        max_norm: maximum Euclidean norm of all leaves together; 1.0 is a typical value.

    Returns:
        A gradient transformation.

    Raises:
        ValueError: `max_norm` is not a scalar; raised by `update`.

    >>> from toile import optim
    >>> tx = optim.clip_by_global_norm(1.0)
    >>> updates, state = tx.update(jnp.array([3.0, 4.0]), tx.init(jnp.zeros(2)))
    >>> updates.round(3)
    Array([0.6, 0.8], dtype=float32)
    """

    def update_fn(updates, state, params=None):
        norm = tree.norm(updates)
        within = jnp.squeeze(norm < max_norm)
        if within.ndim:
            raise ValueError(
                f"clip_by_global_norm: needed a scalar max_norm, got {max_norm!r}{here()}"
            )
        scaled = lambda g: lax.select(within, g, (g / norm.astype(g.dtype)) * max_norm)
        return trees.map(scaled, updates), state

    return base.GradientTransformation(base.init_empty_state, update_fn)


def _check_batched(who: str, grads: base.ArrayTree) -> None:
    shapes = [jnp.shape(g) for g in trees.leaves(grads)]
    if not all(shape[:1] and shape[0] == shapes[0][0] for shape in shapes):
        raise ValueError(
            f"{who}: needed a leading axis of one size in every gradient (that of the examples), "
            f"got shapes {shapes}{here()}"
        )


def per_example_global_norm_clip(
    grads: base.ArrayTree, l2_norm_clip: ArrayLike
) -> tuple[base.ArrayTree, Array]:
    """Clip the norm of each example's gradient, and sum the gradients over the examples.

    Differentially private training uses this function, because clipping limits how much one example
    can change the sum.

    Args:
        grads: tree of gradients whose arrays have a leading batch axis with one entry per example,
            as returned by `vmap(grad(loss))`.
        l2_norm_clip: maximum Euclidean norm of one example's gradient, over all leaves.

    Returns:
        The sum of the clipped gradients, without the batch axis, and the number of examples whose
        gradients were clipped.

    Raises:
        ValueError: the leaves have different batch sizes.

    >>> from toile import optim
    >>> grads = jnp.array([[3.0, 4.0], [0.25, 0.5]])
    >>> optim.per_example_global_norm_clip(grads, 1.0)
    (Array([0.85, 1.3 ], dtype=float32), Array(1, dtype=int32))
    """
    _check_batched("per_example_global_norm_clip", grads)
    norms = vmap(tree.norm)(grads)
    factors = jnp.nan_to_num(jnp.minimum(l2_norm_clip / norms, 1.0), nan=1.0)
    total = trees.map(lambda g: jnp.tensordot(factors, g, axes=1), grads)
    return total, jnp.sum(factors < 1.0)


def per_example_layer_norm_clip(
    grads: base.ArrayTree, global_l2_norm_clip: ArrayLike, uniform: bool = True
) -> tuple[base.ArrayTree, base.ArrayTree]:
    """Clip each leaf of each example's gradient separately, and sum over the examples.

    Each leaf has its own limit. The squares of these limits add up to the square of the global
    limit.

    Args:
        grads: tree of gradients whose arrays have a leading batch axis with one entry per example.
        global_l2_norm_clip: maximum Euclidean norm of all leaves together.
        uniform: if True, all leaves have the same limit; if False, the squared limit of a leaf is
            proportional to the size of the leaf.

    Returns:
        Two trees. The first contains, for each leaf, the sum of the clipped gradients, without the
        batch axis. The second contains, for each leaf, the number of examples whose gradients were
        clipped.

    Raises:
        ValueError: the leaves have different batch sizes.

    >>> from toile import optim
    >>> grads = {"a": jnp.array([[3.0], [0.5]]), "b": jnp.array([[0.5], [0.5]])}
    >>> sums, counts = optim.per_example_layer_norm_clip(grads, 2.0**0.5)
    >>> sums["a"].round(3), counts["a"]
    (Array([1.5], dtype=float32), Array(1, dtype=int32))
    """
    _check_batched("per_example_layer_norm_clip", grads)
    leaves, structure = trees.flatten(grads)
    sizes = [1 if uniform else g[0].size for g in leaves]
    whole = sum(sizes)
    pairs = [
        per_example_global_norm_clip(g, global_l2_norm_clip * (n / whole) ** 0.5)
        for g, n in zip(leaves, sizes)
    ]
    totals, counts = zip(*pairs)
    return trees.unflatten(structure, totals), trees.unflatten(structure, counts)


_UNIT_AXES: dict[int, int | tuple[int, ...]] = {2: 0, 3: 0, 4: (0, 1, 2), 5: (0, 1, 2, 3)}


def unitwise_norm(x: ArrayLike, axis: int | tuple[int, ...] | None = None) -> Array:
    """Compute the Euclidean norm of each unit's weights, broadcast to the shape of the array.

    A unit is, for example, one output of a dense layer. If `axis` is None, the axes to reduce
    depend on the shape of the array. If at most one axis is longer than 1, the norm of the whole
    array is computed. Otherwise, arrays with 2 or 3 axes are reduced over the first axis, and
    arrays with 4 or 5 axes, such as convolution kernels, over all axes except the last.

    Args:
        x: array of weights or of their gradients.
        axis: axis or axes over which a unit's norm is computed; if None, the rule above applies.

    Returns:
        An array with the shape of `x`.

    Raises:
        ValueError: `axis` is None, and `x` has more than 5 axes, at least two of which are longer
            than 1.

    >>> from toile import optim
    >>> optim.unitwise_norm(jnp.array([[3.0, 1.0], [4.0, 0.0]]))
    Array([[5., 1.],
           [5., 1.]], dtype=float32)
    """
    if axis is None and jnp.squeeze(x).ndim > 1:
        if x.ndim not in _UNIT_AXES:
            raise ValueError(
                f"unitwise_norm: needed at most 5 axes, got shape {x.shape} (pass axis){here()}"
            )
        axis = _UNIT_AXES[x.ndim]
    square = jnp.sum(abs_sq(x), axis=axis, keepdims=True)
    return jnp.broadcast_to(jnp.sqrt(square), x.shape)


def unitwise_clip(
    g_norm: ArrayLike, max_norm: ArrayLike, grad: ArrayLike, div_eps: ArrayLike = 1e-6
) -> Array:
    """Scale down each unit's gradient if the gradient's norm exceeds a limit.

    Args:
        g_norm: norm of each unit's gradient, broadcast to the shape of `grad`.
        max_norm: maximum norm of each unit's gradient, broadcast to the shape of `grad`.
        grad: gradient.
        div_eps: lower bound for `g_norm` in the division.

    Returns:
        `grad` where `g_norm < max_norm`, and `grad * max_norm / g_norm` elsewhere.

    Raises:
        ValueError: the shapes differ.

    >>> from toile import optim
    >>> grad = jnp.array([3.0, 4.0])
    >>> optim.unitwise_clip(optim.unitwise_norm(grad), jnp.full(2, 2.5), grad)
    Array([1.5, 2. ], dtype=float32)
    """
    shapes = {jnp.shape(x) for x in (g_norm, max_norm, grad)}
    if len(shapes) > 1:
        raise ValueError(f"unitwise_clip: needed one shape, got {sorted(shapes)}{here()}")
    clipped = grad * (max_norm / jnp.maximum(g_norm, div_eps))
    return jnp.where(g_norm < max_norm, grad, clipped)


def adaptive_grad_clip(
    clipping: ArrayLike, eps: ArrayLike = 1e-3, axis: int | tuple[int, ...] | None = None
) -> base.GradientTransformation:
    """Limit each unit's gradient norm to a fraction of the norm of the unit's weights.

    The limit for a unit is `clipping * max(norm(weights), eps)`, where `unitwise_norm` computes the
    norms. A unit is, for example, one output of a dense layer. With this limit, networks without
    normalization layers can be trained with large batches (Brock et al., 2021).

    Args:
        clipping: maximum ratio of a unit's gradient norm to its weight norm; 0.01 is a typical
            value.
        eps: lower bound for the norm of the weights, so that weights that are zero can still
            change.
        axis: axis or axes over which a unit's norm is computed; if None, the rule of
            `unitwise_norm` applies.

    Returns:
        A gradient transformation whose `update` needs the parameters.

    >>> from toile import optim
    >>> tx, params = optim.adaptive_grad_clip(0.1), jnp.array([3.0, 4.0])
    >>> updates, state = tx.update(jnp.array([6.0, 8.0]), tx.init(params), params)
    >>> updates.round(3)
    Array([0.3, 0.4], dtype=float32)
    """

    def on_leaf(g, p):
        bound = clipping * jnp.maximum(unitwise_norm(p, axis=axis), eps)
        return unitwise_clip(unitwise_norm(g, axis=axis), bound, g)

    return base.leafwise(on_leaf, needs_params=True)
