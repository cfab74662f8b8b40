"""Compiled kernels on disk: damage, concurrency, size, places."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings

import pytest

from toile.disk import object_cache
from toile.disk.object_cache import ObjectCache, from_environment
from toile.errors import CacheWarning

KEY = "0123456789abcdef" * 4


@pytest.fixture
def cache(tmp_path):
    return ObjectCache(tmp_path / "deep" / "kernels")


def names(cache):
    return sorted(os.listdir(cache.folder))


def test_put_and_get(cache):
    assert cache.get(KEY) is None
    for data in (b"", b"object", os.urandom(100_000)):
        cache.put(KEY, data)
        assert cache.get(KEY) == data
    assert names(cache) == [KEY]
    cache.remove(KEY)
    cache.remove(KEY)
    assert cache.get(KEY) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b"",
        lambda b: b[:10],
        lambda b: b[:-1],
        lambda b: b + b"x",
        lambda b: b"toile-0\n" + b[8:],
        lambda b: b[:50] + bytes([b[50] ^ 1]) + b[51:],
        lambda b: bytes(len(b)),
    ],
)
def test_damaged_entries_are_absent(cache, damage):
    cache.put(KEY, b"machine code " * 10)
    path = cache.folder / KEY
    path.write_bytes(damage(path.read_bytes()))
    with pytest.warns(CacheWarning, match=f"{KEY}.*was not used: it.*made again"):
        assert cache.get(KEY) is None
    assert not path.exists()
    cache.put(KEY, b"again")
    assert cache.get(KEY) == b"again"


def test_unwritable_folder_warns_once(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    cache = ObjectCache(tmp_path / "file" / "kernels")
    with pytest.warns(CacheWarning, match="cannot be.*TOILE_CACHE_DIR"):
        cache.put(KEY, b"data")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.put(KEY, b"data")
        assert cache.get(KEY) is None


def test_failed_write_leaves_nothing(cache, monkeypatch):
    cache.put(KEY, b"data")

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.warns(CacheWarning, match="No space"):
        cache.put("f" * 64, b"other")
    assert names(cache) == [KEY]


def test_eviction_of_the_least_recently_used(tmp_path):
    cache = ObjectCache(tmp_path, limit=10_000)
    keys = [f"{i:064x}" for i in range(9)]
    for i, key in enumerate(keys):
        cache.put(key, bytes(1000))
        os.utime(tmp_path / key, (i + 1, i + 1))
    cache.get(keys[0])  # used just now: it stays, the ones after it go
    for i in range(3):
        cache.put(f"{100 + i:064x}", bytes(1000))
    cache.evict()
    left = names(cache)
    assert keys[0] in left and keys[1] not in left and keys[2] not in left
    assert sum((tmp_path / n).stat().st_size for n in left) <= 10_000


def test_size_stays_bounded(tmp_path):
    cache = ObjectCache(tmp_path, limit=100_000)
    for i in range(300):
        cache.put(f"{i:064x}", bytes(2000))
    assert sum((tmp_path / n).stat().st_size for n in names(cache)) <= 100_000 * 1.1
    assert cache.get(f"{299:064x}") is not None


def test_abandoned_files_go(cache):
    cache.put(KEY, b"data")
    old, young = cache.folder / ".new-1-aa", cache.folder / ".new-2-bb"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    cache.evict()
    assert names(cache) == sorted([KEY, young.name])


def test_eviction_meets_another_process(cache, monkeypatch):
    cache.put(KEY, b"data")
    cache.limit = 0
    monkeypatch.setattr(os, "unlink", lambda *a, **k: (_ for _ in ()).throw(PermissionError()))
    cache.evict()
    ObjectCache(cache.folder / "nowhere", 0).evict()


WRITER = """
    import sys, random
    from pathlib import Path
    from toile.disk.object_cache import ObjectCache
    cache = ObjectCache(Path(sys.argv[1]), limit=400_000)
    chance = random.Random(int(sys.argv[2]))
    print("ready", flush=True)
    for i in range(int(sys.argv[3])):
        n = chance.randrange(40)
        key, data = f"{n:064x}", bytes([n]) * (1000 * (n + 1))
        found = cache.get(key)
        assert found is None or found == data, n
        if found is None or chance.random() < 0.5:
            cache.put(key, data)
    print("done")
