"""Rows for products in float8: the modules that layers take as `dot_general_cls` and the like.

Their scales and histories are compared over three steps, in each of which the gradient of the state
becomes the state. flax is told to round to bfloat16 where the program says so: a bit more in
x / scale would change which float8 is nearest, and that is a difference of 1/16.
"""

import functools

import ml_dtypes
import numpy as np

from tests.linen.oracle import layer, normal

BF16 = ml_dtypes.bfloat16
STATE = "_overwrite_with_gradient"

fp8 = functools.partial(layer, renewed=STATE, steps=3, excess=False)

# For calls without a layer around them: x and a kernel, and the axes of dot_general.
MATMUL = (((1,), (0,)), ((), ()))
LAST_AND_FIRST = (((2,), (0,)), ((), ()))
BATCHED = (((2,), (1,)), ((0,), (0,)))
SWAPPED = (((3, 1), (0, 2)), ((0,), (1,)))  # two axes contracted, out of order


def spread(*shape, seed=0):
    """Numbers of many magnitudes: some are clipped by the first scale, some round to 0."""
    powers = np.round(4 * normal(*shape, seed=seed + 1))  # of two: exact on every machine
    return (normal(*shape, seed=seed) * 2.0**powers).astype(np.float32)


def short(op, length=3, **options):
    """The operation with a history that is full, and forgets, within the steps of a row."""
    return functools.partial(op, amax_history_length=length, **options)


# For a bias of a bfloat16 layer: its gradient is a sum in bfloat16, which flax rounds after each
# term here, and toile once. Two examples are one addition, where both are the same.
TWO = normal(2, 7)

# Fp8DotGeneralOp: rounded to float8 and back.

fp8("fp8 round trip dense", lambda lib: lib.nn.Dense(7, dot_general_cls=lib.nn.Fp8DotGeneralOp),
    normal(5, 3))
fp8("fp8 round trip dense bf16", lambda lib: lib.nn.Dense(
    5, dtype=lib.jnp.bfloat16, use_bias=False, dot_general_cls=short(lib.nn.Fp8DotGeneralOp)),
    normal(3, 7))
fp8("fp8 round trip dense bf16 parameters", lambda lib: lib.nn.Dense(
    3, param_dtype=lib.jnp.bfloat16, dot_general_cls=short(lib.nn.Fp8DotGeneralOp, 1)),
    normal(2, 3, 5).astype(BF16))
fp8("fp8 round trip e5m2", lambda lib: lib.nn.Dense(4, dot_general_cls=short(
    lib.nn.Fp8DotGeneralOp, 2, e4m3_dtype=lib.jnp.float8_e5m2,
    e5m2_dtype=lib.jnp.float8_e4m3fn)), spread(3, 5))
fp8("fp8 round trip general", lambda lib: lib.nn.DenseGeneral(
    (2, 3), axis=(-2, -1), batch_dims=0, dot_general_cls=short(lib.nn.Fp8DotGeneralOp)),
    normal(2, 3, 5))
fp8("fp8 round trip alone", lambda lib: short(lib.nn.Fp8DotGeneralOp)(), spread(3, 5),
    spread(5, 2, seed=3), MATMUL)
fp8("fp8 round trip alone batched", lambda lib: short(lib.nn.Fp8DotGeneralOp)(),
    normal(3, 2, 5), normal(3, 5, 1, seed=3).astype(BF16), BATCHED)
fp8("fp8 round trip alone f16", lambda lib: short(lib.nn.Fp8DotGeneralOp)(),
    normal(2, 5, 3, 7).astype(np.float16), normal(7, 2, 5, seed=3).astype(np.float16), SWAPPED)

# NANOOFp8DotGeneralOp: the same without infinities and without a negative zero.

fp8("fp8 fnuz dense", lambda lib: lib.nn.Dense(7, dot_general_cls=lib.nn.NANOOFp8DotGeneralOp),
    normal(5, 3))
fp8("fp8 fnuz dense bf16", lambda lib: lib.nn.Dense(
    5, dtype=lib.jnp.bfloat16, dot_general_cls=short(lib.nn.NANOOFp8DotGeneralOp)), TWO)
fp8("fp8 fnuz e4m3fn", lambda lib: lib.nn.Dense(3, use_bias=False, dot_general_cls=short(
    lib.nn.NANOOFp8DotGeneralOp, 1, e4m3_dtype=lib.jnp.float8_e4m3fn)), spread(2, 3, 5))
fp8("fp8 fnuz general", lambda lib: lib.nn.DenseGeneral(
    3, axis=(1, -1), batch_dims=(0,), dot_general_cls=short(lib.nn.NANOOFp8DotGeneralOp)),
    normal(2, 3, 5, 4))
fp8("fp8 fnuz alone", lambda lib: short(lib.nn.NANOOFp8DotGeneralOp)(), spread(3, 5),
    spread(5, 2, seed=3), MATMUL)
