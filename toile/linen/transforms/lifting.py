"""Lifting for modules, which turns transforms of functions of scopes into transforms of modules.

A class becomes a subclass that is named after the transform and runs the original methods inside
the transform. A function of a module becomes a function that runs the original inside the
transform. Both make one `Crossing` per call.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from toile import errors
from toile.core.rng import LazyRng
from toile.engine.source import here
from toile.linen.context import function_name
from toile.linen.methods import unbound_function, wrap_method_once
from toile.linen.module import Module, ModuleState
from toile.linen.transforms.crossing import Crossing
from toile.linen.transforms.keys import ModuleKey
from toile.tree_util import register_static

TransformTarget = type[Module] | Callable[..., Any]
Target = TypeVar("Target", bound=TransformTarget)
Functions = tuple[Callable[..., Any], ...]


def is_module_class(target: Any) -> bool:
    """Whether an object is a module class, or a `functools.partial` of one."""
    if isinstance(target, functools.partial):
        return is_module_class(target.func)
    return inspect.isclass(target) and issubclass(target, Module)


def lift_transform(
    transform: Callable[..., Any],
    target: Any,
    *args: Any,
    methods: Any = None,
    cached: bool = False,
    **kwargs: Any,
) -> Any:
    """Apply a transform of functions of scopes, `transform(fn, *args, **kwargs)`, to `target`.

    With `cached`, the lifted function is created only once, and the module is passed to it as a
    hashable key."""
    if is_module_class(target):
        return _lift_class(transform, target, args, kwargs, methods, cached)
    if callable(target) and not isinstance(target, Module):
        method = _lift_cached if cached else _lift_method
        make = functools.partial(_applied, transform, args, kwargs)
        return method(make, (wrap_method_once(target),), (_name(target),))
    raise errors.TransformTargetError(target)


def lift_transform_cached(
    transform: Callable[..., Any], target: Any, *args: Any, methods: Any = None, **kwargs: Any
) -> Any:
    """`lift_transform` for a transform that gets the module as a hashable key."""
    return lift_transform(transform, target, *args, methods=methods, cached=True, **kwargs)


def _applied(transform: Callable[..., Any], args: Any, kwargs: Any, *fns: Any) -> Any:
    return transform(*fns, *args, **kwargs)


def _name(fn: Any) -> str | None:
    return getattr(fn, "__name__", None)


def _lift_class(
    transform: Callable[..., Any], target: Any, args: Any, kwargs: Any, methods: Any, cached: bool
) -> Any:
    """A subclass with some methods (by default `__call__`) transformed."""
    if methods is None:
        methods = ("__call__",)
    if isinstance(methods, list | tuple):
        options = dict.fromkeys(methods, (args, kwargs))
    elif isinstance(methods, dict):
        options = {name: ((), given) for name, given in methods.items()}
    else:
        raise ValueError(
            "transform methods argument must be None, tuple, list, or dict. Needed names of "
            f"methods, or options by name, got {methods!r}{here()}"
        )
    given = None
    if isinstance(target, functools.partial):
        given, target = target, target.func
    lift = _lift_cached if cached else _lift_method
    body = {
        name: lift(
            functools.partial(_applied, transform, *options[name]),
            (getattr(target, name),),
            (name,),
            target,
        )
        for name in options
    }
    body["__module__"] = target.__module__
    name = transform.__name__.capitalize() + target.__name__
    made: Any = type(name, (target,), body)
    return made if given is None else functools.partial(made, *given.args, **given.keywords)


def _lift_method(
    make: Callable[..., Any], fns: Functions, names: tuple[str | None, ...],
    cls: type[Module] | None = None, multi_scope: bool = True,
) -> Callable[..., Any]:  # fmt: skip
    """A method that turns `fns` into functions of scopes and runs `make(*functions)`."""

    @functools.wraps(fns[0])
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        crossing = Crossing(self, args, kwargs, cls)

        def of_scopes(fn: Callable[..., Any], name: str | None) -> Callable[..., Any]:
            @functools.wraps(fn)
            def run(scopes: Any, *args: Any, **kwargs: Any) -> Any:
                given = scopes if multi_scope else [scopes]
                return crossing.run(fn, name, given, args, kwargs)

            del run.__wrapped__  # its parameters are not those of `fn`
            return run

        lifted = make(*[of_scopes(fn, name) for fn, name in zip(fns, names, strict=True)])
        scopes: Any = crossing.scopes
        if not multi_scope:
            if len(scopes) != 1:
                raise NotImplementedError(
                    "This transform does not yet support Modules that include other Modules "
                    f"passed as arguments. Needed one scope, got {len(scopes)}: of "
                    f"{', '.join(s.path_text for s in scopes)}{here()}"
                )
            (scopes,) = scopes
        return lifted(scopes, *crossing.args, **crossing.kwargs)

    return method


@register_static
class _After(tuple[Any, ...]):
    """The state of a module after a traced call, as part of the structure of the result."""

    __slots__ = ()

    @classmethod
    def of(cls, state: ModuleState) -> _After:
        return cls(
            (state.in_compact_method, state.in_setup, state.is_initialized,
             tuple(state.autoname_cursor.items()))
        )  # fmt: skip

    def restore(self, state: ModuleState) -> None:
        state.in_compact_method, state.in_setup, state.is_initialized, cursor = self
        state.autoname_cursor = dict(cursor)


def _lift_cached(
    make: Callable[..., Any],
    fns: Functions,
    names: tuple[str | None, ...],
    cls: type[Module] | None = None,
) -> Callable[..., Any]:
    """A method whose transformed function is made once, for all modules."""
    (fn,), (name,) = fns, names

    @functools.wraps(fn)
    def of_scopes(scopes: Any, key: ModuleKey, *args: Any, **kwargs: Any) -> Any:
        crossing = key.held()
        assert crossing is not None, "a trace outlives the call that it belongs to"
        out = crossing.run(fn, name, scopes, args, kwargs)
        return out, _After.of(crossing.module._state)

    del of_scopes.__wrapped__  # its parameters are not those of `fn`
    lifted = make(of_scopes)

    @functools.wraps(fn)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        with fork_rngs(self):
            crossing = Crossing(self, args, kwargs, cls)
            key = ModuleKey(crossing.module, crossing, crossing.cls)
            out, after = lifted(crossing.scopes, key, *crossing.args, **crossing.kwargs)
        after.restore(self._state)
        return out

    if hasattr(lifted, "why"):
        vars(method)["why"] = lifted.why
    return method


@contextlib.contextmanager
def fork_rngs(module: Module) -> Iterator[None]:
    """In the `with` block, start each stream of a module from a new key drawn from that stream."""
    scope = module.scope
    if scope is None:
        yield
        return
    before = dict(scope.rngs)
    scope.rngs = {name: LazyRng.create(scope.make_rng(name)) for name in before}
    try:
        yield
    finally:
        scope.rngs = before


def lift_direct_transform(
    transform: Callable[..., Any],
    targets: Functions,
    mdl: Module,
    *args: Any,
    multi_scope: bool = True,
    **kwargs: Any,
) -> Any:
    """Turn `targets` into functions of scopes, and run the transform on them immediately."""
    what = function_name(transform).strip("_")
    for target in targets:
        if is_module_class(target):
            raise ValueError(
                f"The {what} transform can only be applied on a Module method. "
                "That is function that takes a Module instance as its first arg. Needed e.g. "
                f"lambda mdl, x: mdl(x), got the class {target.__name__}{here()}"
            )
        if not callable(target):
            raise ValueError(f"transform target must be callable, got {target!r}{here()}")
    fns = tuple(unbound_function(target, Module) for target in targets)
    make = functools.partial(functools.partial, transform)
    wrapped = tuple(wrap_method_once(fn) for fn in fns)
    run = _lift_method(make, wrapped, tuple(_name(fn) for fn in fns), None, multi_scope)
    return run(mdl, *args, **kwargs)
