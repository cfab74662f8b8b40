"""Trees, classes, jit's arguments, introspection: how programs are organised."""

import collections
import dataclasses
import functools
import typing

import numpy as np

from tests.whole_programs.registry import caught, program


def data(*shape, seed=0):
    """Fixed normal data."""
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


@program()
def registered_classes(ns):
    jax, jnp, tu = ns.jax, ns.jnp, ns.tree_util

    @tu.register_pytree_node_class
    class Linear:
        def __init__(self, w, b, name):
            self.w, self.b, self.name = w, b, name

        def __call__(self, x):
            return x @ self.w + self.b

        def tree_flatten(self):
            return (self.w, self.b), self.name

        @classmethod
        def tree_unflatten(cls, aux, children):
            return cls(*children, aux)

    @functools.partial(tu.register_dataclass, data_fields=["mean", "std"], meta_fields=["kind"])
    @dataclasses.dataclass
    class Stats:
        mean: typing.Any
        std: typing.Any
        kind: str = "z"

    class Pair(typing.NamedTuple):
        left: typing.Any
        right: typing.Any = None

    class Special:
        def __init__(self, x):
            self.x = x

    tu.register_pytree_with_keys(
        Special, lambda s: (((tu.GetAttrKey("x"), s.x),), None), lambda _, c: Special(*c)
    )
    layer = Linear(jnp.asarray(data(3, 2)), jnp.zeros(2), "first")
    x = jnp.asarray(data(4, 3, seed=1))
    g = jax.jit(jax.grad(lambda l, x: jnp.sum(l(x) ** 2)))(layer, x)
    stats = jax.vmap(lambda v: Stats(v.mean(), v.std(), "row"))(x)
    pair = ns.tree.map(lambda v: v * 2, Pair(x, Pair(stats.mean)))
    special = tu.tree_map_with_path(lambda p, v: tu.keystr(p), {"k": [Special(1), (2, 3)]})
    moved = jax.tree.map(lambda a, b: a - b, layer, g)
    return (
        g.w,
        g.b,
        g.name,
        moved(x),
        stats.mean,
        stats.kind,
        pair.left,
        pair.right.left,
        pair.right.right is None,
        special["k"][0].x,
        special["k"][1],
        str(ns.tree.structure(pair)),
        len(ns.tree.leaves(layer)),
        str(ns.tree.structure(stats)),
    )


@program()
def tree_utilities(ns):
    jnp, tu, tree = ns.jnp, ns.tree_util, ns.tree
    t = {"b": [1, (2.0, None)], "a": {"z": jnp.ones(2), "y": np.arange(3)}}
    leaves, treedef = tree.flatten(t)
    paths, _ = tu.tree_flatten_with_path(t)
    ordered = collections.OrderedDict([("z", 1), ("a", 2)])
    default = collections.defaultdict(int, {"q": 5})
    return {
        "leaves": leaves,
        "def": str(treedef),
        "n": treedef.num_leaves,
        "repr": repr(treedef),
        "paths": [tu.keystr(p) for p, _ in paths],
        "kinds": [type(k).__name__ for k in paths[0][0]],
        "simple": [tu.keystr(p, simple=True, separator="/") for p, _ in paths],
        "back": tree.unflatten(treedef, leaves),
        "same": treedef == tree.structure(t),
        "all": tree.all({"a": True, "b": [1, 0]}),
        "reduce": tree.reduce(lambda a, b: a + b, [1, [2]]),
        "init": tree.reduce(lambda a, b: a + b, {}, 10),
        "ordered": tree.leaves(ordered),
        "ordered_def": str(tree.structure(ordered)),
        "default_def": str(tree.structure(default)),
        "none_leaf": tree.leaves(t, is_leaf=lambda x: x is None),
        "transpose": tree.transpose(
            tree.structure([0, 0]),
            tree.structure({"a": 0, "b": 0}),
            [{"a": 1, "b": 2}, {"a": 3, "b": 4}],
        ),
        "map_rest": tree.map(lambda x, r: (x, r), [1, 2], [{"k": 1}, [5]]),
        "mismatch": [
            caught(tree.map, lambda a, b: a, [1], [1, 2]),
            caught(tree.map, lambda a, b: a, {"a": 1}, {"b": 1}),
            caught(tree.unflatten, treedef, [1]),
        ],
        "leaf": [tu.tree_leaves(None), tu.tree_leaves(3), tu.all_leaves([1, 2])],
        "children": [str(c) for c in treedef.children()],
        "count": tu.treedef_tuple((treedef,)) == treedef,
        "partial": tu.Partial(lambda a, b: a * b, 3.0)(2.0),
        "partial_leaves": tu.tree_leaves(tu.Partial(jnp.add, jnp.ones(2))),
        "raveled": ns.flatten_util.ravel_pytree({"a": jnp.arange(2), "b": jnp.ones((2, 1))})[0],
        "zipped": tree.map(lambda *v: sum(v), (1, [2]), (3, [4]), (5, [6])),
        "leaf_def": [tu.treedef_is_leaf(tree.structure(1)), tu.treedef_is_leaf(treedef)],
    }


