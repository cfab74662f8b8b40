"""Pages made while MkDocs builds: the API reference from docstrings, the coverage of JAX's names.

A hook of `mkdocs.yml`. It imports toile and reads each namespace's public list, so a function that
a factory made is documented like any other. A public function or class without a docstring is a
warning, and the documentation is built with warnings as errors.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import logging
import re
from typing import Any

from mkdocs.structure.files import File, Files

from tools.api_coverage import compare_all, markdown
from tools.public_names import namespaces, own_docstring, public_list

log = logging.getLogger("mkdocs.hooks.api_pages")
# A table of all names would be the first answer to every search.
NOT_SEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"


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


def on_files(files: Files, config: Any) -> Files:
    """MkDocs' hook: add api_coverage.md, and api/NAMESPACE.md for every namespace that exists."""
    pages = {"api_coverage.md": NOT_SEARCHED + markdown(compare_all())}
    for namespace in namespaces():
        pages[f"api/{namespace}.md"] = page(namespace)
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files
