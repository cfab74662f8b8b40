"""Specs of shard_map's arguments that are not given, or None: what JAX does with them.

What JAX gives is in `tests/golden`; rows that are new or changed, and some on each day, JAX runs
with 8 host devices in a process of its own (this file as a program)."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.golden.recorded import Record
from toile import lax
from toile.sharding import AbstractMesh, NamedSharding
from toile.sharding import PartitionSpec as P

A = np.arange(16.0, dtype=np.float32)
B = np.arange(64.0, dtype=np.float32).reshape(8, 8)
SMALL = np.arange(24.0, dtype=np.float32).reshape(3, 8)


class Kit:
    """A library, toile or JAX, with a mesh of it in force."""

    def __init__(self, lib, *shape):
        self.lib, self.lax, self.P = lib, lib.lax, lib.sharding.PartitionSpec
        self.mesh = lib.make_mesh(shape, ("x", "y")[: len(shape)])

    def put(self, x, *spec, mesh=None):
        sharding = self.lib.sharding.NamedSharding(mesh or self.mesh, self.P(*spec))
        return self.lib.device_put(self.lib.numpy.asarray(x), sharding)

    def double(self, *out, **options):
        """Each part with the number of its device added, joined along axes."""
        def f(p):
            return p * 2 + self.lax.axis_index("x")
        return self.lib.shard_map(f, out_specs=self.P(*out), **options)

    def total(self, **options):
        def f(p):
            return self.lax.psum(p, "x")
        return self.lib.shard_map(f, out_specs=self.P(), **options)

    def grad(self, f):
        return self.lib.grad(lambda *args: (f(*args) ** 2).sum())


def nested(k):
    def outer(p):
        inner = k.lib.smap(lambda q: q + k.lax.axis_index("y"), out_axes=1, axis_name="y")
        return inner(p * 2) + 10 * k.lax.axis_index("x")
    return k.lib.smap(outer, out_axes=0, axis_name="x")


# name: shape of the mesh, what is computed with a Kit
INFERRED = {
    "eager": ((4,), lambda k: k.double("x")(k.put(A, "x"))),
    "eager_sum": ((4,), lambda k: k.total()(k.put(B, None, "x"))),
    "whole": ((4,), lambda k: k.total()(A)),
    "two": ((4,), lambda k: k.lib.shard_map(
        lambda a, b: a * b, out_specs=k.P("x"))(k.put(A, "x"), k.put(np.float32(3)))),
    "grad": ((4,), lambda k: k.grad(k.double("x"))(k.put(A, "x"))),
    "grad_sum": ((4,), lambda k: k.grad(k.total())(k.put(A, "x"))),
    "grad_chain": ((4,), lambda k: k.grad(lambda v: k.total()(k.double("x")(v * 3)))(
        k.put(A, "x"))),
    "second": ((4,), lambda k: k.lib.grad(
        lambda v: k.grad(k.total())(v).sum())(k.put(A, "x"))),
    "jvp": ((4,), lambda k: k.lib.jvp(
        k.total(), (k.put(A, "x"),), (k.put(A * 2, "x"),))[1]),
    "vmap": ((4,), lambda k: k.lib.vmap(k.double("x"))(k.put(SMALL, None, "x"))),
    "vmap_last": ((4,), lambda k: k.lib.vmap(k.total(), in_axes=1)(k.put(SMALL.T, "x"))),
    "vmap_grad": ((4,), lambda k: k.lib.vmap(k.grad(k.total()))(k.put(SMALL, None, "x"))),
    "vmap_other": ((2, 4), lambda k: k.lib.vmap(
        k.lib.smap(lambda p: k.lax.psum(p, "x"), out_axes=None, axis_name="x"))(
            k.put(B, "y", "x"))),
    "smap": ((2, 4), lambda k: k.lib.smap(
        lambda p: k.lax.psum(p, "x"), out_axes=None, axis_name="x")(k.put(B, "x", "y"))),
    "smap_grad": ((2, 4), lambda k: k.grad(k.lib.smap(
        lambda p: k.lax.psum(p, "x"), out_axes=None, axis_name="x"))(k.put(B, "x", "y"))),
    "some": ((2, 4), lambda k: k.total(axis_names={"x"})(k.put(B, "y", "x"))),
    "some_joined": ((2, 4), lambda k: k.total(axis_names={"x"})(k.put(B, ("x", "y")))),
    "others_only": ((2, 4), lambda k: k.total(axis_names={"x"})(k.put(B, "y"))),
    "nested": ((2, 4), lambda k: nested(k)(k.put(B, "x", "y"))),
    "jit_closed": ((4,), lambda k: _jit_closed(k, k.put(A, "x"))),
    "jit_reshard": ((4,), lambda k: k.lib.jit(
        lambda v: k.total()(reshard(k, v, "x") * 2))(A)),
    "jit_sequence": ((4,), lambda k: k.lib.jit(
        lambda v: k.double("x")(k.double("x")(reshard(k, v, "x"))))(A)),
    "jit_made": ((4,), lambda k: k.lib.jit(lambda: k.total()(k.lib.numpy.ones(8)))()),
}


def reshard(k, x, *spec):
    return k.lib.sharding.reshard(x, k.P(*spec))


def _jit_closed(k, x):
    return k.lib.jit(lambda: k.total()(k.lib.nn.relu(x) + x))()


def scaled(k, x, how):
    """By a factor, by a function, by the name of a function."""
    if isinstance(how, str):
        return getattr(k.lib.nn, how)(x)
    return how(x) if callable(how) else x * how


def fixed(k, f=scaled, out=("x",)):
    mesh = k.lib.make_mesh((4,), ("x",), axis_types=(k.lib.sharding.AxisType.Auto,))
    return k.lib.shard_map(lambda *args: f(k, *args), mesh=mesh, in_specs=(k.P("x"), None),
                           out_specs=k.P(*out))


def two_kinds(k):
    mesh = k.lib.make_mesh((4,), ("x",), axis_types=(k.lib.sharding.AxisType.Auto,))
    f = k.lib.shard_map(
        lambda t, n: t["a"] * n if t["b"] == "times" else t["a"] + n, mesh=mesh,
        in_specs=({"a": k.P("x"), "b": None}, k.P()), out_specs=k.P("x"))
    return [f({"a": A, "b": b}, np.float32(3)) for b in ("times", "plus", "times")]


# Those without a mesh in force: an entry of in_specs is None.
STATIC = {
    "shape": lambda k: fixed(k, lambda k, x, n: x.reshape(n, -1))(A, 2),
    "word": lambda k: fixed(k)(A - 5, "relu"),
    "words": lambda k: [fixed(k)(A - 5, w) for w in ("relu", "sigmoid")],
    "function": lambda k: fixed(k)(A, k.lib.numpy.sin),
    "type": lambda k: fixed(k, lambda k, x, t: x.astype(t))(A, k.lib.numpy.int32),
    "list": lambda k: fixed(k, lambda k, x, t: x * sum(t))(A, [1, 2]),
    "nothing": lambda k: fixed(k, lambda k, x, t: x + 1 if t is None else x)(A, None),
    "numbers": lambda k: _several(fixed(k), [3, 3.0, True, 1, 0.0, -0.0, np.float32(2)]),
    "arrays": lambda k: _several(
        fixed(k), [np.full(4, 2, np.float32), np.arange(4, dtype=np.float32),
                   k.lib.numpy.float32(5)]),
    "key": lambda k: fixed(k, lambda k, x, t: x + k.lib.random.uniform(t))(
        A, k.lib.random.key(3)),
    "tree": two_kinds,
    "all": lambda k: k.lib.shard_map(
        lambda a, w: a[: len(w)], mesh=k.mesh, in_specs=None, out_specs=k.P())(A, "abc"),
    "jit": lambda k: k.lib.jit(lambda a: fixed(k)(a - 5, "relu"))(A),
    "jit_both": lambda k: k.lib.jit(fixed(k))(A, 3.0),
    "grad": lambda k: k.grad(lambda a: fixed(k)(a - 5, "relu"))(A),
    "grad_both": lambda k: k.lib.grad(
        lambda a, n: (fixed(k)(a, n) ** 2).sum(), argnums=(0, 1))(A, 3.0),
    "vmap": lambda k: k.lib.vmap(lambda a: fixed(k)(a, 3))(np.stack([A, A + 1])),
    "vmap_both": lambda k: k.lib.vmap(fixed(k), in_axes=(None, 0))(A, SMALL[0]),
}


def _several(f, values):
    return [f(A, v) for v in values]


# What JAX refuses as well.
REFUSED = {
    "mapped": ((4,), lambda k: k.lib.vmap(k.double("x"))(k.put(B, "x"))),
    "order": ((2, 4), lambda k: k.total(axis_names={"x"})(k.put(B, ("y", "x")))),
    "other_names": ((4,), lambda k: k.total()(
        k.put(A, "z", mesh=k.lib.make_mesh((4,), ("z",))))),
    "other_sizes": ((4,), lambda k: k.total()(
        k.put(A, "x", mesh=k.lib.make_mesh((2,), ("x",))))),
}


def run(lib, table, name):
    """The results of one row, as NumPy arrays."""
    if table is STATIC:
        found = STATIC[name](Kit(lib, 4))
    else:
        shape, compute = table[name]
        k = Kit(lib, *shape)
        with lib.set_mesh(k.mesh):
            found = compute(k)
    return [np.asarray(x) for x in lib.tree.leaves(found)]


TABLES = {"inferred": INFERRED, "static": STATIC, "refused": REFUSED}


NAMES = [f"{label}.{name}" for label, table in TABLES.items() for name in table]
RECORD = Record("shard_map_specs", every_version=True)


def key(row):
    """What a row depends on: the text of all rows, and its own name."""
    text = pathlib.Path(__file__).read_text()
    return row + "".join(text[text.index("\nclass Kit") : text.index("\nTABLES = ")].split())


def by_jax(path, *rows):
    """Write what JAX gives for rows to a file; of what it refuses, the kinds of errors."""
    import jax

    found = {}
    for row in rows:
        label, _, name = row.partition(".")
        try:
            results = run(jax, TABLES[label], name)
        except Exception as e:
            results = [np.array(type(e).__name__)]
        found.update({f"{row}.{i}": r for i, r in enumerate(results)})
    np.savez(path, **found)


def asked(rows, path):
    """What JAX gives for rows, in a process of its own."""
    flags = "--xla_force_host_platform_device_count=8"
    root = pathlib.Path(__file__).parents[2]
    env = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(root)}
    command = [sys.executable, "-m", "tests.parallel.test_shard_map_specs", str(path), *rows]
    subprocess.run(command, env=env, cwd=root, check=True, timeout=300)
    with np.load(path) as file:
        return {row: [file[k] for k in file if k.rpartition(".")[0] == row] for row in rows}


@pytest.fixture(scope="module")
def jax_results(tmp_path_factory):
    """What JAX gives for each row, by the record or asked."""
    found = {row: RECORD.known(key(row)) for row in NAMES}
    live = [row for row, answer in found.items() if answer is None]
    if live:
        answers = asked(live, tmp_path_factory.mktemp("jax") / "results.npz")
        found.update({row: RECORD.add(key(row), answers[row]) for row in live})
    return {row: [np.asarray(x) for x in answer] for row, answer in found.items()}


@pytest.mark.parametrize("label, name", [
    (label, name) for label in ("inferred", "static") for name in TABLES[label]])
def test_the_results_are_those_of_jax(label, name, jax_results):
    found, theirs = run(toile, TABLES[label], name), jax_results[f"{label}.{name}"]
    assert len(found) == len(theirs)
    for a, b in zip(found, theirs, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(np.signbit(a), np.signbit(b))


@pytest.mark.parametrize("name", REFUSED)
def test_what_jax_refuses_is_refused(name, jax_results):
    assert [str(x) for x in jax_results[f"refused.{name}"]] == ["ValueError"]
    with pytest.raises(ValueError, match="shard_map applied to f: needed"):
        run(toile, REFUSED, name)


# JAX knows the shardings of traced values by their types; toile does not, and says so.
TRACED = {
    "jit": lambda k, x: toile.jit(k.double("x"))(x),
    "jit_inside": lambda k, x: toile.jit(lambda v: k.double("x")(v * 2))(x),
    "jit_grad": lambda k, x: toile.jit(k.grad(k.total()))(x),
    "grad_jit": lambda k, x: k.grad(toile.jit(k.total()))(x),
    "jit_vmap": lambda k, x: toile.jit(toile.vmap(k.double("x")))(jnp.stack([x, x])),
    "jit_mixed": lambda k, x: toile.jit(lambda v: k.total()(v + x))(x),
    "jit_reshaped": lambda k, x: toile.jit(lambda: k.total()(x.reshape(4, 4)))(),
    "scan": lambda k, x: lax.scan(lambda c, _: (k.double("x")(c), None), x, None, length=2),
    "checkpoint": lambda k, x: toile.checkpoint(k.double("x"))(x),
    "eval_shape": lambda k, x: toile.eval_shape(k.double("x"), x),
    "transpose": lambda k, x: toile.linear_transpose(k.total(), x)(jnp.ones(4)),
    "smap": lambda k, x: toile.jit(toile.smap(lambda p: p, out_axes=0, axis_name="x"))(x),
}


@pytest.mark.parametrize("name", TRACED)
def test_shardings_that_are_not_known_are_asked_for(name):
    k = Kit(toile, 4)
    text = r"needed the sharding of .* leaf 0 .* got float32\[.*\], a traced .* \(pass in_specs"
    with toile.set_mesh(k.mesh), pytest.raises(TypeError, match=text):
        TRACED[name](k, k.put(A, "x"))


def test_specs_that_are_given_do_in_jit():
    k = Kit(toile, 4)
    with toile.set_mesh(k.mesh):
        x = k.put(A, "x")
        f, g = k.double("x", in_specs=P("x")), k.total(in_specs=P("x"))
        np.testing.assert_array_equal(toile.jit(f)(x), f(x))
        np.testing.assert_array_equal(toile.jit(g)(x), A.reshape(4, 4).sum(0))


def test_one_device_needs_no_sharding():
    k = Kit(toile, 1)
    with toile.set_mesh(k.mesh):
        np.testing.assert_array_equal(toile.jit(k.double("x"))(k.put(A, "x")), A * 2)


def test_shardings_of_arguments_on_an_abstract_mesh():
    x = Kit(toile, 4).put(A, "x")
    mesh = AbstractMesh((4,), ("x",))
    f = toile.shard_map(lambda p: lax.psum(p, "x"), mesh=mesh, out_specs=P())
    np.testing.assert_array_equal(f(x), A.reshape(4, 4).sum(0))
    with pytest.raises(TypeError, match="pass in_specs"):
        toile.jit(f)(x)


def test_other_shardings_are_traced_anew():
    """The same function, with the same shapes: what is kept for one sharding is not for others."""
    k = Kit(toile, 2, 4)
    with toile.set_mesh(k.mesh):
        f = toile.shard_map(lambda p: jnp.full((1, 1), p.size), out_specs=P("x", "y"))
        sizes = [np.asarray(f(k.put(B, *s)))[0, 0] for s in (("x", "y"), ("x",), (), ("x", "y"))]
        assert sizes == [8, 32, 64, 8]
        inner = toile.smap(lambda p: jnp.full((1,), p.size), out_axes=0, axis_name="y")
        g = toile.smap(lambda p: inner(p)[None], out_axes=0, axis_name="x")
        specs = ("x", "y"), ("x",), (None, "y")
        assert [int(g(k.put(B, *s))[0, 0]) for s in specs] == [8, 32, 16]


def test_static_values_are_part_of_what_is_traced_once():
    traces = []

    @toile.shard_map(mesh=Kit(toile, 4).mesh, in_specs=(P("x"), None), out_specs=P("x"))
    def f(x, n):
        traces.append(n)
        return x * n

    for n in (2, 2, 2.0, True, 1, 2):
        np.testing.assert_array_equal(f(A, n), A * n)
    assert traces == [2, 2.0, True, 1]


def test_static_arguments_on_an_abstract_mesh():
    mesh = AbstractMesh((4,), ("x",))
    f = toile.shard_map(lambda x, n: getattr(jnp, n)(x), mesh=mesh, in_specs=(P("x"), None),
                        out_specs=P("x"))
    np.testing.assert_allclose(f(A, "sin"), np.sin(A), rtol=1e-5)


def test_results_lie_as_their_specs_say():
    k = Kit(toile, 4)
    with toile.set_mesh(k.mesh):
        out = k.double("x")(k.put(A, "x"))
    assert out.sharding.is_equivalent_to(NamedSharding(k.mesh, P("x")), 1)


if __name__ == "__main__":
    by_jax(*sys.argv[1:])