fp8("fp8 fnuz alone bf16", lambda lib: short(lib.nn.NANOOFp8DotGeneralOp)(),
    normal(3, 2, 5).astype(BF16), normal(5, 7, seed=3).astype(BF16), LAST_AND_FIRST)

# Fp8DirectDotGeneralOp: operands stay float8.

fp8("fp8 direct dense", lambda lib: lib.nn.Dense(
    7, dot_general_cls=lib.nn.Fp8DirectDotGeneralOp), normal(5, 3))
fp8("fp8 direct dense bf16", lambda lib: lib.nn.Dense(
    5, dtype=lib.jnp.bfloat16, dot_general_cls=short(lib.nn.Fp8DirectDotGeneralOp)), TWO)
fp8("fp8 direct dense bf16 parameters", lambda lib: lib.nn.Dense(
    3, param_dtype=lib.jnp.bfloat16, dot_general_cls=short(lib.nn.Fp8DirectDotGeneralOp, 1)),
    normal(2, 3, 5).astype(BF16))
fp8("fp8 direct keeps its dtypes", lambda lib: lib.nn.Dense(4, dot_general_cls=short(
    lib.nn.Fp8DirectDotGeneralOp, 2, e4m3_dtype=lib.jnp.float8_e5m2,
    e5m2_dtype=lib.jnp.float8_e4m3fn)), spread(3, 5))
fp8("fp8 direct chain", lambda lib: lib.nn.Sequential([
    lib.nn.Dense(6, dot_general_cls=short(lib.nn.Fp8DirectDotGeneralOp)), lib.nn.relu,
    lib.nn.Dense(1, dot_general_cls=short(lib.nn.Fp8DirectDotGeneralOp))]), normal(3, 5))
fp8("fp8 direct alone", lambda lib: short(lib.nn.Fp8DirectDotGeneralOp)(), spread(3, 5),
    spread(5, 2, seed=3), MATMUL)
fp8("fp8 direct alone swapped", lambda lib: short(lib.nn.Fp8DirectDotGeneralOp)(),
    normal(2, 5, 3, 7), normal(7, 2, 5, seed=3), SWAPPED)

# Fp8DotGeneral: another name for it.

fp8("fp8 general", lambda lib: lib.nn.DenseGeneral(
    (2, 3), axis=(-2, -1), dot_general_cls=lib.nn.Fp8DotGeneral), normal(5, 4, 3))
fp8("fp8 general batch dims", lambda lib: lib.nn.DenseGeneral(
    3, axis=(1, -1), batch_dims=(0,), dot_general_cls=short(lib.nn.Fp8DotGeneral)),
    normal(2, 3, 5, 4))
fp8("fp8 general bf16", lambda lib: lib.nn.DenseGeneral(
    (1, 5), dtype=lib.jnp.bfloat16, param_dtype=lib.jnp.bfloat16,
    dot_general_cls=short(lib.nn.Fp8DotGeneral)), normal(3, 7))
fp8("fp8 general attention", lambda lib: lib.nn.MultiHeadDotProductAttention(
    2, qkv_dot_general_cls=short(lib.nn.Fp8DotGeneral),
    out_dot_general_cls=short(lib.nn.Fp8DotGeneral)), normal(2, 3, 4))
fp8("fp8 general alone bf16", lambda lib: short(lib.nn.Fp8DotGeneral)(),
    normal(3, 2, 5), normal(5, 7, seed=3).astype(BF16), LAST_AND_FIRST)

# Fp8Einsum.

F32 = {"preferred_element_type": np.float32}
fp8("fp8 einsum", lambda lib: lib.nn.Fp8Einsum(), "ij,jk->ik", spread(3, 5),
    spread(5, 2, seed=3), kwargs=F32)
fp8("fp8 einsum bf16", lambda lib: short(lib.nn.Fp8Einsum)(), "ij,jk->ik",
    normal(3, 5), normal(5, 2, seed=3).astype(BF16))
fp8("fp8 einsum f32 of bf16", lambda lib: short(lib.nn.Fp8Einsum)(), "ij,jk->ki",
    normal(3, 5).astype(BF16), normal(5, 2, seed=3), kwargs=F32)
fp8("fp8 einsum batch", lambda lib: short(lib.nn.Fp8Einsum, 1)(), "bij,bjk->bik",
    normal(2, 3, 5), normal(2, 5, 7, seed=3))
fp8("fp8 einsum moved axes", lambda lib: short(lib.nn.Fp8Einsum)(), "abc,cde->adbe",
    normal(2, 3, 5), normal(5, 3, 1, seed=3), kwargs=F32)
fp8("fp8 einsum heads", lambda lib: short(lib.nn.Fp8Einsum)(), "...qhd,...khd->...hqk",
    normal(1, 3, 2, 5), normal(1, 4, 2, 5, seed=3))
fp8("fp8 einsum in attention", lambda lib: lib.nn.MultiHeadDotProductAttention(
    2, qk_attn_weights_einsum_cls=short(lib.nn.Fp8Einsum),
    attn_weights_value_einsum_cls=short(lib.nn.Fp8Einsum)), normal(2, 3, 4))
