"""The flags of the examples: what is misspelled is answered in one line."""

import subprocess
import sys
from pathlib import Path

import pytest

from toile.training import config_flags

pytest.importorskip("ml_collections")
pytestmark = pytest.mark.filterwarnings("ignore:.*load_module:DeprecationWarning")  # its own

CONFIG = """
import ml_collections

def get_config(size="small"):
    config = ml_collections.ConfigDict()
    config.learning_rate, config.layers, config.shuffle = 0.1, [3, 4], True
    config.size, config.model = size, ml_collections.ConfigDict({"width": 8})
    return config
"""
MAIN = """
from absl import app
from toile.training import config_flags

CONFIG = config_flags.DEFINE_config_file("config", "configs/default.py")
app.run(lambda argv: print(CONFIG.value.learning_rate, CONFIG.value.layers, CONFIG.value.shuffle,
                           CONFIG.value.size, CONFIG.value.model.width))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with two configs."""
    (tmp_path / "configs").mkdir()
    for name in ("default", "tiny"):
        (tmp_path / "configs" / f"{name}.py").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


ACCEPTED = {
    "": "0.1 [3, 4] True small 8",
    "--config.learning_rate=0.5 --noconfig.shuffle": "0.5 [3, 4] False small 8",
    "--config=configs/tiny.py --config.model.width=9": "0.1 [3, 4] True small 9",
    "--config configs/tiny.py:large --config.layers[1]=7": "0.1 [3, 7] True large 8",
}


@pytest.mark.parametrize("arguments", ACCEPTED)
def test_fields_are_set(folder, arguments):
    command = [sys.executable, "-c", MAIN, *arguments.split()]
    env = {"PYTHONPATH": str(Path(config_flags.__file__).parents[2])}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.stdout.strip() == ACCEPTED[arguments], done.stderr


REFUSED = {
    "--config.lerning_rate=1":
        "--config.lerning_rate: needed a field of configs/default.py, got 'lerning_rate' (did you "
        "mean 'learning_rate'?)",
    "--config=configs/tiny.py --noconfig.shufle":
        "--config.shufle: needed a field of configs/tiny.py, got 'shufle' (did you mean "
        "'shuffle'?)",
    "--config.model.widht=3":
        "--config.model.widht: needed a field of config.model, got 'widht' (did you mean 'width'?)",
    "--config.zzz=3":
        "--config.zzz: needed a field of configs/default.py, got 'zzz' (it has layers, "
        "learning_rate, model, shuffle, size)",
    "--config.layers.x=3":
        "--config.layers.x: needed a config for config.layers, got [3, 4], which has no fields",
    "--config=configs/tny.py":
        "--config=configs/tny.py: needed a file, got a path that does not exist (did you mean "
        "'configs/tiny.py'?)",
    "--config tiny":
        "--config=tiny: needed a file, got a path that does not exist (did you mean "
        "'configs/tiny.py'?)",
    "--config=configs/huge.py":
        "--config=configs/huge.py: needed a file, got a path that does not exist (available: "
        "configs/default.py, configs/tiny.py)",
}


@pytest.mark.parametrize("arguments", REFUSED)
def test_what_does_not_exist_is_answered_in_a_line(folder, monkeypatch, arguments):
    monkeypatch.setattr(sys, "argv", ["main.py", *arguments.split()])
    with pytest.raises(SystemExit) as found:
        config_flags.DEFINE_config_file("config", Path("configs/default.py"))
    assert found.value.code == REFUSED[arguments]


CHECKED = """
from absl import app
import toile
from toile.engine.check_switch import enabled
from toile.training import config_flags

CHECKS = config_flags.DEFINE_checks()
app.run(lambda argv: print(CHECKS.value, enabled("nan"), enabled("index")))
"""
CHECKS = {
    "": "[] False False",
    "--checks=nan": "['nan'] True False",
    "--checks nan,index": "['nan', 'index'] True True",
    "--checks=all": "['all'] True True",
    "--checks=nun": "--checks: needed the names of checks, which are index, nan, keys, shapes and "
                    "all, got 'nun'",
}


@pytest.mark.parametrize("arguments", CHECKS)
def test_the_flag_turns_checks_on(arguments):
    command = [sys.executable, "-c", CHECKED, *arguments.split()]
    env = {"PYTHONPATH": str(Path(config_flags.__file__).parents[2])}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert (done.stdout or done.stderr).strip() == CHECKS[arguments]


def test_what_is_behind_two_dashes_is_no_flag():
    given = config_flags._given("config", ["--config=a.py", "--", "--config.x=1", "--config=b.py"])
    assert given == ("a.py", [])


def test_without_absl_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "absl", None)
    with pytest.raises(ImportError, match=r"pip install 'toile\[examples\]'"):
        config_flags.DEFINE_checks()


def test_without_ml_collections_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_collections", None)
    with pytest.raises(ImportError, match=r"pip install 'toile\[examples\]'"):
        config_flags.DEFINE_config_file("config", "configs/default.py")
