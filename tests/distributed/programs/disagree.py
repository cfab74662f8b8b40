"""Processes of which the last one does something else, in the way that the argument names."""

import os
import signal
import sys
import time
import traceback

import numpy as np

import toile
from toile import lax
from toile.experimental import multihost_utils as hosts

# Each error in one write: those of other processes go to the same place at the same time.
sys.excepthook = lambda *error: os.write(2, "".join(traceback.format_exception(*error)).encode())

way = sys.argv[1]
heartbeat = float(os.environ.get("TEST_HEARTBEAT", "50"))
toile.distributed.initialize(initialization_timeout=60, heartbeat_timeout_seconds=heartbeat)
rank, other = toile.process_index(), toile.process_index() == toile.process_count() - 1
local = toile.local_device_count()


def ones(*shape, dtype=np.float32):
    """An argument for the devices of this process."""
    return np.ones((local, *shape), dtype)


def train_step(x):
    """Two collectives."""
    total = lax.psum(x, "i")
    return lax.pmax(total * x, "i")


def eval_step(x):
    """The same collectives, the other way round."""
    total = lax.pmax(x, "i")
    return lax.psum(total * x, "i")


def metrics(x):
    """One collective."""
    return lax.psum(x, "i")


train, evaluate, measure = (toile.pmap(f, "i") for f in (train_step, eval_step, metrics))


def known():
    """Have all processes run all programs, so that nothing is compared any more."""
    train(ones(4))
    evaluate(ones(4))
    measure(ones(4))


def differing_condition(branch):
    """A program in which the last process takes another branch than the others."""
    step = toile.pmap(lambda x, p: lax.cond(p, lambda: branch(x), lambda: lax.psum(x, "i")), "i",
                      in_axes=(0, 0))
    step(ones(4), np.zeros(local, bool))
    print(f"rank {rank} begins", flush=True)
    step(ones(4), np.full(local, other))
    measure(ones(4))


print(f"rank {rank} begins at {time.time():.2f}", flush=True)
if way == "shape":
    train(ones(2 if other else 4))
elif way == "dtype":
    train(ones(4, dtype=np.int32 if other else np.float32))
elif way == "order":
    toile.pmap(lambda x: eval_step(x) if other else train_step(x), "i")(ones(4))
elif way == "fewer collectives":
    toile.pmap(lambda x: metrics(x) if other else train_step(x), "i")(ones(4))
elif way == "operation":
    toile.pmap(lambda x: lax.pmean(x, "i") if other else lax.psum(x, "i"), "i")(ones(4))
elif way == "mesh":
    mesh = toile.make_mesh((toile.device_count(),), ("i",))
    rows = toile.sharding.NamedSharding(mesh, toile.sharding.PartitionSpec("i"))
    x = toile.make_array_from_process_local_data(rows, ones(4))
    toile.jit(lambda x: x[:, :2].sum(0) if other else x.sum(0))(x)
elif way == "known programs":
    known()
    (evaluate if other else train)(ones(4))
elif way == "known and new":
    known()
    (train if other else toile.pmap(lambda x: lax.psum(x * 2, "i"), "i"))(ones(4))
elif way == "same bytes":  # which would be added up without a word
    known()
    toile.pmap(lambda x: lax.psum(x + 1, "i"), "i")(ones(4))
    for _ in range(3):
        measure(ones(4))
    (train if other else measure)(ones(4))
    time.sleep(30)
elif way == "one program more":
    known()
    if other:
        measure(ones(4))
    train(ones(4))
elif way == "a value":
    known()
    if other:
        hosts.process_allgather(np.ones(3))
    train(ones(4))
elif way == "values":
    known()
    if other:
        hosts.process_allgather(np.ones(3))
    else:
        hosts.broadcast_one_to_all(np.ones(3))
elif way == "caught":
    known()
    for i in range(3):
        try:
            if i == 1 and other:
                raise ValueError("no data")
            train(ones(4))
        except ValueError:
            pass
        measure(ones(4))
elif way == "condition: another collective":
    differing_condition(lambda x: lax.pmax(x, "i"))
elif way == "condition: none":
    differing_condition(lambda x: x)
elif way == "raises":
    known()
    if other:
        raise ValueError("the data is bad")
    train(ones(4))
