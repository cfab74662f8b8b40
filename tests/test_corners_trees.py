"""Corners of trees, dtypes and arrays: each row gives in toile what it gives in jax.

A row is a function of the package that returns something to compare, or a pair of such a function,
which raises, and a pattern that both messages have.
"""

import collections
import copy
import dataclasses
import operator
import pickle
import re

import jax
import jax._src.tree_util as jax_trees
import jax.dlpack
import ml_dtypes
import numpy as np
import pytest

import toile
import toile.dlpack
from tests.against_jax import compare

pytestmark = pytest.mark.cpu

Pair = collections.namedtuple("Pair", ("left", "right"))
Other = collections.namedtuple("Other", ("left", "right"))


class Box:
    def __init__(self, inside, label):
        self.inside, self.label = inside, label

    def __repr__(self):
        return f"Box({self.inside}, {self.label})"


class Wrong(Box):
    pass


class Keyed(Box):
    pass


@dataclasses.dataclass
class Fields:
    x: object
    y: object


for lib in (jax, toile):
    lib.tree_util.register_pytree_node(
        Box, lambda b: ((b.inside,), b.label), lambda label, xs: Box(*xs, label)
    )
    lib.tree_util.register_pytree_node(Wrong, lambda b: b.label, lambda label, xs: None)
    lib.tree_util.register_pytree_with_keys(
        Keyed, lambda b: ((("inside", b.inside),), b.label), lambda label, xs: Keyed(*xs, label)
    )
    lib.tree_util.register_dataclass(Fields)


def _up_to(tree, given):
    return lambda lib: lib.tree_util.tree_structure(tree).flatten_up_to(given)


TREE_ERRORS = {
    "list": (_up_to([[1]], [7]), "Expected list, got 7[.]"),
    "tuple": (_up_to({"a": (1,)}, {"a": [7]}), r"Expected tuple, got \[7\][.]"),
    "dict": (_up_to(({"a": 1},), (7,)), "Expected dict, got 7[.]"),
    "none": (_up_to(None, [2]), r"Expected None, got \[2\][.]"),
    "inner_none": (_up_to([None], [3]), "Expected None, got 3[.]"),
    "list_arity": (_up_to([[1, 2]], [[7]]), r"List arity mismatch: 1 != 2; list: \[7\][.]"),
    "tuple_arity": (_up_to([(1,)], [(7, 8)]), r"Tuple arity mismatch: 2 != 1; tuple: \(7, 8\)"),
    "keys": (_up_to([{"a": 1}], [{"b": 7}]), r"Dict key mismatch; expected keys: \['a'\]"),
    "named": (_up_to([Pair(1, 2)], [(1, 2)]), r"Expected named tuple, got \(1, 2\)[.]"),
    "named_type": (_up_to([Pair(1, 2)], [Other(1, 2)]), "Named tuple type mismatch: expected type"),
    "custom_type": (_up_to([Box(1, 2)], [(1,)]), "Custom node type mismatch: expected type: .*Box"),
    "custom_data": (_up_to([Box(1, 2)], [Box(1, 3)]), "Mismatch custom node data: 2 != 3; value"),
    "flattener": (
        lambda lib: lib.tree_util.tree_flatten(Wrong(1, (2, 3, 4))),
        r"The to_iterable function for a custom PyTree node should return a \(children, aux_data\) "
        r"tuple, got \(2, 3, 4\)",
    ),
    "flattener_children": (
        lambda lib: lib.tree_util.tree_flatten(Wrong(1, (7, 7))),
        r"node should return a \(children, aux_data\) tuple where 'children' is iterable, got "
        r"\(7, 7\)",
    ),
    "dataclass_missing": (
        lambda lib: lib.tree_util.register_dataclass(Fields, ["x"], []),
        "data_fields and meta_fields must include all dataclass fields.*Missing fields: {'y'}",
    ),
    "dataclass_unexpected": (
        lambda lib: lib.tree_util.register_dataclass(Fields, ["x", "y"], ["z"]),
        "data_fields and meta_fields must include all dataclass fields.*Unexpected fields: {'z'}",
    ),
    "proto_of_custom": (
        lambda lib: lib.tree_util.tree_structure(Box(1, 2)).serialize_using_proto(),
        "User-defined nodes are not supported when serializing pytrees as protocol buffers",
    ),
    "proto_of_integer_keys": (
        lambda lib: lib.tree_util.tree_structure({1: 2}).serialize_using_proto(),
        "Only string keys are supported in proto pytree serialization",
    ),
}


