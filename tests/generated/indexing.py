"""Gathers, scatters, slices, sorts, decompositions and Fourier transforms of generated programs.

Indices repeat and go out of range, in every mode. Where repeated indices write, what they write is
the same or is added, so that the order of writes does not matter. Matrices are well conditioned,
and of eigenvectors and bases only what their signs do not change is used.
"""

from __future__ import annotations

from typing import Any

from tests.generated.leaves import register


def gather(g: Any) -> Any:
    x = g.some_float(1, 2)
    shape = g.shape(x)
    axis = g.rng.randrange(len(shape))
    if not g.size(shape[axis]):
        return False
    n = g.some_int(g.choice((0, 1, 1)) if len(shape) == 2 else g.choice((0, 1, 2)))
    mode = g.choice(("clip", "wrap", "fill"))
    fill = ", fill_value=2" if mode == "fill" else ""
    text = f"jnp.take({{0}}, {{1}}, axis={axis}, mode='{mode}'{fill})"
    if axis == 0 and g.chance(0.5):
        mode = g.choice(("clip", "fill", "drop", "promise_in_bounds"))
        fill = ", fill_value=-1" if mode in ("fill", "drop") else ""
        text = f"{{0}}.at[{{1}}].get(mode='{mode}'{fill})"
        if mode == "promise_in_bounds":
            text = f"{{0}}.at[{{1}} % {shape[0]}].get(mode='{mode}')"
        elif g.chance(0.3):
            text = "{0}[{1}]"
            g.smooth = False  # clamped where it reads, dropped in the derivative, as in JAX
    g.add("gather", text, [x, n], shape[:axis] + g.shape(n) + shape[axis + 1:], g.dtype)


def scatter(g: Any) -> Any:
    x = g.some_float(1, 2)
    shape = g.shape(x)
    n = g.some_int(g.choice((0, 1, 1)))
    mode = g.choice(("drop", "clip", "fill", "promise_in_bounds", None))
    at = "{1}"
    if mode == "clip" and not g.size(shape[0]):
        return False
    if mode == "promise_in_bounds":
        at = f"{{1}} % max({shape[0]}, 1)"
        if not g.size(shape[0]):
            return False
    how = f", mode='{mode}'" if mode else ""
    names = ["add", "add", "set", "subtract"]
    if not (g.derived or g.forward):
        names += ["min", "max"] + (["multiply"] if g.regime == "smooth" else [])
    name = g.choice(names)
    rest = g.tuple(g.shape(n) + shape[1:])
    if name == "set" or g.chance(0.3):
        u = g.add("sum", g.bound("jnp.sum({0})"), [g.some_float()], (), g.dtype)
        value = "{2}"
    else:
        u = g.some_float(0, 0) if g.chance(0.3) else x
        value = f"jnp.broadcast_to({{2}}[0], {rest})" if u == x and g.size(shape[0]) else "{2}"
        if u == x and not g.size(shape[0]):
            return False
    text = f"{{0}}.at[{at}].{name}({value}{how})"
    g.add("scatter", text if name in ("set", "min", "max") else g.bound(text), [x, n, u], shape,
          g.dtype)


def scatter_apart(g: Any) -> Any:
    """Rows set at indices that differ, in an order that integers decide."""
    x = g.some_float(1, 2)
    y = g.pick(lambda s, t: (s, t) == g.types[x])
    n = g.some_int(0)
    size = g.shape(x)[0]
    if not g.size(size):
        return False
    order = f"(jnp.arange({size}, dtype='int32') + {{2}}) % {size}"
    text = f"{{0}}.at[{order}].set({{1}}, unique_indices=True)"
    if g.chance(0.4):
        text = f"{{0}}.at[{order} + {g.choice((0, 1))}].set({{1}}, mode='drop')"
    g.add("scatter", text, [x, y, n], g.shape(x), g.dtype)


def along(g: Any) -> Any:
    x = g.some_float(1, 2)
    shape = g.shape(x)
    axis = g.rng.randrange(len(shape))
    if not g.elements(x):
        return False
    index = f"(jnp.arange({'*'.join(shape)}, dtype='int32').reshape({g.tuple(shape)}) * 3 + {{1}})"
    index += f" % {shape[axis]}"
    g.add("along", f"jnp.take_along_axis({{0}}, {index}, axis={axis})", [x, g.some_int(0)], shape,
          g.dtype)


def window(g: Any) -> Any:
    """A slice or an update at a place that integers decide, beyond the ends too."""
    x = g.some_float(1, 2)
    shape, n = g.shape(x), g.some_int(0)
    if not g.elements(x):
        return False
    sizes = [f"({d}-{d}//2)" if i == 0 else d for i, d in enumerate(shape)]
    starts = ", ".join(["{1}", *["0"] * (len(shape) - 1)])
    if g.chance(0.5):
        g.add("window", f"lax.dynamic_slice({{0}}, ({starts},), {g.tuple(tuple(sizes))})", [x, n],
              tuple(sizes), g.dtype)
        return True
    part = f"lax.slice_in_dim({{2}}, 0, {sizes[0]}, axis=0)"
    y = g.pick(lambda s, t: (s, t) == g.types[x])
    g.add("window", f"lax.dynamic_update_slice({{0}}, {part}, ({starts},))", [x, n, y], shape,
          g.dtype)


