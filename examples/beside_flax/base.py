"""Shared parts of the comparison with Flax: the example, and the training loop in Flax.

`ours` is the example: its own state and step. `theirs` is its models.py with the import lines
changed to flax and jax; its step is written a second time, with the names that Flax users know.
jax is imported only when it is needed: pip install 'toile[test]' installs it.
"""

import abc
import importlib
import sys
import types
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from toile import random, training
from toile.training.devices import first_devices

IMPORTS = (
    ("from toile import linen as nn", "from flax import linen as nn"),
    ("from toile import numpy as jnp", "from jax import numpy as jnp"),
    ("import toile.numpy as jnp", "import jax.numpy as jnp"),
    ("from toile import lax", "from jax import lax"),
)
NORMS = ("BatchNorm_", "bn_init")  # modules that compute in float32 even in half precision


def in_flax(module: types.ModuleType) -> types.ModuleType:
    """Load a models.py with flax and jax in its import lines."""
    source = Path(str(module.__file__)).read_text()
    for ours, theirs in IMPORTS:
        source = source.replace(ours, theirs)
    found = types.ModuleType(f"{module.__name__}_in_flax")
    found.__package__ = module.__package__  # for its relative imports
    sys.modules[found.__name__] = found  # dataclasses look up their module
    exec(compile(source, str(module.__file__), "exec"), found.__dict__)
    return found


def named(*names: str):
    """Make a mask for Optax: which parameters have one of these names."""
    import jax

    def mask(params):
        return jax.tree_util.tree_map_with_path(lambda path, _: path[-1].key in names, params)

    return mask


def applied(model, precision: str):
    """Return `model.apply`, in half precision (except norms and weights) if requested."""
    import jax
    import jax.numpy as jnp
    from flax import linen as nn

    if precision == "float32":
        return model.apply
    dtype = jnp.dtype(precision.removeprefix("mixed_"))

    def cast(x):
        return x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x

    def cast_parameter(path, x):
        return x if any(p.key.startswith(NORMS) for p in path) else cast(x)

    def around(next_fun, args, kwargs, context):
        name = context.module.name or ""
        if not name.startswith(NORMS) or context.method_name != "__call__":
            return next_fun(*args, **kwargs)
        (x,) = args
        return next_fun(x.astype(jnp.float32), **kwargs).astype(x.dtype)

    def apply(variables, *args, **kwargs):
        params = jax.tree_util.tree_map_with_path(cast_parameter, variables["params"])
        with nn.intercept_methods(around):
            out, changed = model.apply({**variables, "params": params}, *map(cast, args), **kwargs)
        return out.astype(jnp.float32), changed

    return apply


class Side(NamedTuple):
    """An initial state, and `step(state, batch)`, which returns the next state and the metrics."""

    state: Any
    step: Any


class Example(abc.ABC):
    """One of the examples. Subclasses define its state, its batches and the parts in Flax."""

    name: str
    unit = "images"
    averaged = False  # whether averaged weights are kept

    def __init__(self, config: Any):
        self.config = config
        self.state_key, self.data_key = random.split(random.key(config.seed))
        self.train, self.models = self.part("train"), self.part("models")

    def part(self, name: str) -> types.ModuleType:
        """Import a file of the example."""
        return importlib.import_module(f"..{self.name}.{name}", __package__)

    def flax_models(self) -> types.ModuleType:
        """Its models.py, for Flax."""
        return in_flax(self.models)

    def loaders(self) -> tuple:
        """Return what its input_pipeline returns, with the keys of its own run."""
        return self.part("input_pipeline").loaders(self.config, self.data_key)

    def batches(self, steps: int) -> list[dict[str, np.ndarray]]:
        """Return the first batches of its own run."""
        loader = next(x for x in self.loaders() if hasattr(x, "forever"))
        return [batch for batch, _ in zip(loader.forever(), range(steps))]

    def ours(self) -> Side:
        """Return the example's own state and step."""
        step = training.replicated(self.step(), devices=first_devices(1))
        return Side(self.state(), step)

    @abc.abstractmethod
    def state(self) -> Any:
        """Create its initial state."""

    def step(self):
        """Return its train step."""
        return self.train.train_step

    def random_batch(self) -> dict[str, np.ndarray]:
        """Make a random batch with the shapes of the recipe, for when there is no data set."""
        raise NotImplementedError(f"{self.name}: needed random_batch, got none")

    def inputs(self, batch) -> tuple:
        """Return the arguments of the network in Flax."""
        raise NotImplementedError(f"{self.name}: needed inputs, got none")

    @abc.abstractmethod
    def model(self) -> Any:
        """Create the network in Flax."""

    @abc.abstractmethod
    def optimizer(self) -> Any:
        """Create the optimizer in Optax."""

    @abc.abstractmethod
    def loss(self, forward, batch, rngs) -> tuple[Any, Any]:
        """Return the loss to minimize and the metrics; `forward` applies the network."""

    def theirs(self, variables, rngs=None) -> Side:
        """Return the same for Flax, from given variables and random streams (as key data)."""
        tx = self.optimizer()
        return Side(self.flax_state(tx, variables, rngs or {}), self.flax_step(tx))

    def flax_state(self, tx, variables, rngs):
        """The state of a training loop."""
        import jax

        others = dict(variables)
        params = others.pop("params")
        state = {"step": jax.numpy.int32(0), "params": params, "others": others}
        state["keys"] = {name: jax.random.wrap_key_data(data) for name, data in rngs.items()}
        state["opt_state"] = tx.init(params)
        if self.averaged:
            state["average"] = jax.tree.map(jax.numpy.array, params)
        return state

    def flax_step(self, tx):
        """Compile a train step as a Flax user would write it."""
        import jax
        import optax

        apply = applied(self.model(), getattr(self.config, "precision", "float32"))

        def step(state, batch):
            rngs = {n: jax.random.fold_in(key, state["step"]) for n, key in state["keys"].items()}

            def loss_fn(params):
                changed = {}

                def forward(*args, **kwargs):
                    variables = {"params": params, **state["others"]}
                    names = list(state["others"])
                    out, new = apply(variables, *args, rngs=rngs, mutable=names, **kwargs)
                    changed.update(new)
                    return out

                loss, seen = self.loss(forward, batch, rngs)
                return loss, (seen, changed)

            (_, (seen, changed)), grads = jax.value_and_grad(loss_fn, has_aux=True)(state["params"])
            updates, opt_state = tx.update(grads, state["opt_state"], state["params"])
            new = {**state, "step": state["step"] + 1, "opt_state": opt_state}
            new["params"] = optax.apply_updates(state["params"], updates)
            new["others"] = {**state["others"], **changed}
            if self.averaged:
                forget = jax.numpy.maximum(1 - self.config.ema_decay, 1 / (state["step"] + 1.0))
                new["average"] = optax.incremental_update(new["params"], state["average"], forget)
            return new, seen

        return jax.jit(step, donate_argnums=0)