def _inner(lib):
    """The module with the functions of trees that jax does not export."""
    return jax_trees if lib is jax else toile.tree_util


def _through_proto(lib):
    treedef = lib.tree_util.tree_structure([1, (), None, {"b": (2, 3), "a": {"b": 4, "é": []}}])
    data = treedef.serialize_using_proto()
    registry = lib.tree_util.default_registry
    return data.hex(), lib.tree_util.PyTreeDef.deserialize_using_proto(registry, data) == treedef


def _key_hashes(lib):
    tu = lib.tree_util
    return hash(tu.SequenceKey(1)) != hash(tu.FlattenedIndexKey(1)), tu.DictKey(1) == tu.DictKey(1)


def _prefix_message(lib):
    (error,) = _inner(lib).prefix_errors({"a": 1}, {"a": 2, "b": 3})
    text = str(error("in_axes")).replace("['b']", "b")  # as newer versions write keys
    return "so the symmetric difference on key sets is\n    b" in text


def _equality_message(lib):
    ((*_, text),) = _inner(lib).equality_errors({"a": 1}, {"a": 2, "b": 3})
    return text.startswith(
        "the numbers of children do not match, with the symmetric difference of key sets: {'b'}"
    )


TREES = {
    "proto": _through_proto,
    "key_hashes": _key_hashes,
    "prefix_message": _prefix_message,
    "equality_message": _equality_message,
    "one_level_keyed": lambda lib: str(_inner(lib).flatten_one_level(Keyed(1, 2))),
    "one_level_dataclass": lambda lib: str(_inner(lib).flatten_one_level(Fields(1, 2))),
    "one_level_ordered": lambda lib: str(
        _inner(lib).flatten_one_level(collections.OrderedDict(b=1, a=2))
    ),
}


def _narrow(dtype, other):
    def row(lib):
        return lib.numpy.array(1, getattr(ml_dtypes, dtype)) + lib.numpy.array(1, other)

    return row


DTYPE_ERRORS = {
    "float8": (
        _narrow("float8_e5m2", "float32"), "8-bit floats do not support implicit promotion"
    ),
    "float4": (
        _narrow("float4_e2m1fn", "float32"), "4-bit floats do not support implicit promotion"
    ),
    "int4": (_narrow("int4", "int32"), "[24]-bit integers do not support implicit promotion"),
    "uint2": (_narrow("uint2", "int32"), "[24]-bit integers do not support implicit promotion"),
}


def _deleted(use, make=lambda lib: lib.numpy.arange(3)):
    def row(lib):
        x = make(lib)
        x.delete()
        return use(lib, x)

    return row


def _donated(use):
    def row(lib):
        x = lib.numpy.ones(4)
        lib.jit(lambda y: y + 1, donate_argnums=0)(x)
        return use(lib, x)

    return row


def _seen(lib, x):
    return x.shape, str(x.dtype), x.ndim, x.size, x.nbytes, len(x), x.weak_type, x.is_deleted()


def _assign(lib):
    x = lib.numpy.arange(3)
    x[0] = 1


GONE = r"Array has been deleted with shape=int32\[3\][.]"
def _outlives(copied):
    """A copy whose original is deleted."""

    def row(lib):
        x = lib.numpy.arange(3)
        y = copied([x])[0] if copied is copy.deepcopy else copied(x)
        x.delete()
        return [x.is_deleted(), y.is_deleted(), y.tolist()]

    return row


def _flag_of_the_process(lib):
    flag = lib.numpy_rank_promotion
    with flag("raise"):
        return [flag.value, flag.get_global()]


def _context_of_the_process(lib):
    context, traced = lib.make_user_context(), []
    run = lib.jit(lambda x: traced.append(context.value) or x)
    seen = [context.get_global()]
    run(1.0)
    context.set_global(2)
    try:
        run(1.0)
        with context(3):
            run(1.0)
            seen.append((context.value, context.get_global()))
        seen.append(context.value)
    finally:
        context.set_global(None)
    return [*seen, context.value, traced]


