"""Loading and saving folders of Hugging Face models, without transformers and torch.

A folder contains a configuration (`config.json`), weights in safetensors files or in files of
torch, and usually a tokenizer. `load` fills the parameters of a module from the weights, and `save`
writes a folder that transformers loads. The code of the module supplies a `Table`, which maps the
names of tensors to parameters. toile does not download models.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from toile import numpy as jnp
from toile.api.devices import device_put
from toile.dtypes import issubdtype
from toile.engine.annotations import DTypeLike, PyTree
from toile.engine.devices import Device
from toile.engine.shardings import Sharding
from toile.engine.source import here
from toile.engine.structs import ShapeDtypeStruct
from toile.interop import huggingface_files as files
from toile.interop.torch_files import array_of
from toile.interop.torch_rules import Pair, Rule
from toile.interop.weight_matching import Problems, Tree, fill, plan, show
from toile.optim.paths import matches
from toile.tree_util import broadcast_prefix

__all__ = [
    "Table", "Tokenizer", "load", "load_config", "load_generation_config", "load_tensors",
    "load_tokenizer", "save",
]  # fmt: skip

_HINT = (
    "compare config.json with the module and its table; ignore= skips tensors, keep= skips "
    "parameters"
)
_FIELD = re.compile(r"\\{(\w+)\\}")


@dataclass(frozen=True)
class Table:
    """Maps the names of a model's tensors to the parameters of a module.

    Args:
        names: dict that maps the names of torch layers to paths of toile's layers, or to rules of
            `toile.interop.torch_weights`. `{i}` and other words in braces represent numbers: the
            entry `"model.layers.{i}.mlp.up_proj": "layer_{i}/mlp/up"` applies to all layers.
        prefix: start of all names, such as `"bert."`, which is missing in files of models that were
            saved without a head. If no name in a file starts with it, it is added to all names.
        tied: dict that maps the name of each tensor that repeats another tensor to the name of that
            other tensor. The repeating tensors may be missing in a file, and `save` does not write
            them.
        ignore: glob patterns for tensors that are not loaded, such as buffers. Unlike in the
            argument `ignore` of `load`, a pattern need not match a tensor.
        endings: dict that maps endings of names in old files to the endings that are used now, such
            as `{"LayerNorm.gamma": "LayerNorm.weight"}`.
        defaults: dict that maps the names of tensors that may be missing in a file to the names of
            the tensors whose values are then used. Unlike tied tensors, these tensors have their
            own parameters.

    >>> tied = {"lm_head.weight": "model.embed_tokens.weight"}
    >>> table = Table({"model.layers.{i}.mlp.up_proj": "layer_{i}/mlp/up"}, tied=tied)
    """

    names: Mapping[str, str | Rule]
    prefix: str = ""
    tied: Mapping[str, str] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    endings: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)


def load(
    folder: str | os.PathLike[str], variables: PyTree, table: Table, *,
    dtype: DTypeLike | None = None, device: Device | Sharding | PyTree = None,
    ignore: str | Iterable[str] = (), keep: str | Iterable[str] = (),
) -> Any:
    """Fill the variables of a module with the weights in a folder.

    Safetensors files are memory-mapped. One tensor at a time is read, converted and copied to its
    device. The weights are in `model.safetensors`, in several files that are listed in
    `model.safetensors.index.json`, or in `pytorch_model.bin` and its parts. If a folder contains
    several of these, the first one in this order is read.

    Args:
        folder: path of the folder.
        variables: variables of a module, `{"params": ...}`, or their shapes from
            `toile.eval_shape(model.init, ...)`.
        table: the names of the tensors.
        dtype: dtype of floating-point parameters; None for the dtypes of `variables`.
        device: a device or a sharding for all variables, or a tree of these whose structure is a
            prefix of the structure of `variables`; None for the default device.
        ignore: glob pattern or patterns for the names of tensors that are not loaded.
        keep: glob pattern or patterns for the paths of variables that keep their values, such as
            those of a new head; tensors for these variables are not needed and not loaded. If you
            use `keep`, pass actual variables, not only their shapes.

    Returns:
        A copy of the variables with the values from the files.

    Raises:
        FileNotFoundError: the folder or a file of weights does not exist.
        ValueError: a variable has no tensor, a tensor has no variable, the shapes of a tensor and
            its variable do not match, or a tied tensor differs from the tensor that it repeats. The
            message lists all such tensors and variables.
        toile.errors.UnreadableFileError: a file is damaged or has another format.

    >>> import tempfile, toile.linen as nn
    >>> folder, model = tempfile.mkdtemp(), nn.Dense(3)
    >>> variables = model.init(key(0), jnp.ones((1, 2)))
    >>> save(folder, variables, {"model_type": "tiny"}, Table({"fc": ""}))
    >>> sorted(load_tensors(folder)), load_config(folder)["model_type"]
    (['fc.bias', 'fc.weight'], 'tiny')
    >>> again = load(folder, variables, Table({"fc": ""}), dtype="bfloat16")
    >>> toile.tree.map(lambda x: x.dtype.name, again)
    {'params': {'bias': 'bfloat16', 'kernel': 'bfloat16'}}
    """
    path = files.opened(folder, "load")
    tree, problems = Tree(variables, "huggingface.load"), Problems()
    if dtype is not None:
        tree.flat = {p: _of_dtype(x, dtype, bool(keep)) for p, x in tree.flat.items()}
    given = _renamed(files.read_tensors(path, "load"), table)
    for name in [n for n in given if any(matches(glob, n) for glob in table.ignore)]:
        del given[name]
    _untie(given, table, problems)
    given |= {n: given[other] for n, other in table.defaults.items()
              if n not in given and other in given}
    places = _places(device, tree)

    def finish(variable: str, value: np.ndarray) -> Any:
        place = places[variable]
        return jnp.asarray(value) if place is None else device_put(value, place)

    names = expanded(table, tree, problems)
    new = fill(tree, given, names, problems, ignore=ignore, keep=keep, finish=finish)
    needed = f"a tensor in {path} for every parameter, and a parameter for every tensor"
    problems.raise_any("huggingface.load", needed, _HINT)
    return tree.rebuild(new)


def save(
    folder: str | os.PathLike[str], variables: PyTree, config: Mapping[str, Any], table: Table, *,
    generation_config: Mapping[str, Any] | None = None, tokenizer: Tokenizer | None = None,
    max_shard_size: int = 5_000_000_000,
) -> None:
    """Write a folder that `transformers` and `load` can read.

    If a model was loaded in its original dtype and not changed, its weights are bit-for-bit
    identical to those in the original files. Older safetensors files of weights in the folder
    are removed.

    Args:
        folder: path of the folder, which is created if it does not exist.
        variables: variables of the module, `{"params": ...}`.
        config: contents of `config.json`. Its `dtype` entry is set to the dtype of the parameters.
        table: the names of the tensors, as in `load`.
        generation_config: contents of `generation_config.json`; None to write no such file.
        tokenizer: tokenizer, which is written to `tokenizer.json`; None to write no such file.
        max_shard_size: number of bytes above which the weights are divided among several files.

    Raises:
        ValueError: the table has no name for a parameter. The message lists all such parameters.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> params = {"fc": {"kernel": jnp.ones((2, 3)), "bias": jnp.zeros(3)}}
    >>> save(folder, {"params": params}, {}, Table({"model.fc": "fc"}), max_shard_size=24)
    >>> sorted(path.name for path in folder.glob("model*"))[:2]
    ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors']
    """
    tree, problems = Tree(variables, "huggingface.save"), Problems()
    rows = list(plan(tree, expanded(table, tree, problems), None, problems))
    done = {leaf for _, leaves, _ in rows for leaf in leaves}
    problems.unfilled += [show(p, x) for p, x in tree.flat.items() if p not in done]
    needed = "a name in the table for every parameter"
    problems.raise_any("huggingface.save", needed, "add the missing layers to the table")
    rows = [row for row in rows if row[1] and not set(row[0]) <= set(table.tied)]
    parts = [
        files.Part(name, int(np.prod(shape)) * _dtype(tree.flat[leaves[0]]).itemsize, i)
        for i, (full, leaves, pair) in enumerate(rows)
        for name, shape in zip(full, pair.shapes, strict=True)
    ]

    def tensors(wanted: list[files.Part]) -> dict[str, np.ndarray]:
        out: dict[str, np.ndarray] = {}
        for i in dict.fromkeys(part.group for part in wanted):
            out |= _tensors_of(tree, *rows[i])
        return out

    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    files.write_tensors(path, list(files.shards(parts, max_shard_size)), tensors)
    files.write_json(path / "config.json", _with_dtype(config, tree))
    if generation_config is not None:
        files.write_json(path / "generation_config.json", generation_config)
    if tokenizer is not None:
        tokenizer.save(path / "tokenizer.json")


def load_config(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the configuration of a model, `config.json`.

    Args:
        folder: path of the folder.

    Returns:
        The contents of the file.

    Raises:
        FileNotFoundError: the folder or the file does not exist.
        toile.errors.UnreadableFileError: the file does not contain a JSON object.
    """
    path = files.opened(folder, "load_config") / "config.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"huggingface.load_config: needed the file {path}, got a folder without it (download "
            f"config.json too){here()}"
        )
    return files.read_json(path, "load_config")


