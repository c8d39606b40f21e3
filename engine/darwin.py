"""What macOS tells about memory, asked through ctypes: psutil has neither the footprint nor what the GPU may take.

Each question takes the libraries that it asks: on a Mac those of `system()` and `metal()`.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

MB = 1024**2


class RusageInfo(ctypes.Structure):
    """`struct rusage_info_v0` of Apple's <sys/resource.h>: the oldest flavour, whose layout is fixed for good."""

    _fields_ = [
        ("uuid", ctypes.c_uint8 * 16),
        ("user_time", ctypes.c_uint64),
        ("system_time", ctypes.c_uint64),
        ("pkg_idle_wkups", ctypes.c_uint64),
        ("interrupt_wkups", ctypes.c_uint64),
        ("pageins", ctypes.c_uint64),
        ("wired_size", ctypes.c_uint64),
        ("resident_size", ctypes.c_uint64),
        ("phys_footprint", ctypes.c_uint64),
        ("proc_start_abstime", ctypes.c_uint64),
        ("proc_exit_abstime", ctypes.c_uint64),
    ]


_RUSAGE_INFO_V0 = 0


def system() -> Any:
    """libSystem, which is part of every process."""
    return ctypes.CDLL(None)


def metal() -> tuple[Any, Any]:
    """Metal and the Objective-C runtime. OSError where there are none."""
    # Without Core Graphics a program that has no window is told that there is no default device.
    ctypes.CDLL("/System/Library/Frameworks/CoreGraphics.framework/CoreGraphics")
    metal = ctypes.CDLL("/System/Library/Frameworks/Metal.framework/Metal")
    return metal, ctypes.CDLL("/usr/lib/libobjc.A.dylib")


def phys_footprint(system: Any) -> int | None:
    """This process's footprint in bytes, as Activity Monitor shows it; None if the system doesn't say.

    Unlike resident memory it counts what was compressed or swapped out, and the GPU's buffers, once each.
    """
    system.proc_pid_rusage.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    system.proc_pid_rusage.restype = ctypes.c_int
    info = RusageInfo()
    failed = system.proc_pid_rusage(os.getpid(), _RUSAGE_INFO_V0, ctypes.addressof(info))
    return None if failed else int(info.phys_footprint)


def wired_limit(system: Any) -> int | None:
    """What the user lets the GPU wire, in bytes (`sysctl iogpu.wired_limit_mb`); None if that is left to macOS."""
    # A size_t for the size and no new value: sysctlbyname(3).
    system.sysctlbyname.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    system.sysctlbyname.restype = ctypes.c_int
    value, size = ctypes.c_uint64(0), ctypes.c_size_t(8)
    failed = system.sysctlbyname(b"iogpu.wired_limit_mb", ctypes.addressof(value), ctypes.addressof(size), None, 0)
    return None if failed or value.value == 0 else value.value * MB


def recommended_working_set(metal: Any, objc: Any) -> int | None:
    """`recommendedMaxWorkingSetSize` of the default GPU, in bytes; None without a GPU."""
    create = metal.MTLCreateSystemDefaultDevice
    create.argtypes, create.restype = [], ctypes.c_void_p
    selector = objc.sel_registerName
    selector.argtypes, selector.restype = [ctypes.c_char_p], ctypes.c_void_p
    # Without its types objc_msgSend would hand over 32 bits of each pointer.
    send = objc.objc_msgSend
    send.argtypes, send.restype = [ctypes.c_void_p, ctypes.c_void_p], ctypes.c_uint64
    device = create()
    return int(send(device, selector(b"recommendedMaxWorkingSetSize"))) if device else None
