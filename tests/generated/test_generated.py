"""A sample of generated programs, another one each day: TOILE_TEST_SEED repeats the one of a day.

`python -m tests.generated` runs many more, in several processes, and shrinks what fails.
"""

import collections
import os
from types import SimpleNamespace

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.generated import check, data, draw, nests, running, shrink
from tests.gpu import fibers
from tests.seeds import today
from toile.compiler.passes import scan_residuals
from toile.compiler.plan import cuts, recompute

ALL = os.environ.get("TOILE_TEST_ALL", "0") not in ("", "0")
PIECES = 12 if ALL else 3
COUNT = 50 if ALL else 10  # programs of a piece


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("piece", range(PIECES))
def test_generated_programs(piece):
    """Every way to run a program gives the same results."""
    seed = today()
    for index in range(piece * COUNT, (piece + 1) * COUNT):
        p = draw.draw(seed, index)
        _, failure = check.examine(p, check.chosen(p, jax=True))
        if failure is not None:
            small = shrink.shrink(p, failure, seconds=20)
            pytest.fail(
                f"program {index} of seed {seed}: {failure.kind}: {failure.detail}\n"
                f"again: python -m tests.generated --seed {seed} --show {index}\n"
                + data.report(small, running.arguments(small))
            )


@pytest.mark.cpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not fibers.available(), reason="needs g++")
@pytest.mark.parametrize("piece", range(12 if ALL else 2))
def test_generated_programs_for_a_gpu(piece, monkeypatch):
    """The plan for a GPU gives the same results, and its kernels use no misaligned address. In half
    of the pieces, small values are recomputed, too, as large ones are, and small stencils cut."""
    if piece % 2:
        monkeypatch.setattr(recompute, "LEAST_BYTES", 0)
        monkeypatch.setattr(scan_residuals, "LEAST_BYTES", 0)
        monkeypatch.setattr(cuts, "LEAST_ELEMENTS", 1)
        monkeypatch.setattr(cuts, "KERNEL", 0)
    seed, count = today(), 20 if ALL else 2
    for index in range(piece * count, (piece + 1) * count):
        failure = check.examine(draw.draw(seed, index), ["emulated"])[1]
        assert failure is None, f"program {index} of seed {seed}: {failure}"


def test_the_same_numbers_give_the_same_program():
    for index in range(20):
        first, again = draw.draw(5, index), draw.draw(5, index)
        assert data.source(first) == data.source(again)
        for x, y in zip(running.arguments(first), running.arguments(again)):
            assert x.tobytes() == y.tobytes()


def test_programs_that_would_run_for_minutes_have_short_loops():
    """Three loops of 65 turns in each other, differentiated, took over a minute for each way."""
    long = draw.Draw(20261116, 8348)
    assert draw.drawn(long).sizes["A"] == 65 and long.work > 10**6
    assert max(draw.draw(20261116, 8348).sizes.values()) <= 4
    same = draw.Draw(20261116, 8349)
    assert data.source(draw.drawn(same)) == data.source(draw.draw(20261116, 8349))
    assert same.work <= draw.MOST_WORK


def test_every_construct_occurs():
    """A few hundred programs have every nest in a nest, and every operation."""
    seen, inside = collections.Counter(), collections.Counter()
    for index in range(400):
        p = draw.draw(7, index)
        for n, around in data.nodes(p.main):
            seen[n.op] += 1
            inside[around[-1] if around else "", n.op] += 1
            assert len(around) <= draw.DEPTH
    assert set(nests.NAMES) <= set(seen)
    for op in ("gather", "scatter", "sort", "decomposition", "fourier", "cumulative", "complex"):
        assert seen[op] > 10, op
    holding = [n for n in nests.NAMES if n != "linear_call"]
    pairs = [(a, b) for a in holding for b in nests.NAMES]
    assert sum((a, b) in inside for a, b in pairs) > 0.9 * len(pairs)


