"""toile.training.checkpoints: Flax's files, and what kills, errors and broken files may not do."""

import inspect
import os
import pathlib
import random
import subprocess
import sys
import threading

import flax.training.checkpoints as theirs
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import errors, serialization
from toile.core import freeze
from toile.training import checkpoints
from toile.training.checkpoints import (
    files,
    restore_checkpoint,
    save_checkpoint,
    streams,
    sums,
)

HERE = pathlib.Path(__file__).parent
TREE = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "step": np.int32(4)}


def names(folder):
    """What lies in a directory beside checksums, each of which belongs to a checkpoint there."""
    found = sorted(os.listdir(folder))
    sums = [name for name in found if name.endswith(".sums_gda")]
    assert {name[1 : -len(".sums_gda")] for name in sums} <= set(found)
    return [name for name in found if name not in sums]


def filled(number):
    """A tree whose numbers tell from which save they are."""
    return {"a": np.full(50, number), "b": [np.full((3, 3), number, np.float32)]}


def test_signatures_are_those_of_flax():
    for name in checkpoints.__all__:
        ours, want = getattr(checkpoints, name), getattr(theirs, name)
        if not callable(ours):
            assert ours == want
            continue
        have = {k: p.default for k, p in inspect.signature(ours).parameters.items()}
        for (key, default), other in zip(have.items(), inspect.signature(want).parameters.values()):
            assert (key, default) == (other.name, other.default), name
    for name in ("wait_previous_save", "save_async"):
        assert hasattr(checkpoints.AsyncManager, name)


def test_files_are_those_of_flax(tmp_path):
    tree = {**TREE, "b": (jnp.ones(3, jnp.bfloat16), [1.5, None, "text"])}
    path = save_checkpoint(tmp_path, tree, 3)
    assert path == str(tmp_path / "checkpoint_3") and names(tmp_path) == ["checkpoint_3"]
    assert pathlib.Path(path).read_bytes() == serialization.to_bytes(tree)
    back = theirs.restore_checkpoint(tmp_path, None)
    assert back["b"]["0"].dtype == "bfloat16"
    assert back["b"]["1"] == {"0": 1.5, "1": None, "2": "text"}
    for place in (tmp_path, path, str(tmp_path) + "//.", pathlib.Path(path)):
        again = restore_checkpoint(place, tree)
        assert toile.tree.structure(again) == toile.tree.structure(tree)
        assert (again["w"] == TREE["w"]).all() and again["w"].flags.writeable
    assert restore_checkpoint(path, None)["b"]["1"]["2"] == "text"


def test_where_nothing_is(tmp_path):
    assert restore_checkpoint(tmp_path, TREE) is TREE
    assert restore_checkpoint(tmp_path / "none" / "there", TREE) is TREE
    assert restore_checkpoint(tmp_path, None) is None
    assert checkpoints.latest_checkpoint(tmp_path / "none") is None
    save_checkpoint(tmp_path / "new" / "folders", TREE, 1)
    assert names(tmp_path / "new" / "folders") == ["checkpoint_1"]
    with pytest.raises(ValueError, match="Matching checkpoint not found.*'checkpoint_1'"):
        restore_checkpoint(tmp_path / "new" / "folders", TREE, step=2)


# Prefix, steps in the order they are saved, keyword arguments, and the names that stay.
KEEPING = [
    ("checkpoint_", [1, 2, 30], {}, ["30"]),
    ("c", [1, 2, 10, 9.5], {"overwrite": True}, ["9.5"]),
    ("c_", [0.1, 0.25, 3.0], {"keep": 2}, ["0.25", "3.0"]),
    ("c_", [-3.0, -1.0, 2.0], {"keep": 2}, ["-1.0", "2.0"]),
    ("sub/c_", [8, 9, 10], {"keep": 2}, ["9", "10"]),
    ("c[1]_", [8, 9], {"keep": 1}, ["9"]),
    ("c_", [1, 2, 3], {"keep": 9}, ["1", "2", "3"]),
    ("c_", [0, 3, 6, 9, 12, 15], {"keep": 1, "keep_every_n_steps": 6}, ["0", "6", "12", "15"]),
    ("c_", [17, 22, 27, 32], {"keep": 2, "keep_every_n_steps": 7}, ["17", "27", "32"]),
    ("", [1, 2], {"keep": 1}, ["2"]),
]


