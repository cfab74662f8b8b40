"""A notebook that a real kernel runs: what is in the outputs of its cells."""

import json
import os
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.displays.checking import read

ROOT = Path(__file__).parents[2]
MISSING = [name for name in ("nbclient", "ipykernel") if find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} not installed")

CELLS = {
    "import": """
        import sys, time
        import toile, toile.numpy as jnp, toile.linen as nn
        from toile.training.live import Plot
        from toile.training.progress import progress
    """,
    "bar": """
        bar = progress(range(6), label="train")
        for i in bar:
            bar.show(loss=1.0 / (i + 1))
            time.sleep(0.06)
    """,
    "loaded": "print('rich' in sys.modules)",
    "stopped": """
        for i in progress(range(100), label="cut"):
            if i == 7:
                raise KeyError("stop")
    """,
    "array": "jnp.arange(100).reshape(10, 10)",
    "module": "nn.Dense(3)",
    "table": "nn.Dense(3).tabulate(toile.random.key(0), jnp.ones((1, 2)))",
    "plot": """
        plot = Plot(every=0.05)
        for i in range(8):
            plot.add(i, loss=1.0 / (i + 1))
            time.sleep(0.02)
    """,
    "again": "plot.add(9, loss=0.001); plot.add(10, loss=0.002)",
}

# The client has warnings of its own, which are not ours to make errors of: it runs in a process.
CLIENT = """
import json, sys, nbclient, nbformat
cells = [nbformat.v4.new_code_cell(source) for source in json.load(sys.stdin)]
notebook = nbformat.v4.new_notebook(cells=cells)
nbclient.NotebookClient(notebook, timeout=120, allow_errors=True, kernel_name="python3").execute()
print(json.dumps([cell.outputs for cell in cells]))
"""


@pytest.fixture(scope="module")
def outputs():
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    sources = [textwrap.dedent(cell).strip() for cell in CELLS.values()]
    done = subprocess.run(
        [sys.executable, "-c", CLIENT], input=json.dumps(sources), env=environment, text=True,
        capture_output=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(zip(CELLS, json.loads(done.stdout), strict=True))


def shown(outputs):
    """The data of the only output that is displayed or is the value of a cell."""
    (output,) = (x for x in outputs if x["output_type"] in ("display_data", "execute_result"))
    return output["data"]


def test_a_bar_is_one_output_that_ends_complete(outputs):
    assert len(outputs["bar"]) == 1
    data = shown(outputs["bar"])
    text, _ = read(data["text/html"])
    assert "6/6" in text and "loss 0.1667" in text and data["text/plain"].startswith("train  6/6")


def test_a_bar_stays_where_its_loop_was_stopped(outputs):
    text, _ = read(shown(outputs["stopped"])["text/html"])
    assert "7/100" in text and outputs["stopped"][-1]["ename"] == "KeyError"


@pytest.mark.parametrize(("cell", "html", "plain"), [
    ("array", "int32[10, 10]", "Array([[ 0,"),
    ("module", "(features=3)", "Dense(\n"),
    ("table", "float32[2,3]", "'\\n\\x1b["),
])  # fmt: skip
def test_values_have_html_and_text(outputs, cell, html, plain):
    data = shown(outputs[cell])
    assert html in read(data["text/html"])[0] and data["text/plain"].startswith(plain)


def test_a_plot_ends_with_all_points_and_begins_anew_in_another_cell(outputs):
    assert len(outputs["plot"]) == len(outputs["again"]) == 1
    data = shown(outputs["plot"])
    text, tags = read(data["text/html"], colors=True)
    assert tags.count("svg") == 1 and "0.125" in text.split("\n")
    assert data["text/plain"] == "Plot(loss: 8 points)"
    assert shown(outputs["again"])["text/plain"] == "Plot(loss: 10 points)"


def test_nothing_else_is_shown_and_bars_need_no_rich(outputs):
    assert outputs["import"] == [] and outputs["loaded"][0]["text"] == "False\n"
