"""Optimizers as triples of functions, as in `jax.example_libraries.optimizers`.

A rule is written for one array: `init(x)` makes its state, `update(i, g, state)` takes step number
i, `get_params(state)` gives the array back. `optimizer` lifts such a rule to trees of parameters.
The lifted state is two trees in one, that of the parameters with the state of an array at each
leaf; it is kept flat, and both structures are aux data of the node `OptimizerState`. Built on
`toile.numpy` and `toile.tree_util` only. New code is better off with `toile.optim`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from toile import numpy as jnp
from toile.engine.source import here
from toile.tree_util import register_pytree_node, tree_flatten, tree_map, tree_unflatten

__all__ = [
    "Array", "InitFn", "JoinPoint", "Optimizer", "OptimizerState", "Params", "ParamsFn", "Schedule",
    "State", "Step", "UpdateFn", "Updates", "adagrad", "adam", "adamax", "clip_grads", "constant",
    "exponential_decay", "inverse_time_decay", "l2_norm", "make_schedule", "momentum", "nesterov",
    "optimizer", "pack_optimizer_state", "piecewise_constant", "polynomial_decay", "rmsprop",
    "rmsprop_momentum", "sgd", "sm3", "unpack_optimizer_state",
]  # fmt: skip


class OptimizerState(NamedTuple):
    """The states of all arrays, flat, with the structures that make two trees of them."""

    packed_state: Any
    tree_def: Any
    subtree_defs: Any


register_pytree_node(
    OptimizerState,
    lambda state: ((state.packed_state,), (state.tree_def, state.subtree_defs)),
    lambda defs, packed: OptimizerState(packed[0], *defs),
)

Array = Any
Params = Any  # any tree of arrays
State = Any  # what a rule keeps of one array, itself a tree
Updates = Params
Step = int
InitFn = Callable[[Params], OptimizerState]
UpdateFn = Callable[[Step, Updates, OptimizerState], OptimizerState]
ParamsFn = Callable[[OptimizerState], Params]
Schedule = Callable[[Step], Any]  # the rate of a step


class Optimizer(NamedTuple):
    """Makes a state of parameters, takes a step, gives the parameters of a state."""

    init_fn: InitFn
    update_fn: UpdateFn
    params_fn: ParamsFn


Rule = tuple[
    Callable[[Array], State], Callable[[Step, Array, State], State], Callable[[State], Array]
]


def _pack(tree_def: Any, states: list[State]) -> OptimizerState:
    """One `OptimizerState` of the states of all arrays."""
    flat = [tree_flatten(state) for state in states]
    return OptimizerState(
        tuple(leaves for leaves, _ in flat), tree_def, tuple(subtree for _, subtree in flat)
    )


def _states(opt_state: OptimizerState) -> list[State]:
    """The states of all arrays, in the order of the parameters' leaves."""
    packed, _, subtrees = opt_state
    return [tree_unflatten(d, leaves) for d, leaves in zip(subtrees, packed, strict=True)]


def optimizer(opt_maker: Callable[..., Rule]) -> Callable[..., Optimizer]:
    """Make a function that returns a rule for one array return an optimizer of trees.

    >>> @optimizer
    ... def halving():
    ...     return lambda x: x, lambda i, g, x: x - g / 2, lambda x: x
    >>> init, update, get_params = halving()
    >>> state = update(0, {'w': 4.0}, init({'w': 3.0}))
    >>> get_params(state)
    {'w': 1.0}
    """

    @functools.wraps(opt_maker)
    def tree_opt_maker(*args: Any, **kwargs: Any) -> Optimizer:
        init, update, get_params = opt_maker(*args, **kwargs)

        @functools.wraps(init)
        def tree_init(x0_tree: Params) -> OptimizerState:
            leaves, tree_def = tree_flatten(x0_tree)
            return _pack(tree_def, [init(x) for x in leaves])

        @functools.wraps(update)
        def tree_update(i: Step, grad_tree: Updates, opt_state: OptimizerState) -> OptimizerState:
            _, tree_def, subtrees = opt_state
            grads, grad_def = tree_flatten(grad_tree)
            if grad_def != tree_def:
                raise TypeError(
                    f"optimizer update: needed a gradient tree like the parameter tree {tree_def}, "
                    f"got {grad_def}{here()}"
                )
            states = zip(grads, _states(opt_state), strict=True)
            new = _pack(tree_def, [update(i, g, state) for g, state in states])
            for before, after in zip(subtrees, new.subtree_defs, strict=True):
                if before != after:
                    raise TypeError(
                        f"optimizer update: needed a new state of the structure {before}, as "
                        f"before the step, got {after}{here()}"
                    )
            return new

        @functools.wraps(get_params)
        def tree_get_params(opt_state: OptimizerState) -> Params:
            params = [get_params(state) for state in _states(opt_state)]
            return tree_unflatten(opt_state[1], params)

        return Optimizer(tree_init, tree_update, tree_get_params)

    return tree_opt_maker


def _first(state: State) -> Array:
    """The parameters of a state that begins with them."""
    return state[0]


