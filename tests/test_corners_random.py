"""Corners of random keys, meshes, shard_map and pmap: each row gives in toile what it gives in jax.

A row is a function of the package that returns something to compare, or one that raises; then it
comes with words that the messages of both packages have in common. JAX has one device here.
"""

import builtins
import re
import warnings

import jax
import numpy as np
import pytest

import toile
from tests.against_jax import compare
from tests.golden.recorded import CORNERS

pytestmark = pytest.mark.cpu

V = np.float32([1, 2, 3, 4])


def _key(lib):
    return lib.random.key(0)


def _words(lib):
    return lib.numpy.zeros(2, "uint32")


def _under(option, value, run):
    """`run` while an option of the configuration has a value."""

    def row(lib):
        with getattr(lib, option)(value):
            return run(lib)

    return row


def _offset(make):
    def row(lib):
        lib.config.update("jax_random_seed_offset", 3)
        try:
            return lib.random.key_data(make(lib))
        finally:
            lib.config.update("jax_random_seed_offset", 0)

    return row


def _mesh(lib, names=("x",)):
    return lib.sharding.Mesh(np.array(lib.devices()[:1]).reshape((1,) * len(names)), names)


def _sharding(lib, *spec):
    return lib.sharding.NamedSharding(_mesh(lib), lib.sharding.PartitionSpec(*spec))


def _mapped(lib, f, in_specs, out_specs, **options):
    options.setdefault("mesh", _mesh(lib))
    return lib.shard_map(f, in_specs=in_specs, out_specs=out_specs, **options)


def _inner(lib, mesh):
    """A map inside of another one over the other axis of the mesh."""
    P = lib.sharding.PartitionSpec
    inside = _mapped(lib, lambda y: y * 2, P("y"), P("y"), mesh=mesh, axis_names={"y"})
    return lib.jit(_mapped(lib, inside, P("x"), P("x"), mesh=_mesh(lib, ("x", "y")),
                           axis_names={"x"}))(V)


def _in_mesh(lib, mesh, run):
    with lib.set_mesh(mesh):
        return run()


def _on_abstract_mesh(lib):
    P = lib.sharding.PartitionSpec
    x = lib.device_put(V, _sharding(lib, "x"))
    f = _mapped(lib, lambda v: v, P("x"), P("x"), mesh=_mesh(lib).abstract_mesh)
    return [f(x), f(x).sharding == x.sharding]


def _donated(lib):
    x = lib.numpy.asarray(V)
    out = lib.jit(lambda v: v * 2, in_shardings=_sharding(lib), donate_argnums=0)(x)
    return [out, x.is_deleted()]


def _joined(lib, parts, **options):
    return lib.make_array_from_single_device_arrays((4,), _sharding(lib), parts(lib), **options)


def _local(lib, shape, sharding=None):
    made = lib.make_array_from_process_local_data
    return made(sharding or _sharding(lib, "x"), {"a": V}, shape)


def _data(lib, keys):
    return lib.random.key_data(keys)


def _filled(name):
    return lambda lib: _data(lib, lib.jit(
        lambda: getattr(lib.numpy, name)((2, 3), lib.random.key_dtype("rbg")))())


SAME = {
    "seed_offset": _offset(lambda lib: lib.random.key(17)),
    "seed_offset_raw": _offset(lambda lib: lib.random.PRNGKey(np.int32(17))),
    "custom_prng": _under("enable_custom_prng", True, lambda lib: lib.random.PRNGKey(3).ndim),
    "clone_number": lambda lib: lib.random.clone(1.0),
    "clone_words": lambda lib: lib.random.clone(np.zeros(2, np.uint32)),
    **{f"{name}_of_keys": _filled(name) for name in ("zeros", "ones", "empty")},
    "full_of_keys": lambda lib: _data(lib, lib.numpy.full((2,), 7, _key(lib).dtype)),
    "full_like_keys": lambda lib: _data(
        lib, lib.numpy.full_like(lib.random.split(_key(lib)), lib.random.key(3))),
    "ones_like_keys": lambda lib: _data(lib, lib.numpy.ones_like(lib.random.split(_key(lib)))),
    "lax_full_keys": lambda lib: _data(lib, lib.lax.full((2,), 7, lib.random.key_dtype("rbg"))),
    "nested_maps_mesh": lambda lib: _inner(lib, None),
    "abstract_mesh_of_arguments": _on_abstract_mesh,
    "donated_under_shardings": _donated,
    "local_data_tree_of_shapes": lambda lib: _local(lib, {"a": (4,)}),
    "local_data_on_device": lambda lib: _local(lib, None, lib.devices()[0]),
}

