"""Corners of the transformations and control flow: each row gives in toile what it gives in jax.

A row is a function of the package; it returns something to compare or raises. Errors agree in their
type.
"""

import builtins
import types

import jax
import jax.experimental.checkify
import numpy as np
import pytest

import toile
import toile.experimental.checkify
from tests.against_jax import compare
from tests.golden import Leaf
from tests.golden.recorded import CORNERS, attempt

Z = np.complex64(1 + 2j)
V = np.float32([1, 2, 3])


def _abs2(lib):
    return lambda z: lib.numpy.abs(z) ** 2


def _wave(lib):
    return lambda x: lib.numpy.exp(1j * x)


def _key_sum(lib):
    return lambda k: lib.random.uniform(k)


JACOBIANS = {
    "jacrev_complex_input": lambda lib: lib.jacrev(_abs2(lib))(1 + 2j),
    "jacrev_complex_vector": lambda lib: lib.jacrev(_abs2(lib))(lib.numpy.array([Z, 2 * Z])),
    "jacrev_mixed_inputs": lambda lib: lib.jacrev(lambda z, x: _abs2(lib)(z) * x, (0, 1))(Z, 3.0),
    "jacrev_complex_output": lambda lib: lib.jacrev(_wave(lib))(1.0),
    "jacrev_holomorphic": lambda lib: lib.jacrev(lib.numpy.sin, holomorphic=True)(Z),
    "jacrev_holomorphic_real": lambda lib: lib.jacrev(lib.numpy.sin, holomorphic=True)(1.0),
    "jacrev_int_output": lambda lib: lib.jacrev(lambda x: x.astype(int))(lib.numpy.asarray(V)),
    "jacrev_int_input": lambda lib: lib.jacrev(lambda x: x * 2.0)(3),
    "jacrev_key": lambda lib: lib.jacrev(_key_sum(lib))(lib.random.key(0)),
    "jacfwd_complex_output": lambda lib: lib.jacfwd(_wave(lib))(1.0),
    "jacfwd_complex_vector": lambda lib: lib.jacfwd(_wave(lib))(lib.numpy.asarray(V)),
    "jacfwd_two_outputs": lambda lib: lib.jacfwd(lambda x: (x * 2, _wave(lib)(x)))(1.0),
    "jacfwd_complex_input": lambda lib: lib.jacfwd(_abs2(lib))(Z),
    "jacfwd_int_input": lambda lib: lib.jacfwd(lambda x: x * 2.0)(3),
    "jacfwd_holomorphic": lambda lib: lib.jacfwd(lib.numpy.sin, holomorphic=True)(Z),
    "jacfwd_holomorphic_real_output": lambda lib: lib.jacfwd(_abs2(lib), holomorphic=True)(Z),
    "jacfwd_key": lambda lib: lib.jacfwd(_key_sum(lib))(lib.random.key(0)),
    "hessian_complex": lambda lib: lib.hessian(_abs2(lib))(Z),
    "hessian_of_parts": lambda lib: lib.hessian(lambda x: _abs2(lib)(_wave(lib)(x) * x))(2.0),
}


def _halved(lib, x):
    return lib.lax.cond(x > 1, lambda v: v / 2, lambda v: v * 3, x)


def _chosen(lib, i, x):
    return lib.lax.switch(i, [lambda v: v, lambda v: -v, lambda v: v * v], x)


def _doubled(lib, x, body=lambda v: v * 2):
    return lib.lax.while_loop(lambda v: v < 10, body, x)


def _counted(lib, n, x, **options):
    return lib.lax.fori_loop(0, n, lambda i, c: c + i, x, **options)


def _eagerly(run):
    def row(lib):
        with lib.disable_jit():
            return run(lib)

    return row


def _mapped(f, *xs):
    return _eagerly(lambda lib: lib.vmap(lambda *v: f(lib, *v))(*map(lib.numpy.asarray, xs)))


