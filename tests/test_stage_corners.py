"""Callbacks, `debug` and the stages of jit: each row runs in toile and in the real jax.

A row gives values to compare, or raises: then the kinds of error have to agree.
"""

import copy
import logging
import pickle
from functools import partial

import jax
import jax.experimental
import jax.numpy
import numpy as np
import pytest

import toile
import toile.experimental
import toile.numpy
from toile import debug

LIBRARIES = {"toile": (toile, toile.numpy), "jax": (jax, jax.numpy)}
KINDS = (TypeError, ValueError, RuntimeError)


def outcome(row, library):
    """What a row gives, as plain values; or the kind of its error."""
    lib, jnp = LIBRARIES[library]
    try:
        return lib.tree.map(_plain, row(lib, jnp))
    except KINDS as error:
        return next(kind for kind in KINDS if isinstance(error, kind))


def _plain(x):
    return np.asarray(x).tolist() if hasattr(x, "dtype") and hasattr(x, "__array__") else x


# -------------------------------------------------------------------------------------- callbacks

RETURNS = {
    "a list for a tuple": (2, lambda x: [x, x + 1]),
    "a dict for a tuple": (2, lambda x: {"a": x, "b": x + 1}),
    "a list of one": (1, lambda x: [np.asarray(x)]),
    "float64": (1, lambda x: np.asarray(x, "f8")),
    "int32": (1, lambda x: np.asarray(x, "i4")),
    "float16": (1, lambda x: np.asarray(x, "f2")),
    "another shape": (1, lambda x: np.ones(4, "f4")),
    "two for one": (1, lambda x: (x, x)),
    "none for one": (1, lambda x: None),
    "numbers": (1, lambda x: [1.0, 2.0, 3.0]),
    "one for none": (0, lambda x: x),
    "none for none": (0, lambda x: None),
}


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("kind", ["pure", "io"])
@pytest.mark.parametrize("name", RETURNS)
def test_what_a_callback_may_return(name, kind, jitted, caplog):
    count, function = RETURNS[name]

    def row(lib, jnp):
        call = lib.pure_callback if kind == "pure" else lib.experimental.io_callback
        struct = lib.ShapeDtypeStruct((3,), np.float32)
        wanted = struct if count == 1 else (struct,) * count
        run = lib.jit if jitted else lambda f: f
        return run(lambda x: (call(function, wanted, x), x * 2))(jnp.ones(3))

    assert outcome(row, "toile") == outcome(row, "jax")


@pytest.mark.parametrize("value", [1.5, 1, True])
def test_a_number_from_a_callback(value, caplog):
    def row(lib, jnp):
        return lib.pure_callback(lambda: value, lib.ShapeDtypeStruct((), np.float32))

    assert outcome(row, "toile") == outcome(row, "jax")


def test_a_wrong_dtype_is_explained():
    struct = toile.ShapeDtypeStruct((3,), np.float32)
    with pytest.raises(RuntimeError, match=r"Incorrect output dtype for return value #0: needed "
                                           r"float32\[3\] from .*, got int32 \(convert it"):
        toile.pure_callback(lambda: np.arange(3), struct)


def test_64_bits_are_needed_where_they_are_on():
    with toile.enable_x64(True):
        struct = toile.ShapeDtypeStruct((2,), np.float64)
        with pytest.raises(RuntimeError, match="Incorrect output dtype"):
            toile.pure_callback(lambda: np.ones(2, "f4"), struct)
        assert toile.pure_callback(lambda: np.ones(2), struct).dtype == "float64"


# ------------------------------------------------------------------------------------------ debug


def _two_calls(lib, jnp):
    seen = []
    lib.debug.callback(ordered=True)(lambda *a, **k: seen.append((a, k)), jnp.ones(2), "s", y=1)
    run = lib.jit(lambda x: lib.debug.callback()(lambda a, s: seen.append((a, s)), x, "t"))
    run(jnp.zeros(2))
    lib.effects_barrier()
    return seen


