"""Optimizers as triples of functions, as in `jax.example_libraries.optimizers`.

A rule is written for one array: `init(x)` creates the array's state, `update(i, g, state)` performs
step number `i`, and `get_params(state)` returns the array. `optimizer` turns such a rule into an
optimizer for trees of parameters. The optimizer's state is an `OptimizerState`. In new code, use
`toile.optim`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from toile import numpy as jnp
from toile.engine.annotations import PyTree
from toile.engine.source import here
from toile.tree_util import (
    PyTreeDef,
    register_pytree_node,
    tree_flatten,
    tree_map,
    tree_unflatten,
)

__all__ = [
    "Array", "InitFn", "JoinPoint", "Optimizer", "OptimizerState", "Params", "ParamsFn", "Schedule",
    "State", "Step", "UpdateFn", "Updates", "adagrad", "adam", "adamax", "clip_grads", "constant",
    "exponential_decay", "inverse_time_decay", "l2_norm", "make_schedule", "momentum", "nesterov",
    "optimizer", "pack_optimizer_state", "piecewise_constant", "polynomial_decay", "rmsprop",
    "rmsprop_momentum", "sgd", "sm3", "unpack_optimizer_state",
]  # fmt: skip


class OptimizerState(NamedTuple):
    """An optimizer's state, which stores the states of all parameters in one flat list.

    An OptimizerState is a tree whose leaves are the arrays in `packed_state`.

    Args:
        packed_state: the leaves of each parameter's state.
        tree_def: structure of the parameters.
        subtree_defs: the structure of each parameter's state.
    """

    packed_state: Sequence[list[Any]]
    tree_def: PyTreeDef
    subtree_defs: Sequence[PyTreeDef]


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
    """The three functions of an optimizer: create a state, perform a step, return the parameters.

    Args:
        init_fn: a function `f(params)` that returns the initial state.
        update_fn: a function `f(i, grads, state)` that returns the state after step number `i`.
        params_fn: a function `f(state)` that returns the parameters.
    """

    init_fn: InitFn
    update_fn: UpdateFn
    params_fn: ParamsFn


Rule = tuple[
    Callable[[Array], State], Callable[[Step, Array, State], State], Callable[[State], Array]
]


def _pack(tree_def: PyTreeDef, states: list[State]) -> OptimizerState:
    """Combine the states of all arrays into an `OptimizerState`."""
    flat = [tree_flatten(state) for state in states]
    return OptimizerState(
        tuple(leaves for leaves, _ in flat), tree_def, tuple(subtree for _, subtree in flat)
    )


def _states(opt_state: OptimizerState) -> list[State]:
    """The states of all arrays, in the order of the parameters' leaves."""
    packed, _, subtrees = opt_state
    return [tree_unflatten(d, leaves) for d, leaves in zip(subtrees, packed, strict=True)]


