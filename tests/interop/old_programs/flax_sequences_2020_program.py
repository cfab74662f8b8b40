"""Sequences with `flax.nn`: a cell in a scan, attention with a cache, a module's method."""

import jax
import jax.numpy as np
from flax import nn, optim
from flax.nn import attention
from jax import lax, random
from jax.ops import index, index_update

WORDS, LENGTH = 7, 5


class Recurrent(nn.Module):
    def apply(self, tokens):
        table = nn.Embed.shared(num_embeddings=WORDS, features=8, name="table")
        cell = nn.LSTMCell.shared(name="cell")
        carry = nn.LSTMCell.initialize_carry(random.PRNGKey(0), (tokens.shape[0],), 8)
        x = table(tokens)
        if self.is_initializing():
            cell(carry, x[:, 0])
        _, y = lax.scan(cell, carry, np.swapaxes(x, 0, 1))
        return table.attend(np.swapaxes(y, 0, 1))


class Causal(nn.Module):
    def apply(self, tokens, cache=None):
        x = nn.Embed(tokens, WORDS, 8)
        x = x + nn.SelfAttention(x, num_heads=2, causal_mask=True, cache=cache)
        return nn.Dense(nn.LayerNorm(x), WORDS)


def shifted(tokens):
    return index_update(np.roll(tokens, 1, axis=1), index[:, 0], 0)


def train(module):
    tokens = np.array([[1, 2, 3, 4, 5], [2, 4, 6, 1, 3]])
    _, params = module.init_by_shape(random.PRNGKey(1), [((2, LENGTH), np.int32)])
    optimizer = optim.Adam(learning_rate=0.03).create(nn.Model(module, params))

    def loss_of(model):
        scores = nn.log_softmax(model(shifted(tokens)))
        return -np.mean(np.take_along_axis(scores, tokens[..., None], -1))

    step = jax.jit(lambda o: o.optimize(loss_of))
    losses = []
    for _ in range(25):
        optimizer, loss = step(optimizer)[:2]
        losses.append(float(loss))
    return optimizer.target, losses


model, recurrent = train(Recurrent)
model, causal = train(Causal)
tokens = np.array([[1, 2, 3, 4, 5]])
with attention.Cache().mutate() as described:
    Causal.init_by_shape(random.PRNGKey(1), [((1, LENGTH), np.int32)], cache=described)
cache = described.initialize_cache((1, LENGTH))
for i in range(LENGTH):
    with cache.mutate() as cache:
        last = model(tokens[:, i : i + 1], cache=cache)
assert np.allclose(last[:, 0], model(tokens)[:, -1], atol=1e-5)
print(recurrent[0] + causal[0], recurrent[-1] + causal[-1])
