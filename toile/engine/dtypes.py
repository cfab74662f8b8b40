"""Dtypes: scalar types such as `float32`, their kinds, and their widths with and without x64.

A dtype is an `np.dtype` (ml_dtypes supplies bfloat16, float8 and the narrow integers) or an
extended dtype such as `KeyDType`. The scalar types, such as `toile.numpy.float32`, are equal to
NumPy's, are accepted wherever a dtype is, and make an array when called. Promotion is implemented
in the module of that name, but is part of this module's interface.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from toile.engine import promotion
from toile.engine.config import flags
from toile.engine.extended import KEY_IMPLS as KEY_IMPLS
from toile.engine.extended import ExtendedDType as ExtendedDType
from toile.engine.extended import KeyDType as KeyDType
from toile.engine.extended import KeyImpl as KeyImpl
from toile.engine.extended import extended as extended
from toile.engine.extended import is_extended as is_extended
from toile.engine.extended import key_dtype as key_dtype
from toile.engine.extended import key_words as key_words
from toile.engine.extended import prng_key as prng_key
from toile.engine.promotion import TypePromotionError as TypePromotionError
from toile.engine.promotion import dtype_to_real as dtype_to_real
from toile.engine.promotion import narrowed_on_request
from toile.engine.promotion import promote_pair as promote_pair
from toile.engine.promotion import promote_types as promote_types
from toile.engine.promotion import to_complex_dtype as to_complex_dtype
from toile.engine.promotion import to_floating_dtype as to_floating_dtype
from toile.engine.promotion import to_inexact_dtype as to_inexact_dtype
from toile.engine.promotion import to_numeric_dtype as to_numeric_dtype
from toile.engine.source import describe, here
from toile.engine.suggestions import did_you_mean

if TYPE_CHECKING:
    from toile.engine.annotations import ArrayLike, DTypeLike

generic = np.generic
number = np.number
integer = np.integer
signedinteger = np.signedinteger
unsignedinteger = np.unsignedinteger
inexact = np.inexact
floating = np.floating
complexfloating = np.complexfloating
flexible = np.flexible
character = np.character
object_ = np.object_

iinfo = ml_dtypes.iinfo
finfo = ml_dtypes.finfo
can_cast = np.can_cast

# The tangent type of integers and booleans: a vector space with one point.
float0: np.dtype = np.dtype([("float0", np.void, 0)])


# Scalar types.

class ScalarMeta(type):
    """The metaclass of types such as `float32`, which stand for NumPy's types of the same name."""

    dtype: np.dtype

    @property
    def __numpy_dtype__(cls) -> np.dtype:
        return cls.dtype

    def __hash__(cls) -> int:
        return hash(cls.dtype.type)

    def __eq__(cls, other: object) -> bool:
        return cls is other or bool(cls.dtype.type == other)

    def __ne__(cls, other: object) -> bool:
        return not cls == other

    def __call__(cls, x: Any) -> Any:
        # Users call these types to make arrays, which needs the layer above (imported by then).
        return importlib.import_module("toile.numpy").asarray(x, cls.dtype)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.dtype.type)


def _scalar_type(scalar_type: type) -> Any:
    name = scalar_type.__name__.rstrip("_")
    body = {
        "dtype": np.dtype(scalar_type),
        "__module__": "toile.numpy",
        "__doc__": f"The {name} scalar type: a dtype, and a function that makes such an array.\n\n"
                   "Args:\n    x: array, number or nested sequence to convert.",
    }
    return ScalarMeta(name, (), body)


