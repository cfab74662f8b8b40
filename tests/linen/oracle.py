"""Layers on both libraries: variables, results, changed collections and gradients, side by side.

A row of a table (`layer(...)`) builds its module from a namespace, so that one text serves flax and
toile. What flax answers is recorded in `tests/golden/layers.npz` under a hash of the row;
`python -m tests.linen.oracle` records what is new and drops what is gone.
"""

import hashlib
import importlib
import importlib.metadata
import inspect
import json
import math
import pathlib
import types
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from tests.golden.recorded import Record

RECORD = Record("linen")
FILE = pathlib.Path(__file__).parent.parent / "golden" / "layers.npz"
TABLES = ("linear", "normalization", "attention", "recurrent", "others", "fp8")


@dataclass
class Layer:
    """A row: a module, the arguments of its call, and how to run it."""

    name: str
    build: object  # lib -> module
    args: tuple
    kwargs: dict = field(default_factory=dict)
    rngs: tuple = ()  # streams besides params
    mutable: object = False  # collections that a call may change
    method: str | None = None
    steps: int = 1  # calls in a row, each with the state that the last one left
    rtol: float = 2e-5
    atol: float = 2e-6
    grad: bool = True
    vmap: bool = True
    x64: bool = False
    renewed: str | None = None  # a collection whose gradient is its value in the next step
    excess: bool = True  # flax's compiler may keep more bits than a dtype has, between operations


LAYERS: list[Layer] = []


def layer(name, build, *args, **options):
    """Add a row to the table."""
    assert all(row.name != name for row in LAYERS), name
    LAYERS.append(Layer(name, build, args, **options))


def normal(*shape, seed=0, dtype=np.float32):
    """Numbers for an input."""
    return np.random.RandomState(seed).normal(size=shape).astype(dtype)


def flax_library():
    """jax and flax."""
    return _library("jax", "flax")


def toile_library():
    """toile in both roles."""
    return _library("toile", "toile")


def _library(engine, modules):
    load = importlib.import_module
    return types.SimpleNamespace(
        jax=load(engine), jnp=load(f"{engine}.numpy"), lax=load(f"{engine}.lax"),
        random=load(f"{engine}.random"), nn=load(f"{modules}.linen"), core=load(f"{modules}.core"),
        struct=load(f"{modules}.struct"), name=engine,
    )  # fmt: skip


# What a layer does.


def is_float(x):
    return hasattr(x, "dtype") and (
        np.issubdtype(x.dtype, np.inexact) or x.dtype in (ml_dtypes.bfloat16, np.float16)
    )


def to_library(lib, tree):
    """NumPy arrays as arrays of the library; everything else as it is."""
    convert = lambda x: lib.jnp.asarray(x) if isinstance(x, np.ndarray) else x
    return lib.jax.tree.map(convert, tree)


def loss(lib, out):
    """A number that depends on every float in a result, each with a weight of its own."""
    total = 0.0
    for x in lib.jax.tree.leaves(out):
        if is_float(x) and np.issubdtype(x.dtype, np.complexfloating):
            x = x.real + 2 * x.imag
        if is_float(x):
            weights = np.cos(np.arange(x.size, dtype=np.float32)).reshape(x.shape)
            total = total + lib.jnp.sum(x.astype(lib.jnp.float32) * weights)
    return total


def keys(lib, row, step=0):
    """A key for each stream."""
    return {name: lib.random.key(7 + i + 100 * step) for i, name in enumerate(row.rngs)}


def run(lib, module, row, variables, args, step=0):
    """One call: (result, changed collections)."""
    options = {"rngs": keys(lib, row, step) or None, "mutable": row.mutable, "method": row.method}
    out = module.apply(variables, *args, **row.kwargs, **options)
    return out if row.mutable is not False else (out, {})


def split(args):
    """Positions of the arguments to differentiate."""
    return [i for i, a in enumerate(args) if isinstance(a, np.ndarray) and is_float(a)]


