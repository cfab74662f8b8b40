"""Probabilistic programs: dynamic programming, filters, samplers, Gaussian processes."""

import functools

import numpy as np

from tests.whole_programs.registry import program


def data(*shape, seed=0):
    """Fixed normal data."""
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


@program()
def ctc_loss(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    tiny = -1e30

    def ctc(logits, labels, blank=0):
        logp = jax.nn.log_softmax(logits)
        n = labels.shape[0]
        extended = jnp.full(2 * n + 1, blank).at[1::2].set(labels)
        same = jnp.concatenate([jnp.array([True, True]), extended[2:] == extended[:-2]])
        skip = (~same) & (extended != blank)
        first = jnp.where(jnp.arange(2 * n + 1) < 2, logp[0, extended], tiny)

        def step(alpha, row):
            one = jnp.concatenate([jnp.array([tiny]), alpha[:-1]])
            two = jnp.where(skip, jnp.pad(alpha, (2, 0), constant_values=tiny)[:-2], tiny)
            alpha = jnp.logaddexp(jnp.logaddexp(alpha, one), two) + row[extended]
            return alpha, alpha

        last, trail = lax.scan(step, first, logp[1:])
        return -jax.nn.logsumexp(last[-2:]), trail

    logits = jnp.asarray(data(3, 8, 5))
    labels = jnp.array([[1, 2, 2], [3, 1, 4], [2, 4, 1]])
    value, trail = jax.vmap(ctc)(logits, labels)
    g = jax.jit(jax.grad(lambda l: jax.vmap(ctc)(l, labels)[0].sum()))(logits)
    return value, trail, g


@program()
def hmm_forward_associative(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    transition = jax.nn.log_softmax(jnp.asarray(data(3, 3)))
    emission = jax.nn.log_softmax(jnp.asarray(data(3, 4, seed=1)))
    seen = jnp.array([0, 3, 1, 1, 2, 0, 3])

    def combine(a, b):
        return jax.nn.logsumexp(a[..., :, :, None] + b[..., None, :, :], axis=-2)

    def likelihood(transition, emission):
        steps = transition[None] + emission[:, seen].T[:, None, :]
        prefix = lax.associative_scan(combine, steps)
        return jax.nn.logsumexp(prefix[-1] - jnp.log(3.0)), prefix

    def sequential(transition, emission):
        def step(alpha, o):
            alpha = jax.nn.logsumexp(alpha[:, None] + transition, axis=0) + emission[:, o]
            return alpha, alpha

        last, _ = lax.scan(step, jnp.full(3, -jnp.log(3.0)), seen)
        return jax.nn.logsumexp(last)

    value, prefix = likelihood(transition, emission)
    back = lax.associative_scan(jnp.add, jnp.arange(7), reverse=True)
    g = jax.grad(sequential, (0, 1))(transition, emission)
    g2 = jax.grad(lambda *a: likelihood(*a)[0], (0, 1))(transition, emission)
    return value, sequential(transition, emission), prefix, g, g2, back, lax.cummax(seen)


@program()
def viterbi_decoding(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax

    @jax.jit
    def viterbi(start, transition, emission):
        def forward(score, e):
            candidates = score[:, None] + transition
            return candidates.max(0) + e, candidates.argmax(0)

        score, pointers = lax.scan(forward, start + emission[0], emission[1:])
        last = jnp.argmax(score)
        _, path = lax.scan(lambda s, p: (p[s], p[s]), last, pointers, reverse=True)
        return jnp.append(path, last), score.max()

    path, score = viterbi(data(4), data(4, 4, seed=1), data(9, 4, seed=2))
    many = jax.vmap(viterbi, in_axes=(None, None, 0))(
        data(4), data(4, 4, seed=1), data(3, 9, 4, seed=4)
    )
    return path, score, many


@program()
def kalman_filter_and_smoother(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    a = jnp.array([[1.0, 0.1], [0.0, 0.95]])
    h = jnp.array([[1.0, 0.0]])
    ys = jnp.asarray(np.cumsum(data(15, 1), 0) * 0.1)

    def run(q, r):
        noise_q, noise_r = q * jnp.eye(2), r * jnp.eye(1)

        def step(carry, y):
            m, p = carry
            m, p = a @ m, a @ p @ a.T + noise_q
            s = h @ p @ h.T + noise_r
            gain = jnp.linalg.solve(s, h @ p).T
            e = y - h @ m
            logp = ns.scipy.stats.multivariate_normal.logpdf(y, h @ m, s)
            m, p = m + gain @ e, (jnp.eye(2) - gain @ h) @ p
            return (m, p), (m, p, logp)

        _, (ms, ps, logp) = lax.scan(step, (jnp.zeros(2), jnp.eye(2)), ys)

        def smooth(carry, x):
            sm, sp = carry
            m, p = x
            pred = a @ p @ a.T + noise_q
            c = p @ a.T @ jnp.linalg.inv(pred)
            out = m + c @ (sm - a @ m), p + c @ (sp - pred) @ c.T
            return out, out

        _, smoothed = lax.scan(smooth, (ms[-1], ps[-1]), (ms[:-1], ps[:-1]), reverse=True)
        return logp.sum(), (ms, smoothed)

    value, aux = run(0.01, 0.1)
    g, _ = jax.grad(run, argnums=(0, 1), has_aux=True)(0.01, 0.1)
    return value, aux, g


@program()
def gaussian_process(ns):
    jax, jnp = ns.jax, ns.jnp
    solve = ns.scipy.linalg
    x, xs = jnp.linspace(-2, 2, 9)[:, None], jnp.linspace(-2.5, 2.5, 5)[:, None]
    y = jnp.sin(2 * x[:, 0])

    def kernel(p, a, b):
        square = jnp.sum((a[:, None] - b[None]) ** 2, -1)
        return jnp.exp(p["amp"]) * jnp.exp(-0.5 * square / jnp.exp(2 * p["len"]))

    def nll(p):
        k = kernel(p, x, x) + (jnp.exp(p["noise"]) + 1e-4) * jnp.eye(len(x))
        chol = jnp.linalg.cholesky(k)
        alpha = solve.cho_solve((chol, True), y)
        return 0.5 * y @ alpha + jnp.sum(jnp.log(jnp.diag(chol))) + 4.5 * jnp.log(2 * jnp.pi)

    p = {"amp": 0.0, "len": -0.5, "noise": -2.0}
    p = ns.tree.map(jnp.float32, p)
    values = []
    step = jax.jit(jax.value_and_grad(nll))
    for _ in range(5):
        v, g = step(p)
        p = ns.tree.map(lambda a, b: a - 0.05 * b, p, g)
        values.append(v)
    k = kernel(p, x, x) + jnp.exp(p["noise"]) * jnp.eye(9)
    cross = kernel(p, xs, x)
    mean = cross @ jnp.linalg.solve(k, y)
    l, low = solve.cho_factor(k, lower=True)
    v = solve.solve_triangular(l, cross.T, lower=True)
    return p, jnp.array(values), mean, kernel(p, xs, xs) - v.T @ v, low, jax.hessian(nll)(p)


@program()
def hamiltonian_monte_carlo(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax

    def log_density(q):
        return -0.5 * jnp.sum(q["x"] ** 2) - 0.25 * jnp.sum((q["y"] - q["x"][0]) ** 2)

    def leapfrog(q, p, steps, eps):
        grad = jax.grad(log_density)

        def body(_, qp):
            q, p = qp
            p = ns.tree.map(lambda a, g: a + eps / 2 * g, p, grad(q))
            q = ns.tree.map(lambda a, b: a + eps * b, q, p)
            p = ns.tree.map(lambda a, g: a + eps / 2 * g, p, grad(q))
            return q, p

        return lax.fori_loop(0, steps, body, (q, p))

    def energy(q, p):
        return -log_density(q) + 0.5 * sum(jnp.sum(a**2) for a in ns.tree.leaves(p))

    def transition(q, key):
        k1, k2, k3 = ns.random.split(key, 3)
        p = {
            "x": ns.random.normal(k1, q["x"].shape),
            "y": ns.random.normal(k3, q["y"].shape),
        }
        new_q, new_p = leapfrog(q, p, 5, 0.2)
        log_ratio = energy(q, p) - energy(new_q, new_p)
        accept = jnp.log(ns.random.uniform(k2)) < log_ratio
        q = ns.tree.map(lambda a, b: jnp.where(accept, a, b), new_q, q)
        return q, (q, accept)

    start = {"x": jnp.zeros(2), "y": jnp.ones(3)}
    keys = ns.random.split(ns.random.PRNGKey(0), 12)
    last, (trail, accepted) = jax.jit(lambda q, k: lax.scan(transition, q, k))(start, keys)
    chains = jax.vmap(lambda k: lax.scan(transition, start, ns.random.split(k, 4))[0])(keys[:3])
    return last, trail, accepted, jnp.mean(accepted), chains


@program()
def particle_filter(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    n = 32

    def step(carry, inputs):
        particles, weights = carry
        key, y = inputs
        k1, k2, k3 = ns.random.split(key, 3)
        ess = 1 / jnp.sum(weights**2)
        chosen = ns.random.choice(k1, n, (n,), p=weights)
        particles, weights = lax.cond(
            ess < n / 2,
            lambda: (particles[chosen], jnp.full(n, 1 / n)),
            lambda: (particles, weights),
        )
        particles = 0.9 * particles + ns.random.normal(k2, (n,)) * 0.3
        logw = jnp.log(weights) + ns.scipy.stats.norm.logpdf(y, particles, 0.5)
        weights = jax.nn.softmax(logw)
        picked = ns.random.categorical(k3, logw, shape=(4,))
        return (particles, weights), (jnp.sum(weights * particles), ess, picked)

    keys = ns.random.split(ns.random.key(1), 8)
    start = (ns.random.normal(ns.random.key(2), (n,)), jnp.ones(n) / n)
    return jax.jit(lambda ys: lax.scan(step, start, (keys, ys)))(jnp.asarray(data(8)))


@program()
def random_numbers_as_used(ns):
    r, jnp = ns.random, ns.jnp
    key = r.key(123)
    a, b = r.split(key)
    many = r.split(a, (2, 3))
    legacy = r.PRNGKey(7)
    sub = r.fold_in(legacy, 99)
    x = jnp.arange(12).reshape(4, 3)
    return {
        "types": [str(key.dtype), str(legacy.dtype), many.shape, legacy.shape, key.ndim],
        "keys": (a, many, sub, r.key_data(b), r.wrap_key_data(r.key_data(b))),
        "bits": r.bits(a, (3,)),
        "bits8": r.bits(a, (5,), "uint8"),
        "uniform": r.uniform(a, (3,), minval=-2.0, maxval=5.0),
        "normal16": r.normal(a, (3,), jnp.bfloat16),
        "randint": r.randint(b, (4,), 0, 10),
        "randint8": r.randint(b, (4,), -100, 100, jnp.int8),
        "perm": r.permutation(b, 6),
        "perm_rows": r.permutation(b, x),
        "perm_axis": r.permutation(b, x, axis=1, independent=True),
        "choice": r.choice(a, jnp.array([5, 7, 9]), (4,)),
        "no_replace": r.choice(a, 10, (4,), replace=False),
        "weighted": r.choice(a, 5, (3,), replace=False, p=jnp.array([0.1, 0.2, 0.3, 0.2, 0.2])),
        "bernoulli": r.bernoulli(a, jnp.array([0.1, 0.5, 0.9])),
        "categorical": r.categorical(a, jnp.log(jnp.array([[0.2, 0.8], [0.5, 0.5]])), axis=-1),
        "exponential": r.exponential(a, (3,)),
        "laplace": r.laplace(a, (3,)),
        "truncated": r.truncated_normal(a, -1.0, 1.0, (3,)),
        "cauchy": r.cauchy(a, (2,)),
        "gamma": r.gamma(a, jnp.array([0.5, 2.0])),
        "beta": r.beta(a, 2.0, 3.0, (2,)),
        "dirichlet": r.dirichlet(a, jnp.ones(3)),
        "poisson": r.poisson(a, 4.0, (4,)),
        "multivariate": r.multivariate_normal(a, jnp.zeros(2), jnp.array([[2.0, 0.5], [0.5, 1]])),
        "orthogonal": r.orthogonal(a, 3),
        "rademacher": r.rademacher(a, (4,)),
        "logistic": r.logistic(a, (2,)),
        "student": r.t(a, 3.0, (2,)),
        "binomial": r.binomial(a, 10, 0.3, (3,)),
        "vmapped": ns.jax.vmap(lambda k: r.normal(k, (2,)))(many[0]),
        "clone": r.key_data(r.clone(a)),
    }


@program()
def metropolis_ising(ns):
    jnp, lax = ns.jnp, ns.lax
    size = 6
    rows, cols = jnp.meshgrid(jnp.arange(size), jnp.arange(size), indexing="ij")
    parity = (rows + cols) % 2

    def sweep(spins, key):
        for colour, k in zip((0, 1), ns.random.split(key)):
            field = sum(jnp.roll(spins, s, a) for s in (1, -1) for a in (0, 1))
            delta = 2 * spins * field
            flip = ns.random.uniform(k, spins.shape) < jnp.exp(-0.4 * delta)
            spins = jnp.where(flip & (parity == colour), -spins, spins)
        return spins, (spins.mean(), jnp.sum(spins * jnp.roll(spins, 1, 0)))

    start = 2 * ns.random.bernoulli(ns.random.key(0), 0.5, (size, size)).astype(jnp.int32) - 1
    return lax.scan(sweep, start, ns.random.split(ns.random.key(1), 10))


@program()
def mixture_model_em(ns):
    jnp, lax = ns.jnp, ns.lax
    x = jnp.asarray(np.concatenate([data(20, 2) + 2, data(20, 2, seed=1) - 2]))

    def e_step(pi, mu, var):
        logp = ns.scipy.stats.norm.logpdf(x[:, None], mu, jnp.sqrt(var)).sum(-1) + jnp.log(pi)
        norm = ns.scipy.special.logsumexp(logp, axis=1, keepdims=True)
        return jnp.exp(logp - norm), norm.sum()

    def em(carry, _):
        resp, ll = e_step(*carry)
        n = resp.sum(0)
        mu = (resp.T @ x) / n[:, None]
        var = jnp.einsum("nk,nkd->kd", resp, (x[:, None] - mu) ** 2) / n[:, None]
        return (n / x.shape[0], mu, var), ll

    start = (jnp.array([0.5, 0.5]), x[jnp.array([0, 25])], jnp.ones((2, 2)))
    (pi, mu, var), ll = lax.scan(em, start, xs=None, length=6)
    return pi, mu, var, ll, jnp.argmax(e_step(pi, mu, var)[0], axis=1).astype(jnp.uint8)


@program()
def bandit_and_bayes(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    means = jnp.array([0.1, 0.5, 0.8])

    @functools.partial(jax.jit, static_argnames=("steps",))
    def thompson(key, *, steps):
        def body(i, state):
            alpha, beta, key, pulls = state
            key, k1, k2 = ns.random.split(key, 3)
            arm = jnp.argmax(ns.random.beta(k1, alpha, beta))
            reward = ns.random.bernoulli(k2, means[arm])
            alpha = alpha.at[arm].add(reward)
            beta = beta.at[arm].add(1 - reward)
            return alpha, beta, key, pulls.at[i].set(arm)

        start = (jnp.ones(3), jnp.ones(3), key, jnp.zeros(steps, dtype=int))
        return lax.fori_loop(0, steps, body, start)

    alpha, beta, _, pulls = thompson(ns.random.key(3), steps=15)
    stats = ns.scipy.stats
    return (
        alpha,
        beta,
        pulls,
        stats.beta.logpdf(0.3, alpha, beta),
        stats.gamma.logpdf(jnp.array([0.5, 2.0]), 2.0),
        stats.poisson.logpmf(jnp.arange(4.0), 1.5),
        stats.t.logpdf(0.3, 4.0),
        stats.expon.cdf(1.2),
        stats.norm.ppf(jnp.array([0.1, 0.9])),
        stats.bernoulli.logpmf(jnp.array([0, 1]), 0.3),
        stats.dirichlet.logpdf(jnp.array([0.2, 0.3, 0.5]), jnp.array([1.0, 2.0, 3.0])),
        ns.scipy.special.betaln(alpha, beta),
        ns.scipy.special.digamma(alpha),
    )
