"""A model of your own: a layer, a network, training, evaluation, and a checkpoint to continue from."""

# %% [markdown]
# # A model of your own, from module to checkpoint
#
# On this page, we write a layer, build a network from it, train the network, save checkpoints, and
# continue training from one of the checkpoints as if training had not been interrupted. The data is
# generated, so everything runs in a few seconds.
#
# ## Data: two spirals
#
# Two spirals are wound around each other, and the network has to decide which spiral a point
# belongs to. No straight line separates the two spirals.

# %%
import numpy as np


def spirals(count, seed):
    """Return points [count, 2], and for each point the number of its spiral."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, count)
    angle = rng.uniform(0.5, 2 * np.pi, count)
    turn = angle + np.pi * label
    points = angle[:, None] * np.stack([np.cos(turn), np.sin(turn)], axis=1) / 4
    return {"x": (points + rng.normal(0, 0.03, points.shape)).astype("float32"),
            "label": label.astype("int32")}


def draw(x, label, size=21):
    """Print points as text, with o and + for the two classes."""
    canvas = [[" "] * (2 * size) for _ in range(size)]
    for (across, up), which in zip(x, label):
        row, column = (int((v / 1.7 + 1) / 2 * (size - 1) + 0.5) for v in (-up, across))
        if 0 <= row < size and 0 <= column < size:
            canvas[row][2 * column] = "o+"[int(which)]
    print("\n".join("".join(row).rstrip() for row in canvas))


train, held_out = spirals(1000, seed=1), spirals(500, seed=2)
draw(train["x"], train["label"])

# %% [markdown]
# ## A layer
#
# A module is a class whose fields are hyperparameters and whose method `__call__` defines the
# computation. The arguments of `self.param` are the name of the parameter, a function that returns
# the initial value, and the shape. This layer multiplies its input by a matrix, as `nn.Dense` does,
# scales each output by a learned number, and adds a bias:

# %%
import toile
import toile.numpy as jnp
from toile import linen as nn
from toile import random


class ScaledDense(nn.Module):
    features: int

    @nn.compact
    def __call__(self, x):
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (x.shape[-1], self.features))
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        scale = self.param("scale", nn.initializers.ones, (self.features,))
        return scale * (x @ kernel) + bias


layer = ScaledDense(features=3)
variables = layer.init(random.key(0), jnp.ones((1, 2)))
toile.tree.map(jnp.shape, variables)

# %% [markdown]
# The module itself contains no numbers. `init` draws the parameters with a random key, and `apply`
# computes with the parameters that you pass. You need not declare the size of the input: `init`
# infers it from the example input.

# %%
layer.apply(variables, jnp.array([[1.0, 2.0]])).shape

# %% [markdown]
# ## A network
#
# Modules can contain modules. `nn.Dropout` sets randomly chosen elements of its input to zero, but
# only during training. The caller of the model therefore specifies whether the model is being
# trained and, during training, passes a random key for dropout.


# %%
class Classifier(nn.Module):
    width: int = 64
    depth: int = 3
    dropout: float = 0.1

    @nn.compact
    def __call__(self, x, *, is_training):
        for _ in range(self.depth):
            x = nn.gelu(ScaledDense(self.width)(x))
            x = nn.Dropout(self.dropout, deterministic=not is_training)(x)
        return nn.Dense(2)(x)


model = Classifier()
model.tabulate(random.key(0), train["x"][:1], is_training=False)

# %% [markdown]
# ## A training step
#
# A `TrainState` contains everything that training changes: the parameters, the state of the
# optimizer and the step number. `train_step` takes a state and a batch, and returns the next state.
# The random key for dropout is derived from the step number, so you need not store a key, and every
# step draws different numbers.

# %%
from toile import optim
from toile.training.train_state import TrainState


def new_state(seed):
    params = model.init(random.key(seed), train["x"][:1], is_training=False)["params"]
    return TrainState.create(apply_fn=model.apply, params=params, tx=optim.adamw(3e-3))


@toile.jit
def train_step(state, batch):
    key = random.fold_in(random.key(7), state.step)

    def loss_fn(params):
        logits = state.apply_fn({"params": params}, batch["x"], is_training=True,
                                rngs={"dropout": key})
        return optim.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()

    loss, slopes = toile.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=slopes), loss


@toile.jit
def accuracy(state, data):
    logits = state.apply_fn({"params": state.params}, data["x"], is_training=False)
    return jnp.mean(logits.argmax(axis=-1) == data["label"])


state = new_state(0)
print(f"accuracy before training: {accuracy(state, held_out):.1%}")

# %% [markdown]
# ## The loop, with checkpoints
#
# A `Loader` shuffles the examples and divides them into batches, and `Plot` draws the curves. After
# every tenth epoch, a checkpoint is written; `keep=3` keeps the last three checkpoints.

# %%
import tempfile

from toile.training import checkpoints
from toile.training.live import Plot
from toile.training.loader import Loader

folder = tempfile.mkdtemp()


def run(state, epochs, plot):
    """Train for the epochs with the given numbers."""
    for epoch in epochs:
        for batch in Loader(train, batch_size=100, key=random.key(100 + epoch)):
            state, loss = train_step(state, batch)
        plot.add(epoch + 1, train_loss=loss, accuracy=accuracy(state, held_out))
        if (epoch + 1) % 10 == 0:
            checkpoints.save_checkpoint(folder, state, epoch + 1, keep=3)
    return state


plot = Plot(log=["loss"])
state = run(state, range(40), plot)
plot

# %%
found = float(accuracy(state, held_out))
print(f"accuracy after training: {found:.1%}")
assert found > 0.9

# %% [markdown]
# What has the network learned? This picture shows the class that it predicts for each point of a
# grid:

# %%
side = np.linspace(-1.7, 1.7, 21).astype("float32")
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
logits = model.apply({"params": state.params}, grid, is_training=False)
draw(grid, logits.argmax(axis=-1))

# %% [markdown]
# ## Continue from a checkpoint
#
# `restore_checkpoint` reads a checkpoint into a state of the same structure. Here, we pass a new
# state; the result has the same structure, but contains the numbers from the checkpoint.

# %%
print("checkpoints of the epochs", checkpoints.available_steps(folder))
restored = checkpoints.restore_checkpoint(folder, new_state(1), step=30)
print("step", int(restored.step), f"accuracy {accuracy(restored, held_out):.1%}")

# %% [markdown]
# Now we repeat the last ten epochs, starting from this checkpoint. The order of the batches and the
# dropout masks depend only on the epoch and step numbers, so the result is bit-for-bit identical to
# the result of the first run:

# %%
again = restored
for epoch in range(30, 40):
    for batch in Loader(train, batch_size=100, key=random.key(100 + epoch)):
        again, _ = train_step(again, batch)

same = toile.tree.map(lambda a, b: bool((a == b).all()), again.params, state.params)
print("all parameters are equal:", all(toile.tree.leaves(same)))

# %%
assert all(toile.tree.leaves(same))

# %% [markdown]
# ## Use the network
#
# For predictions, we need only the parameters, not the optimizer's state. We use `serialization` to
# write the parameters to a file. Any program that defines the module can read this file:

# %%
from pathlib import Path

from toile import serialization

file = Path(folder) / "spirals.msgpack"
file.write_bytes(serialization.to_bytes(state.params))

params = serialization.from_bytes(new_state(2).params, file.read_bytes())
predict = toile.jit(lambda x: nn.softmax(model.apply({"params": params}, x, is_training=False)))
print(f"{file.stat().st_size / 1e3:.0f} kB;", predict(held_out["x"][:3]).round(3).tolist(),
      "labels", held_out["label"][:3])

# %% [markdown]
# ## What to read next
#
# [Modules](modules.md) explains, among other things, how to share layers, keep running statistics
# and define several methods. [Checkpoints](checkpoints.md) explains how to save in the background
# and what happens when a program is killed. The next notebook, [Sequences](sequences.md), trains
# networks that read their input step by step.
