"""Operations under the names that JAX gives its primitives, such as `add_p`.

Operations without parameters are the operations themselves; those with parameters are their classes.
"""

from __future__ import annotations

from toile.primitives import elementwise, families, special
from toile.primitives import transcendental as curves
from toile.primitives.collectives import AllReduce as psum_p
from toile.primitives.families import BroadcastInDim as broadcast_in_dim_p
from toile.primitives.families import Reshape as reshape_p
from toile.primitives.indexing import Scatter as scatter_p
from toile.primitives.shapes import Concatenate as concatenate_p
from toile.primitives.shapes import Slice as slice_p
from toile.primitives.sorting import TopK as top_k_p

# The combining functions of a scatter are one parameter of one operation.
scatter_add_p = scatter_sub_p = scatter_mul_p = scatter_min_p = scatter_max_p = scatter_p
pmax_p = pmin_p = psum_p
# These are reshapes, slices and joins here.
squeeze_p = reshape_p
split_p = unstack_p = slice_p
stack_p = concatenate_p
tile_p = broadcast_in_dim_p
approx_top_k_p = top_k_p
square_p = elementwise.IntegerPow(2)

abs_p, sign_p, neg_p = elementwise.abs_, elementwise.sign, families.neg
add_p, sub_p, mul_p = families.add, families.sub, families.mul
div_p, rem_p, pow_p = elementwise.div, elementwise.rem, elementwise.pow_
max_p, min_p, nextafter_p = elementwise.max_, elementwise.min_, elementwise.nextafter
floor_p, ceil_p, is_finite_p = elementwise.floor, elementwise.ceil, elementwise.is_finite
clamp_p, select_n_p = elementwise.clamp, elementwise.select_n
complex_p, real_p = elementwise.complex_, elementwise.real
imag_p, conj_p = elementwise.imag, elementwise.conj
eq_p, ne_p, lt_p = elementwise.eq, elementwise.ne, elementwise.lt
le_p, gt_p, ge_p = elementwise.le, elementwise.gt, elementwise.ge
and_p, or_p, xor_p, not_p = elementwise.and_, elementwise.or_, elementwise.xor, elementwise.not_
shift_left_p = elementwise.shift_left
shift_right_logical_p = elementwise.shift_right_logical
shift_right_arithmetic_p = elementwise.shift_right_arithmetic
population_count_p, clz_p = elementwise.population_count, elementwise.clz
exp_p, exp2_p, expm1_p = curves.exp, curves.exp2, curves.expm1
log_p, log1p_p, logistic_p = elementwise.log, curves.log1p, curves.logistic
sqrt_p, rsqrt_p, cbrt_p = curves.sqrt, curves.rsqrt, curves.cbrt
sin_p, cos_p, tan_p = curves.sin, curves.cos, curves.tan
asin_p, acos_p, atan_p, atan2_p = curves.asin, curves.acos, curves.atan, curves.atan2
sinh_p, cosh_p, tanh_p = curves.sinh, curves.cosh, curves.tanh
asinh_p, acosh_p, atanh_p = curves.asinh, curves.acosh, curves.atanh
erf_p, erfc_p, erf_inv_p = special.erf, special.erfc, special.erf_inv
lgamma_p, digamma_p, polygamma_p = special.lgamma, special.digamma, special.polygamma
igamma_p, igammac_p, zeta_p = special.igamma, special.igammac, special.zeta
igamma_grad_a_p = special.igamma_grad_a
regularized_incomplete_beta_p = special.regularized_incomplete_beta
bessel_i0e_p, bessel_i1e_p = special.bessel_i0e, special.bessel_i1e

__all__ = [name for name in globals() if name.endswith("_p")]
