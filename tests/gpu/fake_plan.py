"""A planner for tests: operands are NumPy arrays; kernels run on the GPU, or else on the host.

Every text is compiled by NVRTC too, where that is installed.
"""

import functools

import numpy as np

from tests.gpu import emulator, fibers
from toile.compiler.ir.geometry import dense
from toile.compiler.ir.operands import Operand, Ref, Scratch
from toile.kernels.copy import gpu as copies
from toile.platforms.gpu.devices import gpu_devices
from toile.targets.cuda.driver import Driver, words_of
from toile.targets.cuda.modules import Kernel, compile_source, joined, threads_of

TEXTS: set[str] = set()  # every kernel that tests have run


@functools.cache
def has_nvrtc():
    """Whether CUDA text can be compiled here; a GPU is not needed for that."""
    try:
        from cupy.cuda import nvrtc

        return bool(nvrtc.getVersion())
    except Exception:
        return False


def compiles(text):
    """Have NVRTC compile a text, once."""
    if text not in TEXTS:
        TEXTS.add(text)
        if has_nvrtc():
            assert compile_source(Kernel(text).source, "sm_90")


class Held:
    """A buffer that is a NumPy array."""

    def __init__(self, array):
        self.array = array


class FakePlan:
    """Collects the stages of lowerings; `run` executes them."""

    def __init__(self):
        self.stages = []

    # ---- what lowerings ask for
    def scratch(self, nbytes):
        return Ref(Scratch(nbytes))

    def stage(self, *launches):
        assert all(x.threads == threads_of(x.text) and x.blocks > 0 for x in launches)
        self.stages.append(launches)

    def call(self, call):
        raise AssertionError("a kernel was expected, not a library call")

    def contiguous(self, x):
        if x.contiguous:
            return x
        out = dense(self.scratch(x.size * x.dtype.itemsize), x.shape, x.dtype)
        copies.copy(out, x, self)
        return out

    def never_written(self, x):
        return True

    def before_loops(self, x, key, make):
        return None

    # ---- what tests ask for
    def operand(self, array):
        """An operand over a NumPy array, strides and all."""
        strides = tuple(s // array.itemsize for s in array.strides)
        return Operand(Ref(Held(array)), array.shape, strides, array.dtype)

    def run(self):
        """Run all stages, on the GPU if there is one."""
        machine = Gpu(gpu_devices()[0]) if gpu_devices() else Host()
        for launches in self.stages:
            for x in reversed(launches):  # backwards: launches of a stage do not depend
                compiles(x.text)
                words = [machine.address(a) if isinstance(a, Ref) else a for a in x.args]
                machine.launch(x, words)
        machine.finish()


class Host:
    """Memory is the arrays' own; kernels run by `fibers`."""

    def __init__(self):
        self.room = {}

    def address(self, ref):
        buffer = ref.buffer
        if isinstance(buffer, Held):
            return buffer.array.ctypes.data + ref.offset
        if id(buffer) not in self.room:
            memory = np.full(buffer.nbytes + 64, 0xA5, np.uint8)
            self.room[id(buffer)] = memory, -(-memory.ctypes.data // 16) * 16
        return self.room[id(buffer)][1] + ref.offset

    def launch(self, x, words):
        fibers.execute(emulator.on_host(x.text), words, x.blocks)

    def finish(self):
        pass


class Gpu:
    """Arrays go to the device when they are first named, and come back in the end."""

    def __init__(self, device):
        self.device, self.driver = device, Driver()
        self.room, self.owners = {}, {}

    def _allocate(self, nbytes):
        with self.device.current():
            return self.device.allocate(nbytes)

    def address(self, ref):
        buffer = ref.buffer
        if not isinstance(buffer, Held):
            if id(buffer) not in self.room:
                self.room[id(buffer)] = self._allocate(buffer.nbytes)
            return self.room[id(buffer)][1] + ref.offset
        owner = buffer.array
        while isinstance(owner.base, np.ndarray):  # views may begin anywhere in what they view
            owner = owner.base
        if id(owner) not in self.owners:
            memory, start = self._allocate(owner.nbytes)
            self.driver.upload(start, owner.ctypes.data, owner.nbytes, self.device.stream)
            self.owners[id(owner)] = owner, memory, start
        start = self.owners[id(owner)][2]
        return start + buffer.array.ctypes.data - owner.ctypes.data + ref.offset

    def launch(self, x, words):
        many, given, blocks = joined([(x.blocks, words)])
        kernel = Kernel(x.text, many)
        function = _loaded(kernel, self.device.architecture)
        self.driver.launch(function, blocks, x.threads, x.shared, self.device.stream,
                           words_of(given, kernel.room))

    def finish(self):
        for owner, _, start in self.owners.values():
            if owner.flags.writeable:
                self.driver.download(owner.ctypes.data, start, owner.nbytes, self.device.stream)
        self.driver.synchronize(self.device.stream)


@functools.cache
def _loaded(kernel, architecture):
    return Driver().load(compile_source(kernel.source, architecture), "kernel")


def runs():
    """Whether kernels can be run here."""
    return bool(gpu_devices()) or fibers.available()


def lowered(lower, op, arrays, outs, in_place=None):
    """The results of a lowering on arrays, None when it declines; `outs`: shapes and dtypes.

    in_place: which operand the first result shares its buffer with."""
    plan = FakePlan()
    results = [np.full(shape, 0x5A, np.uint8).astype(dtype) for shape, dtype in outs]
    ins = [plan.operand(a) for a in arrays]
    targets = [plan.operand(r) for r in results]
    if in_place is not None:
        results[0][...] = arrays[in_place]
        ins[in_place] = targets[0]
    if not lower(op, ins, targets, plan):
        assert not plan.stages
        return None
    plan.run()
    return results
