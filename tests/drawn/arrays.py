"""Cases of operations on arrays: all dtypes, empty and odd shapes, options that are seldom used."""

from __future__ import annotations

from collections.abc import Callable

from tests.drawn.calls import FLOATS, INTS, SLOPES, Case, Draw, examine

__all__ = ["draw", "examine"]

FAMILIES: dict[str, Callable[[Draw], Case]] = {}
PLAIN = ("jit", "vmap", "jit_vmap")


def family(f: Callable[[Draw], Case]) -> Callable[[Draw], Case]:
    """Register a family by the name of its function."""
    FAMILIES[f.__name__] = f
    return f


def draw(seed: int, index: int, only: str = "") -> tuple[str, Case]:
    """The family and the case of a seed and an index."""
    g = Draw((seed, index))
    name = g.choice(*FAMILIES)
    if only:
        name = only
    return name, FAMILIES[name](g)


def case(g: Draw, text: str, dtype: str = "", *, slopes: bool = True, **options) -> Case:
    """A case of what is drawn so far, with one or two ways to run it."""
    ways = [g.choice(*PLAIN)]
    if dtype in FLOATS and slopes and g.chance(0.6):
        ways.append(g.choice(*SLOPES))
    return Case(text, g.arrays, g.x64, tuple(ways), **options)


@family
def sorting(g: Draw) -> Case:
    n = g.int(1, 4)
    shape = g.shape(1, 3)
    d = g.axis(len(shape))
    types = [g.dtype("float", "int", "bool", "complex") for _ in range(n)]
    parts = ", ".join(g.arr(shape, t, special=0.4) for t in types)
    k = g.int(1, n)
    stable = g.choice(True, True, k < n and False or True)
    return case(g, f"lax.sort(({parts},), dimension={d}, num_keys={k}, is_stable={stable})")


@family
def sorting_numpy(g: Draw) -> Case:
    shape, t = g.shape(0, 3), g.dtype("float", "int", "bool", "complex", "small")
    x = g.arr(shape, t, special=0.4)
    axis = g.choice(None, g.axis(len(shape)) if shape else -1)
    name = g.choice("sort", "argsort")
    text = f"jnp.{name}({x}, axis={axis}, descending={g.chance(0.5)}, stable=True)"
    return case(g, text, t, slopes=name == "sort")


@family
def lexsort(g: Draw) -> Case:
    shape = g.shape(1, 2)
    parts = ", ".join(g.arr(shape, g.dtype("int", "bool", "float"), special=0.3)
                      for _ in range(g.int(1, 3)))
    return case(g, f"jnp.lexsort(({parts},), axis={g.axis(len(shape))})")


@family
def top_k(g: Draw) -> Case:
    shape, t = g.shape(1, 3, 0), g.dtype("float", "int")
    axis = g.axis(len(shape))
    x = g.arr(shape, t, special=0.3)
    k = g.int(0, shape[axis])
    if g.chance(0.5):
        return case(g, f"lax.top_k({x}, {min(k, shape[-1])})", t)
    return case(g, f"lax.top_k({x}, {k}, axis={axis})", t)


@family
def partition(g: Draw) -> Case:
    shape, t = g.shape(1, 2, 0), g.dtype("float", "int")
    axis = g.axis(len(shape))
    kth = g.int(0, shape[axis] - 1)
    x = g.arr(shape, t)
    return case(g, f"jnp.sort(jnp.partition({x}, {kth}, axis={axis}), axis={axis})", t)


@family
def unique(g: Draw) -> Case:
    shape, t = g.shape(0, 2), g.dtype("float", "int", "bool", "complex")
    x = g.arr(shape, t, special=0.4)
    flags = "".join(f", {n}=True" for n in ("return_index", "return_inverse", "return_counts")
                    if g.chance(0.5))
    size = g.choice("", f", size={g.int(1, 6)}",
                    f", size={g.int(1, 6)}, fill_value={g.int(0, 5) % 2 or 1}")
    axis = f", axis={g.axis(len(shape))}" if shape and g.chance(0.4) else ""
    found = case(g, f"jnp.unique({x}{flags}{size}{axis})", slopes=False)
    found.ways = found.ways if size else ()
    return found


@family
def set_operations(g: Draw) -> Case:
    t = g.dtype("int", "float")
    x, y = g.arr(g.shape(0, 2), t), g.arr(g.shape(0, 2), g.choice(t, "int32"))
    name = g.choice("isin", "intersect1d", "union1d", "setdiff1d", "setxor1d")
    size = ""
    if name != "isin" and g.chance(0.6):
        size = f", size={g.int(1, 6)}"
    found = case(g, f"jnp.{name}({x}, {y}{size})", slopes=False)
    found.ways = found.ways if size or name == "isin" else ()
    return found


@family
def searching(g: Draw) -> Case:
    t = g.dtype("float", "int")
    n = g.int(0, 6)
    x = g.arr((n,), t, special=0.2)
    v = g.arr(g.shape(0, 2), g.choice(t, t, "int32"), special=0.3)
    method = g.choice("scan", "sort", "compare_all", "scan_unrolled")
    side = g.choice("left", "right")
    return case(g, f"jnp.searchsorted(jnp.sort({x}), {v}, side='{side}', method='{method}')")


@family
def digitize(g: Draw) -> Case:
    x = g.arr(g.shape(0, 2), g.dtype("float", "int"), special=0.2)
    bins = g.arr((g.int(0, 4),), g.dtype("float", "int"))
    order = g.choice("", "[::-1]")
    return case(g, f"jnp.digitize({x}, jnp.sort({bins}){order}, right={g.chance(0.5)})")


@family
def histogram(g: Draw) -> Case:
    x = g.arr(g.shape(0, 2, 0), g.dtype("float", "int"))
    bins = g.choice(3, "jnp.array([-1., 0., .5, 2.])", "4, range=(-1, 2)")
    density = g.choice("", ", density=True")
    return case(g, f"jnp.histogram({x}, {bins}{density})", slopes=False)


@family
def bincount(g: Draw) -> Case:
    n = g.int(0, 6)
    x = g.arr((n,), g.choice(*INTS[:5], "bool"))
    weights = g.choice("", f", weights={g.arr((n,), g.dtype('float', 'int'))}")
    text = f"jnp.bincount({x}{weights}, minlength={g.int(0, 4)}, length={g.int(1, 8)})"
    return case(g, text, slopes=False)


@family
def integer_arithmetic(g: Draw) -> Case:
    t = g.dtype("int", "int", "bool", "small")
    u = g.choice(t, t, g.dtype("int"))
    shape = g.shape(0, 2)
    name = g.choice("floor_divide", "remainder", "mod", "fmod", "power", "divmod", "left_shift",
                    "right_shift", "add", "multiply", "subtract", "true_divide", "gcd", "lcm",
                    "maximum", "bitwise_xor", "bitwise_and", "float_power", "ldexp", "hypot",
                    "heaviside", "copysign", "arctan2", "logaddexp", "minimum", "nextafter",
                    "equal", "less", "logical_and", "bitwise_right_shift", "bitwise_left_shift")
    x, y = g.arr(shape, t, special=0.7), g.arr(g.choice(shape, ()), u, special=0.7)
    return case(g, f"jnp.{name}({x}, {y})", zeros=True)


@family
def integer_arithmetic_lax(g: Draw) -> Case:
    t = g.dtype("int", "int", "bool")
    shape = g.shape(0, 2)
    name = g.choice("div", "rem", "shift_left", "shift_right_arithmetic", "shift_right_logical",
                    "add", "mul", "sub", "bitwise_and", "max", "pow", "nextafter", "ge", "atan2")
    x, y = g.arr(shape, t, special=0.7), g.arr(shape, t, special=0.7)
    return case(g, f"lax.{name}({x}, {y})")


