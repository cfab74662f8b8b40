"""Names that people bring from PyTorch, NumPy and TensorFlow, and what toile calls them.

An AttributeError about one of these names says what to write instead. This module may not import
other modules of toile.
"""

from __future__ import annotations

_LAYERS = {
    "Linear": "nn.Dense(features); the input size is inferred",
    "Conv1d": "nn.Conv(features, (3,)), on arrays (batch, length, channels)",
    "Conv2d": "nn.Conv(features, (3, 3)), on arrays (batch, height, width, channels)",
    "Conv3d": "nn.Conv(features, (3, 3, 3)), channels last",
    "ConvTranspose2d": "nn.ConvTranspose(features, (3, 3)), channels last",
    "BatchNorm1d": "nn.BatchNorm(use_running_average=not train)",
    "BatchNorm2d": "nn.BatchNorm(use_running_average=not train)",
    "Embedding": "nn.Embed(num_embeddings, features)",
    "MultiheadAttention": "nn.MultiHeadDotProductAttention(num_heads)",
    "LSTM": "nn.RNN(nn.OptimizedLSTMCell(features))",
    "GRU": "nn.RNN(nn.GRUCell(features))",
    "MaxPool2d": "nn.max_pool(x, (2, 2), strides=(2, 2))",
    "AvgPool2d": "nn.avg_pool(x, (2, 2), strides=(2, 2))",
    "ReLU": "the function nn.relu(x)",
    "GELU": "the function nn.gelu(x)",
    "Sigmoid": "the function nn.sigmoid(x)",
    "Tanh": "the function nn.tanh(x)",
    "Softmax": "the function nn.softmax(x)",
    "Flatten": "x.reshape(x.shape[0], -1)",
    "ModuleList": "a list that is assigned in setup: self.layers = [...]",
    "ModuleDict": "a dict that is assigned in setup",
    "Parameter": "self.param(name, initializer, shape)",
    "CrossEntropyLoss": "toile.optim.softmax_cross_entropy_with_integer_labels(logits, labels)",
    "MSELoss": "toile.numpy.mean((predictions - targets) ** 2)",
    "functional": "the functions of toile.linen, such as nn.relu",
}
_OF_NN = ("relu", "gelu", "sigmoid", "softmax", "log_softmax", "silu", "swish", "one_hot", "elu",
          "leaky_relu", "softplus", "logsumexp", "selu")
