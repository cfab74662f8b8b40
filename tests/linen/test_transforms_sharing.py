"""Modules and Variables that cross the border of a transformation: against flax.

In fields, arguments, closures and setup, shared between the outside and the inside.
"""

import functools

import pytest

from tests.linen.programs import both, check, x_of

PROGRAMS = []


def program(fn):
    PROGRAMS.append(fn)
    return fn


def vmap_options(**more):
    return {"variable_axes": {"params": 0}, "split_rngs": {"params": True}, **more}


@program
def setup_parameter(lib, log):
    """A parameter of setup, read in a scanned method."""
    nn = lib.nn

    class Body(nn.Module):
        def setup(self):
            self.scale = self.param("scale", nn.initializers.normal(), (3,))

        @nn.compact
        def __call__(self, c, x):
            return nn.tanh(nn.Dense(3)(c) * self.scale + x), None

    run = nn.scan(Body, variable_broadcast="params", split_rngs={"params": False})
    return both(lib, run(), x_of(lib, 3), x_of(lib, 4, 3))


@program
def setup_variable(lib, log):
    """A Variable of setup, written in a transformed method and read outside."""
    nn, jnp = lib.nn, lib.jnp

    class Model(nn.Module):
        def setup(self):
            self.total = self.variable("state", "total", lambda: jnp.zeros(()))
            self.dense = nn.Dense(3)

        @nn.remat
        def inside(self, x):
            self.total.value += x.sum()
            return self.dense(x)

        def __call__(self, x):
            y = self.inside(x)
            return y * self.total.value

    return both(lib, Model(), x_of(lib, 2, 3), mutable=["state"])


@program
def nested_setup(lib, log):
    """Transformed modules made in setup, in lists and dicts, each with a setup of its own."""
    nn = lib.nn

    class Inner(nn.Module):
        width: int

        def setup(self):
            self.layers = {"a": nn.Dense(self.width), "b": [nn.Dense(3)]}

        def __call__(self, x):
            return self.layers["b"][0](nn.tanh(self.layers["a"](x)))

    class Outer(nn.Module):
        def setup(self):
            self.parts = [nn.remat(Inner)(4), nn.vmap(Inner, **vmap_options())(2)]
            self.named = {"one": nn.jit(Inner)(2)}

        def __call__(self, x):
            for part in self.parts:
                x = part(x)
            return self.named["one"](x)

    return both(lib, Outer(), x_of(lib, 2, 3))


@program
def helpers_of_setup(lib, log):
    """A jitted method that calls helpers that setup's modules serve."""
    nn = lib.nn

    class Model(nn.Module):
        def setup(self):
            self.dense = nn.Dense(3)

        def helper(self, x):
            return self.dense(x)

        @nn.jit
        def __call__(self, x):
            return self.helper(self.helper(x))

    return both(lib, Model(), x_of(lib, 2, 3))


@program
def fields_two_deep(lib, log):
    """Modules in fields of modules in fields, shared twice."""
    nn = lib.nn

    class A(nn.Module):
        inner: nn.Module

        @nn.compact
        def __call__(self, x):
            return self.inner(x) + nn.Dense(3)(x)

    class B(nn.Module):
        first: nn.Module
        others: tuple

        @nn.compact
        def __call__(self, x):
            for other in self.others:
                x = other(x)
            return self.first(x) + nn.Dense(3)(x)

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            dense = nn.Dense(3)
            a = A(dense)
            y = a(x)
            return nn.remat(B)(a, (dense, A(dense, name="other")))(y) + dense(y)

    return both(lib, Model(), x_of(lib, 2, 3))


@program
def fields_from_outside(lib, log):
    """An unbound module given to the constructor of a transformed one."""
    nn = lib.nn

    class Twice(nn.Module):
        inner: nn.Module

        @nn.compact
        def __call__(self, x):
            return self.inner(self.inner(x))

    Mapped = nn.vmap(Twice, **vmap_options())
    return both(lib, Mapped(nn.Sequential([nn.Dense(4), nn.Dense(3)])), x_of(lib, 2, 3))


