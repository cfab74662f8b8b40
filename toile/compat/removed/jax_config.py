"""The module `jax.config`, from which programs imported `config`, and options that JAX removed."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from toile.engine.config import config

__all__ = ["options"]


class _Flags:
    """`config.FLAGS.jax_enable_x64`: the values of options."""

    def __getattr__(self, name: str) -> Any:
        return getattr(config, name)


FLAGS = _Flags()


def enable_omnistaging() -> None:
    """Nothing: all operations are staged where they are called, since 2021 in JAX as well."""


def disable_omnistaging() -> None:
    """Nothing, for the same reason."""


class _Options(ModuleType):
    """A module whose attributes are those of `config`, so that it can stand for it."""

    omnistaging_enabled = True

    @property
    def x64_enabled(self) -> bool:
        """Whether there are 64-bit dtypes."""
        return bool(config.jax_enable_x64)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module 'jax.config' has no attribute {name!r}")
        return getattr(config, name)


options = _Options("jax.config", __doc__)
options.__dict__.update(  # `config.config` has the same attributes
    FLAGS=FLAGS, enable_omnistaging=enable_omnistaging, disable_omnistaging=disable_omnistaging,
    config=options, update=config.update)
