"""Decoders: models that read a few tokens at a time and store what they have read in a cache.

`Decoder` is the interface that the loops in this package use. `ModuleDecoder` wraps a linen module.
The functions at the end select and replace rows of a cache of any structure.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from typing import Any, Protocol

from toile import api, lax, random, tree
from toile import numpy as jnp
from toile.engine.annotations import Array, PyTree
from toile.engine.source import describe, here
from toile.generation.compiled_programs import compiled
from toile.linen.module import Module


class Decoder(Protocol):
    """Interface of models that read tokens and store them in a cache.

    Decoders must be hashable, because compiled programs are cached for each decoder.

    >>> from toile import generation
    >>> isinstance(generation.ModuleDecoder, type)
    True
    """

    def __hash__(self) -> int:
        """Return the hash, which is used to look up compiled programs."""
        ...

    @property
    def rings(self) -> bool:
        """Whether a cache may have fewer slots than there are positions.

        In this case, position `p` is stored in slot `p % slots`, and tokens at negative positions
        are not stored.
        """
        ...

    def empty(self, batch: int, length: int) -> PyTree:
        """Return a cache without tokens.

        Args:
            batch: number of rows.
            length: number of slots of each row.

        Returns:
            A tree of arrays, each of which has an axis for the rows.
        """
        ...

    def apply(
        self, variables: PyTree, cache: PyTree, tokens: Array, positions: Array
    ) -> tuple[Array, PyTree]:
        """Read tokens and store them in the cache.

        If the cache already contains a token at one of the positions, the new token replaces it.
        Old tokens at higher positions must then have no effect.

        Args:
            variables: the model's variables, except for the cache.
            cache: the cache.
            tokens: integers of shape (batch, length).
            positions: integers of shape (batch, length), which increase by 1 along each row. A row
                may end with padding, whose position is -1. If a row contains only padding, its
                part of the cache will not be used again.

        Returns:
            The logits, of shape (batch, length, vocabulary), and the new cache.
        """
        ...


@dataclasses.dataclass(frozen=True)
class ModuleDecoder:
    """A decoder that calls a linen module.

    The module is called as `model(tokens, positions=positions, decode=True)`; arguments that its
    `__call__` does not accept are left out. It must return logits of shape
    (batch, length, vocabulary). If `model.init` is called in the same way with an array of tokens
    of the maximum length, it must create the collection `cache`.

    Modules that use `cached_attention` can read many rows at different positions. The caches of
    other modules contain an integer that counts the tokens, such as `cache_index` of
    `nn.MultiHeadDotProductAttention`. These modules are run with `toile.vmap`, so that each row has
    its own counter. The attention layers of linen can read only one token at a time.

    Args:
        model: the module.

    Raises:
        ValueError: the module creates no cache.

    >>> import toile.linen as nn
    >>> from toile import generation
    >>> class Model(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, tokens, decode=False):
    ...         x = nn.Embed(10, 8)(tokens)
    ...         return nn.Dense(10)(nn.MultiHeadDotProductAttention(2, decode=decode)(x))
    >>> decoder = generation.ModuleDecoder(Model())
    >>> toile.tree.map(jnp.shape, decoder.empty(3, 16))["MultiHeadDotProductAttention_0"]
    {'cache_index': (3,), 'cached_key': (3, 1, 16, 2, 4), 'cached_value': (3, 1, 16, 2, 4)}
    """

    model: Module

    @property
    def rings(self) -> bool:
        """Whether a cache may have fewer slots than there are positions.

        This is the case for modules that use `cached_attention`.
        """
        names = [tree_name(path) for path, _ in _shapes(self.model, 1, 2)]
        return not self._by_row and "cached_positions" in names

    def empty(self, batch: int, length: int) -> PyTree:
        """Return a cache without tokens.

        Args:
            batch: number of rows.
            length: number of slots of each row.

        Returns:
            A tree of arrays, each with an axis for the rows.
        """
        return _empty(self, batch, length, None)

    def apply(
        self, variables: PyTree, cache: PyTree, tokens: Array, positions: Array
    ) -> tuple[Array, PyTree]:
        """Read tokens and store them in the cache.

        Args:
            variables: the module's variables, `{"params": ...}`.
            cache: the cache.
            tokens: integers of shape (batch, length).
            positions: integers of shape (batch, length).

        Returns:
            The logits, of shape (batch, length, vocabulary), and the new cache.
        """
        if not self._by_row:
            return self._call(variables, cache, tokens, positions)
        read = self._one_by_one if self._single else self._row
        rows = api.vmap(read, in_axes=(None, 0, 0, 0))
        # Padding is stored after the tokens, and later tokens replace it before it is read.
        positions = jnp.maximum(positions[:, :1], 0) + jnp.arange(tokens.shape[1])
        return rows(variables, cache, tokens, positions)

    @functools.cached_property
    def _by_row(self) -> bool:
        return bool(_counters(self.model))

    @functools.cached_property
    def _single(self) -> bool:
        return any(name == "cache_index" for name in _counters(self.model))

    def _row(self, variables: PyTree, cache: PyTree, tokens: Array, positions: Array) -> Any:
        """Read the tokens of one row; the counters are set to the first position."""
        names = _counters(self.model)
        cache = tree.map_with_path(
            lambda path, x: jnp.full_like(x, positions[0]) if tree_name(path) in names else x, cache
        )
        logits, cache = self._call(variables, cache, tokens[None], positions[None])
        return logits[0], cache

    def _one_by_one(self, variables: PyTree, cache: PyTree, tokens: Array, positions: Array) -> Any:
        if len(tokens) == 1:
            return self._row(variables, cache, tokens, positions)

        def step(cache: PyTree, x: tuple[Array, Array]) -> Any:
            logits, cache = self._row(variables, cache, x[0][None], x[1][None])
            return cache, logits[0]

        cache, logits = lax.scan(step, cache, (tokens, positions))
        return logits, cache

    def _call(self, variables: PyTree, cache: PyTree, tokens: Array, positions: Array) -> Any:
        logits, changed = self.model.apply(
            {**variables, "cache": cache}, tokens, **_options(self.model, positions),
            mutable=["cache"],
        )  # fmt: skip
        return logits, changed["cache"]


def decoder_of(model: Any) -> Decoder:
    """Return `model` if it is a decoder; wrap a linen module in a `ModuleDecoder`."""
    if isinstance(model, Module):
        decoder = ModuleDecoder(model)
        if not _shapes(model, 1, 2):
            raise ValueError(
                f"generation: needed a module that creates a collection `cache` when it is called "
                f"with decode=True, got {type(model).__name__}, which creates none (use "
                f"cached_attention, or attention layers with decode=True){here()}"
            )
        return decoder
    if not all(hasattr(model, name) for name in ("apply", "empty", "rings")):
        raise TypeError(
            f"generation: needed a linen module, or a decoder with `apply`, `empty` and `rings`, "
            f"got {describe(model)} (pass the module itself, not a method of it){here()}"
        )
    return model


def _options(model: Module, positions: Array) -> dict[str, Any]:
    """Return the arguments other than the tokens that the module's `__call__` accepts."""
    taken = _accepted(model)
    options = {"positions": positions, "decode": True}
    return {name: value for name, value in options.items() if name in taken}


