"""Programs of several lines to be run on jax and on toile: control flow, custom rules, layers.

Each function takes the namespace (`ns.jnp`, `ns.lax`, `ns.nn`, `ns.jax`) and arrays named as in
`parity_cases.DATA`. Flags are given by the `flags` decorator.
"""

PROGRAMS = []


def program(*flags):
    """Register a program with its flags."""
    def keep(function):
        function.flags = " ".join(flags)
        PROGRAMS.append(function)
        return function

    return keep


@program()
def scan_rnn(ns, v, t, k):
    jnp, w = ns.jnp, k[:, :4]

    def step(carry, row):
        new = jnp.tanh(carry @ w + row)
        return new, jnp.sum(new)

    return ns.lax.scan(step, v, t[0])


@program()
def scan_reverse_tree(ns, v, x):
    def step(carry, row):
        new = {"a": carry["a"] * row, "b": carry["b"] + 1}
        return new, (new["a"], row)

    start = {"a": v, "b": 0}
    return ns.lax.scan(step, start, x, reverse=True, unroll=2)


@program()
def scan_no_inputs(ns, s):
    return ns.lax.scan(lambda c, _: (ns.jnp.sin(c), c), s, None, length=4)


@program()
def nested_scan(ns, v, x):
    def outer(carry, row):
        inner = lambda c, e: (c * 0.9 + e, c)
        total, trail = ns.lax.scan(inner, carry[0], row)
        return carry + total, trail

    return ns.lax.scan(outer, v, x)


@program("-grad")
def while_power(ns, v):
    return ns.lax.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, ns.jnp.sin(c[1]) + c[1]),
                             (0, v))


@program("-grad")
def while_until(ns, p):
    return ns.lax.while_loop(lambda a: ns.jnp.max(a) < 100.0, lambda a: a * 2 + 1, p)


@program()
def fori_static(ns, v):
    return ns.lax.fori_loop(0, 5, lambda i, a: ns.jnp.sin(a) + i, v)


@program("-grad")
def fori_traced(ns, v, l):
    return ns.lax.fori_loop(0, l + 3, lambda i, a: ns.jnp.sin(a) * i, v)


@program()
def cond_scalar(ns, x, l):
    return ns.lax.cond(l > 0, lambda a: ns.jnp.sin(a), lambda a: a * a, x)


@program()
def cond_closure(ns, s, x, y):
    return ns.lax.cond(s > 0, lambda: x * y, lambda: x - y)


@program()
def switch_three(ns, l, x, y):
    return ns.lax.switch(l, [lambda a, b: a, lambda a, b: a * b, lambda a, b: ns.jnp.cos(b)], x, y)


@program()
def cond_in_scan(ns, x, n):
    def step(carry, pair):
        i, row = pair
        return ns.lax.cond(i > 1, lambda a: a + row, lambda a: a * row, carry), i

    return ns.lax.scan(step, x[0], (n[:3], x))


@program()
def scan_in_cond(ns, l, x):
    run = lambda a: ns.lax.scan(lambda c, r: (ns.jnp.tanh(c + r), r), a[0], a)[0]
    return ns.lax.cond(l > 3, lambda a: a[1], run, x)


@program()
def map_batched(ns, t):
    return ns.lax.map(lambda a: ns.jnp.sum(a, axis=0) * 2, t)


@program()
def map_batch_size(ns, x):
    return ns.lax.map(lambda a: ns.jnp.sin(a), x, batch_size=2)


@program()
def associative_add(ns, x):
    return ns.lax.associative_scan(ns.jnp.add, x)


@program()
def associative_affine(ns, x, y):
    def combine(a, b):
        return a[0] * b[0], a[1] * b[0] + b[1]

    return ns.lax.associative_scan(combine, (x, y), axis=1, reverse=True)


@program()
def associative_matmul(ns, r):
    return ns.lax.associative_scan(ns.jnp.matmul, r)


@program()
def custom_jvp_function(ns, x):
    @ns.jax.custom_jvp
    def f(a):
        return ns.jnp.log1p(ns.jnp.exp(a))

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * ns.nn.sigmoid(primals[0])))
    return f(x)


@program()
def custom_jvps(ns, x, y):
    @ns.jax.custom_jvp
    def f(a, b):
        return a * ns.jnp.sin(b)

    f.defjvps(lambda d, out, a, b: d * ns.jnp.sin(b), None)
    return f(x, y)


@program("-jvp")
def custom_vjp_clip(ns, x):
    @ns.jax.custom_vjp
    def f(a):
        return a * 2

    f.defvjp(lambda a: (a * 2, a), lambda kept, ct: (ns.jnp.clip(ct, -1.2, 1.2) + kept,))
    return f(x)


@program("-jvp")
def custom_vjp_nondiff(ns, x):
    def f(scale, a):
        return a * scale

    f = ns.jax.custom_vjp(f, nondiff_argnums=(0,))
    f.defvjp(lambda scale, a: (a * scale, a), lambda scale, kept, ct: (ct * scale * 3 + 0 * kept,))
    return f(2.0, x)


@program("-jvp")
def custom_vjp_tree(ns, x, y):
    @ns.jax.custom_vjp
    def f(tree):
        return {"out": tree["a"] * tree["b"]}

    f.defvjp(lambda tree: (f(tree), tree),
             lambda tree, ct: ({"a": ct["out"] * tree["b"], "b": 2 * ct["out"] * tree["a"]},))
    return f({"a": x, "b": y})["out"]


