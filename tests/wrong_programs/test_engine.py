"""Mistakes people make, and what toile says: the operation, the operands, the line and a fix.

Each function below is wrong in the line marked `# wrong`. The table gives the class of the error,
the operation it names, the operands it shows and a word of the fix; every message also points at
the marked line and has at most 15 lines.
"""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.wrong_programs.table import Table, check
from toile import errors, lax, nn, random

TABLE = Table()
wrong = TABLE.wrong


def ones(*shape, dtype=jnp.float32):
    return jnp.ones(shape, dtype)


# ------------------------------------------------------------------------------- shapes


@wrong(TypeError, "matmul", "float32[3,4]", "float32[3,5]", fix="transpose")
def matmul():
    x, y = ones(3, 4), ones(3, 5)
    x @ y  # wrong


@wrong(TypeError, "matmul", "float32[3,4]", "float32[3,5]", fix="transpose")
def matmul_in_jit():
    @toile.jit
    def layer(x, w):
        return x @ w  # wrong

    layer(ones(3, 4), ones(3, 5))


@wrong(ValueError, "matmul", "float32[2,3,4]", "float32[3,4,5]", fix="batch")
def matmul_batch():
    jnp.matmul(ones(2, 3, 4), ones(3, 4, 5))  # wrong


@wrong(TypeError, "dot", "float32[3,4]", "float32[3]", fix="transpose")
def dot():
    jnp.dot(ones(3, 4), ones(3))  # wrong


@wrong(TypeError, "tensordot", "float32[3,4]", "float32[5,6]", fix="axes")
def tensordot():
    jnp.tensordot(ones(3, 4), ones(5, 6), axes=1)  # wrong


@wrong(ValueError, "einsum", "float32[3,4]", "float32[3,5]", fix="ij,jk->ik")
def einsum_sizes():
    jnp.einsum("ij,jk->ik", ones(3, 4), ones(3, 5))  # wrong


@wrong(ValueError, "einsum", "float32[3,4]", fix="ijk->i")
def einsum_rank():
    jnp.einsum("ijk->i", ones(3, 4))  # wrong


@wrong(TypeError, "dot_general", "float32[3,4]", "float32[3,5]", fix="contract")
def dot_general():
    lax.dot_general(ones(3, 4), ones(3, 5), (((1,), (0,)), ((), ())))  # wrong


@wrong(TypeError, "add got incompatible shapes for broadcasting", "float32[3,4]", "float32[3,5]",
       fix="x[:, None]")
def add():
    x, y = ones(3, 4), ones(3, 5)
    x + y  # wrong


@wrong(ValueError, "Incompatible shapes for broadcasting", "multiply", "float32[3,4]", "int32[3]",
       fix="x[:, None]")
def multiply_in_grad():
    def loss(x):
        return (x * jnp.arange(3)).sum()  # wrong

    toile.grad(loss)(ones(3, 4))


@wrong(ValueError, "where", "bool[3]", "float32[2]", fix="broadcast")
def where_shapes():
    jnp.where(ones(3) > 0, ones(2), 0.0)  # wrong


@wrong(TypeError, "add", "float32[3,4]", "float32[3,5]", fix="toile.numpy")
def lax_add_shapes():
    lax.add(ones(3, 4), ones(3, 5))  # wrong


@wrong(TypeError, "reshape", "float32[3,4]", "(5, 2)", fix="-1")
def reshape():
    ones(3, 4).reshape(5, 2)  # wrong


@wrong(TypeError, "reshape", "float32[3,4]", "(5, -1)", fix="divide")
def reshape_unknown_size():
    ones(3, 4).reshape(5, -1)  # wrong


@wrong(ValueError, "broadcast_to", "float32[3,4]", "(3, 5)", fix="size 1")
def broadcast_to():
    jnp.broadcast_to(ones(3, 4), (3, 5))  # wrong


@wrong(TypeError, "concatenate", "float32[3,4]", "float32[2,5]", fix="axis")
def concatenate():
    jnp.concatenate([ones(3, 4), ones(2, 5)])  # wrong


@wrong(ValueError, "stack", "float32[3]", "float32[4]", fix="equal shapes")
def stack():
    jnp.stack([ones(3), ones(4)])  # wrong