elif way == "exits":
    known()
    if other:
        sys.exit(0)
    train(ones(4))
elif way == "killed":
    known()
    if other:
        os.kill(os.getpid(), signal.SIGKILL)
    train(ones(4))
elif way == "stopped":
    known()
    if other:
        os.kill(os.getpid(), signal.SIGSTOP)
    train(ones(4))
elif way == "two stopped":
    known()
    if rank:
        os.kill(os.getpid(), signal.SIGSTOP)
    train(ones(4))
elif way == "loop":
    known()
    print(f"rank {rank} loops as <{os.getpid()}>", flush=True)
    for _ in range(1_000_000):
        train(ones(4))
elif way == "late":  # alive: the others wait, though it takes longer than signs of life may
    known()
    if other:
        end = time.monotonic() + 3 * heartbeat
        while time.monotonic() < end:  # as a compiler: code that holds the interpreter's lock
            sum(range(20_000_000))
    train(ones(4))
elif way == "late again and again":  # and each time they go on together
    known()
    for turn, seconds in enumerate((4.5, 1.5, 3.5)):
        if rank == turn % toile.process_count():
            time.sleep(seconds)
        train(ones(4))
        measure(ones(4))
    time.sleep(1.5)
    measure(ones(4))
elif way == "late inside a program":  # one before the first collective, the others after it
    def pause(x, when):
        time.sleep(4.5 if when == other else 0)
        return x

    def step(x):
        x = toile.pure_callback(lambda x: pause(x, True), x, x)
        x = lax.psum(x, "i")
        x = toile.pure_callback(lambda x: pause(x, False), x, x)
        return lax.pmax(x, "i")

    toile.pmap(step, "i")(ones(4))
    measure(ones(4))
elif way == "stopped and continued":
    known()
    if other and os.fork() == 0:
        time.sleep(heartbeat / 2)
        os.kill(os.getppid(), signal.SIGCONT)
        os._exit(0)
    elif other:
        os.kill(os.getpid(), signal.SIGSTOP)
    train(ones(4))
elif way == "goes on":  # a disagreement that is found before anything runs leaves all usable
    for shape in (6, 8):
        try:
            train(ones(shape + other))
        except RuntimeError as error:
            assert "needed the same program in all processes" in str(error)
        else:
            raise AssertionError("they do not agree")
        train(ones(4))
    toile.clear_caches() if other else None  # what is traced again on one process is known
    np.testing.assert_allclose(measure(ones(4)), toile.device_count())
    np.testing.assert_allclose(train(ones(4)), toile.device_count())
elif way == "other threads":  # whose values come in another order than the main thread's
    import threading

    known()
    waiting = threading.Thread(target=lambda: hosts.sync_global_devices("saved"))
    if not other:
        waiting.start()
    for _ in range(5):
        train(ones(4))
        time.sleep(1)
    if other:
        waiting.start()
    waiting.join()
elif way == "cost":
    known()
    x, times = ones(4), []
    for _ in range(300):
        began = time.perf_counter()
        np.asarray(measure(x))
        times.append(time.perf_counter() - began)
    from toile.parallel import agreement, processes

    program = next(iter(measure.mapping.forms.forms.values())).op
    owners, bucketed = program.grid.processes, program.bucketed()
    joined = processes.joined()
    seen = {"enter": [], "compare": []}
    for _ in range(200):
        began = time.perf_counter()
        agreement.begin(bucketed, owners).end()
        seen["enter"].append(time.perf_counter() - began)
    found = bucketed.memo["fingerprint", owners]
    for _ in range(50):
        began = time.perf_counter()
        agreement._compare(joined, found, agreement.begin(bucketed, owners))
        seen["compare"].append(time.perf_counter() - began)
    began = time.perf_counter()
    agreement.Fingerprint(bucketed, owners)
    made = time.perf_counter() - began
    if rank == 0:
        print(f"a call {np.median(times) * 1e6:.0f} µs, of which numbering "
              f"{min(seen['enter']) * 1e6:.2f} µs; once per program: fingerprint "
              f"{made * 1e6:.0f} µs, comparing {np.median(seen['compare']) * 1e6:.0f} µs")
else:
    raise SystemExit(f"there is no way {way!r}")
print(f"rank {rank} ends well", flush=True)
