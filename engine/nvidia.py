"""The memory of the NVIDIA GPU that MLX computes on, asked of the driver's own library (NVML)."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from typing import Any


class _Memory(ctypes.Structure):
    """`nvmlMemory_t` of nvml.h."""

    _fields_ = [
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


@dataclass(frozen=True)
class GpuMemory:
    """A GPU's memory: all of it, and what no process holds now."""

    total_bytes: int
    free_bytes: int


def gpu_memory() -> GpuMemory | None:
    """The memory of the first GPU that CUDA may use; None without a driver, and as `memory_told_by`."""
    nvml = _nvml()
    return None if nvml is None else memory_told_by(nvml)


def memory_told_by(nvml: Any) -> GpuMemory | None:
    """The same from a library that is ready to be asked.

    None where it can't tell: there is no such GPU, or the GPU shares the machine's memory.
    """
    handle = ctypes.c_void_p()
    memory = _Memory()
    if _find(nvml, ctypes.byref(handle)) or nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)):
        return None
    return GpuMemory(int(memory.total), int(memory.free))


@cache
def _nvml() -> Any:
    """The library, ready to be asked. Cached: starting it takes longer than a window may wait each time."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return None if nvml.nvmlInit_v2() else nvml


def _find(nvml: Any, handle: Any) -> int:
    """Has `handle` name the GPU that CUDA counts as its first. Returns NVML's error code, 0 if it is found."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    if first.startswith(("GPU-", "MIG-")):
        return int(nvml.nvmlDeviceGetHandleByUUID(first.encode(), handle))
    return int(nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(first) if first.isdecimal() else 0), handle))
