"""The methods that run, bind and clone modules, and functions such as `nn.init` and `nn.apply`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from toile import errors
from toile.core import partial_eval
from toile.core import scope as scopes
from toile.core.filters import CollectionFilter, union_filters
from toile.core.frozen_dict import FrozenDict
from toile.core.rng import is_valid_rng
from toile.core.scope import Scope
from toile.engine.extra_warnings import doubt
from toile.engine.source import describe, here, is_internal
from toile.engine.trace import Array
from toile.linen.adoption import freeze_attr, is_plain, map_leaves
from toile.linen.context import context, unspecified_parent
from toile.linen.methods import unbound_function
from toile.linen.module_summaries import NOT_INTERMEDIATES
from toile.traceback_util import api_boundary

if TYPE_CHECKING:
    from toile.linen.module import Module

M = TypeVar("M", bound="Functional")


def capture_call_intermediates(module: Any, method_name: str) -> bool:
    """The filter for `capture_intermediates=True`, which selects the method `__call__`."""
    return method_name == "__call__"


def _own_init(cls: type) -> Any:
    """The `__init__` that a user wrote for a class of modules, as in PyTorch; None without one."""
    init = vars(cls).get("__init__")
    code = getattr(init, "__code__", None)
    return init if code is not None and not is_internal(code) else None


class Functional:
    """The methods that run, bind and clone a module."""

    scope: ClassVar[Any]
    name: str | None
    _own_fields: ClassVar[tuple[str, ...]]

    def _module_checks(self) -> None:
        """Check that this is an instance whose construction was completed."""
        if not isinstance(self, Functional):
            raise errors.InvalidInstanceModuleError()
        if "_id" not in self.__dict__:
            raise errors.IncorrectPostInitOverrideError(_own_init(type(self)))

    def _streams(self, rngs: Any, optional: bool = False) -> Any:
        """The random streams by name; a single key becomes the stream 'params'."""
        if isinstance(rngs, dict | FrozenDict) or (optional and rngs is None):
            return rngs
        if not is_valid_rng(rngs):
            raise errors.InvalidRngError(
                f"RNGs should be of shape (2,) or PRNGKey in Module {type(self).__name__}, but "
                f"rngs are: {rngs if isinstance(rngs, str) else describe(rngs)}",
                "pass the key first: model.init(toile.random.key(0), x); model.apply(variables, x, "
                "rngs={'dropout': key})",
            )
        return {"params": rngs}

    def _method(self, method: Any, submodules: bool) -> Callable[..., Any]:
        """The function that `apply` or `init` calls."""
        if method is None:
            method = self.__call__  # type: ignore[operator]
        elif isinstance(method, str):
            attribute = method
            method = getattr(self, attribute)
            if not callable(method):
                raise TypeError(
                    f"'{type(self).__name__}.{attribute}' must be a callable, got {type(method)}."
                    f"{here()}"
                )
            if submodules and isinstance(method, Functional):
                return lambda m, *args, **kwargs: getattr(m, attribute)(*args, **kwargs)
        return unbound_function(method, Functional)

    @api_boundary
    def apply(
        self,
        variables: Any,
        *args: Any,
        rngs: Any = None,
        method: Callable[..., Any] | str | None = None,
        mutable: CollectionFilter = False,
        capture_intermediates: bool | Callable[[Any, str], bool] = False,
        **kwargs: Any,
    ) -> Any:
        """Call a method of the module with the given variables.

        Args:
            variables: nested dict of collections, such as the result of `init`.
            *args: positional arguments of the method.
            rngs: one key for the stream `params`, or a dict that maps stream names to keys, such as
                `{"dropout": key}`. Pass None if no keys are needed.
            method: the method to call, specified by name, as the method itself, or as a function
                whose first argument is the module. If `method` is None, `__call__` is used.
            mutable: filter that selects the collections that the call may change: True for all, a
                name, a list of names, or a `DenyList`.
            capture_intermediates: whether to store the result of every `__call__` in the collection
                `intermediates`. If it is a function `f(module, method_name)`, the results of all
                methods for which the function returns True are stored instead.
            **kwargs: keyword arguments of the method.

        Returns:
            The result of the method. If `mutable` has a value other than False, or if intermediates
            are captured, the pair `(result, mutable collections)` is returned instead.

        >>> import toile.linen as nn
        >>> variables = {"params": {"kernel": jnp.eye(2)}}
        >>> nn.Dense(2, use_bias=False).apply(variables, jnp.array([[3.0, 4.0]]))
        Array([[3., 4.]], dtype=float32)
        """
        Functional._module_checks(self)
        rngs = self._streams(rngs, optional=True)
        run = apply(self._method(method, True), self, mutable, capture_intermediates)
        return run(variables, *args, **kwargs, rngs=rngs)

    @api_boundary
    def init_with_output(
        self,
        rngs: Any,
        *args: Any,
        method: Callable[..., Any] | str | None = None,
        mutable: CollectionFilter = NOT_INTERMEDIATES,
        capture_intermediates: bool | Callable[[Any, str], bool] = False,
        **kwargs: Any,
    ) -> Any:
        """Create the variables of the module by calling it, and also return the result of the call.

        Args:
            rngs: one key for the stream `params`, or a dict that maps stream names to keys.
            *args: positional arguments of the method.
            method: the method to call, specified by name, as the method itself, or as a function
                whose first argument is the module. If `method` is None, `__call__` is used.
            mutable: filter that selects the collections to create; by default, all except
                `intermediates`.
            capture_intermediates: whether to store the result of every `__call__` in the collection
                `intermediates`. If it is a function `f(module, method_name)`, the results of all
                methods for which the function returns True are stored instead.
            **kwargs: keyword arguments of the method.

        Returns:
            The pair `(result, variables)`.
        """
        Functional._module_checks(self)
        rngs = self._streams(rngs)
        run = init_with_output(self._method(method, False), self, mutable, capture_intermediates)
        result = run(rngs, *args, **kwargs)
        if method is None and isinstance(result[0], Functional):
            self._refuse_uncalled(result[0])
        return result

    def _refuse_uncalled(self, layer: Functional) -> None:
        """Raise an error if a call returned a layer that was made with its input as a field."""
        for name in layer._own_fields:
            value = layer.__dict__.get(name)
            if isinstance(value, Array):
                kind = type(layer).__name__
                doubt(TypeError(
                    f"{type(self).__name__}: needed the result of a layer, got the layer {kind} "
                    f"itself, made with {name}={describe(value)} (give the input in a second call: "
                    f"{kind}({name}=...)(x)){here()}"
                ))

    @api_boundary
    def init(
        self,
        rngs: Any,
        *args: Any,
        method: Callable[..., Any] | str | None = None,
        mutable: CollectionFilter = NOT_INTERMEDIATES,
        capture_intermediates: bool | Callable[[Any, str], bool] = False,
        **kwargs: Any,
    ) -> Any:
        """Create the variables of the module by calling it with example arguments.

        Args:
            rngs: one key for the stream `params`, or a dict that maps stream names to keys.
            *args: positional arguments of the method.
            method: the method to call, specified by name, as the method itself, or as a function
                whose first argument is the module. If `method` is None, `__call__` is used.
            mutable: filter that selects the collections to create; by default, all except
                `intermediates`.
            capture_intermediates: whether to store the result of every `__call__` in the collection
                `intermediates`. If it is a function `f(module, method_name)`, the results of all
                methods for which the function returns True are stored instead.
            **kwargs: keyword arguments of the method.

        Returns:
            The variables, as a nested dict. The keys of the outermost level are names of
            collections, those of the innermost level are names of variables, and those in between
            are names of submodules.

        >>> import toile.linen as nn
        >>> variables = nn.Dense(4).init(key(0), jnp.ones((1, 3)))
        >>> toile.tree.map(jnp.shape, variables)
        {'params': {'bias': (4,), 'kernel': (3, 4)}}
        """
        Functional._module_checks(self)
        options = {
            "method": method, "mutable": mutable, "capture_intermediates": capture_intermediates,
        }  # fmt: skip
        return self.init_with_output(rngs, *args, **options, **kwargs)[1]

    @api_boundary
    def lazy_init(
        self,
        rngs: Any,
        *args: Any,
        method: Callable[..., Any] | None = None,
        mutable: CollectionFilter = NOT_INTERMEDIATES,
        **kwargs: Any,
    ) -> Any:
        """Create the variables of the module without computing its result.

        Args:
            rngs: one key for the stream `params`, or a dict that maps stream names to keys.
            *args: positional arguments of the method. An argument can be a `toile.ShapeDtypeStruct`
                if no variable depends on its values.
            method: the method to call, or a function whose first argument is the module. If
                `method` is None, `__call__` is used.
            mutable: filter that selects the collections to create; by default, all except
                `intermediates`.
            **kwargs: keyword arguments of the method.

        Returns:
            The variables, in the form that `init` returns.

        >>> import toile.linen as nn
        >>> x = toile.ShapeDtypeStruct((1, 3), jnp.float32)
        >>> nn.Dense(2).lazy_init(key(0), x)["params"]["bias"]
        Array([0., 0.], dtype=float32)
        """
        Functional._module_checks(self)

        def run(rngs: Any, *args: Any, **kwargs: Any) -> Any:
            return self.init(rngs, *args, method=method, mutable=mutable, **kwargs)

        return partial_eval.lazy_init(run)(rngs, *args, **kwargs)

    def bind(
        self: M, variables: Any, *args: Any, rngs: Any = None, mutable: CollectionFilter = False
    ) -> M:
        """Return a copy of the module with variables attached, for interactive use.

        Args:
            variables: nested dict of collections, such as the result of `init`.
            *args: not used.
            rngs: one key for the stream `params`, or a dict that maps stream names to keys; None if
                no keys are needed.
            mutable: filter that selects the collections that calls may change; see `apply`.

        Returns:
            A bound module. Its attribute `variables` contains the given variables, including any
            changes that calls have made.

        >>> import toile.linen as nn
        >>> model = nn.Dense(2, use_bias=False)
        >>> bound = model.bind({"params": {"kernel": jnp.eye(2)}})
        >>> bound(jnp.array([[3.0, 4.0]]))
        Array([[3., 4.]], dtype=float32)
        """
        Functional._module_checks(self)
        streams = self._streams(rngs, optional=True)
        scope = scopes.bind(variables, streams, mutable, flags={"interactive": True})
        return self.clone(parent=scope, _deep_clone=True)

    def unbind(self: M) -> tuple[M, Any]:
        """Separate a bound module from its variables: the inverse of `bind`.

        Use this method to turn a part of a bound model into a separate model.

        Returns:
            An unbound copy of the module, and its variables.

        Raises:
            toile.errors.CallUnbindOnUnboundModuleError: the module is not bound.

        >>> import toile.linen as nn
        >>> model = nn.Sequential([nn.Dense(4), nn.Dense(2)])
        >>> bound = model.bind(model.init(key(0), jnp.ones((1, 3))))
        >>> first, variables = bound.layers[0].unbind()
        >>> first.apply(variables, jnp.ones((1, 3))).shape
        (1, 4)
        """
        Functional._module_checks(self)
        if self.scope is None:
            raise errors.CallUnbindOnUnboundModuleError()
        variables = self.variables  # type: ignore[attr-defined]
        return self.clone(_deep_clone=True, _reset_names=True, name=None), variables

    def clone(
        self: M,
        *,
        parent: Any = None,
        _deep_clone: Any = False,
        _reset_names: bool = False,
        **updates: Any,
    ) -> M:
        """Copy the module, replacing some field values.

        Args:
            parent: parent of the new module; None for an unbound module.
            _deep_clone: whether to clone the submodules in the module's fields too.
            _reset_names: whether to remove the names of cloned submodules.
            **updates: new values of fields.

        Returns:
            The new module.
        """
        attrs = {name: getattr(self, name) for name in self._own_fields}
        attrs["name"] = self.name
        attrs.update(parent=parent, **updates)
        if _deep_clone is not False:
            # Each submodule is cloned once, so that a submodule used twice stays one object.
            cache = {} if _deep_clone is True else _deep_clone

            def clone_once(suffix: str, m: Any) -> Any:
                if not isinstance(m, Functional) or not hasattr(m, "_id"):
                    return m
                key = m._id
                if key not in cache:
                    renamed = {"name": None} if _reset_names else {}
                    cache[key] = m.clone(_deep_clone=cache, _reset_names=_reset_names, **renamed)
                return cache[key]

            for name, value in attrs.items():
                if name != "parent" and not is_plain(value):
                    attrs[name] = freeze_attr(map_leaves(clone_once, value))
        return type(self)(**attrs)

    def copy(
        self: M, *, parent: Any = unspecified_parent, name: str | None = None, **updates: Any
    ) -> M:
        """Copy the module as a submodule of the current module, replacing some field values.

        Args:
            parent: parent of the copy; by default, the module whose method is running.
            name: name of the copy; None for an automatic name.
            **updates: new values of fields.

        Returns:
            The new module.
        """
        return self.clone(parent=parent, name=name, _deep_clone=True, _reset_names=False, **updates)


def _scope_function(
    fn: Callable[..., Any], module: Any, mutable: CollectionFilter, capture: Any
) -> tuple[Callable[..., Any], CollectionFilter]:
    """A function of a bound module as a function of a scope, and the filter `mutable`."""
    if capture is True:
        capture = capture_call_intermediates
    if capture:
        mutable = union_filters(mutable, "intermediates")

    @functools.wraps(fn)
    def scope_fn(scope: Scope, *args: Any, **kwargs: Any) -> Any:
        context.capture_stack.append(capture)
        try:
            return fn(module.clone(parent=scope, _deep_clone=True), *args, **kwargs)
        finally:
            context.capture_stack.pop()

    return scope_fn, mutable


def apply(
    fn: Callable[..., Any],
    module: Module | Functional,
    mutable: CollectionFilter = False,
    capture_intermediates: bool | Callable[[Any, str], bool] = False,
) -> Callable[..., Any]:
    """Turn a function of a bound module into a pure function of variables.

    Args:
        fn: function whose first argument is a bound module.
        module: the module that is bound to the variables and passed to `fn`.
        mutable: filter that selects the collections that the call may change: True for all, a name,
            a list of names, or a `DenyList`.
        capture_intermediates: whether to store the result of every `__call__` in the collection
            `intermediates`. If it is a function `f(module, method_name)`, the results of all
            methods for which the function returns True are stored instead.

    Returns:
        A function `f(variables, *args, rngs=None, **kwargs)`. It returns the result of `fn` or, if
        collections are mutable, the pair `(result, mutable collections)`.

    >>> import toile.linen as nn
    >>> run = nn.apply(lambda m, x: m(x).sum(), nn.Dense(2, use_bias=False))
    >>> run({"params": {"kernel": jnp.eye(2)}}, jnp.ones((1, 2)))
    Array(2., dtype=float32)
    """
    scope_fn, mutable = _scope_function(fn, module, mutable, capture_intermediates)
    return scopes.apply(scope_fn, mutable=mutable)


def init_with_output(
    fn: Callable[..., Any],
    module: Module | Functional,
    mutable: CollectionFilter = NOT_INTERMEDIATES,
    capture_intermediates: bool | Callable[[Any, str], bool] = False,
) -> Callable[..., Any]:
    """Turn a function of a bound module into one that returns the result and the created variables.

    Args:
        fn: function whose first argument is a bound module.
        module: the module that is bound and passed to `fn`.
        mutable: filter that selects the collections to create; by default, all except
            `intermediates`.
        capture_intermediates: whether to store the result of every `__call__` in the collection
            `intermediates`. If it is a function `f(module, method_name)`, the results of all
            methods for which the function returns True are stored instead.

    Returns:
        A function `f(rngs, *args, **kwargs)` that returns the pair `(result, variables)`.

    >>> import toile.linen as nn
    >>> run = nn.init_with_output(lambda m, x: m(x).shape, nn.Dense(2))
    >>> shape, variables = run(key(0), jnp.ones((1, 3)))
    >>> shape, toile.tree.map(jnp.shape, variables)
    ((1, 2), {'params': {'bias': (2,), 'kernel': (3, 2)}})
    """
    scope_fn, mutable = _scope_function(fn, module, mutable, capture_intermediates)
    return scopes.init(scope_fn, mutable=mutable)


def init(
    fn: Callable[..., Any],
    module: Module | Functional,
    mutable: CollectionFilter = NOT_INTERMEDIATES,
    capture_intermediates: bool | Callable[[Any, str], bool] = False,
) -> Callable[..., Any]:
    """Turn a function of a bound module into a function that creates the module's variables.

    Args:
        fn: function whose first argument is a bound module.
        module: the module that is bound and passed to `fn`.
        mutable: filter that selects the collections to create; by default, all except
            `intermediates`.
        capture_intermediates: whether to store the result of every `__call__` in the collection
            `intermediates`. If it is a function `f(module, method_name)`, the results of all
            methods for which the function returns True are stored instead.

    Returns:
        A function `f(rngs, *args, **kwargs)` that returns the variables.

    >>> import toile.linen as nn
    >>> run = nn.init(lambda m, x: m(x), nn.Dense(2))
    >>> toile.tree.map(jnp.shape, run(key(0), jnp.ones((1, 3))))
    {'params': {'bias': (2,), 'kernel': (3, 2)}}
    """
    run = init_with_output(fn, module, mutable, capture_intermediates)

    @functools.wraps(run)
    def init_variables(*args: Any, **kwargs: Any) -> Any:
        return run(*args, **kwargs)[1]

    return init_variables
