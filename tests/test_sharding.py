"""Meshes, partition specs and shardings: bookkeeping as in JAX, on the devices there are."""

import contextlib
import importlib
import pickle
import re

import jax
import jax.sharding as theirs
import numpy as np
import pytest

import toile
import toile.numpy as jnp
import toile.sharding as ours
from toile.engine.source import message
from toile.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

P = PartitionSpec


def both(build):
    """The same expression in both libraries."""
    return build(ours, toile.devices()), build(theirs, jax.devices())


def mesh_of(lib, devices, names=("x",)):
    return lib.Mesh(np.array(devices[:1]).reshape((1,) * len(names)), names)


SPECS = [
    (), (None,), ("x",), ("x", None), (("x", "y"),), (("x",),), ((),), (None, "y", "x"),
]


@pytest.mark.parametrize("entries", SPECS, ids=repr)
def test_partition_spec_prints_and_compares_as_in_jax(entries):
    mine, other = P(*entries), theirs.PartitionSpec(*entries)
    assert repr(mine) == repr(other) and len(mine) == len(other)
    assert list(mine) == list(other)
    for more in SPECS:
        assert (mine == P(*more)) == (other == theirs.PartitionSpec(*more)), more
        if mine == P(*more):
            assert hash(mine) == hash(P(*more))


def test_partition_spec_is_a_leaf_and_pickles():
    spec = P("x", P.UNCONSTRAINED)
    assert toile.tree.leaves(spec) == [spec]
    assert repr(spec) == repr(theirs.PartitionSpec("x", theirs.PartitionSpec.UNCONSTRAINED))
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert P("x") + P("y") == P("x", "y") == P("x") + ("y",) == ("x",) + P("y")
    assert repr(P("x", unreduced={"y"})) == "P('x', unreduced={'y'})"


@pytest.mark.cpu  # it prints what kind of device there is
def test_mesh_bookkeeping():
    for names in (("x",), ("a", "b")):
        mine, other = both(lambda lib, d, names=names: mesh_of(lib, d, names))
        assert repr(mine) == repr(other) and str(mine) == str(other)
        assert mine.shape == other.shape and mine.size == other.size == 1
        assert mine.axis_names == other.axis_names and mine.axis_sizes == other.axis_sizes
        assert str(mine.abstract_mesh) == str(other.abstract_mesh)
        assert mine.device_ids.tolist() == other.device_ids.tolist()
    mesh = mesh_of(ours, toile.devices())
    assert mesh is mesh_of(ours, toile.devices()) and mesh != toile.make_mesh((1,), ("x",))
    assert toile.make_mesh((1,), ("x",)).axis_types == (AxisType.Explicit,)
    assert pickle.loads(pickle.dumps(mesh)) is mesh


@pytest.mark.parametrize("build", [
    lambda lib, d: lib.Mesh(np.array(d[:1]), ("x", "y")),
    lambda lib, d: lib.Mesh(np.array(d[:1]), ("x",), (lib.AxisType.Auto,) * 2),
    lambda lib, d: lib.NamedSharding(mesh_of(lib, d), lib.PartitionSpec("z")),
    lambda lib, d: lib.NamedSharding(mesh_of(lib, d), lib.PartitionSpec("x", "x")),
    pytest.param(lambda lib, d: lib.NamedSharding(lib.AbstractMesh((4,), ("x",)),
                                                  lib.PartitionSpec("x")).shard_shape((6,)),
                 marks=pytest.mark.skipif(jax.__version_info__ < (0, 11), reason="older wording")),
    lambda lib, d: lib.set_mesh(3),
    lambda lib, d: lib.NamedSharding(lib.AbstractMesh((4,), ("x",)),
                                     lib.PartitionSpec()).device_set,
])
def test_errors_are_value_errors_with_jaxs_text(build):
    with pytest.raises(Exception) as other:  # one of JAX's is not a ValueError
        build(theirs, jax.devices())
    with pytest.raises(ValueError) as mine:
        build(ours, toile.devices())
    text = str(other.value).replace("jax.sharding", "toile.sharding")
    if "implies that array axis" in text:  # before jax 0.11 with a prefix, and factors as a list
        text = re.sub(r"factors: \[(\d+)\]", r"factors: (\1,)", text.removeprefix("Sharding "))
    assert message(mine.value).startswith(text.removesuffix("."))  # advice may follow


