"""Files and folders that somebody else could have written, or that are no files, are not used."""

import os
import socket
import stat
import threading
import time
import warnings

import pytest

from toile.disk import object_cache, trusted_files
from toile.disk.object_cache import ObjectCache
from toile.disk.trusted_files import Folder, Untrusted, resolved
from toile.errors import CacheWarning

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs owners and modes")
KEY = "ab" * 32
OTHER_USER = 12345


@pytest.fixture
def cache(tmp_path):
    made = ObjectCache(tmp_path / "kernels")
    made.put(KEY, b"the object")
    return made


def link(path, cache):
    path.rename(cache.folder.parent / "target")
    path.symlink_to(cache.folder.parent / "target")


def listen(path, cache):
    path.unlink()
    os.chdir(path.parent)  # addresses of sockets are short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)


def device(path, cache):
    path.unlink()
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero, which never ends
    except PermissionError:
        pytest.skip("needs root")


def grow(path, cache):
    with open(path, "r+b") as file:
        file.truncate(object_cache.MOST_BYTES + 100)  # takes no room on the disk


def replaced_by(make):
    def do(path, cache):
        path.unlink()
        make(path)

    return do


PLANTED = {
    "a FIFO": (replaced_by(os.mkfifo), "not a regular file"),
    "a folder": (replaced_by(os.mkdir), "not a regular file"),
    "a socket": (listen, "cannot be opened"),
    "a device": (device, "not a regular file"),
    "a link to the object": (link, "a link"),
    "a link to nowhere": (replaced_by(lambda p: p.symlink_to("nowhere")), "a link"),
    "a link to a device": (replaced_by(lambda p: p.symlink_to("/dev/zero")), "a link"),
    "a link to itself": (replaced_by(lambda p: p.symlink_to(p)), "a link"),
    "writable by all": (lambda p, c: p.chmod(0o666), "other users can write"),
    "writable by a group": (lambda p, c: p.chmod(0o620), "other users can write"),
    "too large": (grow, "more than"),
    "empty": (lambda p, c: p.write_bytes(b""), "does not begin"),
    "text": (lambda p, c: p.write_text("import os"), "does not begin"),
}


@pytest.mark.parametrize("what", PLANTED)
def test_what_is_planted_is_not_used(what, cache, monkeypatch):
    monkeypatch.chdir(cache.folder)
    plant, why = PLANTED[what]
    plant(cache.folder / KEY, cache)
    started = time.monotonic()
    with pytest.warns(CacheWarning, match=f"{KEY}.*was not used: .*{why}") as said:
        assert cache.get(KEY) is None
        assert cache.get(KEY) is None
    assert len(said) == 1 and time.monotonic() - started < 5
    assert not os.path.lexists(cache.folder / KEY)
    cache.put(KEY, b"again")
    assert cache.get(KEY) == b"again"
    target = cache.folder.parent / "target"
    assert what != "a link to the object" or target.read_bytes()  # the link went, not its target


@pytest.mark.parametrize("what", ["a FIFO", "a link to a device", "a folder"])
def test_planted_files_do_not_stop_evictions_or_writing(what, cache):
    PLANTED[what][0](cache.folder / KEY, cache)
    assert not cache.has(KEY)
    cache.limit = 0
    cache.evict()
    cache.limit = 1 << 20
    if what != "a folder":
        cache.put(KEY, b"again")
        assert cache.get(KEY) == b"again"


def test_a_folder_with_files_in_place_of_an_entry(cache):
    (cache.folder / KEY).unlink()
    (cache.folder / KEY).mkdir()
    (cache.folder / KEY / "file").write_text("mine")
    with pytest.warns(CacheWarning):
        assert cache.get(KEY) is None
    cache.put(KEY, b"data")
    cache.put("cd", b"data")
    assert cache.get(KEY) is None and cache.get("cd") == b"data"
    assert [n for n in os.listdir(cache.folder) if n.startswith(".")] == []


def owner(monkeypatch, of, uid):
    """Let a file seem to be another user's."""
    real = os.fstat

    def fstat(descriptor):
        found = real(descriptor)
        if stat.S_ISDIR(found.st_mode) == (of == "folder"):
            values = list(found)
            values[stat.ST_UID] = uid
            return os.stat_result(values, {"st_mtime": found.st_mtime})
        return found

    monkeypatch.setattr(os, "fstat", fstat)


def test_entries_of_other_users(cache, monkeypatch):
    owner(monkeypatch, "entry", OTHER_USER)
    with pytest.warns(CacheWarning, match=f"belongs to user {OTHER_USER}"):
        assert cache.get(KEY) is None


def test_entries_of_root_are_used(cache, monkeypatch):
    owner(monkeypatch, "entry", 0)
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(cache.folder).st_uid)
    assert cache.get(KEY) == b"the object"


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o707, 0o720])
def test_folders_that_others_can_write_to(mode, cache):
    cache.folder.chmod(mode)
    with pytest.warns(CacheWarning, match=r"is not used: other users can write.*chmod 700") as said:
        assert cache.get(KEY) is None
        cache.put("cd", b"data")
        cache.evict()
        assert not cache.has(KEY) and cache.is_empty()
    assert len(said) == 1
    assert os.listdir(cache.folder) == [KEY]  # nothing was touched
    assert "other users" in ObjectCache(cache.folder).problem()


