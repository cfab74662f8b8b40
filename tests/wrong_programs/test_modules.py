"""Mistakes people make with modules: the module's path, names, shapes, the line and a fix."""

import numpy as np
import pytest

import toile
import toile.linen as nn
import toile.numpy as jnp
from tests.wrong_programs.table import Table, check
from toile import errors, random

TABLE = Table()
wrong = TABLE.wrong
KEY = random.key(0)


def ones(*shape):
    return jnp.ones(shape)


class MLP(nn.Module):
    """A correct model."""

    @nn.compact
    def __call__(self, x, train=False):
        x = nn.relu(nn.Dense(4)(x))
        x = nn.BatchNorm(use_running_average=not train)(x)
        return nn.Dense(2)(nn.Dropout(0.5, deterministic=not train)(x))


VARIABLES = MLP().init(KEY, ones(1, 3))


# ------------------------------------------------------------------------------- running


@wrong(
    errors.ScopeParamShapeError, "kernel", "/Dense_0", "(3, 4)", "(5, 4)",
    fix="init", where=(MLP, "nn.Dense(4)"),
)
def other_features_than_at_init():
    MLP().apply(VARIABLES, ones(1, 5))


@wrong(errors.ScopeParamNotFoundError, "kernel", "/Dense_1", fix="init", where=(MLP, "nn.Dense(2)"))
def parameters_of_another_model():
    params = {**VARIABLES["params"], "Dense_1": {}}
    MLP().apply({**VARIABLES, "params": params}, ones(1, 3))


@wrong(
    errors.ScopeCollectionNotFound, "kernel", "params",
    fix="apply({'params': params", where=(MLP, "nn.Dense(4)"),
)
def params_without_their_collection():
    MLP().apply(VARIABLES["params"], ones(1, 3))


@wrong(errors.ApplyScopeInvalidVariablesStructureError, "params", fix="apply")
def params_twice():
    MLP().apply({"params": VARIABLES}, ones(1, 3))  # wrong


@wrong(
    errors.ModifyScopeVariableError, "batch_stats", "/BatchNorm_0",
    fix="mutable=['batch_stats']", where=(MLP, "nn.BatchNorm("),
)
def batch_norm_without_mutable():
    MLP().apply(VARIABLES, ones(2, 3), train=True, rngs={"dropout": KEY})


@wrong(
    errors.InvalidRngError, "dropout", "/Dropout_0",
    fix='rngs={"dropout": key}', where=(MLP, "nn.Dense(2)"),
)
def dropout_without_a_key():
    MLP().apply(VARIABLES, ones(2, 3), train=True, mutable=["batch_stats"])


@wrong(errors.InvalidRngError, "MLP", "3", fix="PRNGKey")
def a_number_for_a_key():
    MLP().init(3, ones(1, 3))  # wrong


@wrong(errors.ApplyModuleInvalidMethodError, "apply", fix="method")
def method_without_self():
    MLP().apply(VARIABLES, method=lambda: 0)  # wrong


@wrong(errors.LazyInitError, "float32", fix="lazy_init")
def lazy_init_of_a_variable_that_needs_data():
    class Shifted(nn.Module):
        @nn.compact
        def __call__(self, x):
            return x - self.param("mean", lambda key: x.mean())

    Shifted().lazy_init(KEY, toile.ShapeDtypeStruct((2, 3), np.float32))  # wrong


# ------------------------------------------------------------------------------- writing modules


