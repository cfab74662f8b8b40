"""Rules for how the tensors of torch layers correspond to the variables of toile's layers.

A rule is a frozen dataclass that contains the path of a layer. Its method `pairs` specifies which
torch tensors correspond to which variables, what shapes the tensors have, and which functions
convert the values in both directions. Conversions only rearrange values, except in recurrent
layers: torch adds two biases where toile has one, so the conversion to torch needs the second bias
of the torch model to compute the first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

__all__ = [
    "GRU", "LSTM", "RNN", "Attention", "Conv", "ConvTranspose", "Dense", "Embed", "Fused", "Leaf",
    "Norm", "PReLU", "Pair", "Rule", "infer",
]  # fmt: skip

Arrays = Sequence[np.ndarray]
Shape = tuple[int, ...]
# The variables of one layer: "params/kernel" -> shape.
Shapes = Mapping[str, Shape]


class Pair(NamedTuple):
    """A group of torch tensors and the variables that contain the same numbers.

    `names` and `shapes` describe the torch tensors, and `leaves` are the names of the variables.
    `to_toile` converts tensors to variables. `to_torch` converts variables to tensors; its second
    argument contains the tensors with these names in the torch model, or is None if there is no
    model. If `optional` is True, the tensors may be missing; missing tensors count as zeros.
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
    """Return a pair of one tensor and one variable."""
    return Pair(
        (name,), (shape,), (leaf,), lambda xs: [to_toile(xs[0])], lambda xs, like: [to_torch(xs[0])]
    )


@dataclass(frozen=True)
class Rule:
    """Base class of rules, each of which describes how to convert one kind of layer.

    Args:
        path: path of the layer in the tree of variables, such as `"encoder/layers_0"`.
    """

    path: str

    def pairs(self, shapes: Shapes) -> list[Pair]:
        """Return the pairs of torch tensors and variables, given the shapes of the variables."""
        raise NotImplementedError

    def torch_name(self, layer: str, name: str) -> str:
        """Return the full name of a tensor in a torch layer."""
        return f"{layer}.{name}" if layer and name else layer or name


def _bias(shapes: Shapes) -> list[Pair]:
    if "params/bias" not in shapes:
        return []
    shape = shapes["params/bias"]
    flat = (math.prod(shape),)
    return [_one("bias", "params/bias", flat, lambda x: x.reshape(shape), np.ravel)]


@dataclass(frozen=True)
class Dense(Rule):
    """A rule to convert between torch's Linear and toile's Dense or DenseGeneral.

    The kernel in toile is the transpose of the weight in torch.

    Args:
        path: path of the layer in the tree of variables, such as `"encoder/layers_0"`.
        flattened: shape `(channels, height, width)` if each input is a flattened image; None
            otherwise. The channels come first in torch and last in toile.
        output_axes: number of output axes of a DenseGeneral kernel. If it is None, the number is
            inferred from the bias or, if there is no bias, from the layer's name (`query`, `key`,
            `value` or `out`).
        transposed: whether the weight in torch has the shape `(inputs, outputs)`, as in the layer
            `Conv1D` of Hugging Face's GPT-2.
    """

    flattened: Shape | None = None
    output_axes: int | None = None
    transposed: bool = False

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
        if self.transposed:
            weight = _one(
                "weight", "params/kernel", (n_in, n_out),
                lambda x: to_toile(x.T), lambda x: to_torch(x).T,
            )  # fmt: skip
        return [weight, *_bias(shapes)]

    def _axes_by_name(self, kernel: Shape) -> int:
        last = self.path.rpartition("/")[2]
        return len(kernel) - 1 if last in ("query", "key", "value") else 1


@dataclass(frozen=True)
class Fused(Rule):
    """A rule to convert one Linear of torch that computes the outputs of several dense layers.

    An example is the layer `c_attn` of GPT-2, which computes queries, keys and values.

    Args:
        path: path of the module that contains the dense layers.
        parts: names of the dense layers, in the order of their outputs in torch. All of the layers
            have the same inputs. All axes of a kernel except the first are output axes.
        transposed: whether the weight in torch has the shape `(inputs, outputs)`.
    """

    parts: tuple[str, ...] = ("query", "key", "value")
    transposed: bool = False

    def pairs(self, shapes: Shapes) -> list[Pair]:
        layers = []
        for part in self.parts:
            kernel = shapes[f"params/{part}/kernel"]
            own = {f"params/{leaf}": shapes[f"params/{part}/{leaf}"] for leaf in ("kernel", "bias")
                   if f"params/{part}/{leaf}" in shapes}
            rule = Dense(part, output_axes=len(kernel) - 1, transposed=self.transposed)
            layers.append(rule.pairs(own))
        columns = [1 if self.transposed else 0, 0]  # the axis of the outputs
        return [self._joined(pairs, axis) for pairs, axis in zip(zip(*layers), columns)]

    def _joined(self, pairs: Sequence[Pair], axis: int) -> Pair:
        """Return one pair for a tensor that consists of the tensors of all `pairs`."""
        widths = [pair.shapes[0][axis] for pair in pairs]
        ends = np.cumsum(widths)[:-1]
        shape = list(pairs[0].shapes[0])
        shape[axis] = sum(widths)
        leaves = tuple(
            pair.leaves[0].replace("params/", f"params/{part}/", 1)
            for part, pair in zip(self.parts, pairs, strict=True)
        )

        def to_toile(xs: Arrays) -> Arrays:
            tensors = np.split(xs[0], ends, axis)
            return [p.to_toile([x])[0] for p, x in zip(pairs, tensors, strict=True)]

        def to_torch(xs: Arrays, like: Arrays | None) -> Arrays:
            tensors = [p.to_torch([x], None)[0] for p, x in zip(pairs, xs, strict=True)]
            return [np.concatenate(tensors, axis)]

        return Pair(pairs[0].names, (tuple(shape),), leaves, to_toile, to_torch)


