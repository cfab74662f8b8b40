"""cuBLASLt in host memory: descriptors are taken at their word, and computed in double."""

import ctypes

import numpy as np

from tests.gpu.fake_libraries import DTYPES, array_at
from toile.kernels.fused_product.gpu import gelu, gelu_slope
from toile.targets.cuda import cublaslt

EPILOGUES = {code: name for name, code in cublaslt.EPILOGUES.items()}
_SIZES = {1: ctypes.c_int8, 4: ctypes.c_int32, 8: ctypes.c_int64}


class FakeCublasLt:
    """Functions of the library; `driver`: of the host, which may be capturing.

    `refuse(description)`: there is no algorithm; descriptions have the attributes by number, and
    `layouts`. `ran` are the descriptions of the products, in order."""

    def __init__(self, driver=None, refuse=lambda description: False):
        self.driver, self.refuse = driver, refuse
        self.made = {}
        self.ran = []

    def __getattr__(self, name):
        if not name.startswith("cublasLt"):
            raise AttributeError(name)

        def call(*args):
            types = cublaslt.PROTOTYPES[name]
            assert len(args) == len(types), (name, len(args), len(types))
            for value, kind in zip(args, types):
                kind(value)  # ctypes takes it
            if name.endswith("Create"):
                self.made[len(self.made) + 1] = list(args[1:]), {}
                ctypes.c_void_p.from_address(args[0]).value = len(self.made)
            elif name.endswith("SetAttribute"):
                value = _SIZES[args[3]].from_address(args[2]).value
                self.made[args[0]][1][args[1]] = value
            elif name == "cublasLtMatmulAlgoGetHeuristic":
                found = ctypes.c_int.from_address(args[9])
                found.value = not self.refuse(self.describe(*args[1:6]))
            elif name == "cublasLtMatmul":
                self.matmul(*args)

        return call

    def describe(self, operation, *layouts):
        found = dict(self.made[operation][1])
        found["layouts"] = [tuple(self.made[x][0]) for x in layouts]
        found["batch"] = [(self.made[x][1].get(cublaslt.BATCH_COUNT, 1),
                           self.made[x][1].get(cublaslt.BATCH_STEP, 0)) for x in layouts]
        found["epilogue"] = EPILOGUES[found[cublaslt.EPILOGUE]]
        return found

    def matmul(self, handle, operation, alpha, a, la, b, lb, beta, c, lc, d, ld, *_):
        what = self.describe(operation, la, lb, lc, ld)
        scales = [ctypes.c_float.from_address(x).value for x in (alpha, beta)]
        self.ran.append({**what, "alpha": scales[0], "beta": scales[1]})

        def work():
            (count,) = {n for n, _ in what["batch"]}
            for i in range(count):
                steps = [i * step * DTYPES[layout[0]].itemsize
                         for (_, step), layout in zip(what["batch"], what["layouts"])]
                compute(what, [x + n for x, n in zip((a, b, c, d), steps)], *scales)

        if self.driver is None:
            work()
        else:
            self.driver._do(work)


def compute(what, pointers, alpha, beta):
    """D of a description, or of one of a batch."""
    matrices = []
    for (code, rows, columns, leading), at in zip(what["layouts"], pointers):
        assert leading >= rows and not at % 16 and not leading * DTYPES[code].itemsize % 16
        matrices.append(array_at(at, (rows, columns), (1, leading), DTYPES[code]))
    a, b, c, d = matrices
    left = a.T if what[cublaslt.TRANSA] else a
    right = b.T if what[cublaslt.TRANSB] else b
    if a.dtype.itemsize == 1:  # float8
        assert what[cublaslt.TRANSA] and not what[cublaslt.TRANSB]
        assert not any(n % 16 for n in (*a.shape, *b.shape))
    total = alpha * (left.astype("f8") @ right.astype("f8"))
    for attribute in (cublaslt.A_SCALE, cublaslt.B_SCALE):
        if attribute in what:
            total *= ctypes.c_float.from_address(what[attribute]).value
    if beta:
        total += beta * c.astype("f8")
    parts = what["epilogue"].split("_")
    if "bias" in parts:
        kind = DTYPES[what[cublaslt.BIAS_TYPE]]
        total += array_at(what[cublaslt.BIAS_POINTER], (d.shape[0],), (1,), kind).astype("f8")[
            :, None]
    aux = None
    if cublaslt.AUX_POINTER in what:
        place = (1, what[cublaslt.AUX_LEADING])
        aux = array_at(what[cublaslt.AUX_POINTER], d.shape, place, d.dtype)
    if "aux" in parts:
        aux[...] = total.astype(d.dtype)
    if "relu" in parts:
        total = np.maximum(total, 0)
    if "gelu" in parts:
        total = gelu(total)
    if "dgelu" in parts:
        total = total * gelu_slope(aux.astype("f8"))
    d[...] = total.astype(d.dtype)


def fake_lt(driver=None, refuse=lambda description: False):
    """A handle of a cuBLASLt that computes in host memory."""
    return cublaslt.Lt(FakeCublasLt(driver, refuse), lambda small: (4096, 1 << 20))
