"""Optimizers as triples of functions, as in `jax.example_libraries.optimizers`.

A rule is written for one array: `init(x)` makes its state, `update(i, g, state)` takes step number
`i`, and `get_params(state)` returns the array. `optimizer` turns such a rule into one for trees of
parameters, whose state is an `OptimizerState`. For new code, use `toile.optim`.
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
    """The state of an optimizer: the states of all parameters in one flat list.

    It is a tree whose leaves are the arrays of `packed_state`.

    Args:
        packed_state: for each parameter, the leaves of its state.
        tree_def: structure of the parameters.
        subtree_defs: for each parameter, the structure of its state.
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
    """The three functions of an optimizer: make a state, take a step, read the parameters.

    Args:
        init_fn: function of the parameters that returns a state.
        update_fn: function of the step's number, the gradients and the state that returns the next
            state.
        params_fn: function of a state that returns its parameters.
    """

    init_fn: InitFn
    update_fn: UpdateFn
    params_fn: ParamsFn


Rule = tuple[
    Callable[[Array], State], Callable[[Step, Array, State], State], Callable[[State], Array]
]


def _pack(tree_def: PyTreeDef, states: list[State]) -> OptimizerState:
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
    """Turn a rule for one array into an optimizer of trees of parameters; a decorator.

    Args:
        opt_maker: function that returns the rule, a triple of functions: `init(x)` makes the state
            of an array, `update(i, g, state)` takes step number `i` with the gradient `g`, and
            `get_params(state)` returns the array.

    Returns:
        A function with the same arguments that returns an Optimizer.

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
    """Steps along a velocity, or along its next value."""
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
        mass: factor of the velocity before each step, between 0 and 1.

    Returns:
        An Optimizer: the functions `init(params)`, `update(i, grads, state)` and
        `get_params(state)`.
    """
    return _with_velocity(step_size, mass, ahead=False)


@optimizer
def nesterov(step_size: float | Schedule, mass: float) -> Rule:
    """Gradient descent with Nesterov's momentum.

    The velocity becomes `mass * velocity + g`, and the step is `step_size * (mass * velocity + g)`
    with the new velocity.

    Args:
        step_size: learning rate, a number or a schedule.
        mass: factor of the velocity before each step, between 0 and 1.

    Returns:
        An Optimizer: the functions `init(params)`, `update(i, grads, state)` and
        `get_params(state)`.
    """
    return _with_velocity(step_size, mass, ahead=True)