DISABLED = {
    "cond": _eagerly(lambda lib: _halved(lib, 4.0)),
    "cond_number": _eagerly(lambda lib: lib.lax.cond(2, lambda: 1, lambda: 0)),
    "cond_grad": _eagerly(lambda lib: lib.grad(lambda x: _halved(lib, x))(4.0)),
    "cond_vmap": _mapped(_halved, V),
    "cond_vmap_grad": _mapped(lambda lib, x: lib.grad(lambda v: _halved(lib, v))(x), V),
    "switch": _eagerly(lambda lib: _chosen(lib, 7, 2.0)),
    "switch_vmap": _mapped(_chosen, np.int32([-1, 1, 5]), V),
    "while": _eagerly(lambda lib: _doubled(lib, 1)),
    "while_types": _eagerly(lambda lib: _doubled(lib, 1, lambda v: (v * 2).astype(int))),
    "while_numbers": _eagerly(lambda lib: _doubled(lib, 1, lambda v: 20.0)),
    "while_vmap": _mapped(_doubled, V),
    "while_jvp": _eagerly(lambda lib: lib.jvp(lambda x: _doubled(lib, x), (1.0,), (1.0,))),
    "while_jaxpr": _eagerly(lambda lib: lib.eval_shape(lambda x: _doubled(lib, x), 1.0).shape),
    "fori_vmap": _mapped(lambda lib, n: _counted(lib, n, 0), np.int32([1, 4])),
    "fori": _eagerly(lambda lib: _counted(lib, lib.numpy.int32(4), lib.numpy.int16(0))),
    "fori_empty": _eagerly(lambda lib: _counted(lib, 0, lib.numpy.int16(0))),
}


def _bounds(lib, low, high):
    return lib.lax.fori_loop(low(lib), high(lib), lambda i, c: c + i, lib.numpy.int16(0))


def _traced(lib, **options):
    return lib.jit(lambda n: _counted(lib, n, 0, **options))(4)


LOOPS = {
    "fori_array_bounds": lambda lib: _bounds(lib, lambda l: l.numpy.int32(0),
                                             lambda l: l.numpy.int32(3)),
    "fori_number_bounds": lambda lib: _bounds(lib, lambda l: 0, lambda l: 3),
    "fori_narrow_bounds": lambda lib: _bounds(lib, lambda l: l.numpy.int8(0), lambda l: 3),
    "fori_unsigned": lambda lib: _bounds(lib, lambda l: l.numpy.uint8(0), lambda l: 3),
    "fori_two_dtypes": lambda lib: _bounds(lib, lambda l: l.numpy.int8(0),
                                           lambda l: l.numpy.int32(3)),
    "fori_float_bounds": lambda lib: _counted(lib, 3.0, 0),
    "fori_two_floats": lambda lib: lib.lax.fori_loop(0.0, 3.0, lambda i, c: c + i, 0),
    "fori_index": lambda lib: lib.lax.fori_loop(lib.numpy.int32(2), lib.numpy.int32(3),
                                                lambda i, c: i, 0),
    "fori_traced_unroll_1": lambda lib: _traced(lib, unroll=1),
    "fori_traced_unroll_false": lambda lib: _traced(lib, unroll=False),
    "fori_traced_unroll_none": lambda lib: _traced(lib),
    "fori_traced_unroll_2": lambda lib: _traced(lib, unroll=2),
    "fori_traced_unroll_true": lambda lib: _traced(lib, unroll=True),
    "fori_unroll": lambda lib: _counted(lib, 5, 0, unroll=2),
    "fori_unroll_true": lambda lib: _counted(lib, 5, 0, unroll=True),
}


def _shape(lib, out):
    return [(x.shape, str(x.dtype), x.weak_type) for x in lib.tree.leaves(out)]


def _zeros(lib, **options):
    return lib.jit(lambda x, n=2: lib.numpy.zeros(n) + x, **options)


def _holder(lib):
    class Holder:
        @lib.jit
        def f(self, x, n=2):
            "Adds."
            return x + n

    lib.tree_util.register_pytree_node(Holder, lambda h: ((), None), lambda *_: Holder())
    return Holder()


def _attributes(lib):
    h = _holder(lib)
    f = h.f
    return [isinstance(f, types.MethodType), f.__self__ is h, f.__name__, f.__doc__, h.f == h.f,
            f.__func__ is type(h).f, f.__wrapped__(h, 1, 2), callable(f.clear_cache),
            hasattr(f, "eval_shape")]


def _stages(lib):
    h = _holder(lib)
    return _shape(lib, h.f.trace(h, 1.0).out_info), h.f.lower(h, 1.0).compile()(h, 1.0)


