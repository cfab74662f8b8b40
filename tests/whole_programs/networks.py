"""Networks trained from scratch: layers, optimizers by tree maps, states, keys, masks."""

import functools

import numpy as np

from tests.whole_programs.registry import program


def data(*shape, seed=0):
    """Fixed normal data."""
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


@program()
def mlp_with_momentum(ns):
    jax, jnp = ns.jax, ns.jnp

    def init(key, sizes):
        keys = ns.random.split(key, len(sizes) - 1)
        return [
            {"w": ns.random.normal(k, (m, n)) * jnp.sqrt(2.0 / m), "b": jnp.zeros(n)}
            for k, m, n in zip(keys, sizes[:-1], sizes[1:])
        ]

    def forward(params, x):
        *hidden, last = params
        for layer in hidden:
            x = ns.nn.relu(x @ layer["w"] + layer["b"])
        return x @ last["w"] + last["b"]

    def loss_fn(params, x, y):
        logp = ns.nn.log_softmax(forward(params, x))
        loss = -jnp.mean(jnp.take_along_axis(logp, y[:, None], axis=1))
        return loss, {"accuracy": jnp.mean(jnp.argmax(logp, -1) == y)}

    @functools.partial(jax.jit, donate_argnums=(0, 1), static_argnames="rate")
    def step(params, velocity, x, y, rate=0.1):
        (loss, aux), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, x, y)
        velocity = ns.tree.map(lambda v, g: 0.9 * v + g, velocity, grads)
        params = ns.tree.map(lambda p, v: p - rate * v, params, velocity)
        return params, velocity, loss, aux

    params = init(ns.random.key(0), [5, 16, 8, 3])
    velocity = ns.tree.map(jnp.zeros_like, params)
    x, y = data(32, 5), np.arange(32) % 3
    logs = []
    for _ in range(5):
        params, velocity, loss, aux = step(params, velocity, x, y, rate=0.05)
        logs.append((loss, aux))
    return params, velocity, logs


