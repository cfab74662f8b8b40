"""Reading files written by `torch.save`, without torch and without running code from the files.

Only trees of tensors, numbers and strings can be read. Functions and classes that are named in a
file are never imported or called, so files from unknown sources are safe to read.
"""
# Such a file is a zip archive of a pickle and of one entry of raw bytes for each storage. The
# pickle is not given to Python's unpickler: the machine of `torch_pickles` runs the few
# instructions that trees of tensors need, and names are looked up in one table (`_BUILDERS`).

from __future__ import annotations

import collections
import os
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from toile import io
from toile.engine.file_reader import brief, check_values, element_count, guarded, unreadable
from toile.engine.source import here
from toile.errors import UnreadableFileError
from toile.interop.torch_archive import Archive
from toile.interop.torch_pickles import Machine, Name, fail, global_names, shown

__all__ = ["load"]

FACTOR = 8  # maximum bytes of arrays for each byte of a file
FLOOR = 1 << 24  # bytes that are always allowed in addition

_DTYPES: dict[str, Any] = {
    **{f"{kind}{bits}": np.dtype(f"{kind}{bits}").type
       for kind in ("int", "uint") for bits in (64, 32, 16, 8)},
    **{name: getattr(np, name)
       for name in ("float64", "float32", "float16", "complex64", "complex128")},
    **{name: getattr(ml_dtypes, name)
       for name in ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
                    "float8_e5m2fnuz", "float8_e8m0fnu")},
    "bool": np.bool_,
}
_STORAGES = {
    "Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16",
    "ComplexFloat": "complex64", "ComplexDouble": "complex128", "Long": "int64", "Int": "int32",
    "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool",
}  # fmt: skip
_UNTYPED = "torch.storage.UntypedStorage"
_STORAGE_TYPES: dict[str, np.dtype | None] = {
    _UNTYPED: None,
    **{f"torch.{kind}Storage": np.dtype(_DTYPES[name]) for kind, name in _STORAGES.items()},
}
_TENSOR_TYPES = ("torch._tensor.Tensor", "torch.Tensor", "torch.nn.parameter.Parameter")


class _Stored:
    """An entry of raw bytes, which is read once, when a tensor first needs it."""

    def __init__(self, name: str, size: int):
        self.name, self.size = name, size
        self.data: np.ndarray | None = None  # the bytes, once they are read
        self.swapped: dict[int, np.ndarray] = {}  # by width: in the order of this machine


class _Storage:
    """Raw bytes and their dtype, which is None if each tensor specifies a dtype."""

    def __init__(self, stored: _Stored, dtype: np.dtype | None):
        self.stored, self.dtype = stored, dtype


def load(file: str | os.PathLike[str] | Any) -> Any:
    """Read a tree of tensors, such as a state dict, from a file written by `torch.save`.

    Args:
        file: path of the file, or an open binary file.

    Returns:
        A tree of dicts, lists, tuples, numbers, strings and NumPy arrays. The arrays are contiguous
        and writable, and no two of them share memory.

    Raises:
        toile.errors.UnreadableFileError: the file is damaged, or it contains objects of other
            types, such as a module; the message names their types. Save `model.state_dict()`
            instead of a module. The error is also raised if the arrays need more than 16 MiB plus 8
            times the size of the file. This limit prevents a small file from using all available
            memory.
    """
    if hasattr(file, "read"):
        return _load(file, "the file")
    path = os.fspath(file)
    with io.GFile(path, "rb") as opened:
        return _load(opened, path)


def _load(file: Any, path: str) -> Any:
    try:
        archive = Archive(file, path)
    except UnreadableFileError as error:
        if error.__cause__ is None:
            raise
        file.seek(0)
        raise _not_a_zip(file.read(32), path, error.__cause__) from None
    with guarded("torch_files.load", "a whole file of torch.save", f" ({path})"):
        return _read(archive, path)


