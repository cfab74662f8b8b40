"""Converting weights between PyTorch and toile's modules.

`load` fills the variables of a module from a torch state dict, and `export` creates a state dict
from variables. Both have an argument `names`, which maps torch layers to toile's layers. The kind
of a layer is inferred from its variables, or specified by a rule such as
`ConvTranspose("decoder/up")`. A single error lists all tensors and variables that have no
counterpart or whose shapes differ. torch itself is not needed: `torch_files.load` and
`safetensors.load_file` read state dicts from files.
"""
# ruff: noqa: F403, F405 -- the rules are names of this module too

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from toile.engine.annotations import PyTree
from toile.interop.torch_files import array_of
from toile.interop.torch_rules import *
from toile.interop.torch_rules import Leaf, Pair, Rule
from toile.interop.weight_matching import (
    Names,
    Problems,
    Tree,
    fill,
    matching,
    plan,
    show,
    tensors_of,
    torch_name_of,
)  # fmt: skip

__all__ = [
    "GRU", "LSTM", "RNN", "Attention", "Conv", "ConvTranspose", "Dense", "Embed", "Fused", "Leaf",
    "Norm", "PReLU", "Rule", "export", "layers", "load",
]  # fmt: skip


def load(
    variables: PyTree, state_dict: Mapping[str, Any], names: Names | None = None, *,
    ignore: str | Iterable[str] = (), keep: str | Iterable[str] = (),
) -> Any:
    """Replace the values of a module's variables with the values in a torch state dict.

    Args:
        variables: variables of a module, `{"params": ..., "batch_stats": ...}`, or their shapes
            from `toile.eval_shape(model.init, ...)`. Values are converted to the dtypes of the
            variables.
        state_dict: dict that maps torch names to tensors or arrays.
        names: dict that maps the names of torch layers to paths of toile's layers, or to rules. The
            layers of a recurrent network are called `lstm.l0`, `lstm.l0_reverse`, `lstm.l1` and so
            on. If `names` is None, the torch names must correspond to the paths, as
            `encoder.layers.0.fc` corresponds to `encoder/layers_0/fc`.
        ignore: glob pattern or patterns for the names of torch tensors that are not loaded.
        keep: glob pattern or patterns for the paths of variables that keep their values.

    Returns:
        A copy of the variables with the new values.

    Raises:
        ValueError: a variable has no corresponding tensor, a tensor has no corresponding variable,
            or the shapes of a tensor and its variable do not match. The message lists all such
            tensors and variables.

    >>> import toile.linen as nn
    >>> model = nn.Sequential([nn.Dense(3), nn.relu, nn.Dense(2)])
    >>> shapes = toile.eval_shape(model.init, toile.random.key(0), jnp.ones((1, 4)))
    >>> torch_state = {"0.weight": np.ones((3, 4)), "0.bias": np.zeros(3),
    ...                "2.weight": np.ones((2, 3)), "2.bias": np.ones(2)}
    >>> variables = load(shapes, torch_state, {"0": "layers_0", "2": "layers_2"})
    >>> model.apply(variables, jnp.ones((1, 4)))
    Array([[13., 13.]], dtype=float32)
    """
    given = {name: array_of(x) for name, x in state_dict.items()}
    tree, problems = Tree(variables, "torch_weights.load"), Problems()
    new = fill(tree, given, names, problems, ignore=ignore, keep=keep)
    needed = "a torch tensor for every variable, and a place for every tensor"
    problems.raise_any("torch_weights.load", needed)
    return tree.rebuild(new)


def export(
    variables: PyTree, names: Names | None = None, *, like: Mapping[str, Any] | None = None,
    ignore: str | Iterable[str] = (), keep: str | Iterable[str] = (),
) -> dict[str, np.ndarray]:
    """Create a torch state dict from the variables of a module.

    Args:
        variables: variables of a module, `{"params": ..., "batch_stats": ...}`.
        names: dict that maps the names of torch layers to paths of toile's layers, or to rules, as
            in `load`.
        like: state dict of the torch model; None if there is no torch model. It determines the
            order of the names and the dtypes, and supplies the values for which toile has no
            variables: the number of batches that BatchNorm has processed, the second bias of
            recurrent layers, and the tensors that `ignore` matches. If `like` is the state dict
            that was loaded, variables that have not changed since then are exported as values that
            are byte-for-byte identical to the loaded ones.
        ignore: glob pattern or patterns for the names of torch tensors that are copied from `like`.
        keep: glob pattern or patterns for the paths of variables that are not exported.

    Returns:
        A dict that maps torch names to NumPy arrays.

    Raises:
        ValueError: a variable has no torch name or does not fit `like`. The message lists all such
            variables.

    >>> state = export({"params": {"fc": {"kernel": np.ones((4, 3)), "bias": np.zeros(3)}}})
    >>> {name: x.shape for name, x in state.items()}
    {'fc.weight': (3, 4), 'fc.bias': (3,)}
    """
    model = None if like is None else {name: array_of(x) for name, x in like.items()}
    tree = Tree(variables, "torch_weights.export")
    flat = tree.flat
    problems = Problems()
    out: dict[str, np.ndarray] = {}
    done: set[str] = set()
    for full, leaves, pair in plan(tree, names, model, problems):
        done.update(leaves)
        values = [array_of(flat[leaf]) for leaf in leaves]
        out |= zip(full, _exported(full, leaves, pair, values, model, problems))
    kept = matching(flat, keep, "keep", problems, also=lambda path: path.partition("/")[2])
    problems.unfilled += [show(p, x) for p, x in flat.items() if p not in done | kept]
    if model is not None:
        copied = matching(model, ignore, "ignore", problems)
        left = [n for n in model if n not in out and n not in copied]
        problems.unplaced += [show(n, model[n]) for n in left if n not in problems.reported]
        out = {n: out.get(n, x) for n, x in model.items()} | out
    needed = "a torch name for every variable, as the torch model has them"
    problems.raise_any("torch_weights.export", needed)
    return out


def _exported(
    full: list[str], leaves: list[str], pair: Pair, values: list[np.ndarray],
    model: Mapping[str, np.ndarray] | None, problems: Problems,
) -> list[np.ndarray]:
    """Convert the variables of a pair to torch tensors, or return [] if the model has none."""
    own = None
    if model is not None:
        if pair.optional and not any(name in model for name in full):
            if any(np.any(x != 0) for x in values):
                problems.misshaped.append(f"{', '.join(full)}: needed in `like`, got none")
            return []
        own = tensors_of(full, pair, leaves, model, problems)
        if own is None:
            return []
    tensors = pair.to_torch(values, own)
    like = tensors if own is None else own
    return [np.array(x, y.dtype, order="C") for x, y in zip(tensors, like, strict=True)]


def layers(variables: PyTree) -> dict[str, Rule]:
    """List the layers of a module with the torch names and the rules that `load` uses by default.

    Args:
        variables: variables of a module, `{"params": ..., "batch_stats": ...}`.

    Returns:
        A dict that maps torch names to rules.

    >>> layers({"params": {"conv_0": {"kernel": np.ones((3, 3, 1, 4))}, "scale": np.ones(4)}})
    {'conv.0': Conv(path='conv_0'), 'scale': Leaf(path='scale', axes=None, collection='params')}
    """
    rules = Tree(variables, "torch_weights.layers").rules()
    return {torch_name_of(rule.path): rule for rule in rules}
