"""The public names and signatures are those of the last snapshot."""

import difflib

from tools import api_snapshot


def test_public_names_are_those_of_the_snapshot():
    kept, found = api_snapshot.FILE.read_text(), api_snapshot.snapshot()
    changed = list(difflib.unified_diff(
        kept.splitlines(), found.splitlines(), "snapshot", "now", lineterm="", n=0))
    assert not changed, "\n".join([
        "the public interface has changed: see docs/stability.md, add a line to CHANGELOG.md, and "
        "run python -m tools.api_snapshot", *changed])


def test_a_snapshot_has_what_calls_depend_on():
    lines = api_snapshot.snapshot().splitlines()
    mean = "toile.numpy.mean(a, axis=None, dtype=None, out=None, keepdims=False, *, where=None)"
    assert mean in lines
    assert any(line.startswith("toile.linen.Dense(features, use_bias=True, ") for line in lines)
    assert "toile.linen.Module.bind(self, variables, *args, rngs=None, mutable=False)" in lines
    assert "toile.stages.Lowered.compile(self, compiler_options=None)" in lines