@pytest.mark.parametrize("prefix, steps, arguments, stay", KEEPING)
def test_which_stay(tmp_path, prefix, steps, arguments, stay):
    for step in steps:
        save_checkpoint(tmp_path, {"step": step}, step, prefix, **arguments)
    found = checkpoints.available_steps(tmp_path, prefix, step_type=str)
    assert found == stay
    folder, start = os.path.split(prefix)
    assert set(names(tmp_path / folder)) == {start + step for step in stay}
    assert restore_checkpoint(tmp_path, None, prefix=prefix) == {"step": steps[-1]}
    for step in stay:
        if "." not in step:
            assert restore_checkpoint(tmp_path, None, int(step), prefix) == {"step": int(step)}


def test_a_later_checkpoint_is_an_error(tmp_path):
    save_checkpoint(tmp_path, filled(5), 5)
    for step in (5, 4, 4.5):
        with pytest.raises(errors.InvalidCheckpointError, match=f'step: "{step}"'):
            save_checkpoint(tmp_path, filled(0), step)
    assert names(tmp_path) == ["checkpoint_5"]
    save_checkpoint(tmp_path, filled(6), 5, overwrite=True)
    assert restore_checkpoint(tmp_path, None)["a"][0] == 6
    save_checkpoint(tmp_path, filled(3), 3, overwrite=True)
    assert names(tmp_path) == ["checkpoint_3"]


def test_sorting_and_names(tmp_path):
    for signed, want in (
        (True, ["f_-2", "f_-0.5", "f_1", "f_2.0", "f_1e1", "f_10.5"]),
        (False, ["f-1", "f-2", "f-10"]),
    ):
        for seed in range(5):
            mixed = list(want)
            random.Random(seed).shuffle(mixed)
            assert checkpoints.natural_sort(mixed, signed) == want
            assert theirs.natural_sort(mixed, signed) == want
    for path in ("./a/b/c", "/a//b/c", "/a/../b/c", "a/b/./c", "gs://a//b/c", "/"):
        assert checkpoints.safe_normpath(path) == theirs.safe_normpath(path)
    for name in ("c_tmp", "c_3_gda", "c_9.orbax-checkpoint-tmp-5", "unreadable.c_8", "d_7", "c_1"):
        (tmp_path / name).write_bytes(b"")
    assert checkpoints.latest_checkpoint(tmp_path, "c_") == str(tmp_path / "c_1")
    assert checkpoints.available_steps(tmp_path, "c_") == [1]


def test_orbax_is_not_used(tmp_path):
    for call in (save_checkpoint, checkpoints.save_checkpoint_multiprocess):
        with pytest.raises(ValueError, match="needed orbax_checkpointer=None, got object"):
            call(tmp_path, TREE, 1, orbax_checkpointer=object())
    for name in ("orbax_checkpointer", "orbax_transforms"):
        with pytest.raises(ValueError, match="needed orbax_checkpointer=None"):
            restore_checkpoint(tmp_path, TREE, **{name: object()})
    (tmp_path / "checkpoint_1").mkdir()
    (tmp_path / "checkpoint_1" / "_METADATA").write_text("{}")
    for place in (tmp_path, tmp_path / "checkpoint_1"):
        with pytest.raises(ValueError, match="needed a msgpack file, got an Orbax checkpoint"):
            restore_checkpoint(place, TREE)


