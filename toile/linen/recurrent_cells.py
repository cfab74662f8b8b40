"""Recurrent cells: one step of time, (carry, input) -> (new carry, output).

The names of the parameters say what they join: `i…` kernels take the input, `h…` kernels the hidden
state, the second letter is the gate. Where two projections are added, only one has a bias.
`RNN` in `recurrent` runs a cell over a sequence.
"""

from collections.abc import Callable, Sequence
from typing import Any

from toile import numpy as jnp
from toile import random
from toile.core.nn.linear import add_bias
from toile.linen.dtypes import promote_dtype
from toile.linen.linear import Conv, Dense, default_kernel_init
from toile.linen.methods import compact, nowrap
from toile.linen.module import Module
from toile.linen.weights import kernel_and_bias
from toile.nn import initializers, sigmoid
from toile.numpy import tanh
from toile.typing import Array, Dtype, Initializer, PrecisionLike, PRNGKey

__all__ = [
    "Array", "Carry", "Conv", "ConvLSTMCell", "Dense", "DenseParams", "Dtype", "GRUCell",
    "Initializer", "LSTMCell", "MGUCell", "OptimizedLSTMCell", "PRNGKey", "PrecisionLike",
    "RNNCellBase", "SimpleCell", "default_kernel_init", "initializers", "promote_dtype", "sigmoid",
    "tanh",
]  # fmt: skip

Carry = Any


class RNNCellBase(Module):
    """What `RNN` needs of a cell; subclass it for a cell of your own.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> class Average(nn.RNNCellBase):
    ...     @nn.compact
    ...     def __call__(self, carry, x):
    ...         rate = self.param("rate", nn.initializers.constant(0.5), (x.shape[-1],))
    ...         carry = (1 - rate) * carry + rate * x
    ...         return carry, carry
    ...     @nn.nowrap
    ...     def initialize_carry(self, rng, input_shape):
    ...         return jnp.zeros(input_shape)
    ...     @property
    ...     def num_feature_axes(self):
    ...         return 1
    >>> variables = nn.RNN(Average()).init(toile.random.key(0), jnp.ones((2, 5, 3)))
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'cell': {'rate': (3,)}}}
    """

    @nowrap
    def initialize_carry(self, rng: PRNGKey, input_shape: tuple[int, ...]) -> Carry:
        """The carry before the first step, for inputs of `input_shape` (no axis of time)."""
        raise NotImplementedError

    @property
    def num_feature_axes(self) -> int:
        """How many axes of an input, counted from the last, are not batch axes."""
        raise NotImplementedError


def _state(cell: Any, rng: PRNGKey, input_shape: tuple[int, ...]) -> Array:
    """A first state: the input's shape with the cell's features."""
    return cell.carry_init(rng, (*input_shape[:-1], cell.features), cell.param_dtype)


def _two_states(cell: Any, rng: PRNGKey, input_shape: tuple[int, ...]) -> tuple[Array, Array]:
    """A first memory and a first output."""
    for_memory, for_output = random.split(rng)
    return _state(cell, for_memory, input_shape), _state(cell, for_output, input_shape)


class _VectorCell(RNNCellBase):
    """A cell of vectors, the last axis of inputs and states."""

    @nowrap
    def initialize_carry(self, rng: PRNGKey, input_shape: tuple[int, ...]) -> Array:
        """h before the first step."""
        return _state(self, rng, input_shape)

    @property
    def num_feature_axes(self) -> int:
        return 1


class _GatedCell(_VectorCell):
    """The fields that cells with gates share; see LSTMCell."""

    features: int
    gate_fn: Callable[..., Any] = sigmoid
    activation_fn: Callable[..., Any] = tanh
    kernel_init: Initializer = default_kernel_init
    recurrent_kernel_init: Initializer = initializers.orthogonal()
    bias_init: Initializer = initializers.zeros
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    carry_init: Initializer = initializers.zeros