def observe(lib, row, compile=lambda f: f):
    """Everything there is to compare, by label."""
    module = row.build(lib)
    args = to_library(lib, row.args)
    rngs = {"params": lib.random.key(3), **keys(lib, row)}
    create = lambda rngs: module.init(rngs, *args, **row.kwargs, method=row.method)
    variables = compile(create)(rngs)
    seen = {"init": variables}
    call = lambda v, step: run(lib, module, row, v, args, step)
    pull = compile(lambda v: gradients(lib, module, row, v, args))
    for step in range(row.steps):
        out, changed = compile(lambda v, step=step: call(v, step))(variables)
        seen[f"out{step}"], seen[f"changed{step}"] = out, changed
        variables = {**variables, **changed}
        if row.renewed:
            seen[f"renewed{step}"] = new = pull(variables)[2]
            variables = {**variables, row.renewed: new}
    if row.grad:
        seen["grad_params"], seen["grad_inputs"], _ = pull(variables)
    return flat(lib, seen)


def gradients(lib, module, row, variables, args):
    """Of the parameters, of the arguments that are floats, and of the collection `renewed`."""
    where = split(row.args)
    names = ("params", row.renewed)
    rest = {k: v for k, v in variables.items() if k not in names}

    def of(params, floats, renewed):
        given = list(args)
        for i, x in zip(where, floats, strict=True):
            given[i] = x
        own = {row.renewed: renewed} if row.renewed else {}
        return loss(lib, run(lib, module, row, {"params": params, **own, **rest}, given)[0])

    params, renewed = (variables.get(name, {}) for name in names)
    return lib.jax.grad(of, argnums=(0, 1, 2))(params, [args[i] for i in where], renewed)


def flat(lib, tree):
    """Leaves by path, as NumPy; keys as their words, Python numbers as arrays."""
    found = {}
    for path, x in lib.jax.tree_util.tree_flatten_with_path(tree)[0]:
        if "key<" in str(getattr(x, "dtype", "")):
            x = lib.random.key_data(x)
        found[lib.jax.tree_util.keystr(path)] = np.asarray(x)
    return found


def answer(row):
    """What flax says."""
    import jax

    from tests.quick_jax import OPTIONS

    lib = flax_library()
    options = OPTIONS if row.excess else {**OPTIONS, "xla_allow_excess_precision": False}
    with jax.enable_x64(row.x64):
        return observe(lib, row, lambda f: jax.jit(f, compiler_options=options))


# The records: what tests ask by the way, and what the rows above ask.


def on_flax(ask):
    """What `ask()` gives in this test, by the record or asked of flax."""
    return RECORD.in_test(ask, importlib.metadata.version("flax"))


def digest(row):
    """What identifies a row: its module's text, its inputs and options."""
    text = "".join(inspect.getsource(row.build).split())
    text += repr([(a.shape, str(a.dtype), a.tobytes()) if isinstance(a, np.ndarray) else a
                  for a in row.args])  # fmt: skip
    text += repr((row.rngs, row.mutable, row.method, row.steps, row.grad, row.x64))
    text += repr([(k, v.tobytes() if isinstance(v, np.ndarray) else v)
                  for k, v in row.kwargs.items()])  # fmt: skip
    if row.renewed or not row.excess:
        text += repr((row.renewed, row.excess))
    return f"{row.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def load():
    """All recorded answers, by digest."""
    if not FILE.exists():
        return {}
    with np.load(FILE) as data:
        index = json.loads(str(data["index"]))
        return {name: _unpack(data[name].tobytes(), leaves) for name, leaves in index.items()}


def _unpack(data, leaves):
    """The arrays of one answer, which lie one after another."""
    found, start = {}, 0
    for label, dtype, shape in leaves:
        dtype, size = np.dtype(dtype), math.prod(shape)
        found[label] = np.frombuffer(data, dtype, size, start).reshape(shape)
        start += size * dtype.itemsize
    return found


def save(answers):
    """Write answers as bytes with an index, because NumPy's files have no bfloat16."""
    index, arrays = {}, {}
    for name, found in sorted(answers.items()):
        index[name] = [[label, str(x.dtype), x.shape] for label, x in found.items()]
        data = b"".join(np.ascontiguousarray(x).tobytes() for x in found.values())
        arrays[name] = np.frombuffer(data, np.uint8)
    np.savez_compressed(FILE, index=np.array(json.dumps(index)), **arrays)


def tables():
    """Import every table of rows."""
    for name in TABLES:
        importlib.import_module(f"tests.linen.{name}")
    return LAYERS


def main():
    """Record the rows that are new or changed."""
    known, answers = load(), {}
    for row in tables():
        name = digest(row)
        if name not in known:
            print("asking flax:", name, flush=True)
        answers[name] = known[name] if name in known else answer(row)
    save(answers)


if __name__ == "__main__":
    from tests.linen import oracle  # the module that the tables add to, not this copy

    oracle.main()
