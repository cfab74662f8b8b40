"""Type promotion: JAX's lattice of dtypes with weak int, float and complex nodes.

`dtypes` re-exports this module. A node is an `np.dtype`, or one of the Python types `int`, `float`
and `complex`, which stand for weakly typed values. The least upper bound of two operands is cached
once it has been computed, since every eager operator needs it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from toile.engine.config import flags
from toile.engine.errors import ShapeError
from toile.engine.source import here

if TYPE_CHECKING:
    from toile.engine.annotations import DTypeLike

Node = Any  # np.dtype, or one of WEAK
Pair = tuple[Any, bool]  # (dtype, weakly typed)


def _dtypes(*names: str) -> tuple[np.dtype, ...]:
    """The named dtypes; names that only some versions of ml_dtypes know are left out."""
    scalar_types = (getattr(np, n, None) or getattr(ml_dtypes, n, None) for n in names)
    return tuple(np.dtype(t) for t in scalar_types if t is not None)


BOOL = np.dtype(bool)
NARROW_UNSIGNED = _dtypes("uint1", "uint2", "uint4")
NARROW_SIGNED = _dtypes("int1", "int2", "int4")
UNSIGNED = NARROW_UNSIGNED + _dtypes("uint8", "uint16", "uint32", "uint64")
SIGNED = NARROW_SIGNED + _dtypes("int8", "int16", "int32", "int64")
NARROW_FLOATS = _dtypes(
    *("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3"),
    *("float8_e8m0fnu", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
    *("float8_e5m2", "float8_e5m2fnuz"),
)
FLOATS = NARROW_FLOATS + _dtypes("bfloat16", "float16", "float32", "float64")
COMPLEXES = _dtypes("complex64", "complex128")
NUMERIC = frozenset((*SIGNED, *UNSIGNED, *FLOATS, *COMPLEXES))
CUSTOM_FLOATS = frozenset(FLOATS[:-3])
NARROW_INTEGERS = frozenset(NARROW_SIGNED + NARROW_UNSIGNED)
WEAK: tuple[type, ...] = (int, float, complex)
# One letter per dtype, like np.dtype.kind, which however is 'V' for some of ml_dtypes' types.
KIND_LETTERS: dict[Any, str] = {
    dt: letter
    for letter, family in zip("buifc", ((BOOL,), UNSIGNED, SIGNED, FLOATS, COMPLEXES), strict=True)
    for dt in family
}

NARROWED: dict[np.dtype, np.dtype] = {
    np.dtype("int64"): np.dtype("int32"),
    np.dtype("uint64"): np.dtype("uint32"),
    np.dtype("float64"): np.dtype("float32"),
    np.dtype("complex128"): np.dtype("complex64"),
}
_WEAK_DTYPES = {
    int: np.dtype("int64"),
    float: np.dtype("float64"),
    complex: np.dtype("complex128"),
}


class TypePromotionError(ValueError):
    """The operands have no common dtype under the current promotion rules."""


class _Lattice:
    """A partial order of nodes; `above[n]` is the bit set of every node at or above `n`.

    Nodes are numbered so that each comes before all those above it. The lowest bit of the common
    upper bounds is then the only candidate for the least one, and it is the least exactly when
    everything in the common set is above it.
    """

    def __init__(self, edges: dict[Node, Sequence[Node]]) -> None:
        order: list[Node] = []
        seen: set[Node] = set()  # by hash: np.dtype('int64') == int, but their hashes differ

        def visit(node: Node) -> None:
            if node not in seen:
                seen.add(node)
                for upper in edges[node]:
                    visit(upper)
                order.append(node)

        for node in edges:
            visit(node)
        self.nodes = order[::-1]
        self.above: dict[Node, int] = {}
        for position, node in enumerate(order, 1):  # greatest first: `above` has the uppers
            bits = 1 << (len(order) - position)
            for upper in edges[node]:
                bits |= self.above[upper]
            self.above[node] = bits

    def join(self, nodes: Iterable[Node]) -> Node | None:
        """Least upper bound of `nodes`, or None where there is none."""
        common = -1
        for node in nodes:
            common &= self.above[node]
        if not common:
            return None
        least = self.nodes[(common & -common).bit_length() - 1]
        return least if not common & ~self.above[least] else None


def _standard_edges(x64: bool) -> dict[Node, Sequence[Node]]:
    u8, u16, u32, u64 = UNSIGNED[-4:]
    i8, i16, i32, i64 = SIGNED[-4:]
    bf16, f16, f32, f64 = FLOATS[-4:]
    c64, c128 = COMPLEXES
    narrow = (*NARROW_UNSIGNED, *NARROW_SIGNED, *NARROW_FLOATS)
    return {
        BOOL: [int],
        int: [u8, i8, *NARROW_UNSIGNED, *NARROW_SIGNED],
        u8: [i16, u16],
        u16: [i32, u32],
        # Without x64, uint32 with int32 must stay within the 32-bit types.
        u32: [i64 if x64 else i32, u64],
        u64: [float],
        i8: [i16],
        i16: [i32],
        i32: [i64],
        i64: [float],
        float: [*NARROW_FLOATS, bf16, f16, complex],
        bf16: [f32],
        f16: [f32],
        f32: [f64, c64],
        f64: [c128],
        complex: [c64],
        c64: [c128],
        c128: [],
        **{node: [] for node in narrow},  # never promoted implicitly
    }


def _strict_edges() -> dict[Node, Sequence[Node]]:
    return {
        BOOL: [],
        int: [float, *UNSIGNED, *SIGNED],
        float: [complex, *FLOATS],
        complex: COMPLEXES,
        **{node: [] for node in (*UNSIGNED, *SIGNED, *FLOATS, *COMPLEXES)},
    }


_STRICT = _Lattice(_strict_edges())
_LATTICES = {
    ("standard", True): _Lattice(_standard_edges(x64=True)),
    ("standard", False): _Lattice(_standard_edges(x64=False)),
    ("strict", True): _STRICT,
    ("strict", False): _STRICT,
}


def least_upper_bound(*nodes: Node) -> Node:
    """Least node of the current lattice that is at or above all `nodes`."""
    mode = flags.numpy_dtype_promotion
    lattice = _LATTICES[mode, flags.enable_x64]
    for node in nodes:
        if node not in lattice.above:
            met = ", ".join(
                str(narrowed(_WEAK_DTYPES[n]) if isinstance(n, type) else n) for n in nodes
            )
            raise ShapeError(
                f"dtype={node} is not a valid dtype for type promotion: arithmetic does not accept "
                f"dtypes {met} (needed numbers; random keys have no arithmetic, see "
                f"toile.random.fold_in and key_data){here()}"
            )
    join = lattice.join(nodes)
    if join is None:
        raise TypePromotionError(_no_path(nodes, mode) + here())
    return join


def _no_path(nodes: Sequence[Node], mode: str) -> str:
    names = tuple(n.__name__ + "*" if isinstance(n, type) else str(n) for n in nodes)
    message = f"Input dtypes {names} have no available implicit dtype promotion path"
    if mode == "strict":
        return (
            f"{message} when jax_numpy_dtype_promotion=strict (cast the inputs explicitly, or "
            "set jax_numpy_dtype_promotion=standard)."
        )
    for family, info, kind, example in (
        (NARROW_FLOATS, ml_dtypes.finfo, "floats", "float32"),
        (NARROW_INTEGERS, ml_dtypes.iinfo, "integers", "int32"),
    ):
        narrow = next((n for n in nodes if n in family), None)
        if narrow is not None:
            return (
                f"{message}: {info(narrow).bits}-bit {kind} do not support implicit promotion"
                f" (use e.g. x.astype('{example}'))."
            )
    return f"{message} (cast the inputs to the desired output type)."


def promote_types(a: DTypeLike, b: DTypeLike) -> np.dtype:
    """Return the dtype to which a binary operation converts operands of two given dtypes.

    Args:
        a, b: dtypes, scalar types or names. If one of them is the Python type int, float or complex
            and the other is a dtype of the same kind, the result is that dtype, as for Python
            numbers in arithmetic.

    Returns:
        The dtype.

    Raises:
        TypePromotionError: the two dtypes have no common dtype.

    Differences:
        NumPy prefers dtypes that can represent every value: it promotes int32 and float32 to
        float64, whereas toile promotes them to float32.

    >>> jnp.promote_types("int32", "float32")
    dtype('float32')
    """
    nodes = [t if any(t is w for w in WEAK) else np.dtype(t) for t in (a, b)]
    return np.dtype(least_upper_bound(*nodes))


# Widths under x64.


def narrowed(dtype: np.dtype) -> np.dtype:
    """`dtype`, or its 32-bit counterpart when it has 64 bits and x64 is off."""
    return dtype if flags.enable_x64 else NARROWED.get(dtype, dtype)


def user_stack_level() -> int:
    """The `stacklevel` that makes the caller's warning point at the first line outside toile."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None:
        module = frame.f_globals.get("__name__", "")
        if module != "toile" and not module.startswith("toile."):
            break
        frame, level = frame.f_back, level + 1
    return level