def _token_closed_over(lib):
    token = lib.lax.create_token()
    number, out = lib.jit(lambda x: (x + 1, lib.lax.after_all(token)))(1.0)
    return [float(number), type(out).__name__]


USES = {
    "add": lambda lib, x: x + 1,
    "rsub": lambda lib, x: 1 - x,
    "same": lambda lib, x: x * x,
    "sin": lambda lib, x: lib.numpy.sin(x),
    "sum": lambda lib, x: x.sum(),
    "index": lambda lib, x: x[0],
    "where": lambda lib, x: lib.numpy.where(True, x, x),
    "concatenate": lambda lib, x: lib.numpy.concatenate([x, x]),
    "iterate": lambda lib, x: list(x),
    "jit": lambda lib, x: lib.jit(lambda y: y + 1)(x),
    "closed_over": lambda lib, x: lib.jit(lambda: x + 1)(),
    "str": lambda lib, x: str(x),
    "numpy": lambda lib, x: np.asarray(x),
    "pickle": lambda lib, x: pickle.dumps(x),
    "to_host": lambda lib, x: x.copy_to_host_async(),
}
ARRAY_ERRORS = {
    **{f"deleted_{name}": (_deleted(use), GONE) for name, use in USES.items()},
    "deleted_scalar_closed_over": (
        _deleted(lambda lib, x: lib.jit(lambda: x + 1)(), lambda lib: lib.numpy.float32(1)),
        r"Array has been deleted with shape=float32\[\][.]",
    ),
    "donated_block": (
        _donated(lambda lib, x: x.block_until_ready()), "deleted or donated buffer"
    ),
    "traced_tobytes": (
        lambda lib: lib.jit(lambda x: x.tobytes())(np.float32([1])),
        r"The tobytes\(\) method was called on traced array with shape float32\[1\]",
    ),
    "traced_tolist": (
        lambda lib: lib.jit(lambda x: x.tolist())(np.float32([1])),
        r"The tolist\(\) method was called on traced array with shape float32\[1\]",
    ),
    "after_all_of_a_number": (
        lambda lib: lib.lax.after_all(1.0), "Arguments to after_all must be tokens"
    ),
    "assignment": (_assign, "JAX arrays are immutable and do not support in-place item assignment"),
    "empty_as_bool": (
        lambda lib: bool(lib.numpy.zeros(0)),
        "The truth value of an empty array is ambiguous. Use `array.size > 0`",
    ),
    "traced_float": (
        lambda lib: lib.jit(float)(1.0),
        "Abstract tracer value encountered where concrete value is expected: traced array with "
        r"shape float32\[\](.|\n)*The problem arose with the `float` function",
    ),
    "option": (
        lambda lib: lib.config.update("jax_numpy_rank_promotion", "foo"),
        r"new enum value must be in \['allow', 'warn', 'raise'\], got foo of type <class 'str'>",
    ),
    "option_or_none": (
        lambda lib: lib.config.update("jax_default_matmul_precision", "foo"),
        "new enum value must be None or in .*, got foo of type <class 'str'>",
    ),
    "index_of_vector": (
        lambda lib: operator.index(lib.numpy.arange(2)),
        "Only integer scalar arrays can be converted to a scalar index",
    ),
    "flat": (
        lambda lib: lib.numpy.arange(2).flat,
        "JAX Arrays do not implement the arr.flat property: consider arr.flatten",
    ),
    "key_to_numpy": (
        lambda lib: np.asarray(lib.random.key(0)),
        "JAX array with PRNGKey dtype cannot be converted to a NumPy array",
    ),
    "dtype_object": (
        lambda lib: lib.numpy.zeros(3, dtype=object),
        "JAX only supports number.*dtypes, got dtype <class 'object'> in zeros",
    ),
    "index_of_bool": (
        lambda lib: operator.index(lib.numpy.bool_(True)),
        "Only integer scalar arrays can be converted to a scalar index",
    ),
    "gpu_interface": (
        lambda lib: lib.numpy.ones(3).__cuda_array_interface__, "__cuda_array_interface__ is only"
    ),
    "standard_version": (
        lambda lib: lib.numpy.ones(3).__array_namespace__(api_version="1999.1"),
        "api_version='1999.1' is not available; available versions are",
    ),
    "struct_sharding": (
        lambda lib: lib.ShapeDtypeStruct((2,), "float32", sharding="x"),
        "sharding should be an instance of",
    ),
    "struct_assignment": (
        lambda lib: setattr(lib.ShapeDtypeStruct((2,), "float32"), "shape", (3,)),
        r"Cannot reassign attributes \(shape\) of immutable ShapeDtypeStruct objects",
    ),
}