@program
def arguments_in_trees(lib, log):
    """Modules in tuples and dicts of arguments, bound to different places, one of them twice."""
    nn = lib.nn

    def run(m, modules, x):
        a, b = modules["pair"]
        return modules["one"](a(x)) + b(x)

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            a, b = nn.Dense(3), nn.Dense(3, name="b")
            y = a(x)
            given = {"one": a, "pair": (b, nn.Dense(3, use_bias=False))}
            return nn.remat(run)(self, given, y)

    return both(lib, Model(), x_of(lib, 2, 3))


@program
def variables_as_arguments(lib, log):
    """Variables of the parent under vmap: read by all."""
    nn, jnp = lib.nn, lib.jnp

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            scale = self.variable("state", "scale", lambda: 2 * jnp.ones(()))

            def run(m, x, v):
                return nn.Dense(3)(x) * v.value

            mapped = nn.vmap(
                run, in_axes=(0, None), variable_axes={"params": None, "state": None},
                split_rngs={"params": False},
            )  # fmt: skip
            return mapped(self, x, scale)

    return both(lib, Model(), x_of(lib, 2, 3))


@program
def aliases_mutated(lib, log):
    """One module with state reached by two ways, changed inside and outside."""
    nn, jnp = lib.nn, lib.jnp

    class Count(nn.Module):
        @nn.compact
        def __call__(self):
            n = self.variable("state", "n", lambda: jnp.zeros((), jnp.int32))
            n.value += 1
            return n.value

    class Two(nn.Module):
        a: nn.Module
        b: nn.Module

        @nn.remat
        def __call__(self):
            return self.a() + 10 * self.b()

    class Model(nn.Module):
        @nn.compact
        def __call__(self):
            count = Count()
            before = count()
            inside = Two(count, count)()
            return before, inside, count()

    return both(lib, Model(), mutable=["state"], grad=False)


@program
def names_after_transforms(lib, log):
    """Automatic names go on after functions that create modules inside."""
    nn = lib.nn

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.Dense(3)(x)
            x = nn.remat(lambda m, x: nn.Dense(3)(x))(self, x)
            x = nn.jit(lambda m, x: nn.Dense(3)(nn.Dense(3)(x)))(self, x)
            x = nn.map_variables(lambda m, x: nn.Dense(3)(x), "none")(self, x)
            return nn.Dense(3)(x)

    return both(lib, Model(), x_of(lib, 2, 3))


@program
def jit_reuse(lib, log):
    """Layers with equal fields, at other places and in other models, share one trace."""
    nn = lib.nn

    class Layer(nn.Module):
        inner: nn.Module
        widths: tuple

        @nn.compact
        def __call__(self, x):
            log.append("layer")
            return nn.tanh(self.inner(x)) + nn.Dense(self.widths[0])(x)

    Jitted = nn.jit(Layer)

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            for _ in range(3):
                x = Jitted(nn.Dense(3), (3, 4))(x)
            return Jitted(nn.Dense(2), (2, 4))(x)

    return [both(lib, Model(), x_of(lib, 2, 3), grad=False) for _ in range(2)]


@program
def jit_with_mutable(lib, log):
    """What is mutable is part of the key."""
    nn, jnp = lib.nn, lib.jnp

    class Layer(nn.Module):
        @nn.jit
        @nn.compact
        def __call__(self, x):
            log.append("layer")
            n = self.variable("state", "n", lambda: jnp.zeros(()))
            if self.is_mutable_collection("state"):
                n.value += 1
            return x * n.value

    model, x = Layer(), x_of(lib, 3)
    variables = model.init(lib.random.key(0), x)
    return [
        variables, model.apply(variables, x), model.apply(variables, x, mutable=["state"]),
        model.apply(variables, x), model.apply(variables, x, mutable=["state"]),
    ]  # fmt: skip