def optimizer(opt_maker: Callable[..., Rule]) -> Callable[..., Optimizer]:
    """Turn a rule for one array into an optimizer for trees of parameters; used as a decorator.

    Args:
        opt_maker: a function that returns the rule, which is a triple of functions. `init(x)`
            creates the state for an array, `update(i, g, state)` performs step number `i` with the
            gradient `g`, and `get_params(state)` returns the array.

    Returns:
        A function that accepts the same arguments as `opt_maker` and returns an Optimizer.

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
    """The first entry of a state, which is the parameter."""
    return state[0]


def _with_zeros(n: int) -> Callable[[Array], State]:
    """Make states that consist of the array and n arrays of zeros of its shape."""
    return lambda x0: (x0, *(jnp.zeros_like(x0) for _ in range(n)))


def _inverse_root(x: Array) -> Array:
    """1/√x, and 0 where x is 0."""
    return jnp.where(x > 0, 1.0 / jnp.sqrt(x), 0.0)


@optimizer
def sgd(step_size: float | Schedule) -> Rule:
    """Gradient descent: `x - step_size * g`.

    Args:
        step_size: learning rate, a number or a schedule.

    Returns:
        An Optimizer: the functions `init(params)`, `update(i, grads, state)` and
        `get_params(state)`.

    >>> init, update, get_params = sgd(0.5)
    >>> state = update(0, jnp.array([2.0, 4.0]), init(jnp.ones(2)))
    >>> print(get_params(state))
    [ 0. -1.]
    """
    rate = make_schedule(step_size)

    def update(i: Step, g: Array, x: Array) -> Array:
        return x - rate(i) * g

    return lambda x0: x0, update, lambda x: x


def _with_velocity(step_size: float | Schedule, mass: float, ahead: bool) -> Rule:
    """A rule whose step is the velocity or, if `ahead`, the velocity after one more update."""
    rate = make_schedule(step_size)

    def update(i: Step, g: Array, state: State) -> State:
        x, velocity = state
        velocity = mass * velocity + g
        return x - rate(i) * (mass * velocity + g if ahead else velocity), velocity

    return _with_zeros(1), update, _first


@optimizer
def momentum(step_size: float | Schedule, mass: float) -> Rule:
    """Gradient descent with momentum.

    The velocity becomes `mass * velocity + g`, and the step is `step_size * velocity`.

    Args:
        step_size: learning rate, a number or a schedule.
        mass: factor, between 0 and 1, by which the velocity is multiplied before each step.

    Returns:
        An Optimizer: the functions `init(params)`, `update(i, grads, state)` and
        `get_params(state)`.
    """
    return _with_velocity(step_size, mass, ahead=False)


@optimizer
def nesterov(step_size: float | Schedule, mass: float) -> Rule:
    """Gradient descent with Nesterov's momentum.

    The velocity becomes `mass * velocity + g`. With this new velocity, the step is
    `step_size * (mass * velocity + g)`.

    Args:
        step_size: learning rate, a number or a schedule.
        mass: factor, between 0 and 1, by which the velocity is multiplied before each step.

    Returns:
        An Optimizer: the functions `init(params)`, `update(i, grads, state)` and
        `get_params(state)`.
    """
    return _with_velocity(step_size, mass, ahead=True)


@optimizer
def adagrad(step_size: float | Schedule, momentum: float = 0.9) -> Rule:
    """AdaGrad, which divides gradients by the square root of the sum of their squares so far.

    Args:
        step_size: learning rate, a number or a schedule.
        momentum: decay rate of the running mean of the steps.

    Returns:
        An Optimizer: the functions `init(params)`, `update(i, grads, state)` and
        `get_params(state)`.
    """
    rate = make_schedule(step_size)

    def update(i: Step, g: Array, state: State) -> State:
        x, squares, m = state
        squares = squares + jnp.square(g)
        m = (1.0 - momentum) * (g * _inverse_root(squares)) + momentum * m
        return x - rate(i) * m, squares, m

    return _with_zeros(2), update, _first


@optimizer
def rmsprop(step_size: float | Schedule, gamma: float = 0.9, eps: float = 1e-8) -> Rule:
    """RMSProp, which divides gradients by the square root of a running mean of their squares.

    Args:
        step_size: learning rate, a number or a schedule.
        gamma: decay rate of the mean of squares.
        eps: number that is added to the mean before the square root is computed.

    Returns:
        An Optimizer: the functions `init(params)`, `update(i, grads, state)` and
        `get_params(state)`.
    """
    rate = make_schedule(step_size)

    def update(i: Step, g: Array, state: State) -> State:
        x, squares = state
        squares = squares * gamma + jnp.square(g) * (1.0 - gamma)
        return x - rate(i) * g / jnp.sqrt(squares + eps), squares

    return _with_zeros(1), update, _first


@optimizer
def rmsprop_momentum(
    step_size: float | Schedule, gamma: float = 0.9, eps: float = 1e-8, momentum: float = 0.9
) -> Rule:
    """RMSProp with momentum.

    Args:
        step_size: learning rate, a number or a schedule.
        gamma: decay rate of the mean of squares.
        eps: number that is added to the mean before the square root is computed.
        momentum: factor by which the previous step is multiplied before it is added to the current
            step.

    Returns:
        An Optimizer: the functions `init(params)`, `update(i, grads, state)` and
        `get_params(state)`.
    """
    rate = make_schedule(step_size)

    def update(i: Step, g: Array, state: State) -> State:
        x, squares, step = state
        squares = squares * gamma + jnp.square(g) * (1.0 - gamma)
        step = momentum * step + rate(i) * g / jnp.sqrt(squares + eps)
        return x - step, squares, step

    return _with_zeros(2), update, _first


@optimizer
def adam(
    step_size: float | Schedule, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> Rule:
    """Adam, which divides the mean gradient by the square root of the mean squared gradient.

    Both means are running means, which start at zero and are corrected for the resulting bias.

    Args:
        step_size: learning rate, a number or a schedule.
        b1: decay rate of the mean gradient.
        b2: decay rate of the mean squared gradient.
        eps: number that is added to the square root.

    Returns:
        An Optimizer: the functions `init(params)`, `update(i, grads, state)` and
        `get_params(state)`.

    >>> init, update, get_params = adam(0.1)
    >>> state = update(0, jnp.array([2.0, -4.0]), init(jnp.ones(2)))
    >>> print(get_params(state).round(3))
    [0.9 1.1]
    """
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
def adamax(
    step_size: float | Schedule, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> Rule:
    """AdaMax: like Adam, but divides by a decaying maximum of the gradients' absolute values.

    Args:
        step_size: learning rate, a number or a schedule.
        b1: decay rate of the mean of gradients.
        b2: decay rate of the maximum.
        eps: number that is added to the maximum.

    Returns:
        An Optimizer: the functions `init(params)`, `update(i, grads, state)` and
        `get_params(state)`.
    """
    rate = make_schedule(step_size)

    def update(i: Step, g: Array, state: State) -> State:
        x, m, u = state
        m = (1 - b1) * g + b1 * m
        u = jnp.maximum(b2 * u, jnp.abs(g))
        scale = rate(i) / (1 - jnp.asarray(b1, m.dtype) ** (i + 1))
        return x - scale * m / (u + eps), m, u

    return _with_zeros(2), update, _first


@optimizer
def sm3(step_size: float | Schedule, momentum: float = 0.9) -> Rule:
    """SM3: like AdaGrad, but stores a vector for each axis instead of a number for each element.

    Each entry of an axis's vector is an upper bound for the sums of squared gradients of the
    elements at that index along the axis. The state also contains the parameter's shape as numbers,
    so `get_params` cannot be called in a jitted function.

    Args:
        step_size: learning rate, a number or a schedule.
        momentum: decay rate of the running mean of the steps.

    Returns:
        An Optimizer: the functions `init(params)`, `update(i, grads, state)` and
        `get_params(state)`.
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