bool_ = _scalar_type(np.bool_)
uint2 = _scalar_type(ml_dtypes.uint2)
uint4 = _scalar_type(ml_dtypes.uint4)
uint8 = _scalar_type(np.uint8)
uint16 = _scalar_type(np.uint16)
uint32 = _scalar_type(np.uint32)
uint64 = uint = _scalar_type(np.uint64)
int2 = _scalar_type(ml_dtypes.int2)
int4 = _scalar_type(ml_dtypes.int4)
int8 = _scalar_type(np.int8)
int16 = _scalar_type(np.int16)
int32 = _scalar_type(np.int32)
int64 = int_ = _scalar_type(np.int64)
float4_e2m1fn = _scalar_type(ml_dtypes.float4_e2m1fn)
float6_e2m3fn = _scalar_type(ml_dtypes.float6_e2m3fn)
float6_e3m2fn = _scalar_type(ml_dtypes.float6_e3m2fn)
float8_e3m4 = _scalar_type(ml_dtypes.float8_e3m4)
float8_e4m3 = _scalar_type(ml_dtypes.float8_e4m3)
float8_e8m0fnu = _scalar_type(ml_dtypes.float8_e8m0fnu)
float8_e4m3b11fnuz = _scalar_type(ml_dtypes.float8_e4m3b11fnuz)
float8_e4m3fn = _scalar_type(ml_dtypes.float8_e4m3fn)
float8_e4m3fnuz = _scalar_type(ml_dtypes.float8_e4m3fnuz)
float8_e5m2 = _scalar_type(ml_dtypes.float8_e5m2)
float8_e5m2fnuz = _scalar_type(ml_dtypes.float8_e5m2fnuz)
bfloat16 = _scalar_type(ml_dtypes.bfloat16)
float16 = _scalar_type(np.float16)
float32 = single = _scalar_type(np.float32)
float64 = double = float_ = _scalar_type(np.float64)
complex64 = csingle = _scalar_type(np.complex64)
complex128 = cdouble = complex_ = _scalar_type(np.complex128)
if hasattr(ml_dtypes, "int1"):
    int1 = _scalar_type(ml_dtypes.int1)
    uint1 = _scalar_type(ml_dtypes.uint1)


# Kinds of dtypes.

_KINDS: dict[str, frozenset[np.dtype]] = {
    "bool": frozenset({promotion.BOOL}),
    "signed integer": frozenset(promotion.SIGNED),
    "unsigned integer": frozenset(promotion.UNSIGNED),
    "integral": frozenset(promotion.SIGNED + promotion.UNSIGNED),
    "real floating": frozenset(promotion.FLOATS),
    "complex floating": frozenset(promotion.COMPLEXES),
    "numeric": promotion.NUMERIC,
}
_INEXACT = _KINDS["real floating"] | _KINDS["complex floating"]
# The dtypes of arrays.
SUPPORTED: frozenset[np.dtype] = promotion.NUMERIC | {promotion.BOOL, float0}

# ml_dtypes' scalar types are outside NumPy's hierarchy; this gives their places in it.
_ANCESTORS: dict[type, frozenset[type]] = {
    dt.type: frozenset((dt.type, *line, number, generic))
    for family, line in (
        (promotion.CUSTOM_FLOATS, (floating, inexact)),
        (promotion.NARROW_SIGNED, (signedinteger, integer)),
        (promotion.NARROW_UNSIGNED, (unsignedinteger, integer)),
    )
    for dt in family
}


_subdtypes: dict[tuple[Any, Any], bool] = {}


def issubdtype(arg1: DTypeLike | ExtendedDType, arg2: DTypeLike | ExtendedDType) -> bool:
    """Test whether a dtype equals another dtype or belongs to a kind, such as the integers.

    Args:
        arg1: dtype or scalar type.
        arg2: dtype, scalar type such as `jnp.float32`, or kind: `jnp.integer`, `jnp.floating`,
            `jnp.inexact`, `jnp.number`, `toile.dtypes.prng_key` and so on.

    Returns:
        True if `arg1` equals `arg2` or is below `arg2` in NumPy's hierarchy of scalar types.

    Differences:
        In toile, bfloat16, float8 and narrow integers such as int4 belong to the hierarchy;
        `np.issubdtype` does not support them.

    >>> toile.dtypes.issubdtype(jnp.bfloat16, jnp.floating)
    True
    """
    a: Any = arg1
    b: Any = arg2
    try:
        return _subdtypes[a, b]
    except (KeyError, TypeError):  # TypeError: unhashable
        pass
    if not isinstance(a, (type, np.dtype, ExtendedDType)):
        a = np.dtype(a)
    if not isinstance(b, (type, np.dtype, ExtendedDType)):
        b = np.dtype(b)
    if isinstance(b, ExtendedDType):
        result = bool(a == b)
    else:
        lower, upper = _scalar_class(a), _scalar_class(b)
        result = upper in _ANCESTORS.get(lower, ()) or issubclass(lower, upper)
    _subdtypes[a, b] = result
    return result


