"""Lowers convolutions to cuDNN: forward, and derivatives with respect to images or kernels.

Derivatives of convolutions are convolutions again: with respect to the images, one of the
cotangent, dilated by the stride, with reversed kernels; with respect to the kernels, one with
images as channels and a window as large as the result of the forward pass. Each is passed to cuDNN
as the derivative that it is. Arrays have channels last; if channels are few, they are padded with
zeros to a full vector, which is several times faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from toile.compiler.ir.geometry import dense, permuted
from toile.compiler.ir.operands import Operand
from toile.compiler.ir.steps import alignment
from toile.compiler.ir.views import row_major
from toile.kernels.contraction import gpu as contractions
from toile.kernels.contraction import gpu_tiles
from toile.kernels.contraction.gpu import float32_compute
from toile.kernels.convolution import gpu_tensor_cores as tensor_convolutions
from toile.kernels.copy import gpu_relayout as relayout
from toile.primitives.contractions import DotGeneral
from toile.primitives.conv import ConvGeneralDilated
from toile.targets.cuda import cudnn
from toile.targets.cuda.cudnn import Convolution, Tensor
from toile.targets.cuda.launches import Planner

FEW = 32  # with fewer channels, they are padded to a vector
VECTOR = 16  # bytes
SPATIAL = 3
# Conditions for a product of patches: the least number of patches, the most bytes of all patches,
# the most numbers per patch if there are few channels, and the most numbers of a derivative in the
# kernels.
MANY_TERMS, MOST_PATCHES, NARROW, FEW_NUMBERS = 4096, 128 << 20, 32, 1 << 15
# The fewest groups, and the fewest features, positions and terms of each, for which tiles are
# faster than cuDNN; and the most multiplications of a group.
MANY_GROUPS, FEW_OF_A_GROUP, MOST_OF_A_GROUP = 64, 8, 1 << 24
# The most groups that are computed one by one, and what each must have for that: at least so many
# channels and features, or a signal of at least so many numbers.
FEW_GROUPS, WIDE_GROUP, LONG_ROW = 16, 8, 1 << 12
# The result dtypes that cuDNN supports for operands of one dtype.
RESULTS = {
    "float32": ("float32",), "float64": ("float64",), "bfloat16": ("bfloat16", "float32"),
    "float16": ("float16", "float32"),
}  # fmt: skip


@dataclass(frozen=True)
class Form:
    """A convolution as cuDNN describes it; one of its three operands is the result.

    x: (images, channels, spatial...), w: (groups, features of a group, channels of a group,
    spatial...), y: (images, features, spatial...), with at least two spatial axes."""

    kind: str
    x: Operand
    w: Operand
    y: Operand
    low: tuple[int, ...]
    high: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def result(self) -> str:
        return cudnn.RESULTS[self.kind]

    @property
    def symmetric(self) -> bool:
        return self.low == self.high

    @property
    def forward(self) -> Form | None:
        """A derivative in the images as a convolution of the cotangent; None if it has strides."""
        if any(n != 1 for n in self.stride):
            return None
        taps = self.w.shape[3:]
        low = tuple((k - 1) * d - n for k, d, n in zip(taps, self.dilation, self.low, strict=True))
        return Form("fprop", self.y, _exchanged(self.w), self.x, low, low, self.stride,
                    self.dilation)


def lower(op: ConvGeneralDilated, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Add the stages of a convolution; False if there is no method for it."""
    if _has_many_groups(op, ins[1], outs[0]) and gpu_tiles.lower_direct_conv(op, ins, outs, plan):
        return True
    return by_library(op, ins, outs, plan) or gpu_tiles.lower_direct_conv(op, ins, outs, plan)


def _has_many_groups(op: ConvGeneralDilated, w: Operand, y: Operand) -> bool:
    """Whether this is a small product for each of many groups, as per-example gradients are.

    cuDNN's engines for such groups are slow, except for groups of one channel."""
    groups = max(op.feature_group_count, op.batch_group_count)
    _, kernels, out = op.dimension_numbers
    features = y.shape[out[1]] // groups
    positions = prod(y.shape[d] for d in out[2:])
    terms = w.shape[kernels[1]] * prod(w.shape[d] for d in kernels[2:])
    small = features * positions * terms <= MOST_OF_A_GROUP
    return groups >= MANY_GROUPS and small and min(features, positions, terms) >= FEW_OF_A_GROUP


