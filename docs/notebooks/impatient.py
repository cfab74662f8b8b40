"""toile for the impatient: arrays, derivatives, jit, maps, random keys, and what surprises people."""

# %% [markdown]
# # toile for the impatient
#
# Ten minutes, from NumPy to compiled training on several devices. Whoever knows JAX can go straight to
# [from Flax to toile](from-flax.md): everything here has JAX's names.

# %% [markdown]
# ## Arrays
#
# `toile.numpy` is NumPy's interface on arrays of toile. By default numbers are 32 bits wide.

# %%
import numpy as np
import toile
import toile.numpy as jnp

x = jnp.arange(6).reshape(2, 3)
x

# %%
y = jnp.sin(x) @ jnp.ones((3, 2))
print(y.shape, y.dtype)
np.asarray(y)  # to NumPy; NumPy arrays go into every function as they are

# %% [markdown]
# Arrays cannot be changed. `at` gives a changed copy; inside `jit` the compiler changes in place where
# nobody needs the old one.

# %%
try:
    x[0, 0] = 7
except TypeError as error:
    print(error)

x.at[0, 0].set(7).at[1].add(10)

# %% [markdown]
# Python numbers are *weakly typed*: they take the dtype of the array they meet.

# %%
h = jnp.ones(3, jnp.bfloat16)
(h * 2.5).dtype, (h * jnp.float32(2.5)).dtype

# %% [markdown]
# ## Derivatives
#
# `grad` makes of a function its gradient with respect to the first argument; that may be any tree of
# dicts, lists, tuples and dataclasses with arrays as leaves.


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
value, slopes = toile.value_and_grad(loss)(params, x, y)  # both, for the price of the gradient
print(f"loss {value:.3f}, slope in b {slopes['b']:.3f}")

# %% [markdown]
# Derivatives are functions like others, and have derivatives. `jvp` pushes a direction forward, `vjp`
# pulls a cotangent back; `jacfwd`, `jacrev` and `hessian` are made of them.

# %%
cube = lambda t: t**3
print([float(f(2.0)) for f in (cube, toile.grad(cube), toile.grad(toile.grad(cube)))])
print(toile.hessian(lambda v: jnp.prod(v))(jnp.array([1.0, 2.0, 3.0])))

# %% [markdown]
# ## jit
#
# `jit` runs the function once on stand-ins for arrays (*tracers*), which know shape and dtype only, keeps
# what was done to them as a program, and compiles that. Later calls with arguments of the same shapes
# run the machine code and no Python.


# %%
@toile.jit
def step(params, x, y, rate):
    print("tracing")  # Python: runs when the function is traced, not when it is called
    slopes = toile.grad(loss)(params, x, y)
    return toile.tree.map(lambda p, g: p - rate * g, params, slopes)


for _ in range(200):
    params = step(params, x, y, 0.3)
print(f"loss {loss(params, x, y):.3f}")

# %% [markdown]
# A call with other shapes, dtypes or structure is traced anew, and `why()` says what was different each time:

# %%
step(params, x[:32], y[:32], 0.3)
step.why()

# %% [markdown]
# `toile.explain` shows what was compiled: which operations share a kernel, from which lines they come, and what
# they read and write. [Performance](performance.md) says how to read it.

# %%
print(toile.explain(lambda p: toile.grad(loss)(p, x, y))(params))

# %% [markdown]
# ## vmap
#
# Write a function for one example, and map it over an axis; `in_axes` says which arguments have one. The
# loop disappears: a matrix-vector product under `vmap` is a matrix product.


# %%
def one(params, x, y):
    return loss(params, x[None], y[None])


per_example = toile.vmap(toile.grad(one), in_axes=(None, 0, 0))
toile.tree.map(jnp.shape, per_example(params, x, y))

# %% [markdown]
# ## pmap, and several devices
#
# `pmap` maps over devices, one slice for each. A CPU can pretend to be several devices, which is a
# good way to write code for a machine that has them. Collectives such as `psum` meet the others.

