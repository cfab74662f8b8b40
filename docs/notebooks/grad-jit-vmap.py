"""Transformations for newcomers: grad, jit and vmap, on one small curve-fitting problem."""

# %% [markdown]
# # Transformations: grad, jit, vmap
#
# toile has three central tools. Each of them takes a function and returns a new function: `grad`
# returns the gradient of the function, `jit` returns a compiled version, and `vmap` returns a
# version that works on a whole batch. This page introduces the three tools one at a time on a
# single problem (fitting a curve to noisy measurements), and then combines them. You need to know
# Python and a little NumPy.
#
# ## The problem
#
# A sensor swings like a pendulum with friction. Its position at time `t` is `a·exp(-d·t)·cos(w·t)`.
# From 80 noisy measurements, three of which are wrong, we want to find the amplitude `a`, the
# damping `d` and the frequency `w`.

# %%
import numpy as np

import toile
import toile.numpy as jnp

rng = np.random.default_rng(0)
t = np.linspace(0, 6, 80).astype("float32")
y = (2.0 * np.exp(-0.4 * t) * np.cos(3.0 * t) + rng.normal(0, 0.05, t.shape)).astype("float32")
y[[10, 33, 60]] += [1.5, -1.2, 1.4]  # three failed measurements


def swing(params, t):
    return params["a"] * jnp.exp(-params["d"] * t) * jnp.cos(params["w"] * t)


def loss(params, t, y):
    return jnp.mean((swing(params, t) - y) ** 2)


guess = {"a": 1.0, "d": 0.1, "w": 2.7}
print(f"loss of the guess: {loss(guess, t, y):.3f}")

# %% [markdown]
# `swing` and `loss` are ordinary Python functions. `toile.numpy` provides NumPy's functions, and
# you can pass NumPy arrays to these functions directly.
#
# ## grad: which way is down?
#
# `toile.grad(loss)` is a function with the same arguments as `loss`. It returns the derivative with
# respect to the first argument. Here, the first argument is a dict, so the result is a dict with
# the same keys.

# %%
def rounded(numbers):
    return {name: round(float(number), 3) for name, number in numbers.items()}


slopes = toile.grad(loss)(guess, t, y)
rounded(slopes)

# %% [markdown]
# A derivative says how much the result changes when an argument changes a little. We can check the
# derivative with respect to `w` by changing `w` slightly ourselves:

# %%
small = 1e-3
above, below = ({**guess, "w": guess["w"] + s} for s in (small, -small))
print(f"by hand {(loss(above, t, y) - loss(below, t, y)) / (2 * small):.3f}, "
      f"by grad {slopes['w']:.3f}")

# %% [markdown]
# The slope with respect to `w` is negative, so the loss falls when `w` grows. Following the slopes
# downhill is *gradient descent*. `value_and_grad` returns the loss along with the slopes, and
# `toile.tree.map` applies a function to each number in a dict (or in any nesting of dicts, lists
# and tuples).

# %%
from toile.training.live import Plot


def descend(params, t, y, rate):
    value, slopes = toile.value_and_grad(loss)(params, t, y)
    return toile.tree.map(lambda p, s: p - rate * s, params, slopes), value


params, plot = guess, Plot(log=True)
for step in range(100):
    params, value = descend(params, t, y, 0.1)
    plot.add(step, loss=value)
print(rounded(params))
plot

# %% [markdown]
# The frequency is already close to 3.0; the amplitude and the damping need more steps. Here are
# other ways to use `grad`:
#
# - `toile.grad(f, argnums=1)` differentiates with respect to the second argument.
# - `toile.grad(f, has_aux=True)` is for functions that return `(loss, something_else)`.
# - A gradient is a function like any other, so it has a gradient too:

# %%
position = lambda t: swing({"a": 2.0, "d": 0.4, "w": 3.0}, t)
speed = toile.grad(position)
acceleration = toile.grad(speed)
print([f"{f(1.0):.3f}" for f in (position, speed, acceleration)])

# %% [markdown]
# ## jit: compile it
#
# Each step above ran many small operations, and Python started them one by one. `toile.jit` turns a
# function into one compiled program:

# %%
import time

fast = toile.jit(descend)


def seconds(function, repetitions=50):
    """Return the mean time of a call."""
    start = time.perf_counter()
    for _ in range(repetitions):
        params, value = function(guess, t, y, 0.1)
    value.block_until_ready()  # on a GPU, calls return before the work is done
    return (time.perf_counter() - start) / repetitions