@wrong(ValueError, "transpose", "float32[3,4]", "(0, 1, 2)", fix="permutation")
def transpose():
    jnp.transpose(ones(3, 4), (0, 1, 2))  # wrong


@wrong(ValueError, "squeeze", "float32[3,4]", fix="size 1")
def squeeze():
    jnp.squeeze(ones(3, 4), axis=0)  # wrong


@wrong(ValueError, "sum", "out of bounds", "float32[3,4]", fix="-2 ... 1")
def sum_axis():
    ones(3, 4).sum(axis=2)  # wrong


@wrong(ValueError, "split", "float32[10]", fix="array_split")
def split():
    jnp.split(ones(10), 3)  # wrong


@wrong(TypeError, "conv_general_dilated", "float32[1,3,8,8]", "float32[4,5,3,3]", fix="channels")
def conv():
    lax.conv_general_dilated(ones(1, 3, 8, 8), ones(4, 5, 3, 3), (1, 1), "SAME")  # wrong


@wrong(TypeError, "dynamic_slice", "float32[4]", "(5,)", fix="at most")
def dynamic_slice():
    lax.dynamic_slice(ones(4), (0,), (5,))  # wrong


@wrong(ValueError, "cholesky", "float32[3,4]", fix="square")
def cholesky():
    jnp.linalg.cholesky(ones(3, 4))  # wrong


@wrong(ValueError, "dot_product_attention", "float32[1,8,2,4]", "float32[1,8,3,4]", fix="heads")
def attention():
    q, k = ones(1, 8, 2, 4), ones(1, 8, 3, 4)
    nn.dot_product_attention(q, k, k)  # wrong


# ------------------------------------------------------------------------------- dtypes


@wrong(TypeError, "bitwise_and", "float32[3]", fix="astype")
def bitwise_and_of_floats():
    ones(3) & ones(3)  # wrong


@wrong(TypeError, "add", "float32[3]", "int32[3]", fix="astype")
def lax_add_dtypes():
    lax.add(ones(3), jnp.arange(3))  # wrong


@wrong(TypeError, "astype", "float32[3]", "flaot32", fix="float32")
def astype_of_unknown_dtype():
    ones(3).astype("flaot32")  # wrong


@wrong(TypeError, "array", "object", fix="numbers")
def array_of_objects():
    jnp.array([object()])  # wrong


@wrong(TypeError, "sin", "str", fix="number")
def sin_of_a_string():
    jnp.sin("1.0")  # wrong


@wrong(TypeError, "add", "list", fix="jnp.array")
def add_a_list():
    jnp.add(ones(3), [1.0, 2.0, 3.0])  # wrong


@wrong(TypeError, "unsupported operand", "list", fix="toile.numpy.array")
def plus_a_list():
    ones(3) + [1.0, 2.0, 3.0]  # wrong


@wrong(TypeError, "erf_inv", "int32[3]", fix="astype")
def lax_floats_only():
    lax.erf_inv(jnp.arange(3))  # wrong


@wrong(TypeError, "cond", "float32[2]", fix="jnp.where")
def cond_predicate():
    lax.cond(ones(2), lambda x: x, lambda x: -x, 1.0)  # wrong


# ------------------------------------------------------------------------------- indexing


@wrong(IndexError, "index 5", "float32[3,4]", fix="-3 ... 2")
def index_out_of_range():
    ones(3, 4)[5]  # wrong


@wrong(IndexError, "index -4", "float32[3,4]", fix="-3 ... 2")
def negative_index_in_jit():
    @toile.jit
    def row(x):
        return x[-4]  # wrong

    row(ones(3, 4))


@wrong(IndexError, "index", "float32[3,4]", fix="2")
def too_many_indices():
    ones(3, 4)[0, 0, 0]  # wrong


@wrong(TypeError, "index", "float32[2]", fix="astype")
def index_by_floats():
    ones(3, 4)[ones(2)]  # wrong


@wrong(TypeError, "index", "float32[3,4]", fix="array")
def index_by_a_list():
    ones(3, 4)[[0, 1]]  # wrong


@wrong(IndexError, "bool[4]", "float32[3]", fix="mask")
def mask_of_another_size():
    ones(3)[ones(4) > 0]  # wrong


