"""Programs about derivatives: higher orders, custom rules, per-example gradients, solvers."""

import functools

import numpy as np

from tests.whole_programs.registry import caught, program


def data(*shape, seed=0):
    """Fixed normal data."""
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


@program()
def maml(ns):
    jax, jnp = ns.jax, ns.jnp

    def net(p, x):
        return jnp.tanh(x @ p["w"] + p["b"]) @ p["v"]

    def loss(p, x, y):
        return jnp.mean((net(p, x) - y) ** 2)

    def adapt(p, x, y, steps=2):
        for _ in range(steps):
            g = jax.grad(loss)(p, x, y)
            p = ns.tree.map(lambda a, b: a - 0.1 * b, p, g)
        return p

    def task(p, sx, sy, qx, qy):
        return loss(adapt(p, sx, sy), qx, qy)

    def meta(p, batch):
        return jnp.mean(jax.vmap(task, in_axes=(None, 0, 0, 0, 0))(p, *batch))

    p = {"w": data(1, 6), "b": jnp.zeros(6), "v": data(6, 1, seed=1)}
    x = data(4, 2, 5, 1, seed=2)
    y = np.sin(x + np.arange(4).reshape(4, 1, 1, 1)).astype(np.float32)
    batch = (x[:, 0], y[:, 0], x[:, 1], y[:, 1])
    return jax.jit(jax.value_and_grad(meta))(p, batch)


@program()
def per_example_gradients_clipped(ns):
    jax, jnp = ns.jax, ns.jnp
    p = {"w": jnp.asarray(data(4, 3)), "b": jnp.ones(3)}
    x, y = data(6, 4, seed=1), np.arange(6) % 3

    def loss(p, x, y):
        return -jax.nn.log_softmax(x @ p["w"] + p["b"])[y]

    def clipped(p, x, y):
        g = jax.grad(loss)(p, x, y)
        leaves, treedef = ns.tree.flatten(g)
        norm = jnp.linalg.norm(jnp.stack([jnp.linalg.norm(l.ravel()) for l in leaves]))
        scale = 1.0 / jnp.maximum(norm, 1.0)
        return ns.tree.unflatten(treedef, [l * scale for l in leaves]), norm

    g, norms = jax.vmap(clipped, in_axes=(None, 0, 0))(p, x, y)
    total = ns.tree.map(lambda a: a.sum(0), g)
    flat, unravel = ns.flatten_util.ravel_pytree(total)
    noise = ns.random.normal(ns.random.key(9), flat.shape)
    return unravel(flat + 0.1 * noise), norms, g, flat


@program()
def hessian_vector_products(ns):
    jax, jnp = ns.jax, ns.jnp

    def f(p):
        return jnp.sum(jnp.sin(p["a"]) * jnp.outer(p["b"], p["b"]) ** 2) + jnp.prod(p["b"])

    p = {"a": jnp.asarray(data(3, 3)), "b": jnp.asarray(data(3, seed=1))}
    t = ns.tree.map(jnp.ones_like, p)

    def dot(a, b):
        return sum(map(jnp.vdot, ns.tree.leaves(a), ns.tree.leaves(b)))

    forward_reverse = jax.jvp(jax.grad(f), (p,), (t,))[1]
    reverse_reverse = jax.grad(lambda p: dot(jax.grad(f)(p), t))(p)
    reverse_forward = jax.grad(lambda p: jax.jvp(f, (p,), (t,))[1])(p)
    _, hvp = jax.linearize(jax.grad(f), p)
    _, pull = jax.vjp(jax.grad(f), p)
    return forward_reverse, reverse_reverse, reverse_forward, hvp(t), pull(t), jax.hessian(f)(p)