def _effects(lib, jnp, ordered):
    def f(x):
        lib.debug.print("{}", x, ordered=ordered)
        lib.debug.callback(lambda x: None, x, ordered=ordered)
        return x

    kinds = lib.debug.DebugEffect, lib.debug.OrderedDebugEffect
    found = lib.make_jaxpr(f)(1.0).effects
    return [(str(e), [isinstance(e, kind) for kind in kinds]) for e in found]


DEBUG = {
    "names": lambda lib, jnp: sorted({*lib.debug.__all__} - {"step"}),  # which JAX does not have
    "two calls": _two_calls,
    "two calls, early argument": lambda lib, jnp: lib.debug.callback(ordered=True, y=3),
    "two calls, no callable": lambda lib, jnp: lib.debug.callback()(3, 4),
    "None is no callable": lambda lib, jnp: lib.debug.callback(None, 3),
    "log, unused": lambda lib, jnp: lib.debug.log("x", y=3),
    "log, no format": lambda lib, jnp: lib.debug.log(y=3),
    "effects": lambda lib, jnp: _effects(lib, jnp, False),
    "ordered effects": lambda lib, jnp: _effects(lib, jnp, True),
    "sharding of a tree": lambda lib, jnp: _shardings(lib, {"a": jnp.ones(3), "b": (jnp.ones(2),)}),
    "three axes": lambda lib, jnp: lib.debug.visualize_array_sharding(jnp.ones((2, 2, 2))),
}


def _shardings(lib, tree):
    seen = []
    lib.debug.inspect_array_sharding(tree, callback=lambda s: seen.append(type(s).__name__))
    return seen


@pytest.mark.parametrize("name", DEBUG)
def test_debug(name):
    assert outcome(DEBUG[name], "toile") == outcome(DEBUG[name], "jax")


@pytest.mark.parametrize("library", LIBRARIES)
def test_log_is_a_record_of_the_users_line(library, caplog):
    lib, jnp = LIBRARIES[library]
    with caplog.at_level(logging.INFO):
        lib.debug.log("a {} {y}", jnp.ones(2), y=2)
        lib.jit(lambda x: lib.debug.log(ordered=True)("b {}", x))(jnp.zeros(2))
        lib.effects_barrier()
    found = [r for r in caplog.records if r.filename == "test_stage_corners.py"]
    assert [r.getMessage() for r in found] == ["a [1. 1.] 2", "b [0. 0.]"]
    assert {r.levelname for r in found} == {"INFO"} and found[0].lineno < found[1].lineno


class Device:
    """What a table shows of a device."""

    platform = "cpu"

    def __init__(self, number):
        self.id = number