def _scalar_class(x: Any) -> type:
    """The NumPy scalar type of a dtype, of a scalar type or of a Python type."""
    if isinstance(x, ExtendedDType):
        return x.type
    return x if isinstance(x, type) and issubclass(x, np.generic) else np.dtype(x).type


def isdtype(dtype: DTypeLike, kind: str | DTypeLike | tuple[str | DTypeLike, ...]) -> bool:
    """Test whether a dtype is of a given kind, as defined by the array API standard.

    Args:
        dtype: a dtype, or an array (its dtype is used).
        kind: "bool", "signed integer", "unsigned integer", "integral", "real floating",
            "complex floating" or "numeric"; a dtype; or a tuple of these.

    Returns:
        True if `dtype` is of one of the kinds.

    Raises:
        ValueError: `kind` is a string that names neither a kind nor a dtype.

    >>> jnp.isdtype("float16", ("integral", "real floating"))
    True
    """
    dtype = np.dtype(dtype)
    for each in kind if isinstance(kind, tuple) else (kind,):
        if isinstance(each, str) and each in _KINDS:
            matches = dtype in _KINDS[each]
        else:
            try:
                matches = dtype == np.dtype(each)
            except TypeError as error:
                if isinstance(each, str):
                    raise ValueError(
                        f"isdtype: unrecognized kind {each!r}, needed a dtype or one of "
                        f"{list(_KINDS)}{here()}"
                    ) from None
                raise TypeError(
                    "isdtype: needed a dtype, a string or a tuple of them as kind, got "
                    f"{each!r}{here()}"
                ) from error
        if matches:
            return True
    return False


def kind(dtype: Any) -> str:
    """'b', 'u', 'i', 'f' or 'c' for numbers and booleans; 'V' for keys and float0."""
    return promotion.KIND_LETTERS.get(dtype, "V")


def is_inexact(dtype: Any) -> bool:
    """Whether `dtype` is a real or complex floating dtype."""
    return dtype in _INEXACT


def name_of(dtype: Any) -> str:
    """The printed name of a dtype: `float32`, `bfloat16`, `float0`, `key<fry>`."""
    if dtype == float0:
        return "float0"
    return np.dtype(dtype).name if isinstance(dtype, type) else dtype.name


def itemsize_bits(dtype: DTypeLike) -> int:
    """Return the number of bits in one element of a dtype.

    Args:
        dtype: dtype of numbers or booleans.

    Returns:
        The number of bits, such as 4 for int4, 32 for float32 and 8 for bool.

    Raises:
        ValueError: `dtype` is None, float0 or a dtype of random keys.
    """
    if dtype is None:
        raise ValueError("itemsize_bits: needed a dtype, got None" + here())
    if not is_extended(dtype):
        dtype = np.dtype(dtype)
        if dtype == promotion.BOOL:
            return 8
        if dtype in _KINDS["integral"]:
            return iinfo(dtype).bits
        if dtype in _KINDS["real floating"]:
            return finfo(dtype).bits
        if dtype in _KINDS["complex floating"]:
            return 2 * finfo(dtype).bits
    raise ValueError(f"itemsize_bits: needed a numeric dtype, got {dtype}{here()}")


def supports_inf(dtype: Any) -> bool:
    """Whether `dtype` has infinities."""
    without = (
        *(float8_e4m3b11fnuz, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2fnuz),
        *(float8_e8m0fnu, float6_e2m3fn, float6_e3m2fn, float4_e2m1fn),
    )
    return issubdtype(dtype, inexact) and np.dtype(dtype).type not in without


# Widths, defaults and Python scalars.

