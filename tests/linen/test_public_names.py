"""Every public name of flax's modules exists here with the same signature, or has its reason."""

import importlib
import inspect
from typing import TypeVar

import pytest

MODULES = ("linen", "core", "struct", "traverse_util", "errors", "cursor", "configurations")
SUBMODULES = (
    "linen.activation", "linen.attention", "linen.batch_apply", "linen.combinators",
    "linen.dtypes", "linen.fp8_ops", "linen.initializers", "linen.linear", "linen.module",
    "linen.normalization", "linen.partitioning", "linen.pooling", "linen.recurrent",
    "linen.spmd", "linen.stochastic", "linen.summary", "linen.transforms", "core.frozen_dict",
    "core.lift", "core.meta", "core.scope", "core.axes_scan", "core.nn",
)  # fmt: skip

# Names that are not here, and why.
NNX, MACHINERY = "a flag of flax.nnx", "how flax implements what we implement otherwise"
ABSENT = {
    "configurations.TYPE_CHECKING": "Python's own",
    "configurations.flax_use_flaxlib": NNX,
    "configurations.flax_array_ref": NNX,
    "configurations.flax_pytree_module": NNX,
    "configurations.flax_max_repr_depth": NNX,
    "configurations.flax_always_shard_variable": NNX,
    "configurations.flax_hijax_variable": NNX,
    **{
        f"linen.module.{name}": MACHINERY
        for name in (
            "ThreadLocalStack", "Descriptor", "create_descriptor_wrapper", "module_field",
            "tuple_reduce", "tuple_init",
        )
    },
    **{
        f"linen.transforms.{name}": MACHINERY
        for name in (
            "clean_clone", "VariablePlaceholder", "InstancePlaceholder", "get_module_scopes",
            "set_module_scopes", "module_class_lift_transform", "decorator_lift_transform",
            "decorator_lift_transform_cached", "module_class_lift_transform_cached",
            "lift_transform_cached",
        )
    },
    **{
        f"core.lift.{name}": MACHINERY
        for name in ("TransformContext", "CountsHolder", "set_from_dict")
    },
    "core.axes_scan.build_shaped_array": MACHINERY,
    **{
        f"linen.fp8_ops.{name}": "a dtype whose cotangents are joined by maximum (docs/compat.md)"
        for name in (
            "fm32", "fp32_max_grad", "Fp8MetaTyRules", "fp8_meta_dtype", "fp8_meta_dtype_wrapper",
        )
    },
}  # fmt: skip


def public(module):
    """Names that the module itself offers, not what it imports for its own use."""
    names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    for name in names:
        value = getattr(module, name)
        owner = getattr(value, "__module__", "") or ""
        if inspect.ismodule(value) and not value.__name__.startswith("flax."):
            continue
        if callable(value) and not owner.startswith(("flax", "jax")):
            continue
        if not inspect.ismodule(value):
            yield name, value


def parameters(value):
    """Names, kinds and whether there is a default, without annotations."""
    try:
        found = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return None
    # The machinery of dataclasses may have these by position in flax; they go by name.
    return [
        (p.name, p.kind.name, p.default is not p.empty)
        for p in found
        if p.name not in ("parent", "name") or p.kind is p.VAR_KEYWORD
    ]


def takes(ours, theirs):
    """The same parameters; there may be more at the end, with defaults."""
    more = ours[len(theirs) :]
    return ours[: len(theirs)] == theirs and all(default for _, _, default in more)


def of_flax(path):
    return importlib.import_module(f"flax.{path}")


@pytest.mark.parametrize("path", MODULES)
def test_names(path):
    ours = importlib.import_module(f"toile.{path}")
    missing = [n for n, _ in public(of_flax(path)) if not hasattr(ours, n)]
    known = [n for n in missing if f"{path}.{n}" in ABSENT or n.startswith("nnx_")]
    assert [n for n in missing if n not in known] == []


@pytest.mark.parametrize("path", SUBMODULES)
def test_names_of_parts(path):
    """What flax's own files define is found at the same place."""
    theirs, ours = of_flax(path), importlib.import_module(f"toile.{path}")
    own = [
        n
        for n, v in vars(theirs).items()
        if not n.startswith("_")
        and getattr(v, "__module__", None) == theirs.__name__
        and not isinstance(v, TypeVar)
    ]
    missing = [n for n in own if not hasattr(ours, n)]
    assert [n for n in missing if f"{path}.{n}" not in ABSENT] == []


@pytest.mark.parametrize("path", MODULES)
def test_signatures(path):
    ours = importlib.import_module(f"toile.{path}")
    wrong = {}
    for name, value in public(of_flax(path)):
        if not callable(value) or not hasattr(ours, name):
            continue
        want, got = parameters(value), parameters(getattr(ours, name))
        if want is not None and not takes(got, want):
            wrong[name] = {"flax": want, "toile": got}
    assert wrong == {}


METHODS = [
    (cls, name)
    for cls in ("Module", "Dense", "BatchNorm", "MultiHeadDotProductAttention", "RNN", "Dropout")
    for name in dir(getattr(of_flax("linen"), cls))
    if not name.startswith("_") or name == "__call__"
]


@pytest.mark.parametrize("cls, name", METHODS)
def test_methods(cls, name):
    """Methods of the module classes and their parameters."""
    theirs = getattr(getattr(of_flax("linen"), cls), name, None)
    ours = getattr(getattr(importlib.import_module("toile.linen"), cls), name, None)
    if callable(theirs) and inspect.isfunction(theirs):
        want, got = parameters(theirs), parameters(ours)
        assert takes(got, want), (got, want)
