"""Lifted transformations that compile, differentiate, branch, view variables: against flax.

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


# ---- jit, fold_rngs


@program
def jit(lib, log):
    """Equal modules are traced once; random numbers are those of flax's jit."""
    Jitted = lib.nn.jit(noisy(lib, log))
    x = x_of(lib, 2, 3)
    seen = [both(lib, Jitted(3), x, rngs=["noise"], mutable=["state"], grad=False)]
    log.append("again")
    seen.append(both(lib, Jitted(3), x, rngs=["noise"], mutable=["state"], grad=False))
    log.append("other field")
    seen.append(both(lib, Jitted(2), x, rngs=["noise"], mutable=["state"]))
    return seen


@program
def jit_method(lib, log):
    """A decorated method of several instances; static arguments; counters go on after a hit."""
    nn = lib.nn

    class Layer(nn.Module):
        features: int

        @functools.partial(nn.jit, static_argnames=("train", "scale"))
        @nn.compact
        def __call__(self, x, train, scale=1):
            log.append(f"layer {train} {scale}")
            y = nn.Dense(self.features)(x) * scale
            return y + (lib.random.normal(self.make_rng("noise"), y.shape) if train else 0.0)

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            for i in range(3):
                x = Layer(3, name=f"l{i}")(x, train=True, scale=2)
            x = Layer(3, name="l0b")(x, train=False, scale=2)
            layer = Layer(3)
            x = layer(layer(x, train=True), train=True)
            return x + lib.random.normal(self.make_rng("noise"), (3,))

    return both(lib, Model(), x_of(lib, 2, 3), rngs=["noise"])


@program
def fold_rngs(lib, log):
    """The random numbers of jit, without it."""
    Folded, Jitted = lib.nn.fold_rngs(noisy(lib, log)), lib.nn.jit(noisy(lib, log))
    x = x_of(lib, 2, 3)
    return [
        both(lib, m(3), x, rngs=["noise"], mutable=["state"], grad=False) for m in (Folded, Jitted)
    ]


# ---- map_variables, add_metadata_axis


@program
def map_variables(lib, log):
    """Transposed kernels, tied weights, a read-only view."""
    nn, jnp = lib.nn, lib.jnp
    transposed = lambda xs: lib.jax.tree.map(jnp.transpose, xs)
    Tied = nn.map_variables(nn.Dense, "params", transposed, transposed, init=True)
    Signs = nn.map_variables(nn.Dense, "params", lambda xs: lib.jax.tree.map(jnp.sign, xs))

    class Auto(nn.Module):
        @nn.compact
        def __call__(self, x):
            log.append("auto")
            encoder = nn.Dense(4, use_bias=False)
            y = encoder(x)
            decoder = nn.map_variables(
                lambda m, y: nn.Dense(x.shape[-1], use_bias=False, name="d")(y), "params",
                lambda xs: {"params": {"d": transposed(encoder.variables["params"])}},
                rngs=False,
            )  # fmt: skip
            return decoder(self, y)

    x = x_of(lib, 2, 3)
    dense = nn.Dense(4).init(lib.random.key(1), x)
    return [
        both(lib, Tied(4), x), Signs(4).apply(dense, x), both(lib, Auto(), x),
    ]  # fmt: skip


@program
def map_variables_mutable(lib, log):
    """What changes inside is stored through the inverse; an argument by name."""
    nn, jnp = lib.nn, lib.jnp
    half = lambda xs: lib.jax.tree.map(lambda x: x / 2, xs)
    twice = lambda xs: lib.jax.tree.map(lambda x: x * 2, xs)

    class Mean(nn.Module):
        @nn.compact
        def __call__(self, x, weight=1.0):
            mean = self.variable("stats", "mean", jnp.zeros, ())
            mean.value = 0.9 * mean.value + x.mean() * weight
            return x - mean.value

    Mapped = nn.map_variables(Mean, "stats", half, twice, mutable=True)
    return both(lib, Mapped(), x_of(lib, 4), weight=0.5, mutable=["stats"], grad=False)


@program
def add_metadata_axis(lib, log):
    nn = lib.nn
    init = nn.with_partitioning(nn.initializers.lecun_normal(), (None, "model"))
    Boxed = nn.add_metadata_axis(
        nn.Dense, variable_axes={"params": 0}, metadata_params={nn.PARTITION_NAME: "stack"}
    )
    variables = Boxed(2, kernel_init=init).init(lib.random.key(0), x_of(lib, 2, 3))
    log.append(str(variables["params"]["kernel"].names))
    return nn.meta.unbox(variables)


# ---- derivatives