@program()
def cnn_with_batch_norm_state(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax

    def conv(x, w, stride=1):
        return lax.conv_general_dilated(
            x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    def batch_norm(p, s, x, train):
        mean, var = (x.mean((0, 1, 2)), x.var((0, 1, 2))) if train else (s["mean"], s["var"])
        new = {"mean": 0.9 * s["mean"] + 0.1 * mean, "var": 0.9 * s["var"] + 0.1 * var}
        y = (x - mean) * lax.rsqrt(var + 1e-5) * p["scale"] + p["bias"]
        return y, (new if train else s)

    def apply(params, state, x, train):
        x = conv(x, params["c1"])
        x, state = batch_norm(params["bn"], state, x, train)
        x = ns.nn.relu(x)
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = ns.nn.gelu(conv(x, params["c2"], 2)).reshape(x.shape[0], -1)
        return x @ params["out"], state

    def loss(params, state, x, y):
        logits, state = apply(params, state, x, True)
        one_hot = ns.nn.one_hot(y, 4)
        return -(one_hot * ns.nn.log_softmax(logits)).sum(-1).mean(), state

    k1, k2, k3 = ns.random.split(ns.random.PRNGKey(1), 3)
    he = ns.nn.initializers.he_normal()
    params = {
        "c1": he(k1, (3, 3, 2, 4)),
        "c2": he(k2, (3, 3, 4, 6)),
        "bn": {"scale": jnp.ones(4), "bias": jnp.zeros(4)},
        "out": ns.nn.initializers.lecun_normal()(k3, (24, 4)),
    }
    state = {"mean": jnp.zeros(4), "var": jnp.ones(4)}
    x, y = data(6, 8, 8, 2), np.arange(6) % 4

    @jax.jit
    def step(params, state):
        (value, state), g = jax.value_and_grad(loss, has_aux=True)(params, state, x, y)
        return jax.tree_util.tree_map(lambda p, d: p - 0.1 * d, params, g), state, value

    values = []
    for _ in range(3):
        params, state, value = step(params, state)
        values.append(value)
    return params, state, jnp.stack(values), apply(params, state, x, False)[0]


@program()
def lstm_language_model(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    hidden, vocab = 6, 7

    def cell(params, carry, x):
        h, c = carry
        z = jnp.concatenate([x, h], axis=-1) @ params["w"] + params["b"]
        i, f, g, o = jnp.split(z, 4, axis=-1)
        c = jax.nn.sigmoid(f + 1.0) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    def loss(params, tokens):
        x = params["embed"][tokens[:, :-1]]
        zeros = jnp.zeros((x.shape[0], hidden))
        _, h = lax.scan(functools.partial(cell, params), (zeros, zeros), jnp.swapaxes(x, 0, 1))
        logits = jnp.einsum("tbh,vh->btv", h, params["embed"])
        picked = jnp.take_along_axis(ns.nn.log_softmax(logits), tokens[:, 1:, None], -1)
        return -picked.mean()

    key = ns.random.PRNGKey(3)
    ke, kw = ns.random.split(key)
    params = {
        "embed": ns.random.normal(ke, (vocab, hidden)) * 0.3,
        "w": ns.random.uniform(kw, (2 * hidden, 4 * hidden), minval=-0.3, maxval=0.3),
        "b": jnp.zeros(4 * hidden),
    }
    tokens = np.random.RandomState(0).randint(0, vocab, (3, 8))

    def clip(g, limit):
        norm = jnp.sqrt(sum(jnp.vdot(a, a) for a in ns.tree.leaves(g)))
        return ns.tree.map(lambda a: a * jnp.minimum(1.0, limit / norm), g), norm

    @jax.jit
    def step(params, _):
        value, g = jax.value_and_grad(loss)(params, tokens)
        g, norm = clip(g, 0.5)
        return ns.tree.map(lambda p, d: p - 0.5 * d, params, g), (value, norm)

    return lax.scan(step, params, None, length=4)


@program()
def transformer_with_adam_and_schedule(ns):
    jax, jnp = ns.jax, ns.jnp
    d, heads, length, vocab = 8, 2, 6, 11

    def norm(p, x):
        mean = jnp.mean(x, axis=-1, keepdims=True)
        var = jnp.var(x, axis=-1, keepdims=True)
        return p * (x - mean) / jnp.sqrt(var + 1e-6)

    def attention(p, x, mask):
        q, k, v = ((x @ p[n]).reshape(*x.shape[:-1], heads, d // heads) for n in ("q", "k", "v"))
        scores = jnp.einsum("...qhd,...khd->...hqk", q, k) / np.sqrt(d // heads)
        scores = jnp.where(mask, scores, jnp.finfo(scores.dtype).min)
        out = jnp.einsum("...hqk,...khd->...qhd", jax.nn.softmax(scores, axis=-1), v)
        return out.reshape(x.shape) @ p["o"]

    def model(params, tokens):
        x = params["embed"][tokens] + params["position"][: tokens.shape[-1]]
        mask = jnp.tril(jnp.ones((tokens.shape[-1],) * 2, dtype=bool))
        for p in params["blocks"]:
            x = x + attention(p, norm(p["n1"], x), mask)
            x = x + jax.nn.gelu(norm(p["n2"], x) @ p["up"], approximate=False) @ p["down"]
        return x @ params["embed"].T

    def loss(params, tokens):
        logits = model(params, tokens[:, :-1])
        one = jax.nn.one_hot(tokens[:, 1:], vocab, dtype=logits.dtype)
        smooth = 0.9 * one + 0.1 / vocab
        return jnp.mean(jnp.sum(-smooth * jax.nn.log_softmax(logits), axis=-1))

    def init(key):
        draw = iter(ns.random.split(key, 20))
        dense = lambda m, n: ns.nn.initializers.xavier_uniform()(next(draw), (m, n))
        block = lambda: {
            **{n: dense(d, d) for n in "qkvo"},
            **{"up": dense(d, 4 * d), "down": dense(4 * d, d)},
            **{"n1": jnp.ones(d), "n2": jnp.ones(d)},
        }
        return {
            "embed": ns.nn.initializers.normal(0.5)(next(draw), (vocab, d)),
            "position": ns.random.truncated_normal(next(draw), -2, 2, (length, d)),
            "blocks": [block() for _ in range(2)],
        }

    def schedule(count):
        warm = 1e-2 * (count + 1) / 3
        decay = 1e-2 * 0.5 * (1 + jnp.cos(jnp.pi * jnp.minimum(count, 10) / 10))
        return jnp.where(count < 3, warm, decay)

    @jax.jit
    def update(carry, tokens):
        params, m, v, count = carry
        value, g = jax.value_and_grad(loss)(params, tokens)
        count = count + 1
        m = ns.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        v = ns.tree.map(lambda a, b: 0.99 * a + 0.01 * b**2, v, g)
        rate = schedule(count - 1)

        def move(p, a, b):
            return p - rate * (a / (1 - 0.9**count)) / (jnp.sqrt(b / (1 - 0.99**count)) + 1e-3)

        return (ns.tree.map(move, params, m, v), m, v, count), (value, rate)

    params = init(ns.random.key(2))
    zeros = ns.tree.map(jnp.zeros_like, params)
    carry = (params, zeros, zeros, jnp.array(0))
    logs = []
    for i in range(4):
        carry, log = update(carry, np.random.RandomState(i).randint(0, vocab, (2, length + 1)))
        logs.append(log)
    return carry[0]["blocks"][1], carry[3], logs, model(carry[0], np.arange(5))


@program()
def vae(ns):
    jax, jnp = ns.jax, ns.jnp

    def dense(key, m, n):
        return ns.random.normal(key, (m, n)) / jnp.sqrt(m), jnp.zeros((n,))

    def elbo(params, key, x):
        (w1, b1), (w2, b2), (w3, b3) = params
        h = ns.nn.softplus(x @ w1 + b1)
        mean, logvar = jnp.split(h @ w2 + b2, 2, axis=1)
        z = mean + jnp.exp(0.5 * logvar) * ns.random.normal(key, mean.shape)
        logits = z @ w3 + b3
        rec = jnp.sum(x * ns.nn.log_sigmoid(logits) + (1 - x) * ns.nn.log_sigmoid(-logits), 1)
        kl = -0.5 * jnp.sum(1 + logvar - mean**2 - jnp.exp(logvar), axis=1)
        return jnp.mean(rec - kl), (jnp.mean(rec), jnp.mean(kl))

    key = ns.random.key(5)
    key, *ks = ns.random.split(key, 4)
    params = [dense(ks[0], 6, 8), dense(ks[1], 8, 4), dense(ks[2], 2, 6)]
    x = (data(12, 6) > 0).astype(jnp.float32)
    step = jax.jit(jax.value_and_grad(elbo, has_aux=True))
    out = []
    for i in range(4):
        (value, aux), g = step(params, ns.random.fold_in(key, i), x)
        params = jax.tree.map(lambda p, d: p + 0.05 * d, params, g)
        out.append((value, aux))
    return params, out


@program()
def gan_step(ns):
    jax, jnp = ns.jax, ns.jnp
    kg, kd, kz = ns.random.split(ns.random.PRNGKey(11), 3)
    gen = {"w": ns.random.normal(kg, (3, 2)) * 0.5, "b": jnp.zeros(2)}
    dis = {"w": ns.random.normal(kd, (2, 8)) * 0.5, "v": jnp.full((8,), 0.1, jnp.float32)}
    real = data(10, 2) + 2.0

    def fake(gen, key):
        return jnp.tanh(ns.random.normal(key, (10, 3)) @ gen["w"]) * 3 + gen["b"]

    def score(dis, x):
        return ns.nn.leaky_relu(x @ dis["w"], 0.2) @ dis["v"]

    def d_loss(dis, gen, key):
        x = jax.lax.stop_gradient(fake(gen, key))
        penalty = jax.vmap(jax.grad(score, argnums=1), in_axes=(None, 0))(dis, x)
        bce = jnp.mean(ns.nn.softplus(-score(dis, real))) + jnp.mean(ns.nn.softplus(score(dis, x)))
        return bce + 0.1 * jnp.mean((jnp.linalg.norm(penalty, axis=-1) - 1) ** 2)

    def g_loss(gen, dis, key):
        return -jnp.mean(ns.nn.log_sigmoid(score(dis, fake(gen, key))))

    sgd = lambda p, g: ns.tree.map(lambda a, b: a - 0.1 * b, p, g)

    @jax.jit
    def step(gen, dis, key):
        k1, k2 = ns.random.split(key)
        dl, dg = jax.value_and_grad(d_loss)(dis, gen, k1)
        dis = sgd(dis, dg)
        gl, gg = jax.value_and_grad(g_loss)(gen, dis, k2)
        return sgd(gen, gg), dis, {"d": dl, "g": gl}

    logs = []
    for key in ns.random.split(kz, 3):
        gen, dis, log = step(gen, dis, key)
        logs.append(log)
    return gen, dis, logs


@program()
def normalizing_flow(ns):
    jax, jnp = ns.jax, ns.jnp

    def coupling(p, x, flip):
        a, b = jnp.split(x, 2, axis=-1)
        a, b = (b, a) if flip else (a, b)
        s, t = jnp.split(jnp.tanh(a @ p["w"]) @ p["v"], 2, -1)
        s = jnp.tanh(s)
        b = b * jnp.exp(s) + t
        return jnp.concatenate([b, a] if flip else [a, b], -1), s.sum(-1)

    def log_prob(params, x):
        total = 0.0
        for i, p in enumerate(params):
            x, logdet = coupling(p, x, i % 2 == 1)
            total += logdet
        return ns.scipy.stats.norm.logpdf(x).sum(-1) + total

    keys = ns.random.split(ns.random.key(0), (3, 2))
    params = [
        {"w": ns.random.normal(k[0], (2, 5)) * 0.3, "v": ns.random.normal(k[1], (5, 4)) * 0.3}
        for k in keys
    ]
    x = data(9, 4)
    loss = lambda p: -log_prob(p, x).mean()
    value, g = jax.jit(jax.value_and_grad(loss))(params)
    jac = jax.vmap(jax.jacfwd(lambda u: coupling(params[0], u, False)[0]))(x)
    sign, logdet = jnp.linalg.slogdet(jac)
    return value, g, sign, logdet, coupling(params[0], x, False)[1]


@program()
def dropout_network_over_epochs(ns):
    jax, jnp = ns.jax, ns.jnp

    def dropout(key, x, rate, train):
        if not train or rate == 0.0:
            return x
        keep = ns.random.bernoulli(key, 1.0 - rate, x.shape)
        return jnp.where(keep, x / (1.0 - rate), 0)

    @functools.partial(jax.jit, static_argnums=(3,))
    def predict(w, key, x, train):
        h = dropout(key, jax.nn.silu(x @ w[0]), 0.3, train)
        return (h @ w[1]).squeeze(-1)

    def loss(w, key, x, y):
        return jnp.square(predict(w, key, x, True) - y).mean()

    x, y = data(20, 3), data(20, seed=1)
    key = ns.random.PRNGKey(42)
    w = (ns.random.normal(key, (3, 8)), ns.random.normal(ns.random.fold_in(key, 1), (8, 1)))
    history = []
    for _ in range(2):
        key, shuffle = ns.random.split(key)
        order = ns.random.permutation(shuffle, x.shape[0])
        for start in range(0, 20, 8):
            rows = order[start : start + 8]
            key, sub = ns.random.split(key)
            value, g = jax.value_and_grad(loss)(w, sub, x[rows], y[rows])
            w = jax.tree.map(lambda p, d: p - 0.02 * d, w, g)
            history.append(float(value))
    return w, history, order, predict(w, key, x, False)


@program(rtol=2e-2, atol=1e-2)
def mixed_precision_with_loss_scaling(ns):
    jax, jnp = ns.jax, ns.jnp
    x, y = data(16, 4), data(16, 2, seed=2)

    def loss(params, scale):
        half = ns.tree.map(lambda p: p.astype(jnp.bfloat16), params)
        h = jax.nn.relu(x.astype(jnp.bfloat16) @ half["w"])
        out = (h @ half["v"]).astype(jnp.float32)
        return jnp.mean((out - y) ** 2) * scale, h.dtype

    def step(carry, _):
        params, scale, good = carry
        g, _ = jax.grad(lambda p: (loss(p, scale)[0], None), has_aux=True)(params)
        g = ns.tree.map(lambda a: a / scale, g)
        finite = jnp.all(jnp.array([jnp.all(jnp.isfinite(a)) for a in ns.tree.leaves(g)]))
        new = ns.tree.map(lambda p, d: jnp.where(finite, p - 0.1 * d, p), params, g)
        good = jnp.where(finite, good + 1, 0)
        scale = jnp.where(finite, jnp.where(good >= 2, scale * 2, scale), scale / 2)
        return (new, scale, good), finite

    params = {"w": data(4, 8, seed=3) * 0.5, "v": data(8, 2, seed=4) * 0.5}
    params = ns.tree.map(jnp.asarray, params)
    carry, finite = jax.lax.scan(jax.jit(step), (params, jnp.float32(1024.0), 0), length=5)
    half = params["w"].astype(jnp.bfloat16)
    kinds = [
        str((half * 2.0).dtype),
        str((half + jnp.float32(1)).dtype),
        str((half @ half.T).dtype),
    ]
    return carry, finite, kinds, str(loss(params, 1.0)[1]), jnp.sum(half, dtype=jnp.float32)


@program()
def graph_network(ns):
    jax, jnp = ns.jax, ns.jnp
    senders = jnp.array([0, 1, 2, 3, 0, 2, 4])
    receivers = jnp.array([1, 2, 0, 2, 3, 4, 0])
    graph_of = jnp.array([0, 0, 0, 1, 1])
    nodes = jnp.asarray(data(5, 3))

    def layer(p, nodes):
        messages = jnp.tanh(jnp.concatenate([nodes[senders], nodes[receivers]], 1) @ p["m"])
        logits = (messages @ p["a"]).squeeze(-1)
        top = ns.ops.segment_max(logits, receivers, num_segments=5)
        weights = jnp.exp(logits - top[receivers])
        weights = weights / ns.ops.segment_sum(weights, receivers, 5)[receivers]
        return nodes + ns.ops.segment_sum(weights[:, None] * messages, receivers, num_segments=5)

    def loss(params):
        h = nodes
        for p in params:
            h = layer(p, h)
        pooled = jax.ops.segment_sum(h, graph_of, num_segments=2, indices_are_sorted=True)
        counts = jnp.bincount(graph_of, length=2)
        return jnp.sum((pooled / counts[:, None]) ** 2), pooled

    params = [{"m": data(6, 3, seed=s), "a": data(3, 1, seed=s + 1)} for s in (0, 5)]
    value, g = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    empty = ns.ops.segment_max(jnp.arange(3.0), jnp.array([0, 0, 2]), num_segments=4)
    least = ns.ops.segment_min(jnp.arange(3), jnp.array([0, 0, 2]), num_segments=4)
    return value, g, empty, least, ns.ops.segment_prod(jnp.arange(1.0, 5), jnp.array([1, 1, 0, 0]))


@program()
def embedding_bag_and_scatter(ns):
    jax, jnp = ns.jax, ns.jnp
    table = jnp.asarray(data(10, 4))
    ids = jnp.array([[1, 3, 3], [9, 0, 12], [-1, 2, 2]])

    def bag(table):
        return jnp.sum(jnp.take(table, ids, axis=0, mode="fill", fill_value=0) ** 2)

    dense = jax.grad(bag)(table)
    indexed = jax.grad(lambda t: jnp.sum(t[ids] ** 3))(table)
    counts = jnp.zeros(10, jnp.int32).at[ids.ravel()].add(1)
    dropped = jnp.zeros(10).at[ids].add(1.0, mode="drop")
    clipped = table.at[ids].get(mode="clip")
    updated = table.at[ids[0]].multiply(jnp.arange(3.0)[:, None])
    best = jnp.full(5, -jnp.inf).at[jnp.array([0, 0, 4])].max(jnp.array([1.0, 3.0, 2.0]))
    strided = table.at[::3, 1:3].set(0).at[-1].divide(2.0).at[2, 2].apply(jnp.exp)
    mask = table.at[:, 0].min(0.0)[table[:, 1] > 0]
    return dense, indexed, counts, dropped, clipped, updated, best, strided, mask


@program()
def checkpointed_deep_stack(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    w = jnp.asarray(data(6, 4, 4)) * 0.4
    x = jnp.asarray(data(3, 4))

    @jax.checkpoint
    def layer(x, w):
        return jnp.tanh(x @ w) + x, jnp.sum(jnp.abs(x))

    def stacked(w):
        y, norms = lax.scan(layer, x, w)
        return jnp.sum(y**2) + 0.1 * jnp.sum(norms)

    @functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_saveable)
    def named(w):
        h = x
        for i in range(w.shape[0]):
            h = jnp.sin(h @ w[i])
        return jnp.sum(h)

    @functools.partial(jax.remat, static_argnums=(1,), prevent_cse=False)
    def sized(w, power):
        return jnp.sum(jnp.cos(x @ w[0]) ** power)

    out = [jax.value_and_grad(f)(w) for f in (stacked, jax.jit(stacked), named)]
    return out, jax.grad(sized)(w, 3), jax.jvp(jax.grad(stacked), (w,), (jnp.ones_like(w),))


@program()
def multi_head_attention_einsum(ns):
    jax, jnp = ns.jax, ns.jnp
    q, k, v = (jnp.asarray(data(2, 5, 2, 4, seed=s)) for s in range(3))
    lengths = jnp.array([3, 5])
    keep = jnp.arange(5)[None, :] < lengths[:, None]
    causal = jnp.arange(5)[:, None] >= jnp.arange(5)[None, :]
    mask = keep[:, None, None, :] & causal

    def attend(q, k, v):
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k, precision="highest") / 2.0
        p = jax.nn.softmax(s, where=mask, axis=-1)
        return jnp.einsum("bhqk,bkhd->bqhd", p, v), p

    out, p = attend(q, k, v)
    g = jax.grad(lambda *a: jnp.sum(attend(*a)[0] ** 2), argnums=(0, 1, 2))(q, k, v)
    fused = jax.nn.dot_product_attention(q, k, v, is_causal=True, key_value_seq_lengths=lengths)
    bias = jnp.where(mask, 0.0, -1e9)
    biased = jax.nn.dot_product_attention(q, k, v, bias=bias, scale=0.5)
    return out, p, g, fused, biased, jnp.einsum("bqhd->hd", q), jnp.einsum("bqhd,bqhd", q, q)


@program()
def residual_image_network(ns):
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    x = jnp.asarray(data(2, 8, 8, 3))
    numbers = ("NHWC", "HWIO", "NHWC")

    def forward(w):
        y = lax.conv_general_dilated(
            x, w["a"], (1, 1), "SAME", rhs_dilation=(2, 2), dimension_numbers=numbers
        )
        y = lax.conv_general_dilated(
            y,
            w["depth"],
            (2, 2),
            [(1, 1), (0, 2)],
            dimension_numbers=numbers,
            feature_group_count=4,
        )
        mean = lax.reduce_window(y, 0.0, lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME") / 9
        up = lax.conv_transpose(mean, w["up"], (2, 2), "SAME")
        resized = jax.image.resize(up, (2, 8, 8, 3), "bilinear")
        return resized + x

    w = {"a": data(3, 3, 3, 4), "depth": data(3, 3, 1, 8, seed=1), "up": data(2, 2, 8, 3, seed=2)}
    value, g = jax.jit(jax.value_and_grad(lambda w: jnp.mean(forward(w) ** 2)))(w)
    crops = jax.vmap(lambda im, at: lax.dynamic_slice(im, (at, at, 0), (3, 3, 3)))(
        x, jnp.array([1, 7])
    )
    small = jax.image.resize(x, (2, 4, 5, 3), method="cubic", antialias=True)
    flip = jnp.where(jnp.array([True, False])[:, None, None, None], x[:, :, ::-1], x)
    return value, g, crops, small, flip, jnp.rot90(x, k=3, axes=(1, 2))
