"""T5's task: sentinels replace spans of a text, and the model must predict the spans.

    inputs   Thank you <0> me to your party <1> week.
    targets  <0> for inviting <1> last

Sentinels are the last ids of the vocabulary, counted down. The length of the text determines the
number of spans and of hidden tokens, so that all examples have the same shape.
"""

import numpy as np

from toile.training.text import END


def counts(length: int, density: float, mean_span: float) -> tuple[int, int]:
    """Return how many tokens of a text are hidden, and in how many spans."""
    hidden = min(max(round(length * density), 1), length - 1)
    return hidden, min(max(round(hidden / mean_span), 1), hidden, length - hidden)


def lengths(length: int, density: float, mean_span: float) -> tuple[int, int]:
    """Return the lengths of inputs and targets for `length` tokens of text, ends included."""
    hidden, spans = counts(length, density, mean_span)
    return length - hidden + spans + 1, hidden + spans + 1


def text_length(inputs_length: int, density: float, mean_span: float) -> int:
    """Return how many tokens of text fill inputs of a given length."""
    length = inputs_length
    while lengths(length + 1, density, mean_span)[0] <= inputs_length:
        length += 1
    return length


def parts(rng, total: int, count: int) -> np.ndarray:
    """Divide `total` into `count` random parts of at least 1; all divisions are equally likely."""
    cuts = np.sort(rng.choice(total - 1, count - 1, replace=False)) + 1
    return np.diff(np.concatenate([[0], cuts, [total]]))


def corrupted(rng, tokens, vocabulary: int, density: float, mean_span: float):
    """Return the inputs and targets for one text."""
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
    """Return the inputs and targets for a batch of `tokens`."""
    pairs = [corrupted(rng, tokens, **options) for tokens in batch["tokens"]]
    inputs, targets = (np.stack(xs).astype(np.int32) for xs in zip(*pairs))
    return {"inputs": inputs, "targets": targets}