@program
def recurrence_in_setup(lib, log):
    """A scanned cell in setup, used for two sequences."""
    nn = lib.nn

    class Cell(nn.Module):
        @nn.compact
        def __call__(self, c, x):
            c = nn.tanh(nn.Dense(3)(c) + nn.Dense(3)(x))
            return c, c

    class Model(nn.Module):
        def setup(self):
            scan = functools.partial(
                nn.scan, variable_broadcast="params", split_rngs={"params": False}
            )
            self.cell = scan(Cell)()

        def __call__(self, xs, ys):
            c, _ = self.cell(lib.jnp.zeros(3), xs)
            return self.cell(c, ys)

    return both(lib, Model(), x_of(lib, 4, 3), x_of(lib, 2, 3))


@program
def intermediates(lib, log):
    """What is captured inside a transform comes out."""
    nn = lib.nn

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(2)(nn.remat(nn.Dense)(3)(x))

    model, x = Model(), x_of(lib, 2, 3)
    variables = model.init(lib.random.key(0), x)
    return model.apply(variables, x, capture_intermediates=True, mutable=["intermediates"])


@program
def methods_that_call_methods(lib, log):
    """A transformed method that calls another one of the same module."""
    nn = lib.nn

    class Model(nn.Module):
        def setup(self):
            self.dense = nn.Dense(3)

        @nn.remat
        def inner(self, x):
            return self.dense(x)

        @functools.partial(nn.vmap, variable_axes={"params": None}, split_rngs={"params": False})
        def outer(self, x):
            return self.inner(x) + self.inner(2 * x)

        def __call__(self, x):
            return self.outer(x)

    return both(lib, Model(), x_of(lib, 2, 3))


@program
def captured_in_a_loop(lib, log):
    """Intermediates of every step."""
    nn = lib.nn

    class Layer(nn.Module):
        @nn.compact
        def __call__(self, c, _):
            return nn.Dense(3)(c), None

    axes = {"params": 0, "intermediates": 0}
    model = nn.scan(Layer, variable_axes=axes, split_rngs={"params": True}, length=2)()
    variables = model.init(lib.random.key(0), x_of(lib, 2, 3), None)
    return model.apply(variables, x_of(lib, 2, 3), None, capture_intermediates=True)


@program
def batch_norm(lib, log):
    """Statistics over a mapped axis, and of each layer of a loop."""
    nn = lib.nn

    class Mapped(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.BatchNorm(use_running_average=False, axis_name="b")(nn.Dense(2)(x))

    class Layer(nn.Module):
        @nn.compact
        def __call__(self, c, _):
            return nn.BatchNorm(use_running_average=False)(nn.Dense(3)(c)), None

    mapped = nn.vmap(
        Mapped, variable_axes={"params": None, "batch_stats": None}, split_rngs={"params": False},
        axis_name="b",
    )  # fmt: skip
    axes = {"params": 0, "batch_stats": 0}
    scanned = nn.scan(Layer, variable_axes=axes, split_rngs={"params": True}, length=2)
    return [
        both(lib, mapped(), x_of(lib, 4, 3, 3), mutable=["batch_stats"]),
        both(lib, scanned(), x_of(lib, 4, 3), None, mutable=["batch_stats"]),
    ]


@program
def lazy_init(lib, log):
    """Parameters are created inside every transform without a value of the input."""
    nn = lib.nn

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x, _):
            return nn.tanh(nn.Dense(3)(x)), None

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            layers = nn.scan(nn.remat(Block), length=3, **vmap_options())
            x, _ = layers()(x, None)
            loop = nn.scan(
                Block, variable_broadcast="params", split_rngs={"params": False}, length=3
            )
            x, _ = loop(name="loop")(x, None)
            return nn.jit(nn.Dense)(2)(nn.vmap(nn.Dense, **vmap_options())(2)(x))

    model = Model()
    given = lib.jax.ShapeDtypeStruct((4, 3), lib.jnp.float32)
    variables = model.lazy_init(lib.random.key(0), given)
    shapes = lib.jax.eval_shape(model.init, lib.random.key(0), given)
    log.append(str(lib.jax.tree.map(lambda x: x.shape, shapes)))
    mapped = lib.jax.vmap(lambda x: model.apply(variables, x))(x_of(lib, 2, 4, 3))
    return variables, mapped


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_as_in_flax(fn):
    check(fn)