@dataclass(frozen=True)
class Conv(Rule):
    """A rule to convert between torch's Conv1d, Conv2d or Conv3d and toile's Conv.

    The layers may have several groups. In torch, the weight has shape `(out, in, *space)`; in
    toile, the kernel has shape `(*space, in, out)`.

    Args:
        path: path of the layer in the tree of variables, such as `"encoder/layers_0"`.
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
    """A rule to convert between torch's ConvTranspose1d, 2d or 3d and toile's ConvTranspose.

    The torch layer must have only one group. In torch, the weight has shape `(in, out, *space)` and
    is flipped when it is applied. In toile, the kernel has shape `(*space, in, out)` and is not
    flipped. If `transpose_kernel` is True, the kernel has shape `(*space, out, in)` and is flipped.

    Args:
        path: path of the layer in the tree of variables, such as `"encoder/layers_0"`.
        transpose_kernel: value of the module's field `transpose_kernel`.
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
    """A rule to convert BatchNorm, LayerNorm, GroupNorm, InstanceNorm and RMSNorm layers.

    The rule converts the scale, bias and running statistics, if the layer has them.

    Args:
        path: path of the layer in the tree of variables, such as `"encoder/layers_0"`.
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
    """A rule to convert between torch's Embedding and toile's Embed, whose tables are identical.

    Args:
        path: path of the layer in the tree of variables, such as `"encoder/layers_0"`.
    """

    def pairs(self, shapes: Shapes) -> list[Pair]:
        return [_one("weight", "params/embedding", shapes["params/embedding"])]


@dataclass(frozen=True)
class PReLU(Rule):
    """A rule to convert PReLU layers with one parameter.

    Args:
        path: path of the layer in the tree of variables, such as `"encoder/layers_0"`.
    """

    def pairs(self, shapes: Shapes) -> list[Pair]:
        leaf = "params/negative_slope"
        shape = shapes[leaf]
        size = (math.prod(shape),)
        return [_one("weight", leaf, size, lambda x: x.reshape(shape), lambda x: x.reshape(-1))]


@dataclass(frozen=True)
class Leaf(Rule):
    """A rule to convert a single parameter that belongs to no layer, such as position embeddings.

    Args:
        path: path of the variable.
        axes: permutation of the tensor's axes that produces the variable, as in `transpose`; if
            None, the order of the axes stays the same.
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


# The layers of a recurrent network are named after torch's suffixes: lstm.weight_ih_l0 belongs to
# lstm.l0.
_LAYER = re.compile(r"(?:(?P<network>.*)\.)?(?P<layer>l\d+(?:_reverse)?)")


@dataclass(frozen=True)
class _Recurrent(Rule):
    """The base class of rules for recurrent layers, whose gates torch stacks in one matrix."""

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
    """Return `x + y`, computed in float32 if they have half precision."""
    wide = x.dtype if x.dtype.itemsize >= 4 else np.dtype(np.float32)
    return x.astype(wide) + y.astype(wide)


def _summands(total: np.ndarray, like: Arrays | None) -> Arrays:
    """Return two biases whose sum is `total`.

    The second bias is that of `like`. Where the two biases of `like` add up to `total`, the first
    bias is also that of `like`. Without `like`, the second bias is -0.0, because `x + -0.0` is
    bit-for-bit identical to `x`, but `x + 0.0` differs if `x` is -0.0."""
    if like is None:
        return [total, np.full(total.shape, -0.0, total.dtype)]
    first, second = like
    unchanged = _sum(first, second).astype(total.dtype) == total
    difference = _sum(total, -second).astype(first.dtype)
    return [np.where(unchanged, first, difference), second]


@dataclass(frozen=True)
class LSTM(_Recurrent):
    """A rule to convert between torch's LSTM or LSTMCell and toile's LSTMCell or OptimizedLSTMCell.

    The rule converts one layer of an LSTM. In torch, the layer has two biases, which are added.

    Args:
        path: path of the layer in the tree of variables, such as `"encoder/layers_0"`.
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
    """A rule to convert between torch's GRU or GRUCell and toile's GRUCell.

    The rule converts one layer of a GRU. In torch, each gate has two biases. For the gates r
    and z, the rule adds the two biases; for n, it keeps both.

    Args:
        path: path of the layer in the tree of variables, such as `"encoder/layers_0"`.
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
    """A rule to convert between torch's RNN or RNNCell and toile's SimpleCell.

    The rule converts one layer of an RNN. The nonlinearity must be tanh. In torch, the layer has
    two biases, which are added.

    Args:
        path: path of the layer in the tree of variables, such as `"encoder/layers_0"`.
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
    """A rule to convert between torch's MultiheadAttention and MultiHeadDotProductAttention.

    Weights of shape `(heads * depth, in)` become kernels of shape `(in, heads, depth)`. torch
    stores the three projections in one matrix unless the keys or values differ in size from the
    queries. If a torch model has a separate Linear for each projection, do not use this rule;
    instead, map each Linear separately: `"attn.q": "attn/query"`.

    Args:
        path: path of the layer in the tree of variables, such as `"encoder/layers_0"`.
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
        """Return the pair for one tensor in which the three projections are stacked."""
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
    """Infer the rule for a layer from its variables, or return None if no rule fits.

    A transposed convolution is recognized by its name. `siblings` contains the names of the layers
    in the same module. These names distinguish an attention projection from a Conv with one spatial
    axis, because both have kernels of rank 3."""
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
