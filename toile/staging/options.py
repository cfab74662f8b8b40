"""The arguments that jit's options name, by number and by name.

This module may import the engine and staging.flat_functions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from toile.engine.errors import JaxRuntimeError
from toile.engine.source import here
from toile.engine.trace import Array
from toile.staging.flat_functions import given_argnums, name_of


def named_arguments(
    fun: Callable[..., Any], options: dict[str, Any], what: str
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Numbers and names of the arguments that are `what` ("static", "donate").

    If only the numbers or only the names are given, the others are inferred."""
    nums, names = options.get(f"{what}_argnums"), options.get(f"{what}_argnames")
    if nums is None and names is None:
        return (), ()
    numbers = () if nums is None else given_argnums(nums, "jit", f"{what}_argnums")
    given = _strings(names, what)
    parameters = _parameters(fun, what == "donate" and names is not None)
    if parameters is None:
        return numbers, given
    positional = [p.name for p in parameters if p.kind <= p.POSITIONAL_OR_KEYWORD]
    within = [n for n in numbers if -len(positional) <= n < len(positional)]
    if len(within) < len(numbers) and not _has(parameters, inspect.Parameter.VAR_POSITIONAL):
        raise ValueError(
            f"Jitted function has {what}_argnums={numbers}, but only accepts {len(positional)} "
            f"positional arguments: needed numbers of {name_of(fun)}'s parameters{here()}"
        )
    _check_names(fun, given, parameters, what)
    if nums is None:
        return tuple(positional.index(k) for k in given if k in positional), given
    if names is None:
        unnamed = {p.name for p in parameters if p.kind is p.POSITIONAL_ONLY}
        return numbers, tuple(positional[n] for n in within if positional[n] not in unnamed)
    return numbers, given


def _parameters(fun: Callable[..., Any], needed: bool) -> list[inspect.Parameter] | None:
    """The parameters of a function; without a signature, None, or an error if they are needed."""
    try:
        return list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError) as e:
        if needed:
            raise ValueError(
                f"Getting the signature of function {fun} failed. Pass donate_argnums instead of "
                f"donate_argnames.{here()}"
            ) from e
        return None


def _has(parameters: Sequence[inspect.Parameter], kind: Any) -> bool:
    return any(p.kind is kind for p in parameters)


def _strings(names: Any, what: str) -> tuple[str, ...]:
    """One name or several as a tuple."""
    given = (names,) if isinstance(names, str) else tuple(names or ())
    for name in given:
        if not isinstance(name, str):
            raise TypeError(
                f"argument is not a string: {name!r}: needed {what}_argnames as names, got "
                f"{names!r} (numbers are {what}_argnums){here()}"
            )
    return given


def _check_names(
    fun: Callable[..., Any], given: Sequence[str], parameters: Sequence[inspect.Parameter],
    what: str,
) -> None:
    """Raise an error for names that are not parameters, or that cannot be passed by keyword."""
    anything = _has(parameters, inspect.Parameter.VAR_KEYWORD)
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    unnamed = {p.name for p in parameters} - named
    wrong = {k for k in given if k not in named and (k in unnamed or not anything)}
    if wrong:
        raise ValueError(
            f"Jitted function has invalid argnames {wrong} in {what}_argnames: needed names of "
            f"{name_of(fun)}'s parameters ({', '.join(sorted(named))}) that may be passed by "
            f"keyword{here()}"
        )


# Known options besides XLA's, and options of XLA whose type is checked.
_OPTIONS = frozenset({
    "exec_time_optimization_effort", "memory_fitting_effort", "memory_fitting_level",
    "optimization_level",
})
_SWITCHES = frozenset({"xla_embed_ir_in_executable", "xla_cpu_enable_fast_math"})


def check_compiler_options(options: dict[str, Any] | None) -> None:
    """Raise an error for options that XLA does not have; all others are accepted and ignored."""
    for name, value in (options or {}).items():
        if not name.startswith("xla_") and name not in _OPTIONS:
            raise JaxRuntimeError(f"No such compile option: {name!r}{here()}")
        if name in _SWITCHES and str(value).lower() not in ("true", "false", "0", "1"):
            raise JaxRuntimeError(
                f"While setting option {name}, {value!r} is not a valid bool value.{here()}"
            )


def check_jittable(fun: Any) -> None:
    """Raise an error that describes the argument if jit cannot trace it."""
    if isinstance(fun, staticmethod):
        raise TypeError(
            f"staticmethod arguments are not supported, got {fun!r} (put @staticmethod outside "
            f"@jit){here()}"
        )
    if not callable(fun):
        raise TypeError(
            f"Expected a callable value, got {fun!r}: jit needed a callable, got an object of "
            f"type {type(fun).__name__} (pass the function without calling it: jit(f), not "
            f"jit(f(x))){here()}"
        )
    if inspect.isgeneratorfunction(fun):
        raise TypeError(
            f"Expected a function, got a generator function: {fun!r} (return a list of what it "
            f"yields){here()}"
        )


def check_leaves(leaves: Sequence[Any]) -> None:
    """Raise an error for objects that would have to be converted to arrays in every call."""
    for x in leaves:
        if not isinstance(x, Array) and getattr(x, "__jax_array__", None) is not None:
            raise ValueError(
                "Triggering __jax_array__() during abstractification is no longer supported: got "
                f"{x!r} as an argument of a jitted function (convert it with toile.numpy.array, or "
                f"register its type as a pytree){here()}"
            )


def check_disjoint(static: Any, donated: Any) -> None:
    """Raise an error for arguments that are both static and donated."""
    kinds = zip(("argnums", "argnames"), static, donated, strict=True)
    for kind, a, b in reversed(list(kinds)):
        both = set(a) & set(b)
        if both:
            raise ValueError(
                f"static_{kind} and donate_{kind} cannot intersect, got {sorted(both)} in both "
                f"(a static argument has no buffer to give up){here()}"
            )
