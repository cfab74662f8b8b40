"""Import redirection on a small package of every kind of import, and what it refuses."""

import importlib
import importlib.util
import py_compile
import sys
import textwrap
from unittest import mock

import numpy as np
import pytest

import toile
from toile import core, interop
from toile.interop import packages

FILES = {
    "__init__.py": "from wanderer import kinds\nfrom .below import deep\n",
    "kinds.py": """
        import importlib
        import importlib.util
        import jax
        import jax.numpy as jnp
        import jax.experimental.checkify
        import flax
        import flax.core.frozen_dict
        from flax import linen as nn
        from jax import core, lax, tree_util as tu
        from jax.numpy import linalg, sin as sine
        from jax.scipy.special import *
        from unittest import mock

        def late():
            import jax.random as jr
            from jax.nn import initializers
            return jr, initializers

        by_name = importlib.import_module("jax.numpy.fft")
        found = importlib.util.find_spec("jax.numpy"), importlib.util.find_spec("jax.nothing")
        sibling = importlib.import_module("wanderer.below.deep")
        evaluated = eval("__import__('jax')")
        scope = {}
        exec("import jax.lax as inner", scope)

        class Child(nn.Module):
            @nn.compact
            def __call__(self, x):
                return nn.Dense(2)(x)

        def patched(x):
            with mock.patch("jax.numpy.sin", lambda x: x + 1):
                return jnp.sin(x)

        def wrong():
            import jax.nothing

        def failing(x):
            return jnp.dot(x, jnp.ones(7))
    """,
    "below/deep.py": "from .. import kinds\nfrom jax import Array\n",  # a namespace package
}


@pytest.fixture(scope="module")
def wanderer(tmp_path_factory):
    """A package that stands on `jax` and `flax`, on toile."""
    home = tmp_path_factory.mktemp("site")
    for name, text in FILES.items():
        file = home / "wanderer" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
    with mock.patch.object(sys, "path", [str(home), *sys.path]):
        importlib.invalidate_caches()
        yield interop.load("wanderer")
    assert "wanderer" not in sys.modules


def test_every_kind_of_import_gives_toile(wanderer):
    kinds = wanderer.kinds
    assert kinds.jnp is toile.numpy and kinds.lax is toile.lax and kinds.tu is toile.tree_util
    assert kinds.linalg is toile.numpy.linalg and kinds.sine is toile.numpy.sin
    assert kinds.logsumexp is toile.scipy.special.logsumexp
    assert kinds.jax.grad is toile.grad and kinds.jax.numpy is toile.numpy
    assert kinds.jax.experimental.checkify is toile.experimental.checkify
    assert kinds.late() == (toile.random, toile.nn.initializers)
    assert kinds.by_name is toile.numpy.fft and kinds.scope["inner"] is toile.lax
    assert kinds.evaluated is kinds.jax is interop.load("jax")
    assert kinds.found[0] is not None and kinds.found[1] is None
    assert kinds.sibling is wanderer.deep and wanderer.deep.kinds is kinds
    assert wanderer.deep.Array is toile.Array


def test_the_faces_have_cores_of_their_own(wanderer):
    jax, flax = wanderer.kinds.jax, wanderer.kinds.flax
    assert jax.core.Tracer is core.Tracer and flax.core.FrozenDict is core.FrozenDict
    assert not hasattr(jax.core, "FrozenDict") and not hasattr(flax.core, "Tracer")
    assert jax.config is toile.config and flax.config is toile.configurations.config
    assert jax.__version__ != flax.__version__ and jax.__version_info__[:2] >= (0, 10)
    assert flax.core.frozen_dict is core.frozen_dict and flax.linen is toile.linen
    out = wanderer.kinds.Child().init_with_output(toile.random.key(0), np.ones((1, 3)))
    assert out[0].shape == (1, 2)


def test_names_are_mapped_where_they_are_text(wanderer):
    assert wanderer.kinds.patched(2.0) == 3.0
    assert toile.numpy.sin(0.0) == 0.0


def test_errors_say_what_is_missing(wanderer):
    with pytest.raises(ModuleNotFoundError, match="no module in the place of jax.nothing"):
        wanderer.kinds.wrong()
    with pytest.raises(AttributeError, match="'jax' of toile has no attribute 'nothing'"):
        wanderer.kinds.jax.nothing  # noqa: B018
    with pytest.raises(ModuleNotFoundError, match="no counterpart of jax.experimental.pallas"):
        interop.load("jax.experimental.pallas")
    with pytest.raises(ModuleNotFoundError, match=r"package absent, which is not installed \(pip"):
        interop.load("absent")
    with pytest.raises(AttributeError, match="no installed package of that name requires jax"):
        interop.numpy  # noqa: B018
    with pytest.raises(ImportError):
        from toile.interop import numpy  # noqa: F401
    with pytest.raises(ValueError, match="needed a package that imports jax or flax"):
        interop.load("json")


