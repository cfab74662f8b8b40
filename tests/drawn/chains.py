"""Cases that chain operations on arrays of all dtypes: what the compiler rearranges and fuses."""

from __future__ import annotations

from tests.drawn.calls import COMPLEX, FLOATS, SLOPES, Case, Draw, examine

__all__ = ["draw", "examine"]


def draw(seed: int, index: int, only: str = "") -> tuple[str, Case]:
    """The case of a seed and an index."""
    g = Draw((seed, index, "chains"))
    chain = Chain(g)
    for _ in range(g.int(2, 9)):
        chain.step()
    ways = [g.choice("vmap", "jit_vmap")]
    if g.chance(0.6) and chain.smooth:
        ways.append(g.choice("grad", "grad", *SLOPES))
    lines = "; ".join(chain.lines)
    setup = f"def chain(*a):\n    {lines}\n    return {g.choice('x', '(x, y)', '(y, x, x)')}\n"
    return "chains", Case("chain(*a)", g.arrays, g.x64, tuple(ways), setup=setup, rtol=30,
                          floor=1.0)


class Chain:
    """The lines of a function so far; `x` is the value that goes on, `y` an older one."""

    def __init__(self, g: Draw) -> None:
        self.g = g
        self.smooth = True
        self.dtype = g.dtype("float", "float", "int", "complex", "bool")
        self.shape = g.shape(0, 4, 0.05)
        self.lines = [f"x = {g.arr(self.shape, self.dtype)}", "y = x"]

    def set(self, text: str, shape: tuple[int, ...] | None = None, dtype: str = "") -> None:
        if self.g.chance(0.4):
            self.lines.append("y = x")
        self.lines.append(f"x = {text}")
        self.shape = self.shape if shape is None else shape
        self.dtype = dtype or self.dtype

    def step(self) -> None:
        g, shape, r = self.g, self.shape, len(self.shape)
        kind = g.choice("move", "move", "einsum", "einsum", "arith", "arith", "reduce", "cast",
                        "pick", "unary", "unary", "join", "index", "grow", "loop", "update")
        getattr(self, kind)(g, shape, r)

    def move(self, g: Draw, shape: tuple[int, ...], r: int) -> None:
        kind = g.choice("T", "T", "reshape", "flip", "expand", "squeeze", "merge", "view")
        if kind == "T" and r > 1:
            perm = g.rng.sample(range(r), r)
            self.set(f"jnp.transpose(x, {tuple(perm)})", tuple(shape[i] for i in perm))
        elif kind == "reshape" and r:
            self.set("x.reshape(-1)" if 0 not in shape else "x.ravel()", (_size(shape),))
        elif kind == "merge" and r > 1:
            i = g.int(0, r - 2)
            new = (*shape[:i], shape[i] * shape[i + 1], *shape[i + 2:])
            self.set(f"x.reshape({new})", new)
        elif kind == "view" and r and shape[-1] % 2 == 0:
            new = (*shape[:-1], 2, shape[-1] // 2)
            self.set(f"x.reshape({new})", new)
        elif kind == "flip" and r:
            self.set(f"jnp.flip(x, {g.axis(r)})")
        elif kind == "expand" and r < 4:
            i = g.int(0, r)
            self.set(f"jnp.expand_dims(x, {i})", (*shape[:i], 1, *shape[i:]))
        elif kind == "squeeze" and 1 in shape:
            self.set("jnp.squeeze(x)", tuple(n for n in shape if n != 1))

    def einsum(self, g: Draw, shape: tuple[int, ...], r: int) -> None:
        labels = "abcdefgh"[:r]
        sizes = dict(zip(labels, shape, strict=True)) | {"p": g.int(1, 3), "q": 2}
        other = "".join(g.rng.sample(labels + "pq", g.int(0, min(3, r + 2))))
        seen = sorted(set(labels + other))
        out = "".join(c for c in g.rng.sample(seen, len(seen)) if g.chance(0.7))[:4]
        t = self.dtype if g.chance(0.8) else g.dtype("float", "int")
        if t == self.dtype and g.chance(0.2) and sorted(other) == sorted(labels):
            pass
        second = g.arr(tuple(sizes[c] for c in other), t)
        if g.chance(0.25):
            other, second = "".join(g.rng.sample(labels, r)), "x"
            if [sizes[c] for c in other] != list(shape):
                other = labels
            t = self.dtype
            out = "".join(g.rng.sample(labels, g.int(0, r)))
        operands, spec = ["x", second], [labels, other]
        if g.chance(0.5):
            operands.reverse(), spec.reverse()
        same = t == self.dtype
        text = f"jnp.einsum('{','.join(spec)}->{out}', {', '.join(operands)}) * 1"
        if not same:
            text = f"({text}).astype('{self.dtype}')"
        if self.dtype == "bool":
            text = f"({text}) > 0"
        self.set(text, tuple(sizes[c] for c in out))

    def arith(self, g: Draw, shape: tuple[int, ...], r: int) -> None:
        drop = g.int(0, r)
        other = tuple(1 if g.chance(0.3) else n for n in shape[drop:])
        y = g.choice(g.arr(other, self.dtype), "x", "2", "1")
        op = g.choice("{x} + {y}", "{x} * {y}", "{x} - {y}", "jnp.maximum({x}, {y})", "{x} == {y}",
                      "jnp.where({x} > {y}, {x}, {y})", "jnp.minimum({y}, {x})", "{x} // {y}",
                      "{x} % {y}", "{x} & {y}", "{x} ^ {y}", "{x} << {y}", "{x} >> {y}")
        if self.dtype in (*FLOATS, *COMPLEX) and op[4] in "&^<>/%":
            op = "{x} / (2 + {y} * {y})" if self.dtype in FLOATS else "{x} * {y} - {x}"
        if self.dtype in COMPLEX and ("m" in op or "w" in op):
            op = "{x} * jnp.conj({y})"
        if self.dtype == "bool" and op[4] not in "&^=":
            op = "{x} | ({y} == 1)"
        if self.dtype == "bool" and y in ("2", "1"):
            y = "True"
        text = op.format(x="x", y=y)
        if "==" in text and self.dtype != "bool":
            text = f"jnp.where({text}, x, -x)"
        if "//" in op or " % " in op:
            self.smooth = False
        self.set(f"({text}).astype('{self.dtype}')")

    def unary(self, g: Draw, shape: tuple[int, ...], r: int) -> None:
        t = self.dtype
        texts = ["-x", "x * x", "abs(x)", "jnp.sign(x)", "jnp.square(x)"]
        if t in FLOATS:
            texts += ["jnp.sin(x)", "jnp.tanh(x)", "jnp.exp(-x * x)", "nn.sigmoid(x)", "nn.gelu(x)",
                      "nn.relu(x)", "jnp.sqrt(1 + x * x)", "lax.erf(x)", "lax.stop_gradient(x)"]
            if r and shape[-1]:
                texts += ["nn.softmax(x)", "x - x.mean(-1, keepdims=True)", "nn.log_softmax(x, 0)",
                          "x / (1 + jnp.linalg.norm(x, axis=-1, keepdims=True))",
                          "nn.standardize(x, 0, epsilon=0.1)"] if shape[0] else []
        elif t in COMPLEX:
            texts = ["-x", "jnp.conj(x)", "x * 1j", "x * x", "jnp.sin(x) * 0.3", "1j + x.real",
                     "x.imag + x", "jnp.exp(1j * x.real)", "x / (3 + abs(x))"]
        elif t == "bool":
            texts = ["~x", "x & True", "x ^ ~x"]
        else:
            texts += ["~x", "x >> 1", "x * 3 + 1", "x % 3", "x // 2", "jnp.clip(x, 0, 3)"]
        text = g.choice(*texts)
        if "abs" in text or "sign" in text or "relu" in text or "stop" in text:
            self.smooth = self.smooth and "stop" not in text
        self.set(f"({text}).astype('{t}')")

    def reduce(self, g: Draw, shape: tuple[int, ...], r: int) -> None:
        if not r or 0 in shape:
            return
        axes = tuple(sorted(g.rng.sample(range(r), g.int(1, min(2, r)))))
        keep = g.chance(0.3)
        new = tuple(1 if i in axes else n for i, n in enumerate(shape) if keep or i not in axes)
        names = ["sum", "sum", "max", "min", "mean", "prod", "any", "all"]
        name = g.choice(*names) if self.dtype not in COMPLEX else g.choice("sum", "mean", "prod")
        text = f"jnp.{name}(x, axis={axes}, keepdims={keep}).astype('{self.dtype}')"
        if name in ("any", "all"):
            self.smooth = False
        self.set(text, new)

    def cast(self, g: Draw, shape: tuple[int, ...], r: int) -> None:
        t = g.dtype("float", "float", "int", "bool")
        if self.dtype in COMPLEX:
            self.set(f"(x.real + x.imag).astype('{t if t in FLOATS else 'float32'}')",
                     dtype=t if t in FLOATS else "float32")
            return
        source = "x"
        if self.dtype in FLOATS and t not in FLOATS:
            source, self.smooth = "jnp.clip(jnp.nan_to_num(x), 0, 100)", False
        self.set(f"{source}.astype('{t}')", dtype=t)

    def pick(self, g: Draw, shape: tuple[int, ...], r: int) -> None:
        if not r:
            return
        i = g.int(0, r - 1)
        n = shape[i]
        low = g.int(0, n)
        step = g.choice(1, 1, 2, -1)
        if step == 1:
            high = g.int(low, n)
            at, size = f"{low}:{high}", high - low
        else:
            at = f"::{step}"
            size = len(range(n)[::step])
        index = ", ".join([":"] * i + [at])
        self.set(f"x[{index}]", (*shape[:i], size, *shape[i + 1:]))

    def index(self, g: Draw, shape: tuple[int, ...], r: int) -> None:
        if not r or 0 in shape:
            return
        i = g.int(0, r - 1)
        k = g.int(0, 3)
        n = g.given(g.np.integers(0, shape[i], k).astype(g.choice("int32", "int8", "uint8")))
        self.set(f"jnp.take(x, {n}, axis={i}, mode='clip')", (*shape[:i], k, *shape[i + 1:]))

    def update(self, g: Draw, shape: tuple[int, ...], r: int) -> None:
        if not r or 0 in shape:
            return
        n = g.arr((), "int32")
        if g.chance(0.5):
            op = "set" if self.dtype == "bool" else g.choice("set", "add", "multiply")
            self.set(f"x.at[{n} % {shape[0]}].{op}(x[0])")
        else:
            part = ", ".join("0:1" for _ in shape)
            self.set(f"lax.dynamic_update_slice(x, x[{part}], ({n},{' 0,' * (r - 1)}))")

    def join(self, g: Draw, shape: tuple[int, ...], r: int) -> None:
        if not r or r > 3:
            return
        i = g.int(0, r - 1)
        if g.chance(0.5):
            self.set(f"jnp.concatenate([x, x[::-1], x], {i})",
                     (*shape[:i], 3 * shape[i], *shape[i + 1:]))
        else:
            self.set(f"jnp.stack([x, jnp.flip(x)], {i})", (*shape[:i], 2, *shape[i:]))
        if _size(self.shape) > 400:
            self.set("x[:1]", (min(1, self.shape[0]), *self.shape[1:]))

    def grow(self, g: Draw, shape: tuple[int, ...], r: int) -> None:
        if r > 3 or _size(shape) > 200:
            return
        if g.chance(0.5) or not r:
            self.set(f"jnp.broadcast_to(x, (2, *{shape}))", (2, *shape))
        else:
            widths = [(g.int(0, 1), g.int(0, 2), 0) for _ in shape]
            new = tuple(n + low + high for n, (low, high, _) in zip(shape, widths, strict=True))
            self.set(f"lax.pad(x, jnp.asarray(1, x.dtype), {widths})", new)

    def loop(self, g: Draw, shape: tuple[int, ...], r: int) -> None:
        t = self.dtype
        if r and t not in ("bool",):
            i = g.int(0, r - 1)
            texts = [f"lax.cumsum(x, {i}, reverse={g.chance(0.5)})", f"jnp.sort(x, {i})"]
            if t not in COMPLEX:
                texts += [f"lax.cummax(x, {i})", f"jnp.argsort(x, {i}).astype('{t}')"]
            if i == 0:
                texts += ["lax.scan(lambda c, s: (c + s, c * s), x[:1].sum(0), x)[1]",
                          "lax.map(lambda s: s * 2 + x[:1].sum(0), x)"]
            text = g.choice(*texts)
            if "sort" in text:
                self.smooth = False
            self.set(f"({text}).astype('{t}')")
        elif not r:
            self.set("lax.cond(x == x, lambda v: v, lambda v: v, x)")


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size
