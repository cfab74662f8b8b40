"""bfloat16 and 8-bit integers beside float32 on the CPU: toile, JAX and PyTorch.

Run `python -m benchmarks.low_precision`. Cases are matrix products, convolutions and their
gradients, and the gradients of a transformer and of a convolutional network. In each round, all
libraries and dtypes take turns, so other load hardly changes their ratios; each library uses one
thread. Times are medians of CPU time, ratios medians of the rounds' ratios. `--only` selects cases,
`--json FILE` writes a results file. JAX and PyTorch are measured if they are installed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import toile
import toile.numpy as jnp
from benchmarks import cpu
from toile import lax, nn

Call = Callable[[], Any]
PRODUCTS = ((64, 64, 64), (256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048),
            (1000, 1000, 1000), (8192, 64, 64), (8192, 256, 256), (64, 1024, 4096),
            (16, 1024, 1024), (32, 4096, 1024))  # fmt: skip
BATCHES = ((64, 128, 64, 128), (16, 512, 64, 512))  # matrices, rows, terms, columns
# Images, side, channels, features, side of the kernels, stride.
CONVOLUTIONS = ((8, 56, 64, 64, 3, 1), (8, 56, 64, 256, 1, 1), (8, 56, 128, 128, 3, 2),
                (8, 28, 128, 128, 3, 1), (8, 14, 256, 256, 3, 1), (8, 7, 512, 512, 3, 1),
                (8, 224, 3, 64, 7, 2))  # fmt: skip
FLOATS = ("float32", "bfloat16")
WIDTH, HEADS, LENGTH, BATCH, LAYERS = 512, 8, 128, 8, 2  # of the transformer
LAYERS_OF_KERNELS = ((64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 128, 1))


class Case(NamedTuple):
    """What is measured: by dtype and library, a function that runs it once."""

    title: str
    make: Callable[[], dict[str, dict[str, Call]]]


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Random numbers, scaled so that sums keep their size."""
    random = np.random.default_rng(seed)
    return (random.standard_normal(shape) / np.sqrt(np.prod(shape[:-1]) ** 0.5)).astype("f4")


def libraries() -> list[str]:
    """toile, and its peers that are installed."""
    return ["toile", *(name for name in ("jax", "torch") if find_spec(name))]


def functions(library: str) -> Any:
    """The library with JAX's names: numpy, lax, nn, jit and grad."""
    if library == "toile":
        return toile, jnp, lax, nn
    import jax

    return jax, jax.numpy, jax.lax, jax.nn


def waited(library: str, f: Callable[..., Any], *args: Any) -> Call:
    """A call that waits for its results."""
    lib = functions(library)[0]
    return lambda: [x.block_until_ready() for x in lib.tree.leaves(f(*args))]


# ---- products
def product(m: int, k: int, n: int, batch: int = 0) -> dict[str, dict[str, Call]]:
    """A matrix product, or a batch of them, in all dtypes."""
    shape = (batch,) if batch else ()
    x, y = numbers(*shape, m, k), numbers(*shape, k, n, seed=1)
    found: dict[str, dict[str, Call]] = {}
    for dtype in (*FLOATS, "int8"):
        calls = found[dtype] = {}
        for library in libraries():
            arrays = [a if dtype != "int8" else np.clip(40 * a, -99, 99) for a in (x, y)]
            call = _torch_product if library == "torch" else _product
            made = call(library, arrays, dtype)
            if made is not None:
                calls[library] = made
    return found


def _product(library: str, arrays: Sequence[np.ndarray], dtype: str) -> Call:
    lib, np_, _, _ = functions(library)
    out = "int32" if dtype == "int8" else dtype
    f = lib.jit(lambda x, y: np_.matmul(x, y, preferred_element_type=out))
    return waited(library, f, *(np_.asarray(a).astype(dtype) for a in arrays))


def _torch_product(_: str, arrays: Sequence[np.ndarray], dtype: str) -> Call | None:
    import torch

    x, y = (torch.from_numpy(a).to(getattr(torch, dtype)) for a in arrays)
    if dtype == "int8":
        return (lambda: torch._int_mm(x, y)) if x.ndim == 2 else None
    return lambda: x @ y


# ---- convolutions
def convolution(
    images: int, side: int, channels: int, features: int, kernel: int, stride: int, of: str = ""
) -> dict[str, dict[str, Call]]:
    """A convolution, or its gradient of "x" or "w"."""
    x, w = numbers(images, side, side, channels), numbers(kernel, kernel, channels, features)
    found: dict[str, dict[str, Call]] = {}
    for dtype in FLOATS:
        for library in libraries():
            call = _torch_convolution if library == "torch" else _convolution
            found.setdefault(dtype, {})[library] = call(library, x, w, dtype, stride, of)
    return found


def _convolution(library: str, x: Any, w: Any, dtype: str, stride: int, of: str) -> Call:
    lib, np_, lax_, _ = functions(library)
    x, w = (np_.asarray(a).astype(dtype) for a in (x, w))
    pad = (w.shape[0] // 2,) * 2
    f = lambda x, w: lax_.conv_general_dilated(
        x, w, (stride, stride), (pad, pad), dimension_numbers=("NHWC", "HWIO", "NHWC"))
    if not of:
        return waited(library, lib.jit(f), x, w)
    y = f(x, w)

    def gradient(x: Any, w: Any, y: Any) -> Any:
        given = (lambda a: f(a, w)) if of == "x" else (lambda a: f(x, a))
        return lib.vjp(given, x if of == "x" else w)[1](y)

    return waited(library, lib.jit(gradient), x, w, y)


def _torch_convolution(_: str, x: Any, w: Any, dtype: str, stride: int, of: str) -> Call:
    import torch

    last = torch.channels_last
    x, w = (torch.from_numpy(a).permute(order).to(getattr(torch, dtype)).contiguous(
        memory_format=last) for a, order in ((x, (0, 3, 1, 2)), (w, (3, 2, 0, 1))))
    pad = w.shape[-1] // 2
    if not of:
        return lambda: torch.nn.functional.conv2d(x, w, stride=stride, padding=pad)
    y = torch.nn.functional.conv2d(x, w, stride=stride, padding=pad)
    mask = [of == "x", of == "w", False]
    return lambda: torch.ops.aten.convolution_backward(
        y, x, w, None, [stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1, mask)


# ---- training steps
def transformer_parameters() -> list[dict[str, np.ndarray]]:
    """The matrices of all layers."""
    d = WIDTH
    shapes = {"qkv": (d, 3 * d), "out": (d, d), "up": (d, 4 * d), "down": (4 * d, d)}
    return [{name: numbers(*s, seed=i) for name, s in shapes.items()} for i in range(LAYERS)]


def transformer() -> dict[str, dict[str, Call]]:
    """The gradient of a transformer's encoder in its parameters."""
    x = numbers(BATCH, LENGTH, WIDTH) * 5
    found: dict[str, dict[str, Call]] = {}
    for dtype in FLOATS:
        for library in libraries():
            call = _torch_transformer if library == "torch" else _transformer
            found.setdefault(dtype, {})[library] = call(library, x, dtype)
    return found


def _normalized(np_: Any, lax_: Any, x: Any) -> Any:
    wide = x.astype("float32")
    centered = wide - wide.mean(-1, keepdims=True)
    return (centered * lax_.rsqrt((centered**2).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype)


def _transformer(library: str, x: Any, dtype: str) -> Call:
    lib, np_, lax_, nn_ = functions(library)

    def loss(layers: Any, x: Any) -> Any:
        for p in layers:
            h = (_normalized(np_, lax_, x) @ p["qkv"]).reshape(BATCH, LENGTH, 3, HEADS, -1)
            q, k, v = (h[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
            logits = (q @ k.transpose(0, 1, 3, 2)).astype("float32") * (WIDTH // HEADS) ** -0.5
            a = nn_.softmax(logits, -1).astype(x.dtype) @ v
            x = x + a.transpose(0, 2, 1, 3).reshape(x.shape) @ p["out"]
            x = x + nn_.gelu(_normalized(np_, lax_, x) @ p["up"]) @ p["down"]
        return (x.astype("float32") ** 2).mean()

    layers = lib.tree.map(lambda a: np_.asarray(a).astype(dtype), transformer_parameters())
    return waited(library, lib.jit(lib.grad(loss)), layers, np_.asarray(x).astype(dtype))


def _torch_transformer(_: str, x: Any, dtype: str) -> Call:
    import torch
    from torch.nn import functional as F

    kind = getattr(torch, dtype)
    layers = [{name: torch.from_numpy(a).to(kind).requires_grad_() for name, a in p.items()}
              for p in transformer_parameters()]
    given = torch.from_numpy(x).to(kind)

    def step() -> Any:
        x = given
        for p in layers:
            h = (F.layer_norm(x, (WIDTH,)) @ p["qkv"]).reshape(BATCH, LENGTH, 3, HEADS, -1)
            q, k, v = (h[:, :, i].transpose(1, 2) for i in range(3))
            logits = (q @ k.transpose(-1, -2)).float() * (WIDTH // HEADS) ** -0.5
            a = torch.softmax(logits, -1).to(kind) @ v
            x = x + a.transpose(1, 2).reshape(x.shape) @ p["out"]
            x = x + F.gelu(F.layer_norm(x, (WIDTH,)) @ p["up"], approximate="tanh") @ p["down"]
        return torch.autograd.grad(x.float().pow(2).mean(), [a for p in layers for a in p.values()])

    return step


def kernels() -> list[np.ndarray]:
    """The kernels of the convolutional network."""
    return [numbers(3, 3, c, o, seed=i) for i, (c, o, _) in enumerate(LAYERS_OF_KERNELS)]


def convnet() -> dict[str, dict[str, Call]]:
    """The gradient of a network of convolutions, normalizations and residuals."""
    x = numbers(8, 28, 28, 64) * 5
    found: dict[str, dict[str, Call]] = {}
    for dtype in FLOATS:
        for library in libraries():
            call = _torch_convnet if library == "torch" else _convnet
            found.setdefault(dtype, {})[library] = call(library, x, dtype)
    return found


def _convnet(library: str, x: Any, dtype: str) -> Call:
    lib, np_, lax_, _ = functions(library)

    def loss(ws: Any, x: Any) -> Any:
        for w, (_, _, stride) in zip(ws, LAYERS_OF_KERNELS, strict=True):
            y = lax_.conv_general_dilated(x, w, (stride, stride), ((1, 1), (1, 1)),
                                          dimension_numbers=("NHWC", "HWIO", "NHWC"))
            y = np_.maximum(_normalized(np_, lax_, y), 0)
            x = x + y if x.shape == y.shape else y
        return (x.astype("float32") ** 2).mean()

    ws = [np_.asarray(w).astype(dtype) for w in kernels()]
    return waited(library, lib.jit(lib.grad(loss)), ws, np_.asarray(x).astype(dtype))


def _torch_convnet(_: str, x: Any, dtype: str) -> Call:
    import torch
    from torch.nn import functional as F

    kind, last = getattr(torch, dtype), torch.channels_last
    placed = lambda a, order: torch.from_numpy(a).permute(order).to(kind).contiguous(
        memory_format=last)
    ws = [placed(w, (3, 2, 0, 1)).requires_grad_() for w in kernels()]
    given = placed(x, (0, 3, 1, 2))

    def step() -> Any:
        x = given
        for w, (_, _, stride) in zip(ws, LAYERS_OF_KERNELS, strict=True):
            y = F.conv2d(x, w, stride=stride, padding=1).permute(0, 2, 3, 1)
            y = F.relu(F.layer_norm(y, (y.shape[-1],)).permute(0, 3, 1, 2))
            x = x + y if x.shape == y.shape else y
        return torch.autograd.grad(x.float().pow(2).mean(), ws)

    return step


# ---- measuring
def cases() -> Iterator[Case]:
    """All cases."""
    for sizes in PRODUCTS:
        yield Case("product " + " x ".join(map(str, sizes)), lambda s=sizes: product(*s))
    for batch, *sizes in BATCHES:
        yield Case(f"products {batch} of " + " x ".join(map(str, sizes)),
                   lambda s=sizes, b=batch: product(*s, batch=b))
    for case in CONVOLUTIONS:
        n, side, c, o, kernel, stride = case
        title = f"{n} x {side} x {side} x {c}, {kernel} x {kernel} to {o}, stride {stride}"
        for of, kind in (("", "convolution"), ("x", "input gradient"), ("w", "kernel gradient")):
            yield Case(f"{kind} {title}", lambda s=case, of=of: convolution(*s, of=of))
    yield Case("gradient of a transformer", transformer)
    yield Case("gradient of a convolutional network", convnet)


def measured(case: Case, rounds: int) -> dict[str, dict[str, Any]]:
    """Medians and ratios, by dtype; all dtypes and libraries take turns."""
    calls = case.make()
    times: dict[tuple[str, str], list[float]] = {
        (dtype, library): [] for dtype, found in calls.items() for library in found}
    for number in range(rounds + 2):
        for (dtype, library), kept in times.items():
            call = calls[dtype][library]
            started = time.process_time()
            call()
            if number >= 2:
                kept.append(time.process_time() - started)
    results = {}
    for dtype, found in calls.items():
        own = times[dtype, "toile"]
        others = {library: times[dtype, library] for library in found if library != "toile"}
        others["toile in float32"] = times["float32", "toile"]
        ratios = {f"toile/{name}": statistics.median(a / b for a, b in zip(own, kept, strict=True))
                  for name, kept in others.items()}
        medians = {library: 1e6 * statistics.median(times[dtype, library]) for library in found}
        results[dtype] = {"median_us": medians, "ratios": ratios}
    return results


def line(title: str, found: dict[str, dict[str, Any]]) -> str:
    """A row of the table: times, and toile's divided by the others."""
    lines = [title]
    for dtype, result in found.items():
        times = ", ".join(f"{k} {t / 1e3:.3f}" for k, t in result["median_us"].items())
        ratios = ", ".join(f"{k} {r:.2f}" for k, r in result["ratios"].items())
        lines.append(f"  {dtype}: {times} ms; {ratios}")
    return "\n".join(lines)


def main(given: Sequence[str] | None = None) -> int:
    """Measure the cases, print the table and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="cases whose titles contain one of these: a,b,c")
    parser.add_argument("--json", type=Path, help="write the results file")
    args = parser.parse_args(given)
    one_thread()
    results = {}
    for case in cases():
        if any(part in case.title for part in args.only.split(",")):
            found = measured(case, args.rounds)
            print(line(case.title, found), flush=True)
            results.update({f"{case.title}, {dtype}": r for dtype, r in found.items()})
    if args.json:
        about = {"machine": cpu.machine(), "threads": 1, "versions": cpu.versions(),
                 "results": results}  # fmt: skip
        args.json.write_text(json.dumps(about, indent=1) + "\n")
    return 0


def one_thread() -> None:
    """Let every library use one thread: waiting threads would count as CPU time."""
    os.environ["TOILE_NUM_THREADS"] = "1"
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    if find_spec("torch"):
        import torch

        torch.set_num_threads(1)


if __name__ == "__main__":
    raise SystemExit(main())
