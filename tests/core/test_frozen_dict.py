"""FrozenDict beside Flax's: reading, copying, hashing, printing, and its life as a tree."""

import copy as copying
import pickle

import flax.core as theirs
import jax
import pytest

import toile
import toile.core as ours
from toile.core import FrozenDict, freeze, unfreeze

NESTED = {"b": 1, "a": {"z": 2, "c": {"d": (3, 4)}}, "none": None, "empty": {}}
EXAMPLES = [{}, {"a": 1}, NESTED, {"l": [1, {"x": 2}], "t": (1,)}, {1: "x", 0: {"y": None}}]


def plain(x):
    """Either library's answer as builtin types, with a mark where it was frozen."""
    if isinstance(x, (ours.FrozenDict, theirs.FrozenDict)):
        return ("frozen", {key: plain(value) for key, value in x.items()})
    if isinstance(x, dict):
        return {key: plain(value) for key, value in x.items()}
    return type(x)(map(plain, x)) if isinstance(x, (list, tuple)) else x


READERS = {
    "repr": repr,
    "pretty": lambda f: f.pretty_repr(num_spaces=2),
    "items": lambda f: [(k, plain(v)) for k, v in f.items()],
    "keys": lambda f: repr(f.keys()),
    "values": lambda f: repr(f.values()),
    "list": lambda f: (list(f), len(f), "a" in f, "none" in f),
    "get": lambda f: (plain(f.get("a")), f.get("missing"), f.get("missing", 5)),
    "unfreeze": lambda f: repr(f.unfreeze()),
    "copy": lambda f: plain(f.copy({"new": {"k": 1}, "a": 5})),
    "copy of nothing": lambda f: plain(f.copy()),
    "equal": lambda f: (f == f.unfreeze(), f == {"a": 1}, f == 3, f == f.copy()),
    "reduce": lambda f: repr(pickle.loads(pickle.dumps(f))),
    "deepcopy": lambda f: repr(copying.deepcopy(f)),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("example", EXAMPLES, ids=repr)
def test_reading(name, example):
    read = READERS[name]
    assert read(ours.FrozenDict(example)) == read(theirs.FrozenDict(example))


FUNCTIONS = {
    "copy": lambda core, x: core.copy(x, {"a": {"new": 1}}),
    "copy frozen": lambda core, x: core.copy(x, core.FrozenDict({"n": {"new": 1}})),
    "pop": lambda core, x: core.pop(x, "a"),
    "pretty_repr": lambda core, x: core.pretty_repr(x),
    "unfreeze": lambda core, x: core.unfreeze(x),
    "freeze": lambda core, x: core.freeze(x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("kind", [dict, "FrozenDict"])
def test_functions_on_both_kinds(name, kind):
    def run(core):
        x = core.FrozenDict(NESTED) if kind == "FrozenDict" else {**NESTED}
        return plain(FUNCTIONS[name](core, x))

    assert run(ours) == run(theirs)


def test_hash_equals_flax_and_ignores_order():
    x, y = {"a": 1, "b": {"c": 2}}, {"b": {"c": 2}, "a": 1}
    assert hash(FrozenDict(x)) == hash(FrozenDict(y)) == hash(theirs.FrozenDict(x))
    with pytest.raises(TypeError):
        hash(FrozenDict({"a": [1]}))


def test_immutable_and_private():
    inner = {"x": 1}
    frozen = freeze({"inner": inner})
    inner["x"] = 2
    assert frozen["inner"]["x"] == 1
    with pytest.raises(ValueError, match="FrozenDict is immutable"):
        frozen["y"] = 1
    with pytest.raises(ValueError, match="FrozenDict is immutable"):
        del frozen["inner"]
    thawed = unfreeze(frozen)
    thawed["inner"]["x"] = 3
    assert frozen["inner"]["x"] == 1
    for function in (ours.copy, lambda x: ours.pop(x, "a")):
        with pytest.raises(TypeError, match="Expected FrozenDict or dict, got"):
            function([1])
    with pytest.raises(KeyError):
        frozen.pop("y")


def test_nested_access_copies_nothing():
    frozen = FrozenDict({"a": {"b": {"c": 1}}})
    below = frozen["a"]
    assert below._dict is frozen._dict["a"]
    assert FrozenDict(frozen)._dict is frozen._dict
    assert frozen.copy({"n": 1})["a"]._dict is below._dict
    assert frozen.pop("a")[1]._dict is below._dict


def test_mixed_levels():
    frozen = FrozenDict({"a": FrozenDict({"b": 1}), "c": {"d": FrozenDict({"e": 2})}})
    assert unfreeze(frozen) == {"a": {"b": 1}, "c": {"d": {"e": 2}}}
    assert type(unfreeze({"a": FrozenDict({"b": 1})})["a"]) is dict
    assert FrozenDict(a=1) == FrozenDict([("a", 1)]) == {"a": 1}


def test_tree():
    x = {"b": 1.0, "a": {"z": 2.0, "c": [3.0, 4.0]}, "none": None}
    frozen, known = FrozenDict(x), theirs.FrozenDict(x)
    pairs, structure = toile.tree_util.tree_flatten_with_path(frozen)
    want, known_structure = jax.tree_util.tree_flatten_with_path(known)
    assert [(toile.tree_util.keystr(p), v) for p, v in pairs] == [
        (jax.tree_util.keystr(p), v) for p, v in want
    ]
    assert str(structure) == str(known_structure)
    doubled = toile.tree.map(lambda v: 2 * v, frozen)
    assert repr(doubled) == repr(jax.tree.map(lambda v: 2 * v, known))
    assert structure == toile.tree.structure(FrozenDict(dict(reversed(x.items()))))


def test_through_transformations():
    params = FrozenDict({"w": {"k": toile.numpy.ones(3)}})
    grads = toile.jit(toile.grad(lambda p: (p["w"]["k"] ** 2).sum()))(params)
    assert isinstance(grads, FrozenDict) and grads["w"]["k"].tolist() == [2.0, 2.0, 2.0]