def _dense(cell: Any, features: int, kernel_init: Initializer) -> Callable[..., Dense]:
    """Dense layers that differ in their name and bias only."""
    dtype, param_dtype = cell.dtype, cell.param_dtype

    def layer(name: str, bias_init: Initializer | None = None) -> Dense:
        options: dict[str, Any] = {} if bias_init is None else {"bias_init": bias_init}
        return Dense(
            features=features, use_bias=bias_init is not None, dtype=dtype,
            param_dtype=param_dtype, kernel_init=kernel_init, name=name, **options,
        )  # fmt: skip

    return layer


class LSTMCell(_GatedCell):
    r"""Long short-term memory: a memory `c` that gates write, keep and read.

    i, f, o = sigmoid(W x + U h + b) each, g = tanh(W x + U h + b),
    c' = f·c + i·g, h' = o·tanh(c'). The carry is (c, h), the output h'.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> x, layer = jnp.ones((2, 3)), nn.LSTMCell(features=4)
    >>> carry = layer.initialize_carry(toile.random.key(1), x.shape)
    >>> variables = layer.init(toile.random.key(2), carry, x)
    >>> shapes = toile.tree.map(jnp.shape, variables["params"])
    >>> shapes["if"], shapes["hf"]
    ({'kernel': (3, 4)}, {'bias': (4,), 'kernel': (4, 4)})
    >>> (c, h), out = layer.apply(variables, carry, x)
    >>> out.shape
    (2, 4)

    Fields: `features`; `gate_fn` of gates, `activation_fn` of what is written and read;
    `kernel_init` for the input, `recurrent_kernel_init` for the state; `bias_init`; `dtype` of the
    computation and `param_dtype`; `carry_init`.
    """

    @compact
    def __call__(self, carry, inputs):
        """One step: ((c', h'), h')."""
        c, h = carry
        from_input = _dense(self, h.shape[-1], self.kernel_init)
        from_state = _dense(self, h.shape[-1], self.recurrent_kernel_init)

        def gate(name: str) -> Array:
            return from_input(f"i{name}")(inputs) + from_state(f"h{name}", self.bias_init)(h)

        i = self.gate_fn(gate("i"))
        f = self.gate_fn(gate("f"))
        g = self.activation_fn(gate("g"))
        o = self.gate_fn(gate("o"))
        new_c = f * c + i * g
        new_h = o * self.activation_fn(new_c)
        return (new_c, new_h), new_h

    @nowrap
    def initialize_carry(self, rng: PRNGKey, input_shape: tuple[int, ...]) -> tuple[Array, Array]:
        """(c, h) before the first step."""
        return _two_states(self, rng, input_shape)


class DenseParams(Module):
    """The parameters of a Dense, without its product.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> from toile.linen.recurrent import DenseParams
    >>> variables = DenseParams(4).init(toile.random.key(0), jnp.ones((2, 3)))
    >>> toile.tree.map(jnp.shape, variables["params"])
    {'bias': (4,), 'kernel': (3, 4)}
    """

    features: int
    use_bias: bool = True
    param_dtype: Dtype = jnp.float32
    precision: PrecisionLike = None
    kernel_init: Initializer = default_kernel_init
    bias_init: Initializer = initializers.zeros

    @compact
    def __call__(self, inputs: Array) -> tuple[Array, Array | None]:
        """(kernel, bias or None)."""
        return kernel_and_bias(self, (inputs.shape[-1], self.features), (self.features,))


