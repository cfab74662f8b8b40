"""What an optimizer is: a definition with a rule for one parameter, a state, and the target.

`OptimizerDef` is never a tree; its hyperparameters are fixed but can be overridden at each step
(`apply_gradient(grads, learning_rate=lr)`). `Optimizer` is a tree, so it can be jitted, replicated
and saved; its state dict is {"target": ..., "state": ...}.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import toile.numpy as jnp
from toile import jax_utils, lax, serialization, struct, tree
from toile.api import value_and_grad
from toile.api.devices import local_devices
from toile.engine.trace import Array
from toile.traverse_util import ModelParamTraversal, Traversal

__all__ = [
    "ModelParamTraversal", "MultiOptimizer", "Optimizer", "OptimizerDef", "OptimizerState",
    "ReplicatedOptimizer",
]


@struct.dataclass
class OptimizerState:
    """The number of steps taken and the state of each parameter."""

    step: Any
    param_states: Any


class OptimizerDef:
    """Base class: a subclass gives `init_param_state` and `apply_param_gradient`.

    >>> class Sign(OptimizerDef):
    ...     def init_param_state(self, param): return ()
    ...     def apply_param_gradient(self, step, hyper_params, param, state, grad):
    ...         return param - 0.1 * jnp.sign(grad), state
    >>> optimizer = Sign(hyper_params=None).create({"w": jnp.array([1.0, 2.0])})
    >>> optimizer = optimizer.apply_gradient({"w": jnp.array([3.0, -3.0])})
    >>> optimizer.target["w"].tolist(), int(optimizer.state.step)
    ([0.8999999761581421, 2.0999999046325684], 1)
    """

    def __init__(self, hyper_params: Any) -> None:
        self.hyper_params = hyper_params

    def init_param_state(self, param: Any) -> Any:
        """The state of one parameter before the first step."""
        raise NotImplementedError(f"{type(self).__name__}: needed a method init_param_state")

    def apply_param_gradient(self, step, hyper_params, param, state, grad) -> tuple[Any, Any]:
        """One parameter and its state after a step."""
        raise NotImplementedError(f"{type(self).__name__}: needed a method apply_param_gradient")

    def init_state(self, params: Any) -> OptimizerState:
        """The state of a tree of parameters before the first step."""
        states = tree.map(self.init_param_state, params)
        return OptimizerState(jnp.asarray(0, dtype=jnp.int32), states)

    def apply_gradient(self, hyper_params, params, state, grads) -> tuple[Any, OptimizerState]:
        """The parameters and the state after a step."""
        rule = lambda p, s, g: self.apply_param_gradient(state.step, hyper_params, p, s, g)
        new_params, new_states = map_pairs(rule, params, state.param_states, grads)
        return new_params, OptimizerState(state.step + 1, new_states)

    def update_hyper_params(self, **hyper_param_overrides: Any) -> Any:
        """The hyperparameters with some replaced, or all by `hyper_params`."""
        base = hyper_param_overrides.pop("hyper_params", self.hyper_params)
        return base.replace(**hyper_param_overrides) if hyper_param_overrides else base

    def create(self, target: Any, focus: Any = None) -> Optimizer:
        """An optimizer of `target`; with a focus (a traversal) only of what that selects."""
        definition = self if focus is None else MultiOptimizer((focus, self))
        return Optimizer(definition, definition.init_state(target), target)

    def state_dict(self, target: Any, state: Any) -> dict[str, Any]:
        """Target and state as nested dicts."""
        to_dict = serialization.to_state_dict
        return to_dict({"target": to_dict(target), "state": to_dict(state)})

    def restore_state(self, opt_target: Any, opt_state: Any, state_dict: Any) -> tuple[Any, Any]:
        """Target and state with values from a state dict."""
        target = serialization.from_state_dict(opt_target, state_dict["target"])
        return target, serialization.from_state_dict(opt_state, state_dict["state"])


def map_pairs(function: Callable[..., tuple[Any, ...]], first: Any, *rest: Any) -> Any:
    """Map a function with two results over trees like the first, giving two such trees."""
    leaves, structure = tree.flatten(first)
    others = [structure.flatten_up_to(x) for x in rest]
    pairs = [function(*xs) for xs in zip(leaves, *others, strict=True)]
    return tuple(structure.unflatten([pair[i] for pair in pairs]) for i in range(2))


class Optimizer(struct.PyTreeNode):
    """An optimizer with its state and its target, the parameters: a tree.

    >>> from toile.optim.classic import Momentum
    >>> optimizer = Momentum(learning_rate=0.1, beta=0.5).create(jnp.array(1.0))
    >>> for _ in range(2):
    ...     optimizer = optimizer.apply_gradient(jnp.array(1.0))
    >>> round(float(optimizer.target), 4)
    0.75
    """

    optimizer_def: OptimizerDef = struct.field(pytree_node=False)
    state: Any = struct.field(pytree_node=True)
    target: Any = struct.field(pytree_node=True)

    def apply_gradient(self, grads: Any, **hyper_param_overrides: Any) -> Optimizer:
        """The optimizer after a step, with hyperparameters overridden for this step."""
        hyper_params = self.optimizer_def.update_hyper_params(**hyper_param_overrides)
        target, state = self.optimizer_def.apply_gradient(
            hyper_params, self.target, self.state, grads
        )
        return self.replace(target=target, state=state)

    def compute_gradient(self, loss_fn: Callable[[Any], Any]) -> tuple[Any, ...]:
        """(loss, gradient), or (loss, aux, gradient) if loss_fn gives a pair; deprecated."""
        warnings.warn(
            "Optimizer.compute_gradient is deprecated: use toile.grad or toile.value_and_grad",
            DeprecationWarning, stacklevel=2,
        )
        return _loss_and_gradient(loss_fn, self.target)

    compute_gradients = compute_gradient

    def optimize(self, loss_fn: Callable[[Any], Any], **hyper_param_overrides: Any) -> Any:
        """(optimizer after a step, loss), or with aux after the loss; deprecated."""
        warnings.warn(
            "Optimizer.optimize is deprecated: use toile.value_and_grad and apply_gradient",
            DeprecationWarning, stacklevel=2,
        )
        *results, grad = _loss_and_gradient(loss_fn, self.target)
        return (self.apply_gradient(grad, **hyper_param_overrides), *results)

    def replicate(self, devices: Any = None, axis_name: str = "batch") -> Optimizer:
        """A copy for each device, whose steps take the mean gradient over the mapped axis."""
        devices = local_devices() if devices is None else devices
        definition = ReplicatedOptimizer(self.optimizer_def, devices, axis_name)
        return jax_utils.replicate(self, devices=devices).replace(optimizer_def=definition)

    def unreplicate(self) -> Optimizer:
        """The optimizer that was replicated, with the first device's target and state."""
        definition = self.optimizer_def
        if not isinstance(definition, ReplicatedOptimizer):
            raise ValueError(
                "Optimizer.unreplicate: needed an optimizer made by replicate, got one that is not"
                " replicated"
            )
        return jax_utils.unreplicate(self).replace(optimizer_def=definition.optimizer_def)

    def state_dict(self) -> dict[str, Any]:
        """The state dict {"target": ..., "state": ...}."""
        return self.optimizer_def.state_dict(self.target, self.state)

    def restore_state(self, state: dict[str, Any]) -> Optimizer:
        """The optimizer with target and state from a state dict."""
        target, restored = self.optimizer_def.restore_state(self.target, self.state, state)
        return self.replace(target=target, state=restored)


