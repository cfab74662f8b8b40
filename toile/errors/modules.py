"""Errors about the names, attributes and methods of modules, and about lifted transformations."""

from __future__ import annotations

from typing import Any

from toile.errors.base import FlaxError


class NameInUseError(FlaxError):
    """A submodule, parameter or variable was given a name that its module already uses.

    Nothing else in a module may have the same name as a submodule, but variables in different
    collections may share a name. Submodules without a name receive numbered names. To share
    parameters, call the same instance twice.

    Broken::

        class Twice(nn.Module):
            @nn.compact
            def __call__(self, x):
                return nn.Dense(4, name="layer")(nn.Dense(4, name="layer")(x))

        Twice().init(random.key(0), jnp.ones((2, 4)))

    Repaired::

        class Twice(nn.Module):
            @nn.compact
            def __call__(self, x):
                layer = nn.Dense(4, name="layer")
                return layer(layer(x))

        Twice().init(random.key(0), jnp.ones((2, 4)))
    """

    def __init__(self, key_type: str, value: Any, module_name: Any) -> None:
        fix = "call the one instance twice to share its parameters, or give the second another name"
        if key_type != "submodule":
            fix = f"give the {key_type} a name that no submodule or variable of the module has"
        super().__init__(
            f'Could not create {key_type} "{value}" in Module {module_name}: Name in use.', fix
        )


class AssignSubModuleError(FlaxError):
    """A submodule was created outside `setup` and outside methods marked `@nn.compact`.

    Broken::

        class Model(nn.Module):
            def __call__(self, x):
                return nn.Dense(3)(x)

        Model().init(random.key(0), jnp.ones((2, 4)))

    Repaired::

        class Model(nn.Module):
            @nn.compact
            def __call__(self, x):
                return nn.Dense(3)(x)

        Model().init(random.key(0), jnp.ones((2, 4)))
    """

    def __init__(self, cls: Any) -> None:
        super().__init__(
            f"Submodule {cls} must be defined in `setup()` or in a method wrapped in `@compact`",
            "put @nn.compact above the method that creates it, or assign it to self in setup()",
        )


class SetAttributeInModuleSetupError(FlaxError):
    """`setup` assigned to a field of the module.

    Broken::

        class Model(nn.Module):
            features: int = 6

            def setup(self):
                self.features = 3

            def __call__(self, x):
                return x

        Model().init(random.key(0), jnp.ones((2, 4)))

    Repaired::

        class Model(nn.Module):
            features: int = 6

            def setup(self):
                self.half = self.features // 2

            def __call__(self, x):
                return x

        Model(features=3).init(random.key(0), jnp.ones((2, 4)))
    """

    def __init__(self) -> None:
        super().__init__(
            "Module construction attributes are frozen.",
            "pass the value when the module is made, or assign to another name in setup()",
        )


class SetAttributeFrozenModuleError(FlaxError):
    """An attribute of a module was assigned outside `setup`.

    Broken::

        class Model(nn.Module):
            @nn.compact
            def __call__(self, x):
                self.width = x.shape[-1]
                return nn.Dense(self.width)(x)

        Model().init(random.key(0), jnp.ones((2, 4)))

    Repaired::

        class Model(nn.Module):
            @nn.compact
            def __call__(self, x):
                width = x.shape[-1]
                return nn.Dense(width)(x)

        Model().init(random.key(0), jnp.ones((2, 4)))
    """

    def __init__(self, module_cls: Any, attr_name: str, attr_val: Any) -> None:
        shown = str(attr_val)
        shown = shown if len(shown) <= 200 and shown.count("\n") < 4 else f"{type(attr_val)}"
        super().__init__(
            f"Can't set {attr_name}={shown} for Module of type {module_cls}: Module instance is"
            " frozen outside of setup method.",
            f"use a local variable, self.variable(...) for what changes from call to call, or"
            f" module.clone({attr_name}=...) for a module with another field",
        )


