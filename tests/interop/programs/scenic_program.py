"""A program with scenic; `results` are compared with those on JAX."""

import jax
import jax.numpy as jnp
import ml_collections
import optax
from scenic.model_lib.base_models import model_utils
from scenic.projects.baselines.vit import ViT

images = jnp.sin(jnp.arange(2 * 16 * 16 * 3.0)).reshape(2, 16, 16, 3)
labels = jax.nn.one_hot(jnp.array([1, 4]), 5)
model = ViT(num_classes=5, mlp_dim=24, num_layers=2, num_heads=2, hidden_size=16,
            patches=ml_collections.ConfigDict({"size": (8, 8)}), dropout_rate=0.0,
            attention_dropout_rate=0.0)
variables = model.init(jax.random.PRNGKey(0), images, train=False)
optimizer = optax.adam(1e-2)


@jax.jit
def step(variables, state):
    def loss(variables):
        logits = model.apply(variables, images, train=False)
        return model_utils.weighted_softmax_cross_entropy(logits, labels, label_smoothing=0.1)

    value, gradients = jax.value_and_grad(loss)(variables)
    updates, state = optimizer.update(gradients, state)
    return value, optax.apply_updates(variables, updates), state


state, results = optimizer.init(variables), []
for _ in range(3):
    value, variables, state = step(variables, state)
    results.append(value)
