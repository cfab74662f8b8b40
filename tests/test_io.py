"""toile.io: Flax's names over plain files, and over tensorflow's where that is asked for."""

import inspect
import sys
import types

import flax.io
import pytest

from toile import errors, io


def test_names_and_arguments():
    for name, value in vars(flax.io).items():
        if inspect.isfunction(value) and value.__module__ == "flax.io":
            ours = list(inspect.signature(getattr(io, name)).parameters.items())
            want = list(inspect.signature(value).parameters.items())
            assert [(k, p.default) for k, p in ours] == [(k, p.default) for k, p in want], name
    assert io.BackendMode.DEFAULT.value == 0 and io.BackendMode.TF.value == 1
    assert io.io_mode is io.backend_mode() is io.BackendMode.DEFAULT


def test_plain_files(tmp_path):
    a, b, c = (str(tmp_path / "x" / "y" / name) for name in "abc")
    folder = str(tmp_path / "x" / "y")
    for _ in range(2):
        io.makedirs(folder)
    with io.GFile(a, "w") as file:
        file.write("é")
    with io.GFile(a, "rb") as file:
        assert file.read() == "é".encode()
    assert io.getsize(a) == 2 and io.exists(a) and not io.isdir(a) and io.isdir(folder)
    io.copy(a, b)
    io.rename(b, c)
    assert sorted(io.listdir(folder)) == ["a", "c"]
    assert sorted(io.glob(str(tmp_path / "x" / "*/"))) == [folder]
    for move in (io.copy, io.rename):
        with pytest.raises(errors.AlreadyExistsError):
            move(a, c)
        move(a, c, overwrite=True)
    io.remove(c)
    assert not io.exists(c)
    io.rmtree(str(tmp_path / "x"))
    with pytest.raises(io.NotFoundError):
        io.listdir(folder)


def test_other_files(monkeypatch):
    class Recorder:
        def __getattr__(self, name):
            return lambda *args, **kwargs: types.SimpleNamespace(length=(name, args, kwargs))

    gfile = types.SimpleNamespace(io=types.SimpleNamespace(gfile=Recorder()))
    monkeypatch.setitem(sys.modules, "tensorflow", gfile)
    calls = {
        "GFile": ("gs://a", "rb"),
        **dict.fromkeys(("listdir", "isdir", "exists", "makedirs", "glob"), ("gs://a",)),
        **dict.fromkeys(("remove", "rmtree"), ("gs://a",)),
        **dict.fromkeys(("copy", "rename"), ("gs://a", "gs://b", True)),
    }
    with io.override_mode(io.BackendMode.TF):
        assert io.io_mode is io.BackendMode.TF
        for name, args in calls.items():
            called, given, keywords = getattr(io, name)(*args).length
            assert called == name and (*given, *keywords.values()) == args
        assert io.getsize("gs://a") == ("stat", ("gs://a",), {})
        monkeypatch.setitem(sys.modules, "tensorflow", None)
        with pytest.raises(ImportError, match="needs tensorflow, which is not installed"):
            io.exists("gs://a")
    assert io.io_mode is io.BackendMode.DEFAULT
    with pytest.raises(ValueError, match="Unknown IO Backend Mode"):
        io.set_mode("tf")