@optimizer
def adagrad(step_size: float | Schedule, momentum: float = 0.9) -> Rule:
    """AdaGrad: gradients divided by the root of the sum of their squares so far.

    Args:
        step_size: learning rate, a number or a schedule.
        momentum: decay of the running mean of the steps.

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
    """RMSProp: gradients divided by the root of a running mean of their squares.

    Args:
        step_size: learning rate, a number or a schedule.
        gamma: decay of the mean of squares.
        eps: number that is added to the mean before the root is taken.

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
        gamma: decay of the mean of squares.
        eps: number that is added to the mean before the root is taken.
        momentum: factor of the previous step, which is added to the new one.

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
    """Adam: running means of gradients, divided by the root of running means of their squares.

    Both means are corrected for starting at zero.

    Args:
        step_size: learning rate, a number or a schedule.
        b1: decay of the mean of gradients.
        b2: decay of the mean of squares.
        eps: number that is added to the root.

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
    """AdaMax: Adam that divides by a decaying maximum of the gradients' absolute values.

    Args:
        step_size: learning rate, a number or a schedule.
        b1: decay of the mean of gradients.
        b2: decay of the maximum.
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
    """SM3: AdaGrad that stores one vector for each axis instead of a number for each element.

    A vector has, for each index of its axis, the largest sum of squares. The shape of the parameter
    is a part of the state, as numbers, so `get_params` cannot be called in a jitted function.

    Args:
        step_size: learning rate, a number or a schedule.
        momentum: decay of the running mean of the steps.

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
    """The same rate at every step.

    Args:
        step_size: rate.

    Returns:
        A schedule: a function from the number of a step, which counts from 0, to its rate.
    """
    return lambda i: step_size


def exponential_decay(step_size: float, decay_steps: float, decay_rate: float) -> Schedule:
    """A rate that decays exponentially: `step_size * decay_rate ** (i / decay_steps)`.

    Args:
        step_size: rate at step 0.
        decay_steps: number of steps in which the rate is multiplied by `decay_rate`.
        decay_rate: factor.

    Returns:
        A schedule: a function from the number of a step, which counts from 0, to its rate.

    >>> rate = exponential_decay(1.0, decay_steps=10, decay_rate=0.5)
    >>> rate(0), rate(10), rate(20)
    (1.0, 0.5, 0.25)
    """
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(
    step_size: float, decay_steps: float, decay_rate: float, staircase: bool = False
) -> Schedule:
    """A rate that decays like `step_size / (1 + decay_rate * i / decay_steps)`.

    Args:
        step_size: rate at step 0.
        decay_steps: number of steps after which the denominator has grown by `decay_rate`.
        decay_rate: growth of the denominator.
        staircase: whether `i / decay_steps` is rounded down, so that the rate changes only every
            `decay_steps` steps.

    Returns:
        A schedule: a function from the number of a step, which counts from 0, to its rate.
    """
    if staircase:
        return lambda i: step_size / (1 + decay_rate * jnp.floor(i / decay_steps))
    return lambda i: step_size / (1 + decay_rate * i / decay_steps)


def polynomial_decay(
    step_size: float, decay_steps: float, final_step_size: float, power: float = 1.0
) -> Schedule:
    """A rate that moves to a final value in proportion to a power of the remaining steps.

    Args:
        step_size: rate at step 0.
        decay_steps: number of steps after which the rate stays at `final_step_size`.
        final_step_size: rate at the end.
        power: exponent; 1 is a straight line.

    Returns:
        A schedule: a function from the number of a step, which counts from 0, to its rate.
    """

    def schedule(step_num: Step) -> Any:
        done = jnp.minimum(step_num, decay_steps)
        left = (1 - done / decay_steps) ** power
        return left * (step_size - final_step_size) + final_step_size

    return schedule


def piecewise_constant(boundaries: Sequence[float], values: Sequence[float]) -> Schedule:
    """A rate that changes at given steps.

    Args:
        boundaries: steps after which the rate changes, in increasing order.
        values: rates, one more than boundaries.

    Returns:
        A schedule: a function from the number of a step, which counts from 0, to its rate.

    Raises:
        ValueError: the arguments are not sequences, or the number of values is not right.

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
        A schedule: a function from the number of a step, which counts from 0, to its rate.

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
    """The Euclidean norm of all elements of a tree: the root of the sum of their squares.

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
    """Scale gradients down where their norm is too large.

    Args:
        grad_tree: tree of arrays.
        max_norm: largest norm, of all elements together.

    Returns:
        The tree, multiplied by `max_norm / norm` unless its norm is less than `max_norm`.
    """
    norm = l2_norm(grad_tree)
    return tree_map(lambda g: jnp.where(norm < max_norm, g, g * (max_norm / norm)), grad_tree)


class JoinPoint:
    """A leaf of the parameters' tree that holds the state of this parameter.

    Iterating over it yields the state.

    Args:
        subtree: state of the parameter, a tree.
    """

    def __init__(self, subtree: PyTree):
        self.subtree = subtree

    def __iter__(self) -> Iterator[Any]:
        yield self.subtree


def unpack_optimizer_state(opt_state: OptimizerState) -> PyTree:
    """Turn the state of an optimizer into a tree like the parameters, for saving.

    Args:
        opt_state: state of an optimizer.

    Returns:
        The tree of the parameters, with a JoinPoint in place of each.
    """
    return tree_unflatten(opt_state[1], [JoinPoint(state) for state in _states(opt_state)])


def pack_optimizer_state(marked_pytree: PyTree) -> OptimizerState:
    """Turn a tree of JoinPoints into the state of an optimizer.

    Args:
        marked_pytree: tree as `unpack_optimizer_state` returns it.

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
