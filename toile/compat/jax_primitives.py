"""Operations under the names that JAX gives its primitives, such as `add_p`.

A name refers to the operation itself if it has no parameters, and otherwise to its class.
"""

from __future__ import annotations

from toile.control import cond, linear_solve, scan, while_loop
from toile.primitives import (
    barriers,
    bits,
    collectives,
    complexes,
    contractions,
    conv,
    cumulative,
    dynamic_slices,
    elementwise,
    families,
    fft,
    gathers,
    reductions,
    shapes,
    sorts,
    special,
    windows,
)
from toile.primitives import transcendental as curves

cond_p, scan_p, while_p, fft_p = cond.Cond, scan.Scan, while_loop.While, fft.Fft
linear_solve_p, stop_gradient_p = linear_solve.LinearSolve, barriers.stop_gradient
all_gather_p, all_to_all_p = collectives.AllGather, collectives.AllToAll
ppermute_p, axis_index_p = collectives.PPermute, collectives.AxisIndex
psum_p = pmax_p = pmin_p = collectives.AllReduce
dot_general_p, conv_general_dilated_p = contractions.DotGeneral, conv.ConvGeneralDilated
cumsum_p, cumprod_p, cummax_p = cumulative.Cumsum, cumulative.Cumprod, cumulative.Cummax
cummin_p, cumlogsumexp_p = cumulative.Cummin, cumulative.Cumlogsumexp
convert_element_type_p, integer_pow_p = elementwise.ConvertElementType, elementwise.IntegerPow
round_p, broadcast_in_dim_p = elementwise.Round, families.BroadcastInDim
reshape_p, transpose_p, reduce_sum_p = families.Reshape, families.Transpose, families.ReduceSum
gather_p, scatter_p = gathers.Gather, gathers.Scatter
dynamic_slice_p = dynamic_slices.DynamicSlice
dynamic_update_slice_p = dynamic_slices.dynamic_update_slice
reduce_max_p, reduce_min_p = reductions.ReduceMax, reductions.ReduceMin
reduce_prod_p, reduce_and_p = reductions.ReduceProd, reductions.ReduceAnd
reduce_or_p, reduce_xor_p = reductions.ReduceOr, reductions.ReduceXor
bitcast_convert_type_p, reduce_precision_p = shapes.BitcastConvertType, shapes.ReducePrecision
concatenate_p, iota_p, pad_p = shapes.Concatenate, shapes.Iota, shapes.Pad
rev_p, slice_p, optimization_barrier_p = shapes.Rev, shapes.Slice, shapes.optimization_barrier
copy_p = stage_p = shapes.copy
argmax_p, argmin_p, sort_p, top_k_p = sorts.Argmax, sorts.Argmin, sorts.Sort, sorts.TopK
reduce_window_max_p, reduce_window_min_p = windows.ReduceWindowMax, windows.ReduceWindowMin
reduce_window_sum_p = windows.ReduceWindowSum
select_and_gather_add_p = windows.SelectAndGatherAdd
select_and_scatter_add_p = windows.SelectAndScatterAdd
# The combining functions of a scatter are one parameter of one operation.
scatter_add_p = scatter_sub_p = scatter_mul_p = scatter_min_p = scatter_max_p = scatter_p
# In toile these are other operations: reshapes, slices, joins.
squeeze_p, tile_p, stack_p, approx_top_k_p = reshape_p, broadcast_in_dim_p, concatenate_p, top_k_p
split_p = unstack_p = slice_p
square_p = elementwise.IntegerPow(2)

abs_p, sign_p, neg_p = elementwise.abs_, elementwise.sign, families.neg
add_p, sub_p, mul_p = families.add, families.sub, families.mul
div_p, rem_p, pow_p = elementwise.div, elementwise.rem, elementwise.pow_
max_p, min_p, nextafter_p = elementwise.max_, elementwise.min_, elementwise.nextafter
floor_p, ceil_p, is_finite_p = elementwise.floor, elementwise.ceil, elementwise.is_finite
clamp_p, select_n_p = elementwise.clamp, elementwise.select_n
complex_p, real_p = complexes.complex_, complexes.real
imag_p, conj_p = complexes.imag, complexes.conj
eq_p, ne_p, lt_p, le_p, gt_p, ge_p = bits.eq, bits.ne, bits.lt, bits.le, bits.gt, bits.ge
and_p, or_p, xor_p, not_p = bits.and_, bits.or_, bits.xor, bits.not_
shift_right_logical_p = bits.shift_right_logical
shift_right_arithmetic_p = bits.shift_right_arithmetic
shift_left_p, population_count_p, clz_p = bits.shift_left, bits.population_count, bits.clz
exp_p, exp2_p, expm1_p = curves.exp, curves.exp2, curves.expm1
log_p, log1p_p, logistic_p = elementwise.log, curves.log1p, curves.logistic
log2_p, one_minus_square_p = curves.log2, curves.one_minus_square
sqrt_p, rsqrt_p, cbrt_p = curves.sqrt, curves.rsqrt, curves.cbrt
sin_p, cos_p, tan_p = curves.sin, curves.cos, curves.tan
asin_p, acos_p, atan_p, atan2_p = curves.asin, curves.acos, curves.atan, curves.atan2
sinh_p, cosh_p, tanh_p = curves.sinh, curves.cosh, curves.tanh
asinh_p, acosh_p, atanh_p = curves.asinh, curves.acosh, curves.atanh
erf_p, erfc_p, erf_inv_p = special.erf, special.erfc, special.erf_inv
lgamma_p, digamma_p, polygamma_p = special.lgamma, special.digamma, special.polygamma
igamma_p, igammac_p, igamma_grad_a_p = special.igamma, special.igammac, special.igamma_grad_a
regularized_incomplete_beta_p = special.regularized_incomplete_beta
zeta_p, bessel_i0e_p, bessel_i1e_p = special.zeta, special.bessel_i0e, special.bessel_i1e