@wrong(errors.NonConcreteBooleanIndexError, "bool[3]", "float32[3]", fix="where")
def mask_in_jit():
    @toile.jit
    def positive(x):
        return x[x > 0]  # wrong

    positive(ones(3))


@wrong(TypeError, "immutable", "float32[3]", fix="x.at[0].set(")
def item_assignment():
    x = ones(3)
    x[0] = 2.0  # wrong


@wrong(ValueError, "set", "float32[3,4]", "float32[5]", fix="broadcast")
def update_of_another_shape():
    ones(3, 4).at[0].set(ones(5))  # wrong


# ------------------------------------------------------------------------------- traced values


@wrong(errors.TracerBoolConversionError, "bool", "bool[]", "result of gt", fix="lax.cond")
def if_on_a_tracer():
    @toile.jit
    def relu(x):
        return x if x > 0 else 0.0  # wrong

    relu(1.0)


@wrong(errors.ConcretizationTypeError, "float", "float32[]", fix="static_argnums")
def float_of_a_tracer():
    @toile.jit
    def half(x):
        return float(x) / 2  # wrong

    half(1.0)


@wrong(errors.ConcretizationTypeError, "item", "float32[]", fix="outside")
def item_of_a_tracer():
    toile.jit(lambda x: x.item())(1.0)  # wrong


@wrong(errors.TracerArrayConversionError, "NumPy", "float32[3]", fix="toile.numpy")
def numpy_on_a_tracer():
    @toile.jit
    def f(x):
        return np.sin(x)  # wrong

    f(ones(3))


@wrong(errors.TracerIntegerConversionError, "integer", "int32[]", fix="toile array")
def list_indexed_by_a_tracer():
    @toile.jit
    def pick(i):
        return [10, 20, 30][i]  # wrong

    pick(1)


@wrong(errors.TracerIntegerConversionError, "integer", "int32[]", fix="fori_loop")
def range_of_a_tracer():
    @toile.jit
    def loop(n):
        for _ in range(n):  # wrong
            pass

    loop(3)


@wrong(errors.ConcretizationTypeError, "zeros", "int32[]", fix="static_argnums")
def traced_shape():
    @toile.jit
    def zeros(n):
        return jnp.zeros(n)  # wrong

    zeros(3)


@wrong(errors.ConcretizationTypeError, "arange", "int32[]", fix="static_argnums")
def traced_arange():
    @toile.jit
    def count(n):
        return jnp.arange(n)  # wrong

    count(3)


@wrong(errors.ConcretizationTypeError, "reshape", "int32[]", fix="static_argnums")
def traced_reshape():
    @toile.jit
    def rows(x, n):
        return x.reshape(n, -1)  # wrong

    rows(ones(6), 2)


@wrong(errors.ConcretizationTypeError, "nonzero", "float32[3]", fix="size")
def nonzero_in_jit():
    toile.jit(jnp.nonzero)(ones(3))  # wrong


@wrong(errors.ConcretizationTypeError, "unique", "float32[3]", fix="size")
def unique_in_jit():
    @toile.jit
    def f(x):
        return jnp.unique(x)  # wrong

    f(ones(3))


@wrong(TypeError, "iteration over a 0-d array", "float32[]", fix="reshape")
def iteration_over_a_scalar():
    @toile.jit
    def f(x):
        return list(x)  # wrong

    f(1.0)


@wrong(TypeError, "len", "float32[]", fix="rank")
def length_of_a_scalar():
    len(jnp.float32(1))  # wrong


def leak(transform):
    kept = []

    def f(x):
        kept.append(x * 2)
        return x * 2

    transform(f)(1.0)
    return kept[0]


@wrong(errors.UnexpectedTracerError, "traced", "float32[]", fix="Return")
def leak_from_jit():
    leaked = leak(toile.jit)
    leaked + 1  # wrong


@wrong(errors.UnexpectedTracerError, "traced", "float32[]", fix="Return")
def leak_from_grad():
    leaked = leak(toile.grad)
    jnp.sin(leaked)  # wrong


@wrong(errors.UnexpectedTracerError, "traced", "float32[]", fix="Return")
def leak_from_vmap():
    leaked = leak(lambda f: lambda x: toile.vmap(f)(ones(3)))
    leaked + 1  # wrong


