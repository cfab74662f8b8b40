"""Plans on disk: what was planned before is recalled, the same to the bit, and only that."""

import os
import subprocess
import sys
import warnings
import weakref

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import lax
from toile.compiler.plan.fingerprint import fingerprint
from toile.disk.object_cache import ObjectCache
from toile.engine.program import Program
from toile.errors import CacheWarning
from toile.platforms import cpu, recall
from toile.platforms.cpu import assembly as making
from toile.platforms.cpu import execution
from toile.platforms.cpu import plans_on_disk as recalling
from toile.targets.llvm import native


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("TOILE_PLANS", raising=False)
    monkeypatch.delenv("TOILE_DEBUG", raising=False)
    monkeypatch.setattr(recall, "WORTH", 0.0)
    monkeypatch.setattr(recall, "FEWEST", 1)
    cache = ObjectCache(tmp_path / "kernels")
    monkeypatch.setattr(native.engine(), "cache", cache)
    # Code of other tests, found in memory now, might be gone when it is asked for.
    monkeypatch.setattr(native, "_code", weakref.WeakValueDictionary())
    return cache


def mlp(w, b, x):
    def loss(w, b):
        h = jnp.tanh(x @ w + b)
        return jnp.mean(jnp.square(h @ w.T)) + jnp.sum(b)

    return toile.value_and_grad(loss, argnums=(0, 1))(w, b)


def loops(x):
    def step(carry, row):
        carry = carry * 0.5 + row
        return carry, jnp.sum(carry)

    last, sums = lax.scan(step, x[0], x)
    n = lax.while_loop(lambda i: jnp.sum(x) * 0 + i < 5, lambda i: i + 1.0, 0.0)
    chosen = lax.switch(jnp.argmax(sums) % 3, [jnp.sin, jnp.cos, jnp.exp], last)
    return last, sums, n, chosen


def constants(x):
    table = np.linspace(0, 1, 37, dtype=np.float32)
    part = lax.dynamic_slice(x, (3,), (30,))
    return jnp.cumsum(x * table) + jnp.take(table, jnp.arange(37) % 5), part.astype(jnp.bfloat16)


def keys(x):
    key = toile.random.fold_in(toile.random.key(3), x.shape[0])
    return toile.random.split(key, 3), toile.random.normal(key, x.shape) + x


def in_python(x):
    q, r = jnp.linalg.qr(x.T)
    return q * jnp.sign(jnp.diagonal(r)) + 1


def many(*xs):
    return [(jnp.sin(x) + i).reshape(-1)[:3] for i, x in enumerate(xs)] + [xs[0]]


def arrays(*shapes):
    rng = np.random.default_rng(3)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


CASES = {
    "products": (mlp, arrays((48, 64), (64,), (96, 48))),
    "loops": (loops, arrays((9, 7))),
    "constants": (constants, arrays((37,))),
    "steps in Python": (in_python, arrays((4, 6))),
    "keys": (keys, arrays((4, 5))),
    "shared blocks": (many, arrays((3, 4), (5,), (300, 2))),
}


def traced(f, args):
    return toile.jit(f).trace(*args).traced


def kept_and_recalled(f, args):
    """The results of a plan that is made now, and of what another trace finds on disk."""
    first = traced(f, args)
    given = [*first.raw_consts, *args]
    return cpu.compiled(first.program), cpu.compiled(traced(f, args).program), given


@pytest.mark.parametrize("name", CASES)
def test_recalled_plans_give_the_same_bits(name):
    f, args = CASES[name]
    made, again, given = kept_and_recalled(f, args)
    assert type(made) is making.PlannedExecutable and type(again) is execution.Executable
    for mine, other in zip(made(given), again(given), strict=True):
        assert mine.dtype == other.dtype and mine.tobytes() == other.tobytes()


def test_jit_runs_recalled_plans():
    f, args = CASES["products"]
    (value, (dw, db)) = toile.jit(f)(*args)

    def another(*args):
        return f(*args)

    jitted = toile.jit(another)
    for _ in range(3):  # the general way, then the quick one
        (again, (dw2, db2)) = jitted(*args)
        assert float(value) == float(again)
        np.testing.assert_array_equal(dw, dw2)
        np.testing.assert_array_equal(db, db2)


X = arrays((6, 5))


DIFFERENT = [
    (lambda x: jnp.sin(x) + 1, X),
    (lambda x: jnp.sin(x) + 2, X),
    (lambda x: jnp.cos(x) + 1, X),
    (lambda x: jnp.sin(x) - 1, X),
    (lambda x: 1 - jnp.sin(x), X),
    (lambda x: jnp.sum(x, 0), X),
    (lambda x: jnp.sum(x, 1), X),
    (lambda x: jnp.sin(x) + 1, arrays((5, 6))),
    (lambda x: jnp.sin(x) + 1, [X[0].astype(np.float16)]),
    (lambda x: (x, jnp.sin(x) + 1), X),
    (lambda x: lax.fori_loop(0, 3, lambda i, y: y * 2, x), X),
    (lambda x: lax.fori_loop(0, 4, lambda i, y: y * 2, x), X),
    (lambda x: lax.fori_loop(0, 4, lambda i, y: y * 3, x), X),
]