def by_library(
    op: ConvGeneralDilated, ins: Sequence[Operand], outs: Sequence[Operand], plan: Planner
) -> bool:
    """Add the call for a convolution, with its copies; False if cuDNN has no engine for it."""
    (x, w), (y,) = ins, outs
    if not _is_supported(x, w, y):
        return False
    if _pointwise(op, x, w, y, plan):
        return True
    parts = list(_groups(op, x, w, y))
    if len(parts) > 1:  # what is possible for one group is possible for all of them
        return all(by_library(part, [x, w], [y], plan) for part, x, w, y in parts)
    return _by_best(forms(op, x, w, y), op.precision, plan)


def _by_best(found: list[Form], precision: Any, plan: Planner) -> bool:
    """Use the first of the forms for which there is a kernel."""
    tf32 = float32_compute(precision) != "float32"
    best = found[0] if found and tf32 else None
    if best is not None and tensor_convolutions.lower(best, plan):
        return True
    engine = cudnn.engine()
    if engine is None:
        return best is not None and tensor_convolutions.lower(best, plan, always=True)
    return any(_by_patches(form, precision, plan) or _by_cudnn(form, engine, tf32, plan)
               for form in found)


def _groups(op: ConvGeneralDilated, x: Operand, w: Operand, y: Operand
            ) -> Iterator[tuple[ConvGeneralDilated, Operand, Operand, Operand]]:
    """A convolution for each group, if groups are few and wide, as in gradients of a few examples.

    cuDNN's engines for groups are slow, and it has none for the kernels of groups that share no
    images."""
    groups = max(op.feature_group_count, op.batch_group_count)
    (xb, xf, *_), (wo, wi, *ws), (_, yf, *ys) = op.dimension_numbers
    in_kernels = prod(w.shape[d] for d in ws) > prod(y.shape[d] for d in ys)
    channels = x.shape[xb] // op.batch_group_count if in_kernels else w.shape[wi]
    features = y.shape[yf] // groups
    rows = len(ws) == channels == features == 1 and max(w.shape[ws[0]], y.shape[ys[0]]) >= LONG_ROW
    if not 1 < groups <= FEW_GROUPS or not (rows or min(features, channels) >= WIDE_GROUP):
        return
    single = replace(op, feature_group_count=1, batch_group_count=1)
    along = xf if op.feature_group_count > 1 else xb
    for g in range(groups):
        yield (single, _part(x, along, g, groups), _part(w, wo, g, groups),
               _part(y, yf, g, groups))


def _part(a: Operand, axis: int, number: int, parts: int) -> Operand:
    """One of `parts` equal parts of an operand along an axis."""
    n = a.shape[axis] // parts
    shape = (*a.shape[:axis], n, *a.shape[axis + 1 :])
    return a._replace(ref=a.ref.at(number * n * a.strides[axis] * a.dtype.itemsize), shape=shape)


def _is_supported(x: Operand, w: Operand, y: Operand) -> bool:
    """Whether there may be engines for these dtypes and this number of axes."""
    return (w.dtype == x.dtype and y.dtype.name in RESULTS.get(x.dtype.name, ())
            and all(a.size for a in (x, w, y)) and len(x.shape) - 2 <= SPATIAL)


def _by_cudnn(form: Form, engine: Any, tf32: bool, plan: Planner) -> bool:
    """Use the first layout for which there is an engine."""
    for layout in layouts(form):
        description = layout.description(tf32)
        try:
            built = engine.plan(description)
        except cudnn.Unsupported:
            continue
        layout.emit(description, built, plan)
        return True
    return False


# ---- products of matrices
def _pointwise(op: ConvGeneralDilated, x: Operand, w: Operand, y: Operand, plan: Planner) -> bool:
    """Kernels of one element, or the derivative in such kernels: positions are rows of a matrix."""
    x_spec, w_spec, y_spec = op.dimension_numbers
    groups = max(op.feature_group_count, op.batch_group_count)
    steps = (*op.window_strides, *op.lhs_dilation, *op.rhs_dilation)
    if groups > 1 or any(n != 1 for n in steps) or any(p != (0, 0) for p in op.padding):
        return False
    spatial = "abc"[: len(x_spec) - 2]
    single = [all(a.shape[d] == 1 for d in s[2:]) for a, s in ((w, w_spec), (y, y_spec))]
    if not any(single):
        return False
    x, w, y = (_canonical(a, s, 0) for a, s in ((x, x_spec), (w, w_spec), (y, y_spec)))
    if single[0]:
        w = w._replace(shape=w.shape[:2], strides=w.strides[:2])
        labels = "nf" + spatial, "of", "no" + spatial
    else:
        y = y._replace(shape=y.shape[:2], strides=y.strides[:2])
        labels = "nf" + spatial, "of" + spatial, "no"
    return contractions.by_library(DotGeneral(*labels, y.dtype, op.precision), [x, w], [y], plan)


