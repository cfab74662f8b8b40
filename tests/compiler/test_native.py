"""From LLVM text to callable addresses."""

import ctypes
import math
import os
import subprocess
import sys
import textwrap
import threading
import weakref

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile.compiler.pipeline import optimize
from toile.compiler.plan.lower import planned
from toile.disk import object_cache
from toile.errors import CacheWarning
from toile.platforms.cpu import runner
from toile.platforms.cpu.target import Target
from toile.targets.llvm import native
from toile.targets.llvm import text as ir
from toile.targets.llvm import thread_count as threads

pytest.importorskip("llvmlite")
KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)


def scaling(c):
    """The text of x[lo:hi] *= c, of float32."""
    f = ir.kernel()
    x = f.buffer(0)
    with f.loop("%lo", "%hi", vectorize=True) as i:
        at = f.at(x, i, "float")
        f.store("float", f.value(f"fmul float {f.load('float', at)}, {float(c):e}"), at)
    return ir.module(f)


def call(address, x):
    args, buffers = np.zeros(2, np.int64), np.array([x.ctypes.data])
    KERNEL(address)(0, x.size, args.ctypes.data, buffers.ctypes.data)
    return x


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of its own, and no memory of kernels loaded before, the runner aside."""
    runner.function()
    fresh = object_cache.ObjectCache(tmp_path / "kernels")
    monkeypatch.setattr(native.engine(), "cache", fresh)
    monkeypatch.setattr(native, "_code", weakref.WeakValueDictionary())
    return fresh


def forget(monkeypatch):
    monkeypatch.setattr(native, "_code", weakref.WeakValueDictionary())


def count_compilations(monkeypatch):
    done = []
    compile = native._Engine.compile
    monkeypatch.setattr(
        native._Engine, "compile", lambda self, *args: done.append(1) or compile(self, *args)
    )
    return done


@pytest.mark.parametrize("workers", [1, 3])
def test_batches(cache, monkeypatch, workers):
    texts = [scaling(c) for c in (2, 3, 2, 5)]
    done = count_compilations(monkeypatch)
    with threads.threads(workers):
        addresses = native.functions(texts)
    assert len(done) == 3 and addresses[0] == addresses[2]
    for address, c in zip(addresses, (2, 3, 2, 5), strict=True):
        np.testing.assert_array_equal(call(address, np.ones(37, np.float32)), np.float32(c))
    assert native.functions(texts) == addresses and native.function(texts[3]) == addresses[3]
    assert len(done) == 3


def test_second_process_loads_from_disk(cache, monkeypatch):
    done = count_compilations(monkeypatch)
    first = native.function(scaling(7))
    forget(monkeypatch)
    second = native.function(scaling(7))
    assert len(done) == 1 and second != first
    assert call(second, np.ones(3, np.float32))[0] == 7
    forget(monkeypatch)
    for path in cache.folder.iterdir():
        path.write_bytes(path.read_bytes()[:-9])  # damaged: compiled again
    with pytest.warns(CacheWarning, match="made again"):
        assert call(native.function(scaling(7)), np.ones(3, np.float32))[0] == 7
    assert len(done) == 2


def test_no_cache(monkeypatch):
    monkeypatch.setattr(native.engine(), "cache", None)
    forget(monkeypatch)
    assert call(native.function(scaling(11)), np.ones(3, np.float32))[0] == 11


def test_keys_depend_on_machine_and_versions():
    engine = native.engine()
    one = native._Engine()
    assert one.key("text") == engine.key("text") != engine.key("other text")
    for change in ({"cpu": "another"}, {"features": "+none"}):
        other = native._Engine()
        for name, value in change.items():
            setattr(other, name, value)
        assert other.key("text") != engine.key("text")


def test_symbols_of_c(cache):
    square_root = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(math.sqrt)
    native.add_symbol("test_square_root", ctypes.cast(square_root, ctypes.c_void_p).value)
    f = ir.kernel()
    x = f.buffer(0)
    with f.loop("%lo", "%hi") as i:
        at = f.at(x, i, "double")
        value = f.load("double", at)
        f.store("double", f.value(f"call double @test_square_root(double {value})"), at)
    text = "declare double @test_square_root(double)\n" + ir.module(f)
    np.testing.assert_array_equal(call(native.function(text), np.array([4.0, 9.0])), [2, 3])


def test_symbols_of_the_process_and_constants(cache):
    """C's library is there without being asked for, and tables of constants are relocated."""
    f = ir.kernel()
    x = f.buffer(0)
    with f.loop("%lo", "%hi") as i:
        power = f.value(f"call double @exp(double {f.load('double', f.at(x, i, 'double'))})")
        c = f.load("double", f.at("@table", i, "double"))
        f.store("double", f.value(f"fmul double {power}, {c}"), f.at(x, i, "double"))
    text = (
        "@table = private constant [3 x double] [double 1.0, double 2.0, double 4.0]\n"
        "declare double @exp(double)\n" + ir.module(f)
    )
    out = call(native.function(text), np.zeros(3))
    np.testing.assert_array_equal(out, [1, 2, 4])