@program
def vjp(lib, log):
    """Gradients of parameters, created inside, and of inputs; aux; other variables."""
    nn, jnp = lib.nn, lib.jnp

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            dense = nn.Dense(3)

            def run(m, x):
                log.append("run")
                return nn.tanh(m(x))

            y, pull_back = nn.vjp(run, dense, x)
            grads = pull_back(jnp.ones_like(y))

            def with_aux(m, x):
                count = m.variable("state", "n", lambda: jnp.zeros(()))
                count.value += 1
                return nn.Dense(2)(x), x.sum()

            z, pull_back, aux = nn.vjp(with_aux, self, y, has_aux=True)
            return y, grads, z, pull_back(z), aux

    return both(lib, Model(), x_of(lib, 2, 3), mutable=["state"], grad=False)


@program
def vjp_several_scopes(lib, log):
    nn = lib.nn

    class Inner(nn.Module):
        other: nn.Module

        @nn.compact
        def __call__(self, x):
            return nn.Dense(2)(self.other(x))

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            inner = Inner(nn.Dense(3))
            y, pull_back = nn.vjp(lambda m, x: m(x), inner, x, multi_scope=True)
            return pull_back(y)

    return both(lib, Model(), x_of(lib, 2, 3), grad=False)


@program
def grad(lib, log):
    """grad and value_and_grad: of inputs only."""
    nn = lib.nn

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x, z):
            dense = nn.Dense(3)

            def energy(m, x, z):
                log.append("energy")
                return (m(x) ** 2).sum() * z

            def with_aux(m, x, z):
                return energy(m, x, z), x.sum()

            return [
                nn.grad(energy, dense, x, z), nn.value_and_grad(energy, dense, x, z),
                nn.grad(with_aux, dense, x, z, has_aux=True),
                nn.value_and_grad(with_aux, dense, x, z, has_aux=True),
            ]  # fmt: skip

    return both(lib, Model(), x_of(lib, 2, 3), lib.jnp.float32(0.5))


@program
def grad_of_adopted(lib, log):
    """grad and value_and_grad in a module whose submodules are fields."""
    nn = lib.nn

    class Model(nn.Module):
        first: nn.Module
        second: nn.Module

        @nn.compact
        def __call__(self, x, y):
            def energy(m, x, y):
                log.append("energy")
                return ((y - m.second(m.first(x))) ** 2).sum()

            return nn.grad(energy, self, x, y), nn.value_and_grad(energy, self, x, y)

    return both(lib, Model(nn.Dense(3), nn.Dense(3)), x_of(lib, 2, 3), x_of(lib, 2, 3))


@program
def jvp(lib, log):
    """Tangents of parameters and inputs."""
    nn, jnp = lib.nn, lib.jnp

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            dense = nn.Dense(3)

            def run(m, x):
                log.append("run")
                return nn.tanh(m(x))

            params = dense.variables.get("params", {})
            tangents = {"params": lib.jax.tree.map(jnp.ones_like, params)}
            return nn.jvp(run, dense, (x,), (jnp.ones_like(x),), tangents)

    return both(lib, Model(), x_of(lib, 2, 3))


@program
def custom_vjp(lib, log):
    """A gradient of one's own, with nn.vjp's function as the residual; nondiff arguments."""
    nn, jnp = lib.nn, lib.jnp

    class Signed(nn.Module):
        @nn.compact
        def __call__(self, x):
            dense = nn.Dense(3)

            def run(m, x, scale):
                log.append("run")
                return m(x) * scale

            def forward(m, x, scale):
                log.append("forward")
                return nn.vjp(lambda m, x: run(m, x, scale), m, x)

            def backward(scale, pull_back, ct):
                log.append("backward")
                params, x = pull_back(ct)
                return lib.jax.tree.map(jnp.sign, params), x * scale

            return nn.custom_vjp(run, forward, backward, nondiff_argnums=(2,))(dense, x, 3.0)

    return both(lib, Signed(), x_of(lib, 2, 3))


@program
def custom_vjp_in_jit(lib, log):
    """Traced first, differentiated later."""
    nn, jnp = lib.nn, lib.jnp

    def run(m, x):
        return nn.tanh(m(x))

    def forward(m, x):
        return run(m, x), (x, m.variables["params"])

    def backward(residuals, ct):
        x, params = residuals
        return {"params": lib.jax.tree.map(jnp.ones_like, params)}, ct.sum() * x

    class Model(nn.Module):
        @nn.jit
        @nn.compact
        def __call__(self, x):
            return nn.custom_vjp(run, forward, backward)(nn.Dense(2), x)

    return both(lib, Model(), x_of(lib, 2, 3))


# ---- loops and branches


@program
def while_loop(lib, log):
    """Carried and shared variables, keys of their own for steps and conditions."""
    nn, jnp = lib.nn, lib.jnp

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            self.variable("state", "n", lambda: jnp.zeros((), jnp.int32))
            dense = nn.Dense(3)
            dense(x)

            def go_on(m, c):
                log.append("cond")
                noise = lib.random.uniform(m.make_rng("noise"))
                return (m.get_variable("state", "n") < 4) & (noise > -1)

            def step(m, c):
                log.append("body")
                m.put_variable("state", "n", m.get_variable("state", "n") + 1)
                return nn.tanh(dense_of(m)(c)) + lib.random.normal(m.make_rng("noise"), c.shape)

            def dense_of(m):
                return nn.Dense(3, name="inner")

            if self.is_initializing():
                step(self, x)
            return nn.while_loop(
                go_on, step, self, x, carry_variables="state", split_rngs={"noise": True}
            )

    return both(lib, Model(), x_of(lib, 2, 3), rngs=["noise"], mutable=["state"], grad=False)


