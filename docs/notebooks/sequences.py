"""Sequences: scan, a recurrent network that forecasts waves, sequences of different lengths."""

# %% [markdown]
# # Sequences: recurrent networks with scan
#
# Text, music and measurements over time are sequences: their elements are in a fixed order, and
# each element depends on the elements before it. A recurrent network reads a sequence step by step
# and keeps a summary of what it has read. This page explains `scan`, the loop behind such networks,
# and then trains a network that forecasts waves. The waves are generated, so everything runs in a
# few seconds.
#
# ## A loop that carries a value
#
# A moving average is a small recurrent computation. It carries one number from step to step; each
# step updates this number and returns it:

# %%
import numpy as np

import toile
import toile.numpy as jnp
from toile import lax

rng = np.random.default_rng(0)
signal = (np.sin(np.linspace(0, 9, 200)) + rng.normal(0, 0.3, 200)).astype("float32")


def step(average, x):
    average = 0.9 * average + 0.1 * x
    return average, average  # the value for the next step, and the output of this step


def with_python(xs):
    average, averages = 0.0, []
    for x in xs:
        average, returned = step(average, x)
        averages.append(returned)
    return jnp.stack(averages)


def with_scan(xs):
    last, averages = lax.scan(step, 0.0, xs)
    return averages


np.testing.assert_allclose(with_python(signal), with_scan(signal), rtol=1e-5)

# %% [markdown]
# `lax.scan(step, start, xs)` calls `step` for each element of `xs`, passes the carried value from
# each step to the next, and stacks the outputs of the steps. Why not use a Python loop? Under
# `jit`, a Python loop is *unrolled*: 200 steps become 200 copies of the step. With `scan`, the
# program contains the step only once, inside a single operation, for sequences of any length:

# %%
for function in (with_python, with_scan):
    program = toile.make_jaxpr(function)(signal)
    print(f"{function.__name__}: program of length {len(program.eqns)}")

# %%
from toile.training.live import Plot

plot = Plot({"moving average": ["signal", "average"]}, size=(560, 240))
for i, (x, average) in enumerate(zip(signal, toile.jit(with_scan)(signal))):
    plot.add(i, signal=x, average=average)
plot

# %% [markdown]
# A scan can be differentiated and mapped like any other function. Here, we replace the factor 0.9
# with an argument, use `vmap` to compute the error for twenty factors at once, and find the factor
# for which the moving average is closest to the noise-free signal:


# %%
def error(factor):
    def step(average, x):
        average = factor * average + (1 - factor) * x
        return average, average

    _, averages = lax.scan(step, 0.0, signal)
    return jnp.mean((averages - jnp.sin(jnp.linspace(0, 9, 200))) ** 2)


factors = jnp.linspace(0.0, 0.95, 20)
best = factors[toile.jit(toile.vmap(error))(factors).argmin()]
print(f"best factor {best:.2f}, slope of the error there {toile.grad(error)(best):.3f}")

# %% [markdown]
# ## Data: waves of different lengths
#
# Each example is a wave of 30 to 60 values with its own frequency, phase and amplitude. All rows of
# an array have the same length, so zeros are appended to shorter waves (*padding*), and `length`
# contains the number of real values in each wave.


# %%
def waves(count, seed, longest=60):
    rng = np.random.default_rng(seed)
    frequency, phase, size = (rng.uniform(*r, (count, 1)) for r in ((0.2, 0.6), (0, 6.3), (0.5, 1.5)))
    values = size * np.sin(frequency * np.arange(longest) + phase)
    length = rng.integers(30, longest + 1, count)
    padded = np.where(np.arange(longest) < length[:, None], values, 0)
    return {"values": padded.astype("float32"), "length": length.astype("int32")}


train, held_out = waves(1000, seed=1), waves(200, seed=2)
print({name: a.shape for name, a in train.items()}, "first lengths:", train["length"][:5])

# %% [markdown]
# ## A recurrent network
#
# A *cell* is the step of a recurrent network: it takes the carried value and one element, and
# returns a new carried value and an output. `nn.GRUCell` is a common cell; it carries a vector.
# `nn.RNN` uses `scan` to run a cell over a sequence. For each value of the wave, our network
# predicts the next value.
#
# The layers are defined in `setup`, so that two methods can use them: `__call__` reads whole waves
# for training, and `one_step` reads a single value. Later, we use `one_step` to continue a wave.

# %%
from toile import linen as nn
from toile import optim, random


