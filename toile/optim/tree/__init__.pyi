"""The public names of this package: loaded when they are first used, and known to type checkers."""

from toile.optim.tree.casting import cast as cast, cast_like as cast_like, dtype as dtype
from toile.optim.tree.maths import (
    add as add,
    add_scale as add_scale,
    allclose as allclose,
    batch_shape as batch_shape,
    bias_correction as bias_correction,
    clip as clip,
    conj as conj,
    div as div,
    full_like as full_like,
    max as max,
    min as min,
    mul as mul,
    norm as norm,
    ones_like as ones_like,
    real as real,
    scale as scale,
    size as size,
    sub as sub,
    sum as sum,
    update_infinity_moment as update_infinity_moment,
    update_moment as update_moment,
    update_moment_per_elem_norm as update_moment_per_elem_norm,
    vdot as vdot,
    where as where,
    zeros_like as zeros_like,
)
from toile.optim.tree.sampling import (
    random_like as random_like,
    split_key_like as split_key_like,
    unwrap_random_key_data as unwrap_random_key_data,
)
from toile.optim.tree.states import (
    NamedTupleKey as NamedTupleKey,
    get as get,
    get_all_with_path as get_all_with_path,
    map_params as map_params,
    set as set,
)
