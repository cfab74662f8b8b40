"""A hostile cache: whatever lies in it, programs give their own results, or say what is wrong.

Programs are compiled and kept; then entries are exchanged, cut, changed, or replaced by things that
are no files, and another trace of each program runs. It must give the same bits, not hang, not
crash, and warn once. `make test-all` does this thousands of times.
"""

import os
import random
import subprocess
import sys
import warnings

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.gpu import fibers, host_driver
from tests.gpu.test_programs import program_of
from toile.disk import object_cache
from toile.disk.object_cache import ObjectCache
from toile.errors import CacheWarning
from toile.platforms import cpu, recall
from toile.platforms.cpu import execution
from toile.platforms.cpu import plans_on_disk as recalling
from toile.platforms.gpu import executables as gpu_backend
from toile.platforms.gpu import memory
from toile.platforms.gpu import plans_on_disk as gpu_recalling
from toile.targets.cuda import modules as kernels
from toile.targets.llvm import native

pytest.importorskip("llvmlite")
X = np.arange(3, dtype=np.float32)
# All of the same inputs and results, so that nothing but the name tells their plans apart.
PROGRAMS = [
    lambda x: x + 1, lambda x: x * 3, lambda x: jnp.sin(x), lambda x: x - x.sum(),
    lambda x: jnp.cumsum(x), lambda x: jnp.sort(-x), lambda x: x @ jnp.outer(x, x),
    lambda x: toile.lax.fori_loop(0, 3, lambda i, y: y * 2 + i, x),
]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.delenv("TOILE_PLANS", raising=False)
    monkeypatch.delenv("TOILE_DEBUG", raising=False)
    monkeypatch.setattr(recall, "WORTH", 0.0)
    monkeypatch.setattr(recall, "FEWEST", 0)
    made = ObjectCache(tmp_path / "kernels")
    monkeypatch.setattr(native.engine(), "cache", made)
    forget_kernels(monkeypatch)
    return made


def forget_kernels(monkeypatch):
    """As in a new process: kernels come from disk, or are compiled."""
    for name in ("_addresses", "_code"):  # by the digest of the text
        if hasattr(native, name):
            monkeypatch.setattr(native, name, type(getattr(native, name))())


def traced(f):
    return toile.jit(lambda x: f(x)).trace(X).traced.program


def compiled(f):
    """What runs a program, and whether it came from disk."""
    found = cpu.compiled(traced(f))
    return found, type(found) is execution.Executable


def kept(programs):
    """The results of programs, which are on disk after this, and their keys."""
    results = [compiled(f)[0]([X])[0].tobytes() for f in programs]
    assert all(compiled(f)[1] for f in programs)
    return results, [recalling.place(traced(f)).key for f in programs]


def test_the_plan_of_another_program_is_not_taken(cache):
    """Copying the plan of x * 3 over that of x + 1 gave [0, 3, 6]."""
    results, keys = kept(PROGRAMS[:2])
    (cache.folder / keys[0]).write_bytes((cache.folder / keys[1]).read_bytes())
    with pytest.warns(CacheWarning, match=f"{keys[0]}.*its checksum does not match") as said:
        found, recalled = compiled(PROGRAMS[0])
    assert not recalled and found([X])[0].tolist() == [1, 2, 3] and len(said) == 1
    assert compiled(PROGRAMS[0])[1]  # it was made again, and kept


def swap(a, b):
    content = a.read_bytes(), b.read_bytes()
    a.write_bytes(content[1])
    b.write_bytes(content[0])


def attack_all_swaps(cache, programs):
    results, keys = kept(programs)
    count = 0
    for i in range(len(programs)):
        for j in range(len(programs)):
            if i == j:
                continue
            swap(cache.folder / keys[i], cache.folder / keys[j])
            for n in (i, j):
                found, recalled = compiled(programs[n])
                assert not recalled and found([X])[0].tobytes() == results[n]
            count += 1
    return count


@pytest.fixture
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        yield


def test_plans_that_are_exchanged(cache, quiet):
    assert attack_all_swaps(cache, PROGRAMS[:3]) == 6