def _accepted(model: Module) -> set[str]:
    """Return the names of the arguments that the module's `__call__` accepts.

    If it accepts all keyword arguments, it is assumed to pass them to the modules in its fields."""
    taken = inspect.signature(type(model).__call__).parameters
    names = set(taken)
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in taken.values()):
        inner = [getattr(model, f.name, None) for f in dataclasses.fields(model)
                 if f.name != "parent"]
        names.update(*(_accepted(m) for m in inner if isinstance(m, Module) and m is not model))
    return names


def _init(model: Module, batch: int, length: int, variables: PyTree = None) -> PyTree:
    """Create the cache of a module with a program that computes nothing else.

    Keys and values have the dtypes that the module computes them in. They follow from `variables`
    if these have other dtypes than the module's initial variables."""
    tokens = jnp.zeros((batch, length), jnp.int32)
    positions = jnp.broadcast_to(jnp.arange(length, dtype=jnp.int32), (batch, length))
    options = _options(model, positions)
    made = dict(model.init(random.key(0), tokens, **options))
    cache = made.pop("cache", {})
    if variables is None or _dtypes(made) == _dtypes(variables):
        return cache
    return model.apply(variables, tokens, **options, mutable=["cache"])[1].get("cache", {})


def _dtypes(variables: PyTree) -> list[tuple[str, Any]]:
    """Return the paths and dtypes of all variables."""
    return [(str(path), x.dtype) for path, x in tree.leaves_with_path(variables)]


