"""Rotations in three dimensions and their interpolation, as in `jax.scipy.spatial.transform`.

A rotation is stored as a unit quaternion `(x, y, z, w)`. A `Rotation` is a pytree with one array,
which has shape `(4,)` for one rotation or shape `(n, 4)` for a batch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike, DTypeLike
from toile.engine.source import here

__all__ = ["Rotation", "Slerp"]


def _axis_indices(seq, count):
    """Return the axes of an Euler sequence such as "xyz" or "ZYX", and whether it is intrinsic."""
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
    """Multiply the quaternions `p` and `q`."""
    p, q = jnp.broadcast_arrays(p, q)
    pv, pw, qv, qw = p[..., :3], p[..., 3:], q[..., :3], q[..., 3:]
    vector = pw * qv + qw * pv + jnp.cross(pv, qv)
    scalar = pw * qw - jnp.sum(pv * qv, axis=-1, keepdims=True)
    return jnp.concatenate([vector, scalar], axis=-1)


def _canonical(q):
    """Choose the sign of a quaternion so that the first nonzero of (w, x, y, z) is positive."""
    negative, zero = q < 0, q == 0
    flip, undecided = jnp.zeros(q.shape[:-1], bool), jnp.ones(q.shape[:-1], bool)
    for i in (3, 0, 1, 2):
        flip = flip | (undecided & negative[..., i])
        undecided = undecided & zero[..., i]
    return jnp.where(flip[..., None], -q, q)


def _about(axis, angle):
    """Return the quaternion of a rotation by `angle` about a coordinate axis."""
    parts = [jnp.zeros_like(angle)] * 3
    parts[axis] = jnp.sin(angle / 2.0)
    return jnp.stack([*parts, jnp.cos(angle / 2.0)], axis=-1)


class Rotation(NamedTuple):
    """A rotation in three dimensions, or a batch of rotations.

    Rotations are created by the class methods `from_quat`, `from_euler`, `from_matrix` and so on.
    The product `r1 * r2` rotates by `r2` first and then by `r1`. A batch supports indexing and
    `len`. A `Rotation` is a named tuple of one array, and therefore a pytree.

    Args:
        quat: unit quaternions `(x, y, z, w)`, with shape `(4,)` for one rotation or `(n, 4)` for a
            batch. The constructor does not normalize them.

    Differences:
        SciPy's class has more methods, and its constructor normalizes quaternions.

    >>> from toile.scipy.spatial.transform import Rotation
    >>> turn = Rotation.from_euler("z", 90, degrees=True)
    >>> turn.apply(jnp.array([1.0, 0.0, 0.0])).round(3)
    Array([0., 1., 0.], dtype=float32)
    """

    quat: Array

    @classmethod
    def concatenate(cls, rotations: Sequence[Rotation]) -> Rotation:
        """Concatenate batches of rotations.

        Args:
            rotations: batches to concatenate.

        Returns:
            One batch with all rotations.
        """
        return cls(jnp.concatenate([rotation.quat for rotation in rotations]))

    @classmethod
    def from_euler(cls, seq: str, angles: ArrayLike, degrees: bool = False) -> Rotation:
        """Create a rotation from Euler angles.

        Args:
            seq: one to three axes to rotate about, in order. Lowercase letters (`"xyz"`) denote
                fixed axes, and uppercase letters (`"XYZ"`) denote axes that rotate with the object.
                Neighboring letters must differ.
            angles: rotation angles, one for each letter of `seq` along the last axis. If `seq` is
                one letter, `angles` may be a number.
            degrees: whether the angles are in degrees; otherwise they are in radians.

        Returns:
            One rotation, or a batch if `angles` has two dimensions.

        Raises:
            ValueError: `seq` is not a valid sequence of axes.
        """
        if not 1 <= len(seq) <= 3:
            raise ValueError("Expected axis specification to be a non-empty string of upto 3 "
                             f"characters, got {seq}{here()}")
        axes, intrinsic = _axis_indices(seq, len(seq))
        turns = jnp.atleast_1d(angles)
        turns = jnp.deg2rad(turns) if degrees else turns
        quat = _about(axes[0], turns[..., 0])
        for i in range(1, len(axes)):
            other = _about(axes[i], turns[..., i])
            quat = _compose(quat, other) if intrinsic else _compose(other, quat)
        return cls(quat)

    @classmethod
    def from_matrix(cls, matrix: ArrayLike) -> Rotation:
        """Create a rotation from a rotation matrix.

        Args:
            matrix: rotation matrices of shape `(3, 3)` or `(n, 3, 3)`. The matrices must be
                orthogonal; this is not checked.

        Returns:
            One rotation, or a batch of `n` rotations.

        Differences:
            SciPy replaces a matrix that is not orthogonal with a nearby orthogonal matrix.
        """
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
    def from_mrp(cls, mrp: ArrayLike) -> Rotation:
        """Create a rotation from modified Rodrigues parameters: the axis times `tan(angle / 4)`.

        Args:
            mrp: vectors of shape `(3,)` or `(n, 3)`.

        Returns:
            One rotation, or a batch of `n` rotations.
        """
        mrp = jnp.asarray(mrp)
        square = jnp.sum(mrp * mrp, axis=-1, keepdims=True) + 1
        return cls(jnp.concatenate([2 * mrp, 2 - square], axis=-1) / square)

    @classmethod
    def from_quat(cls, quat: ArrayLike) -> Rotation:
        """Create a rotation from a quaternion `(x, y, z, w)`, which is normalized first.

        Args:
            quat: quaternions of shape `(4,)` or `(n, 4)`.

        Returns:
            One rotation, or a batch of `n` rotations.
        """
        quat = jnp.asarray(quat)
        return cls(quat / _norm(quat))

    @classmethod
    def from_rotvec(cls, rotvec: ArrayLike, degrees: bool = False) -> Rotation:
        """Create a rotation from a rotation vector, which is the axis times the angle.

        Args:
            rotvec: vectors of shape `(3,)` or `(n, 3)`.
            degrees: whether the angles are in degrees; otherwise they are in radians.

        Returns:
            One rotation, or a batch of `n` rotations.
        """
        rotvec = jnp.asarray(rotvec)
        rotvec = jnp.deg2rad(rotvec) if degrees else rotvec
        angle = _norm(rotvec)
        square = angle * angle
        series = 0.5 - square / 48 + square * square / 3840  # sin(a/2)/a near 0
        scale = jnp.where(angle <= 1e-3, series, jnp.sin(angle / 2) / angle)
        return cls(jnp.concatenate([scale * rotvec, jnp.cos(angle / 2)], axis=-1))

    @classmethod
    def identity(cls, num: None = None, dtype: DTypeLike = float) -> Rotation:
        """Create the identity rotation.

        Args:
            num: must be None; batches are not supported.
            dtype: dtype of the quaternion.

        Returns:
            One rotation.
        """
        if num is not None:
            raise AssertionError(f"Rotation.identity: needed num=None, got {num}")
        return cls(jnp.array([0.0, 0.0, 0.0, 1.0], dtype=dtype))

    @classmethod
    def random(cls, random_key: Array, num: int | None = None) -> NoReturn:
        """Raise NotImplementedError, because random rotations are not implemented.

        Args:
            random_key, num: not used.
        """
        raise NotImplementedError()

    def __getitem__(self, indexer: Any) -> Rotation:
        if self.single:
            raise TypeError("Single rotation is not subscriptable." + here())
        return Rotation(self.quat[indexer])

    def __len__(self) -> int:
        if self.single:
            raise TypeError("Single rotation has no len()." + here())
        return self.quat.shape[0]

    def __mul__(self, other: Rotation) -> Rotation:
        return Rotation.from_quat(_compose(self.quat, other.quat))

    def apply(self, vectors: ArrayLike, inverse: bool = False) -> Array:
        """Rotate vectors.

        Args:
            vectors: vectors of shape `(3,)` or `(n, 3)`. Vectors and rotations are broadcast
                against each other: a single rotation is applied to all vectors, and a single vector
                is rotated by all rotations of a batch.
            inverse: whether to apply the inverse rotation.

        Returns:
            An array of shape `(3,)` or `(n, 3)`.
        """
        matrix = self.as_matrix()
        matrix = jnp.where(inverse, jnp.swapaxes(matrix, -1, -2), matrix)
        return jnp.matmul(matrix, jnp.asarray(vectors)[..., None])[..., 0]

    def as_euler(self, seq: str, degrees: bool = False) -> Array:
        """Compute the Euler angles of the rotation.

        If the second angle makes the other two ambiguous, the third angle is set to 0.

        Args:
            seq: three axes, as in `from_euler`.
            degrees: whether the angles are in degrees; otherwise they are in radians.

        Returns:
            An array of angles of shape `(3,)` or `(n, 3)`. The angles are at least -π and less than
            π or, in degrees, at least -180 and less than 180.

        Raises:
            ValueError: `seq` is not a valid sequence of axes.
        """
        if len(seq) != 3:
            raise ValueError(f"Expected 3 axes, got {seq}.{here()}")
        axes, intrinsic = _axis_indices(seq, 3)
        angles = _euler(self.quat, axes, not intrinsic)
        return jnp.rad2deg(angles) if degrees else angles

    def as_matrix(self) -> Array:
        """Compute the rotation matrix, which has shape `(3, 3)`, or `(n, 3, 3)` for a batch."""
        x, y, z, w = (self.quat[..., i] for i in range(4))
        x2, y2, z2, w2 = x * x, y * y, z * z, w * w
        rows = [
            [x2 - y2 - z2 + w2, 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), -x2 + y2 - z2 + w2, 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), -x2 - y2 + z2 + w2],
        ]
        return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)

    def as_mrp(self) -> Array:
        """Compute the modified Rodrigues parameters, which are the axis times `tan(angle / 4)`."""
        w = self.quat[..., 3:]
        sign = jnp.where(w < 0, -1.0, 1.0).astype(self.quat.dtype)
        return sign * self.quat[..., :3] / (1.0 + sign * w)

    def as_rotvec(self, degrees: bool = False) -> Array:
        """Compute the rotation vector, which is the axis times the angle.

        Args:
            degrees: whether the angles are in degrees; otherwise they are in radians.

        Returns:
            An array of shape `(3,)` or `(n, 3)`. The length of a vector is the angle, which is
            between 0 and π or, in degrees, between 0 and 180.
        """
        quat = jnp.where(self.quat[..., 3:] < 0, -self.quat, self.quat)
        angle = 2.0 * jnp.arctan2(_norm(quat[..., :3]), quat[..., 3:])
        square = angle * angle
        series = 2 + square / 12 + 7 * square * square / 2880  # a/sin(a/2) near 0
        scale = jnp.where(angle <= 1e-3, series, angle / jnp.sin(angle / 2))
        scale = jnp.rad2deg(scale) if degrees else scale
        return scale * quat[..., :3]

    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Array:
        """Return the quaternion that represents the rotation.

        Args:
            canonical: whether to choose the sign so that the first nonzero component of
                `(w, x, y, z)` is positive. If False, the sign is arbitrary.
            scalar_first: whether the order is `(w, x, y, z)`; otherwise it is `(x, y, z, w)`.

        Returns:
            An array of shape `(4,)` or `(n, 4)`.
        """
        quat = _canonical(self.quat) if canonical else self.quat
        return jnp.roll(quat, shift=1, axis=-1) if scalar_first else quat

    def inv(self) -> Rotation:
        """Compute the inverse rotation."""
        signs = jnp.array([-1, -1, -1, 1], dtype=self.quat.dtype)
        return Rotation(self.quat * jnp.broadcast_to(signs, self.quat.shape))

    def magnitude(self) -> Array:
        """Compute the angle of each rotation in radians, from 0 to π."""
        quat = self.quat
        return 2.0 * jnp.arctan2(_norm(quat[..., :3])[..., 0], jnp.abs(quat[..., 3]))

    def mean(self, weights: ArrayLike | None = None) -> Rotation:
        """Compute the mean of a batch of rotations.

        The mean is the rotation with the smallest sum of squared chordal distances to the
        rotations in the batch.

        Args:
            weights: vector of weights, one for each rotation; None for equal weights.

        Returns:
            One rotation.

        Raises:
            TypeError: the object is a single rotation rather than a batch.
            ValueError: the numbers of weights and rotations differ.
        """
        dtype = self.quat.dtype
        if weights is None:
            weights = jnp.ones(self.quat.shape[0], dtype=dtype)
        shares = jnp.asarray(weights, dtype=dtype)
        if shares.ndim != 1:
            raise ValueError("Expected `weights` to be 1 dimensional, got shape "
                             f"{shares.shape}.{here()}")
        if shares.shape[0] != len(self):
            raise ValueError("Expected `weights` to have number of values equal to number of "
                             f"rotations, got {shares.shape[0]} values and {len(self)} "
                             f"rotations.{here()}")
        moment = jnp.dot(shares[None, :] * self.quat.T, self.quat)
        return Rotation(jnp.linalg.eigh(moment)[1][:, -1])

    @property
    def single(self) -> bool:
        """Whether the object is a single rotation rather than a batch."""
        return self.quat.ndim == 1


def _euler(quat, axes, extrinsic):
    """Compute Euler angles from half-sums and half-differences (Bernardes and Viollet 2022)."""
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
    """A function that interpolates between rotations with constant angular velocity.

    Create an instance with `Slerp.init`, and call it with times to get the interpolated rotations.

    Args:
        times: the times at which the rotations are given.
        timedelta: differences between consecutive times.
        rotations: rotations at all times except the last.
        rotvecs: rotation vectors from each rotation to the next.

    Differences:
        SciPy's instances are created with the constructor, `Slerp(times, rotations)`.

    >>> from toile.scipy.spatial.transform import Rotation, Slerp
    >>> ends = Rotation.from_euler("z", jnp.array([[0.0], [90.0]]), degrees=True)
    >>> Slerp.init(jnp.array([0.0, 1.0]), ends)(0.5).as_rotvec(degrees=True).round(3)
    Array([ 0.,  0., 45.], dtype=float32)
    """

    times: Array
    timedelta: Array
    rotations: Rotation
    rotvecs: Array

    @classmethod
    def init(cls, times: ArrayLike, rotations: Rotation) -> Slerp:
        """Create a function that interpolates between rotations given at certain times.

        Args:
            times: vector of ascending times.
            rotations: batch of at least 2 rotations, one for each time.

        Returns:
            The function.

        Raises:
            TypeError: `rotations` is not a `Rotation`.
            ValueError: there are fewer than 2 rotations, or the numbers of rotations and times
                differ.
        """
        if not isinstance(rotations, Rotation):
            raise TypeError("`rotations` must be a `Rotation` instance." + here())
        if rotations.single or len(rotations) == 1:
            raise ValueError("`rotations` must be a sequence of at least 2 rotations." + here())
        stamps = jnp.asarray(times, dtype=rotations.quat.dtype)
        if stamps.ndim != 1:
            raise ValueError("Expected times to be specified in a 1 dimensional array, got "
                             f"{stamps.ndim} dimensions.{here()}")
        if stamps.shape[0] != len(rotations):
            raise ValueError("Expected number of rotations to be equal to number of timestamps "
                             f"given, got {len(rotations)} rotations and {stamps.shape[0]} "
                             f"timestamps.{here()}")
        starts, ends = Rotation(rotations.quat[:-1]), Rotation(rotations.quat[1:])
        return cls(stamps, jnp.diff(stamps), starts, (starts.inv() * ends).as_rotvec())

    def __call__(self, times: ArrayLike) -> Rotation:
        """Interpolate rotations at the given times.

        Args:
            times: number or vector of times. The times must lie between the first and the last time
                of the interpolator; this is not checked.

        Returns:
            One rotation, or a batch if `times` is a vector.

        Raises:
            ValueError: `times` has more than one dimension.
        """
        at = jnp.asarray(times, dtype=self.times.dtype)
        if at.ndim > 1:
            raise ValueError("`times` must be at most 1-dimensional." + here())
        single = at.ndim == 0
        at = jnp.atleast_1d(at)
        i = jnp.maximum(jnp.searchsorted(self.times, at) - 1, 0)
        fraction = (at - self.times[i]) / self.timedelta[i]
        step = Rotation.from_rotvec(self.rotvecs[i] * fraction[:, None])
        out = Rotation(self.rotations.quat[i]) * step
        return Rotation(out.quat[0]) if single else out
