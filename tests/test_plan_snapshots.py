"""Plans as text: the same in every process, and what a change of the compiler changes is shown."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tools.plan_snapshots import __main__ as snapshots

ROOT = pathlib.Path(__file__).parents[1]
PROGRAM = '''
import json, sys
import toile
from toile import numpy as jnp, lax
from tools.plan_snapshots import text

def f(w, x):
    h = lax.scan(lambda c, _: (jnp.tanh(c @ w), c.sum(0)), x, None, length=5)[0]
    h = lax.while_loop(lambda c: c.sum() < 9, lambda c: jnp.sort(c @ w), h)
    return lax.cond(h[0, 0] > 0, lambda: h @ w, lambda: jnp.cumsum(h, 1))

shapes = [toile.ShapeDtypeStruct(s, "float32") for s in ((64, 64), (128, 64))]
forward = toile.make_jaxpr(f)(*shapes).program
text.without_compiling()
texts = text.Texts()
print(json.dumps([text.cpu_text(forward, texts), text.gpu_text(forward, texts), texts.found]))
'''


def written(seed):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed, "TOILE_PLATFORM": "cpu"}
    run = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True,
                         check=False, cwd=ROOT)
    assert not run.returncode, run.stderr
    return json.loads(run.stdout)


def test_the_text_is_the_same_in_every_process():
    cpu, gpu, kernels = found = written("0")
    assert found == written("1")
    for plan, more in ((cpu, "words"), (gpu, "call Gemm")):
        assert [x for x in ("region", "loop", "while", "switch", more) if x not in plan] == []
    assert {name.rpartition(".")[2] for name in kernels} == {"ll", "cu"}
    assert all(name in cpu + gpu for name in kernels)


def test_differences_are_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(snapshots, "LEAST", 1)
    for side, offset in (("old", 64), ("new", 128)):
        for name, text in (("cpu/a.txt", f"region\n  at {offset}\n"), ("gpu/a.txt", "region\n"),
                           (f"kernels/{side}.ll", "ret void\n")):
            (tmp_path / side / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / side / name).write_text(text)
    old, new = tmp_path / "old", tmp_path / "new"
    assert snapshots.compare(old, old) == 0
    assert snapshots.compare(old, new) == 3
    shown = capsys.readouterr().out
    for line in ("-  at 64", "+  at 128", "only old: kernels/old.ll", "only new: kernels/new.ll",
                 "2 plans and 0 kernels compared, 3 files differ"):
        assert line in shown
    monkeypatch.setattr(snapshots, "LEAST", 2)
    with pytest.raises(SystemExit, match="needed plans of at least 2 programs"):
        snapshots.compare(old, old)
    with pytest.raises(SystemExit, match="needed an empty folder"):
        snapshots.write(old, ROOT, 1)