def _with_zeros(n: int) -> Callable[[Array], State]:
    """Makes the state of an array and n arrays of zeros like it."""
    return lambda x0: (x0, *(jnp.zeros_like(x0) for _ in range(n)))


def _inverse_root(x: Array) -> Array:
    """1/√x, and 0 where x is 0."""
    return jnp.where(x > 0, 1.0 / jnp.sqrt(x), 0.0)


@optimizer
def sgd(step_size: Any) -> Rule:
    """Gradient descent: x - step_size(i) g.

    >>> init, update, get_params = sgd(0.5)
    >>> state = update(0, jnp.array([2.0, 4.0]), init(jnp.ones(2)))
    >>> print(get_params(state))
    [ 0. -1.]
    """
    rate = make_schedule(step_size)

    def update(i: Step, g: Array, x: Array) -> Array:
        return x - rate(i) * g

    return lambda x0: x0, update, lambda x: x


def _with_velocity(step_size: Any, mass: float, ahead: bool) -> Rule:
    """Steps along a velocity, or along what it is going to be."""
    rate = make_schedule(step_size)

    def update(i: Step, g: Array, state: State) -> State:
        x, velocity = state
        velocity = mass * velocity + g
        return x - rate(i) * (mass * velocity + g if ahead else velocity), velocity

    return _with_zeros(1), update, _first


@optimizer
def momentum(step_size: Any, mass: float) -> Rule:
    """Gradient descent with momentum: the velocity decays by `mass` and takes the gradient in."""
    return _with_velocity(step_size, mass, ahead=False)


@optimizer
def nesterov(step_size: Any, mass: float) -> Rule:
    """Gradient descent with Nesterov's momentum: a step of where the velocity is going to be."""
    return _with_velocity(step_size, mass, ahead=True)


@optimizer
def adagrad(step_size: Any, momentum: float = 0.9) -> Rule:
    """AdaGrad: gradients over the root of the sum of their squares, averaged by `momentum`."""
    rate = make_schedule(step_size)

    def update(i: Step, g: Array, state: State) -> State:
        x, squares, m = state
        squares = squares + jnp.square(g)
        m = (1.0 - momentum) * (g * _inverse_root(squares)) + momentum * m
        return x - rate(i) * m, squares, m

    return _with_zeros(2), update, _first


@optimizer
def rmsprop(step_size: Any, gamma: float = 0.9, eps: float = 1e-8) -> Rule:
    """RMSProp: gradients over the root of a running mean, of decay `gamma`, of their squares."""
    rate = make_schedule(step_size)

    def update(i: Step, g: Array, state: State) -> State:
        x, squares = state
        squares = squares * gamma + jnp.square(g) * (1.0 - gamma)
        return x - rate(i) * g / jnp.sqrt(squares + eps), squares

    return _with_zeros(1), update, _first


@optimizer
def rmsprop_momentum(
    step_size: Any, gamma: float = 0.9, eps: float = 1e-8, momentum: float = 0.9
) -> Rule:
    """RMSProp whose steps have momentum."""
    rate = make_schedule(step_size)

    def update(i: Step, g: Array, state: State) -> State:
        x, squares, step = state
        squares = squares * gamma + jnp.square(g) * (1.0 - gamma)
        step = momentum * step + rate(i) * g / jnp.sqrt(squares + eps)
        return x - step, squares, step

    return _with_zeros(2), update, _first


