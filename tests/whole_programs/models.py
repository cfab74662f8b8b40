"""Models of flax trained for five steps on both libraries, from the same key and data.

Adam is written out by tree maps; losses and every parameter are compared."""

import functools
from typing import Any

import numpy as np

from tests.whole_programs.registry import program

STEPS = 5


def data(*shape, seed=0):
    """Fixed normal data."""
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


def labels(*shape, classes, seed=1):
    """Fixed classes."""
    return np.random.RandomState(seed).randint(0, classes, shape)


def cross_entropy(ns, logits, targets):
    """Mean negative log-likelihood."""
    logp = ns.nn.log_softmax(logits)
    return -ns.jnp.mean(ns.jnp.take_along_axis(logp, targets[..., None], -1))


def train(ns, variables, loss_fn, rate=1e-2):
    """Five steps of Adam on `loss_fn(params, state, key) -> (loss, state)`."""
    jax, jnp, tree = ns.jax, ns.jnp, ns.tree
    params = variables["params"]
    state = {k: v for k, v in variables.items() if k != "params"}
    moments = tree.map(lambda p: (jnp.zeros_like(p), jnp.zeros_like(p)), params)

    @jax.jit
    def step(params, state, moments, count, key):
        (loss, state), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, state, key)
        pairs = lambda f: tree.map(f, grads, moments, is_leaf=lambda x: isinstance(x, tuple))
        m = pairs(lambda g, s: 0.9 * s[0] + 0.1 * g)
        v = pairs(lambda g, s: 0.999 * s[1] + 0.001 * g * g)

        def moved(p, m, v):
            return p - rate * (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-3)

        return tree.map(moved, params, m, v), state, tree.map(lambda *x: x, m, v), loss

    losses = []
    for i in range(STEPS):
        key = ns.random.fold_in(ns.random.key(42), i)
        params, state, moments, loss = step(params, state, moments, jnp.float32(i + 1), key)
        losses.append(loss)
    return {"losses": losses, "params": params, "state": state, "init": variables}


