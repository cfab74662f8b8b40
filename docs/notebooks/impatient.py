"""toile for the impatient: arrays, derivatives, jit, vmap, pmap, random keys, and common pitfalls."""

# %% [markdown]
# # toile for the impatient
#
# This page takes about ten minutes to read. It introduces arrays, derivatives, compilation,
# batching, several devices, random keys, modules and training. If you know JAX, you can skip to
# [from Flax to toile](from-flax.md): almost all names on this page are the same as in JAX.

# %% [markdown]
# ## Arrays
#
# `toile.numpy` provides NumPy's functions for toile's arrays. By default, integers and floats have
# 32 bits.

# %%
import numpy as np
import toile
import toile.numpy as jnp

x = jnp.arange(6).reshape(2, 3)
x

# %%
y = jnp.sin(x) @ jnp.ones((3, 2))
print(y.shape, y.dtype)
np.asarray(y)  # converts to NumPy; toile's functions also accept NumPy arrays

# %% [markdown]
# Arrays are immutable. Methods such as `x.at[...].set` return a changed copy. Inside `jit`, the
# compiler avoids the copy if the old array is not used again.

# %%
try:
    x[0, 0] = 7
except TypeError as error:
    print(error)

x.at[0, 0].set(7).at[1].add(10)

# %% [markdown]
# Python numbers are *weakly typed*: in an operation with an array of floats, they are converted to
# the array's dtype.

# %%
h = jnp.ones(3, jnp.bfloat16)
(h * 2.5).dtype, (h * jnp.float32(2.5)).dtype

# %% [markdown]
# ## Derivatives
#
# `grad` takes a function and returns a new function, which computes the gradient of the original
# function with respect to its first argument. That argument may be an array or a tree: nested
# dicts, lists, tuples and dataclasses that contain arrays.


# %%
def loss(params, x, y):
    prediction = jnp.tanh(x @ params["w"]) + params["b"]
    return jnp.mean((prediction - y) ** 2)


rng = np.random.default_rng(0)
x = rng.normal(size=(64, 3)).astype("float32")
y = np.sin(x.sum(axis=1))
params = {"w": jnp.zeros(3), "b": 0.0}
toile.grad(loss)(params, x, y)

# %%
value, grads = toile.value_and_grad(loss)(params, x, y)  # costs no more than the gradient alone
print(f"loss {value:.3f}, derivative with respect to b {grads['b']:.3f}")

# %% [markdown]
# A gradient is an ordinary function, so it can be differentiated again. `jvp` computes derivatives
# in forward mode, and `vjp` in reverse mode; `jacfwd`, `jacrev` and `hessian` are built on these
# two functions.

# %%
cube = lambda t: t**3
print([float(f(2.0)) for f in (cube, toile.grad(cube), toile.grad(toile.grad(cube)))])
print(toile.hessian(lambda v: jnp.prod(v))(jnp.array([1.0, 2.0, 3.0])))

# %% [markdown]
# ## jit
#
# `jit` compiles a function. It *traces* the function once: it runs the Python code on placeholders
# (*tracers*), which have a shape and a dtype but no values, and records the operations as a
# program. Then it compiles the program. Later calls with arguments of the same shapes and dtypes
# run the machine code and skip the Python code.


# %%
@toile.jit
def step(params, x, y, rate):
    print("tracing")  # runs while the function is traced, not in every call
    grads = toile.grad(loss)(params, x, y)
    return toile.tree.map(lambda p, g: p - rate * g, params, grads)


for _ in range(200):
    params = step(params, x, y, 0.3)
print(f"loss {loss(params, x, y):.3f}")

# %% [markdown]
# If you call the function with different shapes, dtypes or tree structures, it is traced again.
# `why()` lists the differences that caused each new trace:

# %%
step(params, x[:32], y[:32], 0.3)
step.why()

# %% [markdown]
# `toile.explain` shows the compiled kernels: the operations in each kernel, the source lines that
# these operations come from, and the arrays that the kernel reads and writes.
# [Performance](performance.md) explains how to read the output.

# %%
print(toile.explain(lambda p: toile.grad(loss)(p, x, y))(params))

# %% [markdown]
# ## vmap
#
# `vmap` turns a function for one example into a function for a batch. `in_axes` specifies the batch
# axis of each argument; None means that the argument is the same for all examples. There is no
# loop: under `vmap`, a matrix-vector product becomes a matrix product.


# %%
def one(params, x, y):
    return loss(params, x[None], y[None])


per_example = toile.vmap(toile.grad(one), in_axes=(None, 0, 0))
toile.tree.map(jnp.shape, per_example(params, x, y))

# %% [markdown]
# ## pmap and several devices
#
# `pmap` maps a function over devices: each device gets one slice of each mapped argument.
# Collective operations such as `pmean` combine values from all devices. The CPU can simulate
# several devices, so you can develop and test such programs on any machine.

# %%
toile.config.update("jax_num_cpu_devices", 4)  # or TOILE_CPU_DEVICES=4 in the environment


def parallel_step(params, x, y):
    grads = toile.lax.pmean(toile.grad(loss)(params, x, y), "devices")
    return toile.tree.map(lambda p, g: p - 0.3 * g, params, grads)


