"""`jax.extend.linear_util`: functions wrapped in transformations that are generators."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

Transformation = Callable[..., Generator[Any, Any, None]]


class WrappedFun:
    """A function and the generators around it, outermost first."""

    def __init__(self, f: Callable[..., Any], transforms: tuple[tuple[Transformation, Any], ...]):
        self.f, self.transforms = f, transforms

    @property
    def __name__(self) -> str:
        return getattr(self.f, "__name__", "<unnamed function>")

    def call_wrapped(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function; each generator first changes the arguments and then the result."""
        running = []
        for generator, given in self.transforms:
            step = generator(*given, *args, **kwargs)
            args, kwargs = next(step)
            running.append(step)
        result = self.f(*args, **kwargs)
        for step in reversed(running):
            result = step.send(result)
            step.close()
        return result


def wrap_init(f: Callable[..., Any], params: Any = None, *, debug_info: Any = None) -> WrappedFun:
    """A function without transformations."""
    if params:
        return WrappedFun(lambda *args, **kwargs: f(*args, **params, **kwargs), ())
    return WrappedFun(f, ())


def transformation(generator: Transformation) -> Callable[..., WrappedFun]:
    """A function that wraps a WrappedFun in `generator`."""

    def around(fun: WrappedFun, *given: Any) -> WrappedFun:
        return WrappedFun(fun.f, ((generator, given), *fun.transforms))

    return around


def merge_linear_aux(first: Callable[[], Any], second: Callable[[], Any]) -> tuple[bool, Any]:
    """The value that one of two functions has stored, and whether it is the first one."""
    try:
        return True, first()
    except StoreException:
        return False, second()


class StoreException(Exception):
    """A value was read before the function that stores it had run."""


def transformation_with_aux(generator: Transformation) -> Callable[..., tuple[WrappedFun, Any]]:
    """Like `transformation`, for a generator whose last value is (result, auxiliary value).

    The second result of the function that is returned gives the auxiliary value."""

    def around(fun: WrappedFun, *given: Any) -> tuple[WrappedFun, Callable[[], Any]]:
        stored: list[Any] = []

        def without_aux(*args: Any, **kwargs: Any) -> Generator[Any, Any, None]:
            step = generator(*args, **kwargs)
            received = yield next(step)
            result, aux = step.send(received)
            stored.append(aux)
            yield result

        def aux() -> Any:
            if not stored:
                raise StoreException("the function has not run yet")
            return stored[-1]

        return WrappedFun(fun.f, ((without_aux, given), *fun.transforms)), aux

    return around
