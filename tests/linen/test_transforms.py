"""Lifted transformations that map, loop and compute again: against flax, the same text on both.

Each program covers some of: parameters created inside, broadcast, carried and split collections,
random streams, modules shared across the border, nesting two deep; `log` counts traces.
"""

import functools

import pytest

from tests.linen.programs import both, check, noisy, x_of

PROGRAMS = []


def program(fn):
    PROGRAMS.append(fn)
    return fn


# ---- vmap


@program
def vmap_split(lib, log):
    """Parameters, state and noise of their own for each."""
    Mapped = lib.nn.vmap(
        noisy(lib, log), variable_axes={"params": 0, "state": 0, "seen": 0},
        split_rngs={"params": True, "noise": True},
    )  # fmt: skip
    return both(lib, Mapped(3), x_of(lib, 2, 4), rngs=["noise"], mutable=["state", "seen"])


@program
def vmap_shared(lib, log):
    """One set of parameters, the same noise, state that no one sees."""
    Mapped = lib.nn.vmap(
        lib.nn.Dense, variable_axes={"params": None}, split_rngs={"params": False},
        in_axes=1, out_axes=1,
    )  # fmt: skip
    return both(lib, Mapped(2), x_of(lib, 4, 3))


@program
def vmap_axes(lib, log):
    """Axes of parameters and arguments, an axis name, an axis of size only."""

    class Mean(lib.nn.Module):
        @lib.nn.compact
        def __call__(self, x, b):
            y = lib.nn.Dense(2)(x) + b
            return y - lib.lax.pmean(y, "batch"), y

    Mapped = lib.nn.vmap(
        Mean, variable_axes={"params": 1}, split_rngs={"params": True}, in_axes=(None, 0),
        out_axes=(0, 1), axis_name="batch", axis_size=3,
    )  # fmt: skip
    return both(lib, Mapped(), x_of(lib, 2, 4), x_of(lib, 3))


@program
def vmap_in_and_out(lib, log):
    """Collections that only go in, or only come out."""
    lift = lib.core.lift

    class Reads(lib.nn.Module):
        @lib.nn.compact
        def __call__(self, x):
            scale = self.get_variable("given", "scale")
            self.sow("seen", "x", x)
            return x * scale

    Mapped = lib.nn.vmap(
        Reads, variable_axes={"given": lift.In(0), "seen": lift.Out(0)}, split_rngs={},
    )  # fmt: skip
    given = {"given": {"scale": x_of(lib, 3)}}
    return Mapped().apply(given, x_of(lib, 3, 2), mutable=["seen"])


@program
def vmap_method(lib, log):
    """A decorator on a method, next to modules outside it; sharing of a submodule."""
    nn = lib.nn

    class Model(nn.Module):
        def setup(self):
            self.shared = nn.Dense(3)
            self.own = nn.Dense(3)

        @functools.partial(nn.vmap, variable_axes={"params": None}, split_rngs={"params": False})
        def inside(self, x):
            log.append("inside")
            return self.shared(x) + self.own(x)

        def __call__(self, x):
            return self.inside(x) * self.shared(x).sum()

    return both(lib, Model(), x_of(lib, 2, 3))


@program
def vmap_of_argument(lib, log):
    """A function of a module, which gets another module as an argument."""
    nn = lib.nn

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            dense = nn.Dense(3)
            y = dense(x)

            def inner(mdl, x, other):
                return nn.Dense(2)(other(x))

            mapped = nn.vmap(
                inner, in_axes=(0, None), variable_axes={"params": None},
                split_rngs={"params": False},
            )  # fmt: skip
            return mapped(self, y, dense) + nn.Dense(2)(y)

    return both(lib, Model(), x_of(lib, 2, 3))


@program
def vmap_methods(lib, log):
    """Several methods, each with options of its own."""
    nn = lib.nn

    class Coder(nn.Module):
        def setup(self):
            self.up, self.down = nn.Dense(4), nn.Dense(2)

        def encode(self, x):
            return self.up(x)

        def decode(self, x):
            return self.down(x)

        def __call__(self, x):
            return self.decode(self.encode(x))

    options = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}}
    Mapped = nn.vmap(Coder, methods={"encode": options, "decode": options})
    listed = nn.vmap(Coder, methods=["encode", "decode"], **options)
    return [both(lib, m(), x_of(lib, 3, 2)) for m in (Mapped, listed)]


