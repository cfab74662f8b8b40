"""The errors users see, each with a broken and a repaired program in its docstring."""
# ruff: noqa: F401

from toile.engine.errors import (
    CacheWarning,
    ConcretizationTypeError,
    JAXIndexError,
    JaxRuntimeError,
    JAXTypeError,
    KeyReuseError,
    NonConcreteBooleanIndexError,
    NonHashableStaticArgumentError,
    RetraceWarning,
    ShapeError,
    ToileError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    TreeStructureError,
    UnexpectedTracerError,
    UnreadableFileError,
)
from toile.errors.base import FlaxError
from toile.errors.modules import (
    ApplyModuleInvalidMethodError,
    AssignSubModuleError,
    CallCompactUnboundModuleError,
    CallSetupUnboundModuleError,
    CallShareScopeOnUnboundModuleError,
    CallUnbindOnUnboundModuleError,
    DescriptorAttributeError,
    IncorrectPostInitOverrideError,
    InvalidInstanceModuleError,
    MultipleMethodsCompactError,
    NameInUseError,
    ReservedModuleAttributeError,
    SetAttributeFrozenModuleError,
    SetAttributeInModuleSetupError,
    TransformedMethodReturnValueError,
    TransformTargetError,
)
from toile.errors.scope import (
    ApplyScopeInvalidVariablesStructureError,
    ApplyScopeInvalidVariablesTypeError,
    ImmutableVariableError,
    InvalidFilterError,
    InvalidRngError,
    InvalidScopeError,
    JaxTransformError,
    LazyInitError,
    ModifyScopeVariableError,
    PartitioningUnspecifiedError,
    ScopeCollectionNotFound,
    ScopeParamNotFoundError,
    ScopeParamShapeError,
    ScopeVariableNotFoundError,
    TraceContextError,
)
from toile.errors.storage import (
    AlreadyExistsError,
    CorruptedCheckpointError,
    CursorFindError,
    InvalidCheckpointError,
    MPACheckpointingRequiredError,
    MPARestoreDataCorruptedError,
    MPARestoreTargetRequiredError,
    TraverseTreeError,
)

__all__ = [name for name, value in globals().items() if isinstance(value, type)]