def test_unknown_symbols_are_errors(cache, capfd):
    text = (
        "declare void @no_such_function_anywhere()\n"
        "define void @kernel(i64 %lo, i64 %hi, ptr %a, ptr %b) {\n"
        "  call void @no_such_function_anywhere()\n  ret void\n}\n"
    )
    with pytest.raises(RuntimeError, match="symbol"):
        native.function(text)
    assert call(native.function(scaling(13)), np.ones(3, np.float32))[0] == 13


def test_wrong_texts_are_errors(cache):
    with pytest.raises(RuntimeError, match="LLVM refused a kernel"):
        native.function("define void @kernel() { ret i32 %nothing }")


def test_declarations():
    text = (
        "  %v = call <4 x float> @llvm.fma.v4f32(<4 x float> %a, <4 x float> %b, <4 x float> %c)\n"
        "  %w = call nnan double @llvm.sqrt.f64(double %v)\n"
        "  call void @llvm.memset.p0.i64(ptr %p, i8 0, i64 %n, i1 false)\n"
    )
    assert native.declarations(text).splitlines() == [
        "declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)",
        "declare double @llvm.sqrt.f64(double)",
        "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
    ]


def test_vector_bytes(monkeypatch):
    assert native.vector_bytes() in (16, 32, 64)
    for has, expected in (({}, 16), ({"avx2": True}, 32), ({"avx2": True, "avx512f": True}, 64)):
        engine = native._Engine()
        engine.has = has
        assert engine.vector_bytes == expected


def test_python_threads_ask_at_once(cache, monkeypatch):
    done = count_compilations(monkeypatch)
    got = [[] for _ in range(4)]

    def ask(mine):
        for c in range(20, 26):
            mine.append(native.function(scaling(c)))

    pythons = [threading.Thread(target=ask, args=(mine,)) for mine in got]
    for t in pythons:
        t.start()
    for t in pythons:
        t.join()
    assert got[0] == got[1] == got[2] == got[3] and len(done) == 6


def test_missing_llvmlite(monkeypatch):
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    with pytest.raises(ImportError, match=r"pip install 'llvmlite"):
        native._Engine()


