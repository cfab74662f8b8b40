"""A program with flaxformer; `results` are compared with those on JAX."""

import jax
import jax.numpy as jnp
import optax
from flaxformer.architectures.t5 import t5_architecture_test_utils as configurations

inputs = jnp.array([[101, 183, 20, 75], [101, 392, 19, 7]]) % 71
targets = jnp.array([[5, 7, 9, 0], [4, 2, 0, 0]])
model = configurations.make_config1()
arguments = {"encoder_input_tokens": inputs, "decoder_input_tokens": targets,
             "decoder_target_tokens": targets, "enable_dropout": False}
variables = model.init(jax.random.PRNGKey(0), **arguments)
optimizer = optax.adam(1e-2)


@jax.jit
def step(params, state):
    def loss(params):
        hidden = model.apply({**variables, "params": params}, **arguments)
        return jnp.mean(hidden.astype(jnp.float32) ** 2)

    value, gradients = jax.value_and_grad(loss)(params)
    updates, state = optimizer.update(gradients, state)
    return value, optax.apply_updates(params, updates), state


params, results = variables["params"], []
state = optimizer.init(params)
for _ in range(4):
    value, params, state = step(params, state)
    results.append(value)
