"""What belongs to no family: stopped gradients, barriers, tokens, placement, raw random bits.

May import the engine, primitives, parallel, `_operands` and this package's shapes and elementwise
functions.
"""

from __future__ import annotations

import enum
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.arrays import Array, DeviceArray
from toile.engine.errors import shape_error
from toile.engine.source import here
from toile.engine.tracing import state
from toile.engine.trees import broadcast_prefix, flatten, register, tree_map, unflatten
from toile.lax import elementwise, shapes
from toile.lax._operands import operand, operands, sizes, user_dtype
from toile.lax.conversion import bitcast_convert_type, convert_element_type
from toile.parallel.meshes import mesh_in_force
from toile.parallel.placing import constrained
from toile.parallel.specs import PartitionSpec
from toile.primitives.barriers import stop_gradient as _stop_gradient
from toile.primitives.random import random_bits, random_wrap
from toile.primitives.shapes import optimization_barrier as _barrier

__all__ = [
    "RandomAlgorithm", "Token", "after_all", "composite", "create_token", "dce_sink",
    "optimization_barrier", "polynomial", "rng_bit_generator", "rng_uniform", "stage",
    "stop_gradient", "with_sharding_constraint",
]  # fmt: skip


def stop_gradient(x: Any) -> Any:
    """The tree, each float or complex leaf a constant to differentiation."""
    return tree_map(_stopped, x)


def _stopped(x: Any) -> Any:
    a = x if isinstance(x, Array) else operand("stop_gradient", x)
    if not dtypes.is_inexact(a.dtype):
        return x
    return a if state.trace is None else _stop_gradient(a)


def polynomial(x: Any, coeffs: Sequence[Any], *, unroll: int | None = None) -> Any:
    """The sum of coeffs[k] x**k, by Horner's rule; `unroll` changes nothing here.

    >>> import toile.lax as lax
    >>> lax.polynomial(3.0, [1.0, 5.0, 2.0])
    Array(34., dtype=float32, weak_type=True)
    """
    x = operand("polynomial", x)
    if not len(coeffs):
        return shapes.full_like(x, 0)
    terms = [_coefficient(c, x) for c in coeffs]
    total = terms.pop()
    if not terms:
        shape = np.broadcast_shapes(x.shape, total.shape)
        return shapes.broadcast_in_dim(
            total, shape, range(len(shape) - total.ndim, len(shape)))
    for c in reversed(terms):
        total = elementwise.add(elementwise.mul(total, x), c)
    return total


def _coefficient(c: Any, x: Any) -> Any:
    if not isinstance(c, Array) and np.ndim(c) == 0:
        return DeviceArray(np.asarray(c, x.dtype), x.weak_type)
    return convert_element_type(c, x.dtype)


def optimization_barrier(operand: Any, /) -> Any:
    """The tree; what it is computed from is not mixed with what is computed from it."""
    leaves, tree = flatten(operand)
    return unflatten(tree, _barrier(*leaves) if leaves else [])


def stage(x: Any, /) -> Any:
    """A number or NumPy array as an Array."""
    return operand("stage", x)


def dce_sink(val: Any, *, prevent_mlir_dce: bool = False) -> None:
    """Nothing: a place for values that nobody reads."""


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """The tree, laid out over devices as a sharding (or a tree of them) says.

    A PartitionSpec is one on the mesh in force, and None there the whole array on each device."""
    leaves, tree = flatten(x)
    given = broadcast_prefix(shardings, x, is_leaf=lambda s: s is None)
    if not mesh_in_force().empty:
        given = [PartitionSpec() if s is None else s for s in given]
    elif any(s is None for s in given):
        raise ValueError(
            "One of with_sharding_constraint arguments got sharding None which is not allowed: "
            f"needed a Sharding, or a mesh in force (use toile.set_mesh){here()}"
        )
    elif any(isinstance(s, PartitionSpec) for s in given):
        raise RuntimeError(
            "with_sharding_constraint requires a non-empty mesh in context if you are passing "
            f"`PartitionSpec`s to shardings, got {shardings} (use toile.set_mesh, or pass a "
            f"NamedSharding){here()}"
        )
    return unflatten(tree, [constrained(v, s) for v, s in zip(leaves, given, strict=True)])