RAISES = {
    "legacy_words": (_under("legacy_prng_key", "error", lambda lib: lib.random.bits(_words(lib))),
                     "Legacy uint32 key array passed as key to jax.random function"),
    "legacy_wrong": (_under("legacy_prng_key", "error", lambda lib: lib.random.bits(V)),
                     "JAX encountered invalid PRNG key data"),
    "wrong_words": (lambda lib: lib.random.split(lib.numpy.zeros(3, "uint32")),
                    "JAX encountered invalid PRNG key data"),
    "wrap_wrong_words": (lambda lib: lib.random.wrap_key_data(V),
                         "JAX encountered invalid PRNG key data"),
    "clone_list": (lambda lib: lib.random.clone([1, 2]), "Error interpreting argument"),
    "key_plus_int": (lambda lib: _key(lib) + 1, "does not accept dtypes key<fry>, int32"),
    "key_times_float": (lambda lib: lib.numpy.multiply(2.0, _key(lib)),
                        "does not accept dtypes float32, key<fry>"),
    "orthogonal_int": (lambda lib: lib.random.orthogonal(_key(lib), 2, dtype=int),
                       "dtype argument to .* must be a float or complex dtype"),
    "pmap_prefix": (lambda lib: lib.pmap(lambda x, y: x, in_axes=((0, 0, 0), 0))((V, V), V),
                    r"pmap in_axes\[0\]\[0\]"),
    "pmap_keywords": (lambda lib: lib.pmap(lambda x: x, in_axes=((0, 0),))(x=(V, V)),
                      "each argument passed by keyword is mapped"),
    "jit_keywords": (lambda lib: lib.jit(lambda x: x, in_shardings=_sharding(lib))(x=V),
                     "pjit does not support kwargs when in_shardings is specified"),
    "jit_spec_no_mesh": (
        lambda lib: lib.jit(lambda x: x, in_shardings=lib.sharding.PartitionSpec("x"))(V),
        "jit requires a non-empty mesh in context if you are passing"),
    "jit_out_spec_no_mesh": (
        lambda lib: lib.jit(lambda x: x, out_shardings=lib.sharding.PartitionSpec("x"))(V),
        "jit requires a non-empty mesh in context if you are passing"),
    "jit_unconstrained": (
        lambda lib: lib.jit(lambda x: x, in_shardings=_sharding(
            lib, lib.sharding.PartitionSpec.UNCONSTRAINED))(V),
        "Unconstrained dims are not allowed when passed to in_shardings"),
    "jit_unconstrained_out": (
        lambda lib: lib.jit(lambda x: x, out_shardings=_sharding(
            lib, lib.sharding.PartitionSpec.UNCONSTRAINED))(V),
        "Unconstrained dims are not allowed when passed to out_shardings"),
    "jit_empty_mesh": (
        lambda lib: lib.jit(lambda x: x, out_shardings=lib.sharding.NamedSharding(
            lib.sharding.Mesh(np.empty((), object), ()), lib.P()))(V),
        "got an empty NamedSharding"),
    "map_axis_twice": (lambda lib: _mapped(lib, lambda x: x, lib.P("x", "x"), lib.P())(V[None]),
                       "duplicate entries for `x`"),
    "map_no_mesh": (lambda lib: lib.shard_map(
        lambda x: x, in_specs=lib.P(), out_specs=lib.P())(V), "The context mesh cannot be empty"),
    "map_wrong_mesh": (lambda lib: _mapped(lib, lambda x: x, lib.P(), lib.P(), mesh=3)(V),
                       "shard_map requires a `jax.sharding.Mesh`"),
    "map_in_specs": (lambda lib: _mapped(lib, lambda x: x, "x", lib.P())(V),
                     "shard_map in_specs argument must be a pytree of"),
    "map_out_specs": (lambda lib: _mapped(lib, lambda x: x, lib.P(), "x")(V),
                      "shard_map out_specs argument must be a pytree of"),
    "map_prefix": (lambda lib: _mapped(lib, lambda x: x, ([lib.P("x")],), lib.P())([V, V]),
                   r"shard_map in_specs\[0\]"),
    "map_rank_in": (lambda lib: _mapped(lib, lambda x: x, lib.P("x"), lib.P())(np.float32(3)),
                    "which has length 1.*which has rank 0"),
    "map_rank_hint": (lambda lib: _mapped(lib, lambda x: x, lib.P(None), lib.P())(np.float32(3)),
                      r"consider using an in_specs entry of `P\(\)`"),
    "map_rank_out": (lambda lib: _mapped(lib, lambda: {"hi": [3.0]}, (), {"hi": lib.P("x")})(),
                     "which has length 1"),
    "map_axis_names": (
        lambda lib: _mapped(lib, lambda x: x, lib.P(), lib.P(), axis_names={"w"})(V),
        "shard_map requires axis_names=.* to be a subset of mesh.axis_names"),
    "map_axis_names_list": (
        lambda lib: _mapped(lib, lambda x: x, lib.P(), lib.P(), axis_names=["x"])(V),
        "`axis_names` argument of shard_map should be of type"),
    "map_other_mesh": (
        lambda lib: _in_mesh(lib, _mesh(lib, ("a", "b")), lambda: _mapped(
            lib, lambda x: x, lib.P(), lib.P())(V)), "should match the mesh passed to shard_map"),
    "map_other_abstract_mesh": (
        lambda lib: _mapped(lib, lambda x: x, lib.P(), lib.P(),
                            mesh=_mesh(lib, ("y",)).abstract_mesh)(
            lib.device_put(V, _sharding(lib, "x"))),
        "Mesh shape of the input.*does not match the mesh shape passed to shard_map"),
    "pcast_to": (
        lambda lib: _mapped(lib, lambda x: lib.lax.pcast(x, "x", to="all"), lib.P("x"), lib.P("x"))(
            V), "Got unexpected `to` value. Allowed `to` values are"),
    "pcast_to_missing": (
        lambda lib: _mapped(lib, lambda x: lib.lax.pcast(x, "x"), lib.P("x"), lib.P("x"))(V),
        "missing 1 required keyword-only argument: 'to'"),
    "groups_not_covering": (
        lambda lib: lib.pmap(lambda x: lib.lax.psum(x, "i", axis_index_groups=[[0, 1], [3]]),
                             axis_name="i")(V[:1]),
        "axis_index_groups must cover all indices exactly once"),
    "smap_two_names": (
        lambda lib: lib.smap(lambda x: x, in_axes=0, out_axes=0, axis_name=("x", "y"))(V),
        "smap axis_name should be a `str` or a `Hashable`"),
    "parts_number": (lambda lib: _joined(lib, lambda lib: [lib.numpy.asarray(V)] * 2),
                     r"Expected 1 per-device arrays \(this is how many devices are addressable"),
    "parts_none": (lambda lib: _joined(lib, lambda lib: []),
                   "If the Array has no addressable shards, `dtype` must be provided via"),
    "parts_dtype": (lambda lib: _joined(lib, lambda lib: [lib.numpy.asarray(V)], dtype="int32"),
                    "it must match the dtype of the addressable shards"),
}


