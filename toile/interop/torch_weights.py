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

import difflib
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from toile import numpy as jnp
from toile.core import meta
from toile.dtypes import issubdtype
from toile.engine.annotations import PyTree
from toile.engine.source import here
from toile.interop.torch_files import array_of
from toile.interop.torch_rules import *
from toile.interop.torch_rules import Leaf, Pair, Rule, infer
from toile.optim.paths import matches, path_of
from toile.tree_util import tree_flatten_with_path, tree_unflatten

__all__ = [
    "GRU", "LSTM", "RNN", "Attention", "Conv", "ConvTranspose", "Dense", "Embed", "Leaf", "Norm",
    "PReLU", "Rule", "export", "layers", "load",
]  # fmt: skip

Names = Mapping[str, "str | Rule"]


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
    tree = _Tree(variables, "load")
    flat = tree.flat
    problems = _Problems()
    new: dict[str, np.ndarray] = {}
    used: set[str] = set()
    for full, leaves, pair in _plan(tree, names, given, problems):
        tensors = _tensors(full, pair, leaves, given, problems)
        used.update(full)
        if tensors is None:
            continue
        for leaf, value in zip(leaves, pair.to_toile(tensors), strict=True):
            _put(new, leaf, value, flat[leaf], full, problems)
    kept = _matching(flat, keep, "keep", problems, also=lambda path: path.partition("/")[2])
    left_out = _matching(given, ignore, "ignore", problems)
    problems.unplaced += [_show(n, x) for n, x in given.items() if n not in used | left_out]
    known = new.keys() | problems.reported | kept
    problems.unfilled += [_show(path, x) for path, x in flat.items() if path not in known]
    problems.raise_any("load", "a torch tensor for every variable, and a place for every tensor")
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
    tree = _Tree(variables, "export")
    flat = tree.flat
    problems = _Problems()
    out: dict[str, np.ndarray] = {}
    done: set[str] = set()
    for full, leaves, pair in _plan(tree, names, model, problems):
        done.update(leaves)
        values = [array_of(flat[leaf]) for leaf in leaves]
        out |= zip(full, _exported(full, leaves, pair, values, model, problems))
    kept = _matching(flat, keep, "keep", problems, also=lambda path: path.partition("/")[2])
    problems.unfilled += [_show(p, x) for p, x in flat.items() if p not in done | kept]
    if model is not None:
        copied = _matching(model, ignore, "ignore", problems)
        left = [n for n in model if n not in out and n not in copied]
        problems.unplaced += [_show(n, model[n]) for n in left if n not in problems.reported]
        out = {n: out.get(n, x) for n, x in model.items()} | out
    problems.raise_any("export", "a torch name for every variable, as the torch model has them")
    return out


def _exported(
    full: list[str], leaves: list[str], pair: Pair, values: list[np.ndarray],
    model: Mapping[str, np.ndarray] | None, problems: _Problems,
) -> list[np.ndarray]:
    """Convert the variables of a pair to torch tensors, or return [] if the model has none."""
    own = None
    if model is not None:
        if pair.optional and not any(name in model for name in full):
            if any(np.any(x != 0) for x in values):
                problems.misshaped.append(f"{', '.join(full)}: needed in `like`, got none")
            return []
        own = _tensors(full, pair, leaves, model, problems)
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
    return {_torch_name(rule.path): rule for rule in _Tree(variables, "layers").rules()}