def _loss_and_gradient(loss_fn: Callable[[Any], Any], target: Any) -> tuple[Any, ...]:
    def with_aux(target: Any) -> Any:
        out = loss_fn(target)
        return (out, ()) if isinstance(out, Array) else (out[0], (out[1],))

    (loss, aux), grad = value_and_grad(with_aux, has_aux=True)(target)
    return (loss, *aux, grad)


serialization.register_serialization_state(
    Optimizer, Optimizer.state_dict, Optimizer.restore_state, override=True
)


class ReplicatedOptimizer(OptimizerDef):
    """An optimizer with a copy on each device; a step takes the mean gradient over axis_name."""

    def __init__(
        self, optimizer_def: OptimizerDef, devices: Any = None, axis_name: str = "batch"
    ) -> None:
        super().__init__(optimizer_def.hyper_params)
        self.optimizer_def = optimizer_def
        self.devices = local_devices() if devices is None else devices
        self.axis_name = axis_name

    def init_state(self, params: Any) -> OptimizerState:
        return self.optimizer_def.init_state(params)

    def apply_gradient(self, hyper_params, params, state, grads) -> tuple[Any, OptimizerState]:
        grads = lax.pmean(grads, self.axis_name)
        return self.optimizer_def.apply_gradient(hyper_params, params, state, grads)

    def update_hyper_params(self, **hyper_param_overrides: Any) -> Any:
        return self.optimizer_def.update_hyper_params(**hyper_param_overrides)

    def state_dict(self, target: Any, state: Any) -> dict[str, Any]:
        return tree.map(lambda x: x[0], self.optimizer_def.state_dict(target, state))

    def restore_state(self, opt_target: Any, opt_state: Any, state_dict: Any) -> tuple[Any, Any]:
        state_dict = jax_utils.replicate(state_dict, devices=self.devices)
        return self.optimizer_def.restore_state(opt_target, opt_state, state_dict)


