"""The class Scope, which gives access to the variables and random streams of a part of a network.

The root scope owns one nested dict of variables and a tree that counts random draws. Its children
share both by reference. `core.scope` contains the functions that create scopes; import Scope from
there.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FunctionType
from typing import Any

import numpy as np

from toile import errors, random
from toile.api.programs import eval_shape
from toile.configurations import config
from toile.core import meta, tracers
from toile.core.filters import CollectionFilter, in_filter
from toile.core.frozen_dict import FrozenDict, freeze
from toile.core.rng import LazyRng, fold_in_static
from toile.core.variables import Variable
from toile.engine import trees
from toile.engine.errors import call_error
from toile.engine.source import describe, here, modules
from toile.engine.trace import Array, named_scope, state

_EMPTY: FrozenDict = FrozenDict()


def _name(init_fn: Any) -> str:
    return str(getattr(init_fn, "__name__", "init")).replace("<lambda>", "init")


def _made(
    init_fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], fix: str
) -> Any:
    """The initial value of a variable; errors of calls with wrong arguments name the arguments."""
    try:
        return init_fn(*args, **kwargs)
    except TypeError as error:
        if (getattr(init_fn, "__module__", "") or "").startswith("toile.numpy"):
            error.add_note(
                "  (an initializer is called with a key first: pass one of nn.initializers, or "
                "lambda key: value)"
            )
        told = call_error(error, init_fn, args, fix)
        if told is error:
            raise
        raise told from None


class _ChildToken:
    """Marks the counters of a child scope among the counters of its parent."""

    def __repr__(self) -> str:
        return "child_rng_token"


child_rng_token = _ChildToken()
no_flag = object()  # `get_flag` was given no default


def _put(target: dict[str, Any], key: str, val: Any) -> None:
    """Write into nested dicts in place, because child scopes refer to the inner dicts."""
    old = target.get(key)
    if isinstance(old, dict) and isinstance(val, Mapping):
        for k, v in val.items():
            _put(old, k, v)
    else:
        target[key] = val


class Scope:
    """Gives access to the variables and random streams of one part of a network.

    `init` and `apply` create scopes and pass them to functions. Modules use scopes internally. A
    child scope sees a part of its parent's nested dict of variables.

    Args:
        variables: the collections of this scope, nested dicts that the scope may change.
        rngs: dict that maps stream names to keys; None if no keys are needed.
        name: name of this scope in its parent; None for a root.
        mutable: filter that selects the collections that may change.
        parent: the parent scope; None for a root.
        path: names from the root to this scope.
        debug_path: the names in `path` together with the names of transforms; by default, `path`.
        flags: settings that can be read from this scope and all its descendants.

    >>> import toile.linen as nn
    >>> from toile.core import init
    >>> def model(scope, x):
    ...     for i in range(2):
    ...         x = scope.child(layer, f"layer{i}")(x)
    ...     return x
    >>> def layer(scope, x):
    ...     return x + scope.param("bias", nn.initializers.ones, x.shape)
    >>> y, variables = init(model)(key(0), jnp.zeros(2))
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'layer0': {'bias': (2,)}, 'layer1': {'bias': (2,)}}}
    """

    __slots__ = (
        "_variables", "parent", "name", "path", "debug_path", "_rngs", "_streams", "mutable",
        "flags", "_root", "trace_level", "adopted", "rng_counters", "reservations", "_invalid",
        "__weakref__",
    )  # fmt: skip

    def __init__(
        self,
        variables: dict[str, Any],
        rngs: Mapping[str, Any] | None = None,
        name: str | None = None,
        mutable: CollectionFilter = False,
        parent: Scope | None = None,
        path: Iterable[str] = (),
        debug_path: Iterable[str] = (),
        flags: Mapping[str, Any] | None = None,
    ):
        self._variables = variables
        self.parent = parent
        self.name: Any = name  # None for a root
        self.path = tuple(path)
        self.debug_path = tuple(debug_path) or self.path
        self._rngs: Any = {k: LazyRng.create(v) for k, v in rngs.items()} if rngs else {}
        self._streams = tuple(self._rngs)
        self.mutable = mutable
        self.flags = freeze(flags or {})
        self._root = None if parent is None else parent.root
        self.trace_level = state.trace
        # Clones, for this call, of modules that were created outside it, by the original's id.
        self.adopted: dict[int, Any] = {} if parent is None else parent.adopted
        self.rng_counters: dict[Any, Any] = dict.fromkeys(self._rngs, 0)
        self.reservations: dict[str, set[str | None]] = {}
        self._invalid = False

    # Two scopes are equal if they refer to the same place in the same variables and counters.

    def __eq__(self, other: Any) -> bool:
        if self is other:
            return True
        if not isinstance(other, Scope):
            return False
        return (
            self.root._variables is other.root._variables
            and self.path == other.path
            and self.rng_counters is other.rng_counters
        )

    def __hash__(self) -> int:
        return hash((id(self.root._variables), self.path, id(self.rng_counters)))

    def __repr__(self) -> str:
        return f"Scope({self.path_text}, mutable={self.mutable!r}, rngs={list(self.rngs)})"

    @property
    def root(self) -> Scope:
        """The root scope, which owns the variables."""
        return self if self._root is None else self._root

    @property
    def path_text(self) -> str:
        """The path as a string, including the names of the surrounding lifted transforms."""
        return "/" + "/".join(self.debug_path)

    @property
    def rngs(self) -> dict[str, LazyRng]:
        """The random streams by name; keys drawn from them depend on the scope's path."""
        if self._rngs is None:  # most scopes never draw
            above: Any = self.parent  # a root has its streams from the start
            streams = above.rngs.items()
            self._rngs = {key: LazyRng.create(rng, self.name) for key, rng in streams}
        return self._rngs

    @rngs.setter
    def rngs(self, rngs: dict[str, LazyRng]) -> None:
        self._rngs = rngs
        self._streams = tuple(rngs)

    @property
    def invalid(self) -> bool:
        """Whether the block for which the scope was created has ended."""
        return self._invalid

    def invalidate(self) -> None:
        """Mark the scope as invalid; using it afterward raises an error."""
        self._invalid = True

    @contextlib.contextmanager
    def temporary(self) -> Iterator[Scope]:
        """Return a context manager that invalidates the scope when its block ends."""
        try:
            yield self
        finally:
            self.invalidate()

    def _check_valid(self) -> None:
        if self._invalid:
            raise errors.InvalidScopeError(self.name)

    def _check_writable(self, doing: str) -> None:
        """Raise an error inside a raw transform, from which the value would leak."""
        if state.trace is not self.trace_level and tracers.is_inside(self.trace_level):
            raise errors.JaxTransformError(self.path_text, doing, tracers.lifted_transform())

    # The tree of scopes.

    def rewound(self, rewind_rngs: bool = False) -> Scope:
        """Return a copy of the scope in which no names are reserved.

        Args:
            rewind_rngs: whether to reset the counters of random draws.
        """
        self._check_valid()
        scope = Scope.__new__(Scope)
        scope._variables = self._variables
        scope.parent = self.parent
        scope.name = self.name
        scope.path = self.path
        scope.debug_path = self.debug_path
        scope._rngs = self._rngs
        scope._streams = self._streams
        scope.mutable = self.mutable
        scope.flags = self.flags
        scope._root = self._root
        scope.trace_level = self.trace_level
        scope.adopted = self.adopted
        scope.rng_counters = dict.fromkeys(self.rngs, 0) if rewind_rngs else self.rng_counters
        scope.reservations = {}
        scope._invalid = False
        return scope

    def name_reserved(self, name: str, col: str | None = None) -> bool:
        """Return whether `name` is taken in the collection `col` or, if `col` is None, anywhere."""
        taken = self.reservations.get(name)
        return taken is not None and (None in taken or col is None or col in taken)

    def reserve(self, name: str, col: str | None = None) -> None:
        """Reserve a name for a child or a variable; raise an error if the name is taken."""
        if not isinstance(name, str):
            raise TypeError(
                f'The type of scope "{name}" should be string but it is {type(name)}{here()}'
            )
        taken = self.reservations.get(name)
        if taken is None:
            self.reservations[name] = {col}
            return
        if self.name_reserved(name, col):
            raise ValueError(
                f'Duplicate use of scope name: "{name}" in {self.path_text}. Needed a name that is '
                f"not in use (choose another one){here()}"
            )
        taken.add(col)

    def default_name(self, prefix: str) -> str:
        """Return the first unused name among `prefix0`, `prefix1` and so on."""
        return next(
            name for i in itertools.count() if (name := f"{prefix}{i}") not in self.reservations
        )

    def push(self, name: str | None = None, prefix: str = "", reuse: bool = False) -> Scope:
        """Return a new child scope. If `reuse` is True, the name may already be in use."""
        self._check_valid()
        if name is None:
            name = self.default_name(prefix)
        if not reuse or name not in self.reservations:
            self.reserve(name)
        counter_key = (child_rng_token, name)
        counters = self.rng_counters.get(counter_key)
        if counters is None:
            counters = dict.fromkeys(self._streams, 0)
            self.rng_counters[counter_key] = counters
        scope = Scope.__new__(Scope)
        scope._variables = {}
        scope.parent = self
        scope.name = name
        scope.path = (*self.path, name)
        scope.debug_path = (*self.debug_path, name)
        scope._rngs = None if self._streams else {}
        scope._streams = self._streams
        scope.mutable = self.mutable
        scope.flags = self.flags
        scope._root = self if self._root is None else self._root
        scope.trace_level = self.trace_level
        scope.adopted = self.adopted
        scope.rng_counters = counters
        scope.reservations = {}
        scope._invalid = False
        return scope

    def child(
        self,
        fn: Callable[..., Any],
        name: str | None = None,
        prefix: str | None = None,
        named_call: bool = True,
        **partial_kwargs: Any,
    ) -> Callable[..., Any]:
        """Bind the first argument of a function to a child scope.

        Args:
            fn: function whose first argument is a `Scope`.
            name: name of the child; if None, it is `prefix` followed by a number.
            prefix: prefix of the name; if None, the name of the function is used.
            named_call: whether to label the operations of the function with the name of the child.
            **partial_kwargs: keyword arguments of `fn`.

        Returns:
            A function of the remaining arguments. All calls to this function use the same
            variables.
        """
        if name is None:
            if prefix is None:
                prefix = fn.__name__ + "_" if hasattr(fn, "__name__") else ""
            name = self.default_name(prefix)
        scope = self.push(name)

        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            kwargs = {**partial_kwargs, **kwargs}
            with named_scope(name) if named_call else contextlib.nullcontext():
                return fn(scope.rewound(), *args, **kwargs)

        return wrapper

    # Collections.

    def mutable_variables(self) -> Any:
        """Return the collections that may have changed."""
        self._populate_collections()
        xs = {k: v for k, v in self._variables.items() if in_filter(self.mutable, k)}
        return freeze(xs) if config.flax_return_frozendict else xs

    def variables(self) -> Any:
        """Return this scope's part of all collections."""
        self._populate_collections()
        return freeze(self._variables) if config.flax_return_frozendict else self._variables

    def is_mutable_collection(self, col: str) -> bool:
        """Return whether variables in `col` can be created and changed."""
        return in_filter(self.mutable, col)

    def is_collection_empty(self, col: str) -> bool:
        """Return whether the collection `col` contains no variables anywhere in the network."""
        return not self.root._variables.get(col)

    def _mutable_collection(self, col: str) -> dict[str, Any]:
        """This scope's part of `col`, created in all parents if necessary."""
        assert self.is_mutable_collection(col), f"Collection {col} is not mutable"
        if col not in self._variables:
            if self.parent is None:
                self._variables[col] = {}
            else:
                parent_col = self.parent._mutable_collection(col)
                self._variables[col] = parent_col.setdefault(self.name, {})
        return self._variables[col]

    def _collection(self, col: str) -> Mapping[str, Any]:
        """This scope's part of `col`, or an empty dict if it has none."""
        found = self._variables.get(col)
        if found is not None:
            return found
        if self.parent is None:
            return self._variables.get(col, _EMPTY)
        parent_col = self.parent._collection(col)
        if self.name not in parent_col:
            return _EMPTY
        self._variables[col] = found = parent_col[self.name]
        return found

    def _populate_collections(self) -> None:
        for col in self.root._variables:
            self._collection(col)

    # Random keys.

    def has_rng(self, name: str) -> bool:
        """Return whether there is a random stream `name`."""
        return name in self.rngs

    def _missing_stream(self, name: str) -> errors.InvalidRngError:
        """The error for a random stream that this scope does not have."""
        callers = [module.scope for module in modules.stack if module is not None]
        outside = {stream for scope in callers if scope is not None for stream in scope.rngs}
        if name in outside:
            return errors.InvalidRngError(
                f'{self.name} needs PRNG for "{name}": needed it at {self.path_text}, got only the '
                f"streams {sorted(self.rngs)} ({sorted(outside)} were given, but a transformation "
                "such as nn.scan or nn.vmap does not pass this one on)",
                f"name it in the transformation: split_rngs={{..., '{name}': True}} gives each "
                "step its own key, False the same key",
            )
        return errors.InvalidRngError(
            f'{self.name} needs PRNG for "{name}": pass rngs={{"{name}": key}} to init or '
            f"apply (at {self.path_text}, streams given: {sorted(self.rngs)})"
        )

    def make_rng(self, name: str = "params") -> Any:
        """Return the next key of a random stream. If the stream is missing, `params` is used."""
        if name not in self.rngs:
            if "params" not in self.rngs:
                raise self._missing_stream(name)
            name = "params"
        self._check_valid()
        self._check_writable(f"draws a key of the stream '{name}'")
        self.rng_counters[name] += 1
        stream = self.rngs[name]
        return fold_in_static(stream.rng, (*stream.suffix, self.rng_counters[name]))

    # Variables.

    def get_variable(self, col: str, name: str, default: Any = None) -> Any:
        """Return the value of a variable, or `default` if the variable does not exist."""
        return self._collection(col).get(name, default)

    def has_variable(self, col: str, name: str) -> bool:
        """Return whether this scope has a variable `name` in `col`."""
        return name in self._collection(col)

    def put_variable(self, col: str, name: str, value: Any) -> None:
        """Set the value of a variable in a mutable collection."""
        self._check_valid()
        if not self.is_mutable_collection(col):
            raise errors.ModifyScopeVariableError(col, name, self.path_text)
        self._check_writable(f"writes the variable '{name}' of '{col}'")
        _put(self._mutable_collection(col), name, value)

    def variable(
        self,
        col: str,
        name: str,
        init_fn: Callable[..., Any] | None = None,
        *init_args: Any,
        unbox: bool = True,
        **init_kwargs: Any,
    ) -> Variable[Any]:
        """Declare a variable, and create it if it does not exist.

        Args:
            col: name of the collection.
            name: name of the variable.
            init_fn: function that returns the initial value; None if the variable must already
                exist.
            *init_args, **init_kwargs: arguments of `init_fn`.
            unbox: whether to remove boxes such as `nn.Partitioned` from the value.

        Returns:
            A `Variable`.
        """
        self.reserve(name, col)
        if not self.has_variable(col, name):
            if not self.is_mutable_collection(col) or init_fn is None:
                if self.is_collection_empty(col):
                    raise errors.ScopeCollectionNotFound(col, name, self.path_text)
                raise errors.ScopeVariableNotFoundError(name, col, self.path_text)
            fix = f"no key is passed here: lambda: {_name(init_fn)}(self.make_rng(), ...)"
            self.put_variable(col, name, _made(init_fn, init_args, init_kwargs, fix))
        return Variable(self, col, name, unbox=unbox)

    def param(
        self,
        name: str,
        init_fn: Callable[..., Any],
        *init_args: Any,
        unbox: bool = True,
        **init_kwargs: Any,
    ) -> Any:
        """Declare a parameter, create it if it does not exist, and return its value.

        Args:
            name: name of the parameter.
            init_fn: initializer, a function `f(key, *init_args, **init_kwargs)`.
            *init_args, **init_kwargs: arguments of `init_fn` after the key.
            unbox: whether to remove boxes such as `nn.Partitioned` from the value.

        Returns:
            The value of the parameter.

        Raises:
            toile.errors.ScopeParamShapeError: the parameter exists, but its shape differs from the
                shape that `init_fn` returns.
        """
        self.reserve(name, "params")
        params = self._collection("params")
        if name in params:
            value = params[name]
            if unbox and not isinstance(value, Array):
                value = meta.unbox(value)
            self._check_param(name, value, init_fn, init_args, init_kwargs)
            return value
        if not self.is_mutable_collection("params"):
            if self.is_collection_empty("params"):
                raise errors.ScopeCollectionNotFound("params", name, self.path_text)
            raise errors.ScopeParamNotFoundError(name, self.path_text)
        self._check_writable(f"creates the parameter '{name}'")
        fix = f"write self.param({name!r}, {_name(init_fn)}, shape), or lambda key: value"
        value = _made(init_fn, (self.make_rng("params"), *init_args), init_kwargs, fix)
        if isinstance(value, FunctionType):
            raise TypeError(
                f"param: needed an initializer that returns the array {name!r}, got one that "
                f"returns the function {describe(value)} (call it first, as in "
                f"nn.initializers.lecun_normal()){here()}"
            )
        self.put_variable("params", name, value)
        return meta.unbox(value) if unbox else value

    def _check_param(
        self, name: str, value: Any, init_fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Raise an error unless the parameter has the shape that `init_fn` returns."""
        shape = getattr(value, "shape", None)
        if args and not kwargs and getattr(init_fn, "gives_shape", False):
            if shape == args[0]:  # our own initializers return the shape they are given
                return
        # An object that stands for an array, such as a quantized one, is compared as a whole.
        kept = [value] if hasattr(value, "__jax_array__") else trees.leaves(value)
        made = eval_shape(lambda: init_fn(random.key(0), *args, **kwargs))
        for val, expected in zip(kept, trees.leaves(made), strict=False):
            if np.shape(val) != np.shape(expected):
                raise errors.ScopeParamShapeError(
                    name, self.path_text, np.shape(val), np.shape(expected)
                )

    # Flags: settings that can be read from the scope and all its descendants.

    def has_flag(self, key: str) -> bool:
        """Return whether a flag is set."""
        return key in self.flags

    def get_flag(self, key: str, default: Any = no_flag) -> Any:
        """Return the value of a flag, or `default` if the flag is not set."""
        if key not in self.flags and default is no_flag:
            raise ValueError(f"Flag {key} not present on scope.{here()}")
        return self.flags.get(key, default)
