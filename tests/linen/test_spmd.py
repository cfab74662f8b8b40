"""Logical axes against flax's: rules, boxes, names beside variables, scan and vmap over them."""

import importlib
import types

import numpy as np
import pytest

import toile.linen as nn
import toile.numpy as jnp
from tests.linen.oracle import flat, flax_library, toile_library
from tests.quick_jax import OPTIONS
from toile.core import meta
from toile.linen import partitioning, spmd
from toile.sharding import PartitionSpec as P

RULES = (("batch", "X"), ("features", "X"), ("heads", "Y"), ("batch", "Z"))


def library(lib, modules):
    load = importlib.import_module
    lib.spmd = load(f"{modules}.linen.spmd")
    lib.partitioning = load(f"{modules}.linen.partitioning")
    lib.core_spmd = load(f"{modules}.core.spmd")
    lib.meta = load(f"{modules}.core.meta")
    lib.sharding = load(f"{lib.name}.sharding")
    lib.module = load(f"{modules}.linen.module").Module
    lib.init = load(f"{lib.name}.nn.initializers")
    lib.transforms = load(f"{modules}.linen.transforms")
    return lib


@pytest.fixture(scope="module")
def both():
    return library(flax_library(), "flax"), library(toile_library(), "toile")


def plain(x):
    """PartitionSpecs as tuples, sentinels as text, containers as dicts: comparable."""
    if hasattr(x, "unreduced"):
        return ("spec", *(str(a) if "UNCON" in str(a) else a for a in x))
    if type(x).__name__ == "NamedSharding":
        return ("named", plain(x.spec), dict(x.mesh.shape))
    if hasattr(x, "items"):
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, (tuple, list)):
        return type(x)(map(plain, x))
    return x


def agree(both, f):
    """Both libraries give the same answer, or an error of the same kind and first words."""
    seen = []
    for lib in both:
        try:
            seen.append(plain(f(lib)))
        except Exception as e:
            seen.append((type(e).__name__, str(e).split("\n")[0].split(" (")[0][:90]))
    assert close(*seen), seen
    return seen[1]


def close(a, b):
    """The same structure with nearly the same arrays."""
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and np.allclose(a, b, rtol=2e-5, atol=1e-5)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(close(a[k], b[k]) for k in a)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(close, a, b))
    return a == b


NAMES = (
    ("batch", "length", "heads", "features"), ("features", "batch"), ("batch", None, "heads"), (),
    ("a", "a"), (None, None), None, ("heads", "batch", "features"), ("batch",), ("other", "thing"),
)  # fmt: skip
RULE_SETS = (
    RULES, (), (("batch", ("X", "Y")), ("heads", "Y"), ("features", None)), [("heads", "X")],
    (("a", "X"), ("batch", None), ("batch", "X")), "rules", None,
)  # fmt: skip


@pytest.mark.parametrize("rules", RULE_SETS, ids=range(len(RULE_SETS)))
def test_logical_to_mesh_axes(both, rules):
    for names in NAMES:
        agree(both, lambda lib, names=names: lib.spmd.logical_to_mesh_axes(names, rules))


def test_unconstrained_axes_stay(both):
    f = lambda lib: lib.spmd.logical_to_mesh_axes(
        ("batch", lib.sharding.PartitionSpec.UNCONSTRAINED, "heads"), RULES
    )
    assert agree(both, f)[2] != "Y"


def test_logical_to_mesh_of_trees(both):
    def tree(lib):
        spec = lib.sharding.PartitionSpec
        return {"a": spec("batch", "heads"), "b": [spec(None, "features"), spec()], "c": None}

    agree(both, lambda lib: lib.spmd.logical_to_mesh(tree(lib), RULES))
    mesh = lambda lib: lib.sharding.Mesh(np.array(lib.jax.devices()[:1]).reshape(1, 1, 1), "XYZ")
    agree(both, lambda lib: lib.spmd.logical_to_mesh_sharding(tree(lib), mesh(lib), RULES))


def test_rules_in_force(both):
    def f(lib):
        m = lib.core_spmd
        seen = [m.get_logical_axis_rules()]
        with m.logical_axis_rules(RULES):
            seen.append(lib.spmd.logical_to_mesh_axes(("batch", "heads")))
            with lib.partitioning.axis_rules(()):
                seen.append(lib.spmd.logical_to_mesh_axes(("batch", "heads")))
            seen.append(m.get_logical_axis_rules())
        lib.partitioning.set_axis_rules(RULES[:1])
        seen.append(lib.partitioning.get_axis_rules())
        m.set_logical_axis_rules(())
        return seen

    agree(both, f)


