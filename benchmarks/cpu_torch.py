"""The cases of `benchmarks.cpu` in PyTorch, run eagerly, as most PyTorch users do.

The models are those of `benchmarks.workloads`, but with PyTorch's own initial parameters, so losses
are not compared. Images are stored channels-last where PyTorch is faster with this layout.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks import cpu_jaxlike, fused_operations, zoo
from benchmarks.cpu_child import Case, timed
from benchmarks.cpu_rows import parse

DEVICE = "cuda" if os.environ.get("BENCHMARK_PLATFORM") == "gpu" else "cpu"
if DEVICE == "cuda":  # jax's default
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True

Built = tuple[nn.Module, torch.Tensor, torch.Tensor, str]


def mlp(batch: int = 128, width: int = 512) -> Built:
    """Three dense layers on 784 inputs."""
    model = nn.Sequential(
        nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )
    return model, torch.rand(batch, 784), torch.randint(0, 10, (batch,)), "momentum"


def cnn(batch: int = 128) -> Built:
    """Two convolutions and two dense layers on 28x28 images."""
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(3136, 256), nn.ReLU(), nn.Linear(256, 10),
    ).to(memory_format=torch.channels_last)  # fmt: skip
    return model, torch.rand(batch, 1, 28, 28), torch.randint(0, 10, (batch,)), "momentum"


class Bottleneck(nn.Module):
    """A block of resnet50."""

    def __init__(self, inputs: int, channels: int, stride: int):
        super().__init__()
        conv = lambda i, o, size, stride=1, pad=0: nn.Sequential(
            nn.Conv2d(i, o, size, stride, pad, bias=False), nn.BatchNorm2d(o)
        )
        self.body = nn.Sequential(
            conv(inputs, channels, 1), nn.ReLU(), conv(channels, channels, 3, stride, 1),
            nn.ReLU(), conv(channels, 4 * channels, 1),
        )  # fmt: skip
        same = stride == 1 and inputs == 4 * channels
        self.skip = nn.Identity() if same else conv(inputs, 4 * channels, 1, stride)

    def forward(self, x: Any) -> Any:
        return F.relu(self.body(x) + self.skip(x))


def resnet50(batch: int = 8, size: int = 224) -> Built:
    """Bottleneck blocks with batch norm, 1,000 classes."""
    stem = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
    layers: list[nn.Module] = [stem, nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for i, blocks in enumerate((3, 4, 6, 3)):
        for j in range(blocks):
            layers.append(Bottleneck(inputs, 64 * 2**i, 2 if i > 0 and j == 0 else 1))
            inputs = 256 * 2**i
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)]
    model = nn.Sequential(*layers).to(memory_format=torch.channels_last)
    x = torch.rand(batch, 3, size, size).to(memory_format=torch.channels_last)
    return model, x, torch.randint(0, 1000, (batch,)), "momentum"


class Attention(nn.Module):
    """Causal self-attention by PyTorch's fused operation."""

    def __init__(self, d: int, heads: int):
        super().__init__()
        self.heads = heads
        self.inputs = nn.Linear(d, 3 * d, bias=False)
        self.outputs = nn.Linear(d, d, bias=False)

    def forward(self, x: Any) -> Any:
        batch, seq, d = x.shape
        split = self.inputs(x).view(batch, seq, 3, self.heads, d // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.outputs(y.transpose(1, 2).reshape(batch, seq, d))


class Block(nn.Module):
    """A pre-norm transformer layer."""

    def __init__(self, d: int, heads: int):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(d), nn.LayerNorm(d)])
        self.attention = Attention(d, heads)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU("tanh"), nn.Linear(4 * d, d))

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


