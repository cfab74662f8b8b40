"""toile.serialization against flax's: the same bytes, each reading the other's, and what is new."""

import collections
import functools
from typing import Any, NamedTuple

import flax.serialization as theirs
import flax.struct
import jax
import ml_dtypes
import msgpack
import numpy as np
import pytest
from flax.core import freeze as their_freeze
from hypothesis import given
from hypothesis import strategies as st

import toile
import toile.numpy as jnp
from toile import serialization, struct
from toile.core import FrozenDict, freeze
from toile.core.meta import Partitioned
from toile.tree_util import Partial

# Hand-encoded: they do not depend on any writer.
VECTORS = [
    (
        {"a": np.array([1, 2], np.float32)},
        "81a161c71501939102a7666c6f61743332c4080000803f00000040",
    ),
    (np.array(7, np.int32), "c70e019390a5696e743332c40407000000"),
    (1 + 2j, "c7130292cb3ff0000000000000cb4000000000000000"),
]
DTYPES = (
    *("bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64".split()),
    *("complex64 complex128 bfloat16 float8_e4m3fn float8_e5m2 float8_e4m3b11fnuz int4".split()),
    *("uint4 float128 complex256 datetime64[s] timedelta64[ms]".split()),
)


def example(dtype, shape):
    """An array of small numbers of any dtype."""
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    return (np.arange(int(np.prod(shape))) % 7).astype(dtype).reshape(shape)


def same(a, b):
    """Whether two trees of dicts and lists are equal, arrays with their dtypes."""
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (np.ndarray, np.generic)):
        if type(a) is not type(b) or a.dtype != b.dtype:
            return False
        padded = a.dtype in (np.longdouble, np.clongdouble)  # its bytes between values are anything
        return np.array_equal(a, b) if padded else a.tobytes() == b.tobytes()
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("value, text", VECTORS)
def test_vectors(value, text):
    assert serialization.to_bytes(value).hex() == text
    assert same(serialization.msgpack_restore(bytes.fromhex(text)), value)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bytes_are_those_of_flax(dtype):
    try:
        np.dtype(getattr(ml_dtypes, dtype, dtype))
    except TypeError:
        pytest.skip("this machine has no such dtype")
    tree = {
        "z": example(dtype, (2, 3)),
        "a": {"empty": example(dtype, (0, 3)), "scalar": example(dtype, ())},
        "np": example(dtype, ())[()],
        "column": example(dtype, (4, 3))[:, 1],
    }
    ours = serialization.to_bytes(tree)
    assert ours == theirs.to_bytes(tree)
    assert serialization.msgpack_serialize(tree) == theirs.msgpack_serialize(tree) != ours
    back = serialization.msgpack_restore(ours)
    assert same(back, {**tree, "column": np.ascontiguousarray(tree["column"])})
    if dtype != "int4" and dtype != "uint4":  # flax finds these two only if jax registered them
        assert same(back, theirs.msgpack_restore(ours))
    assert all(x.flags.writeable and x.flags.owndata for x in (back["z"], back["a"]["scalar"]))
    back["z"][0] = back["z"][1]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e5m2", "complex64", "int32"])
def test_device_arrays_cross_over(dtype):
    tree = {"a": jnp.asarray(example(dtype, (2, 3))), "b": [jnp.asarray(example(dtype, ()))]}
    their_tree = jax.tree.map(lambda x: jax.numpy.asarray(np.asarray(x)), tree)
    data = serialization.to_bytes(tree)
    assert data == theirs.to_bytes(their_tree)
    for x in (theirs.from_bytes(their_tree, data), serialization.from_bytes(tree, data)):
        assert same(x["a"], np.asarray(tree["a"])) and same(x["b"][0], np.asarray(tree["b"][0]))


python_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text(max_size=4)
    | st.binary(max_size=4)
    | st.sampled_from([np.float32(1.5), np.arange(3), np.zeros((2, 0)), np.bool_(True)]),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=3), x, max_size=3),
    max_leaves=8,
)


@given(python_values)
def test_any_tree_has_the_bytes_of_flax(tree):
    data = serialization.msgpack_serialize(tree)
    assert data == theirs.msgpack_serialize(tree)
    assert same(serialization.msgpack_restore(data), theirs.msgpack_restore(data))
    assert serialization.to_bytes(tree) == theirs.to_bytes(tree)
    assert same(serialization.from_bytes(tree, serialization.to_bytes(tree)), tree)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "int8"])