def test_core_rules(both):
    sharding = lambda lib: lib.sharding.PartitionSpec("batch", None, "heads")
    agree(both, lambda lib: lib.core_spmd.get_pspec(sharding(lib), RULES))
    agree(both, lambda lib: lib.core_spmd.apply_rules(("batch", "x"), None))
    agree(both, lambda lib: lib.core_spmd.from_sharding_rules(("batch", None, "z"), RULES))
    agree(both, lambda lib: lib.core_spmd.composite_rules((("a", "X"),), (("b", "Y"),)))
    agree(both, lambda lib: lib.core_spmd.composite_rules((("a", "X"),), (("a", "Y"),)))
    agree(both, lambda lib: lib.core_spmd.composite_rules(None, ()))
    agree(both, lambda lib: lib.core_spmd.get_mesh(sharding(lib)))
    agree(both, lambda lib: lib.core_spmd.shard_value(1.0, None, None, None))
    error = agree(both, lambda lib: lib.core_spmd.shard_value(1.0, sharding(lib), None, None)[0])
    assert error[0] == "ValueError"

    def on_mesh(lib):
        mesh = lib.sharding.Mesh(np.array(lib.jax.devices()[:1]), ("X",))
        x = lib.core_spmd.shard_value(lib.jnp.ones(2), ("batch",), (("batch", "X"),), mesh)
        return np.asarray(x)

    agree(both, on_mesh)


@pytest.mark.parametrize("fallback", ["AXIS_IS_UNSHARDED", "RAISE_ERROR", "NO_CONSTRAINT"])
def test_with_logical_constraint(both, fallback):
    def f(lib):
        x = {"a": lib.jnp.ones((2, 3)), "b": lib.jnp.zeros(2)}
        names = {"a": ("batch", "other"), "b": None}
        kind = lib.spmd.RulesFallback[fallback]
        mesh = lib.sharding.Mesh(np.array(lib.jax.devices()[:1]), ("X",))
        out = [lib.spmd.with_logical_constraint(x, names, fallback=kind)]
        with lib.core_spmd.logical_axis_rules(RULES):
            out.append(lib.spmd.with_logical_constraint(x["a"], names["a"], fallback=kind))
            out.append(
                lib.jax.jit(
                    lambda x: lib.spmd.with_logical_constraint(
                        x, names["a"], mesh=mesh, fallback=kind
                    )
                )(x["a"])
            )
        return lib.jax.tree.map(lambda x: np.asarray(x).tolist(), out)

    agree(both, f)


def boxed_model(lib):
    class Model(lib.module):
        @lib.nn.compact
        def __call__(self, x):
            init = lib.spmd.with_logical_partitioning(lib.init.lecun_normal(), ("embed", "mlp"))
            kernel = self.param("kernel", init, (x.shape[-1], 4))
            return x @ kernel

    return Model()


def test_boxes(both):
    def f(lib):
        x = lib.jnp.ones((2, 3))
        variables = quick(lib, boxed_model(lib).init, lib.random.key(0), x)
        box = variables["params"]["kernel"]
        specs = lib.meta.get_partition_spec(variables)
        return [
            type(box).__name__, box.names, box.mesh, box.rules, specs,
            lib.spmd.logical_to_mesh(specs, (("mlp", "model"),)),
            box.add_axis(0, {lib.meta.PARTITION_NAME: "layers"}).names,
            box == box, box == box.replace(names=()), box == 3,
            sorted(box.to_nnx_metadata()),
            flat(lib, boxed_model(lib).apply(variables, x))[""].shape,
        ]  # fmt: skip

    agree(both, f)


def test_metadata_for_nnx_and_back():
    box = spmd.LogicallyPartitioned(jnp.ones(2), ("a",), rules=RULES)
    metadata = box.to_nnx_metadata()
    assert metadata["out_sharding"] == ("a",) and metadata["sharding_rules"] == RULES
    again = spmd.LogicallyPartitioned.from_nnx_metadata({**metadata, "more": 1})
    assert (again.names, again.rules) == (box.names, box.rules)


def test_boxes_under_a_mesh_and_jit():
    rules = (("mlp", "X"),)
    lib = library(toile_library(), "toile")
    mesh = lib.sharding.Mesh(np.array(lib.jax.devices()[:1]), ("X",))
    box = spmd.LogicallyPartitioned(jnp.ones((2, 2)), ("embed", "mlp"), mesh=mesh, rules=rules)
    assert np.array_equal(lib.jax.jit(lambda b: b.unbox())(box), np.ones((2, 2)))
    assert meta.unbox({"a": box})["a"].shape == (2, 2)


def axes_model(lib):
    p = lib.partitioning

    class Layer(lib.module):
        @lib.nn.compact
        def __call__(self, x, _=None):
            kernel = p.param_with_axes(
                "kernel", lib.init.normal(1.0), (x.shape[-1], x.shape[-1]), axes=("embed", "mlp")
            )
            shift = self.param("shift", lib.init.zeros, (x.shape[-1],))
            count = p.variable_with_axes(
                "stats", "mean", lib.jnp.zeros, (x.shape[-1],), axes=("embed",)
            )
            if self.is_mutable_collection("stats"):
                count.value = count.value + x.mean(0)
            return x @ kernel + shift + count.value, None

    return Layer


def quick(lib, f, *args):
    """f(*args); jax compiles it as one."""
    return lib.jax.jit(f, compiler_options=OPTIONS)(*args) if lib.name == "jax" else f(*args)


