"""The HTML of arrays, modules, states and tables: well-formed, escaped, and small."""

import subprocess
import sys

import numpy as np
import pytest

import toile
import toile.linen as nn
import toile.numpy as jnp
from tests.displays.checking import read
from tests.test_toy_platform import Toy
from toile import optim
from toile.displays import array_trees, arrays, markup
from toile.engine.platform_registry import registry
from toile.linen import summary_html
from toile.training.train_state import ModelState, TrainState

KEY = toile.random.key(0)
NASTY = "<script>alert('x')</script>&"


# ------------------------------------------------------------------------------------------ arrays

ARRAYS = [
    (lambda: jnp.float32(3.14159265), "float32[]", ["3.1416"]),
    (lambda: jnp.asarray(2), "int32[], weak type", ["2"]),
    (lambda: jnp.array([True, False]), "bool[2]", ["True", "False"]),
    (lambda: jnp.array([1 + 2j]), "complex64[1]", ["1+2j"]),
    (lambda: jnp.array([0.5, jnp.nan, -jnp.inf]), "float32[3]", ["0.5", "nan", "-inf"]),
    (lambda: jnp.full(2, 1.5, jnp.bfloat16), "bfloat16[2]", ["1.5"]),
    (lambda: jnp.array([-3, 2], "int4"), "int4[2]", ["-3", "2"]),
    (lambda: jnp.full(2, 0.5, jnp.float8_e4m3fn), "float8_e4m3fn[2]", ["0.5"]),
    (lambda: jnp.zeros((0, 3)), "float32[0, 3]", ["no elements"]),
    (lambda: toile.random.key(7), "key<fry>[]", ["7"]),
    (lambda: toile.random.split(KEY, 3), "key<fry>[3]", []),
    (lambda: jnp.zeros((2, 5, 3, 4)), "float32[2, 5, 3, 4]", ["the first of 10 matrices"]),
]


@pytest.mark.parametrize(("make", "form", "values"), ARRAYS, ids=[form for _, form, _ in ARRAYS])
def test_an_array_has_its_form_and_values(make, form, values):
    x = make()
    text, _ = read(x._repr_html_())
    assert form in text and f"on {x.device}, " in text
    lines = text.split("\n")
    assert all(any(line.endswith(v) for line in lines) for v in values)


def test_a_large_array_is_on_the_default_device():
    text, _ = read(jnp.zeros((2, 1000))._repr_html_())  # small ones may still be on the host
    assert f"on {toile.devices()[0]}, " in text


@pytest.mark.parametrize("shape", [(9,), (10,), (9, 9), (10, 10), (3, 99), (99, 3), (2, 50, 60)])
def test_the_middle_of_an_array_is_cut_out(shape):
    x = jnp.arange(np.prod(shape), dtype="int32").reshape(shape)
    text, tags = read(x._repr_html_())
    rows, columns = (1, *shape)[-2:]
    shown = [list(range(n)) if n <= 9 else [0, 1, 2, 3, n - 4, n - 3, n - 2, n - 1]
             for n in (rows, columns)]  # fmt: skip
    first = np.asarray(x).reshape(-1, rows, columns)[0]
    cells = text.split("\n")
    wanted = {str(v) for v in first[np.ix_(*shown)].ravel()}
    assert wanted <= set(cells)
    assert ("…" in cells) == (max(rows, columns) > 9)
    dots = [(n > 9) for n in (rows, columns)]
    assert tags.count("td") == (len(shown[0]) + dots[0]) * (len(shown[1]) + dots[1])


def test_a_large_array_is_small_html():
    x = jnp.zeros((1000, 1000, 10))
    assert len(x._repr_html_()) < 5000


def test_a_tracer_has_its_type_only():
    seen = []

    @toile.jit
    def f(x):
        seen.append(read(x._repr_html_())[0])
        return x

    f(jnp.ones(3))
    assert seen == ["ProgramTracer<float32[3]>"]
    toile.grad(lambda x: (seen.append(read(x._repr_html_())[0]), x.sum())[1])(jnp.ones(3))
    assert seen[1:] == ["JVPTracer<float32[3]>"]


