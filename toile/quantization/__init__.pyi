"""The public names of this package: loaded when they are first used, and known to type checkers."""

from toile.quantization.arrays import QuantizedArray as QuantizedArray
from toile.quantization.inputs import quantize_inputs as quantize_inputs
from toile.quantization.rounding import quantize_array as quantize_array
from toile.quantization.parameters import (
    dequantize as dequantize,
    quantize as quantize,
    size_of as size_of,
)
from toile.quantization.input_statistics import (
    InputStatistics as InputStatistics,
    calibrate as calibrate,
)