def describe(lib, variables):
    """Arrays by path, and the names beside them."""
    names = {k: v for k, v in variables.items() if k.endswith("_axes")}
    rest = {k: v for k, v in variables.items() if not k.endswith("_axes")}
    return [flat(lib, rest), {k: lib.partitioning.get_axis_names(v) for k, v in names.items()}]


def test_axes_beside_variables(both):
    def f(lib):
        x = lib.jnp.ones((2, 3))
        layer = axes_model(lib)()
        variables = quick(lib, layer.init, lib.random.key(0), x)
        (y, _), changed = quick(lib, lambda v: layer.apply(v, x, mutable=["stats"]), variables)
        return [*describe(lib, variables), *describe(lib, changed), np.asarray(y)]

    agree(both, f)


def test_scan_with_axes(both):
    def f(lib):
        p = lib.partitioning
        stack = p.scan_with_axes(
            axes_model(lib), variable_axes={"params": 0, "stats": 1}, split_rngs={"params": True},
            length=3, axis_name="layers", axes_collections=("params", "stats"),
        )()  # fmt: skip
        x = lib.jnp.ones((2, 3))
        variables = quick(lib, lambda key: stack.init(key, x, None), lib.random.key(0))
        apply = lambda v: stack.apply(v, x, None, mutable=["stats"])
        (y, _), changed = quick(lib, apply, variables)
        return [*describe(lib, variables), *describe(lib, changed), np.asarray(y)]

    names = agree(both, f)[1]
    assert names["params_axes"]["kernel"] == ("spec", "layers", "embed", "mlp")
    assert names["stats_axes"]["mean"] == ("spec", "embed", "layers")


def test_vmap_with_axes(both):
    def f(lib):
        p = lib.partitioning
        mapped = p.vmap_with_axes(
            axes_model(lib), variable_axes={"params": 1, "stats": 0}, split_rngs={"params": True},
            in_axes=(0, None), partitioning_axis_names={"params": "heads", "stats": "heads"},
        )()  # fmt: skip
        x = lib.jnp.ones((4, 2, 3))
        variables = quick(lib, lambda key: mapped.init(key, x, None), lib.random.key(0))
        y, _ = quick(lib, lambda v: mapped.apply(v, x, None), variables)
        return [*describe(lib, variables), np.asarray(y)]

    assert agree(both, f)[1]["params_axes"]["kernel"] == ("spec", "embed", "heads", "mlp")


def test_remat_with_static_arguments(both):
    def f(lib):
        class Layer(lib.module):
            @lib.nn.compact
            def __call__(self, x, options, y):
                assert options["train"] is True  # Python's own: not traced, not hashed
                w = self.param("w", lib.init.ones, (3,))
                return lib.jnp.sin(x * w) * y

        layer = lib.partitioning.remat(Layer, static_argnums=(1,))()
        args = lib.jnp.arange(3.0), {"train": True}, 2.0
        variables = layer.init(lib.random.key(0), *args)
        grads = quick(lib, lib.jax.grad(lambda v: layer.apply(v, *args).sum()), variables)
        return flat(lib, grads)

    agree(both, f)


def test_errors(both):
    def twice(lib):
        class Twice(lib.module):
            @lib.nn.compact
            def __call__(self, x):
                for axes in (("a",), ("b",)):
                    self.sow(
                        "params_axes", "w_axes", lib.partitioning.AxisMetadata(axes),
                        reduce_fn=lib.partitioning_reduce,
                    )  # fmt: skip
                return x

        return Twice().init(lib.random.key(0), lib.jnp.ones(1))

    flax_lib, toile_lib = both
    flax_lib.partitioning_reduce = flax_lib.partitioning._param_with_axes_sow_reduce_fn
    toile_lib.partitioning_reduce = partitioning._same_names
    assert agree(both, twice)[0] == "ValueError"

    def immutable(lib):
        class Reads(lib.module):
            @lib.nn.compact
            def __call__(self):
                make = lib.jnp.zeros
                return lib.partitioning.variable_with_axes("stats", "m", make, (1,), axes=("a",))

        return Reads().apply({})

    seen = []
    for lib in both:
        with pytest.raises(Exception) as info:
            immutable(lib)
        seen.append(type(info.value).__name__)
    assert seen == ["ScopeVariableNotFoundError"] * 2


@pytest.mark.parametrize("name", ["spmd", "partitioning"])
def test_every_public_name_is_there(both, name):
    ours, theirs = (getattr(lib, name) for lib in reversed(both))
    modules = lambda m: {k for k, v in vars(m).items() if isinstance(v, types.ModuleType)}
    missing = {k for k in vars(theirs) if not k.startswith("_")} - set(vars(ours)) - modules(theirs)
    assert missing <= {"Any", "Callable", "Mapping", "Optional", "Tuple"}


def test_names_of_linen():
    assert nn.logical_to_mesh_axes(("a",), (("a", "X"),)) == P("X")
