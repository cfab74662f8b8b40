"""Kernels of users on the host: g++ compiles their source, and loops take the place of threads."""

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path

from tests.gpu.fake_solvers import _Recorded

_BEFORE = """
struct Sizes { unsigned x, y, z; };
static Sizes blockIdx, threadIdx, blockDim, gridDim;
#define __global__
"""
_AFTER = """
extern "C" void run_%(name)s(const unsigned* sizes, void** arguments) {
  gridDim = {sizes[0], sizes[1], sizes[2]};
  blockDim = {sizes[3], sizes[4], sizes[5]};
  for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z)
  for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
  for (threadIdx.z = 0; threadIdx.z < blockDim.z; ++threadIdx.z)
  for (threadIdx.y = 0; threadIdx.y < blockDim.y; ++threadIdx.y)
  for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x)
    %(name)s(%(arguments)s);
}
"""


@functools.cache
def compiled(source, name):
    """A kernel as a function of the sizes of its grid and block, and addresses of arguments."""
    parameters = source.partition(f"{name}(")[2].partition(")")[0].split(",")
    types = [p.strip().rpartition(" ")[0].strip() if "*" not in p else p.strip().rpartition("*")[0]
             + "*" for p in parameters]
    arguments = ", ".join(f"*({t}*)arguments[{i}]" for i, t in enumerate(types))
    text = _BEFORE + source + _AFTER % {"name": name, "arguments": arguments}
    folder = Path(tempfile.mkdtemp())
    (folder / "kernel.cpp").write_text(text)
    subprocess.run(["g++", "-O1", "-shared", "-fPIC", "-o", folder / "kernel.so",
                    folder / "kernel.cpp"], check=True)
    return getattr(ctypes.CDLL(str(folder / "kernel.so")), f"run_{name}")


class FakeUserKernels(_Recorded):
    """An engine of `user_kernels`, which notes what was launched."""

    def __init__(self, driver=None):
        super().__init__(driver)
        self.prepared, self.launched = [], []

    def function(self, source, name):
        assert self.driver is None or self.driver.recording is None, "compiled during a capture"
        self.prepared.append(name)

    def launch(self, kernel, words, stream):
        self.launched.append((kernel.grid, kernel.block, stream))
        cells = (ctypes.c_int64 * len(words))(*words)
        sizes = (ctypes.c_uint * 6)(*kernel.grid, *kernel.block)
        start = ctypes.addressof(cells)

        def work():
            addresses = (ctypes.c_void_p * len(words))(*(start + 8 * i for i in range(len(words))))
            compiled(kernel.source, kernel.name)(sizes, addresses)
            assert cells
        self.do(work)
