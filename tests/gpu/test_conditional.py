"""While loops and branches as nodes of a graph, on the host: what they compute, and how they fail.

Each function is called with several arguments: step by step first, and then by one graph.
"""

import ctypes

import numpy as np
import pytest

import toile
from tests.closeness import nearly_equal
from tests.gpu import fibers, host_driver
from tests.gpu.branching import FUNCTIONS
from tests.gpu.fake_plan import compiles
from tests.gpu.test_programs import normal, program_of
from toile.compiler.ir.steps import WhileStep
from toile.compiler.passes import selections
from toile.compiler.pipeline import optimize
from toile.compiler.plan.lower import planned
from toile.engine.trees import flatten
from toile.platforms.gpu import conditional_nodes as conditional
from toile.platforms.gpu import execution
from toile.platforms.gpu.target import TARGET
from toile.targets.cuda import driver
from toile.targets.cuda.driver import CudaError, NodeParams


@pytest.fixture(autouse=True)
def choices_stay(monkeypatch):
    """Cheap branches are not replaced by selections."""
    monkeypatch.setattr(selections, "MOST_EQUATIONS", -1)

pytestmark = pytest.mark.skipif(not fibers.available(), reason="needs g++")

# How carries come back to where the body reads them, and which nodes the driver has.
WAYS = {"copied": (1 << 40, driver.SWITCH), "two turns": (-1, driver.SWITCH),
        "two turns, no switch": (-1, driver.WHILE), "step by step": (1 << 40, -1)}


