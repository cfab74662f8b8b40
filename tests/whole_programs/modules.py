"""Programs about modules: naming, sharing, adoption, setup, state, random streams, mistakes.

`ns.linen`, `ns.core`, `ns.struct` and `ns.errors` are flax's or toile's."""

import copy
import dataclasses
import functools
from typing import Any

import numpy as np

from tests.whole_programs.registry import caught, program

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


def shapes(ns, variables):
    """Paths with shapes and dtypes, as text."""
    flat = ns.traverse_util.flatten_dict(ns.core.unfreeze(variables), sep="/")
    return {k: f"{v.dtype}{v.shape}" for k, v in flat.items()}


@program()
def names_in_compact_methods(ns):
    nn = ns.linen

    class Block(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x):
            x = nn.Dense(self.width)(x)
            x = nn.Dense(self.width, name="named")(x)
            scale = self.param("scale", nn.initializers.ones, (self.width,))
            return nn.Dense(2, use_bias=False)(x) * scale[:2]

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            first = Block(4)
            x = first(x)
            x = Block(3)(x)
            again = Block(2, name="again")
            return again(again(x)), first.name

    y, variables = Model().init_with_output(ns.random.key(0), X)
    return y, variables, Model().apply(variables, X)


@program()
def setup_and_containers(ns):
    nn = ns.linen

    class Model(nn.Module):
        widths: tuple = (4, 3)

        def setup(self):
            self.layers = [nn.Dense(n) for n in self.widths]
            self.heads = {"left": nn.Dense(2), "right": (nn.Dense(1), nn.Dense(1, use_bias=False))}
            self.bias = self.param("bias", nn.initializers.normal(), (3,))
            self.counter = self.variable("stats", "calls", lambda: np.zeros((), np.int32))

        def __call__(self, x):
            for layer in self.layers:
                x = nn.relu(layer(x))
            self.counter.value = self.counter.value + 1
            return self.finish(x + self.bias)

        def finish(self, x):
            a, b = self.heads["right"]
            return self.heads["left"](x) + a(x) + b(x)

    model = Model()
    variables = model.init(ns.random.key(1), X)
    y, changed = model.apply(variables, X, mutable=["stats"])
    z = model.apply(variables, y @ np.ones((2, 3), np.float32), method=Model.finish)
    w = model.apply(variables, y @ np.ones((2, 3), np.float32), method="finish")
    bound = model.bind(variables)
    kinds = [type(bound.layers).__name__, type(bound.heads).__name__, bound.layers[0].name]
    return variables, y, changed, z, w, bound.layers[1].variables, kinds


@program()
def sharing_by_identity(ns):
    nn = ns.linen

    class Tied(nn.Module):
        def setup(self):
            self.embed = nn.Embed(7, 4)

        def __call__(self, ids):
            return self.embed.attend(nn.tanh(self.embed(ids)))

    class Pair(nn.Module):
        inner: nn.Module

        @nn.compact
        def __call__(self, x):
            return self.inner(x) + nn.Dense(3)(self.inner(x))

    shared = nn.Dense(3)
    pair = Pair(shared)

    class Both(nn.Module):
        a: nn.Module
        b: nn.Module

        def __call__(self, x):
            return self.a(x) + self.b(x) + self.a.inner(x)

    both = Both(pair, pair)
    two = Both(Pair(shared), Pair(shared))
    ids = np.array([[1, 2], [0, 6]])
    return (
        Tied().init_with_output(ns.random.key(0), ids),
        pair.init_with_output(ns.random.key(0), X),
        both.init_with_output(ns.random.key(0), X),
        shapes(ns, two.init(ns.random.key(0), X)),
    )


@program()
def adoption_of_outside_modules(ns):
    nn = ns.linen

    class Outer(nn.Module):
        parts: Any
        last: Any = None

        @nn.compact
        def __call__(self, x):
            for part in self.parts.values() if hasattr(self.parts, "values") else self.parts:
                x = part(x)
            return x if self.last is None else self.last(x)

    class Keeps(nn.Module):
        part: Any
        preserve_adopted_names = True

        def __call__(self, x):
            return self.part(x)

    one = nn.Dense(3, name="outside")
    key = ns.random.key(0)
    return {
        "list": Outer([nn.Dense(3), nn.Dense(3)]).init(key, X),
        "dict": Outer({"b": nn.Dense(3), "a": nn.Dense(3)}).init(key, X),
        "nested": shapes(ns, Outer((Outer([one]), one), last=one).init(key, X)),
        "keeps": shapes(ns, Keeps(one).init(key, X)),
        "partial": shapes(ns, nn.Sequential([one, functools.partial(np.multiply, 2)]).init(key, X)),
    }


