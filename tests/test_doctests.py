"""The examples in docstrings do what they print."""

import doctest
import importlib
import pathlib

import pytest

import toile

ROOT = pathlib.Path(toile.__file__).parent


def dotted(path):
    """The module that a file is."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = sorted(dotted(p) for p in ROOT.rglob("*.py") if ">>> " in p.read_text())


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_module(name):
    module = importlib.import_module(name)
    known = {"toile": toile, "jnp": toile.numpy, "lax": toile.lax, "key": toile.random.key}
    found = doctest.testmod(
        module, extraglobs=known, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert found.attempted and not found.failed
