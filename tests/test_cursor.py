"""Cursors beside Flax's: the same expressions on the same objects."""

import copy
import dataclasses
import operator
import types
from collections import namedtuple

import flax.core
import flax.cursor
import flax.errors
import flax.struct
import numpy as np
import pytest

import toile.core
import toile.cursor
from toile import errors, struct
from toile.cursor import cursor

OURS = types.SimpleNamespace(
    cursor=toile.cursor.cursor, core=toile.core, struct=struct, errors=errors, module=toile.cursor
)
THEIRS = types.SimpleNamespace(
    cursor=flax.cursor.cursor, core=flax.core, struct=flax.struct, errors=flax.errors,
    module=flax.cursor,
)
Pair = namedtuple("Pair", ["x", "y"])


@dataclasses.dataclass(frozen=True)
class Point:
    x: object = 1
    y: object = (1, 2)
    z: int = dataclasses.field(init=False, default=0)


def tree():
    return {"a": 1, "b": (2, 3), "c": [4, 5], "d": {"e": Pair(6, Point())}}


def assign(*steps):
    """A program that records assignments and builds the copy."""

    def program(lib):
        original = tree()
        c = lib.cursor(original)
        for step in steps:
            step(c)
        built = c.build()
        assert original == tree()
        return repr(built), repr(c), str(c)

    return program


def at(c, *path):
    for key in path:
        c = getattr(c, key) if isinstance(key, str) and key.startswith(".") else c[key]
    return c


def set_item(path, key, value):
    return lambda c: operator.setitem(at(c, *path), key, value)


def set_attr(path, key, value):
    return lambda c: setattr(at(c, *path), key, value)


def add_to(path, key, value):
    def step(c):
        holder = at(c, *path)
        holder[key] += value

    return step


def negate(lib):
    c = lib.cursor(((1, 2), [3, 4]))
    for child in c:
        child[1] *= -1
    return c.build(), [str(x) for x in reversed(c)], len(c)


def double(path, value):
    return 2 * value if isinstance(value, int) else value


def found(lib, cond):
    c = lib.cursor(tree())
    return [x._path for x in c.find_all(cond)], [str(x) for x in c.find_all(cond)]


def find_and_set(lib):
    c = lib.cursor(tree())
    c.find(lambda path, value: path == "d/e/y").x = 100
    return repr(c.build())


PROGRAMS = {
    "set": lambda lib: lib.cursor(tree())["b"][0].set(10),
    "set root": lambda lib: lib.cursor(tree()).set(10),
    "set attr": lambda lib: repr(lib.cursor(tree())["d"]["e"].y.x.set(10)),
    "set by index of a named tuple": lambda lib: repr(lib.cursor(tree())["d"]["e"][0].set(10)),
    "set frozen": lambda lib: repr(lib.cursor(lib.core.freeze({"a": {"b": 1}}))["a"]["b"].set(2)),
    "set struct": lambda lib: repr(
        lib.cursor(lib.struct.dataclass(type("S", (), {"__annotations__": {"x": int}}))(1)).x.set(2)
    ),
    "nothing": assign(),
    "items": assign(set_item(("b",), 0, 10), set_item((), "a", (1, 2)), set_item((), "new", 3)),
    "nested": assign(set_item(("d", "e"), 0, 9), set_attr(("d", "e", 1), "x", "text")),
    "add": assign(add_to((), "a", 5), add_to(("b",), 1, 5), add_to(("c",), -1, 5)),
    "named tuple": assign(set_attr(("d", "e"), "x", 1), set_item(("d", "e"), 1, 2)),
    "over a change": assign(set_item((), "b", [1, 2]), set_item(("b",), 0, 5)),
    "unknown field": assign(set_attr(("d", "e"), "nope", 1)),
    "iterate": negate,
    "iterate dict": lambda lib: list(lib.cursor({"a": 1})),
    "reverse dict": lambda lib: list(reversed(lib.cursor({"a": 1}))),
    "repr": lambda lib: repr(lib.cursor({"a": 1, "b": "x\ny"})),
    "update": lambda lib: repr(lib.cursor(tree()).apply_update(double).build()),
    "update root": lambda lib: lib.cursor(3).apply_update(double).build(),
    "update whole": lambda lib: repr(
        lib.cursor(tree()).apply_update(lambda p, v: {} if p == "d/e" else v).build()
    ),
    "find_all": lambda lib: found(lib, lambda path, value: isinstance(value, tuple)),
    "find_all by path": lambda lib: found(lib, lambda path, value: "1" in path),
    "find": find_and_set,
    "find none": lambda lib: lib.cursor(tree()).find(lambda path, value: False),
    "find two": lambda lib: lib.cursor({"a": {"k": {}}, "b": {"k": {"j": 1}}}).find(
        lambda path, value: bool(value) and len(path) == 1
    ),
    "key": lambda lib: lib.cursor(tree())["missing"],
    "attribute": lambda lib: lib.cursor(tree())["d"]["e"].missing,
    "index": lambda lib: lib.cursor(tree())["a"][0],
    "range": lambda lib: lib.cursor(tree())["c"][7],
    "hash": lambda lib: hash(lib.cursor(1)),
    "round": lambda lib: (round(lib.cursor(1.26)), round(lib.cursor(1.26), 1)),
    "neither": lambda lib: list(lib.module._traverse_tree((), {})),
    "both": lambda lib: list(lib.module._traverse_tree((), {}, update_fn=double, cond_fn=double)),
}


def outcome(program, lib):
    try:
        return program(lib)
    except Exception as error:
        return type(error).__name__


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_flax(name):
    assert outcome(PROGRAMS[name], OURS) == outcome(PROGRAMS[name], THEIRS)


OPERATORS = [
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv),
    *(operator.mod, divmod, pow, operator.lshift, operator.rshift, operator.and_, operator.xor),
    *(operator.or_, operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge),
]


@pytest.mark.parametrize("function", OPERATORS, ids=lambda f: f.__name__)
def test_binary_operators(function):
    assert function(cursor(7), 3) == function(7, 3)
    assert function(7, cursor(3)) == function(7, 3)


def test_other_operators():
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert (cursor(x) @ x == x @ x).all()
    assert (cursor([1]) + [2]) == [1, 2]
    assert (-cursor(3), +cursor(3), abs(cursor(-3)), ~cursor(3)) == (-3, 3, 3, -4)


def test_operators_are_those_of_flax():
    known = {n for n in vars(flax.cursor.Cursor) if n.startswith("__")}
    known -= {"__firstlineno__", "__static_attributes__"}
    assert known <= set(vars(toile.cursor.Cursor))


def test_texts_of_errors():
    c = cursor({"a": {"k": 1}, "b": {"k": 2}})
    with pytest.raises(errors.CursorFindError, match=r"\['a'\]\['k'\] and \['b'\]\['k'\].*"):
        c.find(lambda path, value: "k" in path)  # the values are ints, without a length
    with pytest.raises(errors.CursorFindError, match="No object found"):
        c.find(lambda path, value: False)
    with pytest.raises(TypeError, match=r"Cannot index into 1 \(int\) at \['a'\]\['k'\]"):
        c["a"]["k"][0]
    with pytest.raises(KeyError, match="Key z not found in .* at the root"):
        c["z"]
    with pytest.raises(AttributeError, match=r"Attribute z not found in .* at \['a'\]"):
        _ = c["a"].z


def test_copies():
    c = cursor({"a": 1})
    c["a"] = 2
    assert copy.deepcopy(c).build() == {"a": 2}
