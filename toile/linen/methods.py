"""Methods of modules: the decorators `compact` and `nowrap`, and the wrappers that manage state.

Every method that a user defines is wrapped once, when the class is made, so that `setup` runs
before the method and submodules that the method creates are attached to the module. Descriptors are
wrapped to improve their error messages.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from toile import errors
from toile.engine.source import here, name_module
from toile.linen.advice import advice
from toile.linen.context import function_name

F = TypeVar("F", bound=Callable[..., Any])

_NOT_WRAPPED = ("__eq__", "__repr__", "__init__", "__hash__", "__post_init__")


def _marked(fun: Any, **marks: Any) -> Any:
    """Set attributes that determine how modules treat a function, and return the function."""
    for name, value in marks.items():
        setattr(fun, name, value)
    return fun


def compact(fun: F) -> F:
    """Mark a method as compact: submodules and parameters can be created where they are used.

    A method without this mark cannot create submodules; create them in `setup` instead. A submodule
    without a `name` is named after its class and numbered, as in `Dense_0` and `Dense_1`. The
    numbers start from 0 in each call, so calling the method twice uses the same parameters. For the
    same reason, submodules with the same automatic name in two compact methods of a module share
    parameters. Use `compact_name_scope` to keep the parameters of two methods separate.

    Args:
        fun: a method of a module.

    Returns:
        The method.

    >>> import toile.linen as nn
    >>> class MLP(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, x):
    ...         x = nn.relu(nn.Dense(8)(x))
    ...         return nn.Dense(2)(x)
    >>> variables = MLP().init(key(0), jnp.ones((1, 4)))
    >>> toile.tree.map(jnp.shape, variables)["params"]["Dense_0"]
    {'bias': (8,), 'kernel': (4, 8)}
    """
    return _marked(fun, compact=True)


def nowrap(fun: F) -> F:
    """Mark a method as a plain function, which runs without the module's state management.

    A method marked this way can be called on an unbound module. Calling it does not run `setup`.

    Args:
        fun: a method of a module.

    Returns:
        The method.

    >>> import toile.linen as nn
    >>> class Scaled(nn.Module):
    ...     factor: float
    ...     @nn.nowrap
    ...     def describe(self):
    ...         return f"times {self.factor}"
    ...     def __call__(self, x):
    ...         return self.factor * x
    >>> Scaled(2.0).describe()
    'times 2.0'
    """
    return _marked(fun, nowrap=True)


def compact_name_scope(fun: F) -> F:
    """Mark a method as compact, and store the variables of its submodules under the method's name.

    A module can have several methods with this mark. Their submodules do not share parameters.

    Args:
        fun: a method of a module.

    Returns:
        The method.

    >>> import toile.linen as nn
    >>> class Both(nn.Module):
    ...     @nn.compact_name_scope
    ...     def up(self, x):
    ...         return nn.Dense(3)(x)
    ...     def __call__(self, x):
    ...         return self.up(x)
    >>> variables = Both().init(key(0), jnp.ones((1, 2)))
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'up': {'Dense_0': {'bias': (3,), 'kernel': (2, 3)}}}}
    """

    @functools.wraps(fun)
    def in_own_scope(self: Any, *args: Any, **kwargs: Any) -> Any:
        name = fun.__name__
        if not hasattr(self, "_compact_name_scope_modules"):
            raise ValueError(
                f"Cannot call compact_name_scope method {name!r} on a Module that has not been "
                f"setup. This is likely because you are calling {name!r} from outside init or "
                f"apply: use module.apply(variables, …, method={name!r}){here()}"
            )
        return self._compact_name_scope_modules[name](*args, **kwargs)

    return _marked(in_own_scope, compact_name_scope=True, inner_fun=fun, nowrap=True)


def wrap_method_once(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `fun` so that modules manage their state around calls, unless it is already wrapped."""
    if hasattr(fun, "method_handler_wrapped"):
        return fun

    name, is_compact = function_name(fun), hasattr(fun, "compact")

    @functools.wraps(fun)
    def managed(*args: Any, **kwargs: Any) -> Any:
        # A callable in a class body need not be a method, so look at its first argument.
        if args and hasattr(args[0].__class__, "_call_wrapped_method"):
            try:
                return args[0]._call_wrapped_method(fun, name, is_compact, args[1:], kwargs)
            except Exception as error:
                given = args[1:]
                name_module(error, args[0], given, functools.partial(
                    advice, error, args[0], fun, given, kwargs))
                raise
        return fun(*args, **kwargs)

    return _marked(managed, method_handler_wrapped=True)


