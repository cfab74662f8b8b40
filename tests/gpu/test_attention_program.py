"""Attention in whole programs: on a GPU it is cuDNN's, and equals the CPU's.

On the host, kernels are run by `fibers` and cuDNN's graphs by `fake_attention`.
"""

import ml_dtypes
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.gpu import fibers, host_driver
from tests.gpu.fake_attention import FakeAttention
from tests.gpu.fake_libraries import FakePlan
from tests.gpu.test_programs import program_of
from toile import linen
from toile.compiler.pipeline import optimize
from toile.control import attention
from toile.engine.trees import flatten
from toile.kernels.attention import gpu as attending
from toile.kernels.attention import masks
from toile.platforms.gpu.steps import CallStep
from toile.targets.cuda import cudnn

bfloat16 = np.dtype(ml_dtypes.bfloat16)
on_host = pytest.mark.skipif(not fibers.available(), reason="needs g++")


def normal(*shape, dtype=bfloat16, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


@pytest.fixture
def whole(monkeypatch):
    """Attention is traced as one operation, as where the default device is a GPU."""
    monkeypatch.setattr(attention, "default_device", lambda: "a GPU")


def described(program, engine=None):
    """The optimized Program of a GPU, and what cuDNN was asked for."""
    engine = engine or FakeAttention()
    with cudnn.use(engine):
        return optimize(program, choose=attending.choose), engine


def names(program):
    return [e.op.name for e in program.equations]


def close(got, wanted, tolerance=3e-2):
    for a, b in zip(flatten(got)[0], flatten(wanted)[0], strict=True):
        a, b = (np.asarray(x).astype("f4") for x in (a, b))
        scale = max(np.abs(b).max(initial=0), 1e-3)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale)


def on_cpu(fun, args):
    """What the CPU computes, in float32 inside of kernels, where nothing is one operation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "default_device", lambda: None)
        return flatten(toile.jit(lambda *xs: fun(*xs))(*args))[0]


def on_host_gpu(fun, args, monkeypatch, times=3):
    """What the host computes in the GPU's stead, and the engine that was asked."""
    program, leaves = program_of(fun, args)
    with host_driver.host_gpu(monkeypatch) as (driver, device):
        engine = FakeAttention(driver)
        with cudnn.use(engine):
            executable = host_driver.compiled(program, device)
            for _ in range(times):  # step by step, captured, and as a graph
                got = host_driver.run(executable, [x._data for x in leaves], device)
    return got, engine, executable


class Block(linen.Module):
    """A block of a transformer."""

    masked: bool = True

    @linen.compact
    def __call__(self, x, mask=None):
        if self.masked and mask is None:
            mask = linen.make_causal_mask(x[..., 0])
        h = linen.LayerNorm(dtype=jnp.bfloat16)(x)
        x = x + linen.SelfAttention(2, dtype=jnp.bfloat16, use_bias=False)(h, mask)
        h = linen.LayerNorm(dtype=jnp.bfloat16)(x)
        return x + linen.Dense(x.shape[-1], dtype=jnp.bfloat16)(linen.gelu(h))


def block_loss(masked=True):
    model = Block(masked)

    def loss(variables, x, mask=None):
        return (model.apply(variables, x, mask).astype(jnp.float32) ** 2).mean()

    x = normal(2, 8, 32)
    return loss, model.init(toile.random.key(0), x), x


