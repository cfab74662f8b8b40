"""While loops and branches in CUDA graphs: conditional nodes, so that the host never waits.

A conditional node runs its body graphs depending on a value that a kernel sets on the device. The
pointers of a body are the same in every iteration: a body that reads one buffer of a carry and
writes the other is followed by copies, made by the kernel that sets the value. If carries are
large, the body instead has two iterations, and the second writes to the first buffers again. Only a
loop that ends after the first of the two then copies, once.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from typing import Any

from toile.compiler.ir.steps import ScanStep, SwitchStep, WhileStep
from toile.targets.cuda import modules as kernels
from toile.targets.cuda.driver import IF, SWITCH, WHILE, driver, words_of
from toile.targets.cuda.launches import THREADS
from toile.targets.cuda.modules import Kernel

Addresses = dict[Any, int]
Issue = Callable[[Any, int], None]  # issues a plan on a stream
Branch = Callable[[int], None]  # issues a branch on a stream

LARGE = 4 << 20  # bytes of carries that are not copied in each iteration
MOST_DECISIONS = 256  # nodes of a graph: each takes about 0.1 MB, and 2,000 fail
SHARE = 1 << 14  # bytes that a thread block copies
_AS_IT_IS = -1  # a condition gets the value itself, not whether it equals a number
_FIXED = 5  # words before the conditions

# If w[0] is 0: copy w[3] bytes from w[2] to w[1]. Otherwise: the value at w[1], of w[2] bytes,
# clamped to [0, w[3]], sets w[4] conditions. One thread sets them: concurrent sets are not allowed.
TEXT = f"""\
#define THREADS {THREADS}
extern "C" __device__ void cudaGraphSetConditional(u64 condition, unsigned value);
__device__ void body(const Word* w, unsigned block) {{
  if (w[0] == 0) {{
    Word first = (Word)block * {SHARE}, last = first + {SHARE};
    if (last > w[3]) last = w[3];
    char* to = (char*)w[1];
    const char* from = (const char*)w[2];
    Word whole = last & ~15ll;
    for (Word i = first + threadIdx.x * 16; i < whole; i += THREADS * 16)
      *(uint4*)(to + i) = *(const uint4*)(from + i);
    for (Word i = whole + threadIdx.x; i < last; i += THREADS) to[i] = from[i];
  }} else if (threadIdx.x == 0) {{
    int value = w[2] == 1 ? *(const u8*)w[1] : *(const int*)w[1];
    value = value < 0 ? 0 : value > (int)w[3] ? (int)w[3] : value;
    for (int i = 0; i < (int)w[4]; ++i) {{
      int wanted = (int)w[{_FIXED + 1} + 2 * i];
      cudaGraphSetConditional((u64)w[{_FIXED} + 2 * i], wanted < 0 ? value : value == wanted);
    }}
  }}
}}
"""
KERNELS = (Kernel(TEXT), Kernel(TEXT, many=True))
MOST_BRANCHES = (kernels.MOST_WORDS - 4 - _FIXED) // 2  # if each branch is a node of its own

_streams: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()


def possible(plan: Any) -> bool:
    """Whether the driver supports all the nodes that a plan's loops and branches need."""
    has = driver().conditionals
    switches = [s for s in plan.all_steps() if isinstance(s, SwitchStep)]
    branches = max((len(s.children) for s in switches), default=0)
    if has < WHILE or (has < SWITCH and branches > MOST_BRANCHES):
        return False
    return decisions(plan) <= MOST_DECISIONS


def decisions(plan: Any) -> int:
    """How many conditional nodes a graph of a plan has."""
    total = 0
    for step in plan.steps:
        inside = [decisions(child) for child in getattr(step, "children", ())]
        if isinstance(step, ScanStep):
            total += step.trips * inside[0]
        elif isinstance(step, SwitchStep):
            total += _choices(len(inside)) + sum(inside)
        elif isinstance(step, WhileStep):
            condition, body = inside
            turns, ends = (2, _choices(2)) if _large(step) else (1, 0)
            total += 1 + condition + turns * (condition + body) + ends
    return total


def _choices(branches: int) -> int:
    """The number of nodes for a switch with this number of branches."""
    return 1 if driver().conditionals >= SWITCH else branches


def nodes_of(step: WhileStep | SwitchStep, inside: Sequence[int]) -> int:
    """About how many nodes a step has, given those of its bodies."""
    if isinstance(step, SwitchStep):
        return 2 + sum(inside)
    condition, body = inside
    turns = 2 if _large(step) else 1
    return 2 + condition + turns * (condition + body + 1) + (turns > 1)


# ---- pointers


def start(step: Any, addresses: Addresses) -> None:
    """Set the moving pointers of a loop to their start."""
    for moving, ref in step.starts:
        addresses[moving] = addresses[ref.buffer] + ref.offset


def swap(step: Any, addresses: Addresses) -> None:
    """Exchange the buffers of the carries."""
    for a, b in step.swaps:
        addresses[a], addresses[b] = addresses[b], addresses[a]