class Forecaster(nn.Module):
    width: int = 32

    def setup(self):
        self.cell = nn.GRUCell(self.width)
        self.rnn = nn.RNN(self.cell)
        self.head = nn.Dense(1)

    def __call__(self, values):
        hidden = self.rnn(values[..., None])  # [waves, time, width]
        return self.head(hidden)[..., 0]

    def one_step(self, carry, value):
        carry, hidden = self.cell(carry, value[..., None])
        return carry, self.head(hidden)[..., 0]


model = Forecaster()
params = model.init(random.key(0), train["values"][:1])
toile.tree.map(jnp.shape, params["params"]["head"])

# %% [markdown]
# ## A loss that ignores padding
#
# The prediction at time 0 is compared with the value at time 1, and so on. A *mask* is 1 where the
# next value is real and 0 where it is padding; the mean is taken over the real values.


# %%
def loss(params, batch):
    values, length = batch["values"], batch["length"]
    predicted = model.apply(params, values[:, :-1])
    mask = jnp.arange(1, values.shape[1]) < length[:, None]
    squares = (predicted - values[:, 1:]) ** 2
    return jnp.sum(squares * mask) / jnp.sum(mask)


tx = optim.chain(optim.clip_by_global_norm(1.0), optim.adam(1e-2))


@toile.jit
def train_step(params, state, batch):
    value, slopes = toile.value_and_grad(loss)(params, batch)
    updates, state = tx.update(slopes, state)
    return optim.apply_updates(params, updates), state, value


# %% [markdown]
# In a recurrent network, gradients pass backward through every step of the sequence and can become
# very large on the way. `clip_by_global_norm` scales down gradients that are too large.

# %%
from toile.training.loader import Loader

state, evaluate, plot, number = tx.init(params), toile.jit(loss), Plot(log=True), 0
for epoch in range(15):
    for batch in Loader(train, batch_size=50, key=random.key(epoch)):
        params, state, value = train_step(params, state, batch)
        number += 1
        if number % 5 == 0:
            plot.add(number, train_loss=value)
    plot.add(number, eval_loss=evaluate(params, held_out))
plot

# %%
reached = float(evaluate(params, held_out))
print(f"error of the next value: {reached ** 0.5:.3f}")
assert reached < 0.01

# %% [markdown]
# ## Continue a wave
#
# To forecast many values, the network first reads the beginning of a wave and then its own
# predictions: each prediction becomes the next input. One scan reads the beginning, and a second
# scan computes the predictions. The second scan carries the cell's state and the last prediction.
# It has no elements to read, so `xs` is None, and `length` sets the number of steps.


# %%
@toile.jit
def forecast(params, beginning):
    """Return thirty values that continue the beginning of a wave."""
    def one(carry, value):
        return model.apply(params, carry, value, method="one_step")

    def follow(carry, _):
        hidden, value = carry
        hidden, following = one(hidden, value)
        return (hidden, following), following

    start = jnp.zeros(model.width)
    hidden, predictions = lax.scan(one, start, beginning)  # reads the beginning
    _, values = lax.scan(follow, (hidden, predictions[-1]), None, length=30 - 1)  # continues it
    return jnp.concatenate([predictions[-1:], values])


longest = held_out["values"][held_out["length"] == 60]
continued = toile.vmap(forecast, in_axes=(None, 0))(params, longest[:, :30])
continued.shape

# %%
plot = Plot({"a held-out wave and its forecast": ["wave", "forecast"]}, size=(560, 240))
for i, value in enumerate(longest[0]):
    plot.add(i, wave=value)
    if i >= 30:
        plot.add(i, forecast=continued[0, i - 30])
plot

# %% [markdown]
# How good is this forecast? We compare it with the simplest forecast, which repeats the last value
# that was read:

# %%
true = longest[:, 30:]
errors = {"network": jnp.abs(continued - true).mean(),
          "last value repeated": np.abs(longest[:, 29:30] - true).mean()}
print({name: round(float(e), 3) for name, e in errors.items()})

# %%
assert errors["network"] < errors["last value repeated"] / 2

# %% [markdown]
# ## What to read next
#
# - `nn.RNN(..., return_carry=True)` with `seq_lengths=` also returns the carried value after the
#   last real element of each sequence, which a sequence classifier needs. `nn.Bidirectional` reads
#   sequences in both directions.
# - [Transformations](transformations.md#loops-and-branches) describes other loops, such as
#   `while_loop` and `fori_loop`.
# - The examples [seq2seq](examples/seq2seq/README.md) and [lm1b](examples/lm1b/README.md) train
#   larger networks on text.
