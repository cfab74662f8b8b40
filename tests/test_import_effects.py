"""Modules whose import changes other modules.

Packages load their modules when a name is first used. A module that adds to another one, such as
methods to its classes or entries to its tables, must not wait for that: what it adds would be there
or not, depending on what else a program happened to use. Each such module is listed here with the
import that has to load it.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# The module, and the import after which what it adds must be there.
LOADED_BY = {
    "toile.compat.faces.jax.interpreters.ad": "toile.compat.faces.jax.interpreters.ad",
    "toile.engine.checked": "toile",
    "toile.engine.locks": "toile",
    "toile.engine.program_keys": "toile",
    "toile.engine.program_text": "toile",
    "toile.engine.sharded": "toile",
    "toile.numpy.ufunc_api": "toile.numpy",
    "toile.parallel.placement": "toile",
    "toile.platforms": "toile",
    "toile.traceback_util": "toile.traceback_util",  # it is asked for: its import hides frames
}


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that an import runs, those for type checkers and for `python -m` aside."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If) and any(
            word in ast.unparse(statement.test) for word in ("TYPE_CHECKING", "__main__")
        ):
            continue
        for part in ("body", "orelse", "finalbody"):
            if not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                yield from statements(getattr(statement, part, []))


def root(node: ast.AST) -> str | None:
    """The `x` of `x.y[z]`."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def effects(source: str) -> list[str]:
    """What importing a module does to names that it imports from toile, and to its own functions'
    arguments: assignments to their attributes and items, and calls for their effect."""
    tree = ast.parse(source)
    imported, functions, classes, found = set(), set(), set(), []
    for statement in statements(tree.body):
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("toile"):
            imported |= {a.asname or a.name for a in statement.names}
        elif isinstance(statement, ast.FunctionDef):
            functions.add(statement.name)
        elif isinstance(statement, ast.ClassDef):
            classes.add(statement.name)
        elif isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            found += [ast.unparse(statement) for t in targets
                      if not isinstance(t, ast.Name) and root(t) in imported]
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            call = statement.value
            about = [root(a) for a in call.args[:1]]
            if root(call.func) in imported and not classes & set(about):
                found.append(ast.unparse(statement))
            elif root(call.func) == "setattr" and imported & set(about):
                found.append(ast.unparse(statement))
            elif isinstance(call.func, ast.Name) and call.func.id in functions:
                found.append(ast.unparse(statement))
    return found


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# They change themselves alone, or are what an import is for.
OF_THEIR_OWN = {
    "toile",  # imported before everything else
    "toile.engine.arrays",  # operators of its own classes
    "toile.export._dimensions",  # operators of its own classes
    "toile.engine.trees",  # Python's containers, in its own table
    "toile.interop",  # importing it is a choice: it makes other packages' imports toile's
    "toile.serialization.states",  # how containers are saved, in its own table
}


def test_modules_that_change_others_are_listed():
    found = {name_of(p) for p in (ROOT / "toile").rglob("*.py")
             if p.name != "__main__.py" and effects(p.read_text())}
    assert found - OF_THEIR_OWN == set(LOADED_BY)


@pytest.mark.parametrize("package", sorted(set(LOADED_BY.values())))
def test_they_are_loaded_with_what_they_change(package):
    wanted = {m for m, by in LOADED_BY.items() if by == package}
    code = f"import sys, {package}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert wanted <= set(ran.stdout.split())


@pytest.mark.parametrize(("source", "count"), [
    ("from toile.a import table\ntable['x'] = 1", 1),
    ("from toile.a import b\nb.hook = len", 1),
    ("from toile.a import b\nfor n in 'xy':\n    setattr(b, n, 1)", 1),
    ("from toile.a import add\nadd(3)", 1),
    ("def _attach():\n    pass\n_attach()", 1),
    ("from toile.a import register\nclass A:\n    pass\nregister(A)", 0),
    ("import os\nos.environ['x'] = '1'\ntable = {}\ntable['x'] = 1", 0),
    ("from toile.a import b\ndef f():\n    b.hook = 1", 0),
    ("from toile.a import b\nif TYPE_CHECKING:\n    b.hook = 1", 0),
])
def test_effects_are_found(source, count):
    assert len(effects(source)) == count
