"""Parts of GPU plans besides regions and loops: library calls, and what may be overwritten."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from toile.compiler.ir import steps
from toile.compiler.ir.operands import Ref
from toile.compiler.ir.steps import Region, whole_buffer
from toile.engine.program import Program
from toile.targets.cuda.launches import Call, Launch

COPY = "copy"  # the note of launches that copy


class CallStep:
    """A library call between the regions."""

    __slots__ = ("call", "reads", "writes", "origin")

    def __init__(self, call: Call, origin: Any):
        self.call, self.origin = call, origin
        self.reads: set[Any] = set(call.reads)
        self.writes: set[Any] = set(call.writes)


class MadePlan(steps.MadePlan):
    """A plan for a GPU, as it is read from disk; `given` is the Program before planning changed it.

    `in_place` has launches with two buffers (read, written): such a launch reads each element of
    the first only where it writes the same element of the second."""

    given: Program
    in_place: set[tuple[Launch, Any, Any]]
    recalled = True  # whether the plan came from disk, without its equations

    def may_overwrite(self) -> Callable[[Any, Any], bool]:
        """A function of two buffers that says whether a result may overwrite an input.

        This is allowed if nothing reads the input after the first part of the result is written, or
        beside the launch that writes it. If that launch copies the input, because only a part of it
        is updated later, others may read the input beside it: the copy then changes nothing."""
        last: dict[Any, int] = {}
        writing: dict[Any, list[int]] = {}
        for i, s in enumerate(self.steps):
            last.update(dict.fromkeys(s.reads, i))
            for b in dict.fromkeys(map(whole_buffer, s.writes)):
                writing.setdefault(b, []).append(i)
        returned = {r.buffer for r in self.outputs}
        launches = functools.cache(self._launches_by_buffer)
        reuses = self.reusing()

        def is_copy(i: int, read: Any, written: Any) -> bool:
            found = launches(i).get(written, []) if isinstance(self.steps[i], Region) else []
            return len(found) == 1 and found[0].note == COPY and (
                (found[0], read, written) in self.in_place)

        def may(read: Any, written: Any) -> bool:
            until, writes = last.get(read, -1), writing.get(written, ())
            if not writes or read in returned:
                return False
            at = writes[0]
            if until != at or is_copy(at, read, written):
                return until <= at
            return reuses(at, read, written)

        return may

    def reusing(self) -> Callable[[int, Any, Any], bool]:
        """Whether a step may write a buffer in the memory of another one, which it reads."""
        launches = functools.cache(self._launches_by_buffer)

        def reuses(at: int, read: Any, written: Any) -> bool:
            step = self.steps[at]
            if isinstance(step, CallStep):
                return step.call.may_overwrite(read, written)
            if not isinstance(step, Region):
                return False
            readers, writers = (launches(at).get(b, []) for b in (read, written))
            if len(readers) != 1 or len(writers) != 1 or readers[0] is not writers[0]:
                return False
            return (readers[0], read, written) in self.in_place

        return reuses

    def _launches_by_buffer(self, i: int) -> dict[Any, list[Any]]:
        """For each buffer, the launches of a step that use it."""
        found: dict[Any, list[Any]] = {}
        for x in self.steps[i].launches:
            for b in {a.buffer for a in x.args if isinstance(a, Ref)}:
                found.setdefault(b, []).append(x)
        return found
