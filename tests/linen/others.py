"""Rows for pooling, Dropout, Sequential, BatchApply and activations."""

from collections.abc import Callable

import ml_dtypes
import numpy as np

from tests.linen.oracle import layer, normal

BF16 = ml_dtypes.bfloat16


def function(lib, f):
    """A module without variables that calls a function."""

    class Function(lib.nn.Module):
        f: Callable

        @lib.nn.compact
        def __call__(self, *args):
            return self.f(*args)

    return Function(f)


# Pooling.

# Sums of a few of these are exact in bfloat16, so the order of a sum does not show.
EIGHTHS = (np.round(8 * normal(2, 7, 3)) / 8).astype(BF16)

layer("max pool", lambda lib: function(lib, lambda x: lib.nn.max_pool(x, (2, 2), (2, 2))),
      normal(2, 6, 5, 3))
layer("max pool same", lambda lib: function(
    lib, lambda x: lib.nn.max_pool(x, (3, 3), strides=(2, 2), padding="SAME")), normal(2, 7, 5, 3))
layer("max pool pairs", lambda lib: function(
    lib, lambda x: lib.nn.max_pool(x, (3,), padding=((2, 1),))), normal(2, 7, 3))
layer("max pool bf16", lambda lib: function(lib, lambda x: lib.nn.max_pool(x, (3,))),
      normal(2, 7, 3).astype(BF16))
layer("max pool without batch", lambda lib: function(
    lib, lambda x: lib.nn.max_pool(x, (2, 3), (1, 2))), normal(5, 6, 2))
layer("max pool two batch axes", lambda lib: function(lib, lambda x: lib.nn.max_pool(x, (2,))),
      normal(2, 3, 5, 2))
layer("min pool", lambda lib: function(
    lib, lambda x: lib.nn.pooling.min_pool(x, (2, 2), (2, 1))), normal(2, 6, 5, 3))
layer("min pool same", lambda lib: function(
    lib, lambda x: lib.nn.pooling.min_pool(x, (3,), padding="SAME")), normal(2, 7, 3))
layer("min pool bf16", lambda lib: function(
    lib, lambda x: lib.nn.pooling.min_pool(x, (3,), padding=[(1, 0)])),
    normal(2, 7, 3).astype(BF16))
layer("avg pool", lambda lib: function(lib, lambda x: lib.nn.avg_pool(x, (2, 2), (2, 2))),
      normal(2, 6, 5, 3))
layer("avg pool same", lambda lib: function(
    lib, lambda x: lib.nn.avg_pool(x, (3, 2), padding="SAME")), normal(2, 6, 5, 3))
layer("avg pool same counted", lambda lib: function(
    lib, lambda x: lib.nn.avg_pool(x, (3, 2), padding="SAME", count_include_pad=False)),
    normal(2, 6, 5, 3))
layer("avg pool pairs counted", lambda lib: function(
    lib, lambda x: lib.nn.avg_pool(x, (3,), (2,), ((1, 2),), count_include_pad=False)),
    normal(6, 3))
layer("avg pool bf16", lambda lib: function(lib, lambda x: lib.nn.avg_pool(x, (3,))),
      normal(2, 7, 3).astype(BF16))
layer("avg pool bf16 counted", lambda lib: function(
    lib, lambda x: lib.nn.avg_pool(x, (3,), padding="SAME", count_include_pad=False)),
    EIGHTHS)
layer("sum pool", lambda lib: function(
    lib, lambda x: lib.nn.pool(x, 0.0, lib.lax.add, (2, 2), (1, 2), "SAME")), normal(2, 4, 5, 3))
layer("avg pool two batch axes", lambda lib: function(
    lib, lambda x: lib.nn.avg_pool(x, (2,), (2,), "SAME", count_include_pad=False)),
    normal(2, 3, 5, 2))

# Dropout.

DROPOUT = ("dropout",)
layer("dropout", lambda lib: lib.nn.Dropout(0.5, deterministic=False), normal(5, 7), rngs=DROPOUT,
      steps=2)
layer("dropout at the call", lambda lib: lib.nn.Dropout(0.2), normal(3, 4),
      kwargs={"deterministic": False}, rngs=DROPOUT)
layer("dropout broadcast", lambda lib: lib.nn.Dropout(0.4, (1, -1), False), normal(5, 3, 4, 2),
      rngs=DROPOUT)
layer("dropout bf16", lambda lib: lib.nn.Dropout(0.3, deterministic=False),
      normal(5, 7).astype(BF16), rngs=DROPOUT)
layer("dropout deterministic", lambda lib: lib.nn.Dropout(0.3, deterministic=True), normal(3, 4))
layer("dropout nothing", lambda lib: lib.nn.Dropout(0.0, deterministic=False), normal(3, 4))
layer("dropout everything", lambda lib: lib.nn.Dropout(1.0, deterministic=False), normal(3, 4))
layer("dropout stream", lambda lib: lib.nn.Dropout(0.5, rng_collection="noise"), normal(3, 4),
      kwargs={"deterministic": False}, rngs=("noise",))
