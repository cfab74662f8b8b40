"""Rotations in three dimensions as unit quaternions (x, y, z, w), and their interpolation.

`Rotation` is a NamedTuple of one array, hence a pytree: one rotation (shape (4,)) or a batch (n,
4).
"""

import re
from typing import Any, NamedTuple

import numpy as np

from toile import numpy as jnp
from toile.engine.source import here

__all__ = ["Rotation", "Slerp"]


def _axis_indices(seq, count):
    """(axis numbers, whether intrinsic) of an Euler sequence such as "xyz" or "ZYX"."""
    intrinsic = re.match(r"^[XYZ]{1,3}$", seq) is not None
    if not intrinsic and re.match(r"^[xyz]{1,3}$", seq) is None:
        raise ValueError("Expected axes from `seq` to be from ['x', 'y', 'z'] or ['X', 'Y', 'Z'], "
                         f"got {seq}{here()}")
    if any(seq[i] == seq[i + 1] for i in range(count - 1)):
        raise ValueError(f"Expected consecutive axes to be different, got {seq}{here()}")
    return ["xyz".index(c) for c in seq.lower()], intrinsic


def _norm(x):
    return jnp.sqrt(jnp.sum(x * x, axis=-1, keepdims=True))


def _compose(p, q):
    """The quaternion product p·q."""
    p, q = jnp.broadcast_arrays(p, q)
    pv, pw, qv, qw = p[..., :3], p[..., 3:], q[..., :3], q[..., 3:]
    vector = pw * qv + qw * pv + jnp.cross(pv, qv)
    scalar = pw * qw - jnp.sum(pv * qv, axis=-1, keepdims=True)
    return jnp.concatenate([vector, scalar], axis=-1)


def _canonical(q):
    """The representative whose last non-zero of (w, x, y, z) is positive."""
    negative, zero = q < 0, q == 0
    flip, undecided = jnp.zeros(q.shape[:-1], bool), jnp.ones(q.shape[:-1], bool)
    for i in (3, 0, 1, 2):
        flip = flip | (undecided & negative[..., i])
        undecided = undecided & zero[..., i]
    return jnp.where(flip[..., None], -q, q)


def _about(axis, angle):
    """Quaternion of the rotation by `angle` about a coordinate axis."""
    parts = [jnp.zeros_like(angle)] * 3
    parts[axis] = jnp.sin(angle / 2.0)
    return jnp.stack([*parts, jnp.cos(angle / 2.0)], axis=-1)


