"""cuDNN in host memory: descriptions are checked and computed by their definition."""

import itertools

import ml_dtypes
import numpy as np

from tests.gpu.fake_libraries import array_at
from toile.targets.cuda import cudnn


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name, name))


class FakeEngine:
    """Makes plans that run on host memory; `refuse(description)`: there is no engine for it."""

    def __init__(self, refuse=lambda description: False):
        self.refuse = refuse
        self.asked = []

    def plan(self, description):
        self.asked.append(description)
        hash(description)
        if self.refuse(description):
            raise cudnn.Unsupported(description)
        return FakeConvolution(description)


class FakeConvolution:
    """A convolution or a derivative of one, tap by tap."""

    workspace = 512

    def __init__(self, d):
        self.d = d
        for t in (d.x, d.w, d.y):
            spans = sorted((s, n) for s, n in zip(t.stride, t.dim, strict=True) if n > 1)
            step = 1
            for s, n in spans:  # without gaps
                assert s == step, t
                step *= n
        assert len(d.x.dim) in (4, 5) and d.x.dim[0] == d.y.dim[0]
        assert d.x.dim[1] % d.w.dim[1] == 0
        self.groups = d.x.dim[1] // d.w.dim[1]
        assert d.w.dim[0] == d.y.dim[1] and d.w.dim[0] % self.groups == 0
        assert min(d.low + d.high) >= 0
        for i in range(len(d.low)):
            window = (d.w.dim[2 + i] - 1) * d.dilation[i] + 1
            room = d.x.dim[2 + i] + d.low[i] + d.high[i] - window
            assert room >= 0 and d.y.dim[2 + i] == room // d.stride[i] + 1, (d, i)

    def execute(self, pointers, workspace, stream):
        d = self.d
        assert set(pointers) == {1, 2, 3} and workspace
        assert not any(p % 16 for p in pointers.values())
        x, w, y = (array_at(pointers[i], t.dim, t.stride, dtype_of(t.type))
                   for i, t in ((1, d.x), (2, d.w), (3, d.y)))
        g = self.groups
        n, c = x.shape[:2]
        k = w.shape[0]
        # (g, n, c, ...), (g, k, c, ...), (g, n, k, ...) in double
        xs = np.moveaxis(x.reshape(n, g, c // g, *x.shape[2:]), 1, 0).astype("f8")
        ws = w.reshape(g, k // g, *w.shape[1:]).astype("f8")
        ys = np.moveaxis(y.reshape(n, g, k // g, *y.shape[2:]), 1, 0).astype("f8")
        margins = [(0, 0)] * 3 + list(zip(d.low, d.high))
        padded = np.pad(xs, margins)
        if d.kind == "fprop":
            ys = np.zeros_like(ys)
        elif d.kind == "dgrad":
            padded = np.zeros_like(padded)
        else:
            ws = np.zeros_like(ws)
        for tap in itertools.product(*map(range, w.shape[2:])):
            at = (..., *(slice(t * e, t * e + (q - 1) * s + 1, s) for t, e, q, s in zip(
                tap, d.dilation, y.shape[2:], d.stride)))
            kernel = (..., *tap)
            if d.kind == "fprop":
                ys += np.einsum("gnc...,gkc->gnk...", padded[at], ws[kernel])
            elif d.kind == "dgrad":
                padded[at] += np.einsum("gnk...,gkc->gnc...", ys, ws[kernel])
            else:
                ws[kernel] = np.einsum("gncp,gnkp->gkc", padded[at].reshape(*xs.shape[:3], -1),
                                       ys.reshape(*ys.shape[:3], -1))
        if d.kind == "fprop":
            y[...] = np.moveaxis(ys, 0, 1).reshape(y.shape)
        elif d.kind == "dgrad":
            inner = tuple(slice(a, a + m) for a, m in zip(d.low, x.shape[2:]))
            x[...] = np.moveaxis(padded[(..., *inner)], 0, 1).reshape(x.shape)
        else:
            w[...] = ws.reshape(w.shape)