class _Tree:
    """The variables of a module by path, and its layers."""

    def __init__(self, variables: Any, who: str):
        collections = ("params", "batch_stats")
        if not isinstance(variables, Mapping) or not any(c in variables for c in collections):
            raise ValueError(
                f"torch_weights.{who}: needed the variables of a module, {{'params': ...}}, got"
                f" {_kind(variables)} (wrap parameters alone: {{'params': params}}){here()}"
            )
        self.variables = variables
        leaves, self.structure = tree_flatten_with_path(meta.unbox(variables))
        self.flat = {path_of(keys): x for keys, x in leaves}
        self.inferred: dict[str, Rule | None] = {}
        self.below: dict[str, dict[str, tuple[int, ...]]] = {}
        for name, x in self.flat.items():
            collection, *parts = name.split("/")
            for n in range(len(parts) + 1):
                rows = self.below.setdefault("/".join(parts[:n]), {})
                rows["/".join([collection, *parts[n:]])] = tuple(x.shape)

    def rebuild(self, values: Mapping[str, Any]) -> Any:
        """Return the variables with some values replaced."""
        new = tree_unflatten(self.structure, [values.get(path, x) for path, x in self.flat.items()])
        return meta.replace_boxed(self.variables, new)

    def shapes(self, path: str) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes of the variables below a path, such as `{"params/kernel": (4, 3)}`.

        If the path is that of a variable, the dict is `{"params": (4, 3)}`."""
        return self.below.get(path, {})

    def infer(self, path: str) -> Rule | None:
        """Return the rule of the layer at a path, or None if no rule fits."""
        if path not in self.inferred:
            above = self.shapes(path.rpartition("/")[0]) if path else ()
            siblings = frozenset(name.split("/")[1] for name in above if "/" in name)
            self.inferred[path] = infer(path, self.shapes(path), siblings)
        return self.inferred[path]

    def rules(self) -> list[Rule]:
        """Return the rules of all layers. A variable that belongs to no layer gets a Leaf."""
        found: list[Rule] = []
        claimed: set[str] = set()
        claims: dict[str, set[str]] = {}
        for name in self.flat:
            collection, *parts = name.split("/")
            rule: Rule | None = None
            for n in range(len(parts)):  # the outermost layer goes first: attention, a cell
                path = "/".join(parts[:n])
                if path not in claims:
                    rule = self.infer(path)
                    claims[path] = self._claims(rule) if rule else set()
                    if rule and claims[path] and claimed.isdisjoint(claims[path]):
                        found.append(rule)
                        claimed |= claims[path]
            if name not in claimed:
                found.append(Leaf("/".join(parts), collection=collection))
                claimed.add(name)
        return found

    def _claims(self, rule: Rule) -> set[str]:
        """Return the paths of the variables that a rule converts; none if it does not fit."""
        try:
            pairs = rule.pairs(self.shapes(rule.path))
        except (KeyError, ValueError, IndexError):
            return set()
        return {_leaf_path(rule, leaf) for pair in pairs for leaf in pair.leaves}


def _kind(x: Any) -> str:
    if not isinstance(x, Mapping):
        return f"a {type(x).__name__}"
    return "a dict with " + (", ".join(map(repr, list(x)[:5])) or "nothing")


def _leaf_path(rule: Rule, leaf: str) -> str:
    """Return the full path of a variable of a layer."""
    collection, _, below = leaf.partition("/")
    return "/".join(part for part in (collection, rule.path, below) if part)


def _torch_name(path: str, known: Iterable[str] = ()) -> str:
    """Translate `encoder/layers_0/fc` to `encoder.layers.0.fc`.

    If `known` contains names that begin with `encoder.layers_0.fc`, the underscore is kept."""
    plain = path.replace("/", ".")
    listed = re.sub(r"_(\d+)(?=\.|$)", r".\1", plain)
    heads = (plain, plain + ".")
    return plain if any(n == plain or n.startswith(heads[1]) for n in known) else listed


def _plan(
    tree: _Tree, names: Names | None, known: Mapping[str, Any] | None, problems: _Problems
) -> Iterable[tuple[list[str], list[str], Pair]]:
    """Iterate over tuples (torch names, paths of variables, pair) for all layers in `names`."""
    if names is None:
        named: dict[str, Rule] = {_torch_name(r.path, known or ()): r for r in tree.rules()}
    else:
        named = {}
        for layer, target in names.items():
            rule = target if isinstance(target, Rule) else tree.infer(target)
            if rule is None or not tree.shapes(rule.path):
                problems.names.append(_no_layer(layer, target, tree))
            else:
                named[layer] = rule
    _warn_of_flattened(named, known)
    for layer, rule in named.items():
        try:
            pairs = rule.pairs(tree.shapes(rule.path))
        except (KeyError, ValueError, IndexError) as error:
            lack = f"has no {error.args[0]}" if isinstance(error, KeyError) else str(error)
            problems.names.append(f"{layer!r}: {rule!r}: {rule.path or '.'} {lack}")
            continue
        for pair in pairs:
            full = [rule.torch_name(layer, name) for name in pair.names]
            yield full, [_leaf_path(rule, leaf) for leaf in pair.leaves], pair


def _warn_of_flattened(named: Mapping[str, Rule], known: Mapping[str, Any] | None) -> None:
    """Warn of dense layers behind a convolution whose inputs seem to be flattened images.

    The inputs of these layers have a different order in torch. No other check detects this, because
    the shapes fit."""
    if known is None:
        return
    places = {name: i for i, name in enumerate(known)}
    order = sorted(named, key=lambda layer: places.get(f"{layer}.weight", len(places)))
    weights = {layer: known[f"{layer}.weight"] for layer in order if f"{layer}.weight" in known}
    made = {layer: x.shape[1 if isinstance(named[layer], ConvTranspose) else 0]
            for layer, x in weights.items() if isinstance(named[layer], (Conv, ConvTranspose))}
    channels = 0  # of the convolution before
    for layer, weight in weights.items():
        rule = named[layer]
        channels = made.get(layer, channels)
        if not isinstance(rule, Dense):
            continue
        inputs = weight.shape[-1]  # no warning if a convolution has as many channels: their means
        seems = 0 < channels < inputs and inputs % channels == 0 and inputs not in made.values()
        if rule.flattened is None and seems:
            pixels = inputs // channels
            warnings.warn(
                f"torch_weights: {layer!r} follows a convolution with {channels} channels and has "
                f"{inputs} = {channels} * {pixels} inputs. If they are a flattened image, torch "
                "has them in another order, and the loaded weights give wrong results (pass names={"
                f"{layer!r}: torch_weights.Dense({rule.path!r}, flattened=({channels}, height, "
                f"width))}} with height * width = {pixels}; if not, flattened=({inputs},) avoids "
                f"this warning){here()}",
                stacklevel=5,
            )
        channels = 0


def _no_layer(layer: str, target: str | Rule, tree: _Tree) -> str:
    path = target.path if isinstance(target, Rule) else target
    if tree.shapes(path):
        return f"{layer!r}: {path!r} has no known rule (pass a rule, or name its layers)"
    close = difflib.get_close_matches(path, [rule.path for rule in tree.rules()], 3, 0.5)
    near = f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""
    return f"{layer!r}: no layer at {path!r}{near}"


def _tensors(
    full: list[str], pair: Pair, leaves: list[str], given: Mapping[str, np.ndarray],
    problems: _Problems,
) -> list[np.ndarray] | None:
    """Return the torch tensors of a pair, or None after adding the reason to the problems."""
    lacking = [name for name in full if name not in given]
    if lacking and pair.optional and len(lacking) == len(full):
        return [np.zeros(shape, np.float32) for shape in pair.shapes]
    problems.reported.update(full, leaves)
    for name, shape in zip(full, pair.shapes, strict=True):
        if name in lacking:
            problems.unfilled.append(f"{', '.join(leaves)}: no tensor {name} {shape}")
        elif given[name].shape != shape:
            swapped = (shape[1::-1] + shape[2:]) == given[name].shape
            hint = " (a transposed convolution? use the rule ConvTranspose)" if swapped else ""
            hint = hint if len(shape) > 2 else ""
            problems.misshaped.append(
                f"{name}: needed {shape} for {', '.join(leaves)}, got {given[name].shape}{hint}"
            )
    if lacking or any(given[n].shape != s for n, s in zip(full, pair.shapes, strict=True)):
        return None
    return [given[name] for name in full]


def _put(
    new: dict[str, Any], path: str, value: np.ndarray, target: Any, full: list[str],
    problems: _Problems,
) -> None:
    """Convert a value to the dtype of its variable and add it to `new`.

    If several tensors share a variable, they must have the same value."""
    of, to = value.dtype, np.dtype(target.dtype)
    problems.reported.add(path)
    fits = any(issubdtype(of, k) and issubdtype(to, k) for k in (np.integer, np.complexfloating))
    if not (fits or of == to or (issubdtype(of, np.floating) and issubdtype(to, np.inexact))):
        problems.misshaped.append(f"{', '.join(full)}: needed {to} for {path}, got {of}")
        return
    array = jnp.array(np.array(value, to, order="C"))
    if path in new and np.asarray(new[path]).tobytes() != np.asarray(array).tobytes():
        problems.misshaped.append(
            f"{', '.join(full)}: needed the value that another tensor has for {path}"
        )
    new[path] = array


def _matching(
    names: Iterable[str], globs: str | Iterable[str], what: str, problems: _Problems,
    also: Any = str,
) -> set[str]:
    """Return the names that a glob matches. A glob that matches nothing is a problem."""
    names, found = list(names), set()
    for glob in [globs] if isinstance(globs, str) else globs:
        hits = {name for name in names if matches(glob, name) or matches(glob, also(name))}
        if not hits:
            problems.names.append(f"{what}={glob!r} matches nothing")
        found |= hits
    return found


def _show(name: str, x: Any) -> str:
    return f"{name} {tuple(x.shape)}"


class _Problems:
    """Problems that are collected and reported together."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.unplaced: list[str] = []
        self.unfilled: list[str] = []
        self.misshaped: list[str] = []
        self.reported: set[str] = set()

    def raise_any(self, who: str, needed: str) -> None:
        """Raise one ValueError that lists all problems, if there are any."""
        kinds = {
            "wrong names": self.names,
            "torch tensors without a place": self.unplaced,
            "variables without a tensor": self.unfilled,
            "tensors that do not fit": self.misshaped,
        }
        told = {kind: rows for kind, rows in kinds.items() if rows}
        if not told:
            return
        lines = [f"torch_weights.{who}: needed {needed}, got"]
        for kind, rows in told.items():
            lines += [f"  {kind} ({len(rows)}):", *(f"    {row}" for row in rows)]
        hint = "names={torch layer: path} pairs them; ignore= skips tensors, keep= skips variables"
        raise ValueError("\n".join([*lines, f"({hint})"]) + here())
