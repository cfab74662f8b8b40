"""Rules of lifted transformations: names, signatures, errors, warnings, what jit traces and why."""

import functools
import inspect
import threading
import warnings

import numpy as np
import pytest

import toile
import toile.linen as nn
import toile.numpy as jnp
from tests.linen.oracle import flax_library, toile_library
from tests.linen.programs import x_of
from toile import errors, random

LIBRARIES = pytest.mark.parametrize("lib", [flax_library, toile_library])
NAMES = (
    "vmap scan jit remat checkpoint remat_scan map_variables vjp jvp grad value_and_grad custom_vjp"
    " while_loop cond switch named_call add_metadata_axis fold_rngs"
).split()
X = np.ones((2, 3), np.float32)
SPLIT = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}}


@pytest.mark.parametrize("name", NAMES)
def test_signature(name):
    ours, theirs = (
        inspect.signature(getattr(lib().nn, name)) for lib in (toile_library, flax_library)
    )
    shown = lambda s: [(p.name, p.kind, repr(p.default)) for p in s.parameters.values()]
    same = lambda s: [(n, k, d.split(" at 0x")[0].replace("id_fn", "<lambda>")) for n, k, d in s]
    assert same(shown(ours)) == same(shown(theirs))


@pytest.mark.parametrize("name", NAMES)
def test_documented(name):
    assert len(getattr(nn, name).__doc__) > 40


def test_names_of_classes():
    for lib in (toile_library(), flax_library()):
        n = lib.nn
        made = [
            n.vmap(n.Dense, **SPLIT), n.scan(n.Dense), n.jit(n.Dense), n.remat(n.Dense),
            n.checkpoint(n.Dense), n.remat_scan(n.Dense, (2,)), n.map_variables(n.Dense),
            n.fold_rngs(n.Dense), n.vmap(n.scan(n.Dense), **SPLIT),
        ]  # fmt: skip
        assert [cls.__name__ for cls in made] == [
            "VmapDense", "ScanDense", "JitDense", "CheckpointDense", "CheckpointDense",
            "Remat_scanDense", "Map_variablesDense", "Fold_rngsDense", "VmapScanDense",
        ]  # fmt: skip


def test_fields_of_a_transformed_class():
    VmapDense = nn.vmap(functools.partial(nn.Dense, use_bias=False), **SPLIT)
    layer = VmapDense(4, name="it")
    assert (layer.features, layer.use_bias, layer.name) == (4, False, "it")
    assert isinstance(layer, nn.Dense)
    assert layer.clone(features=2).features == 2


def test_subclass_of_a_transformed_class():
    """It may have more fields than the class inside."""

    class Base(nn.Module):
        features: int

        @nn.compact
        def __call__(self, x):
            return nn.Dense(self.features, name="base")(x)

    class Longer(nn.remat(Base)):
        more: int = 2

        @nn.compact
        def __call__(self, x):
            x = super().__call__(x)
            return nn.Dense(self.more, name="longer")(x)

    variables = Longer(4).init(random.key(0), X)
    assert toile.tree.map(jnp.shape, variables)["params"]["longer"]["kernel"] == (4, 2)


# ---- targets


@pytest.mark.parametrize("name", ["vmap", "scan", "jit", "remat", "map_variables", "fold_rngs"])
def test_instances_are_no_targets(name):
    with pytest.raises(errors.TransformTargetError, match="not a Module class") as e:
        getattr(nn, name)(nn.Dense(3))
    assert "transform the class" in str(e.value)


@LIBRARIES
def test_direct_transforms_want_functions(lib):
    n = lib().nn
    with pytest.raises(ValueError, match="can only be applied on a Module method"):
        n.vjp(n.Dense, n.Dense(3), X)
    with pytest.raises(ValueError, match="must be callable"):
        n.cond(True, 3, lambda m: 1, n.Dense(3))


@LIBRARIES
def test_methods_argument(lib):
    n = lib().nn
    with pytest.raises(ValueError, match="methods argument must be"):
        n.vmap(n.Dense, methods="encode", **SPLIT)