@program()
def gauss_newton_fit(ns):
    jax, jnp = ns.jax, ns.jnp
    x = jnp.linspace(0, 2, 12)
    y = 2.0 * jnp.exp(-1.3 * x) + 0.3

    def residual(p):
        return p[0] * jnp.exp(-p[1] * x) + p[2] - y

    @jax.jit
    def step(p, damping):
        r, vjp = jax.vjp(residual, p)
        (g,) = vjp(r)
        gauss_newton = lambda v: vjp(jax.jvp(residual, (p,), (v,))[1])[0] + damping * v
        matrix = jax.vmap(gauss_newton, out_axes=1)(jnp.eye(3))
        solved, _ = ns.scipy.sparse.linalg.cg(gauss_newton, g, maxiter=10)
        return p - jnp.linalg.solve(matrix, g), jnp.vdot(r, r), solved.shape

    p = jnp.array([1.0, 1.0, 0.0])
    trail = []
    for i in range(8):
        p, value, shape = step(p, 1e-3 / (i + 1))
        trail.append(value)
    return p, jnp.array(trail[:3]), shape, jax.jacfwd(residual)(p), jax.jacrev(residual)(p)


@program()
def jacobians_of_trees(ns):
    jax, jnp = ns.jax, ns.jnp

    def f(p, x):
        return {"y": jnp.tanh(p["w"] @ x), "z": (jnp.sum(x**2), p["b"] * x[0])}

    p = {"w": jnp.asarray(data(2, 3)), "b": jnp.float32(0.5)}
    x = jnp.asarray(data(3, seed=1))
    both = jax.jacobian(f, argnums=(0, 1))(p, x)
    rev = jax.jacrev(f, has_aux=False)(p, x)
    fwd, aux = jax.jacfwd(lambda p: (f(p, x), {"kept": x}), has_aux=True)(p)
    hess = jax.hessian(lambda x: f(p, x)["z"][0])(x)
    holo = jax.grad(lambda z: jnp.sin(z) * z, holomorphic=True)(jnp.complex64(1 + 2j))
    real = jax.grad(lambda z: jnp.abs(z) ** 2)(jnp.complex64(1 + 2j))
    ints = jax.grad(lambda x, n: x**n, allow_int=False)(3.0, 2)
    return both, rev, fwd, aux, hess, holo, real, ints


