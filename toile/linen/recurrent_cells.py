"""Recurrent cells, which compute one time step: (carry, input) -> (new carry, output).

In the names of the parameters, the first letter is `i` for kernels applied to the input and `h` for
kernels applied to the hidden state. The second letter, if there is one, names the gate. The
exceptions are the kernels `ih` and `hh` of ConvLSTMCell, each of which is used for all gates. Where
two dense projections are added, only one of them has a bias. But if a gate multiplies one of the
projections before the addition (in GRUCell, and in MGUCell with `reset_gate`), both have a bias. In
ConvLSTMCell, both convolutions have a bias by default. `RNN` in `recurrent` runs a cell over a
sequence.
"""

from collections.abc import Callable, Sequence
from typing import Any

from toile import numpy as jnp
from toile import random
from toile.core.nn.linear import add_bias
from toile.engine.extra_warnings import doubt
from toile.engine.source import describe, here
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


def _pair(cell: Module, carry: Any) -> tuple[Array, Array]:
    """The carry `(c, h)` of an LSTM cell."""
    if not isinstance(carry, (tuple, list)) or len(carry) != 2:
        raise ValueError(
            f"{type(cell).__name__}: cannot unpack the carry: needed (c, h), two arrays, got "
            f"{describe(carry)} (start with carry = cell.initialize_carry(key, inputs.shape))"
            f"{here()}"
        )
    return carry[0], carry[1]


class RNNCellBase(Module):
    """Base class of recurrent cells, from which you can derive your own cell.

    A cell is called with a carry and the input to one step, and returns the new carry and the
    output. `RNN` runs a cell over a sequence.

    >>> import toile.linen as nn
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
    >>> x = jnp.ones((2, 5, 3))
    >>> variables = nn.RNN(Average()).init(key(0), x)
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'cell': {'rate': (3,)}}}
    >>> nn.RNN(Average()).apply(variables, x)[0, :3, 0]
    Array([0.5  , 0.75 , 0.875], dtype=float32)
    """

    @nowrap
    def initialize_carry(self, rng: PRNGKey, input_shape: tuple[int, ...]) -> Carry:
        """Create the initial carry, which is passed to the first step.

        Args:
            rng: key for initializers that use random numbers.
            input_shape: shape of the input to one step, with batch and feature axes but without the
                time axis.

        Returns:
            The carry, an array or a tree of arrays.
        """
        raise NotImplementedError

    @property
    def num_feature_axes(self) -> int:
        """The number of feature axes, which are the last axes of an input."""
        raise NotImplementedError


def _state(cell: Any, rng: PRNGKey, input_shape: tuple[int, ...]) -> Array:
    """The initial state, with the batch axes of the input and the cell's features."""
    if not isinstance(input_shape, Sequence):
        raise TypeError(
            f"initialize_carry: needed a key and the shape of one step, got {describe(rng)} and "
            f"{describe(input_shape)} (write cell.initialize_carry(key, (batch, features)))"
            f"{here()}"
        )
    return cell.carry_init(rng, (*input_shape[:-1], cell.features), cell.param_dtype)


def _two_states(cell: Any, rng: PRNGKey, input_shape: tuple[int, ...]) -> tuple[Array, Array]:
    """The initial memory and the initial state."""
    for_memory, for_output = random.split(rng)
    return _state(cell, for_memory, input_shape), _state(cell, for_output, input_shape)


class _VectorCell(RNNCellBase):
    """Base class of cells whose inputs and states are vectors along the last axis."""

    @nowrap
    def initialize_carry(self, rng: PRNGKey, input_shape: tuple[int, ...]) -> Array:
        """Create the initial state, which is passed to the first step.

        Args:
            rng: key for `carry_init`.
            input_shape: shape of the input to one step, (*batch, input_size).

        Returns:
            An array of shape (*batch, features).
        """
        return _state(self, rng, input_shape)

    @property
    def num_feature_axes(self) -> int:
        """The number of feature axes, which is 1."""
        return 1


