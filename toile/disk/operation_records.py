"""A closed table of the operations that may run in Python as steps of plans on disk.

Operations that hold Programs or functions are not in the table, so plans with such steps are not
stored. New elementwise operations need not be in the table, because their code is part of kernels.
`tests/compiler/test_plan_data.py` compares the table with all operations that exist.
"""

from __future__ import annotations

from toile.disk.plan_schema import Record

_OPERATIONS = {
    "toile.compiler.index_tests": "ReportIndices",
    "toile.compiler.passes.extended_arrays": "Extend",
    "toile.compiler.passes.messages": "EdgesByTarget GatherScatter",
    "toile.compiler.passes.joined_parts": "Rotate",
    "toile.compiler.passes.quantized_products": "QuantizedProduct",
    "toile.compiler.passes.random_bits": "OnBuffers",
    "toile.kernels.fft.gpu": "UndividedFft",
    "toile.parallel.varying_values": "Varying",
    "toile.primitives.barriers": "Name StopGradient",
    "toile.primitives.bits":
        "And Clz Eq Gcd Ge Gt Le Lt Ne Not Or PopulationCount ShiftLeft ShiftRightArithmetic "
        "ShiftRightLogical Xor _KeyComparison",
    "toile.primitives.choices": "Clamp ConvertElementType SelectN _SelectKeys",
    "toile.primitives.collectives":
        "AllGather AllReduce AllReduceBegin AllReduceEnd AllReduceTogether AllToAll AxisIndex "
        "PPermute ReduceScatter",
    "toile.primitives.complexes": "Complex Conj Imag Real",
    "toile.primitives.contractions": "DotGeneral",
    "toile.primitives.conv": "ConvGeneralDilated",
    "toile.primitives.cumulative": "Cumlogsumexp Cummax Cummin Cumprod Cumsum",
    "toile.primitives.elementwise":
        "Abs Ceil Div Floor IntegerPow IsFinite Log Max Min Nextafter Pow Rem Round Sign",
    "toile.primitives.families": "Add BroadcastInDim Mul Neg ReduceSum Reshape Sub Transpose",
    "toile.primitives.fft": "Fft",
    "toile.primitives.dynamic_slices": "DynamicSlice DynamicUpdateSlice _WithKeyAxis",
    "toile.primitives.gathers": "Gather Scatter",
    "toile.primitives.linalg_eigen": "Eig Eigh Hessenberg Schur Svd Tridiagonal",
    "toile.primitives.linalg_factor":
        "Cholesky CholeskyUpdate Geqrf HouseholderProduct Lu LuPivotsToPermutation Ormqr Qr",
    "toile.primitives.linalg_solve": "FactoredSolve LuFactors TriangularSolve TridiagonalSolve",
    "toile.primitives.low_rank": "LowRankSum",
    "toile.primitives.quantized": "Dequantize",
    "toile.primitives.random":
        "RandomBits RandomClone RandomConsume RandomFoldIn RandomSeed RandomSplit RandomUnwrap "
        "RandomWrap",
    "toile.primitives.recurrences": "LinearRecurrence",
    "toile.primitives.reductions": "ReduceAnd ReduceMax ReduceMin ReduceOr ReduceProd ReduceXor",
    "toile.primitives.shapes":
        "BitcastConvertType Concatenate Copy Iota OptimizationBarrier Pad ReducePrecision Rev "
        "Slice _PadKeys",
    "toile.primitives.sorts": "Argmax Argmin Sort TopK",
    "toile.primitives.special":
        "BesselI0e BesselI1e Digamma Erf ErfInv Erfc FusedMultiplyAdd Igamma IgammaGradA Igammac "
        "Lgamma Polygamma PolygammaOfOrder RandomGammaGrad RegularizedIncompleteBeta Zeta",
    "toile.primitives.threefry_words": "ThreefryWord",
    "toile.primitives.transcendental":
        "Acos Acosh Asin Asinh Atan Atan2 Atanh Cbrt Cos Cosh Exp Exp2 Expm1 Log1p Log2 Logistic "
        "OneMinusSquare Rsqrt Sin Sinh Sqrt Tan Tanh",
    "toile.primitives.windows":
        "ReduceWindowAnd ReduceWindowMax ReduceWindowMin ReduceWindowOr ReduceWindowProd "
        "ReduceWindowSum SelectAndGatherAdd SelectAndScatterAdd",
}

# Types of their parameters other than numbers, text, dtypes and tuples.
_PARAMETERS = {
    "toile.lax.contractions": "DotAlgorithmPreset Precision",
    "toile.primitives.addresses":
        "GatherDimensionNumbers GatherScatterMode ScatterDimensionNumbers",
    "toile.primitives.conv": "ConvDimensionNumbers",
    "toile.primitives.fft": "FftType",
}


def _records(table: dict[str, str]) -> list[Record]:
    return [Record(module, name) for module, names in table.items() for name in names.split()]


def operations() -> list[Record]:
    """A record for each operation."""
    return _records(_OPERATIONS)


def parameters() -> list[Record]:
    """A record for each type in the table of parameters."""
    return _records(_PARAMETERS)
