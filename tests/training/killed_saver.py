"""Attacks on savers of checkpoints; reads what each leaves, and prints how many there were.

`python killed_saver.py FOLDER random=100 points=3 full read-only many=60` runs them one after
another: kills at random moments and at every step of a save, a full disk, a directory that may only
be read, many savers at a time. Run by itself, so that the processes can be forked cheaply.
"""

import contextlib
import os
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import warnings

import numpy as np

from toile import errors
from toile.training import checkpoints
from toile.training.checkpoints import files


def tree(step):
    """What is saved at a step: enough bytes for a kill to fall into the writing of them."""
    return {"step": step, "w": np.full(40_000, step), "b": [np.full((20, 30), step, np.float32)]}


def newest(folder):
    """The step of the newest checkpoint, all of which has to be there."""
    found = checkpoints.restore_checkpoint(folder, tree(0))
    step = found["step"]
    assert (found["w"] == step).all() and (found["b"][0] == step).all(), step
    return step


def expect_clean(folder):
    """Nothing but checkpoints and their checksums."""
    names = set(os.listdir(folder))
    for name in names:
        if name.startswith("."):
            assert name.endswith(".sums_gda") and name[1 : -len(".sums_gda")] in names, names
        else:
            assert name.startswith("checkpoint_") and "tmp" not in name, names


def save_forever(folder, step, tell):
    """What a training loop does, on and on; each save that has returned is told."""
    while True:
        step += 1
        with contextlib.suppress(errors.InvalidCheckpointError):  # the other one is ahead
            checkpoints.save_checkpoint(folder, tree(step), step, keep=1 + step % 3)
            os.write(tell, struct.pack("q", step))


def random_kills(folder, kills):
    """Kill two savers that often, and look at the directory each time."""
    random.seed(0)
    step, unfinished, told = 0, 0, 0
    start = time.monotonic()
    checkpoints.save_checkpoint(folder, tree(step), step)
    usual = min(time.monotonic() - start, 0.2)
    for _ in range(kills):
        hear, tell = os.pipe()
        children = []
        for _ in range(2):
            children.append(os.fork())
            if not children[-1]:
                save_forever(folder, step, tell)
        os.close(tell)
        time.sleep(usual * random.uniform(0.1, 6))  # about half of them after a save or two
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        with open(hear, "rb") as file:
            heard = [step for (step,) in struct.iter_unpack("q", file.read())]
        told += len(heard)
        unfinished += any("tmp-" in name for name in os.listdir(folder))
        found = newest(folder)
        assert found >= max([step, *heard]), (found, step, heard)
        step = found
    checkpoints.save_checkpoint(folder, tree(step + 1), step + 1)
    expect_clean(folder)
    print(f"{kills} kills, {unfinished} of them in mid-write, {told} saves that returned, 0 lost")


class Die:
    """Kill this process at the n-th of the calls that a save makes, before or after it."""

    def __init__(self, at, half):
        self.left, self.half = at, half
        for owner, name in (
            (os, "open"), (os, "fsync"), (os, "replace"), (os, "remove"), (os, "close"),
            (files.PendingFile, "write"), (files.PendingFile, "put"),
        ):  # fmt: skip
            setattr(owner, name, self.around(getattr(owner, name), name))

    def around(self, original, name):
        def call(*args):
            self.left -= 1
            if self.left:
                return original(*args)
            if self.half and name == "write":
                aside, data = args
                original(aside, data[: len(data) // 2])
                aside._file.flush()
            elif self.half:
                original(*args)
            return os.kill(os.getpid(), signal.SIGKILL)

        return call


def at_every_point(folder, kinds):
    """Kill a saver before and after every call that changes files, in so many kinds of saves."""
    kills = 0
    saves = [(3, {"keep": 2}), (2, {"keep": 2, "overwrite": True}), (1, {"overwrite": True})]
    for number, (step, arguments) in enumerate(saves[:kinds]):
        for half in (False, True):
            at, killed = 0, True
            while killed:
                at += 1
                place = os.path.join(folder, f"{number}-{half}-{at}")
                for before in (1, 2):
                    checkpoints.save_checkpoint(place, tree(before), before, keep=2)
                killed = dies_saving(place, step, arguments, at, half)
                kills += killed
                found = newest(place)
                assert found in ((2, 3) if step == 3 else (2, step)), (found, step, at)
                if not killed:
                    assert found == step
                checkpoints.save_checkpoint(place, tree(9), 9, keep=1)
                assert newest(place) == 9
                expect_clean(place)
    print(f"{kills} kills at every point of {kinds} kinds of saves, 0 lost")


def dies_saving(folder, step, arguments, at, half):
    """Save in another process, which is killed at a point; False if it had less of them."""
    child = os.fork()
    if not child:
        Die(at, half)
        checkpoints.save_checkpoint(folder, tree(step), step, **arguments)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), status
    return status != 0


def full_disk(folder):
    """Save where files may not grow beyond a size, ever larger."""
    failed = 0
    checkpoints.save_checkpoint(folder, tree(0), 0)
    size = os.path.getsize(os.path.join(folder, "checkpoint_0"))
    for step, limit in enumerate([0, 1, 100, size // 2, size - 1, size, size + 1000], 1):
        child = os.fork()
        if not child:
            warnings.simplefilter("ignore")  # the checksums may not fit
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            try:
                checkpoints.save_checkpoint(folder, tree(step), step, keep=2)
            except OSError:
                os._exit(1)
            os._exit(0)
        full = os.waitpid(child, 0)[1] != 0
        failed += full
        assert full == (limit < size), (limit, size)
        assert newest(folder) == (0 if full else step)
        expect_clean(folder)
    print(f"{failed} saves on a full disk, 0 lost")


def read_only(folder):
    """Save and restore as a user who may only read; root may do anything and becomes another."""
    folder = tempfile.mkdtemp()  # the other user may not enter the directory of the test
    checkpoints.save_checkpoint(folder, tree(1), 1)
    before = set(os.listdir(folder))
    os.chmod(folder, 0o555)
    child = os.fork()
    if not child:
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        try:
            checkpoints.save_checkpoint(folder, tree(2), 2)
        except PermissionError:
            os._exit(0 if newest(folder) == 1 else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    os.chmod(folder, 0o755)
    assert set(os.listdir(folder)) == before
    shutil.rmtree(folder)
    print("1 save into a read-only directory refused, 0 lost")


def many_savers(folder, saves):
    """Six processes save into one directory at a time, two of them the same steps."""
    children = []
    for number in range(6):
        children.append(os.fork())
        if not children[-1]:
            for step in range(number // 2, saves, 3):
                with contextlib.suppress(errors.InvalidCheckpointError):
                    checkpoints.save_checkpoint(folder, tree(step), step, keep=2)
            os._exit(0)
    while children:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child:
            assert status == 0, status
            children.remove(child)
        if checkpoints.latest_checkpoint(folder):
            newest(folder)
    assert newest(folder) == saves - 1
    expect_clean(folder)
    print(f"6 savers at a time, up to step {saves}, 0 lost")


if __name__ == "__main__":
    warnings.simplefilter("error")  # a checkpoint that cannot be read would be skipped with one
    for kind, _, number in (argument.partition("=") for argument in sys.argv[2:]):
        attack = {
            "random": random_kills,
            "points": at_every_point,
            "full": full_disk,
            "read-only": read_only,
            "many": many_savers,
        }[kind]
        place = os.path.join(sys.argv[1], kind)
        os.mkdir(place)
        attack(place, *([int(number)] if number else []))
