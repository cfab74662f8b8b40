"""Control flow and transformations that hold blocks, in any order inside of each other.

Each function adds one node with its blocks to a `Draw`. A while loop has no reverse mode: where one
is around, its operands are stopped and its body uses nothing else. A function with a rule of its
own for derivatives uses its parameters only, which is what JAX asks for.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.generated.data import Type


def _operands(g: Any, low: int = 1, high: int = 2, ints: bool = True) -> list[int]:
    """Some values to pass: a float, and others of any kind."""
    found = [g.some_float(0, 2)]
    while len(found) < g.rng.randint(low, high):
        v = g.pick(lambda s, t: len(s) <= 2 and (ints or t == g.dtype))
        found.append(found[0] if v is None else v)
    if ints and g.chance(0.2):
        found.append(g.some_int())
    return found


def _names(count: int, start: int = 0) -> str:
    return ", ".join(f"{{{i}}}" for i in range(start, start + count))


def _tuple(count: int, start: int = 0) -> str:
    return f"({_names(count, start)},)" if count else "()"


def _types(g: Any, vs: list[int]) -> list[Type]:
    return [g.types[v] for v in vs]


def _called(g: Any, op: str, text: str, ins: list[int], closed: bool = False) -> None:
    """A node that calls a function of its operands."""
    block = g.block(op, _types(g, ins), closed=closed)
    g.add_nest(op, f"{text}({_names(len(ins))})", ins, _types(g, block.outs), [block])


def jit(g: Any) -> None:
    _called(g, "jit", "jit({f0})", _operands(g))


POLICIES = (
    "", "", ", policy=policies.dots_saveable", ", policy=policies.everything_saveable",
    ", policy=policies.nothing_saveable", ", policy=policies.dots_with_no_batch_dims_saveable",
    ", policy=policies.save_only_these_names('a')", ", prevent_cse=False",
    ", policy=policies.save_any_names_but_these('b')",
    ", policy=policies.save_from_both_policies(policies.dots_saveable, "
    "policies.save_only_these_names('a'))",
)  # fmt: skip


def checkpoint(g: Any) -> None:
    _called(g, "checkpoint", f"checkpoint({{f0}}{g.choice(POLICIES)})", _operands(g))


def custom_jvp(g: Any) -> None:
    # Under vmap the rule's tangents are computed by themselves, and a custom_vjp has none, as in
    # JAX; elsewhere reverse mode takes the rule of the custom_vjp.
    mapped = bool({"vmap", "map"} & set(g.around))
    g.derived += 1
    g.forward += mapped
    _called(g, "custom_jvp", "with_jvp({f0})", _operands(g, ints=g.chance(0.3)), closed=True)
    g.derived -= 1
    g.forward -= mapped


def custom_vjp(g: Any) -> Any:
    if g.forward:
        return False
    g.derived += 1
    g.reverse += 1
    _called(g, "custom_vjp", "with_vjp({f0})", _operands(g, ints=g.chance(0.3)), closed=True)
    g.derived -= 1
    g.reverse -= 1


def linear_call(g: Any) -> None:
    r = g.some_float(0, 2)
    shape, dtype = g.types[r]
    x = g.pick(lambda s, t: (s, t) == (shape, dtype))
    texts = ["lambda r, x: r * x", "lambda r, x: r * x"]
    if len(shape) == 1:
        texts += ["lambda r, x: lax.cumsum(r * x)",
                  "lambda r, x: r * lax.cumsum(x, reverse=True)"]
        texts += ["lambda r, x: jnp.flip(x) * r", "lambda r, x: jnp.flip(x * r)"]
    if len(shape) == 2 and shape[0] == shape[1]:
        texts += ["lambda r, x: r @ x", "lambda r, x: r.T @ x"]
    at = 2 * g.rng.randrange(len(texts) // 2)
    pair = texts[at:at + 2]
    if g.chance(0.3) and pair[0] == pair[1]:  # a loop inside
        loop = "lambda r, x: scan(lambda c, _: ({}, None), x, None, length=L)[0]"
        pair = [loop.format("c * r"), loop.format("r * c")]
    if g.chance(0.3):
        pair = [f"jit({p})" for p in pair]
    g.add("linear_call", g.bound(f"linear_call({pair[0]}, {pair[1]}, {{0}}, {{1}})"), [r, x], shape,
          dtype)


def scan(g: Any) -> None:
    carry = _operands(g, 1, 2)
    first = g.pick(lambda s, t: 1 <= len(s) <= 3) if g.chance(0.6) else None
    xs = [] if first is None else [first]
    length = "L" if first is None else g.shape(first)[0]
    if first is not None and g.chance(0.3):
        more = g.pick(lambda s, t: len(s) >= 1 and s[0] == length)
        xs.append(more)
    rows = [(g.shape(v)[1:], g.kind(v)) for v in xs]
    types = _types(g, carry)
    block = g.block("scan", [*types, *rows], types, turns=length)
    ys = _more_outs(g, block)
    options = f", length={length}" if not xs or g.chance(0.3) else ""
    options += ", reverse=True" if g.chance(0.3) else ""
    options += f", unroll={g.choice(('2', 'True'))}" if g.chance(0.15) else ""
    k = len(carry)
    rows_text = _tuple(len(xs), k) if xs else "None"
    called = "{f0}(*c, *x)" if xs else "{f0}(*c)"
    text = f"flat(scan(lambda c, x: split({called}, {k}), {_tuple(k)}, {rows_text}{options}))"
    outs = types + [((length, *s), t) for s, t in _types(g, ys)]
    g.add_nest("scan", text, carry + xs, outs, [block])


def _more_outs(g: Any, block: Any) -> list[int]:
    """Further results of a block: values of it, in part the ones it returns already."""
    made = [v for n in block.nodes for v in n.outs] + block.params
    made = [v for v in made if len(g.shape(v)) <= 2]
    ys = [g.choice(made[-6:]) for _ in range(g.choice((0, 1, 1, 2))) if made]
    block.outs += ys
    return ys


def lax_map(g: Any) -> Any:
    x = g.pick(lambda s, t: 1 <= len(s) <= 3 and t == g.dtype)
    if x is None:
        return False
    n = g.shape(x)[0]
    block = g.block("map", [(g.shape(x)[1:], g.kind(x))], turns=n)
    size = ", batch_size=2" if g.chance(0.3) and g.size(n) else ""
    g.add_nest("map", f"lax.map({{f0}}, {{0}}{size})", [x],
               [((n, *s), t) for s, t in _types(g, block.outs)], [block])


def fori(g: Any) -> None:
    carry = _operands(g)
    types = _types(g, carry)
    block = g.block("fori", [((), "int32"), *types], types, turns="max(L, 3)")
    k = len(carry)
    high, ins = "L", list(carry)
    if not g.reverse and g.chance(0.5):
        high = f"jnp.abs({{{k}}}) % 4"
        ins.append(g.some_int(0))
    text = f"fori_loop(0, {high}, lambda i, c: {{f0}}(jnp.asarray(i, 'int32'), *c), {_tuple(k)})"
    g.add_nest("fori", text, ins, types, [block])


def while_(g: Any) -> None:
    carry = _operands(g)
    types = _types(g, carry)
    stopped = bool(g.reverse)
    block = g.block("while", types, types, closed=stopped, turns="max(L, 3)")
    k = len(carry)
    limit, ins = "c[0] < L", list(carry)
    if g.chance(0.6):
        limit = f"c[0] < {{{k}}} % 4"
        ins.append(g.some_int(0))
    names = [f"{{{i}}}" for i in range(k)]
    if stopped:
        names = [f"lax.stop_gradient({n})" for n in names]
        g.smooth = False
    text = (f"while_loop(lambda c: {limit}, lambda c: (c[0] + 1, *{{f0}}(*c[1:])), "
            f"(jnp.int32(0), {', '.join(names)},))[1:]")
    g.add_nest("while", text, ins, types, [block])


def _branches(g: Any, op: str, count: int) -> tuple[list[int], list[Type], list[Any]]:
    ins = _operands(g)
    types = _types(g, ins)
    first = g.block(op, types)
    wanted = _types(g, first.outs)
    return ins, wanted, [first, *[g.block(op, types, wanted) for _ in range(count - 1)]]


def cond(g: Any) -> None:
    ins, wanted, blocks = _branches(g, "cond", 2)
    b = g.pick(lambda s, t: s == () and t == "bool")
    test = "{0}"
    if b is None or g.chance(0.5):
        b, test = g.some_int(0), g.choice(("{0} % 2 == 0", "{0} > 1"))
    text = f"cond({test}, {{f0}}, {{f1}}, {_names(len(ins), 1)})"
    g.add_nest("cond", text, [b, *ins], wanted, blocks)


def switch(g: Any) -> None:
    ins, wanted, blocks = _branches(g, "switch", g.choice((1, 2, 3)))
    functions = ", ".join(f"{{f{i}}}" for i in range(len(blocks)))
    text = f"switch({{0}}, [{functions}], {_names(len(ins), 1)})"
    g.add_nest("switch", text, [g.some_int(0), *ins], wanted, blocks)


def vmap(g: Any) -> Any:
    x = g.pick(lambda s, t: 1 <= len(s) <= 3)
    if x is None:
        return False
    axis = g.rng.randrange(len(g.shape(x)))
    n = g.shape(x)[axis]
    if not g.size(n):
        return False
    ins, axes = [x], [str(axis)]
    for v in _operands(g):
        found = [i for i, d in enumerate(g.shape(v)) if d == n]
        ins.append(v)
        axes.append(str(g.choice(found)) if found and g.chance(0.6) else "None")
    types = []
    for v, a in zip(ins, axes):
        s, t = g.types[v]
        types.append((s, t) if a == "None" else ((*s[:int(a)], *s[int(a) + 1:]), t))
    named = g.chance(0.25)
    name = f"i{len(g.axes)}"
    g.axes += [(name, n)] * named
    block = g.block("vmap", types, turns=n)
    g.axes = g.axes[:-1] if named else g.axes
    ranks = [len(g.shape(v)) for v in block.outs]
    out = g.choice((0, 0, 1)) if min(ranks) > 0 else 0
    options = f"in_axes=({', '.join(axes)},), out_axes={out}"
    options += f", axis_name='{name}'" if named else ""
    text = f"vmap({{f0}}, {options})({_names(len(ins))})"
    outs = [((*s[:out], n, *s[out:]), t) for s, t in _types(g, block.outs)]
    g.add_nest("vmap", text, ins, outs, [block])


def grad(g: Any) -> None:
    ins = _operands(g, ints=g.chance(0.3))
    g.reverse += 1
    g.derived += 1
    block = g.block("grad", _types(g, ins), [((), g.dtype)])
    g.reverse -= 1
    g.derived -= 1
    floats = [i for i, v in enumerate(ins) if g.kind(v) == g.dtype]
    kind = g.choice(("grad", "value_and_grad"))
    call = f"{kind}(lambda *a: {{f0}}(*a)[0], {tuple(floats)})({_names(len(ins))})"
    types = [g.types[ins[i]] for i in floats]
    if kind == "value_and_grad":
        call, types = f"(lambda r: (r[0], *r[1]))({call})", [((), g.dtype), *types]
    outs = g.add_nest("grad", call, ins, types, [block])
    _bound(g, outs)


def _bound(g: Any, outs: list[int]) -> None:
    """Go on with derivatives that are kept moderate."""
    for v in outs:
        shape, dtype = g.types[v]
        g.scope.remove(v)
        if dtype == g.dtype:
            g.add("bound", g.bound("{0}"), [v], shape, dtype)


def jvp(g: Any) -> None:
    ins = _operands(g, ints=False)
    along = [g.pick(lambda s, t, v=v: (s, t) == g.types[v]) for v in ins]
    g.forward += 1
    g.derived += 1
    block = g.block("jvp", _types(g, ins), only=(g.dtype,))
    g.forward -= 1
    g.derived -= 1
    k = len(ins)
    if g.chance(0.6):
        text = f"flat(jvp({{f0}}, {_tuple(k)}, {_tuple(k, k)}))"
    else:
        text = f"(lambda r: (*r[0], *r[1]({_names(k, k)})))(linearize({{f0}}, {_names(k)}))"
    types = _types(g, block.outs)
    _bound(g, g.add_nest("jvp", text, ins + along, types + types, [block]))


def vjp(g: Any) -> None:
    ins = _operands(g, ints=False)
    g.reverse += 1
    g.derived += 1
    block = g.block("vjp", _types(g, ins), only=(g.dtype,))
    g.reverse -= 1
    g.derived -= 1
    text = f"(lambda r: (*r[0], *r[1](r[0])))(vjp({{f0}}, {_names(len(ins))}))"
    types = _types(g, block.outs) + _types(g, ins)
    _bound(g, g.add_nest("vjp", text, ins, types, [block]))


def jacobian(g: Any) -> None:
    x = g.some_float(0, 1)
    mode = g.choice(("jacrev", "jacfwd"))
    g.reverse += mode == "jacrev"
    g.forward += mode == "jacfwd"
    g.derived += 1
    block = g.block("jacobian", [g.types[x]], only=(g.dtype,))
    g.reverse -= mode == "jacrev"
    g.forward -= mode == "jacfwd"
    g.derived -= 1
    types = [(s + g.shape(x), t) for s, t in _types(g, block.outs)]
    _bound(g, g.add_nest("jacobian", f"{mode}({{f0}})({{0}})", [x], types, [block]))


CALLS = [
    (4, jit), (6, checkpoint), (2, custom_jvp), (2, custom_vjp), (2, linear_call), (7, scan),
    (2, lax_map), (3, fori), (3, while_), (4, cond), (3, switch), (4, vmap), (3, grad), (2, jvp),
    (2, vjp), (1, jacobian),
]  # fmt: skip
NAMES = ("jit", "checkpoint", "custom_jvp", "custom_vjp", "linear_call", "scan", "map", "fori",
         "while", "cond", "switch", "vmap", "grad", "jvp", "vjp", "jacobian")  # fmt: skip
assert Counter(c for _, c in CALLS).most_common(1)[0][1] == 1


def draw(g: Any) -> None:
    """Add one nest."""
    while True:
        call = g.rng.choices([c for _, c in g.nests], [w for w, _ in g.nests])[0]
        if call(g) is not False:
            return