def sort(g: Any) -> Any:
    x = g.some_float(1)
    axis = g.rng.randrange(len(g.shape(x)))
    kind = g.choice(("sort", "descending", "pair", "keys", "argsort", "top", "two", "search"))
    if kind == "sort":
        text = f"jnp.sort({{0}}, axis={axis})"
    elif kind == "descending":
        text = f"jnp.sort({{0}}, axis={axis}, descending=True)"
    elif kind in ("pair", "two"):
        all_ = f"jnp.arange({'*'.join(g.shape(x))}, dtype='int32').reshape({g.tuple(g.shape(x))})"
        keys = f"({all_} * 5 + {{1}}) % 7"
        text = f"lax.sort(({keys}, {{0}}), dimension={axis}, num_keys={1 + (kind == 'two')})[1]"
        g.add("sort", text, [x, g.some_int(0)], g.shape(x), g.dtype)
        return True
    elif kind == "keys":
        keys = f"(jnp.arange({g.shape(x)[0]}, dtype='int32') * 7 + {{1}}) % 11"
        g.add("sort", f"{{0}}[jnp.argsort({keys})]", [x, g.some_int(0)], g.shape(x), g.dtype)
        return True
    elif kind == "argsort":
        if g.regime == "smooth":
            return False
        g.add("sort", f"jnp.argsort({{0}}, axis={axis}).astype('int32')", [x], g.shape(x), "int32")
        return True
    elif kind == "top":
        if not g.size(g.shape(x)[-1]) or g.regime == "special":
            return False
        text = "lax.top_k({0}, 1)[0]"
        g.add("sort", text, [x], (*g.shape(x)[:-1], "1"), g.dtype)
        return True
    else:
        n = g.some_int(1)
        text = "jnp.searchsorted(jnp.sort({0}), {0} + 1, side='right').astype('int32')"
        g.add("sort", text, [n], g.shape(n), "int32")
        return True
    g.add("sort", text, [x], g.shape(x), g.dtype)


def decomposition(g: Any) -> Any:
    if g.regime != "smooth":
        return False
    x = g.some_float()
    n = g.choice(("A", "B", "2"))
    if not g.size(n):
        return False
    wide = f"{{0}}.astype('{'float64' if g.dtype == 'float64' else 'float32'}')"
    m = f"matrix({wide}, {n})"
    whole: tuple[str, ...] = (n, n)
    texts: dict[str, tuple[str, ...]] = {
        f"jnp.linalg.cholesky({m})": whole,
        f"jnp.linalg.inv({m})": whole,
        f"jnp.linalg.solve({m}, {m}[:, 0] + 1)": (n,),
        f"jnp.linalg.solve({m}, jnp.cos({m} * 2))": whole,
        f"jnp.linalg.eigvalsh({m})": (n,),
        f"(lambda e: (e[1] * jnp.sin(e[0])) @ e[1].T)(jnp.linalg.eigh({m}))": whole,
        f"(lambda q: jnp.abs(q[1]))(jnp.linalg.qr({m}))": whole,
        f"jnp.linalg.svd({m}, compute_uv=False)": (n,),
        f"(lambda u: (u[0] * jnp.sin(u[1])) @ u[2])(jnp.linalg.svd({m}))": whole,
        f"jnp.linalg.slogdet({m})[1]": (),
        f"jnp.linalg.det({m} * 0.25)": (),
        f"lax.linalg.triangular_solve({m}, {m}, left_side=True, lower=True)": whole,
        f"lax.linalg.lu({m})[0]": whole,
        f"jnp.linalg.matrix_power({m} * 0.1, 3)": whole,
        f"jnp.linalg.pinv({m})": whole,
        f"jnp.linalg.norm({m})": (),
    }
    text = g.choice(list(texts))
    g.add("decomposition", f"jnp.tanh({text}).astype('{g.dtype}')", [x], texts[text], g.dtype)


def fourier(g: Any) -> Any:
    if g.regime != "smooth":
        return False
    x = g.some_float(1)
    n = g.shape(x)[-1]
    if not g.elements(x):
        return False
    wide = f"{{0}}.astype('{'float64' if g.dtype == 'float64' else 'float32'}')"
    text, last = g.choice((
        (f"jnp.fft.fft({wide}).real", n), (f"jnp.fft.ifft({wide}).imag", n),
        (f"jnp.fft.rfft({wide}).imag", f"({n}//2+1)"),
        (f"jnp.fft.irfft(jnp.fft.rfft({wide}) * (1 + 2j), {n})", n),
        (f"jnp.abs(jnp.fft.fft(jnp.exp(1j * {wide})) + 5)", n),
    ))  # fmt: skip
    g.add("fourier", f"jnp.tanh({text}).astype('{g.dtype}')", [x], (*g.shape(x)[:-1], last),
          g.dtype)


for _weight, _call in ((5, gather), (4, scatter), (2, scatter_apart), (2, along), (3, window),
                       (4, sort), (3, decomposition), (1, fourier)):  # fmt: skip
    register(_weight, _call)
