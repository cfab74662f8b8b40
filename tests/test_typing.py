"""The types of annotations and their containers, against flax's."""

import threading
import types

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import ids, typing


def test_every_public_name_is_there():
    flax_typing = pytest.importorskip("flax.typing")
    jax_typing = pytest.importorskip("jax.typing")
    names = {
        k
        for m in (flax_typing, jax_typing)
        for k, v in vars(m).items()
        if not k.startswith("_") and not isinstance(v, types.ModuleType)
    }
    assert names - set(vars(typing)) <= {"Optional", "Union", "Generic", "partial"}


def test_sizes():
    size = typing.SizeBytes.from_any({"a": jnp.ones((2, 3)), "b": [np.ones(5), 3, "x"]})
    assert (size.size, size.bytes) == (11, 64)
    assert repr(size) == "11 (64 B)"
    assert repr(size + typing.SizeBytes(1000, 10**7)) == "1,011 (10.0 MB)"
    assert not typing.SizeBytes(0, 0) and size
    named = types.SimpleNamespace(shape=(2,), dtype="bfloat16")
    assert typing.SizeBytes.from_array(named) == typing.SizeBytes(2, 4)


def test_hashable_mapping():
    a = typing.HashableMapping({"x": 1, 2: "y"})
    assert hash(a) == hash(typing.HashableMapping({2: "y", "x": 1})) and a == a.update({})
    assert a.update({"x": 3})["x"] == 3 and a["x"] == 1 and len(a) == 2 and list(a) == ["x", 2]
    with pytest.raises(ValueError, match="Unsupported key type"):
        hash(typing.HashableMapping({1.5: 1}))


def test_deque_is_a_tree():
    tree = typing.PytreeDeque([1, (2, 3)])
    assert toile.tree.map(lambda x: 2 * x, tree) == typing.PytreeDeque([2, (4, 6)])
    paths = [toile.tree_util.keystr(p) for p, _ in toile.tree_util.tree_leaves_with_path(tree)]
    assert paths == ["[0]", "[1][0]", "[1][1]"]


class Mode(typing.BaseConfigContext):
    stack: list = []

    @classmethod
    def get_default(cls):
        return "default"

    @classmethod
    def get_stack(cls):
        return cls.stack


def test_config_context():
    assert Mode.current_value() == "default"
    with Mode("a"):
        assert Mode.current_value() == "a"
        with Mode("b"):
            assert Mode.current_value() == "b"
        assert Mode.current_value() == "a"
    assert Mode.current_value() == "default"

    @Mode("c")
    def inside():
        return Mode.current_value()

    assert inside() == "c" and Mode.current_value() == "default"
    Mode("d")
    assert Mode.current_value() == "d"
    Mode.stack.clear()


def test_keys_and_axes():
    assert typing.is_key_like("a") and typing.is_key_like(1)
    assert typing.has_shape_dtype(jnp.ones(1)) and not typing.has_shape_dtype(1)
    assert typing.In(1) == typing.In(1) and typing.Out(0).axis == 0


def test_ids_are_unique_also_in_copies_and_threads():
    import copy

    one = ids.uuid()
    assert one == ids.FlaxId(one.id) and hash(one) == hash(ids.FlaxId(one.id))
    assert one != copy.copy(one) and one != copy.deepcopy(one)
    found = []
    threads = [threading.Thread(target=lambda: found.append(ids.uuid())) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(found)) == 8
