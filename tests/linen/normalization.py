"""Rows for normalization layers: statistics, masks, dtypes, axes, groups, running averages."""

import ml_dtypes
import numpy as np

from tests.linen.oracle import layer, normal

BF16 = ml_dtypes.bfloat16
STATS = ["batch_stats"]
shifted = lambda *shape, **options: 3 * normal(*shape, **options) + 1


def mask(*shape, seed=5):
    """Two thirds True, and nothing empty along the first axis."""
    found = np.random.RandomState(seed).uniform(size=shape) < 2 / 3
    found[0] = True
    return found


# BatchNorm.

layer("batch norm", lambda lib: lib.nn.BatchNorm(use_running_average=False), shifted(6, 3),
      mutable=STATS, steps=3)
layer("batch norm eval", lambda lib: lib.nn.BatchNorm(use_running_average=True), shifted(6, 3))
layer("batch norm images", lambda lib: lib.nn.BatchNorm(momentum=0.9, epsilon=1e-3),
      shifted(2, 5, 3, 4), kwargs={"use_running_average": False}, mutable=STATS, steps=2)
layer("batch norm slow variance",
      lambda lib: lib.nn.BatchNorm(use_running_average=False, use_fast_variance=False),
      shifted(7, 5) + 50, mutable=STATS)
layer("batch norm axis 1", lambda lib: lib.nn.BatchNorm(use_running_average=False, axis=1),
      shifted(4, 3, 5), mutable=STATS)
layer("batch norm two axes", lambda lib: lib.nn.BatchNorm(use_running_average=False, axis=(1, -1)),
      shifted(4, 3, 2, 5), mutable=STATS)
layer("batch norm two axes eval",
      lambda lib: lib.nn.BatchNorm(use_running_average=True, axis=(-1, 1)), shifted(4, 3, 2, 5))
layer("batch norm mask", lambda lib: lib.nn.BatchNorm(use_running_average=False), shifted(8, 3),
      kwargs={"mask": mask(8, 1)}, mutable=STATS, steps=2)
layer("batch norm mask slow",
      lambda lib: lib.nn.BatchNorm(use_running_average=False, use_fast_variance=False),
      shifted(8, 4, 3), kwargs={"mask": mask(8, 4, 3)}, mutable=STATS)
layer("batch norm bf16 input", lambda lib: lib.nn.BatchNorm(use_running_average=False),
      shifted(6, 4).astype(BF16), mutable=STATS)
layer("batch norm bf16 result",
      lambda lib: lib.nn.BatchNorm(use_running_average=False, dtype=lib.jnp.bfloat16),
      shifted(6, 4), mutable=STATS)
layer("batch norm all bf16",
      lambda lib: lib.nn.BatchNorm(use_running_average=False, param_dtype=lib.jnp.bfloat16,
                                   force_float32_reductions=False),
      shifted(6, 4).astype(BF16), mutable=STATS)
layer("batch norm all bf16 mask",
      lambda lib: lib.nn.BatchNorm(use_running_average=False, param_dtype=lib.jnp.bfloat16,
                                   force_float32_reductions=False),
      shifted(6, 4).astype(BF16), kwargs={"mask": mask(6, 1)}, mutable=STATS)
layer("batch norm all bf16 eval",
      lambda lib: lib.nn.BatchNorm(use_running_average=True, param_dtype=lib.jnp.bfloat16,
                                   force_float32_reductions=False),
      shifted(6, 4).astype(BF16))
layer("batch norm bare",
      lambda lib: lib.nn.BatchNorm(use_running_average=False, use_scale=False, use_bias=False),
      shifted(6, 3), mutable=STATS)
layer("batch norm initializers",
      lambda lib: lib.nn.BatchNorm(use_running_average=False,
                                   scale_init=lib.nn.initializers.normal(1.0),
                                   bias_init=lib.nn.initializers.uniform()),
      shifted(6, 3), mutable=STATS)
layer("batch norm x64",
      lambda lib: lib.nn.BatchNorm(use_running_average=False, param_dtype=lib.jnp.float64),
      shifted(6, 3, dtype=np.float64), mutable=STATS, steps=2, x64=True)
layer("batch norm complex", lambda lib: lib.nn.BatchNorm(use_running_average=False),
      (shifted(6, 3) + 1j * normal(6, 3, seed=2)).astype(np.complex64), mutable=STATS)
layer("batch norm integers", lambda lib: lib.nn.BatchNorm(use_running_average=False),
      np.arange(12, dtype=np.int32).reshape(4, 3) ** 2, mutable=STATS)
layer("batch norm constant input", lambda lib: lib.nn.BatchNorm(use_running_average=False),
      np.full((4, 3), 0.1, np.float32), mutable=STATS, rtol=1e-4, grad=False)


def residual_block(lib):
    """Two norms and a convolution between them, as in a ResNet."""

    class Block(lib.nn.Module):
        train: bool

        @lib.nn.compact
        def __call__(self, x):
            y = lib.nn.BatchNorm(use_running_average=not self.train, momentum=0.5)(x)
            y = lib.nn.Dense(3)(lib.nn.relu(y))
            norm = lib.nn.BatchNorm(scale_init=lib.nn.initializers.zeros_init(), name="last")
            return x + norm(y, use_running_average=not self.train)

    return Block(True)


