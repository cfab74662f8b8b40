"""The base classes of optimizers: an optimizer's definition (its update rule), state and target.

An `OptimizerDef` is not a tree. Its hyperparameters are fixed, but each step can override them, as
in `apply_gradient(grads, learning_rate=lr)`. An `Optimizer` is a tree, so it can be passed to
jitted functions, replicated and saved. Its state dict is `{"target": ..., "state": ...}`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import toile.numpy as jnp
from toile import jax_utils, lax, serialization, struct, tree
from toile.api import value_and_grad
from toile.api.devices import local_devices
from toile.engine.annotations import Array, PyTree
from toile.engine.source import here
from toile.optim.base import ArrayLike
from toile.traverse_util import ModelParamTraversal, Traversal

if TYPE_CHECKING:
    from toile.engine.devices import Device

__all__ = [
    "ModelParamTraversal", "MultiOptimizer", "Optimizer", "OptimizerDef", "OptimizerState",
    "ReplicatedOptimizer",
]


@struct.dataclass
class OptimizerState:
    """State of an `Optimizer`.

    Args:
        step: number of steps taken.
        param_states: tree that contains the state of each parameter.

    >>> from toile import optim
    >>> optim.Momentum(learning_rate=0.1).create(jnp.array([1.0])).state.step
    Array(0, dtype=int32)
    """

    step: ArrayLike
    param_states: PyTree


class OptimizerDef:
    """Base class of the optimizers from `flax.optim`; each subclass defines an update rule.

    A subclass defines the rule for one parameter in `init_param_state` and `apply_param_gradient`.
    The method `create` returns an `Optimizer`, which contains the parameters and the state.

    Args:
        hyper_params: hyperparameters, an instance of a `toile.struct` dataclass.
            `Optimizer.apply_gradient` can override them.

    >>> from toile import optim
    >>> class Sign(optim.OptimizerDef):
    ...     def init_param_state(self, param):
    ...         return ()
    ...     def apply_param_gradient(self, step, hyper_params, param, state, grad):
    ...         return param - 0.5 * jnp.sign(grad), state
    >>> optimizer = Sign(hyper_params=None).create({"w": jnp.array([1.0, 2.0])})
    >>> optimizer = optimizer.apply_gradient({"w": jnp.array([3.0, -3.0])})
    >>> optimizer.target, optimizer.state.step
    ({'w': Array([0.5, 2.5], dtype=float32)}, Array(1, dtype=int32))
    """

    def __init__(self, hyper_params: PyTree) -> None:
        self.hyper_params = hyper_params

    def init_param_state(self, param: Array) -> PyTree:
        """Create the initial state for one parameter.

        Args:
            param: the parameter.
        """
        raise NotImplementedError(f"{type(self).__name__}: needed a method init_param_state")

    def apply_param_gradient(
        self, step: ArrayLike, hyper_params: PyTree, param: Array, state: PyTree, grad: Array
    ) -> tuple[Array, PyTree]:
        """Return one parameter and its state after a step.

        Args:
            step: number of steps taken before this step.
            hyper_params: hyperparameters for this step.
            param: the parameter.
            state: state of the parameter.
            grad: gradient of the parameter.
        """
        raise NotImplementedError(f"{type(self).__name__}: needed a method apply_param_gradient")

    def init_state(self, params: PyTree) -> OptimizerState:
        """Create the optimizer's initial state for a tree of parameters.

        Args:
            params: tree of parameters.
        """
        states = tree.map(self.init_param_state, params)
        return OptimizerState(jnp.asarray(0, dtype=jnp.int32), states)

    def apply_gradient(
        self, hyper_params: PyTree, params: PyTree, state: OptimizerState, grads: PyTree
    ) -> tuple[PyTree, OptimizerState]:
        """Return the parameters and the state after a step.

        Args:
            hyper_params: hyperparameters for this step.
            params: tree of parameters.
            state: state before the step.
            grads: tree of gradients.
        """
        rule = lambda p, s, g: self.apply_param_gradient(state.step, hyper_params, p, s, g)
        new_params, new_states = map_pairs(rule, params, state.param_states, grads)
        return new_params, OptimizerState(state.step + 1, new_states)

    def update_hyper_params(self, **hyper_param_overrides: PyTree) -> PyTree:
        """Return the hyperparameters with some of them replaced.

        Args:
            hyper_param_overrides: new values, by name. A value named `hyper_params` replaces all
                hyperparameters before the other values are set.
        """
        base = hyper_param_overrides.pop("hyper_params", self.hyper_params)
        return base.replace(**hyper_param_overrides) if hyper_param_overrides else base

    def create(self, target: PyTree, focus: Traversal | None = None) -> Optimizer:
        """Create an optimizer for a tree of parameters.

        Args:
            target: tree of parameters.
            focus: traversal, such as a `toile.traverse_util.ModelParamTraversal`, that selects the
                parameters to train. If `focus` is None, all parameters are trained.
        """
        definition = self if focus is None else MultiOptimizer((focus, self))
        return Optimizer(definition, definition.init_state(target), target)

    def state_dict(self, target: PyTree, state: OptimizerState) -> dict[str, Any]:
        """Return the parameters and the state as nested dicts, which can be saved.

        Args:
            target: tree of parameters.
            state: state of the optimizer.
        """
        to_dict = serialization.to_state_dict
        return to_dict({"target": to_dict(target), "state": to_dict(state)})

    def restore_state(
        self, opt_target: PyTree, opt_state: OptimizerState, state_dict: dict[str, Any]
    ) -> tuple[PyTree, OptimizerState]:
        """Return parameters and a state with the values from a state dict.

        Args:
            opt_target: tree of parameters with the structure of the result.
            opt_state: optimizer state with the structure of the result.
            state_dict: dict that `state_dict` returned.
        """
        target = serialization.from_state_dict(opt_target, state_dict["target"])
        return target, serialization.from_state_dict(opt_state, state_dict["state"])


def map_pairs(function: Callable[..., tuple[Any, ...]], first: Any, *rest: Any) -> Any:
    """Map a function with two results over trees, and return two trees."""
    leaves, structure = tree.flatten(first)
    others = [structure.flatten_up_to(x) for x in rest]
    pairs = [function(*xs) for xs in zip(leaves, *others, strict=True)]
    return tuple(structure.unflatten([pair[i] for pair in pairs]) for i in range(2))


class Optimizer(struct.PyTreeNode):
    """An optimizer together with its state and its target (the parameters).

    An `Optimizer` is a tree, so it can be passed to jitted functions and saved. It is created by
    the method `create` of an `OptimizerDef`, as in `Adam(learning_rate=0.1).create(params)`. Each
    step returns a new `Optimizer`.

    Args:
        optimizer_def: definition of the optimizer; it is not part of the tree.
        state: state of the optimizer.
        target: tree of parameters.

    >>> from toile import optim
    >>> optimizer = optim.Momentum(learning_rate=0.5, beta=0.5).create(jnp.array([1.0]))
    >>> for _ in range(2):
    ...     optimizer = optimizer.apply_gradient(jnp.array([1.0]))
    ...     print(optimizer.target)
    [0.5]
    [-0.25]
    """

    optimizer_def: OptimizerDef = struct.field(pytree_node=False)
    state: OptimizerState = struct.field(pytree_node=True)
    target: PyTree = struct.field(pytree_node=True)

    def apply_gradient(self, grads: PyTree, **hyper_param_overrides: PyTree) -> Optimizer:
        """Return the optimizer after a step.

        Args:
            grads: gradients, a tree with the structure of the target.
            hyper_param_overrides: hyperparameters for this step only, for instance
                `learning_rate=0.1`.
        """
        hyper_params = self.optimizer_def.update_hyper_params(**hyper_param_overrides)
        target, state = self.optimizer_def.apply_gradient(
            hyper_params, self.target, self.state, grads
        )
        return self.replace(target=target, state=state)

    def compute_gradient(self, loss_fn: Callable[[PyTree], PyTree]) -> tuple[PyTree, ...]:
        """Return the loss and its gradient at the target (deprecated).

        Args:
            loss_fn: function of the parameters that returns the loss, or a pair (loss, aux). If
                `loss_fn` returns a pair, the result is (loss, aux, gradient).
        """
        warnings.warn(
            "Optimizer.compute_gradient is deprecated: use toile.grad or toile.value_and_grad",
            DeprecationWarning, stacklevel=2,
        )
        return _loss_and_gradient(loss_fn, self.target)

    compute_gradients = compute_gradient

    def optimize(
        self, loss_fn: Callable[[PyTree], PyTree], **hyper_param_overrides: PyTree
    ) -> tuple[PyTree, ...]:
        """Return the optimizer after a step, and the loss (deprecated).

        Args:
            loss_fn: function of the parameters that returns the loss, or a pair (loss, aux). If
                `loss_fn` returns a pair, the result is (optimizer, loss, aux).
            hyper_param_overrides: hyperparameters for this step only.
        """
        warnings.warn(
            "Optimizer.optimize is deprecated: use toile.value_and_grad and apply_gradient",
            DeprecationWarning, stacklevel=2,
        )
        *results, grad = _loss_and_gradient(loss_fn, self.target)
        return (self.apply_gradient(grad, **hyper_param_overrides), *results)

    def replicate(
        self, devices: Sequence[Device] | None = None, axis_name: str = "batch"
    ) -> Optimizer:
        """Copy the optimizer to each device; its steps then average gradients over all devices.

        Args:
            devices: devices to copy to. If `devices` is None, all local devices are used.
            axis_name: name of the mapped axis.
        """
        devices = local_devices() if devices is None else devices
        definition = ReplicatedOptimizer(self.optimizer_def, devices, axis_name)
        return jax_utils.replicate(self, devices=devices).replace(optimizer_def=definition)

    def unreplicate(self) -> Optimizer:
        """Undo `replicate`, and return the optimizer with the values from the first device."""
        definition = self.optimizer_def
        if not isinstance(definition, ReplicatedOptimizer):
            raise ValueError(
                "Optimizer.unreplicate: needed an optimizer made by replicate, got one that is not"
                f" replicated{here()}"
            )
        return jax_utils.unreplicate(self).replace(optimizer_def=definition.optimizer_def)

    def state_dict(self) -> dict[str, Any]:
        """Return the dict `{"target": ..., "state": ...}`, which can be saved."""
        return self.optimizer_def.state_dict(self.target, self.state)

    def restore_state(self, state: dict[str, Any]) -> Optimizer:
        """Return an optimizer with the parameters and the state from a state dict.

        Args:
            state: dict that `state_dict` returned.
        """
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
    """Definition of an optimizer that is copied to each device and uses the mean gradient.

    Gradients are averaged over all devices. `Optimizer.replicate` returns an `Optimizer` whose
    definition is a `ReplicatedOptimizer`. Steps must run under `toile.pmap` or a similar
    transformation that uses the same axis name.

    Args:
        optimizer_def: definition of the optimizer to copy.
        devices: devices that receive a copy. If `devices` is None, all local devices are used.
        axis_name: name of the mapped axis, over which gradients are averaged.

    >>> from toile import optim
    >>> optimizer = optim.GradientDescent(learning_rate=0.5).create(jnp.array(1.0))
    >>> optimizer = optimizer.replicate(devices=toile.local_devices()[:1])
    >>> step = toile.pmap(lambda optimizer, grad: optimizer.apply_gradient(grad), axis_name="batch")
    >>> step(optimizer, jnp.array([1.0])).unreplicate().target
    Array(0.5, dtype=float32)
    """

    def __init__(
        self, optimizer_def: OptimizerDef, devices: Sequence[Device] | None = None,
        axis_name: str = "batch",
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
    """A leaf with a parameter's position, which traversals can select by path, shape and dtype."""

    def __init__(self, index: int, param: Any) -> None:
        self.index = index
        self.shape, self.dtype = param.shape, param.dtype