@pytest.mark.parametrize("row", SAME.values(), ids=SAME)
def test_same(row):
    compare(row(toile), CORNERS.in_test(lambda: row(jax)), 1e-6, 1e-6, "")


@pytest.mark.parametrize(("row", "words"), RAISES.values(), ids=RAISES)
def test_raises(row, words):
    with pytest.raises(Exception, match=f"(?s){words}") as theirs:
        row(jax)
    kind = next(c for c in theirs.type.__mro__ if c in vars(builtins).values())
    with pytest.raises(kind, match=f"(?s){words}"):
        row(toile)


@pytest.mark.parametrize("lib", [jax, toile], ids=["jax", "toile"])
def test_words_warn(lib):
    with pytest.warns(UserWarning, match="Legacy uint32 key array"):
        _under("legacy_prng_key", "warn", lambda lib: lib.random.bits(_words(lib)))(lib)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lib.random.bits(_words(lib))


SEVERAL = {  # over two axes of two devices each, as jax gives it on four devices
    "ppermute": (lambda x: toile.lax.ppermute(x, ("x", "y"), [(0, 1), (1, 2), (2, 3), (3, 0)]),
                 8, [6, 7, 0, 1, 2, 3, 4, 5]),
    "ppermute_swapped": (lambda x: toile.lax.ppermute(x, ("y", "x"), [(0, 1), (1, 2)]),
                         8, [0, 0, 0, 1, 2, 3, 0, 0]),
    "ppermute_grad": (
        toile.grad(lambda x: (toile.lax.ppermute(x, ("x", "y"), [(0, 1), (1, 2)]) * x).sum()),
        8, [2, 3, 4, 6, 2, 3, 0, 0]),
    "pshuffle": (lambda x: toile.lax.pshuffle(x, ("x", "y"), [3, 1, 0, 2]),
                 8, [6, 7, 2, 3, 0, 1, 4, 5]),
    "all_to_all": (lambda x: toile.lax.all_to_all(x, ("x", "y"), 0, 0),
                   16, [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15]),
    "all_to_all_tiled": (lambda x: toile.lax.all_to_all(x, ("y", "x"), 0, 0, tiled=True),
                         16, [0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15]),
    "all_to_all_grad": (
        toile.grad(lambda x: (toile.lax.all_to_all(x, ("y", "x"), 0, 0, tiled=True) * x).sum()),
        16, [0, 16, 8, 24, 4, 20, 12, 28, 2, 18, 10, 26, 6, 22, 14, 30]),
    "all_to_all_other_axis": (
        lambda x: toile.lax.all_to_all(
            x.reshape(2, 4), ("x", "y"), 1, 0, tiled=True).ravel(),
        32, [*range(0, 32, 4), *range(1, 32, 4), *range(2, 32, 4), *range(3, 32, 4)]),
}