def test_errors_of_toile_name_the_file_of_the_package(wanderer):
    with pytest.raises(TypeError) as caught:
        wanderer.kinds.failing(np.ones(3))
    assert f"{wanderer.kinds.__file__}:" in str(caught.value)
    assert "return jnp.dot(x, jnp.ones(7))" in str(caught.value)


def test_reloading_the_whole_package(wanderer):
    before = wanderer.kinds
    assert importlib.reload(wanderer) is wanderer and wanderer.kinds is before
    assert importlib.reload(before) is before and before.jnp is toile.numpy


def test_which_packages_are_redirected():
    assert all(map(packages.is_redirected, ("optax", "chex", "haiku", "jmp")))
    assert not any(map(packages.is_redirected, ("numpy", "absl", "json", "toile", "toolz")))


def test_a_primitive_of_a_package_is_an_operation():
    jax = interop.load("jax")
    ad, batching = interop.load("jax.interpreters").ad, interop.load("jax.interpreters").batching
    cube = jax.extend.core.Primitive("cube")
    cube.def_impl(lambda x, *, scale: scale * x**3)
    cube.def_abstract_eval(lambda x, *, scale: jax.core.ShapedArray(x.shape, x.dtype))
    ad.defjvp(cube, lambda t, x, *, scale: 3 * scale * x**2 * t)
    batching.defvectorized(cube)

    def f(x):
        return cube.bind(x, scale=2.0)

    assert f(3.0) == 54 and toile.jit(f)(3.0) == 54
    assert toile.grad(f)(3.0) == 54 and toile.grad(toile.jit(toile.grad(f)))(3.0) == 36
    xs = toile.numpy.arange(3.0)
    assert toile.vmap(toile.grad(f))(xs).tolist() == [0, 6, 24]
    assert "cube" in str(toile.make_jaxpr(f)(1.0))
    bare = jax.extend.core.Primitive("bare")
    with pytest.raises(NotImplementedError, match="bare: has no implementation"):
        bare.bind(1.0)


def test_known_values_are_computed_at_once_and_traced_ones_are_staged():
    kinds = []

    def f(x):
        with toile.ensure_compile_time_eval():
            known, traced = toile.numpy.arange(3).sum(), toile.numpy.any(x > 0)
        kinds.extend(isinstance(v, core.Tracer) for v in (known, traced))
        return traced

    assert toile.jit(f)(toile.numpy.ones(2)) and kinds == [False, True]


def test_backward_rules_get_python_numbers_and_vmap_leaves_them():
    seen = []

    @toile.custom_vjp
    def f(x):
        return 2 * x

    f.defvjp(lambda x: (f(x), (True, 3, x)), lambda r, ct: seen.append(r[:2]) or (ct * r[1],))
    assert toile.jit(toile.grad(f))(1.0) == 3 and toile.vmap(toile.grad(f))(np.ones(2))[1] == 3
    assert seen == [(True, 3)] * 2 and all(type(s[0]) is bool for s in seen)
    zeros = toile.vmap(lambda x, n: x + toile.numpy.zeros(n), in_axes=(0, None))
    assert toile.jit(lambda x: zeros(x, 3))(np.ones(2)).shape == (2, 3)
    assert toile.grad(lambda x: toile.device_get(x) * x)(3.0) == 6


def test_a_package_without_source_is_refused(tmp_path):
    (tmp_path / "sourceless").mkdir()
    file = tmp_path / "sourceless" / "__init__.py"
    file.write_text("import jax\n")
    py_compile.compile(str(file), cfile=str(file.with_suffix(".pyc")), doraise=True)
    file.unlink()
    with mock.patch.object(sys, "path", [str(tmp_path), *sys.path]):
        with pytest.raises(ImportError, match="needed the Python source of sourceless"):
            interop.load("sourceless")


def test_arrays_of_jax_are_refused():
    jax = pytest.importorskip("jax")
    x = jax.numpy.ones(3)
    converts = "an array of jax: convert it with jnp.asarray, or start the program with `toile run`"
    for f in (toile.numpy.sin, toile.jit(lambda a: a), toile.grad(toile.numpy.sum)):
        with pytest.raises(TypeError, match=converts):
            f(x)
    with pytest.raises(TypeError, match="it is traced by jax, in whose transformations"):
        jax.jit(toile.numpy.sin)(x)
    with pytest.raises(TypeError, match="not a valid JAX type"):
        jax.numpy.sin(toile.numpy.ones(3))
    assert toile.numpy.asarray(x).tolist() == [1.0, 1.0, 1.0]


FOUND_BY = {
    "optax": True, "flax": True, "safetensors": True, "dm_pix": True,
    "numpy": False, "scipy": False, "hypothesis": False, "pytest": False, "not_installed": False,
}


@pytest.mark.parametrize("name", FOUND_BY)
def test_packages_that_use_jax_are_found(name):
    if FOUND_BY[name] and importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    assert packages._uses_jax(name) is FOUND_BY[name]