@LIBRARIES
@pytest.mark.parametrize("returned", ["module", "variable", "in a tuple"])
def test_returned_modules(lib, returned):
    lib = lib()
    n = lib.nn

    class Model(n.Module):
        @n.jit
        @n.compact
        def __call__(self, x):
            if returned == "variable":
                return self.variable("state", "v", lambda: x)
            dense = n.Dense(3)
            return dense if returned == "module" else (x, [dense])

    error = "TransformedMethodReturnValueError"
    with pytest.raises(Exception, match="__call__ cannot return Modules or Variables") as e:
        Model().init(lib.random.key(0), x_of(lib, 2, 3))
    assert type(e.value).__name__ == error


# ---- kwargs


@pytest.mark.parametrize("transform", ["vmap", "scan"])
def test_dropped_kwargs_are_named_with_the_fix(transform):
    class Model(nn.Module):
        def __call__(self, c, x=None, scale=1.0, shift=0.0):
            return c * scale + shift, None

    Lifted = nn.vmap(Model) if transform == "vmap" else nn.scan(Model, length=2)
    with pytest.warns(RuntimeWarning) as seen:
        c, _ = Lifted().apply({}, jnp.ones(2), scale=2.0, shift=1.0)
    text = str(seen[0].message)
    assert f'kwargs are not supported in {transform}, so "scale, shift" is(are) ignored' in text
    assert "by position" in text and "close over" in text
    np.testing.assert_array_equal(c, np.ones(2))


def test_kept_kwargs_do_not_warn():
    class Model(nn.Module):
        @nn.compact
        def __call__(self, x, scale=1.0):
            return nn.Dense(2)(x) * scale

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mapped = functools.partial(nn.map_variables, mutable=True)
        for lift in (nn.remat, nn.jit, mapped, nn.fold_rngs):
            lift(Model)().init(random.key(0), X, scale=2.0)


# ---- errors of the transformations


@LIBRARIES
def test_broadcast_variables_must_not_depend_on_the_loop(lib):
    lib = lib()
    n = lib.nn

    class Body(n.Module):
        @n.compact
        def __call__(self, c, x):
            w = self.param("w", lambda key: lib.random.normal(key, ()) * c)
            return c * w, x

    Scanned = n.scan(Body, variable_broadcast="params", split_rngs={"params": False})
    with pytest.raises(ValueError, match="broadcasted variable has a data dependency"):
        Scanned().init(lib.random.key(0), lib.jnp.ones(()), lib.jnp.ones(3))


@LIBRARIES
def test_broadcast_variables_of_split_streams(lib):
    lib = lib()
    n = lib.nn

    def body(m, c, x):
        return n.Dense(3)(c), None

    class Model(n.Module):
        @n.compact
        def __call__(self, c, xs):
            run = n.scan(body, variable_broadcast="params", split_rngs={"params": True})
            return run(self, c, xs)

    with pytest.raises(ValueError, match="broadcasted variable has a data dependency"):
        Model().init(lib.random.key(0), x_of(lib, 3), x_of(lib, 4, 3))


@LIBRARIES
def test_sizes_and_lengths(lib):
    lib = lib()
    n = lib.nn
    key, x, y = lib.random.key(0), x_of(lib, 2, 3), x_of(lib, 4, 3)

    class Sum(n.Module):
        def __call__(self, a, b=None):
            return a if b is None else a + b

    with pytest.raises(ValueError, match="Inconsistent batch axis sizes"):
        n.vmap(Sum, in_axes=(0, 0))().init(key, x, y)
    with pytest.raises(ValueError, match="axis_size should be specified"):
        n.vmap(Sum, in_axes=None)().init(key, x)
    with pytest.raises(ValueError, match="Inconsistent scan lengths"):
        n.scan(Sum, in_axes=(0, 0))().init(key, x, x, y)
    with pytest.raises(ValueError, match="length should be specified"):
        n.scan(Sum, in_axes=n.broadcast)().init(key, x, x)


