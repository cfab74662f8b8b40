"""The errors of modules: Flax's names and arguments, and what their texts say."""

import inspect
import pickle
import re
import types

import flax.errors
import pytest

from toile import errors

KNOWN = {n: c for n, c in vars(flax.errors).items() if isinstance(c, type)}
NOT_RAISED = {
    *("ImmutableVariableError", "MultipleMethodsCompactError", "TraceContextError"),
    *("MPACheckpointingRequiredError", "MPARestoreTargetRequiredError"),
    "MPARestoreDataCorruptedError",
}
found = types.SimpleNamespace(_path="['a']"), types.SimpleNamespace(_path=".b")

# Class, arguments, and what the text has to contain besides what Flax's says about the arguments.
CASES = [
    ("AlreadyExistsError", ("a/b",), ["a/b", "overwrite=True"]),
    ("ApplyModuleInvalidMethodError", (3,), ["3 is not a valid function for apply()"]),
    ("ApplyScopeInvalidVariablesStructureError", ({},), ['{"params": ...}', 'variables["params"]']),
    ("ApplyScopeInvalidVariablesTypeError", (), ["dictionary of", "{'params': params}"]),
    ("AssignSubModuleError", ("Dense",), ["Submodule Dense", "`setup()`", "@nn.compact"]),
    ("CallCompactUnboundModuleError", (), ["unbound", "model.init(key, x)", "apply"]),
    ("CallSetupUnboundModuleError", (), ["unbound", "bind(variables)"]),
    ("CallShareScopeOnUnboundModuleError", (), ["`share_scope`", "setup()"]),
    ("CallUnbindOnUnboundModuleError", (), ["`unbind()`", "bind(variables)"]),
    ("CursorFindError", (), ["No object found", "cond_fn"]),
    ("CursorFindError", found, ["More than one", "['a'] and .b", "find_all"]),
    ("DescriptorAttributeError", (), ["non-existent attribute", "setup()"]),
    ("FlaxError", ("anything",), ["anything"]),
    ("ImmutableVariableError", ("anything",), ["anything"]),
    ("IncorrectPostInitOverrideError", (), ["super().__post_init__()"]),
    ("InvalidCheckpointError", ("dir", 3), ['"3"', '"dir"', "overwrite=True"]),
    ("InvalidFilterError", (3.5,), ['"3.5"', "float", "DenyList"]),
    ("InvalidInstanceModuleError", (), ["instance", "Model(...).init"]),
    ("InvalidRngError", ("anything",), ["anything"]),
    ("InvalidScopeError", ("foo",), ['"foo"', "no longer valid", "module.bind"]),
    ("JaxTransformError", (), ["cannot be mixed", "nn.vmap"]),
    ("LazyInitError", ("f32[3]",), ["f32[3]", "ShapeDtypeStruct"]),
    ("MPACheckpointingRequiredError", ("dir", 3), ['"3"', '"dir"']),
    ("MPARestoreDataCorruptedError", (3, "dir"), ['"3"', '"dir"', "earlier step"]),
    ("MPARestoreTargetRequiredError", ("dir", 3, "w"), ['"3"', '"dir"', "w", "target"]),
    (
        "ModifyScopeVariableError",
        ("batch_stats", "mean", "/BatchNorm_0"),
        ['"mean" in "/BatchNorm_0"', 'collection "batch_stats"', "mutable=['batch_stats']"],
    ),
    ("MultipleMethodsCompactError", (), ["@compact"]),
    ("NameInUseError", ("submodule", "x", "Foo"), ['submodule "x" in Module Foo: Name in use']),
    ("NameInUseError", ("param", "x", "Foo"), ['param "x" in Module Foo: Name in use', "a name"]),
    ("PartitioningUnspecifiedError", ("box",), ["partition_name", "box", "metadata_params={"]),
    ("ReservedModuleAttributeError", ({"name": int},), ["`parent` and `name`", "'name'"]),
    (
        "ScopeCollectionNotFound",
        ("params", "kernel", "/Dense_0"),
        ['"kernel" from collection "params" in "/Dense_0"', "{'params': params", "mutable="],
    ),
    ("ScopeParamNotFoundError", ("kernel", "/Dense_0"), ['"kernel" in scope "/Dense_0"', "init"]),
    (
        "ScopeParamShapeError",
        ("kernel", "/Dense_0", (4, 3), (5, 3)),
        ['"kernel" in "/Dense_0"', "generate shape (5, 3)", "has shape (4, 3)", "init"],
    ),
    (
        "ScopeVariableNotFoundError",
        ("mean", "stats", "/a"),
        ['"mean" for collection "stats" exists in "/a"', "mutable=['stats']"],
    ),
    (
        "SetAttributeFrozenModuleError",
        ("Foo", "width", 3),
        ["set width=3 for Module of type Foo", "clone(width=...)"],
    ),
    ("SetAttributeInModuleSetupError", (), ["construction attributes are frozen", "setup()"]),
    ("TraceContextError", ("anything",), ["anything"]),
    ("TransformTargetError", (3,), ["callable: 3", "nn.vmap(nn.Dense)"]),
    ("TransformedMethodReturnValueError", ("call",), ["method call", "cannot return Modules"]),
    ("TraverseTreeError", (None, None), ["are None", "cond_fn"]),
    ("TraverseTreeError", (1, 2), ["are not None", "update_fn"]),
]