layer("dropout in a chain", lambda lib: lib.nn.Sequential([
    lib.nn.Dense(6), lib.nn.Dropout(0.5, deterministic=False), lib.nn.Dense(4),
    lib.nn.Dropout(0.25, deterministic=False)]), normal(3, 4), rngs=DROPOUT, steps=2)


def one_instance_twice(lib):
    """The second call of one Dropout draws new numbers."""

    class Twice(lib.nn.Module):
        def setup(self):
            self.drop = lib.nn.Dropout(0.5)

        def __call__(self, x):
            return self.drop(x, deterministic=False), self.drop(x, deterministic=False)

    return Twice()


layer("dropout twice", one_instance_twice, normal(4, 5), rngs=DROPOUT)


def dropout_with_key(lib):
    """The key of a call wins over the stream."""

    class Keyed(lib.nn.Module):
        @lib.nn.compact
        def __call__(self, x):
            return lib.nn.Dropout(0.5)(x, False, self.make_rng("other"))

    return Keyed()


layer("dropout with a key", dropout_with_key, normal(4, 5), rngs=("other",))

# Sequential.


def splits(lib):
    """A layer that returns a tuple, one that takes two arguments and returns a dict, one of it."""

    class Split(lib.nn.Module):
        @lib.nn.compact
        def __call__(self, x):
            return lib.nn.Dense(4)(x), lib.nn.Dense(4, use_bias=False)(x)

    class Named(lib.nn.Module):
        @lib.nn.compact
        def __call__(self, a, b):
            return {"left": lib.nn.tanh(a), "right": b}

    class Join(lib.nn.Module):
        @lib.nn.compact
        def __call__(self, right, left):
            return lib.nn.Dense(2)(left * right)

    return lib.nn.Sequential([Split(), Named(), Join()])


layer("sequential of tuples and dicts", splits, normal(3, 2))
layer("sequential", lambda lib: lib.nn.Sequential(
    [lib.nn.Dense(4), lib.nn.relu, lib.nn.Dense(2), lib.nn.log_softmax]), normal(3, 2))
layer("sequential with shapes", lambda lib: lib.nn.Sequential(
    (lambda x: lib.nn.Dense(2 * x.shape[-1])(x), lib.nn.gelu, lib.nn.Dense(3))), normal(3, 2))
layer("sequential bf16", lambda lib: lib.nn.Sequential(
    [lib.nn.Dense(4, param_dtype=lib.jnp.bfloat16), lib.nn.tanh,
     lib.nn.Dense(3, param_dtype=lib.jnp.bfloat16)]), normal(3, 2).astype(BF16))
layer("sequential of sequentials", lambda lib: lib.nn.Sequential(
    [lib.nn.Sequential([lib.nn.Dense(4), lib.nn.PReLU()]), lib.nn.Sequential([lib.nn.Dense(1)])]),
    normal(3, 2))


def shared_layer(lib):
    """One layer twice in the list has one set of parameters."""
    dense = lib.nn.Dense(3)
    return lib.nn.Sequential([dense, lib.nn.silu, dense])


layer("sequential with a shared layer", shared_layer, normal(2, 3))

# BatchApply.


def batch_applied(lib):
    """A layer over (time, batch) as one axis; the bias has too few axes to be merged."""

    class Applied(lib.nn.Module):
        num_dims: int = 2

        @lib.nn.compact
        def __call__(self, x, shift):
            dense = lib.nn.Dense(4)

            def f(x, shift, scale):
                y = dense(x) + shift
                return {"y": y, "scaled": scale * y.sum(-1)}

            return lib.nn.BatchApply(f, self.num_dims)(x, shift, scale=2.0)

    return Applied


layer("batch apply", lambda lib: batch_applied(lib)(), normal(2, 3, 5), normal(4), vmap=False)
layer("batch apply three", lambda lib: batch_applied(lib)(3), normal(2, 3, 2, 5), normal(4),
      vmap=False)
layer("batch apply bf16", lambda lib: batch_applied(lib)(1), normal(2, 5).astype(BF16),
      normal(1).astype(BF16), vmap=False)

# Activations.

NAMES = (
    "celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh leaky_relu log_sigmoid "
    "log_softmax logsumexp normalize relu relu6 selu sigmoid silu soft_sign softmax softplus "
    "standardize swish tanh"
).split()


def activations(lib):
    """All of them, by name."""
    return function(lib, lambda x: {name: getattr(lib.nn, name)(x) for name in NAMES})


layer("activations", activations, 2 * normal(5, 8), vmap=False)
layer("activations bf16", activations, 2 * normal(5, 8).astype(BF16), vmap=False, grad=False)
layer("one hot", lambda lib: function(lib, lambda x: lib.nn.one_hot(x, 4)),
      np.array([0, 3, 4, -1], np.int32))
layer("prelu", lambda lib: lib.nn.PReLU(), normal(3, 4))
# The gradient of the slope is a sum in bfloat16: its last bit depends on the order.
layer("prelu bf16", lambda lib: lib.nn.PReLU(negative_slope_init=0.3), normal(3, 4).astype(BF16),
      rtol=8e-3)
layer("prelu bf16 parameter", lambda lib: lib.nn.PReLU(param_dtype=lib.jnp.bfloat16),
      normal(3, 4))
