"""Files that `torch.save` wrote, read without torch and without trusting them.

Such a file is a zip archive of a pickle and of one entry of raw bytes for each storage. The pickle
is not given to Python's unpickler: a small machine here runs the few instructions that trees of
tensors need. Names of functions and classes stay names, and what is made of them is looked up in
one table (`_BUILDERS`), so that nothing a file says is ever imported or called.
"""

from __future__ import annotations

import collections
import math
import os
import pickletools
import zipfile
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from toile import io
from toile.engine.source import here

__all__ = ["load"]

_DTYPES = {
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "complex64": np.complex64,
    "complex128": np.complex128,
    "int64": np.int64,
    "int32": np.int32,
    "int16": np.int16,
    "int8": np.int8,
    "uint64": np.uint64,
    "uint32": np.uint32,
    "uint16": np.uint16,
    "uint8": np.uint8,
    "bool": np.bool_,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "float8_e8m0fnu": ml_dtypes.float8_e8m0fnu,
}
_STORAGES = {
    "Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16",
    "ComplexFloat": "complex64", "ComplexDouble": "complex128", "Long": "int64", "Int": "int32",
    "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool",
}  # fmt: skip
_UNTYPED = "torch.storage.UntypedStorage"
_TENSOR_TYPES = ("torch._tensor.Tensor", "torch.Tensor", "torch.nn.parameter.Parameter")


class _Name(NamedTuple):
    """A function or class that a pickle names; never the thing itself."""

    text: str


class _Storage(NamedTuple):
    """Raw bytes, and what they are numbers of (None: each tensor says)."""

    data: bytes
    dtype: np.dtype | None


class _Mark:
    """Where the items of a tuple, list or dict begin on the stack."""


_MARK = _Mark()


def load(file: str | os.PathLike[str] | Any) -> Any:
    """What `torch.save` wrote into a file: dicts, lists, tuples, numbers, texts, and NumPy arrays.

    `file` is a path or an open binary file. Arrays are contiguous, writable and share no memory.
    Anything that is no tree of tensors (a whole module, an optimizer's own classes) is refused by
    the name of what it would have to build: save `model.state_dict()` instead.
    """
    if hasattr(file, "read"):
        return _load(file, "the file")
    path = os.fspath(file)
    with io.GFile(path, "rb") as opened:
        return _load(opened, path)


def _load(file: Any, path: str) -> Any:
    try:
        archive = zipfile.ZipFile(file)
    except zipfile.BadZipFile as error:
        file.seek(0)
        raise ValueError(_not_a_zip(file.read(32), path, error)) from None
    with archive:
        try:
            return _read(archive, path)
        except _CORRUPTED as error:
            raise ValueError(
                f"torch_files.load: needed a whole file of torch.save, got {path}, which is"
                f" corrupted: {error}{here()}"
            ) from error


# What a damaged archive, or one that is encrypted, makes zipfile and the machine raise.
_CORRUPTED = (
    zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError,
    LookupError, AttributeError,
)  # fmt: skip


def _read(archive: zipfile.ZipFile, path: str) -> Any:
    """The tree in an archive."""
    entries = archive.namelist()
    top = entries[0].partition("/")[0] if entries else ""
    if f"{top}/constants.pkl" in entries:
        _fail(
            f"a file of torch.save, got {path}, a TorchScript archive (where torch is:"
            " torch.save(torch.jit.load(path).state_dict(), new_path))"
        )
    if f"{top}/data.pkl" not in entries:
        have = ", ".join(entries[:4]) or "nothing"
        _fail(f"a file of torch.save, with data.pkl in it, got {path}, a zip file of {have}")
    order = archive.read(f"{top}/byteorder") if f"{top}/byteorder" in entries else b"little"

    def storage(key: str) -> bytes:
        return archive.read(f"{top}/data/{key}")

    return _Machine(storage, order.strip() == b"big").run(archive.read(f"{top}/data.pkl"))


def _not_a_zip(start: bytes, path: str, error: Exception) -> str:
    rewrite = "where torch is: torch.save(torch.load(path), new_path)"
    if start[:2] == b"\x80\x02":
        kind = f"the format of torch before 1.6, or another pickle ({rewrite})"
    elif start[:2] == b"PK":
        kind = f"a truncated or corrupted one ({error})"
    elif start[8:9] == b"{":
        kind = "perhaps a safetensors file (toile.interop.safetensors.load_file)"
    else:
        kind = f"something else ({rewrite})"
    return f"torch_files.load: needed a zip file of torch.save, got {path}: {kind}{here()}"


