"""Modules of `flax.nn`: classes whose `apply` runs when the class is called in another module.

A `Model` is a module with its parameters."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from toile import struct, tree
from toile.compat.removed.flax_nn.module_state import (
    Collection,
    ModuleState,
    capture_module_outputs,
    get_state,
)
from toile.compat.removed.flax_nn.running import Frame, key_of, pushed, stacks, top
from toile.compat.removed.flax_nn.stochastic import is_stochastic, make_rng, stochastic
from toile.engine.source import here
from toile.jax_utils import partial_eval_by_shape

__all__ = ["Model", "Module", "TransparentModule", "TruncatedModule", "module", "module_method"]


class Module:
    """Base class of modules whose parameters are named by the calls in `apply`.

    `Dense(x, features=3)` in the `apply` of another module runs the layer. `init` creates the
    parameters, `call` runs the module with given parameters, and `partial` and `shared` return a
    subclass with some arguments filled in."""

    _frame: Frame

    def __new__(cls, *args: Any, name: str | None = None, **kwargs: Any) -> Any:
        if not stacks.modules:
            raise ValueError(
                f"{cls.__name__}: A Module should only be instantiated directly inside another "
                f"module; got a call outside all modules (use {cls.__name__}.init(key, ...) or "
                f"{cls.__name__}.call(params, ...)){here()}"
            )
        parent = cls._home()
        if name is not None and cls._shared():
            raise ValueError(
                f"{cls.__name__}: Cannot override the name of a shared module, which is "
                f"{cls._default_name()!r}, with {name!r} (leave out name=){here()}"
            )
        name = name or cls._default_name() or f"{cls.__name__}_{parent.next_name()}"
        _check_name(name, parent, cls._shared())
        return cls._run(_child(cls, name, parent), args, kwargs)

    def apply(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes; every module defines it."""
        raise NotImplementedError(
            f"{type(self).__name__}.apply: needed a method, got none (define apply(self, x, ...)"
            f"){here()}"
        )

    @classmethod
    def init(cls, _rng: Any, *args: Any, name: str | None = None, **kwargs: Any) -> Any:
        """Run the module and create its parameters; returns (result, parameters)."""
        frame = cls._root(name, {}, _rng)
        y = cls._run(frame, args, kwargs)
        return y, cls._outgoing(frame.params)

    @classmethod
    def init_by_shape(cls, _rng: Any, input_specs: Iterable[Any], *args: Any,
                      name: str | None = None, **kwargs: Any) -> Any:
        """The same from shapes, or pairs (shape, dtype), of the inputs."""
        key = make_rng() if is_stochastic() else None

        def run(*inputs: Any) -> Any:
            if key is None:
                return cls.init(_rng, *inputs, *args, name=name, **kwargs)
            with stochastic(key):
                return cls.init(_rng, *inputs, *args, name=name, **kwargs)

        return partial_eval_by_shape(run, input_specs)

    @classmethod
    def create(cls, _rng: Any, *args: Any, name: str | None = None, **kwargs: Any) -> Any:
        """Like `init`, but returns (result, model)."""
        y, params = cls.init(_rng, *args, name=name, **kwargs)
        return y, Model(cls, params)

    @classmethod
    def create_by_shape(cls, _rng: Any, input_specs: Iterable[Any], *args: Any,
                        name: str | None = None, **kwargs: Any) -> Any:
        """Like `init_by_shape`, but returns (result, model)."""
        y, params = cls.init_by_shape(_rng, input_specs, *args, name=name, **kwargs)
        return y, Model(cls, params)

    @classmethod
    def call(cls, params: Any, *args: Any, name: str | None = None, **kwargs: Any) -> Any:
        """Run the module with given parameters."""
        return cls._run(cls._root(name, cls._incoming(params)), args, kwargs)

    @classmethod
    def partial(cls, *, name: str | None = None, **given: Any) -> Any:
        """A subclass in which some arguments of `apply` have values."""
        members: dict[str, Any] = {"_given": {**cls._given, **given}}
        if name is not None:
            members["_default_name"] = classmethod(lambda _: name)
        return _subclass(cls, members)

    @classmethod
    def shared(cls, *, name: str | None = None, **given: Any) -> Any:
        """A subclass whose calls all use the same parameters, which belong to the module here."""
        home = top("shared")
        chosen = home.next_name() if name is None else name
        if chosen in home.shared:
            raise ValueError(
                f'{cls.__name__}.shared: Shared module named "{chosen}" already exists in '
                f"{home.path} (use another name){here()}"
            )
        home.shared.add(chosen)
        return _subclass(cls, {
            "_given": {**cls._given, **given},
            "_default_name": classmethod(lambda _: chosen),
            "_home": classmethod(lambda _: home),
            "_shared": classmethod(lambda _: True),
        })

    def param(self, name: str, shape: Any, initializer: Callable[..., Any]) -> Any:
        """The parameter `name`, which `init` creates with `initializer(key, shape)`."""
        frame = self._frame
        if frame.key is not None:
            if name in frame.params:
                raise ValueError(
                    f"{frame.path}: Name '{name}' was already used for another parameter or module "
                    f"(use another name){here()}"
                )
            with frame.creating():
                frame.params[name] = initializer(key_of(frame, name), shape)
        value = self.get_param(name)
        if shape is not None and value.shape != tuple(shape):
            raise ValueError(
                f"{frame.path}: the parameter {name!r}: Existing shape {value.shape} differs from "
                f"requested shape {tuple(shape)} (run init for inputs of these shapes){here()}"
            )
        return value

    def get_param(self, name: str) -> Any:
        """The value of a parameter that exists."""
        if name not in self._frame.params:
            raise ValueError(
                f"{self._frame.path}: Parameter with name '{name}' does not exist; needed one of "
                f"{sorted(self._frame.params)} (run init again if the module has changed){here()}"
            )
        return self._frame.params[name]

    def state(self, name: str, shape: Any = None, initializer: Callable[..., Any] | None = None,
              collection: Collection | None = None) -> ModuleState:
        """A variable of the collection of `stateful`, or of another one."""
        top("state")
        found = ModuleState(get_state() if collection is None else collection, name)
        creating = [frame for frame in stacks.modules if frame.key is not None]
        if initializer is not None and creating:
            frame = creating[-1]
            with frame.creating():
                found.value = initializer(key_of(frame, f"state {name}"), shape)
        return found

    def is_stateful(self) -> bool:
        """Whether `stateful` is in effect."""
        return bool(stacks.states)

    def is_initializing(self) -> bool:
        """Whether the parameters are being created."""
        return self._frame.key is not None

    # What partial, shared and transparent modules replace.
    _given: dict[str, Any] = {}

    @classmethod
    def _default_name(cls) -> str | None:
        return None

    @classmethod
    def _home(cls) -> Frame:
        return stacks.modules[-1]

    @classmethod
    def _shared(cls) -> bool:
        return False

    @classmethod
    def _incoming(cls, params: Any) -> Any:
        return params

    @classmethod
    def _outgoing(cls, params: Any) -> Any:
        return params

    _transparent = False

    @classmethod
    def _root(cls, name: str | None, params: Any, key: Any = None) -> Frame:
        parent = stacks.modules[-1] if stacks.modules else None
        return Frame(name or cls._default_name(), parent, params, key, cls._transparent)

    @classmethod
    def _run(cls, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        instance = object.__new__(cls)
        instance._frame = frame
        with pushed(stacks.modules, frame):
            y = instance.apply(*args, **{**cls._given, **kwargs})
            for outputs in stacks.outputs:
                outputs.store([*outputs.retrieve(default=[]), y])
        return y


def _subclass(cls: type, members: dict[str, Any]) -> Any:
    return type(cls)(cls.__name__, (cls,), {
        "__doc__": cls.__doc__, "__module__": cls.__module__, "__qualname__": cls.__qualname__,
        **members})


def _check_name(name: Any, parent: Frame, shared: bool) -> None:
    if not isinstance(name, str) or "/" in name or ":" in name:
        raise ValueError(
            f"{parent.path}: Name must be a string and should not contain slashes or colons, got "
            f"{name!r} (use letters, digits and underscores){here()}"
        )
    if parent.used.get(name, shared) != shared:
        raise ValueError(
            f'{parent.path}: The name "{name}" is used for both a shared and unshared module '
            f"(use two names){here()}"
        )
    if name in parent.used and not shared:
        raise ValueError(
            f'{parent.path}: A module with named "{name}" already exists (use another name, or '
            f"shared() to use its parameters twice){here()}"
        )
    parent.used[name] = shared


def _child(cls: type[Module], name: str, parent: Frame) -> Frame:
    """The frame of a module that is called in another one."""
    key = None
    if parent.key is not None and name not in parent.params:
        key = key_of(parent, name)
        parent.params[name] = {}
    elif name not in parent.params:
        raise ValueError(
            f"{parent.path}: No module named {name} was created during initialization; needed one "
            f"of {sorted(parent.params)} (run init again if the module has changed){here()}"
        )
    frame = Frame(name, parent, parent.params[name], key, cls._transparent)
    if key is not None:
        frame.trace = parent.trace
    return frame


def module(fun: Callable[..., Any]) -> Any:
    """A module whose `apply` is a function without `self`."""

    @functools.wraps(fun)
    def apply(self: Module, *args: Any, **kwargs: Any) -> Any:
        return fun(*args, **kwargs)

    return type(fun.__name__, (Module,), {"apply": apply, "__module__": fun.__module__})


class module_method:
    """Makes a function in a module another `apply` of that module, with the same parameters."""

    def __init__(self, fun: Callable[..., Any]):
        self.fun = fun
        self.made: dict[type, Any] = {}

    def __get__(self, instance: Any, cls: type) -> Any:
        if cls not in self.made:
            self.made[cls] = _subclass(cls, {"apply": self.fun, "__name__": self.fun.__name__})
        return self.made[cls]


class TransparentModule(Module):
    """A module around one other, named "0", whose parameters it has as its own."""

    _transparent = True

    @classmethod
    def _incoming(cls, params: Any) -> Any:
        return {"0": params}

    @classmethod
    def _outgoing(cls, params: Any) -> Any:
        return params["0"]


class TruncatedModule(TransparentModule):
    """A module that returns results of modules within it, found by their paths."""

    def apply(self, *args: Any, wrapped_module: Any = None, truncate_path: Any = None,
              **kwargs: Any) -> Any:
        with capture_module_outputs() as outputs:
            wrapped_module(*args, **kwargs, name="0")
        return tree.map(lambda path: outputs[path], truncate_path)


@struct.dataclass
class Model:
    """A module with its parameters; a pytree that is called like the module's `apply`."""

    module: Any = struct.field(pytree_node=False)
    params: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.module.call(self.params, *args, **kwargs)

    def truncate_at(self, module_path: Any) -> Any:
        """A model that returns the results of the modules at a path, or at a tree of paths."""
        model: Any = self
        return model.replace(module=TruncatedModule.partial(
            wrapped_module=self.module, truncate_path=module_path))

    def __getattr__(self, name: str) -> Any:
        method = None if name.startswith("__") else getattr(self.module, name, None)
        if isinstance(method, type) and issubclass(method, Module):
            return lambda *args, **kwargs: method.call(self.params, *args, **kwargs)
        raise AttributeError(
            f"{name!r}: needed a field of Model or a module_method of "
            f"{getattr(self.module, '__name__', 'its module')}, got another name (decorate the "
            f"method with nn.module_method){here()}"
        )

    def __hash__(self) -> int:
        return id(self)
