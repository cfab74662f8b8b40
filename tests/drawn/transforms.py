"""Cases of transformations and control flow in combinations: rules of one's own, policies, axes with
names, integer carries, weak types, effects, trees.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.drawn.calls import SLOPES, Case, Draw, examine

__all__ = ["draw", "examine"]

FAMILIES: dict[str, Callable[[Draw], Case]] = {}

SETUP = '''
from collections import namedtuple
import dataclasses
Pair = namedtuple("Pair", "x y")

@partial(jax.tree_util.register_dataclass, data_fields=["u", "v"], meta_fields=["tag"])
@dataclasses.dataclass
class Record:
    u: object
    v: object
    tag: str = "t"

@partial(jax.custom_vjp, nondiff_argnums=(0, 2))
def powered(n, x, how, y):
    return x ** n + (y * 2 if how == "twice" else y)
powered.defvjp(lambda n, x, how, y: (powered(n, x, how, y), (x, y)),
               lambda n, how, res, ct: (ct * n * res[0] ** (n - 1) * 1.5, ct * (2 if how == "twice" else 1)))

@partial(jax.custom_jvp, nondiff_argnums=(1,))
def scaled(x, f):
    return f(x) * 2
scaled.defjvp(lambda f, xs, dxs: (scaled(xs[0], f), 3 * dxs[0] * jnp.cos(xs[0])))

@jax.custom_jvp
def joined(x, y):
    return jnp.sin(x) * y
joined.defjvps(lambda dx, out, x, y: dx * jnp.cos(x) * y, None)

@jax.custom_vjp
def clipped(x, limit):
    return x * 1.0
clipped.defvjp(lambda x, limit: (x * 1.0, limit), lambda limit, ct: (jnp.clip(ct, -limit, limit), None))

@jax.custom_vjp
def of_tree(t):
    return {"s": t[0] * t[1]["p"], "n": t[1]["n"] + 1}
def _fwd(t):
    return of_tree(t), t
def _bwd(t, ct):
    return ((ct["s"] * t[1]["p"], {"p": ct["s"] * t[0], "n": np.zeros(np.shape(t[1]["n"]), jax.dtypes.float0)}),)
of_tree.defvjp(_fwd, _bwd)

def cell(c, x):
    new = jnp.tanh(c * 0.7 + x)
    return new, new * x

def counted(c, x):
    i, h = c
    h = jnp.where(i % 2 == 0, jnp.sin(h + x), h * 0.5 * x)
    return (i + 1, h), (h, i)

@jax.jit
def inner(x, y=2.0, *, flag=True):
    return jnp.sin(x) * y if flag else x

def three(x):
    return jnp.sin(jax.ad_checkpoint.checkpoint_name(jnp.cos(x) * x, "mid"))
'''


def family(f: Callable[[Draw], Case]) -> Callable[[Draw], Case]:
    """Register a family by the name of its function."""
    FAMILIES[f.__name__] = f
    return f


def draw(seed: int, index: int, only: str = "") -> tuple[str, Case]:
    """The family and the case of a seed and an index."""
    g = Draw((seed, index))
    name = only or g.choice(*FAMILIES)
    return name, FAMILIES[name](g)


def case(g: Draw, text: str, *, slopes: bool = True, runs: tuple[str, ...] = ("jit", "vmap", "jit_vmap"),
         **options) -> Case:
    ways = (*((g.choice(*runs),) if runs else ()), *((g.choice(*SLOPES),) if slopes else ()))
    return Case(text, g.arrays, g.x64, ways, setup=SETUP, rtol=20, floor=0.5, **options)


def unary(g: Draw, depth: int = 2) -> str:
    """A function of one array that keeps its shape, with nests of transformations."""
    if depth == 0:
        return g.choice("jnp.sin", "jnp.tanh", "(lambda v: v * v * 0.5)", "jnp.cos", "inner",
                        "(lambda v: powered(3, v, 'twice', v))", "(lambda v: scaled(v, jnp.sin))",
                        "(lambda v: joined(v, v))", "(lambda v: clipped(v * v, 0.3))", "three",
                        "(lambda v: jnp.where(v > 0, v, 0.1 * v))", "(lambda v: -jnp.sort(v))",
                        "(lambda v: powered(2, v, 'once', 1.5))", "(lambda v: v / (1 + v ** 2))",
                        "(lambda v: of_tree((v, {'p': jnp.cos(v), 'n': jnp.arange(3)}))['s'])",
                        "(lambda v: jnp.cumsum(v) * 0.3)", "(lambda v: v[::-1] * v)",
                        "(lambda v: jax.nn.softmax(v) * v.sum())", "(lambda v: v @ jnp.outer(v, v) * 0.2)")
    f, h = unary(g, depth - 1), unary(g, g.int(0, depth - 1))
    policy = g.choice("", ", policy=jax.checkpoint_policies.dots_saveable",
                      ", policy=jax.checkpoint_policies.save_only_these_names('mid')",
                      ", policy=jax.checkpoint_policies.nothing_saveable",
                      ", policy=jax.checkpoint_policies.everything_saveable",
                      ", policy=jax.checkpoint_policies.save_anything_except_these_names('mid')",
                      ", prevent_cse=False")
    return g.choice(
        f"jax.checkpoint({f}{policy})", f"jax.jit({f})",
        f"(lambda v: lax.scan(lambda c, x: ({f}(c) * 0.5 + x, {h}(c)), v, v)[1].sum(0))",
        f"(lambda v: lax.scan(jax.checkpoint(lambda c, x: (({f})(c) + x * 0.1, None){policy}), v, v, reverse=True)[0])",
        f"(lambda v: lax.fori_loop(0, 3, lambda i, c: {f}(c) + i * 0.1, v))",
        f"(lambda v: lax.cond(v.sum() > 0, {f}, {h}, v))",
        f"(lambda v: lax.switch(jnp.int32(v.sum() * 3), [{f}, {h}, jnp.sin, jnp.cos, lambda z: z], v))",
        f"(lambda v: jax.vmap(lambda s: {f}(v * s).sum())(v))",
        f"(lambda v: jax.vmap(lambda s, w: ({f}(w * s)).sum() + lax.psum(s, 'n'), (0, None), axis_name='n')(v, v))",
        f"(lambda v: jax.grad(lambda w: {f}(w).sum())(v))",
        f"(lambda v: jax.jvp({f}, (v,), ({h}(v),))[1])",
        f"(lambda v: jax.vjp({f}, v)[1](jnp.cos(v))[0])",
        f"(lambda v: jax.linearize({f}, v)[1](v * v))",
        f"(lambda v: jax.jacrev({f})(v) @ v)", f"(lambda v: jax.jacfwd({f})(v) @ v)",
        f"(lambda v: jax.hessian(lambda w: {f}(w).sum())(v) @ v)",
        f"(lambda v: lax.map(lambda s: {f}(v * s).mean(), v, batch_size=2))",
        f"(lambda v: lax.associative_scan(lambda p, q: p * 0.5 + q, {f}(v)))",
        f"(lambda v: jax.custom_vjp(lambda w: {f}(w)).__wrapped__(v) if 0 else {f}({h}(v)))",
        f"(lambda v: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, {f}(c[1])), (0, lax.stop_gradient(v)))[1] + v)",
        f"(lambda v: jax.jit(lambda w, k: {f}(w) * k, static_argnums=1)(v, 2))",
        f"(lambda v: jax.remat(lambda w, b: {f}(w) if b else w, static_argnums=(1,))(v, True))",
        f"(lambda v: jnp.vectorize({f}, signature='(n)->(n)')(jnp.stack([v, v * 0.5]))[1])",
        f"(lambda v: jax.vmap({f}, axis_size=2, in_axes=None, out_axes=1)(v)[:, 1])",
        f"(lambda v: jax.vmap({f}, 1, 1)(jnp.stack([v, v * 2], 1)).sum(1))",
    )  # fmt: skip


@family
def nests(g: Draw) -> Case:
    x = g.arr((3,), g.choice("float32", "float64" if g.x64 else "float32"))
    return case(g, f"{unary(g, g.int(1, 3))}({x})")


@family
def nests_again(g: Draw) -> Case:
    x = g.arr((2, 3), "float32")
    f = unary(g, 2)
    how = g.choice("jax.vmap({f})({x})", "jax.jit(jax.vmap(jax.jit({f})))({x})",
                   "jax.vmap(jax.vmap({f}, in_axes=None, axis_size=2))({x})",
                   "lax.map({f}, {x})", "lax.scan(lambda c, v: (c + 1, {f}(v)), 0, {x})",
                   "jax.vmap(jax.grad(lambda v: {f}(v).sum()))({x})",
                   "jax.vmap(jax.hessian(lambda v: {f}(v).sum()))({x})",
                   "jax.vmap({f}, out_axes=-1)({x})", "jax.vmap({f}, spmd_axis_name='d')({x})")
    return case(g, how.format(f=f, x=x))


@family
def axes(g: Draw) -> Case:
    x, y = g.arr((2, 3), "float32"), g.arr((3, 2), "float32")
    n = g.arr((2,), "int32")
    return case(g, g.choice(
        f"jax.vmap(lambda t: (t['a'] * t['b'][0], t['b'][1]), in_axes=({{'a': 0, 'b': (1, None)}},), out_axes=(0, None))({{'a': {x}, 'b': ({y}, 3.0)}})",
        f"jax.vmap(lambda p, k: Pair(p.x * k, p.y), in_axes=(Pair(0, None), 0), out_axes=Pair(1, None))(Pair({x}, {y}), {n})",
        f"jax.vmap(lambda r: Record(r.u.sum(), r.v), in_axes=(Record(0, -1),), out_axes=0)(Record({x}, {y}))",
        f"jax.vmap(lambda v, w: v @ w, in_axes=(0, -1), out_axes=-1)({x}, {y})",
        f"jax.vmap(lambda v: (v, None, {{}}), out_axes=(1, None, 0))({x})",
        f"jax.vmap(lambda v, *, w: v * w.sum(), in_axes=1)({x}, w={y})",
        f"jax.vmap(jax.vmap(lambda v, k: v * k, (0, None)), (0, 0))({x}, {n})",
        f"jax.vmap(jax.vmap(lambda v, w: v + w, (None, 0)), (0, None))({x}, {y})",
        f"jax.vmap(lambda v, k: lax.dynamic_index_in_dim(v, k, 0, False))({x}, {n})",
        f"jax.vmap(lambda v, k: lax.dynamic_update_slice(v, v[:1] * 2, (k,)))({x}, {n})",
        f"jax.vmap(lambda v, k: v.at[k].add(1., mode='drop'))({x}, {n})",
        f"jax.vmap(lambda v, k: lax.dynamic_slice(v, (k,), (2,)), in_axes=(None, 0))({x}[0], {n})",
        f"jax.vmap(lambda v: jnp.nonzero(v > 0, size=2, fill_value=9))({x})",
        f"jax.vmap(lambda v, k: jnp.where(k > 1, v, lax.sort(v)), in_axes=(1, None))({x}, {n}[0])",
        f"jax.vmap(lambda v, w: lax.conv_general_dilated(v[None, None], w[None, None], (1,), 'SAME'), (0, None))({x}, {y}[:, 0])",
        f"jax.vmap(lambda k: random.normal(k, (2,)))(random.split(random.key(0), 3))",
        f"jax.vmap(lambda v: v, axis_size=3)({x})", f"jax.vmap(lambda v: v, in_axes=(0, 1))({x})",
        f"jax.vmap(lambda v: v, in_axes=3)({x})", f"jax.vmap(lambda v, w: v)({x}, {y})",
        f"jax.vmap(lambda v: v, out_axes=None)({x})",
    ))  # fmt: skip


@family
def collectives(g: Draw) -> Case:
    x = g.arr((4, 3), g.choice("float32", "int32"))
    groups = ""
    body = g.choice(
        f"lax.psum(v, 'i'{groups})", f"lax.pmean(v, 'i'{groups})", f"lax.pmax(v, 'i')", "lax.pmin(v, 'i')",
        f"lax.all_gather(v, 'i'{groups})", "lax.all_gather(v, 'i', axis=1)", "lax.all_gather(v, 'i', tiled=True)",
        "lax.ppermute(v, 'i', [(0, 1), (1, 2), (2, 0), (3, 3)])", "lax.pshuffle(v, 'i', [2, 0, 3, 1])",
        "lax.psum_scatter(jnp.tile(v[:, None], (1, 4)), 'i', scatter_dimension=1)",
        "lax.psum_scatter(jnp.tile(v, 4), 'i', tiled=True)", "lax.axis_index('i') * v",
        "lax.all_to_all(jnp.tile(v[:, None], (1, 4)), 'i', 1, 0)",
        "lax.all_to_all(jnp.tile(v[:, None], (1, 4)), 'i', 1, 0, tiled=True)", "lax.psum(1, 'i') * v",
        "lax.psum((v, {'k': 2.0, 'n': None}), 'i')", "lax.axis_size('i') * v", "lax.pcast(v, 'i', to='varying') if 0 else v",
        "lax.cond(lax.axis_index('i') > 1, lambda: v, lambda: v * 2)", "lax.psum(v * lax.axis_index('i'), ('i',))",
        "lax.scan(lambda c, s: (lax.psum(c, 'i') * 0.25 + s, lax.axis_index('i')), v[0] * 1.0, v * 1.0)",
        "lax.fori_loop(0, lax.axis_index('i'), lambda k, c: c + lax.axis_index('i'), v)",
        "jax.vmap(lambda s: lax.psum(s, ('i', 'j')), axis_name='j')(v)", "lax.pargmax(v, 'i') if 0 else v",
        "jax.grad(lambda w: (lax.psum(w, 'i') ** 2).sum())(v * 1.0)", "lax.pmean(v, 'k')",
        "jax.jit(lambda w: lax.pmean(w, 'i'))(v)", "jax.checkpoint(lambda w: lax.psum(jnp.sin(w), 'i'))(v)",
    )  # fmt: skip
    out = g.choice("", ", out_axes=1", "")
    return case(g, f"jax.vmap(lambda v: {body}, axis_name='i'{out})({x})", slopes="float" in
                str(g.arrays[0].dtype))


@family
def loops(g: Draw) -> Case:
    x = g.arr((3,), "float32")
    n = g.arr((3,), "int32")
    k = g.given(g.np.integers(0, 5, ()).astype("int32"))
    body = g.choice(
        f"lax.while_loop(lambda c: c[0] < {k}, lambda c: (c[0] + 1, jnp.sin(c[1]) + c[0]), (0, {x}))",
        f"lax.while_loop(lambda c: (c < 4).any(), lambda c: c + 1, {n})",
        f"lax.while_loop(lambda c: c[1].sum() < 20, lambda c: (c[0] + 1, jnp.abs(c[1]) * 1.5 + 0.1), (jnp.int8(0), {x}))",
        f"lax.while_loop(lambda c: c < {k}, lambda c: lax.while_loop(lambda d: d % 3 != 0, lambda d: d + 1, c + 1), 0)",
        f"lax.fori_loop(0, {k}, lambda i, c: c.at[i % 3].multiply(i), {x})",
        f"lax.fori_loop({k}, 0, lambda i, c: c + 1, {x})", f"lax.fori_loop(jnp.int8(0), jnp.int8(3), lambda i, c: c + i, 0)",
        f"lax.fori_loop(0, 3, lambda i, c: c * 1.1 + i, {x}, unroll={g.choice(2, True, 3)})",
        f"lax.scan(counted, ({k}, {x}[0]), {x})", f"lax.scan(counted, (0, 0.5), {x}, unroll={g.int(1, 4)})",
        f"lax.scan(cell, 0.1, {x}, reverse={g.chance(0.5)})", f"lax.scan(lambda c, _: (c * 0.9, c), {x}, None, length={g.int(0, 3)})",
        f"lax.scan(lambda c, s: (c, (s[0] * s[1]['k'], None)), None, ({x}, {{'k': {n}}}))",
        f"lax.scan(lambda c, s: (c + s, s), jnp.zeros(()), {x}, _split_transpose=True)",
        f"lax.scan(lambda c, s: (Pair(c.y, c.x + s), Record(c.x, s)), Pair(0., 1.), {x})",
        f"lax.scan(lambda c, s: (lax.cond(s > 0, lambda z: z * s, lambda z: z - 1, c), c), 1., {x})",
        f"lax.scan(lambda c, s: (c | (s > 0), ~c), False, {x})", f"lax.scan(lambda c, s: (c + s, c), 0, {n})",
        f"lax.scan(lambda c, s: (c + s, c), 0, {x})", f"lax.scan(lambda c, s: (c, c), jnp.int32(1), {x}[:0])",
        f"lax.while_loop(lambda c: c < 3, lambda c: c + 1.5, 0)", f"lax.while_loop(lambda c: c, lambda c: c, {x})",
        f"lax.fori_loop(0, 3, lambda i, c: (c[0], c[1] + i), ({x}, 0.0))", f"lax.fori_loop(0., 3., lambda i, c: c, 1)",
        f"lax.cond({k} > 2, lambda: (1, 2.0), lambda: (2, 3.0))", f"lax.cond({k} > 2, lambda: 1, lambda: 2.0)",
        f"lax.cond({k} > 2, lambda v: v, lambda v: v * 2, {x})", f"lax.cond({k} > 2, lambda: {x}, lambda: {x}[0])",
        f"lax.cond(True, lambda v: v.sum(), lambda v: v.max(), {x})", f"lax.cond({x}, lambda: 1, lambda: 2)",
        f"lax.switch({k}, [lambda v, i=i: v * i for i in range({g.int(1, 12)})], {x})", f"lax.switch(1.5, [jnp.sin], {x})",
        f"lax.switch({k} - 2, [jnp.sin, jnp.cos, jnp.tanh], {x})", f"lax.select_n({n} % 2 == 0, {x}, -{x})",
        f"lax.platform_dependent({x}, cpu=jnp.sin, default=jnp.cos)", f"lax.cond(jnp.array({k} > 2), jnp.sin, jnp.cos, operand={x})",
        f"lax.reduce_precision({x}, {g.int(2, 8)}, {g.int(1, 23)})", f"lax.map(lambda s: (s, {{'a': s + 1}}), ({x}))",
        f"lax.map(lambda t: t[0] * t[1], ({x}, {n}), batch_size={g.int(1, 4)})", f"lax.scan(lambda c, s: (s, c), {x}[0], {n})",
        f"lax.custom_root(lambda z: z ** 3 - {x}, jnp.ones(3), lambda f, z: lax.fori_loop(0, 30, lambda i, w: w - f(w) / (3 * w ** 2 + 1e-3), z), lambda f, y: y / jax.vmap(lambda i: f(jnp.eye(3)[i])[i])(jnp.arange(3)))",
        f"lax.custom_linear_solve(lambda v: v * 3, {x}, lambda f, b: b / 3, symmetric=True)",
        f"lax.while_loop(lambda c: jnp.all(c[0] < 3), lambda c: (c[0] + 1, c[1] * c[1]), ({n} * 0, {x}))",
    )  # fmt: skip
    return case(g, body, slopes="while" not in body and "root" not in body)


@family
def gradients(g: Draw) -> Case:
    x, y = g.arr((3,), "float32"), g.arr((3,), g.choice("float32", "int32", "bool"))
    z = g.arr((3,), "complex64")
    text = g.choice(
        f"jax.grad(lambda v, w: (v * w).sum(), allow_int=True, argnums=(0, 1))({x}, {y})[0]",
        f"jax.grad(lambda v: (v['a'] * v['b'][0]).sum())({{'a': {x}, 'b': ({x}, None)}})",
        f"jax.value_and_grad(lambda v, w: ((v * w).sum(), {{'aux': w}}), has_aux=True)({x}, {y})",
        f"jax.vjp(lambda v, w: v * w, {x}, {y})[1]({x})[0]", f"jax.vjp(lambda v: (v, {y}), {x}, has_aux=True)[2]",
        f"jax.jvp(lambda v, w: v * w, ({x}, {y}), ({x}, jnp.zeros(3, {y}.dtype) if {y}.dtype == 'float32' else np.zeros(3, jax.dtypes.float0)))",
        f"jax.jvp(lambda v: (v, 3), ({x},), ({x},))[0]", f"jax.jvp(lambda v: (v * 2, {y}), ({x},), ({x},), has_aux=True)",
        f"jax.grad(lambda v: (v.real ** 2 - v.imag).sum())({z})", f"jax.grad(lambda v: (v ** 2).sum(), holomorphic=True)({z})",
        f"jax.grad(lambda v: (v ** 2).sum())({y})", f"jax.grad(lambda v: v)({x})", f"jax.grad(lambda v: v.sum().astype('int32'))({x})",
        f"jax.jacrev(lambda v: {{'p': v * 2, 'q': v.sum()}}, argnums=0)({x})", f"jax.jacfwd(lambda v, w: v * w, argnums=(0,))({x}, {y})",
        f"jax.jacrev(lambda v: (v ** 2, v), has_aux=True)({x})", f"jax.hessian(lambda v: (v ** 3).sum() * v[0])({x})",
        f"jax.hessian(lambda v: lax.scan(counted, (0, v[0]), v)[0][1])({x})", f"jax.jacrev(jax.jacrev(lambda v: jnp.sin(v)))({x})",
        f"jax.hessian(lambda t: (t['a'] * t['b']).sum())({{'a': {x}, 'b': {x}}})", f"jax.jacfwd(lambda v: v * {z}, holomorphic=True)({z})",
        f"jax.linear_transpose(lambda v: (v * 2, v[::-1]), {x})(({x}, {x}))", f"jax.linear_transpose(lambda v: lax.scan(lambda c, s: (c + s, c * 2), 0., v)[1], {x})({x})",
        f"jax.linear_transpose(lambda v: jnp.sin(v), {x})({x})", f"jax.linearize(lambda v, w: v * w, {x}, {x})[1]({x}, {x})",
        f"jax.vjp(lambda v: jnp.where({y}.astype(bool), v, 0.), {x})[1]({x})", f"jax.grad(lambda v: powered(3, v, 'once', v).sum(), 0)({x})",
        f"jax.jvp(lambda v: powered(3, v, 'once', v), ({x},), ({x},))", f"jax.grad(lambda v: of_tree((v, {{'p': v, 'n': 2}}))['s'].sum())({x})",
        f"jax.jacfwd(lambda v: powered(2, v, 'once', v))({x})", f"jax.grad(lambda v: lax.scan(lambda c, s: (powered(2, c, 'twice', s), scaled(s, jnp.sin)), 1., v)[1].sum())({x})",
        f"jax.vmap(jax.grad(lambda s, w: lax.cond(s > 0, lambda: s * w.sum(), lambda: s ** 2)), (0, None))({x}, {x})",
        f"jax.vmap(lambda s: jax.vjp(lambda v: powered(2, v, 'twice', s), {x})[1]({x}))({x})", f"jax.grad(lambda v: jnp.linalg.norm(v * 0))({x})",
        f"jax.grad(lambda v: jnp.sum(jnp.abs(v * 0)))({x})", f"jax.grad(lambda v: jnp.max(v * 0))({x})", f"jax.grad(lambda v: jnp.sort(v * 0).prod())({x})",
        f"jax.grad(lambda v: jnp.prod(v * jnp.array([1., 0., 0.])))({x})", f"jax.grad(lambda v: jnp.var(v * 0) ** 0.5)({x})",
        f"jax.grad(lambda v: jnp.power(v * 0, 2.).sum())({x})", f"jax.grad(lambda v: jnp.power(jnp.abs(v) * 0, v).sum())({x})",
        f"jax.grad(lambda v: (0. * v ** 0).sum())({x})", f"jax.grad(lambda v: jnp.clip(v * 0 + 1, -1, 1).sum())({x})", f"jax.grad(lambda v: jnp.maximum(v, v).sum())({x})",
        f"jax.grad(lambda v: jnp.arctan2(v * 0, v * 0).sum())({x})", f"jax.grad(lambda v: nn.relu(v * 0).sum())({x})", f"jax.grad(lambda v: jnp.hypot(v * 0, 0.).sum())({x})",
        f"jax.grad(lambda v: jnp.logaddexp(v * 0 - jnp.inf, v - jnp.inf).sum())({x})", f"jax.grad(lambda v: jnp.cumprod(v * jnp.array([1., 0., 1.])).sum())({x})",
        f"jax.grad(lambda v: jnp.median(v * 0))({x})", f"jax.grad(lambda v: nn.logsumexp(v - jnp.inf))({x})", f"jax.grad(lambda v: jnp.sinc(v * 0).sum())({x})",
        f"jax.grad(lambda v: jnp.nanmax(jnp.where({y}.astype(bool), v, jnp.nan)))({x})", f"jax.grad(lambda v: jnp.sum(v, where={y}.astype(bool)))({x})",
        f"jax.grad(lambda v: jnp.quantile(v * 0, 0.4))({x})", f"jax.grad(lambda v: jnp.std(v, where={y}.astype(bool)))({x})", f"jax.grad(lambda v: jnp.unwrap(v * 9).sum())({x})",
        f"jax.fwd_and_bwd(lambda v: v * v, argnums=0)[0]({x})[0]", f"jax.closure_convert(lambda v: v * {x}, {x})[0]({x}, *jax.closure_convert(lambda v: v * {x}, {x})[1])",
    )  # fmt: skip
    return case(g, text, runs=("jit", "jit", "vmap"))


@family
def compiled(g: Draw) -> Case:
    x, n = g.arr((3,), "float32"), g.arr((3,), "int32")
    w = g.choice("2.0", "2", "True", "np.float32(2)", "np.int16(3)", "jnp.array(2)", "1j", "None")
    text = g.choice(
        f"jax.jit(lambda v, w: v if w is None else v * w)({x}, {w})", f"jax.jit(lambda v, w=2.0: v * w)({x})",
        f"jax.jit(lambda v, *, k=3: v * k, static_argnames='k')({x}, k={g.int(1, 3)})", f"jax.jit(lambda v, k=3: v * k, static_argnames=('k',))({x}, {g.int(1, 3)})",
        f"jax.jit(lambda v, k, *r: v * k + sum(r), static_argnums=(1,))({x}, 2, {x}, 1.0)", f"jax.jit(lambda w: w)({w})",
        f"jax.jit(lambda v: (v, v, v[0]), donate_argnums=0)({x} + 0)", f"jax.jit(lambda v, u: (u, v), donate_argnums=(0, 1))({x} + 0, {n} + 1)",
        f"jax.jit(lambda v: jax.jit(lambda u: u * 2, donate_argnums=0)(v) + v)({x})", f"jax.jit(lambda t: t)({{'b': {x}, 'a': None, 'c': ()}})",
        f"jax.jit(lambda t: Record(t.u, t.v * 2, t.tag + 'x'))(Record({x}, {n}, 'q')).tag", f"jax.jit(lambda p: Pair(p.y, p.x))(Pair({x}, {w}))",
        f"inner({x}, flag=True)", f"jax.jit(inner, static_argnames='flag')({x}, flag=False)", f"jax.eval_shape(lambda v: (v * {w if w != 'None' else 1}, v.sum()), {x})[0].dtype",
        f"jax.eval_shape(lambda v: v * 2.0, {n}).dtype", f"str(jax.eval_shape(lambda v: jnp.sum(v), {n}))", f"str(jax.make_jaxpr(lambda v: v * 2)({x}).out_avals)",
        f"str(jax.make_jaxpr(lambda v, w: (v * 2, w * 1.0))({n}, 3).out_avals)", f"jax.jit(lambda v: v * 1.0)({n})", f"jax.jit(lambda a, b: a + b)(1, 2.0)",
        f"jax.jit(lambda a: a.at[0].set(5))({n})", f"(lambda y: (y.at[0].set(9), y))({x} * 1)", f"(lambda y: (y[1:].at[0].add(1), y[::-1], y))({x} * 1)",
        f"jax.jit(lambda y: (y.at[1:].set(y[:-1]), y))({x})", f"jax.jit(lambda y: y.at[0].set(y[2]).at[2].set(y[0]))({x})",
        f"jax.jit(lambda y: lax.fori_loop(0, 3, lambda i, c: (c[1], c[0].at[i].set(c[1][i])), (y, y * 2)))({x})",
        f"lax.fori_loop(0, 3, lambda i, c: c.at[i].set(c[(i + 1) % 3]), {x})", f"lax.scan(lambda c, i: (c.at[i].set(c.sum()), c), {x}, jnp.arange(3))",
        f"jax.jit(lambda y: [y.at[i].set(0.) for i in range(3)])({x})", f"jax.jit(lambda y: (lambda z: (z, z.at[0].set(1.), z + 1))(jnp.sin(y)))({x})",
        f"jax.jit(lambda y: jnp.stack([y[::-1], y, y.at[::2].multiply(3)]))({x})", f"jax.jit(lambda v: lax.optimization_barrier((v, v * 2)))({x})",
        f"jax.jit(lambda v: v, inline=True)({x})", f"jax.jit(lambda v: v, keep_unused=True)({x})", f"jax.jit(lambda v, u: v)({x}, u={n})", f"jax.jit(lambda v: v)({x}, {n})",
        f"jax.jit(lambda v: v if v.sum() > 0 else -v)({x})", f"jax.jit(lambda v: float(v[0]))({x})", f"jax.jit(lambda v: np.asarray(v))({x})", f"jax.jit(lambda v: jnp.zeros(v[0]))({n})",
        f"jax.jit(lambda v: range(v[0]))({n})", f"jax.jit(lambda k: k, static_argnums=0)([1])", f"jax.jit(lambda v: v.tolist())({x})", f"jax.jit(lambda v: 'a')({x})",
        f"jax.jit(lambda v: {{v: 1}})({x})", f"jax.jit(lambda v: v)('a')", f"jax.jit(lambda v: jnp.array([v[0], 2, v[1]]))({n})", f"jax.jit(lambda v: jnp.array([[v[0], True], [1.5, 2]]))({n})",
        f"jax.jit(lambda v: v.astype('int8') // 0)({n})", f"jax.jit(lambda v: (v // 0, v % 0, lax.div(v, v * 0), lax.rem(v, v * 0)))({n})", f"jax.jit(lambda v: (v / 0, v // 0.0, v % 0.0, jnp.fmod(v, 0.)))({x})",
        f"jax.jit(lambda v: (-v // 2, -v % 3, v >> 1, v << 33, abs(v), -v))(({n} - 5).astype('{g.choice('int8', 'int32', 'int16')}'))", f"jax.jit(lambda v: divmod(v - 3, 2))({x})",
        f"jax.jit(lambda v: (v ** 2, v ** -1, v ** 0.5, 2 ** v, 2.0 ** v))({x})", f"jax.jit(lambda v: (v ** 2, 2 ** v, v ** 3.0))(abs({n}))", f"jax.jit(lambda v: v ** -1)({n})",
    )  # fmt: skip
    found = case(g, text, runs=("jit",) if "lambda y" in text else (), slopes=False)
    return found


@family
def effects(g: Draw) -> Case:
    x = g.arr((3,), "float32")
    method = g.choice("sequential", "expand_dims", "broadcast_all", "legacy_vectorized")
    call = f"jax.pure_callback(lambda v: np.sin(v), jax.ShapeDtypeStruct(SH, 'float32'), V, vmap_method='{method}')"
    of = lambda v, shape: call.replace("V,", f"{v},").replace("SH", shape)
    text = g.choice(
        of(x, "(3,)"), f"jax.vmap(lambda s: {of('s', '()')})({x})", f"lax.scan(lambda c, s: (c + {of('s', '()')}, c), 0., {x})",
        f"jax.jit(jax.vmap(lambda s: {of('s', '()')} * 2))({x})", f"jax.vmap(lambda s: lax.scan(lambda c, t: (c + {of('t', '()')}, c), s, {x}))({x})",
        f"(lambda log: (lax.fori_loop(0, 3, lambda i, c: (jax.experimental.io_callback(lambda k: log.append(int(k)), None, i, ordered=True), c + 1)[1], 0), jax.effects_barrier(), list(log)))([])[2]",
        f"(lambda log: (jax.jit(lambda v: lax.scan(lambda c, s: (c + jax.experimental.io_callback(lambda k: (log.append(float(k)), k)[1], jax.ShapeDtypeStruct((), 'float32'), s, ordered=True), c), 0., v))({x}), jax.effects_barrier(), list(log)))([])",
        f"(lambda log: (jax.jit(lambda v: lax.cond(v[0] > 0, lambda: (jax.debug.callback(lambda k: log.append(1), v[0]), 1)[1], lambda: (jax.debug.callback(lambda k: log.append(2), v[0]), 2)[1]))({x}), jax.effects_barrier(), list(log)))([])",
        f"(lambda log: (jax.grad(lambda v: (jax.debug.callback(lambda k: log.append(k.shape), v), (v * v).sum())[1])({x}), jax.effects_barrier(), log))([])[2]",
        f"(lambda log: (jax.vmap(lambda s: (jax.debug.callback(lambda k: log.append(float(k)), s), s)[1])({x}), jax.effects_barrier(), sorted(log)))([])[2]",
        f"(lambda log: (jax.vmap(lambda s: jax.experimental.io_callback(lambda k: k, s, s, ordered=True))({x})))([])",
        f"(lambda log: (jax.grad(lambda v: lax.scan(jax.checkpoint(lambda c, s: (jax.debug.callback(lambda k: log.append(1), s), (c * s, c))[1]), 1., v)[0])({x}), jax.effects_barrier(), len(log)))([])[2]",
        f"jax.grad(lambda v: {of('v', '(3,)')}.sum())({x})", f"jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct((2,), 'float32'), {x})",
    )  # fmt: skip
    found = case(g, text, slopes=False, runs=())
    return found


@family
def trees(g: Draw) -> Case:
    x, y = g.arr((2,), "float32"), g.arr((3,), "int32")
    tree = g.choice(f"{{'b': {x}, 'a': [{y}, None]}}", f"Pair({x}, ({y},))", f"Record({x}, {y})", f"({x}, {{}}, [])",
                    f"{{2: {x}, 1: {y}}}", f"[Pair(None, {x}), Record({y}, 1.5)]", "None", f"{x}", "(1, 'a', 2.0)")
    text = g.choice(
        f"jax.tree.map(lambda v: v, {tree}, is_leaf=lambda v: v is None)", f"jax.tree.leaves({tree})", f"str(jax.tree.structure({tree}))",
        f"[jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_leaves_with_path({tree})]", f"jax.tree.reduce(lambda p, q: p + 1, {tree}, 0)",
        f"jax.tree_util.tree_map_with_path(lambda p, v: jax.tree_util.keystr(p, simple=True, separator='/'), {tree})", f"jax.tree.all({tree})",
        f"jax.tree.transpose(jax.tree.structure([0, 0]), jax.tree.structure(Pair(0, 0)), [Pair({x}, 1), Pair(2, {y})])", f"jax.tree.map(jnp.add, {tree}, {tree})",
        f"jax.tree.map(lambda p, q: q, Pair(1, 2), {tree})", f"jax.tree.map(lambda p, q: p, {tree}, None)", f"jax.flatten_util.ravel_pytree(({x}, {{'n': {y}, 'e': ()}}))[0]",
        f"jax.flatten_util.ravel_pytree(({x}, {{'n': {y}, 'e': ()}}))[1](jnp.arange(5.))", f"jax.tree.flatten({tree})[1].num_leaves", f"jax.tree_util.tree_flatten_one_level({tree})[0] if 0 else 1",
        f"jax.tree.unflatten(jax.tree.structure({tree}), range(9))", f"jax.tree_util.tree_broadcast(Pair(1, 2), {tree}) if 0 else 2", f"jax.tree.map(lambda v: None, {tree})",
        f"str(jax.tree.structure({tree}, is_leaf=lambda v: isinstance(v, list)))", f"str(jax.tree_util.tree_flatten_with_path({tree})[0])[:20]", f"jax.tree.leaves({tree}, is_leaf=lambda v: isinstance(v, dict))",
        f"jax.jit(lambda t: jax.tree.map(lambda v: v * 2, t))({tree})", f"jax.vmap(lambda t: t)({tree})", f"lax.scan(lambda c, s: (c, s), 0, {tree}, length=2)", f"jax.grad(lambda t: sum(v.sum() for v in jax.tree.leaves(t) if v.dtype == 'float32'), allow_int=True)({tree})",
    )  # fmt: skip
    return case(g, text, slopes=False, runs=())


@family
def batching_rules(g: Draw) -> Case:
    x, y = g.arr((3,), "float32"), g.arr((3, 2), "float32")
    setup = '''
cb = jax.custom_batching
@cb.custom_vmap
def rule(x, y):
    return x * y
@rule.def_vmap
def _(size, batched, x, y):
    return (x * y * 2 + size, batched[0] or batched[1])
seq = cb.sequential_vmap(lambda x: jnp.sin(x) * 2)
@jax.custom_vjp
def marked(x, y):
    return x * y
marked.defvjp(lambda x, y: (x.value * y.value, (x.perturbed, y.perturbed, x.value, y.value)),
              lambda r, ct: (ct * r[3] if r[0] else None, ct * r[2] if r[1] else None), symbolic_zeros=True)
@jax.custom_jvp
def symbolic(x, y):
    return x * y
def _rule(primals, tangents):
    x, y = primals
    dx, dy = tangents
    zero = lambda t: type(t).__name__ == "SymbolicZero"
    out = 0. if zero(dx) else dx * y
    return x * y, (out if zero(dy) else out + 10 * x * dy) + jnp.zeros_like(x * y)
symbolic.defjvp(_rule, symbolic_zeros=True)
'''
    text = g.choice(f"jax.vmap(rule, (0, None))({x}, 2.0)", f"jax.vmap(rule)({x}, {x})", f"jax.vmap(jax.vmap(rule, (0, None)), (0, None))({y}, 1.5)",
                    f"rule({x}, {x})", f"jax.jit(jax.vmap(rule, (0, None)))({x}, {x}[0])", f"jax.vmap(seq)({x})", f"jax.vmap(lambda v: lax.scan(lambda c, s: (rule(c, s), c), 1., v))({y})",
                    f"jax.grad(lambda v: marked(v, {x}).sum())({x})", f"jax.grad(lambda v: marked({x}, v).sum())({x})", f"jax.vmap(jax.grad(marked), (0, None))({x}, 2.)",
                    f"jax.jvp(lambda v: symbolic(v, {x}), ({x},), ({x},))", f"jax.grad(lambda v: symbolic({x}, v).sum())({x})", f"jax.grad(lambda v: symbolic(v, v).sum())({x})",
                    f"jax.vmap(lambda v: jax.jvp(lambda u: symbolic(u, 2.), (v,), (v,)))({x})", f"jax.jit(jax.grad(lambda v: lax.scan(lambda c, s: (symbolic(c, s), c), 1., v)[0]))({x})",
                    f"jax.grad(lambda v: lax.scan(lambda c, s: (marked(c, s), c), 1., v)[0])({x})", f"jax.vmap(jax.jit(lambda v: rule(v, v)))({x})")  # fmt: skip
    found = case(g, text, slopes=False, runs=("jit",))
    found.setup += setup
    return found


@family
def many_devices(g: Draw) -> Case:
    x = g.arr((1, 3), "float32")
    text = g.choice(f"jax.pmap(lambda v: lax.psum(v, 'i'), axis_name='i')({x})", f"jax.jit(lambda v: jax.pmap(jnp.sin)(v))({x})", f"jax.pmap(lambda v, w: v * w, in_axes=(0, None))({x}, 2.0)",
                    f"jax.pmap(lambda v: (v, v.sum()), out_axes=(0, None))({x})", f"jax.grad(lambda v: jax.pmap(jnp.sin)(v).sum())({x})", f"jax.vmap(jax.pmap(jnp.sin), 1)({x})",
                    f"jax.pmap(lambda v, k: v * k, static_broadcasted_argnums=1)({x}, 3)", f"jax.pmap(lambda v: v)({x}[0])", f"jax.pmap(lambda v: lax.all_gather(v, 'i'), axis_name='i')({x})",
                    f"jax.pmap(jax.value_and_grad(lambda v: (v ** 2).sum()))({x})", f"jax.lax.scan(lambda c, s: (c, jax.pmap(jnp.sin)(s)), 0, {x}[None])")  # fmt: skip
    return case(g, text, slopes=False, runs=())
