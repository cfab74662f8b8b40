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