STAGES = {
    "eval_shape_static": lambda lib: _shape(lib, lib.eval_shape(
        _zeros(lib, static_argnums=1), 1.0, 3)),
    "eval_shape_static_name": lambda lib: _shape(lib, lib.eval_shape(
        _zeros(lib, static_argnames="n"), 1.0, n=3)),
    "eval_shape_struct": lambda lib: _shape(lib, lib.eval_shape(
        _zeros(lib, static_argnums=1), lib.ShapeDtypeStruct((3,), np.int32), 3)),
    "eval_shape_of_jitted": lambda lib: _shape(lib, lib.eval_shape(_zeros(lib), V[:2])),
    "eval_shape_not_static": lambda lib: lib.eval_shape(_zeros(lib), 1.0, 3),
    "eval_shape_not_an_array": lambda lib: lib.eval_shape(_zeros(lib), "text"),
    "eval_shape_inside": lambda lib: _shape(lib, lib.jit(lambda x: x + lib.eval_shape(
        _zeros(lib, static_argnums=1), x, 3).shape[0])(1.0)),
    "method": lambda lib: _holder(lib).f(1.0),
    "method_keyword": lambda lib: _holder(lib).f(x=1.0, n=3),
    "method_attributes": _attributes,
    "method_stages": _stages,
    "method_grad": lambda lib: lib.grad(_holder(lib).f)(1.0),
    "method_jit": lambda lib: lib.jit(_holder(lib).f)(1.0),
    "method_vmap": lambda lib: lib.vmap(_holder(lib).f)(V),
}


def _called(lib, f, *args):
    """A function that is a pytree, as the argument of a jitted one."""
    return lib.jit(lambda g, *xs: g(*xs))(f, *args)


def _scaled_leaves(lib, f, factor):
    return lib.tree.map(lambda x: x * factor, f)


def _sine(lib):
    return lib.linearize(lambda x: lib.numpy.sin(x) * x, lib.numpy.asarray(V))[1]


MATRIX = np.float32([[1, 2, 3], [4, 5, 6]])


def _matvec(lib, a=MATRIX):
    a = lib.numpy.asarray(a)
    return lib.linear_transpose(lambda x: lib.numpy.sin(a) @ x, lib.numpy.asarray(V))


def _relu(lib):
    return lib.linear_transpose(lambda x: lib.nn.relu(lib.numpy.ones(3)) * x, V)


def _custom(lib):
    @lib.custom_jvp
    def twice(x):
        return 2 * x

    twice.defjvp(lambda p, t: (twice(*p), 2 * t[0]))
    return lib.linear_transpose(lambda x: twice(lib.jit(twice)(x)), 1.0)


def _scanned(lib):
    return lib.linear_transpose(
        lambda x: lib.lax.scan(lambda c, a: (c * a, c), x, lib.numpy.asarray(V))[0], 1.0)


LINEAR = {
    "linearize": lambda lib: _sine(lib)(V),
    "linearize_type": lambda lib: type(_sine(lib)) is lib.tree_util.Partial,
    "linearize_jit": lambda lib: _called(lib, _sine(lib), V),
    "linearize_leaves": lambda lib: _scaled_leaves(lib, _sine(lib), 2.0)(V),
    "linearize_inside": lambda lib: lib.jit(
        lambda x: lib.linearize(lib.numpy.sin, x)[1](x))(1.0),
    "linearize_out": lambda lib: lib.jit(lambda x: lib.linearize(lib.numpy.sin, x)[1])(2.0)(1.0),
    "linearize_vmap": lambda lib: lib.vmap(_sine(lib))(np.stack([V, 2 * V])),
    "linearize_aux": lambda lib: lib.linearize(lambda x: [x * x, x], 3.0, has_aux=True)[2],
    "linearize_wrong_shape": lambda lib: _sine(lib)(V[:2]),
    "linearize_wrong_count": lambda lib: _sine(lib)(V, V),
    "linearize_int": lambda lib: lib.linearize(lambda x: 3, 1.0)[1](1.0).dtype,
    "transpose": lambda lib: _matvec(lib)(V[:2]),
    "transpose_type": lambda lib: type(_matvec(lib)) is lib.tree_util.Partial,
    "transpose_jit": lambda lib: _called(lib, _matvec(lib), V[:2]),
    "transpose_vmap": lambda lib: lib.vmap(_matvec(lib))(np.ones((4, 2), np.float32)),
    "transpose_weak": lambda lib: lib.linear_transpose(
        lambda x: x * lib.numpy.bfloat16(2), 1.0)(lib.numpy.bfloat16(3)),
    "transpose_int": lambda lib: lib.linear_transpose(lambda x: 3 * x, 2)(5),
    "transpose_mixed": lambda lib: lib.linear_transpose(lambda x: x.astype(int), lib.numpy.ones(3)),
    "transpose_wrong_shape": lambda lib: _matvec(lib)(V),
    "transpose_known_relu": lambda lib: _relu(lib)(V),
    "transpose_custom_jvp": lambda lib: _custom(lib)(lib.numpy.float32(1)),
    "transpose_scan": lambda lib: _scanned(lib)(lib.numpy.float32(1)),
    "transpose_grad": lambda lib: lib.grad(lambda a: _matvec(lib, a)(V[:2]).sum())(
        lib.numpy.ones((2, 3))),
    "transpose_jit_closed": lambda lib: lib.jit(
        lambda a, g: lib.linear_transpose(lambda x: a * x, V)(g))(2.0, V),
}