# %%
toile.config.update("jax_num_cpu_devices", 4)  # or TOILE_CPU_DEVICES=4 in the environment


def parallel_step(params, x, y):
    slopes = toile.lax.pmean(toile.grad(loss)(params, x, y), "devices")
    return toile.tree.map(lambda p, g: p - 0.3 * g, params, slopes)


mapped = toile.pmap(parallel_step, axis_name="devices", in_axes=(None, 0, 0), out_axes=None,
                    devices=toile.devices("cpu"))
after = mapped(params, x.reshape(4, 16, 3), y.reshape(4, 16))
np.testing.assert_allclose(after["w"], step(params, x, y, 0.3)["w"], rtol=1e-5)
after["w"]

# %% [markdown]
# `training.replicated` makes such a step of one that was written for one device: see [many
# devices](parallel.md).

# %% [markdown]
# ## Random keys
#
# There is no hidden generator: random functions take a *key*, and the same key gives the same numbers, under
# every transform and on every device. Split a key where you need several, and use each one once.

# %%
from toile import random

key = random.key(0)
key, for_weights, for_noise = random.split(key, 3)
random.normal(for_weights, (3,)), random.normal(for_noise, (3,))

# %%
random.normal(random.fold_in(key, 17))  # a key for step 17, without carrying one through the loop

# %% [markdown]
# ## Modules and a training loop
#
# `toile.linen` is Flax's: a module describes a network, its parameters are a tree of arrays outside of
# it. `toile.optim` is Optax's.

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
    value, slopes = toile.value_and_grad(mean_square)(params)
    updates, state = tx.update(slopes, state)
    return optim.apply_updates(params, updates), state, value


for _ in range(200):
    params, state, value = train_step(params, state, x, y)
print(f"loss {value:.4f}")
toile.tree.map(jnp.shape, params)

# %% [markdown]
# ## The sharp bits
#
# **Side effects happen while tracing.** `step` above printed once for each tracing, not two hundred times. To print
# in every call use `toile.debug.print`. A tracer that is kept (in a list, in a global) is an error when used later:

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
# **A branch on a traced value has no value to branch on.** Use `jnp.where` or `lax.cond`, or make the argument
# static, which compiles a program for each value:


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
# **Shapes are static.** A result whose shape depends on values cannot be traced; say the size, or mask:

# %%
v = jnp.array([3, 0, 5, 7])
toile.jit(lambda v: jnp.nonzero(v, size=4, fill_value=-1)[0])(v)

# %% [markdown]
# **Out-of-range indices.** In an array of indices they are clamped when read and dropped when written, since a
# compiled program cannot raise. A Python integer that is out of range is an error.

# %%
print(v[jnp.array([0, 99])], v.at[jnp.array([0, 99])].set(1))

# %% [markdown]
# **64 bits have to be asked for**: `toile.config.update("jax_enable_x64", True)`, or for a while:

# %%
with toile.enable_x64():
    print(jnp.linspace(0, 1, 3).dtype)

# %% [markdown]
# **NaN in a gradient from a branch that was not taken.** `where` computes both of its branches, and the derivative
# of the one that was not chosen is multiplied by 0, which NaN survives. Guard the operand, not the result:

# %%
bad = lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0)
good = lambda x: jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1.0)), 0.0)
toile.grad(bad)(0.0), toile.grad(good)(0.0)

# %% [markdown]
# **Time the second call, and wait for it.** The first call compiles; on a GPU a call returns before the work is
# done. `block_until_ready()` waits.
#
# ## Where next
#
# [Getting started: MNIST](getting-started.md) trains a real network; the guides go through [modules](modules.md),
# [transformations](transformations.md), [training](training.md) and [debugging](debugging.md); [differences from
# JAX](compat.md) has the rest of the sharp bits.
