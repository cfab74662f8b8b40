"""Bytes that are not an exported function give one clear error, quickly and in little memory."""

import functools
import resource
import struct
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toile
import toile.numpy as jnp
from tests.export.test_roundtrip import REFUSED
from tests.test_operations import ROWS
from toile import export
from toile.engine.errors import UnreadableFileError
from toile.export import _records as records
from toile.export._records import AvalData, ConstantData, EquationData, Fields, Number, Size


def model(w, x):
    h = toile.nn.relu(x @ w) / x.shape[0]
    h, _ = toile.lax.scan(lambda c, r: (c + r * 2.0, c), h[0], h)
    h = toile.lax.cond(h[0] > 0, jnp.sin, jnp.cos, h)
    return {"out": toile.lax.fori_loop(0, 3, lambda i, c: c * h, h), "key": jnp.arange(3) + 1}


@pytest.fixture(scope="module")
def blob():
    (b,) = export.symbolic_shape("b", constraints=["b <= 64"])
    exported = export.export(toile.jit(model))(
        np.ones((3, 4), "float32"), toile.ShapeDtypeStruct((b, 3), "float32"))
    return bytes(exported.serialize())


def refused(data):
    """Assert that some bytes are refused; returns the message."""
    with pytest.raises(UnreadableFileError, match="needed an exported function of toile") as caught:
        export.deserialize(data)
    return str(caught.value)


def test_every_truncation(blob):
    for n in range(len(blob)):
        refused(blob[:n])
    refused(blob + b"\0")


def test_every_flipped_byte(blob):
    for i in range(len(blob)):
        refused(blob[:i] + bytes([blob[i] ^ (1 + i % 255)]) + blob[i + 1:])


def sealed(content, version=records.FORMAT):
    """Content with a header and a checksum that fit it."""
    head = records._HEADER.pack(
        records._MAGIC, version, len(content), records._checksum(version, content))
    return head + content


def test_newer_format(blob):
    content = blob[records._HEADER.size:]
    assert export.deserialize(sealed(content)).fun_name == "model"
    assert "newer version of toile" in refused(sealed(content, records.FORMAT + 1))
    refused(sealed(content, 0))


def loads_or_is_refused(data):
    """Load some bytes, which may be a valid function after all."""
    started = time.perf_counter()
    try:
        export.deserialize(data)
    except UnreadableFileError:
        pass
    assert time.perf_counter() - started < 20


@pytest.mark.filterwarnings("ignore")
def test_flipped_bytes_with_a_fitting_checksum(blob):
    """An attacker can compute the checksum: every byte of the content, one at a time."""
    content = blob[records._HEADER.size:]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for i in range(0, len(content), 3):
        for bit in (1 << i % 8, 0x80):
            loads_or_is_refused(sealed(content[:i] + bytes([content[i] ^ bit]) + content[i + 1:]))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kilobytes