def _read(archive: Archive, path: str) -> Any:
    """Return the tree that an archive contains."""
    top = archive.first.partition("/")[0]
    if f"{top}/constants.pkl" in archive:
        fail(
            "a file of torch.save", f"{path}, a TorchScript archive",
            "with torch installed, run torch.save(torch.jit.load(path).state_dict(), new_path)",
        )  # fmt: skip
    if f"{top}/data.pkl" not in archive:
        have = ", ".join(name[:60] for name in list(archive.entries)[:4]) or "nothing"
        fail("a file of torch.save, with data.pkl in it", f"{path}, a zip file of {have}")
    big_endian = False
    if f"{top}/byteorder" in archive:
        big_endian = archive.read(f"{top}/byteorder").strip() == b"big"
    return _Tensors(archive, f"{top}/data", big_endian, archive.read(f"{top}/data.pkl")).run()


def _not_a_zip(start: bytes, path: str, error: BaseException) -> UnreadableFileError:
    rewrite = "with torch installed, run torch.save(torch.load(path), new_path)"
    if start[:2] == b"\x80\x02":
        kind = f"the format of torch before 1.6, or another pickle ({rewrite})"
    elif start[:2] == b"PK":
        kind = f"a truncated or corrupted one ({error})"
    elif start[8:9] == b"{":
        kind = "perhaps a safetensors file (toile.interop.safetensors.load_file)"
    else:
        kind = f"something else ({rewrite})"
    return unreadable("torch_files.load", "a zip file of torch.save", f"{path}: {kind}")


class _Tensors(Machine):
    """A machine that interprets the names of torch and reads storages from an archive."""

    def __init__(self, archive: Archive, folder: str, big_endian: bool, text: bytes):
        super().__init__(text)
        self.archive, self.folder, self.big_endian = archive, folder, big_endian
        self.stored: dict[str, _Stored] = {}
        self.most = self.room = FACTOR * archive.size + FLOOR

    def named(self, text: str) -> Any:
        """Return the dtype with this name, or else a `Name`."""
        if not _is_known(text):
            _refuse(sorted({text, *global_names(self.text)}))
        dtype = _dtype_named(text)
        return Name(text) if dtype is None else dtype

    def applied(self, name: Name, arguments: tuple[Any, ...]) -> Any:
        """Return the value that the file describes as a call to this function."""
        if name.text not in _BUILDERS:
            fail("a known function and its arguments", name.text)
        try:
            return _BUILDERS[name.text](self, *arguments)
        except (TypeError, OverflowError) as error:
            return fail(f"the arguments of {name.text}", f"others: {error}"[:300])

    def persistent(self, row: Any) -> _Storage:
        """Return the storage described by ("storage", type, key, device, number of elements)."""
        if type(row) is not tuple or len(row) != 5 or row[0] != "storage":
            fail("the description of a storage", shown(row))
        _, kind, key, _, count = row
        if not isinstance(kind, Name) or kind.text not in _STORAGE_TYPES or type(key) is not str:
            fail("the type and the name of a storage", f"{shown(kind)}, {brief(key)}")
        if key not in self.stored:
            self.charge(500)
            name = f"{self.folder}/{key}"
            self.stored[key] = _Stored(name, self.archive.length(name))
        stored, dtype = self.stored[key], _STORAGE_TYPES[kind.text]
        have = stored.size // (dtype.itemsize if dtype is not None else 1)
        if type(count) is not int or count != have:
            fail(f"a storage of {brief(count)} numbers in {stored.name}", f"{have} (truncated?)")
        return _Storage(stored, dtype)

    def data_of(self, stored: _Stored) -> np.ndarray:
        """Return the bytes of a storage, which are kept for other tensors."""
        if stored.data is None:
            stored.data = np.empty(stored.size, np.uint8)
            self.archive.read_into(stored.name, stored.data)
        return stored.data

    def numbers(self, stored: _Stored, dtype: np.dtype) -> np.ndarray:
        """Return the bytes of a storage in native byte order."""
        half = dtype.itemsize // (2 if dtype.kind == "c" else 1)  # each part by itself
        if not self.big_endian or half == 1:
            return self.data_of(stored)
        if half not in stored.swapped:
            raw = self.data_of(stored)
            stored.swapped[half] = raw.reshape(-1, half)[:, ::-1].reshape(-1)
        return stored.swapped[half]

    def make_room(self, size: int) -> None:
        """Count the bytes of an array before it is allocated; raise an error above the limit."""
        self.charge(200)
        self.room -= size
        if self.room < 0:
            fail(
                f"arrays of at most {self.most} bytes ({FACTOR} times the file + 16 MiB)", "more",
                "tensors that are expanded or overlap are copied: in torch, save x.clone() if a"
                " tensor has to be large, or save the small tensor before it is expanded",
            )  # fmt: skip