@program
def vmap_twice(lib, log):
    """Two deep, and names of classes as names of parameters."""
    nn = lib.nn
    options = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}}

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.vmap(nn.vmap(nn.Dense, **options), **options)(2)(x)
            partial = functools.partial(nn.Dense, use_bias=False)
            return nn.vmap(partial, in_axes=1, out_axes=1, **options)(3)(x)

    return both(lib, Model(), x_of(lib, 3, 2, 2))


@program
def vmap_boxed(lib, log):
    """Names of axes follow the axes."""
    nn = lib.nn
    init = nn.with_partitioning(nn.initializers.lecun_normal(), (None, "model"))
    Mapped = nn.vmap(
        nn.Dense, variable_axes={"params": 0}, split_rngs={"params": True},
        metadata_params={nn.PARTITION_NAME: "layers"},
    )  # fmt: skip
    model = Mapped(2, kernel_init=init)
    variables = model.init(lib.random.key(0), x_of(lib, 3, 4))
    log.append(str(variables["params"]["kernel"].names))
    return [nn.meta.unbox(variables), model.apply(variables, x_of(lib, 3, 4))]


# ---- scan


@program
def scan_layers(lib, log):
    """A layer of its own in each step."""

    class Block(lib.nn.Module):
        @lib.nn.compact
        def __call__(self, x, _):
            log.append("block")
            y = lib.nn.Dense(3)(lib.nn.Dropout(0.5, deterministic=False)(x))
            return lib.nn.tanh(y), y.sum()

    Scanned = lib.nn.scan(
        Block, variable_axes={"params": 0}, split_rngs={"params": True, "dropout": True}, length=4
    )
    return both(lib, Scanned(), x_of(lib, 2, 3), None, rngs=["dropout"])


@program
def scan_time(lib, log):
    """Shared parameters, carried state, scanned inputs along axis 1, broadcast inputs."""
    nn, jnp = lib.nn, lib.jnp

    def body(m, c, x, scale):
        log.append("body")
        m.put_variable("count", "n", m.get_variable("count", "n") + 1)
        c = nn.tanh(nn.Dense(3)(c) + nn.Dense(3)(x) * scale)
        noise = lib.random.normal(m.make_rng("noise"), ())
        m.sow("seen", "c", c.sum())
        return c, (c + noise, m.get_variable("count", "n"))

    class Model(nn.Module):
        @nn.compact
        def __call__(self, c, xs, scale):
            self.variable("count", "n", lambda: jnp.zeros((), jnp.int32))
            run = nn.scan(
                body, variable_broadcast="params", variable_carry="count",
                variable_axes={"seen": 0}, split_rngs={"params": False, "noise": True},
                in_axes=(1, nn.broadcast), out_axes=(1, 0),
            )  # fmt: skip
            return run(self, c, xs, scale)

    return both(
        lib, Model(), jnp.zeros((2, 3)), x_of(lib, 2, 5, 4), 0.5, rngs=["noise"],
        mutable=["count", "seen"],
    )  # fmt: skip


@program
def scan_broadcast_result(lib, log):
    """A result that is the same in every step, computed once; reverse; unroll; axis -1."""
    nn = lib.nn

    class Body(nn.Module):
        @nn.compact
        def __call__(self, c, x):
            w = self.param("w", nn.initializers.normal(), (3,))
            return c * 0.5 + x.sum(), (w * 2, c + x)

    Scanned = nn.scan(
        Body, variable_broadcast="params", split_rngs={"params": False}, reverse=True, unroll=2,
        in_axes=-1, out_axes=(nn.broadcast, -1),
    )  # fmt: skip
    return both(lib, Scanned(), lib.jnp.zeros(()), x_of(lib, 2, 4))


@program
def scan_unchecked(lib, log):
    """One trace less."""
    nn = lib.nn

    class Body(nn.Module):
        @nn.compact
        def __call__(self, c, x):
            log.append("body")
            return nn.Dense(2)(c) + x, None

    Scanned = nn.scan(
        Body, variable_axes={"params": 0}, split_rngs={"params": True},
        check_constancy_invariants=False,
    )  # fmt: skip
    return both(lib, Scanned(), x_of(lib, 1, 2), x_of(lib, 3, 1, 2))


@program
def scan_method(lib, log):
    """A decorated method of a module with setup, called beside others; data_transform."""
    nn = lib.nn

    def seen(variables, rngs):
        log.append("data")
        return variables, rngs

    class Model(nn.Module):
        def setup(self):
            self.cell = nn.Dense(3)

        @functools.partial(
            nn.scan, variable_broadcast="params", split_rngs={"params": False},
            data_transform=seen,
        )  # fmt: skip
        def run(self, c, x):
            return nn.tanh(self.cell(c) + x), c

        def __call__(self, c, xs):
            return self.run(c, xs), self.cell(c)

    return both(lib, Model(), x_of(lib, 3), x_of(lib, 4, 3))