def load_generation_config(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read `generation_config.json`, which contains the settings for generating text.

    Args:
        folder: path of the folder.

    Returns:
        The contents of the file. If the file does not exist, the dict contains only the ids of
        special tokens from `config.json`, such as `eos_token_id`.

    Raises:
        FileNotFoundError: the folder does not exist, or both files are missing.
        toile.errors.UnreadableFileError: a file does not contain a JSON object.
    """
    path = files.opened(folder, "load_generation_config") / "generation_config.json"
    if path.is_file():
        return files.read_json(path, "load_generation_config")
    config = load_config(folder)
    ids = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
    return {name: config[name] for name in ids if name in config}


def load_tensors(folder: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Read the weights of a model as they are stored, by the names of the tensors.

    Args:
        folder: path of the folder.

    Returns:
        A dict that maps names to NumPy arrays. Arrays from safetensors files are read-only views of
        the memory-mapped files.

    Raises:
        FileNotFoundError: the folder or a file of weights does not exist.
        toile.errors.UnreadableFileError: a file is damaged or has another format.
    """
    return files.read_tensors(files.opened(folder, "load_tensors"), "load_tensors")


def load_tokenizer(folder: str | os.PathLike[str]) -> Tokenizer:
    """Read the tokenizer of a model, `tokenizer.json`.

    Args:
        folder: path of the folder.

    Returns:
        The tokenizer.

    Raises:
        FileNotFoundError: the folder or the file does not exist.
        ImportError: the package tokenizers is not installed.
        toile.errors.UnreadableFileError: the file does not describe a tokenizer.
    """
    path = files.opened(folder, "load_tokenizer") / "tokenizer.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"huggingface.load_tokenizer: needed the file {path}, got a folder without it "
            "(transformers' AutoTokenizer.from_pretrained(folder).save_pretrained(folder) converts "
            f"older files){here()}"
        )
    return Tokenizer(path)


