"""More expressions for `parity_cases`: products, windows, sorting, activations, linear algebra."""

PRODUCTS = [
    "x @ k", "jnp.dot(x, k)", "jnp.dot(v, v)", "jnp.dot(t, k)", "jnp.matmul(t, k)",
    "jnp.vdot(x, y)",
    "jnp.inner(x, y)", "jnp.tensordot(t, k, 1)", "jnp.tensordot(t, t, ((0, 2), (0, 2)))", "x @ v",
    "v @ k", "i @ i.T", "c @ z", "jnp.matmul(h, hk, preferred_element_type='float32')",
    "jnp.linalg.multi_dot([x, k, k.T])", "jnp.matvec(x, v)", "jnp.vecmat(v, k)", "u @ u.T",
    *(f"jnp.einsum('{spec}', {args})" for spec, args in [
        ("ij,jk->ik", "x, k"), ("ij,jk", "x, k"), ("ij->ji", "x"), ("ij->", "x"), ("ii->i", "a"),
        ("ii", "a"), ("bij,bij->b", "t, t"), ("bij,jk->bik", "t, k"), ("i,j->ij", "v, w"),
        ("bij,bkj->bik", "t, t"), ("...j,jk->...k", "t, k"), ("ij,ij,ij->i", "x, y, p"),
        ("ij,kj,kl->il", "x, y, k[:3, :2]"), ("ij,j->", "c, v")]),
    "lax.dot(x, k)", "lax.dot_general(t, t, (((2,), (2,)), ((0,), (0,))))",
    "lax.batch_matmul(t, t.mT)",
    # Whether the gradient is rounded to the narrower dtype depends on what XLA fuses.
    ("lax.dot_general(x, k, (((1,), (0,)), ((), ())), preferred_element_type='bfloat16')", "-grad"),
    "lax.conv(sig, sk, (1,), 'SAME')", "lax.conv(sig, sk, (2,), 'VALID')",
    "lax.conv_with_general_padding(sig, sk, (1,), [(2, 1)], (2,), (1,))",
    *(f"lax.conv_general_dilated(im, {kernel}, {rest}, dimension_numbers=('NHWC', 'HWIO', 'NHWC'))"
      for kernel, rest in [
          ("ke", "(1, 1), 'SAME'"), ("ke", "(2, 1), 'VALID'"), ("ke", "(1, 1), [(1, 2), (0, -1)]"),
          ("ke", "(1, 1), 'SAME', rhs_dilation=(2, 1)"),
          ("ke", "(1, 1), [(0, 1), (1, 1)], lhs_dilation=(2, 2)")]),
    "lax.conv_general_dilated(im, ke[:, :, :1, :3], (1, 1), 'SAME', "
    "dimension_numbers=('NHWC', 'HWIO', 'NHWC'), feature_group_count=3)",
    "lax.conv_general_dilated(sig, sk[:, :, :2], (1,), 'VALID', batch_group_count=2)",
    "lax.conv_transpose(im, ke, (2, 2), 'SAME')",
    "lax.conv_general_dilated_patches(sig, (3,), (2,), 'VALID')",
    "lax.reduce_window(im, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), 'VALID')",
    "lax.reduce_window(im, 0.0, lax.add, (1, 3, 2, 1), (1, 1, 2, 1), 'SAME')",
    "lax.reduce_window(im, jnp.inf, lax.min, (1, 2, 2, 1), (1, 1, 1, 1), 'VALID')",
    ("lax.reduce_window(p, 1.0, lax.mul, (2, 2), (1, 1), 'VALID')", "-grad -jvp"),
    "lax.reduce(x, 0.0, lax.add, (1,))", "lax.reduce(i, np.int32(0), lax.max, (0,))",
    "lax.reduce_precision(x, 8, 7)",
]  # fmt: skip

