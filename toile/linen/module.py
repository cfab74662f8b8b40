"""Module, the base class of layers and models.

A Module is a dataclass of hyperparameters. `init`, `apply`, `bind` or the parent module binds it to
a Scope, which contains its variables. This file handles the life cycle of a module: construction,
attachment to a parent, `setup` and method calls. The methods for variables are in
`module_variables`, those for running and cloning in `module_functional`, and those for summaries in
`module_summaries`.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast, dataclass_transform

from toile import errors, random
from toile.api.programs import eval_shape
from toile.configurations import config
from toile.core.scope import Scope
from toile.engine.foreign_names import method_instead
from toile.engine.lazy import attach_table
from toile.engine.locks import loading
from toile.engine.source import here
from toile.engine.suggestions import did_you_mean
from toile.engine.trace import state as engine_state
from toile.ids import uuid
from toile.linen import dataclass, kw_only_dataclasses
from toile.linen.adoption import freeze_attr, is_plain, map_leaves
from toile.linen.context import (  # noqa: F401  all of Flax's module.py is found here
    CallInfo,
    InterceptorContext,
    Sentinel,
    call_label,
    context,
    disable_named_call,
    enable_named_call,
    intercept_methods,
    named_calls,
    override_named_call,
    run_interceptors,
    unspecified_parent,
)
from toile.linen.fingerprints import changes, fingerprint
from toile.linen.methods import (  # noqa: F401
    DescriptorWrapper,
    compact,
    compact_name_scope,
    find_compact_name_scopes,
    nowrap,
    wrap_attributes,
    wrap_descriptor_once,
    wrap_method_once,
)
from toile.linen.module_functional import (  # noqa: F401
    Functional,
    apply,
    capture_call_intermediates,
    init,
    init_with_output,
)
from toile.linen.module_summaries import Summarized
from toile.linen.module_variables import Variables
from toile.linen.reprs import module_repr

M = TypeVar("M", bound="Module")
T = TypeVar("T")

__getattr__, __dir__ = attach_table(__name__, {})  # Flax's private names: toile.compat

# Python's copy and pickle look for these on instances; a module must not run `setup` to answer.
_COPY_PROTOCOL = frozenset(
    ("__getstate__", "__setstate__", "__getnewargs_ex__", "__reduce__", "__reduce_ex__",
     "__copy__", "__deepcopy__")
)  # fmt: skip
# Notebooks look for these, about a dozen for each display.
_NOTEBOOK_PROTOCOL = ("_repr_", "_ipython_")


class SetupState(enum.IntEnum):
    """The progress of `setup`. TRANSFORMED means that it ran outside the current transform."""

    NEW = 0
    TRANSFORMED = 1
    DONE = 2


class ModuleState:
    """The state that a module has while it is used, in addition to its fields."""

    __slots__ = (
        "in_compact_method", "in_setup", "setup_called", "is_initialized", "autoname_cursor",
        "children", "containers",
    )  # fmt: skip

    def __init__(self) -> None:
        self.in_compact_method = False
        self.in_setup = False
        self.setup_called = SetupState.NEW
        self.is_initialized = False
        self.autoname_cursor: dict[str, int] = {}
        self.children: dict[str, Any] = {}
        self.containers: list[str] = []  # fields with containers or modules in them

    def reset(self) -> None:
        """Clear the state that belongs to one call to a method."""
        self.in_compact_method = False
        self.in_setup = False
        self.autoname_cursor = {}

    def export(self) -> ModuleState:
        """The state that a clone inside a transform needs."""
        new = ModuleState()
        new.reimport(self)
        new.setup_called = SetupState.TRANSFORMED if self.setup_called else SetupState.NEW
        return new

    def reimport(self, other: ModuleState) -> None:
        """Take over the state of a clone that ran inside a transform."""
        self.in_compact_method = other.in_compact_method
        self.in_setup = other.in_setup
        self.is_initialized = other.is_initialized
        self.autoname_cursor = dict(other.autoname_cursor)


class ParentDescriptor:
    """The field `parent`, a weak reference, so that modules do not keep each other in memory."""

    def __get__(self, obj: Any, objtype: Any = None) -> Any:
        if obj is None:
            return None
        parent = obj.__dict__.get("_parent_ref")
        return parent() if parent.__class__ is weakref.ref else parent

    def __set__(self, obj: Any, value: Any) -> None:
        obj.__dict__["_parent_ref"] = weakref.ref(value) if isinstance(value, Module) else value


class _NoAttribute(AttributeError):
    """The error for a missing attribute, whose message is made when it is shown."""

    def __init__(self, module: Module, name: str, place: str):
        super().__init__(name=name, obj=module)
        self.module, self.wanted, self.place = module, name, place

    def __str__(self) -> str:
        module, name = self.module, self.wanted
        cls = type(module).__name__
        text = f'"{cls}" object has no attribute "{name}".'
        near = did_you_mean(name, {*vars(module), *dir(type(module))})
        if name == "__call__":
            text += (
                " Needed a method __call__, which init and apply run (write `def __call__(self, "
                "x)`; PyTorch calls it forward), or name another method: init(key, x, "
                "method='forward')"
            )
        elif method_instead(name, "module") and not _in_setup(module, name):
            text += method_instead(name, "module")
        elif near and (module.scope is not None or not _in_setup(module, name)):
            text += near
        elif module.scope is not None:
            text += (
                f" Needed a field, a method or an attribute that setup assigns: write self.{name} "
                f"= ... in a method `setup` of {cls}"
            )
        else:
            text += (
                f" If \"{name}\" is defined in '.setup()', remember these fields are only "
                "accessible from inside 'init' or 'apply': this module is unbound, it has fields "
                f"but no variables. Bind it first: model = {cls}(…).bind(variables), then "
                f"model.{name}"
            )
        return text + self.place


def _in_setup(module: Module, name: str) -> bool:
    """Whether the code of `setup` mentions a name."""
    setup = inspect.unwrap(type(module).setup)
    return name in getattr(getattr(setup, "__code__", None), "co_names", ())


@dataclass_transform(field_specifiers=(dataclasses.field, kw_only_dataclasses.field))
class ModuleBase:
    """Makes static type checkers treat subclasses of Module as dataclasses."""


class Module(Functional, Variables, Summarized, ModuleBase):
    """Base class of all layers and models: a dataclass whose methods can use variables.

    The annotated attributes of a subclass are its fields and the arguments of its constructor.
    Every module also has the fields `name` and `parent`, which are set automatically. An instance
    contains no arrays: `init` creates and returns the variables, and `apply` takes variables as an
    argument and calls a method that uses them.

    Declare submodules in `setup`, or directly where they are used in a method marked `compact`.

    >>> import toile.linen as nn
    >>> class MLP(nn.Module):
    ...     widths: tuple[int, ...] = (16, 4)
    ...     def setup(self):
    ...         self.layers = [nn.Dense(n) for n in self.widths]
    ...     def __call__(self, x):
    ...         for layer in self.layers:
    ...             x = nn.relu(layer(x))
    ...         return x
    >>> variables = MLP().init(key(0), jnp.ones((2, 3)))
    >>> toile.tree.map(jnp.shape, variables["params"]["layers_0"])
    {'bias': (16,), 'kernel': (3, 16)}
    >>> toile.tree.map(jnp.shape, variables["params"]["layers_1"])
    {'bias': (4,), 'kernel': (16, 4)}
    >>> MLP().apply(variables, jnp.ones((2, 3))).shape
    (2, 4)
    """

    if TYPE_CHECKING:  # the fields that every subclass gets, and its call
        parent: Any = kw_only_dataclasses.field(default=None, kw_only=True)
        name: str | None = kw_only_dataclasses.field(default=None, kw_only=True)
        __call__: ClassVar[Callable[..., Any]]

    _state: ClassVar[ModuleState] = ModuleState()
    _parent_ref: ClassVar[Any] = None
    _id: ClassVar[Any]  # of each instance, set when it is made
    scope: ClassVar[Any] = None  # a Scope, once the module is bound
    _own_fields: ClassVar[tuple[str, ...]] = ()
    _compact_name_scope_methods: ClassVar[tuple[str, ...]] = ()
    _has_setup: ClassVar[bool] = False  # whether binding must do more than adopt the fields

    @classmethod
    def __init_subclass__(cls, kw_only: bool = False, **kwargs: Any) -> None:
        """Make every subclass a dataclass and wrap its methods."""
        super().__init_subclass__(**kwargs)
        own_post_init = cls.__post_init__ is not Module.__post_init__
        dataclass.transform(cls, kw_only, _ParentType, own_post_init)
        cls._compact_name_scope_methods = find_compact_name_scopes(cls)
        cls._has_setup = cls.setup is not Module.setup or bool(cls._compact_name_scope_methods)
        wrap_attributes(cls)
        cls._state = _unconstructed
        cls.scope = None
        cls._parent_ref = None
        cls.parent = ParentDescriptor()

    # Construction and attachment.

    def __post_init__(self) -> None:
        d = self.__dict__
        d["_id"] = uuid()
        d["_state"] = state = ModuleState()
        parent = d.get("_parent_ref")
        if parent.__class__ is weakref.ref:  # the module was attached before
            parent = parent()
        if parent is unspecified_parent:
            parent = context.module_stack[-1]
        if parent is None:  # deferred until the module is attached or bound
            d["_parent_ref"] = None
            return
        if isinstance(parent, Module):
            d["_parent_ref"] = weakref.ref(parent)
            if not self._attach(parent):
                return
        elif isinstance(parent, Scope):
            d["_parent_ref"] = parent
            d["scope"] = parent
        else:
            raise ValueError(
                f"parent must be None, Module or Scope, got {type(parent).__name__}{here()}"
            )
        for name in d.get("_candidates", self._own_fields):
            if not is_plain(getattr(self, name)):
                state.containers.append(name)
                self._register_submodules(name, getattr(self, name))
        state.is_initialized = True

    def _attach(self, parent: Module) -> bool:
        """Take a name and a scope under `parent`; False if this must wait for `__setattr__`."""
        outer = parent._state
        d = self.__dict__
        name = d.get("name")
        if name is None:
            if outer.in_setup:
                return False
            prefix = type(self).__name__
            if not (outer.in_compact_method or parent._initialization_allowed):
                raise errors.AssignSubModuleError(prefix)
            cursor = outer.autoname_cursor.get(prefix, 0)
            d["name"] = name = f"{prefix}_{cursor}"
            outer.autoname_cursor[prefix] = cursor + 1
        elif not parent._initialization_allowed:
            raise errors.AssignSubModuleError(type(self).__name__)
        if parent.scope is None:
            raise AssertionError(
                f"{type(self).__name__}: needed a parent that is bound, got an unbound "
                f"{type(parent).__name__} (make submodules in `setup`, or in a method that runs "
                f"under init, apply or bind){here()}"
            )
        # Inside a transform, `setup` makes the same submodules again as outside.
        reuse = outer.in_setup and outer.setup_called == SetupState.TRANSFORMED
        if not reuse and name in parent.scope.reservations:
            raise errors.NameInUseError("submodule", name, type(parent).__name__)
        outer.children[name] = self
        d["scope"] = parent.scope.push(name, reuse=reuse)
        return True

    def __setattr__(self, name: str, val: Any) -> None:
        state = self._state
        if not state.in_setup:
            if state.is_initialized and not name.startswith("__"):
                raise errors.SetAttributeFrozenModuleError(type(self).__name__, name, val)
            object.__setattr__(self, name, val)
            self.__dict__.pop("_candidates", None)  # it may be a field that now contains a module
            return
        fields = self.__dataclass_fields__
        if name in fields and fields[name].init:
            raise errors.SetAttributeInModuleSetupError()
        if is_plain(val):
            object.__setattr__(self, name, val)
        else:
            self._register_submodules(name, val)

    if not TYPE_CHECKING:  # type checkers see only attributes that are assigned

        def __getattr__(self, name: str) -> Any:
            """Run `setup`, which may define the attribute, and then look up the attribute."""
            if name in _COPY_PROTOCOL or name.startswith(_NOTEBOOK_PROTOCOL):
                raise AttributeError(name)
            self._try_setup()
            if name in self.__dict__:
                return self.__dict__[name]
            raise _NoAttribute(self, name, here())

    def __dir__(self) -> list[str]:
        self._try_setup()
        return list(object.__dir__(self))

    def __repr__(self) -> str:
        return module_repr(self)

    def _repr_html_(self) -> str:
        with loading:
            from toile.linen.module_html import module_html

        return module_html(self)

    def __changes_since__(self, other: Module) -> list[str]:
        """The fields that changed, for `jit(...).why()` when modules are static arguments."""
        return changes(fingerprint(other), fingerprint(self))

    def _register_submodules(self, name: str, val: Any) -> None:
        """Freeze an attribute and make the modules in it children."""
        assert self.scope is not None, "Trying to register submodules on unbound scope."
        adopted = self.scope.adopted
        queue: list[Module] = []
        preserve = getattr(type(self), "preserve_adopted_names", config.flax_preserve_adopted_names)

        def adopt(suffix: str, value: Any) -> Any:
            if not isinstance(value, Module):
                return value
            own_name, kept = value.name, None
            if value.parent is None:
                # A module from outside is cloned once per call, so that shared modules stay shared.
                if preserve:
                    kept = own_name
                found = adopted.get(value._id)
                clone = None if found is None else found()
                if clone is None:
                    clone = value.clone(name=None)
                    adopted[value._id] = weakref.ref(clone)
                value = clone
            if value.name is None:
                value.__dict__["_parent_ref"] = weakref.ref(self)
                if kept is None:
                    kept = own_name if isinstance(value, CompactNameScope) else f"{name}{suffix}"
                value.__dict__["name"] = kept
                queue.append(value)
            return value

        object.__setattr__(self, name, freeze_attr(map_leaves(adopt, val)))
        for module in queue:
            module.__post_init__()

    # Setup.

    def setup(self) -> None:
        """Declare submodules and variables as attributes; subclasses override this method.

        `setup` runs once for each bound instance, before the first call to a method and before the
        first access to an attribute that `setup` defines.
        """

    def _try_setup(self, shallow: bool = False) -> None:
        """Run `setup` unless the module is unbound or it has run; if shallow, only adopt fields."""
        state = self._state
        if self.scope is None or state.setup_called is SetupState.DONE or state.in_setup:
            return
        state.in_setup = True
        try:
            for name in state.containers:
                self._register_submodules(name, getattr(self, name))
            if not shallow:
                self.setup()
                if self._compact_name_scope_methods:
                    self._add_name_scopes()
            elif state.setup_called is SetupState.NEW and type(self).setup is not Module.setup:
                self._validate_setup()
        finally:
            state.in_setup = False
            if not shallow:
                state.setup_called = SetupState.DONE

    def _add_name_scopes(self) -> None:
        """Make a child for each method that has a separate scope."""
        me: Any = weakref.ref(self)
        self._compact_name_scope_modules = {
            name: CompactNameScope(getattr(type(self), name).inner_fun, me, name=name)
            for name in self._compact_name_scope_methods
        }

    def _validate_setup(self) -> None:
        """Run `setup` on shapes only, so that its errors come before those of the transform."""

        def run_setup_only(x: Any) -> Any:
            wrapped_id = wrap_method_once(lambda m, x: x)
            with TestScope({}, rngs={}, mutable=True).temporary() as root:
                return wrapped_id(self.clone(parent=root), x)

        eval_shape(run_setup_only, 0)

    @property
    def _initialization_allowed(self) -> bool:
        state = self._state
        return not state.is_initialized or state.in_setup or state.in_compact_method

    # Calls.

    def _call_wrapped_method(
        self, fun: Callable[..., Any], fun_name: str, is_compact: bool, args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:  # fmt: skip
        """Call a user's method, after `setup`, with this module on the stack."""
        state = self._state
        # A method may call that of its base class; only the outermost call ends the naming.
        ends_naming = False
        if fun_name == "setup":
            ends_naming = self._enter_setup()
        elif state.setup_called is not SetupState.DONE and self.scope is not None:
            if self._has_setup or state.containers:
                self._try_setup()
            else:  # nothing to run
                state.setup_called = SetupState.DONE
        if is_compact:
            if self.scope is None:
                raise errors.CallCompactUnboundModuleError(fix=self._how_to_bind())
            ends_naming = not state.in_compact_method
            state.in_compact_method = True
        context.module_stack.append(self)
        outer_scope = engine_state.scope
        if named_calls.enabled:
            engine_state.scope = (*outer_scope, call_label(self, fun_name))
        try:
            capture = context.capture_stack
            if context.call_info_stack or context.interceptors or capture and capture[-1]:
                return self._observed_call(fun, fun_name, args, kwargs)
            return fun(self, *args, **kwargs)
        finally:
            engine_state.scope = outer_scope
            context.module_stack.pop()
            if is_compact:
                self.__dict__["scope"] = self.scope.rewound()
            if ends_naming:
                state.reset()

    def _how_to_bind(self) -> str:
        """For an error: how a module that is not bound becomes part of the one that runs."""
        cls, outer = type(self).__name__, context.module_stack[-1]
        if "_id" not in self.__dict__:
            return f"end {cls}.__post_init__ with super().__post_init__()"
        if outer is None:
            return ""
        if outer._state.in_setup:
            return f"assign the {cls} to self in setup, and call it in another method"
        return (
            f"{cls} is no part of {type(outer).__name__}: make it in this method with @nn.compact, "
            "assign it to self in setup, or pass it as a field"
        )

    def _enter_setup(self) -> bool:
        """Mark `setup` as running; True if it was not running already."""
        if self.scope is None:
            raise errors.CallSetupUnboundModuleError()
        outermost = not self._state.in_setup
        self._state.in_setup = True
        return outermost

    def _observed_call(
        self, fun: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call a method that interceptors, captured intermediates or a summary observe."""
        table = context.call_info_stack[-1] if context.call_info_stack else None
        if name == "setup":
            table = None
        index = table.get_call_index() if table else 0
        if context.interceptors:
            y = run_interceptors(fun, self, *args, **kwargs)
        else:
            y = fun(self, *args, **kwargs)
        wanted = context.capture_stack[-1] if context.capture_stack else None
        if wanted and wanted(self, name):
            self.sow("intermediates", name, y)
        if table:
            shown = table.represent((args, kwargs, y))
            table.calls.append(
                CallInfo(
                    index, self.path, self.clone(), self.scope.rngs, self.scope.mutable, name,
                    *shown,
                )
            )  # fmt: skip
        return y


_unconstructed = ModuleState()
_ParentType = Module | Scope | Sentinel | None


class TestScope(Scope):
    """A scope for a trial run of `setup`, in which all keys are equal."""

    __test__ = False
    __slots__ = ()

    def make_rng(self, name: str = "params") -> Any:
        return random.key(0)


class CompactNameScope(Module):
    """The child that contains the submodules of a `compact_name_scope` method."""

    fn: Callable[..., Any]
    module_fn: Callable[[], Module]

    @compact
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the method on the module that it belongs to."""
        return self.fn(self.module_fn(), *args, **kwargs)


def share_scope(module: Module, other: Module, /) -> None:
    """Make two modules share one scope, so that a wrapper adds no level to the tree of variables.

    Both modules then store their variables at `other`'s position in the tree. If `other` is a
    submodule of `module`, they use `module`'s position instead. Call this function in `setup`.

    Args:
        module: a bound module, such as `self` in `setup`.
        other: the other module, which must also be bound.

    Raises:
        toile.errors.CallShareScopeOnUnboundModuleError: one of the modules is not bound.

    >>> import toile.linen as nn
    >>> class Wrapped(nn.Module):
    ...     def setup(self):
    ...         self.dense = nn.Dense(2)
    ...         nn.share_scope(self, self.dense)
    ...     def __call__(self, x):
    ...         return nn.relu(self.dense(x))
    >>> variables = Wrapped().init(key(0), jnp.ones((1, 3)))
    >>> toile.tree.map(jnp.shape, variables)  # no level "dense"
    {'params': {'bias': (2,), 'kernel': (3, 2)}}
    """
    if module.scope is None or other.scope is None:
        raise errors.CallShareScopeOnUnboundModuleError()
    ancestor: Scope | None = other.scope
    while ancestor is not None and ancestor is not module.scope:
        ancestor = ancestor.parent
    changed, scope = (other, module.scope) if ancestor is not None else (module, other.scope)
    old = changed.scope
    changed.__dict__["scope"] = scope
    for child in changed._state.children.values():
        if isinstance(child, Module) and child.scope and child.scope.parent == old:
            if isinstance(child.scope.name, str):
                scope.reserve(child.scope.name)  # a conflict is an error here
            child.scope.rngs  # noqa: B018  keys are those of the place it was made at
            child.scope.parent = scope


def merge_param(name: str, a: T | None, b: T | None) -> T:
    """Return an option that is set either as a field of a module or as an argument of a call.

    Args:
        name: name of the option, which is used in error messages.
        a: value of the field; None if the field is not set.
        b: value of the argument; None if the argument is not passed.

    Returns:
        The value that is not None.

    Raises:
        ValueError: both values are None, or neither is None.

    >>> import toile.linen as nn
    >>> class Layer(nn.Module):
    ...     train: bool | None = None
    ...     def __call__(self, x, train=None):
    ...         train = nn.merge_param("train", self.train, train)
    ...         return x if train else 2 * x
    >>> Layer()(3, train=True), Layer(train=False)(3)
    (3, 6)
    """
    if a is None and b is None:
        raise ValueError(
            f'Parameter "{name}" must be passed to the constructor or at call time: needed it '
            f"once, got None twice (write Layer(..., {name}=True) or layer(x, {name}=True)){here()}"
        )
    if a is not None and b is not None:
        raise ValueError(
            f'Parameter "{name}" was passed to the constructor and at call time. Should be passed '
            f"just once: got {a!r} and {b!r} (remove one of them){here()}"
        )
    return cast(T, b if a is None else a)
