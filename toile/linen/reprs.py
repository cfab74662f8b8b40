"""The text of modules: fields, submodules, and the shapes and dtypes of bound variables."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from toile.core import meta


def _value_text(value: Any) -> str:
    """The text of a field's value; functions are shown by their names."""
    is_module = hasattr(type(value), "_call_wrapped_method")
    holder = value.__dict__.get("__name__") if is_module else getattr(value, "__name__", None)
    return value.__name__ if callable(value) and holder else repr(value)


def _leaf_text(value: Any) -> str:
    """The text of a variable: the dtype and shape of an array, otherwise the type."""
    value = meta.unbox(value)
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        shape = ",".join(map(str, value.shape))
        return f"{value.dtype}[{shape}]"
    return type(value).__name__


def _own_variables(module: Any) -> list[str]:
    """Lines such as `kernel: float32[3,4]` for the variables of a module that `bind` made."""
    scope = module.scope
    if scope is None or not scope.get_flag("interactive", False):
        return []
    lines = []
    for col in scope.root._variables:
        for name, value in scope._collection(col).items():
            if isinstance(value, Mapping):
                continue
            label = name if col == "params" else f"{col}/{name}"
            lines.append(f"{label}: {_leaf_text(value)}")
    return lines


def module_repr(module: Any, num_spaces: int = 4) -> str:
    """The text of a module, with one line for each field, variable and submodule."""
    cls = type(module)
    if not dataclasses.is_dataclass(cls):
        return object.__repr__(module)
    fields = [
        f.name for f in dataclasses.fields(cls) if f.repr and f.name not in ("parent", "name")
    ]
    lines = ["# attributes"] if fields else []
    lines += [f"{name} = {_value_text(module.__dict__.get(name))}" for name in fields]
    variables = _own_variables(module)
    if variables:
        lines += ["# variables", *variables]
    children = {
        name: child
        for name, child in module._state.children.items()
        if hasattr(type(child), "_call_wrapped_method")
    }
    if children:
        lines.append("# children")
        lines += [f"{name} = {module_repr(c, num_spaces)}" for name, c in children.items()]
    if not lines:
        return f"{cls.__name__}()"
    indent = " " * num_spaces
    body = "".join(f"{indent}{line}\n" for entry in lines for line in entry.split("\n"))
    return f"{cls.__name__}(\n{body})"