@family
def unary_integers(g: Draw) -> Case:
    t = g.dtype("int", "int", "bool")
    name = g.choice("abs", "negative", "sign", "invert", "square", "reciprocal", "sqrt", "cbrt",
                    "exp", "positive", "bitwise_count", "rint", "floor", "trunc", "isnan", "sinc",
                    "conj", "real", "imag", "angle", "signbit", "iscomplex", "isreal", "i0", "fix",
                    "deg2rad", "spacing", "nan_to_num", "isposinf", "modf", "frexp", "bitwise_not",
                    "exp2", "log2", "unwrap", "tan", "logical_not", "isfinite", "bitwise_invert")
    x = g.arr(g.shape(0, 2), t, special=0.6)
    return case(g, f"jnp.{name}({x})")


@family
def unary_floats(g: Draw) -> Case:
    t = g.dtype("float", "float", "complex")
    name = g.choice("abs", "negative", "sign", "square", "reciprocal", "sqrt", "cbrt", "exp",
                    "rint", "floor", "ceil", "trunc", "isnan", "sinc", "conj", "real", "imag",
                    "angle", "signbit", "i0", "deg2rad", "spacing", "nan_to_num", "modf", "frexp",
                    "exp2", "log2", "log10", "log1p", "expm1", "tan", "arccosh", "arctanh",
                    "arcsinh", "arcsin", "arccos", "sinh", "cosh", "tanh", "isneginf", "round",
                    "logical_not", "sin", "cos", "log", "arctan", "unwrap", "positive")
    special = 0.5 if "complex" not in t else 0
    x = g.arr(g.shape(0, 2), t, special=special)
    return case(g, f"jnp.{name}({x})", t, rtol=4, zeros=not special and False)


@family
def special_functions(g: Draw) -> Case:
    t = g.choice(*(("float32", "float64") if g.x64 else ("float32", "float32", "bfloat16")))
    name = g.choice("gammaln", "digamma", "erf", "erfc", "erfinv", "expit", "logit", "entr", "i0e",
                    "i1", "i1e", "ndtr", "log_ndtr", "ndtri", "gamma", "bessel_jn", "xlogy",
                    "xlog1py", "zeta", "polygamma", "betainc", "gammainc", "gammaincc", "betaln",
                    "expi", "expn", "exp1", "poch", "kl_div", "rel_entr", "factorial", "spence",
                    "hyp1f1", "logsumexp", "softmax", "log_softmax", "multigammaln", "lpmn_values",
                    "comb", "beta", "sici", "fresnel", "hyp2f1", "owens_t", "wofz", "log_wright")
    shape = g.shape(0, 2)
    low, high = 0.1, 2.5
    if name in ("erfinv", "logit", "ndtri", "xlogy"):
        low, high = 0.05, 0.95
    if name in ("erf", "erfc", "i0e", "i1", "i1e", "ndtr", "log_ndtr", "expit"):
        low, high = -6.0, 6.0
    arr = lambda: g.arr(shape, t, low=low, high=high)
    if name in ("xlogy", "xlog1py", "gammainc", "gammaincc", "betaln", "kl_div", "rel_entr", "poch",
                "beta"):
        text = f"jsp.special.{name}({arr()}, {arr()})"
    elif name == "zeta":
        text = f"jsp.special.zeta({arr()} + 1.2, {arr()})"
    elif name == "polygamma":
        text = f"jsp.special.polygamma({g.int(0, 3)}, {arr()})"
    elif name == "betainc":
        text = f"jsp.special.betainc({arr()}, {arr()}, {g.arr(shape, t, low=0.05, high=0.95)})"
    elif name == "expn":
        text = f"jsp.special.expn({g.int(1, 4)}, {arr()})"
    elif name == "hyp1f1":
        text = f"jsp.special.hyp1f1({arr()}, {arr()} + 1, {arr()})"
    elif name in ("logsumexp", "softmax", "log_softmax"):
        axis = g.axis(len(shape)) if shape else None
        text = f"jsp.special.{name}({g.arr(shape, t, special=0.3)}, axis={axis})"
    elif name == "bessel_jn":
        text = f"jsp.special.bessel_jn({arr()}, v={g.int(0, 3)}, n_iter=30)"
    elif name == "multigammaln":
        text = f"jsp.special.multigammaln({arr()} + 3, {g.int(1, 3)})"
    elif name == "factorial":
        text = f"jsp.special.factorial({arr()})"
    elif name in ("lpmn_values", "comb", "owens_t", "wofz", "log_wright", "hyp2f1"):
        text = f"jsp.special.logsumexp({arr()}, b={arr()}, return_sign=True, axis=None)"
    else:
        text = f"jsp.special.{name}({arr()})"
    return case(g, text, t, rtol=40)


@family
def scatter(g: Draw) -> Case:
    t = g.dtype("float", "int", "bool", "complex")
    shape = g.shape(1, 3)
    op = g.choice("set", "add", "subtract", "multiply", "min", "max", "divide", "power", "apply",
                  "get")
    if "complex" in t and op in ("min", "max", "power"):
        op = "add"
    index = indexer(g, shape)
    mode = g.choice("", "", "mode='drop'", "mode='clip'", "mode='fill'", "mode='wrap'")
    x = g.arr(shape, t)
    options = f", {mode}" if mode else ""
    if op == "get":
        fill = ", fill_value=3" if "fill" in mode and g.chance(0.5) else ""
        return case(g, f"{x}.at[{index}].get({mode}{fill})", t)
    if op == "apply":
        f = "jnp.negative" if t != "bool" else "jnp.logical_not"
        return case(g, f"{x}.at[{index}].apply({f}{options})", t)
    value = g.choice("1", "2.5", g.arr((), t), g.arr((1,), g.dtype("float", "int")))
    if op in ("set",):
        value = g.choice("1", g.arr((), g.choice(t, "float32")))
    if op == "power":
        value = "2"
    return case(g, f"{x}.at[{index}].{op}({value}{options})", t)


def indexer(g: Draw, shape: tuple[int, ...]) -> str:
    """An index with slices, integers, arrays, new axes, an ellipsis and booleans."""
    parts, ellipsis = [], False
    for n in shape[: g.int(0, len(shape))]:
        kind = g.choice("int", "slice", "array", "array", "new", "list", "scalar", "step")
        if kind == "int":
            parts.append(str(g.int(-n, n - 1)) if n else ":")
        elif kind == "slice":
            parts.append(f"{g.choice('', g.int(-n - 1, n + 1))}:{g.choice('', g.int(-n, n + 1))}")
        elif kind == "step":
            parts.append(f"::{g.choice(-1, 2, -2, 3)}")
        elif kind == "array":
            t = g.choice("int32", "int8", "uint8")
            parts.append(g.arr(g.choice((2,), (3,), (2, 1), (), (1,), (0,)), t)
                         if g.chance(0.8) else f"np.array([{g.int(-n, n)}])")
        elif kind == "scalar":
            parts.append(g.arr((), g.choice("int32", "int16", "uint8")))
        elif kind == "list":
            parts.append(f"np.array([{g.int(-n, max(n - 1, 0))}, {g.int(-n, max(n - 1, 0))}])"
                         if n else ":")
        else:
            parts.append("None")
        if not ellipsis and g.chance(0.1):
            parts.append("...")
            ellipsis = True
    if not parts:
        return g.choice("...", "()", "None", "True", "False")
    return ", ".join(parts)


@family
def indexing(g: Draw) -> Case:
    t = g.dtype("float", "int", "bool", "complex", "small")
    shape = g.shape(1, 4)
    x = g.arr(shape, t)
    return case(g, f"{x}[{indexer(g, shape)}]", t)


