"""Embed: a vector for each integer, and the same vectors as the weights of an output layer."""

from toile import numpy as jnp
from toile.core.nn.linear import default_embed_init
from toile.engine.source import here
from toile.linen.dtypes import DtypePromotion, promote_dtype
from toile.linen.module import Module
from toile.typing import Array, Dtype, Initializer


class Embed(Module):
    """A table of vectors, indexed by integers in [0, num_embeddings).

    Negative indices count from the end; beyond the table the result is NaN. A table of one vector
    gives that vector for every index.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> layer = nn.Embed(num_embeddings=5, features=3)
    >>> words = jnp.array([[0, 1, 2, 1]])
    >>> variables = layer.init(toile.random.key(0), words)
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'embedding': (5, 3)}}
    >>> layer.apply(variables, words).shape
    (1, 4, 3)
    >>> layer.apply(variables, jnp.ones((2, 3)), method="attend").shape
    (2, 5)

    Attributes:
      num_embeddings: number of vectors.
      features: length of a vector.
      dtype: of the result; None is the table's.
      param_dtype: of the table when it is made.
      embedding_init: initializer.
      promote_dtype: called with (embedding,) and dtype, and with (query, embedding) by `attend`.
    """

    num_embeddings: int
    features: int
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    embedding_init: Initializer = default_embed_init
    promote_dtype: DtypePromotion = promote_dtype

    def setup(self) -> None:
        """Declare the table."""
        self.embedding = self.param(
            "embedding", self.embedding_init, (self.num_embeddings, self.features), self.param_dtype
        )

    def __call__(self, inputs: Array) -> Array:
        """The vectors at `inputs`: its shape with an axis of `features` at the end."""
        if not jnp.issubdtype(inputs.dtype, jnp.integer):
            raise ValueError(
                "Input type must be an integer or unsigned integer. Embed: needed indices, got "
                f"{inputs.dtype} of shape {inputs.shape} (convert with .astype(int)){here()}"
            )
        (embedding,) = self.promote_dtype(self.embedding, dtype=self.dtype, inexact=False)
        if self.num_embeddings == 1:
            return jnp.broadcast_to(embedding, (*inputs.shape, self.features))
        return jnp.take(embedding, inputs, axis=0)

    def attend(self, query: Array) -> Array:
        """Inner products of `query`, over its last axis, with every vector of the table."""
        query, embedding = self.promote_dtype(query, self.embedding, dtype=self.dtype)
        return jnp.dot(query, embedding.T)
