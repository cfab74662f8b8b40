"""Exported C libraries give toile's values: operations, layers and examples, at several batch
sizes; programs in C and in Python call them; wrong arguments get an error code."""

import ctypes
import os
import platform
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.exporting import c_libraries, subjects
from tests.exporting.c_libraries import SUFFIX, Library
from toile import linen as nn
from toile.export import to_c
from toile.exporting.c_plans import c_plan
from toile.exporting.tracing import trace

needs_compiler = pytest.mark.skipif(not c_libraries.HAS_COMPILER, reason=c_libraries.REASON)
TYPES = ("float16", "float32", "float64", "complex64", "complex128", "int32", "int64", "int8",
         "uint8", "uint32", "bool")  # fmt: skip
ROWS = subjects.operations(TYPES)
TOGETHER = 20  # rows in one library

# Operations that need LAPACK, BLAS for complex numbers, Python, or several devices. Calls are
# inlined before kernels are chosen.
ABSENT = (
    "Cholesky", "CholeskyUpdate", "Lu", "LuFactors", "Geqrf", "HouseholderProduct", "Ormqr", "Qr",
    "Eigh", "Eig", "Tridiagonal", "TridiagonalSolve", "Schur", "Hessenberg", "Svd",
    "TriangularSolve", "FactoredSolve", "LinearSolve", "RandomClone", "RandomConsume",
    "PureCallback", "IoCallback", "OrderedIoCallback", "DebugCallback", "OrderedDebugCallback",
    "Spmd", "Constraint", "Varying", "BitcastConvertType",
)  # fmt: skip
COMPLEX_ABSENT = ("DotGeneral", "ConvGeneralDilated")
# Multiples of the batch size that are tested; 0 stands for one row. Some layers have variances that
# are rounding errors, which depend on the order of sums, or windows over the first axis.
TIMES = {"batch norm constant input": (), "batch norm slow variance": (3,),
         "max pool without batch": (3,)}  # fmt: skip


def may_lack(row, dtype):
    name = str(row).partition("-")[0]
    return name in ABSENT or dtype.startswith("complex") and name in COMPLEX_ABSENT


def is_refused(subject):
    """Whether there is no C plan; the error must name an operation and a line."""
    try:
        c_plan(trace(subject.function, subject.args, None, False, "f").program, False)
    except NotImplementedError as error:
        assert str(error).startswith("to_c: needed operations that this target has, got `")
        assert ".py:" in str(error)
        return True
    return False


@needs_compiler
@pytest.mark.parametrize("first", range(0, len(ROWS), TOGETHER))
def test_operations(first, tmp_path):
    """Several rows are exported as one function, to save time."""
    kept = []
    with toile.enable_x64(True):
        for row, dtype in ROWS[first: first + TOGETHER]:
            subject = subjects.operation(row, dtype)
            want = subject.results(subject.args)
            if any(w.dtype.name.startswith(subjects.NARROW) for w in want):
                continue
            if is_refused(subject):
                assert may_lack(row, dtype), (row, dtype)
                continue
            kept.append((subject, want))

        def together(*groups):
            return [s.function(*xs) for (s, _), xs in zip(kept, groups, strict=True)]

        path = tmp_path / f"operations{SUFFIX}"
        to_c(together, *[tuple(s.args) for s, _ in kept], path=path)
    wanted = [w for _, want in kept for w in want]
    got = iter(Library(path, False)([np.asarray(a) for s, _ in kept for a in s.args], wanted))
    for subject, want in kept:
        subjects.compare([next(got) for _ in want], want, subject.rtol)


@needs_compiler
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", subjects.layers(), ids=lambda row: row.name)
def test_layer(row, tmp_path):
    subject = subjects.layer(row)
    if subject is None:
        return
    try:
        check_model(subject, tmp_path, TIMES.get(row.name, (3, 0, 40)))
    except NotImplementedError as error:
        complex_product = "complex" in row.name and "got `dot_general`" in str(error)
        loop = any(s in str(error) for s in ("got `scan` over the batch", "batch size in loops"))
        assert complex_product or loop, error


@needs_compiler
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", subjects.EXAMPLES)
def test_example(name, tmp_path):
    check_model(subjects.example(name), tmp_path)


def check_model(subject, tmp_path, times=(3, 0)):
    """The values are equal at the given batch size and, with a free batch, at one row and several
    times the batch size too."""
    args = [np.asarray(a) for a in subject.args]
    want = subject.results(args)
    path = tmp_path / f"fixed{SUFFIX}"
    to_c(subject.function, *args, path=path, params=subject.params)
    library = Library(path, False)
    subjects.compare(library(args, want), want, subject.rtol)
    library.close()
    if subject.scaled()[0] is None:
        return
    cases = map(subject.scaled, times)
    path = tmp_path / f"free{SUFFIX}"
    to_c(subject.function, *args, path=path, params=subject.params, free_batch=True)
    library = Library(path, True)
    for given, expected in (*cases, (args, want)):
        subjects.compare(library(given, expected), expected, subject.rtol)
    library.close()


