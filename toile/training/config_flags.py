"""The flags `--config=FILE` and `--config.FIELD=VALUE` of ml_collections, and `--checks=NAMES`.

If a file or a field does not exist, the program ends without a traceback, and a one-line message
suggests the most similar existing name. ml_collections is imported when a flag is defined.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toile.engine.check_switch import checks
from toile.engine.flag_table import check_names
from toile.engine.source import message
from toile.engine.suggestions import did_you_mean, nearest

if TYPE_CHECKING:
    from absl.flags import FlagHolder

__all__ = ["DEFINE_checks", "DEFINE_config_file", "unknown_field"]


def DEFINE_config_file(
    name: str, default: str | os.PathLike[str], help_string: str = "The hyperparameters."
) -> FlagHolder[Any]:
    """Define a flag that selects a config file, and flags that set the config's fields.

    The file must define a function `get_config` that returns an `ml_collections.ConfigDict`. If
    `name` is `"config"`, `--config=FILE` selects a different file, and `--config.rate=0.1` sets a
    field.

    Args:
        name: name of the flag.
        default: path of the file that is used if the command line does not select a file.
        help_string: description of the flag in `--help`.

    Returns:
        The flag's holder, whose attribute `value` is the config once the command line has been
        parsed.

    Raises:
        ImportError: ml_collections is not installed.
        SystemExit: the command line names a file or a field that does not exist.

    Differences:
        For a field that does not exist, ml_collections raises AttributeError. For a file that does
        not exist, it raises OSError when the config is first used.

    >>> from toile.training import config_flags
    >>> CONFIG = config_flags.DEFINE_config_file("config", "configs/tiny.py")  # doctest: +SKIP
    >>> CONFIG.value.batch_size  # doctest: +SKIP
    128
    """
    try:
        from absl import flags
        from ml_collections import config_flags
    except ImportError as error:
        raise ImportError(
            "DEFINE_config_file: needed ml_collections, which is not installed: "
            "pip install 'toile[examples]'"
        ) from error
    path, fields = _given(name, sys.argv[1:])
    chosen = os.fspath(default) if path is None else path
    _check_file(name, Path(chosen.partition(":")[0]), Path(default).parent)  # FILE:ARGUMENT
    if fields:
        apart = flags.FlagValues()  # the config without the fields that are set
        config_flags.DEFINE_config_file(name, chosen, flag_values=apart, sys_argv=[""])
        for field in fields:
            _check_field(name, field, apart[name].value, chosen)
    return config_flags.DEFINE_config_file(name, os.fspath(default), help_string)


def DEFINE_checks(name: str = "checks") -> FlagHolder[Any]:
    """Define a flag that turns on checks for silent mistakes, as in `--checks=nan,index`.

    Parsing the command line turns the checks on, as a call to `toile.checks` would. `--checks=all`
    turns all of them on.

    Args:
        name: name of the flag.

    Returns:
        The flag's holder, whose attribute `value` is the list of checks.

    Raises:
        ImportError: absl is not installed.
        SystemExit: the command line names a check that does not exist.

    >>> from toile.training import config_flags
    >>> CHECKS = config_flags.DEFINE_checks()  # doctest: +SKIP
    """
    try:
        from absl import flags
    except ImportError as error:
        raise ImportError(
            "DEFINE_checks: needed absl-py, which is not installed: pip install 'toile[examples]'"
        ) from error

    def turned_on(names: Sequence[str]) -> bool:
        try:
            check_names(f"--{name}", names)
        except ValueError as error:
            sys.exit(message(error))
        if names:
            checks(*names)
        return True

    holder = flags.DEFINE_list(
        name, [], "Checks to turn on: index, nan, keys, shapes, separated by commas, or all.")
    flags.register_validator(name, turned_on)
    return holder


def unknown_field(flag: str, owner: str, field: str, known: Iterable[str]) -> str:
    """Compose the error message for a flag that sets a nonexistent field.

    Args:
        flag: the flag as it was written on the command line.
        owner: name of the file or config that should have the field.
        field: the field that does not exist.
        known: names of the existing fields.

    Returns:
        A line that suggests the most similar name or, if no name is similar, lists all names.

    >>> from toile.training import config_flags
    >>> config_flags.unknown_field("--config.sead", "tiny.py", "sead", ["batch_size", "seed"])
    "--config.sead: needed a field of tiny.py, got 'sead' (did you mean 'seed'?)"
    """
    names = sorted(known)
    hint = did_you_mean(field, names) or f" (it has {', '.join(names) or 'none'})"
    return f"{flag}: needed a field of {owner}, got {field!r}{hint}"


def _given(name: str, arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """The file that a command line chooses, and the fields that it sets."""
    path, fields = None, []
    rest: Iterator[str] = iter(arguments)
    for argument in rest:
        if argument == "--":  # what follows is no flag
            break
        if found := re.match(rf"--?(?:no)?{re.escape(name)}\.([^=]+)", argument):
            fields.append(found[1])
        elif found := re.match(rf"--?{re.escape(name)}(?:=(.*))?$", argument):
            path = next(rest, "") if found[1] is None else found[1]
    return path, fields


def _check_file(name: str, path: Path, usual: Path) -> None:
    if path.is_file():
        return
    folder = path.parent if path.suffix and path.parent.is_dir() else usual
    there = {p.stem: str(p) for p in sorted(folder.glob("*.py")) if p.stem != "__init__"}
    near = nearest(path.stem, there)
    hint = f"did you mean {there[near]!r}?" if near else f"available: {', '.join(there.values())}"
    sys.exit(f"--{name}={path}: needed a file, got a path that does not exist"
             + (f" ({hint})" if there else ""))


def _check_field(name: str, field: str, config: Any, path: str) -> None:
    """End the program if a field such as `model.layers[0].width` does not exist."""
    here, walked = Path.cwd(), name
    owner = str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path
    for part in field.split("."):
        if isinstance(config, int | float | str | tuple | list | None):
            sys.exit(f"--{name}.{field}: needed a config for {owner}, got {config!r}, which has no "
                     "fields")
        if not hasattr(config, "keys"):  # an object of a user's class
            return
        plain, index, _ = part.partition("[")
        if plain not in config:
            sys.exit(unknown_field(f"--{name}.{field}", owner, plain, config.keys()))
        if index:
            return
        config, walked = config[plain], f"{walked}.{plain}"
        owner = walked
