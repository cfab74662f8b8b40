"""Dtypes and promotion against JAX: every pair of dtypes, weak or not, with x64 off and on."""

import copy
import itertools
import pickle
import warnings
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import toile.numpy
from toile import dtypes as face
from toile.engine import dtypes, promotion, scoped_options

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
oracle = pytest.importorskip("jax._src.dtypes")

ALL = [promotion.BOOL, *promotion.UNSIGNED, *promotion.SIGNED, *promotion.FLOATS]
ALL += promotion.COMPLEXES
ABSTRACT = [np.generic, np.number, np.integer, np.signedinteger, np.unsignedinteger, np.inexact]
ABSTRACT += [np.floating, np.complexfloating, np.flexible, np.character, np.object_, np.bool_]
X64 = pytest.mark.parametrize("x64", [False, True])
MODE = pytest.mark.parametrize("mode", ["standard", "strict"])


class Operand:
    """Something both libraries take for an array of theirs with a dtype and a weak bit."""

    def __init__(self, dtype, weak_type):
        self.dtype, self.weak_type = np.dtype(dtype), weak_type
        self.aval = SimpleNamespace(weak_type=weak_type)

    def __repr__(self):
        return f"{self.dtype}{'*' if self.weak_type else ''}"


@pytest.fixture(autouse=True)
def _operands_are_jax_arrays(monkeypatch):
    kept = (*oracle._types_whose_dtype_should_not_be_canonicalized, Operand)
    monkeypatch.setattr(oracle, "_types_whose_dtype_should_not_be_canonicalized", kept)