@family
def boolean_masks(g: Draw) -> Case:
    t = g.dtype("float", "int")
    shape = g.shape(1, 3)
    x = g.arr(shape, t)
    m = g.arr(shape[: g.int(1, len(shape))], "bool")
    text = g.choice(f"{x}.at[{m}].set(0)", f"{x}.at[{m}].add(1)", f"{x}.at[{m}].multiply(2)",
                    f"{x}[{m}]", f"jnp.compress({m}.ravel(), {x}, axis=None, size=3)",
                    f"jnp.extract({m}, {m}, size={m}.size)",
                    f"jnp.nonzero({m}, size=3, fill_value=-1)", f"jnp.argwhere({x}, size=4)",
                    f"jnp.flatnonzero({x}, size=5, fill_value=7)",
                    f"jnp.where({m}, size=2)", f"jnp.count_nonzero({x}, axis=0, keepdims=True)",
                    f"jnp.place({x}, {x} > 0, jnp.array([1, 2]).astype({x}.dtype), inplace=False)",
                    f"jnp.put({x}, jnp.array([0, 1]), 5, mode='clip', inplace=False)")
    found = case(g, text, slopes=False)
    found.ways = () if f"{x}[{m}]" == text else found.ways
    return found


@family
def dynamic(g: Draw) -> Case:
    t = g.dtype("float", "int", "bool", "complex", "small")
    shape = g.shape(1, 3)
    x = g.arr(shape, t)
    starts = [g.arr((), g.choice("int32", "int8", "uint8", "uint32")) for _ in shape]
    sizes = tuple(g.int(0, n) for n in shape)
    kind = g.choice("slice", "update", "in_dim", "index", "update_index")
    d = g.axis(len(shape))
    if kind == "slice":
        return case(g, f"lax.dynamic_slice({x}, ({', '.join(starts)},), {sizes})", t)
    if kind == "update":
        return case(g, f"lax.dynamic_update_slice({x}, {g.arr(sizes, t)}, ({', '.join(starts)},))",
                    t)
    if kind == "in_dim":
        return case(g, f"lax.dynamic_slice_in_dim({x}, {starts[0]}, {sizes[d]}, {d})", t)
    if kind == "index":
        return case(g, f"lax.dynamic_index_in_dim({x}, {starts[0]}, {d}, {g.chance(0.5)})", t)
    other = [n for i, n in enumerate(shape) if i != d % len(shape)]
    y = g.arr(tuple(other), t)
    return case(g, f"lax.dynamic_update_index_in_dim({x}, {y}, {starts[0]}, {d})", t)


@family
def segments(g: Draw) -> Case:
    t = g.dtype("float", "int")
    n = g.int(0, 6)
    x = g.arr((n, *g.shape(0, 2)), t)
    ids = g.arr((n,), g.choice("int32", "int8", "uint8"))
    name = g.choice("segment_sum", "segment_max", "segment_min", "segment_prod")
    mode = g.choice("", ", mode='clip'", ", mode='drop'")
    buckets = g.choice("", "", f", bucket_size={g.int(1, 3)}")
    text = f"ops.{name}({x}, {ids}, num_segments={g.int(1, 5)}{mode}{buckets})"
    return case(g, text, t)


@family
def reductions(g: Draw) -> Case:
    t = g.dtype("float", "int", "bool", "complex")
    shape = g.shape(0, 3)
    x = g.arr(shape, t, special=0.2 if t in FLOATS else 0.5)
    name = g.choice("sum", "prod", "mean", "var", "std", "max", "min", "any", "all", "argmax",
                    "argmin", "nansum", "nanmean", "nanmax", "nanvar", "nanargmax", "median", "ptp",
                    "nanprod", "nanstd", "average", "count_nonzero", "nanmin", "nanmedian")
    axis = g.choice("None", str(g.axis(len(shape)) if shape else None), "()",
                    str(tuple(range(len(shape)))), str(tuple(sorted({0, len(shape) - 1}))))
    if name in ("argmax", "argmin", "nanargmax") and axis.startswith("("):
        axis = "None"
    options = f", keepdims={g.chance(0.5)}"
    if name in ("sum", "prod", "max", "min", "any", "all", "mean") and g.chance(0.35) and (
            not axis.startswith("()")):
        mask = g.arr(g.choice(shape, ()), "bool")
        options += f", where={mask}"
        if name in ("max", "min"):
            options += ", initial=1"
    if name in ("sum", "prod", "mean", "var", "nansum") and g.chance(0.35):
        options += f", dtype='{g.dtype('float', 'int') if name != 'var' else 'float32'}'"
    if name in ("var", "std", "nanvar") and g.chance(0.4):
        options += f", ddof={g.int(0, 2)}"
    return case(g, f"jnp.{name}({x}, axis={axis}{options})", t, rtol=3)


@family
def quantiles(g: Draw) -> Case:
    t = g.dtype("float", "int")
    shape = g.shape(1, 2, 0)
    x = g.arr(shape, t, special=0.1)
    q = g.choice("0.3", "jnp.array([0.1, 0.5])", "jnp.array([[0., 1.]])")
    name, scale = g.choice(("quantile", ""), ("percentile", " * 100"), ("nanquantile", ""))
    method = g.choice("linear", "lower", "higher", "midpoint", "nearest")
    axis = g.choice("None", "0", "-1")
    keep = g.chance(0.5)
    text = f"jnp.{name}({x}, {q}{scale}, axis={axis}, method='{method}', keepdims={keep})"
    return case(g, text, t, rtol=2)