def test_import_does_not_load_llvmlite():
    code = """
        import sys
        from toile.disk import object_cache
        from toile.targets.llvm import native, thread_count as threads
        from toile.platforms.cpu import runner
        native.add_symbol("anything", 0)
        assert not any(m.startswith("llvmlite") for m in sys.modules)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=120)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
def test_memory_of_many_kernels():
    """1,000 kernels in well under 100 MB; none of it is left of those that nothing holds."""
    code = """
        import resource
        from toile.targets.llvm import native
        made = native.engine()
        text = "define void @kernel(i64 %lo, i64 %hi, ptr %a, ptr %b) { ret void }"
        data = made.compile(text, "kernel_name")
        def resident():
            pages = int(open("/proc/self/statm").read().split()[1])
            return pages * resource.getpagesize()
        native._name = lambda digest: "kernel_name"
        warm = [made.link({b"kernel": data}, ()) for _ in range(100)]
        del warm
        before = resident()
        held = [made.link({b"kernel": data}, ()) for _ in range(300)]
        print((resident() - before) / 300)
        del held
        for _ in range(1000):
            made.link({b"kernel": data}, ())
        before = resident()
        for _ in range(2000):
            made.link({b"kernel": data}, ())
        assert native.Library.code_bytes == 0 and not native._freed
        assert len(native._linkers) == 1
        print((resident() - before) / 2000)
    """
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], check=True, capture_output=True, timeout=120
    )
    held, freed = map(float, out.stdout.split())
    assert held < 90_000 and freed < 500


def test_runner_text_is_deterministic():
    """It is cached on disk like any kernel."""
    assert runner.text() == runner.text()


def test_kernels_are_compiled_while_others_are_planned(cache, monkeypatch):
    """Each once, and none that nobody asks for."""
    done, begun = count_compilations(monkeypatch), []
    submit = native.Work._submit
    monkeypatch.setattr(native.Work, "_submit",
                        lambda self, *args: begun.append(args[0]) or submit(self, *args))
    monkeypatch.setenv("TOILE_PLANS", "off")
    x = jnp.ones((64, 64))

    def f(x):
        y = jnp.tanh(x @ x) + jnp.sort(x, axis=0)
        return (y / y.sum(1, keepdims=True)).cumsum(0)

    with threads.threads(2):
        plan = planned(optimize(toile.make_jaxpr(f)(x).jaxpr), Target(2))
        assert not begun  # nobody is at work
        toile.jit(f)(x)
    texts = {x.text for step in plan.steps for x in launched(step)}
    assert 2 < len(texts) <= len(done) == len(begun) == len(set(begun))
    assert {native._name(native.digest(t)) for t in texts} <= set(begun)
    assert len(done) == len(list(cache.folder.iterdir()))  # all of them are used, and kept


def launched(step):
    return [x for y in getattr(step, "links", [step]) for x in getattr(y, "launches", [y])]


def test_an_error_while_planning_ends_the_work(cache, monkeypatch):
    with threads.threads(2):
        with pytest.raises(KeyError), native.Work.beside() as work:
            native.begin(scaling(11))
            raise KeyError
        assert native.Work.current() is None and work.executor._shutdown
        free = []

        def take():
            free.append(native._lock.lock.acquire(timeout=5))
            native._lock.release()

        other = threading.Thread(target=take)
        other.start()
        other.join()
        assert free == [True]


def test_what_was_begun_is_not_compiled_again(cache, monkeypatch):
    done = count_compilations(monkeypatch)
    with threads.threads(2), native.Work.beside():
        for c in (2, 3, 2):
            native.begin(scaling(c))
        addresses = native.functions([scaling(c) for c in (2, 3, 5)])
        native.begin(scaling(5))  # in memory
    assert len(done) == 3
    forget(monkeypatch)
    with threads.threads(2), native.Work.beside():
        native.begin(scaling(2))  # on disk
        again = native.functions([scaling(2)])
    assert len(done) == 3 and again[0] != addresses[0]
    assert call(again[0], np.ones(3, np.float32))[0] == 2


def test_one_thread_has_no_work_beside_it(cache):
    with threads.threads(1), native.Work.beside() as work:
        assert work is None
        native.begin(scaling(2))
        assert call(native.function(scaling(2)), np.ones(3, np.float32))[0] == 2


def test_the_longest_text_is_compiled_first(cache, monkeypatch):
    order = []
    timed = native._Engine.timed
    monkeypatch.setattr(native._Engine, "timed",
                        lambda self, text, name: order.append(len(text)) or timed(self, text, name))
    with threads.threads(1):
        native.functions([scaling(1), scaling(0.5) + "; a longer text\n", scaling(2) + "; long\n"])
    assert order == sorted(order, reverse=True) and len(order) == 3


def test_functions_are_compiled_while_the_interpreter_ends(tmp_path):
    text = """
        import atexit, toile, toile.numpy as jnp
        x = jnp.ones((64, 64))
        f = toile.jit(lambda x: jnp.sort(jnp.tanh(x @ x), axis=0).cumsum(1))
        atexit.register(lambda: print("result", f(x).shape))
    """
    env = {**os.environ, "TOILE_CACHE_DIR": str(tmp_path), "TOILE_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(text)], env=env,
                          capture_output=True, text=True)
    assert done.stdout == "result (64, 64)\n", done.stderr


def test_written_out():
    """Few passes suffice for variables to become registers; loops stay as they are written."""
    f = ir.kernel()
    x, total = f.buffer(0), f.variable("float", "0.0")
    with f.loop("%lo", "%hi") as i:
        value = f.load("float", f.at(x, i, "float"), 4)
        f.store("float", f.value(f"fadd float {f.load('float', total)}, {value}"), total)
    f.store("float", f.load("float", total), x)
    text = native.WRITTEN_OUT + ir.module(f)
    made = native.engine()
    module = made._module(text, "kernel", made.machine())
    assert "alloca" not in str(module) and " x float>" not in str(module)
    assert call(native.function(text), np.arange(5, dtype=np.float32))[0] == 10