mapped = toile.pmap(parallel_step, axis_name="devices", in_axes=(None, 0, 0), out_axes=None,
                    devices=toile.devices("cpu"))
after = mapped(params, x.reshape(4, 16, 3), y.reshape(4, 16))
np.testing.assert_allclose(after["w"], step(params, x, y, 0.3)["w"], rtol=1e-5)
after["w"]

# %% [markdown]
# `training.replicated` converts a training step for one device into a step for all devices: see
# [multiple devices](parallel.md).

# %% [markdown]
# ## Random keys
#
# There is no global random state. Random functions take a *key*, and the same key produces the same
# numbers under every transformation and on every device. Use each key only once; `split` derives
# new keys from an existing key.

# %%
from toile import random

key = random.key(0)
key, for_weights, for_noise = random.split(key, 3)
random.normal(for_weights, (3,)), random.normal(for_noise, (3,))

# %%
random.normal(random.fold_in(key, 17))  # a key for step 17, made from the same `key` in every step

# %% [markdown]
# ## Modules and a training loop
#
# `toile.linen` has the same interface as Flax's `linen`: a module describes a network, and the
# network's parameters are a separate tree of arrays. `toile.optim` has the same interface as Optax.

# %%
from toile import linen as nn
from toile import optim


class Net(nn.Module):
    width: int = 32

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(self.width)(x))
        return nn.Dense(1)(x)[..., 0]


net, tx = Net(), optim.adam(1e-2)
params = net.init(random.key(1), x)
state = tx.init(params)


@toile.jit
def train_step(params, state, x, y):
    mean_square = lambda p: jnp.mean((net.apply(p, x) - y) ** 2)
    value, grads = toile.value_and_grad(mean_square)(params)
    updates, state = tx.update(grads, state)
    return optim.apply_updates(params, updates), state, value


for _ in range(200):
    params, state, value = train_step(params, state, x, y)
print(f"loss {value:.4f}")
toile.tree.map(jnp.shape, params)

# %% [markdown]
# ## Common pitfalls
#
# **Side effects happen during tracing.** `step` above printed once for each trace, not in each
# call. To print in every call, use `toile.debug.print`. Do not store a tracer in a list or a global
# variable: using it after tracing raises an error.

# %%
kept = []


@toile.jit
def leaking(x):
    kept.append(x * 2)
    toile.debug.print("called with {}", x)
    return x


leaking(1.0)
leaking(2.0)
try:
    kept[0] + 1
except toile.errors.UnexpectedTracerError as error:
    print(str(error).split("\n")[0])

# %% [markdown]
# **Python's `if` does not work on traced values**, because a tracer has no value. Use `jnp.where`
# or `lax.cond`, or make the argument static. A function with a static argument is traced separately
# for each value of that argument.


# %%
@toile.jit
def sign(x):
    return 1 if x > 0 else -1


try:
    sign(3.0)
except toile.errors.TracerBoolConversionError as error:
    print(str(error).split("\n")[0])

toile.jit(lambda x: jnp.where(x > 0, 1, -1))(3.0)

# %% [markdown]
# **Shapes are static.** A function cannot be traced if the shape of its result depends on the
# values of its arguments. Pass a fixed size, or use a mask:

# %%
v = jnp.array([3, 0, 5, 7])
toile.jit(lambda v: jnp.nonzero(v, size=4, fill_value=-1)[0])(v)

# %% [markdown]
# **Out-of-range indices cause a warning, not an error**, if they are in an array. As in JAX,
# reading at an invalid index uses the nearest valid index instead, and writing to an invalid index
# does nothing. Inside `with toile.checks("index"):`, an out-of-range index raises an error. Reading
# `v[i]` raises an error even without these checks if `i` is a Python integer that is out of range.

# %%
print(v[jnp.array([0, 99])], v.at[jnp.array([0, 99])].set(1))

# %% [markdown]
# **64-bit numbers are disabled by default.** Call `toile.config.update("jax_enable_x64", True)` to
# enable them for the whole program, or enable them in a `with` block:

# %%
with toile.enable_x64():
    print(jnp.linspace(0, 1, 3).dtype)

# %% [markdown]
# **An unused branch can make a gradient NaN.** With `where`, both branches are computed, and the
# derivative of the unused branch is multiplied by 0. If that derivative is infinite or NaN, the
# product is NaN. Replace the input of the operation too, not only its result:

# %%
bad = lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0)
good = lambda x: jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1.0)), 0.0)
toile.grad(bad)(0.0), toile.grad(good)(0.0)

# %% [markdown]
# **Measure the second call, and wait for its result.** The first call includes compilation, and on
# a GPU, a call returns before the work is done. `block_until_ready()` waits for the result.
#
# The page [Common pitfalls](sharp-bits.md) describes these and other pitfalls.
#
# ## What to read next
#
# [Getting started: MNIST](getting-started.md) trains a network on real data. The guides cover
# [modules](modules.md), [transformations](transformations.md), [training](training.md) and
# [debugging](debugging.md). [Differences from JAX](compat.md) lists the cases in which toile and
# JAX behave differently.
