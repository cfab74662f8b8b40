"""Rows for Dense, DenseGeneral, Einsum, convolutions and Embed."""

import numpy as np

from tests.linen.oracle import layer, normal


def ints(*shape, high, seed=0, low=0):
    """Indices for an input."""
    return np.random.RandomState(seed).randint(low, high, shape).astype(np.int32)


def mask(*shape, seed=5):
    """Zeros and ones for a mask of weights."""
    return (np.random.RandomState(seed).uniform(size=shape) < 0.6).astype(np.float32)


def doubled(lib):
    """A product that is not lax's."""
    return lambda *args, **kwargs: 2 * lib.lax.dot_general(*args, **kwargs)


def negated(lib):
    """A convolution that is not lax's."""
    return lambda *args, **kwargs: -lib.lax.conv_general_dilated(*args, **kwargs)


def counting(lib, function):
    """A submodule that computes `function`, scaled by a parameter of its own."""

    class Scaled(lib.nn.Module):
        @lib.nn.compact
        def __call__(self, *args, **kwargs):
            scale = self.param("scale", lib.nn.initializers.constant(3.0), ())
            return scale * function(*args, **kwargs)

    return Scaled


# Where 16 bits are computed with, XLA keeps float32 between the operations that it fuses, so that
# float32 results of them (gradients of inputs) agree to the accuracy of 16 bits.
HALF = {"rtol": 8e-3, "atol": 4e-3}

# Dense.

layer("dense", lambda lib: lib.nn.Dense(5), normal(2, 3))
layer("dense bf16", lambda lib: lib.nn.Dense(5, dtype=lib.jnp.bfloat16), normal(2, 3), **HALF)
layer("dense bf16 input", lambda lib: lib.nn.Dense(4, use_bias=False),
      normal(2, 3).astype("bfloat16"))  # fmt: skip
layer("dense param bf16",
      lambda lib: lib.nn.Dense(7, param_dtype=lib.jnp.bfloat16, dtype=lib.jnp.float32),
      normal(2, 1, 3))  # fmt: skip
layer("dense both bf16",
      lambda lib: lib.nn.Dense(3, param_dtype=lib.jnp.bfloat16, dtype=lib.jnp.bfloat16),
      normal(4, 6), **HALF)  # fmt: skip
layer("dense f16", lambda lib: lib.nn.Dense(3, dtype=lib.jnp.float16), normal(4, 6), **HALF)
layer("dense vector", lambda lib: lib.nn.Dense(1), normal(7), vmap=False)
layer("dense rank 4", lambda lib: lib.nn.Dense(3), normal(2, 1, 3, 5))
layer("dense integers", lambda lib: lib.nn.Dense(3), ints(2, 4, high=9, low=-9), grad=False)
layer("dense empty batch", lambda lib: lib.nn.Dense(3), normal(0, 4), vmap=False)
layer("dense no features",
      lambda lib: lib.nn.Dense(0, kernel_init=lib.nn.initializers.normal()), normal(2, 4))
layer("dense x64", lambda lib: lib.nn.Dense(3, param_dtype=lib.jnp.float64), normal(2, 4), x64=True)
layer("dense x64 mixed", lambda lib: lib.nn.Dense(3), normal(2, 4, dtype=np.float64), x64=True)
layer("dense complex",
      lambda lib: lib.nn.Dense(3, param_dtype=lib.jnp.complex64), normal(2, 4))  # fmt: skip
layer("dense inits",
      lambda lib: lib.nn.Dense(3, kernel_init=lib.nn.initializers.he_uniform(),
                               bias_init=lib.nn.initializers.normal(0.5), precision="highest"),
      normal(2, 4))  # fmt: skip
layer("dense orthogonal",
      lambda lib: lib.nn.Dense(6, kernel_init=lib.nn.initializers.orthogonal(2.0),
                               bias_init=lambda key, shape, dtype: lib.jnp.full(shape, 0.5, dtype)),
      normal(2, 4))  # fmt: skip
