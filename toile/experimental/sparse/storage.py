"""The base class of all sparse formats, `JAXSparse`, and the storage classes of BCOO and BCSR.

The functions of this package accept instances of these classes, and return arrays of the same class
as their operand. The public classes, such as `BCOO`, add methods that call these functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, NoReturn, TypeVar

import toile.numpy as jnp
from toile.engine.annotations import Array
from toile.engine.source import here
from toile.engine.trace import Tracer

Shape = tuple[int, ...]
S = TypeVar("S", bound="BatchedStorage")


class SparseEfficiencyError(ValueError):
    """The error for an operation that would store many more elements than the sparse array has."""


class SparseEfficiencyWarning(UserWarning):
    """The warning for an operation that stores many more elements than the sparse array has."""


class CuSparseEfficiencyWarning(SparseEfficiencyWarning):
    """A warning of JAX about cuSPARSE; it exists only for compatibility and is never issued."""


class SparseInfo(NamedTuple):
    """The static part of a sparse array.

    Args:
        shape: shape of the dense array.
        indices_sorted: whether the indices are known to be in lexicographic order.
        unique_indices: whether it is known that no two stored elements have the same index.
    """

    shape: Shape
    indices_sorted: bool = False
    unique_indices: bool = False


class BCOOProperties(NamedTuple):
    """The numbers of axes and of stored elements of a BCOO array.

    Args:
        n_batch: number of batch axes.
        n_sparse: number of sparse axes.
        n_dense: number of dense axes.
        nse: number of stored elements in each batch.
    """

    n_batch: int
    n_sparse: int
    n_dense: int
    nse: int


class BCSRProperties(NamedTuple):
    """The numbers of batch axes, dense axes and stored elements of a BCSR array.

    Args:
        n_batch: number of batch axes.
        n_dense: number of dense axes.
        nse: number of stored elements in each batch.
    """

    n_batch: int
    n_dense: int
    nse: int


def _missing(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"{type(self).__name__}.{name} is not defined: got {self!r} (use a BCOO array, or "
            f"todense()){here()}"
        )

    return method


class JAXSparse:
    """The base class of sparse arrays.

    Args:
        args: the buffers.
        shape: shape of the dense array.
    """

    data: Any
    shape: Shape
    buffers: ClassVar[tuple[str, ...]]  # the attributes with arrays, the leaves of the tree
    static: ClassVar[tuple[str, ...]] = ("shape",)  # the other attributes
    __array_ufunc__ = None  # NumPy's operators leave the operation to this class

    def __init__(self, args: Sequence[Any], *, shape: Sequence[int]):
        for name, value in zip(self.buffers, args, strict=True):
            setattr(self, name, jnp.asarray(value))
        self.shape = tuple(int(n) for n in shape)

    @property
    def _bufs(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.buffers)

    @property
    def _aux(self) -> dict[str, Any]:
        """The static attributes, by name."""
        return {name: self.__dict__[name] for name in self.static}

    def tree_flatten(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the buffers and the static part, as `tree_util` requires."""
        return self._bufs, self._aux

    @classmethod
    def tree_unflatten(cls, aux_data: dict[str, Any], children: Sequence[Any]) -> Any:
        """Create an array from its buffers and its static part, without checks."""
        if aux_data.keys() != set(cls.static):
            raise ValueError(
                f"{cls.__name__}.tree_unflatten: invalid aux_data, needed {list(cls.static)}, got "
                f"{list(aux_data)}{here()}"
            )
        made = object.__new__(cls)
        made.__dict__.update(zip(cls.buffers, children, strict=True))
        made.__dict__.update(aux_data)
        return made

    @property
    def nse(self) -> int:
        """The number of stored elements."""
        return self.data.size

    @property
    def dtype(self) -> Any:
        """The dtype of the elements."""
        return self.data.dtype

    @property
    def size(self) -> int:
        """The number of elements of the dense array."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def T(self) -> Any:
        """The transpose."""
        return self.transpose()

    def __len__(self) -> int:
        return self.shape[0]

    def __eq__(self, other: Any) -> Any:  # arrays have no hash
        return self is other

    def _sizes(self) -> dict[str, int]:
        return {"nse": self.nse}

    def __repr__(self) -> str:
        name = type(self).__name__
        try:
            sizes = "".join(f", {key}={n}" for key, n in self._sizes().items())
            text = f"{name}({self.dtype}{list(self.shape)}{sizes})"
        except Exception:  # of a tree whose leaves are not arrays
            text = f"{name}(<invalid>)"
        return f"{type(self.data).__name__}[{text}]" if isinstance(self.data, Tracer) else text

    def block_until_ready(self) -> Any:
        """Wait until the buffers have been computed, and return the array."""
        for buffer in self._bufs:
            buffer.block_until_ready()
        return self

    def todense(self) -> Array:
        """Return the dense array."""
        raise NotImplementedError(f"{type(self).__name__}.todense: use a subclass{here()}")

    def transpose(self, axes: Sequence[int] | None = None) -> Any:
        """Return the transpose."""
        raise NotImplementedError(
            f"{type(self).__name__}.transpose is not defined (use a BCOO array){here()}"
        )

    sum, __neg__, __pos__, __matmul__, __rmatmul__, __mul__, __rmul__ = map(
        _missing, "sum __neg__ __pos__ __matmul__ __rmatmul__ __mul__ __rmul__".split())
    __add__, __radd__, __sub__, __rsub__, __getitem__ = map(
        _missing, "__add__ __radd__ __sub__ __rsub__ __getitem__".split())


class BatchedStorage(JAXSparse):
    """The buffers of a BCOO or BCSR array, with batch, sparse and dense axes."""

    static = SparseInfo._fields
    indices: Any
    indices_sorted: bool
    unique_indices: bool

    def __init__(self, args: Sequence[Any], *, shape: Sequence[int],
                 indices_sorted: bool = False, unique_indices: bool = False):
        super().__init__(args, shape=shape)
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        self._check()

    def _check(self) -> None:
        """Raise an error if the shapes of the buffers do not fit together."""

    @property
    def _info(self) -> SparseInfo:
        return SparseInfo(self.shape, self.indices_sorted, self.unique_indices)

    @property
    def n_batch(self) -> int:
        """The number of batch axes, which come first."""
        raise NotImplementedError

    @property
    def n_sparse(self) -> int:
        """The number of sparse axes, which come after the batch axes."""
        return 2

    @property
    def n_dense(self) -> int:
        """The number of dense axes, which come last."""
        return self.data.ndim - 1 - self.n_batch

    def _sizes(self) -> dict[str, int]:
        found = {"nse": self.nse, "n_batch": self.n_batch, "n_dense": self.n_dense}
        return {name: n for name, n in found.items() if n or name == "nse"}

    def _with_data(self: S, data: Any) -> S:
        """Return an array with other values at the same indices."""
        return type(self)((data, *self._bufs[1:]), **self._aux)

    def _with_shape(self: S, shape: Shape) -> S:
        """Return an array with the same buffers and another shape, without checks."""
        return self.tree_unflatten({**self._aux, "shape": shape}, self._bufs)


def check_bcoo(indices: Any, shape: Sequence[int], data: Any = None) -> BCOOProperties:
    """The properties of a BCOO array; raises an error if its buffers do not fit together."""
    n_batch, (nse, n_sparse) = indices.ndim - 2, indices.shape[-2:]
    n_dense = len(shape) - n_batch - n_sparse
    if not jnp.issubdtype(indices.dtype, jnp.integer) or n_dense < 0:
        raise ValueError(
            f"BCOO: needed integer indices with at most one column for each axis of {shape}, got "
            f"{indices.dtype}{list(indices.shape)}{here()}"
        )
    _check_batch("indices", indices.shape, shape, n_batch)
    if data is not None:
        _check_batch("data", data.shape, shape, n_batch)
        wanted = (nse, *shape[n_batch + n_sparse :])
        if data.shape[n_batch:] != wanted:
            raise ValueError(
                f"Invalid data.shape={data.shape} for nse={nse}, n_batch={n_batch}, "
                f"n_dense={n_dense}: after the batch axes, it must be {wanted}{here()}"
            )
    return BCOOProperties(n_batch, n_sparse, n_dense, nse)


def check_bcsr(indices: Any, indptr: Any, shape: Sequence[int], data: Any = None) -> BCSRProperties:
    """The properties of a BCSR array; raises an error if its buffers do not fit together."""
    n_batch, nse = indices.ndim - 1, indices.shape[-1]
    n_dense = len(shape) - n_batch - 2
    if n_dense < 0 or not all(jnp.issubdtype(x.dtype, jnp.integer) for x in (indices, indptr)):
        raise ValueError(
            f"BCSR: needed integer indices and two sparse axes in {shape}, got "
            f"{indices.dtype}{list(indices.shape)} and {indptr.dtype}{list(indptr.shape)}{here()}"
        )
    _check_batch("indices", indices.shape, shape, n_batch)
    _check_batch("indptr", indptr.shape, shape, n_batch)
    if indptr.shape[n_batch:] != (shape[n_batch] + 1,):
        raise ValueError(
            f"indptr shape must match the matrix shape plus 1: needed {shape[n_batch] + 1} "
            f"elements for {shape}, got {indptr.shape}{here()}"
        )
    if data is not None:
        _check_batch("data", data.shape, shape, n_batch)
        wanted = (nse, *shape[n_batch + 2 :])
        if data.shape[n_batch:] != wanted:
            raise ValueError(
                f"Invalid data.shape={data.shape} for nse={nse}, n_batch={n_batch}, "
                f"n_dense={n_dense}: after the batch axes, it must be {wanted}{here()}"
            )
    return BCSRProperties(n_batch, n_dense, nse)


def _check_batch(name: str, given: Shape, shape: Sequence[int], n_batch: int) -> None:
    if any(n not in (1, m) for n, m in zip(given[:n_batch], shape)):
        raise ValueError(
            f"{name} batch dimensions not compatible for {name}.shape={given}, "
            f"shape={tuple(shape)} (each must be 1 or as in the shape){here()}"
        )


class BCOOStorage(BatchedStorage):
    """The values and index vectors of a BCOO array."""

    buffers = ("data", "indices")

    def _check(self) -> None:
        check_bcoo(self.indices, self.shape, self.data)

    @property
    def nse(self) -> int:
        """The number of stored elements in each batch."""
        return self.indices.shape[-2]

    @property
    def n_batch(self) -> int:
        """The number of batch axes, which come first."""
        return self.indices.ndim - 2

    @property
    def n_sparse(self) -> int:
        """The number of sparse axes, which come after the batch axes."""
        return self.indices.shape[-1]

    @property
    def _axes(self) -> BCOOProperties:
        """The numbers of axes and of stored elements."""
        return BCOOProperties(self.n_batch, self.n_sparse, self.n_dense, self.nse)

    @property
    def _sparse_shape(self) -> Shape:
        """The sizes of the sparse axes."""
        return self.shape[self.n_batch : self.n_batch + self.n_sparse]


class BCSRStorage(BatchedStorage):
    """The values, column indices and row pointers of a BCSR array."""

    buffers = ("data", "indices", "indptr")
    indptr: Any

    def _check(self) -> None:
        check_bcsr(self.indices, self.indptr, self.shape, self.data)

    @property
    def nse(self) -> int:
        """The number of stored elements in each batch."""
        return self.indices.shape[-1]

    @property
    def n_batch(self) -> int:
        """The number of batch axes, which come first."""
        return self.indices.ndim - 1

    def to_bcoo(self) -> BCOOStorage:
        """Return the array in BCOO format."""
        raise NotImplementedError

    @classmethod
    def from_bcoo(cls, arr: BCOOStorage) -> Any:
        """Create an array from an array in BCOO format."""
        raise NotImplementedError
