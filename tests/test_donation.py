"""What donation does to arguments: those that a result can take over are deleted, as in jax."""

import warnings

import jax
import numpy as np
import pytest

import toile
from tests.golden.recorded import CORNERS

SHAPE = (64, 32)  # on a GPU, where there is one


def ones(lib, *shape):
    return lib.numpy.ones(shape, np.float32)


FIRST = {"donate_argnums": 0}
BOTH = {"donate_argnums": (0, 1)}
# A function of (library, arguments), shapes of the arguments, options of jit.
CASES = {
    "the same form": (lambda lib, a: a + 1, [SHAPE], FIRST),
    "fewer elements": (lambda lib, a: a.sum(), [SHAPE], FIRST),
    "more elements": (lambda lib, a: lib.numpy.concatenate([a, a]), [SHAPE], FIRST),
    "another dtype": (lambda lib, a: a.astype(lib.numpy.int32), [SHAPE], FIRST),
    "a smaller dtype": (lambda lib, a: a.astype(lib.numpy.int8), [SHAPE], FIRST),
    "another shape": (lambda lib, a: a.T * 2, [SHAPE], FIRST),
    "other axes": (lambda lib, a: a.reshape(-1) + 1, [SHAPE], FIRST),
    "as it is": (lambda lib, a: a, [SHAPE], FIRST),
    "a number": (lambda lib, a: a + 1, [()], FIRST),
    "one result for two": (lambda lib, a, b: a + b, [SHAPE, SHAPE], BOTH),
    "two results for one": (lambda lib, a: (a + 1, a * 2), [SHAPE], FIRST),
    "the form before the size": (
        lambda lib, a, b: (b + 1, b.T * a.sum()), [(2048,), SHAPE], BOTH),
    "the size once": (lambda lib, a, b: (a + b.sum()).T, [SHAPE, (2048,)], BOTH),
    "nothing depends on it": (lambda lib, a, b: b + 1, [SHAPE, SHAPE], FIRST),
    "it is kept": (lambda lib, a, b: b + 1, [SHAPE, SHAPE], {**FIRST, "keep_unused": True}),
    "by name": (lambda lib, a, b: a.sum() + b, [SHAPE, SHAPE], {"donate_argnames": "a"}),
    "trees": (lambda lib, a, b: {"x": a["x"] + 1}, [{"x": SHAPE, "y": SHAPE}, SHAPE], BOTH),
}


def made(lib, shape):
    if isinstance(shape, dict):
        return {name: ones(lib, *s) for name, s in shape.items()}
    return ones(lib, *shape)


def outcome(lib, name, call):
    """Which leaves are deleted after each of some calls, and whether there was a warning."""
    function, shapes, options = CASES[name]
    jitted = lib.jit(_named(lib, function, len(shapes)), **options)
    found = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(call["times"]):
            args = [made(lib, s) for s in shapes]
            run = jitted.lower(*args).compile() if call["ahead"] else jitted
            out = run(*args)
            found.append([x.is_deleted() for x in lib.tree_util.tree_leaves(args)])
            assert all(np.isfinite(np.asarray(x)).all() for x in lib.tree_util.tree_leaves(out))
    return found, any("donated buffers were not usable" in str(w.message) for w in said)


def _named(lib, function, count):
    if count == 1:
        return lambda a: function(lib, a)
    return lambda a, b: function(lib, a, b)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_as_in_jax(name, ahead):
    call = {"times": 2 if ahead else 6, "ahead": ahead}
    assert outcome(toile, name, call) == CORNERS.in_test(lambda: outcome(jax, name, call))


def test_forms_that_differ_in_what_they_give_up():
    f = toile.jit(lambda a, b: (a + 1).T + b.sum(), donate_argnums=(0, 1))
    for _ in range(6):
        for shapes, gone in (((SHAPE, (2048,)), (True, False)), (((3, 700), SHAPE), (True, False)),
                             (((3, 5), (5, 3)), (False, True))):
            a, b = (ones(toile, *s) for s in shapes)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                f(a, b)
            assert (a.is_deleted(), b.is_deleted()) == gone


def test_the_warning_points_at_the_call():
    with pytest.warns(UserWarning, match="not usable: float32") as said:
        toile.jit(lambda a: a.sum(), donate_argnums=0)(ones(toile, *SHAPE))
    assert said[0].filename == __file__


def test_inner_functions_give_nothing_up():
    inner = toile.jit(lambda a: a + 1, donate_argnums=0)
    x = ones(toile, *SHAPE)
    toile.jit(lambda a: inner(a).sum())(x)
    assert not x.is_deleted()
    inner(x)
    assert x.is_deleted()


MAPPED = {
    "the same form": (lambda a: a + 1, 1),
    "fewer elements": (lambda a: a.sum(), 1),
    "one result for two": (lambda a, b: a + b, 2),
    "nothing depends on it": (lambda a, b: a * 1, 2),
}


@pytest.mark.parametrize("name", MAPPED)
def test_mapped_over_devices(name):
    found = []
    for lib in (toile, jax):
        function, count = MAPPED[name]
        args = [ones(lib, 1, *SHAPE) for _ in range(count)]
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            lib.block_until_ready(lib.pmap(function, donate_argnums=tuple(range(count)))(*args))
        warned = any("donated buffers were not usable" in str(w.message) for w in said)
        found.append(([x.is_deleted() for x in args], warned))
    assert found[0] == found[1]


SHARDED = {
    "the same form": lambda a: a + 1,
    "another shape": lambda a: a.T + 1,
    "fewer elements": lambda a: a.sum(),
}


@pytest.mark.parametrize("name", SHARDED)
@pytest.mark.parametrize("where", ["argument", "in_shardings"])
def test_of_sharded_arrays(where, name):
    found = []
    for lib in (toile, jax):
        mesh = lib.sharding.Mesh(lib.devices()[:1], ("d",))
        sharding = lib.sharding.NamedSharding(mesh, lib.sharding.PartitionSpec("d"))
        x, options = ones(lib, *SHAPE), {"in_shardings": sharding}
        if where == "argument":
            x, options = lib.device_put(x, sharding), {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lib.block_until_ready(lib.jit(SHARDED[name], donate_argnums=0, **options)(x))
        found.append(x.is_deleted())
    assert found[0] == found[1]