@wrong(errors.NameInUseError, "submodule", "layer", "Twice", fix="name")
def one_name_for_two_layers():
    class Twice(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.Dense(3, name="layer")(x)
            return nn.Dense(3, name="layer")(x)  # wrong

    Twice().init(KEY, ones(1, 3))


@wrong(errors.NameInUseError, "param", "w", "Twice", fix="name")
def one_name_for_two_parameters():
    class Twice(nn.Module):
        @nn.compact
        def __call__(self, x):
            a = self.param("w", nn.initializers.ones, (3,))
            return x * a + self.param("w", nn.initializers.ones, (3,))  # wrong

    Twice().init(KEY, ones(1, 3))


@wrong(errors.AssignSubModuleError, "Dense", fix="compact")
def layer_outside_compact():
    class Plain(nn.Module):
        def __call__(self, x):
            return nn.Dense(3)(x)  # wrong

    Plain().init(KEY, ones(1, 3))


@wrong(ValueError, "Parameters", "w", "Plain", fix="@compact")
def parameter_outside_compact():
    class Plain(nn.Module):
        def __call__(self, x):
            return x * self.param("w", nn.initializers.ones, (3,))  # wrong

    Plain().init(KEY, ones(1, 3))


@wrong(errors.SetAttributeFrozenModuleError, "scale", "Stateful", fix="variable")
def attribute_in_a_call():
    class Stateful(nn.Module):
        @nn.compact
        def __call__(self, x):
            self.scale = 2.0  # wrong
            return x * self.scale

    Stateful().init(KEY, ones(1, 3))


@wrong(errors.SetAttributeInModuleSetupError, "/ (Wider)", fix="setup()")
def field_in_setup():
    class Wider(nn.Module):
        width: int = 3

        def setup(self):
            self.width = 2 * self.width  # wrong

        def __call__(self, x):
            return x

    Wider().init(KEY, ones(1, 3))


@wrong(errors.CallCompactUnboundModuleError, "Dense", fix="init")
def call_of_an_unbound_module():
    nn.Dense(3)(ones(1, 3))  # wrong


@wrong(AttributeError, "encoder", "unbound", fix="bind(variables)")
def attribute_of_an_unbound_module():
    class Coder(nn.Module):
        def setup(self):
            self.encoder = nn.Dense(3)

    _ = Coder().encoder  # wrong


@wrong(errors.JaxTransformError, "/Dense_0", "kernel", fix="nn.vmap")
def raw_vmap_around_a_layer():
    class Rows(nn.Module):
        @nn.compact
        def __call__(self, x):
            layer = nn.Dense(3)
            return toile.vmap(layer)(x)  # wrong

    Rows().init(KEY, ones(2, 3))


@wrong(errors.JaxTransformError, "/BatchNorm_0", "batch_stats", fix="nn.scan")
def raw_scan_around_batch_norm():
    class Loop(nn.Module):
        @nn.compact
        def __call__(self, x):
            norm = nn.BatchNorm(use_running_average=False)
            norm(x)
            step = lambda carry, _: (norm(carry), None)  # wrong
            return toile.lax.scan(step, x, None, length=2)[0]

    variables = {
        "params": {"BatchNorm_0": {"scale": ones(3), "bias": ones(3)}},
        "batch_stats": {"BatchNorm_0": {"mean": ones(3), "var": ones(3)}},
    }
    Loop().apply(variables, ones(2, 3), mutable=["batch_stats"])


@wrong(errors.TransformTargetError, "Dense", fix="class")
def lifted_transform_of_an_instance():
    nn.vmap(nn.Dense(3), in_axes=0)  # wrong


@wrong(TypeError, "matmul", "float32[2,3]", "float32[5,1]", "/Head_0 (Head)", fix="transpose")
def engine_error_inside_a_module():
    class Head(nn.Module):
        @nn.compact
        def __call__(self, x):
            return x @ self.param("w", nn.initializers.ones, (5, 1))  # wrong

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            return Head()(x)

    Model().init(KEY, ones(2, 3))


@wrong(TypeError, "scan", "float32[3]", "float32[6]", "/ (Sums)", fix="shape")
def scan_whose_carry_changes():
    class Grow(nn.Module):
        @nn.compact
        def __call__(self, carry, x):
            return jnp.concatenate([carry, x]), x

    class Sums(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.scan(Grow)()(x[0], x)  # wrong

    Sums().init(KEY, ones(2, 3))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program, kind, operation, shown, fix, where", TABLE)
def test_message(program, kind, operation, shown, fix, where):
    check(program, kind, operation, shown, fix, where)


def test_there_are_enough():
    assert len(TABLE) >= 20
