"""Programs of scientific computing: differential equations, statistics, simulation, derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from benchmarks.zoo import Made, Program

Arrays = tuple[np.ndarray, ...]


def _floats(*arrays: Any) -> Arrays:
    return tuple(np.asarray(a, np.float32) for a in arrays)


def _network(L: Any, layers: int, width: int, outputs: int, activation: Any) -> Any:
    """Dense layers with an activation between them."""
    hidden = [part for _ in range(layers) for part in (L.linen.Dense(width), activation)]
    return L.linen.Sequential([*hidden, L.linen.Dense(outputs)])


def _init(L: Any, model: Any, x: Any) -> Any:
    return L.jax.jit(model.init)(L.random.key(0), L.jnp.asarray(x))


def _training(L: Any, loss: Any, params: Any, data: Arrays, rate: float = 1e-3) -> Made:
    """Training steps with Adam for `loss(params, *data)`."""
    optimizer = L.optim.adam(rate)

    def step(state: Any, *batch: Any) -> Any:
        params, opt = state
        value, grads = L.jax.value_and_grad(loss)(params, *batch)
        updates, opt = optimizer.update(grads, opt, params)
        return (L.optim.apply_updates(params, updates), opt), value

    return Made(step, (params, optimizer.init(params)), tuple(L.jnp.asarray(a) for a in data))


def _torch_network(torch: Any, inputs: int, layers: int, width: int, outputs: int, activation: Any):
    sizes = [inputs, *[width] * layers]
    parts = [p for a, b in zip(sizes, sizes[1:]) for p in (torch.nn.Linear(a, b), activation())]
    return torch.nn.Sequential(*parts, torch.nn.Linear(width, outputs))


def _torch_training(
    torch: Any, loss: Callable[[], Any], params: Iterable[Any], rate: float = 1e-3
) -> Callable[[], Any]:
    optimizer = torch.optim.Adam(params, rate)

    def once() -> Any:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        return value.detach()

    return once


def _tensors(torch: Any, device: Any, data: Arrays) -> list[Any]:
    return [torch.from_numpy(a).to(device) for a in data]


# ----------------------------------------------------------------------------------- neural ODE

TIME_STEP = 0.1


def _runge_kutta(field: Callable[[Any], Any], y: Any) -> Any:
    """One step of the classical fourth-order Runge-Kutta method."""
    k1 = field(y)
    k2 = field(y + 0.5 * TIME_STEP * k1)
    k3 = field(y + 0.5 * TIME_STEP * k2)
    k4 = field(y + TIME_STEP * k3)
    return y + TIME_STEP / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def _trajectories(batch: int, dimension: int, steps: int) -> Arrays:
    """Initial points, and the trajectories of a damped rotation from these points."""
    random = np.random.RandomState(0)
    a = random.randn(dimension, dimension)
    matrix = (a - a.T) / dimension**0.5 - 0.1 * np.eye(dimension)
    path = [random.randn(batch, dimension)]
    for _ in range(steps):
        path.append(_runge_kutta(lambda y: y @ matrix, path[-1]))
    return _floats(path[0], path[1:])


def neural_ode(L: Any, batch: int, dimension: int, width: int, steps: int) -> Made:
    """A network as the right-hand side of a differential equation, fitted to trajectories."""
    model = _network(L, 2, width, dimension, L.linen.tanh)

    def loss(params: Any, start: Any, observed: Any) -> Any:
        def advance(y: Any, _: Any) -> Any:
            y = _runge_kutta(lambda y: model.apply(params, y), y)
            return y, y

        _, path = L.lax.scan(advance, start, None, length=steps)
        return L.jnp.mean((path - observed) ** 2)

    data = _trajectories(batch, dimension, steps)
    return _training(L, loss, _init(L, model, data[0]), data)


def torch_neural_ode(
    torch: Any, device: Any, batch: int, dimension: int, width: int, steps: int
) -> Callable[[], Any]:
    start, observed = _tensors(torch, device, _trajectories(batch, dimension, steps))
    model = _torch_network(torch, dimension, 2, width, dimension, torch.nn.Tanh).to(device)

    def loss() -> Any:
        path, y = [], start
        for _ in range(steps):
            y = _runge_kutta(model, y)
            path.append(y)
        return torch.nn.functional.mse_loss(torch.stack(path), observed)

    return _torch_training(torch, loss, model.parameters())


# ----------------------------------------------------------------------------- Gaussian process


def _regression(points: int, dimension: int) -> Arrays:
    random = np.random.RandomState(0)
    x = random.uniform(-2, 2, (points, dimension))
    return _floats(x, np.sin(x).sum(1) + 0.3 * random.randn(points))


def gaussian_process(L: Any, points: int, dimension: int) -> Made:
    """The marginal likelihood of a Gaussian process, maximized over the kernel's parameters."""
    jnp, vmap = L.jnp, L.jax.vmap

    def loss(params: Any, x: Any, y: Any) -> Any:
        scales, amplitude, noise = (jnp.exp(params[k]) for k in ("scales", "amplitude", "noise"))

        def kernel(a: Any, b: Any) -> Any:
            return amplitude * jnp.exp(-0.5 * jnp.sum(((a - b) / scales) ** 2))

        gram = vmap(lambda a: vmap(lambda b: kernel(a, b))(x))(x)
        factor = L.slinalg.cholesky(gram + noise * jnp.eye(points), lower=True)
        weights = L.slinalg.cho_solve((factor, True), y)
        log_determinant = 2 * jnp.sum(jnp.log(jnp.diag(factor)))
        return 0.5 * (y @ weights + log_determinant + points * jnp.log(2 * jnp.pi)) / points

    params = {"scales": jnp.zeros(dimension), "amplitude": jnp.zeros(()), "noise": jnp.zeros(())}
    return _training(L, loss, params, _regression(points, dimension), 0.01)


