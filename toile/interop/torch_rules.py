"""How the tensors of torch layers correspond to the variables of toile's, kind by kind.

A rule is a frozen dataclass that holds the path of a layer; its `pairs` say which torch tensors
make which variables, in what shapes, and the two functions that convert in each direction.
Conversions only rearrange values, except for recurrent layers: torch adds two biases where toile
has one, so converting back needs torch's second bias to compute the first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

__all__ = [
    "GRU", "LSTM", "RNN", "Attention", "Conv", "ConvTranspose", "Dense", "Embed", "Leaf", "Norm",
    "PReLU", "Pair", "Rule", "infer",
]  # fmt: skip

Arrays = Sequence[np.ndarray]
Shape = tuple[int, ...]
# The variables of one layer: "params/kernel" -> shape.
Shapes = Mapping[str, Shape]


class Pair(NamedTuple):
    """Torch tensors and the variables that hold the same numbers.

    `names` and `shapes` are torch's, `leaves` toile's; `to_toile` takes the tensors, `to_torch` the
    variables and, where there is one, a model's own tensors of these names. Tensors that are
    `optional` may be missing: then they count as zeros.
    """

    names: tuple[str, ...]
    shapes: tuple[Shape, ...]
    leaves: tuple[str, ...]
    to_toile: Callable[[Arrays], Arrays]
    to_torch: Callable[[Arrays, Arrays | None], Arrays]
    optional: bool = False


def _one(
    name: str, leaf: str, shape: Shape, to_toile: Callable[[np.ndarray], np.ndarray] = lambda x: x,
    to_torch: Callable[[np.ndarray], np.ndarray] = lambda x: x,
) -> Pair:
    """One tensor, one variable."""
    return Pair(
        (name,), (shape,), (leaf,), lambda xs: [to_toile(xs[0])], lambda xs, like: [to_torch(xs[0])]
    )


@dataclass(frozen=True)
class Rule:
    """The kind of a layer, and its path among the variables: the base class of rules.

    Args:
        path: path of the layer among the variables, such as `"encoder/layers_0"`.
    """

    path: str

    def pairs(self, shapes: Shapes) -> list[Pair]:
        """Return which torch tensors correspond to which variables of these shapes."""
        raise NotImplementedError

    def torch_name(self, layer: str, name: str) -> str:
        """Return the full name of a tensor of the torch layer."""
        return f"{layer}.{name}" if layer and name else layer or name


def _bias(shapes: Shapes) -> list[Pair]:
    if "params/bias" not in shapes:
        return []
    shape = shapes["params/bias"]
    flat = (math.prod(shape),)
    return [_one("bias", "params/bias", flat, lambda x: x.reshape(shape), np.ravel)]


@dataclass(frozen=True)
class Dense(Rule):
    """Linear ↔ Dense and DenseGeneral: the kernel is the transposed weight.

    Args:
        path: path of the layer among the variables, such as `"encoder/layers_0"`.
        flattened: shape (channels, height, width) if the inputs are a flattened image; its channels
            are first in torch and last here. None if they are not.
        output_axes: number of axes of a DenseGeneral kernel that are outputs; None to find it from
            the bias or from the name (`query`, `key`, `value`, `out`).
    """

    flattened: Shape | None = None
    output_axes: int | None = None

    def pairs(self, shapes: Shapes) -> list[Pair]:
        kernel = shapes["params/kernel"]
        n = self.output_axes or len(shapes.get("params/bias", ())) or self._axes_by_name(kernel)
        n_out, n_in = math.prod(kernel[-n:]), math.prod(kernel[:-n])
        image = self.flattened or (n_in,)
        inner = list(range(1, len(image) + 1))  # (out, C, H, W) -> (H, W, C, out)
        axes = [*inner[1:], 1, 0]
        back = np.argsort(axes)
        permuted = tuple(([n_out, *image])[a] for a in axes)

        def to_toile(x: np.ndarray) -> np.ndarray:
            return x.reshape(n_out, *image).transpose(axes).reshape(kernel)

        def to_torch(x: np.ndarray) -> np.ndarray:
            return x.reshape(permuted).transpose(back).reshape(n_out, n_in)

        if math.prod(image) != n_in:
            raise ValueError(f"flattened={self.flattened} does not have the {n_in} inputs")
        weight = _one("weight", "params/kernel", (n_out, n_in), to_toile, to_torch)
        return [weight, *_bias(shapes)]

    def _axes_by_name(self, kernel: Shape) -> int:
        last = self.path.rpartition("/")[2]
        return len(kernel) - 1 if last in ("query", "key", "value") else 1


@dataclass(frozen=True)
class Conv(Rule):
    """Conv1d, Conv2d, Conv3d ↔ Conv, with groups too: (out, in, *space) ↔ (*space, in, out).

    Args:
        path: path of the layer among the variables, such as `"encoder/layers_0"`.
    """

    def pairs(self, shapes: Shapes) -> list[Pair]:
        kernel = shapes["params/kernel"]
        space = len(kernel) - 2
        to_toile = (*range(2, space + 2), 1, 0)
        to_torch = (space + 1, space, *range(space))
        shape = tuple(kernel[a] for a in to_torch)
        weight = _one(
            "weight", "params/kernel", shape,
            lambda x: x.transpose(to_toile), lambda x: x.transpose(to_torch),
        )  # fmt: skip
        return [weight, *_bias(shapes)]


@dataclass(frozen=True)
class ConvTranspose(Rule):
    """ConvTranspose1d, 2d, 3d (one group) ↔ ConvTranspose, whose kernel is reversed.

    In torch the weight has shape (in, out, *space) and is flipped when it is applied. Here the
    kernel has shape (*space, in, out) and is not flipped; with `transpose_kernel`, it has shape
    (*space, out, in) and is.

    Args:
        path: path of the layer among the variables, such as `"encoder/layers_0"`.
        transpose_kernel: the field `transpose_kernel` of the module.
    """

    transpose_kernel: bool = False

    def pairs(self, shapes: Shapes) -> list[Pair]:
        kernel = shapes["params/kernel"]
        space = len(kernel) - 2
        last = (1, 0) if self.transpose_kernel else (0, 1)
        to_toile = (*range(2, space + 2), *last)
        to_torch = (*(space + a for a in last), *range(space))
        shape = tuple(kernel[a] for a in to_torch)

        def turned(x: np.ndarray) -> np.ndarray:
            return x if self.transpose_kernel else np.flip(x, tuple(range(space)))

        weight = _one(
            "weight", "params/kernel", shape,
            lambda x: turned(x.transpose(to_toile)), lambda x: turned(x).transpose(to_torch),
        )  # fmt: skip
        return [weight, *_bias(shapes)]


@dataclass(frozen=True)
class Norm(Rule):
    """BatchNorm, LayerNorm, GroupNorm, InstanceNorm, RMSNorm: scale, bias, running statistics.

    Args:
        path: path of the layer among the variables, such as `"encoder/layers_0"`.
    """

    def pairs(self, shapes: Shapes) -> list[Pair]:
        leaves = {
            "weight": "params/scale",
            "bias": "params/bias",
            "running_mean": "batch_stats/mean",
            "running_var": "batch_stats/var",
        }
        found = [_one(n, leaf, shapes[leaf]) for n, leaf in leaves.items() if leaf in shapes]
        if "batch_stats/mean" in shapes:

            def count(leaves: Arrays, like: Arrays | None) -> Arrays:
                return like or [np.zeros((), np.int64)]

            found.append(Pair(("num_batches_tracked",), ((),), (), lambda xs: [], count, True))
        return found


@dataclass(frozen=True)
class Embed(Rule):
    """Embedding ↔ Embed: the same table.

    Args:
        path: path of the layer among the variables, such as `"encoder/layers_0"`.
    """

    def pairs(self, shapes: Shapes) -> list[Pair]:
        return [_one("weight", "params/embedding", shapes["params/embedding"])]


@dataclass(frozen=True)
class PReLU(Rule):
    """PReLU with one parameter ↔ PReLU.

    Args:
        path: path of the layer among the variables, such as `"encoder/layers_0"`.
    """

    def pairs(self, shapes: Shapes) -> list[Pair]:
        leaf = "params/negative_slope"
        shape = shapes[leaf]
        size = (math.prod(shape),)
        return [_one("weight", leaf, size, lambda x: x.reshape(shape), lambda x: x.reshape(-1))]


@dataclass(frozen=True)
class Leaf(Rule):
    """A single parameter that belongs to no layer, such as learned positions.

    Args:
        path: path of the variable; the torch name is that of the tensor.
        axes: permutation of torch's axes that gives the axes here; None for the same order.
        collection: collection of the variable.
    """

    axes: tuple[int, ...] | None = None
    collection: str = "params"

    def pairs(self, shapes: Shapes) -> list[Pair]:
        shape = shapes[self.collection]
        axes = self.axes or tuple(range(len(shape)))
        back = tuple(int(a) for a in np.argsort(axes))
        if sorted(axes) != list(range(len(shape))):
            raise ValueError(f"axes={self.axes} does not permute the axes of shape {shape}")
        return [
            _one(
                "", self.collection, tuple(shape[a] for a in back),
                lambda x: x.transpose(axes), lambda x: x.transpose(back),
            )
        ]  # fmt: skip


# A recurrent network's layer is called by torch's suffix: lstm.weight_ih_l0 belongs to lstm.l0.
_LAYER = re.compile(r"(?:(?P<network>.*)\.)?(?P<layer>l\d+(?:_reverse)?)")


@dataclass(frozen=True)
class _Recurrent(Rule):
    """Base of recurrent layers; torch stacks the gates in one matrix."""

    def torch_name(self, layer: str, name: str) -> str:
        match = _LAYER.fullmatch(layer)
        if match is None:  # a cell: LSTMCell, GRUCell, RNNCell
            return super().torch_name(layer, name)
        return super().torch_name(match["network"] or "", f"{name}_{match['layer']}")

    def _weight(self, name: str, gates: Sequence[str], shapes: Shapes) -> Pair:
        leaves = tuple(f"params/{gate}/kernel" for gate in gates)
        n_in, features = shapes[leaves[0]]

        def to_toile(xs: Arrays) -> Arrays:
            return [part.T for part in np.split(xs[0], len(gates))]

        def to_torch(xs: Arrays, like: Arrays | None) -> Arrays:
            return [np.concatenate([x.T for x in xs])]

        return Pair((name,), ((len(gates) * features, n_in),), leaves, to_toile, to_torch)


def _sum(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x + y, half precision in float32."""
    wide = x.dtype if x.dtype.itemsize >= 4 else np.dtype(np.float32)
    return x.astype(wide) + y.astype(wide)