def test_a_mesh_larger_than_the_devices_is_an_error():
    n = len(toile.devices()) + 1
    with pytest.raises(ValueError, match=rf"must be >= the product of mesh_shape \({n},\)"):
        toile.make_mesh((n,), ("x",))


def test_named_sharding_agrees_with_jax():
    def facts(lib, devices):
        mesh = mesh_of(lib, devices, ("x", "y"))
        s = lib.NamedSharding(mesh, lib.PartitionSpec("x", None))
        return (repr(s), s.shard_shape((4, 3)), s.is_fully_replicated, s.is_fully_addressable,
                s.num_devices, list(s.devices_indices_map((4, 3)).values()), s.memory_kind,
                s.is_equivalent_to(lib.NamedSharding(mesh, lib.PartitionSpec()), 2),
                s.is_equivalent_to(lib.SingleDeviceSharding(devices[0]), 2),
                s == lib.NamedSharding(mesh, lib.PartitionSpec("x", None)),
                s == lib.NamedSharding(mesh, lib.PartitionSpec("x")),
                repr(s.update(spec=lib.PartitionSpec())), s.replicated_axes)

    mine, other = both(facts)
    assert mine == other


@pytest.mark.parametrize("entries", [("x",), (("x", "y"), None), (None, "y"), (), ("y", "x")])
def test_abstract_shard_shapes(entries):
    def shape(lib, _):
        # axes of abstract meshes were Auto by default before 0.11
        mesh = lib.AbstractMesh((4, 2), ("x", "y"), (lib.AxisType.Explicit,) * 2)
        s = lib.NamedSharding(mesh, lib.PartitionSpec(*entries))
        return repr(s), s.shard_shape((16, 8)), s.num_devices, s.is_fully_replicated

    mine, other = both(shape)
    assert mine == other


def test_axes_of_abstract_meshes_are_explicit():
    assert AbstractMesh((4, 2), ("x", "y")).axis_types == (AxisType.Explicit,) * 2
    if jax.__version_info__ >= (0, 11):
        assert repr(theirs.AbstractMesh((4,), ("x",))) == repr(AbstractMesh((4,), ("x",)))


class Fake:
    """A device that is not there, to try the index arithmetic on."""

    platform, device_kind, process_index = "cpu", "fake", 0

    def __init__(self, id):
        self.id = id


def test_index_arithmetic_over_several_devices():
    grid = np.array([Fake(i) for i in range(8)]).reshape(4, 2)
    mesh = Mesh(grid, ("x", "y"))
    x = np.arange(16 * 4).reshape(16, 4)
    found = NamedSharding(mesh, P(("y", "x"), None)).devices_indices_map(x.shape)
    for (i, j), device in np.ndenumerate(grid):
        k = j * 4 + i  # the first name varies slowest
        np.testing.assert_array_equal(x[found[device]], x[2 * k : 2 * k + 2])
    replicated = NamedSharding(mesh, P(None, None))
    assert replicated.is_fully_replicated and replicated.shard_shape((3, 3)) == (3, 3)
    assert not NamedSharding(mesh, P("x")).is_equivalent_to(NamedSharding(mesh, P("y")), 1)
    assert NamedSharding(mesh, P("x")).is_equivalent_to(NamedSharding(mesh, P("x", None)), 2)


def test_mesh_contexts():
    mesh = mesh_of(ours, toile.devices())
    assert ours.get_mesh().empty and ours.get_abstract_mesh().empty
    with toile.set_mesh(mesh):
        assert ours.get_mesh() is mesh and ours.get_abstract_mesh() == mesh.abstract_mesh
    assert ours.get_mesh().empty
    with mesh:
        assert ours.get_mesh().empty  # as in JAX: the older context is another one
    other = AbstractMesh((4,), ("q",))
    with ours.use_abstract_mesh(other):
        assert ours.get_abstract_mesh() == other
    setter = toile.set_mesh(mesh)  # works at once, too
    assert ours.get_mesh() is mesh
    setter.__exit__(None, None, None)
    assert ours.get_mesh().empty
    with pytest.raises(ValueError, match="outside"):
        toile.jit(lambda x: (toile.set_mesh(mesh), x)[1])(1.0)
    with pytest.raises(ValueError, match="manual axes"):
        toile.set_mesh(ours.Mesh(toile.devices()[:1], ("x",), ours.AxisType.Manual))
    assert ours.get_mesh().empty


