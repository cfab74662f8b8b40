"""Answers that tests ask of jax while they run, kept so that most runs need not ask again.

`Record("optax").answer(key, ask)` is what `ask()` gave when it was recorded under `key`, a text
that holds everything the answer depends on: a changed case is asked anew. So is one case in 11 on
each day, and all with TOILE_TEST_ALL=1. `python -m tests.golden.recorded optax` runs the tests
that ask, leaves none of them out, records what is new and drops what is gone.
"""

import hashlib
import inspect
import os
import sys

import numpy as np

from tests import golden

VARIABLE = "TOILE_TEST_RECORD"  # the name of the record that this run makes

# The files of tests that ask each record.
FILES = {
    "optax": ["tests/interop/test_optax.py"],
    "shard_map_specs": ["tests/parallel/test_shard_map_specs.py"],
}

# One case in so many is asked on each day. It has no factor in common with the numbers of
# tests/sampling.py, so that cases of tests that run on some days are all asked on some of them.
ONE_IN = 11


class Record:
    """The answers of one file, {digest of a key: arrays}."""

    all: list["Record"] = []

    def __init__(self, name):
        self.all.append(self)
        self.name, self.file = name, f"{name}.bin"
        self.records = os.environ.get(VARIABLE) == name
        self.asked = {}
        self._known = None

    def known(self, key):
        """The arrays recorded under a key; None if there are none, or if jax is asked today."""
        if self._known is None:
            self._known = golden.load(self.file)
        digest = digest_of(key)
        if not self.records and golden.is_sampled(digest, ONE_IN):
            return None
        found = self._known.get(digest)
        if found is not None:
            self.asked[digest] = found
        return found and found["answer"]

    def add(self, key, answer):
        """Keep what jax answered, if this run records; gives it as `known` does."""
        leaves = [golden.Leaf(np.asarray(x), bool(getattr(x, "weak_type", False))) for x in answer]
        if self.records:
            self.asked[digest_of(key)] = {"answer": leaves}
        return leaves

    def answer(self, key, ask):
        """The arrays recorded under a key, or those of `ask()`."""
        found = self.known(key)
        return self.add(key, ask()) if found is None else found


def save():
    """Write what this run asked, at its end."""
    for record in Record.all:
        if record.records:
            golden.save(record.file, record.asked)



def digest_of(key):
    return hashlib.sha256(key.encode()).hexdigest()[:20]


def text_of(*parts):
    """The part of a key that functions, arrays and other values make up."""
    words = []
    for part in parts:
        if inspect.isroutine(part) or inspect.isclass(part):
            words.append("".join(inspect.getsource(part).split()))
        elif isinstance(part, (np.ndarray, np.generic)):
            words.append(f"{part.dtype}{part.shape}{part.tobytes().hex()}")
        else:
            words.append(repr(part))
    return "|".join(words)


def main(names):
    """Run the tests that ask, and write their records."""
    import subprocess

    for name in names:
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", *FILES[name]]
        subprocess.run(command, env={**os.environ, VARIABLE: name}, check=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(FILES))
