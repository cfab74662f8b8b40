"""Pages made while MkDocs builds: the API reference from docstrings, the coverage of JAX's names.

A hook of `mkdocs.yml`. It imports toile and reads the public names of each namespace, so functions
that were created by other functions are documented like all others. A public function or class
without a docstring is a warning, and the documentation is built with warnings as errors.
"""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import logging
import re
import types
from typing import Any

from mkdocs.structure.files import File, Files

from tools.api_coverage import compare_all, markdown
from tools.api_docstrings import as_markdown, escape, first_sentence
from tools.api_sources import WIDTH, location, signature
from tools.api_topics import homes, topics
from tools.documented import parameters
from tools.public_names import is_alias, is_ours, namespaces, own_docstring, public_list

log = logging.getLogger("mkdocs.hooks.api_pages")
# A table of all names would be the first answer to every search.
NOT_SEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"
NOT_IN_INDEX = re.compile(r"<(dl|table|p|ul|ol|div)\b")
METHODS = (types.FunctionType, classmethod, staticmethod, property)


def entry(namespace: str, name: str, value: Any, home: tuple[str, str]) -> str:
    """The part of the page about one public name."""
    lines = [f"### {escape(name)} {{ #{namespace}.{name} data-toc-label='{name}' }}", ""]
    documented = inspect.isroutine(value) or isinstance(value, type)
    doc = own_docstring(value)
    ours = str(getattr(value, "__module__", "")).startswith("toile")
    if documented and ours and not doc and not issubclass_of(value, (enum.Enum, Warning)):
        log.warning("%s.%s has no docstring", namespace, name)
    kind = "class" if isinstance(value, type) else "" if callable(value) else type(value).__name__
    facts = [f"`{namespace}.{name}`", kind, f"`{location(value, home)}`"]
    lines += [" · ".join(filter(None, facts)) + "\n{ .facts }", ""]
    if callable(value):
        lines += ["```python", signature(name, value), "```", ""]
    lines += [as_markdown(doc) if doc or not is_alias(value) else alias_of(value), ""]
    if isinstance(value, type) and ours:
        lines += methods_table(value)
    return "\n".join(lines)


def alias_of(value: Any) -> str:
    """What a type of another package is, which documents it itself."""
    whole = f"{value.__module__}.{value.__qualname__}" if isinstance(value, type) else repr(value)
    whole = re.sub(r"\b_\w+\.", "", whole)  # private modules
    return f"Another name for `{whole.removeprefix('builtins.')}`." if len(whole) < WIDTH else ""


@functools.cache
def public_classes() -> frozenset[type]:
    """The classes that have an entry."""
    modules = [importlib.import_module(n) for n in namespaces()]
    found = (getattr(module, name) for module in modules for name in public_list(module))
    return frozenset(value for value in found if isinstance(value, type))


def methods_table(cls: type) -> list[str]:
    """The public methods and properties that a class of ours documents."""
    found: dict[str, str] = {}
    fields = {p.name for p in parameters(cls)}  # a field's default may be a function
    elsewhere = {b for base in cls.__mro__[1:] if base in public_classes() for b in base.__mro__}
    for base in cls.__mro__:
        if base in elsewhere and base.__module__ != cls.__module__:
            continue  # it is in the entry of a public base
        for name, member in vars(base).items() if is_ours(base) else ():
            inner = getattr(member, "__func__", None) or member
            if name.startswith("_") or name in fields or not isinstance(member, METHODS):
                continue
            if doc := inspect.getdoc(inner):
                call = "" if isinstance(member, property) else "()"
                found.setdefault(f"{name}{call}", first_sentence(doc))
    if not found:
        return []
    rows = [f"| `{name}` | {escape(text)} |" for name, text in sorted(found.items())]
    head = ["**Methods and properties**{ .field }", "", "| name | what it does |", "| --- | --- |"]
    return [*head, *rows, ""]


def issubclass_of(value: Any, bases: tuple[type, ...]) -> bool:
    """`issubclass` that is False for values that are not classes."""
    return isinstance(value, type) and issubclass(value, bases)


def page(namespace: str) -> str:
    """The page of one namespace: its docstring, a summary, then its names by topic."""
    module = importlib.import_module(namespace)
    if not module.__doc__:
        log.warning("%s has no docstring", namespace)
    parts = [f"# {namespace}", as_markdown(inspect.cleandoc(module.__doc__ or ""))]
    groups = topics(module, public_list(module))
    where = homes(module)
    if len(groups) > 1:
        parts.append(topics_table(namespace, groups))
    for title, names in groups.items():
        parts += [f"## {title}"] if title else []
        parts.append(summary_table(module, names))
        parts += [entry(namespace, n, getattr(module, n), where.get(n, (namespace, n)))
                  for n in names]  # fmt: skip
    return "\n\n".join(parts)


def link(namespace: str, name: str) -> str:
    return f"[`{name}`](#{namespace}.{name})"


def topics_table(namespace: str, groups: dict[str, list[str]]) -> str:
    """The summary of a large namespace: its topics, each with its names."""
    rows = [
        f"| [{title}](#{slug(title)}) | {' '.join(link(namespace, n) for n in names)} |"
        for title, names in groups.items()
    ]
    return "\n".join(["| topic | names |", "| --- | --- |", *rows])


def summary_table(module: types.ModuleType, names: list[str]) -> str:
    """Names with the first sentences of their docstrings."""
    rows = []
    for name in names:
        doc = own_docstring(getattr(module, name))
        text = first_sentence(doc) if doc else ""
        rows.append(f"| {link(module.__name__, name)} | {escape(text)} |")
    return "\n".join(["| name | what it does |", "| --- | --- |", *rows]) if rows else ""


def slug(title: str) -> str:
    """The anchor that the table of contents gives to a heading."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """MkDocs' hook: index only names and descriptions; the rest would make search slow."""
    if not page.file.src_uri.startswith("api/"):
        return html
    return "".join(map(without_details, re.split(r"(?=<h[1-6])", html)))


def without_details(section: str) -> str:
    """Leave only the heading and the first paragraph of a section to the search index."""
    head, paragraph, rest = section.partition("<p>")
    text, end, rest = rest.partition("</p>")
    marked = (NOT_IN_INDEX.sub(r"<\1 data-search-exclude", part) for part in (head, rest))
    return f"{paragraph}{text}{end}".join(marked)


def on_files(files: Files, config: Any) -> Files:
    """MkDocs' hook: add api_coverage.md, and api/NAMESPACE.md for every namespace that exists."""
    pages = {"api_coverage.md": NOT_SEARCHED + markdown(compare_all())}
    for namespace in namespaces():
        pages[f"api/{namespace}.md"] = page(namespace)
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files