def test_several_processes(tmp_path, monkeypatch):
    path = checkpoints.save_checkpoint_multiprocess(tmp_path, TREE, 1)
    assert path == str(tmp_path / "checkpoint_1")
    saving = sys.modules["toile.training.checkpoints.save"]
    monkeypatch.setattr(saving, "process_count", lambda: 2)
    monkeypatch.setattr(saving, "process_index", lambda: 1)
    path = checkpoints.save_checkpoint_multiprocess(tmp_path, TREE, 2)
    assert path == str(tmp_path / "checkpoint_2") and names(tmp_path) == ["checkpoint_1"]
    # Flax writes this in place of an array that lies in parts elsewhere.
    save_checkpoint(tmp_path, {"a": ["//GDAPlaceholder:a/0"]}, 5)
    with pytest.raises(errors.MPACheckpointingRequiredError):
        restore_checkpoint(tmp_path, None)
    assert restore_checkpoint(tmp_path, None, allow_partial_mpa_restoration=True)


def test_shapes_and_dtypes_are_checked(tmp_path):
    save_checkpoint(tmp_path, {"a": np.zeros((2, 3)), "b": [np.zeros(4, np.float32)]}, 1)
    target = {"a": jnp.zeros((3, 2)), "b": [jnp.zeros(4, jnp.int32)]}
    with pytest.raises(ValueError) as caught:
        restore_checkpoint(tmp_path, target)
    for part in ("./a: needed float32[3,2], got float64[2,3]", "./b/0: needed int32[4], got"):
        assert part in str(caught.value)
    with pytest.raises(ValueError, match=r"1 array does not fit"):
        restore_checkpoint(tmp_path, target, check_dtypes=False)
    back = restore_checkpoint(tmp_path, target, check_shapes=False, check_dtypes=False)
    assert back["a"].shape == (2, 3)


def test_partial(tmp_path, capsys):
    save_checkpoint(tmp_path, {"a": np.ones(2), "b": np.ones(3), "old": 1}, 1)
    target = {"a": np.zeros(2), "b": np.zeros(4), "new": {"x": 7}}
    restored = restore_checkpoint(tmp_path, target, partial=True)
    assert restored["a"][0] == 1 and restored["b"].shape == (4,) and restored["new"] == {"x": 7}
    assert capsys.readouterr().out == (
        f"restore_checkpoint: {tmp_path}/checkpoint_1: 1 restored, 1 missing, 1 unexpected, 1"
        " misshaped\n  missing: new/x\n  unexpected: old\n"
        "  misshaped: b: needed float64[4], got float64[3]\n"
    )
    with pytest.raises(ValueError, match="needed a target"):
        restore_checkpoint(tmp_path, None, partial=True)


