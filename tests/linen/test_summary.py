"""Summaries of modules against flax's: the text of the table, paths, FLOPs."""

import sys

import numpy as np
import pytest

import toile
import toile.linen as nn
import toile.numpy as jnp
from tests.linen.oracle import flax_library, toile_library
from toile.linen.summary import Row, Table, represent_tree
from toile.linen.yaml_text import yaml_text

KEY = toile.random.key(0)


def models(lib):
    """The same modules in each library."""
    import importlib

    module = importlib.import_module(lib.nn.__name__ + ".module")
    meta = lib.core.meta
    init = importlib.import_module(lib.jax.__name__ + ".nn.initializers")

    class Linear(module.Module):
        features: int
        use_bias: bool = True

        @lib.nn.compact
        def __call__(self, x):
            kernel = self.param("kernel", init.lecun_normal(), (x.shape[-1], self.features))
            y = lib.lax.dot_general(x, kernel, (((x.ndim - 1,), (0,)), ((), ())))
            if self.use_bias:
                y = y + self.param("bias", init.zeros, (self.features,))[None]
            return y

    class Block(module.Module):
        n: int

        def setup(self):
            self.a = Linear(self.n)
            self.b = Linear(self.n, use_bias=False)

        def __call__(self, x, mask=None, train=False, opts=None):
            return self.b(self.a(x)), {"h": x, "k": (x, [x, None])}

        def other(self, x):
            return self.a(x)

    class Model(module.Module):
        @lib.nn.compact
        def __call__(self, x, flag=True):
            block = Block(x.shape[-1])
            y, _ = block(x, None, train=True, opts={"lr": 0.1, "name": "sgd", "fn": "re lu"})
            y = block.other(y)
            scale = meta.with_partitioning(init.ones, ("model",))
            y = y * self.param("scale", scale, (x.shape[-1],))
            return Linear(2)(y)

    return {"Linear": Linear, "Block": Block, "Model": Model}


@pytest.fixture(scope="module")
def both():
    return [(lib, models(lib)) for lib in (flax_library(), toile_library())]


def texts(both, draw):
    return [draw(lib, made, lib.jnp.ones((16, 9))) for lib, made in both]


OPTIONS = {
    "plain": {},
    "depth 1": {"depth": 1},
    "depth 0": {"depth": 0},
    "repeated": {"show_repeated": True},
    "narrow": {"console_kwargs": {"width": 60}},
    "plain text": {"console_kwargs": {"width": 150, "force_terminal": False}},
    "table": {"table_kwargs": {"expand": True}, "column_kwargs": {"justify": "right"}},
    "keywords": {"flag": False},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_text_is_that_of_flax(both, options):
    options = {"console_kwargs": {"width": 150}, **options}
    a, b = texts(both, lambda lib, m, x: m["Model"]().tabulate(lib.random.key(0), x, **options))
    assert a == b


def test_flops_are_those_of_flax(both):
    options = {"compute_flops": True, "compute_vjp_flops": True, "console_kwargs": {"width": 150}}
    a, b = texts(both, lambda lib, m, x: m["Model"]().tabulate(lib.random.key(0), x, **options))
    assert a == b


LIFTED = {
    "vmap": lambda nn: nn.vmap(
        nn.Dense, variable_axes={"params": 0}, split_rngs={"params": True}
    )(5),
    "jit": lambda nn: nn.jit(nn.remat(nn.Dense))(5),
    "activation": lambda nn: nn.Sequential([nn.Dense(4), nn.relu]),
    "sequence": lambda nn: nn.Sequential([nn.Dense(4), nn.LayerNorm(), nn.Dense(2)]),
}


@pytest.mark.parametrize("name", LIFTED)
def test_lifted_modules(both, name):
    options = {"compute_flops": name != "sequence", "console_kwargs": {"width": 150}}
    draw = lambda lib, _, x: LIFTED[name](lib.nn).tabulate(lib.random.key(0), x, **options)
    a, b = texts(both, draw)
    assert a == b


def test_flops_of_a_scan_count_every_step():
    class Cell(nn.Module):
        @nn.compact
        def __call__(self, c, _):
            return nn.Dense(3)(c), None

    class Stack(nn.Module):
        @nn.compact
        def __call__(self, x):
            axes = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}}
            return nn.scan(Cell, **axes, length=4)()(x, None)[0]

    row, cell, dense = nn.summary.module_table(Stack(), None, False, True, False)(
        KEY, jnp.ones((2, 3))
    )
    assert cell.flops == dense.flops == 2 * 2 * 3 * 3 + 2 * 3
    assert row.flops == 4 * dense.flops


def test_flops_of_a_product():
    # 2 m n k for the product and m n for the bias; twice the product again for the gradients,
    # (m - 1) n additions for the bias', and the cotangents of the variables that come out.
    m, k, n = 16, 9, 4
    make = lambda: nn.summary.module_table(nn.Dense(n), None, False, True, True)
    (row,) = make()(KEY, jnp.ones((m, k)))
    forward = 2 * m * n * k + m * n
    assert row.flops == forward
    assert row.vjp_flops == forward + 4 * m * n * k + (m - 1) * n + k * n + n