def test_a_mesh_decorates_a_function():
    mesh = mesh_of(ours, toile.devices())

    @mesh
    def put(x, *, name="x"):
        """Divide an array."""
        return toile.lax.with_sharding_constraint(x, P(name))

    assert put.__name__ == "put" and put.__doc__ == "Divide an array."
    assert put(jnp.arange(4.0)).sharding == NamedSharding(mesh, P("x"))
    with pytest.raises(ValueError):
        put(jnp.arange(4.0), name="unknown")
    with pytest.raises(RuntimeError):  # the mesh does not apply outside the function
        put.__wrapped__(jnp.arange(4.0))


def test_a_jitted_function_is_traced_again_under_another_mesh():
    seen = []

    @toile.jit
    def f(x):
        seen.append(ours.get_abstract_mesh().axis_names)
        return x

    f(1.0)
    with toile.set_mesh(mesh_of(ours, toile.devices())):
        f(1.0)
        f(2.0)
    f(3.0)
    assert seen == [(), ("x",)]


def test_user_contexts_are_part_of_the_jit_key():
    context, traces = toile.make_user_context(default_value=0), []

    @toile.jit
    def f(x):
        traces.append(context.value)
        return x

    f(1.0)
    with context(1):
        f(1.0)
        with context(2):
            f(1.0)
        f(1.0)
    f(1.0)
    assert traces == [0, 1, 2]


def test_arrays_and_placement():
    mesh = mesh_of(ours, toile.devices())
    sharding = NamedSharding(mesh, P("x"))
    x = toile.device_put(np.arange(4.0), sharding)
    assert isinstance(x.sharding, ours.Sharding) and sharding.is_equivalent_to(x.sharding, 1)
    with pytest.raises(ValueError, match="rank at least 1"):
        toile.device_put(np.ones(()), sharding)
    made = toile.make_array_from_callback((4,), sharding, lambda i: np.arange(4.0)[i])
    np.testing.assert_array_equal(made, np.arange(4.0))
    with pytest.raises(ValueError, match="Expected shard shape"):
        toile.make_array_from_callback((4,), sharding, lambda i: np.arange(3.0))
    parts = toile.make_array_from_single_device_arrays((4,), sharding, [jnp.arange(4)])
    np.testing.assert_array_equal(parts, np.arange(4))
    local = toile.make_array_from_process_local_data(sharding, np.arange(4))
    np.testing.assert_array_equal(local, np.arange(4))
    with pytest.raises(ValueError, match="single process"):
        toile.make_array_from_process_local_data(sharding, np.arange(4), (8,))
    with toile.set_mesh(mesh):
        np.testing.assert_array_equal(toile.reshard(x, P("x")), x)
    with pytest.raises(ValueError, match="current mesh"):
        toile.reshard(x, P("x"))


PLACES = {
    "device_put": "lib.device_put(np.ones((8, 2)), s)",
    "a jitted function": "lib.jit(lambda v: v * 2)(lib.device_put(np.ones((8, 2)), s))",
    "out_shardings": "lib.jit(lambda v: v * 2, out_shardings=s)(np.ones((8, 2)))",
    "an operator": "lib.device_put(np.ones((8, 2)), s) + 1",
    "a callback": "lib.make_array_from_callback((8, 2), s, lambda i: np.ones((8, 2))[i])",
    "its parts": "lib.make_array_from_single_device_arrays((8, 2), s, "
                 "[lib.device_put(np.ones((8, 2)), lib.devices()[0])])",
}


@pytest.mark.cpu
@pytest.mark.parametrize("place", PLACES)
def test_one_device_keeps_a_named_sharding(place):
    """Code for a mesh asks `x.sharding.spec` whether the mesh is large or not."""
    found = []
    for lib in (toile, jax):
        shardings = {toile: ours, jax: theirs}[lib]
        mesh = mesh_of(shardings, lib.devices(), ("x", "y"))
        s = shardings.NamedSharding(mesh, shardings.PartitionSpec("x", "y"))
        x = eval(PLACES[place], {"lib": lib, "np": np, "s": s})
        assert x.sharding == s
        found.append((repr(x.sharding), x.committed, x.is_fully_replicated, x.shape, str(x.dtype),
                      len(x.addressable_shards), np.asarray(x).tolist()))
    assert found[0] == found[1]