TREE = {"a": [1, None], "b": (2, [3])}
PREDICATES = {
    "none": lambda x: None,
    "implicit": lambda x: True if isinstance(x, list) else None,
    "bool": lambda x: isinstance(x, list),
    "number": lambda x: 1,
    "numpy_bool": lambda x: np.bool_(True),
    "text": lambda x: "",
}
TREES = {}
for _name, _stop in PREDICATES.items():
    TREES |= {
        f"leaves_{_name}": lambda lib, s=_stop: repr(lib.tree.leaves(TREE, is_leaf=s)),
        f"map_{_name}": lambda lib, s=_stop: repr(lib.tree.map(str, TREE, is_leaf=s)),
        f"paths_{_name}": lambda lib, s=_stop: [
            lib.tree_util.keystr(p)
            for p, _ in lib.tree_util.tree_flatten_with_path(TREE, is_leaf=s)[0]],
    }


def _pair(kind):
    return lambda x: kind([x * x, {"aux": x}])


def _reduced(name, *args):
    return lambda lib: getattr(lib, name)(lambda x: x * 2, *args, reduce_axes=("i",))


ARGUMENTS = {
    "aux_list_grad": lambda lib: lib.grad(_pair(list), has_aux=True)(3.0),
    "aux_list_value": lambda lib: lib.value_and_grad(_pair(list), has_aux=True)(3.0),
    "aux_list_vjp": lambda lib: lib.vjp(_pair(list), 3.0, has_aux=True)[2],
    "aux_list_jvp": lambda lib: lib.jvp(_pair(list), (3.0,), (1.0,), has_aux=True),
    "aux_list_jacrev": lambda lib: lib.jacrev(_pair(list), has_aux=True)(3.0),
    "aux_list_jacfwd": lambda lib: lib.jacfwd(_pair(list), has_aux=True)(3.0),
    "aux_tuple": lambda lib: lib.grad(_pair(tuple), has_aux=True)(3.0),
    "aux_three": lambda lib: lib.grad(lambda x: [x, x, x], has_aux=True)(3.0),
    "aux_none": lambda lib: lib.grad(lambda x: x, has_aux=True)(3.0),
    "grad_key": lambda lib: lib.grad(_key_sum(lib))(lib.random.key(0)),
    "grad_key_of_two": lambda lib: lib.grad(
        lambda a: _key_sum(lib)(a[0]) * a[1])((lib.random.key(0), 1.0)),
    "grad_key_allowed": lambda lib: lib.grad(_key_sum(lib), allow_int=True)(
        lib.random.key(0)).dtype,
    "grad_int": lambda lib: lib.grad(lambda x: x * 2.0)(3),
    "grad_complex": lambda lib: lib.grad(_abs2(lib))(Z),
    "grad_float0": lambda lib: lib.grad(lambda x: 1.0)(np.zeros(3, lib.dtypes.float0)),
    "reduce_axes_grad": _reduced("grad"),
    "reduce_axes_value_and_grad": _reduced("value_and_grad"),
    "reduce_axes_vjp": _reduced("vjp", 1.0),
    "reduce_axes_linear_transpose": _reduced("linear_transpose", 1.0),
    "no_reduce_axes": lambda lib: lib.grad(lambda x: x * 2, reduce_axes=())(1.0),
}


