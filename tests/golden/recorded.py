"""Answers that tests ask of jax while they run, kept so that most runs need not ask again.

`Record("optax").answer(key, ask)` is what `ask()` gave when it was recorded under `key`, a text
that holds everything the answer depends on: a changed case is asked anew. So is one case in 11 on
each day, and all with TOILE_TEST_ALL=1. `python -m tests.golden.recorded optax` runs the tests
that ask, leaves none of them out, records what is new and drops what is gone.

A record belongs to one version of jax, which its file names: under another version everything is
asked. The summary of a run says how often jax was asked, and for how many of these answers there
is no record.
"""

import ast
import functools
import hashlib
import importlib.metadata
import inspect
import json
import os
import pathlib
import sys
import zlib

import numpy as np

from tests import golden
from tests.golden import packing

ROOT = pathlib.Path(__file__).parents[2]
VARIABLE = "TOILE_TEST_RECORD"  # the name of the record that this run makes
DROPS = "TOILE_TEST_RECORD_DROPS"  # set where the run asks everything that the record is to hold


def _version():
    """The version of jax without its last part; (0, 0) where it is not installed."""
    try:
        return tuple(int(n) for n in importlib.metadata.version("jax").split(".")[:2])
    except importlib.metadata.PackageNotFoundError:
        return 0, 0


VERSION = _version()

# The files of tests that ask each record.
FILES = {
    "functions": ["tests/scipy", "tests/nn", "tests/test_image.py", "tests/test_ops.py"],
    "corners": [f"tests/test_{name}.py" for name in (
        "jax_corners", "jax_corners_of_packages", "corners_lax", "corners_numpy", "corners_random",
        "corners_rules", "custom_corners", "transforms", "experimental", "key_reuse", "donation",
        "boundaries")],
    "core": ["tests/core/test_functional_layers.py"],
    "packages": ["tests/interop/test_packages.py"],
    "linen": [f"tests/linen/test_{name}.py" for name in (
        "flax_corners", "fp8", "linear", "others", "recurrent")],
    "lax": ["tests/lax"],
    "random": ["tests/random"],
    "primitives": ["tests/primitives"],
    "numpy": ["tests/numpy", "tests/test_newer_names.py"],
    "optax": ["tests/interop/test_optax.py"],
    "zoo": ["tests/test_zoo.py"],
    "sparse": ["tests/test_sparse.py"],
    "refs": ["tests/test_refs.py"],
    "shard_map_specs": ["tests/parallel/test_shard_map_specs.py"],
}

# One case in so many is asked on each day. It has no factor in common with the numbers of
# tests/sampling.py, so that cases of tests that run on some days are all asked on some of them.
ONE_IN = 11


class Record:
    """The answers of one file, by the digests of their keys."""

    all: list["Record"] = []

    def __init__(self, name, every_version=False):
        self.all.append(self)
        self.name = name
        version = "" if every_version else f"-{VERSION[0]}.{VERSION[1]}"
        self.file = golden.FOLDER / f"{name}{version}.bin"
        self.records = os.environ.get(VARIABLE) == name
        self.asked = {}  # what this run asked, as forms and bytes by digest
        self.counts = {"sampled": 0, "missing": 0}  # of answers that jax was asked for
        self._test = self._number = None

    @functools.cached_property
    def on_file(self):
        """All that is recorded, as forms and bytes by digest."""
        if not self.file.exists():
            return {}
        data = self.file.read_bytes()
        size = int.from_bytes(data[:8], "little")
        index = json.loads(zlib.decompress(data[8 : 8 + size]))
        block = memoryview(zlib.decompress(data[8 + size :]))
        return {digest: (form, block[start:stop]) for digest, (form, start, stop) in index.items()}

    def save(self):
        """Write what this run asked."""
        self.__dict__.pop("on_file", None)  # another run may have written it since
        asked = self.asked if DROPS in os.environ else {**self.on_file, **self.asked}
        block, index = bytearray(), {}
        for digest, (form, data) in sorted(asked.items()):
            index[digest] = form, len(block), len(block) + len(data)
            block += data
        head = zlib.compress(json.dumps(index, separators=(",", ":")).encode(), 9)
        body = zlib.compress(bytes(block), 9)
        self.file.write_bytes(len(head).to_bytes(8, "little") + head + body)

    def known(self, key, near=None):
        """What is recorded under a key; None if nothing is, or if jax is asked today."""
        digest = digest_of(key)
        try:
            found = packing.unpack(*self.on_file[digest], near)
        except LookupError:
            self.counts["missing"] += 1
            return None
        if self.records:
            self.asked[digest] = self.on_file[digest]
        elif golden.is_sampled(digest, ONE_IN):
            self.counts["sampled"] += 1
            return None
        return found

    def add(self, key, answer, near=None):
        """Keep what jax answered, if this run records; gives it as `known` does."""
        try:
            form, data = packing.pack(answer, near)
        except packing.Unrecordable as error:
            if self.records:
                print(f"cannot record {error}: {key[:200]}", file=sys.stderr)
            return answer
        if self.records:
            self.asked[digest_of(key)] = form, data
        return packing.unpack(form, data, near)

    def answer(self, key, ask, near=None):
        """What is recorded under a key, or what `ask()` returns.

        `near` is an array that the answer is expected to be close to, which is toile's: the record
        holds the difference, and jax is asked where toile's differs from what it was then
        (tests/golden/packing.py). For answers that are large, or that depend on the machine."""
        found = self.known(key, near)
        return self.add(key, ask(), near) if found is None else found

    def in_test(self, ask, *inputs, near=None):
        """What is recorded for this place of the test that runs, or what `ask()` returns.

        The key is the name of the test, the text of its file and of the modules under tests/ that
        the file imports, and `inputs`, which need not be given where the text determines them."""
        test = os.environ["PYTEST_CURRENT_TEST"]
        self._number = self._number + 1 if test == self._test else 0
        self._test = test
        text = text_of_file(ROOT / test.partition("::")[0])
        return self.answer(f"{test} {self._number} {text} {text_of(*inputs)}", ask, near)


