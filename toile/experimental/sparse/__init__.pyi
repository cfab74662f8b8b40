"""The public names of this package: loaded when they are first used, and known to type checkers."""

from toile.experimental.sparse import linalg as linalg
from toile.experimental.sparse.bcoo import (
    BCOO as BCOO,
    bcoo_fromdense as bcoo_fromdense,
)
from toile.experimental.sparse.bcoo_indices import (
    bcoo_extract as bcoo_extract,
    bcoo_sort_indices as bcoo_sort_indices,
    bcoo_sum_duplicates as bcoo_sum_duplicates,
    bcoo_todense as bcoo_todense,
)
from toile.experimental.sparse.bcoo_layouts import (
    bcoo_broadcast_in_dim as bcoo_broadcast_in_dim,
    bcoo_concatenate as bcoo_concatenate,
    bcoo_reshape as bcoo_reshape,
    bcoo_rev as bcoo_rev,
    bcoo_squeeze as bcoo_squeeze,
    bcoo_transpose as bcoo_transpose,
    bcoo_update_layout as bcoo_update_layout,
)
from toile.experimental.sparse.bcoo_products import (
    bcoo_dot_general as bcoo_dot_general,
    bcoo_dot_general_sampled as bcoo_dot_general_sampled,
    bcoo_multiply_dense as bcoo_multiply_dense,
    bcoo_multiply_sparse as bcoo_multiply_sparse,
)
from toile.experimental.sparse.bcoo_slices import (
    bcoo_conv_general_dilated as bcoo_conv_general_dilated,
    bcoo_dynamic_slice as bcoo_dynamic_slice,
    bcoo_gather as bcoo_gather,
    bcoo_reduce_sum as bcoo_reduce_sum,
    bcoo_slice as bcoo_slice,
)
from toile.experimental.sparse.bcsr import (
    BCSR as BCSR,
    bcsr_fromdense as bcsr_fromdense,
)
from toile.experimental.sparse.bcsr_functions import (
    bcsr_broadcast_in_dim as bcsr_broadcast_in_dim,
    bcsr_concatenate as bcsr_concatenate,
    bcsr_dot_general as bcsr_dot_general,
    bcsr_extract as bcsr_extract,
    bcsr_sum_duplicates as bcsr_sum_duplicates,
    bcsr_todense as bcsr_todense,
)
from toile.experimental.sparse.coo import (
    COO as COO,
    coo_fromdense as coo_fromdense,
    coo_matmat as coo_matmat,
    coo_matvec as coo_matvec,
    coo_todense as coo_todense,
)
from toile.experimental.sparse.creation import (
    empty as empty,
    eye as eye,
    random_bcoo as random_bcoo,
)
from toile.experimental.sparse.csr import (
    CSC as CSC,
    CSR as CSR,
    csr_fromdense as csr_fromdense,
    csr_matmat as csr_matmat,
    csr_matvec as csr_matvec,
    csr_todense as csr_todense,
)
from toile.experimental.sparse.gradients import (
    grad as grad,
    jacfwd as jacfwd,
    jacobian as jacobian,
    jacrev as jacrev,
    value_and_grad as value_and_grad,
)
from toile.experimental.sparse.sparsify_trace import (
    SparseTracer as SparseTracer,
    sparsify as sparsify,
    todense as todense,
)
from toile.experimental.sparse.storage import (
    CuSparseEfficiencyWarning as CuSparseEfficiencyWarning,
    JAXSparse as JAXSparse,
    SparseEfficiencyError as SparseEfficiencyError,
    SparseEfficiencyWarning as SparseEfficiencyWarning,
)
