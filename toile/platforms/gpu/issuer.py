"""Issuing a plan on a stream: launches, library calls, loops, and steps that run on the host.

An `Issuer` is a plan made ready: kernels compiled, arguments laid out, positions of pointers
recorded. `issue(addresses)` puts the work on the stream once, in order; while a stream is being
captured the same calls make a graph (see `graph_order`). Loops of known length are unrolled;
outside graphs, long ones are launched in chunks. In a graph, `while` loops and branches are
conditional nodes; outside graphs, they wait for their predicate. Operations without a kernel run on
the host.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from toile.compiler.ir.operands import Operand, Ref
from toile.compiler.ir.steps import EagerStep, MadePlan, Region, ScanStep, SwitchStep, WhileStep
from toile.engine.fp_errors import ignore_errors, restore_errors
from toile.engine.platform_registry import host
from toile.engine.program import Equation
from toile.platforms.gpu import conditional_nodes as conditional
from toile.platforms.gpu.chunks import LONG_NODES, Chunks, turns_of
from toile.platforms.gpu.conditional_nodes import swap
from toile.platforms.gpu.graph_order import Extents, GraphOrder
from toile.platforms.gpu.steps import COPY, CallStep
from toile.targets.cuda import modules as kernels
from toile.targets.cuda.driver import CudaError, driver, words_of
from toile.targets.cuda.launches import Launch
from toile.targets.cuda.modules import Kernel

Addresses = dict[Any, int]
TRIES = 3  # captures of a loop's chunks that may fail
FEW_BLOCKS = 128  # of small launches, which share a kernel with others
MOST_TEXTS = 4  # that a kernel combines
MOST_NAMED = 4  # launches named in the error of a step that failed


class _Launch:
    """One launch: its words, which of them are pointers, and the plan's launches it covers."""

    __slots__ = ("kernel", "function", "threads", "blocks", "words", "refs", "shared", "parts",
                 "moves", "waits")

    def __init__(
        self, kernel: Kernel, words: Sequence[Any], blocks: int, shared: int, parts: list[Launch]
    ):
        self.kernel, self.blocks, self.shared, self.parts = kernel, blocks, shared, parts
        self.refs = [(i, w.buffer, w.offset) for i, w in enumerate(words) if isinstance(w, Ref)]
        self.words = words_of([0 if isinstance(w, Ref) else w for w in words], kernel.room)
        self.threads = kernels.threads_of(kernel.text)
        self.function = 0
        # Whether it reads only after it has waited for others. A compiler may move reads with
        # `__ldg`, whose memory does not change during the kernel, before the wait.
        self.waits = "__ldg(" not in kernel.text
        # Of a launch that only copies whole arguments to results: the argument and result buffers.
        self.moves: list[tuple[Any, Any]] = []


def launches_of(region: Region) -> list[_Launch]:
    """The launches of a region; those of one text are combined, as many as an argument holds, and
    so are small ones of several texts.

    They are issued in the order of the Program: on a GPU that a large kernel fills, a small one
    issued after it has to wait."""
    place = {id(x): n for n, x in enumerate(region.launches)}
    made = sorted(_kernels_of(region), key=lambda kernel: min(place[id(x)] for x, _ in kernel[2]))
    return [launch for kernel in made for launch in _joined(*kernel)]


def _kernels_of(region: Region) -> list[tuple[str, int, list[tuple[Launch, Any]]]]:
    """The texts of a region, their shared memory, and their launches with their arguments."""
    by_text: dict[Any, list[Any]] = {}
    for x in region.launches:
        by_text.setdefault((x.text, x.shared), []).append(x)
    alone: list[Any] = []
    small: dict[Any, list[Any]] = {}
    for (text, shared), same in by_text.items():
        rows = [(x, x.args) for x in same]
        if shared or not _is_small(same):
            alone.append((text, shared, rows))
        else:
            small.setdefault((kernels.threads_of(text), "__ldg(" in text), []).append((text, rows))
    for texts in small.values():
        for some in _groups(texts):
            if len(some) == 1:
                alone.append((some[0][0], 0, some[0][1]))
            else:
                rows = [(x, (n, *args)) for n, (_, same) in enumerate(some) for x, args in same]
                alone.append((kernels.combined([text for text, _ in some]), 0, rows))
    return alone


