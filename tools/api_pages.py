"""Pages made while MkDocs builds: the API reference from docstrings, the coverage of JAX's names.

A hook of `mkdocs.yml`. It imports toile and reads each namespace's public list, so a function that
a factory made is documented like any other. A public function or class without a docstring is a
warning, and the documentation is built with warnings as errors.
"""

from __future__ import annotations

import enum
import importlib
import importlib.util
import inspect
import logging
import re
import types
from typing import Any

from mkdocs.structure.files import File, Files

from tools.api_coverage import NAMESPACES, compare_all, join, markdown

log = logging.getLogger("mkdocs.hooks.api_pages")

# Namespaces that JAX does not have; those that do not exist yet are left out.
OWN = ("core", "cursor", "interop", "io", "jax_utils", "linen", "metrics", "optim")
OWN += ("serialization", "struct", "training", "training.checkpoints", "training.train_state")
OWN += ("traverse_util",)


def public_list(module: types.ModuleType) -> list[str]:
    """A module's `__all__`, or its names that are neither private nor modules."""
    names = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and type(value).__name__ != "_Feature"
    ]
    return sorted(n for n in names if not isinstance(getattr(module, n), types.ModuleType))


def as_markdown(doc: str) -> str:
    """A docstring as Markdown: examples fenced, characters outside `code` taken literally."""
    paragraphs = []
    for paragraph in doc.split("\n\n"):
        if paragraph.lstrip().startswith(">>>"):
            paragraphs.append(f"```python\n{inspect.cleandoc(paragraph)}\n```")
            continue
        pieces = re.split(r"(`+[^`]*`+)", paragraph)
        pieces[::2] = [re.sub(r"([\[\]<>*_\\])", r"\\\1", text) for text in pieces[::2]]
        paragraphs.append("".join(pieces))
    return "\n\n".join(paragraphs)


def signature(name: str, value: Any) -> str:
    """`name(x, axis=None)`, with addresses of default objects left out."""
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        text = "(...)"
    return name + re.sub(r" at 0x[0-9a-f]+", "", text)


def own_docstring(value: Any) -> str:
    """The docstring written for `value` itself, not one inherited from its type."""
    doc = getattr(value, "__doc__", None)
    kind = value if isinstance(value, type) else type(value)
    generated = isinstance(value, type) and doc and doc.startswith(f"{value.__name__}(")
    if not isinstance(doc, str) or generated:
        return ""
    if not isinstance(value, type) and doc == kind.__doc__:
        return ""
    return inspect.cleandoc(doc)


def entry(namespace: str, name: str, value: Any) -> str:
    """The paragraph about one public name."""
    lines = [f"### {namespace}.{name}".replace("_", r"\_"), ""]
    documented = inspect.isroutine(value) or isinstance(value, type)
    doc = own_docstring(value)
    ours = str(getattr(value, "__module__", "")).startswith("toile")
    if documented and ours and not doc and not issubclass_of(value, (enum.Enum, Warning)):
        log.warning("%s.%s has no docstring", namespace, name)
    if callable(value):
        lines += ["```python", signature(name, value), "```", ""]
    else:
        lines += [f"`{type(value).__name__}`", ""]
    return "\n".join([*lines, as_markdown(doc), ""])


def issubclass_of(value: Any, bases: tuple[type, ...]) -> bool:
    """`issubclass` that is False for what is no class."""
    return isinstance(value, type) and issubclass(value, bases)


def page(namespace: str) -> str:
    """The page of one namespace: its docstring, then its names in alphabetical order."""
    module = importlib.import_module(namespace)
    if not module.__doc__:
        log.warning("%s has no docstring", namespace)
    head = f"# {namespace}\n\n{as_markdown(inspect.cleandoc(module.__doc__ or ''))}\n"
    entries = (entry(namespace, name, getattr(module, name)) for name in public_list(module))
    return "\n".join([head, *entries])


def exists(namespace: str) -> bool:
    """Whether toile has that module (one that only explains its absence is left out)."""
    try:
        importlib.import_module(namespace)
    except (ImportError, NotImplementedError):
        return False
    return True


def namespaces() -> list[str]:
    """The namespaces that have a page."""
    return [n for n in sorted(join("toile", n) for n in (*NAMESPACES, *OWN)) if exists(n)]


def on_files(files: Files, config: Any) -> Files:
    """MkDocs' hook: add api_coverage.md, and api/NAMESPACE.md for every namespace that exists."""
    pages = {"api_coverage.md": markdown(compare_all())}
    for namespace in namespaces():
        pages[f"api/{namespace}.md"] = page(namespace)
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files