def _by_patches(form: Form, precision: Any, plan: Planner) -> bool:
    """A product of the images' patches with the kernels or the cotangent, if that is faster.

    The derivative in a small kernel has few numbers, which are long sums: cuDNN's deterministic
    engines compute each sum in one place, while cuBLAS splits sums into parts. In the forward pass,
    cuDNN has no engines for channels so few that a patch is little more than a vector."""
    groups, features, channels, *taps = form.w.shape
    terms, width = form.y.size // max(form.y.shape[1], 1), prod(taps) * channels
    vector = VECTOR // form.x.dtype.itemsize
    pitch = -(-width // vector) * vector  # rows begin at vector boundaries
    few = channels < vector and width <= NARROW
    suits = {"wgrad": width * features <= FEW_NUMBERS, "fprop": few}.get(form.kind, False)
    if not suits or groups > 1 or width == channels or terms < MANY_TERMS:
        return False
    other, out = ("y", "w") if form.kind == "wgrad" else ("w", "y")
    kinds = (getattr(form, name).dtype.name for name in ("x", other, out))
    nbytes = terms * pitch * form.x.dtype.itemsize
    if nbytes > MOST_PATCHES or contractions.compute_type(precision, *kinds) is None:
        return False
    patches, labels = _patches(form, pitch, plan.scratch(nbytes), plan)
    w = form.w._replace(shape=form.w.shape[1:], strides=form.w.strides[1:])
    given = {"w": w, "y": form.y}
    names = {"w": "fc" + "ijk"[: len(taps)], "y": "nf" + "abc"[: len(taps)]}
    product = DotGeneral(labels, names[other], names[out], given[out].dtype, precision)
    return contractions.by_library(product, [patches, given[other]], [given[out]], plan)


def _patches(form: Form, pitch: int, at: Any, plan: Planner) -> tuple[Operand, str]:
    """All patches of the images, one after the other in memory, and the labels of their axes.

    A patch has the layout of the kernels, so that its axes merge into one."""
    x, outs, taps = form.x, form.y.shape[2:], form.w.shape[3:]
    steps = [(d, n) for d, n in enumerate(form.stride, 2)]
    within = [(1, 1), *((d, n) for d, n in enumerate(form.dilation, 2))]
    columns = sorted(zip("cijk", form.w.shape[2:], within, form.w.strides[2:], strict=False),
                     key=lambda c: -abs(c[3]))
    rows, inner = (x.shape[0], *outs), tuple(c[1] for c in columns)
    strides = (*(pitch * s for s in row_major(rows)), *row_major(inner))
    patches = Operand(at, (*rows, *inner), strides, x.dtype)
    along = [(0, 1), *steps, *(c[2] for c in columns)]
    plan.stage(relayout.patches(patches, x, along, (0, 0, *form.low)))
    return patches, "n" + "abc"[: len(taps)] + "".join(c[0] for c in columns)


# ---- which convolution it is
def forms(op: ConvGeneralDilated, x: Operand, w: Operand, y: Operand) -> list[Form]:
    """The possible forms of the operation for cuDNN, best first."""
    plain = all(n == 1 for n in op.lhs_dilation)
    unstrided = all(n == 1 for n in op.window_strides)
    likely = _likely_kinds(op, w, y)
    found = [
        _dgrad(op, x, w, y) if unstrided and op.batch_group_count == 1 else None,
        _fprop(op, x, w, y) if plain and op.batch_group_count == 1 else None,
        _wgrad(op, x, w, y) if plain and op.feature_group_count == 1 else None,
        _transposed_wgrad(op, x, w, y) if "wgrad" in likely else None,
    ]
    # The slow kinds: all but "wgrad" if the window is larger than the result, and "dgrad" for
    # single channels, which cuDNN convolves forward three times as fast.
    slow = {"fprop", "dgrad"} if likely == {"wgrad"} else set()
    if any(form is not None and form.w.shape[:3] == (1, 1, 1) for form in found):
        slow.add("dgrad")
    return sorted((form for form in found if form is not None),
                  key=lambda form: (form.kind in slow, _copied_bytes(form),
                                    form.kind not in likely))


def _likely_kinds(op: ConvGeneralDilated, w: Operand, y: Operand) -> set[str]:
    """The kinds that the operation probably is: a forward pass, or one of the derivatives."""
    _, w_spec, y_spec = op.dimension_numbers
    reverses = any(w.strides[d] < 0 for d in w_spec[2:] if w.shape[d] > 1)
    taps, outs = (prod(a.shape[d] for d in s[2:]) for a, s in ((w, w_spec), (y, y_spec)))
    kinds = set()
    if taps > outs:
        kinds.add("wgrad")
    elif not reverses:
        kinds.add("fprop")
    if reverses or ("wgrad" not in kinds and any(n != 1 for n in op.lhs_dilation)):
        kinds.add("dgrad")
    return kinds


def _copied_bytes(form: Form) -> int:
    """The bytes to copy before or after the call, including those of reversed kernels."""
    total = 0
    for name in "xwy":
        a = getattr(form, name)
        if not permuted(a, channels_last(name, len(a.shape))).contiguous:
            total += a.size * a.dtype.itemsize
    return total


def _canonical(a: Operand, spec: Sequence[int], extra: int) -> Operand:
    """An operand with its axes in the order of its spec, and `extra` spatial axes of extent 1."""
    shape = [a.shape[d] for d in spec]
    strides = [a.strides[d] for d in spec]
    return a._replace(shape=(*shape[:2], *[1] * extra, *shape[2:]),
                      strides=(*strides[:2], *[0] * extra, *strides[2:]))


def _grouped(w: Operand, groups: int) -> Operand:
    """Kernels (features, channels, spatial...) with the groups as a separate axis."""
    features = w.shape[0] // groups
    return w._replace(shape=(groups, features, *w.shape[1:]),
                      strides=(features * w.strides[0], *w.strides))


def _reversed(a: Operand, axes: Sequence[int]) -> Operand:
    """The same memory with some axes reversed."""
    offset = sum((a.shape[d] - 1) * a.strides[d] for d in axes)
    strides = tuple(-s if d in axes else s for d, s in enumerate(a.strides))
    return a._replace(ref=a.ref.at(offset * a.dtype.itemsize), strides=strides)


def _exchanged(w: Operand) -> Operand:
    """Kernels reversed, with features and channels exchanged."""
    spatial = range(3, len(w.shape))
    return _reversed(permuted(w, (0, 2, 1, *spatial)), spatial)


def _settings(op: ConvGeneralDilated, extra: int) -> tuple[Any, ...]:
    """Strides, low margins, dilations of images and kernels, including the added axes."""
    ones = (1,) * extra
    return (ones + tuple(op.window_strides), (0,) * extra + tuple(p[0] for p in op.padding),
            ones + tuple(op.lhs_dilation), ones + tuple(op.rhs_dilation))


def _extra(op: ConvGeneralDilated) -> int:
    return max(0, 2 - len(op.window_strides))


def _high(size: int, taps: int, outs: int, low: int, stride: int, dilation: int) -> int | None:
    """A high margin that gives `outs` outputs: the low margin if possible, else the least one."""
    least = (outs - 1) * stride + (taps - 1) * dilation + 1 - size - low
    most = least + stride - 1
    if most < 0:
        return None
    return low if least <= low <= most else max(least, 0)


def _cropped(x: Operand, low: Sequence[int], most: Sequence[int]
             ) -> tuple[Operand, tuple[int, ...]] | None:
    """Images without what negative margins remove; `most`: the most elements that are used."""
    offset, shape, margins = 0, list(x.shape), []
    for d, (below, need) in enumerate(zip(low, most, strict=True), 2):
        cut = max(0, -below)
        offset += cut * x.strides[d]
        shape[d] = min(shape[d] - cut, need - max(0, below))
        margins.append(max(0, below))
        if shape[d] <= 0:
            return None
    return (x._replace(ref=x.ref.at(offset * x.dtype.itemsize), shape=tuple(shape)),
            tuple(margins))


def _fprop(op: ConvGeneralDilated, x: Operand, w: Operand, y: Operand) -> Form | None:
    extra = _extra(op)
    x_spec, w_spec, y_spec = op.dimension_numbers
    x, w, y = (_canonical(a, s, extra) for a, s in ((x, x_spec), (w, w_spec), (y, y_spec)))
    stride, low, _, dilation = _settings(op, extra)
    return _complete(Form("fprop", x, _grouped(w, op.feature_group_count), y, low, (), stride,
                          dilation))


def _wgrad(op: ConvGeneralDilated, x: Operand, w: Operand, y: Operand) -> Form | None:
    """The derivative in kernels: batch and features are exchanged; the window is the cotangent."""
    extra = _extra(op)
    (xb, xf, *xs), (wo, wi, *ws), (yb, yf, *ys) = op.dimension_numbers
    images = _canonical(x, (xf, xb, *xs), extra)
    cotangent = _canonical(w, (wi, wo, *ws), extra)
    kernels = _grouped(_canonical(y, (yf, yb, *ys), extra), op.batch_group_count)
    dilation, low, _, stride = _settings(op, extra)
    return _complete(Form("wgrad", images, kernels, cotangent, low, (), stride, dilation))


def _transposed_wgrad(
    op: ConvGeneralDilated, x: Operand, w: Operand, y: Operand
) -> Form | None:
    """The derivative in the kernels of a transposed convolution, whose images are dilated.

    It is the derivative in the kernels of the convolution that was transposed: the window is the
    image, the dilated image is the cotangent, and the kernels are reversed."""
    plain = all(n == 1 for n in op.lhs_dilation) or any(n != 1 for n in op.rhs_dilation)
    if plain or op.feature_group_count > 1:
        return None
    extra = _extra(op)
    (xb, xf, *xs), (wo, wi, *ws), y_spec = op.dimension_numbers
    images = _canonical(w, (wi, wo, *ws), extra)
    cotangent = _canonical(x, (xf, xb, *xs), extra)
    kernels = _canonical(y, y_spec, extra)
    kernels = _reversed(kernels, range(2, len(kernels.shape)))
    channels = kernels.shape[1] // op.batch_group_count
    kernels = kernels._replace(
        shape=(op.batch_group_count, kernels.shape[0], channels, *kernels.shape[2:]),
        strides=(channels * kernels.strides[1], *kernels.strides))
    dilation, low, stride, _ = _settings(op, extra)
    low = tuple((k - 1) * d - n for k, d, n in zip(kernels.shape[3:], dilation, low, strict=True))
    return _complete(Form("wgrad", images, kernels, cotangent, low, (), stride, dilation))


def _complete(form: Form) -> Form | None:
    """The form with images cropped by negative margins, and the high margins computed."""
    x, w, y = form.x, form.w, form.y
    spans = [(q - 1) * s + (k - 1) * d + 1 for q, k, s, d in zip(
        y.shape[2:], w.shape[3:], form.stride, form.dilation, strict=True)]
    cut = _cropped(x, form.low, [n + s - 1 for n, s in zip(spans, form.stride, strict=True)])
    if cut is None:
        return None
    return _with_high(replace(form, x=cut[0], low=cut[1]))


def _with_high(form: Form) -> Form | None:
    """The form with its high margins; None if no margins give that many outputs."""
    axes = zip(form.x.shape[2:], form.w.shape[3:], form.y.shape[2:], form.low, form.stride,
               form.dilation, strict=True)
    high = tuple([n for axis in axes if (n := _high(*axis)) is not None])
    return replace(form, high=high) if len(high) == len(form.low) else None


def _dgrad(op: ConvGeneralDilated, x: Operand, w: Operand, y: Operand) -> Form | None:
    """The form whose images are the result, with the reversal and exchange of kernels undone."""
    extra = _extra(op)
    x_spec, w_spec, y_spec = op.dimension_numbers
    cotangent, images = _canonical(x, x_spec, extra), _canonical(y, y_spec, extra)
    kernels = _grouped(_canonical(w, w_spec, extra), op.feature_group_count)
    kernels = _exchanged(kernels)
    _, below, stride, dilation = _settings(op, extra)
    low = tuple((k - 1) * d - b for k, d, b in zip(kernels.shape[3:], dilation, below, strict=True))
    if min(low) < 0:
        return None
    return _with_high(Form("dgrad", images, kernels, cotangent, low, (), stride, dilation))


# ---- layouts
def channels_last(name: str, rank: int) -> tuple[int, ...]:
    """The order of axes in memory with channels innermost."""
    return (0, 1, *range(3, rank), 2) if name == "w" else (0, *range(2, rank), 1)


@dataclass(frozen=True)
class Layout:
    """The layout of a form: axes in memory, zeros around images, padded channels."""

    form: Form
    last: bool  # channels are innermost
    margins: bool  # whether zeros around the images are stored
    channels: int  # of the images and of kernels, including padding

    def order(self, name: str, rank: int) -> tuple[int, ...]:
        return channels_last(name, rank) if self.last else tuple(range(rank))

    def shape(self, name: str) -> tuple[int, ...]:
        """The extents of an operand as cuDNN sees it, including padding."""
        form = self.form
        shape = list(getattr(form, name).shape)
        if name == "x":
            shape[1] = self.channels * form.w.shape[0]
            if self.margins:
                shape[2:] = [n + a + b for n, a, b in zip(shape[2:], form.low, form.high,
                                                          strict=True)]
        elif name == "w":
            shape[2] = self.channels
        return tuple(shape)

    def packed(self, name: str, at: Any) -> Operand:
        """An operand without gaps at an address, in this layout; its axes are in the form's
        order."""
        shape = self.shape(name)
        order = self.order(name, len(shape))
        inner = dense(at, [shape[d] for d in order], getattr(self.form, name).dtype)
        strides = [0] * len(shape)
        for d, s in zip(order, inner.strides, strict=True):
            strides[d] = s
        return inner._replace(shape=shape, strides=tuple(strides))

    def _room(self, name: str, plan: Any) -> Operand:
        """Scratch memory for an operand in this layout."""
        dtype = getattr(self.form, name).dtype
        return self.packed(name, plan.scratch(prod(self.shape(name)) * dtype.itemsize))

    def description(self, tf32: bool) -> Convolution:
        form, tensors = self.form, []
        for name in "xwy":
            a = self.packed(name, None)
            shape, strides = a.shape, a.strides
            if name == "w":  # groups and features are one axis
                shape, strides = (shape[0] * shape[1], *shape[2:]), strides[1:]
            tensors.append(Tensor(shape, strides, a.dtype.name))
        x, w, y = tensors
        none = (0,) * len(form.low)
        low, high = (none, none) if self.margins else (form.low, form.high)
        return Convolution(form.kind, x, w, y, low, high, form.stride, form.dilation,
                           tf32 and form.x.dtype.name == "float32")

    def emit(self, description: Convolution, built: Any, plan: Any) -> None:
        """Add copies, the call, and the copy of the result."""
        form, numbers = self.form, cudnn.NUMBERS
        places = {numbers[name]: self._given(name, plan).ref
                  for name in "xwy" if name != form.result}
        out = getattr(form, form.result)
        direct = self._fits(form.result)
        target = out if direct else self._room(form.result, plan)
        places[numbers[form.result]] = target.ref
        note = f"cuDNN {form.kind} {form.x.dtype.name}" + (" (tf32)" if description.tf32 else "")
        cudnn.call(description, dict(sorted(places.items())), (numbers[form.result],), plan, note,
                   built)
        if not direct:
            if target.shape == out.shape:
                plan.copy(out, target)
            else:
                low = self._margin(form.result)
                plan.stage(relayout.window(out, target, [-n for n in low], "crop"))

    def _fits(self, name: str) -> bool:
        """Whether an operand already has this layout."""
        a = getattr(self.form, name)
        return a.shape == self.shape(name) and not alignment(a.ref) % VECTOR and permuted(
            a, self.order(name, len(a.shape))).contiguous

    def _margin(self, name: str) -> tuple[int, ...]:
        """The position of an operand's first element in its padded form."""
        rank = len(getattr(self.form, name).shape)
        if name == "x" and self.margins:
            return (0, 0, *self.form.low)
        return (0,) * rank

    def _given(self, name: str, plan: Any) -> Operand:
        a, shape = getattr(self.form, name), self.shape(name)
        if self._fits(name):
            return a
        target = self._room(name, plan)
        if a.shape == shape:
            plan.copy(target, a)
        else:
            plan.stage(relayout.window(target, a, self._margin(name), "pad"))
        return target


def layouts(form: Form) -> Iterator[Layout]:
    """Layouts to try, channels last first. Unequal margins are stored as zeros: some of cuDNN's
    engines for derivatives in the kernels accept unequal margins but give wrong numbers."""
    channels, groups = form.w.shape[2], form.w.shape[0]
    vector = VECTOR // form.x.dtype.itemsize
    padded = channels
    if groups == 1 and channels < FEW and form.x.dtype.itemsize <= 4:
        padded = -(-channels // vector) * vector
    margin = not form.symmetric
    orders = (False, True) if form.x.dtype.name == "float64" else (True, False)
    for last in orders:
        yield Layout(form, last, margin, padded if last else channels)
    if padded != channels:
        yield Layout(form, True, margin, channels)
