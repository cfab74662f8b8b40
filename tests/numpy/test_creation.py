"""Making arrays with toile.numpy against jax.numpy: values, dtypes, weak types, errors."""

import io

import jax
import numpy as np
import pytest

import toile
import toile.numpy as tnp
from tests.numpy.compare import RECORD, check

CASES = """
jnp.array(1.0)|jnp.asarray(1)|jnp.asarray(True)|jnp.array([1.0, 2])|jnp.asarray([1, 2])
jnp.asarray([True, False])|jnp.asarray([1, 2.5, True])|jnp.asarray([1j, 2])|jnp.asarray((1, (2)))
jnp.asarray(np.float64(1))|jnp.asarray(1.0, dtype='float32')|jnp.array(w)
jnp.asarray(w, jnp.float32)|jnp.array([w, 2])|jnp.array([])|jnp.array([[], []])|jnp.array('a')
jnp.array(None)|jnp.array([None])|jnp.array({})|jnp.array([[1, 2], [3]])|jnp.array(2**40)
jnp.array([2**40])|jnp.array(-1, dtype='uint8')|jnp.array(np.array(2**40))
jnp.array([300], dtype='uint8')|jnp.array(1.5, dtype=int)|jnp.array(1 + 2j, dtype='float32')
jnp.array(memoryview(b'abc'))|jnp.array(bytearray(b'abc'))|jnp.array(b'abc')
jnp.array([np.float16(1), 2.0])|jnp.array([np.int8(1), 2])|jnp.array([x, y])
jnp.array([x, [1, 2, 3]])|jnp.array([i, x])|jnp.array([[w, 1], [2, 3]])|jnp.array([x, m])
jnp.array([1], ndmin=3)|jnp.array(1.0, ndmin=1)|jnp.array([1], order='F')|jnp.array(range(3))
jnp.asarray(x, dtype=jnp.int32)|jnp.asarray(DATA['m'], dtype='bfloat16')|jnp.asarray(b, float)
jnp.asarray(np.arange(3), copy=False)|jnp.array(x, copy=True)|jnp.copy(x)|jnp.copy([1])
jnp.copy(1.0)|jnp.float32(3)|jnp.float32([1, 2])|jnp.int8(3)|jnp.bfloat16(1.5)|jnp.bool_(1)
jnp.complex64(1)|jnp.zeros(3)|jnp.zeros((2, 3), int)|jnp.zeros((), 'bfloat16')|jnp.zeros(-1)
jnp.zeros(2.5)|jnp.zeros((2, jnp.array(3)))|jnp.zeros(np.array([3, 2]))|jnp.zeros([2, 1])
jnp.zeros((2, 0))|jnp.ones(3)|jnp.ones((2, 2), bool)|jnp.ones(2, 'int8')|jnp.empty((2, 2))
jnp.zeros('a')|jnp.full(3, 1)|jnp.full(3, 1.0)|jnp.full((), 1.0)|jnp.full((2, 3), i)
jnp.full((2,), w)|jnp.full((2,), 1.5, int)|jnp.full((2,), True)|jnp.full((3, 2), x)
jnp.full(2, x[0], 'float16')|jnp.full_like(w, 2)|jnp.full_like(i, 2.5)
jnp.full_like(i, 2.5, dtype=float)|jnp.full_like(m, x)|jnp.zeros_like(1.0)|jnp.zeros_like(k)
jnp.zeros_like(x, shape=(2,))|jnp.zeros_like(x, int)|jnp.ones_like(np.zeros(3))|jnp.ones_like(b)
jnp.zeros_like([1, 2])|jnp.empty_like(1)|jnp.zeros_like(lib.ShapeDtypeStruct((2,), np.float32))
jnp.ones_like(c)|jnp.ones_like(h)|jnp.arange(3)|jnp.arange(3.0)|jnp.arange(3.5)|jnp.arange(1, 3)
jnp.arange(1, 3.0)|jnp.arange(0, 1, 0.1)|jnp.arange(3, dtype='float32')|jnp.arange(3, dtype=bool)
jnp.arange(jnp.array(3))|jnp.arange(0)|jnp.arange(5, 0, -2)|jnp.arange(3, None)|jnp.arange(0, 3, 0)
jnp.arange(1, 2, 3j)|jnp.arange(-3)|jnp.arange(3, step=2)|jnp.arange(2, 9, 3)
jnp.arange(1.0, 0.0, -0.25)|jnp.arange(3, dtype='bfloat16')|jnp.arange(np.float32(2.5))
jnp.arange(np.int8(3))|jnp.arange(0, 3, dtype='uint8')|jnp.linspace(0, 1, 5)
jnp.linspace(0, 10, 5, dtype=int)|jnp.linspace(0, 1, 5, endpoint=False)
jnp.linspace(0, 1, 5, retstep=True)|jnp.linspace(0, 1, 1)|jnp.linspace(0, 1, 0)
jnp.linspace(0, 1, -1)|jnp.linspace(x, 2, 3)|jnp.linspace(x, y, 4, axis=-1)
jnp.linspace(0, 1, 5, dtype='bfloat16')|jnp.linspace(0, 1j, 3)|jnp.linspace(i, 7)
jnp.linspace(0, 1, 1, endpoint=False, retstep=True)|jnp.logspace(0, 2, 3)
jnp.logspace(0, 2, 4, base=2)|jnp.logspace(x, 2, 3, axis=1)|jnp.geomspace(1, 100, 3)
jnp.geomspace(-1, -100, 3)|jnp.geomspace(1, 1j, 3)|jnp.geomspace(1, x, 4)|jnp.eye(2)
jnp.eye(2, 3, 1, dtype=int)|jnp.eye(3, k=-1)|jnp.eye(-1)|jnp.identity(3, 'bfloat16')|jnp.eye(2.5)
jnp.eye(0)|jnp.tri(2, 3, 1)|jnp.tri(3, k=-1, dtype=int)|jnp.tril(i)|jnp.tril(m, k=-1)|jnp.triu(m)
jnp.triu(t, k=1)|jnp.tril(mask)|jnp.vander(x)|jnp.vander(i, 2, True)|jnp.vander(m)
jnp.frombuffer(b'abcd', dtype='uint8')|jnp.fromiter((1, 2), dtype=int)|jnp.fromfile('none')
jnp.indices((2, 3))|jnp.indices((2, 3), sparse=True)|jnp.indices((2,), 'float32')|jnp.indices(())
jnp.mgrid[0:2, 0:3]|jnp.mgrid[0:1:3j]|jnp.mgrid[0:2, 0:1:3j]|jnp.ogrid[0:2, 0:2]|jnp.ogrid[0:2]
jnp.meshgrid(i, x)|jnp.meshgrid(i, x, y, indexing='ij')|jnp.meshgrid(i, x, sparse=True)
jnp.meshgrid()|jnp.meshgrid(m)|jnp.meshgrid(i, x, indexing='a')|jnp.meshgrid(i, copy=False)
jnp.meshgrid(2.0, x)|jnp.fromfunction(lambda a, b: a + b, (2, 3))|jnp.r_[1:3, 4]|jnp.r_[x, 0, 5]
jnp.r_['0,2', x, y]|jnp.r_['-1', m, m]|jnp.r_[0:1:3j]|jnp.r_['0,2,0', x, y]|jnp.c_[x, y]
jnp.c_[m, m]|jnp.s_[1:2]|jnp.index_exp[1]|jnp.astype(1.5, int)|jnp.astype(x, 'bfloat16')
jnp.astype(x, None)|jnp.astype(c, bool)|jnp.issubdtype(jnp.bfloat16, jnp.floating)
jnp.isdtype(jnp.float32, 'real floating')|jnp.result_type(1, jnp.float32)|jnp.result_type(1.0)
jnp.result_type(x, i)|jnp.result_type()|jnp.promote_types('int32', 'float16')
jnp.promote_types(int, float)|jnp.can_cast('int32', 'float32')|jnp.float32 == np.float32
jnp.float32 == np.dtype('float32')|jnp.dtype('float32')|jnp.iinfo('int8').max
jnp.finfo(jnp.bfloat16).eps == 0.0078125|jnp.pi|jnp.inf|jnp.newaxis|jnp.euler_gamma
isinstance(x, jnp.ndarray)|isinstance(1.0, jnp.ndarray)|jnp.get_printoptions()['precision']
""".replace("\n", "|").split("|")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [c for c in CASES if c])
def test_case(case):
    check(case)