@pytest.mark.parametrize(("run", "size", "wanted"), SEVERAL.values(), ids=SEVERAL)
def test_collectives_over_several_axes(eight, run, size, wanted):
    mesh = toile.sharding.Mesh(np.array(eight[:4]).reshape(2, 2), ("x", "y"))
    spec = toile.P(("x", "y"))
    mapped = _mapped(toile, run, spec, spec, mesh=mesh)
    for f in (mapped, toile.jit(mapped)):
        np.testing.assert_array_equal(f(np.arange(size, dtype=np.float32)), wanted)


@pytest.mark.parametrize(("name", "wanted"), [
    ("psum", [3, 3, 3, 3]), ("pmean", [1, 1, 1, 1]), ("pmax", [2, 2, 2, 3]), ("pmin", [0, 0, 0, 3]),
])
def test_groups_of_several_sizes(eight, name, wanted):
    groups = [[0, 1, 2], [3]]
    run = toile.pmap(
        lambda x: getattr(toile.lax, name)(x, "i", axis_index_groups=groups), axis_name="i"
    )
    np.testing.assert_array_equal(run(np.arange(4, dtype=np.float32)), wanted)


@pytest.fixture
def eight():
    """Eight devices, in toile."""
    before = toile.config.read("jax_num_cpu_devices")
    toile.config.update("jax_num_cpu_devices", 8)
    yield toile.devices()
    toile.config.update("jax_num_cpu_devices", before)


def _placed(devices, shapes):
    return [toile.device_put(np.zeros(s, np.float32), d) for s, d in zip(shapes, devices)]


def test_parts_on_wrong_devices(eight):
    mesh = toile.sharding.Mesh(np.array(eight[:2]), "x")
    whole, halves = toile.sharding.NamedSharding(mesh, toile.P()), [(4,), (4,)]
    join = toile.make_array_from_single_device_arrays
    with pytest.raises(ValueError, match=re.escape("contains devices {0, 1} that are not")):
        join((4,), whole, _placed(eight[2:], halves))
    with pytest.raises(ValueError, match="the input arrays must be from distinct devices"):
        join((4,), whole, _placed([eight[0]] * 2, halves))
    with pytest.raises(ValueError, match="must have matching dtypes"):
        join((4,), whole, [toile.device_put(np.zeros(4, t), d)
                           for t, d in zip((np.int32, np.float32), eight)])
    with pytest.raises(ValueError, match="must have one shard each"):
        join((4,), whole, [toile.device_put(V, whole)] * 2)


def test_results_not_known_to_be_replicated(eight):
    mesh = toile.sharding.Mesh(np.array(eight[:4]).reshape(2, 2), ("x", "y"))
    with pytest.raises(ValueError, match="can't be statically inferred"):
        _mapped(toile, lambda x: 2 * x, toile.P("x", "y"), toile.P(None, "y"), mesh=mesh)(
            np.ones((8, 8), np.float32))
    with pytest.raises(ValueError, match="evenly divisible by 2"):
        _mapped(toile, lambda x: x, toile.P("x"), toile.P("x"), mesh=mesh)(np.ones(7, np.float32))


def test_shardings_of_jit_that_do_not_fit(eight):
    two = toile.sharding.NamedSharding(toile.sharding.Mesh(np.array(eight[:2]), "x"), toile.P("x"))
    four = toile.sharding.NamedSharding(toile.sharding.Mesh(np.array(eight[:4]), "x"), toile.P("x"))
    with pytest.raises(ValueError, match="Received incompatible devices for jitted computation"):
        toile.jit(lambda x: x + 1, in_shardings=two, out_shardings=four)(V)
    with pytest.raises(ValueError, match="Received incompatible devices for jitted computation"):
        toile.jit(lambda x: x + 1, in_shardings=two)(toile.device_put(V, four))
    whole = toile.device_put(V, toile.sharding.NamedSharding(two.mesh, toile.P()))
    with pytest.raises(ValueError, match="Sharding passed to jit does not match the sharding on"):
        toile.jit(lambda x: x + 1, in_shardings=two)(whole)


def test_parts_of_a_sharded_array(eight):
    x = toile.device_put(np.arange(8.0), toile.sharding.NamedSharding(
        toile.sharding.Mesh(np.array(eight), "x"), toile.P("x")))
    assert [part.devices() for part in x._arrays] == [{d} for d in eight]
    assert x.sharding._device_assignment == tuple(eight)
    assert x._arrays[3].sharding._device_assignment == (eight[3],)
    x.delete()
    assert x._arrays is None