def test_chunks(dtype, monkeypatch):
    for module in (serialization, theirs):
        monkeypatch.setattr(module, "MAX_CHUNK_SIZE", 91)
    tree = {"a": {"w": example(dtype, (21, 37))}, "small": example(dtype, (3,))}
    for x in (tree, tree["a"]["w"]):
        data = serialization.to_bytes(x)
        assert data == theirs.to_bytes(x) and b"__msgpack_chunked_array__" in data
        assert same(serialization.msgpack_restore(data), x)
        assert same(theirs.msgpack_restore(data), x)
        assert same(serialization.from_bytes(x, data), x)
    whole = msgpack.packb(tree, default=serialization._msgpack_ext_pack, strict_types=True)
    assert same(serialization.msgpack_restore(whole), tree)


def test_big_endian_arrays_and_text():
    for code in (">f4", ">i8", ">c16", ">u2", ">M8[s]"):
        x = np.arange(3).astype(code)
        back = serialization.msgpack_restore(serialization.to_bytes({"x": x, "s": x[1]}))
        assert (back["x"] == x).all() and back["x"].dtype.isnative and back["s"] == x[1]
        assert theirs.msgpack_restore(serialization.to_bytes(x)).tolist() == x.tolist()
    for x in (np.array(["ab", "cdé"]), np.array([b"ab", b"c"]), np.array(["a"], ">U3")):
        assert serialization.msgpack_restore(serialization.to_bytes(x)).tolist() == x.tolist()


def test_what_cannot_be_written():
    for x in (np.array([None]), np.zeros(2, [("a", "i4"), ("b", "f4")])):
        with pytest.raises(ValueError, match="Object and structured dtypes not supported"):
            serialization.to_bytes({"x": x})
    for x in ((1, 2), {"a": {1, 2}}, object(), collections.OrderedDict(a=1)):
        with pytest.raises(TypeError, match="can not serialize"):
            serialization.msgpack_serialize(x)
    with pytest.raises(TypeError, match=r"at path a/rng .*key_data"):
        serialization.msgpack_serialize({"a": {"rng": toile.random.key(0)}})
    with pytest.raises(ValueError, match="unique string representation"):
        serialization.to_state_dict({1: 0, "1": 0})


def test_random_keys_are_kept_as_their_words():
    keys = {"one": toile.random.key(3), "many": toile.random.split(toile.random.key(1), 3)}
    data = serialization.to_bytes(keys)
    assert serialization.msgpack_restore(data)["one"].tolist() == [0, 3]
    empty = {"one": toile.random.key(0), "many": toile.random.split(toile.random.key(0), 3)}
    back = serialization.from_bytes(empty, data)
    for name, key in keys.items():
        assert back[name].dtype == key.dtype
        assert np.array_equal(*(toile.random.key_data(k) for k in (back[name], key)))


def test_what_cannot_be_read():
    data = serialization.to_bytes({"a": np.arange(5), "b": "text"})
    starts = [data[:n] for n in range(len(data))]
    for wrong in (b"hello there", data + b"x", bytes(40), *starts):
        with pytest.raises(ValueError, match="msgpack_restore: needed one whole msgpack tree"):
            serialization.msgpack_restore(wrong)
    with pytest.raises(TypeError):
        serialization.msgpack_restore("text")


def test_writing_changes_nothing(monkeypatch):
    monkeypatch.setattr(serialization, "MAX_CHUNK_SIZE", 8)
    inner = {"w": jnp.arange(9)}
    tree = {"b": inner, "a": 1}
    for in_place in (False, True):
        serialization.msgpack_serialize(tree, in_place)
    assert list(tree) == ["b", "a"] and tree["b"] is inner and isinstance(inner["w"], toile.Array)


class Pair(NamedTuple):
    left: Any
    right: Any


@struct.dataclass
class Point:
    x: Any
    y: Any
    unit: str = struct.field(pytree_node=False, default="m")


@flax.struct.dataclass
class TheirPoint:
    x: Any
    y: Any
    unit: str = flax.struct.field(pytree_node=False, default="m")


class Node(struct.PyTreeNode):
    x: Any


STRUCTURES = [
    (({"a": 1, 2: [3, (4,)]},) * 2),
    ((freeze({"p": {"k": 1}}), their_freeze({"p": {"k": 1}}))),
    ((Pair(1, Pair(2, None)),) * 2),
    ((Point(1, [2, 3]), TheirPoint(1, [2, 3]))),
    (([], ()), ([], ())),
    ((None, "text", b"bytes", 1.5, True),) * 2,
]


