"""Compiles a Program to native code, or loads it from disk, and runs it.

This module may import the compiler, targets, platforms, control, primitives and the engine.
"""

from __future__ import annotations

import importlib
import itertools
import time
from collections.abc import Sequence
from typing import Any

from toile.compiler.index_tests import Tested, tested
from toile.engine.garbage import paused
from toile.engine.host_memory import check_outputs
from toile.engine.locks import loading
from toile.engine.program import Program
from toile.platforms import recall, reference
from toile.platforms.cpu import plans_on_disk as recalling
from toile.platforms.cpu.execution import Executable, shelf
from toile.targets.llvm import native

_asked = itertools.count()


def compiled(program: Program) -> Executable:
    """The native code of a Program, maybe from disk; may evict older code (see `code_memory`)."""
    check_outputs(program.name, program)
    made = _compiled(program)
    shelf.add(program, made)
    return made


def _compiled(program: Program) -> Executable:
    early = recall.is_early(_asked)
    program, tests = _with_tests(program)
    place = recalling.place(program, tests) if early or recall.is_long(program) else None
    found = place.recalled() if place is not None else None
    if found is not None:
        return found
    with paused():
        making = _making()  # loading it does not count as planning time
        started = time.perf_counter()
        with native.Work.beside():
            made = making.planned(program, tests)
    if place is not None and (early or recall.is_worth_keeping(time.perf_counter() - started)):
        place.keep(made)
    return made


def planned(program: Program) -> Any:
    """A Program as native code, with its plan (`assembly.PlannedExecutable`)."""
    made = _making().planned(*_with_tests(program))
    shelf.add(program, made)
    return made


def _with_tests(program: Program) -> tuple[Program, Tested | None]:
    """The Program that is compiled, which may test indices, and what reports such tests."""
    tests = tested(program)
    return (program, None) if tests is None else (tests.program, tests)


def _making() -> Any:
    """The planner; it is large, and loaded for the first Program that is not on disk."""
    with loading:
        return importlib.import_module("toile.platforms.cpu.new_plans")


def run(program: Program, raws: Sequence[Any]) -> Sequence[Any]:
    """Run a Program on raw buffers, compiling it in the first call."""
    return reference.run(program, raws, compiled)