_FUNCTIONS = {
    **{name: f"toile.nn.{name}" for name in _OF_NN},
    "cat": "toile.numpy.concatenate(arrays, axis)",
    "tensor": "toile.numpy.array(values)",
    "Tensor": "toile.Array for the type, toile.numpy.array(values) to make one",
    "from_numpy": "toile.numpy.asarray(x)",
    "unsqueeze": "toile.numpy.expand_dims(x, axis), or x[:, None]",
    "permute": "toile.numpy.transpose(x, axes)",
    "mm": "toile.numpy.matmul(x, y), or x @ y",
    "bmm": "toile.numpy.matmul(x, y), or x @ y",
    "randn": "toile.random.normal(key, shape)",
    "standard_normal": "toile.random.normal(key, shape)",
    "shuffle": "toile.random.permutation(key, x), which returns a new array",
    "default_rng": "toile.random.key(seed), which is passed to random functions",
    "tree_multimap": "toile.tree.map(f, tree, *rest)",
    "tree_map": "toile.tree.map(f, tree, *rest)",
    "rand": "toile.random.uniform(key, shape)",
    "randint": "toile.random.randint(key, shape, minval, maxval)",
    "randperm": "toile.random.permutation(key, n)",
    "manual_seed": "toile.random.key(seed), which is passed to random functions",
    "seed": "toile.random.key(seed), which is passed to random functions",
    "random": "toile.random with a key: toile.random.normal(toile.random.key(0), shape)",
    "no_grad": "nothing: gradients are computed by toile.grad only",
    "reduce_mean": "toile.numpy.mean(x, axis)",
    "reduce_sum": "toile.numpy.sum(x, axis)",
    "cast": "x.astype(dtype)",
    "Variable": "toile.numpy.array(values); gradients come from toile.grad",
    "GradientTape": "toile.grad(f), or toile.value_and_grad(f)",
    "cuda": "toile.device_put(x, device) and toile.devices()",
    "optim": "toile.optim",
}
_METHODS = {
    "unsqueeze": "x[:, None], or toile.numpy.expand_dims(x, axis)",
    "permute": "x.transpose(axes)",
    "contiguous": "nothing: arrays have no strides to repair",
    "cuda": "toile.device_put(x, toile.devices()[0])",
    "cpu": "toile.device_put(x, toile.devices('cpu')[0])",
    "to": "toile.device_put(x, device), or x.astype(dtype)",
    "numpy": "numpy.asarray(x)",
    "detach": "toile.lax.stop_gradient(x)",
    "backward": "toile.grad(f)(x), which differentiates a function",
    "grad": "toile.grad(f)(x), which differentiates a function",
    "requires_grad": "toile.grad(f)(x), which differentiates a function",
    "requires_grad_": "toile.grad(f)(x), which differentiates a function",
    "float": "x.astype(toile.numpy.float32)",
    "double": "x.astype(toile.numpy.float64)",
    "half": "x.astype(toile.numpy.float16)",
    "long": "x.astype(int)",
    "int": "x.astype(int)",
    "bool": "x.astype(bool)",
    "type": "x.astype(dtype)",
    "expand": "toile.numpy.broadcast_to(x, shape)",
    "dim": "x.ndim",
    "norm": "toile.numpy.linalg.norm(x)",
    "masked_fill": "toile.numpy.where(mask, value, x)",
    "index_select": "x[indices], or toile.numpy.take(x, indices, axis)",
    "gather": "toile.numpy.take_along_axis(x, indices, axis)",
    "scatter": "x.at[indices].set(values)",
    "fill": "toile.numpy.full_like(x, value)",
    "fill_": "toile.numpy.full_like(x, value)",
    "zero_": "toile.numpy.zeros_like(x)",
    "add_": "x = x + y: arrays do not change",
    "mul_": "x = x * y: arrays do not change",
    "sub_": "x = x - y: arrays do not change",
    "copy_": "x = y: arrays do not change",
    "append": "toile.numpy.append(x, values), or toile.numpy.concatenate",
    "sort_values": "toile.numpy.sort(x)",
    "exp": "toile.numpy.exp(x)",
    "log": "toile.numpy.log(x)",
    "sqrt": "toile.numpy.sqrt(x)",
    "abs": "toile.numpy.abs(x), or abs(x)",
    "tanh": "toile.numpy.tanh(x)",
    "sigmoid": "toile.nn.sigmoid(x)",
    "relu": "toile.nn.relu(x)",
    "softmax": "toile.nn.softmax(x)",
    "matmul": "x @ y",
    "mm": "x @ y",
    "pow": "x ** y",
}
_CALLED = "what __call__ gets from apply: model.apply(variables, x, train=True)"
_KEPT = "the variables, which are no part of the module: variables = model.init(key, x)"
_MODULES = {
    "train": _CALLED,
    "eval": _CALLED,
    "forward": "y = model.apply(variables, x), which runs __call__",
    "predict": "y = model.apply(variables, x), which runs __call__",
    "parameters": f"{_KEPT}, then variables['params']",
    "named_parameters": f"{_KEPT}, then toile.traverse_util.flatten_dict(variables['params'])",
    "params": f"{_KEPT}, then variables['params']",
    "weights": f"{_KEPT}, then variables['params']",
    "weight": f"{_KEPT}, then variables['params']['kernel']",
    "kernel": f"{_KEPT}, then variables['params']; in a module self.layer.variables['params']",
    "bias": f"{_KEPT}, then variables['params']; in a module self.layer.variables['params']",
    "state_dict": f"{_KEPT}; toile.serialization.to_bytes(variables) saves them",
    "load_state_dict": f"{_KEPT}; toile.serialization.from_bytes(variables, data) loads them",
    "to": "toile.device_put(variables, device): a module contains no arrays",
    "cuda": "toile.device_put(variables, device): a module contains no arrays",
    "cpu": "toile.device_put(variables, device): a module contains no arrays",
    "zero_grad": "nothing: toile.grad returns new gradients each time",
    "requires_grad_": "toile.optim.masked or toile.lax.stop_gradient to keep parameters fixed",
    "register_buffer": "self.variable(collection, name, init_fn)",
    "register_parameter": "self.param(name, init_fn, shape)",
    "add_module": "self.name = layer in setup",
    "fit": "a loop over toile.grad and tx.update; see toile.training.train_state",
    "summary": "print(model.tabulate(key, x))",
}
_OPTIMIZERS = {
    "lr_scheduler": "a schedule as the learning rate: optim.adam(optim.cosine_decay_schedule(...))",
    "step": "tx.update(grads, state, params), then optim.apply_updates(params, updates)",
    "zero_grad": "nothing: toile.grad returns new gradients each time",
    "state_dict": "the state that tx.init and tx.update return",
    "param_groups": "optim.multi_transform, or optim.inject_hyperparams for the learning rate",
    "apply_gradients": "tx.update, then optim.apply_updates; training.train_state has both in one",
    "minimize": "tx.update(grads, state, params), then optim.apply_updates(params, updates)",
}
_BY_KIND = {"array": _METHODS, "module": _MODULES, "optimizer": _OPTIMIZERS}
_BY_PACKAGE = {"toile.linen": _LAYERS, "toile.nn": _LAYERS, "toile.optim": _OPTIMIZERS}


_WITH_FUNCTIONS = ("toile", "toile.numpy", "toile.linen", "toile.nn", "toile.random", "toile.lax")


def instead(package: str, name: str) -> str:
    """ " (use ...)" for a name of another library that a package of toile lacks, or nothing."""
    found = _BY_PACKAGE.get(package, {}).get(name)
    if found is None and package in _WITH_FUNCTIONS:
        found = _FUNCTIONS.get(name)
    return f" (use {found})" if found else ""


def method_instead(name: str, kind: str = "array") -> str:
    """The same for an attribute of an array, a module or an optimizer."""
    found = _BY_KIND[kind].get(name)
    return f" (use {found})" if found else ""


def conversion_of(x: object) -> str:
    """How an array of another library becomes one of toile's; "" if `x` is not such an array."""
    library = type(x).__module__.partition(".")[0]
    if library in ("jax", "jaxlib"):
        if type(x).__name__.endswith("Tracer"):
            return "it is traced by jax, in whose transformations toile's functions cannot run"
        return ("it is an array of jax: convert it with jnp.asarray, or start the program with "
                "`toile run`")
    if library == "torch":
        return "it is a tensor of PyTorch: convert it with jnp.asarray(x.numpy(force=True))"
    if library == "tensorflow":
        return "it is a tensor of TensorFlow: convert it with jnp.asarray(x.numpy())"
    return ""