def _tensor(
    machine: _Tensors, storage: Any, offset: Any, size: Any, stride: Any, *rest: Any
) -> np.ndarray:
    """Copy a tensor from a strided view of a storage.

    `rest` contains `requires_grad`, the hooks and the metadata."""
    if not isinstance(storage, _Storage) or storage.dtype is None:
        fail("a tensor of a typed storage", shown(storage))
    x = _strided(machine, storage.stored, storage.dtype, offset, size, stride)
    return _resolved(x, *rest[2:])


def _tensor_of_dtype(
    machine: _Tensors, storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any,
    hooks: Any, dtype: Any, *rest: Any,
) -> np.ndarray:  # fmt: skip
    """Copy a tensor of a dtype for which torch has no storage class."""
    if not isinstance(storage, _Storage) or not isinstance(dtype, np.dtype):
        fail("a tensor of an untyped storage", f"{shown(storage)}, {shown(dtype)}")
    return _resolved(_strided(machine, storage.stored, dtype, offset, size, stride), *rest)


def _resolved(x: np.ndarray, metadata: Any = None, *rest: Any) -> np.ndarray:
    """Return the values of a tensor whose storage may contain their conjugates or negatives."""
    flags = metadata if type(metadata) is dict else {}
    x = np.asarray(np.conj(x)) if flags.get("conj") is True else x  # of rank 0: a scalar
    return np.asarray(-x) if flags.get("neg") is True else x