ORDER = [
    "jnp.sort(d)", "jnp.sort(d, axis=0)", "jnp.sort(i, axis=1)", "jnp.sort(d, descending=True)",
    "jnp.argsort(d)", "jnp.argsort(d, axis=0, descending=True)", "jnp.argsort(i, axis=1)",
    "jnp.sort(c)",
    "jnp.lexsort((i, n[:3, None] + 0 * i))", "jnp.partition(o, 3)[3]", "jnp.sort(m)",
    "jnp.sort(h, axis=1)",
    "lax.sort(d, dimension=0)", "lax.sort((i, d), dimension=1, num_keys=2)",
    "lax.sort_key_val(d, x)",
    "lax.top_k(d, 2)", "lax.top_k(i, 3)", "lax.argmax(d, 1, 'int32')", "lax.argmin(d, 0, 'int32')",
    "lax.cumsum(x, 0)", "lax.cumsum(x, 1, reverse=True)", "lax.cumprod(p, 1)", "lax.cummax(d, 1)",
    "lax.cummin(d, 0, reverse=True)", "lax.cumlogsumexp(x, 1)", "lax.cumsum(i, 1)", "o.sort()",
    "d.argsort()",
    "jnp.setdiff1d(cards, n, size=3)", "jnp.isin(cards, n)", "jnp.flatnonzero(m, size=6)",
]  # fmt: skip

LAX = [
    *(f"lax.{f}(x)" for f in (
        "neg sin cos tan exp exp2 expm1 tanh sinh cosh asinh atan abs sign floor ceil round square "
        "logistic erf erfc is_finite bessel_i0e bessel_i1e stop_gradient").split()),
    *(f"lax.{f}(p)" for f in "log log1p sqrt rsqrt cbrt lgamma digamma reciprocal".split()),
    *(f"lax.{f}(q)" for f in "asin acos atanh erf_inv".split()), "lax.acosh(p + 1)",
    *(f"lax.{f}(x, y)" for f in "add sub mul div max min rem atan2 eq ne lt le gt ge".split()),
    "lax.pow(p, y)", "lax.pow(x, 2)", "lax.integer_pow(x, 3)", "lax.integer_pow(p, -2)",
    "lax.clamp(-1.0, x, 1.0)",
    "lax.select(m, x, y)", "lax.select_n(m, x, y)", "lax.select_n(n % 3, v, 2 * v, 3 * v)",
    "lax.population_count(i)",
    "lax.clz(i)", "lax.shift_right_logical(i, jnp.int32(1) + 0 * i)", "lax.shift_left(u, u % 8)",
    "lax.bitwise_and(i, i + 1)", "lax.bitwise_not(u)",
    "lax.igamma(p, p + 1)", "lax.igammac(p, p + 1)",
    ("lax.betainc(p, p + 1, abs(q))", "-grad -jvp"),
    ("lax.polygamma(p * 0 + 1, p)", "-grad -jvp"),
    ("lax.zeta(p + 1, p)", "-grad -jvp"), ("lax.random_gamma_grad(p, p)", "-grad -jvp"),
    "lax.real(c)", "lax.imag(c)", "lax.conj(c)", "lax.abs(c)", "lax.rsqrt(c)", "lax.logistic(c)",
    "lax.reduce_max(d, (1,))", "lax.reduce_min(d, (0,))", "lax.reduce_sum(x, (0, 1))",
    "lax.reduce_prod(p, (1,))",
    "lax.reduce_and(m, (0,))", "lax.reduce_or(m, (1,))", "lax.reduce_xor(i, (1,))",
    "jnp.rint(x * 2)",
    "lax.div(i, np.int32(3))", "lax.rem(i, np.int32(3))", "lax.fft(c, 'FFT', (4,))",
    "lax.fft(x, 'RFFT', (4,))",
    "lax.map(jnp.sin, x)",
    "lax.optimization_barrier((x, y))", "lax.mul(x, 2.0)",
]  # fmt: skip

NN = [
    *(f"nn.{f}(x)" for f in (
        "relu relu6 sigmoid softplus soft_sign sparse_plus silu swish mish elu selu celu "
        "leaky_relu hard_tanh hard_sigmoid hard_silu hard_swish gelu glu log_sigmoid squareplus "
        "softmax log_softmax standardize tanh identity sparse_sigmoid").split()),
    "nn.gelu(x, approximate=False)", "nn.leaky_relu(x, 0.2)", "nn.elu(x, alpha=2.0)",
    "nn.softmax(x, axis=0)",
    "nn.softmax(x, where=m, axis=1)", "nn.log_softmax(t, axis=1)", "nn.one_hot(n, 3)",
    "nn.one_hot(n, 3, dtype='int32')",
    "nn.one_hot(far, 4)", "nn.standardize(x, axis=0)", "nn.relu(i)", "nn.softmax(h)", "nn.gelu(h)",
    "nn.silu(g)",
    "nn.log1mexp(p)", "nn.celu(x, 0.5)", "nn.glu(x, axis=1)", "nn.logmeanexp(x, axis=1)",
    *((f"nn.dot_product_attention(im, im, im{rest})", "single")
      for rest in ("", ", is_causal=True", ", scale=0.3")),
]  # fmt: skip