@program()
def second_call_of_the_same_instance(ns):
    nn = ns.linen

    class Noise(nn.Module):
        @nn.compact
        def __call__(self, x):
            a = self.param("a", nn.initializers.normal(), (3,))
            return x * a + ns.random.normal(self.make_rng("noise"), x.shape)

    class Twice(nn.Module):
        @nn.compact
        def __call__(self, x):
            layer = Noise()
            return layer(x), layer(x), ns.random.key_data(self.make_rng("noise"))

    keys = {"params": ns.random.key(0), "noise": ns.random.key(1)}
    out, variables = Twice().init_with_output(keys, X)
    fallback = Twice().apply(variables, X, rngs=ns.random.key(5))
    return out, variables, Twice().apply(variables, X, rngs={"noise": ns.random.key(9)}), fallback


@program()
def name_scopes_and_shared_scopes(ns):
    nn = ns.linen

    class Coder(nn.Module):
        @nn.compact_name_scope
        def encode(self, x):
            return nn.Dense(2)(x)

        @nn.compact_name_scope
        def decode(self, z):
            return nn.Dense(3)(z)

        def __call__(self, x):
            return self.decode(self.encode(x))

    class Lora(nn.Module):
        base: nn.Module

        def setup(self):
            nn.share_scope(self, self.base)

        @nn.compact
        def __call__(self, x):
            a = self.param("A", nn.initializers.normal(), (3, 1))
            b = self.param("B", nn.initializers.zeros, (1, 4))
            return self.base(x) + x @ a @ b

    variables = Coder().init(ns.random.key(0), X)
    return (
        variables,
        Coder().apply(variables, X, method="encode"),
        Lora(nn.Dense(4)).init_with_output(ns.random.key(0), X),
    )


@program()
def clone_copy_bind_unbind(ns):
    nn = ns.linen

    class Net(nn.Module):
        width: int = 4

        def setup(self):
            self.first = nn.Dense(self.width)
            self.second = nn.Dense(2)

        def __call__(self, x):
            return self.second(self.first(x))

    net = Net()
    variables = net.init(ns.random.key(0), X)
    bound = net.bind(variables)
    first, its = bound.first.unbind()
    wider = net.clone(width=8)
    return (
        bound(X), its, first.apply(its, X), wider.width, net == Net(4), net == wider,
        hash(net) == hash(Net()), dataclasses.replace(net, width=2).width, repr(first.name),
        copy.deepcopy(net) == net, shapes(ns, bound.variables), wider.copy(width=1).width,
        caught(lambda: net.first), caught(lambda: hash(bound)), caught(lambda: net.unbind()),
        caught(lambda: setattr(net, "width", 3)), caught(lambda: net.variables),
    )  # fmt: skip


