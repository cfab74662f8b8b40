"""Errors about variables, collections, random streams and partitioned boxes."""

from __future__ import annotations

import re
from typing import Any

from toile.engine.source import describe
from toile.errors.base import FlaxError


def _where(scope_path: str) -> str:
    return "the root module" if scope_path in ("", "/") else f"module {scope_path!r}"


class LazyInitError(FlaxError):
    """`lazy_init` was given only the shapes of arguments whose values determine the variables.

    Broken::

        class Copy(nn.Module):
            @nn.compact
            def __call__(self, x):
                return x * self.param("scale", lambda key: x)

        Copy().lazy_init(random.key(0), toile.ShapeDtypeStruct((8, 4), jnp.float32))

    Repaired::

        class Scale(nn.Module):
            @nn.compact
            def __call__(self, x):
                return x * self.param("scale", lambda key: jnp.ones(x.shape))

        Scale().lazy_init(random.key(0), toile.ShapeDtypeStruct((8, 4), jnp.float32))
    """

    def __init__(self, partial_val: Any) -> None:
        super().__init__(
            "lazy_init: a variable's initial value could not be computed with the given inputs"
            f" (shape: {partial_val})",
            "use only the shape and dtype of that argument in the initializer, or pass an array"
            " instead of a ShapeDtypeStruct",
        )


class InvalidRngError(FlaxError):
    """A module requested a random key, but neither its random stream nor "params" has a key.

    A stream without its own key uses the key of the stream "params". A single key that is passed to
    `init` or `apply` is the key of "params". The error is also raised if the keys are passed as
    neither a single key nor a dictionary.

    Broken::

        model = nn.Dropout(0.5, deterministic=False)
        model.apply({}, jnp.ones(3))

    Repaired::

        model = nn.Dropout(0.5, deterministic=False)
        model.apply({}, jnp.ones(3), rngs={"dropout": random.key(1)})
    """

    def __init__(self, msg: str, fix: str = "") -> None:
        super().__init__(msg, fix)


class ApplyScopeInvalidVariablesTypeError(FlaxError):
    """The first argument to `apply` is not a dictionary of collections.

    Broken::

        params = {"kernel": jnp.ones((4, 3)), "bias": jnp.ones(3)}
        nn.Dense(3).apply(params, jnp.ones((2, 4)))

    Repaired::

        params = {"kernel": jnp.ones((4, 3)), "bias": jnp.ones(3)}
        nn.Dense(3).apply({"params": params}, jnp.ones((2, 4)))
    """

    def __init__(self, variables: Any = None) -> None:
        fix = "write apply({'params': params}, ...)"
        if isinstance(variables, tuple):
            fix = "pass variables, the second value of the pair that init_with_output returned"
        elif hasattr(variables, "opt_state"):
            fix = "write apply({'params': state.params}, ...)"
        super().__init__(
            "The first argument passed to an apply function should be a dictionary of collections."
            f" Each collection should be a dictionary with string keys. Got {describe(variables)}.",
            fix,
        )


class ApplyScopeInvalidVariablesStructureError(FlaxError):
    """The variables passed to `apply` contain a "params" collection inside "params".

    Broken::

        model, x = nn.Dense(3), jnp.ones((2, 4))
        variables = model.init(random.key(0), x)
        model.apply({"params": variables}, x)

    Repaired::

        model, x = nn.Dense(3), jnp.ones((2, 4))
        variables = model.init(random.key(0), x)
        model.apply(variables, x)
    """

    def __init__(self, variables: Any) -> None:
        super().__init__(
            "Expect the `variables` (first argument) passed to apply() to be a dict with the"
            ' structure {"params": ...}, but got a dict with an extra params layer, i.e. '
            ' {"params": {"params": ... } }. You should instead pass in your dict\'s ["params"].',
            'pass the result of init itself, or the inner dict: variables["params"]',
        )


class ScopeParamNotFoundError(FlaxError):
    """`apply` needed a parameter that is missing from the given params.

    Broken::

        class Embedding(nn.Module):
            @nn.compact
            def __call__(self, ids, name="embedding"):
                return self.param(name, nn.initializers.ones, (4, 8))[ids]

        ids = jnp.arange(3)
        variables = Embedding().init(random.key(0), ids)
        Embedding().apply(variables, ids, "embed")

    Repaired::

        class Embedding(nn.Module):
            @nn.compact
            def __call__(self, ids, name="embedding"):
                return self.param(name, nn.initializers.ones, (4, 8))[ids]

        ids = jnp.arange(3)
        variables = Embedding().init(random.key(0), ids)
        Embedding().apply(variables, ids)
    """

    def __init__(self, param_name: str, scope_path: str, known: Any = ()) -> None:
        has = f" (there are {sorted(map(str, known))})" if known else ""
        super().__init__(
            f'Could not find parameter named "{param_name}" in scope "{scope_path}"{has}.',
            f"create {param_name!r} by calling init with the same arguments, or add it to the"
            f" params of {_where(scope_path)}",
        )