@program()
def jit_arguments(ns):
    jax, jnp = ns.jax, ns.jnp
    traces = []

    @functools.partial(jax.jit, static_argnames=("mode", "n"))
    def f(x, n=2, *, mode="sum", extra=None):
        traces.append((n, mode, extra is None))
        y = x**n if extra is None else x**n + extra["e"]
        return y.sum() if mode == "sum" else y.mean()

    x = jnp.arange(4.0)
    calls = [
        f(x),
        f(x, 3),
        f(x, n=3),
        f(x, mode="mean"),
        f(x, extra={"e": 1.0}),
        f(x),
        f(x, extra={"e": jnp.ones(4)}),
        f(x.astype(int)),
    ]

    class Model:
        def __init__(self, scale):
            self.scale = scale

        @functools.partial(jax.jit, static_argnums=0)
        def __call__(self, x):
            traces.append("model")
            return x * self.scale

        @functools.partial(jax.jit, static_argnums=(0, 2))
        def repeat(self, x, times):
            for _ in range(times):
                x = self(x)
            return x

    model = Model(3.0)
    methods = model(x), model(x + 1), model.repeat(x, 2), Model(2.0)(x)

    @jax.jit
    def outer(x):
        inner = jax.jit(lambda v: jnp.sin(v) * x)
        return inner(x) + inner(2.0)

    @jax.jit
    def shapes(x, *args, **kwargs):
        return {"n": x.shape[0], "args": args, "kw": kwargs, "d": x.ndim, "f": 1.5}

    return (
        calls,
        traces,
        methods,
        outer(x),
        shapes(x, 1, 2.0, b=3, a=np.int8(1)),
        caught(f, x, n=jnp.array(2)),
        caught(jax.jit(lambda x: 1 if x > 0 else 2), 1.0),
        caught(jax.jit(lambda x: np.asarray(x)), 1.0),
        caught(jax.jit(lambda x: "a"), 1.0),
        caught(jax.jit(lambda x: jnp.zeros(x)), 3),
        caught(jax.jit(lambda x: x[x > 0]), x),
        f.lower(x).out_info.shape if hasattr(f, "lower") else None,
        f.__name__,
    )


@program()
def donation_and_closures(ns):
    jax, jnp = ns.jax, ns.jnp
    table = np.arange(6.0, dtype=np.float32)
    constant = jnp.asarray(data(6))

    def make(rate):
        def step(state, g):
            return {
                "p": ns.tree.map(lambda a, b: a - rate * b * constant, state["p"], g),
                "n": state["n"] + 1,
                "table": table[:3] * state["n"],
            }

        return jax.jit(step, donate_argnums=0)

    step = make(0.1)
    state = {"p": [jnp.ones(6)], "n": jnp.array(0), "table": jnp.zeros(3)}
    first = state["p"][0]
    for _ in range(3):
        state = step(state, [jnp.full(6, 2.0)])
    kept = jax.jit(lambda s: s, donate_argnames="s")({"a": jnp.arange(3)})
    counter = {"n": 0}

    def impure(x):
        counter["n"] += 1
        return x + counter["n"]

    fast = jax.jit(impure)
    repeated = [fast(1.0), fast(2.0), fast(jnp.array(1))]
    with jax.disable_jit():
        loose = fast(1.0), jax.lax.scan(lambda c, x: (c + x, c), 0, jnp.arange(3))
    return state, first.is_deleted(), kept, counter["n"], repeated, loose