@program()
def checkpointed_layers(ns, v, k):
    layer = ns.jax.checkpoint(lambda a: ns.jnp.tanh(a @ k[:, :4]))
    return layer(layer(v))


@program()
def checkpoint_policy(ns, v, k):
    policy = ns.jax.checkpoint_policies.dots_saveable
    layer = ns.jax.checkpoint(lambda a: ns.jnp.sin(ns.jnp.tanh(a @ k)), policy=policy)
    return layer(v)


@program()
def checkpoint_in_scan(ns, v, x):
    body = ns.jax.checkpoint(lambda c, r: (ns.jnp.sin(c * r), c))
    return ns.lax.scan(body, v, x)


@program()
def stopped(ns, x):
    return x * ns.lax.stop_gradient(x)


@program()
def grad_of_grad(ns, s):
    return ns.jax.grad(ns.jax.grad(lambda a: ns.jnp.sin(a) * a**3))(s)


@program()
def jvp_of_grad(ns, v, k):
    f = lambda a: ns.jnp.sum(ns.jnp.tanh(a @ k) ** 2)
    return ns.jax.jvp(ns.jax.grad(f), (v,), (ns.jnp.ones_like(v),))


@program()
def vmap_of_scan(ns, x, y):
    f = lambda a, b: ns.lax.scan(lambda c, e: (c * e, c), ns.jnp.ones_like(a[0]), a * b)
    return ns.jax.vmap(f)(x, y)


@program()
def jit_in_scan(ns, v, x):
    step = ns.jax.jit(lambda c, r: (c + ns.jnp.sin(r), c * r))
    return ns.lax.scan(step, v, x)


@program()
def vmapped_cond(ns, i, x):
    f = lambda j, a: ns.lax.cond(j > 0, lambda b: b * 2, ns.jnp.sin, a)
    return ns.jax.vmap(ns.jax.vmap(f))(i, x)


@program("-grad")
def vmapped_while(ns, n, v):
    f = lambda j, a: ns.lax.while_loop(lambda c: c[0] > 0, lambda c: (c[0] - 1, c[1] * 1.5), (j, a))
    return ns.jax.vmap(f)(n, v)


@program()
def linear_solve(ns, a, w):
    m = a @ a.T + 3 * ns.jnp.eye(3, dtype=a.dtype)
    solve = lambda mv, b: ns.jnp.linalg.solve(m, b)
    return ns.lax.custom_linear_solve(lambda z: m @ z, w, solve, symmetric=True)


@program()
def root(ns, p):
    f = lambda z: z**3 - p
    solve = lambda g, start: ns.lax.fori_loop(0, 30, lambda _, z: z - g(z) / (3 * z**2), start)
    tangent = lambda g, b: b / g(ns.jnp.ones_like(b))
    return ns.lax.custom_root(f, ns.jnp.ones_like(p) * 1.2, solve, tangent)


@program()
def mlp_loss(ns, x, k, n):
    logits = ns.nn.relu(x @ k) @ k.T
    return -ns.jnp.mean(ns.nn.log_softmax(logits)[ns.jnp.arange(3), n[:3]])


@program()
def layer_norm(ns, x, v):
    centred = x - ns.jnp.mean(x, axis=-1, keepdims=True)
    return centred * ns.lax.rsqrt(ns.jnp.var(x, axis=-1, keepdims=True) + 1e-5) * v


@program()
def attention(ns, t):
    weights = ns.nn.softmax(ns.jnp.einsum("bqd,bkd->bqk", t, t) / 2.0, axis=-1)
    return ns.jnp.einsum("bqk,bkd->bqd", weights, t)


@program()
def conv_pool(ns, im, ke):
    out = ns.lax.conv_general_dilated(im, ke, (1, 1), "SAME",
                                      dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return ns.lax.reduce_window(ns.nn.relu(out), 0.0, ns.lax.add, (1, 2, 2, 1), (1, 2, 2, 1),
                                "VALID") / 4


@program()
def lstm_step(ns, v, t, k):
    w = k[:, :4]

    def step(carry, row):
        h, c = carry
        gate = ns.nn.sigmoid(row @ w + h)
        c = gate * c + (1 - gate) * ns.jnp.tanh(row)
        return (gate * ns.jnp.tanh(c), c), h

    return ns.lax.scan(step, (v, v), t[1])


@program()
def bessel_and_friends(ns, p, q):
    special = ns.jax.scipy.special
    return special.gammaln(p) + special.erf(q) + special.expit(q) + special.xlogy(p, p)


@program()
def bfloat16_layer(ns, h, hk):
    return ns.nn.relu(h @ hk).astype("float32").sum()


@program()
def collectives(ns, x):
    def f(a):
        total = ns.lax.psum(a, "b")
        shifted = ns.lax.ppermute(a, "b", [(0, 1), (1, 2), (2, 0)])
        return total * shifted + ns.lax.pmax(ns.lax.stop_gradient(a), "b")

    return ns.jax.vmap(f, axis_name="b")(x)


@program()
def sorted_gather(ns, d, x):
    order = ns.jnp.argsort(d, axis=1)
    return ns.jnp.take_along_axis(x, order, axis=1)


@program()
def closure_over_tracer(ns, x, v):
    f = ns.jax.jit(lambda a: a * v)
    return ns.jax.vmap(f)(x)