@functools.lru_cache(64)
def _shapes(model: Module, batch: int, length: int) -> tuple[tuple[Any, Any], ...]:
    """Return the paths and shapes of the arrays in the cache of a module."""
    shapes = api.eval_shape(lambda: _init(model, batch, length))
    return tuple(tree.leaves_with_path(shapes))


@functools.lru_cache(64)
def _counters(model: Module) -> frozenset[str]:
    """Return names of integers whose shapes depend on neither the batch size nor the length."""
    small, large = _shapes(model, 1, 2), _shapes(model, 2, 3)
    return frozenset(
        tree_name(path)
        for (path, x), (_, y) in zip(small, large, strict=True)
        if x.shape == y.shape and jnp.issubdtype(x.dtype, jnp.integer)
    )


def tree_name(path: tuple[Any, ...]) -> str:
    """Return the last part of a path in a tree."""
    return str(getattr(path[-1], "key", path[-1])) if path else ""


def empty_cache(decoder: Decoder, variables: PyTree, batch: int, length: int) -> PyTree:
    """Return a cache without tokens, in the dtypes that a module computes with `variables`."""
    if type(decoder) is ModuleDecoder:
        return _empty(decoder, batch, length, variables)
    return decoder.empty(batch, length)


def last_logits(
    decoder: Decoder, variables: PyTree, cache: PyTree, tokens: Array, positions: Array
) -> tuple[Array, PyTree]:
    """Read tokens; return the logits [batch, vocabulary] of the last in each row, and the cache.

    The compiler selects the last tokens before the product with the vocabulary."""
    last = (jnp.arange(len(tokens)), jnp.argmax(positions, axis=1))
    logits, cache = decoder.apply(variables, cache, tokens, positions)
    if type(decoder) is ModuleDecoder and decoder._single:
        # The loop over tokens would compute the logits of all; instead, it computes none, and the
        # last token is read again.
        again = (tokens[last][:, None], positions[last][:, None])
        logits, cache = decoder.apply(variables, cache, *again)
        return logits[:, 0], cache
    return logits[last], cache


@functools.partial(compiled, static_argnums=(0, 1, 2))
def _empty(decoder: ModuleDecoder, batch: int, length: int, variables: PyTree) -> PyTree:
    if not decoder._by_row:
        return _init(decoder.model, batch, length, variables)
    one = _init(decoder.model, 1, length, variables)
    return tree.map(lambda x: jnp.broadcast_to(x, (batch, *x.shape)), one)


@functools.lru_cache(64)
def row_axes(decoder: Decoder) -> tuple[int, ...]:
    """Return the axis for the rows in each array of a cache."""
    two, three = (api.eval_shape(lambda n=n: decoder.empty(n, 4)) for n in (2, 3))
    pairs = list(zip(tree.leaves(two), tree.leaves(three), strict=True))
    axes = [[i for i, n in enumerate(x.shape) if n != y.shape[i]] for x, y in pairs]
    if any(len(found) != 1 for found in axes):
        lacking = [describe(x) for (x, _), found in zip(pairs, axes, strict=True) if not found]
        raise ValueError(
            f"generation: needed an axis for the rows in every array of the cache, got {lacking} "
            f"without one (give each array of the cache a batch axis){here()}"
        )
    return tuple(found[0] for found in axes)


def take_rows(decoder: Decoder, cache: PyTree, rows: Array) -> PyTree:
    """Return a cache that consists of some rows of another one."""
    leaves, structure = tree.flatten(cache)
    taken = [jnp.take(x, rows, axis=a) for x, a in zip(leaves, row_axes(decoder), strict=True)]
    return tree.unflatten(structure, taken)


def put_rows(decoder: Decoder, cache: PyTree, rows: Array, new: PyTree) -> PyTree:
    """Replace some rows of a cache."""
    leaves, structure = tree.flatten(cache)
    parts = zip(leaves, tree.leaves(new), row_axes(decoder), strict=True)
    put = [x.at[(*(slice(None),) * a, rows)].set(y) for x, y, a in parts]
    return tree.unflatten(structure, put)