@program
def cond(lib, log):
    """Both branches create the same variables."""
    nn, jnp = lib.nn, lib.jnp

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x, pred):
            self.variable("state", "true", lambda: jnp.zeros(()))
            self.variable("state", "false", lambda: jnp.zeros(()))

            def true(m, x):
                log.append("true")
                m.put_variable("state", "true", m.get_variable("state", "true") + 1)
                return nn.Dense(2, name="d")(x)

            def false(m, x):
                log.append("false")
                m.put_variable("state", "false", m.get_variable("state", "false") + 1)
                return -nn.Dense(2, name="d")(x) * lib.random.uniform(m.make_rng("noise"))

            return nn.cond(pred, true, false, self, x)

    return [
        both(lib, Model(), x_of(lib, 2, 3), jnp.asarray(p), rngs=["noise"], mutable=["state"])
        for p in (True, False)
    ]


@program
def switch(lib, log):
    """Branches with parameters of their own, run once under init."""
    nn = lib.nn

    class Model(nn.Module):
        def setup(self):
            self.heads = [nn.Sequential([nn.Dense(w), nn.Dense(2)]) for w in (3, 4, 5)]

        @nn.compact
        def __call__(self, x, i):
            def head(n):
                def run(m, x):
                    log.append(f"head {n}")
                    return m.heads[n](x)

                return run

            branches = [head(n) for n in range(3)]
            if self.is_initializing():
                for branch in branches:
                    branch(self, x)
            return nn.switch(i, branches, self, x)

    return [both(lib, Model(), x_of(lib, 2, 3), lib.jnp.asarray(i)) for i in (0, 2)]


@program
def named_call(lib, log):
    nn = lib.nn

    class Model(nn.Module):
        @nn.named_call
        @nn.compact
        def __call__(self, x):
            return nn.Dense(2)(x)

    return both(lib, Model(), x_of(lib, 2, 3))


# ---- two deep, mixed


@program
def vmap_of_scan(lib, log):
    """An ensemble of recurrent networks."""
    nn = lib.nn

    class Cell(nn.Module):
        @nn.compact
        def __call__(self, c, x):
            c = nn.tanh(nn.Dense(2)(c) + x)
            return c, c + lib.random.normal(self.make_rng("noise"), ())

    Scanned = nn.scan(
        Cell, variable_broadcast="params", split_rngs={"params": False, "noise": True}
    )
    Mapped = nn.vmap(
        Scanned, variable_axes={"params": 0}, split_rngs={"params": True, "noise": True},
        in_axes=(None, 0),
    )  # fmt: skip
    return both(lib, Mapped(), lib.jnp.zeros(2), x_of(lib, 3, 4, 2), rngs=["noise"])


@program
def jit_of_vmap(lib, log):
    nn = lib.nn
    Mapped = nn.vmap(
        noisy(lib, log), variable_axes={"params": 0, "state": 0},
        split_rngs={"params": True, "noise": False},
    )  # fmt: skip
    model = nn.jit(Mapped)(2)
    return both(lib, model, x_of(lib, 3, 2), rngs=["noise"], mutable=["state"])


@program
def scan_of_cond(lib, log):
    nn = lib.nn

    class Body(nn.Module):
        @nn.compact
        def __call__(self, c, x):
            dense = nn.Dense(2)
            if self.is_initializing():
                dense(c)
            c = nn.cond(x > 0, lambda m, c: m(c), lambda m, c: -m(c), dense, c)
            return c, None

    Scanned = nn.scan(Body, variable_axes={"params": 0}, split_rngs={"params": True})
    return both(lib, Scanned(), x_of(lib, 2), x_of(lib, 3))


@program
def shared_by_two(lib, log):
    """One module crosses the border twice: as a field of the module and as its argument."""
    nn = lib.nn

    class Outer(nn.Module):
        dense: nn.Module

        @nn.compact
        def __call__(self, x, other):
            return self.dense(x) + other(x)

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            dense = nn.Dense(3)
            return nn.remat(Outer)(dense)(x, dense)

    return both(lib, Model(), x_of(lib, 2, 3))


@program
def variable_argument(lib, log):
    """A Variable crosses the border and is written inside."""
    nn, jnp = lib.nn, lib.jnp

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            total = self.variable("state", "total", lambda: jnp.zeros(()))

            def run(m, x, v):
                v.value += x.sum()
                return nn.Dense(2)(x)

            return nn.remat(run)(self, x, total)

    return both(lib, Model(), x_of(lib, 2, 3), mutable=["state"])


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_as_in_flax(fn):
    check(fn)