class _GatedCell(_VectorCell):
    """Base class with the fields that cells with gates share; see LSTMCell."""

    features: int
    gate_fn: Callable[..., Array] = sigmoid
    activation_fn: Callable[..., Array] = tanh
    kernel_init: Initializer = default_kernel_init
    recurrent_kernel_init: Initializer = initializers.orthogonal()
    bias_init: Initializer = initializers.zeros
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    carry_init: Initializer = initializers.zeros


def _dense(cell: Any, features: int, kernel_init: Initializer) -> Callable[..., Dense]:
    """A function that makes Dense layers that differ only in their name and bias."""
    dtype, param_dtype = cell.dtype, cell.param_dtype
    if features != cell.features:
        doubt(ValueError(
            f"{type(cell).__name__}: needed a carry of {cell.features} features, got {features} "
            "(make it with cell.initialize_carry(key, input_shape), or change features of the "
            f"cell){here()}"
        ))

    def layer(name: str, bias_init: Initializer | None = None) -> Dense:
        options: dict[str, Any] = {} if bias_init is None else {"bias_init": bias_init}
        return Dense(
            features=features, use_bias=bias_init is not None, dtype=dtype,
            param_dtype=param_dtype, kernel_init=kernel_init, name=name, **options,
        )  # fmt: skip

    return layer


class LSTMCell(_GatedCell):
    """Long short-term memory (LSTM) cell, in which gates control access to a memory.

    A step computes the new state `h'` and the new memory `c'` from `h`, `c` and the input `x`:

        i = gate_fn(W_i x + U_i h + b_i)          input gate
        f = gate_fn(W_f x + U_f h + b_f)          forget gate
        g = activation_fn(W_g x + U_g h + b_g)    candidate
        o = gate_fn(W_o x + U_o h + b_o)          output gate
        c' = f * c + i * g
        h' = o * activation_fn(c')

    Inputs have shape (*batch, input_size). The carry is the pair `(c, h)` of arrays of shape
    (*batch, features), and the output is `h'`. The parameters are `ii`, `if`, `ig` and `io`, each
    with a `kernel` of shape (input_size, features), and `hi`, `hf`, `hg` and `ho`, each with a
    `kernel` of shape (features, features) and a `bias` of shape (features,).

    Args:
        features: number of features of the state and the memory.
        gate_fn: activation function of the gates; by default, `sigmoid`.
        activation_fn: activation function of the candidate and the memory; by default, `tanh`.
        kernel_init: initializer of the input kernels; by default, LeCun normal.
        recurrent_kernel_init: initializer of the recurrent kernels; by default, orthogonal.
        bias_init: initializer of the biases.
        dtype: dtype to compute in; None for the dtype that the arrays promote to.
        param_dtype: dtype of the parameters and the initial carry when they are created.
        carry_init: initializer of the initial carry; by default, zeros.

    >>> import toile.linen as nn
    >>> x, layer = jnp.ones((2, 3)), nn.LSTMCell(features=4)
    >>> carry = layer.initialize_carry(key(1), x.shape)
    >>> variables = layer.init(key(2), carry, x)
    >>> shapes = toile.tree.map(jnp.shape, variables["params"])
    >>> shapes["if"], shapes["hf"]
    ({'kernel': (3, 4)}, {'bias': (4,), 'kernel': (4, 4)})
    >>> (c, h), out = layer.apply(variables, carry, x)
    >>> out.shape
    (2, 4)
    """

    @compact
    def __call__(self, carry, inputs):
        """Compute one step.

        Args:
            carry: the pair `(c, h)`.
            inputs: array of shape (*batch, input_size).

        Returns:
            The new carry `(c', h')` and the output `h'`.
        """
        c, h = _pair(self, carry)
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
        """Create the initial memory and the initial state, which are passed to the first step.

        Args:
            rng: key for `carry_init`.
            input_shape: shape of the input to one step.

        Returns:
            The pair `(c, h)`. Both arrays have the shape of the input, but with `features` as the
            size of the last axis.
        """
        return _two_states(self, rng, input_shape)


