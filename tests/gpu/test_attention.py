"""Attention as calls of cuDNN, without a GPU: what the graph is told, and what is copied."""

import ml_dtypes
import numpy as np
import pytest

from tests.gpu.fake_libraries import FakePlan
from toile.kernels.attention import gpu_calls as attention
from toile.kernels.attention.gpu_calls import Extras, Options
from toile.targets.cuda import cudnn

bfloat16 = np.dtype(ml_dtypes.bfloat16)


class Engine:
    """Notes what it is asked for; `refuses`: it has no engine."""

    def __init__(self, refuses=False):
        self.asked, self.refuses = [], refuses

    def plan(self, description):
        self.asked.append(description)
        hash(description)
        if self.refuses:
            raise cudnn.Unsupported(description)
        return type("Plan", (), {"workspace": 128})


def zeros(*shape, dtype=bfloat16):
    return np.zeros(shape, dtype)


def forward(q, k, v, options, engine=None, extras=(), stats=True):
    plan = FakePlan()
    out = zeros(*q.shape[:3], v.shape[3])
    b, t, h = q.shape[:3]
    kept = plan.operand(zeros(b, h, t, dtype=np.float32)) if stats else None
    given = Extras(**{name: plan.operand(a) for name, a in dict(extras).items()})
    engine = engine or Engine()
    with cudnn.use(engine):
        ok = attention.forward(*(plan.operand(a) for a in (q, k, v, out)), kept, options, plan,
                               given)
    return ok, plan, engine


def test_arrays_are_read_as_they_lie():
    q, k = zeros(2, 16, 4, 64), zeros(2, 24, 2, 64)
    ok, plan, engine = forward(q, k, k, Options(0.125, causal=True))
    assert ok and plan.copies == 0
    [call] = plan.steps
    tensors = dict(engine.asked[0].tensors)
    assert tensors["q"].dim == (2, 4, 16, 64) and tensors["q"].stride == (4096, 64, 256, 1)
    assert tensors["k"].dim == (2, 2, 24, 64)
    assert tensors["stats"] == cudnn.Tensor((2, 4, 16, 1), (64, 16, 1, 1), "float32")
    assert [n for n, _ in call.places] == [1, 2, 3, 4, 5] and call.results == (4, 5)
    assert len(call.reads) == 4 and len(call.writes) == 3  # with room to work in


def test_one_array_of_queries_keys_and_values():
    """Slices of a joint projection are not copied."""
    joint = zeros(2, 16, 3, 4, 64)
    q, k, v = (joint[:, :, i] for i in range(3))
    ok, plan, engine = forward(q, k, v, Options(0.125))
    assert ok and plan.copies == 0
    assert dict(engine.asked[0].tensors)["k"].stride == (12288, 64, 768, 1)


def test_depth_that_is_not_innermost_is_copied():
    q = zeros(2, 16, 64, 4).transpose(0, 1, 3, 2)
    ok, plan, engine = forward(q, zeros(2, 16, 4, 64), zeros(2, 16, 4, 64), Options(0.125))
    assert ok and plan.copies == 1


@pytest.mark.parametrize("change", [
    {"dtype": np.dtype("f4")}, {"depth": 60}, {"depth": 264}, {"heads": 3},
])  # fmt: skip
def test_what_is_declined(change):
    dtype, depth, heads = (change.get(k, d) for k, d in (("dtype", bfloat16), ("depth", 64),
                                                         ("heads", 2)))
    q = zeros(2, 16, 4, depth, dtype=dtype)
    k = zeros(2, 16, heads, depth, dtype=dtype)
    ok, plan, engine = forward(q, k, k, Options(0.125))
    assert not ok and not plan.steps and not engine.asked


def test_a_refusal_leaves_no_steps():
    q = zeros(2, 16, 64, 4).transpose(0, 1, 3, 2)
    ok, plan, _ = forward(q, q, q, Options(0.125), Engine(refuses=True))
    assert not ok and not plan.steps


def backward_description(options, extras=(), dbias=None):
    plan = FakePlan()
    x, stats = zeros(2, 16, 4, 64), zeros(2, 4, 16, dtype=np.float32)
    ins = [plan.operand(a) for a in (x, x, x, x, stats, x)]
    outs = [plan.operand(zeros(2, 16, 4, 64)) for _ in range(3)]
    given = Extras(**{name: plan.operand(a) for name, a in dict(extras).items()})
    engine = Engine()
    with cudnn.use(engine):
        assert attention.backward(ins, outs, options, plan, given,
                                  None if dbias is None else plan.operand(dbias))
    [call] = plan.steps
    assert set(call.results) >= {12, 13, 14}
    return engine.asked[0]


EXTRAS = {
    "bias": zeros(1, 4, 16, 16), "query_lengths": zeros(2, dtype=np.int32),
    "key_lengths": zeros(2, dtype=np.int32), "seed": zeros(1, dtype=np.int64),
    "offset": zeros(1, dtype=np.int64),
}  # fmt: skip


@pytest.mark.parametrize("options, extras", [
    (Options(0.125), []), (Options(0.125, causal=True), []),
    (Options(0.125, window=(8, 0)), []), (Options(0.125, True, (8, 3)), []),
    (Options(0.125), ["bias"]), (Options(0.125, True), ["query_lengths", "key_lengths"]),
    (Options(0.125, dropout=0.1), ["seed", "offset"]),
    (Options(0.25, True, dropout=0.1), list(EXTRAS)),
])  # fmt: skip
def test_graphs_of_the_frontend(options, extras):
    frontend = pytest.importorskip("cudnn")
    given = {name: EXTRAS[name] for name in extras}
    x = zeros(2, 16, 4, 64)
    _, _, engine = forward(x, x, x, options, extras=given)
    dbias = zeros(1, 4, 16, 16) if "bias" in extras else None
    for description in (engine.asked[0], backward_description(options, given, dbias)):
        graph = frontend.pygraph(compute_data_type=frontend.data_type.FLOAT)
        description.add(frontend, graph)
        [node] = graph.nodes
        assert node.node_type.name == ("SDPA_BWD" if description.backward else "SDPA")
        tensors = {t.uid: t for t in (*node.inputs.values(), *node.outputs.values()) if t}
        assert set(tensors) == {attention.NUMBERS[name] for name, _ in description.tensors}
        for name, tensor in description.tensors:
            found = tensors[attention.NUMBERS[name]]
            assert tuple(found.dim) == tensor.dim and tuple(found.stride) == tensor.stride
        params = node.params
        assert params["attn_scale"] == options.scale
        if options.window:
            assert params["diagonal_band_left_bound"] == options.window[0] + 1
            right = 0 if options.causal else options.window[1]
            assert params["diagonal_band_right_bound"] == right
        else:
            assert params["use_causal_mask"] == options.causal
        assert bool(params.get("use_padding_mask")) == ("key_lengths" in extras)
        if description.backward:
            assert params["use_deterministic_algorithm"] is True