@LIBRARIES
def test_unmapped_collections(lib):
    """What the transformation does not know cannot be created inside."""
    lib = lib()
    n = lib.nn

    class Model(n.Module):
        @n.compact
        def __call__(self, x):
            self.variable("state", "v", lambda: x)
            return x

    with pytest.raises(Exception, match="state") as e:
        n.vmap(Model)().init(lib.random.key(0), x_of(lib, 2, 3))
    assert type(e.value).__name__ == "ScopeCollectionNotFound"


@LIBRARIES
def test_streams_that_are_not_listed(lib):
    lib = lib()
    n = lib.nn

    class Model(n.Module):
        @n.compact
        def __call__(self, x):
            return x + lib.random.normal(self.make_rng("noise"))

    with pytest.raises(Exception, match='needs PRNG for "noise"'):
        n.vmap(Model)().init({"noise": lib.random.key(0)}, x_of(lib, 2))


@LIBRARIES
def test_boxes_want_a_name(lib):
    lib = lib()
    n = lib.nn
    init = n.with_partitioning(n.initializers.ones, (None, "model"))
    with pytest.raises(Exception, match="(?i)metadata_params|partition") as e:
        n.vmap(n.Dense, **SPLIT)(3, kernel_init=init).init(lib.random.key(0), x_of(lib, 2, 3))
    assert type(e.value).__name__ == "PartitioningUnspecifiedError"


@LIBRARIES
def test_broadcast_results_want_the_check(lib):
    n = lib().nn

    class Body(n.Module):
        def __call__(self, c, x):
            return c, x

    lifted = n.scan(Body, out_axes=n.broadcast, check_constancy_invariants=False)
    with pytest.raises(ValueError, match="check_constancy_invariants=False"):
        lifted().apply({}, X, X)


@LIBRARIES
def test_grad_of_vectors(lib):
    lib = lib()
    n = lib.nn

    class Model(n.Module):
        @n.compact
        def __call__(self, x):
            return n.grad(lambda m, x: n.Dense(2)(x), self, x)

    with pytest.raises(ValueError, match="scalar-valued outputs"):
        Model().init(lib.random.key(0), x_of(lib, 2, 3))


@LIBRARIES
@pytest.mark.parametrize("name", ["vjp", "grad", "value_and_grad"])
def test_reduce_axes(lib, name):
    n = lib().nn
    with pytest.raises(NotImplementedError, match=f"reduce_axes argument to {name}"):
        getattr(n, name)(lambda m, x: x, n.Dense(2), X, reduce_axes=("batch",))


@LIBRARIES
def test_concrete_remat(lib):
    lib = lib()
    n = lib.nn
    with pytest.raises(NotImplementedError, match="concrete"):
        n.remat(n.Dense, concrete=True)(2).init(lib.random.key(0), x_of(lib, 2, 3))


@LIBRARIES
def test_single_scope_transforms(lib):
    lib = lib()
    n = lib.nn

    class Outer(n.Module):
        inner: n.Module

        @n.compact
        def __call__(self, x):
            return self.inner(x)

    class Model(n.Module):
        @n.compact
        def __call__(self, x):
            return n.vjp(lambda m, x: m(x), Outer(n.Dense(2)), x)[0]

    with pytest.raises(NotImplementedError, match="does not yet support Modules"):
        Model().init(lib.random.key(0), x_of(lib, 2, 3))


@LIBRARIES
def test_branches_must_agree(lib):
    lib = lib()
    n = lib.nn

    class Model(n.Module):
        @n.compact
        def __call__(self, x):
            return n.cond(
                True, lambda m, x: n.Dense(2)(x), lambda m, x: n.Dense(2, name="b")(x), self, x
            )

    with pytest.raises(TypeError, match="structure"):
        Model().init(lib.random.key(0), x_of(lib, 2, 3))


@LIBRARIES
def test_loops_cannot_create(lib):
    lib = lib()
    n = lib.nn

    class Model(n.Module):
        @n.compact
        def __call__(self, x):
            return n.while_loop(
                lambda m, c: c.sum() < 3, lambda m, c: n.Dense(3)(c), self, x,
                carry_variables="params",
            )  # fmt: skip

    with pytest.raises(Exception, match="structure|params|Dense"):
        Model().init(lib.random.key(0), x_of(lib, 2, 3))


