"""One text on both libraries: a program is a function of a namespace, run on flax and on toile.

It returns a tree of arrays, and may note each run of its Python code in `log`, which counts traces.
What flax answers is recorded in `tests/golden/lifted.npz` under a hash of the program's text;
`python -m tests.linen.programs` records what is new and drops what is gone.
"""

import functools
import hashlib
import importlib
import inspect
import json
import pathlib
import types

import numpy as np

from tests.linen.oracle import flat, flax_library, loss, toile_library
from tests.quick_jax import OPTIONS

FILE = pathlib.Path(__file__).parent.parent / "golden" / "lifted.npz"
TABLES = (
    "tests.core.test_lift", "tests.linen.test_transforms", "tests.linen.test_transforms_functions",
    "tests.linen.test_transforms_sharing", "tests.linen.test_transforms_corners",
)  # fmt: skip


def on_flax(program):
    """(leaves by path, log) of a program on jax and flax, compiled as a whole."""
    lib, log = flax_library(), []
    found = lib.jax.jit(lambda: program(lib, log), compiler_options=OPTIONS)()
    return flat(lib, found), log


def on_toile(program, compile=False):
    """(leaves by path, log) of a program on toile."""
    lib, log = toile_library(), []
    run = lambda: program(lib, log)
    found = lib.jax.jit(run)() if compile else run()
    return flat(lib, found), log


def assert_same(ours, theirs, rtol=2e-5, atol=2e-6):
    """The same paths, shapes, dtypes and numbers."""
    assert list(ours) == list(theirs)
    for path, x in ours.items():
        y = theirs[path]
        assert (x.shape, x.dtype) == (y.shape, y.dtype), path
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol, err_msg=path)


def check(program):
    """A program does on toile what it does on flax, with as many runs of its Python code."""
    theirs, their_log = recorded().get(digest(program)) or on_flax(program)
    ours, our_log = on_toile(program)
    assert_same(ours, theirs)
    assert our_log == their_log
    assert_same(on_toile(program, compile=True)[0], theirs)


# The record.


def text_of(fn, seen):
    """The text of a function and of the functions of tests that it uses."""
    if fn in seen:
        return ""
    seen.add(fn)
    found = "".join(inspect.getsource(fn).split())
    for name in sorted(fn.__code__.co_names):
        used = fn.__globals__.get(name)
        if isinstance(used, types.FunctionType) and used.__module__.startswith("tests."):
            found += text_of(used, seen)
    return found


def digest(program):
    """What identifies a program."""
    return f"{program.__name__}-{hashlib.sha256(text_of(program, set()).encode()).hexdigest()[:12]}"


@functools.cache
def recorded():
    """All recorded answers, by digest."""
    if not FILE.exists():
        return {}
    with np.load(FILE) as data:
        index = json.loads(str(data["index"]))
        return {
            name: ({path: data[f"{name}/{i}"] for i, path in enumerate(paths)}, log)
            for name, (paths, log) in index.items()
        }


def record():
    """Ask flax for what is new."""
    index, arrays = {}, {}
    for table in TABLES:
        for program in importlib.import_module(table).PROGRAMS:
            name = digest(program)
            if name not in recorded():
                print("asking flax:", name, flush=True)
            leaves, log = recorded().get(name) or on_flax(program)
            index[name] = [list(leaves), log]
            arrays.update({f"{name}/{i}": x for i, x in enumerate(leaves.values())})
    np.savez_compressed(FILE, index=np.array(json.dumps(index)), **arrays)


# What programs are made of.


def x_of(lib, *shape):
    return lib.jnp.asarray(np.cos(np.arange(np.prod(shape), dtype=np.float32)).reshape(shape))


def both(lib, module, *args, rngs=(), mutable=False, grad=True, **kwargs):
    """Variables, results, changed collections and gradients of a module."""
    keys = {name: lib.random.key(i + 5) for i, name in enumerate(rngs)}
    variables = module.init({"params": lib.random.key(0), **keys}, *args, **kwargs)
    out = module.apply(variables, *args, rngs=keys or None, mutable=mutable, **kwargs)
    seen = {"init": variables, "out": out}
    if grad:

        def of(params):
            everything = {**variables, "params": params}
            got = module.apply(everything, *args, rngs=keys or None, mutable=mutable, **kwargs)
            return loss(lib, got)

        seen["grad"] = lib.jax.grad(of)(variables.get("params", {}))
    return seen


def noisy(lib, log, features=3):
    """A module with parameters, state and noise."""
    nn, jnp = lib.nn, lib.jnp

    class Noisy(nn.Module):
        features: int

        @nn.compact
        def __call__(self, x):
            log.append("noisy")
            y = nn.Dense(self.features)(x)
            calls = self.variable("state", "calls", lambda: jnp.zeros((), jnp.int32))
            if not self.is_initializing():
                calls.value += 1
            self.sow("seen", "y", y.sum())
            return y + lib.random.normal(self.make_rng("noise"), y.shape)

    return Noisy


if __name__ == "__main__":
    from tests.linen import programs  # the module that the tables use, not this copy

    programs.record()