@program()
def implicit_differentiation(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax

    @functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
    def fixed_point(f, a, start):
        def body(carry):
            _, x = carry
            return x, f(a, x)

        _, x = lax.while_loop(
            lambda c: jnp.max(jnp.abs(c[0] - c[1])) > 1e-6, body, (start, f(a, start))
        )
        return x

    def forward(f, a, start):
        x = fixed_point(f, a, start)
        return x, (a, x)

    def backward(f, kept, ct):
        a, x = kept
        _, vjp_a = jax.vjp(lambda a: f(a, x), a)
        _, vjp_x = jax.vjp(lambda x: f(a, x), x)
        u = fixed_point(lambda ct, u: ct + vjp_x(u)[0], ct, ct)
        return vjp_a(u)[0], jnp.zeros_like(x)

    fixed_point.defvjp(forward, backward)
    newton = lambda a, x: 0.5 * (x + a / x)
    root = lambda a: fixed_point(newton, a, a)
    w = jnp.asarray(data(3, 3)) * 0.2
    layer = lambda p, z: jnp.tanh(p[0] @ z + p[1])
    deq = lambda p: jnp.sum(fixed_point(layer, p, jnp.zeros(3)) ** 2)
    return (
        jax.value_and_grad(root)(2.0),
        jax.vmap(jax.grad(root))(jnp.array([1.0, 4.0, 9.0])),
        jax.jit(jax.value_and_grad(deq))((w, jnp.ones(3))),
    )


@program()
def straight_through_estimators(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax

    def round_through(x):
        return x + lax.stop_gradient(jnp.round(x) - x)

    @jax.custom_jvp
    def binarize(x):
        return jnp.sign(x)

    @binarize.defjvp
    def binarize_jvp(primals, tangents):
        (x,), (t,) = primals, tangents
        return binarize(x), jnp.where(jnp.abs(x) <= 1, t, 0.0)

    @jax.custom_vjp
    def clip_gradient(lo, hi, x):
        return x

    clip_gradient.defvjp(
        lambda lo, hi, x: (x, (lo, hi)),
        lambda kept, g: (None, None, jnp.clip(g, kept[0], kept[1])),
    )

    @jax.custom_jvp
    def log1pexp(x):
        return jnp.log(1.0 + jnp.exp(x))

    log1pexp.defjvps(lambda t, ans, x: (1 - 1 / (1 + jnp.exp(x))) * t)
    x = jnp.asarray(data(5)) * 2
    return (
        jax.grad(lambda x: jnp.sum(round_through(x) ** 2))(x),
        jax.jit(jax.grad(lambda x: jnp.sum(binarize(x) * x)))(x),
        jax.grad(lambda x: jnp.sum(clip_gradient(-0.5, 0.5, x) ** 2))(x),
        jax.vmap(jax.grad(jax.grad(log1pexp)))(jnp.append(x, 100.0)),
        jax.jvp(binarize, (x,), (x,)),
        jax.vmap(jax.value_and_grad(lambda v: clip_gradient(-1.0, 1.0, 3 * v)))(x),
    )


@program()
def gumbel_softmax_and_reinforce(ns):
    jax, jnp = ns.jax, ns.jnp

    def gumbel_softmax(key, logits, temperature, hard=False):
        y = jax.nn.softmax((logits + ns.random.gumbel(key, logits.shape)) / temperature)
        if hard:
            index = jnp.argmax(y, axis=-1)
            one = jax.nn.one_hot(index, logits.shape[-1])
            return one + y - jax.lax.stop_gradient(y)
        return y

    reward = jnp.array([1.0, -2.0, 0.5, 3.0])
    logits = jnp.asarray(data(4))
    keys = ns.random.split(ns.random.key(4), 16)

    def relaxed(logits, hard):
        y = jax.vmap(lambda k: gumbel_softmax(k, logits, 0.7, hard))(keys)
        return jnp.mean(y @ reward)

    def reinforce(logits):
        def one(key):
            action = ns.random.categorical(key, logits)
            r = reward[action]
            return jax.lax.stop_gradient(r) * jax.nn.log_softmax(logits)[action], (action, r)

        values, (actions, r) = jax.vmap(one)(keys)
        return jnp.mean(values), (actions, jnp.mean(r))

    return (
        jax.value_and_grad(relaxed)(logits, False),
        jax.value_and_grad(relaxed)(logits, True),
        jax.value_and_grad(reinforce, has_aux=True)(logits),
    )


@program()
def policy_gradient_rollout(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    w = jnp.asarray(data(3, 2)) * 0.1

    def episode(w, key):
        def step(carry, key):
            state, done = carry
            logits = state @ w
            action = ns.random.categorical(key, logits)
            force = jnp.where(action == 1, 0.1, -0.1)
            new = state + jnp.array([0.0, 1.0, 0.0]) * force
            new = jnp.where(done, state, new.at[0].add(0.5 * state[1]))
            reward = jnp.where(done, 0.0, -jnp.abs(new[0]))
            logp = jnp.where(done, 0.0, jax.nn.log_softmax(logits)[action])
            done = done | (jnp.abs(new[0]) > 0.1)
            return (new, done), (logp, reward, action, done)

        start = (jnp.array([0.0, 0.05, 1.0]), jnp.bool_(False))
        _, out = lax.scan(step, start, ns.random.split(key, 12))
        return out

    def discounted(r, gamma=0.9):
        back = lambda g, r: (r + gamma * g,) * 2
        return lax.scan(back, 0.0, r, reverse=True)[1]

    def objective(w, keys):
        logp, r, actions, done = jax.vmap(episode, (None, 0))(w, keys)
        returns = jax.vmap(discounted)(r)
        advantage = lax.stop_gradient((returns - returns.mean(0)) / (returns.std(0) + 1e-3))
        return jnp.mean(jnp.sum(logp * advantage, 1)), (actions, done, returns)

    keys = ns.random.split(ns.random.key(8), 4)
    return jax.jit(jax.value_and_grad(objective, has_aux=True))(w, keys)


@program()
def odes_and_adjoints(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax

    def rk4(f, y, t, dt):
        k1 = f(t, y)
        k2 = f(t + dt / 2, ns.tree.map(lambda a, b: a + dt / 2 * b, y, k1))
        k3 = f(t + dt / 2, ns.tree.map(lambda a, b: a + dt / 2 * b, y, k2))
        k4 = f(t + dt, ns.tree.map(lambda a, b: a + dt * b, y, k3))
        mix = lambda y, a, b, c, d: y + dt / 6 * (a + 2 * b + 2 * c + d)
        return ns.tree.map(mix, y, k1, k2, k3, k4)

    def solve(f, y0, ts):
        def step(y, pair):
            t0, t1 = pair
            y = rk4(f, y, t0, t1 - t0)
            return y, y

        _, ys = lax.scan(step, y0, (ts[:-1], ts[1:]))
        return ns.tree.map(lambda a, b: jnp.concatenate([a[None], b]), y0, ys)

    def field(params, t, y):
        return {"x": y["v"], "v": -params["k"] * y["x"] - params["c"] * y["v"] * jnp.cos(t)}

    def loss(params, ts):
        ys = solve(functools.partial(field, params), {"x": jnp.ones(2), "v": jnp.zeros(2)}, ts)
        return jnp.mean(ys["x"][-1] ** 2), ys

    ts = jnp.linspace(0.0, 2.0, 21)
    params = {"k": jnp.array([1.0, 2.0]), "c": 0.3}
    (value, ys), g = jax.value_and_grad(loss, has_aux=True)(params, ts)
    late = jax.grad(lambda ts: loss(params, ts)[0])(ts)
    forward = jax.jacfwd(lambda p: loss(p, ts)[0])(params)
    return value, ys, g, late, forward


@program()
def custom_rules_in_depth(ns):
    jax, jnp = ns.jax, ns.jnp

    @functools.partial(jax.custom_jvp, nondiff_argnums=(0, 2))
    def apply(f, x, power):
        return f(x) ** power

    @apply.defjvp
    def apply_jvp(f, power, primals, tangents):
        (x,), (t,) = primals, tangents
        return apply(f, x, power), 10.0 * t * f(x)

    @jax.custom_vjp
    def normed(tree, x):
        return {"out": tree["a"] * x, "norm": jnp.sum(x**2)}

    def normed_fwd(tree, x):
        return normed(tree, x), (tree, x)

    def normed_bwd(kept, ct):
        tree, x = kept
        return {"a": jnp.sum(ct["out"]) + 0 * tree["a"], "b": None}, ct["norm"] * x

    normed.defvjp(normed_fwd, normed_bwd)

    def total(tree, x):
        out = normed(tree, x)
        return jnp.sum(out["out"]) + out["norm"]

    @jax.custom_gradient
    def scaled(x):
        return x**2, lambda g: (g * 100.0,)

    x = jnp.asarray(data(3))
    tree = {"a": jnp.float32(2.0), "b": jnp.ones(2)}
    return (
        jax.grad(lambda v: apply(jnp.sin, v, 2))(0.5),
        jax.vmap(jax.grad(lambda v: apply(jnp.sin, v, 2)))(x),
        jax.grad(total, argnums=(0, 1))(tree, x),
        jax.jit(jax.vmap(jax.grad(total, argnums=1), (None, 0)))(tree, jnp.stack([x, 2 * x])),
        jax.grad(scaled)(3.0),
        jax.lax.scan(lambda c, v: (c + scaled(v), scaled(c)), 0.5, x),
        jax.grad(lambda c: jax.lax.scan(lambda c, v: (c * scaled(v), c), c, x)[0])(x[0]),
    )


@program()
def linear_operators_and_transposes(ns):
    jax, jnp = ns.jax, ns.jnp
    kernel = jnp.asarray(data(3))

    def blur(x):
        return jnp.convolve(x, kernel, mode="same")

    x = jnp.asarray(data(7, seed=1))
    (back,) = jax.linear_transpose(blur, x)(x)
    y, lin = jax.linearize(lambda x: blur(jnp.sin(x)), x)
    basis = jax.vmap(lin)(jnp.eye(7))
    shapes = jax.eval_shape(lambda x: jax.vjp(blur, x)[0], x)
    y2, pull, aux = jax.vjp(lambda x: (blur(x), {"k": x[0]}), x, has_aux=True)
    solve = jax.lax.custom_linear_solve(
        lambda v: 3.0 * v + 0.1 * jnp.roll(v, 1),
        x,
        solve=lambda mv, b: jax.scipy.sparse.linalg.cg(mv, b)[0],
        transpose_solve=lambda mv, b: jax.scipy.sparse.linalg.cg(mv, b)[0],
    )
    bad = caught(jax.grad(lambda x: x), jnp.ones(2)), caught(jax.grad(lambda x: x), 3)
    return back, y, basis, shapes.shape, y2, pull(y), aux, solve, bad


@program()
def gradient_corner_cases(ns):
    jax, jnp = ns.jax, ns.jnp
    g = jax.grad
    zero = jnp.float32(0.0)
    safe = lambda x: jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1.0)), 0.0)
    return {
        "abs": g(jnp.abs)(0.0),
        "relu": g(jax.nn.relu)(0.0),
        "max": g(jnp.maximum, argnums=(0, 1))(zero, zero),
        "sqrt": g(jnp.sqrt)(0.0),
        "safe": g(safe)(zero),
        "norm": g(jnp.linalg.norm)(jnp.zeros(2)),
        "power": g(lambda x: x**0)(0.0),
        "power0": g(lambda x: jnp.power(0.0, x))(2.0),
        "maxes": g(lambda x: jnp.max(x))(jnp.array([1.0, 3.0, 3.0])),
        "sort": g(lambda x: jnp.sort(x)[0])(jnp.array([3.0, 1.0, 2.0])),
        "clip": jax.vmap(g(lambda x: jnp.clip(x, 0, 1)))(jnp.array([-1.0, 0.0, 0.5, 1.0, 2.0])),
        "sinc": g(g(jnp.sinc))(0.0),
        "atan2": g(jnp.arctan2, (0, 1))(0.0, 1.0),
        "logsumexp": g(lambda x: jax.nn.logsumexp(x))(jnp.array([-jnp.inf, 0.0])),
        "prod": g(jnp.prod)(jnp.array([0.0, 2.0, 3.0])),
        "cumprod": g(lambda x: jnp.cumprod(x)[-1])(jnp.array([1.0, 0.0, 3.0])),
        "median": g(jnp.median)(jnp.array([1.0, 5.0, 2.0, 3.0])),
        "quantile": g(lambda x: jnp.quantile(x, 0.3))(jnp.array([1.0, 5.0, 2.0, 3.0])),
        "mod": g(lambda x: x % 2.0)(5.5),
        "floor": g(jnp.floor)(1.5),
        "sign": g(jnp.sign)(1.5),
        "std": g(jnp.std)(jnp.ones(3)),
        "var": g(jnp.var)(jnp.arange(3.0)),
        "where3": g(lambda x: jnp.nan_to_num(x / 0.0))(1.0),
        "interp": g(lambda x: jnp.interp(x, jnp.arange(3.0), jnp.array([0.0, 2.0, 1.0])))(1.5),
        "hypot": g(jnp.hypot)(jnp.float32(3.0), 4.0),
        "int_power": g(lambda x: x ** jnp.array(3))(2.0),
        "cond": g(lambda x: jax.lax.cond(x > 1, jnp.sin, jnp.cos, x))(1.0),
        "complex": g(lambda x: jnp.real(jnp.exp(1j * x)))(0.3),
        "matrix_power": g(lambda x: jnp.linalg.matrix_power(x, 3).sum())(jnp.eye(2) * 2),
    }
