"""MLX as every engine module imports it: with a fast BLAS underneath on Linux.

MLX's Linux wheel brings the reference BLAS, thirty times slower in float32 than OpenBLAS. Whichever
library defines sgemm first in the process serves MLX, so OpenBLAS must be loaded before mlx.core is.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

import numpy as np


def _load_openblas() -> bool:
    """Loads OpenBLAS for all libraries that come after it; False where there is none."""
    for name in ("libopenblas.so.0", "libopenblas.so"):
        try:
            ctypes.CDLL(name, mode=os.RTLD_GLOBAL)
        except OSError:
            continue
        return True
    return False


def _keep_freed_memory() -> None:
    """Has glibc's malloc take large arrays from its own heap.

    It would fetch each from the system and give it back at once: a page fault for every 4 KB that attention
    writes, a quarter of its time.
    """
    threshold, trim = -3, -1  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(threshold, 32 * 1024**2)
        mallopt(trim, 96 * 1024**2)


def _keep_graphs_small() -> None:
    """Has MLX launch a CUDA graph for every 20 operations or 25 Mi numbers that they read.

    What a graph's operations make is given back when all of them are done, and by itself MLX puts up to 100 operations
    or 1,000 Mi numbers in one on an H200. With less a step takes as long, and up to a third less memory.
    """
    os.environ.setdefault("MLX_MAX_OPS_PER_BUFFER", "20")
    os.environ.setdefault("MLX_MAX_MB_PER_BUFFER", "25")


if sys.platform == "linux":
    _keep_freed_memory()
    _keep_graphs_small()
has_fast_blas = sys.platform != "linux" or _load_openblas()

import mlx.core as mx  # noqa: E402
import mlx.nn as nn  # noqa: E402

__all__ = ["compute_dtype", "compute_next", "compute_now", "exp_now", "has_fast_blas", "mx", "nn", "on_cpu"]


def on_cpu() -> bool:
    """Whether MLX computes on the CPU by default here."""
    return mx.default_device().type == mx.DeviceType.cpu


def compute_dtype(stored: mx.Dtype) -> mx.Dtype:
    """The dtype to hold weights in: the model's own on a GPU, float32 on the CPU, where half precision crawls."""
    return mx.float32 if on_cpu() else stored


def compute_now(*arrays: mx.array) -> None:
    """Computes arrays and has what they were made of given back.

    On a GPU a thread of MLX's frees it some time after an evaluation ends: of a head's chunks up to sixteen were seen
    alive on an H200.
    """
    mx.eval(*arrays)
    if not on_cpu():
        mx.synchronize()


def compute_next(*arrays: mx.array | list[mx.array]) -> None:
    """Has arrays computed before anything that is asked for later, so that what they are made of can go.

    On a GPU without waiting for them: an evaluation that waits costs it a good half millisecond.
    """
    if on_cpu():
        mx.eval(*arrays)
    else:
        begin: Any = mx.async_eval  # has no types
        begin(*arrays)


def exp_now(array: mx.array) -> mx.array:
    """e^x of a float32 array, for code that evaluates as it goes: on the CPU this computes at once.

    There MLX takes 12 ns a number and NumPy, which has it vectorized, 0.7 with the copy.
    """
    if not on_cpu():
        return mx.exp(array)
    mx.eval(array)
    return mx.array(np.exp(np.array(array, copy=False)))