class OptimizedLSTMCell(_GatedCell):
    r"""An LSTMCell, parameters and all, that computes its four gates by two matrix products.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> x, layer = jnp.ones((2, 3)), nn.OptimizedLSTMCell(features=4)
    >>> carry = layer.initialize_carry(toile.random.key(1), x.shape)
    >>> variables = layer.init(toile.random.key(2), carry, x)
    >>> shapes = toile.tree.map(jnp.shape, variables["params"])
    >>> shapes["if"], shapes["hf"]
    ({'kernel': (3, 4)}, {'bias': (4,), 'kernel': (4, 4)})
    >>> new_carry, out = layer.apply(variables, carry, x)
    >>> out.shape
    (2, 4)

    Fields: those of LSTMCell.
    """

    @compact
    def __call__(
        self, carry: tuple[Array, Array], inputs: Array
    ) -> tuple[tuple[Array, Array], Array]:
        """One step: ((c', h'), h')."""
        c, h = carry

        def parameters(name: str, x: Array, kernel_init: Initializer, use_bias: bool) -> tuple:
            return DenseParams(
                features=h.shape[-1], use_bias=use_bias, param_dtype=self.param_dtype,
                kernel_init=kernel_init, bias_init=self.bias_init, name=name,
            )(x)  # fmt: skip

        of_input, of_state = [], []
        for gate in "ifgo":
            of_input.append(parameters(f"i{gate}", inputs, self.kernel_init, False))
            of_state.append(parameters(f"h{gate}", h, self.recurrent_kernel_init, True))

        def project(x: Array, params: list) -> Array:
            kernel = jnp.concatenate([k for k, _ in params], axis=-1)
            bias = None
            if params[0][1] is not None:
                bias = jnp.concatenate([b for _, b in params], axis=-1)
            x, kernel, bias = promote_dtype(x, kernel, bias, dtype=self.dtype)
            y = jnp.dot(x, kernel)
            return y if bias is None else add_bias(y, bias)

        i, f, g, o = jnp.split(project(h, of_state) + project(inputs, of_input), 4, axis=-1)
        new_c = self.gate_fn(f) * c + self.gate_fn(i) * self.activation_fn(g)
        new_h = self.gate_fn(o) * self.activation_fn(new_c)
        return (new_c, new_h), new_h

    initialize_carry = LSTMCell.initialize_carry


class SimpleCell(_VectorCell):
    r"""The plain recurrent cell: h' = tanh(W x + b + U h), with `residual` tanh(… + h).

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> x, layer = jnp.ones((2, 3)), nn.SimpleCell(features=4)
    >>> carry = layer.initialize_carry(toile.random.key(1), x.shape)
    >>> variables = layer.init(toile.random.key(2), carry, x)
    >>> toile.tree.map(jnp.shape, variables["params"])
    {'h': {'kernel': (4, 4)}, 'i': {'bias': (4,), 'kernel': (3, 4)}}

    Fields: those of LSTMCell without `gate_fn`; `residual`.
    """

    features: int
    activation_fn: Callable[..., Any] = tanh
    kernel_init: Initializer = default_kernel_init
    recurrent_kernel_init: Initializer = initializers.orthogonal()
    bias_init: Initializer = initializers.zeros
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    carry_init: Initializer = initializers.zeros
    residual: bool = False

    @compact
    def __call__(self, carry, inputs):
        """One step: (h', h')."""
        features = carry.shape[-1]
        new = _dense(self, features, self.kernel_init)("i", self.bias_init)(inputs)
        new = new + _dense(self, features, self.recurrent_kernel_init)("h")(carry)
        if self.residual:
            new = new + carry
        new = self.activation_fn(new)
        return new, new


class GRUCell(_GatedCell):
    r"""Gated recurrent unit: one state, half kept and half renewed.

    r, z = sigmoid(W x + b + U h) each, n = tanh(W x + b + r·(U h + d)), h' = (1 - z)·n + z·h.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> x, layer = jnp.ones((2, 3)), nn.GRUCell(features=4)
    >>> carry = layer.initialize_carry(toile.random.key(1), x.shape)
    >>> variables = layer.init(toile.random.key(2), carry, x)
    >>> shapes = toile.tree.map(jnp.shape, variables["params"])
    >>> shapes["ir"], shapes["hr"], shapes["hn"]
    ({'bias': (4,), 'kernel': (3, 4)}, {'kernel': (4, 4)}, {'bias': (4,), 'kernel': (4, 4)})

    Fields: those of LSTMCell.
    """

    @compact
    def __call__(self, carry, inputs):
        """One step: (h', h')."""
        h = carry
        from_input = _dense(self, h.shape[-1], self.kernel_init)
        from_state = _dense(self, h.shape[-1], self.recurrent_kernel_init)
        bias = self.bias_init
        r = self.gate_fn(from_input("ir", bias)(inputs) + from_state("hr")(h))
        z = self.gate_fn(from_input("iz", bias)(inputs) + from_state("hz")(h))
        # r stands between the two projections, so that each has its bias.
        n = self.activation_fn(from_input("in", bias)(inputs) + r * from_state("hn", bias)(h))
        new_h = (1.0 - z) * n + z * h
        return new_h, new_h


