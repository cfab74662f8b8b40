"""Rows of the operations that carry Programs or Python functions, and the list of all rows."""

from __future__ import annotations

import numpy as np

import toile
import toile.numpy as jnp
from tests import cases_arrays, cases_elementwise, cases_linalg
from tests.cases import COMPLEX, REALS, I, Row, X
from toile import lax
from toile.api.callbacks import debug_callback, io_callback
from toile.api.checkpoint import Name, checkpoint_name
from toile.api.custom import linear_call
from toile.control import (
    attention,
    call,
    callbacks,
    cond,
    custom,
    linear,
    linear_solve,
    remat,
    scan,
    while_loop,
)
from toile.parallel import placement as placing
from toile.parallel import spmd
from toile.parallel import varying_values as varying
from toile.sharding import Mesh, NamedSharding, PartitionSpec

V = X(4)


def inner(x, y):
    """A function with a nonlinear part, a product and a reduction."""
    return jnp.sin(x) * y, jnp.sum(x * y, axis=-1)


def inner_called(x, y):
    """A jit of its own for each call: a table's tests trace it in more ways than `jit` warns of."""
    return toile.jit(lambda x, y: inner(x, y))(x, y)


def inner_numpy(x, y):
    return [np.sin(x) * y, np.sum(x * y, axis=-1)]


@toile.custom_jvp
def scaled_jvp(x, y):
    return jnp.sin(x) * y


@scaled_jvp.defjvp
def _(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    return scaled_jvp(x, y), jnp.cos(x) * y * dx + jnp.sin(x) * dy


@toile.custom_vjp
def scaled_vjp(x, y):
    return jnp.sin(x) * y


scaled_vjp.defvjp(
    lambda x, y: (jnp.sin(x) * y, (x, y)),
    lambda kept, ct: (ct * jnp.cos(kept[0]) * kept[1], ct * jnp.sin(kept[0])),
)


def doubled(x):
    """Linear, with a transpose that says so."""
    return linear_call(lambda r, x: r * x, lambda r, ct: r * ct, np.float32(2), x)


def scanned(reverse, unroll):
    """A scan with a constant, a carry and per-step values; length 3."""

    def run(w, start, xs):
        def step(carry, x):
            new = jnp.tanh(carry * w + x)
            return new, (new * x, jnp.sum(new))

        return lax.scan(step, start, xs, reverse=reverse, unroll=unroll)

    def oracle(w, start, xs):
        carry, ys, zs = start, [], []
        for x in xs[::-1] if reverse else xs:
            carry = np.tanh(carry * w + x)
            ys.append(carry * x)
            zs.append(np.sum(carry))
        ys, zs = np.stack(ys), np.stack(zs)
        return [carry, *((ys[::-1], zs[::-1]) if reverse else (ys, zs))]

    return run, oracle


def repeated(n, x, w):
    """A loop whose number of steps is an operand."""
    return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, jnp.sin(c[1]) * w + c[1]),
                          (jnp.zeros_like(n), x))


def repeated_numpy(n, x, w):
    for _ in range(int(n)):
        x = np.sin(x) * w + x
    return [n, x]


BRANCHES = (lambda x, y: jnp.sin(x) * y, lambda x, y: x - y * y, lambda x, y: jnp.full_like(x, 2))


def branches_numpy(i, x, y):
    cases = (np.sin(x) * y, x - y * y, np.full_like(x, 2))
    return cases[int(np.clip(i, 0, 2))]


def solved(x, b):
    """A symmetric system through custom_linear_solve."""
    a = x @ x.T + 3 * jnp.eye(3, dtype=x.dtype)
    return lax.custom_linear_solve(
        lambda v: a @ v, b, lambda _, rhs: jnp.linalg.solve(a, rhs), symmetric=True)


def solved_numpy(x, b):
    return np.linalg.solve(x @ x.T + 3 * np.eye(3, dtype=x.dtype), b)


def called(x):
    """A callback that NumPy answers, whatever the batch."""
    shape = toile.ShapeDtypeStruct(x.shape, x.dtype)
    return toile.pure_callback(np.sin, shape, x, vmap_method="broadcast_all")


def with_io(ordered):
    def run(x):
        shape = toile.ShapeDtypeStruct(x.shape, x.dtype)
        return io_callback(np.cos, shape, x, ordered=ordered)

    return run


def watched(ordered):
    def run(x):
        debug_callback(lambda v: None, x, ordered=ordered)
        return jnp.sin(x)

    return run


MESH = Mesh(np.array(toile.devices()[:1]), ("i",))
ALONE = NamedSharding(MESH, PartitionSpec("i"))


@toile.shard_map(mesh=MESH, in_specs=PartitionSpec("i"), out_specs=PartitionSpec("i"))
def on_mesh(x, y):
    """A function of one device's parts, with a sum over devices."""
    return inner(lax.psum(x, "i"), y)


def attended(q, k, v, mask):
    """Attention as one operation, of grouped heads."""

    def plain(q, k, v, mask):
        logits = jnp.einsum("btkgh,bskh->bkgts", q.reshape(*q.shape[:2], 2, 2, -1), k) * 0.5
        logits = jnp.where(mask[:, :, None] > 0, logits, -1e30)
        weights = toile.nn.softmax(logits)
        out = jnp.einsum("bkgts,bskh->btkgh", weights, v).reshape(q.shape)
        sums = toile.nn.logsumexp(logits, axis=-1).reshape(*q.shape[:1], 4, q.shape[1])
        return out, lax.stop_gradient(sums.astype(jnp.float32))

    form = attention.Form(0.5, ("q", "k", "v", "mask"))
    return attention.attend(plain, form, q, k, v, mask)


