"""A program with vit_jax; `results` are compared with those on JAX."""

import jax
import jax.numpy as jnp
import ml_collections
import optax
from vit_jax.models_mixer import MlpMixer
from vit_jax.models_vit import VisionTransformer

images = jnp.sin(jnp.arange(2 * 16 * 16 * 3.0)).reshape(2, 16, 16, 3)
labels = jax.nn.one_hot(jnp.array([1, 4]), 5)
patches = ml_collections.ConfigDict({"size": (8, 8)})
vit = VisionTransformer(
    num_classes=5, patches=patches, hidden_size=16,
    transformer={"num_layers": 2, "mlp_dim": 24, "num_heads": 2, "dropout_rate": 0.0})
mixer = MlpMixer(patches=patches, num_classes=5, num_blocks=2, hidden_dim=16, tokens_mlp_dim=8,
                 channels_mlp_dim=12)


def losses(model):
    variables = model.init(jax.random.PRNGKey(0), images, train=False)
    optimizer = optax.sgd(0.1)
    state = optimizer.init(variables)

    @jax.jit
    def step(variables, state):
        value, gradients = jax.value_and_grad(lambda v: optax.softmax_cross_entropy(
            model.apply(v, images, train=False), labels).mean())(variables)
        updates, state = optimizer.update(gradients, state)
        return value, optax.apply_updates(variables, updates), state

    for _ in range(3):
        value, variables, state = step(variables, state)
        yield value


results = [list(losses(model)) for model in (vit, mixer)]
