"""The layer Embed, which maps integers to vectors and can also serve as an output layer."""

from toile import numpy as jnp
from toile.core.nn.linear import default_embed_init
from toile.engine.source import here
from toile.linen.dtypes import DtypePromotion, promote_dtype
from toile.linen.module import Module
from toile.numpy.selection import take_telling
from toile.typing import Array, Dtype, Initializer


class Embed(Module):
    """A table of trainable vectors, which are looked up by their integer indices.

    For an input of shape (...), the result has shape (..., features). The parameter is `embedding`
    of shape (num_embeddings, features). Negative integers count from the end of the table. For
    integers that are out of range, the result is NaN. If the table has only one vector, however,
    the result is that vector for every integer. The table can also serve as the weights of an
    output layer; see `attend`.

    Args:
        num_embeddings: number of vectors.
        features: length of a vector.
        dtype: dtype of the result; if None, the dtype of the table is used.
        param_dtype: dtype of the table when it is created.
        embedding_init: initializer of the table; by default, a normal distribution with variance
            `1 / features`.
        promote_dtype: function that converts arrays to a common dtype. The layer calls it as
            `promote_dtype(embedding, dtype=dtype, inexact=False)`, and `attend` calls it as
            `promote_dtype(query, embedding, dtype=dtype)`.

    Raises:
        ValueError: the input is not an array of integers.

    >>> import toile.linen as nn
    >>> layer = nn.Embed(num_embeddings=5, features=3)
    >>> words = jnp.array([[0, 1, 2, 1]])
    >>> variables = layer.init(key(0), words)
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'embedding': (5, 3)}}
    >>> layer.apply(variables, words).shape
    (1, 4, 3)
    >>> layer.apply(variables, jnp.ones((2, 3)), method="attend").shape
    (2, 5)
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
        """Look up the vector for each integer.

        Args:
            inputs: array of integers, of any shape.

        Returns:
            An array of shape (*inputs.shape, features).
        """
        if not jnp.issubdtype(inputs.dtype, jnp.integer):
            raise ValueError(
                "Input type must be an integer or unsigned integer. Embed: needed indices, got "
                f"{inputs.dtype} of shape {inputs.shape} (convert with .astype(int)){here()}"
            )
        (embedding,) = self.promote_dtype(self.embedding, dtype=self.dtype, inexact=False)
        if self.num_embeddings == 1:
            return jnp.broadcast_to(embedding, (*inputs.shape, self.features))
        rows = self.num_embeddings
        return take_telling(embedding, inputs, 0, "Embed", lambda i: (
            f"Embed: id {i} is out of bounds for a table of {rows} rows (num_embeddings={rows}): "
            f"its vector is NaN (needed ids in 0 ... {rows - 1}: check the vocabulary)"))

    def attend(self, query: Array) -> Array:
        """Compute the inner products of the queries with all vectors of the table.

        Use this method to share the weights of the table with an output layer.

        Args:
            query: array of shape (..., features).

        Returns:
            The inner products, an array of shape (..., num_embeddings).
        """
        query, embedding = self.promote_dtype(query, self.embedding, dtype=self.dtype)
        return jnp.dot(query, embedding.T)
