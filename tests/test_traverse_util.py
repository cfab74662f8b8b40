"""Flat dictionaries and traversals beside Flax's."""

import copy
import dataclasses
import types
import warnings
from collections import namedtuple

import flax.core
import flax.traverse_util
import pytest

import toile.core
from toile import traverse_util

OURS = types.SimpleNamespace(t=traverse_util, core=toile.core)
THEIRS = types.SimpleNamespace(t=flax.traverse_util, core=flax.core)
NESTED = {"foo": 1, "bar": {"a": 2, "b": {}, "c": {"d": 3}}, "empty": {}}
Pair = namedtuple("Pair", ["x", "y"])


@dataclasses.dataclass(frozen=True)
class Point:
    x: int = 1
    y: int = 2


class Plain:
    def __init__(self):
        self.x = 1


def stop_at_bar(path, value):
    return path == ("bar",)


def ident(lib):
    return lib.t.t_identity


def params(lib, name):
    return lib.t.ModelParamTraversal(lambda path, value: name in path)


PROGRAMS = {
    "flatten": lambda lib: lib.t.flatten_dict(NESTED),
    "flatten sep": lambda lib: lib.t.flatten_dict(NESTED, sep="/"),
    "flatten is_leaf": lambda lib: lib.t.flatten_dict(NESTED, is_leaf=stop_at_bar),
    "flatten root is_leaf": lambda lib: lib.t.flatten_dict(NESTED, is_leaf=lambda *_: True),
    "flatten empty": lambda lib: lib.t.flatten_dict({}, keep_empty_nodes=True),
    "flatten keys": lambda lib: list(lib.t.flatten_dict(NESTED, keep_empty_nodes=True, sep=".")),
    "flatten ints": lambda lib: lib.t.flatten_dict({1: {2: 3}}),
    "flatten ints sep": lambda lib: lib.t.flatten_dict({1: {2: 3}}, sep="/"),
    "flatten frozen": lambda lib: lib.t.flatten_dict(lib.core.freeze(NESTED)),
    "flatten frozen leaf": lambda lib: lib.core.unfreeze(
        lib.t.flatten_dict(lib.core.freeze(NESTED), is_leaf=stop_at_bar)
    ),
    "unflatten": lambda lib: lib.t.unflatten_dict({("a", "b"): 1, ("a", "c"): 2, ("d",): 3}),
    "unflatten sep": lambda lib: lib.t.unflatten_dict({"a/b": 1, "a/c": 2, "d": 3}, sep="/"),
    "there and back": lambda lib: lib.t.unflatten_dict(
        lib.t.flatten_dict(NESTED, keep_empty_nodes=True)
    ),
    "unflatten conflict": lambda lib: lib.t.unflatten_dict({("a",): 1, ("a", "b"): 2}),
    "path_aware_map": lambda lib: lib.t.path_aware_map(lambda p, x: ("a" in p, x), NESTED),
    "path_aware_map frozen": lambda lib: lib.t.path_aware_map(
        lambda p, x: "/".join(p), lib.core.freeze(NESTED)
    ),
    "id": lambda lib: (list(ident(lib).iterate(3)), ident(lib).update(str, 3)),
    "each": lambda lib: list(ident(lib).each()["a"].iterate([{"a": 1}, {"a": 2}])),
    "each update": lambda lib: [
        ident(lib).each().update(lambda x: x + 1, x) for x in ([1, 2], (1, 2), {"k": 1})
    ],
    "each dict": lambda lib: list(ident(lib).each().iterate({"k": 1, "l": 2})),
    "each wrong": lambda lib: ident(lib).each().update(str, {1, 2}),
    "attr": lambda lib: [ident(lib).x.update(lambda v: v + 9, o) for o in (Point(), Pair(1, 2))],
    "attr plain": lambda lib: vars(ident(lib).x.update(lambda v: v + 9, Plain())),
    "attr iterate": lambda lib: list(ident(lib).x.iterate(Point())),
    "item": lambda lib: [
        ident(lib)[1].update(lambda v: v + 9, o) for o in ((1, 2), [1, 2], Pair(1, 2), {1: 3})
    ],
    "slice": lambda lib: (
        ident(lib)[1:].update(lambda v: v + 9, (1, 2, 3)), list(ident(lib)[:2].iterate([1, 2, 3]))
    ),
    "tree": lambda lib: (
        ident(lib).tree().update(lambda v: -v, {"a": [1, 2]}),
        list(ident(lib).tree().iterate({"b": 1, "a": [2]})),
    ),
    "filter": lambda lib: (
        ident(lib).each().filter(lambda v: v > 1).update(lambda v: -v, [1, 2, 3]),
        list(ident(lib).each().filter(lambda v: v > 1).iterate([1, 2, 3])),
    ),
    "merge": lambda lib: (
        ident(lib).merge(ident(lib)["a"], ident(lib)["b"]).update(str, {"a": 1, "b": 2, "c": 3}),
        list(ident(lib).merge(ident(lib)["a"], ident(lib)["b"]).iterate({"a": 1, "b": 2})),
    ),
    "set": lambda lib: ident(lib).each().set([4, 5], [1, 2]),
    "set few": lambda lib: ident(lib).each().set([4], [1, 2]),
    "set many": lambda lib: ident(lib).each().set([4, 5, 6], [1, 2]),
    "params": lambda lib: list(params(lib, "/a").iterate(NESTED)),
    "params update": lambda lib: params(lib, "bar").update(lambda v: -v, NESTED),
    "params frozen": lambda lib: repr(params(lib, "foo").update(str, lib.core.freeze(NESTED))),
    "params wrong": lambda lib: list(params(lib, "foo").iterate([1])),
}


def outcome(program, lib):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            result = program(lib)
            return repr(result), result
        except Exception as error:
            return type(error).__name__


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_flax(name):
    assert outcome(PROGRAMS[name], OURS) == outcome(PROGRAMS[name], THEIRS)


def test_empty_nodes():
    flat = traverse_util.flatten_dict({"a": {"b": {}}}, keep_empty_nodes=True)
    assert flat == {("a", "b"): traverse_util.empty_node}
    assert toile.tree.leaves(traverse_util.empty_node) == []


def test_wrong_arguments():
    with pytest.raises(AssertionError, match=r"expected \(frozen\)dict; got .*list"):
        traverse_util.flatten_dict([1])
    with pytest.raises(AssertionError, match="input is not a dict; it is a"):
        traverse_util.unflatten_dict([1])


def test_traversals_warn_and_can_be_copied():
    with pytest.warns(DeprecationWarning, match="path_aware_map"):
        traversal = traverse_util.t_identity["a"]
    with pytest.warns(DeprecationWarning):
        assert list(copy.copy(traversal).iterate({"a": 1})) == [1]


def test_negative_index_and_callers_list():
    values = [4, 5]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert traverse_util.t_identity[-1].update(str, (1, 2)) == (1, "2")
        traverse_util.t_identity.each().set(values, [1, 2])
    assert values == [4, 5]
