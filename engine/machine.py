"""This machine's memory, what training may take of it, and whether MLX computes on a GPU here. Loads no MLX."""

from __future__ import annotations

import importlib.metadata
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

from engine import container, darwin, nvidia
from engine.config import GB, TrainConfig

_ON_MAC = sys.platform == "darwin"

# What we leave to the system and other programs when nothing else is said.
_MARGIN = 0.1

# The least that "auto" gives: below it nothing trains, and a plan that doesn't fit is better told against a size.
_LEAST = GB // 4


@dataclass(frozen=True)
class Machine:
    """The memory that training computes in: the machine's, or that of an NVIDIA GPU, which has its own.

    `available_bytes` is what is free for us now. `working_set_bytes` is what the device recommends at most: Metal's
    recommended working set, which is less than all, and everywhere else, or where macOS doesn't tell, `total_bytes`.
    `swap_bytes` is the swap in use, on the machine in every case.
    """

    name: str
    total_bytes: int
    available_bytes: int
    working_set_bytes: int
    swap_bytes: int


def machine(root: Path = Path("/")) -> Machine:
    """What this machine has; inside a container, what the container may use. Linux's files are read below `root`."""
    gpu = nvidia.gpu_memory() if computes_on_gpu() else None
    if gpu is not None:
        return Machine("This GPU", gpu.total_bytes, gpu.free_bytes, gpu.total_bytes, swap_bytes())
    memory = psutil.virtual_memory()
    total, available = memory.total, memory.available
    if _ON_MAC:
        working_set = darwin.wired_limit(darwin.system()) or _recommended_working_set() or total
        return Machine("This Mac", total, available, min(total, working_set), swap_bytes())
    if (limited := container.allowance(root)) is not None:
        total, available = min(total, limited.total_bytes), min(available, limited.available_bytes)
    return Machine("This machine", total, available, total, swap_bytes())


def budget_bytes(config: TrainConfig, machine: Machine) -> int:
    """What training may take, as its process's footprint.

    A budget that was set stays as the person set it: they may know that a program will be closed, or take swap into
    the bargain. "auto" is what is free now less a tenth of the machine, which other programs grow into while we train,
    and never more than the device recommends: above that macOS moves the GPU's buffers in and out.
    """
    if not isinstance(config.memory_budget_gb, str):
        return int(config.memory_budget_gb * GB)
    free = machine.available_bytes - int(_MARGIN * machine.total_bytes)
    return max(_LEAST, min(free, machine.working_set_bytes))


@cache
def computes_on_gpu() -> bool:
    """Whether MLX computes on a GPU here, told without loading it."""
    return _ON_MAC or is_nvidia()


@cache
def is_nvidia() -> bool:
    """Whether that is an NVIDIA GPU, which has memory of its own."""
    return any(_is_installed(name) for name in ("mlx-cuda-12", "mlx-cuda-13"))


def _is_installed(distribution: str) -> bool:
    """Whether a package is there; MLX's builds for CUDA bring no module of their own that could be looked for."""
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def footprint_bytes() -> int:
    """What this process holds now: its physical footprint on macOS, its resident memory elsewhere.

    Neither counts what it holds on an NVIDIA GPU.
    """
    footprint = darwin.phys_footprint(darwin.system()) if _ON_MAC else None
    return int(psutil.Process().memory_info().rss) if footprint is None else footprint


def swap_bytes() -> int:
    """The swap in use on this machine, by all programs together."""
    return int(psutil.swap_memory().used)


@cache
def _recommended_working_set() -> int | None:
    """Cached: it stays the same while the machine is up, and waking the GPU's driver to ask takes its time."""
    try:
        return darwin.recommended_working_set(*darwin.metal())
    except OSError:
        return None