def test_modules_in_modules_as_arguments():
    """flax leaves a placeholder here."""

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x, lifted):
            a = nn.Dense(3)
            run = lambda m, x, other: other(x) + a_of(other)(x)
            a_of = lambda other: other.layers[0]
            run = nn.remat(run) if lifted else run
            return run(self, x, nn.Sequential([a, nn.Dense(3)]))

    variables = Model().init(random.key(0), X, False)
    plain, lifted = (Model().apply(variables, X, flag) for flag in (False, True))
    np.testing.assert_allclose(plain, lifted, rtol=1e-6)


# ---- raw transformations


def _raw(wrap):
    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            return wrap(nn.remat(nn.Dense)(3))(x)

    return Model()


@pytest.mark.parametrize("wrap", [toile.jit, toile.vmap, toile.checkpoint])
def test_lifted_inside_raw(wrap):
    """Reading works, as it does without the lifted one; creating is an error."""
    plain = _raw(lambda f: f)
    variables = plain.init(random.key(0), X)
    raw = _raw(wrap)
    np.testing.assert_allclose(raw.apply(variables, X), plain.apply(variables, X), rtol=1e-6)
    with pytest.raises(errors.JaxTransformError):
        raw.init(random.key(0), X)


def test_draws_inside_a_lifted_one_inside_a_raw_one():
    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            return toile.vmap(nn.remat(nn.Dropout)(0.5, deterministic=False))(x)

    with pytest.raises(errors.JaxTransformError, match="draws keys inside remat"):
        Model().apply({}, X, rngs={"dropout": random.key(0)})


# ---- jit


def _counting(**options):
    runs = []

    class Layer(nn.Module):
        features: int
        act: object = nn.relu

        @functools.partial(nn.jit, **options)
        @nn.compact
        def __call__(self, x, flag=False):
            runs.append(1)
            return self.act(nn.Dense(self.features)(x))

    return Layer, runs


def test_jit_traces_equal_modules_once():
    Layer, runs = _counting()
    variables = Layer(3).init(random.key(0), X)
    assert len(runs) == 1
    for seed in range(3):
        Layer(3).init(random.key(seed), X)
    assert len(runs) == 1
    for _ in range(3):
        Layer(3).apply(variables, X)
    assert len(runs) == 2


def test_jit_says_which_field_changed():
    Layer, runs = _counting()
    x = jnp.asarray(X)
    variables = Layer(3).init(random.key(0), x)
    Layer(3).apply(variables, x)
    Layer(4).init(random.key(0), x)
    Layer(4, nn.tanh).init(random.key(0), x)
    Layer(4, nn.tanh).init(random.key(0), jnp.ones((5, 3)))
    why = Layer.__call__.why()
    assert len(why) == len(runs) == 5
    assert why[0] == "first call"
    assert why[2] == "Layer.features: 3 -> 4"
    assert why[3].startswith("Layer.act: ") and "tanh" in why[3]
    assert "shape (2, 3) -> (5, 3)" in why[4]