def _summands(total: np.ndarray, like: Arrays | None) -> Arrays:
    """Two biases that add up to one: the second is that of `like`, or minus zero.

    x + (-0.0) is x bit for bit, which x + 0.0 is not where x is -0.0. Where the sum of like's two
    is the total, the first is like's as well."""
    if like is None:
        return [total, np.full(total.shape, -0.0, total.dtype)]
    first, second = like
    unchanged = _sum(first, second).astype(total.dtype) == total
    difference = _sum(total, -second).astype(first.dtype)
    return [np.where(unchanged, first, difference), second]


@dataclass(frozen=True)
class LSTM(_Recurrent):
    """A layer of LSTM, or an LSTMCell ↔ LSTMCell, OptimizedLSTMCell; torch's two biases are added.

    Args:
        path: path of the layer among the variables, such as `"encoder/layers_0"`.
    """

    def pairs(self, shapes: Shapes) -> list[Pair]:
        leaves = tuple(f"params/h{gate}/bias" for gate in "ifgo")
        bias = (4 * shapes[leaves[0]][0],)
        return [
            self._weight("weight_ih", [f"i{gate}" for gate in "ifgo"], shapes),
            self._weight("weight_hh", [f"h{gate}" for gate in "ifgo"], shapes),
            Pair(
                ("bias_ih", "bias_hh"), (bias, bias), leaves,
                lambda xs: np.split(_sum(*xs), 4),
                lambda xs, like: _summands(np.concatenate(xs), like), optional=True,
            ),
        ]  # fmt: skip