LINALG = [
    "jnp.linalg.det(a)", "jnp.linalg.det(r)", "jnp.linalg.slogdet(a)", "jnp.linalg.inv(a)",
    "jnp.linalg.inv(r)",
    "jnp.linalg.solve(a, w)", "jnp.linalg.solve(r, a)", "jnp.linalg.cholesky(a @ a.T + jnp.eye(3))",
    "jnp.linalg.cholesky(ca @ ca.conj().T + jnp.eye(3))", "jnp.linalg.qr(x.T)",
    "jnp.linalg.qr(a, mode='r')",
    "jnp.linalg.svd(x, compute_uv=False)", "abs(jnp.linalg.svd(x, full_matrices=False)[0])",
    "jnp.linalg.eigh(a + a.T)[0]", "abs(jnp.linalg.eigh(a + a.T)[1])",
    "jnp.linalg.eigvalsh(r + r.mT)",
    ("jnp.sort(abs(jnp.linalg.eigvals(a)))", "-grad -jvp"), "jnp.linalg.pinv(x)",
    "jnp.linalg.matrix_power(a, 3)",
    "jnp.linalg.matrix_power(a, -1)", ("jnp.linalg.matrix_rank(x)", "-grad -jvp"),
    "jnp.linalg.lstsq(x.T, v)[0]",
    "jnp.linalg.cond(a)", "jnp.linalg.trace(a)", "jnp.linalg.outer(v, w)",
    "jnp.linalg.norm(a, ord='nuc')",
    "jnp.linalg.norm(a, ord=2)", "jnp.linalg.vector_norm(x, axis=1)", "jnp.linalg.matrix_norm(r)",
    "jnp.linalg.tensorsolve(a, w)", "jnp.linalg.tensorinv(a, ind=1)", "jnp.linalg.solve(ca, w)",
    ("lax.linalg.lu(a)", "-grad -jvp"),
    "lax.linalg.triangular_solve(jnp.tril(a) + 3 * jnp.eye(3), a, left_side=True, lower=True)",
    ("lax.linalg.householder_product(x.T, w)", "-grad -jvp"),
    "lax.linalg.tridiagonal_solve(v, v + 5, v, up)",
    "jnp.fft.fft(x)", "jnp.fft.ifft(c)", "jnp.fft.fft2(x)", "jnp.fft.rfft(x)",
    "jnp.fft.irfft(c, 6)", "jnp.fft.fftn(t)",
    "jnp.fft.rfft2(x)", "jnp.fft.irfft2(c)", "jnp.fft.hfft(c)", "jnp.fft.ihfft(x)",
    "jnp.fft.fftshift(x)",
    "jnp.fft.fftfreq(5, 0.5)", "jnp.fft.rfftfreq(6)", "jnp.fft.fft(x, n=6, axis=0, norm='ortho')",
    "jnp.fft.ifftshift(x)",
]  # fmt: skip

