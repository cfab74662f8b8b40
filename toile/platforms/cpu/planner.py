"""What plans for the CPU consist of."""

from __future__ import annotations

from typing import Any

from toile.compiler.ir import steps
from toile.compiler.plan import lower
from toile.targets.llvm import native
from toile.targets.llvm.launches import Launch

WORTH_SHARING = 10_000  # nanoseconds: for less, handing work over costs more than it saves
SMALL = 2_000  # default cost of a launch of one chunk


class Region(steps.Region):
    """Launches and chains whose chunks are shared among the threads of the pool."""

    __slots__ = ()

    @property
    def kernels(self) -> list[Launch]:
        return [x for each in self.launches for x in getattr(each, "links", (each,))]

    @property
    def parallel(self) -> bool:
        """Whether there is enough work for more than one thread."""
        if any(x.chunks > 1 and (x.cost is None or x.cost > WORTH_SHARING) for x in self.launches):
            return True
        small = (SMALL if x.cost is None else float(x.cost) for x in self.launches)
        return len(self.launches) > 1 and sum(small) > WORTH_SHARING


class Plan(lower.Plan):
    """Steps of native kernels; implements `launches.Planner`."""

    unchained: dict[int, str]  # the reason, by origin, why a product has no chain

    def __init__(self, fused: Any, target: Any, *args: Any, **where: Any):
        super().__init__(fused, target, *args, **where)
        self.threads = target.threads
        self.also: set[str] = set()  # kernels that other extents would use

    def stage(self, *launches: Launch) -> None:
        for x in launches:
            if x.extent > 0:
                native.begin(x.text)
        super().stage(*launches)
