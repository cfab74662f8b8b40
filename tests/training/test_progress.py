"""Bars on terminals, silence elsewhere."""

import io
import subprocess
import sys

import pytest

from toile import numpy as jnp
from toile.training.progress import progress
from toile.training.rates import rate


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_draws_on_a_terminal():
    stream = Terminal()
    bar = progress(range(30), label="train", stream=stream, unit="batch", start=10)
    for x in bar:
        bar.show(loss=jnp.float32(0.5), note="fine")
        if x == 20:
            bar.print("halfway [5]")
    text = stream.getvalue()
    assert bar.done == 40 and len(bar) == 40
    for part in ("train", "40/40", "loss 0.5", "note fine", "halfway [5]", "left"):
        assert part in text


@pytest.mark.parametrize("unit, shown", [
    ("step", "steps"), ("batch", "batches"), ("epoch", "epochs"), ("example", "examples"),
    ("query", "queries"), ("key", "keys"), ("pass", "passes"), ("matrix", "matrices"),
    ("box", "boxes"), ("training example", "training examples"), ("examples", "examples"),
    ("MB", "MB"), ("kB", "kB"), ("it", "its"), ("s", "s"), ("", ""), ("µm²", "µm²"),
])  # fmt: skip
def test_rates_have_units_in_the_plural(unit, shown):
    assert rate(2.5, unit) == f"2.5 {shown}/s"
    assert rate(0.25, unit) == f"4.0 s/{unit}"
    assert rate(0.0, unit) == rate(None, unit) == ""


def test_is_silent_elsewhere(capsys):
    stream = io.StringIO()
    bar = progress((x for x in range(3)), stream=stream)
    for _ in bar:
        bar.show(loss=object())  # not even looked at
    assert bar.done == 3 and stream.getvalue() == ""
    assert capsys.readouterr() == ("", "")
    bar.print("a line")
    assert stream.getvalue() == "a line\n"


def test_by_hand():
    with progress(total=10, stream=Terminal(), label="steps") as bar:
        bar.advance(4)
    assert bar.done == 4 and not bar._bar
    with pytest.raises(TypeError, match="needed an iterable"):
        iter(bar).__next__()
    with pytest.raises(TypeError, match="needed total="):
        len(progress(iter([])))


def test_rich_is_loaded_for_bars_only():
    code = (
        "import sys\nfrom toile.training.progress import progress\nlist(progress(range(2)))\n"
        "assert 'rich' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stderr=subprocess.PIPE)