def _checked(build, errors, *args):
    """What checkify reports of a function under all the checks of a kind."""
    def row(lib):
        c = lib.experimental.checkify
        error, _ = c.checkify(build(lib), errors=getattr(c, errors))(*map(lib.numpy.asarray, args))
        return str(error.get()).split(" (")[0].split(". ")[0]

    return row


NAN = np.float32([np.nan, 1])
ZERO = np.float32([0, 1])
CHECKED = {
    "rem_is_no_division": _checked(lambda lib: lib.lax.rem, "div_checks", NAN, ZERO),
    "int_rem": _checked(lambda lib: lib.lax.rem, "div_checks", np.int32(3), np.int32(0)),
    "div": _checked(lambda lib: lib.lax.div, "div_checks", V, np.float32([0, 1, 2])),
    "floor_divide": _checked(lambda lib: lib.numpy.floor_divide, "div_checks", V[:2], ZERO),
    "remainder": _checked(lambda lib: lib.numpy.remainder, "div_checks", V[:2], ZERO),
    "nan_div": _checked(lambda lib: lib.lax.div, "nan_checks", ZERO, ZERO),
    "nan_rem": _checked(lambda lib: lib.lax.rem, "nan_checks", ZERO, ZERO),
}
for _name in ("neg", "abs", "sign", "floor", "real", "sort", "exp", "log", "sqrt", "sin", "tanh",
              "lgamma", "erf_inv", "cumsum", "cbrt", "logistic",
              *["exp2"] * (jax.__version_info__ >= (0, 11))):
    CHECKED[f"nan_{_name}"] = _checked(
        lambda lib, n=_name: getattr(lib.lax, n), "nan_checks", NAN)
for _name in ("max", "min", "add", "mul", "pow", "nextafter", "atan2"):
    CHECKED[f"nan_{_name}"] = _checked(
        lambda lib, n=_name: getattr(lib.lax, n), "nan_checks", NAN, NAN)
for _name in ("max", "sum", "prod", "argmax", "cumprod", "logaddexp.reduce"):
    CHECKED[f"nan_reduced_{_name}"] = _checked(
        lambda lib, n=_name: lambda x: _dotted(lib.numpy, n)(x), "nan_checks", NAN)
CHECKED |= {
    "nan_where": _checked(lambda lib: lambda x: lib.numpy.where(x > 0, x, 1), "nan_checks", NAN),
    "nan_pad": _checked(lambda lib: lambda x: lib.lax.pad(x, x[0], [(1, 1, 0)]), "nan_checks",
                        NAN),
    "nan_scatter": _checked(lambda lib: lambda x: x.at[lib.numpy.array([1, 0])].add(x),
                            "nan_checks", NAN),
    "nan_cholesky": _checked(lambda lib: lib.lax.linalg.cholesky, "nan_checks",
                             np.float32([[-1, 0], [0, 1]])),
    "nan_matmul": _checked(lambda lib: lambda x: x @ x, "nan_checks", NAN),
}


def _dotted(root, path):
    for name in path.split("."):
        root = getattr(root, name)
    return root


TABLES = {"jacobian": JACOBIANS, "disable_jit": DISABLED, "loop": LOOPS, "stage": STAGES,
          "linear": LINEAR, "tree": TREES, "argument": ARGUMENTS, "checkify": CHECKED}
ROWS = {f"{table}-{name}": row for table, rows in TABLES.items() for name, row in rows.items()}


def _python_class(outcome):
    """The first class of an error that is Python's own; None for other outcomes."""
    if isinstance(outcome, Exception):
        return next(c for c in type(outcome).__mro__ if c in vars(builtins).values())
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ROWS)
def test_same_as_jax(name):
    row = ROWS[name]
    got, want = attempt(lambda: row(toile)), CORNERS.in_test(lambda: attempt(lambda: row(jax)))
    assert _python_class(got) is _python_class(want), f"got {got!r}, jax gives {want!r}"
    if not isinstance(want, Exception):
        _agree(got, want, name)


def _agree(got, want, name):
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for a, b in zip(got, want):
            _agree(a, b, name)
    elif isinstance(want, (dict, jax.Array, Leaf, float)):
        compare(got, want, 1e-5, 1e-6, name)
    else:
        assert got == want