class ScopeCollectionNotFound(FlaxError):
    """A variable was read from a collection that was not passed or is empty.

    There are three possible causes: the collection was not passed; the parameters were passed
    directly instead of in a dictionary of collections, as in `{"params": params}`; or the
    collection must first be created by `init` or by a call to `apply` in which it is mutable.

    Broken::

        model, x = nn.BatchNorm(use_running_average=True), jnp.ones((2, 4))
        params = model.init(random.key(0), x)["params"]
        model.apply({"params": params}, x)

    Repaired::

        model, x = nn.BatchNorm(use_running_average=True), jnp.ones((2, 4))
        variables = model.init(random.key(0), x)
        model.apply(variables, x)
    """

    def __init__(self, col_name: str, var_name: str, scope_path: str) -> None:
        fix = (
            f"pass it as apply({{{col_name!r}: {col_name}, ...}}, ...), or let it be created with"
            f" apply(..., mutable=[{col_name!r}])"
        )
        lifted = re.findall(r"\b(scan|vmap)\(", scope_path)
        if lifted:
            fix = (
                f"name the collection in the call of nn.{lifted[-1]}, as in variable_axes="
                f"{{{col_name!r}: 0}}, split_rngs={{{col_name!r}: True}}; if it is there, {fix}"
            )
        super().__init__(
            f'Tried to access "{var_name}" from collection "{col_name}" in "{scope_path}" but the'
            " collection is empty.",
            fix,
        )


class ScopeParamShapeError(FlaxError):
    """A stored parameter's shape is not the shape that its initializer creates for these inputs.

    Broken::

        model = nn.Dense(3)
        variables = model.init(random.key(0), jnp.ones((2, 4)))
        model.apply(variables, jnp.ones((2, 5)))

    Repaired::

        model = nn.Dense(3)
        variables = model.init(random.key(0), jnp.ones((2, 4)))
        model.apply(variables, jnp.ones((7, 4)))
    """

    def __init__(self, param_name: str, scope_path: str, value_shape: Any, init_shape: Any) -> None:
        super().__init__(
            f'For parameter "{param_name}" in "{scope_path}", the given initializer is expected to'
            f" generate shape {init_shape}, but the existing parameter it received has shape"
            f" {value_shape}.",
            "give apply inputs with the feature sizes that init had, or call init again with these"
            " inputs",
        )


class ScopeVariableNotFoundError(FlaxError):
    """A variable does not exist and cannot be created, because its collection is not mutable.

    Broken::

        class Counter(nn.Module):
            @nn.compact
            def __call__(self, name="steps"):
                return self.variable("state", name, lambda: 0).value

        variables = Counter().init(random.key(0))
        Counter().apply(variables, "calls")

    Repaired::

        class Counter(nn.Module):
            @nn.compact
            def __call__(self, name="steps"):
                return self.variable("state", name, lambda: 0).value

        variables = Counter().init(random.key(0))
        calls, updated = Counter().apply(variables, "calls", mutable=["state"])
    """

    def __init__(self, name: str, col: str, scope_path: str) -> None:
        super().__init__(
            f'No Variable named "{name}" for collection "{col}" exists in "{scope_path}".',
            f"let it be created with apply(..., mutable=[{col!r}]), or pass the variables that"
            " init returned",
        )


class InvalidFilterError(FlaxError):
    """A filter is not a bool, a collection name, a container of names or a `DenyList`.

    Broken::

        model, x = nn.Dense(3), jnp.ones((2, 4))
        model.apply(model.init(random.key(0), x), x, mutable=3)

    Repaired::

        model, x = nn.Dense(3), jnp.ones((2, 4))
        model.apply(model.init(random.key(0), x), x, mutable=["batch_stats"])
    """

    def __init__(self, filter_like: Any) -> None:
        super().__init__(
            f'Invalid Filter: "{filter_like}" of type {type(filter_like).__name__}',
            "use True, False, a collection's name, a list of names or DenyList(names)",
        )


class InvalidScopeError(FlaxError):
    """A scope, or a module bound to it, was used after the call that created the scope had ended.

    Broken::

        from toile.core import Scope

        with Scope({}).temporary() as root:
            pass
        root.child(lambda scope: scope)()

    Repaired::

        from toile.core import Scope

        with Scope({}).temporary() as root:
            root.child(lambda scope: scope)()
    """

    def __init__(self, scope_name: Any) -> None:
        super().__init__(
            f'The scope "{scope_name}" is no longer valid.',
            "do not keep bound modules or scopes after init or apply has returned; module.bind"
            " gives one to keep",
        )


class ModifyScopeVariableError(FlaxError):
    """A variable was changed even though its collection is not mutable.

    Broken::

        model, x = nn.BatchNorm(use_running_average=False), jnp.ones((2, 4))
        variables = model.init(random.key(0), x)
        model.apply(variables, x)

    Repaired::

        model, x = nn.BatchNorm(use_running_average=False), jnp.ones((2, 4))
        variables = model.init(random.key(0), x)
        y, updated = model.apply(variables, x, mutable=["batch_stats"])
    """

    def __init__(self, col: str, variable_name: str, scope_path: str, module: str = "") -> None:
        which = f" (of the {module})" if module else ""
        super().__init__(
            f'Cannot update variable "{variable_name}" in "{scope_path}"{which} because collection'
            f' "{col}" is immutable.',
            f"write y, updated = model.apply(variables, ..., mutable=[{col!r}]) and keep"
            f" updated[{col!r}] for the next call",
        )


class JaxTransformError(FlaxError):
    """A function inside a plain transformation created or changed variables, or drew random keys.

    Parameters can be read inside transformations such as `toile.vmap` and `toile.grad`. Variables
    that are created or changed inside a transformation, and keys that are drawn there, would be
    traced values that outlive the transformation. Use the lifted transformations of `toile.linen`
    instead; their arguments specify what happens to each collection and each random stream.

    Broken::

        class PerRow(nn.Module):
            @nn.compact
            def __call__(self, x):
                return toile.vmap(lambda row: nn.Dense(3)(row))(x)

        PerRow().init(random.key(0), jnp.ones((2, 4)))

    Repaired::

        class PerRow(nn.Module):
            @nn.compact
            def __call__(self, x):
                dense = nn.vmap(nn.Dense, variable_axes={"params": None},
                                split_rngs={"params": False})
                return dense(3)(x)

        PerRow().init(random.key(0), jnp.ones((2, 4)))
    """

    def __init__(
        self, scope_path: str | None = None, happened: str | None = None, lifted: str | None = None
    ) -> None:
        message = "Jax transforms and Flax models cannot be mixed"
        if scope_path is not None:
            did = happened or "changes its variables"
            message += f": {_where(scope_path)} {did} inside a plain transformation"
        use = lifted or "nn.vmap, nn.scan, nn.jit, nn.remat, ..."
        super().__init__(message + ".", f"use the lifted transformation: {use}")


class PartitioningUnspecifiedError(FlaxError):
    """A lifted transformation added an axis to a Partitioned variable without naming the axis.

    Broken::

        class Layers(nn.Module):
            @nn.compact
            def __call__(self, x):
                init = nn.with_partitioning(nn.initializers.ones, (None, "model"))
                dense = nn.vmap(nn.Dense, variable_axes={"params": 0}, split_rngs={"params": True})
                return dense(3, kernel_init=init)(x)

        Layers().init(random.key(0), jnp.ones((2, 4)))

    Repaired::

        class Layers(nn.Module):
            @nn.compact
            def __call__(self, x):
                init = nn.with_partitioning(nn.initializers.ones, (None, "model"))
                dense = nn.vmap(nn.Dense, variable_axes={"params": 0}, split_rngs={"params": True},
                                metadata_params={nn.PARTITION_NAME: "layers"})
                return dense(3, kernel_init=init)(x)

        Layers().init(random.key(0), jnp.ones((2, 4)))
    """

    def __init__(self, target: Any) -> None:
        super().__init__(
            'Trying to transform a Partitioned variable but "partition_name" is not specified in'
            f" metadata_params: {target}",
            "pass metadata_params={nn.PARTITION_NAME: 'name of the new axis' or None} to the"
            " lifted transformation",
        )


class ImmutableVariableError(FlaxError):
    """A read-only variable was changed.

    toile does not raise this error, which exists for compatibility with Flax.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)


class TraceContextError(FlaxError):
    """An object was changed in a trace other than the one in which it was created.

    toile does not raise this error, which exists for compatibility with Flax.
    """