@program()
def intermediates(ns):
    nn, jnp = ns.linen, ns.jnp

    class Inner(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.Dense(3)(x)
            self.sow("intermediates", "h", x)
            self.sow("total", "sum", x.sum(), reduce_fn=lambda a, b: a + b, init_fn=lambda: 0.0)
            return self.perturb("delta", x)

        def other(self, x):
            return 2 * x

    class Outer(nn.Module):
        @nn.compact
        def __call__(self, x):
            inner = Inner()
            return inner.other(inner(inner(x)))

    model = Outer()
    variables = model.init(ns.random.key(0), X)
    params = {"params": variables["params"]}
    all_calls = model.apply(params, X, capture_intermediates=True, mutable=["total"])
    some = model.apply(
        params, X, capture_intermediates=lambda m, name: name == "other", mutable="intermediates"
    )

    def loss(perturbations):
        y = model.apply({**params, "perturbations": perturbations}, X)
        return jnp.mean(y**2)

    return (
        shapes(ns, {k: v for k, v in variables.items() if k != "total"}), all_calls, some,
        ns.jax.grad(loss)(variables["perturbations"]),
    )  # fmt: skip


@program()
def interceptors_in_order(ns):
    nn = ns.linen
    log = []

    def watch(label):
        def interceptor(call, args, kwargs, context):
            log.append(f"{label} {type(context.module).__name__}.{context.method_name}")
            return call(*args, **kwargs)

        return interceptor

    class Model(nn.Module):
        def setup(self):
            self.dense = nn.Dense(2)

        def __call__(self, x):
            return self.double(self.dense(x))

        def double(self, x):
            return 2 * x

    with nn.intercept_methods(watch("outer")), nn.intercept_methods(watch("inner")):
        y, variables = Model().init_with_output(ns.random.key(0), X)
    return y, log


@program()
def filters_and_mutability(ns):
    nn = ns.linen

    class State(nn.Module):
        @nn.compact
        def __call__(self):
            for col in ("a", "b", "c"):
                count = self.variable(col, "n", lambda: np.float32(0))
                if self.is_mutable_collection(col):
                    count.value += 1
            return self.is_initializing()

    model = State()
    variables = model.init(ns.random.key(0))
    deny = nn.DenyList
    outcomes = [
        model.apply(variables, mutable=m)
        for m in (True, False, "a", ["a", "b"], deny("a"), deny(["a", "b"]), deny(deny("c")), [])
    ]
    scope = ns.core.scope
    algebra = [
        scope.in_filter(f, "a")
        for x in (True, False, "a", ("b",), deny("a"), deny(True))
        for y in (True, False, "a", ("a", "b"), deny("b"))
        for f in (
            scope.union_filters(x, y), scope.intersect_filters(x, y), scope.subtract_filters(x, y),
        )
    ]  # fmt: skip
    return variables, outcomes, algebra, scope.is_filter_empty(deny(True))


@program()
def random_streams(ns):
    nn, random = ns.linen, ns.random

    class Draw(nn.Module):
        @nn.compact
        def __call__(self):
            keys = [self.make_rng(name) for name in ("params", "other", "missing", "other")]
            return [random.key_data(k) for k in keys]

    class Nest(nn.Module):
        @nn.compact
        def __call__(self):
            return Draw()(), Draw(name="deep")(), self.has_rng("other"), self.has_rng("none")

    keys = {"params": random.key(0), "other": random.key(1)}
    raw = {"params": random.PRNGKey(0), "other": random.PRNGKey(1)}
    return (
        Draw().init_with_output(keys)[0], Nest().init_with_output(keys)[0],
        Nest().apply({}, rngs=raw), Nest().apply({}, rngs=random.key(4)),
        caught(Nest().apply, {}), caught(Nest().apply, {}, rngs={"other": random.key(0)}),
        caught(Nest().init, 3),
    )  # fmt: skip


@program()
def dataclass_corners(ns):
    nn = ns.linen

    class Base(nn.Module):
        a: int
        b: int = 2

    class Derived(Base, kw_only=True):
        c: int

    class Field(nn.Module):
        items: list = dataclasses.field(default_factory=lambda: [1, 2])
        hidden: int = dataclasses.field(default=0, init=False)
        init_only: dataclasses.InitVar[int] = 5

        def __post_init__(self, init_only):
            object.__setattr__(self, "hidden", init_only)
            super().__post_init__()

    made = Derived(1, c=3)
    field = Field(init_only=7)
    return (
        (made.a, made.b, made.c, made.name), field.items, field.hidden,
        caught(Derived, 1, 2, 3), caught(Base), caught(Base, 1, 2, None, "name"),
        Base(1) == Base(1), Base(1) == Derived(1, c=3), Base(1, name="x").name,
        [f.name for f in dataclasses.fields(Base) if f.name not in ("parent", "name")],
    )  # fmt: skip


@program()
def lazy_and_partial_init(ns):
    nn = ns.linen

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            x = nn.Dense(4)(x)
            x = nn.BatchNorm(use_running_average=not train)(x)
            return nn.Dropout(0.5, deterministic=not train)(x)

    keys = {"params": ns.random.key(0), "dropout": ns.random.key(1)}
    abstract = ns.jax.ShapeDtypeStruct((2, 3), np.float32)
    lazy = Net().lazy_init(keys, abstract, train=True)
    jitted = ns.jax.jit(Net().init, static_argnames="train")(keys, X, train=True)
    return lazy, jitted


@program()
def mistakes_with_modules(ns):
    nn = ns.linen
    key = ns.random.key(0)

    class Clash(nn.Module):
        @nn.compact
        def __call__(self, x):
            self.param("w", nn.initializers.ones, (1,))
            return nn.Dense(2, name="w")(x)

    class InSetup(nn.Module):
        width: int = 3

        def setup(self):
            self.width = 4

        def __call__(self, x):
            return x

    class Late(nn.Module):
        def __call__(self, x):
            return nn.Dense(2)(x)

    class Setup(nn.Module):
        def setup(self):
            self.dense = nn.Dense(2)

        def __call__(self, x):
            return self.dense(x)

    dense = nn.Dense(2)
    variables = dense.init(key, X)
    return [
        caught(Clash().init, key, X), caught(InSetup().init, key, X), caught(Late().init, key, X),
        caught(dense, X), caught(Setup(), X), caught(Setup().setup),
        caught(dense.apply, {"params": variables}, X), caught(dense.apply, {}, X),
        caught(dense.apply, variables, np.ones((2, 5), np.float32)),
        caught(dense.apply, {"params": {"kernel": variables["params"]["kernel"]}}, X),
        caught(dense.apply, variables, X, method=lambda: 0),
        caught(dense.apply, variables, X, method="no"),
        caught(nn.Dense, 2, parent=3),
        caught(nn.Dense.apply, variables, X),
    ]  # fmt: skip


@program()
def bound_methods_and_recursion(ns):
    nn = ns.linen

    class Base(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(3)(x)

    class Child(Base):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(2)(super().__call__(x))

    class Helper(nn.Module):
        @nn.nowrap
        def make(self, n):
            return nn.Dense(n)

        @nn.compact
        def __call__(self, x):
            x = self.make(2)(x)
            return self.second(x)

        @nn.compact
        def second(self, x):
            return nn.Dense(2)(x)

    class Property(nn.Module):
        n: int

        @property
        def twice(self):
            return 2 * self.n

        @nn.compact
        def __call__(self, x):
            return nn.Dense(self.twice)(x)

    key = ns.random.key(0)
    return [m.init_with_output(key, X) for m in (Child(), Helper(), Property(2))]
