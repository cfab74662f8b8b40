"""A planner for tests: operands are NumPy arrays, chunks run serially, backwards."""

import ctypes

import numpy as np

from toile.compiler.ir.operands import Operand, Ref, Scratch
from toile.compiler.ir.views import row_major
from toile.targets.llvm import native

KERNEL = ctypes.CFUNCTYPE(
    None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)


class FakePlan:
    """Collects the stages of lowerings; `run` executes them."""

    def __init__(self, threads=2):
        self.threads = threads
        self.also = set()  # kernels that other extents would need
        self.fixed = []  # buffers that a loop around would not change
        self.stages = []
        self.buffers = {}  # id of the buffer object -> (object, address)

    # ---- what lowerings ask for
    def scratch(self, nbytes):
        return Ref(Scratch(nbytes))

    def stage(self, *launches):
        self.stages.append(launches)

    def table(self, value):
        return Ref(_Held(np.ascontiguousarray(value)))

    def contiguous(self, x):
        from toile.kernels.copy import cpu as copies

        if x.contiguous:
            return x
        ref = self.scratch(x.size * x.dtype.itemsize)
        out = Operand(ref, x.shape, row_major(x.shape), x.dtype)
        copies.copy(out, x, self)
        return out

    def is_fixed(self, x, turns):
        return x.buffer in self.fixed

    def before_loops(self, x, key, make):
        return make(self) if x.buffer in self.fixed else None

    # ---- what tests ask for
    def operand(self, array):
        """An operand over a NumPy array, strides and all."""
        strides = tuple(s // array.itemsize for s in array.strides)
        return Operand(Ref(_Held(array)), array.shape, strides, array.dtype)

    def run(self):
        """Run all stages."""
        held = {}
        table = []

        def slot(buffer):
            if id(buffer) not in held:
                if isinstance(buffer, Scratch):
                    memory = np.full(buffer.nbytes + 64, 0xA5, np.uint8)
                    address = -(-memory.ctypes.data // 64) * 64
                else:
                    memory, address = buffer, buffer.array.ctypes.data
                held[id(buffer)] = (len(table), memory)
                table.append(address)
            return held[id(buffer)][0]

        prepared = []
        for launches in self.stages:
            for launch in launches:
                args = []
                for a in launch.args:
                    args += [slot(a.buffer), a.offset] if isinstance(a, Ref) else [a]
                prepared.append((launch, np.array([_signed(a) for a in args], np.int64)))
        pointers = np.array(table, np.uint64)
        calls = []
        for launch, args in prepared:
            kernel = KERNEL(native.function(launch.text))
            for lo in reversed(range(0, launch.extent, launch.grain)):
                hi = min(lo + launch.grain, launch.extent)
                calls.append((kernel, lo, hi, args.ctypes.data))
        table_at = pointers.ctypes.data

        def again():
            for kernel, lo, hi, args_at in calls:
                kernel(lo, hi, args_at, table_at)

        again()
        self.again = again  # for benchmarks: the same calls once more
        self.held = held, pointers, prepared


class _Held:
    def __init__(self, array):
        self.array = array


def _signed(a):
    return a - 2**64 if a >= 2**63 else a


def lowered(lower, op, arrays, outs, threads=2):
    """The results of a lowering on arrays, None when it declines; `outs`: shapes and dtypes."""
    plan = FakePlan(threads)
    results = [np.full(shape, 0x5A, np.uint8).astype(dtype) for shape, dtype in outs]
    ok = lower(op, [plan.operand(a) for a in arrays], [plan.operand(r) for r in results], plan)
    if not ok:
        assert not plan.stages
        return None
    plan.run()
    return results


def run_equations(program, args, lowers, check, threads=2):
    """Run a Program by eager rules; equations with a lowering also natively, for `check(op, a, b)`.

    How many of them the lowerings took."""
    env = dict(zip(program.inputs, [np.asarray(a) for a in args], strict=True))
    taken = 0
    for e in program.equations:
        ins = [env[a] if a in env else np.asarray(a.val) for a in e.ins]
        with np.errstate(all="ignore"):
            results = e.op.eager(np, *ins)
        results = list(results) if e.op.multiple else [np.asarray(results)]
        lower = lowers.get(type(e.op))
        if lower is not None:
            outs = [(r.shape, r.dtype) for r in results]
            got = lowered(lower, e.op, ins, outs, threads)
            if got is not None:
                taken += 1
                for a, b in zip(got, results, strict=True):
                    check(e.op, a, b)
        env.update(zip(e.outs, results, strict=True))
    return taken


def best_ms(run, rounds=15):
    """CPU time of the quickest of some runs, in milliseconds."""
    import time

    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return best * 1e3
