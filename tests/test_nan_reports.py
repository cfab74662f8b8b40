"""`toile.checks("nan")`: what the report says about the operation that produced the first NaN.

Each program of the table marks the line that must be reported with `# the line`, and, if that line
is a user's backward rule, the differentiated line with `# the forward line`.
"""

import re
import types
import warnings
from pathlib import Path

import numpy as np
import pytest

import toile
import toile.linen as nn
import toile.numpy as jnp
from toile import lax, optim
from toile.engine import nan_notices, value_ranges
from toile.engine.value_origins import infinities
from toile.platforms.gpu import late
from toile.platforms.gpu.gpus import GpuPlatform
from toile.training.progress import progress
from toile.training.train_state import TrainState

LINES = Path(__file__).read_text().splitlines()


def line_in(name, mark="# the line"):
    """The number of the marked line in a function of this file."""
    start = next(i for i, text in enumerate(LINES) if re.match(rf"(def|class) {name}\b", text))
    return next(i + 1 for i in range(start, len(LINES)) if LINES[i].endswith(mark))


def report(fun, *args):
    """The error that a call raises while the check is on."""
    with toile.checks("nan"), pytest.raises(FloatingPointError) as found:
        fun(*args)
    return str(found.value)


# ------------------------------------------------------------------------------------ the programs


def logarithm(w, x):
    return jnp.sum(jnp.log(x @ w))  # the line


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Dense(2, name="first", kernel_init=nn.initializers.ones)(x)
        return Root(name="root")(x)


class Root(nn.Module):
    @nn.compact
    def __call__(self, x):
        y = x - 1.0
        return jnp.sqrt(y)  # the line


NET = {"params": {"first": {"kernel": jnp.ones((3, 2)), "bias": jnp.zeros(2)}}}


def module(variables, x):
    return jnp.sum(Net().apply(variables, x))


def masked_log(x):
    y = 2.0 * x
    return jnp.sum(jnp.where(y > 0, jnp.log(y), 0.0))  # the line


def length(x):
    return jnp.linalg.norm(x)  # the line


def power(x):
    y = jnp.sqrt(x)  # the line
    return jnp.sum(y**2)


def loop(x):
    def body(c, t):
        c = c - t
        return jnp.sqrt(c), c  # the line

    return lax.scan(body, x, jnp.array([0.0, 0.0, 5.0, 0.0]))[0]


def loop_back(x):
    def body(c, t):
        n = c + jnp.where(t > 0, jnp.log(t * c), 0.0)  # the line
        return n, n

    return lax.scan(body, x, jnp.array([1.0, 1.0, 0.0, 1.0]))[0]


def reversed_loop(x):
    def body(c, t):
        return jnp.log(c - t), c  # the line

    return lax.scan(body, x, jnp.array([0.0, 0.0, 5.0, 0.0]), reverse=True)[0]


def nested_loop(x):
    def inner(i, c):
        return jnp.sqrt(c - i)  # the line

    return lax.fori_loop(0, 2, lambda i, c: lax.fori_loop(0, 3, inner, c), x)


def while_loop(x):
    def body(c):
        return jnp.sqrt(c[0] - 1.0), c[1] + 1  # the line

    return lax.while_loop(lambda c: c[1] < 5, body, (x, 0))[0]


def branch(x):
    def bad(x):
        return jnp.log(x)  # the line

    return lax.cond(x[0] < 0, bad, lambda x: x, x)


def mapped(x):
    def one(row):
        return jnp.log(row)  # the line

    return toile.vmap(one)(x)


@toile.custom_vjp
def ruled(x):
    return jnp.sin(x)


def ruled_forward(x):
    return jnp.sin(x), x


def ruled_backward(x, ct):
    scale = x / x  # the line
    return (ct * scale,)


ruled.defvjp(ruled_forward, ruled_backward)


def with_rule(x):
    return jnp.sum(ruled(x))  # the forward line


@toile.custom_jvp
def hooked(x):
    return x


@hooked.defjvp
def hooked_rule(primals, tangents):
    (x,), (dx,) = primals, tangents
    slope = jnp.log(x)  # the line
    return x, dx * slope


