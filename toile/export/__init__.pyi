"""The public names of this package: loaded when they are first used, and known to type checkers."""

from toile.export._dimensions import (
    InconclusiveDimensionOperation as InconclusiveDimensionOperation,
)
from toile.export._exported import (
    DisabledSafetyCheck as DisabledSafetyCheck,
    Exported as Exported,
    default_export_platform as default_export_platform,
    deserialize as deserialize,
    export as export,
    maximum_supported_calling_convention_version as maximum_supported_calling_convention_version,
    minimum_supported_calling_convention_version as minimum_supported_calling_convention_version,
)
from toile.export._files import load as load, save as save
from toile.export._scopes import (
    SymbolicScope as SymbolicScope,
    is_symbolic_dim as is_symbolic_dim,
    symbolic_args_specs as symbolic_args_specs,
    symbolic_shape as symbolic_shape,
)
from toile.export._trees import (
    register_namedtuple_serialization as register_namedtuple_serialization,
    register_pytree_node_serialization as register_pytree_node_serialization,
)
from toile.exporting.c_files import to_c as to_c
from toile.exporting.numpy_files import to_numpy as to_numpy
from toile.exporting.onnx_files import to_onnx as to_onnx
from toile.exporting.onnx_reader import from_onnx as from_onnx