def test_a_constant_inside_of_a_traced_function_has_its_values():
    c = jnp.array([41, 42])

    @toile.jit
    def f(x):
        assert "42" in c._repr_html_()
        return x + c

    f(jnp.ones(2))


def test_deleted_arrays_say_so():
    x, k = jnp.ones(3), toile.random.key(1)
    x.delete(), k.delete()
    assert "float32[3]" in read(x._repr_html_())[0] and "deleted" in read(x._repr_html_())[0]
    assert "deleted" in read(k._repr_html_())[0]


@pytest.mark.cpu
def test_divided_arrays_say_how(monkeypatch):
    before = toile.config.read("jax_num_cpu_devices")
    toile.config.update("jax_num_cpu_devices", 4)
    try:
        mesh = toile.make_mesh((4,), ("x",))
        sharding = toile.sharding.NamedSharding(mesh, toile.sharding.PartitionSpec("x"))
        x = toile.device_put(np.arange(8.0, dtype="float32"), sharding)
        text, _ = read(x._repr_html_())
        assert "4 devices" in text and "'x'" in text and "7" in text.split("\n")
        monkeypatch.setattr(arrays, "MOST_JOINED", 16)
        text, tags = read(x._repr_html_())
        assert "values are not shown" in text and "td" not in tags
    finally:
        toile.config.update("jax_num_cpu_devices", before)


@pytest.mark.cpu
def test_only_the_ends_of_an_array_on_another_device_are_fetched(monkeypatch):
    toy = Toy(1)
    registry.add(toy)
    try:
        x = toile.device_put(np.arange(10_000).reshape(1, 100, 100), toy.made[0])
        key = toile.device_put(toile.random.split(KEY, 2), toy.made[0])
        whole = x._repr_html_()
        fetched = []
        get = toy.get
        monkeypatch.setattr(toy, "get", lambda data: (fetched.append(data.shape), get(data))[1])
        monkeypatch.setattr(arrays, "MOST_FETCHED", 1000)
        assert x._repr_html_() == whole and "9999" in whole and "toy:0" in whole
        assert fetched == [(4, 4)] * 4
        assert "1797259609" in key._repr_html_()
    finally:
        registry.remove(toy)


# ------------------------------------------------------------------------------------------ modules


class Block(nn.Module):
    n: int
    label: str = NASTY

    @nn.compact
    def __call__(self, x):
        return nn.BatchNorm(True)(nn.Dense(self.n)(x))


class Net(nn.Module):
    n: int = 3

    def setup(self):
        self.a, self.b = Block(self.n), nn.Dense(2)

    def __call__(self, x):
        return self.b(self.a(x))


def bound(model=None, width=3):
    model = model or Net()
    return model.bind(model.init(KEY, jnp.ones((1, width))))


def test_a_module_has_its_fields_and_submodules():
    model = nn.Sequential([nn.Dense(4), nn.relu, nn.Dense(2, use_bias=False)])
    text, tags = read(model._repr_html_())
    for part in ("Sequential", "(features=4)", "features=2, use_bias=False", "layers_0", "layers_2",
                 "kernel_init=init"):  # fmt: skip
        assert part in text
    assert "layers_1" not in text and "parameters" not in text and tags.count("details") == 3


def test_a_bound_module_has_shapes_and_counts():
    text, _ = read(bound()._repr_html_())
    for part in ("26 parameters, 6 in batch_stats", "Block", "BatchNorm_0", "Dense_0", "[3, 3]",
                 "float32"):  # fmt: skip
        assert part in text
    assert "Dense" in text.split("\n")  # the class of `b`, which setup makes


def test_fields_are_escaped():
    for html in (Block(3, label="<b>\n" + NASTY)._repr_html_(), bound(Block(3))._repr_html_()):
        assert "<script" not in html and "&lt;script&gt;" in html
        read(html)