def transformer(
    batch: int = 8, seq: int = 128, d: int = 256, layers: int = 4, heads: int = 4, vocab: int = 8192
) -> Built:
    """A pre-norm language model."""

    class LM(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(vocab, d)
            self.positions = nn.Parameter(0.02 * torch.randn(seq, d))
            blocks = [Block(d, heads) for _ in range(layers)]
            self.rest = nn.Sequential(*blocks, nn.LayerNorm(d), nn.Linear(d, vocab))

        def forward(self, tokens: Any) -> Any:
            return self.rest(self.embed(tokens) + self.positions)

    return LM(), *_tokens(batch, seq, vocab), "adam"


def lstm(batch: int = 32, seq: int = 64, hidden: int = 256, vocab: int = 2048) -> Built:
    """A language model of two LSTM layers."""

    class LM(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(vocab, hidden)
            self.layers = nn.LSTM(hidden, hidden, 2, batch_first=True)
            self.head = nn.Linear(hidden, vocab)

        def forward(self, tokens: Any) -> Any:
            return self.head(self.layers(self.embed(tokens))[0])

    return LM(), *_tokens(batch, seq, vocab), "adam"


def gnn(nodes: int = 4096, edges: int = 32768, d: int = 128, layers: int = 3) -> Built:
    """Sums over the neighbors in a fixed random graph."""
    source, target = torch.randint(0, nodes, (2, edges))

    class GNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.ModuleList([nn.Linear(d, d) for _ in range(layers)])
            self.norms = nn.ModuleList([nn.LayerNorm(d) for _ in range(layers)])
            self.head = nn.Linear(d, 16)

        def forward(self, x: Any) -> Any:
            for dense, norm in zip(self.dense, self.norms, strict=True):
                h = dense(x)
                received = torch.zeros_like(h).index_add(0, target, h[source])
                x = F.relu(norm(received + h))
            return self.head(x)

    return GNN(), torch.randn(nodes, d), torch.randint(0, 16, (nodes,)), "adam"


def _tokens(batch: int, seq: int, vocabulary: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = torch.randint(0, vocabulary, (2, batch, seq))
    return x, y


MODELS: dict[str, Callable[..., Built]] = {
    f.__name__: f for f in (mlp, cnn, resnet50, transformer, lstm, gnn)
}


def train(_: str, spec: str) -> Case:
    """Training steps of a workload."""
    torch.manual_seed(0)
    name, sizes = parse(spec)
    narrow = sizes.pop("dtype", "float32") == "bfloat16"
    with torch.device(DEVICE):
        model, x, y, kind = MODELS[name](**sizes)
    if kind == "adam":
        optimizer: Any = torch.optim.Adam(model.parameters(), 1e-3)
    else:
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def once() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=narrow):
            out = model(x)
            loss = F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.detach()

    first = float(once())
    return Case({"": timed(once, float)}, {"losses": [first]})


def _gradients(name: str, raw: list[np.ndarray]) -> Callable[[], tuple[torch.Tensor, ...]]:
    """A function that runs an operation forward and backward."""
    x, *rest = (torch.from_numpy(a) for a in raw)
    x.requires_grad_()
    if name == "cross-entropy":
        labels = rest[0].long()

        def entropy() -> tuple[torch.Tensor, ...]:
            loss = F.cross_entropy(x, labels)
            return loss.detach(), *torch.autograd.grad(loss, x)

        return entropy
    ct, wanted = rest[-1], [x, *rest[:-1]]
    function: Callable[..., torch.Tensor] = {
        "softmax": lambda x: torch.softmax(x, -1),
        "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
        "gelu erf": F.gelu,
        "layer norm": lambda x, *p: F.layer_norm(x, x.shape[-1:], *p, eps=fused_operations.EPSILON),
    }[name]
    for array in wanted:
        array.requires_grad_()

    def both() -> tuple[torch.Tensor, ...]:
        y = function(*wanted)
        return y.detach(), *torch.autograd.grad(y, wanted, ct)

    return both


def operation(_: str, spec: str) -> Case:
    """An operation forward and backward; the fact is its error against float64."""
    name, elements = spec.split(",")
    raw = fused_operations.inputs(name, int(elements))
    keep = lambda result: result
    if name != "adam":
        once = _gradients(name, raw)
        errors = fused_operations.errors(name, raw, [a.numpy() for a in once()])
        return Case({"": timed(once, keep)}, {"errors": errors})
    x, grad, mu, nu = (torch.from_numpy(a.copy()) for a in raw)
    x.grad = grad
    betas = (fused_operations.B1, fused_operations.B2)
    optimizer = torch.optim.Adam(
        [x], fused_operations.RATE, betas=betas, eps=fused_operations.ADAM_EPSILON, fused=True
    )
    step = torch.tensor(float(fused_operations.STEP - 1))
    optimizer.state[x] = {"step": step, "exp_avg": mu, "exp_avg_sq": nu}
    optimizer.step()
    errors = fused_operations.errors(name, raw, [a.numpy() for a in (x, mu, nu)])
    return Case({"": timed(optimizer.step, keep)}, {"errors": errors})


def scan(_: str, spec: str) -> Case:
    """A loop over a small matrix: the forward pass, and the gradient."""
    body, steps = spec.split(",")
    arrays = cpu_jaxlike.scan_inputs(body, int(steps))
    start, weight, xs = (torch.from_numpy(a) for a in arrays)
    weight.requires_grad_()

    def final() -> torch.Tensor:
        state = start
        for x in xs.unbind():
            state = cpu_jaxlike.scan_body(torch, body, weight, state, x)
        return state.sum()

    def forward() -> torch.Tensor:
        with torch.no_grad():
            return final()

    grad = lambda: torch.autograd.grad(final(), weight)
    keep = lambda result: result
    return Case({"": timed(grad, keep), "forward": timed(forward, keep)}, {})


def call(_: str, spec: str) -> Case:
    """The given number of small additions, each a separate call."""
    leaves = [torch.full((cpu_jaxlike.LEAF,), float(i)) for i in range(int(spec))]
    return Case({"": timed(lambda: [x + 1 for x in leaves], lambda result: result)}, {})


def tiny(_: str, spec: str) -> Case:
    """The gradient of the tiny network."""
    raw, batch = cpu_jaxlike.tiny_inputs()
    params = {k: torch.from_numpy(v).requires_grad_() for k, v in raw.items()}
    x = torch.from_numpy(batch)
    leaves = list(params.values())
    once = lambda: torch.autograd.grad(cpu_jaxlike.tiny_loss(torch, params, x), leaves)
    return Case({"": timed(once, lambda result: result)}, {})


def program(name: str, spec: str) -> Case:
    """Steps of a program of `benchmarks.zoo`."""
    title, size = spec.split(",")
    found = zoo.programs()[title]
    if found.torch is None:
        raise NotImplementedError(f"{title} has no version in PyTorch")
    step, steps = found.torch(torch, DEVICE, **found.sizes[size]), itertools.count()
    restarts = found.restarts
    once = (lambda: step(next(steps) % restarts == 0)) if restarts else step
    wait = torch.cuda.synchronize if DEVICE == "cuda" else lambda: None
    return Case({"": timed(once, lambda _: wait(), restarts or 1)}, {})


KINDS: dict[str, Callable[[str, str], Case]] = {
    "train": train, "operation": operation, "scan": scan, "call": call, "tiny": tiny,
    "program": program,
}  # fmt: skip