def _groups(texts: list[Any]) -> Iterator[list[Any]]:
    """The texts that a kernel combines: a few, of which one may use shared memory, because that of
    several would add up."""
    shared = [x for x in texts if "__shared__" in x[0]]
    others = [x for x in texts if "__shared__" not in x[0]]
    while shared or others:
        some, shared = shared[:1], shared[1:]
        n = MOST_TEXTS - len(some)
        yield [*some, *others[:n]]
        others = others[n:]


def _is_small(same: list[Launch]) -> bool:
    """Whether launches of one text may be combined with others: that saves launches, but one that
    does not fit on the GPU at once would lose more."""
    return sum(x.blocks for x in same) <= FEW_BLOCKS and kernels.is_combinable(same[0].text) and (
        not any(x.note == COPY for x in same))  # which may have nothing to do


def _joined(text: str, shared: int, rows: list[tuple[Launch, Any]]) -> Iterator[_Launch]:
    """Launches of one text with their arguments, as many in one as an argument holds."""
    room = kernels.capacity(max(len(args) for _, args in rows))
    for i in range(0, len(rows), room):
        some = rows[i : i + room]
        many, words, blocks = kernels.joined([(x.blocks, args) for x, args in some])
        yield _Launch(Kernel(text, many), words, blocks, shared, [x for x, _ in some])


