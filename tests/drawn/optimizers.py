"""Cases of optimizers, schedules and losses with options that are seldom used, against optax."""

from __future__ import annotations

from collections.abc import Callable

from tests.drawn.calls import Case, Draw, examine

__all__ = ["draw", "examine"]

FAMILIES: dict[str, Callable[[Draw], Case]] = {}

SETUP = '''
def params(dtype="float32"):
    r = np.random.RandomState(0)
    return {"w": jnp.asarray(r.randn(3, 4), dtype), "b": (jnp.asarray(r.randn(4), dtype), jnp.asarray(0.5, dtype))}

def loss(p, shift=0.0):
    return sum(((v - 0.3 - shift) ** 2).sum() + jnp.cos(v).sum() for v in jax.tree.leaves(p)).astype("float32")

def steps(tx, n=4, dtype="float32", how="jit", extra=False, spoil=False):
    p = params(dtype)
    s = tx.init(p)
    def one(p, s, i):
        value, grads = jax.value_and_grad(loss)(p, i * 0.01)
        if spoil:
            grads = jax.tree.map(lambda v: jnp.where(i % 2 == 1, jnp.nan, v), grads)
        kw = dict(value=value, grad=grads, value_fn=lambda q: loss(q, i * 0.01)) if extra else {}
        u, s = tx.update(grads, s, p, **kw)
        return o.apply_updates(p, u), s
    if how == "scan":
        (p, s), _ = jax.jit(lambda p, s: lax.scan(lambda c, i: (one(*c, i), None), (p, s), jnp.arange(n)))(p, s)
    elif how == "vmap":
        stack = jax.tree.map(lambda v: jnp.stack([v, v * 0.5]), p)
        run = jax.jit(jax.vmap(one, (0, 0, None)))
        p, s = stack, jax.vmap(tx.init)(stack)
        for i in range(n):
            p, s = run(p, s, jnp.int32(i))
    else:
        run = jax.jit(one) if how == "jit" else one
        for i in range(n):
            p, s = run(p, s, jnp.int32(i))
    return p, s
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


def schedule(g: Draw) -> str:
    n = g.int(0, 6)
    return g.choice(
        f"o.cosine_decay_schedule(0.3, {n + 1}, alpha=0.1, exponent={g.choice(1.0, 2.0)})", f"o.linear_schedule(0.3, 0.01, {n}, transition_begin={g.int(0, 2)})",
        f"o.exponential_decay(0.3, {n + 1}, 0.5, transition_begin={g.int(0, 2)}, staircase={g.chance(0.5)}, end_value={g.choice(None, 0.1)})",
        f"o.polynomial_schedule(0.3, 0.1, power={g.choice(1, 2, 0.5)}, transition_steps={n})", f"o.piecewise_constant_schedule(0.3, {{{n}: 0.1, {n + 2}: 0.5}})",
        f"o.piecewise_interpolate_schedule('{g.choice('linear', 'cosine')}', 0.3, {{{n + 1}: 0.5, {n + 3}: 0.1}})", f"o.warmup_cosine_decay_schedule(0., 0.3, {n}, {n + 3}, 0.01)",
        f"o.warmup_exponential_decay_schedule(0., 0.3, {n}, 2, 0.5, end_value=0.05)", f"o.join_schedules([o.constant_schedule(0.1), o.linear_schedule(0.1, 0.3, 2)], [{n}])",
        f"o.sgdr_schedule([dict(init_value=0., peak_value=0.2, decay_steps=4, warmup_steps={g.int(0, 3)}, end_value=0.01)] * 2)", f"o.cosine_onecycle_schedule({n + 2}, 0.3)",
        f"o.linear_onecycle_schedule({n + 3}, 0.3)", f"o.warmup_constant_schedule(0., 0.3, {n})", "o.constant_schedule(0.2)", "(lambda c: 0.1 / (1 + c))",
        "o.schedules.warmup_cosine_decay_schedule(0.0, 0.2, 2, 9)", "0.1", "0.05",
    )  # fmt: skip


def transformation(g: Draw, depth: int = 2) -> str:
    lr = schedule(g)
    if depth == 0:
        return g.choice(
            f"o.sgd({lr}, momentum={g.choice(None, 0.9)}, nesterov={g.chance(0.5)})", f"o.adam({lr}, eps_root={g.choice(0.0, 1e-3)}, mu_dtype={g.choice(None, 'jnp.bfloat16')}, nesterov={g.chance(0.4)})",
            f"o.adamw({lr}, weight_decay=0.1, mask={g.choice(None, 'lambda p: jax.tree.map(lambda v: v.ndim > 1, p)')})", f"o.lion({lr})", f"o.rmsprop({lr}, centered={g.chance(0.5)}, bias_correction={g.chance(0.5)}, momentum={g.choice(None, 0.9)})",
            f"o.adagrad({lr})", f"o.adafactor({g.choice(lr, None)}, min_dim_size_to_factor=2, multiply_by_parameter_scale={g.chance(0.5)}, momentum={g.choice(None, 0.9)})", f"o.lamb({lr})", f"o.lars({lr}, momentum=0.9)",
            f"o.yogi({lr})", f"o.radam({lr})", f"o.adabelief({lr})", f"o.adan({lr})", f"o.novograd({lr})", f"o.amsgrad({lr})", f"o.adamax({lr})", f"o.adamaxw({lr})", f"o.nadam({lr})", f"o.nadamw({lr})", f"o.rprop(0.1)", f"o.sm3(0.1)", f"o.fromage(0.1)",
            f"o.noisy_sgd({lr}, key=random.key(0))", f"o.sign_sgd({lr})", f"o.optimistic_gradient_descent({lr})", f"o.optimistic_adam(0.1)" if g.chance(0.5) else f"o.optimistic_adam_v2({lr})", f"o.adadelta({lr})",
        )  # fmt: skip
    inner, other = transformation(g, depth - 1), transformation(g, 0)
    labels = g.choice("{'w': 'a', 'b': 'b'}", "lambda p: jax.tree.map(lambda v: 'a' if v.ndim else 'b', p)", "{'w': 'a', 'b': ('a', 'b')}")
    return g.choice(
        f"o.chain({g.choice('o.clip(0.5)', 'o.clip_by_global_norm(1.0)', 'o.clip_by_block_rms(0.3)', 'o.adaptive_grad_clip(0.1)', 'o.zero_nans()', 'o.add_noise(0.1, 0.5, key=random.key(1))', 'o.add_decayed_weights(0.1)', 'o.centralize()', 'o.normalize_by_update_norm()', 'o.keep_params_nonnegative()', 'o.identity()', 'o.scale_by_trust_ratio()')}, {inner})",
        f"o.multi_transform({{'a': {inner}, 'b': {other}}}, {labels})", f"o.partition({{'a': {inner}, 'b': o.set_to_zero()}}, {labels})", f"o.masked({inner}, {g.choice('{chr(0): 1}' if 0 else chr(123) + repr('w') + ': True, ' + repr('b') + ': False}', 'lambda p: jax.tree.map(lambda v: v.ndim == 1, p)')})",
        f"o.MultiSteps({inner}, {g.choice(2, 3, 'lambda n: 1 + n % 2')}, use_grad_mean={g.chance(0.5)}{g.choice('', ', should_skip_update_fn=o.skip_not_finite', ', should_skip_update_fn=partial(o.skip_large_updates, max_squared_norm=30.)')})",
        f"o.apply_if_finite({inner}, {g.int(0, 3)})", f"o.flatten({inner})", f"o.lookahead({inner}, 2, 0.5) if 0 else {inner}", f"o.inject_hyperparams(o.adamw)({schedule(g)}, b1={schedule(g) if 0 else 0.8}, weight_decay={schedule(g)})",
        f"o.inject_hyperparams(o.sgd, static_args=('nesterov',))({schedule(g)}, momentum=0.9, nesterov=True)", f"o.inject_hyperparams(o.adam, hyperparam_dtype=jnp.bfloat16)(0.1, b2={g.choice('0.9', 'lambda c: 0.9 + 0.01 * c')})",
        f"o.maybe_update({inner}, lambda s: s % 2 == 0) if hasattr(o, 'maybe_update') else {inner}", f"o.conditionally_transform({inner}, lambda step: step > 1)", f"o.conditionally_mask({inner}, lambda step: step < 2)",
        f"o.named_chain(('x', {inner}), ('y', o.scale(0.5)))", f"o.chain({inner}, o.ema(0.9, debias={g.chance(0.5)}))", f"o.chain({inner}, o.scale_by_learning_rate({lr}, flip_sign={g.chance(0.5)}))", f"o.chain(o.snapshot('s', lambda u: o.global_norm(u)), {inner}) if hasattr(o, 'snapshot') else {inner}",
        f"o.apply_to_partition({inner}) if 0 else o.freeze({g.choice(chr(123) + repr('w') + ': True, ' + repr('b') + ': False}', 'lambda p: jax.tree.map(lambda v: v.ndim == 1, p)')})", f"o.selective_transform({inner}, freeze_mask={{'w': True, 'b': False}})",
    )  # fmt: skip


@family
def training(g: Draw) -> Case:
    tx = transformation(g, g.int(0, 2))
    how = g.choice("jit", "eager", "scan", "vmap")
    dtype = g.choice("float32", "float32", "bfloat16")
    spoil = "MultiSteps" in tx and "skip" in tx or "finite" in tx or "zero_nans" in tx
    text = f"steps({tx}, {g.int(1, 6)}, '{dtype}', '{how}', spoil={spoil})"
    if "MultiSteps" in tx and "chain" not in tx:
        text = text.replace("steps(o.MultiSteps", "steps(o.MultiSteps")
    return Case(text, [], g.x64, (), setup=SETUP, rtol=60 if dtype == "float32" else 8, floor=0.3)


@family
def searches(g: Draw) -> Case:
    search = g.choice("o.scale_by_backtracking_linesearch(max_backtracking_steps=8)", "o.scale_by_zoom_linesearch(max_linesearch_steps=8, initial_guess_strategy='one')",
                      f"o.scale_by_backtracking_linesearch(6, slope_rtol={g.choice(1e-4, 0.2)}, decrease_factor=0.5, increase_factor={g.choice(1.5, 'float(np.inf)')}, store_grad={g.chance(0.5)})", f"o.scale_by_zoom_linesearch(5, tol={g.choice(0.0, 0.1)})")
    tx = g.choice(f"o.lbfgs(memory_size={g.int(1, 3)})", f"o.lbfgs(0.1, memory_size=2, linesearch=None)", f"o.chain(o.sgd(1.0), {search})", f"o.chain(o.scale_by_lbfgs({g.int(1, 3)}, scale_init_precond={g.chance(0.5)}), {search})",
                  "o.polyak_sgd(max_learning_rate=0.5, f_min=-9.0)", f"o.chain(o.scale(-1.), {search})")
    how = g.choice("jit", "scan", "vmap", "eager")
    return Case(f"steps({tx}, {g.int(1, 4)}, how='{how}', extra=True)[0]", [], g.x64, (), setup=SETUP, rtol=4000)


@family
def schedules(g: Draw) -> Case:
    f = schedule(g)
    if f[0] == "0":
        f = "o.constant_schedule(0.1)"
    count = g.choice(str(g.int(0, 9)), f"jnp.int32({g.int(0, 9)})", f"jnp.float32({g.int(0, 9)})", "jnp.arange(9)", "jnp.uint8(3)", f"np.int64({g.int(0, 9)})", "-1")
    how = g.choice("{f}({c})", "jax.jit({f})({c})", "jax.vmap({f})(jnp.arange(9))", "jax.grad({f})(2.5)", "jax.jit(jax.vmap({f}))(jnp.arange(7, dtype='int8'))")
    return Case(how.format(f=f, c=count), [], g.x64, (), setup=SETUP, rtol=4)


@family
def losses(g: Draw) -> Case:
    t = g.choice("float32", "float32", "bfloat16")
    b, k = g.int(1, 4), g.int(2, 4)
    x = g.arr((b, k), t)
    y = g.arr((b, k), t, low=0.01, high=1)
    labels = g.given(g.np.integers(0, k, b).astype(g.choice("int32", "int8", "uint8")))
    z = g.arr((b, k), t)
    m = g.arr((b, k), "bool")
    axis = g.choice("", ", axis=0", ", axis=-1", ", axis=1")
    text = g.choice(
        f"o.softmax_cross_entropy({x}, nn.softmax({y}){axis})", f"o.softmax_cross_entropy({x}, {y}, where={m})", f"o.softmax_cross_entropy_with_integer_labels({x}, {labels})", f"o.losses.softmax_cross_entropy_with_integer_labels({x}, {labels}, where={m})",
        f"o.safe_softmax_cross_entropy({x}, {y})", f"o.sigmoid_binary_cross_entropy({x}, {y})", f"o.sigmoid_focal_loss({x}, {m}.astype({x}.dtype), alpha={g.choice(None, 0.3)}, gamma={g.choice(2.0, 0.0)})", f"o.l2_loss({x}, {z})", f"o.squared_error({x})",
        f"o.huber_loss({x}, {z}, delta={g.choice(0.5, 1.0)})", f"o.log_cosh({x}, {z})", f"o.hinge_loss({x}, jnp.sign({z}))", f"o.cosine_similarity({x}, {z}, epsilon=0.1{axis}, where={m})", f"o.cosine_distance({x}, {z}, epsilon=0.1{axis})",
        f"o.kl_divergence(jnp.log({y}), {y}{axis})", f"o.kl_divergence_with_log_targets(jnp.log({y}), jnp.log({y}), where={m})", f"o.convex_kl_divergence(jnp.log({y}), {y}{axis})", f"o.losses.generalized_kl_divergence(jnp.log({y}), {y})", f"o.smooth_labels({y}, 0.1)",
        f"o.poly_loss_cross_entropy({x}, nn.softmax({y}), epsilon=1.5{axis})", f"o.multiclass_hinge_loss({x}, {labels})" if b > 0 else "0", f"o.losses.multiclass_perceptron_loss({x}[0], {labels}[0])", f"o.perceptron_loss({x}, jnp.sign({z}))",
        f"o.losses.sparsemax_loss({x}, {m}.astype('int32'))", f"o.losses.multiclass_sparsemax_loss({x}, {labels})", f"o.losses.ranking_softmax_loss({x}, {y}, where={m})", f"o.losses.ranking_softmax_loss({x}, {y}, weights={y}, reduce_fn=None)", f"o.losses.triplet_margin_loss({x}, {y}, {z}, margin=0.5{axis})",
        f"o.ntxent({x}, {labels}, temperature=0.2)", f"o.ctc_loss({g.arr((2, 5, 3), 'float32')}, {g.given(g.np.integers(0, 2, (2, 5)).astype('float32'))}, jnp.array([[1, 2], [2, 1]]), {g.given(g.np.integers(0, 2, (2, 2)).astype('float32'))})", f"o.losses.dice_loss({x}, {m}.astype({x}.dtype))",
        f"o.losses.make_fenchel_young_loss(nn.logsumexp)({x}[0], {y}[0])", f"o.losses.binary_dice_loss({x}, {m}.astype({x}.dtype))", f"o.projections.projection_simplex({x}[0])", f"o.projections.projection_l1_ball({x}, 0.7)", f"o.projections.projection_l2_sphere({x})", f"o.projections.projection_box({x}, -0.5, {y})",
        f"o.global_norm([{x}, {z}])", f"o.projections.projection_l1_sphere({x}[0])", f"o.projections.projection_linf_ball({x}, 0.5)", f"o.projections.projection_halfspace({x}[0], {y}[0], 0.2)", f"o.projections.projection_hypercube({x}) ", f"o.perturbations.make_perturbed_fun(lambda v: v, 3, 0.1)(random.key(0), {x}) if 0 else {x}",
        f"o.power_iteration({y}[:1].T @ {y}[:1])[0]" if t == "float32" else f"{x}", f"o.matrix_inverse_pth_root(jnp.eye({k}) * 2 + {y}[:1].T @ {y}[:1], 4)[0]" if t == "float32" else f"{x}", f"o.tree.norm([{x}], squared=True)",
    )  # fmt: skip
    ways = (g.choice("jit", "vmap", "jit_vmap"), g.choice("grad", "second", "vmap_grad", "jvp"))
    return Case(text, g.arrays, g.x64, ways, setup=SETUP, rtol=30)


@family
def contributed(g: Draw) -> Case:
    c = "real.contrib"
    tx = g.choice(f"{c}.sam(real.sgd(0.1), real.chain({c}.normalize(), real.sgd(0.05)), sync_period={g.int(1, 3)}, opaque_mode=False)", f"{c}.schedule_free(real.sgd(0.1), 0.1, b1=0.9, weight_lr_power={g.choice(2.0, 1.0)})", f"{c}.schedule_free_adamw(0.1, warmup_steps={g.choice(None, 2)})",
                  f"{c}.schedule_free_sgd(0.1)", f"{c}.dog(1.0, reps_rel=1e-2)", f"{c}.dowg(1.0, weight_decay=0.1)", f"{c}.prodigy(1.0, safeguard_warmup={g.chance(0.5)})", f"{c}.mechanize(real.adam(0.1), weight_decay=0.01)", f"{c}.ademamix(0.1, alpha=3.)", f"{c}.simplified_ademamix(0.1)", f"{c}.muon(0.1, ns_steps={g.int(1, 5)})",
                  f"{c}.cocob()", f"{c}.dadapt_adamw(1.0)", f"{c}.acprop(0.1)", f"{c}.adopt(0.1)", f"{c}.madgrad(0.1)", f"{c}.galore(0.1, rank=2)", f"{c}.split_real_and_imaginary(real.adam(0.1))", f"{c}.momo(0.1)", f"{c}.momo_adam(0.1)", f"{c}.sophia(0.1) if 0 else {c}.adopt(0.1)", f"real.chain(real.adam(0.1), {c}.reduce_on_plateau(patience=1, factor=0.5, accumulation_size=2))")
    extra = "momo" in tx or "plateau" in tx
    how = g.choice("jit", "scan", "eager")
    setup = SETUP + '''
if jax.__name__ == "jax":
    import optax as real, optax.contrib
else:
    import toile.interop
    real = toile.interop.load("optax")
    toile.interop.load("optax.contrib")
'''
    return Case(f"steps({tx}, {g.int(1, 4)}, how='{how}', extra={extra})", [], g.x64, (), setup=setup, rtol=400)