@program()
def shape_inference_init(ns):
    jax, jnp = ns.jax, ns.jnp

    def init(key, x):
        k1, k2 = ns.random.split(key)
        h = jnp.zeros((x.shape[0], 1000))
        return {
            "w": ns.random.normal(k1, (x.shape[1], 1000), jnp.bfloat16),
            "h": h,
            "b": jnp.zeros(x.shape[1], int),
            "key": k2,
            "n": 3,
        }

    spec = jax.ShapeDtypeStruct((8, 4), jnp.float32)
    key = ns.random.key(0)
    out = jax.eval_shape(init, key, spec)
    described = ns.tree.map(lambda s: f"{s.shape} {s.dtype} {s.weak_type}", out)
    scanned = jax.eval_shape(
        lambda x: jax.lax.scan(lambda c, v: (c + v.sum(), v * 2), 0.0, x), spec
    )
    grads = jax.eval_shape(jax.grad(lambda w: (w**2).sum()), jnp.ones((3, 2), jnp.float16))
    zeros = ns.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), {k: out[k] for k in ("w", "b")})
    huge = jax.eval_shape(lambda: jnp.zeros((10**5, 10**6)).sum(axis=0))
    return (
        described,
        [str(s) for s in ns.tree.leaves(scanned)],
        str(grads),
        zeros,
        huge.shape,
        repr(spec),
        spec == jax.ShapeDtypeStruct((8, 4), "float32"),
        spec.size,
        spec.ndim,
        len(spec),
        caught(jax.eval_shape, lambda a: a @ jnp.ones(3), spec),
    )


@program()
def counting_equations(ns):
    jax, jnp = ns.jax, ns.jnp

    def names(jaxpr, found=None):
        found = collections.Counter() if found is None else found
        for eqn in jaxpr.eqns:
            found[eqn.primitive.name] += 1
            for value in eqn.params.values():
                for sub in value if isinstance(value, (tuple, list)) else [value]:
                    inner = getattr(sub, "jaxpr", sub if hasattr(sub, "eqns") else None)
                    if inner is not None and hasattr(inner, "eqns"):
                        names(inner, found)
        return found

    def f(x, y):
        z = jnp.sin(x) * y + jnp.exp(x)
        return jnp.sum(z) / z.size, z

    closed = jax.make_jaxpr(f)(jnp.ones((2, 3)), jnp.float32(2.0))
    scan = jax.make_jaxpr(lambda x: jax.lax.scan(lambda c, v: (c * v, c), x.sum(), x))(jnp.ones(3))
    cond = jax.make_jaxpr(lambda p, x: jax.lax.cond(p, jnp.sin, jnp.cos, x))(True, 1.0)
    closed2, shape = jax.make_jaxpr(lambda x: {"a": x + 1}, return_shape=True)(jnp.ones(2))
    evaluated = jax.core.eval_jaxpr(closed.jaxpr, closed.consts, jnp.ones((2, 3)), jnp.float32(2.0))
    return (
        dict(names(closed.jaxpr)),
        [str(a) for a in closed.in_avals],
        len(closed.jaxpr.outvars),
        [str(a) for a in closed.out_avals],
        dict(names(scan.jaxpr)),
        dict(names(cond.jaxpr)),
        shape["a"].shape,
        evaluated,
        len(closed2.eqns),
        len(closed.consts),
        [str(v.aval) for v in closed.jaxpr.invars],
    )


@program()
def ravel_pytree_optimizer(ns):
    jax, jnp = ns.jax, ns.jnp
    p = {"w": jnp.asarray(data(2, 3)), "b": (jnp.zeros(3), jnp.float32(1.0))}
    flat, unravel = ns.flatten_util.ravel_pytree(p)
    x, y = data(5, 2, seed=1), data(5, 3, seed=2)

    def loss(flat):
        p = unravel(flat)
        return jnp.mean((jnp.tanh(x @ p["w"] + p["b"][0]) * p["b"][1] - y) ** 2)

    @jax.jit
    def step(i, carry):
        w, m = carry
        g = jax.grad(loss)(w)
        m = 0.5 * m + g
        return w - 0.1 * m / (1 + i), m

    w, m = jax.lax.fori_loop(0, 5, step, (flat, jnp.zeros_like(flat)))
    hess = jax.jacfwd(jax.jacrev(loss))(w)
    mixed, back = ns.flatten_util.ravel_pytree({"i": jnp.arange(2), "f": jnp.ones(1)})
    return unravel(w), loss(w), hess, jnp.linalg.eigvalsh(hess)[-1], mixed, back(mixed), unravel(m)


