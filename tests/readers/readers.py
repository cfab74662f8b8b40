"""Every reader of files and bytes in toile, with whole files and ways to damage them."""

import csv
import io
import os
import pathlib
import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import toile
import toile.numpy as jnp
from tests.readers import mutations, torch_pickles
from toile import serialization
from toile.engine import protobuf, treeproto
from toile.export import from_onnx, to_onnx
from toile.interop import huggingface_files, safetensors, torch_files
from toile.metrics import events, records
from toile.metrics.tensorboard import SummaryWriter
from toile.metrics.writers import CsvWriter
from toile.serialization import array_codes as encoding
from toile.training import curves, datasets, sweep, text
from toile.training.report import Report
from toile.tree_util import tree_structure

FIXTURES = pathlib.Path(__file__).parents[1] / "interop" / "fixtures"


class Reader(NamedTuple):
    """Whole files, how they are damaged, and how they are read from a folder and bytes."""

    files: list[bytes]
    damage: Callable[..., bytes]
    read: Callable[[pathlib.Path, bytes], Any]


def _written(folder: pathlib.Path, name: str, data: bytes) -> pathlib.Path:
    path = folder / name
    path.write_bytes(data)
    return path


def _torch_files() -> list[bytes]:
    tree = {"a": [1, (2.5, 3)], "b": {4}, "c": frozenset([5]), "d": OrderedDict(x=b"6"), "e": "ü"}
    shared = {"x": (1, 2)}
    floats = np.arange(12, dtype=np.float32).tobytes()
    return [
        (FIXTURES / "values.pt").read_bytes(),
        (FIXTURES / "lstm.pt").read_bytes(),
        torch_pickles.archive(pickle.dumps(tree, 2)),
        torch_pickles.archive(pickle.dumps([shared, shared, tree], 4)),
        torch_pickles.tensor_file(floats, 12, (3, 4), (1, 3)),
    ]


def _trees() -> list[bytes]:
    arrays = {
        "f": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([True, False]),
        "bf": np.ones(3, ml_dtypes.bfloat16), "t": np.array(["ab", "c"]), "z": np.zeros((0, 2)),
        "i4": np.ones(3, ml_dtypes.int4), "d": np.array(["2020-01-01"], "datetime64[D]"),
    }  # fmt: skip
    values = {"a": {"b": [1, -2, 2.5, None, True, "text", b"bytes"]}, "c": 1 + 2j, "s": np.int8(3)}
    chunked = {"x": {"y": encoding.chunk(np.arange(10.0), 24)}, "step": 3}
    return [serialization.msgpack_serialize(tree) for tree in (arrays, values, chunked)]


def _target() -> Any:
    return {
        "params": {"kernel": jnp.ones((2, 3)), "list": [jnp.zeros(2), 1.0]},
        "key": toile.random.key(0), "partial": toile.tree_util.Partial(max, 1, key=2),
        "state": _State(1, jnp.ones(2)),
    }  # fmt: skip


@toile.struct.dataclass
class _State:
    step: int
    x: Any


def _event_file(folder: pathlib.Path) -> bytes:
    with SummaryWriter(folder) as writer:
        writer.scalar("loss", 0.5, 1)
        writer.text("note", "hello", 2)
        writer.histogram("h", np.arange(5.0), 3)
    (name,) = [n for n in os.listdir(folder) if "tfevents" in n]
    data = (folder / name).read_bytes()
    # A tensor as TensorFlow lists it, and a bare number as TensorFlow 1 wrote it.
    listed = protobuf.field(1, 1) + protobuf.field(2, protobuf.field(2, protobuf.field(1, 4)))
    listed += protobuf.field(5, np.ones(1, np.float32).tobytes())
    old = protobuf.field(1, protobuf.field(1, "old") + b"\x15\x00\x00\x80\x3f")
    summaries = [events.summary("listed", listed, events.metadata("scalars")), old]
    return data + b"".join(records.frame(events.event(s, 4, 1.0)) for s in summaries)


def _arrays() -> list[bytes]:
    out = []
    for x in (np.arange(6.0).reshape(2, 3), np.array([True]), np.ones(2, ml_dtypes.bfloat16)):
        file = io.BytesIO()
        np.save(file, x)
        out.append(file.getvalue())
    file = io.BytesIO()
    np.savez(file, a=np.ones(3))
    return [*out, file.getvalue()]


def _archive(save: Callable[..., None]) -> bytes:
    file = io.BytesIO()
    save(file, x=np.arange(6.0).reshape(3, 2), label=np.array([True, False, True]))
    return file.getvalue()


def _rows(source: Any) -> Any:
    return source.take(np.arange(len(source)))


def _continue_table(folder: pathlib.Path, data: bytes) -> list[list[str]]:
    path = _written(folder, "metrics.csv", data)
    writer = CsvWriter(path)
    writer.write_scalars(9, {"new": 1.0})
    writer.close()
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def _read_events(folder: pathlib.Path, data: bytes) -> list[Any]:
    return list(events.read(_written(folder, "events", data)))


def _read_all(folder: pathlib.Path, data: bytes) -> dict[str, Any]:
    return safetensors.load_file(_written(folder, "x.safetensors", data))


_INDEX = (b'{"metadata": {"total_size": 16}, "weight_map": {"a": "model-1.safetensors", '
          b'"b": "model-1.safetensors"}}')  # fmt: skip


def _onnx_file(folder: pathlib.Path) -> bytes:
    path = folder / "made.onnx"
    to_onnx(lambda x: jnp.tanh(x @ np.ones((3, 2), np.float32)), np.zeros((4, 3), np.float32),
            path=path)
    return path.read_bytes()