def simple(outer="value", sizes=None):
    """sum(sort(x) * 2) after a jit, as a program."""
    types = {0: (("A",), "float32"), 1: (("A",), "float32"), 2: (("A",), "float32"),
             3: (("A",), "float32"), 4: (("A",), "float32"), 5: ((), "float32")}
    inner = data.Block([1], [data.Node("unary", [1], [2], "{0} * 2")], [2])
    nodes = [
        data.Node("jit", [0], [3], "jit({f0})({0})", [inner], several=True),
        data.Node("sort", [3], [4], "jnp.sort({0})"),
        data.Node("sum", [4], [5], "jnp.sum({0})"),
    ]
    return data.Program(1, 0, "smooth", "float32", False, sizes or {"A": 4}, types,
                        data.Block([0], nodes, [4, 5]), outer)


@pytest.mark.parametrize("outer", sorted(data.SPELLINGS))
def test_a_program_by_hand_passes(outer):
    p = simple(outer)
    made, failure = check.examine(p, ["jit", "copy", "disk", "plain", "differences", "jax"])
    assert failure is None, failure
    assert set(made) >= {"jit", "copy", "disk", "plain", "jax"}
    assert ("differences" in made) == (outer in ("grad", "twice", "checkpoint_grad"))


@pytest.mark.parametrize("wrong", [
    lambda x: x * (1 + 1e-3), lambda x: x * 0, lambda x: np.where(x == x.max(), np.nan, x),
    lambda x: x.astype(np.float64), lambda x: x[None], lambda x: x[::-1],
])  # fmt: skip
def test_wrong_results_are_found(wrong, monkeypatch):
    """Values, types, shapes and orders that differ from the eager ones."""
    p = simple()
    monkeypatch.setattr(check, "_jitted", lambda c, f: [
        wrong(np.asarray(x)) if np.ndim(x) else x for x in check.leaves(c.eager)])
    failure = check.examine(p, ["jit"])[1]
    assert failure is not None and failure.kind == "jit"


def steep(outer, count):
    """tanh(sum(x)), summed, of `count` elements: close to 1 when the sum is large."""
    types = {0: (("A",), "float64"), 1: ((), "float64")}
    nodes = [data.Node("sum", [0], [1], "jnp.tanh(jnp.sum({0}))")]
    return data.Program(1, 0, "smooth", "float64", True, {"A": count}, types,
                        data.Block([0], nodes, [1]), outer)


@pytest.mark.parametrize("ulps, found", [(1, False), (8, False), (64, True)])
def test_tangents_are_as_exact_as_the_values_they_are_made_of(ulps, found, monkeypatch):
    """36 * (1 - y * y) with y close to 1 and wrong by some units in the last place."""
    p = steep("jvp", 36)
    x = np.full(36, 4.15 / 36)
    for module in (check, running):
        monkeypatch.setattr(module, "arguments", lambda p, wide=False: [x])
    y = np.tanh(4.15)
    slope = lambda y: 36 * (1 - y * y)
    monkeypatch.setattr(check, "_jitted", lambda c, f: [
        y, np.asarray(c.eager[1]) + slope(y) - slope(y - ulps * np.spacing(y))])
    failure = check.examine(p, ["jit"])[1]
    assert (failure is not None) == found


def special(text, x, monkeypatch):
    """One operation on an array with special values, checked."""
    x = np.asarray(x, np.float32)
    out = "bool" if "any" in text else "float32"
    types = {0: (("A", "B"), "float32"), 1: (("A",), out)}
    p = data.Program(1, 0, "special", "float32", False, dict(zip("AB", x.shape)), types,
                     data.Block([0], [data.Node("reduce", [0], [1], text)], [1]), "value")
    monkeypatch.setattr(check, "arguments", lambda p, wide=False: [
        x.astype(np.float64) if wide else x])
    return check.Checked(p)


def test_jax_may_read_denormals_as_zeros(monkeypatch):
    """Whether a number is zero depends on it; nothing else does."""
    c = special("jnp.any({0}, axis=1)", [[1e-40, 0.0], [0.0, 0.0], [1e-3, 0.0]], monkeypatch)
    assert np.asarray(c.eager[0]).tolist() == [True, False, True]
    check.close_to_special(c, [np.array([False, False, True])])
    for wrong in ([True, False, False], [False, True, True]):
        with pytest.raises(check.Differs):
            check.close_to_special(c, [np.array(wrong)])
    with pytest.raises(check.Differs):
        check.close_to_special(c, [np.array([0, 0, 1])])