def torch_gaussian_process(
    torch: Any, device: Any, points: int, dimension: int
) -> Callable[[], Any]:
    x, y = _tensors(torch, device, _regression(points, dimension))
    scales, amplitude, noise = params = [
        torch.zeros(shape, device=device, requires_grad=True) for shape in ((dimension,), (), ())
    ]

    def loss() -> Any:
        scaled = x / scales.exp()
        gram = amplitude.exp() * torch.exp(-0.5 * torch.cdist(scaled, scaled).square())
        factor = torch.linalg.cholesky(gram + noise.exp() * torch.eye(points, device=device))
        weights = torch.cholesky_solve(y[:, None], factor)[:, 0]
        log_determinant = 2 * factor.diagonal().log().sum()
        return 0.5 * (y @ weights + log_determinant + points * np.log(2 * np.pi)) / points

    return _torch_training(torch, loss, params, 0.01)


# ------------------------------------------------------------------------------ Fourier operator


def _poisson(batch: int, size: int) -> Arrays:
    """Random sources f and the periodic solutions of u - u_xx - u_yy = f."""
    f = np.random.RandomState(0).randn(batch, size, size)
    kx, ky = np.fft.fftfreq(size, 1 / size)[:, None], np.fft.rfftfreq(size, 1 / size)
    u = np.fft.irfft2(np.fft.rfft2(f) / (1 + kx**2 + ky**2), s=(size, size))
    return _floats(f[..., None], u[..., None])


