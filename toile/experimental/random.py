"""A random generator with a state, like that of `numpy.random.default_rng`.

The generator consists of a key and of a Ref that counts the calls. Each call folds the count into
the key and draws from the result with a function of `toile.random`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from toile import dtypes, random
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike, DTypeLike
from toile.engine.refs import Ref, is_ref
from toile.engine.source import describe, here
from toile.engine.trace import runs_at_once
from toile.random.keys import PRNGSpec
from toile.ref import addupdate, new_ref
from toile.tree_util import GetAttrKey, register_pytree_with_keys

__all__ = ["StatefulPRNG", "stateful_rng"]

Size = int | Sequence[int] | None


def _shape_of(size: Size, *parameters: ArrayLike) -> tuple[int, ...]:
    """The shape of the results; by default the shape to which the parameters broadcast."""
    if size is None:
        return np.broadcast_shapes(*map(np.shape, parameters))
    if isinstance(size, (int, np.integer)):
        return (operator.index(size),)
    return tuple(map(operator.index, size))


class StatefulPRNG:
    """A random generator whose methods draw different numbers at each call.

    Create one with `stateful_rng`. A generator is a pytree: it can be an argument of a transformed
    function, which then changes its state, or a variable that the function uses. A transformed
    function cannot return it.

    Args:
        _base_key: typed key.
        _counter: Ref of an integer.

    Raises:
        ValueError: an argument has another type.
    """

    __slots__ = ("_base_key", "_counter")

    def __init__(self, _base_key: Array, _counter: Ref):
        if not isinstance(_base_key, Array) or not dtypes.issubdtype(
            _base_key.dtype, dtypes.prng_key
        ):
            raise ValueError(
                f"Expected base_key to be a typed PRNG key; got {describe(_base_key)} (call "
                f"toile.experimental.random.stateful_rng){here()}"
            )
        if not is_ref(_counter):
            raise ValueError(
                f"Expected counter to be a scalar integer ref; got {describe(_counter)} (call "
                f"toile.experimental.random.stateful_rng){here()}"
            )
        self._base_key, self._counter = _base_key, _counter

    def __repr__(self) -> str:
        return f"StatefulPRNG(_base_key={self._base_key}, _counter={self._counter})"

    def key(self, shape: int | Sequence[int] = ()) -> Array:
        """Return a new key, or an array of keys of the given shape.

        >>> rng = toile.experimental.random.stateful_rng(0)
        >>> bool(rng.key() == rng.key())
        False
        """
        if self._base_key.shape:
            raise ValueError(
                "cannot operate on split stateful generator: needed a single generator, got "
                f"{self._base_key.shape} (map over it with toile.vmap){here()}"
            )
        key = random.fold_in(self._base_key, self._counter[...])
        addupdate(self._counter, ..., 1)
        many = _shape_of(shape)
        return random.split(key, many) if many else key

    def random(self, size: Size = None, dtype: DTypeLike = float) -> Array:
        """Draw floats that are at least 0 and less than 1."""
        return random.uniform(self.key(), _shape_of(size), dtype)

    def uniform(
        self, low: ArrayLike = 0, high: ArrayLike = 1, size: Size = None, *,
        dtype: DTypeLike = float,
    ) -> Array:  # fmt: skip
        """Draw floats that are at least `low` and less than `high`."""
        return random.uniform(self.key(), _shape_of(size, low, high), dtype, low, high)

    def normal(
        self, loc: ArrayLike = 0, scale: ArrayLike = 1, size: Size = None, *,
        dtype: DTypeLike = float,
    ) -> Array:  # fmt: skip
        """Draw from a normal distribution with mean `loc` and standard deviation `scale`."""
        drawn = random.normal(self.key(), _shape_of(size, loc, scale), dtype)
        return (jnp.asarray(loc) + jnp.asarray(scale) * drawn).astype(dtype)

    def integers(
        self, low: ArrayLike, high: ArrayLike | None = None, size: Size = None, *,
        dtype: DTypeLike = int,
    ) -> Array:  # fmt: skip
        """Draw integers from `low` to `high - 1`; with one argument, from 0 to `low - 1`."""
        if high is None:
            low, high = 0, low
        return random.randint(self.key(), _shape_of(size, low, high), low, high, dtype)

    def split(self, num: int | Sequence[int]) -> StatefulPRNG:
        """Return `num` independent generators as one object, over which `vmap` can map.

        >>> rng = toile.experimental.random.stateful_rng(123)
        >>> toile.vmap(lambda rng, x: x + rng.uniform())(rng.split(3), jnp.zeros(3)).shape
        (3,)
        """
        return StatefulPRNG(self.key(num), new_ref(jnp.zeros(num, int)))

    def spawn(self, n_children: int) -> list[StatefulPRNG]:
        """Return a list of independent generators."""
        return [StatefulPRNG(key, new_ref(0)) for key in self.key(n_children)]


def _restored(_: None, children: Iterable[Any]) -> StatefulPRNG:
    made = object.__new__(StatefulPRNG)  # the leaves of a tree can be anything
    made._base_key, made._counter = children
    return made


_FIELDS = GetAttrKey("_base_key"), GetAttrKey("_counter")
register_pytree_with_keys(
    StatefulPRNG,
    lambda rng: (tuple(zip(_FIELDS, (rng._base_key, rng._counter), strict=True)), None),
    _restored,
    lambda rng: ((rng._base_key, rng._counter), None),
)


def stateful_rng(
    seed: ArrayLike | None = None, *, impl: str | PRNGSpec | None = None
) -> StatefulPRNG:
    """Create a random generator with a state.

    Args:
        seed: integer seed. If None, the seed is taken from the operating system, which is possible
            only outside transformed functions.
        impl: name of the generator of the key, such as "threefry2x32".

    Returns:
        The generator.

    Raises:
        TypeError: `seed` is None in a transformed function.

    >>> rng = toile.experimental.random.stateful_rng(42)
    >>> rng.uniform()
    Array(0.5302608, dtype=float32)
    >>> toile.jit(rng.uniform)()
    Array(0.72766423, dtype=float32)
    """
    if seed is None:
        if not runs_at_once():
            raise TypeError(
                "When used within transformed code, jax.experimental.random.stateful_rng() requires"
                f" an explicit seed to be set: needed an integer, got None{here()}"
            )
        entropy: Any = np.random.SeedSequence().entropy
        seed = np.int64(entropy & np.iinfo(np.int64).max)
    return StatefulPRNG(random.key(seed, impl=impl), new_ref(0))