def test_initializers_that_are_not_the_default_are_told():
    text, _ = read(nn.Dense(2, kernel_init=nn.initializers.normal())._repr_html_())
    assert "features=2, kernel_init=init" in text


def test_the_html_of_large_modules_is_small():
    wide = nn.Sequential([nn.Dense(4) for _ in range(1000)])
    html = wide._repr_html_()
    assert len(html) < 60_000 and "… and 700 more submodules" in read(html)[0]
    inner = {"Dense_0": {"kernel": np.ones((3, 3)), "bias": np.ones(3)}}
    params = {f"layers_{i}": inner for i in range(200)}
    html = nn.Sequential([Block(3) for _ in range(200)]).bind({"params": params})._repr_html_()
    assert len(html) < 100_000
    text, _ = read(html)
    assert all(f"layers_{i}: " in text for i in range(200))  # every branch is there


def test_repr_is_as_it_was():
    model = nn.Dense(2)
    before = repr(model), repr(jnp.arange(3))
    model._repr_html_(), jnp.arange(3)._repr_html_()
    assert (repr(model), repr(jnp.arange(3))) == before
    assert before[1] == "Array([0, 1, 2], dtype=int32)" and before[0].startswith("Dense(\n")


def test_displays_ask_modules_without_running_setup():
    ran = []

    class Loud(nn.Module):
        def setup(self):
            ran.append(1)

        def __call__(self, x):
            return x

    module = Loud().bind({})
    for name in ("_repr_png_", "_repr_mimebundle_", "_ipython_display_"):
        assert not hasattr(module, name)
    assert not ran


# ------------------------------------------------------------------------------------------- states


def test_a_state_has_step_parameters_and_optimizer():
    state = ModelState.init(Net(), optim.adam(0.1), KEY, jnp.ones((1, 3)), trainable="b/**")
    state = state.replace(step=jnp.asarray(12))
    text, _ = read(state._repr_html_())
    for part in ("ModelState", "12", "26 parameters, 8 of them trained", "Net.apply", "params",
                 "ScaleByAdamState", "mu", "collections", "batch_stats", "rngs"):  # fmt: skip
        assert part in text, part


def test_states_of_every_optimizer():
    params = {NASTY: jnp.ones((2, 3)), "b": nn.Partitioned(jnp.ones(3), ("x",))}

    def shown(tx):
        return read(TrainState.create(apply_fn=print, params=params, tx=tx)._repr_html_())[0]

    assert "keeps no arrays" in shown(optim.sgd(0.1))
    rate = shown(optim.inject_hyperparams(optim.sgd)(learning_rate=0.25))
    assert "learning_rate=0.25" in rate and "9 parameters" in rate and NASTY in rate
    assert "TraceState" in shown(optim.chain(optim.clip_by_global_norm(1.0), optim.sgd(0.1, 0.9)))


def test_donated_and_traced_states_can_be_shown():
    state = ModelState.init(Net(), optim.adam(0.1), KEY, jnp.ones((1, 3)))
    state = state.replace(step=jnp.asarray(1))
    texts = []

    def step(s):
        texts.append(read(s._repr_html_())[0])
        return s.replace(step=s.step + 1)

    toile.jit(step, donate_argnums=0)(state)
    assert "ProgramTracer<int32[]>" in texts[0]
    for leaf in toile.tree.leaves(state):
        leaf.delete()
    text, _ = read(state._repr_html_())
    assert "? (deleted)" in text and "26 parameters" in text


def test_the_html_of_a_large_state_is_small():
    params = {f"layer_{i}": {f"w_{j}": jnp.ones(2) for j in range(20)} for i in range(200)}
    html = TrainState.create(apply_fn=print, params=params, tx=optim.adam(0.1))._repr_html_()
    text, _ = read(html)
    assert len(html) < 100_000 and "8,000 parameters" in text and "more" in text


# ------------------------------------------------------------------------------------------- tables


