"""MLX as every engine module imports it: with a fast BLAS underneath on Linux.

MLX's Linux wheel brings the reference BLAS, thirty times slower in float32 than OpenBLAS. Whichever
library defines sgemm first in the process serves MLX, so OpenBLAS must be loaded before mlx.core is.
"""

from __future__ import annotations

import ctypes
import os
import sys


def _load_openblas() -> bool:
    """Loads OpenBLAS for all libraries that come after it; False where there is none."""
    for name in ("libopenblas.so.0", "libopenblas.so"):
        try:
            ctypes.CDLL(name, mode=os.RTLD_GLOBAL)
        except OSError:
            continue
        return True
    return False


has_fast_blas = sys.platform != "linux" or _load_openblas()

import mlx.core as mx  # noqa: E402
import mlx.nn as nn  # noqa: E402

__all__ = ["compute_dtype", "has_fast_blas", "mx", "nn", "on_cpu"]


def on_cpu() -> bool:
    """Whether MLX computes on the CPU by default here."""
    return mx.default_device().type == mx.DeviceType.cpu


def compute_dtype(stored: mx.Dtype) -> mx.Dtype:
    """The dtype to hold weights in: the model's own on a GPU, float32 on the CPU, where half precision crawls."""
    return mx.float32 if on_cpu() else stored
