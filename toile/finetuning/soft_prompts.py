"""Prompt tuning: vectors that take the place of the embeddings of the first tokens."""

from __future__ import annotations

from typing import Any

from toile import linen
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.typing import Initializer

__all__ = ["SoftPrompt"]


class SoftPrompt(linen.Module):
    """A language model with additional tokens, whose embeddings are parameters.

    The model itself does not change. The tokens `vocabulary`, `vocabulary + 1`, ...,
    `vocabulary + length - 1` are looked up in the parameter `prompt` of shape (length, features),
    and all other tokens are looked up in the table of the model. `with_prompt` puts the additional
    tokens before the tokens of a text. To train only the prompt, pass `trainable="prompt"` to
    `TrainState.create`.

    The module's parameters are the array `prompt` and the dict `model`, which contains the
    parameters of the model.

    Args:
        model: the module; its first argument is an array of tokens.
        vocabulary: number of tokens of the model.
        features: length of an embedding.
        length: number of additional tokens.
        embedding: name of the layer `Embed` in the model.
        prompt_init: initializer of the prompt.

    >>> import toile.linen as nn
    >>> from toile.finetuning import SoftPrompt
    >>> class Model(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, tokens):
    ...         embed = nn.Embed(10, 4, name="embedding")
    ...         return embed.attend(embed(tokens))
    >>> model = SoftPrompt(Model(), vocabulary=10, features=4, length=3)
    >>> tokens = model.with_prompt(jnp.array([[1, 2]]))
    >>> tokens
    Array([[10, 11, 12,  1,  2]], dtype=int32)
    >>> variables = model.init(key(0), tokens)
    >>> toile.tree.map(jnp.shape, variables["params"])
    {'model': {'embedding': {'embedding': (10, 4)}}, 'prompt': (3, 4)}
    >>> model.apply(variables, tokens).shape
    (1, 5, 10)
    """

    model: linen.Module
    vocabulary: int
    features: int
    length: int = 8
    embedding: str = "embedding"
    prompt_init: Initializer = linen.initializers.normal(0.02)

    @linen.compact
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model.

        Args:
            *args, **kwargs: arguments of the model.

        Returns:
            The result of the model.
        """
        prompt = self.param("prompt", self.prompt_init, (self.length, self.features))

        def looked_up(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
            module = context.module
            if context.method_name != "__call__" or module.name != self.embedding or not isinstance(
                    module, linen.Embed):
                return call(*args, **kwargs)
            tokens = jnp.asarray(args[0])
            place = tokens - self.vocabulary
            plain = call(jnp.where(place < 0, tokens, 0), *args[1:], **kwargs)
            chosen = jnp.take(prompt, jnp.maximum(place, 0), axis=0, mode="clip")
            return jnp.where((place < 0)[..., None], plain, chosen.astype(plain.dtype))

        with linen.intercept_methods(looked_up):
            return self.model(*args, **kwargs)

    @linen.nowrap
    def with_prompt(self, tokens: ArrayLike) -> Array:
        """Put the additional tokens before the tokens of each row.

        Args:
            tokens: array of integers of shape (..., n).

        Returns:
            An array of shape (..., length + n).
        """
        tokens = jnp.asarray(tokens)
        own = jnp.arange(self.vocabulary, self.vocabulary + self.length, dtype=tokens.dtype)
        own = jnp.broadcast_to(own, (*tokens.shape[:-1], self.length))
        return jnp.concatenate([own, tokens], axis=-1)
