"""Lifted transformations of functions of scopes: against flax, the same text on both."""

import functools

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.linen.programs import check, x_of
from toile import random
from toile.core import lift
from toile.core.scope import Scope, apply, init

PROGRAMS = []


def program(fn):
    PROGRAMS.append(fn)
    return fn


def dense(lib, log=None, name="dense"):
    """A dense layer as a function of a scope."""

    def layer(scope, x, features):
        if log is not None:
            log.append(name)
        init = lib.nn.initializers.lecun_normal()
        return x @ scope.param("kernel", init, (x.shape[-1], features))

    return layer


def run(lib, fn, *args, mutable=False, rngs=()):
    """Variables and results of a function of a scope."""
    keys = {name: lib.random.key(i + 3) for i, name in enumerate(rngs)}
    y, variables = lib.core.init(fn)({"params": lib.random.key(0), **keys}, *args)
    return y, variables, lib.core.apply(fn, mutable=mutable)(variables, *args, rngs=keys or None)


@program
def vmap(lib, log):
    layer = lambda scope, x: scope.child(dense(lib, log))(x, 2)

    def model(scope, x):
        own = lib.core.vmap(
            layer, variable_axes={"params": 0}, split_rngs={"params": True}, in_axes=0
        )
        shared = lib.core.lift.vmap(
            layer, variable_axes={"params": None}, split_rngs={"params": False}
        )
        return scope.child(own, "own")(x), scope.child(shared, "shared")(x)

    return run(lib, model, x_of(lib, 3, 2, 4))


@program
def scan(lib, log):
    """Shared parameters, carried state, scanned collections, a split stream."""
    jnp = lib.jnp

    def body(scope, c, x):
        log.append("body")
        n = scope.variable("count", "n", jnp.zeros, ())
        n.value += 1
        c = c + scope.child(dense(lib))(x, 2)
        scope.variable("seen", "c", lambda: c)
        return c, c * lib.random.uniform(scope.make_rng("noise"))

    def model(scope, c, xs):
        scope.variable("count", "n", jnp.zeros, ())
        loop = lib.core.scan(
            body, variable_broadcast="params", variable_carry="count", variable_axes={"seen": 1},
            split_rngs={"params": False, "noise": True}, reverse=True,
        )  # fmt: skip
        return loop(scope, c, xs)

    return run(
        lib, model, lib.jnp.zeros(2), x_of(lib, 3, 4), rngs=["noise"], mutable=["count"]
    )


@program
def axes_scan(lib, log):
    """The loop under it: shared values, axes, results that do not depend on the loop."""
    module = __import__(f"{lib.core.__name__}.axes_scan", fromlist=["scan"])
    broadcast = lib.core.broadcast
    jnp = lib.jnp

    def body(b, c, x, y):
        return b + 2, c + x.sum(), (2 * x, b * y, c)

    loop = module.scan(body, in_axes=(1, broadcast), out_axes=(-1, broadcast, 0))
    return loop(jnp.float32(1), jnp.float32(2), x_of(lib, 2, 3), x_of(lib, 2))


@program
def remat_scan(lib, log):
    layer = lambda scope, x: lib.nn.tanh(scope.child(dense(lib, log))(x, 2))
    deep = lib.core.remat_scan(layer, lengths=(2, 2))
    shared = lib.core.remat_scan(
        layer, lengths=(3,), variable_broadcast="params", variable_axes={},
        split_rngs={"params": False},
    )  # fmt: skip
    return [run(lib, fn, x_of(lib, 1, 2)) for fn in (deep, shared)]


@program
def jit_and_remat(lib, log):
    def model(scope, x):
        fn = lambda scope, key, x: scope.child(dense(lib, log))(x, 3)
        x = lib.core.jit(fn)(scope, "key", x)
        fn = lambda scope, x: scope.child(dense(lib, log), "b")(x, 2)
        return lib.core.remat(fn)(scope, x)

    return run(lib, model, x_of(lib, 2, 4))


@program
def jit_counters(lib, log):
    """Streams go on after a call that was traced before."""

    def draw(scope, key):
        log.append("draw")
        return lib.random.uniform(scope.make_rng("noise")), scope.push("a").make_rng("noise")

    jitted = lib.core.jit(lambda scope, key: draw(scope, key)[0])

    def model(scope):
        drawn = [jitted(scope.push(name), "key") for name in ("a", "a2", "a3")]
        return drawn, lib.random.uniform(scope.make_rng("noise"))

    keys = {"noise": lib.random.key(1)}
    return [lib.core.apply(model)({}, rngs=keys) for _ in range(2)]


