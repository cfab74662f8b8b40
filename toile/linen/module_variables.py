"""The methods of a bound module for variables and random keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from toile import errors
from toile import numpy as jnp
from toile.core.scope import Scope, Variable
from toile.engine.source import describe, here
from toile.engine.trace import Array
from toile.engine.trees import tree_map


def append(xs: tuple[Any, ...], x: Any) -> tuple[Any, ...]:
    """The default `reduce_fn` of `sow`, which appends the new value to a tuple."""
    return (*xs, x)


def no_values() -> tuple[Any, ...]:
    """The default `init_fn` of `sow`, which returns an empty tuple."""
    return ()


class Variables:
    """The methods of a module that declare, read and write variables and draw keys."""

    scope: ClassVar[Any]
    _state: ClassVar[Any]
    _initialization_allowed: bool

    def _bound(self, doing: str) -> Scope:
        """The scope; raises an error that explains how to bind the module if it is unbound."""
        if self.scope is None:
            cls = type(self).__name__
            raise ValueError(
                f"{doing} on unbound modules. Needed a bound {cls}, got an unbound one: call it "
                f"inside init or apply, or bind it: {cls}(…).bind(variables){here()}"
            )
        return self.scope

    def _declare(self, kind: str, name: str, col: str) -> Scope:
        """Check that a variable can be declared now under this name, and return the scope."""
        if self.scope is None or not self._initialization_allowed:
            what = "Parameters" if kind == "param" else "Variables"
            raise ValueError(
                f"{what} must be initialized in `setup()` or in a method wrapped in `@compact`: "
                f"{type(self).__name__} declares '{name}' elsewhere{here()}"
            )
        if self.scope.name_reserved(name, col):
            raise errors.NameInUseError(kind, name, type(self).__name__)
        return self.scope

    def param(
        self,
        name: str,
        init_fn: Callable[..., Any],
        *init_args: Any,
        unbox: bool = True,
        **init_kwargs: Any,
    ) -> Any:
        """Declare a parameter and return its value.

        Call this method in `setup` or in a compact method. While `init` runs, the parameter is
        created by the call `init_fn(key, *init_args, **init_kwargs)`. Otherwise, it is read from
        the collection `params`.

        Args:
            name: name of the parameter.
            init_fn: initializer, a function `f(key, *init_args, **init_kwargs)`.
            *init_args: arguments of `init_fn` after the key, usually the shape and the dtype.
            unbox: whether to remove boxes such as `nn.Partitioned` from the value.
            **init_kwargs: keyword arguments of `init_fn`.

        Returns:
            The value of the parameter.

        >>> import toile.linen as nn
        >>> class Shift(nn.Module):
        ...     @nn.compact
        ...     def __call__(self, x):
        ...         return x + self.param("shift", nn.initializers.ones, x.shape[-1:])
        >>> Shift().init(key(0), jnp.zeros((2, 3)))
        {'params': {'shift': Array([1., 1., 1.], dtype=float32)}}
        """
        scope = self.scope
        if scope is not None and not init_kwargs and name not in scope.reservations:
            # The common case, handled quickly: the array exists and has the initializer's shape.
            value = scope._collection("params").get(name)
            if (
                isinstance(value, Array)
                and getattr(init_fn, "gives_shape", False)
                and init_args
                and value.shape == init_args[0]
                and self._initialization_allowed
            ):
                scope.reservations[name] = {"params"}
                self._state.children[name] = "params"
                return value
        scope = self._declare("param", name, "params")
        if not callable(init_fn):
            raise TypeError(
                f"param: needed a function init_fn(key, ...) for the parameter {name!r}, got "
                f"{describe(init_fn)} (pass an initializer and its arguments, as in self.param("
                f"{name!r}, nn.initializers.zeros, (3, 4)), or lambda key: value){here()}"
            )
        value = scope.param(name, init_fn, *init_args, unbox=unbox, **init_kwargs)
        self._state.children[name] = "params"
        return value

    def variable(
        self,
        col: str,
        name: str,
        init_fn: Callable[..., Any] | None = None,
        *init_args: Any,
        unbox: bool = True,
        **init_kwargs: Any,
    ) -> Variable[Any]:
        """Declare a variable in a collection.

        Call this method in `setup` or in a compact method.

        Args:
            col: name of the collection, such as `batch_stats`.
            name: name of the variable.
            init_fn: function that returns the initial value. It is called without a key if the
                variable does not exist and the collection is mutable. If `init_fn` is None, the
                variable must already exist.
            *init_args: arguments of `init_fn`.
            unbox: whether to remove boxes such as `nn.Partitioned` from the value.
            **init_kwargs: keyword arguments of `init_fn`.

        Returns:
            A `Variable`. Its attribute `value` can be read and, if the collection is mutable,
            assigned.

        >>> import toile.linen as nn
        >>> class Count(nn.Module):
        ...     @nn.compact
        ...     def __call__(self):
        ...         calls = self.variable("state", "calls", jnp.zeros, (), int)
        ...         calls.value += 1
        ...         return calls.value
        >>> variables = Count().init(key(0))
        >>> Count().apply(variables, mutable=["state"])
        (Array(2, dtype=int32), {'state': {'calls': Array(2, dtype=int32)}})
        """
        scope = self._declare("variable", name, col)
        found = scope.variable(col, name, init_fn, *init_args, unbox=unbox, **init_kwargs)
        self._state.children[name] = col
        return found

    @property
    def path(self) -> tuple[str, ...]:
        """The names of the modules from the root to this module; an empty tuple for the root."""
        return self._bound("Can't access module paths").path

    @property
    def variables(self) -> Any:
        """The variables of this module and its submodules, by collection."""
        return self._bound("Can't access variables").variables()

    def get_variable(self, col: str, name: str, default: Any = None) -> Any:
        """Read a variable.

        Args:
            col: name of the collection.
            name: name of the variable. The name of a submodule selects all variables of that
                submodule.
            default: value to return if the variable does not exist.

        Returns:
            The value of the variable, or `default`.
        """
        return self._bound("Can't access variables").get_variable(col, name, default)

    def put_variable(self, col: str, name: str, value: Any) -> None:
        """Set the value of a variable in a mutable collection.

        Args:
            col: name of the collection.
            name: name of the variable.
            value: the new value.

        Raises:
            toile.errors.ModifyScopeVariableError: the collection is not mutable.
        """
        self._bound("Can't access variables").put_variable(col, name, value)

    def has_variable(self, col: str, name: str) -> bool:
        """Return whether a variable exists.

        Args:
            col: name of the collection.
            name: name of the variable.

        Returns:
            True if the variable exists.
        """
        return self._bound("Can't access variables").has_variable(col, name)

    def is_mutable_collection(self, col: str) -> bool:
        """Return whether the variables in the collection `col` can be changed during this call."""
        return self._bound("Can't check mutability").is_mutable_collection(col)

    def has_rng(self, name: str) -> bool:
        """Return whether this call received a key for the random stream `name`."""
        return self._bound("Can't query for RNGs").has_rng(name)

    def make_rng(self, name: str = "params") -> Any:
        """Draw the next key of a random stream.

        Args:
            name: name of the stream. If there is no such stream, `params` is used.

        Returns:
            A key that depends on the stream's key, the module's path and the number of keys drawn
            so far.

        Raises:
            toile.errors.InvalidRngError: neither this stream nor `params` exists.
        """
        return self._bound("Can't use RNGs").make_rng(name)

    def is_initializing(self) -> bool:
        """Return whether the module is being initialized, that is, called by `init`."""
        return self._bound("Can't check if running under init()").get_flag("initializing", False)

    def sow(
        self,
        col: str,
        name: str,
        value: Any,
        reduce_fn: Callable[[Any, Any], Any] = append,
        init_fn: Callable[[], Any] = no_values,
    ) -> bool:
        """Store a value in a collection if the collection is mutable.

        By default, all values that are stored under one name are collected in a tuple.

        Args:
            col: name of the collection, usually `intermediates`.
            name: name under which the value is stored.
            value: the value, a tree of arrays.
            reduce_fn: function `f(stored, value)` that combines the stored value with the new
                value. By default, it appends the new value to a tuple.
            init_fn: function `f()` that returns the initial stored value, by default an empty
                tuple.

        Returns:
            True if the value was stored.

        >>> import toile.linen as nn
        >>> class Model(nn.Module):
        ...     @nn.compact
        ...     def __call__(self, x):
        ...         self.sow("intermediates", "sum", x.sum())
        ...         return 2 * x
        >>> Model().apply({}, jnp.ones(3), mutable=["intermediates"])[1]
        {'intermediates': {'sum': (Array(3., dtype=float32),)}}
        """
        scope = self._bound("Can't store variables")
        if not scope.is_mutable_collection(col):
            return False
        if scope.has_variable(col, name):
            xs = scope.get_variable(col, name)
        else:
            scope.reserve(name, col)
            self._state.children[name] = col
            xs = init_fn()
        scope.put_variable(col, name, reduce_fn(xs, value))
        return True

    def perturb(self, name: str, value: Any, collection: str = "perturbations") -> Any:
        """Add a zero-valued variable to a value, to make the gradient of the value available.

        `init` creates the variable. The gradient with respect to the variable equals the gradient
        with respect to the value. If the variables passed to `apply` do not include `collection`,
        the value is returned unchanged.

        Args:
            name: name of the variable.
            value: a tree of arrays.
            collection: name of the variable's collection.

        Returns:
            The value plus the variable.

        >>> import toile.linen as nn
        >>> class Model(nn.Module):
        ...     @nn.compact
        ...     def __call__(self, x):
        ...         h = self.perturb("h", 3 * x)
        ...         return (h**2).sum()
        >>> x = jnp.array([1.0, 2.0])
        >>> variables = Model().init(key(0), x)
        >>> toile.grad(lambda v: Model().apply(v, x))(variables)
        {'perturbations': {'h': Array([ 6., 12.], dtype=float32)}}
        """
        scope = self._bound("Can't store variables")
        if scope.is_mutable_collection(collection) and not scope.has_variable(collection, name):
            scope.reserve(name, collection)
            self._state.children[name] = collection
            scope.put_variable(collection, name, tree_map(jnp.zeros_like, value))
        if collection not in scope.root._variables:
            return value
        if not scope.has_variable(collection, name):
            raise ValueError(
                f"Perturbation collection {collection} present, but missing perturbation variable "
                f"{name} at {scope.path_text}: take the collection from init{here()}"
            )
        return tree_map(jnp.add, value, scope.get_variable(collection, name))