@program()
def mnist_cnn(ns):
    nn = ns.linen

    class CNN(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.avg_pool(nn.relu(nn.Conv(4, (3, 3))(x)), (2, 2), (2, 2))
            x = nn.max_pool(nn.relu(nn.Conv(8, (3, 3))(x)), (2, 2), (2, 2))
            x = nn.relu(nn.Dense(16)(x.reshape(x.shape[0], -1)))
            return nn.Dense(10)(x)

    x, y = data(8, 12, 12, 1), labels(8, classes=10)
    model = CNN()

    def loss(params, state, key):
        return cross_entropy(ns, model.apply({"params": params}, x), y), state

    return train(ns, ns.jax.jit(model.init)(ns.random.key(0), x), loss)


@program(rtol=1e-3, atol=1e-4)
def resnet_with_batch_norm(ns):
    nn = ns.linen

    class Block(nn.Module):
        filters: int
        norm: Any
        strides: tuple = (1, 1)

        @nn.compact
        def __call__(self, x):
            conv = functools.partial(nn.Conv, use_bias=False)
            y = nn.relu(self.norm()(conv(self.filters, (3, 3), self.strides)(x)))
            y = self.norm(scale_init=nn.initializers.ones)(conv(self.filters, (3, 3))(y))
            if x.shape != y.shape:
                x = conv(self.filters, (1, 1), self.strides, name="conv_proj")(x)
                x = self.norm(name="norm_proj")(x)
            return nn.relu(x + y)

    class ResNet(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            norm = functools.partial(nn.BatchNorm, use_running_average=not train, momentum=0.9)
            x = nn.relu(norm(name="bn_init")(nn.Conv(4, (3, 3), name="conv_init")(x)))
            x = Block(4, norm)(x)
            x = Block(8, norm, (2, 2))(x)
            return nn.Dense(5)(x.mean((1, 2)))

    x, y = data(6, 8, 8, 3), labels(6, classes=5)
    model = ResNet()

    def loss(params, state, key):
        logits, state = model.apply({"params": params, **state}, x, True, mutable=["batch_stats"])
        return cross_entropy(ns, logits, y), state

    variables = ns.jax.jit(model.init, static_argnums=2)(ns.random.key(0), x, True)
    found = train(ns, variables, loss)
    after = {"params": found["params"], **found["state"]}
    return found, ns.jax.jit(model.apply, static_argnums=2)(after, x, False)


@program(rtol=1e-3, atol=1e-4)
def transformer_lm_with_dropout(ns):
    nn, jnp = ns.linen, ns.jnp

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x, mask, train):
            y = nn.LayerNorm()(x)
            y = nn.MultiHeadDotProductAttention(2, dropout_rate=0.1)(
                y, y, mask=mask, deterministic=not train
            )
            x = x + nn.Dropout(0.1)(y, deterministic=not train)
            y = nn.Dense(x.shape[-1])(nn.gelu(nn.Dense(32)(nn.LayerNorm()(x))))
            return x + nn.Dropout(0.1, deterministic=not train)(y)

    class LM(nn.Module):
        @nn.compact
        def __call__(self, ids, train):
            embed = nn.Embed(17, 16)
            position = self.param("position", nn.initializers.normal(0.02), (ids.shape[1], 16))
            x = embed(ids) + position
            mask = nn.make_causal_mask(ids)
            for _ in range(2):
                x = Block()(x, mask, train)
            return embed.attend(nn.LayerNorm()(x))

    ids = labels(3, 7, classes=17)
    model = LM()

    def loss(params, state, key):
        logits = model.apply({"params": params}, ids[:, :-1], True, rngs={"dropout": key})
        return cross_entropy(ns, logits, jnp.asarray(ids[:, 1:])), state

    keys = {"params": ns.random.key(0), "dropout": ns.random.key(1)}
    return train(ns, ns.jax.jit(model.init, static_argnums=2)(keys, ids[:, :-1], True), loss)


@program(rtol=1e-3, atol=1e-4)
def bidirectional_lstm_tagger(ns):
    nn = ns.linen

    class Tagger(nn.Module):
        @nn.compact
        def __call__(self, ids, lengths):
            x = nn.Embed(11, 6)(ids)
            forward, backward = nn.RNN(nn.LSTMCell(5)), nn.RNN(nn.GRUCell(5))
            x = nn.Bidirectional(forward, backward)(x, seq_lengths=lengths)
            return nn.Dense(3)(x)

    ids, tags = labels(4, 6, classes=11), labels(4, 6, classes=3)
    lengths = np.array([6, 3, 5, 1])
    model = Tagger()

    def loss(params, state, key):
        logits = model.apply({"params": params}, ids, lengths)
        return cross_entropy(ns, logits, tags), state

    return train(ns, ns.jax.jit(model.init)(ns.random.key(0), ids, lengths), loss)


@program()
def variational_autoencoder(ns):
    nn, jnp = ns.linen, ns.jnp

    class VAE(nn.Module):
        latents: int = 3

        def setup(self):
            self.encoder = nn.Sequential([nn.Dense(12), nn.relu])
            self.mean, self.logvar = nn.Dense(self.latents), nn.Dense(self.latents)
            self.decoder = nn.Sequential([nn.Dense(12), nn.relu, nn.Dense(10)])

        def __call__(self, x):
            h = self.encoder(x)
            mean, logvar = self.mean(h), self.logvar(h)
            noise = ns.random.normal(self.make_rng("latent"), mean.shape)
            return self.decoder(mean + jnp.exp(0.5 * logvar) * noise), mean, logvar

        def generate(self, z):
            return nn.sigmoid(self.decoder(z))

    x = (data(6, 10) > 0).astype(np.float32)
    model = VAE()

    def loss(params, state, key):
        logits, mean, logvar = model.apply({"params": params}, x, rngs={"latent": key})
        fit = jnp.sum(x * nn.log_sigmoid(logits) + (1 - x) * nn.log_sigmoid(-logits), -1)
        divergence = -0.5 * jnp.sum(1 + logvar - mean**2 - jnp.exp(logvar), -1)
        return jnp.mean(divergence - fit), state

    keys = {"params": ns.random.key(0), "latent": ns.random.key(1)}
    found = train(ns, ns.jax.jit(model.init)(keys, x), loss)
    return found, model.apply({"params": found["params"]}, data(2, 3), method=model.generate)


@program()
def layers_scanned_with_remat(ns):
    nn = ns.linen

    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x, _):
            y = nn.Dense(8)(nn.tanh(nn.Dense(8)(nn.LayerNorm()(x))))
            return x + nn.Dropout(0.2, deterministic=False)(y), None

    class Stack(nn.Module):
        @nn.compact
        def __call__(self, x):
            layers = nn.scan(
                nn.remat(Layer, prevent_cse=False),
                variable_axes={"params": 0},
                split_rngs={"params": True, "dropout": True},
                length=3,
            )
            x, _ = layers(name="layers")(nn.Dense(8)(x), None)
            return nn.Dense(4)(x)

    x, y = data(5, 6), labels(5, classes=4)
    model = Stack()

    def loss(params, state, key):
        logits = model.apply({"params": params}, x, rngs={"dropout": key})
        return cross_entropy(ns, logits, y), state

    keys = {"params": ns.random.key(0), "dropout": ns.random.key(1)}
    return train(ns, ns.jax.jit(model.init)(keys, x), loss)