def break_(path, how):
    """Make a file unreadable."""
    data = pathlib.Path(path).read_bytes()
    wrong = {
        "empty": b"",
        "truncated": data[: len(data) // 2],
        "zeros": bytes(len(data)),
        "text": b"not a checkpoint",
        "longer": data + b"\x00",
        "header": b"\xff" + data[1:],
    }
    pathlib.Path(path).write_bytes(wrong[how])


@pytest.mark.parametrize("how", ["empty", "truncated", "zeros", "text", "longer", "header"])
def test_broken_files(tmp_path, how):
    for step in (1, 2, 3):
        path = save_checkpoint(tmp_path, filled(step), step, keep=3)
    break_(path, how)
    for place, step in ((path, None), (tmp_path, 3)):
        with pytest.raises(errors.CorruptedCheckpointError, match="checkpoint_3.* cannot be read"):
            restore_checkpoint(place, filled(0), step)
    with pytest.warns(UserWarning, match="skipped .*checkpoint_3.* cannot be read"):
        assert restore_checkpoint(tmp_path, filled(0))["a"][0] == 2
    # Training goes on from step 2: the broken file is in nobody's way, and is not lost.
    with pytest.warns(UserWarning, match="checkpoint_3 could not be read and is now .*unreadable"):
        save_checkpoint(tmp_path, filled(4), 2.5, keep=2)
    assert names(tmp_path) == ["checkpoint_2", "checkpoint_2.5", "unreadable.checkpoint_3"]
    save_checkpoint(tmp_path, filled(3), 3, keep=1)
    assert restore_checkpoint(tmp_path, filled(0))["a"][0] == 3
    for step in (1, 3):
        (tmp_path / f"checkpoint_{step}").write_bytes(b"")
    with pytest.warns(UserWarning), pytest.raises(errors.CorruptedCheckpointError, match="_3"):
        restore_checkpoint(tmp_path, filled(0))


def test_the_file_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch):
    calls = []

    def record(name):
        original = getattr(os, name)

        def call(first, *rest):
            calls.append((name, first))
            return original(first, *rest)

        monkeypatch.setattr(os, name, call)

    save_checkpoint(tmp_path, filled(1), 1)
    for name in ("fsync", "replace", "remove"):
        record(name)
    save_checkpoint(tmp_path, filled(2), 2, checksums=False)
    assert [name for name, _ in calls] == ["fsync", "replace", "fsync", "remove", "remove"]
    assert calls[3][1] == str(tmp_path / "checkpoint_1")
    assert calls[4][1] == str(tmp_path / ".checkpoint_1.sums_gda")
    calls.clear()
    save_checkpoint(tmp_path, filled(3), 3)
    assert [name for name, _ in calls] == ["fsync", "replace", "replace", "fsync", "remove"]


@pytest.mark.parametrize("failing", ["write", "fsync", "replace", "remove", "open"])
def test_an_interrupt_leaves_the_old_checkpoint(tmp_path, monkeypatch, failing):
    save_checkpoint(tmp_path, filled(1), 1)

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    if failing == "write":
        monkeypatch.setattr(files.PendingFile, "write", interrupt)
    else:
        monkeypatch.setattr(os, failing, interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path, filled(2), 2)
    monkeypatch.undo()
    assert restore_checkpoint(tmp_path, filled(0))["a"][0] == (2 if failing == "remove" else 1)
    assert not [name for name in names(tmp_path) if "tmp" in name]
    save_checkpoint(tmp_path, filled(3), 3)
    assert restore_checkpoint(tmp_path, filled(0))["a"][0] == 3