layer("batch norm in a block", residual_block, shifted(4, 2, 3), mutable=STATS, steps=2)

# LayerNorm.

layer("layer norm", lambda lib: lib.nn.LayerNorm(), shifted(2, 3, 5))
layer("layer norm one axis", lambda lib: lib.nn.LayerNorm(), shifted(7))
layer("layer norm axes", lambda lib: lib.nn.LayerNorm(reduction_axes=(1, 2, 3)),
      shifted(2, 3, 5, 4))
layer("layer norm features",
      lambda lib: lib.nn.LayerNorm(reduction_axes=(-1, -2), feature_axes=(1, -1)),
      shifted(2, 3, 5, 4))
layer("layer norm features elsewhere",
      lambda lib: lib.nn.LayerNorm(reduction_axes=[1, 2], feature_axes=-1), shifted(2, 3, 5, 4))
layer("layer norm slow variance",
      lambda lib: lib.nn.LayerNorm(use_fast_variance=False, epsilon=1e-2), shifted(3, 5) + 20)
layer("layer norm bf16", lambda lib: lib.nn.LayerNorm(dtype=lib.jnp.bfloat16), shifted(3, 8))
layer("layer norm bf16 input", lambda lib: lib.nn.LayerNorm(), shifted(3, 8).astype(BF16))
layer("layer norm bf16 parameters", lambda lib: lib.nn.LayerNorm(param_dtype=lib.jnp.bfloat16),
      shifted(3, 8).astype(BF16))
layer("layer norm f16 bare", lambda lib: lib.nn.LayerNorm(use_bias=False, use_scale=False),
      shifted(3, 8).astype(np.float16))
layer("layer norm narrow",
      lambda lib: lib.nn.LayerNorm(force_float32_reductions=False, param_dtype=lib.jnp.bfloat16),
      shifted(3, 8).astype(BF16))
layer("layer norm mask", lambda lib: lib.nn.LayerNorm(), shifted(4, 6), kwargs={"mask": mask(6)})
layer("layer norm mask slow", lambda lib: lib.nn.LayerNorm(use_fast_variance=False),
      shifted(4, 6), kwargs={"mask": mask(6)})
layer("layer norm no bias", lambda lib: lib.nn.LayerNorm(use_bias=False), shifted(4, 1))
layer("layer norm x64", lambda lib: lib.nn.LayerNorm(), shifted(4, 6, dtype=np.float64), x64=True)
layer("layer norm dtype below input", lambda lib: lib.nn.LayerNorm(dtype=lib.jnp.float32),
      shifted(4, 6, dtype=np.float64), x64=True)
layer("layer norm initializers",
      lambda lib: lib.nn.LayerNorm(scale_init=lib.nn.initializers.constant(2.0),
                                   bias_init=lib.nn.initializers.normal()), shifted(4, 3))

# RMSNorm.

layer("rms norm", lambda lib: lib.nn.RMSNorm(), shifted(2, 3, 5))
layer("rms norm bf16", lambda lib: lib.nn.RMSNorm(dtype=lib.jnp.bfloat16, epsilon=1e-2),
      shifted(3, 8))
layer("rms norm bf16 input", lambda lib: lib.nn.RMSNorm(param_dtype=lib.jnp.bfloat16),
      shifted(3, 8).astype(BF16))
layer("rms norm axes",
      lambda lib: lib.nn.RMSNorm(reduction_axes=(1, 2), feature_axes=(2,), use_scale=True),
      shifted(2, 3, 5))
layer("rms norm bare", lambda lib: lib.nn.RMSNorm(use_scale=False), shifted(3, 5))
layer("rms norm mask", lambda lib: lib.nn.RMSNorm(use_fast_variance=False), shifted(3, 5),
      kwargs={"mask": mask(3, 5)})
layer("rms norm narrow",
      lambda lib: lib.nn.RMSNorm(force_float32_reductions=False, param_dtype=lib.jnp.bfloat16),
      shifted(3, 8).astype(BF16))

# GroupNorm.

layer("group norm", lambda lib: lib.nn.GroupNorm(num_groups=3), shifted(2, 4, 5, 6))
layer("group norm default", lambda lib: lib.nn.GroupNorm(), shifted(2, 3, 64))
layer("group norm sizes", lambda lib: lib.nn.GroupNorm(num_groups=None, group_size=2),
      shifted(3, 5, 8))
layer("group norm axes", lambda lib: lib.nn.GroupNorm(num_groups=2, reduction_axes=(1, -1)),
      shifted(2, 3, 5, 4))
layer("group norm batch axes",
      lambda lib: lib.nn.GroupNorm(num_groups=2, reduction_axes=(-2, -1)), shifted(2, 3, 5, 4))
layer("group norm two axes of input", lambda lib: lib.nn.GroupNorm(num_groups=2), shifted(3, 8))
layer("group norm bf16",
      lambda lib: lib.nn.GroupNorm(num_groups=2, dtype=lib.jnp.bfloat16, use_bias=False),
      shifted(2, 5, 4))
