"""Getting started: a convolutional network on real handwritten digits, every part written out."""

# %% [markdown]
# # Getting started: MNIST
#
# A convolutional network learns to read handwritten digits. Everything is written out: the data, the model, the
# step, the loop, the evaluation, a checkpoint. The digits ship with the project, so run this in a clone of it,
# after `pip install .`.
#
# ## Data
#
# 4,000 images of 28 × 28 pixels to train on and 1,000 held out, as NumPy arrays of bytes.

# %%
import numpy as np

from examples.mnist.input_pipeline import shipped_digits

train, held_out = shipped_digits()
print({name: (a.shape, str(a.dtype)) for name, a in train.items()})


def draw(image):
    """An image as text, every other row."""
    for row in image[4:25:2, :, 0]:
        print("".join(" .:*#"[pixel // 52] for pixel in row))


draw(train["image"][0])
print("label:", train["label"][0])

# %% [markdown]
# A `Loader` makes batches of arrays, shuffled anew in each epoch by a key. `transform` runs in its thread, ahead of
# the training.

# %%
from toile import random
from toile.training.loader import Loader


def to_floats(batch):
    return {"image": batch["image"].astype("float32") / 255, "label": batch["label"].astype("int32")}


loader = Loader(train, batch_size=100, key=random.key(1), transform=to_floats)
batch = next(iter(loader))
print(len(loader), "batches of", batch["image"].shape)

# %% [markdown]
# ## Model
#
# A module says what is computed; fields are its hyperparameters. Layers are created where they are used, and get
# their names from there.

# %%
import toile
import toile.numpy as jnp
from toile import linen as nn


class CNN(nn.Module):
    features: tuple[int, ...] = (16, 32)
    classes: int = 10

    @nn.compact
    def __call__(self, x):
        for channels in self.features:
            x = nn.relu(nn.Conv(channels, kernel_size=(3, 3))(x))
            x = nn.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
        x = x.reshape(len(x), -1)
        x = nn.relu(nn.Dense(128)(x))
        return nn.Dense(self.classes)(x)


model = CNN()
params = model.init(random.key(0), jnp.zeros((1, 28, 28, 1)))["params"]
toile.tree.map(jnp.shape, params)

# %% [markdown]
# `init` drew the parameters; `apply` computes with given ones. Before training, all classes are about equally
# likely, so the loss is close to log 10 = 2.3.

# %%
from toile import optim


def loss_of(logits, labels):
    return optim.softmax_cross_entropy_with_integer_labels(logits, labels)


logits = model.apply({"params": params}, batch["image"])
print(logits.shape, f"loss {loss_of(logits, batch['label']).mean():.3f}")

# %% [markdown]
# ## Step
#
# A `TrainState` is parameters, optimizer state and a counter, in one tree. The step is a pure function of state and
# batch: it differentiates the loss and lets the optimizer take a step. `jit` compiles all of it together.

# %%
from toile.training.train_state import TrainState


@toile.jit
def train_step(state, batch):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, batch["image"])
        return loss_of(logits, batch["label"]).mean()

    loss, grads = toile.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


epochs = 3
rate = optim.cosine_decay_schedule(0.004, epochs * len(loader))
state = TrainState.create(apply_fn=model.apply, params=params, tx=optim.adam(rate))

# %% [markdown]
# ## Evaluation
#
# Metrics are small trees that add up over batches. `last="pad"` fills the last batch, so that one shape is compiled,
# and adds a `mask` that keeps the padding out of the averages.

# %%
from toile.training.metrics import Accuracy, Average, Collection

Metrics = Collection.create(accuracy=Accuracy, loss=Average.from_output("loss"))


@toile.jit
def eval_step(state, metrics, batch, mask):
    logits = state.apply_fn({"params": state.params}, batch["image"])
    loss = loss_of(logits, batch["label"])
    return metrics.merge(Metrics.single_from_model_output(
        logits=logits, labels=batch["label"], loss=loss, mask=mask))


def evaluate(state):
    metrics = Metrics.empty()
    for batch in Loader(held_out, 250, last="pad"):
        metrics = eval_step(state, metrics, to_floats(batch), batch["mask"])
    return {name: float(value) for name, value in metrics.compute().items()}


evaluate(state)

# %% [markdown]
# ## Loop

# %%
loader = Loader(train, batch_size=100, key=random.key(1), transform=to_floats)
for epoch in range(epochs):
    losses = []
    for batch in loader:
        state, loss = train_step(state, batch)
        losses.append(loss)
    found = evaluate(state)
    print(f"epoch {epoch + 1}: training loss {np.mean(losses):.3f}, "
          f"held-out accuracy {found['accuracy']:.1%}")

# %%
assert found["accuracy"] > 0.9

# %% [markdown]
# ## What it gets wrong
#
# The held-out digit that the network is surest about, and wrong:

# %%
images = to_floats(held_out)["image"]
chances = nn.softmax(toile.jit(model.apply)({"params": state.params}, images))
guess = chances.argmax(axis=1)
wrong = np.flatnonzero(guess != held_out["label"])
worst = max(wrong, key=lambda i: chances[i].max())
draw(held_out["image"][worst])
print(f"label {held_out['label'][worst]}, read as {guess[worst]} with {chances[worst].max():.0%}")

# %% [markdown]
# ## Keep it
#
# A checkpoint holds the whole state, so that training can go on as if it had never stopped. Files are Flax's.

# %%
import tempfile

from toile.training import checkpoints

folder = tempfile.mkdtemp()
checkpoints.save_checkpoint(folder, state, int(state.step))
restored = checkpoints.restore_checkpoint(folder, state)
assert evaluate(restored) == found

# %% [markdown]
# ## Where next
#
# `examples/mnist` is this program with flags, a progress bar, TensorBoard and exact resuming: `make
# mnist` runs it. [Training loops to fork](forking.md) changes it; [modules](modules.md) and [the training
# loop](training.md) explain the parts.
