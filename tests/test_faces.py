"""The small faces: custom_batching, dlpack, monitoring, profiler, distributed, ref and others."""

import gzip
import importlib
import json

import jax
import jax.custom_batching
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import distributed, monitoring, profiler
from toile.custom_batching import custom_vmap, sequential_vmap

A = np.arange(3.0, dtype=np.float32)


def scaled(lib, calls):
    @lib.custom_batching.custom_vmap
    def f(x, y):
        return x + y

    @f.def_vmap
    def rule(axis_size, in_batched, xs, ys):
        calls.append((axis_size, in_batched, xs.shape, ys.shape))
        return 10 * xs + ys, True

    return f


def test_custom_vmap_uses_the_rule():
    def results(lib, calls):
        f, a = scaled(lib, calls), lib.numpy.asarray(A)
        outs = [lib.vmap(f)(a, a), lib.vmap(f, in_axes=(0, None))(a, a[1]), f(a, a),
                lib.jit(f)(a, a), lib.jit(lib.vmap(f))(a, a),
                lib.vmap(lib.vmap(f))(a.reshape(3, 1), a.reshape(3, 1)),
                lib.vmap(lambda x: lib.jvp(f, (x, x), (x, x))[1])(a),
                lib.grad(lambda x: lib.vmap(f)(x, x).sum())(a)]
        return [np.asarray(o) for o in outs], calls

    found = [results(lib, []) for lib in (toile, jax)]
    for mine, other in zip(*(o for o, _ in found), strict=True):
        np.testing.assert_allclose(mine, other)
    assert found[0][1][:2] == found[1][1][:2]


def test_custom_vmap_errors():
    @custom_vmap
    def f(x):
        return {"a": x}

    with pytest.raises(AttributeError, match="def_vmap"):
        toile.vmap(f)(A)
    f.def_vmap(lambda n, b, x: ({"a": x}, True))
    with pytest.raises(ValueError, match="batching specification"):
        toile.vmap(f)(A)
    f.def_vmap(lambda n, b, x: ({"b": x}, {"b": True}))
    with pytest.raises(ValueError, match="does not match"):
        toile.vmap(f)(A)
    f.def_vmap(lambda n, b, x: ({"a": x.sum()}, {"a": False}))
    np.testing.assert_array_equal(toile.vmap(f)(A)["a"], [3, 3, 3])
    assert float(toile.grad(lambda x: f(x)["a"])(2.0)) == 1


def test_sequential_vmap_loops():
    @sequential_vmap
    def f(x, y):
        assert x.shape == ()
        return jnp.sin(x) * y

    np.testing.assert_allclose(toile.vmap(f, in_axes=(0, None))(A, 2.0), 2 * np.sin(A), rtol=1e-6)
    np.testing.assert_allclose(toile.jit(toile.vmap(f))(A, A), np.sin(A) * A, rtol=1e-6)


def test_dlpack():
    x = toile.dlpack.from_dlpack(np.arange(3, dtype=np.float32))
    np.testing.assert_array_equal(x, [0, 1, 2])
    np.testing.assert_array_equal(np.from_dlpack(jnp.arange(3)), [0, 1, 2])
    assert toile.dlpack.is_supported_dtype(jnp.bfloat16)
    with pytest.raises(TypeError, match="__dlpack__"):
        toile.dlpack.from_dlpack(object())


def test_monitoring():
    heard = []
    try:
        monitoring.register_event_listener(lambda e, **kw: heard.append((e, kw)))
        monitoring.register_event_duration_secs_listener(lambda e, d, **kw: heard.append((e, d)))
        scalars = lambda e, value, **kw: heard.append((e, value, kw))
        monitoring.register_scalar_listener(scalars)
        monitoring.record_event("/a", b=1)
        monitoring.record_event_duration_secs("/b", 1.5)
        monitoring.record_scalar("/c", 2, k="v")
        monitoring.unregister_scalar_listener(scalars)
        monitoring.record_scalar("/c", 3)
        assert heard == [("/a", {"b": 1}), ("/b", 1.5), ("/c", 2, {"k": "v"})]
    finally:
        monitoring.clear_event_listeners()
    monitoring.record_event("/a")
    assert len(heard) == 3