class Issuer:
    """The steps of a plan, ready to be issued on a device's stream."""

    captured = False  # whether what is issued now is captured in a graph
    branches = True  # whether independent steps are branches of a graph

    def __init__(self, plan: MadePlan, device: Any):
        self.plan, self.device = plan, device
        steps = list(plan.all_steps())
        self.launches = {id(s): launches_of(s) for s in steps if isinstance(s, Region)}
        every = [x for same in self.launches.values() for x in same]
        self._note_moves(every)
        self.decides = decides(steps)
        self.chunks: dict[int, Chunks] = {}  # of long loops, by step
        self.failures: dict[int, int] = {}  # captures of them that failed
        self.busy = False  # whether steps are being issued
        self.capturable = not any(map(_waits, steps)) and (
            not self.decides or conditional.possible(plan))
        more = conditional.KERNELS if self.decides and driver().conditionals >= 0 else ()
        # Kept alive here too: graphs use the kernels that set conditions.
        self.functions = kernels.functions([*(x.kernel for x in every), *more], device)
        for x in every:
            x.function = self.functions[x.kernel]
            if x.shared > 32 << 10:  # static shared memory counts too
                driver().allow_shared(x.function, x.shared)
        for step in steps:
            if isinstance(step, CallStep):
                step.call.prepare()
        self.nodes = _count(plan, self.launches)

    def _note_moves(self, launches: Sequence[_Launch]) -> None:
        """Find the launches that do nothing if arguments are returned where they are."""
        pairs: dict[Launch, list[tuple[Any, Any]]] = {}
        for launch, read, written in getattr(self.plan, "in_place", ()):
            if launch.note == COPY:
                pairs.setdefault(launch, []).append((read, written))
        for x in launches if pairs else ():
            if all(part in pairs for part in x.parts):
                x.moves = [pair for part in x.parts for pair in pairs[part]]

    @functools.cached_property
    def nodes_in_chunks(self) -> int:
        """The nodes of long loops that are issued in chunks."""
        return sum(self._long(s) for s in self.plan.steps if isinstance(s, ScanStep))

    def issue(self, addresses: Addresses, stream: int, checked: bool = False) -> None:
        """Put the work on the stream; `checked`: wait after each step, and name one that fails."""
        self.busy = True
        try:
            self._steps(self.plan, addresses, stream, checked)
        finally:
            self.busy = False

    def capture(self, addresses: Addresses, stream: int) -> int:
        """Capture the work as an executable graph; if that fails, the capture is ended."""
        return self._captured(lambda on: self.issue(addresses, on), stream)

    @functools.cached_property
    def extents(self) -> Extents:
        """The sizes of the buffers of all steps."""
        return Extents(self.plan)

    def _order(self, stream: int) -> GraphOrder | None:
        """The order of what is captured on a stream; None if it is captured as one chain."""
        if not (self.captured and self.branches) or driver().conditionals < 0:
            return None
        return GraphOrder(stream, self.extents)

    def _captured(self, issue: Callable[[int], None], stream: int) -> int:
        driver().begin_capture(stream)
        self.captured = True
        try:
            issue(stream)
            graph = driver().end_capture(stream)
        except BaseException:
            driver().abandon_capture(stream)
            raise
        finally:
            self.captured = False
        return driver().instantiate(graph)

    def _steps(
        self, plan: MadePlan, addresses: Addresses, stream: int, checked: bool,
        order: GraphOrder | None = None,
    ) -> None:
        """Issue the steps of a plan; `order` is that of the graph to which they are added, if they
        are not captured as one chain."""
        if order is None:
            order = self._order(stream)
            if order is not None:
                self._steps(plan, addresses, stream, checked, order)
                return order.join()

        def pointer(ref: Ref) -> int:
            return addresses[ref.buffer] + ref.offset

        for step in plan.steps:
            try:
                if isinstance(step, Region):
                    self._region(step, addresses, stream, checked, order)
                elif isinstance(step, CallStep):
                    if order is None:
                        step.call.run(pointer, stream)
                    else:
                        needed, uses = order.wait(step, addresses)
                        step.call.run(pointer, stream)
                        order.add(order.last(), needed, uses)
                else:
                    self._other(step, addresses, stream, checked, order)
                if checked:
                    driver().synchronize(stream)
            except CudaError as error:
                if checked and not getattr(error, "__notes__", ()):
                    error.add_note(f"in {describe(step)} of {self.plan.program.name}")
                raise

    def _region(
        self, step: Region, addresses: Addresses, stream: int, checked: bool,
        order: GraphOrder | None,
    ) -> None:
        """Issue the launches of a region, which do not depend on each other."""
        launch, launches = driver().launch, self.launches[id(step)]
        nodes: list[int] = []
        early = all(x.waits for x in launches)
        needed, uses = ([], None) if order is None else order.wait(step, addresses, early)
        for n, x in enumerate(launches):
            if x.moves and all(addresses[a] == addresses[b] for a, b in x.moves):
                continue
            words = x.words
            for i, buffer, offset in x.refs:
                words[i] = addresses[buffer] + offset
            if order is not None and n:
                order.wait_for(needed, early)
            launch(x.function, x.blocks, x.threads, x.shared, stream, words)
            if order is not None:
                nodes += order.last()
            if checked:
                try:
                    driver().synchronize(stream)
                except CudaError as error:
                    error.add_note(f"in {describe(x)} of {self.plan.program.name}")
                    raise
        if order is not None:
            order.add(nodes, needed, uses, len(nodes) == 1)

    def _other(
        self, step: Any, addresses: Addresses, stream: int, checked: bool,
        order: GraphOrder | None,
    ) -> None:
        match step:
            case ScanStep():
                self._scan(step, addresses, stream, checked, order)
            case WhileStep() | SwitchStep() if self.captured:
                if order is not None:
                    order.join()
                if isinstance(step, WhileStep):
                    self._nodes(addresses).loop(step, stream)
                else:
                    self._nodes(addresses).switch(step, stream)
                if order is not None:
                    order.start()
            case WhileStep():
                conditional.start(step, addresses)
                where = step.predicate
                while True:
                    self._steps(step.condition, addresses, stream, checked)
                    if not _read(addresses[where.buffer] + where.offset, np.bool_, stream):
                        break
                    self._steps(step.body, addresses, stream, checked)
                    swap(step, addresses)
            case SwitchStep():
                conditional.start(step, addresses)
                index = int(_read(addresses[step.index], np.int32, stream))
                chosen = min(max(index, 0), len(step.children) - 1)
                self._steps(step.children[chosen], addresses, stream, checked)
            case EagerStep():
                _on_host(step, addresses, stream)

    def _nodes(self, addresses: Addresses) -> conditional.Nodes:
        return conditional.Nodes(
            self.device, addresses, lambda p, stream: self._steps(p, addresses, stream, False))

    def _scan(
        self, step: Any, addresses: Addresses, stream: int, checked: bool,
        order: GraphOrder | None,
    ) -> None:
        conditional.start(step, addresses)
        starts = [(m, addresses[r.buffer] + r.offset, stride) for m, r, stride in step.slices]

        def turns(first: int, last: int) -> None:
            for turn in range(first, last):
                for moving, start, stride in starts:
                    addresses[moving] = start + turn * stride
                self._steps(step.body, addresses, stream, checked, order)
                swap(step, addresses)

        turns(0, 1)  # which also starts the libraries that the body calls
        done = 1
        chunks = None if self.captured or checked else self._chunks(step, addresses, stream)
        if chunks is not None:
            # The memory of a chunk's slices ends where that of the next chunk begins, or begins
            # where it ends: the first and the last iteration are not in a chunk.
            for done in range(1, step.trips - chunks.turns, chunks.turns):
                chunks.run(addresses, done, stream)
            done += chunks.turns
        turns(done, step.trips)

    def _chunks(self, step: ScanStep, addresses: Addresses, stream: int) -> Chunks | None:
        """The loop in chunks, ready to run after one iteration; None if it is short, or if it
        cannot be captured."""
        found = self.chunks.get(id(step)) or self._made(step)
        if found is None:
            return None
        self.chunks[id(step)] = found
        try:
            found.ready(addresses, stream, functools.partial(self._chunk, found))
        except MemoryError:
            raise
        except Exception:  # of the driver or of a library: chunks would only save time
            driver().synchronize(stream)
            self.chunks.pop(id(step)).forget(driver())
            self.failures[id(step)] = self.failures.get(id(step), 0) + 1
            self.__dict__.pop("nodes_in_chunks", None)
            return None
        return found

    def _turns(self, step: ScanStep) -> int:
        """The iterations of a chunk of a loop; 0 if it is issued iteration by iteration."""
        if self.failures.get(id(step), 0) >= TRIES:
            return 0
        inner = list(step.body.all_steps())
        if any(map(_waits, inner)) or (decides(inner) and not conditional.possible(step.body)):
            return 0
        return turns_of(step, _count(step.body, self.launches))

    def _long(self, step: ScanStep) -> int:
        """The nodes of a loop if it is long, and can be issued in chunks; else 0."""
        nodes = step.trips * _count(step.body, self.launches)
        return nodes if nodes >= LONG_NODES and self._turns(step) else 0

    def _made(self, step: ScanStep) -> Chunks | None:
        turns = self._turns(step)
        try:
            return Chunks(step, turns, self.device) if turns else None
        except MemoryError:  # chunks would only save time
            return None

    def _chunk(self, chunks: Chunks, addresses: Addresses) -> int:
        """An executable graph of the iterations of a chunk."""

        def issue(stream: int) -> None:
            order = self._order(stream)
            for turn in range(chunks.turns):
                chunks.slices(addresses, turn)
                self._steps(chunks.step.body, addresses, stream, False, order)
                swap(chunks.step, addresses)
            if order is not None:
                order.join()

        return self._captured(issue, self.device.capture_stream)

    def forget_chunks(self, driver: Any) -> None:
        """Free the memory and graphs of chunks, which `driver` made; nothing may be running."""
        for chunks in self.chunks.values():
            chunks.forget(driver)
        self.chunks.clear()