def test_names_and_arguments():
    assert not set(KNOWN) - set(errors.__all__)
    assert {name for name, _, _ in CASES} == set(KNOWN)
    for name, theirs in KNOWN.items():
        ours = list(inspect.signature(getattr(errors, name)).parameters.values())
        want = list(inspect.signature(theirs).parameters)
        assert [p.name for p in ours[: len(want)]] == want, name
        assert all(p.default is not p.empty for p in ours[len(want) :]), name
        assert issubclass(getattr(errors, name), errors.FlaxError)
    assert issubclass(errors.FlaxError, errors.ToileError)


@pytest.mark.parametrize("name, args, parts", CASES, ids=lambda x: x if isinstance(x, str) else "")
def test_text(name, args, parts):
    cls = getattr(errors, name)
    text = str(cls(*args))
    for part in parts:
        assert part in text
    lines = text.splitlines()
    assert len(lines) <= 15 and all(len(line) < 400 for line in lines)
    assert f"at {__file__}:" in text
    if name not in NOT_RAISED | {"FlaxError", "InvalidRngError"}:
        assert "\n  Fix: " in text
    # Programs and tests that search the text for Flax's find it.
    said = str(KNOWN[name](*args)).partition(" (https://")[0]
    if name == "LazyInitError":  # Flax's sentence has no verb
        assert "f32[3]" in said
    else:
        assert said.removesuffix(".") in text


@pytest.mark.parametrize("name, args, parts", CASES, ids=lambda x: x if isinstance(x, str) else "")
def test_pickle_keeps_class_and_text(name, args, parts):
    error = getattr(errors, name)(*args)
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error) and str(back) == str(error)


@pytest.mark.parametrize("name", sorted(set(KNOWN) - NOT_RAISED))
def test_docstring_has_both_programs(name):
    text = inspect.getdoc(getattr(errors, name))
    for kind in ("Broken", "Repaired"):
        (program,) = re.findall(rf"{kind}::\n\n((?:(?:    .*)?\n)+)", text + "\n")
        compile(inspect.cleandoc("\n" + program), name, "exec")


@pytest.mark.parametrize("name", sorted(NOT_RAISED))
def test_docstring_says_when_it_is_not_raised(name):
    text = inspect.getdoc(getattr(errors, name))
    assert re.search("(?i)not raised|raised only|does not raise", text)


def test_details_where_they_are_known():
    error = errors.JaxTransformError("/Dense_0", 'creates the parameter "kernel"', "nn.vmap")
    for part in ("module '/Dense_0' creates the parameter \"kernel\"", "nn.vmap", "plain"):
        assert part in str(error)
    assert "the root module draws" in str(errors.JaxTransformError("/", "draws random numbers"))
    assert "BatchNorm" in str(errors.ModifyScopeVariableError("s", "m", "/norm", "BatchNorm"))
    assert "['bias']" in str(errors.ScopeParamNotFoundError("kernel", "/", {"bias": 1}))
    assert "Dense" in str(errors.CallCompactUnboundModuleError("Dense"))