class MultipleMethodsCompactError(FlaxError):
    """More than one method of a module class is marked `@nn.compact`.

    toile allows this and does not raise the error, which exists for compatibility with Flax.
    """

    def __init__(self) -> None:
        super().__init__("Only one method per class can be @compact")


class ReservedModuleAttributeError(FlaxError):
    """A module class declares a field named `parent` or `name`, which every module already has.

    Broken::

        class Model(nn.Module):
            name: int = 3

    Repaired::

        class Model(nn.Module):
            label: int = 3
    """

    def __init__(self, annotations: Any) -> None:
        super().__init__(
            f"properties `parent` and `name` are reserved: {annotations}",
            "call the field something else; a module's name is given as Model(name='...')",
        )


class ApplyModuleInvalidMethodError(FlaxError):
    """The argument `method` is neither the name of a method nor a function that accepts a module.

    Broken::

        model, x = nn.Dense(3), jnp.ones((2, 4))
        model.apply(model.init(random.key(0), x), x, method=3)

    Repaired::

        model, x = nn.Dense(3), jnp.ones((2, 4))
        model.apply(model.init(random.key(0), x), x, method="__call__")
    """

    def __init__(self, method: Any) -> None:
        super().__init__(
            f"Cannot call apply(): {method} is not a valid function for apply().",
            "pass a method's name, a method of the class, or a function whose first argument is"
            " the module",
        )


class CallCompactUnboundModuleError(FlaxError):
    """A module was called directly, without variables.

    Broken::

        nn.Dense(3)(jnp.ones((2, 4)))

    Repaired::

        model, x = nn.Dense(3), jnp.ones((2, 4))
        variables = model.init(random.key(0), x)
        model.apply(variables, x)
    """

    def __init__(self, module: str = "", fix: str = "") -> None:
        super().__init__(
            f"Can't call compact methods on unbound modules{f' ({module})' if module else ''}",
            fix or "write variables = model.init(key, x) once and y = model.apply(variables, x), or"
            " model.bind(variables)(x)",
        )


class CallSetupUnboundModuleError(FlaxError):
    """The user called `setup`, which runs automatically in a bound module.

    Broken::

        class Model(nn.Module):
            def setup(self):
                self.dense = nn.Dense(3)

        Model().setup()

    Repaired::

        class Model(nn.Module):
            def setup(self):
                self.dense = nn.Dense(3)

        dense = Model().bind({}).dense
    """

    def __init__(self) -> None:
        super().__init__(
            "Can't call compact methods on unbound modules: setup() was called directly",
            "read submodules from model.bind(variables), which runs setup() when it is needed",
        )


class CallUnbindOnUnboundModuleError(FlaxError):
    """`unbind` was called on a module without variables.

    Broken::

        nn.Dense(3).unbind()

    Repaired::

        variables = nn.Dense(3).init(random.key(0), jnp.ones((2, 4)))
        module, variables = nn.Dense(3).bind(variables).unbind()
    """

    def __init__(self) -> None:
        super().__init__(
            "Can't call `unbind()` on unbound modules",
            "the module is unbound already; unbind() undoes model.bind(variables)",
        )


class CallShareScopeOnUnboundModuleError(FlaxError):
    """`share_scope` was called with a module that is not bound.

    Broken::

        nn.share_scope(nn.Dense(3), nn.Dense(3))

    Repaired::

        class Model(nn.Module):
            def setup(self):
                self.dense = nn.Dense(3)
                nn.share_scope(self, self.dense)

            def __call__(self, x):
                return self.dense(x)

        Model().init(random.key(0), jnp.ones((2, 4)))
    """

    def __init__(self) -> None:
        super().__init__(
            "Can't call `share_scope` on unbound modules",
            "call it in setup(), after both modules were assigned to self",
        )


class InvalidInstanceModuleError(FlaxError):
    """`init`, `apply` or `bind` was called on a module class instead of an instance.

    Broken::

        nn.Dense.init(random.key(0), jnp.ones((2, 4)))

    Repaired::

        nn.Dense(3).init(random.key(0), jnp.ones((2, 4)))
    """

    def __init__(self) -> None:
        super().__init__(
            "Can only call init, init_with_output or apply methods on an instance of the Module"
            " class, not the Module class itself",
            "make an instance first: Model(...).init(key, x)",
        )


