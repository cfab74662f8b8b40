"""Matching the tensors of a checkpoint to the variables of a module.

`torch_weights` and `huggingface` share this code. A `Tree` holds the variables of a module by path,
`plan` pairs them with the names of tensors, `fill` converts tensors to variables, and `Problems`
collects everything that does not fit, so that a single error can list it.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from toile import numpy as jnp
from toile.core import meta
from toile.dtypes import issubdtype
from toile.engine.source import here
from toile.interop.torch_rules import Conv, ConvTranspose, Dense, Leaf, Pair, Rule, infer
from toile.optim.paths import matches, path_of
from toile.tree_util import tree_flatten_with_path, tree_unflatten

Names = Mapping[str, "str | Rule"]
Finish = Callable[[str, np.ndarray], Any]  # makes the array of a variable, given its path
HINT = "names={torch layer: path} pairs them; ignore= skips tensors, keep= skips variables"


class Tree:
    """The variables of a module by path, and its layers."""

    def __init__(self, variables: Any, who: str):
        collections = ("params", "batch_stats")
        if not isinstance(variables, Mapping) or not any(c in variables for c in collections):
            raise ValueError(
                f"{who}: needed the variables of a module, {{'params': ...}}, got"
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
        return {leaf_path(rule, leaf) for pair in pairs for leaf in pair.leaves}


def _kind(x: Any) -> str:
    if not isinstance(x, Mapping):
        return f"a {type(x).__name__}"
    return "a dict with " + (", ".join(map(repr, list(x)[:5])) or "nothing")


def leaf_path(rule: Rule, leaf: str) -> str:
    """Return the full path of a variable of a layer."""
    collection, _, below = leaf.partition("/")
    return "/".join(part for part in (collection, rule.path, below) if part)


def torch_name_of(path: str, known: Iterable[str] = ()) -> str:
    """Translate `encoder/layers_0/fc` to `encoder.layers.0.fc`.

    If `known` contains names that begin with `encoder.layers_0.fc`, the underscore is kept."""
    plain = path.replace("/", ".")
    listed = re.sub(r"_(\d+)(?=\.|$)", r".\1", plain)
    heads = (plain, plain + ".")
    return plain if any(n == plain or n.startswith(heads[1]) for n in known) else listed


def plan(
    tree: Tree, names: Names | None, known: Mapping[str, Any] | None, problems: Problems
) -> Iterator[tuple[list[str], list[str], Pair]]:
    """Iterate over tuples (torch names, paths of variables, pair) for all layers in `names`."""
    if names is None:
        named: dict[str, Rule] = {torch_name_of(r.path, known or ()): r for r in tree.rules()}
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
            yield full, [leaf_path(rule, leaf) for leaf in pair.leaves], pair


def fill(
    tree: Tree, given: Mapping[str, np.ndarray], names: Names | None, problems: Problems, *,
    ignore: str | Iterable[str] = (), keep: str | Iterable[str] = (),
    finish: Finish = lambda path, value: jnp.asarray(value),
) -> dict[str, Any]:
    """Return the new values of variables by path, and add whatever does not fit to `problems`."""
    flat = tree.flat
    new: dict[str, Any] = {}
    used: set[str] = set()
    kept = matching(flat, keep, "keep", problems, also=lambda path: path.partition("/")[2])
    for full, leaves, pair in plan(tree, names, given, problems):
        used.update(full)
        if leaves and kept.issuperset(leaves):
            continue
        tensors = tensors_of(full, pair, leaves, given, problems)
        if tensors is None:
            continue
        for leaf, value in zip(leaves, pair.to_toile(tensors), strict=True):
            _put(new, leaf, value, flat[leaf], full, problems, finish)
    left_out = matching(given, ignore, "ignore", problems)
    problems.unplaced += [show(n, x) for n, x in given.items() if n not in used | left_out]
    known = new.keys() | problems.reported | kept
    problems.unfilled += [show(path, x) for path, x in flat.items() if path not in known]
    return new


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
                stacklevel=6,
            )
        channels = 0


def _no_layer(layer: str, target: str | Rule, tree: Tree) -> str:
    path = target.path if isinstance(target, Rule) else target
    if tree.shapes(path):
        return f"{layer!r}: {path!r} has no known rule (pass a rule, or name its layers)"
    close = difflib.get_close_matches(path, [rule.path for rule in tree.rules()], 3, 0.5)
    near = f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""
    return f"{layer!r}: no layer at {path!r}{near}"


def tensors_of(
    full: list[str], pair: Pair, leaves: list[str], given: Mapping[str, np.ndarray],
    problems: Problems,
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
    problems: Problems, finish: Finish,
) -> None:
    """Convert a value to the dtype of its variable and add it to `new`.

    If several tensors share a variable, they must have the same value."""
    of, to = value.dtype, np.dtype(target.dtype)
    problems.reported.add(path)
    fits = any(issubdtype(of, k) and issubdtype(to, k) for k in (np.integer, np.complexfloating))
    if not (fits or of == to or (issubdtype(of, np.floating) and issubdtype(to, np.inexact))):
        problems.misshaped.append(f"{', '.join(full)}: needed {to} for {path}, got {of}")
        return
    copy = np.array(value, to, order="C")  # which toile need not copy again
    copy.flags.writeable = False
    if path not in new:
        new[path] = finish(path, copy)
    elif np.asarray(new[path]).tobytes() != copy.astype(new[path].dtype).tobytes():
        problems.misshaped.append(
            f"{', '.join(full)}: needed the value that another tensor has for {path}"
        )


def matching(
    names: Iterable[str], globs: str | Iterable[str], what: str, problems: Problems,
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


def show(name: str, x: Any) -> str:
    return f"{name} {tuple(x.shape)}"


class Problems:
    """Problems that are collected and reported together."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.unplaced: list[str] = []
        self.unfilled: list[str] = []
        self.misshaped: list[str] = []
        self.reported: set[str] = set()

    def raise_any(self, who: str, needed: str, hint: str = HINT) -> None:
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
        lines = [f"{who}: needed {needed}, got"]
        for kind, rows in told.items():
            lines += [f"  {kind} ({len(rows)}):", *(f"    {row}" for row in rows)]
        raise ValueError("\n".join([*lines, f"({hint})"]) + here())