class Grid:
    """A sharding over `rows` x `columns` parts, each of which `copies` devices hold."""

    def __init__(self, rows, columns, copies=1):
        self.parts = [(i, j) for i in range(rows) for j in range(columns) for _ in range(copies)]
        self.counts = rows, columns
        self.devices = [Device(i) for i in range(len(self.parts))]
        self.device_set = set(self.devices)

    def devices_indices_map(self, shape):
        counts = self.counts[-len(shape):]
        return {
            device: tuple([
                slice(None) if c == 1 else slice(i * n // c, (i + 1) * n // c)
                for i, n, c in zip(part[-len(shape):], shape, counts, strict=True)
            ])
            for device, part in zip(self.devices, self.parts, strict=True)
        }


TABLES = {
    "one": ((4, 4), Grid(1, 1)),
    "rows": ((8, 4), Grid(4, 1)),
    "columns": ((8, 16), Grid(1, 4)),
    "both": ((8, 16), Grid(2, 2)),
    "copies": ((6, 6), Grid(2, 1, copies=4)),
    "vector": ((8,), Grid(1, 4)),
    "narrow": ((4, 4), Grid(4, 4)),
}


@pytest.mark.parametrize("options", [{}, {"scale": 2.0, "min_width": 12}])
@pytest.mark.parametrize("name", TABLES)
def test_visualize_sharding(name, options, capsys):
    shape, sharding = TABLES[name]
    jax.debug.visualize_sharding(shape, sharding, **options)
    wanted = capsys.readouterr().out
    debug.visualize_sharding(shape, sharding, **options)
    assert capsys.readouterr().out == wanted
    with pytest.MonkeyPatch.context() as patch:  # without `rich`
        patch.setattr(debug.importlib.util, "find_spec", lambda name: None)
        debug.visualize_sharding(shape, sharding, **options)
    found = capsys.readouterr().out
    assert found == wanted or max(map(len, found.splitlines())) > 80  # `rich` makes it narrower


def test_the_colours_of_a_table():
    assert [c for c, _ in debug._colors(None, 2)] == [None, None]
    found = list(debug._colors(lambda v: (v, v, v, 1.0), 3))
    assert found == [("#000000", "#ffffff"), ("#7F7F7F", "#ffffff"), ("#FFFFFF", "#000000")]


def test_visualize_array_sharding(capsys):
    toile.debug.visualize_array_sharding(toile.numpy.ones(4))
    assert " 0 │" in capsys.readouterr().out


# ----------------------------------------------------------------------------------------- stages


def _traced(lib, jnp):
    c = jnp.arange(5.0)

    def scaled(x, n, *, k):
        return {"o": (x * c[:3]).sum() * n + k, "p": x + k}

    jitted = lib.jit(scaled, static_argnums=1, donate_argnums=0)
    return jitted.trace(jnp.ones(3), 3, k=jnp.float32(2))


def _avals(tree, lib):
    return lib.tree.map(lambda a: (a.shape, str(a.dtype)), tree,
                        is_leaf=lambda x: hasattr(x, "shape"))


def _closed(lib, jnp):
    closed = _traced(lib, jnp).jaxpr
    inner = closed.jaxpr
    counts = [len(inner.invars), len(inner.constvars), len(inner.outvars)]
    evaluated = lib.core.eval_jaxpr(inner, closed.consts, jnp.ones(3), jnp.float32(1))
    return (closed.consts, _avals(closed.in_avals, lib), _avals(closed.out_avals, lib), counts,
            evaluated)


def _names(lib, jnp):
    t = _traced(lib, jnp)
    infos = lib.tree.map(lambda a: (a.shape, str(a.dtype), a.donated), t.args_info,
                         is_leaf=lambda x: hasattr(x, "donated"))
    same = t.args_info == _traced(lib, jnp).args_info
    return (t.fun_name, str(t.in_tree), str(t.out_tree), infos, same, t.donate_argnums,
            _avals(t.out_info, lib), _avals(t.out_avals, lib), _avals(t.in_avals, lib))


def _called(lib, jnp):
    t = _traced(lib, jnp)
    return (t(jnp.ones(3), k=3.0), lib.grad(lambda x: t(x, k=3.0)["o"])(jnp.ones(3)),
            lib.jit(lambda x: t(x, k=1.0))(jnp.ones(3)),
            lib.vmap(lambda x: t(x, k=1.0)["o"])(jnp.ones((2, 3))))


def _donating(f, *shapes, **options):
    """The result of a compiled call, and which arguments it ends."""
    def row(lib, jnp):
        xs = [jnp.ones(s) for s in shapes]
        compiled = lib.jit(f, **options).lower(*xs).compile()
        return compiled(*xs), [x.is_deleted() for x in xs]

    return row


def _by_name(lib, jnp):
    x, y = jnp.ones(3), jnp.ones(3)
    compiled = lib.jit(lambda x, y: x + y, donate_argnames="y").lower(x, y=y).compile()
    return compiled(x, y=y), x.is_deleted(), y.is_deleted()


def _formats(lib, jnp):
    x = jnp.ones((2, 3))
    c = lib.jit(lambda unused, x, n: (x.sum(), {"y": x * n})).lower(x, x, 2.0).compile()
    ins, outs = c.input_formats, c.output_formats
    kinds = [type(s).__name__ for s in lib.tree.leaves((c.input_shardings, c.output_shardings))]
    infos = [type(s.sharding).__name__ for s in lib.tree.leaves(c.out_info)]
    (unused, *_), named = c.input_shardings
    return [
        [f.layout and f.layout.major_to_minor for f in lib.tree.leaves((ins, outs))],
        [type(f.sharding).__name__ for f in lib.tree.leaves((ins, outs))],
        kinds, infos, unused, named, [type(f).__name__ for f in ins[0]], sorted(outs[1]),
    ]


def _memory(f, *shapes, **options):
    def row(lib, jnp):
        xs = [jnp.ones(s) for s in shapes]
        m = lib.jit(f, **options).lower(*xs).compile().memory_analysis()
        return (m.argument_size_in_bytes, m.output_size_in_bytes, m.temp_size_in_bytes,
                m.alias_size_in_bytes, m.host_temp_size_in_bytes,
                m.generated_code_size_in_bytes >= 0, m.peak_memory_in_bytes > 0)

    return row


SQUARE = (64, 64)
STAGES = {
    "a closed jaxpr": _closed,
    "names": _names,
    "a traced function called": _called,
    "another shape": lambda lib, jnp: lib.jit(lambda x: x * 2).trace(jnp.ones(3))(jnp.ones(4)),
    "lower takes few options": lambda lib, jnp: _traced(lib, jnp).lower(other=1),
    "donated": _donating(lambda x: x + 1, 3, donate_argnums=0),
    "donated, returned": _donating(lambda x: x, 3, donate_argnums=0),
    "donated, unused": _donating(lambda x, y: y + 1, 3, 3, donate_argnums=0),
    "donated, one result": _donating(lambda x, y: x + y, 3, 3, donate_argnums=(0, 1)),
    "donated, another shape": _donating(lambda x: x.sum(), 3, donate_argnums=0),
    "donated by name": _by_name,
    "not donated": _donating(lambda x: x + 1, 3),
    "formats": _formats,
    "memory": _memory(lambda x: x + 1, SQUARE),
    "memory of temporaries": _memory(lambda x, y: (x @ x) @ (y @ y).T, SQUARE, SQUARE),
    "memory, unused": _memory(lambda x, y: x + 1, SQUARE, SQUARE),
    "memory, donated": _memory(lambda x: x + 1, SQUARE, donate_argnums=0),
    "names of the module": lambda lib, jnp: sorted(n for n in dir(lib.stages) if n[0] != "_"),
}


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
@pytest.mark.parametrize("name", STAGES)
def test_stages(name):
    assert outcome(STAGES[name], "toile") == outcome(STAGES[name], "jax")


def test_another_structure_for_a_traced_function():
    traced = _traced(toile, toile.numpy)
    with pytest.raises(TypeError, match="Function traced with input pytree does not match"):
        traced(toile.numpy.ones(3), 3, k=1.0)


def test_memory_is_that_of_the_plan():
    x = toile.numpy.ones(SQUARE)
    compiled = toile.jit(lambda x: toile.numpy.sin(x @ x) @ x).lower(x).compile()
    m = compiled.memory_analysis()
    sizes = (m.argument_size_in_bytes, m.output_size_in_bytes, m.temp_size_in_bytes)
    assert sizes[:2] == (x.nbytes, x.nbytes) and sizes[2] >= x.nbytes
    assert m.peak_memory_in_bytes == sum(sizes)
    assert compiled(x).shape == SQUARE


@partial(toile.jit, static_argnames="n")
def _decorated(x, n=3):
    return x * n


class _Holder:
    @toile.jit
    def method(x):
        return x + 1


def test_pickled_functions_are_references_to_decorated_ones():
    for f in (_decorated, _Holder.method):
        assert f(2.0) == (6.0 if f is _decorated else 3.0)  # compiled code is not pickled
        assert pickle.loads(pickle.dumps(f)) is f and copy.deepcopy(f) is f


def test_functions_without_a_name_are_pickled_with_their_options():
    wrapped = toile.jit(_times, static_argnames="n", donate_argnums=0)
    wrapped(toile.numpy.ones(2), n=2)
    again = pickle.loads(pickle.dumps(wrapped))
    assert again is not wrapped and again.fun is _times
    assert again.static_argnames == wrapped.static_argnames and again.donate_argnums == (0,)
    x = toile.numpy.ones(2)
    assert again(x, n=5).tolist() == [5, 5] and x.is_deleted()


def _times(x, n):
    return x * n