def _fail(what: str) -> Any:
    raise ValueError(f"torch_files.load: needed {what}{here()}")


class _Machine:
    """Runs a pickle's instructions over a stack of plain values."""

    def __init__(self, storage: Callable[[str], bytes], big_endian: bool):
        self.read_storage, self.big_endian = storage, big_endian
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.storages: dict[str, bytes] = {}

    def run(self, text: bytes) -> Any:
        """The value that the pickle is of."""
        try:
            operations = list(pickletools.genops(text))
        except ValueError as error:
            _fail(f"a whole pickle, got one that is truncated or corrupted: {error}")
        # All names that are not known are told together; STACK_GLOBAL's are known only by running.
        names = {a.replace(" ", ".") for op, a, _ in operations if op.name == "GLOBAL"}
        _check_names(sorted(names))
        for operation, argument, _ in operations:
            if operation.name == "STOP":
                return self.stack.pop()
            if operation.name in _CONSTANTS:
                self.stack.append(_CONSTANTS[operation.name])
            elif operation.name in _LITERALS:
                self.stack.append(argument)
            elif operation.name in _STEPS:
                _STEPS[operation.name](self, argument)
            elif operation.name not in ("PROTO", "FRAME"):
                _fail(f"instructions of trees of tensors, got {operation.name} (no such file)")
        return _fail("a whole pickle, got one without an end")

    def popped(self, n: int) -> list[Any]:
        """The last n values, which leave the stack."""
        values = self.stack[-n:] if n else []
        if len(values) < n or any(v is _MARK for v in values):
            _fail("a whole pickle, got one that takes what is not there")
        del self.stack[len(self.stack) - n :]
        return values

    def marked(self) -> list[Any]:
        """The values since the last mark; they and the mark leave the stack."""
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
            if at < 0:
                _fail("a whole pickle, got one without a mark")
        values = self.stack[at + 1 :]
        del self.stack[at:]
        return values

    def name(self, text: str) -> None:
        """A name, or the dtype that it is the name of."""
        _check_names([text])
        dtype = _dtype_named(text)
        self.stack.append(_Name(text) if dtype is None else dtype)

    def reduce(self) -> None:
        """Apply a name to arguments: look up what we make of it."""
        name, arguments = self.popped(2)
        known = isinstance(name, _Name) and name.text in _BUILDERS
        if not known or type(arguments) is not tuple:
            _fail(f"a known function and its arguments, got {_short(name)}")
        self.stack.append(_build(self, name.text, arguments))

    def build(self) -> None:
        """Give an object its state. A state dict's notes on versions are all that may come."""
        target, _ = self.popped(2)
        if type(target) is not dict:
            _fail(f"a state for a dict, got one for {_short(target)}")
        self.stack.append(target)

    def persistent(self) -> None:
        """A storage: ("storage", type, key, device, count of elements)."""
        (row,) = self.popped(1)
        if type(row) is not tuple or len(row) != 5 or row[0] != "storage":
            _fail(f"the description of a storage, got {_short(row)}")
        kind, key = row[1], str(row[2])
        if key not in self.storages:
            self.storages[key] = self.read_storage(key)
        dtype = None
        if kind.text != _UNTYPED:
            dtype = np.dtype(_DTYPES[_STORAGES[kind.text.rpartition(".")[2][: -len("Storage")]]])
        self.stack.append(_Storage(self.storages[key], dtype))

    def numbers(self, storage: _Storage, dtype: np.dtype) -> np.ndarray:
        """A storage as a vector."""
        raw = np.frombuffer(storage.data, np.uint8)
        if raw.size % dtype.itemsize:
            _fail(f"whole numbers of {dtype}, got {raw.size} bytes (truncated?)")
        if self.big_endian and dtype.itemsize > 1:
            half = dtype.itemsize // (2 if dtype.kind == "c" else 1)  # each part by itself
            raw = raw.reshape(-1, half)[:, ::-1].reshape(-1)
        return raw.view(dtype)


_CONSTANTS: dict[str, Any] = {
    "NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": (), "MARK": _MARK,
}  # fmt: skip
_LITERALS = frozenset(
    "BININT BININT1 BININT2 LONG1 LONG4 BINFLOAT BINUNICODE SHORT_BINUNICODE BINUNICODE8"
    " BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8".split()
)


def _append(machine: _Machine, values: list[Any]) -> None:
    if type(machine.stack[-1]) is not list:
        _fail(f"a list to append to, got {_short(machine.stack[-1])}")
    machine.stack[-1].extend(values)


