"""The structure of the library: tools.structure finds what it is to find, and nothing in toile."""

import textwrap

import pytest

from tools import structure

OPERATIONS = """
from toile.engine.operation import Operation

class Add(Operation): pass
class Reduction(Operation): pass
class ReduceSum(Reduction): pass
class Sizes(tuple): pass

def _logical(name): return type(name, (Reduction,), {})

ReduceOr = _logical("ReduceOr")
SUMS = (Add, ReduceSum)
"""


@pytest.fixture
def files(tmp_path):
    """Makes sources of a small library from texts by place."""

    def make(**texts):
        texts = {"primitives/sums.py": OPERATIONS,
                 **{name.replace("__", "/") + ".py": text for name, text in texts.items()}}
        for place, text in texts.items():
            path = tmp_path / "toile" / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        return structure.sources(tmp_path)

    return make


@pytest.mark.slow  # `make lint` says the same
def test_library_keeps_the_limits():
    files = structure.sources()
    assert [p for check in structure.checks(files) for p in check.problems] == []


def test_operation_classes(files):
    assert structure.operation_classes(files()) == {
        "Add", "Reduction", "ReduceSum", "ReduceOr", "SUMS"}


@pytest.mark.parametrize(("code", "count"), [
    ("isinstance(op, Add)", 1),
    ("isinstance(op, (Add, ReduceSum))", 2),
    ("isinstance(op, SUMS)", 1),
    ("op.__class__ is Add", 1),
    ("type(op) in {Add, ReduceOr}", 2),
    ("RULES = {Add: 1, sums.ReduceSum: 2}", 2),
    ("match op:\n    case Add(): pass", 1),
    ("op.name == 'add'", 1),
    ("e.op.name in NAMES", 1),
    ("Add()(x, y)", 0),
    ("def f(op: Add) -> ReduceSum: return cast(Add, op)", 0),
    ("assert isinstance(op, Add)", 0),
    ("class More(Add): pass", 0),
    ("isinstance(x, Sizes)", 0),
    ("program.name == e.op.name", 0),
])
def test_class_tests(files, code, count):
    imports = "from toile.primitives import sums\n" \
        "from toile.primitives.sums import Add, ReduceOr, ReduceSum, SUMS, Sizes\n"
    found = structure.class_tests(files(compiler__passes=imports + code))
    assert len(found) == count
    assert structure.class_tests(files(compiler__passes="", linen__layers=imports + code)) == []


def test_module_names(files):
    found = structure.unlisted_names(structure.module_names(files(
        kernels__window="", lax__window="", kernels__elements="", lax__elements="", json="",
        lax__random="")))
    assert found == ["window: kernels/window.py, lax/window.py",
                     "json, a module of Python: json.py"]


def test_imports_inside_of_functions(files):
    found = structure.late_imports(files(
        lax__late="import json\n\ndef f():\n    import csv\n    import_module('a')",
        lax__early="from importlib import import_module\nhere = import_module('json')"))
    assert [(x.place, x.line) for x in found] == [("lax/late.py", 4), ("lax/late.py", 5)]


def test_modules_in_strings(files):
    found = structure.wrong_modules(files(lax__late="""
        import_module("toile.primitives.sums")
        import_module(f"toile.primitives.{name}")
        import_module("toile.primitives.sum")
        sys.modules.get(f"toile.primitive.{name}")
        import_module("json")
    """))
    assert [x.line for x in found] == [4, 5]


def test_hooks(files):
    found = structure.hooks(files(
        engine__gpu="class hooks: load = None\nhooks.load = 1",
        lax__first="""
            from toile.engine import gpu
            from toile.engine.gpu import hooks as slots
            from toile.engine.trace import state
            from toile.lax import other
            gpu.hooks.load, slots.start = 1, 2
            setattr(slots, "end", 3)
            other.hook = 4
            def trace():
                state.trace = None
        """))
    assert set(found) == {"toile.engine.gpu.hooks.load", "toile.engine.gpu.hooks.start",
                          "toile.engine.gpu.hooks.end"}


def test_messages_say_what_to_do(files, monkeypatch):
    monkeypatch.setattr(structure, "MOST_CLASS_TESTS", 0)
    monkeypatch.setattr(structure, "MOST_HOOKS", 0)
    monkeypatch.setattr(structure, "MOST_TYPE_IGNORES", 0)
    text = """
        from toile.engine import program
        from toile.primitives.sums import Add
        program.run = isinstance(1, Add)  # type: ignore
        def f(): import csv
    """
    found = [p for c in structure.checks(files(api__a=text, lax__b="", kernels__b=""))
             for p in c.problems]
    assert [p.partition(":")[0] for p in found] == [
        "1 class tests behind the operations, at most 0",
        "a module's name that is not unique",
        "an import inside of a function, toile/api/a.py",
        "a hook of the engine, toile.engine.program.run, filled at toile/api/a.py",
        "1 hooks of the engine, at most 0",
        "1 `# type",
    ]
    assert all("(" in p or ":" in p for p in found)
