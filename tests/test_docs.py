"""The code in the documentation runs, in order, page by page; pages that are made can be made."""

from __future__ import annotations

import json
import pathlib
import re

import pytest

import toile
from toile import command
from tools import benchmark_tables, gallery, notebooks

ROOT = pathlib.Path(__file__).parent.parent
DOCS = ROOT / "docs"
BLOCK = re.compile(
    r"^(<!-- needs: (?P<needs>\w+) -->\n+)?^```python\n(?P<code>.*?)^```", re.S | re.M
)
PAGES = sorted(p for p in DOCS.rglob("*.md") if BLOCK.search(p.read_text()))
OF_THE_CPU = ("compiler.md", "parallel.md", "performance.md", "processes.md")
PACKAGES = {"forking.md": ("ml_collections",), "fine-tuning.md": ("jinja2",)}
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.py"))


@pytest.fixture(autouse=True)
def devices():
    """A page may ask for more CPU devices; the next one begins with as many as there were."""
    names = "jax_num_cpu_devices", "jax_default_matmul_precision"
    before = [toile.config.read(name) for name in names]
    yield
    for name, value in zip(names, before, strict=True):
        toile.config.update(name, value)


def is_there(platform: str) -> bool:
    try:
        return bool(toile.devices(platform))
    except RuntimeError:
        return False


def listed(page: pathlib.Path):
    name = str(page.relative_to(DOCS))
    return pytest.param(page, id=name, marks=[pytest.mark.cpu] if name in OF_THE_CPU else [])


@pytest.fixture
def one_process():
    """Ends what a page that speaks of several processes has begun."""
    yield
    if toile.distributed.is_initialized():
        toile.distributed.shutdown()


@pytest.mark.parametrize("page", [listed(page) for page in PAGES])
@pytest.mark.usefixtures("one_process")
def test_code_of_page_runs(page):
    for package in PACKAGES.get(page.name, ()):
        pytest.importorskip(package)
    if page.name == "gpu.md":  # it says what products are by default
        toile.config.update("jax_default_matmul_precision", None)
    text = page.read_text()
    scope = {"__name__": "__page__"}
    for match in BLOCK.finditer(text):
        if match["needs"] and not is_there(match["needs"]):
            continue
        line = text[: match.start("code")].count("\n")
        source = "\n" * line + match["code"]
        code = compile(source, str(page), "exec", dont_inherit=True)
        exec(code, scope)


FOLDERS = "engine|compiler|kernels|targets|platforms|primitives|transforms|control"
REAL = re.compile(rf"`((?:{FOLDERS})/[\w/]*(?:\.py)?)`")


@pytest.mark.parametrize(("page", "most"), [("engine", 800), ("compiler", 330)])
def test_pages_from_scratch_are_short_and_speak_of_files_there_are(page, most):
    text = (DOCS / f"{page}-from-scratch.md").read_text()
    code = "".join(match["code"] for match in BLOCK.finditer(text))
    assert len(code.splitlines()) <= most
    places = REAL.findall(text)
    assert len(places) > 5
    assert [x for x in places if not (ROOT / "toile" / x).exists()] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_runs(path, monkeypatch, tmp_path):
    """Runs in a project that `toile new` made, as for most readers; `make docs` uses the clone."""
    monkeypatch.setenv("TOILE_OPTIMIZE", "1")  # a network is trained: fast code pays here
    assert command.main(["new", "mnist", str(tmp_path / "my_project")]) == 0
    monkeypatch.chdir(tmp_path / "my_project")
    executed = notebooks.execute(path.read_text(), path.name)
    page = notebooks.markdown(executed)
    assert page.startswith("# ") and "```text" in page
    cells = json.loads(notebooks.ipynb(executed))["cells"]
    assert [c["cell_type"] for c in cells] == [cell.kind for cell, _ in executed]


def test_notebook_shows_what_cells_print_and_give():
    text = "# %% [markdown]\n# # Title\n#\n# text\n# %%\nprint(1)\nx = 2\nx + 1\n# %%\ny = x\n"
    executed = notebooks.execute(text, "page.py")
    assert [output.text for _, output in executed] == ["", "1\n3\n", ""]
    page = notebooks.markdown(executed)
    assert page.startswith("# Title\n\ntext\n\n```python\nprint(1)")
    assert page.endswith("```text\n1\n3\n```\n\n```python\ny = x\n```\n")


def test_notebook_errors_have_the_line_of_the_file():
    with pytest.raises(ZeroDivisionError) as caught:
        notebooks.execute("# %%\nx = 1\n\n# %%\n\nx / 0\n", "page.py")
    assert caught.traceback[-1].lineno + 1 == 6


def test_gallery_has_every_example():
    found = gallery.examples(ROOT / "examples")
    pages = gallery.pages(ROOT / "examples")
    assert {e.name for e in found} >= {"mnist", "vae", "seq2seq", "graph"}
    for e in found:
        assert f"## [{e.title}]({e.name}/README.md)" in pages["examples/index.md"]
        assert all(f"examples/{e.name}/{name}" in pages for name in gallery.pictures(e))


def test_benchmark_page_has_every_result():
    folder = ROOT / "benchmarks" / "results"
    page = benchmark_tables.page(folder)
    for path in folder.glob("*.json"):
        found = json.loads(path.read_text())
        if "cells" in found:  # a map, of which only the slowest cells are listed
            slowest = min(found["cells"], key=lambda cell: cell[1])[0]
            assert f"| {slowest.replace(' | ', ', ')} |" in page
            continue
        for title in found.get("rows") or found.get("steps") or found["results"]:
            assert f"| {title} |" in page


def test_search_knows_names_of_the_reference_and_what_they_do():
    pytest.importorskip("mkdocs")
    from tools import api_pages

    entry = '<h3>f</h3><p class="facts">a</p><div>b</div><p>What f does.</p><p>c</p><dl>d</dl>'
    kept = re.sub(r"<(\w+)[^>]* data-search-exclude.*?</\1>", "", api_pages.without_details(entry))
    assert kept == "<h3>f</h3><p>What f does.</p>"
    assert api_pages.without_details("<h2>A topic</h2>") == "<h2>A topic</h2>"


def test_every_page_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text()
    missing = [p.name for p in DOCS.rglob("*.md") if str(p.relative_to(DOCS)) not in text]
    assert not missing
