"""Gradients held within bounds: of each element, of each leaf, of all leaves together."""

from __future__ import annotations

from toile import lax
from toile import numpy as jnp
from toile import tree as trees
from toile.api import vmap
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
    """Each element held within [-max_delta, max_delta]."""
    return base.leafwise(lambda g: jnp.clip(g, -max_delta, max_delta))


def clip_by_block_rms(threshold: ArrayLike) -> base.GradientTransformation:
    """Each leaf scaled down so that its root mean square is at most threshold."""

    def on_leaf(u):
        return u / jnp.maximum(1.0, jnp.sqrt(jnp.mean(abs_sq(u))) / threshold)

    return base.leafwise(on_leaf)


def clip_by_global_norm(max_norm: ArrayLike) -> base.GradientTransformation:
    """All leaves scaled down together so that their norm is at most max_norm.

    >>> import toile.numpy as jnp
    >>> tx = clip_by_global_norm(1.0)
    >>> updates, _ = tx.update(jnp.array([3.0, 4.0]), tx.init(jnp.zeros(2)))
    >>> print(updates)
    [0.6 0.8]
    """

    def update_fn(updates, state, params=None):
        norm = tree.norm(updates)
        within = jnp.squeeze(norm < max_norm)
        if within.ndim:
            raise ValueError(f"clip_by_global_norm: needed a scalar max_norm, got {max_norm!r}")
        scaled = lambda g: lax.select(within, g, (g / norm.astype(g.dtype)) * max_norm)
        return trees.map(scaled, updates), state

    return base.GradientTransformation(base.init_empty_state, update_fn)


def _check_batched(who: str, grads: base.ArrayTree) -> None:
    shapes = [jnp.shape(g) for g in trees.leaves(grads)]
    if not all(shape[:1] and shape[0] == shapes[0][0] for shape in shapes):
        raise ValueError(
            f"{who}: needed a leading axis of one size in every gradient (that of the examples), "
            f"got shapes {shapes}"
        )


def per_example_global_norm_clip(
    grads: base.ArrayTree, l2_norm_clip: ArrayLike
) -> tuple[base.ArrayTree, Array]:
    """The sum over examples (axis 0) of gradients clipped each by its global norm.

    Also how many of them were clipped.
    """
    _check_batched("per_example_global_norm_clip", grads)
    norms = vmap(tree.norm)(grads)
    factors = jnp.nan_to_num(jnp.minimum(l2_norm_clip / norms, 1.0), nan=1.0)
    total = trees.map(lambda g: jnp.tensordot(factors, g, axes=1), grads)
    return total, jnp.sum(factors < 1.0)


def per_example_layer_norm_clip(
    grads: base.ArrayTree, global_l2_norm_clip: ArrayLike, uniform: bool = True
) -> tuple[base.ArrayTree, base.ArrayTree]:
    """The same for each leaf by its own norm; the bounds' squares add up to the global one.

    The bound is shared equally, or by the leaves' sizes if uniform is False.
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
    """The norm of the weights of each unit, in the shape of x.

    Without axis: all of a vector, columns of a matrix, everything but the last axis of a kernel.
    """
    if axis is None and jnp.squeeze(x).ndim > 1:
        if x.ndim not in _UNIT_AXES:
            raise ValueError(
                f"unitwise_norm: needed at most 5 axes, got shape {x.shape} (say which axis)"
            )
        axis = _UNIT_AXES[x.ndim]
    square = jnp.sum(abs_sq(x), axis=axis, keepdims=True)
    return jnp.broadcast_to(jnp.sqrt(square), x.shape)


def unitwise_clip(
    g_norm: ArrayLike, max_norm: ArrayLike, grad: ArrayLike, div_eps: ArrayLike = 1e-6
) -> Array:
    """The gradient scaled down where its norm exceeds max_norm; all three have one shape."""
    shapes = {jnp.shape(x) for x in (g_norm, max_norm, grad)}
    if len(shapes) > 1:
        raise ValueError(f"unitwise_clip: needed one shape, got {sorted(shapes)}")
    clipped = grad * (max_norm / jnp.maximum(g_norm, div_eps))
    return jnp.where(g_norm < max_norm, grad, clipped)


def adaptive_grad_clip(
    clipping: ArrayLike, eps: ArrayLike = 1e-3, axis: int | tuple[int, ...] | None = None
) -> base.GradientTransformation:
    """Each unit's gradient scaled down to at most clipping times the norm of its weights."""

    def on_leaf(g, p):
        bound = clipping * jnp.maximum(unitwise_norm(p, axis=axis), eps)
        return unitwise_clip(unitwise_norm(g, axis=axis), bound, g)

    return base.leafwise(on_leaf, needs_params=True)
