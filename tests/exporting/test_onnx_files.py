"""ONNX files: what toile writes, and what it reads of its own files and of PyTorch's.

The values are those of toile (or PyTorch), evaluated by `from_onnx` and, where it is installed, by
ONNX Runtime.
"""

import importlib.util

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.exporting import subjects
from toile.engine.errors import UnreadableFileError
from toile.engine.file_reader import guarded
from toile.export import from_onnx, to_onnx
from toile.exporting import onnx_format

TYPES = ("float32", "int32", "bool")
# Words in the names of rows whose operations ONNX lacks, or toile does not write.
ABSENT = (
    "Nextafter", "Shift", "PopulationCount", "Clz", "Gcd", "Complex", "Conj", "Lgamma", "Digamma",
    "Polygamma", "Zeta", "Igamma", "RandomGammaGrad", "IncompleteBeta", "Bessel", "Bitcast",
    "ReducePrecision", "ReduceXor", "shifted", "ReduceWindowProd", "ReduceWindowAnd",
    "ReduceWindowOr", "SelectAnd", "Fft", "Cholesky", "Lu", "Geqrf", "Householder", "Ormqr", "Qr",
    "Eig", "Tridiagonal", "Schur", "Hessenberg", "Svd", "TriangularSolve", "FactoredSolve",
    "Random", "LinearSolve", "Callback", "Spmd", "bfloat16", "Dequantize-4-3-1",
)
INTEGERS = ("ReduceAnd", "ReduceOr", "ReduceWindow")  # written for some dtypes only
LAYERS_ABSENT = "complex", "dropout", "conv 0d"  # complex and random numbers, no spatial axes


def runtime():
    """ONNX Runtime, if it is installed."""
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    return onnxruntime


def check(path, args, want, rtol):
    """The file gives the values, as a function of toile and with ONNX Runtime."""
    function, params = from_onnx(path)
    got = toile.tree_util.tree_leaves(function(params, *args))
    subjects.compare([np.asarray(g) for g in got], want, rtol)
    found = runtime()
    if found is not None:
        session = found.InferenceSession(path, providers=["CPUExecutionProvider"])
        names = [i.name for i in session.get_inputs()]
        subjects.compare(session.run(None, dict(zip(names, args, strict=True))), want, rtol)


@pytest.mark.parametrize("row, dtype", subjects.operations(TYPES), ids=str)
def test_operation(row, dtype, tmp_path):
    path, name = tmp_path / "operation.onnx", str(row)
    subject = subjects.operation(row, dtype)
    absent = any(word in name for word in ABSENT) or (
        dtype == "int32" and any(word in name for word in INTEGERS))
    with toile.enable_x64(True):
        want = subject.results(subject.args)
        try:
            to_onnx(subject.function, *subject.args, path=path)
        except NotImplementedError as error:
            assert absent, name
            assert str(error).startswith("to_onnx: needed ")
            return
        check(path, subject.args, want, max(subject.rtol, 1e-5))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", subjects.layers(), ids=lambda row: row.name)
def test_layer(row, tmp_path):
    subject = subjects.layer(row)
    if subject is not None:
        check_model(subject, tmp_path, bool(row.rngs) or any(w in row.name for w in LAYERS_ABSENT))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", subjects.EXAMPLES)
def test_example(name, tmp_path):
    check_model(subjects.example(name), tmp_path, name == "vae")


def check_model(subject, tmp_path, may_lack):
    """The values are equal at the given batch size and, with a free batch, at three times it."""
    path = tmp_path / "model.onnx"
    cases = [(False, [np.asarray(a) for a in subject.args], subject.results(subject.args))]
    larger, want = subject.scaled()
    if larger is not None:
        cases.append((True, larger, want))
    for free, args, want in cases:
        try:
            to_onnx(subject.function, *subject.args, path=path, params=subject.params,
                    free_batch=free)
        except NotImplementedError as error:
            windowed = "reduce_window" in str(error) and free  # windows over the batch
            drawn = "threefry" in str(error)
            assert may_lack or windowed or drawn, error
            return
        check(path, args, want, max(subject.rtol, 1e-5))


# The names of torch_models.MODELS; whoever collects tests would wait seconds for PyTorch.
MODELS_OF_TORCH = (
    "cnn", "pools", "deconvolution", "one dimension", "lstm", "gru", "rnn", "causal", "attention",
    "indexing", "nearest", "bilinear", "aligned", "shuffle",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("name", MODELS_OF_TORCH)
def test_file_of_pytorch(name, free, tmp_path):
    pytest.importorskip("torch")
    from tests.exporting import torch_models

    assert set(MODELS_OF_TORCH) == set(torch_models.MODELS)
    data, x, want = torch_models.exported(name, free)
    (tmp_path / "torch.onnx").write_bytes(data)
    function, params = from_onnx(tmp_path / "torch.onnx")
    got = toile.tree_util.tree_leaves(toile.jit(function)(params, x.numpy()))
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(g), w, rtol=1e-4, atol=1e-5)