def narrowed_on_request(dtype: np.dtype, fun_name: str = "") -> np.dtype:
    """`narrowed` for a dtype the user named: warns or raises, as `explicit_x64_dtypes` says."""
    if flags.enable_x64 or dtype not in NARROWED or flags.explicit_x64_dtypes == "allow":
        return dtype
    where = f" requested in {fun_name}" if fun_name else ""
    message = f"Explicitly requested dtype {dtype}{where} is not available"
    advice = (
        "To enable more dtypes, set the jax_enable_x64 configuration option or the "
        "JAX_ENABLE_X64 shell environment variable."
    )
    if flags.explicit_x64_dtypes == "error":
        raise ValueError(f"{message}. {advice}{here()}")
    result = NARROWED[dtype]
    warnings.warn(
        f"{message}, and will be truncated to dtype {result}. {advice}",
        stacklevel=user_stack_level(),
    )
    return result


# Promotion of (dtype, weak) pairs.

_promoted: dict[tuple[Any, ...], Pair] = {}


def promote_pair(dt_a: Any, weak_a: bool, dt_b: Any, weak_b: bool) -> Pair:
    """The (dtype, weak) that two operands promote to; cached per promotion mode and x64."""
    key = (flags.enable_x64, flags.numpy_dtype_promotion, dt_a, weak_a, dt_b, weak_b)
    found = _promoted.get(key)
    return promote_many(((dt_a, weak_a), (dt_b, weak_b)), key) if found is None else found