def attended_numpy(q, k, v, mask):
    k, v = (np.repeat(x, 2, axis=2) for x in (k, v))
    logits = np.where(mask > 0, np.einsum("bthd,bshd->bhts", q, k) * 0.5, -1e30)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    return np.einsum("bhts,bshd->bthd", weights, v).astype(q.dtype)


CARRIERS = [
    Row(call.Call, inner_called, (X(2, 3), X(2, 3)), inner_numpy, dtypes=(*REALS, *COMPLEX)),
    Row(attention.Attention, attended, (X(2, 3, 4, 3), X(2, 5, 2, 3), X(2, 5, 2, 3),
                                        I(2, 1, 3, 5, low=0, high=2)), attended_numpy),
    Row(remat.Remat, toile.checkpoint(inner), (X(2, 3), X(2, 3)), inner_numpy),
    Row(remat.Remat, toile.checkpoint(inner, policy=toile.checkpoint_policies.everything_saveable),
        (X(2, 3), X(2, 3)), inner_numpy, label="saving"),
    Row(custom.CustomJVPCall, scaled_jvp, (V, V), lambda x, y: np.sin(x) * y),
    Row(custom.CustomVJPCall, scaled_vjp, (V, V), lambda x, y: np.sin(x) * y, forward=False),
    *(Row(scan.Scan, run, (V, V, X(3, 4)), oracle, label=f"reverse{int(back)}-unroll{unroll}")
      for back, unroll in [(False, 1), (True, 1), (False, 2), (True, 3)]
      for run, oracle in [scanned(back, unroll)]),
    Row(while_loop.While, repeated, (I(high=4), V, V), repeated_numpy),
    Row(cond.Cond, lambda i, x, y: lax.switch(i, BRANCHES, x, y), (I(low=-1, high=3), V, V),
        branches_numpy),
    Row(cond.Cond, lambda i, x, y: lax.cond(i > 0, *BRANCHES[:2], x, y), (I(low=-1, high=2), V, V),
        lambda i, x, y: np.sin(x) * y if i > 0 else x - y * y, label="two"),
    Row(linear_solve.LinearSolve, solved, (X(3, 3), X(3)), solved_numpy, linear=(1,)),
    Row(callbacks.PureCallback, called, (V,), np.sin, moving=()),
    Row(callbacks.IoCallback, with_io(False), (V,), np.cos, moving=()),
    Row(callbacks.OrderedIoCallback, with_io(True), (V,), np.cos, moving=(), mapped=()),
    Row(callbacks.DebugCallback, watched(False), (V,), np.sin),
    Row(callbacks.OrderedDebugCallback, watched(True), (V,), np.sin, mapped=()),
    Row(Name, lambda x: checkpoint_name(x, "kept"), (V,), np.copy, linear=(0,)),
    Row(spmd.Spmd, toile.pmap(inner, axis_name="i"), (X(1, 3), X(1, 3)), inner_numpy),
    Row(spmd.Spmd, on_mesh, (X(2, 3), X(2, 3)), inner_numpy, label="mesh"),
    Row(placing.Constraint, lambda x: lax.with_sharding_constraint(x, ALONE), (V,), np.copy,
        linear=(0,)),
    Row(varying.Varying, varying.Varying(("i",)), (V,), np.copy, linear=(0,)),
    Row(linear.LinearCall, doubled, (V,), lambda x: 2 * x, linear=(0,)),
]

ROWS = [*cases_elementwise.ROWS, *cases_arrays.ROWS, *cases_linalg.ROWS, *CARRIERS]

# Classes without a row, and why.
INTERNAL = {
    "AllReduceTogether": "neighbouring all-reduces of a Program over devices, made before it runs; "
                         "tests/parallel/test_programs.py (psum_tree) and test_buckets.py meet it",
    "AllReduceBegin": "the first half of such a sum on GPUs, which go on meanwhile; "
                      "tests/multi_gpu/test_host.py meets it",
    "AllReduceEnd": "its second half",
    "Captured": "a value a derived Program closes over; every row that stages meets it",
    "Forward": "an identity inside linear Programs; reverse mode of scan and cond meets it",
    "LinearWhile": "the linear part of While, made by its reverse mode",
    "ReverseLoop": "the backward pass of While, made by its reverse mode; its own tests are in "
                   "tests/test_reverse_while.py",
    "AttentionTangent": "the linear part of Attention, made by its forward mode",
    "AttentionGradient": "the cotangents of Attention, made by its reverse mode",
    "FusedAttention": "cuDNN's attention, made by the compiler; its tests are in "
                      "tests/gpu/test_attention_program.py",
    "FusedAttentionGradient": "its derivative, likewise",
    "QuantizedProduct": "a product with stored integers, made by the compiler; its tests are in "
                        "tests/quantization/test_products.py",
    "FusedProduct": "a product with what follows it, made by the GPU's compiler; "
                    "tests/gpu/test_epilogues.py",
    "RematLinear": "the linear part of Remat, made by its reverse mode",
    "CustomLinear": "the linear part of CustomVJPCall, made by its reverse mode",
    "Check": "checkify's; tests/test_experimental.py holds it to jax",
    "ThreefryWord": "the hash behind random bits, made by the compiler; its tests are in "
                    "tests/compiler/test_random_bits.py",
    "OnBuffers": "an operation on the buffers of keys, made by the compiler; its tests are in "
                 "tests/compiler/test_random_bits.py",
    "EdgesByTarget": "the edges of a graph in order, made by the compiler; its tests are in "
                     "tests/compiler/test_messages.py",
    "GatherScatter": "sums of gathered rows, made by the compiler; its tests are in "
                     "tests/compiler/test_messages.py",
    "CustomVmapCall": "custom_vmap's; tests/test_faces.py holds it to jax",
    "Draw": "rng_bit_generator, whose vmap is no loop; tests/random/test_generators.py",
}
