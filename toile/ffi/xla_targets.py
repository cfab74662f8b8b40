"""The interface of `jax.ffi`: targets that are registered by name, and calls to them.

The C functions have toile's signature instead of XLA's, because XLA's is defined by C++ headers of
jaxlib: `void f(void **arrays, const int64_t *shapes, const int64_t *attributes)`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NoReturn

import numpy as np

from toile.engine.annotations import ArrayLike, PyTree
from toile.engine.conversion import as_array
from toile.engine.source import describe, here
from toile.engine.trace import Tracer
from toile.engine.trees import flatten, unflatten
from toile.ffi.pointers import results_of, symbol_of
from toile.primitives.foreign_calls import BufferCall, BufferCallWithEffects, bits_of

_targets: dict[str, str] = {}  # symbols by the names of targets
_METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", None)


def pycapsule(funcptr: object) -> object:
    """Wrap a C function from ctypes in a PyCapsule.

    Args:
        funcptr: function of a library that `ctypes` has loaded.

    Returns:
        A PyCapsule for `register_ffi_target`, which also accepts the function itself.

    >>> import ctypes
    >>> f = ctypes.CFUNCTYPE(None)(lambda: None)
    >>> type(toile.ffi.pycapsule(f)).__name__
    'PyCapsule'
    """
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    pointer: Any = funcptr
    made: object = make(ctypes.cast(pointer, ctypes.c_void_p), b"toile.ffi", None)
    return made


def register_ffi_target(
    name: str, fn: object, platform: str = "cpu", api_version: int = 1, **kwargs: object
) -> None:
    """Register a C function under a name, so that `ffi_call` can call it.

    The function has the signature
    `void f(void **arrays, const int64_t *shapes, const int64_t *attributes)`; see `ffi_call`. The
    function must stay loaded as long as programs may call it. A name can be registered again;
    programs that were traced earlier still call the previous function.

    Args:
        name: name of the target.
        fn: a function from ctypes, a PyCapsule or the address of the function.
        platform: must be "cpu".
        api_version: accepted for compatibility with JAX.
        **kwargs: accepted for compatibility with JAX.

    Raises:
        NotImplementedError: `platform` is not "cpu".

    Differences:
        In JAX, the function has the signature of XLA's FFI.

    >>> import ctypes
    >>> signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)
    >>> toile.ffi.register_ffi_target("nothing", signature(lambda *pointers: None))
    """
    if platform.lower() not in ("cpu", "host"):
        raise NotImplementedError(
            f"register_ffi_target: needed platform='cpu', got {platform!r} (launch a kernel on "
            f"GPUs with toile.ffi.cuda_kernel){here()}"
        )
    _targets[name] = symbol_of("register_ffi_target", name, fn)


def ffi_call(
    target_name: str, result_shape_dtypes: PyTree, *, has_side_effect: bool = False,
    vmap_method: Literal["sequential", "sequential_unrolled", "expand_dims",
                         "broadcast_all"] | None = None,
    input_layouts: Sequence[Any] | None = None, output_layouts: Sequence[Any] | None = None,
    input_output_aliases: Mapping[int, int] | None = None, custom_call_api_version: int = 4,
    legacy_backend_config: str | None = None, thread_safe: bool = False,
) -> Callable[..., PyTree]:
    """Create a function that calls a registered C function.

    The C function `void f(void **arrays, const int64_t *shapes, const int64_t *attributes)`
    receives

    - `arrays`: pointers to the operands and then to the results, all in row-major order,
    - `shapes`: for each of these arrays, the number of its axes and then their sizes,
    - `attributes`: the keyword arguments in the order of the call, 8 bytes each: an `int64_t` for
      an integer or a boolean, and a `double` for any other number.

    Compiled programs on the CPU call the C function without Python. On a GPU, the arrays are copied
    to the host and back.

    Args:
        target_name: name that was passed to `register_ffi_target`.
        result_shape_dtypes: tree of `ShapeDtypeStruct` with the structure of the results.
        has_side_effect: whether to call the function even if its results are not used.
        vmap_method: how `vmap` calls the function. "sequential" calls it once for each example.
            "expand_dims" and "broadcast_all" call it once, with a first axis for the batch;
            unmapped operands have size 1 or the batch's size along this axis. With None, `vmap`
            raises an error.
        input_layouts, output_layouts: must be None; arrays are in row-major order.
        input_output_aliases: dict that maps the index of an operand to the index of a result. This
            result initially contains a copy of the operand, and the C function receives the
            result's pointer for both.
        custom_call_api_version: accepted for compatibility with JAX.
        legacy_backend_config: must be None.
        thread_safe: whether several threads may call the function at the same time, for different
            examples of a batch.

    Returns:
        A function whose positional arguments are arrays, and whose keyword arguments are
        attributes.

    Raises:
        NotImplementedError: no function of that name has been registered, or a layout is given.

    >>> from ctypes import CFUNCTYPE, POINTER, c_float, c_int64
    >>> @CFUNCTYPE(None, POINTER(POINTER(c_float)), POINTER(c_int64), POINTER(c_int64))
    ... def scale(arrays, shapes, attributes):  # a C function, written in Python for this example
    ...     for i in range(shapes[1]):
    ...         arrays[1][i] = arrays[0][i] * attributes[0]
    >>> toile.ffi.register_ffi_target("scale", scale)
    >>> call = toile.ffi.ffi_call("scale", toile.ShapeDtypeStruct((3,), jnp.float32))
    >>> toile.jit(lambda x: call(x, factor=2))(jnp.arange(3.0))
    Array([0., 2., 4.], dtype=float32)
    """
    symbol = _symbol(target_name)
    if vmap_method not in _METHODS:
        raise ValueError(
            f"ffi_call: vmap_method must be one of the allowed methods {list(_METHODS)}, but got: "
            f"{vmap_method!r}{here()}"
        )
    if input_layouts or output_layouts or legacy_backend_config:
        raise NotImplementedError(
            "ffi_call: needed input_layouts, output_layouts and legacy_backend_config to be None, "
            f"because arrays are in row-major order, got others (transpose the arrays){here()}"
        )
    shapes, tree = flatten(result_shape_dtypes)
    avals = results_of("ffi_call", shapes)
    aliases = tuple(sorted((input_output_aliases or {}).items()))
    kind = BufferCallWithEffects if has_side_effect else BufferCall
    method = "sequential" if vmap_method == "sequential_unrolled" else vmap_method

    def call(*args: ArrayLike, **attributes: Any) -> PyTree:
        xs = [as_array(x) for x in args]
        _check_aliases(target_name, aliases, xs, avals)
        numbers = tuple(_attribute(target_name, *pair) for pair in attributes.items())
        op = kind(symbol, target_name, avals, tuple(x.shape for x in xs), numbers, aliases, method,
                  thread_safe)
        return unflatten(tree, op(*xs))

    call.__name__ = call.__qualname__ = target_name
    return call


def _symbol(name: str) -> str:
    if name not in _targets:
        raise NotImplementedError(
            f"ffi_call: needed the name of a registered function, got {name!r}; registered are "
            f"{sorted(_targets)} (call toile.ffi.register_ffi_target({name!r}, function)){here()}"
        )
    return _targets[name]


def _check_aliases(name: str, aliases: Sequence[tuple[int, int]], xs: Sequence[Any],
                   avals: Sequence[Any]) -> None:
    for i, j in aliases:
        if not (0 <= i < len(xs) and 0 <= j < len(avals)):
            raise ValueError(
                f"{name}: input_output_aliases needed numbers of {len(xs)} operands and "
                f"{len(avals)} results, got {{{i}: {j}}} (count from 0){here()}"
            )
        x, aval = xs[i], avals[j]
        if (x.shape, x.dtype) != (aval.shape, aval.dtype):
            raise ValueError(
                f"{name}: input_output_aliases needed an operand and a result of one shape and "
                f"dtype, got {describe(x)} and {aval.str_short()} (leave out {i}: {j}){here()}"
            )


def _attribute(target: str, name: str, value: Any) -> int:
    """An attribute as 64 bits."""
    if isinstance(value, (bool, int, np.bool_, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return bits_of(float(value), "float64")
    got = "a traced array" if isinstance(value, Tracer) else describe(value)
    raise TypeError(
        f"{target}: the attribute {name!r} needed to be a Python number or a NumPy scalar, got "
        f"{got} (pass arrays as operands){here()}"
    )


def _refused(name: str, instead: str) -> NoReturn:
    raise NotImplementedError(
        f"toile.ffi.{name}: needed XLA, which toile does not use ({instead}){here()}")


def ffi_lowering(*args: object, **kwargs: object) -> None:
    """Raise an error, because toile has no lowering rules.

    Args:
        *args, **kwargs: ignored.

    Raises:
        NotImplementedError: always; the message says what to use instead.
    """
    _refused("ffi_lowering", "use toile.ffi.ffi_call, which can be called in any function")


def build_ffi_lowering_function(*args: object, **kwargs: object) -> None:
    """Raise an error, because toile has no lowering rules.

    Args:
        *args, **kwargs: ignored.

    Raises:
        NotImplementedError: always; the message says what to use instead.
    """
    _refused("build_ffi_lowering_function", "use toile.ffi.ffi_call")


def include_dir() -> None:
    """Raise an error, because toile comes without C++ headers.

    Raises:
        NotImplementedError: always; the message says what to use instead.
    """
    _refused("include_dir", "the C functions that toile calls need no header; see docs/ffi.md")


def register_ffi_type(*args: object, **kwargs: object) -> None:
    """Raise an error, because toile does not manage state for C functions.

    Args:
        *args, **kwargs: ignored.

    Raises:
        NotImplementedError: always; the message says what to use instead.
    """
    _refused("register_ffi_type", "keep state in an array that is an operand and a result")
