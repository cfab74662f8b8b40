"""A program of several processes whose GPUs are the host: `mpirun -n 2 python -m … host|nccl`.

host: both share one GPU, with two devices each; nccl: each has one of two GPUs, and what NCCL is
told is looked at.
"""

import ctypes
import sys

import numpy as np
import pytest

import toile
from tests.gpu import host_driver
from tests.multi_gpu import host_cupy
from tests.multi_gpu.conftest import Driver
from tests.multi_gpu.fake_nccl import FakeNccl
from toile import lax
from toile.engine.platform_registry import registry
from toile.platforms.gpu import devices as gpu
from toile.sharding import AxisType, NamedSharding
from toile.sharding import PartitionSpec as P
from toile.targets.cuda import nccl

ID = bytes(range(128))


class Told:
    """NCCL that does nothing but remember."""

    log = []

    def __getattr__(self, name):
        def call(*args):
            self.log.append((name, args))
            if name == "ncclGetUniqueId":
                ctypes.memmove(args[0], ID, 128)
            elif name == "ncclCommInitRank":
                assert bytes(args[2].internal) == ID  # of rank 0, by MPI
                ctypes.c_void_p.from_address(args[0]).value = 77

        return call


def main(mode: str) -> None:
    patch = pytest.MonkeyPatch()
    with host_driver.host_gpu(patch):
        driver = Driver()
        driver.library = FakeNccl(driver.events)
        host_driver.driver_module.use(driver)
        patch.setattr(gpu, "cupy", lambda: host_cupy.module)
        patch.setattr(gpu, "usable", lambda: 1 if mode == "host" else 2)
        patch.setattr(gpu, "fleet", gpu.Fleet())
        patch.setattr(nccl, "functions", Told)
        registry.active = (registry.names["gpu"],)
        if mode == "host":
            toile.config.update("jax_num_gpu_devices", 2)
        toile.distributed.initialize()
        check(mode, toile.process_index(), toile.local_device_count())
        toile.distributed.shutdown()


def check(mode: str, rank: int, own: int) -> None:
    """Two processes of `own` devices each."""
    assert [d.process_index for d in toile.devices()] == [0] * own + [1] * own
    assert [d.ordinal for d in toile.local_devices()] == ([0, 0] if mode == "host" else [rank])
    x = np.arange(own * 4, dtype=np.float32).reshape(own, 4)

    def f(x):
        return (lax.psum(x, "i"), lax.all_gather(x, "i"), lax.axis_index("i"), lax.psum(1, "i"))

    total, everything, index, count = toile.pmap(f, axis_name="i")(x + 100 * rank)
    assert np.asarray(count).tolist() == [2 * own] * own
    assert np.asarray(index).tolist() == [rank * own + k for k in range(own)]
    if mode == "host":
        np.testing.assert_array_equal(np.asarray(total)[0], 2 * x.sum(0) + 200)
        np.testing.assert_array_equal(np.asarray(everything)[1], np.concatenate([x, x + 100]))
        mesh = toile.make_mesh((4,), ("a",), axis_types=(AxisType.Auto,))
        rows = toile.device_put(np.arange(8.0, dtype="float32"), NamedSharding(mesh, P("a")))
        total, twice = toile.jit(lambda x: (x.sum(), x * 2))(rows)
        assert float(total) == 28 and len(twice.addressable_shards) == 2
        assert np.asarray(twice.addressable_shards[0].data).tolist() == [8 * rank, 8 * rank + 2]
    else:
        names = [name for name, _ in Told.log]
        assert names.count("ncclGetUniqueId") == (rank == 0)
        (init,) = [args for name, args in Told.log if name == "ncclCommInitRank"]
        assert init[1] == 2 and init[3] == rank
        assert sorted(names[-2:]) == ["ncclAllGather", "ncclAllReduce"]
    print(f"rank {rank} agrees")


if __name__ == "__main__":
    main(sys.argv[1])
