"""The library reads no format that runs code: no pickle, no marshal, nor what is made of them."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BANNED = {"pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
SOURCES = sorted((ROOT / "toile").rglob("*.py"))


def findings(text):
    """What a source imports or calls that could run the code of who wrote some data."""
    found = []
    if not any(name in text for name in BANNED):  # quicker than parsing it
        return found
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=names):
                found += [a.name for a in names if a.name.split(".")[0] in BANNED]
            case ast.ImportFrom(module=module, level=0) if module.split(".")[0] in BANNED:
                found.append(module)
            case ast.Call(func=func, args=[ast.Constant(value=str(name)), *_]):
                called = getattr(func, "attr", getattr(func, "id", ""))
                if called in ("import_module", "__import__") and name.split(".")[0] in BANNED:
                    found.append(f"{called}({name!r})")
            case ast.keyword(arg="allow_pickle", value=value):
                if not (isinstance(value, ast.Constant) and value.value is False):
                    found.append("allow_pickle")
    return found


def test_no_file_of_the_library_reads_code():
    assert len(SOURCES) > 300
    assert not {str(p): f for p in SOURCES if (f := findings(p.read_text(encoding="utf-8")))}


@pytest.mark.parametrize("text", [
    "import pickle", "import os, marshal", "from pickle import loads", "import shelve as s",
    "def f():\n    from dill import loads", "import cloudpickle.cloudpickle",
    "importlib.import_module('pickle')", "__import__('marshal')", "import _pickle",
    "np.load(file, allow_pickle=True)", "np.load(file, allow_pickle=given)",
])
def test_the_rule_finds(text):
    assert findings(text)


@pytest.mark.parametrize("text", [
    "import pickletools", "np.load(file)", "np.load(file, allow_pickle=False)",
    "from toile import pickles", "import json", "x.pickle",
])
def test_the_rule_passes(text):
    assert not findings(text)


def test_ruff_has_the_rule(tmp_path):
    settings = tomllib.loads((ROOT / "ruff.toml").read_text(encoding="utf-8"))
    assert "TID251" in settings["lint"]["select"]
    banned = settings["lint"]["flake8-tidy-imports"]["banned-api"]
    assert banned.keys() >= BANNED - {"cPickle"}
    pytest.importorskip("ruff")
    (tmp_path / "toile").mkdir()
    (tmp_path / "ruff.toml").write_text((ROOT / "ruff.toml").read_text(encoding="utf-8"))
    for place, refused in (("toile/reader.py", True), ("helper.py", False)):
        (tmp_path / place).write_text("import pickle\n\nprint(pickle)\n")
        found = subprocess.run(
            [sys.executable, "-m", "ruff", "check", "--no-cache", place], cwd=tmp_path,
            capture_output=True, text=True)
        assert ("TID251" in found.stdout) == refused, found.stdout