@dataclass(frozen=True)
class GRU(_Recurrent):
    """A layer of GRU, or a GRUCell ↔ GRUCell.

    torch's two biases are added for r and z; for n both are kept.

    Args:
        path: path of the layer among the variables, such as `"encoder/layers_0"`.
    """

    def pairs(self, shapes: Shapes) -> list[Pair]:
        leaves = ("params/ir/bias", "params/iz/bias", "params/in/bias", "params/hn/bias")
        features = shapes[leaves[0]][0]
        n = 2 * features

        def to_toile(xs: Arrays) -> Arrays:
            of_input, of_state = xs
            gates = np.split(_sum(of_input[:n], of_state[:n]), 2)
            return [*gates, of_input[n:], of_state[n:]]

        def to_torch(xs: Arrays, like: Arrays | None) -> Arrays:
            gates = np.concatenate(xs[:2])
            parts = _summands(gates, None if like is None else [x[:n] for x in like])
            return [np.concatenate([part, x]) for part, x in zip(parts, xs[2:], strict=True)]

        bias = (3 * features,)
        return [
            self._weight("weight_ih", ["ir", "iz", "in"], shapes),
            self._weight("weight_hh", ["hr", "hz", "hn"], shapes),
            Pair(("bias_ih", "bias_hh"), (bias, bias), leaves, to_toile, to_torch, optional=True),
        ]