def constant(step_size: float) -> Schedule:
    """A schedule with the same learning rate at every step.

    Args:
        step_size: learning rate.

    Returns:
        A schedule: a function that maps a step number, counted from 0, to the learning rate.
    """
    return lambda i: step_size


def exponential_decay(step_size: float, decay_steps: float, decay_rate: float) -> Schedule:
    """A schedule that decays exponentially: `step_size * decay_rate ** (i / decay_steps)`.

    Args:
        step_size: learning rate at step 0.
        decay_steps: number of steps after which the rate has been multiplied by `decay_rate`.
        decay_rate: factor by which the rate is multiplied every `decay_steps` steps.

    Returns:
        A schedule: a function that maps a step number, counted from 0, to the learning rate.

    >>> rate = exponential_decay(1.0, decay_steps=10, decay_rate=0.5)
    >>> rate(0), rate(10), rate(20)
    (1.0, 0.5, 0.25)
    """
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(
    step_size: float, decay_steps: float, decay_rate: float, staircase: bool = False
) -> Schedule:
    """A schedule that decays as `step_size / (1 + decay_rate * i / decay_steps)`.

    Args:
        step_size: learning rate at step 0.
        decay_steps: number of steps after which the denominator has grown by `decay_rate`.
        decay_rate: growth of the denominator in `decay_steps` steps.
        staircase: whether to round `i / decay_steps` down, so that the rate changes only every
            `decay_steps` steps.

    Returns:
        A schedule: a function that maps a step number, counted from 0, to the learning rate.
    """
    if staircase:
        return lambda i: step_size / (1 + decay_rate * jnp.floor(i / decay_steps))
    return lambda i: step_size / (1 + decay_rate * i / decay_steps)