@program
def derivatives(lib, log):
    jnp = lib.jnp

    def learn_scale(scope, x, y):
        log.append("learn_scale")
        p = scope.param("scale", lib.nn.initializers.normal(), ())
        return p * x * y

    def model(scope, x, y):
        z, pull_back = lib.core.vjp(learn_scale, scope, x, y)
        grads = pull_back(jnp.ones_like(z))
        again = scope.rewound()
        value = lib.core.lift.value_and_grad(learn_scale, again, x.sum(), y.sum())
        tangents = {"params": {"scale": jnp.float32(1)}}
        pair = lib.core.jvp(learn_scale, scope.rewound(), (x, y), (x, y), tangents)
        return z, grads, value, pair

    return run(lib, model, x_of(lib, 2), x_of(lib, 2))


@program
def custom_vjp(lib, log):
    jnp = lib.jnp

    def forward(scope, x, features):
        return lib.core.vjp(functools.partial(dense(lib, log), features=features), scope, x)

    def backward(features, pull_back, ct):
        params, x = pull_back(ct)
        return lib.jax.tree.map(jnp.sign, params), x

    layer = lib.core.custom_vjp(dense(lib), forward, backward, nondiff_argnums=(2,))
    model = lambda scope, x: layer(scope, x, 2)
    x = x_of(lib, 3, 4)
    _, variables = lib.core.init(model)(lib.random.key(0), x)
    of = lambda v, x: (lib.core.apply(model)(v, x) ** 2).sum()
    return variables, lib.jax.grad(of, argnums=(0, 1))(variables, x)


@program
def control_flow(lib, log):
    jnp = lib.jnp

    def count(name, sign):
        def branch(scope, x):
            log.append(name)
            scope.variable("state", name).value += 1
            return sign * scope.child(dense(lib), "dense")(x, 2)

        return branch

    branches = [count("a", 1.0), count("b", -1.0), count("c", 2.0)]

    def model(scope, x, i):
        for name in "abc":
            scope.variable("state", name, lambda: jnp.zeros(()))
        y = lib.core.lift.cond(i > 0, branches[0], branches[1], scope.rewound(), x)
        z = lib.core.lift.switch(i, branches, scope.rewound(), x)

        def go_on(scope, c):
            return scope.get_variable("state", "a") + c.sum() * 0 < 5

        def step(scope, c):
            scope.put_variable("state", "a", scope.get_variable("state", "a") + 1)
            return c + lib.random.uniform(scope.make_rng("noise"), c.shape)

        w = lib.core.while_loop(
            go_on, step, scope, x, carry_variables="state", split_rngs={"noise": True}
        )
        return y, z, w

    return run(
        lib, model, x_of(lib, 2, 3), jnp.asarray(2), rngs=["noise"], mutable=["state"]
    )


@program
def map_and_swap(lib, log):
    transposed = lambda xs: lib.jax.tree.map(lib.jnp.transpose, xs)

    def state(scope, x):
        scope.put_variable("b", "x", scope.get_variable("a", "x") + x)
        return scope.get_variable("a", "x")

    def swapped(scope, x):
        scope.put_variable("a", "x", x)
        scope.put_variable("b", "x", 2 * x)
        return lib.core.lift.swap_collection(state, "a", "b")(scope, x)

    def mapped(scope, x):
        layer = lib.core.lift.map_variables(
            dense(lib, log), "params", transposed, transposed, init=True
        )
        return layer(scope, x, 2)

    x = x_of(lib, 2, 3)
    return run(lib, swapped, x, mutable=["a", "b"]), run(lib, mapped, x)


@program
def own_transform(lib, log):
    """pack, as a user lifts a transformation that is not there."""

    def twice(fn):
        def outside(scope_fn, repack_fn, variables, rngs, x):
            def inside(variables, x):
                scope = scope_fn(variables, rngs)
                y = fn(scope, x)
                return y, repack_fn(scope)

            _, variables = inside(variables, x)
            return inside(variables, x)

        return lib.core.lift.pack(outside, (True,), (True,), (True,), name="twice")

    def body(scope, x):
        n = scope.variable("state", "n", lib.jnp.zeros, ())
        n.value += 1
        return scope.child(dense(lib, log))(x, 2) * n.value

    return lib.core.init(twice(body))(lib.random.key(0), x_of(lib, 1, 3))


@program
def several_scopes(lib, log):
    """A tree of scopes, one below another, one given twice."""

    def body(scopes, x):
        a, (b, c) = scopes["a"], scopes["rest"]
        y = dense(lib)(a, x, 3)
        b.put_variable("state", "v", b.get_variable("state", "v") + 1)
        return y * b.get_variable("state", "v") + c.get_variable("state", "v")

    def model(scope, x):
        a, b = scope.push("a"), scope.push("b")
        below = b.push("below")
        for s in (b, below):
            s.put_variable("state", "v", lib.jnp.ones(()))
        given = {"a": a, "rest": (below, below)}
        y = lib.core.remat(body)(given, x)
        again = lib.core.remat(lambda s, x: s[1].get_variable("state", "v") * x)((b, below), x)
        return y, again

    return lib.core.init(model)(lib.random.key(0), x_of(lib, 2, 3))


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_as_in_flax(fn):
    check(fn)


