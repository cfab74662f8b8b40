"""Random keys that are used twice, found while the flag `jax_debug_key_reuse` is on.

`toile.debug_key_reuse(True)` is the flag as a context manager. Under it a key that a sampler or
`split` has used up is refused by the next one, at once and in whatever jit traces:

>>> import toile
>>> from toile import random
>>> with toile.debug_key_reuse(True):
...     key = random.key(0)
...     first = random.normal(key)
...     try:
...         random.normal(key)
...     except KeyReuseError as error:
...         print(str(error)[:23])
Previously-consumed key

`random.clone` gives the same key to be used once more. Operations say
what they do to keys by `key_use` (see `toile.engine.key_uses`).
"""

from toile.engine.errors import KeyReuseError

__all__ = ["KeyReuseError"]
