"""What the machine tells: containers from real files, Apple's and NVIDIA's calls through C function pointers."""

import ctypes
import mmap
import os
import struct
import sys
from types import SimpleNamespace

import psutil
import pytest

from engine import container, darwin, nvidia
from engine.config import GB, TrainConfig
from engine.container import Allowance
from engine.machine import Machine, budget_bytes, computes_on_gpu, footprint_bytes, machine, swap_bytes
from engine.nvidia import GpuMemory

MB = 1024**2

# What version 1 writes where there is no limit: the largest number of 4 KB pages.
NO_LIMIT = 2**63 - 4096


@pytest.fixture
def root(tmp_path):
    """Writes a tree of files, contents by path, and returns its root."""

    def write(files):
        for name, content in files.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{content}\n")
        return tmp_path

    return write


def v1(folder, limit, used, cache=0):
    stat = f"inactive_file 1\nactive_file 77\ntotal_inactive_file {cache}\ntotal_active_file 99"
    names = {"limit_in_bytes": limit, "usage_in_bytes": used, "stat": stat}
    return {f"sys/fs/cgroup/memory/{folder}memory.{name}": value for name, value in names.items()}


def v2(folder, limit, used, cache=0):
    stat = f"anon {used}\ninactive_anon 5\ninactive_file {cache}\nactive_file 99"
    names = {"max": limit, "current": used, "stat": stat}
    return {f"sys/fs/cgroup/{folder}memory.{name}": value for name, value in names.items()}


IN_V1 = "9:name=systemd:/x\n4:cpu,memory:/a/b\n1:cpuset:/c\n0::/"
IN_V2 = "0::/a/b"

CONTAINERS = {
    "no control groups": ({}, None),
    "v2, our own limit": (v2("a/b/", 900, 300) | {"proc/self/cgroup": IN_V2}, Allowance(900, 600)),
    "v2, page cache that can go": (v2("a/b/", 900, 300, 250) | {"proc/self/cgroup": IN_V2}, Allowance(900, 850)),
    "v2, the limit is a parent's": (
        v2("a/b/", "max", 300) | v2("a/", 700, 400) | {"proc/self/cgroup": IN_V2},
        Allowance(700, 300),
    ),
    "v2, the parent has less room than we": (
        v2("a/b/", 500, 100) | v2("a/", 800, 750) | {"proc/self/cgroup": IN_V2},
        Allowance(500, 50),
    ),
    "v2, no limit": (v2("a/b/", "max", 300) | v2("a/", "max", 400) | {"proc/self/cgroup": IN_V2}, None),
    "v2, a container of its own": (v2("", 800, 200) | {"proc/self/cgroup": "0::/"}, Allowance(800, 600)),
    "v2, the path is the host's": (v2("", 800, 200) | {"proc/self/cgroup": "0::/host/us"}, Allowance(800, 600)),
    "v2, outside of what we see": (
        v2("", 800, 200) | v2("us/", 9, 9) | {"proc/self/cgroup": "0::/../us"},
        Allowance(800, 600),
    ),
    "v2, over its limit": (v2("a/b/", 900, 950) | {"proc/self/cgroup": IN_V2}, Allowance(900, 0)),
    "v2, more cache than use": (v2("a/b/", 900, 10, 20) | {"proc/self/cgroup": IN_V2}, Allowance(900, 900)),
    "v2, no statistics": (
        {"sys/fs/cgroup/a/b/memory.max": 900, "proc/self/cgroup": IN_V2},
        Allowance(900, 900),
    ),
    "v1, our own limit": (
        v1("a/b/", 900, 300, 100) | v1("", NO_LIMIT, 5000) | {"proc/self/cgroup": IN_V1},
        Allowance(900, 700),
    ),
    "v1, no limit": (v1("a/b/", NO_LIMIT, 300) | v1("", NO_LIMIT, 5000) | {"proc/self/cgroup": IN_V1}, None),
    "v1, the path is the host's": (v1("", 600, 500, 50) | {"proc/self/cgroup": IN_V1}, Allowance(600, 150)),
    "v1 beside v2": (
        v1("a/b/", 900, 300) | v2("", 100, 100) | {"proc/self/cgroup": IN_V1},
        Allowance(100, 0),
    ),
    "a limit that is no number": (v2("a/b/", "lots", 300) | {"proc/self/cgroup": IN_V2}, None),
}


