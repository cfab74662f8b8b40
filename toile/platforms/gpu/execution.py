"""Running a plan on a GPU: pointers of the call, a shared arena for temporaries, graphs.

The first runs of a Program issue its steps one by one; repeated calls launch them as one CUDA
graph. The pointers of a graph are fixed: graphs are kept for a few sets of pointers, and an input
or result whose address changes with every call gets its own buffer, from or to which it is
copied. All Programs of a device share one stream and one growing arena.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from toile.compiler.debug_flags import asked_for
from toile.compiler.index_tests import Tested
from toile.compiler.ir.steps import Constant
from toile.compiler.plan.place import arena_layout
from toile.engine.dtypes import float0
from toile.engine.program import Program
from toile.platforms.gpu import devices as gpu
from toile.platforms.gpu.index_words import IndexWords
from toile.platforms.gpu.issuer import Issuer
from toile.platforms.gpu.live_arrays import noted, results_of
from toile.platforms.gpu.memory import allocated, arena_of, executables, out_of_memory
from toile.platforms.gpu.plans_on_disk import planned
from toile.platforms.gpu.steps import CallStep, MadePlan
from toile.targets.cuda import cublas
from toile.targets.cuda.driver import OUT_OF_MEMORY, CudaError, driver

MOST_GRAPHS = 4  # of one Program
MOST_NODES = 30_000  # of one graph
MOSTLY = 0.9  # of the nodes: if long loops have more, no single graph is made
TRIES = 3  # captures that may fail in a row
EQUATION_BYTES = 3 << 10  # of a plan, for each equation: steps, and texts of kernels
# What is known to move gets such a buffer before the first graph if copying takes little time
# compared with the rest of a call. Limits: how many nodes there are per buffer, how many buffers,
# and how many bytes per node.
NODES_PER_COPY = 64
MOST_COPIES = 16
BYTES_PER_NODE = 32 << 10
# Everything that has moved gets such a buffer if copying it, in all calls until the next capture,
# takes less time than the capture of a graph. After the first captures, addresses may still settle:
# copying must be much cheaper then.
CAPTURE_US = 45.0  # for each node
COPY_US = 2.5  # for each buffer, in addition to the time for its bytes
BYTES_PER_US = 2 << 20
MUCH, LITTLE = 50, 2  # how many times cheaper, for the first graphs and later
FEWEST, FIRST = 2, 8  # graphs
KEPT_NODES = 20_000  # of all graphs of a Program, beyond MOST_GRAPHS


_uses = itertools.count(1)  # counts the calls of all executables


def overwritten(
    program: Program, plan: MadePlan, donated: Sequence[int], results: int | None = None
) -> dict[int, int]:
    """The number of the donated input that each result may overwrite, by the result's number;
    callers get the first `results` results.

    The results of one training step are the inputs of the next, in order: of those with equal
    shape and dtype, the n-th result overwrites the n-th input, or none. Otherwise addresses
    would rotate with every call, and graphs need fixed ones. Further results take what is left.
    """
    found: dict[int, int] = {}
    given: dict[Any, list[int]] = {}
    for j in donated:
        aval = program.inputs[j].aval
        if aval.size:
            given.setdefault((aval.shape, aval.dtype), []).append(j)
    may = plan.may_overwrite()
    taken: dict[Any, int] = {}  # how many results of this shape and dtype came before
    pairs = list(zip(program.outputs, plan.outputs, strict=True))
    for i, (o, ref) in enumerate(pairs[:results]):
        form = o.aval.shape, o.aval.dtype
        alike, number = given.get(form, []), taken.get(form, 0)
        taken[form] = number + 1
        left = (j for j in alike if j not in found.values())
        for j in alike[number : number + 1] or left:
            if may(program.inputs[j], ref.buffer):
                found[i] = j
                break
    return found


class Executable:
    """A compiled Program on a device; `original` is the Program, if its plan came from disk.

    With `tests` of indices, its last input and its last output are the vector of their results."""

    def __init__(
        self, program: Program, plan: MadePlan, device: gpu.GpuDevice,
        original: Program | None = None, tests: Tested | None = None,
    ):
        self.program, self.plan, self.device, self.original = program, plan, device, original
        self.driver = driver()
        self.offsets, self.arena_bytes = arena_layout(plan)
        self.issuer = Issuer(plan, device)
        self.words = None if tests is None else IndexWords(tests, device, self._updates_last())
        self.results = program.outputs if tests is None else program.outputs[:-1]
        self.out_specs = [(o.aval.shape, np.dtype(o.aval.dtype)) for o in self.results]
        self.out_bytes = [o.aval.nbytes for o in self.results]
        self.buffers: list[Any] = [*program.inputs, *(r.buffer for r in plan.outputs)]
        self.sizes = [v.aval.nbytes for v in (*program.inputs, *program.outputs)]
        self.made = results_of(original or program)
        self.constants: dict[Any, int] = {}
        self.kept: list[Any] = []
        self.graphs: OrderedDict[Any, int] = OrderedDict()
        self.places: list[int] = []  # the pointers when the first graph was made
        self.moved: set[int] = set()  # the numbers of those that have changed since
        self.captures = 0  # since the last time that a buffer got a place of its own
        self.since = 0  # the number of the call before the first of them
        self.own: dict[int, tuple[Any, int]] = {}  # buffers for what moves with every call
        self.calls = 0
        self.last: Sequence[int] = ()  # the pointers of the previous call
        self.waits = 1  # calls without a graph because their inputs moved
        self.steady = True  # whether there is memory for such buffers
        self.tries = TRIES
        self.refusal = "it waits for the host"
        self.checked = asked_for("sync")
        self.constants = self._uploaded()
        self.used = next(_uses)
        self.exits: list[weakref.ref[Any]] = []  # of calls that hold this executable
        gpu.keepers.add(self)
        executables.add(self)

    def _verify(self, overwritten: dict[int, int]) -> None:
        """Prove that results may overwrite donated arguments, if TOILE_DEBUG asks for proofs.

        A plan from disk was verified when it was made."""
        if not self.plan.recalled and asked_for("verify"):
            verifying = importlib.import_module("toile.platforms.gpu.plan_reader")
            verifying.verify(self.plan, self.offsets, self.arena_bytes, overwritten)

    def _uploaded(self) -> dict[Any, int]:
        found = {}
        plans = [self.plan]
        while plans:
            plan = plans.pop()
            for c in plan.constants.values():
                found[c] = self._upload(c)
            for step in plan.steps:
                plans += getattr(step, "children", ())
        return found

    def _upload(self, c: Constant) -> int:
        memory, where = self.room(c.array.nbytes)
        self.kept.append((memory, c.array))
        if c.array.nbytes:
            self.driver.upload(where, c.array.ctypes.data, c.array.nbytes, self.device.stream)
        return where

    def overwritten(self, donated: Sequence[int]) -> dict[int, int]:
        """The number of the donated input that each result may overwrite, by number of result."""
        found = overwritten(self.program, self.plan, donated, len(self.results))
        last = {} if self.words is None or not self.words.kept else {
            len(self.results): len(self.program.inputs) - 1}
        self._verify(found | last)
        return found

    def _updates_last(self) -> bool:
        """Whether the last result may overwrite the last input."""
        may = self.plan.may_overwrite()
        return may(self.program.inputs[-1], self.plan.outputs[-1].buffer)

    # ---- calls
    def __call__(self, raws: Sequence[Any]) -> list[Any]:
        """The results for given buffers, each in its own memory."""
        with self.device.current():
            held = [self.given(x) for x in raws]
            memory = [self.room(n, i) for i, n in enumerate(self.out_bytes)]
            self.run([x.data.ptr for x in held] + [p for _, p in memory], False)
        return [m.array(shape, dtype, 0) if dtype != float0 else np.zeros(shape, float0)
                for (m, _), (shape, dtype) in zip(memory, self.out_specs, strict=True)]

    def room(self, nbytes: int, index: int | None = None) -> tuple[Any, int]:
        """Memory for a result, given by its number, or for something else."""
        found = allocated(self.device, nbytes, self.device.allocate, self)
        if index is not None:
            found[0].made = noted(self.made[index], nbytes)
        return found

    def maker(self, index: int) -> Callable[[int], tuple[Any, int]]:
        """`room` for one result, prepared for many calls."""
        device, made, size = self.device, self.made[index], self.out_bytes[index]
        if not getattr(device, "sole", False) or noted(made, size) is not made:
            return functools.partial(self.room, index=index)
        alloc = gpu.cupy().cuda.alloc

        def room(nbytes: int) -> tuple[Any, int]:
            try:
                pointer = alloc(nbytes or 1)
            except MemoryError:
                return self.room(nbytes, index)
            return gpu.DeviceMemory(pointer, nbytes, device, made), pointer.ptr

        return room

    def given(self, x: Any) -> Any:
        """An operand as a row-major CuPy array. Arrays of float0 have no bytes and stay on the
        host; nothing reads what is passed for them."""
        if x.dtype == float0:
            return self.device.allocate(1)[0].array((1,), np.dtype("int8"), 0)
        if not gpu.is_gpu_data(x):
            return gpu.uploaded(x)
        if x.device.id != self.device.ordinal:
            return self.device.moved(x, gpu.device_of(x))
        fits = x.flags.c_contiguous and not x.data.ptr % gpu.ALIGNMENT
        return x if fits else x.copy()

    def upload(self, target: int, source: int, nbytes: int) -> None:
        """Copy an argument from the host."""
        if nbytes:
            self.driver.upload(target, source, nbytes, self.device.stream)

    def run(self, pointers: Sequence[int], again: bool = True) -> None:
        """Issue the work on the stream; `pointers` are those of inputs and results.

        `again`: whether this is one of many calls, with results where earlier ones had them."""
        with self.device.lock:
            self.device.program = self.program.name
            pointers = self.all_pointers(pointers)
            arena, generation = self._arena()
            try:
                self._run(pointers, arena, generation, again)
            except CudaError as error:
                raise self._failed(error) from None

    def all_pointers(self, pointers: Sequence[int]) -> Sequence[int]:
        """Pointers of arguments and results, and of the vector of tests, which is updated."""
        if self.words is None:
            return pointers
        self.device.tested.add(self.words)
        n = len(self.program.inputs) - 1
        return (*pointers[:n], self.words.before, *pointers[n:], self.words.address)

    @property
    def fits_in_graph(self) -> bool:
        """Whether repeated calls are one graph: not if there are too many nodes, or if nearly all
        of them are in long loops, which are as fast in chunks and are captured much sooner."""
        nodes = self.issuer.nodes
        return nodes <= MOST_NODES and self.issuer.nodes_in_chunks < MOSTLY * nodes

    @property
    def way(self) -> str:
        """How repeated calls are issued, in words."""
        nodes = self.issuer.nodes
        if self.checked:
            return "issued step by step: it waits for each step"
        if not self.issuer.capturable:
            return f"issued step by step: {self.refusal}"
        if not self.fits_in_graph:
            why = f": {nodes} nodes are too many for a graph" if nodes > MOST_NODES else ""
            return f"issued step by step, long loops in chunks{why}"
        return f"one graph of {nodes} nodes" if nodes > 1 else "one launch"

    def _run(self, pointers: Sequence[int], arena: int, generation: int, again: bool) -> None:
        stream = self.device.stream
        self.calls += 1
        self.used = next(_uses)
        graph = again and self.calls > 1 and self.issuer.capturable and not self.checked
        if not (graph and self.steady) or self.issuer.nodes <= 1 or (
                not self.fits_in_graph):
            self.last = pointers
            self.issuer.issue(self._addresses(pointers, arena), stream, self.checked)
            return
        self._launch(pointers, arena, generation, stream)

    def direct(self) -> Callable[[Sequence[int]], None] | None:
        """A function equivalent to `run`, if that is one launch or one library call; else None."""
        if self.issuer.nodes != 1 or len(self.plan.steps) != 1 or self.arena_bytes or (
                self.checked or self.words is not None):
            return None
        if isinstance(self.plan.steps[0], CallStep):
            return self._direct_call(self.plan.steps[0].call)
        launches = [x for same in self.issuer.launches.values() for x in same]
        return self._direct_launch(launches[0]) if len(launches) == 1 else None

    def _direct_launch(self, x: Any) -> Callable[[Sequence[int]], None] | None:
        """`direct` for one launch; None if it uses more than inputs, results and constants."""
        where = {b: i for i, b in enumerate(self.buffers)}
        if any(b not in where and b not in self.constants for _, b, _ in x.refs):
            return None
        for i, b, offset in x.refs:
            if b not in where:
                x.words[i] = self.constants[b] + offset
        moving = [(i, where[b], offset) for i, b, offset in x.refs if b in where]
        launch = self.driver.launcher(x.function, x.blocks, x.threads, x.shared,
                                      self.device.stream, x.words)
        device, words, name = self.device, x.words, self.program.name

        def run(pointers: Sequence[int]) -> None:
            device.program, self.used = name, next(_uses)
            for i, j, offset in moving:
                words[i] = pointers[j] + offset
            try:
                launch()
            except CudaError as error:
                raise self._failed(error) from None

        return run

    def _direct_call(self, call: Any) -> Callable[[Sequence[int]], None]:
        """`direct` for one library call."""
        device, buffers, fixed = self.device, self.buffers, self.constants
        places = {b: i for i, b in enumerate(buffers)}
        product = None
        if isinstance(call, cublas.Gemm):
            with device.current():
                product = call.bound(cublas.blas(), places, device.stream)

        def issue(pointers: Sequence[int]) -> None:
            addresses = dict(zip(buffers, pointers, strict=True)) | fixed
            call.run(lambda ref: addresses[ref.buffer] + ref.offset, device.stream)

        given = product or issue

        def run(pointers: Sequence[int]) -> None:
            device.program, self.used = self.program.name, next(_uses)
            try:
                given(pointers)
            except CudaError as error:
                raise self._failed(error) from None

        return run

    def _failed(self, error: CudaError) -> BaseException:
        """The exception for a failure of the driver, with the program's name."""
        if error.code == OUT_OF_MEMORY:
            return out_of_memory(self.device, 0, error, self)
        if not getattr(error, "__notes__", ()):
            error.add_note(f"in {self.program.name}, or before it ({gpu.SYNC_HINT})")
        return error

    def _arena(self) -> tuple[int, int]:
        if not self.arena_bytes:
            return 0, 0
        return allocated(self.device, self.arena_bytes, arena_of(self.device).of, self)

    def _addresses(self, pointers: Sequence[int], arena: int) -> dict[Any, int]:
        addresses: dict[Any, int] = {b: arena + o for b, o in self.offsets.items()}
        addresses.update(self.constants)
        addresses.update(zip(self.buffers, pointers, strict=True))
        return addresses

    # ---- graphs
    def _launch(
        self, pointers: Sequence[int], arena: int, generation: int, stream: int
    ) -> None:
        places = list(pointers)
        for i, (_, where) in self.own.items():
            places[i] = where
        key = (generation, tuple(places))
        graph = self.graphs.get(key)
        if graph is None:
            first = not self.graphs and not self.own
            which = self._moving(pointers) if first else self._moved(pointers)
            if self._give_own_places(which, pointers):
                return self._launch(pointers, arena, generation, stream)
            if not self.captures:
                self.places = list(pointers)
            graph = self._new_graph(pointers, places, arena)
            if not graph:
                return self.issuer.issue(self._addresses(pointers, arena), stream)
            self._keep(key, graph, stream)
        self._copy_own(pointers, stream, before=True)
        self.driver.launch_graph(graph, stream)
        self._copy_own(pointers, stream, before=False)

    def _new_graph(self, pointers: Sequence[int], places: Sequence[int], arena: int) -> int:
        """A graph for these addresses; 0 if this call has none."""
        if not self.steady or (not self.graphs and self._waits(pointers)):
            self.last = pointers
            return 0
        graph = self._capture(places, arena)
        if not graph:
            self.give_up()
        return graph

    def _keep(self, key: Any, graph: int, stream: int) -> None:
        self.graphs[key] = graph
        if len(self.graphs) > max(MOST_GRAPHS, KEPT_NODES // self.issuer.nodes):
            self.driver.synchronize(stream)
            self.driver.destroy(self.graphs.popitem(last=False)[1])

    def _copy_own(self, pointers: Sequence[int], stream: int, before: bool) -> None:
        """Copy inputs to their own buffers before a graph runs, or results from theirs after it."""
        inputs = len(self.program.inputs)
        for i, (_, where) in self.own.items():
            if self.sizes[i] and before == (i < inputs):
                target, source = (where, pointers[i]) if before else (pointers[i], where)
                self.driver.copy(target, source, self.sizes[i], stream)

    def _moved(self, pointers: Sequence[int]) -> list[int]:
        """The numbers of the inputs and results that have had several addresses, if copying them
        takes less time than capturing graphs for new addresses."""
        if not self.captures:
            return []
        self.moved |= {i for i, (a, b) in enumerate(zip(pointers, self.places, strict=True))
                       if a != b and i not in self.own}
        copying = COPY_US * len(self.moved) + (
            sum(self.sizes[i] for i in self.moved) / BYTES_PER_US)
        calls = (self.calls - self.since) / self.captures  # per capture
        margin = MUCH if self.captures < FIRST else LITTLE
        cheap = copying * calls * margin < CAPTURE_US * self.issuer.nodes
        return sorted(self.moved) if cheap and self.captures >= FEWEST else []

    def _moving(self, pointers: Sequence[int]) -> list[int]:
        """Before the first graph: the inputs that have moved since the previous call, and the
        results that will move because they overwrite no argument; each group only if it is cheap to
        copy."""
        inputs = len(self.program.inputs)
        given = set(pointers[:inputs])
        results = [i for i, p in enumerate(pointers) if i >= inputs and p not in given]
        return [i for some in (self._moved_inputs(pointers), results) if self._is_cheap(some)
                for i in some]

    def _moved_inputs(self, pointers: Sequence[int]) -> list[int]:
        """The inputs that were elsewhere in the previous call. Those that a result overwrites are
        left out, because their addresses will be the same in the next call."""
        inputs = len(self.program.inputs)
        stay = set(pointers[inputs:])
        return [i for i, p in enumerate(self.last[:inputs])
                if pointers[i] != p and pointers[i] not in stay]

    def _is_cheap(self, moving: Sequence[int]) -> bool:
        nodes = self.issuer.nodes
        return len(moving) <= min(nodes // NODES_PER_COPY, MOST_COPIES) and sum(
            self.sizes[i] for i in moving) <= nodes * BYTES_PER_NODE

    def _waits(self, pointers: Sequence[int]) -> bool:
        """Whether this call should have no graph yet: its inputs have moved, as those of the first
        calls do, and may stay where the next results are."""
        moved = [i for i in self._moved_inputs(pointers) if i not in self.own]
        if not moved or not self.waits:
            return False
        self.waits -= 1
        return True

    def _give_own_places(self, which: Sequence[int], pointers: Sequence[int]) -> bool:
        """Give buffers to inputs and results, by number; returns whether any got one.

        A result that overwrites an input in this call shares its buffer."""
        inputs = len(self.program.inputs)
        shared = {pointers[i]: i for i in which if i < inputs and self.sizes[i]}
        for i in which:
            j = shared.get(pointers[i], i)
            try:
                self.own[i] = self.own[j] if i >= inputs and j != i else self.device.allocate(
                    self.sizes[i])
            except MemoryError:  # continue without: the buffer would only save time
                self.steady = False
                self.give_up()
                return False
        if which:
            self.captures = 0
            self.moved.clear()
            self._forget()
        return bool(which)

    def _capture(self, places: Sequence[int], arena: int) -> int:
        """A graph for these addresses; 0 if the driver cannot capture the loops and branches, or if
        another thread made a call that invalidates captures, as libraries do when they start."""
        try:
            made = self.issuer.capture(self._addresses(places, arena), self.device.capture_stream)
        except MemoryError:
            raise
        except Exception as error:  # of the driver or of a library
            self.tries -= 1
            if self.issuer.decides or not self.tries:
                self.issuer.capturable = False
                self.refusal = f"no graph could be captured ({error})"
            return 0
        self.tries = TRIES
        if not self.captures:
            self.since = self.calls - 1
        self.captures += 1
        self._forget_chunks()  # the graph has all iterations
        return made

    def _forget_chunks(self) -> None:
        if self.issuer.chunks:
            self.driver.synchronize(self.device.stream)
            self.issuer.forget_chunks(self.driver)

    def _forget(self) -> None:
        self._forget_chunks()
        if self.graphs:
            self.driver.synchronize(self.device.stream)
        while self.graphs:
            self.driver.destroy(self.graphs.popitem()[1])

    def give_up(self) -> None:
        """Free memory that only makes calls faster."""
        if not self.issuer.busy:
            self._forget_chunks()
        if self.own:
            self._forget()
            self.own.clear()
            self.captures = 0
            self.moved.clear()

    # ---- called by `code_memory`
    def held_bytes(self) -> int:
        """The approximate memory of its plan on the host."""
        return EQUATION_BYTES * len(self.program.equations)

    def last_used(self) -> int:
        return self.used

    def forget_exits(self) -> None:
        """Make calls that hold this executable go through its Program again."""
        for found in self.exits:
            exit = found()
            if exit is not None:
                exit.close()
        self.exits.clear()

    def __del__(self) -> None:
        try:
            self._forget()
        except Exception:  # the driver may be unloaded when the interpreter exits
            pass

    def described(self) -> Any:
        """What reports need: this object, or one like it with a plan that has its equations."""
        if self.original is None:
            return self
        with self.device.current():
            plan = planned(self.original)
        return SimpleNamespace(program=plan.given, plan=plan, arena_bytes=self.arena_bytes,
                               constant_bytes=self.constant_bytes, peak_bytes=self.peak_bytes)

    @property
    def constant_bytes(self) -> int:
        """The bytes that the constants need."""
        return sum(c.array.nbytes for c in self.constants)

    @property
    def peak_bytes(self) -> int:
        """The bytes that a run needs: inputs, results, constants and temporaries."""
        return sum(self.sizes) + self.constant_bytes + self.arena_bytes