class MultiOptimizer(OptimizerDef):
    """An optimizer that applies different optimizers to different parameters.

    For each optimizer, a traversal (see `toile.traverse_util`) selects the parameters. Parameters
    that no traversal selects stay unchanged, and their state is None. Hyperparameters that are
    passed to `apply_gradient` by name apply to all optimizers. To override hyperparameters for each
    optimizer separately, pass a list with one entry per optimizer as `hyper_params`.

    Args:
        traversals_and_optimizers: pairs (traversal, optimizer definition).

    >>> import warnings
    >>> from toile import optim
    >>> with warnings.catch_warnings(action="ignore"):  # traversals are deprecated
    ...     kernels = optim.ModelParamTraversal(lambda path, value: path.endswith("kernel"))
    >>> definition = optim.MultiOptimizer((kernels, optim.GradientDescent(learning_rate=0.5)))
    >>> optimizer = definition.create({"kernel": jnp.array(1.0), "bias": jnp.array(1.0)})
    >>> optimizer = optimizer.apply_gradient({"kernel": jnp.array(1.0), "bias": jnp.array(1.0)})
    >>> {name: float(x) for name, x in sorted(optimizer.target.items())}
    {'bias': 1.0, 'kernel': 0.5}
    """

    def __init__(self, *traversals_and_optimizers: tuple[Traversal, OptimizerDef]) -> None:
        self.traversals = tuple(t for t, _ in traversals_and_optimizers)
        self.sub_optimizers = tuple(o for _, o in traversals_and_optimizers)
        super().__init__([o.hyper_params for o in self.sub_optimizers])

    def _chosen(self, leaves: list[Any], structure: Any) -> list[list[int]]:
        """Return the positions of the leaves that each traversal selects."""
        slots = structure.unflatten([_Slot(i, p) for i, p in enumerate(leaves)])
        return [[slot.index for slot in t.iterate(slots)] for t in self.traversals]

    def init_state(self, params: Any) -> OptimizerState:
        leaves, structure = tree.flatten(tree.map(jnp.asarray, params))
        chosen = self._chosen(leaves, structure)
        owners = [[k for k, places in enumerate(chosen) if i in places] for i in range(len(leaves))]
        if any(len(of) > 1 for of in owners):
            raise ValueError(
                "MultiOptimizer: Multiple optimizers match the same leaves : "
                f"{structure.unflatten(owners)} (needed at most one for each parameter){here()}"
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