@pytest.mark.parametrize(("files", "expected"), CONTAINERS.values(), ids=CONTAINERS.keys())
def test_the_tightest_group_counts(root, files, expected):
    assert container.allowance(root(files)) == expected


@pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux's")
@pytest.mark.skipif(computes_on_gpu(), reason="there the GPU's memory counts")
def test_a_container_makes_the_machine_smaller(root):
    here = machine(root(v2("a/b/", 3 * MB, MB) | {"proc/self/cgroup": IN_V2}))
    assert (here.total_bytes, here.available_bytes, here.working_set_bytes) == (3 * MB, 2 * MB, 3 * MB)
    whole = machine(root(v2("a/b/", 2**59, MB)))
    assert whole.total_bytes == psutil.virtual_memory().total


def test_this_machine():
    here = machine()
    assert here.name
    assert 0 < here.available_bytes <= here.total_bytes
    assert 0 < here.working_set_bytes <= here.total_bytes
    if not computes_on_gpu():
        assert here.total_bytes <= psutil.virtual_memory().total
    assert 0 <= here.swap_bytes <= psutil.swap_memory().total
    assert 0 <= swap_bytes() <= psutil.swap_memory().total


@pytest.mark.parametrize(
    ("setting", "free", "working_set", "expected"),
    [
        ("auto", 8 * GB, 16 * GB, 8 * GB - 16 * GB // 10),
        ("auto", 16 * GB, 11 * GB, 11 * GB),  # macOS recommends less than what is free
        ("auto", GB, 11 * GB, GB // 4),
        ("auto", 0, 11 * GB, GB // 4),
        (3.5, GB, 11 * GB, 3.5 * GB),
        (20, 16 * GB, 11 * GB, 20 * GB),
    ],
)
def test_the_budget(setting, free, working_set, expected):
    given = Machine("", 16 * GB, free, working_set, 0)
    # A byte: a tenth is rounded down once here and once there.
    assert budget_bytes(TrainConfig(memory_budget_gb=setting), given) == pytest.approx(expected, abs=1)


def test_the_footprint_follows_what_is_held():
    before = footprint_bytes()
    with mmap.mmap(-1, 64 * MB) as held:
        for page in range(0, 64 * MB, mmap.PAGESIZE):
            held[page] = 1
        full = footprint_bytes()
    after = footprint_bytes()
    # 4 MB: what the interpreter itself takes or gives back meanwhile.
    assert full - before == pytest.approx(64 * MB, abs=4 * MB)
    assert full - after == pytest.approx(64 * MB, abs=4 * MB)


# C function pointers stand where a Mac's libraries have theirs: arguments and results pass through C's own types.
Rusage = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
Sysctl = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
)
Create = ctypes.CFUNCTYPE(ctypes.c_void_p)
Selector = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)
Send = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p)


def test_the_layout_of_apples_struct():
    """A UUID of 16 bytes and ten numbers of 64 bits; the footprint is the eighth (xnu, bsd/sys/resource.h)."""
    assert ctypes.sizeof(darwin.RusageInfo) == 96
    assert darwin.RusageInfo.phys_footprint.offset == 72
    assert darwin.RusageInfo.phys_footprint.size == 8


@pytest.mark.parametrize("footprint", [1, 5 * GB, 2**63 + 1])
def test_the_physical_footprint(footprint):
    asked = []

    @Rusage
    def fill(process, flavour, buffer):
        asked.append((process, flavour))
        ctypes.memmove(buffer, struct.pack("=16s10Q", b"u" * 16, 1, 2, 3, 4, 5, 6, 7, footprint, 9, 10), 96)
        return 0

    assert darwin.phys_footprint(SimpleNamespace(proc_pid_rusage=fill)) == footprint
    assert asked == [(os.getpid(), 0)]


def test_no_footprint_where_the_system_refuses():
    assert darwin.phys_footprint(SimpleNamespace(proc_pid_rusage=Rusage(lambda *_: -1))) is None


