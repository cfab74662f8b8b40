"""What tests of indices found on a GPU: numbers in memory of the host, which kernels write.

Kernels update the numbers in place, and nothing waits for them: they are read when the host waits
for the device anyway. Bad indices are kept until then, however many calls there are in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toile.compiler.index_tests import Form, Tested
    from toile.engine.out_of_bounds import Bounds


MOST_LATE = 1024  # checks outside jit, before the host waits for them
ROOM = 64  # numbers, a multiple of the alignment of arrays


class IndexWords:
    """The vector of the tests of one executable.

    `kept`: whether a run may update it in place. Otherwise the executable reads zeros, and only
    its last run before a wait is reported."""

    __slots__ = ("tests", "kept", "words", "address", "before", "memory")

    def __init__(self, tests: Tested, device: Any, kept: bool):
        self.tests, self.kept = tests, kept
        count = len(tests.bounds) + 1
        apart = -(-count // ROOM) * ROOM  # where the zeros begin
        both, self.address, self.memory = device.host_words(2 * apart)
        both[:] = 0
        self.words = both[:count]
        self.before = self.address if kept else self.address + 4 * apart

    def read(self) -> None:
        """Report bad indices; called when the device has finished its work."""
        if self.words[0]:
            found = self.words.copy()
            self.words[:] = 0
            self.tests.report(found)


class LateIndex:
    """The worst of the indices of an operation outside jit, a CuPy array of one number."""

    __slots__ = ("worst", "form", "bounds")

    def __init__(self, worst: Any, form: Form, bounds: Bounds):
        self.worst, self.form, self.bounds = worst, form, bounds

    def read(self) -> None:
        """Report the index if it is out of bounds; called when it has been computed."""
        found = self.form.index_of(int(self.worst.get()))
        if found is not None:
            self.bounds.report(found)


def report(tested: set[Any]) -> None:
    """Report the bad indices that were found since the last report."""
    found = list(tested)
    tested.clear()
    for words in found:
        words.read()
