"""Generated additions as text: the question is "7+358" and the answer "365".

Each sum of a number below 100 and a number of up to `max_digits` digits appears once. Some sums,
chosen by a random key, are held out from training. Characters become one-hot rows.
"""

import numpy as np

import toile
from toile import random
from toile.training.loader import Loader

PADDING, END = 0, 1
CHARACTERS = "0123456789+="


class Additions:
    """Sums as strings and as one-hot arrays, padded to the length of the longest."""

    def __init__(self, max_digits: int = 3, smallest: int = 0, reverse: bool = True):
        """Store the options; with `reverse`, questions are read from the last character."""
        self.max_digits, self.smallest, self.reverse = max_digits, smallest, reverse
        self.ids = {character: 2 + i for i, character in enumerate(CHARACTERS)}
        self.size = 2 + len(CHARACTERS)
        most = 10**max_digits - 1
        self.largest = (min(99, most), most)
        self.question_length = len(self.question(*self.largest)) + 1  # plus END
        self.answer_length = len(self.answer(*self.largest)) + 1

    def question(self, a: int, b: int) -> str:
        """Return the text that the encoder reads."""
        return f"{a}+{b}"

    def answer(self, a: int, b: int) -> str:
        """Return the text that the decoder writes, after an initial "="."""
        return f"={a + b}"

    def encode(self, text: str, length: int) -> np.ndarray:
        """Encode a text, END and padding as one-hot rows [length, size]."""
        ids = [*(self.ids[character] for character in text), END]
        ids += [PADDING] * (length - len(ids))
        return np.eye(self.size, dtype=np.float32)[ids]

    def decode(self, rows: np.ndarray) -> str:
        """Return the text before END."""
        ids = np.asarray(rows).argmax(axis=-1).tolist()
        ids = ids[: ids.index(END)] if END in ids else ids
        return "".join(CHARACTERS[i - 2] if i >= 2 else "?" for i in ids)

    def batch(self, numbers: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Encode pairs of numbers as questions and answers; other entries (a mask) stay."""
        pairs = list(zip(numbers["a"].tolist(), numbers["b"].tolist(), strict=True))
        step = -1 if self.reverse else 1
        asked = [self.encode(self.question(*p)[::step], self.question_length) for p in pairs]
        answers = [self.encode(self.answer(*p), self.answer_length) for p in pairs]
        return {**numbers, "question": np.stack(asked), "answer": np.stack(answers)}

    def all_pairs(self) -> np.ndarray:
        """Return each sum once, as int32[n, 2] with the smaller number first, as in Flax's
        example."""
        ranges = (np.arange(self.smallest, most + 1) for most in self.largest)
        a, b = np.meshgrid(*ranges, indexing="ij")
        pairs = np.stack([a.ravel(), b.ravel()], axis=1).astype(np.int32)
        return pairs[pairs[:, 0] <= pairs[:, 1]]


def loaders(config, key) -> tuple[Additions, Loader, Loader]:
    """Return the task, a loader of shuffled training batches, and one of held-out sums.

    Under mpirun, each process gets its part of every training batch, and all held-out sums.
    """
    size, rest = divmod(config.batch_size, toile.process_count())
    if rest:
        raise ValueError(f"config.batch_size: needed a multiple of {toile.process_count()}, the "
                         f"number of processes, got {config.batch_size}")
    task = Additions(config.max_digits, config.smallest, config.reverse)
    split_key, order_key = random.split(key)
    pairs = np.asarray(random.permutation(split_key, task.all_pairs()))
    held_out, train = np.split(pairs, [config.held_out])
    if config.both_orders:  # held-out sums occur in neither order in the training data
        train = np.concatenate([train, train[train[:, 0] != train[:, 1], ::-1]])

    def make(rows, size, **options):
        source = {"a": rows[:, 0], "b": rows[:, 1]}
        return Loader(source, size, transform=task.batch, **options)

    return (
        task,
        make(train, size, key=order_key),
        make(held_out, config.eval_batch_size, last="pad", process_index=0, process_count=1),
    )