class DenseParams(Module):
    """A module that declares the parameters of a `Dense` layer and returns them.

    Args:
        features: number of output features.
        use_bias: whether to declare a bias.
        param_dtype: dtype of the parameters when they are created.
        precision: not used.
        kernel_init: initializer of the kernel; by default, LeCun normal.
        bias_init: initializer of the bias.

    >>> from toile.linen.recurrent import DenseParams
    >>> variables = DenseParams(4).init(key(0), jnp.ones((2, 3)))
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
        """Declare the parameters.

        Args:
            inputs: array of shape (..., n); only `n` matters.

        Returns:
            The kernel, of shape (n, features), and the bias, of shape (features,). The bias is None
            if `use_bias` is False.
        """
        return kernel_and_bias(self, (inputs.shape[-1], self.features), (self.features,))


class OptimizedLSTMCell(_GatedCell):
    """Variant of `LSTMCell` that computes all gates in two matrix products.

    Inputs have shape (*batch, input_size). The carry is the pair `(c, h)` of arrays of shape
    (*batch, features), and the output is the new `h`. The equations and the parameters are those of
    `LSTMCell`. For the matrix products, the kernels of the four gates are concatenated.

    Args:
        features: number of features of the state and the memory.
        gate_fn: activation function of the gates; by default, `sigmoid`.
        activation_fn: activation function of the candidate and the memory; by default, `tanh`.
        kernel_init: initializer of the input kernels; by default, LeCun normal.
        recurrent_kernel_init: initializer of the recurrent kernels; by default, orthogonal.
        bias_init: initializer of the biases.
        dtype: dtype to compute in; None for the dtype that the arrays promote to.
        param_dtype: dtype of the parameters and the initial carry when they are created.
        carry_init: initializer of the initial carry; by default, zeros.

    >>> import toile.linen as nn
    >>> x, layer = jnp.ones((2, 3)), nn.OptimizedLSTMCell(features=4)
    >>> carry = layer.initialize_carry(key(1), x.shape)
    >>> variables = layer.init(key(2), carry, x)
    >>> shapes = toile.tree.map(jnp.shape, variables["params"])
    >>> shapes["if"], shapes["hf"]
    ({'kernel': (3, 4)}, {'bias': (4,), 'kernel': (4, 4)})
    >>> new_carry, out = layer.apply(variables, carry, x)
    >>> out.shape
    (2, 4)
    """

    @compact
    def __call__(
        self, carry: tuple[Array, Array], inputs: Array
    ) -> tuple[tuple[Array, Array], Array]:
        """Compute one step.

        Args:
            carry: the pair `(c, h)`.
            inputs: array of shape (*batch, input_size).

        Returns:
            The new carry `(c', h')` and the output `h'`.
        """
        c, h = _pair(self, carry)

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
    """Plain recurrent cell: `h' = activation_fn(W x + b + U h)`.

    Inputs have shape (*batch, input_size). The carry is the state `h` of shape (*batch, features),
    and the output is the new state. The parameters stored under `i` are a `kernel` of shape
    (input_size, features) and a `bias` of shape (features,). The parameter stored under `h` is a
    `kernel` of shape (features, features).

    Args:
        features: number of features of the state.
        activation_fn: activation function of the new state; by default, `tanh`.
        kernel_init: initializer of the input kernel; by default, LeCun normal.
        recurrent_kernel_init: initializer of the recurrent kernel; by default, orthogonal.
        bias_init: initializer of the bias.
        dtype: dtype to compute in; None for the dtype that the arrays promote to.
        param_dtype: dtype of the parameters and the initial carry when they are created.
        carry_init: initializer of the initial carry; by default, zeros.
        residual: whether to add `h` to the argument of `activation_fn`.

    >>> import toile.linen as nn
    >>> x, layer = jnp.ones((2, 3)), nn.SimpleCell(features=4)
    >>> carry = layer.initialize_carry(key(1), x.shape)
    >>> variables = layer.init(key(2), carry, x)
    >>> toile.tree.map(jnp.shape, variables["params"])
    {'h': {'kernel': (4, 4)}, 'i': {'bias': (4,), 'kernel': (3, 4)}}
    >>> carry, out = layer.apply(variables, carry, x)
    >>> out.shape
    (2, 4)
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
        """Compute one step.

        Args:
            carry: the state `h`.
            inputs: array of shape (*batch, input_size).

        Returns:
            The new state and the output, which is also the new state.
        """
        features = carry.shape[-1]
        new = _dense(self, features, self.kernel_init)("i", self.bias_init)(inputs)
        new = new + _dense(self, features, self.recurrent_kernel_init)("h")(carry)
        if self.residual:
            new = new + carry
        new = self.activation_fn(new)
        return new, new