def test_profiler_writes_a_chrome_trace(tmp_path):
    with pytest.raises(RuntimeError, match="No profile started"):
        profiler.stop_trace()
    with profiler.TraceAnnotation("outside"):
        pass
    with profiler.trace(tmp_path):
        with pytest.raises(RuntimeError, match="already been started"):
            profiler.start_trace(tmp_path)
        with profiler.StepTraceAnnotation("train", step_num=3):
            profiler.annotate_function(lambda x: x + 1, name="inner")(1)
    (file,) = tmp_path.rglob("*.trace.json.gz")
    events = {e["name"]: e for e in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]}
    assert set(events) == {"train", "inner"} and events["train"]["args"]["step_num"] == 3
    assert events["train"]["ts"] <= events["inner"]["ts"]
    assert events["train"]["dur"] >= events["inner"]["dur"]


def test_device_memory_profile(tmp_path):
    kept = jnp.ones((123, 7))
    profiler.save_device_memory_profile(tmp_path / "memory.json")
    rows = json.loads((tmp_path / "memory.json").read_bytes())["arrays"]
    assert any(r["shape"] == [123, 7] and r["bytes"] >= kept.nbytes for r in rows)


def test_live_arrays_are_those_of_a_platform():
    class Shy:  # some packages' objects warn when they are asked for their class
        __class__ = property(lambda self: pytest.fail("asked for its class"))

    kept, shy = jnp.ones((123, 7)), [Shy()]
    assert any(x is kept for x in toile.live_arrays())
    assert any(x is kept for x in toile.live_arrays(next(iter(kept.devices())).platform))
    assert profiler.device_memory_profile() and shy
    with pytest.raises(RuntimeError, match="quantum"):
        toile.live_arrays("quantum")


def test_distributed_is_one_process():
    assert not distributed.is_initialized()
    with pytest.raises(RuntimeError, match="one process"):
        distributed.initialize("localhost:1234", num_processes=2, process_id=0)
    distributed.initialize()
    try:
        assert distributed.is_initialized()
        with pytest.raises(RuntimeError, match="once"):
            distributed.initialize()
    finally:
        distributed.shutdown()
    assert not distributed.is_initialized()


def test_refs_agree_with_jax():
    def play(lib):
        r = lib.new_ref(lib.numpy.arange(4.0))
        r[0] = 5.0
        r[...] += 1
        r[1:3] = lib.numpy.zeros(2)
        old = lib.ref.swap(r, 3, 7.0)
        lib.ref.addupdate(r, 0, 2.0)
        return repr(r), float(old), r.shape, np.asarray(lib.freeze(r)).tolist()

    assert play(toile) == play(jax)

    @toile.jit
    def inside(x):
        r = toile.new_ref(x)
        r[...] = r[...] * 2
        r[toile.ds(0, 2)] = 0
        return r[...]

    np.testing.assert_array_equal(inside(A), [0, 0, 4])


def test_fwd_and_bwd():
    for lib in (toile, jax):
        fwd, bwd = lib.fwd_and_bwd(lambda x, y: x * y, (0, 1))
        out, residuals = fwd(2.0, 3.0)
        assert float(out) == 6
        assert [float(g) for g in bwd(residuals, 1.0)] == [3, 2]
        fwd, bwd = lib.fwd_and_bwd(lambda x, y: (x * y, y), 1, has_aux=True, jitted=False)
        out, residuals, aux = fwd(2.0, 3.0)
        assert float(aux) == 3 and float(bwd(residuals, 1.0)) == 2


def test_environment_and_version(capsys):
    toile.print_environment_info()
    printed = capsys.readouterr().out
    assert toile.__version__ in printed and printed.strip() in toile.print_environment_info(True)
    assert toile.version.__version_info__ == toile.__version_info__ == (0, 1, 0)


def test_absent_parts_of_the_top_level():
    with pytest.raises(ImportError, match="jax.tools"):
        importlib.import_module("toile.tools")
    with pytest.raises(ImportError, match="jax.interpreters"):
        from toile.interpreters import ad  # noqa: F401
    with pytest.raises(ImportError, match="flax.nnx: .*toile.linen"):
        from toile import nnx  # noqa: F401
    with pytest.raises(ImportError, match="No module named 'toile.nothing'"):
        importlib.import_module("toile.nothing")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = toile.nothing
    assert not hasattr(toile, "tools")
    assert "pmap" in dir(toile) and toile.memory.Space.Host.name == "Host"