class Tokenizer:
    """Tokenizer of the package `tokenizers`, with the methods of `toile.training.text.Bytes`.

    The attribute `size` is the number of tokens, and `raw` is the tokenizer of the package.

    Args:
        path: path of a file `tokenizer.json`.

    Raises:
        ImportError: the package tokenizers is not installed.
        toile.errors.UnreadableFileError: the file does not describe a tokenizer.
    """

    def __init__(self, path: str | os.PathLike[str]):
        try:
            import tokenizers
        except ImportError as error:
            raise ImportError(
                "huggingface.Tokenizer: needed the package tokenizers, which is not installed: "
                "pip install 'toile[huggingface]'"
            ) from error
        try:
            self.raw = tokenizers.Tokenizer.from_file(os.fspath(path))
        except Exception as error:  # the package raises plain Exceptions
            reason = f"{os.fspath(path)}: {error}"[:300]
            raise files.unreadable(
                "huggingface.Tokenizer", "a tokenizer.json that tokenizers reads", reason,
                "download the file again, or update tokenizers",
            ) from error  # fmt: skip
        self.size: int = self.raw.get_vocab_size()

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Convert a text to tokens.

        Args:
            text: the text.
            special: whether to add the special tokens with which the model was trained, such as a
                token at the start.

        Returns:
            The ids of the tokens.
        """
        return self.raw.encode(text, add_special_tokens=special).ids

    def encode_with_places(
        self, text: str, *, special: bool = False
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Convert a text to tokens, and find the characters that each token represents.

        Args:
            text: the text.
            special: whether to add the special tokens with which the model was trained.

        Returns:
            The ids of the tokens, and the start and end of each token in the text.
        """
        found = self.raw.encode(text, add_special_tokens=special)
        return found.ids, found.offsets

    def decode(self, tokens: Iterable[int], *, special: bool = False) -> str:
        """Return the text that the tokens represent.

        Args:
            tokens: the ids of the tokens.
            special: whether the text contains special tokens, such as `</s>`.

        Returns:
            The text.
        """
        return self.raw.decode([int(t) for t in tokens], skip_special_tokens=not special)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tokenizer to a file.

        Args:
            path: path of the file.
        """
        self.raw.save(os.fspath(path))


def _renamed(tensors: dict[str, np.ndarray], table: Table) -> dict[str, np.ndarray]:
    """Rename tensors to the names in the table: add the prefix and replace old endings."""
    out = {}
    known = not table.prefix or any(name.startswith(table.prefix) for name in tensors)
    for name, x in tensors.items():
        for old, new in table.endings.items():
            if name.endswith(old):
                name = name.removesuffix(old) + new
        out[name if known else table.prefix + name] = x
    return out


def _untie(given: dict[str, np.ndarray], table: Table, problems: Problems) -> None:
    """Remove tied tensors; if the tensor that they repeat is missing, they replace it."""
    for name, source in table.tied.items():
        if name not in given:
            continue
        x = given.pop(name)
        other = given.setdefault(source, x)
        if other.shape != x.shape or not _same(other, x):
            problems.misshaped.append(
                f"{name}: needed the values of {source}, which the configuration ties to it"
            )


def _same(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether two arrays have the same bytes, which may include NaN."""
    if x.dtype != y.dtype:
        return False
    x, y = (np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in (x, y))
    return np.array_equal(x, y)