def decides(steps: Sequence[Any]) -> bool:
    """Whether there are loops or branches that a condition decides."""
    return any(isinstance(s, (WhileStep, SwitchStep)) for s in steps)


def _waits(step: Any) -> bool:
    """Whether a step needs the host and thus cannot be in a graph."""
    if isinstance(step, CallStep):
        return not step.call.capturable
    return isinstance(step, EagerStep)


def _count(plan: MadePlan, launches: dict[int, list[_Launch]]) -> int:
    """About how many nodes a graph of the plan would have."""
    total = 0
    for step in plan.steps:
        if isinstance(step, Region):
            total += len(launches[id(step)])
        elif isinstance(step, ScanStep):
            total += step.trips * _count(step.body, launches)
        elif isinstance(step, (WhileStep, SwitchStep)):
            inside = [_count(child, launches) for child in step.children]
            total += conditional.nodes_of(step, inside)
        else:
            total += step.call.nodes if isinstance(step, CallStep) else 1
    return total


def describe(step: Any) -> str:
    """A description of a step or a launch: the kernel, and the equations that it computes."""
    if isinstance(step, (Region, _Launch)):
        parts = step.launches if isinstance(step, Region) else step.parts
        kinds = ", ".join(dict.fromkeys(x.note or "kernel" for x in parts[:MOST_NAMED]))
        names = dict.fromkeys(e for x in parts[:MOST_NAMED] for e in [_names(x.origin)] if e)
        more = f" and {len(parts) - MOST_NAMED} more" if len(parts) > MOST_NAMED else ""
        return f"{kinds} kernel of {'; '.join(names)}{more}" if names else f"{kinds} kernel"
    if isinstance(step, CallStep):
        made = _names(step.origin)
        return f"{step.call.note} of {made}" if made else step.call.note
    if isinstance(step, EagerStep):
        return f"{_of([step.equation])} (on the host)"
    return f"a loop ({_names(step.origin)})" if getattr(step, "origin", None) else "a loop"