@wrong(errors.UnexpectedTracerError, "traced", "float32[]", fix="Return")
def leak_from_scan():
    leaked = leak(lambda f: lambda x: lax.scan(lambda c, y: (f(c), None), x, None, length=2))
    leaked * 2  # wrong


# ------------------------------------------------------------------------------- transformations


@wrong(TypeError, "Gradient only defined for scalar-output functions", "float32[3]", fix=".sum()")
def grad_of_a_vector():
    toile.grad(lambda x: x * 2)(ones(3))  # wrong


@wrong(TypeError, "grad requires real- or complex-valued inputs", "int32", fix="float")
def grad_of_an_integer():
    toile.grad(lambda x: x * 2.0)(3)  # wrong


@wrong(ValueError, "jvp", "float32[3]", "float32[4]", fix="same shape")
def jvp_tangent():
    toile.jvp(jnp.sin, (ones(3),), (ones(4),))  # wrong


@wrong(ValueError, "vjp", "float32[3]", "float32[4]", fix="ones_like")
def vjp_cotangent():
    _, back = toile.vjp(jnp.sin, ones(3))
    back(ones(4))  # wrong


@wrong(ValueError, "vmap got inconsistent sizes", "float32[3,2]", "float32[4,2]", fix="in_axes")
def vmap_sizes():
    toile.vmap(jnp.add)(ones(3, 2), ones(4, 2))  # wrong


@wrong(ValueError, "vmap", "float32[]", fix="in_axes")
def vmap_of_a_scalar():
    toile.vmap(jnp.sin)(1.0)  # wrong


@wrong(ValueError, "vmap in_axes", fix="tuple")
def vmap_axes_structure():
    toile.vmap(jnp.add, in_axes=(0,))(ones(3), ones(3))  # wrong


@wrong(NameError, "unbound axis name", "batch", fix="axis_name=")
def unbound_axis():
    lax.psum(ones(3), "batch")  # wrong


@wrong(errors.NonHashableStaticArgumentError, "jit", "list", fix="tuple")
def static_list():
    pool = toile.jit(lambda x, window: x, static_argnums=1)
    pool(ones(3), [2, 2])  # wrong


@wrong(TypeError, "jit", "str", fix="static_argnames")
def string_argument():
    toile.jit(lambda x, mode: x)(1.0, "same")  # wrong


@wrong(TypeError, "jit", "str", fix="return")
def jit_returns_a_string():
    toile.jit(lambda x: "done")(1.0)  # wrong


@wrong(RuntimeError, "deleted", fix="donate_argnums")
def donated():
    x = ones(3)
    toile.jit(lambda x: x + 1, donate_argnums=0)(x)
    x + 1  # wrong


@wrong(errors.TreeStructureError, "scan", "float32[3]", fix="same tuples")
def scan_carry_structure():
    lax.scan(lambda c, x: ((c, c), x), 0.0, ones(3))  # wrong


@wrong(TypeError, "scan", "float32[]", "float32[2]", fix="carry")
def scan_carry_shape():
    lax.scan(lambda c, x: (c + x, None), 0.0, ones(3, 2))  # wrong


@wrong(TypeError, "scan", "int32[]", "float32[]", fix="carry")
def scan_carry_dtype():
    lax.scan(lambda c, x: (c + x, None), jnp.int32(0), ones(3))  # wrong


@wrong(ValueError, "scan", "float32[3]", "float32[4]", fix="leading")
def scan_lengths():
    lax.scan(lambda c, xs: (c, None), 0.0, (ones(3), ones(4)))  # wrong


@wrong(errors.TreeStructureError, "cond", "true_fun output", fix="same tuples")
def cond_structure():
    lax.cond(True, lambda x: (x, x), lambda x: x, 1.0)  # wrong


@wrong(TypeError, "cond", "float32[]", "int32[]", fix="astype")
def cond_dtypes():
    lax.cond(True, lambda x: jnp.float32(1), lambda x: jnp.int32(1), 1.0)  # wrong


@wrong(TypeError, "switch", "float32[2]", "float32[3]", fix="branches")
def switch_shapes():
    lax.switch(0, [lambda: ones(2), lambda: ones(3)])  # wrong