@program()
def optimizer_transformations(ns):
    jax, jnp = ns.jax, ns.jnp

    class Transform(typing.NamedTuple):
        init: typing.Callable
        update: typing.Callable

    class AdamState(typing.NamedTuple):
        count: typing.Any
        mu: typing.Any
        nu: typing.Any

    def adam(b1=0.9, b2=0.999, eps=1e-8):
        def init(p):
            zeros = functools.partial(ns.tree.map, jnp.zeros_like)
            return AdamState(jnp.zeros([], jnp.int32), zeros(p), zeros(p))

        def update(g, s, p=None):
            mu = ns.tree.map(lambda m, g: b1 * m + (1 - b1) * g, s.mu, g)
            nu = ns.tree.map(lambda n, g: b2 * n + (1 - b2) * jnp.square(g), s.nu, g)
            c = s.count + 1
            hat = lambda t, b: ns.tree.map(lambda v: v / (1 - b**c).astype(v.dtype), t)
            out = ns.tree.map(lambda m, n: m / (jnp.sqrt(n) + eps), hat(mu, b1), hat(nu, b2))
            return out, AdamState(c, mu, nu)

        return Transform(init, update)

    def decay(rate):
        mask = lambda p: ns.tree.map(lambda v: v.ndim > 1, p)
        add = lambda g, v, m: g + rate * v if m else g
        return Transform(lambda p: (), lambda g, s, p: (ns.tree.map(add, g, p, mask(p)), s))

    def scale(schedule):
        def update(g, count, p=None):
            rate = schedule(count)
            return ns.tree.map(lambda v: -rate * v, g), count + 1

        return Transform(lambda p: jnp.zeros((), jnp.int32), update)

    def chain(*ts):
        def update(g, states, p):
            new = []
            for s, t in zip(states, ts):
                g, s = t.update(g, s, p)
                new.append(s)
            return g, tuple(new)

        return Transform(lambda p: tuple(t.init(p) for t in ts), update)

    piecewise = lambda c: jnp.interp(c, jnp.array([0.0, 2.0, 6.0]), jnp.array([0.0, 0.1, 0.01]))
    opt = chain(adam(), decay(0.01), scale(piecewise))
    p = {"w": jnp.asarray(data(3, 2)), "b": jnp.zeros(2)}
    state = opt.init(p)
    loss = lambda p: jnp.sum((p["w"] ** 2).sum(0) * jnp.cos(p["b"]))

    @jax.jit
    def step(p, state):
        updates, state = opt.update(jax.grad(loss)(p), state, p)
        return ns.tree.map(lambda a, u: (a + u).astype(a.dtype), p, updates), state

    for _ in range(5):
        p, state = step(p, state)
    return p, state


@program()
def module_library(ns):
    jax, jnp = ns.jax, ns.jnp

    class Module:
        def __init_subclass__(cls):
            cls = dataclasses.dataclass(cls)
            names = [f.name for f in dataclasses.fields(cls)]
            static = [f.name for f in dataclasses.fields(cls) if f.metadata.get("static")]
            arrays = [n for n in names if n not in static]
            ns.tree_util.register_dataclass(cls, arrays, static)

    class Dense(Module):
        w: typing.Any
        b: typing.Any

        def __call__(self, x):
            return x @ self.w + self.b

    class Net(Module):
        layers: list
        activation: typing.Callable = dataclasses.field(metadata={"static": True})

        def __call__(self, x):
            for layer in self.layers[:-1]:
                x = self.activation(layer(x))
            return self.layers[-1](x)

    keys = ns.random.split(ns.random.key(0), 2)
    net = Net([Dense(ns.random.normal(k, (3, 3)), jnp.zeros(3)) for k in keys], jnp.tanh)
    x = jnp.asarray(data(4, 3))
    loss = lambda net, x: jnp.mean(jax.vmap(net)(x) ** 2)
    value, g = jax.jit(jax.value_and_grad(loss))(net, x)
    new = jax.tree.map(lambda p, d: p - d, net, g)
    stacked = jax.vmap(lambda k: Dense(ns.random.normal(k, (3, 3)), jnp.zeros(3)))(keys)
    deep, _ = jax.lax.scan(lambda h, layer: (jnp.tanh(layer(h)), None), x, stacked)
    paths = [jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_leaves_with_path(net)]
    return value, jax.tree.leaves(g), loss(new, x), deep, paths
