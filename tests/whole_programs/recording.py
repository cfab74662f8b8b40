"""What jax answers to each program, kept in `tests/golden`, so that most runs need not compile it.

A program is recorded under the hash of its text: changing it makes the tests ask jax again.
`python -m tests.whole_programs.recording` records what is missing and drops what is gone.
"""

import hashlib
import importlib
import inspect
import json
import pathlib
import types
from dataclasses import dataclass

import numpy as np

from tests.whole_programs import (  # noqa: F401
    controlling,
    corners,
    differentiation,
    inference,
    models,
    modules,
    networks,
    numerics,
    structures,
)
from tests.whole_programs.registry import PROGRAMS, Caught

FILE = pathlib.Path(__file__).parent.parent / "golden" / "whole_programs.npz"
PARTS = ("lax", "random", "nn", "tree", "scipy", "tree_util", "ops", "image", "flatten_util")
FLAX = ("linen", "core", "struct", "traverse_util", "errors")
SCIPY = ("optimize", "signal", "stats", "ndimage", "linalg", "sparse.linalg", "special")


def namespace(package):
    """What a program sees of one library."""
    load = lambda name: importlib.import_module(f"{package.__name__}.{name}")
    for part in SCIPY:
        load(f"scipy.{part}")
    load("experimental")
    flax = "flax" if package.__name__ == "jax" else package.__name__
    of_flax = {name: importlib.import_module(f"{flax}.{name}") for name in FLAX}
    parts = {name: load(name) for name in PARTS}
    return types.SimpleNamespace(jax=package, jnp=load("numpy"), **parts, **of_flax)


@dataclass
class Leaf:
    """A leaf of a result: an array with its types, or the text of a Python object."""

    kind: str  # array, numpy, caught, or the name of a Python type
    dtype: str = ""
    weak: bool = False
    text: str = ""
    value: np.ndarray | None = None


def described(package, x):
    """A leaf in terms that both libraries share."""
    if isinstance(x, Caught):
        return Leaf("caught", text=",".join(sorted(x)))
    if not hasattr(x, "dtype"):
        return Leaf(type(x).__name__, text=repr(x))
    kind = "numpy" if isinstance(x, (np.ndarray, np.generic)) else "array"
    leaf = Leaf(kind, str(x.dtype), bool(getattr(x, "weak_type", False)))
    if leaf.dtype.startswith("key<"):
        x = package.random.key_data(x)
    value = np.asarray(x)
    leaf.value = value if value.dtype.kind in "biufc" else value.astype(np.float32)
    return leaf


def answer(package, function):
    """The leaves and the printed structure of a program's result."""
    with package.enable_x64(function.x64):
        leaves, structure = package.tree.flatten(function(namespace(package)))
        return [described(package, x) for x in leaves], str(structure)


def digest(function):
    """What identifies a program: its name, its text without blanks and decorator, its mode."""
    text = inspect.getsource(function)
    text = "".join(text[text.index("def ") :].split()) + str(function.x64)
    return f"{function.__name__}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def load():
    """All recorded answers."""
    if not FILE.exists():
        return {}
    with np.load(FILE) as data:
        index = json.loads(str(data["index"]))
        return {
            name: ([_restored(data, name, i, *row) for i, row in enumerate(rows)], structure)
            for name, (rows, structure) in index.items()
        }


def _restored(data, name, i, kind, dtype, weak, text):
    value = data[f"{name}/{i}"] if kind in ("array", "numpy") else None
    return Leaf(kind, dtype, weak, text, value)


def save(answers):
    """Write answers as arrays and one index."""
    index, arrays = {}, {}
    for name, (leaves, structure) in sorted(answers.items()):
        index[name] = [[v.kind, v.dtype, v.weak, v.text] for v in leaves], structure
        for i, leaf in enumerate(leaves):
            if leaf.value is not None:
                arrays[f"{name}/{i}"] = leaf.value
    np.savez_compressed(FILE, index=np.array(json.dumps(index)), **arrays)


def main():
    """Record the programs that are new or changed."""
    import jax

    known = load()
    answers = {}
    for function in PROGRAMS:
        name = digest(function)
        if name not in known:
            print("asking jax:", name)
        answers[name] = known[name] if name in known else answer(jax, function)
    save(answers)


if __name__ == "__main__":
    main()