def with_jvp(x):
    return jnp.sum(hooked(x))


@toile.checkpoint
def recomputed(x):
    y = jnp.sin(x)
    return jnp.sum(jnp.where(y > 0, jnp.log(y), 0.0))  # the line


@toile.jit
def inner(x):
    return jnp.log(x)  # the line


def outer(x):
    return inner(x) + 1


def difference(x):
    y = jnp.exp(x)
    return y - jnp.exp(2 * x)  # the line


ZERO_TWO = jnp.array([2.0, 0.0])
WEIGHTS, ROWS = jnp.array([1.0, -1.0]), jnp.ones((4, 2)) * jnp.array([1.0, 2.0])
BACK = "(backward pass of this line)"

# name, function, arguments, whether its gradient is taken, function with the line, texts
PROGRAMS = [
    ("plain", logarithm, (WEIGHTS, ROWS), False, "logarithm",
     ["encountered in log: 4 of the 4 values of its result are NaN, the first at [0]: log(-1.0)",
      "operand 0: float32[4] in [-1.0, -1.0]", "return jnp.sum(jnp.log(x @ w))"]),
    ("module", module, (NET, -jnp.ones((1, 3))), False, "Root",
     ["in sqrt:", "in module Net/root", "float32[1,2] in [-4.0, -4.0]", "return jnp.sqrt(y)"]),
    ("masked", masked_log, (ZERO_TWO,), True, "masked_log",
     [BACK, "in div: 1 of the 2 values of its result is NaN, the first at [1]: div(0.0, 0.0)",
      "operand 1: float32[2] in [0.0, 4.0]"]),
    ("norm", length, (jnp.zeros(3),), True, "length",
     [BACK, "mul(inf, 0.0)", "operand 1: float32[3] in [0.0, 0.0]",
      "float32[3], 3 inf; suspicious: inf from div in the backward pass at"]),
    ("root", power, (ZERO_TWO,), True, "power",
     [BACK, "mul(0.0, inf)", "1 inf; suspicious: inf from div in the backward pass at"]),
    ("scan", loop, (4.0,), False, "loop",
     ["sqrt(-3.5857863)", "in iteration 2 (counting from 0) of the scan at", "float32[] = -3.5"]),
    ("scan backward", loop_back, (1.0,), True, "loop_back",
     [BACK, "in iteration 2 (counting from 0) of the scan at", "div(0.0, 0.0)"]),
    ("reversed", reversed_loop, (1.0,), False, "reversed_loop",
     ["log(-5.0)", "in iteration 1 (counting from 0) of the scan at"]),
    ("nested", nested_loop, (5.0,), False, "nested_loop",
     ["in iteration 0 (counting from 0) of the scan", "in iteration 2 (counting from 0) of the"]),
    ("while", while_loop, (3.0,), False, "while_loop",
     ["sqrt(-0.35640", "in iteration 2 (counting from 0) of the while_loop at"]),
    ("cond", branch, (jnp.array([-1.0, 2.0]),), False, "branch",
     ["log(-1.0)", "float32[2] in [-1.0, 2.0]"]),
    ("vmap", mapped, (jnp.array([[1.0, 2.0], [2.0, -1.0]]),), False, "mapped",
     ["the first at [1, 1]: log(-1.0)", "float32[2,2] in [-1.0, 2.0]"]),
    ("custom_vjp", with_rule, (ZERO_TWO,), True, "ruled_backward",
     ["div(0.0, 0.0)", "(backward pass of", "return jnp.sum(ruled(x))"]),
    ("custom_jvp", with_jvp, (-ZERO_TWO - 1,), True, "hooked_rule", ["log(-3.0)"]),
    ("remat", recomputed, (ZERO_TWO,), True, "recomputed",
     [BACK, "operand 0 (a derivative): float32[2]", "operand 1: float32[2] in [0.0, 0.90929"]),
    ("inner", outer, (-ZERO_TWO,), False, "inner", ["log(-2.0)"]),
    ("infinite", difference, (jnp.array([1.0, 100.0]),), False, "difference",
     ["sub(inf, inf)", "1 inf; suspicious: inf from exp at", "(keep its operands finite, "]),
]  # fmt: skip