class Rotation(NamedTuple):
    """One rotation or a batch of them."""

    quat: Any

    @classmethod
    def concatenate(cls, rotations):
        """The batches joined into one."""
        return cls(jnp.concatenate([rotation.quat for rotation in rotations]))

    @classmethod
    def from_euler(cls, seq, angles, degrees=False):
        """From angles about the axes named in `seq`: lower case fixed axes, upper case moving."""
        if not 1 <= len(seq) <= 3:
            raise ValueError("Expected axis specification to be a non-empty string of upto 3 "
                             f"characters, got {seq}{here()}")
        axes, intrinsic = _axis_indices(seq, len(seq))
        angles = jnp.atleast_1d(angles)
        angles = jnp.deg2rad(angles) if degrees else angles
        quat = _about(axes[0], angles[..., 0])
        for i in range(1, len(axes)):
            other = _about(axes[i], angles[..., i])
            quat = _compose(quat, other) if intrinsic else _compose(other, quat)
        return cls(quat)

    @classmethod
    def from_matrix(cls, matrix):
        """From rotation matrices `(..., 3, 3)`, by the best conditioned of four formulas."""
        m = jnp.asarray(matrix)
        diagonal = jnp.diagonal(m, axis1=-2, axis2=-1)
        trace = jnp.sum(diagonal, axis=-1)
        skew = [m[..., k, j] - m[..., j, k] for j, k in ((1, 2), (2, 0), (0, 1))]
        candidates = []
        for i in range(3):
            j, k = (i + 1) % 3, (i + 2) % 3
            parts: list[Any] = [None] * 4
            parts[i] = 1 - trace + 2 * m[..., i, i]
            parts[j] = m[..., j, i] + m[..., i, j]
            parts[k] = m[..., k, i] + m[..., i, k]
            parts[3] = skew[i]
            candidates.append(jnp.stack(parts, axis=-1))
        candidates.append(jnp.stack([*skew, 1 + trace], axis=-1))
        choice = jnp.argmax(jnp.concatenate([diagonal, trace[..., None]], axis=-1), axis=-1)
        quat = candidates[3]
        for i in range(3):
            quat = jnp.where((choice == i)[..., None], candidates[i], quat)
        return cls(quat / _norm(quat))

    @classmethod
    def from_mrp(cls, mrp):
        """From modified Rodrigues parameters."""
        mrp = jnp.asarray(mrp)
        square = jnp.sum(mrp * mrp, axis=-1, keepdims=True) + 1
        return cls(jnp.concatenate([2 * mrp, 2 - square], axis=-1) / square)

    @classmethod
    def from_quat(cls, quat):
        """From quaternions, normalised."""
        quat = jnp.asarray(quat)
        return cls(quat / _norm(quat))

    @classmethod
    def from_rotvec(cls, rotvec, degrees=False):
        """From rotation vectors: axis times angle."""
        rotvec = jnp.asarray(rotvec)
        rotvec = jnp.deg2rad(rotvec) if degrees else rotvec
        angle = _norm(rotvec)
        square = angle * angle
        series = 0.5 - square / 48 + square * square / 3840  # sin(a/2)/a near 0
        scale = jnp.where(angle <= 1e-3, series, jnp.sin(angle / 2) / angle)
        return cls(jnp.concatenate([scale * rotvec, jnp.cos(angle / 2)], axis=-1))

    @classmethod
    def identity(cls, num=None, dtype=float):
        """The rotation by nothing."""
        if num is not None:
            raise AssertionError(f"Rotation.identity: needed num=None, got {num}")
        return cls(jnp.array([0.0, 0.0, 0.0, 1.0], dtype=dtype))

    @classmethod
    def random(cls, random_key, num=None):
        """Not available."""
        raise NotImplementedError()

    def __getitem__(self, indexer):
        if self.single:
            raise TypeError("Single rotation is not subscriptable." + here())
        return Rotation(self.quat[indexer])

    def __len__(self):
        if self.single:
            raise TypeError("Single rotation has no len()." + here())
        return self.quat.shape[0]

    def __mul__(self, other):
        return Rotation.from_quat(_compose(self.quat, other.quat))

    def apply(self, vectors, inverse=False):
        """The vectors rotated (or rotated back)."""
        matrix = self.as_matrix()
        matrix = jnp.where(inverse, jnp.swapaxes(matrix, -1, -2), matrix)
        return jnp.matmul(matrix, jnp.asarray(vectors)[..., None])[..., 0]

    def as_euler(self, seq, degrees=False):
        """Three Euler angles about the axes named in `seq`."""
        if len(seq) != 3:
            raise ValueError(f"Expected 3 axes, got {seq}.{here()}")
        axes, intrinsic = _axis_indices(seq, 3)
        angles = _euler(self.quat, axes, not intrinsic)
        return jnp.rad2deg(angles) if degrees else angles

    def as_matrix(self):
        """Rotation matrices `(..., 3, 3)`."""
        x, y, z, w = (self.quat[..., i] for i in range(4))
        x2, y2, z2, w2 = x * x, y * y, z * z, w * w
        rows = [
            [x2 - y2 - z2 + w2, 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), -x2 + y2 - z2 + w2, 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), -x2 - y2 + z2 + w2],
        ]
        return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)

    def as_mrp(self):
        """Modified Rodrigues parameters."""
        w = self.quat[..., 3:]
        sign = jnp.where(w < 0, -1.0, 1.0).astype(self.quat.dtype)
        return sign * self.quat[..., :3] / (1.0 + sign * w)

    def as_rotvec(self, degrees=False):
        """Rotation vectors: axis times angle."""
        quat = jnp.where(self.quat[..., 3:] < 0, -self.quat, self.quat)
        angle = 2.0 * jnp.arctan2(_norm(quat[..., :3]), quat[..., 3:])
        square = angle * angle
        series = 2 + square / 12 + 7 * square * square / 2880  # a/sin(a/2) near 0
        scale = jnp.where(angle <= 1e-3, series, angle / jnp.sin(angle / 2))
        scale = jnp.rad2deg(scale) if degrees else scale
        return scale * quat[..., :3]

    def as_quat(self, canonical=False, scalar_first=False):
        """Quaternions, optionally with a canonical sign or the scalar first."""
        quat = _canonical(self.quat) if canonical else self.quat
        return jnp.roll(quat, shift=1, axis=-1) if scalar_first else quat

    def inv(self):
        """The inverse rotations."""
        return Rotation(self.quat * jnp.array([-1, -1, -1, 1], dtype=self.quat.dtype))

    def magnitude(self):
        """The rotation angles."""
        quat = self.quat
        return 2.0 * jnp.arctan2(_norm(quat[..., :3])[..., 0], jnp.abs(quat[..., 3]))

    def mean(self, weights=None):
        """The (weighted) mean rotation: the top eigenvector of Σ w·q·qᵀ."""
        dtype = self.quat.dtype
        if weights is None:
            weights = jnp.ones(self.quat.shape[0], dtype=dtype)
        weights = jnp.asarray(weights, dtype=dtype)
        if weights.ndim != 1:
            raise ValueError("Expected `weights` to be 1 dimensional, got shape "
                             f"{weights.shape}.{here()}")
        if weights.shape[0] != len(self):
            raise ValueError("Expected `weights` to have number of values equal to number of "
                             f"rotations, got {weights.shape[0]} values and {len(self)} "
                             f"rotations.{here()}")
        moment = jnp.dot(weights[None, :] * self.quat.T, self.quat)
        return Rotation(jnp.linalg.eigh(moment)[1][:, -1])

    @property
    def single(self):
        """Whether this is one rotation and not a batch."""
        return self.quat.ndim == 1


