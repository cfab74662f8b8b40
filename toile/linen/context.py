"""Information about the current call to a module: the stack of modules, interceptors and captures.

Each thread has separate copies of this information.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from toile.configurations import config
from toile.engine import source
from toile.engine.records import dataclass


class DynamicContext(threading.local):
    """The stacks of modules, capture filters, recorded calls and interceptors of one thread."""

    def __init__(self) -> None:
        self.module_stack: list[Any] = source.modules.stack  # which errors name
        self.capture_stack: list[Any] = []
        self.call_info_stack: list[CallInfoContext] = []
        self.interceptors: list[Callable[..., Any]] = []


@dataclass
class CallInfo:
    """One call to a module's method, as shown by `tabulate`."""

    index: int
    path: tuple[str, ...]
    module: Any
    rngs: Any
    mutable: Any
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: Any


@dataclass
class CallInfoContext:
    """The calls recorded so far. `represent` converts the values that are stored with each call."""

    index: int
    calls: list[CallInfo]
    represent: Callable[[Any], Any]

    def get_call_index(self) -> int:
        """Return the number of the next call, counted in the order in which calls begin."""
        self.index += 1
        return self.index - 1


context = DynamicContext()


@contextlib.contextmanager
def recording_calls(represent: Callable[[Any], Any]) -> Iterator[CallInfoContext]:
    """Record every call to a module's method that is made in a `with` block."""
    context.call_info_stack.append(CallInfoContext(0, [], represent))
    try:
        yield context.call_info_stack[-1]
    finally:
        context.call_info_stack.pop()


# Names of modules in traced programs.


class _NamedCalls:
    enabled = config.flax_profile


named_calls = _NamedCalls()


def call_label(module: Any, method: str) -> str:
    """The label of a call: the module's name, and the method's name if it is not `__call__`."""
    label = module.name or type(module).__name__
    return label if method == "__call__" else f"{label}.{method}"


def enable_named_call() -> None:
    """Show the names of modules in traced programs and profiles.

    Names are shown by default, unless the environment variable `FLAX_PROFILE` is set to a false
    value.

    >>> import toile.linen as nn
    >>> nn.enable_named_call()
    """
    named_calls.enabled = True


def disable_named_call() -> None:
    """Stop showing module names in traced programs and profiles.

    >>> import toile.linen as nn
    >>> nn.disable_named_call()
    >>> nn.enable_named_call()  # the default
    """
    named_calls.enabled = False


@contextlib.contextmanager
def override_named_call(enable: bool = True) -> Iterator[None]:
    """Show or hide the names of modules in programs that are traced in a `with` block.

    Args:
        enable: whether to label the operations of a module with the module's name.

    Yields:
        None.

    >>> import toile.linen as nn
    >>> variables = {"params": {"kernel": jnp.eye(2)}}
    >>> with nn.override_named_call(False):
    ...     y = nn.Dense(2, use_bias=False).apply(variables, jnp.ones((1, 2)))
    """
    before = named_calls.enabled
    named_calls.enabled = enable
    try:
        yield
    finally:
        named_calls.enabled = before


# Interceptors.


@dataclass(frozen=True)
class InterceptorContext:
    """Information about a method call, which is passed to interceptors.

    Args:
        module: the module that is called.
        method_name: name of the method.
        orig_method: the method, bound to the module. Calling `orig_method` bypasses the other
            interceptors.
    """

    module: Any
    method_name: str
    orig_method: Callable[..., Any]


@contextlib.contextmanager
def intercept_methods(interceptor: Callable[..., Any]) -> Iterator[None]:
    """Intercept all calls to module methods in a `with` block.

    The interceptor is called in place of each method. It can change the arguments or the result of
    the method, and it need not call the method at all. If blocks are nested, the interceptor of the
    outer block is called first, and its `next_fun` calls the interceptor of the inner block. Calls
    to `setup` are intercepted too.

    Args:
        interceptor: function `f(next_fun, args, kwargs, context)` whose result becomes the result
            of the call. `next_fun(*args, **kwargs)` calls the interceptor of the next inner block
            if there is one, and the method otherwise. `context` is an `InterceptorContext`.

    Yields:
        None.

    >>> import toile.linen as nn
    >>> def loud(next_fun, args, kwargs, context):
    ...     print("calling", type(context.module).__name__, context.method_name)
    ...     return next_fun(*args, **kwargs)
    >>> class Double(nn.Module):
    ...     def __call__(self, x):
    ...         return 2 * x
    >>> with nn.intercept_methods(loud):
    ...     y = Double()(jnp.ones(2))
    calling Double __call__
    """
    context.interceptors.append(interceptor)
    try:
        yield
    finally:
        assert context.interceptors.pop() is interceptor


def run_interceptors(method: Callable[..., Any], module: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a method through all interceptors; the one registered last is innermost."""
    fun: Callable[..., Any] = functools.partial(method, module)
    told = InterceptorContext(module, function_name(method), fun)
    for interceptor in reversed(context.interceptors):
        fun = _intercepted(interceptor, fun, told)
    return fun(*args, **kwargs)


def _intercepted(
    interceptor: Callable[..., Any], fun: Callable[..., Any], told: InterceptorContext
) -> Callable[..., Any]:
    @functools.wraps(fun)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return interceptor(fun, args, kwargs, told)

    return wrapped


def function_name(fn: Any) -> str:
    """The name of a function, or of the function inside a `functools.partial`."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__name__", "unnamed_function")


class Sentinel:
    """A placeholder for a parent that was not given; a singleton even if it is copied or
    pickled."""

    def __copy__(self) -> Sentinel:
        return self

    def __deepcopy__(self, memo: Any) -> Sentinel:
        return self

    def __reduce__(self) -> Any:
        return _get_unspecified_parent, ()

    def __repr__(self) -> str:
        return "<the module that runs>"


def _get_unspecified_parent() -> Sentinel:
    return unspecified_parent


unspecified_parent = Sentinel()