@pytest.mark.parametrize("ours, theirs, found", [
    (-np.inf, np.nan, False), (-np.inf, np.inf, False), (np.nan, -np.inf, True),
    (np.inf, -np.inf, True), (-np.inf, 1.0, True),
])  # fmt: skip
def test_jax_may_round_products_that_are_summed(ours, theirs, found, monkeypatch):
    """-inf + 2.5 * max: the product overflows if it is rounded. In float64 this is -inf."""
    most = float(np.finfo(np.float32).max)
    c = special("{0}[:, 0] + {0}[:, 1] * {0}[:, 2]", [[-np.inf, 2.5, most]], monkeypatch)
    c.eager = [np.array([ours], np.float32)]
    if found:
        with pytest.raises(check.Differs):
            check.close_to_special(c, [np.array([theirs], np.float32)])
    else:
        check.close_to_special(c, [np.array([theirs], np.float32)])


@pytest.mark.parametrize("values, smaller, found", [
    ([np.nan], [-np.inf], False), ([np.inf], [-np.inf], False),  # max + max is an infinity
    ([np.nan], [np.nan], True), ([1.0], [1.0], True),
])  # fmt: skip
def test_sums_may_overflow_in_another_order(values, smaller, found, monkeypatch):
    """-inf + max + max: smaller numbers give -inf in any order, and must."""
    most = float(np.finfo(np.float32).max)
    c = special("jnp.sum({0}, axis=1)", [[-np.inf, most, most]], monkeypatch)
    c.eager = [np.array([-np.inf], np.float32)]

    def run(checked):
        given = values if checked is c else smaller
        return [np.array(given, np.float32)]

    if found:
        with pytest.raises(check.Differs):
            c.close_by(run, "jit")
    else:
        c.close_by(run, "jit")


@pytest.mark.parametrize("ulps, found", [(1, False), (100, True)])
def test_exact_programs_may_have_fractions(ulps, found, monkeypatch):
    """17 elements that share a cotangent get 1/17 each; integers are exact to the bit."""
    p = simple()
    c = check.Checked(p)
    c.ulps = 0
    c.eager = [np.array([1 / 17, 3.0])]
    wrong = c.eager[0] * (1 + ulps * np.finfo(np.float64).eps)
    monkeypatch.setattr(c, "eps", np.finfo(np.float64).eps)
    monkeypatch.setattr(c, "_only_noise", lambda got, more: False)
    if found:
        with pytest.raises(check.Differs):
            c.close([wrong], "jit")
    else:
        c.close([wrong], "jit")
    c.eager = [np.array([17.0, 3.0])]
    with pytest.raises(check.Differs):
        c.close([c.eager[0] + 2**-16], "jit")


def test_a_wrong_gradient_is_found(monkeypatch):
    """Finite differences see a rule that is off by a tenth."""
    p = simple("grad")
    names = dict(running.names_of("toile"))
    right = toile.value_and_grad
    names["value_and_grad"] = lambda f, n: lambda *xs: (
        right(f, n)(*xs)[0], tuple(1.1 * g for g in right(f, n)(*xs)[1]))
    monkeypatch.setattr(check, "names_of", lambda lib: names)
    failure = check.examine(p, ["differences"])[1]
    assert failure is not None and failure.kind == "differences"


def test_shrinking_keeps_what_fails():
    """Of a large program the two nodes remain that a failure needs."""
    wanted = lambda p: any(n.op == "sort" and "scan" in around
                           for n, around in data.nodes(p.main))
    p = next(p for p in (shrink.clean(draw.draw(3, i)) for i in range(500))
             if wanted(p) and sum(1 for _ in data.nodes(p.main)) > 15)
    before = sum(1 for _ in data.nodes(p.main))

    def fails(q, failure):
        compile(data.source(q), "program", "exec")
        return wanted(q)

    small = shrink.shrink(p, check.Failure("jit", ""), 20, fails)
    assert wanted(small)
    assert sum(1 for _ in data.nodes(small.main)) <= min(8, before - 1)


