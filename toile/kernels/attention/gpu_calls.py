"""Scaled dot-product attention by cuDNN, forward and backward, as calls on operands.

Arrays are (batch, positions, heads, depth), as in `nn.dot_product_attention`, with any strides that
have depth innermost; keys and values may have fewer heads, each shared by a group of query heads.
The weights are never stored: the forward pass keeps one number per query, the logarithm of its sum
of exponentials, from which the backward pass recomputes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from toile.compiler.ir.geometry import permuted, room
from toile.compiler.ir.operands import Operand, Ref
from toile.compiler.ir.steps import alignment
from toile.compiler.ir.views import row_major
from toile.targets.cuda import cudnn
from toile.targets.cuda.cudnn import Tensor, inputs, output
from toile.targets.cuda.launches import Planner

TYPES = ("bfloat16", "float16")
MOST_DEPTH = 256
ALIGNED = 16  # bytes
# The numbers that identify the tensors of a graph.
NUMBERS = {
    name: i for i, name in enumerate(
        ("q", "k", "v", "o", "stats", "bias", "query_lengths", "key_lengths", "seed", "offset",
         "do", "dq", "dk", "dv", "dbias"), 1)
}  # fmt: skip


class Options(NamedTuple):
    """The options of an attention."""

    scale: float
    causal: bool = False  # query i sees keys up to i
    window: tuple[int, int] | None = None  # how many keys before and after a query it sees
    dropout: float = 0.0


@dataclass(frozen=True)
class Attention:
    """A graph: tensors by name, each (batch, heads, positions, depth), and options."""

    tensors: tuple[tuple[str, Tensor], ...]
    options: Options
    backward: bool = False

    @property
    def name(self) -> str:
        return "attention gradient" if self.backward else "attention"

    def left_out(self) -> tuple[str, ...]:
        return ()  # the backward pass is requested to be deterministic

    def add(self, cudnn: Any, graph: Any) -> None:
        """Add the attention node to the graph."""
        results = ("dq", "dk", "dv", "dbias") if self.backward else ("o", "stats")
        tensors = dict(self.tensors)
        made = inputs(cudnn, graph, NUMBERS, [
            (name, t) for name, t in tensors.items() if name not in results or name == "dbias"])
        more = self._settings(made)
        if self.backward:
            outs = graph.sdpa_backward(
                q=made["q"], k=made["k"], v=made["v"], o=made["o"], dO=made["do"],
                stats=made["stats"], dBias=made.get("dbias"), use_deterministic_algorithm=True,
                **more)  # fmt: skip
            names: Sequence[str] = ("dq", "dk", "dv")
        else:
            outs = graph.sdpa(q=made["q"], k=made["k"], v=made["v"],
                              generate_stats="stats" in tensors, **more)
            names = ("o", "stats") if "stats" in tensors else ("o",)
        for name, out in zip(names, outs, strict=False):
            output(cudnn, out, tensors[name], NUMBERS[name])

    def _settings(self, made: dict[str, Any]) -> dict[str, Any]:
        """The arguments common to both passes."""
        options = self.options
        more: dict[str, Any] = {"attn_scale": options.scale, "bias": made.get("bias")}
        if options.window is None:
            more["use_causal_mask"] = options.causal
        else:
            before, after = options.window
            more["diagonal_band_left_bound"] = before + 1  # keys this far away are not seen
            more["diagonal_band_right_bound"] = 0 if options.causal else after
        if "key_lengths" in made:
            more |= {"use_padding_mask": True, "seq_len_q": made["query_lengths"],
                     "seq_len_kv": made["key_lengths"]}  # fmt: skip
        if options.dropout:
            more["dropout"] = (options.dropout, made["seed"], made["offset"])
        return more


class Extras(NamedTuple):
    """Optional operands, each None if absent.

    bias: (1 or batch, 1 or heads, queries, keys), added to the logits; lengths: int32 (batch,) of
    queries and keys; seed and offset: one int64 each, where there is dropout."""

    bias: Operand | None = None
    query_lengths: Operand | None = None
    key_lengths: Operand | None = None
    seed: Operand | None = None
    offset: Operand | None = None


def forward(q: Operand, k: Operand, v: Operand, out: Operand, stats: Operand | None,
            options: Options, plan: Planner, extras: Extras = Extras()) -> bool:  # noqa: B008
    """Add attention; `stats`, float32 (batch, heads, queries), is for the backward pass.

    False if cuDNN has no engine for it."""
    return _lower({"q": q, "k": k, "v": v, **extras._asdict()}, {"o": out, "stats": stats},
                  options, plan, False)


def backward(ins: Sequence[Operand], outs: Sequence[Operand], options: Options, plan: Planner,
             extras: Extras = Extras(), dbias: Operand | None = None) -> bool:  # noqa: B008
    """Add the gradient: (q, k, v, out, stats, dout) -> (dq, dk, dv), and the gradient of a bias.

    False if cuDNN has no engine for it."""
    given = dict(zip(("q", "k", "v", "o", "stats", "do"), ins, strict=True))
    made = dict(zip(("dq", "dk", "dv"), outs, strict=True))
    return _lower({**given, **extras._asdict()}, {**made, "dbias": dbias}, options, plan, True)


def _lower(given: dict[str, Operand | None], made: dict[str, Operand | None], options: Options,
           plan: Any, is_backward: bool) -> bool:
    known = {name: a for name, a in {**given, **made}.items() if a is not None}
    found = _copied_operands(known, options, is_backward)
    if found is None:
        return False
    copies, description, built = found
    places, held = {}, []
    for name, a in known.items():
        if name in copies:
            target = room(plan, a.shape, a.dtype)
            if name in made:
                held.append((a, target))
            else:
                plan.copy(target, a)
            a = target
        places[NUMBERS[name]] = a.ref
    results = tuple(NUMBERS[name] for name in known if name in made)
    cudnn.call(description, places, results, plan, f"cuDNN {description.name}", built)
    for a, target in held:
        plan.copy(a, target)
    return True


def _copied_operands(known: dict[str, Operand], options: Options, is_backward: bool
                     ) -> tuple[set[str], Attention, Any] | None:
    """The names of the operands to copy so that cuDNN has an engine; the graph; and its plan.

    Operands are used in place if possible; otherwise all are dense. None if there is no engine."""
    engine = cudnn.engine()
    if engine is None or not supported(*(known.get(name) for name in "qkv")):
        return None
    for copies in ({name for name, a in known.items() if not readable(name, a)},
                   {name for name, a in known.items() if not _is_dense(a)}):
        layout = {name: dense(a) if name in copies else a for name, a in known.items()}
        description = _described(layout, options, is_backward)
        built = _built(engine, description)
        if built is not None:
            return copies, description, built
    return None


def _described(known: dict[str, Operand], options: Options, is_backward: bool) -> Attention:
    seen = {name: canonical(name, a) for name, a in known.items()}
    tensors = tuple((name, Tensor(a.shape, a.strides, a.dtype.name)) for name, a in seen.items())
    return Attention(tensors, options, is_backward)


def _built(engine: Any, description: Attention) -> Any:
    try:
        return engine.plan(description)
    except cudnn.Unsupported:
        return None


def available(given: dict[str, Any], made: dict[str, Any], options: Options,
              is_backward: bool = False) -> bool:
    """Whether cuDNN has an engine for arrays of such shapes and dtypes, all of them dense.

    `given` and `made` are by name, in the order of the arguments of `forward` and `backward`."""
    engine = cudnn.engine()
    if engine is None or not supported(*(given[name] for name in "qkv")):
        return False
    known = {name: dense(Operand(Ref(None), a.shape, (0,) * len(a.shape), np.dtype(a.dtype)))
             for name, a in {**given, **made}.items()}
    return _built(engine, _described(known, options, is_backward)) is not None


def _is_dense(a: Operand) -> bool:
    return a.contiguous and alignment(a.ref) % ALIGNED == 0


def supported(q: Any, k: Any, v: Any) -> bool:
    """Whether cuDNN may have an engine: half precision, depths of whole vectors, and whole groups
    of heads."""
    if q is None or k is None or v is None or not (q.size and k.size and v.size):
        return False
    kinds = {a.dtype.name for a in (q, k, v)}
    return (
        len(kinds) == 1 and kinds <= set(TYPES)
        and q.shape[-1] == k.shape[-1] and q.shape[-2] % k.shape[-2] == 0
        and all(a.shape[-1] % 8 == 0 and a.shape[-1] <= MOST_DEPTH for a in (q, k, v))
    )  # fmt: skip


def dense(a: Operand) -> Operand:
    """An operand with the strides that a copy of it would have."""
    return a._replace(strides=row_major(a.shape))


def readable(name: str, a: Operand) -> bool:
    """Whether an operand can be used in place: depth innermost, rows beginning at whole vectors."""
    if name in ("stats", "query_lengths", "key_lengths", "seed", "offset"):
        return a.contiguous
    if _is_dense(a):
        return True
    if alignment(a.ref) % ALIGNED or (a.shape[-1] > 1 and a.strides[-1] != 1):
        return False
    vector = ALIGNED // a.dtype.itemsize
    return all(n == 1 or (s > 0 and s % vector == 0)
               for n, s in zip(a.shape[:-1], a.strides[:-1], strict=True))


def canonical(name: str, a: Operand) -> Operand:
    """The operand as (batch, heads, positions, depth), cuDNN's order of axes."""
    if name in ("bias", "dbias"):
        return a
    if name == "stats":
        return a._replace(shape=(*a.shape, 1), strides=(*a.strides, 1))
    if name in ("query_lengths", "key_lengths", "seed", "offset"):
        return a._replace(shape=(a.size, 1, 1, 1), strides=(1, 1, 1, 1))
    return permuted(a, (0, 2, 1, 3))
