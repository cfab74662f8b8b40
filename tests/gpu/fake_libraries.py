"""cuBLAS and a plan in host memory: calls are recorded, and computed as the library would.

Addresses are those of NumPy arrays, so that what a call says about memory (leading dimensions,
steps, transposes, offsets) is taken at its word.
"""

import ctypes
import re

import ml_dtypes
import numpy as np

from tests.gpu import emulator, fibers
from toile.compiler.ir.operands import Operand, Ref, Scratch
from toile.compiler.ir.views import row_major
from toile.targets.cuda import cublas, libraries

DTYPES = {code: np.dtype(getattr(ml_dtypes, name, name))
          for name, code in cublas.DATA_TYPES.items()}  # fmt: skip
MARGIN = 256


class Held:
    """A buffer over a NumPy array."""

    def __init__(self, array):
        self.array = array


class FakePlan:
    """What a lowering may ask; steps are kept and `run` does them in order."""

    without_libraries = False

    def __init__(self):
        self.steps = []
        self.copies = 0

    def scratch(self, nbytes):
        return Ref(Scratch(nbytes))

    def stage(self, *launches):
        self.steps += launches

    def call(self, call):
        self.steps.append(call)

    def contiguous(self, x):
        if x.contiguous:
            return x
        out = Operand(self.scratch(x.size * x.dtype.itemsize), x.shape, row_major(x.shape), x.dtype)
        self.copy(out, x)
        return out

    def copy(self, out, x):
        self.copies += 1
        self.steps.append(lambda pointer: _copy(out, x, pointer))

    def never_written(self, x):
        return True

    def before_loops(self, x, key, make):
        return None

    # ---- what tests ask for
    def operand(self, array):
        strides = tuple(s // array.itemsize for s in array.strides)
        return Operand(Ref(Held(array)), array.shape, strides, array.dtype)

    @property
    def calls(self):
        return [s for s in self.steps if hasattr(s, "issue")]

    def run(self, handle, aligned=64):
        """Do all steps, calls by `handle`; scratch begins at multiples of `aligned`."""
        memory = {}

        def pointer(ref):
            if isinstance(ref.buffer, Scratch):
                if ref.buffer not in memory:
                    memory[ref.buffer] = np.full(ref.buffer.nbytes + 2 * MARGIN, 0x7F, np.uint8)
                start = memory[ref.buffer].ctypes.data + MARGIN // 2
                return -(-start // aligned) * aligned + ref.offset
            return ref.buffer.array.ctypes.data + ref.offset

        for step in self.steps:
            if hasattr(step, "issue"):
                said = {*step.reads, *step.writes}  # what plans order calls by

                def named(ref, said=said):
                    assert ref.buffer in said
                    return pointer(ref)

                step.issue(handle, named, 7)
            elif hasattr(step, "text"):
                launched(step, pointer)
            elif hasattr(step, "nbytes"):
                ctypes.memset(pointer(step.ref), 0, step.nbytes)
            else:
                step(pointer)


def array_at(address, shape, strides, dtype):
    """The array at an address; strides in elements."""
    item = dtype.itemsize
    low = sum(min(0, (n - 1) * s) for n, s in zip(shape, strides)) * item
    high = (sum(max(0, (n - 1) * s) for n, s in zip(shape, strides)) + 1) * item
    if 0 in shape:
        return np.empty(shape, dtype)
    memory = (ctypes.c_char * (high - low)).from_address(address + low)
    return np.ndarray(shape, dtype, memory, -low, [s * item for s in strides])


def _copy(out, x, pointer):
    to = array_at(pointer(out.ref), out.shape, out.strides, out.dtype)
    to[...] = array_at(pointer(x.ref), x.shape, x.strides, x.dtype)


def launched(launch, pointer):
    """The kernels of `relayout`, by their arguments."""
    args = [pointer(a) if isinstance(a, Ref) else a for a in launch.args]
    if launch.note == "addresses":
        out, *starts, count, rank = args[:6]
        axes = np.array(args[6:], np.int64).reshape(rank, 4)
        found = array_at(out, (3, count), (count, 1), np.dtype("i8"))
        for i in range(count):
            at = np.array(np.unravel_index(i, tuple(axes[:, 0])))
            found[:, i] = np.array(starts) + at @ axes[:, 1:]
        return
    if launch.note.startswith(("narrow", "vector", "attention")) or launch.note.endswith(
            ("(tf32)", "sum of parts")):
        fibers.execute(emulator.on_host(launch.text), args, launch.blocks)
        return
    if launch.note in ("sums of products", "patches", "int4 product", "int8 product"):
        fibers.execute(launch.text, args, launch.blocks)
        return
    out, x, size = args[:3]
    bits = 2**32 - 1 if "typedef u32 Index" in launch.text else -1  # what is no factor to divide by
    axes = [(args[i] & bits, *args[i + 1 : i + 5]) for i in range(3, len(args), 5)]
    found = re.search(r"^  u(\d+)\* out", launch.text, re.M)
    word = int(found[1]) // 8
    pack = re.search(r"Pack { u\d+ v\[(\d+)\]", launch.text)
    if pack:  # the last extent is in packs
        n, *rest = axes[-1]
        axes[-1] = n * int(pack[1]), *rest
        size *= int(pack[1])
    dtype = np.dtype(f"V{word * (2 if 'out[to * 2' in launch.text else 1)}")
    to = array_at(out, [a[0] for a in axes], [a[3] for a in axes], dtype)
    source = array_at(x, [a[1] for a in axes], [a[4] for a in axes], dtype)
    assert to.size == size
    to[...] = np.zeros((), dtype)
    low = [a[2] for a in axes]
    inner = [slice(max(0, l), max(0, min(n, m + l))) for (n, m, *_), l in zip(axes, low)]
    outer = [slice(max(0, -l), max(0, min(m, n - l))) for (n, m, *_), l in zip(axes, low)]
    to[tuple(inner)] = source[tuple(outer)]


class FakeCublas:
    """Functions of cuBLAS on host memory, by columns as BLAS has it; `log` keeps names and args."""

    def __init__(self):
        self.log = []

    def __getattr__(self, name):
        if not name.startswith("cublas"):
            raise AttributeError(name)
        bare = name.removesuffix("_64")

        def call(*args):
            types = cublas.PROTOTYPES[name]
            assert len(args) == len(types), (name, len(args), len(types))
            for value, kind in zip(args, types):
                kind(value)  # ctypes takes it
            self.log.append((name, args))
            if bare == "cublasCreate_v2":
                ctypes.c_void_p.from_address(args[0]).value = 1234
            elif bare.startswith("cublasGemm"):
                getattr(self, "_" + bare)(*args)

        return call

    def ready(self, name, args):
        values = [kind(x) for kind, x in zip(cublas.PROTOTYPES[name], args, strict=True)]
        return lambda: getattr(self, name)(*(v.value for v in values)), values

    @property
    def names(self):
        return [name for name, _ in self.log]

    def _cublasGemmEx(self, h, ta, tb, m, n, k, alpha, a, at, lda, b, bt, ldb, beta, c, ct, ldc,
                      compute, algorithm):
        self._cublasGemmStridedBatchedEx(h, ta, tb, m, n, k, alpha, a, at, lda, 0, b, bt, ldb, 0,
                                         beta, c, ct, ldc, 0, 1, compute, algorithm)

    def _cublasGemmStridedBatchedEx(self, h, ta, tb, m, n, k, alpha, a, at, lda, sa, b, bt, ldb, sb,
                                    beta, c, ct, ldc, sc, count, compute, algorithm):
        if compute == 72 and count > 1 and not (ta and not tb):  # seen on an H200
            error = libraries.LibraryError("not supported")
            error.status = cublas.NOT_SUPPORTED
            raise error
        for i in range(count):
            self._product(ta, tb, m, n, k, alpha, a + i * sa * DTYPES[at].itemsize, at, lda,
                          b + i * sb * DTYPES[bt].itemsize, bt, ldb, beta,
                          c + i * sc * DTYPES[ct].itemsize, ct, ldc, compute)

    def _cublasGemmBatchedEx(self, h, ta, tb, m, n, k, alpha, a, at, lda, b, bt, ldb, beta, c, ct,
                             ldc, count, compute, algorithm):
        lists = [array_at(p, (count,), (1,), np.dtype("i8")) for p in (a, b, c)]
        for i in range(count):
            pa, pb, pc = (int(x[i]) for x in lists)
            assert not (pa % 16 or pb % 16 or pc % 16)
            self._product(ta, tb, m, n, k, alpha, pa, at, lda, pb, bt, ldb, beta, pc, ct, ldc,
                          compute)

    def _product(self, ta, tb, m, n, k, alpha, a, at, lda, b, bt, ldb, beta, c, ct, ldc, compute):
        assert m > 0 and n > 0 and k > 0
        assert lda >= max(1, k if ta else m), "lda"
        assert ldb >= max(1, n if tb else k), "ldb"
        assert ldc >= max(1, m), "ldc"
        if compute == 72:
            assert not (lda % 4 or ldb % 4 or a % 4 or b % 4)
        da, db, dc = DTYPES[at], DTYPES[bt], DTYPES[ct]
        x = array_at(a, (k, m) if ta else (m, k), (1, lda), da)
        y = array_at(b, (n, k) if tb else (k, n), (1, ldb), db)
        z = array_at(c, (m, n), (1, ldc), dc)
        wide = "c16" if dc.kind == "c" else "f8"
        kind = {68: "f4", 77: "f4", 75: "f4", 70: "f8", 72: "i4"}[compute]
        scale = np.dtype(wide if dc.kind == "c" and kind == "f8" else "c8" if dc.kind == "c"
                         else kind)  # fmt: skip
        one = array_at(alpha, (), (), scale)[()]
        more = array_at(beta, (), (), scale)[()]
        found = (x.T if ta else x).astype(wide) @ (y.T if tb else y).astype(wide) * one
        z[...] = (found + (more * z.astype(wide) if more else 0)).astype(dc)


def fake_blas():
    """A handle of a cuBLAS that computes in host memory."""
    return cublas.Blas(FakeCublas(), None, 4096)
