"""cuDNN's attention in host memory: a description is taken at its word and computed in double."""

import numpy as np

from tests.gpu.fake_cudnn import dtype_of
from tests.gpu.fake_libraries import array_at
from toile.kernels.attention import gpu_calls as attention
from toile.targets.cuda import cudnn


class FakeAttention:
    """Makes plans of attentions; `driver`: of the host, which may be capturing.

    `refuse(description)`: there is no engine for it. `ran` are the descriptions executed."""

    def __init__(self, driver=None, refuse=lambda description: False):
        self.driver, self.refuse = driver, refuse
        self.asked, self.ran = [], []

    def plan(self, description):
        self.asked.append(description)
        hash(description)
        if self.refuse(description):
            raise cudnn.Unsupported(description)
        return _Plan(self, description)


class _Plan:
    workspace = 512

    def __init__(self, engine, d):
        self.engine, self.d = engine, d
        tensors = dict(d.tensors)
        (b, n, t, h), (_, m, s, _) = tensors["q"].dim, tensors["k"].dim
        assert n % m == 0 and h % 8 == 0
        wanted = {"q": (b, n, t, h), "k": (b, m, s, h), "o": (b, n, t, tensors["v"].dim[3]),
                  "stats": (b, n, t, 1), "dq": (b, n, t, h), "dk": (b, m, s, h)}
        for name, dim in wanted.items():
            assert name not in tensors or tensors[name].dim == dim, (name, tensors[name])
        if "bias" in tensors:
            bias = tensors["bias"].dim
            assert bias[0] in (1, b) and bias[1] in (1, n) and bias[2:] == (t, s)
        assert ("key_lengths" in tensors) == ("query_lengths" in tensors)

    def execute(self, pointers, workspace, stream):
        pointers = dict(pointers)
        assert workspace and set(pointers) == {attention.NUMBERS[n] for n, _ in self.d.tensors}
        self.engine.ran.append(self.d)
        work = lambda: self.compute(pointers)
        if self.engine.driver is None:
            work()
        else:
            self.engine.driver._do(work)

    def compute(self, pointers):
        x = {name: array_at(pointers[attention.NUMBERS[name]], t.dim, t.stride, dtype_of(t.type))
             for name, t in self.d.tensors}
        q, k, v = (x[name].astype("f8") for name in "qkv")
        group = q.shape[1] // k.shape[1]
        k, v = (np.repeat(a, group, axis=1) for a in (k, v))
        logits, seen = self.logits(x, q, k)
        if not self.d.backward:
            top = np.where(seen.any(-1, keepdims=True), logits.max(-1, keepdims=True), 0)
            weights = np.exp(logits - top)
            total = weights.sum(-1, keepdims=True)
            total = np.where(total > 0, total, 1)  # past the end of an example
            x["o"][...] = weights / total @ v
            if "stats" in x:
                x["stats"][...] = top + np.log(total)
            return
        weights = np.where(seen, np.exp(logits - x["stats"].astype("f8")), 0)
        do = x["do"].astype("f8")
        inner = (do * x["o"].astype("f8")).sum(-1, keepdims=True)
        moved = weights * (do @ v.swapaxes(2, 3) - inner) * self.d.options.scale
        x["dq"][...] = moved @ k
        for name, d in (("dk", moved.swapaxes(2, 3) @ q), ("dv", weights.swapaxes(2, 3) @ do)):
            b, n, s, h = d.shape
            x[name][...] = d.reshape(b, n // group, group, s, h).sum(2)

    def logits(self, x, q, k):
        options = self.d.options
        logits = q @ k.swapaxes(2, 3) * options.scale
        if "bias" in x:
            logits = logits + x["bias"].astype("f8")
        i, j = np.arange(q.shape[2])[:, None], np.arange(k.shape[2])
        seen = np.ones(logits.shape, bool)
        if options.causal:
            seen &= i >= j
        if options.window is not None:
            seen &= (j >= i - options.window[0]) & (j <= i + options.window[1])
        if "key_lengths" in x:
            seen &= (i < x["query_lengths"]) & (j < x["key_lengths"])
        return np.where(seen, logits, -np.inf), seen
