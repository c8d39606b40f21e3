"""This machine's memory, what training may take of it, and whether MLX computes on a GPU here. Loads no MLX."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

from engine.config import GB, TrainConfig

# What we leave to the system and other programs when nothing else is said.
_MARGIN = 0.1


@dataclass(frozen=True)
class Machine:
    """This machine's memory: all of it, and what is free for us now."""

    name: str
    total_bytes: int
    available_bytes: int


def machine() -> Machine:
    """What this machine has, inside a container what the container may use."""
    memory = psutil.virtual_memory()
    total, available = memory.total, memory.available
    limit = _container_limit()
    if limit is not None and limit < total:
        total, available = limit, min(available, limit - psutil.Process().memory_info().rss)
    return Machine("This Mac" if sys.platform == "darwin" else "This machine", total, max(0, available))


def _container_limit() -> int | None:
    try:
        return int(Path("/sys/fs/cgroup/memory.max").read_text())
    except (OSError, ValueError):
        return None


def budget_bytes(config: TrainConfig, machine: Machine) -> int:
    """What training may take: the setting, or what is free now less a tenth of the machine."""
    if not isinstance(config.memory_budget_gb, str):
        return int(config.memory_budget_gb * GB)
    return max(GB // 4, machine.available_bytes - int(_MARGIN * machine.total_bytes))


@cache
def computes_on_gpu() -> bool:
    """Whether MLX computes on a GPU here, told without loading it."""
    return sys.platform == "darwin" or any(importlib.util.find_spec(name) for name in ("mlx_cuda_12", "mlx_cuda_13"))