fast(guess, t, y, 0.1)  # the first call compiles
plain, compiled = seconds(descend), seconds(fast)
print(f"plain {plain * 1e3:.2f} ms, compiled {compiled * 1e3:.3f} ms")

# %%
assert compiled < plain

# %% [markdown]
# How does `jit` find out which operations a Python function performs? In the first call, it passes
# *tracers* instead of arrays. A tracer has a shape and a dtype, but no numbers, and it records the
# operations that are applied to it. The recorded operations are compiled, and later calls run the
# compiled program without running your Python code. A `print` shows the difference:


# %%
@toile.jit
def noisy_square(x):
    print("tracing", x)
    return x * x


print(noisy_square(jnp.float32(3)), noisy_square(jnp.float32(4)))

# %% [markdown]
# The function printed only once in two calls. It is traced again when the shape or the dtype of an
# argument changes, and `why()` returns the reason for each trace:

# %%
noisy_square(jnp.arange(3.0))
noisy_square.why()

# %% [markdown]
# Because a tracer has no numbers, Python's `if` cannot test its value. Use the array function
# `jnp.where` instead:


# %%
@toile.jit
def positive_part(x):
    return x if x > 0 else 0.0


try:
    positive_part(-2.0)
except toile.errors.TracerBoolConversionError as error:
    print(str(error).split("\n")[0])

print(toile.jit(lambda x: jnp.where(x > 0, x, 0.0))(-2.0))

# %% [markdown]
# ## vmap: from one to many
#
# It is easier to write a function for one measurement than for eighty. `toile.vmap` turns a
# function for one measurement into a function for many measurements by adding an axis. For each
# argument, `in_axes` specifies the axis along which the measurements are stored, and `None` means
# that the argument is the same for all measurements.


# %%
def loss_of_one(params, t, y):
    return (swing(params, t) - y) ** 2


losses = toile.vmap(loss_of_one, in_axes=(None, 0, 0))(params, t, y)
losses.shape

# %% [markdown]
# `vmap` does not run a loop: each operation inside the function works on the whole axis at once.
#
# ## Combining transformations
#
# Transformations can be combined in any order. `vmap(grad(...))` computes a gradient *for each
# measurement*, which shows how strongly that measurement pulls on the parameters. The three failed
# measurements pull hardest.

# %%
slopes_of_each = toile.jit(toile.vmap(toile.grad(loss_of_one), in_axes=(None, 0, 0)))
each = slopes_of_each(params, t, y)
pull = sum(s**2 for s in each.values())
suspicious = sorted(np.argsort(pull)[-3:].tolist())
print("measurements that pull hardest:", suspicious)

# %%
assert suspicious == [10, 33, 60]

# %% [markdown]
# We leave these three measurements out and fit the curve again, this time from many initial guesses
# at once. The fit from one guess is a loop, and `lax.fori_loop` makes this loop part of the
# compiled program. `vmap` runs the fit for 40 guesses of the frequency at the same time.

# %%
from toile import lax

kept = np.setdiff1d(np.arange(len(t)), suspicious)


def fit(w):
    start = {"a": 1.0, "d": 0.1, "w": w}
    body = lambda _, params: descend(params, t[kept], y[kept], 0.1)[0]
    params = lax.fori_loop(0, 300, body, start)
    return params, loss(params, t[kept], y[kept])


guesses = jnp.linspace(0.5, 6.0, 40)
fits, final = toile.jit(toile.vmap(fit))(guesses)

plot = Plot()
for w, value in zip(guesses, final):
    plot.write_scalars(w, {"final loss by first guess of w": value})
plot

# %%
best = final.argmin()
rounded({name: p[best] for name, p in fits.items()})

# %%
assert abs(fits["w"][best] - 3.0) < 0.05 and abs(fits["a"][best] - 2.0) < 0.1

# %% [markdown]
# Guesses near 3 lead to the solution, and the others end in poor local minima. It is therefore
# worthwhile to try many guesses.
#
# ## What to read next
#
# | to | use |
# |---|---|
# | differentiate | `grad`, `value_and_grad`; `jacfwd`, `jacrev`, `hessian` for whole matrices |
# | compile | `jit` |
# | add an axis | `vmap` |
# | loop inside a compiled function | `lax.fori_loop`, `lax.scan`, `lax.while_loop` |
#
# [A model of your own](own-model.md) uses these tools to train a network.
# [Transformations](transformations.md) is the full guide, and [common pitfalls](sharp-bits.md)
# lists what can go wrong.