def _struct_copies(lib):
    struct = lib.ShapeDtypeStruct((2, 3), "float32", weak_type=True)
    with pytest.raises(RuntimeError):
        struct.dtype = np.dtype("int32")
    return [made == struct for made in (pickle.loads(pickle.dumps(struct)), copy.copy(struct))]


def _standard_dtypes(lib):
    info = lib.numpy.__array_namespace_info__()
    out = [info.capabilities(), info.default_device(), info.devices()[0]]
    for x64 in (False, True):
        with lib.enable_x64(x64):
            out += [sorted(map(str, info.default_dtypes().items()))]
            for kind in (None, "bool", "integral", ("real floating", "complex floating")):
                out.append(sorted(map(str, info.dtypes(kind=kind).items())))
    return str(out)


ARRAYS = {
    "deleted_attributes": _deleted(_seen),
    "donated_attributes": _donated(_seen),
    "deleted_zeros_like": _deleted(lambda lib, x: lib.numpy.zeros_like(x)),
    "struct_copies": _struct_copies,
    "standard_info": _standard_dtypes,
    "dlpack_dtypes": lambda lib: [
        lib.dlpack.is_supported_dtype(dtype)
        for dtype in ("float32", "bool", "bfloat16", "float8_e5m2", "int4", "complex64", "uint8")
    ],
    "config_read": lambda lib: lib.config._read("jax_debug_nans"),
    "copy": _outlives(copy.copy),
    "deepcopy": _outlives(copy.deepcopy),
    "copied_key": lambda lib: lib.random.key_data(copy.deepcopy(lib.random.key(3))),
    "shaped_array_of_a_list": lambda lib: [
        lib.core.ShapedArray([], np.float32) == lib.core.ShapedArray((), "float32"),
        isinstance(lib.typeof(np.float32(1)), lib.core.ShapedArray),
        isinstance(lib.core.ShapedArray([2], np.int32), lib.core.AbstractValue),
        issubclass(lib.core.ShapedArray, lib.core.AbstractValue),
        isinstance(3, lib.core.ShapedArray),
        hash(lib.core.ShapedArray([2], np.int32)) == hash(lib.core.ShapedArray((2,), np.int32)),
    ],
    "flag_of_the_process": _flag_of_the_process,
    "context_of_the_process": _context_of_the_process,
    "struct_update_unknown": lambda lib: repr(
        lib.ShapeDtypeStruct((2,), np.float32).update(foo=1, shape=(3,))
    ),
    "token_made_by_jit": lambda lib: type(lib.jit(lib.lax.create_token)(1.0)).__name__,
    "token_passed": lambda lib: type(
        lib.jit(lambda t: lib.lax.after_all(t, t))(lib.lax.create_token())
    ).__name__,
    "token_closed_over": _token_closed_over,
}

ERRORS = {**TREE_ERRORS, **DTYPE_ERRORS, **ARRAY_ERRORS}
VALUES = {**TREES, **ARRAYS}


def _raised(row, lib):
    with pytest.raises(Exception) as caught:  # compared below
        row(lib)
    return caught.value


@pytest.mark.parametrize("name", ERRORS)
def test_same_error_as_jax(name):
    row, pattern = ERRORS[name]
    got, want = _raised(row, toile), _raised(row, jax)
    same = type(got).__name__ == type(want).__name__
    assert same or isinstance(want, type(got)), f"got {got!r}, jax gives {want!r}"
    assert re.search(pattern, str(want)), want
    said = re.split(r"\n  (?:in|at) ", str(got))[0]  # the user's line is this file's
    assert re.search(pattern, said), got


@pytest.mark.parametrize("name", VALUES)
def test_same_value_as_jax(name):
    got, want = VALUES[name](toile), VALUES[name](jax)
    if isinstance(want, jax.Array):
        compare(got, want, 0.0, 0.0, name)
    else:
        assert got == want
