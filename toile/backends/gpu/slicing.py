"""Operations that only move elements, as this backend copies them; see `compiler.moves`."""

from __future__ import annotations

from toile.backends.gpu.copies import moves

lower_concatenate = moves.lower_concatenate
lower_copy = moves.lower_copy
lower_dynamic_slice = moves.lower_dynamic_slice
lower_dynamic_update_slice = moves.lower_dynamic_update_slice
lower_pad = moves.lower_pad
lower_reshape = moves.lower_reshape
lower_rev = moves.lower_rev