def test_what_differs_has_another_fingerprint():
    found = [fingerprint(traced(f, args).program) for f, args in DIFFERENT]
    assert None not in found and len(set(found)) == len(found)


def test_names_and_lines_do_not_matter():
    def first(x):
        return jnp.sin(x) + 1

    def second(value):
        y = jnp.sin(value)
        return y + 1

    assert fingerprint(traced(first, X).program) == fingerprint(traced(second, X).program)


def test_keys_differ_by_threads_precision_and_source(monkeypatch):
    program = traced(*CASES["products"]).program
    keys = {recalling.place(program).key}
    with toile.threads(1):
        keys.add(recalling.place(program).key)
    before = toile.config.read("jax_allow_excess_precision")
    toile.config.update("jax_allow_excess_precision", not before)
    keys.add(recalling.place(program).key)
    toile.config.update("jax_allow_excess_precision", before)
    monkeypatch.setattr(recalling, "source_state", lambda: "another")
    keys.add(recalling.place(program).key)
    assert len(keys) == 4


@pytest.mark.parametrize("damage", ["plan", "format", "kernel"])
def test_what_is_damaged_is_made_again(damage, folder):
    f, args = CASES["products"]
    program = traced(f, args).program
    made = cpu.compiled(program)
    key = recalling.place(program).key
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if damage == "plan":
            (folder.folder / key).write_bytes(b"not a plan")
        elif damage == "format":
            folder.put(key, b"\x00")
        else:  # an object that was evicted, in a process that does not have it in memory
            texts = list(made.described.kernels)
            folder.remove(native.names_on_disk(texts)[0][1])
            native._code.pop(native.digest(texts[0]))
        again = cpu.compiled(traced(f, args).program)
    assert [w.category for w in said] == [CacheWarning] * (damage != "kernel")
    assert type(again) is making.PlannedExecutable
    for mine, other in zip(made(args), again(args), strict=True):
        assert mine.tobytes() == other.tobytes()
    assert type(cpu.compiled(traced(f, args).program)) is execution.Executable


def solver(x):
    a = x @ x.T + 4 * jnp.eye(4)
    return lax.custom_linear_solve(lambda v: a @ v, x[:, 0], lambda _, b: jnp.linalg.solve(a, b))


@pytest.mark.parametrize("name", [*CASES, "a solver"])
def test_which_plans_are_kept(name):
    f, args = CASES[name] if name in CASES else (solver, arrays((4, 6)))
    made = cpu.compiled(traced(f, args).program)
    again = cpu.compiled(traced(f, args).program)
    assert type(made) is not execution.Executable
    assert type(again) is execution.Executable


def test_users_functions_are_not_kept():
    def f(x):
        return toile.pure_callback(lambda y: np.sin(y), x, jnp.sin(x)) + 1

    program: Program = traced(f, X).program
    assert fingerprint(program) is None and recalling.place(program) is None


@pytest.mark.parametrize("name, value", [("TOILE_PLANS", "off"), ("TOILE_DEBUG", "passes")])
def test_off(name, value, monkeypatch):
    monkeypatch.setenv(name, value)
    assert recalling.place(traced(*CASES["products"]).program) is None


PROCESS = """
import sys
import numpy as np
import toile, toile.numpy as jnp
from toile.platforms import recall
from toile.platforms.cpu import compilation as compiling, execution, plans_on_disk as recalling
recall.WORTH = 60.0
found = []
kind = recalling.Place.recalled
recalling.Place.recalled = lambda self: found.append(kind(self)) or found[-1]
f = toile.jit(toile.grad(lambda x: jnp.sum(jnp.tanh(x @ x) * jax_like(x))))
jax_like = lambda x: jnp.exp(-x * x / 2) + jnp.log1p(jnp.abs(x)) - jnp.sqrt(1 + x * x)
x = jnp.asarray(np.random.default_rng(0).standard_normal((33, 33)).astype(np.float32))
y = np.asarray(f(x)).tobytes().hex()[:64]
small = toile.jit(lambda x: x + 1)(x)
print(y, "toile.platforms.cpu.new_plans" in sys.modules, [x is not None for x in found])
"""


def test_another_process_recalls(tmp_path):
    env = {**os.environ, "TOILE_CACHE_DIR": str(tmp_path), "TOILE_PLATFORM": "cpu"}
    lines = [
        subprocess.run([sys.executable, "-c", PROCESS], env=env, check=True, text=True,
                       capture_output=True).stdout.split(maxsplit=2)
        for _ in range(2)
    ]
    assert lines[0][0] == lines[1][0]
    assert "True" not in lines[0][2] and "False" not in lines[1][2]
    assert [line[1] for line in lines] == ["True", "False"]  # whether anything was planned