class GRUCell(_GatedCell):
    """Gated recurrent unit (GRU) cell, in which gates control how much of the state is replaced.

    A step computes the new state `h'` from `h` and the input `x`:

        r = gate_fn(W_r x + b_r + U_r h)                        reset gate
        z = gate_fn(W_z x + b_z + U_z h)                        update gate
        n = activation_fn(W_n x + b_n + r * (U_n h + d_n))      candidate
        h' = (1 - z) * n + z * h

    Inputs have shape (*batch, input_size). The carry is `h`, of shape (*batch, features), and the
    output is `h'`. The parameters are `ir`, `iz` and `in`, each with a `kernel` of shape
    (input_size, features) and a `bias` of shape (features,), and `hr`, `hz` and `hn`, each with a
    `kernel` of shape (features, features). `hn` also has a `bias`.

    Args:
        features: number of features of the state.
        gate_fn: activation function of the gates; by default, `sigmoid`.
        activation_fn: activation function of the candidate `n`; by default, `tanh`.
        kernel_init: initializer of the input kernels; by default, LeCun normal.
        recurrent_kernel_init: initializer of the recurrent kernels; by default, orthogonal.
        bias_init: initializer of the biases.
        dtype: dtype to compute in; None for the dtype that the arrays promote to.
        param_dtype: dtype of the parameters and the initial carry when they are created.
        carry_init: initializer of the initial carry; by default, zeros.

    >>> import toile.linen as nn
    >>> x, layer = jnp.ones((2, 3)), nn.GRUCell(features=4)
    >>> carry = layer.initialize_carry(key(1), x.shape)
    >>> variables = layer.init(key(2), carry, x)
    >>> shapes = toile.tree.map(jnp.shape, variables["params"])
    >>> shapes["ir"], shapes["hr"], shapes["hn"]
    ({'bias': (4,), 'kernel': (3, 4)}, {'kernel': (4, 4)}, {'bias': (4,), 'kernel': (4, 4)})
    >>> carry, out = layer.apply(variables, carry, x)
    >>> out.shape
    (2, 4)
    """

    @compact
    def __call__(self, carry, inputs):
        """Compute one step.

        Args:
            carry: the state `h`.
            inputs: array of shape (*batch, input_size).

        Returns:
            The new state and the output, which is also the new state.
        """
        h = carry
        from_input = _dense(self, h.shape[-1], self.kernel_init)
        from_state = _dense(self, h.shape[-1], self.recurrent_kernel_init)
        bias = self.bias_init
        r = self.gate_fn(from_input("ir", bias)(inputs) + from_state("hr")(h))
        z = self.gate_fn(from_input("iz", bias)(inputs) + from_state("hz")(h))
        # r multiplies only the second projection, so each projection has a bias.
        n = self.activation_fn(from_input("in", bias)(inputs) + r * from_state("hn", bias)(h))
        new_h = (1.0 - z) * n + z * h
        return new_h, new_h