def composite(
    decomposition: Callable[..., Any], name: str, version: int = 0
) -> Callable[..., Any]:
    """A function that others may know under a name; here it is its decomposition."""

    @functools.wraps(decomposition)
    def named(*args: Any, **kwargs: Any) -> Any:
        return decomposition(*args, **kwargs)

    return named


class Token:
    """Stands for the order of effects; it has no value."""

    def block_until_ready(self) -> Token:
        return self


# Functions that are traced take and give tokens without an operand for them.
register(Token, lambda token: ((), None), lambda _, children: Token())


def create_token(_: Any = None) -> Token:
    """A token that comes after nothing."""
    return Token()


def after_all(*operands: Any) -> Token:
    """A token that comes after others."""
    if any(not isinstance(t, Token) for t in operands):
        raise TypeError(
            "Arguments to after_all must be tokens: needed results of create_token, got "
            f"{[type(t).__name__ for t in operands]}{here()}"
        )
    return Token()


# ------------------------------------------------------------------------------------- random bits


class RandomAlgorithm(enum.IntEnum):
    """Generators of `rng_bit_generator`; the default one is Philox."""

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2

    def __repr__(self) -> str:
        return f"<{self.__class__.__name__}.{self.name}: {self.value}>"


_draws = itertools.count()


def rng_uniform(a: Any, b: Any, shape: Any) -> Any:
    """Numbers in [a, b), others at each call (prefer toile.random, which can be repeated)."""
    a, b = operands("rng_uniform", (a, b))
    shape = sizes("rng_uniform", shape)
    if a.dtype != b.dtype or a.shape or b.shape or dtypes.kind(a.dtype) not in "iuf":
        raise shape_error("rng_uniform", "real scalars of equal dtypes", [a.aval, b.aval])
    seed = np.random.SeedSequence(0x70117E, spawn_key=(next(_draws),)).generate_state(2)
    key = random_wrap(DeviceArray(seed.astype(np.uint32)))
    bits = random_bits(key, 32, shape)
    fill = lambda x: shapes.broadcast_in_dim(x, shape, ())
    if dtypes.kind(a.dtype) != "f":
        span = convert_element_type(elementwise.sub(b, a), np.uint32)
        drawn = convert_element_type(elementwise.rem(bits, fill(span)), a.dtype)
        return elementwise.add(drawn, fill(a))
    # 23 random bits under the exponent of 1 make a float32 in [1, 2).
    shifted = elementwise.shift_right_logical(bits, _uint(9))
    unit = bitcast_convert_type(elementwise.bitwise_or(shifted, _uint(0x3F800000)), np.float32)
    unit = convert_element_type(elementwise.sub(unit, 1.0), a.dtype)
    return elementwise.add(elementwise.mul(unit, fill(elementwise.sub(b, a))), fill(a))


def _uint(value: int) -> Any:
    return DeviceArray(np.asarray(value, np.uint32))