class MGUCell(_VectorCell):
    r"""Minimal gated unit (arXiv:1603.09420): a GRU whose two gates are one.

    f = sigmoid(W x + b + U h), n = tanh(W x + b + f·(U h + d)), h' = (1 - f)·n + f·h;
    without `reset_gate` n = tanh(W x + b + U h).

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> x, layer = jnp.ones((2, 3)), nn.MGUCell(features=4)
    >>> carry = layer.initialize_carry(toile.random.key(1), x.shape)
    >>> variables = layer.init(toile.random.key(2), carry, x)
    >>> shapes = toile.tree.map(jnp.shape, variables["params"])
    >>> shapes["if"], shapes["hf"], shapes["hn"]
    ({'bias': (4,), 'kernel': (3, 4)}, {'kernel': (4, 4)}, {'bias': (4,), 'kernel': (4, 4)})

    Fields: those of LSTMCell, with `forget_bias_init` (ones: the cell begins by remembering) and
    `activation_bias_init` for its one bias; `reset_gate`.
    """

    features: int
    gate_fn: Callable[..., Any] = sigmoid
    activation_fn: Callable[..., Any] = tanh
    kernel_init: Initializer = default_kernel_init
    recurrent_kernel_init: Initializer = initializers.orthogonal()
    forget_bias_init: Initializer = initializers.ones
    activation_bias_init: Initializer = initializers.zeros
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    carry_init: Initializer = initializers.zeros
    reset_gate: bool = True

    @compact
    def __call__(self, carry, inputs):
        """One step: (h', h')."""
        h = carry
        from_input = _dense(self, h.shape[-1], self.kernel_init)
        from_state = _dense(self, h.shape[-1], self.recurrent_kernel_init)
        bias = self.activation_bias_init
        f = self.gate_fn(from_input("if", self.forget_bias_init)(inputs) + from_state("hf")(h))
        x = from_state("hn", bias)(h) * f if self.reset_gate else from_state("hn")(h)
        n = self.activation_fn(from_input("in", bias)(inputs) + x)
        new_h = (1.0 - f) * n + f * h
        return new_h, new_h


class ConvLSTMCell(RNNCellBase):
    r"""An LSTM cell whose projections are convolutions, for sequences of images.

    The forget gate is sigmoid(… + 1): the cell begins by remembering.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> x, layer = jnp.ones((3, 5, 5)), nn.ConvLSTMCell(features=4, kernel_size=(2, 2))
    >>> carry = layer.initialize_carry(toile.random.key(1), x.shape)
    >>> variables = layer.init(toile.random.key(2), carry, x)
    >>> toile.tree.map(jnp.shape, variables["params"]["hh"])
    {'bias': (16,), 'kernel': (2, 2, 4, 16)}

    Fields: `features`; `kernel_size`, `strides`, `padding` and `use_bias` of both convolutions;
    `dtype` of the computation and `param_dtype`; `carry_init`.
    """

    features: int
    kernel_size: Sequence[int]
    strides: Sequence[int] | None = None
    padding: str | Sequence[tuple[int, int]] = "SAME"
    use_bias: bool = True
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    carry_init: Initializer = initializers.zeros

    @compact
    def __call__(self, carry, inputs):
        """One step: ((c', h'), h')."""
        c, h = carry

        def convolve(name: str, x: Array) -> Array:
            return Conv(
                features=4 * self.features, kernel_size=self.kernel_size, strides=self.strides,
                padding=self.padding, use_bias=self.use_bias, dtype=self.dtype,
                param_dtype=self.param_dtype, name=name,
            )(x)  # fmt: skip

        i, g, f, o = jnp.split(convolve("ih", inputs) + convolve("hh", h), 4, axis=-1)
        new_c = sigmoid(f + 1) * c + sigmoid(i) * tanh(g)
        new_h = sigmoid(o) * tanh(new_c)
        return (new_c, new_h), new_h

    initialize_carry = LSTMCell.initialize_carry

    @property
    def num_feature_axes(self) -> int:
        return len(self.kernel_size) + 1
