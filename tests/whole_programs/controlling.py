"""Control flow, batching and collectives as programs use them."""

import functools

import numpy as np

from tests.whole_programs.registry import caught, program


def data(*shape, seed=0):
    """Fixed normal data."""
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


@program()
def beam_search(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    vocab, width, length, end = 6, 3, 5, 0
    table = jax.nn.log_softmax(jnp.asarray(data(vocab, vocab)) * 2)

    def search(first):
        tokens = jnp.full((width, length), -1, jnp.int32).at[:, 0].set(first)
        scores = jnp.where(jnp.arange(width) == 0, 0.0, -jnp.inf)
        state = (jnp.int32(1), tokens, scores, jnp.zeros(width, bool))

        def cond(state):
            i, _, _, done = state
            return (i < length) & ~jnp.all(done)

        def body(state):
            i, tokens, scores, done = state
            last = lax.dynamic_index_in_dim(tokens, i - 1, axis=1, keepdims=False)
            logp = jnp.where(
                done[:, None], jnp.where(jnp.arange(vocab) == end, 0.0, -jnp.inf), table[last]
            )
            total = (scores[:, None] + logp).reshape(-1)
            scores, flat = lax.top_k(total, width)
            parent, token = flat // vocab, flat % vocab
            tokens = tokens[parent].at[:, i].set(token)
            return i + 1, tokens, scores, done[parent] | (token == end)

        return lax.while_loop(cond, body, state)

    return jax.jit(search)(2), jax.vmap(search)(jnp.array([1, 3, 5]))


@program()
def greedy_decoding_with_cache(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    d, length = 4, 6
    w = {n: jnp.asarray(data(d, d, seed=i)) * 0.5 for i, n in enumerate("qkvo")}
    embed = jnp.asarray(data(7, d, seed=9))

    def step(state, i):
        cache, token = state
        x = embed[token]
        k = lax.dynamic_update_slice(cache["k"], (x @ w["k"])[None], (i, 0))
        v = lax.dynamic_update_index_in_dim(cache["v"], x @ w["v"], i, axis=0)
        scores = jnp.where(jnp.arange(length) <= i, k @ (x @ w["q"]) / jnp.sqrt(d), -jnp.inf)
        y = jax.nn.softmax(scores) @ v @ w["o"]
        logits = embed @ (x + y)
        token = jnp.argmax(logits)
        return ({"k": k, "v": v}, token), (token, logits.max())

    cache = {"k": jnp.zeros((length, d)), "v": jnp.zeros((length, d))}
    out = lax.scan(step, (cache, jnp.array(3)), jnp.arange(length))
    windows = jax.vmap(lambda i: lax.dynamic_slice_in_dim(embed, i, 3))(jnp.arange(-1, 7))
    return out, windows, lax.dynamic_slice(embed, [5, 1], [3, 2])


@program()
def state_machine(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax

    def idle(s):
        return {"mode": jnp.where(s["x"] > 0.5, 1, 0), "x": s["x"] + 0.3, "n": s["n"]}

    def work(s):
        return {"mode": jnp.where(s["x"] > 1.5, 2, 1), "x": s["x"] * 1.4, "n": s["n"] + 1}

    def cool(s):
        return {"mode": jnp.where(s["x"] < 0.2, 0, 2), "x": s["x"] * 0.3, "n": s["n"]}

    def step(s, _):
        s = lax.switch(s["mode"], [idle, work, cool], s)
        return s, s["mode"]

    start = {"mode": 0, "x": 0.1, "n": 0}
    once = lax.scan(step, start, length=12)
    many = jax.vmap(lambda x: lax.scan(step, start | {"x": x}, length=6))(jnp.array([0.1, 0.9]))
    grad = jax.grad(lambda x: lax.scan(step, start | {"x": x}, length=7)[0]["x"])(0.1)
    clamp = [lax.switch(i, [lambda: 1.0, lambda: 2.0]) for i in (-3, 0, 9)]
    nested = lax.cond(True, lambda t: t["a"] + 1, lambda t: t["a"] - 1, {"a": jnp.arange(3)})
    both = jax.vmap(lambda p, x: lax.cond(p, jnp.sin, lambda v: v * 2, x))(
        jnp.array([True, False]), jnp.array([1.0, 2.0])
    )
    mixed = caught(lambda: lax.cond(True, lambda: 1.0, lambda: jnp.ones(2)))
    return once, many, grad, clamp, nested, both, mixed


@program()
def collatz_and_loops(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax

    @jax.jit
    def collatz(n):
        def body(c):
            n, k = c
            return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), k + 1

        return lax.while_loop(lambda c: c[0] != 1, body, (n, 0))[1]

    def fibonacci(n):
        return lax.fori_loop(0, n, lambda i, ab: (ab[1], ab[0] + ab[1]), (0, 1))[0]

    def newton(a):
        return lax.fori_loop(0, 6, lambda i, x: 0.5 * (x + a / x), a)

    def sieve(n):
        def mark(i, flags):
            hit = (jnp.arange(n) % i == 0) & (jnp.arange(n) > i)
            return jnp.where(flags[i], flags & ~hit, flags)

        return lax.fori_loop(2, n, mark, jnp.ones(n, bool).at[:2].set(False))

    unrolled = lax.scan(lambda c, x: (c * 0.5 + x, c), 0.0, jnp.arange(7.0), unroll=3)
    pairs = lax.scan(
        lambda c, xs: (c + xs["a"] * xs["b"], None), 0.0, {"a": jnp.arange(3.0), "b": jnp.ones(3)}
    )
    mapped = lax.map(lambda t: t[0] ** t[1], (jnp.arange(4.0), jnp.arange(4)))
    batched = lax.map(lambda v: jnp.sin(v).sum(), jnp.ones((7, 2)), batch_size=3)
    return (
        jax.vmap(collatz)(jnp.arange(1, 10)),
        collatz(27),
        fibonacci(20),
        jax.jit(fibonacci)(10),
        jax.grad(newton)(3.0),
        sieve(20),
        unrolled,
        pairs,
        mapped,
        batched,
        caught(lambda: lax.scan(lambda c, x: (jnp.ones(3), x), 0.0, jnp.arange(2))),
        jax.jvp(lambda x: lax.while_loop(lambda c: c < 9.0, lambda c: c * c, x), (2.0,), (1.0,)),
    )


@program()
def vmap_with_trees_and_names(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    p = {"w": jnp.asarray(data(4, 3, 2)), "b": jnp.asarray(data(2, 4))}
    x = jnp.asarray(data(3, 5, seed=1))

    def f(p, x, scale):
        return {"y": x @ p["w"] + p["b"], "s": scale * x.sum()}

    out = jax.vmap(jax.vmap(f, (None, 1, None)), ({"w": 0, "b": 1}, None, None), {"y": 1, "s": 0})(
        p, x, 2.0
    )
    normal = jax.vmap(lambda v: (v - lax.pmean(v, "i")) / lax.psum(1, "i"), axis_name="i")(x)

    def ranks(v):
        i = lax.axis_index("i")
        gathered = lax.all_gather(v, "i")
        shifted = lax.ppermute(v, "i", [(j, (j + 1) % 3) for j in range(3)])
        return i, gathered[i], shifted, lax.pmax(v, "i"), lax.psum((v, {"k": i}), "i")

    named = jax.vmap(ranks, axis_name="i")(x)
    softmax = jax.vmap(
        lambda v: jnp.exp(v - lax.pmax(v, "c")) / lax.psum(jnp.exp(v - lax.pmax(v, "c")), "c"),
        axis_name="c",
    )(x[:, 0])
    grads = jax.grad(
        lambda x: jnp.sum(jax.vmap(lambda v: lax.psum(v**2, "i") * v, axis_name="i")(x))
    )(x)
    two = jax.vmap(jax.vmap(lambda v: lax.psum(v, ("a", "b")), axis_name="b"), axis_name="a")(x)
    sized = jax.vmap(lambda: lax.axis_index("i"), axis_name="i", axis_size=4)()
    spread = jax.vmap(lambda k, v: v, in_axes=(0, None), out_axes=-1)(jnp.arange(2), jnp.ones(3))
    bad = caught(jax.vmap(lambda a, b: a + b), jnp.ones(2), jnp.ones(3))
    return out, normal, named, softmax, grads, two, sized, spread, bad


@program()
def data_parallel_training(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    x, y = jnp.asarray(data(4, 6, 3)), jnp.asarray(data(4, 6, seed=1))

    def loss(w, x, y):
        return jnp.mean((x @ w["k"] + w["b"] - y) ** 2)

    @functools.partial(jax.vmap, in_axes=(None, 0, 0), out_axes=(None, 0, None), axis_name="batch")
    def step(w, x, y):
        value, g = jax.value_and_grad(loss)(w, x, y)
        g = lax.pmean(g, axis_name="batch")
        return ns.tree.map(lambda a, b: a - 0.1 * b, w, g), value, lax.pmean(value, "batch")

    w = {"k": jnp.zeros(3), "b": 0.0}
    for _ in range(3):
        w, values, mean = step(w, x, y)
    devices = jax.local_device_count()
    psum = jax.pmap(lambda v: lax.psum(v, "i"), axis_name="i")(jnp.ones((devices, 2)))
    return w, values, mean, psum


@program()
def callbacks_inside_jit(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    seen = []

    def host(x):
        return np.sin(np.asarray(x)).astype(np.float32)

    @jax.jit
    def f(x):
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        y = jax.pure_callback(host, shape, x, vmap_method="sequential")
        jax.debug.callback(lambda v: seen.append(float(v)), y.sum())
        return y * 2

    @jax.custom_jvp
    def g(x):
        return jax.pure_callback(host, x, x, vmap_method="expand_dims")

    g.defjvp(lambda p, t: (g(*p), jnp.cos(p[0]) * t[0]))
    x = jnp.arange(4.0)
    out = f(x), jax.vmap(f)(x.reshape(2, 2)), jax.vmap(jax.grad(g))(x)

    def step(c, v):
        jax.debug.callback(lambda a: seen.append(int(a)), v, ordered=True)
        jax.debug.print("c {c} {v:.2f}", c=c, v=1.0 * v)
        return c + v, None

    total = lax.scan(step, 0, jnp.arange(3))
    jax.effects_barrier()
    io = jax.experimental.io_callback if hasattr(jax, "experimental") else None
    return out, total, sorted(seen), io is None


@program()
def vectorize_signatures(ns):
    jax, jnp = ns.jax, ns.jnp

    @functools.partial(jnp.vectorize, signature="(n,m),(m)->(n)")
    def matvec(a, v):
        return a @ v

    @functools.partial(jnp.vectorize, excluded={1})
    def power(x, n):
        return x**n

    @jnp.vectorize
    def clip(x, low):
        return jnp.where(x < low, low, x)

    stats = jnp.vectorize(lambda v: (v.mean(), v - v.mean()), signature="(k)->(),(k)")
    a, v = jnp.asarray(data(3, 2, 4)), jnp.asarray(data(5, 1, 4, seed=1))
    return (
        matvec(a, v),
        power(v, 2),
        clip(v, jnp.zeros((2, 1))),
        stats(a),
        jax.vmap(matvec, (0, None))(a, v),
        caught(matvec, a, jnp.ones(3)),
        jnp.apply_along_axis(jnp.cumsum, 1, a),
        jax.grad(lambda a: matvec(a, v).sum())(a),
    )


@program()
def dynamic_windows(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    x = jnp.arange(10.0)

    def window(i):
        return lax.dynamic_slice(x, (i,), (4,))

    moving = jax.vmap(window)(jnp.arange(7)).mean(1)
    past = jax.vmap(window)(jnp.array([8, -2, 20]))
    wrote = lax.dynamic_update_slice(x, jnp.array([-1.0, -2.0]), (9,))
    g = jax.grad(lambda i_x: jnp.sum(lax.dynamic_slice(i_x, (2,), (3,)) ** 2))(x)
    ring = lax.scan(lambda c, v: (c.at[v % 3].set(v * 1.0), c.sum()), jnp.zeros(3), jnp.arange(7))
    gathered = x[jnp.array([[0, -1], [100, 3]])]
    taken = jnp.take(x, jnp.array([0, 100]))
    patches = lax.conv_general_dilated_patches(x[None, None], (3,), (2,), "VALID")
    slid = jnp.lib.stride_tricks.sliding_window_view(x, 4) if hasattr(jnp, "lib") else 0
    return (
        moving,
        past,
        wrote,
        g,
        ring,
        gathered,
        taken,
        patches,
        lax.slice(x, (1,), (9,), (3,)),
        lax.slice_in_dim(x, 2, -2),
        x[::-2],
        x[..., None, 2:5],
        lax.rev(x, (0,)),
        slid,
        jnp.roll(x, -3),
        x.at[jnp.array([1, 1])].set(jnp.array([5.0, 5.0])),
        lax.pad(x[:3], 0.0, [(1, 2, 1)]),
        lax.index_in_dim(x, 2, keepdims=False),
    )