def _read_configuration(folder: pathlib.Path, data: bytes) -> Any:
    return huggingface_files.read_json(_written(folder, "config.json", data), "load")


def _read_shards(folder: pathlib.Path, data: bytes) -> Any:
    tensors = {"a": np.ones(2, np.float32), "b": np.zeros(2, np.float32)}
    _written(folder, "model-1.safetensors", safetensors.save(tensors))
    _written(folder, "model.safetensors.index.json", data)
    return huggingface_files.read_tensors(folder, "load")


def make_readers(folder: pathlib.Path) -> dict[str, Reader]:
    """All readers by name; whole files are made in a folder."""
    mutated = mutations.mutated
    torch = _torch_files()
    safe = [(FIXTURES / "lstm.safetensors").read_bytes(), safetensors.save({}, {"a": "b"}),
            safetensors.save({"a": np.ones((2, 2)), "b": np.array([True]), "c": np.zeros(0)})]
    trees, target = _trees(), _target()
    states = [serialization.to_bytes(target), serialization.to_bytes({**target, "key": 1})]
    structures = [{"a": [1, (2, None)], "b": {"c": 1}}, [[[1]]], 1, {"x" * 40: ()}]
    protos = [treeproto.dumps(tree_structure(tree)) for tree in structures]
    event_files = [_event_file(folder)]
    lines = [b'{"step": 1, "loss": 0.5}\n{"step": 2, "loss": "nan"}\n{"hparams": {"a": 1}}\n']
    tables = [b"step,loss\r\n1,0.5\r\n2,0.25\r\n"]
    points = [b'{"function": "f", "config": {}}\n{"point": {"a": 1}, "metrics": {"loss": "nan"}, '
              b'"error": "", "seconds": 1.5, "workdir": "w"}\n']  # fmt: skip
    data_tables = [b"a,b,c\n1,x,2\n3,y,4.5\n", b'a,b\n"1,2",x\n-1e5,y\n']
    archives = [_archive(np.savez), _archive(np.savez_compressed)]
    documents = ["one\n\ntwo é\n\nthree".encode(), b"a\fb"]

    def from_bytes(_: pathlib.Path, data: bytes) -> Any:
        return serialization.from_bytes(target, data)

    def restore(_: pathlib.Path, data: bytes) -> Any:
        return serialization.msgpack_restore(data)

    def load_torch(_: pathlib.Path, data: bytes) -> Any:
        return torch_files.load(io.BytesIO(data))

    return {
        "torch": Reader(torch, mutated, load_torch),
        "torch, inside": Reader(torch, mutations.mutated_entry, load_torch),
        "safetensors": Reader(safe, mutated, lambda _, data: safetensors.load(data)),
        "safetensors, inside": Reader(safe, mutations.mutated_header, _read_all),
        "huggingface, configuration": Reader([b'{"model_type": "llama", "sizes": [1, 2.5]}'],
                                             mutated, _read_configuration),
        "huggingface, index": Reader([_INDEX], mutated, _read_shards),
        "onnx": Reader([_onnx_file(folder)], mutated, lambda folder, data: from_onnx(
            _written(folder, "x.onnx", data))[1]),
        "msgpack": Reader(trees, mutated, restore),
        "msgpack, inside": Reader(trees, mutations.mutated_tree, restore),
        "from_bytes": Reader(states, mutated, from_bytes),
        "from_bytes, inside": Reader(states, mutations.mutated_tree, from_bytes),
        "protobuf": Reader(protos, mutated, lambda _, data: protobuf.decode(data)),
        "tree structures": Reader(protos, mutated, lambda _, data: treeproto.loads(data)),
        "events": Reader(event_files, mutated, _read_events),
        "events, inside": Reader(event_files, mutations.mutated_record, _read_events),
        "npy": Reader(_arrays(), mutated, lambda _, data: jnp.load(io.BytesIO(data))),
        "npy, of a path": Reader(_arrays(), mutated, lambda folder, data: _closed(
            jnp.load(_written(folder, "x.npy", data)))),
        "history": Reader(lines, mutated, lambda folder, data: curves.history(
            _written(folder, "metrics.jsonl", data).parent, "loss")),
        "table": Reader(tables, mutated, _continue_table),
        "csv_table": Reader(data_tables, mutated, lambda folder, data: datasets.csv_table(
            _written(folder, "x.csv", data), missing="nan").arrays),
        "npz_arrays": Reader(archives, mutated, lambda folder, data: _rows(
            datasets.npz_arrays(_written(folder, "x.npz", data)))),
        "npz_arrays, inside": Reader(archives, mutations.mutated_entry, lambda folder, data: _rows(
            datasets.npz_arrays(_written(folder, "x.npz", data)))),
        "mapped_arrays": Reader(_arrays()[:-1], mutated, lambda folder, data: _rows(
            datasets.mapped_arrays({"x": _written(folder, "y.npy", data)}))),
        "report": Reader(lines, mutated, lambda folder, data: Report.of(
            _written(folder, "metrics.jsonl", data).parent).html()),
        "sweep": Reader(points, mutated, lambda folder, data: sweep.read(
            _written(folder, "results.jsonl", data).parent)),
        "documents": Reader(documents, mutated, lambda folder, data: text.documents_of_file(
            _written(folder, "documents.txt", data))),
    }  # fmt: skip


def _closed(loaded: Any) -> Any:
    if hasattr(loaded, "close"):
        loaded.close()
    return loaded