def _names(group: Any) -> str:
    return "" if group is None else _of([m.equation for m in group.members])


def _of(equations: Sequence[Equation]) -> str:
    """A description of equations: operations, shapes, the module and the user's line."""
    text = " ".join(e.op.name for e in equations[:8])
    made = ", ".join(dict.fromkeys(o.aval.str_short() for o in equations[-1].outs[:2]))
    scope = next(("/".join(e.scope) for e in equations if e.scope), "")
    source = next((e.source for e in equations if e.source is not None), None)
    where = f" in {scope}" if scope else ""
    return f"{text} -> {made}{where}" + (f" at {source}" if source is not None else "")


# ---- the host


def _read(address: int, dtype: Any, stream: int) -> Any:
    value = np.empty((), dtype)
    driver().download(value.ctypes.data, address, value.nbytes, stream)
    return value[()]


def _on_host(step: EagerStep, addresses: Addresses, stream: int) -> None:
    """Copy operands to the host, run the operation there, and copy the results back."""
    op = step.equation.op
    given = [_fetched(x, addresses, stream) for x in step.ins]
    token = ignore_errors()
    before, host.only = host.only, True
    try:
        results = op.eager(np, *given)
    finally:
        host.only = before
        restore_errors(token)
    for x, r in zip(step.outs, results if op.multiple else [results], strict=True):
        value = np.ascontiguousarray(np.broadcast_to(np.asarray(r, x.dtype), x.shape))
        if value.size:
            where = addresses[x.ref.buffer] + x.ref.offset
            driver().upload(where, value.ctypes.data, value.nbytes, stream)
            driver().synchronize(stream)


def _fetched(x: Operand, addresses: Addresses, stream: int) -> Any:
    """An operand as a NumPy array: the bytes that it spans, viewed with its strides."""
    if 0 in x.shape:
        return np.empty(x.shape, x.dtype)
    size = x.dtype.itemsize
    strides = [s * size for s in x.strides]
    low = sum((n - 1) * s for n, s in zip(x.shape, strides, strict=True) if s < 0)
    high = sum((n - 1) * s for n, s in zip(x.shape, strides, strict=True) if s > 0)
    memory = (ctypes.c_char * (high - low + size))()
    where = addresses[x.ref.buffer] + x.ref.offset + low
    driver().download(ctypes.addressof(memory), where, len(memory), stream)
    return np.ndarray(x.shape, x.dtype, memory, -low, strides)
