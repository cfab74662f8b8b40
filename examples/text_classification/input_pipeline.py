"""Labeled sentences: generated reviews, or the film reviews of glue/sst2.

A batch is a dict of `tokens` (int32 [batch, length], 0 for padding) and `label` (int32). Words
that occur in fewer than `config.min_count` of the training sentences are UNKNOWN.
"""

import collections
import re
from collections.abc import Iterable, Sequence

import numpy as np

from toile.training import datasets
from toile.training.loader import Loader

from .models import PAD, UNKNOWN

WORD = re.compile(r"[a-z]+(?:'[a-z]+)?|[0-9]+|[^\sa-z0-9]")

PARTS = """plot story acting cast music score ending opening dialogue script camera pacing
    direction humour editing lighting hero villain finale premise""".split()
GOOD = """brilliant charming gripping clever moving fresh funny elegant warm superb witty honest
    vivid thrilling tender inspired graceful bold rich delightful""".split()
BAD = """dull clumsy tedious shallow stale bland cold messy awkward lazy hollow predictable noisy
    pompous tiresome grating lifeless confused cheap dreary""".split()
PLAIN = """long short french quiet recent british modern japanese early late silent local""".split()
LIKE, DISLIKE = ("loved enjoyed admired praised".split(), "hated regretted resented mocked".split())
ADVERBS = ["very", "really", "truly", "rather", "quite", ""]
ASIDES = [
    "we saw it on a {day}", "it runs for {n} minutes", "it is a {plain} film",
    "the {plain} version was shown", "my friends came along", "the {part} is the subject here",
]  # fmt: skip
DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()


def clause(rng, good: bool) -> str:
    """Generate a statement about a part of the film; one in five statements negates the
    opposite."""
    pick = lambda words: words[rng.integers(len(words))]
    denied = rng.random() < 0.2
    pleased = good != denied
    part, adverb = pick(PARTS), pick(ADVERBS)
    if rng.random() < 0.7:
        word = pick(GOOD if pleased else BAD)
        no = pick(["not", "never", "hardly"]) if denied else ""
        return f"the {part} was {no} {adverb} {word}"
    verb = pick(LIKE if pleased else DISLIKE)
    return f"nobody {verb} the {part}" if denied else f"everybody {adverb} {verb} the {part}"


def review(rng) -> tuple[str, int]:
    """Generate a review and its label, 1 if its main clause is positive."""
    good = bool(rng.random() < 0.5)
    main, kind = clause(rng, good), rng.random()
    if kind < 0.4:
        text = main
    elif kind < 0.65:
        text = f"{main} and {clause(rng, good)}"
    else:
        conceded = clause(rng, not good)
        forms = ["although {c} , {m}", "{m} , although {c}", "{c} but {m}", "{m} even if {c}"]
        text = forms[rng.integers(4)].format(c=conceded, m=main)
    if rng.random() < 0.5:
        aside = ASIDES[rng.integers(len(ASIDES))].format(
            day=DAYS[rng.integers(7)], n=rng.integers(80, 180),
            part=PARTS[rng.integers(len(PARTS))], plain=PLAIN[rng.integers(len(PLAIN))],
        )  # fmt: skip
        text = f"{text} . {aside}" if rng.random() < 0.5 else f"{aside} . {text}"
    return " ".join(f"{text} .".split()), int(good)


def generated_reviews(train: int, held_out: int) -> tuple[list, list]:
    """Generate two lists of (review, label) pairs without duplicates, the same in every run."""
    rng = np.random.default_rng(0)
    found: dict[str, int] = {}
    while len(found) < train + held_out:
        text, label = review(rng)
        found[text] = label
    pairs = list(found.items())
    return pairs[:train], pairs[train:]


def sst2() -> tuple[list, list]:
    """Return 67,349 phrases of film reviews and 872 held-out sentences, from glue/sst2."""
    sources = datasets.tfds_sources("glue/sst2", ["train", "validation"])
    train, held_out = (
        [(bytes(x["sentence"]).decode(), int(x["label"])) for x in source] for source in sources
    )
    return train, held_out


def words_of(text: str) -> list[str]:
    """Split a text into lower-case words, numbers and punctuation.

    >>> words_of("It's 90 minutes long.")
    ["it's", '90', 'minutes', 'long', '.']
    """
    return WORD.findall(text.lower())


class Vocabulary:
    """Number the words from 2 on, the most frequent first; 0 is padding, and 1 is UNKNOWN."""

    def __init__(self, texts: Iterable[str], min_count: int):
        counts = collections.Counter(word for text in texts for word in set(words_of(text)))
        kept = [word for word, count in counts.most_common() if count >= min_count]
        self.words = ["<pad>", "<unknown>", *sorted(kept, key=lambda w: (-counts[w], w))]
        self.numbers = {word: number for number, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, texts: Sequence[str], length: int) -> np.ndarray:
        """Encode texts as tokens [texts, length]; longer texts are cut."""
        rows = np.full((len(texts), length), PAD, np.int32)
        for row, text in zip(rows, texts):
            tokens = [self.numbers.get(word, UNKNOWN) for word in words_of(text)[:length]]
            row[: len(tokens)] = tokens
        return rows


def arrays(config) -> tuple[Vocabulary, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the vocabulary, and the tokens and labels of the training and held-out data."""
    if config.dataset == "generated":
        train, held_out = generated_reviews(config.train_examples, config.held_out)
    elif config.dataset == "tfds":
        train, held_out = sst2()
    else:
        raise ValueError(f"config.dataset: needed 'generated' or 'tfds', got {config.dataset!r}")
    vocabulary = Vocabulary((text for text, _ in train), config.min_count)

    def encoded(pairs):
        texts, labels = zip(*pairs)
        tokens = vocabulary.encode(texts, config.length)
        return {"tokens": tokens, "label": np.array(labels, np.int32)}

    return vocabulary, encoded(train), encoded(held_out)


def loaders(config, key) -> tuple[Vocabulary, Loader, Loader]:
    """Return the vocabulary, and loaders of shuffled training batches and of held-out sentences."""
    vocabulary, train, held_out = arrays(config)
    return (
        vocabulary,
        Loader(train, config.batch_size, key=key),
        Loader(held_out, config.eval_batch_size, last="pad"),
    )
