"""Adapters in the files of the library PEFT: adapter_config.json and adapter_model.safetensors."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from toile import numpy as jnp
from toile import tree as trees
from toile.engine.annotations import PyTree
from toile.engine.source import here
from toile.engine.structs import ShapeDtypeStruct
from toile.finetuning.adapters import adapters_of, with_adapters, without_adapters
from toile.interop import huggingface_files as files
from toile.interop import safetensors
from toile.interop.huggingface import Table, expanded
from toile.interop.torch_rules import Dense, Embed, Fused, Rule
from toile.interop.weight_matching import Problems, Tree
from toile.quantization import QuantizedArray

__all__ = ["load_peft", "save_peft"]

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_HEAD = "base_model.model."
_HINT = "the table must be that of the model that the adapters were trained for"


class _Layer(NamedTuple):
    """A layer of torch: its name, and the paths and shapes of the parameters it corresponds to."""

    name: str
    paths: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    outputs: int  # number of output axes
    kinds: tuple[str, str]  # the ends of the names of the two tensors
    transposed: bool


def save_peft(
    folder: str | os.PathLike[str], params: PyTree, table: Table, *, base_model: str = "",
    task: str = "CAUSAL_LM",
) -> None:
    """Write the adapters of a model to a folder that the library PEFT can read.

    The files are named `adapter_config.json` and `adapter_model.safetensors`. In Python with torch,
    `peft.PeftModel.from_pretrained(model, folder)` then adds the adapters to a model.

    Args:
        folder: path of the folder, which is created if it does not exist.
        params: variables of the module with adapters, `{"params": ...}`.
        table: the names of the tensors, as in `toile.interop.huggingface.load`.
        base_model: path or name of the model without adapters, which PEFT loads.
        task: task type in the configuration, such as "CAUSAL_LM" or "SEQ_CLS".

    Raises:
        ValueError: there are no adapters, or an adapter has no corresponding layer in the table.

    >>> import pathlib, tempfile, toile.linen as nn
    >>> from toile.finetuning import load_peft, lora, save_peft
    >>> from toile.interop.huggingface import Table
    >>> folder, table = pathlib.Path(tempfile.mkdtemp()), Table({"model.fc": ""})
    >>> variables = nn.Dense(4).init(key(0), jnp.ones((1, 8)))
    >>> save_peft(folder, lora(variables, key=key(1), rank=2), table)
    >>> sorted(path.name for path in folder.iterdir())
    ['adapter_config.json', 'adapter_model.safetensors']
    >>> load_peft(folder, variables, table)["params"]["kernel"]
    LoRAArray(float32[8,4], rank=2, scale=1)
    """
    left = adapters_of(params)
    if not left:
        raise ValueError(f"save_peft: needed variables with adapters, got none (call lora "
                         f"first){here()}")
    tensors: dict[str, np.ndarray] = {}
    ranks: dict[str, int] = {}
    scales: dict[str, float] = {}
    transposed = False
    for layer in _layers(params, table, "save_peft"):
        found = {path: left.pop(path) for path in layer.paths if path in left}
        if not found:
            continue
        a, b, scale = _stacked(layer, found)
        first, second = layer.kinds
        tensors[f"{_HEAD}{layer.name}.{first}"] = np.ascontiguousarray(a.T)
        tensors[f"{_HEAD}{layer.name}.{second}"] = np.ascontiguousarray(b.T)
        ranks[layer.name], scales[layer.name] = a.shape[1], scale
        transposed = transposed or layer.transposed
    if left:
        raise ValueError(f"save_peft: needed a layer in the table for every adapter, got none for "
                         f"{', '.join(list(left)[:8])} ({_HINT}){here()}")
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    content = _config(ranks, scales, base_model, task, transposed)
    safetensors.save_file(tensors, path / WEIGHTS, {"format": "pt"})
    files.write_json(path / CONFIG, content)


def _config(
    ranks: Mapping[str, int], scales: Mapping[str, float], base_model: str, task: str,
    transposed: bool,
) -> dict[str, Any]:
    """Return the contents of adapter_config.json."""
    usual = next(iter(ranks))
    rank, alpha = ranks[usual], scales[usual] * ranks[usual]
    odd = [name for name in ranks if (ranks[name], scales[name]) != (rank, scales[usual])]
    return {
        "peft_type": "LORA", "task_type": task, "base_model_name_or_path": base_model or None,
        "inference_mode": True, "bias": "none", "lora_dropout": 0.0, "use_rslora": False,
        "use_dora": False, "modules_to_save": None, "fan_in_fan_out": transposed,
        "r": rank, "lora_alpha": alpha, "target_modules": sorted(ranks),
        "rank_pattern": {re.escape(name): ranks[name] for name in odd},
        "alpha_pattern": {re.escape(name): scales[name] * ranks[name] for name in odd},
    }  # fmt: skip


def _stacked(layer: _Layer, found: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray, float]:
    """Return matrices [inputs, rank] and [rank, outputs], and the factor of their product.

    If the layer of torch corresponds to several parameters, they get separate rows of the second
    matrix: their adapters together have the sum of their ranks."""
    pairs: list[tuple[Any, np.ndarray, float]] = []
    for path, shape in zip(layer.paths, layer.shapes, strict=True):
        outputs = math.prod(shape[-layer.outputs:])
        if path not in found:
            pairs.append((None, np.zeros((0, outputs), np.float32), 1.0))
            continue
        a, b = (np.asarray(found[path][name]) for name in "ab")
        rank = a.shape[-1]
        a, b = a.reshape(-1, rank), b.reshape(rank, -1)
        if b.shape[1] != outputs:
            raise ValueError(
                f"save_peft: needed an adapter with {outputs} outputs for {path}, got "
                f"{b.shape[1]} (pass inputs={len(shape) - layer.outputs} to lora){here()}")
        pairs.append((a, b, float(found[path]["scale"])))
    scale = next(s for a, _, s in pairs if a is not None)
    if len(pairs) == 1:
        return pairs[0][0], pairs[0][1], scale
    whole = np.zeros((sum(b.shape[0] for _, b, _ in pairs), sum(b.shape[1] for _, b, _ in pairs)),
                     pairs[0][1].dtype)
    row = column = 0
    for _, b, own in pairs:
        whole[row : row + b.shape[0], column : column + b.shape[1]] = b * (own / scale)
        row, column = row + b.shape[0], column + b.shape[1]
    return np.concatenate([a for a, _, _ in pairs if a is not None], axis=1), whole, scale


def load_peft(folder: str | os.PathLike[str], params: PyTree, table: Table) -> PyTree:
    """Load adapters that PEFT or `save_peft` has saved, and add them to a model's parameters.

    Args:
        folder: path of the folder with `adapter_config.json` and `adapter_model.safetensors`.
        params: variables of the module, `{"params": ...}`. They may be quantized.
        table: the names of the tensors, as in `toile.interop.huggingface.load`.

    Returns:
        The variables with a `LoRAArray` for each parameter that has an adapter.

    Raises:
        FileNotFoundError: the folder or a file does not exist.
        ValueError: the adapters are not LoRA adapters, or do not fit the parameters.
        toile.errors.UnreadableFileError: a file is damaged.
    """
    path = files.opened(folder, "load_peft")
    for name in (CONFIG, WEIGHTS):
        if not (path / name).is_file():
            raise FileNotFoundError(f"load_peft: needed the file {path / name}, got a folder "
                                    f"without it{here()}")
    config = files.read_json(path / CONFIG, "load_peft")
    _check_config(config)
    # PEFT may also save weights of the model, under names that end with base_layer.weight.
    given = {_key(name): x for name, x in safetensors.load_file(path / WEIGHTS).items()
             if not name.endswith(".base_layer.weight")}
    adapters: dict[str, dict[str, Any]] = {}
    problems = []
    for layer in _layers(params, table, "load_peft"):
        names = [f"{layer.name}.{kind}" for kind in layer.kinds]
        if not all(name in given for name in names):
            continue
        a, b = (given.pop(name) for name in names)
        found = _divided(layer, a, b, _scale(config, layer.name, a.shape[0] if a.ndim else 1))
        if found is None:
            problems.append(f"{layer.name}: {a.shape} and {b.shape} for parameters of shapes "
                            f"{layer.shapes}")
        else:
            adapters |= found
    problems += [f"{name}: no layer in the table" for name in given]
    if problems or not adapters:
        raise ValueError(f"load_peft: needed tensors of adapters that fit the parameters, got "
                         f"{'; '.join(problems[:8]) or 'none'} ({_HINT}){here()}")
    return with_adapters(params, adapters)


def _key(name: str) -> str:
    """The name of a tensor without the parts that depend on how it was saved."""
    name = name.removeprefix(_HEAD).removesuffix(".weight")
    for kind in ("lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B"):
        name = name.removesuffix(f".{kind}.default") + (
            f".{kind}" if name.endswith(f".{kind}.default") else "")
    return f"{name}.weight" if name.endswith((".lora_A", ".lora_B")) else name


def _check_config(config: Mapping[str, Any]) -> None:
    """Raise an error for adapters that `LoRAArray` does not represent."""
    kind = config.get("peft_type")
    if kind != "LORA":
        raise ValueError(f"load_peft: needed peft_type 'LORA' in {CONFIG}, got {kind!r}{here()}")
    wrong = [f"{name}={config[name]!r}" for name in ("use_dora", "modules_to_save", "lora_bias")
             if config.get(name)]
    if config.get("bias", "none") != "none":
        wrong.append(f"bias={config['bias']!r}")
    if wrong:
        raise ValueError(f"load_peft: needed adapters that consist of two matrices per layer, got "
                         f"{', '.join(wrong)} (merge them into the model with PEFT){here()}")


def _scale(config: Mapping[str, Any], name: str, rank: int) -> float:
    """Return the factor of an adapter."""
    alpha = float(config.get("lora_alpha", 8))
    for pattern, value in (config.get("alpha_pattern") or {}).items():
        # PEFT's patterns are regular expressions; the usual ones are names with dots.
        plain = pattern.replace("\\", "").removeprefix("^")
        if name == plain or name.endswith(f".{plain}"):
            alpha = float(value)
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _divided(
    layer: _Layer, a: np.ndarray, b: np.ndarray, scale: float
) -> dict[str, dict[str, Any]] | None:
    """Return the adapters of a layer by path; None if the shapes do not fit."""
    if a.ndim != 2 or b.ndim != 2 or a.shape[0] != b.shape[1]:
        return None
    rank, out, start = a.shape[0], {}, 0
    for path, shape in zip(layer.paths, layer.shapes, strict=True):
        split = len(shape) - layer.outputs
        width = math.prod(shape[split:])
        part = b[start : start + width]
        if a.shape[1] != math.prod(shape[:split]) or len(part) != width:
            return None
        out[path] = {
            "a": jnp.asarray(np.ascontiguousarray(a.T)).reshape(*shape[:split], rank),
            "b": jnp.asarray(np.ascontiguousarray(part.T)).reshape(rank, *shape[split:]),
            "scale": scale,
        }
        start += width
    return out if start == len(b) else None


def _layers(params: PyTree, table: Table, who: str) -> Iterator[_Layer]:
    """Iterate over the layers in a table that can have adapters."""
    plain = trees.map(lambda x: ShapeDtypeStruct(x.shape, x.dtype), without_adapters(params),
                      is_leaf=lambda x: isinstance(x, QuantizedArray))
    tree, problems = Tree(plain, who), Problems()
    for name, target in expanded(table, tree, problems).items():
        rule = target if isinstance(target, Rule) else tree.infer(target)
        shapes = {} if rule is None else tree.shapes(rule.path)
        if isinstance(rule, Dense) and rule.flattened is None:
            n_out = rule.pairs(shapes)[0].shapes[0][1 if rule.transposed else 0]
            shape = shapes["params/kernel"]
            outputs = next(n for n in range(1, len(shape)) if math.prod(shape[-n:]) == n_out)
            leaves = [f"params/{rule.path}/kernel".replace("//", "/")]
        elif isinstance(rule, Fused):
            leaves = [f"params/{rule.path}/{part}/kernel" for part in rule.parts]
            outputs = len(shapes[f"params/{rule.parts[0]}/kernel"]) - 1
        elif isinstance(rule, Embed):
            leaves, outputs = [f"params/{rule.path}/embedding".replace("//", "/")], 1
        else:
            continue
        kinds = ("lora_embedding_A", "lora_embedding_B") if isinstance(rule, Embed) else (
            "lora_A.weight", "lora_B.weight")
        yield _Layer(name, tuple(leaves), tuple(tuple(tree.flat[p].shape) for p in leaves),
                     outputs, kinds, getattr(rule, "transposed", False))
    problems.raise_any(who, "a layer for each name in the table", _HINT)