class MGUCell(_VectorCell):
    """Minimal gated unit cell (arXiv:1603.09420): a gated recurrent unit with only one gate.

    A step computes the new state `h'` from `h` and the input `x`:

        f = gate_fn(W_f x + b_f + U_f h)
        n = activation_fn(W_n x + b_n + f * (U_n h + d_n))
        h' = (1 - f) * n + f * h

    Inputs have shape (*batch, input_size). The carry is `h`, of shape (*batch, features), and the
    output is `h'`. The parameters are `if` and `in`, each with a `kernel` of shape (input_size,
    features) and a `bias` of shape (features,), and `hf` and `hn`, each with a `kernel` of shape
    (features, features). If `reset_gate` is True, `hn` also has a `bias`.

    Args:
        features: number of features of the state.
        gate_fn: activation function of the gate; by default, `sigmoid`.
        activation_fn: activation function of the candidate `n`; by default, `tanh`.
        kernel_init: initializer of the input kernels; by default, LeCun normal.
        recurrent_kernel_init: initializer of the recurrent kernels; by default, orthogonal.
        forget_bias_init: initializer of the gate's bias; by default, ones, so that an untrained
            cell keeps most of its state.
        activation_bias_init: initializer of the candidate's biases.
        dtype: dtype to compute in; None for the dtype that the arrays promote to.
        param_dtype: dtype of the parameters and the initial carry when they are created.
        carry_init: initializer of the initial carry; by default, zeros.
        reset_gate: whether the gate also multiplies `U_n h + d_n`. If False, `n` is
            `activation_fn(W_n x + b_n + U_n h)`.

    >>> import toile.linen as nn
    >>> x, layer = jnp.ones((2, 3)), nn.MGUCell(features=4)
    >>> carry = layer.initialize_carry(key(1), x.shape)
    >>> variables = layer.init(key(2), carry, x)
    >>> shapes = toile.tree.map(jnp.shape, variables["params"])
    >>> shapes["if"], shapes["hf"], shapes["hn"]
    ({'bias': (4,), 'kernel': (3, 4)}, {'kernel': (4, 4)}, {'bias': (4,), 'kernel': (4, 4)})
    >>> carry, out = layer.apply(variables, carry, x)
    >>> out.shape
    (2, 4)
    """

    features: int
    gate_fn: Callable[..., Array] = sigmoid
    activation_fn: Callable[..., Array] = tanh
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
        """Compute one step.

        Args:
            carry: the state `h`.
            inputs: array of shape (*batch, input_size).

        Returns:
            The new state and the output, which is also the new state.
        """
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
    """LSTM cell for sequences of images; its projections are convolutions.

    Inputs have shape (*batch, *space, input_size). The carry is the pair `(c, h)` of arrays of
    shape (*batch, *space, features), and the output is the new `h`. The parameters are `ih`, with a
    `kernel` of shape (*kernel_size, input_size, 4 * features), and `hh`, with a `kernel` of shape
    (*kernel_size, features, 4 * features). Both also have a `bias` of shape (4 * features,). The
    forget gate is `sigmoid(... + 1)`, so that an untrained cell keeps most of its memory.

    Args:
        features: number of features of the state and the memory.
        kernel_size: size of the kernels along each spatial axis.
        strides: strides of both convolutions; 1 by default. Other strides usually fail, because the
            projections would then be smaller than the state.
        padding: padding of both convolutions, as in `Conv`.
        use_bias: whether both convolutions have a bias.
        dtype: dtype to compute in; None for the dtype that the arrays promote to.
        param_dtype: dtype of the parameters and the initial carry when they are created.
        carry_init: initializer of the initial carry; by default, zeros.

    >>> import toile.linen as nn
    >>> x, layer = jnp.ones((3, 5, 5)), nn.ConvLSTMCell(features=4, kernel_size=(2, 2))
    >>> carry = layer.initialize_carry(key(1), x.shape)
    >>> variables = layer.init(key(2), carry, x)
    >>> toile.tree.map(jnp.shape, variables["params"]["hh"])
    {'bias': (16,), 'kernel': (2, 2, 4, 16)}
    >>> (c, h), out = layer.apply(variables, carry, x)
    >>> out.shape
    (3, 5, 4)
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
        """Compute one step.

        Args:
            carry: the pair `(c, h)`.
            inputs: array of shape (*batch, *space, input_size).

        Returns:
            The new carry `(c', h')` and the output `h'`.
        """
        c, h = _pair(self, carry)

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
        """The number of feature axes, which are the last axes of an input."""
        return len(self.kernel_size) + 1