def outcome(fun, *args, **kwargs):
    """The value of a call, or the type of its error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value = fun(*args, **kwargs)
        except Exception as error:
            return type(error).__name__
    return value, [str(w.message).split(".")[0] for w in caught]


@MODE
@X64
def test_pairs_of_operands(x64, mode):
    """lattice_result_type and result_type of every pair of (dtype, weak), warnings included."""
    operands = [Operand(dt, weak) for dt in ALL for weak in (False, True)] + [True, 1, 1.0, 1j]
    theirs = jax.enable_x64(x64), jax.numpy_dtype_promotion(mode)
    ours = scoped_options.enable_x64(x64), scoped_options.numpy_dtype_promotion(mode)
    with theirs[0], theirs[1], ours[0], ours[1]:
        for a, b in itertools.product(operands, operands):
            # A weak bool does not occur; JAX's own answers for it depend on argument order.
            if any(isinstance(o, Operand) and o.weak_type and o.dtype == bool for o in (a, b)):
                continue
            want = outcome(oracle.lattice_result_type, a, b)
            assert outcome(dtypes.lattice_result_type, a, b) == want, (a, b)
            if isinstance(want, tuple) and isinstance(a, Operand) and isinstance(b, Operand):
                pair = outcome(dtypes.promote_pair, a.dtype, a.weak_type, b.dtype, b.weak_type)
                assert pair == want, (a, b)
            got = outcome(dtypes.result_type, a, b, return_weak_type_flag=True)
            want = outcome(oracle.result_type, a, b, return_weak_type_flag=True)
            assert got == want or want == "KeyError", (a, b)  # KeyError: weak int4, JAX's defect


@X64
def test_single_operands(x64):
    operands = [Operand(dt, weak) for dt in ALL for weak in (False, True)]
    types = [True, 2**40, 1.5, 1j, None, bool, int, float, complex, np.float64(1), np.int8(1)]
    arrays = [np.zeros(2, dt) for dt in ALL] + [np.zeros(2, "S3"), [1.0], object(), "S3", "blah"]
    named = [*ALL, *(dt.type for dt in ALL), *(dt.name for dt in ALL)]
    with jax.enable_x64(x64), scoped_options.enable_x64(x64):
        for x in (*operands, *types, *arrays, *named):
            got = outcome(dtypes.result_type, x, return_weak_type_flag=True)
            want = outcome(oracle.result_type, x, return_weak_type_flag=True)
            assert got == want or want == "KeyError", x
            assert outcome(dtypes.dtype, x) == outcome(oracle.dtype, x), x
            assert outcome(dtypes.scalar_type_of, x) == outcome(oracle.scalar_type_of, x), x


@X64
def test_many_operands(x64):
    rng = np.random.default_rng(0)
    pool = [Operand(dt, weak) for dt in ALL for weak in (False, True) if dt.kind != "b" or not weak]
    pool += [True, 1, 1.0, 1j]
    with jax.enable_x64(x64), scoped_options.enable_x64(x64):
        for _ in range(500):
            args = [pool[i] for i in rng.integers(len(pool), size=rng.integers(3, 6))]
            got = outcome(dtypes.lattice_result_type, *args)
            assert got == outcome(oracle.lattice_result_type, *args), args


@MODE
@X64
def test_promote_types(x64, mode):
    nodes = [*ALL, int, float, complex, bool, "float32"]
    theirs = jax.enable_x64(x64), jax.numpy_dtype_promotion(mode)
    ours = scoped_options.enable_x64(x64), scoped_options.numpy_dtype_promotion(mode)
    with theirs[0], theirs[1], ours[0], ours[1]:
        for a, b in itertools.product(nodes, nodes):
            assert outcome(dtypes.promote_types, a, b) == outcome(jnp.promote_types, a, b), (a, b)


def test_issubdtype_isdtype_can_cast():
    nodes = [*ALL, *(dt.type for dt in ALL), *ABSTRACT, int, float, complex, bool, None, "f4"]
    for a, b in itertools.product(nodes, nodes):
        assert outcome(dtypes.issubdtype, a, b) == outcome(jnp.issubdtype, a, b), (a, b)
    kinds = ["bool", "signed integer", "unsigned integer", "integral", "real floating"]
    kinds += ["complex floating", "numeric", ("bool", "f4"), "zz", 3.2, "int8", jnp.float32]
    for a, kind in itertools.product(ALL, kinds):
        assert outcome(dtypes.isdtype, a, kind) == outcome(jnp.isdtype, a, kind), (a, kind)
    for a, b in itertools.product(ALL, ALL):
        assert dtypes.can_cast(a, b) == jnp.can_cast(a, b)
        with jax.enable_x64(True), scoped_options.enable_x64(True):
            assert outcome(dtypes.safe_to_cast, a, b) == outcome(oracle.safe_to_cast, a, b)


@X64
def test_widths_and_neighbours(x64):
    with jax.enable_x64(x64), scoped_options.enable_x64(x64):
        for dt in (*ALL, *(d.type for d in ALL), int, float, complex, bool, "i8", "nope"):
            got = outcome(dtypes.canonicalize_dtype, dt)
            assert got == outcome(oracle.canonicalize_dtype, dt), dt
            got = outcome(dtypes.check_user_dtype_supported, dt, "zeros")
            want = outcome(oracle.check_and_canonicalize_user_dtype, dt, "zeros")
            assert got == want, dt
        for name in ("int", "uint", "float", "complex"):
            name = f"default_{name}_dtype"
            assert getattr(dtypes, name)() == getattr(oracle, name)()
        for dt in ALL:
            assert dtypes.to_numeric_dtype(dt) == oracle.to_numeric_dtype(dt)
            if str(dt) not in ("int1", "uint1", "int2", "uint2"):  # JAX leaves these integers
                assert dtypes.to_inexact_dtype(dt) == oracle.to_inexact_dtype(dt)
                assert dtypes.to_floating_dtype(dt) == oracle.to_floating_dtype(dt)
                assert dtypes.to_complex_dtype(dt) == oracle.to_complex_dtype(dt)
            assert dtypes.itemsize_bits(dt) == oracle.itemsize_bits(dt)


def test_finfo_iinfo_and_infinities():
    for dt in promotion.FLOATS + promotion.COMPLEXES:
        ours, theirs = dtypes.finfo(dt), jnp.finfo(dt)
        for field in ("bits", "max", "min", "eps", "tiny", "smallest_subnormal", "nmant"):
            assert getattr(ours, field) == getattr(theirs, field)
        real = dtypes.dtype_to_real(dt)
        with np.errstate(all="ignore"):
            assert dtypes.supports_inf(dt) == bool(np.isinf(np.array(np.inf).astype(real))), dt
    for dt in promotion.SIGNED + promotion.UNSIGNED:
        ours, theirs = dtypes.iinfo(dt), jnp.iinfo(dt)
        assert (ours.bits, ours.min, ours.max) == (theirs.bits, theirs.min, theirs.max)
        assert not dtypes.supports_inf(dt)
    assert dtypes.finfo(dtypes.bfloat16).eps == jnp.finfo(jnp.bfloat16).eps


def test_scalar_types_are_those_of_jax_numpy():
    found = 0
    for name in dir(jnp):
        theirs = getattr(jnp, name)
        if type(theirs).__name__ != "_ScalarMeta" or name == "bool":
            continue
        found += 1
        ours = getattr(dtypes, name)
        scalar = theirs.dtype.type
        assert ours == scalar and scalar == ours and ours == ours.dtype and ours.dtype == ours
        assert not ours != scalar and hash(ours) == hash(theirs) == hash(scalar)
        assert (ours == name) == (theirs == name)
        assert np.dtype(ours) == ours.dtype == theirs.dtype
        assert ours.__name__ == theirs.__name__
        assert isinstance(scalar(1), ours) and not isinstance("a", ours)
        assert np.zeros(2, ours).dtype == ours
        assert dtypes.issubdtype(ours, np.generic) and {scalar: 1}[ours] == 1
    assert found >= 40
    assert repr(dtypes.float32) == "<class 'toile.numpy.float32'>"
    assert dtypes.float32 != dtypes.float64 and dtypes.bool_.__name__ == "bool"


def test_scalar_types_make_arrays():
    assert dtypes.bfloat16(3).dtype == ml_dtypes.bfloat16
    with pytest.raises(TypeError):
        dtypes.float32()


def test_python_scalars():
    for x, want in ((True, "bool"), (3, "int32"), (1.0, "float32"), (1j, "complex64")):
        assert dtypes.scalar_dtype(x) == want and dtypes.is_python_scalar(x)
        assert dtypes.is_weakly_typed(x) == (x is not True)
        assert dtypes.coerce_to_array(x).dtype == want
    assert dtypes.scalar_dtype(-(2**31)) == "int32"
    for big in (2**31, -(2**31) - 1):
        with pytest.raises(OverflowError, match=f"Python int too large to convert to int32: {big}"):
            dtypes.scalar_dtype(big)
    with scoped_options.enable_x64(True):
        assert dtypes.scalar_dtype(2**31) == "int64"
        with pytest.raises(OverflowError):
            dtypes.scalar_dtype(2**63)

    class Count(int):
        pass

    assert dtypes.scalar_dtype(Count(3)) == "int32" and not dtypes.is_python_scalar(Count(3))
    assert not dtypes.is_weakly_typed(np.float32(1)) and not dtypes.is_python_scalar(np.float64(1))


def test_truncation_warns_at_the_users_line():
    with pytest.warns(UserWarning, match="Explicitly requested dtype float64 requested in zeros "):
        assert dtypes.check_user_dtype_supported("float64", "zeros") == "float32"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dtypes.check_user_dtype_supported(np.int64, "ones")
    assert caught[0].filename == __file__
    refused = pytest.raises(ValueError, match="not available")
    with scoped_options.explicit_x64_dtypes("error"), refused:
        dtypes.check_user_dtype_supported(np.float64)
    with scoped_options.explicit_x64_dtypes("allow"):
        assert dtypes.check_user_dtype_supported(np.float64) == "float64"
    with pytest.raises(ValueError, match="arr.dtype"):
        dtypes.check_user_dtype_supported(Operand("f4", False), "zeros")
    with pytest.raises(TypeError, match="in zeros"):
        dtypes.check_user_dtype_supported("S3", "zeros")


def test_promotion_errors_say_why():
    f8, i4 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.int4)
    with pytest.raises(face.TypePromotionError, match="astype.'float32'"):
        dtypes.result_type(f8, np.float32)
    with pytest.raises(face.TypePromotionError, match="astype.'int32'"):
        dtypes.result_type(i4, np.int8)
    with scoped_options.numpy_dtype_promotion("strict"):
        with pytest.raises(face.TypePromotionError, match="strict"):
            dtypes.result_type(np.int32, np.float32)
        assert dtypes.result_type(np.float32, 1.0) == "float32"
    with pytest.raises(ValueError, match="not a valid dtype"):
        dtypes.result_type(Operand(dtypes.float0, False), np.float32)
    with pytest.raises(ValueError, match="at least one"):
        dtypes.result_type()


def test_key_dtypes():
    key, other = dtypes.key_dtype(), dtypes.key_dtype("rbg")
    theirs = jax.random.key(0).dtype
    for ours, want in ((key, theirs), (other, jax.random.key(0, impl="rbg").dtype)):
        assert (repr(ours), str(ours), ours.name) == (repr(want), str(want), want.name)
        assert ours.itemsize == want.itemsize
        assert ours.impl.key_shape == want._impl.key_shape == ours.physical_shape
        assert (ours.impl.name, ours.impl.tag) == (want._impl.name, want._impl.tag)
    assert key == dtypes.KeyDType(dtypes.KEY_IMPLS["threefry2x32"]) != other
    assert key != np.dtype("uint32") and np.dtype("uint32") != key and len({key, other}) == 2
    assert pickle.loads(pickle.dumps(key)) == key == copy.deepcopy(key)
    assert dtypes.is_extended(key) and not dtypes.is_extended(np.dtype("f4"))
    for b, c in (
        (dtypes.prng_key, jax.dtypes.prng_key),
        (dtypes.extended, jax.dtypes.extended),
        *((t, t) for t in (*ABSTRACT, np.float32, np.dtype("uint32"))),
    ):
        assert dtypes.issubdtype(key, b) == jnp.issubdtype(theirs, c), b
        assert dtypes.issubdtype(np.float32, b) == jnp.issubdtype(np.float32, c), b
    assert dtypes.issubdtype(key, key) and not dtypes.issubdtype(key, other)
    assert not dtypes.issubdtype(np.uint32, key)
    assert dtypes.canonicalize_dtype(key, allow_extended_dtype=True) is key
    with pytest.raises(ValueError, match="extended"):
        dtypes.canonicalize_dtype(key)
    assert dtypes.promote_pair(key, False, key, False) == (key, False)
    with pytest.raises(ValueError, match="not a valid dtype"):
        dtypes.promote_pair(key, False, np.dtype("f4"), True)
    with pytest.raises(ValueError, match="threefry2x32"):
        dtypes.key_dtype("nope")


def test_names():
    assert dtypes.name_of(dtypes.float0) == "float0" and dtypes.name_of(np.dtype("f4")) == "float32"
    assert dtypes.kind(dtypes.float0) == dtypes.kind(dtypes.key_dtype()) == "V"
    assert dtypes.key_words(dtypes.key_dtype()) == 2 and dtypes.kind(np.dtype(bool)) == "b"
    assert dtypes.name_of(dtypes.key_dtype()) == "key<fry>"
    for dt in ALL:
        assert (dtypes.kind(dt) in "fc") == jnp.issubdtype(dt, np.inexact)
        assert (dtypes.kind(dt) == "i") == jnp.issubdtype(dt, np.signedinteger)
        assert (dtypes.kind(dt) == "u") == jnp.issubdtype(dt, np.unsignedinteger)
        assert dtypes.is_inexact(dt) == jnp.issubdtype(dt, np.inexact)
    assert not dtypes.is_inexact(dtypes.key_dtype()) and not dtypes.is_inexact(dtypes.float0)


def test_foreign_byte_order_becomes_native():
    assert dtypes.canonicalize_dtype(">f4") == np.dtype("float32")
    assert dtypes.canonicalize_dtype(np.dtype(">f8")) == np.dtype("float32")


def test_public_face_has_the_names_of_jax():
    theirs = {n for n in dir(jax.dtypes) if not n.startswith("_")}
    assert theirs <= set(face.__all__) and all(hasattr(face, n) for n in face.__all__)
    assert face.bfloat16 is jax.dtypes.bfloat16 and face.float0 == jax.dtypes.float0


def test_pickled_arrays_have_a_dtype_that_is_allowed():
    with scoped_options.enable_x64(True):
        data = pickle.dumps(toile.numpy.ones(2))
        assert pickle.loads(data).dtype == "float64"
    assert pickle.loads(data).dtype == "float32"