class Net(nn.Module):
    """Layers with products, convolutions, sums over the batch and a loop."""

    @nn.compact
    def __call__(self, x):
        y = nn.relu(nn.Conv(8, (3, 3))(x))
        y = nn.max_pool(y, (2, 2), (2, 2)).reshape((x.shape[0], -1))
        y = nn.LayerNorm()(nn.Dense(24)(y))
        y = toile.lax.fori_loop(0, 3, lambda i, h: jnp.tanh(h) + i, y)
        y = y - y.mean(0)
        return {"probabilities": nn.softmax(nn.Dense(10)(y)), "total": (y * y).sum(),
                "count": x.shape[0], "order": jnp.argsort(y[:, 0])}  # fmt: skip


def net():
    """The module's function, its parameters, and images of a batch size."""
    module = Net()
    params = module.init(toile.random.key(0), jnp.ones((1, 8, 8, 3)))
    return module.apply, params


def images(n):
    return np.random.RandomState(n).normal(size=(n, 8, 8, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The net as a library with a free batch size."""
    if not c_libraries.HAS_COMPILER:
        pytest.skip(c_libraries.REASON)
    apply, params = net()
    path = tmp_path_factory.mktemp("c") / f"net{SUFFIX}"
    to_c(apply, images(2), path=path, params=params, free_batch=True)
    return path


def wanted(n):
    apply, params = net()
    found = toile.tree_util.tree_leaves(apply(params, images(n)))
    return [np.asarray(w) if np.ndim(w) else np.asarray(w, np.asarray(jnp.asarray(w)).dtype)
            for w in found]


def test_batch_sizes(library):
    """One context serves batches of any size, in any order."""
    made = Library(library, True)
    for n in (3, 1, 130, 2, 17, 64, 129, 5):
        want = wanted(n)
        subjects.compare(made([images(n)], want), want, 2e-5)
    made.close()


def test_results_do_not_depend_on_the_number_of_threads(library):
    want = wanted(40)
    results = []
    for threads in (1, 2, 3, 7, 0):
        made = Library(library, True, threads)
        results.append([made([images(40)], want) for _ in range(5)])
        made.close()
    for several in results:
        for got in several:
            for g, w in zip(got, results[0][0], strict=True):
                np.testing.assert_array_equal(g, w)


def test_several_threads_call_at_once(library):
    """Each has a context of its own; one context that two threads use gives the code for that."""
    want = {n: wanted(n) for n in (6, 33, 50)}
    failures = []

    def call(n):
        try:
            made = Library(library, True, 2)
            for _ in range(20):
                subjects.compare(made([images(n)], want[n]), want[n], 2e-5)
            made.close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=call, args=(n,)) for n in want]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures


def test_error_codes(library):
    made = Library(library, True, 1)
    x, outs = images(2), [np.empty_like(w) for w in wanted(2)]
    good = [x, *outs]
    assert made.code(2, good) == 0
    assert "wrong" in made.text(made.code(3, good))
    for n in (0, -1, 2**40):
        assert "the batch size is not between 1 and" in made.text(made.code(n, good))
    run = made.function("run")
    pointers = [a.ctypes.data for a in good]
    for i in range(len(good)):
        for address, said in ((0, "NULL"), (pointers[i] + 1, "multiple")):
            given = [made.context, ctypes.c_int64(2)]
            for j, a in enumerate(good):
                given += [ctypes.c_void_p(address if j == i else pointers[j]),
                          ctypes.c_int64(a.size)]
            assert said in made.text(run(*given))
    assert "NULL" in made.text(run(None, ctypes.c_int64(2), *[
        z for a in good for z in (ctypes.c_void_p(a.ctypes.data), ctypes.c_int64(a.size))]))
    other = ctypes.c_void_p()
    create = made.function("create")
    assert "threads" in made.text(create(ctypes.byref(other), -1)) and not other
    assert "threads" in made.text(create(ctypes.byref(other), 100_000))
    assert "NULL" in made.text(create(None, 1))
    assert made.text(99) == "unknown error"
    made.function("destroy", None)(None)
    count = made.function("x_count", ctypes.c_int64)
    assert count(ctypes.c_int64(5)) == images(5).size
    assert made.code(2, good) == 0
    made.close()


# A program that calls the library from two threads, and prints its results.
PROGRAM = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "net.h"

#define N 5

static float x[N * 8 * 8 * 3];
static float results[2][N * 10];

static void *call(void *given) {
    int i = (int)(size_t)given;
    net_context *context;
    int code = net_create(&context, i + 1);
    int32_t count, order[N];
    float total;
    for (int k = 0; k < 50 && !code; k++)
        code = net_run(context, N, x, net_x_count(N), &count, 1, order, N, results[i], N * 10,
                       &total, 1);
    if (code) fprintf(stderr, "%s\n", net_error_text(code));
    net_destroy(context);
    return (void *)(size_t)(code || count != N);
}

int main(void) {
    pthread_t threads[2];
    void *failed;
    if (fread(x, sizeof *x, N * 8 * 8 * 3, stdin) != N * 8 * 8 * 3) return 1;
    for (size_t i = 0; i < 2; i++) pthread_create(threads + i, NULL, call, (void *)i);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], &failed);
        if (failed) return 2;
    }
    fwrite(results, sizeof **results, 2 * N * 10, stdout);
    return 0;
}
"""


def c_program(folder, *linked):
    """Compile and run the program, without Python and without an environment."""
    (folder / "main.c").write_text(PROGRAM)
    subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", "-o", "main", "main.c", *linked,
                    "-pthread", "-lm"], cwd=folder, check=True, timeout=120)
    environment = {"LD_LIBRARY_PATH": str(folder), "DYLD_LIBRARY_PATH": str(folder)}
    ran = subprocess.run([folder / "main"], input=images(5).tobytes(), capture_output=True,
                         env=environment, check=True, timeout=120)
    got = np.frombuffer(ran.stdout, np.float32).reshape(2, 5, 10)
    want = wanted(5)[2]
    subjects.compare([got[0], got[1]], [want, want], 2e-5)