"""


def start(folder, seed, turns):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), str(folder), str(seed), str(turns)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )


def test_processes_write_and_evict_at_once(tmp_path):
    writers = [start(tmp_path, seed, 400) for seed in range(4)]
    for writer in writers:
        out, error = writer.communicate(timeout=120)
        assert writer.returncode == 0 and out.endswith("done\n"), error
    assert not [n for n in os.listdir(tmp_path) if n.startswith(".")]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_while_writing(tmp_path):
    for seed in range(3):
        writer = start(tmp_path, seed, 10**9)
        assert writer.stdout.readline() == "ready\n"
        time.sleep(0.02 + 0.05 * random.random())
        writer.kill()
        writer.communicate()
    cache = ObjectCache(tmp_path)
    for n in range(40):
        found = cache.get(f"{n:064x}")
        assert found is None or found == bytes([n]) * (1000 * (n + 1))


def test_threads_share_one_cache(cache):
    errors = []

    def work(seed):
        chance = random.Random(seed)
        for _ in range(100):
            n = chance.randrange(10)
            cache.put(f"{n:064x}", bytes([n]) * 5000)
            found = cache.get(f"{n:064x}")
            if found not in (None, bytes([n]) * 5000):
                errors.append(n)

    pythons = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in pythons:
        t.start()
    for t in pythons:
        t.join()
    assert not errors and cache.writable


def test_environment(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    home = {"HOME": str(tmp_path)}
    monkeypatch.setenv("HOME", str(tmp_path))
    assert from_environment(home).folder == tmp_path / ".cache/toile/kernels"
    assert from_environment(home).limit == 512 << 20
    xdg = {**home, "XDG_CACHE_HOME": str(tmp_path / "xdg")}
    assert from_environment(xdg).folder == tmp_path / "xdg/toile/kernels"
    given = {**xdg, "TOILE_CACHE_DIR": str(tmp_path / "mine"), "TOILE_CACHE_SIZE": "2 GiB"}
    assert from_environment(given).folder == tmp_path / "mine/kernels"
    assert from_environment(given).limit == 2 << 30
    monkeypatch.setattr(sys, "platform", "darwin")
    assert from_environment(xdg).folder == tmp_path / "Library/Caches/toile/kernels"
    monkeypatch.setattr(sys, "platform", "win32")
    local = {**home, "LOCALAPPDATA": str(tmp_path / "local")}
    assert from_environment(local).folder == tmp_path / "local/toile/Cache/kernels"


def test_older_formats_go_without_a_word(cache):
    cache.put(KEY, b"data")
    path = cache.folder / KEY
    path.write_bytes(b"toile-1\n" + path.read_bytes()[8:])
    assert cache.get(KEY) is None and not path.exists()


def test_entries_are_bound_to_their_names_and_machine(cache):
    other = "f" * 64
    cache.put(KEY, b"one")
    cache.put(other, b"two")
    (cache.folder / other).write_bytes((cache.folder / KEY).read_bytes())
    with pytest.warns(CacheWarning, match=f"{other}.*its checksum does not match its name"):
        assert cache.get(other) is None
    assert cache.get(KEY) == b"one"
    elsewhere = ObjectCache(cache.folder, machine="another processor")
    assert elsewhere.get(KEY) is None  # and says nothing: it was said


@pytest.mark.parametrize("key", ["", "..", "../x", "a/b", "ab\0", "ABC", ".new-1", "x" * 8, "é"])
def test_names_that_are_no_keys(cache, key):
    cache.put(KEY, b"data")
    (cache.folder.parent / "x").write_bytes(b"not ours")
    assert cache.get(key) is None
    cache.remove(key)
    with pytest.raises(ValueError, match="needed a hexadecimal key"):
        cache.put(key, b"data")
    assert (cache.folder.parent / "x").exists() and names(cache) == [KEY]


def test_modes_of_what_is_made(cache):
    before = os.umask(0)
    try:
        cache.put(KEY, b"data")
    finally:
        os.umask(before)
    modes = [p.stat().st_mode & 0o777
             for p in (cache.folder / KEY, cache.folder, cache.folder.parent)]
    assert modes == [0o600, 0o700, 0o700]


@pytest.mark.parametrize("value", ["off", "OFF", "0", "false", "no"])
def test_switched_off(value):
    assert from_environment({"TOILE_CACHE": value}) is None
    assert from_environment({"TOILE_CACHE_SIZE": "0"}) is None


@pytest.mark.parametrize(
    "text, size",
    [("100", 100), ("64K", 65536), ("1.5m", 3 << 19), ("512MB", 512 << 20), ("1T", 1 << 40)],
)
def test_sizes(text, size):
    assert object_cache.size_of(text, "TOILE_CACHE_SIZE") == size


def test_wrong_sizes():
    for wrong in ("much", "-1", "1X"):
        with pytest.raises(ValueError, match="TOILE_CACHE_SIZE: needed"):
            from_environment({"TOILE_CACHE_SIZE": wrong})
