"""Corners of lifted transformations: filters, trees of axes, adoption, name scopes, jit's keys."""

import functools

import pytest

from tests.linen.programs import both, check, x_of

PROGRAMS = []
SPLIT = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}}


def program(fn):
    PROGRAMS.append(fn)
    return fn


@program
def adopted_twice(lib, log):
    """A module in a field, and in a field of another field, under a transformed method."""
    nn = lib.nn

    class A(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(3)(x)

    class B(nn.Module):
        a: nn.Module

        @nn.compact
        def __call__(self, x):
            return self.a(x)

    class C(nn.Module):
        a: nn.Module
        b: nn.Module

        @functools.partial(nn.vmap, variable_axes={"params": 0}, split_rngs={"params": True})
        @nn.compact
        def __call__(self, x):
            return self.b(x) + self.a(x)

    a = A()
    return both(lib, C(a, B(a)), x_of(lib, 2, 3))


@program
def loop_of_a_function(lib, log):
    """A function that creates modules, scanned over the module that calls it."""
    nn = lib.nn

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            body = lambda m, x: (nn.tanh(nn.Dense(3)(x)), ())
            return nn.scan(body, length=3, **SPLIT)(self, x)[0]

    return both(lib, Model(), x_of(lib, 2, 3))


@program
def filters(lib, log):
    """Collections and streams by what they are not, and all of them."""
    nn, Deny = lib.nn, lib.core.DenyList

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            self.variable("stats", "sum", lambda: x.sum())
            return nn.Dense(3)(x) + lib.random.normal(self.make_rng("noise"))

    denied = nn.vmap(
        Model, variable_axes={Deny("params"): 0, "params": None},
        split_rngs={"params": False, Deny("params"): True},
    )  # fmt: skip
    everything = nn.vmap(Model, variable_axes={True: 0}, split_rngs={True: True})
    return [both(lib, m(), x_of(lib, 2, 3), rngs=["noise"]) for m in (denied, everything)]


@program
def trees_of_axes(lib, log):
    """Axes for parts of arguments and results."""
    nn = lib.nn

    class Cell(nn.Module):
        @nn.compact
        def __call__(self, carry, xs):
            (h, n), (a, b) = carry, xs
            h = nn.Dense(3)(h) + a["x"]
            return (h, n + 1), {"h": h, "b": b}

    Scanned = nn.scan(
        Cell, variable_broadcast="params", split_rngs={"params": False},
        in_axes=(({"x": 0}, 1),), out_axes={"h": 1, "b": 0},
    )  # fmt: skip
    carry = (x_of(lib, 3), lib.jnp.zeros((), int))
    return both(lib, Scanned(), carry, ({"x": x_of(lib, 4, 3)}, x_of(lib, 2, 4)))


@program
def loop_without_inputs(lib, log):
    """Parameters along axis 1, nothing scanned but them."""

    class Body(lib.nn.Module):
        @lib.nn.compact
        def __call__(self, c):
            return lib.nn.Dense(3)(c), None

    Scanned = lib.nn.scan(
        Body, variable_axes={"params": 1}, split_rngs={"params": True}, length=2, in_axes=()
    )
    return both(lib, Scanned(), x_of(lib, 3))


@program
def name_scopes(lib, log):
    nn = lib.nn

    class Model(nn.Module):
        @nn.compact_name_scope
        def up(self, x):
            return nn.Dense(3)(x)

        @nn.compact_name_scope
        def down(self, x):
            return nn.Dense(2)(x)

        def __call__(self, x):
            return self.down(self.up(x))

    return [both(lib, lift(Model)(), x_of(lib, 2, 3)) for lift in (nn.remat, nn.jit)]


@program
def shared_scopes(lib, log):
    """share_scope, outside and inside."""
    nn = lib.nn

    class Inner(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(3)(x)

    class Outer(nn.Module):
        def setup(self):
            self.inner = Inner()
            nn.share_scope(self, self.inner)

        @nn.remat
        def __call__(self, x):
            return self.inner(x)

    return [both(lib, m(), x_of(lib, 2, 3)) for m in (Outer, nn.vmap(Outer, **SPLIT))]


@program
def fields_in_keys(lib, log):
    """Dicts, lists, structs and functions in the fields of a jitted module."""
    nn, struct = lib.nn, lib.struct

    @struct.dataclass
    class Options:
        factor: int = struct.field(pytree_node=False, default=1)
        sizes: tuple = struct.field(pytree_node=False, default=(1, 2))

    class Model(nn.Module):
        d: dict
        options: Options
        xs: list

        @nn.jit
        @nn.compact
        def __call__(self, x):
            log.append("model")
            return self.d["act"](nn.Dense(self.d["n"] * self.options.factor)(x)) * self.xs[0]

    def model(n, factor, act):
        return Model({"n": n, "act": act}, Options(factor), [1, 2])

    options = [(2, 1, nn.relu), (2, 1, nn.relu), (2, 2, nn.relu), (4, 1, nn.relu), (4, 1, nn.tanh)]
    return [both(lib, model(*o), x_of(lib, 2, 3), grad=False) for o in options]


@program
def derivative_in_a_loop(lib, log):
    nn = lib.nn

    class Cell(nn.Module):
        @nn.compact
        def __call__(self, c, x):
            dense = nn.Dense(3)
            if self.is_initializing():
                dense(c)
            y, pull_back = nn.vjp(lambda m, c: m(c), dense, c)
            return nn.tanh(pull_back(y)[1] + x), y

    Scanned = nn.scan(Cell, variable_broadcast="params", split_rngs={"params": False})
    return both(lib, Scanned(), x_of(lib, 3), x_of(lib, 4, 3))


@program
def methods_as_targets(lib, log):
    """Methods of the class, given to direct transformations."""
    nn = lib.nn

    class Model(nn.Module):
        def setup(self):
            self.dense = nn.Dense(3)

        def run(self, x):
            return self.dense(x)

        def __call__(self, x):
            y, pull_back = nn.vjp(Model.run, self, x)
            z = nn.grad(lambda m, x: m.run(x).sum(), self, x)
            return pull_back(y), nn.remat(Model.run)(self, x), z

    return both(lib, Model(), x_of(lib, 2, 3), grad=False)


@program
def static_arguments(lib, log):
    nn = lib.nn

    class Model(nn.Module):
        @functools.partial(nn.remat, static_argnums=(2, 3))
        @nn.compact
        def __call__(self, x, a, b):
            return nn.Dense(3)(x) if a and not b else x

    return both(lib, Model(), x_of(lib, 2, 3), True, False)


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_as_in_flax(fn):
    check(fn)