def expanded(table: Table, tree: Tree, problems: Problems) -> dict[str, str | Rule]:
    """Return the names in the table, with `{i}` replaced by all numbers that the module has."""
    out: dict[str, str | Rule] = {}
    for name, target in table.names.items():
        pattern = target.path if isinstance(target, Rule) else target
        regex = re.compile(_FIELD.sub(r"(?P<\1>\\d+)", re.escape(pattern)))
        found = [m for m in map(regex.fullmatch, tree.below) if m]
        if not found:
            problems.names.append(f"{name!r}: no layer at {pattern!r}")
        for match in found:
            path = match.group()
            rule = replace(target, path=path) if isinstance(target, Rule) else path
            out[name.format(**match.groupdict())] = rule
    return out


def _of_dtype(x: Any, dtype: DTypeLike, keep: bool) -> Any:
    """Convert a variable to another dtype if it contains floating-point numbers.

    Only its shape is returned, unless its value may be needed."""
    if not issubdtype(x.dtype, np.floating):
        return x
    return x.astype(dtype) if keep and hasattr(x, "astype") else ShapeDtypeStruct(x.shape, dtype)


def _places(device: Any, tree: Tree) -> dict[str, Any]:
    """Return the device or sharding of each variable."""
    if device is None:
        return dict.fromkeys(tree.flat)
    is_none = lambda x: x is None
    return dict(zip(tree.flat, broadcast_prefix(device, tree.variables, is_none), strict=True))


def _dtype(x: Any) -> np.dtype:
    """Return the dtype of a variable."""
    return np.dtype(x.dtype)


def _tensors_of(
    tree: Tree, full: list[str], leaves: list[str], pair: Pair
) -> dict[str, np.ndarray]:
    """Return the tensors of one pair, converted from the variables."""
    values = [array_of(tree.flat[leaf]) for leaf in leaves]
    return dict(zip(full, pair.to_torch(values, None), strict=True))


def _with_dtype(config: Mapping[str, Any], tree: Tree) -> dict[str, Any]:
    """Add the dtype of the parameters to a configuration, if all of them have the same dtype."""
    found = {_dtype(x).name for x in tree.flat.values() if issubdtype(x.dtype, np.floating)}
    old = "torch_dtype" in config and "dtype" not in config
    key = "torch_dtype" if old else "dtype"
    return {**config, key: found.pop()} if len(found) == 1 else dict(config)
