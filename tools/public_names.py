"""The public namespaces of toile and what they contain."""

from __future__ import annotations

import importlib
import inspect
import types
from typing import Any

from tools.api_coverage import NAMESPACES, join

# Namespaces that JAX does not have. Entries that do not exist are ignored.
OWN = (
    *("configurations", "core", "core.nn", "cursor", "export", "experimental.layout"),
    *("experimental.shard_map", "inspection", "io", "jax_utils", "linen", "linen.partitioning"),
    *("ffi", "finetuning", "generation", "quantization", "ref", "serving", "traceback_util"),
    *("metrics", "metrics.media", "metrics.tensorboard", "metrics.writers"),
    *("interop", "interop.chat_templates", "interop.huggingface", "interop.safetensors"),
    *("interop.torch_files", "interop.torch_weights"),
    *("optim", "optim.assignment", "optim.perturbations", "optim.projections"),
    *("optim.second_order", "optim.tree"),
    *("serialization", "struct", "traverse_util"),
    *("training", "training.checkpoints", "training.common_utils", "training.config_flags"),
    *("training.curves", "training.datasets", "training.devices", "training.dynamic_scale"),
    *("training.early_stopping", "training.images", "training.interruption", "training.live"),
    *("training.loader", "training.lr_schedule", "training.metrics", "training.mixed_precision"),
    *("training.prefetch_iterator", "training.progress", "training.report", "training.sweep"),
    *("training.terminal", "training.text", "training.train_state"),
)


def public_list(module: types.ModuleType) -> list[str]:
    """A module's `__all__` or, if it has none, the toile objects in it whose names are public."""
    names = getattr(module, "__all__", None) or [
        name for name, value in vars(module).items()
        if not name.startswith("_") and type(value).__name__ != "_Feature" and is_ours(value)
    ]
    return sorted(n for n in names if not isinstance(getattr(module, n), types.ModuleType))


def is_ours(value: Any) -> bool:
    """Whether a value is defined by toile, and not by another package such as NumPy."""
    return str(getattr(value, "__module__", "toile")).partition(".")[0] == "toile"


def can_be_called(value: Any) -> bool:
    """Whether a value is a function or class of toile, or a callable object of such a class."""
    made_here = isinstance(value, (type, types.FunctionType)) or is_ours(type(value))
    return callable(value) and is_ours(value) and made_here


def is_alias(value: Any) -> bool:
    """Whether a value is a class of another package or a type such as `tuple[int, ...]`."""
    if isinstance(value, type):
        return not is_ours(value) or isinstance(value, types.GenericAlias)
    return getattr(value, "__origin__", None) is not None


def own_docstring(value: Any) -> str:
    """The docstring written for `value` itself, not that of its type or of another package."""
    if is_alias(value):
        return ""
    doc = getattr(value, "__doc__", None)
    kind = value if isinstance(value, type) else type(value)
    generated = isinstance(value, type) and doc and doc.startswith(f"{value.__name__}(")
    if not isinstance(doc, str) or generated:
        return ""
    if not isinstance(value, type) and doc == kind.__doc__:
        return ""
    return inspect.cleandoc(doc)


def exists(namespace: str) -> bool:
    """Whether toile has a module; False for modules that only explain why they do not exist."""
    try:
        importlib.import_module(namespace)
    except (ImportError, NotImplementedError):
        return False
    return True


def namespaces() -> list[str]:
    """The namespaces with a page in the reference."""
    return [n for n in sorted(join("toile", n) for n in (*NAMESPACES, *OWN)) if exists(n)]