class DescriptorWrapper:
    """Wraps a descriptor, whose AttributeErrors would otherwise look like a missing attribute."""


def wrap_descriptor_once(descriptor: Any) -> Any:
    """Wrap a property or another descriptor, unless it is already wrapped."""
    if isinstance(descriptor, DescriptorWrapper):
        return descriptor
    return _wrapper_class(descriptor)(descriptor)


def _wrapper_class(descriptor: Any) -> type:
    """A wrapper class with exactly the descriptor methods that `descriptor` has."""

    def initialize(self: Any, wrapped: Any) -> None:
        self.wrapped = wrapped

    def get(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return self.wrapped.__get__(*args, **kwargs)
        except AttributeError as e:
            raise errors.DescriptorAttributeError() from e

    def forward(name: str) -> Callable[..., Any]:
        return lambda self, *args, **kwargs: getattr(self.wrapped, name)(*args, **kwargs)

    def get_attribute(self: Any, name: str) -> Any:
        if "wrapped" not in vars(self):
            raise AttributeError(name)
        return getattr(self.wrapped, name)

    body: dict[str, Any] = {"__init__": initialize, "__getattr__": get_attribute}
    if hasattr(descriptor, "__isabstractmethod__"):
        body["__isabstractmethod__"] = descriptor.__isabstractmethod__
    if hasattr(descriptor, "__get__"):
        body["__get__"] = get
    for name in ("__set__", "__delete__", "__set_name__"):
        if hasattr(descriptor, name):
            body[name] = forward(name)
    return type("_DescriptorWrapper", (DescriptorWrapper,), body)


def local_methods(cls: type, exclude: Iterable[str] = ()) -> tuple[str, ...]:
    """The names of the methods that `cls` itself defines."""
    return tuple(
        name
        for name, value in cls.__dict__.items()
        if callable(value)
        and not inspect.isclass(value)
        and type(value) not in (staticmethod, classmethod)
        and name not in exclude
    )


def _local_descriptors(cls: type, exclude: Iterable[str]) -> set[str]:
    """The names of the descriptors that `cls` itself defines."""
    return {
        name
        for name, value in cls.__dict__.items()
        if not callable(value)
        and any(hasattr(value, m) for m in ("__get__", "__set__", "__delete__"))
        and type(value) not in (staticmethod, classmethod)
    }.difference(exclude)


def wrap_attributes(cls: type) -> None:
    """Wrap the methods and descriptors that `cls` defines, except those marked by `nowrap`."""
    fields = [f.name for f in dataclasses.fields(cls)]
    for key in local_methods(cls, (*fields, *_NOT_WRAPPED)):
        method = getattr(cls, key)
        if not hasattr(method, "nowrap"):
            setattr(cls, key, wrap_method_once(method))
    for key in _local_descriptors(cls, (*fields, "parent", "__dict__", "__weakref__")):
        descriptor = cls.__dict__[key]
        if not hasattr(descriptor, "nowrap"):
            setattr(cls, key, wrap_descriptor_once(descriptor))


def find_compact_name_scopes(cls: type) -> tuple[str, ...]:
    """The names of all `compact_name_scope` methods, including inherited ones."""
    marked = {
        name
        for base in cls.__mro__
        for name, value in vars(base).items()
        if hasattr(value, "compact_name_scope")
    }
    return tuple(n for n in sorted(marked) if hasattr(getattr(cls, n), "compact_name_scope"))


def unbound_function(method_or_fn: Any, module_type: type) -> Callable[..., Any]:
    """The plain function behind a method; its first argument is the module."""
    if inspect.ismethod(method_or_fn) and isinstance(method_or_fn.__self__, module_type):
        method_or_fn = method_or_fn.__func__
    if hasattr(method_or_fn, "method_handler_wrapped"):
        return method_or_fn
    if not callable(method_or_fn) or not inspect.signature(method_or_fn).parameters:
        raise errors.ApplyModuleInvalidMethodError(method_or_fn)
    return method_or_fn