def test_jit_says_which_field_of_a_submodule_changed():
    class Outer(nn.Module):
        layers: tuple

        def __call__(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    Jitted = nn.jit(Outer)
    for features in (3, 4):
        Jitted((nn.Dense(2), nn.Dense(features))).init(random.key(0), X)
    assert Jitted.__call__.why() == ["first call", "JitOuter.layers.1.features: 3 -> 4"]


def test_plain_jit_says_which_field_of_a_static_module_changed():
    @functools.partial(toile.jit, static_argnums=0)
    def run(model, x):
        return model.init(random.key(0), x)

    for features in (3, 4):
        run(nn.Sequential((nn.Dense(2), nn.Dense(features))), X)
    assert run.why() == ["first call", "Sequential.layers.1.features: 3 -> 4"]


def test_jit_tells_types_apart():
    Layer, runs = _counting()
    for act in (lambda x: x, lambda x: x):  # equal code, but not the same function
        Layer(3, act).init(random.key(0), X)
    assert len(runs) == 2

    class Scaled(nn.Module):
        scale: object

        @nn.jit
        def __call__(self, x):
            return x * self.scale

    ones = [Scaled(s).apply({}, jnp.arange(3)).dtype for s in (1, 1.0, True)]
    assert ones == [jnp.int32, jnp.float32, jnp.int32]


def test_jit_does_not_keep_modules_alive():
    import gc
    import weakref

    Layer, _ = _counting()
    x = jnp.asarray(X)
    variables = Layer(3).init(random.key(0), x)
    kept = []

    def see(next_fun, args, kwargs, context):
        kept.append(weakref.ref(context.module))
        return next_fun(*args, **kwargs)

    with nn.intercept_methods(see):
        Layer(3).apply(variables, x)
    gc.collect()
    assert kept and not any(ref() for ref in kept)


def test_jit_wants_hashable_fields():
    Layer, _ = _counting()
    with pytest.raises(ValueError, match="Value at 'act' is not hashable"):
        Layer(3, jnp.ones(3)).init(random.key(0), X)


def test_jit_names_of_modules_after_a_hit():
    """A function that creates a module makes the next one each time it is called."""
    block = nn.jit(lambda m, x: nn.Dense(3)(x))

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = block(self, block(self, x))
            return nn.Dense(2)(x)

    variables = Model().init(random.key(0), X)
    assert sorted(variables["params"]) == ["Dense_0", "Dense_1", "Dense_2"]
    x = jnp.asarray(X)
    for i in range(2):
        x = x @ variables["params"][f"Dense_{i}"]["kernel"]
    expected = x @ variables["params"]["Dense_2"]["kernel"]
    for _ in range(3):
        np.testing.assert_allclose(Model().apply(variables, X), expected, rtol=1e-5)
    assert len(block.why()) == 4  # two places in init, two in apply


def test_jit_static_and_donated_arguments():
    seen = []

    class Layer(nn.Module):
        @functools.partial(nn.jit, static_argnums=2, donate_argnums=(1,))
        def __call__(self, x, mode):
            seen.append(mode)
            return x * 2 if mode == "double" else x

    x = jnp.ones(3)
    Layer().apply({}, x, "double")
    assert x.is_deleted()
    Layer().apply({}, jnp.ones(3), "double")
    Layer().apply({}, jnp.ones(3), "plain")
    assert seen == ["double", "plain"]


def test_jit_in_threads():
    Layer, runs = _counting()
    variables = Layer(3).init(random.key(0), X)
    expected = Layer(3).apply(variables, X)
    found = []

    def work():
        for _ in range(5):
            found.append(Layer(3).apply(variables, X))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 20 and len(runs) == 2
    for y in found:
        np.testing.assert_array_equal(y, expected)


def test_jit_under_grad_and_vmap():
    Layer, runs = _counting()
    x = jnp.asarray(X)
    variables = Layer(3).init(random.key(0), x)
    of = lambda v, x: (Layer(3).apply(v, x) ** 2).sum()
    toile.grad(of)(variables, x)
    toile.jit(toile.grad(of))(variables, x)
    toile.vmap(of, in_axes=(None, 0))(variables, x)
    assert len(runs) == 3  # init, x and a row of x


# ---- names in programs


def test_named_call():
    class Model(nn.Module):
        @nn.named_call
        def run(self, x):
            return jnp.sin(x)

        def __call__(self, x):
            return self.run(x)

    with nn.override_named_call(False):
        program = toile.make_jaxpr(lambda x: Model().apply({}, x))(1.0)
    assert [e.scope for e in program.eqns] == [("Model.run",)]


def test_debug_path_names_the_transform():
    class Inner(nn.Module):
        @nn.compact
        def __call__(self, x):
            return self.get_variable("state", "v") + self.variable("state", "w").value

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.remat(Inner)(name="inner")(x)

    with pytest.raises(errors.ScopeVariableNotFoundError, match=r"remat\(inner\)"):
        Model().apply({"state": {"inner": {"v": jnp.ones(())}}}, X)