@needs_compiler
def test_a_c_program_calls_the_library(library, tmp_path):
    for name in (library.name, "net.h"):
        shutil.copy(library.with_name(name), tmp_path)
    c_program(tmp_path, library.name)


@needs_compiler
def test_an_object_file_is_compiled_and_linked_elsewhere(tmp_path, monkeypatch):
    apply, params = net()
    monkeypatch.setenv("CC", "no-such-compiler")
    header = to_c(apply, images(2), path=tmp_path / "net.o", params=params, free_batch=True)
    assert header == (tmp_path / "net.h").read_text()
    assert {p.name for p in tmp_path.iterdir()} == {"net.c", "net.h", "net.o"}
    subprocess.run(["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-c", "net.c", "-o",
                    "rest.o"], cwd=tmp_path, check=True, timeout=120)
    c_program(tmp_path, "net.o", "rest.o")


@needs_compiler
@pytest.mark.skipif(sys.platform != "linux", reason="reads ELF files")
def test_the_library_needs_the_c_library_only(library):
    """It loads no other library, and exports its own functions only."""
    if shutil.which("readelf") is None:
        pytest.skip("readelf is not installed")
    read = lambda *args: subprocess.run(["readelf", "-W", *args, library], capture_output=True,
                                        text=True, check=True).stdout
    needed = [line.partition("[")[2] for line in read("-d").splitlines() if "NEEDED" in line]
    allowed = ("libc.", "libm.", "libpthread.", "ld-linux")
    assert all(name.startswith(allowed) for name in needed), needed
    own = {line.split()[-1] for line in read("--dyn-syms").splitlines()
           if " GLOBAL " in line and " UND " not in line}
    assert all(name.startswith("net_") for name in own) and "net_run" in own, own


@needs_compiler
def test_the_header_can_be_read_by_cplusplus(library, tmp_path):
    if shutil.which("c++") is None:
        pytest.skip("c++ is not installed")
    (tmp_path / "main.cpp").write_text('#include "net.h"\nint main() { return NET_OK; }')
    subprocess.run(["c++", "-Wall", "-Werror", f"-I{library.parent}", "-c", "main.cpp"],
                   cwd=tmp_path, check=True, timeout=120)
    text = library.with_suffix(".h").read_text()
    assert "float32[192 * n]" not in text and "x: float32[n, 8, 8, 3]" in text
    assert "result['probabilities']" in text and "NET_SMALLEST_BATCH" in text