layer("dense dot_general", lambda lib: lib.nn.Dense(3, dot_general=doubled(lib)), normal(2, 4))
layer("dense dot_general_cls",
      lambda lib: lib.nn.Dense(3, dot_general_cls=counting(lib, lib.lax.dot_general)),
      normal(2, 4))  # fmt: skip
layer("dense promote_dtype",
      lambda lib: lib.nn.Dense(3, promote_dtype=lambda *xs, dtype=None: [
          None if x is None else x.astype(lib.jnp.float16) for x in xs]),
      normal(2, 4), **HALF)  # fmt: skip
layer("dense partitioned",
      lambda lib: lib.nn.Dense(3, kernel_init=lib.core.meta.with_partitioning(
          lib.jax.nn.initializers.lecun_normal(), ("in", "out"))),
      normal(2, 4))  # fmt: skip

# DenseGeneral.

layer("dense_general", lambda lib: lib.nn.DenseGeneral(4), normal(2, 3))
layer("dense_general axes", lambda lib: lib.nn.DenseGeneral((4, 5), axis=(1, -1)),
      normal(2, 3, 2, 7))  # fmt: skip
layer("dense_general unsorted", lambda lib: lib.nn.DenseGeneral((4, 1), axis=(-1, 1)),
      normal(2, 3, 2, 5))  # fmt: skip
layer("dense_general first", lambda lib: lib.nn.DenseGeneral([3], axis=0), normal(5, 2, 2))
layer("dense_general batch",
      lambda lib: lib.nn.DenseGeneral((3, 2), axis=-1, batch_dims=0,
                                      bias_init=lib.nn.initializers.normal(1.0)),
      normal(2, 5, 4), vmap=False)  # fmt: skip
layer("dense_general batches",
      lambda lib: lib.nn.DenseGeneral(3, axis=(-2, -1), batch_dims=(0, 1),
                                      bias_init=lib.nn.initializers.normal(1.0)),
      normal(2, 3, 4, 5))  # fmt: skip
layer("dense_general middle",
      lambda lib: lib.nn.DenseGeneral(3, axis=2, batch_dims=(0,),
                                      bias_init=lib.nn.initializers.uniform()),
      normal(2, 3, 4, 5))  # fmt: skip
layer("dense_general bf16",
      lambda lib: lib.nn.DenseGeneral((2, 3), dtype=lib.jnp.bfloat16, use_bias=False),
      normal(4, 5), **HALF)  # fmt: skip
layer("dense_general param_dtype",
      lambda lib: lib.nn.DenseGeneral((2, 3), axis=(-1,), param_dtype=lib.jnp.bfloat16),
      normal(4, 5))  # fmt: skip
layer("dense_general dot_general",
      lambda lib: lib.nn.DenseGeneral((2, 3), dot_general=doubled(lib)), normal(4, 5))  # fmt: skip
layer("dense_general dot_general_cls",
      lambda lib: lib.nn.DenseGeneral((2, 3), dot_general_cls=counting(lib, lib.lax.dot_general)),
      normal(4, 5))  # fmt: skip
layer("dense_general partitioned",
      lambda lib: lib.nn.DenseGeneral((2, 3), kernel_init=lib.core.meta.with_partitioning(
          lib.jax.nn.initializers.glorot_normal(), ("in", "out", "heads"))),
      normal(4, 5))  # fmt: skip

# Einsum.

layer("einsum", lambda lib: lib.nn.Einsum((5, 6, 7), "abc,cde->abde"), normal(3, 4, 5))
layer("einsum ellipsis",
      lambda lib: lib.nn.Einsum((5, 2, 3), "...a,abc->...bc",
                                bias_init=lib.nn.initializers.normal(1.0)),
      normal(2, 3, 4, 5))  # fmt: skip
layer("einsum shared axis",
      lambda lib: lib.nn.Einsum((2, 5, 3), " abc, acd -> abd ",
                                bias_init=lib.nn.initializers.normal(1.0)),
      normal(2, 4, 5))  # fmt: skip