def _set_items(machine: _Machine, values: list[Any]) -> None:
    target = machine.stack[-1]
    if type(target) is not dict or len(values) % 2:
        _fail(f"a dict to put items in, got {_short(target)}")
    for key, value in zip(values[::2], values[1::2], strict=True):
        target[_hashable(key)] = value


def _hashable(key: Any) -> Any:
    try:
        hash(key)
    except TypeError:
        _fail(f"keys that can be hashed, got {_short(key)}")
    return key


def _add_items(machine: _Machine, values: list[Any]) -> None:
    if type(machine.stack[-1]) is not set:
        _fail(f"a set to add to, got {_short(machine.stack[-1])}")
    machine.stack[-1].update(map(_hashable, values))


def _stack_global(machine: _Machine) -> None:
    module, name = machine.popped(2)
    machine.name(f"{module}.{name}")


_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "GLOBAL": lambda m, a: m.name(a.replace(" ", ".")),
    "STACK_GLOBAL": lambda m, a: _stack_global(m),
    "EMPTY_LIST": lambda m, a: m.stack.append([]),
    "EMPTY_DICT": lambda m, a: m.stack.append({}),
    "EMPTY_SET": lambda m, a: m.stack.append(set()),
    "TUPLE1": lambda m, a: m.stack.append(tuple(m.popped(1))),
    "TUPLE2": lambda m, a: m.stack.append(tuple(m.popped(2))),
    "TUPLE3": lambda m, a: m.stack.append(tuple(m.popped(3))),
    "TUPLE": lambda m, a: m.stack.append(tuple(m.marked())),
    "LIST": lambda m, a: m.stack.append(m.marked()),
    "FROZENSET": lambda m, a: m.stack.append(frozenset(map(_hashable, m.marked()))),
    "APPEND": lambda m, a: _append(m, m.popped(1)),
    "APPENDS": lambda m, a: _append(m, m.marked()),
    "SETITEM": lambda m, a: _set_items(m, m.popped(2)),
    "SETITEMS": lambda m, a: _set_items(m, m.marked()),
    "ADDITEMS": lambda m, a: _add_items(m, m.marked()),
    "BINPUT": lambda m, a: m.memo.__setitem__(a, m.stack[-1]),
    "LONG_BINPUT": lambda m, a: m.memo.__setitem__(a, m.stack[-1]),
    "MEMOIZE": lambda m, a: m.memo.__setitem__(len(m.memo), m.stack[-1]),
    "BINGET": lambda m, a: m.stack.append(m.memo[a]),
    "LONG_BINGET": lambda m, a: m.stack.append(m.memo[a]),
    "BINPERSID": lambda m, a: m.persistent(),
    "REDUCE": lambda m, a: m.reduce(),
    "NEWOBJ": lambda m, a: m.reduce(),
    "BUILD": lambda m, a: m.build(),
}


def _tensor(
    machine: _Machine, storage: Any, offset: Any, size: Any, stride: Any, *rest: Any
) -> np.ndarray:
    """A tensor: a strided view of a storage, copied. `rest`: requires_grad, hooks, metadata."""
    if not isinstance(storage, _Storage) or storage.dtype is None:
        _fail(f"a tensor of a typed storage, got {_short(storage)}")
    numbers = machine.numbers(storage, storage.dtype)
    return _resolved(_strided(numbers, offset, size, stride), *rest[2:])


def _tensor_of_dtype(
    machine: _Machine, storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any,
    hooks: Any, dtype: Any, *rest: Any,
) -> np.ndarray:  # fmt: skip
    """A tensor of a dtype for which torch has no class of storages."""
    if not isinstance(storage, _Storage) or not isinstance(dtype, np.dtype):
        _fail(f"a tensor of an untyped storage, got {_short(storage)}, {_short(dtype)}")
    return _resolved(_strided(machine.numbers(storage, dtype), offset, size, stride), *rest)


def _resolved(x: np.ndarray, metadata: Any = None, *rest: Any) -> np.ndarray:
    """The tensor's values, where its storage holds their conjugates or negatives."""
    flags = metadata if type(metadata) is dict else {}
    x = np.conj(x) if flags.get("conj") is True else x
    return -x if flags.get("neg") is True else x