def test_a_summary_is_text_and_a_table():
    model = nn.Sequential([nn.Dense(4), nn.BatchNorm(False)])
    table = model.tabulate(KEY, jnp.ones((1, 3)), compute_flops=True)
    assert isinstance(table, str) and "Total Parameters" in table and type(str(table)) is str
    text, tags = read(table._repr_html_())
    for part in ("Sequential", "layers_0", "float32[3,4]", "flops", "batch_stats", "24 (96 B)",
                 "total", "32 elements in all variables"):  # fmt: skip
        assert part in text, part
    assert "[dim]" not in text and tags.count("tr") == 1 + 3 + 1
    assert "vjp" not in text


def test_a_long_summary_is_cut(monkeypatch):
    monkeypatch.setattr(summary_html, "MOST_CALLS", 10)
    model = nn.Sequential([nn.Dense(4) for _ in range(20)])
    html = model.tabulate(KEY, jnp.ones((1, 4)))._repr_html_()
    text, tags = read(html)
    assert "… and 11 more calls" in text and tags.count("tr") == 12 and len(html) < 6_000


@pytest.mark.cpu
def test_explanations_and_profiles():
    def f(x):
        return jnp.where(x < 0, x, 1.0).sum()

    text, tags = read(toile.explain(f)(jnp.ones((8, 8)))._repr_html_())
    assert "x < 0" in text and "select_n" in text and "details" in tags
    assert "memory: arena" in text and "code: " in text
    profile = toile.profile(f, rounds=2)(jnp.ones((8, 8)))
    text, _ = read(profile._repr_html_())
    assert "by kernel" in text and "by module" in text and "GFLOP/s" in text
    assert "GFLOP/s" in read(profile.table("operation")._repr_html_())[0]


# ------------------------------------------------------------------------------------------- pieces


def test_tables_escape_and_count():
    html = markup.table(("a<b", ""), [("x\n  y", str(i)) for i in range(150)], left=(0,))
    assert "a&lt;b" in html and "x<br>&nbsp;&nbsp;y" in html
    text, tags = read(html)
    assert tags.count("tr") == 101 and "… and 50 more rows" in text
    assert "1 more row" in read(markup.table(("a",), [("x",)] * 2, most=1))[0]
    assert "more" not in read(markup.table(("a",), [("x",)] * 2, most=2))[0]


def test_long_text_is_clipped():
    assert markup.clipped("abc", 3) == "abc"
    assert markup.clipped("abcde", 3) == "abc … (2 more characters)"
    html = markup.table(("a",), [("y" * 10_000,)])
    assert len(html) < 1000 and "9,700 more characters" in read(html)[0]


def test_lines_are_shared_among_branches():
    tree = {f"k{i}": {f"w{j}": np.ones(2) for j in range(10)} for i in range(10)}
    for lines in (0, 1, 5, 10, 15, 40, 120):
        html = array_trees.tree_html("t", tree, lines=lines)
        text, tags = read(html)
        entries = tags.count("tr") - tags.count("thead") + sum(f"k{i}" in text for i in range(10))
        assert entries <= lines and (entries == lines or lines > 110 or entries > lines - 10)
        assert "200 in 100 arrays, 1.6 kB" in text
    text, _ = read(array_trees.tree_html("t", tree, lines=12))
    assert all(f"k{i}" in text for i in range(10))


def test_amounts():
    assert markup.amount(1536, "B") == "1.54 kB" and markup.quantity(1200, "row") == "1,200 rows"


def test_nothing_of_it_is_loaded_before_it_is_used():
    code = (
        "import sys, toile, toile.numpy as jnp, toile.linen as nn\n"
        "repr(jnp.ones(3)), repr(nn.Dense(3))\n"
        "from toile.training.train_state import TrainState\n"
        "found = [m for m in sys.modules if m.startswith(('toile.displays', 'IPython'))\n"
        "         or m.endswith('_html')]\n"
        "assert not found, found\n"
        "jnp.ones(3)._repr_html_()\n"
        "assert 'toile.displays.arrays' in sys.modules and 'IPython' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