layer("einsum at call",
      lambda lib: lib.nn.Einsum((5, 3), bias_init=lib.nn.initializers.ones),
      normal(2, 5), "ab,bc->ca",
      vmap=False)  # fmt: skip
layer("einsum bf16",
      lambda lib: lib.nn.Einsum((5, 3), "ab,bc->ac", dtype=lib.jnp.bfloat16, use_bias=False),
      normal(2, 5), **HALF)  # fmt: skip
layer("einsum preferred",
      lambda lib: lib.nn.Einsum([5, 3], "ab,bc->ac", dtype=lib.jnp.bfloat16, use_bias=False,
                                preferred_element_type=lib.jnp.float32),
      normal(2, 5), **HALF)  # fmt: skip
layer("einsum param_dtype",
      lambda lib: lib.nn.Einsum((5, 3), "ab,bc->ac", param_dtype=lib.jnp.float16),
      normal(2, 5), **HALF)  # fmt: skip
layer("einsum kernel ellipsis",
      lambda lib: lib.nn.Einsum((4, 5, 3), "...b,...bc->...c",
                                bias_init=lib.nn.initializers.normal(1.0)),
      normal(2, 4, 5))  # fmt: skip

# Conv.

layer("conv", lambda lib: lib.nn.Conv(4, (3, 3)), normal(2, 5, 6, 3))
layer("conv 1d", lambda lib: lib.nn.Conv(4, 3, padding="VALID"), normal(2, 7, 3))
layer("conv 3d", lambda lib: lib.nn.Conv(2, (2, 3, 1), strides=(1, 2, 1)), normal(1, 3, 4, 3, 2))
layer("conv 0d", lambda lib: lib.nn.Conv(2, ()), normal(3, 4))
layer("conv bf16", lambda lib: lib.nn.Conv(4, (3, 3), dtype=lib.jnp.bfloat16),
      normal(1, 3, 4, 3), **HALF)  # fmt: skip
layer("conv param_dtype",
      lambda lib: lib.nn.Conv(4, (3,), param_dtype=lib.jnp.bfloat16, use_bias=False,
                              dtype=lib.jnp.float32),
      normal(2, 7, 3))  # fmt: skip
layer("conv strides", lambda lib: lib.nn.Conv(3, (3, 2), strides=2, padding="SAME_LOWER"),
      normal(2, 7, 6, 2))  # fmt: skip
layer("conv pads", lambda lib: lib.nn.Conv(3, [3, 2], strides=[2, 1], padding=((1, 2), 3)),
      normal(2, 7, 6, 2))  # fmt: skip
layer("conv pad int", lambda lib: lib.nn.Conv(3, (3, 2), padding=2), normal(1, 4, 5, 2))
layer("conv circular", lambda lib: lib.nn.Conv(3, (3, 4), padding="CIRCULAR"), normal(1, 5, 6, 2))
layer("conv circular strided",
      lambda lib: lib.nn.Conv(3, (3, 4), padding="CIRCULAR", strides=2, kernel_dilation=(2, 1)),
      normal(2, 6, 5, 2))  # fmt: skip
layer("conv reflect",
      lambda lib: lib.nn.Conv(3, (3, 4), padding="REFLECT", kernel_dilation=(2, 1)),
      normal(1, 5, 6, 2))  # fmt: skip
layer("conv causal", lambda lib: lib.nn.Conv(3, 3, padding="CAUSAL", kernel_dilation=2),
      normal(2, 7, 2))  # fmt: skip
layer("conv causal bf16",
      lambda lib: lib.nn.Conv(3, (4,), padding="CAUSAL", dtype=lib.jnp.bfloat16),
      normal(2, 7, 2), **HALF)  # fmt: skip
layer("conv input_dilation",
      lambda lib: lib.nn.Conv(3, (3, 3), input_dilation=(2, 1), padding=1, strides=None,
                              kernel_dilation=None),
      normal(1, 4, 5, 2))  # fmt: skip