@optimizer
def adam(step_size: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Rule:
    """Adam: running means of gradients and of their squares, of decay `b1` and `b2`, unbiased."""
    rate = make_schedule(step_size)

    def update(i: Step, g: Array, state: State) -> State:
        x, m, v = state
        m = (1 - b1) * g + b1 * m
        v = (1 - b2) * jnp.square(g) + b2 * v
        mean = m / (1 - jnp.asarray(b1, m.dtype) ** (i + 1))
        square = v / (1 - jnp.asarray(b2, m.dtype) ** (i + 1))
        return x - rate(i) * mean / (jnp.sqrt(square) + eps), m, v

    return _with_zeros(2), update, _first


@optimizer
def adamax(step_size: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Rule:
    """AdaMax: Adam with a decaying maximum of |g| for the running mean of squares."""
    rate = make_schedule(step_size)

    def update(i: Step, g: Array, state: State) -> State:
        x, m, u = state
        m = (1 - b1) * g + b1 * m
        u = jnp.maximum(b2 * u, jnp.abs(g))
        scale = rate(i) / (1 - jnp.asarray(b1, m.dtype) ** (i + 1))
        return x - scale * m / (u + eps), m, u

    return _with_zeros(2), update, _first


@optimizer
def sm3(step_size: Any, momentum: float = 0.9) -> Rule:
    """SM3: AdaGrad that keeps one vector per axis, the maxima of the sums along the others.

    The shape of the parameter is part of the state, as numbers: `get_params` cannot be traced.
    """
    rate = make_schedule(step_size)

    def others(x: Array, axis: int) -> tuple[int, ...]:
        return tuple(a for a in range(x.ndim) if a != axis)

    def init(x0: Array) -> State:
        x = jnp.atleast_1d(x0)
        return x, jnp.zeros_like(x), [jnp.zeros(n, dtype=x.dtype) for n in x.shape], x0.shape

    def update(i: Step, g: Array, state: State) -> State:
        x, m, vectors, shape = state
        # The sum of squares of an element is at most what each of its axes says.
        bounds = [jnp.expand_dims(v, others(g, k)) for k, v in enumerate(vectors)]
        total = functools.reduce(jnp.minimum, bounds) + jnp.square(g)
        m = (1.0 - momentum) * (g * _inverse_root(total)) + momentum * m
        vectors = [jnp.max(total, axis=others(x, k)) for k in range(x.ndim)]
        return x - rate(i) * m, m, vectors, shape

    def get_params(state: State) -> Array:
        x, _, _, shape = state
        return x.reshape(shape)

    return init, update, get_params


def constant(step_size: Any) -> Schedule:
    """The same rate at every step."""
    return lambda i: step_size


def exponential_decay(step_size: Any, decay_steps: Any, decay_rate: Any) -> Schedule:
    """The rate times `decay_rate` every `decay_steps` steps, smoothly."""
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(
    step_size: Any, decay_steps: Any, decay_rate: Any, staircase: bool = False
) -> Schedule:
    """The rate over 1 + decay_rate · i/decay_steps, the fraction rounded down if `staircase`."""
    if staircase:
        return lambda i: step_size / (1 + decay_rate * jnp.floor(i / decay_steps))
    return lambda i: step_size / (1 + decay_rate * i / decay_steps)


def polynomial_decay(
    step_size: Any, decay_steps: Any, final_step_size: Any, power: Any = 1.0
) -> Schedule:
    """From one rate to another in `decay_steps` steps, along a power of what is left of them."""

    def schedule(step_num: Step) -> Any:
        done = jnp.minimum(step_num, decay_steps)
        left = (1 - done / decay_steps) ** power
        return left * (step_size - final_step_size) + final_step_size

    return schedule


def piecewise_constant(boundaries: Any, values: Any) -> Schedule:
    """The value whose number is how many of the boundaries are behind.

    >>> rate = piecewise_constant([10, 20], [1.0, 0.5, 0.25])
    >>> float(rate(10)), float(rate(11)), float(rate(30))
    (1.0, 0.5, 0.25)
    """
    ends, rates = jnp.array(boundaries), jnp.array(values)
    if not ends.ndim == rates.ndim == 1:
        raise ValueError(
            "piecewise_constant: needed boundaries and values as sequences, got shapes "
            f"{ends.shape} and {rates.shape}{here()}"
        )
    if len(ends) != len(rates) - 1:
        raise ValueError(
            "piecewise_constant: needed one boundary less than values, got "
            f"{len(ends)} boundaries and {len(rates)} values{here()}"
        )
    return lambda i: rates[jnp.sum(i > ends)]


def make_schedule(scalar_or_schedule: Any) -> Schedule:
    """A schedule of a scalar; schedules stay as they are."""
    if callable(scalar_or_schedule):
        return scalar_or_schedule
    if jnp.ndim(scalar_or_schedule) == 0:
        return constant(scalar_or_schedule)
    raise TypeError(
        f"make_schedule: needed a scalar or a function of the step, got "
        f"{type(scalar_or_schedule)}{here()}"
    )


def l2_norm(tree: Any) -> Array:
    """The root of the sum of squares of all elements of a tree."""
    leaves, _ = tree_flatten(tree)
    return jnp.sqrt(sum(jnp.vdot(x, x) for x in leaves))


def clip_grads(grad_tree: Any, max_norm: Any) -> Any:
    """The tree, scaled to the norm `max_norm` where it has a larger one."""
    norm = l2_norm(grad_tree)
    return tree_map(lambda g: jnp.where(norm < max_norm, g, g * (max_norm / norm)), grad_tree)


class JoinPoint:
    """Stands where a leaf of the parameters was and holds the tree of its state."""

    def __init__(self, subtree: Any):
        self.subtree = subtree

    def __iter__(self) -> Iterator[Any]:
        yield self.subtree


def unpack_optimizer_state(opt_state: OptimizerState) -> Any:
    """The tree of the parameters with a `JoinPoint` at each leaf, to save it by."""
    return tree_unflatten(opt_state[1], [JoinPoint(state) for state in _states(opt_state)])


def pack_optimizer_state(marked_pytree: Any) -> OptimizerState:
    """The state of a tree with a `JoinPoint` at each leaf: undoes `unpack_optimizer_state`."""
    points, tree_def = tree_flatten(marked_pytree)
    if not all(isinstance(point, JoinPoint) for point in points):
        kinds = sorted({type(point).__name__ for point in points})
        raise AssertionError(
            f"pack_optimizer_state: needed a JoinPoint at each leaf, got {', '.join(kinds)}{here()}"
        )
    return _pack(tree_def, [point.subtree for point in points])