def test_imports_are_found_in_files(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    texts = {"uses_jax": "def f():\n    import jax.numpy as jnp\n",
             "mentions_jax": '"""\n>>> import jax\n"""\n'}
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
        (tmp_path / name / "inner.py").write_text(text)
    assert packages.is_redirected("uses_jax")
    assert not packages.is_redirected("mentions_jax")
    (tmp_path / "uses_jax" / "native.abi3.so").write_bytes(b"")
    packages._uses_jax.cache_clear()
    assert not packages.is_redirected("uses_jax")


@pytest.mark.parametrize("name", [
    "jax._src.lax.lax", "jax._src.lax.convolution", "jax._src.lax.control_flow",
    "jax._src.lax.slicing", "jax._src.lax.parallel"])
def test_internal_modules_of_lax_are_toile_lax(name):
    assert interop.lookup.resolve(name) is toile.lax


def test_internal_modules_of_numpy_and_linalg():
    resolve = interop.lookup.resolve
    assert resolve("jax._src.lax.linalg") is toile.lax.linalg
    for name in ("lax_numpy", "ufuncs", "reductions"):
        assert resolve(f"jax._src.numpy.{name}") is toile.numpy
    assert resolve("jax._src.numpy.linalg") is toile.numpy.linalg
    x, y = resolve("jax._src.numpy.util").promote_dtypes(1, np.float32(2))
    assert x.dtype == y.dtype == np.float32


def test_modules_of_flax_have_the_types_of_variables():
    scope = interop.lookup.resolve("flax.core.scope")
    assert interop.lookup.resolve("flax.core").scope is scope
    assert scope.Scope is core.scope.Scope and scope.FrozenDict is core.FrozenDict
    for name in ("VariableDict", "MutableVariableDict", "FrozenVariableDict", "Collection"):
        assert getattr(scope, name) is getattr(toile.typing, name)
    training = interop.lookup.resolve("flax.training")
    assert training.train_state is importlib.import_module("toile.training.train_state")
    for name in ("nothing", "__nothing__"):
        with pytest.raises(AttributeError, match=name):
            getattr(training, name)


def test_orbax_utils_describe_how_arrays_are_restored():
    utils = interop.lookup.resolve("flax.training.orbax_utils")
    tree = {"a": toile.numpy.ones(2), "b": {"c": 3}}
    assert set(utils.save_args_from_target(tree)) == {"a", "b"}
    arrays = utils.restore_args_from_target({"a": tree["a"]})["a"]
    assert arrays.sharding == tree["a"].sharding
    mesh = toile.sharding.Mesh(np.array(toile.devices()[:1]), ("x",))
    placed = toile.device_put(tree["a"], toile.sharding.NamedSharding(
        mesh, toile.sharding.PartitionSpec("x")))
    assert utils.restore_args_from_target({"a": placed}, mesh)["a"].sharding.mesh == mesh
    assert utils.restore_args_from_target({"c": 3})["c"].restore_type is np.ndarray
    missing = utils.maybe_construct_transformations({"a": None, "b": {"c": 3}}, None)
    assert list(missing) == ["a"] and missing["a"].use_fallback
    assert utils.maybe_construct_transformations({}, {"x": 1}) == {"x": 1}
    assert not utils.is_multi_device_array(tree["a"]) and not utils.is_multi_device_array(3)


def test_roofline_counts_operations():
    roofline = interop.lookup.resolve("jax.experimental").roofline
    shape, cost = roofline.roofline(lambda x, y: x @ y)(np.ones((4, 8), np.float32),
                                                        np.ones((8, 16), np.float32))
    assert shape.shape == (4, 16) and cost.unfused_flops == 2 * 4 * 8 * 16


def test_functions_of_flat_arguments():
    api_util = importlib.import_module("toile.compat.faces.jax.api_util")
    linear_util = importlib.import_module("toile.compat.faces.jax.linear_util")
    f, dynamic = api_util.argnums_partial(lambda a, b, c: (a, b, c), (0, -1), (1, 2, 3))
    assert dynamic == (1, 3)
    assert f(10, 30) == (10, 2, 30)
    wrapped, _ = api_util.argnums_partial(linear_util.wrap_init(lambda a, b: a - b), 1, (5, 2))
    assert wrapped.call_wrapped(4) == 1
    tree = toile.tree_util.tree_structure({"a": (1, 2), "b": 3})
    assert api_util.flatten_axes("vmap", tree, {"a": 0, "b": None}) == [0, 0, None]
    assert api_util.flatten_axes("vmap", tree, 1) == [1, 1, 1]
    assert {"transformation_with_aux", "merge_linear_aux"} <= set(linear_util.__all__)
    core = importlib.import_module("toile.compat.faces.jax.core")
    assert not any(isinstance(v, core.DropVar) for e in
                   toile.make_jaxpr(lambda x: x + 1)(1.0).eqns for v in e.outvars)
