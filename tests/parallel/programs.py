"""A table of programs over a mapped axis, for pmap, for vmap with a name, and for JAX's pmap.

An entry is `build(lib, mapped)`: a function of arrays of `lib` (toile or jax), where
`mapped(f, **options)` is a mapping over the axis "i" of N entries.
"""

from __future__ import annotations

import pathlib

import numpy as np

# What JAX's pmap gives for the table, made by make_golden.
PATH = pathlib.Path(__file__).parent.parent / "golden" / "pmap.npz"
# JAX refuses them or gets them wrong: negative axes, all_gather over a pmapped and a vmapped axis,
# transposes of an all_to_all that moves an axis.
NOT_IN_JAX = {
    "in_axes_last", "out_axes_last", "vmap_gather_both", "grad_inside_all_to_all",
    "grad_of_all_to_all",
}
N = 4
_random = np.random.default_rng(7)


def _numbers(*shape, dtype=np.float32):
    return _random.normal(size=shape).astype(dtype)


X = _numbers(N, 6)
SQUARE = _numbers(N, N, 3)
TILES = _numbers(N, 2 * N, 3)
WHOLE = np.arange(N * 6, dtype=np.int32).reshape(N, 6)
W = _numbers(6, 5)
Y = _numbers(N, 5)
GROUPS = [[0, 2], [1, 3]]
SWAP = [(0, 1), (1, 0), (2, 3), (3, 2)]
SHIFT = [(0, 1), (1, 2)]

# name: (build, arguments)
PROGRAMS = {}


def over(name, f, *args, **options):
    """A function of one entry: f(lib, *entry)."""
    PROGRAMS[name] = (
        lambda lib, mapped: mapped(lambda *xs: f(lib, *xs), **options), args or (X,)
    )


def whole(name, build, *args):
    """A function of everything."""
    PROGRAMS[name] = (build, args or (X,))


# ---- each collective, plain, in groups, on other dtypes
REDUCTIONS = ("psum", "pmean", "pmax", "pmin")
for kind in REDUCTIONS:
    over(kind, lambda lib, x, kind=kind: getattr(lib.lax, kind)(x, "i"))
    over(f"{kind}_groups", lambda lib, x, kind=kind: getattr(lib.lax, kind)(
        x, "i", axis_index_groups=GROUPS))
    over(f"{kind}_int", lambda lib, x, kind=kind: getattr(lib.lax, kind)(x, "i"), WHOLE)
    over(f"{kind}_bfloat16", lambda lib, x, kind=kind: getattr(lib.lax, kind)(
        x.astype(lib.numpy.bfloat16), "i").astype(lib.numpy.float32))
over("psum_tree", lambda lib, x: lib.lax.psum({"a": x, "b": (x[0], x[1:3])}, "i"))
over("psum_number", lambda lib, x: x * lib.lax.psum(1, "i"))
over("psum_scalar", lambda lib, x: lib.lax.psum(x.sum(), "i"))
over("psum_bool", lambda lib, x: lib.lax.psum(x > 0, "i"))
over("psum_twice", lambda lib, x: lib.lax.psum(lib.lax.psum(x, "i") * x, "i"))
over("psum_complex", lambda lib, x: lib.numpy.abs(lib.lax.psum(x + 1j * x, "i")))
over("axis_index", lambda lib, x: x + lib.lax.axis_index("i"))
over("axis_size", lambda lib, x: x * lib.lax.axis_size("i"))
over("ppermute", lambda lib, x: lib.lax.ppermute(x, "i", SWAP))
over("ppermute_partial", lambda lib, x: lib.lax.ppermute(x, "i", SHIFT))
over("pshuffle", lambda lib, x: lib.lax.pshuffle(x, "i", [2, 0, 3, 1]))
over("pswapaxes", lambda lib, x: lib.lax.pswapaxes(x, "i", 0), SQUARE)
over("all_gather", lambda lib, x: lib.lax.all_gather(x, "i"))
over("all_gather_axis", lambda lib, x: lib.lax.all_gather(x, "i", axis=1))
over("all_gather_tiled", lambda lib, x: lib.lax.all_gather(x, "i", tiled=True))
over("all_gather_tiled_axis", lambda lib, x: lib.lax.all_gather(x, "i", axis=1, tiled=True), SQUARE)
over("all_gather_groups", lambda lib, x: lib.lax.all_gather(x, "i", axis_index_groups=GROUPS))
over("all_gather_bool", lambda lib, x: lib.lax.all_gather(x > 0, "i"))
over("all_to_all", lambda lib, x: lib.lax.all_to_all(x, "i", 0, 0), SQUARE)
over("all_to_all_axes", lambda lib, x: lib.lax.all_to_all(x, "i", 0, 1), SQUARE)
over("all_to_all_tiled", lambda lib, x: lib.lax.all_to_all(x, "i", 0, 1, tiled=True), TILES)
over("all_to_all_groups", lambda lib, x: lib.lax.all_to_all(
    x, "i", 0, 0, axis_index_groups=GROUPS, tiled=True), TILES)