@pytest.mark.parametrize("compiled", [True, False], ids=["jit", "eager"])
@pytest.mark.parametrize("row", PROGRAMS, ids=[row[0] for row in PROGRAMS])
def test_the_report_describes_the_first_operation(row, compiled):
    _, fun, args, differentiated, name, texts = row
    run = toile.grad(fun) if differentiated else fun
    found = report(toile.jit(run) if compiled else run, *args)
    assert f"{__file__}:{line_in(name)} in " in found, found
    seen = found
    if not compiled:  # outside jit, only operations with Programs know which operands these are
        seen, texts = (str(x).replace(" (a derivative)", "") for x in (found, "\0".join(texts)))
        texts = texts.split("\0")
    assert [text for text in texts if text not in seen] == [], found
    if compiled:
        forward = "(forward pass)" in found
        assert forward is (not differentiated or fun is with_jvp), found
        assert run(*args) is not None  # without the check, nothing is raised
    assert len(found.splitlines()) <= 9 and "toile.checks" in found.splitlines()[-1]


def test_a_rule_names_the_line_that_it_differentiates():
    found = report(toile.jit(toile.grad(with_rule)), ZERO_TWO)
    assert f"(backward pass of {__file__}:{line_in('with_rule', '# the forward line')}: " in found


@pytest.mark.parametrize(
    "fun", [lambda x: jnp.where(x > 0, jnp.log(x), 0.0), lambda x: jnp.nanmax(jnp.log(x))]
)
def test_masked_nans_are_no_error_under_jit(fun):
    with toile.checks("nan"):
        toile.jit(fun)(-ZERO_TWO)


def test_the_report_ignores_nans_that_were_masked():
    def fun(x):
        masked = jnp.where(x > 0, jnp.log(x), 0.0)
        return masked + jnp.arcsin(x)

    found = report(toile.jit(fun), jnp.array([-2.0, 0.5]))
    assert "encountered in asin" in found and "asin(-2.0)" in found


def test_an_argument_that_contains_a_nan_is_named():
    @toile.jit
    def step(state, batch):
        return state * batch["image"]

    batch = {"image": jnp.array([1.0, jnp.nan]), "label": jnp.array([1.0, 2.0])}
    found = report(step, jnp.ones(2), batch)
    assert "the argument batch['image'] of step already contained it: float32[2]" in found
    assert "1 NaN" in found
    table = jnp.array([jnp.nan, 1.0])
    found = report(toile.jit(lambda x: x + table), 1.0)
    assert "a value that <lambda> closed over" in found


def test_donated_arguments_are_kept_until_the_results_are_known():
    f = toile.jit(lambda x: jnp.log(x), donate_argnums=0)
    x = jnp.array([-1.0, 2.0])
    assert "float32[2] in [-1.0, 2.0]" in report(f, x)
    np.testing.assert_array_equal(x, [-1.0, 2.0])  # still there
    with toile.checks("nan"):
        f(x := jnp.array([1.0, 2.0]))
    assert x.is_deleted()


def test_infinite_parameters_of_an_earlier_step_have_their_origin():
    @toile.jit
    def step(params):
        return toile.tree.map(lambda p, g: p - 0.1 * g, params, toile.grad(power_sum)(params))

    def power_sum(params):
        return jnp.sum(jnp.sqrt(params["w"]))

    with toile.checks("nan"):
        params = step({"w": ZERO_TWO})
    assert np.isinf(np.asarray(params["w"])).any()
    found = report(step, params)
    assert "sqrt(-inf)" in found and "inf from div in the backward pass at" in found


def test_a_program_that_returns_infinities_is_replayed_a_few_times_only(monkeypatch):
    calls = []
    monkeypatch.setattr(
        "toile.engine.value_origins.origin_of", lambda *args: calls.append(args) or None
    )
    f = toile.jit(lambda x: jnp.log(x))
    with toile.checks("nan"):
        for _ in range(10):
            f(jnp.zeros(2))
    assert len(calls) == infinities.REPLAYS