@program
def scan_of_remat(lib, log):
    """Two deep, as deep models are written; boxes."""
    nn = lib.nn
    init = nn.with_partitioning(nn.initializers.lecun_normal(), (None, "model"))

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x, scale):
            log.append("block")
            return nn.tanh(nn.Dense(3, kernel_init=init)(x) * scale), None

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            Scanned = nn.scan(
                nn.remat(Block, prevent_cse=False), variable_axes={"params": 0},
                split_rngs={"params": True}, in_axes=nn.broadcast, length=3,
                metadata_params={nn.PARTITION_NAME: "layers"},
            )  # fmt: skip
            x, _ = Scanned()(x, 2.0)
            return Scanned(name="again")(x, 1.0)[0]

    seen = both(lib, Model(), x_of(lib, 2, 3), grad=False)
    names = seen["init"]["params"]["again"]["Dense_0"]["kernel"].names
    log.append(str(names))
    return nn.meta.unbox(seen)


@program
def scan_of_scan(lib, log):
    """Loops in loops with a layer for each step of both."""
    nn = lib.nn
    options = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}}

    class Body(nn.Module):
        @nn.compact
        def __call__(self, c, _):
            return nn.Dense(2)(c), None

    Scanned = nn.scan(nn.scan(Body, length=2, **options), length=3, **options)
    return both(lib, Scanned(), x_of(lib, 1, 2), None)


@program
def scan_shares_outside(lib, log):
    """A module of the parent, used inside the loop and outside of it."""
    nn = lib.nn

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x, xs):
            dense = nn.Dense(3)

            def body(mdl, c, x):
                return nn.tanh(mdl(c) + x), None

            run = nn.scan(body, variable_broadcast="params", split_rngs={"params": False})
            return run(dense, x, xs)[0] + dense(x)

    return both(lib, Model(), x_of(lib, 3), x_of(lib, 4, 3))


@program
def scan_field(lib, log):
    """A module in a field of the scanned module, shared with the parent."""
    nn = lib.nn

    class Body(nn.Module):
        inner: nn.Module

        @nn.compact
        def __call__(self, c, x):
            return self.inner(c) + nn.Dense(3)(x), None

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x, xs):
            inner = nn.Dense(3, name="inner")
            y = inner(x)
            run = nn.scan(Body, variable_broadcast="params", split_rngs={"params": False})
            return run(inner)(y, xs)[0]

    return both(lib, Model(), x_of(lib, 3), x_of(lib, 4, 3))


# ---- remat, remat_scan


@program
def remat(lib, log):
    """The same numbers as without, noise included; keyword and static arguments."""
    nn = lib.nn

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x, train, scale=1.0):
            log.append("block")
            assert train is True
            y = nn.Dropout(0.5, deterministic=not train)(nn.Dense(3)(x))
            return nn.BatchNorm(use_running_average=not train)(y) * scale

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.remat(Block, static_argnums=(2,))(name="a")(x, True, scale=2.0)
            policy = lib.jax.checkpoint_policies.everything_saveable
            return nn.checkpoint(Block, policy=policy, static_argnums=2)()(x, True)

    return both(lib, Model(), x_of(lib, 4, 3), rngs=["dropout"], mutable=["batch_stats"])


@program
def remat_method(lib, log):
    """Methods, of a module with setup, in a module with setup."""
    nn = lib.nn

    class Inner(nn.Module):
        def setup(self):
            self.a = nn.Dense(3)

        @nn.remat
        def __call__(self, x):
            return nn.tanh(self.a(x))

    class Outer(nn.Module):
        def setup(self):
            self.inner = Inner()
            self.last = nn.remat(nn.Dense)(2)

        @nn.remat
        def __call__(self, x):
            return self.last(self.inner(x) + self.inner(2 * x))

    return both(lib, Outer(), x_of(lib, 2, 3))


@program
def remat_scan(lib, log):
    """Nested loops."""

    class Block(lib.nn.Module):
        @lib.nn.compact
        def __call__(self, x):
            log.append("block")
            return lib.nn.tanh(lib.nn.Dense(2)(x))

    Deep = lib.nn.remat_scan(Block, lengths=(2, 3))
    Flat = lib.nn.remat_scan(lib.nn.Dense, lengths=(3,))
    return [both(lib, Deep(), x_of(lib, 1, 2)), both(lib, Flat(2), x_of(lib, 1, 2))]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_as_in_flax(fn):
    check(fn)
