"""A transformer block with masks."""
import toile.linen as nn
import toile.numpy as jnp
from toile import Array, random


class TransformerBlock(nn.Module):
    """Attention and a feed-forward layer."""
    heads: int
    width: int

    @nn.compact
    def __call__(self, x: Array, mask: Array | None = None) -> Array:
        """The block's output."""
        h = nn.LayerNorm()(x)
        h = nn.MultiHeadDotProductAttention(num_heads=self.heads, qkv_features=self.width)(h, mask=mask)
        x = x + h
        return x + nn.Dense(self.width)(nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm()(x))))

tokens = jnp.ones((2, 5), jnp.int32)
mask = nn.make_causal_mask(tokens)
x = nn.Embed(100, 8)
block = TransformerBlock(heads=2, width=8)
variables = block.init(random.key(0), jnp.ones((2, 5, 8)), mask)