class IncorrectPostInitOverrideError(FlaxError):
    """`__post_init__` was overridden without a call to the `__post_init__` of the base class.

    Broken::

        class Model(nn.Module):
            x: float = 3.0

            def __post_init__(self):
                self.square = self.x**2

            @nn.compact
            def __call__(self, y):
                return y + self.square

        Model().init(random.key(0), jnp.ones(3))

    Repaired::

        class Model(nn.Module):
            x: float = 3.0

            def __post_init__(self):
                self.square = self.x**2
                super().__post_init__()

            @nn.compact
            def __call__(self, y):
                return y + self.square

        Model().init(random.key(0), jnp.ones(3))
    """

    def __init__(self, own_init: Any = None) -> None:
        if own_init is not None:
            code = own_init.__code__
            name = own_init.__qualname__.rpartition(".")[0]
            super().__init__(
                f"`{name}.__init__` (at {code.co_filename}:{code.co_firstlineno}) replaces the "
                "constructor that nn.Module makes from the fields of the class",
                f"remove __init__; declare the arguments as fields, as in `class {name}(nn.Module):"
                " width: int`, and create layers in `setup` or in a method with @nn.compact",
            )
            return
        super().__init__(
            "Overrode `.__post_init__()` without calling `super().__post_init__()`",
            "end __post_init__ with super().__post_init__()",
        )


class DescriptorAttributeError(FlaxError):
    """A property of a module read an attribute that does not exist.

    Broken::

        class Model(nn.Module):
            @property
            def width(self):
                return self.features

            def __call__(self, x):
                return self.width * x

        Model().init(random.key(0), jnp.ones(3))

    Repaired::

        class Model(nn.Module):
            features: int = 2

            @property
            def width(self):
                return self.features

            def __call__(self, x):
                return self.width * x

        Model().init(random.key(0), jnp.ones(3))
    """

    def __init__(self) -> None:
        super().__init__(
            "Trying to access a property that is accessing a non-existent attribute.",
            "declare the attribute as a field, or assign it in setup(); the AttributeError above"
            " names it",
        )


class TransformedMethodReturnValueError(FlaxError):
    """A transformed method returned a module or a Variable, whose scope ends with the call.

    Broken::

        class Model(nn.Module):
            @nn.jit
            @nn.compact
            def __call__(self, x):
                return nn.Dense(3)

        Model().init(random.key(0), jnp.ones((2, 4)))

    Repaired::

        class Model(nn.Module):
            @nn.jit
            @nn.compact
            def __call__(self, x):
                return nn.Dense(3)(x)

        Model().init(random.key(0), jnp.ones((2, 4)))
    """

    def __init__(self, name: Any) -> None:
        super().__init__(
            f"Transformed module method {name} cannot return Modules or Variables.",
            "call the module inside and return its arrays; return variable.value",
        )


def _shown(target: Any) -> str:
    """Describe the target of a transform in one line."""
    text = str(target)
    return text if "\n" not in text else f"an instance of {type(target).__name__}"


class TransformTargetError(FlaxError):
    """A lifted transformation was given something other than a module class or a function.

    Broken::

        nn.vmap(nn.Dense(3))(jnp.ones((2, 4)))

    Repaired::

        dense = nn.vmap(nn.Dense, variable_axes={"params": 0}, split_rngs={"params": True})
        dense(3).init(random.key(0), jnp.ones((2, 4)))
    """

    def __init__(self, target: Any) -> None:
        super().__init__(
            "Linen transformations must be applied to Modules classes or functions taking a Module"
            " instance as the first argument. The provided target is not a Module class or"
            f" callable: {_shown(target)}",
            "transform the class, nn.vmap(nn.Dense)(features), or a function"
            " nn.vmap(lambda module, x: module(x))(module, x)",
        )