def _euler(quat, axes, extrinsic):
    """Euler angles from half-sums and half-differences (Bernardes and Viollet 2022)."""
    i, j, k = axes if extrinsic else axes[::-1]
    symmetric = i == k
    k = 3 - i - j if symmetric else k
    sign = (i - j) * (j - k) * (k - i) // 2
    q = [quat[..., n] for n in range(4)]
    if symmetric:
        a, b, c, d = q[3], q[i], q[j], q[k] * sign
    else:
        a, b, c, d = q[3] - q[j], q[i] + q[k] * sign, q[j] + q[3], q[k] * sign - q[i]
    middle = 2 * jnp.arctan2(jnp.hypot(c, d), jnp.hypot(a, b))
    half_sum, half_diff = jnp.arctan2(b, a), jnp.arctan2(d, c)
    at_zero, at_pi = jnp.abs(middle) <= 1e-7, jnp.abs(middle - np.pi) <= 1e-7
    regular = ~(at_zero | at_pi)
    # Where the middle angle degenerates only a combination of the others is known: the third is 0
    # by convention.
    alone = jnp.where(at_zero, 2 * half_sum, 2 * half_diff * (-1 if extrinsic else 1))
    lesser = half_sum - half_diff
    greater = half_sum + half_diff
    zero = jnp.zeros_like(middle)
    if extrinsic:
        first, third = jnp.where(regular, lesser, alone), jnp.where(regular, greater, zero)
    else:
        first, third = jnp.where(regular, greater, alone), jnp.where(regular, lesser, zero)
    if not symmetric:
        middle = middle - np.pi / 2
        if extrinsic:
            third = third * sign
        else:
            first = first * sign
    angles = jnp.stack([first, middle, third], axis=-1)
    return (angles + np.pi) % (2 * np.pi) - np.pi


class Slerp(NamedTuple):
    """Spherical linear interpolation between rotations at given times; build with `Slerp.init`."""

    times: Any
    timedelta: Any
    rotations: Rotation
    rotvecs: Any

    @classmethod
    def init(cls, times, rotations):
        """The interpolation through `rotations` at `times`."""
        if not isinstance(rotations, Rotation):
            raise TypeError("`rotations` must be a `Rotation` instance." + here())
        if rotations.single or len(rotations) == 1:
            raise ValueError("`rotations` must be a sequence of at least 2 rotations." + here())
        times = jnp.asarray(times, dtype=rotations.quat.dtype)
        if times.ndim != 1:
            raise ValueError("Expected times to be specified in a 1 dimensional array, got "
                             f"{times.ndim} dimensions.{here()}")
        if times.shape[0] != len(rotations):
            raise ValueError("Expected number of rotations to be equal to number of timestamps "
                             f"given, got {len(rotations)} rotations and {times.shape[0]} "
                             f"timestamps.{here()}")
        starts, ends = Rotation(rotations.quat[:-1]), Rotation(rotations.quat[1:])
        return cls(times, jnp.diff(times), starts, (starts.inv() * ends).as_rotvec())

    def __call__(self, times):
        """The rotations at `times`."""
        times = jnp.asarray(times, dtype=self.times.dtype)
        if times.ndim > 1:
            raise ValueError("`times` must be at most 1-dimensional." + here())
        single = times.ndim == 0
        times = jnp.atleast_1d(times)
        i = jnp.maximum(jnp.searchsorted(self.times, times) - 1, 0)
        fraction = (times - self.times[i]) / self.timedelta[i]
        step = Rotation.from_rotvec(self.rotvecs[i] * fraction[:, None])
        out = self.rotations[i] * step
        return out[0] if single else out
