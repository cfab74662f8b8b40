"""Getting started: train a convolutional network on real handwritten digits, step by step."""

# %% [markdown]
# # Getting started: MNIST
#
# This page trains a convolutional network to read handwritten digits. It shows every part in full:
# the data, the model, the training step, the evaluation, the loop and a checkpoint.
#
# The digits come with toile. Create a project that contains them, and run the code on this page in
# the project's folder:
#
# ```
# pip install toile
# toile new mnist my_project
# cd my_project
# ```
#
# In a clone of toile's repository, the code also runs in the root folder, after `pip install .`.
#
# ## Data
#
# The data set contains 5,000 images of 28 × 28 pixels, stored as bytes. We train on the first 4,000
# images and hold out the other 1,000 for evaluation.

# %%
from pathlib import Path

import numpy as np

file = Path("mnist/data/mnist_5k.npz")  # in my_project
if not file.exists():
    file = "examples" / file  # in a clone of the repository
with np.load(file) as digits:
    images, labels = digits["images"][..., None], digits["labels"]
train = {"image": images[:4000], "label": labels[:4000]}
held_out = {"image": images[4000:], "label": labels[4000:]}
print({name: (a.shape, str(a.dtype)) for name, a in train.items()})


def draw(image):
    """Print every other row of an image as text."""
    for row in image[4:25:2, :, 0]:
        print("".join(" .:*#"[pixel // 52] for pixel in row))


draw(train["image"][0])
print("label:", train["label"][0])

# %% [markdown]
# A `Loader` creates batches from arrays and uses a random key to shuffle the examples differently
# in each epoch. The function passed as `transform` runs in the loader's background thread, so the
# next batches are prepared while the network trains.

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
# A module describes a computation. Its fields are hyperparameters. In a method marked
# `@nn.compact`, layers are created where they are used and named automatically: `Conv_0`, `Conv_1`,
# `Dense_0` and so on.

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
# `init` draws random parameters, and `apply` runs the model with the parameters that you pass.
# Before training, the network assigns roughly the same probability to all ten classes, so the loss
# is close to `log(10) = 2.3`.

# %%
from toile import optim


def cross_entropy(logits, labels):
    return optim.softmax_cross_entropy_with_integer_labels(logits, labels)


logits = model.apply({"params": params}, batch["image"])
print(logits.shape, f"loss {cross_entropy(logits, batch['label']).mean():.3f}")

# %% [markdown]
# ## Training step
#
# A `TrainState` contains the parameters, the optimizer state and a step counter in one tree. The
# training step is a pure function of the state and a batch: it differentiates the loss, updates the
# parameters with the optimizer, and returns the new state. `jit` compiles the whole step into one
# program.

# %%
from toile.training.train_state import TrainState


@toile.jit
def train_step(state, batch):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, batch["image"])
        return cross_entropy(logits, batch["label"]).mean()

    loss, grads = toile.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


epochs = 3
rate = optim.cosine_decay_schedule(0.004, epochs * len(loader))
state = TrainState.create(apply_fn=model.apply, params=params, tx=optim.adam(rate))

# %% [markdown]
# ## Evaluation
#
# A metric is a small tree of arrays that accumulates values over batches. With `last="pad"`, the
# loader pads the last batch, so that all batches have the same shape and the evaluation step is
# [traced only once](sharp-bits.md#a-function-is-traced-again-for-each-new-shape). The loader also
# adds a `mask` to each batch; we pass this mask to the metrics to exclude the padding from the
# averages.

# %%
from toile.training.metrics import Accuracy, Average, Collection

Metrics = Collection.create(accuracy=Accuracy, loss=Average.from_output("loss"))


@toile.jit
def eval_step(state, metrics, batch, mask):
    logits = state.apply_fn({"params": state.params}, batch["image"])
    loss = cross_entropy(logits, batch["label"])
    return metrics.merge(Metrics.single_from_model_output(
        logits=logits, labels=batch["label"], loss=loss, mask=mask))


def evaluate(state):
    metrics = Metrics.empty()
    for batch in Loader(held_out, 250, last="pad"):
        metrics = eval_step(state, metrics, to_floats(batch), batch["mask"])
    return {name: float(value) for name, value in metrics.compute().items()}


evaluate(state)

# %% [markdown]
# ## Training loop

# %%
loader = Loader(train, batch_size=100, key=random.key(1), transform=to_floats)
for epoch in range(epochs):
    losses = []
    for batch in loader:
        state, loss = train_step(state, batch)
        losses.append(loss)
    results = evaluate(state)
    print(f"epoch {epoch + 1}: training loss {np.mean(losses):.3f}, "
          f"held-out accuracy {results['accuracy']:.1%}")

# %%
assert results["accuracy"] > 0.9

# %% [markdown]
# ## The most confident mistake
#
# This is the wrong answer that the network is most confident about:

# %%
images = to_floats(held_out)["image"]
probabilities = nn.softmax(toile.jit(model.apply)({"params": state.params}, images))
predicted = probabilities.argmax(axis=1)
wrong = np.flatnonzero(predicted != held_out["label"])
worst = max(wrong, key=lambda i: probabilities[i].max())
draw(held_out["image"][worst])
print(f"label {held_out['label'][worst]}, predicted {predicted[worst]} "
      f"with probability {probabilities[worst].max():.0%}")

# %% [markdown]
# ## Save a checkpoint
#
# A checkpoint contains the whole state, so training can continue as if it had not been interrupted.
# Checkpoints are in Flax's file format.

# %%
import tempfile

from toile.training import checkpoints

folder = tempfile.mkdtemp()
checkpoints.save_checkpoint(folder, state, int(state.step))
restored = checkpoints.restore_checkpoint(folder, state)
assert evaluate(restored) == results

# %% [markdown]
# ## What to read next
#
# `my_project` contains a complete version of this program, with command-line flags, a progress bar
# and TensorBoard logs. The complete program can also resume an interrupted run exactly.
# `pip install -r requirements.txt` installs the packages that the program needs, and
# `python -m mnist.main` runs it. (In a clone of the repository, `make mnist` does both.) [Customizing
# a training loop](forking.md) shows how to change the program, and [modules](modules.md) and [the
# training loop](training.md) explain its parts.