@settings(max_examples=150, deadline=None)
@given(st.data())
@pytest.mark.filterwarnings("ignore")
def test_numbers_replaced(blob, data):
    """64-bit numbers of the content replaced by others, in several places."""
    content = bytearray(blob[records._HEADER.size:])
    special = [0, 1, 2, -1, 7, 63, 255, 1 << 31, 1 << 40, (1 << 62) - 1, (1 << 63) - 1, -(1 << 63)]
    for _ in range(data.draw(st.integers(1, 3))):
        at = 8 * data.draw(st.integers(0, len(content) // 8 - 1))
        content[at:at + 8] = struct.pack("<q", data.draw(st.sampled_from(special)))
    loads_or_is_refused(sealed(bytes(content)))


F32 = AvalData((3,), np.dtype("float32"), False)


def function(**changes):
    """The records of sin on a vector, with some replaced."""
    data = export.export(toile.jit(jnp.sin))(jnp.ones(3))._data
    program = data.program._replace(**{
        k: v for k, v in changes.items() if k in records.ProgramData._fields})
    rest = {k: v for k, v in changes.items() if k not in records.ProgramData._fields}
    return data._replace(program=program, **rest)


def equation(kind, ins=(0,), **fields):
    return EquationData(Fields(kind, tuple(fields), tuple(fields.values())), ins, ())


def call(program):
    return equation("Call", program=program, label="f")


def nested(levels):
    """Functions that call a function twice, which calls another one twice ..."""
    program = function().program
    for _ in range(levels):
        program = program._replace(equations=(call(program), call(program)))
    return program


def changes(**values):
    return values


BIG = 1 << 40
NONSENSE = {
    "unknown operation": changes(equations=(equation("Explode"),)),
    "class that is no operation": changes(equations=(equation("PyTreeDef"),)),
    "abstract operation": changes(equations=(equation("Operation"),)),
    "callback": changes(equations=(equation("PureCallback", function="os.system"),)),
    "unknown field": changes(equations=(equation("Sin", command="x"),)),
    "missing field": changes(equations=(equation("Reshape"),)),
    "field of another type": changes(equations=(equation("Reshape", shape="3"),)),
    "wrong field": changes(equations=(equation("Transpose", perm=(5,)),)),
    "operand that does not exist": changes(equations=(equation("Sin", (7,)),)),
    "operand defined later": changes(equations=(equation("Sin", (1,)),)),
    "literal that does not exist": changes(equations=(equation("Sin", (-1,)),)),
    "result that does not exist": changes(outputs=(9,)),
    "too few operands": changes(equations=(equation("Add"),)),
    "too many operands": changes(equations=(equation("Sin", (0, 0)),)),
    "negative size": changes(inputs=(AvalData((-3,), np.dtype("float32"), False),)),
    "huge size": changes(inputs=(AvalData((BIG, BIG), np.dtype("float32"), False),)),
    "unknown variable": changes(inputs=(AvalData((Size("zz"),), np.dtype("float32"), False),)),
    "size that is no expression": changes(inputs=(AvalData((Size("__import__"),),
                                                        np.dtype("float32"), False),)),
    "power of a power": changes(variables=("b",), inputs=(
        AvalData((Size("b^64^64"),), np.dtype("float32"), False),)),
    "deep expression": changes(inputs=(AvalData((Size("max(1, " * 500),), np.dtype("float32"),
                                             False),)),
    "results of another type": changes(out_avals=(F32._replace(shape=(4,)),)),
    "more results": changes(out_avals=(F32, F32)),
    "constant without an input": changes(constants=(ConstantData(F32, bytes(12)),) * 3),
    "constant of another length": changes(
        inputs=(F32, F32), constants=(ConstantData(F32, bytes(8)),)),
    "huge constant": changes(inputs=(F32, F32), constants=(
        ConstantData(F32._replace(shape=(BIG,)), bytes(8)),)),
    "literal that is an array": changes(literals=(ConstantData(F32, bytes(12)),)),
    "number that cannot be computed": changes(literals=(
        ConstantData(F32._replace(shape=()), Number("1 / 0")),)),
    "number that is a function": changes(literals=(
        ConstantData(F32._replace(shape=()), Number("exec(1)")),)),
    "many variables": changes(variables=tuple(f"v{i}" for i in range(2000))),
    "impossible constraint": changes(constraints=("1 >= 2",)),
    "constraint that is no constraint": changes(constraints=("import os",)),
    "no devices": changes(devices=0),
    "tree that does not fit": changes(out_tree=records.TreeData("tuple", None, ())),
    "tree of an unknown type": changes(out_tree=records.TreeData("registered", ("os", b""), ())),
    "dictionary without keys": changes(out_tree=records.TreeData(
        "dict", (), (records.TreeData("leaf", None, ()),))),
    "function in place of a type": changes(inputs=(function().program,)),
    "wrong operands of a call": changes(
        equations=(call(function(inputs=(F32._replace(shape=(4,)),)).program),)),
    "scan of another length": changes(equations=(equation(
        "Scan", program=function().program, consts=0, carry=0, length=5),)),
    "scan with negative counts": changes(equations=(equation(
        "Scan", program=function().program, consts=-1, carry=2, length=3),)),
    "while whose condition is a vector": changes(equations=(equation(
        "While", cond=function().program, body=function().program, cond_consts=0,
        body_consts=0),)),
    "cond without branches": changes(equations=(equation("Cond", branches=()),)),
    "rule that does not fit": changes(equations=(equation(
        "CustomJVPCall", program=function().program, label="f", rule=function().program,
        consts=(), moving=(True,), kept=(True,)),)),
    "iota of a huge size": changes(equations=(equation(
        "Iota", (), dtype=np.dtype("int32"), shape=(BIG, BIG), axis=0),)),
    "too many levels": changes(equations=nested(90).equations),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense(name):
    try:
        data = bytes(records.to_bytes(function(**NONSENSE[name])))
    except ValueError:
        return  # records of this type cannot be written at all
    started = time.perf_counter()
    refused(data)
    assert time.perf_counter() - started < 10


ANY_NUMBER = {"SelectN", "Concatenate", "OptimizationBarrier", "Sort", "AllReduceTogether",
              "AllReduceBegin", "AllReduceEnd", "Cond", "Dequantize"}


@pytest.mark.filterwarnings("ignore")
def test_numbers_of_operands():
    """No operation of the table accepts another number of operands than it has."""
    rows = {row.op: row for row in ROWS if row.op.__name__ not in REFUSED | ANY_NUMBER}
    for row in rows.values():
        wide = "64" in row.dtypes[0] or "128" in row.dtypes[0]
        with toile.enable_x64(wide):
            xs = [jnp.asarray(x) for x in row.arguments(row.dtypes[0])]
            data = export.export(toile.jit(functools.partial(row.run)))(*xs)._data
            program = data.program
            for i, e in enumerate(program.equations):
                if e.op.kind == row.op.__name__ and e.ins:
                    for ins in (e.ins[:-1], e.ins + e.ins[-1:]):
                        changed = [*program.equations]
                        changed[i] = e._replace(ins=ins)
                        changed = program._replace(equations=tuple(changed))
                        refused(bytes(records.to_bytes(data._replace(program=changed))))
                    break


def test_shared_functions_are_read_once():
    """A function that is called twice at each of 35 levels is not expanded."""
    data = bytes(records.to_bytes(function(equations=nested(35).equations)))
    started = time.perf_counter()
    assert export.deserialize(data).fun_name == "sin"
    assert time.perf_counter() - started < 10


def test_shared_trees_are_read_once():
    tree = records.TreeData("leaf", None, ())
    for _ in range(60):
        tree = records.TreeData("tuple", None, (tree, tree))
    refused(bytes(records.to_bytes(function(out_tree=tree))))


def test_values_that_are_not_bytes(tmp_path):
    with pytest.raises(TypeError, match="deserialize: needed bytes, got str"):
        export.deserialize("x")
    path = tmp_path / "f.toile"
    path.write_bytes(b"no")
    with pytest.raises(UnreadableFileError, match=r"f.toile: needed an exported function"):
        export.load(path)
    with pytest.raises(TypeError, match="needed an Exported"):
        export.save(path, jnp.sin)
    assert path.read_bytes() == b"no" and len(list(tmp_path.iterdir())) == 1
