"""checkify and the other experimental parts, against JAX where it has them."""

import jax
import jax.experimental.checkify as theirs
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.golden.recorded import CORNERS
from toile.experimental import checkify as ours
from toile.experimental import mesh_utils, multihost_utils

LIBS = ((toile, ours), (jax, theirs))


def positive(c):
    def f(x):
        c.check(x > 0, "needed x > 0, got {x} and {}", x + 1, x=x)
        return x * 2

    return f


def looped(lib, c):
    def f(xs):
        def body(carry, y):
            c.check(y < 3, "y is {y}", y=y)
            return carry + y, carry

        return lib.lax.scan(body, lib.numpy.float32(0), xs)

    return f


def repeated(lib, c):
    def f(x):
        def cond(v):
            c.check(v < 4, "v is {v}", v=v)
            return v < 6

        return lib.lax.while_loop(cond, lambda v: v + 1, x)

    return f


def branched(lib, c):
    def f(p, x):
        def yes(v):
            c.check(v > 0, "yes {}", v)
            return v

        def no(v):
            c.check(v < 0, "no")
            return -v

        return lib.lax.cond(p, yes, no, x)

    return f


one, minus = np.float32(1), np.float32(-1)
v = np.asarray
CHECKED = {
    "passes": (lambda lib, c: positive(c), "user_checks", (one,)),
    "fails": (lambda lib, c: positive(c), "user_checks", (minus,)),
    "jit_inside": (lambda lib, c: lib.jit(positive(c)), "user_checks", (minus,)),
    "grad": (lambda lib, c: lib.grad(positive(c)), "user_checks", (minus,)),
    "remat": (lambda lib, c: lib.checkpoint(positive(c)), "user_checks", (minus,)),
    "vmap_one": (lambda lib, c: lib.vmap(positive(c)), "user_checks",
                 (np.float32([1, -2, 3]),)),
    "scan": (looped, "user_checks", (np.arange(5, dtype=np.float32),)),
    "scan_passes": (looped, "user_checks", (np.arange(3, dtype=np.float32),)),
    "while": (repeated, "user_checks", (np.float32(0),)),
    "cond_yes": (branched, "user_checks", (True, minus)),
    "cond_no": (branched, "user_checks", (False, one)),
    "cond_passes": (branched, "user_checks", (True, one)),
    "nan": (lambda lib, c: lambda x: lib.numpy.sin(x) * 2, "nan_checks", (np.float32(np.inf),)),
    "nan_passed_on": (lambda lib, c: lambda x: x[0], "nan_checks", (np.float32([np.nan, 1]),)),
    "nan_softmax": (lambda lib, c: lib.nn.softmax, "nan_checks", (np.float32([np.inf, 1]),)),
    "no_nan": (lambda lib, c: lambda x: lib.numpy.log(x), "nan_checks", (one,)),
    "div": (lambda lib, c: lambda x, y: x / y, "div_checks", (one, np.float32(0))),
    "div_scan": (
        lambda lib, c: lambda xs: lib.lax.scan(lambda s, x: (s, 1 / x), lib.numpy.float32(0), xs),
        "float_checks", (np.float32([1, 2, 0]),)),
    "index": (lambda lib, c: lambda x, i: x[i], "index_checks", (np.ones((3, 4)), v(5))),
    "index_negative": (lambda lib, c: lambda x, i: x[i], "index_checks", (np.ones((3, 4)), v(-5))),
    "index_fits": (lambda lib, c: lambda x, i: x[i], "index_checks", (np.ones((3, 4)), v(-3))),
    "indices": (lambda lib, c: lambda x, i: x[i], "index_checks",
                (np.ones((3, 4)), v([1, 7, 9]))),
    "update": (lambda lib, c: lambda x, i: x.at[i].set(1.0), "index_checks",
               (np.ones((3, 4)), v([1, 7, 9]))),
    "slice": (lambda lib, c: lambda x, i: lib.lax.dynamic_slice(x, (i, 0 * i), (2, 2)),
              "index_checks", (np.ones((3, 4)), v(7, np.int32))),
    "all": (lambda lib, c: lambda x: lib.numpy.sqrt(x) + x / 0 * 1, "all_checks",
            (np.float32([1, 1]),)),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("name", CHECKED)
def test_checkify_reports_what_jax_reports(name, compiled):
    build, kind, args = CHECKED[name]

    def report(lib, c):
        f = c.checkify(build(lib, c), errors=getattr(c, kind))
        f = lib.jit(f) if compiled else f
        error, _ = f(*[lib.numpy.asarray(a) for a in args])
        return [error.get()]

    assert report(toile, ours) == CORNERS.in_test(lambda: report(jax, theirs))


def test_results_come_with_the_error():
    error, out = ours.checkify(positive(ours))(jnp.float32(3))
    assert error.get() is None and float(out) == 6
    error.throw()
    error, out = ours.checkify(positive(ours))(-3.0)
    assert float(out) == -6
    with pytest.raises(ours.JaxRuntimeError, match=r"needed x > 0, got -3.0 and -2.0"):
        error.throw()
    assert "needed x > 0" in str(error)


def test_errors_of_a_batch_are_listed():
    xs = np.float32([1, -2, -3])
    texts = [lib.vmap(c.checkify(positive(c)))(lib.numpy.asarray(xs))[0].get() for lib, c in LIBS]
    assert texts[0] == texts[1] and texts[0].startswith("at mapped index 1: ")


@pytest.fixture
def three_devices():
    before = toile.config.read("jax_num_cpu_devices")
    toile.config.update("jax_num_cpu_devices", 3)
    yield
    toile.config.update("jax_num_cpu_devices", before)


@pytest.mark.cpu
@pytest.mark.parametrize("compiled", [False, True])
def test_checks_in_a_mapped_function(three_devices, compiled):
    def f(x):
        ours.check(x > 0, "got {x}", x=x)
        return toile.lax.psum(jnp.sqrt(x), "i")

    checked = ours.checkify(toile.pmap(f, axis_name="i"), errors=ours.user_checks)
    checked = toile.jit(checked) if compiled else checked
    error, out = checked(jnp.array([1.0, 4.0, 9.0]))
    assert error.get() is None
    np.testing.assert_allclose(out, [6.0] * 3)
    error, out = checked(jnp.array([1.0, -4.0, -9.0]))
    assert "got -4.0" in error.get()
    nans = ours.checkify(toile.pmap(f, axis_name="i"), errors=ours.nan_checks)
    assert "nan generated by primitive: sqrt" in nans(jnp.array([1.0, 2.0, -1.0]))[0].get()


def test_check_outside_of_checkify():
    with pytest.raises(ours.JaxRuntimeError, match="told you"):
        ours.check(jnp.asarray(False), "told you")
    ours.check(True, "never")
    ours.debug_check(False, "nobody looks")
    for lib, c in LIBS:
        f = c.checkify(lambda x, c=c: c.debug_check(x > 0, "seen"))
        assert f(lib.numpy.float32(-1))[0].get() == "seen (`check` failed)"
        for bad in (1.0, lib.numpy.ones(3) > 0):
            with pytest.raises(TypeError, match="scalar pred"):
                c.check(bad, "no")
        with pytest.raises(TypeError, match="Formatting arguments"):
            c.check(True, "{}", "text")


def test_errors_pass_through_an_outer_checkify():
    def outer(x):
        error, out = ours.checkify(positive(ours))(x)
        ours.check_error(error)
        return out

    assert "got -1.0" in ours.checkify(outer)(-1.0)[0].get()
    assert "got -1.0" in toile.jit(ours.checkify(outer))(-1.0)[0].get()
    assert ours.checkify(outer)(1.0)[0].get() is None
    with pytest.raises(ours.JaxRuntimeError, match=r"got -1.0"):
        outer(-1.0)


def test_automatic_checks_keep_custom_derivatives():
    @toile.custom_jvp
    def f(x):
        return x * 2

    f.defjvp(lambda primals, tangents: (f(primals[0]), tangents[0] * 100))
    g = ours.checkify(f, errors=ours.nan_checks)
    assert float(toile.grad(lambda x: g(x)[1])(1.0)) == 100


def test_mesh_utils():
    assert mesh_utils.create_device_mesh((1, 1)).shape == (1, 1)
    with pytest.raises(ValueError, match="must equal the product"):
        mesh_utils.create_device_mesh((len(toile.devices()) + 1,))
    grid = mesh_utils.create_hybrid_device_mesh((1, 1), (1, 1), process_is_granule=True)
    assert grid.shape == (1, 1)
    with pytest.raises(ValueError, match="process_is_granule"):
        mesh_utils.create_hybrid_device_mesh((1,), (1,))


def test_multihost_utils_of_one_process():
    import jax.experimental.multihost_utils as other

    for m in (multihost_utils, other):
        tree = {"a": np.arange(3.0)}
        np.testing.assert_array_equal(m.process_allgather(tree)["a"], [[0, 1, 2]])
        np.testing.assert_array_equal(m.process_allgather(tree, tiled=True)["a"], [0, 1, 2])
        np.testing.assert_array_equal(m.broadcast_one_to_all(tree)["a"], [0, 1, 2])
        assert m.sync_global_devices("here") is None
        m.assert_equal(tree)
        assert m.reached_preemption_sync_point(1) is False


def test_x64_contexts():
    with toile.experimental.enable_x64():
        assert jnp.ones(1).dtype == np.float64
        with toile.experimental.disable_x64():
            assert jnp.ones(1).dtype == np.float32
    assert jnp.ones(1).dtype == np.float32


def test_io_callback_and_old_homes():
    seen = []
    out = toile.jit(lambda x: toile.experimental.io_callback(
        lambda y: (seen.append(float(y)), y)[1], toile.ShapeDtypeStruct((), np.float32), x))(2.0)
    assert seen == [2.0] and float(out) == 2
    from toile.experimental.pjit import pjit
    from toile.experimental.shard_map import shard_map

    assert float(pjit(lambda x: x + 1)(1.0)) == 2
    spec = toile.sharding.PartitionSpec("x")
    f = shard_map(lambda a: a, toile.make_mesh((1,), ("x",)), in_specs=spec, out_specs=spec)
    np.testing.assert_array_equal(f(np.arange(3)), np.arange(3))


@pytest.mark.parametrize("name", ["pallas", "pallas.ops", "jax2tf", "roofline"])
def test_absent_parts_say_what_to_use(name):
    with pytest.raises(ImportError, match=rf"jax.experimental.{name.split('.')[0]}: .*toile"):
        __import__(f"toile.experimental.{name}")
    with pytest.raises(ImportError, match="no counterpart"):
        exec(f"from toile.experimental import {name.split('.')[0]}")
    with pytest.raises(AttributeError, match="no counterpart"):
        getattr(toile.experimental, name.split(".")[0])