@dataclass(frozen=True)
class RNN(_Recurrent):
    """A layer of RNN (tanh), or an RNNCell ↔ SimpleCell; torch's two biases are added.

    Args:
        path: path of the layer among the variables, such as `"encoder/layers_0"`.
    """

    def pairs(self, shapes: Shapes) -> list[Pair]:
        bias = shapes["params/i/bias"]
        return [
            self._weight("weight_ih", ["i"], shapes),
            self._weight("weight_hh", ["h"], shapes),
            Pair(
                ("bias_ih", "bias_hh"), (bias, bias), ("params/i/bias",),
                lambda xs: [_sum(*xs)], lambda xs, like: _summands(xs[0], like), optional=True,
            ),
        ]  # fmt: skip


_PROJECTIONS = ("query", "key", "value")


@dataclass(frozen=True)
class Attention(Rule):
    """MultiheadAttention ↔ MultiHeadDotProductAttention: (heads·depth, in) ↔ (in, heads, depth).

    torch stores the three projections in one matrix, unless keys or values have other sizes. For a
    model with a separate Linear for each projection, name these: `"attn.q": "attn/query"`.

    Args:
        path: path of the layer among the variables, such as `"encoder/layers_0"`.
    """

    def pairs(self, shapes: Shapes) -> list[Pair]:
        kernels = [shapes[f"params/{name}/kernel"] for name in _PROJECTIONS]
        size = math.prod(kernels[0][1:])
        found = []
        if all(k[0] == size and math.prod(k[1:]) == size for k in kernels):
            found.append(self._joined("in_proj_weight", "kernel", (size, size), shapes))
        else:
            for name, kernel in zip(_PROJECTIONS, kernels, strict=True):
                weight = Dense(name, output_axes=2).pairs({"params/kernel": kernel})[0]
                leaf = (f"params/{name}/kernel",)
                found.append(weight._replace(names=(f"{name[0]}_proj_weight",), leaves=leaf))
        if "params/query/bias" in shapes:
            found.append(self._joined("in_proj_bias", "bias", (size,), shapes))
        out = {"params/kernel": shapes["params/out/kernel"]}
        if "params/out/bias" in shapes:
            out["params/bias"] = shapes["params/out/bias"]
        for pair in Dense("out", output_axes=1).pairs(out):
            leaf = (pair.leaves[0].replace("params/", "params/out/"),)
            found.append(pair._replace(names=(f"out_proj.{pair.names[0]}",), leaves=leaf))
        return found

    def _joined(self, name: str, part: str, shape: Shape, shapes: Shapes) -> Pair:
        """One tensor that holds the three projections below each other."""
        leaves = tuple(f"params/{projection}/{part}" for projection in _PROJECTIONS)
        ours = [shapes[leaf] for leaf in leaves]

        def to_toile(xs: Arrays) -> Arrays:
            return [x.T.reshape(s) for x, s in zip(np.split(xs[0], 3), ours, strict=True)]

        def to_torch(xs: Arrays, like: Arrays | None) -> Arrays:
            return [np.concatenate([x.reshape(shape[::-1]).T for x in xs])]

        return Pair((name,), ((3 * shape[0], *shape[1:]),), leaves, to_toile, to_torch)


_CELLS: dict[frozenset[str], type[Rule]] = {
    frozenset(f"{side}{gate}" for side in "ih" for gate in "ifgo"): LSTM,
    frozenset(f"{side}{gate}" for side in "ih" for gate in "rzn"): GRU,
    frozenset("ih"): RNN,
    frozenset((*_PROJECTIONS, "out")): Attention,
}


def infer(path: str, shapes: Shapes, siblings: frozenset[str]) -> Rule | None:
    """The rule of a layer, found from its variables (a transposed convolution from its name).

    `siblings` are the names beside it: a projection of attention has a kernel of rank 3 as a Conv
    of one axis has. None where no kind has such variables."""
    if "params" in shapes:
        return Leaf(path)
    below = {leaf.partition("/")[2] for leaf in shapes}
    for names, cell in _CELLS.items():
        if {f"{name}/kernel" for name in names} <= below:
            return cell(path)
    if any("/" in name for name in below):  # a module of layers: the rest are its own parameters
        return None
    last = path.rpartition("/")[2]
    if "params/kernel" in shapes:
        projection = {*_PROJECTIONS, "out", last} <= siblings
        if len(shapes["params/kernel"]) == 2 or projection:
            return Dense(path)
        return ConvTranspose(path) if last.startswith("ConvTranspose") else Conv(path)
    for leaf, rule in (("embedding", Embed), ("negative_slope", PReLU)):
        if f"params/{leaf}" in shapes:
            return rule(path)
    if below & {"scale", "bias", "mean", "var"}:
        return Norm(path)
    return None