python_scalar_dtypes: dict[type, np.dtype] = {
    bool: promotion.BOOL,
    int: np.dtype("int64"),
    float: np.dtype("float64"),
    complex: np.dtype("complex128"),
}
_SCALAR_KINDS = (
    *(("bool", bool), ("integral", int)),
    *(("real floating", float), ("complex floating", complex)),
)
# The dtype of each Python scalar type when x64 is off, and when it is on.
_SCALAR_DEFAULTS: tuple[dict[Any, np.dtype], dict[Any, np.dtype]] = (
    {t: promotion.NARROWED.get(dt, dt) for t, dt in python_scalar_dtypes.items()},
    dict(python_scalar_dtypes),
)


def is_python_scalar(x: Any) -> bool:
    """Whether `x` is exactly a Python bool, int, float or complex."""
    return type(x) in python_scalar_dtypes


def default_int_dtype() -> np.dtype:
    """int64 under x64, else int32."""
    return _SCALAR_DEFAULTS[flags.enable_x64][int]


def default_uint_dtype() -> np.dtype:
    """uint64 under x64, else uint32."""
    return np.dtype("uint64") if flags.enable_x64 else np.dtype("uint32")


def default_float_dtype() -> np.dtype:
    """Return the default dtype of floats.

    Returns:
        float32, or float64 if `enable_x64` is on.
    """
    return _SCALAR_DEFAULTS[flags.enable_x64][float]


def default_complex_dtype() -> np.dtype:
    """complex128 under x64, else complex64."""
    return _SCALAR_DEFAULTS[flags.enable_x64][complex]


def canonicalize_dtype(
    dtype: DTypeLike | ExtendedDType | None, allow_extended_dtype: bool = False
) -> Any:
    """Return the NumPy dtype that toile uses for arrays of the given dtype.

    Args:
        dtype: dtype, scalar type or name.
        allow_extended_dtype: whether dtypes of random keys are returned unchanged.

    Returns:
        The dtype, in the byte order of this machine. 64-bit dtypes become 32-bit dtypes unless
        `enable_x64` is on.

    Raises:
        TypeError: `dtype` is not a dtype.
        ValueError: `dtype` is a dtype of random keys and `allow_extended_dtype` is False.

    >>> toile.dtypes.canonicalize_dtype("int64")
    dtype('int32')
    """
    known = _canonical[flags.enable_x64]
    try:
        return known[dtype]
    except (KeyError, TypeError):  # TypeError: unhashable
        pass
    if isinstance(dtype, ExtendedDType):
        if not allow_extended_dtype:
            raise ValueError(
                f"canonicalize_dtype: needed a NumPy dtype, got extended {dtype}{here()}"
            )
        return dtype
    try:
        result = np.dtype(dtype)
    except TypeError as error:
        raise TypeError(f"dtype {dtype!r} not understood{here()}") from error
    result = promotion.narrowed(result if result.isnative else result.newbyteorder("="))
    if isinstance(dtype, (np.dtype, type)):  # a bounded set, unlike other hashable values
        known[dtype] = result
    return result


# Cached results of canonicalize_dtype with x64 off, and with x64 on.
_canonical: tuple[dict[Any, np.dtype], dict[Any, np.dtype]] = ({}, {})


def check_user_dtype_supported(dtype: Any, fun_name: str = "") -> Any:
    """The dtype meant by a user's `dtype` argument; warns if it is narrowed because x64 is off."""
    if dtype is None:
        raise ValueError(f"{fun_name or 'dtype'}: needed a dtype, got None{here()}")
    if isinstance(dtype, ExtendedDType):
        return dtype
    if isinstance(dtype, type) and dtype in python_scalar_dtypes:
        # `in` alone would also accept np.float64, whose class equals no Python type.
        return _SCALAR_DEFAULTS[flags.enable_x64][dtype]
    if hasattr(dtype, "weak_type"):
        raise ValueError(
            f"{fun_name or 'dtype'}: needed a dtype, got an array (use dtype=arr.dtype){here()}"
        )
    try:
        np_dtype = np.dtype(dtype)
    except TypeError as error:
        raise TypeError(f"{_called(fun_name)}{error}{_nearest(dtype)}{here()}") from None
    if np_dtype not in SUPPORTED:
        where = f" in {fun_name}" if fun_name else ""
        raise TypeError(
            f"JAX only supports number, bool, and string dtypes, got dtype {dtype}{where} (toile "
            f"has no strings: use a dtype such as jnp.float32){here()}"
        )
    return narrowed_on_request(np_dtype, fun_name)


