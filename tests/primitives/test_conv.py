"""Convolution: values and every rule against jax.lax."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.primitives.rules import check
from toile.engine.conversion import as_array
from toile.primitives.conv import ConvDimensionNumbers, ConvGeneralDilated
from toile.transforms.linearize import linearize_flat
from toile.transforms.transpose import backward

# lhs, rhs, strides, padding, lhs dilation, rhs dilation, layout, feature groups, batch groups
CASES = {
    "plain": ((2, 3, 6), (4, 3, 3), (1,), ((1, 1),), (1,), (1,), ("NCH", "OIH", "NCH"), 1, 1),
    "strided": ((2, 7, 6, 3), (3, 2, 3, 4), (2, 1), ((1, 0), (0, 2)), (1, 1), (1, 1),
                ("NHWC", "HWIO", "NHWC"), 1, 1),
    "dilated": ((1, 9, 2), (3, 2, 2), (2,), ((2, 1),), (1,), (2,), ("NHC", "HIO", "NHC"), 1, 1),
    "transposed": ((2, 4, 3), (3, 3, 2), (1,), ((1, 2),), (2,), (1,), ("NHC", "HIO", "NHC"), 1, 1),
    "everything": ((2, 5, 2), (3, 2, 4), (2,), ((2, 3),), (3,), (2,), ("NHC", "HIO", "NHC"), 1, 1),
    "groups": ((2, 6, 5, 4), (3, 2, 2, 6), (1, 2), ((1, 1), (0, 0)), (1, 1), (1, 1),
               ("NHWC", "HWIO", "NHWC"), 2, 1),
    "depthwise": ((2, 6, 4), (3, 1, 8), (1,), ((1, 1),), (1,), (1,), ("NHC", "HIO", "NHC"), 4, 1),
    "batch groups": ((4, 5, 3), (2, 3, 6), (1,), ((0, 1),), (1,), (1,), ("NHC", "HIO", "NHC"),
                     1, 2),
    "negative": ((1, 7, 2), (2, 2, 2), (1,), ((-1, -2),), (1,), (1,), ("NHC", "HIO", "NHC"), 1, 1),
    "no space": ((3, 4), (4, 5), (), (), (), (), ("NC", "IO", "NC"), 1, 1),
}  # fmt: skip


def make(name, **changes):
    lhs, rhs, strides, padding, base, dilation, layout, groups, batches = CASES[name]
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype(np.float32) for s in (lhs, rhs))
    numbers = lax.conv_dimension_numbers(lhs, rhs, layout)

    def reference(x, w):
        return lax.conv_general_dilated(
            x, w, strides, padding, base, dilation, numbers, groups, batches, **changes
        )

    fields = ConvDimensionNumbers(*(tuple(s) for s in numbers))
    op = ConvGeneralDilated(
        strides, padding, base, dilation, fields, groups, batches, None,
        changes.get("preferred_element_type"),
    )  # fmt: skip
    return op, reference, x, w


@pytest.mark.parametrize("name", CASES)
def test_rules(name):
    op, reference, x, w = make(name)
    check(op, reference, x, w, rtol=1e-4, atol=1e-4, second=name in ("strided", "groups"))


def test_narrow_operands_wide_result():
    op, reference, x, w = make("plain", preferred_element_type=np.dtype(np.float32))
    x, w = x.astype(jnp.bfloat16), w.astype(jnp.bfloat16)
    check(op, reference, x, w, grad=False, vmap=False, rtol=1e-2)
    results, tape = linearize_flat(lambda x, w: [op(x, w)], [as_array(x), as_array(w)])
    ct = as_array(np.ones(results[0].shape, np.float32))
    assert [str(c.dtype) for c in backward(tape, [ct])] == ["bfloat16", "bfloat16"]


def test_integers():
    op, reference, x, w = make("strided")
    check(op, reference, (x * 5).astype(np.int32), (w * 5).astype(np.int32), vmap=False)


def test_errors():
    op, _, x, w = make("groups")
    with pytest.raises(TypeError, match="conv_general_dilated: needed feature_group_count"):
        op.infer(as_array(x[..., :3]).aval, as_array(w).aval)