def test_functions_of_files_are_differentiable(tmp_path):
    to_onnx(lambda p, x: jnp.tanh(x @ p["w"]), jnp.ones((2, 3)), path=tmp_path / "f.onnx",
            params={"w": jnp.ones((3, 4))}, free_batch=True)
    function, params = from_onnx(tmp_path / "f.onnx")
    assert set(params) == {"w"}
    x = jnp.linspace(-1, 1, 15).reshape(5, 3)
    grad = toile.grad(lambda p: function(p, x).sum())(params)["w"]
    want = toile.grad(lambda w: jnp.tanh(x @ w).sum())(params["w"])
    np.testing.assert_allclose(grad, want, rtol=1e-6)


@pytest.fixture(scope="module")
def small_file(tmp_path_factory):
    """A file with a loop, weights and several operators."""
    def f(p, x):
        return toile.lax.fori_loop(0, 3, lambda i, h: jnp.tanh(h @ p["w"]), x).sum(0)

    path = tmp_path_factory.mktemp("onnx") / "small.onnx"
    to_onnx(f, jnp.ones((2, 3)), path=path, params={"w": jnp.eye(3)})
    return path


def test_damaged_files_give_one_error(small_file, tmp_path):
    """Any truncation or changed byte: the file is read, or the error says what is wrong."""
    data = small_file.read_bytes()
    rng = np.random.RandomState(0)
    damaged = [data[:n] for n in rng.randint(0, len(data), 150)]
    for _ in range(400):
        copy = bytearray(data)
        copy[rng.randint(len(data))] ^= 1 << rng.randint(8)
        damaged.append(bytes(copy))
    damaged += [rng.bytes(n) for n in rng.randint(0, 300, 100)]
    refused = 0
    for content in damaged:
        (tmp_path / "damaged.onnx").write_bytes(content)
        try:
            from_onnx(tmp_path / "damaged.onnx")
        except (UnreadableFileError, NotImplementedError) as error:
            refused += 1
            assert str(error).startswith(("from_onnx: needed", "decode: needed")), error
            assert "damaged.onnx" in str(error)
    assert refused > 200


def test_damaged_operators_give_value_errors(small_file):
    """A file that can be read but not run raises ValueError or TypeError when it is called."""
    data = small_file.read_bytes()
    rng = np.random.RandomState(1)
    for _ in range(150):
        copy = bytearray(data)
        copy[rng.randint(len(data))] ^= 1 << rng.randint(8)
        small_file.with_name("changed.onnx").write_bytes(copy)
        try:
            function, params = from_onnx(small_file.with_name("changed.onnx"))
        except (UnreadableFileError, NotImplementedError):
            continue
        try:
            toile.eval_shape(function, params, jnp.ones((2, 3)))
        except (ValueError, TypeError) as error:
            assert str(error)


@pytest.mark.parametrize("f, options, error, message", [
    (lambda x: x.astype(jnp.bfloat16) * 2, {}, NotImplementedError, "got bfloat16"),
    (lambda x: toile.pure_callback(np.sin, x, x), {}, NotImplementedError, "`pure_callback` at"),
    (lambda x: x, {"path": "model.txt"}, ValueError, r"needed a path that ends with \.onnx"),
])  # fmt: skip
def test_errors_of_writing(f, options, error, message, tmp_path):
    given = {"path": "model.onnx", **options}
    with pytest.raises(error, match=message):
        to_onnx(f, jnp.ones(4), **{**given, "path": tmp_path / given["path"]})


def test_errors_of_calls(small_file):
    function, params = from_onnx(small_file)
    with pytest.raises(TypeError, match=r"needed 1 arguments \(x\) after the parameters, got 2"):
        function(params, 1, 2)
    with pytest.raises(ValueError, match=r"needed x of type float32\[2,3\], got float32\[4\]"):
        function(params, jnp.ones(4))


def test_unknown_operators_are_named(tmp_path):
    value = onnx_format.value_info("x", np.dtype(np.float32), [2])
    node = onnx_format.node("Mystery", ["x"], ["y"], {}, "n", "")
    out = onnx_format.value_info("y", np.dtype(np.float32), [2])
    graph = onnx_format.graph("g", [node], [], [value], [out])
    (tmp_path / "m.onnx").write_bytes(onnx_format.model(graph, "0"))
    with pytest.raises(NotImplementedError, match="operators that toile has, got Mystery"):
        from_onnx(tmp_path / "m.onnx")


def test_formats_of_numbers():
    """Tensors with typed fields, as other exporters write them."""
    from toile.engine import protobuf as pb

    with guarded("test", "tensors"):
        packed = pb.field(1, 3) + pb.field(2, 7) + pb.field(7, b"\x01\x02\x7f") + pb.field(8, "i")
        name, x = onnx_format.read_tensor(packed)
        assert name == "i" and x.dtype == np.int64 and x.tolist() == [1, 2, 127]
        half = pb.field(1, 1) + pb.field(2, 10) + pb.field(5, pb.varint(0x3C00))
        assert onnx_format.read_tensor(half)[1].tolist() == [1.0]
