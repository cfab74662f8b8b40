"""Scientific programs: solvers, decompositions, stencils, transforms, simulations."""

import functools

import numpy as np

from tests.whole_programs.registry import program


def data(*shape, seed=0):
    """Fixed normal data."""
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


@program(rtol=3e-3)
def logistic_regression_newton(ns):
    jax, jnp = ns.jax, ns.jnp
    x = jnp.asarray(data(30, 3))
    y = jnp.asarray((x @ np.array([1.0, -2.0, 0.5]) + data(30, seed=3) > 0).astype(np.float32))

    def loss(w):
        z = x @ w
        return jnp.mean(jnp.logaddexp(0.0, z) - y * z) + 0.05 * w @ w

    @jax.jit
    def newton(w):
        g, h = jax.grad(loss)(w), jax.hessian(loss)(w)
        return w - jax.scipy.linalg.solve(h, g, assume_a="pos"), jnp.linalg.norm(g)

    w, norms = jnp.zeros(3), []
    for _ in range(6):
        w, n = newton(w)
        norms.append(n)
    result = ns.scipy.optimize.minimize(loss, jnp.zeros(3), method="BFGS", tol=1e-4)
    return w, norms[:3], loss(w), result.x, result.success, result.fun


@program()
def conjugate_gradients(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    a = data(8, 8)
    a = jnp.asarray(a @ a.T + 8 * np.eye(8, dtype=np.float32))
    b = jnp.asarray(data(8, seed=1))

    def cg(matvec, b, tol=1e-4, maxiter=20):
        def cond(state):
            _, r, _, rs, k = state
            return (rs > tol**2) & (k < maxiter)

        def body(state):
            x, r, p, rs, k = state
            ap = matvec(p)
            alpha = rs / jnp.vdot(p, ap)
            x, r = x + alpha * p, r - alpha * ap
            new = jnp.vdot(r, r)
            return x, r, r + (new / rs) * p, new, k + 1

        x = jnp.zeros_like(b)
        r = b - matvec(x)
        return lax.while_loop(cond, body, (x, r, r, jnp.vdot(r, r), 0))

    x, _, _, _, count = jax.jit(cg, static_argnums=0)(lambda v: a @ v, b)
    grad = jax.grad(lambda b: jax.scipy.sparse.linalg.cg(a, b)[0].sum())(b)
    pre = jax.scipy.sparse.linalg.cg(a, b, M=lambda v: v / jnp.diag(a))[0]
    gm = jax.scipy.sparse.linalg.gmres(lambda v: a @ v, b, tol=1e-6)[0]
    bi, info = jax.scipy.sparse.linalg.bicgstab(a, b)
    lanes = jax.vmap(lambda b: cg(lambda v: a @ v, b)[4])(jnp.stack([b, 0 * b, 1e-5 * b]))
    return x, count, grad, pre, gm, bi, info, lanes


@program(rtol=1e-3, atol=1e-4)
def pca_whitening_and_svd(ns):
    jax, jnp = ns.jax, ns.jnp
    x = jnp.asarray(data(20, 4) @ np.diag([3.0, 2.0, 1.0, 0.5]).astype(np.float32))
    x = x - x.mean(axis=0, keepdims=True)
    cov = jnp.cov(x, rowvar=False)
    values, vectors = jnp.linalg.eigh(cov)
    white = x @ (vectors / jnp.sqrt(values)) @ vectors.T
    u, s, vt = jnp.linalg.svd(x, full_matrices=False)
    rank2 = (u[:, :2] * s[:2]) @ vt[:2]
    nuclear = jax.grad(lambda x: jnp.linalg.norm(x, "nuc"))(x)
    logdet = jax.grad(lambda c: jnp.linalg.slogdet(c)[1])(cov)
    spectral = jax.grad(lambda c: jnp.linalg.eigvalsh(c)[-1])(cov)
    q, r = jnp.linalg.qr(x)
    return (
        cov,
        values,
        jnp.cov(white.T),
        s,
        rank2,
        nuclear,
        logdet,
        spectral,
        jnp.abs(q.T @ q),
        jnp.abs(jnp.diag(r)),
        jnp.linalg.pinv(x),
        jnp.linalg.matrix_rank(x),
        jnp.linalg.cond(cov),
        jnp.linalg.lstsq(x, x[:, 0])[0],
        jnp.corrcoef(x.T),
        type(jnp.linalg.svd(x)).__name__,
        jnp.linalg.eigh(cov).eigenvalues,
    )


@program()
def k_means(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    x = jnp.asarray(np.concatenate([data(15, 2, seed=i) * 0.4 + 3 * i for i in range(3)]))

    @functools.partial(jax.jit, static_argnames=["k"])
    def kmeans(key, x, k):
        start = ns.random.choice(key, x, (k,), replace=False)

        def assign(c):
            return jnp.argmin(jnp.sum((x[:, None] - c[None]) ** 2, axis=-1), axis=-1)

        def body(state):
            c, _, i = state
            one_hot = jax.nn.one_hot(assign(c), k)
            new = (one_hot.T @ x) / jnp.maximum(one_hot.sum(0)[:, None], 1)
            return new, jnp.sum(jnp.abs(new - c)), i + 1

        cond = lambda s: jnp.logical_and(s[1] > 1e-5, s[2] < 50)
        c, shift, count = lax.while_loop(cond, body, (start, jnp.inf, 0))
        return c, assign(c), count

    c, labels, count = kmeans(ns.random.key(0), x, k=3)
    order = jnp.lexsort((c[:, 1], c[:, 0]))
    return c, labels, count, order, jnp.unique(labels, return_counts=True), c[order]


@program()
def lbfgs_and_line_search(ns):
    jax, jnp = ns.jax, ns.jnp

    def rosenbrock(x):
        return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    result = ns.scipy.optimize.minimize(
        lambda x: jnp.sum((x - jnp.arange(3.0)) ** 2 * jnp.array([1.0, 3.0, 9.0])),
        jnp.zeros(3),
        method="BFGS",
        options={"maxiter": 20},
    )

    def backtrack(x, direction):
        f0, g0 = jax.value_and_grad(rosenbrock)(x)
        slope = jnp.vdot(g0, direction)

        def cond(t):
            return rosenbrock(x + t * direction) > f0 + 1e-4 * t * slope

        return jax.lax.while_loop(cond, lambda t: 0.5 * t, 1.0)

    x = jnp.array([-1.2, 1.0, 0.5])
    trail = []
    for _ in range(5):
        h = jax.hessian(rosenbrock)(x) + 1.0 * jnp.eye(3)
        direction = -jnp.linalg.solve(h, jax.grad(rosenbrock)(x))
        t = backtrack(x, direction)
        x = x + t * direction
        trail.append((t, rosenbrock(x)))
    return result.x, result.success, int(result.status), x, trail


@program()
def n_body_simulation(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    mass = jnp.array([1.0, 0.5, 0.2])

    def potential(q):
        difference = q[:, None] - q[None]
        distance = jnp.sqrt(jnp.sum(difference**2, -1) + jnp.eye(3))
        upper = jnp.triu(jnp.ones((3, 3)), 1)
        return -jnp.sum(upper * jnp.outer(mass, mass) / distance)

    force = jax.grad(lambda q: -potential(q))

    def step(state, _):
        q, v = state
        v = v + 0.005 * force(q) / mass[:, None]
        q = q + 0.01 * v
        v = v + 0.005 * force(q) / mass[:, None]
        energy = 0.5 * jnp.sum(mass * jnp.sum(v**2, -1)) + potential(q)
        return (q, v), energy

    q = jnp.array([[0.0, 0.0], [1.0, 0.1], [-0.5, 1.5]])
    final, energies = jax.jit(lambda s: lax.scan(step, s, jnp.arange(40)))((q, jnp.zeros((3, 2))))
    sensitivity = jax.jacfwd(lambda q: lax.scan(step, (q, q * 0), None, 5)[0][0][0])(q)
    return final, energies, sensitivity


@program()
def heat_and_wave_stencils(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    u0 = jnp.zeros((8, 8)).at[2:4, 3:6].set(1.0)
    kernel = jnp.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]], dtype=jnp.float32)

    def periodic(u):
        return sum(jnp.roll(u, s, axis=a) for s in (-1, 1) for a in (0, 1)) - 4 * u

    def dirichlet(u):
        return jax.scipy.signal.convolve2d(u, kernel, mode="same")

    def reflecting(u):
        p = jnp.pad(u, 1, mode="edge")
        return p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u

    def by_conv(u):
        p = jnp.pad(u, ((1, 1), (1, 1)), "wrap")[None, None]
        return lax.conv(p, kernel[None, None], (1, 1), "VALID")[0, 0]

    out = {}
    for rule in (periodic, dirichlet, reflecting, by_conv):
        heat = lax.fori_loop(0, 10, lambda _, u, rule=rule: u + 0.1 * rule(u), u0)
        wave = lax.scan(
            lambda s, _, rule=rule: ((s[1], 2 * s[1] - s[0] + 0.2 * rule(s[1])), None),
            (u0, u0),
            None,
            length=6,
        )[0]
        out[rule.__name__] = heat, wave[1], heat.sum()
    grad = jax.grad(
        lambda u: jnp.sum(lax.scan(lambda u, _: (u + 0.1 * reflecting(u), 0.0), u, None, 4)[0] ** 2)
    )(u0)
    return out, grad, jnp.gradient(u0), jnp.diff(u0, n=2, axis=0), jnp.trapezoid(u0, dx=0.5)


@program()
def fourier_filtering(ns):
    jax, jnp = ns.jax, ns.jnp
    t = jnp.arange(32) / 32
    x = jnp.sin(2 * jnp.pi * 3 * t) + 0.3 * jnp.asarray(data(32))

    def low_pass(x, cut):
        f = jnp.fft.rfft(x)
        keep = jnp.abs(jnp.fft.rfftfreq(32, 1 / 32)) <= cut
        return jnp.fft.irfft(f * keep, n=32)

    def spectral_step(u):
        k = 2 * jnp.pi * jnp.fft.fftfreq(32, 1 / 32)
        return jnp.fft.ifft(jnp.exp(-1j * k**2 * 1e-4) * jnp.fft.fft(u))

    image = jnp.asarray(data(6, 8))
    blur = jnp.fft.ifft2(jnp.fft.fft2(image) * jnp.fft.fft2(jnp.eye(6, 8))).real
    return (
        low_pass(x, 4.0),
        jax.grad(lambda x: jnp.sum(low_pass(x, 4.0) ** 3))(x),
        jax.lax.fori_loop(0, 3, lambda i, u: spectral_step(u), x.astype(jnp.complex64)),
        blur,
        jnp.fft.fftshift(jnp.fft.fft(x)),
        jnp.fft.hfft(jnp.fft.ihfft(x)),
        jax.scipy.signal.fftconvolve(x, jnp.ones(5) / 5, mode="same"),
        jnp.abs(jnp.fft.rfftn(image, norm="ortho")) ** 2,
        jnp.angle(jnp.fft.fft(x)[3]),
        jnp.convolve(x, jnp.hanning(7), "valid"),
        jax.jvp(spectral_step, (x + 0j,), (x + 1j,)),
    )


@program(x64=True, rtol=1e-9, atol=1e-10)
def double_precision_program(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    x = jnp.linspace(0.0, 1.0, 5)
    i = jnp.arange(3)

    def integrate(f, n=200):
        h = 1.0 / n
        grid = (jnp.arange(n) + 0.5) * h
        return jnp.sum(f(grid)) * h

    root = lax.while_loop(lambda c: jnp.abs(c * c - 2) > 1e-12, lambda c: 0.5 * (c + 2 / c), 1.0)
    key = ns.random.key(0)
    return {
        "types": [str(v.dtype) for v in (x, i, jnp.array(1), jnp.array(1.5), jnp.array(1j))],
        "mixed": [str((jnp.float32(1) * v).dtype) for v in (x, 2.0, i)],
        "integral": integrate(jnp.exp),
        "root": root,
        "grad": jax.grad(integrate_power := lambda p: integrate(lambda g: g**p))(2.0),
        "hess": jax.hessian(integrate_power)(2.0),
        "normal": ns.random.normal(key, (3,)),
        "bits": ns.random.bits(key, (2,), "uint64"),
        "ints": ns.random.randint(key, (3,), 0, 2**40),
        "uniform32": ns.random.uniform(key, (2,), jnp.float32),
        "big": jnp.int64(2) ** 40 + i,
        "eigh": jnp.linalg.eigvalsh(jnp.outer(x, x) + jnp.eye(5)),
        "finite": (jax.jit(jnp.exp)(1 + 1e-6) - jnp.exp(1.0)) / 1e-6,
        "argmax": jnp.argmax(x),
        "sum": jnp.sum(jnp.ones(3, jnp.int32)),
        "count": x.size,
        "scan": lax.scan(lambda c, v: (c + v, c * 2), 0.0, x),
        "erf": jax.scipy.special.erfinv(x[1:-1]),
        "gammaln": jax.scipy.special.gammaln(x + 1),
    }


@program()
def hashing_and_bits(ns):
    jnp, lax = ns.jnp, ns.lax

    def murmur(h):
        h = jnp.asarray(h, jnp.uint32)
        h ^= h >> 16
        h *= jnp.uint32(0x85EBCA6B)
        h ^= h >> 13
        h *= np.uint32(0xC2B2AE35)
        return h ^ (h >> 16)

    def fnv(data):
        step = lambda h, b: ((h ^ b.astype(jnp.uint32)) * jnp.uint32(16777619), h)
        return lax.scan(step, jnp.uint32(2166136261), data)[0]

    def xorshift(state):
        state ^= state << 13
        state ^= state >> 17
        return state ^ (state << 5)

    text = np.frombuffer(b"hello, world", dtype=np.uint8)
    i = jnp.arange(-4, 5)
    u = jnp.arange(5, dtype=jnp.uint8)
    return {
        "murmur": murmur(np.arange(5)),
        "fnv": fnv(text),
        "xorshift": lax.fori_loop(0, 5, lambda _, s: xorshift(s), jnp.uint32(1)),
        "count": lax.population_count(u),
        "clz": lax.clz(u),
        "not": ~u,
        "neg": -u,
        "wrap": u - jnp.uint8(3),
        "shift": [i >> 1, i << 2, lax.shift_right_logical(i, 1)],
        "cast": lax.bitcast_convert_type(jnp.float32(1.5), jnp.uint32),
        "bytes": lax.bitcast_convert_type(jnp.uint32(0x01020304), jnp.uint8),
        "div": [i // 3, i % 3, lax.div(i, 3), lax.rem(i, 3), jnp.fmod(i, 3), divmod(i, 2)],
        "pack": jnp.packbits(u > 2),
        "unpack": jnp.unpackbits(u[:2]),
        "bitwise": [i & 3, i | 1, i ^ -1, jnp.bitwise_count(i), jnp.invert(i)],
        "gray": u ^ (u >> 1),
        "mixed": [str((u + i[:5]).dtype), str((u + 1).dtype), str((u / 2).dtype)],
        "view": jnp.float32(-0.0).view(jnp.int32),
        "popcount": jnp.bitwise_count(i).sum(),
        "overflow": jnp.int8(127) + jnp.int8(1),
        "power": jnp.array(3) ** jnp.arange(4),
        "casts": [jnp.array([-1.5, 300.7, jnp.nan]).astype(t) for t in ("int8", "uint8", "bool")],
    }


@program()
def sorting_and_searching(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    x = jnp.array([3.0, 1.0, jnp.nan, 2.0, 1.0, -jnp.inf])

    def odd_even(x):
        n = x.shape[0]

        def step(i, x):
            start = i % 2
            left = jnp.arange(n) % 2 == start
            right = jnp.roll(x, -1)
            swap = left & (jnp.arange(n) < n - 1) & (x > right)
            low = jnp.where(swap, right, x)
            return jnp.where(jnp.roll(swap, 1), jnp.roll(x, 1), low)

        return lax.fori_loop(0, n, step, x)

    keys, values = lax.sort((jnp.array([2, 1, 2, 0]), jnp.arange(4.0)), num_keys=1)
    ranks = jnp.argsort(jnp.argsort(-x[:2]))
    return {
        "network": odd_even(jnp.array([5, 2, 9, 1, 7])),
        "sort": jnp.sort(x),
        "argsort": jnp.argsort(x),
        "down": jnp.sort(x, descending=True),
        "pair": (keys, values),
        "down_arg": jnp.argsort(x, descending=True, stable=True),
        "ranks": ranks,
        "top": lax.top_k(x[:2], 1),
        "topk": lax.top_k(jnp.array([[1, 5, 5], [9, 8, 9]]), 2),
        "search": jnp.searchsorted(jnp.array([1, 3, 5]), jnp.array([0, 3, 6]), side="right"),
        "digit": jnp.digitize(jnp.array([0.5, 2.5]), jnp.arange(4.0)),
        "unique": jnp.unique(jnp.array([3, 1, 3]), size=4, fill_value=-1),
        "inverse": jnp.unique(jnp.array([3, 1, 3]), return_inverse=True, return_index=True),
        "nonzero": jnp.nonzero(jnp.array([0, 2, 0, 1]), size=3, fill_value=-1),
        "partition": jnp.sort(jnp.partition(jnp.array([4, 2, 3, 1]), 2)[:2]),
        "hist": jnp.histogram(jnp.arange(10.0), bins=4),
        "argmax": jnp.argmax(x),
        "nan": [jnp.nanmax(x), jnp.nanargmin(x), jnp.nansum(x[1:5]), jnp.max(x)],
        "where": jnp.where(x > 1),
        "isin": jnp.isin(jnp.arange(4), jnp.array([1, 3])),
        "percentile": jnp.percentile(x[:2], jnp.array([10, 50])),
        "median": jnp.median(x),
        "bincount": jnp.bincount(jnp.array([0, 1, 1]), minlength=4),
        "ptp": jnp.ptp(x[:2]),
        "grad": jax.grad(lambda v: jnp.dot(jnp.sort(v), jnp.arange(3.0)))(jnp.array([3.0, 1, 2])),
        "median_grad": jax.grad(lambda v: lax.top_k(v, 2)[0].sum())(jnp.array([3.0, 1.0, 2.0])),
    }


@program()
def polynomials_and_interpolation(ns):
    jax, jnp = ns.jax, ns.jnp
    c = jnp.array([1.0, -3.0, 2.0])
    x = jnp.linspace(-1, 1, 7)

    def chebyshev(coefficients, x):
        def step(carry, a):
            b1, b2 = carry
            return (a + 2 * x * b1 - b2, b1), None

        zero = jnp.zeros_like(x)
        (b1, b2), _ = jax.lax.scan(step, (zero, zero), coefficients[:0:-1])
        return coefficients[0] + x * b1 - b2

    grid = tuple(jnp.meshgrid(x[:3], x[:2], sparse=True))
    return (
        jnp.polyval(c, x),
        jnp.polyfit(x, jnp.polyval(c, x), 2),
        jnp.sort(jnp.roots(c).real),
        chebyshev(c, x),
        jax.vmap(jax.grad(chebyshev, 1), (None, 0))(c, x),
        grid,
        jnp.interp(jnp.array([-2.0, 0.1, 2.0]), x, x**2, left=-1.0),
        jnp.vander(x[:3], 3),
        jax.scipy.ndimage.map_coordinates(jnp.outer(x, x), [x[:3] + 2, x[:3] + 3], order=1),
        jnp.polymul(c, c),
        jnp.polyder(c),
        jnp.polyint(c),
        jnp.cumsum(x),
        jnp.logspace(0, 2, 3),
        jnp.geomspace(1, 8, 4),
        jnp.kron(jnp.eye(2), x[:2]),
        jnp.tensordot(jnp.ones((2, 3)), c, 1),
        jnp.select([x < -0.5, x < 0.5], [x, x**2], 7.0),
        jnp.piecewise(x, [x < 0], [0.0, jnp.exp]),
    )