# Weak types, and how dtypes meet.
PROMOTION = [
    "x + 1", "1 + i", "i + 1.0", "i + 1j", "u + 1", "u + 1.5", "m + 1", "m + 1.0", "m * m",
    "h + 1.0", "h * 2j",
    "g * 1", "i8 + 300 % 256", "x + i", "x + u", "h + i", "g + u", "i + u", "i + m", "c + 1",
    "c + i", "h + g",
    "jnp.add(1, 2)", "jnp.add(1, 2.0)", "jnp.multiply(2, 1j)", "jnp.sin(1)", "jnp.sin(1.0)",
    "jnp.exp(2)",
    "jnp.asarray(2.0) + 1", "jnp.asarray(2) * 1.5", "jnp.asarray(2) + i8", "jnp.asarray(2.0) * h",
    "jnp.float32(2) * h",
    "jnp.int8(3) + 4", "jnp.uint8(200) + 100", "jnp.where(m, 1.0, 2.0)", "jnp.where(m, x, 1)",
    "jnp.where(m, i, 1.5)",
    "jnp.maximum(i, 0.5)", "jnp.power(2, i8 % 3)", "jnp.stack([1, 2.0])",
    "jnp.array([1.0, h[0, 0]])", "jnp.sum(2.0)",
    "jnp.mean(3)", "jnp.abs(-2)", "jnp.clip(2, 0, 1.5)", "x * np.float32(2)", "i * np.int64(2)",
    "h * np.float64(2)",
    "jnp.asarray(1.0) * jnp.asarray(2)", "jnp.zeros(3) + 1", "jnp.ones((), int) + 1",
    "jnp.full((), 2.0)", "jnp.round(2.5)",
    "x.astype(float) + 0", "jnp.concatenate([h, x])", "jnp.concatenate([i, u])",
    "jnp.result_type(h, x).itemsize",
    "jnp.asarray(True) + 1", "jnp.square(3)", "jnp.sqrt(4)", "jnp.arange(3) * 0.5",
    "jnp.arange(3.0) + 1j",
    "lax.add(jnp.asarray(1.0), 2.0)", "lax.convert_element_type(2, float)",
    "jnp.linspace(0, 1, 3) * h[0, :3]",
    "abs(jnp.asarray(-1.5))", "-jnp.asarray(2)", "jnp.asarray(3) // 2", "jnp.asarray(3) / 2",
    "jnp.asarray(2) ** 3",
    "jnp.asarray(2.0) ** 2", ("2 ** jnp.asarray(3)", "eager"), "jnp.asarray(1.0).astype(int)",
    "jnp.asarray(2.0) > 1",
    "jnp.max(jnp.asarray(2.0))", "jnp.reshape(2.0, (1,))", "jnp.broadcast_to(1.5, (2,))",
    "jnp.sum(jnp.asarray(1))",
]  # fmt: skip

TRANSFORMS = [
    "jax.grad(lambda a: jnp.sum(jnp.sin(a) ** 2))(x)", "jax.jacfwd(lambda a: jnp.tanh(a @ k))(v)",
    "jax.jacrev(lambda a: jnp.tanh(a @ k))(v)", "jax.hessian(lambda a: jnp.sum(jnp.exp(a)))(v)",
    "jax.vmap(lambda a, b: a @ b)(x, y)", "jax.vmap(jnp.outer, (0, None))(x, v)",
    "jax.vmap(jnp.sum, 1, 0)(t)",
    "jax.vmap(lambda a: lax.psum(a, 'b'), axis_name='b')(x)",
    "jax.vmap(lambda a: a - lax.pmean(a, 'b'), axis_name='b')(x)",
    "jax.vmap(lambda a: lax.all_gather(a, 'b'), axis_name='b')(x)", "jax.jit(lambda a: a * 2)(x)",
    "jax.vmap(lambda a: a * lax.axis_index('b'), axis_name='b')(x)", "jax.jvp(jnp.sin, (x,), (y,))",
    "jax.vjp(jnp.sin, x)[1](y)", "jax.value_and_grad(lambda a: jnp.sum(a ** 3))(x)",
    "jax.linearize(jnp.sin, x)[1](y)",
    "jax.checkpoint(lambda a: jnp.sin(jnp.sin(a)))(x)", "jax.vmap(jax.grad(lambda a: a ** 3))(v)",
    "jax.jit(jax.vmap(jnp.dot))(x, y)",
    "jax.linear_transpose(lambda a: a @ k, x)(x @ k)",
    "jax.vmap(lambda a: jnp.where(a > 0, a, -a), out_axes=1)(x)",
    "jax.tree_util.tree_map(jnp.sin, {'a': x, 'b': (y,)})['a']",
    "jax.vmap(lambda b: {'a': b})({'z': x}['z'])['a']",
]  # fmt: skip

CASES = [*PRODUCTS, *ORDER, *LAX, *NN, *LINALG, *PROMOTION, *TRANSFORMS]
