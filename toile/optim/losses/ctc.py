r"""Connectionist temporal classification, a loss for labels that are not aligned with frames.

For each frame and each `n`, the forward recursion computes the log probabilities of two events. In
both events, the first `n` labels have been emitted; the frame is a blank in the first event
(`blank`) and the `n`-th label in the second (`label`). A blank may be skipped between two different
labels, but not between equal labels. Forbidden transitions have the log probability `log_epsilon`,
which stands for `log(0)`.
"""

from __future__ import annotations

from typing import Any

import toile.numpy as jnp
from toile import lax, nn
from toile.engine.source import here
from toile.optim.base import Array, ArrayLike
from toile.optim.losses.checks import check_rank, check_same_shape

__all__ = ["ctc_loss", "ctc_loss_with_forward_probs"]


def ctc_loss(
    logits: ArrayLike, logit_paddings: ArrayLike, labels: ArrayLike, label_paddings: ArrayLike, *,
    blank_id: int = 0, log_epsilon: ArrayLike = -1e5,
) -> Array:
    """Compute the negative log likelihood of label sequences that are not aligned with frames.

    Connectionist temporal classification (CTC) sums over all ways to assign the labels to the
    frames, with repetitions and blanks (Graves et al., 2006). CTC is used in speech recognition. If
    a sequence has more labels than its frames can hold, the loss is very large, about
    `-log_epsilon`.

    Args:
        logits: unnormalized scores of the classes for each frame, of shape (batch, frames,
            classes).
        logit_paddings: array of shape (batch, frames), 1.0 for padding frames and 0.0 for all other
            frames.
        labels: integer classes, of shape (batch, labels), padded on the right.
        label_paddings: array of shape (batch, labels), 1.0 for padding labels and 0.0 for all other
            labels.
        blank_id: class that means "no label".
        log_epsilon: number used for `log(0)`.

    Returns:
        The loss of each sequence, of shape (batch,).

    Raises:
        ValueError: an array has the wrong rank, or the shapes do not match.

    >>> from toile import optim
    >>> logits, labels = jnp.zeros((1, 2, 2)), jnp.array([[1]])
    >>> loss = optim.ctc_loss(logits, jnp.zeros((1, 2)), labels, jnp.zeros((1, 1)))
    >>> loss.round(3)  # three of four paths: -log(3/4)
    Array([0.288], dtype=float32)
    """
    return ctc_loss_with_forward_probs(
        logits, logit_paddings, labels, label_paddings, blank_id=blank_id, log_epsilon=log_epsilon
    )[0]


def ctc_loss_with_forward_probs(
    logits: ArrayLike, logit_paddings: ArrayLike, labels: ArrayLike, label_paddings: ArrayLike, *,
    blank_id: int = 0, log_epsilon: ArrayLike = -1e5,
) -> tuple[Array, Array, Array]:
    """Compute `ctc_loss` and the log probabilities from its forward recursion.

    Args:
        logits: unnormalized scores of the classes for each frame, of shape (batch, frames,
            classes).
        logit_paddings: array of shape (batch, frames), 1.0 for padding frames and 0.0 for all other
            frames.
        labels: integer classes, of shape (batch, labels), padded on the right.
        label_paddings: array of shape (batch, labels), 1.0 for padding labels and 0.0 for all other
            labels.
        blank_id: class that means "no label".
        log_epsilon: number used for `log(0)`.

    Returns:
        Three arrays. The first contains the loss of each sequence and has shape (batch,). The other
        two contain, for each frame and each `n`, the log probability that the first `n` labels have
        been emitted. In the second array, of shape (frames, batch, labels + 1), the last emitted
        symbol is a blank; `n` starts at 0. In the third array, of shape (frames, batch, labels),
        the last emitted symbol is the `n`-th label; `n` starts at 1. There are two exceptions: in
        padding frames, the values of the previous frame are repeated, and in the last frame, the
        second array contains the log probability for both cases together (blank or label).

    Raises:
        ValueError: an array has the wrong rank, or the shapes do not match.

    >>> from toile import optim
    >>> logits, labels = jnp.zeros((1, 2, 2)), jnp.array([[1]])
    >>> loss, blank, label = optim.ctc_loss_with_forward_probs(
    ...     logits, jnp.zeros((1, 2)), labels, jnp.zeros((1, 1))
    ... )
    >>> loss.round(3), blank.shape, label.shape
    (Array([0.288], dtype=float32), (2, 1, 2), (2, 1, 1))
    """
    _check(logits, logit_paddings, labels, label_paddings)
    batch, _, classes = logits.shape
    longest = labels.shape[1]
    logp = nn.log_softmax(logits)
    logp_blank = jnp.transpose(logp[:, :, blank_id : blank_id + 1], (1, 0, 2))  # [T, B, 1]
    chosen = nn.one_hot(labels, num_classes=classes)  # [B, N, K]
    logp_label = jnp.transpose(jnp.einsum("btk,bnk->btn", logp, chosen), (1, 0, 2))  # [T, B, N]
    # 1 where the next label is the same one
    repeated = (labels[:, :-1] == labels[:, 1:]).astype(jnp.float32)
    repeated = jnp.pad(repeated, ((0, 0), (0, 1)))

    def step(alphas: Any, frame: Any) -> Any:
        blank, label = alphas
        on_label, on_blank, pad = frame
        ready = _merge(blank, label + log_epsilon * repeated)  # from where a new label may come
        new_label = jnp.logaddexp(ready[:, :-1] + on_label, label + on_label)
        new_blank = _merge(ready + on_blank, label + on_blank + log_epsilon * (1.0 - repeated))
        pad = pad.reshape((batch, 1))
        kept = (
            pad * blank + (1.0 - pad) * new_blank,
            pad * label + (1.0 - pad) * new_label,
        )
        return kept, kept

    blank = (jnp.ones((batch, longest + 1)) * log_epsilon).at[:, 0].set(0.0)
    label = jnp.ones((batch, longest)) * log_epsilon
    frames = (logp_label, logp_blank, logit_paddings.transpose((1, 0)))
    _, (blanks, emitted) = lax.scan(step, (blank, label), frames)
    last = _merge(blanks[-1], emitted[-1])  # the end may follow a label as well as a blank
    blanks = blanks.at[-1].set(last)
    lengths = longest - jnp.sum(label_paddings, axis=1).astype(jnp.int32)
    at_length = nn.one_hot(lengths, num_classes=longest + 1)
    return -jnp.einsum("bn,bn->b", last, at_length), blanks, emitted


def _merge(blank: Any, label: Any) -> Any:
    """Add the probabilities of `n` labels that end with a blank or with a label, for `n >= 1`."""
    return jnp.concatenate([blank[:, :1], jnp.logaddexp(blank[:, 1:], label)], axis=-1)


def _check(logits: Any, logit_paddings: Any, labels: Any, label_paddings: Any) -> None:
    check_rank("ctc_loss", 3, logits=logits)
    check_rank("ctc_loss", 2, labels=labels)
    check_same_shape("ctc_loss", labels=labels, label_paddings=label_paddings)
    check_same_shape("ctc_loss", logits=logits[..., 0], logit_paddings=logit_paddings)
    if labels.shape[0] != logits.shape[0]:
        raise ValueError(
            f"ctc_loss: needed labels with batch size {logits.shape[0]}, got {labels.shape[0]}"
            f"{here()}"
        )