def _sizes(step: WhileStep) -> list[int]:
    """The bytes of the carries that have two buffers."""
    rooms = dict(step.starts)
    return [rooms[a].buffer.nbytes for a, _ in step.swaps]


def _large(step: WhileStep) -> bool:
    return sum(_sizes(step)) > LARGE


# ---- nodes


class Nodes:
    """Adds conditional nodes to the graph being captured; `issue` puts a plan on a stream."""

    def __init__(self, device: Any, addresses: Addresses, issue: Issue):
        self.device, self.addresses, self.issue = device, addresses, issue
        self.streams = _streams.setdefault(device, [])

    def loop(self, step: WhileStep, stream: int) -> None:
        """Add a while loop; at its end, the carries are in the buffers that it reads first."""
        start(step, self.addresses)
        condition = driver().condition(stream)
        goes_on = [(condition, _AS_IT_IS)]
        self.issue(step.condition, stream)
        self._set(self._place(step), 1, 1, goes_on, stream)
        (graph,) = driver().branch(stream, condition, WHILE, 1)
        with self._body(graph, stream) as inner:
            self.issue(step.body, inner)
            swap(step, self.addresses)
            self.issue(step.condition, inner)
            if _large(step):
                self._way_back(step, goes_on, inner)
            else:
                self._set(self._place(step), 1, 1, goes_on, inner, self._copies(step))
                swap(step, self.addresses)

    def _way_back(
        self, step: WhileStep, goes_on: list[tuple[int, int]], stream: int
    ) -> None:
        """The second iteration of a body, or copies if the loop ends before it."""
        copies = self._copies(step)

        def ended(inner: int) -> None:
            for target, source, nbytes in copies:
                driver().copy(target, source, nbytes, inner)

        def turn(inner: int) -> None:
            self.issue(step.body, inner)
            swap(step, self.addresses)
            self.issue(step.condition, inner)
            self._set(self._place(step), 1, 1, goes_on, inner)

        self._choice(self._place(step), 1, [ended, turn], stream, goes_on)

    def switch(self, step: SwitchStep, stream: int) -> None:
        """Add a switch; the index is clamped to the range of the branches."""
        start(step, self.addresses)

        def branch(child: Any) -> Branch:
            return lambda inner: self.issue(child, inner)

        self._choice(self.addresses[step.index], 4, [branch(x) for x in step.children], stream)

    def _choice(
        self, place: int, nbytes: int, branches: Sequence[Branch], stream: int,
        also: Sequence[tuple[int, int]] = (),
    ) -> None:
        """The branch that the integer at an address selects; `also`: other conditions to set."""
        many = driver().conditionals >= SWITCH
        wanted = [_AS_IT_IS] if many else range(len(branches))
        made = [(driver().condition(stream), x) for x in wanted]
        self._set(place, nbytes, len(branches) - 1, [*made, *also], stream)
        graphs = []
        for condition, _ in made:
            kind, count = (SWITCH, len(branches)) if many else (IF, 1)
            graphs += driver().branch(stream, condition, kind, count)
        for graph, branch in zip(graphs, branches, strict=True):
            with self._body(graph, stream) as inner:
                branch(inner)

    @contextmanager
    def _body(self, graph: int, stream: int) -> Iterator[int]:
        """A block whose work is captured into a body graph, on a stream that no other is using."""
        depth = self.streams.index(stream) + 1 if stream in self.streams else 0
        if depth == len(self.streams):
            self.streams.append(driver().new_stream())
        inner = self.streams[depth]
        driver().begin_body(inner, graph)
        try:
            yield inner
        except BaseException:
            driver().abandon_body(inner)
            raise
        driver().end_body(inner)

    # ---- the kernel
    def _place(self, step: WhileStep) -> int:
        return self.addresses[step.predicate.buffer] + step.predicate.offset

    def _copies(self, step: WhileStep) -> list[tuple[int, int, int]]:
        """After a swap: (target, source, bytes) to copy each carry back to its first buffer."""
        where = self.addresses
        pairs = zip(step.swaps, _sizes(step), strict=True)
        return [(where[b], where[a], nbytes) for (a, b), nbytes in pairs]

    def _set(
        self, place: int, nbytes: int, last: int, conditions: Sequence[tuple[int, int]],
        stream: int, copies: Sequence[tuple[int, int, int]] = (),
    ) -> None:
        """Set conditions by the integer at an address, and copy, in as few launches as possible."""
        flat = [x for pair in conditions for x in pair]
        parts = [(1, [1, place, nbytes, last, len(conditions), *flat])]
        parts += [(ceil(n / SHARE), [0, target, source, n]) for target, source, n in copies]
        room = kernels.capacity(max(len(words) for _, words in parts))
        functions = kernels.functions(KERNELS, self.device)
        for i in range(0, len(parts), room):
            many, words, blocks = kernels.joined(parts[i : i + room])
            kernel = KERNELS[many]
            driver().launch(
                functions[kernel], blocks, THREADS, 0, stream, words_of(words, kernel.room)
            )