def polynomial_decay(
    step_size: float, decay_steps: float, final_step_size: float, power: float = 1.0
) -> Schedule:
    """A schedule that decays to a final value as a polynomial of the step number.

    Args:
        step_size: learning rate at step 0.
        decay_steps: number of steps after which the rate stays at `final_step_size`.
        final_step_size: learning rate after `decay_steps` steps.
        power: exponent; with 1, the rate decreases linearly.

    Returns:
        A schedule: a function that maps a step number, counted from 0, to the learning rate.
    """

    def schedule(step_num: Step) -> Any:
        done = jnp.minimum(step_num, decay_steps)
        left = (1 - done / decay_steps) ** power
        return left * (step_size - final_step_size) + final_step_size

    return schedule


def piecewise_constant(boundaries: Sequence[float], values: Sequence[float]) -> Schedule:
    """A schedule whose learning rate changes at given steps.

    Args:
        boundaries: steps after which the rate changes, in increasing order.
        values: learning rates before, between and after the boundaries. There must be one more
            value than there are boundaries.

    Returns:
        A schedule: a function that maps a step number, counted from 0, to the learning rate.

    Raises:
        ValueError: an argument is not a sequence, or the number of values is not the number of
            boundaries plus 1.

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


def make_schedule(scalar_or_schedule: float | Schedule) -> Schedule:
    """Turn a number into a constant schedule.

    Args:
        scalar_or_schedule: number, or a schedule, which is returned unchanged.

    Returns:
        A schedule: a function that maps a step number, counted from 0, to the learning rate.

    Raises:
        TypeError: the argument is neither a number nor a function.
    """
    if callable(scalar_or_schedule):
        return scalar_or_schedule
    if jnp.ndim(scalar_or_schedule) == 0:
        return constant(scalar_or_schedule)
    raise TypeError(
        f"make_schedule: needed a scalar or a function of the step, got "
        f"{type(scalar_or_schedule)}{here()}"
    )


def l2_norm(tree: PyTree) -> Array:
    """Compute the Euclidean norm of a tree: the square root of the sum of all squared elements.

    Args:
        tree: tree of arrays.

    Returns:
        An array of shape ().

    >>> l2_norm({'a': jnp.array([3.0]), 'b': jnp.array([4.0])})
    Array(5., dtype=float32)
    """
    leaves, _ = tree_flatten(tree)
    return jnp.sqrt(sum(jnp.vdot(x, x) for x in leaves))


def clip_grads(grad_tree: PyTree, max_norm: float) -> PyTree:
    """Scale gradients down if their norm is too large.

    Args:
        grad_tree: tree of arrays.
        max_norm: maximum norm of all elements together.

    Returns:
        The tree, multiplied by `max_norm / norm` unless its norm is less than `max_norm`.
    """
    norm = l2_norm(grad_tree)
    return tree_map(lambda g: jnp.where(norm < max_norm, g, g * (max_norm / norm)), grad_tree)


class JoinPoint:
    """A leaf that takes a parameter's place in a tree and contains the parameter's optimizer state.

    Iterating over a JoinPoint yields the state as its only item.

    Args:
        subtree: the parameter's state, a tree of arrays.
    """

    def __init__(self, subtree: PyTree):
        self.subtree = subtree

    def __iter__(self) -> Iterator[Any]:
        yield self.subtree


def unpack_optimizer_state(opt_state: OptimizerState) -> PyTree:
    """Convert an optimizer's state to a tree with the structure of the parameters, for saving.

    Args:
        opt_state: state of an optimizer.

    Returns:
        The tree of the parameters, with each parameter replaced by a JoinPoint.
    """
    return tree_unflatten(opt_state[1], [JoinPoint(state) for state in _states(opt_state)])


def pack_optimizer_state(marked_pytree: PyTree) -> OptimizerState:
    """Convert a tree of JoinPoints to an optimizer's state.

    Args:
        marked_pytree: tree that `unpack_optimizer_state` returned.

    Returns:
        The OptimizerState.

    Raises:
        AssertionError: a leaf is not a JoinPoint.
    """
    points, tree_def = tree_flatten(marked_pytree)
    if not all(isinstance(point, JoinPoint) for point in points):
        kinds = sorted({type(point).__name__ for point in points})
        raise AssertionError(
            f"pack_optimizer_state: needed a JoinPoint at each leaf, got {', '.join(kinds)}{here()}"
        )
    return _pack(tree_def, [point.subtree for point in points])
