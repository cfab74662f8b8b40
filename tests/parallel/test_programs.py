"""pmap agrees with vmap over a named axis and with JAX's pmap, on a table of programs."""

import os
import subprocess
import sys

import numpy as np
import pytest

import toile
from tests.parallel.programs import NOT_IN_JAX, PATH, PROGRAMS
from toile.sharding import NamedSharding

# vmap has one array for what pmap has once per device, or says so differently.
NOT_BY_VMAP = {"out_axes_none", "out_axes_tuple", "grad_out_none"}


def pmapped(f, **options):
    return toile.pmap(f, axis_name="i", **options)


def vmapped(f, **options):
    return toile.vmap(f, axis_name="i", **options)


def leaves(name, mapped):
    build, args = PROGRAMS[name]
    return toile.tree.leaves(build(toile, mapped)(*args))


def close(found, wanted):
    assert found.shape == wanted.shape
    tolerance = 1e-2 if "bfloat16" in str(found.dtype) else 3e-5
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.fixture(scope="module")
def golden():
    with np.load(PATH) as file:
        return dict(file)


@pytest.mark.parametrize("name", PROGRAMS)
def test_pmap_agrees_with_vmap_and_jax(name, golden):
    found = leaves(name, pmapped)
    if name not in NOT_BY_VMAP:
        for a, b in zip(found, leaves(name, vmapped), strict=True):
            close(a, b)
            assert a.dtype == b.dtype
    wanted = [golden[k] for k in sorted(golden) if k.rpartition(".")[0] == name]
    assert bool(wanted) == (name not in NOT_IN_JAX)
    for a, b in zip(found, wanted, strict=False):
        close(a, b)
        assert str(a.dtype) == str(b.dtype)
    assert not wanted or len(found) == len(wanted)


def test_the_stored_results_are_what_jax_gives(golden, tmp_path):
    """A few of them, live: `python -m tests.parallel.make_golden` makes all of them again."""
    names = ["psum", "all_to_all_tiled", "grad_of_psum_scatter", "psum_groups", "scan"]
    path = tmp_path / "live.npz"
    root = PATH.parents[2]
    subprocess.run(
        [sys.executable, "-m", "tests.parallel.make_golden", str(path), *names],
        check=True, cwd=root, timeout=300, env={**os.environ, "PYTHONPATH": str(root)},
    )
    with np.load(path) as live:
        assert len(live.files) >= len(names)
        for key in live.files:
            np.testing.assert_allclose(live[key], golden[key], rtol=1e-6)


# ------------------------------------------------------------------- what JAX's pmap cannot do


def test_nested_pmaps():
    x = np.arange(8.0, dtype=np.float32).reshape(4, 2)

    def both(v):
        i, j = toile.lax.axis_index("i"), toile.lax.axis_index("j")
        sums = [toile.lax.psum(v, axes) for axes in (("i", "j"), "i", "j")]
        return *sums, 10 * i + j

    def nested(mapping):
        return mapping(lambda row: mapping(both, axis_name="j")(row), axis_name="i")

    for a, b in zip(nested(toile.pmap)(x), nested(toile.vmap)(x), strict=True):
        close(a, b)
    grads = [toile.grad(lambda x, m=m: nested(m)(x)[0].sum() ** 2)(x)
             for m in (toile.pmap, toile.vmap)]
    close(*grads)
    with pytest.raises(ValueError, match="requires 4 logical devices, but only 2"):
        toile.pmap(lambda r: toile.pmap(lambda v: v)(r))(np.ones((4, 4)))


def test_nested_pmap_called_twice_in_a_loop():
    x = np.arange(8.0, dtype=np.float32).reshape(4, 2)

    def outer(row, mapping):
        inner = mapping(lambda v: 0.1 * toile.lax.psum(v, ("i", "j")), axis_name="j")
        return toile.lax.fori_loop(0, 3, lambda _, r: inner(inner(r)), row)

    found = toile.pmap(lambda r: outer(r, toile.pmap), axis_name="i")(x)
    close(found, toile.vmap(lambda r: outer(r, toile.vmap), axis_name="i")(x))


def test_every_number_of_devices():
    for n in range(1, 9):
        x = np.arange(n * 3.0, dtype=np.float32).reshape(n, 3)
        found = toile.pmap(lambda v: v / toile.lax.psum(v + 1, "i"), axis_name="i")(x)
        close(found, x / (x + 1).sum(0))
        assert len(found.devices()) == n and isinstance(found.sharding, NamedSharding)


@pytest.mark.parametrize("size", [10, 100_000])
def test_sums_have_the_same_bits_on_all_devices(size):
    x = np.random.default_rng(0).normal(size=(8, size)).astype(np.float32)
    total = np.asarray(toile.pmap(lambda v: toile.lax.psum(v, "i"), axis_name="i")(x))
    assert all(row.tobytes() == total[0].tobytes() for row in total)
    in_order = x[0]
    for row in x[1:]:
        in_order = in_order + row
    np.testing.assert_array_equal(total[0], in_order)