over("psum_scatter", lambda lib, x: lib.lax.psum_scatter(x, "i"), SQUARE)
over("psum_scatter_tiled", lambda lib, x: lib.lax.psum_scatter(x, "i", tiled=True), TILES)
over("psum_scatter_dimension", lambda lib, x: lib.lax.psum_scatter(
    x, "i", scatter_dimension=1, tiled=True), _numbers(N, 3, 2 * N))
over("psum_scatter_groups", lambda lib, x: lib.lax.psum_scatter(
    x, "i", axis_index_groups=GROUPS, tiled=True), TILES)

# ---- axes of arguments and results
over("in_axes_1", lambda lib, x: lib.lax.psum(x, "i"), X.T.copy(), in_axes=1)
over("in_axes_last", lambda lib, x: x * 2, X.T.copy(), in_axes=-1)
over("in_axes_none", lambda lib, x, w: x @ w, X, W, in_axes=(0, None))
over("in_axes_tree", lambda lib, t: t["a"] + t["b"], {"a": X, "b": X[0]},
     in_axes=({"a": 0, "b": None},))
over("out_axes_1", lambda lib, x: x * 2, out_axes=1)
over("out_axes_last", lambda lib, x: lib.lax.pmean(x, "i"), out_axes=-1)
over("out_axes_none", lambda lib, x: lib.lax.psum(x, "i"), out_axes=None)
over("out_axes_tuple", lambda lib, x: (x, lib.lax.psum(x, "i")), out_axes=(1, None))
over("constant", lambda lib, x: (3, lib.numpy.arange(2.0)))

# ---- loops, conditions, keys
over("scan", lambda lib, x: lib.lax.scan(
    lambda c, _: (0.1 * lib.lax.psum(c, "i"), c), x, None, length=3))
over("fori_loop", lambda lib, x: lib.lax.fori_loop(
    0, 3, lambda k, c: lib.lax.ppermute(c, "i", SWAP) + k, x))
over("while_loop", lambda lib, x: lib.lax.while_loop(
    lambda c: lib.lax.pmax(c, "i").max() < 9, lambda c: c * 1.5 + 0.1, abs(x)))
over("cond", lambda lib, x: lib.lax.cond(
    lib.lax.psum(x.sum(), "i") > 0, lambda v: lib.lax.psum(v, "i"), lambda v: v * 2, x))
over("random", lambda lib, x: lib.random.normal(
    lib.random.fold_in(lib.random.key(3), lib.lax.axis_index("i")), (3,)))
whole("keys", lambda lib, mapped: lambda x: mapped(
    lambda k, v: v + lib.random.uniform(k, v.shape))(lib.random.split(lib.random.key(0), N), x))
over("jit_inside", lambda lib, x: lib.jit(lambda v: lib.lax.psum(v * 2, "i"))(x))
over("sort_and_svd", lambda lib, x: lib.numpy.linalg.svd(
    lib.lax.all_gather(lib.numpy.sort(x), "i"), compute_uv=False))

# ---- vmap inside and outside
over("vmap_inside", lambda lib, x: lib.vmap(lambda v: lib.lax.psum(v, "i"))(x), TILES)
over("vmap_inside_both", lambda lib, x: lib.vmap(
    lambda v: lib.lax.psum(v, ("i", "j")), axis_name="j")(x), TILES)
over("vmap_inside_inner", lambda lib, x: lib.vmap(
    lambda v: lib.lax.psum(v, "j") + lib.lax.axis_index("i"), axis_name="j")(x), TILES)
over("vmap_gather_both", lambda lib, x: lib.vmap(
    lambda v: lib.lax.all_gather(v, ("i", "j")), axis_name="j")(x), _numbers(N, 2, 3))
whole("vmap_outside", lambda lib, mapped: lib.vmap(
    mapped(lambda x: lib.lax.psum(x, "i") * x)), _numbers(3, N, 2))
whole("vmap_outside_axes", lambda lib, mapped: lib.vmap(
    mapped(lambda x, w: lib.lax.pmean(x, "i") + w, in_axes=(0, None)), in_axes=(1, 0)),
    _numbers(N, 3, 2), _numbers(3, 2))
over("pmean_of_positions", lambda lib, x: lib.lax.psum(x, ("i", 0)))