@family
def cumulative(g: Draw) -> Case:
    t = g.dtype("float", "int", "bool", "complex")
    shape = g.shape(1, 3)
    x = g.arr(shape, t, special=0.15)
    if g.chance(0.5):
        name = g.choice("cumsum", "cumprod", "nancumsum", "nancumprod")
        axis = g.choice("None", g.axis(len(shape)))
        kind = g.choice("", f", dtype='{g.dtype('float', 'int')}'")
        return case(g, f"jnp.{name}({x}, axis={axis}{kind})", t, rtol=3)
    name = g.choice("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
    if name == "cumlogsumexp" and t not in FLOATS:
        name = "cummax" if "complex" not in t else "cumsum"
    axis = g.int(0, len(shape) - 1)
    return case(g, f"lax.{name}({x}, axis={axis}, reverse={g.chance(0.5)})", t, rtol=3)


@family
def associative_scan(g: Draw) -> Case:
    t = g.dtype("float", "int")
    shape = g.shape(1, 3)
    x, y = g.arr(shape, t), g.arr(shape, t)
    f = g.choice("lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1])",
                 "lambda p, q: (jnp.maximum(p[0], q[0]), p[1] + q[1])")
    axis = g.int(0, len(shape) - 1)
    text = f"lax.associative_scan({f}, ({x}, {y}), reverse={g.chance(0.5)}, axis={axis})"
    return case(g, text, t, rtol=3)


@family
def reduce_window(g: Draw) -> Case:
    t = g.dtype("float", "int")
    rank = g.int(1, 3)
    shape = tuple(g.int(1, 6) for _ in range(rank))
    x = g.arr(shape, t)
    each = lambda low, high: tuple(g.int(low, high) for _ in range(rank))
    op, start = g.choice(("lax.add", "0"), ("lax.max", "-inf"), ("lax.min", "inf"), ("lax.mul", "1"))
    if t not in FLOATS:
        start = {"-inf": f"jnp.iinfo('{t}').min", "inf": f"jnp.iinfo('{t}').max"}.get(start, start)
    start = f"jnp.array({start.replace('inf', 'jnp.inf') if t in FLOATS else start}, '{t}')"
    if g.chance(0.3):
        start = f"np.array({g.choice('1', '2', '0')}, {x}.dtype)"
    padding = g.choice("'SAME'", "'VALID'", "'SAME_LOWER'",
                       str(tuple((g.int(0, 2), g.int(0, 2)) for _ in range(rank))))
    options = ""
    if g.chance(0.4) and "'" not in padding:
        options = f", base_dilation={each(1, 2)}, window_dilation={each(1, 2)}"
    elif g.chance(0.4):
        options = f", window_dilation={each(1, 2)}"
    text = f"lax.reduce_window({x}, {start}, {op}, {each(1, 3)}, {each(1, 3)}, {padding}{options})"
    return case(g, text, t, slopes="mul" not in op, rtol=3)


@family
def reduce_general(g: Draw) -> Case:
    t = g.dtype("float", "int", "bool")
    shape = g.shape(1, 3)
    x = g.arr(shape, t)
    dims = tuple(i for i in range(len(shape)) if g.chance(0.6))
    if g.chance(0.5) and t != "bool":
        y = g.arr(shape, "int32")
        f = "lambda p, q: (jnp.maximum(p[0], q[0]), jnp.where(p[0] > q[0], p[1], q[1]))"
        start = f"(jnp.array(-9, '{t}') if '{t}'[0] != 'u' else jnp.array(0, '{t}'), jnp.int32(-1))"
        return case(g, f"lax.reduce(({x}, {y}), {start}, {f}, {dims})", t, slopes=False)
    name, start = g.choice(("add", 0), ("mul", 1), ("add", 0), ("mul", 1), ("bitwise_or", 0))
    if t == "bool":
        name, start = g.choice(("bitwise_or", False), ("bitwise_and", True), ("bitwise_xor", False))
    if t in FLOATS and name == "bitwise_or":
        name = "add"
    return case(g, f"lax.reduce({x}, jnp.array({start}, '{t}'), lax.{name}, {dims})", t,
                slopes=name in ("add", "max", "min"))


@family
def convolution(g: Draw) -> Case:
    t = g.choice("float32", "float32", "bfloat16", "float64" if g.x64 else "float32", "int32")
    rank = g.int(1, 2)
    groups, batches = g.choice((1, 1), (2, 1), (1, 2), (3, 1))
    batch = batches * g.int(1, 2)
    cin = groups * g.int(1, 2)
    cout = groups * batches * g.int(1, 2)
    sizes = tuple(g.int(1, 6) for _ in range(rank))
    window = tuple(g.int(1, 3) for _ in range(rank))
    spatial = "HW"[:rank] if rank == 2 else "W"
    lhs = g.choice("NC" + spatial, "N" + spatial + "C")
    rhs = g.choice("OI" + spatial, spatial + "IO")
    out = g.choice(lhs, "NC" + spatial)
    extent = {"N": batch, "C": cin, "O": cout, "I": cin // groups}
    shape = lambda spec, s: tuple(extent[c] if c in extent else s[spatial.index(c)] for c in spec)
    x, w = g.arr(shape(lhs, sizes), t), g.arr(shape(rhs, window), t)
    each = lambda low, high: tuple(g.int(low, high) for _ in range(rank))
    padding = g.choice("'SAME'", "'VALID'", str([(g.int(-1, 2), g.int(0, 2)) for _ in sizes]))
    options = f", rhs_dilation={each(1, 2)}" if g.chance(0.5) else ""
    if "'" not in padding and g.chance(0.5):
        options += f", lhs_dilation={each(1, 3)}"
    if g.chance(0.25) and t != "float64":
        options += ", preferred_element_type='float32'"
    text = (f"lax.conv_general_dilated({x}, {w}, {each(1, 2)}, {padding}{options}, "
            f"dimension_numbers=('{lhs}', '{rhs}', '{out}'), feature_group_count={groups}, "
            f"batch_group_count={batches})")
    return case(g, text, t, rtol=3)


@family
def transposed_convolution(g: Draw) -> Case:
    rank = g.int(1, 2)
    sizes, window = (tuple(g.int(1, k) for _ in range(rank)) for k in (5, 4))
    cin, cout = g.int(1, 3), g.int(1, 3)
    flip = g.chance(0.5)
    x = g.arr((2, *sizes, cin), "float32")
    w = g.arr((*window, *((cout, cin) if flip else (cin, cout))), "float32")
    padding = g.choice("'SAME'", "'VALID'", str([(g.int(0, 2), g.int(0, 2)) for _ in sizes]))
    strides = tuple(g.int(1, 3) for _ in sizes)
    dilation = g.choice("", f", rhs_dilation={tuple(g.int(1, 2) for _ in sizes)}")
    text = f"lax.conv_transpose({x}, {w}, {strides}, {padding}{dilation}, transpose_kernel={flip})"
    return case(g, text, "float32", rtol=3)


@family
def patches(g: Draw) -> Case:
    x = g.arr((1, 2, g.int(3, 5), g.int(3, 5)), "float32")
    text = (f"lax.conv_general_dilated_patches({x}, ({g.int(1, 3)}, {g.int(1, 2)}), "
            f"({g.int(1, 2)}, {g.int(1, 2)}), {g.choice(repr('SAME'), repr('VALID'))}, "
            f"rhs_dilation=({g.int(1, 2)}, 1))")
    return case(g, text, "float32")


@family
def contraction(g: Draw) -> Case:
    t = g.dtype("float", "int", "complex", "bool")
    u = g.choice(t, t, g.dtype("float", "int"))
    labels = "abcde"
    size = {c: g.choice(1, 2, 3, 4, 0 if g.chance(0.1) else 2) for c in labels}
    pick = lambda k: "".join(g.rng.sample(labels, k))
    x, y = pick(g.int(0, 4)), pick(g.int(0, 3))
    if x and g.chance(0.15):
        x += x[0]
    seen = sorted(set(x + y))
    out = "".join(c for c in g.rng.sample(seen, len(seen)) if g.chance(0.6))
    shape = lambda s: tuple(size[c] for c in s)
    parts = [g.arr(shape(x), t), g.arr(shape(y), u)]
    spec = f"{x},{y}"
    if g.chance(0.3):
        z = pick(g.int(0, 2))
        spec += f",{z}"
        parts.append(g.arr(shape(z), t))
        out = "".join(c for c in out)
    prefer = g.choice("", "", ", preferred_element_type='float32'")
    return case(g, f"jnp.einsum('{spec}->{out}', {', '.join(parts)}{prefer})", t, rtol=3,
                slopes=u in FLOATS)


@family
def dot_general(g: Draw) -> Case:
    t = g.dtype("float", "int", "complex", "small")
    u = g.choice(t, t, g.dtype("float", "int", "small"))
    b, k = g.int(0, 2), g.int(0, 2)
    sizes = [g.int(1, 3) for _ in range(b + k)]
    order = lambda free: g.rng.sample(range(b + k + free), b + k + free)
    fx, fy = g.int(0, 1), g.int(0, 1)
    ox, oy = order(fx), order(fy)
    shape = lambda o: tuple(sizes[i] if i < b + k else 2 for i in o)
    x, y = g.arr(shape(ox), t), g.arr(shape(oy), u)
    where = lambda o, r: tuple(o.index(i) for i in r)
    batch, sums = range(b), range(b, b + k)
    dims = ((where(ox, sums), where(oy, sums)), (where(ox, batch), where(oy, batch)))
    prefer = g.choice("", "", f", preferred_element_type='{g.dtype('float', 'int')}'")
    return case(g, f"lax.dot_general({x}, {y}, {dims}{prefer})", t, rtol=3, slopes=u in FLOATS)


@family
def products(g: Draw) -> Case:
    t = g.dtype("float", "int", "complex")
    name = g.choice("matmul", "dot", "inner", "outer", "kron", "vdot", "tensordot", "cross",
                    "vecdot", "matvec", "vecmat", "convolve", "correlate", "polymul", "polyval")
    n = g.int(1, 4)
    if name in ("matmul", "dot"):
        pairs = [((n,), (n,)), ((2, n), (n, 3)), ((n,), (2, n, 3)), ((2, 3, n), (n,)),
                 ((3, 1, 2, n), (4, n, 2))]
        s, r = g.choice(*pairs)
    elif name in ("inner", "vdot", "vecdot"):
        s = r = g.choice((n,), (2, n))
    elif name == "tensordot":
        s, r = (2, n, 3), (n, 2)
        x, y = g.arr(s, t), g.arr(r, t)
        return case(g, f"jnp.tensordot({x}, {y}, {g.choice('((1, 0), (0, 1))', '((1,), (0,))')})",
                    t, rtol=3)
    elif name == "cross":
        s, r = g.choice(((2, 3), (3,)), ((3,), (4, 3)), ((2,), (3,)), ((2, 2), (2, 2)))
    elif name == "matvec":
        s, r = (2, 3, n), (n,)
    elif name == "vecmat":
        s, r = (n,), (2, n, 3)
    elif name in ("convolve", "correlate"):
        x, y = g.arr((g.int(1, 5),), t), g.arr((g.int(1, 5),), t)
        return case(g, f"jnp.{name}({x}, {y}, '{g.choice('full', 'same', 'valid')}')", t, rtol=3)
    elif name == "polyval":
        x, y = g.arr((n,), t), g.arr(g.shape(0, 2), t)
        return case(g, f"jnp.polyval({x}, {y}, unroll={g.choice(1, 3, 16)})", t, rtol=3)
    elif name == "polymul":
        s, r = (n,), (g.int(1, 3),)
    else:
        s, r = g.shape(0, 2), g.shape(0, 2)
    x, y = g.arr(s, t), g.arr(r, g.choice(t, t, "float32", "int8"))
    return case(g, f"jnp.{name}({x}, {y})", t, rtol=3)


@family
def linear_algebra(g: Draw) -> Case:
    t = g.choice("float32", "complex64", "float64" if g.x64 else "float32")
    batch = g.choice((), (2,), (2, 1), (0,) if g.chance(0.2) else (3,))
    n = g.int(1, 4)
    m = g.int(1, 4)
    square = g.arr((*batch, n, n), t)
    pd = f"({square} @ jnp.conj(jnp.swapaxes({square}, -1, -2)) + 2 * jnp.eye({n}))"
    well = f"({square} + 3.5 * jnp.eye({n}))"
    flat = g.arr((*batch, m, n), t)
    texts = (
        f"jnp.linalg.cholesky({pd})", f"jnp.linalg.cholesky({pd}, upper=True)",
        f"jnp.linalg.inv({well})", f"jnp.linalg.det({square})", f"jnp.linalg.slogdet({well})",
        f"jnp.linalg.eigvalsh({pd})", f"jnp.linalg.eigvalsh({pd}, UPLO='U')",
        f"jnp.linalg.svd({flat}, compute_uv=False)", f"jnp.abs(jnp.linalg.qr({flat}, 'r'))",
        f"jnp.linalg.norm({flat}, axis=(-2, -1), ord={g.choice(repr('nuc'), 2, 1, -1, repr('fro'))})",
        f"jnp.linalg.norm({flat}, axis=-1, ord={g.choice(1, 2, 3, 'jnp.inf', '-jnp.inf', 0)})",
        f"jnp.linalg.matrix_rank({flat})", f"jnp.linalg.pinv({flat})",
        f"jnp.linalg.pinv({pd}, hermitian=True)", f"jnp.linalg.cond({well})",
        f"jnp.linalg.matrix_power({square}, {g.int(-2, 4)})",
        f"jnp.linalg.multi_dot([{square}, {square}, {square}])",
        f"jnp.linalg.solve({well}, {square})", f"jnp.linalg.solve({well}, {square}[..., :1])",
        f"jnp.linalg.lstsq({flat}, {flat})[0]", f"jnp.linalg.vector_norm({flat}, axis=None)",
        f"jnp.linalg.tensorinv({well}.reshape({n}, {n}), ind=1)", f"jnp.linalg.trace({square})",
        f"jnp.linalg.eigvals({square})[..., 0] * 0", f"jnp.linalg.diagonal({flat}, offset=1)",
        f"jsp.linalg.expm({square} * 0.3)", f"jsp.linalg.solve({pd}, {square}, assume_a='pos')",
        f"jsp.linalg.lu({well})", f"jsp.linalg.lu_factor({well})[0]",
        f"jsp.linalg.lu_solve(jsp.linalg.lu_factor({well}), {square}, trans={g.int(0, 2)})",
        f"jsp.linalg.cho_solve((jsp.linalg.cholesky({pd}, lower=True), True), {square})",
        f"jsp.linalg.solve_triangular({well}, {square}, trans={g.int(0, 2)}, lower="
        f"{g.chance(0.5)}, unit_diagonal={g.chance(0.3)})",
        f"jsp.linalg.block_diag({square}, {flat})" if not batch else f"jnp.trace({square}, axis1=-1,"
        " axis2=-2)", f"jsp.linalg.sqrtm({pd})" if not batch else f"jnp.diagonal({square}, -1, 1, 2)",
        f"jsp.linalg.toeplitz({flat}[..., 0], {flat}[..., 0, :])", f"lax.linalg.lu({flat})[1:]",
        f"jsp.linalg.polar({well})" if not batch else f"jnp.tril({square}, -1)",
        f"lax.linalg.triangular_solve({well}, {square}, left_side={g.chance(0.5)}, lower="
        f"{g.chance(0.5)}, transpose_a={g.chance(0.5)}, unit_diagonal={g.chance(0.3)})",
        f"lax.linalg.householder_product(*jnp.linalg.qr({pd}, 'raw')[:2]) @ {square} * 0",
        f"jsp.linalg.rsf2csf({square}, {square})[0] * 0" if not batch else f"jnp.triu({flat})",
        f"lax.linalg.tridiagonal_solve({flat}[..., 0], {flat}[..., 0] + 4, {flat}[..., 0] * 0.5, "
        f"{flat})", f"jnp.linalg.cross({flat}[..., :3], {flat}[..., :3])",
        f"jnp.linalg.eigh({pd})[0]", f"jsp.linalg.eigh({pd}, eigvals_only=True)",
        f"jsp.linalg.funm({pd}, jnp.exp)" if not batch else f"jnp.vander({square}.ravel()[:3], 3)",
    )
    return case(g, g.choice(*texts), t, rtol=60)


@family
def fourier(g: Draw) -> Case:
    t = g.choice("float32", "complex64", "float64" if g.x64 else "float32", "int32")
    shape = tuple(g.int(1, 9) for _ in range(g.int(1, 3)))
    x = g.arr(shape, t)
    norm = g.choice("", ", norm='ortho'", ", norm='forward'")
    name = g.choice("fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifft2", "rfft2",
                    "irfft2", "fftn", "ifftn", "rfftn", "irfftn", "fftshift", "ifftshift")
    if "shift" in name:
        return case(g, f"jnp.fft.{name}({x}, axes={g.choice(None, g.axis(len(shape)))})", t)
    if name[-1] in "2n":
        axes = g.choice("", f", axes=({g.axis(len(shape))},)" if name[-1] == "n" else "")
        size = ""
        if not axes and name[-1] == "n" and g.chance(0.4):
            size = f", s=({g.int(1, 9)},)"
        return case(g, f"jnp.fft.{name}({x}{size}{axes}{norm})", t, rtol=3)
    n = g.choice("", f", n={g.int(1, 10)}")
    return case(g, f"jnp.fft.{name}({x}{n}, axis={g.axis(len(shape))}{norm})", t, rtol=3)


@family
def reshaping(g: Draw) -> Case:
    t = g.dtype("float", "int", "bool", "complex", "small")
    shape = g.shape(0, 4)
    x = g.arr(shape, t)
    r = len(shape)
    d = g.axis(r) if r else 0
    texts = [f"jnp.rot90({x}, {g.int(-2, 3)})", f"jnp.roll({x}, ({g.int(-9, 9)}, 1), (0, {d}))",
             f"jnp.roll({x}, {g.arr((), 'int32')}, {g.choice(None, d)})",
             f"jnp.repeat({x}, {g.int(0, 3)}, axis={g.choice(None, d)})",
             f"jnp.tile({x}, {g.choice('2', '(1, 2)', '(0, 2)', '(2, 1, 1, 3)', '()')})",
             f"jnp.expand_dims({x}, ({g.int(0, r)}, -1))", f"jnp.squeeze({x})",
             f"jnp.swapaxes({x}, {d}, 0)", f"jnp.moveaxis({x}, {d}, 0)", f"jnp.ravel({x}, order='F')",
             f"jnp.reshape({x}, (-1, 1), order='F')", f"jnp.atleast_3d({x})", f"jnp.flip({x})",
             f"jnp.diff({x}, n={g.int(0, 2)}, axis={d})", f"jnp.trim_zeros({x}.ravel())",
             f"jnp.ediff1d({x})", f"jnp.gradient({x}.astype('float32'), 0.5, axis={d})",
             f"jnp.diag({x}, {g.int(-2, 2)})", f"jnp.diagflat({x}, {g.int(-2, 2)})",
             f"jnp.tril({x}, {g.int(-2, 2)})", f"jnp.fill_diagonal({x}, 1, inplace=False)",
             f"jnp.array_split({x}, {g.int(1, 4)}, axis={d})", f"jnp.hsplit({x}, 1)",
             f"jnp.insert({x}, {g.int(0, 1)}, 7, axis={g.choice(None, d)})",
             f"jnp.delete({x}, {g.choice('0', 'jnp.array([0, 0])', 'slice(0, 2)')}, axis={d})",
             f"jnp.append({x}, {x}, axis={g.choice(None, d)})", f"jnp.stack([{x}, {x}], {d})",
             f"jnp.column_stack([{x}, {x}])", f"jnp.dstack([{x}, {x}])", f"jnp.vstack([{x}, {x}])",
             f"jnp.pad({x}, {g.int(0, 2)}, mode='{g.choice('edge', 'reflect', 'symmetric', 'wrap', 'constant', 'maximum', 'mean', 'minimum', 'median', 'linear_ramp', 'empty')}')",
             f"jnp.pad({x}, ({g.int(0, 2)}, {g.int(0, 2)}), constant_values=(1, 2))",
             f"jnp.resize({x}, {g.choice('(2, 3)', '5', '(0,)')})", f"jnp.block([[{x}, {x}]])",
             f"jnp.apply_along_axis(lambda v: v[::-1], {d}, {x})", f"jnp.unstack({x}, axis={d})",
             f"jnp.broadcast_arrays({x}, jnp.ones((2,) + {x}.shape))", f"jnp.nan_to_num({x}, nan=1)",
             f"lax.pad({x}, jnp.array(1, {x}.dtype), [({g.int(-1, 2)}, {g.int(-1, 2)}, {g.int(0, 2)})"
             f"] * {r})", f"jnp.unravel_index({g.arr((2,), 'int32')}, (2, 3))", f"{x}.view('uint8')",
             f"jnp.ravel_multi_index((jnp.array([1, 5]), jnp.array([0, 2])), (3, 4), mode='clip')",
             f"jnp.choose({g.arr((2,), 'int32')}, [{x}, {x}], mode='wrap')",
             f"jnp.select([{x} == 1, {x} == 2], [{x}, {x}], 0)", f"jnp.take({x}, {g.arr((2,), 'int32')})",
             f"jnp.piecewise({x}, [{x} == 1, {x} == 0], [2, 3, lambda v: v])",
             f"lax.rev({x}, ({d % r if r else 0},))", f"lax.bitcast_convert_type({x}, 'uint8')",
             f"lax.broadcast_in_dim({x}, (2,) + {x}.shape, tuple(range(1, {r + 1})))",
             f"jnp.corrcoef({x}.astype('float32'))", f"jnp.cov({x}.astype('float32'), ddof=0)",
             f"jnp.interp({x}.astype('float32'), jnp.arange(3.), jnp.array([1., 3., 2.]), left=9)",
             f"jnp.trapezoid({x}.astype('float32'), dx=0.5, axis={d})", f"jnp.argwhere({x}, size=3)",
             f"jnp.take_along_axis({x}, jnp.zeros({x}.shape, 'int32'), axis={g.choice(None, d)})",
             f"jnp.put_along_axis({x}, jnp.zeros({x}.shape, 'uint8'), 1, axis={d}, inplace=False)",
             f"jnp.packbits({x}.astype('uint8'), axis={d})", f"jnp.unpackbits({x}.astype('uint8'))"]
    return case(g, g.choice(*texts), t)


@family
def casting(g: Draw) -> Case:
    t, u = (g.dtype("float", "int", "bool", "complex", "small") for _ in range(2))
    x = g.arr(g.shape(0, 2), t, special=0.6)
    text = g.choice(f"{x}.astype('{u}')", f"jnp.asarray({x}, '{u}')",
                    f"lax.convert_element_type({x}, '{u}')", f"jnp.full_like({x}, 2.7, dtype='{u}')",
                    f"jnp.zeros_like({x}, dtype='{u}', shape=(2,))", f"jnp.result_type({x}, '{u}')")
    if u in ("int4", "uint4", *("float8_e4m3fn", "float8_e5m2")):
        text = text.replace(f"'{u}'", f"jnp.{u}")
    special = t in (*FLOATS, "float8_e4m3fn", "float8_e5m2") or "complex" in t
    found = case(g, text, slopes=False)
    if special and u not in FLOATS and "complex" not in u and u != "bool":
        g.arrays[0] = g.values(g.arrays[0].shape, t)
        if u[0] == "u":
            found.arrays = [abs(g.arrays[0])]
    return found


@family
def promotion(g: Draw) -> Case:
    t, u = (g.dtype("float", "int", "bool", "complex", "small") for _ in range(2))
    shape = g.shape(0, 2)
    x = g.arr(shape, t)
    y = g.choice(g.arr(g.choice(shape, ()), u), "2", "2.5", "1j", "True", "np.float32(2)",
                 "np.float64(2)", "np.int8(3)", "jnp.asarray(2.5)", "jnp.array(3)", "-1")
    name = g.choice("add", "multiply", "subtract", "maximum", "power", "true_divide", "where", "less",
                    "arctan2", "logaddexp", "hypot", "equal", "clip", "isclose", "concat", "einsum",
                    "floor_divide", "remainder", "copysign", "linspace", "fmin", "dot", "full")
    if name == "where":
        return case(g, f"jnp.where({g.arr((), 'bool')}, {x}, {y})", slopes=False)
    if name == "clip":
        return case(g, f"jnp.clip({x}, {y})", slopes=False)
    if name == "concat":
        return case(g, f"jnp.concatenate([jnp.ravel({x}), jnp.ravel({y})])", slopes=False)
    if name == "einsum":
        return case(g, f"jnp.einsum('...,...->...', {x}, {y})", slopes=False)
    if name == "linspace":
        end = g.chance(0.5)
        return case(g, f"jnp.linspace({x}, {y}, {g.int(0, 4)}, endpoint={end})", slopes=False)
    if name == "full":
        return case(g, f"jnp.full((2,), {y})", slopes=False)
    return case(g, f"jnp.{name}({x}, {y})", slopes=False, rtol=4)


@family
def ranges(g: Draw) -> Case:
    pick = lambda: g.choice("0", "3", "7.5", "-2", "np.int8(5)", "1e-3", "2.")
    text = g.choice(
        f"jnp.arange({pick()})", f"jnp.arange({pick()}, {pick()})", f"jnp.arange(0, {pick()}, 0.5)",
        f"jnp.arange(5, {pick()}, -1, dtype='{g.dtype('float', 'int')}')",
        f"jnp.linspace({pick()}, {pick()}, {g.int(0, 5)}, dtype='{g.dtype('float', 'int')}')",
        f"jnp.linspace({pick()}, {pick()}, {g.int(0, 5)}, retstep=True)",
        f"jnp.logspace({pick()}, 1, {g.int(0, 4)})", f"jnp.geomspace(1, 7.5, {g.int(0, 4)})",
        f"jnp.eye({g.int(0, 3)}, {g.int(0, 4)}, k={g.int(-2, 2)}, dtype='{g.dtype()}')",
        f"jnp.tri({g.int(0, 3)}, {g.int(0, 4)}, k={g.int(-2, 2)})", f"jnp.identity({g.int(0, 3)})",
        f"jnp.indices(({g.int(0, 3)}, 2), sparse={g.chance(0.5)})", f"jnp.hanning({g.int(0, 5)})",
        f"jnp.meshgrid(jnp.arange(2), jnp.arange({g.int(0, 3)}), indexing='{g.choice('ij', 'xy')}')",
        f"jnp.kaiser({g.int(0, 5)}, 2.)", f"jnp.blackman({g.int(0, 5)})", f"jnp.bartlett({g.int(0, 4)})",
        f"jnp.tril_indices({g.int(0, 4)}, {g.int(-2, 2)}, {g.int(1, 4)})", f"jnp.mask_indices(3, jnp.triu)",
        f"jnp.diag_indices({g.int(0, 3)}, {g.int(1, 3)})", f"jnp.vander(jnp.arange(3.), {g.int(0, 4)})",
        f"jnp.mgrid[0:{g.int(0, 3)}, 1:2:3j]", f"jnp.ogrid[0:{g.int(0, 3)}, 0:1]",
        f"jnp.r_[0:{g.int(0, 3)}, 5, jnp.arange(2)]", f"jnp.c_[jnp.arange(3), jnp.arange(3.)]",
        f"lax.iota('{g.dtype('float', 'int', 'small')}', {g.int(0, 4)})".replace("'int4'", "jnp.int4"),
        f"lax.broadcasted_iota('{g.dtype('float', 'int')}', (2, {g.int(0, 3)}), {g.int(0, 1)})",
    )
    return Case(text, [], g.x64, ())


@family
def activations(g: Draw) -> Case:
    t = g.dtype("float", "float", "float", "int")
    shape = g.shape(0, 3)
    x = g.arr(shape, t, special=0.3, low=-8, high=8)
    axis = g.axis(len(shape)) if shape else -1
    name = g.choice("relu", "relu6", "sigmoid", "softplus", "silu", "log_sigmoid", "elu", "selu",
                    "gelu", "celu", "leaky_relu", "hard_tanh", "hard_sigmoid", "hard_swish", "mish",
                    "soft_sign", "squareplus", "softmax", "log_softmax", "standardize", "glu",
                    "logsumexp", "sparse_plus", "sparse_sigmoid", "identity", "one_hot", "tanh",
                    "log1mexp", "logmeanexp", "gelu_exact", "swish")
    if name in ("softmax", "log_softmax", "logsumexp", "standardize", "logmeanexp"):
        where = ""
        if g.chance(0.4):
            where = f", where={g.arr(shape, 'bool')}"
        axis = g.choice(axis, None if name in ("logsumexp", "logmeanexp") else axis)
        return case(g, f"nn.{name}({x}, axis={axis}{where})", t, rtol=8)
    if name == "glu":
        return case(g, f"nn.glu(jnp.concatenate([{x}, {x}], {axis}), axis={axis})", t, rtol=4)
    if name == "one_hot":
        u = g.dtype("int", "float")
        text = f"nn.one_hot({g.arr(shape, u)}, {g.int(0, 4)}, dtype='{g.dtype()}', axis={axis})"
        return case(g, text)
    if name == "gelu_exact":
        return case(g, f"nn.gelu({x}, approximate=False)", t, rtol=8)
    return case(g, f"nn.{name}({x})", t, rtol=8)


@family
def attention(g: Draw) -> Case:
    t = g.choice("float32", "bfloat16", "float16")
    b, q, k, n, h = g.int(1, 2), g.int(1, 5), g.int(1, 5), g.int(1, 2), g.int(1, 4)
    kv = g.choice(1, n)
    x, y, z = (g.arr(s, t) for s in ((b, q, n, h), (b, k, kv, h), (b, k, kv, h)))
    options = ""
    if g.chance(0.4):
        options += f", bias={g.arr(g.choice((b, n, q, k), (1, 1, q, k), (1, n, 1, k)), t)}"
    if g.chance(0.4):
        options += f", mask={g.arr(g.choice((b, 1, q, k), (1, 1, q, k), (b, n, q, 1)), 'bool')}"
    if g.chance(0.4):
        options += ", is_causal=True"
    if g.chance(0.3):
        options += f", scale={g.choice(0.5, 2.0)}"
    if g.chance(0.3):
        options += f", query_seq_lengths={g.given(g.np.integers(1, q + 1, b).astype('int32'))}"
        options += f", key_value_seq_lengths={g.given(g.np.integers(1, k + 1, b).astype('int32'))}"
    if g.chance(0.3):
        options += f", local_window_size={g.choice('1', '(1, 0)', '(0, 2)')}"
    return case(g, f"nn.dot_product_attention({x}, {y}, {z}{options})", t, rtol=6)


@family
def random_numbers(g: Draw) -> Case:
    seed = g.int(0, 9)
    shape = g.shape(0, 2)
    t = g.choice("float32", "bfloat16", "float16", "float64" if g.x64 else "float32")
    i = g.dtype("int")
    key = g.choice(f"random.key({seed})", f"random.PRNGKey({seed})",
                   f"random.fold_in(random.key({seed}), {g.int(0, 2**31)})")
    n = g.int(1, 6)
    p = g.given(g.np.random(n).astype("float32") / n)
    batched = f"random.split({key}, {g.int(0, 3)})"
    texts = (
        f"random.bits({key}, {shape}, '{g.choice('uint8', 'uint16', 'uint32')}')",
        f"random.uniform({key}, {shape}, '{t}', minval=-1, maxval={g.choice(2, 0.5)})",
        f"random.randint({key}, {shape}, {g.int(-9, 0)}, {g.int(1, 9)}, '{i if i[0] != 'u' else 'int8'}')",
        f"random.randint({key}, {shape}, 0, {g.choice(3, 255, 128)}, '{i}')",
        f"random.bernoulli({key}, {p}, ({n},))", f"random.split({key}, {g.choice(3, (2, 2), 0)})",
        f"random.permutation({key}, {n})", f"random.permutation({key}, {p}, independent=True)",
        f"random.choice({key}, {n}, {shape}, p={p})", f"random.choice({key}, {p}, ({n},), replace=False)",
        f"random.choice({key}, {n}, ({n},), replace=False, p={p} + 0.01)",
        f"random.categorical({key}, jnp.log({p}), shape={shape})",
        f"random.categorical({key}, jnp.log({p}), shape=(2,), replace=False)" if n > 1 else
        f"random.categorical({key}, jnp.log({p}))",
        f"random.normal({key}, {shape}, '{t}')", f"random.truncated_normal({key}, -1, 2, {shape})",
        f"random.exponential({key}, {shape})", f"random.gumbel({key}, {shape}, '{t}')",
        f"random.laplace({key}, {shape})", f"random.cauchy({key}, {shape})", f"random.logistic({key}, {shape})",
        f"random.rademacher({key}, {shape}, '{i}')", f"random.ball({key}, {n}, shape={shape})",
        f"random.orthogonal({key}, {n}, {shape})", f"random.dirichlet({key}, {p} + 0.5, {shape})",
        f"random.multivariate_normal({key}, {p}, jnp.eye({n}))", f"random.gamma({key}, {p} + 1)",
        f"random.poisson({key}, {p} * 9)", f"random.beta({key}, {p} + 1, 2.)", f"random.t({key}, 3., {shape})",
        f"random.binomial({key}, 10, {p})", f"random.geometric({key}, {p} * 0.5 + 0.2)",
        f"random.weibull_min({key}, 1., 2., {shape})", f"random.pareto({key}, {p} + 1)",
        f"random.rayleigh({key}, 1., {shape})", f"random.wald({key}, {p} + 1)", f"random.f({key}, 2., 3., {shape})",
        f"random.maxwell({key}, {shape})", f"random.double_sided_maxwell({key}, 0., 1., {shape})",
        f"random.triangular({key}, 0., {p}, 1.)", f"random.lognormal({key}, shape={shape})",
        f"random.loggamma({key}, {p} + 0.1)", f"random.chisquare({key}, {p} + 1)",
        f"random.generalized_normal({key}, 1.5, {shape})", f"random.multinomial({key}, 5, {p})",
        f"jax.vmap(lambda k: random.uniform(k, {shape}))({batched})",
        f"jax.vmap(lambda k: random.permutation(k, {n}))({batched})",
        f"jax.vmap(lambda k: random.split(k))({batched})", f"random.clone({key})",
        f"lax.scan(lambda k, _: (random.split(k)[0], random.normal(k, (2,))), {key}, None, length=3)",
        f"lax.fori_loop(0, 3, lambda i, k: random.fold_in(k, i), {key})",
        f"lax.cond({p}[0] > 0.1, lambda k: random.split(k)[0], lambda k: k, {key})",
        f"lax.scan(lambda c, k: (c + random.uniform(k), k), 0., {batched})",
        f"lax.map(lambda k: random.bits(k), {batched})", f"jnp.concatenate([{batched}, {batched}])[::2]",
        f"jnp.where({p}[0] > 0.1, {key}, random.fold_in({key}, 1))", f"{batched}.at[0].set({key})",
    )
    return Case(g.choice(*texts), g.arrays, g.x64, ("jit",), rtol=40)


@family
def statistics(g: Draw) -> Case:
    t = g.choice("float32", "float64" if g.x64 else "float32")
    shape = g.shape(0, 2)
    x = g.arr(shape, t, low=0.05, high=0.95)
    y = g.arr((), t, low=0.5, high=2.0)
    name = g.choice("norm", "laplace", "logistic", "cauchy", "expon", "uniform", "gamma", "beta", "t",
                    "chi2", "pareto", "truncnorm", "gennorm", "poisson", "bernoulli", "binom",
                    "geom", "nbinom", "dirichlet", "multivariate_normal", "betabinom", "vonmises",
                    "wrapcauchy", "gumbel_r", "gumbel_l")
    f = g.choice("logpdf", "pdf", "cdf", "logcdf", "sf", "logsf", "ppf")
    if name in ("gamma", "t", "chi2", "pareto", "gennorm"):
        return case(g, f"jsp.stats.{name}.{f}({x}, {y}) if hasattr(jsp.stats.{name}, '{f}') else 0", t,
                    rtol=60)
    if name == "beta":
        return case(g, f"jsp.stats.beta.{f if f != 'ppf' else 'pdf'}({x}, {y}, {y} + 1)", t, rtol=60)
    if name == "truncnorm":
        return case(g, f"jsp.stats.truncnorm.{f if f != 'ppf' else 'pdf'}({x}, -1., {y})", t, rtol=60)
    if name in ("poisson", "bernoulli", "geom"):
        f = g.choice("logpmf", "pmf")
        return case(g, f"jsp.stats.{name}.{f}({g.arr(shape, 'int32')}, {y} * 0.4)", t, rtol=60)
    if name in ("binom", "nbinom"):
        return case(g, f"jsp.stats.{name}.logpmf({g.arr(shape, 'int32')}, 5, {y} * 0.4)", t, rtol=60)
    if name == "betabinom":
        return case(g, f"jsp.stats.betabinom.logpmf({g.arr(shape, 'int32')}, 5, {y}, 2.)", t, rtol=60)
    if name == "vonmises":
        return case(g, f"jsp.stats.vonmises.{g.choice('logpdf', 'pdf')}({x}, {y})", t, rtol=60)
    if name == "wrapcauchy":
        return case(g, f"jsp.stats.wrapcauchy.{g.choice('logpdf', 'pdf')}({x}, {y} * 0.4)", t, rtol=60)
    if name in ("dirichlet", "multivariate_normal"):
        z = g.arr((2, 3), t)
        return case(g, f"jsp.stats.multivariate_normal.logpdf({z}, jnp.zeros(3), jnp.eye(3) * {y})",
                    t, rtol=60)
    return case(g, f"jsp.stats.{name}.{f}({x}, {y}, {y} + 1) if hasattr(jsp.stats.{name}, '{f}') "
                f"else 0", t, rtol=60)


@family
def signals(g: Draw) -> Case:
    t = "float32"
    x, y = g.arr((g.int(3, 12),), t), g.arr((g.int(1, 4),), t)
    z, w = g.arr((4, 5), t), g.arr((2, 3), t)
    mode = g.choice("full", "same", "valid")
    text = g.choice(
        f"jsp.signal.convolve({x}, {y}, mode='{mode}')", f"jsp.signal.fftconvolve({z}, {w}, mode='{mode}')",
        f"jsp.signal.convolve2d({z}, {w}, mode='{mode}', boundary='{g.choice('fill', 'fill')}')",
        f"jsp.signal.correlate({x}, {y}, mode='{mode}')", f"jsp.signal.correlate2d({z}, {w}, mode='{mode}')",
        f"jsp.signal.detrend({z}, type='{g.choice('linear', 'constant')}')",
        f"jsp.signal.stft({x}, nperseg=4)", f"jsp.signal.welch({x}, nperseg=4)", f"jsp.signal.csd({x}, {x}, nperseg=4)",
        f"jsp.ndimage.map_coordinates({z}, [{g.arr((3,), t)} + 1, {g.arr((3,), t)} * 2], order={g.int(0, 1)}, "
        f"mode='{g.choice('constant', 'nearest', 'wrap', 'mirror', 'reflect')}')",
        f"jsp.fft.dct({z}, axis={g.int(0, 1)}, norm={g.choice(None, repr('ortho'))}, n={g.choice(None, 3, 7)})",
        f"jsp.fft.idct({z}, axis={g.int(0, 1)}, norm={g.choice(None, repr('ortho'))})", f"jsp.fft.dctn({z})",
        f"jax.image.resize({z}, ({g.int(1, 8)}, {g.int(1, 8)}), '{g.choice('nearest', 'linear', 'cubic', 'lanczos3', 'lanczos5')}', antialias={g.chance(0.5)})",
        f"jax.image.scale_and_translate({z}, (3, 4), (0, 1), jnp.array([0.8, 1.3]), jnp.array([0.1, -0.2]), 'linear')",
        f"jnp.polyfit({x}, {x}**2, 2)", f"jnp.roots(jnp.array([1., -3, 2]), strip_zeros=False)", f"jnp.polyint({y})", f"jnp.polyder({y}, 1)",
        f"jnp.convolve({x}, {y}, mode='{mode}')", f"jsp.integrate.trapezoid({x})" if False else f"jnp.trapezoid({x})",
        f"jsp.stats.rankdata({z}, method='{g.choice('average', 'min', 'max', 'dense', 'ordinal')}', axis={g.choice(None, 0, 1)})",
        f"jsp.stats.mode({g.arr((3, 4), 'int32')}, axis={g.choice(None, 0, 1)}, keepdims={g.chance(0.5)})",
        f"jsp.stats.sem({z}, axis={g.choice(None, 0, 1)})", f"jsp.stats.gaussian_kde({x})({y})",
        f"jsp.special.sph_harm_y(jnp.array([1]), jnp.array([2]), {y}[:1], {y}[:1], n_max=2)",
        f"jsp.cluster.vq.vq({z}, {z}[:2])" if False else f"jnp.unwrap({x} * 5, period={g.choice(3, 6.28)})",
    )
    return case(g, text, t, rtol=60)