def test_folders_of_other_users(cache, monkeypatch):
    owner(monkeypatch, "folder", OTHER_USER)
    with pytest.warns(CacheWarning, match=f"is not used: it belongs to user {OTHER_USER}"):
        assert cache.get(KEY) is None
    assert not cache.usable


def test_a_file_in_place_of_the_folder(tmp_path):
    (tmp_path / "kernels").write_text("not a folder")
    cache = ObjectCache(tmp_path / "kernels")
    with pytest.warns(CacheWarning, match="is not used"):
        assert cache.get(KEY) is None
    cache.put(KEY, b"data")
    assert (tmp_path / "kernels").read_text() == "not a folder"


def test_a_fifo_in_place_of_the_folder(tmp_path):
    os.mkfifo(tmp_path / "kernels")
    with pytest.warns(CacheWarning, match="is not used"):
        assert ObjectCache(tmp_path / "kernels").get(KEY) is None


# ---- the way to the folder


def test_the_way_may_have_links_of_ones_own(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "disk")
    (tmp_path / "again").symlink_to("home/../home")
    cache = ObjectCache(tmp_path / "again" / "deep" / "kernels")
    cache.put(KEY, b"data")
    assert cache.get(KEY) == b"data"
    assert (tmp_path / "disk" / "deep" / "kernels" / KEY).exists()


@pytest.mark.parametrize("mode, used", [
    (0o777, False), (0o757, False), (0o1777, True), (0o775, True), (0o755, True)])
def test_modes_on_the_way(mode, used, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(mode)
    cache = ObjectCache(shared / "mine" / "kernels")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        cache.put(KEY, b"data")
    assert (cache.get(KEY) == b"data") == used
    assert [str(w.message) for w in said if "in its path" not in str(w.message)] == []
    assert len(said) == (not used)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("of", ["a link", "a folder"])
def test_the_way_of_another_user(of, tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "link").symlink_to("theirs")
    changed = tmp_path / ("link" if of == "a link" else "theirs")
    os.chown(changed, OTHER_USER, OTHER_USER, follow_symlinks=False)
    with pytest.raises(Untrusted, match=f"in its path, .*: it belongs to user {OTHER_USER}"):
        resolved(tmp_path / "link" / "kernels")


def test_links_in_a_circle(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(Untrusted, match="too many links"):
        resolved(tmp_path / "a" / "kernels")
    with pytest.warns(CacheWarning, match="is not used"):
        ObjectCache(tmp_path / "a" / "kernels").put(KEY, b"data")


# ---- races


def test_a_folder_that_is_exchanged_is_found(cache, tmp_path):
    """What was checked is what is read: files are found through the descriptor of the folder."""
    with trusted_files.opened(str(cache.folder)) as folder:
        cache.folder.rename(tmp_path / "away")
        cache.folder.mkdir(mode=0o777)
        (cache.folder / KEY).write_bytes(b"planted")
        assert folder.read(KEY, 1000)[0].endswith(b"the object")


def test_a_file_that_grows(cache, monkeypatch):
    real = os.fstat

    def fstat(descriptor):
        found = real(descriptor)
        if stat.S_ISREG(found.st_mode):
            with open(cache.folder / KEY, "ab") as file:
                file.write(b"more")
        return found

    monkeypatch.setattr(os, "fstat", fstat)
    with pytest.warns(CacheWarning, match="grew"):
        assert cache.get(KEY) is None


def test_shortage_of_descriptors_is_no_damage(cache, monkeypatch):
    real = os.open

    def fail(path, *args, **kwargs):
        if path == KEY:
            raise OSError(24, "Too many open files")
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", fail)
    assert cache.get(KEY) is None
    monkeypatch.undo()
    assert cache.get(KEY) == b"the object"


def test_entries_come_and_go(cache):
    """Threads that plant, read and remove at once: what is read is right or absent."""
    stop, wrong = threading.Event(), []

    def plant():
        while not stop.is_set():
            for do in (os.mkfifo, lambda p: os.symlink("/dev/zero", p), os.mkdir):
                try:
                    do(cache.folder / "cd")
                except OSError:
                    pass

    def read():
        while not stop.is_set():
            cache.put("cd", b"object")
            if cache.get("cd") not in (None, b"object"):
                wrong.append(1)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        threads = [threading.Thread(target=t) for t in (plant, read, read)]
        [t.start() for t in threads]
        time.sleep(0.3)
        stop.set()
        [t.join(10) for t in threads]
    assert not wrong and not any(t.is_alive() for t in threads)


def test_without_descriptors_of_folders(tmp_path, monkeypatch):
    """As on Windows: by paths, with the kind and size of files checked."""
    monkeypatch.setattr(trusted_files, "_BY_DESCRIPTOR", False)
    monkeypatch.setattr(trusted_files, "_HAS_OWNERS", False)
    cache = ObjectCache(tmp_path / "kernels")
    cache.put(KEY, b"data")
    cache.folder.chmod(0o777)
    assert cache.get(KEY) == b"data" and cache.has(KEY) and not cache.is_empty()
    (cache.folder / KEY).unlink()
    os.mkfifo(cache.folder / KEY)
    with pytest.warns(CacheWarning, match="regular"):
        assert cache.get(KEY) is None
    os.utime(cache.folder, (1, 1))
    cache.evict()
    assert Folder(str(cache.folder)).descriptor is None