# ---- derivatives inside
COLLECTIVES = {
    "psum": lambda lib, v: lib.lax.psum(v**2, "i"),
    "pmean": lambda lib, v: lib.lax.pmean(v**3, "i"),
    "all_gather": lambda lib, v: lib.lax.all_gather(v**2, "i"),
    "all_gather_tiled": lambda lib, v: lib.lax.all_gather(v**2, "i", tiled=True),
    "ppermute": lambda lib, v: lib.lax.ppermute(v**2, "i", SWAP),
    "psum_groups": lambda lib, v: lib.lax.psum(v**2, "i", axis_index_groups=GROUPS),
    "index": lambda lib, v: v**2 * lib.lax.axis_index("i"),
}
SCATTERING = {
    "all_to_all": lambda lib, v: lib.lax.all_to_all(v**2, "i", 0, 1),
    "psum_scatter": lambda lib, v: lib.lax.psum_scatter(v**2, "i"),
}


def weighted(lib, out):
    return (out * lib.numpy.arange(out.size).reshape(out.shape)).sum()


for name, f in {**COLLECTIVES, **SCATTERING}.items():
    data = SQUARE if name in SCATTERING else X
    over(f"grad_inside_{name}", lambda lib, x, f=f: lib.grad(
        lambda v: weighted(lib, f(lib, v)))(x), data)
    whole(f"grad_of_{name}", lambda lib, mapped, f=f: lib.grad(
        lambda x: weighted(lib, mapped(lambda v: f(lib, v))(x))), data)
    whole(f"jvp_of_{name}", lambda lib, mapped, f=f: lambda x: lib.jvp(
        mapped(lambda v: f(lib, v)), (x,), (x + 1,)), data)

# ---- derivatives of it, by what is and is not mapped
whole("grad_shared", lambda lib, mapped: lib.grad(lambda w, x, y: mapped(
    lambda w, x, y: ((x @ w - y) ** 2).sum(), in_axes=(None, 0, 0))(w, x, y).sum()), W, X, Y)
whole("grad_closed_over", lambda lib, mapped: lambda w, x: lib.grad(
    lambda w: mapped(lambda v: lib.lax.pmean(lib.numpy.tanh(v @ w), "i"))(x).sum())(w), W, X)
whole("grad_out_none", lambda lib, mapped: lib.grad(lambda x: mapped(
    lambda v: lib.lax.psum(v**2, "i"), out_axes=None)(x).sum()))
whole("value_and_grad_mean", lambda lib, mapped: mapped(lambda w, x, y: lib.lax.pmean(
    lib.value_and_grad(lambda w: ((lib.numpy.tanh(x @ w) - y) ** 2).mean())(w), "i"),
    in_axes=(None, 0, 0)), W, X, Y)
whole("hessian", lambda lib, mapped: lib.hessian(lambda w: mapped(
    lambda v: lib.lax.psum((v * w) ** 3, "i"))(X).sum()), np.float32(2.0))
whole("jacfwd", lambda lib, mapped: lib.jacfwd(mapped(lambda v: lib.lax.psum(v**2, "i"))), X[:, :2])
whole("jacrev", lambda lib, mapped: lib.jacrev(mapped(lambda v: lib.lax.psum(v**2, "i"))), X[:, :2])
whole("grad_scan", lambda lib, mapped: lib.grad(lambda x: mapped(lambda v: lib.lax.scan(
    lambda c, _: (lib.numpy.sin(lib.lax.psum(c, "i")), c), v, None, length=3)[1])(x).sum()))
whole("grad_remat", lambda lib, mapped: lib.grad(lambda x: mapped(lambda v: lib.checkpoint(
    lambda u: lib.numpy.sin(lib.lax.psum(u, "i")) * u)(v))(x).sum()))
whole("vjp", lambda lib, mapped: lambda x: lib.vjp(
    mapped(lambda v: lib.lax.all_gather(v, "i") * v), x)[1](lib.numpy.ones((N, N, 6)))[0])
whole("linearize", lambda lib, mapped: lambda x: lib.linearize(
    mapped(lambda v: lib.lax.psum(v, "i") * v), x)[1](x))

# ---- inside of jit, and again
whole("jit_outside", lambda lib, mapped: lib.jit(lambda x: 2 * mapped(
    lambda v: lib.lax.psum(v, "i"))(x + 1)))
whole("jit_grad", lambda lib, mapped: lib.jit(lib.grad(lambda x: mapped(
    lambda v: lib.lax.pmean(lib.numpy.exp(v), "i"))(x).sum())))
whole("twice", lambda lib, mapped: lambda x: mapped(lambda v: lib.lax.psum(v, "i"))(
    mapped(lambda v: v * lib.lax.axis_index("i"))(x)))
whole("in_scan", lambda lib, mapped: lambda x: lib.lax.scan(
    lambda c, _: (mapped(lambda v: 0.5 * lib.lax.psum(v, "i"))(c), c.sum()), x, None, length=3))