def rng_bit_generator(
    key: Any, shape: Any, dtype: Any = np.uint32,
    algorithm: Any = RandomAlgorithm.RNG_DEFAULT, *, out_sharding: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """The next state of a counter-based generator, and bits of an unsigned integer dtype.

    The state is a 64-bit key and a 64-bit counter, as uint32[4] or uint64[2]."""
    state = operand("rng_bit_generator", key)
    shape, new = sizes("rng_bit_generator", shape), user_dtype(dtype, "rng_bit_generator")
    if (state.shape, state.dtype.name) not in (((4,), "uint32"), ((2,), "uint64")):
        raise shape_error("rng_bit_generator", "a key uint32[4] or uint64[2]", [state.aval])
    if dtypes.kind(new) != "u":
        raise TypeError("rng_bit_generator: needed an unsigned integer dtype, got "
                        f"{dtypes.name_of(new)}{here()}")
    words = state
    if state.dtype != np.uint32:
        words = shapes.reshape(bitcast_convert_type(state, np.uint32), (4,))
    k0, k1, low, high = shapes.unstack(words)
    wide = new.itemsize == 8
    draw = _threefry_bits if RandomAlgorithm(algorithm) == 1 else _philox_bits
    bits, used = draw((k0, k1, low, high), shape, wide)
    after = shapes.stack([k0, k1, *_advanced(low, high, _uint(used))])
    if state.dtype != np.uint32:
        after = bitcast_convert_type(shapes.reshape(after, (2, 2)), state.dtype)
    return after, bitcast_convert_type(bits, new) if wide else convert_element_type(bits, new)


def _philox_bits(words: Any, shape: tuple[int, ...], wide: bool) -> tuple[Any, int]:
    """Blocks of four words one after the other, two words to an element if it is wide."""
    k0, k1, low, high = words
    full = (*shape, 2) if wide else shape
    size = math.prod(full)
    blocks = -(-size // 4)
    counter = _advanced(low, high, shapes.iota(np.uint32, blocks))
    keys = [shapes.broadcast_in_dim(k, (blocks,), ()) for k in (k0, k1)]
    rows = shapes.stack(_philox([*counter, *keys], k0, k1), 1)
    bits = shapes.slice_in_dim(shapes.reshape(rows, (4 * blocks,)), 0, size)
    return shapes.reshape(bits, full), blocks


def _threefry_bits(words: Any, shape: tuple[int, ...], wide: bool) -> tuple[Any, int]:
    """Blocks of two words: neighbours along the first even axis, or else the longest one."""
    k0, k1, low, high = words
    if not shape:
        bits, blocks = _threefry_bits(words, (1,), wide)
        return shapes.squeeze(bits, (0,)), blocks
    even = [d for d, n in enumerate(shape) if n % 2 == 0]
    axis = even[0] if even else max(range(len(shape)), key=shape.__getitem__)
    half = shape if wide else (*shape[:axis], -(-shape[axis] // 2), *shape[axis + 1 :])
    blocks = math.prod(half)
    counter = _advanced(low, high, shapes.iota(np.uint32, blocks))
    rows = [shapes.reshape(r, half) for r in _threefry(k0, k1, *counter)]
    if wide:
        return shapes.stack(rows, len(shape)), blocks
    both = shapes.collapse(shapes.stack(rows, axis + 1), axis, axis + 2)
    return shapes.slice_in_dim(both, 0, shape[axis], 1, axis), blocks


def _advanced(low: Any, high: Any, step: Any) -> tuple[Any, Any]:
    """A 64-bit counter, as two words, moved on."""
    start = shapes.broadcast_in_dim(low, step.shape, ())
    moved = elementwise.add(start, step)
    carry = convert_element_type(elementwise.lt(moved, start), np.uint32)
    return moved, elementwise.add(shapes.broadcast_in_dim(high, step.shape, ()), carry)


def _philox(c: list[Any], k0: Any, k1: Any) -> list[Any]:
    """Philox4x32 with ten rounds (Salmon et al., 2011)."""
    add, xor, mul, mulhi = (
        elementwise.add, elementwise.bitwise_xor, elementwise.mul, elementwise.mulhi
    )
    m0, m1 = _uint(0xD2511F53), _uint(0xCD9E8D57)
    for _ in range(10):
        first = xor(xor(mulhi(c[2], m1), c[1]), k0)
        third = xor(xor(mulhi(c[0], m0), c[3]), k1)
        c = [first, mul(c[2], m1), third, mul(c[0], m0)]
        k0, k1 = add(k0, _uint(0x9E3779B9)), add(k1, _uint(0xBB67AE85))
    return c


def _threefry(k0: Any, k1: Any, x: Any, y: Any) -> list[Any]:
    """Threefry2x32 with twenty rounds (Salmon et al., 2011)."""
    add, xor = elementwise.add, elementwise.bitwise_xor
    keys = [k0, k1, xor(xor(k0, k1), _uint(0x1BD11BDA))]
    x, y = add(x, k0), add(y, k1)
    for i in range(5):
        for r in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
            x = add(x, y)
            turned = elementwise.bitwise_or(
                elementwise.shift_left(y, _uint(r)),
                elementwise.shift_right_logical(y, _uint(32 - r)),
            )
            y = xor(turned, x)
        x, y = add(x, keys[(i + 1) % 3]), add(add(y, keys[(i + 2) % 3]), _uint(i + 1))
    return [x, y]