def test_the_optimizer_is_after_the_backward_pass():
    tx = optim.adam(0.1)

    @toile.jit
    def step(params, state):
        grads = toile.grad(lambda p: jnp.sum(jnp.sqrt(p)))(params)
        return tx.update(grads, state, params)

    found = report(step, ZERO_TWO, tx.init(ZERO_TWO))
    assert "(after the backward pass)" in found and "div(inf, inf)" in found


def test_a_train_step_of_a_module_names_module_and_pass():
    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            return Root(name="root")(nn.Dense(2)(x))

    model = Model()
    params = model.init(toile.random.key(0), jnp.ones((1, 3)))["params"]
    params = toile.tree.map(jnp.ones_like, params)  # Dense gives 4, then 3 in Root
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optim.sgd(0.1))

    @toile.jit
    def step(state, x):
        def loss(params):
            return state.apply_fn({"params": params}, x).sum() * 0.0

        return state.apply_gradients(grads=toile.grad(loss)(state.params))

    with toile.checks("nan"):
        step(state, jnp.ones((1, 3)))
    found = report(step, state, jnp.zeros((1, 3)))  # the root of zero has no finite derivative
    assert "in module Model/root" in found and BACK in found and "mul(0.0, inf)" in found


def test_a_mapped_function_names_the_device():
    def fun(x):
        return lax.pmean(jnp.log(x), "i")

    rows = jnp.ones((toile.local_device_count(), 2)).at[-1, 1].set(-1.0)
    found = report(toile.pmap(fun, axis_name="i"), rows)
    assert "encountered in log" in found and "log(-1.0)" in found
    assert f"on device {len(rows) - 1} of the mapped function" in found


def test_debug_infs_reports_the_operation_that_made_an_infinity():
    with toile.debug_infs(True), pytest.raises(FloatingPointError) as found:
        toile.jit(lambda x: jnp.exp(x) + 1)(jnp.array([1.0, 100.0]))
    assert "invalid value (inf) encountered in exp" in str(found.value)
    assert "debug_infs off" in str(found.value) and "the first at [1]: exp(100.0)" in str(
        found.value)


def test_a_compiled_nan_that_the_operations_do_not_produce(monkeypatch):
    monkeypatch.setattr("toile.engine.checked.origin_of", lambda *args: None)
    assert "run one by one, did not" in report(toile.jit(jnp.log), -ZERO_TWO)


def test_the_documentation_shows_the_report_that_its_program_prints(capsys):
    page = Path(__file__).parent.parent / "docs" / "debugging.md"
    text = page.read_text()
    found = re.search(r"^## NaN\n.*?^```python\n(.*?)^```\n```text\n(.*?)^```", text, re.S | re.M)
    before = text[: found.start(1)].count("\n")
    code = compile("\n" * before + found[1], str(page), "exec", dont_inherit=True)
    exec(code, {"toile": toile, "jnp": jnp})
    assert capsys.readouterr().out.replace(str(page), page.name) == found[2]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("values", [[1, 2], [1, np.nan], [np.inf, 1], [np.nan, -np.inf], []])
def test_non_finite_agrees_with_numpy(dtype, values):
    with toile.enable_x64(True):
        x = jnp.array(values, dtype)
        data = np.array(values, np.float64)
        expected = bool(np.isnan(data).any()), bool(np.isinf(data).any())
        assert value_ranges.non_finite(x) == expected
        assert value_ranges.non_finite(jnp.stack([x, x], 1)[:, 0]) == expected


class Elsewhere:
    """An array on a device, whose values lie in memory of the host."""

    copied = 0

    def __init__(self, values, device):
        self.values = np.array(values, np.float32)
        self._signature = types.SimpleNamespace(device=device, buffer_dtype=np.dtype(np.float32))

    @property
    def _data(self):
        Elsewhere.copied += self.values.size
        return self.values