CORNERS = Record("corners")  # of tests in several files


def attempt(run):
    """What `run` returns, or the exception it raises."""
    try:
        return run()
    except Exception as error:
        return error


def save():
    """Write what this run asked, at its end."""
    for record in Record.all:
        if record.records:
            record.save()


def counts():
    """How often this process asked jax, {name of a record: {reason: number}}."""
    return {record.name: record.counts for record in Record.all if any(record.counts.values())}


def summary(found):
    """The line that says how often jax was asked, by the `counts` of all processes."""
    sampled, missing = 0, {}
    for name, each in (pair for counts in found for pair in sorted(counts.items())):
        sampled += each["sampled"]
        missing[name] = missing.get(name, 0) + each["missing"]
    missing = {name: number for name, number in missing.items() if number}
    line = f"jax was asked for {sampled:,} answers that are on record, today's sample"
    if missing:
        line += (f", and for {sum(missing.values()):,} that are not "
                 f"(python -m tests.golden.recorded {' '.join(missing)})")
    return line


def digest_of(key):
    return hashlib.sha256(key.encode()).hexdigest()[:20]


def text_of(*parts):
    """The part of a key that functions, arrays and other values make up."""
    words = []
    for part in parts:
        if inspect.isroutine(part) or inspect.isclass(part):
            words.append(_source_of(part))
        elif isinstance(part, (np.ndarray, np.generic)):
            words.append(f"{part.dtype}{part.shape}{part.tobytes().hex()}")
        elif type(part) in (list, tuple):
            words.append(f"{type(part).__name__}({text_of(*part)})")
        else:
            words.append(repr(part))
    return "|".join(words)


def _source_of(part):
    try:
        return "".join(inspect.getsource(part).split())
    except (OSError, TypeError):  # it is not written in Python
        return f"{part.__module__}.{part.__qualname__}"


@functools.cache
def text_of_file(path):
    """A digest of the code of a file and of the modules under tests/ that it imports."""
    found, waiting = {}, [path]
    while waiting:
        path = waiting.pop()
        if path not in found and path.exists():
            found[path], imported = _code_of(path)
            waiting += imported
    return digest_of("".join(found[path] for path in sorted(found)))


@functools.cache
def _code_of(path):
    """The code of a file, without comments, and the files under tests/ that it imports."""
    tree = ast.parse(path.read_text())
    return ast.dump(tree), [file for node in ast.walk(tree) for file in _imported(node)]


def _imported(node):
    """The files under tests/ that a statement may import."""
    names = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
        names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [(ROOT / name.replace(".", "/")).with_suffix(".py") for name in names
            if name.startswith("tests.") and not name.startswith("tests.golden")]


def main(names):
    """Run the tests that ask, and write their records."""
    import subprocess

    for name in names:
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", *FILES[name]]
        subprocess.run(command, env={**os.environ, VARIABLE: name, DROPS: "1"}, check=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(FILES))