def _strided(
    machine: _Tensors, stored: _Stored, dtype: np.dtype, offset: Any, size: Any, stride: Any
) -> np.ndarray:
    width = dtype.itemsize
    count = element_count("torch_files.load", size, width)
    whole = (offset, *stride)
    if len(size) != len(stride) or not all(type(n) is int and 0 <= n < 2**63 for n in whole):
        fail("an offset, sizes and strides", f"{brief(offset)}, {brief(size)}, {brief(stride)}")
    if stored.size % width:
        fail(f"whole numbers of {dtype}", f"{stored.size} bytes in {stored.name} (truncated?)")
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if count and last >= stored.size // width:
        have = stored.size // width
        fail(f"a storage of more than {last} numbers", f"{have} in {stored.name} (truncated?)")
    machine.make_room(count * width)
    if not count:
        return np.zeros(size, dtype)
    unread = stored.data is None and not machine.big_endian
    if unread and _fills(stored.size // width, size, stride):
        out = np.empty(size, dtype)
        stored.data = out.reshape(-1).view(np.uint8)  # further tensors are copied from it
        machine.archive.read_into(stored.name, stored.data)
    else:
        raw = machine.numbers(stored, dtype)  # bytes, as ml_dtypes' numbers are not buffers
        steps = [s * width for s in stride]
        out = np.ndarray(size, dtype, raw, offset * width, steps).copy(order="C")
    return check_values("torch_files.load", out)


def _fills(count: int, size: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether a tensor consists of all `count` numbers of a storage, in order."""
    step = 1
    for n, s in zip(reversed(size), reversed(stride), strict=True):
        if n != 1 and s != step:
            return False
        step *= n
    return step == count


def _from_type(machine: _Tensors, function: Any, kind: Any, arguments: Any, state: Any) -> Any:
    """Return a tensor without the additional attributes that the file stores for it."""
    if getattr(function, "text", "") not in _REBUILDERS or type(arguments) is not tuple:
        fail("a tensor and its parts", shown(function))
    if getattr(kind, "text", "") not in _TENSOR_TYPES:
        fail("a torch.Tensor or a Parameter", shown(kind))
    return machine.applied(function, arguments)


def _parameter(machine: _Tensors, data: Any, *rest: Any) -> np.ndarray:
    if not isinstance(data, np.ndarray):
        fail("a tensor in a Parameter", shown(data))
    return data


def _size(machine: _Tensors, sizes: Any = ()) -> tuple[int, ...]:
    element_count("torch_files.load", sizes, 1)
    return tuple(sizes)


def _device(machine: _Tensors, kind: Any = "", index: Any = None) -> str:
    if type(kind) is not str or not (index is None or (type(index) is int and index < 2**31)):
        fail("the name and number of a device", f"{brief(kind)}, {brief(index)}")
    return kind if index is None else f"{kind}:{index}"


def _encoded(machine: _Tensors, text: Any, coding: Any) -> bytes:
    """Return bytes, which pickles of protocol 2 write as encoded text."""
    if type(text) is not str or coding != "latin1":
        fail("bytes written as latin1", brief(coding))
    machine.charge(len(text))
    return text.encode("latin1")


def _pairs(machine: _Tensors, pairs: Any) -> dict:
    """Make a dict from another dict or from a list of pairs."""
    if isinstance(pairs, dict):
        return machine.put({}, pairs.items())
    listed = type(pairs) in (list, tuple)
    if not listed or not all(type(p) in (list, tuple) and len(p) == 2 for p in pairs):
        fail("pairs of keys and values", shown(pairs))
    return machine.put({}, pairs)


def _set(machine: _Tensors, items: Any = ()) -> set:
    if type(items) not in (list, tuple, set, frozenset):
        fail("the items of a set", shown(items))
    return machine.add(set(), items)


def _complex(machine: _Tensors, real: Any, imag: Any) -> complex:
    if not all(type(x) in (int, float) for x in (real, imag)):
        fail("two numbers of a complex one", f"{shown(real)}, {shown(imag)}")
    return complex(real, imag)


_REBUILDERS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_of_dtype,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
}
_BUILDERS: dict[str, Callable[..., Any]] = {
    **_REBUILDERS,
    "torch._tensor._rebuild_from_type_v2": _from_type,
    "torch.Size": _size,
    "torch.device": _device,
    "collections.OrderedDict": lambda m, pairs=(): _pairs(m, pairs),
    "collections.defaultdict": lambda m, factory=None, pairs=(): _pairs(m, pairs),
    "collections.Counter": lambda m, counts=(): collections.Counter(_pairs(m, counts)),
    "_codecs.encode": _encoded,
    "builtins.set": _set,
    "builtins.frozenset": lambda m, items=(): frozenset(_set(m, items)),
    "builtins.complex": _complex,
    "builtins.bytes": lambda m: b"",
}
_BUILDERS |= {
    name.replace("builtins", "__builtin__"): builder
    for name, builder in _BUILDERS.items()
    if name.startswith("builtins")
}
# These names may only be arguments: nothing is built from them. The containers are factories of
# defaultdict.
_ARGUMENTS = {
    *_TENSOR_TYPES, _UNTYPED, *(f"torch.{kind}Storage" for kind in _STORAGES),
    *(f"{module}.{kind}" for module in ("builtins", "__builtin__")
      for kind in ("int", "float", "list", "dict")),
}  # fmt: skip


def _refuse(names: list[str]) -> Any:
    """Raise an error that lists all unknown names."""
    foreign = [n[:200] for n in names if not _is_known(n)]
    hint = "in torch, save model.state_dict(), a tree of tensors, not the object itself"
    if any("sparse" in n or "qtensor" in n for n in foreign):
        hint = "in torch, make tensors dense and unquantized: x.to_dense(), x.dequantize()"
    told = ", ".join(foreign[:50]) + f" and {len(foreign) - 50} more" * (len(foreign) > 50)
    raise UnreadableFileError(
        f"torch_files.load: needed a tree of tensors, refused to build {told} ({hint}){here()}"
    )


def _is_known(name: str) -> bool:
    return name in _BUILDERS or name in _ARGUMENTS or _dtype_named(name) is not None


def _dtype_named(name: str) -> np.dtype | None:
    module, _, last = name.rpartition(".")
    return np.dtype(_DTYPES[last]) if module == "torch" and last in _DTYPES else None


def array_of(x: Any) -> np.ndarray:
    """Convert an entry of a state dict, which may be a torch tensor, to a NumPy array."""
    kind = str(getattr(x, "dtype", ""))
    if not kind.startswith("torch."):
        return np.asarray(x)
    x = x.detach().cpu()
    try:
        return np.asarray(x)
    except TypeError:  # dtypes that NumPy lacks fit into float32
        return np.asarray(x.float()).astype(_DTYPES[kind.removeprefix("torch.")])