@wrong(TypeError, "while_loop", "int32[]", "float32[]", fix="carry")
def while_carry():
    lax.while_loop(lambda c: c < 3, lambda c: c + 1.0, jnp.int32(0))  # wrong


@wrong(TypeError, "while_loop", "bool[2]", fix="jnp.all")
def while_predicate():
    lax.while_loop(lambda c: c < 3, lambda c: c + 1.0, ones(2))  # wrong


@wrong(TypeError, "fori_loop", "float32[]", "float32[2]", fix="carry")
def fori_carry():
    lax.fori_loop(0, 3, lambda i, c: c + ones(2), 0.0)  # wrong


@wrong(ValueError, "while_loop", "1", fix="leave it out")
def while_checkpoints():
    lax.while_loop(lambda c: c < 3, lambda c: c + 1, 0, checkpoints=1)  # wrong


@wrong(NotImplementedError, "while_loop", fix="toile.debug.callback")
def reverse_while_io():
    def step(c):
        toile.experimental.io_callback(print, None, 1)
        return c * 2

    def f(x):
        return lax.while_loop(lambda c: c < 10, step, x)  # wrong

    toile.grad(f)(1.0)


@wrong(TypeError, "can't apply forward-mode autodiff (jvp) to a custom_vjp",
       fix="a custom_jvp instead")
def forward_custom_vjp():
    @toile.custom_vjp
    def f(x):
        return x

    f.defvjp(lambda x: (x, None), lambda res, ct: (ct,))
    toile.jvp(f, (1.0,), (1.0,))  # wrong


@wrong(ValueError, "custom_vjp", "float32[3]", "float32[]", fix="cotangent")
def custom_vjp_shape():
    @toile.custom_vjp
    def f(x):
        return x.sum()

    f.defvjp(lambda x: (x.sum(), None), lambda res, ct: (ct,))
    toile.grad(f)(ones(3))  # wrong


@wrong(TypeError, "custom_vjp", fix="tuple")
def custom_vjp_count():
    @toile.custom_vjp
    def f(x, y):
        return x * y

    f.defvjp(lambda x, y: (x * y, None), lambda res, ct: (ct,))
    toile.grad(f)(1.0, 2.0)  # wrong


@wrong(TypeError, "custom_jvp", "float32[3]", "float32[]", fix="tangent")
def custom_jvp_shape():
    @toile.custom_jvp
    def f(x):
        return x.sum()

    f.defjvp(lambda primals, tangents: (primals[0].sum(), tangents[0]))
    toile.jvp(f, (ones(3),), (ones(3),))  # wrong


@wrong(AttributeError, "custom_vjp", fix="defvjp")
def custom_vjp_without_rule():
    f = toile.custom_vjp(lambda x: x)
    toile.grad(f)(1.0)  # wrong


# ------------------------------------------------------------------------------- keys and settings


@wrong(TypeError, "random.normal", "int", fix="toile.random.key")
def number_as_a_key():
    random.normal(0)  # wrong


@wrong(ValueError, "random.normal", "key<fry>[2]", fix="vmap")
def several_keys():
    random.normal(random.split(random.key(0)))  # wrong


@wrong(TypeError, "add", "key<fry>[]", fix="key_data")
def key_arithmetic():
    random.key(0) + 1  # wrong


@wrong(FloatingPointError, "log", "float32[2]", fix="debug_nans")
def nan():
    x = jnp.array([1.0, -1.0])
    with toile.debug_nans(True):
        jnp.log(x)  # wrong


@wrong(AttributeError, "jax_enable_x46", fix="jax_enable_x64")
def unknown_flag():
    toile.config.update("jax_enable_x46", True)  # wrong


@wrong(ValueError, "tree", "['b']", fix="structure")
def tree_map_structures():
    toile.tree.map(jnp.add, {"a": 1.0}, {"a": 1.0, "b": 2.0})  # wrong


@pytest.mark.parametrize("program, kind, operation, shown, fix, where", TABLE)
def test_wrong_program(program, kind, operation, shown, fix, where):
    check(program, kind, operation, shown, fix, where)


def test_enough_programs():
    assert len(TABLE) >= 40