SPECS_AND_MESHES = {
    "constraint": "lib.lax.with_sharding_constraint(x, P('x'))",
    "constraint in jit": "lib.jit(lambda v: lib.lax.with_sharding_constraint(v, P('x')))(x)",
    "constraint P()": "lib.lax.with_sharding_constraint(x, P())",
    "constraint None": "lib.lax.with_sharding_constraint(x, None)",
    "constraint in a tree": "lib.lax.with_sharding_constraint([x], [None])[0]",
    "device_put": "lib.device_put(np.arange(8.0, dtype='f4'), P('x'))",
    "device_put in jit": "lib.jit(lambda v: lib.device_put(v, P('x')))(x)",
    "device_put of a tree": "lib.device_put({'a': x}, {'a': P('x')})['a']",
    "device_put with a Format": "lib.device_put(x, Format(None, NamedSharding(mesh, P('x'))))",
}


@pytest.mark.cpu
@pytest.mark.parametrize("within", ["no mesh", "set_mesh", "with mesh"])
@pytest.mark.parametrize("case", SPECS_AND_MESHES)
@pytest.mark.filterwarnings("ignore:.*with mesh.*:DeprecationWarning")
def test_specs_are_of_the_mesh_in_force(case, within):
    found = []
    for lib in (toile, jax):
        shardings = {toile: ours, jax: theirs}[lib]
        layout = importlib.import_module(f"{lib.__name__}.experimental.layout")
        mesh = mesh_of(shardings, lib.devices())
        block = {"no mesh": contextlib.nullcontext(), "with mesh": mesh}.get(within)
        names = {"lib": lib, "np": np, "P": shardings.PartitionSpec, "mesh": mesh,
                 "NamedSharding": shardings.NamedSharding, "Format": layout.Format,
                 "x": lib.numpy.arange(8.0)}
        with block or lib.set_mesh(mesh):
            try:
                made = eval(SPECS_AND_MESHES[case], names)
                found.append((repr(made.sharding.mesh), np.asarray(made).tolist()))
            except (ValueError, RuntimeError) as error:
                found.append(type(error))
            except TypeError:  # jax wants an array that lies on the mesh already
                assert lib is jax and isinstance(found[0], tuple)
                return
    assert found[0] == found[1]


def test_kinds_of_memory_are_places_to_stay_at():
    x = jnp.arange(3)
    for space in toile.memory.Space:
        y = toile.device_put(x, space)
        assert y.devices() == x.devices() and y.tolist() == [0, 1, 2]


@pytest.mark.cpu
def test_functions_are_traced_again_under_another_mesh():
    seen = []

    @toile.jit
    def f(x):
        seen.append(x)
        return toile.lax.with_sharding_constraint(x * 2, P("x"))

    a, b = (mesh_of(ours, toile.devices(), names) for names in (("x",), ("x", "y")))
    for mesh in (a, b, a):
        with mesh:
            assert f(np.ones(4)).sharding.mesh == mesh
    assert len(seen) == 2
    with pytest.raises(RuntimeError, match="non-empty mesh"):
        f(np.ones(4))
    with a, b:
        assert f(np.ones(4)).sharding.mesh == b
    assert len(seen) == 4  # within both: a place of its own


def on_mesh(lib, *names):
    """A sharding of a library over its first device."""
    shardings = importlib.import_module(f"{lib.__name__}.sharding")
    mesh = mesh_of(shardings, lib.devices())
    return shardings.NamedSharding(mesh, shardings.PartitionSpec(*names))


def told(sharding):
    """A sharding in words that both libraries have."""
    return sharding and (type(sharding).__name__, list(getattr(sharding, "spec", ())))