@on_host
@pytest.mark.parametrize("kind", ["causal", "given", "none"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_transformer_block(kind, whole, monkeypatch):
    loss, variables, x = block_loss(kind == "causal")
    args = [variables, x]
    if kind == "given":
        mask = np.random.default_rng(1).random((2, 1, 8, 8)) < 0.6
        mask[1, 0, 3] = False  # sees nothing
        args.append(mask)
    step = toile.value_and_grad(loss)
    got, engine, executable = on_host_gpu(step, args, monkeypatch)
    close(got, on_cpu(step, args))
    calls = [s.call for s in executable.plan.all_steps() if isinstance(s, CallStep)]
    graphs = [c.description for c in calls if isinstance(c, cudnn.GraphCall)]
    assert [g.backward for g in graphs] == [False, True]
    assert all(g.options.causal == (kind == "causal") for g in graphs)
    assert all(("bias" in dict(g.tensors)) == (kind == "given") for g in graphs)
    assert "exp" not in names(executable.program)  # of a softmax


Q, K, V = normal(2, 8, 4, 16), normal(2, 12, 2, 16, seed=1), normal(2, 12, 2, 16, seed=2)
MASK = np.random.default_rng(3).random((2, 1, 8, 12)) < 0.5
MASK[0, 0, 2] = False
LENGTHS = {"query_seq_lengths": np.array([8, 5], np.int32),
           "key_value_seq_lengths": np.array([12, 7], np.int32)}
EMPTY = {"key_value_seq_lengths": np.array([12, 0], np.int32)}
BIAS = normal(1, 4, 8, 12, dtype=np.float32, seed=4)
LOW = np.where(MASK | (np.arange(12) == 0), 0, np.finfo(np.float32).min).astype(np.float32)

# Options, which of causal, window, lengths and bias cuDNN is told.
FORMS = {
    "plain": ({}, ""),
    "scale": ({"scale": 0.3}, ""),
    "causal": ({"is_causal": True}, "causal"),
    "window": ({"local_window_size": (2, 1)}, "window"),
    "causal window": ({"local_window_size": (2, 1), "is_causal": True}, "causal window"),
    "lengths": (LENGTHS, "lengths"),
    "no keys": (EMPTY, "lengths"),
    "no keys, causal": ({**EMPTY, "is_causal": True}, "bias"),
    "lengths and window": ({**LENGTHS, "local_window_size": 3}, "bias"),
    "mask": ({"mask": MASK}, "bias"),
    "mask for all heads": ({"mask": np.broadcast_to(MASK, (2, 4, 8, 12)).copy()}, "bias"),
    "mask of keys": ({"mask": MASK[:, :, :1]}, "bias"),
    "bias": ({"bias": BIAS}, "bias"),
    "low bias": ({"bias": LOW}, "bias"),
    "half bias, mask, causal": ({"bias": BIAS.astype(bfloat16), "mask": MASK[:1],
                                 "is_causal": True}, "bias"),
    "all": ({"bias": BIAS, "mask": MASK, "is_causal": True, **LENGTHS}, "bias"),
}  # fmt: skip


def attended(options):
    """A loss with its gradients, of heads and of the arrays among options."""
    arrays = {k: v for k, v in options.items() if isinstance(v, np.ndarray)}
    rest = {k: v for k, v in options.items() if k not in arrays}

    def loss(q, k, v, arrays):
        out = toile.nn.dot_product_attention(q, k, v, **arrays, **rest)
        return (out.astype(jnp.float32) * jnp.arange(out.size).reshape(out.shape)).sum(), out

    return toile.grad(loss, (0, 1, 2), has_aux=True), [Q, K, V, arrays]


def told(description):
    """What cuDNN is told, in words."""
    options, tensors = description.options, dict(description.tensors)
    words = [("causal", options.causal), ("window", options.window), ("bias", "bias" in tensors),
             ("lengths", "key_lengths" in tensors)]
    return " ".join(word for word, holds in words if holds)


@on_host
@pytest.mark.parametrize("name", FORMS)
def test_forms(name, whole, monkeypatch):
    options, expected = FORMS[name]
    fun, args = attended(options)
    got, engine, _ = on_host_gpu(fun, args, monkeypatch, times=1)
    assert [(d.backward, told(d)) for d in engine.ran] == [(False, expected), (True, expected)]
    close(got, on_cpu(fun, args))


@on_host
def test_a_bias_that_hides_all_keys(whole, monkeypatch):
    """As a mask does: the mean of the values (and the query's own derivative is zero)."""
    low = np.where(MASK, 0, np.finfo(np.float32).min).astype(np.float32)
    fun = lambda *xs: toile.nn.dot_product_attention(*xs)
    got, _, _ = on_host_gpu(fun, [Q, K, V, low], monkeypatch, times=1)
    close(got, on_cpu(fun, [Q, K, V, low]))
    mean = np.repeat(V[0].astype("f4").mean(0), 2, axis=0)
    np.testing.assert_allclose(got[0][0, 2].astype("f4"), mean, atol=1e-2)


def test_the_sums_are_left_out_where_nothing_uses_them(whole):
    program, _ = program_of(lambda q, k, v: toile.nn.dot_product_attention(q, k, v), [Q, K, V])
    after, _ = described(program)
    [e] = [e for e in after.equations if e.op.name == "fused_attention"]
    assert len(e.outs) == 1 and "test_attention_program" in str(e.source)


@pytest.mark.parametrize("change", [
    lambda q, k, v: tuple(x.astype(jnp.float32) for x in (q, k, v)),
    lambda q, k, v: tuple(x[..., :12] for x in (q, k, v)),
])  # fmt: skip
def test_what_cudnn_does_not_have_is_as_it_was(change, whole, monkeypatch):
    fun = toile.grad(lambda *xs: toile.nn.dot_product_attention(*change(*xs)).sum().astype("f4"))
    after, engine = described(program_of(fun, [Q, K, V])[0])
    assert not engine.asked
    monkeypatch.undo()
    assert sorted(names(after)) == sorted(names(optimize(program_of(fun, [Q, K, V])[0])))


def test_an_engine_that_refuses(whole, monkeypatch):
    fun, args = attended({"is_causal": True})
    engine = FakeAttention(refuse=lambda d: not d.options.causal)
    assert "exp" not in names(described(program_of(fun, args)[0], engine)[0])
    engine = FakeAttention(refuse=lambda d: d.options.causal)  # then as a table
    after, _ = described(program_of(fun, args)[0], engine)
    assert "exp" not in names(after) and "reduce_max" in names(after)
    engine = FakeAttention(refuse=lambda d: d.backward)
    assert "exp" in names(described(program_of(fun, args)[0], engine)[0])
    engine = FakeAttention(refuse=lambda d: True)
    after, _ = described(program_of(fun, args)[0], engine)
    monkeypatch.undo()
    assert names(after) == names(optimize(program_of(fun, args)[0]))


def test_without_a_gpu_nothing_is_whole():
    fun, args = attended({"is_causal": True})
    assert not any("attention" in name for name in names(program_of(fun, args)[0]))


@pytest.mark.parametrize("name", ["plain", "mask", "all"])
def test_the_cpu_has_the_same_program(name, whole, monkeypatch):
    """What was traced as one operation is the plain form again."""
    fun, args = attended(FORMS[name][0])
    program = program_of(fun, args)[0]
    assert [n for n in names(program) if "attention" in n] == ["attention", "attention_gradient"]
    monkeypatch.undo()
    plain = program_of(fun, args)[0]
    assert str(optimize(program)) == str(optimize(plain))


DERIVED = {
    "jvp": lambda f: lambda *xs: toile.jvp(f, xs, xs),
    "hessian": lambda f: toile.hessian(lambda *xs: f(*xs).astype(jnp.float32).sum()),
    "gradient of a gradient": lambda f: toile.grad(
        lambda *xs: (toile.grad(lambda *ys: (f(*ys) ** 2).sum())(*xs) ** 2).sum()),
    "vmap": lambda f: toile.vmap(f, 1, 2),
    "vmap of a gradient": lambda f: toile.vmap(
        toile.grad(lambda *xs: (f(*xs) ** 2).sum(), (0, 1, 2))),
    "vmap with keys for all": lambda f: lambda q, k, v: toile.vmap(f, (0, None, None))(q, k[0],
                                                                                       v[0]),
    "checkpoint": lambda f: toile.grad(toile.checkpoint(lambda *xs: (f(*xs) ** 2).sum())),
    "gradient of jit": lambda f: toile.grad(toile.jit(lambda *xs: (f(*xs) ** 2).sum())),
    "scan": lambda f: toile.grad(lambda q, k, v: toile.lax.scan(
        lambda c, x: (f(c, *x), None), q, (k[:, :, :], v))[0].sum()),
}  # fmt: skip


@on_host
@pytest.mark.parametrize("name", DERIVED)
def test_transformations(name, whole, monkeypatch):
    def attend(q, k, v):
        return toile.nn.dot_product_attention(q, k, v, is_causal=True)

    args = [normal(2, 4, 2, 8), normal(2, 4, 2, 8, seed=1), normal(2, 4, 2, 8, seed=2)]
    if name == "scan":
        args = [args[0], *(normal(3, 2, 4, 2, 8, seed=i) for i in (3, 4))]
    fun = DERIVED[name](attend)
    got, _, _ = on_host_gpu(fun, args, monkeypatch, times=1)
    close(got, on_cpu(fun, args), 6e-2)


def test_mapped_examples_are_one_batch(whole):
    fun = toile.vmap(lambda q, k, v, m: toile.nn.dot_product_attention(q, k, v, mask=m),
                     (0, 0, 0, None))
    args = [normal(3, 2, 8, 4, 16), *(normal(3, 2, 12, 2, 16),) * 2, MASK]
    after, engine = described(program_of(fun, args)[0])
    tensors = dict(engine.asked[-1].tensors)
    assert tensors["q"].dim == (6, 4, 8, 16) and tensors["bias"].dim == (6, 1, 8, 12)
    assert names(after).count("fused_attention") == 1


def test_a_bias_that_is_learned_has_its_gradient(whole, monkeypatch):
    fun = toile.grad(lambda b: (toile.nn.dot_product_attention(Q, K, V, b) ** 2).sum())
    after, engine = described(program_of(fun, [BIAS])[0])
    assert "exp" in names(after)
    assert not any(d.backward for d in engine.asked)


# ---- masks that are known
def counted(fun, *args):
    """What is known of the mask that a function gives."""
    program, _ = program_of(lambda *xs: [fun(*xs)], args)
    inner = optimize(program)
    return masks.known_as(inner.outputs[0], inner.equations)


@pytest.mark.parametrize("fun, known", [
    (lambda x: linen.make_causal_mask(x), "causal"),
    (lambda x: linen.make_causal_mask(x, dtype=bool), "causal"),
    (lambda x: linen.combine_masks(linen.make_causal_mask(x), linen.make_causal_mask(x)), "causal"),
    (lambda x: jnp.tril(jnp.ones((6, 6), bool))[None, None], "causal"),
    (lambda x: jnp.arange(6)[:, None] >= jnp.arange(6), "causal"),
    (lambda x: jnp.ones((4, 1, 6, 6)), "all"),
    (lambda x: jnp.arange(6)[:, None] > jnp.arange(6), None),
    (lambda x: jnp.triu(jnp.ones((6, 6))), None),
    (lambda x: linen.make_attention_mask(x > 0, x > 0), None),
    (lambda x: linen.combine_masks(linen.make_causal_mask(x),
                                   linen.make_attention_mask(x > 0, x > 0)), None),
    (lambda x: jnp.arange(4)[:, None, None, None] < jnp.arange(6)[:, None] - jnp.arange(6), None),
])  # fmt: skip
def test_known_masks(fun, known):
    assert counted(fun, normal(4, 6, dtype=np.float32)) == known


def test_a_known_mask_is_looked_at_for_one_example():
    """A batch of masks of long sequences is not computed."""
    fun = lambda x: linen.make_causal_mask(x)
    assert counted(fun, np.zeros((100_000, 64), np.float32)) == "causal"


# ---- the operations themselves
@pytest.mark.parametrize("options, extras", [
    ({}, {}), ({"causal": True}, {}), ({"window": (2, 1)}, {}),
    ({}, {"bias": normal(1, 4, 8, 12)}),
    ({}, {"query_lengths": LENGTHS["query_seq_lengths"],
          "key_lengths": LENGTHS["key_value_seq_lengths"]}),
])  # fmt: skip
def test_the_operations_mean_what_cudnn_does(options, extras):
    """`eager`, which runs where the library declines, against the description's meaning."""
    options = attending.Options(0.25, **options)
    op = attending.FusedAttention(options, tuple(extras))
    out, sums = op.eager(np, Q, K, V, *extras.values())
    ct = normal(*out.shape, seed=7)
    grad = attending.FusedAttentionGradient(options, tuple(extras))
    given = (Q, K, V, out, sums, ct, *extras.values())
    found = grad.eager(np, *given)
    for one, xs, outs in ((op, (Q, K, V, *extras.values()), (out, sums)), (grad, given, found)):
        made = computed(one, xs)
        for a, b, aval in zip(made, outs, one.infer(*[toile.ShapeDtypeStruct(x.shape, x.dtype)
                                                     for x in xs]), strict=True):
            assert (aval.shape, aval.dtype) == (b.shape, b.dtype)
            ok = np.isfinite(b.astype("f4"))
            close(a[ok], b[ok], 1e-2)


def computed(op, xs):
    """An operation's results by its lowering, on the host."""
    plan = FakePlan()
    ins = [plan.operand(x) for x in xs]
    avals = op.infer(*[toile.ShapeDtypeStruct(x.shape, x.dtype) for x in xs])
    arrays = [np.zeros(a.shape, a.dtype) for a in avals]
    lower = attending.lower if isinstance(op, attending.FusedAttention) \
        else attending.lower_gradient
    engine = FakeAttention()
    with cudnn.use(engine):
        assert lower(op, ins, [plan.operand(a) for a in arrays], plan)
        plan.run(engine)
    return arrays


# ---- on a device
@pytest.mark.gpu
@pytest.mark.parametrize("name", FORMS)
def test_forms_on_a_device(name):
    if cudnn.engine() is None:
        pytest.skip(cudnn.frontend()[1])
    options, _ = FORMS[name]
    big = {n: np.tile(a, (1, 1, 8 if a.shape[2] > 1 else 1, 8)) if a.ndim == 4 else a * 8
           for n, a in options.items() if isinstance(a, np.ndarray)}
    rest = {n: a for n, a in options.items() if n not in big}
    q, k, v = normal(2, 64, 4, 64), normal(2, 96, 2, 64, seed=1), normal(2, 96, 2, 64, seed=2)

    def fun(q, k, v, arrays):
        def loss(q, k, v):
            out = toile.nn.dot_product_attention(q, k, v, **arrays, **rest)
            return (out.astype(jnp.float32) * jnp.cos(jnp.arange(out.size).reshape(out.shape))
                    ).sum(), out

        return toile.grad(loss, (0, 1, 2), has_aux=True)(q, k, v)

    compare_devices(fun, [q, k, v, big])


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["causal", "given", "none"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_transformer_block_on_a_device(kind):
    if cudnn.engine() is None:
        pytest.skip(cudnn.frontend()[1])
    loss, variables, x = block_loss(kind == "causal")
    mask = [np.random.default_rng(1).random((2, 1, 8, 8)) < 0.6] if kind == "given" else []
    compare_devices(toile.value_and_grad(loss), [variables, x, *mask])


def compare_devices(fun, args):
    """The GPU's results equal the CPU's, and are the same each time."""
    with toile.default_device(toile.devices("cpu")[0]):
        wanted = [np.asarray(x) for x in flatten(toile.jit(lambda *xs: fun(*xs))(*args))[0]]
    compiled = toile.jit(lambda *xs: fun(*xs))
    runs = [[np.asarray(x) for x in flatten(compiled(*args))[0]] for _ in range(3)]
    text = str(toile.make_jaxpr(fun)(*args))
    assert "attention_gradient" in text
    close(runs[0], wanted)
    for run in runs[1:]:
        for a, b in zip(runs[0], run, strict=True):
            np.testing.assert_array_equal(a, b)