def test_creation_is_staged():
    made = toile.eval_shape(lambda: tnp.zeros((10**6, 10**6)) + tnp.arange(10**6))
    assert made.shape == (10**6, 10**6)


def test_under_jit():
    def f(lib):
        jnp = jax.numpy if lib is jax else tnp

        def g(x):
            made = jnp.array([x, x + 1, 2]), jnp.full((2,), x), jnp.linspace(0, x, 4)
            return *made, jnp.eye(2) * x

        return lib.jit(g)(1.5)

    for wanted, got in zip(RECORD.in_test(lambda: f(jax)), f(toile), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), 1e-6)


def test_size_of_a_range_must_be_known():
    with pytest.raises(Exception, match="[Cc]oncret|traced|Tracer"):
        toile.jit(lambda n: tnp.arange(n))(3)


def test_user_arrays_are_copied():
    data = np.zeros(3, np.float32)
    made = tnp.asarray(data)
    data[0] = 1
    assert float(made[0]) == 0


def test_objects_that_offer_an_array():
    class Box:
        def __jax_array__(self):
            return tnp.ones(2)

    assert tnp.asarray(Box()).shape == (2,)
    assert tnp.add(Box(), 1).tolist() == [2, 2]


def test_files_and_dlpack():
    for dtype in ("float32", "bfloat16"):
        x = tnp.arange(3, dtype=dtype)
        file = io.BytesIO()
        tnp.save(file, np.asarray(x))
        file.seek(0)
        loaded = tnp.load(file)
        assert loaded.dtype == x.dtype and (np.asarray(loaded) == np.asarray(x)).all()
    assert tnp.from_dlpack(np.arange(3, dtype=np.float32)).tolist() == [0, 1, 2]


def test_wide_dtypes_warn():
    with pytest.warns(UserWarning, match="float64"):
        assert tnp.zeros(2, "float64").dtype == np.float32


def test_complex_to_real_warns():
    with pytest.warns(np.exceptions.ComplexWarning):
        tnp.astype(tnp.asarray([1 + 2j]), float)
