"""Functions that store exported functions in files and load them."""

from __future__ import annotations

import os
import tempfile
from typing import Any

from toile.engine.source import describe, here
from toile.export._exported import Exported, loaded


def save(path: str | os.PathLike[str], exported: Exported, *, vjp_order: int = 0) -> None:
    """Write an exported function to a file.

    The file is replaced atomically: if the process is interrupted, the previous file is kept.

    Args:
        path: path of the file.
        exported: the function.
        vjp_order: as for `Exported.serialize`.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "double.toile")
    >>> toile.export.save(path, toile.export.export(toile.jit(lambda x: 2 * x))(1.0))
    >>> float(toile.export.load(path).call(4.0))
    8.0
    """
    if not isinstance(exported, Exported):
        raise TypeError(
            f"toile.export.save: needed an Exported, got {describe(exported)} (write "
            f"export(jit(f))(*args) first){here()}")
    content: Any = exported.serialize(vjp_order)
    name = os.fspath(path)
    folder = os.path.dirname(os.path.abspath(name))
    descriptor, aside = tempfile.mkstemp(dir=folder, prefix=f".{os.path.basename(name)}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(aside, 0o666 & ~_umask())
        os.replace(aside, name)
    except BaseException:
        os.unlink(aside)
        raise


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current


def load(path: str | os.PathLike[str]) -> Exported:
    """Read an exported function from a file.

    Args:
        path: path of a file that `save` wrote.

    Returns:
        The function.

    Raises:
        UnreadableFileError: the file does not contain an exported function, is damaged, or was
            written by a newer version of toile. The error is a ValueError.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "sine.toile")
    >>> toile.export.save(path, toile.export.export(toile.jit(jnp.sin))(1.0))
    >>> toile.export.load(path).fun_name
    'sin'
    """
    with open(path, "rb") as file:
        return loaded(file.read(), os.fspath(path))
