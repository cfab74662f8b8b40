"""The messages of wrong programs: complete, short, and as they were written down.

`python -m tests.wrong_programs.rating --write` writes the golden texts again after a change.
"""

import sys

import pytest

from tests.conftest import ON_GPU
from tests.wrong_programs.corpus import LIBRARIES, Message, Program, programs, run
from tests.wrong_programs.rating import FIELDS, MOST_LINES, RESULTS, golden_messages, rate

PROGRAMS = {program.name: program for program in programs()}
MESSAGES = {}
tracing = pytest.mark.skipif(sys.gettrace() is not None, reason="a debugger or coverage traces")

# What a message lacks, and why: Python raises the error before any code of toile runs.
LACKING = {
    "torch_keyword": {"fix"},
    "optimizer_not_called": {"fix"},
    "apply_gradients_positional": {"fix"},
    "dense_two_sizes": {"values", "fix"},
}


def message(name):
    if name not in MESSAGES:
        MESSAGES[name] = run(PROGRAMS[name])
    return MESSAGES[name]


@tracing
@pytest.mark.parametrize("name", PROGRAMS)
def test_message_is_complete(name):
    found = rate(PROGRAMS[name], message(name))
    lacking = {field for field, held in found.items() if not held}
    assert lacking == LACKING.get(name, set()), message(name).text or "no error"


@tracing
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="Python's part differs by version")
@pytest.mark.skipif(ON_GPU, reason="errors of the GPU have other words")
@pytest.mark.parametrize("name", PROGRAMS)
def test_message_is_the_golden_one(name):
    assert message(name).text == golden_messages()[name]


def test_there_are_enough_programs():
    assert len(PROGRAMS) >= 80
    assert len(LACKING) <= len(PROGRAMS) / 10
    assert set(golden_messages()) == set(PROGRAMS)


@pytest.mark.parametrize("library", LIBRARIES)
def test_programs_are_well_formed(library):
    found = programs(library)
    assert len({p.name for p in found}) == len(found) and f"| {library} |" in RESULTS.read_text()
    for program in found:
        compile(program.text, program.file, "exec")
        assert program.line and program.cause and program.values and program.fix, program.name


def test_rater_can_fail():
    program = Program("p", "toile", "x = 1  # wrong\n", "size", "(3, 4); float32",
                      "/Dense_0", "use")
    error = "ValueError: sizes differ: float32[3,4] (use another)\n  in module /Dense_0 (Dense)\n"
    text = f'Traceback (most recent call last):\n  File "p.py", line 1, in f\n    x = 1\n{error}'
    assert all(rate(program, Message(text, error)).values())
    changes = {
        "cause": ("sizes", "lengths"), "line": ("line 1", "line 11"), "module": ("/Dense_0", "/"),
        "values": ("[3,4]", "[3,5]"), "fix": ("use another", "sorry"),
        "short": ("    x = 1\n", "    x = 1\n" * MOST_LINES),
    }  # fmt: skip
    for field, (old, new) in changes.items():
        found = rate(program, Message(text.replace(old, new), error.replace(old, new)))
        assert [name for name, held in found.items() if not held] == [field]
    assert not any(rate(program, Message("", "")).values()) and set(changes) == set(FIELDS)
