"""`toile.debug.step`: the forward and the backward pass, one operation at a time, in pdb."""

from __future__ import annotations

import functools
import io
import os
import subprocess
import sys
import textwrap
from bdb import BdbQuit
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import lax, random
from toile import linen as nn
from toile.api.stepping import Wanted

X = jnp.linspace(0.1, 1.2, 12).reshape(4, 3)
W = jnp.linspace(-1.0, 1.0, 3)
HERE = Path(__file__).name


def pdb_session(fun: Any, commands: list[str], *args: Any, **options: Any) -> tuple[Any, list[str]]:
    """The result of a function, and what pdb answered to each command."""
    answers = io.StringIO()
    stdin = io.StringIO("".join(c + "\n" for c in commands))
    result = toile.debug.step(fun, stdin=stdin, stdout=answers, **options)(*args)
    assert not stdin.read(), "not all commands were read"
    return result, answers.getvalue().split("(Pdb) ")


class Seen(list[tuple[str, dict[str, Any]]]):
    """Stops of a debugger of the user's: the name of the function and its variables."""

    def __call__(self) -> None:
        frame = sys._getframe(1)
        self.append((frame.f_code.co_name, dict(frame.f_locals)))

    def names(self) -> list[str]:
        return [name for name, _ in self]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    found = Seen()
    monkeypatch.setattr(sys, "breakpointhook", found)
    return found


def numbers(x: Any) -> np.ndarray:
    return np.asarray(x, np.float64)


# ------------------------------------------------------------------- programs with a breakpoint


def straight(w, x):
    h = jnp.tanh(x * w)
    breakpoint()
    return jnp.sum(h * h)


def in_scan(w, x):
    def body(carry, row):
        h = jnp.sin(carry * w) + row
        breakpoint()
        return h, h.sum()

    carry, ys = lax.scan(body, jnp.ones(3), x)
    return jnp.sum(carry) + jnp.sum(ys)


def in_fori(w, x):
    def body(i, h):
        breakpoint()
        return jnp.sin(h * w + i.astype(jnp.float32))

    return jnp.sum(lax.fori_loop(0, 4, body, x[0]))


def in_while(w, x):
    def body(state):
        i, h = state
        breakpoint()
        return i + 1, jnp.sin(h * w)

    return jnp.sum(lax.while_loop(lambda s: s[0] < 4, body, (0, x[0] + 0 * w))[1])


def in_cond(w, x):
    def yes(h):
        breakpoint()
        return h * w

    return jnp.sum(lax.cond(x[0, 0] > 0, yes, lambda h: h, x))


def in_jit(w, x):
    @toile.jit
    def inner(h):
        breakpoint()
        return toile.jit(jnp.sin)(h) * w

    return jnp.sum(inner(x))


def in_remat(w, x):
    def inner(h):
        breakpoint()
        return jnp.sin(h * w)

    return jnp.sum(toile.checkpoint(inner)(x))


def in_vmap(w, x):
    def inner(h):
        breakpoint()
        return jnp.sin(h * w)

    return jnp.sum(toile.vmap(inner)(x))


@toile.custom_vjp
def clipped(x):
    breakpoint()
    return x * 2


def clipped_forward(x):
    breakpoint()
    return x * 2, x


def clipped_backward(x, ct):
    breakpoint()
    return (jnp.clip(ct, -0.5, 0.5) * x,)


clipped.defvjp(clipped_forward, clipped_backward)


class Layer(nn.Module):
    @nn.compact
    def __call__(self, x):
        y = nn.Dense(3, name="mix")(x)
        breakpoint()
        return jnp.tanh(y)


