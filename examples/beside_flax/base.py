"""The base class of the comparisons with Flax, with the training step in Flax.

`ours` is the example's own state and step. `theirs` uses the example's models.py with flax and jax
in the import lines, and a step that is written a second time, with Flax and Optax. jax is imported
only when it is needed; `pip install 'toile[test]'` installs it.
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
    """Load a models.py with its import lines changed to flax and jax."""
    source = Path(str(module.__file__)).read_text()
    for ours, theirs in IMPORTS:
        source = source.replace(ours, theirs)
    found = types.ModuleType(f"{module.__name__}_in_flax")
    found.__package__ = module.__package__  # for its relative imports
    sys.modules[found.__name__] = found  # needed by dataclasses
    exec(compile(source, str(module.__file__), "exec"), found.__dict__)
    return found


def named(*names: str):
    """Make a mask for Optax that is True for parameters with one of these names."""
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
    """Base class of the examples; subclasses define the state, the batches and the parts in
    Flax."""

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
        """Return the example's models.py, converted to Flax."""
        return in_flax(self.models)

    def loaders(self) -> tuple:
        """Return the loaders of the example's input_pipeline, with the keys of its own run."""
        return self.part("input_pipeline").loaders(self.config, self.data_key)

    def batches(self, steps: int) -> list[dict[str, np.ndarray]]:
        """Return the first batches of the example's own run."""
        loader = next(x for x in self.loaders() if hasattr(x, "forever"))
        return [batch for batch, _ in zip(loader.forever(), range(steps))]

    def ours(self) -> Side:
        """Return the example's own state and step."""
        step = training.replicated(self.step(), devices=first_devices(1))
        return Side(self.state(), step)

    @abc.abstractmethod
    def state(self) -> Any:
        """Create the example's initial state."""

    def step(self):
        """Return the example's train step."""
        return self.train.train_step

    def random_batch(self) -> dict[str, np.ndarray]:
        """Make a random batch with the shapes of the recipe, for use without the data set."""
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
        """Return the state and step in Flax, for given variables and random streams (as key
        data)."""
        tx = self.optimizer()
        return Side(self.flax_state(tx, variables, rngs or {}), self.flax_step(tx))

    def flax_state(self, tx, variables, rngs):
        """Create the state of a training loop in Flax."""
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
        """Compile the train step as a Flax user would write it."""
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