# A jitted function and its arguments, from a library, two shardings of it and an array.
LOWERED = {
    "nothing is said": lambda lib, s, r, x: (lib.jit(lambda a: a + 1), [x]),
    "one": lambda lib, s, r, x: (lib.jit(lambda a: a + 1, in_shardings=s), [x]),
    "a tuple": lambda lib, s, r, x: (lib.jit(lambda a, b: a + b, in_shardings=(s, r)), [x, x]),
    "a list": lambda lib, s, r, x: (lib.jit(lambda a, b: a + b, in_shardings=[r, s]), [x, x]),
    "None": lambda lib, s, r, x: (lib.jit(lambda a, b: a + b, in_shardings=(s, None)), [x, x]),
    "a tree": lambda lib, s, r, x: (
        lib.jit(lambda a, b: a["x"] + b, in_shardings=({"x": s}, r)), [{"x": x}, x]),
    "a prefix": lambda lib, s, r, x: (
        lib.jit(lambda a, b: a["x"] + b + a["y"], in_shardings=(s, r)), [{"x": x, "y": x}, x]),
    "not used": lambda lib, s, r, x: (lib.jit(lambda a, b: a + 1, in_shardings=(s, r)), [x, x]),
    "a static argument": lambda lib, s, r, x: (
        lib.jit(lambda a, n, b: a * n + b, in_shardings=(s, r), static_argnums=1), [x, 3, x]),
    "of an array": lambda lib, s, r, x: (lib.jit(lambda a, b: a + b), [lib.device_put(x, s), x]),
    "of a shape": lambda lib, s, r, x: (
        lib.jit(lambda a: a + 1), [lib.ShapeDtypeStruct((4, 4), np.float32, sharding=s)]),
}


@pytest.mark.cpu
@pytest.mark.parametrize("case", LOWERED)
def test_shardings_that_compiled_functions_want(case):
    found = []
    for lib in (toile, jax):
        s, r = on_mesh(lib, "x"), on_mesh(lib)
        f, args = LOWERED[case](lib, s, r, lib.numpy.ones((4, 4)))
        made = f.lower(*args).compile().input_shardings
        found.append(lib.tree_util.tree_map(told, made, is_leaf=lambda x: x is None))
    assert found[0] == found[1]


@pytest.mark.cpu
def test_arguments_by_name_have_no_shardings():
    s = NamedSharding(mesh_of(ours, toile.devices()), P())
    f = toile.jit(lambda a: a, in_shardings=s)
    for run in (f, f.lower, f.trace):
        with pytest.raises(ValueError, match="does not support kwargs.*by name"):
            run(a=np.ones(3))


# New arrays like one that lies on a mesh: from a library, the array and its shape with a sharding.
LIKE = {
    "zeros": lambda lib, x, t: lib.numpy.zeros_like(x),
    "ones": lambda lib, x, t: lib.numpy.ones_like(x),
    "full": lambda lib, x, t: lib.numpy.full_like(x, 3),
    "empty": lambda lib, x, t: lib.numpy.empty_like(x) * 0,
    "another dtype": lambda lib, x, t: lib.numpy.zeros_like(x, dtype=np.int32),
    "the same shape": lambda lib, x, t: lib.numpy.zeros_like(x, shape=(4, 4)),
    "another shape": lambda lib, x, t: lib.numpy.zeros_like(x, shape=(8, 2)),
    "another place": lambda lib, x, t: lib.numpy.zeros_like(x, device=lib.devices()[0]),
    "lax": lambda lib, x, t: lib.lax.full_like(x, 2.0),
    "a shape": lambda lib, x, t: lib.numpy.ones_like(t),
    "a shape, lax": lambda lib, x, t: lib.lax.full_like(t, 2.0),
    "lax.full": lambda lib, x, t: lib.lax.full((4, 4), 1.0, sharding=x.sharding),
    "states of optimizers": lambda lib, x, t: lib.tree_util.tree_map(
        lib.numpy.zeros_like, {"w": x})["w"],
}


@pytest.mark.cpu
@pytest.mark.parametrize("case", LIKE)
def test_new_arrays_lie_where_those_they_are_like_do(case):
    found = []
    for lib in (toile, jax):
        s = on_mesh(lib, "x")
        x = lib.device_put(np.ones((4, 4), np.float32), s)
        made = LIKE[case](lib, x, lib.ShapeDtypeStruct((4, 4), np.float32, sharding=s))
        where = told(made.sharding)
        committed = made.committed if where[1] else None  # arrays on the only device never are
        found.append((where, committed, made.dtype, np.asarray(made).tolist()))
    assert found[0] == found[1]