def promote_many(pairs: Sequence[Pair], key: tuple[Any, ...] | None = None) -> Pair:
    """The (dtype, weak) that any number of operands promote to."""
    if key is None:
        key = (flags.enable_x64, flags.numpy_dtype_promotion, *(v for p in pairs for v in p))
        found = _promoted.get(key)
        if found is not None:
            return found
    node, weak = _common_node(pairs)
    if isinstance(node, type):
        node = narrowed(_WEAK_DTYPES[node])
    result = (node, weak and node != BOOL)
    # 64-bit values made under x64 and used outside it are truncated with a warning each time.
    if flags.enable_x64 or not any(dt in NARROWED for dt, _ in pairs):
        _promoted[key] = result
    return result


def _common_node(pairs: Sequence[Pair]) -> tuple[Any, bool]:
    """The lattice node that operands promote to, and whether it is weak."""
    first, weak = pairs[0]
    if len(pairs) == 1:
        return first, weak
    all_weak = all(w for _, w in pairs)
    if not all_weak and all(dt == first for dt, _ in pairs[1:]):
        return first, False  # also passes extended dtypes, which are not in the lattice
    if all_weak and flags.numpy_dtype_promotion != "strict":
        # The strong dtypes are joined: a weak int16 is treated as int16, but the result stays weak.
        return _joined(dict.fromkeys(dt for dt, _ in pairs)), True
    node = _joined(dict.fromkeys(_node(dt, w) for dt, w in pairs))
    return node, isinstance(node, type)


def _joined(nodes: Iterable[Node]) -> Node:
    """Least upper bound, narrowed to an enabled width."""
    node = least_upper_bound(*nodes)
    return node if isinstance(node, type) else narrowed_on_request(node, "dtype")


def _node(dtype: Any, weak: bool) -> Node:
    """The lattice node of a (dtype, weak) pair."""
    return _WEAK_NODES.get(KIND_LETTERS.get(dtype), dtype) if weak else dtype


_WEAK_NODES: dict[str | None, type] = {"i": int, "u": int, "f": float, "c": complex}


# Promotion of one dtype to a kind.

_TO_INEXACT: dict[np.dtype, np.dtype] = {
    dt: np.dtype("float64") if dt.itemsize == 8 else np.dtype("float32")
    for dt in (BOOL, *SIGNED, *UNSIGNED)
}


def to_numeric_dtype(dtype: Any) -> np.dtype:
    """int32 for bool, else `dtype`."""
    dtype = np.dtype(dtype)
    return np.dtype("int32") if dtype == BOOL else dtype


def to_inexact_dtype(dtype: Any) -> np.dtype:
    """The floating dtype that corresponds to an integer or bool dtype, else `dtype`."""
    dtype = np.dtype(dtype)
    return _TO_INEXACT.get(dtype, dtype)


def to_floating_dtype(dtype: Any) -> np.dtype:
    """`to_inexact_dtype`, with a complex dtype replaced by the dtype of its real part."""
    return dtype_to_real(to_inexact_dtype(dtype))


def to_complex_dtype(dtype: DTypeLike) -> np.dtype:
    """Return the complex dtype that corresponds to a dtype.

    Args:
        dtype: a numeric dtype.

    Returns:
        complex128 for 64-bit integers, float64 and complex128, otherwise complex64.
    """
    wide = to_inexact_dtype(dtype) in (np.dtype("float64"), np.dtype("complex128"))
    return np.dtype("complex128") if wide else np.dtype("complex64")


def dtype_to_real(dtype: Any) -> np.dtype:
    """The dtype of the real part: float32 for complex64, else `dtype`."""
    dtype = np.dtype(dtype)
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype
