"""Training in half precision: loss scaling, and dtypes of parameters, computation and results.

Parameters are stored in `param_dtype`, usually float32, and converted when the model is applied;
gradients are converted back to `param_dtype`. float16 also needs a scaled loss
(`Policy.loss_scale`); bfloat16 does not, because bfloat16 has the same range as float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from toile import api, lax, struct, tree
from toile import linen as nn
from toile import numpy as jnp
from toile.engine.annotations import ArrayLike, DTypeLike, PyTree
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.engine.suggestions import did_you_mean
from toile.optim import paths
from toile.optim.classic.dynamic_scale import scaled_value_and_grad
from toile.training.dynamic_scale import DynamicScale, DynamicScaleResult, all_finite

__all__ = ["NoScale", "Policy", "StaticScale", "select_finite"]

_SHORT = {
    "f16": "float16", "half": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
    "full": "float32",
}  # fmt: skip
_FIELDS = {
    "p": "param_dtype", "params": "param_dtype", "c": "compute_dtype", "compute": "compute_dtype",
    "o": "output_dtype", "output": "output_dtype",
}  # fmt: skip


def _dtype(name: Any) -> np.dtype:
    text = name.strip() if isinstance(name, str) else name
    try:
        found = jnp.dtype(_SHORT.get(text, text) if isinstance(text, str) else text)
    except TypeError as error:
        near = did_you_mean(str(text), ("float16", "bfloat16", "float32", "float64"))
        raise TypeError(
            f"{error}: Policy needed floating dtypes such as 'bfloat16' and 'float32', got "
            f"{text!r}{near}{here()}"
        ) from None
    if not jnp.issubdtype(found, jnp.floating):
        raise ValueError(f"Policy: needed a floating dtype, got {found}{here()}")
    return found


def _is_floating(x: Any) -> bool:
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating)


def _cast(x: Any, dtype: Any) -> Any:
    return tree.map(lambda v: jnp.asarray(v, dtype) if _is_floating(v) else v, x)


@dataclass(frozen=True)
class Policy:
    """Dtypes of parameters, computation and results in half-precision training.

    Parameters are stored in `param_dtype` and converted when the model is applied; gradients are
    converted back to `param_dtype`. float16 also needs a scaled loss; see `loss_scale`.

    Args:
        param_dtype: dtype in which parameters are stored. If it is a half-precision dtype and the
            only dtype given, as in `Policy("bf16")`, it is the dtype of the computation instead,
            and parameters and results stay in float32.
        compute_dtype: dtype in which the model computes; None for float32.
        output_dtype: dtype of the model's result; None for float32.
        overrides: a dict from path patterns to dtypes, or a sequence of pairs (pattern, dtype). A
            module or parameter whose path matches a pattern uses that dtype instead of
            `compute_dtype`: a module's inputs are converted to that dtype, and its result is
            converted back. If a pattern matches nothing, an error is raised.

    >>> from toile.training.mixed_precision import Policy
    >>> policy = Policy.parse("mixed_bfloat16", {"**/LayerNorm_*/**": "float32"})
    >>> params = {"Dense_0": {"kernel": jnp.ones(2)}, "LayerNorm_0": {"scale": jnp.ones(2)}}
    >>> toile.tree.map(lambda x: x.dtype.name, policy.cast_params(params))
    {'Dense_0': {'kernel': 'bfloat16'}, 'LayerNorm_0': {'scale': 'float32'}}
    """

    param_dtype: DTypeLike = np.dtype("float32")
    compute_dtype: DTypeLike | None = None
    output_dtype: DTypeLike | None = None
    overrides: Any = ()

    def __post_init__(self) -> None:
        given = _dtype(self.param_dtype)
        if self.compute_dtype is None and self.output_dtype is None and given.itemsize < 4:
            # Updates would be lost in half-precision parameters, so `param_dtype` alone cannot
            # select them.
            object.__setattr__(self, "param_dtype", np.dtype("float32"))
            object.__setattr__(self, "compute_dtype", given)
        for name in ("compute_dtype", "output_dtype"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, np.dtype("float32"))
        for name in ("param_dtype", "compute_dtype", "output_dtype"):
            object.__setattr__(self, name, _dtype(getattr(self, name)))
        globs = self.overrides
        items = globs.items() if isinstance(globs, Mapping) else globs
        object.__setattr__(self, "overrides", tuple((glob, _dtype(d)) for glob, d in items))

    @classmethod
    def parse(cls, text: str, overrides: Any = ()) -> Policy:
        """Create a policy from a string.

        Args:
            text: a dtype for everything, such as `"float32"`; a dtype for the computation only,
                such as `"mixed_bfloat16"`; or all three dtypes, such as `"p=f32,c=f16,o=f32"`.
            overrides: as for the constructor.

        >>> from toile.training.mixed_precision import Policy
        >>> Policy.parse("p=f32,c=f16,o=f32") == Policy.parse("mixed_float16")
        True
        """
        if "=" in text:
            parts = dict(part.strip().split("=", 1) for part in text.split(","))
            unknown = [name for name in parts if name.strip() not in _FIELDS]
            if unknown:
                raise ValueError(
                    f"Policy.parse: needed params=, compute= or output=, got {unknown}{here()}"
                )
            named = {_FIELDS[name.strip()]: dtype for name, dtype in parts.items()}
            wide: dict[str, Any] = {"compute_dtype": np.float32, "output_dtype": np.float32}
            return cls(**{**wide, **named}, overrides=overrides)
        kind = text.strip()
        if kind.startswith("mixed_"):
            return cls(compute_dtype=kind.removeprefix("mixed_"), overrides=overrides)
        return cls(kind, kind, kind, overrides)

    def cast_to_param(self, x: Any) -> Any:
        """Convert the floating-point arrays in a tree to `param_dtype`."""
        return _cast(x, self.param_dtype)

    def cast_to_compute(self, x: Any) -> Any:
        """Convert the floating-point arrays in a tree to `compute_dtype`."""
        return _cast(x, self.compute_dtype)

    def cast_to_output(self, x: Any) -> Any:
        """Convert the floating-point arrays in a tree to `output_dtype`."""
        return _cast(x, self.output_dtype)

    def cast_params(self, params: Any) -> Any:
        """Convert parameters to the dtypes in which the model computes, including overrides."""
        if not self.overrides:
            return self.cast_to_compute(params)
        labels = dict(self.overrides)
        labels.setdefault("**", self.compute_dtype)
        wanted = paths.label_tree(labels, params, "Policy.overrides")
        return tree.map(lambda p, d: _cast(p, d), params, wanted)

    def wrap(self, apply_fn: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `model.apply` so that it follows this policy.

        Args:
            apply_fn: a module's `apply` method.

        Returns:
            A function that accepts the arguments of `apply_fn`. It converts parameters and
            floating-point arguments to `compute_dtype`, and the result to `output_dtype`.
            Collections other than the parameters keep their dtypes.
        """
        return _Applied(self, apply_fn)

    def loss_scale(self, **options: Any) -> Any:
        """Create the loss scale that the policy needs.

        Args:
            **options: options for `DynamicScale`.

        Returns:
            A `DynamicScale` for float16, or `NoScale()` for other dtypes; both have a method
            `value_and_grad`.
        """
        return DynamicScale(**options) if self.compute_dtype == np.float16 else NoScale()

    def _dtype_of(self, path: str) -> DTypeLike | None:
        """The dtype in which the module at a path computes."""
        for glob, dtype in self.overrides:
            if path and paths.matches(glob, path):
                return dtype
        return self.compute_dtype

    def _around(self, next_fun: Callable[..., Any], args: Any, kwargs: Any, context: Any) -> Any:
        """Convert the inputs and results of modules that override the dtype."""
        if context.method_name == "setup":
            return next_fun(*args, **kwargs)
        where = context.module.path
        inside = self._dtype_of("/".join(where))
        outside = self._dtype_of("/".join(where[:-1]))
        if inside == outside:
            return next_fun(*args, **kwargs)
        args, kwargs = _cast((args, kwargs), inside)
        return _cast(next_fun(*args, **kwargs), outside)