class Body(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        return Layer(name="layer")(x), None


class Net(nn.Module):
    kind: str = "plain"

    @nn.compact
    def __call__(self, x):
        if self.kind == "scan":
            x, _ = nn.scan(Body, variable_axes={"params": 0}, split_rngs={"params": True},
                           length=4)(name="layers")(x, None)
            return x
        layer = nn.remat(Layer) if self.kind == "remat" else Layer
        return layer(name="layer")(x)


def in_module(kind):
    def loss(w, x):
        model = Net(kind)
        variables = model.init(random.key(0), x)
        return jnp.sum(model.apply(variables, x * w))

    return loss


# name: the function, stops in the forward pass of its gradient, stops in the backward pass
PROGRAMS = {
    "straight": (straight, 1, 1),
    "scan": (in_scan, 4, 4),
    "fori": (in_fori, 4, 4),
    "cond": (in_cond, 1, 1),
    "jit": (in_jit, 1, 1),
    "remat": (in_remat, 1, 1),
    "vmap": (in_vmap, 1, 1),
    "module": (in_module("plain"), 2, 1),
    "module remat": (in_module("remat"), 2, 1),
    "module scan": (in_module("scan"), 8, 4),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_breakpoint_stops_in_both_passes_and_changes_nothing(name, seen):
    fun, forward, backward = PROGRAMS[name]
    found = toile.debug.step(toile.jit(toile.value_and_grad(fun)))(W, X)
    back = [n.startswith("backward of ") for n in seen.names()]
    assert back == [False] * forward + [True] * backward
    assert len({n.removeprefix("backward of ") for n in seen.names()}) == 1
    for _, values in seen[forward:]:
        assert values["cotangents"]
        for value in [*values["cotangents"].values(), values["__step__"].variables]:
            toile.tree.map(lambda x: None if isinstance(x, str) else str(x), value)
    sys.breakpointhook = lambda: None
    wanted = toile.jit(toile.value_and_grad(fun))(W, X)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(numbers(a), numbers(b), rtol=2e-5, atol=1e-6)
        assert a.dtype == b.dtype and a.weak_type == b.weak_type


def test_a_pdb_session_stops_in_the_backward_pass_of_a_scan_body():
    commands = ["continue"] * 4 + ["p row.mean()", "p turn", "list", "p cotangents['h'].shape",
                                   "where", "continue", "p row.mean()", "row.sum() > 2",
                                   "continue", "continue", "continue"]
    _, answers = pdb_session(toile.jit(toile.grad(in_scan)), commands, W, X)
    # the last row comes first
    assert "backward pass at a breakpoint (turn 3)" in answers[4]
    assert f"{HERE}" in answers[4] and "backward of body()" in answers[4]
    assert answers[4].rstrip().endswith("-> breakpoint()")
    assert answers[5].strip() == repr(X[3].mean())
    assert answers[6].strip() == "3"
    assert "h = jnp.sin(carry * w) + row" in answers[7]
    assert answers[8].strip() == "(3,)"
    assert "pdb_session" in answers[9] and "transpose.py" not in answers[9]
    assert answers[11].strip() == repr(X[2].mean())
    assert answers[12].strip() == repr(X[2].sum() > 2)


def test_the_step_command_goes_through_the_backward_pass_one_operation_at_a_time():
    commands = ["continue", "p cotangents['h']", "step", "p op, operands[0].shape", "next",
                "p op", "p w is not None, 'h' in locals()", "continue"]
    _, answers = pdb_session(toile.grad(straight), commands, W, X)
    h = jnp.tanh(X * W)
    np.testing.assert_allclose(eval(answers[2].strip(), {"Array": lambda x, dtype: np.array(x),
                                                         "float32": None}), 2 * h, rtol=1e-5)
    assert "backward pass of tanh" in answers[3] and "h = jnp.tanh(x * w)" in answers[3]
    assert answers[4].strip() == "('tanh', (4, 3))"
    assert "backward pass of mul" in answers[5]
    assert answers[6].strip() == "'mul'"
    assert answers[7].strip() == "(True, False)"


def test_the_forward_pass_is_debugged_in_the_users_own_frames():
    def fun(x):
        y = jnp.log(x - 1)
        z = y * 2
        return z.sum()

    commands = ["p __step__.op, __step__.operands[0].shape", "p 'y' in locals()", "next",
                "p y.shape", "up", "down", "p x.sum() > 0", "continue"]
    _, answers = pdb_session(toile.jit(toile.grad(fun)), commands, X, nan=True)
    assert "forward pass of log" in answers[0] and "12 NaN" not in answers[0]
    assert "NaN): the first NaN" in answers[0]
    assert answers[0].rstrip().endswith("-> y = jnp.log(x - 1)")
    assert answers[1].strip() == "('log', (4, 3))"
    assert answers[2].strip() == "False"
    assert answers[3].rstrip().endswith("-> z = y * 2")
    assert answers[4].strip() == "(4, 3)"
    assert "pdb_session" in answers[5] and "fun()" in answers[6]
    assert answers[7].strip() == "Array(True, dtype=bool)"


def test_pdbs_own_breakpoints_stop_in_both_passes():
    line = straight.__code__.co_firstlineno + 1
    commands = [f"break {Path(__file__)}:{line}, x[0, 0] > 0", "continue", "p sorted(locals())",
                "continue", "continue", "continue", "p cotangent.shape", "clear 1", "continue"]
    _, answers = pdb_session(toile.grad(straight), commands, W, X, start=True)
    assert answers[2].rstrip().endswith("-> h = jnp.tanh(x * w)")
    assert "'x'" in answers[3]
    assert "backward pass of tanh" in answers[6]  # once, although the line has two operations
    assert answers[7].strip() == "(4, 3)"


def test_variables_of_the_backward_pass_are_those_of_the_forward_pass(seen):
    toile.debug.step(toile.grad(in_scan))(W, X)
    forward = [values for _, values in seen[:4]]
    backward = [values for _, values in seen[4:]]
    for turn, (a, b) in enumerate(zip(forward, backward[::-1], strict=True)):
        assert b["turn"] == turn
        np.testing.assert_array_equal(b["row"], X[turn])
        for name in ("h", "carry", "w", "row"):
            np.testing.assert_array_equal(b[name], getattr(a[name], "primal", a[name]))


def test_cotangents_are_gradients_with_respect_to_the_variables(seen):
    toile.debug.step(toile.grad(in_scan))(W, X)

    def rest(h, turn):  # what follows the breakpoint of a turn
        total = h.sum()
        for row in X[turn + 1 :]:
            h = jnp.sin(h * W) + row
            total += h.sum()
        return total + h.sum()

    for _, values in seen[4:]:
        turn = values["turn"]
        wanted = toile.grad(rest)(values["h"], turn)
        np.testing.assert_allclose(values["cotangents"]["h"], wanted, rtol=1e-4)


def test_a_while_loop_that_is_differentiated_stops_in_each_turn(seen):
    found = toile.debug.step(lambda: toile.jvp(in_while, (W, X), (W, X)))()
    assert seen.names() == ["body"] * 4
    sys.breakpointhook = lambda: None
    for a, b in zip(found, toile.jvp(in_while, (W, X), (W, X)), strict=True):
        np.testing.assert_allclose(numbers(a), numbers(b), rtol=1e-5)
    assert [int(getattr(v["i"], "primal", v["i"])) for _, v in seen] == [0, 1, 2, 3]


def test_the_gradient_of_a_while_loop_stops_in_each_turn(seen):
    found = toile.debug.step(toile.grad(in_while))(W, X)
    assert seen.names() == ["body"] * 4 + ["backward of body"] * 4
    assert [v["turn"] for _, v in seen[4:]] == [3, 2, 1, 0]

    def unrolled(w, h):
        for _ in range(4):
            h = jnp.sin(h * w)
        return h.sum()

    np.testing.assert_allclose(found, toile.grad(unrolled)(W, X[0]), rtol=1e-5)


def test_custom_rules_stop_in_the_users_own_frames(seen):
    fun = toile.jit(toile.grad(lambda x: jnp.sum(clipped(jnp.sin(x)))))
    found = toile.debug.step(fun)(X)
    assert seen.names() == ["clipped_forward", "clipped_backward"]
    np.testing.assert_array_equal(seen[1][1]["ct"], jnp.ones((4, 3)))
    sys.breakpointhook = lambda: None
    np.testing.assert_allclose(found, fun(X), rtol=1e-5)


@pytest.mark.parametrize("outer", [False, True])
def test_batches_are_shown_whole(outer, seen):
    def fun(x):
        y = x * x
        breakpoint()
        return jnp.sum(jnp.sin(y))

    if outer:
        found = toile.debug.step(toile.vmap(toile.grad(fun)))(X)
    else:
        found = toile.debug.step(toile.grad(lambda x: jnp.sum(toile.vmap(fun)(x))))(X)
    assert seen.names() == ["fun", "backward of fun"]
    values = seen[1][1]
    np.testing.assert_allclose(values["y"], X * X, rtol=1e-6)
    np.testing.assert_allclose(values["cotangents"]["y"], jnp.cos(X * X), rtol=1e-6)
    np.testing.assert_allclose(found, 2 * X * jnp.cos(X * X), rtol=1e-5)


def test_parts_that_have_to_be_traced_stop_when_they_run(seen):
    def body(x):
        y = 2 * x
        breakpoint()
        return y

    fun = toile.vmap(lambda x: lax.while_loop(lambda v: v < 8, body, x))
    found = toile.debug.step(fun)(jnp.array([1.0, 5.0]))
    assert found.tolist() == [8.0, 10.0]
    assert seen.names() == ["body"] * 3
    assert [v["y"].tolist()[0] for _, v in seen] == [2.0, 4.0, 8.0]


def test_branches_of_a_batch_stop_in_both_passes(seen):
    def yes(x):
        y = {"square": x * x, "n": 3}
        breakpoint()
        return y["square"] * y["n"]

    def loss(x):
        return jnp.sum(toile.vmap(lambda v: lax.cond(v > 0.5, yes, jnp.sin, v))(x))

    found = toile.debug.step(toile.grad(loss))(X[0])
    assert seen.names() == ["yes", "backward of yes"]
    np.testing.assert_allclose(seen[1][1]["x"], X[0])
    assert seen[1][1]["cotangents"]
    sys.breakpointhook = lambda: None
    np.testing.assert_allclose(found, toile.grad(loss)(X[0]), rtol=1e-5)


def test_arguments_are_arrays_as_under_jit():
    @toile.jit
    def fun(x, n):
        y = lax.cond(x > 0, lambda v: v.astype(jnp.int32), lambda v: v + 1, n["a"])
        return x.shape, y.dtype == jnp.int32, 3

    shape, same, three = toile.debug.step(fun, nan=True)(2.0, {"a": 3})
    assert shape == () and same and isinstance(three, toile.Array)
    with pytest.raises(TypeError, match=r"needed arrays or numbers, got n\['a'\]"):
        toile.debug.step(fun, nan=True)(2.0, {"a": "text"})

    @functools.partial(toile.jit, static_argnums=1, static_argnames="mode")
    def static(x, n, *, mode):
        return x.reshape(n, -1) if mode == "rows" else x

    assert toile.debug.step(static, nan=True)(np.ones(6), 2, mode="rows").shape == (2, 3)


def test_loops_without_turns_and_jacobians():
    def fun(x):
        carry, ys = lax.scan(lambda c, row: (c + row, c), x[0], x[:0])
        return carry * x[1] + ys.sum()

    for transform in (toile.jacrev, toile.jacfwd, toile.hessian):
        found = toile.debug.step(transform(fun), nan=True)(X)
        np.testing.assert_allclose(found, transform(fun)(X), rtol=1e-5)


@toile.custom_jvp
def doubled(x):
    return x * 2


@doubled.defjvp
def doubled_jvp(primals, tangents):
    return doubled(primals[0]), 2 * tangents[0]


def many(x):
    h = nn.relu(x) + nn.softmax(x) + toile.nn.logsumexp(x, 0)
    h = clipped(doubled(h)) + nn.gelu(h) + jnp.linalg.norm(h)
    h = nn.LayerNorm().apply({"params": {"scale": W, "bias": W}}, h)
    h, _ = lax.scan(lambda c, row: (nn.silu(c * row), c), h, X)
    return jnp.sum(toile.vmap(toile.checkpoint(jnp.cumsum))(h) ** 2)


MANY = range(many.__code__.co_firstlineno + 1, many.__code__.co_firstlineno + 6)


def test_every_operation_of_both_passes_is_on_a_line_of_the_users(seen):
    lines: dict[bool, set[int]] = {False: set(), True: set()}
    found = []

    def when(s):
        found.append(s)
        lines[s.backward].add(s.line)
        return False

    toile.debug.step(toile.grad(many), when=when)(X)
    assert {s.file for s in found} == {__file__}
    assert {s.function for s in found if not s.backward} == {
        "many", "<lambda>", "doubled", "clipped_forward"}
    assert {s.function for s in found if s.backward} == {"many", "<lambda>", "clipped_backward"}
    assert lines[False] >= set(MANY) and lines[True] >= set(MANY)
    assert {s.op for s in found if s.backward} >= {"relu", "doubled", "clipped"}
    turns = [s.turn for s in found if s.backward and s.function == "<lambda>"]
    assert sorted(turns, reverse=True) == turns and set(turns) == {0, 1, 2, 3}


def test_a_training_step(seen):
    model, tx = Coder(), toile.optim.adam(0.1)
    params = model.init(random.key(0), X)

    @functools.partial(toile.jit, donate_argnums=(0, 1))
    def train(params, state, x):
        loss, grads = toile.value_and_grad(lambda p: (model.apply(p, x) ** 2).mean())(params)
        updates, state = tx.update(grads, state, params)
        return toile.optim.apply_updates(params, updates), state, loss

    found = toile.debug.step(train, at="encoder/layer_1")(params, tx.init(params), X)
    assert [n.startswith("backward") for n in seen.names()] == [False, True]
    for a, b in zip(toile.tree.leaves(found), toile.tree.leaves(train(params, tx.init(params), X)),
                    strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_gradients_of_gradients(seen):
    def fun(x):
        y = jnp.sin(x)
        breakpoint()
        return y * y

    found = toile.debug.step(toile.grad(toile.grad(fun)))(0.3)
    assert found == pytest.approx(2 * np.cos(0.6), rel=1e-5)
    assert seen.names()[0] == "fun" and set(seen.names()[1:]) == {"backward of fun"}
    assert len(seen) == 3


def test_a_pullback_can_be_called_later(seen):
    def fun(x):
        breakpoint()
        return jnp.sin(x)

    with toile.debug.step():
        _, pullback = toile.vjp(fun, X)
        assert seen.names() == ["fun"]
        pullback(X)
    assert seen.names() == ["fun", "backward of fun"]
    found = pullback(X)[0]
    assert len(seen) == 2
    np.testing.assert_allclose(found, jnp.cos(X) * X, rtol=1e-5)


class Noisy(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        return nn.Dropout(0.5, deterministic=False)(nn.Dense(3)(x)), None


class Loops(nn.Module):
    @nn.compact
    def __call__(self, x):
        x, _ = nn.scan(Noisy, variable_axes={"params": 0}, length=3,
                       split_rngs={"params": True, "dropout": True})()(x, None)

        def body(module, carry):
            i, x = carry
            return i + 1, x + random.normal(module.make_rng("dropout"), x.shape)

        loop = functools.partial(nn.while_loop, lambda m, carry: carry[0] < 3, body)
        return loop(self, (0, x), split_rngs={"dropout": True})[1]


def test_loops_of_modules_draw_the_same_keys_as_traced_ones():
    rngs = {"params": random.key(0), "dropout": random.key(1)}
    wanted = Loops().init_with_output(rngs, X)
    with toile.disable_jit():
        slow = Loops().init_with_output(rngs, X)
    stepped = toile.debug.step(Loops().init_with_output, nan=True)(rngs, X)
    for found in (slow, stepped):
        toile.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found, wanted)


# ----------------------------------------------------------------------------------- conditions


class Encoder(nn.Module):
    @nn.compact
    def __call__(self, x):
        for i in range(2):
            x = jnp.tanh(nn.Dense(3, name=f"layer_{i}")(x))
        return x


class Coder(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(1, name="layer_0")(Encoder(name="encoder")(x))


@pytest.mark.parametrize(("at", "modules"), [
    ("encoder/layer_0", ["Coder/encoder/layer_0"]),
    ("layer_0", ["Coder/encoder/layer_0", "Coder/layer_0"]),
    ("Coder/layer_?", ["Coder/layer_0"]),
    ("enc*/layer_1", ["Coder/encoder/layer_1"]),
])
def test_stops_at_modules(at, modules, seen):
    model = Coder()
    variables = model.init(random.key(0), X)
    loss = lambda v: jnp.sum(model.apply(v, X))
    toile.debug.step(toile.jit(toile.grad(loss)), at=at)(variables)
    found = [(v["__step__"].module, n.startswith("backward of ")) for n, v in seen]
    assert found == [(m, False) for m in modules] + [(m, True) for m in modules[::-1]]


def test_stops_at_scopes_and_lines(seen):
    def fun(x):
        with toile.named_scope("wave"):
            y = jnp.sin(x)
        return jnp.sum(y * y)

    for place in ({"at": "wave"}, {"line": fun.__code__.co_firstlineno + 2},
                  {"line": f"{HERE}:{fun.__code__.co_firstlineno + 2}"}):
        seen.clear()
        toile.debug.step(toile.grad(fun), **place)(X)
        assert seen.names() == ["fun", "backward of fun"]
        assert seen[1][1]["op"] == "sin"
        np.testing.assert_allclose(seen[1][1]["cotangent"], 2 * jnp.sin(X), rtol=1e-6)
        np.testing.assert_allclose(seen[1][1]["y"], jnp.sin(X), rtol=1e-6)


@pytest.mark.parametrize(("forward", "backward"), [(True, False), (False, True), (False, False)])
def test_one_pass_only(forward, backward, seen):
    toile.debug.step(toile.grad(straight), forward=forward, backward=backward,
                     when=lambda s: False)(W, X)
    assert seen.names() == ["straight"] * forward + ["backward of straight"] * backward


def test_stops_at_the_operation_that_makes_a_nan(seen):
    def forward(x):
        y = jnp.log(x - 1)
        return jnp.sum(y * 2)

    toile.debug.step(toile.jit(forward), nan=True)(X)
    assert seen.names() == ["forward"]
    assert seen[0][1]["__step__"].op == "log"

    def backward(x):
        y = jnp.sqrt(x * 0)
        return jnp.sum(y)

    seen.clear()
    gradient = toile.debug.step(toile.grad(backward), nan=True)(X)
    assert jnp.isnan(gradient).all()
    assert seen.names() == ["backward of backward"]
    assert seen[0][1]["op"] == "mul" and jnp.isinf(seen[0][1]["cotangent"]).all()
    seen.clear()
    toile.debug.step(toile.grad(straight), nan=True, forward=False)(W, X)
    assert seen.names() == ["backward of straight"]  # its breakpoint


def test_stops_when_a_condition_holds(seen):
    def fun(x):
        return jnp.sum(jnp.exp(x) * jnp.sin(x))

    found = []

    def when(s):
        found.append((s.op, s.backward))
        return s.op == "exp"

    toile.debug.step(toile.grad(fun), when=when)(X)
    assert seen.names() == ["fun", "backward of fun"]
    np.testing.assert_allclose(seen[0][1]["__step__"].results[0], jnp.exp(X), rtol=1e-6)
    np.testing.assert_allclose(seen[1][1]["cotangent"], jnp.sin(X), rtol=1e-6)
    assert found == [("exp", False), ("sin", False), ("mul", False), ("reduce_sum", False),
                     ("reduce_sum", True), ("mul", True), ("sin", True), ("exp", True)]
    seen.clear()
    with pytest.warns(UserWarning, match="no operation ran on line"):
        toile.debug.step(toile.grad(fun), when=lambda s: s.backward, line=1)(X)
    assert not seen


def test_the_operations_are_those_that_jit_traces():
    def fun(w, x):
        h = jnp.tanh(x @ w[:, None]) + 1
        return toile.jit(jnp.sum)(jnp.sort(h, 0) * jnp.exp(-h))

    def names(program):
        for e in program.eqns:
            if e.primitive.name in ("jit", "custom_jvp_call"):
                yield from names((e.params.get("jaxpr") or e.params["call_jaxpr"]).jaxpr)
            else:
                yield e.primitive.name

    ran: list[str] = []
    toile.debug.step(fun, when=lambda s: ran.append(s.op))(W, X)
    assert ran == list(names(toile.make_jaxpr(fun)(W, X).jaxpr)) and len(ran) > 8


def test_warns_if_there_was_nothing_to_stop_at(seen):
    for options, text in [({}, r"call breakpoint\(\)"), ({"at": "encoder"}, "contains encoder"),
                          ({"line": "nowhere.py:3"}, r"nowhere\.py:3")]:
        with pytest.warns(UserWarning, match=text):
            toile.debug.step(jnp.sin, **options)(X)
    toile.debug.step(jnp.sin, nan=True)(X)  # no NaN is no surprise
    with toile.debug.step(nan=True, at="wave"), toile.named_scope("wave"):
        jnp.sin(X)


# --------------------------------------------------------------------------------------- printing


def test_printing_a_traced_value_says_how_to_print_its_values(capsys):
    @toile.jit
    def fun(x):
        h = x * 2
        print(h)
        print([h], f"{h}", repr(h))

        def body(carry, row):
            print(row)
            return carry + row, None

        return lax.scan(body, h[0] * 0, h)[0]

    fun(jnp.ones(3))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        'ProgramTracer<float32[3]> (traced for jit, so it has no values yet: '
        'toile.debug.print("{}", h) prints them)',
        "[ProgramTracer<float32[3]>] ProgramTracer<float32[3]> ProgramTracer<float32[3]>",
    ]
    assert lines[2].startswith("ProgramTracer<float32[]> (traced for scan, so")
    assert 'toile.debug.print("{}", row) prints' in lines[2]


def test_printing_shows_values_where_there_are_some(capsys):
    def fun(x):
        h = x * 2
        print(h)
        return h.sum()

    toile.debug.step(toile.grad(toile.jit(fun)), nan=True)(jnp.arange(3.0))
    toile.debug.step(toile.vmap(toile.grad(fun)), nan=True)(jnp.ones((1, 2)))
    assert capsys.readouterr().out.splitlines() == ["[0. 2. 4.]", "[[2. 2.]]"]
    toile.vmap(fun)(jnp.ones((1, 2)))
    assert capsys.readouterr().out == (
        "BatchTracer<float32[2]>(batch=Array([[2., 2.]], dtype=float32), axis=0)\n")


# ------------------------------------------------------------------------------- other debuggers


def test_toiles_own_breakpoint_stops_in_both_passes_too(seen):
    def fun(x):
        toile.debug.breakpoint()
        return jnp.sum(x * x)

    toile.debug.step(toile.jit(toile.grad(fun)))(X)
    assert seen.names() == ["fun", "backward of fun"]
    assert seen[1][1]["x"].shape == (4, 3)


def test_breakpoints_can_be_switched_off(monkeypatch):
    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)
    monkeypatch.setenv("PYTHONBREAKPOINT", "0")
    assert toile.debug.step(toile.grad(straight))(W, X).shape == (3,)
    assert toile.debug.step(toile.grad(straight), when=lambda s: True)(W, X).shape == (3,)


def test_the_environment_selects_another_debugger(monkeypatch):
    found = Seen()
    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)
    monkeypatch.setattr(sys.modules[__name__], "own_debugger", found, raising=False)
    monkeypatch.setenv("PYTHONBREAKPOINT", f"{__name__}.own_debugger")
    toile.debug.step(toile.grad(straight))(W, X)
    assert found.names() == ["straight", "backward of straight"]


def test_everything_is_restored_after_quitting():
    hook, trace = sys.breakpointhook, sys.gettrace()
    for commands in (["quit"], ["continue", "quit"], ["next", "quit"], []):
        with pytest.raises(BdbQuit):
            pdb_session(toile.grad(straight), commands, W, X)
        assert sys.breakpointhook is hook and sys.gettrace() is trace
        assert not toile.config.jax_disable_jit
    sys.breakpointhook = lambda: None
    try:
        assert toile.jit(toile.grad(straight))(W, X).shape == (3,)
    finally:
        sys.breakpointhook = hook


def test_a_script_is_debugged_from_the_terminal(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent("""
        import toile
        import toile.numpy as jnp

        @toile.jit
        @toile.grad
        def f(x):
            y = jnp.sin(x)
            breakpoint()
            return y * y

        print(toile.debug.step(f)(2.0))
    """))
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONBREAKPOINT"}
    environment["PYTHONPATH"] = str(Path(toile.__file__).parents[1])
    done = subprocess.run([sys.executable, str(script)], input="p x\nc\np x, cotangents\nc\n",
                          capture_output=True, text=True, env=environment)
    assert not done.returncode, done.stderr
    assert "(Pdb) Array(2., dtype=float32, weak_type=True)" in done.stdout
    assert "script.py(9)backward of f()" in done.stdout
    assert "{'y': Array(1.8185" in done.stdout


# --------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize("line", [0, -3, "model.py", "model.py:", "x"])
def test_lines_that_are_no_lines(line):
    with pytest.raises(ValueError, match="needed line as a positive number"):
        toile.debug.step(jnp.sin, line=line)


def test_mistakes():
    with pytest.raises(TypeError, match="needed a function, got float32"):
        toile.debug.step(jnp.ones(3))
    with pytest.raises(RuntimeError, match="a second debug.step"), toile.debug.step(nan=True):
        toile.debug.step(jnp.sin)(X)
    with pytest.raises(RuntimeError, match="being traced"):
        toile.jit(toile.debug.step(jnp.sin, nan=True))(X)
    assert toile.jit(jnp.sin)(X).shape == (4, 3)


def test_files_are_compared_from_the_end():
    wanted = Wanted(None, "model.py:3", False, None, "")
    assert (wanted.file, wanted.line) == ("model.py", 3)
    assert Wanted(None, 7, False, None, "a.py").file == "a.py"


@pytest.mark.filterwarnings("ignore::toile.errors.BroadcastWarning")
def test_marks_on_the_tape_are_not_taken_for_operations():
    """Losses are searched for operands that were broadcast by mistake once there were any."""
    predictions, targets = jnp.ones((4, 1)), jnp.ones(4)
    gradient = toile.grad(lambda p: jnp.mean((p - targets) ** 2))
    expected = gradient(predictions)
    found = toile.debug.step(gradient, nan=True)(predictions)
    np.testing.assert_array_equal(found, expected)