layer("conv groups", lambda lib: lib.nn.Conv(6, (3, 3), feature_group_count=2), normal(2, 5, 4, 4))
layer("conv depthwise",
      lambda lib: lib.nn.Conv(6, (3,), feature_group_count=3, kernel_dilation=2,
                              kernel_init=lib.nn.initializers.normal(1.0)),
      normal(2, 8, 3))  # fmt: skip
layer("conv no batch", lambda lib: lib.nn.Conv(3, (3, 3)), normal(5, 4, 2), vmap=False)
layer("conv many batch", lambda lib: lib.nn.Conv(3, (3,), padding="CIRCULAR"),
      normal(2, 3, 5, 2))  # fmt: skip
layer("conv mask", lambda lib: lib.nn.Conv(4, (3,), mask=lib.jnp.asarray(mask(3, 2, 4))),
      normal(2, 5, 2))  # fmt: skip
layer("conv numpy mask bf16",
      lambda lib: lib.nn.Conv(4, (3,), mask=mask(3, 2, 4), dtype=lib.jnp.bfloat16),
      normal(2, 5, 2), **HALF)  # fmt: skip
layer("conv function", lambda lib: lib.nn.Conv(4, (3,), conv_general_dilated=negated(lib)),
      normal(2, 5, 2))  # fmt: skip
layer("conv class",
      lambda lib: lib.nn.Conv(4, (3,), conv_general_dilated_cls=counting(
          lib, lib.lax.conv_general_dilated)),
      normal(2, 5, 2))  # fmt: skip
layer("conv delta_orthogonal",
      lambda lib: lib.nn.Conv(4, (3, 3), kernel_init=lib.nn.initializers.delta_orthogonal()),
      normal(2, 5, 5, 3))  # fmt: skip

# ConvLocal.

layer("conv_local", lambda lib: lib.nn.ConvLocal(4, (3,), padding="VALID"), normal(2, 6, 3))
layer("conv_local 2d",
      lambda lib: lib.nn.ConvLocal(3, (2, 3), strides=2, bias_init=lib.nn.initializers.normal(1.0)),
      normal(2, 4, 5, 2))  # fmt: skip
layer("conv_local bf16",
      lambda lib: lib.nn.ConvLocal(3, (2, 3), dtype=lib.jnp.bfloat16, use_bias=False,
                                   kernel_dilation=(1, 2)),
      normal(2, 3, 5, 2), **HALF)  # fmt: skip
layer("conv_local circular",
      lambda lib: lib.nn.ConvLocal(2, 3, padding="CIRCULAR", param_dtype=lib.jnp.bfloat16),
      normal(3, 4, 2))  # fmt: skip
layer("conv_local mask",
      lambda lib: lib.nn.ConvLocal(2, (3,), padding="CAUSAL", mask=lib.jnp.asarray(mask(5, 6, 2))),
      normal(5, 2), vmap=False)  # fmt: skip
layer("conv_local dilated",
      lambda lib: lib.nn.ConvLocal(2, (3,), padding=[(1, 0)], input_dilation=2),
      normal(2, 2, 4, 2))  # fmt: skip

# ConvTranspose.

layer("conv_transpose", lambda lib: lib.nn.ConvTranspose(4, (3, 3)), normal(2, 4, 5, 3))
layer("conv_transpose valid",
      lambda lib: lib.nn.ConvTranspose(4, 3, strides=2, padding="VALID"),
      normal(2, 4, 3))  # fmt: skip
layer("conv_transpose strides",
      lambda lib: lib.nn.ConvTranspose(2, (3, 4), strides=(2, 3), kernel_dilation=(2, 1)),
      normal(1, 3, 4, 2))  # fmt: skip
layer("conv_transpose pads",
      lambda lib: lib.nn.ConvTranspose(2, (3, 4), strides=(2, 1), padding=((1, 2), 2)),
      normal(1, 3, 4, 2))  # fmt: skip
layer("conv_transpose kernel",
      lambda lib: lib.nn.ConvTranspose(2, (3, 4), strides=(2, 2), transpose_kernel=True,
                                       bias_init=lib.nn.initializers.normal(1.0)),
      normal(1, 3, 4, 5))  # fmt: skip