def changes(content, chance, dense):
    """Ways to damage an entry."""
    size = len(content)
    lengths = range(size) if dense else sorted(chance.sample(range(size), 12))
    for n in lengths:
        yield content[:n]
    bits = [(i, b) for i in range(size) for b in range(8)]
    for i, bit in bits if dense else chance.sample(bits, 25):
        yield content[:i] + bytes([content[i] ^ 1 << bit]) + content[i + 1:]
    for n in (1, 8, 4096):
        yield content + bytes(n)
    yield bytes(size)
    yield content[8:]
    yield os.urandom(size)


def attack_one_entry(cache, f, key, result, dense):
    """All changes of one entry are found, and what is made again gives the same bits."""
    path = cache.folder / key
    content, count = path.read_bytes(), 0
    for changed in changes(content, random.Random(0), dense):
        path.write_bytes(changed)
        assert cache.get(key) is None, count
        assert not path.exists()
        count += 1
        if count % 500 == 1:
            assert compiled(f)[0]([X])[0].tobytes() == result
        path.write_bytes(content)
        path.chmod(0o600)
    found, recalled = compiled(f)
    assert recalled and found([X])[0].tobytes() == result
    return count


@pytest.mark.parametrize("of", ["plan", "kernel"])
def test_entries_that_are_damaged(of, cache, quiet):
    results, keys = kept(PROGRAMS[:1])
    key = keys[0] if of == "plan" else next(k for k in os.listdir(cache.folder) if k != keys[0])
    assert attack_one_entry(cache, PROGRAMS[0], key, results[0], dense=False) == 43