@dataclass(frozen=True)
class _Applied:
    """An apply function that follows a policy; `jit` treats equal ones as the same function."""

    policy: Policy
    apply_fn: Callable[..., Any]

    def __call__(self, variables: Any, *args: Any, **kwargs: Any) -> Any:
        policy = self.policy
        given = dict(variables)
        if "params" in given:
            given["params"] = policy.cast_params(given["params"])
        rngs = {"rngs": kwargs.pop("rngs")} if "rngs" in kwargs else {}
        args, kwargs = policy.cast_to_compute((args, kwargs))
        if not policy.overrides:
            out = self.apply_fn(given, *args, **rngs, **kwargs)
        else:
            with nn.intercept_methods(policy._around):
                out = self.apply_fn(given, *args, **rngs, **kwargs)
        if kwargs.get("mutable", False) is not False:
            return policy.cast_to_output(out[0]), out[1]
        return policy.cast_to_output(out)


class StaticScale(struct.PyTreeNode):
    """A constant loss scale.

    Args:
        scale: number by which the loss is multiplied and the gradients are divided.

    >>> from toile.training.mixed_precision import StaticScale
    >>> _, finite, value, grad = StaticScale(1024.0).value_and_grad(jnp.square)(jnp.float32(3))
    >>> bool(finite), float(value), float(grad)
    (True, 9.0, 6.0)
    """

    scale: ArrayLike = 1024.0

    def value_and_grad(
        self, fun: Callable[..., Any], argnums: Any = 0, has_aux: bool = False,
        axis_name: Any = None,
    ) -> Callable[..., DynamicScaleResult]:
        """Create a function that returns the value and gradients of `fun`, using the scale.

        Args:
            fun: function that returns a scalar.
            argnums: positions of the arguments to differentiate with respect to.
            has_aux: whether `fun` returns a pair (scalar, aux).
            axis_name: mapped axis over which gradients are averaged; if None, gradients are not
                averaged.

        Returns:
            A function that returns (scale, finite, value, gradients).
        """
        scaled = scaled_value_and_grad(fun, self.scale, argnums, has_aux, axis_name)

        def value_and_grad_of(*args: Any) -> DynamicScaleResult:
            value, grad = scaled(*args)
            return DynamicScaleResult(self, all_finite(grad), value, grad)

        return value_and_grad_of


