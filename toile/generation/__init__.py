"""Generating tokens with decoders: sampling, beam search, speculative decoding and streaming.

`generate` continues prompts, `stream` yields tokens as they are generated, and `beam_search` finds
likely continuations. These functions work with any module that stores what it has read in the
collection `cache`. Samplers such as `temperature` and `top_p` change the logits before a token is
drawn.

>>> from toile import generation
>>> class Successor:  # a decoder without parameters: token 3 follows token 2, and so on
...     rings = False
...     def empty(self, batch, length):
...         return jnp.zeros((batch, length))
...     def apply(self, variables, cache, tokens, positions):
...         return toile.nn.one_hot(tokens + 1, 10), cache
>>> [one.tokens for one in generation.generate(Successor(), {}, [[2], [4, 5]], max_tokens=3)]
[[3, 4, 5], [6, 7, 8]]
"""

from toile.generation.attention_caches import cached_attention
from toile.generation.beams import Beam, beam_search
from toile.generation.decoders import Decoder, ModuleDecoder
from toile.generation.requests import Completion, Piece, generate, stream
from toile.generation.samplers import (
    chain,
    greedy,
    min_p,
    occurrence_penalty,
    repetition_penalty,
    temperature,
    top_k,
    top_p,
)
from toile.generation.speculation import Draft
from toile.generation.text_pieces import TextPieces

__all__ = [
    "Beam", "Completion", "Decoder", "Draft", "ModuleDecoder", "Piece", "TextPieces", "beam_search",
    "cached_attention", "chain", "generate", "greedy", "min_p", "occurrence_penalty",
    "repetition_penalty", "stream", "temperature", "top_k", "top_p",
]  # fmt: skip
