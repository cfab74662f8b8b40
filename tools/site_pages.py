"""Pages made while MkDocs builds: executed notebooks, the gallery of examples, benchmark tables.

A hook of `mkdocs.yml`. It also adds the namespaces of the API and the examples to the navigation; a
page that is not in the navigation is a warning.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from tools import benchmark_tables, charts, gallery, notebooks
from tools.api_pages import namespaces

ROOT = Path(__file__).parents[1]
API, EXAMPLES = "API reference", "Examples"  # titles of the sections that are filled here
# Sections of the reference, by the first names of their namespaces; [] is toile itself.
PARTS: dict[str, list[list[str]]] = {
    "Arrays and transformations": [
        [], ["numpy"], ["lax"], ["random"], ["nn"], ["tree"], ["image"], ["ops"],
    ],
    "Models and training": [
        ["linen"], ["optim"], ["training"], ["metrics"], ["serialization"], ["struct"], ["core"],
        ["traverse_util"], ["cursor"], ["io"], ["jax_utils"], ["interop"],
    ],
    "SciPy": [["scipy"]],
}  # fmt: skip
OTHERS = "More namespaces"
# Pages that are made from several files.
MADE = {
    "examples/index.md": "examples/*/README.md",
    "benchmarks.md": "benchmarks/results/*.json",
    "api_coverage.md": "tools/api_coverage.py",
}
CHART = re.compile(r"<!-- chart: ([\w.-]+) -->")
DOWNLOAD = """
*This page is an executed notebook; it is also available as an
[.ipynb file](notebooks/{}.ipynb).*
"""


@functools.cache
def executed(path: Path, text: str) -> tuple[str, str]:
    """A notebook as a page and as a file; executed once while `mkdocs serve` runs."""
    found = notebooks.execute(text, path.name)
    return notebooks.markdown(found) + DOWNLOAD.format(path.stem), notebooks.ipynb(found)


def made_pages() -> dict[str, str | bytes]:
    """All generated pages by their paths in the documentation."""
    pages = gallery.pages(ROOT / "examples")
    pages["benchmarks.md"] = benchmark_tables.page(ROOT / "benchmarks" / "results")
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.py")):
        page, file = executed(path, path.read_text())
        pages[f"{path.stem}.md"] = page
        pages[f"notebooks/{path.stem}.ipynb"] = file
    return pages


def reference_parts() -> list[dict[str, Any]]:
    """The namespaces by section of the reference, in the order of `PARTS`."""
    parts: dict[str, list[dict[str, str]]] = {title: [] for title in (*PARTS, OTHERS)}
    for name in namespaces():
        title = next((t for t, names in PARTS.items() if name.split(".")[1:2] in names), OTHERS)
        parts[title].append({name: f"api/{name}.md"})
    return [{title: entries} for title, entries in parts.items()]


def on_config(config: Any) -> Any:
    """MkDocs' hook: list the namespaces and the examples in the navigation."""
    found = {
        API: reference_parts(),
        EXAMPLES: [
            {e.name.replace("_", " "): f"examples/{e.name}/README.md"}
            for e in gallery.examples(ROOT / "examples")
        ],
    }
    for part in config.nav:
        for title, entries in part.items():
            if isinstance(entries, list):
                entries += [e for e in found.get(title, ()) if e not in entries]
    return config


def source_of(path: str) -> str:
    """The file in the repository from which a page is made."""
    stem = path.removesuffix(".md")
    if path.startswith("api/"):
        return f"docstrings of {module_file(stem.removeprefix('api/'))}"
    if path in MADE:
        return MADE[path]
    if path.startswith("examples/"):
        return path
    notebook = f"docs/notebooks/{stem}.py"
    return notebook if (ROOT / notebook).exists() else f"docs/{path}"


def module_file(namespace: str) -> str:
    """The file or the folder of a module."""
    path = namespace.replace(".", "/")
    return f"{path}/" if (ROOT / path).is_dir() else f"{path}.py"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs' hook: `<!-- chart: FILE -->` becomes the curve of the run in docs/FILE."""
    return CHART.sub(lambda m: charts.curve(ROOT / "docs" / m[1]), markdown)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """MkDocs' hook: name the source of the page at its end."""
    return f'{html}<p class="source-note">Source: <code>{source_of(page.file.src_uri)}</code></p>'


def on_files(files: Files, config: Any) -> Files:
    """MkDocs' hook: add the generated pages."""
    for path, content in made_pages().items():
        files.append(File.generated(config, path, content=content))
    return files