def fourier_operator(L: Any, batch: int, size: int, width: int, modes: int, layers: int) -> Made:
    """A Fourier neural operator in two dimensions, with a matrix for each of the lowest modes."""
    nn, jnp, m = L.linen, L.jnp, modes

    class SpectralConv(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            init = nn.initializers.normal(1 / width)
            real = self.param("real", init, (2, m, m, width, width))
            imag = self.param("imag", init, (2, m, m, width, width))
            low, high = real + 1j * imag
            modes = jnp.fft.rfft2(x, axes=(1, 2))
            out = jnp.zeros_like(modes)
            out = out.at[:, :m, :m].set(jnp.einsum("bxyi,xyio->bxyo", modes[:, :m, :m], low))
            out = out.at[:, -m:, :m].set(jnp.einsum("bxyi,xyio->bxyo", modes[:, -m:, :m], high))
            return jnp.fft.irfft2(out, s=x.shape[1:3], axes=(1, 2))

    class Operator(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.Dense(width)(x)
            for _ in range(layers):
                x = nn.gelu(SpectralConv()(x) + nn.Dense(width)(x))
            return nn.Dense(1)(nn.gelu(nn.Dense(2 * width)(x)))

    model, data = Operator(), _poisson(batch, size)

    def loss(params: Any, source: Any, solution: Any) -> Any:
        error = model.apply(params, source) - solution
        norm = lambda a: jnp.sqrt(jnp.sum(a**2, axis=(1, 2, 3)))
        return jnp.mean(norm(error) / norm(solution))

    return _training(L, loss, _init(L, model, data[0]), data)


def torch_fourier_operator(
    torch: Any, device: Any, batch: int, size: int, width: int, modes: int, layers: int
) -> Callable[[], Any]:
    nn, m = torch.nn, modes

    class SpectralConv(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            draw = lambda: torch.randn(width, width, m, m, dtype=torch.cfloat) / width
            self.low, self.high = nn.Parameter(draw()), nn.Parameter(draw())

        def forward(self, x: Any) -> Any:
            modes = torch.fft.rfft2(x)
            out = torch.zeros_like(modes)
            out[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", modes[:, :, :m, :m], self.low)
            out[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", modes[:, :, -m:, :m], self.high)
            return torch.fft.irfft2(out, s=x.shape[-2:])

    class Operator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(1, width, 1)
            self.spectral = nn.ModuleList([SpectralConv() for _ in range(layers)])
            self.dense = nn.ModuleList([nn.Conv2d(width, width, 1) for _ in range(layers)])
            self.last = nn.Sequential(
                nn.Conv2d(width, 2 * width, 1), nn.GELU("tanh"), nn.Conv2d(2 * width, 1, 1)
            )

        def forward(self, x: Any) -> Any:
            x = self.first(x)
            for spectral, dense in zip(self.spectral, self.dense):
                x = nn.functional.gelu(spectral(x) + dense(x), approximate="tanh")
            return self.last(x)

    data = _tensors(torch, device, _poisson(batch, size))
    source, solution = (a.permute(0, 3, 1, 2).contiguous() for a in data)
    model = Operator().to(device)
    norm = lambda a: torch.linalg.vector_norm(a, dim=(1, 2, 3))
    loss = lambda: (norm(model(source) - solution) / norm(solution)).mean()
    return _torch_training(torch, loss, model.parameters())


# ------------------------------------------------------------------------------------------ MAML

INNER_RATE = 0.001  # with a larger one, wide networks diverge


def _sines(tasks: int, shots: int) -> Arrays:
    """The inputs and values of a sine for each task: first for adaptation, then for evaluation."""
    random = np.random.RandomState(0)
    amplitude, phase = random.uniform(0.1, 5, (tasks, 1, 1)), random.uniform(0, 3, (tasks, 1, 1))
    x, z = random.uniform(-5, 5, (2, tasks, shots, 1))
    return _floats(x, amplitude * np.sin(x + phase), z, amplitude * np.sin(z + phase))


def maml(L: Any, tasks: int, shots: int, width: int, inner_steps: int) -> Made:
    """Initial parameters from which a few steps of gradient descent fit any sine."""
    jax, jnp = L.jax, L.jnp
    model = _network(L, 2, width, 1, L.linen.relu)

    def task_loss(params: Any, x: Any, y: Any) -> Any:
        return jnp.mean((model.apply(params, x) - y) ** 2)

    def adapted_loss(params: Any, x: Any, y: Any, new_x: Any, new_y: Any) -> Any:
        for _ in range(inner_steps):
            grads = jax.grad(task_loss)(params, x, y)
            params = jax.tree_util.tree_map(lambda p, g: p - INNER_RATE * g, params, grads)
        return task_loss(params, new_x, new_y)

    def loss(params: Any, *batch: Any) -> Any:
        return jnp.mean(jax.vmap(adapted_loss, in_axes=(None, 0, 0, 0, 0))(params, *batch))

    params = _init(L, model, np.zeros((1, 1), np.float32))
    return _training(L, loss, params, _sines(tasks, shots))


def torch_maml(
    torch: Any, device: Any, tasks: int, shots: int, width: int, inner_steps: int
) -> Callable[[], Any]:
    model = _torch_network(torch, 1, 2, width, 1, torch.nn.ReLU).to(device)
    data = _tensors(torch, device, _sines(tasks, shots))

    def task_loss(params: Any, x: Any, y: Any) -> Any:
        return torch.mean((torch.func.functional_call(model, params, (x,)) - y) ** 2)

    def adapted_loss(params: Any, x: Any, y: Any, new_x: Any, new_y: Any) -> Any:
        for _ in range(inner_steps):
            grads = torch.func.grad(task_loss)(params, x, y)
            params = {name: p - INNER_RATE * grads[name] for name, p in params.items()}
        return task_loss(params, new_x, new_y)

    params = dict(model.named_parameters())
    losses = torch.func.vmap(adapted_loss, in_dims=(None, 0, 0, 0, 0))
    return _torch_training(torch, lambda: losses(params, *data).mean(), model.parameters())


# ------------------------------------------------------------------------------ normalizing flow


def _mixture(batch: int, dimension: int) -> Arrays:
    random = np.random.RandomState(0)
    centres = 2 * random.randn(8, dimension)
    return _floats(centres[random.randint(0, 8, batch)] + 0.3 * random.randn(batch, dimension))


def normalizing_flow(L: Any, batch: int, dimension: int, width: int, layers: int) -> Made:
    """RealNVP: coupling layers whose log-determinants give the likelihood of the data."""
    nn, jnp = L.linen, L.jnp

    class Coupling(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            kept, changed = jnp.split(x, 2, axis=-1)
            h = nn.relu(nn.Dense(width)(kept))
            h = nn.relu(nn.Dense(width)(h))
            h = nn.Dense(dimension, kernel_init=nn.initializers.zeros)(h)  # initially the identity
            shift, scale = jnp.split(h, 2, axis=-1)
            scale = jnp.tanh(scale)
            changed = changed * jnp.exp(scale) + shift
            return jnp.concatenate([changed, kept], axis=-1), scale.sum(axis=-1)

    class Flow(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            log_determinant = jnp.zeros(x.shape[0])
            for _ in range(layers):
                x, change = Coupling()(x)
                log_determinant = log_determinant + change
            return L.stats.norm.logpdf(x).sum(axis=-1) + log_determinant

    model, data = Flow(), _mixture(batch, dimension)
    loss = lambda params, x: -jnp.mean(model.apply(params, x)) / dimension
    return _training(L, loss, _init(L, model, data[0]), data)


def torch_normalizing_flow(
    torch: Any, device: Any, batch: int, dimension: int, width: int, layers: int
) -> Callable[[], Any]:
    class Coupling(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = _torch_network(torch, dimension // 2, 2, width, dimension, torch.nn.ReLU)
            torch.nn.init.zeros_(self.network[-1].weight)

        def forward(self, x: Any) -> Any:
            kept, changed = x.chunk(2, dim=-1)
            shift, scale = self.network(kept).chunk(2, dim=-1)
            scale = scale.tanh()
            return torch.cat([changed * scale.exp() + shift, kept], dim=-1), scale.sum(dim=-1)

    flow = torch.nn.ModuleList([Coupling() for _ in range(layers)]).to(device)
    normal = torch.distributions.Normal(*torch.tensor([0.0, 1.0], device=device))
    (data,) = _tensors(torch, device, _mixture(batch, dimension))

    def loss() -> Any:
        x, log_determinant = data, torch.zeros(batch, device=device)
        for coupling in flow:
            x, change = coupling(x)
            log_determinant = log_determinant + change
        return -(normal.log_prob(x).sum(dim=-1) + log_determinant).mean() / dimension

    return _torch_training(torch, loss, flow.parameters())


# --------------------------------------------------------------------- physics-informed network


def _soliton(points: int) -> Arrays:
    """Times and positions for the equation, and positions and initial values of a soliton."""
    random = np.random.RandomState(0)
    t, x, start = random.uniform(0, 1, points), *random.uniform(-5, 5, (2, points))
    return _floats(t, x, start, 0.5 / np.cosh(0.5 * start) ** 2)


def korteweg_de_vries(L: Any, points: int, width: int, layers: int) -> Made:
    """A network that solves u_t + 6 u u_x + u_xxx = 0, by nested derivatives at each point."""
    jax, jnp = L.jax, L.jnp
    model = _network(L, layers, width, 1, L.linen.tanh)

    def loss(params: Any, t: Any, x: Any, start_x: Any, start_u: Any) -> Any:
        def u(t: Any, x: Any) -> Any:
            return model.apply(params, jnp.stack([t, x]))[0]

        u_t, u_x = jax.grad(u, 0), jax.grad(u, 1)
        u_xxx = jax.grad(jax.grad(u_x, 1), 1)

        def residual(t: Any, x: Any) -> Any:
            return u_t(t, x) + 6 * u(t, x) * u_x(t, x) + u_xxx(t, x)

        start = jax.vmap(u, in_axes=(None, 0))(0.0, start_x)
        equation = jnp.mean(jax.vmap(residual)(t, x) ** 2)
        return equation + jnp.mean((start - start_u) ** 2)

    params = _init(L, model, np.zeros(2, np.float32))
    return _training(L, loss, params, _soliton(points))


def torch_korteweg_de_vries(
    torch: Any, device: Any, points: int, width: int, layers: int
) -> Callable[[], Any]:
    t, x, start_x, start_u = _tensors(torch, device, _soliton(points))
    t.requires_grad_()
    x.requires_grad_()
    model = _torch_network(torch, 2, layers, width, 1, torch.nn.Tanh).to(device)
    network = lambda t, x: model(torch.stack([t, x], dim=-1))[:, 0]
    grads = lambda y, xs: torch.autograd.grad(y.sum(), xs, create_graph=True)

    def loss() -> Any:
        u = network(t, x)
        u_t, u_x = grads(u, (t, x))
        (u_xx,) = grads(u_x, (x,))
        (u_xxx,) = grads(u_xx, (x,))
        start = network(torch.zeros_like(start_x), start_x)
        equation = torch.mean((u_t + 6 * u * u_x + u_xxx) ** 2)
        return equation + torch.mean((start - start_u) ** 2)

    return _torch_training(torch, loss, model.parameters())


# --------------------------------------------------------------------------------- Kalman filter


def _tracks(series: int, steps: int, axes: int) -> tuple[Arrays, Arrays]:
    """The initial parameters of the filter, measured positions, and their variances."""
    random = np.random.RandomState(0)
    position = np.cumsum(0.1 * np.cumsum(random.randn(series, steps, axes), 1), 1)
    variances = random.uniform(0.1, 1, position.shape)
    readings = position + np.sqrt(variances) * random.randn(*position.shape)
    eye, zeros = np.eye(axes), np.zeros((axes, axes))
    transition, emission = np.block([[eye, 0.1 * eye], [zeros, eye]]), np.eye(axes, 2 * axes)
    return _floats(transition, emission, np.zeros(2 * axes)), _floats(readings, variances)


def kalman_filter(L: Any, series: int, steps: int, axes: int) -> Made:
    """The likelihood of many series under one linear model of motion, computed by a Kalman
    filter."""
    jnp, solve = L.jnp, L.jnp.linalg.solve

    def log_likelihood(params: Any, readings: Any, variances: Any) -> Any:
        transition, emission, log_noise = params
        noise = jnp.diag(jnp.exp(log_noise))

        def update(belief: Any, seen: Any) -> Any:
            mean, covariance = belief
            reading, variance = seen
            mean = transition @ mean
            covariance = transition @ covariance @ transition.T + noise
            error = reading - emission @ mean
            spread = emission @ covariance @ emission.T + jnp.diag(variance)
            gain = solve(spread, emission @ covariance).T
            log_determinant = jnp.linalg.slogdet(spread)[1]
            square = error @ solve(spread, error)
            value = -0.5 * (square + log_determinant + axes * jnp.log(2 * jnp.pi))
            return (mean + gain @ error, covariance - gain @ emission @ covariance), value

        belief = jnp.zeros(2 * axes), jnp.eye(2 * axes)
        return jnp.mean(L.lax.scan(update, belief, (readings, variances))[1])

    def loss(params: Any, *batch: Any) -> Any:
        return -jnp.mean(L.jax.vmap(log_likelihood, in_axes=(None, 0, 0))(params, *batch))

    params, data = _tracks(series, steps, axes)
    return _training(L, loss, tuple(jnp.asarray(p) for p in params), data)


def torch_kalman_filter(
    torch: Any, device: Any, series: int, steps: int, axes: int
) -> Callable[[], Any]:
    first, data = _tracks(series, steps, axes)
    readings, variances = _tensors(torch, device, data)
    params = [p.requires_grad_() for p in _tensors(torch, device, first)]
    transition, emission, log_noise = params
    solve = torch.linalg.solve

    def loss() -> Any:
        noise, total = torch.diag(log_noise.exp()), torch.zeros((), device=device)
        mean = torch.zeros(series, 2 * axes, device=device)
        covariance = torch.eye(2 * axes, device=device).expand(series, -1, -1)
        for reading, variance in zip(readings.unbind(1), variances.unbind(1)):
            mean = mean @ transition.T
            covariance = transition @ covariance @ transition.T + noise
            error = reading - mean @ emission.T
            spread = emission @ covariance @ emission.T + torch.diag_embed(variance)
            gain = solve(spread, emission @ covariance).mT
            log_determinant = torch.linalg.slogdet(spread)[1]
            square = (error * solve(spread, error)).sum(dim=-1)
            value = -0.5 * (square + log_determinant + axes * np.log(2 * np.pi))
            mean = mean + (gain @ error[..., None])[..., 0]
            covariance = covariance - gain @ emission @ covariance
            total = total - value.mean()
        return total / steps

    return _torch_training(torch, loss, params)


# ------------------------------------------------------------------------------ natural gradient

DAMPING, RADIUS = 0.1, 0.01


def _episodes(batch: int, features: int, actions: int) -> Arrays:
    random = np.random.RandomState(0)
    observations, advantages = _floats(random.randn(batch, features), random.randn(batch))
    return observations, random.randint(0, actions, batch), advantages


def natural_gradient(
    L: Any, batch: int, features: int, width: int, actions: int, iterations: int
) -> Made:
    """A policy step in a trust region, computed with conjugate gradients.

    The conjugate gradients use products with the Hessian of the divergence from the current
    policy."""
    jax, jnp, lax = L.jax, L.jnp, L.lax
    model = _network(L, 2, width, actions, L.linen.tanh)
    params = _init(L, model, np.zeros((1, features), np.float32))
    first, unravel = jax.flatten_util.ravel_pytree(params)

    def log_policy(flat: Any, observations: Any) -> Any:
        return L.nn.log_softmax(model.apply(unravel(flat), observations))

    def conjugate_gradients(product: Any, b: Any) -> Any:
        def unfinished(carry: Any) -> Any:
            *_, square, k = carry
            return (square > 1e-10) & (k < iterations)

        def improve(carry: Any) -> Any:
            x, residual, direction, square, k = carry
            moved = product(direction)
            alpha = square / jnp.vdot(direction, moved)
            x, residual = x + alpha * direction, residual - alpha * moved
            new = jnp.vdot(residual, residual)
            return x, residual, residual + new / square * direction, new, k + 1

        start = (jnp.zeros_like(b), b, b, jnp.vdot(b, b), 0)
        return lax.while_loop(unfinished, improve, start)[0]

    def step(flat: Any, observations: Any, chosen: Any, advantages: Any) -> Any:
        def loss(flat: Any) -> Any:
            log_p = log_policy(flat, observations)
            return -jnp.mean(jnp.take_along_axis(log_p, chosen[:, None], 1)[:, 0] * advantages)

        present = lax.stop_gradient(log_policy(flat, observations))

        def divergence(flat: Any) -> Any:
            change = present - log_policy(flat, observations)
            return jnp.mean(jnp.sum(jnp.exp(present) * change, axis=-1))

        def product(v: Any) -> Any:
            return jax.jvp(jax.grad(divergence), (flat,), (v,))[1] + DAMPING * v

        value, grads = jax.value_and_grad(loss)(flat)
        direction = conjugate_gradients(product, grads)
        length = jnp.sqrt(2 * RADIUS / jnp.vdot(direction, product(direction)))
        return flat - length * direction, value

    data = _episodes(batch, features, actions)
    return Made(step, first, tuple(jnp.asarray(a) for a in data))


def torch_natural_gradient(
    torch: Any, device: Any, batch: int, features: int, width: int, actions: int, iterations: int
) -> Callable[[bool], Any]:
    model = _torch_network(torch, features, 2, width, actions, torch.nn.Tanh).to(device)
    observations, chosen, advantages = _tensors(torch, device, _episodes(batch, features, actions))
    params, utils = list(model.parameters()), torch.nn.utils
    flat = lambda tensors: torch.cat([t.reshape(-1) for t in tensors])
    initial = utils.parameters_to_vector(params).detach().clone()

    def once(begins: bool) -> Any:
        if begins:
            with torch.no_grad():
                utils.vector_to_parameters(initial.clone(), params)
        log_p = torch.log_softmax(model(observations), dim=-1)
        loss = -(log_p.gather(1, chosen[:, None])[:, 0] * advantages).mean()
        b = flat(torch.autograd.grad(loss, params, retain_graph=True))
        present = log_p.detach()
        divergence = (present.exp() * (present - log_p)).sum(dim=-1).mean()
        slope = flat(torch.autograd.grad(divergence, params, create_graph=True))

        def product(v: Any) -> Any:
            return flat(torch.autograd.grad(slope @ v, params, retain_graph=True)) + DAMPING * v

        x, residual, direction, square = torch.zeros_like(b), b, b, b @ b
        for _ in range(iterations):
            moved = product(direction)
            alpha = square / (direction @ moved)
            x, residual = x + alpha * direction, residual - alpha * moved
            new = residual @ residual
            if new < 1e-10:
                break
            direction, square = residual + new / square * direction, new
        length = torch.sqrt(2 * RADIUS / (x @ product(x)))
        with torch.no_grad():
            utils.vector_to_parameters(utils.parameters_to_vector(params) - length * x, params)
        return loss.detach()

    return once


# ---------------------------------------------------------------------------- molecular dynamics

DENSITY, TEMPERATURE, MOLECULAR_STEP = 0.8442, 0.728, 0.005


def _crystal(cells: int) -> tuple[float, Arrays]:
    """The side of the box, the positions of four particles in each cell, and their velocities."""
    corners = np.stack(np.meshgrid(*[np.arange(cells)] * 3), -1).reshape(-1, 1, 3)
    within = np.array([[0, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]])
    box = cells * (4 / DENSITY) ** (1 / 3)
    positions = (corners + within).reshape(-1, 3) * (box / cells)
    velocities = TEMPERATURE**0.5 * np.random.RandomState(0).randn(*positions.shape)
    return box, _floats(positions, velocities - velocities.mean(axis=0))


def molecular_dynamics(L: Any, cells: int, steps: int) -> Made:
    """Particles with Lennard-Jones forces in a periodic box; the result is their mean energy."""
    jnp = L.jnp
    box, (positions, velocities) = _crystal(cells)
    same = jnp.eye(len(positions), dtype=bool)

    def potential(positions: Any) -> Any:
        apart = positions[:, None] - positions[None]
        apart = apart - box * jnp.round(apart / box)
        square = jnp.where(same, 1.0, jnp.sum(apart**2, axis=-1))
        sixth = jnp.where(same, 0.0, 1 / square**3)
        return 2 * jnp.sum(sixth**2 - sixth)

    energy_and_slope = L.jax.value_and_grad(potential)

    def verlet(state: Any, _: Any) -> Any:
        x, v, slope = state
        v = v - 0.5 * MOLECULAR_STEP * slope
        x = x + MOLECULAR_STEP * v
        energy, slope = energy_and_slope(x)
        v = v - 0.5 * MOLECULAR_STEP * slope
        return (x, v, slope), energy + 0.5 * jnp.sum(v**2)

    def step(state: Any) -> Any:
        x, v = state
        (x, v, _), energies = L.lax.scan(verlet, (x, v, energy_and_slope(x)[1]), None, length=steps)
        return (x, v), jnp.mean(energies)

    return Made(step, (jnp.asarray(positions), jnp.asarray(velocities)), ())


def torch_molecular_dynamics(torch: Any, device: Any, cells: int, steps: int) -> Callable[[], Any]:
    box, data = _crystal(cells)
    state = _tensors(torch, device, data)
    same = torch.eye(len(state[0]), dtype=torch.bool, device=device)

    def energy_and_slope(positions: Any) -> Any:
        positions = positions.detach().requires_grad_()
        apart = positions[:, None] - positions[None]
        apart = apart - box * torch.round(apart / box)
        square = apart.square().sum(dim=-1).masked_fill(same, 1.0)
        sixth = (1 / square**3).masked_fill(same, 0.0)
        energy = 2 * torch.sum(sixth**2 - sixth)
        return energy.detach(), torch.autograd.grad(energy, positions)[0]

    def once() -> Any:
        x, v = state
        slope, energies = energy_and_slope(x)[1], []
        for _ in range(steps):
            v = v - 0.5 * MOLECULAR_STEP * slope
            x = x + MOLECULAR_STEP * v
            energy, slope = energy_and_slope(x)
            v = v - 0.5 * MOLECULAR_STEP * slope
            energies.append(energy + 0.5 * v.square().sum())
        state[:] = x, v
        return torch.stack(energies).mean()

    return once


# ----------------------------------------------------------------------- Hamiltonian Monte Carlo


def _binary(examples: int, features: int) -> Arrays:
    """Inputs, and labels of 1 and -1 drawn from a logistic model of the inputs."""
    random = np.random.RandomState(0)
    x, weights = random.randn(examples, features), random.randn(features) / features**0.5
    return _floats(x, np.where(random.rand(examples) < 1 / (1 + np.exp(-x @ weights)), 1, -1))


def hamiltonian_monte_carlo(
    L: Any, chains: int, examples: int, features: int, leapfrog_steps: int
) -> Made:
    """Samples of the weights of a logistic regression, in many parallel chains."""
    jax, jnp, lax, random = L.jax, L.jnp, L.lax, L.random
    size = 0.5 / examples**0.5

    def step(state: Any, x: Any, signs: Any) -> Any:
        def potential(weights: Any) -> Any:
            return jnp.sum(L.nn.softplus(-signs * (x @ weights))) + 0.5 * jnp.sum(weights**2)

        slope = jax.grad(potential)

        def transition(key: Any, start: Any) -> Any:
            momentum_key, accept_key = random.split(key)
            momentum = random.normal(momentum_key, start.shape)

            def leapfrog(_: Any, carry: Any) -> Any:
                q, p = carry
                q = q + size * p
                return q, p - size * slope(q)

            carry = start, momentum - 0.5 * size * slope(start)
            q, p = lax.fori_loop(0, leapfrog_steps, leapfrog, carry)
            p = p + 0.5 * size * slope(q)
            before = potential(start) + 0.5 * jnp.sum(momentum**2)
            after = potential(q) + 0.5 * jnp.sum(p**2)
            accepted = jnp.log(random.uniform(accept_key)) < before - after
            return jnp.where(accepted, q, start), jnp.where(
                accepted, potential(q), potential(start)
            )

        key, weights = state
        key, used = random.split(key)
        weights, energies = jax.vmap(transition)(random.split(used, chains), weights)
        return (key, weights), jnp.mean(energies)

    state = random.key(0), jnp.zeros((chains, features))
    return Made(step, state, tuple(jnp.asarray(a) for a in _binary(examples, features)))


def torch_hamiltonian_monte_carlo(
    torch: Any, device: Any, chains: int, examples: int, features: int, leapfrog_steps: int
) -> Callable[[], Any]:
    x, signs = _tensors(torch, device, _binary(examples, features))
    state = [torch.zeros(chains, features, device=device)]
    size = 0.5 / examples**0.5

    def potential(weights: Any) -> Any:
        fit = torch.nn.functional.softplus(-signs * (weights @ x.T)).sum(dim=-1)
        return fit + 0.5 * weights.square().sum(dim=-1)

    def slope(weights: Any) -> Any:
        weights = weights.detach().requires_grad_()
        return torch.autograd.grad(potential(weights).sum(), weights)[0]

    def once() -> Any:
        (start,) = state
        momentum = torch.randn_like(start)
        q, p = start, momentum - 0.5 * size * slope(start)
        for _ in range(leapfrog_steps):
            q = q + size * p
            p = p - size * slope(q)
        p = p + 0.5 * size * slope(q)
        first, last = potential(start), potential(q)
        change = first - last + 0.5 * (momentum.square() - p.square()).sum(dim=-1)
        accepted = torch.rand(chains, device=device).log() < change
        state[0] = torch.where(accepted[:, None], q, start)
        return torch.where(accepted, last, first).mean()

    return once


def _sizes(names: str, tiny: Any, cpu: Any, gpu: Any) -> dict[str, dict[str, Any]]:
    rows = {"tiny": tiny, "cpu": cpu, "gpu": gpu}
    return {at: dict(zip(names.split(), values, strict=True)) for at, values in rows.items()}


PROGRAMS = (
    Program(
        "neural ODE", neural_ode,
        _sizes("batch dimension width steps", (8, 2, 8, 5), (128, 8, 64, 50), (4096, 32, 256, 50)),
        torch_neural_ode,
    ),
    Program(
        "Gaussian process", gaussian_process,
        _sizes("points dimension", (16, 2), (512, 4), (4096, 8)),
        torch_gaussian_process,
    ),
    Program(
        "Fourier neural operator", fourier_operator,
        _sizes("batch size width modes layers", (2, 8, 4, 2, 1), (4, 32, 16, 8, 4),
               (32, 128, 64, 16, 4)),
        torch_fourier_operator,
    ),
    Program(
        "MAML", maml,
        _sizes("tasks shots width inner_steps", (4, 5, 8, 2), (64, 10, 64, 5), (1024, 20, 256, 5)),
        torch_maml,
    ),
    Program(
        "normalizing flow", normalizing_flow,
        _sizes("batch dimension width layers", (8, 4, 8, 2), (512, 16, 128, 8),
               (16384, 64, 1024, 12)),
        torch_normalizing_flow,
    ),
    Program(
        "Korteweg-de Vries network", korteweg_de_vries,
        _sizes("points width layers", (8, 8, 2), (1024, 64, 4), (16384, 256, 4)),
        torch_korteweg_de_vries,
    ),
    Program(
        "Kalman filter", kalman_filter,
        _sizes("series steps axes", (3, 5, 2), (32, 100, 3), (1024, 64, 4)),
        torch_kalman_filter,
    ),
    Program(
        "natural gradient", natural_gradient,
        _sizes("batch features width actions iterations", (8, 4, 8, 3, 3), (1024, 64, 128, 16, 10),
               (16384, 256, 1024, 64, 10)),
        torch_natural_gradient, restarts=5,
    ),
    Program(
        "molecular dynamics", molecular_dynamics,
        _sizes("cells steps", (2, 20), (3, 500), (6, 2000)),
        torch_molecular_dynamics,
    ),
    Program(
        "Hamiltonian Monte Carlo", hamiltonian_monte_carlo,
        _sizes("chains examples features leapfrog_steps", (4, 32, 3, 5), (64, 1000, 24, 50),
               (1024, 16384, 128, 50)),
        torch_hamiltonian_monte_carlo,
    ),
)  # fmt: skip