def _called(name: str) -> str:
    return f"{name}: " if name else ""


def _nearest(dtype: Any) -> str:
    """The name closest to a mistyped dtype, as a hint."""
    names = sorted(d.name for d in SUPPORTED)
    found = did_you_mean(dtype, names) if isinstance(dtype, str) else ""
    if isinstance(dtype, (int, float)):
        return " (use a dtype such as jnp.float32; several sizes or values are one tuple or list)"
    return found or " (use a dtype such as jnp.float32)"


def scalar_type_to_dtype(typ: type, value: Any = None) -> np.dtype:
    """The default dtype of Python scalar type `typ`; OverflowError if an int does not fit it."""
    dtype = _SCALAR_DEFAULTS[flags.enable_x64][typ]
    if typ is int and value is not None:
        bound = 1 << (8 * dtype.itemsize - 1)
        if not -bound <= value < bound:
            raise OverflowError(f"Python int too large to convert to {dtype}: {value} (pass a "
                                "dtype that holds it, such as float32, or enable jax_enable_x64)"
                                f"{here()}")
    return dtype


def scalar_dtype(x: Any) -> np.dtype:
    """The dtype of a Python scalar (or an instance of a subclass) as an operand."""
    typ = type(x)
    if typ not in python_scalar_dtypes:
        typ = next(t for t in python_scalar_dtypes if isinstance(x, t))
    return scalar_type_to_dtype(typ, x)


def coerce_to_array(x: Any, dtype: Any = None) -> np.ndarray:
    """`x` as a NumPy array; Python scalars get their default dtype."""
    if dtype is None and type(x) in python_scalar_dtypes:
        dtype = scalar_type_to_dtype(type(x), x)
    return np.asarray(x, dtype)


def dtype(x: Any, canonicalize: bool = False) -> Any:
    """The dtype of a value or type, narrowed if x64 is off (for toile's arrays, if
    `canonicalize`)."""
    if x is None:
        raise ValueError("dtype: needed a value or a type, got None" + here())
    found = _SCALAR_DEFAULTS[flags.enable_x64].get(type(x))
    if found is not None:
        return found
    if isinstance(x, (str, np.dtype)):
        return narrowed_on_request(_supported(np.dtype(x), x), "dtype")
    if isinstance(x, type):
        if x in python_scalar_dtypes:
            return _SCALAR_DEFAULTS[flags.enable_x64][x]
        if issubclass(x, np.generic):
            return narrowed_on_request(np.dtype(x), "dtype")
    elif hasattr(x, "weak_type"):
        return canonicalize_dtype(x.dtype, True) if canonicalize else x.dtype
    elif isinstance(x, ExtendedDType):
        return x
    result = getattr(x, "dtype", None)
    if not isinstance(result, (np.dtype, ExtendedDType)):
        try:
            result = np.result_type(x)
        except TypeError as error:
            raise TypeError(
                f"Cannot determine dtype of {x}: needed an array or a number (convert lists with "
                f"jnp.array(...)){here()}"
            ) from error
    return canonicalize_dtype(_supported(result, x), allow_extended_dtype=True)


def _supported(dtype: Any, x: Any) -> Any:
    if dtype in SUPPORTED or isinstance(dtype, ExtendedDType):
        return dtype
    raise TypeError(
        f"Value {describe(x)} with dtype {dtype} is not valid: arrays hold numbers or "
        f"bools.{here()}"
    )


def scalar_type_of(x: ArrayLike | DTypeLike) -> type:
    """Return the Python type that corresponds to a value or dtype.

    Args:
        x: array, number, dtype or scalar type.

    Returns:
        bool, int, float or complex.

    Raises:
        TypeError: `x` is a random key, or is neither a number nor a boolean.

    >>> toile.dtypes.scalar_type_of(jnp.bfloat16)
    <class 'float'>
    """
    found = dtype(x)
    for kind, scalar in _SCALAR_KINDS:
        if found in _KINDS[kind]:
            return scalar
    raise TypeError(f"scalar_type_of: needed a number or bool, got {x}{here()}")


