"""Module options with Flax's names, which are stored in `toile.config`.

`config.update("flax_return_frozendict", True)` sets an option. The environment variable
FLAX_RETURN_FROZENDICT or TOILE_RETURN_FROZENDICT sets the initial value of this option. This module
contains a `FlagHolder` for each option. `bool_flag` and `int_flag` define new options.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import Generic, NoReturn, TypeVar

from toile.engine.config import Config, config, define

__all__ = [
    "Config", "FlagHolder", "bool_env", "bool_flag", "config", "flax_filter_frames", "flax_fix_rng",
    "flax_preserve_adopted_names", "flax_profile", "flax_return_frozendict",
    "flax_use_orbax_checkpointing", "int_flag", "static_bool_env", "static_int_env",
    "temp_flip_flag",
]

_T = TypeVar("_T")
_TRUE = ("y", "yes", "t", "true", "on", "1")
_FALSE = ("n", "no", "f", "false", "off", "0")


class FlagHolder(Generic[_T]):
    """An option with a name, an explanation and a current value.

    `config.update` accepts a `FlagHolder` in place of the option's name.

    Args:
        name: name of the option.
        help: text that explains the option.
    """

    def __init__(self, name: str, help: str) -> None:
        self.name = name
        self.__name__ = name.removeprefix("flax_")
        self.__doc__ = f"Flag holder for `{name}`.\n\n{help}"

    @property
    def value(self) -> _T:
        """The option's current value in this thread."""
        return config.read(self.name)

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{self.name}: a FlagHolder has no truth value (use its .value)")

    def __repr__(self) -> str:
        return f"<flag {self.name}={self.value!r}>"


def static_bool_env(varname: str, default: bool) -> bool:
    """Read an environment variable as a boolean.

    Args:
        varname: name of the variable.
        default: result if the variable is not set.

    Returns:
        True for y, yes, t, true, on and 1; False for n, no, f, false, off and 0. Case is ignored.
        If the variable is not set, the result is `default`.

    Raises:
        ValueError: the variable has any other value.
    """
    text = os.getenv(varname)
    if text is None:
        return default
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(f"invalid truth value {text.lower()!r} for environment {varname!r}")


bool_env = static_bool_env


def static_int_env(varname: str, default: int | None) -> int | None:
    """Read an environment variable as an integer.

    Args:
        varname: name of the variable.
        default: result if the variable is not set.

    Returns:
        The integer, or `default` if the variable is not set.

    Raises:
        ValueError: the variable's value is not an integer.
    """
    text = os.getenv(varname)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"invalid integer value {text!r} for environment {varname!r}") from None


def bool_flag(name: str, *, default: bool, help: str) -> FlagHolder[bool]:
    """Define a boolean option for your program in `toile.config`.

    The environment variable with the same name in capitals sets the option's initial value.

    Args:
        name: name of the option, which is converted to lower case.
        default: value if the environment variable is not set.
        help: text that explains the option.

    Returns:
        A `FlagHolder` for the option.

    Raises:
        RuntimeError: there is already an option with this name.
    """
    name = name.lower()
    define(name, static_bool_env(name.upper(), default))
    return FlagHolder(name, help)


def int_flag(name: str, *, default: int | None, help: str) -> FlagHolder[int]:
    """Define an integer option for your program in `toile.config`.

    The environment variable with the same name in capitals sets the option's initial value.

    Args:
        name: name of the option, which is converted to lower case.
        default: value if the environment variable is not set.
        help: text that explains the option.

    Returns:
        A `FlagHolder` for the option.

    Raises:
        RuntimeError: there is already an option with this name.
    """
    name = name.lower()
    define(name, static_int_env(name.upper(), default))
    return FlagHolder(name, help)


def temp_flip_flag(var_name: str, var_value: bool) -> AbstractContextManager[None]:
    """Set one of Flax's options in all threads for the duration of a block.

    Args:
        var_name: name of the option without the prefix `flax_`, such as "return_frozendict".
        var_value: value of the option inside the block.

    Returns:
        A context manager.
    """
    return config.temp_flip_flag(var_name, var_value)


flax_filter_frames: FlagHolder[bool] = FlagHolder(
    "flax_filter_frames", "Whether tracebacks leave out toile's own frames."
)
flax_profile: FlagHolder[bool] = FlagHolder(
    "flax_profile", "Whether module methods run in named scopes, which profiles show."
)
flax_use_orbax_checkpointing: FlagHolder[bool] = FlagHolder(
    "flax_use_orbax_checkpointing",
    "Accepted for compatibility with Flax; toile never saves checkpoints with Orbax.",
)
flax_preserve_adopted_names: FlagHolder[bool] = FlagHolder(
    "flax_preserve_adopted_names",
    "Whether a module that was created elsewhere keeps its name when it becomes a submodule.",
)
flax_return_frozendict: FlagHolder[bool] = FlagHolder(
    "flax_return_frozendict", "Whether `init` and `apply` return FrozenDicts instead of dicts."
)
flax_fix_rng: FlagHolder[bool] = FlagHolder(
    "flax_fix_rng_separator",
    "Whether keys are derived from paths with separators between the names, so that the paths"
    " ('ab', 'c') and ('a', 'bc') have different keys.",
)
