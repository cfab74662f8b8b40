"""Cases of linen modules: compositions of layers under lifted transformations, with state, sharing,
dtypes, masks and metadata, against flax.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.drawn.calls import Case, Draw, examine

__all__ = ["draw", "examine"]

FAMILIES: dict[str, Callable[[Draw], Case]] = {}

SETUP = '''
from typing import Any, Callable, Optional
import dataclasses

def streams(n=0):
    return {name: random.key(i + n) for i, name in enumerate(("params", "dropout", "noise"))}

def flat(t):
    return [(jax.tree_util.keystr(p), v) for p, v in jax.tree_util.tree_leaves_with_path(t)]

def number(out):
    total = 0.
    for v in jax.tree.leaves(out):
        if jnp.issubdtype(v.dtype, jnp.floating):
            v = v.astype(jnp.float32)
            total = total + (v * jnp.cos(jnp.arange(v.size)).reshape(v.shape)).sum()
    return total

def run(m, *args, grads=True, mutable=("batch_stats", "cache", "intermediates", "counts", "spectral", "perturbations"), **kw):
    def whole(*args):
        variables = m.init(streams(), *args, **kw)
        params = variables.get("params", {})
        rest = {k: v for k, v in variables.items() if k != "params"}
        call = lambda p: m.apply({"params": p, **rest}, *args, rngs=streams(5), mutable=list(mutable), **kw)
        out = call(params)
        def loss(p):
            o, s = call(p)
            return number(o) + number(s)
        return variables, out, jax.grad(loss)(params) if grads else None
    compiled = jax.jit(whole)(*args)
    shapes = jax.eval_shape(lambda: m.init(streams(), *args, **kw))
    return flat(compiled), [(jax.tree_util.keystr(p), str(v.shape), str(v.dtype)) for p, v in jax.tree_util.tree_leaves_with_path(shapes)]

class Block(linen.Module):
    features: int = 3
    rate: float = 0.5
    dtype: Any = None
    @linen.compact
    def __call__(self, x, train: bool = True):
        x = linen.Dense(self.features, dtype=self.dtype, name="in")(x)
        x = linen.Dropout(self.rate, deterministic=not train)(x)
        self.sow("intermediates", "h", x)
        n = self.variable("counts", "n", lambda: jnp.zeros((), jnp.int32))
        if not self.is_initializing() and self.is_mutable_collection("counts"):
            n.value += 1
        x = self.perturb("p", x)
        return linen.tanh(x)

class Pure(linen.Module):
    features: int = 3
    dtype: Any = None
    param_dtype: Any = jnp.float32
    @linen.compact
    def __call__(self, x):
        w = self.param("w", linen.initializers.lecun_normal(), (x.shape[-1], self.features), self.param_dtype)
        b = self.param("b", linen.initializers.normal(0.1), (self.features,), self.param_dtype)
        x, w, b = linen.dtypes.promote_dtype(x, w, b, dtype=self.dtype)
        return linen.tanh(x @ w + b)

class Setup(linen.Module):
    n: int = 2
    def setup(self):
        self.layers = [Pure(name=None) for _ in range(self.n)]
        self.table = {"a": Pure(), "b": linen.Dense(3, use_bias=False)}
        self.scale = self.param("scale", linen.initializers.ones, (3,))
    def __call__(self, x):
        for f in self.layers:
            x = f(x) + x
        return self.table["a"](x) * self.scale + self.table["b"](x)
    def other(self, x):
        return self.table["b"](x)

class Shared(linen.Module):
    inner: linen.Module
    times: int = 2
    @linen.compact
    def __call__(self, x):
        for _ in range(self.times):
            x = self.inner(x)
        return x

class Body(linen.Module):
    inner: linen.Module
    @linen.compact
    def __call__(self, c, x):
        y = self.inner(c)
        return y * 0.5 + x, y.sum(-1)

class Stateful(linen.Module):
    train: bool = True
    axis_name: Any = None
    @linen.compact
    def __call__(self, x):
        x = linen.BatchNorm(use_running_average=not self.train, axis_name=self.axis_name)(x)
        return linen.relu(linen.Dense(3)(x))

@dataclasses.dataclass(kw_only=True)
class Options:
    k: int = 3

class Base(linen.Module):
    k: int
    scale: float = 1.0
class Derived(Base):
    extra: int = 2
    @linen.compact
    def __call__(self, x):
        return linen.Dense(self.k + self.extra)(x) * self.scale
    @linen.nowrap
    def helper(self):
        return self.k
'''


def family(f: Callable[[Draw], Case]) -> Callable[[Draw], Case]:
    """Register a family by the name of its function."""
    FAMILIES[f.__name__] = f
    return f


def draw(seed: int, index: int, only: str = "") -> tuple[str, Case]:
    """The family and the case of a seed and an index."""
    g = Draw((seed, index))
    g.x64 = g.x64 and g.chance(0.3)
    name = only or g.choice(*FAMILIES)
    return name, FAMILIES[name](g)


def case(g: Draw, text: str, extra: str = "") -> Case:
    return Case(text, g.arrays, g.x64, (), setup=SETUP + extra, rtol=80, floor=0.3)


def same(g: Draw, depth: int) -> str:
    """A module of (2, 3) to (2, 3)."""
    if depth == 0:
        return g.choice("Block()", "Block(dtype=jnp.bfloat16)", "Pure()", "Pure(dtype=jnp.float16)",
                        "linen.Dense(3)", "Pure(param_dtype=jnp.bfloat16)", "Stateful()", "Setup()",
                        "Stateful(train=False)", "linen.LayerNorm()", "linen.RMSNorm()",
                        "linen.Sequential([linen.Dense(4), linen.relu, linen.Dense(3)])",
                        "linen.DenseGeneral((3,), axis=-1)", "linen.Dropout(0.3, deterministic=False)",
                        "linen.GroupNorm(num_groups=3)", "linen.WeightNorm(linen.Dense(3))",
                        "linen.Einsum((3, 3), '...i,ij->...j')", "linen.BatchNorm(use_running_average=False, momentum=0.8)",
                        "linen.LoRA(3)" if False else "linen.Dense(3, kernel_init=linen.with_partitioning(linen.initializers.ones, ('a', None)))",
                        "linen.Dense(3, param_dtype=jnp.bfloat16, dtype=jnp.float32)", "linen.PReLU()",
                        "linen.Dense(3, bias_init=linen.with_logical_partitioning(linen.initializers.zeros, ('e',)))",
                        "linen.InstanceNorm(use_scale=False) if 0 else linen.Dense(3, dtype='float16')")
    inner = same(g, depth - 1)
    ctor = g.choice("Pure", "Block", "Setup", "Stateful", "linen.LayerNorm")
    free = "variable_axes={True: 0}" if False else (
        "variable_axes={'params': 0, 'batch_stats': 0, 'counts': 0, 'intermediates': 0, 'perturbations': 0}, "
        "split_rngs={'params': True, 'dropout': " + str(g.chance(0.5)) + ", 'noise': True}")
    shared = ("variable_axes={'batch_stats': 0, 'counts': 0, 'intermediates': 0, 'perturbations': 0}, "
              "variable_broadcast='params', split_rngs={'params': False, 'dropout': True}")
    lifted = g.choice(free, shared)
    meta = ", metadata_params={'partition_name': 'layers'}"
    return g.choice(
        f"Shared({inner}, {g.int(1, 3)})", f"linen.remat({ctor})()", f"linen.jit({ctor})()", f"linen.checkpoint(linen.jit({ctor}))()",
        f"Shared(linen.remat({ctor})(), 2)",
        f"Apart(linen.vmap({ctor}, in_axes=0, out_axes=0, axis_size=2, {lifted}{g.choice('', meta)})())" if 0 else
        f"linen.vmap({ctor}, in_axes=0, out_axes=0, axis_size=2, {lifted}{g.choice('', meta)})()",
        f"Scanned({inner}, {g.int(1, 3)}, {g.chance(0.5)}, {g.chance(0.5)}, {g.int(1, 2)}, {g.chance(0.3)})",
        f"Scanned({inner}, 2, True, {g.chance(0.5)}, 1, True)",
        f"linen.Sequential([{inner}, {same(g, 0)}])", f"Branches({inner}, {same(g, 0)}, '{g.choice('cond', 'switch')}')",
        f"linen.WeightNorm(linen.Dense(3), variable_filter={{'kernel'}}, feature_axes={g.choice(-1, None, 0)})",
        "linen.SpectralNorm(linen.Dense(3), collection_name='spectral')" if False else f"Spectral({g.chance(0.7)})",
        f"Looped({same(g, 0)}, {g.int(1, 3)})", f"Custom({inner})", f"Mapped({inner})", f"Named({inner}, 'q')",
        f"{ctor}().clone()", f"Twice({ctor})",
    )  # fmt: skip


EXTRA = '''
class Scanned(linen.Module):
    inner: linen.Module
    length: int
    split: bool
    remat: bool
    unroll: int = 1
    boxed: bool = False
    @linen.compact
    def __call__(self, x):
        kind = {"params": 0, "batch_stats": 0, "counts": 0, "intermediates": 0, "perturbations": 0, "spectral": 0}
        broadcast = False
        if not self.split:
            kind.pop("params")
            broadcast = "params"
        body = linen.remat(Body, prevent_cse=False) if self.remat else Body
        scanned = linen.scan(body, variable_axes=kind, variable_broadcast=broadcast, length=self.length, unroll=self.unroll,
                             split_rngs={"params": self.split, "dropout": True, "noise": False}, in_axes=linen.broadcast,
                             metadata_params={linen.PARTITION_NAME: "stack"} if self.boxed else {})
        c, ys = scanned(self.inner)(x.astype(jnp.float32), jnp.float32(0.1))
        return c + ys.sum(0)[..., None]

class Branches(linen.Module):
    a: linen.Module
    b: linen.Module
    how: str
    @linen.compact
    def __call__(self, x):
        x = x.astype(jnp.float32)
        fs = [lambda m, v: m.a(v).astype(jnp.float32), lambda m, v: m.b(v).astype(jnp.float32)]
        if self.is_initializing():
            self.a(x), self.b(x)
        if self.how == "cond":
            return linen.cond(x.sum() > 0, fs[0], fs[1], self, x)
        return linen.switch(jnp.int32(x.sum() > -1), fs, self, x)

class Looped(linen.Module):
    inner: linen.Module
    n: int
    @linen.compact
    def __call__(self, x):
        x = x.astype(jnp.float32)
        if self.is_initializing():
            return self.inner(x)
        carry = ["batch_stats", "counts"]
        body = lambda m, c: (c[0] + 1, m.inner(c[1]).astype(jnp.float32))
        return linen.while_loop(lambda m, c: c[0] < self.n, body, self, (0, lax.stop_gradient(x)), carry_variables=carry,
                                split_rngs={"dropout": True})[1] + x

class Custom(linen.Module):
    inner: linen.Module
    @linen.compact
    def __call__(self, x):
        f = lambda m, v: m.inner(v)
        fwd = lambda m, v: linen.vjp(f, m, v)
        bwd = lambda vjp_fn, ct: (jax.tree.map(jnp.sign, vjp_fn(ct)[0]), vjp_fn(ct)[1])
        return linen.custom_vjp(f, fwd, bwd)(self, x)

class Mapped(linen.Module):
    inner: linen.Module
    @linen.compact
    def __call__(self, x):
        double = lambda vs: jax.tree.map(lambda v: v * 2, vs)
        half = lambda vs: jax.tree.map(lambda v: v / 2, vs)
        f = linen.map_variables(lambda m, v: m.inner(v), "params", double, half, mutable=True, init=self.is_initializing())
        return f(self, x)

class Spectral(linen.Module):
    update: bool
    @linen.compact
    def __call__(self, x):
        return linen.SpectralNorm(linen.Dense(3), collection_name="spectral")(x, update_stats=self.update)

class Named(linen.Module):
    inner: linen.Module
    label: str
    @linen.compact
    def __call__(self, x):
        with jax.named_scope("s"):
            y = Shared(self.inner, name=self.label)(x)
        return y + Pure(name="p")(x) if self.has_variable("params", "p") or self.is_initializing() else y

class Twice(linen.Module):
    kind: Any
    def setup(self):
        self.f = self.kind()
        self.g = Shared(self.f, 1)
    def __call__(self, x):
        return self.f(x) + self.g(x)
'''


@family
def compositions(g: Draw) -> Case:
    x = g.arr((2, 3), g.choice("float32", "float32", "bfloat16"))
    module = same(g, g.int(0, 3))
    grads = "Looped" not in module  # flax has no reverse mode of a while loop
    return case(g, f"run({module}, {x}, grads={grads})", EXTRA)


@family
def attention(g: Draw) -> Case:
    x, y = g.arr((2, 4, 6), "float32"), g.arr((2, 4, 6), g.choice("float32", "bfloat16"))
    options = "".join(o for o in (
        ", dtype=jnp.bfloat16", ", dropout_rate=0.3, broadcast_dropout=False", ", use_bias=False",
        ", qkv_features=12", ", out_features=5", ", normalize_qk=True", ", param_dtype=jnp.float16",
        ", kernel_init=linen.with_partitioning(linen.initializers.ones, ('a', None, 'b'))",
        ", force_fp32_for_softmax=True",
    ) if g.chance(0.25))  # fmt: skip
    mask = g.choice("", f", mask=linen.make_causal_mask({x}[..., 0])",
                    f", mask=linen.combine_masks(linen.make_causal_mask({x}[..., 0]), linen.make_attention_mask({x}[..., 0] > 0, {x}[..., 0] > 0))")
    text = g.choice(f"run(linen.MultiHeadDotProductAttention(num_heads={g.choice(1, 2, 3)}{options}), {x}, {y}, deterministic=False{mask})",
                    f"run(linen.SelfAttention(num_heads={g.choice(1, 2, 4)}{options}), {x}, deterministic=False{mask})",
                    f"run(linen.MultiHeadAttention(num_heads=2{options}), {x}, inputs_k={x}, inputs_v={y}, deterministic=True, sow_weights=True{mask})",
                    f"decode({x}, dict(num_heads=2{options}))", f"decode({x}, dict(num_heads=2, deterministic=True{options}))")
    extra = '''
def decode(x, options):
    m = linen.MultiHeadDotProductAttention(decode=True, **{"deterministic": True, **options})
    v = m.init(streams(), x)
    outs, cache = [], v["cache"]
    for i in range(x.shape[1]):
        o, s = m.apply({"params": v["params"], "cache": cache}, x[:, i:i + 1], mutable=["cache"])
        cache = s["cache"]
        outs.append(o)
    return outs, flat(cache)
'''
    return case(g, text, extra)


@family
def recurrent(g: Draw) -> Case:
    x = g.arr((3, 4, 2), "float32")
    lengths = g.given(g.np.integers(1, 5, 3).astype("int32"))
    cell = g.choice("linen.LSTMCell(3)", "linen.GRUCell(3)", "linen.OptimizedLSTMCell(3)", "linen.SimpleCell(3)", "linen.MGUCell(3)",
                    "linen.SimpleCell(3, residual=True)", "linen.OptimizedLSTMCell(3, dtype=jnp.bfloat16)", "linen.LSTMCell(3, param_dtype=jnp.float16)",
                    "linen.GRUCell(3, activation_fn=linen.relu)", "linen.MGUCell(3, reset_gate=False)", "linen.RNNCellBase() if 0 else linen.LSTMCell(3, gate_fn=linen.hard_sigmoid)")
    options = "".join(o for o in (", return_carry=True", ", reverse=True", ", keep_order=True", ", unroll=2", ", time_major=True",
                                  ", variable_broadcast='params'", ", split_rngs={'params': False, 'dropout': True}") if g.chance(0.3))
    lens = g.choice("", f", seq_lengths={lengths}")
    if "time_major" in options:
        x, lens = f"jnp.swapaxes({x}, 0, 1)", ""
    text = g.choice(f"run(linen.RNN({cell}{options}), {x}{lens})",
                    f"run(linen.Bidirectional(linen.RNN({cell}), linen.RNN(linen.GRUCell(3))), {x}{lens})" if "time" not in options else f"run(linen.RNN({cell}{options}), {x})",
                    f"run(linen.RNN({cell}{options}), {x}{lens}, initial_carry=None)",
                    f"run(linen.Bidirectional(linen.RNN(linen.SimpleCell(3)), linen.RNN(linen.SimpleCell(3)), merge_fn=lambda p, q: p * q, return_carry=True), {g.arr((2, 4, 3), 'float32')}{g.choice('', ', seq_lengths=jnp.array([2, 4])')})",
                    f"run(linen.RNN(linen.ConvLSTMCell(2, (2, 2))), {g.arr((1, 3, 4, 4, 2), 'float32')})")
    return case(g, text)


@family
def convolutions(g: Draw) -> Case:
    x = g.arr(g.choice((2, 5, 5, 4), (5, 5, 4), (2, 1, 5, 5, 4)), g.choice("float32", "bfloat16"))
    options = "".join(o for o in (", use_bias=False", ", dtype=jnp.bfloat16", ", kernel_dilation=2", ", mask=jnp.ones((2, 2, 4, 4)).at[0].set(0)") if g.chance(0.25))
    padding = g.choice("'SAME'", "'VALID'", "'CIRCULAR'", "'CAUSAL'", "1", "((1, 0), (0, 2))", "[1, (0, 1)]")
    text = g.choice(f"run(linen.Conv(4, (2, 2), strides={g.choice(1, 2, (1, 2), None)}, padding={padding}{options}), {x})",
                    f"run(linen.Conv(4, (2, 2), feature_group_count={g.choice(1, 2, 4)}, input_dilation={g.choice(1, 2)}), {x})",
                    f"run(linen.ConvTranspose(4, (2, 2), strides={g.choice(None, (2, 2), (1, 2))}, padding={padding}, transpose_kernel={g.chance(0.5)}), {x})",
                    f"run(linen.ConvLocal(4, (2, 2), padding='VALID'), {x})", f"run(linen.Conv(4, 2), {x}[..., 0, :])", f"run(linen.Conv(4, (3,), padding={g.choice(repr('CAUSAL'), repr('SAME'))}), {x}[..., 0, :])",
                    f"linen.max_pool({x}, (2, 2), strides={g.choice(None, (2, 2), (1, 2))}, padding={g.choice(repr('SAME'), repr('VALID'), '((1, 0), (0, 1))')})",
                    f"linen.avg_pool({x}, (2, 3), padding={g.choice(repr('SAME'), repr('VALID'), '((1, 0), (0, 1))')}, count_include_pad={g.chance(0.5)})", f"linen.min_pool({x}, (2, 2))", f"linen.pool({x}, 0., lax.add, (2, 2), (1, 1), 'SAME')",
                    f"run(linen.Embed(5, 3, dtype={g.choice(None, 'jnp.bfloat16')}), jnp.array([[0, 4], [7, -1]]))", f"run(linen.BatchNorm(use_running_average=False, axis={g.choice(-1, 0, (0, 1))}, use_bias={g.chance(0.5)}, use_fast_variance={g.chance(0.5)}), {x})",
                    f"run(linen.BatchNorm(use_running_average=False), {x}, mask={x} > 0)", f"run(linen.LayerNorm(reduction_axes={g.choice(-1, (0, 1), (-2, -1))}, feature_axes={g.choice(-1, (1, -1))}, use_fast_variance={g.chance(0.5)}), {x}{g.choice('', f', mask={x} > 0')})",
                    f"run(linen.GroupNorm({g.choice('num_groups=2', 'num_groups=None, group_size=2', 'num_groups=3')}), {x})", f"run(linen.InstanceNorm(), {x})", f"run(linen.RMSNorm(epsilon=0.1, dtype=jnp.bfloat16), {x})",
                    f"run(linen.DenseGeneral({g.choice('5', '(2, 3)')}, axis={g.choice('-1', '(-2, -1)')}, batch_dims={g.choice('()', '(0,)')}), {x})", f"run(linen.Einsum((4, 2, 3), '...c,chd->...hd', (2, 3)), {x})", f"run(linen.Dropout(0.4, broadcast_dims=(1,), deterministic=False), {x})")  # fmt: skip
    return case(g, text)


@family
def functions(g: Draw) -> Case:
    """Methods of modules: bind, clone, capture, interception, tables, mistakes."""
    x = g.arr((2, 3), "float32")
    filters = g.choice("True", "lambda m, n: n == '__call__'", "lambda m, n: isinstance(m, linen.Dense)", "lambda m, n: m.name == 'in'")
    deep = "Shared(linen.Sequential([Block(), Setup()]), 1)"
    text = g.choice(
        f"flat({deep}.apply({deep}.init(streams(), {x}), {x}, rngs=streams(3), capture_intermediates={filters}, mutable=['intermediates']))",
        f"flat({deep}.init_with_output(streams(), {x}))", f"flat(Setup().init(streams(), {x}, method='other'))", f"flat(Setup().init(streams(), {x}, method=Setup.other))",
        f"flat({deep}.init(streams(), {x}, mutable=['params']))", f"flat({deep}.init(streams(), {x}, capture_intermediates=True))", f"flat({deep}.lazy_init(streams(), jax.ShapeDtypeStruct((2, 3), 'float32')))",
        f"sorted(linen.module_paths({deep}, streams(), {x})) if hasattr(linen, 'module_paths') else sorted({deep}.module_paths(streams(), {x}))",
        f"linen.tabulate({deep}, streams(), console_kwargs={{'width': 160}})({x})", f"{deep}.tabulate(streams(), {x}, depth={g.int(1, 3)}, compute_flops=False, column_kwargs={{}}, console_kwargs={{'width': 200}})",
        f"bound({x})", f"Derived(k=1, extra=1).helper()", f"repr(Derived(1))", f"str(Shared(Derived(1)))", f"Derived(1) == Derived(1)", f"Derived(1).clone(k=4).k", f"Derived(1).copy(extra=4).extra", f"hash(Derived(1)) == hash(Derived(1))",
        f"intercepted({x})", f"run(Derived(1, extra={g.int(1, 3)}, scale=0.5), {x})", f"Derived()", f"Derived(1, 2, 3, 4)", f"Block().apply({{}}, {x})", f"Block().apply({{'params': {{}}}}, {x}, rngs=streams())",
        f"Block().apply(Block().init(streams(), {x}), {x})", f"Block().apply(Block().init(streams(), {x}), {x}[:, :2], rngs=streams())", f"Block().init({{}}, {x})", f"Block().init(random.key(0), {x}, False)", f"Block()({x})",
        f"linen.Dense(3, name=1).init(random.key(0), {x})", f"Setup().layers", f"Setup().n", f"Clash().init(random.key(0), {x})", f"Late().init(random.key(0), {x})", f"Mutates().init(random.key(0), {x})", f"flat(TwoMethods().init(random.key(0), {x}))",
        f"flat(Scope().init(streams(), {x}))", f"flat(Reuse().init(streams(), {x}))", f"flat(Params().init(streams(), {x}))", f"flat(Params().apply(Params().init(streams(), {x}), {x}, mutable=True))", f"Params().apply(Params().init(streams(), {x}), {x}, mutable=False)",
        f"linen.get_partition_spec(linen.Dense(3, kernel_init=linen.with_partitioning(linen.initializers.ones, ('a', None))).init(random.key(0), {x}))['params']['kernel'] is not None", f"flat(linen.unbox(linen.Dense(3, kernel_init=linen.with_partitioning(linen.initializers.ones, ('a', None))).init(random.key(0), {x})))",
        f"flat(linen.logical_to_mesh(linen.get_partition_spec(linen.Dense(3, kernel_init=linen.with_logical_partitioning(linen.initializers.ones, ('a', 'b'))).init(random.key(0), {x})), [('a', 'x'), ('b', None)]))" if 0 else f"flat(linen.Dense(3).init(random.key(0), {x}))",
        f"flat(jax.eval_shape({deep}.init, streams(), {x})) and 1", f"flat(linen.merge_param('a', None, 3) for _ in range(1)) if 0 else linen.merge_param('a', None, 3)", f"linen.merge_param('a', 2, 3)", f"linen.merge_param('a', None, None)", f"flat(Axis().init(streams(), {x}))",
        f"flat(jax.vmap(lambda v: Stateful(axis_name='b').init_with_output(streams(), v[None]), axis_name='b')({x}))", f"flat(jax.vmap(lambda v: Stateful(axis_name='b').apply(Stateful().init(streams(), {x}), v[None], mutable=['batch_stats']), axis_name='b', out_axes=(0, None))({x}))",
        f"flat(jax.jit(Block(rate=0.2).init)(streams(), {x}))", f"flat(jax.vmap(Pure().init, (0, None))(random.split(random.key(0), 3), {x}))", f"flat(jax.vmap(Pure().apply, (None, 0))(Pure().init(random.key(0), {x}), {x}))", f"flat(Attrs(d={{'x': 1}}, l=[Pure(), (Pure(), 2)]).init(random.key(0), {x}))",
        f"flat(linen.apply(lambda m, v: m.other(v), Setup())(Setup().init(streams(), {x}, method='other'), {x}))", f"flat(linen.init(lambda m, v: m.other(v), Setup())(streams(), {x}))", f"flat(linen.init_with_output(lambda m, v: m(v), Setup())(streams(), {x}))", f"linen.share_scope(Pure(), Pure())",
        f"[k for k, _ in flat(linen.summary._get_module_table)] if 0 else Setup().init(random.key(0), {x})['params']['layers_0']['w']", f"flat(Conditional(2).init(streams(), {x}))", f"flat(Keys().init(streams(), {x}))", f"flat(Keys().apply({{}}, {x}, rngs={{'noise': random.key(3)}}))", f"Keys().apply({{}}, {x})", f"Keys().apply({{}}, {x}, rngs={{'params': random.key(3)}})",
        f"flat(Fold().init_with_output(streams(), {x}))", f"flat(Keys().init(random.PRNGKey(2), {x}))", f"flat(Scanny(3).init_with_output(streams(), {x}))", f"flat(Vmappy(3).init_with_output(streams(), {x}))", f"flat(AddMeta().init(streams(), {x}))",
    )  # fmt: skip
    extra = '''
def bound(x):
    m = Setup()
    b = m.bind(m.init(streams(), x))
    sub, variables = b.table["a"].unbind()
    return flat(variables), sub.apply(variables, x), b.other(x) if "b" in b.variables["params"] else b.layers[0](x), b(x)

def intercepted(x):
    seen = []
    def watch(f, args, kwargs, context):
        seen.append((type(context.module).__name__, context.method_name, context.module.name, "/".join(context.module.path)))
        return f(*args, **kwargs)
    m = Shared(Setup(), 2)
    v = m.init(streams(), x)
    with linen.intercept_methods(watch):
        with linen.intercept_methods(lambda f, a, k, c: f(*a, **k) * 2 if c.method_name == "__call__" else f(*a, **k)):
            y = m.apply(v, x)
    return y, [str(s) for s in seen]

class Clash(linen.Module):
    @linen.compact
    def __call__(self, x):
        linen.Dense(3, name="a")(x)
        return self.param("a", linen.initializers.ones, (3,))
class Late(linen.Module):
    def setup(self):
        pass
    def __call__(self, x):
        return linen.Dense(3)(x)
class Mutates(linen.Module):
    k: int = 1
    @linen.compact
    def __call__(self, x):
        self.k = 2
        return x
class TwoMethods(linen.Module):
    @linen.compact
    def __call__(self, x):
        return self.helper(x)
    def helper(self, x):
        return linen.Dense(3)(x)
class Scope(linen.Module):
    def setup(self):
        self.a = linen.Dense(3)
        self.b = Pure()
        linen.share_scope(self, self.a)
    def __call__(self, x):
        return self.b(self.a(x))
class Reuse(linen.Module):
    @linen.compact
    def __call__(self, x):
        d = linen.Dense(3)
        y = d(x) + d(x)
        for i in range(2):
            y = Pure(name=f"p{i}" if i else None)(y)
        return Shared(d, 1)(y) + Shared(Pure(parent=None), 1)(y)
class Params(linen.Module):
    @linen.compact
    def __call__(self, x):
        w = self.param("w", lambda key, shape: random.normal(key, shape), (3,))
        t = self.param("t", lambda key: {"a": random.uniform(key, (2,)), "b": [jnp.ones(1)]})
        c = self.variable("counts", "c", jnp.zeros, (2,))
        c.value = c.value + 1
        self.sow("intermediates", "s", x.sum(), init_fn=lambda: 0., reduce_fn=lambda p, q: p + q)
        self.sow("intermediates", "s", x.max(), init_fn=lambda: 0., reduce_fn=lambda p, q: p + q)
        self.sow("other", "s", x.max())
        self.put_variable("counts", "z", x.min())
        return x * w + t["a"].sum() + self.get_variable("counts", "z") + len(self.variables)
class Axis(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.vmap(linen.Dense, variable_axes={"params": 1}, split_rngs={"params": True}, in_axes=1, out_axes=-1)(2)(x[..., None])
class Attrs(linen.Module):
    d: Any
    l: Any
    @linen.compact
    def __call__(self, x):
        return self.l[1][0](self.l[0](x)) * self.d["x"]
class Conditional(linen.Module):
    n: int
    @linen.compact
    def __call__(self, x):
        for i in range(self.n):
            if i == 1 or self.is_initializing():
                x = linen.Dense(3)(x)
        return x
class Keys(linen.Module):
    @linen.compact
    def __call__(self, x):
        a, b = self.make_rng("noise"), self.make_rng("noise")
        return x + random.normal(a, x.shape) + random.uniform(b), self.has_rng("dropout"), Inner()(x)
class Inner(linen.Module):
    @linen.compact
    def __call__(self, x):
        return random.bits(self.make_rng("noise"), (2,)), random.key_data(self.make_rng("noise"))
class Fold(linen.Module):
    @linen.compact
    def __call__(self, x):
        return [random.bits(m.make_rng("noise")) if 0 else linen.Dropout(0.5, deterministic=False)(x) for m in [self] * 3] + [linen.Dropout(0.5, rng_collection="noise", deterministic=False)(x)]
class Scanny(linen.Module):
    n: int
    @linen.compact
    def __call__(self, x):
        body = lambda m, c, s: (linen.Dense(3, name="d")(c) + random.normal(m.make_rng("noise"), (3,)), random.bits(m.make_rng("dropout")))
        return linen.scan(body, variable_broadcast="params", split_rngs={"params": False, "noise": True, "dropout": False}, length=self.n)(self, x, None)
class Vmappy(linen.Module):
    n: int
    @linen.compact
    def __call__(self, x):
        f = linen.vmap(lambda m, v: (linen.Dense(3)(v), random.bits(m.make_rng("noise")), random.bits(m.make_rng("dropout"))), variable_axes={"params": 0}, split_rngs={"params": True, "noise": True, "dropout": False}, in_axes=None, axis_size=self.n)
        return f(self, x)
class AddMeta(linen.Module):
    @linen.compact
    def __call__(self, x):
        body = linen.add_metadata_axis(linen.Dense, variable_axes={"params": 0}, metadata_params={"partition_name": "l"})
        return body(3, kernel_init=linen.with_partitioning(linen.initializers.ones, ("a", "b")))(x)
'''
    return case(g, text, extra)