layer("conv_transpose bf16",
      lambda lib: lib.nn.ConvTranspose(2, (3,), dtype=lib.jnp.bfloat16),
      normal(2, 4, 3), **HALF)  # fmt: skip
layer("conv_transpose preferred",
      lambda lib: lib.nn.ConvTranspose(2, (3,), dtype=lib.jnp.bfloat16, use_bias=False,
                                       preferred_element_type=lib.jnp.float32),
      normal(2, 4, 3), **HALF)  # fmt: skip
layer("conv_transpose param_dtype",
      lambda lib: lib.nn.ConvTranspose(2, (3,), param_dtype=lib.jnp.bfloat16),
      normal(2, 4, 3))  # fmt: skip
layer("conv_transpose mask",
      lambda lib: lib.nn.ConvTranspose(4, (3,), mask=lib.jnp.asarray(mask(3, 2, 4))),
      normal(2, 3, 4, 2))  # fmt: skip
layer("conv_transpose no batch", lambda lib: lib.nn.ConvTranspose(2, (2, 2), strides=(2, 2)),
      normal(3, 4, 2), vmap=False)  # fmt: skip
layer("conv_transpose circular",
      lambda lib: lib.nn.ConvTranspose(2, (3, 4), strides=(2, 1), padding="CIRCULAR"),
      normal(1, 4, 5, 2))  # fmt: skip
layer("conv_transpose circular even",
      lambda lib: lib.nn.ConvTranspose(2, (6, 5), strides=(2, 3), padding="CIRCULAR",
                                       transpose_kernel=True),
      normal(1, 3, 2, 3))  # fmt: skip
layer("conv_transpose circular small",
      lambda lib: lib.nn.ConvTranspose(3, 7, strides=(1,), padding="CIRCULAR",
                                       kernel_dilation=(2,)),
      normal(2, 2, 3, 2))  # fmt: skip

# Embed.

layer("embed", lambda lib: lib.nn.Embed(5, 3), ints(2, 4, high=5))
layer("embed negative", lambda lib: lib.nn.Embed(5, 3), ints(2, 4, high=5, low=-5))
layer("embed beyond", lambda lib: lib.nn.Embed(5, 3), np.array([0, 5, -6, 4, 100], np.int32),
      grad=False)  # fmt: skip
layer("embed one", lambda lib: lib.nn.Embed(1, 3), ints(2, 4, high=7))
layer("embed bf16", lambda lib: lib.nn.Embed(5, 3, dtype=lib.jnp.bfloat16), ints(4, high=5))
layer("embed param_dtype",
      lambda lib: lib.nn.Embed(5, 3, param_dtype=lib.jnp.bfloat16),
      ints(2, 1, 3, high=5))  # fmt: skip
layer("embed scalar", lambda lib: lib.nn.Embed(5, 3), np.int32(2) * np.ones((), np.int32),
      vmap=False)  # fmt: skip
layer("embed uint8", lambda lib: lib.nn.Embed(5, 3), ints(6, high=5).astype(np.uint8))
layer("embed integers",
      lambda lib: lib.nn.Embed(4, 2, param_dtype=lib.jnp.int32,
                               embedding_init=lambda key, shape, dtype: lib.jnp.arange(
                                   8, dtype=dtype).reshape(shape)),
      ints(6, high=4), grad=False)  # fmt: skip
layer("embed init",
      lambda lib: lib.nn.Embed(6, 2, embedding_init=lib.nn.initializers.normal(stddev=2.0)),
      ints(3, 3, high=6))  # fmt: skip
layer("embed attend", lambda lib: lib.nn.Embed(5, 3), normal(2, 4, 3), method="attend")
layer("embed attend bf16", lambda lib: lib.nn.Embed(5, 3, dtype=lib.jnp.bfloat16), normal(3),
      method="attend", vmap=False, **HALF)  # fmt: skip
layer("embed attend int", lambda lib: lib.nn.Embed(5, 3), ints(2, 3, high=4), method="attend")