def test_a_gpu_copies_only_results_that_its_kernel_cannot_read(monkeypatch):
    def non_finite(arrays):
        return [value_ranges.non_finite_host(x.values) for x in arrays] if asked(arrays) else None

    def asked(arrays):
        (device,) = {x._signature.device for x in arrays}
        return device == "aligned"

    tests = types.SimpleNamespace(can_read=lambda form: True, non_finite=non_finite)
    monkeypatch.setattr(Elsewhere, "copied", 0)
    monkeypatch.setattr(late, "finite_tests", lambda: tests)
    gpus = GpuPlatform()
    monkeypatch.setattr(gpus, "get", lambda data: data)
    rows = [[1, 2] * 50, [1, np.nan], [np.inf, 1, 2]]
    arrays = [Elsewhere(row, "aligned") for row in rows]
    arrays[1:1] = [Elsewhere([1, 2, 3, np.nan], "not aligned"), Elsewhere([4] * 8, None)]
    assert gpus.non_finite(arrays) == [(False, False), (True, False), (False, False),
                                       (True, False), (False, True)]
    assert Elsewhere.copied == 4 + 8


def test_large_numbers_are_finite():
    x = jnp.array([3e38, 1.0], jnp.float32)
    assert value_ranges.non_finite(x) == (False, False)
    assert value_ranges.is_huge(x) and not value_ranges.is_huge(jnp.array([1e18]))
    found = report(toile.jit(lambda x: x * 10 - x * 10), x)
    assert "suspicious: inf from mul" in found


# -------------------------------------------------------------------------------------- training


@pytest.fixture
def watching(monkeypatch):
    monkeypatch.setattr(nan_notices.notices, "noticed", False)
    monkeypatch.setattr(nan_notices.notices, "training", False)


class Sink(list):
    def write(self, text):
        self.append(text)

    def flush(self):
        pass


def read_with_writer(loss, tmp_path):
    from toile.metrics.writers import ConsoleWriter

    ConsoleWriter(Sink()).write_scalars(1, {"train_loss": loss})


def read_with_bar(loss, tmp_path):
    with progress(total=2, stream=Sink(), enabled=True) as bar:
        bar.show(loss=loss)


def read_with_float(loss, tmp_path):
    float(loss)


READERS = [read_with_writer, read_with_bar, read_with_float]


@pytest.mark.parametrize("read", READERS)
def test_a_nan_loss_is_noticed_once_when_it_is_read(read, watching, tmp_path):
    state = TrainState.create(apply_fn=None, params=jnp.ones(2), tx=optim.sgd(0.1))
    state.apply_gradients(grads=jnp.ones(2))
    loss = jnp.float32(np.nan)
    read(jnp.float32(1.0), tmp_path)
    with pytest.warns(RuntimeWarning, match=r'is NaN.*toile.checks\("nan"\).*--checks=nan') as seen:
        read(loss, tmp_path)
    assert len(seen) == 1 and seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(loss, tmp_path)


@pytest.mark.parametrize("case", ["no training", "not a loss", "check is on"])
def test_other_nans_are_not_noticed(case, watching, tmp_path):
    nan = jnp.float32(np.nan)
    if case == "no training":
        read_with_float(nan, tmp_path)
    elif case == "not a loss":
        with progress(total=2, stream=Sink(), enabled=True) as bar:
            bar.show(accuracy=nan)
    else:
        with toile.checks("nan"):
            read_with_writer(nan, tmp_path)


def test_repeated_calls_keep_the_fast_path(monkeypatch):
    def step(scale, state, rate, *, sign):
        value = rate * state["x"] * sign
        return {"x": value}, scale * value.sum()

    step = toile.jit(step, donate_argnums=1, static_argnames="sign")
    with toile.checks("nan"):
        state = {"x": jnp.ones(3)}
        for _ in range(8):
            state, _ = step(1.0, state, jnp.float32(1), sign=-1)
        with monkeypatch.context() as m:
            m.setattr(type(step), "_key", None)  # the general path asks for the key
            given = state
            state, total = step(1.0, given, jnp.float32(1), sign=-1)
            assert given["x"].is_deleted() and total == -3
        kept = {"x": jnp.full(3, -jnp.inf)}
        step(1.0, kept, jnp.float32(2), sign=-1)  # an infinity is no error
        assert kept["x"].is_deleted()
        kept = {"x": jnp.array([1.0, jnp.inf, 2.0])}
        with pytest.raises(FloatingPointError, match="mul"):
            step(1.0, kept, jnp.float32(0), sign=-1)
        assert not kept["x"].is_deleted()  # the error message has looked at it