# Promotion of values.


def is_weakly_typed(x: Any) -> bool:
    """Whether `x` yields to the other operand's width: a Python number or a weak array."""
    if type(x) in promotion.WEAK:
        return True
    return bool(getattr(x, "weak_type", False))


# The (dtype, weak) of operands by their Python type or dtype, with x64 off and with x64 on.
_scalar_pairs: tuple[dict[type, tuple[Any, bool]], ...] = tuple(
    {t: (dt, t is not bool) for t, dt in defaults.items()} for defaults in _SCALAR_DEFAULTS
)
_dtype_pairs: tuple[dict[Any, tuple[Any, bool]], ...] = (
    {dt: (dt, False) for dt in SUPPORTED - promotion.NARROWED.keys()},
    {dt: (dt, False) for dt in SUPPORTED},
)


def dtype_and_weak(x: Any) -> tuple[Any, bool]:
    """The (dtype, weak) of an operand; the Python types int, float and complex are weak too."""
    kind, wide = type(x), flags.enable_x64
    if kind in _scalar_pairs[wide]:
        return _scalar_pairs[wide][kind]
    named = x.dtype if kind is np.ndarray else x if kind in _DTYPE_CLASSES else None
    if named is not None:
        found = _dtype_pairs[wide].get(named)
        return (dtype(x), False) if found is None else found
    try:
        return x.dtype, x.weak_type
    except AttributeError:
        return dtype(x), any(x is t for t in promotion.WEAK)


_DTYPE_CLASSES = frozenset(type(dt) for dt in SUPPORTED)


def lattice_result_type(*args: Any) -> tuple[Any, bool]:
    """The (dtype, weak) that operands promote to; a weak result keeps its own width."""
    if len(args) == 2:
        dt_a, weak_a = dtype_and_weak(args[0])
        dt_b, weak_b = dtype_and_weak(args[1])
        return promote_pair(dt_a, weak_a, dt_b, weak_b)
    return promotion.promote_many([dtype_and_weak(x) for x in args])


def result_type(
    *args: ArrayLike | DTypeLike | ExtendedDType | None, return_weak_type_flag: bool = False
) -> Any:
    """Return the dtype of the result of an operation on the given operands.

    Python numbers, and arrays created from them, adopt the dtype of another operand of the same
    kind: int8 and the number 1 produce int8, whereas int8 and the number 1.0 produce float32.

    Args:
        *args: arrays, numbers, dtypes or scalar types. None stands for the default float dtype.
        return_weak_type_flag: whether to also return a flag that says whether the result is weakly
            typed.

    Returns:
        The dtype, or the pair (dtype, flag).

    Raises:
        ValueError: there are no operands.
        TypePromotionError: the operands have no common dtype.

    >>> toile.dtypes.result_type(jnp.int8, 1), toile.dtypes.result_type(jnp.int8, 1.0)
    (dtype('int8'), dtype('float32'))
    """
    if not args:
        raise ValueError("result_type: at least one array or dtype is required" + here())
    for x in args:
        if x is None:
            args = tuple(default_float_dtype() if x is None else x for x in args)
            break
    result, weak = lattice_result_type(*args)
    if weak:
        result = _default_width(result)
    return (result, weak) if return_weak_type_flag else result


def _default_width(dtype: np.dtype) -> np.dtype:
    """The default dtype of the same kind as a weakly typed value's dtype."""
    if dtype.kind == "u":
        return default_uint_dtype()
    for kind, scalar in _SCALAR_KINDS:
        if dtype in _KINDS[kind]:
            return _SCALAR_DEFAULTS[flags.enable_x64][scalar]
    return dtype


def safe_to_cast(source: Any, target: Any) -> bool:
    """Whether promotion of `source` with the dtype of `target` gives that dtype."""
    wanted = dtype(target)
    return bool(dtype(source) == wanted or result_type(source, wanted) == wanted)
