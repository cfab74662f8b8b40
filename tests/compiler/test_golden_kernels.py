"""The code of loop nests for representative programs, kept as text, and how much fuses.

A refactoring that should change nothing changes no file under tests/golden/kernels; one that
should is seen in its diff. Texts are made as on aarch64 and do not depend on the machine. To write
them anew: python -m tests.compiler.test_golden_kernels
"""

from pathlib import Path

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import lax, nn
from toile.compiler.pipeline import optimize
from toile.compiler.plan.lower import planned
from toile.inspection.kernels import all_kernels
from toile.kernels.nest import cpu as nests
from toile.platforms.cpu.planner import Region
from toile.platforms.cpu.target import Target
from toile.targets.llvm import scalars

FOLDER = Path(__file__).parent.parent / "golden" / "kernels"
KINDS = ("map", "row", "partial", "column")


def shape(*dims, dtype=jnp.float32):
    return toile.ShapeDtypeStruct(dims, dtype)


ROWS = shape(64, 96)
VECTOR = shape(96)


def layer_norm(x, scale, bias):
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-6) * scale + bias


def cross_entropy(logits, labels):
    chosen = nn.one_hot(labels, logits.shape[-1])
    return -(nn.log_softmax(logits) * chosen).sum(-1).mean()


def adam(g, m, v, p):
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return m, v, p - 1e-3 * m / (jnp.sqrt(v) + 1e-8)


def backward(f):
    """The gradient of a function with a random weight for each result."""
    return lambda weights, *args: toile.grad(lambda *xs: (f(*xs) * weights).sum())(*args)


def keep_some(x, bits):
    return jnp.where(bits < np.uint32(0.9 * 2**32), x / 0.9, 0.0)


def causal(x):
    rows = lax.broadcasted_iota(jnp.int32, x.shape, 0)
    columns = lax.broadcasted_iota(jnp.int32, x.shape, 1)
    return nn.softmax(jnp.where(columns <= rows, x, -1e9))


SCALAR_LOSS = toile.grad(cross_entropy)

PROGRAMS = {
    "add": (lambda x, y: x + y, ROWS, ROWS),
    "bias_relu": (lambda x, b: nn.relu(x + b), ROWS, VECTOR),
    "gelu": (nn.gelu, ROWS),
    "gelu_exact": (lambda x: nn.gelu(x, approximate=False), ROWS),
    "softmax": (nn.softmax, ROWS),
    "softmax_backward": (backward(nn.softmax), ROWS, ROWS),
    "layer_norm": (layer_norm, ROWS, VECTOR, VECTOR),
    "layer_norm_backward": (backward(layer_norm), ROWS, ROWS, VECTOR, VECTOR),
    "cross_entropy": (cross_entropy, ROWS, shape(64, dtype=jnp.int32)),
    "cross_entropy_backward": (SCALAR_LOSS, ROWS, shape(64, dtype=jnp.int32)),
    "column_sums": (lambda x: x.sum(0), shape(512, 96)),
    "long_sum": (lambda x: jnp.square(x).sum(), shape(1 << 20)),
    "transposed_add": (lambda x, y: x + y.T, shape(64, 96), shape(96, 64)),
    "causal_softmax": (causal, shape(64, 64)),
    "bfloat16_swish": (nn.swish, shape(64, 96, dtype=jnp.bfloat16)),
    "bfloat16_sum": (lambda x: x.sum(-1), shape(64, 96, dtype=jnp.bfloat16)),
    "integers": (lambda x, y: (x * 3 + y) // 7 % 5, *[shape(64, dtype=jnp.int32)] * 2),
    "complex": (lambda x, y: jnp.abs(x * y + 1j), *[shape(64, dtype=jnp.complex64)] * 2),
    "adam": (adam, *[shape(4096)] * 4),
    "dropout": (keep_some, ROWS, shape(64, 96, dtype=jnp.uint32)),
    "clip_compare": (lambda x, y: jnp.clip(x, -1, 1) * (x > y), ROWS, ROWS),
    "max_and_argument": (lambda x: (x.max(-1), (x == x.max(-1, keepdims=True)).any(-1)), ROWS),
}


def kernel_texts(f, *shapes) -> str:
    """The loop nests of a function, one after the other, each once."""
    x86, scalars.X86 = scalars.X86, False
    nests.text.cache_clear()
    try:
        program = optimize(toile.make_jaxpr(f)(*shapes).jaxpr)
        plan = planned(program, Target(2))
    finally:
        scalars.X86 = x86
        nests.text.cache_clear()
    launches = [x for s in plan.all_steps() if isinstance(s, Region) for x in s.launches]
    texts = dict.fromkeys((x.note, x.text) for x in launches if x.note in KINDS)
    return "\n".join(f"; {i + 1}: {note}\n{text}" for i, (note, text) in enumerate(texts))


@pytest.mark.parametrize("name", PROGRAMS)
def test_code_is_as_it_was(name):
    path = FOLDER / f"{name}.ll"
    expected = path.read_text()
    found = kernel_texts(*PROGRAMS[name])
    assert found == expected, (
        f"the kernels of {name} changed; if they should, python -m {__name__} writes them anew"
    )


def test_no_file_is_left_over():
    assert {p.stem for p in FOLDER.glob("*.ll")} == set(PROGRAMS)


# ---- how much fuses


def counts(f, *shapes):
    """Kernels, those of them that are loop nests, and parallel regions of a function.

    How many stages a product takes is not fusion's doing: regions count where there is none."""
    with toile.threads(2):
        e = toile.explain(f)(*shapes)
    assert not e.python_steps
    kernels = list(all_kernels(e.kernels))
    loops = [k for k in kernels if k.kind.split(" ")[0] in KINDS]
    return len(kernels), len(loops), e.regions if len(loops) == len(kernels) else None


def attention_block(params, x):
    """A transformer block, before its gradient: two norms, attention, a perceptron."""
    def heads(y):
        return y.reshape(*y.shape[:2], 4, -1).transpose(0, 2, 1, 3)

    y = layer_norm(x, *params["norm1"])
    q, k, v = (heads(y @ w) for w in params["qkv"])
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1]).astype(np.float32)
    mixed = (nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(x.shape)
    x = x + mixed @ params["out"]
    y = layer_norm(x, *params["norm2"])
    up, down = params["mlp"]
    return x + nn.gelu(y @ up) @ down


BLOCK = {
    "norm1": [shape(64)] * 2, "norm2": [shape(64)] * 2, "qkv": [shape(64, 64)] * 3,
    "out": shape(64, 64), "mlp": [shape(64, 256), shape(256, 64)],
}


def adam_of_leaves(gs, ms, vs, ps):
    return [adam(*leaves) for leaves in zip(gs, ms, vs, ps, strict=True)]


def both_ways(f):
    """The value and its gradient with respect to all arguments."""
    def run(weights, *args):
        return toile.value_and_grad(lambda xs: (f(*xs) * weights).sum())(args)

    return run


LEAVES = [shape(n % 7 + 1, 64) for n in range(48)]

FUSED = {
    "softmax": (nn.softmax, [ROWS], (1, 1, 1)),
    "softmax both ways": (both_ways(nn.softmax), [ROWS, ROWS], (2, 2, 2)),
    "layer norm": (layer_norm, [ROWS, VECTOR, VECTOR], (1, 1, 1)),
    "layer norm both ways": (both_ways(layer_norm), [ROWS, ROWS, VECTOR, VECTOR], (2, 2, 2)),
    "cross entropy": (cross_entropy, [ROWS, shape(64, dtype=jnp.int32)], (2, 2, 2)),
    "cross entropy both ways": (
        toile.value_and_grad(cross_entropy), [ROWS, shape(64, dtype=jnp.int32)], (2, 2, 2)),
    "adam over 48 leaves": (adam_of_leaves, [LEAVES] * 4, (48, 48, 1)),
    "transformer block": (attention_block, [BLOCK, shape(2, 32, 64)], (14, 5, None)),
    "transformer block both ways": (
        toile.value_and_grad(lambda p, x: attention_block(p, x).sum(), argnums=(0, 1)),
        [BLOCK, shape(2, 32, 64)], (35, 8, None)),
}


@pytest.mark.parametrize("name", FUSED)
def test_as_much_fuses_as_did(name):
    f, args, expected = FUSED[name]
    found = counts(f, *args)
    assert found == expected, "kernels, loop nests, regions (fewer is better: lower the numbers)"


def write() -> None:
    """Make the files anew."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in FOLDER.glob("*.ll"):
        path.unlink()
    for name, program in PROGRAMS.items():
        (FOLDER / f"{name}.ll").write_text(kernel_texts(*program))
        print(name)
    for name, (f, args, expected) in FUSED.items():
        print(f"{name}: kernels, loop nests, regions {counts(f, *args)}, expected {expected}")


if __name__ == "__main__":
    write()