class NoScale(struct.PyTreeNode):
    """A loss scale that does nothing, for use with dtypes that need no scaling.

    >>> from toile.training.mixed_precision import NoScale
    >>> _, finite, value, grad = NoScale().value_and_grad(jnp.square)(jnp.float32(3))
    >>> finite, float(value), float(grad)
    (True, 9.0, 6.0)
    """

    def value_and_grad(
        self, fun: Callable[..., Any], argnums: Any = 0, has_aux: bool = False,
        axis_name: Any = None,
    ) -> Callable[..., DynamicScaleResult]:
        """Create a function that returns the value and gradients of `fun`.

        Args:
            fun: function that returns a scalar.
            argnums: positions of the arguments to differentiate with respect to.
            has_aux: whether `fun` returns a pair (scalar, aux).
            axis_name: mapped axis over which gradients are averaged; if None, gradients are not
                averaged.

        Returns:
            A function that returns (scale, True, value, gradients).
        """

        def value_and_grad_of(*args: Any) -> DynamicScaleResult:
            value, grad = api.value_and_grad(fun, argnums, has_aux)(*args)
            grad = grad if axis_name is None else lax.pmean(grad, axis_name)
            return DynamicScaleResult(self, True, value, grad)

        return value_and_grad_of


def select_finite(finite: ArrayLike, new: PyTree, old: PyTree) -> PyTree:
    """Choose the state after a step if gradients were finite, otherwise the state before the step.

    Args:
        finite: boolean scalar, True if the gradients were finite.
        new: tree of arrays, the state after the step.
        old: tree of arrays, the state before the step.

    Returns:
        `new` if `finite` is True, otherwise `old`.

    >>> from toile.training.mixed_precision import select_finite
    >>> select_finite(jnp.array(False), {"w": jnp.float32(2)}, {"w": jnp.float32(1)})
    {'w': Array(1., dtype=float32)}
    """
    if finite is True:
        return new
    return tree.map(lambda n, o: jnp.where(finite, n, o), new, old)
