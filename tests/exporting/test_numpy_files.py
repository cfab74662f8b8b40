"""Exported NumPy files give toile's values: operations, layers and examples, at two batch sizes."""

import ast
import subprocess
import sys

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.cases_control import ROWS
from tests.exporting import subjects
from tests.test_operations import classes
from toile.export import to_numpy
from toile.exporting.numpy_code import special
from toile.exporting.numpy_rules import RULES
from toile.primitives.arrays import special as raw

TYPES = ("float16", "float32", "float64", "complex64", "complex128", "int32", "int64", "int8",
         "uint8", "uint32", "bool")  # fmt: skip

# Operations without a rule. Calls are inlined before rules are applied.
ABSENT = {
    "CholeskyUpdate", "Geqrf", "HouseholderProduct", "Ormqr", "Tridiagonal", "Schur", "Hessenberg",
}
REFUSED = {"Qr-pivoting", "Eig"}  # rows with parameters that a rule refuses
OUTSIDE = ("Callback", "Spmd")  # what no file can contain


@pytest.mark.parametrize("row, dtype", subjects.operations(TYPES), ids=str)
def test_operation(row, dtype, tmp_path):
    path, name, subject = tmp_path / "operation.py", str(row), subjects.operation(row, dtype)
    with toile.enable_x64(True):
        if name.partition("-")[0] in ABSENT or name in REFUSED or any(
                word in name for word in OUTSIDE):
            with pytest.raises(NotImplementedError, match=r"to_numpy: needed operations .* got `"):
                to_numpy(subject.function, *subject.args, path=path)
            return
        want = subject.results(subject.args)
        if any(w.dtype.name.startswith(subjects.NARROW) for w in want):
            return
        to_numpy(subject.function, *subject.args, path=path)
        subjects.compare(subjects.loaded(path).operation(*subject.args), want, subject.rtol)


def test_operations_without_a_rule():
    """No operation of the table is forgotten."""
    rows = {row.op for row in ROWS}
    lacking = {cls.__name__ for cls in classes() if cls in rows and cls not in RULES}
    expected = {"Call", "Remat", "CustomJVPCall", "CustomVJPCall", "LinearCall", "LinearSolve",
                "Dequantize", "LowRankSum"}
    outside = {name for name in lacking if any(word in name for word in OUTSIDE)}
    inlined = {cls.__name__ for cls in classes() if getattr(cls, "is_inlined", False)}
    keyed = {"RandomSeed", "RandomSplit", "RandomFoldIn", "RandomBits"}  # become integer arithmetic
    rest = lacking - ABSENT - outside - inlined - keyed - expected
    assert rest <= {"AllReduce", "AllGather", "AllToAll", "PPermute", "ReduceScatter", "AxisIndex",
                    "AllReduceBegin", "AllReduceEnd", "AllReduceTogether", "RematLinear",
                    "LinearWhile", "CustomLinear", "CheckIndex", "Attention", "AttentionGradient",
                    "AttentionTangent"}, rest


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", subjects.layers(), ids=lambda row: row.name)
def test_layer(row, tmp_path):
    subject = subjects.layer(row)
    if subject is not None:
        check_model(subject, tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", subjects.EXAMPLES)
def test_example(name, tmp_path):
    check_model(subjects.example(name), tmp_path)


def check_model(subject, tmp_path):
    """The values are equal at the given batch size and, with a free batch, at three times it."""
    path = tmp_path / "model.py"
    to_numpy(subject.function, *subject.args, path=path, params=subject.params)
    got = subjects.loaded(path).model(*map(np.asarray, subject.args))
    want = subject.results(subject.args)
    subjects.compare(toile.tree_util.tree_leaves(got), want, subject.rtol)
    larger, want = subject.scaled()
    if larger is None:
        return
    to_numpy(subject.function, *subject.args, path=path, params=subject.params, free_batch=True)
    got = subjects.loaded(path).model(*larger)
    subjects.compare(toile.tree_util.tree_leaves(got), want, subject.rtol)


def test_the_file_needs_numpy_only(tmp_path):
    subject = subjects.example("mnist")
    text = to_numpy(subject.function, *subject.args, path=tmp_path / "net.py",
                    params=subject.params, free_batch=True)
    imported = {a.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import)
                for a in node.names}
    assert imported == {"math", "os", "numpy"}
    np.save(tmp_path / "x.npy", subject.args[0])
    script = ("import sys, numpy as np; sys.modules['toile'] = sys.modules['scipy'] = None; "
              "from net import net; np.save('y.npy', net(np.load('x.npy')))")
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=60)
    subjects.compare([np.load(tmp_path / "y.npy")], subject.results(subject.args), 1e-5)


def test_modules_are_functions_and_lines_are_comments(tmp_path):
    class Net(toile.linen.Module):
        @toile.linen.compact
        def __call__(self, x):
            return toile.linen.LayerNorm()(toile.linen.Dense(3)(x))

    net, x = Net(), jnp.ones((2, 4))
    text = to_numpy(net.apply, x, path=tmp_path / "net.py", params=net.init(toile.random.key(0), x),
                    free_batch=True)
    assert "def layer_norm_0(x, n):" in text or "def layer_norm_0(x):" in text
    assert '"""Net/LayerNorm_0: float32[n, 3] -> float32[n, 3]."""' in text
    assert "# test_numpy_files.py:" in text and "W['params/Dense_0/kernel']" in text