def _strided(numbers: np.ndarray, offset: Any, size: Any, stride: Any) -> np.ndarray:
    whole = (offset, *size, *stride)
    if len(size) != len(stride) or not all(type(n) is int and n >= 0 for n in whole):
        _fail(f"an offset, sizes and strides, got {offset}, {size}, {stride}")
    count = math.prod(size)
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if count and last >= numbers.size:
        _fail(f"a storage of more than {last} numbers, got {numbers.size} (truncated?)")
    if not count:
        return np.zeros(size, numbers.dtype)
    width = numbers.itemsize
    steps = [s * width for s in stride]
    raw = numbers.view(np.uint8)  # ml_dtypes' numbers are no buffers
    return np.ndarray(size, numbers.dtype, raw, offset * width, steps).copy(order="C")


def _from_type(machine: _Machine, function: Any, kind: Any, arguments: Any, state: Any) -> Any:
    """A tensor with attributes of its own, which are left out."""
    if not isinstance(function, _Name) or getattr(kind, "text", "") not in _TENSOR_TYPES:
        _fail(f"a torch.Tensor or a Parameter, got {_short(kind)}")
    return _build(machine, function.text, arguments)


def _encoded(machine: _Machine, text: Any, coding: Any) -> bytes:
    """How pickles of protocol 2 write bytes."""
    if type(text) is not str or coding != "latin1":
        _fail(f"bytes written as latin1, got {coding!r}")
    return text.encode("latin1")


def _ordered(machine: _Machine, pairs: Any = ()) -> dict:
    return dict(pairs)


def _counter(machine: _Machine, counts: Any = ()) -> Any:
    return collections.Counter(dict(counts))


_BUILDERS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_of_dtype,
    "torch._utils._rebuild_parameter": lambda m, data, *rest: data,
    "torch._utils._rebuild_parameter_with_state": lambda m, data, *rest: data,
    "torch._tensor._rebuild_from_type_v2": _from_type,
    "torch.Size": lambda m, sizes=(): tuple(sizes),
    "torch.device": lambda m, *parts: ":".join(map(str, parts)),
    "collections.OrderedDict": _ordered,
    "collections.defaultdict": lambda m, factory=None, pairs=(): dict(pairs),
    "collections.Counter": _counter,
    "_codecs.encode": _encoded,
    "builtins.set": lambda m, items=(): set(map(_hashable, items)),
    "builtins.frozenset": lambda m, items=(): frozenset(map(_hashable, items)),
    "builtins.complex": lambda m, real, imag: complex(real, imag),
    "builtins.bytes": lambda m: b"",
}
_BUILDERS |= {
    name.replace("builtins", "__builtin__"): builder
    for name, builder in _BUILDERS.items()
    if name.startswith("builtins")
}
# Known as arguments only: nothing is made of them. The containers are factories of defaultdict.
_ARGUMENTS = {
    *_TENSOR_TYPES, _UNTYPED, *(f"torch.{kind}Storage" for kind in _STORAGES),
    *(f"{module}.{kind}" for module in ("builtins", "__builtin__")
      for kind in ("int", "float", "list", "dict")),
}  # fmt: skip


def _build(machine: _Machine, name: str, arguments: Any) -> Any:
    try:
        return _BUILDERS[name](machine, *arguments)
    except (TypeError, OverflowError) as error:
        return _fail(f"the arguments of {name}, got others: {error}")


def _check_names(names: list[str]) -> None:
    foreign = [n for n in names if not _is_known(n)]
    if foreign:
        hint = "in torch, save model.state_dict(), a tree of tensors, not the object itself"
        if any("sparse" in n or "qtensor" in n for n in foreign):
            hint = "in torch, make tensors dense and unquantized: x.to_dense(), x.dequantize()"
        _fail(f"a tree of tensors, refused to build {', '.join(foreign)} ({hint})")


def _is_known(name: str) -> bool:
    return name in _BUILDERS or name in _ARGUMENTS or _dtype_named(name) is not None


def _dtype_named(name: str) -> np.dtype | None:
    module, _, last = name.rpartition(".")
    return np.dtype(_DTYPES[last]) if module == "torch" and last in _DTYPES else None


def _short(x: Any) -> str:
    if isinstance(x, _Name):
        return x.text
    if isinstance(x, Mapping):
        return f"a dict of {len(x)}"
    return f"a {type(x).__name__}"


def array_of(x: Any) -> np.ndarray:
    """A NumPy array of an entry of a state dict, be it a live torch tensor."""
    kind = str(getattr(x, "dtype", ""))
    if not kind.startswith("torch."):
        return np.asarray(x)
    x = x.detach().cpu()
    try:
        return np.asarray(x)
    except TypeError:  # dtypes that NumPy lacks fit into float32
        return np.asarray(x.float()).astype(_DTYPES[kind.removeprefix("torch.")])