def attack(folder, *kinds):
    """Run attacks of killed_saver.py, and give what it prints."""
    run = subprocess.run(
        [sys.executable, str(HERE / "killed_saver.py"), str(folder), *kinds],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count(", 0 lost") == len(kinds)
    return run.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_attacks_on_savers(tmp_path, capsys):
    found = attack(tmp_path, "random=10", "points=1", "full", "read-only", "many=12")
    assert "10 kills" in found
    with capsys.disabled():
        print("\n" + found, end="")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_hundreds_of_kills(tmp_path, capsys):
    found = attack(tmp_path, "random=500", "points=3", "full", "many=200")
    assert "500 kills" in found
    with capsys.disabled():
        print("\n" + found, end="")


@pytest.mark.parametrize("locked", [True, False])
def test_concurrent_savers(tmp_path, monkeypatch, locked):
    if not locked:
        monkeypatch.setattr(files, "fcntl", None)
    problems = []
    done = threading.Event()

    def save(first):
        for step in range(first, 40, 2):
            try:
                save_checkpoint(tmp_path, filled(step), step, keep=2)
            except errors.InvalidCheckpointError:
                pass  # the other one is ahead
            except Exception as error:
                problems.append(error)

    def watch():
        while not done.is_set():
            found = restore_checkpoint(tmp_path, None)
            if found is not None and len({*found["a"].ravel(), *found["b"]["0"].ravel()}) != 1:
                problems.append(found)

    threads = [threading.Thread(target=save, args=(first,)) for first in (0, 1)]
    watcher = threading.Thread(target=watch)
    for thread in (*threads, watcher):
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    watcher.join()
    assert not problems
    assert checkpoints.available_steps(tmp_path)[-1] == 39
    assert restore_checkpoint(tmp_path, filled(0))["a"][0] == 39
    assert not [name for name in names(tmp_path) if "tmp" in name]


def test_the_lock_is_given_up_after_a_while(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_PATIENCE", 0.01)
    with files.directory_lock(str(tmp_path)) as held:
        assert held
        save_checkpoint(tmp_path, filled(1), 1)
    assert names(tmp_path) == ["checkpoint_1"]


def test_async(tmp_path):
    tree = filled(1)
    manager = checkpoints.AsyncManager()
    release = threading.Event()
    manager.save_async(release.wait)
    threading.Timer(0.05, release.set).start()
    path = save_checkpoint(tmp_path, tree, 1, async_manager=manager)
    tree["a"][:] = 7  # what is saved is what was there at the call
    manager.wait_previous_save()
    assert manager.save_future.done() and restore_checkpoint(path, filled(0))["a"][0] == 1
    with pytest.raises(errors.InvalidCheckpointError):
        save_checkpoint(tmp_path, tree, 1, async_manager=manager)
    with checkpoints.AsyncManager() as manager:
        save_checkpoint(tmp_path, filled(2), 2, async_manager=manager)
    assert names(tmp_path) == ["checkpoint_2"]


def test_errors_of_async_saves_are_raised(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError("no space left on device")

    save_checkpoint(tmp_path, filled(1), 1)
    manager = checkpoints.AsyncManager()
    for wait in (
        manager.wait_previous_save,
        lambda: save_checkpoint(tmp_path, filled(3), 3, async_manager=manager),
        lambda: manager.save_async(int),
        lambda: manager.__exit__(None, None, None),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            save_checkpoint(tmp_path, filled(2), 2, async_manager=manager)
            manager.save_future.exception()  # done, and long so when somebody asks
        with pytest.raises(OSError, match="no space left"):
            wait()
        manager.wait_previous_save()  # told once
    assert names(tmp_path) == ["checkpoint_1"]


def test_errors_of_async_saves_are_printed_where_nobody_asks(tmp_path, capsys):
    manager = checkpoints.AsyncManager()
    manager.save_async(lambda: 1 / 0)
    manager.save_future.exception()
    del manager
    assert "ZeroDivisionError" in capsys.readouterr().err
    program = (
        "from toile.training.checkpoints import AsyncManager\n"
        "import time\n"
        "manager = AsyncManager()\n"
        "manager.save_async(lambda: (time.sleep(0.1), 1 / 0))\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env)
    assert "an asynchronous save failed" in run.stderr and "ZeroDivisionError" in run.stderr


def test_large_files_are_read_in_parallel(tmp_path, monkeypatch):
    monkeypatch.setattr(sums, "BLOCK", 1000)
    monkeypatch.setattr(streams, "_SMALL", 100)
    tree = {"a": np.arange(5000)}
    path = save_checkpoint(tmp_path, tree, 1)
    for parallel in (True, False):
        assert (restore_checkpoint(path, tree, parallel=parallel)["a"] == tree["a"]).all()


def test_convert_pre_linen():
    old = {
        "mod_0": {"submod1_0": {}, "submod2_1": {}, "submod1_2": {}},
        "mod2_2": {"submod2_2_0": {}},
        "mod2_11": {"submod2_11_0": {"w": 1}},
        "mod2_1": {"submod2_1_0": {}},
        "plain": 3,
    }
    new = checkpoints.convert_pre_linen(old)
    assert new == theirs.convert_pre_linen(old) == checkpoints.convert_pre_linen(new)
    assert new["mod2_2"] == {"submod2_11_0": {"w": 1}} and new["mod_0"].keys() >= {"submod1_1"}
    assert checkpoints.convert_pre_linen(freeze(old)) == freeze(new)