@pytest.mark.parametrize("ours, their", STRUCTURES)
def test_structures(ours, their):
    state = serialization.to_state_dict(ours)
    assert state == theirs.to_state_dict(their)
    assert serialization.to_bytes(ours) == theirs.to_bytes(their)
    back = serialization.from_state_dict(ours, state)
    assert back == ours and type(back) is type(ours)
    assert serialization.is_serializable(ours) == theirs.is_serializable(their)


def test_other_types():
    assert serialization.is_serializable(Node) and serialization.is_serializable(FrozenDict)
    assert not serialization.is_serializable(3) and not serialization.is_serializable(np.ndarray)
    assert serialization.from_bytes(Node(0), serialization.to_bytes(Node(5))) == Node(5)
    boxed = Partitioned(np.ones(3), ("x",))
    back = serialization.from_bytes(boxed, serialization.to_bytes(boxed))
    assert back.names == ("x",) and (back.value == 1).all()
    assert set(serialization.to_state_dict(boxed)) == {"value"}
    add = Partial(max, 1, key=abs)
    state = serialization.to_state_dict(add)
    assert state == {"args": {"0": 1}, "keywords": {"key": abs}}
    assert serialization.from_state_dict(add, {**state, "args": {"0": 5}}).args == (5,)
    old = {"name": "Pair", "fields": {"0": "left", "1": "right"}, "values": {"0": 1, "1": 2}}
    assert serialization.from_state_dict(Pair(0, 0), old) == Pair(1, 2)
    # Beside what a dict asks for there may be more; a Python value stands for anything.
    assert serialization.from_state_dict({"a": None, "b": 0}, {"a": 1, "b": {"c": 2}, "d": 3}) == {
        "a": 1,
        "b": {"c": 2},
    }


def test_registering():
    class Celsius:
        def __init__(self, degrees):
            self.degrees = degrees

    def restore(x, state):
        assert serialization.current_path() == "./t/0"
        return Celsius(serialization.from_state_dict(x.degrees, state["degrees"], name="degrees"))

    register = functools.partial(serialization.register_serialization_state, Celsius)
    register(lambda x: {"degrees": x.degrees}, restore)
    with pytest.raises(ValueError, match='handler for "Celsius" is already registered'):
        register(lambda x: {}, restore)
    with pytest.raises(ValueError, match='handler for "Point" is already registered'):
        serialization.register_serialization_state(Point, lambda x: {}, restore)
    data = serialization.to_bytes({"t": [Celsius(np.ones(2))]})
    back = serialization.from_bytes({"t": [Celsius(np.zeros(2))]}, data)
    assert (back["t"][0].degrees == 1).all() and serialization.current_path() == ""
    with pytest.raises(ValueError, match=r"\./t/0/degrees: needed float64\[3\], got float64\[2\]"):
        serialization.from_bytes({"t": [Celsius(np.zeros(3))]}, data)
    register(lambda x: {3: x.degrees}, restore, override=True)
    with pytest.raises(AssertionError, match="only have string keys"):
        serialization.to_state_dict(Celsius(0))


WRONG = [
    ([1, 2], {"0": 1}, "The size of the list and the state dict do not match, got 2 and 1 at path"),
    ([1, 2], {"0": 1, "2": 1}, "The indices [1] of the list are not in the state dict"),
    (
        {"a": {"b": 1}},
        {"a": {"c": 1}},
        "The target dict keys and state dict keys do not match, target dict contains keys {'b'}"
        " which are not present in state dict at path ./a",
    ),
    (freeze({"b": 1}), {"c": 1}, "contains keys {'b'} which are not present in state dict"),
    (
        {"a": Pair(1, 2)},
        {"a": {"left": 1}},
        "The field names of the state dict and the named tuple do not match, got {'left'} and",
    ),
    (
        [Point(1, 2)],
        {"0": {"x": 1}},
        "Missing field y in state dict while restoring an instance of Point, at path ./0",
    ),
    (
        [Point(1, 2)],
        {"0": {"x": 1, "y": 2, "z": 3}},
        'Unknown field(s) "z" in state dict while restoring an instance of Point at path ./0',
    ),
    ({"a": [1]}, {"a": 3}, "needed a dict for a list, got a Python int at path ./a"),
    ({"a": Point(1, 2)}, {"a": np.ones(2)}, "needed a dict for a Point, got float64[2] at path"),
]


@pytest.mark.parametrize("target, state, message", WRONG)
def test_wrong_structures(target, state, message):
    with pytest.raises(ValueError) as caught:
        serialization.from_state_dict(target, state)
    assert message in str(caught.value)
    assert serialization.current_path() == ""