def test_trees_of_arguments_and_results(tmp_path):
    def f(batch, pair):
        return {"sum": batch["a"] + pair[0], "none": None, "list": [batch["b"]]}

    args = ({"a": jnp.ones(3), "b": jnp.zeros((2, 2))}, (jnp.arange(3.0), jnp.ones(())))
    to_numpy(f, *args, path=tmp_path / "tree.py")
    plain = toile.tree_util.tree_map(np.asarray, args)
    got = subjects.loaded(tmp_path / "tree.py").tree(*plain)
    assert set(got) == {"sum", "none", "list"} and got["none"] is None
    np.testing.assert_array_equal(got["sum"], [1, 2, 3])
    with pytest.raises(ValueError, match=r"needed x0\['a'\] of shape \(3,\), got \(4,\)"):
        subjects.loaded(tmp_path / "tree.py").tree({**plain[0], "a": np.ones(4)}, plain[1])


class Odd:
    """A result that is no container of Python."""


toile.tree_util.register_pytree_node(Odd, lambda o: ((jnp.ones(2),), None), lambda _, c: Odd())


@pytest.mark.parametrize("f, options, error, message", [
    (lambda x: x.astype(jnp.bfloat16), {}, NotImplementedError, "needed dtypes that NumPy has, got "
     "bfloat16"),
    (lambda x: toile.pure_callback(np.sin, x, x), {}, NotImplementedError, "got `pure_callback` at "
     ".*test_numpy_files"),
    (lambda x: x, {"path": "model.txt"}, ValueError, r"needed a path that ends with \.py"),
    (lambda x: sum(x[i] for i in range(len(x))), {"free_batch": True}, ValueError,
     "needed the same operations for all batch sizes"),
    (lambda x: jnp.ones(x.shape[0] // 2), {"free_batch": True}, ValueError, "a size is 18, 26, 35"),
    (lambda x: x * np.sin(np.arange(x.shape[0], dtype=np.float32)), {"free_batch": True},
     ValueError, "needed constants that do not depend on the batch size"),
    (lambda x: Odd(), {}, TypeError, "needed a result made of tuples"),
    (3, {}, TypeError, "needed a function, got"),
])  # fmt: skip
def test_errors(f, options, error, message, tmp_path):
    given = {"path": "model.py", **options}
    with pytest.raises(error, match=message):
        to_numpy(f, jnp.ones(4), **{**given, "path": tmp_path / given["path"]})


def test_no_batch_axis(tmp_path):
    with pytest.raises(ValueError, match="needed an argument with a batch axis"):
        to_numpy(jnp.sin, 1.0, path=tmp_path / "f.py", free_batch=True)


def test_counts_and_means_follow_the_batch(tmp_path):
    """Numbers that are the batch size, its inverse, and counts made by NumPy."""
    def f(x):
        n = x.shape[0]
        return x.mean(), x / n, x * np.arange(n), x.sum() * (1 / (2 * n + 3)), jnp.arange(2 * n)

    to_numpy(f, jnp.ones(4), path=tmp_path / "f.py", free_batch=True)
    for n in (1, 6):
        x = np.random.RandomState(n).normal(size=n).astype(np.float32)
        want = [np.asarray(y) for y in f(jnp.asarray(x))]
        subjects.compare(subjects.loaded(tmp_path / "f.py").f(x), want, 1e-6)


WIDE = np.concatenate([np.linspace(-9.3, 12.1, 87), [0, 1, -1, 1e-8, 30.5, 77.2, np.inf, -np.inf,
                                                     np.nan]])  # fmt: skip
POSITIVE = np.concatenate([np.geomspace(1e-3, 120, 40), [0, 1, np.nan]])
PAIRS = [x.reshape(-1) for x in np.meshgrid(POSITIVE, POSITIVE)]
TRIPLES = [x.reshape(-1) for x in np.meshgrid(POSITIVE[::5], POSITIVE[::5], np.linspace(0, 1, 9))]


@pytest.mark.parametrize("name, args, rtol", [
    ("erf", [WIDE], 1e-13), ("erfc", [WIDE], 1e-12), ("lgamma", [WIDE], 1e-12),
    ("digamma", [WIDE], 1e-10), ("bessel_i0e", [WIDE], 1e-13), ("bessel_i1e", [WIDE], 1e-13),
    ("erf_inv", [np.linspace(-1, 1, 101)], 1e-12), ("igamma", PAIRS, 1e-10),
    ("igammac", PAIRS, 1e-9), ("zeta", PAIRS, 1e-11), ("betainc", TRIPLES, 1e-10),
    ("igamma_grad_a", PAIRS, 1e-6), ("random_gamma_grad", PAIRS, 1e-6),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_special_function(name, args, rtol):
    """The functions in the files agree with SciPy's, far from the origin too.

    Where a result is far below its largest value, an absolute error counts."""
    got = getattr(special, name)(*args)
    want = getattr(raw, name)(np, *args)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-13)