PLANTS = {
    "a FIFO": lambda p: os.mkfifo(p),
    "a folder": os.mkdir,
    "a link to nowhere": lambda p: p.symlink_to("nowhere"),
    "a link to a device": lambda p: p.symlink_to("/dev/zero"),
    "text": lambda p: p.write_text("import os; os._exit(1)"),
    "a pickle": lambda p: p.write_bytes(b"cos\nsystem\n(S'touch planted'\ntR."),
    "an entry of the older format": lambda p: p.write_bytes(b"toile-1\n" + bytes(100)),
    "writable by all": lambda p: (p.write_bytes(b"toile-2\n"), p.chmod(0o666)),
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
@pytest.mark.parametrize("what", PLANTS)
def test_what_is_planted(what, cache, quiet):
    results, keys = kept(PROGRAMS[:1])
    for name in os.listdir(cache.folder):  # the plan and its kernels
        (cache.folder / name).unlink()
        PLANTS[what](cache.folder / name)
    found, recalled = compiled(PROGRAMS[0])
    assert not recalled and found([X])[0].tobytes() == results[0]
    assert compiled(PROGRAMS[0])[1]
    assert not os.path.exists("planted")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs modes")
def test_a_folder_that_all_can_write_to(cache):
    results, keys = kept(PROGRAMS[:1])
    cache.folder.chmod(0o777)
    with pytest.warns(CacheWarning, match="is not used: other users can write") as said:
        for _ in range(2):
            found, recalled = compiled(PROGRAMS[0])
            assert not recalled and found([X])[0].tobytes() == results[0]
    assert len(said) == 1


def test_an_object_that_is_none(cache, monkeypatch):
    """With the right checksum, but not what LLVM made: compiled again."""
    results, keys = kept(PROGRAMS[:1])
    plan = recalling.images.read(cache.get(keys[0]), traced(PROGRAMS[0]))
    for _, key in plan.kernels:
        cache.put(key, b"no object")
    forget_kernels(monkeypatch)
    with pytest.warns(CacheWarning, match="not recognized|object"):
        found, recalled = compiled(PROGRAMS[0])
    assert not recalled and found([X])[0].tobytes() == results[0]


PROCESS = """
import sys, warnings
import numpy as np
import toile, toile.numpy as jnp
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    x = jnp.arange(3.0)
    print([toile.jit(f)(x).tolist() for f in (lambda x: x + 1, lambda x: x * 3, jnp.sin)])
print([w.category.__name__ for w in said], "pickle" in str(said))
"""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
def test_another_process_meets_a_hostile_folder(tmp_path):
    """Everything in the folder is exchanged in a circle, or planted, between two processes."""
    env = {**os.environ, "TOILE_CACHE_DIR": str(tmp_path), "TOILE_PLATFORM": "cpu",
           "TOILE_PLANS": ""}
    env.pop("TOILE_DEBUG", None)

    def run():
        found = subprocess.run([sys.executable, "-c", PROCESS], env=env, text=True, timeout=120,
                               capture_output=True, check=True).stdout.splitlines()
        return found[-2:]

    first = run()
    assert first[1] == "[] False"
    folder = tmp_path / "kernels"
    names = sorted(os.listdir(folder))
    contents = [(folder / n).read_bytes() for n in names]
    for i, name in enumerate(names):
        (folder / name).unlink()
        if i % 3 == 0:
            os.mkfifo(folder / name)
        else:
            (folder / name).write_bytes(contents[i - 1])
            (folder / name).chmod(0o600)
    again = run()
    assert again == [first[0], "['CacheWarning'] False"]
    assert run() == first


# ---- a GPU's plans, on the host


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    if not fibers.available():
        pytest.skip("needs g++")
    monkeypatch.delenv("TOILE_PLANS", raising=False)
    monkeypatch.delenv("TOILE_DEBUG", raising=False)
    monkeypatch.setattr(recall, "WORTH", 0.0)
    monkeypatch.setattr(recall, "FEWEST", 0)
    monkeypatch.setattr(memory, "_arenas", {})
    with host_driver.host_gpu(monkeypatch) as (_, device):
        cache = ObjectCache(tmp_path / "kernels")
        monkeypatch.setattr(kernels, "_cache", lambda: cache)
        yield cache, device


def gpu_plan(f, device):
    program, _ = program_of(lambda x: f(x), [X])
    return gpu_backend._recalled(program, device), gpu_recalling._place(program, device)[1]


def test_plans_of_a_gpu_that_are_exchanged(gpu, quiet):
    cache, device = gpu
    programs = PROGRAMS[:3]
    made = [gpu_plan(f, device) for f in programs]
    results = [host_driver.run(x, [X], device)[0].tobytes() for x, _ in made]
    keys = [key for _, key in made]
    assert all(gpu_plan(f, device)[0].plan.recalled for f in programs)
    for i, j in ((0, 1), (1, 2), (2, 0)):
        swap(cache.folder / keys[i], cache.folder / keys[j])
        for n in (i, j):
            found, _ = gpu_plan(programs[n], device)
            assert not found.plan.recalled
            assert host_driver.run(found, [X], device)[0].tobytes() == results[n]


def test_plans_of_a_gpu_that_are_damaged(gpu):
    cache, device = gpu
    _, key = gpu_plan(PROGRAMS[0], device)
    _, other = gpu_plan(lambda x: x.sum(), device)
    cache.put(key, cache.get(other))  # with the right checksum
    with pytest.warns(CacheWarning, match="inputs and results are not those of the Program"):
        assert not gpu_plan(PROGRAMS[0], device)[0].plan.recalled
    object_cache._warned.clear()
    cache.put(key, b"not a plan")
    with pytest.warns(CacheWarning, match="too short"):
        assert not gpu_plan(PROGRAMS[0], device)[0].plan.recalled
    assert gpu_plan(PROGRAMS[0], device)[0].plan.recalled


# ---- thousands


@pytest.mark.slow
def test_thousands_of_attacks(cache, quiet):
    swaps = attack_all_swaps(cache, PROGRAMS)
    results, keys = kept(PROGRAMS)
    plans = [attack_one_entry(cache, f, key, result, dense=True)
             for f, key, result in list(zip(PROGRAMS, keys, results, strict=True))[:2]]
    others = [k for k in os.listdir(cache.folder) if k not in keys]
    smallest = min(others, key=lambda k: (cache.folder / k).stat().st_size)
    objects = attack_one_entry(cache, PROGRAMS[0], smallest, results[0], dense=True)
    planted = 0
    for f, key, result in zip(PROGRAMS, keys, results, strict=True):
        for plant in PLANTS.values():
            (cache.folder / key).unlink()
            plant(cache.folder / key)
            assert compiled(f)[0]([X])[0].tobytes() == result
            planted += 1
    total = swaps + sum(plans) + objects + planted
    print(f"hostile cache: {swaps} swaps, {sum(plans)} damaged plans, {objects} damaged objects, "
          f"{planted} planted: {total} attacks")
    assert total > 5000
