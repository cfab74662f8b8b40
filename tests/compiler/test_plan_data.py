"""Plan data: what is written comes back, nothing else can be made, and damage is found in time."""

import dataclasses
import enum
import importlib
import pkgutil
import random
import struct
import sys
import time
import tracemalloc

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.cases_control import ROWS
from tests.gpu import host_driver
from toile import lax
from toile.compiler.ir.operands import Ref
from toile.compiler.ir.steps import Moving, Region, SwitchStep
from toile.compiler.plan.fingerprint import fingerprint
from toile.compiler.plan.place import arena_layout
from toile.disk import operation_records, plan_data
from toile.disk.plan_data import decode, encode
from toile.disk.plan_schema import Damaged, Record, Schema, Unencodable
from toile.engine import dtypes
from toile.engine.operation import Operation
from toile.platforms.cpu import images
from toile.platforms.gpu import new_plans as making
from toile.platforms.gpu import plan_records
from toile.platforms.gpu import plans_on_disk as recalling
from toile.platforms.gpu.steps import MadePlan
from toile.primitives.contractions import DotGeneral
from toile.primitives.families import Add, ReduceSum
from toile.targets.cuda.launches import Launch

pytest.importorskip("llvmlite")


def same(a, b):
    """Equal, of the same types all the way down, floats by their bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return a == b


VALUES = [
    None, True, False, 0, -1, (1 << 63) - 1, -(1 << 63), 0.0, -0.0, float("nan"), float("-inf"), "",
    "text", "é\0\n", b"", b"\0\xff", (), [], (1, 2), [1, 2], [(1, 2), (3, 4)], [(1,), (2, 3)], [()],
    (1, (2, (True, None)), "x", (b"y", 1.5)), [[1], [[]]], ((1, 2), (1, 2)), (True, 1, 1.0),
    np.dtype("float32"), np.dtype("bool"), jnp.bfloat16.dtype, toile.random.key(0).dtype,
    dtypes.float0, np.arange(6.0).reshape(2, 3), np.array(3, np.int8),
    np.zeros((0, 4), np.complex64), np.array([1, 2], jnp.bfloat16.dtype), Add(), ReduceSum((0, 1)),
    DotGeneral("ij", "jk", "ik"), DotGeneral("ij", "jk", "ik", np.dtype("float32"), "highest"),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda x: f"{type(x).__name__}-{str(x)[:30]}")
def test_values_come_back(value):
    data = encode(value, images.schema())
    assert same(decode(data, images.schema()), value)
    assert encode(decode(data, images.schema()), images.schema()) == data


def test_random_nests_come_back():
    chance = random.Random(3)
    atoms = [x for x in VALUES if not isinstance(x, (tuple, list))]

    def nest(depth):
        if depth == 0 or chance.random() < 0.3:
            return chance.choice(atoms)
        return chance.choice([tuple, list])([nest(depth - 1) for _ in range(chance.randrange(5))])

    for _ in range(300):
        value = nest(5)
        assert same(decode(encode(value, images.schema()), images.schema()), value)


class Stranger:
    pass


class Impostor(DotGeneral):
    pass


@pytest.mark.parametrize("value", [
    Stranger(), Stranger, len, {1: 2}, {1}, frozenset("a"), 1 << 63, 1j, np.float32(1), object(),
    lambda: None, Impostor("ij", "jk", "ik"), DotGeneral(1, "jk", "ik"), enum.Enum("E", "a").a,
    np.array([object()]), np.dtype("M8[s]"), np.dtype([("a", "f4")]), DotGeneral("i", "i", "", {}),
], ids=lambda x: str(type(x).__name__))
def test_what_is_not_plan_data_is_not_written(value):
    for wrapped in (value, (1, value), [value]):
        with pytest.raises(Unencodable):
            encode(wrapped, images.schema())


def test_what_refers_to_itself_is_not_written():
    value = []
    value.append(value)
    with pytest.raises(Unencodable, match="itself"):
        encode(value, images.schema())


# ---- the table is closed, and complete

# Operations that are in no plan on disk, and why.
WITHOUT = {
    "toile.compat.faces": "hold users' functions",
    "toile.control": "they hold Programs or functions, and become steps of their own",
    "toile.custom_batching": "holds a user's function",
    "toile.engine.program": "Captured holds an array, which jit makes an input",
    "toile.primitives.foreign_calls": "hold addresses of users' functions",
    "toile.primitives.bounds": "CheckIndex is gone before a Program is planned",
    "toile.experimental._checks": "Check holds a user's message",
    "toile.parallel": "hold shardings and Programs, and run on several devices",
    "toile.transforms.stepped": "Breakpoint is performed by debug.step, which compiles nothing",
    "toile.transforms.linearize": "Forward is gone when a Program is made",
}


def concrete_operations():
    for package in ("primitives", "compiler", "control"):
        found = importlib.import_module(f"toile.{package}")
        for module in pkgutil.walk_packages(found.__path__, f"toile.{package}."):
            importlib.import_module(module.name)
    todo, seen = [Operation], set()
    while todo:
        for cls in todo.pop().__subclasses__():
            if cls not in seen and cls.__module__.startswith("toile."):
                todo.append(cls)
                seen.add(cls)
    families = {"toile.primitives.random.RandomClone"}  # which has subclasses and is one itself
    # Those of single elements are parts of loop nests: a plan on disk has their code. One that runs
    # in Python, for a dtype without code, may be missing; its plans are not kept.
    return {f"{c.__module__}.{c.__name__}" for c in seen if not c.by_element
            and (not c.__subclasses__() or f"{c.__module__}.{c.__name__}" in families)}


def test_the_table_has_every_operation_that_is_a_step():
    records = plan_records.schema().records
    table = {f"{r.module}.{r.name}" for r in [*operation_records.operations(), *records]}
    missing = {x for x in concrete_operations() - table if not x.startswith(tuple(WITHOUT))}
    assert not missing, f"operations that plans on disk cannot have: {missing}"


@pytest.mark.parametrize("schema", [images.schema, plan_records.schema])
def test_the_table_names_classes_that_there_are(schema):
    for record in schema().records:
        cls = record.cls()
        assert isinstance(cls, type) and cls.__module__ == record.module, record.name
        record.made_by(schema())
        if issubclass(cls, Operation):  # which it may be called with fields of, and hold no more
            fields = [f.name for f in dataclasses.fields(cls)] if dataclasses.is_dataclass(
                cls) else []
            assert [name for name, _ in record.fields(schema())] == fields


def programs_of_rows():
    for row in ROWS:
        dtype = row.dtypes[0]
        with toile.enable_x64("64" in dtype):
            yield str(row), toile.jit(row.run).trace(*row.arguments(dtype)).traced.program


def operations_of(program):
    for e in program.equations:
        yield e.op
        for held in getattr(e.op, "__dict__", {}).values():
            for x in held if isinstance(held, tuple) else (held,):
                if type(x) is type(program):
                    yield from operations_of(x)


def test_operations_and_plans_of_all_rows_come_back(monkeypatch):
    kept, not_kept, count = 0, {}, 0
    with host_driver.host_gpu(monkeypatch):
        for name, program in programs_of_rows():
            if fingerprint(program) is None:
                continue
            for op in operations_of(program):
                if not type(op).__module__.startswith(tuple(WITHOUT)):
                    count += 1
                    assert decode(encode(op, images.schema()), images.schema()) == op
            plan = making.planned(program)
            try:
                data = plan_records.written(plan)
            except Unencodable as why:
                not_kept[name] = str(why)
                continue
            kept += 1
            found = plan_records.read(data)
            assert plan_records.written(found) == data
            recalling._check(found, program)
            assert arena_layout(found)[1] == arena_layout(plan)[1]
    print(f"{count} operations and {kept} plans came back")
    assert kept > 250 and not not_kept, not_kept


# ---- damage


def gpu_data(monkeypatch):
    def loops(x):
        last, sums = lax.scan(lambda c, row: (c * 0.5 + row, jnp.sum(c)), x[0], x)
        return lax.switch(jnp.argmax(sums) % 2, [jnp.sin, jnp.cos], last), jnp.fft.fft(sums).real

    with host_driver.host_gpu(monkeypatch):
        x = np.ones((3, 4), np.float32)
        return plan_records.written(making.planned(toile.jit(loops).trace(x).traced.program))


def cpu_data():
    """An image with a command of each kind, and its Program."""
    program = toile.jit(lambda x, y: (x + y, jnp.sin(x))).trace(
        np.ones((3, 4), np.float32), np.float32(1)).traced.program
    chain = ([((0, 0, 4, 1), 2), ((1, 3, 4, 1), 2)], 4, 2, [(3, 0, 0), (-1, 0, 64)])
    commands = [
        ("place", 2, [(4, 0), (5, 64)]), ("region", [(0, 0, 4, 1), (1, 3, 4, 2)], True),
        ("region", [(1, 2, 4, 1), chain], False), ("eager", 0),
        ("loop", 3, [("region", [(0, 0, 1, 1)], False)], [(4, 0, 0, 16)], [(4, 5)]),
        ("while", [("eager", 0)], 4, [("place", 0, [(4, 0)])], []),
        ("switch", 4, [[("eager", 0)], []]),
    ]
    f32 = np.dtype("float32")
    step = (ReduceSum((0,)), ((0, 0, (3, 4), f32, (16, 4)),), ((3, 0, (4,), f32, (4,)),))
    arena = np.arange(4, 6), np.array([0, 64])
    image = images.Image(2, 6, [48, 48], [(0, 0), (1, 0)], 128, arena, [(4, np.arange(3.0))],
                         commands, np.arange(12), False)
    names = [(bytes([i]) * 32, "ab" * 32) for i in range(2)]
    return images.written(images.Kept(image, names, ["dgemm"], [step])), program, image


def test_images_come_back():
    data, program, image = cpu_data()
    kept = images.read(data, program)
    for name in ("inputs", "slots", "blocks", "places", "arena_bytes", "commands", "calls_blas"):
        assert same(getattr(kept.image, name), getattr(image, name)), name
    assert kept.kernels[1] == (bytes([1]) * 32, "ab" * 32) and kept.symbols == ["dgemm"]
    assert kept.steps[0][0] == ReduceSum((0,))


OUT_OF_RANGE = {
    "a kernel": ("commands", [("region", [(2, 0, 1, 1)], False)]),
    "words": ("commands", [("region", [(0, 13, 1, 1)], False)]),
    "a negative number": ("commands", [("region", [(-1, 0, 1, 1)], False)]),
    "no grain": ("commands", [("region", [(0, 0, 1, 0)], False)]),
    "a slot": ("commands", [("place", 6, [(4, 0)])]),
    "a moving slot": ("commands", [("place", 0, [(6, 0)])]),
    "a step": ("commands", [("eager", 1)]),
    "a step inside": ("commands", [("loop", 1, [("eager", 1)], [], [])]),
    "trips": ("commands", [("loop", -1, [], [], [])]),
    "a swap": ("commands", [("loop", 1, [], [], [(4, 6)])]),
    "a slice": ("commands", [("loop", 1, [], [(4, 6, 0, 1)], [])]),
    "a condition": ("commands", [("while", [], 6, [], [])]),
    "an index": ("commands", [("switch", -1, [])]),
    "a chain": ("commands", [("region", [([((2, 0, 1, 1), 1)], 1, 1, [])], True)]),
    "a chain's slot": ("commands", [("region", [([((0, 0, 1, 1), 1)], 1, 1, [(6, 0, 0)])], True)]),
    "inputs": ("inputs", 1),
    "slots": ("slots", 3),
    "results": ("places", [(0, 0)]),
    "a block": ("places", [(0, 0), (2, 0)]),
    "a place": ("places", [(0, 0), (1, 1)]),
    "a negative place": ("places", [(0, -8), (1, 0)]),
    "a size": ("blocks", [48, 47]),
    "a temporary": ("in_arena", (np.array([6]), np.array([0]))),
    "an offset": ("in_arena", (np.array([4]), np.array([129]))),
    "temporaries": ("in_arena", (np.array([4]), np.array([], np.int64))),
    "a constant": ("constants", [(6, np.arange(3.0))]),
    "the arena": ("arena_bytes", 1 << 60),
}


@pytest.mark.parametrize("what", OUT_OF_RANGE)
def test_numbers_of_images_are_checked(what):
    data, program, image = cpu_data()
    kept = images.read(data, program)
    name, value = OUT_OF_RANGE[what]
    changed = dataclasses.replace(image, **{name: value})
    with pytest.raises(Damaged):
        images.read(images.written(kept._replace(image=changed)), program)


@pytest.mark.parametrize("command", [
    ("located", 1), ("_class__",), ("table", []), ("region", [(1, 2, 3)], True), ("eager", "0"),
    ("place", 0, [(1, 1 << 70)]), ("loop", 1),
])
def test_commands_of_other_kinds_are_not_written(command):
    _, _, image = cpu_data()
    with pytest.raises(Unencodable):
        images.written(images.Kept(dataclasses.replace(image, commands=[command]), [], [], []))


def test_an_image_of_another_program_is_refused():
    data, _, _ = cpu_data()
    other = toile.jit(lambda x: (x, x)).trace(np.ones((3, 4), np.float32)).traced.program
    with pytest.raises(Damaged, match="inputs"):
        images.read(data, other)


def mutated(data, chance):
    """Data with a few bits, bytes, words or parts of it changed."""
    made = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        at = chance.randrange(len(made))
        match chance.randrange(5):
            case 0:
                made[at] ^= 1 << chance.randrange(8)
            case 1:
                made[at] = chance.randrange(256)
            case 2:
                at -= at % 8
                word = chance.choice([0, 1, -1, 1 << 62, len(made), chance.randrange(1 << 16)])
                made[at:at + 8] = struct.pack("<q", word)
            case 3:
                del made[at:at + chance.choice([1, 8, 64])]
            case 4:
                made[at:at] = made[at - chance.choice([8, 64]):at]
        if not made:
            return b""
    return bytes(made)


def check_hostile(read, data, mutations):
    """Reads that end with a plan or with Damaged, in bounded time; how many were refused."""
    refused = 0
    for i, changed in enumerate(mutations):
        started = time.thread_time()
        try:
            read(changed)
        except Damaged:
            refused += 1
        assert time.thread_time() - started < 5, i
    return refused


def readers(monkeypatch):
    data, program, _ = cpu_data()
    return [(lambda d: images.read(d, program), data), (plan_records.read, gpu_data(monkeypatch))]


def test_damage_that_the_checksum_did_not_find(monkeypatch):
    chance = random.Random(1)
    for read, data in readers(monkeypatch):
        read(data)
        changed = [mutated(data, chance) for _ in range(400)]
        changed += [data[:n] for n in range(0, len(data), 1 + len(data) // 200)]
        assert check_hostile(read, data, changed) > 250


@pytest.mark.slow
def test_every_byte_and_every_length(monkeypatch):
    count = 0
    for read, data in readers(monkeypatch):
        each = range(8) if len(data) < 9000 else range(1)
        bits = [(i, (i + b) % 8) for i in range(len(data)) for b in each]
        flips = (data[:i] + bytes([data[i] ^ 1 << b]) + data[i + 1:] for i, b in bits)
        refused = check_hostile(read, data, flips)
        assert check_hostile(read, data, (data[:n] for n in range(len(data)))) == len(data)
        chance = random.Random(2)
        refused += check_hostile(read, data, (mutated(data, chance) for _ in range(10_000)))
        count += len(bits) + len(data) + 10_000
        print(f"{len(data)} bytes, {refused} changes and all truncations refused")
    print(f"hostile plan data: {count} cases")


def bomb(words, **counts):
    """A header with counts of our choosing, and words after it."""
    names = ("scalars", "floats", "texts", "blobs", "runs", "tables", "ints", "numbers",
             "text_bytes", "blob_bytes", "root")
    return struct.pack("<11Q", *[counts.get(n, 0) for n in names]) + struct.pack(
        f"<{len(words)}q", *words)


HUGE = 1 << 60
BOMBS = {
    "counts": bomb([], scalars=HUGE),
    "all counts": struct.pack("<11Q", *[HUGE] * 11),
    "a sum that overflows": bomb([], scalars=1 << 63, texts=1 << 63),
    "a table without columns": bomb([HUGE, 0], tables=1),
    "a table without rows": bomb([0, HUGE], tables=1),
    "a large table": bomb([1 << 31, 1 << 31], tables=1),
    "a text": bomb([HUGE], texts=1),
    "a negative text": bomb([-1, 1], texts=2),
    "a run": bomb([HUGE], runs=1),
    "a count of records": bomb([0, HUGE], numbers=2, root=3),
    "records of no fields": bomb([plan_data.BUILT_IN, HUGE, 0], numbers=3, root=3),
    "no records": bomb([0, 0] * 1000, numbers=2000, root=3),
    "a kind": bomb([HUGE, 1, 0], numbers=3, root=3),
    "a negative kind": bomb([-1, 1, 0], numbers=3, root=3),
    "a length": bomb([0, 1, HUGE], numbers=3, root=3),
    "a later record": bomb([0, 1, 1, 3], numbers=4, root=3),
    "no root": bomb([], root=3),
    "an enum's member": bomb([], root=HUGE),
}


@pytest.mark.parametrize("what", BOMBS)
def test_sizes_are_checked_before_anything_is_allocated(what):
    tracemalloc.start()
    try:
        with pytest.raises(Damaged):
            decode(BOMBS[what], images.schema())
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def tuples(rows):
    """Tuples, each a batch of its own; rows of references, of which 3 is the first record."""
    return [n for row in rows for n in (plan_data.TUPLE, 1, len(row), *row)]


def test_depth_is_bounded():
    for rows in (tuples([(3 + i - 1,) if i else () for i in range(100_000)]),
                 tuples([(3 + i - 1,) * 2 if i else () for i in range(1000)])):
        with pytest.raises(Damaged, match="deep|often"):
            decode(bomb(rows, numbers=len(rows), root=3), images.schema())


def test_sharing_is_bounded():
    """Many records of one large tuple take time by the size of the data, not by its square."""
    count = 20_000
    number = {r.name: r.number for r in images.schema().records}["ReduceSum"] + plan_data.BUILT_IN
    rows = [n for _ in range(count) for n in (number, 1, 1, 3)]
    data = bomb([count, *range(count), *rows], runs=1, ints=count, numbers=len(rows), root=3)
    started = time.thread_time()
    with pytest.raises(Damaged, match="too often"):
        decode(data, images.schema())
    assert time.thread_time() - started < 20
    wide = [tuple(3 + i - 1 for _ in range(60)) if i else (0,) * 60 for i in range(10)]
    rows = tuples(wide)
    with pytest.raises(Damaged, match="too often"):
        decode(bomb(rows, numbers=len(rows), root=12), images.schema())


def test_loops_inside_of_loops_are_bounded(monkeypatch):
    with host_driver.host_gpu(monkeypatch):
        plan = making.planned(toile.jit(jnp.sin).trace(np.ones(3, np.float32)).traced.program)
    for _ in range(3000):
        step = SwitchStep(Moving())
        step.children = [plan]
        plan = MadePlan()
        inner = step.children[0]
        plan.program = plan.given = inner.program
        plan.steps, plan.constants, plan.outputs = [step], {}, inner.outputs
        plan.outside, plan.in_place = set(), set()
    with pytest.raises(Unencodable, match="deep"):
        plan_records.written(plan)
    monkeypatch.setattr(plan_data, "MOST_OPEN", 10**9)
    monkeypatch.setattr(plan_records, "_temporaries", lambda plan: [])
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        data = plan_records.written(plan)
    finally:
        sys.setrecursionlimit(before)
    monkeypatch.undo()
    with pytest.raises(Damaged, match="loops are too deep"):
        plan_records.read(data)


def test_records_are_checked_both_ways():
    """A field of another type is refused by writers and by readers."""
    strict = Schema([Record("toile.compiler.ir.operands", "Ref", types={"offset": "int"})])
    loose = Schema([Record("toile.compiler.ir.operands", "Ref", types={"offset": "data"})])
    bad = Ref(1, "offset")
    with pytest.raises(Unencodable, match="Ref.offset"):
        encode(bad, strict)
    data = encode(bad, loose)
    assert decode(data, loose) == bad
    with pytest.raises(Damaged, match="Ref.offset"):
        decode(data, strict)


def test_fields_are_those_that_classes_declare():
    """So that one that is added is written without a change of the table."""
    fields = {r.name: [n for n, _ in r.fields(plan_records.schema())]
              for r in plan_records.schema().records}
    assert fields["Launch"] == [f.name for f in dataclasses.fields(Launch) if f.name != "origin"]
    assert fields["Ref"] == list(Ref._fields)
    assert fields["Region"] == list(Region.__slots__)
    assert {"steps", "outputs", "given", "in_place"} <= set(fields["MadePlan"])


def test_steps_with_other_fields_are_not_written(monkeypatch):
    """Loops have no list of their fields: one that the table does not have is not left out."""
    step = SwitchStep(Moving())
    assert encode(step, plan_records.schema())
    step.added = 1
    with pytest.raises(Unencodable, match="does not have: {'added'}"):
        encode(step, plan_records.schema())
