"""Functions on both libraries: values, dtypes, weak types and gradients, side by side.

A row of a table (`case(...)`) is a function of a namespace and of arrays, so that one text serves
Optax and toile. What Optax answers is in `tests/golden/losses.npz`, under a hash of the row;
`python -m tests.optim.recorded` records what is new and drops what is gone.
"""

import hashlib
import importlib
import inspect
import json
import pathlib
import sys
import types
import warnings
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from tests.linen.oracle import is_float, loss, split, to_library

FILE = pathlib.Path(__file__).parent.parent / "golden" / "losses.npz"
TABLES = ("loss_cases", "projection_cases", "schedule_cases")
PARTS = ("losses", "projections", "perturbations", "assignment", "second_order", "schedules")


@dataclass
class Case:
    """A row: a function of a library and arrays, and how closely results agree."""

    table: str
    name: str
    run: object  # (lib, *arrays) -> tree
    args: tuple
    grad: bool = True
    narrow: bool = False  # floats are bfloat16
    staged: bool = True  # runs under jit
    rtol: float = 1e-5
    atol: float = 1e-6


CASES: list[Case] = []


def case(name, run, *args, bf16=False, **options):
    """Add a row to the table of the calling module, and one in bfloat16 if asked."""
    table = sys._getframe(1).f_globals["__name__"].rsplit(".", 1)[-1]
    for narrow in (False, True)[: 1 + bf16]:
        row = Case(table, name + "_bf16" * narrow, run, args, narrow=narrow, **options)
        assert all((c.table, c.name) != (table, row.name) for c in CASES), row.name
        CASES.append(row)


def normal(*shape, seed=0):
    """Numbers for an argument."""
    return np.random.RandomState(seed).normal(size=shape).astype(np.float32)


def library(engine, optim):
    """What a row sees of one library."""
    load = importlib.import_module
    names = {name: load(f"{optim}.{name}") for name in PARTS}
    return types.SimpleNamespace(
        jax=load(engine), jnp=load(f"{engine}.numpy"), nn=load(f"{engine}.nn"),
        random=load(f"{engine}.random"), **names,
    )  # fmt: skip


def observe(lib, row, compile=lambda f: f):
    """Everything there is to compare, by label."""
    given = row.args
    if row.narrow:
        thin = lambda x: x.astype(ml_dtypes.bfloat16) if x.dtype == np.float32 else x
        given = tuple(thin(x) if isinstance(x, np.ndarray) else x for x in given)
    args, where = to_library(lib, given), split(given)

    def run(floats):
        full = list(args)
        for i, x in zip(where, floats, strict=True):
            full[i] = x
        return row.run(lib, *full)

    floats = [args[i] for i in where]
    out = compile(run)(floats)
    seen = {"out": out, "weak": [bool(getattr(x, "weak_type", False)) for x in leaves(lib, out)]}
    if row.grad:
        seen["grad"] = compile(lib.jax.grad(lambda floats: loss(lib, run(floats))))(floats)
    paths = lib.jax.tree_util.tree_flatten_with_path(seen)[0]
    return {lib.jax.tree_util.keystr(path): np.asarray(x) for path, x in paths}


def leaves(lib, tree):
    return lib.jax.tree.leaves(tree)


def answer(row):
    """What Optax says: staged in float32, operation by operation in bfloat16, as toile rounds."""
    import jax

    from tests.quick_jax import OPTIONS

    stage = lambda f: jax.jit(f, compiler_options=OPTIONS)
    with warnings.catch_warnings(action="ignore"):
        by_hand = row.narrow or not row.staged
        return observe(library("jax", "optax"), row, (lambda f: f) if by_hand else stage)


# The record.


def digest(row):
    """What identifies a row: its text and its arrays."""
    bound = row.run.__defaults__ or ()  # what the rows of a loop differ in
    text = inspect.getsource(row.run)
    text += "".join(inspect.getsource(x) if callable(x) else repr(x) for x in bound)
    text = "".join(text.split())
    text += repr([(a.shape, str(a.dtype), a.tobytes()) if isinstance(a, np.ndarray) else a
                  for a in row.args])  # fmt: skip
    text += repr((row.grad, row.narrow, row.staged))
    return f"{row.table}-{row.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def load():
    """All recorded answers, by digest."""
    if not FILE.exists():
        return {}
    with np.load(FILE) as data:
        index, words = json.loads(str(data["index"])), data["bytes"].tobytes()
    found, start = {}, 0
    for name, rows in index.items():
        found[name] = {}
        for label, dtype, shape in rows:
            count = int(np.prod(shape)) * np.dtype(dtype).itemsize
            piece = np.frombuffer(words[start : start + count], np.dtype(dtype))
            found[name][label] = piece.reshape(shape)
            start += count
    return found


def save(answers):
    """Write answers as one string of bytes with an index: NumPy's files have no bfloat16."""
    index, pieces = {}, []
    for name, found in sorted(answers.items()):
        index[name] = [[label, str(x.dtype), x.shape] for label, x in found.items()]
        pieces += [np.ascontiguousarray(x).tobytes() for x in found.values()]
    words = np.frombuffer(b"".join(pieces), np.uint8)
    np.savez_compressed(FILE, index=np.array(json.dumps(index)), bytes=words)


def tables():
    """Import every table of rows."""
    for name in TABLES:
        importlib.import_module(f"tests.optim.{name}")
    return CASES


def of_table(table):
    """The rows of one table."""
    importlib.import_module(f"tests.optim.{table}")
    return [row for row in CASES if row.table == table]


def compare(row, want):
    """Hold toile's observations against Optax's."""
    with warnings.catch_warnings(action="ignore"):
        got = observe(library("toile", "toile.optim"), row)
    assert list(got) == list(want), f"{sorted(set(got) ^ set(want))}"
    for label, expected in want.items():
        found = got[label]
        assert found.dtype == expected.dtype, f"{label}: {found.dtype}, needed {expected.dtype}"
        assert found.shape == expected.shape, f"{label}: {found.shape}, needed {expected.shape}"
        if not is_float(expected):
            np.testing.assert_array_equal(found, expected, err_msg=label)
            continue
        x, y = found.astype(np.float64), expected.astype(np.float64)
        scale = np.max(np.abs(y), initial=1.0, where=np.isfinite(y))
        narrow = row.narrow
        rtol, atol = max(row.rtol, 2e-2 * narrow), max(row.atol, 8e-3 * narrow) * scale
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol, err_msg=label)


def main():
    """Record the rows that are new or changed."""
    known, answers = load(), {}
    for row in tables():
        name = digest(row)
        if name not in known:
            print("asking optax:", name, flush=True)
        answers[name] = known[name] if name in known else answer(row)
    save(answers)
    print(len(answers), "answers,", FILE.stat().st_size, "bytes")


if __name__ == "__main__":
    from tests.optim import recorded  # the module that the tables add to, not this copy

    recorded.main()