def test_all_mismatches_are_told():
    target = {"a": jnp.zeros((2, 3)), "b": [np.zeros(4, np.int32), Point(jnp.zeros(()), 0)], "c": 0}
    saved = {"a": np.ones((3, 2), np.float32), "b": [np.zeros(4), Point(1, 2)], "c": np.ones(3)}
    data = serialization.to_bytes(saved)
    with pytest.raises(ValueError) as caught:
        serialization.from_bytes(target, data)
    assert "2 arrays do not fit" in str(caught.value)
    assert "./a: needed float32[2,3], got float32[3,2]" in str(caught.value)
    assert "./b/0: needed int32[4], got float64[4]" in str(caught.value)
    with pytest.raises(ValueError) as caught:
        serialization.from_bytes(target, data, check_dtypes=False)
    assert "1 array does not fit" in str(caught.value) and "./b/0" not in str(caught.value)
    back = serialization.from_bytes(target, data, check_dtypes=False, check_shapes=False)
    assert back["a"].shape == (3, 2) and back["b"][0].dtype == np.float64 and back["b"][1].x == 1
    # A state dict made by hand may have other dtypes, but no other shapes.
    state = serialization.to_state_dict(saved)
    with pytest.raises(ValueError, match="1 array does not fit"):
        serialization.from_state_dict(target, state)
    assert serialization.from_state_dict(jnp.zeros(2), np.zeros(2)).dtype == np.float64
    with pytest.raises(ValueError, match=r"\.: needed float32\[2\], got float64\[2\]"):
        serialization.from_state_dict(jnp.zeros(2), np.zeros(2), check_dtypes=True)


FITS = [
    (jnp.zeros((), jnp.int32), 3, True),
    (jnp.zeros((), jnp.int32), 3.5, False),
    (jnp.zeros((), jnp.bool_), True, True),
    (jnp.zeros((), jnp.bool_), 1, False),
    (jnp.zeros((), jnp.bfloat16), 1, True),
    (jnp.zeros((), jnp.float32), 1j, False),
    (jnp.zeros(2), 1.0, False),
    (jnp.zeros(2), None, False),
    (jnp.zeros(2), {"x": 1}, False),
    (np.float32(1), np.float32(2), True),
    (toile.ShapeDtypeStruct((2,), jnp.float32), np.zeros(2, np.float32), True),
    (toile.ShapeDtypeStruct((2,), jnp.float32), np.zeros(3, np.float32), False),
    (0, np.zeros(3), True),
    (None, np.zeros(3), True),
]


@pytest.mark.parametrize("target, state, fits", FITS)
def test_which_leaves_fit(target, state, fits):
    restore = functools.partial(serialization.from_state_dict, [target], check_dtypes=True)
    if fits:
        assert restore({"0": state})[0] is state
    else:
        with pytest.raises(ValueError, match="needed"):
            restore({"0": state})
    _, found = serialization.restore_partially([target], {"0": state})
    assert bool(found.misshaped) is not fits


def test_what_else_differs_is_noted():
    target = {"a": {"b": 1, "c": 2}, "d": np.zeros(2)}
    with pytest.raises(ValueError) as caught:
        serialization.from_state_dict(target, {"a": {"b": 1}, "d": np.zeros(3), "e": 0})
    assert str(caught.value).startswith("The target dict keys")
    (note,) = caught.value.__notes__
    for part in ("missing: a/c", "unexpected: e", "misshaped: d: needed float64[2], got "):
        assert part in note
    with pytest.raises(ValueError) as caught:
        serialization.from_state_dict({"a": 1}, {})
    assert not hasattr(caught.value, "__notes__")


def test_partial_restoration():
    target = {
        "kept": np.zeros(2),
        "new": {"x": 0, "y": {}},
        "grown": np.zeros(3),
        "pairs": [Pair(0, np.zeros(1)), Point(0, 0)],
        "list": [0, 0, 0],
    }
    saved = {
        "kept": np.ones(2),
        "grown": np.ones(2),
        "pairs": [Pair(1, np.ones(1)), Point(1, 1)],
        "list": [1, 1],
        "old": {"u": 1, "v": {}},
    }
    state = serialization.to_state_dict(saved)
    restored, found = serialization.restore_partially(target, state)
    assert found.missing == ("new/x", "new/y", "list/2")
    assert found.unexpected == ("old/u", "old/v")
    assert found.misshaped == ("grown: needed float64[3], got float64[2]",)
    assert found and found.restored == 7 and str(found).startswith("7 restored, 3 missing, 2 ")
    assert (restored["kept"] == 1).all() and (restored["grown"] == 0).all()
    assert restored["pairs"] == [Pair(1, 1), Point(1, 1)] and restored["list"] == [1, 1, 0]
    assert not serialization.restore_partially(saved, state)[1]