# ---- rules


def test_unmapped_output():
    """A collection that may change inside needs a way out."""

    def outside(scope_fn, repack_fn, variables, rngs):
        scope = scope_fn(variables, rngs)
        scope.mutable = True
        scope.put_variable("other", "x", 1)
        return None, repack_fn(scope)

    with pytest.raises(ValueError, match=r"unmapped output variables: \('other',\)"):
        init(lift.pack(outside, ("params",), ("params",), (True,), name="it"))(random.key(0))


def test_inputs_only_are_frozen():
    def outside(scope_fn, repack_fn, variables, rngs):
        kinds = [type(group["a"]).__name__ for (group,) in variables]
        return kinds, ()

    kinds = apply(lift.pack(outside, ("a",), (), ()))({"a": {"x": 1}})
    assert kinds == ["FrozenDict"]


def test_inner_scopes_end_with_the_transform():
    kept = []

    def body(scope, x):
        kept.append(scope)
        return x

    apply(lift.remat(body))({}, jnp.ones(2))
    with pytest.raises(toile.errors.InvalidScopeError):
        kept[0].push("a")


def test_scopes_do_not_share_dicts():
    """What is changed inside and not repacked stays inside."""

    def model(scope):
        scope.put_variable("a", "x", {"deep": 1})

        def outside(scope_fn, repack_fn, variables, rngs):
            inner = scope_fn(variables, rngs)
            inner.put_variable("a", "x", {"deep": 2})
            return inner.get_variable("a", "x")["deep"], ()

        inside = lift.pack(outside, (True,), (True,), (True,))(scope)
        return inside, scope.get_variable("a", "x")["deep"]

    assert init(model)(random.key(0))[0] == (2, 1)


def test_raw_transforms_are_noticed_and_lifted_ones_are_not():
    def body(scope, x):
        return scope.param("w", lambda key: random.normal(key, ())) * x

    def raw(scope, x):
        return toile.vmap(lambda x: body(scope, x))(x)

    def lifted(scope, x):
        return lift.vmap(body, {"params": None}, {"params": False})(scope, x)

    with pytest.raises(toile.errors.JaxTransformError, match=r"nn\.vmap"):
        init(raw)(random.key(0), jnp.ones(2))
    _, variables = init(lifted)(random.key(0), jnp.ones(2))
    np.testing.assert_allclose(
        apply(raw)(variables, jnp.ones(2)), apply(lifted)(variables, jnp.ones(2))
    )


def test_effects_in_a_scan_run_once_a_step(capfd):
    """Finding what is shared does not run what is there for its effect."""

    def body(scope, c, x):
        toile.debug.print("step {}", c)
        return c + x, None

    loop = lift.scan(body, variable_broadcast="params")
    apply(loop)({}, jnp.zeros((), int), jnp.ones(3, int))
    toile.effects_barrier()
    assert capfd.readouterr().out.split() == ["step", "0", "step", "1", "step", "2"]


def test_immutable_carries_pass_through():
    def body(scope, c, x):
        return c + x * scope.get_variable("state", "scale"), None

    loop = lift.scan(body, variable_carry="state")
    c, _ = apply(loop)({"state": {"scale": jnp.float32(2)}}, jnp.float32(0), jnp.ones(3))
    assert float(c) == 6.0


def test_mapped_parameters_beside_other_state():
    """`init` concerns mapped collections: flax runs once more, and fails, when others change."""
    transposed = lambda xs: toile.tree.map(jnp.transpose, xs)

    def body(scope, x):
        n = scope.variable("state", "n", jnp.zeros, ())
        n.value += 1
        return x @ scope.param("w", lambda key: random.normal(key, (3, 2)))

    layer = lift.map_variables(body, "params", transposed, transposed, init=True)
    y, variables = init(layer)(random.key(0), jnp.ones((1, 3)))
    assert variables["params"]["w"].shape == (2, 3)
    again, changed = apply(layer, mutable=["state"])(variables, jnp.ones((1, 3)))
    np.testing.assert_allclose(again, y)
    assert float(changed["state"]["n"]) == float(variables["state"]["n"]) + 1


def test_public_names():
    import flax.core.lift as theirs

    ours = set(dir(lift))
    expected = {
        name for name, value in vars(theirs).items()
        if getattr(value, "__module__", "").startswith("flax") and len(name) > 1
        and not name.startswith("_")
    }  # fmt: skip
    # How flax's jit keeps its counters and its calls; toile's has other means.
    assert expected - ours == {"CountsHolder", "TransformContext", "set_from_dict"}
    assert isinstance(Scope({}), lift.Scope)