def test_flops_of_what_has_no_gradient():
    class Index(nn.Module):
        @nn.compact
        def __call__(self, x):
            self.variable("state", "count", jnp.zeros, (), jnp.int32)
            return x + 1, nn.Dense(2)(x.astype(jnp.float32))

    text = Index().tabulate(KEY, jnp.ones((3, 4), jnp.int32), compute_vjp_flops=True)
    assert "vjp_flops" in text


def test_a_module_with_dropout_and_state_is_counted():
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            x = nn.BatchNorm(use_running_average=not train)(nn.Dense(3)(x))
            return nn.Dropout(0.5, deterministic=not train)(x)

    keys = {"params": KEY, "dropout": toile.random.key(1)}
    table = nn.summary.module_table(Net(), None, False, True, True)(keys, jnp.ones((4, 2)), True)
    assert table.collections == ("batch_stats", "params")
    assert [row.path for row in table] == [(), ("Dense_0",), ("BatchNorm_0",), ("Dropout_0",)]
    assert table[2].size_and_bytes(table.collections) == dict.fromkeys(table.collections, (6, 24))
    assert all(row.flops > 0 and row.vjp_flops >= row.flops for row in table)


def test_module_paths(both):
    seen = [
        {k: repr(v) for k, v in m["Model"]().module_paths(lib.random.key(0), x).items()}
        for lib, m in both
        for x in [lib.jnp.ones((16, 9))]
    ]
    assert seen[0] == seen[1]
    assert list(seen[0]) == ["", "Block_0", "Block_0/a", "Block_0/b", "Linear_0"]


def test_the_function_tabulate_passes_arguments_to_init():
    class Two(nn.Module):
        @nn.compact
        def one(self, x):
            return nn.Dense(2)(x)

    text = nn.tabulate(Two(), KEY, method="one")(jnp.ones((1, 3)))
    assert "(one)" in text.replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert "Dense_0" in text


def test_intermediates_with_mutable():
    class Sows(nn.Module):
        @nn.compact
        def __call__(self, x):
            self.sow("intermediates", "h", x)
            return x

    draw = nn.tabulate(Sows(), KEY, mutable=True)
    assert "intermediates" in draw(jnp.ones(2))
    assert "intermediates" not in nn.tabulate(Sows(), KEY)(jnp.ones(2))


def test_nothing_is_computed():
    class Huge(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(10**6)(x)

    x = toile.ShapeDtypeStruct((10**6, 10**6), jnp.float32)
    assert "1,000,001,000,000" in Huge().tabulate(KEY, x, console_kwargs={"width": 200})


def test_recording_ends_after_an_error():
    class Bad(nn.Module):
        def __call__(self, x):
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        Bad().tabulate(KEY, jnp.ones(1))
    assert nn.Dense(1).module_paths(KEY, jnp.ones((1, 1))).keys() == {""}


def test_rich_is_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with pytest.raises(ImportError, match="pip install rich"):
        nn.Dense(1).tabulate(KEY, jnp.ones((1, 1)))


def test_rows_and_tables():
    row = Row(("a",), nn.Dense(1), "__call__", (), (), {}, {"params": {"w": np.ones((2, 3))}}, 1, 2)
    assert row.size_and_bytes(["params", "other"]) == {"params": (6, 48), "other": (0, 0)}
    assert Table(nn.Dense(1), ["params"], [row])[0] is row


def test_representations():
    shown = represent_tree((jnp.ones((2, 3)), np.float32(2), KEY, 1, None, "a"))
    arrays = ["[dim]float32[/dim][2,3]", "[dim]float32[/dim][]", "[dim]key<fry>[/dim][]"]
    assert [x.render() for x in shown] == [*arrays, "1", "None", "'a'"]


LONG = "Some(thing=3, other='with words', " * 6
TREES = (
    "plain", "[dim]f[/dim][2]", "a: b", "# not", "1", LONG, LONG + ":", "line\nbreak", "é", None,
    (), {}, {"a": "1", "b c": {"d": "e"}}, ("x", ("y", "z")), {"k": ("x", {"p": LONG, "q": ()})},
    ({"a": "x", "b": ("y", {})}, [], {}), {3: "three", True: "yes", None: "no"},
    {"kernel": "[dim]float32[/dim][2,3] [dim]P[/dim](None, 'model')"},
    ("- a", "? b", "x #y", "'q'"), "",
)  # fmt: skip


@pytest.mark.parametrize("tree", TREES, ids=range(len(TREES)))
def test_cells_are_yaml_without_quotes(tree):
    yaml = pytest.importorskip("yaml")
    if tree is None or len(tree) == 0:
        assert yaml_text(tree) == ""
        return
    text = yaml.safe_dump(tree, default_flow_style=False, indent=2, sort_keys=False)
    assert yaml_text(tree) == text.replace("\n...", "").replace("'", "").strip()