@needs_compiler
@pytest.mark.parametrize("processor", ["x86-64-v2", "x86-64-v3", "native", "armv8-a"])
def test_processors(processor, tmp_path):
    """Libraries for other processors of the same kind run here, and do not use their absence."""
    arm = platform.machine().lower() in ("aarch64", "arm64")
    apply, params = net()
    path = tmp_path / f"net{SUFFIX}"
    if processor != "native" and arm == processor.startswith("x86"):
        with pytest.raises(ValueError, match=f"needed a processor among .* got .{processor}"):
            to_c(apply, images(2), path=path, params=params, processor=processor)
        return
    to_c(apply, images(2), path=path, params=params, free_batch=True, processor=processor)
    want = wanted(9)
    subjects.compare(Library(path, True)([images(9)], want), want, 2e-5)
    if processor == "x86-64-v2" and shutil.which("objdump"):
        code = subprocess.run(["objdump", "-d", path], capture_output=True, text=True, check=True)
        assert "%xmm" in code.stdout and "%ymm" not in code.stdout
    np.testing.assert_array_equal(toile.jit(jnp.tanh)(jnp.ones(100)), jnp.tanh(jnp.ones(100)))


def over_the_batch(x):
    return toile.lax.scan(lambda c, y: (c + y, c), 0.0, x)[1]


@pytest.mark.parametrize("f, options, error, message", [
    (lambda x: toile.pure_callback(np.sin, x, x), {}, NotImplementedError,
     "to_c: needed operations that this target has, got `pure_callback` at .*test_c_files.py:"),
    (lambda x: jnp.linalg.cholesky(jnp.outer(x, x)), {}, NotImplementedError, "`cholesky` at "),
    (over_the_batch, {"free_batch": True}, NotImplementedError, "got `scan` over the batch at "),
    (lambda x: x, {"path": "model.txt"}, ValueError, r"needed a path that ends with \.(so|dylib)"),
    (lambda x: x.astype(jnp.float8_e5m2), {}, NotImplementedError, "got `convert_element_type` at"),
    (lambda x: x, {"processor": "z80"}, ValueError, "needed a processor among native"),
    (lambda x: jnp.ones(x.shape[0] // 2), {"free_batch": True}, ValueError, "a size is 18, 26, 35"),
])  # fmt: skip
def test_errors(f, options, error, message, tmp_path):
    given = {"path": "model.o", **options}
    with pytest.raises(error, match=message):
        to_c(f, jnp.ones(4), **{**given, "path": tmp_path / given["path"]})


def test_dtypes_that_c_lacks(tmp_path):
    with pytest.raises(NotImplementedError, match=r"dtypes that C has, got float8_e5m2\[4\] for x"):
        to_c(lambda x: x, jnp.ones(4, jnp.float8_e5m2), path=tmp_path / "f.o")


def test_without_a_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(RuntimeError, match="needed a C compiler .* got no program 'no-such-compil"):
        to_c(jnp.sin, jnp.ones(3), path=tmp_path / f"sin{SUFFIX}")
    assert not os.listdir(tmp_path)


@needs_compiler
def test_trees_dtypes_and_names(tmp_path):
    """Arguments are named by their paths; all kinds of numbers are passed, also without weights."""
    def f(batch, int):
        return {"sum": batch["a"] + int[0], "half": batch["h"] * 2, "flags": ~batch["f"],
                "none": None, "z": int[1] * 1j}  # fmt: skip

    args = ({"a": np.arange(3, dtype=np.int8), "h": np.ones((2, 2), np.float16),
             "f": np.array([True, False])}, (np.int8(4), np.array([1 + 2j], np.complex64)))
    path = tmp_path / f"tree{SUFFIX}"
    text = to_c(f, *args, path=path)
    assert "const int8_t *x0_a, int64_t x0_a_count" in text and "x1_0" in text
    assert "(bits of float16)" in text and "float *y3" in text
    leaves = [np.asarray(x) for x in toile.tree_util.tree_leaves(args)]
    want = [np.asarray(x) for x in toile.tree_util.tree_leaves(toile.jit(f)(*args))]
    subjects.compare(Library(path, False)(leaves, want), want, 1e-3)
    (tmp_path / "odd names").mkdir()
    path = tmp_path / "odd names" / f'a "b" 1{SUFFIX}'
    to_c(lambda x: x + 1, jnp.ones(3), path=path)
    assert path.exists() and path.with_suffix(".h").exists()


@needs_compiler
def test_limits_of_the_batch_size(tmp_path):
    """Slices that would be empty, and arrays that would be too large, are refused."""
    path = tmp_path / f"cut{SUFFIX}"
    text = to_c(lambda x: x[3:].sum(1), jnp.ones((9, 4)), path=path, free_batch=True)
    assert "CUT_SMALLEST_BATCH INT64_C(4)" in text
    made = Library(path, True)
    x = np.arange(40, dtype=np.float32).reshape(10, 4)
    for n in (4, 10):
        want = [x[3:n].sum(1)]
        subjects.compare(made([x[:n]], want), want, 1e-6)
    y = np.empty(1, np.float32)
    assert "between 4 and" in made.text(made.code(3, [x[:3], y]))
