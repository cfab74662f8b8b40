"""Run packages written for JAX and Flax on toile, and load the weights of other frameworks.

`from toile.interop import optax`, or `load("optax")`, imports the installed Optax with toile in
place of jax. Optax's source is imported a second time, under the name `toile.interop.optax`, and
everything that it imports from `jax` and `flax` comes from toile. `sys.modules["jax"]` does not
change: the same process may import the real jax, but jax need not be installed.

>>> from toile.interop import optax
>>> tx = optax.sgd(0.1)
>>> params = {"w": toile.numpy.ones(2)}
>>> updates, _ = tx.update({"w": toile.numpy.ones(2)}, tx.init(params))
>>> optax.apply_updates(params, updates)
{'w': Array([0.9, 0.9], dtype=float32)}
"""

from typing import Any

from toile.interop import redirect
from toile.interop.process import install, installed
from toile.interop.redirect import load

__all__ = ["install", "installed", "load"]

redirect.install()


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return redirect.attribute(name)
    except ModuleNotFoundError as error:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r} ({error})") from error
