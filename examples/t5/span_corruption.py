"""T5's task: spans of a text are replaced by sentinels, and what was there is the target.

    inputs   Thank you <0> me to your party <1> week.
    targets  <0> for inviting <1> last

Sentinels are the last numbers of the vocabulary, counted downwards. For a given length of text the
number of spans and of hidden tokens is fixed, so that all examples have one shape.
"""

import numpy as np

from toile.training.text import END


def counts(length: int, density: float, mean_span: float) -> tuple[int, int]:
    """How many tokens of a text are hidden, in how many spans."""
    hidden = min(max(round(length * density), 1), length - 1)
    return hidden, min(max(round(hidden / mean_span), 1), hidden, length - hidden)


def lengths(length: int, density: float, mean_span: float) -> tuple[int, int]:
    """The lengths of inputs and targets that `length` tokens of text make, ends included."""
    hidden, spans = counts(length, density, mean_span)
    return length - hidden + spans + 1, hidden + spans + 1


def text_length(inputs_length: int, density: float, mean_span: float) -> int:
    """How many tokens of text fill inputs of so many tokens."""
    length = inputs_length
    while lengths(length + 1, density, mean_span)[0] <= inputs_length:
        length += 1
    return length


def parts(rng, total: int, count: int) -> np.ndarray:
    """`total` cut into `count` random parts of at least 1, every way equally likely."""
    cuts = np.sort(rng.choice(total - 1, count - 1, replace=False)) + 1
    return np.diff(np.concatenate([[0], cuts, [total]]))


def corrupted(rng, tokens, vocabulary: int, density: float, mean_span: float):
    """The inputs and targets of one text."""
    hidden, spans = counts(len(tokens), density, mean_span)
    shown = parts(rng, len(tokens) - hidden, spans)
    gone = parts(rng, hidden, spans)
    inputs, targets, at = [], [], 0
    for i, (keep, hide) in enumerate(zip(shown, gone)):
        sentinel = [vocabulary - 1 - i]
        inputs += [tokens[at : at + keep], sentinel]
        targets += [sentinel, tokens[at + keep : at + keep + hide]]
        at += keep + hide
    return np.concatenate([*inputs, [END]]), np.concatenate([*targets, [END]])


def corrupt(batch, rng, **options):
    """The inputs and targets of a batch of `tokens`."""
    pairs = [corrupted(rng, tokens, **options) for tokens in batch["tokens"]]
    inputs, targets = (np.stack(xs).astype(np.int32) for xs in zip(*pairs))
    return {"inputs": inputs, "targets": targets}