class _Slot:
    """The place of a parameter, as a leaf that traversals can select by path, shape and dtype."""

    def __init__(self, index: int, param: Any) -> None:
        self.index = index
        self.shape, self.dtype = param.shape, param.dtype


class MultiOptimizer(OptimizerDef):
    """Pairs (traversal, optimizer); what no traversal selects stays as it is, with state None.

    Overrides of hyperparameters go to all optimizers; `hyper_params=[...]` gives each its own.

    >>> from toile.optim.classic import GradientDescent
    >>> with warnings.catch_warnings(action="ignore"):  # traversals are deprecated
    ...     kernels = ModelParamTraversal(lambda path, value: path.endswith("kernel"))
    >>> optimizer = MultiOptimizer((kernels, GradientDescent(learning_rate=0.5)))
    >>> optimizer = optimizer.create({"kernel": jnp.array(1.0), "bias": jnp.array(1.0)})
    >>> optimizer = optimizer.apply_gradient({"kernel": jnp.array(1.0), "bias": jnp.array(1.0)})
    >>> {name: float(x) for name, x in sorted(optimizer.target.items())}
    {'bias': 1.0, 'kernel': 0.5}
    """

    def __init__(self, *traversals_and_optimizers: tuple[Traversal, OptimizerDef]) -> None:
        self.traversals = tuple(t for t, _ in traversals_and_optimizers)
        self.sub_optimizers = tuple(o for _, o in traversals_and_optimizers)
        super().__init__([o.hyper_params for o in self.sub_optimizers])

    def _chosen(self, leaves: list[Any], structure: Any) -> list[list[int]]:
        """The positions of the leaves that each traversal selects."""
        slots = structure.unflatten([_Slot(i, p) for i, p in enumerate(leaves)])
        return [[slot.index for slot in t.iterate(slots)] for t in self.traversals]

    def init_state(self, params: Any) -> OptimizerState:
        leaves, structure = tree.flatten(tree.map(jnp.asarray, params))
        chosen = self._chosen(leaves, structure)
        owners = [[k for k, places in enumerate(chosen) if i in places] for i in range(len(leaves))]
        if any(len(of) > 1 for of in owners):
            raise ValueError(
                "MultiOptimizer: needed parameters with one optimizer each, got Multiple optimizers"
                f" match the same leaves : {structure.unflatten(owners)}"
            )
        states: list[Any] = [None] * len(leaves)
        for places, optimizer in zip(chosen, self.sub_optimizers, strict=True):
            for i in places:
                states[i] = optimizer.init_param_state(leaves[i])
        return OptimizerState(jnp.asarray(0, dtype=jnp.int32), structure.unflatten(states))

    def apply_gradient(self, hyper_params, params, state, grads) -> tuple[Any, OptimizerState]:
        leaves, structure = tree.flatten(params)
        slopes = structure.flatten_up_to(grads)
        states = structure.flatten_up_to(state.param_states)
        each = zip(self._chosen(leaves, structure), self.sub_optimizers, hyper_params, strict=True)
        for places, optimizer, hyper in each:
            own = lambda xs, places=places: tuple(xs[i] for i in places)
            before = OptimizerState(state.step, own(states))
            moved, after = optimizer.apply_gradient(hyper, own(leaves), before, own(slopes))
            for i, p, s in zip(places, moved, after.param_states, strict=True):
                leaves[i], states[i] = p, s
        new_state = OptimizerState(state.step + 1, structure.unflatten(states))
        return structure.unflatten(leaves), new_state

    def update_hyper_params(self, **hyper_param_overrides: Any) -> Any:
        each = hyper_param_overrides.pop("hyper_params", self.hyper_params)
        return [h.replace(**hyper_param_overrides) for h in each] if hyper_param_overrides else each