class Held:
    """An executable, its arguments and results at places that stay."""

    def __init__(self, fun, args, device):
        program, leaves = program_of(fun, args)
        self.executable = host_driver.compiled(program, device)
        self.leaves = [np.array(x._data) for x in leaves]
        self.rooms = [device.allocate(n) for n in self.executable.out_bytes]
        self.pointers = [x.ctypes.data for x in self.leaves] + [p for _, p in self.rooms]

    def __call__(self, args):
        for held, x in zip(self.leaves, flatten(args)[0], strict=True):
            held[...] = x
        self.executable.run(self.pointers)
        specs = self.executable.out_specs
        return [m.array(shape, dtype, 0).copy()
                for (m, _), (shape, dtype) in zip(self.rooms, specs, strict=True)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_graph(name, way, monkeypatch):
    fun, calls = FUNCTIONS[name]
    large, has = WAYS[way]
    monkeypatch.setattr(conditional, "LARGE", large)
    compiled = toile.jit(fun)
    with host_driver.host_gpu(monkeypatch) as (made, device):
        made.conditionals = has
        held = Held(fun, calls[0], device)
        for args in [calls[0], *calls]:
            wanted = [np.asarray(x) for x in flatten(compiled(*args))[0]]
            for a, b in zip(held(args), wanted, strict=True):
                nearly_equal(a, b)
        graphs = 1 if has >= 0 else 0
        assert held.executable.issuer.capturable == (has >= 0)
        assert len(held.executable.graphs) == graphs
        assert made.graphs_launched == graphs * len(calls)


def test_carries_that_never_change_are_not_carried():
    def fun(n, x, y):
        return toile.lax.while_loop(lambda c: (c[0] < n) & (c[1][0] < 9), lambda c: (
            c[0] + 1, c[1], c[2] * 0.5 + c[1]), (0, x, y))

    x, y, n = normal(3000), normal(3000, seed=1), 5
    program = optimize(program_of(fun, (np.int32(n), x, y))[0], choose=TARGET.choose)
    (step,) = [s for s in planned(program, TARGET).steps if isinstance(s, WhileStep)]
    assert len(step.swaps) == 2
    results = toile.jit(fun)(np.int32(n), x, y)
    for _ in range(n):
        y = y * np.float32(0.5) + x
    for a, b in zip(results, (np.int32(n), x, y), strict=True):
        nearly_equal(np.asarray(a), b)


def test_large_carries_are_not_copied_at_each_turn(monkeypatch):
    fun, calls = FUNCTIONS["while"]
    found = {}
    for large in (1 << 40, -1):
        monkeypatch.setattr(conditional, "LARGE", large)
        with host_driver.host_gpu(monkeypatch) as (made, device):
            copies = []
            made.copy = lambda *given, seen=copies: seen.append(given[:3])
            held = Held(fun, calls[0], device)
            held(calls[0]), held(calls[0])
            found[large] = len(copies), held.executable.issuer.nodes
    assert found[1 << 40][0] == 0 and found[-1][0] == 2  # both carries of a loop that ends half-way
    assert found[-1][1] > found[1 << 40][1]


def test_a_capture_that_fails_leaves_nothing(monkeypatch):
    """A library that does in a body what bodies may not: the calls go on step by step."""
    fun, calls = FUNCTIONS["a cond in a while"]
    wanted = [np.asarray(x) for x in flatten(toile.jit(fun)(*calls[0]))[0]]
    for call in ("launch", "branch", "begin_body", "instantiate"):
        with host_driver.host_gpu(monkeypatch) as (made, device):
            inner = getattr(made, call)

            def refuses(*given, inner=inner, made=made, call=call):
                if len(made.capturing) > 1 or call == "instantiate":
                    raise CudaError(call, 1, "CUDA_ERROR_INVALID_VALUE")
                return inner(*given)

            setattr(made, call, refuses)
            held = Held(fun, calls[0], device)
            for _ in range(3):
                for a, b in zip(held(calls[0]), wanted, strict=True):
                    nearly_equal(a, b)
            assert not held.executable.issuer.capturable and not held.executable.graphs
            assert not made.capturing and not made.graphs_launched


@pytest.mark.parametrize("times", [1, 2, 9])
def test_a_capture_that_another_thread_ends(times, monkeypatch):
    """Tried again at the next calls, a few times; the calls go on step by step."""
    fun, args = lambda x, y: (x @ y).sum(0) + x[0], (normal(4, 4), normal(4, 4, seed=1))
    wanted = [np.asarray(x) for x in flatten(toile.jit(fun)(*args))[0]]
    with host_driver.host_gpu(monkeypatch) as (made, device):
        inner, tried = made.end_capture, []

        def fails(stream):
            tried.append(stream)
            if len(tried) <= times:
                raise CudaError("cuStreamEndCapture", 901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED")
            return inner(stream)

        made.end_capture = fails
        held = Held(fun, args, device)
        for _ in range(6):
            for a, b in zip(held(args), wanted, strict=True):
                nearly_equal(a, b)
        assert not made.capturing and len(tried) == min(times + 1, execution.TRIES)
        assert bool(made.graphs_launched) == (times < execution.TRIES)
        assert ("CAPTURE_INVALIDATED" in held.executable.way) == (times >= execution.TRIES)


def test_a_failure_of_the_call_itself_is_raised(monkeypatch):
    fun, calls = FUNCTIONS["a cond in a while"]
    with host_driver.host_gpu(monkeypatch) as (made, device):
        held = Held(fun, calls[0], device)
        held(calls[0])

        def full(*given):
            raise CudaError("cuLaunchKernel", driver.OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY")

        launch, made.launch = made.launch, full
        with pytest.raises(MemoryError):
            held(calls[0])
        assert not made.capturing
        made.launch = launch
        held(calls[0])
        assert not made.graphs_launched  # by the host from now on


@pytest.mark.parametrize("has", [driver.SWITCH, driver.WHILE])
def test_so_many_nodes(has, monkeypatch):
    """Conditional nodes are counted as they are made; a graph has not too many of them."""
    for name, (fun, calls) in FUNCTIONS.items():
        for large in (1 << 40, -1):
            monkeypatch.setattr(conditional, "LARGE", large)
            with host_driver.host_gpu(monkeypatch) as (made, device):
                made.conditionals = has
                held = Held(fun, calls[0], device)
                held.executable.issuer.capture(
                    held.executable._addresses(held.pointers, held.executable._arena()[0]),
                    device.capture_stream)
                counted = conditional.decisions(held.executable.plan)
                assert counted == len(made.conditions), name
                with monkeypatch.context() as other:
                    other.setattr(conditional, "MOST_DECISIONS", counted - 1)
                    assert not conditional.possible(held.executable.plan)


def test_checked_calls_wait_for_each_step(monkeypatch):
    monkeypatch.setenv("TOILE_DEBUG", "sync")
    fun, calls = FUNCTIONS["while"]
    with host_driver.host_gpu(monkeypatch) as (made, device):
        held = Held(fun, calls[0], device)
        first = held(calls[0])
        for a, b in zip(held(calls[0]), first, strict=True):
            np.testing.assert_array_equal(a, b)
        assert not made.graphs_launched


def test_steps_on_the_host_are_in_no_graph(monkeypatch):
    def fun(n, x):
        singular = toile.lax.linalg.hessenberg(x)[1]
        return toile.lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 2),
                                    (0, singular))

    with host_driver.host_gpu(monkeypatch) as (made, device):
        held = Held(fun, (np.int32(2), normal(3, 3)), device)
        assert not held.executable.issuer.capturable
        held((np.int32(2), normal(3, 3))), held((np.int32(2), normal(3, 3)))
        assert not made.graphs_launched


def test_nodes_are_counted(monkeypatch):
    """Bodies count, those of a scan as often as it turns: graphs are not to become too large."""
    with host_driver.host_gpu(monkeypatch) as (_, device):
        def nodes(name):
            fun, calls = FUNCTIONS[name]
            return host_driver.compiled(program_of(fun, calls[0])[0], device).issuer.nodes

        assert 1 < nodes("while") < nodes("a while in a while") < 40
        assert nodes("a while in a scan") > 2 * nodes("while")


def test_params_of_nodes():
    assert ctypes.sizeof(NodeParams) == 256
    offsets = [getattr(NodeParams, name).offset for name in
               ("node_type", "condition", "kind", "count", "graphs", "context")]
    assert offsets == [0, 16, 24, 28, 32, 40]


def test_the_kernel():
    compiles(conditional.TEXT)
    source = np.arange(40000, dtype=np.uint8)
    target = np.zeros_like(source)
    words = [0, target.ctypes.data, source.ctypes.data, 40000 - 3]
    fibers.execute(conditional.TEXT, words, -(-40000 // conditional.SHARE))
    np.testing.assert_array_equal(target[:-3], source[:-3])
    assert not target[-3:].any()
    for value, wanted in ((-4, 0), (0, 0), (2, 2), (3, 3), (77, 3)):
        given, set_ = np.array([value], np.int32), np.full(3, 9, np.uint32)
        at = set_.ctypes.data
        words = [1, given.ctypes.data, 4, 3, 3, at, -1, at + 4, 0, at + 8, 3]
        fibers.execute(conditional.TEXT, words, 1)
        assert set_.tolist() == [wanted, wanted == 0, wanted == 3]