layer("group norm bf16 input",
      lambda lib: lib.nn.GroupNorm(num_groups=2, param_dtype=lib.jnp.bfloat16,
                                   use_fast_variance=False),
      shifted(2, 5, 4).astype(BF16))
layer("group norm narrow",
      lambda lib: lib.nn.GroupNorm(num_groups=2, param_dtype=lib.jnp.bfloat16,
                                   force_float32_reductions=False),
      shifted(2, 5, 4).astype(BF16))
layer("group norm mask", lambda lib: lib.nn.GroupNorm(num_groups=2), shifted(3, 5, 4),
      kwargs={"mask": mask(3, 5, 4)})
layer("group norm initializers",
      lambda lib: lib.nn.GroupNorm(num_groups=3, scale_init=lib.nn.initializers.normal(1.0),
                                   bias_init=lib.nn.initializers.normal(1.0), epsilon=0.1),
      shifted(2, 5, 6))

# InstanceNorm.

layer("instance norm", lambda lib: lib.nn.InstanceNorm(), shifted(2, 3, 4, 5))
layer("instance norm axes", lambda lib: lib.nn.InstanceNorm(feature_axes=(1, -1)),
      shifted(2, 3, 4, 5))
layer("instance norm bf16",
      lambda lib: lib.nn.InstanceNorm(dtype=lib.jnp.bfloat16, feature_axes=1, use_scale=False),
      shifted(2, 3, 7))
layer("instance norm bf16 input", lambda lib: lib.nn.InstanceNorm(param_dtype=lib.jnp.bfloat16),
      shifted(2, 7, 3).astype(BF16))
layer("instance norm mask", lambda lib: lib.nn.InstanceNorm(use_fast_variance=False),
      shifted(2, 7, 3), kwargs={"mask": mask(7, 1)})

# Norms of parameters.

layer("spectral norm", lambda lib: lib.nn.SpectralNorm(lib.nn.Dense(4)), normal(2, 3),
      kwargs={"update_stats": True}, mutable=STATS, steps=3)
layer("spectral norm eval", lambda lib: lib.nn.SpectralNorm(lib.nn.Dense(4), n_steps=3),
      normal(2, 3), kwargs={"update_stats": False})
layer("spectral norm of a convolution",
      lambda lib: lib.nn.SpectralNorm(lib.nn.Conv(3, (3,)), collection_name="spectral",
                                      epsilon=1e-6),
      normal(2, 5, 2), kwargs={"update_stats": True}, mutable=["spectral"], steps=2)
layer("spectral norm bf16",
      lambda lib: lib.nn.SpectralNorm(lib.nn.Dense(4), dtype=lib.jnp.bfloat16), normal(2, 3),
      kwargs={"update_stats": True}, mutable=STATS)
layer("spectral norm no steps", lambda lib: lib.nn.SpectralNorm(lib.nn.Dense(4), n_steps=0),
      normal(2, 3), kwargs={"update_stats": True}, mutable=STATS)


def discriminator(lib):
    """Normalized layers between others, one of them with layers of its own."""

    class Pair(lib.nn.Module):
        @lib.nn.compact
        def __call__(self, x):
            return lib.nn.Dense(2)(lib.nn.relu(lib.nn.Dense(3)(x)))

    class Model(lib.nn.Module):
        @lib.nn.compact
        def __call__(self, x, train):
            x = lib.nn.Dense(3)(x)
            x = lib.nn.SpectralNorm(lib.nn.Dense(4))(x, update_stats=train)
            x = lib.nn.WeightNorm(Pair(), variable_filter={"Dense_1"})(x)
            return lib.nn.SpectralNorm(Pair(), n_steps=2)(x, update_stats=train)

    return Model()


layer("spectral and weight norm in a model", discriminator, normal(2, 3), kwargs={"train": True},
      mutable=STATS, steps=2)
layer("weight norm", lambda lib: lib.nn.WeightNorm(lib.nn.Dense(4)), normal(2, 3))
layer("weight norm all", lambda lib: lib.nn.WeightNorm(
    lib.nn.Dense(4, bias_init=lib.nn.initializers.normal(1.0)), variable_filter=None), normal(2, 3))
layer("weight norm of a convolution",
      lambda lib: lib.nn.WeightNorm(lib.nn.Conv(3, (2,)), feature_axes=(0, -1), epsilon=1e-5,
                                    scale_init=lib.nn.initializers.normal(1.0)),
      normal(2, 5, 2))
layer("weight norm one norm",
      lambda lib: lib.nn.WeightNorm(lib.nn.Dense(4), feature_axes=None), normal(2, 3))
layer("weight norm no scale",
      lambda lib: lib.nn.WeightNorm(lib.nn.Dense(4), use_scale=False), normal(2, 3))
layer("weight norm bf16",
      lambda lib: lib.nn.WeightNorm(lib.nn.Dense(4, param_dtype=lib.jnp.bfloat16),
                                    param_dtype=lib.jnp.bfloat16), normal(2, 3).astype(BF16))
