"""A training loop with a TrainState."""
import toile
import toile.linen as nn
import toile.numpy as jnp
from toile import Array, optim, random
from toile.training.train_state import TrainState


class Model(nn.Module):
    """One layer."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Its output."""
        return nn.Dense(1)(x)

@toile.jit
def train_step(state: TrainState, x: Array, y: Array) -> tuple[TrainState, Array]:
    """One step of gradient descent."""
    def loss_fn(params: dict) -> Array:
        return jnp.mean((state.apply_fn({"params": params}, x) - y) ** 2)
    loss, grads = toile.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss

model = Model()
x, y = jnp.ones((8, 3)), jnp.ones((8, 1))
params = model.init(random.key(0), x)["params"]
state = TrainState.create(apply_fn=model.apply, params=params, tx=optim.adam(1e-2))
for step in range(3):
    state, loss = train_step(state, x, y)
    print(f"step {step}: {float(loss):.3f}")
