"""Access to the entries of mappings, dataclasses and ml_collections' ConfigDict by dotted names.

`flat` lists the entries, and `changed` returns a copy in which some entries are changed. A
ConfigDict is recognized by its methods, so ml_collections is not imported.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

from toile.engine.source import here
from toile.engine.suggestions import did_you_mean

__all__ = ["changed", "flat"]


def _is_dataclass(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _has_entries(value: Any) -> bool:
    return isinstance(value, Mapping) or callable(getattr(value, "items", None))


def _entries(config: Any) -> dict[str, Any]:
    """The entries at the top level."""
    if _is_dataclass(config):
        return {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    if _has_entries(config):
        return dict(config.items())
    if hasattr(config, "__dict__"):
        return dict(vars(config))
    raise TypeError(
        "config: needed a mapping, a dataclass or a ConfigDict, got "
        f"{type(config).__name__}{here()}"
    )


def flat(config: Any, prefix: str = "") -> dict[str, Any]:
    """List the values in a nested configuration by dotted name.

    Args:
        config: mapping, dataclass, ConfigDict, or any object with attributes.
        prefix: text to put before each name.

    Returns:
        A dict from dotted names to values. Nested configurations do not appear as values.

    >>> flat({"seed": 0, "model": {"width": 32}})
    {'seed': 0, 'model.width': 32}
    """
    found: dict[str, Any] = {}
    for name, value in _entries(config).items():
        if _has_entries(value) or _is_dataclass(value):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def changed(config: Any, values: Mapping[str, Any]) -> Any:
    """Copy a configuration and change some entries of the copy.

    Args:
        config: as for `flat`; dataclasses may be frozen.
        values: the new values, by dotted name.

    Returns:
        A configuration of the same type.

    Raises:
        ValueError: a name in `values` is not the name of an entry.

    >>> changed({"seed": 0, "model": {"width": 32}}, {"model.width": 64})
    {'seed': 0, 'model': {'width': 64}}
    """
    known = flat(config)
    for name in values:
        if name not in known:
            raise ValueError(
                f"config: needed one of the entries {', '.join(known)}, got {name!r}"
                f"{did_you_mean(name, known)}{here()}"
            )
    new = copy.deepcopy(config)
    for name, value in values.items():
        new = _with(new, name.split("."), value)
    return new


def _with(config: Any, path: list[str], value: Any) -> Any:
    name = path[0]
    if len(path) > 1:
        value = _with(_entries(config)[name], path[1:], value)
    if _is_dataclass(config):
        return dataclasses.replace(config, **{name: value})
    if _has_entries(config):
        config[name] = value
    else:
        setattr(config, name, value)
    return config
