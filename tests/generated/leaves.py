"""Operations on arrays that programs are drawn from.

Each function adds one node to a `Draw`, or returns False where the place has no operands for it.
The regimes differ in their values: smooth ones are bounded and differentiable, exact ones are small
integers in floats, on which no operation rounds, special ones hold NaN, infinities, zeros with a
sign and denormals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SMOOTH = (
    "jnp.sin({0})", "jnp.tanh({0})", "jnp.exp(-{0} * {0})", "{0} / (1.5 + {0} ** 2)",
    "jnp.sqrt(1 + {0} * {0})", "jnp.log1p({0} * {0})", "nn.sigmoid({0})", "nn.softplus({0})",
    "jnp.arctan({0})", "jnp.expm1(jnp.tanh({0}))", "lax.erf({0})", "nn.gelu({0})", "-{0}",
    "jnp.cos({0} * 2)", "lax.rsqrt(1.5 + {0} ** 2)", "bounded({0}) ** 3", "nn.silu({0})",
    "lax.logistic({0})", "jnp.exp2(jnp.sin({0}))", "jnp.sinc({0} + 4)", "lax.stop_gradient({0})",
    "jnp.power(1.5 + {0} * {0}, 1.25)", "lax.lgamma(2 + {0} * {0})", "jnp.arcsinh({0})",
)  # fmt: skip
SMOOTH_TWO = (
    "{0} * 0.5 + {1} * 0.5", "jnp.sin({0}) * {1}", "{0} / (1.5 + {1} * {1})", "{0} - bounded({1})",
    "jnp.arctan2({0}, 1.5 + {1} * {1})", "jnp.logaddexp({0}, {1}) * 0.5",
    "jnp.hypot(1.5 + {0}, {1}) - 1", "(1.5 + {0} * {0}) ** jnp.tanh({1})",
)  # fmt: skip
EXACT = (
    "-{0}", "jnp.abs({0})", "wrap({0} * 3)", "jnp.floor({0} / 2)", "jnp.sign({0})", "nn.relu({0})",
    "jnp.clip({0}, -3, 5)", "wrap({0} * {0})", "jnp.round({0} * 0.5)", "wrap({0} + 7)",
    "jnp.trunc({0} * 0.25)", "jnp.where({0} > 1, {0}, -1)", "jnp.square(jnp.clip({0}, -2, 2))",
    "jnp.sqrt(jnp.square({0}))", "lax.stop_gradient({0})", "jnp.mod({0}, 3)", "{0} % 4",
)  # fmt: skip
EXACT_TWO = (
    "wrap({0} + {1})", "wrap({0} - {1})", "wrap({0} * {1})", "jnp.maximum({0}, {1})",
    "jnp.minimum({0}, {1})", "jnp.where({0} > {1}, {0}, {1})", "jnp.where({0} == {1}, 1, {0})",
    "jnp.copysign({0}, {1})", "jnp.fmod({0}, jnp.abs({1}) + 1)",
)  # fmt: skip
SPECIAL = (
    "jnp.sqrt({0})", "jnp.log({0})", "1 / {0}", "jnp.exp({0})", "jnp.abs({0})", "-{0}", "{0} * 0",
    "jnp.sign({0})", "jnp.floor({0})", "jnp.nan_to_num({0})", "jnp.where(jnp.isnan({0}), 1, {0})",
    "jnp.tanh({0})", "{0} * {0}", "jnp.clip({0}, -1, 1)", "{0} - {0}", "jnp.isfinite({0}) * {0}",
    "jnp.log1p({0})", "jnp.cbrt({0})", "jnp.signbit({0}) * {0}", "{0} * 0.5", "lax.rsqrt({0})",
    "jnp.arctan({0})", "jnp.sin(jnp.where(jnp.abs({0}) < 9, {0}, 0))", "nn.relu({0})", "{0} + 0",
    "jnp.round({0})", "lax.integer_pow({0}, 3)", "jnp.expm1({0})", "nn.sigmoid({0})", "{0} / 3",
)  # fmt: skip
SPECIAL_TWO = (
    "{0} + {1}", "{0} * {1}", "{0} - {1}", "{0} / {1}", "jnp.maximum({0}, {1})",
    "jnp.minimum({0}, {1})", "jnp.where({0} < {1}, {0}, {1})", "jnp.copysign({0}, {1})",
    "jnp.where({0} == {1}, {0}, 1)", "jnp.fmax({0}, {1})", "jnp.fmin({0}, {1})",
    "jnp.arctan2({0}, {1})", "jnp.hypot({0}, {1})", "jnp.where({0} != {1}, {0}, {1})",
    "jnp.nextafter({0}, {1})", "jnp.clip({0}, {1}, 2)", "jnp.logaddexp({0}, {1})",
)  # fmt: skip
ONE = {"smooth": SMOOTH, "exact": EXACT, "special": SPECIAL}
TWO = {"smooth": SMOOTH_TWO, "exact": EXACT_TWO, "special": SPECIAL_TWO}


def unary(g: Any) -> Any:
    x = g.some_float()
    text = g.choice(ONE[g.regime])
    if "stop_gradient" in text:
        g.smooth = False
    g.add("unary", text, [x], g.shape(x), g.dtype)


def binary(g: Any) -> Any:
    x = g.some_float()
    text = g.choice(TWO[g.regime])
    if "nextafter" in text and g.dtype in ("bfloat16", "float16"):
        return False
    g.add("binary", text, [x, g.partner(x)], g.shape(x), g.dtype)


def integers(g: Any) -> Any:
    x = g.pick(lambda s, t: "int" in t)
    x = g.some_int() if x is None else x
    t = g.kind(x)
    texts = ("{0} * 3 + 1", "{0} ^ ({0} >> 1)", "{0} % 5", "jnp.where({0} > 2, {0}, 1)", "~{0}",
             "jnp.cumsum({0}, axis=None).reshape({0}.shape).astype({0}.dtype)", "{0} // 3",
             "jnp.maximum({0}, 1)", "jnp.clip({0}, 0, 3)", "lax.population_count({0})", "{0} << 1",
             "jnp.abs({0})", "jnp.sign({0})", "{0} & 6", "lax.clz({0})")  # fmt: skip
    g.add("integers", g.choice(texts), [x], g.shape(x), t)


def to_float(g: Any) -> Any:
    x = g.pick(lambda s, t: "int" in t or t == "bool")
    text = f"wrap({{0}}.astype('{g.dtype}'))" if g.regime == "exact" else (
        f"jnp.sin({{0}}.astype('{g.dtype}'))")
    if x is None:
        return False
    if g.regime == "exact":
        text = f"({{0}} % 8).astype('{g.dtype}')" if g.kind(x) != "bool" else text
    g.add("to_float", text, [x], g.shape(x), g.dtype)


def cast(g: Any) -> Any:
    x = g.some_float()
    to = g.choice(("float32", "bfloat16", "float16", *(("float64",) if g.x64 else ())))
    if to == g.dtype or g.regime == "special":
        return False
    y = g.add("cast", f"{{0}}.astype('{to}')", [x], g.shape(x), to)
    text = f"{{0}}.astype('{g.dtype}')"
    g.add("cast", text if g.chance(0.5) else f"({{0}} + 1).astype('{g.dtype}')", [y], g.shape(x),
          g.dtype)


def bools(g: Any) -> Any:
    x = g.some_int()
    text = g.choice(("{0} % 2 == 0", "{0} > 1", "({0} < 0) | ({0} == 3)", "~({0} > 2)",
                     "jnp.logical_xor({0} > 0, {0} % 3 == 0)"))
    if g.regime != "smooth" and g.chance(0.5):
        x, text = g.some_float(), g.choice(("{0} > 0", "{0} == 0", "jnp.isnan({0})", "{0} <= -1"))
    g.add("bools", text, [x], g.shape(x), "bool")


def where(g: Any) -> Any:
    x = g.some_float()
    y = g.partner(x)
    shape = g.shape(x)
    b = g.pick(lambda s, t: t == "bool" and (s == shape or s == ()))
    if b is None:
        b = g.add("bools", "{0} % 2 == 0", [g.some_int(0)], (), "bool")
    g.add("where", "jnp.where({0}, {1}, {2})", [b, x, y], shape, g.dtype)


def select(g: Any) -> Any:
    x, n = g.some_float(), g.some_int(0)
    y = g.pick(lambda s, t: (s, t) == g.types[x])
    g.add("select", "lax.select_n(jnp.clip({2}, 0, 2), {0}, {1}, -{0})", [x, y, n], g.shape(x),
          g.dtype)


def _without(shape: tuple[str, ...], axis: int) -> tuple[str, ...]:
    return shape[:axis] + shape[axis + 1:]


def reduction(g: Any) -> Any:
    x = g.some_float(1)
    axis = g.rng.randrange(len(g.shape(x)))
    names = ["sum", "sum", "mean", "max", "min", "prod"]
    names += ["var", "logsumexp"] if g.regime == "smooth" else []
    if g.regime == "exact":
        names = ["sum", "sum", "max", "min"]
    if g.regime == "special":
        names = ["sum", "max", "min", "nansum", "nanmax", "any", "all"]
    name = g.choice(names)
    if not g.size(g.shape(x)[axis]) and name not in ("sum", "prod", "any", "all", "nansum"):
        name = "sum"
    call = "nn.logsumexp" if name == "logsumexp" else f"jnp.{name}"
    text = f"{call}({{0}}, axis={axis})"
    if g.chance(0.15):
        text = text.replace(f"axis={axis}", "axis=None")
        shape: tuple[str, ...] = ()
        if not g.elements(x) and name not in ("sum", "prod", "any", "all", "nansum"):
            return False
    else:
        shape = _without(g.shape(x), axis)
    if name in ("any", "all"):
        g.add("reduce", text, [x], shape, "bool")
        return True
    g.add("reduce", text if name in ("max", "min", "mean") else g.bound(text), [x], shape, g.dtype)


def arg(g: Any) -> Any:
    x = g.some_float(1) if g.regime != "smooth" else g.some_int(1)
    axis = g.rng.randrange(len(g.shape(x)))
    if not g.size(g.shape(x)[axis]):
        return False
    name = g.choice(("argmax", "argmin"))
    g.add("argmax", f"jnp.{name}({{0}}, axis={axis}).astype('int32')", [x],
          _without(g.shape(x), axis), "int32")


def cumulative(g: Any) -> Any:
    x = g.some_float(1)
    axis = g.rng.randrange(len(g.shape(x)))
    names = {"smooth": ("cumsum", "cumsum", "cumlogsumexp", "cummax", "cumprod"),
             "exact": ("cumsum", "cumsum", "cummax", "cummin"),
             "special": ("cumsum", "cummax", "cummin", "cumprod")}[g.regime]
    name = g.choice(names)
    source = "1 + 0.1 * {0}" if name == "cumprod" else "{0}"
    text = f"lax.{name}({source}, axis={axis}, reverse={g.chance(0.5)})"
    if name == "cumsum" and g.chance(0.2):
        text = f"lax.associative_scan(jnp.add, {{0}}, axis={axis}, reverse={g.chance(0.5)})"
    g.add("cumulative", text if name[:5] in ("cumma", "cummi") else g.bound(text), [x],
          g.shape(x), g.dtype)


def contraction(g: Any) -> Any:
    x = g.some_float(1, 2)
    last = g.shape(x)[-1]
    y = g.pick(lambda s, t: t == g.dtype and 1 <= len(s) <= 2 and s[-1] == last)
    rows = lambda v, c: c if len(g.shape(v)) == 2 else ""
    a, b = rows(x, "i") + "k", rows(y, "j") + "k"
    out = g.choice((rows(x, "i") + rows(y, "j"), rows(y, "j") + rows(x, "i")))
    size = {"i": g.shape(x)[0], "j": g.shape(y)[0]}
    text = f"jnp.einsum('{a},{b}->{out}', {{0}}, {{1}})"
    if len(a) == 2 and len(b) == 2 and out == "ij" and g.chance(0.5):
        text = "{0} @ {1}.T"
    g.add("contraction", g.bound(text), [x, y], tuple(size[c] for c in out), g.dtype)


def movement(g: Any) -> Any:
    x = g.some_float(1)
    shape = g.shape(x)
    axis = g.rng.randrange(len(shape))
    n = shape[axis]
    kind = g.choice(("T", "flip", "roll", "ravel", "concat", "pad", "slice", "stride", "expand",
                     "repeat", "stack", "tile", "split"))
    if kind == "T":
        text, shape = "{0}.T", shape[::-1]
    elif kind == "flip":
        text = f"jnp.flip({{0}}, {axis})"
    elif kind == "roll":
        text = f"jnp.roll({{0}}, {g.rng.randrange(-2, 3)}, {axis})"
    elif kind == "ravel":
        text, shape = "{0}.reshape(-1)" if g.elements(x) else "{0}.ravel()", ("*".join(shape),)
    elif kind == "concat":
        text = f"lax.slice_in_dim(jnp.concatenate([{{0}}, -{{0}}], {axis}), {n} // 2, "
        text += f"{n} // 2 + {n}, axis={axis})"
    elif kind == "pad":
        low, high, inner = g.rng.randrange(-1, 3), g.rng.randrange(0, 2), g.rng.randrange(2)
        if low < 0 and not g.size(n):
            return False
        widths = ", ".join(
            f"({low}, {high}, {inner})" if i == axis else "(0, 0, 0)" for i in range(len(shape)))
        text = f"lax.pad({{0}}, jnp.asarray(1, '{g.dtype}'), [{widths}])"
        made = f"({n}+{low + high}+{inner}*max({n}-1, 0))"
        shape = (*shape[:axis], made, *shape[axis + 1:])
        text = f"lax.slice_in_dim({text}, 0, 1, axis={axis})" if len(made) > 40 else text
        if len(made) > 40 or g.size(made) < 1:
            return False
    elif kind == "slice":
        text = f"lax.slice_in_dim({{0}}, {n} // 2, {n}, axis={axis})"
        shape = (*shape[:axis], f"({n}-{n}//2)", *shape[axis + 1:])
    elif kind == "stride":
        at = ", ".join("::-2" if i == axis else ":" for i in range(len(shape)))
        text, shape = f"{{0}}[{at}]", (*shape[:axis], f"(({n}+1)//2)", *shape[axis + 1:])
    elif kind == "expand" and len(shape) < 3:
        text = f"jnp.broadcast_to({{0}}[None], {g.tuple(('C', *shape))})"
        shape = ("C", *shape)
    elif kind == "repeat":
        text, shape = f"jnp.repeat({{0}}, 2, {axis})[:{shape[0]}]", (
            shape if axis == 0 else (*shape[:axis], f"(2*{n})", *shape[axis + 1:]))
    elif kind == "stack" and len(shape) < 3:
        text, shape = "jnp.stack([{0}, -{0}, {0}])", ("3", *shape)
    elif kind == "split" and g.size(n):
        at = g.rng.randrange(g.size(n)) if g.chance(0.3) else 0
        text = f"lax.index_in_dim({{0}}, {at}, {axis}, keepdims=False)"
        shape = _without(shape, axis)
    else:
        return False
    if max(map(len, shape), default=0) > 24:
        return False
    g.add("movement", text, [x], shape, g.dtype)


def name(g: Any) -> Any:
    x = g.some_float()
    g.add("name", f"checkpoint_name({{0}}, '{g.choice('ab')}')", [x], g.shape(x), g.dtype)


def complexes(g: Any) -> Any:
    """Complex values, from real ones and back."""
    if g.regime != "smooth":
        return False
    z = g.pick(lambda s, t: t == g.complex)
    if z is None or g.chance(0.4):
        x = g.some_float()
        wide = f"{{0}}.astype('{'float64' if g.complex == 'complex128' else 'float32'}')"
        text = g.choice((f"jnp.exp(1j * {wide})", f"lax.complex({wide}, jnp.sin({wide}))",
                         f"(0.5 - 0.25j) * {wide}"))
        z = g.add("complex", f"({text}).astype('{g.complex}')", [x], g.shape(x), g.complex)
    if g.chance(0.4):
        text = g.choice(("jnp.conj({0})", "{0} * {0} * 0.5", "{0} / (2 + jnp.abs({0}) ** 2)",
                         "jnp.sin({0})", "1j * {0}", "jnp.exp({0} * 0.5)"))
        z = g.add("complex", text, [z], g.shape(z), g.complex)
    part = g.choice(("jnp.real({0})", "jnp.imag({0})", "jnp.abs({0} + 3)", "jnp.angle({0} + 3)"))
    g.add("complex", f"jnp.tanh({part}).astype('{g.dtype}')", [z], g.shape(z), g.dtype)


def collective(g: Any) -> Any:
    """A sum, a mean or the like over a named axis of a vmap."""
    if not g.axes:
        return False
    x = g.some_float(0, 2)
    axis, size = g.choice(g.axes)
    text = g.choice((f"lax.psum({{0}}, '{axis}')", f"lax.pmax({{0}}, '{axis}')",
                     f"lax.all_gather({{0}}, '{axis}')", f"{{0}} + lax.axis_index('{axis}')",
                     f"lax.ppermute({{0}}, '{axis}', [(i, (i + 1) % {size}) for i in "
                     f"range({size})])"))
    if "pmax" in text and g.derived:
        return False
    shape = (size, *g.shape(x)) if "gather" in text else g.shape(x)
    g.add("collective", g.bound(text), [x], shape, g.dtype)


def draws(g: Any) -> Any:
    """Random integers: the same bits in every way to run."""
    n = g.some_int(0)
    shape = g.choice(((), ("A",), ("A", "B")))
    text = f"random.randint(random.key({{0}}), {g.tuple(shape)}, -4, 5).astype('{g.dtype}')"
    if g.chance(0.3):
        text = text.replace("random.key({0})", "random.split(random.key(3), 4)[{0} % 4]")
    g.add("random", text if g.regime != "smooth" else f"jnp.sin({text})", [n], shape, g.dtype)


CALLS: list[tuple[int, Callable[[Any], Any]]] = [
    (6, unary), (6, binary), (2, integers), (2, to_float), (1, cast), (1, bools), (2, where),
    (1, select), (4, reduction), (1, arg), (3, cumulative), (3, contraction), (5, movement),
    (1, name), (1, complexes), (6, collective), (1, draws),
]  # fmt: skip


def register(weight: int, call: Callable[[Any], Any]) -> None:
    """Let programs be drawn from this too."""
    CALLS.append((weight, call))


def draw(g: Any) -> None:
    """Add one operation."""
    while True:
        call = g.rng.choices([c for _, c in g.leaves], [w for w, _ in g.leaves])[0]
        if call(g) is not False:
            return