@pytest.mark.parametrize(("megabytes", "expected"), [(0, None), (12_000, 12_000 * MB), (500_000, 500_000 * MB)])
def test_the_users_limit_for_the_gpu(megabytes, expected):
    @Sysctl
    def tell(name, value, size, new, new_size):
        assert (name, new, new_size) == (b"iogpu.wired_limit_mb", None, 0)
        assert ctypes.c_size_t.from_address(size).value >= 4
        ctypes.memmove(value, struct.pack("=i", megabytes), 4)
        ctypes.c_size_t.from_address(size).value = 4
        return 0

    assert darwin.wired_limit(SimpleNamespace(sysctlbyname=tell)) == expected


def test_no_limit_where_the_system_knows_none():
    assert darwin.wired_limit(SimpleNamespace(sysctlbyname=Sysctl(lambda *_: -1))) is None


@pytest.mark.parametrize(("device", "expected"), [(2**40 + 16, 11 * GB), (None, None)])
def test_the_recommended_working_set(device, expected):
    selector = 2**41 + 8  # more than 32 bits, as pointers are

    def send(receiver, message):
        return 11 * GB if (receiver, message) == (device, selector) else 0

    metal = SimpleNamespace(MTLCreateSystemDefaultDevice=Create(lambda: device))
    objc = SimpleNamespace(
        sel_registerName=Selector(lambda name: selector if name == b"recommendedMaxWorkingSetSize" else 0),
        objc_msgSend=Send(send),
    )
    assert darwin.recommended_working_set(metal, objc) == expected


@pytest.mark.skipif(sys.platform != "darwin", reason="asks macOS itself")
def test_a_mac_tells_all_three():
    resident = psutil.Process().memory_info().rss
    assert 0 < darwin.phys_footprint(darwin.system()) < 4 * resident
    total = psutil.virtual_memory().total
    assert total / 2 <= darwin.recommended_working_set(*darwin.metal()) <= total
    assert darwin.wired_limit(darwin.system()) is None or darwin.wired_limit(darwin.system()) <= total


Index = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint, ctypes.c_void_p)
Uuid = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
Info = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


def nvml(tells_memory=True):
    """Three GPUs of 10, 11 and 12 GB, the last known as GPU-c, each with 3 GB in use."""
    first = 2**42

    @Index
    def by_index(index, handle):
        if index > 2:
            return 2  # NVML_ERROR_INVALID_ARGUMENT
        ctypes.c_uint64.from_address(handle).value = first + index
        return 0

    @Uuid
    def by_uuid(name, handle):
        return by_index(2 if name == b"GPU-c" else 9, handle)

    @Info
    def memory(handle, info):
        if not tells_memory:
            return 3  # NVML_ERROR_NOT_SUPPORTED
        total = (10 + handle - first) * GB
        ctypes.memmove(info, struct.pack("=3Q", total, total - 3 * GB, 3 * GB), 24)
        return 0

    return SimpleNamespace(
        nvmlDeviceGetHandleByIndex_v2=by_index, nvmlDeviceGetHandleByUUID=by_uuid, nvmlDeviceGetMemoryInfo=memory
    )


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, GpuMemory(10 * GB, 7 * GB)),
        ("1", GpuMemory(11 * GB, 8 * GB)),
        (" 2,0", GpuMemory(12 * GB, 9 * GB)),
        ("GPU-c", GpuMemory(12 * GB, 9 * GB)),
        ("GPU-gone", None),
        ("7", None),
    ],
)
def test_the_gpu_that_cuda_counts_first(monkeypatch, visible, expected):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert nvidia.memory_told_by(nvml()) == expected


def test_a_gpu_that_shares_the_machines_memory_tells_none():
    assert nvidia.memory_told_by(nvml(tells_memory=False)) is None


@pytest.mark.skipif(sys.platform == "darwin" or not computes_on_gpu(), reason="needs an NVIDIA GPU")
def test_this_gpu():
    here = machine()
    assert here.name == "This GPU"
    assert 0 < here.available_bytes <= here.total_bytes == here.working_set_bytes
