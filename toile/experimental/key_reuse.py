"""Errors for random keys that are used twice while the option `jax_debug_key_reuse` is on.

`toile.debug_key_reuse(True)` is a context manager that sets the option. While it is set, using a
key that a sampler or `split` has already consumed raises an error, in eager and in traced code:

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

`random.clone` copies a key, and the copy may be used again. The `key_use` rule of an operation
specifies how the operation uses keys (see `toile.engine.key_uses`).
"""

from toile.engine.errors import KeyReuseError

__all__ = ["KeyReuseError"]