def test_a_report_runs(capsys):
    """What is written about a failure is a program of its own."""
    p = simple()
    exec(compile(data.report(p, running.arguments(p)), "report", "exec"), {})
    jitted, eager = capsys.readouterr().out.strip().rsplit("\n", 1)
    assert jitted == eager


def one_node(node, regime, outer="value", dtype="float32", size=16):
    """A program of one node on one array, which gives arrays of the same type."""
    types = dict.fromkeys(range(8), (("A",), dtype))
    return data.Program(1, 0, regime, dtype, dtype == "float64", {"A": size}, types,
                        data.Block([0], [node], node.outs), outer)


def along(text):
    """jvp of a function of one array, along that array."""
    inner = data.Block([1], [data.Node("inner", [1], [2], text)], [2])
    return data.Node("jvp", [0], [3, 4], "flat(jvp({f0}, ({0},), ({0},)))", [inner], several=True)


LOOP = "lambda r, x: scan(lambda c, _: (c * r, None), x, None, length=2)[0]"


@pytest.mark.parametrize("text, regime", [
    # Only one argument moves: the rule takes zeros for the other one, at which sqrt is steep.
    ("with_jvp(lambda a, b: jnp.sqrt(a * a) + b)(jnp.floor({0} / 2), {0})", "exact"),
    # The carry does not move at first: it starts from zeros, times an infinity.
    (f"linear_call({LOOP}, {LOOP}, {{0}}, {{0}})", "special"),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_jax_decides_where_zero_meets_infinity(text, regime, monkeypatch):
    p = one_node(along(text), regime, size=4)
    given = np.array([0, 1, 2, np.inf if regime == "special" else -3], np.float32)
    for module in (check, running):
        monkeypatch.setattr(module, "arguments", lambda p, wide=False: [
            given.astype(np.float64 if wide else np.float32)])
    c = check.Checked(p)
    with pytest.raises(check.Skipped, match="JAX has these"):
        check._plain(c)
    c.eager = [jnp.where(jnp.isfinite(x), x + 3, x) for x in c.eager]  # finite values count
    with pytest.raises(check.Differs, match="loops in Python"):
        check._plain(c)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_nan_that_jax_does_not_have_is_found(wrong, monkeypatch):
    p = one_node(along("jnp.sin({0})"), "smooth")
    assert check.examine(p, ["plain", "jax"]) == (["plain", "jax"], None)
    sin = lambda x: jnp.sin(x).at[3].multiply(wrong)
    monkeypatch.setattr(check, "names_of", lambda lib: running.names_of(lib) | (
        {"jnp": SimpleNamespace(**{**vars(jnp), "sin": sin})} if lib == "toile" else {}))
    failure = check.examine(p, ["plain"])[1]
    assert failure is not None and failure.kind == "plain", failure


@pytest.mark.parametrize("ulps, passes", [(1, True), (10**6, False)])
@pytest.mark.parametrize("size, text", [
    (48, "jnp.tanh(8 + {0} / 9 + jnp.sum({0}) / 9)"),
    (500, "{0} + jnp.tanh(8.3 + jnp.sum({0}) / 999)"),  # all cotangents meet in one slope
])
def test_slopes_of_tanh_may_be_an_ulp_off(size, text, ulps, passes, monkeypatch):
    """Near 1 the slope 1 - y * y of a double has few digits, and no wider floats show it."""
    @toile.custom_jvp
    def tanh(x):
        return jnp.tanh(x) * (1 - ulps * 2.0**-53)

    tanh.defjvp(lambda xs, dxs: (tanh(*xs), (1 - tanh(*xs) ** 2) * dxs[0]))
    names = {name: getattr(jnp, name) for name in jnp.__all__}  # some are loaded on first use
    near = SimpleNamespace(**{**names, "tanh": tanh})
    monkeypatch.setattr(check, "plain_names", lambda: running.plain_names() | {"jnp": near})
    node = data.Node("unary", [0], [1], text)
    failure = check.examine(one_node(node, "smooth", "twice", "float64", size), ["plain"])[1]
    assert (failure is None) == passes, failure
